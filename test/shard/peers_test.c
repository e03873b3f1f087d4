// The exchange between shards on different nodes, one loss at a time: peers_random_test.c has
// random histories. Stage a lives in shard 0 and emits to stage b, which lives in shard 1.
#include "support/peer_set.h"

enum { FROM, TO };
enum { STAGE_A, STAGE_B, STAGE_C, STAGE_D };
enum { LONG_MS = 3500 }; // until what was not answered is sent again

static struct peer_set *begin(void) {
    struct peer_set *s = peer_set_create(2, 1);
    peer_set_settle(s);
    return s;
}

static void push(struct peer_set *s, int stage) {
    struct push p = { .stage = mr_str(s->names[stage]), .body = mr_str("job") };
    struct pushed pushed;
    assert_int_equal(core_push(peer_set_core(s, peer_set_home(s, stage)), &p, &pushed), 0);
}

static void done(struct peer_set *s, const struct emit *emit) {
    struct peer_set_held h = s->held[0];
    struct done d = { .id = h.id, .token = h.token, .emits = emit, .emit_count = emit != NULL };
    assert_int_equal(core_done(peer_set_core(s, h.shard), &d), 0);
    peer_set_answered(s, 0);
}

// A job of a emits one to b; both are durable in shard 0.
static void emit_one(struct peer_set *s, struct job_spec job) {
    struct emit emit = { .stage = mr_str(s->names[STAGE_B]), .body = mr_str("x"), .job = job };
    push(s, STAGE_A);
    peer_set_wait(s, STAGE_A);
    while (s->held_count > 1)
        peer_set_answered(s, 1);
    assert_int_equal(s->held_count, 1);
    done(s, &emit);
    peer_set_sync(s, FROM);
}

static struct stage_info look(struct peer_set *s, uint32_t shard, int stage) {
    struct stage_info info;
    if (core_look_stage(peer_set_core(s, shard), mr_str(s->names[stage]), &info) < 0)
        info = (struct stage_info){ 0 };
    return info;
}

static bool is_held(struct peer_set *s) {
    return strncmp(look(s, FROM, STAGE_A).held_by, "downstream:", 11) == 0;
}

static void deliver_all(struct peer_set *s, uint32_t from, uint32_t to) {
    while (peer_set_deliver(s, from, to)) {
    }
}

static void lose_all(struct peer_set *s, uint32_t from, uint32_t to) {
    while (peer_set_lose(s, from, to)) {
    }
}

static void pass_long(struct peer_set *s) {
    for (int i = 0; i < 2; i++) {
        peer_set_pass(s, LONG_MS);
        peer_set_settle(s);
    }
}

static void expect_arrived_once(struct peer_set *s) {
    assert_int_equal(look(s, TO, STAGE_B).waiting, 1);
    assert_int_equal(core_links(peer_set_core(s, FROM)), 0);
    peer_set_destroy(s);
}

// ---- Emits ------------------------------------------------------------------------------------

static void F2_lost_emits_are_sent_again_after_a_while(void **state) {
    (void)state;
    struct peer_set *s = begin();
    emit_one(s, (struct job_spec){ 0 });
    peer_set_post(s, FROM);
    lose_all(s, FROM, TO);
    peer_set_settle(s);
    assert_int_equal(look(s, TO, STAGE_B).waiting, 0);
    assert_in_range(shard_next_ms(s->shards[FROM].shard), 1, LONG_MS);
    pass_long(s);
    expect_arrived_once(s);
}

static void F2_lost_emits_are_sent_again_after_a_reset(void **state) {
    (void)state;
    struct peer_set *s = begin();
    emit_one(s, (struct job_spec){ 0 });
    peer_set_post(s, FROM);
    peer_set_cut(s, FROM, TO);
    peer_set_reset_all(s);
    peer_set_settle(s);
    expect_arrived_once(s);
}

static void F2_lost_answers_are_sent_again(void **state) {
    (void)state;
    for (int kept = 0; kept < 2; kept++) { // ARRIVED, or nothing
        struct peer_set *s = begin();
        emit_one(s, (struct job_spec){ 0 });
        peer_set_post(s, FROM);
        deliver_all(s, FROM, TO);
        peer_set_post(s, TO);
        if (kept)
            deliver_all(s, TO, FROM);
        peer_set_sync(s, TO);
        peer_set_post(s, TO);
        lose_all(s, TO, FROM);
        peer_set_settle(s);
        assert_int_equal(core_links(peer_set_core(s, FROM)), 1);
        pass_long(s);
        expect_arrived_once(s);
    }
}

// An owner has accepted an emit and said so, but dies before it is durable. Its successor gets the
// emit, and it counts at the sender until then.
static void F19_what_a_former_owner_has_accepted_is_sent_to_its_successor(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct peer_set *s = begin();
        emit_one(s, (struct job_spec){ 0 });
        peer_set_post(s, FROM);
        deliver_all(s, FROM, TO);
        peer_set_post(s, TO); // ARRIVED
        if (!late) {
            deliver_all(s, TO, FROM);
            assert_int_equal(look(s, FROM, STAGE_B).linked, 0);
        }
        peer_set_replace(s, TO, true);
        assert_int_equal(look(s, TO, STAGE_B).waiting, 0);
        peer_set_reset(s, FROM, TO);
        if (late) // after the reset
            deliver_all(s, TO, FROM);
        assert_int_equal(look(s, FROM, STAGE_B).linked, 0);
        peer_set_reset(s, TO, FROM);
        peer_set_post(s, TO);
        deliver_all(s, TO, FROM); // the successor is known
        assert_int_equal(look(s, FROM, STAGE_B).linked, 1);
        peer_set_settle(s);
        assert_int_equal(look(s, FROM, STAGE_B).linked, 0);
        expect_arrived_once(s);
    }
}

// The same if no owner is notified: the timer and the epoch of the answer are enough.
static void F19_a_change_of_owner_without_notice_heals(void **state) {
    (void)state;
    struct peer_set *s = begin();
    emit_one(s, (struct job_spec){ 0 });
    peer_set_post(s, FROM);
    deliver_all(s, FROM, TO);
    peer_set_post(s, TO);
    deliver_all(s, TO, FROM);
    peer_set_replace(s, TO, true);
    peer_set_settle(s);
    assert_int_equal(look(s, TO, STAGE_B).waiting, 0);
    pass_long(s);
    expect_arrived_once(s);
}

// F34: the former owner has acknowledged what its successor does not have.
static void F34_an_acknowledgement_of_a_former_owner_is_not_believed(void **state) {
    (void)state;
    struct peer_set *s = begin();
    emit_one(s, (struct job_spec){ 0 });
    struct link_entry emit;
    assert_true(core_link_next(peer_set_core(s, FROM), TO, 0, &emit));
    peer_set_post(s, FROM);
    lose_all(s, FROM, TO);
    struct message late = { .kind = MESSAGE_ACKED,
                            .from = TO,
                            .to = FROM,
                            .epoch = core_epoch(peer_set_core(s, TO)),
                            .number = emit.number };
    peer_set_replace(s, TO, true);
    peer_set_reset_all(s);
    peer_set_post(s, TO);
    deliver_all(s, TO, FROM); // the successor is known
    assert_int_equal(peers_receive(peer_set_peers(s, FROM), &late), 0);
    peer_set_settle(s);
    expect_arrived_once(s);
}

static void messages_of_former_owners_and_of_no_shard_are_ignored(void **state) {
    (void)state;
    struct peer_set *s = begin();
    emit_one(s, (struct job_spec){ 0 });
    peer_set_post(s, FROM);
    deliver_all(s, FROM, TO);
    peer_set_replace(s, TO, true);
    peer_set_reset_all(s);
    peer_set_post(s, TO);
    deliver_all(s, TO, FROM);
    struct message m = { .kind = MESSAGE_ACKED, .from = TO, .epoch = 1, .number = UINT64_MAX };
    assert_int_equal(peers_receive(peer_set_peers(s, FROM), &m), 0);
    assert_int_equal(core_links(peer_set_core(s, FROM)), 1);
    m.from = 2;
    assert_int_equal(peers_receive(peer_set_peers(s, FROM), &m), MR_EINVAL);
    m.from = FROM;
    assert_int_equal(peers_receive(peer_set_peers(s, FROM), &m), MR_EINVAL);
    peer_set_settle(s);
    expect_arrived_once(s);
}

// Of two emits only the first was sent. An answer that claims more drops neither.
static void H4_a_shard_that_claims_emits_it_was_never_sent_is_not_believed(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        enum message_kind kinds[] = { MESSAGE_ARRIVED, MESSAGE_ACKED, MESSAGE_REFUSED,
                                      MESSAGE_SHARE_LEFT };
        struct peer_set *s = begin();
        emit_one(s, (struct job_spec){ 0 });
        peer_set_post(s, FROM);
        lose_all(s, FROM, TO);
        emit_one(s, (struct job_spec){ 0 });
        struct link_entry first, second;
        assert_true(core_link_next(peer_set_core(s, FROM), TO, 0, &first));
        assert_true(core_link_next(peer_set_core(s, FROM), TO, first.number, &second));
        struct message m = { .kind = kinds[kind], .from = TO, .epoch = 1 };
        m.number = second.number;
        assert_int_equal(peers_receive(peer_set_peers(s, FROM), &m), 0);
        assert_int_equal(core_links(peer_set_core(s, FROM)), 2);
        assert_int_equal(look(s, FROM, STAGE_B).linked, 2);
        pass_long(s);
        assert_int_equal(look(s, TO, STAGE_B).waiting, 2);
        assert_int_equal(core_links(peer_set_core(s, FROM)), 0);
        peer_set_destroy(s);
    }
}

// ---- Time -------------------------------------------------------------------------------------

static void rule15_time_left_counts_on_every_clock(void **state) {
    (void)state;
    struct peer_set *s = begin();
    assert_true(s->shards[FROM].ahead_ms != s->shards[TO].ahead_ms);
    emit_one(s, (struct job_spec){ .delay_ms = 100 });
    emit_one(s, (struct job_spec){ .deadline_ms = 50 });
    emit_one(s, (struct job_spec){ .deadline_ms = 10 });
    peer_set_pass(s, 20);
    peer_set_settle(s);
    assert_int_equal(look(s, TO, STAGE_B).delayed, 1);
    assert_int_equal(look(s, TO, STAGE_B).waiting, 1);
    assert_int_equal(look(s, TO, STAGE_B).expired, 1);
    peer_set_pass(s, 29);
    assert_int_equal(look(s, TO, STAGE_B).waiting, 1);
    peer_set_pass(s, 1);
    assert_int_equal(look(s, TO, STAGE_B).expired, 2);
    peer_set_pass(s, 49);
    assert_int_equal(look(s, TO, STAGE_B).delayed, 1);
    peer_set_pass(s, 1);
    assert_int_equal(look(s, TO, STAGE_B).waiting, 1);
    peer_set_destroy(s);
}

// ---- Notes ------------------------------------------------------------------------------------

// The high mark of b is 2, a is known to emit to it and has a job.
static struct peer_set *begin_with_mark(void) {
    struct peer_set *s = begin();
    peer_set_set(s, STAGE_B, "high-mark", "2");
    emit_one(s, (struct job_spec){ 0 });
    push(s, STAGE_A);
    peer_set_settle(s);
    while (s->held_count)
        peer_set_answered(s, 0);
    push(s, STAGE_A);
    push(s, STAGE_A);
    peer_set_sync(s, FROM);
    assert_false(is_held(s));
    return s;
}

static void go_over(struct peer_set *s) {
    push(s, STAGE_B);
    push(s, STAGE_B);
    peer_set_sync(s, TO);
}

static void go_under(struct peer_set *s) {
    for (int i = 0; i < 3; i++) {
        peer_set_wait(s, STAGE_B);
        while (s->held_count)
            done(s, NULL);
    }
    peer_set_sync(s, TO);
}

static void rule13_a_lost_note_is_sent_again(void **state) {
    (void)state;
    struct peer_set *s = begin_with_mark();
    go_over(s);
    peer_set_post(s, TO);
    lose_all(s, TO, FROM);
    peer_set_settle(s);
    assert_false(is_held(s));
    pass_long(s);
    assert_true(is_held(s));
    go_under(s);
    peer_set_post(s, TO);
    lose_all(s, TO, FROM);
    peer_set_settle(s);
    assert_true(is_held(s));
    pass_long(s);
    assert_false(is_held(s));
    peer_set_destroy(s);
}

static void rule13_notes_are_sent_again_after_a_reset(void **state) {
    (void)state;
    struct peer_set *s = begin_with_mark();
    go_over(s);
    peer_set_post(s, TO);
    peer_set_cut(s, FROM, TO);
    peer_set_reset_all(s);
    peer_set_settle(s);
    assert_true(is_held(s));
    peer_set_destroy(s);
}

// The former owner has said that b is over its high mark, but neither was durable.
static void rule13_a_former_owner_holds_no_stage(void **state) {
    (void)state;
    for (int resets = 0; resets < 2; resets++) {
        struct peer_set *s = begin_with_mark();
        peer_set_set(s, STAGE_B, "high-mark", "10000"); // the default: there is no news of it
        peer_set_settle(s);
        push(s, STAGE_B);
        push(s, STAGE_B);
        assert_int_equal(core_set(peer_set_core(s, TO), mr_str(s->names[STAGE_B]),
                                  mr_str("high-mark"), mr_str("2")),
                         0);
        peer_set_post(s, TO);
        deliver_all(s, TO, FROM);
        assert_true(is_held(s));
        peer_set_replace(s, TO, true);
        if (resets)
            peer_set_reset_all(s);
        else
            peer_set_set(s, STAGE_D, "high-mark", "5"); // any message has the new epoch
        peer_set_settle(s);
        assert_false(is_held(s));
        peer_set_destroy(s);
    }
}

// Shard 0 gets a new owner, which learns from shard 1 that a emits to b, and that b is over.
static void rule13_a_new_owner_learns_edges_and_marks(void **state) {
    (void)state;
    struct peer_set *s = begin_with_mark();
    go_over(s);
    peer_set_settle(s);
    assert_true(is_held(s));
    peer_set_replace(s, FROM, true);
    assert_false(is_held(s));
    peer_set_reset(s, FROM, TO); // shard 1 notices the epoch
    peer_set_settle(s);
    assert_true(is_held(s));
    go_under(s);
    peer_set_settle(s);
    assert_false(is_held(s));
    peer_set_destroy(s);
}

// U7: an edge that another shard remembers brings no stage back that was removed.
static void U7_a_removed_stage_stays_away(void **state) {
    (void)state;
    struct peer_set *s = begin();
    emit_one(s, (struct job_spec){ 0 });
    peer_set_settle(s);
    peer_set_set(s, STAGE_A, "retention", "0,0");
    peer_set_pass(s, 1000);
    struct core *core = peer_set_core(s, FROM);
    core_take_leave(core, &s->shards[FROM].takers[STAGE_A][1]);
    s->shards[FROM].waits[STAGE_A][1] = false;
    assert_int_equal(core_stage_remove(core, mr_str(s->names[STAGE_A])), 0);
    peer_set_cut(s, FROM, TO);
    peer_set_reset_all(s);
    peer_set_settle(s);
    struct stage_info info;
    assert_int_equal(core_look_stage(peer_set_core(s, FROM), mr_str(s->names[STAGE_A]), &info),
                     MR_EGONE);
    peer_set_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F2_lost_emits_are_sent_again_after_a_while),
        cmocka_unit_test(F2_lost_emits_are_sent_again_after_a_reset),
        cmocka_unit_test(F2_lost_answers_are_sent_again),
        cmocka_unit_test(F19_what_a_former_owner_has_accepted_is_sent_to_its_successor),
        cmocka_unit_test(F19_a_change_of_owner_without_notice_heals),
        cmocka_unit_test(F34_an_acknowledgement_of_a_former_owner_is_not_believed),
        cmocka_unit_test(messages_of_former_owners_and_of_no_shard_are_ignored),
        cmocka_unit_test(H4_a_shard_that_claims_emits_it_was_never_sent_is_not_believed),
        cmocka_unit_test(rule15_time_left_counts_on_every_clock),
        cmocka_unit_test(rule13_a_lost_note_is_sent_again),
        cmocka_unit_test(rule13_notes_are_sent_again_after_a_reset),
        cmocka_unit_test(rule13_a_former_owner_holds_no_stage),
        cmocka_unit_test(rule13_a_new_owner_learns_edges_and_marks),
        cmocka_unit_test(U7_a_removed_stage_stays_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
