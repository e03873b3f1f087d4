// The shards of one engine: where they lie, what they agree on, and what is refused.
#include "base/errors.h"
#include "shard/group.h"
#include "support/folder.h"

#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

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
    struct group_options o = { .store = store_in(p ? p->dir : NULL),
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

static void another_number_of_shards_is_refused(void **state) {
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
    write_text(&p, "shards", "3 shards by stage, being made\n");
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

static void R19_time_continues_from_the_latest_time_of_any_shard(void **state) {
    (void)state;
    struct place p = place_make();
    wall_ms = 1000000;
    boot_ms = 500;
    struct group *g = open_group(&p, 3);
    boot_ms += 90000;
    push(g, 1);
    group_close(g);
    wall_ms = 1050000; // the wall clock was set back
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

// A store made by key cannot be opened; the error says how to convert it.
static void a_store_made_by_key_is_refused_with_the_way_out(void **state) {
    (void)state;
    struct place p = place_make();
    char *words[] = { "cp", "-r", TEST_DIR "/data/by-key/.", p.dir, NULL };
    pid_t pid;
    int status;
    assert_int_equal(posix_spawnp(&pid, "cp", NULL, NULL, words, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (uint32_t shards = 0; shards <= 3; shards += 3) {
        refuses(MR_EINVAL, &p, shards, "by key");
        refuses(MR_EINVAL, &p, shards, "millrace store copy file:");
        refuses(MR_EINVAL, &p, shards, "--shards 3");
    }
    uint32_t found = 0;
    assert_int_equal(layout_read(NULL, p.dir, &found), 0); // copying it needs the number
    assert_int_equal(found, 3);
    folder_remove(p.dir);
}

static void U9_reading_a_store_can_be_cancelled(void **state) {
    (void)state;
    struct place p = place_make();
    struct group *g = open_group(&p, 3);
    uint64_t before = push(g, 1);
    group_close(g);
    atomic_bool cancel = true;
    struct group_options o = { .store = store_in(p.dir), .cancel = &cancel };
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
        cmocka_unit_test(another_number_of_shards_is_refused),
        cmocka_unit_test(F31_a_store_has_one_owner),
        cmocka_unit_test(F17_a_shard_that_is_missing_is_noticed),
        cmocka_unit_test(F28_a_store_left_half_made_is_made_whole),
        cmocka_unit_test(what_is_not_a_store_is_left_alone),
        cmocka_unit_test(R19_time_continues_from_the_latest_time_of_any_shard),
        cmocka_unit_test(no_two_shards_give_the_same_id),
        cmocka_unit_test(a_store_made_by_key_is_refused_with_the_way_out),
        cmocka_unit_test(U9_reading_a_store_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
