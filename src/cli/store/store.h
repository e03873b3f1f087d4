// Store: what the store commands share: which directory a URL names, whether a process uses it, and
// what an examination finds there. Errors are the log's and the core's; nothing here changes a
// store.
#ifndef CLI_STORE_STORE_H
#define CLI_STORE_STORE_H

#include "cli/cli.h"
#include "core/core.h"
#include "log/log.h"
#include "log/segment.h"
#include "shard/layout.h"

#include <stdatomic.h>

struct json;

// The directory that `url` names, borrowed from it. NULL: it names none, and the reason was
// printed.
const char *store_dir(const struct input *, const char *url);

// Prints why a store could not be opened, and what can be done; returns what to exit with.
enum cli_exit store_failed(const struct input *, const char *dir, int err);

// Locks the store until `out_fd` is closed (-1: it was never opened by a process). Writes nothing,
// so it works where writing is not possible. MR_EBUSY: a process uses it, which is named; MR_EIO.
int store_hold(const char *dir, int *out_fd);

// Prints a line if the store is in use: what is read of it may be out of date.
void store_note_use(const char *dir);

// How many shards it has; 1 also if it is no store, which opening it reports. MR_ECORRUPT, MR_EIO.
int store_shards(const char *dir, uint32_t *out);

// Opens a shard's log read-only. In a store that is in use half-written entries look like damage:
// then it is tried again for a while. MR_EBUSY: without success.
int store_open_to_look(const char *dir, const char *shard_dir, struct log **out);

// ---- Loading ----------------------------------------------------------------------------------

// A core filled with the records of a shard's log, not opened yet.
struct loaded {
    uint32_t shard, shards; // which of how many; 0 of 0: the only one
    struct core *core;      // the caller destroys it
    uint64_t entries;
    uint64_t at;    // where it went wrong …
    bool refused;   // … if it was the core that refused a record …
    char what[256]; // … and why
};

// Set by a signal handler: loading ends with MR_ECANCELLED.
extern atomic_bool store_interrupted;

// Replays `log` into a core with this sink. Besides the core's and the log's errors MR_ECORRUPT:
// the head of the log is missing. `out` is also filled, as far as it came, on failure.
int store_load(struct log *, const struct core_sink *, struct loaded *out);

// ---- Examining --------------------------------------------------------------------------------

struct problem {
    char file[LOG_PATH];
    char what[1024];
    uint64_t offset, size; // size 0: not known; offset too if the file is a directory
    bool in_records;       // the log is readable, but its records are not valid
};

enum { PROBLEMS_LISTED = 64 };

struct findings {
    struct problem *problems; // the first of them
    uint64_t problem_count;
    uint64_t entries, segments, bytes;
    uint32_t shards;
    uint64_t damaged;                // bit n: shard n is
    struct core *cores[SHARDS_MOST]; // of the shards, open, unless there are problems
};

// Reads the whole store. 0: `out` has what was found, problems or not. MR_EINVAL: not a store, or a
// newer one; MR_EIO; MR_ENOMEM.
int store_examine(const char *dir, struct findings *out);
void findings_finish(struct findings *);

// What a stage has in all shards. MR_EGONE.
int findings_stage(const struct findings *, mr_bytes stage, struct stage_info *out);

// The stages of all shards, each once, with what they have together: `each` returns nonzero to
// stop, which is then returned.
int findings_stages(const struct findings *, int (*each)(void *, const struct stage_info *),
                    void *arg);

// The same for a store that may be in use: problems count only if they are found twice. MR_EBUSY:
// the store changes too fast.
int store_look(const char *dir, struct findings *out);

// Prints that `dir` is damaged, and where.
void problems_print(const char *dir, const struct findings *);
void problems_json(struct json *, const struct findings *); // as the field `problems`

#endif
