// The main proof of the core: random histories against the model, and that the proof can fail.
//
//     MILLRACE_SECONDS=60   longer than the default slice (MILLRACE_LONG=1: ten minutes)
//     MILLRACE_SEED=7       that history alone, printed as a script
//
// A history that fails is made short and printed; its seed replays it.
#include "support/history.h"
#include "support/proof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <inttypes.h>

static void report(struct history *h, struct trouble trouble) {
    struct history_result result;
    fprintf(stderr, "seed %" PRIu64 " fails; made short:\n", h->seed);
    history_shrink(h, trouble);
    history_run(h, trouble, stderr, &result);
    fprintf(stderr, "  => %s\n", result.why);
}

static void one_seed(uint64_t seed) {
    static struct history h;
    struct history_result result;
    history_make(&h, seed);
    history_run(&h, NO_TROUBLE, stderr, &result);
    fprintf(stderr, "  => %s\n", result.good ? "good" : result.why);
    if (!result.good)
        report(&h, NO_TROUBLE);
    assert_true(result.good);
}

// Rules 1 to 18 as far as a single core shows them (A2, A5, A6, A7, C1 to C9, F6, F7, F15, F19).
static void histories_agree_with_the_model(void **state) {
    (void)state;
    static struct history h;
    uint64_t only = proof_seed(0), begun_ms = monotonic_ms(), until_ms = proof_until_ms(8, 600);
    if (only) {
        one_seed(only);
        return;
    }
    uint64_t seed = 1, steps = 0, ambiguous = 0;
    for (; monotonic_ms() < until_ms; seed++) {
        struct history_result result;
        history_make(&h, seed);
        history_run(&h, NO_TROUBLE, NULL, &result);
        steps += result.steps;
        ambiguous += result.ambiguous;
        if (!result.good)
            report(&h, NO_TROUBLE);
        assert_true(result.good);
    }
    print_message("%" PRIu64 " histories, %" PRIu64 " steps, %" PRIu64 " a second; %" PRIu64
                  " ended early where the rules leave an order open\n",
                  seed - 1, steps, steps * 1000 / (monotonic_ms() - begun_ms + 1), ambiguous);
}

// Rule 18. The second core sees time in jumps and lies elsewhere in memory: same records.
static void same_commands_give_the_same_records(void **state) {
    (void)state;
    static struct history h;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        history_make(&h, seed);
        h.features &=
            ~(unsigned)
                FEATURE_ROOM; // a pusher that is notified of room pushes again, at another time
        bool same = history_repeats(&h);
        if (!same)
            fprintf(stderr, "seed %" PRIu64 ": other records\n", seed);
        assert_true(same);
    }
}

// A wrong core is found within a few hundred histories, and the history can be made short.
static void planted_faults_are_found(void **state) {
    (void)state;
    static struct history h;
    for (enum fault fault = FAULT_NONE + 1; fault < FAULTS; fault++) {
        struct trouble trouble = NO_TROUBLE;
        struct history_result result = { .good = true };
        trouble.fault = fault;
        for (uint64_t seed = 1; result.good && seed < 2000; seed++) {
            history_make(&h, seed);
            history_run(&h, trouble, NULL, &result);
        }
        assert_false(result.good);
        size_t before = h.count;
        history_shrink(&h, trouble);
        print_message("fault %d: %s (%zu steps, made %zu)\n", (int)fault, result.why, before,
                      h.count);
        assert_true(h.count <= 12);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histories_agree_with_the_model),
        cmocka_unit_test(same_commands_give_the_same_records),
        cmocka_unit_test(planted_faults_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
