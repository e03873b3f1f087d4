// See journal.h.
#include "cli/journal.h"

#include "base/codec.h"
#include "base/errors.h"
#include "base/mem.h"
#include "log/disk.h"
#include "work/spool.h"

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

static int journal_failed(const char *path, const char *doing) {
    return error_set(MR_EIO, "cannot %s %s: %s", doing, path, strerror(errno));
}

// ---- Identity ---------------------------------------------------------------------------------

// A value takes one line, whatever bytes it has.
int identity_add(struct buffer *identity, const char *name, const char *value) {
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
        return journal_failed(path, "open");
    int err = buffer_reserve(out, IDENTITY_MOST);
    ssize_t got = err < 0 ? 0 : read(fd, out->data, IDENTITY_MOST);
    if (got < 0)
        err = journal_failed(path, "read");
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
    int err = fd < 0 || fsync(fd) < 0 ? journal_failed(dir, "sync") : 0;
    if (fd >= 0)
        close(fd);
    return err;
}

// After a crash the file is there as a whole, or as it was before.
static int write_whole(const struct journal *j, const char *path, const char *new_name,
                       mr_bytes bytes) {
    char new[PATH_MAX];
    path_of(new, j, new_name);
    int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, DISK_FILE_MODE);
    if (fd < 0)
        return journal_failed(new, "make");
    int err = file_write(fd, bytes.data, bytes.size);
    if (err < 0 || fsync(fd) < 0)
        err = journal_failed(new, "write");
    if (close(fd) < 0 && err >= 0)
        err = journal_failed(new, "write");
    if (err >= 0 && rename(new, path) < 0)
        err = journal_failed(path, "make");
    return err < 0 ? err : sync_dir(j->dir);
}

// ---- The directory ----------------------------------------------------------------------------

// Removes a directory and the files in it.
static int remove_dir(const char *path) {
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? 0 : journal_failed(path, "open");
    int err = 0;
    for (struct dirent *e; err >= 0 && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(dir), e->d_name, 0) < 0)
            err = journal_failed(path, "empty");
    }
    closedir(dir);
    if (err >= 0 && rmdir(path) < 0)
        err = journal_failed(path, "remove");
    return err;
}

// `journal` goes last: without it a directory that is not empty is not recognised as a journal.
static int remove_rest(const struct journal *j) {
    static const char *const names[] = { "lines",       "printed",    "failures", "failed",
                                         "counts",      "counts.new", "round",    "round.new",
                                         "journal.new", "journal" };
    char path[PATH_MAX];
    path_of(path, j, "finished");
    int err = remove_dir(path);
    for (size_t i = 0; err >= 0 && i < sizeof names / sizeof *names; i++) {
        path_of(path, j, names[i]);
        if (unlink(path) < 0 && errno != ENOENT)
            err = journal_failed(path, "remove");
    }
    return err;
}

int journal_retire(const struct journal *j) {
    char finished[PATH_MAX];
    path_of(finished, j, "finished");
    return rename(j->store, finished) < 0 ? journal_failed(finished, "make") : 0;
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
        err = journal_failed(finished, "make");
    return err < 0 ? err : remove_rest(&j);
}

// The first entry that is not of a journal; "": there is none.
static int foreign_entry(const struct journal *j, char *out, size_t size) {
    DIR *dir = opendir(j->dir);
    if (!dir)
        return journal_failed(j->dir, "open");
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
    return write_whole(j, path, "journal.new", identity);
}

// ---- Rounds -----------------------------------------------------------------------------------

// DIR/round: the number of the round, the last line of those before it, and the numbers of their
// lines that failed.
enum { ROUND_NUMBER = 8 };

static const uint64_t *retried_numbers(const struct journal *j) {
    return (const uint64_t *)(const void *)j->retried.data;
}

static uint64_t retried_count(const struct journal *j) {
    return j->retried.size / sizeof(uint64_t);
}

static void name_epic(struct journal *j) {
    if (j->round <= 1)
        snprintf(j->epic, sizeof j->epic, "%s", JOURNAL_EPIC);
    else
        snprintf(j->epic, sizeof j->epic, "%s-%" PRIu64, JOURNAL_EPIC, j->round);
}

uint64_t journal_position(const struct journal *j, uint64_t number) {
    const uint64_t *numbers = retried_numbers(j);
    uint64_t low = 0, high = retried_count(j);
    if (number > j->ended_upto)
        return high + number - j->ended_upto;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (numbers[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < retried_count(j) && numbers[low] == number ? low + 1 : 0;
}

// The line that has this place.
static uint64_t number_at(const struct journal *j, uint64_t position) {
    uint64_t count = retried_count(j);
    return position <= count ? retried_numbers(j)[position - 1] : j->ended_upto + position - count;
}

uint64_t journal_passed(const struct journal *j) {
    return j->ended_upto - retried_count(j);
}

uint64_t journal_known(const struct journal *j) {
    uint64_t pushed = j->resume - 1;
    return pushed <= retried_count(j) ? j->ended_upto : number_at(j, pushed);
}

static int round_damaged(const char *path) {
    return error_set(MR_ECORRUPT, "%s is damaged: use another --journal directory", path);
}

static int round_decode(struct journal *j, const char *path, struct reader *r) {
    uint64_t last = 0;
    int err = 0;
    j->round = get_u64(r);
    j->ended_upto = get_u64(r);
    while (err >= 0 && !r->bad && r->at < r->size) {
        uint64_t number = get_u64(r);
        if (r->bad || number <= last || number > j->ended_upto)
            return round_damaged(path);
        err = buffer_append(&j->retried, &number, sizeof number);
        last = number;
    }
    return err >= 0 && (r->bad || j->round < 2) ? round_damaged(path) : err;
}

static int round_read(struct journal *j) {
    char path[PATH_MAX];
    struct buffer bytes = { 0 };
    struct stat st;
    path_of(path, j, "round");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : journal_failed(path, "open");
    int err = fstat(fd, &st) < 0 ? journal_failed(path, "read") : 0;
    if (err >= 0)
        err = buffer_reserve(&bytes, (size_t)st.st_size + 1);
    ssize_t got = err < 0 ? 0 : read(fd, bytes.data, (size_t)st.st_size);
    if (err >= 0 && got != (ssize_t)st.st_size)
        err = journal_failed(path, "read");
    close(fd);
    struct reader r = reader_of((mr_bytes){ bytes.data, err < 0 ? 0 : (size_t)got });
    if (err >= 0)
        err = round_decode(j, path, &r);
    buffer_finish(&bytes);
    return err;
}

static int append_u64(struct buffer *to, uint64_t number) {
    uint8_t bytes[ROUND_NUMBER];
    struct writer w = { .data = bytes, .capacity = sizeof bytes };
    put_u64(&w, number);
    return buffer_append(to, bytes, w.size);
}

// Positions are in the order in which lines were printed, so numbers ascend.
static int round_encode(const struct journal *j, uint64_t upto, struct failed_list list,
                        struct buffer *out) {
    int err = append_u64(out, j->round + 1);
    if (err >= 0)
        err = append_u64(out, upto);
    for (; list.count && err >= 0; list.count--, list.at += ROUND_NUMBER) {
        uint8_t bytes[ROUND_NUMBER];
        if (pread(list.fd, bytes, sizeof bytes, list.at) != sizeof bytes)
            return journal_failed(j->dir, "read what was printed of");
        struct reader r = reader_of((mr_bytes){ bytes, sizeof bytes });
        err = append_u64(out, number_at(j, get_u64(&r)));
    }
    return err;
}

int journal_next_round(const struct journal *j, uint64_t upto, struct failed_list list) {
    char path[PATH_MAX];
    struct buffer bytes = { 0 };
    path_of(path, j, "round");
    int err = round_encode(j, upto, list, &bytes);
    if (err >= 0)
        err = write_whole(j, path, "round.new", buffer_bytes(&bytes));
    buffer_finish(&bytes);
    return err;
}

// ---- Opening ----------------------------------------------------------------------------------

static int open_dir(struct journal *j, mr_bytes identity) {
    char path[PATH_MAX], finished[PATH_MAX], failed_list[PATH_MAX];
    struct stat st;
    path_of(failed_list, j, "failed");
    if (mkdir(j->dir, DISK_DIR_MODE) < 0 && errno != EEXIST)
        return journal_failed(j->dir, "make");
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

bool journal_exists(const char *dir) {
    char path[PATH_MAX];
    path_of(path, &(struct journal){ .dir = dir }, "journal");
    return access(path, F_OK) == 0;
}

int journal_open(struct journal *j, const char *dir, mr_bytes identity) {
    *j = (struct journal){ .dir = dir, .lines = -1, .resume = 1, .round = 1 };
    static const char scheme[] = "file:";
    size_t size = sizeof scheme - 1 + strlen(dir) + sizeof "/store";
    if (size > PATH_MAX - 32)
        return error_set(MR_EINVAL, "the journal's name is too long");
    j->url = mem_alloc(size);
    if (!j->url)
        return error_set(MR_ENOMEM, "no memory for a journal");
    snprintf(j->url, size, "%s%s/store", scheme, dir);
    j->store = j->url + sizeof scheme - 1;
    int err = open_dir(j, identity);
    if (err >= 0)
        err = round_read(j);
    name_epic(j);
    if (err < 0)
        journal_close(j);
    return err;
}

void journal_close(struct journal *j) {
    if (j->dir && j->lines >= 0)
        close(j->lines);
    mem_free(j->url);
    buffer_finish(&j->seen);
    buffer_finish(&j->retried);
    *j = (struct journal){ 0 };
}

int journal_mark(const struct journal *j) {
    char path[PATH_MAX];
    path_of(path, j, "printed");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, DISK_FILE_MODE);
    return fd < 0 ? journal_failed(path, "open") : fd;
}

// ---- Counts -----------------------------------------------------------------------------------

int journal_count(const struct journal *j, const uint64_t counts[2]) {
    char path[PATH_MAX], new[PATH_MAX];
    path_of(path, j, "counts");
    path_of(new, j, "counts.new");
    FILE *file = fopen(new, "we");
    if (!file)
        return journal_failed(new, "make");
    bool written = fprintf(file, "%" PRIu64 " %" PRIu64 "\n", counts[0], counts[1]) > 0;
    written = fclose(file) == 0 && written;
    return written && rename(new, path) == 0 ? 0 : journal_failed(path, "write");
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
        err = journal_failed(path, "write");
    if (fd >= 0)
        close(fd);
    buffer_finish(&entry);
    return err;
}

int journal_forget_failures(struct journal *j) {
    static const char *const names[] = { "failed", "failures" };
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(path, j, names[i]);
        if (unlink(path) < 0 && errno != ENOENT)
            return journal_failed(path, "remove");
    }
    j->again = false;
    return 0;
}

int journal_keep_failures(const struct journal *j) {
    char from[PATH_MAX], to[PATH_MAX];
    path_of(from, j, "failures");
    path_of(to, j, "failed");
    if (rename(from, to) < 0)
        return journal_failed(to, "make");
    return sync_dir(j->dir);
}

// ---- Lines ------------------------------------------------------------------------------------

static off_t journal_place_of(uint64_t number) {
    return (off_t)((number - 1) * HASH);
}

int journal_resume(struct journal *j, mr *engine) {
    char path[PATH_MAX];
    mr_epic_info look = { .resume = 1 };
    struct stat st;
    int err = mr_epic_look(engine, RUN_STAGE, j->epic, &look);
    if (err < 0 && err != MR_EGONE)
        return err;
    j->resume = look.resume;
    uint64_t known = journal_known(j);
    path_of(path, j, "lines");
    j->lines = open(path, O_RDWR | O_CREAT | O_CLOEXEC, DISK_FILE_MODE);
    if (j->lines < 0 || fstat(j->lines, &st) < 0)
        return journal_failed(path, "open");
    if (st.st_size < journal_place_of(known + 1))
        return error_set(MR_ECORRUPT,
                         "%s knows %" PRIu64 " lines, its store has read %" PRIu64
                         ": the journal is damaged; its store, file:%s, is not",
                         path, (uint64_t)st.st_size / HASH, known, j->store);
    // Lines beyond that were read, but never pushed: they may differ now.
    if (ftruncate(j->lines, journal_place_of(known + 1)) < 0)
        return journal_failed(path, "write");
    return 0;
}

static int read_hashes(struct journal *j) {
    buffer_clear(&j->seen);
    int err = buffer_reserve(&j->seen, HASHES_A_READ * HASH);
    if (err < 0)
        return err;
    ssize_t got =
        pread(j->lines, j->seen.data, HASHES_A_READ * HASH, journal_place_of(j->seen_upto + 1));
    if (got < HASH)
        return journal_failed(j->dir, "read the lines of");
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
        if (pwrite(j->lines, bytes, w.size, journal_place_of(number)) != (ssize_t)w.size)
            return journal_failed(j->dir, "write the lines of");
        number += n;
        hashes += n;
        count -= n;
    }
    return fdatasync(j->lines) < 0 ? journal_failed(j->dir, "sync the lines of") : 0;
}
