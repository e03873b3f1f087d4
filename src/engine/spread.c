// The spread's life, its teller, and what the threads of its shards do for one another.
#include "engine/spread.h"

#include "base/errors.h"
#include "base/mem.h"

enum { REST_MS = 100 };

static int spread_close(struct engine *);

// A job in hand knows the shard it is from.
static const struct engine_impl spread_impl = {
    .close = spread_close,
    .push = spread_push,
    .push_many = spread_push_many,
    .call = spread_call,
    .call_start = spread_call_start,
    .await = spread_await,
    .cancel = spread_cancel,
    .wait_empty = spread_wait_empty,
    .puller_open = spread_puller_open,
    .puller_interrupt = spread_puller_interrupt,
    .puller_close = spread_puller_close,
    .take = spread_take,
    .tell = spread_tell_loop,
    .done = local_done,
    .done_take = spread_done_take,
    .fail = local_fail,
    .release = local_release,
    .unpin = local_unpin,
    .beat = local_beat,
    .beat_all = spread_beat_all,
    .epic = spread_epic,
    .epic_wait = spread_epic_wait,
    .epic_end = spread_epic_end,
    .epic_skip = spread_epic_skip,
    .epic_drop = spread_epic_drop,
    .stage = spread_stage,
    .set = spread_set,
    .pause = spread_pause,
    .resume = spread_resume,
    .dead = spread_dead,
    .retry = spread_retry,
    .drop = spread_drop,
};

// ---- The teller -------------------------------------------------------------------------------

pthread_t spread_teller(const struct spread *s) {
    return s->teller;
}

void spread_call_teller(struct spread *s, uint32_t index) {
    pthread_mutex_lock(&s->lock);
    s->to_tell |= UINT64_C(1) << index;
    pthread_cond_signal(&s->told);
    pthread_mutex_unlock(&s->lock);
}

static void tell_for(struct local *e) {
    pthread_mutex_lock(&e->lock);
    local_tell_callbacks(e);
    pthread_mutex_unlock(&e->lock);
}

static void *teller_thread(void *arg) {
    struct spread *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        if (!s->to_tell) {
            pthread_cond_wait(&s->told, &s->lock);
            continue;
        }
        uint32_t index = (uint32_t)__builtin_ctzll(s->to_tell);
        s->to_tell &= s->to_tell - 1;
        pthread_mutex_unlock(&s->lock);
        tell_for(s->locals[index]);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void teller_join(struct spread *s) {
    if (!s->has_teller)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->told);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->teller, NULL);
    s->has_teller = false;
}

// ---- Duties -----------------------------------------------------------------------------------

void spread_note_stop(struct spread *s, struct shard *shard) {
    struct log_state log;
    shard_look(shard, &log);
    pthread_mutex_lock(&s->lock);
    if (log.stopped[0] && !s->why_stopped[0])
        memcpy(s->why_stopped, log.stopped, sizeof s->why_stopped);
    pthread_mutex_unlock(&s->lock);
    atomic_store(&s->stopped, true);
}

int spread_say_stopped(struct spread *s) {
    pthread_mutex_lock(&s->lock);
    int err = error_set(MR_ESTOPPED, "%s", s->why_stopped);
    pthread_mutex_unlock(&s->lock);
    return err;
}

static void stop_others(struct local *e) {
    struct spread *s = e->spread;
    for (uint32_t i = 0; i < s->count; i++) {
        struct local *other = s->locals[i];
        if (other == e)
            continue;
        pthread_mutex_lock(&other->lock);
        if (!other->stopped)
            local_stop_waiters(other);
        pthread_mutex_unlock(&other->lock);
    }
}

// MR_ENOMEM: one of them could not take it in.
static int pass_note(struct spread *s, const struct shard_note *n) {
    mr_bytes stage = { n->stage, n->stage_size },
             downstream = { n->downstream, n->downstream_size };
    int err = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        struct local *e = s->locals[i];
        int one = local_enter(e);
        if (one >= 0 && n->is_edge)
            one = core_learn_edge(e->core, stage, downstream);
        else if (one >= 0 && i != route_of(s->count, stage))
            one = core_learn_over(e->core, stage, n->over, n->high_mark);
        local_end(e);
        err = one == MR_ENOMEM ? one : err;
    }
    return err;
}

// A shard that has not seen an edge tells of it in turn; those that have do not. Notes of one shard
// are passed on one after another, by whichever thread. MR_ENOMEM: some are left.
int spread_pass_notes(struct local *e) {
    int err = 0;
    pthread_mutex_lock(&e->spread->passing);
    while (err == 0) {
        struct shard_note n;
        pthread_mutex_lock(&e->lock);
        bool any = e->notes.size;
        if (any)
            memcpy(&n, e->notes.data, sizeof n);
        pthread_mutex_unlock(&e->lock);
        if (!any)
            break;
        err = pass_note(e->spread, &n);
        pthread_mutex_lock(&e->lock);
        if (err == 0)
            buffer_consume(&e->notes, sizeof n);
        pthread_mutex_unlock(&e->lock);
    }
    pthread_mutex_unlock(&e->spread->passing);
    return err;
}

// What cannot be passed on for want of memory is tried again a while later.
static void pass_notes(struct local *e) {
    pthread_mutex_unlock(&e->lock);
    int err = spread_pass_notes(e);
    pthread_mutex_lock(&e->lock);
    if (err < 0 && !e->closing)
        local_sleep(e, &e->due, local_until(REST_MS));
}

bool spread_has_duty(const struct local *e) {
    return e->notes.size || (e->stopped ? !e->stop_told : e->links_due);
}

void spread_do_duty(struct local *e) {
    if (e->stopped && !e->stop_told) {
        e->stop_told = true;
        pthread_mutex_unlock(&e->lock);
        stop_others(e);
        pthread_mutex_lock(&e->lock);
    }
    if (e->notes.size)
        pass_notes(e);
    if (e->links_due && !e->stopped)
        spread_pump(e);
}

// ---- Opening and closing ----------------------------------------------------------------------

static void spread_free(struct spread *s) {
    for (uint32_t i = 0; i < s->count; i++)
        local_join(s->locals[i]);
    teller_join(s);
    while (!list_empty(&s->pullers))
        spread_puller_close(&list_entry(s->pullers.next, struct spread_puller, of_spread)->base);
    group_close(s->group);
    for (uint32_t i = 0; i < s->count; i++)
        local_free(s->locals[i]);
    pthread_cond_destroy(&s->told);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->passing);
    mem_free(s);
}

static struct spread *spread_create(struct group *group, struct local *const *locals) {
    struct spread *s = mem_alloc(sizeof *s);
    if (!s)
        return NULL;
    s->base.impl = &spread_impl;
    s->group = group;
    s->count = group_count(group);
    for (uint32_t i = 0; i < s->count; i++) {
        s->locals[i] = locals[i];
        locals[i]->spread = s;
    }
    list_init(&s->pullers);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->passing, NULL);
    pthread_cond_init(&s->told, NULL);
    return s;
}

static int spread_start(struct spread *s) {
    int failed = pthread_create(&s->teller, NULL, teller_thread, s);
    s->has_teller = !failed;
    if (failed)
        return error_set(MR_ENOMEM, "no thread for the engine: %s", strerror(failed));
    int err = 0;
    for (uint32_t i = 0; i < s->count; i++)
        local_attach(s->locals[i], group_shard(s->group, i));
    for (uint32_t i = 0; err >= 0 && i < s->count; i++)
        err = local_start(s->locals[i]);
    return err;
}

int spread_open(struct group *group, struct local *const *locals, struct engine **out) {
    struct spread *s = spread_create(group, locals);
    if (!s) {
        uint32_t count = group_count(group);
        group_close(group);
        for (uint32_t i = 0; i < count; i++)
            local_free(locals[i]);
        return error_set(MR_ENOMEM, "no memory for an engine");
    }
    int err = spread_start(s);
    if (err < 0)
        spread_free(s);
    else
        *out = &s->base;
    return err;
}

// At one instant: a call of one shard that is told may start one in a shard that was looked at
// before.
static bool is_telling(struct spread *s) {
    bool telling = false;
    for (uint32_t i = 0; i < s->count; i++)
        pthread_mutex_lock(&s->locals[i]->lock);
    for (uint32_t i = 0; i < s->count; i++)
        telling = telling || local_is_telling(s->locals[i]);
    for (uint32_t i = 0; i < s->count; i++)
        pthread_mutex_unlock(&s->locals[i]->lock);
    return telling;
}

static int spread_close(struct engine *base) {
    struct spread *s = (struct spread *)base;
    int err = 0;
    do
        for (uint32_t i = 0; err >= 0 && i < s->count; i++)
            err = local_check_unused(s->locals[i]);
    while (err >= 0 && is_telling(s));
    if (err >= 0)
        spread_free(s);
    return err;
}
