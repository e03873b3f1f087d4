// See push_sums.h.
#include "cli/push_sums.h"

#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUMS_SIZE = SUMS_KEPT * sizeof(struct sum) };

// Makes the directories of `path`, each that is missing.
static bool make_directories(char *path) {
    for (char *p = path + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = 0;
        bool failed = mkdir(path, 0700) < 0 && errno != EEXIST;
        *p = '/';
        if (failed)
            return false;
    }
    return true;
}

// A directory is the same engine whichever path names it.
static bool sums_path(const char *engine, const char *stage, const char *epic, char out[PATH_MAX]) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool given = state && *state == '/';
    char dir[PATH_MAX];
    if (!given && (!home || *home != '/'))
        return false;
    if (strncmp(engine, "file:", 5) == 0 && realpath(engine + 5, dir))
        engine = dir;
    uint64_t hash =
        bytes_hash(mr_str(epic), bytes_hash(mr_str(stage), bytes_hash(mr_str(engine), 0)));
    int size = snprintf(out, PATH_MAX, "%s%s/millrace/epics/%016" PRIx64, given ? state : home,
                        given ? "" : "/.local/state", hash);
    return size < PATH_MAX;
}

void sums_open(struct sums *s, const char *engine, const char *stage, const char *epic) {
    char path[PATH_MAX];
    *s = (struct sums){ 0 };
    if (!sums_path(engine, stage, epic, path) || !make_directories(path))
        return;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (ftruncate(fd, SUMS_SIZE) == 0) {
        void *kept = mmap(NULL, SUMS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        s->kept = kept == MAP_FAILED ? NULL : kept;
    }
    close(fd);
}

void sums_forget(const char *engine, const char *stage, const char *epic) {
    char path[PATH_MAX];
    if (sums_path(engine, stage, epic, path))
        (void)unlink(path); // a file that is left does no harm
}

void sums_add(struct sums *s, uint64_t number, uint64_t hash) {
    uint64_t parts[3] = { s->sum, number, hash };
    s->sum = bytes_hash((mr_bytes){ parts, sizeof parts }, 0);
}

void sums_keep(struct sums *s, uint64_t number, uint64_t lines) {
    if (s->kept)
        s->kept[number % SUMS_KEPT] = (struct sum){ number, s->sum, lines };
}

const struct sum *sums_find(const struct sums *s, uint64_t number) {
    const struct sum *kept = s->kept ? &s->kept[number % SUMS_KEPT] : NULL;
    return kept && kept->number == number ? kept : NULL;
}

enum sums_found sums_check(const struct sums *s, uint64_t number) {
    const struct sum *kept = sums_find(s, number);
    if (!kept)
        return SUMS_UNKNOWN;
    return kept->sum == s->sum ? SUMS_SAME : SUMS_OTHER;
}

void sums_close(struct sums *s) {
    if (s->kept)
        munmap(s->kept, SUMS_SIZE);
    *s = (struct sums){ 0 };
}
