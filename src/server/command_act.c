// RETRY, DROP, CANCEL, DUE, PAUSE, RESUME, DRAIN, STAGE.
//
// RETRY, DROP and CANCEL of many jobs are spread over several turns, as the budget allows: a list
// of ids continues with the next id, a stage after the last job that was examined and not changed.
#include "server/access.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/fetch.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/mem.h"
#include "core/record.h"
#include "wire/number.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

// 0: the job was changed; 1: it needed no change.
typedef int act(struct core *, uint64_t id);

struct bulk_options {
    mr_bytes key, reason, status;
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

static const struct option cancel_options[] = {
    { "KEY", OPTION_BYTES, AT(key) },
    { "STATUS", OPTION_BYTES, AT(status) },
    { "MAX", OPTION_NUMBER, AT(max) },
    { "DRY", OPTION_FLAG, AT(dry) },
    { 0 },
};

// A command about many jobs and its progress. While it waits for the next turn it uses copies of
// the command's words.
struct bulk {
    act *act;
    struct arguments words;
    struct kept_words *kept;    // copies of the words; NULL: it has not waited yet
    const struct option *table; // of the options
    struct bulk_options options;
    enum job_status status, last; // of the jobs of a stage: now, and at the end
    uint64_t count;               // jobs changed so far
    uint64_t from;                // the last job that was not changed, or the number of ids done
};

static void bulk_free(void *state) {
    struct bulk *b = state;
    mem_free(b->kept);
    mem_free(b);
}

static struct bulk *bulk_keep(const struct bulk *b) {
    struct bulk *copy = mem_alloc(sizeof *copy);
    struct kept_words *kept = copy ? words_keep(b->words.words, b->words.count) : NULL;
    if (!kept) {
        mem_free(copy);
        return NULL;
    }
    *copy = *b;
    options_keep(b->table, &copy->options, b->words.words, kept);
    copy->words.words = kept->words;
    copy->kept = kept;
    return copy;
}

// An error changes nothing: once jobs were changed the reply is their number, and the client can
// repeat the command for the rest. A dry run has changed none.
static void bulk_answer(struct session *s, const struct bulk *b, int err) {
    if (err < 0 && (!b->count || b->options.dry))
        answer_error(s, err);
    else
        reply_integer(&s->reply, (int64_t)b->count);
}

static void bulk_wait(struct session *s, struct bulk *b, const struct wait_kind *kind) {
    struct bulk *kept = b->kept ? b : bulk_keep(b);
    if (kept)
        wait_for_turn(s, kind, kept, sizeof *kept + kept->kept->bytes);
    else
        bulk_answer(s, b, error_set(MR_ENOMEM, "no memory to examine more jobs"));
}

// ---- By id ------------------------------------------------------------------------------------

static int act_on_id(struct session *s, mr_bytes word, act *act) {
    uint64_t id = 0;
    (void)number_parse(word, &id); // its syntax was checked before
    budget_spend(s, STEPS_CHANGE);
    return access_sees_job(s, id) ? act(core_of_job(s->host, id), id) : access_no_job(id);
}

static void ids_resume(struct session *, void *, enum wake);

static const struct wait_kind ids_turn = { .resume = ids_resume, .free = bulk_free };

// Jobs that cannot be changed are not counted; if none can, the first is tried again for its error.
static void act_on_ids(struct session *s, struct bulk *b) {
    const struct arguments *a = &b->words;
    while (b->from < a->count - 1 && budget_left(s))
        b->count += act_on_id(s, a->words[1 + b->from++], b->act) == 0;
    int err = 0;
    if (b->from < a->count - 1) {
        bulk_wait(s, b, &ids_turn);
        return;
    }
    if (!b->count && (err = act_on_id(s, a->words[1], b->act)) == 0)
        b->count = 1;
    bulk_answer(s, b, err);
}

static void ids_resume(struct session *s, void *state, enum wake wake) {
    (void)wake;
    if (s->host->stopped)
        session_answer_stopped(s);
    else
        act_on_ids(s, state);
}

static void run_on_ids(struct session *s, struct bulk *b) {
    uint64_t id;
    for (uint32_t i = 1; i < b->words.count; i++)
        if (!read_id(s, b->words.words[i], &id))
            return;
    if (!s->checks)
        act_on_ids(s, b);
}

// ---- By stage ---------------------------------------------------------------------------------

struct piece {
    struct session *session;
    struct bulk *bulk;
    uint64_t ids[LIMIT_PIECE];
    uint32_t count, looked;
    uint64_t left; // jobs that may still be changed
    int err;       // of a reason that could not be read
};

// Whether the reason of its last failure contains the text. MR_EAGAIN: it has to be fetched.
static int find_in_reason(struct session *s, const struct job_info *i, mr_bytes text,
                          bool *out_found) {
    struct buffer *kept = &s->host->scratch;
    buffer_clear(kept);
    budget_spend(s, STEPS_READ);
    int err = i->reasons_at ? fetch_look(s, i->shard, i->reasons_at, FETCH_BODY, kept) : 0;
    if (err < 0)
        return err;
    mr_bytes last = reasons_last(buffer_bytes(kept));
    *out_found = memmem(last.data, last.size, text.data, text.size) != NULL;
    return 0;
}

// A reason that cannot be read ends the walk: whether its job is meant is not known.
static int piece_add(void *arg, const struct job_info *i) {
    struct piece *p = arg;
    const struct bulk_options *o = &p->bulk->options;
    if (p->count == p->left || p->looked == LIMIT_PIECE || !budget_left(p->session))
        return 1;
    p->looked++;
    bool fits = !o->key.data || bytes_equal(o->key, i->key);
    int err = fits && o->reason.data ? find_in_reason(p->session, i, o->reason, &fits) : 0;
    if (err == MR_EAGAIN)
        return 0;
    if (err < 0) {
        p->err = err;
        return 1;
    }
    if (fits)
        p->ids[p->count++] = i->id;
    if (!fits || o->dry)
        p->bulk->from = i->id;
    return 0;
}

// Acts on some jobs. 1: there are more; 0: all are done; MR_EAGAIN: reasons have to be fetched, and
// nothing was done.
static int act_on_piece(struct session *s, struct bulk *b) {
    const struct bulk_options *o = &b->options;
    struct piece p = { .session = s, .bulk = b, .left = o->max - b->count };
    struct job_walk w = {
        .stage = b->words.words[2], .status = b->status, .key = o->key, .from = b->from
    };
    int more = shards_walk(s->host, &w, piece_add, &p);
    if (fetch_is_needed(s)) { // the same jobs are looked at again when their reasons were read
        b->from = w.from;
        return MR_EAGAIN;
    }
    fetch_forget(s, FETCH_FOR_COMMAND);
    if (p.err < 0)
        return p.err;
    if (more == MR_EGONE && b->from) { // another client has removed that job: start again
        b->from = 0;
        b->count = o->dry ? 0 : b->count; // a dry run has changed nothing: count again
        return 1;
    }
    for (uint32_t i = 0; more >= 0 && i < p.count; i++) {
        struct core *core = core_of_job(s->host, p.ids[i]);
        int err = o->dry ? 0 : b->act(core, p.ids[i]);
        if (err < 0)
            return err;
        budget_spend(s, STEPS_CHANGE + core_take_steps(core));
        b->count += err == 0;
        if (!o->dry && !budget_left(s) && i + 1 < p.count) { // the rest is looked at again
            b->from = w.from;
            return 1;
        }
    }
    return more > 0 && b->count < o->max ? 1 : more < 0 ? more : 0;
}

// The same for one status after another.
static int act_on_statuses(struct session *s, struct bulk *b) {
    for (;;) {
        int more = act_on_piece(s, b);
        if (more || b->status == b->last || b->count == b->options.max)
            return more;
        b->status++;
        b->from = 0;
        if (!budget_left(s))
            return 1;
    }
}

static void stage_resume(struct session *, void *, enum wake);

static const struct wait_kind stage_turn = { .resume = stage_resume, .free = bulk_free };

static void bulk_fetch(struct session *s, struct bulk *b) {
    struct bulk *kept = b->kept ? b : bulk_keep(b);
    int err = kept ? fetch_try_wait(s, &stage_turn, kept, sizeof *kept + kept->kept->bytes)
                   : error_set(MR_ENOMEM, "no memory to read the reasons of jobs");
    if (err < 0)
        bulk_answer(s, b, err);
    if (err < 0 && kept && kept != b)
        bulk_free(kept);
}

static void act_on_stage(struct session *s, struct bulk *b) {
    int more = act_on_statuses(s, b);
    if (more == MR_EAGAIN)
        bulk_fetch(s, b);
    else if (more > 0)
        bulk_wait(s, b, &stage_turn);
    else
        bulk_answer(s, b, more);
}

static void stage_resume(struct session *s, void *state, enum wake wake) {
    (void)wake;
    if (s->host->stopped)
        session_answer_stopped(s);
    else
        act_on_stage(s, state);
}

static void run_on_stage(struct session *s, struct bulk *b) {
    const mr_bytes *words = b->words.words;
    b->words.at = 4;
    b->status = JOB_DEAD;
    if (word_is(words[3], "WAITING") && b->act != core_retry)
        b->status = JOB_WAITING;
    else if (!word_is(words[3], "DEAD")) {
        session_usage(s, b->act == core_retry
                             ? "RETRY is for DEAD jobs: waiting jobs start without it"
                             : "DROP STAGE needs DEAD or WAITING after the stage");
        return;
    }
    b->last = b->status;
    if (options_read(s, &b->words, b->table, &b->options) && access_name(s, "stage", words[2]))
        act_on_stage(s, b);
}

static void act_on(struct session *s, struct arguments *a, act *act) {
    struct bulk b = { .act = act, .words = *a, .table = bulk_options, .options.max = BULK_MAX };
    bool of_stage = word_is(a->words[1], "STAGE");
    if (of_stage && a->count > 3)
        run_on_stage(s, &b);
    else if (of_stage)
        session_usage(s, "STAGE must be followed by the name of a stage and DEAD or WAITING");
    else
        run_on_ids(s, &b);
}

void run_retry(struct session *s, struct arguments *a) {
    act_on(s, a, core_retry);
}

void run_drop(struct session *s, struct arguments *a) {
    act_on(s, a, core_drop);
}

// ---- CANCEL -----------------------------------------------------------------------------------

static int cancel_job(struct core *core, uint64_t id) {
    bool changed = false;
    int err = core_cancel(core, id, &changed);
    return err < 0 ? err : !changed;
}

// Without STATUS all that have not ended. False: an error was answered.
static bool cancel_read_status(struct session *s, struct bulk *b) {
    mr_bytes name = b->options.status;
    b->status = JOB_DELAYED;
    b->last = JOB_RUNNING;
    if (!name.data)
        return true;
    if (!job_status_find(name, &b->status) || b->status > JOB_RUNNING) {
        option_refuse(s, "STATUS", "delayed, waiting or running: DROP deletes dead jobs", name);
        return false;
    }
    b->last = b->status;
    return true;
}

void run_cancel(struct session *s, struct arguments *a) {
    struct bulk b = {
        .act = cancel_job, .words = *a, .table = cancel_options, .options.max = BULK_MAX
    };
    bool of_stage = word_is(a->words[1], "STAGE");
    if (of_stage && a->count < 3)
        session_usage(s, "STAGE must be followed by the name of a stage");
    if (!of_stage)
        run_on_ids(s, &b);
    if (!of_stage || a->count < 3)
        return;
    b.words.at = 3;
    if (options_read(s, &b.words, cancel_options, &b.options) && cancel_read_status(s, &b) &&
        access_name(s, "stage", a->words[2]))
        act_on_stage(s, &b);
}

void run_due(struct session *s, struct arguments *a) {
    uint64_t id;
    bool changed;
    if (!read_id(s, a->words[1], &id))
        return;
    int err = core_due(core_of_job(s->host, id), id, &changed);
    if (err < 0)
        answer_error(s, err);
    else
        reply_integer(&s->reply, changed);
}

// ---- Stages -----------------------------------------------------------------------------------

struct pause_options {
    mr_bytes key;
};

static const struct option pause_options[] = {
    { "KEY", OPTION_BYTES, offsetof(struct pause_options, key) },
    { 0 },
};

// Of the stage, or with KEY of one channel.
static void pause_or_resume(struct session *s, struct arguments *a,
                            int (*of_stage)(struct core *, mr_bytes stage),
                            int (*of_key)(struct core *, mr_bytes stage, mr_bytes key)) {
    struct pause_options o = { 0 };
    a->at = 2;
    if (!options_read(s, a, pause_options, &o))
        return;
    struct core *core = core_of_stage(s->host, a->words[1]);
    answer_ok(s, o.key.data ? of_key(core, a->words[1], o.key) : of_stage(core, a->words[1]));
}

void run_pause(struct session *s, struct arguments *a) {
    pause_or_resume(s, a, core_pause, core_pause_key);
}

void run_resume(struct session *s, struct arguments *a) {
    pause_or_resume(s, a, core_resume, core_resume_key);
}

void run_drain(struct session *s, struct arguments *a) {
    answer_ok(s, core_drain(core_of_stage(s->host, a->words[1]), a->words[1]));
}

static void write_policy(struct session *s, const struct policy *policy) {
    char value[80];
    const char *name;
    size_t count = 0;
    while (policy_get(policy, count, value, sizeof value))
        count++;
    reply_map(&s->reply, count);
    for (size_t i = 0; (name = policy_get(policy, i, value, sizeof value)); i++) {
        reply_bulk(&s->reply, mr_str(name));
        reply_bulk(&s->reply, mr_str(value));
    }
}

// Sets all policies in a copy first, so that an invalid one changes nothing.
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
        session_usage(s, "STAGE needs a value after each name of a policy");
    else if (a->count > 2)
        answer_ok(s, set_policies(s->host, a, err < 0 ? policy_default() : *info.policy));
    else if (err < 0)
        answer_error(s, err);
    else
        write_policy(s, info.policy);
}
