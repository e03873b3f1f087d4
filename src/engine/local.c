// The local engine's life: opening shards and a thread for each, refusing to close while in use,
// freeing.
#include "engine/local.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"

static int local_engine_close(struct engine *);

static const struct engine_impl local_impl = {
    .close = local_engine_close,
    .push = local_push,
    .push_many = local_push_many,
    .call = local_call,
    .call_start = local_call_start,
    .await = local_await,
    .cancel = local_cancel,
    .stage_wait_empty = local_stage_wait_empty,
    .puller_open = local_puller_open,
    .puller_interrupt = local_puller_interrupt,
    .puller_close = local_puller_close,
    .take = local_take,
    .stop_notices = local_loop_stops,
    .done = local_done,
    .done_take = local_done_take,
    .fail = local_fail,
    .release = local_release,
    .unpin = local_unpin,
    .beat = local_beat,
    .progress = local_progress,
    .beat_all = local_beat_all,
    .epic = local_epic,
    .epic_wait = local_epic_wait,
    .epic_end = local_epic_end,
    .epic_skip = local_epic_skip,
    .epic_then = local_epic_then,
    .epic_cancel = local_epic_cancel,
    .epic_forget = local_epic_forget,
    .epic_drop = local_epic_drop,
    .schedule_set = local_schedule_set,
    .schedule_act = local_schedule_act,
    .schedule = local_schedule,
    .schedules = local_schedules,
    .stage_look = local_stage_look,
    .stages = local_stages,
    .stage_why = local_stage_why,
    .stage_set = local_stage_set,
    .stage_pause = local_stage_pause,
    .stage_pause_key = local_stage_pause_key,
    .stage_resume_key = local_stage_resume_key,
    .stage_drain = local_stage_drain,
    .stage_resume = local_stage_resume,
    .jobs = local_jobs,
    .stage_cancel = local_stage_cancel,
    .dead = local_dead,
    .retry = local_retry,
    .due = local_due,
    .drop = local_drop,
    .check = local_check,
};

int engine_check_stage(mr_bytes name) {
    return stage_name_check(name);
}

// ---- Memory -----------------------------------------------------------------------------------

static struct local_shard *shard_create(struct local_engine *e, uint32_t index) {
    struct local_shard *s = mem_alloc_line(sizeof *s);
    if (!s)
        return NULL;
    struct list *lists[] = { &s->waiters, &s->notified, &s->empties, &s->started,
                             &s->calls,   &s->stops,    &s->ringing, &s->pullers };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        list_init(lists[i]);
    s->engine = e;
    s->index = index;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->due);
    cond_init(&s->calls_done);
    push_inbox_init(&s->inbox);
    return s;
}

static void shard_destroy(struct local_shard *s) {
    if (!s)
        return;
    for (struct mr_job *job = s->free_jobs, *next; job; job = next) {
        next = job->chain;
        leased_job_finish(job);
        mem_free(job);
    }
    mem_free(s->jobs.slots);
    mem_free(s->grants);
    message_finish(&s->message);
    push_inbox_finish(&s->inbox);
    pthread_cond_destroy(&s->due);
    pthread_cond_destroy(&s->calls_done);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

static struct local_engine *engine_create(void) {
    struct local_engine *e = mem_alloc(sizeof *e);
    if (!e)
        return NULL;
    e->base.impl = &local_impl;
    list_init(&e->pullers);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->notify, NULL);
    return e;
}

static void engine_destroy(struct local_engine *e) {
    for (uint32_t i = 0; i < e->count; i++)
        shard_destroy(e->shards[i]);
    pthread_cond_destroy(&e->notify);
    pthread_mutex_destroy(&e->lock);
    mem_free(e);
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

static void *shard_owner(void *arg, uint32_t index, uint32_t count) {
    (void)count;
    struct local_engine *e = arg;
    e->shards[index] = shard_create(e, index);
    e->count = index + 1;
    return e->shards[index];
}

static struct group_options group_options_of(struct local_engine *e,
                                             const struct local_options *o) {
    return (struct group_options){
        .store = o->store,
        .shards = o->shards,
        .log = { .sync = sync_of(o->sync), .interval_ms = o->interval_ms },
        .limits = { .max_body = BODY_MOST,
                    .max_state = STATE_MOST,
                    .max_reason = REASON_MOST,
                    .max_block = TAKE_MOST,
                    .max_take = TAKE_MOST,
                    .max_take_stages = TAKE_STAGES_MOST,
                    .max_emits = EMITS_MOST,
                    .max_emit_bytes = BODY_MOST,
                    .max_bytes = o->max_bytes },
        .events = { .reserve = event_claim,
                    .granted = event_granted,
                    .ended = event_ended,
                    .room = event_room,
                    .epic = event_epic,
                    .stop = event_stop },
        .owner = shard_owner,
        .arg = e,
        .never_replayed = o->store.scheme == STORE_IN_MEMORY,
    };
}

static int error_no_thread(int failed) {
    return error_set(MR_ENOMEM, "no thread for the engine: %s", strerror(failed));
}

static int start_shard(struct local_shard *s) {
    pthread_mutex_lock(&s->lock); // so that the thread sees `thread` written
    int failed = pthread_create(&s->thread, NULL, local_shard_thread, s);
    s->threaded = !failed;
    pthread_mutex_unlock(&s->lock);
    return failed ? error_no_thread(failed) : 0;
}

static int start_notifier(struct local_engine *e) {
    int failed = pthread_create(&e->notifier, NULL, local_notifier_thread, e);
    e->has_notifier = !failed;
    return failed ? error_no_thread(failed) : 0;
}

static int start_shards(struct local_engine *e, bool in_memory) {
    int err = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        struct local_shard *s = e->shards[i];
        s->shard = group_shard(e->group, i);
        s->core = shard_core(s->shard);
        s->in_memory = in_memory;
        core_join(s->core, &s->conn);
    }
    for (uint32_t i = 0; in_memory && err >= 0 && i < e->count; i++)
        err = push_inbox_open(&e->shards[i]->inbox);
    if (err >= 0)
        err = start_notifier(e);
    for (uint32_t i = 0; err >= 0 && i < e->count; i++)
        err = start_shard(e->shards[i]);
    return err;
}

// ---- Closing ----------------------------------------------------------------------------------

static bool has_worker(const struct local_shard *s) {
    for (const struct list *l = s->pullers.next; l != &s->pullers; l = l->next)
        if (list_entry(l, struct shard_puller, of_shard)->puller->options.handlers)
            return true;
    return false;
}

static int check_unused(const struct local_shard *s) {
    if (has_worker(s))
        return error_set(MR_EBUSY, "a worker is open: stop it with mr_worker_stop first");
    if (s->jobs.count)
        return error_set(MR_EBUSY, "jobs are leased: %u; end them first", s->jobs.count);
    if (!list_empty(&s->started))
        return error_set(MR_EBUSY, "started calls have not ended yet: await or cancel them first");
    if (pthread_equal(pthread_self(), s->engine->notifier))
        return error_set(MR_EBUSY, "an engine cannot be closed by its own callback: close it from "
                                   "another thread");
    if (!list_empty(&s->waiters))
        return error_set(MR_EBUSY, "a thread is waiting in a call of this engine");
    return 0;
}

static bool has_calls(const struct local_shard *s) {
    return s->calling || !list_empty(&s->calls) || !list_empty(&s->started);
}

// Waits until on_end was called for all calls that have ended.
static int wait_unused(struct local_shard *s) {
    pthread_mutex_lock(&s->lock);
    int err = check_unused(s);
    while (err >= 0 && has_calls(s)) {
        pthread_cond_wait(&s->calls_done, &s->lock);
        err = check_unused(s);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

// Looks at all shards at one instant: a callback may start a call in a shard that was checked
// before.
static bool any_calls(struct local_engine *e) {
    bool any = false;
    for (uint32_t i = 0; i < e->count; i++)
        pthread_mutex_lock(&e->shards[i]->lock);
    for (uint32_t i = 0; i < e->count; i++)
        any = any || has_calls(e->shards[i]);
    for (uint32_t i = 0; i < e->count; i++)
        pthread_mutex_unlock(&e->shards[i]->lock);
    return any;
}

static void join_shard(struct local_shard *s) {
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    local_wake_thread(s);
    pthread_mutex_unlock(&s->lock);
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = false;
}

static void join_notifier(struct local_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    pthread_cond_signal(&e->notify);
    pthread_mutex_unlock(&e->lock);
    if (e->has_notifier)
        pthread_join(e->notifier, NULL);
    e->has_notifier = false;
}

static void local_engine_end(struct local_engine *e) {
    for (uint32_t i = 0; i < e->count; i++)
        join_shard(e->shards[i]);
    join_notifier(e);
    while (!list_empty(&e->pullers))
        local_puller_close(&list_entry(e->pullers.next, struct local_puller, of_engine)->base);
    group_close(e->group);
    engine_destroy(e);
}

static int local_engine_close(struct engine *base) {
    struct local_engine *e = (struct local_engine *)base;
    int err = 0;
    do
        for (uint32_t i = 0; err >= 0 && i < e->count; i++)
            err = wait_unused(e->shards[i]);
    while (err >= 0 && any_calls(e));
    if (err >= 0)
        local_engine_end(e);
    return err;
}

int local_engine_open(const struct local_options *options, struct engine **out) {
    struct local_engine *e = engine_create();
    if (!e)
        return error_set(MR_ENOMEM, "no memory for an engine");
    struct group_options o = group_options_of(e, options);
    int err = group_open(&o, &e->group);
    if (err < 0) {
        engine_destroy(e);
        return err;
    }
    err = start_shards(e, options->store.scheme == STORE_IN_MEMORY);
    if (err < 0)
        local_engine_end(e);
    else
        *out = &e->base;
    return err;
}
