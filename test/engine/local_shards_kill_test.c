// A process with an engine of three shards, killed at random instants, again and again: at work,
// while opening, while emits are on their way from one shard to another.
//
//     push n, once n ──► stage "work", key n mod KEYS ──commit──► stage "out", another key
//                              state: the last number of the key
//
// Each commit must find the number before its own in its channel's state, or the child ends by
// itself. What was acknowledged lies in memory shared with its successor. In the end every number
// is in "out" exactly once, and those of a key in order.
//
// MILLRACE_SECONDS says how long (6), MILLRACE_SEED which instants.
#include "support/api.h"
#include "support/proof.h"

#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

// No more than "out" may hold before "work" is held for its sake.
enum { KEYS = 5, SHARDS = 3, PUSHED_MOST = 8000 };

struct shared {
    _Atomic uint64_t pushed; // numbers up to here were acknowledged
};

static uint64_t dice_next(uint64_t *dice) {
    *dice = *dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *dice >> 33;
}

// ---- The child --------------------------------------------------------------------------------

static int number_of(mr_bytes bytes) {
    char text[16] = { 0 };
    memcpy(text, bytes.data, bytes.size < sizeof text ? bytes.size : sizeof text - 1);
    return (int)strtol(text, NULL, 10);
}

static int pass_on(mr_job *job, void *arg) {
    (void)arg;
    int number = number_of(mr_job_body(job));
    int before = mr_job_state(job).size ? number_of(mr_job_state(job)) : number % KEYS;
    if (before != (number > KEYS ? number - KEYS : number % KEYS)) {
        fprintf(stderr, "%d came after %d\n", number, before);
        _exit(1);
    }
    char key[16];
    snprintf(key, sizeof key, "out %d", number % KEYS);
    must(mr_job_set_state(job, mr_job_body(job)));
    must(mr_job_emit(job, "out", mr_job_body(job), &(mr_push_options){ .key = mr_str(key) }));
    return 0;
}

static void push_number(mr *m, uint64_t number) {
    char body[16], key[16];
    snprintf(body, sizeof body, "%llu", (unsigned long long)number);
    snprintf(key, sizeof key, "in %d", (int)(number % KEYS));
    mr_push_options o = { .key = mr_str(key), .once = mr_str(body) };
    must(mr_push(m, "work", mr_str(body), &o, NULL));
}

static mr *open_store(const struct store *s, const char *sync) {
    mr *m = NULL;
    must(mr_open(s->url, &(mr_options){ .sync = sync, .shards = SHARDS }, &m));
    must(mr_stage_set(m, "work", "backoff", "1ms"));
    must(mr_stage_set(m, "work", "attempts", "60000"));
    must(mr_stage_set(m, "out", "lease", "1h"));
    return m;
}

static mr_worker *begin_work(mr *m) {
    mr_worker *w = NULL;
    must(mr_work(m, "work", pass_on, NULL, &(mr_work_options){ .jobs = 3, .batch = 2 }, &w));
    return w;
}

static _Noreturn void work_until_killed(struct shared *h, const struct store *s, const char *sync) {
    mr *m = open_store(s, sync);
    begin_work(m);
    for (uint64_t n = atomic_load(&h->pushed) + 1; n <= PUSHED_MOST; n++) {
        push_number(m, n);
        atomic_store(&h->pushed, n);
    }
    for (;;)
        pause();
}

// ---- The parent -------------------------------------------------------------------------------

// Lets a child work for a while, then kills it.
static void kill_one(struct shared *h, const struct store *s, const char *sync, uint64_t after_us) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        work_until_killed(h, s, sync);
    }
    close(ends[1]);
    struct pollfd end = { .fd = ends[0], .events = POLLIN };
    struct timespec instant = { .tv_nsec = (long)after_us * 1000 };
    ppoll(&end, 1, &instant, NULL); // readable only if it ended by itself
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ends[0]);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("the child ended by itself, with %x", status);
}

// Every number once, those of a key in order; at most one more than was acknowledged.
static void check_out(mr *m, uint64_t pushed) {
    uint64_t last[KEYS] = { 0 }, count = 0;
    must(mr_stage_wait_empty(m, "work", MR_FOREVER));
    uint64_t done = look(m, "work").done;
    assert_true(done == pushed || done == pushed + 1);
    for (; count < done; count++) {
        mr_job *job = take_waiting(m, "out");
        uint64_t number = (uint64_t)number_of(mr_job_body(job));
        uint64_t expected = last[number % KEYS] ? last[number % KEYS] + KEYS
                            : number % KEYS     ? number % KEYS
                                                : KEYS;
        assert_int_equal(number, expected);
        last[number % KEYS] = number;
        must(mr_done(job));
    }
    must(mr_stage_wait_empty(m, "out", MR_FOREVER)); // nothing is on its way, either
    assert_int_equal(look(m, "out").done, done);
}

static void check_repeats(const struct store *s, uint64_t pushed) {
    mr *m = open_store(s, "none");
    mr_stage_info before = look(m, "work"), out = look(m, "out");
    for (uint64_t n = pushed > 50 ? pushed - 50 : 1; n <= pushed; n++)
        push_number(m, n);
    mr_stage_info after = look(m, "work");
    assert_int_equal(after.waiting, 0);
    assert_int_equal(after.done, before.done);
    assert_int_equal(look(m, "out").done, out.done);
    must(mr_close(m));
}

static void a_life(struct shared *h, uint64_t seed, uint64_t until_ms) {
    struct store s = store_make();
    const char *sync = seed % 2 ? "none" : "always";
    uint64_t dice = seed, kills = 0;
    atomic_store(&h->pushed, 0);
    // Sometimes so early that it is still opening: segments are allocated for real.
    while (monotonic_ms() < until_ms && atomic_load(&h->pushed) < PUSHED_MOST) {
        kill_one(h, &s, sync, dice_next(&dice) % (dice_next(&dice) % 4 ? 300000 : 60000));
        kills++;
    }
    mr *m = open_store(&s, "none");
    mr_worker *w = begin_work(m);
    uint64_t pushed = atomic_load(&h->pushed);
    check_out(m, pushed);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
    check_repeats(&s, pushed);
    store_remove(&s);
    print_message("sync %s: %llu kills, %llu jobs\n", sync, (unsigned long long)kills,
                  (unsigned long long)pushed);
}

static void E4_F4_F15_F19_what_is_emitted_to_another_shard_arrives_once(void **state) {
    (void)state;
    struct shared *h =
        mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(h != MAP_FAILED);
    uint64_t seed = proof_seed(1), half_ms = proof_ms(6, 30) / 2;
    a_life(h, seed, monotonic_ms() + half_ms);
    a_life(h, seed + 1, monotonic_ms() + half_ms);
    munmap(h, sizeof *h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E4_F4_F15_F19_what_is_emitted_to_another_shard_arrives_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
