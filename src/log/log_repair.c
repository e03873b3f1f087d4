// Repairing a store so that it opens again, with every whole group that can still be read.
//
//     damaged   [ group | group, bad body | ░░░░░░░░ | group | seal ]
//     repaired  [ group | skip ──────────────────────► group | seal ]
//
// Changes are made in place, after a copy of the segment was saved; each step may be repeated, so
// an interrupted repair is simply run again. Positions do not change.
#include "log/file.h"
#include "log/survey.h"

#include "base/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

enum { REPAIR_GAP_MOST = 1024 }; // consecutive segments that may be missing

struct repair {
    struct file_log *log;
    struct store_names names;
    struct log_repair out;
};

static void repair_note(struct repair *r, uint64_t number, struct stretch s) {
    if (r->out.places < LOG_REPAIR_PLACES) {
        r->out.place[r->out.places].segment = number;
        r->out.place[r->out.places].offset = s.from;
        r->out.place[r->out.places].size = s.upto - s.from;
    }
    r->out.places++;
    r->out.bytes += s.upto - s.from;
}

// `err` is 0 or -errno.
static int repair_result(const struct repair *r, const char *doing, int err) {
    return err < 0 ? disk_failed(r->log->dir, doing, err) : 0;
}

// ---- Saving a copy of a segment ---------------------------------------------------------------

static int copy_file(const struct disk *d, int from, int to) {
    uint8_t block[1 << 14];
    for (uint64_t at = 0;;) {
        int64_t n = disk_read_all(d, from, block, sizeof block, at);
        if (n <= 0)
            return n < 0 ? (int)n : d->sync(d, to);
        int err = disk_write_all(d, to, block, (size_t)n, at);
        if (err < 0)
            return err;
        at += (uint64_t)n;
    }
}

// Keeps a copy that an earlier, interrupted repair made: it has the original content.
static int segment_keep(struct repair *r, uint64_t number, int fd) {
    const struct disk *d = r->log->disk;
    char temporary[LOG_PATH], path[LOG_PATH];
    segment_path(path, r->log->dir, number, "seg.damaged");
    segment_path(temporary, r->log->dir, number, "seg.damaged.tmp");
    int there = d->open(d, path, O_RDONLY, 0);
    if (there >= 0)
        return d->close(d, there);
    int to = d->open(d, temporary, O_RDWR | O_CREAT | O_TRUNC, DISK_FILE_MODE);
    if (to < 0)
        return to;
    int err = copy_file(d, fd, to);
    d->close(d, to);
    return err < 0 ? err : disk_rename(d, r->log->dir, temporary, path);
}

// ---- One segment ------------------------------------------------------------------------------

static int frame_write(const struct disk *d, int fd, uint64_t base, uint64_t at, uint32_t flags,
                       uint64_t size) {
    uint8_t raw[ENTRY_FRAME];
    frame_put_mark(raw, base + at, flags, size, 0);
    return disk_write_all(d, fd, raw, sizeof raw, at);
}

static int zero_stretch(const struct disk *d, int fd, struct stretch s) {
    static const uint8_t zeros[1 << 14];
    int err = 0;
    for (uint64_t at = s.from; err == 0 && at < s.upto; at += sizeof zeros) {
        size_t size = s.upto - at < sizeof zeros ? (size_t)(s.upto - at) : sizeof zeros;
        err = disk_write_all(d, fd, zeros, size, at);
    }
    return err;
}

// Seals the readable part; in the last segment zeroes the rest instead.
static int segment_end(struct repair *r, const struct segment *s, const struct survey *v,
                       bool last) {
    const struct disk *d = r->log->disk;
    struct stretch rest = { v->good, v->content > v->good ? v->content : v->good };
    if (rest.upto > rest.from)
        repair_note(r, s->number, rest);
    int err = last ? zero_stretch(d, s->fd, rest)
                   : frame_write(d, s->fd, v->walk.base, v->good, FRAME_SEAL, ENTRY_FRAME);
    return repair_result(r, "end a damaged segment", err);
}

static int segment_skip(struct repair *r, const struct segment *s, struct stretch bad) {
    repair_note(r, s->number, bad);
    int err = frame_write(r->log->disk, s->fd, segment_base(r->log, s->number), bad.from,
                          FRAME_SKIP, bad.upto - bad.from);
    return repair_result(r, "skip a damaged stretch", err);
}

// Before the segment is changed, and durably: an index that is there is believed.
static int index_remove(struct repair *r, uint64_t number) {
    const struct disk *d = r->log->disk;
    char path[LOG_PATH];
    segment_path(path, r->log->dir, number, "idx");
    int err = d->unlink(d, path);
    if (err == 0)
        err = d->sync_dir(d, r->log->dir);
    return err == -ENOENT ? 0 : repair_result(r, "remove the index of a segment", err);
}

static int segment_rewrite(struct repair *r, const struct segment *s, bool last) {
    char path[LOG_PATH];
    struct survey v;
    struct stretch bad;
    int err = survey_begin(&v, segment_walk(r->log, s, path, SEGMENT_START));
    while (err == 0 && (err = survey_next(&v, &bad)) > 0)
        err = segment_skip(r, s, bad);
    if (err == 0 && !v.sealed)
        err = segment_end(r, s, &v, last);
    survey_finish(&v);
    return err;
}

static int segment_make_readable(struct repair *r, struct segment *s, bool last) {
    const struct disk *d = r->log->disk;
    int err = segment_keep(r, s->number, s->fd);
    if (err < 0)
        return repair_result(r, "keep a copy of a damaged segment", err);
    if ((err = index_remove(r, s->number)) < 0)
        return err;
    if (d->size(d, s->fd) < (int64_t)s->capacity)
        err = d->allocate(d, s->fd, 0, s->capacity);
    if (err == 0)
        err = segment_header_write(d, s->fd, s, UINT64_C(1) << r->log->shift);
    if (err < 0)
        return repair_result(r, "rewrite a segment header", err);
    err = segment_rewrite(r, s, last);
    if (err < 0)
        return err;
    r->out.segments++;
    return repair_result(r, "sync a repaired segment", d->sync(d, s->fd));
}

// Whether an owner would open the last segment. A torn end is allowed there.
static int last_sound(struct repair *r, struct segment *s, bool *out) {
    struct recovered found;
    int err = segment_examine(r->log, s, &found);
    *out = err == 0 && !found.damaged;
    s->seal = err == 0 && found.sealed;
    return err == MR_ECORRUPT ? 0 : err;
}

static int segment_sound(struct repair *r, struct segment *s, bool *out) {
    char path[LOG_PATH];
    struct survey v;
    struct stretch bad;
    int err = survey_begin(&v, segment_walk(r->log, s, path, SEGMENT_START));
    if (err == 0)
        err = survey_next(&v, &bad);
    *out = err == 0 && v.sealed;
    survey_finish(&v);
    return err < 0 ? err : 0;
}

// Reads the header, or reconstructs it. `out_good`: it was valid.
static int header_guess(struct repair *r, int fd, uint64_t number, struct segment *out,
                        bool *out_good) {
    uint64_t size, whole = UINT64_C(1) << r->log->shift;
    int64_t bytes = r->log->disk->size(r->log->disk, fd);
    int err = segment_header_read(r->log->disk, fd, r->log->dir, out, &size);
    if (bytes < 0)
        return repair_result(r, "look at a segment", (int)bytes);
    if (err < 0 && err != MR_ECORRUPT)
        return err;
    *out_good = err == 0 && out->number == number && size == whole;
    if (!*out_good) {
        uint64_t capacity = (uint64_t)bytes & ~UINT64_C(7);
        bool usable = capacity >= SEGMENT_SIZE_MIN && capacity <= whole;
        *out = (struct segment){ .number = number, .capacity = usable ? capacity : whole };
    }
    if ((uint64_t)bytes < out->capacity)
        *out_good = false;
    out->fd = fd;
    return 0;
}

// `out_sealed` is set for the last segment only.
static int segment_repair(struct repair *r, uint64_t number, bool last, bool *out_sealed) {
    const struct disk *d = r->log->disk;
    char path[LOG_PATH];
    segment_path(path, r->log->dir, number, "seg");
    int fd = d->open(d, path, O_RDWR, 0);
    if (fd < 0)
        return disk_failed(path, "open", fd);
    struct segment s;
    bool header = false, sound = false;
    int err = header_guess(r, fd, number, &s, &header);
    if (err == 0)
        err = last ? last_sound(r, &s, &sound) : segment_sound(r, &s, &sound);
    if (err == 0 && !(header && sound))
        err = segment_make_readable(r, &s, last);
    if (err == 0 && last && !sound)
        err = last_sound(r, &s, &sound); // to find out whether it is sealed
    *out_sealed = s.seal;
    d->close(d, fd);
    return err;
}

// Creates an empty segment in place of a missing one.
static int segment_replace(struct repair *r, uint64_t number, bool last) {
    const struct disk *d = r->log->disk;
    char temporary[LOG_PATH], path[LOG_PATH];
    uint64_t capacity = last ? UINT64_C(1) << r->log->shift : SEGMENT_SIZE_MIN;
    struct segment s = { .number = number, .capacity = capacity };
    path_make(temporary, r->log->dir, "spare-repair");
    int err = index_remove(r, number); // of the missing segment
    if (err < 0)
        return err;
    segment_path(path, r->log->dir, number, "seg");
    int fd = d->open(d, temporary, O_RDWR | O_CREAT | O_TRUNC, DISK_FILE_MODE);
    if (fd < 0)
        return disk_failed(temporary, "create", fd);
    err = d->allocate(d, fd, 0, capacity);
    if (err == 0)
        err = segment_header_write(d, fd, &s, UINT64_C(1) << r->log->shift);
    if (err == 0 && !last)
        err = frame_write(d, fd, segment_base(r->log, number), SEGMENT_START, FRAME_SEAL,
                          ENTRY_FRAME);
    if (err == 0)
        err = d->sync(d, fd);
    d->close(d, fd);
    if (err == 0)
        err = disk_rename(d, r->log->dir, temporary, path);
    r->out.missing++;
    return err < 0 ? disk_failed(path, "put an empty segment in place", err) : 0;
}

// ---- The store --------------------------------------------------------------------------------

// Finds the segment size from a readable header, or else from the largest file.
static int size_from_segments(struct repair *r) {
    const struct disk *d = r->log->disk;
    uint64_t guess = SEGMENT_SIZE_MIN;
    for (size_t i = 0; i < store_names_count(&r->names); i++) {
        char path[LOG_PATH];
        struct segment s;
        uint64_t size;
        segment_path(path, r->log->dir, store_names_at(&r->names, i), "seg");
        int fd = d->open(d, path, O_RDONLY, 0);
        if (fd < 0)
            return disk_failed(path, "open", fd);
        int err = segment_header_read(d, fd, path, &s, &size);
        int64_t bytes = d->size(d, fd);
        d->close(d, fd);
        if (err == 0) {
            r->log->store.segment_size = size;
            return 0;
        }
        while (bytes > 0 && guess < (uint64_t)bytes && guess < SEGMENT_SIZE_MAX)
            guess *= 2;
    }
    r->log->store.segment_size = guess;
    return 0;
}

// Renames segments whose numbers are impossible, or too far from the others, to NUMBER.seg.damaged.
static int segments_put_aside(struct repair *r) {
    const struct disk *d = r->log->disk;
    size_t count = store_names_count(&r->names), kept = 0;
    uint64_t *numbers = (uint64_t *)r->names.segments.data;
    for (size_t i = 0; i < count; i++) {
        uint64_t number = numbers[i];
        bool belongs = segment_number_is_possible(number, UINT64_C(1) << r->log->shift) &&
                       (!kept || number - numbers[kept - 1] <= REPAIR_GAP_MOST);
        if (belongs) {
            numbers[kept++] = number;
            continue;
        }
        char from[LOG_PATH], to[LOG_PATH];
        segment_path(from, r->log->dir, number, "seg");
        segment_path(to, r->log->dir, number, "seg.damaged");
        int err = disk_rename(d, r->log->dir, from, to);
        if (err < 0)
            return disk_failed(from, "put aside", err);
        r->out.segments++;
    }
    r->names.segments.size = kept * sizeof *numbers;
    return 0;
}

// Finds the segment size and the first segment, and writes the store file again if it was lost or
// the log begins later now.
static int store_repair(struct repair *r) {
    struct file_log *l = r->log;
    int err = store_open(l->disk, l->dir, false, &l->store, &l->store_fd);
    bool lost = err == MR_ECORRUPT || err == MR_EGONE;
    if (lost)
        err = size_from_segments(r);
    if (err < 0)
        return err;
    file_log_set_size(l, l->store.segment_size);
    if ((err = segments_put_aside(r)) < 0)
        return err;
    size_t count = store_names_count(&r->names);
    uint64_t first = l->store.first;
    for (size_t i = count; i-- > 0 && store_names_at(&r->names, i) >= l->store.first;)
        first = store_names_at(&r->names, i);
    if (!lost && first == l->store.first)
        return 0;
    if (!lost)
        r->out.missing += first - l->store.first;
    l->store.first = first;
    return store_create(l->disk, l->dir, &l->store);
}

static int segments_repair(struct repair *r) {
    size_t count = store_names_count(&r->names);
    uint64_t number = r->log->store.first;
    bool missing = true; // the segment for the next appends
    int err = 0;
    for (size_t i = 0; err == 0 && i < count; i++) {
        if (store_names_at(&r->names, i) < number)
            continue;
        for (; err == 0 && number < store_names_at(&r->names, i); number++)
            err = segment_replace(r, number, false);
        if (err == 0)
            err = segment_repair(r, number++, i == count - 1, &missing);
    }
    return err == 0 && missing ? segment_replace(r, number, true) : err;
}

static int repair_begin(struct repair *r) {
    struct file_log *l = r->log;
    int err = store_names_read(l->disk, l->dir, &r->names);
    if (err == 0 && !r->names.store && !store_names_count(&r->names))
        err = error_set(MR_EINVAL, "%s is not a Millrace store", l->dir);
    if (err == 0)
        err = store_lock(l->disk, l->dir, &l->lock_fd);
    return err < 0 ? err : store_repair(r);
}

static int repair_segments(struct repair *r, const void *arg) {
    (void)arg;
    return segments_repair(r);
}

static int repair_run(const char *dir, const struct disk *disk,
                      int (*run)(struct repair *, const void *), const void *arg,
                      struct log_repair *out) {
    struct log_options o = { .disk = disk };
    struct repair r = { .log = file_log_make(dir, &o) };
    if (!r.log)
        return error_set(MR_ENOMEM, "no memory to repair %s", dir);
    int err = repair_begin(&r);
    if (err == 0)
        err = run(&r, arg);
    store_names_finish(&r.names);
    file_log_destroy(r.log);
    if (err == 0)
        *out = r.out;
    return err;
}

int log_file_repair(const char *dir, const struct disk *disk, struct log_repair *out) {
    return repair_run(dir, disk, repair_segments, NULL, out);
}

// ---- Removing entries -------------------------------------------------------------------------

static bool is_given_up(const struct log_given_up *g, uint64_t at) {
    size_t low = 0, high = g->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (g->at[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return at >= g->from || (low < g->count && g->at[low] == at);
}

// The next group of a segment with an entry to remove. 1: there is one.
static int group_next(const struct log_given_up *g, struct walk *w, struct stretch *out) {
    struct walk_frame f;
    bool wanted = false;
    uint64_t begin = w->at;
    int found;
    while ((found = walk_next(w, &f)) > 0 && !(f.frame.flags & FRAME_SEAL)) {
        if (!frame_is_entry(&f.frame))
            continue;
        if (f.frame.flags & FRAME_FIRST) {
            begin = f.at;
            wanted = false;
        }
        wanted = wanted || is_given_up(g, w->base + f.at);
        if (wanted && f.frame.flags & FRAME_LAST) {
            *out = (struct stretch){ begin, w->at };
            return 1;
        }
    }
    return found < 0 ? found : 0;
}

static int segment_give_up(struct repair *r, struct segment *s, const struct log_given_up *g) {
    const struct disk *d = r->log->disk;
    char path[LOG_PATH];
    struct walk w = segment_walk(r->log, s, path, SEGMENT_START);
    struct stretch group;
    bool changed = false;
    int err;
    while ((err = group_next(g, &w, &group)) > 0) {
        err = changed ? 0 : segment_keep(r, s->number, s->fd);
        if (err < 0) {
            err = repair_result(r, "keep a copy of a segment", err);
            break;
        }
        if ((!changed && (err = index_remove(r, s->number)) < 0) ||
            (err = segment_skip(r, s, group)) < 0)
            break;
        changed = true;
    }
    walk_finish(&w);
    if (err < 0 || !changed)
        return err;
    r->out.segments++;
    return repair_result(r, "sync a repaired segment", d->sync(d, s->fd));
}

static int segments_give_up(struct repair *r, const void *arg) {
    const struct disk *d = r->log->disk;
    int err = 0;
    for (size_t i = 0; err == 0 && i < store_names_count(&r->names); i++) {
        uint64_t number = store_names_at(&r->names, i), size;
        char path[LOG_PATH];
        struct segment s;
        if (number < r->log->store.first)
            continue;
        segment_path(path, r->log->dir, number, "seg");
        int fd = d->open(d, path, O_RDWR, 0);
        if (fd < 0)
            return disk_failed(path, "open", fd);
        err = segment_header_read(d, fd, path, &s, &size);
        s.fd = fd;
        if (err == 0)
            err = segment_give_up(r, &s, arg);
        d->close(d, fd);
    }
    return err;
}

int log_file_give_up(const char *dir, const struct disk *disk, const struct log_given_up *which,
                     struct log_repair *out) {
    return repair_run(dir, disk, segments_give_up, which, out);
}
