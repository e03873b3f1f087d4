// For tests of logs: entries that contain their own number, and readers that know what to expect.
//
// Entries are numbered 0, 1, 2, … over groups; an entry's head has its number, its place in the
// group and the group's size, and its body follows from number and size.
#ifndef TEST_SUPPORT_LOG_SUPPORT_H
#define TEST_SUPPORT_LOG_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/errors.h"
#include "base/mem.h"
#include "folder.h"
#include "log/log.h"

enum { SAMPLE_HEAD = 16, SAMPLES = 4096 };

static inline void sample_head(uint8_t *to, uint64_t number, uint32_t index, uint32_t count) {
    memcpy(to, &number, 8);
    memcpy(to + 8, &index, 4);
    memcpy(to + 12, &count, 4);
}

static inline void sample_body(uint8_t *to, uint64_t number, size_t size) {
    for (size_t i = 0; i < size && i < 256; i++)
        to[i] = (uint8_t)(number * 31 + i * 7);
    for (size_t i = 256; i < size; i += 256) {
        memcpy(to + i, to, size - i < 256 ? size - i : 256);
        to[i] = (uint8_t)(i >> 8);
    }
}

// Appends a group of `count` entries that are numbered from `number` on.
static inline int sample_append(struct log *l, uint64_t number, uint32_t count, size_t body_size,
                                enum room room, uint64_t *out_at) {
    struct entry *entries = calloc(count, sizeof *entries);
    uint8_t *bytes = malloc(count * (SAMPLE_HEAD + body_size));
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *head = bytes + i * (SAMPLE_HEAD + body_size);
        sample_head(head, number + i, i, count);
        sample_body(head + SAMPLE_HEAD, number + i, body_size);
        entries[i] = (struct entry){ .head = { head, SAMPLE_HEAD },
                                     .body = { head + SAMPLE_HEAD, body_size } };
    }
    int err = log_append(l, entries, count, room, out_at);
    free(bytes);
    free(entries);
    return err;
}

static inline bool sample_body_right(uint64_t number, mr_bytes body) {
    uint8_t *expected = malloc(body.size + 1);
    sample_body(expected, number, body.size);
    bool right = body.size == 0 || memcmp(expected, body.data, body.size) == 0;
    free(expected);
    return right;
}

// What a walk has met. Groups are whole and numbers go up by one; the first one may be any.
struct tally {
    uint64_t first, next; // numbers
    uint32_t index, count;
    bool wrong;
    uint64_t at[SAMPLES]; // of number % SAMPLES
};

static inline int tally_see(void *arg, const struct log_seen *seen) {
    struct tally *t = arg;
    uint64_t number;
    uint32_t index, count;
    if (seen->head.size != SAMPLE_HEAD) {
        t->wrong = true;
        return 0;
    }
    memcpy(&number, seen->head.data, 8);
    memcpy(&index, (const uint8_t *)seen->head.data + 8, 4);
    memcpy(&count, (const uint8_t *)seen->head.data + 12, 4);
    if (t->next == t->first && t->index == 0)
        t->first = t->next = number;
    bool follows = number == t->next && index == t->index && (index == 0 || count == t->count);
    bool body = !seen->body.data || sample_body_right(number, seen->body);
    if (!follows || !body)
        t->wrong = true;
    t->next = number + 1;
    t->index = index + 1 == count ? 0 : index + 1;
    t->count = count;
    t->at[number % SAMPLES] = seen->at;
    return 0;
}

static inline bool tally_right(const struct tally *t) {
    return !t->wrong && t->index == 0;
}

// Reads one entry and checks it.
static inline int sample_read(struct log *l, uint64_t at, uint64_t number, bool *out_right) {
    struct buffer head = { 0 }, body = { 0 };
    uint64_t found = UINT64_MAX;
    int err = log_read(l, at, &head, &body);
    if (err == 0 && head.size == SAMPLE_HEAD)
        memcpy(&found, head.data, 8);
    *out_right = err == 0 && found == number && sample_body_right(number, buffer_bytes(&body));
    buffer_finish(&head);
    buffer_finish(&body);
    return err;
}

static inline struct log_state look(struct log *l) {
    struct log_state s;
    log_look(l, &s);
    return s;
}

#endif
