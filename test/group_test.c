// The shards of one engine: where they lie, what they agree on, and what is refused.
#include "base/errors.h"
#include "folder.h"
#include "shard/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include <unistd.h>

// ---- A directory, and a clock -----------------------------------------------------------------

struct place {
    char dir[64];
};

static struct place place_make(void) {
    struct place p = { .dir = "/tmp/millrace-group-XXXXXX" };
    assert_non_null(mkdtemp(p.dir));
    return p;
}

static uint64_t wall_ms, boot_ms;

static uint64_t read_wall(void *arg) {
    (void)arg;
    return wall_ms;
}

static uint64_t read_boot(void *arg) {
    (void)arg;
    return boot_ms;
}

static int try_open(const struct place *p, uint32_t shards, struct group **out) {
    struct group_options o = { .dir = p ? p->dir : NULL,
                               .shards = shards,
                               .log = { .sync = LOG_SYNC_NONE, .segment_size = 1 << 16 },
                               .world = { .wall_ms = read_wall, .boot_ms = read_boot } };
    return group_open(&o, out);
}

static struct group *open_group(const struct place *p, uint32_t shards) {
    struct group *g = NULL;
    if (try_open(p, shards, &g) < 0)
        fail_msg("%s", error_text());
    return g;
}

static void refuses(int code, const struct place *p, uint32_t shards, const char *says) {
    struct group *g = NULL;
    assert_int_equal(try_open(p, shards, &g), code);
    assert_null(g);
    if (!strstr(error_text(), says))
        fail_msg("'%s' does not say '%s'", error_text(), says);
}

static uint64_t push(struct group *g, uint32_t shard) {
    struct shard *s = group_shard(g, shard);
    struct push push = { .stage = mr_str("s"), .body = mr_str("x") };
    struct pushed pushed;
    assert_int_equal(shard_begin(s), 0);
    assert_int_equal(core_push(shard_core(s), &push, &pushed), 0);
    assert_int_equal(shard_wait(s, shard_end(s)), 0);
    return pushed.id;
}

static bool exists(const struct place *p, const char *name) {
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    return stat(path, &st) == 0;
}

static void write_text(const struct place *p, const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

// ---- Layout -----------------------------------------------------------------------------------

static void one_shard_lies_as_ever(void **state) {
    (void)state;
    struct place p = place_make();
    group_close(open_group(&p, 0));
    assert_true(exists(&p, "store"));
    assert_false(exists(&p, "shards"));
    struct group *g = open_group(&p, 1);
    assert_int_equal(group_count(g), 1);
    group_close(g);
    folder_remove(p.dir);
}

static void several_lie_beside_one_another_and_are_found_again(void **state) {
    (void)state;
    struct place p = place_make();
    group_close(open_group(&p, 3));
    assert_false(exists(&p, "store"));
    assert_true(exists(&p, "shards"));
    assert_true(exists(&p, "shard-2/store"));
    struct group *g = open_group(&p, 0);
    assert_int_equal(group_count(g), 3);
    group_close(g);
    uint32_t shards = 0;
    assert_int_equal(layout_read(NULL, p.dir, &shards), 0);
    assert_int_equal(shards, 3);
    folder_remove(p.dir);
}

static void another_number_is_refused_and_said(void **state) {
    (void)state;
    struct place one = place_make(), three = place_make();
    group_close(open_group(&one, 1));
    group_close(open_group(&three, 3));
    refuses(MR_EINVAL, &one, 3, "has 1 shard, not 3: millrace store copy");
    refuses(MR_EINVAL, &three, 1, "has 3 shards, not 1: millrace store copy");
    refuses(MR_EINVAL, &three, 4, "has 3 shards, not 4");
    refuses(MR_EINVAL, NULL, 65, "65 shards are too many");
    folder_remove(one.dir);
    folder_remove(three.dir);
}

static void F31_a_store_has_one_owner(void **state) {
    (void)state;
    struct place p = place_make();
    struct group *g = open_group(&p, 2);
    refuses(MR_EBUSY, &p, 2, "in use");
    refuses(MR_EBUSY, &p, 0, "in use");
    group_close(g);
    group_close(open_group(&p, 2));
    folder_remove(p.dir);
}

static void F17_a_shard_that_is_missing_is_noticed(void **state) {
    (void)state;
    struct place p = place_make();
    char shard[128];
    group_close(open_group(&p, 3));
    snprintf(shard, sizeof shard, "%s/shard-1", p.dir);
    folder_remove(shard);
    refuses(MR_ECORRUPT, &p, 0, "shard-1");
    folder_remove(p.dir);
}

static void F28_a_store_left_half_made_is_made_whole(void **state) {
    (void)state;
    struct place p = place_make();
    char shard[128];
    group_close(open_group(&p, 3));
    write_text(&p, "shards", "3 shards, being made\n");
    write_text(&p, "shards.tmp", "");
    snprintf(shard, sizeof shard, "%s/shard-2", p.dir);
    folder_remove(shard);
    struct group *g = open_group(&p, 0);
    assert_int_equal(group_count(g), 3);
    group_close(g);
    snprintf(shard, sizeof shard, "%s/shard-0", p.dir);
    folder_remove(shard);
    refuses(MR_ECORRUPT, &p, 0, "shard-0"); // from then on it is whole
    folder_remove(p.dir);
}

static void what_is_not_a_store_is_left_alone(void **state) {
    (void)state;
    struct place p = place_make();
    write_text(&p, "letter.txt", "dear reader");
    refuses(MR_EINVAL, &p, 2, "letter.txt");
    assert_false(exists(&p, "shards"));
    folder_remove(p.dir);
    struct place damaged = place_make();
    write_text(&damaged, "shards", "many\n");
    refuses(MR_ECORRUPT, &damaged, 0, "how many shards");
    folder_remove(damaged.dir);
}

// ---- What they agree on -----------------------------------------------------------------------

static void R19_time_goes_on_from_the_latest_instant_of_any_shard(void **state) {
    (void)state;
    struct place p = place_make();
    wall_ms = 1000000;
    boot_ms = 500;
    struct group *g = open_group(&p, 3);
    boot_ms += 90000;
    push(g, 1);
    group_close(g);
    wall_ms = 1050000; // set back by somebody
    boot_ms = 7;
    g = open_group(&p, 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(core_now(shard_core(group_shard(g, i))), 1090000);
    boot_ms += 11;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(shard_begin(group_shard(g, i)), 0);
        shard_end(group_shard(g, i));
        assert_int_equal(core_now(shard_core(group_shard(g, i))), 1090011);
    }
    group_close(g);
    folder_remove(p.dir);
}

static void no_two_shards_give_the_same_id(void **state) {
    (void)state;
    struct place p = place_make();
    uint64_t ids[12];
    size_t count = 0;
    for (int run = 0; run < 2; run++) {
        struct group *g = open_group(&p, 3);
        for (uint32_t shard = 0; shard < 3; shard++)
            for (int i = 0; i < 2; i++) {
                ids[count] = push(g, shard);
                assert_int_equal(route_of_id(3, ids[count]), shard);
                for (size_t k = 0; k < count; k++)
                    assert_true(ids[k] != ids[count]);
                count++;
            }
        group_close(g);
    }
    folder_remove(p.dir);
}

static struct stage_info look(struct group *g, uint32_t shard) {
    struct stage_info info;
    assert_int_equal(core_look_stage(shard_core(group_shard(g, shard)), mr_str("s"), &info), 0);
    return info;
}

static void R14_policies_that_a_crash_left_in_the_first_shard_reach_all(void **state) {
    (void)state;
    struct place p = place_make();
    struct group *g = open_group(&p, 3);
    struct shard *first = group_shard(g, 0);
    assert_int_equal(shard_begin(first), 0);
    struct core *core = shard_core(first);
    assert_int_equal(core_set(core, mr_str("s"), mr_str("concurrency"), mr_str("4")), 0);
    assert_int_equal(core_pause(core, mr_str("s")), 0);
    shard_end(first);
    group_close(g);
    for (int run = 0; run < 2; run++) {
        g = open_group(&p, 0);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(look(g, i).policy->concurrency, 4);
            assert_true(look(g, i).paused);
        }
        group_close(g);
    }
    folder_remove(p.dir);
}

static void push_number(struct group *g, uint32_t shard, uint64_t number) {
    struct shard *s = group_shard(g, shard);
    struct push push = {
        .stage = mr_str("s"), .source = mr_str("e"), .number = number, .epic = true
    };
    struct pushed pushed;
    assert_int_equal(shard_begin(s), 0);
    assert_int_equal(core_push(shard_core(s), &push, &pushed), 0);
    assert_int_equal(shard_wait(s, shard_end(s)), 0);
}

static void end_epic(struct group *g, uint32_t shard, uint64_t total) {
    struct shard *s = group_shard(g, shard);
    assert_int_equal(shard_begin(s), 0);
    assert_int_equal(core_epic_end(shard_core(s), mr_str("e"), total), 0);
    assert_int_equal(shard_wait(s, shard_end(s)), 0);
}

static void expect_total(struct group *g, uint64_t total) {
    for (uint32_t i = 0; i < 3; i++) {
        struct epic_info e;
        assert_int_equal(core_epic(shard_core(group_shard(g, i)), mr_str("e"), &e), 0);
        assert_true(e.ended);
        assert_int_equal(e.total, total);
    }
}

// F28: their logs are synced one by one, so a crash may leave the end in any of them. Shard 2 has
// nothing else of the epic.
static void F28_an_end_that_a_crash_left_in_some_shards_reaches_all(void **state) {
    (void)state;
    for (unsigned known = 1; known < 8; known++) {
        struct place p = place_make();
        struct group *g = open_group(&p, 3);
        push_number(g, 0, 1);
        push_number(g, 1, 2);
        for (uint32_t i = 0; i < 3; i++)
            if (known >> i & 1)
                end_epic(g, i, 2);
        group_close(g);
        for (int run = 0; run < 2; run++) {
            g = open_group(&p, 0);
            expect_total(g, 2);
            group_close(g);
        }
        folder_remove(p.dir);
    }
}

// It was said again, otherwise.
static void F28_of_two_ends_that_of_the_first_shard_counts(void **state) {
    (void)state;
    struct place p = place_make();
    struct group *g = open_group(&p, 3);
    for (uint32_t i = 0; i < 3; i++)
        end_epic(g, i, 0);
    end_epic(g, 0, 5);
    group_close(g);
    g = open_group(&p, 0);
    expect_total(g, 5);
    group_close(g);
    folder_remove(p.dir);
}

// ---- One stage, as several shards see it ------------------------------------------------------

static struct stage_info seen(uint64_t ready, uint64_t running, const char *held_by) {
    struct stage_info info = { .ready = ready, .waiting = ready, .running = running };
    info.oldest_ms = ready ? 10 * (int64_t)ready : -1;
    snprintf(info.held_by, sizeof info.held_by, "%s", held_by);
    return info;
}

static void add(struct stage_info a, struct stage_info b, const char *held_by) {
    struct stage_info sum = a;
    stage_info_add(&sum, &b);
    assert_string_equal(sum.held_by, held_by);
    assert_int_equal(sum.waiting, a.waiting + b.waiting);
    assert_int_equal(sum.oldest_ms, a.oldest_ms > b.oldest_ms ? a.oldest_ms : b.oldest_ms);
}

static void R20_a_stage_is_held_if_every_shard_with_work_is(void **state) {
    (void)state;
    add(seen(1, 0, "limit"), seen(0, 1, ""), "limit");
    add(seen(0, 1, ""), seen(2, 0, "limit"), "limit");
    add(seen(1, 0, "limit"), seen(2, 0, ""), "");
    add(seen(1, 0, ""), seen(2, 0, "limit"), "");
    add(seen(0, 0, "backoff"), seen(0, 0, ""), "backoff");
    add(seen(0, 0, ""), seen(0, 0, "delay"), "delay");
    add(seen(0, 0, "delay"), seen(0, 0, "backoff"), "backoff"); // as one shard tells it
    add(seen(0, 0, "halted"), seen(0, 0, "backoff"), "halted");
    add(seen(0, 0, "delay"), seen(0, 0, "halted"), "halted");
    add(seen(1, 0, "no-worker"), seen(0, 0, ""), "no-worker");
    add(seen(1, 0, "no-worker"), seen(0, 1, ""), ""); // it is busy there, and comes here next
}

// U9: whoever ends a server while it reads its store need not wait for that.
static void U9_reading_a_store_can_be_cancelled(void **state) {
    (void)state;
    struct place p = place_make();
    struct group *g = open_group(&p, 3);
    uint64_t before = push(g, 1);
    group_close(g);
    atomic_bool cancel = true;
    struct group_options o = { .dir = p.dir, .cancel = &cancel };
    g = NULL;
    assert_int_equal(group_open(&o, &g), MR_ECANCELLED);
    assert_null(g);
    cancel = false;
    assert_int_equal(group_open(&o, &g), 0);
    assert_true(push(g, 1) > before);
    group_close(g);
    folder_remove(p.dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_shard_lies_as_ever),
        cmocka_unit_test(several_lie_beside_one_another_and_are_found_again),
        cmocka_unit_test(another_number_is_refused_and_said),
        cmocka_unit_test(F31_a_store_has_one_owner),
        cmocka_unit_test(F17_a_shard_that_is_missing_is_noticed),
        cmocka_unit_test(F28_a_store_left_half_made_is_made_whole),
        cmocka_unit_test(what_is_not_a_store_is_left_alone),
        cmocka_unit_test(R19_time_goes_on_from_the_latest_instant_of_any_shard),
        cmocka_unit_test(no_two_shards_give_the_same_id),
        cmocka_unit_test(R14_policies_that_a_crash_left_in_the_first_shard_reach_all),
        cmocka_unit_test(F28_an_end_that_a_crash_left_in_some_shards_reaches_all),
        cmocka_unit_test(F28_of_two_ends_that_of_the_first_shard_counts),
        cmocka_unit_test(R20_a_stage_is_held_if_every_shard_with_work_is),
        cmocka_unit_test(U9_reading_a_store_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
