// Spread: an engine over several shards, each a local engine with a lock and a thread of its own.
//
//      push, call, looks … ── by stage ──► one shard         job in hand ──► the shard it is from
//      await … ──────────── by id ───────► one shard
//
//      take       the shards of its stages, in their order; then waits at all of these (ask.h)
//
//      shard 0 ──┐ links: emits that belong to another shard, carried by the sender's thread:
//      shard 1 ──┘ durable there ─► accepted here ─► durable here ─► acknowledged there
//
// Callbacks of all shards are called by one thread, the teller, so that they come one after another
// and may wait for anything: the shards' own threads never wait for a program. No thread holds the
// locks of two shards, but for wait_empty and closing, which take them in ascending order.
//
// When the log of one shard has failed, all answer MR_ESTOPPED.
#ifndef ENGINE_SPREAD_H
#define ENGINE_SPREAD_H

#include "engine/local.h"

struct spread {
    struct engine base;
    struct group *group;
    uint32_t count;
    struct local *locals[SHARDS_MOST];

    pthread_mutex_t passing; // held while notes of a shard are passed on; taken before other locks
    pthread_t teller;
    bool has_teller;
    atomic_bool stopped;

    pthread_mutex_t lock; // guards what follows; taken inside that of a shard
    pthread_cond_t told;
    uint64_t to_tell; // bit n: shard n has callbacks to be called
    bool closing;
    char why_stopped[256];
    struct list pullers;
};

struct spread_puller {
    struct puller base;
    struct list of_spread;
    atomic_bool interrupted;
    struct ask ask; // with `ring`: stays asked for
    bool in_loop;
    struct local_puller *pullers[SHARDS_MOST];
};

// The engine of the shard that a stage lives in.
static inline struct local *spread_local(const struct spread *s, mr_bytes stage) {
    return s->locals[route_of(s->count, stage)];
}

// Takes over the group and the engines of its shards, which it frees when it fails: MR_ENOMEM.
int spread_open(struct group *, struct local *const *locals, struct engine **out);

// ---- What a shard's engine tells its spread ---------------------------------------------------

// With the shard's lock: it has callbacks to be called.
void spread_call_teller(struct spread *, uint32_t index);
pthread_t spread_teller(const struct spread *);

// With the shard's lock: its log has failed. The others hear it from its thread.
void spread_note_stop(struct spread *, struct shard *);
int spread_say_stopped(struct spread *); // MR_ESTOPPED, with its sentence
static inline bool spread_has_stopped(const struct spread *s) {
    return atomic_load_explicit(&s->stopped, memory_order_relaxed);
}

// What the thread of a shard has to do for others: links, stages that may go on, a stop. With its
// lock, which spread_do_duty gives up meanwhile.
bool spread_has_duty(const struct local *);
void spread_do_duty(struct local *);
int spread_pass_notes(struct local *); // without its lock: tells the others what it has noted
void spread_pump(struct local *); // spread_link.c: carries what is due; with the lock, as above

// ---- spread_push.c, spread_take.c, spread_look.c: as engine.h says ----------------------------

int spread_push(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *, mr_id *);
int spread_push_many(struct engine *, mr_bytes stage, const mr_item *, size_t,
                     const mr_push_options *, const struct numbered *first, mr_id *out_ids,
                     size_t *out_count);
int spread_call(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
                struct buffer *);
int spread_call_start(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
                      mr_on_end *, void *arg, mr_id *);

int spread_puller_open(struct engine *, const struct puller_options *, struct puller **);
void spread_puller_interrupt(struct puller *);
void spread_puller_close(struct puller *);
int spread_take(struct puller *, const struct pull *, mr_job **);
int spread_done_take(mr_job *, const struct pull *, int *out_done, mr_job **);
void spread_tell_loop(struct puller *);
int64_t spread_beat_all(struct puller *);

int spread_await(struct engine *, mr_id, int64_t wait_ms, struct buffer *);
int spread_cancel(struct engine *, mr_id);
int spread_retry(struct engine *, mr_id);
int spread_drop(struct engine *, mr_id);
int spread_wait_empty(struct engine *, mr_bytes stage, int64_t wait_ms);
int spread_stage(struct engine *, mr_bytes stage, mr_stage_info *);
int spread_set(struct engine *, mr_bytes stage, mr_bytes policy, mr_bytes value);
int spread_pause(struct engine *, mr_bytes stage);
int spread_resume(struct engine *, mr_bytes stage);
int spread_dead(struct engine *, mr_bytes stage,
                int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg);

int spread_epic(struct engine *, mr_bytes stage, mr_bytes name, mr_epic_info *);
int spread_epic_wait(struct engine *, mr_bytes stage, mr_bytes name, int64_t left,
                     uint64_t expected, int64_t wait_ms, mr_epic_info *);
int spread_epic_end(struct engine *, mr_bytes stage, mr_bytes name, uint64_t total);
int spread_epic_skip(struct engine *, mr_bytes stage, mr_bytes name, uint64_t number);
int spread_epic_drop(struct engine *, mr_bytes stage, mr_bytes name);

#endif
