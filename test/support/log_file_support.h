// For tests of the file log: a store on a simulated disk, without a writer's thread unless a test
// wants one, and what can be done to it.
#ifndef TEST_SUPPORT_LOG_FILE_SUPPORT_H
#define TEST_SUPPORT_LOG_FILE_SUPPORT_H

#include "log_support.h"
#include "sim_disk.h"

enum { SEGMENT = 1024 };

static const char dir[] = "store";

struct fixture {
    struct sim_disk *sim;
    struct log_options options;
    struct log *log;
    uint64_t next;        // number of the next entry
    uint64_t at[SAMPLES]; // position by number
};

static inline int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    f->sim = sim_disk_create();
    f->options = (struct log_options){ .segment_size = SEGMENT,
                                       .inline_writer = true,
                                       .disk = sim_disk_disk(f->sim) };
    *state = f;
    return 0;
}

static inline int teardown(void **state) {
    struct fixture *f = *state;
    log_close(f->log);
    sim_disk_destroy(f->sim);
    free(f);
    return 0;
}

static inline void start(struct fixture *f) {
    if (log_file_open(dir, &f->options, &f->log) < 0)
        fail_msg("%s", error_text());
}

static inline void stop(struct fixture *f) {
    log_close(f->log);
    f->log = NULL;
}

static inline int try_push(struct fixture *f, uint32_t count, size_t body_size, enum room room) {
    int err = sample_append(f->log, f->next, count, body_size, room, f->at + f->next);
    f->next += err == 0 ? count : 0;
    return err;
}

static inline void push(struct fixture *f, uint32_t count, size_t body_size) {
    if (try_push(f, count, body_size, ROOM_PUSH) < 0)
        fail_msg("%s", error_text());
}

// Pushes groups of several sizes, each synced, until there are `segments` segments.
static inline void fill(struct fixture *f, uint64_t segments) {
    for (uint32_t i = 0; look(f->log).tail < segments * SEGMENT; i++) {
        push(f, 1 + i % 3, 40 + i % 5 * 17);
        log_flush(f->log, true);
    }
}

// The machine dies and starts again.
static inline void die(struct fixture *f, enum sim_survival how) {
    sim_disk_crash(f->sim);
    stop(f);
    sim_disk_restart(f->sim, how, 1);
}

// Opens and replays: all numbers from `first` to `last`, groups whole, bodies right.
static inline void expect_numbers(struct fixture *f, uint64_t first, uint64_t last) {
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

static inline int open_only(struct fixture *f) {
    struct log *l;
    int err = log_file_open(dir, &f->options, &l);
    if (err == 0)
        log_close(l);
    return err;
}

// Opening and replaying is refused, with words that help.
static inline void expect_refused(struct fixture *f, const char *file) {
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

static inline const char *path_of_segment(uint64_t number, const char *suffix) {
    static char path[64];
    snprintf(path, sizeof path, "%s/%016llx.%s", dir, (unsigned long long)number, suffix);
    return path;
}

static inline void flip(struct fixture *f, const char *path, uint64_t offset) {
    uint64_t size;
    uint8_t *bytes = sim_disk_file(f->sim, path, &size);
    assert_true(bytes && offset < size);
    bytes[offset] ^= 0x10;
    sim_disk_touch(f->sim, path);
}

static inline void blank(struct fixture *f, const char *path, uint64_t from, uint64_t upto) {
    uint64_t size;
    uint8_t *bytes = sim_disk_file(f->sim, path, &size);
    assert_true(bytes && upto <= size);
    memset(bytes + from, 0, upto - from);
    sim_disk_touch(f->sim, path);
}

static inline void expect_after_power_cut(struct fixture *f, uint64_t last) {
    die(f, SIM_DROP);
    expect_numbers(f, 0, last);
    stop(f);
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
