// A simulated cluster of many nodes (test/support/cluster_sim.h): what moves when nodes join, leave
// and die, and for how long shards are not served. Prints a table; the same seed prints the same.
//
//     takeover [NODES [SHARDS [MEGABYTES [SETTLE_MS]]]]
//
// MEGABYTES: what each shard replays. The rest of the model: a look each second, takeover after
// 10 s, claims of 1 to 20 ms, and a database that reads 668 MB a second for all replays together.
#include "bench/measure.h"

#include "support/cluster_sim.h"

enum { SETTLE_MS = 3000, REST_MS = 60000, OUTAGE_MS = 20000, READ_BYTES_PER_MS = 668000 };

static void print_head(void) {
    printf("%-26s %8s %7s %7s %8s %8s %8s %9s %9s\n", "event", "claims", "fenced", "pauses",
           "50% ms", "99% ms", "most ms", "settled s", "shards");
}

// Runs until everything is done, and prints what happened since the last line.
static void print_line(struct cluster_sim *c, const char *event) {
    cluster_sim_run(c, REST_MS);
    for (int i = 0; i < 60 && cluster_sim_figures(c).unserved; i++)
        cluster_sim_run(c, REST_MS);
    struct cluster_sim_figures f = cluster_sim_figures(c);
    printf("%-26s %8" PRIu64 " %7" PRIu64 " %7" PRIu64 " %8" PRIu64 " %8" PRIu64 " %8" PRIu64
           " %9.1f %4u to %u%s\n",
           event, f.claims, f.fenced, f.outages, f.pause_50_ms, f.pause_99_ms, f.pause_most_ms,
           (double)f.settled_ms / 1000, f.fewest, f.most, f.unserved ? ", some not served" : "");
    fflush(stdout);
    cluster_sim_measure(c);
}

static void nodes_start(struct cluster_sim *c, uint32_t from, uint32_t count, uint64_t apart_ms) {
    for (uint32_t i = 0; i < count; i++)
        cluster_sim_start(c, from + i, i * apart_ms);
}

// One node after another drains, ends and starts again.
static void nodes_roll(struct cluster_sim *c, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        cluster_sim_drain(c, i);
        cluster_sim_run(c, 5000);
        cluster_sim_start(c, i, 0);
        cluster_sim_run(c, 5000);
    }
}

static void story_run(struct cluster_sim *c, uint32_t nodes) {
    uint32_t tenth = nodes / 10 ? nodes / 10 : 1;
    nodes_start(c, 0, nodes - tenth, 5);
    print_line(c, "start of nine tenths");
    nodes_start(c, nodes - tenth, 1, 0);
    print_line(c, "one node joins");
    nodes_start(c, nodes - tenth + 1, tenth - 1, 5);
    print_line(c, "the rest joins");
    cluster_sim_drain(c, 3);
    print_line(c, "one node drains");
    cluster_sim_kill(c, 5);
    print_line(c, "one node dies");
    for (uint32_t i = 0; i < tenth; i++)
        cluster_sim_kill(c, nodes - 1 - i);
    print_line(c, "one tenth dies at once");
    nodes_start(c, nodes - tenth, tenth, 0);
    cluster_sim_start(c, 3, 0);
    cluster_sim_start(c, 5, 0);
    print_line(c, "they come back");
    nodes_roll(c, tenth < 20 ? tenth : 20);
    print_line(c, "20 nodes restart in turn");
    cluster_sim_outage(c, true);
    cluster_sim_run(c, OUTAGE_MS);
    cluster_sim_outage(c, false);
    print_line(c, "store is down for 20 s");
}

int main(int count, char **values) {
    struct cluster_sim_options o = {
        .nodes = (uint32_t)argument(count, values, 1, 1000),
        .shards = (uint32_t)argument(count, values, 2, 1000),
        .seed = 1,
        .tick_ms = 1000,
        .takeover_ms = 10000,
        .unowned_ms = 6000,
        .settle_ms = (uint32_t)argument(count, values, 4, SETTLE_MS),
        .claim_ms = 20,
        .replay_bytes = argument(count, values, 3, 8) * 1000000,
        .replay_bytes_per_ms = READ_BYTES_PER_MS,
    };
    struct lap lap = lap_begin();
    struct cluster_sim *c = cluster_sim_create(&o);
    printf("%u nodes, %u shards, %" PRIu64 " MB to replay each, %u ms to settle\n", o.nodes,
           o.shards, o.replay_bytes / 1000000, o.settle_ms);
    print_head();
    story_run(c, o.nodes);
    cluster_sim_run(c, 10000);
    struct cluster_sim_figures f = cluster_sim_figures(c);
    printf("at rest, a second: %" PRIu64 " looks, %" PRIu64 " notes and %" PRIu64
           " rows of shards read, %" PRIu64 " notes put, %" PRIu64 " beats\n",
           f.ticks / 10, f.notes_read / 10, f.shards_read / 10, f.puts / 10, f.beats / 10);
    printf("computed in %.0f s\n", lap_end(lap).wall_ns / 1e9);
    cluster_sim_destroy(c);
    return 0;
}
