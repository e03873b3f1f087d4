// Random histories of several nodes (support/nodes_history.h): sound code passes all of them, and
// each planted mistake is found by one of the first.
//
//     nodes_random_test SEED [flows] [MISTAKE]    runs one history, and prints what happens in it
//     nodes_random_test MISTAKE                   looks for that one only
//     MILLRACE_SEED=7                             the first history
#include "support/nodes_history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    HISTORIES = 40,
    FLOWS = 20,
    HUNTED = 300, // histories with a mistake, at most: less than a minute
    HUNTS = 8,    // of each mistake, from different seeds, with MILLRACE_LONG
};

static const struct nodes_plant plants[] = {
    { "fence", PLANT_NONE, SIM_NO_FENCE },
    { "fence-by-key", PLANT_NONE, SIM_KEY_FENCE },
    { "doubt-yes", PLANT_NONE, SIM_DOUBT_IS_YES },
    { "doubt-no", PLANT_NONE, SIM_DOUBT_IS_NO },
    { "warning", PLANT_NONE, SIM_WARNING_IS_YES },
    { "before-durable", PLANT_BEFORE_DURABLE, SIM_SOUND },
    { "unowned", PLANT_UNOWNED, SIM_SOUND },
    { "paused-grants", PLANT_PAUSED_GRANTS, SIM_SOUND },
    { "link-mark", PLANT_LINK_MARK, SIM_SOUND },
    { "ids-again", PLANT_IDS_AGAIN, SIM_SOUND },
    { "crossed", PLANT_CROSSED, SIM_SOUND },
    { "overtakes", PLANT_OVERTAKES, SIM_SOUND },
    { "surplus", PLANT_SURPLUS, SIM_SOUND },
};
enum { PLANTS = sizeof plants / sizeof *plants };

// ---- Sound code ---------------------------------------------------------------------------------

static void print_reached(const struct nodes_reached *r) {
    static const char *const store[SIM_FAULTS] = {
        "unavailable",     "delayed",   "requests lost", "replies lost", "late",
        "waits cancelled", "failovers", "out of space",  "rivals",
    };
    print_message("%" PRIu64 " histories, %" PRIu64 " steps, %" PRIu64 " s simulated\n",
                  r->histories, r->steps, r->simulated_ms / 1000);
    print_message("%" PRIu64 " jobs done, %" PRIu64 " emitted, %" PRIu64
                  " of them to another shard; %" PRIu64 " connections lost, %" PRIu64
                  " DONEs repeated\n",
                  r->done, r->emitted, r->linked, r->closed, r->repeats);
    print_message("%" PRIu64 " shards opened, %" PRIu64 " handed over, %" PRIu64 " lost; %" PRIu64
                  " sessions moved; %" PRIu64 " trims\nfaults:",
                  r->opened, r->left, r->lost, r->moved, r->trims);
    for (int i = 0; i < NODES_FAULTS; i++)
        print_message(" %s %" PRIu64 ",", nodes_fault_name((enum nodes_fault)i), r->faults[i]);
    print_message("\nof the store:");
    for (int i = 0; i < SIM_FAULTS; i++)
        if (r->store_faults[i])
            print_message(" %s %" PRIu64 ",", store[i], r->store_faults[i]);
    print_message("\n");
}

static void run_sound(uint64_t seed, bool flows, struct nodes_reached *reached) {
    char finding[NODES_FINDING];
    const struct nodes_plan plan = { .seed = seed, .flows = flows };
    if (!nodes_history_run(&plan, reached, finding))
        fail_msg("history %" PRIu64 ": %s. To see it: nodes_random_test %" PRIu64 "%s", seed,
                 finding, seed, flows ? " flows" : "");
}

static void run_many(bool flows, uint64_t count, uint64_t longer_s) {
    struct nodes_reached reached = { 0 };
    uint64_t first = proof_seed(1), until_ms = proof_until_ms(0, longer_s);
    for (uint64_t seed = first; seed < first + count || monotonic_ms() < until_ms; seed++)
        run_sound(seed, flows, &reached);
    print_reached(&reached);
    assert_true(reached.done && reached.linked && reached.moved && reached.lost);
}

static void nothing_is_lost_or_done_twice_on_several_nodes(void **state) {
    (void)state;
    run_many(false, HISTORIES, 200);
}

// Emits travel between shards of different nodes while these die, pause, are cut off, and hand
// their shards over.
static void H4_emits_between_nodes_arrive_once_and_in_order_over_moves(void **state) {
    (void)state;
    run_many(true, FLOWS, 60);
}

// ---- Planted mistakes ---------------------------------------------------------------------------

static void child_run(const struct nodes_plan *plan, int to) {
    struct nodes_reached reached = { 0 };
    char finding[NODES_FINDING];
    bool fine = nodes_history_run(plan, &reached, finding);
    ssize_t written = fine ? 0 : write(to, finding, strlen(finding));
    _exit(written < 0);
}

// In a process of its own: an assertion of the code may find the mistake first.
static bool is_found(const struct nodes_plan *plan, char finding[NODES_FINDING]) {
    int ends[2], status = 0;
    size_t size = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        child_run(plan, ends[1]);
    close(ends[1]);
    for (ssize_t more; (more = read(ends[0], finding + size, NODES_FINDING - 1 - size)) > 0;)
        size += (size_t)more;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    finding[size] = 0;
    if (WIFSIGNALED(status))
        snprintf(finding, NODES_FINDING, "signal %d", WTERMSIG(status));
    return finding[0];
}

// Returns how many histories it took.
static uint64_t hunt(const struct nodes_plant *plant, uint64_t first) {
    char finding[NODES_FINDING];
    struct nodes_reached reached = { 0 };
    for (uint64_t seed = first; seed < first + HUNTED; seed++) {
        const struct nodes_plan plan = { .seed = seed, .flows = seed % 2, .plant = plant };
        if (!is_found(&plan, finding))
            continue;
        print_message("%s: history %" PRIu64 "%s: %s\n", plant->name, seed,
                      plan.flows ? " flows" : "", finding);
        run_sound(seed, plan.flows, &reached);
        return seed - first + 1;
    }
    fail_msg("%s: not found from history %" PRIu64 " to %" PRIu64, plant->name, first,
             first + HUNTED - 1);
    return 0;
}

static void planted_mistake_is_found(void **state) {
    const struct nodes_plant *plant = *state;
    uint64_t hunts = getenv("MILLRACE_LONG") ? HUNTS : 1, histories = 0, most = 0;
    for (uint64_t i = 0; i < hunts; i++) {
        uint64_t took = hunt(plant, proof_seed(1) + i * 1000);
        histories += took;
        most = took > most ? took : most;
    }
    print_message("%s: found after %" PRIu64 " histories, at most %" PRIu64 "\n", plant->name,
                  histories / hunts, most);
}

// ---- One history --------------------------------------------------------------------------------

static int run_one(int count, char **words) {
    struct nodes_reached reached = { 0 };
    char finding[NODES_FINDING];
    struct nodes_plan plan = { .seed = strtoull(words[1], NULL, 10), .prints = true };
    for (int i = 2; i < count; i++) {
        plan.flows = plan.flows || strcmp(words[i], "flows") == 0;
        for (int k = 0; k < PLANTS; k++)
            plan.plant = strcmp(words[i], plants[k].name) == 0 ? &plants[k] : plan.plant;
    }
    bool fine = nodes_history_run(&plan, &reached, finding);
    print_reached(&reached);
    puts(fine ? "nothing was wrong" : finding);
    return !fine;
}

int main(int count, char **words) {
    struct CMUnitTest tests[PLANTS + 2] = {
        cmocka_unit_test(nothing_is_lost_or_done_twice_on_several_nodes),
        cmocka_unit_test(H4_emits_between_nodes_arrive_once_and_in_order_over_moves),
    };
    if (count > 1 && words[1][0] >= '0' && words[1][0] <= '9')
        return run_one(count, words);
    if (count > 1)
        cmocka_set_test_filter(words[1]);
    for (int i = 0; i < PLANTS; i++)
        tests[2 + i] = (struct CMUnitTest){ .name = plants[i].name,
                                            .test_func = planted_mistake_is_found,
                                            .initial_state = (void *)&plants[i] };
    return cmocka_run_group_tests_name("nodes_random", tests, NULL, NULL);
}
