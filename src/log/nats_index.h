// Where in a stream of NATS the batches are: positions to sequences. Sparse: any true pairs will
// do, because the batches behind one are found by reading on. Bounded: when it is full, every
// second pair goes, and from then on half as many come. Any thread.
#ifndef LOG_NATS_INDEX_H
#define LOG_NATS_INDEX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NATS_INDEX_MOST = 1 << 18 };

struct nats_index_pair {
    uint64_t at, sequence; // of a batch, and of its first part
};

struct nats_index {
    pthread_mutex_t lock; // guards everything below
    struct nats_index_pair *pairs;
    size_t count, capacity;
    uint64_t stride, skipped; // of how many batches one is kept; how many were not since
};

void nats_index_init(struct nats_index *);
void nats_index_finish(struct nats_index *);

// Notes a batch; passed over if it is not behind the last one noted, or memory is short.
void nats_index_add(struct nats_index *, uint64_t at, uint64_t sequence);

// The last pair that is noted at or before the position; zeros: there is none.
struct nats_index_pair nats_index_find(struct nats_index *, uint64_t at);

// Forgets what is before the position.
void nats_index_trim(struct nats_index *, uint64_t head);

#endif
