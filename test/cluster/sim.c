// The simulator: random histories of several nodes, or of one server on files, each from one seed
// (support/nodes_history.h). Sound code passes all of them, and each planted mistake is found by
// one of the first.
//
//     sim                       a few of each kind; MILLRACE_LONG=1 for MILLRACE_SECONDS
//     sim SEED [WORD…]          one history, with all that happens in it
//     sim shrink SEED [WORD…]   looks for the fewest faults and steps with which it still fails
//     sim MISTAKE               looks for that one only
//     MILLRACE_SEED=7           the first history
//
// A WORD is a kind (flows, files), a mistake, or less of a history: sound-store, steps=N, without=N
// (bits of nodes_fault). A finding prints the words with which it is seen again.
#include "support/nodes_history.h"

#include "core/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/proof.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    HISTORIES = 40,
    FLOWS = 20,
    ON_FILES = 30,
    HUNTED = 300, // histories with a mistake, at most: less than a minute
    HUNTS = 8,    // of each mistake, from different seeds, with MILLRACE_LONG
    SOUND = 6,    // tests without a mistake
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

// Of this process: others may use the machine as well.
static uint64_t cpu_ms(void) {
    return (uint64_t)clock() * 1000 / CLOCKS_PER_SEC;
}

static void print_reached(const struct nodes_reached *r, uint64_t took_ms) {
    static const char *const store[SIM_FAULTS] = {
        "unavailable",     "delayed",   "requests lost", "replies lost", "late",
        "waits cancelled", "failovers", "out of space",  "rivals",
    };
    print_message("%" PRIu64 " histories, %" PRIu64 " steps, %" PRIu64
                  " s simulated, %.0f simulated seconds a second of the processor\n",
                  r->histories, r->steps, r->simulated_ms / 1000,
                  (double)r->simulated_ms / (double)(took_ms ? took_ms : 1));
    print_message("%" PRIu64 " jobs done, %" PRIu64 " emitted, %" PRIu64
                  " of them to another shard; %" PRIu64 " begun with the library; %" PRIu64
                  " connections lost, %" PRIu64 " DONEs repeated\n",
                  r->done, r->emitted, r->linked, r->handled, r->closed, r->repeats);
    print_message("%" PRIu64 " jobs cancelled, %" PRIu64 " jobs of schedules, %" PRIu64
                  " epics, %" PRIu64 " of them cancelled\n",
                  r->cancelled, r->ticks, r->epics, r->epics_cancelled);
    print_message("%" PRIu64 " shards opened, %" PRIu64 " handed over, %" PRIu64 " lost; %" PRIu64
                  " sessions moved; %" PRIu64 " trims\nfaults:",
                  r->opened, r->left, r->lost, r->moved, r->trims);
    for (int i = 0; i < NODES_FAULTS; i++)
        if (r->faults[i])
            print_message(" %s %" PRIu64 ",", nodes_fault_name((enum nodes_fault)i), r->faults[i]);
    print_message("\nof the store:");
    for (int i = 0; i < SIM_FAULTS; i++)
        if (r->store_faults[i])
            print_message(" %s %" PRIu64 ",", store[i], r->store_faults[i]);
    print_message("\n");
}

// The words that run this history again.
static const char *plan_words(const struct nodes_plan *p) {
    static char text[160];
    int used = snprintf(text, sizeof text, "%" PRIu64 "%s%s%s", p->seed, p->flows ? " flows" : "",
                        p->files ? " files" : "", p->sound_store ? " sound-store" : "");
    if (p->without)
        used += snprintf(text + used, sizeof text - (size_t)used, " without=%u", p->without);
    if (p->steps)
        used += snprintf(text + used, sizeof text - (size_t)used, " steps=%d", p->steps);
    if (p->plant)
        snprintf(text + used, sizeof text - (size_t)used, " %s", p->plant->name);
    return text;
}

static void run_sound(const struct nodes_plan *plan, struct nodes_reached *reached) {
    char finding[NODES_FINDING];
    if (!nodes_history_run(plan, reached, finding))
        fail_msg("%s. To see it: sim %s; to make it shorter: sim shrink %s", finding,
                 plan_words(plan), plan_words(plan));
}

static void run_many(struct nodes_plan kind, uint64_t count, uint64_t longer_s,
                     struct nodes_reached *reached) {
    uint64_t first = proof_seed(1), began_ms = cpu_ms();
    uint64_t until_ms = proof_until_ms(0, longer_s);
    for (kind.seed = first; kind.seed < first + count || monotonic_ms() < until_ms; kind.seed++)
        run_sound(&kind, reached);
    print_reached(reached, cpu_ms() - began_ms);
    assert_true(reached->done && reached->linked && reached->handled);
}

static void nothing_is_lost_or_done_twice_on_several_nodes(void **state) {
    (void)state;
    struct nodes_reached reached = { 0 };
    run_many((struct nodes_plan){ 0 }, HISTORIES, 200, &reached);
    assert_true(reached.moved && reached.lost && reached.ticks && reached.epics);
}

// Emits travel between shards of different nodes while these die, pause, are cut off, and hand
// their shards over.
static void H4_emits_between_nodes_arrive_once_and_in_order_over_moves(void **state) {
    (void)state;
    struct nodes_reached reached = { 0 };
    run_many((struct nodes_plan){ .flows = true }, FLOWS, 60, &reached);
    assert_true(reached.moved && reached.lost);
}

// F28: the power fails, and calls of the disk fail, at any of them.
static void nothing_is_lost_or_done_twice_on_files(void **state) {
    (void)state;
    struct nodes_reached reached = { 0 };
    run_many((struct nodes_plan){ .files = true }, ON_FILES, 60, &reached);
    assert_true(reached.faults[FAULT_POWER] && reached.faults[FAULT_DISK_ERROR] && reached.ticks);
}

// ---- A TAKE while a shard moves -----------------------------------------------------------------

static struct sim_node *owner_of(struct sim_nodes *w, uint32_t shard) {
    struct sim_node *n = w->nodes;
    while (n < w->nodes + SIM_NODES && n->places[shard].phase != SIM_RUNS)
        n++;
    return n < w->nodes + SIM_NODES ? n : NULL;
}

static void stage_of_shard(uint32_t shard, char out[16]) {
    int number = 0;
    do
        snprintf(out, 16, "s%d", number++);
    while (route_of(SIM_SHARDS, mr_str(out)) != shard);
}

static void ask(struct sim_wire *x, const char *format, const char *first, const char *second) {
    char text[100];
    snprintf(text, sizeof text, format, first, second);
    sim_wire_send(x, mr_str(text));
}

static bool is_answered(struct sim_nodes *w, struct sim_wire *x) {
    struct buffer in = { 0 };
    assert_true(sim_wire_receive(w, x, &in));
    bool any = in.size;
    buffer_finish(&in);
    return any;
}

static int count_running(struct sim_nodes *w) {
    int count = 0;
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        count += owner_of(w, i) != NULL;
    return count;
}

static int count_owners(struct sim_nodes *w) {
    int count = 0;
    for (int i = 0; i < SIM_NODES; i++)
        for (uint32_t k = 0, any = 0; k < SIM_SHARDS && !any; k++, count += (int)any)
            any = owner_of(w, k) == &w->nodes[i];
    return count;
}

// Every shard runs, and every node has one: they stay there.
static void settle(struct sim_nodes *w) {
    while (count_running(w) < SIM_SHARDS || count_owners(w) < SIM_NODES)
        sim_nodes_step(w);
}

// A shard that another node has than shard 0.
static uint32_t shard_elsewhere(struct sim_nodes *w) {
    uint32_t shard = 1;
    while (shard < SIM_SHARDS - 1 && owner_of(w, shard) == owner_of(w, 0))
        shard++;
    assert_true(owner_of(w, shard) != owner_of(w, 0));
    return shard;
}

// Shard 0 has a job that runs, so its node keeps it for a while when it is drained; the other shard
// is on another node, which sends TAKE to both.
static void take_while_a_shard_leaves(uint64_t seed) {
    struct sim_nodes *w = sim_nodes_create(seed, false);
    char moving[16], other[16];
    settle(w);
    uint32_t shard = shard_elsewhere(w);
    struct sim_node *drained = owner_of(w, 0);
    struct sim_place *leaving = &drained->places[0];
    stage_of_shard(0, moving);
    stage_of_shard(shard, other);
    struct sim_wire *worker = sim_wire_connect(w, drained->index);
    struct sim_wire *taker = sim_wire_connect(w, owner_of(w, shard)->index);
    ask(taker, "PUSH %s b%s\r\n", other, "");
    ask(worker, "PUSH %s a\r\nTAKE %s\r\n", moving, moving);
    while (!host_leases(&leaving->host) || !is_answered(w, taker))
        sim_nodes_step(w);
    drained->is_drained = true;
    while (leaving->leaving != SIM_LEAVES)
        sim_nodes_step(w);
    ask(taker, "TAKE %s %s WAIT 60000\r\n", moving, other);
    while (leaving->leaving == SIM_LEAVES && !is_answered(w, taker))
        sim_nodes_step(w);
    assert_int_equal(leaving->leaving, SIM_LEAVES);
    sim_wire_close(w, worker);
    sim_wire_close(w, taker);
    sim_nodes_destroy(w);
}

// A worker whose TAKE is not answered takes its node for a silent one, and closes the connection:
// its jobs of other shards would count an attempt.
static void H3_a_take_gets_jobs_of_other_shards_while_one_moves(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        take_while_a_shard_leaves(seed);
}

static bool is_open(struct sim_nodes *w, struct sim_wire *x) {
    struct buffer in = { 0 };
    bool open = sim_wire_receive(w, x, &in);
    buffer_finish(&in);
    return open;
}

// Of the only job of the stage. Behind the attempt follows its deadline, which it has not.
static void expect_first_attempt(struct sim_nodes *w, int node, const char *stage) {
    struct sim_wire *x = sim_wire_connect(w, node);
    struct buffer in = { 0 };
    ask(x, "TAKE %s WAIT 60000%s\r\n", stage, "");
    while (!in.size || !memmem(in.data, in.size, "\r\n:-1", 5))
        assert_true((sim_nodes_step(w), sim_wire_receive(w, x, &in)));
    assert_non_null(memmem(in.data, in.size, "\r\n:1\r\n:-1", 9));
    buffer_finish(&in);
    sim_wire_close(w, x);
}

static bool has_link(const struct sim_node *n) {
    bool any = false;
    for (int i = 0; i < SIM_NODES; i++)
        any = any || n->links[i].link;
    return any;
}

// Only the node of the taker is alive, which has not taken over the shards of the others yet.
static void take_while_shards_are_nowhere(uint64_t seed, const char *take) {
    struct sim_nodes *w = sim_nodes_create(seed, false);
    char stages[2][16];
    settle(w);
    struct sim_node *alive = owner_of(w, SIM_SHARDS - 1);
    int count = 0;
    for (uint32_t i = 0; i < SIM_SHARDS && count < 2; i++)
        if (owner_of(w, i) != alive)
            stage_of_shard(i, stages[count++]);
    assert_int_equal(count, 2);
    for (int i = 0; i < SIM_NODES; i++)
        if (&w->nodes[i] != alive)
            sim_node_kill(&w->nodes[i]);
    while (has_link(alive))
        sim_nodes_step(w);
    int left = count_running(w);
    struct sim_wire *taker = sim_wire_connect(w, alive->index);
    ask(taker, take, stages[0], stages[1]);
    while (count_running(w) <= left && !is_answered(w, taker))
        sim_nodes_step(w);
    assert_true(count_running(w) <= left);
    sim_wire_close(w, taker);
    sim_nodes_destroy(w);
}

static void H3_a_take_is_answered_in_its_time_though_its_shards_are_nowhere(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        take_while_shards_are_nowhere(seed, "TAKE %s WAIT 300\r\n");
        take_while_shards_are_nowhere(seed, "TAKE %s %s WAIT 300\r\n");
    }
}

// A connection has called a job of shard 0, which it also runs, and takes one of another shard.
// Shard 0 leaves, so the connection is to be closed. `nowhere`: the node of the other shard has
// died, so its job is granted when nobody is there to take it.
static void close_with_a_shard(uint64_t seed, bool nowhere) {
    struct sim_nodes *w = sim_nodes_create(seed, false);
    char moving[16], other[16];
    settle(w);
    uint32_t shard = shard_elsewhere(w);
    struct sim_node *drained = owner_of(w, 0), *second = owner_of(w, shard);
    struct sim_place *leaving = &drained->places[0];
    stage_of_shard(0, moving);
    stage_of_shard(shard, other);
    struct sim_wire *worker = sim_wire_connect(w, drained->index);
    ask(worker, "PUSH %s b%s\r\n", other, "");
    ask(worker, "HELLO 3\r\nCALL %s a LATER\r\nTAKE %s\r\n", moving, moving);
    while (!host_leases(&leaving->host))
        sim_nodes_step(w);
    if (nowhere)
        sim_node_kill(second);
    drained->is_drained = true;
    while (leaving->leaving != SIM_LEAVES)
        sim_nodes_step(w);
    ask(worker, "TAKE %s WAIT 60000%s\r\n", other, "");
    while (leaving->phase == SIM_RUNS)
        sim_nodes_step(w);
    assert_ptr_equal(owner_of(w, shard), nowhere ? NULL : second);
    while (is_open(w, worker))
        sim_nodes_step(w);
    expect_first_attempt(w, drained->index, other);
    sim_wire_close(w, worker);
    sim_nodes_destroy(w);
}

static void H3_a_connection_that_a_shard_leaves_with_costs_no_attempt(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        close_with_a_shard(seed, seed % 2);
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
        run_sound(&(struct nodes_plan){ .seed = seed, .flows = plan.flows }, &reached);
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

static bool word_read(const char *word, struct nodes_plan *plan) {
    plan->flows = plan->flows || strcmp(word, "flows") == 0;
    plan->files = plan->files || strcmp(word, "files") == 0;
    plan->sound_store = plan->sound_store || strcmp(word, "sound-store") == 0;
    for (int k = 0; k < PLANTS; k++)
        plan->plant = strcmp(word, plants[k].name) == 0 ? &plants[k] : plan->plant;
    return sscanf(word, "steps=%d", &plan->steps) == 1 ||
           sscanf(word, "without=%u", &plan->without) == 1;
}

static struct nodes_plan plan_read(int count, char **words) {
    struct nodes_plan plan = { .seed = strtoull(words[0], NULL, 10) };
    for (int i = 1; i < count; i++)
        (void)word_read(words[i], &plan);
    return plan;
}

static int run_one(int count, char **words) {
    struct nodes_reached reached = { 0 };
    char finding[NODES_FINDING];
    struct nodes_plan plan = plan_read(count, words);
    uint64_t began_ms = cpu_ms();
    plan.prints = true;
    bool fine = nodes_history_run(&plan, &reached, finding);
    print_reached(&reached, cpu_ms() - began_ms);
    puts(fine ? "nothing was wrong" : finding);
    return !fine;
}

// ---- Less of a history --------------------------------------------------------------------------

// Tries the plan; if it still fails, it is the new one.
static bool keep_if_found(const struct nodes_plan *less, struct nodes_plan *plan) {
    char finding[NODES_FINDING];
    if (!is_found(less, finding))
        return false;
    *plan = *less;
    print_message("%s: %s\n", plan_words(plan), finding);
    return true;
}

static void shrink_faults(struct nodes_plan *plan) {
    for (int i = 0; i < NODES_FAULTS; i++) {
        struct nodes_plan less = *plan;
        less.without |= 1u << i;
        keep_if_found(&less, plan);
    }
    struct nodes_plan less = *plan;
    less.sound_store = true;
    if (!plan->sound_store)
        keep_if_found(&less, plan);
}

// A history of fewer steps is the same up to there, so the least number is found by halves.
static void shrink_steps(struct nodes_plan *plan) {
    for (int low = 0, high = plan->steps ? plan->steps : 2500; high - low > 1;) {
        struct nodes_plan less = *plan;
        less.steps = low + (high - low) / 2;
        if (keep_if_found(&less, plan))
            high = less.steps;
        else
            low = less.steps;
    }
}

static int shrink(int count, char **words) {
    struct nodes_plan plan = plan_read(count, words);
    if (!keep_if_found(&plan, &plan)) {
        puts("nothing was wrong");
        return 0;
    }
    shrink_faults(&plan);
    shrink_steps(&plan);
    printf("the least: sim %s\n", plan_words(&plan));
    return 1;
}

int main(int count, char **words) {
    mallopt(M_MMAP_THRESHOLD, 1 << 20);   // what is large and hardly used stays untouched …
    mallopt(M_TRIM_THRESHOLD, 256 << 20); // … and the rest stays with this process
    struct CMUnitTest tests[PLANTS + SOUND] = {
        cmocka_unit_test(nothing_is_lost_or_done_twice_on_several_nodes),
        cmocka_unit_test(H4_emits_between_nodes_arrive_once_and_in_order_over_moves),
        cmocka_unit_test(nothing_is_lost_or_done_twice_on_files),
        cmocka_unit_test(H3_a_take_gets_jobs_of_other_shards_while_one_moves),
        cmocka_unit_test(H3_a_take_is_answered_in_its_time_though_its_shards_are_nowhere),
        cmocka_unit_test(H3_a_connection_that_a_shard_leaves_with_costs_no_attempt),
    };
    if (count > 2 && strcmp(words[1], "shrink") == 0)
        return shrink(count - 2, words + 2);
    if (count > 1 && words[1][0] >= '0' && words[1][0] <= '9')
        return run_one(count - 1, words + 1);
    if (count > 1)
        cmocka_set_test_filter(words[1]);
    for (int i = 0; i < PLANTS; i++)
        tests[SOUND + i] = (struct CMUnitTest){ .name = plants[i].name,
                                                .test_func = planted_mistake_is_found,
                                                .initial_state = (void *)&plants[i] };
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
