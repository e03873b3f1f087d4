// Who may be connected, and how long one may keep the server waiting.
#include "server/quota.h"
#include "server/timeouts.h"

#include "base/errors.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { PLACES = 10, OF_ADDRESS = 4 };

static const struct quota_words words = { "clients", "max-clients", "address", "max-per-address" };

static int enter(struct quota *c, uint8_t from, struct quota_member *g) {
    return quota_enter(c, (const uint8_t[QUOTA_HOLDER]){ 10, 0, 0, from }, g);
}

// F44: the last place is taken, the next is refused, and a place that was left is free again.
static void F44_connections_are_counted(void **state) {
    (void)state;
    struct quota c;
    struct quota_member g[PLACES], late = { 0 };
    quota_init(&c, PLACES, OF_ADDRESS, words);
    for (int i = 0; i < PLACES; i++)
        assert_int_equal(quota_enter(&c, NULL, &g[i]), 0);
    assert_int_equal(quota_enter(&c, NULL, &late), MR_EFULL);
    assert_string_equal(error_text(), "10 clients are connected, which is the limit: max-clients");
    quota_leave(&c, &late); // who was not counted is not missed
    assert_int_equal(c.count, PLACES);
    quota_leave(&c, &g[3]);
    quota_leave(&c, &g[3]);
    assert_int_equal(c.count, PLACES - 1);
    assert_int_equal(quota_enter(&c, NULL, &late), 0);
    quota_finish(&c);
}

// F44: one address gets no more than its share; other addresses find room.
static void F44_one_address_does_not_take_all_places(void **state) {
    (void)state;
    struct quota c;
    struct quota_member g[PLACES], other = { 0 };
    quota_init(&c, PLACES, OF_ADDRESS, words);
    for (int i = 0; i < OF_ADDRESS; i++)
        assert_int_equal(enter(&c, 1, &g[i]), 0);
    assert_int_equal(enter(&c, 1, &other), MR_EFULL);
    assert_string_equal(error_text(),
                        "4 clients of this address are connected, which is the limit: "
                        "max-per-address");
    assert_int_equal(c.count, OF_ADDRESS);
    assert_int_equal(enter(&c, 2, &other), 0);
    assert_int_equal(quota_enter(&c, NULL, &g[OF_ADDRESS]), 0); // from this machine
    quota_leave(&c, &g[0]);
    assert_int_equal(enter(&c, 1, &g[0]), 0);
    for (int i = 0; i <= OF_ADDRESS; i++)
        quota_leave(&c, &g[i]);
    quota_leave(&c, &other);
    assert_int_equal(c.count, 0);
    assert_int_equal(c.holders.used, 0); // an address without connections is forgotten
    quota_finish(&c);
}

// F51: without memory a connection is not counted at all.
static void F51_a_quota_needs_memory(void **state) {
    (void)state;
    for (long fails = 0;; fails++) {
        struct quota c;
        struct quota_member g = { 0 };
        quota_init(&c, PLACES, OF_ADDRESS, words);
        mem_fail_after(fails);
        int err = enter(&c, 1, &g);
        bool failed = mem_fail_after(-1) < 0;
        assert_int_equal(c.count, err == 0);
        assert_int_equal(c.holders.used, err == 0);
        quota_finish(&c);
        if (!failed)
            break;
        assert_int_equal(err, MR_ENOMEM);
    }
}

// F42, F43: timeouts expire in the order of their start; a restarted one goes to the end.
static void F42_F43_timeouts_expire_in_the_order_they_began(void **state) {
    (void)state;
    struct timeouts p = { .ms = 100 };
    struct timeout w[4] = { 0 };
    assert_true(timeouts_next_ms(&p) == UINT64_MAX);
    assert_null(timeout_expired(&p, UINT64_MAX - 1));
    for (uint64_t i = 0; i < 4; i++)
        timeout_begin(&p, &w[i], 10 * i);
    assert_int_equal(timeouts_next_ms(&p), 100);
    assert_null(timeout_expired(&p, 99));
    timeout_begin(&p, &w[0], 50);
    timeout_end(&w[2]);
    timeout_end(&w[2]);
    assert_ptr_equal(timeout_expired(&p, 140), &w[1]);
    assert_ptr_equal(timeout_expired(&p, 140), &w[3]);
    assert_null(timeout_expired(&p, 149));
    assert_ptr_equal(timeout_expired(&p, 150), &w[0]);
    assert_true(timeouts_next_ms(&p) == UINT64_MAX);
}

static void F44_without_a_limit_no_timeout_runs(void **state) {
    (void)state;
    struct timeouts p = { 0 };
    struct timeout w = { 0 };
    timeout_begin(&p, &w, 1);
    assert_true(timeouts_next_ms(&p) == UINT64_MAX);
    assert_null(timeout_expired(&p, UINT64_MAX - 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F44_connections_are_counted),
        cmocka_unit_test(F44_one_address_does_not_take_all_places),
        cmocka_unit_test(F51_a_quota_needs_memory),
        cmocka_unit_test(F42_F43_timeouts_expire_in_the_order_they_began),
        cmocka_unit_test(F44_without_a_limit_no_timeout_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
