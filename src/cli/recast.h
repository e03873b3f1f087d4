// Recast: what lives in the shards of a store, written anew into the shards of another, however
// many these are. It is the cleaner's way of carrying things on, into other logs:
//
//     FROM/shard-0 ── replay ──► core ◄── core_clean(entry) ── scan ── FROM/shard-0
//                                  │ sink: stages and sources get the numbers they have in the
//     …                            │ copy; a job goes where its key, `once` or number belongs
//                                  ▼
//                        TO/shard-0 … TO/shard-(M-1)
//
// Ids, positions and tokens stay, and with them the order within a channel. What belongs to no
// shard in particular is in all of them: stages, the numbers that sources have seen, `once` names
// whose jobs are forgotten; what these have counted is in the first. Emits that were on their way
// to another shard have arrived. Notes of trimming are left out: they are about the old positions.
#ifndef CLI_RECAST_H
#define CLI_RECAST_H

#include "base/limits.h"
#include "base/map.h"
#include "cli/store.h"
#include "core/record.h"

// A stage or a source, as the copy has it.
struct recast_item {
    uint8_t size;
    char name[STAGE_NAME_MOST];
    struct record_about about;    // put together
    uint64_t dead[SHARDS_MOST];   // of a source: its dead jobs in each shard of the copy
    uint64_t number[SHARDS_MOST]; // what each shard of the store calls it; 0: it does not
};

struct roster {
    struct recast_item *items; // number 1 is the first
    uint32_t count, capacity;
    struct map by_name, by_number; // the latter together with the shard
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
    struct map once;     // spent names that are written already …
    struct buffer onces; // … struct hash128 each
    uint64_t job;        // routed last …
    uint32_t job_to;     // … and where to
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
