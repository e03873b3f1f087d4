// The file log beside the contract: what a store is, what durable means, errors of the disk,
// owners.
#include "support/log_file_support.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

// --- the store ---

static void a_store_is_read_again(void **state) {
    struct fixture *f = *state;
    start(f);
    fill(f, 5);
    stop(f);
    for (int i = 0; i < 3; i++) {
        expect_numbers(f, 0, f->next);
        push(f, 2, 30);
        stop(f);
    }
    expect_numbers(f, 0, f->next);
}

static void a_killed_store_is_read_again(void **state) {
    struct fixture *f = *state;
    start(f);
    fill(f, 4);
    die(f, SIM_KEEP);
    expect_numbers(f, 0, f->next);
}

static void a_store_keeps_its_segment_size(void **state) {
    struct fixture *f = *state;
    start(f);
    fill(f, 3);
    stop(f);
    f->options.segment_size = 1 << 20;
    expect_numbers(f, 0, f->next);
    assert_int_equal(look(f->log).segment_size, SEGMENT);
}

static void an_index_is_rebuilt_when_missing_or_wrong(void **state) {
    struct fixture *f = *state;
    uint64_t size;
    start(f);
    fill(f, 5);
    stop(f);
    assert_non_null(sim_disk_file(f->sim, path_of_segment(1, "idx"), &size));
    sim_disk_remove(f->sim, path_of_segment(1, "idx"));
    flip(f, path_of_segment(2, "idx"), size / 2);
    sim_disk_cut(f->sim, path_of_segment(3, "idx"), size / 3);
    expect_numbers(f, 0, f->next);
    for (uint64_t n = 1; n <= 3; n++)
        assert_non_null(sim_disk_file(f->sim, path_of_segment(n, "idx"), &size));
    stop(f);
    expect_numbers(f, 0, f->next);
}

static void another_directory_is_not_touched(void **state) {
    struct fixture *f = *state;
    const struct disk *d = f->options.disk;
    uint64_t calls;
    d->make_dir(d, dir);
    int fd = d->open(d, "store/letter.txt", O_RDWR | O_CREAT, 0666);
    d->close(d, fd);
    calls = sim_disk_calls(f->sim);
    assert_int_equal(open_only(f), MR_EINVAL);
    assert_non_null(strstr(error_text(), "not a Millrace store"));
    assert_int_equal(sim_disk_calls(f->sim), calls);
}

static void a_newer_store_is_refused_with_advice(void **state) {
    struct fixture *f = *state;
    uint64_t size;
    start(f);
    stop(f);
    // Version 2, with the sums that a version 2 would have: written by the rules of store.c.
    uint8_t *bytes = sim_disk_file(f->sim, "store/store", &size);
    for (int slot = 0; slot < 2; slot++) {
        uint8_t *raw = bytes + slot * 512;
        raw[8] = 2;
        uint64_t sum = bytes_hash((mr_bytes){ raw, 504 }, 0);
        memcpy(raw + 504, &sum, 8);
    }
    sim_disk_touch(f->sim, "store/store");
    assert_int_equal(open_only(f), MR_EINVAL);
    assert_non_null(strstr(error_text(), "newer Millrace"));
}

static void looking_changes_nothing(void **state) {
    struct fixture *f = *state;
    start(f);
    fill(f, 3);
    push(f, 1, 50);
    log_flush(f->log, false);
    uint64_t calls = sim_disk_calls(f->sim);
    struct log_options o = f->options;
    struct log *l;
    struct tally t = { 0 };
    uint64_t at;
    o.read_only = true;
    assert_int_equal(log_file_open(dir, &o, &l), 0);
    assert_int_equal(log_replay(l, tally_see, &t), 0);
    assert_int_equal(t.next, f->next);
    assert_int_equal(sample_append(l, 0, 1, 1, ROOM_PUSH, &at), MR_EPERM);
    assert_int_equal(log_trim(l, UINT64_MAX), MR_EPERM);
    log_close(l);
    assert_int_equal(sim_disk_calls(f->sim), calls);
}

// --- reading ahead ---

enum { IN_ROW = 2000, ROW_BODY = 1000 };

// A store that was just opened has nothing in memory.
static void fill_row(struct fixture *f) {
    f->options.segment_size = 1 << 20;
    start(f);
    for (int i = 0; i < IN_ROW; i++)
        push(f, 1, ROW_BODY);
    stop(f);
    struct tally *t = calloc(1, sizeof *t);
    start(f);
    assert_int_equal(log_replay(f->log, tally_see, t), 0);
    assert_int_equal(t->next, IN_ROW);
    free(t);
}

static void read_right(struct fixture *f, uint64_t number) {
    struct buffer body = { 0 };
    if (log_read(f->log, f->at[number], NULL, &body) < 0)
        fail_msg("%s", error_text());
    assert_true(body.size == ROW_BODY && sample_body_right(number, buffer_bytes(&body)));
    buffer_finish(&body);
}

// What is read in a row costs few reads of the disk, also when rows and single reads mix.
static void rows_are_read_in_large_pieces(void **state) {
    struct fixture *f = *state;
    fill_row(f);
    uint64_t before = sim_disk_reads(f->sim);
    for (uint64_t i = 0; i < IN_ROW; i++)
        read_right(f, i);
    assert_true(sim_disk_reads(f->sim) - before <= 15);
    before = sim_disk_reads(f->sim);
    for (uint64_t i = 0; i < IN_ROW / 2; i++) {
        read_right(f, i);
        read_right(f, IN_ROW / 2 + i);
        if (i % 100 == 0)
            read_right(f, (i * 7919 + 500) % IN_ROW);
    }
    assert_true(sim_disk_reads(f->sim) - before <= 60);
}

// Single reads here and there cost one read of the disk each, of a few bytes.
static void single_reads_read_nothing_ahead(void **state) {
    struct fixture *f = *state;
    fill_row(f);
    uint64_t before = sim_disk_reads(f->sim);
    for (uint64_t i = 0; i < 100; i++)
        read_right(f, i * 797 % IN_ROW);
    assert_int_equal(sim_disk_reads(f->sim) - before, 100);
}

static int read_now(struct fixture *f, uint64_t number) {
    struct buffer body = { 0 };
    int err = log_read_now(f->log, f->at[number], NULL, &body);
    assert_true(err < 0 ? body.size == 0 : sample_body_right(number, buffer_bytes(&body)));
    buffer_finish(&body);
    return err;
}

static void what_is_on_the_disk_only_is_not_waited_for(void **state) {
    struct fixture *f = *state;
    fill_row(f);
    push(f, 1, ROW_BODY);
    sim_disk_chill(f->sim, true);
    assert_int_equal(read_now(f, IN_ROW), 0); // not written yet
    assert_int_equal(read_now(f, 5), MR_EAGAIN);
    read_right(f, 5);
    read_right(f, 6);
    assert_int_equal(read_now(f, 7), 0); // came with the one before
    assert_int_equal(read_now(f, 1500), MR_EAGAIN);
    sim_disk_chill(f->sim, false);
    assert_int_equal(read_now(f, 1500), 0);
}

// F51: without memory to read ahead everything is read by itself; what is appended later is seen.
static void F51_a_row_is_read_without_memory_for_it_and_while_it_grows(void **state) {
    struct fixture *f = *state;
    fill_row(f);
    read_right(f, 0);
    mem_fail_after(0); // the window
    read_right(f, 1);
    mem_fail_after(-1);
    for (uint64_t i = IN_ROW - 50; i < IN_ROW + 50; i++) {
        if (i >= IN_ROW) {
            push(f, 1, ROW_BODY);
            if (i % 3 == 0)
                log_flush(f->log, true);
        }
        read_right(f, i);
    }
}

// --- memory and disk ---

// What was written last is kept, at most 16 MiB, however small the batches were; what is older
// comes from the file, and is tested.
static void what_was_just_written_is_read_from_memory(void **state) {
    struct fixture *f = *state;
    bool right = false;
    f->options.segment_size = f->options.first_segment = 1 << 25;
    start(f);
    push(f, 1, 100);
    log_flush(f->log, false);
    flip(f, path_of_segment(0, "seg"), f->at[0] + ENTRY_FRAME + 50);
    for (int i = 0; i < 100; i++) {
        push(f, 1, i % 10 ? 100 : 100000);
        log_flush(f->log, false);
    }
    for (uint64_t n = 0; n < f->next; n++) {
        assert_int_equal(sample_read(f->log, f->at[n], n, &right), 0);
        assert_true(right);
    }
    while (look(f->log).tail < 17 << 20) {
        push(f, 1, 400000);
        log_flush(f->log, false);
    }
    assert_int_equal(sample_read(f->log, f->at[0], 0, &right), MR_ECORRUPT);
    assert_int_equal(sample_read(f->log, f->at[1], 1, &right), 0);
    assert_true(right);
}

static void fresh_disk(struct fixture *f) {
    stop(f);
    sim_disk_destroy(f->sim);
    f->sim = sim_disk_create();
    f->options.disk = sim_disk_disk(f->sim);
    f->next = 0;
}

// A synced batch is a write and a sync, or one call that does both past the page cache; but where
// it comes to blocks that were never written, zeros go with it, 256 KiB at a time.
static void zeros_go_ahead_of_synced_batches(void **state) {
    struct fixture *f = *state;
    f->options.segment_size = f->options.first_segment = 1 << 20;
    for (int i = 0; i < 2 * (LOG_SYNC_NONE + 1); i++) {
        bool synced = i / 2 == LOG_SYNC_ALWAYS, direct = i % 2;
        f->options.sync = (enum log_sync)(i / 2);
        f->options.interval_ms = 1000000;
        f->options.direct_least = direct ? 0 : UINT64_MAX;
        start(f);
        push(f, 1, 10);
        log_flush(f->log, false); // the writer makes the spare
        uint64_t calls = sim_disk_calls(f->sim), begin = look(f->log).tail >> 18, writes = 0;
        for (; look(f->log).tail >> 18 < begin + 2; writes++) {
            push(f, 1, 8000);
            log_flush(f->log, false);
        }
        uint64_t each = synced && !direct ? 2 : 1, zeros = synced ? 2 : 0;
        assert_int_equal(sim_disk_calls(f->sim) - calls, each * writes + zeros);
        fresh_disk(f);
    }
}

// --- past the page cache ---

static uint64_t directs_of_push(struct fixture *f, size_t size) {
    uint64_t before = sim_disk_directs(f->sim);
    push(f, 1, size);
    log_flush(f->log, false);
    return sim_disk_directs(f->sim) - before;
}

// Every synced batch, and large ones with any policy.
static void batches_go_past_the_page_cache_where_that_is_faster(void **state) {
    struct fixture *f = *state;
    f->options.segment_size = f->options.first_segment = 4 << 20;
    for (enum log_sync sync = LOG_SYNC_ALWAYS; sync <= LOG_SYNC_NONE; sync++) {
        f->options.sync = sync;
        f->options.interval_ms = 1000000;
        start(f);
        (void)directs_of_push(f, 10); // zeros go with it
        assert_int_equal(directs_of_push(f, 10), sync == LOG_SYNC_ALWAYS);
        assert_int_equal(directs_of_push(f, LOG_DIRECT), 1);
        stop(f);
        expect_numbers(f, 0, f->next);
        fresh_disk(f);
    }
    f->options.sync = LOG_SYNC_ALWAYS;
    f->options.direct_least = UINT64_MAX;
    start(f);
    assert_int_equal(directs_of_push(f, LOG_DIRECT), 0);
}

// Batches of many sizes, some of them over several segments, with an opening in between.
static uint8_t *written_bytes(struct fixture *f, uint64_t number, uint64_t *out_size) {
    for (int session = 0; session < 2; session++) {
        start(f);
        for (int i = 0; i < 40; i++) {
            push(f, 1 + (uint32_t)i % 3, (size_t)i * i * 7 % 6000);
            log_flush(f->log, false);
        }
        stop(f);
    }
    expect_numbers(f, 0, f->next);
    uint8_t *bytes = sim_disk_file(f->sim, path_of_segment(number, "seg"), out_size);
    assert_non_null(bytes);
    uint8_t *copy = malloc(*out_size);
    memcpy(copy, bytes, *out_size);
    return copy;
}

static void both_ways_write_the_same_bytes(void **state) {
    struct fixture *f = *state;
    f->options.segment_size = f->options.first_segment = 1 << 16;
    for (uint64_t number = 0; number < 3; number++) {
        uint64_t size, usual_size;
        f->options.direct_least = 1;
        uint8_t *direct = written_bytes(f, number, &size);
        assert_true(sim_disk_directs(f->sim) > 40);
        fresh_disk(f);
        f->options.direct_least = UINT64_MAX;
        uint8_t *usual = written_bytes(f, number, &usual_size);
        assert_int_equal(sim_disk_directs(f->sim), 0);
        assert_int_equal(size, usual_size);
        assert_memory_equal(direct, usual, size);
        free(direct);
        free(usual);
        fresh_disk(f);
    }
}

static void a_file_system_may_refuse_direct_writes(void **state) {
    struct fixture *f = *state;
    f->options.segment_size = f->options.first_segment = 1 << 16;
    for (enum sim_direct how = SIM_NO_DIRECT_OPEN; how <= SIM_NO_DIRECT_WRITE; how++) {
        sim_disk_set_direct(f->sim, how);
        start(f);
        for (int i = 0; i < 20; i++) {
            push(f, 2, 3000);
            log_flush(f->log, false);
            assert_int_equal(look(f->log).synced, look(f->log).tail);
        }
        assert_int_equal(sim_disk_directs(f->sim), 0);
        die(f, SIM_DROP);
        expect_numbers(f, 0, f->next);
        fresh_disk(f);
    }
}

// --- sync policies ---

static void the_sync_policy_decides_what_durable_means(void **state) {
    struct fixture *f = *state;
    for (enum log_sync sync = LOG_SYNC_ALWAYS; sync <= LOG_SYNC_NONE; sync++) {
        f->options.sync = sync;
        f->options.interval_ms = 1000000;
        start(f);
        push(f, 1, 10);
        log_flush(f->log, true);
        uint64_t synced = f->next;
        push(f, 2, 10);
        assert_true(look(f->log).durable <= f->at[f->next - 2]);
        log_flush(f->log, false);
        assert_true(look(f->log).durable > f->at[f->next - 1]);
        f->next = sync == LOG_SYNC_ALWAYS ? f->next : synced;
        expect_after_power_cut(f, f->next);
    }
}

static void a_requested_sync_is_awaited_with_any_policy(void **state) {
    struct fixture *f = *state;
    f->options.sync = LOG_SYNC_NONE;
    f->options.inline_writer = false;
    start(f);
    push(f, 1, 10);
    log_flush(f->log, true);
    assert_int_equal(log_wait(f->log, f->at[0]), 0);
    expect_after_power_cut(f, 1);
}

static void count_call(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void an_interval_syncs_by_itself(void **state) {
    struct fixture *f = *state;
    atomic_int calls = 0;
    f->options.sync = LOG_SYNC_INTERVAL;
    f->options.interval_ms = 1;
    f->options.inline_writer = false;
    f->options.on_durable = count_call;
    f->options.arg = &calls;
    start(f);
    push(f, 1, 10);
    log_flush(f->log, false);
    while (calls < 2) // once when written, once when synced
        sched_yield();
    expect_after_power_cut(f, 1);
}

static void a_trim_waits_for_what_was_appended_before_it(void **state) {
    struct fixture *f = *state;
    f->options.sync = LOG_SYNC_NONE;
    start(f);
    fill(f, 3);
    uint64_t copied = f->next;
    push(f, 2, 50); // copies of what counts, so far only handed to the system
    assert_int_equal(log_trim(f->log, 2 * SEGMENT), 0);
    die(f, SIM_DROP);
    start(f);
    struct tally t = { 0 };
    assert_int_equal(log_replay(f->log, tally_see, &t), 0);
    assert_true(t.first > 0 && t.next == copied + 2);
}

// --- F24 to F27: errors of the disk ---

static void F24_sync_error_once_is_final(void **state) {
    struct fixture *f = *state;
    bool right;
    start(f);
    push(f, 1, 30);
    log_flush(f->log, false);
    uint64_t durable = look(f->log).durable;
    push(f, 1, 30);
    sim_disk_break(f->sim, SIM_SYNCS, EIO);
    log_flush(f->log, false);
    sim_disk_break(f->sim, SIM_SYNCS, 0);
    uint64_t calls = sim_disk_calls(f->sim);
    assert_int_equal(log_wait(f->log, f->at[1]), MR_ESTOPPED);
    assert_int_equal(try_push(f, 1, 30, ROOM_CLEAN), MR_ESTOPPED);
    assert_int_equal(log_trim(f->log, f->at[1]), MR_ESTOPPED);
    log_flush(f->log, true);
    assert_int_equal(log_wait(f->log, f->at[0]), 0);
    assert_int_equal(look(f->log).durable, durable);
    assert_non_null(strstr(look(f->log).stopped, "cannot sync"));
    assert_int_equal(sample_read(f->log, f->at[0], 0, &right), 0);
    assert_int_equal(sample_read(f->log, f->at[1], 1, &right), 0);
    assert_true(right);
    assert_int_equal(sim_disk_calls(f->sim), calls); // nothing was tried again
}

static void F24_a_stop_ends_all_waits(void **state) {
    struct fixture *f = *state;
    atomic_int calls = 0;
    f->options.inline_writer = false;
    f->options.on_durable = count_call;
    f->options.arg = &calls;
    start(f);
    push(f, 1, 30);
    sim_disk_break(f->sim, SIM_WRITES, EIO);
    assert_int_equal(log_wait(f->log, f->at[0]), MR_ESTOPPED);
    while (calls < 1)
        sched_yield();
    assert_non_null(strstr(look(f->log).stopped, "cannot write"));
}

// Pushes are refused first, commits next, the cleaner last; nothing is harmed, and it ends by
// itself.
static void F25_disk_full_stops_pushes_first(void **state) {
    struct fixture *f = *state;
    uint32_t pushes = 0, commits = 0, cleans = 0;
    start(f);
    fill(f, 3);
    sim_disk_break(f->sim, SIM_ALLOCATIONS, ENOSPC);
    while (try_push(f, 1, 100, ROOM_PUSH) == 0)
        pushes++;
    assert_int_equal(try_push(f, 1, 100, ROOM_PUSH), MR_EFULL);
    assert_true(look(f->log).full);
    while (try_push(f, 1, 100, ROOM_COMMIT) == 0)
        commits++;
    assert_int_equal(try_push(f, 1, 100, ROOM_COMMIT), MR_EFULL);
    while (try_push(f, 1, 100, ROOM_CLEAN) == 0)
        cleans++;
    assert_int_equal(try_push(f, 1, 100, ROOM_CLEAN), MR_EFULL);
    assert_true(commits > 0 && cleans > 0);
    log_flush(f->log, true);
    assert_string_equal(look(f->log).stopped, "");
    assert_true(look(f->log).durable == look(f->log).tail);
    stop(f);
    expect_numbers(f, 0, f->next); // also opening needs no room
    assert_int_equal(try_push(f, 1, 100, ROOM_PUSH), MR_EFULL);
    assert_true(look(f->log).full);
    sim_disk_break(f->sim, SIM_ALLOCATIONS, 0);
    push(f, 1, 100);
    log_flush(f->log, true);
    assert_false(look(f->log).full);
    stop(f);
    expect_numbers(f, 0, f->next);
}

// --- growth ---

enum { GROWN = 16 * SEGMENT };

static uint64_t file_size(const struct fixture *f, const char *path) {
    uint64_t size = 0;
    return sim_disk_file(f->sim, path, &size) ? size : 0;
}

static void start_small(struct fixture *f) {
    f->options.segment_size = GROWN;
    f->options.first_segment = SEGMENT;
    start(f);
    log_flush(f->log, true); // the writer makes the spare
}

// Until the segment with this number is there, with a spare behind it.
static void fill_upto(struct fixture *f, uint64_t number) {
    while (!file_size(f, path_of_segment(number, "seg"))) {
        push(f, 1, 60);
        log_flush(f->log, true);
    }
}

static void files_of_a_new_store_are_small_and_double(void **state) {
    struct fixture *f = *state;
    start_small(f);
    assert_int_equal(look(f->log).bytes, SEGMENT + 2 * SEGMENT);
    for (uint64_t n = 0; n < 7; n++) {
        uint64_t size = n < 4 ? SEGMENT << n : GROWN;
        fill_upto(f, n);
        assert_int_equal(file_size(f, path_of_segment(n, "seg")), size);
        assert_int_equal(look(f->log).last_size, size);
        assert_int_equal(look(f->log).segment_size, GROWN);
        if (n % 2)
            stop(f);
        if (n % 2)
            expect_numbers(f, 0, f->next);
    }
    log_trim(f->log, look(f->log).tail);
    log_flush(f->log, true);
    assert_int_equal(look(f->log).bytes, 2 * GROWN);
}

static void a_group_that_is_larger_than_the_spare_makes_it_larger(void **state) {
    struct fixture *f = *state;
    start_small(f);
    push(f, 1, 60);
    log_flush(f->log, true);
    push(f, 3, 2000);
    log_flush(f->log, true);
    assert_int_equal(file_size(f, path_of_segment(1, "seg")), 8 * SEGMENT);
    assert_int_equal(try_push(f, 1, GROWN, ROOM_PUSH), MR_ETOOBIG);
    expect_after_power_cut(f, f->next);
}

// A full disk refuses only the group that does not fit into what is allocated.
static void F25_a_spare_that_cannot_grow_serves_smaller_groups(void **state) {
    struct fixture *f = *state;
    start_small(f);
    push(f, 1, 60);
    log_flush(f->log, true);
    sim_disk_break(f->sim, SIM_ALLOCATIONS, ENOSPC);
    assert_int_equal(try_push(f, 3, 2000, ROOM_PUSH), MR_EFULL);
    assert_true(look(f->log).full);
    assert_string_equal(look(f->log).stopped, "");
    uint64_t before = f->next;
    while (look(f->log).tail < GROWN)
        assert_int_equal(try_push(f, 1, 60, ROOM_COMMIT), 0);
    assert_true(f->next > before);
    sim_disk_break(f->sim, SIM_ALLOCATIONS, 0);
    push(f, 3, 2000);
    assert_false(look(f->log).full);
    log_flush(f->log, true);
    expect_after_power_cut(f, f->next);
}

// Where twice the size is too much, the same size again will do.
static void F25_files_stay_as_they_are_where_room_is_short(void **state) {
    struct fixture *f = *state;
    f->options.max_bytes = 12 * SEGMENT;
    start_small(f);
    fill_upto(f, 3);
    assert_int_equal(file_size(f, path_of_segment(2, "seg")), 4 * SEGMENT);
    assert_int_equal(file_size(f, path_of_segment(3, "seg")), 4 * SEGMENT);
    assert_true(look(f->log).bytes <= 12 * SEGMENT + 4096); // and indexes
    expect_after_power_cut(f, f->next);
}

static void F25_a_bound_on_bytes_is_a_full_disk(void **state) {
    struct fixture *f = *state;
    f->options.max_bytes = 12 * SEGMENT;
    start(f);
    while (try_push(f, 1, 100, ROOM_PUSH) == 0)
        log_flush(f->log, false);
    assert_true(look(f->log).full);
    assert_true(look(f->log).bytes <= 12 * SEGMENT + 4096);
    assert_int_equal(try_push(f, 1, 100, ROOM_COMMIT), 0);
    assert_int_equal(log_trim(f->log, look(f->log).tail), 0);
    assert_false(look(f->log).full);
    push(f, 1, 100);
}

static void F25_it_clears_by_itself_with_a_writer(void **state) {
    struct fixture *f = *state;
    f->options.inline_writer = false;
    f->options.max_bytes = 12 * SEGMENT;
    start(f);
    while (try_push(f, 1, 100, ROOM_PUSH) == 0)
        ;
    assert_true(look(f->log).full);
    assert_int_equal(log_trim(f->log, look(f->log).tail), 0);
    while (look(f->log).full)
        sched_yield();
    push(f, 1, 100);
}

static void F25_disk_full_in_a_batch_is_final(void **state) {
    struct fixture *f = *state;
    start(f);
    push(f, 1, 30);
    log_flush(f->log, true);
    push(f, 2, 30);
    sim_disk_fail_at(f->sim, sim_disk_calls(f->sim) + 1, ENOSPC);
    log_flush(f->log, true);
    assert_int_equal(log_wait(f->log, f->at[2]), MR_ESTOPPED);
    assert_int_equal(try_push(f, 1, 1, ROOM_PUSH), MR_ESTOPPED);
    stop(f);
    expect_numbers(f, 0, 1);
}

// What is collected for one sync may be more than a batch has room for at first. It begins within
// a block of the disk.
static void a_batch_grows_with_what_is_collected(void **state) {
    struct fixture *f = *state;
    f->options.segment_size = 8 << 20;
    start(f);
    push(f, 1, 100);
    log_flush(f->log, true);
    for (int i = 0; i < 50; i++)
        push(f, 1 + (uint32_t)i % 3, 30000);
    log_flush(f->log, true);
    assert_int_equal(look(f->log).durable, look(f->log).tail);
    die(f, SIM_DROP);
    expect_numbers(f, 0, f->next);
}

static void F26_short_writes_are_continued(void **state) {
    struct fixture *f = *state;
    sim_disk_shorten(f->sim, 7);
    start(f);
    fill(f, 3);
    stop(f);
    expect_numbers(f, 0, f->next);
}

static void F27_read_only_filesystem(void **state) {
    struct fixture *f = *state;
    start(f);
    fill(f, 2);
    stop(f);
    sim_disk_break(f->sim, SIM_WRITES, EROFS);
    assert_int_equal(open_only(f), MR_EIO);
    f->options.read_only = true;
    expect_numbers(f, 0, f->next); // reading works
    stop(f);
    f->options.read_only = false;
    sim_disk_break(f->sim, SIM_WRITES, 0);
    start(f);
    push(f, 1, 10);
    sim_disk_break(f->sim, SIM_WRITES, EROFS);
    assert_int_equal(log_wait(f->log, f->at[f->next - 1]), MR_ESTOPPED);
}

// --- F31 ---

static void F31_two_owners_of_one_directory(void **state) {
    struct fixture *f = *state;
    start(f);
    assert_int_equal(open_only(f), MR_EBUSY);
    stop(f);
    assert_int_equal(open_only(f), 0);
}

static int child_opens(const char *path) {
    pid_t child = fork();
    if (child == 0) {
        struct log *l;
        int err = log_file_open(path, &(struct log_options){ .segment_size = SEGMENT }, &l);
        char pid[32];
        snprintf(pid, sizeof pid, "process %ld", (long)getppid());
        _exit(err == MR_EBUSY && strstr(error_text(), pid) ? 1 : err == 0 ? 2 : 3);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void F31_two_processes_on_one_directory(void **state) {
    (void)state;
    char path[] = "/tmp/millrace-lock-XXXXXX";
    struct log *l;
    assert_non_null(mkdtemp(path));
    assert_int_equal(log_file_open(path, &(struct log_options){ .segment_size = SEGMENT }, &l), 0);
    assert_int_equal(child_opens(path), 1);
    log_close(l);
    assert_int_equal(child_opens(path), 2);
    folder_remove(path);
}

static void a_store_is_never_stdin(void **state) {
    (void)state;
    char path[] = "/tmp/millrace-stdin-XXXXXX";
    struct log *l;
    struct log_options options = { .segment_size = SEGMENT, .inline_writer = true };
    int before = dup(STDIN_FILENO);
    assert_non_null(mkdtemp(path));
    close(STDIN_FILENO);
    assert_int_equal(log_file_open(path, &options, &l), 0);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    log_close(l);
    if (before >= 0)
        assert_int_equal(dup2(before, STDIN_FILENO), STDIN_FILENO);
    close(before);
    folder_remove(path);
}

static int refusals; // how often the lock is held by a process that has not written its id

static int lock_refused(const struct disk *d, int fd) {
    return refusals-- > 0 ? -EWOULDBLOCK : disk_os.lock(d, fd);
}

// What a killed process had begun to start has its lock until it runs. A busy machine takes its
// time.
static void F31_a_lock_left_by_the_dead_is_waited_for(void **state) {
    (void)state;
    char path[] = "/tmp/millrace-lock-XXXXXX";
    struct disk disk = disk_os;
    struct log_options options = { .segment_size = SEGMENT, .disk = &disk };
    struct log *l;
    disk.lock = lock_refused;
    assert_non_null(mkdtemp(path));
    assert_int_equal(child_opens(path), 2); // and is dead
    refusals = 50;
    assert_int_equal(log_file_open(path, &options, &l), 0);
    log_close(l);
    refusals = INT_MAX;
    assert_int_equal(log_file_open(path, &options, &l), MR_EBUSY); // this process still has it open
    folder_remove(path);
}

// A log that must not wait for its writer refuses what would be too much: pushes first, then
// commits, then the cleaner.
static void what_is_not_written_is_bounded(void **state) {
    struct fixture *f = *state;
    enum { MOST = 4096 };
    f->options.max_unwritten = MOST;
    f->options.segment_size = 16 * MOST;
    start(f);
    log_flush(f->log, true);
    static const enum room rooms[] = { ROOM_PUSH, ROOM_COMMIT, ROOM_CLEAN };
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        while (try_push(f, 1, 100, rooms[i]) == 0)
            assert_true(look(f->log).memory < 3 * MOST);
        assert_int_equal(try_push(f, 1, 100, rooms[i]), MR_EFULL);
        assert_non_null(strstr(error_text(), "not written yet"));
        assert_true(look(f->log).memory >= log_unwritten_most(MOST, rooms[i]));
        assert_true(look(f->log).behind);
    }
    log_flush(f->log, true);
    assert_false(look(f->log).behind);
    push(f, 1, 100);
    stop(f);
    expect_numbers(f, 0, f->next);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ROW(a_store_is_read_again),
        ROW(a_killed_store_is_read_again),
        ROW(a_store_keeps_its_segment_size),
        ROW(an_index_is_rebuilt_when_missing_or_wrong),
        ROW(another_directory_is_not_touched),
        ROW(a_newer_store_is_refused_with_advice),
        ROW(looking_changes_nothing),
        ROW(rows_are_read_in_large_pieces),
        ROW(single_reads_read_nothing_ahead),
        ROW(what_is_on_the_disk_only_is_not_waited_for),
        ROW(F51_a_row_is_read_without_memory_for_it_and_while_it_grows),
        ROW(what_was_just_written_is_read_from_memory),
        ROW(what_is_not_written_is_bounded),
        ROW(zeros_go_ahead_of_synced_batches),
        ROW(batches_go_past_the_page_cache_where_that_is_faster),
        ROW(both_ways_write_the_same_bytes),
        ROW(a_file_system_may_refuse_direct_writes),
        ROW(the_sync_policy_decides_what_durable_means),
        ROW(a_requested_sync_is_awaited_with_any_policy),
        ROW(an_interval_syncs_by_itself),
        ROW(a_trim_waits_for_what_was_appended_before_it),
        ROW(F24_sync_error_once_is_final),
        ROW(F24_a_stop_ends_all_waits),
        ROW(F25_disk_full_stops_pushes_first),
        ROW(files_of_a_new_store_are_small_and_double),
        ROW(a_group_that_is_larger_than_the_spare_makes_it_larger),
        ROW(F25_a_spare_that_cannot_grow_serves_smaller_groups),
        ROW(F25_files_stay_as_they_are_where_room_is_short),
        ROW(F25_a_bound_on_bytes_is_a_full_disk),
        ROW(F25_it_clears_by_itself_with_a_writer),
        ROW(F25_disk_full_in_a_batch_is_final),
        ROW(a_batch_grows_with_what_is_collected),
        ROW(F26_short_writes_are_continued),
        ROW(F27_read_only_filesystem),
        ROW(F31_two_owners_of_one_directory),
        ROW(F31_two_processes_on_one_directory),
        ROW(F31_a_lock_left_by_the_dead_is_waited_for),
        ROW(a_store_is_never_stdin),
    };
    return cmocka_run_group_tests_name("log_file", tests, NULL, NULL);
}
