// Several shards of one engine: where stages are, how emits are sent, and back pressure between
// them.
#include "support/shard_set.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>

// ---- Routes -----------------------------------------------------------------------------------

static void the_only_shard_is_the_first(void **state) {
    (void)state;
    assert_int_equal(route_of(0, mr_str("s")), 0);
    assert_int_equal(route_of(1, mr_str("s")), 0);
    assert_int_equal(route_of_id(1, 12345), 0);
    for (uint64_t id = 1; id < 10; id++)
        assert_int_equal(route_of_id(3, id), (id - 1) % 3);
    for (uint32_t shards = 1; shards <= SHARDS_MOST; shards++)
        for (uint32_t i = 0; i < shards; i++) {
            uint32_t first = route_first_slot(shards, i), next = route_first_slot(shards, i + 1);
            assert_int_equal(first * shards / ROUTE_SLOTS, i);
            assert_int_equal((next - 1) * shards / ROUTE_SLOTS, i);
        }
}

// Stores are laid out by this, and Redis's cluster clients compute it: these never change.
static void routes_are_as_fixed_as_the_format(void **state) {
    (void)state;
    assert_int_equal(route_slot(mr_str("123456789")), 0x31c3);
    assert_int_equal(route_slot(mr_str("mail")), 4247);
    assert_int_equal(route_slot(mr_str("out")), 16101);
    assert_int_equal(route_of(4, mr_str("mail")), 1);
    assert_int_equal(route_of(4, mr_str("out")), 3);
    assert_int_equal(route_of(64, mr_str("out")), 62);
    struct hash128 once = once_name(mr_str("s"), mr_str("k"), mr_str("n"));
    assert_true(once.low && once.high);
}

static void routes_spread_evenly(void **state) {
    (void)state;
    int stages[5] = { 0 };
    for (int i = 0; i < 10000; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "stage-%d", i);
        stages[route_of(5, mr_str(name))]++;
    }
    for (int i = 0; i < 5; i++)
        assert_in_range(stages[i], 1800, 2200);
}

// ---- Back pressure ----------------------------------------------------------------------------

enum { FROM = 1, TO = 0 }; // of two shards: "a" is in the one, "b" and "c" are in the other

static void push(struct shard_set *f, const char *stage, const char *body) {
    struct push p = { .stage = mr_str(stage), .body = mr_str(body) };
    assert_int_equal(shard_set_push(f, shard_set_shard_of(f, stage), &p), 0);
}

static void done(struct shard_set *f, size_t held) {
    struct shard_set_held h = f->held[held];
    struct done d = { .id = h.id, .token = h.token };
    assert_int_equal(core_done(f->shard[h.shard].core, &d), 0);
    shard_set_answered(f, held);
    shard_set_check(f);
}

static void expect_held_by(struct shard_set *f, const char *stage, const char *why) {
    struct stage_info info;
    assert_int_equal(
        core_look_stage(f->shard[shard_set_shard_of(f, stage)].core, mr_str(stage), &info), 0);
    assert_string_equal(info.held_by, why);
}

static void emit_to(struct shard_set *f, const char *stage) {
    struct emit emit = { .stage = mr_str(stage), .body = mr_str("x") };
    struct shard_set_held h = f->held[0];
    struct done d = { .id = h.id, .token = h.token, .emits = &emit, .emit_count = 1 };
    assert_int_equal(core_done(f->shard[h.shard].core, &d), 0);
    shard_set_answered(f, 0);
}

static void carry_and_tell(struct shard_set *f) {
    while (shard_set_deliver_all(f) || shard_set_wake_all(f)) {
    }
}

// Rule 13: what leads to a stage of another shard is held while that is over its high mark.
static void rule13_a_high_mark_holds_stages_of_other_shards(void **state) {
    (void)state;
    struct shard_set *f = shard_set_create(2, 1);
    shard_set_set(f, "b", "high-mark", "2");
    for (int i = 0; i < 5; i++)
        push(f, "a", "job");
    for (int i = 0; i < 2; i++) {
        shard_set_wait(f, FROM, 0, "a");
        emit_to(f, "b");
        carry_and_tell(f);
    }
    expect_held_by(f, "a", "downstream:b");
    shard_set_wait(f, FROM, 0, "a");
    assert_int_equal(f->held_count, 0);
    shard_set_wait(f, TO, 0, "b");
    done(f, 0); // one is left, which is half of the mark
    carry_and_tell(f);
    assert_int_equal(f->held_count, 1); // the taker of a was woken
    shard_set_destroy(f);
}

// A shard that comes back, or learns of an emit later, knows which stages are over their mark.
static void rule13_a_mark_is_known_after_a_restart(void **state) {
    (void)state;
    struct shard_set *f = shard_set_create(2, 1);
    shard_set_set(f, "b", "high-mark", "2");
    for (int i = 0; i < 3; i++)
        push(f, "b", "job");
    push(f, "a", "job");
    push(f, "a", "job");
    shard_set_sync(f, FROM);
    shard_set_sync(f, TO);
    shard_set_crash_all(f);
    carry_and_tell(f);
    assert_true(f->notified > 0);
    shard_set_wait(f, FROM, 0, "a"); // it is not known yet that it emits to b
    emit_to(f, "b");
    shard_set_wait(f, FROM, 0, "a");
    assert_int_equal(f->held_count, 0);
    expect_held_by(f, "a", "downstream:b");
    shard_set_destroy(f);
}

// A high mark that could not be sent is sent with the next push, whatever the depth.
static void rule13_a_mark_that_could_not_be_sent_is_sent_later(void **state) {
    (void)state;
    struct shard_set *f = shard_set_create(2, 1);
    f->notices_fail = true;
    shard_set_set(f, "b", "high-mark", "4");
    assert_int_equal(f->notified, 0);
    f->notices_fail = false;
    push(f, "b", "job");
    carry_and_tell(f);
    assert_true(f->notified > 0);
    shard_set_destroy(f);
}

// U7: with a stage that is removed its high mark goes, also in other shards.
static void U7_a_removed_stage_leaves_no_mark_elsewhere(void **state) {
    (void)state;
    struct shard_set *f = shard_set_create(2, 1);
    shard_set_set(f, "b", "high-mark", "1");
    carry_and_tell(f);
    f->notices_fail = true;
    assert_true(core_stage_remove(f->shard[TO].core, mr_str("b")) < 0); // it would stay there
    f->notices_fail = false;
    assert_int_equal(core_stage_remove(f->shard[TO].core, mr_str("b")), 0);
    carry_and_tell(f);
    push(f, "a", "job");
    push(f, "a", "job");
    shard_set_wait(f, FROM, 0, "a");
    emit_to(f, "b");
    shard_set_wait(f, FROM, 0, "a");
    assert_int_equal(f->held_count, 1); // a is not held
    shard_set_destroy(f);
}

// ---- Links ------------------------------------------------------------------------------------

// The cleaner puts an old entry behind younger ones; its place in the outbox stays the first.
static void F15_an_outbox_is_in_order_after_cleaning_and_replay(void **state) {
    (void)state;
    struct shard_set *f = shard_set_create(2, 1);
    uint64_t numbers[3], after = 0;
    struct link_entry e;
    push(f, "a", "first");
    for (int i = 0; i < 3; i++) {
        struct emit emit = { .stage = mr_str("b"), .job.key = mr_str("k0"), .body = mr_str("x") };
        shard_set_wait(f, FROM, 0, "a");
        struct done d = {
            .id = f->held[0].id, .token = f->held[0].token, .emits = &emit, .emit_count = 1
        };
        push(f, "a", "next");
        assert_int_equal(core_done(f->shard[FROM].core, &d), 0);
        shard_set_answered(f, 0);
    }
    for (int i = 0; i < 3; i++, after = e.number) {
        assert_true(core_link_next(f->shard[FROM].core, TO, after, &e));
        numbers[i] = e.number;
    }
    shard_set_sync(f, FROM);
    shard_set_clean(f, FROM, f->shard[FROM].count / 2);
    shard_set_crash(f, FROM);
    shard_set_check(f);
    after = 0;
    for (int i = 0; i < 3; i++, after = e.number) {
        assert_true(core_link_next(f->shard[FROM].core, TO, after, &e));
        assert_int_equal(e.number, numbers[i]);
        assert_int_equal(e.after, after);
    }
    shard_set_destroy(f);
}

// An acknowledgement is not always recorded. An entry that was trimmed because of it, but is still
// in the log when that is opened, is not sent again: it cannot be read any more.
static void H4_an_emit_that_was_acknowledged_and_trimmed_does_not_come_back(void **state) {
    (void)state;
    struct shard_set *f = shard_set_create(2, 1);
    struct shard_set_shard *from = &f->shard[FROM];
    struct link_entry e;
    push(f, "a", "first");
    push(f, "a", "next");
    shard_set_wait(f, FROM, 0, "a");
    emit_to(f, "b");
    assert_true(core_link_next(from->core, TO, 0, &e));
    assert_int_equal(core_link_acked(from->core, TO, e.number), 0);
    for (size_t i = 0, count = from->count; i < count; i++) {
        struct shard_set_entry k = from->log[i];
        assert_int_equal(core_clean(from->core, k.at, (mr_bytes){ k.bytes, k.head_size },
                                    (mr_bytes){ k.bytes + k.head_size, k.body_size }),
                         0);
    }
    from->trimmed = e.at + 1;
    assert_int_equal(core_trimmed(from->core, from->trimmed), 0);
    shard_set_sync(f, FROM);
    shard_set_crash(f, FROM);
    shard_set_check(f);
    assert_int_equal(core_links(from->core), 0);
    shard_set_wait(f, FROM, 0, "a");
    emit_to(f, "b");
    assert_true(core_link_next(from->core, TO, 0, &e));
    assert_int_equal(e.after, 0);
    shard_set_destroy(f);
}

// U7: a stage is forgotten after its emits, also where the cleaner has put one behind younger ones.
static void U7_a_stage_goes_although_its_emit_was_moved(void **state) {
    (void)state;
    struct shard_set *f = shard_set_create(2, 1);
    struct link_entry e;
    push(f, "a", "job");
    push(f, "a", "job");
    shard_set_wait(f, FROM, 0, "a");
    emit_to(f, "b");
    shard_set_sync(f, FROM);
    size_t entries = f->shard[FROM].count;
    shard_set_wait(f, FROM, 0, "a");
    emit_to(f, "c");
    shard_set_sync(f, FROM);
    shard_set_clean(f, FROM, entries);
    assert_true(core_link_next(f->shard[FROM].core, TO, 0, &e));
    assert_int_equal(core_link_acked(f->shard[FROM].core, TO, e.number), 0);
    assert_int_equal(core_stage_remove(f->shard[FROM].core, mr_str("b")), 0);
    shard_set_sync(f, FROM);
    shard_set_crash_all(f);
    assert_int_equal(core_links(f->shard[FROM].core), 1);
    shard_set_check(f);
    shard_set_destroy(f);
}

// ---- F51 --------------------------------------------------------------------------------------

// Repeats the call until there is memory: a refused call has changed nothing.
#define SAY(f, call)                                                                               \
    do {                                                                                           \
        int err_ = MR_ENOMEM;                                                                      \
        while ((err_ = (call)) == MR_ENOMEM)                                                       \
            shard_set_check(f);                                                                    \
        assert_int_equal(err_, 0);                                                                 \
        shard_set_check(f);                                                                        \
    } while (0)

static int push_one(struct shard_set *f, const char *stage) {
    struct push p = { .stage = mr_str(stage), .body = mr_str("job") };
    return shard_set_push(f, FROM, &p);
}

static int emit_all(struct shard_set *f, const char *long_key) {
    struct emit emits[] = {
        { .stage = mr_str("b"), .job.key = mr_str(long_key), .body = mr_str("one") },
        { .stage = mr_str("b"),
          .job.key = mr_str("k1"),
          .job.once = mr_str("name"),
          .job.delay_ms = 5 },
        { .stage = mr_str("c"), .job.key = mr_str("k2"), .job.deadline_ms = 50, .job.attempts = 2 },
        { .stage = mr_str("b"), .job.key = mr_str("k3"), .body = mr_str("four") },
    };
    struct done d = {
        .id = f->held[0].id, .token = f->held[0].token, .emits = emits, .emit_count = 4
    };
    return core_done(f->shard[FROM].core, &d);
}

// A message that is refused for want of memory counts as lost.
static int carry(struct shard_set *f) {
    while (shard_set_deliver_all(f)) {
    }
    return 0;
}

static int reopen(struct shard_set *f, uint32_t shard) {
    int err = MR_ENOMEM;
    while (err == MR_ENOMEM) {
        core_destroy(f->shard[shard].core);
        err = shard_set_open(f, shard);
    }
    return err;
}

static void run_steps(struct shard_set *f) {
    char long_key[30];
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = 0;
    SAY(f, push_one(f, "a"));
    while (!f->held_count)
        shard_set_wait(f, FROM, 0, "a");
    SAY(f, emit_all(f, long_key));
    shard_set_answered(f, 0);
    shard_set_sync(f, FROM);
    SAY(f, carry(f));
    SAY(f, reopen(f, 0));
    SAY(f, reopen(f, 1));
    SAY(f, carry(f));
    assert_int_equal(core_links(f->shard[FROM].core), 0);
    uint64_t waiting = shard_set_sum(f, "b", JOB_WAITING) + shard_set_sum(f, "b", JOB_DELAYED) +
                       shard_set_sum(f, "c", JOB_WAITING);
    assert_int_equal(waiting, 4);
}

static void F51_each_allocation_fails_once_between_shards(void **state) {
    (void)state;
    long left = -1;
    for (long n = 0; left < 0; n++) {
        struct shard_set *f = shard_set_create(2, 1);
        (void)mem_fail_after(n);
        run_steps(f);
        left = mem_fail_after(-1);
        shard_set_destroy(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_only_shard_is_the_first),
        cmocka_unit_test(routes_are_as_fixed_as_the_format),
        cmocka_unit_test(routes_spread_evenly),
        cmocka_unit_test(rule13_a_high_mark_holds_stages_of_other_shards),
        cmocka_unit_test(rule13_a_mark_is_known_after_a_restart),
        cmocka_unit_test(rule13_a_mark_that_could_not_be_sent_is_sent_later),
        cmocka_unit_test(U7_a_removed_stage_leaves_no_mark_elsewhere),
        cmocka_unit_test(U7_a_stage_goes_although_its_emit_was_moved),
        cmocka_unit_test(F15_an_outbox_is_in_order_after_cleaning_and_replay),
        cmocka_unit_test(H4_an_emit_that_was_acknowledged_and_trimmed_does_not_come_back),
        cmocka_unit_test(F51_each_allocation_fails_once_between_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
