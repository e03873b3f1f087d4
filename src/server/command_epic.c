// Epics: EPIC shows how far one has come, ends it, skips a number, gives it orders, drops it; EPICS
// lists all.
#include "server/access.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/mem.h"
#include "wire/replies.h"

#include <stddef.h>
#include <string.h>

struct epic_options {
    int64_t wait_ms;
    uint64_t left;     // UINT64_MAX: until it is over
    uint64_t expected; // 0: that is not said
};

static const struct option epic_options[] = {
    { "WAIT", OPTION_WAIT, offsetof(struct epic_options, wait_ms) },
    { "LEFT", OPTION_NUMBER, offsetof(struct epic_options, left) },
    { "OF", OPTION_NUMBER, offsetof(struct epic_options, expected) },
    { 0 },
};

static const struct option forget_options[] = {
    { "FORGET", OPTION_MS, 0 },
    { 0 },
};

// Writes the fields of EPIC, or those of EPICS, which begin with the name.
static void write_fields(struct session *s, const struct reply_table *fields, mr_bytes name,
                         const struct epic_info *info) {
    struct stage_info stage = { 0 };
    if (info->stage.size && info->waiting && shards_look_stage(s->host, info->stage, &stage) == 0)
        access_hide_downstream(s, &stage);
    struct epic_reply r = { EPIC_FIELDS(FROM_INFO) };
    r.name = name;
    r.total = info->ended ? (int64_t)info->total : -1;
    r.held_by = mr_str(stage.held_by);
    r.expected = info->expected ? (int64_t)info->expected : -1;
    if (r.then.size && !access_sees(s, r.then))
        r.then = mr_str("?");
    reply_write(&s->reply, fields, &r);
}

// What a request names.
struct epic_name {
    struct core *core; // where the stage lives
    mr_bytes stage, name;
};

static void write_epic(struct session *s, const struct epic_name *n, int err) {
    struct epic_info e;
    if (err >= 0)
        err = core_epic(n->core, n->stage, n->name, &e);
    if (err < 0) {
        answer_error(s, err);
        return;
    }
    write_fields(s, &epic_replies, n->name, &e);
}

// A request that waits for its epic; the words are copies.
struct epic_wait {
    struct kept_words *kept;
    struct epic_name name;
    int64_t left;
    uint64_t until_ms;
};

static void epic_wait_free(void *state) {
    struct epic_wait *w = state;
    mem_free(w->kept);
    mem_free(w);
}

// Whether it waits until the epic has come so far, which it had not. -1: until it is over. Else
// `*err` is what to answer.
static bool epic_watches(struct session *s, const struct epic_name *n, int64_t left, int *err) {
    struct epic_info e;
    *err = core_epic(n->core, n->stage, n->name, &e);
    if (*err < 0 || epic_has_come_to(&e, left))
        return false;
    *err = shards_epic_watch(s, n->stage, n->name, left);
    return *err == 0;
}

static void epic_resume(struct session *, void *, enum wake);

static const struct wait_kind for_epic = {
    .is_open = true, .leave = shards_epic_unwatch, .resume = epic_resume, .free = epic_wait_free
};

static void epic_wait(struct session *s, struct epic_wait *w, uint64_t until_ms) {
    wait_begin(s, &for_epic, w, sizeof *w + w->kept->bytes, until_ms);
}

static void epic_resume(struct session *s, void *state, enum wake wake) {
    struct epic_wait *w = state;
    int err = 0;
    if (wake == WAKE_STOPPED)
        session_answer_stopped(s);
    else if (wake == WAKE_READY && epic_watches(s, &w->name, w->left, &err))
        epic_wait(s, w, w->until_ms);
    else
        write_epic(s, &w->name, err);
}

static int epic_wait_begin(struct session *s, const struct arguments *a, const struct epic_name *n,
                           const struct epic_options *o, int64_t left) {
    struct epic_wait *w = mem_alloc(sizeof *w);
    struct kept_words *kept = w ? words_keep(a->words, 3) : NULL;
    if (!kept) {
        mem_free(w);
        shards_epic_unwatch(s);
        return error_set(MR_ENOMEM, "no memory to wait for an epic");
    }
    *w = (struct epic_wait){
        kept, { n->core, kept->words[1], kept->words[2] }, left, wait_until(s, o->wait_ms)
    };
    epic_wait(s, w, w->until_ms);
    return 0;
}

static void epic_look(struct session *s, const struct arguments *a, const struct epic_name *n,
                      const struct epic_options *o) {
    int64_t left = o->left > INT64_MAX ? EPIC_OVER : (int64_t)o->left;
    int err = 0;
    if (o->expected)
        core_epic_expect(n->core, n->stage, n->name, o->expected);
    if (o->wait_ms && epic_watches(s, n, left, &err)) {
        if (!s->host->stopped && (err = epic_wait_begin(s, a, n, o, left)) == 0)
            return;
        if (s->host->stopped) {
            shards_epic_unwatch(s);
            session_answer_stopped(s);
            return;
        }
    }
    write_epic(s, n, err);
}

static void epic_drop(struct session *s, const struct epic_name *n) {
    struct epic_info e;
    int err = core_epic(n->core, n->stage, n->name, &e);
    if (err == 0)
        err = core_epic_drop(n->core, n->stage, n->name);
    if (err < 0) {
        answer_error(s, err);
        return;
    }
    write_fields(s, &epic_replies, n->name, &e); // as it was
}

// Needs the rights to push there, now.
static void epic_then(struct session *s, const struct epic_name *n, const mr_bytes *words) {
    struct emit then = { .stage = words[0], .body = words[2], .job.key = words[1] };
    if (access_name(s, "stage", then.stage))
        write_epic(s, n, core_epic_then(n->core, n->stage, n->name, &then));
}

static void epic_forget(struct session *s, struct arguments *a, const struct epic_name *n) {
    int64_t after_ms = 0;
    a->at = 3;
    if (options_read(s, a, forget_options, &after_ms))
        write_epic(s, n, core_epic_forget(n->core, n->stage, n->name, (uint64_t)after_ms));
}

void run_epic(struct session *s, struct arguments *a) {
    struct epic_options o = { .left = UINT64_MAX };
    struct epic_name n = { core_of_stage(s->host, a->words[1]), a->words[1], a->words[2] };
    mr_bytes what = a->count > 3 ? a->words[3] : (mr_bytes){ 0 };
    uint64_t number;
    if (a->count == 4 && word_is(what, "DROP")) {
        epic_drop(s, &n);
    } else if (a->count == 5 && word_is(what, "END")) {
        if (read_number(s, a->words[4], "a number of pushes", &number))
            write_epic(s, &n, core_epic_end(n.core, n.stage, n.name, number));
    } else if (a->count == 5 && word_is(what, "SKIP")) {
        if (read_number(s, a->words[4], "the number of a push", &number))
            write_epic(s, &n, core_epic_skip(n.core, n.stage, n.name, number));
    } else if (a->count == 7 && word_is(what, "THEN")) {
        epic_then(s, &n, a->words + 4);
    } else if (a->count == 4 && word_is(what, "CANCEL")) {
        write_epic(s, &n, core_epic_cancel(n.core, n.stage, n.name));
    } else if (word_is(what, "FORGET")) {
        epic_forget(s, a, &n);
    } else {
        a->at = 3;
        if (options_read(s, a, epic_options, &o))
            epic_look(s, a, &n, &o);
    }
}

// ---- All of them ------------------------------------------------------------------------------

struct epics_options {
    mr_bytes stage, from;
    uint32_t count;
};

static const struct option epics_options[] = {
    { "COUNT", OPTION_COUNT, offsetof(struct epics_options, count) },
    { "STAGE", OPTION_BYTES, offsetof(struct epics_options, stage) },
    { "FROM", OPTION_BYTES, offsetof(struct epics_options, from) },
    { 0 },
};

static void write_row(struct session *s, struct listing *l, struct core *core, mr_bytes name) {
    struct epic_info e;
    core_epic_look_at(core, (uint32_t)l->at, &e);
    write_fields(s, &epics_replies, name, &e);
    l->count++;
    budget_spend(s, STEPS_ROW + core_take_steps(core));
}

// Those of one stage, unless that is empty.
static bool list_epics(struct session *s, struct listing *l) {
    mr_bytes stage, name, only = mr_str(l->stage);
    while (l->count < l->most && budget_left(s)) {
        if (!list_next_place(s->host, core_epic_places, &l->at))
            return true;
        struct core *core = s->host->parts[l->at >> LIST_SHARD_SHIFT].core;
        budget_spend(s, access_steps(s));
        if (core_epic_at(core, (uint32_t)l->at, &stage, &name) && access_sees(s, stage) &&
            (!only.size || bytes_equal(stage, only)))
            write_row(s, l, core, name);
    }
    return l->count == l->most;
}

void run_epics(struct session *s, struct arguments *a) {
    struct epics_options o = { .count = LIMIT_LISTED };
    struct listing l = { .more = list_epics };
    if (!options_read(s, a, epics_options, &o) ||
        (o.stage.size && !access_name(s, "stage", o.stage)) ||
        !list_read_from(s, o.from, o.stage, "an epic", core_epic_place, &l.at))
        return;
    if (o.stage.size > STAGE_NAME_MOST) { // none has such a name
        reply_array(&s->reply, 0);
        return;
    }
    if (o.stage.size)
        memcpy(l.stage, o.stage.data, o.stage.size);
    l.most = listed(o.count);
    list_run(s, &l);
}
