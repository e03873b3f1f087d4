// What the tests of the public API share: a gate to wait at, calls that must succeed, a directory,
// and how to run the same tests on an engine in this process and on a server.
#ifndef TEST_SUPPORT_API_H
#define TEST_SUPPORT_API_H

#include "folder.h"
#include "millrace.h"
#include "serving.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

// For calls that must succeed: prints the error if they fail.
#define must(call)                                                                                 \
    do {                                                                                           \
        int must_err = (call);                                                                     \
        if (must_err < 0)                                                                          \
            fail_msg("%s answered %d: %s", #call, must_err, mr_error());                           \
    } while (0)

// A call that must be refused with `code` and an error text.
#define refused(code, call)                                                                        \
    do {                                                                                           \
        int got = (call);                                                                          \
        if (got != (code))                                                                         \
            fail_msg("%s answered %d, not %s: %s", #call, got, #code, mr_error());                 \
        assert_true(mr_error()[0] != 0);                                                           \
    } while (0)

// A counter; a thread can wait until it reaches a number.
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int count;
};

#define GATE                                                                                       \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 }

static inline void gate_pass(struct gate *g) {
    pthread_mutex_lock(&g->lock);
    g->count++;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static inline void gate_wait(struct gate *g, int count) {
    pthread_mutex_lock(&g->lock);
    while (g->count < count)
        pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

// Where a test runs: on an empty engine in memory, in this process with one shard or several, or in
// a server.
static const char *story_url = "mem:";
static uint32_t story_shards = 1;
static struct serving story_server;

static inline mr *open_mem(void) {
    mr *m = NULL;
    must(mr_open(story_url, &(mr_options){ .shards = story_server.pid ? 0 : story_shards }, &m));
    return m;
}

static int story_begins(void **state) {
    (void)state;
    serving_start(&story_server, "mem:", 0);
    story_url = story_server.url;
    return 0;
}

static int story_ends(void **state) {
    (void)state;
    serving_end(&story_server, SIGKILL);
    story_url = "mem:";
    return 0;
}

// Runs all tests in this process, with one shard and with three.
static inline int run_here(struct CMUnitTest *tests, size_t count) {
    int failed = _cmocka_run_group_tests("in this process", tests, count, NULL, NULL);
    story_shards = 3;
    failed += _cmocka_run_group_tests("in this process, three shards", tests, count, NULL, NULL);
    story_shards = 1;
    return failed;
}

// The same, and then each with a server of its own, of one shard and of three.
static inline int run_here_and_there(struct CMUnitTest *tests, size_t count) {
    int failed = run_here(tests, count);
    for (size_t i = 0; i < count; i++) {
        tests[i].setup_func = story_begins;
        tests[i].teardown_func = story_ends;
    }
    failed += _cmocka_run_group_tests("with a server", tests, count, NULL, NULL);
    serving_shards = story_shards = 3;
    failed += _cmocka_run_group_tests("with a server of three shards", tests, count, NULL, NULL);
    serving_shards = 0;
    story_shards = 1;
    return failed;
}

static inline mr_id push(mr *m, const char *stage, const char *key, const char *body) {
    mr_id id = 0;
    mr_push_options o = { .key = mr_str(key) };
    must(mr_push(m, stage, mr_str(body), &o, &id));
    return id;
}

// The next job, which must be there and have this body.
static inline mr_job *take(mr *m, const char *stage, const char *body) {
    mr_job *job = NULL;
    must(mr_take(m, stage, NULL, &job));
    assert_string_equal(mr_job_body(job).data, body);
    return job;
}

// The same; but jobs of different channels come in the order of their pushes from one shard only.
static inline mr_job *take_next(mr *m, const char *stage, const char *body) {
    mr_job *job = NULL;
    if (story_shards == 1)
        return take(m, stage, body);
    must(mr_take(m, stage, NULL, &job));
    return job;
}

static inline mr_job *take_waiting(mr *m, const char *stage) {
    mr_job *job = NULL;
    mr_take_options o = { .wait_ms = MR_FOREVER };
    must(mr_take(m, stage, &o, &job));
    return job;
}

static inline void nothing_to_take(mr *m, const char *stage) {
    mr_job *job = NULL;
    assert_int_equal(mr_take(m, stage, NULL, &job), MR_EAGAIN);
    assert_null(job);
}

static inline mr_stage_info look(mr *m, const char *stage) {
    mr_stage_info info;
    must(mr_stage_look(m, stage, &info));
    return info;
}

// Lets time pass in the engine: waits for work that never comes.
static inline void let_pass(mr *m, int64_t ms) {
    mr_job *job = NULL;
    mr_take_options o = { .wait_ms = ms };
    assert_int_equal(mr_take(m, "never-pushed", &o, &job), MR_EAGAIN);
}

// ---- A directory for a store ------------------------------------------------------------------

struct store {
    char dir[64], url[80];
};

static inline struct store store_make(void) {
    struct store s = { .dir = "/tmp/millrace-test-XXXXXX" };
    assert_non_null(mkdtemp(s.dir));
    snprintf(s.url, sizeof s.url, "file:%s", s.dir);
    return s;
}

static inline void store_remove(struct store *s) {
    folder_remove(s->dir);
}

static inline mr *store_open(const struct store *s) {
    mr *m = NULL;
    must(mr_open(s->url, &(mr_options){ .shards = story_shards }, &m));
    return m;
}

#endif
