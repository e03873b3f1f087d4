// What a node does about shards (cluster/plan.h): which nodes it takes into account. The random
// histories of sim.c have the rest.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/plan.h"

enum { TAKEOVER_MS = 10000 };

static struct cluster_seen seen;

static void add(uint32_t number, uint64_t age_ms) {
    struct node_seen n = { .age_ms = age_ms, .link_version = LINK_VERSION };
    snprintf(n.address, sizeof n.address, "10.0.0.%03u:7411", number);
    cluster_seen_add(&seen, &n, TAKEOVER_MS);
}

static void expect_sorted(void) {
    for (uint32_t i = 1; i < seen.nodes; i++)
        assert_true(strcmp(seen.node[i - 1].address, seen.node[i].address) < 0);
}

static uint32_t count_alive(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < seen.nodes; i++)
        count += seen.node[i].age_ms < TAKEOVER_MS;
    return count;
}

// Nodes of pods get a new address with every restart; the notes of the old ones stay for an hour.
static void H3_nodes_that_were_lost_leave_room_for_those_that_live(void **state) {
    (void)state;
    seen = (struct cluster_seen){ 0 };
    for (uint32_t i = 0; i < 200; i++)
        add(i, i % 10 == 3 ? 500 : TAKEOVER_MS + 1000 * i);
    assert_int_equal(seen.nodes, NODES_SEEN);
    assert_int_equal(count_alive(), 20);
    assert_int_equal(seen.left_out, 0);
    assert_false(cluster_seen_lacks(&seen, "10.0.0.001:7411")); // it was lost
    expect_sorted();
}

static void H3_of_too_many_nodes_the_last_are_left_out_and_own_nothing(void **state) {
    (void)state;
    seen = (struct cluster_seen){ .shards = 2 };
    for (uint32_t i = 0; i < NODES_SEEN + 3; i++)
        add(i, 500);
    add(900, TAKEOVER_MS); // a lost one does not count
    assert_int_equal(seen.nodes, NODES_SEEN);
    assert_int_equal(seen.left_out, 3);
    assert_true(cluster_seen_lacks(&seen, "10.0.0.066:7411"));
    assert_false(cluster_seen_lacks(&seen, "10.0.0.063:7411"));
    expect_sorted();
    struct node_plan plan;
    plan_make(&seen, "10.0.0.066:7411", true, (bool[SERVER_SHARDS]){ 0 }, TAKEOVER_MS, &plan);
    assert_int_equal(plan.shard[0].act, PLAN_NOTHING);
    plan_make(&seen, "10.0.0.000:7411", false, (bool[SERVER_SHARDS]){ 0 }, TAKEOVER_MS, &plan);
    assert_int_equal(plan.shard[0].act, PLAN_OPEN);
}

static void H3_a_node_of_another_version_of_links_gets_no_shard(void **state) {
    (void)state;
    struct node_plan plan;
    const bool has[SERVER_SHARDS] = { true, true };
    seen = (struct cluster_seen){ .shards = 2 };
    add(1, 500);
    add(2, 500);
    assert_null(cluster_seen_other_version(&seen, TAKEOVER_MS));
    plan_make(&seen, "10.0.0.001:7411", false, has, TAKEOVER_MS, &plan);
    assert_true(plan.shard[0].act == PLAN_LEAVE || plan.shard[1].act == PLAN_LEAVE);
    seen.node[1].link_version++;
    assert_ptr_equal(cluster_seen_other_version(&seen, TAKEOVER_MS), &seen.node[1]);
    plan_make(&seen, "10.0.0.001:7411", false, has, TAKEOVER_MS, &plan);
    assert_true(plan.shard[0].act == PLAN_NOTHING && plan.shard[1].act == PLAN_NOTHING);
    seen.node[1].age_ms = TAKEOVER_MS; // it has ended
    assert_null(cluster_seen_other_version(&seen, TAKEOVER_MS));
}

static void H3_a_node_that_drains_opens_nothing_even_if_all_do(void **state) {
    (void)state;
    struct node_plan plan;
    seen = (struct cluster_seen){ .shards = 1 };
    add(1, 500);
    seen.node[0].is_draining = true;
    plan_make(&seen, "10.0.0.001:7411", true, (bool[SERVER_SHARDS]){ 0 }, TAKEOVER_MS, &plan);
    assert_int_equal(plan.shard[0].act, PLAN_NOTHING);
    plan_make(&seen, "10.0.0.001:7411", false, (bool[SERVER_SHARDS]){ 0 }, TAKEOVER_MS, &plan);
    assert_int_equal(plan.shard[0].act, PLAN_OPEN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(H3_nodes_that_were_lost_leave_room_for_those_that_live),
        cmocka_unit_test(H3_of_too_many_nodes_the_last_are_left_out_and_own_nothing),
        cmocka_unit_test(H3_a_node_of_another_version_of_links_gets_no_shard),
        cmocka_unit_test(H3_a_node_that_drains_opens_nothing_even_if_all_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
