// Makers: how many stages, sources, epics, schedules and jobs each token has made, so that no token
// uses up all of them, or more than its quota. The records name the maker, so the counts survive a
// restart; those of jobs only if jobs count for it (core_act_for), since that costs a job 16 bytes.
//
// A quota is for all shards of a process together: each reports its changes (core_quotas.changed),
// and asks what there is in all (core_quotas.used). An emit to another shard counts here until that
// shard has acknowledged it.
//
// Each shard has its own share, apart from quotas:
//
// Each shard checks the maker's share when it makes a stage. An emit to a stage of another shard is
// checked here, before the commit is accepted: the shard that receives it cannot refuse it any
// more, so it makes the stage even beyond the share. The sender has an entry for that stage, too,
// which counts here:
//
//     here    entry of x, made by m ── emit, maker m ──┐
//     there                                            └──► stage x, made by m
//
// If the entry could go with its last emit, a token could make ever new stages there. So it stays
// until the other shard answers that, counting x, the maker has less than its share there
// (core_share_left); the answer is no good for an entry that a later emit has used. Then in each
// shard at any time: stages that no entry of another shard stands for + entries ≤ share. Proof:
// making a stage or an entry is checked; an arrival has its entry; and when entries go, all stages
// of the maker there, with the entries there, are less than its share. So all shards together never
// have more stages of a maker than their shares together.
//
// The entry is a STAGE record with the maker, in one group with the commit: it exists before the
// stage in the other shard, also after a crash, and the OUTBOX record needs no maker. The answer is
// sent when it is durable there that stages are gone.
#include "core/maker.h"

#include "base/errors.h"

#include <inttypes.h>
#include <stdio.h>

static struct maker *maker_at(const struct core *c, uint32_t index) {
    return slab_at(&c->makers, index);
}

static bool maker_has_name(const void *owner, uint32_t index, const void *name) {
    return maker_at(owner, index)->name == *(const uint64_t *)name;
}

uint32_t maker_of_name(const struct core *c, uint64_t name) {
    return name ? map_find(&c->maker_by_name, number_hash(name), maker_has_name, c, &name) : 0;
}

uint32_t maker_find(const struct core *c) {
    return maker_of_name(c, c->maker);
}

uint64_t maker_name(const struct core *c, uint32_t index) {
    return index ? maker_at(c, index)->name : 0;
}

uint32_t maker_count(const struct core *c, enum made made) {
    uint32_t index = maker_find(c);
    return index ? maker_at(c, index)->made[made] : 0;
}

// ---- Quotas -------------------------------------------------------------------------------------

// Entries of stages of other shards do not count: they count there.
static const enum quota_kind quota_of[MADE_END] = {
    [MADE_STAGE] = QUOTA_STAGES,   [MADE_ENTRY] = QUOTA_KINDS, [MADE_KNOWN] = QUOTA_KINDS,
    [MADE_SOURCE] = QUOTA_SOURCES, [MADE_EPIC] = QUOTA_EPICS,  [MADE_SCHEDULE] = QUOTA_SCHEDULES,
    [MADE_JOB] = QUOTA_JOBS,
};

static void maker_report(const struct core *c, const struct maker *m, enum quota_kind kind,
                         int64_t by) {
    const struct core_quotas *q = &c->config.quotas;
    if (q->changed && kind != QUOTA_KINDS && by)
        q->changed(q->owner, m->name, kind, by);
}

static struct quotas used_by(const struct maker *m) {
    struct quotas used = { .of = { [QUOTA_BYTES] = m->bytes } };
    for (int i = 0; i < MADE_END; i++)
        if (quota_of[i] != QUOTA_KINDS)
            used.of[quota_of[i]] = m->made[i];
    return used;
}

void core_used(const struct core *c, uint64_t name, struct quotas *out) {
    uint32_t index = maker_of_name(c, name);
    *out = index ? used_by(maker_at(c, index)) : (struct quotas){ 0 };
}

void core_end_quotas(struct core *c) {
    for (uint32_t i = 1; i < c->makers.next_new; i++) {
        const struct maker *m = maker_at(c, i);
        struct quotas used = used_by(m);
        for (int kind = 0; kind < QUOTA_KINDS; kind++)
            maker_report(c, m, (enum quota_kind)kind, -(int64_t)used.of[kind]);
    }
    c->config.quotas = (struct core_quotas){ 0 };
}

void core_act_for(struct core *c, uint64_t maker, const struct maker_quota *quota) {
    bool counts = quota && (quota->most.of[QUOTA_JOBS] || quota->most.of[QUOTA_BYTES]);
    c->maker = maker;
    c->quota = quota;
    c->job_maker = counts ? maker : 0;
}

bool maker_counts_jobs(const struct core *c, uint64_t name) {
    const struct core_quotas *q = &c->config.quotas;
    return name && q->counts_jobs && q->counts_jobs(q->owner, name);
}

static uint64_t quota_used(const struct core *c, enum quota_kind kind) {
    struct quotas used;
    if (c->config.quotas.used)
        return c->config.quotas.used(c->config.quotas.owner, c->maker, kind);
    core_used(c, c->maker, &used);
    return used.of[kind];
}

static const char *quota_way_out(enum quota_kind kind) {
    switch (kind) {
    case QUOTA_STAGES:
        return "STAGE name REMOVE forgets one";
    case QUOTA_JOBS:
    case QUOTA_BYTES:
        return "jobs must end";
    case QUOTA_SOURCES:
        return "a source that is unused for a minute makes room";
    case QUOTA_EPICS:
        return "EPIC … DROP forgets one";
    case QUOTA_SCHEDULES:
        return "SCHEDULE … DROP forgets one";
    case QUOTA_CONNECTIONS:
    case QUOTA_KINDS:
        break;
    }
    return "";
}

APART static int quota_refuse(const struct core *c, enum quota_kind kind, uint64_t used,
                              uint64_t more) {
    const struct maker_quota *q = c->quota;
    const char *word = quota_word(kind);
    int word_size = (int)strlen(word) - (used == 1); // without its plural s
    char adds[48] = "";
    if (kind == QUOTA_BYTES)
        snprintf(adds, sizeof adds, ", this job has %" PRIu64, more);
    return error_set(MR_EFULL,
                     "token '%.*s' has %" PRIu64 " %.*s%s, and its max-%s is %" PRIu64
                     ": %s, or raise it in the server's file of tokens",
                     (int)q->token.size, (const char *)q->token.data, used, word_size, word, adds,
                     word, q->most.of[kind], quota_way_out(kind));
}

int quota_check(const struct core *c, enum quota_kind kind, uint64_t more) {
    uint64_t most = c->quota ? c->quota->most.of[kind] : 0;
    if (!most)
        return 0;
    uint64_t used = quota_used(c, kind);
    return used < most && more <= most - used ? 0 : quota_refuse(c, kind, used, more);
}

// ---- Shares -------------------------------------------------------------------------------------

// Shards do not know each other's counts, so each allows an equal part of what the whole store
// allows. The epics of a stage are all in one shard: with many shards the part has a minimum.
uint32_t maker_share(const struct core *c, uint32_t most) {
    uint32_t of_all = most / c->limits.maker_part, share = of_all / c->config.shards;
    if (share < c->limits.maker_least)
        share = c->limits.maker_least;
    return share < of_all ? share : of_all;
}

// If there is no memory for the question, the next stage asks again.
void maker_ask_peers(struct core *c, uint32_t index) {
    struct maker *m = index ? maker_at(c, index) : NULL;
    if (!m || !c->config.peers.share || m->asked_ms == c->now_ms)
        return;
    if (c->config.peers.share(c->config.peers.owner, m->name) == 0)
        m->asked_ms = c->now_ms;
}

const char *maker_where(const struct core *c) {
    return c->config.shards > 1 ? " in this shard" : "";
}

// ---- Counting -----------------------------------------------------------------------------------

int maker_reserve(struct core *c, uint64_t name) {
    if (!name)
        return 0;
    int err = map_reserve(&c->maker_by_name, 1);
    return err < 0 ? err : slab_reserve(&c->makers, 1);
}

// A job has 21 bits for the number of its maker. The group of an end may have jobs of two makers:
// those of a commit's emits and of THEN.
int maker_reserve_job(struct core *c, uint64_t name) {
    if (!name)
        return 0;
    if (c->makers.used >= JOB_MAKERS_MOST && !maker_of_name(c, name))
        return error_set(MR_ENOMEM, "jobs of %u tokens are known, which is the limit",
                         c->makers.used);
    int err = map_reserve(&c->maker_by_name, 2);
    return err < 0 ? err : slab_reserve(&c->makers, 2);
}

uint32_t maker_add(struct core *c, uint64_t name, enum made made) {
    uint32_t index = maker_of_name(c, name);
    if (!name)
        return 0;
    if (!index) {
        index = slab_take(&c->makers);
        maker_at(c, index)->name = name;
        map_put(&c->maker_by_name, number_hash(name), index);
    }
    maker_at(c, index)->made[made]++;
    maker_report(c, maker_at(c, index), quota_of[made], 1);
    c->made++;
    return index;
}

void maker_remove(struct core *c, uint32_t index, enum made made) {
    if (!index)
        return;
    struct maker *m = maker_at(c, index);
    m->made[made]--;
    maker_report(c, m, quota_of[made], -1);
    c->made--;
    for (int i = 0; i < MADE_END; i++)
        if (m->made[i])
            return;
    map_remove(&c->maker_by_name, number_hash(m->name), index);
    slab_give(&c->makers, index);
}

void maker_add_bytes(struct core *c, uint32_t index, int64_t bytes) {
    struct maker *m = maker_at(c, index);
    m->bytes += (uint64_t)bytes; // a decrease wraps and adds up correctly
    maker_report(c, m, QUOTA_BYTES, bytes);
}
