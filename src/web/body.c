// See body.h.
#include "web/body.h"

#include "base/mem.h"
#include "server/budget.h"
#include "server/limits.h"
#include "web/state.h"

#include <assert.h>
#include <string.h>

void body_finish(struct body *b) {
    mem_free(b->values);
    mem_free(b->sum);
    buffer_finish(&b->text);
    *b = (struct body){ 0 };
}

// ---- Values -------------------------------------------------------------------------------------

// Parses all replies of the request. False: some have not arrived.
static bool read_replies(struct web_connection *v) {
    assert(v->asked); // web_connection.c writes a body only for a request that was sent
    static const struct response_limits limits = { WEB_VALUES, LIMIT_LINE, LIMIT_ARGUMENT * 2,
                                                   LIMIT_UNSENT };
    mr_bytes ready = session_ready(v->session);
    struct response_value *values = v->web->values;
    struct body b = { .seen = ready.size };
    v->body.seen = ready.size;
    for (uint32_t i = 0; i < v->asked; i++) {
        struct response reader = { 0 };
        struct response_limits left = limits;
        uint32_t count;
        left.values -= b.value_count;
        ptrdiff_t size = response_read(&reader, &left, (const uint8_t *)ready.data + b.replies_size,
                                       ready.size - b.replies_size, values + b.value_count, &count);
        v->session->broken =
            v->session->broken || size < 0; // more values than any request can have
        if (size <= 0)
            return false;
        b.replies.of[b.replies.count++] = values + b.value_count;
        b.value_count += count;
        b.replies_size += (size_t)size;
    }
    b.doc.out = &v->body.text;
    v->body = b;
    return true;
}

// The values are in an array that all connections share; a body that is written in later turns
// needs its own copy. The replies themselves stay in the session.
static void keep_values(struct web_connection *v) {
    struct body *b = &v->body;
    if (b->values)
        return;
    b->values = mem_alloc(b->value_count * sizeof *b->values);
    if (!b->values) {
        v->session->broken = true;
        return;
    }
    memcpy(b->values, v->web->values, b->value_count * sizeof *b->values);
    for (uint32_t i = 0; i < b->replies.count; i++)
        b->replies.of[i] = b->values + (b->replies.of[i] - v->web->values);
}

// ---- Text ---------------------------------------------------------------------------------------

static bool write_member(struct web_connection *v, struct body *b, size_t *left) {
    const char *member = v->route->member;
    if (!b->part++) {
        doc_open(&b->doc, NULL, '{');
        doc_walk_begin(&b->walk, member, 0);
        b->walk.wraps = v->route->wraps;
        b->walk.row_names = v->route->rows;
    }
    if (!member)
        doc_raw(&b->doc, "ok", "true");
    else if (!doc_walk(&b->doc, &b->walk, b->replies.of[0], left))
        return false;
    doc_close(&b->doc, '}');
    doc_plain(&b->doc, "\n", 1);
    return true;
}

// A large text is not copied behind the head, but sent from where it is.
static void body_send(struct web_connection *v) {
    struct body *b = &v->body;
    bool apart = b->text.size > WEB_TOGETHER && !v->head_only;
    respond(v, &(struct http_response){ .status = HTTP_OK,
                                        .type = v->route->type,
                                        .body = buffer_bytes(&b->text),
                                        .apart = apart });
    b->is_whole = apart;
}

// False: it continues in a later turn.
static bool body_write(struct web_connection *v, size_t *left) {
    struct body *b = &v->body;
    const struct route *r = v->route;
    const struct response_value *first = b->replies.of[0];
    if (first->type == RESPONSE_ERROR) {
        respond_error(v, first->bytes);
        return true;
    }
    if (r->answer) {
        size_t before = v->out.size;
        r->answer(v, &b->replies);
        body_count(left, v->out.size - before);
        return true;
    }
    if (!(r->write ? r->write : write_member)(v, b, left))
        return false;
    if (b->doc.err)
        v->session->broken = true;
    if (v->session->broken)
        return true;
    (r->send ? r->send : body_send)(v);
    return true;
}

// ---- Turns --------------------------------------------------------------------------------------

static size_t bytes_left(struct session *s) {
    return budget_left(s) ? (size_t)(LIMIT_SESSION_STEPS - s->spent) * WEB_STEP_BYTES : 0;
}

static void body_end(struct web_connection *v) {
    struct body *b = &v->body;
    size_t size = b->replies_size;
    v->asked = 0;
    mem_free(b->values);
    mem_free(b->sum);
    b->values = NULL;
    b->sum = NULL;
    if (!b->is_whole)
        body_finish(b);
    session_sent(v->session, size);
}

void body_go_on(struct web_connection *v) {
    struct session *s = v->session;
    if (!v->body.replies.count) {
        if (!read_replies(v))
            return;
        budget_spend(s, v->body.value_count / WEB_STEP_VALUES);
    }
    size_t before = bytes_left(s), left = before;
    bool is_over = body_write(v, &left);
    budget_spend(s, (before - left + WEB_STEP_BYTES - 1) / WEB_STEP_BYTES);
    if (is_over) {
        body_end(v);
        return;
    }
    keep_values(v);
    budget_defer(s);
}
