// An array of entries in order of appearance, and an open table of their numbers.
#include "flow/keyed.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/mem.h"
#include "flow/block.h"

enum { SMALLEST = 64, CHUNK = 1 << 14 };

struct keyed_chunk {
    struct keyed_chunk *next;
    size_t size, used;
    uint8_t data[];
};

static int keyed_no_memory(void) {
    return error_set(MR_ENOMEM, "no memory for the states of a partition");
}

// ---- Memory of copies -------------------------------------------------------------------------

static void *chunk_room(struct keyed *k, size_t size) {
    struct keyed_chunk *c = k->chunks;
    if (c && size <= c->size - c->used) {
        c->used += size;
        return c->data + c->used - size;
    }
    size_t room = size > CHUNK ? size : CHUNK;
    c = mem_resize(NULL, sizeof *c + room);
    if (!c)
        return NULL;
    *c = (struct keyed_chunk){ .next = k->chunks, .size = room, .used = size };
    k->chunks = c;
    return c->data;
}

// One is kept for the next time.
static void chunks_reset(struct keyed *k) {
    while (k->chunks && k->chunks->next) {
        struct keyed_chunk *next = k->chunks->next;
        mem_free(k->chunks);
        k->chunks = next;
    }
    if (k->chunks)
        k->chunks->used = 0;
}

// ---- The table --------------------------------------------------------------------------------

static uint32_t *slot_of(const struct keyed *k, mr_bytes key, uint64_t hash) {
    uint32_t mask = k->slot_count - 1;
    for (uint32_t i = (uint32_t)(hash >> 32) & mask;; i = (i + 1) & mask) {
        uint32_t *slot = &k->slots[i];
        const struct keyed_entry *e = *slot ? &k->entries[*slot - 1] : NULL;
        if (!e || (e->hash == hash && bytes_equal(e->key, key)))
            return slot;
    }
}

static int keyed_grow(struct keyed *k) {
    uint32_t capacity = k->capacity ? 2 * k->capacity : SMALLEST;
    struct keyed_entry *entries = mem_resize(k->entries, capacity * sizeof *entries);
    if (!entries)
        return keyed_no_memory();
    k->entries = entries;
    uint32_t *slots = mem_alloc(2 * (size_t)capacity * sizeof *slots);
    if (!slots)
        return keyed_no_memory();
    mem_free(k->slots);
    k->slots = slots;
    k->slot_count = 2 * capacity;
    k->capacity = capacity;
    for (uint32_t i = 0; i < k->count; i++)
        *slot_of(k, entries[i].key, entries[i].hash) = i + 1;
    return 0;
}

// A key that is not there yet; it keeps nothing.
static int keyed_add(struct keyed *k, mr_bytes key, uint64_t hash, struct keyed_entry **out) {
    int err = k->count == k->capacity ? keyed_grow(k) : 0;
    if (err < 0)
        return err;
    *slot_of(k, key, hash) = k->count + 1;
    *out = &k->entries[k->count++];
    **out = (struct keyed_entry){ .key = key, .hash = hash };
    return 0;
}

// ---- What others see --------------------------------------------------------------------------

int keyed_load(struct keyed *k, mr_bytes state) {
    k->count = 0;
    if (k->slots)
        memset(k->slots, 0, k->slot_count * sizeof *k->slots);
    chunks_reset(k);
    struct reader r = reader_of(state);
    for (mr_pair pair; block_next(&r, &pair);) {
        struct keyed_entry *e = NULL;
        int err = keyed_add(k, pair.key, bytes_hash(pair.key, 0), &e);
        if (err < 0)
            return err;
        e->state = pair.value;
    }
    return reader_done(&r) ? 0 : error_set(MR_ECORRUPT, "the state of a partition is damaged");
}

struct keyed_entry *keyed_at(struct keyed *k, mr_bytes key) {
    uint64_t hash = bytes_hash(key, 0);
    uint32_t number = k->slot_count ? *slot_of(k, key, hash) : 0;
    if (number)
        return &k->entries[number - 1];
    struct keyed_entry *e = NULL;
    void *copy = chunk_room(k, key.size + 1);
    if (!copy) {
        keyed_no_memory();
        return NULL;
    }
    memcpy(copy, key.size ? key.data : "", key.size);
    return keyed_add(k, (mr_bytes){ copy, key.size }, hash, &e) < 0 ? NULL : e;
}

int keyed_set(struct keyed *k, struct keyed_entry *e, mr_bytes state) {
    if (state.size > e->room) {
        size_t room = state.size + state.size / 2 + 8;
        void *at = room > UINT32_MAX ? NULL : chunk_room(k, room);
        if (!at)
            return keyed_no_memory();
        e->state.data = at;
        e->room = (uint32_t)room;
    }
    if (state.size)
        memmove((void *)e->state.data, state.data, state.size);
    e->state.size = state.size;
    return 0;
}

int keyed_save(const struct keyed *k, struct buffer *out) {
    size_t most = 0;
    for (uint32_t i = 0; i < k->count; i++)
        most += SIZES_MOST + k->entries[i].key.size + k->entries[i].state.size;
    int err = buffer_reserve(out, most);
    if (err < 0 || most == 0)
        return err;
    uint8_t *to = out->data + out->size;
    for (uint32_t i = 0; i < k->count; i++) {
        const struct keyed_entry *e = &k->entries[i];
        if (e->state.size)
            to = put_sized(put_sized(to, e->key), e->state);
    }
    out->size = (size_t)(to - out->data);
    return 0;
}

void keyed_finish(struct keyed *k) {
    chunks_reset(k);
    mem_free(k->chunks);
    mem_free(k->entries);
    mem_free(k->slots);
    *k = (struct keyed){ 0 };
}
