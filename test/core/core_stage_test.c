// Stages: whether they may start, which takers are woken, what queries return, and that a restart
// keeps it. Rules 13 (back pressure), 14, 15, 18 and 20, on the bare core.
#include "support/core_fixture.h"

// ---- Rule 2: waiting takers -------------------------------------------------------------------

static void S10_as_many_wake_as_there_is_work(void **state) {
    struct core_fixture *t = *state;
    wait_for_work(t, 0, "s");
    wait_for_work(t, 1, "s");
    wait_for_work(t, 2, "s");
    push(t, "k", "a");
    expect_events(t, "taker 0: a\n");
    push(t, "k", "b"); // its channel is in progress: no taker wakes
    expect_events(t, "");
    push(t, "l", "c");
    expect_events(t, "taker 1: c\n");
    assert_int_equal(look_stage(t, "s").takers, 1);
}

static void S10_the_end_of_one_job_wakes_a_take_for_the_next(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "k", "b");
    struct taken a = take(t);
    wait_for_work(t, 1, "s");
    done(t, a);
    expect_events(t, "taker 1: b\n");
    lose(t, 1); // the job of a lost worker goes to a waiting taker
    wait_for_work(t, 2, "none-yet");
    assert_int_equal(take(t).attempt, 2);
}

static void S10_a_taker_is_claimed_before_it_is_given_work(void **state) {
    struct core_fixture *t = *state;
    wait_for_work(t, 0, "s");
    wait_for_work(t, 1, "s");
    t->unresponsive[0] = true;
    push(t, "k", "a");
    expect_events(t, "taker 1: a\n");
}

static void S10_a_cancelled_take_gets_no_job(void **state) {
    struct core_fixture *t = *state;
    wait_for_work(t, 0, "s");
    wait_for_work(t, 1, "s");
    lose(t, 0);
    core_take_leave(t->core, &t->takers[1]);
    uint64_t a = push(t, "k", "a");
    expect_events(t, "");
    expect_status(t, a, JOB_WAITING);
}

// ---- Rule 14: limits --------------------------------------------------------------------------

// S8: in flight is the least of what workers ask for and what the stage allows.
static void A2_below_the_limit_work_starts_at_it_work_queues(void **state) {
    struct core_fixture *t = *state;
    struct taken held[8];
    set(t, "concurrency", "5");
    for (int i = 0; i < 7; i++)
        push(t, "", (const char[]){ (char)('0' + i), 0 });
    assert_int_equal(try_take(t, (struct take){ .count = 8 }, held), 5);
    expect_held(t, "s", "limit");
    wait_for_work(t, 1, "s");
    done(t, held[3]);
    expect_events(t, "taker 1: 5\n");
    set(t, "concurrency", "none");
    expect_take(t, "6");
}

static void rule14_a_rate_spreads_starts_over_time(void **state) {
    struct core_fixture *t = *state;
    set(t, "rate", "10/s");
    for (int i = 0; i < 50; i++)
        push(t, "", "a");
    int started = 0;
    for (int ms = 0; ms < 2000; ms += 50) {
        struct taken a;
        while (try_take(t, (struct take){ 0 }, &a)) {
            done(t, a);
            started++;
        }
        expect_held(t, "s", "rate");
        pass_ms(t, 50);
    }
    assert_in_range(started, 20, 21);
}

static void rule14_a_taker_held_by_the_rate_is_woken_by_time(void **state) {
    struct core_fixture *t = *state;
    set(t, "rate", "1/s");
    push(t, "", "a");
    push(t, "", "b");
    expect_take(t, "a");
    wait_for_work(t, 0, "s");
    pass_ms(t, 800);
    expect_events(t, "");
    pass_ms(t, 200);
    expect_events(t, "taker 0: b\n");
}

// Two nodes may give a job to one TAKE: the one too many goes back as if it had not been taken.
static void rule14_a_job_that_goes_back_unused_gives_back_the_rate(void **state) {
    struct core_fixture *t = *state;
    set(t, "rate", "1/s");
    push(t, "", "a");
    struct taken a = take(t);
    expect_no_work(t);
    core_give_back_last(t->core, &t->conns[0], 1);
    assert_int_equal(done_again(t, a), MR_ESTALE);
    a = take(t);
    assert_int_equal(a.attempt, 1);
    assert_string_equal(a.body, "a");
}

// ---- Rule 15: delay, pause, drain -------------------------------------------------------------

static void rule15_a_delayed_job_joins_when_due(void **state) {
    struct core_fixture *t = *state;
    uint64_t late = push_with(
        t, (struct push){ .job.key = mr_str("k"), .body = mr_str("late"), .job.delay_ms = 100 });
    expect_status(t, late, JOB_DELAYED);
    expect_held(t, "s", "delay");
    push(t, "k", "soon");
    pass_ms(t, 100);
    push(t, "k", "after");
    expect_order(t, "k", "soon late after");
    crash(t);
    expect_order(t, "k", "soon late after");
}

static void rule15_a_delayed_job_is_made_due(void **state) {
    struct core_fixture *t = *state;
    uint64_t late = push_with(
        t, (struct push){ .job.key = mr_str("k"), .body = mr_str("late"), .job.delay_ms = 100 });
    uint64_t alone = push_with(t, (struct push){ .body = mr_str("alone"), .job.delay_ms = 100 });
    uint64_t soon = push(t, "k", "soon");
    assert_false(due(t, soon));
    pass_ms(t, 50);
    assert_true(due(t, late));
    assert_false(due(t, late));
    push(t, "k", "after");
    expect_order(t, "k", "soon late after");
    assert_true(due(t, alone));
    clean(t);
    crash(t);
    expect_order(t, "k", "soon late after");
    expect_take(t, "soon");
    expect_take(t, "alone");
    expect_take(t, "late");
    expect_take(t, "after");
    assert_false(due(t, soon));
    bool changed;
    refused(MR_EGONE, core_due(t->core, 12345, &changed));
}

static void rule15_what_waits_after_an_attempt_is_made_due(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push(t, "k", "a");
    push(t, "k", "b");
    must(fail_with(t, take(t), "no", 1000));
    expect_no_work(t);
    assert_true(due(t, a));
    crash(t);
    struct taken again = take(t);
    assert_string_equal(again.body, "a");
    assert_int_equal(again.attempt, 2);
    assert_false(due(t, a)); // it runs
    must(snooze_job(t, again, 1000));
    wait_for_work(t, 0, "s");
    assert_true(due(t, a));
    expect_events(t, "taker 0: a\n");
}

static void rule15_a_paused_key_waits_alone(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "k", "b");
    push(t, "l", "c");
    struct taken a = take(t);
    must(pause_key(t, "k")); // what runs may end
    done(t, a);
    expect_state(t, "k", CHANNEL_PARKED);
    expect_take(t, "c");
    expect_no_work(t);
    expect_held(t, "s", "paused-keys");
    push(t, "k", "d");
    clean(t);
    crash(t);
    expect_no_work(t);
    resume_stage(t, "s"); // is about the stage only
    expect_no_work(t);
    must(resume_key(t, "k"));
    must(resume_key(t, "k"));
    expect_take(t, "b");
    expect_take(t, "d");
    crash(t);
    push(t, "k", "e");
    expect_take(t, "e");
}

static void rule15_an_empty_key_stays_paused(void **state) {
    struct core_fixture *t = *state;
    must(pause_key(t, "k"));
    must(pause_key(t, "k"));
    expect_state(t, "k", CHANNEL_DORMANT);
    crash(t);
    uint64_t a = push(t, "k", "a");
    expect_state(t, "k", CHANNEL_PARKED);
    push_with(t, (struct push){ .job.key = mr_str("k"), .body = mr_str("b"), .job.delay_ms = 10 });
    pass_ms(t, 10);
    expect_no_work(t);
    assert_false(due(t, a));
    assert_true(cancel(t, a));
    expect_order(t, "k", "b");
    wait_for_work(t, 0, "s");
    must(resume_key(t, "k"));
    expect_events(t, "taker 0: b\n");
    refused(MR_EINVAL, pause_key(t, ""));
    refused(MR_EINVAL, resume_key(t, ""));
    must(resume_key(t, "unknown"));
    expect_unknown(t, "unknown");
}

static void rule15_so_many_keys_are_paused(void **state) {
    struct core_fixture *t = *state;
    char key[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        must(core_pause_key(t->core, mr_str("t"), mr_str(key)));
    }
    refused(MR_EFULL, core_pause_key(t->core, mr_str("t"), mr_str("one more")));
    must(core_pause_key(t->core, mr_str("t"), mr_str("k0")));
    must(core_resume_key(t->core, mr_str("t"), mr_str("k0")));
    must(core_pause_key(t->core, mr_str("t"), mr_str("one more")));
    refused(MR_EINVAL, core_stage_remove(t->core, mr_str("t")));
    core_fixture_check(t->core, "many paused keys");
}

static void rule15_equal_instants_join_by_id(void **state) {
    struct core_fixture *t = *state;
    push_with(t, (struct push){ .job.key = mr_str("k"), .body = mr_str("a"), .job.delay_ms = 100 });
    pass_ms(t, 50);
    push_with(t, (struct push){ .job.key = mr_str("k"), .body = mr_str("b"), .job.delay_ms = 50 });
    push_with(t, (struct push){ .job.key = mr_str("k"), .body = mr_str("c"), .job.delay_ms = 50 });
    pass_ms(t, 50);
    expect_order(t, "k", "a b c");
}

// Due while the engine was down, it stands where it would have stood.
static void rule15_due_in_the_engines_absence(void **state) {
    struct core_fixture *t = *state;
    push_with(t,
              (struct push){ .job.key = mr_str("k"), .body = mr_str("late"), .job.delay_ms = 100 });
    t->now_ms += 200;
    crash(t);
    push(t, "k", "after");
    expect_order(t, "k", "late after");
    expect_take(t, "late");
}

static void rule15_pause_accepts_and_does_not_start(void **state) {
    struct core_fixture *t = *state;
    pause_stage(t, "s");
    push(t, "k", "a");
    wait_for_work(t, 0, "s");
    expect_held(t, "s", "paused");
    crash(t);
    expect_no_work(t);
    wait_for_work(t, 0, "s");
    resume_stage(t, "s");
    expect_events(t, "taker 0: a\n");
}

static void rule15_drain_finishes_and_refuses_pushes_not_emits(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    push(t, "k", "a");
    push_to(t, "up", "", "b");
    drain_stage(t, "s");
    refused(MR_EDRAINING, try_push(t, (struct push){ .body = mr_str("c") }, &pushed));
    done_emit(t, take_from(t, "up"), "s", "k", "emitted");
    crash(t);
    refused(MR_EDRAINING, try_push(t, (struct push){ .body = mr_str("c") }, &pushed));
    expect_take(t, "a");
    expect_take(t, "emitted");
    expect_held(t, "s", "draining");
    resume_stage(t, "s");
    push(t, "", "c");
}

// ---- Rule 13: back pressure -------------------------------------------------------------------

static void move_on(struct core_fixture *t, const char *from, const char *to) {
    done_emit(t, take_from(t, from), to, "", "moved");
}

static bool has_work(struct core_fixture *t, const char *stage) {
    struct taken taken;
    mr_bytes name = mr_str(stage);
    if (!try_take(t, (struct take){ .stages = &name, .stage_count = 1 }, &taken))
        return false;
    must(release_job(t, taken));
    return true;
}

static void rule13_a_stage_is_held_while_its_downstream_is_over_the_mark(void **state) {
    struct core_fixture *t = *state;
    set_on(t, "out", "high-mark", "4");
    link_stages(t, "in", "out");
    for (int i = 0; i < 8; i++)
        push_to(t, "in", "", "a");
    for (int i = 0; i < 4; i++)
        move_on(t, "in", "out");
    expect_held(t, "in", "downstream:out");
    assert_false(has_work(t, "in"));
    wait_for_work(t, 0, "in");
    done(t, take_from(t, "out"));
    expect_events(t, ""); // until it is under the low mark, which is half
    done(t, take_from(t, "out"));
    expect_events(t, "taker 0: a\n");
}

static void rule13_edges_are_learned(void **state) {
    struct core_fixture *t = *state;
    set_on(t, "out", "high-mark", "2");
    for (int i = 0; i < 4; i++)
        push_to(t, "in", "", "a");
    move_on(t, "in", "out");
    move_on(t, "in", "out");
    expect_held(t, "in", "downstream:out");
}

// Emits are always accepted, whatever the room.
static void rule13_emits_find_room_where_pushes_do_not(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    set_on(t, "out", "max-jobs", "1");
    push_to(t, "out", "", "full");
    push_to(t, "in", "", "a");
    struct push p = { .stage = mr_str("out"), .body = mr_str("b") };
    refused(MR_EFULL, try_push(t, p, &pushed));
    pause_stage(t, "out");
    move_on(t, "in", "out");
    assert_int_equal(look_stage(t, "out").waiting, 2);
}

static void rule13_inside_a_cycle_nothing_is_held_but_pushes_into_it(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    set_on(t, "a", "high-mark", "2");
    set_on(t, "b", "high-mark", "2");
    link_stages(t, "a", "b");
    link_stages(t, "b", "a");
    push_to(t, "a", "", "1");
    push_to(t, "a", "", "2");
    struct push p = { .stage = mr_str("a"), .body = mr_str("3") };
    refused(MR_EFULL, try_push(t, p, &pushed));
    move_on(t, "a", "b");
    move_on(t, "a", "b"); // now b is over its mark
    push_to(t, "a", "", "3");
    move_on(t, "a", "b");
    for (int i = 0; i < 5; i++) {
        move_on(t, "b", "a");
        move_on(t, "b", "a");
        move_on(t, "a", "b");
        move_on(t, "a", "b");
    }
    push_to(t, "a", "", "4");
    expect_held(t, "a", "no-worker");
}

static void rule13_stuck_is_shown_when_no_stage_can_start(void **state) {
    struct core_fixture *t = *state;
    set_on(t, "out", "high-mark", "2");
    link_stages(t, "in", "out");
    push_to(t, "out", "", "1");
    push_to(t, "out", "", "2");
    push_to(t, "in", "", "3");
    expect_held(t, "in", "downstream:out");
    pause_stage(t, "out");
    expect_held(t, "in", "downstream:out stuck");
    resume_stage(t, "out");
    expect_held(t, "in", "downstream:out");
}

// ---- Very many stages -------------------------------------------------------------------------

static mr_bytes nth_stage(int n) {
    static char names[2][16];
    static int which;
    which = !which;
    snprintf(names[which], sizeof names[which], "g%d", n);
    return mr_str(names[which]);
}

// A stage over its high mark, with a job that could start.
static void fill_stage(struct core_fixture *t, int n) {
    struct pushed pushed;
    struct push p = { .stage = nth_stage(n), .body = mr_str("x") };
    must(core_push(t->core, &p, &pushed));
    must(core_set(t->core, nth_stage(n), mr_str("high-mark"), mr_str("1")));
}

static bool is_held_downstream(struct core_fixture *t, int n) {
    struct stage_info info;
    must(core_look_stage(t->core, nth_stage(n), &info));
    return strncmp(info.held_by, "downstream:", 11) == 0;
}

enum { NODES = 8 };

static void close_over(bool (*reaches)[NODES]) {
    for (int via = 0; via < NODES; via++)
        for (int a = 0; a < NODES; a++)
            for (int b = 0; b < NODES; b++)
                reaches[a][b] = reaches[a][b] || (reaches[a][via] && reaches[via][b]);
}

// Rule 13: whatever the graph, and in whatever order its edges are learned, those that are part of
// a cycle hold nothing and all others do.
static void rule13_cycles_are_found_in_any_graph(void **state) {
    uint64_t random = 1;
    (void)state;
    for (int graph = 0; graph < 300; graph++) {
        struct core_fixture *t = core_fixture_create(MODE_PLAIN, (struct core_limits){ 0 });
        bool edges[NODES][NODES] = { 0 }, reaches[NODES][NODES];
        for (int i = 0; i < NODES; i++)
            fill_stage(t, i);
        for (int i = 0; i < 4 + graph % 12; i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            int from = random >> 40 & (NODES - 1), to = random >> 50 & (NODES - 1);
            must(core_learn_edge(t->core, nth_stage(from), nth_stage(to), 0));
            edges[from][to] = true;
        }
        memcpy(reaches, edges, sizeof edges);
        close_over(reaches);
        for (int a = 0; a < NODES; a++) {
            bool held = false;
            for (int b = 0; b < NODES; b++)
                held = held || (edges[a][b] && !reaches[b][a]);
            assert_int_equal(is_held_downstream(t, a), held);
        }
        core_fixture_destroy(t);
    }
}

// U4: an edge costs a bounded search. If that was not enough the edge holds nothing, so that a
// cycle cannot stand still.
static void U4_a_search_for_cycles_is_bounded(void **state) {
    struct core_fixture *t = core_fixture_create(MODE_PLAIN, (struct core_limits){ 0 });
    enum { STAGES = 6000 };
    (void)state;
    for (int i = 0; i < STAGES; i++)
        fill_stage(t, i);
    for (int i = 0; i < STAGES; i++) {
        (void)core_take_steps(t->core);
        must(core_learn_edge(t->core, nth_stage(i), nth_stage((i + 1) % STAGES), 0));
        if (i < STAGES - 1)
            assert_true(core_take_steps(t->core) < 10);
    }
    assert_in_range(core_take_steps(t->core), 4000, 5000);
    for (int i = 0; i < STAGES; i++)
        assert_int_equal(is_held_downstream(t, i), i < STAGES - 1);
    (void)core_take_steps(t->core);
    assert_true(is_held_downstream(t, 1));
    assert_true(core_take_steps(t->core) < 50); // not all of those downstream are visited
    core_fixture_destroy(t);
}

// U4: a stage that comes under its mark wakes those that emit to it, without visiting others.
static void U4_stages_upstream_are_found_without_a_search(void **state) {
    struct core_fixture *t = core_fixture_create(MODE_PLAIN, (struct core_limits){ 0 });
    enum { STAGES = 1000, UPSTREAM = 3 };
    (void)state;
    for (int i = 0; i < STAGES; i++)
        fill_stage(t, i);
    for (int i = 1; i <= UPSTREAM; i++) {
        must(core_learn_edge(t->core, nth_stage(i), nth_stage(0), 0));
        mr_bytes stage = nth_stage(i);
        struct take take = { .stages = &stage, .stage_count = 1, .taker = &t->takers[i] };
        struct grant grant;
        size_t granted;
        assert_int_equal(core_take(t->core, &take, &grant, &granted), MR_EAGAIN);
    }
    (void)core_take_steps(t->core);
    must(core_drop(t->core, 1));
    expect_events(t, "taker 1: x\ntaker 2: x\ntaker 3: x\n");
    assert_true(core_take_steps(t->core) <= 10 * UPSTREAM);
    must(core_stage_remove(t->core, nth_stage(0)));
    assert_true(core_take_steps(t->core) <= UPSTREAM + 10);
    core_fixture_check(t->core, "in the end");
    core_fixture_destroy(t);
}

// U4: at the limit of stages a few empty ones make room, not all, and none of another maker.
static void U4_a_few_empty_stages_make_room(void **state) {
    enum { STAGES = 400 };
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_stages = STAGES });
    struct pushed pushed;
    (void)state;
    for (int i = 0; i < STAGES; i++) {
        struct push p = { .stage = nth_stage(i), .body = mr_str("x") };
        core_act_for(t->core, 1 + (uint64_t)i / 100, NULL);
        must(core_push(t->core, &p, &pushed));
        must(core_drop(t->core, pushed.id));
    }
    size_t known = core_stage_count(t->core);
    core_act_for(t->core, 2, NULL);
    for (int i = 0; i < 100; i++) {
        struct push p = { .stage = nth_stage(STAGES + i), .body = mr_str("x") };
        must(core_push(t->core, &p, &pushed));
        assert_in_range(core_stage_count(t->core), known - 20, known + 1);
        known = core_stage_count(t->core);
    }
    struct push p = { .stage = nth_stage(2 * STAGES), .body = mr_str("x") };
    refused(MR_EFULL, core_push(t->core, &p, &pushed));
    assert_int_equal(core_stage_count(t->core), STAGES);
    core_fixture_destroy(t);
}

// ---- Rule 20: summaries -----------------------------------------------------------------------

static void rule20_held_by_names_why_a_stage_waits(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    expect_held(t, "s", "no-worker");
    pause_stage(t, "s");
    expect_held(t, "s", "paused");
    resume_stage(t, "s");
    fail_job(t, take(t));
    expect_held(t, "s", "backoff");
    set(t, "on-dead", "halt");
    pass_ms(t, 10000);
    must(fail_with(t, take(t), "no", MR_NEVER));
    expect_held(t, "s", "halted");
    push(t, "l", "b");
    set(t, "concurrency", "1");
    take(t);
    push(t, "m", "c");
    expect_held(t, "s", "limit");
    set_on(t, "empty", "lease", "1000");
    expect_held(t, "empty", "");
}

static void rule20_ages_are_seen_without_a_scan(void **state) {
    struct core_fixture *t = *state;
    struct channel_info k;
    push(t, "k", "a");
    pass_ms(t, 1000);
    push(t, "l", "b");
    pass_ms(t, 500);
    assert_int_equal(look_stage(t, "s").oldest_ms, 1500);
    must(core_look_channel(t->core, mr_str("s"), mr_str("l"), &k));
    assert_int_equal(k.oldest_ms, 500);
    expect_take(t, "a");
    assert_int_equal(look_stage(t, "s").oldest_ms, 500);
    expect_take(t, "b");
    assert_int_equal(look_stage(t, "s").oldest_ms, -1);
    assert_int_equal(look_stage(t, "s").waits->count, 2);
}

static void rule20_the_deepest_channels_come_first(void **state) {
    struct core_fixture *t = *state;
    struct channel_info top[3];
    t->mode = MODE_REFUSED; // every prefix of this would take long
    static const struct {
        const char *key;
        int depth;
    } channels[] = { { "two", 2 }, { "nine", 9 }, { "one", 1 }, { "five", 5 }, { "three", 3 } };
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (int n = 0; n < channels[i].depth; n++)
            push(t, channels[i].key, "a");
    assert_int_equal(core_top_channels(t->core, mr_str("s"), top, 3), 3);
    assert_memory_equal(top[0].key.data, "nine", 4);
    assert_memory_equal(top[1].key.data, "five", 4);
    assert_memory_equal(top[2].key.data, "three", 5);
    assert_int_equal(top[0].depth, 9);
    for (int n = 0; n < 40; n++)
        push(t, "two", "a");
    assert_int_equal(core_top_channels(t->core, mr_str("s"), top, 1), 1);
    assert_memory_equal(top[0].key.data, "two", 3);
    assert_int_equal(core_top_channels(t->core, mr_str("nowhere"), top, 3), 0);
}

static void rule20_rates_are_those_of_the_last_seconds(void **state) {
    struct core_fixture *t = *state;
    for (int i = 0; i < 20; i++) {
        push(t, "", "a");
        expect_take(t, "a");
        pass_ms(t, 500);
    }
    assert_float_equal(look_stage(t, "s").in_per_s, 2, 0.3);
    assert_float_equal(look_stage(t, "s").out_per_s, 2, 0.3);
    pass_ms(t, 60000);
    assert_float_equal(look_stage(t, "s").in_per_s, 0, 0.01);
}

// ---- What comes back --------------------------------------------------------------------------

static void F14_every_policy_and_order_change_is_replayed(void **state) {
    struct core_fixture *t = *state;
    static const char *const changes[][2] = {
        { "max-jobs", "1000" },  { "max-channel", "100" }, { "lease", "7s" },
        { "attempts", "3" },     { "backoff", "5..50" },   { "on-dead", "halt" },
        { "overlap", "never" },  { "dedupe-window", "9" }, { "retention", "5m,7" },
        { "concurrency", "11" }, { "rate", "70/m" },       { "max-states", "13" },
        { "state-ttl", "17" },   { "high-mark", "19" },
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        set(t, changes[i][0], changes[i][1]); // each is replayed and compared
    pause_stage(t, "s");
    drain_stage(t, "s");
    crash(t);
    struct stage_info s = look_stage(t, "s");
    assert_true(s.paused && s.draining && s.policy->halt_on_dead && s.policy->overlap_never);
    assert_int_equal(s.policy->high_mark, 19);
    resume_stage(t, "s");
    crash(t);
    assert_false(look_stage(t, "s").paused || look_stage(t, "s").draining);
    refused(MR_EINVAL, try_set(t, "s", "lease", "soon"));
    refused(MR_EINVAL, try_set(t, "s", "colour", "red"));
    assert_int_equal(look_stage(t, "s").policy->lease_ms, 7000);
}

static void F15_counters_and_order_are_equal_after_replay(void **state) {
    struct core_fixture *t = *state;
    set(t, "attempts", "2");
    for (int i = 0; i < 6; i++) {
        push(t, "k", (const char[]){ 'k', (char)('0' + i), 0 });
        push(t, "", (const char[]){ 'u', (char)('0' + i), 0 });
    }
    expect_take(t, "k0");
    must(fail_with(t, take(t), "no", MR_NEVER)); // u0
    assert_true(cancel(t, take(t).id));          // u1
    must(fail_with(t, take(t), "no", 0));        // k1
    push_with(t,
              (struct push){ .job.key = mr_str("k"), .body = mr_str("x"), .job.deadline_ms = 10 });
    pass_ms(t, 10);
    for (int round = 0; round < 3; round++) {
        crash(t);
        struct stage_info s = look_stage(t, "s");
        assert_int_equal(s.pushed, 13);
        assert_int_equal(s.done, 1);
        assert_int_equal(s.failed, 2);
        assert_int_equal(s.dead, 1);
        assert_int_equal(s.cancelled, 1);
        assert_int_equal(s.expired, 1);
        expect_order(t, "k", "k1 k2 k3 k4 k5");
        clean(t);
    }
}

// When a full log has no room even for commits, the rest is for operations that make room: the
// cleaner can copy, and a stopped engine can open again, also if a job killed it.
static void F25_a_full_log_is_cleaned_and_opened(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "l", "b");
    must(push_number(t, "e", 1, "1"));
    done_with(t, take(t), "result", "state");
    fail_job(t, take(t));
    take(t); // an attempt is counted for it
    t->full = true;
    t->mode = MODE_PLAIN;
    clean(t);
    crash_noted(t);
    clean(t);
    t->full = false;
    pass_ms(t, 600000);
    expect_take(t, "1");
    expect_take(t, "b");
}

// A job that cannot be ended at its deadline, because that cannot be written down, holds up its
// stage until it can; time goes on meanwhile, also where the stage has a rate.
static void F25_time_advances_although_a_full_log_delays_a_deadline(void **state) {
    struct core_fixture *t = *state;
    struct push late = { .body = mr_str("late"), .job.deadline_ms = 500 };
    t->mode = MODE_PLAIN;
    set(t, "rate", "1/s");
    wait_for_work(t, 0, "s");
    wait_for_work(t, 1, "s");
    push(t, "", "a");
    push_with(t, late);
    t->full = true;
    for (int i = 0; i < 30; i++)
        (void)core_advance(t->core, t->now_ms += 100);
    assert_true(core_next(t->core) > t->now_ms);
    t->full = false;
    pass_ms(t, 100);
    assert_int_equal(look_stage(t, "s").expired, 1);
    push(t, "", "b");
    assert_string_equal(t->granted[1].body, "b");
}

// Rule 18: the same commands give the same records, whatever is in memory.
static void rule18_the_same_commands_give_the_same_records(void **state) {
    struct core_fixture *fixtures[2] = { *state,
                                         core_fixture_create(((struct core_fixture *)*state)->mode,
                                                             (struct core_limits){ 0 }) };
    for (int i = 0; i < 2; i++) {
        struct core_fixture *t = fixtures[i];
        void *ballast = test_malloc(100000 * (size_t)(i + 1));
        set(t, "backoff", "10..1000");
        push(t, "k", "a");
        push(t, "l", "b");
        fail_job(t, take(t));
        done_with(t, take(t), "yes", "state");
        pass_ms(t, 100);
        done_emit(t, take(t), "next", "k", "c");
        crash(t);
        test_free(ballast);
    }
    assert_int_equal(fixtures[0]->log_count, fixtures[1]->log_count);
    for (size_t i = 0; i < fixtures[0]->log_count; i++) {
        const struct core_fixture_entry *a = &fixtures[0]->log[i], *b = &fixtures[1]->log[i];
        assert_int_equal(a->head_size, b->head_size);
        assert_int_equal(a->body_size, b->body_size);
        assert_memory_equal(a->bytes, b->bytes, a->head_size + a->body_size);
    }
    core_fixture_destroy(fixtures[1]);
}

// U22: ten jobs of a block at a limit of one run one by one; an answered one makes room.
static void U22_concurrency_counts_jobs(void **state) {
    struct core_fixture *t = *state;
    struct taken out[8];
    char body[2] = "a";
    for (; *body <= 'f'; ++*body)
        push(t, "k", body);
    push(t, "l", "other");
    set(t, "concurrency", "1");
    assert_int_equal(take_block(t, 8, out), 1);
    expect_held(t, "s", "limit");
    done(t, out[0]);
    set(t, "concurrency", "3");
    assert_int_equal(try_take(t, (struct take){ .count = 8, .batch = 8 }, out), 3);
    expect_no_work(t);
    push(t, "m", "more");
    cancel(t, out[2].id); // its worker does not know yet
    expect_no_work(t);
    done(t, out[1]); // the first of a block of two
    assert_int_equal(try_take(t, (struct take){ .count = 8, .batch = 8 }, out + 3), 1);
}

// ---- U7: stages are forgotten -----------------------------------------------------------------

static bool is_known(struct core_fixture *t, const char *stage) {
    struct stage_info info;
    return core_look_stage(t->core, mr_str(stage), &info) == 0;
}

static void expect_left(struct core_fixture *t, const char *what) {
    refused(MR_EINVAL, core_stage_remove(t->core, mr_str("s")));
    assert_non_null(strstr(error_text(), what));
}

static void U7_an_empty_stage_is_removed(void **state) {
    struct core_fixture *t = *state;
    push_once(t, "k", "n", "a");
    push_to(t, "other", "k", "x");
    expect_take(t, "a");
    pass_ms(t, 3599999);
    assert_true(is_known(t, "s"));
    pass_ms(t, 1); // its retention and its once are over
    assert_false(is_known(t, "s"));
    assert_int_equal(core_stage_count(t->core), 1);
    crash(t);
    assert_false(is_known(t, "s"));
    push_to(t, "third", "k", "y"); // under the same number
    crash(t);
    push(t, "k", "b");
    assert_int_equal(look_stage(t, "s").pushed, 1); // counted from zero
    clean(t);
    crash(t);
    assert_int_equal(core_stage_count(t->core), 3);
    assert_string_equal(take_from(t, "third").body, "y");
}

static void U7_what_was_set_keeps_a_stage(void **state) {
    struct core_fixture *t = *state;
    set(t, "lease", "1000");
    pause_stage(t, "paused");
    push(t, "k", "a");
    expect_take(t, "a");
    pass_ms(t, 100000000);
    assert_true(is_known(t, "s") && is_known(t, "paused"));
}

static void U7_remove_names_what_is_left(void **state) {
    struct core_fixture *t = *state;
    refused(MR_EGONE, core_stage_remove(t->core, mr_str("s")));
    set(t, "attempts", "1");
    set(t, "retention", "1000,10");
    set(t, "dedupe-window", "2000");
    uint64_t id = push_once(t, "k", "n", "a");
    expect_left(t, "not ended");
    fail_job(t, take(t));
    expect_left(t, "dead");
    must(retry(t, id));
    done_with(t, take(t), "result", "state");
    expect_left(t, "results");
    pass_ms(t, 1000);
    expect_left(t, "once");
    pass_ms(t, 1000);
    expect_left(t, "states");
    push(t, "k", "b");
    done_with(t, take(t), "", "");
    pass_ms(t, 1000);
    wait_for_work(t, 1, "s");
    expect_left(t, "takes");
    core_take_leave(t->core, &t->takers[1]);
    must(core_stage_remove(t->core, mr_str("s")));
    core_fixture_check(t->core, "removed");
    crash(t);
    assert_false(is_known(t, "s"));
}

static void U7_empty_stages_give_way_when_there_is_no_room(void **state) {
    (void)state;
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_stages = 3 });
    set_on(t, "kept", "lease", "1000");
    must(drop(t, push_to(t, "empty", "", "a")));
    push_to(t, "used", "", "b");
    push_to(t, "fourth", "", "c");
    assert_false(is_known(t, "empty"));
    struct push p = { .stage = mr_str("fifth"), .body = mr_str("d") };
    struct pushed pushed;
    refused(MR_EFULL, try_push(t, p, &pushed));
    crash(t);
    assert_true(is_known(t, "kept") && is_known(t, "used") && is_known(t, "fourth"));
    core_fixture_destroy(t);
}

static void U7_a_maker_has_a_share_of_the_stages(void **state) {
    (void)state;
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_stages = 8 });
    core_act_for(t->core, 7, NULL);
    push_to(t, "one", "", "a");
    uint64_t second = push_to(t, "two", "", "a");
    struct push p = { .stage = mr_str("three"), .body = mr_str("a") };
    struct pushed pushed;
    refused(MR_EFULL, try_push(t, p, &pushed));
    (void)core_take_steps(t->core);
    refused(MR_EFULL, try_push(t, p, &pushed));
    assert_int_equal(core_take_steps(t->core), 0); // the stages are not searched again
    core_act_for(t->core, 9, NULL);
    push_to(t, "other", "", "a");
    core_act_for(t->core, 7, NULL);
    must(drop(t, second));
    must(core_stage_remove(t->core, mr_str("two")));
    must(try_push(t, p, &pushed));
    refused(MR_EFULL, try_push(t, (struct push){ .stage = mr_str("four") }, &pushed));
    core_fixture_check(t->core, "shared");
    clean(t);
    crash(t);
    core_fixture_check(t->core, "opened again");
    core_act_for(t->core, 7, NULL);
    refused(MR_EFULL, try_push(t, (struct push){ .stage = mr_str("four") }, &pushed));
    core_act_for(t->core, 9, NULL);
    push_to(t, "four", "", "a");
    core_act_for(t->core, 0, NULL);
    core_fixture_destroy(t);
}

// Edges that other shards report for a token name ever new stages. They take up no more than its
// share, the oldest give way to the latest, and stages that are made here find room.
static void U7_reported_stages_of_a_maker_are_few(void **state) {
    (void)state;
    enum { EDGES = 100, SHARE = 4 };
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_stages = 4 * SHARE });
    char names[2 * EDGES][16];
    int known = 0;
    for (int i = 0; i < 2 * EDGES; i += 2) {
        snprintf(names[i], sizeof names[i], "from-%d", i);
        snprintf(names[i + 1], sizeof names[i + 1], "to-%d", i);
        pass_ms(t, 1);
        must(core_learn_edge(t->core, mr_str(names[i]), mr_str(names[i + 1]), 7));
        core_fixture_check(t->core, "learned");
    }
    for (int i = 0; i < 2 * EDGES; i++)
        known += is_known(t, names[i]);
    assert_int_equal(known, SHARE);
    assert_true(is_known(t, names[2 * EDGES - 1]));
    core_act_for(t->core, 7, NULL);
    for (int i = 2 * EDGES - SHARE; i < 2 * EDGES; i++)
        push_to(t, names[i], "", "a");
    struct pushed pushed;
    refused(MR_EFULL, try_push(t, (struct push){ .stage = mr_str("another") }, &pushed));
    core_act_for(t->core, 0, NULL);
    core_fixture_check(t->core, "made");
    core_fixture_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(S10_as_many_wake_as_there_is_work),
        CORE_TEST(S10_the_end_of_one_job_wakes_a_take_for_the_next),
        CORE_TEST(S10_a_taker_is_claimed_before_it_is_given_work),
        CORE_TEST(S10_a_cancelled_take_gets_no_job),
        CORE_TEST(A2_below_the_limit_work_starts_at_it_work_queues),
        CORE_TEST(rule14_a_rate_spreads_starts_over_time),
        CORE_TEST(rule14_a_taker_held_by_the_rate_is_woken_by_time),
        CORE_TEST(rule14_a_job_that_goes_back_unused_gives_back_the_rate),
        CORE_TEST(rule15_a_delayed_job_joins_when_due),
        CORE_TEST(rule15_a_delayed_job_is_made_due),
        CORE_TEST(rule15_what_waits_after_an_attempt_is_made_due),
        CORE_TEST(rule15_a_paused_key_waits_alone),
        CORE_TEST(rule15_an_empty_key_stays_paused),
        CORE_TEST(rule15_so_many_keys_are_paused),
        CORE_TEST(rule15_equal_instants_join_by_id),
        CORE_TEST(rule15_due_in_the_engines_absence),
        CORE_TEST(rule15_pause_accepts_and_does_not_start),
        CORE_TEST(rule15_drain_finishes_and_refuses_pushes_not_emits),
        CORE_TEST(rule13_a_stage_is_held_while_its_downstream_is_over_the_mark),
        CORE_TEST(rule13_edges_are_learned),
        CORE_TEST(rule13_emits_find_room_where_pushes_do_not),
        CORE_TEST(rule13_inside_a_cycle_nothing_is_held_but_pushes_into_it),
        CORE_TEST(rule13_stuck_is_shown_when_no_stage_can_start),
        cmocka_unit_test(rule13_cycles_are_found_in_any_graph),
        cmocka_unit_test(U4_a_search_for_cycles_is_bounded),
        cmocka_unit_test(U4_stages_upstream_are_found_without_a_search),
        cmocka_unit_test(U4_a_few_empty_stages_make_room),
        CORE_TEST(rule20_held_by_names_why_a_stage_waits),
        CORE_TEST(rule20_ages_are_seen_without_a_scan),
        CORE_TEST(rule20_the_deepest_channels_come_first),
        CORE_TEST(rule20_rates_are_those_of_the_last_seconds),
        CORE_TEST(F14_every_policy_and_order_change_is_replayed),
        CORE_TEST(F15_counters_and_order_are_equal_after_replay),
        CORE_TEST(F25_a_full_log_is_cleaned_and_opened),
        CORE_TEST(F25_time_advances_although_a_full_log_delays_a_deadline),
        CORE_TEST(rule18_the_same_commands_give_the_same_records),
        CORE_TEST(U22_concurrency_counts_jobs),
        CORE_TEST(U7_an_empty_stage_is_removed),
        CORE_TEST(U7_what_was_set_keeps_a_stage),
        CORE_TEST(U7_remove_names_what_is_left),
        CORE_TEST(U7_empty_stages_give_way_when_there_is_no_room),
        CORE_TEST(U7_a_maker_has_a_share_of_the_stages),
        cmocka_unit_test(U7_reported_stages_of_a_maker_are_few),
    };
    return RUN_CORE_TESTS(tests);
}
