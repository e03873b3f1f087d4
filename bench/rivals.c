// The rivals, each from its published description. N is the limit, S a run time.
#include "bench/rivals.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NS 1e-9
#define TWO_PI 6.283185307179586

static double clamp(double x, double low, double high) {
    return fmin(fmax(x, low), high);
}

static double random_unit(struct rival *r) { // 0 ≤ … < 1
    uint64_t z = r->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static void set_limit(struct rival *r, double limit) {
    r->limit = clamp(limit, r->bounds.least, r->bounds.most);
    r->level = (uint32_t)r->limit;
}

// Steps of the Vegas family grow with the level: max(1, ⌊log10 N⌋).
static double log_step(double limit) {
    return fmax(1, floor(log10(limit)));
}

// ---- Windows of run times ---------------------------------------------------------------------

static void window_begin(struct rival *r, uint64_t now_ns) {
    r->window.seen = 0;
    r->window.sum = 0;
    r->window.in_flight = 0;
    r->window.began_ns = now_ns;
}

static void window_add(struct rival *r, double ran_s, uint32_t in_flight) {
    struct run_times *w = &r->window;
    uint64_t at = w->seen++;
    if (at >= RIVAL_SAMPLES)
        at = (uint64_t)(random_unit(r) * (double)w->seen);
    if (at < RIVAL_SAMPLES)
        w->kept[at] = ran_s;
    w->sum += ran_s;
    w->in_flight = in_flight > w->in_flight ? in_flight : w->in_flight;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, size_t count, double share) {
    qsort(values, count, sizeof *values, by_size);
    return values[(size_t)(share * (double)(count - 1) + .5)];
}

static double window_quantile(struct rival *r, double share) {
    struct run_times *w = &r->window;
    return quantile(w->kept, w->seen < RIVAL_SAMPLES ? w->seen : RIVAL_SAMPLES, share);
}

// ---- .NET's thread pool -----------------------------------------------------------------------
// A square wave is added to the level: two samples higher, two lower. The throughput at the wave's
// frequency says whether more threads bring more; what it has at the neighbouring frequencies is
// noise. The level moves by how much throughput follows the wave beyond 15 % of it, the faster the
// clearer it stands out of the noise; in noise the wave becomes larger. The published one also
// stops rising while the processors are busy, and adds threads when nothing ends at all.

#define HILL_TARGET 0.15        // of the level's change, in throughput
#define HILL_SIGNAL 3.0         // to noise
#define HILL_CHANGE 4.0         // threads a second
#define HILL_CHANGE_SAMPLE 20.0 // at most, for a sample
#define HILL_WAVE_MOST 20.0
#define HILL_SMOOTHING 0.01
#define HILL_SAMPLE_ERROR 0.15
#define HILL_INTERVAL_LEAST 0.010
#define HILL_INTERVAL_MOST 0.200

static double complex hill_wave(const struct hill *h, const double *ring, uint64_t count,
                                double period) {
    double complex sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        double value = ring[(h->samples - count + i) % HILL_HISTORY];
        sum += value * cexp(-I * TWO_PI * (double)i / period);
    }
    return sum / (double)count;
}

static double hill_mean(const struct hill *h, const double *ring, uint64_t count) {
    return creal(hill_wave(h, ring, count, INFINITY));
}

// The real part of how throughput follows the wave, and the move that is due to it; 0: not known.
static double hill_move(struct hill *h, double sample_s, double *out_follows) {
    uint64_t known = h->samples - 1 < HILL_HISTORY ? h->samples - 1 : HILL_HISTORY;
    uint64_t count = known / HILL_PERIOD * HILL_PERIOD;
    double rate = hill_mean(h, h->rates, count), level = hill_mean(h, h->levels, count);
    *out_follows = 0;
    if (count <= HILL_PERIOD || rate <= 0 || level <= 0)
        return 0;
    double waves = (double)count / HILL_PERIOD;
    double complex t = hill_wave(h, h->rates, count, HILL_PERIOD) / rate;
    double complex n = hill_wave(h, h->levels, count, HILL_PERIOD) / level;
    double above = cabs(hill_wave(h, h->rates, count, (double)count / (waves + 1))) / rate;
    double below = cabs(hill_wave(h, h->rates, count, (double)count / (waves - 1))) / rate;
    double noise = fmax(above, below);
    h->noise = h->noise == 0 ? noise : h->noise + HILL_SMOOTHING * (noise - h->noise);
    if (cabs(n) == 0)
        return 0;
    *out_follows = creal((t - HILL_TARGET * n) / n);
    double worst = fmax(noise, h->noise);
    double sure = worst > 0 ? cabs(n) / worst / HILL_SIGNAL : 1;
    double move = clamp(*out_follows, -1, 1) * fmin(1, sure);
    return fmin(copysign(move * move, move) * HILL_CHANGE * sample_s, HILL_CHANGE_SAMPLE);
}

static void hill_adjust(struct rival *r, double sample_s) {
    struct hill *h = &r->hill;
    double follows, move = hill_move(h, sample_s, &follows);
    uint32_t old = r->level;
    h->amplitude = clamp(floor(.5 + h->middle * h->noise * HILL_SIGNAL * 2), 1, HILL_WAVE_MOST);
    h->middle = clamp(h->middle + move, r->bounds.least,
                      fmax(r->bounds.least, r->bounds.most - h->amplitude));
    set_limit(r, h->middle + h->amplitude * (double)(h->samples / (HILL_PERIOD / 2) % 2));
    if (r->level != old)
        h->interval_s =
            HILL_INTERVAL_LEAST + (HILL_INTERVAL_MOST - HILL_INTERVAL_LEAST) * random_unit(r);
    else if (follows < 0 && r->level == r->bounds.least)
        h->interval_s = clamp(h->interval_s * 10, HILL_INTERVAL_LEAST, HILL_INTERVAL_MOST * 10);
}

static void hill_completed(struct rival *r, uint64_t now_ns) {
    struct hill *h = &r->hill;
    h->completed++;
    if (now_ns < h->ends_ns)
        return;
    if (h->samples > 0 && (r->level - 1.0) / (double)h->completed >= HILL_SAMPLE_ERROR) {
        h->ends_ns = now_ns + (uint64_t)(HILL_INTERVAL_LEAST / NS);
        return;
    }
    double sample_s = (double)(now_ns - h->began_ns) * NS;
    h->rates[h->samples % HILL_HISTORY] = (double)h->completed / sample_s;
    h->levels[h->samples % HILL_HISTORY] = r->level;
    h->samples++;
    hill_adjust(r, sample_s);
    h->completed = 0;
    h->began_ns = now_ns;
    h->ends_ns = now_ns + (uint64_t)(h->interval_s / NS);
}

// ---- Gradient2 --------------------------------------------------------------------------------
// The limit shrinks by as much as the run time of the last second is above 1.5 times its long-term
// mean, and has room for four more at every update.

#define GRADIENT_WINDOW_S 1.0
#define GRADIENT_SAMPLES 10
#define GRADIENT_WARMUP 10
#define GRADIENT_MEMORY (2.0 / 601)
#define GRADIENT_TOLERANCE 1.5
#define GRADIENT_ROOM 4.0
#define GRADIENT_SMOOTHING 0.2

static void gradient_update(struct rival *r, double recent_s, uint32_t in_flight) {
    struct gradient *g = &r->gradient;
    g->windows++;
    double part = g->windows <= GRADIENT_WARMUP ? 1.0 / g->windows : GRADIENT_MEMORY;
    g->long_s += part * (recent_s - g->long_s);
    if (g->long_s > 2 * recent_s)
        g->long_s *= .95;
    if (in_flight < r->limit / 2)
        return;
    double gradient = clamp(GRADIENT_TOLERANCE * g->long_s / recent_s, .5, 1);
    double aim = r->limit * gradient + GRADIENT_ROOM;
    set_limit(r, r->limit + GRADIENT_SMOOTHING * (aim - r->limit));
}

static void gradient_completed(struct rival *r, uint64_t now_ns, uint32_t in_flight, double ran_s) {
    struct run_times *w = &r->window;
    window_add(r, ran_s, in_flight);
    if ((double)(now_ns - w->began_ns) * NS < GRADIENT_WINDOW_S || w->seen < GRADIENT_SAMPLES)
        return;
    gradient_update(r, w->sum / (double)w->seen, w->in_flight);
    window_begin(r, now_ns);
}

// ---- Vegas ------------------------------------------------------------------------------------
// As TCP Vegas: of N in flight, N(1 − R/S) wait in a queue, if R is the run time without one. R is
// the least that was seen, and forgotten now and then. A short queue: more; a long one: fewer.

#define VEGAS_FORGET 30.0

static void vegas_completed(struct rival *r, uint32_t in_flight, double ran_s) {
    struct vegas *v = &r->vegas;
    if (v->jitter == 0)
        v->jitter = .5 + .5 * random_unit(r);
    if ((double)++v->count >= VEGAS_FORGET * r->limit * v->jitter) {
        v->count = 0;
        v->jitter = 0;
        v->least_s = ran_s;
        return;
    }
    if (v->least_s == 0 || ran_s < v->least_s) {
        v->least_s = ran_s;
        return;
    }
    if (2.0 * in_flight < r->limit)
        return;
    double queue = ceil(r->limit * (1 - v->least_s / ran_s)), step = log_step(r->limit);
    if (queue <= step)
        set_limit(r, r->limit + 6 * step);
    else if (queue < 3 * step)
        set_limit(r, r->limit + step);
    else if (queue > 6 * step)
        set_limit(r, r->limit - step);
}

// ---- Cinnamon ---------------------------------------------------------------------------------
// As Vegas, with the smoothed 90th percentile of windows instead of single run times and their
// slow mean instead of the least. Where throughput does not rise with the number in flight but run
// times do, the machine is overloaded, too.

#define CINNAMON_WINDOW_LEAST_S 1.0
#define CINNAMON_WINDOW_MOST_S 30.0
#define CINNAMON_SAMPLES 50
#define CINNAMON_RECENT (2.0 / 6)
#define CINNAMON_BASELINE (2.0 / 11)
#define CINNAMON_ROOM 5.0 // times what is in flight

static double mean_of(const double *values, uint64_t count) {
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

static double covariance(const double *a, const double *b, uint64_t count) {
    double mean_a = mean_of(a, count), mean_b = mean_of(b, count), sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (a[i] - mean_a) * (b[i] - mean_b);
    return sum / (double)count;
}

static double correlation(const double *a, const double *b, uint64_t count) {
    double spread = sqrt(covariance(a, a, count) * covariance(b, b, count));
    return spread > 0 ? covariance(a, b, count) / spread : 0;
}

static bool cinnamon_overloaded(const struct cinnamon *c) {
    uint64_t count = c->windows < CINNAMON_WINDOWS ? c->windows : CINNAMON_WINDOWS;
    double rises = correlation(c->in_flight, c->rates, count);
    double slows = correlation(c->in_flight, c->times, count);
    double varies = sqrt(covariance(c->rates, c->rates, count)) / mean_of(c->rates, count);
    return rises < 0 || (rises < .3 && slows > .5) || (varies < .2 && slows > .5);
}

static void cinnamon_update(struct rival *r, double high_s, uint32_t in_flight) {
    struct cinnamon *c = &r->cinnamon;
    double sorted[CINNAMON_MEDIAN];
    c->medians[c->windows % CINNAMON_MEDIAN] = high_s;
    uint64_t some = c->windows < CINNAMON_MEDIAN ? c->windows + 1 : CINNAMON_MEDIAN;
    memcpy(sorted, c->medians, some * sizeof *sorted);
    double middle_s = quantile(sorted, some, .5);
    c->recent_s =
        c->windows == 0 ? middle_s : c->recent_s + CINNAMON_RECENT * (middle_s - c->recent_s);
    c->baseline_s = c->windows == 0
                        ? c->recent_s
                        : c->baseline_s + CINNAMON_BASELINE * (c->recent_s - c->baseline_s);
    uint64_t at = c->windows++ % CINNAMON_WINDOWS;
    c->in_flight[at] = in_flight;
    c->times[at] = c->recent_s;
    c->rates[at] = in_flight / c->recent_s;
    double queue = ceil(r->limit * (1 - c->baseline_s / c->recent_s)), step = log_step(r->limit);
    bool full = in_flight >= r->level;
    if (queue > 6 * step || (full && cinnamon_overloaded(c)))
        set_limit(r, r->limit - step);
    else if (queue < 3 * step && r->limit + step <= CINNAMON_ROOM * in_flight)
        set_limit(r, r->limit + step);
}

static void cinnamon_completed(struct rival *r, uint64_t now_ns, uint32_t in_flight, double ran_s) {
    struct run_times *w = &r->window;
    window_add(r, ran_s, in_flight);
    double lasted_s = (double)(now_ns - w->began_ns) * NS;
    if (lasted_s < CINNAMON_WINDOW_LEAST_S ||
        (w->seen < CINNAMON_SAMPLES && lasted_s < CINNAMON_WINDOW_MOST_S))
        return;
    cinnamon_update(r, window_quantile(r, .9), w->in_flight);
    window_begin(r, now_ns);
}

// ---- Envoy ------------------------------------------------------------------------------------
// Every minute the limit is 3 for 50 requests: their median is the run time without load. Ten times
// a second the limit is scaled by how far the present median is above it, with a quarter of
// tolerance, and gets room for the root of itself.

#define ENVOY_MEASURE_NS 60000000000
#define ENVOY_MEASURE_LEVEL 3
#define ENVOY_MEASURE_COUNT 50
#define ENVOY_WINDOW_S 0.1
#define ENVOY_BUFFER 1.25

static void envoy_measure(struct rival *r, uint64_t now_ns) {
    struct envoy *e = &r->envoy;
    e->measures = true;
    e->before = r->level;
    r->level = ENVOY_MEASURE_LEVEL < r->bounds.most ? ENVOY_MEASURE_LEVEL : r->bounds.most;
    window_begin(r, now_ns);
}

static void envoy_measured(struct rival *r, uint64_t now_ns) {
    struct envoy *e = &r->envoy;
    e->least_s = window_quantile(r, .5);
    e->measures = false;
    e->measures_at_ns = now_ns + (uint64_t)(ENVOY_MEASURE_NS * (1 + .15 * random_unit(r)));
    set_limit(r, e->before);
    window_begin(r, now_ns);
}

static void envoy_completed(struct rival *r, uint64_t now_ns, uint32_t in_flight, double ran_s) {
    struct envoy *e = &r->envoy;
    struct run_times *w = &r->window;
    if (e->least_s == 0 && !e->measures)
        envoy_measure(r, 0);
    if (e->measures && (double)now_ns * NS - ran_s < (double)w->began_ns * NS)
        return; // it began before the limit was lowered
    window_add(r, ran_s, in_flight);
    if (e->measures) {
        if (w->seen >= ENVOY_MEASURE_COUNT)
            envoy_measured(r, now_ns);
        return;
    }
    if ((double)(now_ns - w->began_ns) * NS < ENVOY_WINDOW_S)
        return;
    double gradient = clamp(ENVOY_BUFFER * e->least_s / window_quantile(r, .5), .5, 2);
    set_limit(r, gradient * r->limit + sqrt(gradient * r->limit));
    window_begin(r, now_ns);
    if (now_ns >= e->measures_at_ns)
        envoy_measure(r, now_ns);
}

// ---- Vector -----------------------------------------------------------------------------------
// Once in a mean run time: one more if the limit was reached and jobs take no longer than before,
// a tenth fewer if they take clearly longer.

#define VECTOR_MEMORY 0.4
#define VECTOR_DEVIATIONS 2.5
#define VECTOR_DECREASE 0.9

static void vector_update(struct rival *r, double recent_s) {
    struct vector *v = &r->vector;
    double deviation_s = sqrt(v->variance);
    if (v->known && v->full && recent_s <= v->mean_s)
        set_limit(r, r->limit + 1);
    else if (v->known && recent_s >= v->mean_s + VECTOR_DEVIATIONS * deviation_s)
        set_limit(r, floor(r->limit * VECTOR_DECREASE));
    double apart = v->known ? recent_s - v->mean_s : 0, part = VECTOR_MEMORY * apart;
    v->mean_s = v->known ? v->mean_s + part : recent_s;
    v->variance = (1 - VECTOR_MEMORY) * (v->variance + apart * part);
    v->known = true;
}

static void vector_completed(struct rival *r, uint64_t now_ns, uint32_t in_flight, double ran_s) {
    struct vector *v = &r->vector;
    window_add(r, ran_s, in_flight);
    v->full = v->full || in_flight >= r->level;
    if (now_ns < v->updates_at_ns)
        return;
    vector_update(r, r->window.sum / (double)r->window.seen);
    v->updates_at_ns = now_ns + (uint64_t)(v->mean_s / NS);
    v->full = false;
    window_begin(r, now_ns);
}

// ---- AIMD -------------------------------------------------------------------------------------
// One more after every job while half of the limit is in use; a tenth fewer after one that took
// over 5 s.

#define AIMD_TIMEOUT_S 5.0
#define AIMD_DECREASE 0.9

static void aimd_completed(struct rival *r, uint32_t in_flight, double ran_s) {
    if (ran_s > AIMD_TIMEOUT_S)
        set_limit(r, floor(r->limit * AIMD_DECREASE));
    else if (2.0 * in_flight >= r->limit)
        set_limit(r, r->limit + 1);
}

// ---- All --------------------------------------------------------------------------------------

static const struct {
    const char *name;
    struct rival_bounds published; // 0: the number of processors
} rivals[RIVAL_KINDS] = {
    [RIVAL_HILL] = { ".NET hill climbing", { 0, 0, TUNER_MOST } },
    [RIVAL_GRADIENT] = { "Gradient2", { 20, 20, 200 } },
    [RIVAL_VEGAS] = { "Vegas", { 20, 1, 1000 } },
    [RIVAL_CINNAMON] = { "Cinnamon", { 20, 1, 200 } },
    [RIVAL_ENVOY] = { "Envoy", { 3, 3, 1000 } },
    [RIVAL_VECTOR] = { "Vector", { 1, 1, 200 } },
    [RIVAL_AIMD] = { "AIMD", { 10, 1, 200 } },
};

const char *rival_name(enum rival_kind kind) {
    return rivals[kind].name;
}

struct rival_bounds rival_published(enum rival_kind kind, uint32_t processors) {
    struct rival_bounds b = rivals[kind].published;
    b.first = b.first ? b.first : processors;
    b.least = b.least ? b.least : processors;
    return b;
}

void rival_init(struct rival *r, enum rival_kind kind, struct rival_bounds bounds, uint64_t seed) {
    *r = (struct rival){ .kind = kind, .bounds = bounds, .random = seed };
    set_limit(r, bounds.first);
    if (kind == RIVAL_HILL) {
        r->hill.middle = r->level;
        r->hill.amplitude = 1;
        r->hill.interval_s = HILL_INTERVAL_LEAST;
    }
}

void rival_completed(struct rival *r, uint64_t now_ns, uint32_t in_flight, uint64_t ran_ns) {
    double ran_s = (double)ran_ns * NS;
    switch (r->kind) {
    case RIVAL_HILL:
        hill_completed(r, now_ns);
        return;
    case RIVAL_GRADIENT:
        gradient_completed(r, now_ns, in_flight, ran_s);
        return;
    case RIVAL_VEGAS:
        vegas_completed(r, in_flight, ran_s);
        return;
    case RIVAL_CINNAMON:
        cinnamon_completed(r, now_ns, in_flight, ran_s);
        return;
    case RIVAL_ENVOY:
        envoy_completed(r, now_ns, in_flight, ran_s);
        return;
    case RIVAL_VECTOR:
        vector_completed(r, now_ns, in_flight, ran_s);
        return;
    case RIVAL_AIMD:
        aimd_completed(r, in_flight, ran_s);
        return;
    case RIVAL_KINDS:
        return;
    }
}

// ---- In the zoo -------------------------------------------------------------------------------

static uint32_t rival_level(const void *tuner) {
    return ((const struct rival *)tuner)->level;
}

static void rival_feed(void *tuner, const struct tuner_event *e, uint64_t waited_ns) {
    (void)waited_ns;
    if (e->kind == TUNER_COMPLETED)
        rival_completed(tuner, e->now_ns, e->in_flight, e->ran_ns);
}

struct zoo_tuner rival_tuner(struct rival *r) {
    return (struct zoo_tuner){ r, rival_level, rival_feed, NULL };
}
