// A real process on a real disk, killed at random instants, again and again: at work, while
// opening, while cleaning. What it had acknowledged lies in memory shared with its successor, which
// checks it and goes on. A long workload is drained, and a new one begins.
//
// MILLRACE_SECONDS says how long (8), MILLRACE_SEED which histories.
#include "support/folder.h"
#include "support/proof.h"
#include "support/workload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEPS_SYNCED = 1500, STEPS_UNSYNCED = 30000, SEGMENT = 64 << 10 };

// Works until it is killed. The pipe shows the parent if it ends by itself.
static _Noreturn void child_work(struct workload *h, const struct shard_options *options) {
    must(h, workload_open(h, options) == 0);
    for (;;)
        must(h, workload_go_on(h, 1000) == 0);
}

// Lets a child work for some milliseconds, then kills it. False: it ended in another way.
static bool kill_one(struct workload *h, const struct shard_options *options, uint64_t after_us) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        child_work(h, options);
    }
    close(ends[1]);
    struct pollfd end = { .fd = ends[0], .events = POLLIN };
    struct timespec instant = { .tv_nsec = (long)after_us * 1000 };
    ppoll(&end, 1, &instant, NULL);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ends[0]);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void a_life(struct workload *h, uint64_t seed, uint64_t until_ms, uint64_t *kills) {
    char dir[] = "/tmp/kill_test.XXXXXX";
    assert_non_null(mkdtemp(dir));
    // What the system has taken survives the process: with sync none, too, nothing may be lost.
    bool synced = seed % 2;
    struct shard_options options = { .store = store_in(dir),
                                     .log = { .sync = synced ? LOG_SYNC_ALWAYS : LOG_SYNC_NONE,
                                              .segment_size = SEGMENT } };
    workload_begin(h, seed);
    uint64_t dice = seed;
    while (h->step < (synced ? STEPS_SYNCED : STEPS_UNSYNCED) && monotonic_ms() < until_ms) {
        // Sometimes so early that it is still opening.
        uint64_t after_us = dice_next(&dice) % (dice_next(&dice) % 4 ? 60000 : 4000);
        if (!kill_one(h, &options, after_us))
            fail_msg("seed %llu: the child ended by itself", (unsigned long long)seed);
        ++*kills;
    }
    must(h, workload_open(h, &options) == 0);
    workload_drain(h);
    workload_close(h);
    folder_remove(dir);
}

static void nothing_acknowledged_is_lost_by_a_kill(void **state) {
    (void)state;
    struct workload *h =
        mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(h != MAP_FAILED);
    uint64_t until = proof_until_ms(8, 30);
    uint64_t seed = proof_seed(1), kills = 0, commits = 0;
    do {
        a_life(h, seed++, until, &kills);
        commits += h->commits;
    } while (monotonic_ms() < until);
    print_message("%llu kills, %llu commits\n", (unsigned long long)kills,
                  (unsigned long long)commits);
    munmap(h, sizeof *h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_acknowledged_is_lost_by_a_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
