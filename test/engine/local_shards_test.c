// An engine with several shards: what must hold for all of them together. (api_test, work_test and
// reopen_test also run with three shards.)
#include "engine/shared_take.h"
#include "support/api.h"

#include <errno.h>
#include <sys/uio.h>

enum { SHARDS = 3, KEYS = 24 };

static mr *open_shards(const char *url, uint32_t shards) {
    mr *m = NULL;
    must(mr_open(url, &(mr_options){ .sync = "none", .shards = shards }, &m));
    return m;
}

static mr_id push_key(mr *m, const char *stage, int key, const char *body) {
    char name[16];
    snprintf(name, sizeof name, "key %d", key);
    return push(m, stage, name, body);
}

// ---- D2: as many wake as there is work --------------------------------------------------------

enum { ROUNDS = 2000, CLAIMERS = 4 };

// Shards that all find work for one take, round after round.
struct claims {
    struct shared_take take;
    atomic_uint shards; // numbers its threads
    atomic_int round, granted, done;
};

static void *claim_always(void *arg) {
    struct claims *c = arg;
    uint32_t shard = atomic_fetch_add(&c->shards, 1);
    for (int round = 1; round <= ROUNDS; round++) {
        while (atomic_load(&c->round) < round)
            sched_yield();
        if (reservation_claim(&c->take.reservation, shard)) {
            atomic_fetch_add(&c->granted, 1);
            shared_take_answer(&c->take, false);
        }
        atomic_fetch_add(&c->done, 1);
    }
    return NULL;
}

// The thread that takes: a shard that came while it was trying is noted, or has claimed it.
static void take_once(struct claims *c, int round) {
    shared_take_init(&c->take);
    assert_true(reservation_close(&c->take.reservation));
    atomic_store(&c->granted, 0);
    atomic_store(&c->done, 0);
    atomic_store(&c->round, round);
    uint64_t missed = reservation_open(&c->take.reservation);
    while (atomic_load(&c->done) < CLAIMERS)
        sched_yield();
    assert_true(atomic_load(&c->granted) <= 1);
    if (atomic_load(&c->granted))
        assert_int_equal(shared_take_sleep(&c->take, UINT64_MAX), 0);
    else
        assert_int_equal(missed | atomic_load(&c->take.reservation.missed), (1 << CLAIMERS) - 1);
    shared_take_finish(&c->take);
}

static void D2_a_shared_take_is_granted_by_one_shard_however_many_have_work(void **state) {
    (void)state;
    static struct claims c;
    pthread_t threads[CLAIMERS];
    for (int i = 0; i < CLAIMERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, claim_always, &c), 0);
    for (int round = 1; round <= ROUNDS; round++)
        take_once(&c, round);
    for (int i = 0; i < CLAIMERS; i++)
        pthread_join(threads[i], NULL);
}

static void D2_a_shared_take_that_is_over_is_granted_nothing(void **state) {
    (void)state;
    struct shared_take a;
    shared_take_init(&a);
    assert_false(reservation_claim(&a.reservation, 0)); // not yet asked
    assert_true(reservation_close(&a.reservation));
    assert_false(reservation_claim(&a.reservation, 1));
    assert_int_equal(reservation_open(&a.reservation), 2); // shard 1 was missed
    assert_int_equal(shared_take_sleep(&a, 0), MR_EAGAIN);
    assert_false(reservation_claim(&a.reservation, 1));
    assert_true(reservation_close(&a.reservation));
    assert_int_equal(reservation_open(&a.reservation), 0);
    assert_true(reservation_claim(&a.reservation, 2));
    assert_false(reservation_claim(&a.reservation, 1));
    assert_false(reservation_close(&a.reservation));
    shared_take_answer(&a, true); // it could not give anything
    assert_int_equal(shared_take_sleep(&a, UINT64_MAX), MR_LATER);
    shared_take_finish(&a);
}

struct taker {
    mr *m;
    int answer;
    mr_job *job;
};

static void *take_one(void *arg) {
    struct taker *t = arg;
    mr_take_options o = { .wait_ms = MR_FOREVER };
    t->answer = mr_take(t->m, "s", &o, &t->job);
    return NULL;
}

static void D2_takes_that_wait_are_answered_by_whichever_shard_has_work(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    for (int round = 0; round < 50; round++) {
        struct taker takers[6];
        pthread_t threads[6];
        for (int i = 0; i < 6; i++) {
            takers[i] = (struct taker){ .m = m };
            assert_int_equal(pthread_create(&threads[i], NULL, take_one, &takers[i]), 0);
        }
        for (int i = 0; i < 6; i++)
            push_key(m, "s", round * 6 + i, "x");
        for (int i = 0; i < 6; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(takers[i].answer, 0);
            must(mr_done(takers[i].job));
        }
        assert_int_equal(look(m, "s").running, 0);
        assert_int_equal(look(m, "s").waiting, 0);
    }
    must(mr_close(m));
}

// ---- R14: limits hold for the engine ----------------------------------------------------------

enum { LIMIT = 3 };

struct inside {
    struct gate began;
    atomic_int now, most;
};

static int count_inside(mr_job *job, void *arg) {
    struct inside *in = arg;
    (void)job;
    int now = atomic_fetch_add(&in->now, 1) + 1;
    for (int most = atomic_load(&in->most); now > most;)
        if (atomic_compare_exchange_weak(&in->most, &most, now))
            break;
    gate_pass(&in->began);
    gate_wait(&in->began, LIMIT); // so many do run at once
    atomic_fetch_sub(&in->now, 1);
    return 0;
}

// U16: a limit of a stage holds for the whole store, however many shards that has.
static void R14_concurrency_holds_over_all_shards(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    struct inside in = { .began = GATE };
    mr_worker *w = NULL;
    must(mr_stage_set(m, "s", "concurrency", "3"));
    must(mr_work(m, "s", count_inside, &in, &(mr_work_options){ .jobs = 8 }, &w));
    for (int i = 0; i < 40; i++)
        for (int key = 0; key < KEYS; key++)
            push_key(m, "s", key, "x");
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    assert_int_equal(atomic_load(&in.most), LIMIT);
    assert_int_equal(look(m, "s").done, 40 * KEYS);
    must(mr_close(m));
}

// U16: so does its rate,
static void R14_a_rate_holds_over_all_shards(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    must(mr_stage_set(m, "s", "rate", "1/h"));
    for (int key = 0; key < KEYS; key++)
        push_key(m, "s", key, "x");
    mr_job *job = take(m, "s", "x");
    nothing_to_take(m, "s");
    must(mr_done(job));
    nothing_to_take(m, "s");
    assert_string_equal(look(m, "s").held_by, "rate");
    must(mr_close(m));
}

// U16: and how many jobs it may have.
static void R14_max_jobs_holds_over_all_shards(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    must(mr_stage_set(m, "s", "max-jobs", "10"));
    for (int key = 0; key < 10; key++)
        push_key(m, "s", key, "x");
    for (int key = 10; key < 10 + KEYS; key++) {
        char name[16];
        snprintf(name, sizeof name, "key %d", key);
        mr_push_options o = { .key = mr_str(name) };
        refused(MR_EFULL, mr_push(m, "s", mr_str("y"), &o, NULL));
    }
    must(mr_done(take(m, "s", "x")));
    push_key(m, "s", 99, "z");
    must(mr_close(m));
}

static void R14_a_pause_holds_over_all_shards(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    must(mr_stage_pause(m, "s"));
    for (int key = 0; key < KEYS; key++)
        push_key(m, "s", key, "x");
    nothing_to_take(m, "s");
    assert_string_equal(look(m, "s").held_by, "paused");
    must(mr_stage_resume(m, "s"));
    for (int key = 0; key < KEYS; key++)
        must(mr_done(take(m, "s", "x")));
    nothing_to_take(m, "s");
    must(mr_close(m));
}

// ---- Links ------------------------------------------------------------------------------------

enum { HOPS = 200 };

// Hands the job on to the stage of another shard.
static int hand_on(mr_job *job, void *arg) {
    (void)arg;
    must(mr_job_emit(job, "c", mr_job_body(job), NULL));
    return 0;
}

static int end_it(mr_job *job, void *arg) {
    (void)job;
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static void a_stage_is_empty_only_when_nothing_is_on_its_way(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    atomic_int ended = 0;
    mr_worker *first = NULL, *second = NULL;
    must(mr_work(m, "s", hand_on, NULL, &(mr_work_options){ .jobs = 2 }, &first));
    must(mr_work(m, "c", end_it, &ended, &(mr_work_options){ .jobs = 2 }, &second));
    for (int round = 1; round <= HOPS; round++) {
        push(m, "s", "first", "0");
        must(mr_stage_wait_empty(m, "s", MR_FOREVER));
        must(mr_stage_wait_empty(m, "c", MR_FOREVER));
        assert_int_equal(atomic_load(&ended), round);
    }
    assert_int_equal(look(m, "c").done, HOPS);
    must(mr_worker_stop(first, MR_FOREVER));
    must(mr_worker_stop(second, MR_FOREVER));
    must(mr_close(m));
}

// D2: a worker of several stages waits at all of their shards, and serves the one named first.
static void D2_a_worker_waits_at_the_shards_of_all_its_stages(void **state) {
    (void)state;
    static const char *const more[] = { "c", "t", NULL };
    mr *m = open_shards("mem:", SHARDS);
    atomic_int ended = 0;
    mr_worker *w = NULL;
    mr_work_options o = { .jobs = 3, .more_stages = more };
    must(mr_work(m, "s", end_it, &ended, &o, &w));
    for (int i = 0; i < HOPS; i++) {
        const char *stage = i % 3 == 0 ? "s" : more[i % 3 - 1];
        push(m, stage, NULL, "x");
        must(mr_stage_wait_empty(m, stage, MR_FOREVER));
        assert_int_equal(atomic_load(&ended), i + 1);
    }
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static int emit_to_all(mr_job *job, void *arg) {
    (void)arg;
    for (int key = 0; key < KEYS; key++) {
        char name[16];
        snprintf(name, sizeof name, "key %d", key);
        must(mr_job_emit(job, "c", mr_job_body(job), &(mr_push_options){ .key = mr_str(name) }));
    }
    return 0;
}

static void E1_emits_reach_every_shard_in_the_order_of_their_commits(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    mr_worker *w = NULL;
    must(mr_work(m, "in", emit_to_all, NULL, &(mr_work_options){ .jobs = 2 }, &w));
    for (int i = 0; i < 20; i++) {
        char body[16];
        snprintf(body, sizeof body, "%d", i);
        push(m, "in", "one channel", body);
    }
    must(mr_stage_wait_empty(m, "in", MR_FOREVER));
    int next[KEYS] = { 0 };
    for (int i = 0; i < 20 * KEYS; i++) {
        mr_job *job = take_waiting(m, "c");
        char name[16] = { 0 };
        memcpy(name, mr_job_key(job).data, mr_job_key(job).size);
        long key = strtol(name + strlen("key "), NULL, 10);
        assert_int_equal(strtol(mr_job_body(job).data, NULL, 10), next[key]++);
        must(mr_done(job));
    }
    must(mr_stage_wait_empty(m, "c", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

// ---- Looking ----------------------------------------------------------------------------------

static int note_dead(mr_id id, mr_bytes key, const char *reason, void *arg) {
    mr_id *last = arg;
    assert_true(key.size > 0);
    assert_string_equal(reason, "no");
    assert_true(id != *last);
    *last = id;
    return 0;
}

static void looks_add_up_and_ids_are_found(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    mr_id ids[KEYS];
    for (int key = 0; key < KEYS; key++)
        ids[key] = push_key(m, "s", key, "x");
    assert_int_equal(look(m, "s").waiting, KEYS);
    for (int i = 0; i < KEYS / 2; i++)
        must(mr_fail(take(m, "s", "x"), "no", MR_NEVER));
    assert_int_equal(look(m, "s").dead, KEYS / 2);
    mr_id last = 0;
    must(mr_dead(m, "s", note_dead, &last));
    must(mr_retry(m, last));
    int cancelled = 0;
    for (int key = 0; key < KEYS; key++) {
        must(mr_cancel(m, ids[key]));
        cancelled += mr_await(m, ids[key], 0, NULL) == MR_ECANCELLED;
    }
    assert_int_equal(cancelled, KEYS / 2 + 1);
    assert_int_equal(look(m, "s").waiting, 0);
    must(mr_close(m));
}

// E2: a number that was skipped makes no job, whatever its key.
static void E2_a_skipped_number_is_skipped_for_every_key(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    for (int key = 0; key < KEYS; key++) {
        char name[16];
        snprintf(name, sizeof name, "key %d", key);
        mr_epic e = { .stage = "s", .name = name };
        must(mr_epic_begin(m, &e));
        must(mr_epic_skip(m, &e));
        mr_epic again = { .stage = "s", .name = name };
        must(mr_epic_begin(m, &again));
        assert_int_equal(again.next, 2);
        again.next = 1;
        must(mr_epic_push(m, &again, mr_str("x"), &(mr_push_options){ .key = mr_str(name) }, NULL));
    }
    nothing_to_take(m, "s");
    must(mr_close(m));
}

// E2: nor does one that was accepted before make a second job, with whatever key it comes again.
static void E2_a_number_is_known_whichever_shard_has_it(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    mr_epic e = { .stage = "s", .name = "e" };
    mr_id first[2] = { 0 }, again[2] = { 0 };
    size_t n = 0;
    mr_item items[2] = { { .body = mr_str("x"), .key = mr_str("a") },
                         { .body = mr_str("y"), .key = mr_str("b") } };
    must(mr_epic_begin(m, &e));
    must(mr_epic_push_many(m, &e, items, 2, NULL, first, &n));
    assert_int_equal(n, 2);
    for (int key = 0; key < KEYS; key++) {
        char name[16];
        snprintf(name, sizeof name, "key %d", key);
        items[0].key = items[1].key = mr_str(name);
        e.next = 1;
        must(mr_epic_push_many(m, &e, items, 2, NULL, again, &n));
        assert_int_equal(n, 2);
        assert_true(again[0] == first[0] && again[1] == first[1]);
    }
    assert_int_equal(look(m, "s").waiting, 2);
    must(mr_close(m));
}

// D4: the highest number of all shards counts, and none is changed by an end that is refused.
static void D4_an_epic_does_not_end_before_its_highest_number(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    mr_epic e = { .stage = "s", .name = "e" };
    mr_epic_info info;
    must(mr_epic_begin(m, &e));
    for (int key = 0; key < KEYS; key++) {
        char name[16];
        snprintf(name, sizeof name, "key %d", key);
        must(mr_epic_push(m, &e, mr_str("x"), &(mr_push_options){ .key = mr_str(name) }, NULL));
    }
    for (e.next = 1; e.next <= KEYS; e.next++) {
        refused(MR_EINVAL, mr_epic_end(m, &e));
        assert_non_null(strstr(mr_error(), "number 24"));
        must(mr_epic_look(m, "s", "e", &info));
        assert_int_equal(info.total, -1);
    }
    must(mr_epic_end(m, &e));
    must(mr_epic_look(m, "s", "e", &info));
    assert_int_equal(info.total, KEYS);
    must(mr_close(m));
}

// The engine's disk: syncs fail when the test says so.
static atomic_bool syncs_fail;

int fdatasync(int fd) {
    if (!atomic_load(&syncs_fail))
        return fsync(fd);
    errno = EIO;
    return -1;
}

// A write that syncs.
ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags) {
    (void)flags;
    ssize_t n = pwritev(fd, pieces, count, at);
    return n < 0 || fdatasync(fd) == 0 ? n : -1;
}

// F24: a change of all shards at once is not visible either when it is not on disk.
static void F24_an_epic_ends_and_is_dropped_only_on_a_disk_that_works(void **state) {
    (void)state;
    for (int drops = 0; drops < 2; drops++) {
        struct store s = store_make();
        mr *m = NULL;
        must(mr_open(s.url, &(mr_options){ .shards = SHARDS }, &m));
        mr_epic e = { .stage = "s", .name = "e" };
        must(mr_epic_begin(m, &e));
        must(mr_epic_push(m, &e, mr_str("x"), NULL, NULL));
        atomic_store(&syncs_fail, true);
        refused(MR_ESTOPPED, drops ? mr_epic_drop(m, "s", "e") : mr_epic_end(m, &e));
        refused(MR_ESTOPPED, mr_push(m, "s", mr_str("y"), NULL, NULL));
        refused(MR_ESTOPPED, mr_check(m));
        must(mr_close(m));
        atomic_store(&syncs_fail, false);
        store_remove(&s);
    }
}

static void X_an_engine_with_waiting_threads_does_not_close(void **state) {
    (void)state;
    mr *m = open_shards("mem:", SHARDS);
    struct taker t = { .m = m };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_one, &t), 0);
    while (mr_stage_look(m, "s", &(mr_stage_info){ 0 }) < 0) // until it waits there
        sched_yield();
    refused(MR_EBUSY, mr_close(m));
    push_key(m, "s", 1, "x");
    pthread_join(thread, NULL);
    refused(MR_EBUSY, mr_close(m));
    must(mr_done(t.job));
    must(mr_close(m));
}

enum { CHAINS = 300 };

// A call whose end starts another one, in another shard.
struct chain {
    mr *m;
    atomic_int links, ended;
};

static void call_again(mr_id id, int status, mr_bytes result, void *arg) {
    struct chain *c = arg;
    (void)id, (void)status, (void)result;
    int link = atomic_fetch_add(&c->links, 1);
    for (int i = 0; i < link * 7 % 50; i++)
        sched_yield(); // now sooner, now later than who closes the engine
    char key[16];
    snprintf(key, sizeof key, "key %d", link);
    mr_push_options o = { .key = mr_str(key), .deadline_ms = 1 };
    int err = link < CHAINS ? mr_call_start(c->m, "s", mr_str("x"), &o, call_again, c, NULL) : 0;
    atomic_fetch_add(&c->ended, err == 0);
}

// No worker runs, so every call ends at its deadline; the engine is busy until the last one has.
static void X_an_engine_does_not_close_between_the_calls_of_a_chain(void **state) {
    (void)state;
    struct chain c = { .m = open_shards("mem:", SHARDS) };
    mr_push_options o = { .deadline_ms = 1 };
    must(mr_call_start(c.m, "s", mr_str("x"), &o, call_again, &c, NULL));
    while (mr_close(c.m) == MR_EBUSY)
        sched_yield();
    assert_int_equal(c.ended, CHAINS + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(D2_a_shared_take_is_granted_by_one_shard_however_many_have_work),
        cmocka_unit_test(D2_a_shared_take_that_is_over_is_granted_nothing),
        cmocka_unit_test(D2_takes_that_wait_are_answered_by_whichever_shard_has_work),
        cmocka_unit_test(R14_concurrency_holds_over_all_shards),
        cmocka_unit_test(R14_a_rate_holds_over_all_shards),
        cmocka_unit_test(R14_max_jobs_holds_over_all_shards),
        cmocka_unit_test(R14_a_pause_holds_over_all_shards),
        cmocka_unit_test(D2_a_worker_waits_at_the_shards_of_all_its_stages),
        cmocka_unit_test(a_stage_is_empty_only_when_nothing_is_on_its_way),
        cmocka_unit_test(E1_emits_reach_every_shard_in_the_order_of_their_commits),
        cmocka_unit_test(looks_add_up_and_ids_are_found),
        cmocka_unit_test(E2_a_skipped_number_is_skipped_for_every_key),
        cmocka_unit_test(E2_a_number_is_known_whichever_shard_has_it),
        cmocka_unit_test(D4_an_epic_does_not_end_before_its_highest_number),
        cmocka_unit_test(F24_an_epic_ends_and_is_dropped_only_on_a_disk_that_works),
        cmocka_unit_test(X_an_engine_with_waiting_threads_does_not_close),
        cmocka_unit_test(X_an_engine_does_not_close_between_the_calls_of_a_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
