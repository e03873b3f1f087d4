// The same as pictures: a file for each way, and one that lays the ways over each other.
#include "charts.h"

#include "tools/plot.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

struct means {
    double at_s, waiting_s, running_s;
};

// How far the axes go, for all ways.
struct scale {
    double time_s, letters, total_s;
};

// Of the batches that have letters. Returns how many.
static int means_of(const struct way *w, const struct calendar *c, struct means out[BATCHES_MOST]) {
    int count = 0;
    for (int batch = 0; batch < c->batches; batch++) {
        int from = c->first[batch], to = c->first[batch + 1];
        struct means m = { 0 };
        for (int i = from; i < to; i++) {
            const struct letter *l = &w->letters[i];
            m.at_s = l->arrived_s;
            m.waiting_s += (l->started_s - l->arrived_s) / (to - from);
            m.running_s += (l->ended_s - l->started_s) / (to - from);
        }
        if (to > from)
            out[count++] = m;
    }
    return count;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static struct scale scale_of(const struct way ways[WAYS], const struct calendar *c) {
    struct scale s = { 0 };
    for (int i = 0; i < WAYS; i++) {
        const struct way *w = &ways[i];
        struct means m[BATCHES_MOST];
        s.time_s = larger(s.time_s, w->wall_s);
        for (int k = 0; k < w->sample_count; k++)
            s.letters = larger(s.letters, w->samples[k].waiting + w->samples[k].running);
        for (int k = means_of(w, c, m) - 1; k >= 0; k--)
            s.total_s = larger(s.total_s, m[k].waiting_s + m[k].running_s);
    }
    return s;
}

// ---- One way ----------------------------------------------------------------------------------

static void draw_letters(struct plot *p, const struct way *w, const struct scale *s) {
    plot_panel(p, "letters in the system, those in flight above those waiting");
    plot_reach(p, s->time_s, s->letters);
    plot_line(p, "in flight", PLOT_STEPS | PLOT_AREA);
    for (int i = 0; i < w->sample_count; i++)
        plot_point(p, w->samples[i].at_s, w->samples[i].waiting + w->samples[i].running);
    plot_line(p, "waiting", PLOT_STEPS | PLOT_AREA);
    for (int i = 0; i < w->sample_count; i++)
        plot_point(p, w->samples[i].at_s, w->samples[i].waiting);
    if (w->level > s->letters)
        return; // as good as no limit
    plot_line(p, "level", PLOT_STEPS);
    for (int i = 0; i < w->sample_count; i++)
        plot_point(p, w->samples[i].at_s, w->samples[i].level);
}

static void draw_times(struct plot *p, const struct way *w, const struct calendar *c,
                       const struct scale *s) {
    struct means m[BATCHES_MOST];
    int count = means_of(w, c, m);
    plot_panel(p, "seconds in the system, mean of a batch, at its arrival");
    plot_reach(p, s->time_s, s->total_s);
    plot_line(p, "running", PLOT_AREA);
    for (int i = 0; i < count; i++)
        plot_point(p, m[i].at_s, m[i].waiting_s + m[i].running_s);
    plot_line(p, "waiting", PLOT_AREA);
    for (int i = 0; i < count; i++)
        plot_point(p, m[i].at_s, m[i].waiting_s);
}

static int save(struct plot *p, const char *dir, const char *name) {
    char path[4096];
    int err = -1;
    if (snprintf(path, sizeof path, "%s/%s.svg", dir, name) < (int)sizeof path)
        err = plot_write(p, path);
    else
        errno = ENAMETOOLONG;
    plot_end(p);
    return err;
}

static int write_way(const struct way *w, const struct calendar *c, const struct scale *s,
                     const char *dir) {
    struct plot p;
    char title[PLOT_TEXT];
    snprintf(title, sizeof title, "%s: %s", w->name, w->means);
    plot_begin(&p, title, "seconds");
    draw_letters(&p, w, s);
    draw_times(&p, w, c, s);
    return save(&p, dir, w->name);
}

// ---- All ways ---------------------------------------------------------------------------------

static int write_ways(const struct way ways[WAYS], const struct calendar *c, const char *dir) {
    struct plot p;
    struct means m[BATCHES_MOST];
    plot_begin(&p, "Santa's mailbox, three ways", "seconds");
    plot_panel(&p, "letters waiting in the queue");
    for (int i = 0; i < WAYS; i++) {
        plot_line(&p, ways[i].name, PLOT_STEPS);
        for (int k = 0; k < ways[i].sample_count; k++)
            plot_point(&p, ways[i].samples[k].at_s, ways[i].samples[k].waiting);
    }
    plot_panel(&p, "seconds in the system, mean of a batch, at its arrival");
    for (int i = 0; i < WAYS; i++) {
        plot_line(&p, ways[i].name, 0);
        for (int k = 0, count = means_of(&ways[i], c, m); k < count; k++)
            plot_point(&p, m[k].at_s, m[k].waiting_s + m[k].running_s);
    }
    return save(&p, dir, "ways");
}

int charts_write(const struct way ways[WAYS], const struct calendar *c, const char *dir) {
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return -1;
    struct scale s = scale_of(ways, c);
    for (int i = 0; i < WAYS; i++)
        if (write_way(&ways[i], c, &s, dir) < 0)
            return -1;
    return write_ways(ways, c, dir);
}
