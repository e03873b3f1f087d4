// See nats_record.h.
#include "log/nats_record.h"

#include "log/frame.h"

#include <string.h>

#define RECORD_VERSION UINT32_C(0x6d6e0001) // "mn" and the version

enum { SUM_AT = 112 };

static uint64_t record_sum(const uint8_t *raw, size_t owner_size) {
    uint64_t seed = XXH3_64bits(raw + NATS_RECORD, owner_size);
    return XXH3_64bits_withSeed(raw, SUM_AT, seed);
}

int nats_record_put(const struct nats_record *r, struct buffer *out) {
    size_t owner_size = strnlen(r->owner, sizeof r->owner - 1);
    int err = buffer_reserve(out, NATS_RECORD + owner_size);
    if (err < 0)
        return err;
    uint8_t *to = out->data + out->size;
    const uint64_t fields[] = { r->epoch, r->previous, r->head,  r->head_sequence,
                                r->tail,  r->claimer,  r->claim, r->write,
                                r->at,    r->end };
    store_u32(to, RECORD_VERSION);
    store_u32(to + 4, (uint32_t)r->kind | (uint32_t)owner_size << 16);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        store_u64(to + 8 + 8 * i, fields[i]);
    store_u32(to + 88, r->heads_size);
    store_u32(to + 92, r->bodies_size);
    store_u32(to + 96, r->part);
    store_u32(to + 100, r->part_size);
    store_u64(to + 104, r->last_part);
    memcpy(to + NATS_RECORD, r->owner, owner_size);
    store_u64(to + SUM_AT, record_sum(to, owner_size));
    out->size += NATS_RECORD + owner_size;
    return 0;
}

// Whether the numbers of a part fit each other, and its size.
static bool part_fits(const struct nats_record *r, size_t size) {
    return r->part_size && r->end > r->at && r->part < nats_record_parts(r) &&
           nats_record_part_size(r) == size;
}

bool nats_record_get(mr_bytes message, struct nats_record *out, mr_bytes *out_rest) {
    const uint8_t *raw = message.data;
    if (message.size < NATS_RECORD || load_u32(raw) != RECORD_VERSION)
        return false;
    size_t owner_size = load_u32(raw + 4) >> 16;
    if (owner_size >= STREAM_OWNER || message.size - NATS_RECORD < owner_size ||
        load_u64(raw + SUM_AT) != record_sum(raw, owner_size))
        return false;
    uint32_t kind = load_u32(raw + 4) & 0xffff;
    struct nats_record r = { .kind = kind == NATS_PART ? NATS_PART : NATS_STATE,
                             .epoch = load_u64(raw + 8),
                             .previous = load_u64(raw + 16),
                             .head = load_u64(raw + 24),
                             .head_sequence = load_u64(raw + 32),
                             .tail = load_u64(raw + 40),
                             .claimer = load_u64(raw + 48),
                             .claim = load_u64(raw + 56),
                             .write = load_u64(raw + 64),
                             .at = load_u64(raw + 72),
                             .end = load_u64(raw + 80),
                             .heads_size = load_u32(raw + 88),
                             .bodies_size = load_u32(raw + 92),
                             .part = load_u32(raw + 96),
                             .part_size = load_u32(raw + 100),
                             .last_part = load_u64(raw + 104) };
    memcpy(r.owner, raw + NATS_RECORD, owner_size);
    mr_bytes rest = { raw + NATS_RECORD + owner_size, message.size - NATS_RECORD - owner_size };
    if (kind != (uint32_t)r.kind || r.head > r.tail ||
        (kind == NATS_PART && !part_fits(&r, rest.size)))
        return false;
    *out = r;
    *out_rest = rest;
    return true;
}

struct stream_state nats_record_state(const struct nats_record *r) {
    struct stream_state state = {
        .epoch = r->epoch, .head = r->head, .tail = r->tail, .bytes = r->tail - r->head
    };
    memcpy(state.owner, r->owner, sizeof state.owner);
    return state;
}
