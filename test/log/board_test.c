// The contract of boards (log/board.h), of the simulated one; with STREAM_POSTGRES, of those in
// PostgreSQL beside a real server, with its faults.
#ifdef STREAM_POSTGRES
#include "support/postgres_support.h"

#include "log/replicated.h"

#include <signal.h>
#else
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#endif

#include "base/errors.h"
#include "log/board.h"
#include "support/sim_board.h"

enum { SHARDS = 5 };

struct fixture {
    struct board *a, *b; // of two nodes
    struct sim_board *sim;
};

static void expect_result(int result, int expected, const char *what) {
    if (result != expected)
        fail_msg("%s: %d instead of %d: %s", what, result, expected, error_text());
}
#define EXPECT(call, expected) expect_result((call), (expected), #call)

static void expect_words(const char *words) {
    if (!strstr(error_text(), words))
        fail_msg("'%s' is not in '%s'", words, error_text());
}

// --- the two stores -------------------------------------------------------------------------

#ifdef STREAM_POSTGRES
static struct pg_proxy proxy; // in front of board b

static struct stream_postgres_options options_now(void) {
    return (struct stream_postgres_options){ .url = postgres_of_test(), .cluster = "board" };
}

static struct board *board_at(const char *url) {
    struct store_url store = { STORE_IN_POSTGRES, url, "board" };
    struct board *b = NULL;
    EXPECT(board_open(&store, &b), 0);
    return b;
}

static void boards_open(struct fixture *f) {
    static char behind[256];
    snprintf(behind, sizeof behind, "%s host=%s", postgres_of_test(), proxy.dir);
    f->a = board_at(postgres_of_test());
    f->b = board_at(behind);
}

static void store_begin(struct fixture *f) {
    struct stream_postgres_options o = options_now();
    enum store_made made = STORE_THERE;
    SQL("DROP SCHEMA IF EXISTS millrace_board CASCADE");
    EXPECT(stream_postgres_init(&o, SHARDS, &made), STREAM_DONE);
    assert_int_equal(made, STORE_MADE);
    boards_open(f);
}

static void store_end(struct fixture *f) {
    (void)f;
}

// What the database has written becomes older by its clock, as if that had jumped.
static void clock_jump(long ms) {
    SQL("UPDATE millrace_board.note SET put_at = put_at - interval '%ld ms'", ms);
    SQL("UPDATE millrace_board.shard SET seen_at = seen_at - interval '%ld ms'", ms);
}

// New boards believe the clock of the database; those that have looked count by their own.
static void time_pass(struct fixture *f, unsigned ms) {
    clock_jump(ms);
    board_close(f->a);
    board_close(f->b);
    boards_open(f);
}

static void shard_claim(struct fixture *f, unsigned shard, const char *owner) {
    (void)f;
    SQL("UPDATE millrace_board.shard SET epoch = epoch + 1, owner = '%s', seen_at = "
        "clock_timestamp() WHERE shard = %u",
        owner, shard);
}

static void outage_set(struct fixture *f, bool lasts) {
    (void)f;
    pg_proxy_set(&proxy, lasts ? PROXY_REFUSE : PROXY_PASS);
}

static void notes_fill(struct fixture *f, unsigned count) {
    (void)f;
    SQL("INSERT INTO millrace_board.note SELECT 'n' || to_char(n, 'FM0000'), '', now() FROM "
        "generate_series(0, %u - 1) n",
        count);
}
#else
static void store_begin(struct fixture *f) {
    f->sim = sim_board_create(SHARDS);
    f->a = sim_board_open(f->sim);
    f->b = sim_board_open(f->sim);
}

static void store_end(struct fixture *f) {
    sim_board_destroy(f->sim);
}

static void time_pass(struct fixture *f, unsigned ms) {
    sim_board_advance(f->sim, ms);
}

static void shard_claim(struct fixture *f, unsigned shard, const char *owner) {
    struct stream_state now[SHARDS];
    EXPECT(board_look(f->a, SHARDS, now), STREAM_DONE);
    EXPECT(sim_board_claim(f->a, shard, now[shard].epoch, owner), STREAM_DONE);
}

static void outage_set(struct fixture *f, bool lasts) {
    sim_board_cut(f->b, lasts);
}

static void notes_fill(struct fixture *f, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "n%04u", i);
        EXPECT(board_put(f->a, key, ""), STREAM_DONE);
    }
}
#endif

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    store_begin(f);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    board_close(f->a);
    board_close(f->b);
    board_close(NULL);
    store_end(f);
    free(f);
    return 0;
}

// --- reading --------------------------------------------------------------------------------

// All notes as `key=value `, and the age of the last one.
struct listing {
    char text[4096];
    size_t size;
    uint64_t count, age_ms;
};

static int note_list(void *arg, const struct board_note *n) {
    struct listing *l = arg;
    int size = snprintf(l->text + l->size, sizeof l->text - l->size, "%s=%.20s ", n->key, n->value);
    l->size += (size_t)size < sizeof l->text - l->size ? (size_t)size : 0;
    l->count++;
    l->age_ms = n->age_ms;
    return 0;
}

static struct listing notes_of(struct board *b) {
    struct listing l = { 0 };
    EXPECT(board_notes(b, note_list, &l), STREAM_DONE);
    return l;
}

static void expect_notes(struct fixture *f, const char *expected) {
    assert_string_equal(notes_of(f->a).text, expected);
    assert_string_equal(notes_of(f->b).text, expected);
}

// --- the contract ---------------------------------------------------------------------------

static void all_boards_read_the_notes_of_all(void **state) {
    struct fixture *f = *state;
    expect_notes(f, "");
    EXPECT(board_put(f->a, "node/b", "1"), STREAM_DONE);
    EXPECT(board_put(f->b, "node/a", "2"), STREAM_DONE);
    EXPECT(board_put(f->b, "Node", "it's \"here\""), STREAM_DONE);
    EXPECT(board_put(f->b, "node/é", ""), STREAM_DONE);
    expect_notes(f, "Node=it's \"here\" node/a=2 node/b=1 node/é= "); // by bytes: N before n
    EXPECT(board_put(f->a, "node/a", "3"), STREAM_DONE);
    EXPECT(board_remove(f->a, "Node"), STREAM_DONE);
    EXPECT(board_remove(f->b, "Node"), STREAM_DONE);
    expect_notes(f, "node/a=3 node/b=1 node/é= ");
}

static void put_new_writes_once(void **state) {
    struct fixture *f = *state;
    EXPECT(board_put_new(f->a, "secret", "first"), STREAM_DONE);
    EXPECT(board_put_new(f->b, "secret", "second"), STREAM_DONE);
    expect_notes(f, "secret=first ");
    EXPECT(board_put(f->b, "secret", "third"), STREAM_DONE);
    EXPECT(board_put_new(f->a, "secret", "fourth"), STREAM_DONE);
    expect_notes(f, "secret=third ");
    EXPECT(board_remove(f->a, "secret"), STREAM_DONE);
    EXPECT(board_put_new(f->a, "secret", "fifth"), STREAM_DONE);
    expect_notes(f, "secret=fifth ");
}

// A node is alive as long as its note is young.
static void a_put_begins_the_age_anew(void **state) {
    struct fixture *f = *state;
    enum { HOUR_MS = 3600000 };
    EXPECT(board_put(f->a, "node", "x"), STREAM_DONE);
    assert_true(notes_of(f->b).age_ms < HOUR_MS);
    time_pass(f, HOUR_MS);
    assert_true(notes_of(f->b).age_ms >= HOUR_MS);
    EXPECT(board_put_new(f->a, "node", "x"), STREAM_DONE);
    assert_true(notes_of(f->b).age_ms >= HOUR_MS);
    EXPECT(board_put(f->a, "node", "x"), STREAM_DONE);
    assert_true(notes_of(f->b).age_ms < HOUR_MS);
}

static int note_refuse(void *arg, const struct board_note *n) {
    (void)n;
    *(int *)arg += 1;
    return error_set(MR_ENOMEM, "no more");
}

static void a_callback_ends_the_reading(void **state) {
    struct fixture *f = *state;
    int seen = 0;
    EXPECT(board_put(f->a, "a", ""), STREAM_DONE);
    EXPECT(board_put(f->a, "b", ""), STREAM_DONE);
    EXPECT(board_notes(f->a, note_refuse, &seen), MR_ENOMEM);
    assert_int_equal(seen, 1);
    assert_int_equal(notes_of(f->a).count, 2);
}

static void keys_and_values_are_bounded(void **state) {
    struct fixture *f = *state;
    char key[BOARD_KEY_MOST + 2], value[BOARD_VALUE_MOST + 2];
    memset(key, 'k', sizeof key);
    memset(value, 'v', sizeof value);
    key[BOARD_KEY_MOST + 1] = value[BOARD_VALUE_MOST + 1] = '\0';
    EXPECT(board_put(f->a, key, "x"), MR_EINVAL);
    expect_words("1 to 128 bytes");
    EXPECT(board_put(f->a, "", "x"), MR_EINVAL);
    EXPECT(board_put_new(f->a, "x", value), MR_EINVAL);
    expect_words("at most 1024 bytes");
    EXPECT(board_put(f->a, "\xff", "x"), MR_EINVAL);
    EXPECT(board_put(f->a, "x", "\xc3"), MR_EINVAL);
    EXPECT(board_remove(f->a, key), MR_EINVAL);
    assert_int_equal(notes_of(f->a).count, 0);
    key[BOARD_KEY_MOST] = value[BOARD_VALUE_MOST] = '\0';
    EXPECT(board_put(f->a, key, value), STREAM_DONE);
    assert_int_equal(notes_of(f->b).count, 1);
    EXPECT(board_remove(f->b, key), STREAM_DONE);
    assert_int_equal(notes_of(f->a).count, 0);
}

static void the_number_of_notes_is_bounded(void **state) {
    struct fixture *f = *state;
    notes_fill(f, BOARD_NOTES_MOST - 1);
    EXPECT(board_put_new(f->a, "last", ""), STREAM_DONE);
    assert_int_equal(notes_of(f->b).count, BOARD_NOTES_MOST);
    EXPECT(board_put(f->a, "more", ""), MR_EFULL);
    EXPECT(board_put_new(f->a, "more", ""), MR_EFULL);
    EXPECT(board_put(f->a, "last", "x"), STREAM_DONE);
    EXPECT(board_put_new(f->a, "last", "y"), STREAM_DONE);
    assert_int_equal(notes_of(f->b).count, BOARD_NOTES_MOST);
    EXPECT(board_remove(f->b, "n0000"), STREAM_DONE);
    EXPECT(board_put(f->a, "more", ""), STREAM_DONE);
    assert_int_equal(notes_of(f->b).count, BOARD_NOTES_MOST);
}

static void a_look_shows_all_shards(void **state) {
    struct fixture *f = *state;
    struct stream_state now[SHARDS + 1];
    shard_claim(f, 1, "one:7411");
    shard_claim(f, 3, "two:7411");
    time_pass(f, 60000);
    shard_claim(f, 3, "three:7411");
    EXPECT(board_look(f->b, SHARDS, now), STREAM_DONE);
    static const char *const owners[SHARDS] = { "", "one:7411", "", "three:7411", "" };
    static const uint64_t epochs[SHARDS] = { 0, 1, 0, 2, 0 };
    for (int i = 0; i < SHARDS; i++) {
        assert_string_equal(now[i].owner, owners[i]);
        assert_int_equal(now[i].epoch, epochs[i]);
    }
    assert_true(now[1].silent_ms >= 60000);
    assert_true(now[3].silent_ms < 60000);
    EXPECT(board_look(f->b, 2, now), STREAM_DONE);
    EXPECT(board_look(f->b, SHARDS + 1, now), MR_EINVAL);
    expect_words("has 5 shards, not 6");
}

#ifdef STREAM_POSTGRES
// F30: an owner is silent, and a note is old, by the clock of the node that looks. The clock of the
// database jumps by an hour, to and fro: nothing becomes older by that, and nothing stays young.
static void F30_ages_do_not_follow_jumps_of_the_databases_clock(void **state) {
    struct fixture *f = *state;
    enum { HOUR_MS = 3600000 };
    static const long jumps_ms[] = { HOUR_MS, -2L * HOUR_MS };
    struct stream_state now[SHARDS];
    shard_claim(f, 1, "one:7411");
    EXPECT(board_put(f->a, "node", "x"), STREAM_DONE);
    for (int i = 0; i < 2; i++) {
        EXPECT(board_look(f->b, SHARDS, now), STREAM_DONE);
        assert_true(now[1].silent_ms < HOUR_MS / 2);
        assert_true(notes_of(f->b).age_ms < HOUR_MS / 2);
        clock_jump(jumps_ms[i]);
    }
    uint64_t silent_ms = now[1].silent_ms, age_ms = notes_of(f->b).age_ms;
    do { // in the future of the database, and yet they become older
        EXPECT(board_look(f->b, SHARDS, now), STREAM_DONE);
    } while (now[1].silent_ms < silent_ms + 10 || notes_of(f->b).age_ms < age_ms + 10);
}
#endif

static void an_outage_ends(void **state) {
    struct fixture *f = *state;
    struct stream_state now[SHARDS];
    struct listing l = { 0 };
    EXPECT(board_put(f->b, "a", "1"), STREAM_DONE);
    for (int i = 0; i < 2; i++) {
        outage_set(f, true);
        int result = board_put(f->b, "a", "2");
        assert_true(result == STREAM_UNAVAILABLE || result == STREAM_IN_DOUBT);
        EXPECT(board_put(f->b, "b", "1"), STREAM_UNAVAILABLE);
        EXPECT(board_put_new(f->b, "c", "1"), STREAM_UNAVAILABLE);
        EXPECT(board_remove(f->b, "a"), STREAM_UNAVAILABLE);
        EXPECT(board_notes(f->b, note_list, &l), STREAM_UNAVAILABLE);
        EXPECT(board_look(f->b, SHARDS, now), STREAM_UNAVAILABLE);
        assert_int_equal(notes_of(f->a).count, 1);
        outage_set(f, false);
        EXPECT(board_put(f->b, "a", "3"), STREAM_DONE);
        expect_notes(f, "a=3 ");
    }
}

static void an_interrupt_ends_all_calls(void **state) {
    struct fixture *f = *state;
    EXPECT(board_put(f->b, "a", "1"), STREAM_DONE);
    board_interrupt(f->b);
    int result = board_put(f->b, "a", "2");
    assert_true(result == STREAM_UNAVAILABLE || result == STREAM_IN_DOUBT);
    EXPECT(board_put(f->b, "a", "3"), STREAM_UNAVAILABLE);
    expect_words("interrupted");
    assert_int_equal(notes_of(f->a).count, 1);
}

// Nodes that start at the same moment agree on one secret.
enum { NODES = 6, ROUNDS = 25 };
struct race {
    pthread_barrier_t start, written;
    struct board *boards[NODES];
    char seen[NODES][4096];
};
struct racer {
    struct race *race;
    int number;
};

static void *race_run(void *arg) {
    const struct racer *r = arg;
    struct race *race = r->race;
    char value[16];
    snprintf(value, sizeof value, "%d", r->number);
    for (int round = 0; round < ROUNDS; round++) {
        char key[16];
        snprintf(key, sizeof key, "s%02d", round);
        pthread_barrier_wait(&race->start);
        EXPECT(board_put_new(race->boards[r->number], key, value), STREAM_DONE);
        struct listing l = notes_of(race->boards[r->number]);
        memcpy(race->seen[r->number], l.text, sizeof l.text);
        pthread_barrier_wait(&race->written);
    }
    return NULL;
}

static void a_race_of_put_new_has_one_winner(void **state) {
    struct fixture *f = *state;
    struct race *race = calloc(1, sizeof *race);
    pthread_t threads[NODES];
    struct racer racers[NODES];
    pthread_barrier_init(&race->start, NULL, NODES + 1);
    pthread_barrier_init(&race->written, NULL, NODES + 1);
    for (int i = 0; i < NODES; i++) {
#ifdef STREAM_POSTGRES
        race->boards[i] = board_at(postgres_of_test());
#else
        race->boards[i] = sim_board_open(f->sim);
#endif
        racers[i] = (struct racer){ race, i };
        pthread_create(&threads[i], NULL, race_run, &racers[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&race->start);
        pthread_barrier_wait(&race->written);
        for (int i = 1; i < NODES; i++) // what each has read after its own call
            assert_string_equal(race->seen[i], race->seen[0]);
    }
    assert_int_equal(notes_of(f->a).count, ROUNDS);
    for (int i = 0; i < NODES; i++) {
        pthread_join(threads[i], NULL);
        board_close(race->boards[i]);
    }
    pthread_barrier_destroy(&race->start);
    pthread_barrier_destroy(&race->written);
    free(race);
}

#ifdef STREAM_POSTGRES
// --- PostgreSQL -----------------------------------------------------------------------------

static void make_version_1(void) {
    SQL("DROP TABLE millrace_board.note");
    SQL("UPDATE millrace_board.cluster SET version = 1");
}

static void an_older_schema_is_named_and_upgraded(void **state) {
    struct fixture *f = *state;
    struct stream_postgres_options o = options_now();
    struct stream_postgres_cluster before, after;
    enum store_made made = STORE_THERE;
    EXPECT(stream_postgres_look(&o, &before), STREAM_DONE);
    shard_claim(f, 2, "one:7411");
    make_version_1();
    EXPECT(board_put(f->a, "a", "1"), MR_EINVAL);
    expect_words("have version 1, this program uses version 2; upgrade them with: millrace store "
                 "init postgres://… --cluster board --shards 5");
    EXPECT(stream_postgres_look(&o, &after), MR_EINVAL);
    expect_words("millrace store init");
    EXPECT(stream_postgres_init(&o, SHARDS + 1, &made), MR_EINVAL);
    expect_words("made with 5 shards");
    EXPECT(stream_postgres_init(&o, SHARDS, &made), STREAM_DONE);
    assert_int_equal(made, STORE_UPGRADED);
    EXPECT(stream_postgres_init(&o, SHARDS, &made), STREAM_DONE);
    assert_int_equal(made, STORE_THERE);
    EXPECT(stream_postgres_look(&o, &after), STREAM_DONE);
    assert_memory_equal(before.secret, after.secret, CLUSTER_SECRET);
    EXPECT(board_put(f->a, "a", "1"), STREAM_DONE);
    struct stream_state now[SHARDS];
    EXPECT(board_look(f->a, SHARDS, now), STREAM_DONE);
    assert_string_equal(now[2].owner, "one:7411");
}

static void *upgrade_run(void *arg) {
    struct stream_postgres_options o = options_now();
    EXPECT(stream_postgres_init(&o, SHARDS, arg), STREAM_DONE);
    return NULL;
}

static void two_programs_upgrade_in_turn(void **state) {
    (void)state;
    enum store_made made[4];
    pthread_t threads[4];
    make_version_1();
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, upgrade_run, &made[i]);
    int upgraded = 0;
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_not_equal(made[i], STORE_MADE);
        upgraded += made[i] == STORE_UPGRADED;
    }
    assert_int_equal(upgraded, 1);
}

static void a_newer_schema_is_refused(void **state) {
    struct fixture *f = *state;
    SQL("UPDATE millrace_board.cluster SET version = 3");
    EXPECT(board_put(f->a, "a", "1"), MR_EINVAL);
    expect_words("have version 3, this program uses version 2; use a program of that version");
}

static void what_is_missing_is_named(void **state) {
    struct fixture *f = *state;
    char guest[256];
    SQL("DROP ROLE IF EXISTS guest");
    SQL("CREATE ROLE guest LOGIN");
    snprintf(guest, sizeof guest, "%s user=guest", postgres_of_test());
    struct board *b = board_at(guest);
    EXPECT(board_put(b, "a", "1"), MR_EPERM);
    board_close(b);
    SQL("DELETE FROM millrace_board.shard WHERE shard = 1");
    struct stream_state now[SHARDS];
    EXPECT(board_look(f->a, SHARDS, now), MR_EINVAL);
    expect_words("has lost the row of shard 1");
    SQL("DROP SCHEMA millrace_board CASCADE");
    EXPECT(board_put(f->b, "a", "1"), MR_EINVAL);
    expect_words("millrace store init");
    struct board *none = NULL;
    EXPECT(board_open(&(struct store_url){ STORE_IN_POSTGRES, "postgres://[", "board" }, &none),
           MR_EINVAL);
    EXPECT(board_open(&(struct store_url){ STORE_IN_POSTGRES, postgres_of_test(), "B" }, &none),
           MR_EINVAL);
    assert_null(none);
}

static void a_lost_reply_is_in_doubt(void **state) {
    struct fixture *f = *state;
    EXPECT(board_put(f->b, "a", "1"), STREAM_DONE);
    pg_proxy_set(&proxy, PROXY_LOSE_REPLIES);
    EXPECT(board_put(f->b, "a", "2"), STREAM_IN_DOUBT);
    pg_proxy_set(&proxy, PROXY_PASS);
    EXPECT(board_put(f->b, "a", "2"), STREAM_DONE);
    expect_notes(f, "a=2 ");
}

static void *put_run(void *arg) {
    EXPECT(board_put(arg, "a", "2"), STREAM_IN_DOUBT);
    return NULL;
}

static void an_interrupt_ends_the_wait_for_the_standby(void **state) {
    struct fixture *f = *state;
    EXPECT(board_put(f->a, "a", "1"), STREAM_DONE);
    long receiver = sql_run(standby_of_test(), "SELECT pid FROM pg_stat_wal_receiver");
    assert_true(receiver > 1);
    assert_int_equal(kill((pid_t)receiver, SIGSTOP), 0);
    pthread_t thread;
    pthread_create(&thread, NULL, put_run, f->a);
    SQL_AWAIT("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND "
              "application_name = 'millrace board board'");
    board_interrupt(f->a);
    pthread_join(thread, NULL);
    assert_int_equal(kill((pid_t)receiver, SIGCONT), 0);
}

static int group_setup(void **state) {
    (void)state;
    char target[256];
    snprintf(target, sizeof target, "%s/.s.PGSQL.5432", getenv("MILLRACE_POSTGRES"));
    pg_proxy_start(&proxy, target);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    pg_proxy_stop(&proxy);
    return 0;
}
#else
static void an_outage_of_the_store_is_one_for_all(void **state) {
    struct fixture *f = *state;
    sim_board_outage(f->sim, true);
    EXPECT(board_put(f->a, "a", "1"), STREAM_UNAVAILABLE);
    EXPECT(board_put(f->b, "a", "1"), STREAM_UNAVAILABLE);
    EXPECT(sim_board_claim(f->b, 0, 0, "x"), STREAM_UNAVAILABLE);
    sim_board_outage(f->sim, false);
    expect_notes(f, "");
}

static void claims_of_the_simulation_are_fenced(void **state) {
    struct fixture *f = *state;
    struct stream_state now[SHARDS];
    EXPECT(sim_board_claim(f->a, 0, 0, "x"), STREAM_DONE);
    EXPECT(sim_board_claim(f->b, 0, 0, "y"), STREAM_FENCED);
    EXPECT(sim_board_beat(f->a, 0, 1), STREAM_DONE);
    sim_board_advance(f->sim, 700);
    EXPECT(board_look(f->b, SHARDS, now), STREAM_DONE);
    assert_int_equal(now[0].silent_ms, 700);
    EXPECT(sim_board_claim(f->b, 0, 1, "y"), STREAM_DONE);
    EXPECT(sim_board_beat(f->a, 0, 1), STREAM_FENCED);
    EXPECT(sim_board_release(f->a, 0, 1), STREAM_FENCED);
    EXPECT(sim_board_release(f->b, 0, 2), STREAM_DONE);
    EXPECT(board_look(f->b, SHARDS, now), STREAM_DONE);
    assert_string_equal(now[0].owner, "");
    assert_int_equal(now[0].epoch, 2);
    assert_int_equal(sim_board_now_ms(f->sim), 700);
}

static int group_setup(void **state) {
    (void)state;
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    return 0;
}
#endif

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(all_boards_read_the_notes_of_all),
        CASE(put_new_writes_once),
        CASE(a_put_begins_the_age_anew),
        CASE(a_callback_ends_the_reading),
        CASE(keys_and_values_are_bounded),
        CASE(the_number_of_notes_is_bounded),
        CASE(a_look_shows_all_shards),
        CASE(an_outage_ends),
        CASE(an_interrupt_ends_all_calls),
        CASE(a_race_of_put_new_has_one_winner),
#ifdef STREAM_POSTGRES
        CASE(F30_ages_do_not_follow_jumps_of_the_databases_clock),
        CASE(an_older_schema_is_named_and_upgraded),
        CASE(two_programs_upgrade_in_turn),
        CASE(a_newer_schema_is_refused),
        CASE(what_is_missing_is_named),
        CASE(a_lost_reply_is_in_doubt),
        CASE(an_interrupt_ends_the_wait_for_the_standby),
#else
        CASE(an_outage_of_the_store_is_one_for_all),
        CASE(claims_of_the_simulation_are_fenced),
#endif
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
