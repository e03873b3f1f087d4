// The contract of log.h, tested on every implementation. Compiled with STREAM_POSTGRES, it tests
// the stream log on a real PostgreSQL (with_postgres.py), with STREAM_NATS on a real NATS server,
// otherwise on a simulated store.
#include "log/log_stream.h"
#include "support/log_support.h"
#include "support/sim_disk.h"
#if defined(STREAM_POSTGRES)
#include "support/postgres_support.h"
#elif defined(STREAM_NATS)
#include "support/nats_support.h"
#else
#include "support/sim_stream.h"
#endif

#include <pthread.h>
#include <stdatomic.h>

enum kind { MEMORY, FILE_THREAD, FILE_INLINE, FILE_REAL, STREAM_THREAD, STREAM_INLINE };

struct fixture {
    enum kind kind;
    struct log_options options;
    struct sim_disk *sim;
    struct sim_store *sim_streams;
    struct stream_store *streams;
    char dir[64];
    struct log *log;
    pthread_mutex_t lock; // guards `notices`: how often on_durable was called
    pthread_cond_t noticed;
    uint64_t notices;
};

#if defined(STREAM_POSTGRES)
static void streams_make(struct fixture *f) {
    struct stream_postgres_options o = { .url = postgres_of_test(), .cluster = "contract" };
    enum store_made made;
    SQL("DROP SCHEMA IF EXISTS millrace_contract CASCADE");
    if (stream_postgres_init(&o, 1, &made) || stream_postgres_create(&o, &f->streams))
        fail_msg("%s", error_text());
}

static void streams_end(struct fixture *f) {
    f->streams->close(f->streams);
}
#elif defined(STREAM_NATS)
static struct nats_servers servers;

// Each test has a cluster of its own: a stream is not removed by what is tested.
static void streams_make(struct fixture *f) {
    static int count;
    char url[256], cluster[16];
    snprintf(cluster, sizeof cluster, "contract%d", count++);
    struct stream_nats_options o = { .url = nats_servers_url(&servers, url), .cluster = cluster };
    nats_cluster_make(&o, 1);
    if (stream_nats_create(&o, &f->streams))
        fail_msg("%s", error_text());
}

static void streams_end(struct fixture *f) {
    f->streams->close(f->streams);
}
#else
static void streams_make(struct fixture *f) {
    f->sim_streams = sim_store_create(1);
    f->streams = sim_store_streams(f->sim_streams);
}

static void streams_end(struct fixture *f) {
    sim_store_destroy(f->sim_streams);
}
#endif

static void note_durable(void *arg) {
    struct fixture *f = arg;
    pthread_mutex_lock(&f->lock);
    f->notices++;
    pthread_cond_signal(&f->noticed);
    pthread_mutex_unlock(&f->lock);
}

static int log_start_kind(struct fixture *f) {
    switch (f->kind) {
    case MEMORY:
        return log_memory_open(&f->options, &f->log);
    case FILE_THREAD:
    case FILE_INLINE:
    case FILE_REAL:
        break;
    case STREAM_THREAD:
    case STREAM_INLINE:
        return log_stream_open(f->streams, 0, &f->options, &f->log);
    }
    return log_file_open(f->dir, &f->options, &f->log);
}

static void log_start(struct fixture *f) {
    if (log_start_kind(f) < 0)
        fail_msg("%s", error_text());
}

static int setup(void **state, enum kind kind, uint64_t segment_size) {
    struct fixture *f = calloc(1, sizeof *f);
    f->kind = kind;
    f->options.segment_size = segment_size;
    f->options.on_durable = note_durable;
    f->options.arg = f;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->noticed, NULL);
    const char *dir = kind == FILE_REAL ? "/tmp/millrace-log-XXXXXX" : "store";
    snprintf(f->dir, sizeof f->dir, "%s", dir);
    if (kind == FILE_INLINE || kind == FILE_THREAD) {
        f->sim = sim_disk_create();
        f->options.disk = sim_disk_disk(f->sim);
        f->options.inline_writer = kind == FILE_INLINE;
    }
    if (kind == STREAM_INLINE || kind == STREAM_THREAD) {
        streams_make(f);
        f->options.inline_writer = kind == STREAM_INLINE;
        f->options.stream.window_bytes = 2048; // so that most of it is read from the store
    }
    if (kind == FILE_REAL)
        assert_non_null(mkdtemp(f->dir));
    log_start(f);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    log_close(f->log);
    if (f->sim)
        sim_disk_destroy(f->sim);
    if (f->streams)
        streams_end(f);
    if (f->kind == FILE_REAL)
        folder_remove(f->dir);
    pthread_cond_destroy(&f->noticed);
    pthread_mutex_destroy(&f->lock);
    free(f);
    return 0;
}

static int setup_memory(void **state) {
    return setup(state, MEMORY, 4096);
}

static int setup_thread(void **state) {
    return setup(state, FILE_THREAD, 4096);
}

static int setup_inline(void **state) {
    return setup(state, FILE_INLINE, 4096);
}

static int setup_stream_thread(void **state) {
    return setup(state, STREAM_THREAD, 4096);
}

static int setup_stream_inline(void **state) {
    return setup(state, STREAM_INLINE, 4096);
}

static int setup_stream_large(void **state) {
    return setup(state, STREAM_THREAD, 0);
}

static int setup_memory_large(void **state) {
    return setup(state, MEMORY, 0);
}

static int setup_real(void **state) {
    return setup(state, FILE_REAL, 0);
}

static uint64_t put(struct fixture *f, uint64_t number, uint32_t count, size_t body_size) {
    uint64_t at[LOG_GROUP];
    if (sample_append(f->log, number, count, body_size, ROOM_PUSH, at) < 0)
        fail_msg("%s", error_text());
    return at[0];
}

static void expect_entry(struct fixture *f, uint64_t at, uint64_t number) {
    bool right;
    if (sample_read(f->log, at, number, &right) < 0)
        fail_msg("%s", error_text());
    assert_true(right);
}

// A step of a scan; waits when the entries have to be read from a store first.
static int scan_on(struct fixture *f, size_t step, log_each *each, void *arg, uint64_t *at) {
    for (;;) {
        pthread_mutex_lock(&f->lock);
        uint64_t before = f->notices;
        pthread_mutex_unlock(&f->lock);
        int err = log_scan(f->log, *at, step, each, arg, at);
        if (err != MR_EAGAIN || f->kind != STREAM_THREAD)
            return err;
        pthread_mutex_lock(&f->lock);
        while (f->notices == before)
            pthread_cond_wait(&f->noticed, &f->lock);
        pthread_mutex_unlock(&f->lock);
    }
}

static void expect_scan(struct fixture *f, uint64_t from, size_t step, uint64_t first,
                        uint64_t count) {
    struct tally *t = calloc(1, sizeof *t);
    uint64_t next = from, tail = look(f->log).tail;
    while (next < tail)
        assert_int_equal(scan_on(f, step, tally_see, t, &next), 0);
    assert_true(tally_right(t));
    assert_int_equal(t->next - t->first, count);
    if (count)
        assert_int_equal(t->first, first);
    free(t);
}

static void an_empty_log_has_a_head_and_nothing_else(void **state) {
    struct fixture *f = *state;
    struct log_state s = look(f->log);
    assert_int_equal(s.head, s.tail);
    assert_int_equal(s.durable, s.tail);
    assert_string_equal(s.stopped, "");
    assert_false(s.full);
    assert_true(s.tail > 0);
    expect_scan(f, s.head, SIZE_MAX, 0, 0);
    bool right;
    assert_int_equal(sample_read(f->log, s.tail, 0, &right), MR_EINVAL);
    assert_int_equal(log_wait(f->log, s.tail), MR_EINVAL);
}

static void entries_are_read_again_by_position(void **state) {
    struct fixture *f = *state;
    uint64_t at[200];
    for (uint64_t i = 0; i < 200; i++) {
        at[i] = put(f, i, 1, i % 97);
        assert_true(i == 0 || at[i] > at[i - 1]);
        expect_entry(f, at[i], i);
        if (i % 7 == 0)
            log_flush(f->log, false);
    }
    for (uint64_t i = 0; i < 200; i++)
        expect_entry(f, at[i], i);
}

static void either_part_may_be_unwanted_or_empty(void **state) {
    struct fixture *f = *state;
    struct entry e[3] = { { .head = mr_str("head"), .body = mr_str("body") },
                          { .body = mr_str("b") },
                          { .head = mr_str("h") } };
    uint64_t at[3];
    struct buffer b = { 0 };
    assert_int_equal(log_append(f->log, e, 3, ROOM_PUSH, at), 0);
    for (int written = 0; written < 2; written++) {
        assert_int_equal(log_read(f->log, at[0], &b, NULL), 0);
        assert_int_equal(log_read(f->log, at[0], NULL, &b), 0);
        assert_int_equal(log_read(f->log, at[1], &b, &b), 0);
        assert_int_equal(log_read(f->log, at[2], &b, NULL), 0);
        assert_int_equal(log_read(f->log, at[2], NULL, NULL), 0);
        assert_int_equal(b.size, 10);
        assert_memory_equal(b.data, "headbodybh", 10);
        b.size = 0;
        assert_int_equal(log_wait(f->log, at[2]), 0);
    }
    buffer_finish(&b);
}

static void groups_stay_together(void **state) {
    struct fixture *f = *state;
    uint64_t number = 0;
    for (uint32_t count = 1; count <= 30; count++) {
        put(f, number, count, 20);
        number += count;
    }
    expect_scan(f, look(f->log).head, SIZE_MAX, 0, number);
    log_flush(f->log, true);
    expect_scan(f, look(f->log).head, 300, 0, number);
}

static void a_scan_continues_where_it_stopped(void **state) {
    struct fixture *f = *state;
    struct tally *t = calloc(1, sizeof *t);
    uint64_t next = look(f->log).head;
    for (uint64_t i = 0; i < 300; i++) {
        put(f, i, 1, 100);
        if (i % 5 == 0)
            log_flush(f->log, false);
        assert_int_equal(log_scan(f->log, next, 64, tally_see, t, &next), 0);
        assert_int_equal(t->next, i + 1);
    }
    assert_true(tally_right(t));
    free(t);
}

struct copier {
    struct fixture *f;
    uint64_t upto; // a scan in several steps meets the copies, too
    uint64_t copied;
};

static int copy_entry(void *arg, const struct log_seen *seen) {
    struct copier *c = arg;
    struct entry e = { .head = seen->head, .body = seen->body };
    uint64_t at;
    if (seen->at >= c->upto)
        return 0;
    c->copied++;
    return log_append(c->f->log, &e, 1, ROOM_CLEAN, &at);
}

static void a_scan_may_append_what_it_sees(void **state) {
    struct fixture *f = *state;
    for (uint64_t i = 0; i < 100; i++)
        put(f, i, 1, 150);
    uint64_t middle = look(f->log).tail, next = look(f->log).head;
    struct copier c = { .f = f, .upto = middle };
    while (next < middle)
        assert_int_equal(scan_on(f, SIZE_MAX, copy_entry, &c, &next), 0);
    assert_int_equal(c.copied, 100);
    expect_scan(f, middle, SIZE_MAX, 0, 100);
}

static int refuse(void *arg, const struct log_seen *seen) {
    (void)arg, (void)seen;
    return MR_EAGAIN;
}

static void a_walk_ends_when_its_callback_says(void **state) {
    struct fixture *f = *state;
    put(f, 0, 2, 5);
    uint64_t next = 77;
    assert_int_equal(log_scan(f->log, look(f->log).head, 99, refuse, NULL, &next), MR_EAGAIN);
    assert_int_equal(next, 77);
}

static void trimming_gives_up_whole_segments(void **state) {
    struct fixture *f = *state;
    uint64_t at[100];
    bool right;
    for (uint64_t i = 0; i < 100; i++)
        at[i] = put(f, i, 1, 500);
    log_flush(f->log, true);
    assert_int_equal(log_wait(f->log, at[99]), 0);
    assert_int_equal(log_trim(f->log, at[50]), 0);
    struct log_state s = look(f->log);
    assert_true(s.head <= at[50] && s.head > at[50] - 2 * s.segment_size);
    for (uint64_t i = 0; i < 100; i++) {
        if (at[i] >= s.head)
            expect_entry(f, at[i], i);
        else
            assert_int_equal(sample_read(f->log, at[i], i, &right), MR_EGONE);
    }
    uint64_t first = 0, next;
    while (at[first] < s.head)
        first++;
    expect_scan(f, s.head, SIZE_MAX, first, 100 - first);
    struct tally t = { 0 };
    assert_int_equal(log_scan(f->log, at[0], SIZE_MAX, tally_see, &t, &next), MR_EGONE);
}

static void what_is_trimmed_is_given_back(void **state) {
    struct fixture *f = *state;
    uint64_t at = 0, most = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        at = put(f, i, 1, 500);
        if (i % 10 == 9) {
            assert_int_equal(log_wait(f->log, at), 0);
            assert_int_equal(log_trim(f->log, at), 0);
        }
        struct log_state s = look(f->log);
        most = s.bytes > most ? s.bytes : most;
        assert_true(s.head <= at);
    }
    assert_true(most <= 16 * look(f->log).segment_size);
}

// Appends entries until so many segments have begun. Returns the position of the last entry.
static uint64_t put_segments(struct fixture *f, uint64_t count, uint64_t *number) {
    uint64_t size = look(f->log).segment_size, end = look(f->log).tail / size + count, at;
    do
        at = put(f, (*number)++, 1, 500);
    while (at / size < end);
    return at;
}

// A log in memory keeps eight of the segments that it has given up: a later burst needs no
// allocation for as many.
static void trimmed_segments_are_used_again(void **state) {
    struct fixture *f = *state;
    enum { KEPT = 8 };
    uint64_t number = 0, size = look(f->log).segment_size, at;
    assert_int_equal(log_trim(f->log, put_segments(f, KEPT + 4, &number)), 0);
    assert_int_equal(look(f->log).bytes, size); // those that are kept do not count
    uint64_t first = number - 1;
    mem_fail_after(0);
    (void)put_segments(f, KEPT, &number);
    int err;
    while ((err = sample_append(f->log, number, 1, 500, ROOM_PUSH, &at)) == 0)
        number++;
    assert_int_equal(err, MR_ENOMEM);
    assert_int_equal(look(f->log).bytes, (KEPT + 1) * size);
    assert_true(mem_fail_after(-1) < 0);
    expect_scan(f, look(f->log).head, SIZE_MAX, first, number - first);
}

static void trimming_everything_keeps_the_tail(void **state) {
    struct fixture *f = *state;
    uint64_t at = put(f, 0, 1, 10);
    assert_int_equal(log_trim(f->log, look(f->log).tail), 0);
    assert_int_equal(log_trim(f->log, UINT64_MAX), 0);
    expect_entry(f, at, 0);
    expect_entry(f, put(f, 1, 1, 10), 1);
}

static void what_was_waited_for_is_durable(void **state) {
    struct fixture *f = *state;
    for (uint64_t i = 0; i < 50; i++) {
        uint64_t at = put(f, i, 1, i * 20);
        if (i % 2)
            log_flush(f->log, i % 3 == 0);
        assert_int_equal(log_wait(f->log, at), 0);
        assert_true(look(f->log).durable > at);
    }
}

static void a_group_must_fit_in_a_segment(void **state) {
    struct fixture *f = *state;
    size_t size = (f->kind == MEMORY ? LOG_SEGMENT : 4096) + 1;
    void *body = calloc(1, size);
    struct entry e = { .head = mr_str("h"), .body = { body, size } };
    uint64_t at = 12, tail = look(f->log).tail;
    assert_int_equal(log_append(f->log, &e, 1, ROOM_PUSH, &at), MR_ETOOBIG);
    assert_int_equal(at, 12);
    assert_int_equal(look(f->log).tail, tail);
    free(body);
    expect_entry(f, put(f, 0, 1, 10), 0);
}

static void every_size_up_to_a_segment_fits(void **state) {
    struct fixture *f = *state;
    uint64_t at[SAMPLES];
    uint64_t count = 0;
    for (size_t size = 0; size <= 4096 - 64 - 32 - 32 - SAMPLE_HEAD; size += 61)
        at[count] = put(f, count, 1, size), count++;
    at[count] = put(f, count, 1, 4096 - 64 - 32 - 32 - SAMPLE_HEAD), count++;
    log_flush(f->log, true);
    for (uint64_t i = 0; i < count; i++)
        expect_entry(f, at[i], i);
    expect_scan(f, look(f->log).head, 5000, 0, count);
}

static void large_bodies_and_full_groups_fit(void **state) {
    struct fixture *f = *state;
    uint64_t one = put(f, 0, 1, 16 << 20);
    uint64_t many = put(f, 1, LOG_GROUP, 30);
    uint64_t last = put(f, 1 + LOG_GROUP, 3, 8 << 20);
    expect_entry(f, one, 0);
    expect_entry(f, many, 1);
    assert_int_equal(log_wait(f->log, last), 0);
    expect_entry(f, one, 0);
    expect_entry(f, last, 1 + LOG_GROUP);
    expect_scan(f, look(f->log).head, 1 << 20, 0, LOG_GROUP + 4);
}

static void replaying_shows_all_heads(void **state) {
    struct fixture *f = *state;
    for (uint64_t i = 0; i < 60; i += 3)
        put(f, i, 3, 100);
    if (f->kind != MEMORY) {
        log_close(f->log);
        log_start(f);
    }
    struct tally *t = calloc(1, sizeof *t);
    assert_int_equal(log_replay(f->log, tally_see, t), 0);
    assert_true(tally_right(t));
    assert_int_equal(t->next, 60);
    for (uint64_t i = 0; i < 60; i++)
        expect_entry(f, t->at[i], i);
    free(t);
    expect_entry(f, put(f, 60, 1, 100), 60);
}

// Readers read what the owner has published, while it appends and trims.
struct readers {
    struct fixture *f;
    _Atomic uint64_t at[64], number[64]; // 0: not published yet
    _Atomic bool ended;
    _Atomic uint64_t right, gone, wrong;
};

static void *read_on(void *arg) {
    struct readers *r = arg;
    for (unsigned i = 0; !r->ended; i++) {
        uint64_t number = r->number[i % 64], at = r->at[i % 64];
        bool right;
        if (!at || number == UINT64_MAX || number != r->number[i % 64])
            continue;
        int err = sample_read(r->f->log, at, number, &right);
        if (err == MR_EGONE)
            r->gone++;
        else if (right)
            r->right++;
        else if (number == r->number[i % 64] && at == r->at[i % 64])
            r->wrong++;
    }
    return NULL;
}

static void publish(struct readers *r, uint64_t number, uint64_t at) {
    r->number[number % 64] = UINT64_MAX;
    r->at[number % 64] = at;
    r->number[number % 64] = number;
}

static void other_threads_read_meanwhile(void **state) {
    struct fixture *f = *state;
    struct readers r = { .f = f };
    pthread_t threads[2];
    uint64_t number = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &r), 0);
    while (number < 3000 || r.right < 1000) {
        uint64_t at = put(f, number, 1, 40 + number % 300);
        publish(&r, number++, at);
        if (number % 50 == 0)
            log_flush(f->log, false);
        if (number % 400 == 0) {
            assert_int_equal(log_wait(f->log, at), 0);
            assert_int_equal(log_trim(f->log, at), 0);
        }
    }
    r.ended = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(r.wrong, 0);
}

// F51: an allocation that fails is an error, and the log goes on as if nothing had been asked.
static void F51_every_allocation_may_fail(void **state) {
    struct fixture *f = *state;
    uint64_t number = 0, at[3], next;
    struct tally *t = calloc(1, sizeof *t);
    for (int round = 0; round < 30; round++) {
        for (long n = 0;; n++) {
            mem_fail_after(n);
            int err = sample_append(f->log, number, 3, 700, ROOM_PUSH, at);
            bool failed = mem_fail_after(-1) < 0;
            assert_true(err == 0 || (failed && err == MR_ENOMEM));
            number += err == 0 ? 3 : 0;
            if (!failed)
                break;
        }
        if (round % 3 == 0)
            log_flush(f->log, false);
    }
    for (long n = 0; n < 10; n++) {
        bool right;
        mem_fail_after(n);
        int err = sample_read(f->log, at[2], number - 1, &right);
        assert_true(right || err == MR_ENOMEM);
        err = log_scan(f->log, look(f->log).head, 100, refuse, NULL, &next);
        mem_fail_after(-1);
        assert_true(err == MR_ENOMEM || err == MR_EAGAIN);
    }
    free(t);
    expect_scan(f, look(f->log).head, SIZE_MAX, 0, number);
}

#define CONTRACT(setup, name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define CONTRACT_OF(setup)                                                                         \
    CONTRACT(setup, an_empty_log_has_a_head_and_nothing_else),                                     \
        CONTRACT(setup, entries_are_read_again_by_position),                                       \
        CONTRACT(setup, either_part_may_be_unwanted_or_empty),                                     \
        CONTRACT(setup, groups_stay_together), CONTRACT(setup, a_scan_continues_where_it_stopped), \
        CONTRACT(setup, a_scan_may_append_what_it_sees),                                           \
        CONTRACT(setup, a_walk_ends_when_its_callback_says),                                       \
        CONTRACT(setup, trimming_gives_up_whole_segments),                                         \
        CONTRACT(setup, what_is_trimmed_is_given_back),                                            \
        CONTRACT(setup, trimming_everything_keeps_the_tail),                                       \
        CONTRACT(setup, what_was_waited_for_is_durable),                                           \
        CONTRACT(setup, a_group_must_fit_in_a_segment),                                            \
        CONTRACT(setup, every_size_up_to_a_segment_fits),                                          \
        CONTRACT(setup, replaying_shows_all_heads), CONTRACT(setup, F51_every_allocation_may_fail)

int main(void) {
    const struct CMUnitTest tests[] = {
#if !defined(STREAM_POSTGRES) && !defined(STREAM_NATS)
        CONTRACT_OF(setup_memory),
        CONTRACT_OF(setup_thread),
        CONTRACT_OF(setup_inline),
        CONTRACT_OF(setup_stream_inline),
        CONTRACT(setup_memory, other_threads_read_meanwhile),
        CONTRACT(setup_memory, trimmed_segments_are_used_again),
        CONTRACT(setup_thread, other_threads_read_meanwhile),
        CONTRACT(setup_memory_large, large_bodies_and_full_groups_fit),
        CONTRACT(setup_real, large_bodies_and_full_groups_fit),
        CONTRACT(setup_real, other_threads_read_meanwhile),
        CONTRACT(setup_real, entries_are_read_again_by_position),
        CONTRACT(setup_real, replaying_shows_all_heads),
#endif
        CONTRACT_OF(setup_stream_thread),
        CONTRACT(setup_stream_thread, other_threads_read_meanwhile),
        CONTRACT(setup_stream_large, large_bodies_and_full_groups_fit),
    };
#ifdef STREAM_NATS
    if (!nats_is_installed())
        return 0;
    nats_servers_start(&servers, 1, "");
#endif
    int failed = cmocka_run_group_tests_name("log", tests, NULL, NULL);
#ifdef STREAM_NATS
    nats_servers_stop(&servers);
#endif
    return failed;
}
