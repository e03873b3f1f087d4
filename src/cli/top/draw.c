// Draws what top shows: totals, the stages and the keys; or one stage with its past, the progress
// of its jobs, its channels and its workers. It fits 80 by 24 and uses a larger terminal; on a
// smaller one the keys and the stages have priority.
#include "cli/top/top.h"

#include "cli/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum {
    FOOT = 2,
    ROOMY = 6,
    NARROW = 3,
    NAME_LEAST = 12,
    NAME_MOST = 40,
    SPARK = 8,
    SPARK_MOST = 60
};
enum { KEY = 32, JOB = 20, BAR = 10 }; // columns of them

static const char *const order_names[] = { [BY_NAME] = "name",
                                           [BY_WAITING] = "waiting",
                                           [BY_RATE] = "out/s",
                                           [BY_AGE] = "oldest",
                                           [BY_DEAD] = "dead" };

// ---- Sparklines -------------------------------------------------------------------------------

// The latest `width` values, from 0 to the largest of them.
static void put_spark(struct screen *s, const double *values, uint32_t count, uint32_t width) {
    static const char *const steps[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    double most = 0;
    uint32_t shown = count < width ? count : width;
    for (uint32_t i = count - shown; i < count; i++)
        most = values[i] > most ? values[i] : most;
    screen_put(s, STYLE_PLAIN, "%*s", (int)(width - shown), "");
    for (uint32_t i = count - shown; i < count; i++) {
        int step = values[i] > 0 && most < INFINITY ? (int)(values[i] / most * 7 + 0.5) : 0;
        screen_put(s, values[i] > 0 ? STYLE_GOOD : STYLE_DIM, "%s", steps[step]);
    }
}

// Six columns at most: 999.9, 12345, 123.4k, 1.2M.
static const char *number_words(char out[16], double n) {
    if (n >= 1e6)
        snprintf(out, 16, "%.1fM", n / 1e6);
    else if (n >= 1e5)
        snprintf(out, 16, "%.1fk", n / 1e3);
    else if (n >= 1e3 || n == (double)(int64_t)n)
        snprintf(out, 16, "%.0f", n);
    else
        snprintf(out, 16, "%.1f", n);
    return out;
}

static const char *oldest_words(char out[AGE_WORDS], int64_t ms) {
    if (ms < 0)
        snprintf(out, AGE_WORDS, "-");
    else
        age_words(out, (uint64_t)ms);
    return out;
}

static void top_draw_put_number(struct screen *s, enum style style, int width, double n) {
    char words[16];
    screen_put(s, style, "%*s", width, number_words(words, n));
}

// ---- All stages -------------------------------------------------------------------------------

static void draw_sums(const struct top *t, struct screen *s) {
    double waiting = 0, running = 0, dead = 0, rate = 0;
    char words[16];
    for (uint32_t i = 0; i < t->stage_count; i++) {
        waiting += (double)t->stages[i].waiting;
        running += (double)t->stages[i].running;
        dead += (double)t->stages[i].dead;
        rate += t->stages[i].out_per_s;
    }
    screen_put(s, STYLE_PLAIN, "%u stage%s  waiting ", t->stage_count,
               t->stage_count == 1 ? "" : "s");
    screen_put(s, STYLE_BOLD, "%s", number_words(words, waiting));
    screen_put(s, STYLE_PLAIN, "  running ");
    screen_put(s, STYLE_BOLD, "%s", number_words(words, running));
    screen_put(s, STYLE_PLAIN, "  dead ");
    screen_put(s, dead > 0 ? STYLE_BAD : STYLE_BOLD, "%s", number_words(words, dead));
    screen_put(s, STYLE_PLAIN, "  out ");
    screen_put(s, STYLE_BOLD, "%s/s ", number_words(words, rate));
    put_spark(s, t->rates, t->past, 2 * SPARK);
    screen_next(s);
}

static void draw_head(const struct top *t, struct screen *s) {
    bool roomy = s->rows >= ROOMY;
    if (roomy) {
        screen_put(s, STYLE_BOLD, "millrace top");
        screen_put(s, STYLE_DIM, "  %s", t->where);
        screen_next(s);
    }
    if (s->rows >= NARROW)
        draw_sums(t, s);
    if (roomy) {
        screen_put(s, STYLE_DIM, "%s", t->cluster);
        screen_next(s);
    }
}

static int name_width(const struct screen *s) {
    int spare = s->columns - 80;
    int width = 16 + (spare > 0 ? spare / 2 : spare);
    return width < NAME_LEAST ? NAME_LEAST : width > NAME_MOST ? NAME_MOST : width;
}

static void draw_titles(struct screen *s, int width) {
    screen_put(s, STYLE_BOLD, "%-*s %7s %5s %5s %7s %6s %6s %-*s HELD BY", width, "STAGE",
               "WAITING", "RUN", "DEAD", "OLDEST", "IN/S", "OUT/S", SPARK, "PAST");
    screen_next(s);
}

// A name that is too long is cut in its middle, because names often differ at their ends.
static void put_name(struct screen *s, enum style style, const char *name, int width) {
    int size = (int)strlen(name);
    if (size <= width)
        screen_put(s, style, "%-*s", width, name);
    else
        screen_put(s, style, "%.*s…%s", width / 2 - 1, name, name + size - (width - width / 2));
}

static void draw_stage_line(const struct top_stage *st, struct screen *s, int width, bool chosen) {
    char age[AGE_WORDS];
    bool held = st->held[0] && st->waiting + st->delayed + st->parked > 0;
    put_name(s, chosen ? STYLE_CHOSEN : STYLE_PLAIN, st->name, width);
    top_draw_put_number(s, STYLE_PLAIN, 8, (double)st->waiting);
    top_draw_put_number(s, STYLE_PLAIN, 6, (double)st->running);
    top_draw_put_number(s, st->dead ? STYLE_BAD : STYLE_PLAIN, 6, (double)st->dead);
    screen_put(s, STYLE_PLAIN, " %7s", oldest_words(age, st->oldest_ms));
    top_draw_put_number(s, STYLE_PLAIN, 7, st->in_per_s);
    top_draw_put_number(s, STYLE_PLAIN, 7, st->out_per_s);
    screen_put(s, STYLE_PLAIN, " ");
    put_spark(s, st->rates, st->past, SPARK);
    screen_put(s, held ? STYLE_BAD : STYLE_DIM, " %s", st->held[0] ? st->held : "-");
    screen_next(s);
}

static void draw_none(struct screen *s) {
    screen_put(s, STYLE_DIM, "There are no stages yet. A push makes one:  ");
    screen_put(s, STYLE_PLAIN, "millrace push mail hello");
    screen_next(s);
}

// The list scrolls only as far as it must to show the chosen stage.
static void draw_list(struct top *t, struct screen *s) {
    uint32_t place = 0;
    int width = name_width(s);
    draw_titles(s, width);
    uint32_t lines = s->row < s->rows ? (uint32_t)(s->rows - s->row) : 1;
    (void)top_chosen(t, &place);
    if (place < t->first)
        t->first = place;
    if (place >= t->first + lines)
        t->first = place - lines + 1;
    for (uint32_t i = t->first; i < t->stage_count && i < t->first + lines; i++)
        draw_stage_line(&t->stages[i], s, width, i == place);
    if (!t->stage_count)
        draw_none(s);
}

// ---- One stage --------------------------------------------------------------------------------

static void draw_past(struct screen *s, const char *title, const double *values, uint32_t count,
                      const char *unit) {
    double most = 0;
    char words[16];
    int room = s->columns - 32;
    uint32_t width = room < SPARK ? SPARK : room > SPARK_MOST ? SPARK_MOST : (uint32_t)room;
    for (uint32_t i = 0; i < count; i++)
        most = values[i] > most ? values[i] : most;
    screen_put(s, STYLE_PLAIN, "%-8s", title);
    put_spark(s, values, count, width);
    screen_put(s, STYLE_DIM, "  up to %s%s", number_words(words, most), unit);
    screen_next(s);
}

static void draw_figures(const struct top_stage *st, struct screen *s) {
    char p50[AGE_WORDS], p99[AGE_WORDS], age[AGE_WORDS];
    screen_put(s, STYLE_PLAIN,
               "waiting %" PRId64 "  running %" PRId64 "  delayed %" PRId64 "  parked %" PRId64,
               st->waiting, st->running, st->delayed, st->parked);
    screen_put(s, st->dead ? STYLE_BAD : STYLE_PLAIN, "  dead %" PRId64, st->dead);
    screen_next(s);
    screen_put(s, STYLE_PLAIN,
               "done %" PRId64 "  failed attempts %" PRId64 "  oldest %s  waited p50 %s p99 %s",
               st->done, st->failed, oldest_words(age, st->oldest_ms),
               oldest_words(p50, st->wait_p50_ms), oldest_words(p99, st->wait_p99_ms));
    screen_next(s);
}

static void draw_channels(const struct top *t, struct screen *s) {
    char age[AGE_WORDS], parked[AGE_WORDS];
    screen_put(s, STYLE_BOLD, "%-*s %8s %8s  %-11s %8s", KEY, "KEY", "DEPTH", "OLDEST", "STATE",
               "PARKED");
    screen_next(s);
    for (uint32_t i = 0; i < t->channel_count; i++) {
        const struct top_channel *c = &t->channels[i];
        screen_cell(s, STYLE_PLAIN, c->key, KEY);
        screen_put(s, STYLE_PLAIN, " %8" PRId64 " %8s  %-11s %8s", c->depth,
                   oldest_words(age, c->oldest_ms), c->state, oldest_words(parked, c->parked_ms));
        screen_next(s);
    }
    if (!t->channel_count) {
        screen_put(s, STYLE_DIM, "no key has two jobs or more");
        screen_next(s);
    }
}

static void draw_workers(const struct top *t, struct screen *s) {
    char age[AGE_WORDS];
    screen_put(s, STYLE_BOLD, "%-24s %-22s %6s %8s %8s", "WORKER", "ADDRESS", "HOLDS", "ENDED",
               "SINCE");
    screen_next(s);
    for (uint32_t i = 0; i < t->worker_count; i++) {
        const struct top_worker *w = &t->workers[i];
        screen_cell(s, STYLE_PLAIN, w->name[0] ? w->name : "-", 24);
        screen_put(s, STYLE_PLAIN, " %-22.22s %6" PRId64 " %8" PRId64 " %8s", w->address, w->leases,
                   w->ended, oldest_words(age, w->age_ms));
        screen_next(s);
    }
    if (t->worker_all > t->worker_count)
        screen_put(s, STYLE_DIM, "and %u more", t->worker_all - t->worker_count);
    if (!t->worker_all)
        screen_put(s, STYLE_DIM, "no worker takes from this stage");
    screen_next(s);
}

static void put_bar(struct screen *s, double share) {
    int full = share < 0 ? 0 : share > 1 ? BAR : (int)(share * BAR + 0.5);
    for (int i = 0; i < BAR; i++)
        screen_put(s, i < full ? STYLE_GOOD : STYLE_DIM, "%s", i < full ? "█" : "░");
}

static void draw_jobs(const struct top *t, struct screen *s) {
    char age[AGE_WORDS];
    if (!t->job_count)
        return;
    screen_put(s, STYLE_BOLD, "%-*s %8s  PROGRESS", JOB, "RUNNING", "FOR");
    screen_next(s);
    for (uint32_t i = 0; i < t->job_count; i++) {
        const struct top_job *job = &t->jobs[i];
        screen_cell(s, STYLE_PLAIN, job->key, JOB);
        screen_put(s, STYLE_PLAIN, " %8s  ", oldest_words(age, job->running_ms));
        put_bar(s, job->share);
        screen_put(s, STYLE_PLAIN, " %s", job->progress);
        screen_next(s);
    }
    screen_next(s);
}

static void draw_stage(const struct top *t, const struct top_stage *st, struct screen *s) {
    screen_put(s, STYLE_BOLD, "%s", st->name);
    screen_put(s, STYLE_DIM, "  %s", t->where);
    screen_next(s);
    screen_put(s, STYLE_PLAIN, "%s", t->why);
    screen_next(s);
    screen_next(s);
    draw_figures(st, s);
    draw_past(s, "out/s", st->rates, st->past, "/s");
    draw_past(s, "waiting", st->depths, st->past, "");
    screen_next(s);
    draw_jobs(t, s);
    draw_channels(t, s);
    screen_next(s);
    draw_workers(t, s);
}

// ---- The whole picture
// --------------------------------------------------------------------------------

static void put_key(struct screen *s, const char *key, const char *what) {
    screen_put(s, STYLE_BOLD, "%s", key);
    screen_put(s, STYLE_DIM, " %s  ", what);
}

static void draw_keys(const struct top *t, struct screen *s) {
    char sort[32];
    snprintf(sort, sizeof sort, "sort: %s", order_names[t->order]);
    put_key(s, "↑↓", "choose");
    if (t->opened) {
        put_key(s, "Esc", "back");
    } else {
        put_key(s, "Enter", "open");
        put_key(s, "s", sort);
    }
    put_key(s, "p", "pause");
    put_key(s, "r", "resume");
    put_key(s, "q", "quit");
}

void top_draw(struct top *t, struct screen *s) {
    const struct top_stage *st = top_chosen(t, NULL);
    screen_start(s, FOOT);
    if (t->opened && st) {
        draw_stage(t, st, s);
    } else {
        draw_head(t, s);
        draw_list(t, s);
    }
    screen_foot(s);
    if (s->foot == FOOT) {
        screen_put(s, t->trouble[0] ? STYLE_BAD : STYLE_PLAIN, "%s",
                   t->trouble[0] ? t->trouble : t->message);
        screen_next(s);
    }
    draw_keys(t, s);
}
