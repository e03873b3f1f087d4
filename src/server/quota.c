// See quota.h.
#include "server/quota.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <string.h>

struct quota_address {
    uint32_t next; // the slab's, when the place is free
    uint32_t count;
    uint8_t address[QUOTA_ADDRESS];
};

static struct quota_address *address_at(const struct quota *c, uint32_t number) {
    return SLAB_AT(&c->addresses, struct quota_address, number);
}

static bool quota_is_address(const void *quota, uint32_t number, const void *address) {
    return memcmp(address_at(quota, number)->address, address, QUOTA_ADDRESS) == 0;
}

static uint32_t address_hash(const uint8_t *address) {
    return (uint32_t)bytes_hash((mr_bytes){ address, QUOTA_ADDRESS }, 0);
}

void quota_init(struct quota *c, uint32_t most, uint32_t most_of_address,
                struct quota_words words) {
    *c = (struct quota){ .most = most, .most_of_address = most_of_address, .words = words };
    slab_init(&c->addresses, sizeof(struct quota_address), 0);
}

void quota_finish(struct quota *c) {
    slab_finish(&c->addresses);
    map_finish(&c->by_address);
}

static int address_create(struct quota *c, const uint8_t *address, uint32_t hash, uint32_t *out) {
    int err = map_reserve(&c->by_address, 1);
    if (err < 0)
        return err;
    uint32_t number = slab_take(&c->addresses);
    if (!number)
        return error_set(MR_ENOMEM, "no memory for an address");
    memcpy(address_at(c, number)->address, address, QUOTA_ADDRESS);
    map_put(&c->by_address, hash, number);
    *out = number;
    return 0;
}

static int address_enter(struct quota *c, const uint8_t *address, uint32_t *out) {
    uint32_t hash = address_hash(address);
    uint32_t number = map_find(&c->by_address, hash, quota_is_address, c, address);
    if (number && address_at(c, number)->count >= c->most_of_address)
        return error_set(MR_EFULL, "%u %s of this address are connected, which is the limit: %s",
                         address_at(c, number)->count, c->words.members,
                         c->words.way_out_of_address);
    int err = number ? 0 : address_create(c, address, hash, &number);
    if (err < 0)
        return err;
    address_at(c, number)->count++;
    *out = number;
    return 0;
}

int quota_enter(struct quota *c, const uint8_t *address, struct quota_member *out) {
    uint32_t number = 0;
    if (c->count >= c->most)
        return error_set(MR_EFULL, "%u %s are connected, which is the limit: %s", c->count,
                         c->words.members, c->words.way_out);
    int err = address ? address_enter(c, address, &number) : 0;
    if (err < 0)
        return err;
    c->count++;
    *out = (struct quota_member){ .counted = true, .address = number };
    return 0;
}

static void address_leave(struct quota *c, uint32_t number) {
    struct quota_address *a = address_at(c, number);
    if (--a->count)
        return;
    map_remove(&c->by_address, address_hash(a->address), number);
    slab_give(&c->addresses, number);
}

void quota_leave(struct quota *c, struct quota_member *g) {
    if (g->address)
        address_leave(c, g->address);
    c->count -= g->counted;
    *g = (struct quota_member){ 0 };
}
