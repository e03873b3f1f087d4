// What all visits share: how long they are waited for, the past, and the timers of both.
#include "web/state.h"

#include "base/errors.h"
#include "base/mem.h"

static struct timeouts *all_timeouts(struct web *w, int i) {
    struct timeouts *all[] = { &w->heads, &w->bodies, &w->idle, &w->lingering };
    return all[i];
}

enum { PATIENCES = 4 };

uint64_t web_now_ms(const struct web *w) {
    return host_now_ms(w->place.host);
}

// ---- Timeouts -----------------------------------------------------------------------------------

static void on_timeouts(uv_timer_t *);

// The timer rings for the first of them, and not at all when nobody is waited for: an idle server
// does not wake up.
static void plan_timeouts(struct web *w) {
    uint64_t next_ms = UINT64_MAX, now_ms = uv_now(w->place.loop);
    for (int i = 0; i < PATIENCES; i++) {
        uint64_t at_ms = timeouts_next_ms(all_timeouts(w, i));
        next_ms = at_ms < next_ms ? at_ms : next_ms;
    }
    uv_handle_t *timer = (uv_handle_t *)&w->timeouts_timer;
    if (next_ms == UINT64_MAX)
        uv_timer_stop(&w->timeouts_timer);
    else if (!uv_is_closing(timer) &&
             (!uv_is_active(timer) || next_ms < now_ms + uv_timer_get_due_in(&w->timeouts_timer)))
        uv_timer_start(&w->timeouts_timer, on_timeouts, next_ms > now_ms ? next_ms - now_ms : 0, 0);
}

static void on_timeouts(uv_timer_t *timer) {
    struct web *w = timer->data;
    host_begin(w->place.host);
    for (int i = 0; i < PATIENCES; i++)
        for (struct timeout *x;
             (x = timeout_expired(all_timeouts(w, i), uv_now(w->place.loop))) != NULL;) {
            struct visit *v = list_entry(x, struct visit, waited);
            v->timeouts = NULL;
            visit_time_over(v);
        }
    plan_timeouts(w);
    w->place.turn_end(w->place.server);
}

void web_wait(struct visit *v, struct timeouts *p) {
    struct web *w = v->web;
    if (v->timeouts == p)
        return;
    v->timeouts = p;
    timeout_end(&v->waited);
    if (p)
        timeout_begin(p, &v->waited, uv_now(w->place.loop));
    plan_timeouts(w);
}

// ---- Life ---------------------------------------------------------------------------------------

// The past of a loop's stages is its own; the page asks for it from the first loop.
void web_turn(void *web, struct host *h) {
    struct web *w = web;
    pthread_mutex_lock(&w->past_lock[h->loop]);
    past_turn(&w->past[h->loop], h);
    pthread_mutex_unlock(&w->past_lock[h->loop]);
}

void web_write_past(struct web *w, mr_bytes stage, struct doc *d) {
    const struct host *h = w->place.host;
    uint32_t loop = loop_of_shard(h->loops, h->shards, route_of(h->shards, stage));
    pthread_mutex_lock(&w->past_lock[loop]);
    past_write(&w->past[loop], stage, d);
    pthread_mutex_unlock(&w->past_lock[loop]);
}

static int web_fail(struct web *w) {
    web_stop(w);
    return error_set(MR_ENOMEM, "no memory for HTTP");
}

int web_start(const struct front_place *place, void **out) {
    struct web *w = mem_alloc(sizeof *w);
    if (!w)
        return web_fail(w);
    w->place = *place;
    for (uint32_t i = 0; i < LOOPS_MOST; i++)
        pthread_mutex_init(&w->past_lock[i], NULL);
    w->guard = (struct guard){ .address = place->address, .names = place->names };
    w->heads.ms = WEB_HEAD_MS;
    w->bodies.ms = WEB_BODY_MS;
    w->idle.ms = WEB_IDLE_MS;
    w->lingering.ms = WEB_LINGER_MS;
    quota_init(&w->quota, WEB_CONNECTIONS, WEB_CONNECTIONS_OF_ADDRESS);
    w->values = mem_alloc(WEB_VALUES * sizeof *w->values);
    if (!w->values || uv_timer_init(place->loop, &w->timeouts_timer) < 0 ||
        uv_timer_init(place->loop, &w->event_timer) < 0)
        return web_fail(w);
    w->timeouts_timer.data = w->event_timer.data = w;
    *out = w;
    return 0;
}

void web_stop(void *web) {
    struct web *w = web;
    if (!w)
        return;
    for (uint32_t i = 0; i < LOOPS_MOST; i++) {
        past_finish(&w->past[i]);
        pthread_mutex_destroy(&w->past_lock[i]);
    }
    quota_finish(&w->quota);
    buffer_finish(&w->scratch);
    mem_free(w->values);
    mem_free(w);
}
