// See sim_disk.h. A write is live at once and durable when its file is synced (sim_file.h); a
// change of names is live at once and waits in a list of operations for its directory to be synced.
#include "sim_disk.h"

#include "sim_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DESCRIPTORS = 1024, PATH = 256 };

struct name {
    char path[PATH];
    struct file *live, *durable; // NULL: no such name
};

// Live already; durable once the directory is synced, or a crash keeps it.
struct operation {
    int name, from;    // from: the name it was moved from, or -1
    struct file *file; // NULL: removed
};

struct descriptor {
    struct file *file;
    bool direct; // opened with O_DIRECT
};

struct sim_disk {
    struct disk disk; // first, so that the callbacks find the rest
    pthread_mutex_t lock;
    pthread_cond_t released;
    struct name *names;
    int name_count;
    struct operation *operations;
    int operation_count;
    struct descriptor descriptors[DESCRIPTORS];
    uint64_t calls, reads, directs, crash_at, fail_at, space;
    size_t write_most;
    int fail_err, broken[SIM_KINDS];
    bool crashed, held; // held: syncs wait …
    int let_go;         // … but for so many …
    int waiting;        // … and so many do
    bool cold;          // nothing is in memory
    enum sim_direct direct;
};

static struct sim_disk *sim_of(const struct disk *d) {
    return (struct sim_disk *)d;
}

// --- files and names ---

static int name_unused(const struct sim_disk *s) {
    for (int i = 0; i < s->name_count; i++) {
        bool used = s->names[i].live || s->names[i].durable;
        for (int k = 0; k < s->operation_count && !used; k++)
            used = s->operations[k].name == i || s->operations[k].from == i;
        if (!used)
            return i;
    }
    return s->name_count;
}

static int name_find(struct sim_disk *s, const char *path, bool make) {
    for (int i = 0; i < s->name_count; i++)
        if (strcmp(s->names[i].path, path) == 0)
            return i;
    if (!make)
        return -1;
    assert(strlen(path) < PATH);
    int i = name_unused(s);
    if (i == s->name_count)
        s->names = checked(realloc(s->names, (size_t)++s->name_count * sizeof *s->names));
    s->names[i] = (struct name){ 0 };
    memcpy(s->names[i].path, path, strlen(path) + 1);
    return i;
}

static struct file *name_file(struct sim_disk *s, const char *path) {
    int i = name_find(s, path, false);
    return i < 0 ? NULL : s->names[i].live;
}

static void pointer_set(struct file **at, struct file *f) {
    file_use(f);
    file_drop(*at);
    *at = f;
}

static void name_set(struct sim_disk *s, int name, int from, struct file *f) {
    size_t count = (size_t)++s->operation_count;
    s->operations = checked(realloc(s->operations, count * sizeof *s->operations));
    s->operations[count - 1] =
        (struct operation){ .name = name, .from = from, .file = file_use(f) };
    if (from >= 0)
        pointer_set(&s->names[from].live, NULL);
    pointer_set(&s->names[name].live, f);
}

static void operation_settle(struct sim_disk *s, struct operation *o) {
    if (o->from >= 0 && s->names[o->from].durable == o->file)
        pointer_set(&s->names[o->from].durable, NULL);
    pointer_set(&s->names[o->name].durable, o->file);
}

static bool path_within(const char *path, const char *dir) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strcmp(dir, ".") == 0;
    return strlen(dir) == (size_t)(slash - path) && strncmp(path, dir, strlen(dir)) == 0;
}

static void names_settle(struct sim_disk *s, const char *dir) {
    int kept = 0;
    for (int i = 0; i < s->operation_count; i++) {
        struct operation *o = &s->operations[i];
        if (!path_within(s->names[o->name].path, dir)) {
            s->operations[kept++] = *o;
            continue;
        }
        operation_settle(s, o);
        file_drop(o->file);
    }
    s->operation_count = kept;
}

// --- faults ---

// Counts a changing call. Negative: it fails and changes nothing. A call that the machine dies in
// changes what is live, and only then answers -EIO.
static int call_begin(struct sim_disk *s, enum sim_kind kind) {
    if (s->crashed)
        return -EIO;
    s->calls++;
    if (s->calls == s->fail_at)
        return -s->fail_err;
    return kind < SIM_KINDS ? -s->broken[kind] : 0;
}

static int call_end(struct sim_disk *s, int result) {
    if (s->calls == s->crash_at)
        s->crashed = true;
    return s->crashed ? -EIO : result;
}

static bool dies_now(const struct sim_disk *s) {
    return s->calls == s->crash_at;
}

static uint64_t space_used(const struct sim_disk *s) {
    uint64_t used = 0;
    for (int i = 0; i < s->name_count; i++)
        if (s->names[i].live)
            used += s->names[i].live->live_size;
    return used;
}

static bool space_lacks(const struct sim_disk *s, const struct file *f, uint64_t size) {
    return s->space && size > f->live_size && space_used(s) + size - f->live_size > s->space;
}

// --- the calls; the lock is held in all of them ---

static int descriptor_make(struct sim_disk *s, struct file *f, bool direct) {
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        if (!s->descriptors[fd].file) {
            s->descriptors[fd] = (struct descriptor){ file_use(f), direct };
            return fd;
        }
    return -EMFILE;
}

static struct file *descriptor_file(struct sim_disk *s, int fd) {
    assert(fd >= 0 && fd < DESCRIPTORS);
    return s->descriptors[fd].file;
}

static int open_new(struct sim_disk *s, const char *path, struct file **out) {
    int err = call_begin(s, SIM_KINDS);
    if (err < 0)
        return err;
    struct file *f = checked(calloc(1, sizeof *f));
    name_set(s, name_find(s, path, true), -1, f);
    *out = f;
    return call_end(s, 0);
}

static int open_existing(struct sim_disk *s, struct file *f, int flags) {
    if (!(flags & O_TRUNC) || f->live_size == 0)
        return 0;
    int err = call_begin(s, SIM_KINDS);
    if (err < 0)
        return err;
    memset(f->live, 0, f->live_size);
    file_dirty(f, 0, f->live_size);
    f->live_size = 0;
    return call_end(s, 0);
}

static int do_open(struct sim_disk *s, const char *path, int flags) {
    struct file *f = name_file(s, path);
    if (!f && !(flags & O_CREAT))
        return -ENOENT;
    if (flags & O_DIRECT && s->direct == SIM_NO_DIRECT_OPEN)
        return -EINVAL;
    int err = f ? open_existing(s, f, flags) : open_new(s, path, &f);
    return err < 0 ? err : descriptor_make(s, f, flags & O_DIRECT);
}

static bool is_aligned(const void *from, size_t size, uint64_t at) {
    return ((uintptr_t)from | size | at) % DISK_BLOCK == 0;
}

// A direct write of anything but whole blocks inside the file is a mistake of the log.
static int direct_check(struct sim_disk *s, int fd, const void *from, size_t size, uint64_t at) {
    if (!s->descriptors[fd].direct)
        return 0;
    if (s->direct == SIM_NO_DIRECT_WRITE)
        return -EINVAL;
    assert(is_aligned(from, size, at) && at + size <= s->descriptors[fd].file->live_size);
    s->directs++;
    return 0;
}

static ssize_t do_write(struct sim_disk *s, int fd, const void *from, size_t size, uint64_t at) {
    int err = direct_check(s, fd, from, size, at);
    if (err == 0)
        err = call_begin(s, SIM_WRITES);
    if (err < 0)
        return err;
    struct file *f = descriptor_file(s, fd);
    size_t most = s->write_most;
    if (s->descriptors[fd].direct && most) // whole blocks
        most = most < DISK_BLOCK ? DISK_BLOCK : most / DISK_BLOCK * DISK_BLOCK;
    if (most && size > most)
        size = most;
    if (space_lacks(s, f, at + size))
        return -ENOSPC;
    file_grow(f, at + size);
    memcpy(f->live + at, from, size);
    file_dirty(f, at, at + size);
    if (at + size > f->live_size)
        f->live_size = at + size;
    return call_end(s, 0) < 0 ? -EIO : (ssize_t)size;
}

// Only what this call writes is durable afterwards; a machine that dies in it may keep any part.
static ssize_t do_write_synced(struct sim_disk *s, int fd, const void *from, size_t size,
                               uint64_t at) {
    if (s->broken[SIM_SYNCS])
        return -s->broken[SIM_SYNCS];
    ssize_t n = do_write(s, fd, from, size, at);
    if (n > 0)
        file_settle_part(descriptor_file(s, fd), at, at + (uint64_t)n);
    return n;
}

static ssize_t do_read(struct sim_disk *s, int fd, void *to, size_t size, uint64_t at) {
    struct file *f = descriptor_file(s, fd);
    assert(!s->descriptors[fd].direct);
    s->reads++;
    if (at >= f->live_size)
        return 0;
    if (size > f->live_size - at)
        size = f->live_size - at;
    memcpy(to, f->live + at, size);
    return (ssize_t)size;
}

static int do_size(struct sim_disk *s, int fd, uint64_t size, bool shrink, enum sim_kind kind) {
    int err = call_begin(s, kind);
    if (err < 0)
        return err;
    struct file *f = descriptor_file(s, fd);
    if (space_lacks(s, f, size))
        return -ENOSPC;
    file_grow(f, size);
    if (size < f->live_size && shrink) {
        memset(f->live + size, 0, f->live_size - size);
        file_dirty(f, size, f->live_size);
    }
    if (size > f->live_size || shrink)
        f->live_size = size;
    return call_end(s, 0);
}

// As a page cache does, a sync that fails forgets what it should have written: it stays readable,
// and no later sync brings it to the disk.
static int do_sync(struct sim_disk *s, int fd) {
    struct file *f = descriptor_file(s, fd);
    int err = call_begin(s, SIM_SYNCS);
    if (err < 0) {
        f->dirty_from = f->dirty_upto = 0;
        return err;
    }
    if (!dies_now(s))
        file_settle(f);
    return call_end(s, 0);
}

static int do_rename(struct sim_disk *s, const char *from, const char *to) {
    struct file *f = name_file(s, from);
    if (!f)
        return -ENOENT;
    int err = call_begin(s, SIM_KINDS);
    if (err < 0)
        return err;
    file_use(f);
    int source = name_find(s, from, false);
    name_set(s, name_find(s, to, true), source, f);
    file_drop(f);
    return call_end(s, 0);
}

static int do_unlink(struct sim_disk *s, const char *path) {
    if (!name_file(s, path))
        return -ENOENT;
    int err = call_begin(s, SIM_KINDS);
    if (err < 0)
        return err;
    name_set(s, name_find(s, path, true), -1, NULL);
    return call_end(s, 0);
}

static int do_make_dir(struct sim_disk *s, const char *path) {
    if (name_file(s, path))
        return -EEXIST;
    struct file *f;
    int err = open_new(s, path, &f);
    if (err == 0)
        f->directory = true;
    return err;
}

static int do_sync_dir(struct sim_disk *s, const char *path) {
    int err = call_begin(s, SIM_SYNCS);
    if (err < 0)
        return err;
    if (!dies_now(s))
        names_settle(s, path);
    return call_end(s, 0);
}

static int do_lock(struct sim_disk *s, int fd) {
    struct file *f = descriptor_file(s, fd);
    if (f->locker && f->locker != fd + 1)
        return -EWOULDBLOCK;
    f->locker = fd + 1;
    return 0;
}

static int do_close(struct sim_disk *s, int fd) {
    struct file *f = descriptor_file(s, fd);
    if (f->locker == fd + 1)
        f->locker = 0;
    s->descriptors[fd].file = NULL;
    file_drop(f);
    return 0;
}

// --- struct disk: each call takes the lock; all but close fail on a dead machine ---

#define SIM_CALL(type, expression)                                                                 \
    struct sim_disk *s = sim_of(d);                                                                \
    pthread_mutex_lock(&s->lock);                                                                  \
    type result = s->crashed ? -EIO : (expression);                                                \
    pthread_mutex_unlock(&s->lock);                                                                \
    return result

// A descriptor from before a restart means nothing any more.
#define SIM_CALL_FD(type, expression) SIM_CALL(type, descriptor_file(s, fd) ? (expression) : -EBADF)

static int sim_open(const struct disk *d, const char *path, int flags, int mode) {
    (void)mode;
    SIM_CALL(int, do_open(s, path, flags));
}

static int sim_close(const struct disk *d, int fd) {
    struct sim_disk *s = sim_of(d);
    pthread_mutex_lock(&s->lock);
    int result = descriptor_file(s, fd) ? do_close(s, fd) : -EBADF;
    pthread_mutex_unlock(&s->lock);
    return result;
}

static ssize_t sim_pread(const struct disk *d, int fd, void *to, size_t size, uint64_t at) {
    SIM_CALL_FD(ssize_t, do_read(s, fd, to, size, at));
}

static ssize_t sim_pread_now(const struct disk *d, int fd, void *to, size_t size, uint64_t at) {
    SIM_CALL_FD(ssize_t, s->cold ? -EAGAIN : do_read(s, fd, to, size, at));
}

static void sim_advise(const struct disk *d, int fd, uint64_t from, uint64_t size) {
    (void)d, (void)fd, (void)from, (void)size; // it has no other speed
}

static ssize_t sim_pwrite(const struct disk *d, int fd, const void *from, size_t size,
                          uint64_t at) {
    SIM_CALL_FD(ssize_t, do_write(s, fd, from, size, at));
}

static int sim_allocate(const struct disk *d, int fd, uint64_t from, uint64_t size) {
    SIM_CALL_FD(int, do_size(s, fd, from + size, false, SIM_ALLOCATIONS));
}

static int sim_truncate(const struct disk *d, int fd, uint64_t size) {
    SIM_CALL_FD(int, do_size(s, fd, size, true, SIM_KINDS));
}

static void wait_while_held(struct sim_disk *s) {
    pthread_mutex_lock(&s->lock);
    s->waiting++;
    pthread_cond_broadcast(&s->released);
    while (s->held && !s->let_go)
        pthread_cond_wait(&s->released, &s->lock);
    s->waiting--;
    s->let_go -= s->held;
    pthread_cond_broadcast(&s->released);
    pthread_mutex_unlock(&s->lock);
}

static ssize_t sim_pwrite_synced(const struct disk *d, int fd, const void *from, size_t size,
                                 uint64_t at) {
    wait_while_held(sim_of(d));
    SIM_CALL_FD(ssize_t, do_write_synced(s, fd, from, size, at));
}

static int sim_sync(const struct disk *d, int fd) {
    wait_while_held(sim_of(d));
    SIM_CALL_FD(int, do_sync(s, fd));
}

static int64_t sim_size(const struct disk *d, int fd) {
    SIM_CALL_FD(int64_t, (int64_t)descriptor_file(s, fd)->live_size);
}

static int sim_rename(const struct disk *d, const char *from, const char *to) {
    SIM_CALL(int, do_rename(s, from, to));
}

static int sim_unlink(const struct disk *d, const char *path) {
    SIM_CALL(int, do_unlink(s, path));
}

static int sim_make_dir(const struct disk *d, const char *path) {
    SIM_CALL(int, do_make_dir(s, path));
}

static int sim_sync_dir(const struct disk *d, const char *path) {
    SIM_CALL(int, do_sync_dir(s, path));
}

static int sim_lock(const struct disk *d, int fd) {
    SIM_CALL_FD(int, do_lock(s, fd));
}

static int by_path(const void *a, const void *b) {
    return strcmp(a, b);
}

// The names are copied first: the callback may change the directory.
static int sim_list(const struct disk *d, const char *path,
                    int (*each)(void *arg, const char *name), void *arg) {
    struct sim_disk *s = sim_of(d);
    int count = 0, err = 0;
    pthread_mutex_lock(&s->lock);
    char(*names)[PATH] = checked(calloc((size_t)s->name_count + 1, sizeof *names));
    if (s->crashed || !name_file(s, path))
        err = s->crashed ? -EIO : -ENOENT;
    for (int i = 0; i < s->name_count && err == 0; i++)
        if (s->names[i].live && path_within(s->names[i].path, path))
            snprintf(names[count++], PATH, "%s", strrchr(s->names[i].path, '/') + 1);
    pthread_mutex_unlock(&s->lock);
    qsort(names, (size_t)count, sizeof *names, by_path);
    for (int i = 0; i < count && err == 0; i++)
        err = each(arg, names[i]);
    free(names);
    return err;
}

static const struct disk sim_calls = {
    .open = sim_open,
    .close = sim_close,
    .pread = sim_pread,
    .pread_now = sim_pread_now,
    .advise = sim_advise,
    .pwrite = sim_pwrite,
    .pwrite_synced = sim_pwrite_synced,
    .allocate = sim_allocate,
    .truncate = sim_truncate,
    .sync = sim_sync,
    .size = sim_size,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .make_dir = sim_make_dir,
    .sync_dir = sim_sync_dir,
    .list = sim_list,
    .lock = sim_lock,
};

// --- restarting ---

static void names_restart(struct sim_disk *s, enum sim_survival how, uint64_t *state) {
    int upto = s->operation_count;
    if (how == SIM_SECTORS)
        upto = (int)(random_next(state) % (uint64_t)(s->operation_count + 1));
    for (int i = 0; i < s->operation_count; i++) {
        struct operation *o = &s->operations[i];
        if (how == SIM_SECTORS ? i < upto : survives(how, state))
            operation_settle(s, o);
    }
    for (int i = 0; i < s->operation_count; i++)
        file_drop(s->operations[i].file);
    s->operation_count = 0;
    for (int i = 0; i < s->name_count; i++)
        pointer_set(&s->names[i].live, s->names[i].durable);
}

void sim_disk_restart(struct sim_disk *s, enum sim_survival how, uint64_t seed) {
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        if (s->descriptors[fd].file)
            do_close(s, fd);
    s->crashed = false;
    s->crash_at = s->fail_at = 0;
    if (how == SIM_KEEP)
        return;
    names_restart(s, how, &seed);
    for (int i = 0; i < s->name_count; i++)
        if (s->names[i].live)
            file_restart(s->names[i].live, how, &seed);
}

// --- control ---

struct sim_disk *sim_disk_create(void) {
    struct sim_disk *s = checked(calloc(1, sizeof *s));
    s->disk = sim_calls;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->released, NULL);
    return s;
}

void sim_disk_destroy(struct sim_disk *s) {
    sim_disk_restart(s, SIM_DROP, 0);
    for (int i = 0; i < s->name_count; i++) {
        pointer_set(&s->names[i].live, NULL);
        pointer_set(&s->names[i].durable, NULL);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->released);
    free(s->names);
    free(s->operations);
    free(s);
}

const struct disk *sim_disk_disk(struct sim_disk *s) {
    return &s->disk;
}

uint64_t sim_disk_calls(struct sim_disk *s) {
    return s->calls;
}

void sim_disk_chill(struct sim_disk *s, bool cold) {
    s->cold = cold;
}

uint64_t sim_disk_reads(struct sim_disk *s) {
    return s->reads;
}

uint64_t sim_disk_directs(struct sim_disk *s) {
    return s->directs;
}

void sim_disk_set_direct(struct sim_disk *s, enum sim_direct direct) {
    s->direct = direct;
}

void sim_disk_crash_at(struct sim_disk *s, uint64_t call) {
    s->crash_at = call;
}

void sim_disk_crash(struct sim_disk *s) {
    pthread_mutex_lock(&s->lock);
    s->crashed = true;
    pthread_mutex_unlock(&s->lock);
}

bool sim_disk_crashed(struct sim_disk *s) {
    return s->crashed;
}

void sim_disk_fail_at(struct sim_disk *s, uint64_t call, int err) {
    s->fail_at = call;
    s->fail_err = err;
}

void sim_disk_break(struct sim_disk *s, enum sim_kind kind, int err) {
    s->broken[kind] = err;
}

void sim_disk_hold_syncs(struct sim_disk *s, bool hold) {
    pthread_mutex_lock(&s->lock);
    s->held = hold;
    pthread_cond_broadcast(&s->released);
    pthread_mutex_unlock(&s->lock);
}

void sim_disk_await_sync(struct sim_disk *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->waiting)
        pthread_cond_wait(&s->released, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void sim_disk_let_sync(struct sim_disk *s) {
    pthread_mutex_lock(&s->lock);
    s->let_go++;
    pthread_cond_broadcast(&s->released);
    while (s->let_go)
        pthread_cond_wait(&s->released, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void sim_disk_shorten(struct sim_disk *s, size_t bytes) {
    s->write_most = bytes;
}

void sim_disk_space(struct sim_disk *s, uint64_t bytes) {
    s->space = bytes;
}

uint8_t *sim_disk_file(struct sim_disk *s, const char *path, uint64_t *out_size) {
    struct file *f = name_file(s, path);
    if (!f)
        return NULL;
    *out_size = f->live_size;
    return f->live;
}

void sim_disk_touch(struct sim_disk *s, const char *path) {
    struct file *f = name_file(s, path);
    file_dirty(f, 0, f->live_size);
    file_settle(f);
}

void sim_disk_remove(struct sim_disk *s, const char *path) {
    int name = name_find(s, path, false);
    assert(name >= 0);
    pointer_set(&s->names[name].live, NULL);
    pointer_set(&s->names[name].durable, NULL);
}

void sim_disk_cut(struct sim_disk *s, const char *path, uint64_t size) {
    struct file *f = name_file(s, path);
    memset(f->live + size, 0, f->live_size - size);
    file_dirty(f, size, f->live_size);
    f->live_size = size;
    file_settle(f);
}

struct sim_disk *sim_disk_copy(struct sim_disk *s) {
    struct sim_disk *copy = sim_disk_create();
    for (int i = 0; i < s->name_count; i++) {
        struct file *from = s->names[i].live;
        if (!from)
            continue;
        struct file *f = checked(calloc(1, sizeof *f));
        file_grow(f, from->live_size);
        if (from->live_size)
            memcpy(f->live, from->live, from->live_size);
        f->live_size = from->live_size;
        f->directory = from->directory;
        file_dirty(f, 0, f->live_size);
        file_settle(f);
        int name = name_find(copy, s->names[i].path, true);
        pointer_set(&copy->names[name].live, f);
        pointer_set(&copy->names[name].durable, f);
    }
    return copy;
}
