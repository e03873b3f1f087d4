// See store.h. A slot is one sector. Its size, the magic, the version and the place of the sum are
// fixed for all versions, so that a newer store can be distinguished from a damaged one.
#include "log/store.h"

#include "base/errors.h"
#include "log/frame.h"
#include "log/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SLOT = 512, SLOT_SUM = SLOT - 8, SLOTS = 2, HOLDER = 128 };
enum { LOCK_PAUSE_MS = 10, LOCK_MOMENT_MS = 200, LOCK_ORPHAN_MS = 10000 };

static const char store_magic[8] = "MILLRACE";

//      0       8         12  16             24              32           40     504   512
//      │ magic │ version │ 0 │ segment size │ first segment │ generation │ zeros │ sum │
static void slot_put(uint8_t *raw, const struct store *s) {
    memset(raw, 0, SLOT);
    memcpy(raw, store_magic, sizeof store_magic);
    store_u32(raw + 8, LOG_FORMAT);
    store_u64(raw + 16, s->segment_size);
    store_u64(raw + 24, s->first);
    store_u64(raw + 32, s->generation);
    store_u64(raw + SLOT_SUM, XXH3_64bits(raw, SLOT_SUM));
}

// The version of a valid slot; 0: it is not valid.
static uint32_t slot_get(const uint8_t *raw, struct store *out) {
    if (memcmp(raw, store_magic, sizeof store_magic) != 0 ||
        load_u64(raw + SLOT_SUM) != XXH3_64bits(raw, SLOT_SUM))
        return 0;
    uint32_t version = load_u32(raw + 8);
    struct store s = { .segment_size = load_u64(raw + 16),
                       .first = load_u64(raw + 24),
                       .generation = load_u64(raw + 32) };
    if (version == LOG_FORMAT && (!segment_size_is_possible(s.segment_size) ||
                                  !segment_number_is_possible(s.first, s.segment_size)))
        return 0;
    *out = s;
    return version;
}

static int slots_read(const uint8_t *raw, const char *path, struct store *out) {
    bool found = false;
    for (int i = 0; i < SLOTS; i++) {
        struct store s;
        uint32_t version = slot_get(raw + (ptrdiff_t)i * SLOT, &s);
        if (version > LOG_FORMAT)
            return error_set(MR_EINVAL,
                             "%s: the store has format %u, this Millrace knows %d: open it with "
                             "the newer Millrace that made it",
                             path, version, LOG_FORMAT);
        if (version == 0 || (found && s.generation < out->generation))
            continue;
        *out = s;
        found = true;
    }
    return found ? 0 : error_set(MR_ECORRUPT, "%s: neither slot at offset 0 is valid", path);
}

int store_write(const struct disk *d, int fd, struct store *s) {
    uint8_t raw[SLOT];
    s->generation++;
    slot_put(raw, s);
    int err = disk_write_all(d, fd, raw, sizeof raw, s->generation % SLOTS * SLOT);
    return err < 0 ? err : d->sync(d, fd);
}

int store_create(const struct disk *d, const char *dir, const struct store *s) {
    char temporary[LOG_PATH], path[LOG_PATH];
    path_make(temporary, dir, "store.tmp");
    path_make(path, dir, "store");
    int fd = d->open(d, temporary, O_RDWR | O_CREAT | O_TRUNC, DISK_FILE_MODE);
    if (fd < 0)
        return disk_failed(temporary, "create", fd);
    struct store copy = *s;
    int err = store_write(d, fd, &copy);
    if (err == 0)
        err = store_write(d, fd, &copy);
    d->close(d, fd);
    if (err == 0)
        err = disk_rename(d, dir, temporary, path);
    return err < 0 ? disk_failed(path, "write", err) : 0;
}

int store_open(const struct disk *d, const char *dir, bool read_only, struct store *out,
               int *out_fd) {
    char path[LOG_PATH];
    path_make(path, dir, "store");
    int fd = d->open(d, path, read_only ? O_RDONLY : O_RDWR, 0);
    if (fd == -ENOENT)
        return error_set(MR_EGONE, "%s: there is no store", path);
    if (fd < 0)
        return disk_failed(path, "open", fd);
    uint8_t raw[SLOTS * SLOT];
    struct store s;
    int64_t n = disk_read_all(d, fd, raw, sizeof raw, 0);
    int err = n < 0 ? disk_failed(path, "read", (int)n) : slots_read(raw, path, &s);
    if (err < 0) {
        d->close(d, fd);
        return err;
    }
    *out = s;
    *out_fd = fd;
    return 0;
}

// The content of the lock file: the process id and name of the holder.
static void lock_holder(const struct disk *d, int fd, char out[HOLDER]) {
    memset(out, 0, HOLDER);
    int64_t n = disk_read_all(d, fd, out, HOLDER - 1, 0);
    out[n > 0 ? strcspn(out, "\n") : 0] = 0;
}

static bool lock_holder_lives(const struct disk *d, int fd) {
    char holder[HOLDER];
    lock_holder(d, fd, holder);
    pid_t pid = (pid_t)strtol(holder, NULL, 10);
    return pid > 0 && (kill(pid, 0) == 0 || errno != ESRCH);
}

// If a process is killed while it starts a child, the child inherits the lock until it calls exec,
// which may take long on a busy machine. So the lock of a dead process is waited for longer than
// that of a live one.
static int lock_wait(const struct disk *d, int fd) {
    struct timespec pause = { .tv_nsec = LOCK_PAUSE_MS * 1000000L };
    int err = d->lock(d, fd);
    for (int ms = 0; err == -EWOULDBLOCK; ms += LOCK_PAUSE_MS) {
        if (ms >= (lock_holder_lives(d, fd) ? LOCK_MOMENT_MS : LOCK_ORPHAN_MS))
            return err;
        nanosleep(&pause, NULL);
        err = d->lock(d, fd);
    }
    return err;
}

static int store_lock_refused(const struct disk *d, int fd, const char *dir) {
    char holder[HOLDER];
    lock_holder(d, fd, holder);
    return error_set(MR_EBUSY, "%s is in use by process %s", dir, holder[0] ? holder : "unknown");
}

// A failure to write the holder is ignored: the lock itself is held.
static void lock_sign(const struct disk *d, int fd) {
    char text[HOLDER];
    int size =
        snprintf(text, sizeof text, "%ld (%s)\n", (long)getpid(), program_invocation_short_name);
    if (size >= (int)sizeof text)
        size = sizeof text - 1;
    if (d->truncate(d, fd, 0) == 0)
        disk_write_all(d, fd, text, (size_t)size, 0);
}

int store_lock(const struct disk *d, const char *dir, int *out_fd) {
    char path[LOG_PATH];
    path_make(path, dir, "lock");
    int fd = d->open(d, path, O_RDWR | O_CREAT, DISK_FILE_MODE);
    if (fd < 0)
        return disk_failed(path, "open", fd);
    int err = lock_wait(d, fd);
    if (err == 0) {
        lock_sign(d, fd);
        *out_fd = fd;
        return 0;
    }
    err = err == -EWOULDBLOCK ? store_lock_refused(d, fd, dir) : disk_failed(path, "lock", err);
    d->close(d, fd);
    return err;
}

static bool name_ours(const char *name) {
    static const char *const ours[] = { "lock", "store", "store.tmp", "shards.tmp" };
    uint64_t number;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(name, ours[i]) == 0)
            return true;
    return strncmp(name, "spare-", 6) == 0 || segment_name_parse(name, "idx", &number) ||
           segment_name_parse(name, "idx.tmp", &number) || segment_name_parse(name, "seg", &number);
}

static int names_add(void *arg, const char *name) {
    struct store_names *n = arg;
    uint64_t number;
    if (strcmp(name, "store") == 0)
        n->store = true;
    if (!name_ours(name) && !n->foreign[0])
        snprintf(n->foreign, sizeof n->foreign, "%s", name);
    if (segment_name_parse(name, "seg", &number) &&
        buffer_append(&n->segments, &number, sizeof number) < 0)
        return -ENOMEM;
    return 0;
}

int store_names_read(const struct disk *d, const char *dir, struct store_names *out) {
    buffer_clear(&out->segments);
    out->store = false;
    out->foreign[0] = 0;
    int err = d->list(d, dir, names_add, out);
    return err < 0 ? disk_failed(dir, "list", err) : 0;
}

void store_names_finish(struct store_names *n) {
    buffer_finish(&n->segments);
}

size_t store_names_count(const struct store_names *n) {
    return n->segments.size / sizeof(uint64_t);
}

uint64_t store_names_at(const struct store_names *n, size_t i) {
    uint64_t number;
    memcpy(&number, n->segments.data + i * sizeof number, sizeof number);
    return number;
}
