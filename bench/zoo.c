// The simulator: a heap of events. At a shared station all jobs in flight advance at the same
// speed, so a heap by work done orders them whatever that speed is; at a lock it is a heap by time,
// and so is that of jobs which wait before they come to the station.
#include "bench/zoo.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BACKLOG = 200 }; // jobs that wait when there is always work: what santa's clock sees

const struct zoo zoo_all[] = {
    // Those that the tuner was made with,
    { "cpu, knee 8", { { ZOO_KNEE, 8, .004 } }, 1, .010, 0.5, 150, 1024, .share = .95 },
    { "the same, sigma 1.5", { { ZOO_KNEE, 8, .004 } }, 1, .020, 1.5, 300, 1024, .share = .95 },
    { "i/o, knee 300", { { ZOO_KNEE, 300, 0 } }, 1, .050, 0.5, 40, 1024, .share = .95 },
    { "contention, peak 35", { { ZOO_USL, .03, .0008 } }, 1, .005, 1.0, 60, 1024, .share = .95 },
    { "Amdahl .05", { { ZOO_USL, .05, 0 } }, 1, .010, 0.5, 80, 1024, .share = .90 },
    { "cliff at 64", { { ZOO_CLIFF, 64, 1 } }, 1, .020, 0.7, 50, 1024, .share = .95 },
    { "5 s jobs, knee 8",
      { { ZOO_KNEE, 8, .004 } },
      1,
      5,
      0.5,
      7200,
      1024,
      .share = .95,
      .completions = 300 },
    { "100k/s, knee 4", { { ZOO_KNEE, 4, .01 } }, 1, 40e-6, 0.5, 3, 1024, .share = .95 },
    { "lock, 41", { { ZOO_LOCK, .0005, 0 } }, 1, .020, 1.0, 100, 1024, .share = .95 },
    { "cpu, knee 24", { { ZOO_KNEE, 24, .003 } }, 1, .003, 1.0, 25, 1024, .share = .95 },
    { "i/o, knee 700", { { ZOO_KNEE, 700, 0 } }, 1, .200, 0.3, 90, 1024, .share = .95 },
    { "contention, peak 12", { { ZOO_USL, .1, .006 } }, 1, .050, 1.2, 600, 1024, .share = .95 },
    { "cpu, knee 16, sigma 2", { { ZOO_KNEE, 16, .004 } }, 1, .010, 2.0, 100, 1024, .share = .90 },
    { "2 s jobs, knee 40", { { ZOO_KNEE, 40, .002 } }, 1, 2, 0.8, 5000, 1024, .share = .95 },
    { "lock, 12", { { ZOO_LOCK, .00045, 0 } }, 1, .005, 1.0, 60, 1024, .share = .95 },
    { "serial", { { ZOO_KNEE, 1, .05 } }, 1, .002, 0.5, 150, 1024, .share = .95 },
    { "linear to 256", { { ZOO_KNEE, 1e9, 0 } }, 1, .010, 0.7, 12, 256, .share = .95 },
    // and those that were added when it was finished;
    { "cpu, knee 12", { { ZOO_KNEE, 12, .006 } }, 1, .008, 0.8, 80, 1024, .share = .95 },
    { "contention, peak 22", { { ZOO_USL, .05, .002 } }, 1, .020, 0.9, 200, 1024, .share = .95 },
    { "cliff at 20", { { ZOO_CLIFF, 20, .7 } }, 1, .030, 1.2, 200, 1024, .share = .95 },
    { "lock, 25", { { ZOO_LOCK, .002, 0 } }, 1, .050, 0.7, 300, 1024, .share = .95 },
    // and more, when levels had become finer for the cliff at 20.
    { "cpu, knee 6", { { ZOO_KNEE, 6, .005 } }, 1, .015, 1.0, 100, 1024, .share = .95 },
    { "contention, peak 50", { { ZOO_USL, .02, .000392 } }, 1, .010, 0.7, 60, 1024, .share = .95 },
    { "cliff at 40", { { ZOO_CLIFF, 40, 1 } }, 1, .012, 0.8, 60, 1024, .share = .95 },
    { "i/o, knee 120", { { ZOO_KNEE, 120, 0 } }, 1, .030, 0.6, 40, 1024, .share = .95 },
    // Changes, and too little work.
    { "steps: 8, 64, peak 18",
      { { ZOO_KNEE, 8, .004 }, { ZOO_KNEE, 64, .004 }, { ZOO_USL, .05, .003 } },
      3,
      .010,
      0.7,
      180,
      1024,
      .rate = 0 },
    { "a third of the work", { { ZOO_KNEE, 8, .004 } }, 1, .010, 0.5, 600, 1024, .rate = 240 },
    { "bursts",
      { { ZOO_KNEE, 8, .004 } },
      1,
      .010,
      0.5,
      600,
      1024,
      .rate = 1600,
      .on_s = 1,
      .off_s = 9 },
    { 0 },
};

// ---- Chance -----------------------------------------------------------------------------------

static uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static double random_unit(uint64_t *state) { // above 0, at most 1
    return (double)((random_next(state) >> 11) + 1) * 0x1p-53;
}

static double random_exponential(uint64_t *state, double mean) {
    return -log(random_unit(state)) * mean;
}

static double random_lognormal(uint64_t *state, double mean, double sigma) {
    double radius = sqrt(-2 * log(random_unit(state)));
    double normal = radius * cos(6.283185307179586 * random_unit(state));
    return mean * exp(sigma * normal - sigma * sigma / 2);
}

// ---- Truth ------------------------------------------------------------------------------------

static double curve_speed(const struct zoo_curve *c, double n) {
    switch (c->kind) {
    case ZOO_KNEE:
        return fmin(1, c->a / n) / (1 + c->b * fmax(0, n - c->a));
    case ZOO_USL:
        return 1 / (1 + c->a * (n - 1) + c->b * n * (n - 1));
    case ZOO_CLIFF:
        return n <= c->a ? 1 : pow(c->a / n, 1 + c->b);
    case ZOO_BEND:
        return n <= c->a ? 1 : (c->a + (fmin(n, c->b) - c->a) / 3) / n;
    case ZOO_MESA:
        return fmin(1, c->a / n) * (n <= c->b ? 1 : sqrt(c->b / n));
    case ZOO_LOCK:
        break;
    }
    return 1;
}

// Mean value analysis: what an arriving job finds at the lock is what one job fewer leaves there.
static void lock_throughput(const struct zoo *z, double under_lock_s, double out[TUNER_MOST + 1]) {
    double queue = 0;
    for (uint32_t n = 1; n <= z->most; n++) {
        double at_lock_s = under_lock_s * (1 + queue);
        out[n] = n / (z->mean_s + at_lock_s);
        queue = out[n] * at_lock_s;
    }
}

static void throughputs(const struct zoo *z, uint32_t phase, double out[TUNER_MOST + 1]) {
    const struct zoo_curve *c = &z->curves[phase];
    out[0] = 0;
    if (c->kind == ZOO_LOCK)
        lock_throughput(z, c->a, out);
    for (uint32_t n = 1; c->kind != ZOO_LOCK && n <= z->most; n++)
        out[n] = n * curve_speed(c, n) / z->mean_s;
}

static double best_of(const struct zoo *z, const double rates[TUNER_MOST + 1]) {
    double best = 0;
    for (uint32_t n = 1; n <= z->most; n++)
        best = fmax(best, rates[n]);
    return best;
}

double zoo_throughput(const struct zoo *z, uint32_t phase, uint32_t level) {
    double rates[TUNER_MOST + 1];
    throughputs(z, phase, rates);
    return rates[level];
}

uint32_t zoo_shares(const struct zoo *z, uint32_t phase, double near, double out[TUNER_MOST + 1]) {
    throughputs(z, phase, out);
    double best = best_of(z, out);
    for (uint32_t n = 1; n <= z->most; n++)
        out[n] /= best;
    uint32_t level = 1;
    while (out[level] < near)
        level++;
    return level;
}

double zoo_best(const struct zoo *z, uint32_t phase, uint32_t *out_level) {
    double rates[TUNER_MOST + 1], shares[TUNER_MOST + 1];
    throughputs(z, phase, rates);
    *out_level = zoo_shares(z, phase, .99, shares);
    return best_of(z, rates);
}

// ---- Events -----------------------------------------------------------------------------------

struct event {
    double at; // work or time
    double started_s, arrived_s;
    uint32_t party;
    bool locks; // it asks for the lock; else the job is completed
};

struct heap {
    struct event events[2 * TUNER_MOST];
    size_t count;
};

// A tuner with its jobs.
struct party {
    struct zoo_tuner tuner;
    struct zoo_run *run;
    uint32_t in_flight;
    double begins_s;
    double work_from_s, work_until_s; // it has work then; when that is over, from later on
    double times;                     // of the length of jobs
    double waits_s;                   // a job, before it comes to the station
};

struct sim {
    const struct zoo *zoo;
    struct party parties[ZOO_TUNERS];
    uint32_t party_count;
    uint64_t random;
    double now_s, work;
    uint32_t phase;
    uint32_t running;              // at the station
    double shares[TUNER_MOST + 1]; // of the phase's best throughput, by level
    uint32_t cheapest;             // the lowest with 97 % of it
    double factor, next_noise_s;   // of the speed
    struct heap station, waiters;
    bool locked;
    struct event queue[TUNER_MOST]; // for the lock; a ring
    size_t queue_first, queue_count;
    double arrived[BACKLOG]; // a ring, when there is always work
    size_t oldest;
    double *waiting; // when jobs arrive
    size_t waiting_first, waiting_count, waiting_room;
    double next_arrival_s, burst_ends_s;
};

static void heap_push(struct heap *h, struct event e) {
    assert(h->count < sizeof h->events / sizeof *h->events);
    size_t at = h->count++;
    for (; at > 0 && h->events[(at - 1) / 2].at > e.at; at = (at - 1) / 2)
        h->events[at] = h->events[(at - 1) / 2];
    h->events[at] = e;
}

static struct event heap_pop(struct heap *h) {
    struct event first = h->events[0], last = h->events[--h->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < h->count; at = child) {
        child += child + 1 < h->count && h->events[child + 1].at < h->events[child].at;
        if (h->events[child].at >= last.at)
            break;
        h->events[at] = h->events[child];
    }
    h->events[at] = last;
    return first;
}

static bool has_lock(const struct sim *s) {
    return s->zoo->curves[0].kind == ZOO_LOCK;
}

static double speed(const struct sim *s) {
    return s->factor * (has_lock(s) ? 1 : curve_speed(&s->zoo->curves[s->phase], s->running));
}

static bool has_begun(const struct sim *s, const struct party *p) {
    return s->now_s >= p->begins_s;
}

static bool has_work(const struct sim *s, const struct party *p) {
    return s->now_s >= p->work_from_s;
}

static uint32_t level_of(const struct sim *s, const struct party *p) {
    return has_work(s, p) ? p->tuner.level(p->tuner.tuner) : 0;
}

static uint32_t level_of_all(const struct sim *s) {
    uint32_t level = 0;
    for (uint32_t i = 0; i < s->party_count; i++)
        level += level_of(s, &s->parties[i]);
    return level;
}

static void note_step(struct sim *s, struct party *p) {
    struct zoo_run *r = p->run;
    uint32_t all = level_of_all(s);
    struct zoo_step step = { .at_s = s->now_s,
                             .completed = r->completed,
                             .level = level_of(s, p),
                             .share = s->shares[all < s->zoo->most ? all : s->zoo->most],
                             .times = (double)all / s->cheapest };
    if (r->count > 0) {
        const struct zoo_step *last = &r->steps[r->count - 1];
        if (last->level == step.level && last->share == step.share && last->times == step.times)
            return;
        double lasted_s = s->now_s - last->at_s;
        step.share_sum = last->share_sum + last->share * lasted_s;
        step.level_sum = last->level_sum + last->level * lasted_s;
        step.times_sum = last->times_sum + last->times * lasted_s;
    }
    if (r->count == r->room) {
        r->room = r->room ? 2 * r->room : 64;
        r->steps = realloc(r->steps, r->room * sizeof *r->steps);
        assert(r->steps);
    }
    r->steps[r->count++] = step;
}

static void feed_tuner(struct sim *s, struct party *p, struct tuner_event e, uint64_t waited_ns) {
    e.now_ns = (uint64_t)(s->now_s * 1e9);
    for (uint32_t i = 0; !s->zoo->apart && i < s->party_count; i++)
        if (&s->parties[i] != p && has_begun(s, &s->parties[i])) {
            e.others++;
            e.others_completed += s->parties[i].run->completed;
        }
    p->tuner.feed(p->tuner.tuner, &e, waited_ns);
}

// ---- Arrivals ---------------------------------------------------------------------------------

static void plan_arrival(struct sim *s) {
    const struct zoo *z = s->zoo;
    s->next_arrival_s += random_exponential(&s->random, 1 / z->rate);
    while (z->off_s > 0 && s->next_arrival_s > s->burst_ends_s) {
        s->next_arrival_s =
            s->burst_ends_s + z->off_s + random_exponential(&s->random, 1 / z->rate);
        s->burst_ends_s += z->off_s + z->on_s;
    }
}

static void arrive(struct sim *s) {
    if (s->waiting_first + s->waiting_count == s->waiting_room) {
        if (s->waiting_first > 0)
            memmove(s->waiting, s->waiting + s->waiting_first,
                    s->waiting_count * sizeof *s->waiting);
        s->waiting_first = 0;
        s->waiting_room = s->waiting_count * 2 + 64;
        s->waiting = realloc(s->waiting, s->waiting_room * sizeof *s->waiting);
        assert(s->waiting);
    }
    s->waiting[s->waiting_first + s->waiting_count++] = s->now_s;
    plan_arrival(s);
    if (s->parties[0].tuner.arrive)
        s->parties[0].tuner.arrive(s->parties[0].tuner.tuner);
}

// When the next job to start arrived; false: there is none.
static bool next_job(struct sim *s, double *out_arrived_s) {
    if (s->zoo->rate == 0) {
        *out_arrived_s = s->arrived[s->oldest];
        s->arrived[s->oldest] = s->now_s;
        s->oldest = (s->oldest + 1) % BACKLOG;
        return true;
    }
    if (s->waiting_count == 0)
        return false;
    *out_arrived_s = s->waiting[s->waiting_first++];
    s->waiting_count--;
    return true;
}

// ---- Running ----------------------------------------------------------------------------------

static double draw_size(struct sim *s, const struct party *p) {
    const struct zoo *z = s->zoo;
    double mean_s = z->mean_s * p->times;
    if (z->longs > 0) {
        mean_s /= .9 + .1 * z->longs;
        mean_s *= random_unit(&s->random) <= .1 ? z->longs : 1;
    }
    return z->sigma > 0 ? random_lognormal(&s->random, mean_s, z->sigma) : mean_s;
}

static void come_to_station(struct sim *s, struct event e) {
    e.at = s->work + draw_size(s, &s->parties[e.party]);
    e.locks = has_lock(s);
    heap_push(&s->station, e);
    s->running++;
}

static void start_job(struct sim *s, uint32_t party, double arrived_s) {
    struct party *p = &s->parties[party];
    struct event e = { .started_s = s->now_s, .arrived_s = arrived_s, .party = party };
    p->in_flight++;
    if (p->waits_s == 0) {
        come_to_station(s, e);
        return;
    }
    e.at = s->now_s + random_lognormal(&s->random, p->waits_s, s->zoo->sigma);
    heap_push(&s->waiters, e);
}

static void start_jobs(struct sim *s, uint32_t party) {
    struct party *p = &s->parties[party];
    double arrived_s;
    while (p->in_flight < level_of(s, p) && next_job(s, &arrived_s))
        start_job(s, party, arrived_s);
}

static void pass_lock(struct sim *s, struct event e) {
    s->locked = true;
    e.locks = false;
    e.at = s->work + random_exponential(&s->random, s->zoo->curves[0].a);
    heap_push(&s->station, e);
}

static void complete(struct sim *s, const struct event *e) {
    struct party *p = &s->parties[e->party];
    p->run->completed++;
    feed_tuner(s, p,
               (struct tuner_event){ .kind = TUNER_COMPLETED,
                                     .in_flight = p->in_flight,
                                     .ran_ns = (uint64_t)((s->now_s - e->started_s) * 1e9) },
               (uint64_t)((e->started_s - e->arrived_s) * 1e9));
    p->in_flight--;
    s->running--;
    bool lacks_work = s->zoo->rate > 0 ? s->waiting_count == 0 : !has_work(s, p);
    if (lacks_work && p->in_flight < p->tuner.level(p->tuner.tuner))
        feed_tuner(s, p, (struct tuner_event){ .kind = TUNER_STARVED }, 0);
}

static void handle(struct sim *s, struct event e) {
    if (e.locks && s->locked) {
        s->queue[(s->queue_first + s->queue_count++) % TUNER_MOST] = e;
        return;
    }
    if (e.locks) {
        pass_lock(s, e);
        return;
    }
    s->locked = false;
    if (s->queue_count > 0) {
        s->queue_count--;
        pass_lock(s, s->queue[s->queue_first++ % TUNER_MOST]);
    }
    complete(s, &e);
}

// The processors are idle while fewer are in flight than a knee allows.
static bool feed_idle(struct sim *s, double until_s) {
    const struct zoo *z = s->zoo;
    if (z->idle_s == 0 || s->now_s + z->idle_s > until_s || s->running < level_of_all(s) ||
        s->running > z->curves[s->phase].a / 2)
        return false;
    s->work += z->idle_s * speed(s);
    s->now_s += z->idle_s;
    for (uint32_t i = 0; i < s->party_count; i++)
        feed_tuner(s, &s->parties[i], (struct tuner_event){ .kind = TUNER_IDLE }, 0);
    return true;
}

// Lets time pass in which nothing ends.
static void pass(struct sim *s, double until_s) {
    s->work += s->station.count ? (until_s - s->now_s) * speed(s) : 0;
    s->now_s = until_s;
}

static void change_speed(struct sim *s) {
    s->factor = random_lognormal(&s->random, 1, s->zoo->noise);
    s->next_noise_s += random_exponential(&s->random, s->zoo->noise_s);
}

// When a tuner has work again.
static double next_work_s(const struct sim *s) {
    double next_s = INFINITY;
    for (uint32_t i = 0; i < s->party_count; i++)
        if (!has_work(s, &s->parties[i]))
            next_s = fmin(next_s, s->parties[i].work_from_s);
    return next_s;
}

static double next_waiter_s(const struct sim *s) {
    return s->waiters.count > 0 ? s->waiters.events[0].at : INFINITY;
}

// Moves to the next thing that happens. The station's speed holds until then.
static void advance(struct sim *s) {
    const struct event *first = s->station.events;
    double end_s = s->station.count ? s->now_s + (first->at - s->work) / speed(s) : INFINITY;
    double change_s = fmin(next_work_s(s), s->next_noise_s);
    if (next_waiter_s(s) < fmin(change_s, end_s)) {
        pass(s, next_waiter_s(s));
        come_to_station(s, heap_pop(&s->waiters));
        return;
    }
    if (change_s < end_s) {
        pass(s, change_s);
        if (s->now_s == s->next_noise_s)
            change_speed(s);
        return;
    }
    if (s->zoo->rate > 0 && s->next_arrival_s <= end_s) {
        pass(s, s->next_arrival_s);
        arrive(s);
        return;
    }
    if (feed_idle(s, end_s))
        return;
    s->now_s = end_s;
    s->work = first->at;
    handle(s, heap_pop(&s->station));
}

static void begin_phase(struct sim *s, uint32_t phase) {
    s->phase = phase;
    s->cheapest = zoo_shares(s->zoo, phase, .97, s->shares);
}

static void plan_work(const struct sim *s, struct party *p) {
    if (s->now_s < p->work_until_s)
        return;
    p->work_from_s = p->work_until_s + s->zoo->second_off_s;
    p->work_until_s = p->work_from_s + s->zoo->second_on_s;
}

static void start_and_note(struct sim *s) {
    for (uint32_t i = 0; i < s->party_count; i++)
        plan_work(s, &s->parties[i]);
    for (uint32_t i = 0; i < s->party_count; i++)
        start_jobs(s, i);
    for (uint32_t i = 0; i < s->party_count; i++)
        note_step(s, &s->parties[i]);
}

static struct sim *sim_create(const struct zoo *z, const struct zoo_tuner *tuners, uint32_t count,
                              uint64_t seed, struct zoo_run *out) {
    struct sim *s = calloc(1, sizeof *s);
    assert(s && count <= ZOO_TUNERS && (count == 1 || !(z->rate > 0)));
    s->zoo = z;
    s->random = seed;
    s->party_count = count;
    s->burst_ends_s = z->on_s;
    s->factor = 1;
    s->next_noise_s = z->noise > 0 ? 0 : INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (struct zoo_run){ .seconds = z->seconds };
        s->parties[i] = (struct party){
            .tuner = tuners[i], .run = &out[i], .work_until_s = INFINITY, .times = 1
        };
    }
    struct party *second = &s->parties[1];
    second->begins_s = second->work_from_s = z->second_s;
    if (z->second_on_s > 0)
        second->work_until_s = z->second_s + z->second_on_s;
    second->times = z->second_times > 0 ? z->second_times : 1;
    second->waits_s = z->second_waits_s;
    return s;
}

void zoo_run_shared(const struct zoo *z, const struct zoo_tuner *tuners, uint32_t count,
                    uint64_t seed, struct zoo_run *out) {
    struct sim *s = sim_create(z, tuners, count, seed, out);
    if (z->rate > 0)
        plan_arrival(s);
    begin_phase(s, 0);
    start_and_note(s);
    while (s->now_s < z->seconds) {
        advance(s);
        while (s->phase + 1 < z->phases && s->now_s >= (s->phase + 1) * z->seconds / z->phases)
            begin_phase(s, s->phase + 1);
        start_and_note(s);
    }
    free(s->waiting);
    free(s);
}

void zoo_run(const struct zoo *z, struct zoo_tuner tuner, uint64_t seed, struct zoo_run *out) {
    zoo_run_shared(z, &tuner, 1, seed, out);
}

void zoo_run_free(struct zoo_run *r) {
    free(r->steps);
}

// ---- Scores -----------------------------------------------------------------------------------

// The last step that is not after the instant.
static const struct zoo_step *step_at(const struct zoo_run *r, double at_s) {
    size_t low = 0, high = r->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (r->steps[middle].at_s <= at_s)
            low = middle;
        else
            high = middle;
    }
    return &r->steps[low];
}

static double share_until(const struct zoo_run *r, double at_s) {
    const struct zoo_step *s = step_at(r, at_s);
    return s->share_sum + s->share * (at_s - s->at_s);
}

static double level_until(const struct zoo_run *r, double at_s) {
    const struct zoo_step *s = step_at(r, at_s);
    return s->level_sum + s->level * (at_s - s->at_s);
}

static double times_until(const struct zoo_run *r, double at_s) {
    const struct zoo_step *s = step_at(r, at_s);
    return s->times_sum + s->times * (at_s - s->at_s);
}

double zoo_share(const struct zoo_run *r, double from_s, double to_s) {
    return (share_until(r, to_s) - share_until(r, from_s)) / (to_s - from_s);
}

double zoo_level(const struct zoo_run *r, double from_s, double to_s) {
    return (level_until(r, to_s) - level_until(r, from_s)) / (to_s - from_s);
}

double zoo_times(const struct zoo_run *r, double from_s, double to_s) {
    return (times_until(r, to_s) - times_until(r, from_s)) / (to_s - from_s);
}

bool zoo_converged(const struct zoo_run *r, double from_s, double to_s, double share, double *out_s,
                   double *out_completed) {
    double after_s = .005 * (to_s - from_s);
    const struct zoo_step *first = step_at(r, from_s), *end = r->steps + r->count;
    for (const struct zoo_step *s = first; s < end && s->at_s + after_s < to_s; s++) {
        double at_s = fmax(from_s, s->at_s);
        if (zoo_share(r, at_s, at_s + after_s) < share || zoo_share(r, at_s, to_s) < share)
            continue;
        *out_s = at_s - from_s;
        *out_completed = (double)(s->completed - first->completed);
        return true;
    }
    return false;
}

// ---- The library's tuner ----------------------------------------------------------------------

static uint32_t library_level(const void *tuner) {
    return tuner_level(tuner);
}

static void library_feed(void *tuner, const struct tuner_event *e, uint64_t waited_ns) {
    (void)waited_ns;
    tuner_feed(tuner, e);
}

struct zoo_tuner zoo_tuner(struct tuner *t) {
    return (struct zoo_tuner){ t, library_level, library_feed, NULL };
}
