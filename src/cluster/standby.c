// See standby.h.
#include "cluster/standby.h"

#include "base/errors.h"
#include "server/notice.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct standby {
    const struct standby_options *options;
    uv_loop_t loop;
    struct relay *wire, *http;
    uv_timer_t timer;
    uv_signal_t interrupt, terminate;
    uv_work_t work;
    bool is_looking, is_over;
    struct stream_state state; // what the last look has found …
    int result;                // … and returned
    char text[512];            // its error
    bool is_outage;            // the store did not answer
    char owner[STREAM_OWNER];  // as last reported
    bool has_reported;
    enum standby_end end;
    int err;
};

// ---- Places -----------------------------------------------------------------------------------

bool node_places_read(const char *text, struct node_places *out) {
    char wire[STREAM_OWNER];
    const char *space = strchr(text, ' ');
    size_t size = space ? (size_t)(space - text) : strlen(text);
    *out = (struct node_places){ 0 };
    if (size >= sizeof wire)
        return false;
    memcpy(wire, text, size);
    wire[size] = 0;
    return relay_place_read(wire, &out->wire) &&
           (!space || relay_place_read(space + 1, &out->http));
}

static int place_write(const struct relay_place *p, char *to, size_t room) {
    bool v6 = strchr(p->host, ':') != NULL;
    return snprintf(to, room, "%s%s%s:%u", v6 ? "[" : "", p->host, v6 ? "]" : "", p->port);
}

void node_places_write(const struct node_places *p, char out[STREAM_OWNER]) {
    int size = place_write(&p->wire, out, STREAM_OWNER);
    if (p->http.port && size + 1 < STREAM_OWNER) {
        out[size] = ' ';
        (void)place_write(&p->http, out + size + 1, (size_t)(STREAM_OWNER - size - 1));
    }
}

// ---- Ending -----------------------------------------------------------------------------------

static void standby_finish(struct standby *s) {
    if (s->is_over)
        return;
    s->is_over = true;
    relay_close(s->wire);
    relay_close(s->http);
    uv_close((uv_handle_t *)&s->timer, NULL);
    uv_close((uv_handle_t *)&s->interrupt, NULL);
    uv_close((uv_handle_t *)&s->terminate, NULL);
    if (s->is_looking)
        s->options->stream->impl->interrupt(s->options->stream);
}

static void on_standby_signal(uv_signal_t *signal, int number) {
    struct standby *s = signal->data;
    notice(NOTICE_INFO, "%s: stopping", number == SIGINT ? "SIGINT" : "SIGTERM");
    s->end = STANDBY_STOPPED;
    standby_finish(s);
}

// ---- The owner --------------------------------------------------------------------------------

static void report_owner(struct standby *s, const char *owner) {
    if (s->has_reported && strcmp(s->owner, owner) == 0)
        return;
    s->has_reported = true;
    snprintf(s->owner, sizeof s->owner, "%s", owner);
    if (s->options->on_owner)
        s->options->on_owner(s->options->arg, owner[0] ? owner : NULL);
}

static void follow(struct standby *s, const char *owner) {
    struct node_places places;
    if (!node_places_read(owner, &places)) {
        if (strcmp(s->owner, owner) != 0)
            notice(NOTICE_ERROR, "the owner of the store has no address that can be read: %s",
                   owner);
        places = (struct node_places){ 0 };
    }
    relay_to(s->wire, &places.wire);
    if (s->http)
        relay_to(s->http, &places.http);
    report_owner(s, owner);
}

// A store that names this node as its owner was owned by it before it was restarted.
static bool should_claim(const struct standby *s) {
    const struct stream_state *state = &s->state;
    return !state->owner[0] || strcmp(state->owner, s->options->own) == 0 ||
           state->silent_ms >= s->options->takeover_ms;
}

static void note_outage(struct standby *s) {
    if (s->result != STREAM_DONE && !s->is_outage)
        notice(NOTICE_WARN, "%s; trying again", s->text);
    else if (s->result == STREAM_DONE && s->is_outage)
        notice(NOTICE_INFO, "the store answers again");
    s->is_outage = s->result != STREAM_DONE;
}

// A stream that is shorter than it was is that of a database that has lost commits: a standby of it
// was promoted that did not have them, or a backup was restored.
static void check_known_end(struct standby *s) {
    uint64_t known = atomic_load(s->options->known_end);
    if (s->result != STREAM_DONE)
        return;
    if (s->state.tail >= known) {
        atomic_store(s->options->known_end, s->state.tail);
        return;
    }
    s->result = MR_ECORRUPT;
    snprintf(s->text, sizeof s->text,
             "the store has lost acknowledged entries: the log of shard 0 had ended at %" PRIu64
             ", now it ends at %" PRIu64 "; bring back the server that has them, or start the "
             "nodes again to go on without them",
             known, s->state.tail);
}

static void standby_decide(struct standby *s) {
    check_known_end(s);
    if (s->result < 0) {
        s->err = error_set(s->result, "%s", s->text);
        standby_finish(s);
        return;
    }
    note_outage(s);
    if (s->result != STREAM_DONE)
        return;
    if (should_claim(s)) {
        s->end = STANDBY_TAKES_OVER;
        standby_finish(s);
        return;
    }
    follow(s, s->state.owner);
}

// ---- Looking ----------------------------------------------------------------------------------

static void look_at_store(uv_work_t *work) {
    struct standby *s = work->data;
    struct stream *stream = s->options->stream;
    s->result = stream->impl->look(stream, &s->state);
    if (s->result != STREAM_DONE)
        snprintf(s->text, sizeof s->text, "%s", error_text());
}

static void on_looked(uv_work_t *work, int status) {
    struct standby *s = work->data;
    (void)status; // it is never cancelled
    s->is_looking = false;
    if (!s->is_over)
        standby_decide(s);
}

static void on_standby_timer(uv_timer_t *timer) {
    struct standby *s = timer->data;
    if (s->is_looking)
        return;
    s->work.data = s;
    s->is_looking = uv_queue_work(&s->loop, &s->work, look_at_store, on_looked) == 0;
}

static int standby_start(struct standby *s) {
    const struct standby_options *o = s->options;
    uv_timer_init(&s->loop, &s->timer);
    uv_signal_init(&s->loop, &s->interrupt);
    uv_signal_init(&s->loop, &s->terminate);
    s->timer.data = s->interrupt.data = s->terminate.data = s;
    signal(SIGHUP, SIG_IGN); // there is nothing to be read again
    int err = relay_open(&s->loop, o->wire, o->most_connections, &s->wire);
    if (err == 0 && o->http)
        err = relay_open(&s->loop, o->http, o->most_connections, &s->http);
    if (err < 0)
        return error_set(err, "%s; %s sets another address", error_text(),
                         s->wire ? "--http" : "--listen");
    int failed = uv_signal_start(&s->interrupt, on_standby_signal, SIGINT);
    if (failed == 0)
        failed = uv_signal_start(&s->terminate, on_standby_signal, SIGTERM);
    if (failed == 0)
        failed = uv_timer_start(&s->timer, on_standby_timer, 0, STANDBY_LOOK_MS);
    return failed < 0 ? error_set(MR_EIO, "cannot wait for signals: %s", uv_strerror(failed)) : 0;
}

int standby_run(const struct standby_options *options, enum standby_end *out_end,
                uint64_t *out_epoch) {
    struct standby s = { .options = options, .end = STANDBY_STOPPED };
    int failed = uv_loop_init(&s.loop);
    if (failed < 0)
        return error_set(MR_EIO, "cannot make an event loop: %s", uv_strerror(failed));
    s.err = standby_start(&s);
    if (s.err < 0)
        standby_finish(&s);
    char text[512];
    snprintf(text, sizeof text, "%s", error_text());
    uv_run(&s.loop, UV_RUN_DEFAULT);
    uv_loop_close(&s.loop);
    *out_end = s.end;
    *out_epoch = s.state.epoch;
    return s.err < 0 ? error_set(s.err, "%s", s.result < 0 ? s.text : text) : 0;
}
