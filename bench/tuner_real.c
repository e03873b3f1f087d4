// Real workloads: a self-tuned worker beside workers of fixed levels, each with an engine in memory
// of its own and more work than it can do. The truth is a sweep of levels, in mixed order, so that
// what disturbs the machine meanwhile disturbs all; of three repeats the median counts. The tuned
// worker is measured in the second half of its time.
#include "bench/tuner_real.h"

#include "bench/measure.h"
#include "millrace.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { AHEAD = 2000, REPEATS = 3, LEVELS = 11, PAUSE_US = 1000 };

static const uint32_t levels[LEVELS] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 };

static _Atomic uint64_t ran;

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

// A server that has room for twelve at once; the others queue.
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t place_free = PTHREAD_COND_INITIALIZER;
static int places = 12;

static void run_capped(uint64_t number) {
    (void)number;
    pthread_mutex_lock(&places_lock);
    while (places == 0)
        pthread_cond_wait(&place_free, &places_lock);
    places--;
    pthread_mutex_unlock(&places_lock);
    nap(5000);
    pthread_mutex_lock(&places_lock);
    places++;
    pthread_cond_signal(&place_free);
    pthread_mutex_unlock(&places_lock);
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
    (void)number;
    nap(5000000);
}

static void run_nothing(uint64_t number) {
    (void)number;
}

struct load {
    const char *name;
    void (*run)(uint64_t number);
    double times; // as long as the others
};

static const struct load loads[] = {
    { "hash loop", run_hash, 1 },
    { "50 ms sleep", run_sleep, 1 },
    { "server of 12 places", run_capped, 1 },
    { "one mutex", run_mutex, 1 },
    { "fsynced files", run_fsync, 1 },
    { "short and long, 9 : 1", run_mixed, 1 },
    { "5 s jobs", run_long, 6 },
    { "nothing", run_nothing, 1 },
    { "hash loop, then a hog", run_hash, 2 },
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

// Keeps AHEAD jobs waiting until the instant.
static void supply(mr *m, uint64_t *pushed, double until_ns) {
    while (clock_ns(CLOCK_MONOTONIC) < until_ns) {
        uint64_t missing = atomic_load(&ran) + AHEAD - *pushed;
        for (; missing > 0; missing--, ++*pushed)
            try(mr_push(m, "bench", mr_str("x"), NULL, NULL), "push");
        usleep(PAUSE_US);
    }
}

static _Atomic bool hog_stops;

static void *hog(void *arg) {
    while (!atomic_load(&hog_stops))
        spin(1000);
    return arg;
}

// Completions per second at a level (0: tuned), in the second half of the time; the hog comes then.
static double measure(const struct load *load, uint32_t level, double seconds) {
    mr *m;
    mr_worker *worker;
    mr_work_options o = { .jobs = level };
    pthread_t thread;
    bool hogged = strstr(load->name, "hog") != NULL;
    current = load;
    atomic_store(&ran, 0);
    atomic_store(&hog_stops, false);
    uint64_t pushed = 0;
    try(mr_open("mem:", NULL, &m), "open");
    try(mr_work(m, "bench", handle, NULL, &o, &worker), "work");
    double start_ns = clock_ns(CLOCK_MONOTONIC), half_ns = seconds * load->times * .5e9;
    supply(m, &pushed, start_ns + half_ns);
    if (hogged && pthread_create(&thread, NULL, hog, NULL) != 0)
        must(-1, "hog", "no thread");
    uint64_t before = atomic_load(&ran);
    double from_ns = clock_ns(CLOCK_MONOTONIC);
    supply(m, &pushed, start_ns + 2 * half_ns);
    double rate = (double)(atomic_load(&ran) - before) / (clock_ns(CLOCK_MONOTONIC) - from_ns);
    atomic_store(&hog_stops, true);
    if (hogged)
        pthread_join(thread, NULL);
    try(mr_worker_stop(worker, MR_FOREVER), "stop");
    try(mr_close(m), "close");
    return rate * 1e9;
}

static double median(double *values) {
    for (int i = 0; i < REPEATS; i++)
        for (int k = i + 1; k < REPEATS; k++)
            if (values[k] < values[i]) {
                double swap = values[i];
                values[i] = values[k];
                values[k] = swap;
            }
    return values[REPEATS / 2];
}

static void compare(const struct load *load, double seconds) {
    double fixed[LEVELS][REPEATS], tuned[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        tuned[r] = measure(load, 0, seconds);
        for (int i = 0; i < LEVELS; i++) {
            int at = (i * 3 + r * 5) % LEVELS; // mixed, and otherwise each time
            fixed[at][r] = measure(load, levels[at], seconds);
        }
    }
    double best = 0, rate = median(tuned);
    uint32_t best_level = 0;
    for (int i = 0; i < LEVELS; i++) {
        double at = median(fixed[i]);
        best_level = at > best ? levels[i] : best_level;
        best = at > best ? at : best;
    }
    printf("%-24s best %10.1f/s at %3u   tuned %10.1f/s   %.3f of it\n", load->name, best,
           best_level, rate, rate / best);
    fflush(stdout);
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
    if (!mkdtemp(sync_folder))
        must(-1, "mkdtemp", "no folder in /var/tmp");
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (strstr(loads[i].name, name))
            compare(&loads[i], (double)seconds);
    return remove_files() == 0 ? 0 : 1;
}
