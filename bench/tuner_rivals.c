// The tuner beside its rivals (rivals.h): in the zoo, and on random curves (curves.h) that it was
// not made with. Each rival runs three times: between the levels it was published with, and from
// level 1 and from the number of processors between 1 and 4096.
//
// Columns, of the second half of the time unless said otherwise:
//   share    of the best level's throughput: mean, what nine in ten curves exceed, worst
//   level    as times of the lowest level with 97 % of the best throughput: geometric mean over the
//            curves, and what nine in ten stay below
//   whole    share from the first job on, mean
//   there    seconds until 95 % were reached for good, median; and the part of the curves on which
//            that never happened, in the first phase of those that change
//   worth    mean of ln share − 0.03 ln level: what the tuner seeks
#include "bench/tuner_rivals.h"

#include "bench/curves.h"
#include "bench/measure.h"
#include "bench/rivals.h"
#include "bench/santa.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    ZOO_PROCESSORS = 8,     // where the zoo does not say
    ZOO_SECONDS_LEAST = 20, // windows of a second should not decide
    CONTESTANTS = 7 + 3 * RIVAL_KINDS,
    THREADS = 2,
};

#define THERE 0.95
#define PRICE 0.03

enum role { PROBE_PROCESSORS, PROBE_1, SANTA, PROCESSORS, TWICE, LOAD, RIVAL };

struct contestant {
    char name[48];
    enum role role;
    enum rival_kind kind;
    enum { PUBLISHED, FROM_1, FROM_PROCESSORS } bounds;
};

// What a contestant did with a workload.
struct result {
    double share, times, whole, there_s;
};

struct contest {
    const struct zoo *workloads;
    uint32_t count;
    uint64_t seed;
    struct contestant contestants[CONTESTANTS];
    uint32_t contestant_count;
    struct result *results; // by contestant, then workload
    atomic_uint next;       // workload that no thread has taken yet
};

// ---- Contestants ------------------------------------------------------------------------------

static void enter(struct contest *c, const char *name, enum role role) {
    assert(c->contestant_count < CONTESTANTS);
    struct contestant *e = &c->contestants[c->contestant_count++];
    *e = (struct contestant){ .role = role };
    snprintf(e->name, sizeof e->name, "%s", name);
}

static void enter_all(struct contest *c) {
    enter(c, "Millrace, from the processors", PROBE_PROCESSORS);
    enter(c, "Millrace, from 1", PROBE_1);
    enter(c, "santa", SANTA);
    for (int kind = 0; kind < RIVAL_KINDS; kind++)
        for (int bounds = PUBLISHED; bounds <= FROM_PROCESSORS; bounds++) {
            static const char *const how[] = { "as published", "from 1", "from the processors" };
            char name[48];
            snprintf(name, sizeof name, "%s, %s", rival_name(kind), how[bounds]);
            enter(c, name, RIVAL);
            c->contestants[c->contestant_count - 1].kind = kind;
            c->contestants[c->contestant_count - 1].bounds = bounds;
        }
    enter(c, "the number of processors", PROCESSORS);
    enter(c, "twice that", TWICE);
    enter(c, "until they are busy (--load)", LOAD);
}

struct any_tuner {
    struct tuner tuner;
    struct santa santa;
    struct rival rival;
};

static struct zoo_tuner library_tuner(struct any_tuner *t, const struct zoo *z, uint32_t first,
                                      enum tuner_kind kind) {
    tuner_init(&t->tuner, &(struct tuner_options){ .kind = kind, .first = first, .most = z->most });
    return zoo_tuner(&t->tuner);
}

static struct zoo_tuner tuner_of(struct any_tuner *t, const struct contestant *c,
                                 const struct zoo *z, uint64_t seed) {
    uint32_t processors = z->processors ? z->processors : ZOO_PROCESSORS;
    struct rival_bounds bounds = { c->bounds == FROM_1 ? 1 : processors, 1, z->most };
    switch (c->role) {
    case PROBE_PROCESSORS:
        return library_tuner(t, z, processors, TUNER_PROBE);
    case PROBE_1:
        return library_tuner(t, z, 1, TUNER_PROBE);
    case PROCESSORS:
        return library_tuner(t, z, processors, TUNER_FIXED);
    case TWICE:
        return library_tuner(t, z, 2 * processors, TUNER_FIXED);
    case LOAD:
        return library_tuner(t, z, z->loaded ? z->loaded : z->most, TUNER_FIXED);
    case SANTA:
        santa_init(&t->santa, .1, .1, seed, z->most);
        return santa_tuner(&t->santa);
    case RIVAL:
        break;
    }
    if (c->bounds == PUBLISHED)
        bounds = rival_published(c->kind, processors);
    bounds.most = bounds.most < z->most ? bounds.most : z->most;
    rival_init(&t->rival, c->kind, bounds, seed);
    return rival_tuner(&t->rival);
}

// ---- Running ----------------------------------------------------------------------------------

static struct result run_one(const struct contestant *c, const struct zoo *z, uint64_t seed) {
    static _Thread_local struct any_tuner tuner;
    struct zoo_run run;
    struct result r = { .there_s = INFINITY };
    double half_s = z->seconds / 2, completed;
    zoo_run(z, tuner_of(&tuner, c, z, seed), seed, &run);
    r.share = zoo_share(&run, half_s, z->seconds);
    r.times = zoo_times(&run, half_s, z->seconds);
    r.whole = zoo_share(&run, 0, z->seconds);
    zoo_converged(&run, 0, z->seconds / z->phases, THERE, &r.there_s, &completed);
    zoo_run_free(&run);
    return r;
}

static void *run_some(void *contest) {
    struct contest *c = contest;
    for (uint32_t w; (w = atomic_fetch_add(&c->next, 1)) < c->count;)
        for (uint32_t i = 0; i < c->contestant_count; i++)
            c->results[i * c->count + w] =
                run_one(&c->contestants[i], &c->workloads[w], c->seed + w);
    return NULL;
}

static void run_all(struct contest *c) {
    pthread_t threads[THREADS];
    c->results = calloc((size_t)c->contestant_count * c->count, sizeof *c->results);
    assert(c->results);
    for (int i = 0; i < THREADS; i++)
        must(-pthread_create(&threads[i], NULL, run_some, c), "thread", "not created");
    for (int i = 0; i < THREADS; i++)
        must(-pthread_join(threads[i], NULL), "thread", "not joined");
}

// ---- The table --------------------------------------------------------------------------------

struct summary {
    double share, share_tenth, share_worst, times, times_tenth, whole, there_s, never, worth;
};

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct summary summarise(const struct contest *c, uint32_t contestant) {
    const struct result *r = &c->results[contestant * c->count];
    struct summary s = { 0 };
    double *shares = calloc(3 * (size_t)c->count, sizeof *shares);
    assert(shares);
    double *times = shares + c->count, *there = times + c->count;
    for (uint32_t w = 0; w < c->count; w++) {
        shares[w] = r[w].share;
        times[w] = r[w].times;
        there[w] = r[w].there_s;
        s.share += r[w].share / c->count;
        s.whole += r[w].whole / c->count;
        s.times += log(r[w].times) / c->count;
        s.worth += (log(r[w].share) - PRICE * log(r[w].times)) / c->count;
        s.never += isinf(r[w].there_s) ? 1.0 / c->count : 0;
    }
    qsort(shares, c->count, sizeof *shares, by_size);
    qsort(times, c->count, sizeof *times, by_size);
    qsort(there, c->count, sizeof *there, by_size);
    s.times = exp(s.times);
    s.share_worst = shares[0];
    s.share_tenth = shares[c->count / 10];
    s.times_tenth = times[(c->count - 1) * 9 / 10];
    s.there_s = there[c->count / 2];
    free(shares);
    return s;
}

static void print_table(const struct contest *c, const char *title) {
    printf("%s\n%-36s %-20s  %-13s %6s  %-17s %7s\n", title, "", "share, 10 %, worst",
           "level (90 %)", "whole", "there (never)", "worth");
    for (uint32_t i = 0; i < c->contestant_count; i++) {
        struct summary s = summarise(c, i);
        printf("%-36s %.3f  %.3f  %.3f  %6.2f (%5.1f)  %.3f  %7.1f s (%3.0f %%) %8.3f\n",
               c->contestants[i].name, s.share, s.share_tenth, s.share_worst, s.times,
               s.times_tenth, s.whole, s.there_s, 100 * s.never, s.worth);
    }
}

// ---- The plot ---------------------------------------------------------------------------------

enum { WIDTH = 900, HEIGHT = 520, LEFT = 60, RIGHT = 20, TOP = 40, BOTTOM = 50 };

#define TIMES_LEAST 0.1
#define TIMES_MOST 100.0

static double place_x(double times) {
    double part = log(times / TIMES_LEAST) / log(TIMES_MOST / TIMES_LEAST);
    return LEFT + fmin(fmax(part, 0), 1) * (WIDTH - LEFT - RIGHT);
}

static double place_y(double share) {
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(FILE *f) {
    for (int i = 0; i <= 10; i += 2)
        fprintf(f,
                "<path stroke=\"#ddd\" d=\"M%d %.1fH%d\"/>"
                "<text x=\"%d\" y=\"%.1f\">%.1f</text>\n",
                LEFT, place_y(i / 10.0), WIDTH - RIGHT, LEFT - 28, place_y(i / 10.0) + 4, i / 10.0);
    for (double times = TIMES_LEAST; times <= TIMES_MOST * 1.01; times *= 10)
        fprintf(f, "<text x=\"%.1f\" y=\"%d\">%g</text>\n", place_x(times), HEIGHT - BOTTOM + 18,
                times);
    fprintf(
        f,
        "<path stroke=\"#bbb\" d=\"M%.1f %dV%d\"/><text x=\"%d\" y=\"%d\">level, as times of "
        "the lowest with 97 %% of the best throughput</text>\n"
        "<text x=\"%d\" y=\"24\">share of the best throughput: mean of the curves; better is up, "
        "then left</text>\n",
        place_x(1), TOP, HEIGHT - BOTTOM, LEFT + 240, HEIGHT - 10, LEFT);
}

static void draw_plot(const struct contest *c, const char *path) {
    FILE *f = fopen(path, "w");
    must(f ? 0 : -1, path, strerror(errno));
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\">\n"
            "<style>svg{font:12px sans-serif;fill:#333}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH);
    draw_axes(f);
    for (uint32_t i = 0; i < c->contestant_count; i++) {
        const struct contestant *one = &c->contestants[i];
        if (one->role == RIVAL && one->bounds == FROM_1)
            continue; // so that names do not cover each other
        struct summary s = summarise(c, i);
        bool ours = one->role == PROBE_PROCESSORS || one->role == PROBE_1;
        double x = place_x(s.times), y = place_y(s.share);
        fprintf(f,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"/>"
                "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                x, y, ours ? "#e0895f" : "#2f7ab8", x + 8, y + 4, one->name);
    }
    fprintf(f, "</svg>\n");
    must(ferror(f) || fclose(f) != 0 ? -1 : 0, path, strerror(errno));
}

// ---- The contests -----------------------------------------------------------------------------

static void run_zoo(struct contest *c) {
    uint32_t count = 0;
    while (zoo_all[count].name)
        count++;
    struct zoo *workloads = calloc(count, sizeof *workloads);
    assert(workloads);
    for (uint32_t i = 0; i < count; i++) {
        if (zoo_all[i].rate > 0)
            continue; // there the best level is not what counts
        workloads[c->count] = zoo_all[i];
        workloads[c->count].seconds = fmax(zoo_all[i].seconds, ZOO_SECONDS_LEAST);
        c->count++;
    }
    c->workloads = workloads;
    enter_all(c);
    run_all(c);
}

static void run_curves(struct contest *c, uint32_t curves) {
    struct zoo *workloads = calloc(curves, sizeof *workloads);
    assert(workloads);
    for (uint32_t i = 0; i < curves; i++)
        curve_draw(c->seed, i, &workloads[i]);
    c->workloads = workloads;
    c->count = curves;
    enter_all(c);
    run_all(c);
}

static void contest_free(struct contest *c) {
    free((void *)c->workloads);
    free(c->results);
}

int tuner_rivals(uint32_t curves, uint64_t seed, const char *plot) {
    char title[80];
    struct contest zoo = { .seed = seed }, drawn = { .seed = seed };
    run_zoo(&zoo);
    snprintf(title, sizeof title, "the zoo, %u workloads", zoo.count);
    print_table(&zoo, title);
    run_curves(&drawn, curves);
    snprintf(title, sizeof title, "%u random curves of seed %" PRIu64, curves, seed);
    print_table(&drawn, title);
    if (plot)
        draw_plot(&drawn, plot);
    contest_free(&zoo);
    contest_free(&drawn);
    return 0;
}
