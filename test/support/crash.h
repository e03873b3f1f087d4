// An operator that passes pairs on and fails attempts of its blocks with a probability, after it
// has emitted: what a failed attempt has made must not be seen.
#ifndef TEST_SUPPORT_CRASH_H
#define TEST_SUPPORT_CRASH_H

#include "base/bytes.h"
#include "millrace_flow.h"

struct crash {
    double p;
    uint64_t seed;
};

// Decided by seed, job and attempt; all pairs of a block have the same.
static int crash_pair(mr_pair pair, mr_flow_out *out, void *arg) {
    const struct crash *c = arg;
    const mr_job *job = mr_flow_job(out);
    uint64_t of[3] = { c->seed, mr_job_id(job), mr_job_attempt(job) };
    double chance = (double)(bytes_hash(bytes_of(of, sizeof of), 0) >> 11) * 0x1p-53;
    int err = mr_flow_emit(out, pair.key, pair.value);
    return err >= 0 && chance < c->p ? MR_EAGAIN : err;
}

// Adds the operator; `c` must stay where it is. Its attempts do not run out, unless they are set.
static inline int crash_add(mr_flow *f, const char *name, const char *from, struct crash *c,
                            const mr_operator_options *o) {
    mr_operator_options options = o ? *o : (mr_operator_options){ 0 };
    options.apart = 1;
    options.attempts = options.attempts ? options.attempts : 65535;
    options.backoff = options.backoff ? options.backoff : "0ms";
    return mr_flow_flat_map(f, name, from, crash_pair, c, &options);
}

#endif
