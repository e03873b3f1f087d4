// A peer of work.c within a process: CAF actors, each of which takes its messages in order, one at
// a time. What an actor does with one is empty but for the count.
//
//     caf_actors [ACTORS [JOBS [RUNNERS [REPEATS]]]]
//
// This thread sends to every actor in turn, and RUNNERS threads of the scheduler run them.
#include "peer.hpp"

#include <caf/all.hpp>

#include <vector>

namespace {

caf::behavior counter() {
    return {[](int) { ran.fetch_add(1, std::memory_order_relaxed); }};
}

} // namespace

int main(int argc, char **argv) {
    std::uint64_t count = argument(argc, argv, 1, 1000), jobs = argument(argc, argv, 2, 1000000);
    std::uint64_t runners = argument(argc, argv, 3, 1), repeats = argument(argc, argv, 4, 3);
    caf::actor_system_config config;
    config.set("scheduler.max-threads", static_cast<std::size_t>(runners));
    caf::actor_system system(config);
    std::vector<caf::actor> actors;
    for (std::uint64_t i = 0; i < count; i++)
        actors.push_back(system.spawn(counter));
    measure(jobs, repeats, [&] {
        post_all(jobs, [&](std::uint64_t i) { caf::anon_send(actors[i % count], 1); });
    });
    for (const caf::actor &actor : actors)
        caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    return 0;
}
