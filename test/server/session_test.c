// Sessions: commands in the order they came, those that wait, clients that go, do not read or send
// nonsense, a store that is not there yet, and one that fails.
#include "support/dialogue.h"

#include "base/mem.h"
#include "wire/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST "\"1\"" // ids count from 1

// ---- Order --------------------------------------------------------------------------------------

static mr_bytes text(const char *s) {
    return mr_str(s);
}

static void C7_replies_come_in_the_order_of_the_commands(void **state) {
    struct dialogue *d = *state;
    send_bytes(d, 0, text("PING\r\nPUSH s a\r\nECHO x\r\nNONSENSE\r\nPING y\r\n"));
    expect_reply(d, 0, "+PONG");
    expect_reply(d, 0, FIRST);
    expect_reply(d, 0, "\"x\"");
    expect_reply(d, 0, "-ERR unknown command 'NONSENSE'*");
    expect_reply(d, 0, "\"y\"");
}

static void C7_what_follows_a_blocked_command_waits_for_it(void **state) {
    struct dialogue *d = *state;
    send_bytes(d, 0, text("PING\r\nTAKE s WAIT -1\r\nPING b\r\nPUSH s c\r\n"));
    expect_reply(d, 0, "+PONG");
    expect_no_reply(d, 0);
    ask(d, 1, "PING x", "\"x\""); // D6: everybody else is served
    push(d, "s a");
    expect_reply(d, 0, "[[\"1\" * \"s\" \"\" \"a\" :1 :-1 nil *]]");
    expect_reply(d, 0, "\"b\"");
    expect_reply(d, 0, "\"#2\"");
}

// F41: split at every byte, the replies are the same.
static void F41_requests_may_come_in_any_pieces(void **state) {
    (void)state;
    static const char requests[] =
        "*5\r\n$4\r\nPUSH\r\n$1\r\ns\r\n$5\r\nhe\r\no\r\n$3\r\nKEY\r\n$1\r\nk\r\n"
        "PING 'a b'\r\n*0\r\n\r\n"
        "*4\r\n$4\r\nTAKE\r\n$1\r\ns\r\n$4\r\nWAIT\r\n$2\r\n-1\r\n"
        "*1\r\n$7\r\nNOTHING\r\n";
    for (size_t size = 1; size < sizeof requests; size++) {
        struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
        send_in_pieces(d, 0, (mr_bytes){ requests, sizeof requests - 1 }, size);
        expect_reply(d, 0, "\"*\"");
        expect_reply(d, 0, "\"a b\"");
        expect_reply(d, 0, "[[\"*\" * \"s\" \"k\" \"he\\x0D\\x0Ao\" :1 :-1 nil *]]");
        expect_reply(d, 0, "-ERR unknown command*");
        dialogue_destroy(d);
    }
}

static void F41_what_is_no_request_closes_the_connection(void **state) {
    struct dialogue *d = *state;
    send_bytes(d, 0, text("PING\r\n*1\r\n$-5\r\nPING\r\n"));
    expect_reply(d, 0, "+PONG");
    expect_reply(d, 0, "-ERR Protocol error*");
    assert_true(d->clients[0].closed);
    connect_client(d, 0);
    send_bytes(d, 0, text("*99999999\r\n"));
    expect_reply(d, 0, "-ERR Protocol error*");
    assert_true(d->clients[0].closed);
}

static void F41_a_browser_is_sent_away(void **state) {
    struct dialogue *d = *state;
    send_bytes(d, 0, text("POST / HTTP/1.1\r\nHost: x\r\n\r\nPUSH s a\r\n"));
    expect_reply(d, 0, "-ERR this is not an HTTP server");
    assert_true(d->clients[0].closed);
    send_bytes(d, 1, text("Host: 127.0.0.1\r\nPUSH s a\r\n"));
    expect_reply(d, 1, "-ERR this is not an HTTP server");
    assert_true(d->clients[1].closed);
    connect_client(d, 0);
    ask(d, 0, "STAGES", "[]");
}

// F47, F48: every byte value, in bodies and in names.
static void F48_names_of_every_byte_are_answered(void **state) {
    struct dialogue *d = *state;
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    mr_bytes name = { all, sizeof all };
    mr_bytes words[] = { name, name, name, name };
    send_words(d, 0, words, 4);
    expect_reply(d, 0, "-ERR unknown command*");
    static const char *const commands[] = {
        "PUSH", "TAKE", "STAGE", "WHY", "EPIC", "JOBS", "DONE"
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        words[0] = text(commands[i]);
        send_words(d, 0, words, 4);
        expect_reply(d, 0, "-*");
    }
    for (int i = 0; i < 256; i++) {
        mr_bytes ping[] = { { (const char[]){ 'P', 'I', 'N', 'G', (char)i, 'X' }, 6 } };
        send_words(d, 0, ping, 1);
        expect_reply(d, 0, "-ERR unknown command*");
    }
    mr_bytes push[] = { text("PUSH"), text("s"), name, text("KEY"), name };
    send_words(d, 0, push, 5);
    expect_reply(d, 0, "\"*\"");
    char *long_name = calloc(1, 64 << 10);
    mr_bytes pause[] = { text("PAUSE"), { long_name, 64 << 10 } };
    send_words(d, 0, pause, 2);
    expect_reply(d, 0, "-ERR *");
    free(long_name);
}

// ---- Waiting ------------------------------------------------------------------------------------

// D2: a waiting TAKE is answered the moment work is there; as many wake as there is work.
static void D2_as_many_takers_wake_as_there_is_work(void **state) {
    struct dialogue *d = *state;
    for (int i = 2; i < 6; i++) {
        connect_client(d, i);
        send_line(d, i, "TAKE s WAIT -1");
        expect_no_reply(d, i);
    }
    send_line(d, 1, "PUSHMANY s ITEMS '' a '' b");
    expect_reply(d, 1, "[\"1\" \"#2\"]");
    expect_reply(d, 2, "[[\"1\" * \"a\" *]]");
    expect_reply(d, 3, "[[\"#2\" * \"b\" *]]");
    expect_no_reply(d, 4);
    expect_no_reply(d, 5);
}

static void D2_a_wait_ends_when_it_was_to(void **state) {
    struct dialogue *d = *state;
    send_line(d, 0, "TAKE s WAIT 100");
    assert_int_equal(dialogue_next_ms(d), 100);
    pass_ms(d, 99);
    expect_no_reply(d, 0);
    pass_ms(d, 1);
    expect_reply(d, 0, "[]");
    assert_true(dialogue_next_ms(d) != 0); // idle costs nothing
    pass_ms(d, 1000);
    ask(d, 0, "TAKE s WAIT 0", "[]");
    ask(d, 0, "TAKE s", "[]");
}

// The entries of waits that were answered early do not pile up.
static void D2_waits_answered_early_leave_no_timers(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 5000; i++) {
        send_line(d, 0, i % 2 ? "TAKE s WAIT 3600000" : "TAKE s WAIT 1000");
        push(d, "s a");
        expect_reply(d, 0, "[[*]]");
    }
    assert_true(d->host.waits.count <= 64);
    send_line(d, 0, "TAKE s WAIT 50");
    pass_ms(d, 50);
    expect_reply(d, 0, "[]");
}

// The slot of an ended session is used by another, which has a wait of its own.
static void F50_a_slot_left_while_waiting_is_used_again(void **state) {
    struct dialogue *d = *state;
    connect_client(d, 2);
    connect_client(d, 3);
    send_line(d, 2, "TAKE s WAIT 100");
    send_line(d, 3, "TAKE s WAIT 200");
    hang_up(d, 2);
    hang_up(d, 3);
    pass_ms(d, 100);
    connect_client(d, 4);
    connect_client(d, 5);
    send_line(d, 4, "TAKE s WAIT -1");
    send_line(d, 5, "TAKE s WAIT 200");
    pass_ms(d, 100);
    expect_no_reply(d, 4);
    expect_no_reply(d, 5);
    pass_ms(d, 100);
    expect_no_reply(d, 4);
    expect_reply(d, 5, "[]");
    push(d, "s a");
    expect_reply(d, 4, "[[*]]");
}

// A7, A1: a result in time reaches its caller, once.
static void A7_a_call_is_answered_with_the_result(void **state) {
    struct dialogue *d = *state;
    send_line(d, 0, "CALL s question");
    expect_no_reply(d, 0);
    struct job job = take(d, 1, "s");
    assert_string_equal(job.body, "question");
    send_linef(d, 1, "DONE %s %s RESULT answer", job.id, job.token);
    expect_reply(d, 1, "+OK");
    expect_reply(d, 0, "\"answer\"");
    send_linef(d, 1, "DONE %s %s RESULT other", job.id, job.token);
    expect_reply(d, 1, "+OK"); // as the first time
    ask(d, 0, "AWAIT 1", "\"answer\"");
}

// A6: at the deadline the caller gets EXPIRED with the id of the job; the late result is refused.
static void A6_a_call_ends_at_its_deadline(void **state) {
    struct dialogue *d = *state;
    send_line(d, 0, "CALL s a DEADLINE 100");
    struct job job = take(d, 1, "s");
    pass_ms(d, 99);
    expect_no_reply(d, 0);
    pass_ms(d, 1);
    expect_reply(d, 0, "-EXPIRED job 1 *");
    send_linef(d, 1, "DONE %s %s RESULT late", job.id, job.token);
    expect_reply(d, 1, "-EXPIRED *");
}

static void F13_a_call_gets_the_reason_of_its_dead_job(void **state) {
    struct dialogue *d = *state;
    send_line(d, 0, "CALL s a ATTEMPTS 1");
    struct job job = take(d, 1, "s");
    send_linef(d, 1, "FAIL %s %s 'no luck'", job.id, job.token);
    expect_reply(d, 1, "+OK");
    expect_reply(d, 0, "-DEAD no luck");
}

// A5: a job without a caller never runs.
static void A5_F50_a_call_of_a_client_that_has_gone_never_runs(void **state) {
    struct dialogue *d = *state;
    send_line(d, 0, "CALL s a");
    push(d, "s b");
    hang_up(d, 0);
    ask(d, 1, "JOB 1", "[*\"status\" \"cancelled\"*]");
    assert_string_equal(take(d, 1, "s").body, "b");
}

static void F50_a_taker_that_has_gone_gets_nothing(void **state) {
    struct dialogue *d = *state;
    send_line(d, 0, "TAKE s WAIT -1");
    hang_up(d, 0);
    push(d, "s a");
    assert_string_equal(take(d, 1, "s").body, "a");
}

// AWAIT never takes interest away: the one who calls still waits.
static void F50_an_awaiter_that_has_gone_changes_nothing(void **state) {
    struct dialogue *d = *state;
    connect_client(d, 2);
    send_line(d, 0, "CALL s a");
    send_line(d, 2, "AWAIT 1 WAIT -1");
    hang_up(d, 2);
    connect_client(d, 2);
    send_line(d, 2, "AWAIT 1 WAIT 10");
    pass_ms(d, 10);
    expect_reply(d, 2, "nil");
    ask(d, 2, "AWAIT 1", "nil");
    struct job job = take(d, 1, "s");
    send_linef(d, 1, "DONE %s %s", job.id, job.token);
    expect_reply(d, 1, "+OK");
    expect_reply(d, 0, "\"\"");
}

static void F50_a_waiting_push_of_a_client_that_has_gone_is_none(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s max-jobs 1", "+OK");
    push(d, "s a");
    connect_client(d, 2);
    send_line(d, 0, "PUSH s b ROOM -1");
    send_line(d, 2, "PUSH s c ROOM -1");
    hang_up(d, 0);
    struct job job = take(d, 1, "s");
    send_linef(d, 1, "DONE %s %s", job.id, job.token);
    expect_reply(d, 1, "+OK");
    expect_reply(d, 2, "\"*\"");
    assert_string_equal(take(d, 1, "s").body, "c");
}

static void F50_an_epics_waiter_may_go(void **state) {
    struct dialogue *d = *state;
    push(d, "s a EPIC e 1");
    send_line(d, 0, "EPIC s e WAIT -1");
    hang_up(d, 0);
    ask(d, 1, "EPIC s e END 1", "[*]");
    struct job job = take(d, 1, "s");
    send_linef(d, 1, "DONE %s %s", job.id, job.token);
    expect_reply(d, 1, "+OK");
}

// F50: also with a body larger than what is received ahead, the end of the line is noticed.
static void F50_a_large_push_that_waits_leaves_room_to_notice_the_end(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s max-jobs 1", "+OK");
    push(d, "s a");
    char *body = calloc(1, 1 << 20);
    mr_bytes words[] = { text("PUSH"), text("s"), { body, 1 << 20 }, text("ROOM"), text("-1") };
    send_words(d, 0, words, 5);
    free(body);
    expect_no_reply(d, 0);
    size_t size;
    assert_non_null(session_room(d->clients[0].session, &size));
}

// ---- Room ---------------------------------------------------------------------------------------

static void done_job(struct dialogue *d, struct job job) {
    send_linef(d, 1, "DONE %s %s", job.id, job.token);
    expect_reply(d, 1, "+OK");
}

static void done_next(struct dialogue *d, const char *body) {
    struct job job = take(d, 1, "s");
    assert_string_equal(job.body, body);
    done_job(d, job);
}

// F50, D4: who waits for room is let in one after another, in order.
static void D4_pushes_wait_for_room_in_order(void **state) {
    struct dialogue *d = *state;
    connect_client(d, 2);
    ask(d, 1, "STAGE s max-jobs 1", "+OK");
    push(d, "s a");
    send_bytes(d, 0, text("PUSH s 'b b' ROOM -1\r\nPING after\r\n")); // a line, with quotes
    send_line(d, 2, "PUSH s c ROOM 1000");
    done_next(d, "a");
    expect_reply(d, 0, "\"*\"");
    expect_reply(d, 0, "\"after\"");
    expect_no_reply(d, 2);
    pass_ms(d, 999);
    expect_no_reply(d, 2);
    pass_ms(d, 1);
    expect_reply(d, 2, "-FULL *");
    done_next(d, "b b");
    ask(d, 0, "PUSH s d ROOM 10", "\"*\"");
    ask(d, 0, "PUSH s e", "-FULL *");
    done_next(d, "d");
}

static void D4_many_go_in_as_there_is_room(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s max-jobs 2 retention 0,0", "+OK");
    send_line(d, 0, "PUSHMANY s ROOM -1 ITEMS '' a '' b '' c '' d");
    expect_no_reply(d, 0);
    done_job(d, take(d, 1, "s"));
    expect_no_reply(d, 0);
    done_job(d, take(d, 1, "s"));
    expect_reply(d, 0, "[\"*\" \"*\" \"*\" \"*\"]");
    ask(d, 0, "PUSHMANY s ITEMS '' e", "-FULL *");
    done_job(d, take(d, 1, "s"));
    ask(d, 0, "PUSHMANY s ITEMS '' e '' f '' g", "[\"*\"]"); // it stops where one did not fit
    send_line(d, 0, "PUSHMANY s ROOM 10 ITEMS '' h '' i");
    done_job(d, take(d, 1, "s"));
    pass_ms(d, 10);
    expect_reply(d, 0, "[\"*\"]");
    send_line(d, 0, "PUSHMANY s ROOM 10 ITEMS '' j");
    pass_ms(d, 10);
    expect_reply(d, 0, "-FULL *");
    done_job(d, take(d, 1, "s"));
    done_job(d, take(d, 1, "s"));
    ask(d, 1, "TAKE s", "[]");
}

// S9: items of PUSHMANY are numbered as so many pushes: repeats make no job, a refused one holds
// those behind it.
static void S9_many_have_numbers(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s max-jobs 5 retention 0,0", "+OK");
    ask(d, 0, "PUSHMANY s EPIC e 1 ITEMS k a k b k c", "[\"1\" \"2\" \"3\"]");
    ask(d, 0, "PUSHMANY s EPIC e 2 ITEMS k b k c k d", "[\"2\" \"3\" \"4\"]");
    ask(d, 0, "EPIC s e", "[\"resume\" :5 *\"accepted\" :4 *]");
    ask(d, 0, "PUSH s b EPIC e 2", "\"2\"");
    ask(d, 0, "PUSHMANY s SOURCE e 1029 ITEMS k x", "-GAP 1 is missing*"); // not the epic's numbers
    ask(d, 0, "PUSHMANY s EPIC e 5 ITEMS k e k f k g", "[\"5\"]");         // there was room for one
    ask(d, 0, "PUSHMANY s EPIC e 8 ITEMS k h k i", "-GAP 6 *");
    ask(d, 0, "PUSHMANY s EPIC e 6 ITEMS k f k g", "-FULL *");
    for (int i = 0; i < 4; i++)
        done_job(d, take(d, 1, "s"));
    ask(d, 0, "PUSH s f EPIC e 6", "\"6\"");
    ask(d, 0, "PUSH s h EPIC e 8", "-GAP 7 *"); // which was refused with the one before it
    ask(d, 0, "PUSHMANY s EPIC e 6 ITEMS k f k g k h", "[\"6\" \"7\" \"8\"]");
    send_line(d, 0, "PUSHMANY s ROOM -1 EPIC e 9 ITEMS k i k j k k");
    expect_no_reply(d, 0);
    for (int i = 0; i < 2; i++)
        done_job(d, take(d, 1, "s"));
    expect_reply(d, 0, "[\"9\" \"10\" \"11\"]");
    ask(d, 0, "EPIC s e", "[\"resume\" :12 *\"accepted\" :11 *]");
}

// S9: numbers far beyond one that is missing are refused: the array ends before them.
static void S9_many_end_before_a_gap(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s a SOURCE c 1", "\"*\"");
    ask(d, 0, "PUSHMANY s SOURCE c 1025 ITEMS k x k y", "[\"*\"]");
    ask(d, 0, "PUSHMANY s SOURCE c 1026 ITEMS k y", "-GAP 2 is missing*");
    ask(d, 0, "PUSH s b SOURCE c 2", "\"*\"");
    ask(d, 0, "PUSHMANY s SOURCE c 1026 ITEMS k y", "[\"*\"]");
    ask(d, 0, "PUSHMANY s SOURCE c 9 EPIC e 1 ITEMS k a", "-ERR * not by both");
    ask(d, 0, "PUSHMANY s SOURCE '' 1 ITEMS k a", "-ERR SOURCE needs a name*");
    ask(d, 0, "PUSHMANY s EPIC e ITEMS k a", "-ERR *");
    ask(d, 0, "PUSHMANY s EPIC e 0 ITEMS k a", "-ERR *");
}

// A8: the limit is absolute from hand-in, however long there was no room.
static void A8_a_deadline_counts_while_a_push_waits_for_room(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s max-jobs 1", "+OK");
    push(d, "s a");
    send_line(d, 0, "CALL s b ROOM -1 DEADLINE 100");
    pass_ms(d, 60);
    done_next(d, "a");
    expect_no_reply(d, 0);
    ask(d, 1, "JOB #2", "[*\"left-ms\" :40 *]");
    pass_ms(d, 40);
    expect_reply(d, 0, "-EXPIRED *");
    push(d, "s c");
    send_line(d, 0, "PUSH s d ROOM 1000 DEADLINE 50");
    pass_ms(d, 50);
    expect_reply(d, 0, "-EXPIRED *");
    done_next(d, "c");
    push(d, "s e");
    send_line(d, 0, "PUSH s f ROOM 1000 DELAY 100");
    pass_ms(d, 30);
    done_next(d, "e");
    expect_reply(d, 0, "\"*\"");
    ask(d, 1, "JOBS s STATUS delayed", "[[*\"due-ms\" :70 *]]");
}

// ---- Leases -------------------------------------------------------------------------------------

// F11, D5: a lost connection gives its work back at once, unless it was taken DETACHED.
static void F11_D5_a_lost_connection_gives_its_work_back_at_once(void **state) {
    struct dialogue *d = *state;
    push(d, "s a KEY k");
    push(d, "s b KEY k");
    push(d, "s c KEY l");
    take(d, 0, "s");
    struct job kept = take(d, 0, "s DETACHED");
    hang_up(d, 0);
    ask(d, 1, "TAKE s",
        "[[\"1\" * \"k\" \"a\" :2 *]]"); // the second attempt, and nothing before it
    ask(d, 1, "TAKE s", "[]");
    send_linef(d, 1, "DONE %s %s", kept.id, kept.token); // tokens hold on any connection
    expect_reply(d, 1, "+OK");
}

// F7: a late DONE of the first delivery does not end the second.
static void F7_a_token_that_is_over_changes_nothing(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    struct job late = take(d, 0, "s LEASE 100");
    pass_ms(d, 100);
    pass_ms(d, 10000); // its backoff
    struct job now = take(d, 1, "s");
    assert_string_equal(late.id, now.id);
    send_linef(d, 0, "DONE %s %s", late.id, late.token);
    expect_reply(d, 0, "-STALE *");
    send_linef(d, 0, "FAIL %s %s no", late.id, late.token);
    expect_reply(d, 0, "-STALE *");
    send_linef(d, 0, "RELEASE %s %s", late.id, late.token);
    expect_reply(d, 0, "-STALE *");
    send_linef(d, 0, "BEAT %s %s", late.id, late.token);
    expect_reply(d, 0, "[\"1\"]");
    send_linef(d, 1, "BEAT %s %s", now.id, now.token);
    expect_reply(d, 1, "[]");
    send_linef(d, 0, "DONE %s %s", now.id, "AAAA");
    expect_reply(d, 0, "-STALE *");
    send_linef(d, 1, "DONE %s %s", now.id, now.token);
    expect_reply(d, 1, "+OK");
}

// F9: a job longer than its lease continues with beats.
static void F9_beats_keep_a_lease(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    struct job job = take(d, 0, "s LEASE 100");
    for (int i = 0; i < 10; i++) {
        pass_ms(d, 90);
        send_linef(d, 0, "BEAT %s %s", job.id, job.token);
        expect_reply(d, 0, "[]");
    }
    send_linef(d, 0, "DONE %s %s", job.id, job.token);
    expect_reply(d, 0, "+OK");
}

// A9: a running job is asked to stop: by push message, or with the next beat.
static void A9_a_running_job_is_asked_to_stop(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    push(d, "s b");
    ask(d, 0, "CLIENT CANCELS ON", "-ERR *HELLO 3*");
    ask(d, 0, "HELLO 3", "{*}");
    struct job silent = take(d, 0, "s");
    ask(d, 1, "CANCEL 1", ":1");
    expect_no_reply(d, 0);
    send_linef(d, 0, "BEAT %s %s", silent.id, silent.token);
    expect_reply(d, 0, "[\"1\"]");
    ask(d, 0, "CLIENT CANCELS ON", "+OK");
    take(d, 0, "s");
    send_line(d, 0, "TAKE s WAIT -1");
    ask(d, 1, "CANCEL #2", ":1");
    expect_reply(d, 0, ">[\"cancel\" \"#2\"]"); // although it waits for work
    ask(d, 1, "CANCEL #2", ":0");
    push(d, "s c");
    expect_reply(d, 0, "[[\"#3\" *]]");
    ask(d, 0, "HELLO 2", "[*]");
    ask(d, 1, "CANCEL #3", ":1");
    expect_no_reply(d, 0); // RESP2 has no such messages
}

// D1: workers come and go in the middle of an epic, and all of it is done.
static void D1_T11_workers_come_and_go_and_all_is_done(void **state) {
    struct dialogue *d = *state;
    for (int i = 1; i <= 5; i++) {
        send_linef(d, 1, "PUSH s %d EPIC e %d", i, i);
        expect_reply(d, 1, "\"*\"");
    }
    ask(d, 1, "EPIC s e END 5", "[\"resume\" :6 \"total\" :5 *]");
    send_line(d, 1, "EPIC s e WAIT -1");
    for (int i = 2; i <= 4; i++)
        connect_client(d, i);
    take(d, 2, "s");
    struct job b = take(d, 3, "s"), c = take(d, 4, "s");
    hang_up(d, 2); // with the first
    send_linef(d, 3, "DONE %s %s", b.id, b.token);
    expect_reply(d, 3, "+OK");
    send_linef(d, 4, "DONE %s %s", c.id, c.token);
    expect_reply(d, 4, "+OK");
    for (int i = 0; i < 3; i++) {
        expect_no_reply(d, 1);
        struct job job = take(d, 3, "s");
        send_linef(d, 3, "DONE %s %s", job.id, job.token);
        expect_reply(d, 3, "+OK");
    }
    expect_reply(d, 1, "[*\"done\" :5 \"dead\" :0 *]");
}

// T10: a worker that asks twice is one worker, and is given no more than it has asked for.
static void T10_a_worker_that_asks_twice_is_one(void **state) {
    struct dialogue *d = *state;
    connect_client(d, 2);
    send_line(d, 2, "TAKE s WAIT -1");
    send_line(d, 2, "TAKE s WAIT -1");
    ask(d, 0, "WORKERS", "[[*]]");
    push(d, "s a");
    expect_reply(d, 2, "[[\"1\" *]]");
    expect_no_reply(d, 2);
    push(d, "s b");
    expect_reply(d, 2, "[[\"#2\" *]]");
    push(d, "s c");
    expect_no_reply(d, 2);
    ask(d, 0, "WORKERS", "[[*]]");
}

// T13: a result whose receipt was not confirmed is sent again, counts once, and then there is more.
static void T13_a_DONE_is_repeated_until_it_is_answered(void **state) {
    struct dialogue *d = *state;
    push(d, "s a EPIC e 1");
    push(d, "s b EPIC e 2");
    struct job job = take(d, 1, "s");
    d->clients[1].unread = true;
    send_linef(d, 1, "DONE %s %s RESULT first", job.id, job.token);
    hang_up(d, 1); // it has not received it
    connect_client(d, 2);
    for (int i = 0; i < 3; i++) {
        send_linef(d, 2, "DONE %s %s RESULT again", job.id, job.token);
        expect_reply(d, 2, "+OK");
    }
    send_linef(d, 2, "AWAIT %s", job.id);
    expect_reply(d, 2, "\"first\"");
    ask(d, 2, "EPIC s e", "[*\"waiting\" :1 \"running\" :0 \"done\" :1 *]");
    assert_string_equal(take(d, 2, "s").body, "b");
}

// T14: of what a dead worker had taken, only what it had not confirmed goes to another.
static void T14_unconfirmed_go_to_another_worker_confirmed_do_not(void **state) {
    struct dialogue *d = *state;
    for (int i = 1; i <= 3; i++) {
        send_linef(d, 0, "PUSH s %d EPIC e %d", i, i);
        expect_reply(d, 0, "\"*\"");
    }
    struct job one = take(d, 1, "s");
    take(d, 1, "s");
    take(d, 1, "s");
    send_linef(d, 1, "DONE %s %s", one.id, one.token);
    expect_reply(d, 1, "+OK");
    hang_up(d, 1);
    connect_client(d, 2);
    int first = take(d, 2, "s").body[0], second = take(d, 2, "s").body[0];
    assert_true((first == '2' && second == '3') || (first == '3' && second == '2'));
    ask(d, 2, "TAKE s", "[]");
    ask(d, 0, "EPIC s e", "[*\"running\" :2 \"done\" :1 *]");
}

// T15: a caller gets the end although the worker disconnects in the same turn.
static void T15_a_confirmation_arrives_even_if_the_worker_dies_afterwards(void **state) {
    struct dialogue *d = *state;
    push(d, "s a EPIC e 1");
    ask(d, 0, "EPIC s e END 1", "[*]");
    send_line(d, 0, "EPIC s e WAIT -1");
    connect_client(d, 2);
    send_line(d, 2, "AWAIT 1 WAIT -1");
    struct job job = take(d, 1, "s");
    d->clients[1].unread = true;
    send_linef(d, 1, "DONE %s %s RESULT r", job.id, job.token);
    hang_up(d, 1);
    expect_reply(d, 0, "[*\"done\" :1 *]");
    expect_reply(d, 2, "\"r\"");
}

// ---- Those who do not read
// ------------------------------------------------------------------------

// F43: a session with unread replies runs no commands, and its memory is bounded.
static void F43_a_session_with_unread_replies_runs_no_commands(void **state) {
    struct dialogue *d = *state;
    struct client *c = &d->clients[0];
    char *kilobyte = calloc(1, 1025);
    memset(kilobyte, 'x', 1024);
    struct buffer request = { 0 };
    mr_bytes echo[] = { text("ECHO"), { kilobyte, 1024 } };
    assert_int_equal(request_write(&request, echo, 2), 0);
    c->unread = true;
    size_t sent = 0, room;
    while (session_room(c->session, &room)) {
        send_bytes(d, 0, buffer_bytes(&request));
        assert_true(++sent < 1000);
    }
    assert_true(c->session->out.size <= LIMIT_UNSENT_PAUSE + 2048);
    assert_true(c->session->in.size <= 2 * READ_SIZE);
    ask(d, 1, "PING", "+PONG");
    c->unread = false;
    session_touch(c->session); // the socket takes more
    turn(d);
    for (size_t i = 0; i < sent; i++)
        assert_int_equal(strlen(next_reply(d, 0)), 1026);
    assert_non_null(session_room(c->session, &room));
    buffer_finish(&request);
    free(kilobyte);
}

// F43: the room that is kept for a client that does not read is used: others wait. (It rests
// because of a message that came while it waited.)
static void F43_a_waiting_push_is_made_although_replies_are_unread(void **state) {
    struct dialogue *d = *state;
    struct client *c = &d->clients[0];
    static char large[LIMIT_UNSENT_PAUSE];
    memset(large, 'x', sizeof large);
    ask(d, 1, "STAGE s max-jobs 1", "+OK");
    push(d, "other a");
    ask(d, 0, "HELLO 3", "{*}");
    ask(d, 0, "CLIENT CANCELS ON", "+OK");
    struct job job = take(d, 0, "other");
    push(d, "s a");
    c->unread = true;
    mr_bytes echo[] = { text("ECHO"), { large, sizeof large - 16 } };
    send_words(d, 0, echo, 2);
    send_line(d, 0, "PUSH s b ROOM -1");
    assert_true(wait_is_open(c->session) || c->session->route);
    send_linef(d, 1, "CANCEL %s", job.id);
    expect_reply(d, 1, ":1");
    assert_true(c->session->out.size > LIMIT_UNSENT_PAUSE);
    done_next(d, "a");
    done_next(d, "b");
    ask(d, 1, "PUSH s c", "\"*\"");
}

// ---- What is on the disk only
// ---------------------------------------------------------------------

static struct dialogue *dialogue_cold(void) {
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    push(d, "s a KEY k");
    push(d, "s b KEY k");
    push(d, "s c");
    chill(d);
    return d;
}

// C7: replies keep their order while the disk is read, and other clients are served.
static void C7_a_cold_body_holds_up_its_own_connection_only(void **state) {
    (void)state;
    struct dialogue *d = dialogue_cold();
    send_bytes(d, 0, text("PING\r\nTAKE s COUNT 3 BATCH 2\r\nPING x\r\n"));
    expect_reply(d, 0, "+PONG");
    expect_no_reply(d, 0);
    assert_int_equal(d->fetch_count, 1);
    ask(d, 1, "PING", "+PONG");
    ask(d, 1, "TAKE s", "[]"); // they are leased
    fetch_all(d);
    expect_reply(d, 0,
                 "[[\"1\" * \"s\" \"k\" \"a\" :1 *] [\"2\" * \"b\" *] [\"3\" * \"\" \"c\" *]]");
    expect_reply(d, 0, "\"x\"");
    dialogue_destroy(d);
}

static void C7_a_cold_job_is_shown_when_it_was_read(void **state) {
    (void)state;
    struct dialogue *d = dialogue_cold();
    send_bytes(d, 0, text("JOB 3 BODY\r\nJOB 3\r\nJOB 99 BODY\r\n"));
    expect_no_reply(d, 0);
    ask(d, 1, "JOB 3", "[*]");
    fetch_all(d);
    expect_reply(d, 0, "[*\"body\" \"c\"]");
    expect_reply(d, 0, "[*]");
    expect_reply(d, 0, "-GONE *");
    dialogue_destroy(d);
}

// F50: the client goes while its jobs are read: they return as after any lost connection.
static void F50_a_client_may_go_while_its_jobs_are_read(void **state) {
    (void)state;
    struct dialogue *d = dialogue_cold();
    connect_client(d, 2);
    send_line(d, 0, "TAKE s");
    send_line(d, 2, "JOB 3 BODY");
    hang_up(d, 0);
    hang_up(d, 2);
    fetch_all(d);
    send_line(d, 1, "TAKE s");
    fetch_all(d);
    expect_reply(d, 1, "[[\"1\" * \"a\" :2 *]]");
    dialogue_destroy(d);
}

// F8: a lease starts when its job was read; a job that was cancelled by then is not sent.
static void F8_leases_are_renewed_when_their_jobs_were_read(void **state) {
    (void)state;
    struct dialogue *d = dialogue_cold();
    send_line(d, 0, "TAKE s BATCH 2 COUNT 2 LEASE 100");
    pass_ms(d, 90);
    ask(d, 1, "CANCEL 1", ":1");
    fetch_all(d);
    const char *reply = next_reply(d, 0); // the second of the block only
    char token[40];
    assert_int_equal(sscanf(reply, "[[\"2\" \"%39[^\"]\"", token), 1);
    pass_ms(d, 90);
    send_linef(d, 0, "DONE 2 %s", token);
    expect_reply(d, 0, "+OK");
    dialogue_destroy(d);
}

static void F8_a_lease_that_ended_while_its_job_was_read_is_not_sent(void **state) {
    (void)state;
    struct dialogue *d = dialogue_cold();
    send_line(d, 0, "TAKE s LEASE 100");
    pass_ms(d, 100);
    fetch_all(d);
    expect_reply(d, 0, "[]");
    ask(d, 1, "JOB 1", "[*\"status\" \"waiting\" \"attempt\" :1 *]");
    dialogue_destroy(d);
}

// The state of a block comes with the first job that is sent.
static void F8_the_state_of_a_block_is_not_lost_with_its_first_job(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    push(d, "s a KEY k");
    struct job first = take(d, 0, "s");
    send_linef(d, 0, "DONE %s %s STATE seven", first.id, first.token);
    expect_reply(d, 0, "+OK");
    push(d, "s b KEY k");
    push(d, "s c KEY k");
    chill(d);
    send_line(d, 0, "TAKE s COUNT 2 BATCH 2");
    ask(d, 1, "CANCEL 2", ":1");
    fetch_all(d);
    expect_reply(d, 0, "[[\"3\" * \"c\" :1 :-1 \"seven\" *]]");
    dialogue_destroy(d);
}

// Changes these bytes where they lie on the disk.
static void spoil(struct dialogue *d, const char *bytes) {
    uint64_t size = 0;
    uint8_t *file = sim_disk_file(d->disk, "store/0000000000000000.seg", &size);
    assert_non_null(file);
    uint8_t *found = memmem(file, size, bytes, strlen(bytes));
    assert_non_null(found);
    *found ^= 1;
    sim_disk_touch(d->disk, "store/0000000000000000.seg");
}

// F22: a damaged body affects only its own job, at any place in a block: that job is dead, those
// before it are sent, and those after it run later.
static void F22_a_damaged_body_does_not_hold_up_its_block(void **state) {
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
        for (int i = 0; i < 3; i++) {
            send_linef(d, 0, "PUSH s body-%d KEY k", i);
            expect_reply(d, 0, "\"*\"");
        }
        spoil(d, (char[]){ 'b', 'o', 'd', 'y', '-', (char)('0' + bad), 0 });
        chill(d);
        for (int next = 0, tries = 0; next < 3 && tries < 6; tries++) {
            char token[40], body;
            next += next == bad;
            send_line(d, 0, "TAKE s COUNT 3 BATCH 3");
            fetch_all(d);
            char reply[1000];
            snprintf(reply, sizeof reply, "%s", next_reply(d, 0));
            for (const char *job = reply; (job = strstr(job, "[\"")) != NULL; job++, next++) {
                assert_int_equal(
                    sscanf(job, "[\"%*d\" \"%39[^\"]\" \"s\" \"k\" \"body-%c\" :1", token, &body),
                    2);
                assert_int_equal(body, '0' + next);
                send_linef(d, 1, "DONE %d %s", next + 1, token);
                expect_reply(d, 1, "+OK");
            }
        }
        ask(d, 0, "STAGES NAME s",
            "[[*\"waiting\" :0 \"running\" :0 * \"dead\" :1 * \"done\" :2 *]]");
        dialogue_destroy(d);
    }
}

// F51: without memory to read it elsewhere the loop does not wait for the disk.
static void F51_without_memory_to_fetch_a_body_the_client_gets_an_error(void **state) {
    (void)state;
    struct dialogue *d = dialogue_cold();
    ask(d, 0, "PING", "+PONG");
    for (long n = 0; n < 4; n++) {
        mem_fail_after(n);
        send_line(d, 0, "JOB #3 BODY");
        mem_fail_after(-1);
        fetch_all(d);
        if (d->clients[0].session) {
            const char *reply = next_reply(d, 0);
            assert_true(strstr(reply, "\"body\"") || strncmp(reply, "-FULL ", 6) == 0);
        } else { // what it has got of a reply is lost with its connection
            buffer_clear(&d->clients[0].received);
            connect_client(d, 0);
        }
    }
    dialogue_destroy(d);
}

// F24: the log fails meanwhile: the session is answered once.
static void F24_a_log_that_fails_while_a_body_is_read(void **state) {
    (void)state;
    struct dialogue *d = dialogue_cold();
    send_line(d, 0, "TAKE s");
    sim_disk_break(d->disk, SIM_SYNCS, 5);
    send_line(d, 1, "PUSH s x");
    expect_reply(d, 1, "-STOPPED *");
    expect_no_reply(d, 0);
    fetch_all(d);
    expect_reply(d, 0, "[[\"1\" *]]");
    dialogue_destroy(d);
}

// ---- Before the store is there
// --------------------------------------------------------------------

static void T17_while_the_store_is_read_clients_get_LOADING(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_LATER, (struct core_limits){ 0 });
    ask(d, 0, "PING", "+PONG");
    ask(d, 0, "PUSH s a", "-LOADING *");
    ask(d, 0, "TAKE s WAIT -1", "-LOADING *");
    ask(d, 0, "STAGES", "-LOADING *");
    ask(d, 0, "INFO persistence", "*loading:1*");
    ask(d, 0, "HELLO 3", "{*}");
    assert_int_equal(dialogue_next_ms(d), -1);
    // Replies that were not read and then are: what follows them is run.
    struct client *c = &d->clients[0];
    static char large[LIMIT_UNSENT_PAUSE + 1];
    memset(large, 'x', sizeof large);
    struct buffer both = { 0 };
    mr_bytes echo[] = { text("ECHO"), { large, sizeof large } }, ping[] = { text("PING") };
    assert_int_equal(request_write(&both, echo, 2), 0);
    assert_int_equal(request_write(&both, ping, 1), 0);
    c->unread = true;
    send_bytes(d, 0, buffer_bytes(&both));
    c->unread = false;
    session_touch(c->session);
    turn(d);
    expect_reply(d, 0, "\"xxx*");
    expect_reply(d, 0, "+PONG");
    buffer_finish(&both);
    dialogue_load(d);
    ask(d, 0, "PUSH s a", FIRST);
    ask(d, 0, "INFO", "*loading:0*");
    hang_up(d, 0);
    dialogue_destroy(d);
}

// U18: a numbered push that is refused holds its source on that connection, whatever it was for.
static void U18_a_refusal_holds_its_source(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_LATER, (struct core_limits){ 0 });
    ask(d, 0, "PUSH s 1 KEY k EPIC e 1", "-LOADING *");
    ask(d, 0, "PUSH s 2 KEY k EPIC e 2", "-GAP 1 *");
    dialogue_load(d);
    ask(d, 0, "PUSH s 3 KEY k EPIC e 3", "-GAP 1 *");
    ask(d, 1, "PUSH s x KEY EPIC SOURCE f 1 ONCE SOURCE", "\"*"); // others do not wait for it
    ask(d, 0, "PUSH s 1 KEY k EPIC e 1", "\"*");
    ask(d, 0, "PUSH s 4 KEY k EPIC e 4", "-GAP 2 *"); // nor may it overtake what it held up
    ask(d, 1, "PUSH s 2 KEY k EPIC e 2", "\"*");
    ask(d, 1, "PUSH s 3 KEY k EPIC e 3", "\"*");
    ask(d, 0, "PUSH s 4 KEY k EPIC e 4", "\"*");
    ask(d, 0, "PUSH s 5 KEY k NONSENSE EPIC e 5", "-ERR *");
    ask(d, 0, "PUSH s 6 KEY k EPIC e 6", "-GAP 5 *");
    ask(d, 1, "PUSH s 7 KEY k EPIC e 7", "\"*");
    ask(d, 0, "PUSH s 7 KEY k EPIC e 7", "\"*"); // a repeat makes nothing
    ask(d, 0, "EPIC s e SKIP 5", "[*]");
    ask(d, 0, "PUSH s 8 EPIC e 8", "-GAP 6 *");
    ask(d, 0, "PUSH s 6 KEY k EPIC e 6", "\"*");
    ask(d, 0, "PUSH s 7 KEY k EPIC e 7", "\"*");
    ask(d, 0, "PUSH s 8 KEY k EPIC e 8", "\"*");
    dialogue_destroy(d);
}

// U18: of more sources than a connection keeps apart, none is accepted that might have been
// refused; the connection stays.
static void U18_a_connection_holds_so_many_sources(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    ask(d, 0, "PUSH s x SOURCE before 1", FIRST);
    for (int i = 0; i <= HOLDS_MOST; i++) {
        send_linef(d, 0, "PUSH s x NONSENSE SOURCE s%d 1", i);
        expect_reply(d, 0, "-ERR *");
    }
    ask(d, 0, "PUSH s x SOURCE s16 2", "-FULL *more than 16 sources*connect again");
    ask(d, 0, "PUSH s x SOURCE s16 1", "-FULL *");
    ask(d, 0, "PUSH s x EPIC e 1", "-FULL *");
    ask(d, 0, "PUSH s x SOURCE before 1", FIRST); // a repeat
    ask(d, 0, "PUSH s x SOURCE s3 2", "-GAP 1 *");
    ask(d, 0, "PUSH s x SOURCE s3 1", "\"*"); // held ones go on
    ask(d, 0, "PUSH s x SOURCE s3 2", "\"*");
    ask(d, 0, "PUSH s x SOURCE s3 3", "-FULL *"); // it is held no more, and so not known
    ask(d, 0, "PUSH s x", "\"*");
    hang_up(d, 0);
    connect_client(d, 0);
    ask(d, 0, "PUSH s x SOURCE s16 1", "\"*");
    dialogue_destroy(d);
}

// ---- The log
// --------------------------------------------------------------------------------------

// T18: a reply is sent after storage, to any client.
static void T18_nothing_is_shown_before_it_is_durable(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_THREAD, (struct core_limits){ 0 });
    connect_client(d, 2);
    push(d, "s first"); // ids are reserved
    take(d, 1, "s");
    send_line(d, 2, "TAKE s WAIT -1");
    hold_syncs(d, true);
    send_line(d, 0, "PUSH s a");
    turn(d);
    expect_no_reply(d, 0);
    expect_no_reply(d, 2); // nor is the job leased to a worker
    send_line(d, 1, "STAGES");
    expect_no_reply(d, 1); // nor to a client that reads
    hold_syncs(d, false);
    expect_reply(d, 0, "\"#2\"");
    expect_reply(d, 1, "[[*]]");
    expect_reply(d, 2, "[[\"#2\" *]]");
    dialogue_destroy(d);
}

// What is about the server or the connection does not wait, so that it can be asked what a change
// waits for; but replies keep their order.
static void replies_about_the_server_do_not_wait_for_the_log(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_THREAD, (struct core_limits){ 0 });
    push(d, "s first"); // ids are reserved
    connect_client(d, 2);
    ask(d, 2, "MULTI", "+OK");
    ask(d, 2, "STAGES", "+QUEUED");
    hold_syncs(d, true);
    send_line(d, 0, "PUSH s a");
    turn(d);
    send_line(d, 0, "PING");
    send_line(d, 1, "PING");
    send_line(d, 1, "INFO persistence");
    expect_reply(d, 1, "+PONG");
    expect_reply(d, 1, "*log_full:0*");
    send_line(d, 2, "EXEC");
    expect_no_reply(d, 2);
    expect_no_reply(d, 0);
    hold_syncs(d, false);
    expect_reply(d, 0, "\"#2\"");
    expect_reply(d, 0, "+PONG");
    expect_reply(d, 2, "[[[*]]]");
    dialogue_destroy(d);
}

// T18: also when more turns have been written than the host records separately.
static void T18_however_many_turns_wait_for_the_disk(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_THREAD, (struct core_limits){ 0 });
    push(d, "s first KEY k"); // ids are reserved
    uint32_t shard = route_of(dialogue_shards, mr_str("s"));
    const struct part *p = &d->host.parts[shard];
    hold_syncs(d, true);
    send_line(d, 0, "PUSH s x KEY k");
    sim_disk_await_sync(d->disk); // the others are for the next one
    for (int i = 1; i < PART_TURNS; i++)
        send_line(d, 0, "PUSH s x KEY k");
    uint64_t last_at = p->last_at;
    sim_disk_let_sync(d->disk);
    sim_disk_await_sync(d->disk);
    turn(d);
    expect_reply(d, 0, "\"*\"");
    for (int i = 0; i < 3; i++) // the last ones are one
        send_line(d, 1, "PUSH s y KEY k");
    sim_disk_let_sync(d->disk);
    assert_int_equal(shard_wait(p->shard, last_at), 0);
    turn(d);
    for (int i = 1; i < PART_TURNS; i++)
        expect_reply(d, 0, "\"*\"");
    expect_no_reply(d, 1); // none of these is durable
    hold_syncs(d, false);
    for (int i = 0; i < 3; i++)
        expect_reply(d, 1, "\"*\"");
    dialogue_destroy(d);
}

// F24: when the log fails, every reply that was held back is STOPPED, and only those.
static void F24_held_replies_become_errors_when_the_log_fails(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    for (int i = 2; i < 8; i++)
        connect_client(d, i);
    push(d, "s a KEY k");
    struct job job = take(d, 7, "s");
    send_line(d, 2, "TAKE other WAIT -1");
    send_line(d, 3, "CALL calls b");
    send_line(d, 4, "AWAIT 1 WAIT -1");
    ask(d, 1, "STAGE full max-jobs 1", "+OK");
    push(d, "full c");
    send_line(d, 5, "PUSH full d ROOM -1");
    push(d, "s e EPIC e 1");
    send_line(d, 6, "EPIC s e WAIT -1");
    sim_disk_break(d->disk, SIM_SYNCS, 5);
    send_bytes(d, 0, text("PUSH s f\r\nPUSH s g\r\nNONSENSE\r\n"));
    expect_reply(d, 0, "-STOPPED *");
    expect_reply(d, 0, "-STOPPED *");
    expect_reply(d, 0,
                 dialogue_loops > 1 ? "-ERR *" : "-STOPPED *"); // its own loop has written nothing
    expect_no_reply(d, 0);
    for (int i = 2; i <= 6; i++) { // these takes would get no job
        expect_reply(d, i, "-STOPPED *");
        expect_no_reply(d, i);
    }
    ask(d, 0, "PUSH s h", "-STOPPED *");
    ask(d, 0, "TAKE s", "-STOPPED *");
    send_linef(d, 0, "DONE %s %s", job.id, job.token);
    expect_reply(d, 0, "-STOPPED *");
    ask(d, 0, "EPIC s e WAIT 10", "-STOPPED *");
    ask(d, 0, "EPIC s e END 1", "-STOPPED *");
    ask(d, 0, "AWAIT 1 WAIT 10", "-STOPPED *");
    ask(d, 0, "STAGE s lease 5s", "-STOPPED *");
    ask(d, 0, "PING", "+PONG"); // commands that change nothing still run
    ask(d, 0, "JOB 1", "[*]");
    ask(d, 0, "INFO", "*log_stopped:*");
    assert_int_equal(dialogue_next_ms(d), -1);
    dialogue_destroy(d);
}

// A blocked command counts once, before and after it is answered.
static void F24_a_reply_that_came_late_becomes_an_error_too(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    send_bytes(d, 0, text("PUSH other x\r\nTAKE s WAIT -1\r\n"));
    expect_reply(d, 0, "\"*\"");
    sim_disk_break(d->disk, SIM_SYNCS, 5);
    send_line(d, 1, "PUSH s a"); // the taker is answered in the turn whose records are lost
    expect_reply(d, 1, "-STOPPED *");
    expect_reply(d, 0, "-STOPPED *");
    expect_no_reply(d, 0);
    ask(d, 0, "PING", "+PONG");
    dialogue_destroy(d);
}

// ---- Stopping
// -------------------------------------------------------------------------------------

// T22: a graceful stop drains first: nothing more is started, what runs may end.
static void T22_a_stopping_server_starts_nothing_and_lets_work_end(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    struct job job = take(d, 1, "s");
    send_line(d, 0, "TAKE s WAIT -1");
    assert_int_equal(dialogue_leases(d), 1);
    dialogue_stop(d);
    turn(d);
    expect_reply(d, 0, "[]");
    push(d, "s b");
    ask(d, 0, "TAKE s", "[]");
    send_line(d, 0, "TAKE s WAIT 10"); // who asks again and again does not keep it busy
    expect_no_reply(d, 0);
    send_linef(d, 1, "DONE %s %s", job.id, job.token);
    expect_reply(d, 1, "+OK");
    assert_int_equal(dialogue_leases(d), 0);
    pass_ms(d, 10);
    expect_reply(d, 0, "[]");
}

// A lease that outlives its connection has no worker: a stop does not wait for it.
static void T22_a_stop_does_not_wait_for_disconnected_clients(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    push(d, "s b");
    take(d, 0, "s DETACHED");
    assert_int_equal(dialogue_leases(d), 1);
    hang_up(d, 0);
    assert_int_equal(dialogue_leases(d), 0);
    ask(d, 1, "STAGES", "[[*\"running\" :1 *]]");
}

static void QUIT_replies_OK_and_closes(void **state) {
    struct dialogue *d = *state;
    send_bytes(d, 0, text("PUSH s a\r\nQUIT\r\nPUSH s b\r\n"));
    expect_reply(d, 0, FIRST);
    expect_reply(d, 0, "+OK");
    expect_no_reply(d, 0);
    assert_true(d->clients[0].closed);
    ask(d, 1, "STAGES", "[[*\"waiting\" :1 *]]");
}

// F50: a half-closed client gets the replies that were not durable yet, then the connection ends.
static void F50_a_half_closed_client_gets_its_replies(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_THREAD, (struct core_limits){ 0 });
    hold_syncs(d, true);
    send_bytes(d, 0, text("PUSH s a\r\nPING\r\nPUS"));
    half_close(d, 0);
    expect_no_reply(d, 0);
    assert_false(d->clients[0].closed);
    hold_syncs(d, false);
    expect_reply(d, 0, FIRST);
    expect_reply(d, 0, "+PONG");
    assert_true(d->clients[0].closed);
    dialogue_destroy(d);
}

// F50: also if several loops answer, one after the other.
static void F50_a_half_closed_client_gets_replies_of_all_loops(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_THREAD, (struct core_limits){ 0 });
    hold_syncs(d, true);
    send_bytes(d, 0,
               text("PUSH a x\r\nPUSH b x\r\nPUSH c x\r\nPUSH d x\r\nPUSH e x\r\n"
                    "STAGES\r\nPING\r\n"));
    half_close(d, 0);
    hold_syncs(d, false);
    turn(d);
    for (int i = 0; i < 5; i++)
        expect_reply(d, 0, "\"*\"");
    expect_reply(d, 0, "[[*] [*] [*] [*] [*]]");
    expect_reply(d, 0, "+PONG");
    assert_true(d->clients[0].closed);
    dialogue_destroy(d);
}

// F50: the second of these begins to wait in another loop after the client has half-closed.
static void F50_a_half_closed_client_does_not_wait_in_another_loop(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_THREAD, (struct core_limits){ 0 });
    for (int i = 0; i < 5; i++) {
        connect_client(d, 2);
        hold_syncs(d, true);
        send_bytes(d, 2, text("PUSH a x\r\n"));
        send_linef(d, 2, "TAKE other-%d WAIT -1", i);
        half_close(d, 2);
        hold_syncs(d, false);
        turn(d);
        expect_reply(d, 2, "\"*\"");
        assert_true(d->clients[2].closed);
    }
    dialogue_destroy(d);
}

// F50: but not what it would wait for: that may take for ever, and the client may have left.
static void F50_a_half_closed_client_does_not_wait(void **state) {
    struct dialogue *d = *state;
    static const char *const waits[] = { "TAKE s WAIT -1", "CALL t a", "PUSH u b ROOM -1",
                                         "EPIC u e WAIT -1" };
    ask(d, 1, "STAGE u max-jobs 1", "+OK");
    push(d, "u a EPIC e 1");
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        connect_client(d, 2);
        send_line(d, 2, waits[i]);
        half_close(d, 2);
        assert_true(d->clients[2].closed);
    }
    ask(d, 1, "STAGES NAME t", "[[*\"waiting\" :0 *\"cancelled\" :1 *]]");
    ask(d, 1, "STAGES NAME u", "[[*\"waiting\" :1 *]]");
    push(d, "s a");
    assert_string_equal(take(d, 1, "s").body, "a");
}

// F50: nor for requests that it sent before, and that run only now that its replies are read.
static void F50_a_half_closed_client_does_not_begin_to_wait(void **state) {
    struct dialogue *d = *state;
    struct client *c = &d->clients[0];
    static char large[LIMIT_UNSENT_PAUSE + 1];
    mr_bytes echo[] = { text("ECHO"), { large, sizeof large } };
    c->unread = true;
    send_words(d, 0, echo, 2);
    send_bytes(d, 0, text("PUSH s a\r\nTAKE t WAIT -1\r\nPUSH s b\r\n"));
    half_close(d, 0);
    assert_false(c->closed);
    c->unread = false;
    session_touch(c->session); // the socket takes more
    turn(d);
    next_reply(d, 0);
    expect_reply(d, 0, FIRST);
    assert_true(c->closed);
    ask(d, 1, "STAGES NAME s", "[[*\"waiting\" :1 *]]");
}

// ---- Memory
// ---------------------------------------------------------------------------------------

// Requests of client 0, or of client 1 after "1:"; % is replaced by id and token of a job taken.
static const char *const everything[] = {
    "HELLO 3",
    "STAGE s max-jobs 4 retention 0,0",
    "PUSHMANY s ITEMS k a k b l c",
    "1:CALL s d ONCE n",
    "PUSH s e ROOM 10",
    "TAKE s COUNT 2 BATCH 2",
    "BEAT %",
    "DONE % RESULT r STATE x EMIT t k y EMIT t '' z",
    "PUSH s f KEY m EPIC e 1 DELAY 1000 DEADLINE 5000",
    "JOBS s STATUS delayed",
    "TAKE t s WAIT 10",
    "FAIL % no NEVER",
    "JOBS s",
    "JOB 1 BODY",
    "DEAD",
    "STAGES",
    "CHANNELS s",
    "WORKERS",
    "EPICS",
    "EPIC s e WAIT 10",
    "WHY s",
    "RETRY STAGE t DEAD REASON no",
    "PUSHMANY s ROOM 10 ITEMS '' a '' b '' c '' d '' e",
    "DROP STAGE s WAITING",
    "COMMAND DOCS",
    "INFO",
};

// Sends one line; a client that was closed for lack of memory connects again.
static void send_reconnecting(struct dialogue *d, const char *line, char *lease) {
    char text[256];
    int client = strncmp(line, "1:", 2) == 0;
    const char *from = line + 2 * client, *mark = strchr(from, '%');
    int before = mark ? (int)(mark - from) : (int)strlen(from);
    snprintf(text, sizeof text, "%.*s%s%s", before, from, mark ? lease : "", mark ? mark + 1 : "");
    for (int i = 0; i < 2; i++)
        if (!d->clients[i].session && session_create(&d->host, &d->clients[i].session) == 0)
            d->clients[i].session->owner = &d->clients[i];
    if (d->clients[client].session && !d->clients[client].session->wait.kind)
        send_line(d, client, text);
    pass_ms(d, 20);
    for (int i = 0; i < 2; i++) {
        if (!d->clients[i].session)
            d->clients[i].received.size = 0; // the last reply may not be whole
        while (d->clients[i].received.size) {
            char id[24], token[40];
            const char *reply = next_reply(d, i);
            if (sscanf(reply, "[[\"%23[0-9]\" \"%39[^\"]\"", id, token) == 2)
                snprintf(lease, 64, "%s %s", id, token);
        }
    }
}

// F51: every allocation fails once; nothing breaks, leaks or contradicts itself.
static void F51_any_allocation_may_fail(void **state) {
    (void)state;
    long left = -1, n = 0;
    for (; left < 0; n++) {
        struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
        char lease[64] = "1 x";
        mem_fail_after(n);
        for (size_t i = 0; i < sizeof everything / sizeof *everything; i++)
            send_reconnecting(d, everything[i], lease);
        left = mem_fail_after(-1);
        send_reconnecting(d, "PING", lease);
        dialogue_destroy(d);
    }
    assert_true(n > 50); // there is something to fail
}

// The job of client 0, whose connection was lost with it, is not blamed.
static void expect_untouched(struct dialogue *d) {
    assert_true(d->clients[0].closed);
    d->clients[0].received.size = 0; // the reply may not be whole
    ask(d, 1, "JOB 1", "[*\"reasons\" [[*\"the worker's connection was lost\"*]]*]");
}

// F51: a body that the reply has no memory or no room for is not one that cannot be read.
static void F51_a_job_is_not_failed_because_its_reply_does_not_fit(void **state) {
    (void)state;
    ONE_LOOP_ONLY; // the session that has no memory is the remote one
    static char body[100000];
    bool failed = false;
    memset(body, 'x', sizeof body);
    for (long n = -1; n < 20; n++) {
        struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
        mr_bytes words[] = { text("PUSH"), text("s"), { body, sizeof body } };
        send_words(d, 1, words, 3);
        expect_reply(d, 1, FIRST);
        ask(d, 0, "PING", "+PONG");
        session_reply(d->clients[0].session);
        if (n < 0)
            d->clients[0].session->out.limit = sizeof body / 2;
        mem_fail_after(n);
        send_line(d, 0, "TAKE s");
        bool happened = mem_fail_after(-1) < 0;
        if (d->clients[0].closed) {
            expect_untouched(d);
            failed = failed || n >= 0;
        } else {
            assert_true(n >= 0);
            expect_reply(d, 0, happened ? "*" : "[[*]]");
        }
        dialogue_destroy(d);
    }
    assert_true(failed);
}

// F51: a push that had to wait and then fails for want of memory keeps no room from others.
static void F51_a_waiting_push_that_fails_gives_its_room_back(void **state) {
    (void)state;
    ONE_LOOP_ONLY; // the session that has no memory is the remote one
    bool failed = false;
    for (long n = 0; n < 20; n++) {
        struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
        ask(d, 1, "STAGE s max-jobs 1 retention 0,0", "+OK");
        push(d, "s a");
        send_line(d, 0, "PUSH s b KEY new ONCE n DEADLINE 1000 ROOM -1");
        ask(d, 1, "CANCEL 99", "-GONE *");
        mem_fail_after(n);
        send_line(d, 1, "CANCEL 1");
        mem_fail_after(-1);
        expect_reply(d, 1, "*");
        const char *reply = d->clients[0].received.size ? next_reply(d, 0) : "";
        if (strncmp(reply, "-FULL", 5) == 0) {
            failed = true;
            ask(d, 1, "PUSH s c", "\"*\"");
        }
        dialogue_destroy(d);
    }
    assert_true(failed);
}

int main(void) {
    const struct CMUnitTest any[] = {
        DIALOGUE(C7_replies_come_in_the_order_of_the_commands),
        DIALOGUE(C7_what_follows_a_blocked_command_waits_for_it),
        cmocka_unit_test(F41_requests_may_come_in_any_pieces),
        DIALOGUE(F41_what_is_no_request_closes_the_connection),
        DIALOGUE(F41_a_browser_is_sent_away),
        DIALOGUE(F48_names_of_every_byte_are_answered),
        DIALOGUE(D2_as_many_takers_wake_as_there_is_work),
        DIALOGUE(D2_a_wait_ends_when_it_was_to),
        DIALOGUE(D2_waits_answered_early_leave_no_timers),
        DIALOGUE(F50_a_slot_left_while_waiting_is_used_again),
        DIALOGUE(A7_a_call_is_answered_with_the_result),
        DIALOGUE(A6_a_call_ends_at_its_deadline),
        DIALOGUE(F13_a_call_gets_the_reason_of_its_dead_job),
        DIALOGUE(A5_F50_a_call_of_a_client_that_has_gone_never_runs),
        DIALOGUE(F50_a_taker_that_has_gone_gets_nothing),
        DIALOGUE(F50_an_awaiter_that_has_gone_changes_nothing),
        DIALOGUE(F50_a_waiting_push_of_a_client_that_has_gone_is_none),
        DIALOGUE(F50_an_epics_waiter_may_go),
        DIALOGUE(T10_a_worker_that_asks_twice_is_one),
        DIALOGUE(F50_a_large_push_that_waits_leaves_room_to_notice_the_end),
        DIALOGUE(D4_pushes_wait_for_room_in_order),
        DIALOGUE(S9_many_end_before_a_gap),
        DIALOGUE(D4_many_go_in_as_there_is_room),
        DIALOGUE(A8_a_deadline_counts_while_a_push_waits_for_room),
        DIALOGUE(F7_a_token_that_is_over_changes_nothing),
        DIALOGUE(F9_beats_keep_a_lease),
        DIALOGUE(A9_a_running_job_is_asked_to_stop),
        DIALOGUE(D1_T11_workers_come_and_go_and_all_is_done),
        DIALOGUE(F43_a_session_with_unread_replies_runs_no_commands),
        DIALOGUE(F43_a_waiting_push_is_made_although_replies_are_unread),
        cmocka_unit_test(F51_without_memory_to_fetch_a_body_the_client_gets_an_error),
        cmocka_unit_test(T17_while_the_store_is_read_clients_get_LOADING),
        cmocka_unit_test(T18_nothing_is_shown_before_it_is_durable),
        cmocka_unit_test(T18_however_many_turns_wait_for_the_disk),
        cmocka_unit_test(replies_about_the_server_do_not_wait_for_the_log),
        cmocka_unit_test(F24_held_replies_become_errors_when_the_log_fails),
        cmocka_unit_test(F24_a_reply_that_came_late_becomes_an_error_too),
        cmocka_unit_test(F51_any_allocation_may_fail),
        cmocka_unit_test(F51_a_job_is_not_failed_because_its_reply_does_not_fit),
        cmocka_unit_test(F51_a_waiting_push_that_fails_gives_its_room_back),
        DIALOGUE(T22_a_stopping_server_starts_nothing_and_lets_work_end),
        DIALOGUE(T22_a_stop_does_not_wait_for_disconnected_clients),
        DIALOGUE(QUIT_replies_OK_and_closes),
        cmocka_unit_test(F50_a_half_closed_client_gets_its_replies),
        cmocka_unit_test(F50_a_half_closed_client_gets_replies_of_all_loops),
        cmocka_unit_test(F50_a_half_closed_client_does_not_wait_in_another_loop),
        DIALOGUE(F50_a_half_closed_client_does_not_wait),
        DIALOGUE(F50_a_half_closed_client_does_not_begin_to_wait),
    };
    const struct CMUnitTest alone[] = {
        DIALOGUE(S9_many_have_numbers),
        cmocka_unit_test(U18_a_refusal_holds_its_source),
        cmocka_unit_test(U18_a_connection_holds_so_many_sources),
        DIALOGUE(T13_a_DONE_is_repeated_until_it_is_answered),
        DIALOGUE(T14_unconfirmed_go_to_another_worker_confirmed_do_not),
        DIALOGUE(T15_a_confirmation_arrives_even_if_the_worker_dies_afterwards),
        DIALOGUE(F11_D5_a_lost_connection_gives_its_work_back_at_once),
        cmocka_unit_test(C7_a_cold_body_holds_up_its_own_connection_only),
        cmocka_unit_test(C7_a_cold_job_is_shown_when_it_was_read),
        cmocka_unit_test(F50_a_client_may_go_while_its_jobs_are_read),
        cmocka_unit_test(F8_leases_are_renewed_when_their_jobs_were_read),
        cmocka_unit_test(F8_a_lease_that_ended_while_its_job_was_read_is_not_sent),
        cmocka_unit_test(F8_the_state_of_a_block_is_not_lost_with_its_first_job),
        cmocka_unit_test(F22_a_damaged_body_does_not_hold_up_its_block),
        cmocka_unit_test(F24_a_log_that_fails_while_a_body_is_read),
    };
    return DIALOGUES(any, alone);
}
