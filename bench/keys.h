// The keys that benchmarks use in turn: "key-0", "key-1", … as many as asked for; none is fine.
#ifndef BENCH_KEYS_H
#define BENCH_KEYS_H

#include "millrace.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEY_SIZE = 16 };

struct keys {
    char (*names)[KEY_SIZE];
    uint64_t count;
};

static inline struct keys keys_make(uint64_t count) {
    struct keys k = { calloc(count ? count : 1, KEY_SIZE), count };
    if (!k.names)
        exit(1);
    for (uint64_t i = 0; i < count; i++)
        (void)snprintf(k.names[i], KEY_SIZE, "key-%u", (unsigned)i);
    return k;
}

// Names them "0/0", "1/0", … by their groups.
static inline void keys_divide(struct keys *k, uint64_t groups) {
    for (uint64_t i = 0; i < k->count; i++)
        (void)snprintf(k->names[i], KEY_SIZE, "%u/%u", (unsigned)(i % groups) % 100000,
                       (unsigned)(i / groups) % 100000000);
}

// The key of the nth job; empty when there are no keys.
static inline mr_bytes keys_at(const struct keys *k, uint64_t n) {
    return k->count ? mr_str(k->names[n % k->count]) : (mr_bytes){ 0 };
}

#endif
