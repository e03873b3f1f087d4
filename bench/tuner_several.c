// Several tuners on one simulated machine. All figures are of the second half, and means of the
// seeds: share of the machine's best throughput, as known from the levels, that of the worst seed
// beside it; levels of all together as times of the lowest with 97 % of the best; then each tuner's
// level and completions per second.
//
// Share and times are not known where one tuner's jobs wait elsewhere: there the rates count.
#include "bench/tuner_several.h"

#include "bench/zoo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { FIRST_LEVEL = 2 };

#define SECONDS 300
#define MOST 1024
#define FOREVER 1e9

struct several {
    struct zoo zoo;
    uint32_t least, most; // tuners
};

// Of three tuners the second is the one that is different.
//
// Jobs of `s` seconds on average, on a machine with this curve.
#define ALIKE(name, s, sigma, ...)                                                                 \
    { name, { __VA_ARGS__ }, 1, s, sigma, SECONDS, MOST, .rate = 0 }
// Jobs that compute, on eight processors.
#define COMPUTING(name, ...)                                                                       \
    { name, { { ZOO_KNEE, 8, .004 } }, 1, .010, .5, SECONDS, MOST, __VA_ARGS__ }
// Jobs that contend, so that 35 at once are best.
#define CONTENDED(name, ...)                                                                       \
    { name, { { ZOO_USL, .03, .0008 } }, 1, .005, 1, SECONDS, MOST, __VA_ARGS__ }

static const struct several all[] = {
    { COMPUTING("knee 8", .rate = 0), 2, 3 },
    { ALIKE("plateau from 8", .010, .5, { ZOO_KNEE, 8, 0 }), 2, 3 },
    { CONTENDED("contention, peak 35", .rate = 0), 2, 3 },
    { ALIKE("contention, peak 12", .020, .7, { ZOO_USL, .1, .006 }), 2, 3 },
    { ALIKE("cliff at 64", .020, .7, { ZOO_CLIFF, 64, 1 }), 2, 3 },
    { ALIKE("lock, 41", .020, 1, { ZOO_LOCK, .0005, 0 }), 2, 3 },
    { ALIKE("i/o, knee 300", .050, .5, { ZOO_KNEE, 300, 0 }), 2, 3 },
    { COMPUTING("second: 20 times as long", .second_times = 20), 2, 2 },
    { COMPUTING("second: waits 50 ms, then 0.2", .second_times = .02, .second_waits_s = .05), 2,
      2 },
    { COMPUTING("second: waits 50 ms, then 5", .second_times = .5, .second_waits_s = .05), 2, 2 },
    { COMPUTING("second: 10 s in 20", .second_on_s = 10, .second_off_s = 10), 2, 2 },
    { COMPUTING("second: idle after 30 s", .second_on_s = 30, .second_off_s = FOREVER), 2, 3 },
    { CONTENDED("contention, second: idle", .second_on_s = 30, .second_off_s = FOREVER), 2, 3 },
};

// A tuner whose completions in the second half are counted.
struct counted {
    struct tuner tuner;
    uint64_t from_ns, count;
};

static uint32_t counted_level(const void *tuner) {
    return tuner_level(&((const struct counted *)tuner)->tuner);
}

static void counted_feed(void *tuner, const struct tuner_event *e, uint64_t waited_ns) {
    struct counted *c = tuner;
    (void)waited_ns;
    c->count += e->kind == TUNER_COMPLETED && e->now_ns >= c->from_ns;
    tuner_feed(&c->tuner, e);
}

struct sums {
    double share, share_least, times;
    double level[ZOO_TUNERS], rate[ZOO_TUNERS];
};

static void run_together(const struct zoo *z, uint32_t tuners, uint64_t seed, struct sums *sums) {
    struct counted counted[ZOO_TUNERS];
    struct zoo_tuner given[ZOO_TUNERS] = { 0 };
    struct zoo_run runs[ZOO_TUNERS] = { 0 };
    double half_s = z->seconds / 2;
    for (uint32_t i = 0; i < tuners; i++) {
        counted[i] = (struct counted){ .from_ns = (uint64_t)(half_s * 1e9) };
        tuner_init(&counted[i].tuner,
                   &(struct tuner_options){ .first = FIRST_LEVEL, .most = z->most });
        given[i] = (struct zoo_tuner){ &counted[i], counted_level, counted_feed, NULL };
    }
    zoo_run_shared(z, given, tuners, seed, runs);
    double share = zoo_share(&runs[0], half_s, z->seconds);
    sums->share += share;
    sums->share_least = fmin(sums->share_least, share);
    sums->times += zoo_times(&runs[0], half_s, z->seconds);
    for (uint32_t i = 0; i < tuners; i++) {
        sums->level[i] += zoo_level(&runs[i], half_s, z->seconds);
        sums->rate[i] += (double)counted[i].count / half_s;
        zoo_run_free(&runs[i]);
    }
}

static void several_row(const struct zoo *z, uint32_t tuners, uint64_t seeds, uint64_t first) {
    struct sums sums = { .share_least = 1 };
    for (uint64_t seed = first; seed < first + seeds; seed++)
        run_together(z, tuners, seed, &sums);
    double n = (double)seeds;
    printf("%-30s %" PRIu32 "  ", z->name, tuners);
    if (z->second_waits_s > 0 || z->curves[0].kind == ZOO_LOCK)
        printf("%13s  %5s", "", "");
    else
        printf("%.3f (%.3f)  %5.1f", sums.share / n, sums.share_least, sums.times / n);
    for (uint32_t i = 0; i < tuners; i++)
        printf("  %6.1f %6.0f/s", sums.level[i] / n, sums.rate[i] / n);
    printf("\n");
    fflush(stdout);
}

int tuner_several(uint64_t seeds, uint64_t first) {
    printf("%-30s %s  %-13s  %5s  %s\n", "machine", "n", "share (least)", "times",
           "level and completions of each");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (uint32_t tuners = all[i].least; tuners <= all[i].most; tuners++)
            several_row(&all[i].zoo, tuners, seeds, first);
    return 0;
}
