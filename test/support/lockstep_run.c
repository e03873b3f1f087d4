// Runs one command on both sides and compares the results.
//
//     reach the time, instant by instant ─► command ─► pushes that were notified of room
//          │                                  │            │
//          └──────────── after each: same events? learn ids, tokens, backoffs
#include "lockstep.h"

#include "error_name.h"

#include "base/errors.h"
#include "base/mem.h"

#include <inttypes.h>

// ---- Learning what the model cannot know ------------------------------------------------------

// The core does not return the ids of emitted jobs: they are the next ones.
static bool learn_ids(struct lockstep *t) {
    struct job_info info;
    for (int i = 0; i < t->model->job_count; i++) {
        struct model_job *j = &t->model->jobs[i];
        uint64_t id = t->last_id + 1;
        if (j->id)
            continue;
        while (core_look_job(t->core, id, &info) < 0)
            if (++id > t->last_id + 1000)
                return lockstep_differs(t, "an emitted job (\"%s\") cannot be found", j->body);
        j->id = t->last_id = id;
    }
    return true;
}

// Backoffs may be a fifth off; then they are followed.
static bool learn_waits(struct lockstep *t) {
    struct model *m = t->model;
    for (int i = 0; i < m->job_count; i++) {
        struct model_job *j = &m->jobs[i];
        struct job_info info;
        if (!j->unsure)
            continue;
        j->unsure = false;
        int err = core_look_job(t->core, j->id, &info);
        if (err < 0)
            return lockstep_differs(t, "job %" PRIu64 " is not to be seen", j->id);
        int64_t most = (int64_t)(j->backoff_ms + j->backoff_ms / 5 + 1);
        int64_t least = (int64_t)(j->backoff_ms - j->backoff_ms / 5) - 1;
        if (info.due_ms < least || info.due_ms > most)
            return lockstep_differs(t,
                                    "job %" PRIu64 " is to wait %" PRId64 " ms, not about %" PRIu64,
                                    j->id, info.due_ms, j->backoff_ms);
        j->wait_ms = m->now_ms + (uint64_t)info.due_ms;
    }
    return true;
}

static bool learn_token(struct lockstep *t, int lease, const struct observed_event *grant) {
    struct model_lease *l = &t->model->leases[lease];
    if (!grant->first)
        return grant->token.serial == l->token.serial ||
               lockstep_differs(t, "a block has two tokens");
    for (int i = 0; i < t->model->lease_count; i++)
        if (t->model->leases[i].token.serial == grant->token.serial)
            return lockstep_differs(t, "token %" PRIx64 " was issued before", grant->token.serial);
    l->token = grant->token;
    return true;
}

// ---- Happenings -------------------------------------------------------------------------------

static bool same_grant(struct lockstep *t, const struct observed_event *core,
                       const struct observed_event *model) {
    uint64_t id = t->model->jobs[model->job].id;
    if (core->id != id || core->receiver != model->receiver)
        return lockstep_differs(t,
                                "job %" PRIu64 " is granted to %d, should be job %" PRIu64 " to %d",
                                core->id, core->receiver, id, model->receiver);
    if (core->attempt != model->attempt)
        return lockstep_differs(t, "job %" PRIu64 ": attempt %u is granted, should be %u", id,
                                core->attempt, model->attempt);
    if (core->left_ms != model->left_ms || core->lease_ms != model->lease_ms)
        return lockstep_differs(t,
                                "job %" PRIu64 ": granted with %" PRId64 " ms left, lease %" PRId64
                                "; should be %" PRId64 ", %" PRId64,
                                id, core->left_ms, core->lease_ms, model->left_ms, model->lease_ms);
    if (core->stage != model->stage || strcmp(core->key, model->key) != 0 ||
        strcmp(core->body, model->body) != 0 || strcmp(core->meta, model->meta) != 0)
        return lockstep_differs(t, "job %" PRIu64 ": granted as %d/%s \"%s\"", id, core->stage,
                                core->key, core->body);
    if (core->first != model->first)
        return lockstep_differs(t, "job %" PRIu64 ": blocks differ", id);
    if (core->first && strcmp(core->state, model->state) != 0)
        return lockstep_differs(t, "job %" PRIu64 ": state is \"%s\", should be \"%s\"", id,
                                core->state, model->state);
    return learn_token(t, model->code, core);
}

// The next grant of the stage at or after `at`; NULL: none.
static struct observed_event *next_grant(struct observed *h, int stage, size_t *at) {
    while (*at < h->count && (h->list[*at].kind != OBSERVED_GRANT || h->list[*at].stage != stage))
        ++*at;
    return *at < h->count ? &h->list[(*at)++] : NULL;
}

// Grants come in order within a stage; the rules do not order different stages.
static bool same_grants(struct lockstep *t, int stage) {
    size_t in_core = 0, in_model = 0;
    for (;;) {
        const struct observed_event *core = next_grant(&t->observed, stage, &in_core);
        const struct observed_event *model = next_grant(&t->model->observed, stage, &in_model);
        if (!core && !model)
            return true;
        if (!core)
            return lockstep_differs(t, "job %" PRIu64 " should be granted to %d",
                                    t->model->jobs[model->job].id, model->receiver);
        if (!model)
            return lockstep_differs(t, "job %" PRIu64 " should not be granted (to %d)", core->id,
                                    core->receiver);
        if (!same_grant(t, core, model))
            return false;
    }
}

static bool all_same_grants(struct lockstep *t) {
    for (int s = 0; s < STAGES; s++)
        if (!same_grants(t, s))
            return false;
    return true;
}

static bool same_word(const struct lockstep *t, const struct observed_event *core,
                      const struct observed_event *model) {
    if (core->kind != model->kind || core->receiver != model->receiver || core->code != model->code)
        return false;
    if (core->kind == OBSERVED_STOP && core->token.serial != model->token.serial)
        return false;
    return core->id == t->model->jobs[model->job].id && strcmp(core->body, model->body) == 0;
}

static const char *kind_name(const struct observed_event *h) {
    return h->kind == OBSERVED_ENDED ? "caller" : "stop on connection";
}

// Ends and stops: the order among different receivers does not matter.
static bool same_words(struct lockstep *t) {
    bool matched[OBSERVED_MOST] = { false };
    struct observed *model = &t->model->observed;
    for (size_t i = 0; i < t->observed.count; i++) {
        const struct observed_event *core = &t->observed.list[i];
        size_t k = 0;
        while (k < model->count && (matched[k] || !same_word(t, core, &model->list[k])))
            k++;
        if (core->kind == OBSERVED_GRANT)
            continue;
        if (k == model->count)
            return lockstep_differs(t, "%s %d should get no event for job %" PRIu64 " (%d \"%s\")",
                                    kind_name(core), core->receiver, core->id, core->code,
                                    core->body);
        matched[k] = true;
    }
    for (size_t k = 0; k < model->count; k++) {
        const struct observed_event *h = &model->list[k];
        if (!matched[k] && h->kind != OBSERVED_GRANT)
            return lockstep_differs(t, "%s %d should get an event for job %" PRIu64 " (%d \"%s\")",
                                    kind_name(h), h->receiver, t->model->jobs[h->job].id, h->code,
                                    h->body);
    }
    return true;
}

static bool same_happenings(struct lockstep *t) {
    bool same = learn_ids(t) && all_same_grants(t) && same_words(t) && learn_waits(t);
    t->observed.count = 0;
    model_forget_observed(t->model);
    for (int i = 0; i < SLOTS; i++)
        if (t->refused[i]) {
            core_take_leave(t->core, &t->takers[i]);
            t->refused[i] = false;
        }
    return same && !*t->why;
}

// ---- Calls that may be made to fail -----------------------------------------------------------

static void arm(struct lockstep *t) {
    t->failed_now = false;
    mem_fail_after(t->fail_alloc);
}

// Whether an allocation or append failed since arm().
static bool disarm(struct lockstep *t) {
    long left = mem_fail_after(-1);
    if (t->fail_alloc >= 0 && left < 0)
        t->failed_now = true;
    t->fail_alloc = left;
    return t->failed_now;
}

static bool failed_as_planned(struct lockstep *t, int err) {
    return disarm(t) && err < 0 && (err == MR_ENOMEM || err == t->refuse_with);
}

// A command that failed for want of memory or log has changed nothing, and works the second time.
static void tell_core(struct lockstep *t, const struct command *c, struct answer *out) {
    for (;;) {
        size_t before = t->observed.count;
        *out = (struct answer){ 0 };
        arm(t);
        out->err = lockstep_send_core(t, c, out);
        if (!failed_as_planned(t, out->err))
            return;
        t->failures++;
        if (c->op == OP_LEAVE || c->op == OP_AWAIT_LEAVE)
            break; // the connection is gone, whether or not that could be recorded
        if (t->observed.count != before)
            lockstep_differs(t, "something observed in a command that failed");
        if (core_check(t->core) < 0)
            lockstep_differs(t, "after a failed command: %s", error_text());
        lockstep_compare(t);
    }
    out->err = 0;
}

// What is due and cannot be written down is done a little later. The model knows no such delay: the
// history ends when it has been made up for.
enum { LATER_MS = 100 };

// What the model has forgotten the core has too, and not more than that.
static bool same_forgotten(struct lockstep *t) {
    for (int i = 0; i < t->model->job_count; i++) {
        const struct model_job *j = &t->model->jobs[i];
        struct job_info info;
        if (j->id && (core_look_job(t->core, j->id, &info) < 0) != j->forgotten)
            return lockstep_differs(t, "job %" PRIu64 ": what was left over is not made up for",
                                    j->id);
    }
    return true;
}

// A waiting take that was granted its first job may have been given less, too: the rest waits for
// the next one.
static bool same_counts(const struct model *m, int stage, const struct stage_info *info) {
    uint64_t running = model_count(m, stage, JOB_RUNNING),
             waiting = model_count(m, stage, JOB_WAITING);
    bool gave_less = info->running && info->running < running && !info->takers;
    bool moved = info->running == running && info->waiting == waiting;
    return (moved || (gave_less && info->running + info->waiting == running + waiting)) &&
           info->delayed == model_count(m, stage, JOB_DELAYED) &&
           info->dead == model_count(m, stage, JOB_DEAD);
}

// A command may succeed and leave something for later: a waiting taker not woken, a lost lease not
// written down, an ended job not forgotten. Soon afterwards all is as it would have been.
// `next_ms`: when something was due next as far as one knew before the command.
static bool made_up_for(struct lockstep *t, const struct command *c, uint64_t next_ms) {
    uint64_t later_ms = t->model->now_ms + LATER_MS;
    t->late = true;
    t->refuse_append = -1;
    if (core_advance(t->core, later_ms) < 0 || core_check(t->core) < 0)
        return lockstep_differs(t, "what was left over is not made up for: %s", error_text());
    if (core_log_is_full(t->core)) {
        core_log_has_room(t->core); // the push waits: its client is notified, and pushes again
        t->failures++;
        return core_check(t->core) == 0 || lockstep_differs(t, "room: %s", error_text());
    }
    if (c->op == OP_TAKE || next_ms <= later_ms || model_next(t->model) <= later_ms)
        return true; // a take may give less; or other things have come due meanwhile
    for (int s = 0; s < STAGES; s++) {
        struct stage_info info;
        if (core_look_stage(t->core, mr_str(stage_names[s]), &info) == 0 &&
            !same_counts(t->model, s, &info))
            return lockstep_differs(t, "stage %s: what was left over is not made up for",
                                    stage_names[s]);
    }
    return same_forgotten(t);
}

static int advance_core(struct lockstep *t, uint64_t now_ms) {
    if (t->fault == FAULT_STAY_PARKED && now_ms % 4 == 3)
        return 0;
    arm(t);
    int err = core_advance(t->core, now_ms);
    if (!disarm(t))
        return err;
    t->failures += err < 0;
    t->late = true;
    t->refuse_append = -1;
    if (core_check(t->core) < 0)
        lockstep_differs(t, "after a failed advance: %s", error_text());
    if (err < 0 && core_next(t->core) > now_ms + LATER_MS)
        lockstep_differs(t, "after a failed advance nothing is planned soon");
    return core_advance(t->core, now_ms + LATER_MS);
}

// ---- The steps --------------------------------------------------------------------------------

// A number is known longer than the id of its job.
static bool may_be_nameless(const struct lockstep *t, uint64_t id) {
    int job = model_find(t->model, id);
    return job < 0 || t->model->jobs[job].replayed;
}

static bool same_answer(struct lockstep *t, const struct command *c, const struct answer *core,
                        const struct answer *model) {
    if (core->err != model->err)
        return lockstep_differs(t, "answers %s, should answer %s", error_name(core->err),
                                error_name(model->err));
    if (core->err < 0 && core->err != MR_EAGAIN)
        return true;
    if (core->repeat != model->repeat || core->ended != model->ended ||
        core->changed != model->changed)
        return lockstep_differs(t, "repeat %d ended %d changed %d, should be %d %d %d",
                                core->repeat, core->ended, core->changed, model->repeat,
                                model->ended, model->changed);
    if (core->ended && (core->status != model->status || strcmp(core->text, model->text) != 0))
        return lockstep_differs(t, "ended %s \"%s\", should be %s \"%s\"",
                                job_status_name(core->status), core->text,
                                job_status_name(model->status), model->text);
    if (c->op != OP_PUSH || core->err < 0)
        return true;
    if (model->repeat && core->id == 0 && c->source >= 0 && may_be_nameless(t, model->id))
        return true;
    if (model->repeat && core->id != model->id)
        return lockstep_differs(t, "repeats job %" PRIu64 ", should be %" PRIu64, core->id,
                                model->id);
    if (!model->repeat && core->id <= t->last_id)
        return lockstep_differs(t, "id %" PRIu64 " does not grow", core->id);
    return true;
}

static bool say_to_both(struct lockstep *t, const struct command *c) {
    struct answer core = { 0 }, model;
    uint64_t next_ms = model_next(t->model);
    tell_core(t, c, &core);
    bool absorbed = t->failed_now;
    t->failed_now = false;
    core.ended &= c->op == OP_AWAIT || c->caller >= 0;
    model_run(t->model, c, &model);
    if (t->model->ambiguous)
        return true;
    if (absorbed)
        return made_up_for(t, c, next_ms);
    if (!same_answer(t, c, &core, &model))
        return false;
    if (c->op == OP_PUSH && core.err == 0 && !core.repeat)
        t->model->jobs[t->model->job_count - 1].id = t->last_id = core.id;
    return same_happenings(t);
}

// The first waiting pusher is notified of room as soon as there is some.
static bool no_pusher_overlooked(struct lockstep *t) {
    for (int s = 0; s < STAGES; s++) {
        int first = model_first_pusher(t->model, s);
        if (first >= 0 && t->model->stages[s].draining)
            return lockstep_differs(t, "pusher %d waits for a draining stage", first);
        if (first >= 0 && model_has_room(t->model, &t->model->pushers[first].command.job))
            return lockstep_differs(t, "pusher %d should be notified of room", first);
    }
    return true;
}

// Only a pusher whose channel is still full may be overtaken.
static bool is_in_turn(const struct model *m, int pusher) {
    const struct model_slot *me = &m->pushers[pusher];
    for (int p = 0; p < SLOTS; p++) {
        const struct model_slot *other = &m->pushers[p];
        if (other->waits && other->command.job.stage == me->command.job.stage &&
            other->arrival < me->arrival && model_has_room(m, &other->command.job))
            return false;
    }
    return true;
}

// Pushers that were notified of room push again, in that order. A pusher whose channel is still
// full is first in line again.
static bool push_again(struct lockstep *t) {
    while (t->room_notified_count > 0) {
        int pusher = t->room_notified[0];
        struct command c = t->waiting_push[pusher];
        struct model_slot *slot = &t->model->pushers[pusher], before = *slot;
        t->room_notified_count--;
        memmove(t->room_notified, t->room_notified + 1,
                (size_t)t->room_notified_count * sizeof(int));
        if (!is_in_turn(t->model, pusher))
            return lockstep_differs(t, "pusher %d is notified of room before its turn", pusher);
        slot->waits = false;
        t->pushing_again = t->model->pushing_again = true;
        bool good = say_to_both(t, &c);
        t->pushing_again = t->model->pushing_again = false;
        if (!good || t->model->ambiguous || t->late)
            return good;
        slot->arrival = before.arrival;
    }
    return no_pusher_overlooked(t);
}

// When a stage that is empty is forgotten is left to the core.
static bool forget_stages(struct lockstep *t) {
    struct stage_info info;
    for (int s = 0; s < STAGES; s++)
        if (t->model->stages[s].known &&
            core_look_stage(t->core, mr_str(stage_names[s]), &info) == MR_EGONE &&
            !model_forget_stage(t->model, s))
            return lockstep_differs(t, "stage %s is forgotten, but is not empty", stage_names[s]);
    return true;
}

static bool reach(struct lockstep *t, uint64_t now_ms) {
    for (;;) {
        uint64_t next = model_next(t->model);
        uint64_t at = next < now_ms ? next : now_ms;
        int err = advance_core(t, at);
        if (err < 0)
            return lockstep_differs(t, "core_advance: %s", error_name(err));
        if (t->late)
            return core_check(t->core) == 0 || lockstep_differs(t, "made up for: %s", error_text());
        model_advance(t->model, at);
        if (t->model->ambiguous)
            return true;
        if (!same_happenings(t) || !push_again(t) || !forget_stages(t))
            return false;
        if (t->late)
            return true;
        if (at == now_ms)
            return core_now(t->core) == now_ms || t->fault == FAULT_STAY_PARKED ||
                   lockstep_differs(t, "core_now is %" PRIu64, core_now(t->core));
    }
}

// What was noted as running when the engine died; returns how many.
static size_t notes_of(const struct lockstep *t, const struct command *c,
                       struct running_note *out) {
    size_t count = c->died ? t->running_count : 0;
    memcpy(out, t->running, count * sizeof *out);
    if (c->died && c->id)
        out[count++] = (struct running_note){ c->id, c->attempt };
    return count;
}

enum { NOT_KNOWN = -1 };

// Compares the makers of stages and epics.
struct makers {
    uint64_t of_stage[STAGES], of_epic[SOURCES];
};

static struct makers makers_of(struct lockstep *t) {
    struct makers m;
    memset(&m, NOT_KNOWN, sizeof m);
    struct stage_info stage;
    struct epic_info epic;
    for (int i = 0; i < STAGES; i++)
        if (core_look_stage(t->core, mr_str(stage_names[i]), &stage) == 0)
            m.of_stage[i] = stage.maker;
    for (int i = 0; i < SOURCES; i++)
        if (core_epic(t->core, mr_str(stage_names[source_stage(i)]), mr_str(source_names[i]),
                      &epic) == 0)
            m.of_epic[i] = epic.maker;
    return m;
}

// What a crash has not made unknown has the maker that it had.
static bool same_makers(struct lockstep *t, const struct makers *before) {
    struct makers now = makers_of(t);
    for (int i = 0; i < STAGES; i++)
        if (now.of_stage[i] != (uint64_t)NOT_KNOWN && now.of_stage[i] != before->of_stage[i])
            return lockstep_differs(t, "stage %s has another maker", stage_names[i]);
    for (int i = 0; i < SOURCES; i++)
        if (now.of_epic[i] != before->of_epic[i])
            return lockstep_differs(t, "epic %s has another maker", source_names[i]);
    return true;
}

static bool crash(struct lockstep *t, const struct command *c) {
    struct running_note notes[MANY + 1];
    size_t count = notes_of(t, c, notes);
    struct makers makers = makers_of(t);
    lockstep_stop_core(t);
    int err;
    do {
        arm(t);
        err = lockstep_start_core(t, c->now_ms);
    } while (failed_as_planned(t, err) && ++t->failures);
    if (err < 0)
        return lockstep_differs(t, "the core does not open again: %s (%s)", error_name(err),
                                error_text());
    if (t->fault == FAULT_NONE && !same_makers(t, &makers))
        return false;
    bool absorbed = t->failed_now;
    err = advance_core(t, c->now_ms);
    if (t->late)
        return err == 0;
    if (err < 0)
        return lockstep_differs(t, "core_advance after opening: %s", error_name(err));
    model_crash(t->model, c->now_ms);
    if (absorbed)
        return made_up_for(t, c, UINT64_MAX);
    if (!same_happenings(t))
        return false;
    for (size_t i = 0; i < count; i++) {
        t->failed_now = false;
        err = core_crashed(t->core, notes[i].id, notes[i].attempt);
        if (err < 0 && t->failed_now && ++t->failures)
            err = core_crashed(t->core, notes[i].id, notes[i].attempt);
        if (err < 0)
            return lockstep_differs(t, "core_crashed: %s", error_name(err));
        model_crashed(t->model, notes[i].id, notes[i].attempt);
    }
    return same_happenings(t) && forget_stages(t);
}

bool lockstep_run(struct lockstep *t, const struct command *c) {
    if (*t->why || t->late)
        return !*t->why;
    t->steps++;
    bool good = c->op == OP_CRASH ? crash(t, c) : reach(t, c->now_ms);
    if (t->model->ambiguous || t->late)
        return good;
    good = good && (c->op == OP_CRASH || say_to_both(t, c));
    if (good && (c->op == OP_SCHEDULE_DROP || c->op == OP_EPIC_DROP) && !t->late)
        good = forget_stages(t); // its stage may have been empty but for it
    if (!good || t->model->ambiguous || t->late)
        return good;
    good = push_again(t) && (t->model->ambiguous || t->late || lockstep_compare(t));
    if (good && t->steps % 4 == 0 && core_check(t->core) < 0)
        return lockstep_differs(t, "core_check: %s", error_text());
    return good;
}

void lockstep_run_core(struct lockstep *t, const struct command *c) {
    struct answer ignored;
    if (c->op == OP_CRASH) {
        struct running_note notes[MANY + 1];
        size_t count = notes_of(t, c, notes);
        lockstep_stop_core(t);
        if (lockstep_start_core(t, c->now_ms) < 0)
            return;
        core_advance(t->core, c->now_ms);
        for (size_t i = 0; i < count; i++)
            core_crashed(t->core, notes[i].id, notes[i].attempt);
        return;
    }
    core_advance(t->core, c->now_ms);
    lockstep_send_core(t, c, &ignored);
    t->observed.count = 0;
}
