// Replies whose bytes are on the disk only: every command that reads from the store, while the disk
// is slow, memory is short, the log fails, or the cleaner moves what is about to be read.
#include "support/dialogue.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

enum { ROUNDS = 4 }; // of fetches for one command

// Job 1 is done, job 2 is dead, and a schedule has a body.
static struct dialogue *dialogue_cold(void) {
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    push(d, "s a");
    struct job done = take(d, 0, "s");
    send_linef(d, 0, "DONE %s %s RESULT result", done.id, done.token);
    expect_reply(d, 0, "+OK");
    push(d, "s b");
    struct job dead = take(d, 0, "s");
    send_linef(d, 0, "FAIL %s %s 'out of paper' NEVER", dead.id, dead.token);
    expect_reply(d, 0, "+OK");
    ask(d, 1, "SCHEDULE s daily EVERY 1d PUSH report META owner", "+OK");
    chill(d);
    return d;
}

// `without`: the reply that leaves out what there is no memory for.
static const struct cold_request {
    const char *words, *reply, *without;
} requests[] = {
    { "AWAIT 1", "\"result\"", NULL },
    { "AWAIT 2", "-DEAD out of paper", NULL },
    { "JOB 1 BODY", "[*\"result\" \"result\"*]", "[*\"result\" nil]" },
    { "JOB 2", "[*\"out of paper\"*]", "[*\"reasons\" []*]" },
    { "JOBS s", "[*\"out of paper\"*]", "[*\"reasons\" []*]" },
    { "DEAD", "[[*\"out of paper\"*]]", "[[*\"reasons\" []*]]" },
    { "SCHEDULE s daily BODY", "[*\"body\" \"report\" \"meta\" \"owner\"]", "[*\"body\" nil*]" },
    { "RETRY STAGE s DEAD REASON paper DRY", ":1", NULL },
    { "RETRY STAGE s DEAD REASON ink DRY", ":0", NULL },
};

static void fetch_until_replied(struct dialogue *d, int client) {
    for (int i = 0; i < ROUNDS && !d->clients[client].received.size && d->fetch_count; i++)
        fetch_all(d);
}

// C7: the reply comes when it was read, and other clients are served meanwhile.
static void C7_every_command_waits_for_what_it_reads(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(requests); i++) {
        struct dialogue *d = dialogue_cold();
        send_line(d, 0, requests[i].words);
        expect_no_reply(d, 0);
        ask(d, 1, "PING", "+PONG");
        fetch_until_replied(d, 0);
        expect_reply(d, 0, requests[i].reply);
        dialogue_destroy(d);
    }
}

// F50: a client may go while its reply is read.
static void F50_a_client_may_go_while_its_reply_is_read(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(requests); i++) {
        struct dialogue *d = dialogue_cold();
        send_line(d, 0, requests[i].words);
        hang_up(d, 0);
        fetch_all(d);
        ask(d, 1, "PING", "+PONG");
        dialogue_destroy(d);
    }
}

// The reply, or what it may be without memory; a client whose reply could not be written whole is
// disconnected.
static void expect_reply_or_full(struct dialogue *d, const struct cold_request *r) {
    if (d->clients[0].closed) {
        buffer_clear(&d->clients[0].received);
        connect_client(d, 0);
        return;
    }
    const char *reply = next_reply(d, 0);
    bool expected = reply_fits(r->reply, reply) || reply_fits("-FULL *", reply) ||
                    (r->without && reply_fits(r->without, reply));
    if (!expected)
        print_error("%s: %s\n", r->words, reply);
    assert_true(expected);
}

// F51: every allocation fails once, before the disk is read and after; the same command succeeds
// afterwards.
static void F51_no_reply_is_lost_for_want_of_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(requests); i++) {
        bool failed = true;
        long n = 0;
        for (; failed; n++) {
            struct dialogue *d = dialogue_cold();
            mem_fail_after(n);
            send_line(d, 0, requests[i].words);
            fetch_until_replied(d, 0);
            failed = mem_fail_after(-1) < 0;
            fetch_until_replied(d, 0);
            expect_reply_or_full(d, &requests[i]);
            send_line(d, 0, requests[i].words);
            fetch_until_replied(d, 0);
            expect_reply(d, 0, requests[i].reply);
            dialogue_destroy(d);
        }
        assert_true(n > 2);
    }
}

static struct dialogue *dialogue_with_dead(uint32_t count) {
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    for (uint32_t i = 0; i < count; i++) {
        push(d, "s a");
        struct job job = take(d, 0, "s");
        send_linef(d, 0, "FAIL %s %s 'out of paper' NEVER", job.id, job.token);
        expect_reply(d, 0, "+OK");
    }
    chill(d);
    return d;
}

// For a command of many turns.
static void turn_until_replied(struct dialogue *d) {
    for (int i = 0; i < 1000 && !d->clients[0].received.size; i++)
        fetch_all(d);
}

// How many jobs a DROP whose Nth allocation fails says that it has dropped. False: none failed.
static bool drop_failing(struct dialogue *d, long n, uint64_t *out_dropped) {
    mem_fail_after(n);
    send_line(d, 0, "DROP STAGE s DEAD REASON paper MAX 2000");
    turn_until_replied(d);
    bool failed = mem_fail_after(-1) < 0;
    turn_until_replied(d);
    const char *reply = next_reply(d, 0);
    assert_true(reply[0] == ':' || reply_fits("-FULL *", reply));
    *out_dropped = reply[0] == ':' ? strtoul(reply + 1, NULL, 10) : 0;
    return failed;
}

// F51: an error of DROP has changed nothing, and a number is that of the jobs that are gone.
static void F51_DROP_by_reason_has_dropped_as_many_as_it_says(void **state) {
    (void)state;
    enum { DEAD = LIMIT_PIECE + 2 };
    bool failed = true;
    long n = 0;
    for (; failed; n += 1 + n / 4) { // each reason that is read is an allocation
        struct dialogue *d = dialogue_with_dead(DEAD);
        uint64_t dropped;
        failed = drop_failing(d, n, &dropped);
        chill(d);
        send_line(d, 0, "DROP STAGE s DEAD REASON paper MAX 2000");
        turn_until_replied(d);
        char rest[24];
        snprintf(rest, sizeof rest, ":%" PRIu64, DEAD - dropped);
        expect_reply(d, 0, rest);
        dialogue_destroy(d);
    }
    assert_true(n > 2);
}

// F24: reading goes on when the log can no longer be written.
static void F24_a_log_that_fails_can_still_be_read(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(requests); i++) {
        struct dialogue *d = dialogue_cold();
        send_line(d, 0, requests[i].words);
        sim_disk_break(d->disk, SIM_SYNCS, 5);
        ask(d, 1, "PUSH s x", "-STOPPED *");
        fetch_until_replied(d, 0);
        const char *reply = next_reply(d, 0);
        assert_true(strncmp(reply, "-STOPPED ", 9) == 0 || reply[0] == requests[i].reply[0]);
        dialogue_destroy(d);
    }
}

// A few segments of jobs that nobody keeps, so that the cleaner removes the oldest segment.
static void make_cleaner_move(struct dialogue *d) {
    static char body[4000];
    memset(body, 'x', sizeof body - 1);
    ask(d, 1, "STAGE t retention 0,0", "+OK");
    for (int i = 0; i < 200; i++) {
        mr_bytes words[] = { mr_str("PUSH"), mr_str("t"), mr_str(body) };
        send_words(d, 1, words, 3);
        expect_reply(d, 1, "\"*\"");
        ask(d, 1, "DROP STAGE t WAITING", ":1");
        pass_ms(d, 10);
    }
}

// C7: what the cleaner has moved before it was read is read where it is now.
static void C7_a_reply_is_found_where_the_cleaner_has_moved_it(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(requests); i++) {
        struct dialogue *d = dialogue_cold();
        struct log_state before, after;
        send_line(d, 0, requests[i].words);
        expect_no_reply(d, 0);
        shard_look(d->host.parts[0].shard, &before);
        sim_disk_chill(d->disk, false);
        make_cleaner_move(d);
        shard_look(d->host.parts[0].shard, &after);
        assert_true(after.head > before.tail);
        fetch_until_replied(d, 0);
        expect_reply(d, 0, requests[i].reply);
        dialogue_destroy(d);
    }
}

// F50: a schedule and a job that are gone when their bytes were read are answered as such.
static void F50_what_is_dropped_while_it_is_read_is_gone(void **state) {
    (void)state;
    struct dialogue *d = dialogue_cold();
    connect_client(d, 2);
    send_line(d, 0, "SCHEDULE s daily BODY");
    send_line(d, 2, "JOB 2");
    ask(d, 1, "SCHEDULE s daily DROP", "+OK");
    ask(d, 1, "DROP 2", ":1");
    fetch_all(d);
    expect_reply(d, 0, "-GONE *");
    expect_reply(d, 2, "-GONE *");
    dialogue_destroy(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C7_every_command_waits_for_what_it_reads),
        cmocka_unit_test(F50_a_client_may_go_while_its_reply_is_read),
        cmocka_unit_test(F51_no_reply_is_lost_for_want_of_memory),
        cmocka_unit_test(F51_DROP_by_reason_has_dropped_as_many_as_it_says),
        cmocka_unit_test(F24_a_log_that_fails_can_still_be_read),
        cmocka_unit_test(C7_a_reply_is_found_where_the_cleaner_has_moved_it),
        cmocka_unit_test(F50_what_is_dropped_while_it_is_read_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
