// THEN between shards: random histories in which shards crash and messages get lost. The epics live
// in one shard, the stages that their THEN pushes to in others; each is pushed once.
#include "support/proof.h"
#include "support/shard_set.h"

#include <inttypes.h>
#include <stdio.h>

enum { EPICS = 6, NUMBERS = 4, STEPS = 400 };

struct epic_world {
    struct shard_set *set;
    uint64_t next[EPICS]; // numbers up to this one were pushed, as far as no crash has lost them
};

static struct core *home(const struct epic_world *w) {
    return w->set->shard[shard_set_shard_of(w->set, "a")].core;
}

static const char *epic_name(int e) {
    static const char *const names[EPICS] = { "e0", "e1", "e2", "e3", "e4", "e5" };
    return names[e];
}

// Half of them push to a stage of their own shard, or of another, as the names have it.
static const char *then_stage(int e) {
    static const char *const stages[] = { "a", "b", "c" };
    return stages[e % 3];
}

static void say_then(struct epic_world *w, int e) {
    struct emit then = { .stage = mr_str(then_stage(e)),
                         .body = mr_str(epic_name(e)),
                         .job.key = mr_str("then") };
    int err = core_epic_then(home(w), mr_str("a"), mr_str(epic_name(e)), &then);
    shard_set_must(w->set, err == 0);
}

// A number that was pushed before is a repeat; a cancelled epic has no more.
static void push_next(struct epic_world *w, int e) {
    struct push p = { .stage = mr_str("a"),
                      .body = mr_str("work"),
                      .source = mr_str(epic_name(e)),
                      .number = w->next[e] + 1,
                      .epic = true };
    if (w->next[e] == NUMBERS)
        return;
    int err = shard_set_push(w->set, shard_set_shard_of(w->set, "a"), &p);
    shard_set_must(w->set, err == 0 || err == MR_ECANCELLED);
    if (++w->next[e] < NUMBERS)
        return;
    shard_set_must(w->set, core_epic_end(home(w), mr_str("a"), p.source, NUMBERS) == 0);
}

static void cancel(struct epic_world *w, int e) {
    int err = core_epic_cancel(home(w), mr_str("a"), mr_str(epic_name(e)));
    shard_set_must(w->set, err == 0 || err == MR_EGONE);
}

static void finish_one(struct epic_world *w, bool well) {
    struct shard_set *f = w->set;
    if (!f->held_count)
        return;
    size_t which = shard_set_random(f, f->held_count);
    struct shard_set_held h = f->held[which];
    struct core *core = f->shard[h.shard].core;
    shard_set_answered(f, which);
    int err = well || shard_set_random(f, 3)
                  ? core_done(core, &(struct done){ .id = h.id, .token = h.token })
                  : core_fail(core, h.id, &h.token, mr_str("no"), MR_NEVER);
    shard_set_must(f, err == 0 || err == MR_ECANCELLED);
}

static int retry_dead(void *arg, const struct job_info *j) {
    *(uint64_t *)arg = j->id;
    return 1;
}

static void retry_one(struct epic_world *w) {
    uint64_t id = 0;
    (void)core_each_dead(home(w), mr_str("a"), retry_dead, &id);
    if (id)
        shard_set_must(w->set, core_retry(home(w), id) == 0);
}

static void lose_or_deliver(struct shard_set *f) {
    if (f->message_count && shard_set_random(f, 4) == 0)
        shard_set_lose_message(f, shard_set_random(f, f->message_count));
    else if (f->message_count)
        shard_set_deliver(f, shard_set_random(f, f->message_count), shard_set_random(f, 4) == 0);
    else if (f->ack_count)
        (void)shard_set_ack(f, shard_set_random(f, f->ack_count), false);
}

static void step(struct epic_world *w) {
    struct shard_set *f = w->set;
    uint32_t shard = (uint32_t)shard_set_random(f, f->shards);
    int e = (int)shard_set_random(f, EPICS);
    uint64_t how = shard_set_random(f, 100);
    if (how < 15)
        push_next(w, e);
    else if (how < 22)
        say_then(w, e);
    else if (how < 24)
        cancel(w, e);
    else if (how < 40)
        shard_set_wait(f, shard, (int)shard_set_random(f, SHARD_SET_TAKERS), NULL);
    else if (how < 58)
        finish_one(w, false);
    else if (how < 60)
        retry_one(w);
    else if (how < 68)
        (void)shard_set_send(f, shard, (uint32_t)shard_set_random(f, f->shards));
    else if (how < 70)
        shard_set_resend(f, shard, (uint32_t)shard_set_random(f, f->shards));
    else if (how < 82)
        lose_or_deliver(f);
    else if (how < 90)
        shard_set_sync_some(f, shard);
    else if (how < 94)
        shard_set_clean(f, shard, shard_set_random(f, 40));
    else if (how < 97)
        shard_set_pass(f, 10);
    else {
        shard_set_crash(f, shard);
        memset(w->next, 0, sizeof w->next);
    }
}

static void end_all(struct epic_world *w) {
    struct shard_set *f = w->set;
    for (int idle = 0; idle < 20; idle++) {
        for (int e = 0; e < EPICS; e++) {
            say_then(w, e);
            push_next(w, e);
        }
        for (uint32_t i = 0; i < f->shards; i++)
            for (int t = 0; t < SHARD_SET_TAKERS; t++)
                shard_set_wait(f, i, t, NULL);
        while (f->held_count) {
            finish_one(w, true);
            idle = 0;
        }
        (void)shard_set_wake_all(f);
        (void)shard_set_deliver_all(f);
        shard_set_pass(f, 10);
    }
}

static uint64_t pushed_to(const struct epic_world *w, const char *stage) {
    struct stage_info info = { 0 };
    (void)core_look_stage(w->set->shard[shard_set_shard_of(w->set, stage)].core, mr_str(stage),
                          &info);
    return info.pushed;
}

// Jobs of the epics in `a`: those that were accepted.
static void expect_once(const struct epic_world *w) {
    struct shard_set *f = w->set;
    uint64_t accepted = 0, thens_here = 0, thens[2] = { 0 };
    for (int e = 0; e < EPICS; e++) {
        struct epic_info info;
        shard_set_must(f, core_epic(home(w), mr_str("a"), mr_str(epic_name(e)), &info) == 0);
        shard_set_must(f, info.over && info.then_pushed);
        accepted += info.accepted;
        thens_here += *then_stage(e) == 'a';
        thens[*then_stage(e) == 'c'] += *then_stage(e) != 'a';
    }
    shard_set_must(f, pushed_to(w, "a") == accepted + thens_here);
    shard_set_must(f, pushed_to(w, "b") == thens[0]);
    shard_set_must(f, pushed_to(w, "c") == thens[1]);
}

static void history(uint64_t seed) {
    struct epic_world w = { .set = shard_set_create(2 + (uint32_t)(seed % 3), seed) };
    struct shard_set *f = w.set;
    static const char *const stages[] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++) {
        shard_set_set(f, stages[i], "attempts", "60000");
        shard_set_set(f, stages[i], "retention", "100d");
    }
    for (int i = 0; i < STEPS; i++) {
        step(&w);
        shard_set_check(f);
    }
    end_all(&w);
    expect_once(&w);
    shard_set_destroy(f);
}

static void G4_then_crosses_shards_once_over_crashes_and_losses(void **state) {
    (void)state;
    uint64_t until_ms = proof_until_ms(3, 60), seed = proof_seed(0), only = seed;
    for (seed = only ? only : 1; only ? seed == only : monotonic_ms() < until_ms; seed++)
        history(seed);
    print_message("%" PRIu64 " histories\n", seed - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G4_then_crosses_shards_once_over_crashes_and_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
