// Store: what the store commands share: which store a URL names, its shards as they are read,
// whether a process uses it, and what an examination finds there. Errors are the log's and the
// core's; nothing here changes a store.
#ifndef CLI_STORE_STORE_H
#define CLI_STORE_STORE_H

#include "cli/cli.h"
#include "core/core.h"
#include "log/log.h"
#include "log/replicated.h"
#include "log/segment.h"
#include "shard/layout.h"

#include <stdatomic.h>

struct json;

// Reads the URL of a store in files or in a database; borrows `url` and `cluster` (NULL: not
// given). False: it names none, and the reason was printed.
bool store_read(const struct input *, const char *url, const char *cluster, struct store_url *out);

// The directory that `url` names, borrowed from it. NULL: it names none, and the reason was
// printed.
const char *store_dir(const struct input *, const char *url);

// Prints why a store could not be opened, and what can be done; returns what to exit with.
enum cli_exit store_failed(const struct input *, const struct store_url *, int err);

// What a command exits with that a database has refused.
enum cli_exit store_exit_of(int err);

// Locks the store until `out_fd` is closed (-1: it was never opened by a process). Writes nothing,
// so it works where writing is not possible. MR_EBUSY: a process uses it, which is named; MR_EIO.
int store_hold(const char *dir, int *out_fd);

// ---- Reading ----------------------------------------------------------------------------------

enum { STORE_NAME = LOG_PATH + 8 };

// A store as it is read. All shards of a cluster are seen as they were when the view was opened.
struct store_view {
    struct store_url url;
    char name[STORE_NAME];        // "file:DIR", "cluster NAME", for messages: without a password
    uint32_t shards;              // 1 also if a directory is no store, which opening it reports
    struct stream_store *streams; // of a cluster; NULL: it is in files
    struct served *served;        // of a running server (served.h); NULL: it is not
};

// MR_ECORRUPT, MR_EIO; of a cluster also MR_ENET, MR_EPERM, MR_EINVAL: it was not made.
int store_view_open(const struct store_url *, struct store_view *out);
// The same of the server at this address, whose store can only be copied. Errors of served_open.
struct address;
int store_view_serve(const struct address *, struct store_view *out);
void store_view_close(struct store_view *); // after its logs; also one of zeros

// Opens the log of a shard read-only. Errors of log_file_open and log_stream_open.
int store_view_shard(const struct store_view *, uint32_t shard, struct log **out);

// The same. In a directory that is in use half-written entries look like damage: then it is tried
// again for a while. MR_EBUSY: without success.
int store_view_look(const struct store_view *, uint32_t shard, struct log **out);

// Prints a line if a process uses the directory: what is read of it may be out of date.
void store_note_use(const struct store_view *);

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
    char file[LOG_PATH]; // or "shard N" of a cluster, where offsets are positions
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
int store_examine(const struct store_view *, struct findings *out);
void findings_finish(struct findings *);

// What a stage has in all shards. MR_EGONE.
int findings_stage(const struct findings *, mr_bytes stage, struct stage_info *out);

// The stages of all shards, each once, with what they have together: `each` returns nonzero to
// stop, which is then returned.
int findings_stages(const struct findings *, int (*each)(void *, const struct stage_info *),
                    void *arg);

// The same for a store that may be in use: problems count only if they are found twice. MR_EBUSY:
// the store changes too fast.
int store_look(const struct store_view *, struct findings *out);

// Prints that the store is damaged, and where.
void problems_print(const struct store_view *, const struct findings *);
void problems_json(struct json *, const struct findings *); // as the field `problems`

#endif
