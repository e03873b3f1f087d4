// See quota.h.
#include "server/quota.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <string.h>

struct quota_holder {
    uint32_t next; // the slab's, when the place is free
    uint32_t count;
    uint8_t name[QUOTA_HOLDER];
};

static struct quota_holder *holder_at(const struct quota *c, uint32_t number) {
    return SLAB_AT(&c->holders, struct quota_holder, number);
}

static bool quota_is_holder(const void *quota, uint32_t number, const void *name) {
    return memcmp(holder_at(quota, number)->name, name, QUOTA_HOLDER) == 0;
}

static uint32_t holder_hash(const uint8_t *name) {
    return (uint32_t)bytes_hash((mr_bytes){ name, QUOTA_HOLDER }, 0);
}

void quota_init(struct quota *c, uint32_t most, uint32_t most_of_holder, struct quota_words words) {
    *c = (struct quota){ .most = most, .most_of_holder = most_of_holder, .words = words };
    slab_init(&c->holders, sizeof(struct quota_holder), 0);
}

void quota_finish(struct quota *c) {
    slab_finish(&c->holders);
    map_finish(&c->by_name);
}

static int holder_create(struct quota *c, const uint8_t *name, uint32_t hash, uint32_t *out) {
    int err = map_reserve(&c->by_name, 1);
    if (err < 0)
        return err;
    uint32_t number = slab_take(&c->holders);
    if (!number)
        return error_set(MR_ENOMEM, "no memory for an address or token");
    memcpy(holder_at(c, number)->name, name, QUOTA_HOLDER);
    map_put(&c->by_name, hash, number);
    *out = number;
    return 0;
}

static int holder_enter(struct quota *c, const uint8_t *name, uint32_t *out) {
    uint32_t hash = holder_hash(name);
    uint32_t number = map_find(&c->by_name, hash, quota_is_holder, c, name);
    if (number && holder_at(c, number)->count >= c->most_of_holder)
        return error_set(MR_EFULL, "%u %s of this %s are connected, which is the limit: %s",
                         holder_at(c, number)->count, c->words.members, c->words.holder,
                         c->words.way_out_of_holder);
    int err = number ? 0 : holder_create(c, name, hash, &number);
    if (err < 0)
        return err;
    holder_at(c, number)->count++;
    *out = number;
    return 0;
}

int quota_enter(struct quota *c, const uint8_t *name, struct quota_member *out) {
    uint32_t number = 0;
    if (c->count >= c->most)
        return error_set(MR_EFULL, "%u %s are connected, which is the limit: %s", c->count,
                         c->words.members, c->words.way_out);
    int err = name ? holder_enter(c, name, &number) : 0;
    if (err < 0)
        return err;
    c->count++;
    *out = (struct quota_member){ .counted = true, .holder = number };
    return 0;
}

static void holder_leave(struct quota *c, uint32_t number) {
    struct quota_holder *h = holder_at(c, number);
    if (--h->count)
        return;
    map_remove(&c->by_name, holder_hash(h->name), number);
    slab_give(&c->holders, number);
}

void quota_leave(struct quota *c, struct quota_member *g) {
    if (g->holder)
        holder_leave(c, g->holder);
    c->count -= g->counted;
    *g = (struct quota_member){ 0 };
}
