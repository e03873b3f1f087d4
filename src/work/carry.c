// Files that carry emits and state from inside a command to its job's commit.
//
//     record   magic u32 · size u32 · checksum u64 · content
//     content  kind u8 · stage · key · body    each as a number and so many bytes
#include "work/carry.h"

#include "base/bytes.h"
#include "base/codec.h"
#include "base/errors.h"
#include "base/mem.h"
#include "work/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 0x7943524d, HEAD = 16, SEED = 0, NUMBERS = 32 };
enum kind { KIND_EMIT = 1, KIND_STATE };

// More than all that a commit can carry.
enum {
    FILE_MOST = BODY_MOST + STATE_MOST + EMITS_MOST * (HEAD + STAGE_NAME_MOST + KEY_MOST + NUMBERS)
};

#define PREFIX "millrace-carry-"

struct carry {
    char dir[CARRY_PATH / 2];
    int lock; // the directory itself, locked for as long as this process lives
    _Atomic uint64_t next;
};

static int fail(const char *doing, const char *path) {
    return error_set(MR_EIO, "%s cannot be %s: %s", path, doing, strerror(errno));
}

static void path_of(char out[CARRY_PATH], const char *path, const char *ending) {
    snprintf(out, CARRY_PATH, "%s%s", path, ending);
}

// ---- The directory ----------------------------------------------------------------------------

// Empties and removes a directory of which this process has the lock; closes `fd`.
static void remove_dir(const char *path, int fd) {
    DIR *dir = fdopendir(fd);
    for (struct dirent *e; dir && (e = readdir(dir));)
        unlinkat(fd, e->d_name, 0); // "." and ".." refuse
    rmdir(path);
    if (dir)
        closedir(dir);
    else
        close(fd);
}

// Whether this process now has the lock of a directory of its user; -1: it has not.
static int take_over(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    close(fd);
    return -1;
}

// Removes what workers that were killed have left. It is not fatal if that fails.
static void sweep(const char *parent) {
    DIR *dir = opendir(parent);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[CARRY_PATH];
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", parent, e->d_name);
        int fd = take_over(path);
        if (fd >= 0)
            remove_dir(path, fd);
    }
    if (dir)
        closedir(dir);
}

// Makes it and takes its lock. MR_EAGAIN: somebody swept it away before that was done.
static int make_dir(struct carry *c, const char *parent) {
    int size = snprintf(c->dir, sizeof c->dir, "%s/" PREFIX "XXXXXX", parent);
    if ((size_t)size >= sizeof c->dir)
        errno = ENAMETOOLONG;
    if ((size_t)size >= sizeof c->dir || !mkdtemp(c->dir))
        return fail("made", c->dir);
    c->lock = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->lock < 0)
        return errno == ENOENT ? MR_EAGAIN : fail("opened", c->dir);
    int locked = flock(c->lock, LOCK_EX);
    if (locked == 0 && access(c->dir, F_OK) == 0)
        return 0;
    int err = locked < 0 ? fail("locked", c->dir) : MR_EAGAIN;
    close(c->lock);
    return err;
}

int carry_create(struct carry **out) {
    const char *temporary = getenv("TMPDIR"),
               *parent = temporary && *temporary ? temporary : "/tmp";
    struct carry *c = mem_alloc(sizeof *c);
    if (!c)
        return error_set(MR_ENOMEM, "no memory for a worker's directory");
    sweep(parent);
    int err;
    do
        err = make_dir(c, parent);
    while (err == MR_EAGAIN);
    if (err < 0)
        mem_free(c);
    else
        *out = c;
    return err;
}

void carry_destroy(struct carry *c) {
    if (!c)
        return;
    remove_dir(c->dir, c->lock);
    mem_free(c);
}

// ---- A job's slot -----------------------------------------------------------------------------

static const char *slot_path(const struct carry_slot *slot) {
    return slot->variable + sizeof CARRY_VARIABLE; // and the equals sign
}

static int write_state(const char *path, mr_bytes state) {
    char name[CARRY_PATH];
    path_of(name, path, ".state");
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail("made", name);
    int err = file_write(fd, state.data, state.size);
    close(fd);
    if (err < 0)
        unlink(name);
    return err;
}

int carry_begin(struct carry *c, mr_bytes state, struct carry_slot *out) {
    struct carry_slot slot = { .has_state = state.size > 0 };
    snprintf(slot.variable, sizeof slot.variable, CARRY_VARIABLE "=%s/%" PRIu64, c->dir,
             atomic_fetch_add(&c->next, 1));
    int err = slot.has_state ? write_state(slot_path(&slot), state) : 0;
    if (err >= 0)
        *out = slot;
    return err;
}

void carry_end(const struct carry_slot *slot) {
    char name[CARRY_PATH];
    path_of(name, slot_path(slot), ".carry");
    unlink(name);
    path_of(name, slot_path(slot), ".state");
    if (slot->has_state)
        unlink(name);
}

// ---- Writing, inside the command --------------------------------------------------------------

static int append_record(const char *path, mr_bytes record) {
    char name[CARRY_PATH];
    path_of(name, path, ".carry");
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail("opened", name);
    // One write, or none that counts: a second one could fall behind somebody else's.
    ssize_t written = write(fd, record.data, record.size);
    int err = written == (ssize_t)record.size ? 0 : fail("written", name);
    close(fd);
    return err;
}

static int put_record(const char *path, enum kind kind, mr_bytes stage, mr_bytes key,
                      mr_bytes body) {
    size_t capacity = HEAD + stage.size + key.size + body.size + NUMBERS;
    uint8_t *data = mem_alloc(capacity);
    if (!data)
        return error_set(MR_ENOMEM, "no memory to write %zu bytes", capacity);
    struct writer content = { .data = data + HEAD, .capacity = capacity - HEAD };
    put_u8(&content, kind);
    put_bytes(&content, stage);
    put_bytes(&content, key);
    put_bytes(&content, body);
    struct writer head = { .data = data, .capacity = HEAD };
    put_u32(&head, MAGIC);
    put_u32(&head, (uint32_t)content.size);
    put_u64(&head, bytes_hash(bytes_of(content.data, content.size), SEED));
    int err = append_record(path, bytes_of(data, HEAD + content.size));
    mem_free(data);
    return err;
}

int carry_emit(const char *path, mr_bytes stage, mr_bytes key, mr_bytes body) {
    return put_record(path, KIND_EMIT, stage, key, body);
}

int carry_set_state(const char *path, mr_bytes state) {
    return put_record(path, KIND_STATE, (mr_bytes){ 0 }, (mr_bytes){ 0 }, state);
}

// ---- Reading ----------------------------------------------------------------------------------

static int read_all(int fd, const char *name, struct buffer *out) {
    struct stat stat;
    if (fstat(fd, &stat) < 0)
        return fail("read", name);
    if (!S_ISREG(stat.st_mode))
        return error_set(MR_ECORRUPT, "%s is no file", name);
    if (stat.st_size > FILE_MOST)
        return error_set(MR_ETOOBIG, "what the command emits is too large: %lld bytes",
                         (long long)stat.st_size);
    int err = buffer_reserve(out, (size_t)stat.st_size);
    while (err >= 0 && out->size < (size_t)stat.st_size) {
        ssize_t got = read(fd, out->data + out->size, (size_t)stat.st_size - out->size);
        if (got <= 0)
            return fail("read", name);
        out->size += (size_t)got;
    }
    return err;
}

// What the file holds; nothing if there is none.
static int read_file(const char *path, const char *ending, struct buffer *out) {
    char name[CARRY_PATH];
    path_of(name, path, ending);
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : fail("opened", name);
    struct buffer content = { 0 };
    int err = read_all(fd, name, &content);
    close(fd);
    if (err < 0)
        buffer_finish(&content);
    else
        *out = content;
    return err;
}

int carry_read_state(const char *path, struct buffer *out) {
    struct buffer state = { 0 };
    int err = read_file(path, ".state", &state);
    if (err >= 0)
        *out = state;
    return err;
}

static int give_one(const struct carry_taker *taker, mr_bytes content) {
    struct reader r = reader_of(content);
    uint8_t kind = get_u8(&r);
    mr_bytes stage = get_bytes(&r), key = get_bytes(&r), body = get_bytes(&r);
    if (!reader_done(&r) || stage.size > STAGE_NAME_MOST)
        return MR_ECORRUPT;
    if (kind == KIND_STATE)
        return taker->state(body, taker->arg);
    if (kind != KIND_EMIT)
        return MR_ECORRUPT;
    char name[STAGE_NAME_MOST + 1] = "";
    memcpy(name, stage.data, stage.size);
    return taker->emit(name, key, body, taker->arg);
}

static int give_all(const struct carry_taker *taker, mr_bytes all) {
    struct reader r = reader_of(all);
    while (r.at < r.size) {
        uint32_t magic = get_u32(&r), size = get_u32(&r);
        uint64_t sum = get_u64(&r);
        mr_bytes content = get_raw(&r, size);
        bool whole = !r.bad && magic == MAGIC && bytes_hash(content, SEED) == sum;
        int err = whole ? give_one(taker, content) : MR_ECORRUPT;
        if (err == MR_ECORRUPT)
            return error_set(err, "what the command left for its commit is not whole: something "
                                  "else wrote there, or not all of it was written");
        if (err < 0)
            return err;
    }
    return 0;
}

int carry_give(const struct carry_slot *slot, const struct carry_taker *taker) {
    struct buffer all = { 0 };
    int err = read_file(slot_path(slot), ".carry", &all);
    if (err >= 0)
        err = give_all(taker, buffer_bytes(&all));
    buffer_finish(&all);
    return err;
}

static int emit_on_job(const char *stage, mr_bytes key, mr_bytes body, void *job) {
    mr_push_options o = { .key = key };
    return mr_job_emit(job, stage, body, &o);
}

static int state_on_job(mr_bytes state, void *job) {
    return mr_job_set_state(job, state);
}

int carry_collect(const struct carry_slot *slot, mr_job *job) {
    struct carry_taker taker = { emit_on_job, state_on_job, job };
    return carry_give(slot, &taker);
}
