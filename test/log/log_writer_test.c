// Which thread writes: the log's own, or one that would only wait for it. on_durable is called by
// the thread that has written.
#include "support/log_file_support.h"

#include "base/clock.h"
#include "log/file.h"

#include <errno.h>
#include <sched.h>

static pthread_t owner;
static atomic_int by_owner, by_others; // batches written

static void note_thread(void *arg) {
    (void)arg;
    atomic_fetch_add(pthread_equal(pthread_self(), owner) ? &by_owner : &by_others, 1);
}

static void start_threaded(struct fixture *f) {
    owner = pthread_self();
    by_owner = by_others = 0;
    f->options.segment_size = 1 << 20;
    f->options.inline_writer = false;
    f->options.on_durable = note_thread;
    start(f);
}

static struct file_log *inner(struct fixture *f) {
    return (struct file_log *)f->log;
}

static uint32_t peek(struct fixture *f, const uint32_t *field) {
    pthread_mutex_lock(&inner(f)->lock);
    uint32_t value = *field;
    pthread_mutex_unlock(&inner(f)->lock);
    return value;
}

// As after so many quick syncs, each for one thread.
static void set_lone_and_quick(struct fixture *f, uint32_t syncs) {
    pthread_mutex_lock(&inner(f)->lock);
    inner(f)->lone_syncs = inner(f)->quick_syncs = syncs;
    pthread_mutex_unlock(&inner(f)->lock);
}

// The writer's thread has nothing to do.
static void await_idle_writer(struct fixture *f) {
    for (bool awake = true; awake; sched_yield()) {
        pthread_mutex_lock(&inner(f)->lock);
        awake = inner(f)->awake || spare_due(inner(f));
        pthread_mutex_unlock(&inner(f)->lock);
    }
}

static int push_and_wait(struct fixture *f) {
    push(f, 1, 30);
    log_flush_by(f->log, FLUSH_BY_WAITER);
    return log_wait(f->log, f->at[f->next - 1]);
}

static void start_alone(struct fixture *f) {
    start_threaded(f);
    push(f, 1, 10);
    log_flush(f->log, false);
    assert_int_equal(log_wait(f->log, f->at[0]), 0);
    set_lone_and_quick(f, LONE_SYNCS);
    await_idle_writer(f);
    by_others = 0;
}

static void a_thread_that_waits_alone_soon_writes_by_itself(void **state) {
    struct fixture *f = *state;
    start_threaded(f);
    for (int i = 0; i < LONE_SYNCS; i++)
        assert_int_equal(push_and_wait(f), 0);
    assert_int_equal(by_owner, 0);
    await_idle_writer(f);
    for (int i = 0; i < 10; i++)
        assert_int_equal(push_and_wait(f), 0);
    assert_int_equal(by_owner, 10);
    push(f, 1, 30);
    log_flush(f->log, false); // no thread waits
    while (by_others < LONE_SYNCS + 1)
        sched_yield();
    assert_int_equal(by_owner, 10);
    expect_after_power_cut(f, f->next);
}

static void without_a_promise_to_sync_the_writer_writes(void **state) {
    struct fixture *f = *state;
    f->options.sync = LOG_SYNC_NONE;
    start_alone(f);
    assert_int_equal(push_and_wait(f), 0);
    push(f, 1, 30);
    log_flush_by(f->log, FLUSH_BY_CALLER);
    assert_int_equal(log_wait(f->log, f->at[f->next - 1]), 0);
    assert_int_equal(by_owner, 0);
}

static void segments_are_begun_by_the_writer(void **state) {
    struct fixture *f = *state;
    f->options.first_segment = 4096;
    start_alone(f);
    while (look(f->log).tail < UINT64_C(8) << 20) {
        push(f, 1 + f->next % 3, 20000);
        log_flush_by(f->log, FLUSH_BY_WAITER);
        assert_int_equal(log_wait(f->log, f->at[f->next - 1]), 0);
    }
    assert_true(by_others > 0);
    stop(f);
    expect_numbers(f, 0, f->next);
}

// ---- Several threads --------------------------------------------------------------------------

struct wait {
    struct fixture *f;
    uint64_t at;
    int err;
    pthread_t thread;
};

static void *wait_in_thread(void *arg) {
    struct wait *w = arg;
    w->err = log_wait(w->f->log, w->at);
    return NULL;
}

static struct wait begin_wait(struct fixture *f, uint64_t number) {
    return (struct wait){ .f = f, .at = f->at[number] };
}

static void run_wait(struct wait *w, uint32_t waiting) {
    assert_int_equal(pthread_create(&w->thread, NULL, wait_in_thread, w), 0);
    while (peek(w->f, &inner(w->f)->waiting) < waiting)
        sched_yield();
}

static int end_wait(struct wait *w) {
    pthread_join(w->thread, NULL);
    return w->err;
}

static void push_for(struct fixture *f, struct wait *w, uint32_t waiting) {
    push(f, 1, 30);
    log_flush_by(f->log, FLUSH_BY_WAITER);
    *w = begin_wait(f, f->next - 1);
    run_wait(w, waiting);
}

// What is collected during the first one's sync is written by the writer, in one batch.
static void threads_that_wait_at_once_leave_it_to_the_writer(void **state) {
    struct fixture *f = *state;
    struct wait waits[3];
    start_alone(f);
    sim_disk_hold_syncs(f->sim, true);
    push_for(f, &waits[0], 1);
    sim_disk_await_sync(f->sim);
    push_for(f, &waits[1], 2);
    push_for(f, &waits[2], 3);
    assert_true(inner(f)->replaced);
    sim_disk_hold_syncs(f->sim, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(end_wait(&waits[i]), 0);
    await_idle_writer(f);
    assert_int_equal(by_others, 2);
    assert_true(peek(f, &inner(f)->lone_syncs) < LONE_SYNCS);
    assert_int_equal(push_and_wait(f), 0);
    assert_int_equal(by_owner, 0);
    expect_after_power_cut(f, f->next);
}

// One that pushes and one that takes the job wait for the same entry.
static void threads_that_wait_for_one_entry_count_as_one(void **state) {
    struct fixture *f = *state;
    struct wait first, second;
    start_alone(f);
    sim_disk_hold_syncs(f->sim, true);
    push_for(f, &first, 1);
    second = begin_wait(f, f->next - 1);
    run_wait(&second, 2);
    sim_disk_hold_syncs(f->sim, false);
    assert_int_equal(end_wait(&first), 0);
    assert_int_equal(end_wait(&second), 0);
    assert_int_equal(by_others, 1);
    await_idle_writer(f);
    assert_int_equal(push_and_wait(f), 0);
    assert_int_equal(by_owner, 1);
}

// Closing waits for a thread that writes.
static void what_was_collected_meanwhile_is_durable_when_the_log_is_closed(void **state) {
    struct fixture *f = *state;
    struct wait wait;
    start_alone(f);
    sim_disk_hold_syncs(f->sim, true);
    push_for(f, &wait, 1);
    sim_disk_await_sync(f->sim);
    push(f, 1, 30);
    log_flush(f->log, false);
    sim_disk_hold_syncs(f->sim, false);
    assert_int_equal(end_wait(&wait), 0);
    stop(f);
    sim_disk_restart(f->sim, SIM_DROP, 1);
    expect_numbers(f, 0, f->next);
}

// ---- A caller that must not wait for long -----------------------------------------------------

static void push_and_write(struct fixture *f) {
    push(f, 1, 30);
    log_flush_by(f->log, FLUSH_BY_CALLER);
}

static void a_caller_writes_while_the_disk_is_quick(void **state) {
    struct fixture *f = *state;
    start_alone(f);
    push_and_write(f);
    assert_int_equal(by_owner, 1);
    assert_true(look(f->log).durable > f->at[f->next - 1]);
    set_lone_and_quick(f, QUICK_SYNCS);
    push(f, 1, QUICK_BYTES);
    push_and_write(f);
    assert_int_equal(log_wait(f->log, f->at[f->next - 1]), 0);
    set_lone_and_quick(f, QUICK_SYNCS - 1);
    await_idle_writer(f);
    push_and_write(f);
    assert_int_equal(log_wait(f->log, f->at[f->next - 1]), 0);
    assert_int_equal(by_owner, 1);
}

static void a_caller_never_waits_for_the_writer(void **state) {
    struct fixture *f = *state;
    start_alone(f);
    sim_disk_hold_syncs(f->sim, true);
    push(f, 1, 30);
    log_flush(f->log, false);
    sim_disk_await_sync(f->sim);
    push_and_write(f);
    assert_true(look(f->log).durable <= f->at[f->next - 2]);
    sim_disk_hold_syncs(f->sim, false);
    assert_int_equal(log_wait(f->log, f->at[f->next - 1]), 0);
    assert_int_equal(by_owner, 0);
}

// One slow sync, by any thread, and the next ones are the writer's.
static void one_slow_sync_ends_that(void **state) {
    struct fixture *f = *state;
    struct wait wait;
    start_alone(f);
    sim_disk_hold_syncs(f->sim, true);
    push_for(f, &wait, 1);
    sim_disk_await_sync(f->sim);
    for (uint64_t until = monotonic_us() + 2 * QUICK_US; monotonic_us() < until;)
        ;
    sim_disk_hold_syncs(f->sim, false);
    assert_int_equal(end_wait(&wait), 0);
    assert_int_equal(peek(f, &inner(f)->quick_syncs), 0);
    await_idle_writer(f);
    push_and_write(f);
    assert_int_equal(log_wait(f->log, f->at[f->next - 1]), 0);
    assert_int_equal(by_owner, 0);
}

// ---- Failures ---------------------------------------------------------------------------------

static void expect_final(struct fixture *f, enum flush_by by, enum sim_kind broken) {
    start_alone(f);
    uint64_t durable = look(f->log).durable;
    push(f, 1, 30);
    sim_disk_break(f->sim, broken, EIO);
    log_flush_by(f->log, by);
    assert_int_equal(log_wait(f->log, f->at[1]), MR_ESTOPPED);
    sim_disk_break(f->sim, broken, 0);
    assert_int_equal(by_owner, 1); // who waits is informed of a stop, too
    assert_int_equal(try_push(f, 1, 30, ROOM_CLEAN), MR_ESTOPPED);
    log_flush_by(f->log, by);
    assert_int_equal(log_wait(f->log, f->at[1]), MR_ESTOPPED);
    assert_int_equal(look(f->log).durable, durable);
    assert_non_null(strstr(look(f->log).stopped, "cannot "));
    stop(f);
}

static void F24_a_failure_is_final_whichever_thread_writes(void **state) {
    struct fixture *f = *state;
    f->options.direct_least = UINT64_MAX;
    expect_final(f, FLUSH_BY_WAITER, SIM_SYNCS);
}

static void F24_a_failed_write_is_final_whichever_thread_writes(void **state) {
    expect_final(*state, FLUSH_BY_CALLER, SIM_WRITES);
}

// ---- Crashes ----------------------------------------------------------------------------------

// Returns how many entries were durable when it ended.
static uint64_t push_until_it_fails(struct fixture *f, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (try_push(f, 1 + i % 3, 30 + i * 37 % 300, ROOM_PUSH) < 0)
            break;
        log_flush_by(f->log, i % 2 ? FLUSH_BY_WAITER : FLUSH_BY_CALLER);
        uint64_t last = f->next;
        if (log_wait(f->log, f->at[last - 1]) < 0)
            return last - (1 + i % 3);
        if (i % 8 == 0)
            set_lone_and_quick(f, LONE_SYNCS);
    }
    return f->next;
}

static void crash_at(struct fixture *f, uint64_t call, enum sim_survival how) {
    f->next = 0;
    f->options.segment_size = 8192;
    f->options.inline_writer = false;
    f->options.on_durable = note_thread;
    start(f);
    await_idle_writer(f);
    sim_disk_crash_at(f->sim, sim_disk_calls(f->sim) + call);
    uint64_t durable = push_until_it_fails(f, 80);
    die(f, how);
    struct tally t = { 0 };
    start(f);
    assert_int_equal(log_replay(f->log, tally_see, &t), 0);
    assert_true(tally_right(&t));
    assert_true(t.next >= durable && t.next <= f->next);
    stop(f);
}

static void F28_crash_at_every_call_whichever_thread_writes(void **state) {
    struct fixture *f = *state;
    owner = pthread_self();
    by_owner = 0;
    for (uint64_t call = 1; call < 120; call++) {
        crash_at(f, call, (enum sim_survival)(call % SIM_SURVIVALS));
        sim_disk_destroy(f->sim);
        f->sim = sim_disk_create();
        f->options.disk = sim_disk_disk(f->sim);
    }
    assert_true(by_owner > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ROW(a_thread_that_waits_alone_soon_writes_by_itself),
        ROW(without_a_promise_to_sync_the_writer_writes),
        ROW(segments_are_begun_by_the_writer),
        ROW(threads_that_wait_at_once_leave_it_to_the_writer),
        ROW(threads_that_wait_for_one_entry_count_as_one),
        ROW(what_was_collected_meanwhile_is_durable_when_the_log_is_closed),
        ROW(a_caller_writes_while_the_disk_is_quick),
        ROW(a_caller_never_waits_for_the_writer),
        ROW(one_slow_sync_ends_that),
        ROW(F24_a_failure_is_final_whichever_thread_writes),
        ROW(F24_a_failed_write_is_final_whichever_thread_writes),
        ROW(F28_crash_at_every_call_whichever_thread_writes),
    };
    return cmocka_run_group_tests_name("log_writer", tests, NULL, NULL);
}
