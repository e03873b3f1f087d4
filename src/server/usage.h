// Usage: what each token has in all shards and loops of this process, for its quotas
// (base/quotas.h). Every shard reports what it makes and forgets; connections are counted here
// only.
//
//     core ── changed ──► usage ◄── connected, disconnected ── session
//      ▲                   │
//      └────── used ───────┘
//
// A quota is checked before something is made, and the change is reported after: two loops that
// make something at the same moment may exceed a quota by that much. A node of a cluster counts the
// shards that it owns.
//
// Any thread.
#ifndef SERVER_USAGE_H
#define SERVER_USAGE_H

#include "base/map.h"
#include "base/quotas.h"
#include "base/slab.h"

#include <pthread.h>
#include <stdbool.h>

struct usage {
    pthread_mutex_t lock; // guards what follows
    struct slab tokens;   // struct token_usage, one for each maker that has anything
    struct map by_maker;
};

void usage_init(struct usage *);
void usage_finish(struct usage *);

// A maker stands for a token (auth.h). Without memory for one more token the change is not counted.
void usage_change(struct usage *, uint64_t maker, enum quota_kind, int64_t by);
void usage_of(struct usage *, uint64_t maker, struct quotas *out);

// One more connection, if the token has fewer than `most`. False: it has as many, see `out_has`.
bool usage_connect(struct usage *, uint64_t maker, uint64_t most, uint64_t *out_has);

#endif
