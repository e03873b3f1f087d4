// Shared by the tests of commands: the program that misbehaves, a fifo by which a process reports
// that it has started, and checks that nothing is left behind.
#ifndef TEST_SUPPORT_COMMAND_SUPPORT_H
#define TEST_SUPPORT_COMMAND_SUPPORT_H

#include "api.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static char misbehave[4096];

struct meeting {
    char dir[64], path[80];
};

static inline struct meeting meeting_make(void) {
    struct meeting m = { .dir = "/tmp/millrace-test-XXXXXX" };
    assert_non_null(mkdtemp(m.dir));
    snprintf(m.path, sizeof m.path, "%s/arrived", m.dir);
    assert_int_equal(mkfifo(m.path, 0600), 0);
    return m;
}

// Waits until a process has reported; returns its id.
static inline pid_t meeting_wait(const struct meeting *m) {
    FILE *file = fopen(m->path, "re");
    assert_non_null(file);
    int pid = 0;
    assert_int_equal(fscanf(file, "%d", &pid), 1);
    fclose(file);
    return pid;
}

static inline void meeting_end(const struct meeting *m) {
    unlink(m->path);
    rmdir(m->dir);
}

static inline int count_descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    int count = -1; // its own
    for (struct dirent *e; (e = readdir(dir));)
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

static int descriptors_before;

// Orphans become ours, so that a test can wait for their end; and none is left after a test.
static inline int begin(void **state) {
    (void)state;
    if (!misbehave[0]) {
        ssize_t size = readlink("/proc/self/exe", misbehave, sizeof misbehave - 16);
        assert_true(size > 0);
        misbehave[size] = 0;
        memcpy(strrchr(misbehave, '/') + 1, "misbehave", sizeof "misbehave");
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    }
    descriptors_before = count_descriptors();
    return 0;
}

static inline int nothing_is_left(void **state) {
    (void)state;
    assert_int_equal(count_descriptors(), descriptors_before);
    int none = waitpid(-1, NULL, WNOHANG);
    assert_true(none < 0 && errno == ECHILD); // no zombie, nothing that runs
    return 0;
}

#endif
