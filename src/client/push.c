// Pushing. A push is numbered by a source of its stage that no other push uses meanwhile:
//
//     lent to one push ─► PUSH … SOURCE name n ─► accepted: n is used up
//                                              ─► refused: n is the next one's
//
// so that pushes of many threads need not wait for each other, and the server recognises a push
// that is sent again by its number. A pipeline of pushes (push_many) uses one number each; when one
// is refused the server refuses all behind it (GAP), and none of their numbers is used up.
//
// A GAP that no refusal explains means that the server does not know the source any more: it has
// been idle for long, or the server lost its memory. Then there is nothing to be remembered, and a
// new source begins.
#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "client/state.h"
#include "wire/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PIPELINE = 256 }; // pushes of one call on their way at once; numbers may be 1,024 ahead

// ---- Sources ----------------------------------------------------------------------------------

enum { SOURCES_KEPT = 64 }; // of all stages; those used longest ago are begun anew for others

static void source_begin(struct client *c, struct client_source *s) {
    uint64_t high = client_random(c), low = client_random(c);
    snprintf(s->name, sizeof s->name, "client-%016" PRIx64 "%016" PRIx64, high, low);
    s->number = 0;
    s->late = false;
}

static bool source_is_of(const struct client_source *s, mr_bytes stage) {
    return s->stage_size == stage.size && memcmp(s->stage, stage.data, stage.size) == 0;
}

// Takes one of that stage out of those that are free; or, if many are, that used longest ago.
static struct client_source *source_reuse(struct client *c, mr_bytes stage) {
    uint32_t count = 0;
    struct client_source **at = &c->sources, **last = NULL;
    for (; *at && !source_is_of(*at, stage); at = &(*at)->next, count++)
        last = at;
    at = !*at && count >= SOURCES_KEPT ? last : at;
    struct client_source *s = *at;
    if (s)
        *at = s->next;
    return s;
}

// With the lock. NULL: MR_ENOMEM was noted.
static struct client_source *source_lend(struct client *c, mr_bytes stage) {
    struct client_source *s = source_reuse(c, stage);
    if (s && source_is_of(s, stage))
        return s;
    if (!s)
        s = mem_alloc(sizeof *s);
    if (!s) {
        error_set(MR_ENOMEM, "no memory for a push");
        return NULL;
    }
    s->stage_size = stage.size <= sizeof s->stage ? (uint32_t)stage.size : 0; // it will be refused
    memcpy(s->stage, stage.data, s->stage_size);
    source_begin(c, s);
    return s;
}

// After an error that leaves open whether a number was used, another series is begun.
static void source_return(struct client *c, struct client_source *s, int err) {
    bool unsure = err == MR_ENET || err == MR_ESTOPPED || err == MR_EIO || s->late;
    if (unsure && !MUTANT(unsure_number_used_again))
        source_begin(c, s);
    s->next = c->sources;
    c->sources = s;
}

// ---- Requests ---------------------------------------------------------------------------------

#define PUSH_WORD(member, kind, word, ...) EXCHANGE_##kind(x, word, o->member);

void push_words(struct exchange *x, mr_bytes stage, mr_bytes body, const mr_push_options *o) {
    exchange_bytes(x, stage);
    exchange_bytes(x, body);
    PUSH_OPTIONS(PUSH_WORD)
}

static struct exchange *push_request_new(mr_bytes stage, mr_bytes body, const mr_push_options *o,
                                         const struct push_number *n) {
    struct exchange *x = exchange_new("PUSH");
    if (!x)
        return NULL;
    push_words(x, stage, body, o);
    exchange_word(x, n->epic ? "EPIC" : "SOURCE");
    exchange_bytes(x, n->source);
    exchange_number(x, n->number);
    return x;
}

// A repeat from long ago is answered without an id: 0.
static int read_push_id(const struct exchange *x, mr_id *out) {
    uint64_t id = 0;
    if (x->number == 0 && number_parse(buffer_bytes(&x->answer), &id) < 0)
        return error_set(MR_ENET, "the server answers a push with what is not an id");
    *out = id;
    return 0;
}

// ---- A pipeline -------------------------------------------------------------------------------

struct pipeline {
    struct client *client;
    struct client_link *link;
    struct client_source *source;    // ours, or …
    const struct push_number *first; // … the caller's own numbers; NULL: it has none
    mr_bytes stage;
    mr_push_options options;
    struct exchange *on_way[PIPELINE];
};

// The number of the item behind so many accepted ones and `ahead` on their way.
static struct push_number pipeline_number(const struct pipeline *p, size_t accepted, size_t ahead) {
    struct push_number n = { mr_str(p->source->name), p->source->number + 1 + ahead, false };
    if (!p->first)
        return n;
    n = *p->first;
    n.number += accepted + ahead;
    return n;
}

static int pipeline_send(struct pipeline *p, const mr_item *items, size_t accepted, size_t count,
                         size_t *out_sent) {
    int err = 0;
    size_t sent = 0;
    for (; sent < count && err >= 0; sent++) {
        mr_push_options o = p->options;
        o.key = items[sent].key;
        o.once = items[sent].once;
        struct push_number n = pipeline_number(p, accepted, sent);
        struct exchange *x = push_request_new(p->stage, items[sent].body, &o, &n);
        pthread_mutex_lock(&p->client->lock);
        err = x ? exchange_send(p->link, x) : MR_ENOMEM;
        if (x) {
            x->waited_for = err >= 0;
            x->source = p->first ? NULL : p->source;
        }
        pthread_mutex_unlock(&p->client->lock);
        if (err < 0) {
            exchange_free(x);
            break;
        }
        p->on_way[sent] = x;
    }
    *out_sent = sent;
    return err;
}

// Waits for all; returns how many of them were accepted before the first that was not, and why that
// one was not: `out_err` 0 if there is none, with its sentence noted.
static size_t pipeline_wait(struct pipeline *p, size_t sent, mr_id *out_ids, int *out_err) {
    size_t accepted = 0;
    int why = 0;
    char sentence[512] = "";
    for (size_t i = 0; i < sent; i++) {
        struct exchange *x = p->on_way[i];
        mr_id id = 0;
        pthread_mutex_lock(&p->client->lock);
        int err = exchange_wait(p->client, x, UINT64_MAX);
        pthread_mutex_unlock(&p->client->lock);
        if (err >= 0)
            err = read_push_id(x, &id);
        if (err < 0 && why == 0) {
            why = err;
            snprintf(sentence, sizeof sentence, "%s", error_text());
        }
        if (why == 0) {
            accepted++;
            if (out_ids)
                out_ids[i] = id;
        }
        exchange_free(x);
    }
    *out_err = why < 0 ? error_set(why, "%s", sentence) : 0;
    return accepted;
}

// Pushes all, a window at a time, until one is refused.
static size_t pipeline_run(struct pipeline *p, const mr_item *items, size_t count, mr_id *out_ids,
                           int *out_err) {
    size_t done = 0;
    bool afresh = false;
    int err = 0;
    while (done < count && err >= 0) {
        size_t window = count - done < PIPELINE ? count - done : PIPELINE, sent;
        int unsent = pipeline_send(p, items + done, done, window, &sent);
        size_t accepted = pipeline_wait(p, sent, out_ids ? out_ids + done : NULL, &err);
        if (!p->first)
            p->source->number += accepted - (accepted && MUTANT(number_used_twice));
        done += accepted;
        if (err == MR_EGAP && !p->first && (!afresh || accepted)) {
            pthread_mutex_lock(&p->client->lock);
            source_begin(p->client, p->source);
            pthread_mutex_unlock(&p->client->lock);
            afresh = true;
            err = 0;
        } else if (err >= 0) {
            err = unsent;
        }
    }
    *out_err = err;
    return done;
}

static size_t client_push_items(struct client *c, mr_bytes stage, const mr_item *items,
                                size_t count, const mr_push_options *o,
                                const struct push_number *first, mr_id *out_ids, int *out_err) {
    struct pipeline p = { .client = c, .stage = stage, .options = *o, .first = first };
    size_t done = 0;
    pthread_mutex_lock(&c->lock);
    p.source = source_lend(c, stage);
    p.link = o->room_ms ? lane_borrow(c) : c->main;
    pthread_mutex_unlock(&c->lock);
    *out_err = MR_ENOMEM;
    if (p.source && p.link)
        done = pipeline_run(&p, items, count, out_ids, out_err);
    pthread_mutex_lock(&c->lock);
    if (p.source)
        source_return(c, p.source, *out_err);
    if (p.link && p.link->lane)
        lane_return(p.link);
    pthread_mutex_unlock(&c->lock);
    return done;
}

// ---- The calls --------------------------------------------------------------------------------

int client_push_many(struct engine *base, mr_bytes stage, const mr_item *items, size_t count,
                     const mr_push_options *o, const struct push_number *first, mr_id *out_ids,
                     size_t *out_count) {
    int err = 0;
    size_t done =
        client_push_items((struct client *)base, stage, items, count, o, first, out_ids, &err);
    bool unsure = err == MR_ESTOPPED || err == MR_ENET;
    if (err < 0 && (done == 0 || unsure))
        return err;
    *out_count = done;
    return 0;
}

int client_push(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                mr_id *out_id) {
    mr_item item = { .key = o->key, .once = o->once, .body = body };
    mr_id id = 0;
    int err = 0;
    client_push_items((struct client *)base, stage, &item, 1, o, NULL, &id, &err);
    if (err >= 0 && out_id)
        *out_id = id;
    return err;
}

int client_cancel(struct engine *base, mr_id id) {
    struct client *c = (struct client *)base;
    struct exchange *x = exchange_new("CANCEL");
    if (x)
        exchange_number(x, id);
    return exchange_do(c, x, NULL, NULL);
}
