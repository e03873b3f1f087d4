// F28, F29: a scripted history of the file log (making, appending, sealing, trimming, reopening) is
// cut short at every call to the disk that changes something, and what survives is chosen in
// several ways. Afterwards the log opens, has everything it had reported as durable, in order, in
// whole groups, and goes on. The same loop then fails calls instead of the machine, and
// allocations.
#include "support/log_support.h"
#include "support/sim_disk.h"

#include <errno.h>

enum { SEGMENT = 1024, GROWN = 8192, BLOCKS = 16384, GROUPS = 24, SEEDS = 3 };

// Whether files of segments have one size, or grow; with one group that needs a larger spare.
// DIRECT segments have several blocks, which are all written past the page cache, the last one many
// times.
enum growth { EVEN, GROWS, DIRECT };
static const size_t segment_sizes[] = { SEGMENT, GROWN, BLOCKS };
static const size_t first_segments[] = { SEGMENT, SEGMENT, BLOCKS };
static const size_t large_bodies[] = { 0, 1200, 5000 }; // of one group of a session

struct history {
    struct sim_disk *sim;
    struct log_options options;
    enum growth growth;
    uint64_t next;    // number of the next entry
    uint64_t durable; // all numbers below were reported as durable
    uint64_t trimmed; // numbers below may be gone
    uint64_t at[SAMPLES];
};

static void history_init(struct history *h, enum log_sync sync, enum growth growth) {
    *h = (struct history){ .sim = sim_disk_create(), .growth = growth };
    h->options = (struct log_options){ .sync = sync,
                                       .segment_size = segment_sizes[growth],
                                       .first_segment = first_segments[growth],
                                       .direct_least = growth == DIRECT,
                                       .inline_writer = true,
                                       .disk = sim_disk_disk(h->sim) };
}

static void history_finish(struct history *h) {
    sim_disk_destroy(h->sim);
}

// --- the script ---

// Notes what the log calls durable. Under the looser policies that holds for a process that dies,
// not for a machine; then only a sync that was asked for counts.
static void note_durable(struct history *h, struct log *l, bool asked) {
    struct log_state s = look(l);
    if (h->options.sync != LOG_SYNC_ALWAYS && (!asked || s.stopped[0]))
        return;
    while (h->durable < h->next && h->at[h->durable] < s.durable)
        h->durable++;
}

static int script_groups(struct history *h, struct log *l, uint32_t groups) {
    for (uint32_t i = 0; i < groups; i++) {
        uint32_t count = 1 + i % 3;
        size_t large = i == 2 ? large_bodies[h->growth] : 0;
        size_t size = large ? large : 20 + i * 13 % 90;
        int err = sample_append(l, h->next, count, size, ROOM_PUSH, h->at + h->next);
        if (err < 0)
            return err;
        h->next += count;
        if (i % 4 != 2) // now and then two groups go together
            log_flush(l, i % 8 == 7);
        note_durable(h, l, i % 8 == 7);
    }
    return 0;
}

static int script_trim(struct history *h, struct log *l) {
    log_flush(l, true);
    note_durable(h, l, true);
    if (look(l).stopped[0])
        return MR_ESTOPPED;
    uint64_t upto = h->durable - h->durable / 3;
    if (h->at[upto] > look(l).head)
        h->trimmed = upto;
    return log_trim(l, h->at[upto]);
}

static int script_session(struct history *h, uint32_t groups) {
    struct log *l;
    struct tally t = { 0 };
    int err = log_file_open("store", &h->options, &l);
    if (err < 0)
        return err;
    err = log_replay(l, tally_see, &t);
    if (err == 0 && t.next > t.first)
        h->next = t.next; // a failure at the very end of a session shows up here
    if (err == 0)
        err = script_groups(h, l, groups);
    if (err == 0)
        err = script_trim(h, l);
    if (err == 0)
        err = script_groups(h, l, groups / 2);
    log_close(l);
    return err;
}

static int script(struct history *h) {
    int err = script_session(h, GROUPS);
    return err < 0 ? err : script_session(h, GROUPS / 3);
}

// A session that ends with the machine, when everything is durable.
static void script_cut(struct history *h) {
    struct log *l;
    assert_int_equal(log_file_open("store", &h->options, &l), 0);
    assert_int_equal(script_groups(h, l, 2), 0);
    log_flush(l, true);
    note_durable(h, l, true);
    assert_int_equal(h->durable, h->next);
    sim_disk_crash(h->sim);
    log_close(l);
}

// --- what must hold ---

// The log opens and has all that is durable. Goes on from what it has.
static void expect_recovered(struct history *h) {
    struct log *l;
    struct tally *t = calloc(1, sizeof *t), *bodies = calloc(1, sizeof *bodies);
    uint64_t next;
    if (log_file_open("store", &h->options, &l) < 0)
        fail_msg("%s", error_text());
    if (log_replay(l, tally_see, t) < 0 ||
        log_scan(l, look(l).head, SIZE_MAX, tally_see, bodies, &next) < 0)
        fail_msg("%s", error_text());
    assert_true(tally_right(t) && tally_right(bodies));
    assert_int_equal(t->next, bodies->next);
    if (t->next < h->durable || t->next > h->next)
        fail_msg("%llu to %llu, durable %llu of %llu", (unsigned long long)t->first,
                 (unsigned long long)t->next, (unsigned long long)h->durable,
                 (unsigned long long)h->next);
    assert_true(t->first <= h->trimmed || t->next == t->first);
    assert_true(h->durable <= h->trimmed || t->next > t->first);
    for (uint64_t i = t->first; i < t->next; i++)
        assert_int_equal(t->at[i], h->at[i]);
    h->next = h->durable = t->next;
    log_close(l);
    free(t);
    free(bodies);
}

static void crash_once(uint64_t call, enum log_sync sync, enum growth growth, enum sim_survival how,
                       uint64_t seed) {
    struct history h;
    history_init(&h, sync, growth);
    sim_disk_crash_at(h.sim, call);
    script(&h);
    sim_disk_crash(h.sim);
    sim_disk_restart(h.sim, how, seed);

    // Recovery itself may be cut short, and is then simply done again.
    struct log *l;
    sim_disk_crash_at(h.sim, sim_disk_calls(h.sim) + 1 + seed % 5);
    if (log_file_open("store", &h.options, &l) == 0)
        log_close(l);
    sim_disk_crash(h.sim);
    sim_disk_restart(h.sim, how, seed + 1);

    // What recovery returned is on the disk from then on, and so is what follows.
    expect_recovered(&h);
    if (seed % 2)
        script_cut(&h);
    sim_disk_crash(h.sim);
    sim_disk_restart(h.sim, SIM_DROP, 0);
    expect_recovered(&h);
    assert_true(script(&h) == 0);
    expect_recovered(&h);
    history_finish(&h);
}

static uint64_t script_calls(enum log_sync sync, enum growth growth) {
    struct history h;
    history_init(&h, sync, growth);
    assert_int_equal(script(&h), 0);
    uint64_t calls = sim_disk_calls(h.sim);
    assert_true(growth != DIRECT || sim_disk_directs(h.sim) > GROUPS);
    expect_recovered(&h);
    history_finish(&h);
    return calls;
}

static void crash_everywhere(enum log_sync sync, enum growth growth) {
    uint64_t calls = script_calls(sync, growth);
    for (uint64_t call = 1; call <= calls; call++)
        for (enum sim_survival how = SIM_DROP; how < SIM_SURVIVALS; how++)
            for (uint64_t seed = 0; seed < SEEDS; seed++)
                if (seed == 0 || how > SIM_KEEP)
                    crash_once(call, sync, growth, how, seed * 1000003 + call);
}

static void F28_F29_crash_at_every_call(void **state) {
    (void)state;
    crash_everywhere(LOG_SYNC_ALWAYS, EVEN);
}

static void F28_F29_crash_at_every_call_without_syncs(void **state) {
    (void)state;
    crash_everywhere(LOG_SYNC_NONE, EVEN);
}

static void F28_F29_crash_at_every_call_while_segments_grow(void **state) {
    (void)state;
    crash_everywhere(LOG_SYNC_ALWAYS, GROWS);
    crash_everywhere(LOG_SYNC_NONE, GROWS);
}

static void F28_F29_crash_at_every_call_past_the_page_cache(void **state) {
    (void)state;
    crash_everywhere(LOG_SYNC_ALWAYS, DIRECT);
    crash_everywhere(LOG_SYNC_NONE, DIRECT);
}

// An error of the disk at any call: the log reports it, keeps what it had reported as durable, and
// opens again once the disk works.
static void every_call_may_fail(int err, enum growth growth) {
    uint64_t calls = script_calls(LOG_SYNC_ALWAYS, growth);
    for (uint64_t call = 1; call <= calls; call++) {
        struct history h;
        history_init(&h, LOG_SYNC_ALWAYS, growth);
        sim_disk_fail_at(h.sim, call, err);
        script(&h);
        expect_recovered(&h);
        assert_int_equal(script(&h), 0);
        sim_disk_crash(h.sim);
        sim_disk_restart(h.sim, SIM_DROP, call);
        expect_recovered(&h);
        history_finish(&h);
    }
}

static void F24_every_call_may_fail(void **state) {
    (void)state;
    every_call_may_fail(EIO, EVEN);
    every_call_may_fail(EIO, GROWS);
    every_call_may_fail(EIO, DIRECT);
}

static void F25_every_call_may_find_the_disk_full(void **state) {
    (void)state;
    every_call_may_fail(ENOSPC, EVEN);
    every_call_may_fail(ENOSPC, GROWS);
    every_call_may_fail(ENOSPC, DIRECT);
}

static void F51_every_allocation_may_fail(void **state) {
    (void)state;
    long left = -1;
    for (long n = 0; left < 0; n++) {
        struct history h;
        history_init(&h, LOG_SYNC_ALWAYS, GROWS);
        mem_fail_after(n);
        int err = script(&h);
        left = mem_fail_after(-1);
        assert_true(err == 0 || (left < 0 && err == MR_ENOMEM));
        expect_recovered(&h);
        history_finish(&h);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F28_F29_crash_at_every_call),
        cmocka_unit_test(F28_F29_crash_at_every_call_without_syncs),
        cmocka_unit_test(F28_F29_crash_at_every_call_while_segments_grow),
        cmocka_unit_test(F28_F29_crash_at_every_call_past_the_page_cache),
        cmocka_unit_test(F24_every_call_may_fail),
        cmocka_unit_test(F25_every_call_may_find_the_disk_full),
        cmocka_unit_test(F51_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("log_crash", tests, NULL, NULL);
}
