// See run_journal.h.
#include "cli/run_journal.h"

#include "base/codec.h"
#include "base/errors.h"
#include "base/mem.h"
#include "log/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HASH = 8, HASHES_A_READ = 8192, IDENTITY_MOST = 4 << 20 };

static const char way_out[] = "use the same, or another --journal directory";

static void path_of(char *out, const struct journal *j, const char *name) {
    snprintf(out, PATH_MAX, "%s/%s", j->dir, name);
}

static int failed(const char *path, const char *doing) {
    return error_set(MR_EIO, "cannot %s %s: %s", doing, path, strerror(errno));
}

// ---- Identity ---------------------------------------------------------------------------------

// One line a value, whatever bytes it has.
int journal_say(struct buffer *identity, const char *name, const char *value) {
    int err = buffer_append(identity, name, strlen(name));
    if (err >= 0)
        err = buffer_append(identity, " ", 1);
    for (const char *p = value; *p && err >= 0; p++) {
        char escaped[4];
        bool plain = *p != '\n' && *p != '\\';
        snprintf(escaped, sizeof escaped, "\\%c", *p == '\n' ? 'n' : '\\');
        err = plain ? buffer_append(identity, p, 1) : buffer_append(identity, escaped, 2);
    }
    return err < 0 ? err : buffer_append(identity, "\n", 1);
}

// The line that begins at `at`.
static mr_bytes line_at(mr_bytes text, size_t at) {
    const char *from = (const char *)text.data + at;
    const char *end = at < text.size ? memchr(from, '\n', text.size - at) : NULL;
    size_t size = end ? (size_t)(end - from) : text.size - at;
    return (mr_bytes){ from, size < 200 ? size : 200 };
}

static int refuse_identity(const struct journal *j, mr_bytes before, mr_bytes now) {
    size_t begin = 0;
    for (size_t i = 0; i < before.size && i < now.size; i++) {
        if (((const char *)before.data)[i] != ((const char *)now.data)[i])
            break;
        if (((const char *)now.data)[i] == '\n')
            begin = i + 1;
    }
    mr_bytes was = line_at(before, begin), is = line_at(now, begin);
    return error_set(
        MR_EINVAL, "%s is the journal of another run: it has '%.*s', this has '%.*s'; %s", j->dir,
        (int)was.size, (const char *)was.data, (int)is.size, (const char *)is.data, way_out);
}

static int read_identity(const char *path, struct buffer *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return failed(path, "open");
    int err = buffer_reserve(out, IDENTITY_MOST);
    ssize_t got = err < 0 ? 0 : read(fd, out->data, IDENTITY_MOST);
    if (got < 0)
        err = failed(path, "read");
    else
        out->size = (size_t)got;
    close(fd);
    return err;
}

static int compare_identity(const struct journal *j, const char *path, mr_bytes identity) {
    struct buffer before = { 0 };
    int err = read_identity(path, &before);
    if (err >= 0) {
        bool same =
            before.size == identity.size && memcmp(before.data, identity.data, identity.size) == 0;
        err = same ? 0 : refuse_identity(j, buffer_bytes(&before), identity);
    }
    buffer_finish(&before);
    return err;
}

static int sync_dir(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd < 0 || fsync(fd) < 0 ? failed(dir, "sync") : 0;
    if (fd >= 0)
        close(fd);
    return err;
}

// Whole or not at all.
static int write_identity(const struct journal *j, const char *path, mr_bytes identity) {
    char new[PATH_MAX];
    path_of(new, j, "journal.new");
    int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, DISK_FILE_MODE);
    if (fd < 0)
        return failed(new, "make");
    ssize_t written = write(fd, identity.data, identity.size);
    bool synced = written == (ssize_t)identity.size && fsync(fd) == 0;
    int err = synced ? 0 : failed(new, "write");
    if (close(fd) < 0 && err >= 0)
        err = failed(new, "write");
    if (err >= 0 && rename(new, path) < 0)
        err = failed(path, "make");
    return err < 0 ? err : sync_dir(j->dir);
}

// ---- The directory ----------------------------------------------------------------------------

// Removes a directory and the files in it.
static int remove_dir(const char *path) {
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? 0 : failed(path, "open");
    int err = 0;
    for (struct dirent *e; err >= 0 && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(dir), e->d_name, 0) < 0)
            err = failed(path, "empty");
    }
    closedir(dir);
    if (err >= 0 && rmdir(path) < 0)
        err = failed(path, "remove");
    return err;
}

// `journal` goes last: without it a directory with something in it is not known to be ours.
static int remove_rest(const struct journal *j) {
    static const char *const names[] = { "lines",  "printed",    "failures",    "failed",
                                         "counts", "counts.new", "journal.new", "journal" };
    char path[PATH_MAX];
    path_of(path, j, "finished");
    int err = remove_dir(path);
    for (size_t i = 0; err >= 0 && i < sizeof names / sizeof *names; i++) {
        path_of(path, j, names[i]);
        if (unlink(path) < 0 && errno != ENOENT)
            err = failed(path, "remove");
    }
    return err;
}

int journal_retire(const struct journal *j) {
    char finished[PATH_MAX];
    path_of(finished, j, "finished");
    return rename(j->store, finished) < 0 ? failed(finished, "make") : 0;
}

int journal_remove(const struct journal *j) {
    int err = journal_retire(j);
    return err < 0 ? err : remove_rest(j);
}

int journal_forget(const char *dir) {
    struct journal j = { .dir = dir };
    char ours[PATH_MAX], store[PATH_MAX], finished[PATH_MAX];
    struct stat st;
    path_of(ours, &j, "journal");
    path_of(store, &j, "store");
    path_of(finished, &j, "finished");
    if (stat(ours, &st) < 0)
        return 0;
    int err = remove_dir(finished);
    if (err >= 0 && rename(store, finished) < 0 && errno != ENOENT)
        err = failed(finished, "make");
    return err < 0 ? err : remove_rest(&j);
}

// What it holds that is not ours; "" nothing.
static int foreign_entry(const struct journal *j, char *out, size_t size) {
    DIR *dir = opendir(j->dir);
    if (!dir)
        return failed(j->dir, "open");
    *out = 0;
    for (struct dirent *e; !*out && (e = readdir(dir));)
        if (e->d_name[0] != '.' && strcmp(e->d_name, "journal.new") != 0)
            snprintf(out, size, "%.100s", e->d_name);
    closedir(dir);
    return 0;
}

static int begin_anew(const struct journal *j, const char *path, mr_bytes identity) {
    char other[128];
    int err = foreign_entry(j, other, sizeof other);
    if (err < 0)
        return err;
    if (*other)
        return error_set(MR_EINVAL,
                         "%s is no journal (there is '%s' in it); name a new or an empty "
                         "directory",
                         j->dir, other);
    return write_identity(j, path, identity);
}

static int open_dir(struct journal *j, mr_bytes identity) {
    char path[PATH_MAX], finished[PATH_MAX], failed_list[PATH_MAX];
    struct stat st;
    path_of(failed_list, j, "failed");
    if (mkdir(j->dir, DISK_DIR_MODE) < 0 && errno != EEXIST)
        return failed(j->dir, "make");
    path_of(finished, j, "finished");
    path_of(path, j, "journal");
    bool ours = stat(path, &st) == 0;
    bool listed = stat(failed_list, &st) == 0, stored = stat(j->store, &st) == 0;
    if (ours && (stat(finished, &st) == 0 || (listed && !stored))) {
        int err = remove_rest(j);
        if (err < 0)
            return err;
        listed = false;
    }
    j->again = listed;
    if (stat(path, &st) == 0)
        return compare_identity(j, path, identity);
    return begin_anew(j, path, identity);
}

int journal_open(struct journal *j, const char *dir, mr_bytes identity) {
    *j = (struct journal){ .dir = dir, .lines = -1, .resume = 1 };
    size_t size = strlen(dir) + sizeof "/store";
    if (size > PATH_MAX - 32)
        return error_set(MR_EINVAL, "the journal's name is too long");
    j->store = mem_alloc(size);
    if (!j->store)
        return error_set(MR_ENOMEM, "no memory for a journal");
    snprintf(j->store, size, "%s/store", dir);
    int err = open_dir(j, identity);
    if (err < 0)
        journal_close(j);
    return err;
}

void journal_close(struct journal *j) {
    if (j->dir && j->lines >= 0)
        close(j->lines);
    mem_free(j->store);
    buffer_finish(&j->seen);
    *j = (struct journal){ 0 };
}

int journal_mark(const struct journal *j) {
    char path[PATH_MAX];
    path_of(path, j, "printed");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, DISK_FILE_MODE);
    return fd < 0 ? failed(path, "open") : fd;
}

// ---- Counts -----------------------------------------------------------------------------------

int journal_count(const struct journal *j, const uint64_t counts[2]) {
    char path[PATH_MAX], new[PATH_MAX];
    path_of(path, j, "counts");
    path_of(new, j, "counts.new");
    FILE *file = fopen(new, "we");
    if (!file)
        return failed(new, "make");
    bool written = fprintf(file, "%" PRIu64 " %" PRIu64 "\n", counts[0], counts[1]) > 0;
    written = fclose(file) == 0 && written;
    return written && rename(new, path) == 0 ? 0 : failed(path, "write");
}

void journal_counted(const struct journal *j, uint64_t out_counts[2]) {
    char path[PATH_MAX];
    uint64_t counts[2];
    path_of(path, j, "counts");
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%" SCNu64 " %" SCNu64, &counts[0], &counts[1]) == 2)
        memcpy(out_counts, counts, sizeof counts);
    if (file)
        fclose(file);
}

// ---- Failures ---------------------------------------------------------------------------------

// One write: lines of several threads do not mix.
int journal_note_failure(const struct journal *j, const char *name, const char *reason,
                         mr_bytes line) {
    char path[PATH_MAX], head[1024];
    struct buffer entry = { 0 };
    path_of(path, j, "failures");
    snprintf(head, sizeof head, "%s\t%s\t", name, reason);
    for (char *tab = strpbrk(head + strlen(name) + 1, "\t\n"); tab && tab[1];
         tab = strpbrk(tab, "\t\n"))
        *tab = ' ';
    int err = buffer_append(&entry, head, strlen(head));
    if (err >= 0 && line.size)
        err = buffer_append(&entry, line.data, line.size);
    if (err >= 0 && (!line.size || ((const char *)line.data)[line.size - 1] != '\n'))
        err = buffer_append(&entry, "\n", 1);
    int fd = err < 0 ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, DISK_FILE_MODE);
    if (err >= 0 && (fd < 0 || write(fd, entry.data, entry.size) != (ssize_t)entry.size))
        err = failed(path, "write");
    if (fd >= 0)
        close(fd);
    buffer_finish(&entry);
    return err;
}

int journal_forget_failures(struct journal *j) {
    char path[PATH_MAX];
    path_of(path, j, "failed");
    if (unlink(path) < 0 && errno != ENOENT)
        return failed(path, "remove");
    j->again = false;
    return 0;
}

int journal_keep_failures(const struct journal *j, bool store) {
    char from[PATH_MAX], to[PATH_MAX], path[PATH_MAX];
    path_of(from, j, "failures");
    path_of(to, j, "failed");
    if (rename(from, to) < 0)
        return failed(to, "make");
    if (store)
        return sync_dir(j->dir);
    path_of(path, j, "finished");
    int err = journal_retire(j);
    if (err >= 0)
        err = remove_dir(path);
    path_of(path, j, "lines");
    if (err >= 0 && unlink(path) < 0)
        err = failed(path, "remove");
    path_of(path, j, "printed");
    if (err >= 0 && unlink(path) < 0)
        err = failed(path, "remove");
    return err;
}

// ---- Lines ------------------------------------------------------------------------------------

static off_t place_of(uint64_t number) {
    return (off_t)((number - 1) * HASH);
}

int journal_resume(struct journal *j, struct engine *engine) {
    char path[PATH_MAX];
    mr_epic_info look = { .resume = 1 };
    struct stat st;
    int err = engine->impl->epic(engine, mr_str(RUN_STAGE), mr_str(JOURNAL_EPIC), &look);
    if (err < 0 && err != MR_EGONE)
        return err;
    j->resume = look.resume;
    path_of(path, j, "lines");
    j->lines = open(path, O_RDWR | O_CREAT | O_CLOEXEC, DISK_FILE_MODE);
    if (j->lines < 0 || fstat(j->lines, &st) < 0)
        return failed(path, "open");
    if (st.st_size < place_of(j->resume))
        return error_set(MR_ECORRUPT,
                         "%s knows %" PRIu64 " lines, its store has read %" PRIu64
                         ": the journal is damaged; its store, file:%s, is not",
                         path, (uint64_t)st.st_size / HASH, j->resume - 1, j->store);
    // What is beyond was read, but never pushed: it may be anything.
    if (ftruncate(j->lines, place_of(j->resume)) < 0)
        return failed(path, "write");
    return 0;
}

static int read_hashes(struct journal *j) {
    buffer_clear(&j->seen);
    int err = buffer_reserve(&j->seen, HASHES_A_READ * HASH);
    if (err < 0)
        return err;
    ssize_t got = pread(j->lines, j->seen.data, HASHES_A_READ * HASH, place_of(j->seen_upto + 1));
    if (got < HASH)
        return failed(j->dir, "read the lines of");
    j->seen.size = (size_t)got;
    return 0;
}

int journal_compare(struct journal *j, const struct line *line) {
    if (line->number > j->seen_upto + j->seen.size / HASH) {
        j->seen_upto = line->number - 1;
        int err = read_hashes(j);
        if (err < 0)
            return err;
    }
    size_t at = (size_t)(line->number - j->seen_upto - 1) * HASH;
    struct reader r = reader_of((mr_bytes){ j->seen.data + at, HASH });
    if (get_u64(&r) == line->hash)
        return 0;
    return error_set(MR_EINVAL,
                     "line %" PRIu64 " differs from what this journal has read: use the "
                     "same input, or another --journal directory",
                     line->number);
}

int journal_note(struct journal *j, uint64_t number, const uint64_t *hashes, size_t count) {
    uint8_t bytes[1024 * HASH];
    while (count > 0) {
        struct writer w = { .data = bytes, .capacity = sizeof bytes };
        size_t n = 0;
        for (; n < count && n < sizeof bytes / HASH; n++)
            put_u64(&w, hashes[n]);
        if (pwrite(j->lines, bytes, w.size, place_of(number)) != (ssize_t)w.size)
            return failed(j->dir, "write the lines of");
        number += n;
        hashes += n;
        count -= n;
    }
    return fdatasync(j->lines) < 0 ? failed(j->dir, "sync the lines of") : 0;
}
