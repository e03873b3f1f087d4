// The assignment of shards to nodes (cluster/assign.h): cases by hand, then random ones against the
// rules, and small ones against the best of all assignments.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/assign.h"
#include "support/proof.h"

enum { NODES = 40, SHARDS = 200 };

struct problem {
    uint32_t nodes, shards;
    struct assign_node node[NODES];
    struct assign_shard shard[SHARDS];
};

static const char *name_of(uint32_t node) {
    static char names[NODES][8];
    snprintf(names[node], sizeof names[node], "n%03u", node);
    return names[node];
}

// Nodes are letters, a draining one is upper case; a shard is its owner, and behind a `>` the node
// that is wanted. A dot is none.
static struct problem problem_read(const char *nodes, const char *shards) {
    struct problem p = { .nodes = (uint32_t)strlen(nodes) };
    for (uint32_t i = 0; i < p.nodes; i++)
        p.node[i] = (struct assign_node){ name_of(i), nodes[i] < 'a' };
    for (const char *c = shards; *c; c++) {
        struct assign_shard *s = &p.shard[p.shards++];
        *s = (struct assign_shard){ *c == '.' ? -1 : *c - 'a', -1 };
        if (c[1] == '>') {
            s->wanted = c[2] - 'a';
            c += 2;
        }
    }
    return p;
}

static void expect_assigned(const char *nodes, const char *shards, const char *expected) {
    struct problem p = problem_read(nodes, shards);
    int32_t out[SHARDS];
    char text[SHARDS + 1] = "";
    assign_shards(p.node, p.nodes, p.shard, p.shards, out);
    for (uint32_t i = 0; i < p.shards; i++)
        text[i] = (char)(out[i] < 0 ? '.' : 'a' + out[i]);
    assert_string_equal(text, expected);
}

// --- cases ----------------------------------------------------------------------------------

static void shards_are_spread_and_stay(void **state) {
    (void)state;
    expect_assigned("", "....", "....");
    expect_assigned("a", "....", "aaaa");
    expect_assigned("ab", "....", "aabb");
    expect_assigned("ab", "aaaa", "aabb");
    expect_assigned("ab", "abab", "abab");
    expect_assigned("ab", "bbb", "bba"); // b keeps the odd one
    expect_assigned("ab", "a.b", "aab");
    expect_assigned("abc", "aaaaabbb", "aaaccbbb"); // c joins: two move
    expect_assigned("ab", "ab.", "aba");            // one has lost its node
    expect_assigned("abc", "", "");
    expect_assigned("abcd", "d", "d"); // more nodes than shards
}

static void a_draining_node_gets_nothing(void **state) {
    (void)state;
    expect_assigned("Ab", "aabb", "bbbb");
    expect_assigned("Abc", "aabc", "bcbc");
    expect_assigned("abC", "..c", "aab");
    expect_assigned("AB", "aaab", "aaab"); // all drain: shards stay
    expect_assigned("AB", "aaa.", "aaab"); // …and have a node
    expect_assigned("AB", "aa>bb", "aab");
}

static void an_operator_moves_shards(void **state) {
    (void)state;
    expect_assigned("ab", "a>bab", "bab"); // b has 2, a 1
    expect_assigned("ab", "a>babb", "baba");
    expect_assigned("ab", "a>ba>ba>ba", "bbba"); // more than its part: as the operator says
    expect_assigned("ab", "a>ba>ba>ba>b", "bbbb");
    expect_assigned("aB", "a>bb", "aa"); // it drains: not there
}

// --- the rules ------------------------------------------------------------------------------

static bool all_drain(const struct problem *p) {
    for (uint32_t i = 0; i < p->nodes; i++)
        if (!p->node[i].draining)
            return false;
    return true;
}

// The node where an operator or a rule wants the shard; -1: any.
static int32_t must_be(const struct problem *p, uint32_t shard) {
    const struct assign_shard *s = &p->shard[shard];
    if (all_drain(p))
        return s->owner;
    return s->wanted >= 0 && !p->node[s->wanted].draining ? s->wanted : -1;
}

static uint32_t moves_of(const struct problem *p, const int32_t *out) {
    uint32_t moves = 0;
    for (uint32_t i = 0; i < p->shards; i++)
        moves += p->shard[i].owner >= 0 && p->shard[i].owner != out[i];
    return moves;
}

// Every shard is where it must be, and no draining node has one while another lives.
static bool is_allowed(const struct problem *p, const int32_t *out) {
    bool drain = all_drain(p);
    for (uint32_t i = 0; i < p->shards; i++) {
        int32_t node = must_be(p, i);
        if (out[i] < 0 || (uint32_t)out[i] >= p->nodes || (node >= 0 && out[i] != node) ||
            (!drain && p->node[out[i]].draining))
            return false;
    }
    return true;
}

// A node has two more than another one only if it can give none away.
static bool is_even(const struct problem *p, const int32_t *out) {
    uint32_t has[NODES] = { 0 }, can_give[NODES] = { 0 };
    bool drain = all_drain(p);
    for (uint32_t i = 0; i < p->shards; i++) {
        has[out[i]]++;
        can_give[out[i]] += must_be(p, i) < 0;
    }
    for (uint32_t a = 0; a < p->nodes; a++)
        for (uint32_t b = 0; b < p->nodes; b++)
            if ((drain || !p->node[b].draining) && has[a] > has[b] + 1 && can_give[a])
                return false;
    return true;
}

static void expect_rules(const struct problem *p, int32_t *out) {
    assign_shards(p->node, p->nodes, p->shard, p->shards, out);
    if (!p->nodes) {
        for (uint32_t i = 0; i < p->shards; i++)
            assert_int_equal(out[i], -1);
        return;
    }
    assert_true(is_allowed(p, out));
    assert_true(is_even(p, out));
    int32_t again[SHARDS];
    assign_shards(p->node, p->nodes, p->shard, p->shards, again);
    assert_memory_equal(again, out, p->shards * sizeof *out);
    struct problem next = *p; // all claims have succeeded: nothing moves any more
    for (uint32_t i = 0; i < p->shards; i++)
        next.shard[i].owner = out[i];
    assign_shards(next.node, next.nodes, next.shard, next.shards, again);
    assert_memory_equal(again, out, p->shards * sizeof *out);
}

// --- chance ---------------------------------------------------------------------------------

static uint64_t chance_state;

static uint32_t chance(uint32_t below) {
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return (uint32_t)((chance_state * UINT64_C(0x2545f4914f6cdd1d) >> 33) % below);
}

static struct problem problem_random(uint32_t nodes_most, uint32_t shards_most) {
    struct problem p = { .nodes = chance(nodes_most + 1), .shards = chance(shards_most + 1) };
    uint32_t draining = chance(3) ? chance(101) : 0, wanted = chance(3) ? chance(101) : 0;
    uint32_t orphans = chance(101), favourites = 1 + chance(p.nodes ? p.nodes : 1);
    for (uint32_t i = 0; i < p.nodes; i++)
        p.node[i] = (struct assign_node){ name_of(i), chance(100) < draining };
    for (uint32_t i = 0; i < p.shards; i++) {
        struct assign_shard *s = &p.shard[i];
        *s = (struct assign_shard){ -1, -1 };
        if (p.nodes && chance(100) >= orphans)
            s->owner = (int32_t)chance(chance(2) ? favourites : p.nodes);
        if (p.nodes && chance(100) < wanted)
            s->wanted = (int32_t)chance(chance(2) ? favourites : p.nodes);
    }
    return p;
}

static void random_problems_keep_the_rules(void **state) {
    (void)state;
    chance_state = proof_seed(20) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t until_ms = proof_until_ms(2, 20), count = 0;
    do {
        struct problem p = problem_random(NODES, SHARDS);
        int32_t out[SHARDS];
        expect_rules(&p, out);
    } while (++count < 2000 || (count < 20000 && monotonic_ms() < until_ms));
}

// The fewest moves of all assignments that are allowed and even.
static uint32_t fewest_moves(const struct problem *p) {
    uint32_t best = UINT32_MAX;
    uint64_t all = 1;
    for (uint32_t i = 0; i < p->shards; i++)
        all *= p->nodes;
    for (uint64_t number = 0; number < all; number++) {
        int32_t out[SHARDS];
        uint64_t rest = number;
        for (uint32_t i = 0; i < p->shards; i++, rest /= p->nodes)
            out[i] = (int32_t)(rest % p->nodes);
        uint32_t moves = moves_of(p, out);
        if (moves < best && is_allowed(p, out) && is_even(p, out))
            best = moves;
    }
    return best;
}

static void no_assignment_moves_fewer_shards(void **state) {
    (void)state;
    chance_state = proof_seed(4) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t until_ms = proof_until_ms(5, 60), count = 0;
    do {
        struct problem p = problem_random(4, chance(2) ? 6 : 4);
        if (!p.nodes)
            continue;
        int32_t out[SHARDS];
        expect_rules(&p, out);
        assert_int_equal(moves_of(&p, out), fewest_moves(&p));
    } while (++count < 1000 || (count < 10000 && monotonic_ms() < until_ms));
}

// A history: nodes join, leave and drain; only as many shards move as one node's part.
static void a_node_more_or_less_moves_one_part(void **state) {
    (void)state;
    struct problem p = { .nodes = 1, .shards = SHARDS };
    int32_t out[SHARDS];
    p.node[0].name = name_of(0);
    for (uint32_t i = 0; i < SHARDS; i++)
        p.shard[i] = (struct assign_shard){ -1, -1 };
    for (p.nodes = 1; p.nodes <= NODES; p.nodes++) { // nodes join
        p.node[p.nodes - 1] = (struct assign_node){ name_of(p.nodes - 1), false };
        expect_rules(&p, out);
        assert_true(moves_of(&p, out) <= SHARDS / p.nodes);
        for (uint32_t i = 0; i < SHARDS; i++)
            p.shard[i].owner = out[i];
    }
    for (p.nodes = NODES; p.nodes > 1; p.nodes--) { // the last one leaves
        for (uint32_t i = 0; i < SHARDS; i++)
            if (p.shard[i].owner == (int32_t)p.nodes - 1)
                p.shard[i].owner = -1;
        p.nodes--;
        expect_rules(&p, out);
        assert_int_equal(moves_of(&p, out), 0); // but for the orphans
        p.nodes++;
        for (uint32_t i = 0; i < SHARDS; i++)
            p.shard[i].owner = out[i];
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_spread_and_stay),
        cmocka_unit_test(a_draining_node_gets_nothing),
        cmocka_unit_test(an_operator_moves_shards),
        cmocka_unit_test(random_problems_keep_the_rules),
        cmocka_unit_test(no_assignment_moves_fewer_shards),
        cmocka_unit_test(a_node_more_or_less_moves_one_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
