// The slots are in the mapped file; the list of free slots and the map from ids to slots are in
// memory only. Slots are reused last in, first out, so that few running jobs touch few pages.
#include "shard/running.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/map.h"
#include "base/mem.h"
#include "log/disk.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLOT_WORDS = 2, SLOT_SIZE = SLOT_WORDS * 8 };

struct running {
    int fd;
    char *path;
    uint64_t *words; // the mapped slots: id; attempt (low half) and check (high half)
    uint32_t capacity;
    uint32_t *free_slots; // numbers of the free slots, a stack
    uint32_t free_count;
    struct map slots; // from id to slot + 1
};

static uint64_t slot_word(uint64_t id, uint32_t attempt) {
    uint64_t check = number_hash(id ^ (uint64_t)attempt << 40 ^ UINT64_C(0x6d696c6c72616365));
    return check << 32 | attempt;
}

static bool slot_read(const struct running *r, uint32_t slot, uint64_t *out_id,
                      uint32_t *out_attempt) {
    uint64_t id = le64toh(r->words[slot * SLOT_WORDS]);
    uint64_t word = le64toh(r->words[slot * SLOT_WORDS + 1]);
    if (!id || slot_word(id, (uint32_t)word) != word)
        return false;
    *out_id = id;
    *out_attempt = (uint32_t)word;
    return true;
}

static void slot_write(struct running *r, uint32_t slot, uint64_t id, uint64_t word) {
    r->words[slot * SLOT_WORDS] = htole64(id);
    r->words[slot * SLOT_WORDS + 1] = htole64(word);
}

static bool slot_has_id(const void *owner, uint32_t value, const void *id) {
    const struct running *r = owner;
    return le64toh(r->words[(value - 1) * SLOT_WORDS]) == *(const uint64_t *)id;
}

static int running_failed(const struct running *r, const char *what, int why) {
    return error_set(MR_EIO, "%s: cannot %s: %s", r->path, what, strerror(why));
}

// Allocates real blocks: a write to a mapped hole on a full disk would kill the process.
static int running_map(struct running *r, uint32_t capacity) {
    size_t size = (size_t)capacity * SLOT_SIZE;
    int why = posix_fallocate(r->fd, 0, (off_t)size);
    if (why)
        return running_failed(r, "allocate", why);
    uint32_t *free_slots = mem_resize(r->free_slots, capacity * sizeof *free_slots);
    if (!free_slots)
        return error_set(MR_ENOMEM, "no memory to note %u running jobs", capacity);
    r->free_slots = free_slots;
    void *words = r->words ? mremap(r->words, (size_t)r->capacity * SLOT_SIZE, size, MREMAP_MAYMOVE)
                           : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    if (words == MAP_FAILED)
        return running_failed(r, "map", errno);
    r->words = words;
    r->capacity = capacity;
    return 0;
}

static int running_open_file(struct running *r) {
    r->fd = open(r->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, DISK_FILE_MODE);
    if (r->fd < 0)
        return running_failed(r, "open", errno);
    struct stat st;
    if (fstat(r->fd, &st) < 0)
        return running_failed(r, "look at", errno);
    if (!S_ISREG(st.st_mode))
        return error_set(MR_EIO, "%s: not a file", r->path);
    uint64_t slots = (uint64_t)st.st_size / SLOT_SIZE;
    if (slots < RUNNING_FIRST)
        slots = RUNNING_FIRST;
    return running_map(r, slots < RUNNING_MOST ? (uint32_t)slots : RUNNING_MOST);
}

int running_open(const char *dir, struct running **out) {
    struct running *r = mem_alloc(sizeof *r);
    if (!r)
        return error_set(MR_ENOMEM, "no memory to note running jobs");
    r->fd = -1;
    size_t size = strlen(dir) + sizeof "/running";
    r->path = mem_alloc(size);
    int err = r->path ? 0 : error_set(MR_ENOMEM, "no memory for a path");
    if (!err) {
        snprintf(r->path, size, "%s/running", dir);
        err = running_open_file(r);
    }
    if (err < 0) {
        running_close(r, false);
        return err;
    }
    *out = r;
    return 0;
}

void running_close(struct running *r, bool in_peace) {
    if (!r)
        return;
    if (in_peace)
        unlink(r->path);
    if (r->words)
        munmap(r->words, (size_t)r->capacity * SLOT_SIZE);
    if (r->fd >= 0)
        close(r->fd);
    map_finish(&r->slots);
    mem_free(r->free_slots);
    mem_free(r->path);
    mem_free(r);
}

int running_each_left(const struct running *r,
                      int (*each)(void *arg, uint64_t id, uint32_t attempt), void *arg) {
    for (uint32_t slot = 0; slot < r->capacity; slot++) {
        uint64_t id;
        uint32_t attempt;
        if (!slot_read(r, slot, &id, &attempt))
            continue;
        int err = each(arg, id, attempt);
        if (err < 0)
            return err;
    }
    return 0;
}

static void running_add_free(struct running *r, uint32_t from) {
    for (uint32_t slot = r->capacity; slot > from; slot--)
        r->free_slots[r->free_count++] = slot - 1;
}

void running_forget_left(struct running *r) {
    assert(!r->free_count && !map_count(&r->slots));
    memset(r->words, 0, (size_t)r->capacity * SLOT_SIZE);
    running_add_free(r, 0);
}

static bool running_has_free(struct running *r) {
    if (r->free_count)
        return true;
    uint32_t before = r->capacity;
    uint32_t after = before <= RUNNING_MOST / 2 ? before * 2 : RUNNING_MOST;
    if (after == before || running_map(r, after) < 0)
        return false;
    running_add_free(r, before);
    return true;
}

void running_begin(struct running *r, uint64_t id, uint32_t attempt) {
    if (!running_has_free(r) || map_reserve(&r->slots, 1) < 0)
        return;
    uint32_t slot = r->free_slots[--r->free_count];
    slot_write(r, slot, id, slot_word(id, attempt));
    map_put(&r->slots, number_hash(id), slot + 1);
}

void running_end(struct running *r, uint64_t id) {
    uint32_t value = map_find(&r->slots, number_hash(id), slot_has_id, r, &id);
    if (!value)
        return;
    map_remove(&r->slots, number_hash(id), value);
    slot_write(r, value - 1, 0, 0);
    r->free_slots[r->free_count++] = value - 1;
}
