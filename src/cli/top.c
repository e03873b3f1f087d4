// millrace top: asks once a second, draws, and does what the keys say. Where there is no terminal
// it is the table of stages, once.
#include "cli/top.h"

#include "base/errors.h"
#include "base/mem.h"
#include "cli/output.h"
#include "cli/sentence.h"
#include "cli/show.h"
#include "cli/talk_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 1000, PAGE = 10 };

// ---- What was heard ---------------------------------------------------------------------------

static void copy_text(char *out, size_t room, const struct response_value *map, const char *name) {
    const struct response_value *v = value_field(map, name);
    text_plain(out, room, v && v->type == RESPONSE_BULK ? v->bytes : (mr_bytes){ 0 });
}

static void remember(double past[TOP_PAST], uint32_t count, double value) {
    if (count == TOP_PAST)
        memmove(past, past + 1, (TOP_PAST - 1) * sizeof *past);
    past[count < TOP_PAST ? count : TOP_PAST - 1] = value;
}

static struct top_stage *stage_named(const struct top *t, const char *name) {
    for (uint32_t i = 0; i < t->stage_count; i++)
        if (strcmp(t->stages[i].name, name) == 0)
            return &t->stages[i];
    return NULL;
}

static struct top_stage *stage_add(struct top *t, const char *name) {
    if (t->stage_count == t->room) {
        uint32_t room = t->room ? 2 * t->room : 16;
        struct top_stage *stages = mem_resize(t->stages, room * sizeof *stages);
        if (!stages)
            return NULL;
        t->stages = stages;
        t->room = room;
    }
    struct top_stage *st = &t->stages[t->stage_count++];
    *st = (struct top_stage){ 0 };
    snprintf(st->name, sizeof st->name, "%s", name);
    return st;
}

static int stage_hear(struct top *t, const struct response_value *row) {
    char name[TOP_NAME];
    copy_text(name, sizeof name, row, "name");
    struct top_stage *st = stage_named(t, name);
    if (!st)
        st = stage_add(t, name);
    if (!st)
        return error_set(MR_ENOMEM, "no memory for a stage");
    st->there = true;
    copy_text(st->held, sizeof st->held, row, "held-by");
    st->waiting = value_number(row, "waiting");
    st->running = value_number(row, "running");
    st->parked = value_number(row, "parked");
    st->delayed = value_number(row, "delayed");
    st->dead = value_number(row, "dead");
    st->oldest_ms = value_number(row, "oldest-ms");
    st->workers = value_number(row, "workers");
    st->done = value_number(row, "done");
    st->failed = value_number(row, "failed");
    st->wait_p50_ms = value_number(row, "wait-p50-ms");
    st->wait_p99_ms = value_number(row, "wait-p99-ms");
    st->in_per_s = value_real(row, "in-per-s");
    st->out_per_s = value_real(row, "out-per-s");
    remember(st->rates, st->past, st->out_per_s);
    remember(st->depths, st->past, (double)st->waiting);
    st->past += st->past < TOP_PAST;
    return 0;
}

static void forget_missing(struct top *t) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->stage_count; i++)
        if (t->stages[i].there)
            t->stages[kept++] = t->stages[i];
    t->stage_count = kept;
}

static int stages_hear(struct top *t, const struct response_value *reply) {
    double rate = 0, depth = 0;
    for (uint32_t i = 0; i < t->stage_count; i++)
        t->stages[i].there = false;
    const struct response_value *row = reply + 1;
    for (uint32_t i = 0; i < reply->count; i++, row = value_next(row)) {
        int err = stage_hear(t, row);
        if (err < 0)
            return err;
        rate += value_real(row, "out-per-s");
        depth += (double)value_number(row, "waiting");
    }
    forget_missing(t);
    remember(t->rates, t->past, rate);
    remember(t->depths, t->past, depth);
    t->past += t->past < TOP_PAST;
    return 0;
}

static void channels_hear(struct top *t, const struct response_value *reply) {
    const struct response_value *row = reply + 1;
    t->channel_count = 0;
    for (uint32_t i = 0; i < reply->count && i < TOP_CHANNELS; i++, row = value_next(row)) {
        struct top_channel *c = &t->channels[t->channel_count++];
        copy_text(c->key, sizeof c->key, row, "key");
        copy_text(c->state, sizeof c->state, row, "state");
        c->depth = value_number(row, "depth");
        c->oldest_ms = value_number(row, "oldest-ms");
        c->parked_ms = strcmp(c->state, "parked") == 0 ? value_number(row, "parked-ms") : -1;
    }
}

// Whether the name is among names with blanks between them.
static bool is_among(const char *names, const char *name) {
    size_t size = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += size)
        if ((at == names || at[-1] == ' ') && (at[size] == ' ' || at[size] == 0))
            return true;
    return false;
}

static void workers_hear(struct top *t, const struct response_value *reply) {
    char stages[4096];
    const struct response_value *row = reply + 1;
    t->worker_count = t->worker_all = 0;
    for (uint32_t i = 0; i < reply->count; i++, row = value_next(row)) {
        copy_text(stages, sizeof stages, row, "stages");
        if (!is_among(stages, t->chosen) || t->worker_all++ >= TOP_WORKERS)
            continue;
        struct top_worker *w = &t->workers[t->worker_count++];
        copy_text(w->name, sizeof w->name, row, "name");
        copy_text(w->address, sizeof w->address, row, "address");
        w->leases = value_number(row, "leases");
        w->taken = value_number(row, "taken");
        w->ended = value_number(row, "ended");
        w->age_ms = value_number(row, "age-ms");
    }
}

// ---- What is chosen ---------------------------------------------------------------------------

struct top_stage *top_chosen(const struct top *t, uint32_t *out_place) {
    struct top_stage *st = stage_named(t, t->chosen);
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

// ---- Asking -----------------------------------------------------------------------------------

static enum cli_exit ask(struct talk *talk, const char *command, const char *stage,
                         const struct response_value **out) {
    struct words w = { 0 };
    words_text(&w, command);
    if (stage)
        words_text(&w, stage);
    enum cli_exit code = CLI_DONE;
    int err = talk_ask(talk, &w, out);
    words_finish(&w);
    if (err == MR_ECANCELLED)
        code = CLI_INTERRUPTED;
    else if (err < 0)
        code = CLI_UNOPENED;
    return code;
}

// What cannot be asked for is told in the place of what it would have answered.
static enum cli_exit look_at_chosen(struct top *t, struct talk *talk) {
    char why[TOP_TEXT];
    const struct response_value *reply;
    enum cli_exit code = ask(talk, "CHANNELS", t->chosen, &reply);
    if (code == CLI_DONE && reply->type == RESPONSE_ARRAY)
        channels_hear(t, reply);
    if (code == CLI_DONE)
        code = ask(talk, "WORKERS", NULL, &reply);
    if (code == CLI_DONE && reply->type == RESPONSE_ARRAY)
        workers_hear(t, reply);
    if (code == CLI_DONE)
        code = ask(talk, "WHY", t->chosen, &reply);
    if (code == CLI_DONE)
        sentence_typed(t->why, sizeof t->why, text_plain(why, sizeof why, reply->bytes));
    return code;
}

static enum cli_exit look(struct top *t, struct talk *talk) {
    const struct response_value *reply;
    enum cli_exit code = ask(talk, "STAGES", NULL, &reply);
    if (code != CLI_DONE)
        return code;
    if (reply->type != RESPONSE_ARRAY) {
        text_plain(t->said, sizeof t->said, reply->bytes);
        return CLI_DONE;
    }
    int err = stages_hear(t, reply);
    if (err < 0)
        return CLI_FAILED;
    sort_stages(t);
    return t->opened && top_chosen(t, NULL) ? look_at_chosen(t, talk) : CLI_DONE;
}

static enum cli_exit act(struct top *t, struct talk *talk, const char *command, const char *done) {
    const struct response_value *reply;
    if (!top_chosen(t, NULL))
        return CLI_DONE;
    enum cli_exit code = ask(talk, command, t->chosen, &reply);
    if (code != CLI_DONE)
        return code;
    if (reply->type == RESPONSE_ERROR)
        text_plain(t->said, sizeof t->said, reply->bytes);
    else
        snprintf(t->said, sizeof t->said, "%s %s", t->chosen, done);
    return look(t, talk);
}

// ---- Keys -------------------------------------------------------------------------------------

// CLI_INTERRUPTED: that is enough; `out_end` if it was asked for in peace.
static enum cli_exit press(struct top *t, struct talk *talk, int key, bool *out_end) {
    t->said[0] = 0;
    switch (key) {
    case 'q':
        *out_end = true;
        return CLI_DONE;
    case KEY_UP:
    case KEY_DOWN:
        move(t, key == KEY_UP ? -1 : 1);
        return t->opened ? look(t, talk) : CLI_DONE;
    case KEY_PAGE_UP:
    case KEY_PAGE_DOWN:
        move(t, key == KEY_PAGE_UP ? -PAGE : PAGE);
        return t->opened ? look(t, talk) : CLI_DONE;
    case 's':
        t->order = (t->order + 1) % TOP_ORDERS;
        sort_stages(t);
        return CLI_DONE;
    case KEY_ENTER:
        t->opened = top_chosen(t, NULL) != NULL;
        return look(t, talk);
    case KEY_ESCAPE:
        t->opened = false;
        return CLI_DONE;
    case 'p':
        return act(t, talk, "PAUSE", "is paused: it accepts jobs and starts none");
    case 'r':
        return act(t, talk, "RESUME", "goes on");
    default:
        snprintf(t->said, sizeof t->said, "that key does nothing here");
        return CLI_DONE;
    }
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Until somebody has had enough, or the engine is gone.
static enum cli_exit watch(struct top *t, struct talk *talk, struct screen *s) {
    bool end = false;
    int64_t looked_ms = now_ms();
    enum cli_exit code = look(t, talk);
    while (code == CLI_DONE && !end) {
        top_draw(t, s);
        if (screen_show(s) < 0)
            return CLI_FAILED;
        int64_t wait_ms = looked_ms + LOOK_MS - now_ms();
        int err = talks_turn(talk->talks, STDIN_FILENO, wait_ms > 0 ? wait_ms : 0);
        if (err < 0)
            return err == MR_ECANCELLED ? CLI_INTERRUPTED : CLI_UNOPENED;
        for (int key; code == CLI_DONE && !end && (key = screen_key(s)) != KEY_NONE;)
            code = press(t, talk, key, &end);
        if (code == CLI_DONE && now_ms() - looked_ms >= LOOK_MS) {
            looked_ms = now_ms();
            code = look(t, talk);
        }
    }
    return code;
}

enum cli_exit top_run(const struct input *in) {
    struct talks *ts;
    struct talk *talk;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return stages_run(in);
    enum cli_exit code = talk_begin(in, TALK_LOOKS, &ts, &talk);
    if (code != CLI_DONE)
        return code;
    struct top t = { .where = ts->address.where };
    struct screen s;
    if (screen_begin(&s) < 0) {
        complain("top: %s", error_text());
        code = CLI_FAILED;
    } else {
        code = watch(&t, talk, &s);
        screen_end(&s);
        if (code == CLI_UNOPENED || code == CLI_FAILED)
            complain("top: %s", error_text());
    }
    mem_free(t.stages);
    talks_close(ts);
    return code;
}
