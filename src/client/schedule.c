// Schedules of a server: SCHEDULE and SCHEDULES.
#include "base/errors.h"
#include "base/job_spec.h"
#include "client/state.h"
#include "wire/replies.h"

#include <stdio.h>
#include <string.h>

enum { SCHEDULES_A_PAGE = 200 };

// ---- Maps -------------------------------------------------------------------------------------

// False: it is not a schedule.
static bool schedule_read(const struct response_value *map, struct schedule_answer *to) {
    struct schedule_reply reply = { 0 }, *from = &reply;
    if (!reply_read(&schedule_replies, map, from) || !from->name.size || !from->stage.size)
        return false;
    to->info = (mr_schedule_info){ SCHEDULE_INFO_MEMBERS(MEMBER_FROM) };
    schedule_answer_text(from->stage, to->stage, sizeof to->stage);
    schedule_answer_text(from->name, to->name, sizeof to->name);
    schedule_answer_text(from->cron, to->cron, sizeof to->cron);
    schedule_answer_text(from->zone, to->tz, sizeof to->tz);
    schedule_answer_text(from->missed, to->missed, sizeof to->missed);
    schedule_answer_text(from->key, to->key, sizeof to->key);
    to->key_size = (uint32_t)(from->key.size < KEY_MOST ? from->key.size : KEY_MOST);
    const struct response_value *at = from->upcoming.value;
    uint32_t most = sizeof to->info.upcoming / sizeof *to->info.upcoming;
    for (uint32_t i = 0; at && at->type == RESPONSE_ARRAY && i < at->count && i < most; i++)
        to->info.upcoming[to->info.upcoming_count++] = at[1 + i].integer;
    return true;
}

static int not_a_schedule(void) {
    return error_set(MR_ENET, "the server answers SCHEDULES with what is not a schedule");
}

// ---- Looking ----------------------------------------------------------------------------------

struct schedule_page {
    struct buffer rows; // struct schedule_answer
    uint32_t count;     // of the last request
    int err;
};

static void schedule_hook(struct client *c, struct exchange *x, const struct response_value *v,
                          uint32_t count) {
    struct schedule_page *to = x->owner;
    struct schedule_answer copy = { 0 };
    (void)c;
    if (x->err < 0 || count < 2)
        return;
    to->err = schedule_read(v, &copy) ? buffer_append(&to->rows, &copy, sizeof copy) : MR_ENET;
    to->count++;
}

static struct exchange *schedule_new(mr_bytes stage, mr_bytes name) {
    struct exchange *x = exchange_new("SCHEDULE");
    if (x) {
        exchange_bytes(x, stage);
        exchange_bytes(x, name);
    }
    return x;
}

int client_schedule(struct engine *base, mr_bytes stage, mr_bytes name, mr_schedule_info *out) {
    static _Thread_local struct schedule_answer latest;
    struct schedule_page page = { 0 };
    struct exchange *x = schedule_new(stage, name);
    if (x) {
        x->hook = schedule_hook;
        x->owner = &page;
    }
    int err = exchange_do((struct client *)base, x, NULL, NULL);
    if (err >= 0 && (page.err < 0 || !page.count))
        err = not_a_schedule();
    if (err >= 0) {
        memcpy(&latest, page.rows.data, sizeof latest);
        *out = schedule_answer_info(&latest);
    }
    buffer_finish(&page.rows);
    return err;
}

// ---- All of them ------------------------------------------------------------------------------

static void schedules_hook(struct client *c, struct exchange *x, const struct response_value *v,
                           uint32_t count) {
    struct schedule_page *to = x->owner;
    (void)c, (void)count;
    if (x->err < 0 || v->type != RESPONSE_ARRAY)
        return;
    uint32_t at = 1;
    for (uint32_t i = 0; to->err >= 0 && i < v->count; i++, at = response_skip(v, at)) {
        struct schedule_answer copy = { 0 };
        to->err =
            schedule_read(&v[at], &copy) ? buffer_append(&to->rows, &copy, sizeof copy) : MR_ENET;
        to->count++;
    }
}

// Those behind `last`; NULL: the first ones.
static int schedules_fetch(struct client *c, mr_bytes stage, const struct schedule_answer *last,
                           struct schedule_page *to) {
    struct exchange *x = exchange_new("SCHEDULES");
    if (x && stage.size)
        exchange_bytes(x, stage);
    if (x) {
        exchange_option(x, "COUNT", SCHEDULES_A_PAGE);
        x->hook = schedules_hook;
        x->owner = to;
    }
    if (x && last) {
        char from[STAGE_NAME_MOST + 1 + SCHEDULE_NAME_MOST + 1];
        (void)snprintf(from, sizeof from, "%s %s", last->stage, last->name);
        exchange_word(x, "FROM");
        exchange_word(x, from);
    }
    buffer_clear(&to->rows);
    to->count = 0;
    int err = exchange_do(c, x, NULL, NULL);
    if (err >= 0 && to->err < 0)
        err = to->err == MR_ENET ? not_a_schedule() : to->err;
    return err;
}

static struct schedule_answer schedule_row(const struct schedule_page *page, uint32_t row) {
    struct schedule_answer copy;
    memcpy(&copy, page->rows.data + row * sizeof copy, sizeof copy);
    return copy;
}

// The page behind this one. A list goes on behind a schedule that is still there: if the last one
// of the page was dropped meanwhile, behind the one before it.
static int schedules_fetch_next(struct client *c, mr_bytes stage, const struct schedule_page *page,
                                struct schedule_page *to) {
    int err = MR_EGONE;
    for (uint32_t row = page->count; err == MR_EGONE && row--;) {
        struct schedule_answer from = schedule_row(page, row);
        err = schedules_fetch(c, stage, &from, to);
    }
    return err;
}

// 0: `each` was called for all; else what it returned to stop.
static int schedule_page_call(const struct schedule_page *page,
                              int (*each)(const mr_schedule_info *, void *arg), void *arg) {
    for (uint32_t row = 0; row < page->count; row++) {
        struct schedule_answer copy = schedule_row(page, row);
        mr_schedule_info info = schedule_answer_info(&copy);
        int stop = each(&info, arg);
        if (stop)
            return stop;
    }
    return 0;
}

// The next page is fetched before `each` is called, which may drop schedules.
int client_schedules(struct engine *base, mr_bytes stage,
                     int (*each)(const mr_schedule_info *, void *arg), void *arg) {
    struct client *c = (struct client *)base;
    struct schedule_page pages[2] = { 0 }, *page = &pages[0], *next = &pages[1];
    int err = schedules_fetch(c, stage, NULL, page);
    while (err >= 0 && page->count) {
        next->count = 0;
        if (page->count == SCHEDULES_A_PAGE)
            err = schedules_fetch_next(c, stage, page, next);
        if (err >= 0 && schedule_page_call(page, each, arg) != 0)
            break;
        struct schedule_page *used = page;
        page = next;
        next = used;
    }
    buffer_finish(&pages[0].rows);
    buffer_finish(&pages[1].rows);
    return err;
}

// ---- Acting -----------------------------------------------------------------------------------

#define SEND_OPTION(member, kind, word, ...) EXCHANGE_##kind(x, word, o->member);

int client_schedule_set(struct engine *base, mr_bytes stage, mr_bytes name, mr_bytes body,
                        const mr_schedule_options *o) {
    struct exchange *x = schedule_new(stage, name);
    if (x) {
        exchange_text_option(x, "CRON", mr_str(o->cron));
        exchange_option(x, "EVERY", o->every_ms);
        exchange_text_option(x, "TZ", mr_str(o->tz));
        exchange_text_option(x, "MISSED", mr_str(o->missed));
        exchange_word(x, "PUSH");
        exchange_bytes(x, body);
        SCHEDULE_OPTIONS(SEND_OPTION)
    }
    return exchange_do((struct client *)base, x, NULL, NULL);
}

int client_schedule_act(struct engine *base, mr_bytes stage, mr_bytes name, enum schedule_act act) {
    static const char *const words[] = { [SCHEDULE_DROP] = "DROP",
                                         [SCHEDULE_PAUSE] = "PAUSE",
                                         [SCHEDULE_RESUME] = "RESUME",
                                         [SCHEDULE_NOW] = "NOW" };
    struct exchange *x = schedule_new(stage, name);
    if (x) {
        exchange_word(x, words[act]);
        x->acts_each_time = act == SCHEDULE_NOW;
        x->hook = act == SCHEDULE_DROP ? act_hook : NULL;
    }
    return exchange_do((struct client *)base, x, NULL, NULL);
}
