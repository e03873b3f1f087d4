// Events: how all stages are, once a second, for as long as somebody listens. What is sent is made
// once for all who may see the same: one of them asks in his session, and everybody gets what
// became of the replies. Each time it is another, so that whoever has gone deaf holds up nobody for
// long.
//
//     timer ─► one of each kind asks ─► replies ─► a snapshot ─► all of his kind
//
// Whoever has not read the last snapshot yet is not given the next, but keeps that one in memory.
#include "web/state.h"

#include "base/errors.h"
#include "base/mem.h"
#include "wire/code.h"
#include "wire/json.h"

// ---- Snapshots ----------------------------------------------------------------------------------

static void snapshot_leave(struct web *w, struct snapshot *s) {
    if (--s->readers)
        return;
    w->place.host->buffered -= s->text.capacity;
    buffer_finish(&s->text);
    mem_free(s);
}

// With one reader, the caller. Whoever reads slowly keeps it alive, so the host knows of it as of
// every buffer. NULL: no memory.
static struct snapshot *snapshot_create(struct web *w, const struct replies *replies) {
    struct snapshot *s = mem_alloc(sizeof *s);
    if (!s)
        return NULL;
    s->readers = 1;
    struct doc d = { .out = &s->text };
    static const char begin[] = "event: stages\ndata: ";
    doc_plain(&d, begin, sizeof begin - 1);
    doc_open(&d, NULL, '{');
    doc_number(&d, "time-ms", (int64_t)web_now_ms(w));
    write_health(&d, w->place.host);
    doc_value(&d, "stages", replies->of[0], 0);
    write_info(&d, "info", replies->of[1]->bytes);
    doc_close(&d, '}');
    doc_plain(&d, "\n\n", 2);
    w->place.host->buffered += s->text.capacity;
    if (!d.err)
        return s;
    snapshot_leave(w, s);
    return NULL;
}

// ---- Streams ------------------------------------------------------------------------------------

mr_bytes stream_ready(const struct visit *v) {
    if (!v->snapshot)
        return (mr_bytes){ 0 };
    return (mr_bytes){ v->snapshot->text.data + v->snapshot_sent,
                       v->snapshot->text.size - v->snapshot_sent };
}

static void snapshot_drop(struct visit *v) {
    if (v->snapshot)
        snapshot_leave(v->web, v->snapshot);
    v->snapshot = NULL;
    v->snapshot_sent = 0;
}

void stream_sent(struct visit *v, size_t size) {
    v->snapshot_sent += size;
    if (v->snapshot_sent == v->snapshot->text.size)
        snapshot_drop(v);
}

void stream_leave(struct visit *v) {
    struct web *w = v->web;
    snapshot_drop(v);
    if (list_empty(&v->of_streams))
        return;
    list_remove(&v->of_streams);
    if (--w->stream_count == 0)
        uv_timer_stop(&w->event_timer);
}

static bool sees_all(const struct visit *v) {
    return !v->session->who || v->session->who->all;
}

static bool sees_the_same(const struct visit *a, const struct visit *b) {
    return a->session->who == b->session->who || (sees_all(a) && sees_all(b));
}

// A client that has not read the last one is not given another.
static void give(struct visit *v, struct snapshot *s) {
    bool behind = v->snapshot || v->out.size;
    if (behind)
        return;
    v->snapshot = s;
    s->readers++;
    session_touch(v->session);
}

static void give_all(struct visit *v, const struct replies *replies) {
    struct web *w = v->web;
    struct snapshot *s = snapshot_create(w, replies);
    if (!s)
        return; // the next one may have memory
    for (struct list *l = w->streams.next; l != &w->streams; l = l->next) {
        struct visit *other = list_entry(l, struct visit, of_streams);
        if (sees_the_same(v, other))
            give(other, s);
    }
    snapshot_leave(w, s);
}

static void stream_begin(struct visit *v, const struct replies *replies) {
    struct web *w = v->web;
    if (w->stream_count == WEB_STREAMS) {
        error_set(MR_EFULL, "%d listen to events already", WEB_STREAMS);
        respond_wrong(v, HTTP_FULL);
        return;
    }
    bool head_only = v->head_only;
    respond(v, &(struct http_response){
                   .status = HTTP_OK, .type = "text/event-stream", .endless = true });
    if (head_only)
        return;
    v->closing = false;
    buffer_finish(&v->in);
    v->snapshot = snapshot_create(w, replies);
    list_append(&w->streams, &v->of_streams);
    if (w->stream_count++ == 0)
        uv_timer_start(&w->event_timer, on_event, WEB_EVENT_MS, WEB_EVENT_MS);
}

void respond_events(struct visit *v, const struct replies *replies) {
    bool listens = !list_empty(&v->of_streams);
    if (replies->of[1]->type == RESPONSE_ERROR)
        v->session->broken = true; // what may ask for stages may ask for this
    else if (listens)
        give_all(v, replies);
    else
        stream_begin(v, replies);
}

// ---- Once a second ------------------------------------------------------------------------------

// Who asks this time stands behind all others.
static bool is_asked_for(const struct web *w, const struct visit *v) {
    for (struct list *l = w->streams.prev; l != &w->streams; l = l->prev) {
        const struct visit *asker = list_entry(l, struct visit, of_streams);
        if (asker->event != w->event)
            return false;
        if (sees_the_same(asker, v))
            return true;
    }
    return false;
}

static void ask(struct visit *v) {
    struct form none = { 0 };
    v->event = v->web->event;
    list_remove(&v->of_streams);
    list_append(&v->web->streams, &v->of_streams);
    if (visit_ask(v, v->route, mr_str(v->route->path), &none) < 0)
        v->session->broken = true;
    form_finish(&none);
}

void on_event(uv_timer_t *timer) {
    struct web *w = timer->data;
    struct list *next = w->streams.next;
    host_begin(w->place.host);
    w->event++;
    for (uint32_t left = w->stream_count; left; left--) {
        struct visit *v = list_entry(next, struct visit, of_streams);
        next = next->next;
        visit_hear(v); // nobody else does if he is deaf
        if (!v->asked && !v->session->closing && !is_asked_for(w, v))
            ask(v);
    }
    w->place.turn_end(w->place.server);
}
