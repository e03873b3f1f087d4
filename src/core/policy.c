// One table row per policy: how its value is read and written. Parsing changes a copy, so that a
// value that turns out wrong leaves everything as it was.
#include "core/policy.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <inttypes.h>
#include <stdio.h>

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };

#define MOST_MS (UINT64_C(100) * 365 * 24 * HOUR)
#define MOST_COUNT UINT64_C(1000000000000)
#define MOST_RATE UINT64_C(1000000000)

struct policy policy_default(void) {
    return (struct policy){
        .lease_ms = 30 * SECOND,
        .attempts = 10,
        .backoff_first_ms = 1 * SECOND,
        .backoff_most_ms = 5 * MINUTE,
        .dedupe_window_ms = 1 * HOUR,
        .retention_ms = 1 * HOUR,
        .retention_count = 10000,
        .high_mark = 10000,
    };
}

bool policy_equal(const struct policy *a, const struct policy *b) {
    return a->max_jobs == b->max_jobs && a->max_channel == b->max_channel &&
           a->lease_ms == b->lease_ms && a->attempts == b->attempts &&
           a->backoff_first_ms == b->backoff_first_ms && a->backoff_most_ms == b->backoff_most_ms &&
           a->halt_on_dead == b->halt_on_dead && a->overlap_never == b->overlap_never &&
           a->dedupe_window_ms == b->dedupe_window_ms && a->retention_ms == b->retention_ms &&
           a->retention_count == b->retention_count && a->concurrency == b->concurrency &&
           a->rate_per_h == b->rate_per_h && a->max_states == b->max_states &&
           a->state_ttl_ms == b->state_ttl_ms && a->high_mark == b->high_mark;
}

bool policy_is_possible(const struct policy *p) {
    const uint64_t counts[] = { p->max_jobs,    p->max_channel, p->retention_count,
                                p->concurrency, p->max_states,  p->high_mark };
    const uint64_t times[] = { p->backoff_most_ms, p->dedupe_window_ms, p->retention_ms,
                               p->state_ttl_ms };
    bool possible = p->lease_ms && p->lease_ms <= UINT32_MAX && p->attempts &&
                    p->attempts <= UINT16_MAX && p->backoff_first_ms <= p->backoff_most_ms &&
                    p->rate_per_h <= MOST_RATE * 3600;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        possible = possible && counts[i] <= MOST_COUNT;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        possible = possible && times[i] <= MOST_MS;
    return possible;
}

// Reads digits up to the first other byte; false if there are none or too many.
static bool digits(mr_bytes *text, uint64_t *out) {
    const char *p = text->data;
    size_t i = 0;
    uint64_t n = 0;
    for (; i < text->size && p[i] >= '0' && p[i] <= '9'; i++) {
        if (n > UINT64_MAX / 10 - 10)
            return false;
        n = n * 10 + (uint64_t)(p[i] - '0');
    }
    if (!i)
        return false;
    *text = bytes_of(p + i, text->size - i);
    *out = n;
    return true;
}

static bool starts_with(mr_bytes *text, const char *word) {
    size_t size = strlen(word);
    if (text->size < size || memcmp(text->data, word, size) != 0)
        return false;
    *text = bytes_of((const char *)text->data + size, text->size - size);
    return true;
}

static bool duration(mr_bytes *text, uint64_t *out_ms) {
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {
        { "ms", 1 }, { "s", SECOND }, { "m", MINUTE }, { "h", HOUR }, { "d", 24 * HOUR }
    };
    uint64_t n;
    if (!digits(text, &n))
        return false;
    uint64_t scale = 1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (starts_with(text, units[i].unit)) {
            scale = units[i].ms;
            break;
        }
    }
    if (n > MOST_MS / scale)
        return false;
    *out_ms = n * scale;
    return true;
}

static bool is_none(mr_bytes text) {
    return bytes_equal(text, mr_str("none"));
}

bool policy_duration(mr_bytes text, uint64_t *out_ms) {
    return duration(&text, out_ms) && text.size == 0;
}

static bool count_or_none(mr_bytes text, uint64_t *out) {
    if (is_none(text)) {
        *out = 0;
        return true;
    }
    uint64_t n;
    if (!digits(&text, &n) || text.size || !n || n > MOST_COUNT)
        return false;
    *out = n;
    return true;
}

static bool one_of(mr_bytes text, const char *no, const char *yes, bool *out) {
    bool is_yes = bytes_equal(text, mr_str(yes));
    if (!is_yes && !bytes_equal(text, mr_str(no)))
        return false;
    *out = is_yes;
    return true;
}

static bool read_max_jobs(struct policy *p, mr_bytes v) {
    return count_or_none(v, &p->max_jobs);
}
static bool read_max_channel(struct policy *p, mr_bytes v) {
    return count_or_none(v, &p->max_channel);
}
static bool read_lease(struct policy *p, mr_bytes v) {
    return policy_duration(v, &p->lease_ms) && p->lease_ms && p->lease_ms <= UINT32_MAX;
}
static bool read_attempts(struct policy *p, mr_bytes v) {
    uint64_t n;
    if (is_none(v) || !count_or_none(v, &n) || n > UINT16_MAX)
        return false;
    p->attempts = (uint32_t)n;
    return true;
}
static bool read_backoff(struct policy *p, mr_bytes v) {
    if (!duration(&v, &p->backoff_first_ms))
        return false;
    if (!v.size) {
        if (p->backoff_most_ms < p->backoff_first_ms)
            p->backoff_most_ms = p->backoff_first_ms;
        return true;
    }
    return starts_with(&v, "..") && policy_duration(v, &p->backoff_most_ms) &&
           p->backoff_most_ms >= p->backoff_first_ms;
}
static bool read_on_dead(struct policy *p, mr_bytes v) {
    return one_of(v, "skip", "halt", &p->halt_on_dead);
}
static bool read_overlap(struct policy *p, mr_bytes v) {
    return one_of(v, "brief", "never", &p->overlap_never);
}
static bool read_dedupe_window(struct policy *p, mr_bytes v) {
    return policy_duration(v, &p->dedupe_window_ms);
}
static bool read_retention(struct policy *p, mr_bytes v) {
    if (!duration(&v, &p->retention_ms))
        return false;
    if (!v.size)
        return true;
    return starts_with(&v, ",") && digits(&v, &p->retention_count) && !v.size &&
           p->retention_count <= MOST_COUNT;
}
static bool read_concurrency(struct policy *p, mr_bytes v) {
    return count_or_none(v, &p->concurrency);
}
static bool read_rate(struct policy *p, mr_bytes v) {
    if (is_none(v)) {
        p->rate_per_h = 0;
        return true;
    }
    uint64_t n;
    if (!digits(&v, &n) || !n || n > MOST_RATE)
        return false;
    uint64_t scale = 3600;
    if (starts_with(&v, "/h"))
        scale = 1;
    else if (starts_with(&v, "/m"))
        scale = 60;
    else
        (void)starts_with(&v, "/s");
    p->rate_per_h = n * scale;
    return !v.size;
}
static bool read_max_states(struct policy *p, mr_bytes v) {
    return count_or_none(v, &p->max_states);
}
static bool read_state_ttl(struct policy *p, mr_bytes v) {
    if (is_none(v)) {
        p->state_ttl_ms = 0;
        return true;
    }
    return policy_duration(v, &p->state_ttl_ms) && p->state_ttl_ms;
}
static bool read_high_mark(struct policy *p, mr_bytes v) {
    return count_or_none(v, &p->high_mark);
}

static int write_count(char *out, size_t size, uint64_t n) {
    return n ? snprintf(out, size, "%" PRIu64, n) : snprintf(out, size, "none");
}
static int write_max_jobs(const struct policy *p, char *out, size_t size) {
    return write_count(out, size, p->max_jobs);
}
static int write_max_channel(const struct policy *p, char *out, size_t size) {
    return write_count(out, size, p->max_channel);
}
static int write_lease(const struct policy *p, char *out, size_t size) {
    return snprintf(out, size, "%" PRIu64, p->lease_ms);
}
static int write_attempts(const struct policy *p, char *out, size_t size) {
    return snprintf(out, size, "%" PRIu32, p->attempts);
}
static int write_backoff(const struct policy *p, char *out, size_t size) {
    return snprintf(out, size, "%" PRIu64 "..%" PRIu64, p->backoff_first_ms, p->backoff_most_ms);
}
static int write_on_dead(const struct policy *p, char *out, size_t size) {
    return snprintf(out, size, "%s", p->halt_on_dead ? "halt" : "skip");
}
static int write_overlap(const struct policy *p, char *out, size_t size) {
    return snprintf(out, size, "%s", p->overlap_never ? "never" : "brief");
}
static int write_dedupe_window(const struct policy *p, char *out, size_t size) {
    return snprintf(out, size, "%" PRIu64, p->dedupe_window_ms);
}
static int write_retention(const struct policy *p, char *out, size_t size) {
    return snprintf(out, size, "%" PRIu64 ",%" PRIu64, p->retention_ms, p->retention_count);
}
static int write_concurrency(const struct policy *p, char *out, size_t size) {
    return write_count(out, size, p->concurrency);
}
static int write_rate(const struct policy *p, char *out, size_t size) {
    if (!p->rate_per_h)
        return snprintf(out, size, "none");
    if (p->rate_per_h % 3600 == 0)
        return snprintf(out, size, "%" PRIu64 "/s", p->rate_per_h / 3600);
    if (p->rate_per_h % 60 == 0)
        return snprintf(out, size, "%" PRIu64 "/m", p->rate_per_h / 60);
    return snprintf(out, size, "%" PRIu64 "/h", p->rate_per_h);
}
static int write_max_states(const struct policy *p, char *out, size_t size) {
    return write_count(out, size, p->max_states);
}
static int write_state_ttl(const struct policy *p, char *out, size_t size) {
    return write_count(out, size, p->state_ttl_ms);
}
static int write_high_mark(const struct policy *p, char *out, size_t size) {
    return write_count(out, size, p->high_mark);
}

static const struct row {
    const char *name, *values;
    bool (*read)(struct policy *, mr_bytes value);
    int (*write)(const struct policy *, char *out, size_t size);
} rows[] = {
    { "max-jobs", "a count, or none", read_max_jobs, write_max_jobs },
    { "max-channel", "a count, or none", read_max_channel, write_max_channel },
    { "lease", "a duration such as 30s, up to 49 days", read_lease, write_lease },
    { "attempts", "a count from 1 to 65535", read_attempts, write_attempts },
    { "backoff", "a duration, or two: 1s..5m", read_backoff, write_backoff },
    { "on-dead", "skip or halt", read_on_dead, write_on_dead },
    { "overlap", "brief or never", read_overlap, write_overlap },
    { "dedupe-window", "a duration such as 1h", read_dedupe_window, write_dedupe_window },
    { "retention", "a duration, or also a count: 1h,10000", read_retention, write_retention },
    { "concurrency", "a count, or none", read_concurrency, write_concurrency },
    { "rate", "starts per time such as 100/s or 30/m, or none", read_rate, write_rate },
    { "max-states", "a count, or none", read_max_states, write_max_states },
    { "state-ttl", "a duration, or none", read_state_ttl, write_state_ttl },
    { "high-mark", "a count, or none", read_high_mark, write_high_mark },
};

enum { ROWS = sizeof rows / sizeof *rows };

int policy_set(struct policy *policy, mr_bytes name, mr_bytes value) {
    for (size_t i = 0; i < ROWS; i++) {
        if (!bytes_equal(name, mr_str(rows[i].name)))
            continue;
        struct policy changed = *policy;
        if (!rows[i].read(&changed, value))
            return error_set(MR_EINVAL, "policy %s takes %s, not '%.*s'", rows[i].name,
                             rows[i].values, (int)(value.size < 80 ? value.size : 80),
                             value.size ? (const char *)value.data : "");
        *policy = changed;
        return 0;
    }
    return error_set(MR_EINVAL,
                     "there is no policy '%.*s'; there are max-jobs max-channel lease attempts "
                     "backoff on-dead overlap dedupe-window retention concurrency rate max-states "
                     "state-ttl high-mark",
                     (int)(name.size < 80 ? name.size : 80),
                     name.size ? (const char *)name.data : "");
}

const char *policy_get(const struct policy *policy, size_t index, char *out_value, size_t size) {
    if (index >= ROWS)
        return NULL;
    if (rows[index].write(policy, out_value, size) < 0)
        return NULL;
    return rows[index].name;
}

uint64_t backoff_ms(const struct policy *p, uint32_t attempt, uint64_t jitter) {
    uint64_t wait = p->backoff_first_ms;
    for (uint32_t i = 1; i < attempt && wait < p->backoff_most_ms; i++)
        wait *= 2;
    if (wait > p->backoff_most_ms)
        wait = p->backoff_most_ms;
    uint64_t spread = wait * 2 / 5; // ± 20 %
    return wait - spread / 2 + (spread ? jitter % (spread + 1) : 0);
}
