// Groups in the model: which one's turn it is, and what holds them. The ready channels of all
// groups stand in one array; those of a group are the ones with its keys.
#include "model_rules.h"

#include <string.h>

static size_t group_size(const char *key) {
    return strcspn(key, "/");
}

int model_group(const char *key) {
    int g = 0;
    while (group_size(key_names[g]) != group_size(key) ||
           strncmp(key_names[g], key, group_size(key)) != 0)
        g++;
    return g;
}

bool model_orders(const struct model *m, int stage, const char *key) {
    return *key && !(m->stages[stage].policy.group && strcmp(key + group_size(key), "/") == 0);
}

uint64_t model_group_leased(const struct model *m, int stage, int group) {
    uint64_t jobs = 0;
    for (int l = 0; l < m->lease_count; l++)
        for (int i = 0; i < m->leases[l].count; i++)
            jobs += m->leases[l].alive && m->leases[l].stage == stage &&
                    m->leases[l].group == group && !m->leases[l].let_go[i];
    return jobs;
}

const char *model_group_held(const struct model *m, int stage, int group) {
    const struct model_stage *s = &m->stages[stage];
    uint64_t limit = s->policy.group_concurrency;
    if (limit && model_group_leased(m, stage, group) >= limit)
        return "group-limit";
    bool waits = s->policy.group_rate_per_h && s->groups[group].next_us > m->now_ms * 1000;
    return waits ? "group-rate" : "";
}

static int first_of_group(const struct model *m, int stage, int group, int from) {
    const struct model_stage *s = &m->stages[stage];
    while (from < s->ready_count && model_group(m->channels[s->ready[from]].key) != group)
        from++;
    return from < s->ready_count ? from : -1;
}

static int group_find(const int *list, int count, int group) {
    for (int i = 0; i < count; i++)
        if (list[i] == group)
            return i;
    return -1;
}

static void group_take_off(int *list, int *count, int group) {
    int at = group_find(list, *count, group);
    if (at < 0)
        return;
    --*count;
    memmove(&list[at], &list[at + 1], (size_t)(*count - at) * sizeof(int));
}

// Groups at the front that may not start are held.
static void groups_pass(struct model *m, int stage) {
    struct model_stage *s = &m->stages[stage];
    while (s->turn_count && *model_group_held(m, stage, s->turns[0])) {
        s->held[s->held_count++] = s->turns[0];
        group_take_off(s->turns, &s->turn_count, s->turns[0]);
    }
}

void rule_group_place(struct model *m, int stage, int group) {
    struct model_stage *s = &m->stages[stage];
    bool ready = first_of_group(m, stage, group, 0) >= 0;
    bool held = *model_group_held(m, stage, group);
    if (!s->policy.group)
        return;
    if (!ready || held)
        group_take_off(s->turns, &s->turn_count, group);
    if (!ready || !held)
        group_take_off(s->held, &s->held_count, group);
    if (ready && held && group_find(s->held, s->held_count, group) < 0)
        s->held[s->held_count++] = group;
    if (ready && !held && group_find(s->turns, s->turn_count, group) < 0)
        s->turns[s->turn_count++] = group;
    groups_pass(m, stage);
}

void rule_group_started(struct model *m, int stage, int group, int jobs) {
    struct model_stage *s = &m->stages[stage];
    uint64_t per_h = s->policy.group_rate_per_h, *next_us = &s->groups[group].next_us;
    uint64_t now_us = m->now_ms * 1000, each_us = per_h ? (3600000000 + per_h - 1) / per_h : 0;
    uint64_t caught_up_us = now_us < 100000 ? now_us : 100000;
    if (!s->policy.group)
        return;
    if (*next_us < now_us - caught_up_us)
        *next_us = now_us - caught_up_us;
    *next_us += each_us * (uint64_t)jobs;
    group_take_off(s->turns, &s->turn_count, group);
    rule_group_place(m, stage, group);
}

void rule_group_freed(struct model *m, int stage, int group) {
    struct model_stage *s = &m->stages[stage];
    if (group_find(s->held, s->held_count, group) < 0 || *model_group_held(m, stage, group))
        return;
    rule_group_place(m, stage, group);
    rule_touch(m, stage);
}

void rule_group_limits(struct model *m, int stage, const struct policy *before) {
    struct model_stage *s = &m->stages[stage];
    bool rate = s->policy.group_rate_per_h != before->group_rate_per_h;
    if (rate || s->policy.group != before->group)
        memset(s->groups, 0, sizeof s->groups);
    if (!rate && s->policy.group_concurrency == before->group_concurrency)
        return;
    for (int i = 0; i < s->held_count; i++)
        s->turns[s->turn_count++] = s->held[i];
    s->held_count = 0;
    groups_pass(m, stage);
}

uint64_t model_group_next(const struct model *m, int stage, int group) {
    const struct model_stage *s = &m->stages[stage];
    uint64_t next_us = s->groups[group].next_us;
    bool waits = group_find(s->held, s->held_count, group) >= 0 && s->policy.group_rate_per_h &&
                 next_us > m->now_ms * 1000;
    return waits ? (next_us + 999) / 1000 : UINT64_MAX;
}

int model_next_ready(const struct model *m, int stage) {
    const struct model_stage *s = &m->stages[stage];
    if (!s->policy.group)
        return s->ready_count ? s->ready[0] : -1;
    return s->turn_count ? s->ready[first_of_group(m, stage, s->turns[0], 0)] : -1;
}

void model_ready_order(const struct model *m, int stage, int *out) {
    const struct model_stage *s = &m->stages[stage];
    int count = 0;
    for (int i = 0; !s->policy.group && i < s->ready_count; i++)
        out[count++] = s->ready[i];
    for (int i = 0; s->policy.group && i < s->turn_count + s->held_count; i++) {
        int group = i < s->turn_count ? s->turns[i] : s->held[i - s->turn_count];
        for (int at = 0; (at = first_of_group(m, stage, group, at)) >= 0; at++)
            out[count++] = s->ready[at];
    }
}
