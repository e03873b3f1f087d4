// See nats_index.h.
#include "log/nats_index.h"

#include "base/mem.h"

#include <string.h>

void nats_index_init(struct nats_index *x) {
    *x = (struct nats_index){ .stride = 1 };
    pthread_mutex_init(&x->lock, NULL);
}

void nats_index_finish(struct nats_index *x) {
    mem_free(x->pairs);
    pthread_mutex_destroy(&x->lock);
}

static void index_halve(struct nats_index *x) {
    for (size_t i = 0; 2 * i < x->count; i++)
        x->pairs[i] = x->pairs[2 * i];
    x->count = (x->count + 1) / 2;
    x->stride *= 2;
}

// Makes room for one. False: there is no memory.
static bool index_reserve(struct nats_index *x) {
    if (x->count == NATS_INDEX_MOST)
        index_halve(x);
    if (x->count < x->capacity)
        return true;
    size_t capacity = x->capacity ? 2 * x->capacity : 64;
    struct nats_index_pair *pairs = mem_resize(x->pairs, capacity * sizeof *pairs);
    if (!pairs)
        return false;
    x->pairs = pairs;
    x->capacity = capacity;
    return true;
}

void nats_index_add(struct nats_index *x, uint64_t at, uint64_t sequence) {
    pthread_mutex_lock(&x->lock);
    bool is_behind = !x->count || at > x->pairs[x->count - 1].at;
    if (is_behind && x->count && ++x->skipped < x->stride)
        is_behind = false;
    if (is_behind && index_reserve(x)) {
        x->pairs[x->count++] = (struct nats_index_pair){ at, sequence };
        x->skipped = 0;
    }
    pthread_mutex_unlock(&x->lock);
}

// How many pairs are at or before the position.
static size_t pairs_before(const struct nats_index *x, uint64_t at) {
    size_t low = 0, high = x->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (x->pairs[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct nats_index_pair nats_index_find(struct nats_index *x, uint64_t at) {
    struct nats_index_pair found = { 0 };
    pthread_mutex_lock(&x->lock);
    size_t count = pairs_before(x, at);
    if (count)
        found = x->pairs[count - 1];
    pthread_mutex_unlock(&x->lock);
    return found;
}

void nats_index_trim(struct nats_index *x, uint64_t head) {
    pthread_mutex_lock(&x->lock);
    size_t gone = head ? pairs_before(x, head - 1) : 0;
    x->count -= gone;
    if (gone)
        memmove(x->pairs, x->pairs + gone, x->count * sizeof *x->pairs);
    pthread_mutex_unlock(&x->lock);
}
