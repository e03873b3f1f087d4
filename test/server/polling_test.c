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

// Polls until the cost is known; meanwhile the thread is preempted so often.
static void poll_and_look(struct polling *p, uint64_t *preempted, int times, uint64_t now_ns) {
    int polls = 0;
    assert_true(polling_polled(p));
    polling_look(p, *preempted, now_ns);
    *preempted += (uint64_t)times;
    while (!polling_polled(p))
        assert_true(++polls < 1000);
    polling_look(p, *preempted, now_ns);
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
    uint64_t now = 5 * ms, preempted = 1000; // what was before it polled
    sleep_times(&p, MANY, SHORT);
    for (uint64_t rest = 10 * ms; rest < 5000 * ms; rest *= 2) {
        assert_true(polling_pays(&p, now));
        poll_and_look(&p, &preempted, 10, now);
        uint64_t expected = rest < 1000 * ms ? rest : 1000 * ms;
        assert_false(polling_pays(&p, now + expected - 1));
        assert_true(polling_pays(&p, now += expected));
    }
    poll_and_look(&p, &preempted, 1, now); // the processor is its own again
    assert_true(polling_pays(&p, now));
    poll_and_look(&p, &preempted, 10, now);
    assert_true(polling_pays(&p, now + 10 * ms));
}

// A thread that works is preempted now and then, and in a long rest more than a few times.
static void X_what_preempts_a_loop_while_it_rests_does_not_count(void **state) {
    (void)state;
    struct polling p = { 0 };
    uint64_t preempted = 0;
    sleep_times(&p, MANY, SHORT);
    poll_and_look(&p, &preempted, 10, 0);
    assert_false(polling_pays(&p, 10 * ms - 1));
    preempted += 100;
    poll_and_look(&p, &preempted, 1, 10 * ms);
    assert_true(polling_pays(&p, 10 * ms));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P10_a_loop_that_sleeps_for_long_does_not_poll),
        cmocka_unit_test(X_a_loop_whose_sleeps_were_short_polls),
        cmocka_unit_test(X_sleeps_that_are_short_half_of_the_time_are_not_enough),
        cmocka_unit_test(X_a_loop_that_other_threads_preempt_rests_longer_and_longer),
        cmocka_unit_test(X_what_preempts_a_loop_while_it_rests_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
