// What a server does while its log is slow: what is not in memory is read by another thread, and
// the command goes on afterwards; other clients are served meanwhile.
#include "server/fetch.h"
#include "support/dialogue.h"
#include "support/slow_log.h"

#include <stdio.h>
#include <string.h>

enum { FETCHES = 16 };

static struct slow_plan plan;
static struct fetch *fetches[FETCHES];
static int fetch_count;

static int note_fetch(void *arg, struct fetch *f) {
    (void)arg;
    assert_true(fetch_count < FETCHES);
    fetches[fetch_count++] = f;
    return 0;
}

enum { ID_BLOCK = 8 };

static int slow_setup(void **state) {
    plan = (struct slow_plan){ 0 };
    fetch_count = 0;
    struct dialogue *d = dialogue_create(STORE_LATER, (struct core_limits){ .id_block = ID_BLOCK });
    d->options.log.wrap = slow_log_wrap;
    d->options.log.wrap_arg = &plan;
    dialogue_load(d);
    host_set_fetch(&d->host, note_fetch, NULL);
    *state = d;
    return 0;
}

// What the other thread does, and the turn after it.
static void read_all(struct dialogue *d) {
    struct fetch *now[FETCHES];
    int count = fetch_count;
    memcpy(now, fetches, sizeof now);
    fetch_count = 0;
    plan.another = true;
    for (int i = 0; i < count; i++)
        fetch_read(now[i]);
    plan.another = false;
    host_begin(&d->host);
    for (int i = 0; i < count; i++)
        fetch_end(now[i]);
    turn(d);
}

static int slow_teardown(void **state) {
    read_all(*state);
    assert_int_equal(fetch_count, 0);
    assert_int_equal(plan.unwanted, 0);
    plan.cold = plan.held = false;
    dialogue_destroy(*state);
    return 0;
}

// The client waits until another thread has read; others are served.
static void expect_after_reading(struct dialogue *d, int client, const char *reply) {
    expect_no_reply(d, client);
    assert_int_equal(fetch_count, 1);
    ask(d, 1 - client, "PING", "+PONG");
    ask(d, 1 - client, "JOBS s STATUS waiting", "*");
    read_all(d);
    expect_reply(d, client, reply);
}

static void done_with_result(struct dialogue *d, const char *result) {
    struct job job = take(d, 1, "s");
    send_linef(d, 1, "DONE %s %s RESULT %s", job.id, job.token, result);
    expect_reply(d, 1, "+OK");
}

static void fail_for_good(struct dialogue *d, const char *reason) {
    struct job job = take(d, 1, "s");
    send_linef(d, 1, "FAIL %s %s %s NEVER", job.id, job.token, reason);
    expect_reply(d, 1, "+OK");
}

static void a_result_that_is_awaited_is_read_by_another_thread(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    done_with_result(d, "r");
    plan.cold = true;
    send_line(d, 0, "AWAIT #1");
    expect_after_reading(d, 0, "\"r\"");
    ask(d, 0, "PING x", "\"x\"");
}

static void a_result_that_is_called_for_is_read_by_another_thread(void **state) {
    struct dialogue *d = *state;
    send_bytes(d, 0, mr_str("CALL s a\r\nPING x\r\n"));
    struct job job = take(d, 1, "s");
    plan.cold = true;
    send_linef(d, 1, "DONE %s %s RESULT r", job.id, job.token);
    expect_reply(d, 1, "+OK");
    expect_after_reading(d, 0, "\"r\"");
    expect_reply(d, 0, "\"x\"");
}

static void the_reason_of_a_dead_job_is_read_by_another_thread(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    fail_for_good(d, "broken");
    plan.cold = true;
    send_line(d, 0, "AWAIT #1");
    expect_after_reading(d, 0, "-DEAD broken");
}

// Commands of the same client are answered meanwhile: it does not wait for the call.
static void the_end_of_a_later_call_is_read_by_another_thread(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "HELLO 3", "*");
    ask(d, 0, "CALL s a LATER", "\"#1\"");
    ask(d, 0, "CALL s b LATER", "\"#2\"");
    done_with_result(d, "first");
    done_with_result(d, "second");
    expect_reply(d, 0, ">[\"ended\" \"#1\" \"first\"]");
    expect_reply(d, 0, ">[\"ended\" \"#2\" \"second\"]");
    ask(d, 0, "CALL s c LATER", "\"#3\"");
    ask(d, 0, "CALL s d LATER", "\"#4\"");
    struct job c = take(d, 1, "s"), e = take(d, 1, "s");
    plan.cold = true;
    send_linef(d, 1, "DONE %s %s RESULT third", c.id, c.token);
    expect_reply(d, 1, "+OK");
    send_linef(d, 1, "DONE %s %s RESULT fourth", e.id, e.token);
    expect_reply(d, 1, "+OK");
    expect_no_reply(d, 0);
    ask(d, 0, "PING", "+PONG");
    read_all(d);
    expect_reply(d, 0, ">[\"ended\" \"#3\" \"third\"]");
    expect_no_reply(d, 0);
    read_all(d);
    expect_reply(d, 0, ">[\"ended\" \"#4\" \"fourth\"]");
}

static void a_job_is_shown_when_its_parts_were_read(void **state) {
    struct dialogue *d = *state;
    push(d, "s a KEY k");
    done_with_result(d, "r");
    push(d, "s b KEY l");
    fail_for_good(d, "broken");
    plan.cold = true;
    send_line(d, 0, "JOB #1 BODY"); // the key of an ended job is in the log, too
    expect_after_reading(d, 0, "[*\"key\" \"k\" *\"result\" \"r\"]");
    send_line(d, 0, "JOB #2 BODY");
    expect_after_reading(d, 0, "[*\"text\" \"broken\"*\"body\" \"b\"]");
    send_line(d, 0, "JOB #2");
    expect_after_reading(d, 0, "[*\"text\" \"broken\"*]");
}

static void a_list_is_shown_when_its_rows_were_read(void **state) {
    struct dialogue *d = *state;
    push(d, "s a KEY k");
    push(d, "s b KEY l");
    done_with_result(d, "r");
    done_with_result(d, "r");
    push(d, "s c");
    push(d, "s d");
    fail_for_good(d, "this");
    fail_for_good(d, "that");
    plan.cold = true;
    send_line(d, 0, "JOBS s STATUS done");
    expect_after_reading(d, 0, "[[*\"key\" \"k\"*] [*\"key\" \"l\"*]]");
    send_line(d, 0, "DEAD s");
    expect_after_reading(d, 0, "[[*\"this\"*] [*\"that\"*]]");
    send_line(d, 0, "DEAD s");
    ask(d, 1, "DROP #3", ":1"); // a job that is not dead any more is left out
    read_all(d);
    expect_reply(d, 0, "[[*\"that\"*]]");
}

static void jobs_are_chosen_by_reasons_that_were_read(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 3; i++) {
        push(d, "s a");
        fail_for_good(d, i == 1 ? "that" : "this");
    }
    plan.cold = true;
    send_line(d, 0, "DROP STAGE s DEAD REASON this");
    expect_after_reading(d, 0, ":2");
    plan.cold = false;
    ask(d, 0, "DEAD s", "[[*\"that\"*]]");
}

static void a_body_that_was_moved_is_read_again(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    plan.cold = plan.gone = true;
    send_line(d, 0, "TAKE s");
    expect_no_reply(d, 0);
    read_all(d);
    expect_after_reading(d, 0, "[[\"#1\" * \"a\" *]]");
    plan.gone = true;
    send_line(d, 0, "JOB #1 BODY");
    expect_no_reply(d, 0);
    read_all(d);
    expect_after_reading(d, 0, "[*\"body\" \"a\"]");
}

static void F50_a_client_may_go_while_something_is_read_for_it(void **state) {
    struct dialogue *d = *state;
    static const char *const commands[] = { "AWAIT #1", "JOB #1 BODY", "JOBS s STATUS done",
                                            "DROP STAGE s DEAD REASON x", "DEAD s" };
    push(d, "s a");
    done_with_result(d, "r");
    push(d, "s b");
    fail_for_good(d, "x");
    plan.cold = true;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        connect_client(d, 2);
        send_line(d, 2, commands[i]);
        expect_no_reply(d, 2);
        hang_up(d, 2);
        read_all(d);
    }
    connect_client(d, 2);
    plan.cold = false;
    ask(d, 2, "HELLO 3", "*");
    ask(d, 2, "CALL s c LATER", "*");
    struct job job = take(d, 1, "s");
    plan.cold = true;
    send_linef(d, 1, "DONE %s %s RESULT r", job.id, job.token);
    expect_reply(d, 1, "+OK");
    hang_up(d, 2);
    read_all(d);
}

// A job that has failed once, and runs again.
static struct job second_attempt(struct dialogue *d, const char *take_words) {
    push(d, "s a");
    struct job job = take(d, 0, "s");
    send_linef(d, 0, "FAIL %s %s first RETRY 0", job.id, job.token);
    expect_reply(d, 0, "+OK");
    return take(d, 0, take_words);
}

static void expect_two_reasons(struct dialogue *d, const char *second) {
    char reply[100];
    snprintf(reply, sizeof reply, "[*\"text\" \"first\"*\"text\" \"%s*\"*]", second);
    plan.cold = false;
    ask(d, 1, "JOB #1", reply);
}

// FAIL records the earlier reasons again: they are read first.
static void a_job_fails_again_when_its_reasons_were_read(void **state) {
    struct dialogue *d = *state;
    struct job job = second_attempt(d, "s");
    plan.cold = true;
    send_linef(d, 0, "FAIL %s %s second RETRY 0", job.id, job.token);
    expect_no_reply(d, 0);
    ask(d, 1, "PING", "+PONG");
    read_all(d);
    expect_reply(d, 0, "+OK");
    expect_two_reasons(d, "second");
}

static void a_lease_ends_when_the_reasons_of_its_job_were_read(void **state) {
    struct dialogue *d = *state;
    (void)second_attempt(d, "s LEASE 100");
    plan.cold = true;
    pass_ms(d, 100);
    ask(d, 1, "TAKE s", "[]"); // it is still leased
    read_all(d);
    pass_ms(d, 5000);
    expect_two_reasons(d, "");
}

static void a_lost_lease_is_counted_when_the_reasons_of_its_job_were_read(void **state) {
    struct dialogue *d = *state;
    (void)second_attempt(d, "s");
    plan.cold = true;
    hang_up(d, 0);
    read_all(d);
    pass_ms(d, 5000);
    expect_two_reasons(d, "");
}

// The bodies of emits to other shards are read by another thread, too; the loop does not poll.
static void emits_are_sent_when_their_bodies_were_read(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    struct job job = take(d, 0, "s");
    plan.cold = true;
    send_linef(d, 0, "DONE %s %s EMIT t1 '' a EMIT t2 '' b EMIT t3 '' c EMIT t4 '' d", job.id,
               job.token);
    expect_reply(d, 0, "+OK");
    int64_t next_ms = dialogue_next_ms(d);
    assert_true(next_ms != 0);
    while (fetch_count)
        read_all(d);
    plan.cold = false;
    ask(d, 0, "TAKE t1 t2 t3 t4 COUNT 4", "[[*] [*] [*] [*]]");
}

// The log fetches what the cleaner wants to scan; the cleaner tries again after a while.
static void the_cleaner_waits_for_what_it_scans(void **state) {
    struct dialogue *d = *state;
    struct log_state before, after;
    char body[4001] = "";
    memset(body, 'x', sizeof body - 1);
    push(d, "other lives");
    plan.scan_cold = true;
    for (int i = 0; i < 200; i++) {
        send_linef(d, 0, "PUSH s %s", body);
        expect_reply(d, 0, "*");
        done_with_result(d, "r");
        pass_ms(d, 50);
    }
    host_look(&d->host, &before);
    uint64_t scans = plan.scans;
    assert_true(scans > 0);
    assert_true(dialogue_next_ms(d) > 0);
    turn(d);
    assert_int_equal(plan.scans, scans);
    plan.scan_cold = false;
    for (int i = 0; i < 100; i++)
        pass_ms(d, 20);
    host_look(&d->host, &after);
    assert_true(after.bytes < before.bytes / 2);
    ask(d, 0, "TAKE other", "[[*\"lives\"*]]");
}

// Everything that was written becomes durable.
static void release_log(struct dialogue *d) {
    plan.held = false;
    host_durable(&d->host);
    turn(d);
}

// Ids are issued when the record of their block is durable; it is written when half of the
// block before it is used. No turn waits for it.
static void ids_are_reserved_ahead_and_issued_when_durable(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < ID_BLOCK / 2; i++)
        push(d, "s a");
    plan.held = true;
    for (int i = 0; i < ID_BLOCK; i++)
        send_line(d, 0, "PUSH s a");
    expect_no_reply(d, 0);
    release_log(d);
    for (int i = ID_BLOCK / 2; i < ID_BLOCK; i++) {
        char id[8];
        snprintf(id, sizeof id, "\"%d\"", i + 1);
        expect_reply(d, 0, id);
    }
    for (int i = 0; i < ID_BLOCK / 2; i++)
        expect_reply(d, 0, "-FULL the log is behind*");
    ask(d, 0, "PUSH s a", "\"9\"");
    for (int i = 1; i < ID_BLOCK / 2; i++)
        push(d, "s a");
    plan.held = true;
    for (int i = 0; i <= ID_BLOCK / 2; i++)
        send_line(d, 0, "PUSH s a");
    send_line(d, 1, "PUSH s a ROOM -1"); // there is no id for it until the block is durable
    release_log(d);
    for (int i = 0; i < ID_BLOCK / 2; i++)
        expect_reply(d, 0, "\"*\"");
    expect_reply(d, 0, "-FULL the log is behind*");
    expect_reply(d, 1, "\"17\"");
    for (int i = 0; i < 5 * ID_BLOCK; i++)
        push(d, "s a");
}

// Commits go on while pushes are refused; those with ROOM wait, in order, until the log has caught
// up.
static void pushes_wait_for_a_log_that_is_behind(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    struct job job = take(d, 1, "s");
    plan.behind = true;
    ask(d, 0, "PUSH s b", "-FULL the log is behind");
    send_line(d, 0, "PUSH s c ROOM -1");
    connect_client(d, 2);
    send_line(d, 2, "PUSH t d ROOM 1000");
    connect_client(d, 3);
    send_line(d, 3, "PUSH s e ROOM 100");
    expect_no_reply(d, 0);
    expect_no_reply(d, 2);
    send_linef(d, 1, "DONE %s %s", job.id, job.token);
    expect_reply(d, 1, "+OK");
    assert_true(dialogue_next_ms(d) > 0);
    pass_ms(d, 100);
    expect_reply(d, 3, "-FULL *");
    plan.behind = false;
    host_durable(&d->host);
    turn(d);
    expect_reply(d, 0, "\"*\"");
    expect_reply(d, 2, "\"*\"");
    assert_int_equal(dialogue_next_ms(d) == 0, false);
    ask(d, 1, "TAKE s", "[[*\"c\"*]]");
    ask(d, 1, "TAKE t", "[[*\"d\"*]]");
}

// The thread of a loop waits for the disk only while no other client can notice.
static void only_for_a_single_client_the_loop_writes(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    hang_up(d, 0);
    assert_int_equal(plan.writes, 0);
    push(d, "s b");
    assert_int_equal(plan.writes, d->host.end - d->host.first == 1);
    uint64_t writes = plan.writes;
    connect_client(d, 0);
    push(d, "s c");
    assert_int_equal(plan.writes, writes);
}

#define SLOW(test)                                                                                 \
    { #test, test, slow_setup, slow_teardown, NULL }

int main(void) {
    dialogue_in_one_loop = true;
    const struct CMUnitTest any[] = {
        SLOW(a_result_that_is_awaited_is_read_by_another_thread),
        SLOW(a_result_that_is_called_for_is_read_by_another_thread),
        SLOW(the_reason_of_a_dead_job_is_read_by_another_thread),
        SLOW(the_end_of_a_later_call_is_read_by_another_thread),
        SLOW(a_job_is_shown_when_its_parts_were_read),
        SLOW(a_list_is_shown_when_its_rows_were_read),
        SLOW(jobs_are_chosen_by_reasons_that_were_read),
        SLOW(a_body_that_was_moved_is_read_again),
        SLOW(a_job_fails_again_when_its_reasons_were_read),
        SLOW(a_lease_ends_when_the_reasons_of_its_job_were_read),
        SLOW(a_lost_lease_is_counted_when_the_reasons_of_its_job_were_read),
        SLOW(emits_are_sent_when_their_bodies_were_read),
        SLOW(the_cleaner_waits_for_what_it_scans),
        SLOW(pushes_wait_for_a_log_that_is_behind),
        SLOW(only_for_a_single_client_the_loop_writes),
        SLOW(F50_a_client_may_go_while_something_is_read_for_it),
    };
    const struct CMUnitTest alone[] = {
        SLOW(ids_are_reserved_ahead_and_issued_when_durable),
    };
    return DIALOGUES(any, alone);
}
