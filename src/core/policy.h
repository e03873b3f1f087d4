// Policy: what a stage is told to do. Every policy has a name, a default and a textual value.
#ifndef CORE_POLICY_H
#define CORE_POLICY_H

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

// 0 means "none" for every limit here.
struct policy {
    uint64_t max_jobs, max_channel;
    uint64_t lease_ms;
    uint32_t attempts;
    uint64_t backoff_first_ms, backoff_most_ms;
    bool halt_on_dead, overlap_never;
    uint64_t dedupe_window_ms;
    uint64_t retention_ms, retention_count;
    uint64_t concurrency;
    uint64_t rate_per_h; // starts per hour
    uint64_t max_states, state_ttl_ms;
    uint64_t high_mark; // jobs, above which upstream stages are not started; low is half of it
};

struct policy policy_default(void);
bool policy_equal(const struct policy *, const struct policy *);

// Whether policy_set could have made it.
bool policy_is_possible(const struct policy *);

// Sets the policy called `name`. Durations are milliseconds, or carry a unit (250ms 30s 5m 2h 7d);
// "none" lifts a limit. MR_EINVAL names what was wrong and what is possible; nothing is changed.
//   max-jobs N · max-channel N · lease D · attempts N · backoff D[..D] · on-dead skip|halt ·
//   overlap brief|never · dedupe-window D · retention D[,N] · concurrency N · rate N[/s|/m|/h] ·
//   max-states N · state-ttl D · high-mark N
int policy_set(struct policy *, mr_bytes name, mr_bytes value);

// Reads all of `text` as such a duration, of at most 100 years. False: it is none.
bool policy_duration(mr_bytes text, uint64_t *out_ms);

// Writes the value of policy number `index` as policy_set would read it; returns its name, or NULL
// when there are no more.
const char *policy_get(const struct policy *, size_t index, char *out_value, size_t size);

// How long a channel is parked after its head failed `attempt` times: doubling, give or take a
// fifth as `jitter` says.
uint64_t backoff_ms(const struct policy *, uint32_t attempt, uint64_t jitter);

#endif
