// Calls. CALL … LATER is answered with the job's id; the end comes as a message, in any order, so
// one link carries any number of calls:
//
//     sent ─► id known ─► ended: a thread is woken, or the notifier calls on_end
//      ▲          │
//      └──────────┘ the link was lost: sent again with the same `once`, which the server knows
#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "client/state.h"
#include "wire/number.h"

#include <inttypes.h>
#include <stdio.h>

// The thread in mr_call_start.
struct call_start {
    bool known;
    mr_id id;
    pthread_cond_t cond;
};

// ---- Life -------------------------------------------------------------------------------------

static struct exchange *call_words(struct client *c, mr_bytes stage, mr_bytes body,
                                   const mr_push_options *o) {
    char name[40];
    mr_push_options named = *o;
    struct exchange *x = exchange_new("CALL");
    if (!x)
        return NULL;
    if (!o->once.size) {
        pthread_mutex_lock(&c->lock);
        uint64_t high = client_random(c), low = client_random(c);
        pthread_mutex_unlock(&c->lock);
        snprintf(name, sizeof name, "%016" PRIx64 "%016" PRIx64, high, low);
        named.once = mr_str(name);
    }
    push_words(x, stage, body, &named);
    exchange_word(x, "LATER");
    return x;
}

static void client_call_free(struct call *call) {
    pthread_cond_destroy(&call->changed);
    buffer_finish(&call->result);
    mem_free(call);
}

static struct call *client_call_create(struct client *c, mr_bytes stage, mr_bytes body,
                                       const mr_push_options *o) {
    struct call *call = mem_alloc(sizeof *call);
    struct exchange *x = call ? call_words(c, stage, body, o) : NULL;
    if (!x) {
        mem_free(call);
        error_set(MR_ENOMEM, "no memory for a call");
        return NULL;
    }
    cond_init(&call->changed);
    snprintf(call->stage, sizeof call->stage, "%.*s", (int)stage.size, (const char *)stage.data);
    call->x = x;
    call->deadline_ms = o->deadline_ms;
    call->give_up_ms = UINT64_MAX;
    if (o->deadline_ms && o->room_ms >= 0)
        call->give_up_ms = client_until(o->deadline_ms + o->room_ms + CLIENT_SLACK_MS);
    return call;
}

// ---- The end ----------------------------------------------------------------------------------

static int note_result(struct call *call, mr_bytes bytes) {
    int err = buffer_reserve(&call->result, bytes.size + 1);
    if (err < 0)
        return err;
    buffer_append(&call->result, bytes.data, bytes.size);
    call->result.data[call->result.size] = 0;
    return 0;
}

// Adds the job to the server's sentence, which says only how it ended.
static void note_error(struct call *call, int err, mr_bytes sentence) {
    char text[700];
    if (err == MR_EEXPIRED && call->deadline_ms)
        snprintf(text, sizeof text,
                 "job %" PRIu64 " of stage '%s' did not end within its deadline of %" PRId64 " ms",
                 call->id, call->stage, call->deadline_ms);
    else if (err == MR_EDEAD)
        snprintf(text, sizeof text, "job %" PRIu64 " is dead: %.*s", call->id, (int)sentence.size,
                 (const char *)sentence.data);
    else if (err == MR_ECANCELLED)
        snprintf(text, sizeof text, "job %" PRIu64 " was cancelled", call->id);
    else
        snprintf(text, sizeof text, "%.*s", (int)sentence.size, (const char *)sentence.data);
    (void)note_result(call, mr_str(text)); // without memory, without a sentence
}

// With the lock. The thread that waits for it, or the notifier, frees it.
static void call_end(struct client *c, struct call *call, int err, mr_bytes bytes) {
    if (err >= 0)
        err = note_result(call, bytes);
    else
        note_error(call, err, bytes);
    call->err = err;
    call->ended = true;
    list_remove(&call->of_list);
    list_remove(&call->of_ids);
    if (call->x && call->x->kept) {
        link_unuse(call->x->link);
        exchange_free(call->x);
    } else if (call->x) {
        exchange_leave(call->x); // and its lane with it
    }
    call->x = NULL;
    if (!call->on_end || call->starting) {
        pthread_cond_broadcast(call->starting ? &call->starting->cond : &call->changed);
        return;
    }
    c->started--;
    list_append(&c->ended, &call->of_list);
    pthread_cond_signal(&c->notify);
}

static void call_hook(struct client *c, struct exchange *x, const struct response_value *v,
                      uint32_t count) {
    struct call *call = x->owner;
    uint64_t id;
    (void)v, (void)count;
    if (!call)
        return;
    if (x->err >= 0 && number_parse(buffer_bytes(&x->answer), &id) < 0) {
        x->err = MR_ENET;
        buffer_clear(&x->answer);
    }
    x->kept = x->err >= 0;
    x->link->uses += x->kept;
    if (x->link->lane)
        lane_return(x->link);
    if (x->err < 0) {
        call->x = NULL; // the caller of this hook frees it
        call_end(c, call, x->err, buffer_bytes(&x->answer));
        return;
    }
    call->id = id;
    list_remove(&call->of_ids);
    list_append(&c->calls_by_id[id % CLIENT_BUCKETS], &call->of_ids);
    if (call->starting) {
        call->starting->known = true;
        call->starting->id = id;
        pthread_cond_signal(&call->starting->cond);
        call->starting = NULL;
    }
}

void calls_ended(struct client_link *l, mr_id id, const struct response_value *outcome) {
    struct list *bucket = &l->client->calls_by_id[id % CLIENT_BUCKETS];
    for (struct list *at = bucket->next; at != bucket; at = at->next) {
        struct call *call = list_entry(at, struct call, of_ids);
        if (call->id != id || !call->x->kept || call->x->link != l)
            continue;
        mr_bytes bytes = { 0 };
        int err = 0;
        if (outcome->type == RESPONSE_ERROR)
            err = error_read(outcome->bytes, &bytes);
        else if (outcome->type == RESPONSE_BULK)
            bytes = outcome->bytes;
        call_end(l->client, call, err, bytes);
        return;
    }
}

// What may wait for room once more gets a lane of its own again.
void calls_resend(struct client_link *l) {
    struct client *c = l->client;
    for (struct list *at = c->calls.next; at != &c->calls; at = at->next) {
        struct exchange *x = list_entry(at, struct call, of_list)->x;
        struct client_link *lane = x->link == l && x->kept && l->lane ? lane_borrow(c) : NULL;
        if (x->link != l || !x->kept)
            continue;
        link_unuse(l);
        x->link = lane ? lane : c->main;
        x->kept = x->sent = x->answered = false;
        list_append(&x->link->queue, &x->of_link);
    }
    client_wake_io(c);
}

// The server reports an end at the deadline. A server that does not must not block the call for
// ever.
void calls_check(struct client *c, uint64_t now_ms) {
    c->call_check_ms = UINT64_MAX;
    for (struct list *at = c->calls.next, *next; at != &c->calls; at = next) {
        struct call *call = list_entry(at, struct call, of_list);
        next = at->next;
        if (now_ms >= call->give_up_ms)
            call_end(c, call, MR_EEXPIRED, (mr_bytes){ 0 });
        else if (call->give_up_ms < c->call_check_ms)
            c->call_check_ms = call->give_up_ms;
    }
}

// ---- Calling ----------------------------------------------------------------------------------

// With the lock. On failure the call is freed.
static int call_send(struct client *c, struct call *call, const mr_push_options *o) {
    struct client_link *l = o->room_ms ? lane_borrow(c) : c->main;
    struct exchange *x = call->x;
    x->hook = call_hook;
    x->owner = call;
    int err = l ? exchange_send(l, x) : MR_ENOMEM;
    if (err < 0) {
        if (l && l->lane)
            lane_return(l);
        exchange_free(x);
        client_call_free(call);
        return err;
    }
    list_append(&c->calls, &call->of_list);
    if (call->give_up_ms < c->call_check_ms)
        c->call_check_ms = call->give_up_ms;
    return 0;
}

static int call_take_result(struct call *call, struct buffer *out) {
    int err = call->err;
    if (err < 0)
        error_set(err, "%.*s", (int)call->result.size, (const char *)call->result.data);
    else {
        *out = call->result;
        call->result = (struct buffer){ 0 };
    }
    client_call_free(call);
    return err;
}

int client_call(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                struct buffer *out_result) {
    struct client *c = (struct client *)base;
    struct call *call = client_call_create(c, stage, body, o);
    if (!call)
        return MR_ENOMEM;
    pthread_mutex_lock(&c->lock);
    int err = call_send(c, call, o);
    c->waiting_threads++;
    while (err >= 0 && !call->ended)
        pthread_cond_wait(&call->changed, &c->lock);
    c->waiting_threads--;
    pthread_mutex_unlock(&c->lock);
    return err < 0 ? err : call_take_result(call, out_result);
}

// With the lock: waits for the id, or for an end without one.
static bool wait_for_id(struct client *c, struct call *call, struct call_start *start) {
    c->waiting_threads++;
    while (!start->known && !(call->ended && call->starting))
        pthread_cond_wait(&start->cond, &c->lock);
    c->waiting_threads--;
    if (!start->known)
        c->started--;
    return start->known;
}

int client_call_start(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                      mr_on_end *on_end, void *arg, mr_id *out_id) {
    struct client *c = (struct client *)base;
    struct call *call = client_call_create(c, stage, body, o);
    if (!call)
        return MR_ENOMEM;
    struct call_start start = { 0 };
    struct buffer none;
    pthread_cond_init(&start.cond, NULL);
    call->on_end = on_end;
    call->arg = arg;
    call->starting = &start;
    pthread_mutex_lock(&c->lock);
    int err = call_send(c, call, o);
    bool has_id = false;
    if (err >= 0) {
        c->started++;
        has_id = wait_for_id(c, call, &start);
    }
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&start.cond);
    if (err < 0)
        return err;
    if (!has_id)
        return call_take_result(call, &none);
    if (out_id)
        *out_id = start.id;
    return 0;
}

void call_notify(struct call *call) {
    call->on_end(call->id, call->err, buffer_bytes(&call->result), call->arg);
    client_call_free(call);
}

// ---- Waiting for any job ----------------------------------------------------------------------

static int describe_end(mr_id id, int err) {
    if (err == MR_EDEAD)
        return error_set(err, "job %" PRIu64 " is dead: %s", id, error_text());
    if (err == MR_ECANCELLED)
        return error_set(err, "job %" PRIu64 " was cancelled", id);
    if (err == MR_EEXPIRED)
        return error_set(err, "job %" PRIu64 " did not end before its deadline", id);
    return err;
}

int client_await(struct engine *base, mr_id id, int64_t wait_ms, struct buffer *out_result) {
    struct client *c = (struct client *)base;
    uint64_t until_ms = wait_ms < 0 ? UINT64_MAX : client_until(wait_ms) + CLIENT_SLACK_MS;
    struct exchange *x = exchange_new("AWAIT");
    if (!x)
        return MR_ENOMEM;
    exchange_number(x, id);
    exchange_option(x, "WAIT", wait_ms);
    int err = exchange_await(c, x, until_ms, wait_ms != 0);
    bool left = err == MR_EAGAIN; // and freed, or to be
    if (left || (err >= 0 && x->number < 0))
        error_set(MR_EAGAIN, "job %" PRIu64 " has not ended in %" PRId64 " ms", id, wait_ms);
    if (left)
        return MR_EAGAIN;
    if (err >= 0 && x->number < 0) {
        err = MR_EAGAIN;
    } else if (err >= 0) {
        *out_result = x->answer;
        x->answer = (struct buffer){ 0 };
    }
    exchange_free(x);
    return describe_end(id, err);
}
