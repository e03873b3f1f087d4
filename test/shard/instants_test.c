// When schedules are due: random cron expressions in zones with all kinds of rules, against a walk
// over every minute of years by the clock of the C library; and single dates that people know.
#include "shard/instants.h"
#include "shard/zones.h"

#include "base/errors.h"
#include "millrace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct zones zones;

static const struct zone *zone_named(const char *name) {
    const struct zone *zone = NULL;
    int err = zones_get(&zones, mr_str(name), 0, &zone);
    if (err < 0)
        fail_msg("%s: %s", name, error_text());
    return zone;
}

static struct instants instants_for(const char *cron, const char *zone) {
    struct instants in = { 0 };
    int err = cron_parse(mr_str(cron), &in.cron);
    if (err < 0)
        fail_msg("%s: %s", cron, error_text());
    in.zone = zone_named(zone);
    return in;
}

// 2024-03-31T01:00:00Z
static uint64_t at_utc(const char *text) {
    struct tm t = { 0 };
    assert_int_equal(sscanf(text, "%d-%d-%dT%d:%d:%d", &t.tm_year, &t.tm_mon, &t.tm_mday,
                            &t.tm_hour, &t.tm_min, &t.tm_sec),
                     6);
    t.tm_year -= 1900;
    t.tm_mon--;
    return (uint64_t)timegm(&t) * 1000;
}

static void expect_ticks(const char *cron, const char *zone, const char *after, const char *ticks) {
    struct instants in = instants_for(cron, zone);
    uint64_t at = at_utc(after);
    char got[400] = "", one[32];
    size_t want = 1;
    for (const char *p = ticks; *p; p++)
        want += *p == ' ';
    for (size_t i = 0; i < want; i++) {
        at = instants_next(&in, at);
        time_t s = (time_t)(at / 1000);
        struct tm t;
        gmtime_r(&s, &t);
        strftime(one, sizeof one, "%Y-%m-%dT%H:%M:%SZ", &t);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "", one);
    }
    assert_string_equal(got, ticks);
}

// G1: in its time zone, also when the clock changes.
static void G1_ticks_follow_the_clock_of_their_zone(void **state) {
    (void)state;
    expect_ticks("0 9 * * mon-fri", "Europe/Berlin", "2024-03-28T12:00:00Z",
                 "2024-03-29T08:00:00Z 2024-04-01T07:00:00Z 2024-04-02T07:00:00Z");
    expect_ticks("30 2 * * *", "UTC", "2024-03-30T12:00:00Z",
                 "2024-03-31T02:30:00Z 2024-04-01T02:30:00Z");
    expect_ticks("@monthly", "America/New_York", "2024-02-10T00:00:00Z",
                 "2024-03-01T05:00:00Z 2024-04-01T04:00:00Z");
    expect_ticks("0 0 29 2 *", "UTC", "2024-03-01T00:00:00Z",
                 "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z");
    expect_ticks("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z");
}

// G1: a time that does not exist is due at the moment of the change, one that occurs twice once.
static void G1_times_around_a_change_of_the_clock(void **state) {
    (void)state;
    // In Berlin the clock goes from 2:00 to 3:00 on 31 March, and from 3:00 to 2:00 on 27 October.
    expect_ticks("30 2 * * *", "Europe/Berlin", "2024-03-30T02:00:00Z",
                 "2024-03-31T01:00:00Z 2024-04-01T00:30:00Z");
    expect_ticks("*/10 2 31 3 *", "Europe/Berlin", "2024-03-30T12:00:00Z",
                 "2024-03-31T01:00:00Z 2025-03-31T00:00:00Z");
    expect_ticks("30 2 * * *", "Europe/Berlin", "2024-10-26T02:00:00Z",
                 "2024-10-27T00:30:00Z 2024-10-28T01:30:00Z");
    expect_ticks("0 2,3 * * *", "Europe/Berlin", "2024-10-26T12:00:00Z",
                 "2024-10-27T00:00:00Z 2024-10-27T02:00:00Z");
    // Every hour goes by elapsed time: nothing is left out and nothing is due twice at once.
    expect_ticks("30 * * * *", "Europe/Berlin", "2024-10-26T23:00:00Z",
                 "2024-10-26T23:30:00Z 2024-10-27T00:30:00Z 2024-10-27T01:30:00Z "
                 "2024-10-27T02:30:00Z");
    expect_ticks("30 * * * *", "Europe/Berlin", "2024-03-31T00:00:00Z",
                 "2024-03-31T00:30:00Z 2024-03-31T01:30:00Z");
    // Samoa had no 30 December 2011.
    expect_ticks("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z",
                 "2011-12-30T10:00:00Z 2012-12-29T22:00:00Z");
}

static void an_interval_is_added_to_its_last_instant(void **state) {
    (void)state;
    struct instants in = { .every_ms = 90000 };
    assert_int_equal(instants_next(&in, 1000), 91000);
    assert_int_equal(instants_last(&in, 91000, 91000), 91000);
    assert_int_equal(instants_last(&in, 91000, 91000 + 89999), 91000);
    assert_int_equal(instants_last(&in, 91000, 91000 + 90000 * 7 + 1), 91000 + 90000 * 7);
    assert_int_equal(instants_last_few(&in, 91000, 91000 + 90000 * 7, 8), 91000);
    assert_int_equal(instants_last_few(&in, 91000, 91000 + 90000 * 7, 3), 91000 + 90000 * 5);
    assert_int_equal(instants_next(&in, INSTANTS_END_MS - 5), INSTANTS_END_MS - 1);
}

// ---- Refusals ---------------------------------------------------------------------------------

static void expect_refused(const char *cron, const char *because) {
    struct cron out;
    int err = cron_parse(mr_str(cron), &out);
    if (err != MR_EINVAL)
        fail_msg("'%s' is not refused", cron);
    if (!strstr(error_text(), because))
        fail_msg("'%s' is refused with: %s", cron, error_text());
}

static void a_refused_expression_names_its_field_and_what_is_allowed(void **state) {
    (void)state;
    expect_refused("60 * * * *", "the minute '60'");
    expect_refused("60 * * * *", "0 to 59");
    expect_refused("* 24 * * *", "the hour '24'");
    expect_refused("* * 0 * *", "the day of the month '0'");
    expect_refused("* * 32 * *", "1 to 31");
    expect_refused("* * * 13 *", "the month '13'");
    expect_refused("* * * foo *", "jan to dec");
    expect_refused("* * * * 8", "the weekday '8'");
    expect_refused("* * * * funday", "sun to sat");
    expect_refused("5-1 * * * *", "ends before it begins");
    expect_refused("5/10 * * * *", "a step without a range");
    expect_refused("*/0 * * * *", "a step that is not a number");
    expect_refused("*/x * * * *", "a step that is not a number");
    expect_refused("1, * * * *", "the minute ''");
    expect_refused("-5 * * * *", "the minute '-5'");
    expect_refused("1--5 * * * *", "the minute '1--5'");
    expect_refused("99999999999 * * * *", "the minute '99999999999'");
    expect_refused("* * * *", "has 4");
    expect_refused("* * * * * *", "has 6");
    expect_refused("", "has 0");
    expect_refused("@reboot", "@hourly");
    expect_refused("@", "@hourly");
    expect_refused("0 0 31 2 *", "never fires");
    expect_refused("0 0 30 feb *", "never fires");
    expect_refused("0 0 31 2,4,6,9,11 *", "never fires");
}

static void unknown_zones_are_refused(void **state) {
    static const char *const bad[] = { "Europe/Atlantis",  "",          "/etc/passwd",
                                       "../../etc/passwd", "Europe",    "a\nb",
                                       "zone.tab",         "tzdata.zi", "Europe/Berlin ",
                                       "éurope",           "-",         "posixrules/.." };
    const struct zone *zone = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(zones_get(&zones, mr_str(bad[i]), 0, &zone), MR_EINVAL);
        assert_non_null(strstr(error_text(), "time zone"));
        assert_null(zone);
    }
    assert_int_equal(zones_get(&zones, mr_str("UTC"), 0, &zone), 0);
}

// Damaged files are refused or read, and never harm; whatever is read can be searched.
static void a_file_that_is_cut_or_changed_does_no_harm(void **state) {
    static uint8_t file[64 << 10], broken[64 << 10];
    FILE *in = fopen("/usr/share/zoneinfo/Europe/Berlin", "rb");
    (void)state;
    assert_non_null(in);
    size_t size = fread(file, 1, sizeof file, in);
    fclose(in);
    struct zone zone;
    for (size_t cut = 0; cut < size; cut++)
        if (zone_parse(bytes_of(file, cut), &zone) == 0)
            zone_finish(&zone);
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 20000; round++) {
        memcpy(broken, file, size);
        for (int k = 0; k < 3; k++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            broken[seed % size] = (uint8_t)(seed >> 40);
        }
        if (zone_parse(bytes_of(broken, size), &zone) < 0)
            continue;
        struct instants i = { .zone = &zone };
        assert_int_equal(cron_parse(mr_str("30 2 * * *"), &i.cron), 0);
        uint64_t after = at_utc("2024-03-30T00:00:00Z");
        assert_true(instants_next(&i, after) > after);
        zone_finish(&zone);
    }
}

// ---- Against a walk over every minute ---------------------------------------------------------

static uint64_t seed = 1;

static uint32_t draw(uint32_t below) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)((seed >> 20) % below);
}

// A random field, and which values it allows.
struct drawn_field {
    char text[100];
    bool allows[64], begins_with_star;
};

static void allow(struct drawn_field *f, uint32_t from, uint32_t to, uint32_t step) {
    for (uint32_t n = from; n <= to; n += step)
        f->allows[n] = true;
}

static struct drawn_field draw_field(uint32_t least, uint32_t most, const char *names) {
    struct drawn_field f = { 0 };
    uint32_t kind = draw(10), parts = kind < 4 ? 0 : 1 + draw(3);
    if (!parts) {
        uint32_t step = kind < 3 ? 1 : 1 + draw(most);
        f.begins_with_star = true;
        snprintf(f.text, sizeof f.text, step == 1 ? "*" : "*/%u", step);
        allow(&f, least, most, step);
    }
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t from = least + draw(most - least + 1), to = from + draw(most - from + 1);
        uint32_t step = 1 + draw(5), shape = draw(4);
        char *p = f.text + strlen(f.text);
        size_t room = sizeof f.text - strlen(f.text);
        const char *comma = i ? "," : "";
        if (shape == 0 && *names) {
            snprintf(p, room, "%s%.3s", comma, names + 3 * (from - least));
            allow(&f, from, from, 1);
        } else if (shape == 1) {
            snprintf(p, room, "%s%u", comma, from);
            allow(&f, from, from, 1);
        } else if (shape == 2) {
            snprintf(p, room, "%s%u-%u", comma, from, to);
            allow(&f, from, to, 1);
        } else {
            snprintf(p, room, "%s%u-%u/%u", comma, from, to, step);
            allow(&f, from, to, step);
        }
    }
    return f;
}

struct drawn_cron {
    struct drawn_field minute, hour, day, month, weekday;
    char text[600];
};

static struct drawn_cron draw_cron(void) {
    struct drawn_cron c = { draw_field(0, 59, ""),
                            draw_field(0, 23, ""),
                            draw_field(1, 31, ""),
                            draw_field(1, 12, "janFebmaraprmayjunjulAUGsepoctnovdec"),
                            draw_field(0, 6, "sunMONtuewedthufrisat"),
                            "" };
    snprintf(c.text, sizeof c.text, "%s  %s %s\t%s %s", c.minute.text, c.hour.text, c.day.text,
             c.month.text, c.weekday.text);
    return c;
}

static bool allows(const struct drawn_cron *c, int64_t local_minute) {
    static time_t day = -1; // whose date is in `t`
    static struct tm t;
    time_t seconds = (time_t)local_minute * 60;
    if (seconds / 86400 != day) {
        day = seconds / 86400;
        gmtime_r(&seconds, &t);
    }
    if (!c->minute.allows[local_minute % 60] || !c->hour.allows[local_minute / 60 % 24])
        return false;
    bool by_day = c->day.allows[t.tm_mday], by_weekday = c->weekday.allows[t.tm_wday];
    bool either = !c->day.begins_with_star && !c->weekday.begins_with_star;
    return c->month.allows[t.tm_mon + 1] && (either ? by_day || by_weekday : by_day && by_weekday);
}

enum { MINUTES = 420 * 24 * 60 };

static int64_t local_at[MINUTES]; // what the local clock shows, in minutes
static uint64_t ticks[MINUTES + 1];

static void walk_clock(const char *zone, uint64_t from_ms) {
    setenv("TZ", zone, 1);
    tzset();
    for (size_t i = 0; i < MINUTES; i++) {
        time_t at = (time_t)(from_ms / 1000 + i * 60);
        struct tm t;
        localtime_r(&at, &t);
        local_at[i] = ((int64_t)at + t.tm_gmtoff) / 60;
    }
    unsetenv("TZ");
}

// Every minute: which local times has the clock shown or skipped for the first time?
static size_t walk_ticks(const struct drawn_cron *c, uint64_t from_ms) {
    bool hourly = true;
    for (int hour = 0; hour < 24; hour++)
        hourly = hourly && c->hour.allows[hour];
    int64_t latest = local_at[0]; // the walk does not begin in an hour that occurs twice
    size_t count = 0;
    for (size_t i = 1; i < MINUTES; i++) {
        bool due = hourly && allows(c, local_at[i]);
        for (; !hourly && latest < local_at[i]; latest++)
            due = due || allows(c, latest + 1);
        if (due)
            ticks[count++] = from_ms + i * 60000;
    }
    return count;
}

static void compare_searches(const struct instants *in, size_t count) {
    for (int i = 0; i < 20 && count > 2; i++) {
        size_t from = draw((uint32_t)count - 1), to = from + draw((uint32_t)(count - from));
        uint32_t most = 1 + draw(1000);
        uint64_t upto = ticks[to];
        if (to + 1 < count)
            upto += draw((uint32_t)((ticks[to + 1] - upto) / 1000)) * UINT64_C(1000);
        assert_int_equal(instants_last(in, ticks[from], upto), ticks[to]);
        size_t few = to - from + 1 > most ? to + 1 - most : from;
        assert_int_equal(instants_last_few(in, ticks[from], upto, most), ticks[few]);
    }
}

static size_t compare_ticks(const char *zone, uint64_t from_ms) {
    struct drawn_cron c = draw_cron();
    struct instants in = { .zone = zone_named(zone) };
    size_t count = walk_ticks(&c, from_ms);
    if (cron_parse(mr_str(c.text), &in.cron) < 0) {
        if (!strstr(error_text(), "never fires"))
            fail_msg("'%s': %s", c.text, error_text());
        assert_int_equal(count, 0);
        return 0;
    }
    uint64_t at = from_ms;
    for (size_t i = 0; i < count; i++) {
        uint64_t next = instants_next(&in, at);
        if (next != ticks[i])
            fail_msg("'%s' in %s: tick %zu after %llu is %llu, not %llu", c.text, zone, i,
                     (unsigned long long)at, (unsigned long long)next,
                     (unsigned long long)ticks[i]);
        at = next;
    }
    assert_true(instants_next(&in, at) >= from_ms + UINT64_C(60000) * MINUTES);
    compare_searches(&in, count);
    return count;
}

// G1: as a walk by the clock of the C library over each minute of 420 days has it.
static void G1_random_expressions_are_due_as_a_walk_over_every_minute_says(void **state) {
    static const char *const names[] = {
        "Europe/Berlin",    "America/New_York",  "Australia/Lord_Howe", "America/Sao_Paulo",
        "Asia/Kathmandu",   "Africa/Casablanca", "Europe/Dublin",       "America/Nuuk",
        "Antarctica/Troll", "America/St_Johns",  "Pacific/Apia",        "Asia/Gaza"
    };
    static const char *const years[] = { "2010-12-01T00:00:00Z", "2016-06-01T00:00:00Z",
                                         "2023-02-01T00:00:00Z", "2036-05-01T00:00:00Z",
                                         "2061-01-01T00:00:00Z" };
    size_t found = 0;
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (size_t y = 0; y < 2; y++) {
            uint64_t from = at_utc(years[(n + 2 * y + y) % 5]);
            walk_clock(names[n], from);
            for (int i = 0; i < 8; i++)
                found += compare_ticks(names[n], from);
        }
    }
    assert_true(found > 50000);
}

static int finish(void **state) {
    (void)state;
    zones_finish(&zones);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G1_ticks_follow_the_clock_of_their_zone),
        cmocka_unit_test(G1_times_around_a_change_of_the_clock),
        cmocka_unit_test(an_interval_is_added_to_its_last_instant),
        cmocka_unit_test(a_refused_expression_names_its_field_and_what_is_allowed),
        cmocka_unit_test(unknown_zones_are_refused),
        cmocka_unit_test(a_file_that_is_cut_or_changed_does_no_harm),
        cmocka_unit_test(G1_random_expressions_are_due_as_a_walk_over_every_minute_says),
    };
    return cmocka_run_group_tests(tests, NULL, finish);
}
