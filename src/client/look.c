// Looking and acting: STAGES, WHY, JOBS, EPIC, STAGE, PAUSE, DRAIN, RESUME, RETRY, DROP. What is
// answered in maps is read by name, so that servers may add fields.
#include "base/clock.h"
#include "base/errors.h"
#include "client/state.h"
#include "wire/replies.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    DEAD_AT_ONCE = 500,   // rows of one answer
    STAGES_AT_ONCE = 400, // the same, of which each has up to 125 values
    LIST_TRIES = 10,
    LOOK_LEAST_MS = 1,  // between looks whether a stage is empty …
    LOOK_MOST_MS = 100, // … growing to this
};

// ---- Maps -------------------------------------------------------------------------------------

static void look_copy_text(mr_bytes text, char *to, size_t size) {
    snprintf(to, size, "%.*s", (int)text.size, text.size ? (const char *)text.data : "");
}

static bool is_map(const struct response_value *v) {
    return v->type == RESPONSE_MAP || v->type == RESPONSE_ARRAY;
}

// ---- A stage ----------------------------------------------------------------------------------

struct stage_answer {
    mr_stage_info info;
    char name[STAGE_NAME_MOST + 1], held_by[256];
    bool there;
};

static void stage_read(const struct response_value *map, struct stage_answer *to) {
    struct stage_reply reply = { 0 }, *from = &reply;
    (void)reply_read(&stage_replies, map, from); // the name shows whether it is a stage
    look_copy_text(from->name, to->name, sizeof to->name);
    look_copy_text(from->held_by, to->held_by, sizeof to->held_by);
    to->info = (mr_stage_info){ STAGE_INFO_MEMBERS(MEMBER_FROM) };
    to->there = to->name[0] != 0;
}

// The info of an answer that stays where it is.
static mr_stage_info stage_info_of(const struct stage_answer *answer) {
    mr_stage_info info = answer->info;
    info.name = answer->name;
    info.held_by = answer->held_by;
    return info;
}

static void stage_hook(struct client *c, struct exchange *x, const struct response_value *v,
                       uint32_t count) {
    (void)c;
    if (x->err >= 0 && v->type == RESPONSE_ARRAY && count >= 2 && is_map(&v[1]))
        stage_read(&v[1], x->owner);
}

static int not_a_stage(void) {
    return error_set(MR_ENET, "the server answers STAGES with what is not a stage");
}

int client_stage_look(struct engine *base, mr_bytes stage, mr_stage_info *out) {
    static _Thread_local struct stage_answer latest;
    struct client *c = (struct client *)base;
    struct stage_answer answer = { 0 };
    struct exchange *x = exchange_new("STAGES");
    if (x) {
        exchange_word(x, "NAME");
        exchange_bytes(x, stage);
        x->hook = stage_hook;
        x->owner = &answer;
    }
    int err = exchange_do(c, x, NULL, NULL);
    if (err >= 0 && !answer.there)
        err = not_a_stage();
    if (err < 0)
        return err;
    latest = answer;
    *out = stage_info_of(&latest);
    return 0;
}

int client_stage_why(struct engine *base, mr_bytes stage, char *out, size_t size) {
    struct buffer sentence = { 0 };
    struct exchange *x = exchange_new("WHY");
    if (x)
        exchange_bytes(x, stage);
    int err = exchange_do((struct client *)base, x, NULL, &sentence);
    if (err >= 0)
        snprintf(out, size, "%.*s", (int)sentence.size,
                 sentence.size ? (const char *)sentence.data : "");
    buffer_finish(&sentence);
    return err;
}

// ---- All stages -------------------------------------------------------------------------------

struct stage_list {
    struct buffer answers; // struct stage_answer
    uint32_t added;        // by the last request
    int err;
};

static void stages_hook(struct client *c, struct exchange *x, const struct response_value *v,
                        uint32_t count) {
    struct stage_list *to = x->owner;
    (void)c, (void)count;
    if (x->err < 0 || v->type != RESPONSE_ARRAY)
        return;
    uint32_t at = 1;
    for (uint32_t i = 0; to->err >= 0 && i < v->count; i++, at = response_skip(v, at)) {
        struct stage_answer answer = { 0 };
        if (is_map(&v[at]))
            stage_read(&v[at], &answer);
        to->err =
            answer.there ? buffer_append(&to->answers, &answer, sizeof answer) : not_a_stage();
        to->added++;
    }
}

// Adds the stages behind the last one of the list.
static int stages_fetch(struct client *c, struct stage_list *to) {
    struct exchange *x = exchange_new("STAGES");
    if (x) {
        exchange_option(x, "COUNT", STAGES_AT_ONCE);
        x->hook = stages_hook;
        x->owner = to;
    }
    if (x && to->answers.size) {
        struct stage_answer last;
        memcpy(&last, to->answers.data + to->answers.size - sizeof last, sizeof last);
        exchange_word(x, "FROM");
        exchange_word(x, last.name);
    }
    to->added = 0;
    int err = exchange_do(c, x, NULL, NULL);
    if (err < 0)
        return err;
    return to->err < 0 ? error_set(to->err, "%s", error_meaning(to->err)) : 0;
}

// The list begins anew if the stage that a request goes on behind was forgotten meanwhile.
static int stages_fetch_all(struct client *c, struct stage_list *to) {
    int err = 0;
    for (uint32_t tries = 0; tries < LIST_TRIES; tries++) {
        buffer_clear(&to->answers);
        do
            err = stages_fetch(c, to);
        while (err >= 0 && to->added == STAGES_AT_ONCE);
        if (err != MR_EGONE)
            break;
    }
    return err;
}

int client_stages(struct engine *base, int (*each)(const mr_stage_info *, void *arg), void *arg) {
    struct stage_list list = { 0 };
    int err = stages_fetch_all((struct client *)base, &list), stop = 0;
    for (size_t at = 0; err >= 0 && !stop && at < list.answers.size;) {
        struct stage_answer answer;
        memcpy(&answer, list.answers.data + at, sizeof answer);
        at += sizeof answer;
        mr_stage_info info = stage_info_of(&answer);
        stop = each(&info, arg);
    }
    buffer_finish(&list.answers);
    return err;
}

// ---- An epic ----------------------------------------------------------------------------------

struct epic_answer {
    mr_epic_info info;
    char stage[STAGE_NAME_MOST + 1], held_by[256];
    bool there;
};

static void epic_hook(struct client *c, struct exchange *x, const struct response_value *v,
                      uint32_t count) {
    struct epic_answer *to = x->owner;
    (void)c;
    struct epic_reply reply = { 0 }, *from = &reply;
    if (!to || x->err < 0 || count < 2 || !reply_read(&epic_replies, v, from))
        return;
    to->info = (mr_epic_info){ EPIC_INFO_MEMBERS(MEMBER_FROM) };
    to->info.total = from->total;
    to->info.expected = from->expected;
    to->info.over = epic_reply_is_over(from);
    look_copy_text(from->stage, to->stage, sizeof to->stage);
    look_copy_text(from->held_by, to->held_by, sizeof to->held_by);
    to->there = to->info.resume != 0;
}

static struct exchange *epic_new(mr_bytes stage, mr_bytes name, struct epic_answer *to) {
    struct exchange *x = exchange_new("EPIC");
    if (!x)
        return NULL;
    exchange_bytes(x, stage);
    exchange_bytes(x, name);
    x->hook = epic_hook;
    x->owner = to;
    return x;
}

static int epic_show(const struct epic_answer *answer, mr_epic_info *out) {
    static _Thread_local struct epic_answer shown;
    if (!answer->there)
        return error_set(MR_ENET, "the server answers EPIC with what is not an epic");
    shown = *answer;
    shown.info.stage = shown.stage;
    shown.info.held_by = shown.held_by;
    *out = shown.info;
    return 0;
}

int client_epic(struct engine *base, mr_bytes stage, mr_bytes name, mr_epic_info *out) {
    struct client *c = (struct client *)base;
    struct epic_answer answer = { 0 };
    int err = exchange_do(c, epic_new(stage, name, &answer), NULL, NULL);
    return err < 0 ? err : epic_show(&answer, out);
}

int client_epic_wait(struct engine *base, mr_bytes stage, mr_bytes name, int64_t left,
                     uint64_t expected, int64_t wait_ms, mr_epic_info *out) {
    struct client *c = (struct client *)base;
    uint64_t until_ms = wait_ms < 0 ? UINT64_MAX : client_until(wait_ms) + CLIENT_SLACK_MS;
    struct epic_answer answer = { 0 };
    struct exchange *x = epic_new(stage, name, &answer);
    if (!x)
        return MR_ENOMEM;
    exchange_option(x, "WAIT", wait_ms);
    if (left >= 0) {
        exchange_word(x, "LEFT");
        exchange_number(x, (uint64_t)left);
    }
    if (expected) {
        exchange_word(x, "OF");
        exchange_number(x, expected);
    }
    int err = exchange_await(c, x, until_ms, wait_ms != 0);
    if (err != MR_EAGAIN)
        exchange_free(x); // else it is, or will be
    const mr_epic_info *i = &answer.info;
    if (err >= 0 && !i->over && (left < 0 || i->waiting + i->running > (uint64_t)left))
        err = answer.there ? MR_EAGAIN : 0;
    if (err == MR_EAGAIN)
        return error_set(err, "epic '%.*s' was not worked off so far within %" PRId64 " ms",
                         (int)name.size, (const char *)name.data, wait_ms);
    return err < 0 ? err : epic_show(&answer, out);
}

static int act_on_epic(struct engine *base, mr_bytes stage, mr_bytes name, const char *what,
                       uint64_t number) {
    struct client *c = (struct client *)base;
    struct exchange *x = epic_new(stage, name, NULL);
    if (x) {
        exchange_word(x, what);
        exchange_number(x, number);
    }
    return exchange_do(c, x, NULL, NULL);
}

int client_epic_end(struct engine *base, mr_bytes stage, mr_bytes name, uint64_t total) {
    return act_on_epic(base, stage, name, "END", total);
}

int client_epic_skip(struct engine *base, mr_bytes stage, mr_bytes name, uint64_t number) {
    return act_on_epic(base, stage, name, "SKIP", number);
}

int client_epic_forget(struct engine *base, mr_bytes stage, mr_bytes name, uint64_t after_ms) {
    return act_on_epic(base, stage, name, "FORGET", after_ms);
}

int client_epic_then(struct engine *base, mr_bytes stage, mr_bytes name, const struct emit *then) {
    struct client *c = (struct client *)base;
    struct exchange *x = epic_new(stage, name, NULL);
    if (x) {
        exchange_word(x, "THEN");
        exchange_bytes(x, then->stage);
        exchange_bytes(x, then->job.key);
        exchange_bytes(x, then->body);
    }
    return exchange_do(c, x, NULL, NULL);
}

int client_epic_cancel(struct engine *base, mr_bytes stage, mr_bytes name) {
    struct client *c = (struct client *)base;
    struct exchange *x = epic_new(stage, name, NULL);
    if (x)
        exchange_word(x, "CANCEL");
    return exchange_do(c, x, NULL, NULL);
}

static void pause_for(struct client *c, uint64_t ms) {
    pthread_cond_t never;
    uint64_t until_ms = monotonic_ms() + ms;
    cond_init(&never);
    pthread_mutex_lock(&c->lock);
    while (monotonic_ms() < until_ms)
        client_sleep(c, &never, until_ms);
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&never);
}

// There is no message for this: the stage is looked at, less and less often.
int client_stage_wait_empty(struct engine *base, mr_bytes stage, int64_t wait_ms) {
    uint64_t until_ms = wait_ms ? client_until(wait_ms) : 0, pause_ms = LOOK_LEAST_MS;
    for (;;) {
        mr_stage_info info;
        int err = client_stage_look(base, stage, &info);
        if (err == MR_EGONE || (err >= 0 && !info.waiting && !info.delayed && !info.running))
            return 0;
        if (err < 0)
            return err;
        uint64_t now_ms = monotonic_ms();
        if (now_ms >= until_ms)
            return error_set(MR_EAGAIN, "stage '%.*s' was not empty within %" PRId64 " ms",
                             (int)stage.size, (const char *)stage.data, wait_ms);
        pause_for((struct client *)base,
                  pause_ms < until_ms - now_ms ? pause_ms : until_ms - now_ms);
        pause_ms = 2 * pause_ms < LOOK_MOST_MS ? 2 * pause_ms : LOOK_MOST_MS;
    }
}

#define CANCEL_ALL UINT64_C(1000000000000) // more than there can be

// ---- Lists of jobs ----------------------------------------------------------------------------

struct job_page {
    struct buffer rows; // struct answered_job, then its key and its reason
    mr_id last;
    uint32_t count;
    int err;
};

struct answered_job {
    mr_job_info info;
    uint32_t key_size, reason_size;
    bool has_progress;
    char status[16], progress[PROGRESS_MOST + 1];
};

// The text of the first of the reasons; a list has the last only.
static mr_bytes first_reason(const struct response_value *reasons) {
    struct reason_reply reason = { 0 };
    if (reasons && reasons->type == RESPONSE_ARRAY && reasons->count)
        (void)reply_read(&reason_replies, &reasons[1], &reason); // else there is no text
    return reason.text;
}

static void answered_job_set_progress(struct answered_job *to, const struct response_value *map) {
    struct progress_reply p = { 0 };
    to->has_progress = map && reply_read(&progress_replies, map, &p);
    to->info.progress_done = p.done;
    to->info.progress_total = p.total;
    look_copy_text(p.text, to->progress, sizeof to->progress);
}

static int answered_job_add(struct job_page *to, const struct response_value *job) {
    struct job_reply reply = { 0 }, *from = &reply;
    (void)reply_read(&job_replies, job, from); // the id shows whether it is a job
    if (!from->id)
        return error_set(MR_ENET, "the server answers JOBS with what is not a job");
    struct answered_job row = { .info = { JOB_INFO_MEMBERS(MEMBER_FROM) } };
    mr_bytes key = from->key, reason = first_reason(from->reasons.value);
    look_copy_text(from->status, row.status, sizeof row.status);
    answered_job_set_progress(&row, from->progress.value);
    row.key_size = (uint32_t)key.size;
    row.reason_size = (uint32_t)(reason.size < REASON_MOST ? reason.size : REASON_MOST);
    int err = buffer_reserve(&to->rows, sizeof row + row.key_size + row.reason_size);
    if (err < 0)
        return err;
    buffer_append(&to->rows, &row, sizeof row);
    buffer_append(&to->rows, key.data, row.key_size);
    buffer_append(&to->rows, reason.data, row.reason_size);
    to->last = row.info.id;
    to->count++;
    return 0;
}

static void jobs_hook(struct client *c, struct exchange *x, const struct response_value *v,
                      uint32_t count) {
    struct job_page *to = x->owner;
    (void)c, (void)count;
    if (x->err < 0 || v->type != RESPONSE_ARRAY)
        return;
    uint32_t at = 1;
    for (uint32_t i = 0; to->err >= 0 && i < v->count; i++, at = response_skip(v, at))
        to->err = answered_job_add(to, &v[at]);
}

static void filter_words(struct exchange *x, const mr_job_filter *f) {
    if (f->status) {
        exchange_word(x, "STATUS");
        exchange_word(x, f->status);
    }
    if (f->key.size) {
        exchange_word(x, "KEY");
        exchange_bytes(x, f->key);
    }
}

// Fetches what the filter wants in place of what is in `to`.
static int jobs_fetch(struct client *c, mr_bytes stage, const mr_job_filter *f,
                      struct job_page *to) {
    struct exchange *x = exchange_new("JOBS");
    if (x) {
        exchange_bytes(x, stage);
        exchange_option(x, "COUNT", f->count);
        x->hook = jobs_hook;
        x->owner = to;
    }
    if (x)
        filter_words(x, f);
    if (x && f->from) {
        exchange_word(x, "FROM");
        exchange_number(x, f->from);
    }
    buffer_clear(&to->rows);
    to->count = 0;
    int err = exchange_do(c, x, NULL, NULL);
    if (err < 0)
        return err;
    return to->err < 0 ? error_set(to->err, "%s", error_meaning(to->err)) : 0;
}

// 0: `each` was called for all; else what it returned to stop.
static int job_page_call(const struct job_page *page, int (*each)(const mr_job_info *, void *arg),
                         void *arg) {
    for (size_t at = 0; at < page->rows.size;) {
        struct answered_job row;
        char reason[REASON_MOST + 1];
        memcpy(&row, page->rows.data + at, sizeof row);
        const uint8_t *key = page->rows.data + at + sizeof row;
        memcpy(reason, key + row.key_size, row.reason_size);
        reason[row.reason_size] = 0;
        row.info.key = (mr_bytes){ key, row.key_size };
        row.info.status = row.status;
        row.info.reason = reason;
        row.info.progress_text = row.has_progress ? row.progress : NULL;
        at += sizeof row + row.key_size + row.reason_size;
        int stop = each(&row.info, arg);
        if (stop)
            return stop;
    }
    return 0;
}

int client_jobs(struct engine *base, mr_bytes stage, const mr_job_filter *f,
                int (*each)(const mr_job_info *, void *arg), void *arg) {
    struct job_page page = { 0 };
    int err = jobs_fetch((struct client *)base, stage, f, &page);
    if (err >= 0)
        (void)job_page_call(&page, each, arg); // why it stopped is the caller's business
    buffer_finish(&page.rows);
    return err;
}

// ---- Dead jobs --------------------------------------------------------------------------------

struct dead_call {
    int (*each)(mr_id, mr_bytes key, const char *reason, void *arg);
    void *arg;
};

static int dead_call(const mr_job_info *info, void *arg) {
    const struct dead_call *to = arg;
    return to->each(info->id, info->key, *info->reason ? info->reason : "no reason was kept",
                    to->arg);
}

// `each` is called for a page after the next one was fetched: it may retry and drop the jobs of the
// page, also the last one, behind which the next page begins.
int client_dead(struct engine *base, mr_bytes stage,
                int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg) {
    struct client *c = (struct client *)base;
    struct dead_call call = { each, arg };
    struct job_page pages[2] = { 0 }, *page = &pages[0], *next = &pages[1];
    mr_job_filter dead = { .status = "dead", .count = DEAD_AT_ONCE };
    int err = jobs_fetch(c, stage, &dead, page);
    while (err >= 0 && page->count) {
        dead.from = page->last;
        next->count = 0;
        if (page->count == DEAD_AT_ONCE)
            err = jobs_fetch(c, stage, &dead, next);
        if (err == MR_EGONE)
            err = 0; // that one is not dead any more: the list ends here
        if (job_page_call(page, dead_call, &call) != 0)
            break;
        struct job_page *used = page;
        page = next;
        next = used;
    }
    buffer_finish(&pages[0].rows);
    buffer_finish(&pages[1].rows);
    return err;
}

// ---- Acting -----------------------------------------------------------------------------------

static int client_act_on_stage(struct engine *base, const char *command, mr_bytes stage) {
    struct client *c = (struct client *)base;
    struct exchange *x = exchange_new(command);
    if (x)
        exchange_bytes(x, stage);
    return exchange_do(c, x, NULL, NULL);
}

static int act_on_key(struct engine *base, const char *command, mr_bytes stage, mr_bytes key) {
    struct exchange *x = exchange_new(command);
    if (x) {
        exchange_bytes(x, stage);
        exchange_word(x, "KEY");
        exchange_bytes(x, key);
    }
    return exchange_do((struct client *)base, x, NULL, NULL);
}

int client_stage_pause_key(struct engine *base, mr_bytes stage, mr_bytes key) {
    return act_on_key(base, "PAUSE", stage, key);
}

int client_stage_resume_key(struct engine *base, mr_bytes stage, mr_bytes key) {
    return act_on_key(base, "RESUME", stage, key);
}

int client_stage_pause(struct engine *base, mr_bytes stage) {
    return client_act_on_stage(base, "PAUSE", stage);
}

int client_stage_drain(struct engine *base, mr_bytes stage) {
    return client_act_on_stage(base, "DRAIN", stage);
}

int client_stage_resume(struct engine *base, mr_bytes stage) {
    return client_act_on_stage(base, "RESUME", stage);
}

int client_stage_set(struct engine *base, mr_bytes stage, mr_bytes policy, mr_bytes value) {
    struct client *c = (struct client *)base;
    struct exchange *x = exchange_new("STAGE");
    if (x) {
        exchange_bytes(x, stage);
        exchange_bytes(x, policy);
        exchange_bytes(x, value);
    }
    return exchange_do(c, x, NULL, NULL);
}

void act_hook(struct client *c, struct exchange *x, const struct response_value *v,
              uint32_t count) {
    (void)c, (void)v, (void)count;
    if (x->repeated && (x->err == MR_EINVAL || x->err == MR_EGONE))
        x->err = 0;
}

static int act_on_job(struct engine *base, const char *command, mr_id id) {
    struct client *c = (struct client *)base;
    struct exchange *x = exchange_new(command);
    if (x) {
        exchange_number(x, id);
        x->hook = act_hook;
    }
    return exchange_do(c, x, NULL, NULL);
}

int client_retry(struct engine *base, mr_id id) {
    return act_on_job(base, "RETRY", id);
}

int client_stage_cancel(struct engine *base, mr_bytes stage, const mr_job_filter *f, bool dry,
                        uint64_t *out_count) {
    struct exchange *x = exchange_new("CANCEL");
    int64_t count = 0;
    if (x) {
        exchange_word(x, "STAGE");
        exchange_bytes(x, stage);
        filter_words(x, f);
        exchange_word(x, "MAX");
        exchange_number(x, f->count ? f->count : CANCEL_ALL);
        EXCHANGE_FLAG(x, "DRY", dry);
    }
    int err = exchange_do((struct client *)base, x, &count, NULL);
    if (err >= 0)
        *out_count = (uint64_t)count;
    return err;
}

int client_due(struct engine *base, mr_id id) {
    return act_on_job(base, "DUE", id);
}

int client_drop(struct engine *base, mr_id id) {
    return act_on_job(base, "DROP", id);
}

int client_epic_drop(struct engine *base, mr_bytes stage, mr_bytes name) {
    struct client *c = (struct client *)base;
    struct exchange *x = epic_new(stage, name, NULL);
    if (x) {
        exchange_word(x, "DROP");
        x->hook = act_hook;
    }
    return exchange_do(c, x, NULL, NULL);
}
