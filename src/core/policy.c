// A kind says how the values of a policy are parsed and printed, its row has the bounds. A value is
// parsed into a copy, so that one that is refused changes nothing.
#include "core/policy.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/limits.h"

#include <inttypes.h>
#include <stdio.h>

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };

#define MOST_MS ((uint64_t)TIME_MOST_MS)
#define MOST_COUNT UINT64_C(1000000000000)
#define MOST_RATE_PER_H (UINT64_C(1000000000) * 3600)

#define VALUE(member, usual, least, most)                                                          \
    { offsetof(struct policy, member), usual, least, most }

#define POLICY_ROW(text, values_as, member, usual, least, most, ...)                               \
    { .name = text,                                                                                \
      .kind = POLICY_##values_as,                                                                  \
      .values = { VALUE(member, usual, least, most) },                                             \
      __VA_ARGS__ },
#define POLICY_ROW_OF_TWO(text, values_as, member, usual, least, most, member2, usual2, least2,    \
                          most2, ...)                                                              \
    { .name = text,                                                                                \
      .kind = POLICY_##values_as,                                                                  \
      .values = { VALUE(member, usual, least, most), VALUE(member2, usual2, least2, most2) },      \
      __VA_ARGS__ },

static const struct policy_row rows[] = { POLICIES(POLICY_ROW, POLICY_ROW_OF_TWO) };

enum { ROWS = sizeof rows / sizeof *rows };

// ---- The table --------------------------------------------------------------------------------

const struct policy_row *policy_row(size_t index) {
    return index < ROWS ? &rows[index] : NULL;
}

const struct policy_row *policy_find(mr_bytes name) {
    for (size_t i = 0; i < ROWS; i++)
        if (bytes_equal(name, mr_str(rows[i].name)))
            return &rows[i];
    return NULL;
}

size_t policy_row_values(const struct policy_row *row) {
    return row->kind == POLICY_DURATIONS || row->kind == POLICY_DURATION_COUNT ? 2 : 1;
}

bool policy_is_duration(const struct policy_row *row) {
    return row->kind == POLICY_DURATION || row->kind == POLICY_DURATIONS ||
           row->kind == POLICY_DURATION_COUNT;
}

struct policy policy_default(void) {
    struct policy p = { 0 };
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < policy_row_values(&rows[i]); k++)
            *policy_at(&p, &rows[i].values[k]) = rows[i].values[k].usual;
    return p;
}

bool policy_equal(const struct policy *a, const struct policy *b) {
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < policy_row_values(&rows[i]); k++)
            if (policy_read(a, &rows[i].values[k]) != policy_read(b, &rows[i].values[k]))
                return false;
    return true;
}

static bool is_within_bounds(const struct policy *p, const struct policy_row *row) {
    for (size_t k = 0; k < policy_row_values(row); k++) {
        const struct policy_value *value = &row->values[k];
        uint64_t n = policy_read(p, value);
        bool is_none = !n && row->may_be_none;
        if (!is_none && (n < value->least || n > value->most))
            return false;
    }
    return row->kind != POLICY_DURATIONS ||
           policy_read(p, &row->values[0]) <= policy_read(p, &row->values[1]);
}

bool policy_is_possible(const struct policy *p) {
    for (size_t i = 0; i < ROWS; i++)
        if (!is_within_bounds(p, &rows[i]))
            return false;
    return true;
}

// ---- Parsing ----------------------------------------------------------------------------------

// Reads digits up to the first other byte; false if there are none or too many.
static bool parse_digits(mr_bytes *text, uint64_t *out) {
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

// Removes `word` from the front of the text, if it is there.
static bool skip_word(mr_bytes *text, const char *word) {
    size_t size = strlen(word);
    if (text->size < size || memcmp(text->data, word, size) != 0)
        return false;
    *text = bytes_of((const char *)text->data + size, text->size - size);
    return true;
}

static const struct {
    const char *name;
    uint64_t ms;
} units[] = { { "ms", 1 }, { "s", SECOND }, { "m", MINUTE }, { "h", HOUR }, { "d", 24 * HOUR } };

enum { UNITS = sizeof units / sizeof *units };

static bool parse_duration(mr_bytes *text, uint64_t *out_ms) {
    uint64_t n;
    if (!parse_digits(text, &n))
        return false;
    uint64_t scale = 1;
    for (size_t i = 0; i < UNITS; i++) {
        if (skip_word(text, units[i].name)) {
            scale = units[i].ms;
            break;
        }
    }
    if (n > MOST_MS / scale)
        return false;
    *out_ms = n * scale;
    return true;
}

bool policy_duration(mr_bytes text, uint64_t *out_ms) {
    return parse_duration(&text, out_ms) && text.size == 0;
}

// If only the first pause is given, the longest is raised to it if need be.
static bool parse_durations(mr_bytes text, uint64_t *first, uint64_t *longest) {
    if (!parse_duration(&text, first))
        return false;
    if (text.size)
        return skip_word(&text, "..") && policy_duration(text, longest);
    if (*longest < *first)
        *longest = *first;
    return true;
}

static bool parse_duration_count(mr_bytes text, uint64_t *ms, uint64_t *count) {
    if (!parse_duration(&text, ms))
        return false;
    return !text.size || (skip_word(&text, ",") && parse_digits(&text, count) && !text.size);
}

static bool parse_rate(mr_bytes text, uint64_t *per_h) {
    uint64_t n, scale = 3600;
    if (!parse_digits(&text, &n))
        return false;
    if (skip_word(&text, "/h"))
        scale = 1;
    else if (skip_word(&text, "/m"))
        scale = 60;
    else
        (void)skip_word(&text, "/s");
    if (text.size || n > MOST_RATE_PER_H / scale)
        return false;
    *per_h = n * scale;
    return true;
}

static bool parse_choice(mr_bytes text, const char *const choices[2], uint64_t *out) {
    for (uint64_t i = 0; i < 2; i++) {
        if (bytes_equal(text, mr_str(choices[i]))) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool parse_value(const struct policy_row *row, mr_bytes text, uint64_t *first,
                        uint64_t *second) {
    switch (row->kind) {
    case POLICY_COUNT:
        return parse_digits(&text, first) && !text.size;
    case POLICY_DURATION:
        return policy_duration(text, first);
    case POLICY_DURATIONS:
        return parse_durations(text, first, second);
    case POLICY_DURATION_COUNT:
        return parse_duration_count(text, first, second);
    case POLICY_RATE:
        return parse_rate(text, first);
    case POLICY_CHOICE:
        return parse_choice(text, row->choices, first);
    }
    return false;
}

// "none" is the one way to write 0 where 0 means none.
static bool parse_row(const struct policy_row *row, mr_bytes text, struct policy *p) {
    uint64_t *first = policy_at(p, &row->values[0]), *second = policy_at(p, &row->values[1]);
    if (row->may_be_none && bytes_equal(text, mr_str("none"))) {
        *first = 0;
        return true;
    }
    return parse_value(row, text, first, second) && (*first || !row->may_be_none) &&
           is_within_bounds(p, row);
}

static int refuse_policy_name(mr_bytes name) {
    char names[512];
    size_t size = 0;
    for (size_t i = 0; i < ROWS && size < sizeof names; i++)
        size += (size_t)snprintf(names + size, sizeof names - size, " %s", rows[i].name);
    return error_set(MR_EINVAL, "there is no policy '%.*s'; there are%s",
                     (int)(name.size < 80 ? name.size : 80),
                     name.size ? (const char *)name.data : "", names);
}

int policy_set(struct policy *policy, mr_bytes name, mr_bytes value) {
    const struct policy_row *row = policy_find(name);
    if (!row)
        return refuse_policy_name(name);
    struct policy changed = *policy;
    if (!parse_row(row, value, &changed))
        return error_set(MR_EINVAL, "policy %s takes %s, not '%.*s'", row->name, row->takes,
                         (int)(value.size < 80 ? value.size : 80),
                         value.size ? (const char *)value.data : "");
    *policy = changed;
    return 0;
}

// ---- Printing ---------------------------------------------------------------------------------

enum { DURATION_TEXT = 24 };

static const char *print_duration(char *out, uint64_t ms, bool with_unit) {
    size_t unit = 0;
    for (size_t i = 0; with_unit && ms && i < UNITS; i++)
        unit = ms % units[i].ms == 0 ? i : unit;
    (void)snprintf(out, DURATION_TEXT, "%" PRIu64 "%s", ms / units[unit].ms,
                   with_unit ? units[unit].name : "");
    return out;
}

static void print_rate(char *out, size_t size, uint64_t per_h) {
    uint64_t scale = per_h % 3600 == 0 ? 3600 : per_h % 60 == 0 ? 60 : 1;
    (void)snprintf(out, size, "%" PRIu64 "/%c", per_h / scale,
                   scale == 3600 ? 's'
                   : scale == 60 ? 'm'
                                 : 'h');
}

static void policy_print_row(const struct policy *p, const struct policy_row *row, bool with_unit,
                             char *out, size_t size) {
    uint64_t first = policy_read(p, &row->values[0]), second = policy_read(p, &row->values[1]);
    char text[DURATION_TEXT], other[DURATION_TEXT];
    if (!first && row->may_be_none) {
        (void)snprintf(out, size, "none");
        return;
    }
    switch (row->kind) {
    case POLICY_COUNT:
        (void)snprintf(out, size, "%" PRIu64, first);
        break;
    case POLICY_DURATION:
        (void)snprintf(out, size, "%s", print_duration(text, first, with_unit));
        break;
    case POLICY_DURATIONS:
        (void)snprintf(out, size, "%s..%s", print_duration(text, first, with_unit),
                       print_duration(other, second, with_unit));
        break;
    case POLICY_DURATION_COUNT:
        (void)snprintf(out, size, "%s,%" PRIu64, print_duration(text, first, with_unit), second);
        break;
    case POLICY_RATE:
        print_rate(out, size, first);
        break;
    case POLICY_CHOICE:
        (void)snprintf(out, size, "%s", row->choices[first != 0]);
        break;
    }
}

const char *policy_get(const struct policy *policy, size_t index, char *out_value, size_t size) {
    if (index >= ROWS)
        return NULL;
    policy_print_row(policy, &rows[index], false, out_value, size);
    return rows[index].name;
}

void policy_text(const struct policy *policy, const struct policy_row *row, char *out_value,
                 size_t size) {
    policy_print_row(policy, row, true, out_value, size);
}

// ---- Backoff ----------------------------------------------------------------------------------

uint64_t backoff_ms(const struct policy *p, uint32_t attempt, uint64_t jitter) {
    uint64_t wait = p->backoff_first_ms;
    for (uint32_t i = 1; i < attempt && wait < p->backoff_most_ms; i++)
        wait *= 2;
    if (wait > p->backoff_most_ms)
        wait = p->backoff_most_ms;
    uint64_t spread = wait * 2 / 5; // ± 20 %
    return wait - spread / 2 + (spread ? jitter % (spread + 1) : 0);
}
