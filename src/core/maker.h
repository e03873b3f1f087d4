// Maker: what each token has made in this core, its shares and its quotas. maker.c has the idea.
#ifndef CORE_MAKER_H
#define CORE_MAKER_H

#include "core/state.h"

enum { JOB_MAKERS_MOST = (1 << 21) - 1 }; // whom jobs count for: see job.c

enum made {
    MADE_STAGE,
    MADE_ENTRY, // of a stage of another shard: see maker.c
    MADE_KNOWN, // a stage with `known_only`
    MADE_SOURCE,
    MADE_EPIC,
    MADE_SCHEDULE,
    MADE_JOB, // that counts for it, or an entry of the outbox that will
    MADE_END,
};

struct maker {
    uint64_t name;           // as core_act_for set it
    uint32_t made[MADE_END]; // counts by enum made
    uint64_t bytes;          // of the jobs that count for it
    uint64_t asked_ms;       // the latest call of peers.share
};

enum made stage_made(const struct core *, const struct stage *); // stage.c

uint32_t maker_find(const struct core *); // the current one (core_act_for); 0: not known
uint32_t maker_of_name(const struct core *, uint64_t name); // 0: it has made nothing
uint32_t maker_count(const struct core *, enum made);
// Whether it has room in its shares there; once in an instant.
void maker_ask_peers(struct core *, uint32_t maker);
uint32_t maker_share(const struct core *, uint32_t most); // how many it may have here of `most`
const char *maker_where(const struct core *);             // for messages about its share
uint64_t maker_name(const struct core *, uint32_t maker); // as written in records; 0: not known
int maker_reserve(struct core *, uint64_t name);
// After maker_reserve; returns the maker.
uint32_t maker_add(struct core *, uint64_t name, enum made);
void maker_remove(struct core *, uint32_t maker, enum made);
int maker_reserve_job(struct core *, uint64_t name); // for a job that counts for it
void maker_add_bytes(struct core *, uint32_t maker, int64_t bytes);
// Whether the current maker may have so many more of that kind. MR_EFULL: with its quota.
int quota_check(const struct core *, enum quota_kind, uint64_t more);
// Whether jobs that no command makes count for this maker; 0 stands for none.
bool maker_counts_jobs(const struct core *, uint64_t name);

#endif
