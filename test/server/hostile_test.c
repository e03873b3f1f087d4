// Weaknesses that servers of this kind have had, and that were published: lengths that overflow,
// buffers that grow for nothing, deep nesting, browsers that are made to connect to the port, and
// clients that go away while something is kept for them. A session has none of them.
#include "support/dialogue.h"

#include <stdio.h>
#include <string.h>

#define TEXT(literal)                                                                              \
    { literal, sizeof literal - 1 }
#define LENGTH(array) (sizeof(array) / sizeof *(array))

static void again(struct dialogue *d) {
    hang_up(d, 0);
    connect_client(d, 0);
}

// ---- Lengths ------------------------------------------------------------------------------------

// F41: lengths at the edge of every integer, some of which are small again in fewer bits. Nothing
// is kept for what is refused.
static void F41_no_length_overflows(void **state) {
    struct dialogue *d = *state;
    static const char *const lengths[] = {
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551617",
        "4294967295",
        "4294967297",
        "2147483648",
        "2147483647",
        "-1",
        "-9223372036854775808",
        "-18446744073709551615",
        "+1",
        "01",
        "0x1",
        "1e0",
        " 1",
        "1 ",
        "",
    };
    static const char *const frames[] = {
        "*%s\r\n$4\r\nPING\r\n",
        "*1\r\n$%s\r\nPING\r\n",
        "*3\r\n$4\r\nPUSH\r\n$1\r\ns\r\n$%s\r\nx\r\n",
    };
    uint64_t before = d->host.buffered;
    for (size_t i = 0; i < LENGTH(lengths) * LENGTH(frames); i++) {
        char frame[128];
        snprintf(frame, sizeof frame, frames[i % LENGTH(frames)], lengths[i / LENGTH(frames)]);
        for (size_t size = 1; size <= sizeof frame; size *= sizeof frame) {
            again(d);
            send_in_pieces(d, 0, mr_str(frame), size);
            expect_reply(d, 0, "-ERR Protocol error*");
            assert_true(d->clients[0].closed);
            assert_true(d->host.buffered <= before);
        }
    }
    ask(d, 1, "STAGES", "[]");
}

// F41: a request is a list of words; a list within it ends the connection, however deep.
static void F41_nesting_ends_where_it_begins(void **state) {
    struct dialogue *d = *state;
    static char deep[40000];
    for (size_t i = 0; i < sizeof deep; i += 4)
        memcpy(deep + i, "*1\r\n", 4);
    send_bytes(d, 0, (mr_bytes){ deep, sizeof deep });
    expect_reply(d, 0, "-ERR Protocol error: argument 1 must begin with '$', not with '*'");
    assert_true(d->clients[0].closed);
}

// ---- Buffers ------------------------------------------------------------------------------------

// F42: what follows a command that waits is received up to a bound only.
static void F42_a_client_that_waits_cannot_pile_up_requests(void **state) {
    struct dialogue *d = *state;
    struct session *s = d->clients[0].session;
    size_t sent = 0, room;
    send_line(d, 0, "TAKE s WAIT -1");
    for (; session_room(s, &room); sent++) {
        send_bytes(d, 0, mr_str("PING\r\n"));
        assert_true(sent < READ_SIZE);
    }
    assert_true(s->in.capacity <= 4 * READ_SIZE);
    ask(d, 1, "PING", "+PONG");
    push(d, "s a");
    expect_reply(d, 0, "[[*]]");
    for (; sent; sent--)
        expect_reply(d, 0, "+PONG");
    assert_int_equal(s->in.capacity, 0);
}

// F50: calls with LATER are stored by the server, so they are bounded, too.
static void F50_calls_that_are_not_waited_for_are_bounded(void **state) {
    ONE_LOOP_ONLY;
    struct dialogue *d = *state;
    struct session *s = d->clients[0].session;
    ask(d, 0, "HELLO 3", "{*}");
    uint64_t before = d->host.buffered;
    s->async_count = LIMIT_ASYNC_CALLS - 1; // as if there were so many
    ask(d, 0, "CALL s a LATER", "\"1\"");
    assert_true(d->host.buffered > before); // it counts as clients' memory
    ask(d, 0, "CALL s b LATER", "-FULL *");
    ask(d, 0, "JOB #2", "-GONE *");
    ask(d, 1, "CANCEL 1", ":1");
    expect_reply(d, 0, ">[\"ended\" \"1\" -CANCELLED*]");
    ask(d, 0, "CALL s b LATER", "\"#2\"");
    s->async_count -= LIMIT_ASYNC_CALLS - 1;
}

// ---- Browsers -----------------------------------------------------------------------------------

#define EVIL "\r\nPUSH s evil\r\n"

// F41: a page can have a browser send what it likes to this port, behind headers that it cannot
// leave out. None of it is run.
static void F41_what_a_browser_is_made_to_send_is_not_run(void **state) {
    struct dialogue *d = *state;
    static const mr_bytes requests[] = {
        TEXT("POST / HTTP/1.1\r\nContent-Length: 11\r\n" EVIL),
        TEXT("post / HTTP/1.1\r\nOrigin: null\r\n" EVIL),
        TEXT("GET / HTTP/1.1\r\nAccept: */*\r\nUser-Agent: x/1 (y; z)\r\nHost: localhost\r\n" EVIL),
        TEXT("PUT /PUSH HTTP/1.1\r\nhost: 127.0.0.1:7411\r\n" EVIL),
        TEXT("OPTIONS * HTTP/1.1\r\nHOST: x\r\n" EVIL),
        TEXT("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nHost: x\r\n" EVIL),
        TEXT("PING\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n" EVIL),
        TEXT("*1\r\n$4\r\nPOST" EVIL),
        TEXT("*2\r\n$5\r\nHost:\r\n$1\r\nx" EVIL),
        TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\4\0\0\0\0\0" EVIL),
        TEXT("\x16\3\1\1\0\1" EVIL), // an encrypted one
        TEXT("SSH-2.0-x\r\n\0" EVIL),
    };
    for (size_t i = 0; i < LENGTH(requests) * 2; i++) {
        again(d);
        send_in_pieces(d, 0, requests[i / 2], i % 2 ? 1 : SIZE_MAX);
        assert_true(d->clients[0].closed);
        while (d->clients[0].received.size)
            next_reply(d, 0);
    }
    ask(d, 1, "STAGES", "[]");
}

// ---- Those who go away --------------------------------------------------------------------------

static const struct leaving {
    const char *before; // what client 1 sends first …
    const char *waits;  // … what client 0 waits in …
    const char *event;  // … and what client 1 ends that with
} leavings[] = {
    { "PING\r\n", "TAKE s t WAIT -1", "PUSH s a\r\n" },
    { "PING\r\n", "TAKE s t COUNT 9 BATCH 9 WAIT -1 DETACHED",
      "PUSHMANY t ITEMS k a k b '' c\r\nPUSH s a\r\n" },
    { "PING\r\n", "CALL s a", "CANCEL 1\r\n" },
    { "PING\r\n", "CALL s a LATER", "CANCEL 1\r\n" },
    { "PUSH s a\r\n", "AWAIT 1 WAIT -1", "CANCEL 1\r\n" },
    { "STAGE s max-jobs 1\r\nPUSH s a\r\n", "PUSH s b ROOM -1", "CANCEL 1\r\n" },
    { "STAGE s max-jobs 1\r\nPUSH s a\r\n", "PUSHMANY s ROOM -1 ITEMS '' b '' c", "CANCEL 1\r\n" },
    { "STAGE s max-jobs 1\r\nPUSH s a\r\n", "CALL s b ROOM -1", "CANCEL 1\r\n" },
    { "STAGE s max-jobs 1\r\nPUSH s a\r\n", "CALL s b ROOM -1 LATER", "CANCEL 1\r\n" },
    { "STAGE s max-jobs 1\r\nPUSH s a\r\n", "PUSH s b ROOM -1", "DRAIN s\r\n" },
    { "PUSH s a EPIC e 1\r\nEPIC s e END 1\r\n", "EPIC s e WAIT -1", "CANCEL 1\r\n" },
    { "PUSH s a EPIC e 1\r\n", "EPIC s e WAIT -1 LEFT 0", "CANCEL 1\r\n" },
    { "PUSH s a EPIC e 1\r\n", "EPIC s e WAIT -1 LEFT 0", "EPIC s e DROP\r\n" },
    { "PUSH s a\r\n", "TAKE s", "CANCEL 1\r\n" }, // it is asked to stop
};

// Said by client 1, within a turn that goes on.
static void send_within_turn(struct dialogue *d, const char *text) {
    size_t size = 0;
    uint8_t *room = session_room(d->clients[1].session, &size);
    assert_true(room && strlen(text) <= size);
    memcpy(room, text, strlen(text));
    host_begin(&d->host);
    session_receive(d->clients[1].session, strlen(text));
}

static void forget_received(struct dialogue *d) {
    for (int i = 0; i < 2; i++)
        buffer_clear(&d->clients[i].received);
}

// F50: the client disconnects before the event that it waits for, after it in the same turn, before
// it in the same turn, or after it with an unread reply. (A use after free is found by sanitizers,
// leftover state by core_check.)
static void F50_nothing_is_left_of_a_client_that_has_gone(void **state) {
    (void)state;
    enum { BEFORE, AFTER, BEFORE_IN_TURN, UNREAD, WAYS };
    for (size_t i = 0; i < LENGTH(leavings) * WAYS; i++) {
        const struct leaving *l = &leavings[i / WAYS];
        struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
        send_bytes(d, 1, mr_str(l->before));
        send_line(d, 0, "HELLO 3");
        send_line(d, 0, "CLIENT CANCELS ON");
        send_line(d, 0, l->waits);
        switch ((int)(i % WAYS)) {
        case BEFORE:
            hang_up(d, 0);
            send_within_turn(d, l->event);
            turn(d);
            break;
        case AFTER:
            send_within_turn(d, l->event);
            hang_up(d, 0);
            break;
        case BEFORE_IN_TURN:
            host_begin(&d->host);
            session_destroy(d->clients[0].session);
            d->clients[0].session = NULL;
            send_within_turn(d, l->event);
            turn(d);
            break;
        default:
            d->clients[0].unread = true;
            send_within_turn(d, l->event);
            turn(d);
            hang_up(d, 0);
            d->clients[0].unread = false;
        }
        forget_received(d);
        pass_ms(d, 100000);
        ask(d, 1, "PING", "+PONG");
        dialogue_check(d);
        dialogue_destroy(d);
    }
}

// F50: the same of a command that is done in pieces.
static void F50_a_client_may_go_between_two_pieces(void **state) {
    ONE_LOOP_ONLY;
    struct dialogue *d = *state;
    for (int i = 0; i < 2 * LIMIT_PIECE + 100; i++)
        push(d, "s a");
    send_line(d, 0, "DROP STAGE s WAITING REASON none"); // each is examined
    assert_int_equal(d->clients[0].session->wait.for_turn, true);
    hang_up(d, 0);
    ask(d, 1, "PING", "+PONG");
    connect_client(d, 0);
    send_line(d, 0, "DROP STAGE s WAITING REASON none");
    while (!d->clients[0].received.size)
        turn(d);
    expect_reply(d, 0, ":0");
}

// F41: words that cannot be names of stages, of which other loops may have to know.
static void F41_a_worker_of_no_stage_is_refused_and_may_go(void **state) {
    struct dialogue *d = *state;
    static const char *const takes[] = { "TAKE ''",     "TAKE '' s",
                                         "TAKE s '' t", "TAKE 'a b' s",
                                         "TAKE ' ' t",  "TAKE s 'a  b' COUNT 2 SLOTS 3" };
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        ask(d, 0, takes[i], "-*");
        ask(d, 1, "WORKERS", "[]");
        ask(d, 0, "TAKE s t u v w", "[]"); // one that is a worker, of stages in every loop
        ask(d, 0, takes[i], "-*");
        hang_up(d, 0);
        connect_client(d, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        DIALOGUE(F41_no_length_overflows),
        DIALOGUE(F41_nesting_ends_where_it_begins),
        DIALOGUE(F42_a_client_that_waits_cannot_pile_up_requests),
        DIALOGUE(F50_calls_that_are_not_waited_for_are_bounded),
        DIALOGUE(F41_what_a_browser_is_made_to_send_is_not_run),
        cmocka_unit_test(F50_nothing_is_left_of_a_client_that_has_gone),
        DIALOGUE(F50_a_client_may_go_between_two_pieces),
        DIALOGUE(F41_a_worker_of_no_stage_is_refused_and_may_go),
    };
    return dialogue_run(tests, sizeof tests / sizeof *tests, NULL, 0);
}
