// Stores that lost something: segments missing, empty, torn, flipped. Each is opened as far as it
// is known to be right, or refused with the place and the way out; and repaired.
#include "support/log_file_support.h"

#include "log/frame.h"

#include <errno.h>

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
        sim_disk_remove(d.sim, path_of_segment(n, "seg"));
        expect_refused(&d, path_of_segment(n, "seg"));
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
    assert_null(sim_disk_file(f->sim, path_of_segment(2, "seg"), &size));
    expect_numbers(f, first, f->next);
    stop(f);
    sim_disk_remove(f->sim, path_of_segment(3, "seg"));
    expect_refused(f, path_of_segment(3, "seg"));
}

static void F18_empty_or_zeroed_segment_is_refused(void **state) {
    struct fixture *f = *state;
    uint64_t size;
    start(f);
    fill(f, 4);
    stop(f);
    for (uint64_t n = 0; n <= 4; n++) {
        const char *path = path_of_segment(n, "seg");
        struct fixture d = damaged_copy(f);
        sim_disk_file(d.sim, path, &size);
        blank(&d, path, 0, size);
        expect_refused(&d, path);
        sim_disk_cut(d.sim, path, 0);
        expect_refused(&d, path);
        sim_disk_destroy(d.sim);
    }
    for (uint64_t n = 0; n < 4; n++) { // only the last may be torn
        const char *path = path_of_segment(n, "seg");
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
        sim_disk_cut(d.sim, path_of_segment(0, "seg"), cut);
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

// What was cut never joins on to what is written in its place.
static void F20_the_torn_rest_does_not_come_back(void **state) {
    struct fixture *f = *state;
    enum { SECTOR_BODY = SIM_SECTOR - 64 - 32 - SAMPLE_HEAD };
    f->options.sync = LOG_SYNC_NONE;
    start(f);
    push(f, 1, SECTOR_BODY);
    push(f, 1, 30);
    log_flush(f->log, false);
    die(f, SIM_KEEP);
    blank(f, path_of_segment(0, "seg"), 64, SIM_SECTOR); // the first sector was not written
    start(f);
    assert_int_equal(look(f->log).tail, f->at[0]);
    f->next = 0;
    push(f, 1, SECTOR_BODY);
    log_flush(f->log, true);
    die(f, SIM_KEEP);
    expect_numbers(f, 0, 1);
}

static void F21_zero_filled_tail(void **state) {
    struct fixture *f = *state;
    start(f);
    push(f, 1, 30);
    log_flush(f->log, true);
    push(f, 2, 30);
    log_flush(f->log, true);
    die(f, SIM_KEEP);
    blank(f, path_of_segment(0, "seg"), f->at[1], SEGMENT);
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
    assert_true(log_file_check(dir, f->options.disk, NULL, count_problem, &problems) > 0);
    assert_true(problems > 0);
    if (log_file_repair(dir, f->options.disk, &r) < 0)
        fail_msg("%s", error_text());
    assert_true(r.places + r.missing > 0);
    problems = log_file_check(dir, f->options.disk, NULL, count_problem, &problems);
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
        if ((offset - f->at[1]) % 80 > 77) // padding counts for nothing
            continue;
        struct fixture d = damaged_copy(f);
        flip(&d, path_of_segment(0, "seg"), offset);
        expect_refused(&d, path_of_segment(0, "seg"));
        expect_repaired(&d, 1, 4);
        assert_non_null(sim_disk_file(d.sim, path_of_segment(0, "seg.damaged"), &size));
        sim_disk_destroy(d.sim);
    }
}

static void F22_damage_in_a_sealed_segment_is_reported_and_repaired(void **state) {
    struct fixture *f = *state;
    bool right;
    start(f);
    fill(f, 4);
    stop(f);
    uint64_t number = 0;
    while (f->at[number] < SEGMENT)
        number++;
    struct fixture d = damaged_copy(f);
    flip(&d, path_of_segment(1, "seg"), f->at[number] % SEGMENT + 32 + SAMPLE_HEAD + 3);
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
    assert_int_equal(log_file_check(dir, d.options.disk, NULL, count_problem, &(int){ 0 }), 0);
    sim_disk_destroy(d.sim);
}

static void U9_a_check_can_be_cancelled(void **state) {
    struct fixture *f = *state;
    atomic_bool cancel = true;
    int problems = 0;
    start(f);
    fill(f, 5);
    stop(f);
    int err = log_file_check(dir, f->options.disk, &cancel, count_problem, &problems);
    assert_int_equal(err, MR_ECANCELLED);
    cancel = false;
    err = log_file_check(dir, f->options.disk, &cancel, count_problem, &problems);
    assert_int_equal(err, 0);
    assert_int_equal(problems, 0);
}

// Writes a number into the head of an index, with the right sum.
static void index_claim(struct fixture *f, const char *path, size_t offset, uint64_t number) {
    enum { SUM = 56 };
    uint64_t size;
    uint8_t *head = sim_disk_file(f->sim, path, &size);
    assert_true(head && size > SUM + 8);
    store_u64(head + offset, number);
    store_u64(head + SUM, XXH3_64bits(head, SUM));
    sim_disk_touch(f->sim, path);
}

// U9: an index whose head claims another size than its file has is not used, and no memory is
// reserved for it.
static void U9_an_index_of_another_size_than_its_file_is_not_used(void **state) {
    struct fixture *f = *state;
    const char *path = path_of_segment(0, "idx");
    uint64_t size;
    enum { SIZE = 32 };
    start(f);
    fill(f, 3);
    stop(f);
    assert_non_null(sim_disk_file(f->sim, path, &size));
    const uint64_t claims[] = { UINT64_MAX, INT64_MAX, UINT64_C(1) << 40, size, 0 };
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        struct fixture d = damaged_copy(f);
        index_claim(&d, path, SIZE, claims[i]);
        expect_numbers(&d, 0, f->next);
        stop(&d);
        sim_disk_destroy(d.sim);
    }
}

static void F17_missing_segments_are_repaired(void **state) {
    struct fixture *f = *state;
    start(f);
    fill(f, 5);
    stop(f);
    for (uint64_t n = 0; n <= 5; n++) {
        struct fixture d = damaged_copy(f);
        struct log_repair r;
        sim_disk_remove(d.sim, path_of_segment(n, "seg"));
        assert_int_equal(log_file_repair(dir, d.options.disk, &r), 0);
        assert_int_equal(r.missing, 1);
        assert_int_equal(open_only(&d), 0);
        assert_int_equal(log_file_check(dir, d.options.disk, NULL, count_problem, &(int){ 0 }), 0);
        sim_disk_destroy(d.sim);
    }
}

static void expect_entries(struct fixture *f, const struct tally *expected) {
    struct tally *t = calloc(1, sizeof *t);
    start(f);
    assert_int_equal(log_replay(f->log, tally_see, t), 0);
    assert_memory_equal(t->at, expected->at, sizeof t->at);
    stop(f);
    free(t);
}

// Repairs a damaged store whose disk fails, or whose machine dies, at one call after another; a
// second repair then leaves what a single one leaves.
static void expect_repair_survives_faults(struct fixture *f) {
    struct fixture whole = damaged_copy(f);
    struct log_repair r;
    struct tally *expected = calloc(1, sizeof *expected);
    assert_int_equal(log_file_repair(dir, whole.options.disk, &r), 0);
    uint64_t calls = sim_disk_calls(f->sim), last = sim_disk_calls(whole.sim);
    start(&whole);
    assert_int_equal(log_replay(whole.log, tally_see, expected), 0);
    stop(&whole);
    sim_disk_destroy(whole.sim);
    assert_true(last > calls);
    for (uint64_t call = calls + 1; call <= last; call++)
        for (int how = 0; how <= SIM_SURVIVALS; how++) {
            struct fixture d = damaged_copy(f);
            bool dies = how < SIM_SURVIVALS;
            if (dies)
                sim_disk_crash_at(d.sim, call);
            else
                sim_disk_fail_at(d.sim, call, EIO);
            int err = log_file_repair(dir, d.options.disk, &r);
            assert_true(err == 0 || err == MR_EIO);
            if (dies)
                sim_disk_restart(d.sim, (enum sim_survival)how, call);
            assert_int_equal(log_file_repair(dir, d.options.disk, &r), 0);
            expect_entries(&d, expected);
            sim_disk_destroy(d.sim);
        }
    free(expected);
}

// F22: damage of every kind: in an entry, in a header, a segment that is missing or zeroed, the
// file of the store.
static void F22_a_repair_on_a_failing_disk_can_be_repeated(void **state) {
    struct fixture *f = *state;
    uint64_t size;
    start(f);
    fill(f, 4);
    stop(f);
    for (int kind = 0; kind < 5; kind++) {
        struct fixture d = damaged_copy(f);
        if (kind == 0)
            flip(&d, path_of_segment(1, "seg"), f->at[0] + 70);
        else if (kind == 1)
            flip(&d, path_of_segment(2, "seg"), 20);
        else if (kind == 2)
            sim_disk_remove(d.sim, path_of_segment(2, "seg"));
        else if (kind == 3 && sim_disk_file(d.sim, path_of_segment(1, "seg"), &size))
            blank(&d, path_of_segment(1, "seg"), 0, size);
        else
            flip(&d, "store/store", 10);
        expect_repair_survives_faults(&d);
        sim_disk_destroy(d.sim);
    }
}

// Opens a damaged store: its entries are a prefix of what was appended, or opening is refused. Each
// entry is the right one, or reading it is refused.
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
            damage_every_byte(f, path_of_segment(n, "seg"), cut);
    damage_every_byte(f, path_of_segment(0, "idx"), false);
    damage_every_byte(f, path_of_segment(0, "idx"), true);
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
        flip(&d, path_of_segment(0, "seg"), offset);
        expect_refused(&d, path_of_segment(0, "seg"));
        sim_disk_destroy(d.sim);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ROW(F17_missing_segment_is_noticed),
        ROW(F17_missing_head_is_noticed_after_a_trim),
        ROW(U9_a_check_can_be_cancelled),
        ROW(U9_an_index_of_another_size_than_its_file_is_not_used),
        ROW(F17_missing_segments_are_repaired),
        ROW(F18_empty_or_zeroed_segment_is_refused),
        ROW(F20_torn_last_record),
        ROW(F20_the_tail_is_written_again_before_it_is_used),
        ROW(F20_the_torn_rest_does_not_come_back),
        ROW(F21_zero_filled_tail),
        ROW(F22_bit_flip_in_the_middle_is_refused_and_repaired),
        ROW(F22_a_repair_on_a_failing_disk_can_be_repeated),
        ROW(F22_damage_in_a_sealed_segment_is_reported_and_repaired),
        ROW(F23_every_byte_cut_or_flipped),
        ROW(F23_nothing_is_lost_silently_after_a_clean_end),
    };
    return cmocka_run_group_tests_name("log_damage", tests, NULL, NULL);
}
