// When a loop polls its sockets before it sleeps.
#include "server/polling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { SHORT = POLL_NS / 5, LONG = POLL_NS * 10, FEW = 8, MANY = 100 };
static const uint64_t ms = 1000000;

static void sleep_times(struct polling *p, int times, uint64_t ns) {
    for (int i = 0; i < times; i++)
        polling_slept(p, ns);
}

// Polls as often as it takes until the cost is looked at.
static void poll_and_look(struct polling *p, uint64_t preempted, uint64_t now_ns) {
    int polls = 0;
    while (!polling_polled(p))
        assert_true(++polls < 1000);
    polling_look(p, preempted, now_ns);
}

static void P10_a_loop_that_sleeps_for_long_does_not_poll(void **state) {
    (void)state;
    struct polling p = { 0 };
    assert_false(polling_pays(&p, 0));
    sleep_times(&p, MANY, LONG);
    assert_false(polling_pays(&p, 0));
    sleep_times(&p, MANY, POLL_NS); // polling would just miss it
    assert_false(polling_pays(&p, 0));
}

static void X_a_loop_whose_sleeps_were_short_polls(void **state) {
    (void)state;
    struct polling p = { 0 };
    sleep_times(&p, FEW, SHORT);
    assert_false(polling_pays(&p, 0));
    sleep_times(&p, MANY, SHORT);
    assert_true(polling_pays(&p, 0));
    sleep_times(&p, 1, LONG);
    assert_true(polling_pays(&p, 0));
    sleep_times(&p, FEW, LONG);
    assert_false(polling_pays(&p, 0));
}

// Every second sleep is long: half of what is polled would be wasted.
static void X_sleeps_that_are_short_half_of_the_time_are_not_enough(void **state) {
    (void)state;
    struct polling p = { 0 };
    for (int i = 0; i < MANY; i++) {
        sleep_times(&p, 1, SHORT);
        sleep_times(&p, 1, LONG);
        assert_false(polling_pays(&p, 0));
    }
}

static void X_a_loop_that_other_threads_preempt_rests_longer_and_longer(void **state) {
    (void)state;
    struct polling p = { 0 };
    uint64_t now = 5 * ms, preempted = 1000;
    sleep_times(&p, MANY, SHORT);
    polling_look(&p, preempted, now); // what was before it polled
    p.rest_until_ns = p.rest_ns = 0;
    for (uint64_t rest = 10 * ms; rest < 5000 * ms; rest *= 2) {
        assert_true(polling_pays(&p, now));
        poll_and_look(&p, preempted += 10, now);
        uint64_t expected = rest < 1000 * ms ? rest : 1000 * ms;
        assert_false(polling_pays(&p, now + expected - 1));
        assert_true(polling_pays(&p, now += expected));
    }
    poll_and_look(&p, preempted += 1, now); // the processor is its own again
    assert_true(polling_pays(&p, now));
    poll_and_look(&p, preempted += 10, now);
    assert_true(polling_pays(&p, now + 10 * ms));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P10_a_loop_that_sleeps_for_long_does_not_poll),
        cmocka_unit_test(X_a_loop_whose_sleeps_were_short_polls),
        cmocka_unit_test(X_sleeps_that_are_short_half_of_the_time_are_not_enough),
        cmocka_unit_test(X_a_loop_that_other_threads_preempt_rests_longer_and_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
