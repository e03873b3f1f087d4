// Neighbours: each member is a process, which does what the test asks for through a pipe.
#include "work/neighbours.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64]; // instead of the file in /dev/shm
static bool is_full;  // its file system

int shm_open(const char *name, int flags, mode_t mode) {
    (void)name;
    return open(path, flags | O_CLOEXEC, mode);
}

int fallocate(int fd, int mode, off_t from, off_t size) {
    errno = ENOSPC;
    return is_full ? -1 : (int)syscall(SYS_fallocate, fd, mode, from, size);
}

static int make_file(void **state) {
    (void)state;
    snprintf(path, sizeof path, "/tmp/neighbours-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd) < 0 ? -1 : 0;
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

// ---- Members ----------------------------------------------------------------------------------

enum request { JOIN, LEAVE, COUNT, FORK };

struct question {
    enum request request;
    uint64_t now_ms;
};

struct answer {
    uint32_t others;
    uint64_t completed;
    pid_t pid;
};

struct member {
    pid_t pid;
    int questions, answers;
};

static struct answer obey(struct question q) {
    struct answer a = { 0 };
    switch (q.request) {
    case JOIN:
        neighbours_join();
        break;
    case LEAVE:
        neighbours_leave();
        break;
    case COUNT:
        a.others = neighbours_count(q.now_ms, &a.completed);
        break;
    case FORK: // its child goes on instead
        if (fork() != 0)
            _exit(0);
        a.pid = getpid();
        break;
    }
    return a;
}

static void be_member(int questions, int answers) {
    struct question q;
    while (read(questions, &q, sizeof q) == sizeof q) {
        struct answer a = obey(q);
        if (write(answers, &a, sizeof a) != sizeof a)
            break;
    }
    _exit(0);
}

// A process that begins before any member of it has joined.
static struct member member_start(void) {
    int questions[2], answers[2];
    assert_int_equal(pipe2(questions, O_CLOEXEC), 0);
    assert_int_equal(pipe2(answers, O_CLOEXEC), 0);
    struct member m = { fork(), questions[1], answers[0] };
    assert_true(m.pid >= 0);
    if (m.pid == 0) {
        close(questions[1]);
        be_member(questions[0], answers[1]);
    }
    close(questions[0]);
    close(answers[1]);
    return m;
}

static struct answer ask(struct member *m, enum request request, uint64_t now_ms) {
    struct question q = { request, now_ms };
    struct answer a;
    assert_int_equal(write(m->questions, &q, sizeof q), sizeof q);
    assert_int_equal(read(m->answers, &a, sizeof a), sizeof a);
    return a;
}

static void expect_count(struct member *m, uint64_t now_ms, uint32_t others, uint64_t completed) {
    struct answer a = ask(m, COUNT, now_ms);
    assert_int_equal(a.others, others);
    assert_int_equal(a.completed, completed);
}

static void member_kill(struct member *m) {
    assert_int_equal(kill(m->pid, SIGKILL), 0);
    assert_int_equal(waitpid(m->pid, NULL, 0), m->pid);
    close(m->questions);
    close(m->answers);
}

// ---- Cases ------------------------------------------------------------------------------------

static void X_processes_see_what_the_others_complete(void **state) {
    (void)state;
    struct member a = member_start(), b = member_start();
    ask(&a, JOIN, 0);
    expect_count(&a, 0, 0, 0);
    ask(&b, JOIN, 0);
    ask(&b, JOIN, 0); // it has two such workers
    expect_count(&b, 0, 2, 1);
    expect_count(&a, 999, 0, 0); // it has looked just before
    expect_count(&a, 1000, 2, 2);
    expect_count(&a, 1001, 2, 3);
    expect_count(&b, 1, 2, 4);
    member_kill(&a);
    member_kill(&b);
}

static void X_workers_that_end_do_not_count(void **state) {
    (void)state;
    struct member a = member_start(), b = member_start();
    ask(&a, JOIN, 0);
    ask(&b, JOIN, 0);
    expect_count(&a, 0, 1, 1);
    ask(&b, LEAVE, 0);
    expect_count(&a, 1000, 0, 0);
    ask(&b, JOIN, 0);
    expect_count(&a, 2000, 1, 2);
    member_kill(&a);
    member_kill(&b);
}

// What it has completed stays counted, so that the sum never falls; a new process takes its place.
static void X_a_process_that_was_killed_does_not_count(void **state) {
    (void)state;
    struct member a = member_start(), b = member_start();
    ask(&a, JOIN, 0);
    ask(&b, JOIN, 0);
    expect_count(&b, 0, 1, 1);
    expect_count(&a, 0, 1, 2);
    member_kill(&b);
    expect_count(&a, 1000, 0, 0);
    struct member c = member_start();
    ask(&c, JOIN, 0);
    expect_count(&c, 0, 1, 3);
    expect_count(&a, 2000, 1, 4);
    member_kill(&a);
    member_kill(&c);
}

// As a program does that becomes a daemon.
static void X_a_child_has_none_of_the_workers_of_its_parent(void **state) {
    (void)state;
    struct member a = member_start(), b = member_start();
    ask(&a, JOIN, 0);
    ask(&a, JOIN, 0);
    ask(&b, JOIN, 0);
    expect_count(&b, 0, 2, 1);
    pid_t parent = a.pid;
    a.pid = ask(&a, FORK, 0).pid;
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    expect_count(&b, 1000, 0, 0);
    ask(&a, JOIN, 0);
    expect_count(&a, 0, 1, 2);
    expect_count(&b, 2000, 1, 3);
    ask(&a, LEAVE, 0);
    expect_count(&b, 3000, 0, 0);
    member_kill(&a);
    member_kill(&b);
}

static void expect_alone(void) {
    struct member a = member_start(), b = member_start();
    ask(&a, JOIN, 0);
    ask(&b, JOIN, 0);
    expect_count(&a, 0, 0, 0);
    ask(&a, JOIN, 0); // its own workers know of each other in any case
    expect_count(&a, 1000, 1, 1);
    member_kill(&a);
    member_kill(&b);
}

static void X_a_file_that_others_may_write_is_not_used(void **state) {
    (void)state;
    assert_int_equal(chmod(path, 0666), 0);
    expect_alone();
}

// A page of the file for which there is no room could be mapped, but not written to.
static void X_a_full_file_system_leaves_a_process_alone(void **state) {
    (void)state;
    is_full = true;
    assert_int_equal(truncate(path, 1 << 16), 0); // it is large enough, and empty
    expect_alone();
    is_full = false;
}

static void X_without_the_file_a_process_is_alone(void **state) {
    (void)state;
    path[0] = 'x'; // no folder
    expect_alone();
    path[0] = '/';
}

// Whatever the file holds, no count is wrong by more than what it holds.
static void X_a_file_with_anything_in_it_is_survived(void **state) {
    (void)state;
    int fd = open(path, O_WRONLY);
    unsigned char anything[4096];
    memset(anything, 0xff, sizeof anything);
    assert_int_equal(write(fd, anything, sizeof anything), sizeof anything);
    close(fd);
    struct member a = member_start(), b = member_start();
    ask(&a, JOIN, 0);
    ask(&b, JOIN, 0);
    assert_int_equal(ask(&a, COUNT, 0).others,
                     1); // places that no process has locked do not count
    member_kill(&a);
    member_kill(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(X_processes_see_what_the_others_complete, make_file,
                                        remove_file),
        cmocka_unit_test_setup_teardown(X_workers_that_end_do_not_count, make_file, remove_file),
        cmocka_unit_test_setup_teardown(X_a_process_that_was_killed_does_not_count, make_file,
                                        remove_file),
        cmocka_unit_test_setup_teardown(X_a_child_has_none_of_the_workers_of_its_parent, make_file,
                                        remove_file),
        cmocka_unit_test_setup_teardown(X_a_file_that_others_may_write_is_not_used, make_file,
                                        remove_file),
        cmocka_unit_test_setup_teardown(X_a_full_file_system_leaves_a_process_alone, make_file,
                                        remove_file),
        cmocka_unit_test_setup_teardown(X_without_the_file_a_process_is_alone, make_file,
                                        remove_file),
        cmocka_unit_test_setup_teardown(X_a_file_with_anything_in_it_is_survived, make_file,
                                        remove_file),
    };
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) // a child whose parent has ended becomes one of this
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
