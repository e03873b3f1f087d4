// A server over several shards: it answers as one over one shard does, whichever shard knows.
#include "support/dialogue.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 3, TEXT = 1 << 16 };

static int setup(void **state) {
    dialogue_shards = SHARDS;
    return dialogue_setup(state);
}

#define SHARDED(test)                                                                              \
    { #test, test, setup, dialogue_teardown, NULL }

// Stages of the first, the second and the third shard.
static const char *const stages[SHARDS] = { "s", "c", "t" };

static void push_to(struct dialogue *d, uint32_t shard, const char *words) {
    assert_int_equal(route_of(SHARDS, mr_str(stages[shard])), shard);
    send_linef(d, 1, "PUSH %s %s", stages[shard], words);
    expect_reply(d, 1, "\"*\"");
}

static void push_to_all(struct dialogue *d, const char *words) {
    for (uint32_t i = 0; i < SHARDS; i++)
        push_to(d, i, words);
}

static uint32_t shard_of(const struct job *job) {
    return route_of_id(SHARDS, strtoull(job->id, NULL, 10));
}

static void end_job(struct dialogue *d, const char *how, struct job job, const char *words) {
    send_linef(d, 0, "%s %s %s %s", how, job.id, job.token, words);
    expect_reply(d, 0, "+OK");
}

// ---- The same as one ----------------------------------------------------------------------------

// What has happened in both: three stages, many keys, deaths, waits, an epic, a pause.
static void tell(struct dialogue *d) {
    for (int i = 0; i < 30; i++) {
        send_linef(d, 1, "PUSH s %d KEY k%d ATTEMPTS 1", i, i % (1 + i % 7));
        expect_reply(d, 1, "\"*\"");
        send_linef(d, 1, "PUSH t %d EPIC e %d", i, i + 1);
        expect_reply(d, 1, "\"*\"");
    }
    push(d, "u later DELAY 1000");
    for (int i = 1; i <= 6; i++) { // an epic each, first into one stage, then into another
        send_linef(d, 1, "PUSH w x KEY k%d EPIC f%d 1", i, i);
        expect_reply(d, 1, "\"*\"");
        send_linef(d, 1, "PUSH v x KEY k0 EPIC f%d 2", i);
        expect_reply(d, 1, "\"*\"");
    }
    pass_ms(d, 40);
    for (int i = 0; i < 10; i++)
        end_job(d, "FAIL", take(d, 0, "t"), i % 2 ? "no NEVER" : "no RETRY 0");
    for (int i = 0; i < 30; i++) {
        struct job job = take(d, 0, "s");
        bool fails = strcmp(job.key, "k1") == 0;
        end_job(d, fails ? "FAIL" : "DONE", job, fails ? "broken NEVER" : "RESULT r");
    }
    ask(d, 1, "EPIC t e SKIP 31", "[*]");
    ask(d, 1, "PAUSE u", "+OK");
    pass_ms(d, 7);
}

// Rows of a reply, sorted; ids and rates are left out: they are each engine's own.
static int compare_rows(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void cut_value(char *row, const char *name) {
    for (char *at = row; (at = strstr(at, name));) {
        at += strlen(name);
        size_t size = strcspn(at, " ");
        memmove(at, at + size, strlen(at + size) + 1);
    }
}

static void sort_rows(const char *reply, char *out) {
    static char text[TEXT];
    char *rows[256], *row = NULL;
    size_t count = 0, depth = 0, used = 0;
    snprintf(text, sizeof text, "%s", reply);
    for (char *at = text; *at; at++) {
        depth += *at == '[';
        if (*at == '[' && depth == 2)
            row = at;
        if (*at == ']' && depth == 2) {
            *at = 0;
            rows[count++] = row;
        }
        depth -= *at == ']' || (!*at && depth == 2);
    }
    for (size_t i = 0; i < count; i++) {
        cut_value(rows[i], "\"id\" ");
        cut_value(rows[i], "-per-s\" ");
    }
    qsort(rows, count, sizeof *rows, compare_rows);
    *out = 0;
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(out + used, TEXT - used, "%s\n", rows[i]);
    if (!count)
        snprintf(out, TEXT, "%s", reply);
}

static void looks_equal(struct dialogue *one, struct dialogue *many, const char *words) {
    static char a[TEXT], b[TEXT];
    send_line(one, 0, words);
    sort_rows(next_reply(one, 0), a);
    send_line(many, 0, words);
    sort_rows(next_reply(many, 0), b);
    if (strcmp(a, b) != 0)
        fail_msg("%s is\n%s\nof one shard, and\n%s\nof %d", words, a, b, SHARDS);
}

// A10, A3: counts are added, lists put together; whatever is asked, the answer is that of one.
static void A10_looks_are_those_of_one_shard(void **state) {
    struct dialogue *many = *state;
    dialogue_shards = 1;
    struct dialogue *one = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    tell(one);
    tell(many);
    static const char *const asked[] = {
        "STAGES",
        "STAGES NAME t",
        "CHANNELS s TOP 20",
        "EPIC t e",
        "EPICS",
        "DEAD s",
        "DEAD t",
        "DEAD",
        "JOBS s",
        "JOBS u",
        "JOBS t STATUS waiting",
        "JOBS s KEY k1",
        "JOBS v KEY k1", // of which not every shard knows
        "JOBS v KEY k2 STATUS dead",
        "JOBS v KEY k3",
        "WHY s",
        "WHY t",
        "WHY u",
        "STAGE s",
        "WORKERS",
        "RETRY STAGE s DEAD DRY",
        "RETRY STAGE v DEAD KEY k1 DRY",
        "DROP STAGE v WAITING KEY k2 DRY",
        "DROP STAGE v WAITING KEY k3 DRY",
        "DROP STAGE nowhere WAITING KEY k3 DRY",
        "JOBS nowhere KEY k3",
        "CHANNELS nowhere",
        "EPIC s nobody",
        "DEAD nowhere",
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        looks_equal(one, many, asked[i]);
    dialogue_destroy(one);
}

// ---- Working ------------------------------------------------------------------------------------

// D2: a TAKE that waits everywhere is answered once, and waits nowhere after that.
static void D2_a_take_waits_in_all_shards_with_one_reservation(void **state) {
    struct dialogue *d = *state;
    for (uint32_t i = 0; i < SHARDS; i++) {
        send_line(d, 0, "TAKE s c t WAIT -1");
        expect_no_reply(d, 0);
        push_to(d, i, "a");
        struct job job = taken(d, 0);
        push_to(d, (i + 1) % SHARDS, "b"); // no take waits for it
        expect_no_reply(d, 0);
        end_job(d, "DONE", job, "");
        end_job(d, "DONE", take(d, 0, "s c t"), "");
    }
    push_to(d, 2, "z");
    push_to(d, 0, "x");
    push_to(d, 1, "y");
    ask(d, 0, "TAKE s c t COUNT 9 WAIT -1", "[[* \"x\" *] [* \"y\" *] [* \"z\" *]]");
}

// Says it without a turn of any loop.
static void whisper(struct dialogue *d, int client, const char *words) {
    struct session *s = d->clients[client].session;
    size_t room;
    uint8_t *to = session_room(s, &room);
    assert_true(to && room >= strlen(words));
    memcpy(to, words, strlen(words));
    host_begin(&d->host);
    session_receive(s, strlen(words));
}

// D2: work may come when a TAKE has found none and begins to wait: that is one reply, too.
static void D2_a_take_may_find_work_when_it_begins_to_wait(void **state) {
    struct dialogue *d = *state;
    for (uint32_t i = 0; i < SHARDS; i++) {
        char push[40];
        snprintf(push, sizeof push, "PUSH %s a\r\n", stages[i]);
        whisper(d, 0, "TAKE s c t WAIT -1\r\n");
        whisper(d, 1, push);
        turn(d);
        expect_reply(d, 1, "\"*\"");
        end_job(d, "DONE", taken(d, 0), "");
        push_to_all(d, "b");
        for (uint32_t k = 0; k < SHARDS; k++)
            end_job(d, "DONE", take(d, 0, "s c t WAIT -1"), "");
        ask(d, 0, "PING", "+PONG");
    }
}

// Rule 17: stages named first are served first, whichever shard has their work.
static void stages_named_first_are_served_first(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 6; i++) {
        push_to(d, 0, "x");
        push_to(d, 2, "y");
    }
    for (int i = 0; i < 12; i++)
        assert_string_equal(take(d, 0, "t s").body, i < 6 ? "y" : "x");
    ask(d, 0, "TAKE t t", "-ERR *twice*");
    push_to_all(d, "z");
    ask(d, 0, "TAKE t s t", "-ERR *twice*");
    ask(d, 0, "TAKE t s 'no name'", "-ERR *");
    ask(d, 0, "TAKE c t COUNT 0x WAIT 0", "-ERR *");
    for (uint32_t i = 0; i < SHARDS; i++) // nothing was taken
        assert_string_equal(take(d, 0, stages[i]).body, "z");
}

// Options and values of lists may be called like one another.
static void lists_of_all_shards_read_their_options_as_one_does(void **state) {
    struct dialogue *d = *state;
    static const char *const names[] = { "FROM", "COUNT", "STAGE", "NAME" };
    push_to_all(d, "x EPIC e 1");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        send_linef(d, 1, "PUSH %s x EPIC %s 1", names[i], names[i]);
        expect_reply(d, 1, "\"*\"");
        send_linef(d, 0, "STAGES NAME %s", names[i]);
        send_linef(d, 0, "STAGES COUNT 99 FROM %s COUNT 0", names[i]);
        send_linef(d, 0, "EPICS COUNT 99 STAGE %s COUNT 0 COUNT 9", names[i]);
        send_linef(d, 0, "EPICS FROM FROM FROM '%s %s' COUNT 0", names[i], names[i]);
        expect_reply(d, 0, "[[*]]");
        expect_reply(d, 0, "[]");
        expect_reply(d, 0, "[[*]]");
        expect_reply(d, 0, "[]");
    }
    ask(d, 0, "STAGES COUNT 9 COUNT 1", "[[*]]");
    ask(d, 0, "STAGES nonsense", "-ERR unknown option *");
    ask(d, 0, "STAGES COUNT", "-ERR *");
    ask(d, 0, "EPICS FROM", "-ERR *");
    for (uint32_t i = 0; i < SHARDS; i++) {
        send_linef(d, 0, "EPICS FROM '%s ' COUNT 1", stages[i]); // from the first of all
        expect_reply(d, 0, "[[*]]");
        send_linef(d, 0, "EPICS STAGE s FROM '%s e'", stages[i]);
        expect_reply(d, 0,
                     i ? "-ERR FROM takes an epic of the stage that is listed, not '*'" : "[]");
    }
}

// D5: beats of jobs of all shards, in the order of the request.
static void D5_beats_reach_all_shards(void **state) {
    struct dialogue *d = *state;
    struct job jobs[2 * SHARDS];
    for (uint32_t i = 0; i < 2 * SHARDS; i++) {
        push_to(d, i % SHARDS, "x");
        jobs[i] = take(d, 0, stages[i % SHARDS]);
    }
    char words[1024] = "BEAT";
    for (uint32_t i = 0; i < 2 * SHARDS; i++) {
        size_t used = strlen(words), room = sizeof words - used;
        int more = snprintf(words + used, room, " %s %s 77%u x", jobs[i].id, jobs[i].token, i);
        assert_in_range(more, 1, room - 1);
    }
    ask(d, 0, words, "[\"770\" \"771\" \"772\" \"773\" \"774\" \"775\"]");
    end_job(d, "DONE", jobs[1], "");
    end_job(d, "DONE", jobs[3], "");
    send_linef(d, 0, "BEAT 7 x %s %s %s %s 7 x 8 x %s %s", jobs[3].id, jobs[3].token, jobs[0].id,
               jobs[0].token, jobs[1].id, jobs[1].token);
    char gone[200];
    snprintf(gone, sizeof gone, "[\"7\" \"%s\" \"7\" \"8\" \"%s\"]", jobs[3].id, jobs[1].id);
    expect_reply(d, 0, gone);
    ask(d, 0, "BEAT nonsense x 1 x", "-ERR *");
}

static void DONEMANY_commits_jobs_of_all_shards(void **state) {
    struct dialogue *d = *state;
    struct job jobs[2 * SHARDS];
    char words[4096] = "DONEMANY 77 x", again[4096] = "DONEMANY";
    for (uint32_t i = 0; i < 2 * SHARDS; i++) {
        push_to(d, i % SHARDS, "x");
        jobs[i] = take(d, 0, stages[i % SHARDS]);
        snprintf(words + strlen(words), sizeof words - strlen(words), " %s %s", jobs[i].id,
                 i == 2 ? "x" : jobs[i].token);
        snprintf(again + strlen(again), sizeof again - strlen(again), " %s %s", jobs[i].id,
                 jobs[i].token);
    }
    ask(d, 0, words, "[-STALE * +OK +OK -STALE * +OK +OK +OK]");
    ask(d, 0, again, "[+OK +OK +OK +OK +OK +OK]");
    ask(d, 0, "DONEMANY nonsense x 1 x", "[-ERR * -STALE *]");
    ask(d, 0, "DONEMANY 1 x 2", "-ERR DONEMANY needs pairs*");
}

// F11: what a connection holds, it loses in every shard.
static void F11_a_lost_connection_gives_back_the_work_of_all_shards(void **state) {
    struct dialogue *d = *state;
    push_to_all(d, "a");
    ask(d, 0, "TAKE s c t COUNT 9", "[[*] [*] [*]]");
    ask(d, 1, "WORKERS", "[[*\"leases\" :3 *]]");
    assert_int_equal(host_leases(&d->host), 3);
    hang_up(d, 0);
    for (int i = 0; i < 3; i++)
        ask(d, 1, "TAKE s c t", "[[* \"a\" :2 *]]");
    ask(d, 1, "TAKE s c t", "[]");
}

// A9: a running job of any shard is asked to stop.
static void A9_running_jobs_of_all_shards_are_asked_to_stop(void **state) {
    struct dialogue *d = *state;
    push_to_all(d, "a");
    ask(d, 0, "HELLO 3", "{*}");
    ask(d, 0, "CLIENT CANCELS ON", "+OK");
    uint32_t seen = 0;
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct job job = take(d, 0, "s c t");
        seen |= 1u << shard_of(&job);
        send_linef(d, 1, "CANCEL %s", job.id);
        expect_reply(d, 1, ":1");
        char text[64];
        snprintf(text, sizeof text, ">[\"cancel\" \"%s\"]", job.id);
        expect_reply(d, 0, text);
        send_linef(d, 0, "DONE %s %s", job.id, job.token);
        expect_reply(d, 0, "-CANCELLED *");
    }
    assert_int_equal(seen, (1u << SHARDS) - 1);
}

// C7: bodies are fetched from the disk of the shard that has them.
static void C7_cold_bodies_come_from_every_shard(void **state) {
    (void)state;
    dialogue_shards = SHARDS;
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    for (uint32_t i = 0; i < SHARDS; i++) {
        char body[2] = { (char)('a' + i), 0 };
        push_to(d, i, body);
    }
    chill(d);
    send_line(d, 0, "TAKE s c t COUNT 3");
    expect_no_reply(d, 0);
    fetch_all(d);
    const char *reply = next_reply(d, 0);
    assert_true(strstr(reply, "\"a\"") && strstr(reply, "\"b\"") && strstr(reply, "\"c\""));
    dialogue_destroy(d);
}

// ---- Between shards -----------------------------------------------------------------------------

static void emit_to_all(struct dialogue *d, struct job job) {
    char words[512] = "";
    for (uint32_t i = 0; i < SHARDS; i++)
        for (int n = 0; n < 2; n++)
            snprintf(words + strlen(words), 64, " EMIT %s k %d", stages[i], n);
    send_linef(d, 0, "DONE %s %s%s", job.id, job.token, words);
}

// E4: emits arrive in their shards, once and in order.
static void E4_emits_travel_to_their_shards(void **state) {
    struct dialogue *d = *state;
    push(d, "a a");
    emit_to_all(d, take(d, 0, "a"));
    expect_reply(d, 0, "+OK");
    for (uint32_t i = 0; i < SHARDS; i++) {
        send_linef(d, 0, "STAGES NAME %s", stages[i]);
        expect_reply(d, 0, "[[*\"waiting\" :2 *]]");
        for (int n = 0; n < 2; n++) {
            struct job job = take(d, 0, stages[i]);
            assert_int_equal(job.body[0], '0' + n);
            end_job(d, "DONE", job, "");
        }
        send_linef(d, 0, "STAGES NAME %s", stages[i]);
        expect_reply(d, 0, "[[*\"waiting\" :0 *\"pushed\" :2 \"done\" :2 *]]");
    }
    assert_int_equal(host_next_ms(&d->host) == 0, 0); // nothing is left to do
}

// G4: what follows an epic travels to the shard of its stage.
static void G4_then_travels_to_its_shard(void **state) {
    struct dialogue *d = *state;
    for (uint32_t i = 0; i < SHARDS; i++) {
        send_linef(d, 0, "EPIC s e%u THEN %s k 'after %u'", i, stages[i], i);
        expect_reply(d, 0, "[*]");
        send_linef(d, 0, "EPIC s e%u END 0", i);
        expect_reply(d, 0, "[*\"then-pushed\" :1 *]");
        struct job job = take(d, 0, stages[i]);
        assert_int_equal(shard_of(&job), i);
        assert_int_equal(job.body[6], '0' + (int)i);
        end_job(d, "DONE", job, "");
        send_linef(d, 0, "STAGES NAME %s", stages[i]);
        expect_reply(d, 0, "[[*\"waiting\" :0 *\"pushed\" :1 \"done\" :1 *]]");
    }
}

// Rule 13: what leads to a stage of another shard is held while that is over its high mark.
static void X_a_high_mark_holds_stages_of_other_shards(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE t high-mark 2", "+OK");
    for (int i = 0; i < 4; i++)
        push_to(d, 0, "x");
    for (int i = 0; i < 2; i++)
        end_job(d, "DONE", take(d, 0, "s"), "EMIT t k y");
    ask(d, 1, "STAGES NAME s", "[[*\"held-by\" \"downstream:t\" *]]");
    send_line(d, 0, "TAKE s WAIT -1");
    expect_no_reply(d, 0);
    struct job job = take(d, 1, "t");
    send_linef(d, 1, "DONE %s %s", job.id, job.token);
    expect_reply(d, 1, "+OK");
    expect_reply(d, 0, "[[* \"x\" *]]");
}

// Rule 13: edges of a cycle do not hold starts, also when each was seen by another shard.
static void X_a_cycle_is_seen_over_all_shards(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 4; i++) {
        push_to(d, 0, "x");
        push_to(d, 2, "y");
    }
    struct job one = take(d, 0, "s"), other = take(d, 0, "t");
    ask(d, 1, "STAGE s high-mark 2", "+OK");
    ask(d, 1, "STAGE t high-mark 2", "+OK");
    end_job(d, "DONE", one, "EMIT t k y");
    end_job(d, "DONE", other, "EMIT s k x");
    take(d, 0, "s");
    take(d, 0, "t");
}

static void done_with_emit(struct dialogue *d, struct job job, const char *stage) {
    const char *reply;
    do {
        send_linef(d, 0, "DONE %s %s EMIT %s k y", job.id, job.token, stage);
        reply = next_reply(d, 0);
    } while (strcmp(reply, "+OK") != 0);
}

// F51: an edge that one shard has seen reaches the others, whichever allocation fails: it is sent
// later, or with the next emit along it.
static void F51_a_cycle_is_seen_although_memory_was_short(void **state) {
    (void)state;
    long left = -1;
    for (long n = 0; left < 0; n++) {
        dialogue_shards = SHARDS;
        struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
        for (int i = 0; i < 6; i++) {
            push_to(d, 0, "x");
            push_to(d, 2, "y");
        }
        struct job one = take(d, 0, "s"), other = take(d, 0, "t");
        (void)mem_fail_after(n);
        done_with_emit(d, one, "t");
        left = mem_fail_after(-1);
        done_with_emit(d, other, "s");
        done_with_emit(d, take(d, 0, "s"), "t");
        ask(d, 1, "STAGE s high-mark 2", "+OK");
        ask(d, 1, "STAGE t high-mark 2", "+OK");
        take(d, 0, "s");
        take(d, 0, "t");
        dialogue_destroy(d);
    }
}

// T18: what is not durable where it was emitted does not travel; and a TAKE that waits for it is
// answered when it has arrived, durably.
static void T18_an_emit_travels_when_it_is_durable(void **state) {
    (void)state;
    dialogue_shards = SHARDS;
    struct dialogue *d = dialogue_create(STORE_THREAD, (struct core_limits){ 0 });
    push(d, "a a");
    struct job job = take(d, 0, "a");
    send_line(d, 1, "TAKE c COUNT 9 WAIT -1");
    hold_syncs(d, true);
    emit_to_all(d, job);
    expect_no_reply(d, 0);
    expect_no_reply(d, 1);
    hold_syncs(d, false);
    for (int i = 0; i < 3; i++)
        turn(d);
    expect_reply(d, 0, "+OK");
    expect_reply(d, 1, "[[*]]");
    take(d, 0, "s");
    take(d, 0, "t");
    dialogue_destroy(d);
}

// E4: where one emit cannot arrive now, those before it have.
static void E4_an_arrived_message_does_not_wait_for_later_ones(void **state) {
    (void)state;
    dialogue_shards = SHARDS;
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ .max_channels = 1 });
    push(d, "t x KEY there");
    push(d, "s x");
    struct job job = take(d, 0, "s");
    end_job(d, "DONE", job, "EMIT t there a EMIT t other b");
    pass_ms(d, 200);
    ask(d, 0, "STAGES NAME t", "[[*\"waiting\" :3 *]]"); // there, arrived, on its way
    end_job(d, "DONE", take(d, 0, "t"), "");
    end_job(d, "DONE", take(d, 0, "t"), ""); // now there is room
    pass_ms(d, 200);
    assert_string_equal(take(d, 0, "t").body, "b");
    ask(d, 0, "STAGES NAME t", "[[*\"waiting\" :0 *]]");
    dialogue_destroy(d);
}

// F24: where one log has failed, nothing is accepted any more, in no shard.
static void F24_one_log_that_fails_stops_all(void **state) {
    (void)state;
    dialogue_shards = SHARDS;
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    push_to_all(d, "a");
    sim_disk_break(d->disk, SIM_SYNCS, 5);
    send_line(d, 0, "PUSH c b"); // writes to one shard only
    expect_reply(d, 0, "-STOPPED *");
    sim_disk_break(d->disk, SIM_SYNCS, 0);
    for (uint32_t i = 0; i < SHARDS; i++) {
        send_linef(d, 0, "PUSH %s b", stages[i]);
        expect_reply(d, 0, "-STOPPED *");
    }
    ask(d, 0, "STAGES NAME s", "[[*\"held-by\" \"stopped\" *]]");
    ask(d, 0, "TAKE s WAIT -1", "-STOPPED *");
    send_line(d, 0, "INFO persistence");
    const char *why = strstr(next_reply(d, 0), "log_stopped:");
    assert_true(why && strncmp(why, "log_stopped:store", 17) == 0); // the path of the log
    dialogue_destroy(d);
}

// ---- Backups ------------------------------------------------------------------------------------

static uint64_t shard_tail(const struct dialogue *d, uint32_t shard) {
    struct log_state log;
    shard_look(group_shard(d->group, shard), &log);
    return log.tail;
}

// The ends of the shards' logs in the reply to BACKUP BEGIN.
static void read_ends(struct dialogue *d, uint64_t out[SHARDS]) {
    unsigned long long a, b, c;
    const char *reply = next_reply(d, 0);
    int found = sscanf(reply, "[[:0 :%*u :%llu :%*u] [:1 :%*u :%llu :%*u] [:2 :%*u :%llu :%*u]]",
                       &a, &b, &c);
    assert_int_equal(found, SHARDS);
    out[0] = a, out[1] = b, out[2] = c;
}

// G14: an emit that is committed after the backup has begun is in no log of it, although it arrives
// in a loop that did not know of the backup when it was sent.
static void G14_a_backup_has_no_arrival_without_its_commit(void **state) {
    struct dialogue *d = *state;
    char done[160];
    uint64_t before[SHARDS], ends[SHARDS];
    push_to(d, 2, "a");
    struct job job = take(d, 1, "t");
    for (uint32_t i = 0; i < SHARDS; i++)
        before[i] = shard_tail(d, i);
    snprintf(done, sizeof done, "DONE %s %s EMIT s k x EMIT c k x\r\n", job.id, job.token);
    whisper(d, 0, "BACKUP BEGIN\r\n");
    whisper(d, 1, done);
    turn(d);
    expect_reply(d, 1, "+OK");
    read_ends(d, ends);
    for (uint32_t i = 0; i < SHARDS; i++) {
        assert_int_equal(ends[i], before[i]);
        assert_true(shard_tail(d, i) > before[i]);
    }
    ask(d, 1, "BACKUP BEGIN", "-BUSY another backup is under way*");
    ask(d, 0, "BACKUP END", "+OK");
    ask(d, 1, "BACKUP BEGIN", "[*]");
    hang_up(d, 1);
    ask(d, 0, "BACKUP BEGIN", "[*]");
}

int main(void) {
    const struct CMUnitTest one[] = {
        // these inspect the only host
        SHARDED(A10_looks_are_those_of_one_shard),
        SHARDED(F11_a_lost_connection_gives_back_the_work_of_all_shards),
        cmocka_unit_test(C7_cold_bodies_come_from_every_shard),
        cmocka_unit_test(F51_a_cycle_is_seen_although_memory_was_short),
        cmocka_unit_test(E4_an_arrived_message_does_not_wait_for_later_ones),
    };
    const struct CMUnitTest any[] = {
        SHARDED(D2_a_take_waits_in_all_shards_with_one_reservation),
        SHARDED(D2_a_take_may_find_work_when_it_begins_to_wait),
        SHARDED(stages_named_first_are_served_first),
        SHARDED(lists_of_all_shards_read_their_options_as_one_does),
        SHARDED(D5_beats_reach_all_shards),
        SHARDED(DONEMANY_commits_jobs_of_all_shards),
        SHARDED(A9_running_jobs_of_all_shards_are_asked_to_stop),
        SHARDED(E4_emits_travel_to_their_shards),
        SHARDED(G4_then_travels_to_its_shard),
        SHARDED(X_a_high_mark_holds_stages_of_other_shards),
        SHARDED(X_a_cycle_is_seen_over_all_shards),
        SHARDED(G14_a_backup_has_no_arrival_without_its_commit),
        cmocka_unit_test(T18_an_emit_travels_when_it_is_durable),
        cmocka_unit_test(F24_one_log_that_fails_stops_all),
    };
    int failed = cmocka_run_group_tests_name("one loop only", one, NULL, NULL);
    failed += cmocka_run_group_tests_name("one loop", any, NULL, NULL);
    dialogue_loops = DIALOGUE_LOOPS;
    return failed + cmocka_run_group_tests_name("three loops", any, NULL, NULL);
}
