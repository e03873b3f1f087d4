// Making histories, running them, making failing ones short.
#include "history.h"

#include "resolve.h"

#include <inttypes.h>
#include <stdlib.h>

// How often each operation comes up, and what must be in the history for it.
static const struct {
    enum op op;
    unsigned weight, feature;
} weights[] = {
    { OP_TIME, 60, 0 },
    { OP_PUSH, 150, 0 },
    { OP_PUSH_LEAVE, 4, FEATURE_ROOM },
    { OP_AWAIT, 10, FEATURE_CALLS },
    { OP_AWAIT_LEAVE, 20, FEATURE_CALLS },
    { OP_CANCEL, 20, 0 },
    { OP_TAKE, 140, 0 },
    { OP_TAKE_LEAVE, 8, 0 },
    { OP_DONE, 100, 0 },
    { OP_FAIL, 40, 0 },
    { OP_RELEASE, 20, 0 },
    { OP_BEAT, 15, 0 },
    { OP_RETRY, 15, 0 },
    { OP_DUE, 8, 0 },
    { OP_DROP, 10, 0 },
    { OP_SET, 20, FEATURE_POLICY },
    { OP_PAUSE, 3, 0 },
    { OP_DRAIN, 2, 0 },
    { OP_RESUME, 16, 0 },
    { OP_LINK, 4, FEATURE_MARKS },
    { OP_LEAVE, 12, 0 },
    { OP_EPIC_END, 2, FEATURE_NUMBERS },
    { OP_EPIC_SKIP, 3, FEATURE_NUMBERS },
    { OP_EPIC_DROP, 2, FEATURE_NUMBERS },
    { OP_EPIC_CANCEL, 2, FEATURE_NUMBERS },
    { OP_EPIC_FORGET, 3, FEATURE_NUMBERS },
    { OP_EPIC_THEN, 5, FEATURE_NUMBERS },
    { OP_SCHEDULE, 10, FEATURE_SCHEDULES },
    { OP_SCHEDULE_DROP, 2, FEATURE_SCHEDULES },
    { OP_SCHEDULE_PAUSE, 3, FEATURE_SCHEDULES },
    { OP_SCHEDULE_RESUME, 6, FEATURE_SCHEDULES },
    { OP_SCHEDULE_NOW, 6, FEATURE_SCHEDULES },
    { OP_SCHEDULE_DRY, 4, FEATURE_SCHEDULES },
    { OP_TICK, 30, FEATURE_SCHEDULES },
    { OP_CLEAN, 12, FEATURE_CLEAN },
    { OP_CRASH, 10, FEATURE_CRASH },
};

static enum op random_op(struct chance *chance, unsigned features) {
    unsigned sum = 0, count = sizeof weights / sizeof *weights;
    for (unsigned i = 0; i < count; i++)
        sum += (weights[i].feature & ~features) ? 0 : weights[i].weight;
    unsigned pick = (unsigned)chance_below(chance, sum);
    for (unsigned i = 0; i < count; i++) {
        unsigned weight = (weights[i].feature & ~features) ? 0 : weights[i].weight;
        if (pick < weight)
            return weights[i].op;
        pick -= weight;
    }
    return OP_TIME;
}

void history_make(struct history *h, uint64_t seed) {
    struct chance chance = { seed };
    h->seed = seed;
    h->features = (unsigned)chance_next(&chance) & FEATURE_ALL;
    if (h->features & (FEATURE_ROOM | FEATURE_GROUPS))
        h->features |= FEATURE_POLICY;
    h->count = 20 + chance_below(&chance, 1 + chance_below(&chance, STEPS - 20));
    for (size_t i = 0; i < h->count; i++) {
        bool opening = i < 8 && (h->features & FEATURE_POLICY) && chance_below(&chance, 2);
        h->steps[i].op = opening ? OP_SET : random_op(&chance, h->features);
        h->steps[i].seed = chance_next(&chance);
    }
}

static void say(struct lockstep *t, const struct command *c, FILE *script) {
    char line[512];
    if (script) {
        command_print(c, line, sizeof line);
        fprintf(script, "    %s\n", line);
    }
    lockstep_run(t, c);
}

// At the end everything is taken, which shows the order of ready.
static void take_all(struct lockstep *t, FILE *script) {
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < 40 && !*t->why && !t->model->ambiguous; i++) {
            struct command c = { .op = i ? OP_TAKE : OP_RESUME, .now_ms = t->model->now_ms };
            c.job.stage = c.stages[0] = s;
            c.source = c.taker = c.caller = c.pusher = -1;
            c.stage_count = 1;
            c.count = 1;
            c.lease_ms = 1000;
            int before = t->model->lease_count;
            if (t->model->full || before + 4 > MANY)
                return;
            say(t, &c, script);
            if (i && t->model->lease_count == before)
                break;
        }
}

static void result_of(const struct lockstep *t, struct history_result *out) {
    *out = (struct history_result){ .good = !*t->why, .ambiguous = t->model->ambiguous };
    out->steps = t->steps;
    out->appends = t->appends;
    out->log_hash = t->log_hash;
    out->failures = t->failures;
    snprintf(out->why, sizeof out->why, "%s", t->why);
}

static bool goes_on(const struct lockstep *t) {
    const struct model *m = t->model;
    return !*t->why && !t->late && !m->ambiguous && !m->full && m->lease_count + 8 < MANY;
}

static void run(const struct history *h, struct lockstep *t, FILE *script, struct command *out_said,
                size_t *out_count) {
    for (size_t i = 0; i < h->count && goes_on(t); i++) {
        struct command c;
        if (!resolve(t->model, &h->steps[i], h->features, &c))
            continue;
        if (out_said)
            out_said[(*out_count)++] = c;
        say(t, &c, script);
    }
}

void history_run(const struct history *h, struct trouble trouble, FILE *script,
                 struct history_result *out) {
    struct lockstep *t = lockstep_create(trouble.fault);
    t->fail_alloc = trouble.fail_alloc;
    t->refuse_append = trouble.refuse_append;
    t->refuse_with = trouble.refuse_with;
    run(h, t, script, NULL, NULL);
    if (goes_on(t))
        take_all(t, script);
    result_of(t, out);
    lockstep_destroy(t);
}

bool history_repeats(const struct history *h) {
    struct command *commands = calloc(h->count, sizeof *commands);
    size_t count = 0;
    struct lockstep *first = lockstep_create(FAULT_NONE), *second = lockstep_create(FAULT_NONE);
    run(h, first, NULL, commands, &count);
    bool same = true;
    if (goes_on(first)) {
        for (size_t i = 0; i < count; i++)
            lockstep_run_core(second, &commands[i]);
        same = first->log_hash == second->log_hash;
    }
    lockstep_destroy(first);
    lockstep_destroy(second);
    free(commands);
    return same;
}

static bool fails_without(const struct history *h, size_t from, size_t count,
                          struct trouble trouble, struct history *out) {
    struct history_result result;
    *out = *h;
    memmove(&out->steps[from], &out->steps[from + count],
            (h->count - from - count) * sizeof *out->steps);
    out->count = h->count - count;
    history_run(out, trouble, NULL, &result);
    return !result.good;
}

void history_shrink(struct history *h, struct trouble trouble) {
    static struct history shorter;
    bool again = true;
    while (again) {
        again = false;
        for (size_t chunk = h->count / 2 + 1; chunk > 0; chunk /= 2)
            for (size_t from = 0; from + chunk <= h->count;)
                if (fails_without(h, from, chunk, trouble, &shorter)) {
                    *h = shorter;
                    again = true;
                } else {
                    from += chunk;
                }
    }
}
