// The stream in PostgreSQL, beside a real server with a synchronous standby (with_postgres.py).
#include "support/postgres_support.h"
#include "support/stream_suite.h"

#include "log/board_postgres.h"

#include <errno.h>
#include <signal.h>

static const char cluster[] = "story";
enum { SHARDS = 4 };

static struct stream_postgres_options options_for(const char *url, const char *name) {
    return (struct stream_postgres_options){ .url = url, .cluster = name, .owner = "test" };
}

static struct stream_store *store_make(const char *url, uint32_t call_ms) {
    struct stream_postgres_options o = options_for(url, cluster);
    o.call_ms = call_ms;
    struct stream_store *store = NULL;
    if (stream_postgres_create(&o, &store) < 0)
        fail_msg("%s", error_text());
    return store;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    struct stream_postgres_options o = options_for(postgres_of_test(), cluster);
    SQL("DROP SCHEMA IF EXISTS millrace_story CASCADE");
    enum store_made made = STORE_THERE;
    EXPECT(stream_postgres_init(&o, SHARDS, &made), STREAM_DONE);
    assert_int_equal(made, STORE_MADE);
    f->store = store_make(postgres_of_test(), 0);
    f->a = stream_open(f->store, 0);
    f->b = stream_open(f->store, 0);
    f->state = claim_any(f->a);
    *state = f;
    return 0;
}

// --- setting up -----------------------------------------------------------------------------

static void init_twice_changes_nothing(void **state) {
    (void)state;
    struct stream_postgres_options o = options_for(postgres_of_test(), cluster);
    struct stream_postgres_cluster before, after;
    enum store_made made = STORE_MADE;
    EXPECT(stream_postgres_look(&o, &before), STREAM_DONE);
    EXPECT(stream_postgres_init(&o, SHARDS, &made), STREAM_DONE);
    assert_int_equal(made, STORE_THERE);
    EXPECT(stream_postgres_look(&o, &after), STREAM_DONE);
    assert_int_equal(after.shards, SHARDS);
    assert_memory_equal(before.secret, after.secret, CLUSTER_SECRET);
}

static void init_refuses_what_is_there_otherwise(void **state) {
    struct fixture *f = *state;
    struct stream_postgres_options o = options_for(postgres_of_test(), cluster);
    enum store_made made;
    EXPECT(stream_postgres_init(&o, SHARDS + 1, &made), MR_EINVAL);
    assert_non_null(strstr(error_text(), "made with 4 shards"));
    EXPECT(stream_postgres_init(&o, 0, &made), MR_EINVAL);
    SQL("UPDATE millrace_story.cluster SET version = 99");
    EXPECT(stream_postgres_init(&o, SHARDS, &made), MR_EINVAL);
    assert_non_null(strstr(error_text(), "version 99"));
    struct stream_state now;
    EXPECT(f->b->impl->look(f->b, &now), MR_EINVAL);
    assert_non_null(strstr(error_text(), "version 99"));
}

static void names_and_urls_are_checked(void **state) {
    (void)state;
    static const char *const names[] = { "", "Story", "a-b", "x; DROP TABLE", "a\"b", NULL };
    struct stream_store *store;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stream_postgres_options o = options_for(postgres_of_test(), names[i]);
        EXPECT(stream_postgres_create(&o, &store), MR_EINVAL);
    }
    struct stream_postgres_options o = options_for("postgres://[", cluster);
    EXPECT(stream_postgres_create(&o, &store), MR_EINVAL);
    o = options_for(postgres_of_test(), cluster);
    o.synchronous_commit = "perhaps";
    EXPECT(stream_postgres_create(&o, &store), MR_EINVAL);
}

static void expect_look(const char *url, const char *name, uint32_t shard, int expected,
                        const char *words) {
    struct stream_postgres_options o = options_for(url, name);
    struct stream_store *store;
    EXPECT(stream_postgres_create(&o, &store), 0);
    struct stream *s = stream_open(store, shard);
    struct stream_state now;
    EXPECT(s->impl->look(s, &now), expected);
    if (!strstr(error_text(), words))
        fail_msg("'%s' is not in '%s'", words, error_text());
    s->impl->close(s);
    store->close(store);
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    char guest[256], full[256], absent[256];
    SQL("DROP ROLE IF EXISTS guest");
    SQL("DROP ROLE IF EXISTS nobody");
    SQL("CREATE ROLE guest LOGIN");
    SQL("CREATE ROLE nobody LOGIN CONNECTION LIMIT 0");
    snprintf(guest, sizeof guest, "%s user=guest", postgres_of_test());
    snprintf(full, sizeof full, "%s user=nobody", postgres_of_test());
    snprintf(absent, sizeof absent, "%s dbname=absent", postgres_of_test());
    expect_look(postgres_of_test(), "other", 0, MR_EINVAL, "millrace store init");
    expect_look(postgres_of_test(), cluster, SHARDS, MR_EINVAL, "there is no shard 4");
    expect_look(guest, cluster, 0, MR_EPERM, "permission denied");
    expect_look(full, cluster, 0, STREAM_UNAVAILABLE, "too many connections");
    expect_look(absent, cluster, 0, STREAM_UNAVAILABLE, "does not exist");
    enum store_made made;
    struct stream_postgres_options o = options_for(guest, "other");
    EXPECT(stream_postgres_init(&o, 1, &made), MR_EPERM);
}

static void two_clusters_share_a_database(void **state) {
    struct fixture *f = *state;
    SQL("DROP SCHEMA IF EXISTS millrace_second CASCADE");
    struct stream_postgres_options o = options_for(postgres_of_test(), "second");
    struct stream_postgres_cluster first, second;
    enum store_made made;
    EXPECT(stream_postgres_init(&o, 2, &made), STREAM_DONE);
    EXPECT(stream_postgres_look(&o, &second), STREAM_DONE);
    o.cluster = cluster;
    EXPECT(stream_postgres_look(&o, &first), STREAM_DONE);
    assert_memory_not_equal(first.secret, second.secret, CLUSTER_SECRET);
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);

    struct stream_store *store;
    o.cluster = "second";
    EXPECT(stream_postgres_create(&o, &store), 0);
    struct stream *s = stream_open(store, 0);
    struct stream_state other = claim_any(s);
    assert_int_equal(other.epoch, 1);
    assert_int_equal(other.tail, 0);
    EXPECT(append_next(s, &other, 7), STREAM_DONE);
    assert_int_equal(read_all(s, true).bodies, 7);
    assert_int_equal(read_all(f->a, true).bodies, 100);
    s->impl->close(s);
    store->close(store);
}

// --- appending and reading ------------------------------------------------------------------

static void bodies_of_16_MiB_fit(void **state) {
    struct fixture *f = *state;
    enum { LARGE = 16 << 20 };
    EXPECT(append_next(f->a, &f->state, LARGE), STREAM_DONE);
    EXPECT(append_next(f->a, &f->state, LARGE + 4096), STREAM_DONE);
    EXPECT(append_next(f->a, &f->state, 1), STREAM_DONE);
    struct seen seen = read_all(f->b, true);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.bodies, 2 * LARGE + 4097);
    struct buffer out = { 0 };
    EXPECT(f->b->impl->get(f->b, 1000, STREAM_BODIES, LARGE - 1001, 10, &out), 0);
    assert_int_equal(out.size, 1);
    assert_int_equal(out.data[0], (uint8_t)((uint64_t)(LARGE - 1) * 31 >> 3));
    buffer_finish(&out);
}

// --- owning ---------------------------------------------------------------------------------

// F32: an owner that was paused wakes up and writes.
static void F32_a_stale_owner_is_refused(void **state) {
    expect_stale_owner_refused(*state);
}

static void an_owner_is_named_until_it_releases_the_stream(void **state) {
    struct fixture *f = *state;
    struct stream_state now;
    SQL("UPDATE millrace_story.shard SET seen_at = now() - interval '1 hour'");
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_string_equal(now.owner, "test");
    assert_true(now.silent_ms >= 3600000);
    EXPECT(f->a->impl->beat(f->a, f->state.epoch), STREAM_DONE);
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_true(now.silent_ms < 3600000);
    EXPECT(f->a->impl->release(f->a, f->state.epoch + 1), MR_ECORRUPT);
    EXPECT(f->a->impl->release(f->a, f->state.epoch), STREAM_DONE);
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_string_equal(now.owner, "");
    assert_int_equal(now.epoch, f->state.epoch);
    claim_any(f->b);
    EXPECT(f->a->impl->release(f->a, f->state.epoch), STREAM_FENCED);
}

static void another_tail_is_in_doubt(void **state) {
    struct fixture *f = *state;
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    EXPECT(batch_append(f->a, f->state.epoch, 0, 0, 100), STREAM_IN_DOUBT);
    assert_non_null(strstr(error_text(), "ends at 132, not at 0"));
}

// F38: the database knows less than it has acknowledged.
static void F38_lost_commits_are_noticed(void **state) {
    struct fixture *f = *state;
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    SQL("UPDATE millrace_story.shard SET tail = 0 WHERE shard = 0");
    EXPECT(append_next(f->a, &f->state, 100), MR_ECORRUPT);
    assert_non_null(strstr(error_text(), "has lost commits"));
    SQL("UPDATE millrace_story.shard SET epoch = 0 WHERE shard = 0");
    EXPECT(f->a->impl->beat(f->a, f->state.epoch), MR_ECORRUPT);
    SQL("DELETE FROM millrace_story.shard WHERE shard = 0");
    EXPECT(append_next(f->a, &f->state, 100), MR_EINVAL);
    assert_non_null(strstr(error_text(), "lost the row of shard 0"));
}

// --- trimming -------------------------------------------------------------------------------

static void a_trim_removes_whole_batches(void **state) {
    struct fixture *f = *state;
    SQL("WITH s AS (UPDATE millrace_story.shard SET tail = 150000 WHERE shard = 0) INSERT INTO "
        "millrace_story.batch SELECT 0, 100 * n, 100 * n + 100, 1, convert_to('heads at ' || 100 * "
        "n, 'UTF8'), '' FROM generate_series(0, 1499) n"); // more than one statement removes
    f->state.tail = 150000;
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, 1250 * 100 + 50), STREAM_DONE);
    struct stream_state now;
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.head, 1250 * 100);
    struct seen seen = read_all(f->b, false);
    assert_int_equal(seen.first, 1250 * 100);
    assert_int_equal(seen.count, 250);
    struct buffer out = { 0 };
    EXPECT(f->b->impl->get(f->b, 1249 * 100, STREAM_BODIES, 0, 10, &out), MR_EGONE);
    EXPECT(f->b->impl->get(f->b, 1250 * 100, STREAM_BODIES, 0, 10, &out), 0);
    buffer_finish(&out);
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, UINT64_MAX), STREAM_DONE);
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.head, f->state.tail);
    assert_int_equal(now.tail, f->state.tail);
    EXPECT(append_next(f->a, &f->state, 68), STREAM_DONE);
}

// What was trimmed is used again: the table stays below what was written.
static void trims_give_space_back(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        EXPECT(append_next(f->a, &f->state, 17 << 20), STREAM_DONE);
        EXPECT(f->a->impl->trim(f->a, f->state.epoch, f->state.tail), STREAM_DONE);
        SQL_AWAIT("SELECT (count(*) = 0)::int FROM pg_stat_activity WHERE state = 'active' AND "
                  "application_name = 'millrace story/0 vacuum'");
    }
    long size = SQL("SELECT pg_total_relation_size('millrace_story.batch')");
    assert_in_range(size, 1, 4 * (17 << 20));
}

// --- faults ---------------------------------------------------------------------------------

static struct pg_proxy proxy;

static struct stream_store *store_behind_proxy(uint32_t call_ms) {
    static char url[256];
    snprintf(url, sizeof url, "%s host=%s", postgres_of_test(), proxy.dir);
    return store_make(url, call_ms);
}

// F33: the reply of an append is lost; the claim that resolves it finds the batch.
static void F33_a_lost_reply_is_resolved_by_a_claim(void **state) {
    struct fixture *f = *state;
    struct stream_store *store = store_behind_proxy(0);
    struct stream *s = stream_open(store, 0);
    struct stream_state mine = claim_any(s);
    for (int i = 0; i < 10; i++) {
        EXPECT(append_next(s, &mine, 100), STREAM_DONE);
        pg_proxy_set(&proxy, PROXY_LOSE_REPLIES);
        EXPECT(append_next(s, &mine, 200), STREAM_IN_DOUBT);
        // The claim's reply may be lost, too. Connecting gets no reply either: nothing happened.
        EXPECT(s->impl->claim(s, mine.epoch, &mine), STREAM_UNAVAILABLE);
        pg_proxy_set(&proxy, PROXY_PASS);
        uint64_t tail = mine.tail + 232;
        EXPECT(s->impl->claim(s, mine.epoch, &mine), STREAM_DONE);
        assert_int_equal(mine.tail, tail);
    }
    assert_int_equal(read_all(f->b, true).bodies, 3000);
    s->impl->close(s);
    store->close(store);
}

static void a_claim_whose_reply_is_lost_is_repeated(void **state) {
    (void)state;
    struct stream_store *store = store_behind_proxy(0);
    struct stream *s = stream_open(store, 0);
    struct stream_state mine = claim_any(s), again = { 0 };
    pg_proxy_set(&proxy, PROXY_LOSE_REPLIES);
    EXPECT(s->impl->claim(s, mine.epoch, &again), STREAM_IN_DOUBT);
    pg_proxy_set(&proxy, PROXY_PASS);
    EXPECT(s->impl->claim(s, mine.epoch, &again), STREAM_DONE);
    assert_int_equal(again.epoch, mine.epoch + 2);
    s->impl->close(s);
    store->close(store);
}

static void an_outage_ends(void **state) {
    (void)state;
    struct stream_store *store = store_behind_proxy(0);
    struct stream *s = stream_open(store, 0);
    struct stream_state mine = claim_any(s), now;
    for (int i = 0; i < 3; i++) {
        EXPECT(append_next(s, &mine, 100), STREAM_DONE);
        pg_proxy_set(&proxy, PROXY_REFUSE);
        int result = append_next(s, &mine, 100);
        assert_true(result == STREAM_UNAVAILABLE || result == STREAM_IN_DOUBT);
        EXPECT(append_next(s, &mine, 100), STREAM_UNAVAILABLE);
        EXPECT(s->impl->beat(s, mine.epoch), STREAM_UNAVAILABLE);
        EXPECT(s->impl->look(s, &now), STREAM_UNAVAILABLE);
        pg_proxy_set(&proxy, PROXY_PASS);
        EXPECT(s->impl->claim(s, mine.epoch, &mine), STREAM_DONE);
    }
    s->impl->close(s);
    store->close(store);
}

// A server that does not answer is given up after call_ms, and while connecting after connect_ms.
static void silence_is_given_up(void **state) {
    (void)state;
    static char url[256];
    snprintf(url, sizeof url, "%s host=%s", postgres_of_test(), proxy.dir);
    struct stream_postgres_options o = options_for(url, cluster);
    o.call_ms = o.connect_ms = 1000;
    struct stream_store *store;
    EXPECT(stream_postgres_create(&o, &store), 0);
    struct stream *s = stream_open(store, 0);
    struct stream_state mine = claim_any(s);
    EXPECT(append_next(s, &mine, 100), STREAM_DONE);
    pg_proxy_set(&proxy, PROXY_HOLD_REPLIES);
    EXPECT(append_next(s, &mine, 100), STREAM_IN_DOUBT);
    assert_non_null(strstr(error_text(), "no answer in time"));
    EXPECT(append_next(s, &mine, 100), STREAM_UNAVAILABLE);
    pg_proxy_set(&proxy, PROXY_PASS);
    EXPECT(s->impl->claim(s, mine.epoch, &mine), STREAM_DONE);
    assert_int_equal(mine.tail, 2 * 132);
    s->impl->close(s);
    store->close(store);
}

struct killer {
    atomic_bool ends;
    _Atomic uint64_t kills;
};

static void *kills_run(void *arg) {
    struct killer *k = arg;
    while (!atomic_load(&k->ends))
        atomic_fetch_add(&k->kills, (uint64_t)SQL("SELECT count(pg_terminate_backend(pid)) FROM "
                                                  "pg_stat_activity WHERE application_name LIKE "
                                                  "'millrace story/%%'"));
    return NULL;
}

// F34: the session is ended at any point of any call. What was acknowledged is there, once, and
// what was in doubt is there or never comes.
static void F34_sessions_end_at_any_point(void **state) {
    struct fixture *f = *state;
    struct killer killer = { 0 };
    pthread_t thread;
    pthread_create(&thread, NULL, kills_run, &killer);
    uint64_t appended = 0;
    while (appended < 60 || atomic_load(&killer.kills) < 12) {
        uint64_t tail = f->state.tail;
        int result = append_next(f->a, &f->state, 1000);
        if (result < 0)
            fail_msg("append: %s", error_text());
        appended += result == STREAM_DONE;
        while (result == STREAM_IN_DOUBT) {
            struct stream_state now;
            int claimed = f->a->impl->claim(f->a, f->state.epoch, &now);
            if (claimed < 0 || claimed == STREAM_FENCED)
                fail_msg("claim: %d %s", claimed, error_text());
            if (claimed != STREAM_DONE)
                continue;
            assert_true(now.tail == tail || now.tail == tail + 1032);
            appended += now.tail != tail;
            f->state = now;
            result = STREAM_DONE;
        }
    }
    atomic_store(&killer.ends, true);
    pthread_join(thread, NULL);
    struct seen seen = read_all(f->b, true);
    assert_int_equal(seen.count, appended);
    assert_int_equal(seen.end, f->state.tail);
}

// --- the synchronous standby ----------------------------------------------------------------

struct waiting {
    struct stream *stream;
    struct stream_state *state;
    int result;
    pthread_t thread;
};

static void *append_run(void *arg) {
    struct waiting *w = arg;
    w->result = append_next(w->stream, w->state, 100);
    return NULL;
}

static pid_t standby_receiver(void) {
    long pid = sql_run(standby_of_test(), "SELECT pid FROM pg_stat_wal_receiver");
    assert_true(pid > 1);
    return (pid_t)pid;
}

// Appends in another thread while the standby does not answer; returns the session that waits.
static long append_wait(struct waiting *w, struct stream *s, struct stream_state *state) {
    *w = (struct waiting){ .stream = s, .state = state };
    assert_int_equal(pthread_create(&w->thread, NULL, append_run, w), 0);
    return SQL_AWAIT("SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE wait_event = "
                     "'SyncRep' AND application_name = 'millrace story/0'");
}

static int append_join(struct waiting *w) {
    pthread_join(w->thread, NULL);
    return w->result;
}

static void expect_resolved(struct fixture *f) {
    uint64_t tail = f->state.tail + 132;
    EXPECT(f->a->impl->claim(f->a, f->state.epoch, &f->state), STREAM_DONE);
    assert_int_equal(f->state.tail, tail);
    assert_int_equal(read_all(f->b, true).end, tail);
}

static void a_cancelled_wait_for_the_standby_is_in_doubt(void **state) {
    struct fixture *f = *state;
    static const char *const ways[] = { "pg_cancel_backend", "pg_terminate_backend" };
    pid_t receiver = standby_receiver();
    for (size_t i = 0; i < 2; i++) {
        struct waiting w;
        assert_int_equal(kill(receiver, SIGSTOP), 0);
        long session = append_wait(&w, f->a, &f->state);
        SQL("SELECT %s(%ld)", ways[i], session);
        EXPECT(append_join(&w), STREAM_IN_DOUBT);
        assert_int_equal(kill(receiver, SIGCONT), 0);
        expect_resolved(f);
    }
}

static void an_interrupt_ends_the_wait_for_the_standby(void **state) {
    struct fixture *f = *state;
    pid_t receiver = standby_receiver();
    struct waiting w;
    struct stream *s = stream_open(f->store, 0);
    assert_int_equal(kill(receiver, SIGSTOP), 0);
    append_wait(&w, s, &f->state);
    s->impl->interrupt(s);
    EXPECT(append_join(&w), STREAM_IN_DOUBT);
    EXPECT(append_next(s, &f->state, 100), STREAM_UNAVAILABLE);
    assert_int_equal(kill(receiver, SIGCONT), 0);
    s->impl->close(s);
    expect_resolved(f);
}

// Our own time ends that wait; nothing passes the row that the forgotten session still holds.
static void a_silent_standby_is_given_up(void **state) {
    struct fixture *f = *state;
    pid_t receiver = standby_receiver();
    struct stream_store *store = store_make(postgres_of_test(), 500);
    struct stream *s = stream_open(store, 0);
    EXPECT(s->impl->look(s, &f->state), STREAM_DONE);
    assert_int_equal(kill(receiver, SIGSTOP), 0);
    EXPECT(append_next(s, &f->state, 100), STREAM_IN_DOUBT);
    struct stream_state now;
    EXPECT(s->impl->claim(s, f->state.epoch, &now), STREAM_UNAVAILABLE); // the lock: certain
    EXPECT(s->impl->beat(s, f->state.epoch), STREAM_UNAVAILABLE);
    assert_int_equal(kill(receiver, SIGCONT), 0);
    expect_resolved(f);
    s->impl->close(s);
    store->close(store);
}

static struct stream_promise promise_with(const char *synchronous_commit) {
    struct stream_postgres_options o = options_for(postgres_of_test(), cluster);
    struct stream_promise promise;
    struct board *b;
    o.synchronous_commit = synchronous_commit;
    EXPECT(board_postgres_create(&o, &b), 0);
    EXPECT(board_promise(b, &promise), STREAM_DONE);
    board_close(b);
    return promise;
}

static void the_promise_is_what_is_configured(void **state) {
    (void)state;
    SQL_AWAIT("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'");
    struct stream_promise promise = promise_with(NULL);
    assert_true(promise.replicated);
    assert_non_null(strstr(promise.text, "a synchronous standby has it on disk"));
    static const char *const weaker[] = { "local", "remote_write", "off" };
    for (size_t i = 0; i < 3; i++) {
        promise = promise_with(weaker[i]);
        assert_false(promise.replicated);
        assert_non_null(strstr(promise.text, "synchronous_commit"));
    }
}

// --- errors of the server -------------------------------------------------------------------

static void a_full_disk_is_FULL(void **state) {
    struct fixture *f = *state;
    SQL("CREATE FUNCTION millrace_story.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE "
        "'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$");
    SQL("CREATE TRIGGER full_disk BEFORE INSERT ON millrace_story.batch FOR EACH ROW EXECUTE "
        "FUNCTION millrace_story.full()");
    EXPECT(append_next(f->a, &f->state, 100), MR_EFULL);
    assert_non_null(strstr(error_text(), "No space left"));
    SQL("DROP TRIGGER full_disk ON millrace_story.batch");
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE); // nothing had happened
}

static void a_read_only_server_is_unavailable(void **state) {
    struct fixture *f = *state;
    struct stream_state now;
    expect_look(standby_of_test(), cluster, 0, STREAM_UNAVAILABLE, "read-only");
    EXPECT(f->a->impl->look(f->a, &now), STREAM_DONE);
}

// F34, H1: the first server dies for good, its standby is promoted. Runs last.
static void a_promoted_standby_has_all_that_was_acknowledged(void **state) {
    struct fixture *f = *state;
    static char both[512];
    snprintf(both, sizeof both, "host=%s,%s user=postgres dbname=postgres",
             getenv("MILLRACE_POSTGRES"), getenv("MILLRACE_POSTGRES_STANDBY"));
    struct stream_store *store = store_make(both, 0);
    struct stream *s = stream_open(store, 0);
    struct stream_state mine = claim_any(s);
    for (int i = 0; i < 200; i++)
        EXPECT(append_next(s, &mine, 500), STREAM_DONE);
    assert_int_equal(kill((pid_t)strtol(getenv("MILLRACE_POSTGRES_PID"), NULL, 10), SIGQUIT), 0);
    assert_int_equal(sql_run(standby_of_test(), "SELECT pg_promote()::int"), 1);
    int result;
    do
        result = s->impl->claim(s, mine.epoch, &mine);
    while (result == STREAM_UNAVAILABLE || result == STREAM_IN_DOUBT);
    EXPECT(result, STREAM_DONE);
    assert_int_equal(mine.tail, 200 * 532);
    EXPECT(append_next(s, &mine, 500), STREAM_DONE);
    assert_int_equal(read_all(s, true).count, 201);
    s->impl->close(s);
    store->close(store);
    (void)f;
}

// --- transactions -----------------------------------------------------------------------------

static struct stream_store *transaction_of_test(bool read_only) {
    struct stream_postgres_options o = options_for(postgres_of_test(), cluster);
    struct stream_store *store = NULL;
    EXPECT(stream_postgres_begin(&o, read_only, &store), STREAM_DONE);
    return store;
}

// A backup reads all shards as they were when it began, whatever is appended and trimmed meanwhile.
static void a_transaction_reads_one_moment(void **state) {
    struct fixture *f = *state;
    struct stream *other = stream_open(f->store, 1);
    struct stream_state second = claim_any(other), seen;
    for (int i = 0; i < 5; i++)
        EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    EXPECT(append_next(other, &second, 10), STREAM_DONE);
    uint64_t tail = f->state.tail, second_tail = second.tail;
    struct stream_store *moment = transaction_of_test(true);
    struct stream *s0 = stream_open(moment, 0), *s1 = stream_open(moment, 1);
    EXPECT(s0->impl->look(s0, &seen), STREAM_DONE); // that is the moment
    assert_int_equal(seen.tail, tail);
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    EXPECT(append_next(other, &second, 10), STREAM_DONE);
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, tail), STREAM_DONE);
    assert_int_equal(read_all(f->b, true).count, 1);
    assert_int_equal(read_all(s0, true).count, 5);
    assert_int_equal(read_all(s1, true).count, 1);
    EXPECT(s1->impl->look(s1, &seen), STREAM_DONE);
    assert_int_equal(seen.tail, second_tail);
    EXPECT(s0->impl->beat(s0, f->state.epoch), STREAM_UNAVAILABLE);
    s0->impl->close(s0);
    s1->impl->close(s1);
    other->impl->close(other);
    moment->close(moment);
}

// What a copy has written is there with its commit, and not before.
static void a_transaction_is_seen_as_a_whole(void **state) {
    struct fixture *f = *state;
    for (int commits = 0; commits < 2; commits++) {
        struct stream_store *store = transaction_of_test(false);
        struct stream *s2 = stream_open(store, 2), *s3 = stream_open(store, 3);
        struct stream_state third = claim_any(s2), fourth = claim_any(s3);
        EXPECT(append_next(s2, &third, 100), STREAM_DONE);
        EXPECT(append_next(s3, &fourth, 100), STREAM_DONE);
        assert_int_equal(read_all(s2, true).count, 1);
        assert_int_equal(SQL("SELECT count(*) FROM millrace_story.batch"), 0);
        s2->impl->close(s2);
        s3->impl->close(s3);
        if (commits)
            EXPECT(store->commit(store), STREAM_DONE);
        store->close(store);
        assert_int_equal(SQL("SELECT count(*) FROM millrace_story.batch"), 2 * commits);
        assert_int_equal(SQL("SELECT sum(epoch) FROM millrace_story.shard"), 1 + 2 * commits);
    }
    assert_int_equal(f->state.epoch, 1);
}

// Nothing is written in a new session, which would be outside of the transaction.
static void a_lost_transaction_is_not_continued(void **state) {
    (void)state;
    struct stream_store *store = transaction_of_test(false);
    struct stream *s = stream_open(store, 2);
    struct stream_state third = claim_any(s), again;
    EXPECT(append_next(s, &third, 100), STREAM_DONE);
    SQL("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = "
        "'millrace story transaction'");
    int result = append_next(s, &third, 100);
    assert_true(result == MR_ENET || result == STREAM_IN_DOUBT);
    EXPECT(s->impl->claim(s, third.epoch, &again), MR_ENET);
    EXPECT(append_next(s, &third, 100), MR_ENET);
    EXPECT(store->commit(store), MR_ENET);
    s->impl->close(s);
    store->close(store);
    assert_int_equal(SQL("SELECT count(*) FROM millrace_story.batch"), 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

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

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(init_twice_changes_nothing),
        CASE(init_refuses_what_is_there_otherwise),
        CASE(names_and_urls_are_checked),
        CASE(what_is_missing_is_named),
        CASE(two_clusters_share_a_database),
        CASE(batches_are_read_as_they_were_appended),
        CASE(a_read_can_be_continued),
        CASE(positions_may_have_gaps),
        CASE(bodies_of_16_MiB_fit),
        CASE(F32_a_stale_owner_is_refused),
        CASE(an_owner_may_repeat_its_claim),
        CASE(an_owner_is_named_until_it_releases_the_stream),
        CASE(another_tail_is_in_doubt),
        CASE(F38_lost_commits_are_noticed),
        CASE(a_race_has_one_winner),
        CASE(a_trim_removes_whole_batches),
        CASE(trims_give_space_back),
        CASE(F33_a_lost_reply_is_resolved_by_a_claim),
        CASE(a_claim_whose_reply_is_lost_is_repeated),
        CASE(an_outage_ends),
        CASE(silence_is_given_up),
        CASE(F34_sessions_end_at_any_point),
        CASE(a_cancelled_wait_for_the_standby_is_in_doubt),
        CASE(an_interrupt_ends_the_wait_for_the_standby),
        CASE(a_silent_standby_is_given_up),
        CASE(the_promise_is_what_is_configured),
        CASE(a_transaction_reads_one_moment),
        CASE(a_transaction_is_seen_as_a_whole),
        CASE(a_lost_transaction_is_not_continued),
        CASE(a_full_disk_is_FULL),
        CASE(a_read_only_server_is_unavailable),
        CASE(a_promoted_standby_has_all_that_was_acknowledged),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
