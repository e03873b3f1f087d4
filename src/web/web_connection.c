// One HTTP connection. A request is read, its commands are run in the session at once, and their
// replies, once they are durable, become the response; then the next request is read.
//
//     head ─► token, role ─► body ─► JSON, in steps ─► commands ─► (durable) ─► replies ─► response
//
// Everything that the head of a request determines is checked before its body is read: Host and
// Origin, the token, its role for the path, the stage or job in the path, and the size of the body.
#include "web/state.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/budget.h"
#include "server/command.h"
#include "server/limits.h"
#include "web/web.h"
#include "wire/code.h"

#include <stdio.h>
#include <string.h>

static struct web_connection *web_connection_of(struct front *f) {
    return (struct web_connection *)f;
}

static size_t out_unsent(const struct web_connection *v) {
    return v->out.size - v->out_sent;
}

static size_t unsent(const struct web_connection *v) {
    return out_unsent(v) + body_unsent(&v->body);
}

static bool waits_for_turn(const struct web_connection *v) {
    return !list_empty(&v->session->of_backlog);
}

static bool listens(const struct web_connection *v) {
    return !list_empty(&v->of_streams);
}

// Reports the memory of the buffers to the host.
static void web_count_buffers(struct web_connection *v) {
    size_t now = v->in.capacity + v->out.capacity + v->form.text.capacity + body_memory(&v->body);
    // Unsigned arithmetic: a decrease wraps and adds up correctly.
    session_hold(v->session, now - v->buffered);
    v->buffered = now;
}

// ---- Open and close -----------------------------------------------------------------------------

static void web_connection_resume(struct session *);

static int web_connection_open(void *all, struct session *s, const uint8_t *address,
                               struct front **out) {
    struct web *w = all;
    struct web_connection *v = mem_alloc(sizeof *v);
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
    v->session->resume = web_connection_resume;
    v->session->reply.resp3 = true; // RESP3 replies distinguish maps from arrays
    web_wait(v, &w->idle);
    *out = &v->base;
    return 0;
}

static void web_connection_close(struct front *f) {
    struct web_connection *v = web_connection_of(f);
    if (!v)
        return;
    struct web *w = v->web;
    v->session->front = NULL;
    v->session->resume = NULL;
    stream_leave(v);
    web_wait(v, NULL);
    form_finish(&v->form);
    mem_free(v->second);
    quota_leave(&w->quota, &v->member);
    quota_leave(&w->quota_of_tokens, &v->of_token);
    buffer_finish(&v->in);
    buffer_finish(&v->out);
    body_finish(&v->body);
    web_count_buffers(v);
    mem_free(v);
}

// True once the client has disconnected or the server stops: later replies are not awaited.
static bool web_connection_is_over(const struct front *f) {
    const struct web_connection *v = (const struct web_connection *)f;
    bool comes = v->follows || (v->asked && !wait_is_open(v->session));
    bool ends = v->closing || (v->session->closing && !comes);
    bool lingers = v->lingers && !v->session->closing;
    return ends && !unsent(v) && !stream_ready(v).size && !lingers;
}

// ---- Commands -----------------------------------------------------------------------------------

static bool waits_for_reply(const struct web_connection *v) {
    return v->session->wait.kind || router_is_waiting(v->session);
}

// The first command of a request runs at once. The second runs when the first has its reply, which
// may be made in pieces or by other loops.
static void run_words(void *connection, const mr_bytes *words, uint32_t count) {
    struct web_connection *v = connection;
    if (!waits_for_reply(v))
        session_command(v->session, words, count);
    else if (!(v->second = words_keep(words, count)))
        v->session->broken = true;
    v->asked++;
}

static void run_second(struct web_connection *v) {
    session_command(v->session, v->second->words, v->second->count);
    mem_free(v->second);
    v->second = NULL;
}

int web_connection_run(struct web_connection *v, const struct route *r, mr_bytes path,
                       struct form *form) {
    return route_run(r, path, form, run_words, v);
}

// The session's reply will be the refusal; the rest of the body is not stored meanwhile.
static void await_refusal(struct web_connection *v) {
    v->asked = 1;
    v->lingers = v->in.size < v->whole;
}

// Refuses a request; the rest of the input cannot be parsed or must not be read. The connection
// stays open until the client has read the response: closing it while the client still sends would
// discard the response.
static void web_refuse(struct web_connection *v, enum http_status status) {
    v->lingers = true;
    respond_failure(v, status);
}

// Counts the connection for the token of its request, and until another token is used. False: the
// token has too many, and the request was refused.
static bool count_for_token(struct web_connection *v) {
    uint64_t token = v->session->who ? v->session->who->maker : 0;
    struct quota_member member;
    uint8_t holder[QUOTA_HOLDER];
    if (!token || token == v->token)
        return true;
    token_holder(token, holder);
    if (quota_enter(&v->web->quota_of_tokens, holder, &member) < 0) {
        v->session->who = NULL;
        web_refuse(v, HTTP_FULL);
        return false;
    }
    quota_leave(&v->web->quota_of_tokens, &v->of_token);
    v->of_token = member;
    v->token = token;
    return true;
}

// Authenticates the request by its token. False: it was refused, or the session's reply will be the
// refusal.
static bool authenticate(struct web_connection *v, mr_bytes secret) {
    v->session->who = NULL;
    if (!v->web->place.host->auth || !secret.size)
        return true;
    if (session_introduce(v->session, secret))
        return count_for_token(v);
    await_refusal(v);
    return false;
}

static bool web_is_unauthenticated(const struct web_connection *v) {
    return v->web->place.host->auth && !v->session->who;
}

// Continues to read the request in a later turn.
static void web_defer(struct web_connection *v) {
    v->follows = true;
    budget_defer(v->session);
}

// Reads the parameters of the request. 1: all of them; 0: the session has no steps left in this
// turn.
static int read_form(struct web_connection *v, const struct http_request *r, mr_bytes body) {
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

static void end_form(struct web_connection *v) {
    form_finish(&v->form);
    v->form_json = (struct form_json){ 0 };
}

// Each request that has a name sets it anew: behind a proxy the next one of this connection may be
// another client's.
static int read_client_name(struct web_connection *v) {
    const struct form_field *x = form_find(&v->form, mr_str("name"));
    if (x && x->kind != FORM_TEXT)
        return error_set(MR_EINVAL, "'name' must be text");
    return session_set_name(v->session, x ? form_value(&v->form, x) : (mr_bytes){ "", 0 });
}

// Reads the parameters and runs the commands. False: it continues in a later turn.
static bool web_ask(struct web_connection *v, const struct http_request *r, mr_bytes body) {
    int err = read_form(v, r, body);
    if (err == 0) {
        web_defer(v);
        return false;
    }
    if (err > 0 && v->route->named)
        err = read_client_name(v) < 0 ? MR_EINVAL : 1;
    if (err > 0)
        err = web_connection_run(v, v->route, r->path, &v->form);
    end_form(v);
    if (err < 0)
        respond_failure(v, err == MR_ENOMEM    ? HTTP_FULL
                           : err == MR_ETOOBIG ? HTTP_TOO_BIG
                                               : HTTP_BAD);
    else if (!v->asked)
        v->route->answer(v, &(struct replies){ 0 });
    return true;
}

// ---- Requests -----------------------------------------------------------------------------------

static void refuse_method(struct web_connection *v, uint32_t methods) {
    bool gets = methods & 1u << HTTP_GET, posts = methods & 1u << HTTP_POST;
    const char *allow = gets && posts ? "GET, HEAD, POST" : gets ? "GET, HEAD" : "POST";
    char text[128];
    snprintf(text, sizeof text,
             "{\"error\":\"ERR\",\"message\":\"the path does not support this method, but %s\"}\n",
             allow);
    respond(v,
            &(struct http_response){ .status = HTTP_METHOD, .allow = allow, .body = mr_str(text) });
}

// Finds the route. False: there is none, and the request was refused.
static bool find_route(struct web_connection *v, const struct http_request *r) {
    uint32_t methods;
    v->route = route_find(r->method, r->path, &methods);
    if (web_is_unauthenticated(v) && !(v->route && v->route->open && !r->body_size)) {
        respond_refusal(v, HTTP_UNKNOWN, code_name(CODE_NOAUTH),
                        mr_str("this server requires a token: Authorization: Bearer SECRET"));
    } else if (v->route) {
        return true;
    } else if (methods) {
        refuse_method(v, methods);
    } else {
        error_set(MR_EGONE, "there is no %.*s", (int)(r->path.size < 100 ? r->path.size : 100),
                  (const char *)r->path.data);
        respond_failure(v, HTTP_GONE);
    }
    return false;
}

// Whether the command may be run, as far as the head of the request determines it. False: the
// request was refused, or a reply will refuse it; the body is not read.
static bool may_ask(struct web_connection *v, const struct http_request *r) {
    mr_bytes words[2];
    int count = route_head(v->route, r->path, &v->web->scratch, words);
    if (count < 0) {
        web_refuse(v, count == MR_ENOMEM ? HTTP_FULL : HTTP_BAD);
        return false;
    }
    if (!count || command_admit(v->session, words, (uint32_t)count))
        return true;
    await_refusal(v);
    return false;
}

static uint64_t body_most(const struct web_connection *v) {
    return v->route->most ? v->route->most : WEB_BODY_SMALL;
}

// Whether the body is small enough. False: the request was refused.
static bool may_send(struct web_connection *v, const struct http_request *r) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (r->body_size > body_most(v)) {
        error_set(MR_ETOOBIG, "the body of this request has at most %d bytes", (int)body_most(v));
        web_refuse(v, HTTP_TOO_BIG);
    } else if (r->expects_continue && v->in.size < v->whole &&
               buffer_append(&v->out, go_on, sizeof go_on - 1) < 0) {
        v->session->broken = true;
    } else {
        return true;
    }
    return false;
}

// Checks a request whose head is complete. A check that refuses the request also ends it.
static void begin_request(struct web_connection *v, const struct http_request *r,
                          size_t head_size) {
    v->keeps = r->keep_alive;
    v->head_only = r->method == HTTP_HEAD;
    v->whole = r->body_size < SIZE_MAX - head_size ? head_size + (size_t)r->body_size : SIZE_MAX;
    int status = guard_check(&v->web->guard, r);
    if (status) {
        web_refuse(v, (enum http_status)status);
        return;
    }
    bool page = r->method <= HTTP_HEAD && !r->body_size && respond_page(v, r);
    if (page || !authenticate(v, guard_secret(r)) || !find_route(v, r))
        return;
    if (r->body_size && may_ask(v, r))
        (void)may_send(v, r); // it refuses the request itself
}

// Processes the current request as far as possible. False: more input is needed.
static bool step(struct web_connection *v) {
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
        web_refuse(v, (enum http_status)(0 - head));
        return true;
    }
    if (begins) {
        begin_request(v, &r, (size_t)head);
        return true;
    }
    return web_ask(v, &r, (mr_bytes){ v->in.data + head, v->whole - (size_t)head });
}

// Whether the next request waits until responses were sent. A body that is apart is sent last.
static bool is_sending(const struct web_connection *v) {
    return v->body.is_whole || unsent(v) >= LIMIT_UNSENT_PAUSE;
}

// Picks the timeout for what the client has to do next.
static void wait_on(struct web_connection *v) {
    struct web *w = v->web;
    bool busy = v->asked || v->closing || listens(v) || waits_for_turn(v) || is_sending(v);
    web_wait(v, v->lingers && v->closing ? &w->lingering
                : busy                   ? NULL
                : !v->in.size            ? &w->idle
                : !v->whole              ? &w->heads
                                         : &w->bodies);
}

static void process_input(struct web_connection *v) {
    v->follows = false;
    while (!v->asked && !v->closing && !v->session->broken && !listens(v) && v->in.size) {
        if (!budget_left(v->session) || budget_is_busy(v->session->host)) {
            web_defer(v);
            break;
        }
        if (is_sending(v)) {
            v->follows = true; // examined when the response was sent
            break;
        }
        if (!step(v))
            break;
    }
    wait_on(v);
    web_count_buffers(v);
    if (unsent(v) || v->closing || v->session->broken)
        session_touch_prompt(v->session);
}

void web_connection_end_request(struct web_connection *v) {
    size_t used = v->whole < v->in.size ? v->whole : v->in.size;
    v->in.size -= used;
    if (v->in.size)
        memmove(v->in.data, v->in.data + used, v->in.size);
    else
        buffer_finish(&v->in); // between requests there are no buffers
    v->follows = v->in.size && v->keeps;
    v->whole = v->searched = 0;
    v->closing = v->closing || !v->keeps;
    web_wait(v, NULL); // the next timeout starts now
}

void web_connection_time_out(struct web_connection *v) {
    if (v->closing || !v->in.size) {
        v->session->broken = true;
    } else {
        v->whole = v->in.size;
        v->head_only = false;
        error_set(MR_EINVAL, "the request took too long to arrive");
        web_refuse(v, HTTP_SLOW);
        v->lingers = false; // no more input is expected
    }
    session_touch_prompt(v->session);
}

// ---- Replies ------------------------------------------------------------------------------------

// Whether there may be all replies of the request: some are new, or the response has begun.
static bool has_replies(const struct web_connection *v) {
    bool is_new = session_ready(v->session).size > v->body.seen;
    return v->asked && !v->second && (is_new || v->body.replies.count);
}

static void web_go_on(struct web_connection *v) {
    body_go_on(v);
    wait_on(v);
    web_count_buffers(v);
}

void web_connection_respond(struct web_connection *v) {
    struct session *s = v->session;
    if (!has_replies(v))
        return;
    if (budget_is_busy(s->host) || !budget_left(s))
        budget_defer(s);
    else
        web_go_on(v);
}

// ---- Bytes --------------------------------------------------------------------------------------

// Makes room for more of the current request: as much again as has arrived, so that an announced
// length alone uses no memory. False: no memory.
static bool grow(struct web_connection *v, size_t most) {
    size_t room = v->in.capacity - v->in.size;
    size_t more = v->in.size > READ_SIZE ? v->in.size : READ_SIZE;
    if (room)
        return true;
    more = more < most - v->in.size ? more : most - v->in.size;
    if (buffer_reserve(&v->in, more) < 0)
        v->session->broken = true;
    web_count_buffers(v);
    return !v->session->broken;
}

// While a request runs, a little of the next one is received, so that a disconnected client is
// noticed.
static uint8_t *web_connection_room(struct front *f, size_t *out_size) {
    struct web_connection *v = web_connection_of(f);
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

// Input of a client that receives events, or was refused, is discarded.
static void web_connection_receive(struct front *f, size_t size) {
    struct web_connection *v = web_connection_of(f);
    if (listens(v) || v->closing || v->lingers)
        return;
    if (v->in.size)
        v->in.size += size;
    else if (buffer_append(&v->in, v->web->place.host->inbox, size) < 0)
        v->session->broken = true;
    if (waits_for_turn(v))
        v->follows = true;
    else
        process_input(v);
}

static mr_bytes web_connection_ready(struct front *f) {
    struct web_connection *v = web_connection_of(f);
    web_connection_respond(v);
    if ((v->follows && !v->asked && !unsent(v)) || (v->second && !waits_for_reply(v)))
        budget_defer(v->session); // other clients run first
    if (out_unsent(v))
        return (mr_bytes){ v->out.data + v->out_sent, out_unsent(v) };
    if (v->body.is_whole)
        return (mr_bytes){ v->body.text.data + v->body.sent, body_unsent(&v->body) };
    return stream_ready(v);
}

static void web_connection_resume(struct session *s) {
    struct web_connection *v = web_connection_of(s->front);
    if (has_replies(v))
        web_go_on(v);
    if (v->second && !waits_for_reply(v))
        run_second(v);
    if (v->follows && !v->asked && !unsent(v))
        process_input(v);
}

static void web_connection_sent(struct front *f, size_t size) {
    struct web_connection *v = web_connection_of(f);
    if (out_unsent(v)) {
        v->out_sent += size;
    } else if (v->body.is_whole) {
        v->body.sent += size;
    } else {
        stream_sent(v, size);
        return;
    }
    if (unsent(v))
        return;
    buffer_finish(&v->out);
    v->out_sent = 0;
    if (v->body.is_whole)
        body_finish(&v->body);
    web_count_buffers(v);
    wait_on(v); // after a large response the client's time starts only now
}

const struct front_impl *web_front(void) {
    static const struct front_impl impl = { .start = web_start,
                                            .stop = web_stop,
                                            .turn = web_turn,
                                            .refuse = respond_write_full,
                                            .open = web_connection_open,
                                            .close = web_connection_close,
                                            .room = web_connection_room,
                                            .receive = web_connection_receive,
                                            .ready = web_connection_ready,
                                            .sent = web_connection_sent,
                                            .is_over = web_connection_is_over };
    return &impl;
}
