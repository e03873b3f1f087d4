// Recast: what lives in the shards of a store, written anew into the shards of another, however
// many these are. It is the cleaner's way of carrying things on, into other logs:
//
//     FROM/shard-0 ── replay ──► core ◄── core_clean(entry) ── scan ── FROM/shard-0
//                                  │ sink: stages and sources get the numbers they have in the
//     …                            │ copy; what belongs to a stage goes where that lives
//                                  ▼
//                        TO/shard-0 … TO/shard-(M-1)
//
// Ids, positions and tokens stay, and with them the order within a channel. Emits that were on
// their way to another shard have arrived. Notes of trimming are left out: they are about the old
// positions. A store of an older version may have a stage in several shards, by key, and sources
// that do not say their stage: what these shards know of one is put together.
#ifndef CLI_RECAST_H
#define CLI_RECAST_H

#include "base/limits.h"
#include "base/map.h"
#include "cli/store.h"
#include "core/record.h"

// What one is found by: a stage's name; a source's stage, kind, scope and name.
enum { RECAST_KEY = 8 + SCOPE_MOST + EPIC_NAME_MOST };

// A stage or a source, as the copy has it.
struct recast_item {
    uint16_t key_size, name_size, scope_size;
    char key[RECAST_KEY];         // ends with its name; the scope stands before that
    uint32_t stage;               // of a source; 0: not known
    uint64_t maker;               // who made it; 0: not known
    bool merged;                  // a source that was added to another, and is not written
    struct record_about about;    // put together
    uint64_t number[SHARDS_MOST]; // what each shard of the store calls it; 0: it does not
};

struct roster {
    struct recast_item *items; // number 1 is the first
    uint32_t count, capacity;
    struct map by_key, by_number; // the latter together with the shard
};

struct recast;

struct recast_from {
    struct recast *recast;
    uint32_t shard;
    struct log *log;
    struct core *core;
};

struct recast {
    uint32_t from_count, to_count;
    struct recast_from from[SHARDS_MOST]; // with logs open to look; the caller's
    struct log *to[SHARDS_MOST];          // empty; the caller's
    uint64_t last_at[SHARDS_MOST];        // in these
    struct roster stages, sources;
    struct record epoch; // the latest
    uint32_t job_to;     // where the job went that was written last
    uint64_t copied, bytes;
};

// Replays the logs into cores, lets emits arrive, and writes what comes first. Errors are the log's
// and the core's; in any case recast_finish is to be called.
int recast_begin(struct recast *);

// Writes what lives in this entry of a shard's log.
int recast_entry(struct recast *, uint32_t from, const struct log_seen *);

// Writes what comes last, and waits until everything is durable.
int recast_end(struct recast *);

void recast_finish(struct recast *);

#endif
