// millrace top: sends its requests once a second, draws the replies and acts on keys. A connection
// that is lost comes back by itself. Without a terminal it prints the table of stages once.
#include "cli/top/top.h"
#include "base/clock.h"

#include "base/errors.h"
#include "base/mem.h"
#include "cli/output.h"
#include "cli/sentence.h"
#include "cli/talk_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 1000, PAGE = 10 };

// ---- What is chosen ---------------------------------------------------------------------------

struct top_stage *top_chosen(const struct top *t, uint32_t *out_place) {
    struct top_stage *st = top_named(t, t->chosen);
    if (!st && t->stage_count)
        st = t->stages;
    if (st && out_place)
        *out_place = (uint32_t)(st - t->stages);
    return st;
}

static int more_first(double a, double b) {
    return (a < b) - (a > b);
}

static enum top_order sorted_by; // qsort has no argument for it

static int compare_stages(const void *one, const void *other) {
    const struct top_stage *a = one, *b = other;
    int by = 0;
    switch (sorted_by) {
    case BY_NAME:
    case TOP_ORDERS:
        break;
    case BY_WAITING:
        by = more_first((double)a->waiting, (double)b->waiting);
        break;
    case BY_RATE:
        by = more_first(a->out_per_s, b->out_per_s);
        break;
    case BY_AGE:
        by = more_first((double)a->oldest_ms, (double)b->oldest_ms);
        break;
    case BY_DEAD:
        by = more_first((double)a->dead, (double)b->dead);
        break;
    }
    return by ? by : strcmp(a->name, b->name);
}

static void sort_stages(struct top *t) {
    const struct top_stage *st = top_chosen(t, NULL);
    if (st && !t->chosen[0])
        snprintf(t->chosen, sizeof t->chosen, "%s", st->name);
    sorted_by = t->order;
    if (t->stage_count)
        qsort(t->stages, t->stage_count, sizeof *t->stages, compare_stages);
}

static void move(struct top *t, int by) {
    uint32_t place = 0;
    if (!top_chosen(t, &place))
        return;
    int64_t to = (int64_t)place + by, last = (int64_t)t->stage_count - 1;
    to = to < 0 ? 0 : to > last ? last : to;
    snprintf(t->chosen, sizeof t->chosen, "%s", t->stages[to].name);
}

// ---- The connection ---------------------------------------------------------------------------

// Functions that take it return an error if top cannot go on, and MR_EAGAIN if q was pressed
// meanwhile.
struct watch {
    struct top top;
    struct screen screen;
    struct talks *talks;
    struct talk *talk;
    struct talk *info; // for INFO, which is answered while the other one waits for the store
    bool asks_info;    // its reply is to come
    bool lost;         // the connection, when it was used last
    bool end;
};

static int top_redraw(struct watch *w) {
    top_draw(&w->top, &w->screen);
    return screen_show(&w->screen);
}

// ---- The cluster --------------------------------------------------------------------------------

// Takes the reply of INFO if it is there. A lost connection is not reported twice.
static void info_receive(struct watch *w) {
    const struct response_value *reply;
    int received = w->asks_info ? talk_receive(w->info, &reply) : 0;
    if (received > 0)
        top_cluster_read(&w->top, reply);
    if (received != 0)
        w->asks_info = false;
}

static void info_ask(struct watch *w) {
    struct words words = { 0 };
    info_receive(w);
    if (w->asks_info)
        return;
    words_text(&words, "INFO");
    words_text(&words, "CLUSTER");
    words_text(&words, "SERVER");
    w->asks_info = talk_send(w->info, &words) == 0;
    words_finish(&words);
}

static void note_silence(struct watch *w, uint64_t silent_ms) {
    struct top *t = &w->top;
    if (t->outage_ms)
        snprintf(t->trouble, sizeof t->trouble,
                 "the store has not answered for %d s: commands wait for it",
                 (int)(t->outage_ms / 1000));
    else
        snprintf(t->trouble, sizeof t->trouble, "no answer for %d s from %s",
                 (int)(silent_ms / 1000), t->where);
    info_ask(w);
}

// A server that does not answer is shown as such, and q still works.
static int top_receive(struct watch *w, const struct response_value **out) {
    uint64_t since_ms = monotonic_ms();
    for (;;) {
        int received = talk_receive(w->talk, out);
        if (received != 0)
            return received < 0 ? received : 0;
        int typed = talks_turn(w->talks, STDIN_FILENO, LOOK_MS);
        if (typed < 0)
            return typed;
        w->end = typed > 0 && screen_has_key(&w->screen, 'q');
        if (w->end)
            return MR_EAGAIN;
        uint64_t silent_ms = monotonic_ms() - since_ms;
        if (silent_ms < LOOK_MS)
            continue;
        note_silence(w, silent_ms);
        int err = top_redraw(w);
        if (err < 0)
            return err;
    }
}

static int request(struct watch *w, struct words *words, const struct response_value **out) {
    int err = talk_send(w->talk, words);
    words_finish(words);
    return err < 0 ? err : top_receive(w, out);
}

static int ask(struct watch *w, const char *command, const char *stage,
               const struct response_value **out) {
    struct words words = { 0 };
    words_text(&words, command);
    if (stage)
        words_text(&words, stage);
    return request(w, &words, out);
}

static void note_lost(struct watch *w) {
    snprintf(w->top.trouble, sizeof w->top.trouble, ENGINE_AGAIN "%.400s", error_text());
    w->lost = true;
}

// ---- Requests -----------------------------------------------------------------------------------

static int look_at_running(struct watch *w) {
    struct words words = { 0 };
    const struct response_value *reply;
    words_text(&words, "JOBS");
    words_text(&words, w->top.chosen);
    words_option(&words, "STATUS", "running");
    words_text(&words, "COUNT");
    words_number(&words, TOP_JOBS_LOOKED);
    int err = request(w, &words, &reply);
    if (err >= 0 && reply->type == RESPONSE_ARRAY)
        top_jobs_read(&w->top, reply);
    return err;
}

// An error of WHY is shown in the place of its sentence.
static int look_at_chosen(struct watch *w) {
    char why[TOP_TEXT];
    struct top *t = &w->top;
    const struct response_value *reply;
    int err = ask(w, "CHANNELS", t->chosen, &reply);
    if (err >= 0 && reply->type == RESPONSE_ARRAY)
        channels_read(t, reply);
    if (err >= 0)
        err = ask(w, "WORKERS", NULL, &reply);
    if (err >= 0 && reply->type == RESPONSE_ARRAY)
        workers_read(t, reply);
    if (err >= 0)
        err = look_at_running(w);
    if (err >= 0)
        err = ask(w, "WHY", t->chosen, &reply);
    if (err >= 0)
        sentence_for_shell(t->why, sizeof t->why, text_plain(why, sizeof why, reply->bytes),
                           ""); // the URL is shown above it
    return err;
}

static int top_look(struct watch *w) {
    struct top *t = &w->top;
    const struct response_value *reply;
    info_ask(w);
    int err = ask(w, "STAGES", NULL, &reply);
    if (err < 0)
        return err;
    t->trouble[0] = 0;
    if (w->lost)
        snprintf(t->message, sizeof t->message, ENGINE_BACK);
    w->lost = false;
    if (reply->type != RESPONSE_ARRAY) {
        text_plain(t->message, sizeof t->message, reply->bytes);
        return 0;
    }
    err = stages_read(t, reply);
    if (err < 0)
        return err;
    sort_stages(t);
    return t->opened && top_chosen(t, NULL) ? look_at_chosen(w) : 0;
}

static int top_act(struct watch *w, const char *command, const char *done) {
    struct top *t = &w->top;
    const struct response_value *reply;
    if (!top_chosen(t, NULL))
        return 0;
    int err = ask(w, command, t->chosen, &reply);
    if (err < 0)
        return err;
    if (reply->type == RESPONSE_ERROR)
        text_plain(t->message, sizeof t->message, reply->bytes);
    else
        snprintf(t->message, sizeof t->message, "%s %s", t->chosen, done);
    return top_look(w);
}

// ---- Keys -------------------------------------------------------------------------------------

static int press(struct watch *w, int key) {
    struct top *t = &w->top;
    t->message[0] = 0;
    switch (key) {
    case 'q':
        w->end = true;
        return 0;
    case KEY_UP:
    case KEY_DOWN:
        move(t, key == KEY_UP ? -1 : 1);
        return t->opened ? top_look(w) : 0;
    case KEY_PAGE_UP:
    case KEY_PAGE_DOWN:
        move(t, key == KEY_PAGE_UP ? -PAGE : PAGE);
        return t->opened ? top_look(w) : 0;
    case 's':
        t->order = (t->order + 1) % TOP_ORDERS;
        sort_stages(t);
        return 0;
    case KEY_ENTER:
        t->opened = top_chosen(t, NULL) != NULL;
        return top_look(w);
    case KEY_ESCAPE:
        t->opened = false;
        return 0;
    case 'p':
        return top_act(w, "PAUSE", "is paused: it accepts jobs and starts none");
    case 'r':
        return top_act(w, "RESUME", "goes on");
    default:
        snprintf(t->message, sizeof t->message, "that key does nothing here");
        return 0;
    }
}

// A lost connection is no error: it is shown, and comes back by itself.
static int tolerate_loss(struct watch *w, int err) {
    if (err != MR_ENET || w->talks->address.url.local)
        return err;
    note_lost(w);
    return 0;
}

// Until q is pressed, or it cannot go on.
static int top_watch(struct watch *w) {
    uint64_t looked_ms = monotonic_ms();
    int err = tolerate_loss(w, top_look(w));
    while (err >= 0 && !w->end) {
        err = top_redraw(w);
        if (err < 0)
            break;
        uint64_t since_ms = monotonic_ms() - looked_ms;
        int64_t wait_ms = since_ms < LOOK_MS ? (int64_t)(LOOK_MS - since_ms) : 0;
        err = tolerate_loss(w, talks_turn(w->talks, STDIN_FILENO, wait_ms));
        for (int key; err >= 0 && !w->end && (key = screen_key(&w->screen)) != KEY_NONE;)
            err = tolerate_loss(w, press(w, key));
        if (err >= 0 && !w->end && monotonic_ms() - looked_ms >= LOOK_MS) {
            err = tolerate_loss(w, top_look(w));
            looked_ms = monotonic_ms();
        }
    }
    return err;
}

static enum cli_exit top_exit_of(const struct watch *w, int err) {
    if (w->end)
        return CLI_DONE;
    if (err == MR_ECANCELLED)
        return CLI_INTERRUPTED;
    complain("top: %s", error_text());
    return err == MR_EAUTH ? CLI_REFUSED : err == MR_ENOMEM ? CLI_FAILED : CLI_UNOPENED;
}

enum cli_exit top_run(const struct input *in) {
    struct watch w = { 0 };
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return stages_run(in);
    enum cli_exit code = talk_begin(in, STORE_MUST_EXIST, &w.talks, &w.talk);
    if (code != CLI_DONE)
        return code;
    code = talk_open(w.talks, &w.info);
    if (code != CLI_DONE) {
        talks_close(w.talks);
        return code;
    }
    w.top.where = w.talks->address.url.where;
    if (screen_begin(&w.screen) < 0) {
        complain("top: %s", error_text());
        code = CLI_FAILED;
    } else {
        int err = top_watch(&w);
        screen_end(&w.screen);
        code = top_exit_of(&w, err);
    }
    mem_free(w.top.stages);
    talks_close(w.talks);
    return code;
}
