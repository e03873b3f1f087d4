// The log over a replicated store (log/log_stream.h), one story a test, over a simulated store and
// clock. test/log/log_test.c has the contract of every log; log_stream_random_test.c has histories
// with all faults at once.
#include "log/log_stream.h"
#include "log/stream_log.h"
#include "support/log_support.h"
#include "support/sim_stream.h"

#include <pthread.h>

enum { SEGMENT = 4096 };

struct fixture {
    struct sim_store *store;
    struct log_options options;
    struct log *log;
    uint64_t next;        // number of the next entry
    uint64_t at[SAMPLES]; // positions
};

static struct log *open_log(struct fixture *f) {
    struct log *l;
    if (log_stream_open(sim_store_streams(f->store), 0, &f->options, &l) < 0)
        fail_msg("%s", error_text());
    return l;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    f->store = sim_store_create(7);
    f->options = (struct log_options){ .segment_size = SEGMENT,
                                       .inline_writer = true,
                                       .stream = { .window_bytes = 1024,
                                                   .clock = sim_store_clock(f->store) } };
    f->log = open_log(f);
    *state = f;
    return 0;
}

static int setup_threads(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    f->store = sim_store_create(7);
    f->options = (struct log_options){ .segment_size = SEGMENT };
    f->log = open_log(f);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    log_close(f->log);
    sim_store_destroy(f->store);
    free(f);
    return 0;
}

static int try_put(struct fixture *f, struct log *l, uint32_t count, size_t body_size,
                   enum room room) {
    int err = sample_append(l, f->next, count, body_size, room, f->at + f->next);
    f->next += err == 0 ? count : 0;
    return err;
}

static void put(struct fixture *f, uint32_t count, size_t body_size) {
    if (try_put(f, f->log, count, body_size, ROOM_PUSH) < 0)
        fail_msg("%s", error_text());
}

static void await_last(struct fixture *f) {
    if (log_wait(f->log, f->at[f->next - 1]) < 0)
        fail_msg("%s", error_text());
}

static void reopen(struct fixture *f) {
    log_close(f->log);
    f->log = open_log(f);
}

// The numbers from `first` on are there, once each, in whole groups, at their positions.
static void expect_replay(struct fixture *f, struct log *l, uint64_t first) {
    struct tally *t = calloc(1, sizeof *t);
    if (log_replay(l, tally_see, t) < 0)
        fail_msg("%s", error_text());
    assert_true(tally_right(t));
    assert_int_equal(t->next, f->next);
    assert_int_equal(t->next == t->first ? f->next : t->first, first);
    for (uint64_t i = first; i < f->next; i++) {
        bool right;
        assert_int_equal(t->at[i], f->at[i]);
        assert_int_equal(sample_read(l, t->at[i], i, &right), 0);
        assert_true(right);
    }
    free(t);
}

static void expect_stopped(struct log *l, const char *why) {
    struct log_state s = look(l);
    assert_true(log_has_stopped(l));
    if (!strstr(s.stopped, why))
        fail_msg("stopped for another reason: %s", s.stopped);
}

// ---- Appends in doubt -------------------------------------------------------------------------

static const enum sim_fault doubts[] = { SIM_REQUEST_LOST, SIM_REPLY_LOST, SIM_LATE,
                                         SIM_WAIT_CANCELLED };
enum { DOUBTS = sizeof doubts / sizeof *doubts };

// F33: an append without an answer is resolved by a claim: it is there once, whatever had happened,
// also when the claim's answer is lost as well.
static void F33_an_append_in_doubt_is_there_once(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < DOUBTS; i++) {
        for (int j = 0; j <= DOUBTS; j++) {
            put(f, 1, 50);
            sim_store_plan(f->store, SIM_APPEND, doubts[i]);
            if (j < DOUBTS)
                sim_store_plan(f->store, SIM_CLAIM, doubts[j]);
            put(f, 3, 30);
            await_last(f);
            sim_store_let_late(f->store);
            put(f, 2, 10);
            await_last(f);
        }
    }
    assert_string_equal(look(f->log).stopped, "");
    reopen(f);
    expect_replay(f, f->log, 0);
}

// F36: a failover to a replica that has all that was acknowledged, while an append is in doubt that
// only the old primary has.
static void F35_a_failover_takes_back_only_what_was_in_doubt(void **state) {
    struct fixture *f = *state;
    put(f, 2, 50);
    await_last(f);
    sim_store_plan(f->store, SIM_APPEND, SIM_WAIT_CANCELLED);
    sim_store_plan(f->store, SIM_CLAIM, SIM_FAILOVER);
    put(f, 2, 60);
    await_last(f);
    sim_store_failover(f->store, 0);
    put(f, 1, 70);
    await_last(f);
    reopen(f);
    expect_replay(f, f->log, 0);
}

// F36: a failover undoes a claim that was in doubt, and another owner's claim raises the epoch to
// the same number. Who has seen the first one, and claims after that, is too late.
static void F35_the_epoch_of_a_claim_that_was_undone_takes_the_stream_from_no_owner(void **state) {
    struct fixture *f = *state;
    struct stream_store *store = sim_store_streams(f->store);
    struct stream *first, *second;
    struct stream_state before, seen, after;
    struct log_options options = f->options;
    struct log *l;
    assert_int_equal(store->open(store, 0, &first), 0);
    assert_int_equal(store->open(store, 0, &second), 0);
    sim_stream_name(first, "first");
    sim_stream_name(second, "second");
    sim_store_look(f->store, 0, &before);
    sim_store_plan(f->store, SIM_CLAIM, SIM_WAIT_CANCELLED);
    assert_int_equal(first->impl->claim(first, before.epoch, &after), STREAM_IN_DOUBT);
    sim_store_look(f->store, 0, &seen);
    assert_string_equal(seen.owner, "first");
    sim_store_failover(f->store, 0);
    assert_int_equal(second->impl->claim(second, before.epoch, &after), STREAM_DONE);
    assert_int_equal(after.epoch, seen.epoch);
    options.stream.expects_epoch = true;
    options.stream.expected_epoch = seen.epoch;
    options.stream.expected_owner = seen.owner;
    assert_int_equal(log_stream_open(store, 0, &options, &l), MR_EBUSY);
    sim_store_look(f->store, 0, &after);
    assert_int_equal(after.epoch, seen.epoch);
    assert_string_equal(after.owner, "second");
    first->impl->close(first);
    second->impl->close(second);
}

// A batch that is sent again is the same bit by bit, although more was appended meanwhile.
static void a_batch_is_sent_again_as_it_was(void **state) {
    struct fixture *f = *state;
    put(f, 1, 10);
    sim_store_outage(f->store, UINT64_MAX);
    log_flush(f->log, false);
    put(f, 1, 20);
    sim_store_outage_end(f->store);
    sim_store_plan(f->store, SIM_APPEND, SIM_LATE);
    sim_store_plan(f->store, SIM_CLAIM, SIM_UNAVAILABLE);
    await_last(f);
    assert_ptr_not_equal(sim_store_batch(f->store, 0, f->at[0]),
                         sim_store_batch(f->store, 0, f->at[1]));
    reopen(f);
    expect_replay(f, f->log, 0);
}

// ---- Owners -----------------------------------------------------------------------------------

// F32: the older of two logs on one stream is refused at its next append.
static void F32_a_paused_owner_wakes_and_writes(void **state) {
    struct fixture *f = *state;
    put(f, 3, 40);
    await_last(f);
    struct log *newer = open_log(f);
    expect_replay(f, newer, 0);
    uint64_t at, was = f->next;
    assert_int_equal(sample_append(f->log, 77, 1, 5, ROOM_PUSH, &at), 0);
    assert_int_equal(log_wait(f->log, at), MR_ESTOPPED);
    expect_stopped(f->log, "another owner has claimed the stream");
    assert_int_equal(sample_append(f->log, 78, 1, 5, ROOM_PUSH, &at), MR_ESTOPPED);
    assert_int_equal(log_trim(f->log, at), MR_ESTOPPED);
    log_close(f->log);
    f->log = newer;
    assert_int_equal(f->next, was);
    put(f, 1, 9);
    await_last(f);
    reopen(f);
    expect_replay(f, f->log, 0);
}

// F32: it is also refused when the new owner has written and trimmed the positions where it writes.
static void F32_a_trim_does_not_let_the_older_owner_in(void **state) {
    struct fixture *f = *state;
    struct log *older = f->log;
    put(f, 1, 40);
    await_last(f);
    f->log = open_log(f);
    for (int i = 0; i < 20; i++) {
        put(f, 1, 700);
        await_last(f);
    }
    assert_int_equal(log_trim(f->log, f->at[15]), 0);
    assert_true(sim_store_calls(f->store, SIM_TRIM) > 0);
    assert_null(sim_store_batch(f->store, 0, f->at[1]));
    uint64_t at;
    assert_int_equal(sample_append(older, 77, 1, 5, ROOM_PUSH, &at), 0);
    assert_int_equal(log_wait(older, at), MR_ESTOPPED);
    expect_stopped(older, "another owner");
    log_close(older);
    assert_null(sim_store_batch(f->store, 0, at));
}

// F34: what an owner had in flight when another one claimed is in the log before the claim, or
// never.
static void F34_an_append_in_flight_is_before_the_claim_or_never(void **state) {
    for (int before = 0; before < 2; before++) {
        struct fixture *f = *state;
        put(f, 2, 40);
        await_last(f);
        sim_store_plan(f->store, SIM_APPEND, SIM_LATE);
        sim_store_plan(f->store, SIM_CLAIM, SIM_UNAVAILABLE);
        uint64_t at;
        assert_int_equal(sample_append(f->log, f->next, 1, 11, ROOM_PUSH, &at), 0);
        log_flush(f->log, false);
        assert_int_equal(look(f->log).durable <= at, 1);
        if (before)
            sim_store_let_late(f->store);
        struct log *newer = open_log(f);
        sim_store_let_late(f->store);
        bool there = sim_store_batch(f->store, 0, at) != NULL;
        if (there)
            f->at[f->next++] = at;
        assert_true(there || !before);
        expect_replay(f, newer, 0);
        assert_int_equal(log_wait(f->log, at), MR_ESTOPPED);
        log_close(f->log);
        f->log = newer;
    }
}

// An idle owner proves every two seconds that it still owns the stream. What counts is when the
// proof was sent.
static void an_idle_owner_beats(void **state) {
    struct fixture *f = *state;
    uint64_t opened_ms = log_owned_ms(f->log);
    log_flush(f->log, false);
    assert_int_equal(sim_store_calls(f->store, SIM_BEAT), 0);
    sim_store_advance(f->store, 2000);
    sim_store_plan(f->store, SIM_BEAT, SIM_DELAY);
    uint64_t sent_ms = sim_store_now_ms(f->store);
    log_flush(f->log, false);
    assert_int_equal(sim_store_calls(f->store, SIM_BEAT), 2); // the first was answered late
    assert_true(log_owned_ms(f->log) > opened_ms);
    assert_true(log_owned_ms(f->log) > sent_ms);

    sim_store_outage(f->store, UINT64_MAX);
    uint64_t owned_ms = log_owned_ms(f->log);
    for (int i = 0; i < 10; i++) {
        sim_store_advance(f->store, 1000);
        log_flush(f->log, false);
    }
    assert_int_equal(log_owned_ms(f->log), owned_ms);
    sim_store_outage_end(f->store);
    sim_store_advance(f->store, 1000);
    log_flush(f->log, false);
    assert_true(sim_store_now_ms(f->store) - log_owned_ms(f->log) < 10);
}

// F32: a beat finds out, too.
static void F32_a_beat_finds_a_newer_owner(void **state) {
    struct fixture *f = *state;
    struct log *newer = open_log(f);
    sim_store_advance(f->store, 2500);
    log_flush(f->log, false);
    expect_stopped(f->log, "another owner");
    log_close(newer);
}

static void an_owner_that_closes_releases_the_stream(void **state) {
    struct fixture *f = *state;
    put(f, 1, 10);
    reopen(f);
    assert_int_equal(sim_store_released(f->store), 1);
    put(f, 1, 10);
    sim_store_outage(f->store, UINT64_MAX);
    log_close(f->log);
    sim_store_outage_end(f->store);
    assert_int_equal(sim_store_released(f->store), 1);
    f->next = 1; // the second was never acknowledged
    f->log = open_log(f);
    expect_replay(f, f->log, 0);
}

static void shards_have_separate_streams(void **state) {
    struct fixture *f = *state;
    struct log *other;
    assert_int_equal(log_stream_open(sim_store_streams(f->store), 1, &f->options, &other), 0);
    put(f, 2, 10);
    await_last(f);
    uint64_t at[3];
    assert_int_equal(sample_append(other, 0, 3, 5, ROOM_PUSH, at), 0);
    assert_int_equal(log_wait(other, at[2]), 0);
    log_close(other);
    reopen(f);
    expect_replay(f, f->log, 0);
}

static void a_log_that_is_only_looked_at_claims_nothing(void **state) {
    struct fixture *f = *state;
    put(f, 3, 100);
    await_last(f);
    struct log_options options = f->options;
    options.read_only = true;
    struct log *seen;
    assert_int_equal(log_stream_open(sim_store_streams(f->store), 0, &options, &seen), 0);
    expect_replay(f, seen, 0);
    uint64_t at;
    assert_int_equal(sample_append(seen, 0, 1, 1, ROOM_PUSH, &at), MR_EPERM);
    assert_int_equal(log_trim(seen, f->at[2]), MR_EPERM);
    log_close(seen);
    put(f, 1, 5);
    await_last(f);
}

// ---- Outages, space, bounds -------------------------------------------------------------------

// H5: an outage of the store loses nothing: what is appended meanwhile is durable afterwards.
static void H5_an_outage_loses_nothing(void **state) {
    struct fixture *f = *state;
    put(f, 1, 10);
    await_last(f);
    uint64_t began_ms = sim_store_now_ms(f->store);
    sim_store_outage(f->store, 20000);
    for (int i = 0; i < 10; i++) {
        put(f, 2, 100);
        log_flush(f->log, false);
    }
    struct log_state s = look(f->log);
    assert_true(s.waiting_since_ms >= began_ms && s.waiting_since_ms < began_ms + 50);
    assert_string_equal(s.outage, "the simulated store does not answer");
    assert_true(s.durable <= f->at[1]);
    uint64_t calls = sim_store_calls(f->store, SIM_APPEND);
    await_last(f);
    assert_true(sim_store_now_ms(f->store) >= began_ms + 20000);
    assert_true(sim_store_calls(f->store, SIM_APPEND) < calls + 40); // it pauses between
    assert_string_equal(look(f->log).outage, "");
    assert_int_equal(look(f->log).waiting_since_ms, 0);
    reopen(f);
    expect_replay(f, f->log, 0);
}

// H5: memory is bounded: pushes are refused first, then commits, then the cleaner.
static void H5_what_an_outage_collects_is_bounded(void **state) {
    struct fixture *f = *state;
    f->options.segment_size = 0;
    sim_store_destroy(f->store);
    f->store = sim_store_create(1);
    f->options.stream.clock = sim_store_clock(f->store);
    f->log = open_log(f);
    sim_store_outage(f->store, UINT64_MAX);
    uint64_t most[3];
    for (enum room room = ROOM_PUSH; room <= ROOM_CLEAN; room++) {
        while (try_put(f, f->log, 1, 8 << 20, room) == 0)
            log_flush(f->log, false);
        assert_int_equal(try_put(f, f->log, 1, 8 << 20, room), MR_EFULL);
        most[room] = look(f->log).memory;
    }
    assert_true(most[0] >= 64 << 20 && most[0] < 80 << 20);
    assert_true(most[1] > most[0] && most[2] > most[1] && most[2] < 140 << 20);
    sim_store_outage_end(f->store);
    await_last(f);
    assert_int_equal(look(f->log).memory, 0);
    assert_int_equal(try_put(f, f->log, 1, 10, ROOM_PUSH), 0);
}

static int teardown_early(void **state) {
    struct fixture *f = *state;
    log_close(f->log);
    f->log = NULL;
    return 0;
}

static int setup_closed(void **state) {
    setup(state);
    return teardown_early(state);
}

static void a_store_without_space_refuses_pushes_only(void **state) {
    struct fixture *f = *state;
    put(f, 1, 100);
    await_last(f);
    sim_store_space(f->store, 200);
    put(f, 1, 100);
    log_flush(f->log, false);
    assert_true(look(f->log).full);
    assert_int_equal(try_put(f, f->log, 1, 10, ROOM_PUSH), MR_EFULL);
    assert_non_null(strstr(error_text(), "no space"));
    assert_int_equal(try_put(f, f->log, 1, 10, ROOM_COMMIT), 0);
    uint64_t calls = sim_store_calls(f->store, SIM_APPEND);
    log_flush(f->log, false);
    assert_int_equal(sim_store_calls(f->store, SIM_APPEND), calls); // not before a second
    assert_string_equal(look(f->log).stopped, "");
    sim_store_space(f->store, 0);
    await_last(f);
    assert_false(look(f->log).full);
    put(f, 1, 10);
    reopen(f);
    expect_replay(f, f->log, 0);
}

// Also if the store has space for nothing else: what was copied before the trim is not in it yet.
static void a_trim_does_not_overtake_what_has_no_space(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 20; i++)
        put(f, 1, 700);
    await_last(f);
    sim_store_space(f->store, 200);
    put(f, 1, 100);
    log_flush(f->log, false);
    assert_true(look(f->log).full);
    assert_int_equal(log_trim(f->log, f->at[15]), 0);
    assert_int_equal(sim_store_calls(f->store, SIM_TRIM), 0);
    sim_store_space(f->store, 0);
    await_last(f);
    log_flush(f->log, false);
    assert_int_equal(sim_store_calls(f->store, SIM_TRIM), 1);
}

// A trim is sent when what was appended before it is durable, and does not wait for the store.
static void a_trim_comes_after_what_was_appended_before(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 20; i++)
        put(f, 1, 700);
    await_last(f);
    sim_store_outage(f->store, UINT64_MAX);
    put(f, 1, 100);
    assert_int_equal(log_trim(f->log, f->at[15]), 0);
    uint64_t head = look(f->log).head;
    assert_true(head > f->at[10] && head <= f->at[15]);
    assert_int_equal(sim_store_calls(f->store, SIM_TRIM), 0);
    bool right;
    assert_int_equal(sample_read(f->log, f->at[0], 0, &right), MR_EGONE);
    assert_non_null(sim_store_batch(f->store, 0, f->at[0]));
    sim_store_outage_end(f->store);
    sim_store_plan(f->store, SIM_TRIM, SIM_REPLY_LOST);
    await_last(f);
    sim_store_advance(f->store, 100);
    log_flush(f->log, false);
    sim_store_advance(f->store, 100);
    log_flush(f->log, false);
    assert_int_equal(sim_store_calls(f->store, SIM_TRIM), 2);
    assert_null(sim_store_batch(f->store, 0, f->at[0]));
    uint64_t first = 0;
    while (f->at[first] < head)
        first++;
    reopen(f);
    expect_replay(f, f->log, first);
}

// ---- Reading ----------------------------------------------------------------------------------

static void bodies_beyond_the_window_are_read_from_the_store(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 12; i++) {
        put(f, 1, 3000);
        await_last(f);
    }
    uint64_t reads = sim_store_calls(f->store, SIM_READ);
    struct buffer body = { 0 };
    assert_int_equal(log_read_now(f->log, f->at[11], NULL, &body), MR_EAGAIN);
    put(f, 1, 300);
    assert_int_equal(log_read_now(f->log, f->at[12], NULL, &body), 0);
    assert_int_equal(body.size, 300);
    assert_int_equal(sim_store_calls(f->store, SIM_READ), reads);
    buffer_finish(&body);
    bool right;
    sim_store_plan(f->store, SIM_READ, SIM_UNAVAILABLE); // a reader waits, too
    for (uint64_t i = 0; i < 12; i++) {
        assert_int_equal(sample_read(f->log, f->at[i], i, &right), 0);
        assert_true(right);
    }
    assert_true(sim_store_calls(f->store, SIM_READ) > reads + 12);
    sim_store_outage(f->store, UINT64_MAX);
    assert_int_equal(sample_read(f->log, f->at[0], 0, &right), MR_ENET);
    sim_store_outage_end(f->store);
}

static void scan_expect(struct fixture *f, uint64_t from, size_t step, uint64_t first) {
    struct tally *t = calloc(1, sizeof *t);
    while (from < look(f->log).tail)
        assert_int_equal(log_scan(f->log, from, step, tally_see, t, &from), 0);
    assert_true(tally_right(t));
    assert_int_equal(t->first, first);
    assert_int_equal(t->next, f->next);
    free(t);
}

// A scan of what is not in memory may begin and end inside a batch.
static void a_scan_reads_parts_of_batches(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 30; i++) {
        put(f, 5, 100);
        if (i % 3 == 0)
            log_flush(f->log, false);
    }
    reopen(f);
    scan_expect(f, look(f->log).head, 1, 0);
    scan_expect(f, look(f->log).head, 300, 0);
    scan_expect(f, look(f->log).head, SIZE_MAX, 0);
    scan_expect(f, f->at[65], 200, 65);
}

static void a_stream_keeps_its_segment_size(void **state) {
    struct fixture *f = *state;
    put(f, 1, 10);
    f->options.segment_size = 1 << 20;
    reopen(f);
    assert_int_equal(look(f->log).segment_size, SEGMENT);
}

static void large_bodies_and_full_groups_come_back(void **state) {
    struct fixture *f = *state;
    f->options.segment_size = 0;
    f->log = open_log(f);
    put(f, 1, 16 << 20);
    await_last(f);
    put(f, 2, 5 << 20);
    put(f, LOG_GROUP - 3, 20);
    reopen(f);
    expect_replay(f, f->log, 0);
    scan_expect(f, look(f->log).head, 1 << 20, 0);
}

// ---- Losses and damage ------------------------------------------------------------------------

// F38: a store that has lost what it had acknowledged is refused, whether an append or a claim
// notices it.
static void F38_a_store_that_lost_acknowledged_entries_stops_the_log(void **state) {
    struct fixture *f = *state;
    for (int doubt = 0; doubt < 2; doubt++) {
        for (int i = 0; i < 5; i++) {
            put(f, 1, 50);
            await_last(f);
        }
        if (doubt)
            sim_store_plan(f->store, SIM_APPEND, SIM_REQUEST_LOST);
        sim_store_failover(f->store, 2);
        put(f, 1, 50);
        assert_int_equal(log_wait(f->log, f->at[f->next - 1]), MR_ESTOPPED);
        expect_stopped(f->log, "the store has lost acknowledged entries");
        f->next -= 3;
        reopen(f);
        expect_replay(f, f->log, 0);
    }
}

// F38: a node that has seen more of a stream than is left of it does not claim it.
static void F38_a_node_that_has_seen_more_does_not_claim(void **state) {
    struct fixture *f = *state;
    _Atomic uint64_t known_end = 0;
    struct stream_state before, after;
    f->options.stream.known_ends = &known_end;
    reopen(f);
    for (int i = 0; i < 5; i++) {
        put(f, 1, 50);
        await_last(f);
    }
    log_close(f->log);
    f->log = NULL;
    sim_store_failover(f->store, 4); // the last change is that the owner has left
    sim_store_look(f->store, 0, &before);
    assert_true(known_end > before.tail);
    struct log *log = NULL;
    assert_int_equal(log_stream_open(sim_store_streams(f->store), 0, &f->options, &log),
                     MR_ECORRUPT);
    assert_non_null(strstr(error_text(), "has lost acknowledged entries"));
    sim_store_look(f->store, 0, &after);
    assert_int_equal(after.epoch, before.epoch);
    f->options.stream.known_ends = NULL; // another process goes on without them
    f->log = open_log(f);
}

// F38, F35: batches that are missing at opening, in the middle or at the end, as a replica that is
// behind would lack them.
static void F38_F35_missing_batches_are_noticed_at_opening(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 9; i++) {
        put(f, 1, 50);
        await_last(f);
    }
    uint64_t missing[] = { f->at[8], f->at[4] };
    struct tally *t = calloc(1, sizeof *t);
    for (int i = 0; i < 2; i++) {
        sim_store_forget(f->store, 0, missing[i]);
        reopen(f);
        assert_int_equal(log_replay(f->log, tally_see, t), MR_ECORRUPT);
        assert_non_null(strstr(error_text(), "missing"));
    }
    free(t);
}

static int see_damage(void *arg, const struct log_seen *seen) {
    uint64_t *damaged = arg;
    *damaged += seen->damaged;
    return 0;
}

static void damage_is_noticed(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        put(f, 1, 2000);
        await_last(f);
    }
    uint8_t *bodies = (uint8_t *)sim_store_batch(f->store, 0, f->at[1])->bodies.data;
    uint8_t *heads = (uint8_t *)sim_store_batch(f->store, 0, f->at[2])->heads.data;
    bool right;
    uint64_t damaged = 0, next = f->at[0];
    bodies[1000] ^= 1;
    assert_int_equal(sample_read(f->log, f->at[1], 1, &right), MR_ECORRUPT);
    assert_int_equal(log_read(f->log, f->at[1], NULL, NULL), 0);
    assert_int_equal(log_scan(f->log, next, SIZE_MAX, see_damage, &damaged, &next), 0);
    assert_int_equal(damaged, 1);
    reopen(f);
    struct tally *t = calloc(1, sizeof *t);
    assert_int_equal(log_replay(f->log, tally_see, t), 0); // bodies are not read then
    heads[50] ^= 1;
    reopen(f);
    assert_int_equal(log_replay(f->log, tally_see, t), MR_ECORRUPT);
    next = f->at[0];
    assert_int_equal(log_scan(f->log, next, SIZE_MAX, see_damage, &damaged, &next), 0);
    assert_true(next > f->at[1] && next <= f->at[2]);
    assert_int_equal(log_scan(f->log, next, SIZE_MAX, see_damage, &damaged, &next), MR_ECORRUPT);
    free(t);
}

// Every bit of a batch is covered by a checksum.
static void every_bit_of_a_batch_is_checked(void **state) {
    struct fixture *f = *state;
    put(f, 2, 21);
    await_last(f);
    reopen(f);
    const struct stream_batch *b = sim_store_batch(f->store, 0, f->at[0]);
    uint8_t *parts[] = { (uint8_t *)b->heads.data, (uint8_t *)b->bodies.data };
    size_t sizes[] = { b->heads.size, b->bodies.size };
    for (size_t bit = 0; bit < 8 * (sizes[0] + sizes[1]); bit++) {
        size_t byte = bit / 8, part = byte >= sizes[0];
        uint8_t *at = parts[part] + (part ? byte - sizes[0] : byte);
        bool pad = part && (byte - sizes[0]) % 40 >= 16 + 21;
        bool right[2];
        struct tally *t = calloc(1, sizeof *t);
        *at ^= (uint8_t)(1 << bit % 8);
        int read = sample_read(f->log, f->at[0], 0, &right[0]);
        int other = sample_read(f->log, f->at[1], 1, &right[1]);
        int replay = log_replay(f->log, tally_see, t);
        *at ^= (uint8_t)(1 << bit % 8);
        bool noticed = part ? read == MR_ECORRUPT || other == MR_ECORRUPT : replay == MR_ECORRUPT;
        assert_int_equal(noticed, !pad);
        assert_true((read == 0) == right[0] && (other == 0) == right[1]);
        free(t);
    }
}

static void a_damaged_body_stays_damaged(void **state) {
    struct fixture *f = *state;
    struct entry e = { .head = mr_str("h"), .body = mr_str("broken"), .damaged = true };
    uint64_t at, damaged = 0, next = look(f->log).head;
    struct buffer out = { 0 };
    assert_int_equal(log_append(f->log, &e, 1, ROOM_CLEAN, &at), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(log_read(f->log, at, NULL, &out), MR_ECORRUPT);
        assert_int_equal(log_read(f->log, at, &out, NULL), 0);
        reopen(f);
    }
    assert_int_equal(log_scan(f->log, next, SIZE_MAX, see_damage, &damaged, &next), 0);
    assert_int_equal(damaged, 1);
    assert_int_equal(out.size, 2);
    buffer_finish(&out);
}

// F51: opening, reading and scanning over the store, with every allocation failing once.
static void F51_every_allocation_may_fail_while_reading(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        put(f, 2, 3000 / 2);
        await_last(f);
    }
    bool failed = true;
    for (long n = 0; failed; n++) {
        struct log *l = NULL;
        mem_fail_after(n);
        int err = log_stream_open(sim_store_streams(f->store), 0, &f->options, &l);
        failed = mem_fail_after(-1) < 0;
        assert_true(err == 0 || (failed && err == MR_ENOMEM));
        log_close(l);
    }
    reopen(f);
    failed = true;
    for (long n = 0; failed; n++) {
        bool right;
        mem_fail_after(n);
        int err = sample_read(f->log, f->at[1], 1, &right);
        failed = mem_fail_after(-1) < 0;
        assert_true(right || (failed && err == MR_ENOMEM));
    }
    failed = true;
    for (long n = 0; failed; n++) {
        uint64_t damaged = 0, next = f->at[1];
        mem_fail_after(n);
        int err = log_scan(f->log, next, SIZE_MAX, see_damage, &damaged, &next);
        failed = mem_fail_after(-1) < 0;
        assert_true(err == 0 || (failed && err == MR_ENOMEM));
    }
    scan_expect(f, look(f->log).head, SIZE_MAX, 0);
}

// ---- Threads ----------------------------------------------------------------------------------

// While one append is in flight the next batch gathers, and the owner never waits.
static void one_append_is_in_flight_while_the_next_gathers(void **state) {
    struct fixture *f = *state;
    sim_store_hold(f->store, true);
    put(f, 1, 10);
    log_flush(f->log, false);
    sim_store_await(f->store);
    for (int i = 0; i < 10; i++) {
        put(f, 1, 10);
        log_flush(f->log, false);
    }
    assert_int_equal(sim_store_calls(f->store, SIM_APPEND), 1);
    assert_true(look(f->log).durable <= f->at[0]);
    sim_store_hold(f->store, false);
    await_last(f);
    assert_int_equal(sim_store_calls(f->store, SIM_APPEND), 2);
    reopen(f);
    expect_replay(f, f->log, 0);
}

struct follower {
    struct fixture *f;
    _Atomic uint64_t published; // entries below may be read
    _Atomic bool ended;
    _Atomic uint64_t wrong;
};

static void *follow(void *arg) {
    struct follower *r = arg;
    for (uint64_t i = 0; !r->ended; i++) {
        uint64_t published = r->published;
        bool right = true;
        if (published && sample_read(r->f->log, r->f->at[i % published], i % published, &right) < 0)
            r->wrong++;
        r->wrong += !right;
    }
    return NULL;
}

// F33: the same with threads: the owner appends, others read, and the writer resolves doubts.
static void F33_doubts_are_resolved_while_others_read(void **state) {
    struct fixture *f = *state;
    f->options.stream.window_bytes = 1000;
    reopen(f);
    for (int i = 0; i < DOUBTS; i++)
        sim_store_chance(f->store, doubts[i], 40);
    struct follower r = { .f = f };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, follow, &r), 0);
    while (f->next < 600) {
        put(f, 1 + f->next % 3, 30 + f->next % 200);
        log_flush(f->log, false);
        if (f->next % 5 == 0)
            await_last(f);
        r.published = f->next;
    }
    await_last(f);
    r.ended = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(r.wrong, 0);
    for (int i = 0; i < DOUBTS; i++)
        sim_store_chance(f->store, doubts[i], 0);
    assert_true(sim_store_calls(f->store, SIM_CLAIM) > 2);
    reopen(f);
    expect_replay(f, f->log, 0);
}

// D4: batches of one small entry take more memory than their bytes.
static void D4_the_window_counts_the_memory_of_small_batches(void **state) {
    struct fixture *f = *state;
    f->options.stream.window_bytes = 16 << 10;
    reopen(f);
    while (f->next < 200) {
        put(f, 1, 10);
        await_last(f);
    }
    uint64_t calls = sim_store_calls(f->store, SIM_READ), kept = 0;
    bool right;
    for (uint64_t i = f->next; i-- > 0; kept++) {
        assert_int_equal(sample_read(f->log, f->at[i], i, &right), 0);
        assert_true(right);
        if (sim_store_calls(f->store, SIM_READ) > calls)
            break;
    }
    assert_true(kept > 0 && kept < 200);
    assert_true(kept * sizeof(struct memory_batch) <= 16 << 10);
}

// H5: closing ends a call that the store never answers.
static void H5_closing_does_not_wait_for_ever(void **state) {
    struct fixture *f = *state;
    f->options.stream.close_ms = 1;
    reopen(f);
    put(f, 1, 10);
    await_last(f);
    sim_store_hold(f->store, true);
    put(f, 1, 10);
    log_flush(f->log, false);
    sim_store_await(f->store);
    log_close(f->log);
    sim_store_hold(f->store, false);
    f->next = 1;
    f->log = open_log(f);
    expect_replay(f, f->log, 0);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define STORY_WITH(setup, name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY(F33_an_append_in_doubt_is_there_once),
        STORY(F35_a_failover_takes_back_only_what_was_in_doubt),
        STORY(F35_the_epoch_of_a_claim_that_was_undone_takes_the_stream_from_no_owner),
        STORY(a_batch_is_sent_again_as_it_was),
        STORY(F32_a_paused_owner_wakes_and_writes),
        STORY(F32_a_trim_does_not_let_the_older_owner_in),
        STORY(F34_an_append_in_flight_is_before_the_claim_or_never),
        STORY(an_idle_owner_beats),
        STORY(F32_a_beat_finds_a_newer_owner),
        STORY(an_owner_that_closes_releases_the_stream),
        STORY(shards_have_separate_streams),
        STORY(a_log_that_is_only_looked_at_claims_nothing),
        STORY(H5_an_outage_loses_nothing),
        STORY_WITH(setup_closed, H5_what_an_outage_collects_is_bounded),
        STORY(a_store_without_space_refuses_pushes_only),
        STORY(a_trim_comes_after_what_was_appended_before),
        STORY(a_trim_does_not_overtake_what_has_no_space),
        STORY(bodies_beyond_the_window_are_read_from_the_store),
        STORY(a_scan_reads_parts_of_batches),
        STORY(a_stream_keeps_its_segment_size),
        STORY_WITH(setup_closed, large_bodies_and_full_groups_come_back),
        STORY(F38_a_store_that_lost_acknowledged_entries_stops_the_log),
        STORY(F38_a_node_that_has_seen_more_does_not_claim),
        STORY(F38_F35_missing_batches_are_noticed_at_opening),
        STORY(damage_is_noticed),
        STORY(every_bit_of_a_batch_is_checked),
        STORY(a_damaged_body_stays_damaged),
        STORY(F51_every_allocation_may_fail_while_reading),
        STORY_WITH(setup_threads, one_append_is_in_flight_while_the_next_gathers),
        STORY_WITH(setup_threads, F33_doubts_are_resolved_while_others_read),
        STORY(D4_the_window_counts_the_memory_of_small_batches),
        STORY_WITH(setup_threads, H5_closing_does_not_wait_for_ever),
    };
    return cmocka_run_group_tests_name("log_stream", tests, NULL, NULL);
}
