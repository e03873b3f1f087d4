// See segment.h. The walk reads through a sliding window: frames are used in place, and only bytes
// after the window are read.
#include "log/segment.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static const char segment_magic[8] = "MRSEGMNT";

int disk_failed(const char *path, const char *doing, int err) {
    char text[128];
    int code = err == -ENOSPC || err == -EDQUOT ? MR_EFULL : err == -ENOMEM ? MR_ENOMEM : MR_EIO;
    return error_set(code, "%s: cannot %s: %s", path, doing, strerror_r(-err, text, sizeof text));
}

void path_make(char *out, const char *dir, const char *name) {
    snprintf(out, LOG_PATH, "%s/%s", dir, name);
}

void segment_path(char *out, const char *dir, uint64_t number, const char *suffix) {
    snprintf(out, LOG_PATH, "%s/%016" PRIx64 ".%s", dir, number, suffix);
}

bool segment_name_parse(const char *name, const char *suffix, uint64_t *out_number) {
    uint64_t number = 0;
    for (int i = 0; i < 16; i++) {
        const char *digits = "0123456789abcdef";
        const char *digit = name[i] ? strchr(digits, name[i]) : NULL;
        if (!digit)
            return false;
        number = number << 4 | (uint64_t)(digit - digits);
    }
    if (name[16] != '.' || strcmp(name + 17, suffix) != 0)
        return false;
    *out_number = number;
    return true;
}

int disk_write_all(const struct disk *d, int fd, const void *data, size_t size, uint64_t at) {
    const uint8_t *from = data;
    while (size > 0) {
        ssize_t n = d->pwrite(d, fd, from, size, at);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        from += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

int disk_rename(const struct disk *d, const char *dir, const char *from, const char *to) {
    int err = d->rename(d, from, to);
    return err < 0 || MUTANT(folder_not_synced) ? err : d->sync_dir(d, dir);
}

int64_t disk_read_all(const struct disk *d, int fd, void *to, size_t size, uint64_t at) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = d->pread(d, fd, (uint8_t *)to + done, size - done, at + done);
        if (n < 0)
            return n;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    if (done < size)
        memset((uint8_t *)to + done, 0, size - done);
    return (int64_t)done;
}

int disk_sync_above(const struct disk *d, const char *dir) {
    char above[LOG_PATH];
    snprintf(above, sizeof above, "%s", dir);
    char *slash = strrchr(above, '/');
    if (slash == above)
        slash++;
    if (slash)
        *slash = 0;
    int err = d->sync_dir(d, slash ? above : ".");
    return err < 0 ? disk_failed(dir, "sync the directory above", err) : 0;
}

bool segment_size_is_possible(uint64_t size) {
    bool is_power = (size & (size - 1)) == 0;
    return is_power && size >= SEGMENT_SIZE_MIN && size <= SEGMENT_SIZE_MAX;
}

bool segment_number_is_possible(uint64_t number, uint64_t segment_size) {
    return number < POSITION_MOST / segment_size;
}

//      0       8         12   16       24             32         40      56    64
//      │ magic │ version │ 0  │ number │ segment size │ capacity │ zeros │ sum │
int segment_header_write(const struct disk *d, int fd, const struct segment *s,
                         uint64_t segment_size) {
    uint8_t raw[SEGMENT_START] = { 0 };
    memcpy(raw, segment_magic, sizeof segment_magic);
    store_u32(raw + 8, LOG_FORMAT);
    store_u64(raw + 16, s->number);
    store_u64(raw + 24, segment_size);
    store_u64(raw + 32, s->capacity);
    store_u64(raw + 56, XXH3_64bits(raw, 56));
    return disk_write_all(d, fd, raw, sizeof raw, 0);
}

int segment_header_read(const struct disk *d, int fd, const char *path, struct segment *out,
                        uint64_t *out_segment_size) {
    uint8_t raw[SEGMENT_START];
    int64_t n = disk_read_all(d, fd, raw, sizeof raw, 0);
    if (n < 0)
        return disk_failed(path, "read", (int)n);
    if (memcmp(raw, segment_magic, sizeof segment_magic) != 0 ||
        load_u64(raw + 56) != XXH3_64bits(raw, 56) || load_u32(raw + 8) != LOG_FORMAT)
        return error_set(MR_ECORRUPT, "%s: no segment header at offset 0", path);
    uint64_t number = load_u64(raw + 16), size = load_u64(raw + 24), capacity = load_u64(raw + 32);
    if (!segment_size_is_possible(size) || !segment_number_is_possible(number, size) ||
        capacity < SEGMENT_SIZE_MIN || capacity > size || capacity % 8)
        return error_set(MR_ECORRUPT, "%s: an impossible segment header at offset 0", path);
    *out = (struct segment){ .number = number, .capacity = capacity, .fd = -1 };
    *out_segment_size = size;
    return 0;
}

uint64_t walk_limit(const struct walk *w, uint64_t capacity) {
    int64_t size = w->disk->size(w->disk, w->fd);
    if (size < 0)
        return capacity; // then reading fails and reports the error
    uint64_t whole = (uint64_t)size & ~UINT64_C(7);
    return whole < capacity ? whole : capacity;
}

static int window_grow(struct walk *w, size_t size) {
    if (size <= w->window_capacity)
        return 0;
    uint8_t *window = mem_resize(w->window, size);
    if (!window)
        return error_set(MR_ENOMEM, "no memory to read %zu bytes of the log", size);
    w->window = window;
    w->window_capacity = size;
    return 0;
}

// Loads the bytes [at, at + size) into the window, and more up to the size of a step.
static int window_load(struct walk *w, uint64_t at, size_t size) {
    size_t step = w->step ? w->step : WALK_STEP, wanted = size > step ? size : step;
    if (wanted > w->limit - at)
        wanted = (size_t)(w->limit - at);
    int err = window_grow(w, wanted);
    if (err < 0)
        return err;
    size_t kept = 0;
    if (at >= w->window_from && at < w->window_from + w->window_size) {
        kept = (size_t)(w->window_from + w->window_size - at);
        memmove(w->window, w->window + (at - w->window_from), kept);
    }
    w->window_from = at;
    w->window_size = 0;
    int64_t n = disk_read_all(w->disk, w->fd, w->window + kept, wanted - kept, at + kept);
    if (n < 0)
        return disk_failed(w->path, "read", (int)n);
    w->window_size = wanted;
    return 0;
}

// The bytes [at, at + size), which must be below the limit.
static int window_get(struct walk *w, uint64_t at, size_t size, const uint8_t **out) {
    if (at < w->window_from || at + size > w->window_from + w->window_size) {
        int err = window_load(w, at, size);
        if (err < 0)
            return err;
    }
    *out = w->window + (at - w->window_from);
    return 0;
}

static bool frame_plausible(const struct walk *w, const struct log_frame *f, uint64_t at) {
    uint64_t limit = w->room && w->room < w->limit && !(f->flags & FRAME_SEAL) ? w->room : w->limit;
    return at <= limit && frame_size(f) <= limit - at && f->unsynced <= at;
}

int walk_next(struct walk *w, struct walk_frame *out) {
    if (w->at > w->limit || w->limit - w->at < ENTRY_FRAME)
        return 0;
    struct walk_frame seen = { .at = w->at };
    int err = window_get(w, w->at, ENTRY_FRAME, &seen.raw);
    if (err < 0)
        return err;
    if (!frame_get(seen.raw, &seen.frame) || !frame_plausible(w, &seen.frame, w->at))
        return 0;
    bool whole = w->bodies && frame_is_entry(&seen.frame);
    size_t needed = ENTRY_FRAME + (size_t)seen.frame.head_size;
    err = window_get(w, w->at, needed + (whole ? seen.frame.body_size : 0), &seen.raw);
    if (err < 0)
        return err;
    if (!frame_head_fits(&seen.frame, seen.raw, w->base + w->at))
        return 0;
    bool wrong = whole && !frame_body_fits(&seen.frame, seen.raw);
    if (wrong && !w->damaged)
        return 0;
    seen.damaged = wrong || seen.frame.flags & FRAME_DAMAGED;
    w->at += frame_size(&seen.frame);
    *out = seen;
    return 1;
}

int walk_find(struct walk *w, uint64_t upto, struct walk_frame *out) {
    for (; w->at < upto && w->at < w->limit; w->at += 8) {
        int found = walk_next(w, out);
        if (found != 0)
            return found;
    }
    return 0;
}

int walk_content_end(struct walk *w, uint64_t from, uint64_t *out_end) {
    static const uint8_t zeros[4096];
    uint64_t end = from;
    for (uint64_t at = from; at < w->limit;) {
        const uint8_t *bytes;
        size_t size = (size_t)(w->limit - at < sizeof zeros ? w->limit - at : sizeof zeros);
        int err = window_get(w, at, size, &bytes);
        if (err < 0)
            return err;
        at += size;
        if (memcmp(bytes, zeros, size) == 0)
            continue;
        while (bytes[size - 1] == 0) {
            at--;
            size--;
        }
        end = at;
        at = (at + 7) & ~UINT64_C(7);
    }
    *out_end = end;
    return 0;
}

void walk_finish(struct walk *w) {
    mem_free(w->window);
    w->window = NULL;
    w->window_size = w->window_capacity = 0;
}
