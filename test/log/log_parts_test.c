// The parts that logs are made of: batches of streams as bytes that may be wrong, the real disk,
// and stores for which there is no memory.
#include "support/log_support.h"

#include "log/board.h"
#include "log/disk.h"
#include "log/frame.h"
#include "log/replicated.h"
#include "log/stream_batch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

// ---- Batches ------------------------------------------------------------------------------------

enum { BATCH_AT = 4096, ENTRIES = 3 };

struct batch_fixture {
    struct buffer heads, bodies;
    struct batch_header header;
    struct stream_batch batch;
};

// Writes the header, with the right sum whatever it says, and sees what is wrong; NULL: nothing.
static const char *checked(struct batch_fixture *f) {
    struct batch_header found;
    batch_put_header(&f->heads, &f->header);
    f->batch.heads = buffer_bytes(&f->heads);
    return batch_check(&f->batch, &found);
}

static void batch_make(struct batch_fixture *f) {
    static const char *const texts[ENTRIES] = { "first", "", "the third one" };
    *f = (struct batch_fixture){ 0 };
    assert_int_equal(buffer_reserve(&f->heads, 512), 0);
    assert_int_equal(buffer_reserve(&f->bodies, 512), 0);
    f->heads.size = BATCH_HEADER;
    for (int i = 0; i < ENTRIES; i++) {
        struct entry e = { .head = mr_str("head"), .body = mr_str(texts[i]) };
        (void)batch_put(&f->heads, &f->bodies, BATCH_AT, &e);
    }
    f->header = (struct batch_header){ .shift = 10,
                                       .count = ENTRIES,
                                       .bodies_size = (uint32_t)f->bodies.size,
                                       .at = BATCH_AT,
                                       .before = BATCH_AT - 8 };
    f->batch = (struct stream_batch){ .at = BATCH_AT,
                                      .end = BATCH_AT + round_up_8(f->bodies.size + f->heads.size),
                                      .bodies = buffer_bytes(&f->bodies) };
    assert_null(checked(f));
}

static void batch_finish(struct batch_fixture *f) {
    buffer_finish(&f->heads);
    buffer_finish(&f->bodies);
}

// F22: no bit of the heads changes, and no byte is lost, without being noticed.
static void F22_damaged_heads_of_a_batch_are_noticed(void **state) {
    (void)state;
    struct batch_fixture f;
    struct batch_header found;
    batch_make(&f);
    for (size_t bit = 0; bit < 8 * f.heads.size; bit++) {
        f.heads.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_non_null(batch_check(&f.batch, &found));
        f.heads.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t size = 0; size < f.heads.size; size++) {
        f.batch.heads = (mr_bytes){ f.heads.data, size };
        assert_non_null(batch_check(&f.batch, &found));
    }
    batch_finish(&f);
}

// F22: a header whose sum is right is not believed if it contradicts the batch.
static void F22_headers_that_do_not_fit_are_noticed(void **state) {
    (void)state;
    const struct batch_header changes[] = {
        { .at = 8 },          // another position
        { .before = 16 },     // begins before the batch before it ends
        { .count = -1u },     // fewer entries than there are …
        { .count = 1 },       // … or more
        { .bodies_size = 8 }, // longer bodies
    };
    struct batch_fixture f;
    batch_make(&f);
    const struct batch_header right = f.header;
    for (size_t i = 0; i < LENGTH(changes); i++) {
        f.header =
            (struct batch_header){ right.shift, right.count + changes[i].count,
                                   right.bodies_size + changes[i].bodies_size,
                                   right.at + changes[i].at, right.before + changes[i].before };
        assert_string_equal(checked(&f), "its header does not fit");
    }
    f.header = right;
    f.header.count = 0;
    assert_string_equal(checked(&f), "its header does not fit");
    f.header = right;
    store_u32(f.heads.data + BATCH_HEADER, UINT32_MAX); // the size of the first head
    assert_string_equal(checked(&f), "its header does not fit");
    store_u32(f.heads.data + BATCH_HEADER, 4);
    f.batch.end += 8;
    assert_string_equal(checked(&f), "its end does not fit");
    f.batch.end -= 8;
    f.batch.bodies.size -= 8;
    assert_string_equal(checked(&f), "its bodies are of another size");
    f.batch.bodies = (mr_bytes){ 0 }; // they may be missing
    assert_null(checked(&f));
    batch_finish(&f);
}

static int damaged_entries(const struct stream_batch *b) {
    struct batch_walk w = batch_walk_all(b);
    struct log_seen seen;
    int damaged = 0, count = 0;
    for (; batch_walk_next(&w, &seen); count++)
        damaged += seen.damaged;
    assert_int_equal(count, ENTRIES);
    return damaged;
}

// F22: a damaged body is that of one entry. The bytes that fill bodies up mean nothing.
static void F22_damaged_bodies_of_a_batch_are_noticed(void **state) {
    (void)state;
    struct batch_fixture f;
    batch_make(&f);
    assert_int_equal(damaged_entries(&f.batch), 0);
    int noticed = 0;
    for (size_t bit = 0; bit < 8 * f.bodies.size; bit++) {
        f.bodies.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int damaged = damaged_entries(&f.batch);
        assert_in_range(damaged, 0, 1);
        noticed += damaged;
        f.bodies.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    const size_t meant = ENTRIES * BATCH_ITEM + strlen("first") + strlen("the third one");
    assert_int_equal(noticed, 8 * meant);
    batch_finish(&f);
}

// F22: parts of a batch that are read alone are refused where no entry begins, or if they end
// early.
static void F22_parts_of_a_batch_are_checked_alone(void **state) {
    (void)state;
    struct batch_fixture f;
    struct batch_item item;
    mr_bytes head;
    batch_make(&f);
    assert_true(batch_get_item(f.batch.bodies, BATCH_AT, &item));
    assert_true(batch_body_fits(&item, BATCH_AT, mr_str("first")));
    assert_false(batch_body_fits(&item, BATCH_AT, mr_str("First")));
    assert_false(batch_body_fits(&item, BATCH_AT, mr_str("firs")));
    assert_false(batch_get_item(f.batch.bodies, BATCH_AT + 8, &item));
    assert_false(batch_get_item((mr_bytes){ f.bodies.data, BATCH_ITEM - 1 }, BATCH_AT, &item));
    mr_bytes raw = { f.heads.data + BATCH_HEADER, BATCH_FRAME + 4 };
    assert_int_equal(batch_get_head(raw, BATCH_AT, &head), raw.size);
    assert_memory_equal(head.data, "head", 4);
    assert_int_equal(batch_get_head(raw, BATCH_AT + 8, &head), 0);
    raw.size--; // it needs all of the head …
    assert_int_equal(batch_get_head(raw, BATCH_AT, &head), BATCH_FRAME + 4);
    raw.size = BATCH_FRAME - 1; // … and says how much only if the frame is whole
    assert_int_equal(batch_get_head(raw, BATCH_AT, &head), 0);
    batch_finish(&f);
}

// ---- The real disk ------------------------------------------------------------------------------

static int refuse_name(void *arg, const char *name) {
    (void)name;
    return *(int *)arg;
}

// Every call answers the error of the system.
static void the_disk_answers_what_the_system_says(void **state) {
    (void)state;
    const struct disk *d = &disk_os;
    char bytes[8];
    assert_int_equal(d->close(d, -1), -EBADF);
    assert_int_equal(d->pread(d, -1, bytes, 8, 0), -EBADF);
    assert_int_equal(d->pread_now(d, -1, bytes, 8, 0), -EBADF);
    assert_int_equal(d->pwrite(d, -1, bytes, 8, 0), -EBADF);
    assert_int_equal(d->pwrite_synced(d, -1, bytes, 8, 0), -EBADF);
    assert_int_equal(d->allocate(d, -1, 0, 8), -EBADF);
    assert_int_equal(d->truncate(d, -1, 8), -EBADF);
    assert_int_equal(d->sync(d, -1), -EBADF);
    assert_int_equal(d->size(d, -1), -EBADF);
    assert_int_equal(d->open(d, "/nowhere/file", O_RDONLY, 0), -ENOENT);
    assert_int_equal(d->rename(d, "/nowhere/file", "/nowhere/other"), -ENOENT);
    assert_int_equal(d->unlink(d, "/nowhere/file"), -ENOENT);
    assert_int_equal(d->make_dir(d, "/nowhere/dir"), -ENOENT);
    assert_int_equal(d->sync_dir(d, "/nowhere"), -ENOENT);
    assert_int_equal(d->list(d, "/nowhere", refuse_name, &(int){ 0 }), -ENOENT);
    assert_int_equal(d->list(d, "/", refuse_name, &(int){ MR_EBUSY }), MR_EBUSY);
}

static int descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(all))
        count++;
    closedir(all);
    return count;
}

// A log of many segments, all of which are read, does not use up the descriptors.
static void few_segments_are_open_at_once(void **state) {
    (void)state;
    enum { SEGMENTS = 200, ENTRY = 700 };
    static uint64_t at[SEGMENTS];
    static struct tally t;
    char parent[] = "/tmp/millrace-test-XXXXXX", dir[64];
    assert_non_null(mkdtemp(parent));
    snprintf(dir, sizeof dir, "%s/store/", parent); // a slash at the end does not matter
    struct log_options options = { .segment_size = 1024, .inline_writer = true };
    struct log *l;
    bool right;
    assert_int_equal(log_file_open(dir, &options, &l), 0);
    for (uint64_t i = 0; i < SEGMENTS; i++) {
        if (sample_append(l, i, 1, ENTRY, ROOM_PUSH, &at[i]) < 0)
            fail_msg("%s", error_text());
        log_flush(l, true);
    }
    log_close(l); // what was written last would be read from memory
    assert_int_equal(log_file_open(dir, &options, &l), 0);
    assert_int_equal(log_replay(l, tally_see, &t), 0);
    assert_int_equal(t.next, SEGMENTS);
    int before = descriptors(), most = 0;
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < SEGMENTS; i++) {
            assert_int_equal(sample_read(l, at[i], i, &right), 0);
            assert_true(right);
            most = descriptors() > most ? descriptors() : most;
        }
    assert_true(most - before < SEGMENTS / 2);
    log_close(l);
    folder_remove(parent);
}

static void paths_of_stores_are_limited(void **state) {
    (void)state;
    static char path[5000];
    struct log *l;
    memset(path, 'a', sizeof path - 1);
    assert_int_equal(log_file_open(path, NULL, &l), MR_EINVAL);
    assert_int_equal(log_file_open("", NULL, &l), MR_EINVAL);
}

// ---- Stores without memory ----------------------------------------------------------------------

// A store with two streams and a board, which do not connect. 0, or the first error.
static int store_open_all(const struct store_url *url) {
    struct stream_store *store = NULL;
    struct stream *streams[2] = { 0 };
    struct board *board = NULL;
    int err = stream_store_open(url, "owner", &store);
    for (uint32_t i = 0; err == 0 && i < 2; i++)
        err = store->open(store, i, &streams[i]);
    if (err == 0)
        err = board_open(url, &board);
    for (int i = 0; i < 2; i++)
        if (streams[i])
            streams[i]->impl->close(streams[i]);
    stream_store_close(store);
    board_close(board);
    return err;
}

// F51: every allocation fails once; nothing is left behind.
static void F51_a_store_is_opened_whole_or_not_at_all(void **state) {
    (void)state;
    const char *const urls[] = { "nats://127.0.0.1:1", "postgres://user@127.0.0.1:1/jobs" };
    for (size_t i = 0; i < LENGTH(urls); i++) {
        struct store_url url;
        if (store_url_read(urls[i], &url) < 0 || store_open_all(&url) == MR_EINVAL)
            continue; // this build has no such store
        long n = 0;
        bool failed = true;
        for (; failed; n++) {
            mem_fail_after(n);
            int err = store_open_all(&url);
            failed = mem_fail_after(-1) < 0;
            assert_int_equal(err, failed ? MR_ENOMEM : 0);
        }
        assert_true(n > 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F22_damaged_heads_of_a_batch_are_noticed),
        cmocka_unit_test(F22_headers_that_do_not_fit_are_noticed),
        cmocka_unit_test(F22_damaged_bodies_of_a_batch_are_noticed),
        cmocka_unit_test(F22_parts_of_a_batch_are_checked_alone),
        cmocka_unit_test(the_disk_answers_what_the_system_says),
        cmocka_unit_test(few_segments_are_open_at_once),
        cmocka_unit_test(paths_of_stores_are_limited),
        cmocka_unit_test(F51_a_store_is_opened_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
