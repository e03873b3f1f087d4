// The local engine's life: opening shards and a thread for each, refusing to close while in use,
// freeing. One shard is an engine by itself; a spread stands before several.
#include "base/clock.h"
#include "engine/spread.h"

#include "base/errors.h"
#include "base/mem.h"

static int local_close(struct engine *);

static const struct engine_impl local_impl = {
    .close = local_close,
    .push = local_push,
    .push_many = local_push_many,
    .call = local_call,
    .call_start = local_call_start,
    .await = local_await,
    .cancel = local_cancel,
    .wait_empty = local_wait_empty,
    .puller_open = local_puller_open,
    .puller_interrupt = local_puller_interrupt,
    .puller_close = local_puller_close,
    .take = local_take,
    .tell = local_tell_loop,
    .done = local_done,
    .done_take = local_done_take,
    .fail = local_fail,
    .release = local_release,
    .unpin = local_unpin,
    .beat = local_beat,
    .beat_all = local_beat_all,
    .epic = local_epic,
    .epic_wait = local_epic_wait,
    .epic_end = local_epic_end,
    .epic_skip = local_epic_skip,
    .epic_drop = local_epic_drop,
    .stage = local_stage,
    .set = local_set,
    .pause = local_pause,
    .resume = local_resume,
    .dead = local_dead,
    .retry = local_retry,
    .drop = local_drop,
};

int engine_check_stage(mr_bytes name) {
    return stage_name_check(name);
}

// ---- Opening ----------------------------------------------------------------------------------

static enum log_sync sync_of(enum engine_sync sync) {
    switch (sync) {
    case ENGINE_SYNC_ALWAYS:
        return LOG_SYNC_ALWAYS;
    case ENGINE_SYNC_INTERVAL:
        return LOG_SYNC_INTERVAL;
    case ENGINE_SYNC_NONE:
        return LOG_SYNC_NONE;
    }
    return LOG_SYNC_ALWAYS;
}

static void local_init(struct local *e) {
    struct list *lists[] = { &e->waiters, &e->told,    &e->empties, &e->started,
                             &e->calls,   &e->notices, &e->ringing, &e->pullers };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        list_init(lists[i]);
    e->base.impl = &local_impl;
    pthread_mutex_init(&e->lock, NULL);
    cond_init(&e->due);
    cond_init(&e->calls_told);
}

static struct local *local_create(void) {
    struct local *e = mem_alloc_line(sizeof *e);
    if (e)
        local_init(e);
    return e;
}

// The engines that the shards will belong to.
struct opening {
    struct local *locals[SHARDS_MOST];
    uint32_t count;
};

static void *opening_add(void *arg, uint32_t shard, uint32_t shards) {
    struct opening *o = arg;
    struct local *e = local_create();
    if (!e)
        return NULL;
    e->index = shard;
    o->locals[shard] = e;
    o->count = shards;
    return e;
}

static struct group_options group_options_of(struct opening *opening,
                                             const struct local_options *o) {
    return (struct group_options){
        .dir = o->dir,
        .shards = o->shards,
        .log = { .sync = sync_of(o->sync), .interval_ms = o->interval_ms },
        .limits = { .max_body = HAND_BODY,
                    .max_state = HAND_STATE,
                    .max_key = HAND_KEY,
                    .max_once = HAND_ONCE,
                    .max_reason = HAND_REASON,
                    .max_block = HAND_TAKE,
                    .max_take = HAND_TAKE,
                    .max_take_stages = TAKE_STAGES_MOST,
                    .max_emits = HAND_EMITS,
                    .max_emit_bytes = HAND_BODY,
                    .max_bytes = o->max_bytes },
        .events = { .claim = event_claim,
                    .granted = event_granted,
                    .ended = event_ended,
                    .room = event_room,
                    .epic = event_epic,
                    .stop = event_stop,
                    .over = event_over,
                    .edge = event_edge },
        .owner = opening_add,
        .arg = opening,
    };
}

void local_free(struct local *e) {
    if (!e)
        return;
    for (struct mr_job *job = e->spare, *next; job; job = next) {
        next = job->chain;
        hand_finish(job);
        mem_free(job);
    }
    mem_free(e->hands.slots);
    mem_free(e->grants);
    buffer_finish(&e->notes);
    pthread_cond_destroy(&e->due);
    pthread_cond_destroy(&e->calls_told);
    pthread_mutex_destroy(&e->lock);
    mem_free(e);
}

void local_attach(struct local *e, struct shard *shard) {
    e->shard = shard;
    e->core = shard_core(shard);
    core_join(e->core, &e->conn);
    e->links_due = core_links(e->core) > 0;
}

int local_start(struct local *e) {
    pthread_mutex_lock(&e->lock); // the thread finds its own name written
    int failed = pthread_create(&e->thread, NULL, local_thread, e);
    e->threaded = !failed;
    pthread_mutex_unlock(&e->lock);
    if (failed)
        return error_set(MR_ENOMEM, "no thread for the engine: %s", strerror(failed));
    return 0;
}

static int alone_open(struct group *group, struct local *e, struct engine **out) {
    e->group = group;
    local_attach(e, group_shard(group, 0));
    int err = local_start(e);
    if (err >= 0) {
        *out = &e->base;
        return 0;
    }
    group_close(group);
    local_free(e);
    return err;
}

int local_open(const struct local_options *options, struct engine **out) {
    struct opening opening = { 0 };
    struct group_options o = group_options_of(&opening, options);
    struct group *group;
    int err = group_open(&o, &group);
    if (err >= 0 && opening.count == 1)
        return alone_open(group, opening.locals[0], out);
    if (err >= 0)
        return spread_open(group, opening.locals, out);
    for (uint32_t i = 0; i < opening.count; i++)
        local_free(opening.locals[i]);
    return err;
}

// ---- Closing ----------------------------------------------------------------------------------

static bool has_worker(const struct local *e) {
    for (const struct list *l = e->pullers.next; l != &e->pullers; l = l->next)
        if (list_entry(l, struct local_puller, of_engine)->options.handlers)
            return true;
    return false;
}

static int check_unused(const struct local *e) {
    if (has_worker(e))
        return error_set(MR_EBUSY, "a worker is open: stop it with mr_worker_stop first");
    if (e->hands.count)
        return error_set(MR_EBUSY, "%u jobs are in hand: end them first", e->hands.count);
    if (!list_empty(&e->started))
        return error_set(MR_EBUSY, "started calls have not ended yet: await or cancel them first");
    if (pthread_equal(pthread_self(), e->spread ? spread_teller(e->spread) : e->thread))
        return error_set(MR_EBUSY, "an engine cannot be closed by its own callback: close it from "
                                   "another thread");
    if (!list_empty(&e->waiters))
        return error_set(MR_EBUSY, "a thread is waiting in a call of this engine");
    return 0;
}

bool local_is_telling(const struct local *e) {
    return e->telling_calls || !list_empty(&e->calls) || !list_empty(&e->started);
}

int local_check_unused(struct local *e) {
    pthread_mutex_lock(&e->lock);
    int err = check_unused(e);
    while (err >= 0 && local_is_telling(e)) {
        pthread_cond_wait(&e->calls_told, &e->lock); // calls that have ended are told first
        err = check_unused(e);
    }
    pthread_mutex_unlock(&e->lock);
    return err;
}

void local_join(struct local *e) {
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    if (e->thread_sleeps_on)
        local_wake_thread(e);
    pthread_mutex_unlock(&e->lock);
    if (e->threaded)
        pthread_join(e->thread, NULL);
    e->threaded = false;
}

static int local_close(struct engine *base) {
    struct local *e = (struct local *)base;
    int err = local_check_unused(e);
    if (err < 0)
        return err;
    local_join(e);
    while (!list_empty(&e->pullers))
        local_puller_close(&list_entry(e->pullers.next, struct local_puller, of_engine)->base);
    group_close(e->group);
    local_free(e);
    return 0;
}
