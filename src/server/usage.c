// See usage.h.
#include "server/usage.h"

struct token_usage {
    uint64_t maker;
    int64_t used[QUOTA_KINDS];
};

static struct token_usage *usage_at(const struct usage *u, uint32_t number) {
    return SLAB_AT(&u->tokens, struct token_usage, number);
}

static bool usage_is_of(const void *usage, uint32_t number, const void *maker) {
    return usage_at(usage, number)->maker == *(const uint64_t *)maker;
}

// The maker is a hash.
static uint32_t usage_find(const struct usage *u, uint64_t maker) {
    return map_find(&u->by_maker, (uint32_t)maker, usage_is_of, u, &maker);
}

void usage_init(struct usage *u) {
    *u = (struct usage){ 0 };
    pthread_mutex_init(&u->lock, NULL);
    slab_init(&u->tokens, sizeof(struct token_usage), 0);
}

void usage_finish(struct usage *u) {
    slab_finish(&u->tokens);
    map_finish(&u->by_maker);
    pthread_mutex_destroy(&u->lock);
}

// 0: there is no memory.
static uint32_t usage_get(struct usage *u, uint64_t maker) {
    uint32_t number = usage_find(u, maker);
    if (number || map_reserve(&u->by_maker, 1) < 0 || !(number = slab_take(&u->tokens)))
        return number;
    usage_at(u, number)->maker = maker;
    map_put(&u->by_maker, (uint32_t)maker, number);
    return number;
}

static void usage_forget_unused(struct usage *u, uint32_t number) {
    const struct token_usage *t = usage_at(u, number);
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        if (t->used[kind])
            return;
    map_remove(&u->by_maker, (uint32_t)t->maker, number);
    slab_give(&u->tokens, number);
}

// Under the lock.
static void usage_add(struct usage *u, uint64_t maker, enum quota_kind kind, int64_t by) {
    uint32_t number = usage_get(u, maker);
    if (!number)
        return;
    usage_at(u, number)->used[kind] += by;
    usage_forget_unused(u, number);
}

void usage_change(struct usage *u, uint64_t maker, enum quota_kind kind, int64_t by) {
    pthread_mutex_lock(&u->lock);
    usage_add(u, maker, kind, by);
    pthread_mutex_unlock(&u->lock);
}

// What was not counted for lack of memory may have made a number negative.
static uint64_t usage_read(const struct usage *u, uint32_t number, int kind) {
    int64_t used = number ? usage_at(u, number)->used[kind] : 0;
    return used > 0 ? (uint64_t)used : 0;
}

void usage_of(struct usage *u, uint64_t maker, struct quotas *out) {
    pthread_mutex_lock(&u->lock);
    uint32_t number = usage_find(u, maker);
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        out->of[kind] = usage_read(u, number, kind);
    pthread_mutex_unlock(&u->lock);
}

bool usage_connect(struct usage *u, uint64_t maker, uint64_t most, uint64_t *out_has) {
    pthread_mutex_lock(&u->lock);
    *out_has = usage_read(u, usage_find(u, maker), QUOTA_CONNECTIONS);
    bool allowed = *out_has < most;
    if (allowed)
        usage_add(u, maker, QUOTA_CONNECTIONS, 1);
    pthread_mutex_unlock(&u->lock);
    return allowed;
}
