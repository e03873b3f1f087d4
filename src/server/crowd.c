// See crowd.h.
#include "server/crowd.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <string.h>

struct crowd_address {
    uint32_t next; // the slab's, when nobody comes from there
    uint32_t count;
    uint8_t address[CROWD_ADDRESS];
};

static struct crowd_address *address_at(const struct crowd *c, uint32_t number) {
    return SLAB_AT(&c->addresses, struct crowd_address, number);
}

static bool is_address(const void *crowd, uint32_t number, const void *address) {
    return memcmp(address_at(crowd, number)->address, address, CROWD_ADDRESS) == 0;
}

static uint32_t address_hash(const uint8_t *address) {
    return (uint32_t)bytes_hash((mr_bytes){ address, CROWD_ADDRESS }, 0);
}

void crowd_init(struct crowd *c, uint32_t most, uint32_t most_of_address) {
    *c = (struct crowd){ .most = most, .most_of_address = most_of_address };
    slab_init(&c->addresses, sizeof(struct crowd_address), 0);
}

void crowd_finish(struct crowd *c) {
    slab_finish(&c->addresses);
    map_finish(&c->by_address);
}

static int address_create(struct crowd *c, const uint8_t *address, uint32_t hash, uint32_t *out) {
    int err = map_reserve(&c->by_address, 1);
    if (err < 0)
        return err;
    uint32_t number = slab_take(&c->addresses);
    if (!number)
        return error_set(MR_ENOMEM, "no memory for an address");
    memcpy(address_at(c, number)->address, address, CROWD_ADDRESS);
    map_put(&c->by_address, hash, number);
    *out = number;
    return 0;
}

static int address_enter(struct crowd *c, const uint8_t *address, uint32_t *out) {
    uint32_t hash = address_hash(address);
    uint32_t number = map_find(&c->by_address, hash, is_address, c, address);
    if (number && address_at(c, number)->count >= c->most_of_address)
        return error_set(MR_EFULL,
                         "%u clients of this address are connected, which is the limit: "
                         "max-per-address",
                         address_at(c, number)->count);
    int err = number ? 0 : address_create(c, address, hash, &number);
    if (err < 0)
        return err;
    address_at(c, number)->count++;
    *out = number;
    return 0;
}

int crowd_enter(struct crowd *c, const uint8_t *address, struct guest *out) {
    uint32_t number = 0;
    if (c->count >= c->most)
        return error_set(MR_EFULL, "%u clients are connected, which is the limit: max-clients",
                         c->count);
    int err = address ? address_enter(c, address, &number) : 0;
    if (err < 0)
        return err;
    c->count++;
    *out = (struct guest){ .counted = true, .address = number };
    return 0;
}

static void address_leave(struct crowd *c, uint32_t number) {
    struct crowd_address *a = address_at(c, number);
    if (--a->count)
        return;
    map_remove(&c->by_address, address_hash(a->address), number);
    slab_give(&c->addresses, number);
}

void crowd_leave(struct crowd *c, struct guest *g) {
    if (g->address)
        address_leave(c, g->address);
    c->count -= g->counted;
    *g = (struct guest){ 0 };
}
