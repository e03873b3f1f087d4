// Writing and reading side files, and the directory that they lie in.
//
//     record   magic u32 · size u32 · checksum u64 · content
//     content  kind u8 · stage · key · body · META    each as a number and so many bytes
//
// A progress is one record of its own, written over the one before: done u64 · total u64 · text.
#include "work/side_file.h"

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
enum { PROGRESS_TEXT_MOST = PROGRESS_MOST + 4 }; // the engine cuts it between two characters
enum { PROGRESS_RECORD = HEAD + 2 * 8 + NUMBERS + PROGRESS_TEXT_MOST };
enum kind { KIND_EMIT = 1, KIND_STATE, KIND_SNOOZE, KIND_EMIT_KEEPS_META };

// More than a commit can contain.
enum {
    FILE_MOST = BODY_MOST + STATE_MOST +
                EMITS_MOST * (HEAD + STAGE_NAME_MOST + KEY_MOST + META_MOST + NUMBERS)
};

#define PREFIX "millrace-side-"

struct side_dir {
    char dir[SIDE_FILE_PATH / 2];
    int lock; // the directory itself, locked for as long as this process lives
    _Atomic uint64_t next;
};

static int side_fail(const char *doing, const char *path) {
    return error_set(MR_EIO, "%s cannot be %s: %s", path, doing, strerror(errno));
}

static void side_path(char out[SIDE_FILE_PATH], const char *path, const char *ending) {
    snprintf(out, SIDE_FILE_PATH, "%s%s", path, ending);
}

// ---- The directory ----------------------------------------------------------------------------

// Empties and removes a directory of which this process has the lock; closes `fd`.
static void side_dir_remove(const char *path, int fd) {
    DIR *dir = fdopendir(fd);
    for (struct dirent *e; dir && (e = readdir(dir));)
        unlinkat(fd, e->d_name, 0); // "." and ".." refuse
    rmdir(path);
    if (dir)
        closedir(dir);
    else
        close(fd);
}

// Locks a directory of this user and returns its descriptor; -1: another process has the lock.
static int side_dir_lock(const char *path) {
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
static void side_dir_sweep(const char *parent) {
    DIR *dir = opendir(parent);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[SIDE_FILE_PATH];
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", parent, e->d_name);
        int fd = side_dir_lock(path);
        if (fd >= 0)
            side_dir_remove(path, fd);
    }
    if (dir)
        closedir(dir);
}

// Makes the directory and locks it. MR_EAGAIN: another worker removed it before it was locked.
static int side_dir_make(struct side_dir *c, const char *parent) {
    int size = snprintf(c->dir, sizeof c->dir, "%s/" PREFIX "XXXXXX", parent);
    if ((size_t)size >= sizeof c->dir)
        errno = ENAMETOOLONG;
    if ((size_t)size >= sizeof c->dir || !mkdtemp(c->dir))
        return side_fail("made", c->dir);
    c->lock = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->lock < 0)
        return errno == ENOENT ? MR_EAGAIN : side_fail("opened", c->dir);
    int locked = flock(c->lock, LOCK_EX);
    if (locked == 0 && access(c->dir, F_OK) == 0)
        return 0;
    int err = locked < 0 ? side_fail("locked", c->dir) : MR_EAGAIN;
    close(c->lock);
    return err;
}

int side_dir_create(struct side_dir **out) {
    const char *temporary = getenv("TMPDIR"),
               *parent = temporary && *temporary ? temporary : "/tmp";
    struct side_dir *c = mem_alloc(sizeof *c);
    if (!c)
        return error_set(MR_ENOMEM, "no memory for a worker's directory");
    side_dir_sweep(parent);
    int err;
    do
        err = side_dir_make(c, parent);
    while (err == MR_EAGAIN);
    if (err < 0)
        mem_free(c);
    else
        *out = c;
    return err;
}

void side_dir_destroy(struct side_dir *c) {
    if (!c)
        return;
    side_dir_remove(c->dir, c->lock);
    mem_free(c);
}

// ---- A job's side file ------------------------------------------------------------------------

static const char *side_file_path(const struct side_file *file) {
    return file->variable + sizeof SIDE_FILE_VARIABLE; // and the equals sign
}

static int write_state(const char *path, mr_bytes state) {
    char name[SIDE_FILE_PATH];
    side_path(name, path, ".state");
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return side_fail("made", name);
    int err = file_write(fd, state.data, state.size);
    close(fd);
    if (err < 0)
        unlink(name);
    return err;
}

int side_file_begin(struct side_dir *c, mr_bytes state, struct side_file *out) {
    struct side_file file = { .has_state = state.size > 0 };
    snprintf(file.variable, sizeof file.variable, SIDE_FILE_VARIABLE "=%s/%" PRIu64, c->dir,
             atomic_fetch_add(&c->next, 1));
    int err = file.has_state ? write_state(side_file_path(&file), state) : 0;
    if (err >= 0)
        *out = file;
    return err;
}

void side_file_end(const struct side_file *file) {
    char name[SIDE_FILE_PATH];
    side_path(name, side_file_path(file), ".side");
    bool has_left = unlink(name) == 0;
    side_path(name, side_file_path(file), ".progress");
    if (has_left)
        unlink(name);
    side_path(name, side_file_path(file), ".state");
    if (file->has_state)
        unlink(name);
}

// ---- Writing, inside the command --------------------------------------------------------------

// One write only: a second one could land behind a record of another process.
static int write_record(const char *path, const char *ending, int append, mr_bytes record) {
    char name[SIDE_FILE_PATH];
    side_path(name, path, ending);
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | append, 0600);
    if (fd < 0)
        return side_fail("opened", name);
    ssize_t written = write(fd, record.data, record.size);
    int err = written == (ssize_t)record.size ? 0 : side_fail("written", name);
    close(fd);
    return err;
}

static void put_head(uint8_t *to, mr_bytes content) {
    struct writer head = { .data = to, .capacity = HEAD };
    put_u32(&head, MAGIC);
    put_u32(&head, (uint32_t)content.size);
    put_u64(&head, bytes_hash(content, SEED));
}

static int put_record(const char *path, enum kind kind, const struct side_emit *e) {
    size_t capacity = HEAD + e->stage.size + e->key.size + e->body.size + e->meta.size + NUMBERS;
    uint8_t *data = mem_alloc(capacity);
    if (!data)
        return error_set(MR_ENOMEM, "no memory to write %zu bytes", capacity);
    struct writer content = { .data = data + HEAD, .capacity = capacity - HEAD };
    put_u8(&content, kind);
    put_bytes(&content, e->stage);
    put_bytes(&content, e->key);
    put_bytes(&content, e->body);
    put_bytes(&content, e->meta);
    put_head(data, bytes_of(content.data, content.size));
    int err = write_record(path, ".side", O_APPEND, bytes_of(data, HEAD + content.size));
    mem_free(data);
    return err;
}

int side_file_emit(const char *path, const struct side_emit *e) {
    return put_record(path, e->keeps_meta ? KIND_EMIT_KEEPS_META : KIND_EMIT, e);
}

int side_file_set_state(const char *path, mr_bytes state) {
    return put_record(path, KIND_STATE, &(struct side_emit){ .body = state });
}

int side_file_snooze(const char *path, int64_t ms) {
    uint8_t bytes[8];
    struct writer w = { .data = bytes, .capacity = sizeof bytes };
    put_u64(&w, (uint64_t)ms);
    return put_record(path, KIND_SNOOZE,
                      &(struct side_emit){ .body = bytes_of(bytes, sizeof bytes) });
}

int side_file_progress(const char *path, const struct job_progress *p) {
    uint8_t data[PROGRESS_RECORD];
    struct writer content = { .data = data + HEAD, .capacity = sizeof data - HEAD };
    mr_bytes text = p->text;
    if (text.size > PROGRESS_TEXT_MOST)
        text.size = PROGRESS_TEXT_MOST;
    put_u64(&content, p->done);
    put_u64(&content, p->total);
    put_bytes(&content, text);
    put_head(data, bytes_of(content.data, content.size));
    int err = write_record(path, ".side", O_APPEND, (mr_bytes){ "", 0 });
    return err < 0 ? err : write_record(path, ".progress", 0, bytes_of(data, HEAD + content.size));
}

// ---- Reading ----------------------------------------------------------------------------------

static int side_read_all(int fd, const char *name, struct buffer *out) {
    struct stat stat;
    if (fstat(fd, &stat) < 0)
        return side_fail("read", name);
    if (!S_ISREG(stat.st_mode))
        return error_set(MR_ECORRUPT, "%s is no file", name);
    if (stat.st_size > FILE_MOST)
        return error_set(MR_ETOOBIG, "what the command emits is too large: %lld bytes",
                         (long long)stat.st_size);
    int err = buffer_reserve(out, (size_t)stat.st_size);
    while (err >= 0 && out->size < (size_t)stat.st_size) {
        ssize_t got = read(fd, out->data + out->size, (size_t)stat.st_size - out->size);
        if (got <= 0)
            return side_fail("read", name);
        out->size += (size_t)got;
    }
    return err;
}

// Reads the whole file; an absent one is empty.
static int side_read_file(const char *path, const char *ending, struct buffer *out) {
    char name[SIDE_FILE_PATH];
    side_path(name, path, ending);
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : side_fail("opened", name);
    struct buffer content = { 0 };
    int err = side_read_all(fd, name, &content);
    close(fd);
    if (err < 0)
        buffer_finish(&content);
    else
        *out = content;
    return err;
}

int side_file_read_state(const char *path, struct buffer *out) {
    struct buffer state = { 0 };
    int err = side_read_file(path, ".state", &state);
    if (err >= 0)
        *out = state;
    return err;
}

static int read_snooze(const struct side_file_reader *reader, mr_bytes body) {
    struct reader r = reader_of(body);
    uint64_t ms = get_u64(&r);
    if (!reader_done(&r) || !ms || ms > TIME_MOST_MS)
        return MR_ECORRUPT;
    if (!reader->snooze)
        return error_set(MR_EINVAL, "millrace snooze is only for commands of millrace work");
    return reader->snooze((int64_t)ms, reader->arg);
}

static int read_record(const struct side_file_reader *reader, mr_bytes content) {
    struct reader r = reader_of(content);
    uint8_t kind = get_u8(&r);
    struct side_emit e = { .stage = get_bytes(&r), .keeps_meta = kind == KIND_EMIT_KEEPS_META };
    e.key = get_bytes(&r);
    e.body = get_bytes(&r);
    e.meta = get_bytes(&r);
    if (!reader_done(&r) || e.stage.size > STAGE_NAME_MOST)
        return MR_ECORRUPT;
    if (kind == KIND_STATE)
        return reader->state(e.body, reader->arg);
    if (kind == KIND_SNOOZE)
        return read_snooze(reader, e.body);
    if (kind != KIND_EMIT && !e.keeps_meta)
        return MR_ECORRUPT;
    char name[STAGE_NAME_MOST + 1] = "";
    memcpy(name, e.stage.data, e.stage.size);
    return reader->emit(name, &e, reader->arg);
}

// False: what comes is not a whole record.
static bool get_record(struct reader *r, mr_bytes *out_content, uint64_t *out_sum) {
    uint32_t magic = get_u32(r), size = get_u32(r);
    *out_sum = get_u64(r);
    *out_content = get_raw(r, size);
    return !r->bad && magic == MAGIC && bytes_hash(*out_content, SEED) == *out_sum;
}

static int read_records(const struct side_file_reader *reader, mr_bytes all) {
    struct reader r = reader_of(all);
    while (r.at < r.size) {
        mr_bytes content;
        uint64_t sum;
        int err = get_record(&r, &content, &sum) ? read_record(reader, content) : MR_ECORRUPT;
        if (err == MR_ECORRUPT)
            return error_set(err, "what the command left for its commit is not whole: something "
                                  "else wrote there, or not all of it was written");
        if (err < 0)
            return err;
    }
    return 0;
}

int side_file_read(const struct side_file *file, const struct side_file_reader *reader) {
    struct buffer all = { 0 };
    int err = side_read_file(side_file_path(file), ".side", &all);
    if (err >= 0)
        err = read_records(reader, buffer_bytes(&all));
    buffer_finish(&all);
    return err;
}

struct side_file_target {
    mr_job *job;
    int64_t snooze_ms;
};

static int emit_on_job(const char *stage, const struct side_emit *e, void *arg) {
    struct side_file_target *to = arg;
    mr_push_options o = { .key = e->key, .meta = e->keeps_meta ? mr_job_meta(to->job) : e->meta };
    return mr_job_emit(to->job, stage, e->body, &o);
}

static int state_on_job(mr_bytes state, void *arg) {
    struct side_file_target *to = arg;
    return mr_job_set_state(to->job, state);
}

static int snooze_job(int64_t ms, void *arg) {
    struct side_file_target *to = arg;
    to->snooze_ms = ms; // the last one counts
    return 0;
}

int side_file_apply(const struct side_file *file, mr_job *job, int64_t *out_snooze_ms) {
    struct side_file_target to = { .job = job };
    struct side_file_reader reader = { emit_on_job, state_on_job, snooze_job, &to };
    int err = side_file_read(file, &reader);
    if (err >= 0)
        *out_snooze_ms = to.snooze_ms;
    return err;
}

// ---- Progress ---------------------------------------------------------------------------------

// How many bytes the file has, up to the room for a record; 0: there is none.
static size_t progress_read(const struct side_file *file, uint8_t out[PROGRESS_RECORD]) {
    char name[SIDE_FILE_PATH];
    side_path(name, side_file_path(file), ".progress");
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, out, PROGRESS_RECORD);
    close(fd);
    return got > 0 ? (size_t)got : 0;
}

void side_file_look(struct side_file *file, const mr_job *job) {
    uint8_t data[PROGRESS_RECORD];
    mr_bytes content;
    uint64_t sum;
    struct reader r = reader_of(bytes_of(data, progress_read(file, data)));
    if (r.at == r.size || !get_record(&r, &content, &sum) || sum == file->shown)
        return;
    r = reader_of(content);
    struct job_progress p = { .done = get_u64(&r) };
    p.total = get_u64(&r);
    p.text = get_bytes(&r);
    if (!reader_done(&r) || p.done > INT64_MAX || p.total > INT64_MAX)
        return;
    struct mr_job *shown = leased_job_itself(job);
    if (shown->puller->engine->impl->progress(shown, &p, false) >= 0)
        file->shown = sum;
}
