// The state common to all connections: timeouts, samples of stages, and their timers.
#include "web/state.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/access.h"

static struct timeouts *all_timeouts(struct web *w, int i) {
    struct timeouts *all[] = { &w->heads, &w->bodies, &w->idle, &w->lingering };
    return all[i];
}

enum { TIMEOUT_LISTS = 4 };

uint64_t web_now_ms(const struct web *w) {
    return host_now_ms(w->place.host);
}

// ---- Timeouts -----------------------------------------------------------------------------------

static void on_timeouts(uv_timer_t *);

// Sets the timer to the earliest timeout; without any it is stopped, so that an idle server does
// not wake up.
static void web_plan_timeouts(struct web *w) {
    uint64_t next_ms = UINT64_MAX, now_ms = uv_now(w->place.loop);
    for (int i = 0; i < TIMEOUT_LISTS; i++) {
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
    for (int i = 0; i < TIMEOUT_LISTS; i++)
        for (struct timeout *x;
             (x = timeout_expired(all_timeouts(w, i), uv_now(w->place.loop))) != NULL;) {
            struct web_connection *v = list_entry(x, struct web_connection, waited);
            v->timeouts = NULL;
            web_connection_time_out(v);
        }
    web_plan_timeouts(w);
    w->place.turn_end(w->place.server);
}

void web_wait(struct web_connection *v, struct timeouts *p) {
    struct web *w = v->web;
    if (v->timeouts == p)
        return;
    v->timeouts = p;
    timeout_end(&v->waited);
    if (p)
        timeout_begin(p, &v->waited, uv_now(w->place.loop));
    web_plan_timeouts(w);
}

// ---- Start and stop -----------------------------------------------------------------------------

// Each loop samples its own stages; the first loop, which serves HTTP, reads the samples of all.
void web_turn(void *web, struct host *h) {
    struct web *w = web;
    pthread_mutex_lock(&w->series_lock[h->loop]);
    series_turn(&w->series[h->loop], h);
    pthread_mutex_unlock(&w->series_lock[h->loop]);
}

static uint32_t loop_of_stage(const struct host *h, mr_bytes stage) {
    return loop_of_shard(h->loops, h->shards, route_of(h->shards, stage));
}

void web_write_series(struct web *w, mr_bytes stage, struct doc *d) {
    uint32_t loop = loop_of_stage(w->place.host, stage);
    pthread_mutex_lock(&w->series_lock[loop]);
    series_write(&w->series[loop], stage, d);
    pthread_mutex_unlock(&w->series_lock[loop]);
}

void web_write_history(struct web *w, mr_bytes stage, enum history_span span, struct doc *d) {
    uint32_t loop = loop_of_stage(w->place.host, stage);
    pthread_mutex_lock(&w->series_lock[loop]);
    series_write_history(&w->series[loop], stage, span, d);
    pthread_mutex_unlock(&w->series_lock[loop]);
}

static bool session_sees(const void *session, mr_bytes stage) {
    return access_sees(session, stage);
}

bool web_sum_history(struct web *w, uint32_t loop, uint32_t index, enum history_span span,
                     const struct session *s, struct history_sum *sum) {
    struct series *p = &w->series[loop];
    pthread_mutex_lock(&w->series_lock[loop]);
    bool any = map_count(&p->by_name) > 0;
    if (any)
        series_sum(p, index, span, session_sees, s, sum);
    pthread_mutex_unlock(&w->series_lock[loop]);
    return any;
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
        pthread_mutex_init(&w->series_lock[i], NULL);
    w->guard = (struct guard){ .address = place->address, .names = place->names };
    w->heads.ms = WEB_HEAD_MS;
    w->bodies.ms = WEB_BODY_MS;
    w->idle.ms = WEB_IDLE_MS;
    w->lingering.ms = WEB_LINGER_MS;
    static const char close_others[] = "close other HTTP connections first";
    static const char close_some[] = "close some of these HTTP connections first";
    quota_init(&w->quota, WEB_CONNECTIONS, WEB_CONNECTIONS_OF_ADDRESS,
               (struct quota_words){ "HTTP clients", close_others, "address", close_some });
    quota_init(&w->quota_of_tokens, WEB_CONNECTIONS, WEB_CONNECTIONS_OF_TOKEN,
               (struct quota_words){ "HTTP clients", close_others, "token", close_some });
    quota_init(&w->quota_of_streams, WEB_STREAMS, WEB_STREAMS_OF_TOKEN,
               (struct quota_words){ "streams of events", close_others, "token", close_some });
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
        series_finish(&w->series[i]);
        pthread_mutex_destroy(&w->series_lock[i]);
    }
    quota_finish(&w->quota);
    quota_finish(&w->quota_of_tokens);
    quota_finish(&w->quota_of_streams);
    buffer_finish(&w->scratch);
    mem_free(w->values);
    mem_free(w);
}
