// Quotas of tokens: a token at its quota gets FULL, with the way out, and others do not notice; for
// all shards and loops together, and when the file of tokens is read again.
#include "support/dialogue.h"

#include "base/errors.h"
#include "server/auth.h"

#include <stdio.h>
#include <string.h>

enum { ACME, OTHER, OPERATOR, MORE };

// The secret of a token is its name twice.
static size_t add_token(char *to, size_t room, const char *name, const char *quotas) {
    uint8_t digest[DIGEST_SIZE];
    char secret[64], hex[2 * DIGEST_SIZE + 1];
    snprintf(secret, sizeof secret, "%s%s", name, name);
    assert_int_equal(digest_of(mr_str(secret), digest), 0);
    for (int i = 0; i < DIGEST_SIZE; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return (size_t)snprintf(to, room, "%s admin * sha256:%s %s\n", name, hex, quotas);
}

static struct auth *tokens(const char *quotas_of_acme) {
    char text[2048];
    struct auth *auth = NULL;
    size_t used = add_token(text, sizeof text, "acme", quotas_of_acme);
    used += add_token(text + used, sizeof text - used, "other", "");
    (void)add_token(text + used, sizeof text - used, "operator", "max-jobs=1000");
    assert_int_equal(auth_parse(mr_str(text), &auth), 0);
    return auth;
}

// As a reload does in every loop.
static void give_quotas(struct dialogue *d, const char *quotas_of_acme) {
    host_set_auth(&d->host, tokens(quotas_of_acme));
    for (uint32_t i = 0; i + 1 < d->loops.count; i++)
        host_set_auth(&d->others[i], tokens(quotas_of_acme));
}

static void come_as(struct dialogue *d, int client, const char *name) {
    if (d->clients[client].session)
        hang_up(d, client);
    connect_client(d, client);
    send_linef(d, client, "AUTH %s %s%s", name, name, name);
    expect_reply(d, client, "+OK");
}

static struct dialogue *open_with(const char *quotas_of_acme) {
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    give_quotas(d, quotas_of_acme);
    come_as(d, ACME, "acme");
    come_as(d, OTHER, "other");
    return d;
}

static void end_one(struct dialogue *d, int client, const char *stage) {
    struct job j = take(d, client, stage);
    send_linef(d, client, "DONE %s %s", j.id, j.token);
    expect_reply(d, client, "+OK");
}

// Stages a, b, c and d are in different shards.
static void G13_a_token_at_its_quota_of_jobs_gets_FULL(void **state) {
    (void)state;
    struct dialogue *d = open_with("max-jobs=3");
    ask(d, ACME, "PUSH a 1", "\"*\"");
    ask(d, ACME, "PUSH b 2", "\"*\"");
    ask(d, ACME, "PUSH c 3", "\"*\"");
    ask(d, ACME, "PUSH d 4",
        "-FULL token 'acme' has 3 jobs, and its max-jobs is 3: jobs must end, or raise it in the "
        "server's file of tokens");
    ask(d, ACME, "PUSH a 4 ROOM -1", "-FULL token 'acme' has 3 jobs*"); // it does not wait
    ask(d, ACME, "CALL a 4", "-FULL token 'acme' has 3 jobs*");
    for (int i = 0; i < 5; i++)
        ask(d, OTHER, "PUSH a x ROOM -1", "\"*\"");
    end_one(d, OTHER, "b");
    ask(d, ACME, "PUSH d 4", "\"*\"");
    ask(d, ACME, "PUSH d 5", "-FULL *");
    dialogue_destroy(d);
}

static void G13_PUSHMANY_accepts_as_many_as_the_quota_allows(void **state) {
    (void)state;
    struct dialogue *d = open_with("max-jobs=2");
    ask(d, ACME, "PUSHMANY a ITEMS '' 1 '' 2 '' 3", "[\"*\" \"*\"]");
    ask(d, ACME, "PUSH b 4", "-FULL token 'acme' has 2 jobs*");
    dialogue_destroy(d);
}

static void G13_every_quota_is_refused_by_its_name(void **state) {
    (void)state;
    struct dialogue *d = open_with(
        "max-stages=2 max-bytes=1K max-sources=1 max-epics=1 max-schedules=1 max-connections=2");
    ask(d, ACME, "PUSH a 1", "\"*\"");
    ask(d, ACME, "PUSH b 1", "\"*\"");
    ask(d, ACME, "PUSH c 1",
        "-FULL token 'acme' has 2 stages, and its max-stages is 2: STAGE name REMOVE forgets one, "
        "or raise it in the server's file of tokens");
    char large[1200];
    snprintf(large, sizeof large, "PUSH a %01023d", 0);
    ask(d, ACME, large,
        "-FULL token 'acme' has 2 bytes, this job has 1023, and its max-bytes is "
        "1024: *");
    ask(d, ACME, "PUSH a 1 SOURCE s 1", "\"*\"");
    ask(d, ACME, "PUSH b 1 SOURCE t 1", "-FULL token 'acme' has 1 source, and its max-sources*");
    ask(d, ACME, "PUSH a 1 EPIC e 1", "\"*\"");
    ask(d, ACME, "PUSH b 1 EPIC f 1", "-FULL token 'acme' has 1 epic, and its max-epics is 1*");
    ask(d, ACME, "SCHEDULE a n CRON '0 3 * * *' PUSH x", "+OK");
    ask(d, ACME, "SCHEDULE b n CRON '0 3 * * *' PUSH x",
        "-FULL token 'acme' has 1 schedule, and its max-schedules is 1*");
    come_as(d, OPERATOR, "acme");
    connect_client(d, MORE);
    ask(d, MORE, "AUTH acme acmeacme",
        "-FULL token 'acme' has 2 connections, and its max-connections is 2: close some, or raise "
        "it in the server's file of tokens");
    ask(d, MORE, "PING", "-NOAUTH *");
    ask(d, MORE, "AUTH other otherother", "+OK");
    ask(d, MORE, "PUSH d 1", "\"*\"");
    hang_up(d, OPERATOR);
    ask(d, MORE, "AUTH acme acmeacme", "+OK"); // and counts for the other no longer
    dialogue_destroy(d);
}

static void G13_a_token_has_half_of_the_connections_without_a_quota(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    give_quotas(d, "");
    d->host.token_connections = 2;
    for (int i = 0; i < 2; i++)
        come_as(d, i, "acme");
    connect_client(d, OPERATOR);
    ask(d, OPERATOR, "HELLO 3 AUTH acme acmeacme",
        "-FULL token 'acme' has 2 connections, and half of the server's max-clients is 2: close "
        "some, or raise max-clients");
    ask(d, OPERATOR, "AUTH other otherother", "+OK");
    ask(d, 0, "AUTH acme acmeacme", "+OK"); // is counted
    dialogue_destroy(d);
}

// G13: a lower quota keeps what there is, and refuses more until it fits; connections stay open.
static void G13_a_reload_changes_quotas_for_open_connections(void **state) {
    (void)state;
    struct dialogue *d = open_with("max-jobs=5 max-connections=5");
    for (int i = 0; i < 4; i++)
        ask(d, ACME, "PUSH a x", "\"*\"");
    come_as(d, MORE, "acme");
    give_quotas(d, "max-jobs=2 max-connections=1");
    ask(d, ACME, "PUSH b x", "-FULL token 'acme' has 4 jobs, and its max-jobs is 2*");
    ask(d, MORE, "PING", "+PONG");
    connect_client(d, OPERATOR);
    ask(d, OPERATOR, "AUTH acme acmeacme", "-FULL token 'acme' has 2 connections*");
    for (int i = 0; i < 3; i++)
        end_one(d, OTHER, "a");
    ask(d, ACME, "PUSH b x", "\"*\"");
    ask(d, ACME, "PUSH b x", "-FULL *");
    give_quotas(d, "");
    ask(d, ACME, "PUSH b x", "\"*\"");
    dialogue_destroy(d);
}

static void G13_emits_are_accepted_and_count_in_every_shard(void **state) {
    (void)state;
    struct dialogue *d = open_with("max-jobs=2");
    ask(d, ACME, "PUSH a x", "\"*\"");
    struct job j = take(d, OTHER, "a");
    send_linef(d, OTHER, "DONE %s %s EMIT b '' 1 EMIT c '' 2 EMIT d '' 3", j.id, j.token);
    expect_reply(d, OTHER, "+OK");
    turn(d);
    ask(d, ACME, "PUSH a x", "-FULL token 'acme' has 3 jobs*");
    end_one(d, OTHER, "b");
    end_one(d, OTHER, "c");
    ask(d, ACME, "PUSH a x", "\"*\"");
    dialogue_destroy(d);
}

static void G13_INFO_shows_what_a_token_uses(void **state) {
    (void)state;
    struct dialogue *d = open_with("max-jobs=10 max-bytes=1M max-connections=4");
    ask(d, ACME, "PUSH a hello", "\"*\"");
    ask(d, ACME, "PUSH b you", "\"*\"");
    ask(d, ACME, "INFO quotas",
        "\"# "
        "Quotas\\x0D\\x0Atoken:acme\\x0D\\x0Aused_stages:2\\x0D\\x0Amax_stages:0\\x0D\\x0Aused_"
        "jobs:2\\x0D\\x0A"
        "max_jobs:10\\x0D\\x0Aused_bytes:8\\x0D\\x0Amax_bytes:1048576\\x0D\\x0A*used_connections:"
        "1\\x0D\\x0A"
        "max_connections:4\\x0D\\x0A*");
    ask(d, OTHER, "INFO quotas",
        "\"# Quotas\\x0D\\x0Atoken:other\\x0D\\x0Aused_stages:0*used_jobs:0*");
    dialogue_destroy(d);
}

// ---- The list of tokens -------------------------------------------------------------------------

static void G13_a_quota_that_is_wrong_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *word, *why;
    } cases[] = {
        { "max-jobs", "'max-jobs' is not a quota" },
        { "max-job=1", "'max-job=1' is not a quota: these are max-stages=N" },
        { "jobs=1", "'jobs=1' is not a quota" },
        { "max-jobs=", "'max-jobs=' is not possible: a quota is a number from 1 to 1000000000" },
        { "max-jobs=0", "'max-jobs=0' is not possible" },
        { "max-jobs=-1", "'max-jobs=-1' is not possible" },
        { "max-jobs=1K", "'max-jobs=1K' is not possible" },
        { "max-jobs=1x", "not possible" },
        { "max-jobs=1000000000000001", "not possible" },
        { "max-jobs=18446744073709551617", "not possible" },
        { "max-bytes=1MB", "or with a unit: 512K, 64M, 2G, 1T" },
        { "max-bytes=M", "not possible" },
        { "max-bytes=1000T", "not possible" },
        { "max-bytes=99999999999999999999T", "not possible" },
        { "max-jobs=1 max-jobs=2", "max-jobs is there twice" },
    };
    struct auth *auth = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        (void)add_token(text, sizeof text, "a", cases[i].word);
        assert_int_equal(auth_parse(mr_str(text), &auth), MR_EINVAL);
        if (!strstr(error_text(), cases[i].why) || !strstr(error_text(), "line 1: "))
            fail_msg("%s: %s", cases[i].word, error_text());
    }
}

static void G13_quotas_are_read(void **state) {
    (void)state;
    struct auth *auth = tokens("max-stages=1 max-jobs=1000000000000000 max-bytes=2G");
    const struct auth_entry *e = auth_named(auth, mr_str("acme"));
    assert_true(e->has_quota && !auth_named(auth, mr_str("other"))->has_quota);
    assert_int_equal(e->quota.most.of[QUOTA_STAGES], 1);
    assert_true(e->quota.most.of[QUOTA_JOBS] == AUTH_QUOTA_MOST);
    assert_true(e->quota.most.of[QUOTA_BYTES] == UINT64_C(2) << 30);
    assert_int_equal(e->quota.most.of[QUOTA_EPICS], 0);
    assert_ptr_equal(auth_of_maker(auth, e->maker), e);
    assert_null(auth_of_maker(auth, 1));
    auth_destroy(auth);
}

int main(void) {
    const struct CMUnitTest any[] = {
        cmocka_unit_test(G13_a_token_at_its_quota_of_jobs_gets_FULL),
        cmocka_unit_test(G13_PUSHMANY_accepts_as_many_as_the_quota_allows),
        cmocka_unit_test(G13_every_quota_is_refused_by_its_name),
        cmocka_unit_test(G13_a_token_has_half_of_the_connections_without_a_quota),
        cmocka_unit_test(G13_a_reload_changes_quotas_for_open_connections),
        cmocka_unit_test(G13_emits_are_accepted_and_count_in_every_shard),
        cmocka_unit_test(G13_INFO_shows_what_a_token_uses),
    };
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(G13_a_quota_that_is_wrong_is_refused),
        cmocka_unit_test(G13_quotas_are_read),
    };
    return DIALOGUES(any, alone);
}
