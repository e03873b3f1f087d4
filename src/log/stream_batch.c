// See stream_batch.h.
#include "log/stream_batch.h"

#include "log/frame.h"

#include <assert.h>

#define BATCH_VERSION UINT32_C(0x6d730001) // "ms" and the version
#define SUM_FACTOR UINT64_C(0x9e3779b97f4a7c15)

static uint64_t header_sum(mr_bytes heads, uint64_t at) {
    const uint8_t *raw = heads.data;
    uint64_t seed = XXH3_64bits(raw + BATCH_HEADER, heads.size - BATCH_HEADER) ^ at * SUM_FACTOR;
    return XXH3_64bits_withSeed(raw, BATCH_HEADER - sizeof(uint64_t), seed);
}

static uint64_t head_sum(const uint8_t *frame, const void *head, size_t size, uint64_t at) {
    uint64_t seed = XXH3_64bits(head, size) ^ at * SUM_FACTOR;
    return XXH3_64bits_withSeed(frame, BATCH_FRAME - sizeof(uint64_t), seed);
}

static uint32_t body_sum(mr_bytes body, uint64_t at) {
    return (uint32_t)XXH3_64bits_withSeed(body.data, body.size, at);
}

static uint32_t item_sum(const uint8_t *raw, uint64_t at) {
    return (uint32_t)XXH3_64bits_withSeed(raw, BATCH_ITEM - sizeof(uint32_t), at * SUM_FACTOR);
}

void batch_measure(const struct entry *e, size_t count, uint64_t *heads, uint64_t *bodies) {
    for (size_t i = 0; i < count; i++) {
        *heads += BATCH_FRAME + e[i].head.size;
        *bodies += BATCH_ITEM + round_up_8(e[i].body.size);
    }
}

// Takes `size` bytes that the caller of batch_put has reserved.
static uint8_t *reserved_take(struct buffer *b, size_t size) {
    assert(size <= b->capacity - b->size);
    uint8_t *to = b->data + b->size;
    b->size += size;
    return to;
}

static void bytes_put(uint8_t *to, mr_bytes from) {
    if (from.size)
        memcpy(to, from.data, from.size);
}

uint64_t batch_put(struct buffer *heads, struct buffer *bodies, uint64_t batch_at,
                   const struct entry *e) {
    uint64_t at = batch_at + bodies->size;
    uint32_t frame_at = (uint32_t)heads->size, sum = body_sum(e->body, at);
    uint8_t *frame = reserved_take(heads, BATCH_FRAME + e->head.size);
    store_u32(frame, (uint32_t)e->head.size);
    store_u32(frame + 4, (uint32_t)e->body.size);
    bytes_put(frame + BATCH_FRAME, e->head);
    store_u64(frame + 8, head_sum(frame, frame + BATCH_FRAME, e->head.size, at));

    size_t padded = round_up_8(e->body.size);
    uint8_t *item = reserved_take(bodies, BATCH_ITEM + padded);
    store_u32(item, (uint32_t)e->body.size);
    store_u32(item + 4, frame_at);
    store_u32(item + 8, e->damaged ? ~sum : sum);
    store_u32(item + 12, item_sum(item, at));
    bytes_put(item + BATCH_ITEM, e->body);
    memset(item + BATCH_ITEM + e->body.size, 0, padded - e->body.size);
    return at;
}

void batch_put_header(struct buffer *heads, const struct batch_header *h) {
    uint8_t *to = heads->data;
    store_u32(to, BATCH_VERSION);
    store_u32(to + 4, h->shift);
    store_u32(to + 8, h->count);
    store_u32(to + 12, h->bodies_size);
    store_u64(to + 16, h->at);
    store_u64(to + 24, h->before);
    store_u64(to + 32, header_sum(buffer_bytes(heads), h->at));
}

bool batch_get_header(mr_bytes heads, struct batch_header *out) {
    const uint8_t *raw = heads.data;
    if (heads.size < BATCH_HEADER || load_u32(raw) != BATCH_VERSION)
        return false;
    *out = (struct batch_header){ .shift = load_u32(raw + 4),
                                  .count = load_u32(raw + 8),
                                  .bodies_size = load_u32(raw + 12),
                                  .at = load_u64(raw + 16),
                                  .before = load_u64(raw + 24) };
    return true;
}

// Whether the frames fill the heads, and the bodies are as long as the header says.
static bool frames_fit(mr_bytes heads, const struct batch_header *h) {
    uint64_t at = BATCH_HEADER, bodies = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        if (heads.size - at < BATCH_FRAME)
            return false;
        const uint8_t *frame = (const uint8_t *)heads.data + at;
        uint32_t head_size = load_u32(frame);
        at += BATCH_FRAME;
        if (head_size > heads.size - at)
            return false;
        at += head_size;
        bodies += BATCH_ITEM + round_up_8(load_u32(frame + 4));
    }
    return at == heads.size && bodies == h->bodies_size;
}

const char *batch_check(const struct stream_batch *b, struct batch_header *out) {
    struct batch_header h;
    if (!batch_get_header(b->heads, &h))
        return "it has no header of this version";
    if (load_u64((const uint8_t *)b->heads.data + 32) != header_sum(b->heads, h.at))
        return "the checksum of its heads is wrong";
    if (h.at != b->at || h.before > h.at || h.count == 0 || !frames_fit(b->heads, &h))
        return "its header does not fit";
    if (b->end != b->at + round_up_8((uint64_t)h.bodies_size + b->heads.size))
        return "its end does not fit";
    if (b->bodies.data && b->bodies.size != h.bodies_size)
        return "its bodies are of another size";
    *out = h;
    return NULL;
}

bool batch_get_item(mr_bytes raw, uint64_t at, struct batch_item *out) {
    const uint8_t *item = raw.data;
    if (raw.size < BATCH_ITEM || load_u32(item + 12) != item_sum(item, at))
        return false;
    *out = (struct batch_item){ .body_size = load_u32(item),
                                .frame_at = load_u32(item + 4),
                                .body_sum = load_u32(item + 8) };
    return true;
}

uint64_t batch_get_head(mr_bytes raw, uint64_t at, mr_bytes *out) {
    const uint8_t *frame = raw.data;
    if (raw.size < BATCH_FRAME)
        return 0;
    uint64_t size = load_u32(frame), whole = BATCH_FRAME + size;
    if (whole > raw.size)
        return whole;
    if (load_u64(frame + 8) != head_sum(frame, frame + BATCH_FRAME, size, at))
        return 0;
    *out = (mr_bytes){ frame + BATCH_FRAME, size };
    return whole;
}

bool batch_body_fits(const struct batch_item *item, uint64_t at, mr_bytes body) {
    return body.size == item->body_size && body_sum(body, at) == item->body_sum;
}

struct batch_walk batch_walk_all(const struct stream_batch *b) {
    return (struct batch_walk){ .batch = b, .frame_at = BATCH_HEADER };
}

static void walk_body(const struct batch_walk *w, struct log_seen *seen) {
    mr_bytes bodies = w->batch->bodies;
    const uint8_t *raw = (const uint8_t *)bodies.data + w->item_at;
    struct batch_item item;
    seen->body = (mr_bytes){ raw + BATCH_ITEM, seen->body_size };
    bool valid = batch_get_item((mr_bytes){ raw, bodies.size - w->item_at }, seen->at, &item) &&
                 item.frame_at == w->frame_at;
    seen->damaged = !valid || !batch_body_fits(&item, seen->at, seen->body);
}

bool batch_walk_next(struct batch_walk *w, struct log_seen *out) {
    mr_bytes heads = w->batch->heads;
    if (w->frame_at >= heads.size)
        return false;
    const uint8_t *frame = (const uint8_t *)heads.data + w->frame_at;
    uint32_t head_size = load_u32(frame);
    *out = (struct log_seen){ .at = w->batch->at + w->item_at,
                              .head = { frame + BATCH_FRAME, head_size },
                              .body_size = load_u32(frame + 4) };
    if (w->batch->bodies.data)
        walk_body(w, out);
    w->frame_at += BATCH_FRAME + head_size;
    w->item_at += BATCH_ITEM + round_up_8(out->body_size);
    return true;
}
