// Quotas: what a token may have of what it makes. The counts come from the records: a restart and a
// cleaning are checked after each command, and core_check compares them with what there is.
#include "support/core_fixture.h"

enum { ACME = 7, OTHER = 9 };

static struct maker_quota quota_of(enum quota_kind kind, uint64_t most) {
    struct maker_quota q = { .token = mr_str("acme") };
    q.most.of[kind] = most;
    return q;
}

static uint64_t used(struct core_fixture *t, uint64_t maker, enum quota_kind kind) {
    struct quotas all;
    core_used(t->core, maker, &all);
    return all.of[kind];
}

static int push_body(struct core_fixture *t, const char *body) {
    struct pushed out;
    return try_push(t, (struct push){ .stage = mr_str("s"), .body = mr_str(body) }, &out);
}

static void G13_a_token_at_its_quota_of_jobs_gets_FULL_and_others_do_not(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota two = quota_of(QUOTA_JOBS, 2);
    core_act_for(t->core, ACME, &two);
    must(push_body(t, "a"));
    must(push_body(t, "b"));
    refused(MR_EFULL, push_body(t, "c"));
    assert_string_equal(error_text(), "token 'acme' has 2 jobs, and its max-jobs is 2: jobs must "
                                      "end, or raise it in the server's file of tokens");
    core_act_for(t->core, OTHER, NULL);
    must(push_body(t, "d"));
    assert_int_equal(used(t, OTHER, QUOTA_JOBS), 0); // without a quota jobs are not counted
    done(t, take(t));
    core_act_for(t->core, ACME, &two);
    must(push_body(t, "c"));
    refused(MR_EFULL, push_body(t, "e"));
}

static void G13_counts_survive_restart_and_cleaning(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota q = quota_of(QUOTA_JOBS, 3);
    core_act_for(t->core, ACME, &q);
    must(push_body(t, "alpha"));
    must(push_body(t, "be"));
    uint64_t delayed = push_with(
        t, (struct push){ .stage = mr_str("s"),
                          .body = mr_str("c"),
                          .job = { .delay_ms = 50000, .meta = mr_str("trace"), .attempts = 3 } });
    clean(t);
    crash(t);
    clean(t);
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 3);
    assert_int_equal(used(t, ACME, QUOTA_BYTES), 5 + 2 + 6);
    core_act_for(t->core, ACME, &q);
    refused(MR_EFULL, push_body(t, "d"));
    assert_true(cancel(t, delayed));
    assert_int_equal(used(t, ACME, QUOTA_BYTES), 5 + 2);
    must(push_body(t, "d"));
}

// Dead jobs take room until they are dropped; a retry changes nothing.
static void G13_a_dead_job_counts_until_it_is_dropped(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota one = quota_of(QUOTA_JOBS, 1);
    core_act_for(t->core, ACME, &one);
    uint64_t id = push(t, "k", "a");
    must(fail_with(t, take(t), "no", MR_NEVER));
    crash(t);
    core_act_for(t->core, ACME, &one);
    refused(MR_EFULL, push_body(t, "b"));
    must(retry(t, id));
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 1);
    must(fail_with(t, take(t), "no", MR_NEVER));
    must(drop(t, id));
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 0);
    must(push_body(t, "b"));
}

static void G13_bytes_count_until_the_jobs_end(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota ten = quota_of(QUOTA_BYTES, 10);
    core_act_for(t->core, ACME, &ten);
    must(push_body(t, "12345678"));
    refused(MR_EFULL, push_body(t, "123"));
    assert_string_equal(error_text(),
                        "token 'acme' has 8 bytes, this job has 3, and its max-bytes is 10: jobs "
                        "must end, or raise it in the server's file of tokens");
    must(push_body(t, "12"));
    refused(MR_EFULL, push_body(t, "1"));
    done(t, take(t));
    refused(MR_EFULL, push_body(t, "123456789")); // never fits beside the other
    must(push_body(t, "1234567"));
}

// Emits are accepted beyond the quota, and count as the job does that has emitted them, whoever
// commits it.
static void G13_emits_count_and_are_accepted_beyond_the_quota(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota one = quota_of(QUOTA_JOBS, 1);
    core_act_for(t->core, ACME, &one);
    push(t, "k", "a");
    struct taken a = take(t);
    core_act_for(t->core, OTHER, NULL); // the worker's token
    struct emit emits[] = { { .stage = mr_str("s"), .body = mr_str("b") },
                            { .stage = mr_str("s"), .body = mr_str("c") } };
    must(try_done(t,
                  (struct done){ .id = a.id, .token = a.token, .emits = emits, .emit_count = 2 }));
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 2);
    core_act_for(t->core, ACME, &one);
    refused(MR_EFULL, push_body(t, "d"));
    done(t, take(t));
    refused(MR_EFULL, push_body(t, "d"));
    done(t, take(t));
    must(push_body(t, "d"));
}

// What a token emits from the jobs of others counts for it.
static void G13_emits_of_jobs_without_a_maker_count_for_the_worker(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota five = quota_of(QUOTA_JOBS, 5);
    push(t, "k", "a");
    struct taken a = take(t);
    core_act_for(t->core, ACME, &five);
    done_emit(t, a, "next", "k", "b");
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 1);
    assert_int_equal(used(t, ACME, QUOTA_STAGES), 1);
}

static int push_last(struct core_fixture *t, const char *body) {
    struct pushed out;
    return try_push(t,
                    (struct push){ .stage = mr_str("s"),
                                   .body = mr_str(body),
                                   .job = { .once = mr_str("n"), .last = true } },
                    &out);
}

static void G13_a_replaced_body_counts_instead_of_the_former(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota ten = quota_of(QUOTA_BYTES, 10);
    core_act_for(t->core, ACME, &ten);
    must(push_last(t, "12345678"));
    must(push_last(t, "1234567890"));
    assert_int_equal(used(t, ACME, QUOTA_BYTES), 10);
    refused(MR_EFULL, push_last(t, "1234567890a"));
    crash(t);
    must(push_last(t, "abc")); // by a token without a quota: it counts as before
    assert_int_equal(used(t, ACME, QUOTA_BYTES), 3);
    struct maker_quota other = quota_of(QUOTA_JOBS, 1);
    core_act_for(t->core, OTHER, &other);
    must(push_last(t, "abcd")); // and now for this one
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 0);
    assert_int_equal(used(t, OTHER, QUOTA_BYTES), 4);
    refused(MR_EFULL, push_body(t, "x"));
}

// A push at its quota is refused at once, also if it would wait for room: pushes of other tokens
// to that stage would wait behind it.
static void G13_a_push_beyond_the_quota_does_not_wait(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota one = quota_of(QUOTA_JOBS, 1);
    struct pushed out;
    core_act_for(t->core, ACME, &one);
    must(push_body(t, "a"));
    struct push waits = { .stage = mr_str("s"), .body = mr_str("b"), .pusher = &t->pushers[0] };
    refused(MR_EFULL, try_push(t, waits, &out));
    core_act_for(t->core, 0, NULL);
    must(push_body(t, "c"));
}

static void G13_repeats_are_answered_at_the_quota(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota one = quota_of(QUOTA_JOBS, 1);
    core_act_for(t->core, ACME, &one);
    uint64_t id = push_once(t, "k", "name", "a");
    struct push again = { .stage = mr_str("s"),
                          .body = mr_str("a"),
                          .job = { .key = mr_str("k"), .once = mr_str("name") } };
    struct pushed out;
    must(try_push(t, again, &out));
    assert_true(out.repeat && out.id == id);
}

static void G13_stages_are_bounded_by_the_quota(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota two = quota_of(QUOTA_STAGES, 2);
    struct pushed out;
    core_act_for(t->core, ACME, &two);
    push_to(t, "one", "", "a");
    push_to(t, "two", "", "b");
    struct push third = { .stage = mr_str("three"), .body = mr_str("c") };
    refused(MR_EFULL, try_push(t, third, &out));
    assert_non_null(strstr(error_text(), "token 'acme' has 2 stages, and its max-stages is 2"));
    crash(t);
    core_act_for(t->core, ACME, &two);
    refused(MR_EFULL, try_push(t, third, &out));
    assert_int_equal(used(t, ACME, QUOTA_STAGES), 2);
    core_act_for(t->core, OTHER, NULL);
    push_to(t, "three", "", "c");
    core_act_for(t->core, ACME, &two);
    push_to(t, "three", "", "d"); // is there
}

static int push_source(struct core_fixture *t, const char *name, bool epic) {
    struct pushed out;
    return try_push(t,
                    (struct push){ .stage = mr_str("s"),
                                   .body = mr_str(name),
                                   .source = mr_str(name),
                                   .scope = epic ? (mr_bytes){ 0 } : mr_str("acme"),
                                   .number = 1,
                                   .epic = epic },
                    &out);
}

static void G13_sources_and_epics_have_quotas_of_their_own(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota q = quota_of(QUOTA_SOURCES, 1);
    q.most.of[QUOTA_EPICS] = 2;
    core_act_for(t->core, ACME, &q);
    must(push_source(t, "source", false));
    refused(MR_EFULL, push_source(t, "second", false));
    assert_non_null(strstr(error_text(), "max-sources is 1"));
    must(push_source(t, "june", true));
    must(push_source(t, "july", true));
    refused(MR_EFULL, push_source(t, "august", true));
    assert_non_null(strstr(error_text(), "max-epics is 2"));
    crash(t);
    core_act_for(t->core, ACME, &q);
    assert_int_equal(used(t, ACME, QUOTA_SOURCES), 1);
    assert_int_equal(used(t, ACME, QUOTA_EPICS), 2);
    refused(MR_EFULL, push_source(t, "august", true));
    pass_ms(t, SOURCE_LEAST_MS);
    must(push_source(t, "second", false)); // the first was unused for long enough
    must(core_epic_drop(t->core, mr_str("s"), mr_str("june")));
    must(push_source(t, "august", true));
}

static bool counts_acme(void *owner, uint64_t maker) {
    (void)owner;
    return maker == ACME;
}

static void G13_schedules_have_a_quota_and_their_jobs_count(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota q = quota_of(QUOTA_SCHEDULES, 1);
    q.most.of[QUOTA_JOBS] = 1;
    core_fixture_close(t);
    t->quotas.counts_jobs = counts_acme;
    core_fixture_open(t);
    core_act_for(t->core, ACME, &q);
    schedule(t, "a", "", "x", 1000);
    refused(MR_EFULL, try_schedule(t, (struct schedule_spec){ .name = mr_str("b") }, 1000));
    assert_non_null(strstr(error_text(), "token 'acme' has 1 schedule, and its max-schedules"));
    core_act_for(t->core, 0, NULL);
    run_tick(t, 1000, (struct tick){ true, 1000, 2000, false });
    run_tick(t, 2000, (struct tick){ true, 2000, 3000, false }); // beyond the quota of jobs
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 2);
    schedule(t, "other", "", "y", 2500); // of no maker
    run_tick(t, 2500, (struct tick){ true, 2500, 3500, false });
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 2);
    core_act_for(t->core, ACME, &q);
    refused(MR_EFULL, push_body(t, "z"));
}

// The job of THEN counts for the token that has made the epic, and is pushed beyond its quota.
static void G13_the_job_of_THEN_counts_for_the_maker_of_the_epic(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota two = quota_of(QUOTA_JOBS, 2);
    struct emit then = { .stage = mr_str("s"), .body = mr_str("then") };
    core_fixture_close(t);
    t->quotas.counts_jobs = counts_acme;
    core_fixture_open(t);
    core_act_for(t->core, ACME, &two);
    must(push_number(t, "june", 1, "last"));
    must(core_epic_then(t->core, mr_str("s"), mr_str("june"), &then));
    must(end_epic(t, "june", 1));
    must(push_body(t, "other"));
    struct taken last = take(t);
    core_act_for(t->core, OTHER, NULL);
    done_emit(t, last, "s", "", "emitted");
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 3); // the other, the emit, and THEN
    assert_int_equal(used(t, ACME, QUOTA_BYTES), 5 + 7 + 4);
    crash(t);
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 3);
}

// An emit to another shard counts until that shard has it, also over a restart, and there it counts
// for the same maker.
static void G13_an_emit_under_way_counts(void **state) {
    struct core_fixture *t = *state;
    struct maker_quota two = quota_of(QUOTA_JOBS, 2);
    in_shards(t, 2);
    core_act_for(t->core, ACME, &two);
    push_to(t, stage_in(0, 2), "k", "a");
    struct taken a = take_from(t, stage_in(0, 2));
    core_act_for(t->core, 0, NULL);
    done_emit(t, a, stage_in(1, 2), "k", "b");
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 1);
    clean(t);
    crash(t);
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 1);
    struct link_entry e;
    assert_true(core_link_next(t->core, 1, 0, &e));
    assert_int_equal(e.job_maker, ACME);
    acked(t, 1, e.number);
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 0);
    struct link_entry from_there = {
        .number = 5, .stage = mr_str(stage_in(0, 2)), .maker = OTHER, .job_maker = ACME
    };
    must(arrive(t, 1, from_there, "back"));
    assert_int_equal(used(t, ACME, QUOTA_JOBS), 1);
    assert_int_equal(used(t, ACME, QUOTA_BYTES), 4);
}

// With other shards the sums of all of them decide.
struct sums {
    int64_t by_core[QUOTA_KINDS];
    uint64_t elsewhere;
};

static void on_changed(void *owner, uint64_t maker, enum quota_kind kind, int64_t by) {
    if (maker == ACME)
        ((struct sums *)owner)->by_core[kind] += by;
}

static uint64_t on_used(void *owner, uint64_t maker, enum quota_kind kind) {
    const struct sums *sums = owner;
    return maker == ACME ? (uint64_t)sums->by_core[kind] + sums->elsewhere : 0;
}

static void G13_what_other_shards_have_counts_too(void **state) {
    struct core_fixture *t = *state;
    struct sums sums = { .elsewhere = 1 };
    struct maker_quota three = quota_of(QUOTA_JOBS, 3);
    core_fixture_close(t);
    t->quotas = (struct core_quotas){ .changed = on_changed, .used = on_used, .owner = &sums };
    core_fixture_open(t);
    core_act_for(t->core, ACME, &three);
    must(push_body(t, "a"));
    must(push_body(t, "b"));
    refused(MR_EFULL, push_body(t, "c"));
    sums.elsewhere = 0;
    must(push_body(t, "c"));
    crash(t);
    struct quotas all;
    core_used(t->core, ACME, &all);
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        assert_int_equal(all.of[kind], sums.by_core[kind]);
    assert_int_equal(sums.by_core[QUOTA_JOBS], 3);
    core_fixture_close(t); // a shard that goes takes its counts with it
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        assert_int_equal(sums.by_core[kind], 0);
    t->quotas = (struct core_quotas){ 0 };
    core_fixture_open(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(G13_a_token_at_its_quota_of_jobs_gets_FULL_and_others_do_not),
        CORE_TEST(G13_counts_survive_restart_and_cleaning),
        CORE_TEST(G13_a_dead_job_counts_until_it_is_dropped),
        CORE_TEST(G13_bytes_count_until_the_jobs_end),
        CORE_TEST(G13_emits_count_and_are_accepted_beyond_the_quota),
        CORE_TEST(G13_emits_of_jobs_without_a_maker_count_for_the_worker),
        CORE_TEST(G13_a_replaced_body_counts_instead_of_the_former),
        CORE_TEST(G13_a_push_beyond_the_quota_does_not_wait),
        CORE_TEST(G13_repeats_are_answered_at_the_quota),
        CORE_TEST(G13_stages_are_bounded_by_the_quota),
        CORE_TEST(G13_sources_and_epics_have_quotas_of_their_own),
        CORE_TEST(G13_schedules_have_a_quota_and_their_jobs_count),
        CORE_TEST(G13_the_job_of_THEN_counts_for_the_maker_of_the_epic),
        CORE_TEST(G13_an_emit_under_way_counts),
        CORE_TEST(G13_what_other_shards_have_counts_too),
    };
    return RUN_CORE_TESTS(tests);
}
