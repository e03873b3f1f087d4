// Histories of stages: intervals, what holds between samples, bounds, sums, and how they are
// written.
#include "web/history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEP = 10000 }; // milliseconds of an interval of an hour

static struct history_point busy(uint32_t waiting, uint32_t pushed) {
    return (struct history_point){ .waiting = waiting,
                                   .pushed = pushed,
                                   .wait_p50 = HISTORY_NONE,
                                   .wait_p99 = HISTORY_NONE,
                                   .run_p50 = HISTORY_NONE,
                                   .run_p99 = HISTORY_NONE };
}

static uint32_t add(struct history *h, uint64_t at_ms, struct history_point p) {
    return history_add(h, HISTORY_HOUR, at_ms, &p);
}

// The text that a function has written, as a string in the buffer.
static const char *text_of(struct buffer *out) {
    assert_int_equal(buffer_append(out, "", 1), 0);
    return (const char *)out->data;
}

static void expect_written(const struct history *h, enum history_span span, const char *part) {
    struct buffer out = { 0 };
    struct doc d = { .out = &out };
    history_write(h, span, &d);
    if (!strstr(text_of(&out), part))
        fail_msg("%s is not in %s", part, (const char *)out.data);
    buffer_finish(&out);
}

// B6: an hour and a day are kept in as many points.
static void B6_the_points_of_a_span_are_a_whole_span(void **state) {
    (void)state;
    assert_int_equal(history_step_ms(HISTORY_HOUR), STEP);
    assert_int_equal(history_step_ms(HISTORY_HOUR) * HISTORY_POINTS, 3600 * 1000);
    assert_int_equal(history_step_ms(HISTORY_DAY) * HISTORY_POINTS, 24 * 3600 * 1000);
}

// B6: gauges and times are the greatest of an interval, counts are added up.
static void B6_an_interval_joins_its_samples(void **state) {
    (void)state;
    struct history *h = calloc(1, sizeof *h);
    struct history_point slow = busy(2, 3);
    slow.wait_p50 = 7, slow.wait_p99 = 90;
    assert_int_equal(add(h, 5 * STEP, busy(9, 4)), 1);
    (void)add(h, 5 * STEP + 1000, slow);
    slow.wait_p50 = 5, slow.wait_p99 = 95;
    (void)add(h, 6 * STEP - 1, slow);
    expect_written(h, HISTORY_HOUR, "\"step-ms\":10000,\"from-ms\":50000,\"waiting\":[9]");
    expect_written(h, HISTORY_HOUR, "\"pushed\":[10]");
    expect_written(h, HISTORY_HOUR,
                   "\"wait-p50-ms\":[7],\"wait-p99-ms\":[95],\"run-p50-ms\":[null]");
    free(h);
}

// U12: between two samples the last value holds, and not the greatest of its interval; nothing is
// counted there.
static void U12_idle_intervals_hold_the_last_value(void **state) {
    (void)state;
    struct history *h = calloc(1, sizeof *h);
    (void)add(h, 0, busy(9, 9));
    (void)add(h, 1000, busy(4, 0));
    assert_int_equal(add(h, 3 * STEP, busy(6, 2)), 3);
    expect_written(h, HISTORY_HOUR, "\"waiting\":[9,4,4,6]");
    expect_written(h, HISTORY_HOUR, "\"pushed\":[9,0,0,2]");
    (void)add(h, 2 * STEP, busy(1, 1)); // the clock was set back
    expect_written(h, HISTORY_HOUR, "\"pushed\":[9,0,0,3]");
    free(h);
}

// B6: a history is bounded; after a pause of any length it has the last span, and costs no more.
static void B6_a_history_keeps_the_last_span(void **state) {
    (void)state;
    struct history *h = calloc(1, sizeof *h);
    for (uint32_t i = 0; i < 1000; i++) {
        (void)add(h, (uint64_t)i * STEP, busy(i, 1));
        assert_int_equal(h->count, i < HISTORY_POINTS ? i + 1 : HISTORY_POINTS);
    }
    assert_int_equal(h->points[h->newest % HISTORY_POINTS].waiting, 999);
    expect_written(h, HISTORY_HOUR, "\"from-ms\":6400000,\"waiting\":[640,641,");
    assert_true(add(h, (uint64_t)1 << 50, busy(5, 1)) <= HISTORY_POINTS + 1);
    assert_int_equal(h->count, HISTORY_POINTS);
    expect_written(h, HISTORY_HOUR, "\"waiting\":[999,999,");
    expect_written(h, HISTORY_HOUR, "999,5],\"running\"");
    free(h);
}

// B6: the sum has what each stage had, as far back as any of them goes.
static void B6_stages_are_added_up(void **state) {
    (void)state;
    struct history *old = calloc(1, sizeof *old), *young = calloc(1, sizeof *young);
    struct history *none = calloc(1, sizeof *none);
    struct history_sum *sum = calloc(1, sizeof *sum);
    struct buffer out = { 0 };
    struct doc d = { .out = &out };
    (void)add(old, 100 * STEP, busy(1, 5));
    (void)add(old, 101 * STEP, busy(2, 6)); // not sampled in interval 102 yet
    (void)add(young, 102 * STEP, busy(40, 70));
    sum->newest = 102;
    history_sum_add(sum, none);
    history_sum_add(sum, young);
    history_sum_add(sum, old);
    history_sum_write(sum, HISTORY_HOUR, &d);
    const char *text = text_of(&out);
    assert_non_null(strstr(text, "\"from-ms\":1000000,\"waiting\":[1,2,42]"));
    assert_non_null(strstr(text, "\"pushed\":[5,6,70]"));
    assert_null(strstr(text, "wait-p50"));
    buffer_finish(&out);
    sum->newest = 102 + 2 * HISTORY_POINTS; // an idle stage holds its value, however long
    memset(sum->points, 0, sizeof sum->points);
    history_sum_add(sum, old);
    assert_int_equal(sum->points[0].waiting, 2);
    assert_int_equal(sum->points[0].pushed, 0);
    free(old);
    free(young);
    free(none);
    free(sum);
}

static void B6_a_stage_without_samples_has_empty_columns(void **state) {
    (void)state;
    expect_written(NULL, HISTORY_DAY, "\"step-ms\":240000,\"from-ms\":0,\"waiting\":[],");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B6_the_points_of_a_span_are_a_whole_span),
        cmocka_unit_test(B6_an_interval_joins_its_samples),
        cmocka_unit_test(U12_idle_intervals_hold_the_last_value),
        cmocka_unit_test(B6_a_history_keeps_the_last_span),
        cmocka_unit_test(B6_stages_are_added_up),
        cmocka_unit_test(B6_a_stage_without_samples_has_empty_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
