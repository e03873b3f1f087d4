// Shards: makes the host's shards look like one engine to commands.
//
//     PUSH, CALL, STAGE, EPIC, JOBS …   by stage                      ─► one shard
//     DONE, JOB, AWAIT …                by id                         ─► one shard
//     TAKE                              the shards of its stages, one after another; waits in all
//     STAGES, EPICS                     all of them, one behind the other
//
// With one shard nothing is looked for. Errors are the core's. One thread, within a turn.
#ifndef SERVER_SHARDS_H
#define SERVER_SHARDS_H

#include "server/session.h"

#include <assert.h>

// ---- Which one? ---------------------------------------------------------------------------------

// One of the host's own shards. Those of other loops belong to other threads: a command about these
// has to be passed on (router.h).
static inline struct part *own_part(const struct host *h, uint32_t shard) {
    assert(shard >= h->first && shard < h->end);
    return &h->parts[shard];
}

// The shard of this job; if no shard knows it, any.
uint32_t shards_find(const struct host *, uint64_t id);

static inline uint32_t shard_of_job(const struct host *h, uint64_t id) {
    return h->end - h->first == 1 ? h->first : shards_find(h, id);
}

static inline struct core *core_of_job(const struct host *h, uint64_t id) {
    return own_part(h, shard_of_job(h, id))->core;
}

static inline struct core *core_of_stage(const struct host *h, mr_bytes stage) {
    return own_part(h, route_of(h->shards, stage))->core;
}

// Whether commands about the stage are this loop's.
static inline bool shards_own_stage(const struct host *h, mr_bytes stage) {
    uint32_t shard = route_of(h->shards, stage);
    return shard >= h->first && shard < h->end;
}

// The shard whose log has an entry: grants, outcomes and jobs have its number beside the position.
static inline struct shard *shard_at(const struct host *h, uint32_t shard) {
    return own_part(h, shard)->shard;
}

// ---- Handing in, waiting for ends ---------------------------------------------------------------

void shards_push_leave(struct session *); // ends the wait of its pusher, if it waits

// As core_push; sets the push's connection, and those of its caller and pusher. The pusher has left
// the shard where it waited for an earlier push.
static inline int shards_push(struct session *s, struct push *p, struct pushed *out) {
    uint32_t to = route_of(s->host->shards, p->stage);
    p->conn = &shard_conn_at(s, to)->conn;
    if (p->caller)
        p->caller->conn = p->conn;
    if (p->pusher && p->pusher->conn != p->conn) {
        shards_push_leave(s);
        p->pusher->conn = p->conn;
    }
    return core_push(own_part(s->host, to)->core, p, out);
}

// As core_await, for the session's caller.
int shards_await(struct session *, uint64_t id, struct outcome *out);
void shards_await_leave(struct session *);

// ---- Working ------------------------------------------------------------------------------------

// As core_take; sets the connection. If `wait`, the session waits in all shards of its stages
// (MR_EAGAIN) …
int shards_take(struct session *, struct take *, bool wait, struct grant *out, size_t *out_count);
// The same for a session that is blocked in a take of several loops: router_reserves is asked
// first, and the answer may be there when this returns 0.
int shards_take_reserved(struct session *, const struct take *);
// … and no longer, but for the one whose taker this is.
void shards_take_leave(struct session *, const struct taker *but);

// ---- Stages -------------------------------------------------------------------------------------

// The stages of all shards, one shard after another. A shard may also know stages of other shards,
// because it emits to them: their places are empty, as are those of removed stages.
size_t shards_stage_places(const struct host *);
int shards_stage_place(const struct host *, mr_bytes stage, size_t *out); // MR_EGONE
mr_bytes shards_stage_name(const struct host *, size_t place); // empty: the place is empty

int shards_look_stage(struct host *, mr_bytes stage, struct stage_info *out);
int shards_remove_stage(struct host *, mr_bytes stage); // as core_stage_remove

// ---- Jobs and epics -----------------------------------------------------------------------------

int shards_look_job(const struct host *, uint64_t id, struct job_info *out);

// As core_walk, in the stage's shard.
int shards_walk(const struct host *, const struct job_walk *,
                int (*each)(void *, const struct job_info *), void *arg);

// As core_epic_watch, for the session.
int shards_epic_watch(struct session *, mr_bytes stage, mr_bytes name, int64_t left);
void shards_epic_unwatch(struct session *);

// ---- Memory -------------------------------------------------------------------------------------

// Entries that the cores have examined since the last call.
static inline uint64_t shards_steps(const struct host *h) {
    uint64_t steps = 0;
    for (uint32_t i = h->first; i < h->end; i++)
        steps += core_take_steps(h->parts[i].core);
    return steps;
}

// Changes whenever something is written to a log of this host.
uint64_t shards_written(const struct host *);

uint64_t shards_memory(const struct host *);
uint64_t shards_live_bytes(const struct host *);
void shards_report_memory(const struct host *, uint64_t outside_bytes);

#endif
