// Policy: the settings of a stage. Every policy is a line of one list that says its name, kind,
// default, bounds and meaning. The struct, setting, printing, records, help and the page are made
// from the list: a new policy is a line here, and the code that obeys it.
#ifndef CORE_POLICY_H
#define CORE_POLICY_H

#include "millrace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ONE(name, kind, member, default, least, most, …), or TWO with another member and its bounds; a
// new policy at the end, since the values are in this order in STAGE records:
//     kind      how the value is written: see enum policy_kind
//     member    of struct policy; 0 means "none" for every limit
//     least …   the bounds, beside 0 for "none"
//     …         .may_be_none: 0 is written "none"; .choices: the words for 0 and 1; .takes: which
//               values, for messages; .about: what it does, in a line without a full stop
#define POLICIES(ONE, TWO)                                                                         \
    ONE("max-jobs", COUNT, max_jobs, 0, 1, MOST_COUNT, .may_be_none = true,                        \
        .takes = "a count, or none", .about = "jobs in the stage; more are refused as FULL")       \
    ONE("max-channel", COUNT, max_channel, 0, 1, MOST_COUNT, .may_be_none = true,                  \
        .takes = "a count, or none", .about = "jobs of one key; more are refused as FULL")         \
    ONE("lease", DURATION, lease_ms, 30 * SECOND, 1, UINT32_MAX,                                   \
        .takes = "a duration such as 30s, up to 49 days",                                          \
        .about = "how long a worker may be silent")                                                \
    ONE("attempts", COUNT, attempts, 10, 1, UINT16_MAX, .takes = "a count from 1 to 65535",        \
        .about = "how often a job may fail before it is dead")                                     \
    TWO("backoff", DURATIONS, backoff_first_ms, 1 * SECOND, 0, MOST_MS, backoff_most_ms,           \
        5 * MINUTE, 0, MOST_MS, .takes = "a duration, or two: 1s..5m",                             \
        .about = "pause after a failure: first..longest")                                          \
    ONE("on-dead", CHOICE, halt_on_dead, 0, 0, 1, .choices = { "skip", "halt" },                   \
        .takes = "skip or halt", .about = "skip: its key goes on; halt: its key is held")          \
    ONE("overlap", CHOICE, overlap_never, 0, 0, 1, .choices = { "brief", "never" },                \
        .takes = "brief or never", .about = "never: a lost worker's job waits out its lease")      \
    ONE("dedupe-window", DURATION, dedupe_window_ms, 1 * HOUR, 0, MOST_MS,                         \
        .takes = "a duration such as 1h", .about = "how long a once is remembered after the end")  \
    TWO("retention", DURATION_COUNT, retention_ms, 1 * HOUR, 0, MOST_MS, retention_count, 10000,   \
        0, MOST_COUNT, .takes = "a duration, or also a count: 1h,10000",                           \
        .about = "how long ended jobs are kept, and how many")                                     \
    ONE("concurrency", COUNT, concurrency, 0, 1, MOST_COUNT, .may_be_none = true,                  \
        .takes = "a count, or none", .about = "jobs that run at once")                             \
    ONE("rate", RATE, rate_per_h, 0, 1, MOST_RATE_PER_H, .may_be_none = true,                      \
        .takes = "starts per time such as 100/s or 30/m, or none",                                 \
        .about = "starts per time, as 100/s, 30/m or 5/h")                                         \
    ONE("max-states", COUNT, max_states, 0, 1, MOST_COUNT, .may_be_none = true,                    \
        .takes = "a count, or none", .about = "keys that may keep a state")                        \
    ONE("state-ttl", DURATION, state_ttl_ms, 0, 1, MOST_MS, .may_be_none = true,                   \
        .takes = "a duration, or none", .about = "how long an unused state is kept")               \
    ONE("high-mark", COUNT, high_mark, 10000, 1, MOST_COUNT, .may_be_none = true,                  \
        .takes = "a count, or none", .about = "jobs waiting here that hold the stages before")     \
    ONE("group", CHOICE, group, 0, 0, 1, .choices = { "off", "on" }, .takes = "off or on",         \
        .about = "on: keys take turns by their part before a /")                                   \
    ONE("group-concurrency", COUNT, group_concurrency, 0, 1, MOST_COUNT, .may_be_none = true,      \
        .takes = "a count, or none", .about = "jobs of one group that run at once")                \
    ONE("group-rate", RATE, group_rate_per_h, 0, 1, MOST_RATE_PER_H, .may_be_none = true,          \
        .takes = "a rate such as 100/s, 30/m or 5/h, or none",                                     \
        .about = "starts of one group per time")

#define POLICY_MEMBER(name, kind, member, ...) uint64_t member;
#define POLICY_MEMBERS(name, kind, member, usual, least, most, member2, ...)                       \
    uint64_t member, member2;

// Every member is a uint64_t, so that rows can refer to it by its offset.
struct policy {
    POLICIES(POLICY_MEMBER, POLICY_MEMBERS)
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
