// Policy: the settings of a stage. Every policy is a row of one table (policy.c) that says its
// name, kind, default, bounds and meaning. Setting, printing, records, help and the page loop over
// the table: a new policy is a member here, a row there, and the code that obeys it.
#ifndef CORE_POLICY_H
#define CORE_POLICY_H

#include "millrace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Every member is a uint64_t, so that rows can refer to it by its offset. 0 means "none" for every
// limit here.
struct policy {
    uint64_t max_jobs, max_channel;
    uint64_t lease_ms;
    uint64_t attempts;
    uint64_t backoff_first_ms, backoff_most_ms;
    uint64_t halt_on_dead, overlap_never; // 0 or 1
    uint64_t dedupe_window_ms;
    uint64_t retention_ms, retention_count;
    uint64_t concurrency;
    uint64_t rate_per_h; // starts per hour
    uint64_t max_states, state_ttl_ms;
    uint64_t high_mark; // jobs, above which upstream stages are not started; low is half of it
};

// How the value of a policy is written.
enum policy_kind {
    POLICY_COUNT,          // 10
    POLICY_DURATION,       // 30s
    POLICY_DURATIONS,      // 1s..5m, or only the first; the second is not shorter
    POLICY_DURATION_COUNT, // 1h,10000, or only the duration
    POLICY_RATE,           // 100/s 30/m 5/h
    POLICY_CHOICE,         // one of two words
};

enum { POLICY_VALUES = 2 }; // members of struct policy that one policy may have

struct policy_value {
    size_t offset;               // of the member in struct policy
    uint64_t usual, least, most; // the default; the bounds, beside 0 for "none"
};

struct policy_row {
    const char *name;
    enum policy_kind kind;
    bool may_be_none;       // 0 is written "none"
    const char *choices[2]; // POLICY_CHOICE: the words for 0 and 1
    struct policy_value values[POLICY_VALUES];
    const char *takes; // which values, for messages
    const char *about; // what it does, in a line without a full stop
};

// The rows in the order of the table; NULL: there are no more.
const struct policy_row *policy_row(size_t index);

// The row of this name; NULL: there is none.
const struct policy_row *policy_find(mr_bytes name);

// How many members of struct policy a row has.
size_t policy_row_values(const struct policy_row *);

// Whether a row's values are durations, which people write with a unit.
bool policy_is_duration(const struct policy_row *);

static inline uint64_t *policy_at(struct policy *p, const struct policy_value *value) {
    return (uint64_t *)(void *)((char *)p + value->offset);
}

static inline uint64_t policy_read(const struct policy *p, const struct policy_value *value) {
    return *(const uint64_t *)(const void *)((const char *)p + value->offset);
}

struct policy policy_default(void);
bool policy_equal(const struct policy *, const struct policy *);

// Whether every value is within the bounds of its row, as policy_set leaves it.
bool policy_is_possible(const struct policy *);

// Sets the policy called `name`. Durations are milliseconds, or carry a unit (250ms 30s 5m 2h 7d);
// "none" lifts a limit. MR_EINVAL names what was wrong and what is possible; nothing is changed.
int policy_set(struct policy *, mr_bytes name, mr_bytes value);

// Reads all of `text` as such a duration, of at most 100 years. False: it is none.
bool policy_duration(mr_bytes text, uint64_t *out_ms);

enum { POLICY_TEXT = 64 }; // bytes that the text of any value fits in

// Writes the value of policy number `index` as policy_set would read it, durations in
// milliseconds; returns its name, or NULL when there are no more.
const char *policy_get(const struct policy *, size_t index, char *out_value, size_t size);

// Writes the value of a row for people: durations carry the largest unit that leaves no remainder.
void policy_text(const struct policy *, const struct policy_row *, char *out_value, size_t size);

// How long a channel is parked after its head failed `attempt` times: doubling, give or take a
// fifth as `jitter` says.
uint64_t backoff_ms(const struct policy *, uint32_t attempt, uint64_t jitter);

#endif
