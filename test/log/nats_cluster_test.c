// The stream in NATS JetStream with three replicas: servers end under load, and nothing that was
// acknowledged is lost. Elections take four to nine seconds, so the longer stories are for
// MILLRACE_LONG.
#include "support/nats_support.h"
#include "support/stream_support.h"

#include "log/board_nats.h"

#include <nats/nats.h>

static struct nats_servers servers;
static char server_url[256];

struct owner {
    struct stream *stream;
    struct stream_state state;
    uint64_t batches; // acknowledged
    uint64_t doubts;
};

// Claims as the log does after a doubt; the tail tells how it went.
static void owner_claim(struct owner *o) {
    int result;
    do {
        result = o->stream->impl->claim(o->stream, o->state.epoch, &o->state);
        if (result == STREAM_UNAVAILABLE)
            turn_wait();
    } while (result == STREAM_UNAVAILABLE || result == STREAM_IN_DOUBT);
    EXPECT(result, STREAM_DONE);
}

// Appends a batch, whatever that takes.
static void owner_append(struct owner *o, size_t size) {
    uint64_t end = o->state.tail + size + 32;
    while (o->state.tail < end) {
        int result = append_next(o->stream, &o->state, size);
        if (result == STREAM_IN_DOUBT) {
            o->doubts++;
            owner_claim(o);
        } else if (result == STREAM_UNAVAILABLE) {
            turn_wait();
        } else {
            EXPECT(result, STREAM_DONE);
        }
    }
    assert_int_equal(o->state.tail, end);
    o->batches++;
}

// Servers that have just elected leaders may be unavailable for a while.
static void expect_all(struct owner *o) {
    struct stream *s = o->stream;
    struct seen seen;
    uint64_t next;
    int result;
    do {
        seen = (struct seen){ 0 };
        result = s->impl->read(s, 0, UINT64_MAX, SIZE_MAX, true, batch_see, &seen, &next);
    } while (result == STREAM_UNAVAILABLE);
    EXPECT(result, STREAM_DONE);
    assert_false(seen.wrong);
    assert_int_equal(seen.count, o->batches);
    assert_int_equal(seen.end, o->state.tail);
}

// The node that leads a stream; -1: none does, or another one has not caught up with it.
static int leader_of(const jsClusterInfo *c) {
    for (int i = 0; i < c->ReplicasLen; i++)
        if (!c->Replicas[i]->Current)
            return -1;
    return c->Leader ? c->Leader[1] - '0' : -1;
}

// Of the stream of shard 0.
static int leader_find(const char *cluster) {
    natsOptions *options = NULL;
    natsConnection *connection = NULL;
    jsCtx *js = NULL;
    jsStreamInfo *info = NULL;
    char name[64], list[NATS_NODES_MOST][64];
    const char *urls[NATS_NODES_MOST];
    int leader = -1;
    for (int i = 0; i < servers.count; i++) {
        snprintf(list[i], sizeof list[i], "nats://127.0.0.1:%u", servers.nodes[i].port);
        urls[i] = list[i];
    }
    snprintf(name, sizeof name, "millrace-%s-0", cluster);
    natsOptions_Create(&options);
    natsOptions_SetServers(options, urls, servers.count);
    assert_int_equal(natsConnection_Connect(&connection, options), NATS_OK);
    assert_int_equal(natsConnection_JetStream(&js, connection, NULL), NATS_OK);
    if (js_GetStreamInfo(&info, js, name, NULL, NULL) == NATS_OK)
        leader = leader_of(info->Cluster);
    jsStreamInfo_Destroy(info);
    jsCtx_Destroy(js);
    natsConnection_Destroy(connection);
    natsOptions_Destroy(options);
    return leader;
}

// Two servers that have not caught up elect none of them, as long as the third is away.
static int leader_await(const char *cluster) {
    int leader;
    while ((leader = leader_find(cluster)) < 0)
        turn_wait();
    return leader;
}

struct story {
    char cluster[16];
    struct stream_store *store;
    struct owner owner;
};

static int setup(void **state) {
    static int count;
    struct story *t = calloc(1, sizeof *t);
    snprintf(t->cluster, sizeof t->cluster, "three%d", count++);
    struct stream_nats_options o = { .url = server_url, .cluster = t->cluster, .owner = "test" };
    nats_cluster_make(&o, 1);
    EXPECT(stream_nats_create(&o, &t->store), 0);
    t->owner.stream = stream_open(t->store, 0);
    int result;
    do
        result = t->owner.stream->impl->look(t->owner.stream, &t->owner.state);
    while (result == STREAM_UNAVAILABLE);
    EXPECT(result, STREAM_DONE);
    owner_claim(&t->owner);
    *state = t;
    return 0;
}

static int teardown(void **state) {
    struct story *t = *state;
    t->owner.stream->impl->close(t->owner.stream);
    t->store->close(t->store);
    free(t);
    return 0;
}

static void three_servers_have_three_replicas(void **state) {
    struct story *t = *state;
    struct stream_nats_options o = { .url = server_url, .cluster = t->cluster };
    struct stream_nats_cluster found;
    struct stream_promise promise;
    EXPECT(stream_nats_look(&o, &found), STREAM_DONE);
    assert_int_equal(found.replicas, 3);
    struct board *b;
    EXPECT(board_nats_open(&o, &b), 0);
    EXPECT(board_promise(b, &promise), STREAM_DONE);
    board_close(b);
    assert_true(promise.replicated);
    assert_non_null(strstr(promise.text, "the loss of 1 of 3 NATS servers"));
}

static void append_some(struct story *t, int count) {
    for (int i = 0; i < count; i++) {
        owner_append(&t->owner, (size_t)(i * 37) % 5000);
        if (i % 50 == 0)
            (void)t->owner.stream->impl->beat(t->owner.stream, t->owner.state.epoch);
    }
}

// F36: both followers are killed in turn while an owner appends, and come back. Then the server
// that leads is killed: one of those that have restarted leads, and has everything.
static void F36_followers_restart_and_one_of_them_leads(void **state) {
    struct story *t = *state;
    int turns = getenv("MILLRACE_LONG") ? 6 : 1;
    for (int i = 0; i < turns; i++) {
        int leader = leader_await(t->cluster);
        for (int other = 0; other < servers.count; other++) {
            append_some(t, 50);
            if (other == leader)
                continue;
            nats_node_stop(&servers, other, SIGKILL);
            append_some(t, 50);
            nats_node_start(&servers, other);
        }
        append_some(t, 50);
        leader = leader_await(t->cluster);
        nats_node_stop(&servers, leader, SIGKILL);
        append_some(t, 100);
        nats_node_start(&servers, leader);
        append_some(t, 100);
    }
    expect_all(&t->owner);
}

// F37: all servers are killed at once.
static void F37_all_servers_are_killed(void **state) {
    struct story *t = *state;
    append_some(t, 200);
    for (int i = 0; i < servers.count; i++)
        nats_node_stop(&servers, i, SIGKILL);
    for (int i = 0; i < servers.count; i++)
        nats_node_start(&servers, i);
    append_some(t, 200);
    expect_all(&t->owner);
}

// F32, F35: the leader is paused, a second owner claims with the others, the first wakes up late.
static void F35_a_leader_of_the_past_decides_nothing(void **state) {
    struct story *t = *state;
    append_some(t, 50);
    int leader = leader_await(t->cluster);
    kill(servers.nodes[leader].pid, SIGSTOP);
    struct owner second = { .stream = stream_open(t->store, 0), .state = t->owner.state };
    owner_claim(&second);
    second.batches = t->owner.batches;
    owner_append(&second, 100);
    kill(servers.nodes[leader].pid, SIGCONT);
    int result;
    do
        result = append_next(t->owner.stream, &t->owner.state, 100);
    while (result == STREAM_UNAVAILABLE || result == STREAM_IN_DOUBT);
    EXPECT(result, STREAM_FENCED);
    owner_append(&second, 100);
    expect_all(&second);
    second.stream->impl->close(second.stream);
}

static int group_setup(void **state) {
    (void)state;
    nats_servers_start(&servers, 3, "");
    nats_servers_url(&servers, server_url);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    nats_servers_stop(&servers);
    return 0;
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(three_servers_have_three_replicas),
        CASE(F36_followers_restart_and_one_of_them_leads),
    };
    const struct CMUnitTest more[] = {
        CASE(three_servers_have_three_replicas),
        CASE(F36_followers_restart_and_one_of_them_leads),
        CASE(F37_all_servers_are_killed),
        CASE(F35_a_leader_of_the_past_decides_nothing),
    };
    if (!nats_is_installed())
        return 0;
    return getenv("MILLRACE_LONG") ? cmocka_run_group_tests(more, group_setup, group_teardown)
                                   : cmocka_run_group_tests(tests, group_setup, group_teardown);
}
