// Shards: the host's shards as one engine, so that commands read as if there were one.
//
//     PUSH, CALL             by key, once or number; else in turn      ─► one shard
//     DONE, JOB, AWAIT …     by id                                     ─► one shard
//     TAKE                   one after another; waits in all of them   ─► whoever has work first
//     STAGES, EPIC, JOBS …   all of them: added up, or put together
//     PAUSE, STAGE …         all of them, the first one first: what it refuses changes nothing
//
// With one shard nothing is looked for and nothing is added up. Errors are the core's. One thread,
// within a turn.
#ifndef SERVER_SHARDS_H
#define SERVER_SHARDS_H

#include "server/session.h"

// ---- Which one? ---------------------------------------------------------------------------------

// The shard that knows this job; if none does, one that will say so.
uint32_t shards_find(const struct host *, uint64_t id);

static inline uint32_t shard_of_job(const struct host *h, uint64_t id) {
    return h->shards == 1 ? 0 : shards_find(h, id);
}

static inline struct core *core_of_job(const struct host *h, uint64_t id) {
    return h->parts[shard_of_job(h, id)].core;
}

// Whose log an entry is in: grants, outcomes and jobs say it beside its position.
static inline struct shard *shard_at(const struct host *h, uint32_t shard) {
    return h->parts[shard].shard;
}

// ---- Handing in, waiting for ends ---------------------------------------------------------------

// Where a push belongs, of several shards. MR_EGAP: a lower number of its source was refused by
// another one.
int shards_route(struct session *, const struct push *, uint32_t *out);

void shards_push_leave(struct session *); // its pusher waits no longer, if it did

// As core_push; sets the push's connection, and those of its caller and pusher. The pusher has left
// the shard where it waited for an earlier push.
static inline int shards_push(struct session *s, struct push *p, struct pushed *out) {
    uint32_t to = 0;
    int err = s->host->shards == 1 ? 0 : shards_route(s, p, &to);
    if (err < 0)
        return err;
    p->conn = &s->presences[to].conn;
    if (p->caller)
        p->caller->conn = p->conn;
    if (p->pusher && p->pusher->conn != p->conn) {
        shards_push_leave(s);
        p->pusher->conn = p->conn;
    }
    return core_push(s->host->parts[to].core, p, out);
}

// As core_await, for the session's caller.
int shards_await(struct session *, uint64_t id, struct outcome *out);
void shards_await_leave(struct session *);

// ---- Working ------------------------------------------------------------------------------------

// As core_take; sets the connection. If `wait`, the session waits in all shards (MR_EAGAIN) …
int shards_take(struct session *, struct take *, bool wait, struct grant *out, size_t *out_count);
// … and no longer, but for the one whose taker this is.
void shards_take_leave(struct session *, const struct taker *but);

// ---- Stages -------------------------------------------------------------------------------------

// core_pause, core_resume or core_drain, in all shards.
int shards_act(struct host *, int (*act)(struct core *, mr_bytes stage), mr_bytes stage);
// Whether a number of a source was accepted; the first that was not.
bool shards_source_has(const struct host *, mr_bytes source, uint64_t number);
uint64_t shards_source_resume(const struct host *, mr_bytes source);
int shards_remove_stage(struct host *, mr_bytes stage); // core_stage_remove, in all shards
int shards_set(struct host *, mr_bytes stage, mr_bytes name, mr_bytes value);

// Stages stand where the first shard has them that knows them: others' places are empty.
size_t shards_stage_places(const struct host *);
int shards_stage_place(const struct host *, mr_bytes stage, size_t *out);  // MR_EGONE
bool shards_stage_at(struct host *, size_t place, struct stage_info *out); // false: empty

int shards_look_stage(struct host *, mr_bytes stage, struct stage_info *out);
size_t shards_stage_feeds(const struct host *, mr_bytes stage, mr_bytes out[CORE_EDGES]);
size_t shards_top_channels(struct host *, mr_bytes stage, struct channel_info *out, size_t max);

// What was noted by an event is done in other shards: within the turn, outside of any core.
void shards_note_freed(struct host *, mr_bytes stage, uint64_t shards);
int shards_note_edge(struct host *, mr_bytes stage, mr_bytes downstream);
static inline bool shards_want_waking(const struct host *h) {
    return h->freed_count || (h->edges.size && !h->edges_rest);
}
void shards_wake(struct host *);

// ---- Jobs ---------------------------------------------------------------------------------------

int shards_look_job(const struct host *, uint64_t id, struct job_info *out);

// As core_walk, of all shards in one list, `most` at most: oldest first, as far as the order of
// each shard allows.
int shards_list(struct host *, const struct job_walk *,
                int (*each)(void *, const struct job_info *), void *arg);

// As core_walk of one shard; MR_EGONE only if no other knows the stage either.
int shards_walk_one(const struct host *, uint32_t shard, const struct job_walk *,
                    int (*each)(void *, const struct job_info *), void *arg);

// As core_walk, one shard behind the other: for those who come by all of them.
int shards_walk(const struct host *, const struct job_walk *,
                int (*each)(void *, const struct job_info *), void *arg);

// ---- Epics --------------------------------------------------------------------------------------

// Counts are added; an epic resumes at the first number that no shard has.
int shards_epic(const struct host *, mr_bytes name, struct epic_info *out);
int shards_epic_end(const struct host *, mr_bytes name, uint64_t total);
int shards_epic_skip(const struct host *, mr_bytes name, uint64_t number);
int shards_epic_drop(struct host *, mr_bytes name);
void shards_epic_expect(const struct host *, mr_bytes name, uint64_t total);

// As core_epic_watch, for the session: it is told when the epic may have come so far in all shards
// together.
int shards_epic_watch(struct session *, mr_bytes name, int64_t left);
void shards_epic_unwatch(struct session *);
int shards_each_epic(const struct host *, mr_bytes from,
                     int (*each)(void *, mr_bytes name, const struct epic_info *), void *arg);

// ---- Memory -------------------------------------------------------------------------------------

// Entries that the cores have looked at since this was asked last.
uint64_t shards_steps(const struct host *);

uint64_t shards_memory(const struct host *);
uint64_t shards_live_bytes(const struct host *);
void shards_tell_memory(const struct host *, uint64_t outside_bytes);

#endif
