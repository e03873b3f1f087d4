// See sim_board.h. Notes are an array, ordered by key.
#include "support/sim_board.h"

#include "base/errors.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_note {
    char key[BOARD_KEY_MOST + 1], value[BOARD_VALUE_MOST + 1];
    uint64_t put_at_ms;
};

struct sim_board {
    pthread_mutex_t lock; // guards everything below, and the flags of the boards
    uint64_t now_ms;
    bool outage;
    uint32_t shards, notes;
    struct stream_state *states; // silent_ms: when it was seen last
    struct sim_note *note[BOARD_NOTES_MOST];
};

struct sim_node_board {
    struct board base;
    struct sim_board *store;
    bool cut, interrupted;
};

static struct sim_node_board *node_of(struct board *base) {
    return (struct sim_node_board *)base;
}

// Begins a call, with the lock. STREAM_UNAVAILABLE: it ends at once.
static int call_begin(struct board *base) {
    struct sim_node_board *n = node_of(base);
    pthread_mutex_lock(&n->store->lock);
    if (!n->store->outage && !n->cut && !n->interrupted)
        return STREAM_DONE;
    const char *why = n->interrupted ? "was interrupted" : "does not answer";
    pthread_mutex_unlock(&n->store->lock);
    return error_set(STREAM_UNAVAILABLE, "the simulated store %s", why);
}

static int call_end(struct board *base, int result) {
    pthread_mutex_unlock(&node_of(base)->store->lock);
    return result;
}

// ---- Notes ------------------------------------------------------------------------------------

// Where the key is, or would be.
static uint32_t note_place(const struct sim_board *s, const char *key) {
    uint32_t low = 0, high = s->notes;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (strcmp(s->note[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool note_is_at(const struct sim_board *s, uint32_t place, const char *key) {
    return place < s->notes && !strcmp(s->note[place]->key, key);
}

static void note_set(struct sim_board *s, struct sim_note *n, const char *value) {
    snprintf(n->value, sizeof n->value, "%s", value);
    n->put_at_ms = s->now_ms;
}

static int note_add(struct sim_board *s, uint32_t place, const char *key, const char *value) {
    if (s->notes == BOARD_NOTES_MOST)
        return error_set(MR_EFULL, "the simulated store has room for %d notes", BOARD_NOTES_MOST);
    memmove(s->note + place + 1, s->note + place, (s->notes - place) * sizeof *s->note);
    s->note[place] = calloc(1, sizeof **s->note);
    s->notes++;
    snprintf(s->note[place]->key, sizeof s->note[place]->key, "%s", key);
    note_set(s, s->note[place], value);
    return STREAM_DONE;
}

static int note_write(struct board *base, const char *key, const char *value, bool replace) {
    int result = call_begin(base);
    if (result != STREAM_DONE)
        return result;
    struct sim_board *s = node_of(base)->store;
    uint32_t place = note_place(s, key);
    if (!note_is_at(s, place, key))
        result = note_add(s, place, key, value);
    else if (replace)
        note_set(s, s->note[place], value);
    return call_end(base, result);
}

static int sim_put(struct board *base, const char *key, const char *value) {
    return note_write(base, key, value, true);
}

static int sim_put_new(struct board *base, const char *key, const char *value) {
    return note_write(base, key, value, false);
}

static int sim_remove(struct board *base, const char *key) {
    int result = call_begin(base);
    if (result != STREAM_DONE)
        return result;
    struct sim_board *s = node_of(base)->store;
    uint32_t place = note_place(s, key);
    if (note_is_at(s, place, key)) {
        free(s->note[place]);
        s->notes--;
        memmove(s->note + place, s->note + place + 1, (s->notes - place) * sizeof *s->note);
    }
    return call_end(base, STREAM_DONE);
}

static int sim_notes(struct board *base, board_each *each, void *arg) {
    int result = call_begin(base);
    if (result != STREAM_DONE)
        return result;
    const struct sim_board *s = node_of(base)->store;
    for (uint32_t i = 0; i < s->notes && result >= 0; i++) {
        const struct sim_note *n = s->note[i];
        result = each(arg, &(struct board_note){ n->key, n->value, s->now_ms - n->put_at_ms });
    }
    return call_end(base, result < 0 ? result : (int)STREAM_DONE);
}

// ---- Shards -----------------------------------------------------------------------------------

static int sim_look(struct board *base, uint32_t shards, struct stream_state *out) {
    int result = call_begin(base);
    if (result != STREAM_DONE)
        return result;
    const struct sim_board *s = node_of(base)->store;
    if (shards > s->shards)
        return call_end(base, error_set(MR_EINVAL, "the simulated store has %u shards, not %u",
                                        s->shards, shards));
    for (uint32_t i = 0; i < shards; i++) {
        out[i] = s->states[i];
        out[i].silent_ms = s->now_ms - s->states[i].silent_ms;
    }
    return call_end(base, STREAM_DONE);
}

// Begins a call of an owner; `out` is the shard's state.
static int owner_begin(struct board *base, uint32_t shard, uint64_t epoch,
                       struct stream_state **out) {
    int result = call_begin(base);
    if (result != STREAM_DONE)
        return result;
    struct sim_board *s = node_of(base)->store;
    assert(shard < s->shards);
    *out = &s->states[shard];
    if ((*out)->epoch != epoch)
        return call_end(base, error_set(STREAM_FENCED, "shard %u has another owner", shard));
    (*out)->silent_ms = s->now_ms;
    return STREAM_DONE;
}

int sim_board_claim(struct board *base, uint32_t shard, uint64_t expected, const char *owner) {
    struct stream_state *state;
    int result = owner_begin(base, shard, expected, &state);
    if (result != STREAM_DONE)
        return result;
    state->epoch++;
    snprintf(state->owner, sizeof state->owner, "%s", owner);
    return call_end(base, STREAM_DONE);
}

int sim_board_beat(struct board *base, uint32_t shard, uint64_t epoch) {
    struct stream_state *state;
    int result = owner_begin(base, shard, epoch, &state);
    return result == STREAM_DONE ? call_end(base, STREAM_DONE) : result;
}

int sim_board_release(struct board *base, uint32_t shard, uint64_t epoch) {
    struct stream_state *state;
    int result = owner_begin(base, shard, epoch, &state);
    if (result != STREAM_DONE)
        return result;
    state->owner[0] = '\0';
    return call_end(base, STREAM_DONE);
}

// ---- The store --------------------------------------------------------------------------------

static int sim_promise(struct board *base, struct stream_promise *out) {
    (void)base;
    *out = (struct stream_promise){ .replicated = true, .text = "simulated", .remedy = "None" };
    return STREAM_DONE;
}

static void sim_interrupt(struct board *base) {
    struct sim_node_board *n = node_of(base);
    pthread_mutex_lock(&n->store->lock);
    n->interrupted = true;
    pthread_mutex_unlock(&n->store->lock);
}

static void sim_close(struct board *base) {
    free(node_of(base));
}

static const struct board_impl sim_board_impl = {
    .look = sim_look,
    .notes = sim_notes,
    .put = sim_put,
    .put_new = sim_put_new,
    .remove = sim_remove,
    .promise = sim_promise,
    .interrupt = sim_interrupt,
    .close = sim_close,
};

struct board *sim_board_open(struct sim_board *s) {
    struct sim_node_board *n = calloc(1, sizeof *n);
    n->base.impl = &sim_board_impl;
    n->store = s;
    return &n->base;
}

struct sim_board *sim_board_create(uint32_t shards) {
    struct sim_board *s = calloc(1, sizeof *s);
    s->shards = shards;
    s->states = calloc(shards, sizeof *s->states);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void sim_board_destroy(struct sim_board *s) {
    for (uint32_t i = 0; i < s->notes; i++)
        free(s->note[i]);
    pthread_mutex_destroy(&s->lock);
    free(s->states);
    free(s);
}

uint64_t sim_board_now_ms(struct sim_board *s) {
    pthread_mutex_lock(&s->lock);
    uint64_t now_ms = s->now_ms;
    pthread_mutex_unlock(&s->lock);
    return now_ms;
}

void sim_board_advance(struct sim_board *s, uint64_t ms) {
    pthread_mutex_lock(&s->lock);
    s->now_ms += ms;
    pthread_mutex_unlock(&s->lock);
}

void sim_board_outage(struct sim_board *s, bool lasts) {
    pthread_mutex_lock(&s->lock);
    s->outage = lasts;
    pthread_mutex_unlock(&s->lock);
}

void sim_board_cut(struct board *base, bool lasts) {
    struct sim_node_board *n = node_of(base);
    pthread_mutex_lock(&n->store->lock);
    n->cut = lasts;
    pthread_mutex_unlock(&n->store->lock);
}
