// See auth_file.h.
#include "server/auth_file.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char opening[] =
    "# Tokens of a millrace server: name, roles, stages, digest of the "
    "secret (or uid:N, gid:N), quotas.\n# millrace auth changes this file; the server reads it "
    "again on SIGHUP.\n";

enum { PATH_MOST = 4096, QUOTA_WORD = 64 };
enum { LINE_MOST = AUTH_NAME + AUTH_PATTERNS + QUOTA_KINDS * (QUOTA_WORD + 1) + 256 };

static int auth_file_fail(const char *what, const char *path) {
    return error_set(errno == ENOENT ? MR_EGONE : MR_EIO, "%s %.400s: %s", what, path,
                     strerror(errno));
}

// ---- Reading ----------------------------------------------------------------------------------

static int read_all(int fd, struct buffer *out) {
    for (;;) {
        int err = buffer_reserve(out, 4096);
        if (err < 0)
            return err;
        ssize_t got = read(fd, out->data + out->size, out->capacity - out->size);
        if (got < 0 && errno != EINTR)
            return error_set(MR_EIO, "%s", strerror(errno));
        if (got == 0)
            return 0;
        out->size += got > 0 ? (size_t)got : 0;
    }
}

// A user who can write the file could add a token.
static int check_owner(const char *path, const struct stat *s) {
    if (!(s->st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    return error_set(MR_EPERM, "%.400s can be written by users other than its owner: run chmod 600",
                     path);
}

static int file_read(const char *path, struct buffer *out, struct stat *out_stat) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return auth_file_fail("cannot read", path);
    out->limit = AUTH_FILE;
    int err =
        fstat(fd, out_stat) < 0 ? auth_file_fail("cannot read", path) : check_owner(path, out_stat);
    if (err >= 0 && (err = read_all(fd, out)) < 0)
        err = error_set(err, "cannot read %.400s: %s", path, error_text());
    close(fd);
    return err;
}

static int file_parse(const char *path, const struct buffer *text, struct auth **out) {
    uint8_t digest[DIGEST_SIZE];
    int err = digest_of(mr_str(""), digest); // fails in a build without OpenSSL
    if (err >= 0)
        err = auth_parse(buffer_bytes(text), out);
    return err < 0 ? error_set(err, "%.400s: %s", path, error_text()) : 0;
}

int auth_load(const char *path, struct auth **out) {
    struct buffer text = { 0 };
    struct stat stat;
    int err = file_read(path, &text, &stat);
    if (err >= 0)
        err = file_parse(path, &text, out);
    buffer_finish(&text);
    return err;
}

// ---- Changing ---------------------------------------------------------------------------------

static int auth_file_write_all(int fd, const struct buffer *text) {
    for (size_t at = 0; at < text->size;) {
        ssize_t wrote = write(fd, text->data + at, text->size - at);
        if (wrote < 0 && errno != EINTR)
            return -1;
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    return 0;
}

static int sync_folder(const char *path) {
    char folder[PATH_MOST];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 ? -1 : fsync(fd);
    if (fd >= 0)
        close(fd);
    return failed;
}

// Replaces the file; the new one gets the owner of the old one (NULL: there was none).
static int file_replace(const char *path, const struct buffer *text, const struct stat *owner) {
    char beside[PATH_MOST];
    if (snprintf(beside, sizeof beside, "%s.new", path) >= (int)sizeof beside)
        return error_set(MR_EINVAL, "the path of the file is too long");
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return error_set(MR_EBUSY,
                         "%.400s exists: another process changes the file; if that process was "
                         "killed, remove it",
                         beside);
    if (fd < 0)
        return auth_file_fail("cannot write", beside);
    bool given = owner && (owner->st_uid != geteuid() || owner->st_gid != getegid());
    int failed = given ? fchown(fd, owner->st_uid, owner->st_gid) : 0;
    if (!failed)
        failed = auth_file_write_all(fd, text) < 0 || fsync(fd) < 0;
    int err = failed ? auth_file_fail("cannot write", beside) : 0;
    close(fd);
    if (err >= 0 && (rename(beside, path) < 0 || sync_folder(path) < 0))
        err = auth_file_fail("cannot replace", path);
    if (err < 0)
        unlink(beside);
    return err;
}

static void to_hex(const uint8_t *from, char out[2 * DIGEST_SIZE + 1]) {
    for (size_t i = 0; i < DIGEST_SIZE; i++)
        snprintf(out + 2 * i, 3, "%02x", from[i]);
}

// "mrt_", a prefix for secret scanners, then 256 random bits.
static int make_secret(char out[AUTH_SECRET + 1]) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t random[AUTH_SECRET - 4];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return error_set(MR_EIO, "the system has no random bytes: %s", strerror(errno));
    memcpy(out, "mrt_", 4);
    for (size_t i = 0; i < sizeof random; i++)
        out[4 + i] = letters[random[i] & 63];
    out[AUTH_SECRET] = 0;
    return 0;
}

enum { PROOF_TEXT = 2 * DIGEST_SIZE + 8 };

// "sha256:…" or "uid:33".
static int proof_write(const struct auth_words *w, const char *secret, char out[PROOF_TEXT]) {
    uint8_t digest[DIGEST_SIZE];
    char hex[2 * DIGEST_SIZE + 1];
    if (w->proof != PROOF_SECRET) {
        snprintf(out, PROOF_TEXT, "%s:%" PRIu32, proof_word(w->proof), w->id);
        return 0;
    }
    int err = digest_of(mr_str(secret), digest);
    if (err < 0)
        return err;
    to_hex(digest, hex);
    snprintf(out, PROOF_TEXT, "sha256:%s", hex);
    return 0;
}

static int auth_line_append(struct buffer *text, const struct auth_words *w, const char *secret) {
    char proof[PROOF_TEXT], line[LINE_MOST];
    int err = proof_write(w, secret, proof);
    if (err < 0)
        return err;
    bool open_end = text->size && text->data[text->size - 1] != '\n';
    int size =
        snprintf(line, sizeof line, "%s%.*s %.*s %.*s %s", open_end ? "\n" : "", (int)w->name.size,
                 (const char *)w->name.data, (int)w->roles.size, (const char *)w->roles.data,
                 (int)w->patterns.size, (const char *)w->patterns.data, proof);
    for (int i = 0; i < QUOTA_KINDS; i++)
        if (w->quotas[i].size)
            size += snprintf(line + size, sizeof line - (size_t)size, " %.*s",
                             (int)w->quotas[i].size, (const char *)w->quotas[i].data);
    line[size++] = '\n';
    return buffer_append(text, line, (size_t)size);
}

static int entry_check(const struct auth_words *w) {
    struct quotas quotas = { 0 };
    uint32_t bits;
    int err = auth_check_name(w->name);
    if (err >= 0)
        err = roles_parse(w->roles, &bits);
    if (err >= 0 && w->roles.size > 64)
        err = error_set(MR_EINVAL, "a role is repeated");
    if (err >= 0)
        err = auth_check_patterns(w->patterns);
    for (int i = 0; err >= 0 && i < QUOTA_KINDS; i++) {
        if (w->quotas[i].size)
            err = auth_parse_quota(w->quotas[i], &quotas);
        if (err >= 0 && w->quotas[i].size > QUOTA_WORD)
            err = error_set(MR_EINVAL, "a quota has at most %d characters", QUOTA_WORD);
    }
    return err;
}

// Whether an entry can be added: its name, user or group has none yet.
static int check_not_taken(const char *path, const struct auth *known, const struct auth_words *w) {
    if (auth_named(known, w->name))
        return error_set(MR_EINVAL, "%.400s has a token '%.*s' already", path, (int)w->name.size,
                         (const char *)w->name.data);
    const struct auth_entry *same =
        w->proof == PROOF_SECRET ? NULL : auth_of_id(known, w->proof, w->id);
    if (same)
        return error_set(MR_EINVAL, "%.400s has a token of %s:%" PRIu32 " already: '%.*s'", path,
                         proof_word(w->proof), w->id, (int)same->name.size,
                         (const char *)same->name.data);
    return 0;
}

int auth_add(const char *path, const struct auth_words *w, char out_secret[AUTH_SECRET + 1]) {
    struct buffer text = { 0 };
    struct auth *known = NULL;
    struct stat owner;
    char secret[AUTH_SECRET + 1] = "";
    int err = entry_check(w);
    if (err < 0)
        return err;
    err = file_read(path, &text, &owner);
    bool missing = err == MR_EGONE;
    if (missing)
        err = buffer_append(&text, opening, sizeof opening - 1);
    if (err >= 0)
        err = file_parse(path, &text, &known);
    if (err >= 0)
        err = check_not_taken(path, known, w);
    if (err >= 0 && w->proof == PROOF_SECRET)
        err = make_secret(secret);
    if (err >= 0)
        err = auth_line_append(&text, w, secret);
    if (err >= 0)
        err = file_replace(path, &text, missing ? NULL : &owner);
    if (err >= 0)
        memcpy(out_secret, secret, sizeof secret);
    auth_destroy(known);
    buffer_finish(&text);
    return err;
}

// Removes the line of this name from the text.
static void line_remove(struct buffer *text, mr_bytes name) {
    uint8_t *line = text->data, *end = line + text->size, *next;
    for (; line < end; line = next) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next ? next + 1 : end;
        uint8_t *word = line;
        while (word < next && (*word == ' ' || *word == '\t'))
            word++;
        size_t size = strcspn((char *)word, " \t\r\n");
        if (bytes_equal((mr_bytes){ word, size }, name)) {
            memmove(line, next, (size_t)(end - next));
            text->size -= (size_t)(next - line);
            return;
        }
    }
}

int auth_remove(const char *path, mr_bytes name) {
    struct buffer text = { 0 };
    struct auth *known = NULL;
    struct stat owner;
    int err = file_read(path, &text, &owner);
    if (err >= 0)
        err = file_parse(path, &text, &known);
    if (err >= 0 && !auth_named(known, name))
        err = error_set(MR_EGONE, "%.400s has no token '%.*s'", path, (int)name.size,
                        (const char *)name.data);
    if (err >= 0)
        err = buffer_append(&text, "", 1); // a terminator for strcspn
    if (err >= 0) {
        text.size--;
        line_remove(&text, name);
        err = file_replace(path, &text, &owner);
    }
    auth_destroy(known);
    buffer_finish(&text);
    return err;
}
