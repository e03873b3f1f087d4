// A peer of work.c and life.c within a process: asio strands, each of which runs its handlers in
// order and without overlap. The handler is empty but for the count.
//
//     asio_strands [STRANDS [JOBS [RUNNERS [REPEATS]]]]
//
// This thread posts to every strand in turn, and RUNNERS others run what it posts; with none it posts
// a thousand and runs them itself.
#include "peer.hpp"

#include <asio.hpp>

#include <vector>

namespace {

constexpr std::uint64_t turn = 1000;

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

void run_there(asio::io_context &context, std::vector<strand> &strands, std::uint64_t jobs,
               std::uint64_t runners) {
    auto work = asio::make_work_guard(context);
    context.restart();
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < runners; i++)
        threads.emplace_back([&context] { context.run(); });
    post_all(jobs, [&strands](std::uint64_t i) { post(strands[i % strands.size()]); });
    work.reset();
    for (std::thread &thread : threads)
        thread.join();
}

} // namespace

int main(int argc, char **argv) {
    std::uint64_t count = argument(argc, argv, 1, 1000), jobs = argument(argc, argv, 2, 1000000);
    std::uint64_t runners = argument(argc, argv, 3, 0), repeats = argument(argc, argv, 4, 3);
    asio::io_context context(static_cast<int>(runners > 0 ? runners : 1));
    std::vector<strand> strands;
    for (std::uint64_t i = 0; i < count; i++)
        strands.push_back(asio::make_strand(context));
    measure(jobs, repeats, [&] {
        runners == 0 ? run_here(context, strands, jobs)
                     : run_there(context, strands, jobs, runners);
    });
    return 0;
}
