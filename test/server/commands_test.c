// Commands: what each answers, with every option, at its limits, to mistakes, in RESP2 and RESP3.
#include "server/shards.h"
#include "support/dialogue.h"

#include "server/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mr_bytes text(const char *s) {
    return mr_str(s);
}

static void fail_job(struct dialogue *d, struct job job, const char *reason) {
    send_linef(d, 0, "FAIL %s %s '%s'", job.id, job.token, reason);
    expect_reply(d, 0, "+OK");
}

static void done_by(struct dialogue *d, int client, struct job job) {
    send_linef(d, client, "DONE %s %s", job.id, job.token);
    expect_reply(d, client, "+OK");
}

static void done_job(struct dialogue *d, struct job job) {
    done_by(d, 0, job);
}

// ---- The table
// ------------------------------------------------------------------------------------

// Every command is answered with its usage when words are missing, and names an option it does not
// know.
static void T1_wrong_numbers_of_arguments_are_answered_with_the_usage(void **state) {
    struct dialogue *d = *state;
    for (const struct command *c = command_table; c->name; c++) {
        if (!c->least)
            continue;
        mr_bytes words[8] = { text(c->name) };
        char usage[512];
        snprintf(usage, sizeof usage, "-ERR wrong number of arguments for %s; syntax: %s *",
                 c->name, c->name);
        send_words(d, 0, words, c->least);
        expect_reply(d, 0, usage);
    }
    ask(d, 0, "DUE 1 2", "-ERR wrong number of arguments for DUE*");
    ask(d, 0, "PING a b", "-ERR wrong number of arguments for PING*");
}

static void T1_an_unknown_option_is_named(void **state) {
    struct dialogue *d = *state;
    static const char *const with_options[] = {
        "PUSH s b",
        "PUSHMANY s",
        "CALL s b",
        "AWAIT 1",
        "DONE 1 AAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "EPIC s e",
        "JOB 1",
        "JOBS s",
        "DEAD s",
        "STAGES",
        "EPICS",
        "SCHEDULE s n",
        "SCHEDULES",
        "CHANNELS s",
        "WORKERS",
        "RETRY STAGE s DEAD",
        "DROP STAGE s WAITING",
        "FAIL 1 AAAAAAAAAAAAAAAAAAAAAAAAAAA no",
    };
    for (size_t i = 0; i < sizeof with_options / sizeof *with_options; i++) {
        send_linef(d, 0, "%s BOGUS x y z", with_options[i]);
        expect_reply(d, 0, "-ERR unknown option 'BOGUS' for *; *");
    }
}

// F49: numbers at and beyond their limits.
static void F49_numbers_at_their_limits(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s a DELAY", "-ERR DELAY needs a duration*");
    ask(d, 0, "PUSH s a EPIC e", "-ERR EPIC needs a number");
    ask(d, 0, "PUSH s a DELAY x", "-ERR 'x' is not a value of DELAY, which needs a duration: *");
    ask(d, 0, "PUSH s a DELAY -1", "-ERR '-1' is not a value of *");
    ask(d, 0, "PUSH s a DELAY 9223372036854775808", "-ERR *");
    ask(d, 0, "PUSH s a DELAY 99999999999999999999", "-ERR *");
    ask(d, 0, "PUSH s a DELAY 9223372036854775807", "-ERR *");
    ask(d, 0, "PUSH s a ATTEMPTS 4294967296", "-ERR *a count from 0 to 4294967295*");
    ask(d, 0, "PUSH s a ATTEMPTS 65536", "-ERR *");
    ask(d, 0, "PUSH s a ROOM -2", "-ERR *or -1 for ever*");
    ask(d, 0, "PUSH s a EPIC e 0", "-ERR *");
    ask(d, 0, "PUSH s a EPIC '' 1", "-ERR EPIC needs a name*");
    ask(d, 0, "CALL s a SOURCE '' 1", "-ERR SOURCE needs a name*");
    ask(d, 0, "PUSH s a EPIC e 1 SOURCE c 1", "-ERR * not by both");
    ask(d, 0, "PUSH s a EPIC e x", "-ERR *");
    ask(d, 0, "TAKE s COUNT 1001", "-ERR *");
    ask(d, 0, "TAKE s BATCH 1001 COUNT 1", "*");
    ask(d, 0, "TAKE s LEASE 4294967296", "-ERR *");
    ask(d, 0, "AWAIT x", "-ERR 'x' is not an id, which has decimal digits only");
    ask(d, 0, "AWAIT 18446744073709551616", "-ERR *");
    ask(d, 0, "AWAIT 18446744073709551615", "-GONE *");
    ask(d, 0, "JOB -1", "-ERR *");
    ask(d, 0, "JOBS s COUNT -1", "-ERR *");
    ask(d, 0, "RETRY STAGE s DEAD MAX x", "-ERR *");
    ask(d, 0, "EPIC s e END 18446744073709551615", "-ERR *");
    ask(d, 0, "EPIC s e END x", "-ERR *");
    ask(d, 0, "EPIC s e SKIP 0", "-ERR *");
    ask(d, 0, "EPIC s f END 0", "[*]");
    ask(d, 0, "EPIC s f WAIT -1 LEFT 18446744073709551615", "[*]");
    ask(d, 0, "EPIC s f WAIT -1 LEFT 9223372036854775807", "[*]");
    ask(d, 0, "EPIC s f WAIT -1 LEFT 18446744073709551616", "-ERR *");
    ask(d, 0, "EPIC s f WAIT -1 LEFT -1", "-ERR *");
    ask(d, 0, "EPIC s f OF x", "-ERR *");
    ask(d, 0, "PUSH s a ATTEMPTS 65535 DELAY 0 DEADLINE 1000000 ROOM 0", "\"*\"");
}

// T1: CLIENT and HELLO name what is wrong with their words.
static void T1_settings_of_a_connection_are_checked(void **state) {
    struct dialogue *d = *state;
    static const char *const wrong[] = {
        "CLIENT ID x",           "CLIENT GETNAME x", "CLIENT SETNAME", "CLIENT SETNAME 'a b'",
        "CLIENT SETINFO LIB",    "CLIENT CANCELS",   "CLIENT UNBLOCK", "CLIENT UNBLOCK x",
        "CLIENT CANCELS PLEASE", "HELLO 4",          "HELLO 3 AUTH x", "HELLO 3 SETNAME",
        "HELLO 3 SETNAME 'a b'", "CLIENT BOGUS",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        send_line(d, 0, wrong[i]);
        const char *reply = next_reply(d, 0);
        if (reply[0] != '-')
            print_error("%s: %s\n", wrong[i], reply);
        assert_int_equal(reply[0], '-');
    }
    ask(d, 0, "CLIENT GETNAME", "\"\"");
    ask(d, 0, "JOBS s PARKED KEY k", "-ERR PARKED cannot be combined with STATUS or KEY");
    ask(d, 0, "JOBS s PARKED STATUS dead", "-ERR PARKED cannot be combined with STATUS or KEY");
}

// U15: durations of options have units as those of policies have; a bare number is milliseconds.
static void U15_durations_may_have_units(void **state) {
    struct dialogue *d = *state;
    static const struct {
        const char *request;
        int64_t ms;
    } all[] = {
        { "250", 250 },    { "250ms", 250 },    { "30s", 30000 }, { "5m", 300000 },
        { "2h", 7200000 }, { "7d", 604800000 }, { "0s", 0 },      { "100000s", 100000000 }
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        send_linef(d, 0, "PUSH s%zu a DELAY %s DEADLINE 36500d ROOM %s", i, all[i].request,
                   all[i].request);
        expect_reply(d, 0, "\"*\"");
        send_linef(d, 0, "JOBS s%zu", i);
        char reply[128];
        snprintf(reply, sizeof reply, "[[*\"due-ms\" :%lld *]]",
                 all[i].ms ? (long long)all[i].ms : -1LL);
        expect_reply(d, 0, reply);
    }
    ask(d, 0, "TAKE t WAIT 0s LEASE 45s", "[]");
    ask(d, 0, "STAGE s lease 45s", "+OK");
    static const char *const wrong[] = { "5x", "s", "5 s", "1h30m", "-5s", "1.5s", "36501d", "5S" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        send_linef(d, 0, "PUSH s a DELAY '%s'", wrong[i]);
        expect_reply(d, 0, "-ERR *is not a value of DELAY*");
    }
    ask(d, 0, "JOBS s0 COUNT 5s", "-ERR *");
}

static void COMMAND_describes_the_commands(void **state) {
    struct dialogue *d = *state;
    uint64_t count = 0;
    for (const struct command *c = command_table; c->name; c++)
        count += c->doc != NULL;
    char expected[32];
    snprintf(expected, sizeof expected, ":%llu", (unsigned long long)count);
    ask(d, 0, "COMMAND COUNT", expected);
    send_line(d, 0, "COMMAND");
    const char *all = next_reply(d, 0);
    assert_non_null(strstr(all, "[\"push\" :-3 [+write] :1 :1 :1]"));
    assert_non_null(strstr(all, "[\"ping\" :-1 [+readonly] :0 :0 :0]"));
    ask(d, 0, "COMMAND INFO get nonsense cancel", "[nil nil [\"cancel\" :-2 [+write] :1 :1 :1]]");
    ask(d, 0, "COMMAND DOCS push",
        "[\"push\" [\"summary\" \"pushes a job*\" \"group\" \"millrace\" \"syntax\" \"stage body "
        "*\"arguments\" [[\"name\" \"stage body *\" \"type\" \"string\"]]]]");
    ask(d, 0, "COMMAND DOCS quit", "[\"quit\" [*\"arguments\" []]]");
    ask(d, 0, "COMMAND DOCS nonsense", "[]");
    ask(d, 0, "COMMAND DOCS get", "[]"); // it only names what to use instead
    ask(d, 0, "HELLO 3", "{*}");
    ask(d, 0, "COMMAND DOCS why nonsense", "{\"why\" {*}}");
    ask(d, 0, "COMMAND DOCS", "{\"push\" {*");
    ask(d, 0, "COMMAND LIST", "-ERR COMMAND has *");
}

// ---- Connecting
// -----------------------------------------------------------------------------------

static void what_clients_say_at_connect_is_answered(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "ping", "+PONG");
    ask(d, 0, "PiNg hello", "\"hello\"");
    ask(d, 0, "ECHO ''", "\"\"");
    ask(d, 0, "HELLO", "[\"server\" \"millrace\" \"version\" \"7.0.0\" \"proto\" :2 \"id\" :* *]");
    ask(d, 0, "HELLO 3 SETNAME me", "{*\"proto\" :3*\"mode\" \"standalone\" \"role\" \"master\"*}");
    ask(d, 0, "CLIENT GETNAME", "\"me\"");
    ask(d, 0, "HELLO 4", "-NOPROTO *");
    ask(d, 0, "HELLO 3 BOGUS", "-ERR *");
    ask(d, 0, "HELLO 2 SETNAME 'a b'", "-ERR *");
    ask(d, 0, "HELLO 2", "[*]");
    ask(d, 0, "CLIENT SETNAME other", "+OK");
    ask(d, 0, "CLIENT GETNAME", "\"other\"");
    ask(d, 0, "CLIENT SETNAME ''", "+OK");
    ask(d, 0, "CLIENT SETINFO lib-name x", "+OK");
    ask(d, 0, "CLIENT ID", dialogue_loops > 1 ? ":3" : ":1");
    ask(d, 0, "CLIENT NONSENSE", "-ERR CLIENT has *");
    ask(d, 0, "CLIENT CANCELS MAYBE", "-ERR *ON or OFF*");
    ask(d, 0, "SELECT 0", "+OK");
    ask(d, 0, "SELECT 1", "-ERR *");
    ask(d, 0, "CONFIG GET save", "[\"save\" \"\"]");
    ask(d, 0, "CONFIG GET maxmemory appendonly", "[\"appendonly\" \"yes\"]");
    ask(d, 0, "CONFIG GET", "[]");
    ask(d, 0, "CONFIG SET save x", "-ERR *");
    ask(d, 0, "AUTH secret", "-ERR *");
    ask(d, 0, "HELLO 3 AUTH default secret", "-ERR *");
    ask(d, 0, "INFO", "*redis_version:7.0.0*redis_mode:standalone*loading:0*role:master*");
    ask(d, 0, "INFO server", "\"# Server*");
    ask(d, 0, "INFO server clients", "\"# Server*# Clients*");
    ask(d, 0, "INFO nonsense", "\"\"");
    static const char *const others[] = { "WATCH a",     "UNWATCH", "LPUSH a b", "BLPOP a 0",
                                          "SUBSCRIBE c", "SET a b", "GET a",     "DEL a",
                                          "XADD a",      "EVAL x 0" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        send_line(d, 0, others[i]);
        expect_reply(d, 0, "-ERR * is a command of Redis*PUSH*TAKE*");
    }
}

// ---- Handing in
// -----------------------------------------------------------------------------------

// E2: the same name or number makes no second job.
static void E2_PUSH_with_its_options(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s a KEY k ONCE n", "\"1\"");
    ask(d, 0, "push s a once n key k", "\"1\"");
    ask(d, 0, "PUSH s b EPIC e 1", "\"2\"");
    ask(d, 0, "PUSH s b EPIC e 1", "\"2\"");
    ask(d, 0, "PUSH s c SOURCE client 1", "\"3\"");
    ask(d, 0, "PUSH s d EPIC e 2000", "-GAP *");
    ask(d, 0, "PUSH s e DELAY 100", "\"4\"");
    ask(d, 0, "PUSH s f DEADLINE 50", "\"5\"");
    ask(d, 0, "JOB 4", "[*\"status\" \"delayed\"*\"due-ms\" :100*]");
    ask(d, 0, "JOB 5", "[*\"status\" \"waiting\"*\"left-ms\" :50 *]");
    pass_ms(d, 50);
    ask(d, 0, "JOB 5", "[*\"status\" \"expired\"*]");
    ask(d, 0, "PUSH 'bad name' a", "-ERR *");
    ask(d, 0, "PUSH '' a", "-ERR *");
    ask(d, 0, "DRAIN s", "+OK");
    ask(d, 0, "PUSH s g", "-DRAINING *");
}

// F47: bodies of no byte, one, the most and one more.
static void F47_bodies_of_any_size(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ .max_body = 1000 });
    static const size_t sizes[] = { 0, 1, 1000, 1001 };
    char body[1001];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)i;
    for (size_t i = 0; i < 4; i++) {
        mr_bytes words[] = { text("PUSH"), text("s"), { body, sizes[i] } };
        send_words(d, 0, words, 3);
        expect_reply(d, 0, i < 3 ? "\"*\"" : "-TOOBIG *");
    }
    for (size_t i = 0; i < 3; i++) {
        send_line(d, 0, "TAKE s");
        assert_true(strlen(next_reply(d, 0)) >= sizes[i]);
    }
    ask(d, 0, "TAKE s", "[]");
    dialogue_destroy(d);
}

// F47: without a limit of its own, too: it is refused by name, and the dialogue goes on.
static void F47_a_body_of_one_byte_more_is_refused(void **state) {
    struct dialogue *d = *state;
    char *body = calloc(1, BODY_MOST + 1);
    mr_bytes words[] = { text("PUSH"), text("s"), { body, BODY_MOST } };
    send_words(d, 0, words, 3);
    expect_reply(d, 0, "\"*\"");
    words[2].size++;
    send_words(d, 0, words, 3);
    expect_reply(d, 0, "-TOOBIG *");
    ask(d, 0, "PING", "+PONG");
    free(body);
}

static void STAGES_counts_workers(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s a", "\"*\"");
    ask(d, 0, "TAKE s", "[[*]]");
    ask(d, 0, "TAKE s SLOTS 7", "[]");
    ask(d, 1, "STAGES", "[[*\"workers\" :1 *\"level\" :7 *]]");
    ask(d, 1, "WORKERS", "[[*\"stages\" \"s\" *\"level\" :7]]");
    send_line(d, 1, "TAKE t s WAIT 1 SLOTS 2");
    pass_ms(d, 1);
    expect_reply(d, 1, "[]");
    ask(d, 1, "STAGES NAME s", "[[*\"workers\" :2 *\"level\" :9 *]]");
    hang_up(d, 0);
    ask(d, 1, "STAGES NAME s", "[[*\"workers\" :1 *\"level\" :2 *]]");
}

static void PUSHMANY_with_its_options(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSHMANY s ITEMS k a k b '' c", "[\"1\" \"2\" \"3\"]");
    ask(d, 0, "JOBS s KEY k STATUS waiting", "[[\"id\" \"1\" *] [\"id\" \"2\" *]]");
    ask(d, 0, "PUSHMANY s DELAY 10 DEADLINE 20 ATTEMPTS 3 ROOM 5 ITEMS k d", "[\"4\"]");
    ask(d, 0, "JOB 4", "[*\"status\" \"delayed\"*\"attempts\" :3*\"left-ms\" :20 \"due-ms\" :10*]");
    ask(d, 0, "PUSHMANY s ITEMS", "-ERR *");
    ask(d, 0, "PUSHMANY s ITEMS k", "-ERR *");
    ask(d, 0, "PUSHMANY s ITEMS k a k", "-ERR PUSHMANY needs ITEMS*");
    ask(d, 0, "PUSHMANY s DELAY 10 k a", "-ERR unknown option 'k' for PUSHMANY*");
    ask(d, 0, "PUSHMANY s DELAY 10 DELAY 20", "-ERR PUSHMANY needs ITEMS*");
    ask(d, 0, "PUSHMANY 'bad name' ITEMS k a", "-ERR *");
}

static void CALL_AWAIT_and_CANCEL_answer_how_a_job_ended(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    ask(d, 1, "AWAIT 1", "nil");
    send_line(d, 1, "AWAIT 1 WAIT -1");
    ask(d, 0, "CANCEL 1", ":1");
    expect_reply(d, 1, "-CANCELLED job 1 *");
    ask(d, 0, "CANCEL 1", ":0");
    ask(d, 0, "CANCEL 99", "-GONE *");
    ask(d, 0, "AWAIT 99 WAIT -1", "-GONE *");
    send_line(d, 1, "CALL s b ONCE n");
    struct job job = take(d, 0, "s");
    send_linef(d, 0, "DONE %s %s RESULT r", job.id, job.token);
    expect_reply(d, 0, "+OK");
    expect_reply(d, 1, "\"r\"");
    ask(d, 1, "CALL s b ONCE n", "\"r\""); // its answer is there already
    push(d, "s c ATTEMPTS 1");
    job = take(d, 0, "s");
    fail_job(d, job, "broken");
    send_linef(d, 1, "AWAIT %s", job.id);
    expect_reply(d, 1, "-DEAD broken");
}

// ---- Working
// --------------------------------------------------------------------------------------

// T5: two keys, a block of three: the first key's two jobs, then the other.
static void T5_TAKE_with_its_options(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "PUSHMANY s ITEMS one a one b two c", "[*]");
    ask(d, 1, "PUSH t d DEADLINE 500", "\"4\"");
    ask(d, 0, "TAKE s COUNT 3 BATCH 3",
        "[[\"1\" \"*\" \"s\" \"one\" \"a\" :1 :-1 nil :30000 \"\"] [\"2\" *] [\"3\" * \"two\" "
        "\"c\" "
        "*]]");
    ask(d, 0, "TAKE s t COUNT 2 LEASE 1000", "[[\"4\" * \"t\" \"\" \"d\" :1 :500 nil :1000 \"\"]]");
    ask(d, 0, "TAKE nowhere", "[]");
    ask(d, 0, "TAKE 'bad name'", "-ERR *");
    ask(d, 0, "TAKE s WAIT", "-ERR WAIT needs *");
    ask(d, 0, "TAKE s COUNT 1 u", "-ERR unknown option 'u' for TAKE; *");
}

// E4: result, state and emitted jobs come together, or not at all.
static void E4_DONE_with_its_options(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "PUSHMANY s ITEMS k a k b k c", "[*]");
    struct job job = take(d, 0, "s");
    send_linef(d, 0, "DONE %s %s EMIT t", job.id, job.token);
    expect_reply(d, 0, "-ERR EMIT needs *");
    send_linef(d, 0, "DONE %s %s EMIT t x y BOGUS", job.id, job.token);
    expect_reply(d, 0, "-ERR unknown option 'BOGUS' for DONE; *");
    send_linef(d, 0, "DONE %s %s EMIT 'bad name' x y", job.id, job.token);
    expect_reply(d, 0, "-ERR *");
    ask(d, 1, "STAGES", "[[*]]"); // nothing of these has happened
    send_linef(d, 0, "DONE %s %s EMIT t x y STATE one RESULT r EMIT t '' z", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 1, "AWAIT 1", "\"r\"");
    ask(d, 1, "TAKE t COUNT 2", "[[* \"x\" \"y\" *] [* \"\" \"z\" *]]");
    send_line(d, 0, "TAKE s");
    expect_reply(d, 0, "[[\"2\" * \"b\" :1 :-1 \"one\" *]]");
    ask(d, 0, "DONE 2 nonsense", "-STALE *");
    ask(d, 0, "DONE x y", "-ERR 'x' is not an id*");
}

// An emit has the options of a push; they stand behind it.
static void E4_DONE_with_options_of_what_it_emits(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "PUSH s a", "\"1\"");
    struct job job = take(d, 0, "s");
    send_linef(d, 0, "DONE %s %s EMIT t k x DEADLINE 50x", job.id, job.token);
    expect_reply(d, 0, "-ERR '50x' is not a value of *");
    send_linef(d, 0, "DONE %s %s EMIT t k x DEADLINE 500 ATTEMPTS 1 EMIT t k y ONCE o RESULT r",
               job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 1, "AWAIT 1", "\"r\"");
    ask(d, 1, "PUSH t again KEY k ONCE o", "\"3\"");
    ask(d, 1, "JOB 2", "[*\"attempts\" :1 * \"left-ms\" :500 *]");
}

// A call that its connection does not wait for: the id at once, the end when it comes.
static void A1_CALL_later_replies_the_id_and_sends_the_end(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "CALL s a LATER", "-ERR *HELLO 3*");
    ask(d, 0, "HELLO 3", "{*}");
    ask(d, 0, "CALL s a LATER", "\"1\"");
    ask(d, 0, "CALL s b DEADLINE 50 LATER", "\"#2\"");
    ask(d, 0, "CALL s c LATER", "\"#3\"");
    ask(d, 0, "HELLO 2", "-ERR *LATER*"); // RESP2 cannot express it
    struct job job = take(d, 1, "s");
    send_linef(d, 1, "DONE %s %s RESULT r", job.id, job.token);
    expect_reply(d, 1, "+OK");
    expect_reply(d, 0, ">[\"ended\" \"1\" \"r\"]");
    pass_ms(d, 60);
    expect_reply(d, 0, ">[\"ended\" \"#2\" -EXPIRED *]");
    ask(d, 1, "CALL s d ONCE o LATER", "-ERR *");
    hang_up(d, 0); // with it goes the interest in what has not ended
    ask(d, 1, "JOB #3", "[*\"cancelled\"*]");
}

// Somebody else's TAKE is answered as if its time were over.
static void D1_CLIENT_UNBLOCK_answers_a_TAKE_that_waits(void **state) {
    struct dialogue *d = *state;
    char request[64], id[32];
    snprintf(id, sizeof id, ":%llu", (unsigned long long)d->clients[0].session->id);
    snprintf(request, sizeof request, "CLIENT UNBLOCK %s", id + 1);
    ask(d, 0, "CLIENT ID", id);
    ask(d, 1, request, ":0");
    send_line(d, 0, "TAKE s WAIT -1");
    ask(d, 1, request, ":1");
    expect_reply(d, 0, "[]");
    ask(d, 1, request, ":0");
    ask(d, 1, "CLIENT UNBLOCK 77", ":0");
    ask(d, 1, "CLIENT UNBLOCK x", "-ERR *");
    send_line(d, 0, "CALL s x"); // only takes
    ask(d, 1, request, ":0");
    ask(d, 1, "CANCEL 1", ":1");
    expect_reply(d, 0, "-CANCELLED *");
}

static void STAGES_by_name(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s a", "\"1\"");
    ask(d, 0, "PUSH t a", "\"*\"");
    ask(d, 0, "STAGES NAME t", "[[\"name\" \"t\" *]]");
    ask(d, 0, "STAGES NAME u", "-GONE *");
}

// G6: by stage, key and status; a dry run counts the same and changes nothing.
static void G6_CANCEL_of_a_stage(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s a KEY k", "\"*\"");
    ask(d, 0, "PUSH s b KEY k", "\"*\"");
    ask(d, 0, "PUSH s c KEY l", "\"*\"");
    ask(d, 0, "PUSH s d KEY l DELAY 1000", "\"*\"");
    ask(d, 0, "PUSH s e", "\"*\"");
    ask(d, 0, "PUSH t f KEY k", "\"*\"");
    struct job a = take(d, 1, "s");
    ask(d, 0, "CANCEL STAGE s DRY", ":5");
    ask(d, 0, "CANCEL STAGE s KEY l DRY", ":2");
    ask(d, 0, "CANCEL STAGE s KEY l STATUS delayed DRY", ":1");
    ask(d, 0, "CANCEL STAGE s KEY l STATUS delayed", ":1");
    ask(d, 0, "CANCEL STAGE s STATUS running DRY", ":1");
    ask(d, 0, "CANCEL STAGE s KEY k MAX 1 DRY", ":1");
    ask(d, 0, "CANCEL STAGE s KEY k", ":2");
    send_linef(d, 1, "DONE %s %s", a.id, a.token);
    expect_reply(d, 1, "-CANCELLED *");
    ask(d, 0, "CANCEL STAGE s MAX 1", ":1");
    ask(d, 0, "CANCEL STAGE s", ":1");
    ask(d, 0, "CANCEL STAGE s", ":0");
    ask(d, 0, "STAGES NAME s", "[[*\"waiting\" :0 *\"delayed\" :0 *\"cancelled\" :5 *]]");
    ask(d, 0, "STAGES NAME t", "[[*\"waiting\" :1 *]]");
    ask(d, 0, "CANCEL STAGE s STATUS dead",
        "-ERR 'dead' is not a value of STATUS, which needs delayed, waiting or running*");
    ask(d, 0, "CANCEL STAGE s REASON x", "-ERR *REASON*");
    ask(d, 0, "CANCEL STAGE", "-ERR *");
    ask(d, 0, "CANCEL STAGE unknown", "-GONE *");
}

static void CANCEL_of_several_ids(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    push(d, "s b");
    struct job a = take(d, 0, "s"), b = take(d, 0, "s");
    send_linef(d, 0, "CANCEL %s 99 %s", a.id, b.id);
    expect_reply(d, 0, ":2");
    send_linef(d, 0, "CANCEL %s %s", a.id, b.id);
    expect_reply(d, 0, ":0");
    ask(d, 0, "CANCEL 99 98", "-GONE *");
    ask(d, 0, "CANCEL 1 x", "-ERR *");
}

static void PAUSE_of_a_key(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s a KEY k", "\"*\"");
    ask(d, 0, "PUSH s b KEY k", "\"*\"");
    ask(d, 0, "PAUSE s KEY k", "+OK");
    ask(d, 0, "TAKE s", "[]");
    ask(d, 0, "CHANNELS s", "[[\"key\" \"k\" \"state\" \"parked\" *\"paused\" :1]]");
    ask(d, 0, "STAGES NAME s", "[[*\"held-by\" \"paused-keys\" *]]");
    ask(d, 0, "WHY s", "\"*RESUME s KEY k*");
    ask(d, 0, "WHY #1", "\"Job * waits because its key 'k' is paused: RESUME s KEY k *\"");
    ask(d, 0, "RESUME s", "+OK");
    ask(d, 0, "TAKE s", "[]");
    ask(d, 0, "PAUSE s KEY ''", "-ERR *");
    ask(d, 0, "PAUSE s LATER", "-ERR *LATER*");
    ask(d, 0, "RESUME s KEY k", "+OK");
    (void)take(d, 0, "s");
}

static void DUE(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s a DELAY 1000", "\"1\"");
    ask(d, 0, "WHY 1", "\"Job 1 is delayed*DUE 1 lets it start now*");
    ask(d, 0, "DUE 1", ":1");
    ask(d, 0, "DUE 1", ":0");
    struct job job = take(d, 0, "s");
    send_linef(d, 0, "RELEASE %s %s DELAY 1000", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "WHY 1", "\"Job 1 was released*DUE 1 lets it start now*");
    ask(d, 0, "DUE 1", ":1");
    job = take(d, 0, "s");
    ask(d, 0, "DUE 1", ":0");
    ask(d, 0, "DUE 77", "-GONE *");
    ask(d, 0, "DUE x", "-ERR *");
}

static void DONEMANY(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    push(d, "s b");
    push(d, "s c");
    struct job a = take(d, 0, "s"), b = take(d, 0, "s"), c = take(d, 0, "s");
    ask(d, 0, "DONEMANY 1", "-ERR *");
    ask(d, 0, "DONEMANY 1 a 2", "-ERR DONEMANY needs pairs*");
    send_linef(d, 0, "CANCEL %s", b.id);
    expect_reply(d, 0, ":1");
    send_linef(d, 0, "DONEMANY %s %s %s %s x y %s AAAA 77 %s %s %s", a.id, a.token, b.id, b.token,
               c.id, c.token, c.id, c.token);
    expect_reply(d, 0, "[+OK -CANCELLED * -ERR 'x' is not an id -STALE * -GONE job 77 * +OK]");
    send_linef(d, 0, "DONEMANY %s %s", a.id, a.token); // as DONE: the same answer again
    expect_reply(d, 0, "[+OK]");
    ask(d, 0, "STAGES NAME s", "[[*\"running\" :0 *\"done\" :2 *]]");
}

static void FAIL_and_RELEASE(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    struct job job = take(d, 0, "s");
    send_linef(d, 0, "FAIL %s %s no RETRY 10 NEVER", job.id, job.token);
    expect_reply(d, 0, "-ERR FAIL takes RETRY or NEVER*");
    send_linef(d, 0, "FAIL %s %s no RETRY 10", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "TAKE s", "[]");
    pass_ms(d, 10);
    job = take(d, 0, "s");
    send_linef(d, 0, "RELEASE %s %s", job.id, job.token);
    expect_reply(d, 0, "+OK");
    send_line(d, 0, "TAKE s");
    expect_reply(d, 0, "[[\"1\" * :2 *]]"); // the release counted nothing
    hang_up(d, 0);
    connect_client(d, 0);
    job = take(d, 0, "s");
    send_linef(d, 0, "RELEASE %s %s DELAY -1", job.id, job.token);
    expect_reply(d, 0, "-ERR *");
    send_linef(d, 0, "RELEASE %s %s LATER", job.id, job.token);
    expect_reply(d, 0, "-ERR *LATER*");
    send_linef(d, 0, "RELEASE %s %s DELAY 1000", job.id, job.token); // G9
    expect_reply(d, 0, "+OK");
    pass_ms(d, 999);
    ask(d, 0, "TAKE s", "[]");
    ask(d, 0, "JOB 1", "[*\"status\" \"waiting\" *\"due-ms\" :1 *]");
    pass_ms(d, 1);
    send_line(d, 0, "TAKE s");
    expect_reply(d, 0, "[[\"1\" * :3 *]]");
    hang_up(d, 0);
    connect_client(d, 0);
    job = take(d, 0, "s");
    send_linef(d, 0, "FAIL %s %s 'not\nagain' NEVER", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "DEAD", "[[*\"attempt\" :4*\"text\" \"not again\"*]]]]");
    ask(d, 0, "BEAT 1", "-ERR *");
    ask(d, 0, "BEAT 1 a 2", "-ERR BEAT needs pairs*");
    ask(d, 0, "BEAT x y", "-ERR *");
    ask(d, 0, "BEAT 1 a 77 b", "[\"1\" \"77\"]");
}

// ---- Looking
// --------------------------------------------------------------------------------------

static void A3_JOB_shows_a_job(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "HELLO 3", "{*}");
    push(d, "s body KEY k ATTEMPTS 2 DEADLINE 5000");
    pass_ms(d, 10);
    ask(d, 0, "JOB 1",
        "{\"id\" \"1\" \"stage\" \"s\" \"key\" \"k\" \"status\" \"waiting\" \"attempt\" :0 "
        "\"attempts\" :2 \"age-ms\" :10 \"left-ms\" :4990 \"due-ms\" :-1 "
        "\"running-ms\" :-1 \"worker\" :0 \"reasons\" []}");
    struct job job = take(d, 0, "s");
    pass_ms(d, 3);
    ask(d, 0, "JOB 1 BODY",
        "{*\"running\" \"attempt\" :1 *\"running-ms\" :3 \"worker\" :1 *\"body\" \"body\"}");
    send_linef(d, 0, "FAIL %s %s first OUTPUT 'last words' RETRY 0", job.id, job.token);
    expect_reply(d, 0, "+OK");
    pass_ms(d, 5);
    fail_job(d, take(d, 0, "s"), "second");
    pass_ms(d, 1);
    ask(d, 0, "JOB 1 BODY",
        "{*\"dead\"*\"left-ms\" :-1*\"reasons\" [{\"attempt\" :1 \"age-ms\" :6 \"text\" \"first\" "
        "\"output\" \"last words\"} "
        "{\"attempt\" :2 \"age-ms\" :1 \"text\" \"second\" \"output\" \"\"}] \"body\" \"body\"}");
    push(d, "s b KEY l");
    job = take(d, 0, "s");
    send_linef(d, 0, "DONE %s %s RESULT r", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "JOB 2 BODY", "{*\"key\" \"l\" \"status\" \"done\"*\"result\" \"r\"}");
    push(d, "s c KEY m");
    ask(d, 0, "CANCEL 3", ":1");
    ask(d, 0, "JOB 3 BODY", "{*\"key\" \"m\" \"status\" \"cancelled\"*\"body\" nil}");
    ask(d, 0, "JOB 99", "-GONE *");
    ask(d, 0, "JOB x", "-ERR *");
}

// R16: in memory its record is still that of its push.
static void R16_a_job_without_a_result_shows_none(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "HELLO 3", "{*}");
    push(d, "s body KEY k");
    struct job job = take(d, 0, "s");
    send_linef(d, 1, "AWAIT 1 WAIT -1");
    send_linef(d, 0, "DONE %s %s", job.id, job.token);
    expect_reply(d, 0, "+OK");
    expect_reply(d, 1, "\"\"");
    ask(d, 1, "AWAIT 1", "\"\"");
    ask(d, 0, "JOB 1 BODY", "{*\"key\" \"k\" \"status\" \"done\"*\"result\" \"\"}");
    ask(d, 0, "JOBS s STATUS done", "[{*\"key\" \"k\" \"status\" \"done\"*}]");
}

// G11: progress is shown while the lease lasts.
static void G11_PROGRESS_is_shown_and_extends_the_lease(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "HELLO 3", "{*}");
    push(d, "s a ATTEMPTS 5");
    struct job job = take(d, 0, "s LEASE 1000");
    ask(d, 0, "JOB 1", "{*\"reasons\" []}");
    pass_ms(d, 900);
    send_linef(d, 0, "PROGRESS %s %s 3 10 SAY 'three\nlines'", job.id, job.token);
    expect_reply(d, 0, "[]");
    pass_ms(d, 900);
    ask(d, 1, "JOB 1",
        "[*\"running\"*\"progress\" [\"done\" :3 \"total\" :10 \"text\" \"three lines\"]]");
    ask(d, 0, "JOBS s", "[{*\"progress\" {\"done\" :3 *}}]");
    send_linef(d, 0, "PROGRESS %s %s 4 0", job.id, job.token);
    expect_reply(d, 0, "[]");
    ask(d, 0, "JOB 1 BODY", "{*\"progress\" {\"done\" :4 \"total\" :0 \"text\" \"\"} \"body\" *}");
    send_linef(d, 0, "PROGRESS %s %s x 10", job.id, job.token);
    expect_reply(d, 0, "-ERR 'x' is not a value of done, which needs a number");
    fail_job(d, job, "no");
    ask(d, 0, "JOB 1", "{*\"reasons\" [*]}"); // gone with the lease
    send_linef(d, 0, "PROGRESS %s %s 5 10", job.id, job.token);
    expect_reply(d, 0, "[\"1\"]");
    ask(d, 0, "PROGRESS 1 nonsense 5 10", "[\"1\"]");
}

// G10: what comes last counts, until the job starts.
static void G10_PUSH_with_LAST_debounces(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s a ONCE o LAST DELAY 100", "\"1\"");
    pass_ms(d, 60);
    ask(d, 0, "PUSH s b ONCE o LAST DELAY 100 META m", "\"1\"");
    pass_ms(d, 60);
    ask(d, 0, "TAKE s", "[]");
    ask(d, 0, "PUSH s c ONCE o DELAY 100", "\"1\""); // without LAST the first one counts
    pass_ms(d, 40);
    ask(d, 0, "TAKE s", "[[\"1\" * \"b\" :1 * :30000 \"m\"]]");
    ask(d, 0, "PUSH s d ONCE o LAST", "\"2\"");
    ask(d, 0, "PUSH s e LAST ONCE o", "\"2\"");
    ask(d, 0, "TAKE s", "[[\"2\" * \"e\" *]]");
    ask(d, 0, "PUSH s d LAST", "-ERR LAST *ONCE*");
    ask(d, 0, "CALL s d ONCE o LAST", "-ERR unknown option 'LAST'*");
    ask(d, 0, "PUSHMANY s LAST ITEMS k x", "-ERR unknown option 'LAST'*");
}

// G12: META is the tenth value of a job of TAKE, and shown by JOB with BODY.
static void G12_META_reaches_the_worker_unchanged(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "HELLO 3", "{*}");
    push(d, "s body META 'a \\x00 b' KEY k");
    ask(d, 0, "JOB 1 BODY", "{*\"body\" \"body\" \"meta\" \"a \\x00 b\"}");
    ask(d, 0, "JOB 1", "{*\"reasons\" []}");
    ask(d, 0, "TAKE s", "[[\"1\" * \"k\" \"body\" :1 :-1 nil :30000 \"a \\x00 b\"]]");
    ask(d, 0, "PUSHMANY t META all ITEMS k x l ''", "[\"2\" \"3\"]");
    ask(d, 0, "TAKE t COUNT 2",
        "[[* \"k\" \"x\" * :30000 \"all\"] [* \"l\" \"\" * :30000 \"all\"]]");
    push(d, "u first");
    struct job job = take(d, 0, "u");
    send_linef(d, 0, "DONE %s %s EMIT v '' plain EMIT v '' traced META trace DELAY 10", job.id,
               job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "TAKE v", "[[* \"plain\" * :30000 \"\"]]");
    pass_ms(d, 10);
    ask(d, 0, "TAKE v", "[[* \"traced\" * :30000 \"trace\"]]");
    send_line(d, 1, "CALL w question META trace");
    ask(d, 0, "TAKE w", "[[* \"question\" * :30000 \"trace\"]]");
    char words[META_MOST + 64];
    snprintf(words, sizeof words, "PUSH s x META %0*d", META_MOST + 1, 1);
    ask(d, 0, words, "-TOOBIG a meta of 1025 bytes*");
    hang_up(d, 1);
}

static void A3_JOBS_lists_jobs_by_status_and_key(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "PUSHMANY s ITEMS k a k b l c", "[*]");
    ask(d, 1, "PUSH s d DELAY 100 KEY k", "\"4\"");
    ask(d, 1, "PUSH s e ATTEMPTS 1", "\"5\"");
    take(d, 0, "s"); // a
    done_job(d, take(d, 0, "s"));
    fail_job(d, take(d, 0, "s"), "no");
    ask(d, 1, "JOBS s",
        "[[\"id\" \"1\" *] [\"id\" \"2\" *] [\"id\" \"4\" *] [\"id\" \"5\" *] "
        "[\"id\" \"3\" *\"key\" \"l\"*]]");
    ask(d, 1, "JOBS s COUNT 2", "[[\"id\" \"1\" *] [\"id\" \"2\" *]]");
    ask(d, 1, "JOBS s FROM 2 COUNT 2", "[[\"id\" \"4\" *] [\"id\" \"5\" *]]");
    ask(d, 1, "JOBS s FROM 5", "[[\"id\" \"3\" *]]");
    ask(d, 1, "JOBS s FROM 3", "[]");
    ask(d, 1, "JOBS s COUNT 0", "[]");
    ask(d, 1, "JOBS s STATUS running", "[[\"id\" \"1\" *]]");
    ask(d, 1, "JOBS s status WAITING", "[[\"id\" \"2\" *]]");
    ask(d, 1, "JOBS s STATUS delayed", "[[\"id\" \"4\" *]]");
    ask(d, 1, "JOBS s STATUS delayed KEY l", "[]");
    ask(d, 1, "JOBS s PARKED", "[]");
    ask(d, 1, "JOBS s PARKED KEY l", "-ERR PARKED *");
    ask(d, 1, "JOBS s STATUS dead", "[[\"id\" \"5\" *\"text\" \"no\"*]]");
    ask(d, 1, "JOBS s STATUS done", "[[\"id\" \"3\" *]]");
    ask(d, 1, "JOBS s STATUS expired", "[]");
    ask(d, 1, "JOBS s STATUS cancelled", "[]");
    ask(d, 1, "JOBS s KEY k", "[[\"id\" \"1\" *] [\"id\" \"2\" *] [\"id\" \"4\" *]]");
    ask(d, 1, "JOBS s KEY nobody", "[]");
    ask(d, 1, "JOBS s KEY k STATUS done", "-ERR *KEY*");
    ask(d, 1, "JOBS s STATUS nonsense",
        "-ERR 'nonsense' is not a value of STATUS, which needs running, *");
    ask(d, 1, "JOBS nowhere", "-GONE *");
    ask(d, 1, "JOBS s FROM 99", "-GONE *");
    ask(d, 1, "JOBS s STATUS dead FROM 1", "-GONE *begin again");
}

// Every listing is bounded, whatever is asked for.
static void A3_listings_are_bounded(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 1100; i++) {
        send_linef(d, 0, "PUSH s%d a KEY k%d EPIC e%d 1", i, i, i);
        expect_reply(d, 0, "\"*\"");
        send_linef(d, 0, "PUSHMANY s ITEMS k%d a k%d b", i, i);
        expect_reply(d, 0, "[*]");
    }
    static const char *const asked[] = { "JOBS s", "JOBS s COUNT 5000", "STAGES",
                                         "CHANNELS s TOP 4294967295", "EPICS" };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        d->clients[0].received.size = 0;
        d->clients[0].unread = true;
        send_line(d, 0, asked[i]);
        mr_bytes ready = session_ready(d->clients[0].session);
        assert_memory_equal(ready.data, "*1000\r\n", 7);
        d->clients[0].unread = false;
        session_touch(d->clients[0].session);
        turn(d);
        expect_reply(d, 0, "[*");
    }
    ask(d, 0, "STAGES FROM s1098", d->host.shards == 1 ? "[[\"name\" \"s1099\"*]]" : "[[*");
}

static void F13_DEAD_lists_dead_jobs(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "DEAD", "[]");
    ask(d, 0, "DEAD nowhere", "-GONE *");
    for (int i = 1; i <= 4; i++) {
        send_linef(d, 1, "PUSH s%d a ATTEMPTS 1", i % 2);
        expect_reply(d, 1, "\"*\"");
        fail_job(d, take(d, 0, i % 2 ? "s1" : "s0"), "no");
    }
    ask(d, 0, "DEAD", "[[\"id\" \"1\" *] [\"id\" \"3\" *] [\"id\" \"2\" *] [\"id\" \"4\" *]]");
    ask(d, 0, "DEAD COUNT 3", "[[\"id\" \"1\" *] [\"id\" \"3\" *] [\"id\" \"2\" *]]");
    ask(d, 0, "DEAD FROM 3", "[[\"id\" \"2\" *] [\"id\" \"4\" *]]");
    ask(d, 0, "DEAD s0", "[[\"id\" \"2\" *] [\"id\" \"4\" *]]");
    ask(d, 0, "DEAD s0 FROM 2 COUNT 1", "[[\"id\" \"4\" *]]");
    ask(d, 0, "DEAD s0 FROM 1", "-GONE *");
    ask(d, 0, "DEAD FROM 99", "-GONE *");
}

// Stages that are called like options.
static void DEAD_knows_stages_from_options(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 2; i++) {
        send_linef(d, 0, "PUSH %s a", i ? "from" : "count");
        expect_reply(d, 0, "\"*\"");
        struct job job = take(d, 0, i ? "from" : "count");
        send_linef(d, 0, "FAIL %s %s why NEVER", job.id, job.token);
        expect_reply(d, 0, "+OK");
    }
    ask(d, 0, "DEAD count", "[[\"id\" \"1\" \"stage\" \"count\" *]]");
    ask(d, 0, "DEAD from", "[[\"id\" \"2\" \"stage\" \"from\" *]]");
    ask(d, 0, "DEAD count COUNT 0", "[]");
    ask(d, 0, "DEAD from count 5 from 2", "[]");
    ask(d, 0, "DEAD COUNT 1 FROM 1", "[[\"id\" \"2\" *]]");
    ask(d, 0, "DEAD from from 1", "-GONE *");
    ask(d, 0, "DEAD other COUNT", "-ERR COUNT *");
}

static void A10_STAGES_shows_counters_and_times(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "STAGES", "[]");
    push(d, "s a");
    pass_ms(d, 30);
    ask(d, 0, "STAGES",
        "[[\"name\" \"s\" \"waiting\" :1 \"running\" :0 \"parked\" :0 \"delayed\" :0 \"dead\" :0 "
        "\"oldest-ms\" :30 \"held-by\" \"no-worker\" \"workers\" :0 \"pushed\" :1 \"done\" :0 "
        "\"failed\" :0 \"expired\" :0 \"cancelled\" :0 \"in-per-s\" \"*\" \"out-per-s\" \"*\" "
        "\"wait-p50-ms\" :0 \"wait-p99-ms\" :0 \"wasted-wait-ms\" :0 \"states\" :0 "
        "\"run-p50-ms\" :0 \"run-p99-ms\" :0 \"waits\" :0 \"waited-ms\" :0 \"runs\" :0 "
        "\"ran-ms\" :0 \"level\" :0 \"paused\" :0 \"draining\" :0 \"feeds\" [] "
        "\"groups\" :0 \"top-groups\" []]]");
    struct job job = take(d, 0, "s t");
    ask(d, 0, "STAGES", "[[*\"running\" :1 *\"workers\" :1 *]*]");
    done_job(d, job);
    push(d, "s b");
    pass_ms(d, 20);
    ask(d, 0, "CANCEL #2", ":1");
    ask(d, 0, "HELLO 3", "{*}");
    ask(d, 0, "STAGES",
        "[{*\"oldest-ms\" :-1 \"held-by\" \"\"*\"done\" :1*\"cancelled\" :1 \"in-per-s\" ,*"
        "\"wasted-wait-ms\" :20*}*]");
    push(d, "u c");
    ask(d, 0, "STAGES FROM s", "[*\"u\"*]");
    ask(d, 0, "STAGES COUNT 1", "[{\"name\" \"s\" *}]");
    ask(d, 0, "STAGES FROM u", "[]");
    ask(d, 0, "STAGES FROM nowhere", "-GONE *");
}

static void E1_STAGES_shows_where_jobs_are_emitted(void **state) {
    struct dialogue *d = *state;
    push(d, "read a");
    struct job job = take(d, 0, "read");
    ask(d, 0, "STAGES NAME read", "[[*\"feeds\" []*]]");
    send_linef(d, 0, "DONE %s %s EMIT count k x EMIT log k y EMIT count k z", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "STAGES NAME read", "[[*\"feeds\" [\"count\" \"log\"]*]]");
    ask(d, 0, "STAGES NAME count", "[[*\"feeds\" []*]]");
}

static void D4_a_producer_sets_the_expected_number(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "EPIC s june OF 9", "-GONE *");
    push(d, "s a EPIC june 1");
    ask(d, 0, "EPIC s june", "[*\"expected\" :-1 *]");
    ask(d, 0, "EPIC s june OF 40", "[\"resume\" :2 \"total\" :-1 *\"expected\" :40 *]");
    ask(d, 0, "EPIC s june WAIT -1 LEFT 1 OF 41", "[*\"expected\" :41 *]");
    ask(d, 0, "EPICS", "[[\"name\" \"june\" *\"expected\" :41 *]]");
}

static void CHANNELS_lists_the_deepest(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "CHANNELS nowhere", "-GONE *");
    ask(d, 1, "PUSHMANY s ITEMS k a k b k c l d l e m f", "[*]");
    pass_ms(d, 5);
    ask(d, 0, "CHANNELS s",
        "[[\"key\" \"k\" \"state\" \"ready\" \"depth\" :3 \"oldest-ms\" :5 \"parked-ms\" :-1 "
        "\"halted\" :0 \"has-state\" :0 *] [\"key\" \"l\" *]]");
    ask(d, 0, "CHANNELS s TOP 1", "[[\"key\" \"k\" *]]");
    ask(d, 0, "CHANNELS s TOP 0", "[]");
    struct job job = take(d, 0, "s");
    ask(d, 0, "CHANNELS s TOP 1", "[[\"key\" \"k\" \"state\" \"in-progress\" *]]");
    send_linef(d, 0, "FAIL %s %s no RETRY 100", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "CHANNELS s TOP 1", "[[\"key\" \"k\" \"state\" \"parked\" * \"parked-ms\" :100 *]]");
}

// B6: time in the system is waiting and running; beside it stands the level of its workers.
static void B6_STAGES_shows_how_long_jobs_run(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    pass_ms(d, 5);
    struct job job = take(d, 0, "s SLOTS 3");
    ask(d, 1, "TAKE s SLOTS 4", "[]");
    pass_ms(d, 20);
    done_job(d, job);
    ask(d, 1, "STAGES",
        "[[*\"run-p50-ms\" :20 \"run-p99-ms\" :20 \"waits\" :1 \"waited-ms\" :5 \"runs\" :1 "
        "\"ran-ms\" :20 \"level\" :7 *]]");
    ask(d, 1, "WORKERS", "[[*\"level\" :3] [*\"level\" :4]]");
    ask(d, 1, "TAKE s", "[]"); // the setting stays
    ask(d, 1, "WORKERS FROM 1", "[[*\"level\" :4]]");
}

// B6: the jobs of a block run one after another, from the end of the one before.
static void B6_jobs_of_a_block_run_one_after_another(void **state) {
    struct dialogue *d = *state;
    push(d, "s a KEY k");
    push(d, "s b KEY k");
    send_line(d, 0, "TAKE s COUNT 2 BATCH 2");
    char token[40];
    assert_int_equal(sscanf(next_reply(d, 0), "[[\"1\" \"%39[^\"]\"", token), 1);
    pass_ms(d, 10);
    send_linef(d, 0, "DONE 1 %s", token);
    pass_ms(d, 30);
    send_linef(d, 0, "DONE 2 %s", token);
    expect_reply(d, 0, "+OK");
    expect_reply(d, 0, "+OK");
    ask(d, 1, "STAGES", "[[*\"run-p50-ms\" :10 \"run-p99-ms\" :30 *\"runs\" :2 \"ran-ms\" :40 *]]");
}

// U15: no attempts are those of the stage, as its documentation says.
static void U15_ATTEMPTS_0_is_the_policy_of_the_stage(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "STAGE s attempts 3", "+OK");
    ask(d, 0, "PUSH s x ATTEMPTS 0", "\"*\"");
    ask(d, 0, "PUSH s x ATTEMPTS 2", "\"*\"");
    ask(d, 0, "JOBS s", "[[*\"attempts\" :3 *] [*\"attempts\" :2 *]]");
    ask(d, 0, "COMMAND DOCS PUSH", "*(0: the policy of the stage)*");
}

// U15: a rate has three decimals at most.
static void U15_rates_have_few_digits(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 7; i++) {
        push(d, "s a");
        pass_ms(d, 777);
        send_line(d, 0, "STAGES");
        const char *reply = next_reply(d, 0), *rate = strstr(reply, "in-per-s\" \"");
        assert_non_null(rate);
        rate += strlen("in-per-s\" \"");
        const char *point = strchr(rate, '.'), *end = strchr(rate, '"');
        assert_true(strspn(rate, "0123456789.") == (size_t)(end - rate));
        assert_true(!point || point > end || end - point <= 4);
    }
}

// U12: a job is counted for the connection that took it, on whichever it is ended.
static void U12_ends_are_counted_for_the_connection_that_took_the_job(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 4; i++)
        ask(d, 1, "PUSH s x", "\"*\"");
    const char *const ends[] = { "DONE %s %s", "DONE %s %s RESULT r", "FAIL %s %s 'no good' NEVER",
                                 "RELEASE %s %s" };
    for (int i = 0; i < 4; i++) {
        struct job job = take(d, 0, "s");
        char request[256];
        snprintf(request, sizeof request, ends[i], job.id, job.token);
        ask(d, 1, request, "+OK");
    }
    ask(d, 1, "WORKERS", "[[*\"taken\" :4 \"ended\" :4 *]]");
}

static void WORKERS_are_connections_that_take_jobs(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "WORKERS", "[]");
    ask(d, 0, "CLIENT SETNAME me", "+OK");
    push(d, "s a");
    done_job(d, take(d, 0, "s t"));
    pass_ms(d, 7);
    ask(d, 1, "WORKERS",
        "[[\"id\" :* \"name\" \"me\" \"address\" \"\" \"stages\" \"s t\" \"waits\" :0 "
        "\"leases\" :0 \"taken\" :1 \"ended\" :1 \"age-ms\" :7 \"level\" :0]]");
    send_line(d, 0, "TAKE u WAIT -1");
    ask(d, 1, "WORKERS", "[[*\"stages\" \"u\" \"waits\" :1 *]]");
    ask(d, 1, "STAGES", "[[\"name\" \"s\" *\"workers\" :0*] *[\"name\" \"u\" *\"workers\" :1*]]");
    ask(d, 1, dialogue_loops > 1 ? "WORKERS FROM 3" : "WORKERS FROM 1", "[]");
    ask(d, 1, "WORKERS COUNT 0", "[]");
    push(d, "u b");
    expect_reply(d, 0, "[[*]]");
    char many[2048] = "TAKE u";
    for (int i = 0; i < 20; i++)
        snprintf(many + strlen(many), 64, " a-stage-with-a-long-name-%02d", i);
    ask(d, 0, many, "[]");
    snprintf(many + strlen(many), 16, " WAIT 1");
    send_line(d, 0, many);
    ask(d, 1, "WORKERS", "[[*\"stages\" \"u a-stage-with-a-long-name-00 *-07 ...\" *]]");
    pass_ms(d, 1);
    expect_reply(d, 0, "[]");
}

// ---- Epics
// ----------------------------------------------------------------------------------------

// D4, T9, T16: an epic has an end and progress, is kept without workers, and goes on where it was.
static void D4_T9_T16_EPIC_with_its_options(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "EPIC s e", "-GONE *");
    ask(d, 0, "EPIC s e WAIT -1", "-GONE *");
    ask(d, 0, "EPIC s e DROP", "-GONE *");
    ask(d, 0, "EPICS", "[]");
    ask(d, 0, "PUSH s a EPIC e 1", "\"*\"");
    ask(d, 0, "EPIC s e",
        "[\"resume\" :2 \"total\" :-1 \"accepted\" :1 \"waiting\" :1 \"running\" :0 "
        "\"done\" :0 \"dead\" :0 \"cancelled\" :0 \"expired\" :0 \"stage\" \"s\" "
        "\"held-by\" \"no-worker\" \"expected\" :-1 \"then\" \"\" \"then-pushed\" :0 "
        "\"stopped\" :0 \"forget-ms\" :0]");
    ask(d, 0, "EPIC s e SKIP 2", "[\"resume\" :3 *]");
    ask(d, 0, "EPIC s e SKIP 5000", "-GAP *");
    ask(d, 0, "EPIC s e END 2", "[\"resume\" :3 \"total\" :2 *]");
    send_line(d, 1, "EPIC s e WAIT 100");
    pass_ms(d, 100);
    expect_reply(d, 1, "[*\"waiting\" :1 *]");
    send_line(d, 1, "EPIC s e WAIT -1");
    ask(d, 0, "PUSH t other", "\"*\"");
    expect_no_reply(d, 1);
    done_job(d, take(d, 0, "s"));
    expect_reply(d, 1, "[*\"done\" :1 *]");
    ask(d, 1, "EPIC s e WAIT -1", "[*\"done\" :1 *]"); // it is over
    ask(d, 0, "EPIC s e BOGUS",
        "-ERR unknown option 'BOGUS' for EPIC; syntax: EPIC stage name *THEN *");
    ask(d, 0, "EPIC s e END", "-ERR *");
    ask(d, 0, "EPIC s '' END 1", "-ERR *");
    ask(d, 0, "EPIC s e DROP", "[*\"done\" :1 *]");
    ask(d, 0, "EPIC s e", "-GONE *");
}

// G4: THEN is pushed with the last DONE; later retries push nothing.
static void G4_EPIC_THEN_pushes_a_job_with_the_end(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "EPIC s e THEN report k 'first'", "[*\"then\" \"report\" \"then-pushed\" :0 *]");
    ask(d, 0, "EPIC s e THEN report '' 'all done'", "[*\"then\" \"report\" *]");
    push(d, "s a EPIC e 1");
    ask(d, 0, "EPIC s e END 1", "[*\"then\" \"report\" *]");
    ask(d, 0, "TAKE report", "[]");
    send_line(d, 1, "EPIC s e WAIT -1");
    done_job(d, take(d, 0, "s"));
    expect_reply(d, 1, "[*\"done\" :1 *\"then\" \"\" \"then-pushed\" :1 *]");
    ask(d, 0, "TAKE report", "[[\"*\" \"*\" \"report\" \"\" \"all done\" :1 *]]");
    ask(d, 0, "EPIC s e THEN report '' 'all done'", "[*\"then-pushed\" :1 *]"); // the same again
    ask(d, 0, "EPIC s e THEN report '' 'other'", "-ERR this epic has ended*");
    ask(d, 0, "TAKE report", "[]");
}

static void G5_EPIC_CANCEL_ends_its_jobs_and_refuses_more(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "EPIC s e CANCEL", "-GONE *");
    push(d, "s a EPIC e 1");
    push(d, "s b EPIC e 2");
    push(d, "s other");
    struct job job = take(d, 0, "s");
    send_line(d, 1, "EPIC s e WAIT -1");
    ask(d, 0, "EPIC s e CANCEL",
        "[*\"waiting\" :0 \"running\" :0 *\"cancelled\" :2 *\"stopped\" :1 *]");
    expect_reply(d, 1, "[*\"cancelled\" :2 *\"stopped\" :1 *]");
    send_linef(d, 0, "DONE %s %s", job.id, job.token);
    expect_reply(d, 0, "-CANCELLED *");
    ask(d, 0, "PUSH s c EPIC e 3", "-CANCELLED epic 'e' was cancelled*");
    ask(d, 0, "EPIC s e DROP", "[*]");
    ask(d, 0, "PUSH s c EPIC e 1", "\"*\"");
}

static void EPIC_FORGET_drops_it_later(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "EPIC s e FORGET 60000", "[*\"forget-ms\" :60000]");
    ask(d, 0, "EPIC s e END 0", "[*]");
    pass_ms(d, 59999);
    ask(d, 0, "EPIC s e", "[*]");
    pass_ms(d, 1);
    ask(d, 0, "EPIC s e", "-GONE *");
}

static void orders_of_an_epic_that_cannot_be_are_refused(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "EPIC s e THEN report k", "-ERR *");
    ask(d, 0, "EPIC s e THEN report k body more", "-ERR *");
    ask(d, 0, "EPIC s e THEN 'no stage' k body", "-ERR *cannot be in a stage's name*");
    ask(d, 0, "EPIC s e THEN '' k body", "-ERR a stage needs a name*");
    ask(d, 0, "EPIC s '' THEN report k body", "-ERR the name of an epic has*");
    ask(d, 0, "EPIC s e CANCEL now", "-ERR *");
    ask(d, 0, "EPIC s e FORGET", "-ERR *");
    ask(d, 0, "EPIC s e FORGET 999", "-ERR *1000 ms to 100 years*");
    ask(d, 0, "EPIC s e FORGET -1", "-ERR *");
    ask(d, 0, "EPIC s e FORGET soon", "-ERR *");
    ask(d, 0, "EPIC s e FORGET 18446744073709551615", "-ERR *");
    char line[64 + THEN_BODY_MOST + 1];
    int size = snprintf(line, sizeof line, "EPIC s e THEN report k ");
    memset(line + size, 'b', THEN_BODY_MOST + 1);
    line[size + THEN_BODY_MOST + 1] = 0;
    ask(d, 0, line, "-TOOBIG *4096 at most");
    ask(d, 0, "EPICS", "[]");
    ask(d, 0, "STAGES", "[]");
}

static void D4_an_empty_epic_ends_at_once(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "EPIC s e END 0", "[\"resume\" :1 \"total\" :0 \"accepted\" :0 *]");
    ask(d, 0, "EPIC s e WAIT -1", "[*\"total\" :0 *]");
    push(d, "s a EPIC f 1");
    send_line(d, 1, "EPIC s f WAIT -1");
    ask(d, 0, "EPIC s f DROP", "[*]");
    expect_reply(d, 1, "-GONE *");
}

// D4: with LEFT, who pushes an epic waits for the workers, with all that it has request behind
// that.
static void D4_EPIC_LEFT_holds_up_its_pusher(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "EPIC s e WAIT -1 LEFT 1", "-GONE *");
    for (int i = 1; i <= 3; i++) {
        send_linef(d, 0, "PUSH s %d EPIC e %d", i, i);
        expect_reply(d, 0, "\"*\"");
    }
    ask(d, 0, "EPIC s e LEFT 2", "[*\"waiting\" :3 *]"); // without WAIT it returns at once
    ask(d, 0, "EPIC s e LEFT x", "-ERR *");
    ask(d, 0, "EPIC s e WAIT -1 LEFT 3", "[*\"waiting\" :3 *]");
    send_line(d, 0, "EPIC s e WAIT 50 LEFT 2");
    pass_ms(d, 50);
    expect_reply(d, 0, "[*\"waiting\" :3 *]");
    send_line(d, 0, "EPIC s e WAIT -1 LEFT 1");
    send_line(d, 0, "PUSH s 4 EPIC e 4");
    done_by(d, 1, take(d, 1, "s"));
    expect_no_reply(d, 0);
    done_by(d, 1, take(d, 1, "s"));
    expect_reply(d, 0, "[*\"waiting\" :1 \"running\" :0 \"done\" :2 *]");
    expect_reply(d, 0, "\"#4\"");
    send_line(d, 0, "EPIC s e WAIT -1 LEFT 0");
    ask(d, 1, "EPIC s e DROP", "[*]");
    expect_reply(d, 0, "-GONE *");
}

// D4: a second one is not held up by the first.
static void D4_two_epics_do_not_wait_for_each_other(void **state) {
    struct dialogue *d = *state;
    push(d, "s a EPIC e 1");
    push(d, "t b EPIC f 1");
    send_line(d, 0, "EPIC s e WAIT -1 LEFT 0");
    connect_client(d, 2);
    send_line(d, 2, "EPIC t f WAIT -1 LEFT 0");
    done_by(d, 1, take(d, 1, "t"));
    expect_reply(d, 2, "[*\"done\" :1 *]");
    expect_no_reply(d, 0);
    done_by(d, 1, take(d, 1, "s"));
    expect_reply(d, 0, "[*\"done\" :1 *]");
}

static void EPICS_are_listed(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "EPIC s e END 0", "[*]");
    ask(d, 0, "EPIC s f END 0", "[*]");
    ask(d, 0, "EPICS", "[[\"name\" \"e\" \"resume\" :1 *] [\"name\" \"f\" *]]");
    ask(d, 0, "EPICS COUNT 1", "[[\"name\" \"e\" *]]");
    ask(d, 0, "EPICS FROM 's e'", "[[\"name\" \"f\" *]]");
    ask(d, 0, "EPICS FROM 's g'", "-GONE *");
}

// ---- Schedules --------------------------------------------------------------------------------

static void G1_SCHEDULE_pushes_when_its_time_comes(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "SCHEDULE s n EVERY 10s PUSH hello KEY k ATTEMPTS 3 META trace-1", "+OK");
    ask(d, 0, "SCHEDULE s n",
        "[\"name\" \"n\" \"stage\" \"s\" \"cron\" \"\" \"every-ms\" :10000 \"tz\" \"UTC\" "
        "\"missed\" \"skip\" \"paused\" :0 *\"last-at\" :-1 \"pushed\" :0 \"last-id\" \"0\" "
        "\"key\" \"k\" \"deadline-ms\" :0 \"attempts\" :3 \"body-size\" :5 \"upcoming\" [:* :*]]");
    pass_ms(d, 9999);
    ask(d, 0, "TAKE s", "[]");
    send_line(d, 1, "TAKE s WAIT -1");
    pass_ms(d, 1);
    expect_reply(d, 1, "[[* \"s\" \"k\" \"hello\" * \"trace-1\"]]");
    ask(d, 0, "SCHEDULE s n BODY", "[*\"pushed\" :1 *\"body\" \"hello\" \"meta\" \"trace-1\"]");
    ask(d, 0, "SCHEDULE s n PAUSE", "+OK");
    pass_ms(d, 60000);
    ask(d, 0, "SCHEDULE s n", "[*\"paused\" :1 \"next-at\" :-1 *\"upcoming\" []]");
    ask(d, 0, "SCHEDULE s n NOW", "+OK");
    ask(d, 0, "SCHEDULE s n", "[*\"paused\" :1 *\"pushed\" :2 *]");
    ask(d, 0, "SCHEDULE s n RESUME", "+OK");
    pass_ms(d, 10000);
    ask(d, 0, "SCHEDULE s n", "[*\"pushed\" :3 *]");
    ask(d, 0, "SCHEDULE s n DROP", "+OK");
    ask(d, 0, "SCHEDULE s n", "-GONE stage s has no schedule 'n'");
    ask(d, 0, "SCHEDULE s n DROP", "-GONE *");
}

static void SCHEDULE_refuses_what_it_cannot_do(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "SCHEDULE s n PUSH b", "-ERR * and has neither");
    ask(d, 0, "SCHEDULE s n EVERY 1s CRON @daily PUSH b", "-ERR * not both");
    ask(d, 0, "SCHEDULE s n EVERY 1s", "-ERR a schedule needs PUSH body*");
    ask(d, 0, "SCHEDULE s n EVERY 1s TZ UTC PUSH b", "-ERR TZ is the time zone of CRON*");
    ask(d, 0, "SCHEDULE s n EVERY 1s PUSH b BODY", "-ERR BODY shows *");
    ask(d, 0, "SCHEDULE s n EVERY 1s MISSED some PUSH b",
        "-ERR 'some' is not a value of MISSED, which needs skip, one or all");
    ask(d, 0, "SCHEDULE s n EVERY 999 PUSH b", "-ERR an interval of 999 ms *1000 ms to 100 years");
    ask(d, 0, "SCHEDULE s n EVERY 1s PUSH b DELAY 5",
        "-ERR unknown option 'DELAY' for SCHEDULE; *");
    ask(d, 0, "SCHEDULE s n CRON '' PUSH b", "-ERR a cron expression has five fields*");
    ask(d, 0, "SCHEDULE s n CRON '0 9 *' PUSH b", "-ERR a cron expression *and '0 9 *' has 3");
    ask(d, 0, "SCHEDULE s n EVERY 0 PUSH b", "-ERR an interval of 0 ms *1000 ms to 100 years");
    ask(d, 0, "SCHEDULE s n CRON '0 24 * * *' PUSH b", "-ERR the hour '24' *0 to 23*");
    ask(d, 0, "SCHEDULE s n CRON '0 0 31 2 *' PUSH b", "-ERR * never fires*");
    ask(d, 0, "SCHEDULE s n CRON @daily TZ Moon/Crater PUSH b",
        "-ERR no time zone 'Moon/Crater' *");
    ask(d, 0, "SCHEDULE s '' EVERY 1s PUSH b", "-ERR the name of a schedule has 1 to 200 bytes*");
    ask(d, 0, "SCHEDULE s n CRON '0 24 * * *' PUSH b DRY", "-ERR the hour '24' *0 to 23*");
    ask(d, 0, "SCHEDULE s n EVERY 1ms PUSH b DRY", "-ERR an interval of 1 ms *");
    ask(d, 0, "SCHEDULE 'no stage' n EVERY 1h PUSH b DRY", "-ERR *");
    ask(d, 0, "SCHEDULE s n EVERY 1h PUSH b DRY", "+OK"); // it is only checked
    ask(d, 0, "SCHEDULE s n NOW", "-GONE *");
    ask(d, 0, "SCHEDULES", "[]");
    ask(d, 0, "STAGES", "[]");
}

static void SCHEDULES_are_listed(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "SCHEDULE s a CRON '0 9 * * mon-fri' TZ Europe/Berlin MISSED one PUSH x", "+OK");
    ask(d, 0, "SCHEDULE s b EVERY 1h PUSH x", "+OK");
    ask(d, 0, "SCHEDULE other c EVERY 1h PUSH x", "+OK");
    ask(d, 0, "SCHEDULES s", "[[\"name\" \"a\" *\"missed\" \"one\" *] [\"name\" \"b\" *]]");
    ask(d, 0, "SCHEDULES s COUNT 1", "[[\"name\" \"a\" *]]");
    ask(d, 0, "SCHEDULES s FROM 's a'", "[[\"name\" \"b\" *]]");
    ask(d, 0, "SCHEDULES FROM 's z'", "-GONE *");
    ask(d, 0, "SCHEDULES s FROM 'other c'",
        "-ERR FROM takes a schedule of the stage *, not 'other c'");
    ask(d, 0, "SCHEDULES unknown", "[]");
    send_linef(d, 0, "SCHEDULES %0*d", STAGE_NAME_MOST + 1, 0); // no stage has such a name
    expect_reply(d, 0, "[]");
    send_line(d, 0, "SCHEDULES");
    const char *all = next_reply(d, 0);
    assert_true(strstr(all, "\"a\"") && strstr(all, "\"b\"") && strstr(all, "\"c\""));
    ask(d, 0, "STAGE other REMOVE", "-ERR * it has schedules (SCHEDULE * DROP)");
}

// ---- WHY
// --------------------------------------------------------------------------------------------

static void WHY_says_why_a_stage_waits(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "WHY s", "-GONE there is no stage 's'");
    push(d, "s a");
    ask(d, 0, "WHY s", "\"s has no worker, and 1 job waiting: TAKE s *\"");
    ask(d, 0, "PAUSE s", "+OK");
    ask(d, 0, "WHY s", "\"s is paused*RESUME s *\"");
    ask(d, 0, "RESUME s", "+OK");
    ask(d, 0, "DRAIN s", "+OK");
    ask(d, 0, "WHY s", "\"s has no worker*It is also draining*RESUME s *\"");
    ask(d, 0, "RESUME s", "+OK");
    struct job job = take(d, 0, "s");
    ask(d, 0, "WHY s", "\"s runs jobs (running: 1, waiting: 0).\"");
    ask(d, 0, "STAGE s concurrency 1", "+OK");
    push(d, "s b");
    ask(d, 0, "WHY s", "\"s runs as many*STAGE s concurrency none*\"");
    ask(d, 0, "STAGE s concurrency none rate 1/h", "+OK");
    done_job(d, job);
    job = take(d, 0, "s");
    push(d, "s c");
    ask(d, 0, "WHY s", "\"s has started as many*STAGE s rate none*\"");
    ask(d, 0, "STAGE s rate none", "+OK");
    ask(d, 0, "CANCEL #3", ":1");
    fail_job(d, job, "no");
    ask(d, 0, "WHY s", "\"s has failed jobs*\"");
    ask(d, 0, "CANCEL #2", ":1");
    ask(d, 0, "WHY s", "\"s has no jobs: PUSH s *\"");
    push(d, "s d DELAY 1000");
    ask(d, 0, "WHY s", "\"s has delayed jobs only*\"");
    ask(d, 0, "DRAIN s", "+OK");
    ask(d, 0, "WHY s", "\"s is draining*RESUME s *\"");
}

// G7: a tenant's next job comes after one of each other tenant, and CHANNELS lists the tenants.
static void G7_groups_take_turns_and_are_listed(void **state) {
    struct dialogue *d = *state;
    push(d, "s early KEY a/0");
    ask(d, 0, "STAGE s group on", "-ERR group cannot change while stage s has jobs: DRAIN it, *");
    ask(d, 0, "CHANNELS s GROUPS", "-ERR stage s has no groups: STAGE s group on, *");
    struct job early = take(d, 0, "s");
    send_linef(d, 0, "DONE %s %s", early.id, early.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "STAGE s group on", "+OK");
    for (int i = 0; i < 4; i++)
        push(d, "s flood KEY a/1");
    push(d, "s flood KEY a/2");
    push(d, "s other KEY b/");
    push(d, "s other KEY b/");
    ask(d, 0, "CHANNELS s GROUPS",
        "[[\"group\" \"a\" \"depth\" :5 \"running\" :0 \"ready\" :2 \"held-by\" \"\"] "
        "[\"group\" \"b\" \"depth\" :2 \"running\" :0 \"ready\" :2 \"held-by\" \"\"]]");
    ask(d, 0, "CHANNELS s TOP 1 GROUPS", "[[\"group\" \"a\" *]]");
    ask(d, 0, "STAGES NAME s", "[[*\"groups\" :2 \"top-groups\" [[\"group\" \"a\" *] [*]]]]");
    assert_string_equal(take(d, 0, "s").body, "flood");
    assert_string_equal(take(d, 0, "s").body, "other");
    assert_string_equal(take(d, 0, "s").body, "flood");
}

// G8: WHY names the limit of a group, for the stage and for a job.
static void G8_WHY_names_the_limit_of_a_group(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "STAGE s group on group-concurrency 1", "+OK");
    push(d, "s a KEY a/1");
    push(d, "s a KEY a/2");
    struct job running = take(d, 0, "s");
    ask(d, 0, "TAKE s", "[]");
    ask(d, 0, "STAGES NAME s", "[[*\"held-by\" \"group-limit\"*]]");
    ask(d, 0, "WHY s",
        "\"s runs as many jobs of each group as its group-concurrency allows, *"
        "STAGE s group-concurrency none removes the limit.\"");
    push(d, "s b KEY b/1");
    ask(d, 0, "STAGES NAME s", "[[*\"held-by\" \"\"*]]");
    ask(d, 0, "WHY 2",
        "\"Job 2 waits because its group 'a' runs as many jobs as "
        "group-concurrency allows: CHANNELS s GROUPS *\"");
    ask(d, 0, "STAGE s group-rate 1/h", "+OK");
    send_linef(d, 0, "DONE %s %s STATE x", running.id, running.token);
    expect_reply(d, 0, "+OK");
    assert_string_equal(take(d, 0, "s").body, "b");
    assert_string_equal(take(d, 0, "s").body, "a");
    push(d, "s a KEY a/");
    ask(d, 0, "STAGE s group-concurrency none", "+OK");
    ask(d, 0, "WHY s", "\"s has started as many jobs of each group as its group-rate allows, *\"");
    ask(d, 0, "WHY #4", "\"Job * waits because its group 'a' has started as many jobs as *\"");
    ask(d, 0, "STAGE s group-rate none", "+OK");
    struct job unordered = take(d, 0, "s");
    send_linef(d, 0, "DONE %s %s STATE x", unordered.id, unordered.token);
    expect_reply(d, 0, "-ERR a job of key a/ has no channel to keep state, *");
}

static void WHY_says_why_a_job_waits(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "WHY 1", "-GONE there is no job or stage '1'");
    ask(d, 1, "PUSHMANY s ITEMS k a k b", "[*]");
    ask(d, 0, "WHY 1", "\"s has no worker, and 2 jobs waiting*\"");
    ask(d, 0, "WHY #2", "\"Job * waits for job 1*'k'*WHY 1*CANCEL 1*\"");
    struct job job = take(d, 0, "s");
    ask(d, 0, "WHY 1", "\"Job 1 is running, attempt 1 of 10: CANCEL 1*\"");
    ask(d, 0, "WHY #2", "\"Job * waits for job 1*\"");
    send_linef(d, 0, "FAIL %s %s no RETRY 500", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "WHY 1", "\"Job 1 has failed 1 of 10 times and is tried again in 500ms*\"");
    ask(d, 0, "STAGE s on-dead halt", "+OK");
    pass_ms(d, 500);
    job = take(d, 0, "s");
    send_linef(d, 0, "FAIL %s %s no NEVER", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "WHY 1", "\"Job 1 is dead after 2 attempts*RETRY 1 *\"");
    ask(d, 0, "WHY #2", "\"Job * waits because a dead job halts its key 'k'*\"");
    ask(d, 0, "WHY s", "\"s has channels that are halted by a dead job*\"");
    push(d, "s c DELAY 100");
    ask(d, 0, "WHY 3", "\"Job 3 is delayed and due in 100ms*\"");
    ask(d, 0, "CANCEL 3", ":1");
    ask(d, 0, "WHY 3", "\"Job 3 has ended (cancelled)*\"");
    push(d, "7 d");
    ask(d, 0, "WHY 7", "\"7 has no worker, and 1 job waiting*\""); // a stage whose name is a number
}

// D7: a stage that the next stage holds reports it.
static void D7_WHY_names_a_full_stage_downstream(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE t high-mark 1", "+OK");
    ask(d, 1, "PUSHMANY s ITEMS '' a '' b", "[*]");
    struct job job = take(d, 0, "s");
    send_linef(d, 0, "DONE %s %s EMIT t '' x EMIT t '' y", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "TAKE s", "[]");
    ask(d, 0, "WHY s", "\"s starts no job because t*WHY t*STAGE t high-mark none*\"");
    ask(d, 0, "PAUSE t", "+OK");
    ask(d, 0, "WHY s", "\"s starts no job because t*needs an operator to act*\"");
}

// ---- Acting
// -----------------------------------------------------------------------------------------

static void kill_jobs(struct dialogue *d, int count, const char *key, const char *reason) {
    for (int i = 0; i < count; i++) {
        send_linef(d, 1, "PUSH s %d KEY '%s' ATTEMPTS 1", i, key);
        expect_reply(d, 1, "\"*\"");
        fail_job(d, take(d, 0, "s"), reason);
    }
}

static void F13_RETRY_and_DROP_by_id(void **state) {
    struct dialogue *d = *state;
    kill_jobs(d, 3, "", "no");
    ask(d, 0, "RETRY 1", ":1");
    ask(d, 0, "RETRY 1", "-ERR job 1 is waiting*");
    ask(d, 0, "RETRY 99", "-GONE *");
    ask(d, 0, "RETRY 1 #2 99", ":1");
    ask(d, 0, "RETRY #2 x", "-ERR 'x' is not an id*");
    ask(d, 0, "DROP #3 #2 1", ":3");
    ask(d, 0, "DROP #3", "-GONE *");
    push(d, "s b");
    take(d, 0, "s");
    ask(d, 0, "DROP #4", "-BUSY *running*");
    ask(d, 0, "DROP STAGE", "-ERR STAGE must be followed by*");
    ask(d, 0, "DROP STAGE s", "-ERR STAGE must be followed by*");
    ask(d, 0, "DROP STAGE s LIVING", "-ERR *DEAD or WAITING*");
    ask(d, 0, "RETRY STAGE s WAITING", "-ERR *");
    ask(d, 0, "RETRY STAGE nowhere DEAD", "-GONE *");
}

static void F13_RETRY_and_DROP_by_stage(void **state) {
    struct dialogue *d = *state;
    kill_jobs(d, 3, "k", "out of memory");
    kill_jobs(d, 2, "l", "out of luck");
    ask(d, 0, "RETRY STAGE s DEAD DRY", ":5");
    ask(d, 0, "RETRY STAGE s DEAD KEY k DRY", ":3");
    ask(d, 0, "RETRY STAGE s DEAD REASON luck", ":2");
    ask(d, 0, "RETRY STAGE s DEAD REASON luck", ":0");
    ask(d, 0, "JOBS s STATUS waiting", "[[*\"key\" \"l\" *] [*\"key\" \"l\" *]]");
    ask(d, 0, "DROP STAGE s DEAD KEY k REASON memory MAX 2", ":2");
    ask(d, 0, "DEAD s", "[[*\"key\" \"k\" *]]");
    ask(d, 0, "DROP STAGE s DEAD MAX 0", ":0");
    ask(d, 0, "DROP STAGE s WAITING KEY nobody", ":0");
    ask(d, 0, "DROP STAGE s WAITING KEY l MAX 1", ":1");
    ask(d, 0, "DROP STAGE s WAITING", ":1");
    ask(d, 0, "DROP STAGE s DEAD", ":1");
    ask(d, 0, "JOBS s", "[]");
}

// T6, T7: removing a key drops its work only; removing all leaves nothing.
static void T6_T7_DROP_of_a_key_and_of_all(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "PUSHMANY s ITEMS k a l b k c '' d", "[*]");
    ask(d, 0, "DROP STAGE s WAITING KEY k", ":2");
    ask(d, 0, "JOBS s KEY k", "[]");
    ask(d, 0, "JOBS s KEY l", "[[*\"key\" \"l\" *]]");
    ask(d, 0, "DROP STAGE s WAITING KEY ''", ":1");
    ask(d, 0, "DROP STAGE s WAITING", ":1");
    ask(d, 0, "TAKE s", "[]");
}

// D6: everything still answers while a large stage is dropped, a piece a turn.
static void D6_a_stage_is_acted_on_in_pieces(void **state) {
    ONE_LOOP_ONLY;
    struct dialogue *d = *state;
    for (int i = 0; i < 2500; i++)
        push(d, i % 5 ? "s a KEY k" : "s b KEY l");
    send_line(d, 0, "DROP STAGE s WAITING MAX 10000");
    expect_no_reply(d, 0);
    assert_int_equal(d->clients[0].session->wait.for_turn, true);
    assert_int_equal(host_next_ms(&d->host), 0);
    ask(d, 1, "JOBS s COUNT 1", "[[*]]");
    int turns = 0;
    for (; d->clients[0].session->wait.kind; turns++)
        turn(d);
    assert_true(turns >= 1 && turns <= 3);
    expect_reply(d, 0, ":2500");
}

// D6: pushes that are done in pieces wait for room as long as they may, however many turns it took.
static void D6_a_push_of_many_waits_for_room_after_a_turn(void **state) {
    ONE_LOOP_ONLY;
    struct dialogue *d = *state;
    enum { MANY = 6000, ROOM = 5000 };
    static mr_bytes words[5 + 2 * MANY];
    words[0] = text("PUSHMANY"), words[1] = text("s"), words[2] = text("ROOM");
    words[3] = text("60000"), words[4] = text("ITEMS");
    for (int i = 0; i < 2 * MANY; i++)
        words[5 + i] = text(i % 2 ? "b" : "");
    ask(d, 1, "STAGE s max-jobs 5000", "+OK");
    send_words(d, 0, words, 5 + 2 * MANY);
    while (!wait_is_open(d->clients[0].session))
        turn(d);
    pass_ms(d, 59000);
    expect_no_reply(d, 0);
    ask(d, 1, "DROP STAGE s WAITING MAX 1000", ":1000");
    while (d->clients[0].session->wait.kind)
        turn(d);
    ask(d, 1, "STAGES NAME s", "[[*\"waiting\" :5000*]]");
    struct buffer *received = &d->clients[0].received;
    assert_memory_equal(received->data, "*6000", 5);
    received->size = 0;
}

struct walked {
    uint32_t count;
    uint64_t id;
};

static int walk_piece(void *arg, const struct job_info *i) {
    struct walked *w = arg;
    w->id = i->id;
    return ++w->count == LIMIT_PIECE;
}

static void D6_a_divided_command_continues_when_its_last_job_was_removed(void **state) {
    ONE_LOOP_ONLY;
    struct dialogue *d = *state;
    for (int i = 0; i < 2500; i++)
        push(d, i % 2 ? "s a" : "s b KEY l");
    struct walked place = { 0 }; // the piece ends behind the last job of this channel that it met
    struct job_walk walk = { .stage = text("s"), .status = JOB_WAITING };
    assert_int_equal(shards_walk(&d->host, &walk, walk_piece, &place), 1);
    send_line(d, 0, "DROP STAGE s WAITING KEY '' MAX 10000");
    expect_no_reply(d, 0);
    send_linef(d, 1, "DROP %llu", (unsigned long long)place.id);
    expect_reply(d, 1, ":1");
    while (d->clients[0].session->wait.kind)
        turn(d);
    expect_reply(d, 0, ":1250");
    ask(d, 1, "DROP STAGE s WAITING", ":1000"); // the default of MAX
    expect_no_reply(d, 1);
    ask(d, 1, "DROP STAGE s WAITING", ":249");
    send_line(d, 0, "PUSHMANY s ITEMS '' a");
    expect_reply(d, 0, "[*]");
    send_line(d, 0, "DROP STAGE s WAITING KEY x");
    expect_reply(d, 0, ":0");
}

// The dialogue that the page about the protocol shows.
static void TAKE_and_DONE_as_documented(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH mail hello KEY ann", "\"1\"");
    ask(d, 0, "TAKE mail WAIT 1000",
        "[[\"1\" \"*\" \"mail\" \"ann\" \"hello\" :1 :-1 nil :30000 \"\"]]");
    ask(d, 1, "PUSH mail again KEY bob", "\"2\"");
    struct job job = take(d, 0, "mail");
    send_linef(d, 0, "DONE %s %s RESULT sent", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "AWAIT 2", "\"sent\"");
}

static void PAUSE_RESUME_and_DRAIN(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    ask(d, 0, "PAUSE s", "+OK");
    ask(d, 0, "TAKE s", "[]");
    send_line(d, 0, "TAKE s WAIT -1");
    ask(d, 1, "RESUME s", "+OK");
    expect_reply(d, 0, "[[\"1\" *]]");
    ask(d, 1, "DRAIN s", "+OK");
    ask(d, 1, "PUSH s b", "-DRAINING *");
    ask(d, 1, "RESUME s", "+OK");
    ask(d, 1, "PUSH s b", "\"*\"");
    ask(d, 1, "PAUSE 'bad name'", "-ERR *");
    ask(d, 1, "RESUME ''", "-ERR *");
    ask(d, 1, "DRAIN 'bad name'", "-ERR *");
}

// F14: policies are set, all or none, and shown as they can be set.
static void F14_STAGE_shows_and_sets_policies(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "STAGE s", "-GONE *");
    ask(d, 0, "STAGE s lease 5s attempts 3", "+OK");
    ask(d, 0, "STAGE s",
        "[\"max-jobs\" \"none\" \"max-channel\" \"none\" \"lease\" \"5000\" \"attempts\" \"3\" "
        "\"backoff\" \"1000..300000\" \"on-dead\" \"skip\" \"overlap\" \"brief\" \"dedupe-window\" "
        "\"3600000\" \"retention\" \"3600000,10000\" \"concurrency\" \"none\" \"rate\" \"none\" "
        "\"max-states\" \"none\" *]");
    ask(d, 0, "STAGE s lease 6s attempts none", "-ERR policy attempts takes *");
    ask(d, 0, "STAGE s lease 6s nonsense 1", "-ERR there is no policy 'nonsense'*");
    ask(d, 0, "STAGE s lease", "-ERR *");
    ask(d, 0, "STAGE 'bad name' lease 6s", "-ERR *");
    ask(d, 0, "HELLO 3", "{*}");
    ask(d, 0, "STAGE s", "{*\"lease\" \"5000\" \"attempts\" \"3\"*}");
    ask(d, 0, "STAGE t nonsense 1", "-ERR *");
    ask(d, 0, "STAGE t", "-GONE *");
}

static const struct CMUnitTest any[] = {
    DIALOGUE(T1_wrong_numbers_of_arguments_are_answered_with_the_usage),
    DIALOGUE(T1_an_unknown_option_is_named),
    DIALOGUE(F49_numbers_at_their_limits),
    DIALOGUE(COMMAND_describes_the_commands),
    DIALOGUE(what_clients_say_at_connect_is_answered),
    cmocka_unit_test(F47_bodies_of_any_size),
    DIALOGUE(F47_a_body_of_one_byte_more_is_refused),
    DIALOGUE(CALL_AWAIT_and_CANCEL_answer_how_a_job_ended),
    DIALOGUE(A1_CALL_later_replies_the_id_and_sends_the_end),
    DIALOGUE(D1_CLIENT_UNBLOCK_answers_a_TAKE_that_waits),
    DIALOGUE(STAGES_by_name),
    DIALOGUE(G6_CANCEL_of_a_stage),
    DIALOGUE(CANCEL_of_several_ids),
    DIALOGUE(PAUSE_of_a_key),
    DIALOGUE(DUE),
    DIALOGUE(DONEMANY),
    DIALOGUE(FAIL_and_RELEASE),
    DIALOGUE(A3_listings_are_bounded),
    DIALOGUE(A10_STAGES_shows_counters_and_times),
    DIALOGUE(B6_STAGES_shows_how_long_jobs_run),
    DIALOGUE(U12_ends_are_counted_for_the_connection_that_took_the_job),
    DIALOGUE(T1_settings_of_a_connection_are_checked),
    DIALOGUE(U15_durations_may_have_units),
    DIALOGUE(U15_rates_have_few_digits),
    DIALOGUE(U15_ATTEMPTS_0_is_the_policy_of_the_stage),
    DIALOGUE(WORKERS_are_connections_that_take_jobs),
    DIALOGUE(D4_T9_T16_EPIC_with_its_options),
    DIALOGUE(G4_EPIC_THEN_pushes_a_job_with_the_end),
    DIALOGUE(G5_EPIC_CANCEL_ends_its_jobs_and_refuses_more),
    DIALOGUE(EPIC_FORGET_drops_it_later),
    DIALOGUE(orders_of_an_epic_that_cannot_be_are_refused),
    DIALOGUE(D4_an_empty_epic_ends_at_once),
    DIALOGUE(D4_EPIC_LEFT_holds_up_its_pusher),
    DIALOGUE(D4_two_epics_do_not_wait_for_each_other),
    DIALOGUE(EPICS_are_listed),
    DIALOGUE(G1_SCHEDULE_pushes_when_its_time_comes),
    DIALOGUE(SCHEDULE_refuses_what_it_cannot_do),
    DIALOGUE(SCHEDULES_are_listed),
    DIALOGUE(WHY_says_why_a_stage_waits),
    DIALOGUE(F13_RETRY_and_DROP_by_id),
    DIALOGUE(F13_RETRY_and_DROP_by_stage),
    DIALOGUE(T6_T7_DROP_of_a_key_and_of_all),
    DIALOGUE(D6_a_stage_is_acted_on_in_pieces),
    DIALOGUE(D6_a_divided_command_continues_when_its_last_job_was_removed),
    DIALOGUE(D6_a_push_of_many_waits_for_room_after_a_turn),
    DIALOGUE(PAUSE_RESUME_and_DRAIN),
    DIALOGUE(F14_STAGE_shows_and_sets_policies),
};

int main(void) {
    const struct CMUnitTest alone[] = {
        DIALOGUE(B6_jobs_of_a_block_run_one_after_another),
        DIALOGUE(E2_PUSH_with_its_options),
        DIALOGUE(STAGES_counts_workers),
        DIALOGUE(PUSHMANY_with_its_options),
        DIALOGUE(T5_TAKE_with_its_options),
        DIALOGUE(E4_DONE_with_its_options),
        DIALOGUE(E4_DONE_with_options_of_what_it_emits),
        DIALOGUE(A3_JOB_shows_a_job),
        DIALOGUE(R16_a_job_without_a_result_shows_none),
        DIALOGUE(G12_META_reaches_the_worker_unchanged),
        DIALOGUE(G10_PUSH_with_LAST_debounces),
        DIALOGUE(G11_PROGRESS_is_shown_and_extends_the_lease),
        DIALOGUE(A3_JOBS_lists_jobs_by_status_and_key),
        DIALOGUE(F13_DEAD_lists_dead_jobs),
        DIALOGUE(DEAD_knows_stages_from_options),
        DIALOGUE(E1_STAGES_shows_where_jobs_are_emitted),
        DIALOGUE(D4_a_producer_sets_the_expected_number),
        DIALOGUE(CHANNELS_lists_the_deepest),
        DIALOGUE(G7_groups_take_turns_and_are_listed),
        DIALOGUE(G8_WHY_names_the_limit_of_a_group),
        DIALOGUE(WHY_says_why_a_job_waits),
        DIALOGUE(D7_WHY_names_a_full_stage_downstream),
        DIALOGUE(TAKE_and_DONE_as_documented),
    };
    return DIALOGUES(any, alone);
}
