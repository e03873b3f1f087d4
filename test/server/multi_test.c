// MULTI, EXEC, DISCARD: what is queued, what is refused then, and when it is run.
#include "support/dialogue.h"

#include <string.h>

// U3: commands behind MULTI are queued, and run in order at EXEC, in RESP2 and RESP3.
static void U3_EXEC_runs_what_was_queued_and_answers_with_all_replies(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 2; i++) {
        ask(d, 0, "MULTI", "+OK");
        ask(d, 0, "PUSH s a", "+QUEUED");
        ask(d, 0, "PUSH s b KEY k", "+QUEUED");
        ask(d, 0, "PING x", "+QUEUED");
        ask(d, 1, "TAKE s", "[]"); // nothing was run yet
        ask(d, 0, "EXEC", "[\"*\" \"*\" \"x\"]");
        ask(d, 1, "DROP STAGE s WAITING", ":2");
        ask(d, 0, "HELLO 3", "{*}");
    }
    ask(d, 0, "MULTI", "+OK");
    ask(d, 0, "EXEC", "[]");
    ask(d, 0, "EXEC", "-ERR *");
    ask(d, 0, "DISCARD", "-ERR *");
}

// U3: one command that fails when it is run is one error among the replies.
static void U3_a_command_that_fails_in_EXEC_does_not_stop_the_others(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "MULTI", "+OK");
    ask(d, 0, "PUSH s a", "+QUEUED");
    ask(d, 0, "CANCEL 999999", "+QUEUED");
    ask(d, 0, "PUSH s b", "+QUEUED");
    ask(d, 0, "EXEC", "[\"*\" -GONE* \"*\"]");
    ask(d, 1, "DROP STAGE s WAITING", ":2");
}

// U3: whatever can be known to be wrong is refused when it is queued, and then nothing is run.
static void U3_what_is_refused_when_queued_aborts_EXEC(void **state) {
    struct dialogue *d = *state;
    static const char *const refused[] = {
        "NONSENSE",         "PUSH s",         "PUSH s a KEY",     "PUSH s a NOOPTION 1",
        "PUSH s a ROOM -1", "PUSHMANY s a",   "TAKE s",           "TAKE s WAIT -1",
        "CALL s a",         "AWAIT 1 WAIT 5", "EPIC s e WAIT -1", "AUTH x",
        "HELLO 3",          "MULTI",          "WATCH k",          "DONE x y",
        "DONE 1 y NOPE",    "FAIL 1",         "JOBS s STATUS",    "DROP STAGE s",
        "DROP x",           "LPUSH s a",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ask(d, 0, "MULTI", "+OK");
        ask(d, 0, "PUSH s a", "+QUEUED");
        send_line(d, 0, refused[i]);
        expect_reply(d, 0, "-*");
        ask(d, 0, "PUSH s b", "+QUEUED");
        ask(d, 0, "EXEC", "-EXECABORT *");
        ask(d, 1, "TAKE s", "[]");
        ask(d, 0, "PING", "+PONG"); // it is over
    }
    assert_int_equal(d->clients[0].session->multi.queue.capacity, 0);
}

// U3: queued commands are only checked: none of them has run when they are discarded.
// U18: numbers that EXEC did not run were refused, and hold their source.
static void U3_U18_an_aborted_EXEC_holds_its_numbers(void **state) {
    struct dialogue *d = *state;
    static const char *const aborts[] = { "PUSH s x EPIC e 2 NOOPTION 1", "NONSENSE", "MULTI" };
    for (size_t i = 0; i < sizeof aborts / sizeof *aborts; i++) {
        ask(d, 0, "MULTI", "+OK");
        ask(d, 0, "PUSH s x EPIC e 1", "+QUEUED");
        send_line(d, 0, aborts[i]);
        expect_reply(d, 0, "-*");
        ask(d, 0, "PUSH s x EPIC e 3", "+QUEUED");
        ask(d, 0, "EXEC", "-EXECABORT *");
        ask(d, 0, "PUSH s x EPIC e 4", "-GAP 1 *");
        ask(d, 0, "PUSH s x EPIC e 1", "*");
        ask(d, 0, "PUSH s x EPIC e 4", "-GAP 2 *");
        ask(d, 0, "PUSH s x EPIC e 2", "*");
        ask(d, 0, "PUSH s x EPIC e 3", "*");
        ask(d, 0, "PUSH s x EPIC e 4", "*");
        ask(d, 0, "EPIC s e DROP", "*");
    }
}

static void U3_DISCARD_and_a_lost_connection_leave_nothing(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "PUSHMANY s ITEMS k a l b", "[*]");
    struct job job = take(d, 1, "s");
    uint64_t before = d->host.buffered;
    for (int i = 0; i < 2; i++) {
        ask(d, 0, "MULTI", "+OK");
        ask(d, 0, "PUSH s a", "+QUEUED");
        ask(d, 0, "PUSHMANY s ITEMS k a", "+QUEUED");
        send_linef(d, 0, "DONE %s %s", job.id, job.token);
        expect_reply(d, 0, "+QUEUED");
        send_linef(d, 0, "DONE %s %s RESULT x EMIT t k b", job.id, job.token);
        expect_reply(d, 0, "+QUEUED");
        send_linef(d, 0, "FAIL %s %s no NEVER", job.id, job.token);
        expect_reply(d, 0, "+QUEUED");
        send_linef(d, 0, "RELEASE %s %s", job.id, job.token);
        expect_reply(d, 0, "+QUEUED");
        send_linef(d, 0, "CANCEL %s", job.id);
        expect_reply(d, 0, "+QUEUED");
        send_linef(d, 0, "DROP %s", job.id);
        expect_reply(d, 0, "+QUEUED");
        ask(d, 0, "DROP STAGE s WAITING", "+QUEUED");
        ask(d, 0, "PAUSE s", "+QUEUED");
        ask(d, 0, "STAGE s lease 5s", "+QUEUED");
        if (i) {
            hang_up(d, 0);
            connect_client(d, 0);
        } else {
            ask(d, 0, "DISCARD", "+OK");
        }
        send_line(d, 1, "JOBS s STATUS running");
        assert_non_null(strstr(next_reply(d, 1), job.id));
        ask(d, 1, "JOBS s STATUS waiting", "[[*]]");
        ask(d, 1, "WHY s", "*");
    }
    assert_true(d->host.buffered <= before);
    send_linef(d, 1, "DONE %s %s", job.id, job.token);
    expect_reply(d, 1, "+OK");
}

// U3, U4: a long queue is run over several turns; others are served meanwhile, its replies come at
// once, and no push message comes between them.
static void U3_a_long_EXEC_shares_its_turns(void **state) {
    ONE_LOOP_ONLY;
    struct dialogue *d = *state;
    struct session *s = d->clients[0].session;
    enum { MANY = 5000 };
    ask(d, 0, "HELLO 3", "{*}");
    ask(d, 0, "CLIENT CANCELS ON", "+OK");
    push(d, "t x");
    struct job job = take(d, 0, "t");
    ask(d, 0, "MULTI", "+OK");
    for (int i = 0; i < MANY; i++)
        ask(d, 0, i == MANY / 2 ? "DROP STAGE s WAITING MAX 100000" : "PUSH s a", "+QUEUED");
    host_begin(&d->host);
    mr_bytes exec = mr_str("EXEC\r\n");
    size_t room;
    memcpy(session_room(s, &room), exec.data, exec.size);
    session_receive(s, exec.size);
    turn_once(d);
    assert_int_equal(s->wait.for_turn, true);
    send_linef(d, 1, "CANCEL %s", job.id); // while EXEC runs
    expect_reply(d, 1, ":1");
    int turns = 0;
    for (; s->wait.kind; turns++)
        turn_once(d);
    assert_true(turns > 1);
    expect_reply(d, 0, ">[\"cancel\" *]");
    expect_reply(d, 0, "[\"*\" *]");
    send_linef(d, 1, "DROP STAGE s WAITING MAX 100000");
    while (d->clients[1].session->wait.kind)
        turn(d);
    expect_reply(d, 1, ":2499");
}

// U3: the queue is bounded in commands and bytes.
static void U3_a_queue_has_bounds(void **state) {
    struct dialogue *d = *state;
    struct session *s = d->clients[0].session;
    static char body[8 << 20];
    memset(body, 'x', sizeof body);
    mr_bytes words[] = { mr_str("PUSH"), mr_str("s"), { body, sizeof body } };
    ask(d, 0, "MULTI", "+OK");
    for (int i = 0; i < 3; i++) {
        send_words(d, 0, words, 3);
        expect_reply(d, 0, "+QUEUED");
    }
    assert_true(d->host.buffered > 3 * sizeof body); // it counts as this client's
    send_words(d, 0, words, 3);
    expect_reply(d, 0, "-ERR MULTI takes at most*");
    ask(d, 0, "EXEC", "-EXECABORT *");
    ask(d, 0, "MULTI", "+OK");
    s->multi.count = LIMIT_QUEUED; // as if there were so many
    ask(d, 0, "PING", "-ERR MULTI takes at most*");
    ask(d, 0, "DISCARD", "+OK");
    assert_int_equal(s->multi.queue.capacity, 0);
}

// U3: a log that fails while EXEC runs leaves it unknown what was done.
static void U3_EXEC_replies_STOPPED_when_the_log_fails_half_way(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    struct session *s = d->clients[0].session;
    ask(d, 0, "MULTI", "+OK");
    for (int i = 0; i < 4000; i++)
        ask(d, 0, "PUSH s a", "+QUEUED");
    host_begin(&d->host);
    size_t room;
    memcpy(session_room(s, &room), "EXEC\r\n", 6);
    session_receive(s, 6);
    sim_disk_break(d->disk, SIM_SYNCS, 5);
    while (s->wait.kind)
        turn_once(d);
    expect_reply(d, 0, "-STOPPED *");
    dialogue_destroy(d);
}

int main(void) {
    const struct CMUnitTest any[] = {
        DIALOGUE(U3_EXEC_runs_what_was_queued_and_answers_with_all_replies),
        DIALOGUE(U3_a_command_that_fails_in_EXEC_does_not_stop_the_others),
        DIALOGUE(U3_what_is_refused_when_queued_aborts_EXEC),
        DIALOGUE(U3_U18_an_aborted_EXEC_holds_its_numbers),
        DIALOGUE(U3_DISCARD_and_a_lost_connection_leave_nothing),
        DIALOGUE(U3_a_long_EXEC_shares_its_turns),
        DIALOGUE(U3_a_queue_has_bounds),
        cmocka_unit_test(U3_EXEC_replies_STOPPED_when_the_log_fails_half_way),
    };
    return dialogue_run(any, sizeof any / sizeof *any, NULL, 0);
}
