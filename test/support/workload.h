// Workload: a random workload for a shard that checks itself, however often it is interrupted.
//
//     feed: 1 2 3 …  ──►  stage "work", key n mod KEYS  ──commit──►  stage "out", same key
//                               state: how many jobs of the key are done
//
// Because a channel keeps order and its state moves with each commit, every job taken must be
// exactly the one after its channel's state; and since a commit carries state, result, emit and end
// together, a commit that was lost, doubled, torn or overtaken shows at the next take of that key.
// Acknowledged facts are stored in this struct, without pointers, so that it can be in memory
// shared with a process that is killed. Fields are written in an order that is valid at any kill.
//
// A failed check prints the seed and aborts.
#ifndef TEST_SUPPORT_WORKLOAD_H
#define TEST_SUPPORT_WORKLOAD_H

#include "base/errors.h"
#include "base/mem.h"
#include "shard/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKLOAD_KEYS = 5,
    WORKLOAD_HELD = 6,
    WORKLOAD_IDS = 1 << 17,
    WORKLOAD_SIDE = 64,
    WORKLOAD_BODY = 4096
};
enum workload_stage { STAGE_WORK, STAGE_OUT, STAGE_SIDE, STAGES };

struct workload_held {
    uint64_t id;
    struct token token;
    enum workload_stage stage;
    uint64_t number; // of the feed; 0: its body has not been read yet
    uint64_t state_at;
};

struct workload_issued {
    uint64_t what; // stage and number
    uint64_t id;
};

struct workload {
    uint64_t seed, dice, step;
    uint64_t fed;                            // numbers up to here were acknowledged
    uint64_t through[STAGES][WORKLOAD_KEYS]; // jobs of the key whose commit was acknowledged
    uint64_t side, side_gone[WORKLOAD_SIDE]; // `once` names used; ids cancelled of the latest ones
    uint64_t backoff_ms;                     // the policy acknowledged last; 0: none
    uint64_t last_serial;                    // of the tokens issued
    struct workload_issued issued[WORKLOAD_IDS]; // by hash of the id
    bool forgets;                                // acknowledged things may be lost (sync none)
    uint32_t big;                                // bytes of the largest body
    uint64_t commits, opens, losses;             // for checks that enough has happened
    // Of this process, since the last opening:
    struct shard *shard;
    struct conn conn;
    struct workload_held held[WORKLOAD_HELD];
    size_t held_count;
    uint64_t boot_ms, wall_ms;
};

static const char *const workload_names[STAGES] = { "work", "out", "side" };

static _Noreturn void workload_fail(const struct workload *s, int line, const char *what) {
    fprintf(stderr, "workload.h:%d: %s\n  seed %llu, step %llu, opening %llu; last error: %s\n",
            line, what, (unsigned long long)s->seed, (unsigned long long)s->step,
            (unsigned long long)s->opens, error_text());
    abort();
}

#define must(workload, condition)                                                                  \
    do {                                                                                           \
        if (!(condition))                                                                          \
            workload_fail(workload, __LINE__, #condition);                                         \
    } while (0)

static inline uint64_t dice_next(uint64_t *dice) {
    uint64_t z = *dice += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t workload_roll(struct workload *s, uint64_t below) {
    return dice_next(&s->dice) % below;
}

// The storage has failed: the outcome of the step is unknown. (A disk that cannot allocate is a
// full one.)
static inline bool workload_is_cut(int err) {
    return err == MR_ESTOPPED || err == MR_EIO || err == MR_EFULL;
}

static inline void workload_begin(struct workload *s, uint64_t seed) {
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->dice = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    s->wall_ms = 1700000000000;
    s->big = 1500;
}

// ---- Issued ids -------------------------------------------------------------------------------

static inline struct workload_issued *workload_slot(struct workload *s, uint64_t id) {
    size_t i = (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 40) % WORKLOAD_IDS;
    while (s->issued[i].id && s->issued[i].id != id)
        i = (i + 1) % WORKLOAD_IDS;
    return &s->issued[i];
}

// An id means one thing for ever. `fresh`: it must not have been seen at all.
static inline void workload_show_id(struct workload *s, uint64_t id, enum workload_stage stage,
                                    uint64_t number, bool fresh) {
    uint64_t what = number * STAGES + stage;
    struct workload_issued *slot = workload_slot(s, id);
    must(s, id != 0);
    must(s, !fresh || slot->id == 0);
    must(s, slot->id == 0 || slot->what == what);
    slot->what = what;
    __atomic_store_n(&slot->id, id, __ATOMIC_RELEASE); // last, in case of a kill in between
}

// ---- A turn: begin, a command, end, wait ------------------------------------------------------

static inline int workload_turn(struct workload *s) {
    int err = shard_begin(s->shard);
    bool more;
    if (err >= 0)
        err = shard_clean(s->shard, &more);
    if (err < 0)
        shard_end(s->shard);
    return err;
}

static inline int workload_settle(struct workload *s, int err) {
    uint64_t at = shard_end(s->shard);
    int waited = shard_wait(s->shard, at);
    must(s, waited < 0 || shard_is_durable(s->shard, at));
    return err < 0 ? err : waited;
}

// ---- The feed ---------------------------------------------------------------------------------

static inline uint64_t workload_key(uint64_t number) {
    return number % WORKLOAD_KEYS;
}

// How many numbers of its key there are up to this one.
static inline uint64_t workload_rank(uint64_t number) {
    return (number + WORKLOAD_KEYS - 1) / WORKLOAD_KEYS;
}

static inline uint64_t workload_fed_of(const struct workload *s, uint64_t key) {
    for (uint64_t n = s->fed; n > 0 && n + WORKLOAD_KEYS > s->fed; n--)
        if (workload_key(n) == key)
            return workload_rank(n);
    return 0;
}

static inline size_t workload_body(const struct workload *s, uint64_t number,
                                   char out[WORKLOAD_BODY]) {
    uint64_t dice = s->seed ^ number << 20;
    size_t length = dice_next(&dice) % 8 ? dice_next(&dice) % 100 : dice_next(&dice) % s->big;
    size_t begun = (size_t)snprintf(out, WORKLOAD_BODY, "%llu ", (unsigned long long)number);
    length = length < begun ? begun : length;
    memset(out + begun, 'a' + (int)(number % 26), length - begun);
    return length;
}

static inline int workload_feed(struct workload *s) {
    uint64_t number = s->fed + 1;
    char body[WORKLOAD_BODY], key[8];
    size_t size = workload_body(s, number, body);
    snprintf(key, sizeof key, "k%d", (int)workload_key(number));
    int err = workload_turn(s);
    if (err < 0)
        return err;
    struct push push = { .stage = mr_str("work"),
                         .job.key = mr_str(key),
                         .body = { body, size },
                         .source = mr_str("feed"),
                         .number = number,
                         .epic = true };
    struct pushed pushed = { 0 };
    err = workload_settle(s, core_push(shard_core(s->shard), &push, &pushed));
    if (err < 0)
        return err;
    must(s, pushed.id || pushed.repeat);
    if (pushed.id)
        workload_show_id(s, pushed.id, STAGE_WORK, number, !pushed.repeat);
    s->fed = number;
    return 0;
}

// ---- Work -------------------------------------------------------------------------------------

static inline int workload_read(struct workload *s, uint64_t at, char out[WORKLOAD_BODY]) {
    struct buffer body = { 0 };
    int err = at ? shard_read(s->shard, at, &body) : 0;
    must(s, err != MR_ECORRUPT && err != MR_EINVAL && body.size < WORKLOAD_BODY);
    if (body.size)
        memcpy(out, body.data, body.size);
    out[err < 0 ? 0 : body.size] = 0;
    buffer_finish(&body);
    return err;
}

static inline int workload_meet_side(struct workload *s, struct workload_held *held,
                                     uint64_t number) {
    must(s, number <= WORKLOAD_SIDE);
    must(s, s->forgets || s->side_gone[number - 1] != held->id);
    held->number = number;
    return 0;
}

// Reads the body and the state, and sees that it is this job's turn. If memory was short when it
// was taken, the cleaner may have moved its state meanwhile; then that is not checked.
static inline int workload_meet(struct workload *s, struct workload_held *held) {
    char body[WORKLOAD_BODY], expected[WORKLOAD_BODY], state[WORKLOAD_BODY];
    struct job_info job;
    int err = core_look_job(shard_core(s->shard), held->id, &job);
    if (err >= 0)
        err = workload_read(s, job.at, body);
    if (err < 0)
        return err;
    uint64_t number = strtoull(body, NULL, 10);
    must(s, number > 0);
    if (held->stage == STAGE_SIDE)
        return workload_meet_side(s, held, number);
    expected[workload_body(s, number, expected)] = 0;
    must(s, strcmp(body, expected) == 0);
    err = workload_read(s, held->state_at, state);
    if (err < 0 && err != MR_EGONE)
        return err;
    must(s, err == MR_EGONE || workload_rank(number) == strtoull(state, NULL, 10) + 1);
    must(s, s->forgets || workload_rank(number) > s->through[held->stage][workload_key(number)]);
    workload_show_id(s, held->id, held->stage, number, false);
    held->number = number;
    return 0;
}

static inline int workload_take(struct workload *s) {
    if (s->held_count == WORKLOAD_HELD)
        return 0;
    int err = workload_turn(s);
    if (err < 0)
        return err;
    mr_bytes stages[STAGES] = { mr_str("out"), mr_str("work"), mr_str("side") };
    struct take take = { .stages = stages, .stage_count = STAGES, .count = 1, .conn = &s->conn };
    struct grant grant;
    size_t count = 0;
    err = core_take(shard_core(s->shard), &take, &grant, &count);
    struct workload_held held = { 0 };
    if (err >= 0) {
        held = (struct workload_held){ .id = grant.id,
                                       .token = grant.token,
                                       .state_at = grant.state_at };
        while (!bytes_equal(mr_str(workload_names[held.stage]), grant.stage))
            held.stage++;
    }
    err = workload_settle(s, err);
    if (err < 0)
        return err == MR_EAGAIN ? 0 : err;
    must(s, held.token.serial > s->last_serial);
    s->last_serial = held.token.serial;
    s->held[s->held_count++] = held;
    return workload_meet(s, &s->held[s->held_count - 1]);
}

static inline int workload_commit(struct workload *s, const struct workload_held *held) {
    char body[WORKLOAD_BODY], key[8], state[32];
    size_t size = workload_body(s, held->number, body);
    snprintf(key, sizeof key, "k%d", (int)workload_key(held->number));
    snprintf(state, sizeof state, "%llu", (unsigned long long)workload_rank(held->number));
    struct emit emit = { .stage = mr_str("out"), .job.key = mr_str(key), .body = { body, size } };
    struct done done = { .id = held->id, .token = held->token, .result = mr_str(key) };
    if (held->stage != STAGE_SIDE) {
        done.set_state = true;
        done.state = mr_str(state);
    }
    if (held->stage == STAGE_WORK) {
        done.emits = &emit;
        done.emit_count = 1;
    }
    return core_done(shard_core(s->shard), &done);
}

static inline void workload_note_commit(struct workload *s, const struct workload_held *held) {
    s->commits++;
    if (held->stage != STAGE_SIDE)
        s->through[held->stage][workload_key(held->number)] = workload_rank(held->number);
}

// Ends a held job somehow: mostly by a commit.
static inline int workload_finish(struct workload *s) {
    if (!s->held_count)
        return 0;
    size_t index = (size_t)workload_roll(s, s->held_count);
    uint64_t how = workload_roll(s, 10);
    int err = workload_turn(s);
    if (err < 0)
        return err;
    struct workload_held *held = &s->held[index];
    if (!held->number)
        err = workload_meet(s, held);
    struct core *core = shard_core(s->shard);
    if (err >= 0 && how < 7)
        err = workload_commit(s, held);
    else if (err >= 0 && how < 9)
        err = core_fail(core, held->id, &held->token, mr_str("a random failure"), MR_BACKOFF);
    else if (err >= 0)
        err = core_release(core, held->id, &held->token, 0);
    err = workload_settle(s, err);
    if (err == MR_ENOMEM)
        return err; // the command was not executed
    if (err >= 0 && how < 7)
        workload_note_commit(s, held);
    bool lost = err == MR_ESTALE || err == MR_ECANCELLED || err == MR_EGONE;
    *held = s->held[--s->held_count];
    return lost ? 0 : err;
}

// ---- Side: names, cancelling, dying -----------------------------------------------------------

static inline int workload_push_named(struct workload *s, struct pushed *out) {
    char once[32], body[32];
    snprintf(once, sizeof once, "name %llu", (unsigned long long)s->side);
    snprintf(body, sizeof body, "%llu", (unsigned long long)(s->side % WORKLOAD_SIDE + 1));
    struct push push = { .stage = mr_str("side"), .job.once = mr_str(once), .body = mr_str(body) };
    int err = workload_turn(s);
    return err < 0 ? err : workload_settle(s, core_push(shard_core(s->shard), &push, out));
}

static inline int workload_cancel(struct workload *s, uint64_t id, uint64_t *out_gone) {
    int err = workload_turn(s);
    if (err < 0)
        return err;
    bool changed;
    struct job_info job = { 0 };
    err = core_cancel(shard_core(s->shard), id, &changed);
    bool gone = err >= 0 && core_look_job(shard_core(s->shard), id, &job) >= 0 &&
                job.status == JOB_CANCELLED;
    err = workload_settle(s, err);
    if (err >= 0 && gone)
        *out_gone = id;
    return err == MR_EGONE ? 0 : err;
}

// Pushes a named job twice, then perhaps cancels it: the second push must be a repeat, and what was
// cancelled must not be met again.
static inline int workload_side(struct workload *s) {
    uint64_t *gone = &s->side_gone[s->side % WORKLOAD_SIDE];
    struct pushed first, again;
    int err = workload_push_named(s, &first);
    if (err >= 0)
        err = workload_push_named(s, &again);
    if (err < 0)
        return err;
    must(s, again.repeat && again.id == first.id);
    s->side++;
    return workload_roll(s, 2) ? 0 : workload_cancel(s, first.id, gone);
}

static inline int workload_set(struct workload *s, const char *stage, const char *name,
                               const char *value) {
    return core_set(shard_core(s->shard), mr_str(stage), mr_str(name), mr_str(value));
}

static inline int workload_policy(struct workload *s) {
    char value[32];
    uint64_t backoff_ms = 1 + workload_roll(s, 50), before = s->backoff_ms;
    snprintf(value, sizeof value, "%dms..%dms", (int)backoff_ms, (int)backoff_ms + 50);
    int err = workload_turn(s);
    if (err < 0)
        return err;
    s->backoff_ms = 0; // unknown in case the answer is lost
    err = workload_settle(s, workload_set(s, "work", "backoff", value));
    if (err >= 0)
        s->backoff_ms = backoff_ms;
    else if (err == MR_ENOMEM)
        s->backoff_ms = before;
    return err;
}

// ---- Opening, going on, closing ---------------------------------------------------------------

static inline uint64_t workload_wall(void *arg) {
    return ((struct workload *)arg)->wall_ms;
}

static inline uint64_t workload_boot(void *arg) {
    return ((struct workload *)arg)->boot_ms;
}

static inline uint64_t workload_random(void *arg) {
    (void)arg;
    return 7; // a constant: tokens must differ without randomness
}

// Attempts are many, so that nothing of the feed dies; little is retained, so that much is dead.
static inline int workload_prepare(struct workload *s) {
    int err = shard_begin(s->shard);
    for (int i = 0; i < STAGES && err >= 0; i++) {
        err = workload_set(s, workload_names[i], "retention", "1h,3");
        if (err >= 0)
            err = workload_set(s, workload_names[i], "attempts", i == STAGE_SIDE ? "2" : "60000");
    }
    if (err >= 0 && !s->backoff_ms)
        err = workload_set(s, "work", "backoff", "1ms..50ms");
    err = workload_settle(s, err);
    if (err >= 0 && !s->backoff_ms)
        s->backoff_ms = 1;
    return err;
}

static inline void workload_verify(struct workload *s) {
    struct core *core = shard_core(s->shard);
    must(s, core_check(core) == 0);
    struct epic_info feed = { .resume = 1 };
    int err = core_epic(core, mr_str("work"), mr_str("feed"), &feed);
    must(s, err == 0 || (err == MR_EGONE && (s->forgets || s->fed == 0)));
    must(s, feed.resume <= s->fed + 2);
    must(s, s->forgets || feed.resume >= s->fed + 1);
    if (s->forgets && feed.resume <= s->fed) {
        s->losses++;
        s->fed = feed.resume - 1;
    }
    struct stage_info work;
    if (s->backoff_ms && !s->forgets && core_look_stage(core, mr_str("work"), &work) == 0)
        must(s, work.policy->backoff_first_ms == s->backoff_ms);
}

static inline void workload_close(struct workload *s) {
    shard_close(s->shard);
    s->shard = NULL;
}

// Opens (again) and checks what came back. On failure nothing is open.
static inline int workload_open(struct workload *s, const struct shard_options *base) {
    struct shard_options options = *base;
    options.world = (struct shard_world){ workload_wall, workload_boot, workload_random, s };
    s->opens++;
    s->held_count = 0;
    s->shard = NULL;
    int err = shard_open(&options, &s->shard);
    if (err < 0)
        return err;
    core_join(shard_core(s->shard), &s->conn);
    workload_verify(s);
    err = workload_prepare(s);
    if (err < 0)
        workload_close(s);
    return err;
}

static inline int workload_step(struct workload *s) {
    s->step++;
    uint64_t roll = workload_roll(s, 100);
    if (roll < 30)
        return workload_feed(s);
    if (roll < 55)
        return workload_take(s);
    if (roll < 85)
        return workload_finish(s);
    if (roll < 90)
        return workload_side(s);
    if (roll < 92)
        return workload_policy(s);
    s->boot_ms += workload_roll(s, 100);
    s->wall_ms += workload_roll(s, 100);
    return 0;
}

// Goes on for some steps. Stops early, with its code, when the storage ends.
static inline int workload_go_on(struct workload *s, uint64_t steps) {
    for (uint64_t i = 0; i < steps; i++) {
        int err = workload_step(s);
        if (workload_is_cut(err))
            return err;
        must(s, err >= 0 || err == MR_ENOMEM);
    }
    return 0;
}

static inline bool workload_is_drained(const struct workload *s) {
    for (int stage = STAGE_WORK; stage <= STAGE_OUT; stage++)
        for (uint64_t key = 0; key < WORKLOAD_KEYS; key++)
            if (s->through[stage][key] != workload_fed_of(s, key))
                return false;
    return true;
}

// Works until everything that was fed has come through both stages. One more of each key goes
// first: a commit whose answer was lost shows by what comes after it.
static inline void workload_drain(struct workload *s) {
    for (int i = 0; i < WORKLOAD_KEYS; i++)
        must(s, workload_feed(s) == 0);
    for (int i = 0; i < 100000 && !workload_is_drained(s); i++) {
        must(s, (i % 2 ? workload_finish(s) : workload_take(s)) == 0);
        s->boot_ms += 20;
    }
    must(s, workload_is_drained(s));
    must(s, core_check(shard_core(s->shard)) == 0);
}

#endif
