// Boards in NATS (log/board_nats.h), beside a server of the test's own.
#include "support/nats_support.h"

#include "log/board_nats.h"
#include "log/replicated.h"

#include <nats/nats.h>
#include <pthread.h>

enum { SHARDS = 3, NODES = 4, ROUNDS = 20 };

static struct nats_servers servers;
static char url[256];
static int clusters;

struct fixture {
    char cluster[24];
    struct board *a, *b; // of two nodes
};

static struct stream_nats_options options_of(const struct fixture *f) {
    return (struct stream_nats_options){ .url = url, .cluster = f->cluster, .owner = "10.0.0.1:1" };
}

static void expect_result(int result, int expected, const char *what) {
    if (result != expected)
        fail_msg("%s: %d instead of %d: %s", what, result, expected, error_text());
}
#define EXPECT(call, expected) expect_result((call), (expected), #call)

static struct board *board_of(const struct fixture *f) {
    struct stream_nats_options o = options_of(f);
    struct board *b = NULL;
    EXPECT(board_nats_open(&o, &b), 0);
    return b;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    snprintf(f->cluster, sizeof f->cluster, "board%d", ++clusters);
    struct stream_nats_options o = options_of(f);
    nats_cluster_make(&o, SHARDS);
    f->a = board_of(f);
    f->b = board_of(f);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    board_close(f->a);
    board_close(f->b);
    free(f);
    return 0;
}

struct listing {
    char text[4096];
    size_t size;
    uint64_t ages[64], count;
};

static int note_list(void *arg, const struct board_note *n) {
    struct listing *l = arg;
    int size = snprintf(l->text + l->size, sizeof l->text - l->size, "%s=%.20s ", n->key, n->value);
    l->size += (size_t)size < sizeof l->text - l->size ? (size_t)size : 0;
    if (l->count < sizeof l->ages / sizeof *l->ages)
        l->ages[l->count] = n->age_ms;
    l->count++;
    return 0;
}

static struct listing notes_of(struct board *b) {
    struct listing l = { 0 };
    EXPECT(board_notes(b, note_list, &l), STREAM_DONE);
    return l;
}

static void all_boards_read_the_notes_of_all(void **state) {
    struct fixture *f = *state;
    assert_int_equal(notes_of(f->a).count, 0);
    EXPECT(board_put(f->a, "node b", "1"), STREAM_DONE);
    EXPECT(board_put(f->b, "node a", "2"), STREAM_DONE);
    EXPECT(board_put(f->a, "node b", "3"), STREAM_DONE);
    EXPECT(board_put_new(f->b, "node b", "4"), STREAM_DONE);
    EXPECT(board_put(f->b, "x", ""), STREAM_DONE);
    assert_string_equal(notes_of(f->a).text, "node a=2 node b=3 x= ");
    assert_string_equal(notes_of(f->b).text, "node a=2 node b=3 x= ");
    EXPECT(board_remove(f->a, "node b"), STREAM_DONE);
    EXPECT(board_remove(f->a, "nothing"), STREAM_DONE);
    assert_string_equal(notes_of(f->b).text, "node a=2 x= ");
}

// A note that is not renewed is older than those that were put after it. All ages are those of one
// message, so that they differ by what was between the puts, however long a look takes.
static void a_put_begins_the_age_anew(void **state) {
    struct fixture *f = *state;
    enum { FIRST, OLD, YOUNG };
    struct listing l;
    EXPECT(board_put(f->a, "first", ""), STREAM_DONE);
    EXPECT(board_put(f->a, "old", ""), STREAM_DONE);
    do {
        EXPECT(board_put(f->b, "young", ""), STREAM_DONE);
        l = notes_of(f->a);
    } while (l.ages[OLD] < 50);
    EXPECT(board_put(f->b, "young", ""), STREAM_DONE);
    l = notes_of(f->a);
    assert_true(l.ages[YOUNG] < l.ages[OLD]);
    EXPECT(board_put(f->a, "old", ""), STREAM_DONE);
    l = notes_of(f->a);
    assert_true(l.ages[OLD] < l.ages[FIRST]);
}

// The last note does not fit any more; those that are there can still be renewed.
static void notes_that_do_not_fit_are_refused(void **state) {
    struct fixture *f = *state;
    char key[16], value[BOARD_VALUE_MOST + 1];
    memset(value, 'v', sizeof value);
    value[BOARD_VALUE_MOST] = 0;
    int err = STREAM_DONE, count = 0;
    while (err == STREAM_DONE && count < 100) {
        snprintf(key, sizeof key, "n%04d", count);
        err = board_put(f->a, key, value);
        count += err == STREAM_DONE;
    }
    expect_result(err, MR_EFULL, "the last put");
    assert_int_equal(notes_of(f->b).count, count);
    EXPECT(board_put(f->a, "n0000", value), STREAM_DONE);
    EXPECT(board_remove(f->a, "n0000"), STREAM_DONE);
    EXPECT(board_put(f->b, "another", value), STREAM_DONE);
}

static void a_look_shows_all_shards(void **state) {
    struct fixture *f = *state;
    struct stream_nats_options o = options_of(f);
    struct stream_state now[SHARDS], claimed;
    struct stream_store *store = NULL;
    struct stream *stream = NULL;
    EXPECT(board_look(f->a, SHARDS, now), STREAM_DONE);
    assert_int_equal(now[1].epoch, 0);
    EXPECT(stream_nats_create(&o, &store), 0);
    EXPECT(store->open(store, 1, &stream), 0);
    EXPECT(stream->impl->claim(stream, 0, &claimed), STREAM_DONE);
    EXPECT(board_look(f->a, SHARDS, now), STREAM_DONE);
    assert_int_equal(now[1].epoch, 1);
    assert_string_equal(now[1].owner, "10.0.0.1:1");
    assert_string_equal(now[0].owner, "");
    do
        EXPECT(board_look(f->a, SHARDS, now), STREAM_DONE);
    while (now[1].silent_ms < 20); // the owner does not write
    EXPECT(stream->impl->beat(stream, 1), STREAM_DONE);
    uint64_t silent_ms = now[1].silent_ms;
    EXPECT(board_look(f->a, SHARDS, now), STREAM_DONE);
    assert_true(now[1].silent_ms < silent_ms);
    EXPECT(board_look(f->a, SHARDS + 1, now), MR_ECORRUPT); // the stream of a shard is not there
    stream->impl->close(stream);
    stream_store_close(store);
}

struct racer {
    struct board *board;
    pthread_barrier_t *start;
    char value[8];
};

static void *race_run(void *arg) {
    struct racer *r = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%02d", i);
        pthread_barrier_wait(r->start);
        EXPECT(board_put_new(r->board, key, r->value), STREAM_DONE);
    }
    return NULL;
}

static void a_race_of_put_new_has_one_winner(void **state) {
    struct fixture *f = *state;
    pthread_t threads[NODES];
    struct racer racers[NODES];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, NODES);
    for (int i = 0; i < NODES; i++) {
        racers[i] = (struct racer){ .board = board_of(f), .start = &start };
        snprintf(racers[i].value, sizeof racers[i].value, "%d", i);
        pthread_create(&threads[i], NULL, race_run, &racers[i]);
    }
    for (int i = 0; i < NODES; i++) {
        pthread_join(threads[i], NULL);
        board_close(racers[i].board);
    }
    pthread_barrier_destroy(&start);
    struct listing a = notes_of(f->a);
    assert_int_equal(a.count, ROUNDS);
    assert_string_equal(notes_of(f->b).text, a.text);
}

static void an_outage_ends(void **state) {
    struct fixture *f = *state;
    EXPECT(board_put(f->a, "k", "1"), STREAM_DONE);
    nats_node_stop(&servers, 0, SIGKILL);
    EXPECT(board_notes(f->b, note_list, &(struct listing){ 0 }), STREAM_UNAVAILABLE);
    nats_node_start(&servers, 0);
    while (board_put(f->b, "k", "2") != STREAM_DONE)
        turn_wait();
    while (strcmp(notes_of(f->b).text, "k=2 ") != 0)
        turn_wait();
}

static int group_setup(void **state) {
    (void)state;
    nats_servers_start(&servers, 1, "}\nmax_payload: 65536\n#"); // outside of JetStream's settings
    nats_servers_url(&servers, url);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    nats_servers_stop(&servers);
    return 0;
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

// H6: a message that a later version has written is refused, and is not replaced.
static void H6_notes_of_another_version_are_refused_and_kept(void **state) {
    struct fixture *f = *state;
    EXPECT(board_put(f->a, "node a", "x"), STREAM_DONE);
    natsConnection *connection = NULL;
    char subject[64];
    const uint8_t later[] = { 0x02, 0x00, 0x62, 0x6d, 'n', 'e', 'w' };
    snprintf(subject, sizeof subject, "millrace.%s.notes", f->cluster);
    assert_int_equal(natsConnection_ConnectTo(&connection, url), NATS_OK);
    natsMsg *reply = NULL;
    assert_int_equal(
        natsConnection_Request(&reply, connection, subject, later, sizeof later, 10000), NATS_OK);
    natsMsg_Destroy(reply);
    natsConnection_Destroy(connection);
    struct listing all = { 0 };
    EXPECT(board_put(f->a, "node a", "y"), MR_EINVAL);
    assert_non_null(strstr(error_text(), "another version"));
    EXPECT(board_notes(f->b, note_list, &all), MR_EINVAL);
    EXPECT(board_remove(f->b, "node a"), MR_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(all_boards_read_the_notes_of_all),
        CASE(a_put_begins_the_age_anew),
        CASE(notes_that_do_not_fit_are_refused),
        CASE(a_look_shows_all_shards),
        CASE(a_race_of_put_new_has_one_winner),
        CASE(an_outage_ends),
        CASE(H6_notes_of_another_version_are_refused_and_kept),
    };
    if (!nats_is_installed())
        return 0;
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
