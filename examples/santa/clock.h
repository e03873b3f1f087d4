// Clock: seconds that only go forward.
#ifndef SANTA_CLOCK_H
#define SANTA_CLOCK_H

#include <time.h>

static inline double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void sleep_until(double at_s) {
    struct timespec t = { (time_t)at_s, (long)((at_s - (double)(time_t)at_s) * 1e9) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        ; // a signal came first
}

#endif
