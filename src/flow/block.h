// Block: the body of a job of a flow: what it is, of which run, then pairs one after another.
//
//     P run  key size, key, value size, value, key size …      numbers are varints
//     F run                                                    nothing more comes: flush
//     E run                                                    forget the partition's state
//     D run  partition, listed key, reason, one pair           a dead letter; each has its size
//
// A dead letter's job has the key of its line, or none as the line, so that lists of dead jobs show
// it; hence it is not in the channel of its partition and must not run the pair. When it is first
// delivered it dies with its reason. When it was retried it emits the pair into its partition and
// is done. The two are distinguished by a deadline: it is emitted with one, and every retry removes
// it.
#ifndef FLOW_BLOCK_H
#define FLOW_BLOCK_H

#include "base/buffer.h"
#include "base/codec.h"
#include "millrace_flow.h"

enum { BLOCK_PAIRS = 'P', BLOCK_FLUSH = 'F', BLOCK_ERASE = 'E', BLOCK_DEAD = 'D' };
enum { SIZES_MOST = 20, BLOCK_HEAD = 11 }; // bytes, at most: of two sizes; before the pairs

static inline uint8_t *put_size(uint8_t *to, uint64_t size) {
    for (; size >= 0x80; size >>= 7)
        *to++ = (uint8_t)(size | 0x80);
    *to++ = (uint8_t)size;
    return to;
}

static inline uint8_t *put_sized(uint8_t *to, mr_bytes bytes) {
    to = put_size(to, bytes.size);
    if (bytes.size)
        memcpy(to, bytes.data, bytes.size);
    return to + bytes.size;
}

// How a block begins; its size.
static inline size_t block_head(uint8_t to[BLOCK_HEAD], uint8_t what, uint64_t run) {
    to[0] = what;
    return (size_t)(put_size(to + 1, run) - to);
}

// Appends a pair; an empty buffer becomes a block. MR_ENOMEM.
static inline int block_add(struct buffer *block, uint64_t run, mr_pair pair) {
    int err = buffer_reserve(block, BLOCK_HEAD + SIZES_MOST + pair.key.size + pair.value.size);
    if (err < 0)
        return err;
    if (block->size == 0)
        block->size = block_head(block->data, BLOCK_PAIRS, run);
    uint8_t *end = put_sized(block->data + block->size, pair.key);
    block->size = (size_t)(put_sized(end, pair.value) - block->data);
    return 0;
}

static inline mr_bytes block_bytes(struct reader *r) {
    size_t left = r->size - r->at;
    if (left && r->data[r->at] < 0x80 && r->data[r->at] < left) { // nearly always
        mr_bytes bytes = { r->data + r->at + 1, r->data[r->at] };
        r->at += 1 + bytes.size;
        return bytes;
    }
    return get_bytes(r);
}

// The next pair, borrowed from the block. False: there is none, or (`bad`) it is not well formed.
static inline bool block_next(struct reader *r, mr_pair *out) {
    if (r->at == r->size || r->bad)
        return false;
    out->key = block_bytes(r);
    out->value = block_bytes(r);
    return !r->bad;
}

struct letter {
    uint32_t partition; // of the head; not less than it has: none
    mr_bytes key;       // of the job; empty: it has none
    mr_bytes reason;    // a sentence; if a 0 byte follows, behind that what the work has printed
    mr_pair pair;
};

// Appends a dead letter. MR_ENOMEM.
static inline int letter_add(struct buffer *to, uint64_t run, const struct letter *l) {
    size_t bytes = l->key.size + l->reason.size + l->pair.key.size + l->pair.value.size;
    int err = buffer_reserve(to, BLOCK_HEAD + 3 * SIZES_MOST + bytes);
    if (err < 0)
        return err;
    uint8_t *end = to->data + to->size;
    end += block_head(end, BLOCK_DEAD, run);
    end = put_sized(put_sized(put_size(end, l->partition), l->key), l->reason);
    end = put_sized(put_sized(end, l->pair.key), l->pair.value);
    to->size = (size_t)(end - to->data);
    return 0;
}

// What follows the head of a dead letter, borrowed from it. False: it is not well formed.
static inline bool letter_read(struct reader *r, struct letter *out) {
    uint64_t partition = get_number(r);
    out->partition = partition < UINT32_MAX ? (uint32_t)partition : UINT32_MAX;
    out->key = get_bytes(r);
    out->reason = get_bytes(r);
    return block_next(r, &out->pair);
}

#endif
