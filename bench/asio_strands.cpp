// The peer of work.c and life.c within a process: asio strands, each of which runs its handlers in
// order and without overlap. The handler is empty but for the count.
//
//     asio_strands [STRANDS [JOBS [RUNNERS [REPEATS]]]]
//
// This thread posts to every strand in turn, and RUNNERS others run what it posts; with none it posts
// a thousand and runs them itself. As in work.c, no more than `window` are on their way.
#include <asio.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

namespace {

constexpr std::uint64_t window = 100000, turn = 1000;
std::atomic<std::uint64_t> ran{0};

double clock_ns(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

using strand = asio::strand<asio::io_context::executor_type>;

void post(strand &s) {
    asio::post(s, [] { ran.fetch_add(1, std::memory_order_relaxed); });
}

void run_here(asio::io_context &context, std::vector<strand> &strands, std::uint64_t jobs) {
    for (std::uint64_t i = 0; i < jobs;) {
        for (std::uint64_t end = i + turn; i < end && i < jobs; i++)
            post(strands[i % strands.size()]);
        context.restart();
        context.poll();
    }
}

void wait_until_ran(std::uint64_t count) {
    while (ran.load(std::memory_order_relaxed) < count)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void run_there(asio::io_context &context, std::vector<strand> &strands, std::uint64_t jobs,
               std::uint64_t runners) {
    std::uint64_t before = ran.load();
    auto work = asio::make_work_guard(context);
    context.restart();
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < runners; i++)
        threads.emplace_back([&context] { context.run(); });
    for (std::uint64_t i = 0; i < jobs; i++) {
        if (i > window)
            wait_until_ran(before + i - window);
        post(strands[i % strands.size()]);
    }
    wait_until_ran(before + jobs);
    work.reset();
    for (std::thread &thread : threads)
        thread.join();
}

std::uint64_t argument(int argc, char **argv, int at, std::uint64_t otherwise) {
    return argc > at ? std::strtoull(argv[at], nullptr, 10) : otherwise;
}

} // namespace

int main(int argc, char **argv) {
    std::uint64_t count = argument(argc, argv, 1, 1000), jobs = argument(argc, argv, 2, 1000000);
    std::uint64_t runners = argument(argc, argv, 3, 0), repeats = argument(argc, argv, 4, 3);
    asio::io_context context(static_cast<int>(runners > 0 ? runners : 1));
    std::vector<strand> strands;
    for (std::uint64_t i = 0; i < count; i++)
        strands.push_back(asio::make_strand(context));
    for (std::uint64_t repeat = 0; repeat < repeats; repeat++) {
        double cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), wall = clock_ns(CLOCK_MONOTONIC);
        runners == 0 ? run_here(context, strands, jobs)
                     : run_there(context, strands, jobs, runners);
        std::printf("life_cpu_ns %.1f\nlife_wall_ns %.1f\n",
                    (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / static_cast<double>(jobs),
                    (clock_ns(CLOCK_MONOTONIC) - wall) / static_cast<double>(jobs));
    }
    return 0;
}
