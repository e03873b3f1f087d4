// Reshard: copies what lives in the shards of a store into the shards of another store, which may
// be more or fewer. It works as the cleaner does, but writes into other logs:
//
//     FROM/shard-0 ── replay ──► core ◄── core_clean(entry) ── scan ── FROM/shard-0
//                                  │ sink: stages and sources get the numbers they have in the
//     …                            │ copy; records of a stage go to the shard that it lives in
//                                  ▼
//                        TO/shard-0 … TO/shard-(M-1)
//
// Ids, positions and tokens stay the same, and with them the order within a channel. Emits that
// were on their way to another shard are delivered. TRIM records are left out: they are about
// positions in the old log. A store of an older version may have a stage in several shards, by key,
// and sources that do not say their stage: what these shards know of one is merged.
#ifndef CLI_STORE_RESHARD_H
#define CLI_STORE_RESHARD_H

#include "base/limits.h"
#include "base/map.h"
#include "cli/store/store.h"
#include "core/record.h"

// What an item is found by: a stage's name; a source's stage, kind, scope and name.
enum { RESHARD_KEY = 8 + SCOPE_MOST + EPIC_NAME_MOST };

// A stage or a source, as the copy has it.
struct reshard_item {
    uint16_t key_size, name_size, scope_size;
    char key[RESHARD_KEY];        // ends with its name; the scope stands before that
    struct record record;         // as the first shard has it; `stage` of a source is the copy's
    struct record_about about;    // merged
    bool merged;                  // a source that was added to another, and is not written
    uint64_t number[SHARDS_MOST]; // its number in each shard of the store; 0: it is not known there
};

struct roster {
    struct reshard_item *items; // number 1 is the first
    uint32_t count, capacity;
    struct map by_key, by_number; // the latter together with the shard
};

struct reshard;

struct reshard_from {
    struct reshard *reshard;
    uint32_t shard;
    struct log *log;
    struct core *core;
};

struct reshard {
    uint32_t from_count, to_count;
    struct reshard_from from[SHARDS_MOST]; // with logs open to look; the caller's
    struct log *to[SHARDS_MOST];           // empty; the caller's
    uint64_t last_at[SHARDS_MOST];         // in these
    uint64_t unflushed[SHARDS_MOST];       // bytes
    struct roster stages, sources;
    struct record epoch; // the latest
    uint32_t job_to;     // where the job went that was written last
    uint64_t copied, bytes;
};

// Replays the logs into cores, delivers emits, and writes epoch and stages. Errors are the log's
// and the core's; the caller calls reshard_finish in any case.
int reshard_begin(struct reshard *);

// Writes what lives in this entry of a shard's log.
int reshard_entry(struct reshard *, uint32_t from, const struct log_seen *);

// Writes the sources, and waits until everything is durable.
int reshard_end(struct reshard *);

void reshard_finish(struct reshard *);

#endif
