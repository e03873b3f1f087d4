// See cron.h. A field is a set of bits; the next match is found by the largest unit first: a month,
// then a day of it, an hour, a minute.
#include "base/cron.h"

#include "base/errors.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

// ---- Dates ------------------------------------------------------------------------------------

enum { MINUTES_A_DAY = 24 * 60 };

static bool is_leap_year(int64_t year) {
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

uint32_t civil_month_days(int64_t year, uint32_t month) {
    static const uint8_t days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    return days[month - 1] + (month == 2 && is_leap_year(year));
}

static int64_t divide_down(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

// Days before the first of January of a year.
static int64_t days_before_year(int64_t year) {
    int64_t y = year - 1;
    int64_t since_1 = y * 365 + divide_down(y, 4) - divide_down(y, 100) + divide_down(y, 400);
    return since_1 - 719162; // those before 1970
}

int64_t civil_days(int64_t year, uint32_t month, uint32_t day) {
    int64_t days = days_before_year(year);
    for (uint32_t m = 1; m < month; m++)
        days += civil_month_days(year, m);
    return days + day - 1;
}

struct civil_date civil_from_days(int64_t days) {
    int64_t year = 1970 + divide_down(days * 400, 146097);
    while (days < days_before_year(year))
        year--;
    while (days >= days_before_year(year + 1))
        year++;
    struct civil_date date = { .year = year, .month = 1 };
    int64_t left = days - days_before_year(year);
    for (; left >= civil_month_days(year, date.month); date.month++)
        left -= civil_month_days(year, date.month);
    date.day = (uint32_t)left + 1;
    return date;
}

static uint32_t weekday_of(int64_t days) {
    int64_t since_sunday = (days + 4) % 7; // 1970-01-01 was a Thursday
    return (uint32_t)(since_sunday < 0 ? since_sunday + 7 : since_sunday);
}

// ---- Parsing ----------------------------------------------------------------------------------

struct cron_field {
    const char *name;
    uint32_t least, most;
    const char *names; // three letters each, for the values from `least` on
};

static const struct cron_field cron_fields[] = {
    { "minute", 0, 59, "" },
    { "hour", 0, 23, "" },
    { "day of the month", 1, 31, "" },
    { "month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec" },
    { "weekday", 0, 7, "sunmontuewedthufrisat" },
};

enum { CRON_FIELDS = sizeof cron_fields / sizeof *cron_fields };

static int cron_refuse(const struct cron_field *f, mr_bytes value, const char *why) {
    char allowed[64];
    (void)snprintf(allowed, sizeof allowed, "%u to %u%s", f->least, f->most,
                   f->least == 1 && *f->names ? ", or jan to dec"
                   : *f->names                ? ", or sun to sat"
                                              : "");
    return error_set(MR_EINVAL,
                     "the %s '%.*s' of a cron expression %s: it takes %s, as 5, 1-5, */5, 1-9/2 or "
                     "a list of these",
                     f->name, (int)(value.size < 40 ? value.size : 40),
                     value.size ? (const char *)value.data : "", why, allowed);
}

// Takes what is before the first `mark` off the front of `text`; all of it if there is none.
static mr_bytes cut_at(mr_bytes *text, char mark) {
    const char *data = text->data, *found = text->size ? memchr(data, mark, text->size) : NULL;
    size_t size = found ? (size_t)(found - data) : text->size;
    mr_bytes part = { data, size };
    text->data = data + size;
    text->size -= size;
    if (found) {
        text->data = data + size + 1;
        text->size--;
    }
    return part;
}

static bool cron_number_read(mr_bytes text, uint32_t *out) {
    const char *p = text.data;
    uint32_t n = 0;
    if (!text.size || text.size > 4)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        if (!isdigit((unsigned char)p[i]))
            return false;
        n = n * 10 + (uint32_t)(p[i] - '0');
    }
    *out = n;
    return true;
}

static bool cron_value_read(const struct cron_field *f, mr_bytes text, uint32_t *out) {
    if (cron_number_read(text, out))
        return *out >= f->least && *out <= f->most;
    for (uint32_t i = 0; f->names[(size_t)3 * i]; i++) {
        char name[4] = "";
        memcpy(name, f->names + (size_t)3 * i, 3);
        if (bytes_are_word(text, name)) {
            *out = f->least + i;
            return true;
        }
    }
    return false;
}

// Sunday ends a range as 7: fri-sun.
static int range_read(const struct cron_field *f, mr_bytes part, uint32_t *from, uint32_t *to) {
    mr_bytes rest = part, first = cut_at(&rest, '-');
    bool is_range = first.size < part.size;
    if (bytes_equal(part, mr_str("*"))) {
        *from = f->least;
        *to = f->most == 7 ? 6 : f->most;
        return 1;
    }
    if (!cron_value_read(f, first, from) || (is_range && !cron_value_read(f, rest, to)))
        return cron_refuse(f, part, "is not one of its values");
    if (!is_range)
        *to = *from;
    if (is_range && f->most == 7 && *to == 0 && *from)
        *to = 7;
    if (*to < *from)
        return cron_refuse(f, part, "is a range that ends before it begins");
    return is_range;
}

static int part_read(const struct cron_field *f, mr_bytes part, uint64_t *bits) {
    mr_bytes step_text = part, range = cut_at(&step_text, '/');
    uint32_t from = 0, to = 0, step = 1;
    int is_range = range_read(f, range, &from, &to);
    if (is_range < 0)
        return is_range;
    if (range.size < part.size) {
        if (!is_range)
            return cron_refuse(f, part, "has a step without a range");
        if (!cron_number_read(step_text, &step) || !step)
            return cron_refuse(f, part, "has a step that is not a number from 1 on");
    }
    for (uint32_t n = from; n <= to; n += step)
        *bits |= UINT64_C(1) << (f->most == 7 ? n % 7 : n);
    return 0;
}

static int field_read(const struct cron_field *f, mr_bytes text, uint64_t *out) {
    uint64_t bits = 0;
    int err = 0;
    bool more = true;
    while (err == 0 && more) {
        size_t before = text.size;
        mr_bytes part = cut_at(&text, ',');
        more = part.size < before;
        err = part_read(f, part, &bits);
    }
    if (err == 0)
        *out = bits;
    return err;
}

static const struct {
    const char *name, *stands_for;
} cron_names[] = {
    { "@hourly", "0 * * * *" },   { "@daily", "0 0 * * *" },   { "@midnight", "0 0 * * *" },
    { "@weekly", "0 0 * * 0" },   { "@monthly", "0 0 1 * *" }, { "@yearly", "0 0 1 1 *" },
    { "@annually", "0 0 1 1 *" },
};

static int cron_unname(mr_bytes *text) {
    if (!text->size || *(const char *)text->data != '@')
        return 0;
    for (size_t i = 0; i < sizeof cron_names / sizeof *cron_names; i++) {
        if (bytes_are_word(*text, cron_names[i].name)) {
            *text = mr_str(cron_names[i].stands_for);
            return 0;
        }
    }
    return error_set(MR_EINVAL,
                     "'%.*s' is no cron expression: @hourly, @daily, @weekly, @monthly, @yearly, "
                     "or five fields",
                     (int)(text->size < 40 ? text->size : 40), (const char *)text->data);
}

// Splits at blanks. Returns how many fields there are, which may be more than fit.
static size_t cron_split(mr_bytes text, mr_bytes out[CRON_FIELDS]) {
    const char *p = text.data, *end = p + text.size;
    size_t count = 0;
    while (p < end) {
        const char *begin = p;
        while (p < end && *p != ' ' && *p != '\t')
            p++;
        if (p > begin && count++ < CRON_FIELDS)
            out[count - 1] = (mr_bytes){ begin, (size_t)(p - begin) };
        p++;
    }
    return count;
}

// Whether a day of these months exists that the expression allows. Weekdays come round, so only
// days that no such month has are impossible.
static bool cron_can_match(const struct cron *c) {
    if (c->weekdays_given && c->days_given)
        return true;
    for (uint32_t month = 1; month <= 12; month++) {
        uint32_t first_days = (UINT32_C(2) << civil_month_days(2000, month)) - 1;
        if (c->months >> month & 1 && c->days & first_days)
            return true;
    }
    return false;
}

static bool begins_with_star(mr_bytes text) {
    return *(const char *)text.data == '*';
}

int cron_parse(mr_bytes text, struct cron *out) {
    mr_bytes fields[CRON_FIELDS];
    uint64_t bits[CRON_FIELDS];
    int err = cron_unname(&text);
    if (err < 0)
        return err;
    size_t count = text.size ? cron_split(text, fields) : 0;
    if (count != CRON_FIELDS)
        return error_set(MR_EINVAL,
                         "a cron expression has five fields (minute, hour, day of the month, "
                         "month, weekday), and '%.*s' has %zu",
                         (int)(text.size < 40 ? text.size : 40),
                         text.size ? (const char *)text.data : "", count);
    for (size_t i = 0; i < CRON_FIELDS; i++)
        if ((err = field_read(&cron_fields[i], fields[i], &bits[i])) < 0)
            return err;
    struct cron c = { .minutes = bits[0],
                      .hours = (uint32_t)bits[1],
                      .days = (uint32_t)bits[2],
                      .months = (uint32_t)bits[3],
                      .weekdays = (uint32_t)bits[4],
                      .days_given = !begins_with_star(fields[2]),
                      .weekdays_given = !begins_with_star(fields[4]) };
    if (!cron_can_match(&c))
        return error_set(MR_EINVAL,
                         "a cron expression with the day of the month '%.*s' in the month '%.*s' "
                         "never fires: no such month has that day",
                         (int)fields[2].size, (const char *)fields[2].data, (int)fields[3].size,
                         (const char *)fields[3].data);
    *out = c;
    return 0;
}

// ---- Matching ---------------------------------------------------------------------------------

bool cron_is_hourly(const struct cron *c) {
    return c->hours == (UINT32_C(1) << 24) - 1;
}

static bool day_matches(const struct cron *c, int64_t days, uint32_t day) {
    bool by_day = c->days >> day & 1, by_weekday = c->weekdays >> weekday_of(days) & 1;
    return c->days_given && c->weekdays_given ? by_day || by_weekday : by_day && by_weekday;
}

bool cron_matches(const struct cron *c, int64_t minute) {
    int64_t days = divide_down(minute, MINUTES_A_DAY), of_day = minute - days * MINUTES_A_DAY;
    struct civil_date date = civil_from_days(days);
    return c->minutes >> (of_day % 60) & 1 && c->hours >> (of_day / 60) & 1 &&
           c->months >> date.month & 1 && day_matches(c, days, date.day);
}

// The first matching minute of a day from `from` on; -1: none is left.
static int32_t next_of_day(const struct cron *c, uint32_t from) {
    for (uint32_t hour = from / 60, minute = from % 60; hour < 24; hour++, minute = 0) {
        uint64_t left = c->hours >> hour & 1 ? c->minutes >> minute << minute : 0;
        if (left)
            return (int32_t)(hour * 60 + (uint32_t)__builtin_ctzll(left));
    }
    return -1;
}

enum { LAST_YEAR = 2500 };

int64_t cron_next(const struct cron *c, int64_t minute) {
    int64_t days = divide_down(minute, MINUTES_A_DAY);
    uint32_t from = (uint32_t)(minute - days * MINUTES_A_DAY);
    struct civil_date date = civil_from_days(days);
    while (date.year < LAST_YEAR) {
        uint32_t length = civil_month_days(date.year, date.month);
        bool month_matches = c->months >> date.month & 1;
        for (; month_matches && date.day <= length; date.day++, days++, from = 0) {
            int32_t found = day_matches(c, days, date.day) ? next_of_day(c, from) : -1;
            if (found >= 0)
                return days * MINUTES_A_DAY + found;
        }
        days += length + 1 - date.day;
        from = 0;
        date.day = 1;
        date.year += date.month == 12;
        date.month = date.month == 12 ? 1 : date.month + 1;
    }
    return -1;
}
