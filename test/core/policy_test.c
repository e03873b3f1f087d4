// Policies: every one of them at and beyond its limits, as text and back; a bad text names what was
// wrong and what is possible, and changes nothing.
#include "base/errors.h"
#include "core/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { POLICIES = 17, MOST_VALUES = 10 };

#define HUNDRED_YEARS_MS "3153600000000"
#define MORE_YEARS_MS "3153600000001"

static const struct expected {
    const char *name, *value; // the value as it is at the beginning
    const char *good[MOST_VALUES], *bad[MOST_VALUES];
} policies[POLICIES] = {
    { "max-jobs",
      "none",
      { "1", "1000000000000", "none" },
      { "0", "1000000000001", "-1", "1 ", " 1", "many", "1k", "18446744073709551616" } },
    { "max-channel", "none", { "1", "1000000000000", "none" }, { "0", "1000000000001", "x" } },
    { "lease",
      "30000",
      { "1", "1ms", "30s", "5m", "2h", "49d", "4294967295" },
      { "0", "0s", "4294967296", "50d", "none", "-1s", "1.5s", "1w", "s",
        "99999999999999999999" } },
    { "attempts", "10", { "1", "65535" }, { "0", "65536", "none", "-1", "ten" } },
    { "backoff",
      "1000..300000",
      { "0", "1s", "1s..5m", "5..5", "0..1d", HUNDRED_YEARS_MS },
      { "5..4", "1s..", "..1s", "1s...5m", "1s..2s..3s", "none", MORE_YEARS_MS } },
    { "on-dead", "skip", { "halt", "skip" }, { "stop", "HALT", "haltt", "hal" } },
    { "overlap", "brief", { "never", "brief" }, { "always", "none" } },
    { "dedupe-window",
      "3600000",
      { "0", "7d", HUNDRED_YEARS_MS },
      { MORE_YEARS_MS, "none", "-1" } },
    { "retention",
      "3600000,10000",
      { "0", "1h", "1h,5", "0,0", "7d,1000000000000" },
      { "1h,", ",5", "1h,1000000000001", "1h,5,6", "none", "1h,none", "1h 5" } },
    { "concurrency", "none", { "1", "1000000000000", "none" }, { "0", "1000000000001" } },
    { "rate",
      "none",
      { "1", "100/s", "1/m", "7/m", "1/h", "3/h", "3601/h", "1000000000/s", "none" },
      { "0", "0/s", "1/d", "1/", "/s", "1000000001", "1.5/s", "1/s/s", "1/h/s", "1/m/s" } },
    { "max-states", "none", { "1", "1000000000000", "none" }, { "0", "1000000000001" } },
    { "state-ttl", "none", { "1", "1d", HUNDRED_YEARS_MS, "none" }, { "0", "0s", MORE_YEARS_MS } },
    { "high-mark", "10000", { "1", "1000000000000", "none" }, { "0", "1000000000001" } },
    { "group", "off", { "on", "off" }, { "1", "none", "" } },
    { "group-concurrency", "none", { "1", "1000000000000", "none" }, { "0", "1000000000001" } },
    { "group-rate", "none", { "100/s", "30/m", "5/h", "none" }, { "0", "fast", "0/s" } },
};

static int set(struct policy *p, const char *name, const char *value) {
    return policy_set(p, mr_str(name), mr_str(value));
}

// By bytes, without the table: there is no padding.
static bool same(const struct policy *a, const struct policy *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static struct policy fresh(void) {
    return policy_default();
}

// ---- The rows -----------------------------------------------------------------------------------

// Every member of struct policy belongs to one row, and to one only.
static void rows_cover_the_struct(void **state) {
    enum { MEMBERS = sizeof(struct policy) / sizeof(uint64_t) };
    bool covered[MEMBERS] = { false };
    size_t count = 0;
    const struct policy_row *row;
    (void)state;
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++) {
        for (size_t k = 0; k < policy_row_values(row); k++, count++) {
            size_t offset = row->values[k].offset;
            assert_true(offset % sizeof(uint64_t) == 0 && offset < sizeof(struct policy));
            if (covered[offset / sizeof(uint64_t)])
                fail_msg("%s has a member that is another's", row->name);
            covered[offset / sizeof(uint64_t)] = true;
        }
    }
    assert_int_equal(count, MEMBERS);
}

static void rows_have_names_and_texts(void **state) {
    const struct policy_row *row;
    (void)state;
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++) {
        assert_ptr_equal(policy_find(mr_str(row->name)), row); // no other has its name
        assert_int_equal(row->kind == POLICY_CHOICE, row->choices[0] && row->choices[1]);
        assert_true(*row->takes && *row->about);
        if (strlen(row->about) > 46 || row->about[strlen(row->about) - 1] == '.')
            fail_msg("the text of %s is too long for the help, or ends with a stop", row->name);
    }
    assert_null(policy_find(mr_str("")));
    assert_null(policy_find((mr_bytes){ 0 }));
}

// Values at their bounds are possible, beyond them they are not, whichever member it is.
static void rows_have_bounds(void **state) {
    const struct policy_row *row;
    (void)state;
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++) {
        for (size_t k = 0; k < policy_row_values(row); k++) {
            const struct policy_value *value = &row->values[k];
            struct policy p = fresh();
            assert_int_equal(policy_read(&p, value), value->usual);
            assert_true(policy_is_possible(&p));
            bool pair = row->kind == POLICY_DURATIONS;
            *policy_at(&p, &row->values[pair ? 1 : k]) = value->most;
            *policy_at(&p, value) = value->most;
            assert_true(policy_is_possible(&p));
            assert_false(policy_equal(&p, &(struct policy){ 0 }));
            *policy_at(&p, value) = value->most + 1;
            assert_false(policy_is_possible(&p));
            *policy_at(&p, value) = UINT64_MAX;
            assert_false(policy_is_possible(&p));
            *policy_at(&p, value) = 0;
            bool none = row->may_be_none || (!value->least && !(pair && k));
            assert_int_equal(policy_is_possible(&p), none);
        }
    }
}

// What people read has units where it is a duration, and is read again as the same policy.
static void texts_for_people_are_read_again(void **state) {
    char value[POLICY_TEXT];
    (void)state;
    for (size_t i = 0; i < POLICIES; i++) {
        const struct policy_row *row = policy_row(i);
        for (size_t v = 0; v < MOST_VALUES && policies[i].good[v]; v++) {
            struct policy p = fresh(), q = fresh();
            assert_int_equal(set(&p, row->name, policies[i].good[v]), 0);
            policy_text(&p, row, value, sizeof value);
            assert_int_equal(set(&q, row->name, value), 0);
            assert_true(same(&p, &q));
        }
    }
    struct policy p = fresh();
    policy_text(&p, policy_find(mr_str("backoff")), value, sizeof value);
    assert_string_equal(value, "1s..5m");
    policy_text(&p, policy_find(mr_str("retention")), value, sizeof value);
    assert_string_equal(value, "1h,10000");
}

// ---- Values -------------------------------------------------------------------------------------

static void every_policy_has_a_name_and_a_default(void **state) {
    struct policy p = fresh();
    char value[64];
    (void)state;
    for (size_t i = 0; i < POLICIES; i++) {
        assert_string_equal(policy_get(&p, i, value, sizeof value), policies[i].name);
        assert_string_equal(value, policies[i].value);
    }
    assert_null(policy_get(&p, POLICIES, value, sizeof value));
}

static void a_value_may_be_at_its_limit_and_no_further(void **state) {
    (void)state;
    for (size_t i = 0; i < POLICIES; i++) {
        for (size_t v = 0; v < MOST_VALUES && policies[i].good[v]; v++) {
            struct policy p = fresh();
            if (set(&p, policies[i].name, policies[i].good[v]) != 0)
                fail_msg("%s %s: %s", policies[i].name, policies[i].good[v], error_text());
        }
        for (size_t v = 0; v < MOST_VALUES && policies[i].bad[v]; v++) {
            struct policy p = fresh();
            if (set(&p, policies[i].name, policies[i].bad[v]) != MR_EINVAL)
                fail_msg("%s %s was taken", policies[i].name, policies[i].bad[v]);
        }
    }
}

// What policy_get writes policy_set reads, and it is the same policy.
static void a_value_survives_being_written_and_read(void **state) {
    char value[64], again[64];
    (void)state;
    for (size_t i = 0; i < POLICIES; i++) {
        for (size_t v = 0; v < MOST_VALUES && policies[i].good[v]; v++) {
            struct policy p = fresh(), q = fresh();
            assert_int_equal(set(&p, policies[i].name, policies[i].good[v]), 0);
            assert_non_null(policy_get(&p, i, value, sizeof value));
            assert_int_equal(set(&q, policies[i].name, value), 0);
            assert_non_null(policy_get(&q, i, again, sizeof again));
            if (!same(&p, &q))
                fail_msg("%s %s was written %s, which is %s", policies[i].name, policies[i].good[v],
                         value, again);
        }
    }
}

static void a_bad_value_names_the_policy_and_what_is_possible_and_changes_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < POLICIES; i++) {
        for (size_t v = 0; v < MOST_VALUES && policies[i].bad[v]; v++) {
            struct policy p = fresh(), before = p;
            assert_int_equal(set(&p, policies[i].name, policies[i].bad[v]), MR_EINVAL);
            assert_true(same(&p, &before));
            assert_non_null(strstr(error_text(), policies[i].name));
            assert_non_null(strstr(error_text(), policies[i].bad[v]));
            assert_non_null(strstr(error_text(), " takes "));
        }
    }
}

static void an_unknown_policy_is_refused_with_the_known_ones(void **state) {
    static const char *const names[] = { "colour", "", "Lease", "leas", "lease ", "leases" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct policy p = fresh(), before = p;
        assert_int_equal(set(&p, names[i], "1"), MR_EINVAL);
        assert_true(same(&p, &before));
        for (size_t k = 0; k < POLICIES; k++)
            assert_non_null(strstr(error_text(), policies[k].name));
    }
}

// No value, and values of any bytes: refused, whatever the policy.
static void any_bytes_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < POLICIES; i++) {
        struct policy p = fresh(), before = p;
        mr_bytes name = mr_str(policies[i].name);
        assert_int_equal(policy_set(&p, name, (mr_bytes){ 0 }), MR_EINVAL);
        for (int byte = 0; byte < 256; byte++) {
            char value[] = { '1', (char)byte, (char)byte };
            if (byte >= '0' && byte <= '9')
                continue;
            assert_int_equal(policy_set(&p, name, (mr_bytes){ value, 3 }), MR_EINVAL);
        }
        assert_true(same(&p, &before));
    }
}

static void each_policy_changes_its_own_field_only(void **state) {
    char value[64];
    (void)state;
    for (size_t i = 0; i < POLICIES; i++) {
        struct policy p = fresh();
        assert_int_equal(set(&p, policies[i].name, policies[i].good[0]), 0);
        for (size_t k = 0; k < POLICIES; k++) {
            assert_non_null(policy_get(&p, k, value, sizeof value));
            if (k != i)
                assert_string_equal(value, policies[k].value);
        }
    }
}

static void a_longer_first_backoff_lifts_the_longest(void **state) {
    struct policy p = fresh();
    (void)state;
    assert_int_equal(set(&p, "backoff", "1h"), 0);
    assert_int_equal(p.backoff_first_ms, 3600000);
    assert_int_equal(p.backoff_most_ms, 3600000);
}

// ---- Backoff ------------------------------------------------------------------------------------

static void backoff_doubles_up_to_the_most(void **state) {
    struct policy p = fresh();
    (void)state;
    assert_int_equal(set(&p, "backoff", "1000..10000"), 0);
    static const uint64_t expected[] = { 1000, 2000, 4000, 8000, 10000, 10000 };
    for (uint32_t attempt = 1; attempt <= 6; attempt++) {
        uint64_t low = UINT64_MAX, high = 0;
        for (uint64_t jitter = 0; jitter < 10000; jitter++) {
            uint64_t ms = backoff_ms(&p, attempt, jitter);
            low = ms < low ? ms : low;
            high = ms > high ? ms : high;
        }
        assert_int_equal(low, expected[attempt - 1] * 4 / 5);
        assert_int_equal(high, expected[attempt - 1] * 6 / 5);
    }
    assert_in_range(backoff_ms(&p, 65535, UINT64_MAX), 8000, 12000);
}

static void backoff_bears_extremes(void **state) {
    struct policy p = fresh();
    (void)state;
    assert_int_equal(set(&p, "backoff", "0"), 0);
    assert_int_equal(backoff_ms(&p, 65535, UINT64_MAX), 0);
    assert_int_equal(set(&p, "backoff", HUNDRED_YEARS_MS), 0);
    assert_true(backoff_ms(&p, 65535, UINT64_MAX) <= UINT64_C(3153600000000) * 6 / 5);
    assert_int_equal(set(&p, "backoff", "1..1"), 0);
    assert_int_equal(backoff_ms(&p, 1, UINT64_MAX), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_cover_the_struct),
        cmocka_unit_test(rows_have_names_and_texts),
        cmocka_unit_test(rows_have_bounds),
        cmocka_unit_test(texts_for_people_are_read_again),
        cmocka_unit_test(every_policy_has_a_name_and_a_default),
        cmocka_unit_test(a_value_may_be_at_its_limit_and_no_further),
        cmocka_unit_test(a_value_survives_being_written_and_read),
        cmocka_unit_test(a_bad_value_names_the_policy_and_what_is_possible_and_changes_nothing),
        cmocka_unit_test(an_unknown_policy_is_refused_with_the_known_ones),
        cmocka_unit_test(any_bytes_are_refused),
        cmocka_unit_test(each_policy_changes_its_own_field_only),
        cmocka_unit_test(a_longer_first_backoff_lifts_the_longest),
        cmocka_unit_test(backoff_doubles_up_to_the_most),
        cmocka_unit_test(backoff_bears_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
