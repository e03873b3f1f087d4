// Epics: EPIC shows how far one has come, ends it, skips a number, drops it; EPICS lists all.
#include "server/access.h"
#include "server/answer.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/mem.h"

#include <stddef.h>

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

enum { EPIC_FIELDS = 12 };

// Where its jobs wait, and for what.
static void say_stage(struct session *s, const struct epic_info *e) {
    struct stage_info stage = { 0 };
    bool sees = e->stage.size && access_sees(s, e->stage);
    if (sees && e->waiting && shards_look_stage(s->host, e->stage, &stage) == 0)
        access_hide_downstream(s, &stage);
    answer_text(s, "stage", sees ? e->stage : (mr_bytes){ 0 });
    answer_text(s, "held-by", mr_str(stage.held_by));
}

static void say_fields(struct session *s, const struct epic_info *e) {
    answer_count(s, "resume", e->resume);
    answer_number(s, "total", e->ended ? (int64_t)e->total : -1);
    answer_count(s, "accepted", e->accepted);
    answer_count(s, "waiting", e->waiting);
    answer_count(s, "running", e->running);
    answer_count(s, "done", e->done);
    answer_count(s, "dead", e->dead);
    answer_count(s, "cancelled", e->cancelled);
    answer_count(s, "expired", e->expired);
    say_stage(s, e);
    answer_number(s, "expected", e->expected ? (int64_t)e->expected : -1);
}

static void say_epic(struct session *s, mr_bytes name, int err) {
    struct epic_info e;
    if (err >= 0)
        err = shards_epic(s->host, name, &e);
    if (err < 0) {
        answer_error(s, err);
        return;
    }
    reply_map(&s->reply, EPIC_FIELDS);
    say_fields(s, &e);
}

// Looks; with WAIT, again and again until it has come so far, or the wait is over.
static void epic_look(struct session *s, mr_bytes name, const struct epic_options *o) {
    struct epic_info e;
    int64_t left = o->left > INT64_MAX ? EPIC_OVER : (int64_t)o->left;
    if (o->expected)
        shards_epic_expect(s->host, name, o->expected);
    bool waited = s->again && s->wait_until_ms == 0;
    int err = shards_epic(s->host, name, &e);
    bool waits = err == 0 && o->wait_ms && !waited && !epic_has_come_to(&e, left);
    if (waits && s->host->stopped)
        err = error_set(MR_ESTOPPED, "%s", s->host->why_stopped);
    if (waits && err == 0 && (err = shards_epic_watch(s, name, left)) == 0)
        session_block(s, BLOCKED_EPIC, o->wait_ms);
    else
        say_epic(s, name, err);
}

static void epic_drop(struct session *s, mr_bytes name) {
    struct epic_info e;
    int err = shards_epic(s->host, name, &e);
    if (err == 0)
        err = shards_epic_drop(s->host, name);
    if (err < 0) {
        answer_error(s, err);
        return;
    }
    reply_map(&s->reply, EPIC_FIELDS);
    say_fields(s, &e); // as it was
}

void run_epic(struct session *s, struct arguments *a) {
    struct epic_options o = { .left = UINT64_MAX };
    mr_bytes name = a->words[1], what = a->count > 2 ? a->words[2] : (mr_bytes){ 0 };
    uint64_t number;
    if (!access_name(s, "epic", name))
        return;
    if (a->count == 3 && word_is(what, "DROP")) {
        epic_drop(s, name);
    } else if (a->count == 4 && word_is(what, "END")) {
        if (read_number(s, a->words[3], "a number of pushes", &number))
            say_epic(s, name, shards_epic_end(s->host, name, number));
    } else if (a->count == 4 && word_is(what, "SKIP")) {
        if (read_number(s, a->words[3], "the number of a push", &number))
            say_epic(s, name, shards_epic_skip(s->host, name, number));
    } else {
        a->at = 2;
        if (options_read(s, a, epic_options, &o))
            epic_look(s, name, &o);
    }
}

// ---- All of them ------------------------------------------------------------------------------

struct epics_options {
    mr_bytes from;
    uint32_t count;
};

static const struct option epics_options[] = {
    { "COUNT", OPTION_COUNT, offsetof(struct epics_options, count) },
    { "FROM", OPTION_BYTES, offsetof(struct epics_options, from) },
    { 0 },
};

struct row {
    mr_bytes name;
    struct epic_info epic;
};

struct rows {
    const struct session *session;
    struct row *rows;
    uint32_t count, most;
};

static int row_add(void *arg, mr_bytes name, const struct epic_info *e) {
    struct rows *r = arg;
    if (r->count == r->most)
        return 1;
    if (access_sees(r->session, name))
        r->rows[r->count++] = (struct row){ name, *e };
    return 0;
}

void run_epics(struct session *s, struct arguments *a) {
    struct epics_options o = { .count = LIMIT_LISTED };
    if (!options_read(s, a, epics_options, &o) || (o.from.data && !access_name(s, "epic", o.from)))
        return;
    struct rows r = { .session = s, .most = listed(o.count) };
    r.rows = mem_alloc((r.most + 1) * sizeof *r.rows);
    int err = r.rows ? shards_each_epic(s->host, o.from, row_add, &r)
                     : error_set(MR_ENOMEM, "no memory for a list of epics");
    if (err < 0) {
        answer_error(s, err);
    } else {
        reply_array(&s->reply, r.count);
        for (uint32_t i = 0; i < r.count; i++) {
            reply_map(&s->reply, 1 + EPIC_FIELDS);
            answer_text(s, "name", r.rows[i].name);
            say_fields(s, &r.rows[i].epic);
        }
    }
    mem_free(r.rows);
}
