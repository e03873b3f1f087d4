// A disk so full that the end of a job cannot be recorded: neither its commit nor its failure. What
// was taken behind it must not run before it.
#include "api/handle.h"
#include "engine/local.h"
#include "support/api.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

// ---- A disk that is full ----------------------------------------------------------------------

static atomic_bool disk_is_full;

// The engine's disk: there is room for new segments, or not.
int fallocate(int fd, int mode, off_t from, off_t size) {
    if (!atomic_load(&disk_is_full))
        return (int)syscall(SYS_fallocate, fd, mode, from, size);
    errno = ENOSPC;
    return -1;
}

enum { LARGE = 16 << 10, SMALL = 1 << 10, HOUR_MS = 3600000, LEASE_MS = 3000 };

static mr_job *take_ballast(mr *m) {
    mr_job *job = NULL;
    must(mr_take(m, "ballast", NULL, &job));
    return job;
}

// Until a commit with a result of this size has no room.
static void commit_ballast(mr *m, size_t size) {
    static char result[LARGE];
    int err;
    do {
        mr_job *job = take_ballast(m);
        must(mr_job_set_result(job, (mr_bytes){ result, size }));
        err = mr_done(job);
    } while (err == 0);
    assert_int_equal(err, MR_EFULL);
}

// Until nothing has room that ends a job: what a snooze records is the shortest.
static void fill_disk(mr *m) {
    static char piece[SMALL];
    int err;
    atomic_store(&disk_is_full, true);
    do
        err = mr_push(m, "ballast", (mr_bytes){ piece, sizeof piece }, NULL, NULL);
    while (err == 0);
    assert_int_equal(err, MR_EFULL);
    commit_ballast(m, LARGE);
    commit_ballast(m, SMALL);
    do
        err = mr_release(take_ballast(m), HOUR_MS);
    while (err == 0);
    assert_int_equal(err, MR_EFULL);
}

// Returns when there is room again.
static void make_room(mr *m) {
    atomic_store(&disk_is_full, false);
    must(mr_push(m, "after", mr_str(""), &(mr_push_options){ .room_ms = MR_FOREVER }, NULL));
}

// ---- Ends that are refused --------------------------------------------------------------------

static int fail_it(mr_job *job) {
    return mr_fail(job, "not now", 0);
}

static int release_for_a_while(mr_job *job) {
    return mr_release(job, 1);
}

// How a job ends: by one of `ends`, or by what its handler returns.
static int (*const ends[])(mr_job *) = { mr_done, fail_it, release_for_a_while };
enum { ENDS = sizeof ends / sizeof *ends, COMMITS = ENDS, FAILS, WAYS };

static const char *stage_of_way(int way) {
    static const char *const names[WAYS] = { "done", "fail", "release", "commits", "fails" };
    return names[way];
}

// For each way a stage with jobs "a", "b" and "c" of one key, and "z" of another.
static mr *open_full(const struct store *s) {
    mr *m = store_open(s);
    for (int way = 0; way < WAYS; way++) {
        must(mr_stage_set(m, stage_of_way(way), "backoff", "1ms"));
        for (int i = 0; i < 3; i++)
            push(m, stage_of_way(way), "k", (char[]){ (char)('a' + i), 0 });
        push(m, stage_of_way(way), "other", "z");
    }
    fill_disk(m);
    return m;
}

static uint32_t count_leased(mr *m, const char *stage) {
    struct local_shard *s = shard_of_stage(m->engine, mr_str(stage));
    pthread_mutex_lock(&s->lock);
    uint32_t count = s->jobs.count;
    pthread_mutex_unlock(&s->lock);
    return count;
}

// The next take is of another key; when there is room, the batch begins anew.
static void C9_what_was_taken_behind_a_job_that_could_not_be_ended_goes_back(void **state) {
    (void)state;
    struct store s = store_make();
    mr *m = open_full(&s);
    mr_job *job = NULL, *others[ENDS];
    for (int way = 0; way < ENDS; way++) {
        mr_take_options o = { .batch = 3, .lease_ms = 50 };
        must(mr_take(m, stage_of_way(way), &o, &job));
        assert_string_equal(mr_job_body(job).data, "a");
        refused(MR_EFULL, ends[way](job));
        others[way] = take(m, stage_of_way(way), "z");
        assert_int_equal(count_leased(m, stage_of_way(way)), way + 1);
    }
    make_room(m);
    for (int way = 0; way < ENDS; way++) {
        must(mr_done(others[way]));
        for (int i = 0; i < 3; i++) {
            job = take_waiting(m, stage_of_way(way));
            assert_string_equal(mr_job_body(job).data, ((char[]){ (char)('a' + i), 0 }));
            must(mr_done(job));
        }
    }
    must(mr_close(m));
    store_remove(&s);
}

// Jobs in the order in which their handlers began.
struct refusals {
    int way; // in which "a" ends at first
    char order[16];
    int begun;
    struct gate other, goes_on;
};

static int note_order(mr_job *job, void *arg) {
    struct refusals *r = arg;
    char body = *(const char *)mr_job_body(job).data;
    bool is_first = r->begun == 0;
    r->order[r->begun++] = body;
    if (body == 'z') {
        gate_pass(&r->other);
        gate_wait(&r->goes_on, 1);
    }
    if (is_first && r->way < ENDS)
        refused(MR_EFULL, ends[r->way](job));
    return is_first && r->way == FAILS ? -1 : 0;
}

static mr_worker *begin_refusals(struct refusals *r, mr *m, int way, int64_t lease_ms) {
    *r = (struct refusals){ .way = way, .other = GATE, .goes_on = GATE };
    mr_worker *w = NULL;
    mr_work_options o = { .jobs = 1, .batch = 3, .lease_ms = lease_ms };
    must(mr_work(m, stage_of_way(way), note_order, r, &o, &w));
    gate_wait(&r->other, 1);
    assert_string_equal(r->order, "az");
    return w;
}

// The worker's only thread goes on to the other key, whose lease is kept meanwhile. The lease is so
// long that beats keep it on a busy machine, too, and so short that the test need not wait for the
// end of the first job's for long.
static void C9_a_worker_begins_no_job_behind_one_that_could_not_be_ended(void **state) {
    (void)state;
    struct store s = store_make();
    struct refusals r[WAYS];
    mr_worker *workers[WAYS];
    mr *m = open_full(&s);
    for (int way = 0; way < WAYS; way++)
        workers[way] = begin_refusals(&r[way], m, way, LEASE_MS);
    make_room(m);
    for (int way = 0; way < WAYS; way++) {
        gate_pass(&r[way].goes_on);
        must(mr_stage_wait_empty(m, stage_of_way(way), MR_FOREVER));
        assert_string_equal(r[way].order, "azabc");
        must(mr_worker_stop(workers[way], MR_FOREVER));
    }
    must(mr_close(m));
    store_remove(&s);
}

// Worker and engine end although nothing of what they do can be recorded, and nothing is lost.
static void C9_what_could_not_be_ended_is_there_after_a_restart(void **state) {
    (void)state;
    struct store s = store_make();
    struct refusals r[WAYS];
    mr *m = open_full(&s);
    for (int way = 0; way < WAYS; way++) {
        mr_worker *w = begin_refusals(&r[way], m, way, 0);
        gate_pass(&r[way].goes_on);
        must(mr_worker_stop(w, MR_FOREVER));
        assert_string_equal(r[way].order, "az");
    }
    must(mr_close(m));
    atomic_store(&disk_is_full, false);
    m = store_open(&s);
    for (int way = 0; way < WAYS; way++) {
        const char *bodies[] = { "a", "z", "b", "c" };
        for (int i = 0; i < 4; i++) {
            mr_job *job = take(m, stage_of_way(way), bodies[i]);
            assert_int_equal(mr_job_attempt(job), 1);
            must(mr_done(job));
        }
    }
    must(mr_close(m));
    store_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C9_what_was_taken_behind_a_job_that_could_not_be_ended_goes_back),
        cmocka_unit_test(C9_a_worker_begins_no_job_behind_one_that_could_not_be_ended),
        cmocka_unit_test(C9_what_could_not_be_ended_is_there_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
