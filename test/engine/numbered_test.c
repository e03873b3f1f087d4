// Pushes with numbers through the engine: a number met again makes no second job, also after the
// engine was opened again; and an epic reports its progress.
#include "engine/engine.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const mr_push_options no_options;

static uint32_t shards = 1;

static struct engine *open_engine(const char *dir) {
    struct engine *engine;
    struct local_options options = { .store = store_in(dir),
                                     .sync = ENGINE_SYNC_NONE,
                                     .shards = shards };
    assert_int_equal(local_engine_open(&options, &engine), 0);
    return engine;
}

// Pushes `count` jobs of the epic "book", numbered from `number` on.
static void push(struct engine *e, uint64_t number, size_t count, mr_id *out_ids) {
    mr_item items[8];
    struct push_number first = { mr_str("book"), number, true };
    size_t pushed = 0;
    assert_true(count <= 8);
    for (size_t i = 0; i < count; i++)
        items[i] = (mr_item){ .body = mr_str("page") };
    assert_int_equal(
        e->impl->push_many(e, mr_str("read"), items, count, &no_options, &first, out_ids, &pushed),
        0);
    assert_int_equal(pushed, count);
}

static mr_epic_info look(struct engine *e) {
    mr_epic_info book;
    assert_int_equal(e->impl->epic(e, mr_str("read"), mr_str("book"), &book), 0);
    return book;
}

static uint64_t waiting(struct engine *e) {
    mr_stage_info info;
    assert_int_equal(e->impl->stage_look(e, mr_str("read"), &info), 0);
    return info.waiting;
}

static void R12_a_number_is_pushed_once(void **state) {
    (void)state;
    struct engine *e = open_engine(NULL);
    mr_epic_info none;
    mr_id ids[8], again[8];
    assert_int_equal(e->impl->epic(e, mr_str("read"), mr_str("book"), &none), MR_EGONE);
    push(e, 1, 5, ids);
    assert_int_equal(look(e).resume, 6);
    push(e, 4, 4, again); // 4 and 5 are known, 6 and 7 are not
    assert_int_equal(again[0], ids[3]);
    assert_int_equal(again[1], ids[4]);
    for (size_t i = 0; i < 5; i++)
        assert_true(again[2] != ids[i] && again[3] != ids[i]);
    assert_int_equal(waiting(e), 7);
    assert_int_equal(look(e).resume, 8);
    assert_int_equal(e->impl->close(e), 0);
}

static void R12_an_epic_resumes_at_the_first_number_that_no_shard_has(void **state) {
    (void)state;
    struct engine *e = open_engine(NULL);
    push(e, 1, 8, NULL);
    push(e, 10, 8, NULL); // 9 is missing
    assert_int_equal(look(e).resume, 9);
    push(e, 9, 1, NULL);
    assert_int_equal(look(e).resume, 18);
    for (uint64_t number = 18; number < 3000; number += 8)
        push(e, number, 8, NULL);
    assert_int_equal(look(e).resume, 3002);
    push(e, 2990, 8, NULL); // again
    assert_int_equal(waiting(e), 3001);
    assert_int_equal(e->impl->close(e), 0);
}

static int try_push(struct engine *e, uint64_t number, size_t *out_pushed) {
    mr_item items[8] = { 0 };
    struct push_number first = { mr_str("book"), number, true };
    return e->impl->push_many(e, mr_str("read"), items, 8, &no_options, &first, NULL, out_pushed);
}

// A number 1,024 above one that is missing would be taken for the proof that that was there.
static void R12_what_is_too_far_ahead_is_refused(void **state) {
    (void)state;
    struct engine *e = open_engine(NULL);
    size_t pushed = 0;
    for (int run = 0; run < 2; run++) {
        push(e, 1, 8, NULL);
        assert_int_equal(try_push(e, 1033, &pushed), MR_EGAP); // 9 is missing
        assert_int_equal(try_push(e, 1030, &pushed), 0);
        assert_int_equal(pushed, 3);
        assert_int_equal(e->impl->epic_skip(e, mr_str("read"), mr_str("book"), 1033), MR_EGAP);
        assert_int_equal(look(e).resume, 9);
        push(e, 9, 1, NULL);
        assert_int_equal(try_push(e, 1033, &pushed), 0);
        assert_int_equal(pushed, 1);
        assert_int_equal(e->impl->epic_drop(e, mr_str("read"), mr_str("book")),
                         0); // and from the beginning
    }
    assert_int_equal(e->impl->close(e), 0);
}

static void R12_also_after_opening_again(void **state) {
    (void)state;
    char dir[] = "/tmp/millrace-numbered-XXXXXX";
    mr_id ids[8], again[8];
    assert_non_null(mkdtemp(dir));
    struct engine *e = open_engine(dir);
    push(e, 1, 3, ids);
    assert_int_equal(e->impl->drop(e, ids[1]), 0);
    assert_int_equal(e->impl->close(e), 0);
    e = open_engine(dir);
    assert_int_equal(look(e).resume, 4);
    assert_int_equal(look(e).cancelled, 1);
    push(e, 1, 4, again);
    assert_int_equal(again[0], ids[0]);
    assert_int_equal(waiting(e), 3); // the dropped one does not come back
    assert_int_equal(e->impl->close(e), 0);
    folder_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(R12_a_number_is_pushed_once),
        cmocka_unit_test(R12_an_epic_resumes_at_the_first_number_that_no_shard_has),
        cmocka_unit_test(R12_what_is_too_far_ahead_is_refused),
        cmocka_unit_test(R12_also_after_opening_again),
    };
    int failed = cmocka_run_group_tests_name("one shard", tests, NULL, NULL);
    shards = 4;
    return failed + cmocka_run_group_tests_name("four shards", tests, NULL, NULL);
}
