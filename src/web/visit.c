// Visits: what is said on one connection. A request is read, its commands are run in the session at
// once, and when their replies may be shown they become the response; the next request of the same
// connection comes after that.
//
//     head ─► who? may he? ─► body ─► JSON, in steps ─► commands ─► (durable) ─► replies ─►
//     response
//
// Whatever the head of a request tells is decided before any of its body is read: Host and Origin,
// the token, its role for the path, the stage or job that the path names, and how large the body
// is.
#include "web/state.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/budget.h"
#include "server/command.h"
#include "server/limits.h"
#include "web/web.h"
#include "wire/code.h"

#include <assert.h>
#include <string.h>

static struct visit *visit_of(struct front *f) {
    return (struct visit *)f;
}

static size_t unsent(const struct visit *v) {
    return v->out.size - v->out_sent;
}

static bool waits_for_turn(const struct visit *v) {
    return !list_empty(&v->session->of_backlog);
}

static bool listens(const struct visit *v) {
    return !list_empty(&v->of_streams);
}

// The host knows of every buffer.
static void count_buffers(struct visit *v) {
    size_t now = v->in.capacity + v->out.capacity + v->form.text.capacity;
    // Unsigned arithmetic: a decrease wraps and adds up correctly.
    session_hold(v->session, now - v->buffered);
    v->buffered = now;
}

// ---- Life ---------------------------------------------------------------------------------------

static void visit_resume(struct session *);

static int visit_open(void *all, struct session *s, const uint8_t *address, struct front **out) {
    struct web *w = all;
    struct visit *v = mem_alloc(sizeof *v);
    if (!v)
        return error_set(MR_ENOMEM, "no memory for a connection");
    int err = quota_enter(&w->quota, address, &v->member);
    if (err < 0) {
        mem_free(v);
        return err;
    }
    v->base.impl = web_front();
    v->web = w;
    v->session = s;
    v->session->resume = visit_resume;
    v->session->reply.resp3 = true; // its replies say what is a map
    web_wait(v, &w->idle);
    *out = &v->base;
    return 0;
}

static void visit_close(struct front *f) {
    struct visit *v = visit_of(f);
    if (!v)
        return;
    struct web *w = v->web;
    v->session->front = NULL;
    v->session->resume = NULL;
    stream_leave(v);
    web_wait(v, NULL);
    form_finish(&v->form);
    quota_leave(&w->quota, &v->member);
    buffer_finish(&v->in);
    buffer_finish(&v->out);
    count_buffers(v);
    mem_free(v);
}

// Where he has gone, or the server ends, what waits for others is not answered any more.
static bool visit_is_over(const struct front *f) {
    const struct visit *v = (const struct visit *)f;
    bool comes = v->follows || (v->asked && !wait_is_open(v->session));
    bool ends = v->closing || (v->session->closing && !comes);
    bool lingers = v->lingers && !v->session->closing;
    return ends && !unsent(v) && !stream_ready(v).size && !lingers;
}

// ---- Asking -------------------------------------------------------------------------------------

static void run(void *visit, const mr_bytes *words, uint32_t count) {
    struct visit *v = visit;
    assert(!v->session->wait.kind);
    session_command(v->session, words, count);
    v->asked++;
}

int visit_ask(struct visit *v, const struct route *r, mr_bytes path, struct form *form) {
    return route_run(r, path, form, run, v);
}

// The session's reply says why; what has not come of the body is not to be kept meanwhile.
static void await_refusal(struct visit *v) {
    v->asked = 1;
    v->lingers = v->in.size < v->whole;
}

// Each request says anew who asks. False: that it is nobody is told later.
static bool greet(struct visit *v, mr_bytes secret) {
    v->session->who = NULL;
    if (!v->web->place.host->auth || !secret.size || session_introduce(v->session, secret))
        return true;
    await_refusal(v);
    return false;
}

static bool is_unauthenticated(const struct visit *v) {
    return v->web->place.host->auth && !v->session->who;
}

// The request is read on in a later turn.
static void defer(struct visit *v) {
    v->follows = true;
    budget_defer(v->session);
}

// Reads what the request says. 1: all of it; 0: the session has no steps left in this turn.
static int read_form(struct visit *v, const struct http_request *r, mr_bytes body) {
    struct session *s = v->session;
    if (r->method != HTTP_POST) {
        int err = form_read_query(&v->form, r->query);
        return err < 0 ? err : 1;
    }
    size_t left = (size_t)(LIMIT_SESSION_STEPS - s->spent) * WEB_STEP_BYTES, before = left;
    int err = form_read_json(&v->form, &v->form_json, body, &left);
    budget_spend(s, (before - left + WEB_STEP_BYTES - 1) / WEB_STEP_BYTES);
    return err;
}

static void end_form(struct visit *v) {
    form_finish(&v->form);
    v->form_json = (struct form_json){ 0 };
}

// False: the request is read on in a later turn.
static bool ask(struct visit *v, const struct http_request *r, mr_bytes body) {
    int err = read_form(v, r, body);
    if (err == 0) {
        defer(v);
        return false;
    }
    if (err > 0)
        err = visit_ask(v, v->route, r->path, &v->form);
    end_form(v);
    if (err < 0)
        respond_wrong(v, err == MR_ENOMEM    ? HTTP_FULL
                         : err == MR_ETOOBIG ? HTTP_TOO_BIG
                                             : HTTP_BAD);
    else if (!v->asked)
        respond_replies(v, v->route, &(struct replies){ 0 });
    return true;
}

// ---- Requests -----------------------------------------------------------------------------------

// What comes behind it cannot be made sense of, or is not to be read. The connection stays until
// the client has seen why: to close it under what he still sends would take that from him.
static void refuse(struct visit *v, enum http_status status) {
    v->lingers = true;
    respond_wrong(v, status);
}

static void refuse_method(struct visit *v, uint32_t methods) {
    bool gets = methods & 1u << HTTP_GET, posts = methods & 1u << HTTP_POST;
    const char *allow = gets && posts ? "GET, HEAD, POST" : gets ? "GET, HEAD" : "POST";
    static const char text[] = "{\"error\":\"ERR\",\"message\":\"that path has other methods\"}\n";
    respond(v, &(struct http_response){
                   .status = HTTP_METHOD, .allow = allow, .body = { text, sizeof text - 1 } });
}

// Finds the row of the table. False: there is none, and that was answered.
static bool find_route(struct visit *v, const struct http_request *r) {
    uint32_t methods;
    v->route = route_find(r->method, r->path, &methods);
    if (is_unauthenticated(v) && !(v->route && v->route->open && !r->body_size)) {
        respond_refusal(v, HTTP_UNKNOWN, code_name(CODE_NOAUTH),
                        mr_str("this server asks for a token: Authorization: Bearer SECRET"));
    } else if (v->route) {
        return true;
    } else if (methods) {
        refuse_method(v, methods);
    } else {
        error_set(MR_EGONE, "there is no %.*s", (int)(r->path.size < 100 ? r->path.size : 100),
                  (const char *)r->path.data);
        respond_wrong(v, HTTP_GONE);
    }
    return false;
}

// Whether the command that the request becomes may be run, as far as its head tells. False: that is
// answered by a reply, or was; the body is not to be read.
static bool may_ask(struct visit *v, const struct http_request *r) {
    mr_bytes words[2];
    int count = route_head(v->route, r->path, &v->web->scratch, words);
    if (count < 0) {
        refuse(v, count == MR_ENOMEM ? HTTP_FULL : HTTP_BAD);
        return false;
    }
    if (!count || command_admit(v->session, words, (uint32_t)count))
        return true;
    await_refusal(v);
    return false;
}

static uint64_t body_most(const struct visit *v) {
    return v->route->most ? v->route->most : WEB_BODY_SMALL;
}

// Whether there may be so large a body. False: that was answered.
static bool may_send(struct visit *v, const struct http_request *r) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (r->body_size > body_most(v)) {
        error_set(MR_ETOOBIG, "a body has at most %d bytes here", (int)body_most(v));
        refuse(v, HTTP_TOO_BIG);
    } else if (r->expects && v->in.size < v->whole &&
               buffer_append(&v->out, go_on, sizeof go_on - 1) < 0) {
        v->session->broken = true;
    } else {
        return true;
    }
    return false;
}

// The head of a request is there. Whatever refuses it also ends it.
static void begin_request(struct visit *v, const struct http_request *r, size_t head_size) {
    v->keeps = r->keep;
    v->head_only = r->method == HTTP_HEAD;
    v->whole = r->body_size < SIZE_MAX - head_size ? head_size + (size_t)r->body_size : SIZE_MAX;
    int status = guard_check(&v->web->guard, r);
    if (status) {
        refuse(v, (enum http_status)status);
        return;
    }
    bool page = r->method <= HTTP_HEAD && !r->body_size && respond_page(v, r);
    if (page || !greet(v, guard_secret(r)) || !find_route(v, r))
        return;
    if (r->body_size && may_ask(v, r))
        (void)may_send(v, r); // else it was answered
}

// Takes the request at hand one step further. False: more has to come first.
static bool step(struct visit *v) {
    struct http_request r;
    size_t searched = 0;
    bool begins = !v->whole;
    if (!begins && v->in.size < v->whole)
        return false;
    ptrdiff_t head =
        http_request_read(v->in.data, v->in.size, begins ? &v->searched : &searched, &r);
    if (head == 0)
        return false;
    if (head < 0) {
        v->whole = v->in.size;
        v->head_only = false;
        refuse(v, (enum http_status)(0 - head));
        return true;
    }
    if (begins) {
        begin_request(v, &r, (size_t)head);
        return true;
    }
    return ask(v, &r, (mr_bytes){ v->in.data + head, v->whole - (size_t)head });
}

// Picks the timeout for what the client has to do next.
static void wait_on(struct visit *v) {
    struct web *w = v->web;
    bool busy = v->asked || v->closing || listens(v) || waits_for_turn(v) ||
                unsent(v) >= LIMIT_UNSENT_PAUSE;
    web_wait(v, v->lingers && v->closing ? &w->lingering
                : busy                   ? NULL
                : !v->in.size            ? &w->idle
                : !v->whole              ? &w->heads
                                         : &w->bodies);
}

static void visit_run(struct visit *v) {
    v->follows = false;
    while (!v->asked && !v->closing && !v->session->broken && !listens(v) && v->in.size) {
        if (!budget_left(v->session) || budget_is_busy(v->session->host)) {
            defer(v);
            break;
        }
        if (unsent(v) >= LIMIT_UNSENT_PAUSE) {
            v->follows = true; // once that was read
            break;
        }
        if (!step(v))
            break;
    }
    wait_on(v);
    count_buffers(v);
    if (unsent(v) || v->closing || v->session->broken)
        session_touch(v->session);
}

void visit_answered(struct visit *v) {
    size_t used = v->whole < v->in.size ? v->whole : v->in.size;
    v->in.size -= used;
    if (v->in.size)
        memmove(v->in.data, v->in.data + used, v->in.size);
    else
        buffer_finish(&v->in); // between requests there are no buffers
    v->follows = v->in.size && v->keeps;
    v->whole = v->searched = 0;
    v->closing = v->closing || !v->keeps;
    web_wait(v, NULL); // from now on anew
}

void visit_time_over(struct visit *v) {
    if (v->closing || !v->in.size) {
        v->session->broken = true;
    } else {
        v->whole = v->in.size;
        v->head_only = false;
        error_set(MR_EINVAL, "the request took too long to arrive");
        refuse(v, HTTP_SLOW);
        v->lingers = false; // nothing comes
    }
    session_touch(v->session);
}

// ---- Replies ------------------------------------------------------------------------------------

// Reads all that have to come. False: they are not there. `*out_size` is what they take up.
static bool read_replies(struct visit *v, struct replies *out, size_t *out_size) {
    static const struct response_limits limits = { WEB_VALUES, LIMIT_LINE, LIMIT_ARGUMENT * 2,
                                                   LIMIT_UNSENT };
    mr_bytes ready = session_ready(v->session);
    struct response_value *values = v->web->values;
    uint32_t used = 0;
    *out_size = 0;
    *out = (struct replies){ 0 };
    for (uint32_t i = 0; i < v->asked; i++) {
        struct response reader = { 0 };
        struct response_limits left = limits;
        uint32_t count;
        left.values -= used;
        ptrdiff_t size = response_read(&reader, &left, (const uint8_t *)ready.data + *out_size,
                                       ready.size - *out_size, values + used, &count);
        v->session->broken = v->session->broken || size < 0; // more than anything can be
        if (size <= 0)
            return false;
        out->of[out->count++] = values + used;
        used += count;
        *out_size += (size_t)size;
    }
    return true;
}

void visit_hear(struct visit *v) {
    struct replies replies;
    size_t size;
    if (!v->asked || !session_ready(v->session).size || !read_replies(v, &replies, &size))
        return;
    v->asked = 0;
    respond_replies(v, v->route, &replies);
    session_sent(v->session, size);
    wait_on(v);
}

// ---- Bytes --------------------------------------------------------------------------------------

// Makes room for more of the request at hand: as much again as has come, so that a length which is
// only announced takes up nothing. False: there is none.
static bool grow(struct visit *v, size_t most) {
    size_t room = v->in.capacity - v->in.size;
    size_t more = v->in.size > READ_SIZE ? v->in.size : READ_SIZE;
    if (room)
        return true;
    more = more < most - v->in.size ? more : most - v->in.size;
    if (buffer_reserve(&v->in, more) < 0)
        v->session->broken = true;
    count_buffers(v);
    return !v->session->broken;
}

// While a request is run a little of the next is received, so that a client that has gone is
// noticed.
static uint8_t *visit_room(struct front *f, size_t *out_size) {
    struct visit *v = visit_of(f);
    if ((v->closing && !v->lingers) || v->session->broken || v->session->closing)
        return NULL;
    if (!v->in.size || v->lingers) {
        *out_size = READ_SIZE;
        return v->web->place.host->inbox;
    }
    size_t most = v->whole > v->in.size ? v->whole : v->whole + WEB_HEAD;
    if (v->in.size >= most || !grow(v, most))
        return NULL;
    size_t room = v->in.capacity - v->in.size;
    *out_size = room < most - v->in.size ? room : most - v->in.size;
    return v->in.data + v->in.size;
}

// A client that listens, or was refused, has nothing more to say.
static void visit_receive(struct front *f, size_t size) {
    struct visit *v = visit_of(f);
    if (listens(v) || v->closing || v->lingers)
        return;
    if (v->in.size)
        v->in.size += size;
    else if (buffer_append(&v->in, v->web->place.host->inbox, size) < 0)
        v->session->broken = true;
    if (!waits_for_turn(v))
        visit_run(v);
}

static mr_bytes visit_ready(struct front *f) {
    struct visit *v = visit_of(f);
    visit_hear(v);
    if (v->follows && !v->asked && !unsent(v))
        budget_defer(v->session); // other clients have their turn first
    if (unsent(v))
        return (mr_bytes){ v->out.data + v->out_sent, unsent(v) };
    return stream_ready(v);
}

static void visit_resume(struct session *s) {
    struct visit *v = visit_of(s->front);
    if (v->follows && !v->asked && !unsent(v))
        visit_run(v);
}

static void visit_sent(struct front *f, size_t size) {
    struct visit *v = visit_of(f);
    if (!unsent(v)) {
        stream_sent(v, size);
        return;
    }
    v->out_sent += size;
    if (unsent(v))
        return;
    buffer_finish(&v->out);
    v->out_sent = 0;
    count_buffers(v);
    wait_on(v); // after a large response it is his turn only now
}

const struct front_impl *web_front(void) {
    static const struct front_impl impl = { .start = web_start,
                                            .stop = web_stop,
                                            .turn = web_turn,
                                            .refuse = respond_write_full,
                                            .open = visit_open,
                                            .close = visit_close,
                                            .room = visit_room,
                                            .receive = visit_receive,
                                            .ready = visit_ready,
                                            .sent = visit_sent,
                                            .is_over = visit_is_over };
    return &impl;
}
