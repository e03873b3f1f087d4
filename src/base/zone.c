// See zone.h. A file has its data twice: with instants of 32 bits, which are skipped, and with 64.
#include "base/zone.h"

#include "base/cron.h"
#include "base/errors.h"
#include "base/mem.h"

#include <ctype.h>
#include <string.h>

enum { DAY = 24 * 3600, OFFSET_MOST = 26 * 3600, CHANGES_MOST = 10000 };

// ---- The rule: POSIX TZ, as in CET-1CEST,M3.5.0,M10.5.0/3 ---------------------------------------

struct rule_text {
    const char *at, *end;
    bool bad;
};

static bool takes(struct rule_text *t, char c) {
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static void rule_need(struct rule_text *t, char c) {
    t->bad = !takes(t, c) || t->bad;
}

static int32_t rule_number(struct rule_text *t, int32_t least, int32_t most) {
    const char *begin = t->at;
    int32_t n = 0;
    while (t->at < t->end && isdigit((unsigned char)*t->at) && t->at - begin < 4)
        n = n * 10 + (*t->at++ - '0');
    t->bad = t->bad || t->at == begin || n < least || n > most;
    return n;
}

// Letters, or anything in <>.
static void rule_name(struct rule_text *t) {
    const char *begin = t->at;
    if (takes(t, '<')) {
        while (t->at < t->end && *t->at != '>')
            t->at++;
        rule_need(t, '>');
        return;
    }
    while (t->at < t->end && isalpha((unsigned char)*t->at))
        t->at++;
    t->bad = t->bad || t->at == begin;
}

// [+-]hh[:mm[:ss]]
static int32_t rule_time(struct rule_text *t, int32_t most_hours) {
    bool negative = takes(t, '-');
    if (!negative)
        (void)takes(t, '+');
    int32_t seconds = rule_number(t, 0, most_hours) * 3600;
    if (takes(t, ':'))
        seconds += rule_number(t, 0, 59) * 60;
    if (takes(t, ':'))
        seconds += rule_number(t, 0, 59);
    return negative ? -seconds : seconds;
}

static struct zone_day rule_day(struct rule_text *t) {
    struct zone_day d = { .kind = ZONE_NTH_DAY, .time = 2 * 3600 };
    rule_need(t, ',');
    if (takes(t, 'J')) {
        d.kind = ZONE_JULIAN;
        d.day = rule_number(t, 1, 365);
    } else if (takes(t, 'M')) {
        d.kind = ZONE_WEEKDAY;
        d.month = rule_number(t, 1, 12);
        rule_need(t, '.');
        d.week = rule_number(t, 1, 5);
        rule_need(t, '.');
        d.day = rule_number(t, 0, 6);
    } else {
        d.day = rule_number(t, 0, 365);
    }
    if (takes(t, '/'))
        d.time = rule_time(t, 167);
    return d;
}

// Offsets are written as hours west of UTC. An empty rule is not known.
static bool rule_parse(mr_bytes text, struct zone_rule *out) {
    struct rule_text t = { text.data, (const char *)text.data + text.size, false };
    struct zone_rule r = { .is_known = true };
    if (!text.size)
        return true;
    rule_name(&t);
    r.standard = r.summer = -rule_time(&t, 24);
    if (t.at < t.end) {
        r.has_summer = true;
        rule_name(&t);
        r.summer = r.standard + 3600;
        if (t.at < t.end && *t.at != ',')
            r.summer = -rule_time(&t, 24);
        r.begin = rule_day(&t);
        r.end = rule_day(&t);
    }
    if (t.bad || t.at != t.end)
        return false;
    *out = r;
    return true;
}

// Days since 1970 of the day of a rule in a year.
static int64_t rule_days(const struct zone_day *d, int64_t year) {
    int64_t first = civil_days(year, 1, 1);
    bool is_leap = civil_month_days(year, 2) == 29;
    if (d->kind == ZONE_NTH_DAY)
        return first + d->day;
    if (d->kind == ZONE_JULIAN)
        return first + d->day - 1 + (is_leap && d->day >= 60);
    uint32_t month = (uint32_t)d->month;
    int64_t days = civil_days(year, month, 1);
    int64_t weekday = (((days + 4) % 7) + 7) % 7;
    days += (d->day - weekday + 7) % 7 + 7 * (d->week - 1);
    return days < civil_days(year, month, 1) + civil_month_days(year, month) ? days : days - 7;
}

static int64_t rule_instant(const struct zone_day *d, int64_t year, int32_t offset_before) {
    return rule_days(d, year) * DAY + d->time - offset_before;
}

enum { RULE_YEARS = 3, RULE_CHANGES = 2 * RULE_YEARS };

static void change_insert(struct zone_change *changes, uint32_t count, struct zone_change c) {
    for (; count && changes[count - 1].at > c.at; count--)
        changes[count] = changes[count - 1];
    changes[count] = c;
}

// The changes of the years around an instant, in order; where summer ends and begins at the same
// instant, it begins.
static void rule_changes(const struct zone_rule *r, int64_t at,
                         struct zone_change out[RULE_CHANGES]) {
    int64_t days = at / DAY - (at % DAY < 0), year = civil_from_days(days).year - 1;
    uint32_t count = 0;
    for (int i = 0; i < RULE_YEARS; i++)
        change_insert(
            out, count++,
            (struct zone_change){ rule_instant(&r->end, year + i, r->summer), r->standard });
    for (int i = 0; i < RULE_YEARS; i++)
        change_insert(
            out, count++,
            (struct zone_change){ rule_instant(&r->begin, year + i, r->standard), r->summer });
}

// ---- The file ---------------------------------------------------------------------------------

enum { HEADER = 44 };

struct zone_counts {
    uint32_t is_utc, is_standard, leaps, changes, types, letters;
};

static uint32_t be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int64_t be64(const uint8_t *p) {
    return (int64_t)((uint64_t)be32(p) << 32 | be32(p + 4));
}

static int zone_refuse(const char *what) {
    return error_set(MR_EINVAL, "this is not a file of a time zone: %s", what);
}

// Reads the header at the front of `file`; `time_size`: of an instant. Sets how many bytes the data
// behind it has.
static bool header_read(mr_bytes file, size_t time_size, struct zone_counts *out,
                        size_t *out_size) {
    const uint8_t *p = file.data;
    if (file.size < HEADER || memcmp(p, "TZif", 4) != 0)
        return false;
    struct zone_counts n = { be32(p + 20), be32(p + 24), be32(p + 28),
                             be32(p + 32), be32(p + 36), be32(p + 40) };
    if (n.changes > CHANGES_MOST || n.types > 256 || !n.types || n.letters > 10000 ||
        n.leaps > 10000 || n.is_utc > 256 || n.is_standard > 256)
        return false;
    *out_size = n.changes * (time_size + 1) + n.types * 6 + n.letters + n.leaps * (time_size + 4) +
                n.is_standard + n.is_utc;
    *out = n;
    return file.size - HEADER >= *out_size;
}

static mr_bytes zone_behind(mr_bytes file, size_t size) {
    return (mr_bytes){ (const uint8_t *)file.data + size, file.size - size };
}

// The instants, the types that begin at them, and the offset of each type.
static int changes_read(const uint8_t *p, const struct zone_counts *n, struct zone *out) {
    const uint8_t *types = p + (size_t)n->changes * 8, *offsets = types + n->changes;
    for (uint32_t i = 0; i < n->types; i++) {
        int32_t offset = (int32_t)be32(offsets + (size_t)i * 6);
        if (offset < -OFFSET_MOST || offset > OFFSET_MOST)
            return zone_refuse("an offset is too large");
    }
    out->first = (int32_t)be32(offsets);
    for (uint32_t i = 0; i < n->changes; i++) {
        struct zone_change *c = &out->changes[i];
        c->at = be64(p + (size_t)i * 8);
        if (types[i] >= n->types || (i && c->at <= c[-1].at) || c->at > INT64_MAX / 4 ||
            c->at < INT64_MIN / 4)
            return zone_refuse("its changes are out of order");
        c->offset = (int32_t)be32(offsets + (size_t)types[i] * 6);
    }
    out->count = n->changes;
    return 0;
}

static int rule_read(mr_bytes file, struct zone_rule *out) {
    const char *p = file.data;
    const char *end = file.size > 1 && *p == '\n' ? memchr(p + 1, '\n', file.size - 1) : NULL;
    if (!end || !rule_parse((mr_bytes){ p + 1, (size_t)(end - p) - 1 }, out))
        return zone_refuse("its rule cannot be read");
    return 0;
}

int zone_parse(mr_bytes file, struct zone *out) {
    struct zone_counts n;
    struct zone z = { 0 };
    size_t size = 0;
    if (!header_read(file, 4, &n, &size) || ((const uint8_t *)file.data)[4] < '2')
        return zone_refuse("it has no header of version 2");
    file = zone_behind(file, HEADER + size);
    if (!header_read(file, 8, &n, &size))
        return zone_refuse("it has no second header");
    z.changes = mem_alloc((n.changes + 1) * sizeof *z.changes);
    if (!z.changes)
        return error_set(MR_ENOMEM, "no memory for a time zone");
    int err = changes_read((const uint8_t *)file.data + HEADER, &n, &z);
    if (err == 0)
        err = rule_read(zone_behind(file, HEADER + size), &z.rule);
    if (err < 0)
        zone_finish(&z);
    else
        *out = z;
    return err;
}

void zone_finish(struct zone *z) {
    mem_free(z->changes);
    z->changes = NULL;
    z->count = 0;
}

// ---- Periods ----------------------------------------------------------------------------------

// The period around `at` in a list of changes. Changes at one instant: the last of them counts.
static struct zone_period period_in(const struct zone_change *changes, uint32_t count,
                                    int32_t first, int64_t at) {
    uint32_t from = 0, behind = count; // the first change after `at`
    while (from < behind) {
        uint32_t half = from + (behind - from) / 2;
        if (changes[half].at <= at)
            from = half + 1;
        else
            behind = half;
    }
    return (struct zone_period){ .start = from ? changes[from - 1].at : INT64_MIN,
                                 .end = from < count ? changes[from].at : INT64_MAX,
                                 .offset = from ? changes[from - 1].offset : first };
}

// Behind the last change the rule holds.
static struct zone_period period_by_rule(const struct zone *z, int64_t last, int64_t at) {
    const struct zone_rule *r = &z->rule;
    struct zone_change changes[RULE_CHANGES];
    if (!r->has_summer)
        return (struct zone_period){ last, INT64_MAX, r->standard };
    rule_changes(r, at, changes);
    struct zone_period p = period_in(changes, RULE_CHANGES, r->standard, at);
    if (p.start < last)
        p.start = last;
    return p;
}

struct zone_period zone_period_at(const struct zone *z, int64_t at) {
    struct zone_period p = period_in(z->changes, z->count, z->first, at);
    return p.end == INT64_MAX && z->rule.is_known ? period_by_rule(z, p.start, at) : p;
}
