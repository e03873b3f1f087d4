// Shared by the benchmarks: clocks, memory, and the output of figures. A figure is a line "name
// value"; a program that repeats a measurement prints it again, and bench/run computes the median
// and the spread.
//
// CPU time is that of the whole process, the engine's own threads included: on a machine that
// others use too, it is the figure to trust.
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct lap {
    double cpu_ns, wall_ns;
};

static inline double clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline struct lap lap_begin(void) {
    return (struct lap){ clock_ns(CLOCK_PROCESS_CPUTIME_ID), clock_ns(CLOCK_MONOTONIC) };
}

static inline struct lap lap_end(struct lap since) {
    struct lap now = lap_begin();
    return (struct lap){ now.cpu_ns - since.cpu_ns, now.wall_ns - since.wall_ns };
}

static inline void lap_add(struct lap *sum, struct lap more) {
    sum->cpu_ns += more.cpu_ns;
    sum->wall_ns += more.wall_ns;
}

// Two figures: NAME_cpu_ns and NAME_wall_ns, for each of `count`.
static inline void lap_tell(const char *name, struct lap sum, uint64_t count) {
    printf("%s_cpu_ns %.1f\n%s_wall_ns %.1f\n", name, sum.cpu_ns / (double)count, name,
           sum.wall_ns / (double)count);
    fflush(stdout);
}

static inline uint64_t rss_bytes(void) {
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*u %lu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

// Exits with a message if `err` is an error.
static inline void must(int err, const char *what, const char *why) {
    if (err >= 0)
        return;
    fprintf(stderr, "%s: %d: %s\n", what, err, why);
    exit(1);
}

static inline uint64_t argument(int argc, char **argv, int at, uint64_t otherwise) {
    return argc > at ? strtoull(argv[at], NULL, 10) : otherwise;
}

#endif
