// Shared by the peers that run within a process: the count of jobs that ran, the same window as
// work.c, and the output.
#ifndef BENCH_PEER_HPP
#define BENCH_PEER_HPP

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

constexpr std::uint64_t window = 100000; // jobs posted and not run, at most
inline std::atomic<std::uint64_t> ran{0};

inline void wait_until_ran(std::uint64_t count) {
    while (ran.load(std::memory_order_relaxed) < count)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
}

// Posts `jobs` jobs by `post(number)`, at most a window ahead, and waits for them.
template <typename Post> void post_all(std::uint64_t jobs, Post post) {
    std::uint64_t before = ran.load();
    for (std::uint64_t i = 0; i < jobs; i++) {
        if (i > window)
            wait_until_ran(before + i - window);
        post(i);
    }
    wait_until_ran(before + jobs);
}

inline double clock_ns(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

// Runs it `repeats` times, and prints the time per job.
template <typename Run> void measure(std::uint64_t jobs, std::uint64_t repeats, Run run) {
    for (std::uint64_t repeat = 0; repeat < repeats; repeat++) {
        double cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), wall = clock_ns(CLOCK_MONOTONIC);
        run();
        std::printf("life_cpu_ns %.1f\nlife_wall_ns %.1f\n",
                    (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / static_cast<double>(jobs),
                    (clock_ns(CLOCK_MONOTONIC) - wall) / static_cast<double>(jobs));
    }
}

inline std::uint64_t argument(int argc, char **argv, int at, std::uint64_t otherwise) {
    return argc > at ? std::strtoull(argv[at], nullptr, 10) : otherwise;
}

#endif
