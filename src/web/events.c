// Events: a snapshot of all stages once a second, while a client receives events. A snapshot is
// made once for all clients with the same rights: one of them runs the commands in its session, and
// all get the event made of the replies. Each second another client runs them, so that an
// unresponsive one delays the others only briefly.
//
//     timer ─► one client of each kind runs the commands ─► replies ─► a snapshot ─► all of the
//     kind
//
// A client that has not read the last snapshot does not get the next; its old one stays in memory.
#include "web/state.h"

#include "base/errors.h"
#include "base/mem.h"
#include "wire/code.h"
#include "wire/json.h"

// ---- Snapshots ----------------------------------------------------------------------------------

static void snapshot_release(struct web *w, struct snapshot *s) {
    if (--s->readers)
        return;
    w->place.host->buffered -= s->text.capacity;
    buffer_finish(&s->text);
    mem_free(s);
}

// Makes a snapshot of a body, with one reader, the caller. A slow reader keeps it in memory, so the
// host counts it as it counts buffers. NULL: no memory.
static struct snapshot *snapshot_create(struct web *w, struct body *b) {
    struct snapshot *s = mem_alloc(sizeof *s);
    if (!s)
        return NULL;
    s->readers = 1;
    s->text = b->text;
    b->text = (struct buffer){ 0 };
    w->place.host->buffered += s->text.capacity;
    return s;
}

static void begin_event(struct doc *d, const struct web *w) {
    static const char begin[] = "event: stages\ndata: ";
    doc_plain(d, begin, sizeof begin - 1);
    doc_open(d, NULL, '{');
    doc_number(d, "time-ms", (int64_t)web_now_ms(w));
    write_health(d, w->place.host);
}

bool write_snapshot(struct web_connection *v, struct body *b, size_t *left) {
    const struct response_value *info = b->replies.of[1];
    if (info->type == RESPONSE_ERROR) { // INFO needs no more rights than STAGES
        v->session->broken = true;
        return true;
    }
    if (!b->part++) {
        begin_event(&b->doc, v->web);
        doc_walk_begin(&b->walk, "stages", 0);
    }
    if (!doc_walk(&b->doc, &b->walk, b->replies.of[0], left))
        return false;
    web_write_info(&b->doc, "info", info->bytes, false); // the event may be for several tokens
    doc_close(&b->doc, '}');
    doc_plain(&b->doc, "\n\n", 2);
    return true;
}

// ---- Streams ------------------------------------------------------------------------------------

mr_bytes stream_ready(const struct web_connection *v) {
    if (!v->snapshot)
        return (mr_bytes){ 0 };
    return (mr_bytes){ v->snapshot->text.data + v->snapshot_sent,
                       v->snapshot->text.size - v->snapshot_sent };
}

static void snapshot_drop(struct web_connection *v) {
    if (v->snapshot)
        snapshot_release(v->web, v->snapshot);
    v->snapshot = NULL;
    v->snapshot_sent = 0;
}

void stream_sent(struct web_connection *v, size_t size) {
    v->snapshot_sent += size;
    if (v->snapshot_sent == v->snapshot->text.size)
        snapshot_drop(v);
}

void stream_leave(struct web_connection *v) {
    struct web *w = v->web;
    snapshot_drop(v);
    if (list_empty(&v->of_streams))
        return;
    list_remove(&v->of_streams);
    quota_leave(&w->quota_of_streams, &v->of_stream);
    if (list_empty(&w->streams))
        uv_timer_stop(&w->event_timer);
}

static bool sees_all(const struct web_connection *v) {
    return !v->session->who || v->session->who->all;
}

static bool sees_the_same(const struct web_connection *a, const struct web_connection *b) {
    return a->session->who == b->session->who || (sees_all(a) && sees_all(b));
}

// Skips a client that has not read the last snapshot.
static void snapshot_send(struct web_connection *v, struct snapshot *s) {
    bool behind = v->snapshot || v->out.size;
    if (behind)
        return;
    v->snapshot = s;
    s->readers++;
    session_touch_prompt(v->session);
}

static void snapshot_send_all(struct web_connection *v) {
    struct web *w = v->web;
    struct snapshot *s = snapshot_create(w, &v->body);
    if (!s)
        return; // skip this event; the next one tries again
    for (struct list *l = w->streams.next; l != &w->streams; l = l->next) {
        struct web_connection *other = list_entry(l, struct web_connection, of_streams);
        if (sees_the_same(v, other))
            snapshot_send(other, s);
    }
    snapshot_release(w, s);
}

static void stream_begin(struct web_connection *v) {
    struct web *w = v->web;
    bool head_only = v->head_only, is_first = list_empty(&w->streams);
    uint8_t holder[QUOTA_HOLDER];
    token_holder(v->token, holder);
    if (!head_only &&
        quota_enter(&w->quota_of_streams, v->session->who ? holder : NULL, &v->of_stream) < 0) {
        respond_failure(v, HTTP_FULL);
        return;
    }
    respond(v, &(struct http_response){
                   .status = HTTP_OK, .type = "text/event-stream", .endless = true });
    if (head_only)
        return;
    v->closing = false;
    buffer_finish(&v->in);
    v->snapshot = snapshot_create(w, &v->body);
    list_append(&w->streams, &v->of_streams);
    if (is_first)
        uv_timer_start(&w->event_timer, on_event, WEB_EVENT_MS, WEB_EVENT_MS);
}

void send_snapshot(struct web_connection *v) {
    if (list_empty(&v->of_streams))
        stream_begin(v);
    else
        snapshot_send_all(v);
}

// ---- Once a second ------------------------------------------------------------------------------

// Whether a client with the same rights runs the commands of this event. Such clients are at the
// end of the list.
static bool is_requested(const struct web *w, const struct web_connection *v) {
    for (struct list *l = w->streams.prev; l != &w->streams; l = l->prev) {
        const struct web_connection *other = list_entry(l, struct web_connection, of_streams);
        if (other->event != w->event)
            return false;
        if (sees_the_same(other, v))
            return true;
    }
    return false;
}

static void request_snapshot(struct web_connection *v) {
    struct form none = { 0 };
    v->event = v->web->event;
    list_remove(&v->of_streams);
    list_append(&v->web->streams, &v->of_streams);
    if (web_connection_run(v, v->route, mr_str(v->route->path), &none) < 0)
        v->session->broken = true;
    form_finish(&none);
}

void on_event(uv_timer_t *timer) {
    struct web *w = timer->data;
    struct list *next = w->streams.next;
    host_begin(w->place.host);
    w->event++;
    for (uint32_t left = w->quota_of_streams.count; left; left--) {
        struct web_connection *v = list_entry(next, struct web_connection, of_streams);
        next = next->next;
        web_connection_respond(v); // an unresponsive client has no other occasion
        if (!v->asked && !v->session->closing && !is_requested(w, v))
            request_snapshot(v);
    }
    w->place.turn_end(w->place.server);
}
