// Nodes that share shards by what they read of the store, simulated (support/cluster_sim.h): nodes
// join, leave and die, the store is lost for a while, and in the end every shard is served, evenly.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/cluster_sim.h"
#include "support/proof.h"

enum { NODES = 24, SHARDS = 50 };

static const struct cluster_sim_options options = {
    .nodes = NODES,
    .shards = SHARDS,
    .tick_ms = 1000,
    .takeover_ms = 10000,
    .unowned_ms = 6000,
    .settle_ms = 3000,
    .claim_ms = 20,
    .replay_bytes = 1000000,
    .replay_bytes_per_ms = 600000,
};

static struct cluster_sim *cluster_of(uint64_t seed, uint32_t nodes) {
    struct cluster_sim_options o = options;
    o.seed = seed;
    struct cluster_sim *c = cluster_sim_create(&o);
    for (uint32_t i = 0; i < nodes; i++)
        cluster_sim_start(c, i, 0);
    cluster_sim_run(c, 20000);
    return c;
}

static struct cluster_sim_figures expect_served(struct cluster_sim *c) {
    struct cluster_sim_figures f = cluster_sim_figures(c);
    assert_int_equal(f.unserved, 0);
    assert_in_range(f.most, f.fewest, f.fewest + 1);
    cluster_sim_measure(c);
    return f;
}

static void nodes_that_start_together_claim_each_shard_once(void **state) {
    (void)state;
    struct cluster_sim *c = cluster_of(1, NODES);
    struct cluster_sim_figures f = expect_served(c);
    assert_int_equal(f.claims, SHARDS);
    cluster_sim_destroy(c);
}

static void nothing_moves_at_rest(void **state) {
    (void)state;
    struct cluster_sim *c = cluster_of(2, NODES);
    expect_served(c);
    cluster_sim_run(c, 60000);
    struct cluster_sim_figures f = expect_served(c);
    assert_int_equal(f.claims + f.fenced, 0);
    assert_int_equal(f.outages, 0);
    cluster_sim_destroy(c);
}

static void a_node_that_joins_gets_its_part_and_no_other_shard_moves(void **state) {
    (void)state;
    struct cluster_sim *c = cluster_of(3, NODES - 1); // 50 = 23 · 2 + 4
    expect_served(c);
    cluster_sim_start(c, NODES - 1, 0);
    cluster_sim_run(c, 20000);
    struct cluster_sim_figures f = expect_served(c);
    assert_int_equal(f.claims, 2);
    assert_true(f.pause_most_ms < 3 * options.tick_ms);
    cluster_sim_destroy(c);
}

static void a_node_that_drains_hands_its_shards_over(void **state) {
    (void)state;
    struct cluster_sim *c = cluster_of(4, NODES);
    expect_served(c);
    cluster_sim_drain(c, 7);
    cluster_sim_run(c, 20000);
    struct cluster_sim_figures f = expect_served(c);
    assert_in_range(f.claims, 2, 3);
    assert_true(f.pause_most_ms < 3 * options.tick_ms);
    cluster_sim_destroy(c);
}

static void the_shards_of_a_dead_node_are_taken_over(void **state) {
    (void)state;
    struct cluster_sim *c = cluster_of(5, NODES);
    expect_served(c);
    cluster_sim_kill(c, 7);
    cluster_sim_run(c, 30000);
    struct cluster_sim_figures f = expect_served(c);
    assert_in_range(f.claims, 2, 3);
    assert_true(f.pause_most_ms < options.takeover_ms + 2 * options.tick_ms);
    cluster_sim_destroy(c);
}

// All notes are old when the store answers again. A node that believed them would claim everything.
static void after_an_outage_owners_claim_their_own_shards(void **state) {
    (void)state;
    struct cluster_sim *c = cluster_of(6, NODES);
    expect_served(c);
    cluster_sim_outage(c, true);
    cluster_sim_run(c, 20000);
    assert_int_equal(cluster_sim_figures(c).unserved, SHARDS);
    cluster_sim_outage(c, false);
    cluster_sim_run(c, 20000);
    struct cluster_sim_figures f = expect_served(c);
    assert_int_equal(f.claims, SHARDS);
    assert_true(f.pause_most_ms < 20000 + options.settle_ms + 2 * options.tick_ms);
    cluster_sim_destroy(c);
}

static void random_histories_end_served_and_even(void **state) {
    (void)state;
    uint64_t until_ms = proof_until_ms(3, 30), seed = proof_seed(100);
    for (uint64_t i = 0; i < 10 || (i < 100 && monotonic_ms() < until_ms); i++) {
        uint64_t random = (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
        struct cluster_sim *c = cluster_of(seed + i, NODES);
        bool gone[NODES] = { false };
        for (int step = 0; step < 12; step++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            uint32_t node = (uint32_t)(random >> 33) % (NODES - 1) + 1; // one stays
            if (gone[node])
                cluster_sim_start(c, node, 0);
            else
                cluster_sim_kill(c, node);
            gone[node] = !gone[node];
            cluster_sim_outage(c, random >> 62 == 0);
            cluster_sim_run(c, (random >> 40) % 12000);
        }
        cluster_sim_outage(c, false);
        cluster_sim_run(c, 40000);
        expect_served(c);
        cluster_sim_destroy(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_that_start_together_claim_each_shard_once),
        cmocka_unit_test(nothing_moves_at_rest),
        cmocka_unit_test(a_node_that_joins_gets_its_part_and_no_other_shard_moves),
        cmocka_unit_test(a_node_that_drains_hands_its_shards_over),
        cmocka_unit_test(the_shards_of_a_dead_node_are_taken_over),
        cmocka_unit_test(after_an_outage_owners_claim_their_own_shards),
        cmocka_unit_test(random_histories_end_served_and_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
