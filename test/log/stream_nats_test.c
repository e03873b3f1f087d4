// The stream in NATS JetStream, beside a real server.
#include "support/nats_support.h"
#include "support/stream_suite.h"

#include "base/clock.h"
#include "log/board_nats.h"
#include "log/nats_index.h"
#include "log/nats_record.h"
#include "log/nats_url.h"

#include <nats/nats.h>

enum { SHARDS = 2 };

static struct nats_servers servers;
static char server_url[256], cluster[32];

static struct stream_nats_options options_for(const char *url, const char *name) {
    return (struct stream_nats_options){ .url = url, .cluster = name, .owner = "test" };
}

static struct stream_store *store_make(const char *url, uint32_t call_ms) {
    struct stream_nats_options o = options_for(url, cluster);
    o.call_ms = call_ms;
    struct stream_store *store = NULL;
    if (stream_nats_create(&o, &store) < 0)
        fail_msg("%s", error_text());
    return store;
}

// Each test has a cluster of its own.
static int setup(void **state) {
    static int count;
    struct fixture *f = calloc(1, sizeof *f);
    snprintf(cluster, sizeof cluster, "story%d", count++);
    struct stream_nats_options o = options_for(server_url, cluster);
    enum store_made made = STORE_THERE;
    EXPECT(stream_nats_init(&o, SHARDS, &made), STREAM_DONE);
    assert_int_equal(made, STORE_MADE);
    f->store = store_make(server_url, 0);
    f->a = stream_open(f->store, 0);
    f->b = stream_open(f->store, 0);
    f->state = claim_any(f->a);
    *state = f;
    return 0;
}

// --- an administrator ------------------------------------------------------------------------

struct admin {
    natsConnection *connection;
    jsCtx *js;
};

static struct admin admin_open(void) {
    struct admin a = { 0 };
    assert_int_equal(natsConnection_ConnectTo(&a.connection, server_url), NATS_OK);
    assert_int_equal(natsConnection_JetStream(&a.js, a.connection, NULL), NATS_OK);
    return a;
}

static void admin_close(struct admin *a) {
    jsCtx_Destroy(a->js);
    natsConnection_Destroy(a->connection);
}

static const char *stream_name(void) {
    static char name[64];
    snprintf(name, sizeof name, "millrace-%s-0", cluster);
    return name;
}

// Changes the configuration of the stream of shard 0.
static void stream_edit(void (*change)(jsStreamConfig *)) {
    struct admin a = admin_open();
    jsStreamInfo *info = NULL;
    assert_int_equal(js_GetStreamInfo(&info, a.js, stream_name(), NULL, NULL), NATS_OK);
    change(info->Config);
    if (js_UpdateStream(NULL, a.js, info->Config, NULL, NULL) != NATS_OK)
        fail_msg("%s", nats_GetLastError(NULL));
    jsStreamInfo_Destroy(info);
    admin_close(&a);
}

static uint64_t stream_messages(void) {
    struct admin a = admin_open();
    jsStreamInfo *info = NULL;
    assert_int_equal(js_GetStreamInfo(&info, a.js, stream_name(), NULL, NULL), NATS_OK);
    uint64_t count = info->State.Msgs;
    jsStreamInfo_Destroy(info);
    admin_close(&a);
    return count;
}

// --- setting up -----------------------------------------------------------------------------

static void init_twice_changes_nothing(void **state) {
    (void)state;
    struct stream_nats_options o = options_for(server_url, cluster);
    struct stream_nats_cluster before, after;
    enum store_made made = STORE_MADE;
    EXPECT(stream_nats_look(&o, &before), STREAM_DONE);
    EXPECT(stream_nats_init(&o, SHARDS, &made), STREAM_DONE);
    assert_int_equal(made, STORE_THERE);
    EXPECT(stream_nats_look(&o, &after), STREAM_DONE);
    assert_int_equal(after.shards, SHARDS);
    assert_int_equal(after.replicas, 1);
    assert_memory_equal(before.secret, after.secret, NATS_SECRET);
}

static void expect_words(const char *words) {
    if (!strstr(error_text(), words))
        fail_msg("'%s' is not in '%s'", words, error_text());
}

static void init_refuses_what_is_there_otherwise(void **state) {
    (void)state;
    struct stream_nats_options o = options_for(server_url, cluster);
    char three[300];
    enum store_made made;
    EXPECT(stream_nats_init(&o, SHARDS + 1, &made), MR_EINVAL);
    expect_words("made with 2 shards");
    EXPECT(stream_nats_init(&o, 0, &made), MR_EINVAL);
    snprintf(three, sizeof three, "%s?replicas=3", server_url);
    o = options_for(three, cluster);
    EXPECT(stream_nats_init(&o, SHARDS, &made), MR_EINVAL);
    expect_words("made with replicas 1");
    o.cluster = "other";
    EXPECT(stream_nats_init(&o, SHARDS, &made), MR_EINVAL);
    expect_words("replicas=1"); // a single server has no replicas
}

static void expect_url(const char *url, int expected) {
    struct nats_url read;
    EXPECT(nats_url_read(url, &read), expected);
    if (expected < 0)
        assert_null(strstr(error_text(), "secret"));
}

static void urls_are_read(void **state) {
    (void)state;
    struct nats_url u;
    EXPECT(nats_url_read("nats://ann:s%40cret@a,b:42,[::1]:7,[::2]/?replicas=3&tls&ca=/x%20y", &u),
           0);
    assert_int_equal(u.count, 4);
    assert_string_equal(u.servers[0], "nats://a:4222");
    assert_string_equal(u.servers[1], "nats://b:42");
    assert_string_equal(u.servers[2], "nats://[::1]:7");
    assert_string_equal(u.servers[3], "nats://[::2]:4222");
    assert_string_equal(u.user, "ann");
    assert_string_equal(u.password, "s@cret");
    assert_string_equal(u.ca, "/x y");
    assert_int_equal(u.replicas, 3);
    assert_true(u.tls);
    expect_url("nats://token@a", 0);
    static const char *const wrong[] = {
        "nats://",      "nats://a,,b",           "nats://:42",
        "nats://a/b",   "nats://a:secret@b,c@d", "nats://a?replicas=0",
        "nats://a?x=y", "nats://a?replicas=31",  "nats://a?cert=x",
        "nats://a?ca=", "nats://secret%zz@a",    "nats://@a",
        "postgres://a", "nats://a?ca=%00",       "nats://x:%@secret"
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_url(wrong[i], MR_EINVAL);
    char list[200] = "nats://a"; // 17 servers
    for (int i = 0; i < 16; i++)
        strncat(list, ",a", sizeof list - strlen(list) - 1);
    expect_url(list, MR_EINVAL);
}

static void names_are_checked(void **state) {
    (void)state;
    static const char *const names[] = { "", "Story", "a-b", "a.b", "a>", NULL };
    struct stream_store *store;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stream_nats_options o = options_for(server_url, names[i]);
        EXPECT(stream_nats_create(&o, &store), MR_EINVAL);
    }
}

static void expect_look(const char *url, const char *name, uint32_t shard, int expected,
                        const char *words) {
    struct stream_nats_options o = options_for(url, name);
    struct stream_store *store;
    o.connect_ms = 500;
    EXPECT(stream_nats_create(&o, &store), 0);
    struct stream *s = stream_open(store, shard);
    struct stream_state now;
    EXPECT(s->impl->look(s, &now), expected);
    expect_words(words);
    s->impl->close(s);
    store->close(store);
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    uint16_t port = 0;
    char nowhere[64];
    int held = loopback_bind(&port); // it does not listen
    snprintf(nowhere, sizeof nowhere, "nats://127.0.0.1:%u", port);
    expect_look(server_url, "other2", 0, MR_EINVAL, "millrace store init");
    expect_look(server_url, cluster, SHARDS, MR_EINVAL, "there is no shard 2");
    expect_look(nowhere, cluster, 0, STREAM_UNAVAILABLE, "NATS at 127.0.0.1:");
    close(held);
}

static void discard_old(jsStreamConfig *c) {
    c->Discard = js_DiscardOld;
}

static void limit_messages(jsStreamConfig *c) {
    c->MaxMsgs = 1000;
}

static void limit_age(jsStreamConfig *c) {
    c->MaxAge = 3600000000000;
}

// H6: what is promised is checked: a stream that was configured in another way is refused.
static void H6_a_stream_of_another_configuration_is_refused(void **state) {
    (void)state;
    static const struct {
        void (*change)(jsStreamConfig *);
        const char *words;
    } edits[] = { { limit_messages, "max_msgs is set" },
                  { limit_age, "max_age is set" },
                  { discard_old, "discard is not new" } };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) { // the later ones are named first
        stream_edit(edits[i].change);
        expect_look(server_url, cluster, 0, MR_EINVAL, edits[i].words);
        expect_words("nats stream edit");
    }
    char three[300];
    snprintf(three, sizeof three, "%s?replicas=3", server_url);
    expect_look(three, cluster, 1, MR_EINVAL, "replicas 1, not 3");
}

// H6: and it is reported.
static void H6_the_promise_is_what_the_servers_do(void **state) {
    (void)state;
    struct stream_promise p;
    struct stream_nats_options o = options_for(server_url, cluster);
    struct board *b;
    EXPECT(board_nats_open(&o, &b), 0);
    EXPECT(board_promise(b, &p), STREAM_DONE);
    board_close(b);
    assert_false(p.replicated);
    assert_non_null(strstr(p.text, "not the loss of its machine"));
    assert_int_equal(p.text[strlen(p.text) - 1], '.');
}

// --- appending and reading ------------------------------------------------------------------

// A store of another process, which knows no positions yet.
static void positions_are_found_without_an_index(void **state) {
    struct fixture *f = *state;
    for (size_t i = 0; i < 20; i++)
        EXPECT(append_next(f->a, &f->state, 1000), STREAM_DONE);
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, 5 * 1032), STREAM_DONE);
    struct stream_store *store = store_make(server_url, 0);
    struct stream *s = stream_open(store, 0);
    struct buffer out = { 0 };
    for (uint64_t i = 20; i-- > 5;) {
        buffer_clear(&out);
        EXPECT(s->impl->get(s, i * 1032 + 7, STREAM_BODIES, 0, 10, &out), 0);
        assert_int_equal(out.size, 10);
        assert_int_equal(out.data[0], (uint8_t)((i * 1032 + 7) * 31 >> 3));
    }
    EXPECT(s->impl->get(s, 4 * 1032, STREAM_BODIES, 0, 10, &out), MR_EGONE);
    struct seen seen = { 0 };
    uint64_t next;
    EXPECT(s->impl->read(s, 9 * 1032, UINT64_MAX, SIZE_MAX, true, batch_see, &seen, &next),
           STREAM_DONE);
    assert_int_equal(seen.first, 9 * 1032);
    assert_int_equal(seen.count, 11);
    buffer_finish(&out);
    s->impl->close(s);
    store->close(store);
}

// The server takes messages of 1 MiB.
static void batches_above_max_payload_are_split(void **state) {
    struct fixture *f = *state;
    enum { LARGE = 16 << 20 };
    EXPECT(append_next(f->a, &f->state, LARGE), STREAM_DONE);
    EXPECT(append_next(f->a, &f->state, (1 << 20) - 600), STREAM_DONE);
    EXPECT(append_next(f->a, &f->state, (1 << 20) - 500), STREAM_DONE);
    EXPECT(append_next(f->a, &f->state, 1), STREAM_DONE);
    assert_in_range(stream_messages(), 17 + 3, 17 + 7);
    struct seen seen = read_all(f->b, true);
    assert_int_equal(seen.count, 4);
    assert_int_equal(seen.bodies, LARGE + (2 << 20) - 1099);
    struct buffer out = { 0 };
    EXPECT(f->b->impl->get(f->b, 1000, STREAM_BODIES, LARGE - 1001, 10, &out), 0);
    assert_int_equal(out.size, 1);
    assert_int_equal(out.data[0], (uint8_t)((uint64_t)(LARGE - 1) * 31 >> 3));
    buffer_clear(&out);
    EXPECT(f->b->impl->get(f->b, 0, STREAM_BODIES, 100, 3 << 20, &out), 0); // over several parts
    assert_int_equal(out.size, 3 << 20);
    for (size_t i = 0; i < out.size; i++)
        assert_int_equal(out.data[i], (uint8_t)((100 + i) * 31 >> 3));
    buffer_finish(&out);
}

// Sends the first parts of a batch of three, as an owner does that ends in between.
static void parts_leave(struct stream_state *state, uint64_t sequence, uint64_t claimer,
                        uint32_t parts) {
    struct admin a = admin_open();
    char subject[64];
    snprintf(subject, sizeof subject, "millrace.%s.0.log", cluster);
    for (uint32_t i = 0; i < parts; i++) {
        struct nats_record r = { .kind = NATS_PART,
                                 .epoch = state->epoch,
                                 .previous = sequence + i,
                                 .head = state->head,
                                 .tail = state->tail,
                                 .claimer = claimer,
                                 .write = 1000 + i,
                                 .at = state->tail,
                                 .end = state->tail + 3000,
                                 .bodies_size = 2400,
                                 .part_size = 1000,
                                 .part = i };
        struct buffer message = { 0 };
        char bytes[1000] = { 0 };
        assert_int_equal(nats_record_put(&r, &message), 0);
        assert_int_equal(buffer_append(&message, bytes, sizeof bytes), 0);
        assert_int_equal(
            js_Publish(NULL, a.js, subject, message.data, (int)message.size, NULL, NULL), NATS_OK);
        buffer_finish(&message);
    }
    admin_close(&a);
}

static void a_part_of_a_batch_is_never_seen(void **state) {
    struct fixture *f = *state;
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    parts_leave(&f->state, 2, 7, 2);
    struct stream_state taken;
    assert_int_equal(read_all(f->b, true).count, 1);
    EXPECT(f->b->impl->look(f->b, &taken), STREAM_DONE);
    assert_int_equal(taken.tail, f->state.tail);
    EXPECT(f->b->impl->claim(f->b, f->state.epoch, &taken), STREAM_DONE);
    assert_int_equal(taken.tail, f->state.tail);
    assert_int_equal(read_all(f->b, true).count, 1);
    for (int i = 0; i < 3; i++)
        EXPECT(append_next(f->b, &taken, 200), STREAM_DONE);
    struct seen seen = read_all(f->b, true);
    assert_int_equal(seen.count, 4);
    assert_int_equal(seen.bodies, 700);
    EXPECT(f->b->impl->trim(f->b, taken.epoch, 132), STREAM_DONE); // the parts go with it
    assert_int_equal(stream_messages(), 4);
    EXPECT(append_next(f->a, &f->state, 100), STREAM_FENCED);
}

// --- owning ---------------------------------------------------------------------------------

// F32: an owner that was paused wakes up and writes.
static void F32_a_stale_owner_is_refused(void **state) {
    expect_stale_owner_refused(*state);
}

static void an_owner_is_named_until_it_releases_the_stream(void **state) {
    struct fixture *f = *state;
    struct stream_state now, later;
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_string_equal(now.owner, "test");
    do { // it grows, by the clock of this stream …
        EXPECT(f->b->impl->look(f->b, &later), STREAM_DONE);
        turn_wait();
    } while (later.silent_ms < now.silent_ms + 300);
    struct stream *other = stream_open(f->store, 0);
    EXPECT(other->impl->look(other, &later), STREAM_DONE); // … and by that of the servers
    assert_true(later.silent_ms >= 250);
    other->impl->close(other);
    EXPECT(f->a->impl->beat(f->a, f->state.epoch), STREAM_DONE);
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.silent_ms, 0); // it was not the last one before
    for (int i = 0; i < 100; i++)
        EXPECT(f->a->impl->beat(f->a, f->state.epoch), STREAM_DONE);
    assert_int_equal(stream_messages(), 1); // each replaces the last
    EXPECT(f->a->impl->release(f->a, f->state.epoch), STREAM_DONE);
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_string_equal(now.owner, "");
    EXPECT(f->b->impl->claim(f->b, now.epoch, &now), STREAM_DONE);
}

// --- trimming -------------------------------------------------------------------------------

static void a_trim_removes_whole_batches(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 150; i++)
        EXPECT(append_next(f->a, &f->state, 68), STREAM_DONE);
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, 125 * 100 + 50), STREAM_DONE);
    struct stream_state now;
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.head, 125 * 100);
    assert_int_equal(stream_messages(), 25 + 1);
    struct seen seen = read_all(f->b, false);
    assert_int_equal(seen.first, 125 * 100);
    assert_int_equal(seen.count, 25);
    struct buffer out = { 0 };
    EXPECT(f->b->impl->get(f->b, 124 * 100, STREAM_BODIES, 0, 10, &out), MR_EGONE);
    EXPECT(f->b->impl->get(f->b, 125 * 100, STREAM_BODIES, 0, 10, &out), 0);
    buffer_finish(&out);
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, UINT64_MAX), STREAM_DONE);
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.head, f->state.tail);
    assert_int_equal(now.tail, f->state.tail);
    EXPECT(append_next(f->a, &f->state, 68), STREAM_DONE);
    assert_int_equal(read_all(f->b, false).count, 1);
}

static void an_index_is_bounded(void **state) {
    (void)state;
    struct nats_index x;
    nats_index_init(&x);
    for (uint64_t i = 1; i <= 3 * (uint64_t)NATS_INDEX_MOST; i++)
        nats_index_add(&x, 10 * i, i);
    assert_true(x.count <= NATS_INDEX_MOST);
    for (uint64_t i = 1; i < 3 * (uint64_t)NATS_INDEX_MOST; i += 999) {
        struct nats_index_pair found = nats_index_find(&x, 10 * i + 5);
        assert_true(found.at == 10 * found.sequence && found.sequence <= i);
        assert_true(found.sequence + 4 > i);
    }
    assert_int_equal(nats_index_find(&x, 9).sequence, 0);
    nats_index_trim(&x, 5000);
    assert_int_equal(nats_index_find(&x, 4000).sequence, 0);
    nats_index_trim(&x, UINT64_MAX);
    assert_int_equal(x.count, 0);
    nats_index_finish(&x);
}

// --- faults ---------------------------------------------------------------------------------

static struct byte_proxy proxy;
static char proxy_url[64];

// F33: the reply of an append is lost. It is read whether it was stored, or a claim finds it.
static void F33_a_lost_reply_is_resolved(void **state) {
    struct fixture *f = *state;
    struct stream_store *store = store_make(proxy_url, 0);
    struct stream *s = stream_open(store, 0);
    struct stream_state mine = claim_any(s);
    for (int i = 0; i < 5; i++) {
        EXPECT(append_next(s, &mine, 100), STREAM_DONE);
        byte_proxy_set(&proxy, PROXY_LOSE_REPLIES);
        uint64_t tail = mine.tail + 232;
        int result = append_next(s, &mine, 200);
        assert_true(result == STREAM_IN_DOUBT || result == STREAM_UNAVAILABLE);
        byte_proxy_set(&proxy, PROXY_PASS);
        bool lost = result == STREAM_UNAVAILABLE; // the connection had gone before it was sent
        do
            result = s->impl->claim(s, mine.epoch, &mine);
        while (result == STREAM_UNAVAILABLE || result == STREAM_IN_DOUBT);
        EXPECT(result, STREAM_DONE);
        assert_int_equal(mine.tail, lost ? tail - 232 : tail);
    }
    struct seen seen = read_all(f->b, true);
    assert_int_equal(seen.end, mine.tail);
    s->impl->close(s);
    store->close(store);
}

// An append that has not arrived is sent again; one that has is found.
static void a_silent_server_leaves_no_doubt_in_the_end(void **state) {
    struct fixture *f = *state;
    struct stream_store *store = store_make(proxy_url, 300);
    struct stream *s = stream_open(store, 0);
    struct stream_state mine = claim_any(s);
    uint64_t appended = 0;
    for (int i = 0; i < 3; i++) {
        byte_proxy_set(&proxy, PROXY_HOLD_REPLIES);
        int result = append_next(s, &mine, 100);
        assert_true(result == STREAM_IN_DOUBT || result == STREAM_UNAVAILABLE);
        byte_proxy_set(&proxy, PROXY_PASS);
        uint64_t before = mine.tail;
        while (s->impl->claim(s, mine.epoch, &mine) != STREAM_DONE)
            ;
        appended += mine.tail > before;
        EXPECT(append_next(s, &mine, 50), STREAM_DONE);
    }
    struct seen seen = read_all(f->b, true);
    assert_int_equal(seen.count, appended + 3);
    assert_int_equal(seen.end, mine.tail);
    s->impl->close(s);
    store->close(store);
}

struct waiting {
    struct stream *stream;
    struct stream_state state;
    int result;
};

static void *append_run(void *arg) {
    struct waiting *w = arg;
    w->result = append_next(w->stream, &w->state, 100);
    return NULL;
}

static void an_interrupt_ends_a_call(void **state) {
    (void)state;
    struct stream_store *store = store_make(proxy_url, 60000);
    struct waiting w = { .stream = stream_open(store, 0) };
    w.state = claim_any(w.stream);
    byte_proxy_set(&proxy, PROXY_HOLD_REPLIES);
    pthread_t thread;
    pthread_create(&thread, NULL, append_run, &w);
    w.stream->impl->interrupt(w.stream);
    pthread_join(thread, NULL);
    assert_true(w.result == STREAM_IN_DOUBT || w.result == STREAM_UNAVAILABLE);
    EXPECT(w.stream->impl->beat(w.stream, w.state.epoch), STREAM_UNAVAILABLE);
    byte_proxy_set(&proxy, PROXY_PASS);
    w.stream->impl->close(w.stream);
    store->close(store);
}

// H5: the server ends and comes back.
static void H5_an_outage_ends(void **state) {
    struct fixture *f = *state;
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    nats_node_stop(&servers, 0, SIGKILL);
    int result = append_next(f->a, &f->state, 100);
    assert_true(result == STREAM_UNAVAILABLE || result == STREAM_IN_DOUBT);
    struct stream_state now;
    EXPECT(f->a->impl->beat(f->a, f->state.epoch), STREAM_UNAVAILABLE);
    EXPECT(f->b->impl->look(f->b, &now), STREAM_UNAVAILABLE);
    nats_node_start(&servers, 0);
    do
        result = f->a->impl->claim(f->a, f->state.epoch, &f->state);
    while (result == STREAM_UNAVAILABLE || result == STREAM_IN_DOUBT);
    EXPECT(result, STREAM_DONE);
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    struct seen seen = read_all(f->a, true);
    assert_int_equal(seen.end, f->state.tail);
}

// One of three servers that does not reach the others: it accepts connections, but has no leader.
static void server_start_alone(struct nats_servers *s) {
    int held[2 * NATS_NODES_MOST];
    *s = (struct nats_servers){ .count = NATS_NODES_MOST };
    snprintf(s->dir, sizeof s->dir, "/tmp/millrace-nats-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    for (int i = 0; i < NATS_NODES_MOST; i++) {
        held[2 * i] = loopback_bind(&s->nodes[i].port);
        held[2 * i + 1] = loopback_bind(&s->nodes[i].route_port);
    }
    for (int i = 0; i < 2 * NATS_NODES_MOST; i++)
        close(held[i]);
    nats_node_start(s, 0);
}

// F35: two streams, because they begin with different servers.
static void F35_a_server_that_is_cut_off_from_the_others_is_left(void **state) {
    struct fixture *f = *state;
    struct nats_servers alone;
    char url[256];
    server_start_alone(&alone);
    snprintf(url, sizeof url, "nats://127.0.0.1:%u,127.0.0.1:%u", alone.nodes[0].port,
             servers.nodes[0].port);
    struct stream_store *store = store_make(url, 500);
    for (uint32_t i = 0; i < 2; i++) {
        struct stream *s = stream_open(store, i);
        struct stream_state now = { 0 };
        int result;
        do {
            result = s->impl->look(s, &now);
            turn_wait();
        } while (result == STREAM_UNAVAILABLE);
        EXPECT(result, STREAM_DONE);
        assert_int_equal(now.epoch, i == 0 ? f->state.epoch : 0);
        s->impl->close(s);
    }
    store->close(store);
    nats_servers_stop(&alone);
}

static void the_stream_is_removed(struct admin *a) {
    assert_int_equal(js_DeleteStream(a->js, stream_name(), NULL, NULL), NATS_OK);
}

// F38: a store that lacks what it has acknowledged is noticed, and refused for good.
static void F38_lost_messages_are_noticed(void **state) {
    struct fixture *f = *state;
    struct stream_nats_options o = options_for(server_url, cluster);
    struct stream_store *store;
    o.behind_ms = 200;
    EXPECT(stream_nats_create(&o, &store), 0);
    struct stream *s = stream_open(store, 0);
    struct stream_state mine = claim_any(s), now;
    for (int i = 0; i < 5; i++)
        EXPECT(append_next(s, &mine, 100), STREAM_DONE);
    struct admin a = admin_open();
    jsErrCode code;
    for (uint64_t i = 0; i < 4; i++) // the last two batches, and what came before
        assert_int_equal(js_DeleteMsg(a.js, stream_name(), 7 - i, NULL, &code), NATS_OK);
    EXPECT(s->impl->look(s, &now), STREAM_UNAVAILABLE); // it may be a leader of the past
    int result;
    do
        result = s->impl->look(s, &now);
    while (result == STREAM_UNAVAILABLE);
    EXPECT(result, MR_ECORRUPT);
    expect_words("lost acknowledged messages");
    the_stream_is_removed(&a);
    EXPECT(s->impl->look(s, &now), MR_ECORRUPT);
    expect_look(server_url, cluster, 0, MR_ECORRUPT, "has lost the stream");
    admin_close(&a);
    s->impl->close(s);
    store->close(store);
    (void)f;
}

static void a_stream_that_others_empty_or_write_to_is_refused(void **state) {
    struct fixture *f = *state;
    struct admin a = admin_open();
    char subject[64];
    struct stream_state now;
    snprintf(subject, sizeof subject, "millrace.%s.0.log", cluster);
    assert_int_equal(js_Publish(NULL, a.js, subject, "hello", 5, NULL, NULL), NATS_OK);
    EXPECT(f->b->impl->look(f->b, &now), MR_ECORRUPT);
    expect_words("of another program");
    assert_int_equal(js_PurgeStream(a.js, stream_name(), NULL, NULL), NATS_OK);
    expect_look(server_url, cluster, 0, MR_ECORRUPT, "emptied");
    admin_close(&a);
}

static void limit_bytes(jsStreamConfig *c) {
    c->MaxBytes = 100000;
}

static void a_full_stream_is_FULL(void **state) {
    struct fixture *f = *state;
    stream_edit(limit_bytes);
    int result = STREAM_DONE;
    while (result == STREAM_DONE)
        result = append_next(f->a, &f->state, 10000);
    EXPECT(result, MR_EFULL);
    uint64_t end = f->state.tail;
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, end / 2), STREAM_DONE);
    EXPECT(append_next(f->a, &f->state, 10000), STREAM_DONE);
    assert_int_equal(read_all(f->b, true).end, f->state.tail);
}

// --- copies ---------------------------------------------------------------------------------

static void a_copy_reads_one_moment(void **state) {
    struct fixture *f = *state;
    struct stream_nats_options o = options_for(server_url, cluster);
    struct stream_store *store;
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    EXPECT(stream_nats_begin(&o, true, &store), STREAM_DONE);
    struct stream *s = stream_open(store, 0);
    struct stream_state then;
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    EXPECT(s->impl->look(s, &then), STREAM_DONE);
    assert_int_equal(then.tail, 132);
    struct seen seen = { 0 };
    uint64_t next;
    EXPECT(s->impl->read(s, 0, then.tail, SIZE_MAX, true, batch_see, &seen, &next), STREAM_DONE);
    assert_int_equal(seen.count, 1);
    s->impl->close(s);
    store->close(store);
}

static void a_copy_is_seen_as_a_whole(void **state) {
    struct fixture *f = *state;
    struct stream_nats_options o = options_for(server_url, cluster);
    struct stream_store *store, *second;
    EXPECT(stream_nats_begin(&o, false, &store), MR_EBUSY); // it has an owner
    expect_words("in use by test");
    EXPECT(f->a->impl->release(f->a, f->state.epoch), STREAM_DONE);
    EXPECT(stream_nats_begin(&o, false, &store), STREAM_DONE);
    struct stream *s = stream_open(store, 0);
    struct stream_state mine = claim_any(s), now;
    EXPECT(append_next(s, &mine, 100), STREAM_DONE);
    expect_look(server_url, cluster, 0, MR_EINVAL, "a copy into cluster");
    EXPECT(stream_nats_begin(&o, true, &second), MR_EINVAL);
    EXPECT(s->impl->release(s, mine.epoch), STREAM_DONE);
    s->impl->close(s);
    store->close(store); // without a commit: it is empty again
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.head, now.tail);

    EXPECT(stream_nats_begin(&o, false, &store), STREAM_DONE);
    s = stream_open(store, 0);
    mine = claim_any(s);
    EXPECT(append_next(s, &mine, 100), STREAM_DONE);
    // As if the copy had been killed: another one begins, and this one can do nothing more.
    EXPECT(stream_nats_begin(&o, false, &second), STREAM_DONE);
    EXPECT(append_next(s, &mine, 100), STREAM_FENCED);
    s->impl->close(s);
    EXPECT(store->commit(store), MR_EBUSY);
    s = stream_open(second, 0);
    mine = claim_any(s);
    assert_int_equal(mine.head, mine.tail);
    EXPECT(append_next(s, &mine, 300), STREAM_DONE);
    s->impl->close(s);
    EXPECT(second->commit(second), STREAM_DONE);
    second->close(second);
    assert_int_equal(read_all(f->b, true).bodies, 300);
    EXPECT(stream_nats_begin(&o, false, &second), MR_EINVAL);
    expect_words("never written over");
    store->close(store);
    assert_int_equal(read_all(f->b, true).bodies, 300);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static int group_setup(void **state) {
    (void)state;
    uint16_t port = 0;
    struct sockaddr_in target = { .sin_family = AF_INET };
    nats_servers_start(&servers, 1, "");
    nats_servers_url(&servers, server_url);
    target.sin_port = htons(servers.nodes[0].port);
    target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    byte_proxy_start(&proxy, loopback_bind(&port), &target, sizeof target);
    snprintf(proxy_url, sizeof proxy_url, "nats://127.0.0.1:%u", port);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    byte_proxy_stop(&proxy);
    nats_servers_stop(&servers);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(init_twice_changes_nothing),
        CASE(init_refuses_what_is_there_otherwise),
        cmocka_unit_test(urls_are_read),
        CASE(names_are_checked),
        CASE(what_is_missing_is_named),
        CASE(H6_a_stream_of_another_configuration_is_refused),
        CASE(H6_the_promise_is_what_the_servers_do),
        CASE(batches_are_read_as_they_were_appended),
        CASE(a_read_can_be_continued),
        CASE(positions_may_have_gaps),
        CASE(positions_are_found_without_an_index),
        CASE(batches_above_max_payload_are_split),
        CASE(a_part_of_a_batch_is_never_seen),
        CASE(F32_a_stale_owner_is_refused),
        CASE(an_owner_may_repeat_its_claim),
        CASE(an_owner_is_named_until_it_releases_the_stream),
        CASE(a_race_has_one_winner),
        CASE(a_trim_removes_whole_batches),
        cmocka_unit_test(an_index_is_bounded),
        CASE(F33_a_lost_reply_is_resolved),
        CASE(a_silent_server_leaves_no_doubt_in_the_end),
        CASE(an_interrupt_ends_a_call),
        CASE(F38_lost_messages_are_noticed),
        CASE(a_stream_that_others_empty_or_write_to_is_refused),
        CASE(a_full_stream_is_FULL),
        CASE(a_copy_reads_one_moment),
        CASE(a_copy_is_seen_as_a_whole),
        CASE(H5_an_outage_ends),
        CASE(F35_a_server_that_is_cut_off_from_the_others_is_left),
    };
    if (!nats_is_installed())
        return 0;
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
