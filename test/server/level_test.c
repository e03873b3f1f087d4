// LEVEL: how many jobs a client should run at once, learned from the jobs that it ends.
#include "support/dialogue.h"

#include "base/mem.h"
#include "server/levels.h"

#include <stdio.h>
#include <stdlib.h>

enum { TAKES, ENDS, OTHER }; // a client takes on one connection, ends and asks on another

static void name_clients(struct dialogue *d) {
    connect_client(d, OTHER);
    ask(d, TAKES, "CLIENT SETNAME worker-1", "+OK");
    ask(d, ENDS, "CLIENT SETNAME worker-1", "+OK");
    ask(d, OTHER, "CLIENT SETNAME worker-2", "+OK");
}

static uint32_t level_of(struct dialogue *d, int client) {
    send_line(d, client, "LEVEL s");
    const char *reply = next_reply(d, client);
    assert_int_equal(reply[0], ':');
    return (uint32_t)strtoul(reply + 1, NULL, 10);
}

// Runs as many jobs at once as the level says, for `ms` each, slower if there are more than
// `places`; returns the level at the end.
static uint32_t work(struct dialogue *d, uint32_t rounds, uint64_t ms, uint32_t places) {
    static struct job jobs[CLIMB_MOST];
    uint32_t level = level_of(d, ENDS);
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < level; i++)
            push(d, "s a");
        for (uint32_t i = 0; i < level; i++)
            jobs[i] = take(d, TAKES, "s");
        pass_ms(d, level > places ? ms * level / places : ms);
        for (uint32_t i = 0; i < level; i++) {
            send_linef(d, ENDS, "DONE %s %s", jobs[i].id, jobs[i].token);
            expect_reply(d, ENDS, "+OK");
        }
        level = level_of(d, ENDS);
    }
    return level;
}

static void K6_LEVEL_needs_a_name(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "LEVEL s", "-ERR LEVEL needs a client with a name * CLIENT SETNAME name*");
    ask(d, 0, "CLIENT SETNAME w", "+OK");
    ask(d, 0, "LEVEL s", ":2");
    ask(d, 0, "STAGES", "[]"); // it makes no stage
}

static void K6_LEVEL_rises_while_more_at_once_complete_more(void **state) {
    struct dialogue *d = *state;
    name_clients(d);
    assert_in_range(work(d, 12, 200, UINT32_MAX), 100, CLIMB_MOST);
    assert_int_equal(level_of(d, OTHER), CLIMB_FIRST); // another client has its own
}

// The connection that takes has begun with another stage.
static void K6_a_job_counts_for_its_own_stage(void **state) {
    struct dialogue *d = *state;
    name_clients(d);
    ask(d, TAKES, "TAKE t", "[]");
    assert_in_range(work(d, 12, 200, UINT32_MAX), 100, CLIMB_MOST);
}

static void K6_LEVEL_stays_where_more_at_once_bring_nothing(void **state) {
    struct dialogue *d = *state;
    name_clients(d);
    uint32_t sum = 0;
    (void)work(d, 60, 200, 4);
    for (int i = 0; i < 40; i++)
        sum += work(d, 1, 200, 4);
    assert_in_range(sum / 40, 3, 8);
}

static void K6_jobs_of_other_clients_do_not_count(void **state) {
    struct dialogue *d = *state;
    name_clients(d);
    assert_int_equal(level_of(d, ENDS), CLIMB_FIRST);
    for (int i = 0; i < 200; i++) {
        push(d, "s a");
        struct job job = take(d, OTHER, "s");
        pass_ms(d, 50);
        send_linef(d, OTHER, "DONE %s %s", job.id, job.token);
        expect_reply(d, OTHER, "+OK");
    }
    assert_int_equal(level_of(d, ENDS), CLIMB_FIRST);
}

static struct client_level *make(struct levels *l, uint64_t maker, int client, uint64_t now_ms) {
    char name[24];
    snprintf(name, sizeof name, "client %d", client);
    struct level_key key = { maker, mr_str(name), mr_str("s") };
    assert_null(levels_find(l, &key));
    struct client_level *made = levels_make(l, &key, now_ms);
    assert_non_null(made);
    assert_ptr_equal(levels_find(l, &key), made);
    return made;
}

static bool has(const struct levels *l, uint64_t maker, int client) {
    char name[24];
    snprintf(name, sizeof name, "client %d", client);
    return levels_find(l, &(struct level_key){ maker, mr_str(name), mr_str("s") });
}

static void K6_a_token_that_asks_for_many_levels_displaces_its_own(void **state) {
    (void)state;
    struct levels l;
    levels_init(&l);
    assert_false(levels_exist(&l));
    make(&l, 1, 0, 0);
    for (int i = 0; i < 3 * LEVELS_MOST; i++)
        make(&l, 2, i, (uint64_t)i + 1);
    assert_true(has(&l, 1, 0));
    assert_false(has(&l, 2, 0));
    assert_true(has(&l, 2, 3 * LEVELS_MOST - 1));
    assert_int_equal(l.slab.used, 1 + LEVELS_SHARE);
    levels_finish(&l);
}

static void K6_levels_are_limited_in_number_and_size(void **state) {
    (void)state;
    struct levels l;
    levels_init(&l);
    for (int i = 0; i < 2 * LEVELS_MOST; i++)
        make(&l, (uint64_t)i, i, (uint64_t)i);
    assert_in_range(l.slab.used, LEVELS_MOST - 2, LEVELS_MOST);
    assert_true(has(&l, 2 * LEVELS_MOST - 1, 2 * LEVELS_MOST - 1));
    assert_true(sizeof(struct client_level) + sizeof(struct map_slot) * 2 <= 200);
    levels_finish(&l);
}

// What begins like this hashes the same whatever the next eight bytes are: a client can choose it.
#define SAME_HASH "\xb8\xfe\x6c\x39\x23\xa4\x4b\xbe"

static void K6_clients_whose_names_hash_the_same_have_levels_of_their_own(void **state) {
    (void)state;
    struct level_key a = { 0, mr_str(SAME_HASH "worker 1, of the company"), mr_str("s") }, b = a;
    b.client = mr_str(SAME_HASH "worker 2, of the company");
    assert_int_equal(bytes_hash(a.client, 0), bytes_hash(b.client, 0));
    struct levels l;
    levels_init(&l);
    struct client_level *of_a = levels_make(&l, &a, 0);
    assert_null(levels_find(&l, &b));
    struct client_level *of_b = levels_make(&l, &b, 0);
    assert_ptr_equal(levels_find(&l, &a), of_a);
    assert_ptr_equal(levels_find(&l, &b), of_b);
    levels_finish(&l);
}

// Names that are one text together are not the same.
static void K6_the_end_of_a_name_counts(void **state) {
    (void)state;
    struct levels l;
    levels_init(&l);
    assert_non_null(levels_make(&l, &(struct level_key){ 0, mr_str("ab"), mr_str("c") }, 0));
    assert_null(levels_find(&l, &(struct level_key){ 0, mr_str("a"), mr_str("bc") }));
    assert_null(levels_find(&l, &(struct level_key){ 1, mr_str("ab"), mr_str("c") }));
    levels_finish(&l);
}

static void K6_a_level_that_finds_no_memory_changes_nothing(void **state) {
    (void)state;
    struct level_key key = { 0, mr_str("client"), mr_str("s") };
    struct levels l;
    levels_init(&l);
    long successes = 0;
    for (mem_fail_after(0); !levels_make(&l, &key, 0); mem_fail_after(++successes)) {
        assert_null(levels_find(&l, &key));
        assert_false(levels_exist(&l));
    }
    mem_fail_after(-1);
    assert_true(successes >= 2);
    assert_non_null(levels_find(&l, &key));
    levels_finish(&l);
}

int main(void) {
    const struct CMUnitTest any[] = {
        DIALOGUE(K6_LEVEL_needs_a_name),
        DIALOGUE(K6_LEVEL_rises_while_more_at_once_complete_more),
        DIALOGUE(K6_a_job_counts_for_its_own_stage),
        DIALOGUE(K6_LEVEL_stays_where_more_at_once_bring_nothing),
        DIALOGUE(K6_jobs_of_other_clients_do_not_count),
    };
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(K6_a_token_that_asks_for_many_levels_displaces_its_own),
        cmocka_unit_test(K6_levels_are_limited_in_number_and_size),
        cmocka_unit_test(K6_clients_whose_names_hash_the_same_have_levels_of_their_own),
        cmocka_unit_test(K6_the_end_of_a_name_counts),
        cmocka_unit_test(K6_a_level_that_finds_no_memory_changes_nothing),
    };
    return DIALOGUES(any, alone);
}
