// A flow in a real process on a real disk, killed at random instants and run again until it is
// over: every word of the text is counted once, in a file that says so.
//
//     MILLRACE_LONG=1       more processes
//     MILLRACE_SEED=7       which moments
#include "millrace_flow.h"
#include "support/api.h"
#include "support/crash.h"
#include "support/proof.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

enum { BLOCKS = 300, PAIRS = 200, KEYS = 97, MEMORY = 64 << 20 };

static uint64_t dice_next(uint64_t *dice) {
    uint64_t z = (*dice += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

// ---- The flow ---------------------------------------------------------------------------------

static int read_pairs(uint64_t number, mr_flow_out *out, void *arg) {
    uint64_t dice = number;
    (void)arg;
    if (number > BLOCKS)
        return MR_FLOW_END;
    for (int i = 0; i < PAIRS; i++) {
        char key[16], value[16];
        snprintf(key, sizeof key, "%" PRIu64, dice_next(&dice) % KEYS);
        snprintf(value, sizeof value, "%" PRIu64, dice_next(&dice) % 1000);
        int err = mr_flow_emit(out, mr_str(key), mr_str(value));
        if (err < 0)
            return err;
    }
    return 0;
}

static int add_stage(mr_pair p, mr_flow_out *out, void *arg) {
    char total[32];
    mr_bytes before = mr_flow_state(out);
    (void)arg;
    snprintf(total, sizeof total, "%llu", // what states hold is followed by other bytes
             (before.size ? strtoull(before.data, NULL, 10) : 0) + 1);
    size_t size = strlen(total);
    total[size++] = '\n';
    int err = mr_flow_set(out, (mr_bytes){ total, size });
    return err < 0 ? err : mr_flow_emit(out, p.key, p.value);
}

static int run_flow(const char *url, const char *sync, mr_flow_read *read, const char *out) {
    mr *m = NULL;
    mr_flow *f = NULL;
    mr_options o = { .sync = sync };
    mr_window window = { .size = 10 };
    mr_flow_options options = {
        .attempts = 1000, .backoff = "0ms", .sync = "none", .jobs = 2, .ahead = 8
    };
    mr_operator_options few = { .partitions = 8 };
    struct crash crash = { 0.1, 7 };
    int err = mr_open(url, &o, &m);
    if (err >= 0)
        err = mr_flow_open(m, "sums", &options, &f);
    if (err >= 0)
        err = mr_flow_source(f, "pairs", read, NULL, NULL);
    if (err >= 0)
        err = crash_add(f, "crash", "pairs", &crash, &few);
    if (err >= 0)
        err = mr_flow_stage(f, "stage", "crash", add_stage, NULL, &few);
    if (err >= 0)
        err = mr_flow_aggregate(f, "sum", "stage", mr_flow_sum, NULL, &window, &few);
    if (err >= 0)
        err = mr_flow_file(f, "out", "sum", out, NULL);
    if (err >= 0)
        err = mr_flow_start(f);
    if (err >= 0)
        err = mr_flow_wait(f, MR_FOREVER);
    if (err >= 0)
        err = mr_flow_close(f);
    return err < 0 ? err : mr_close(m);
}

// ---- What must come out -----------------------------------------------------------------------

struct sums {
    uint64_t sum[KEYS], lines[KEYS];
};

// All values, and as many lines as there are windows of ten.
static struct sums expected(void) {
    struct sums s = { 0 };
    uint64_t values[KEYS] = { 0 };
    for (uint64_t number = 1; number <= BLOCKS; number++) {
        uint64_t dice = number;
        for (int i = 0; i < PAIRS; i++) {
            uint64_t key = dice_next(&dice) % KEYS;
            s.sum[key] += dice_next(&dice) % 1000;
            s.lines[key] += values[key]++ % 10 == 0;
        }
    }
    return s;
}

static struct sums found(const char *path) {
    struct sums s = { 0 };
    FILE *file = fopen(path, "r");
    uint64_t key, value;
    assert_non_null(file);
    while (fscanf(file, "%" SCNu64 "\t%" SCNu64 "\n", &key, &value) == 2) {
        assert_in_range(key, 0, KEYS - 1);
        s.sum[key] += value;
        s.lines[key]++;
    }
    assert_true(feof(file));
    fclose(file);
    return s;
}

// ---- Lives ------------------------------------------------------------------------------------

static _Noreturn void child_run(const struct store *s, const char *sync, const char *out) {
    int err = run_flow(s->url, sync, read_pairs, out);
    if (err < 0)
        fprintf(stderr, "%d: %s\n", err, mr_error());
    _exit(err < 0 ? 1 : 0);
}

// True: the flow is over. Negative time: it may run as long as it needs.
static bool one_run(const struct store *s, const char *sync, const char *out, long after_us) {
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        child_run(s, sync, out);
    }
    close(ends[1]);
    struct pollfd end = { .fd = ends[0], .events = POLLIN };
    struct timespec instant = { .tv_sec = after_us / 1000000,
                                .tv_nsec = after_us % 1000000 * 1000 };
    if (ppoll(&end, 1, after_us < 0 ? NULL : &instant, NULL) == 0)
        kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ends[0]);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return false;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

static int a_life(uint64_t seed) {
    struct store s = store_make();
    char out[100];
    uint64_t dice = seed;
    int kills = 0;
    snprintf(out, sizeof out, "%s.out", s.dir);
    const char *sync = seed % 2 ? "none" : "interval:5";
    for (bool over = false; !over;) {
        long after_us = kills < 25 ? (long)(dice_next(&dice) % 150000) : -1;
        over = one_run(&s, sync, out, after_us);
        kills += !over;
    }
    struct sums e = expected(), f = found(out);
    assert_memory_equal(&e, &f, sizeof e);
    unlink(out);
    store_remove(&s);
    return kills;
}

// E4, E3, E6, T16, T17: nothing is lost and nothing counted twice, whenever the process is killed.
static void E4_E3_E6_T16_T17_a_killed_flow_adds_up(void **state) {
    int lives = getenv("MILLRACE_LONG") ? 20 : 2, kills = 0;
    (void)state;
    for (int i = 0; i < lives; i++)
        kills += a_life(proof_seed(1) + (uint64_t)i);
    print_message("%d kills in %d lives\n", kills, lives);
}

// ---- A server that is killed ------------------------------------------------------------------

enum { DEATHS = 3 };

struct remote {
    struct serving server;
    char out[100];
    int err;
    char error[512];
};

static struct gate asked = GATE, answered = GATE;

// Reads on when the server has died and another one is in its place.
static int read_and_kill(uint64_t number, mr_flow_out *out, void *arg) {
    if (number % (BLOCKS / (DEATHS + 1)) == 0 && asked.count < DEATHS) {
        gate_pass(&asked);
        gate_wait(&answered, asked.count);
    }
    return read_pairs(number, out, arg);
}

static void *run_remote(void *arg) {
    struct remote *r = arg;
    r->err = run_flow(r->server.url, NULL, read_and_kill, r->out);
    snprintf(r->error, sizeof r->error, "%s", mr_error());
    return NULL;
}

// E2, E4, T13, T20: a lost request is sent again, and nothing counts twice.
static void E2_E4_T13_T20_a_killed_server_changes_no_sum(void **state) {
    struct store s = store_make();
    struct remote r = { .err = 0 };
    pthread_t flow;
    (void)state;
    snprintf(r.out, sizeof r.out, "%s.out", s.dir);
    serving_start(&r.server, s.url, 0);
    assert_int_equal(pthread_create(&flow, NULL, run_remote, &r), 0);
    for (int i = 1; i <= DEATHS; i++) {
        gate_wait(&asked, i);
        uint16_t port = r.server.port;
        serving_end(&r.server, SIGKILL);
        serving_start(&r.server, s.url, port);
        gate_pass(&answered);
    }
    pthread_join(flow, NULL);
    if (r.err < 0)
        fail_msg("%d: %s", r.err, r.error);
    serving_end(&r.server, SIGKILL);
    struct sums e = expected(), f = found(r.out);
    assert_memory_equal(&e, &f, sizeof e);
    unlink(r.out);
    store_remove(&s);
}

// ---- A long text ------------------------------------------------------------------------------

static int split(mr_pair line, mr_flow_out *out, void *arg) {
    const char *at = line.value.data, *end = at + line.value.size;
    int err = 0;
    (void)arg;
    for (const char *word = at; at < end && err >= 0; word = ++at) {
        while (at < end && *at != ' ')
            at++;
        err = mr_flow_emit(out, (mr_bytes){ word, (size_t)(at - word) }, mr_str("1"));
    }
    return err;
}

static int add_up(mr_pair p, uint64_t number, void *arg) {
    char text[32];
    (void)number;
    snprintf(text, sizeof text, "%.*s", (int)p.value.size, (const char *)p.value.data);
    *(uint64_t *)arg += strtoull(text, NULL, 10); // one partition: one at a time
    return 0;
}

static void write_lines(const char *path, uint64_t lines) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < lines; i++)
        fprintf(file, "%" PRIu64 " bottles of beer on the wall %" PRIu64 "\n", i % 1009, i % 97);
    assert_int_equal(fclose(file), 0);
}

static uint64_t memory_now(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %lu", &pages), 1);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

// Sanitizers have a memory of their own.
static bool memory_can_be_measured(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return false;
#else
    return true;
#endif
#else
    return true;
#endif
}

// D4: memory stays flat for any length: a tenth of a million lines here, a million in `make check`.
static void D4_a_long_text_needs_little_memory(void **state) {
    struct store s = store_make();
    char in[100];
    uint64_t lines = getenv("MILLRACE_LONG") ? 1000000 : 100000, sum = 0;
    (void)state;
    snprintf(in, sizeof in, "%s.in", s.dir);
    write_lines(in, lines);
    mr *m = NULL;
    mr_flow *f = NULL;
    mr_options o = { .sync = "none" };
    must(mr_open(s.url, &o, &m));
    must(mr_flow_open(m, "long", NULL, &f));
    must(mr_flow_lines(f, "in", in, NULL));
    must(mr_flow_flat_map(f, "split", "in", split, NULL, NULL));
    must(mr_flow_aggregate(f, "count", "split", mr_flow_sum, NULL, NULL, NULL));
    must(mr_flow_sink(f, "out", "count", add_up, &sum, NULL));
    must(mr_flow_start(f));
    uint64_t most = 0;
    while (mr_flow_wait(f, 20) == MR_EAGAIN)
        most = memory_now() > most ? memory_now() : most;
    must(mr_flow_wait(f, MR_FOREVER));
    assert_int_equal(sum, lines * 8);
    if (memory_can_be_measured())
        assert_in_range(most, 0, MEMORY);
    must(mr_flow_close(f));
    must(mr_close(m));
    unlink(in);
    store_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E4_E3_E6_T16_T17_a_killed_flow_adds_up),
        cmocka_unit_test(E2_E4_T13_T20_a_killed_server_changes_no_sum),
        cmocka_unit_test(D4_a_long_text_needs_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
