// What a file log survives, row by row, on a simulated disk and without a writer's thread unless
// the row is about it.
#include "log_support.h"
#include "sim_disk.h"

#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEGMENT = 1024 };

static const char dir[] = "store";

struct fixture {
    struct sim_disk *sim;
    struct log_options options;
    struct log *log;
    uint64_t next;         // number of the next entry
    uint64_t at[SAMPLES];  // position by number
};

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    f->sim = sim_disk_create();
    f->options = (struct log_options){ .segment_size = SEGMENT,
                                       .inline_writer = true,
                                       .disk = sim_disk_disk(f->sim) };
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    log_close(f->log);
    sim_disk_destroy(f->sim);
    free(f);
    return 0;
}

static void start(struct fixture *f) {
    if (log_file_open(dir, &f->options, &f->log) < 0)
        fail_msg("%s", error_text());
}

static void stop(struct fixture *f) {
    log_close(f->log);
    f->log = NULL;
}

static int try_push(struct fixture *f, uint32_t count, size_t body_size, enum room room) {
    int err = sample_append(f->log, f->next, count, body_size, room, f->at + f->next);
    f->next += err == 0 ? count : 0;
    return err;
}

static void push(struct fixture *f, uint32_t count, size_t body_size) {
    if (try_push(f, count, body_size, ROOM_PUSH) < 0)
        fail_msg("%s", error_text());
}

// Pushes groups of several sizes, each synced, until there are `segments` segments.
static void fill(struct fixture *f, uint64_t segments) {
    for (uint32_t i = 0; look(f->log).tail < segments * SEGMENT; i++) {
        push(f, 1 + i % 3, 40 + i % 5 * 17);
        log_flush(f->log, true);
    }
}

// The machine dies and starts again.
static void die(struct fixture *f, enum sim_survival how) {
    sim_disk_crash(f->sim);
    stop(f);
    sim_disk_restart(f->sim, how, 1);
}

// Opens and replays: all numbers from `first` to `last`, groups whole, bodies right.
static void expect_numbers(struct fixture *f, uint64_t first, uint64_t last) {
    struct tally *t = calloc(1, sizeof *t), *bodies = calloc(1, sizeof *bodies);
    uint64_t next;
    start(f);
    if (log_replay(f->log, tally_see, t) < 0)
        fail_msg("%s", error_text());
    assert_true(tally_right(t));
    assert_int_equal(t->next, last);
    assert_int_equal(t->first, first);
    if (log_scan(f->log, look(f->log).head, SIZE_MAX, tally_see, bodies, &next) < 0)
        fail_msg("%s", error_text());
    assert_true(tally_right(bodies));
    assert_int_equal(bodies->next, last);
    free(t);
    free(bodies);
}

static int open_only(struct fixture *f) {
    struct log *l;
    int err = log_file_open(dir, &f->options, &l);
    if (err == 0)
        log_close(l);
    return err;
}

// Opening and replaying is refused, with words that help.
static void expect_refused(struct fixture *f, const char *file) {
    struct log *l;
    struct tally t = { 0 };
    int err = log_file_open(dir, &f->options, &l);
    if (err == 0) {
        err = log_replay(l, tally_see, &t);
        log_close(l);
    }
    assert_int_equal(err, MR_ECORRUPT);
    assert_non_null(strstr(error_text(), file));
    assert_non_null(strstr(error_text(), "offset"));
    assert_non_null(strstr(error_text(), "millrace store repair file:store"));
}

static const char *segment_path(uint64_t number, const char *suffix) {
    static char path[64];
    snprintf(path, sizeof path, "%s/%016llx.%s", dir, (unsigned long long)number, suffix);
    return path;
}

static void flip(struct fixture *f, const char *path, uint64_t offset) {
    uint64_t size;
    uint8_t *bytes = sim_disk_file(f->sim, path, &size);
    assert_true(bytes && offset < size);
    bytes[offset] ^= 0x10;
    sim_disk_touch(f->sim, path);
}

static void blank(struct fixture *f, const char *path, uint64_t from, uint64_t upto) {
    uint64_t size;
    uint8_t *bytes = sim_disk_file(f->sim, path, &size);
    assert_true(bytes && upto <= size);
    memset(bytes + from, 0, upto - from);
    sim_disk_touch(f->sim, path);
}

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

static void an_index_is_made_anew_when_missing_or_wrong(void **state) {
    struct fixture *f = *state;
    uint64_t size;
    start(f);
    fill(f, 5);
    stop(f);
    assert_non_null(sim_disk_file(f->sim, segment_path(1, "idx"), &size));
    sim_disk_remove(f->sim, segment_path(1, "idx"));
    flip(f, segment_path(2, "idx"), size / 2);
    sim_disk_cut(f->sim, segment_path(3, "idx"), size / 3);
    expect_numbers(f, 0, f->next);
    for (uint64_t n = 1; n <= 3; n++)
        assert_non_null(sim_disk_file(f->sim, segment_path(n, "idx"), &size));
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

// --- sync policies ---

static void expect_after_power_cut(struct fixture *f, uint64_t last) {
    die(f, SIM_DROP);
    expect_numbers(f, 0, last);
    stop(f);
}

static void the_sync_policy_says_what_durable_means(void **state) {
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

static void a_sync_asked_for_is_waited_for_whatever_the_policy(void **state) {
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

// --- F17, F18: segments missing, empty, zeroed ---

static struct fixture damaged_copy(struct fixture *f) {
    struct fixture copy = *f;
    copy.sim = sim_disk_copy(f->sim);
    copy.options.disk = sim_disk_disk(copy.sim);
    return copy;
}

static void F17_missing_segment_is_noticed(void **state) {
    struct fixture *f = *state;
    start(f);
    fill(f, 5);
    stop(f);
    for (uint64_t n = 0; n <= 5; n++) {
        struct fixture d = damaged_copy(f);
        sim_disk_remove(d.sim, segment_path(n, "seg"));
        expect_refused(&d, segment_path(n, "seg"));
        sim_disk_destroy(d.sim);
    }
}

static void F17_missing_head_is_noticed_after_a_trim(void **state) {
    struct fixture *f = *state;
    uint64_t size, first = 0;
    start(f);
    fill(f, 6);
    assert_int_equal(log_trim(f->log, 3 * SEGMENT), 0);
    stop(f);
    while (f->at[first] < 3 * SEGMENT)
        first++;
    assert_null(sim_disk_file(f->sim, segment_path(2, "seg"), &size));
    expect_numbers(f, first, f->next);
    stop(f);
    sim_disk_remove(f->sim, segment_path(3, "seg"));
    expect_refused(f, segment_path(3, "seg"));
}

static void F18_empty_or_zeroed_segment_is_refused(void **state) {
    struct fixture *f = *state;
    uint64_t size;
    start(f);
    fill(f, 4);
    stop(f);
    for (uint64_t n = 0; n <= 4; n++) {
        const char *path = segment_path(n, "seg");
        struct fixture d = damaged_copy(f);
        sim_disk_file(d.sim, path, &size);
        blank(&d, path, 0, size);
        expect_refused(&d, path);
        sim_disk_cut(d.sim, path, 0);
        expect_refused(&d, path);
        sim_disk_destroy(d.sim);
    }
    for (uint64_t n = 0; n < 4; n++) { // only the last may be torn
        const char *path = segment_path(n, "seg");
        struct fixture d = damaged_copy(f);
        sim_disk_cut(d.sim, path, SEGMENT - 8);
        expect_refused(&d, path);
        sim_disk_destroy(d.sim);
    }
}

// --- F20 to F23: damage at the end and in the middle ---

static void F20_torn_last_record(void **state) {
    struct fixture *f = *state;
    start(f);
    push(f, 1, 30);
    log_flush(f->log, true);
    push(f, 3, 30);
    log_flush(f->log, true);
    uint64_t end = look(f->log).tail;
    die(f, SIM_KEEP);
    for (uint64_t cut = f->at[1]; cut < end; cut += 8) {
        struct fixture d = damaged_copy(f);
        sim_disk_cut(d.sim, segment_path(0, "seg"), cut);
        expect_numbers(&d, 0, 1); // the group is cut whole
        push(&d, 0 + 1, 30);
        stop(&d);
        sim_disk_destroy(d.sim);
    }
}

static void F20_the_tail_is_written_again_before_it_is_used(void **state) {
    struct fixture *f = *state;
    start(f);
    push(f, 1, 30);
    log_flush(f->log, true);
    push(f, 1, 30);
    sim_disk_break(f->sim, SIM_SYNCS, EIO); // written, never synced: in the page cache only
    log_flush(f->log, true);
    assert_string_not_equal(look(f->log).stopped, "");
    stop(f);
    sim_disk_break(f->sim, SIM_SYNCS, 0);
    expect_numbers(f, 0, 2);
    expect_after_power_cut(f, 2);
}

static void F21_zero_filled_tail(void **state) {
    struct fixture *f = *state;
    start(f);
    push(f, 1, 30);
    log_flush(f->log, true);
    push(f, 2, 30);
    log_flush(f->log, true);
    die(f, SIM_KEEP);
    blank(f, segment_path(0, "seg"), f->at[1], SEGMENT);
    expect_numbers(f, 0, 1);
}

static void count_problem(void *arg, const struct log_problem *p) {
    assert_non_null(p->file);
    assert_non_null(p->what);
    ++*(int *)arg;
}

static void expect_repaired(struct fixture *f, uint64_t lost_from, uint64_t lost_upto) {
    struct log_repair r;
    int problems = 0;
    assert_true(log_file_check(dir, f->options.disk, count_problem, &problems) > 0);
    assert_true(problems > 0);
    if (log_file_repair(dir, f->options.disk, &r) < 0)
        fail_msg("%s", error_text());
    assert_true(r.places + r.missing > 0);
    problems = log_file_check(dir, f->options.disk, count_problem, &problems);
    assert_int_equal(problems, 0);
    start(f);
    struct tally *t = calloc(1, sizeof *t);
    assert_int_equal(log_replay(f->log, tally_see, t), 0);
    assert_int_equal(t->next, f->next);
    for (uint64_t i = 0; i < f->next; i++) {
        bool lost = i >= lost_from && i < lost_upto, right;
        assert_int_equal(t->at[i], lost ? 0 : f->at[i]);
        if (!lost)
            assert_int_equal(sample_read(f->log, f->at[i], i, &right), 0);
    }
    free(t);
    push(f, 2, 20);
    stop(f);
    assert_int_equal(open_only(f), 0);
    f->next -= 2;
}

static void F22_bit_flip_in_the_middle_is_refused_and_repaired(void **state) {
    struct fixture *f = *state;
    uint64_t size;
    start(f);
    push(f, 1, 30);
    log_flush(f->log, true);
    push(f, 3, 30);
    log_flush(f->log, true);
    push(f, 2, 30);
    log_flush(f->log, true);
    stop(f);
    for (uint64_t offset = f->at[1]; offset < f->at[4]; offset += 3) {
        if (offset % 80 > 77) // padding counts for nothing
            continue;
        struct fixture d = damaged_copy(f);
        flip(&d, segment_path(0, "seg"), offset);
        expect_refused(&d, segment_path(0, "seg"));
        expect_repaired(&d, 1, 4);
        assert_non_null(sim_disk_file(d.sim, segment_path(0, "seg.damaged"), &size));
        sim_disk_destroy(d.sim);
    }
}

static void F22_damage_in_a_sealed_segment_is_told_and_repaired(void **state) {
    struct fixture *f = *state;
    bool right;
    start(f);
    fill(f, 4);
    stop(f);
    uint64_t number = 0;
    while (f->at[number] < SEGMENT)
        number++;
    struct fixture d = damaged_copy(f);
    flip(&d, segment_path(1, "seg"), f->at[number] % SEGMENT + 32 + SAMPLE_HEAD + 3);
    start(&d); // bodies are checked when they are read
    assert_int_equal(sample_read(d.log, f->at[number], number, &right), MR_ECORRUPT);
    assert_non_null(strstr(error_text(), "millrace store repair"));
    stop(&d);
    struct log_repair r;
    assert_int_equal(log_file_repair(dir, d.options.disk, &r), 0);
    assert_int_equal(r.segments, 1);
    assert_int_equal(r.places, 1);
    assert_int_equal(r.place[0].segment, 1);
    assert_int_equal(r.place[0].offset, f->at[number] % SEGMENT);
    assert_int_equal(log_file_check(dir, d.options.disk, count_problem, &(int){ 0 }), 0);
    sim_disk_destroy(d.sim);
}

static void F17_missing_segments_are_repaired(void **state) {
    struct fixture *f = *state;
    start(f);
    fill(f, 5);
    stop(f);
    for (uint64_t n = 0; n <= 5; n++) {
        struct fixture d = damaged_copy(f);
        struct log_repair r;
        sim_disk_remove(d.sim, segment_path(n, "seg"));
        assert_int_equal(log_file_repair(dir, d.options.disk, &r), 0);
        assert_int_equal(r.missing, 1);
        assert_int_equal(open_only(&d), 0);
        assert_int_equal(log_file_check(dir, d.options.disk, count_problem, &(int){ 0 }), 0);
        sim_disk_destroy(d.sim);
    }
}

// Opens a damaged store: what it shows is a prefix of what was pushed, or it is refused. An entry
// that it shows is the right one, or refused when it is read.
static void expect_prefix_or_refused(struct fixture *f) {
    struct log *l;
    struct tally *t = calloc(1, sizeof *t);
    int err = log_file_open(dir, &f->options, &l);
    if (err == 0) {
        err = log_replay(l, tally_see, t);
        for (uint64_t i = 0; err == 0 && i < t->next; i++) {
            bool right;
            int read = sample_read(l, t->at[i], i, &right);
            assert_true(read == 0 ? right : read == MR_ECORRUPT);
        }
        assert_true(err < 0 || (tally_right(t) && t->first == 0 && t->next <= f->next));
        log_close(l);
    }
    assert_true(err == 0 || err == MR_ECORRUPT || err == MR_EINVAL);
    free(t);
}

static void damage_every_byte(struct fixture *f, const char *path, bool cut) {
    uint64_t size;
    sim_disk_file(f->sim, path, &size);
    for (uint64_t offset = 0; offset < size; offset++) {
        struct fixture d = damaged_copy(f);
        struct log_repair r;
        if (cut)
            sim_disk_cut(d.sim, path, offset);
        else
            flip(&d, path, offset);
        struct fixture again = damaged_copy(&d);
        expect_prefix_or_refused(&d);
        if (log_file_repair(dir, again.options.disk, &r) == 0)
            assert_int_equal(open_only(&again), 0);
        sim_disk_destroy(again.sim);
        sim_disk_destroy(d.sim);
    }
}

static void F23_every_byte_cut_or_flipped(void **state) {
    struct fixture *f = *state;
    start(f);
    fill(f, 2);
    stop(f);
    for (uint64_t n = 0; n <= 2; n++)
        for (int cut = 0; cut < 2; cut++)
            damage_every_byte(f, segment_path(n, "seg"), cut);
    damage_every_byte(f, segment_path(0, "idx"), false);
    damage_every_byte(f, segment_path(0, "idx"), true);
    damage_every_byte(f, "store/store", false);
    damage_every_byte(f, "store/store", true);
}

// Nothing is lost silently: after a clean end every flipped byte that an entry has is noticed.
static void F23_nothing_is_lost_silently_after_a_clean_end(void **state) {
    struct fixture *f = *state;
    start(f);
    push(f, 2, 24);
    push(f, 2, 24);
    uint64_t end = look(f->log).tail;
    stop(f);
    for (uint64_t offset = f->at[0]; offset < end; offset++) {
        struct fixture d = damaged_copy(f);
        flip(&d, segment_path(0, "seg"), offset);
        expect_refused(&d, segment_path(0, "seg"));
        sim_disk_destroy(d.sim);
    }
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

static void F24_waiters_hear_of_the_stop(void **state) {
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

// Pushes are refused first, commits next, the cleaner last; nothing is harmed, and it ends by itself.
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
    expect_numbers(f, 0, f->next); // looking goes
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
    char path[] = "/tmp/millrace-lock-XXXXXX", command[64];
    struct log *l;
    assert_non_null(mkdtemp(path));
    assert_int_equal(log_file_open(path, &(struct log_options){ .segment_size = SEGMENT }, &l),
                     0);
    assert_int_equal(child_opens(path), 1);
    log_close(l);
    assert_int_equal(child_opens(path), 2);
    snprintf(command, sizeof command, "rm -r %s", path);
    assert_int_equal(system(command), 0);
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        ROW(a_store_is_read_again),
        ROW(a_killed_store_is_read_again),
        ROW(a_store_keeps_its_segment_size),
        ROW(an_index_is_made_anew_when_missing_or_wrong),
        ROW(another_directory_is_not_touched),
        ROW(a_newer_store_is_refused_with_advice),
        ROW(looking_changes_nothing),
        ROW(the_sync_policy_says_what_durable_means),
        ROW(a_sync_asked_for_is_waited_for_whatever_the_policy),
        ROW(an_interval_syncs_by_itself),
        ROW(F17_missing_segment_is_noticed),
        ROW(F17_missing_head_is_noticed_after_a_trim),
        ROW(F17_missing_segments_are_repaired),
        ROW(F18_empty_or_zeroed_segment_is_refused),
        ROW(F20_torn_last_record),
        ROW(F20_the_tail_is_written_again_before_it_is_used),
        ROW(F21_zero_filled_tail),
        ROW(F22_bit_flip_in_the_middle_is_refused_and_repaired),
        ROW(F22_damage_in_a_sealed_segment_is_told_and_repaired),
        ROW(F23_every_byte_cut_or_flipped),
        ROW(F23_nothing_is_lost_silently_after_a_clean_end),
        ROW(F24_sync_error_once_is_final),
        ROW(F24_waiters_hear_of_the_stop),
        ROW(F25_disk_full_stops_pushes_first),
        ROW(F25_a_bound_on_bytes_is_a_full_disk),
        ROW(F25_it_clears_by_itself_with_a_writer),
        ROW(F25_disk_full_in_a_batch_is_final),
        ROW(F26_short_writes_are_continued),
        ROW(F27_read_only_filesystem),
        ROW(F31_two_owners_of_one_directory),
        ROW(F31_two_processes_on_one_directory),
    };
    return cmocka_run_group_tests_name("log_file", tests, NULL, NULL);
}
