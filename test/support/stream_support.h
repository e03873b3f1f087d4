// For tests of streams in a real store: batches whose content follows from their position.
#ifndef TEST_SUPPORT_STREAM_SUPPORT_H
#define TEST_SUPPORT_STREAM_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/errors.h"
#include "log/stream.h"

static inline struct stream *stream_open(struct stream_store *store, uint32_t shard) {
    struct stream *s = NULL;
    if (store->open(store, shard, &s) < 0)
        fail_msg("%s", error_text());
    return s;
}

static inline void expect_result(int result, int expected, const char *what) {
    if (result != expected)
        fail_msg("%s: %d instead of %d: %s", what, result, expected, error_text());
}
#define EXPECT(call, expected) expect_result((call), (expected), #call)

static inline struct stream_state claim_any(struct stream *s) {
    struct stream_state state = { 0 };
    EXPECT(s->impl->look(s, &state), STREAM_DONE);
    EXPECT(s->impl->claim(s, state.epoch, &state), STREAM_DONE);
    return state;
}

// A batch whose heads and bodies follow from its position; `size` is that of the bodies.
static inline int batch_append(struct stream *s, uint64_t epoch, uint64_t tail, uint64_t at,
                               size_t size) {
    uint8_t *bodies = malloc(size + 1);
    for (size_t i = 0; i < size; i++)
        bodies[i] = (uint8_t)((at + i) * 31 >> 3);
    char heads[32];
    int length = snprintf(heads, sizeof heads, "heads at %llu", (unsigned long long)at);
    struct stream_batch b = { at, at + size + 32, { heads, (size_t)length }, { bodies, size } };
    int result = s->impl->append(s, epoch, tail, &b);
    free(bodies);
    return result;
}

// Appends at the tail and moves it.
static inline int append_next(struct stream *s, struct stream_state *state, size_t size) {
    int result = batch_append(s, state->epoch, state->tail, state->tail, size);
    if (result == STREAM_DONE)
        state->tail += size + 32;
    return result;
}

struct seen {
    uint64_t first, last, end, count;
    size_t bodies;
    bool wrong;
};

static inline int batch_see(void *arg, const struct stream_batch *b) {
    struct seen *seen = arg;
    char heads[32];
    int length = snprintf(heads, sizeof heads, "heads at %llu", (unsigned long long)b->at);
    if (b->heads.size != (size_t)length || memcmp(b->heads.data, heads, b->heads.size) != 0 ||
        (seen->count && b->at < seen->end))
        seen->wrong = true;
    for (size_t i = 0; i < b->bodies.size; i++)
        if (((const uint8_t *)b->bodies.data)[i] != (uint8_t)((b->at + i) * 31 >> 3))
            seen->wrong = true;
    if (!seen->count++)
        seen->first = b->at;
    seen->last = b->at;
    seen->end = b->end;
    seen->bodies += b->bodies.size;
    return 0;
}

static inline struct seen read_all(struct stream *s, bool with_bodies) {
    struct seen seen = { 0 };
    uint64_t next = 0;
    EXPECT(s->impl->read(s, 0, UINT64_MAX, SIZE_MAX, with_bodies, batch_see, &seen, &next),
           STREAM_DONE);
    assert_false(seen.wrong);
    return seen;
}

#endif
