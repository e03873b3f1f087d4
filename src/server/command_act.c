// Acting on what is there: RETRY, DROP, PAUSE, RESUME, DRAIN, STAGE.
//
// RETRY and DROP of many jobs are done in pieces, as the budget of a turn allows: the request is
// run again in the next turn. Of a list of ids it goes on with the next one, of a stage behind the
// last job that it left alone.
#include "server/access.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/shards.h"

#include "base/errors.h"
#include "core/record.h"
#include "wire/number.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef int act(struct core *, uint64_t id);

// ---- By id ------------------------------------------------------------------------------------

static int act_on_id(struct session *s, mr_bytes word, act *act) {
    uint64_t id = 0;
    (void)number_parse(word, &id); // it was read before
    budget_spend(s, STEPS_CHANGE);
    return access_sees_job(s, id) ? act(core_of_job(s->host, id), id) : access_no_job(id);
}

// Those that cannot be acted on are not counted; if none can, the first is tried once more for the
// error that is told.
static void act_on_ids(struct session *s, struct arguments *a, act *act) {
    uint64_t id;
    for (uint32_t i = 1; i < a->count && !s->again; i++)
        if (!read_id(s, a->words[i], &id))
            return;
    if (s->checks)
        return;
    if (!s->again)
        memset(&s->bulk, 0, sizeof s->bulk);
    while (s->bulk.from < a->count - 1 && budget_left(s))
        s->bulk.count += act_on_id(s, a->words[1 + s->bulk.from++], act) == 0;
    int err = 0;
    if (s->bulk.from < a->count - 1) {
        session_block(s, BLOCKED_TURN, -1);
        return;
    }
    if (!s->bulk.count && (err = act_on_id(s, a->words[1], act)) == 0)
        s->bulk.count = 1;
    if (err < 0)
        answer_error(s, err);
    else
        reply_integer(&s->reply, (int64_t)s->bulk.count);
}

// ---- By stage ---------------------------------------------------------------------------------

struct bulk_options {
    mr_bytes key, reason;
    uint64_t max;
    bool dry;
};

#define AT(field) offsetof(struct bulk_options, field)

static const struct option bulk_options[] = {
    { "KEY", OPTION_BYTES, AT(key) },
    { "REASON", OPTION_BYTES, AT(reason) },
    { "MAX", OPTION_NUMBER, AT(max) },
    { "DRY", OPTION_FLAG, AT(dry) },
    { 0 },
};

struct piece {
    struct session *session;
    const struct bulk_options *options;
    uint64_t ids[LIMIT_PIECE];
    uint32_t count, looked;
    uint64_t left; // how many may still be changed
};

// Whether the reason of its last failure contains the text.
static bool has_reason(struct session *s, const struct job_info *i, mr_bytes text) {
    struct buffer *kept = &s->host->scratch;
    struct reason last = { .text = mr_str("") };
    buffer_clear(kept);
    budget_spend(s, STEPS_READ);
    if (!i->reasons_at || shard_read(shard_at(s->host, i->shard), i->reasons_at, kept) < 0)
        return false;
    for (size_t next = 0; reasons_next(buffer_bytes(kept), &next, &last);)
        continue;
    return memmem(last.text.data, last.text.size, text.data, text.size) != NULL;
}

static int piece_add(void *arg, const struct job_info *i) {
    struct piece *p = arg;
    const struct bulk_options *o = p->options;
    if (p->count == p->left || p->looked == LIMIT_PIECE || !budget_left(p->session))
        return 1;
    p->looked++;
    bool fits = (!o->key.data || bytes_equal(o->key, i->key)) &&
                (!o->reason.data || has_reason(p->session, i, o->reason));
    if (fits)
        p->ids[p->count++] = i->id;
    if (!fits || o->dry)
        p->session->bulk.from = i->id;
    return 0;
}

// Acts on one piece. 1: there is more; 0: that was all.
static int act_on_piece(struct session *s, struct job_walk *w, const struct bulk_options *o,
                        act *act) {
    struct piece p = { .session = s, .options = o, .left = o->max - s->bulk.count };
    w->from = s->bulk.from;
    int more = shards_walk(s->host, w, piece_add, &p);
    if (more == MR_EGONE && s->bulk.from) { // somebody else took it away: from the first again
        s->bulk.from = 0;
        s->bulk.count = o->dry ? 0 : s->bulk.count; // nothing was done: all is counted anew
        return 1;
    }
    for (uint32_t i = 0; more >= 0 && i < p.count; i++) {
        int err = o->dry ? 0 : act(core_of_job(s->host, p.ids[i]), p.ids[i]);
        if (err < 0)
            return err;
        budget_spend(s, STEPS_CHANGE);
        s->bulk.count++;
    }
    return more > 0 && s->bulk.count < o->max ? 1 : more < 0 ? more : 0;
}

static void act_on_stage(struct session *s, struct arguments *a, act *act) {
    struct bulk_options o = { .max = BULK_MAX };
    struct job_walk w = { .stage = a->words[2], .status = JOB_DEAD };
    a->at = 4;
    if (word_is(a->words[3], "WAITING") && act != core_retry)
        w.status = JOB_WAITING;
    else if (!word_is(a->words[3], "DEAD")) {
        session_usage(s, act == core_retry ? "RETRY is for DEAD jobs: those that wait start anyway"
                                           : "DROP STAGE needs DEAD or WAITING behind the stage");
        return;
    }
    if (!options_read(s, a, bulk_options, &o) || !access_name(s, "stage", w.stage))
        return;
    w.key = o.key;
    if (!s->again)
        memset(&s->bulk, 0, sizeof s->bulk);
    int more = act_on_piece(s, &w, &o, act);
    if (more > 0)
        session_block(s, BLOCKED_TURN, -1);
    else if (more < 0 && !s->bulk.count)
        answer_error(s, more);
    else
        reply_integer(&s->reply, (int64_t)s->bulk.count);
}

static void act_on(struct session *s, struct arguments *a, act *act) {
    bool of_stage = word_is(a->words[1], "STAGE");
    if (of_stage && a->count > 3)
        act_on_stage(s, a, act);
    else if (of_stage)
        session_usage(s, "behind STAGE stand the stage's name and DEAD or WAITING");
    else
        act_on_ids(s, a, act);
}

void run_retry(struct session *s, struct arguments *a) {
    act_on(s, a, core_retry);
}

void run_drop(struct session *s, struct arguments *a) {
    act_on(s, a, core_drop);
}

// ---- Stages -----------------------------------------------------------------------------------

void run_pause(struct session *s, struct arguments *a) {
    answer_ok(s, core_pause(core_of_stage(s->host, a->words[1]), a->words[1]));
}

void run_resume(struct session *s, struct arguments *a) {
    answer_ok(s, core_resume(core_of_stage(s->host, a->words[1]), a->words[1]));
}

void run_drain(struct session *s, struct arguments *a) {
    answer_ok(s, core_drain(core_of_stage(s->host, a->words[1]), a->words[1]));
}

static void say_policy(struct session *s, const struct policy *policy) {
    char value[80];
    const char *name;
    size_t count = 0;
    while (policy_get(policy, count, value, sizeof value))
        count++;
    reply_map(&s->reply, count);
    for (size_t i = 0; (name = policy_get(policy, i, value, sizeof value)); i++)
        answer_text(s, name, mr_str(value));
}

// All are tried on a copy first, so that one that is refused changes nothing.
static int set_policies(struct host *h, const struct arguments *a, struct policy policy) {
    int err = stage_name_check(a->words[1]);
    for (uint32_t i = 2; err >= 0 && i < a->count; i += 2)
        err = policy_set(&policy, a->words[i], a->words[i + 1]);
    for (uint32_t i = 2; err >= 0 && i < a->count; i += 2)
        err = core_set(core_of_stage(h, a->words[1]), a->words[1], a->words[i], a->words[i + 1]);
    return err;
}

void run_stage(struct session *s, struct arguments *a) {
    struct stage_info info;
    int err = shards_look_stage(s->host, a->words[1], &info);
    if (a->count == 3 && word_is(a->words[2], "REMOVE"))
        answer_ok(s, err < 0 ? err : shards_remove_stage(s->host, a->words[1]));
    else if (a->count % 2)
        session_usage(s, "STAGE needs a value behind each name of a policy");
    else if (a->count > 2)
        answer_ok(s, set_policies(s->host, a, err < 0 ? policy_default() : *info.policy));
    else if (err < 0)
        answer_error(s, err);
    else
        say_policy(s, info.policy);
}
