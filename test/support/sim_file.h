// A file of the simulated disk: two contents, live and durable, which may differ in a dirty range.
#ifndef TEST_SUPPORT_SIM_FILE_H
#define TEST_SUPPORT_SIM_FILE_H

#include "sim_disk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct file {
    uint8_t *live, *durable; // both of `capacity` bytes
    uint64_t live_size, durable_size, capacity;
    uint64_t dirty_from, dirty_upto;
    int uses;   // names, live or durable or in operations, and descriptors
    int locker; // descriptor + 1
    bool directory;
};

static inline void *checked(void *block) {
    assert(block);
    return block;
}

static inline struct file *file_use(struct file *f) {
    if (f)
        f->uses++;
    return f;
}

static inline void file_drop(struct file *f) {
    if (!f || --f->uses > 0)
        return;
    free(f->live);
    free(f->durable);
    free(f);
}

static inline void file_grow(struct file *f, uint64_t size) {
    if (size <= f->capacity)
        return;
    uint64_t capacity = f->capacity ? f->capacity : 4096;
    while (capacity < size)
        capacity *= 2;
    f->live = checked(realloc(f->live, capacity));
    f->durable = checked(realloc(f->durable, capacity));
    memset(f->live + f->capacity, 0, capacity - f->capacity);
    memset(f->durable + f->capacity, 0, capacity - f->capacity);
    f->capacity = capacity;
}

static inline void file_dirty(struct file *f, uint64_t from, uint64_t upto) {
    if (f->dirty_from == f->dirty_upto) {
        f->dirty_from = from;
        f->dirty_upto = upto;
        return;
    }
    f->dirty_from = from < f->dirty_from ? from : f->dirty_from;
    f->dirty_upto = upto > f->dirty_upto ? upto : f->dirty_upto;
}

static inline void file_settle(struct file *f) {
    if (f->dirty_upto > f->dirty_from)
        memcpy(f->durable + f->dirty_from, f->live + f->dirty_from, f->dirty_upto - f->dirty_from);
    f->dirty_from = f->dirty_upto = 0;
    f->durable_size = f->live_size;
}

// Makes a part durable that was written and synced in one call.
static inline void file_settle_part(struct file *f, uint64_t from, uint64_t upto) {
    memcpy(f->durable + from, f->live + from, upto - from);
    if (f->durable_size < upto)
        f->durable_size = upto;
    if (f->dirty_from >= from && f->dirty_upto <= upto)
        f->dirty_from = f->dirty_upto = 0;
}

static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline bool survives(enum sim_survival how, uint64_t *state) {
    switch (how) {
    case SIM_DROP:
        return false;
    case SIM_KEEP:
        return true;
    case SIM_SECTORS:
    case SIM_ANY:
    case SIM_SURVIVALS:
        break;
    }
    return random_next(state) & 1;
}

// What survives of a file becomes both its contents.
static inline void file_restart(struct file *f, enum sim_survival how, uint64_t *state) {
    if (f->live_size != f->durable_size && survives(how, state))
        f->durable_size = f->live_size;
    uint64_t at = f->dirty_from / SIM_SECTOR * SIM_SECTOR;
    for (; at < f->dirty_upto; at += SIM_SECTOR) {
        uint64_t size = f->capacity - at < SIM_SECTOR ? f->capacity - at : SIM_SECTOR;
        if (survives(how, state))
            memcpy(f->durable + at, f->live + at, size);
    }
    if (f->capacity)
        memset(f->durable + f->durable_size, 0, f->capacity - f->durable_size);
    if (f->capacity)
        memcpy(f->live, f->durable, f->capacity);
    f->live_size = f->durable_size;
    f->dirty_from = f->dirty_upto = 0;
    f->locker = 0;
}

#endif
