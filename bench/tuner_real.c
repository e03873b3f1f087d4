// Real workloads: a self-tuned worker beside workers of fixed levels, each with an engine in memory
// of its own and more work than it can do.
//
//     sweep:    1, 2, 4, … in mixed order, briefly, several times     ─► the best fixed level
//     in turn:  that level, tuned, that level, tuned, …               ─► share of each pair: median
//
// The two run in turn, so that other load affects both; and the best level is measured again there,
// because the best of a noisy sweep looks better than it is. The tuned worker is measured in the
// second half of its time; the time until it has settled is a separate figure. The first half is 5
// s, or 300 completions of slow jobs. If the workload changes in the middle, it has 10 s more.
#include "bench/tuner_real.h"

#include "bench/measure.h"
#include "millrace.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { AHEAD = 16384, BATCH = 256, PAUSE_US = 1000 }; // jobs pushed and not ended
enum { LEVELS = 11, ROUNDS_MOST = 3, SLOTS = 50 };

// Parts of a tuned run's time: a run of the sweep, and one of the best fixed level beside it.
#define SWEEP_WARM 0.025
#define SWEEP_JUDGED 0.1
#define FIXED_WARM 0.1
#define TUNED_WARM 0.5 // the first half
#define JUDGED 0.5
#define RECOVER_S 10
#define SETTLED 0.95 // of the rate it is judged by, for a tenth of the time
#define SHARE 0.95   // of the best fixed level that is expected

static const uint32_t levels[LEVELS] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 };

static _Atomic uint64_t ran;
static _Atomic bool ending; // jobs that take long are to end now

// ---- The workloads ----------------------------------------------------------------------------

static void spin(uint64_t rounds) {
    volatile uint64_t hash = 1;
    for (uint64_t i = 0; i < rounds; i++)
        hash = (hash ^ i) * 0x100000001b3;
}

static void nap(uint64_t us) {
    usleep((useconds_t)us);
}

static void run_hash(uint64_t number) {
    (void)number;
    spin(100000);
}

static void run_sleep(uint64_t number) {
    (void)number;
    nap(50000);
}

// A server that has room for some at once; the others queue.
struct server {
    pthread_mutex_t lock;
    pthread_cond_t free;
    int places;
};

static struct server quick = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 12 };
static struct server slow = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 16 };

static void serve(struct server *s, uint64_t slices, uint64_t us) {
    pthread_mutex_lock(&s->lock);
    while (s->places == 0)
        pthread_cond_wait(&s->free, &s->lock);
    s->places--;
    pthread_mutex_unlock(&s->lock);
    for (uint64_t i = 0; i < slices && !atomic_load(&ending); i++)
        nap(us);
    pthread_mutex_lock(&s->lock);
    s->places++;
    pthread_cond_signal(&s->free);
    pthread_mutex_unlock(&s->lock);
}

static void run_capped(uint64_t number) {
    (void)number;
    serve(&quick, 1, 5000);
}

static void run_mutex(uint64_t number) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)number;
    nap(2000);
    pthread_mutex_lock(&lock);
    spin(100000);
    pthread_mutex_unlock(&lock);
}

static char sync_folder[] = "/var/tmp/millrace-bench-XXXXXX";

static void run_fsync(uint64_t number) {
    char path[64];
    static const char block[4096];
    snprintf(path, sizeof path, "%s/%u", sync_folder, (unsigned)(number % 256));
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (fd < 0)
        return;
    ssize_t wrote = write(fd, block, sizeof block);
    (void)wrote; // it is the time that counts
    fdatasync(fd);
    close(fd);
}

static void run_mixed(uint64_t number) {
    nap(number * 7919 % 10 == 0 ? 20000 : 1000);
}

static void run_long(uint64_t number) {
    serve(&slow, 25 + number * 7919 % 51, 100000); // 2.5 to 7.5 s
}

static void run_nothing(uint64_t number) {
    (void)number;
}

struct load {
    const char *name;
    void (*run)(uint64_t number);
    double times;  // as long as others
    int rounds;    // of the sweep, and of pairs
    uint32_t most; // of the sweep
    bool hogged;   // something else wants a processor, from the second half on
};

static const struct load loads[] = {
    { "hash loop", run_hash, 1, 3, 1024, false },
    { "50 ms sleep", run_sleep, 1, 3, 1024, false },
    { "server of 12 places", run_capped, 1, 3, 1024, false },
    { "one mutex", run_mutex, 1, 3, 1024, false },
    { "fsynced files", run_fsync, 2, 3, 1024, false },
    { "short and long, 9 : 1", run_mixed, 1, 3, 1024, false },
    { "5 s jobs, 16 places", run_long, 20, 1, 64, false },
    { "nothing", run_nothing, 1, 3, 1024, false },
    { "hash loop, then a hog", run_hash, 1, 3, 1024, true },
};

// ---- Running ----------------------------------------------------------------------------------

static const struct load *current;
static _Atomic uint64_t numbers;

static int handle(mr_job *job, void *arg) {
    (void)job, (void)arg;
    current->run(atomic_fetch_add(&numbers, 1));
    atomic_fetch_add(&ran, 1);
    return 0;
}

static void try(int err, const char *what) {
    must(err, what, mr_error());
}

// A worker at work.
struct run {
    mr *m;
    mr_worker *worker;
    uint64_t pushed;
    double start_ns, slot_ns;
    uint64_t slots[SLOTS]; // completions until the end of each
    double level_sum, samples;
};

static void push_missing(struct run *r) {
    static const mr_item items[BATCH]; // empty jobs
    uint64_t until = atomic_load(&ran) + AHEAD - BATCH;
    for (size_t accepted; r->pushed <= until; r->pushed += accepted)
        try(mr_push_many(r->m, "bench", items, BATCH, NULL, NULL, &accepted), "push");
}

// Keeps AHEAD jobs waiting for so long. Returns completions per second.
static double supply(struct run *r, double seconds) {
    uint64_t before = atomic_load(&ran);
    double from_ns = clock_ns(CLOCK_MONOTONIC), now_ns = from_ns;
    r->level_sum = r->samples = 0;
    for (; now_ns < from_ns + seconds * 1e9; now_ns = clock_ns(CLOCK_MONOTONIC)) {
        push_missing(r);
        r->level_sum += mr_worker_level(r->worker);
        r->samples++;
        for (int i = (int)((now_ns - r->start_ns) / r->slot_ns); i < SLOTS; i++)
            r->slots[i] = atomic_load(&ran);
        usleep(PAUSE_US);
    }
    return (double)(atomic_load(&ran) - before) / (now_ns - from_ns) * 1e9;
}

// When it first completed about as many as later, for a tenth of the time.
static double settled_s(const struct run *r, double rate) {
    enum { SPELL = SLOTS / 10 };
    double enough = SETTLED * rate * SPELL * r->slot_ns * 1e-9;
    int i = 0;
    while (i + SPELL < SLOTS && (double)(r->slots[i + SPELL] - r->slots[i]) < enough)
        i++;
    return i * r->slot_ns * 1e-9;
}

static void *hog(void *arg) {
    while (!atomic_load(&ending))
        spin(1000);
    return arg;
}

struct outcome {
    double rate, level; // when it was judged
    double settled_s;
};

// At a level (0: tuned). Judged after so many seconds, for so many.
static struct outcome measure(const struct load *load, uint32_t level, double warm_s,
                              double judged_s) {
    struct run r = { 0 };
    mr_work_options o = { .jobs = level };
    pthread_t thread;
    current = load;
    atomic_store(&ran, 0);
    atomic_store(&ending, false);
    try(mr_open("mem:", NULL, &r.m), "open");
    try(mr_work(r.m, "bench", handle, NULL, &o, &r.worker), "work");
    r.start_ns = clock_ns(CLOCK_MONOTONIC);
    r.slot_ns = (warm_s + judged_s) / SLOTS * 1e9;
    supply(&r, warm_s);
    if (load->hogged && pthread_create(&thread, NULL, hog, NULL) != 0)
        must(-1, "hog", "no thread");
    if (load->hogged && level == 0)
        supply(&r, RECOVER_S);
    struct outcome out = { .rate = supply(&r, judged_s) };
    out.level = r.level_sum / r.samples;
    out.settled_s = settled_s(&r, out.rate);
    atomic_store(&ending, true);
    if (load->hogged)
        pthread_join(thread, NULL);
    try(mr_worker_stop(r.worker, MR_FOREVER), "stop");
    try(mr_close(r.m), "close");
    return out;
}

// ---- Comparing --------------------------------------------------------------------------------

static double median(const double *values, int count) {
    double sorted[ROUNDS_MOST] = { 0 };
    for (int i = 0; i < count; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > values[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = values[i];
    }
    return sorted[count / 2];
}

// The level with the highest median, and the lowest with 95 % of it.
static uint32_t sweep(const struct load *load, double seconds, uint32_t *out_enough) {
    double rates[LEVELS][ROUNDS_MOST] = { 0 }, best = 0;
    int best_at = 0, enough_at = 0;
    for (int i = 0; i < LEVELS * load->rounds; i++) {
        int round = i / LEVELS, at = (i * 3 + round * 5) % LEVELS; // mixed, otherwise each round
        if (levels[at] <= load->most)
            rates[at][round] =
                measure(load, levels[at], SWEEP_WARM * seconds, SWEEP_JUDGED * seconds).rate;
    }
    for (int i = 0; i < LEVELS && levels[i] <= load->most; i++) {
        double rate = median(rates[i], load->rounds);
        best_at = rate > best ? i : best_at;
        best = fmax(best, rate);
    }
    while (median(rates[enough_at], load->rounds) < SHARE * best)
        enough_at++;
    *out_enough = levels[enough_at];
    return levels[best_at];
}

// Results of the pairs, by round.
struct pairs {
    double fixed[ROUNDS_MOST], tuned[ROUNDS_MOST]; // rates
    double share[ROUNDS_MOST], level[ROUNDS_MOST], settled_s[ROUNDS_MOST];
};

static void pair(const struct load *load, uint32_t best, double seconds, int i, struct pairs *out) {
    struct outcome fixed = measure(load, best, FIXED_WARM * seconds, JUDGED * seconds);
    struct outcome tuned = measure(load, 0, TUNED_WARM * seconds, JUDGED * seconds);
    out->fixed[i] = fixed.rate;
    out->tuned[i] = tuned.rate;
    out->share[i] = fixed.rate > 0 ? tuned.rate / fixed.rate : 0;
    out->level[i] = tuned.level;
    out->settled_s[i] = tuned.settled_s;
}

static bool compare(const struct load *load, double seconds) {
    struct pairs p = { 0 };
    int n = load->rounds;
    uint32_t enough, best = sweep(load, seconds, &enough);
    double least = INFINITY, most = 0;
    for (int i = 0; i < n; i++) {
        pair(load, best, seconds, i, &p);
        least = fmin(least, p.share[i]);
        most = fmax(most, p.share[i]);
    }
    double share = median(p.share, n);
    printf("%-24s %5u %5u  %10.1f  %10.1f  %6.1f  %.3f (%.3f–%.3f)  %5.1f s  %s\n", load->name,
           best, enough, median(p.fixed, n), median(p.tuned, n), median(p.level, n), share, least,
           most, median(p.settled_s, n), share >= SHARE ? "reached" : "NOT REACHED");
    fflush(stdout);
    return share >= SHARE;
}

static int remove_files(void) {
    char path[64];
    for (unsigned i = 0; i < 256; i++) {
        snprintf(path, sizeof path, "%s/%u", sync_folder, i);
        unlink(path);
    }
    return rmdir(sync_folder);
}

int tuner_real(uint64_t seconds, const char *name) {
    bool reached = true;
    if (!mkdtemp(sync_folder))
        must(-1, "mkdtemp", "no folder in /var/tmp");
    printf("%-24s %5s %5s  %10s  %10s  %6s  %-19s  %7s\n", "workload", "best", "95 %", "best /s",
           "tuned /s", "level", "share (min–max)", "there");
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (strstr(loads[i].name, name))
            reached = compare(&loads[i], (double)seconds * loads[i].times) && reached;
    printf("%" PRIu64 " s a tuned run: the line %s everywhere\n", seconds,
           reached ? "reached" : "NOT REACHED");
    return remove_files() == 0 ? 0 : 1;
}
