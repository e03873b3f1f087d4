// Budgets: whatever one client sends, a turn is bounded in steps, and others are answered in it.
#include "support/dialogue.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STAGES = 10000,
    MOST_TURNS = 100,
    ATTACK = 64 << 10, // bytes that a socket gives at once
    // What one turn may cost: those who wait, the attacker's own, and one command of it.
    TURN = LIMIT_TURN_STEPS + LIMIT_SESSION_STEPS + LIMIT_COMMAND_STEPS,
};

// Hands over what fits, without a turn's end; how much that was.
static size_t feed(struct dialogue *d, int client, mr_bytes bytes) {
    struct session *s = d->clients[client].session;
    size_t room = 0;
    uint8_t *to = session_room(s, &room);
    if (!to)
        return 0;
    room = room < bytes.size ? room : bytes.size;
    memcpy(to, bytes.data, room);
    host_begin(&d->host);
    session_receive(s, room);
    return room;
}

static void forget_received(struct dialogue *d, int client) {
    d->clients[client].received.size = 0;
}

static uint64_t longest_turn; // of the last attack, in steps

static void note_turn(uint64_t steps) {
    if (steps > TURN)
        fail_msg("a turn took %llu steps", (unsigned long long)steps);
    longest_turn = steps > longest_turn ? steps : longest_turn;
}

// Client 0 sends all of it as fast as it is accepted. Every turn is bounded, and in every one
// client 1 is answered. Returns how many turns it took.
static int attack(struct dialogue *d, mr_bytes bytes) {
    struct session *s = d->clients[0].session;
    int turns = 0;
    longest_turn = 0;
    for (size_t at = 0; at < bytes.size || s->in.size || s->wait.kind; turns++) {
        uint64_t before = d->host.steps;
        mr_bytes rest = { (const char *)bytes.data + at, bytes.size - at };
        at += feed(d, 0, rest);
        assert_int_equal(feed(d, 1, mr_str("PING\r\n")), 6);
        turn_once(d);
        note_turn(d->host.steps - before);
        expect_reply(d, 1, "+PONG");
        forget_received(d, 0);
        if (turns < MOST_TURNS)
            continue;
        hang_up(d, 0); // that is enough of it
        connect_client(d, 0);
        break;
    }
    return turns;
}

// As many of a command as a socket gives at once.
static int attack_with(struct dialogue *d, const char *command) {
    static char bytes[ATTACK];
    size_t size = strlen(command), used = 0;
    for (; used + size <= sizeof bytes; used += size)
        memcpy(bytes + used, command, size);
    return attack(d, (mr_bytes){ bytes, used });
}

static int attack_words(struct dialogue *d, const char *first, const char *each, size_t count) {
    struct buffer b = { 0 };
    mr_bytes *words = calloc(count + 4, sizeof *words);
    size_t used = 0;
    for (size_t size; (size = strcspn(first, " ")) > 0; first += size + (first[size] == ' '))
        words[used++] = (mr_bytes){ first, size };
    for (size_t i = 0; i < count; i++)
        words[used++] = mr_str(each);
    assert_int_equal(request_write(&b, words, used), 0);
    int turns = attack(d, buffer_bytes(&b));
    buffer_finish(&b);
    free(words);
    return turns;
}

static void make_stages(struct dialogue *d) {
    for (int i = 0; i < STAGES; i++) {
        send_linef(d, 1, "PUSH stage-%d x", i);
        forget_received(d, 1);
    }
}

// U4: a list costs what it contains, however many stages there are.
static void U4_looks_at_many_stages_share_their_turns(void **state) {
    struct dialogue *d = *state;
    static const char *const looks[] = {
        "DEAD\r\n",
        "INFO stats\r\n",
        "STAGES COUNT 1\r\n",
        "INFO\r\n",
        "STAGES\r\n",
        "WORKERS\r\n",
        "EPICS\r\n",
        "SCHEDULES\r\n",
        "JOBS stage-1 STATUS dead\r\n",
        "COMMAND\r\n",
        "COMMAND DOCS EPIC\r\n",
        "CHANNELS stage-1 TOP 1000\r\n",
        "WHY stage-1\r\n",
    };
    make_stages(d);
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        attack_with(d, looks[i]);
}

// U4: without a stage DEAD visits only stages that have dead jobs.
static void U4_DEAD_does_not_look_at_stages_without_dead_jobs(void **state) {
    struct dialogue *d = *state;
    make_stages(d);
    struct job job = take(d, 0, "stage-7777");
    send_linef(d, 0, "FAIL %s %s no NEVER", job.id, job.token);
    expect_reply(d, 0, "+OK");
    uint64_t before = d->host.steps;
    ask(d, 0, "DEAD", "[[*\"stage-7777\"*]]");
    assert_true(d->host.steps - before < 200);
    before = d->host.steps;
    ask(d, 0, "STAGES COUNT 1", "[[*]]");
    assert_true(d->host.steps - before < 200);
    send_linef(d, 0, "DEAD FROM %s", job.id);
    expect_reply(d, 0, "[]");
    send_linef(d, 0, "DROP %s", job.id);
    expect_reply(d, 0, ":1");
    ask(d, 0, "DEAD", "[]");
}

// U4: a stage that was forgotten leaves an empty place, and others are found as fast as before; who
// works for which stages is counted.
static void U4_an_empty_place_makes_no_look_longer(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "STAGE gap lease 5s", "+OK");
    make_stages(d);
    ask(d, 0, "STAGE gap REMOVE", "+OK");
    uint64_t before = d->host.steps;
    ask(d, 0, "STAGES COUNT 1", "[[\"name\" \"stage-0\" *\"workers\" :0 *]]");
    ask(d, 0, "STAGES COUNT 1 FROM stage-0", "[[\"name\" \"stage-1\" *]]");
    ask(d, 0, "STAGES NAME stage-9998", "[[\"name\" \"stage-9998\" *]]");
    ask(d, 0, "STAGES FROM stage-9998", "[]");
    assert_true(d->host.steps - before < 500);
    send_line(d, 1, "TAKE stage-0 a b c d e f g h i j k l m n o p q r s t u v w x y z");
    forget_received(d, 1);
    before = d->host.steps;
    ask(d, 0, "STAGES COUNT 1", "[[\"name\" \"stage-0\" *\"workers\" :1 *]]");
    assert_true(d->host.steps - before > 27);
    ask(d, 0, "STAGE gap lease 5s", "+OK"); // in the empty place
    ask(d, 0, "STAGES COUNT 1", "[[\"name\" \"gap\" *]]");
}

// U4: for a token that sees few stages every name is compared with its patterns, which counts.
static void U4_what_a_token_does_not_see_costs_too(void **state) {
    struct dialogue *d = *state;
    enum { EPICS = 5000, WORKERS = 3000 };
    static const char *const looks[] = { "EPICS\r\n", "WORKERS\r\n", "STAGES\r\n", "DEAD\r\n" };
    struct auth_entry few = { .name = mr_str("few"),
                              .patterns = mr_str("none.*,nothing.*,nowhere.*,never.*,neither.*"),
                              .roles = ROLE_READ };
    char names[SESSION_STAGES] = "";
    for (size_t at = 0; at + 2 < sizeof names; at++)
        names[at] = at % 2 ? ' ' : 's';
    for (int i = 0; i < EPICS; i++) {
        send_linef(d, 1, "PUSH s x EPIC e%d 1", i);
        forget_received(d, 1);
    }
    for (int i = 0; i < WORKERS; i++) {
        struct session *w;
        assert_int_equal(session_create(&d->host, &w), 0);
        session_work_for(w, names, 1);
    }
    d->clients[0].session->who = &few;
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        assert_true(attack_with(d, looks[i]) > 1);
        d->clients[0].session->who = &few; // it may have reconnected
    }
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        send_bytes(d, 0, mr_str(looks[i]));
        while (d->clients[0].session->wait.kind)
            turn_once(d);
        expect_reply(d, 0, "[]");
    }
    d->clients[0].session->who = NULL;
    send_line(d, 0, "WORKERS COUNT 1000");
    forget_received(d, 0);
}

// U4: so it is for INFO, which adds up what the token sees.
static void U4_INFO_costs_what_is_compared_for_it(void **state) {
    struct dialogue *d = *state;
    char patterns[AUTH_PATTERNS] = "";
    for (size_t used = 0; used + 10 < sizeof patterns; used = strlen(patterns))
        snprintf(patterns + used, sizeof patterns - used, "%snever.*", used ? "," : "");
    struct auth_entry few = { .name = mr_str("few"),
                              .patterns = mr_str(patterns),
                              .roles = ROLE_READ };
    make_stages(d);
    d->clients[0].session->who = &few;
    uint64_t before = d->host.steps;
    ask(d, 0, "INFO stats", "\"*pushed:0*\"");
    assert_true(d->host.steps - before > 10 * STAGES);
    d->clients[0].session->who = NULL;
}

// U4: jobs that the filter excludes cost steps, too.
static void U4_lists_that_find_nothing_share_their_turns(void **state) {
    struct dialogue *d = *state;
    enum { JOBS = 5000 };
    for (int i = 0; i < JOBS; i++) {
        send_linef(d, 1, "PUSH s x KEY k%d DELAY %d", i % 100, i % 2 ? 3600000 : 0);
        forget_received(d, 1);
    }
    attack_with(d, "JOBS s KEY nobody\r\n");
    attack_with(d, "JOBS s STATUS delayed\r\n");
    attack_with(d, "JOBS s STATUS running\r\n");
    attack_with(d, "DROP STAGE s WAITING KEY nobody DRY MAX 100000\r\n");
    attack_with(d, "DROP STAGE s WAITING MAX 100000\r\n");
}

static void push_many(struct dialogue *d, int count, const char *options) {
    static char many[ATTACK];
    for (int left = count; left > 0;) {
        size_t used = 0;
        for (; left > 0 && used + 100 < sizeof many; left--)
            used += (size_t)snprintf(many + used, sizeof many - used, "PUSH s x %s\r\n", options);
        send_bytes(d, 0, (mr_bytes){ many, used });
        turn(d);
        forget_received(d, 0);
    }
}

// U4: delayed jobs are listed without visiting the timers of others.
static void U4_delayed_jobs_are_found_without_a_search(void **state) {
    struct dialogue *d = *state;
    push_many(d, 20000, "DELAY 3600000 DEADLINE 7200000");
    for (int i = 0; i < 10; i++) {
        send_linef(d, 1, "PUSH few x DELAY 3600000");
        forget_received(d, 1);
    }
    uint64_t before = d->host.steps;
    ask(d, 0, "JOBS few STATUS delayed", "[[*] [*] [*] [*] [*] [*] [*] [*] [*] [*]]");
    ask(d, 0, "JOBS s STATUS delayed COUNT 2", "[[*] [*]]");
    assert_true(d->host.steps - before < 500);
}

// U4: timers of ended jobs are removed a few at a time.
static void U4_obsolete_timers_are_removed_in_pieces(void **state) {
    struct dialogue *d = *state;
    enum { JOBS = 50000, DROPS = 30000 };
    static const char drop[] = "DROP STAGE s WAITING MAX 100\r\n";
    static char drops[ATTACK];
    push_many(d, JOBS, "DEADLINE 7200000");
    size_t used = 0;
    for (int i = 0; i < DROPS / 100; i++, used += sizeof drop - 1)
        memcpy(drops + used, drop, sizeof drop - 1);
    assert_true(attack(d, (mr_bytes){ drops, used }) > 10);
    assert_true(longest_turn < LIMIT_SESSION_STEPS + 100 * 30); // 100 of them is one command
    send_line(d, 0, "STAGES");
    expect_field(d, 0, "waiting", ":20000");
}

// U4: one command with as many words as there may be.
static void U4_commands_of_very_many_words_are_done_in_pieces(void **state) {
    struct dialogue *d = *state;
    assert_true(attack_words(d, "PUSHMANY s ITEMS", "", 65000) > 5);
    assert_true(attack_words(d, "DROP", "1", 65000) > 5);
    assert_true(attack_words(d, "RETRY", "99999999", 65000) > 5);
    attack_words(d, "COMMAND DOCS", "EPIC", 65000);
    attack_words(d, "INFO", "x", 65000);
    attack_words(d, "CONFIG GET", "x", 65000);
    attack_words(d, "STAGE s", "max-jobs", 65000);
    attack_words(d, "BEAT", "1", 65000);
    attack_words(d, "TAKE", "s", 65000);
    attack_words(d, "DONE 1 x", "EMIT", 65000);
    attack_words(d, "TAKE s COUNT 4000000000", "", 0);
    attack_with(d, "TAKE s COUNT 1000\r\n");
}

// Turns in which only time passes are bounded, too, and others are answered in each. Returns how
// many there were until nothing was due any more.
static int turns_until_done(struct dialogue *d) {
    int turns = 0;
    longest_turn = 0;
    do {
        uint64_t before = d->host.steps;
        feed(d, 1, mr_str("PING\r\n"));
        turn_once(d);
        note_turn(d->host.steps - before);
        expect_reply(d, 1, "+PONG");
        turns++;
    } while (host_next_ms(&d->host) == 0);
    return turns;
}

// U4: what changes many jobs at once, or counts them, is done in pieces.
static void U4_very_many_jobs_are_cancelled_in_pieces(void **state) {
    struct dialogue *d = *state;
    push_many(d, 20000, "KEY k");
    push_many(d, 20000, "DELAY 3600000");
    attack_with(d, "CANCEL STAGE s KEY none MAX 100000\r\nCANCEL STAGE s DRY MAX 100000\r\n");
    assert_true(attack(d, mr_str("CANCEL STAGE s MAX 100000\r\n")) > 5);
    ask(d, 1, "CANCEL STAGE s DRY", ":0");
    assert_true(attack_words(d, "DONEMANY", "1", 65000) > 5);
    attack_with(d, "BACKUP BEGIN\r\nBACKUP 0 1\r\nBACKUP END\r\n");
}

// U4: looks at very many groups, and the end of those that only their rate remembers.
static void U4_very_many_groups_share_their_turns(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s group on group-rate 1/h", "+OK");
    for (int i = 0; i < 2 * 5000; i++) {
        send_linef(d, 1, "PUSH s x KEY g%d/", i / 2);
        forget_received(d, 1);
    }
    attack_with(d, "CHANNELS s GROUPS TOP 1000\r\nWHY s\r\nSTAGE s group-rate 2/h\r\n");
    attack(d, mr_str("TAKE s COUNT 1000\r\nTAKE s COUNT 1000\r\n"));
    hang_up(d, 0);
    connect_client(d, 0);
    attack(d, mr_str("CANCEL STAGE s MAX 100000\r\nSTAGE s group off\r\n"));
    ask(d, 1, "CHANNELS s GROUPS", "-ERR stage s has no groups*");
}

// U4: however much becomes due at one instant, it is done in pieces.
static void U4_what_is_due_at_once_shares_its_turns(void **state) {
    struct dialogue *d = *state;
    enum { JOBS = 100000 };
    ask(d, 1, "STAGE s retention 1s", "+OK");
    push_many(d, JOBS, "DELAY 1000 DEADLINE 60000");
    d->now_ms += 1000;
    assert_true(turns_until_done(d) > 10);
    send_line(d, 0, "STAGES");
    expect_field(d, 0, "waiting", ":100000");
    d->now_ms += 60000;
    assert_true(turns_until_done(d) > 10);
    d->now_ms += 60000;
    (void)turns_until_done(d);
    send_line(d, 0, "STAGES");
    expect_field(d, 0, "waiting", ":0");
}

// U4: all that a connection has taken comes back when it is lost, so that is bounded.
static void U4_a_connection_holds_a_bounded_number_of_jobs(void **state) {
    struct dialogue *d = *state;
    push_many(d, LIMIT_HELD + 10, "");
    struct job job = take(d, 0, "s");
    for (int i = 0; i < LIMIT_HELD / 1000; i++) { // the last one gets what is left
        send_line(d, 0, "TAKE s COUNT 1000 BATCH 10");
        forget_received(d, 0);
    }
    assert_int_equal(session_jobs(d->clients[0].session), LIMIT_HELD);
    ask(d, 0, "TAKE s", "-FULL *20000 jobs*RELEASE some first*");
    ask(d, 0, "TAKE s WAIT 1000", "-FULL *");
    send_linef(d, 0, "RELEASE %s %s", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "TAKE s COUNT 5", "[[*]]");
    assert_int_equal(session_jobs(d->clients[0].session), LIMIT_HELD);
    hang_up(d, 0);
    turn(d);
    connect_client(d, 0);
    assert_int_equal(session_jobs(d->clients[0].session), 0);
    send_line(d, 1, "STAGES");
    expect_field(d, 1, "running", ":0");
}

// The client is lost, and what it leaves behind takes some turns, each of which is bounded.
static int lose(struct dialogue *d, int client) {
    uint64_t before = d->host.steps;
    host_begin(&d->host);
    session_destroy(d->clients[client].session);
    d->clients[client].session = NULL;
    if (d->host.steps - before > TURN)
        fail_msg("a disconnect took %llu steps", (unsigned long long)(d->host.steps - before));
    int turns = turns_until_done(d);
    connect_client(d, client);
    return turns;
}

// U4: calls with LATER end with their connection, over several turns.
static void U4_many_calls_of_a_lost_connection_share_their_turns(void **state) {
    struct dialogue *d = *state;
    static char many[ATTACK];
    size_t used = 0;
    ask(d, 0, "HELLO 3", "*");
    for (; used + 20 < sizeof many; used += 16)
        memcpy(many + used, "CALL s x LATER\r\n", 16);
    while (d->clients[0].session->async_count < LIMIT_ASYNC_CALLS) {
        send_bytes(d, 0, (mr_bytes){ many, used });
        forget_received(d, 0);
    }
    ask(d, 1, "PUSH s last", "\"*\"");
    assert_true(lose(d, 0) > 20);
    send_line(d, 1, "STAGES");
    expect_field(d, 1, "waiting", ":1");
}

static void take_all(struct dialogue *d, int client) {
    for (int i = 0; i < LIMIT_HELD / 1000; i++) {
        send_line(d, client, "TAKE s COUNT 1000 BATCH 10");
        forget_received(d, client);
    }
    assert_int_equal(session_jobs(d->clients[client].session), LIMIT_HELD);
}

// U4: jobs of a lost connection go back to their places in pieces, also when the reasons of earlier
// attempts have to be read for it.
static void U4_many_leases_of_a_lost_connection_share_their_turns(void **state) {
    struct dialogue *d = *state;
    push_many(d, LIMIT_HELD, "");
    int turns[2];
    for (int i = 0; i < 2; i++) {
        take_all(d, 0);
        turns[i] = lose(d, 0);
    }
    assert_true(turns[0] > 5 && turns[1] > turns[0]);
    send_line(d, 1, "STAGES");
    expect_field(d, 1, "running", ":0");
    send_line(d, 1, "STAGES");
    expect_field(d, 1, "waiting", ":20000");
}

// U4: what is cheap is bounded, too, since there may be much of it.
static void U4_floods_of_small_commands_share_their_turns(void **state) {
    struct dialogue *d = *state;
    static const char *const floods[] = {
        "PING\r\n",
        "\r\n",
        "*0\r\n",
        "X\r\n",
        "PUSH s x\r\n",
        "TAKE s\r\n",
        "PUSH s x EPIC e 1\r\n",
    };
    for (size_t i = 0; i < sizeof floods / sizeof *floods; i++) {
        attack_with(d, floods[i]);
        assert_true(longest_turn < LIMIT_SESSION_STEPS + LIMIT_SESSION_STEPS / 10);
    }
}

// U4: refused numbers are kept in order and bounded: a client with too many of them must reconnect.
static void U4_refused_numbers_are_bounded(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s max-jobs 1", "+OK");
    ask(d, 1, "PUSH s full", "\"*\"");
    for (int n = 1024; n > 0; n--) { // downwards, so that none is held by another
        send_linef(d, 0, "PUSH s x SOURCE c %d", n);
        forget_received(d, 0);
    }
    ask(d, 0, "PUSH other x SOURCE c 2000", "-GAP 1 *");
    for (int n = 1024; n > 0; n--) {
        send_linef(d, 0, "PUSH s x SOURCE d %d", n);
        forget_received(d, 0);
    }
    ask(d, 0, "PUSH other x SOURCE e 1", "-FULL *connect again*");
    for (uint32_t i = 0; i < d->host.shards; i++)
        assert_true(d->clients[0].session->shard_conns[i].conn.gap_count <= GAPS_MOST);
    hang_up(d, 0);
    connect_client(d, 0);
    ask(d, 0, "PUSH other x SOURCE e 1", "\"*\"");
}

// U4: a queue of commands costs as much as they do.
static void U4_MULTI_of_very_many_shares_its_turns(void **state) {
    struct dialogue *d = *state;
    attack(d, mr_str("MULTI\r\n"));
    for (int i = 0; i < 10; i++)
        attack_with(d, "PUSH s x\r\n");
    assert_true(attack(d, mr_str("EXEC\r\n")) > 10);
}

// U4: what the core or the host examines for them is counted, too.
static void U4_looks_in_MULTI_cost_as_much_as_alone(void **state) {
    struct dialogue *d = *state;
    static const char *const looks[] = { "JOBS s KEY nosuch\r\n", "JOBS s STATUS delayed\r\n",
                                         "WORKERS\r\n" };
    enum { JOBS = 5000, QUEUED = 2000 };
    for (int i = 0; i < JOBS; i++) {
        send_linef(d, 1, "PUSH s x KEY k%d DELAY %d", i % 100, i % 2 ? 3600000 : 0);
        forget_received(d, 1);
    }
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        attack(d, mr_str("MULTI\r\n"));
        for (int n = 0; n < QUEUED; n++) {
            send_bytes(d, 0, mr_str(looks[i]));
            forget_received(d, 0);
        }
        attack(d, mr_str("EXEC\r\n"));
    }
}

// U4: many connections together have one turn: what is large is left for the next when it is used
// up, and a small command of another client is still run in it.
static void U4_many_connections_share_their_turns(void **state) {
    struct dialogue *d = *state;
    const mr_bytes look = mr_str("STAGES\r\nSTAGES\r\n");
    make_stages(d);
    for (int i = 2; i < DIALOGUE_CLIENTS; i++)
        connect_client(d, i);
    for (int turns = 0; turns < 10; turns++) {
        uint64_t before = d->host.steps;
        for (int i = 2; i < DIALOGUE_CLIENTS; i++)
            (void)feed(d, i, look);
        feed(d, 1, mr_str("PING\r\n"));
        turn_once(d);
        assert_true(d->host.steps - before < LIMIT_BUSY_STEPS + LIMIT_COMMAND_STEPS);
        expect_reply(d, 1, "+PONG");
        for (int i = 2; i < DIALOGUE_CLIENTS; i++)
            forget_received(d, i);
    }
    for (int i = 2; i < DIALOGUE_CLIENTS; i++)
        assert_true(d->clients[i].session->replies > 0); // each has had its turn
}

// U4: clients that have more to run than their budget take turns.
static void U4_the_backlog_is_served_in_rotation(void **state) {
    struct dialogue *d = *state;
    static char bytes[ATTACK];
    for (size_t i = 0; i + 10 <= sizeof bytes; i += 10)
        memcpy(bytes + i, "PUSH s x\r\n", 10);
    uint64_t before[8];
    for (int i = 2; i < 8; i++)
        connect_client(d, i);
    for (int i = 2; i < 8; i++)
        feed(d, i, (mr_bytes){ bytes, sizeof bytes - sizeof bytes % 10 });
    turn_once(d);
    for (int i = 2; i < 8; i++)
        before[i] = d->clients[i].session->replies;
    for (int turns = 0; turns < 4; turns++) { // each is served in half as many
        feed(d, 1, mr_str("PING\r\n"));
        turn_once(d);
        expect_reply(d, 1, "+PONG");
    }
    for (int i = 2; i < 8; i++)
        assert_true(d->clients[i].session->replies > before[i]);
    turn(d);
    for (int i = 2; i < 8; i++)
        forget_received(d, i);
}

// U4: takes that wait for a stage are not all served in the turn in which it is resumed.
static void U4_very_many_waiting_takes_share_their_turns(void **state) {
    struct dialogue *d = *state;
    static char body[1000], push[ATTACK];
    memset(body, 'x', sizeof body);
    size_t used = 0;
    while (used + sizeof body + 20 < sizeof push)
        used += (size_t)snprintf(push + used, sizeof push - used, "PUSH s %.*s\r\n",
                                 (int)sizeof body, body);
    for (int i = 0; i < 100; i++) { // more than 6,000 jobs
        send_bytes(d, 1, (mr_bytes){ push, used });
        forget_received(d, 1);
    }
    ask(d, 1, "PAUSE s", "+OK");
    for (int i = 2; i < DIALOGUE_CLIENTS; i++) {
        connect_client(d, i);
        send_line(d, i, "TAKE s COUNT 1000 WAIT -1");
    }
    int served = 0, turns = 0;
    feed(d, 0, mr_str("RESUME s\r\n"));
    for (; served < DIALOGUE_CLIENTS - 2; turns++, d->now_ms++) {
        int before = served;
        (void)turns_until_done(d);
        for (int i = 2; i < DIALOGUE_CLIENTS; i++)
            served += d->clients[i].received.size > 0;
        for (int i = 2; i < DIALOGUE_CLIENTS; i++)
            forget_received(d, i);
        assert_in_range(served, before + 1, before + 4);
    }
    assert_in_range(turns, 2, 6);
    expect_reply(d, 0, "+OK");
}

// U4: a result for which many wait is copied for each, but not for all in one turn.
static void U4_a_large_result_for_many_shares_its_turns(void **state) {
    struct dialogue *d = *state;
    static char result[4 << 20];
    memset(result, 'x', sizeof result);
    ask(d, 1, "PUSH s x", "\"*\"");
    struct job job = take(d, 0, "s");
    for (int i = 2; i < DIALOGUE_CLIENTS; i++) {
        connect_client(d, i);
        send_linef(d, i, "AWAIT %s WAIT -1", job.id);
    }
    mr_bytes done[] = { mr_str("DONE"),
                        mr_str(job.id),
                        mr_str(job.token),
                        mr_str("RESULT"),
                        { result, sizeof result } };
    struct buffer b = { 0 };
    assert_int_equal(request_write(&b, done, 5), 0);
    for (size_t at = 0; at < b.size;)
        at += feed(d, 0, (mr_bytes){ b.data + at, b.size - at });
    int served = 0;
    for (int turns = 0; served < DIALOGUE_CLIENTS - 2; turns++) {
        assert_in_range(turns, 0, DIALOGUE_CLIENTS);
        int before = served;
        turn_once(d);
        served = 0;
        for (int i = 2; i < DIALOGUE_CLIENTS; i++)
            served += d->clients[i].received.size > sizeof result;
        assert_in_range(served, before, before + 2);
    }
    for (int i = 2; i < DIALOGUE_CLIENTS; i++)
        forget_received(d, i);
    expect_reply(d, 0, "+OK");
    buffer_finish(&b);
}

// U4: the end of a job is reported to its callers in pieces, and there is a limit to them.
static void U4_very_many_callers_of_a_job_share_their_turns(void **state) {
    struct dialogue *d = *state;
    static const char call[] = "CALL s x ONCE a LATER\r\n";
    static char many[ATTACK];
    size_t used = 0;
    ask(d, 0, "HELLO 3", "*");
    for (; used + sizeof call < sizeof many; used += sizeof call - 1)
        memcpy(many + used, call, sizeof call - 1);
    while (d->clients[0].session->async_count < LIMIT_ASYNC_CALLS) {
        send_bytes(d, 0, (mr_bytes){ many, used });
        forget_received(d, 0);
    }
    ask(d, 1, "AWAIT #1 WAIT -1", "-FULL 65536 calls wait for job *");
    connect_client(d, 2);
    feed(d, 2, mr_str("DROP STAGE s WAITING\r\n"));
    assert_true(turns_until_done(d) > 10);
    assert_int_equal(d->clients[0].session->async_count, 0);
    forget_received(d, 0);
    expect_reply(d, 2, ":1");
}

// U4: a search among all sessions costs as much as there are.
static void U4_CLIENT_UNBLOCK_costs_what_it_looks_at(void **state) {
    struct dialogue *d = *state;
    struct session *other;
    for (int i = 0; i < 3000; i++)
        assert_int_equal(session_create(&d->host, &other), 0);
    assert_true(attack_with(d, "CLIENT UNBLOCK 99999\r\n") > 20);
}

// U4: an emit costs as much as a push.
static void U4_emits_cost_as_much_as_pushes(void **state) {
    struct dialogue *d = *state;
    enum { EMITS = 1000 };
    mr_bytes words[3 + 4 * EMITS] = { mr_str("DONE") };
    ask(d, 1, "PUSH s x", "\"*\"");
    struct job job = take(d, 0, "s");
    words[1] = mr_str(job.id);
    words[2] = mr_str(job.token);
    for (int i = 0; i < EMITS; i++) {
        words[3 + 4 * i] = mr_str("EMIT");
        words[4 + 4 * i] = mr_str("to");
        words[5 + 4 * i] = mr_str("");
        words[6 + 4 * i] = mr_str("x");
    }
    uint64_t before = d->host.steps;
    send_words(d, 0, words, 3 + 4 * EMITS);
    expect_reply(d, 0, "+OK");
    assert_true(d->host.steps - before > 10 * EMITS);
}

// What a stage takes up of max-bytes.
static uint64_t stage_memory(void) {
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    ask(d, 0, "PUSH a x", "\"*\"");
    uint64_t one = host_memory(&d->host);
    ask(d, 0, "PUSH b x", "\"*\"");
    uint64_t two = host_memory(&d->host);
    dialogue_destroy(d);
    return two - one;
}

// U4: while memory is short, no command visits all stages, nor does what it frees.
static void U4_pushes_that_wait_for_memory_cost_what_is_woken(void **state) {
    static char drops[ATTACK];
    uint64_t most = (STAGES + 10) * stage_memory();
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ .max_memory = most });
    size_t used = 0;
    (void)state;
    d->host.max_bytes = most;
    make_stages(d);
    do {
        forget_received(d, 0);
        send_line(d, 0, "PUSH s 'some bytes'");
    } while (((const char *)d->clients[0].received.data)[0] != '-');
    forget_received(d, 0);
    attack_with(d, "PUSH stage-1 x\r\n"); // refused
    for (int i = 2; i < DIALOGUE_CLIENTS; i++) {
        connect_client(d, i);
        send_linef(d, i, "PUSH stage-%d x ROOM -1", i);
        expect_no_reply(d, i);
    }
    uint64_t before = d->host.steps;
    for (int id = 100; used + 20 < sizeof drops; id++)
        used += (size_t)snprintf(drops + used, sizeof drops - used, "DROP %d\r\n", id);
    attack(d, (mr_bytes){ drops, used });
    assert_true(d->host.steps - before < 20 * used / 8); // a command of 8 bytes and more
    for (int i = 2; i < DIALOGUE_CLIENTS; i++)
        expect_reply(d, i, "\"*\"");
    dialogue_destroy(d);
}

// U6: of clients that do not read, the one with most unread bytes is closed; no other is, and none
// gets FULL.
static void U6_the_client_that_left_most_unread_is_closed(void **state) {
    struct dialogue *d = *state;
    static char large[200 << 10];
    memset(large, 'x', sizeof large);
    mr_bytes push[] = { mr_str("PUSH"), mr_str("s"), { large, sizeof large } };
    send_words(d, 1, push, 3);
    expect_reply(d, 1, "\"*\"");
    for (int i = 2; i < 5; i++) {
        connect_client(d, i);
        d->clients[i].unread = true;
        send_bytes(d, i, mr_str(i == 3 ? "JOB 1 BODY\r\nJOB 1 BODY\r\n" : "JOB 1 BODY\r\n"));
    }
    d->host.max_client_bytes = 512 << 10;
    assert_true(d->host.buffered > d->host.max_client_bytes);
    struct session *largest[LARGEST_CLIENTS];
    assert_true(host_largest_clients(&d->host, largest) > 0);
    assert_ptr_equal(largest[0], d->clients[3].session);
    hang_up(d, 3);
    while (host_clients_exceed(&d->host)) {
        assert_true(host_largest_clients(&d->host, largest) > 0);
        struct session *s = largest[0];
        assert_true(s != d->clients[1].session && s != d->clients[0].session);
        for (int i = 2; i < 5; i++)
            if (d->clients[i].session == s)
                hang_up(d, i);
    }
    assert_true(d->host.buffered <= d->host.max_client_bytes);
    ask(d, 1, "PUSH s small", "\"*\"");
}

// U6: a token whose clients hold little is not closed for what those of another one hold together.
static void U6_clients_are_closed_for_what_their_own_token_holds(void **state) {
    struct dialogue *d = *state;
    struct auth_entry many = { .name = mr_str("many") }, one = { .name = mr_str("one") };
    struct session *s, *largest[LARGEST_CLIENTS];
    for (int i = 0; i < 100; i++) {
        assert_int_equal(session_create(&d->host, &s), 0);
        s->who = &many;
        session_hold(s, 60 << 10);
    }
    assert_int_equal(session_create(&d->host, &s), 0);
    s->who = &one;
    session_hold(s, 1 << 20); // the largest, but all of its token
    size_t count = host_largest_clients(&d->host, largest);
    assert_int_equal(count, LARGEST_CLIENTS);
    for (size_t i = 0; i < count; i++)
        assert_ptr_equal(largest[i]->who, &many);
    session_hold(s, 8 << 20); // now it is the one with the most
    assert_int_equal(host_largest_clients(&d->host, largest), 1);
    assert_ptr_equal(largest[0], s);
}

// U6: so it is with any number of tokens.
static void U6_the_token_that_holds_the_most_is_found_among_very_many(void **state) {
    struct dialogue *d = *state;
    enum { TOKENS = 1000, CLIENTS = 50 };
    static struct auth_entry all[TOKENS];
    struct session *s, *largest[LARGEST_CLIENTS];
    for (size_t i = 0; i < TOKENS; i++) {
        assert_int_equal(session_create(&d->host, &s), 0);
        s->who = &all[i];
        session_hold(s, (1 << 20) + i); // each more than any client of the last one
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(session_create(&d->host, &s), 0);
        s->who = &all[TOKENS - 1];
        session_hold(s, 100 << 10);
    }
    size_t count = host_largest_clients(&d->host, largest);
    assert_int_equal(count, CLIENTS + 1);
    for (size_t i = 0; i < count; i++)
        assert_ptr_equal(largest[i]->who, &all[TOKENS - 1]);
}

// U6: without memory to tell tokens apart, the largest client is closed.
static void U6_the_largest_client_is_found_without_memory(void **state) {
    struct dialogue *d = *state;
    struct auth_entry one = { .name = mr_str("one") };
    struct session *s, *largest[LARGEST_CLIENTS];
    assert_int_equal(session_create(&d->host, &s), 0);
    s->who = &one;
    session_hold(s, 1 << 20);
    for (long fails = 0; fails < 2; fails++) {
        mem_fail_after(fails);
        size_t count = host_largest_clients(&d->host, largest);
        bool failed = mem_fail_after(-1) < 0;
        assert_true(failed && count > 0);
        assert_ptr_equal(largest[0], s);
    }
}

// U6: calls with LATER that have not ended take up memory of their client, not of others.
static void U6_calls_count_for_their_client(void **state) {
    struct dialogue *d = *state;
    struct session *caller = d->clients[0].session, *largest[LARGEST_CLIENTS];
    ask(d, 0, "HELLO 3", "*");
    for (int i = 0; i < 1000; i++) {
        send_line(d, 0, "CALL s x LATER");
        forget_received(d, 0);
    }
    size_t calls = 1000 * sizeof(struct async_call);
    assert_true(session_held(caller) >= calls && d->host.buffered >= calls);
    session_hold(d->clients[1].session, calls / 2);
    assert_true(host_largest_clients(&d->host, largest) > 0);
    assert_ptr_equal(largest[0], caller);
    uint64_t before = d->host.buffered;
    hang_up(d, 0);
    turns_until_done(d);
    assert_true(d->host.buffered <= before - calls);
    connect_client(d, 0);
    session_hold(d->clients[1].session, 0 - calls / 2);
}

// U4: to make room, very many clients may have to be closed: the largest, without a search for
// each.
static void U4_the_largest_clients_are_found_together(void **state) {
    struct dialogue *d = *state;
    enum { CLIENTS = 3000, CLOSED = 1000 };
    struct session *s, *largest[LARGEST_CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(session_create(&d->host, &s), 0);
        session_hold(s, (i * 7919 % CLIENTS + 1) << 10); // each has another size
    }
    size_t last = SIZE_MAX, closed = 0;
    uint64_t before = d->host.steps;
    while (closed < CLOSED) {
        size_t count = host_largest_clients(&d->host, largest);
        assert_int_equal(count, LARGEST_CLIENTS);
        for (size_t i = 0; i < count; i++, closed++) {
            assert_true(session_held(largest[i]) < last);
            last = session_held(largest[i]);
            host_begin(&d->host);
            session_destroy(largest[i]);
        }
    }
    assert_int_equal(last, (CLIENTS - closed + 1) << 10);
    assert_true(d->host.steps - before < 20 * CLOSED);
}

// U4: others run commands while connections fill the memory of clients with requests that never
// end.
static void U4_partial_requests_stop_no_small_commands(void **state) {
    struct dialogue *d = *state;
    static char partial[128 << 10] = "*3\r\n$4\r\nPUSH\r\n$1\r\ns\r\n$33554432\r\n";
    d->host.max_client_bytes = sizeof partial / 4;
    assert_true(feed(d, 0, (mr_bytes){ partial, sizeof partial }) > 0);
    assert_true(host_clients_exceed(&d->host));
    ask(d, 1, "PING", "+PONG");
    assert_true(host_clients_exceed(&d->host));
    d->host.max_client_bytes = 0;
}

// Reads as much from the session's socket as the turn allows; how much that was.
static size_t read_socket(struct dialogue *d, struct session *s, mr_bytes bytes) {
    size_t room = 0, most = budget_read_size(s);
    uint8_t *to = most ? session_room(s, &room) : NULL;
    room = room < most ? room : most;
    room = room < bytes.size ? room : bytes.size;
    if (!to)
        return 0;
    memcpy(to, bytes.data, room);
    budget_receive(&d->host, room);
    session_receive(s, room);
    return room;
}

// Ends the turn, and reads the replies of all sessions.
static void end_turn(struct dialogue *d) {
    host_end(&d->host);
    host_wait(&d->host);
    host_durable(&d->host);
    while (!list_empty(&d->host.ready)) {
        struct session *s = list_entry(d->host.ready.next, struct session, of_ready);
        list_remove(&s->of_ready);
        session_sent(s, session_ready(s).size);
    }
}

// U4: very many connections send at once. A turn reads a bounded number of them, and each is read
// in one of the first turns.
static void read_very_many(struct dialogue *d, mr_bytes bytes, int most_turns) {
    enum { CLIENTS = 4500 };
    static struct session *all[CLIENTS];
    int read = 0, turns = 0;
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(session_create(&d->host, &all[i]), 0);
    for (; read < CLIENTS; turns++) {
        uint64_t before = d->host.steps;
        host_begin(&d->host);
        while (read < CLIENTS && read_socket(d, all[read], bytes))
            read++;
        assert_true(d->host.steps - before < LIMIT_READ_STEPS + LIMIT_SESSION_STEPS);
        end_turn(d);
        assert_true(d->host.steps - before <
                    LIMIT_READ_STEPS + LIMIT_TURN_STEPS + 2 * LIMIT_SESSION_STEPS);
    }
    assert_true(turns > 1);
    assert_true(turns <= most_turns);
    host_begin(&d->host);
    for (int i = 0; i < CLIENTS; i++)
        session_destroy(all[i]);
    end_turn(d);
}

static void U4_very_many_sockets_are_read_in_rotation(void **state) {
    struct dialogue *d = *state;
    static char partial[ATTACK] = "*3\r\n$4\r\nPUSH\r\n$1\r\ns\r\n$33554432\r\n";
    static char pings[ATTACK];
    for (size_t i = 0; i + 6 <= sizeof pings; i += 6)
        memcpy(pings + i, "PING\r\n", 6);
    read_very_many(d, (mr_bytes){ partial, sizeof partial }, 3);
    read_very_many(d, (mr_bytes){ pings, sizeof pings - sizeof pings % 6 }, 4);
}

// U4: requests that are incomplete while memory is short are not looked at in every turn.
static void U4_partial_requests_wait_outside_of_the_backlog(void **state) {
    struct dialogue *d = *state;
    static char partial[128 << 10] = "*3\r\n$4\r\nPUSH\r\n$1\r\ns\r\n$33554432\r\n";
    d->host.max_client_bytes = sizeof partial / 4;
    assert_true(feed(d, 0, (mr_bytes){ partial, sizeof partial }) > 0);
    assert_true(host_clients_exceed(&d->host));
    assert_false(host_has_backlog(&d->host));
    assert_int_equal(budget_read_size(d->clients[0].session), 0);
    assert_true(budget_read_size(d->clients[1].session) > 0);
    d->host.max_client_bytes = 0;
}

// U6: a length that is announced takes up nothing.
static void U6_an_announced_length_reserves_nothing(void **state) {
    struct dialogue *d = *state;
    uint64_t before = d->host.buffered;
    send_bytes(d, 0, mr_str("*3\r\n$4\r\nPUSH\r\n$1\r\ns\r\n$33554432\r\n"));
    for (int i = 0; i < 10; i++)
        send_bytes(d, 0, mr_str("some bytes of it"));
    assert_true(d->host.buffered - before < 2 * READ_SIZE + 4096);
    hang_up(d, 0);
    assert_true(d->host.buffered <= before);
}

int main(void) {
    const struct CMUnitTest any[] = {
        DIALOGUE(U4_lists_that_find_nothing_share_their_turns),
        DIALOGUE(U4_delayed_jobs_are_found_without_a_search),
        DIALOGUE(U4_obsolete_timers_are_removed_in_pieces),
        DIALOGUE(U4_commands_of_very_many_words_are_done_in_pieces),
        DIALOGUE(U4_very_many_jobs_are_cancelled_in_pieces),
        DIALOGUE(U4_very_many_groups_share_their_turns),
        DIALOGUE(U4_floods_of_small_commands_share_their_turns),
        DIALOGUE(U4_MULTI_of_very_many_shares_its_turns),
        DIALOGUE(U4_looks_in_MULTI_cost_as_much_as_alone),
        DIALOGUE(U4_the_backlog_is_served_in_rotation),
        DIALOGUE(U4_very_many_waiting_takes_share_their_turns),
        DIALOGUE(U4_a_large_result_for_many_shares_its_turns),
        DIALOGUE(U4_very_many_callers_of_a_job_share_their_turns),
        DIALOGUE(U4_emits_cost_as_much_as_pushes),
        DIALOGUE(U4_what_is_due_at_once_shares_its_turns),
        DIALOGUE(U4_a_connection_holds_a_bounded_number_of_jobs),
        DIALOGUE(U4_many_calls_of_a_lost_connection_share_their_turns),
        DIALOGUE(U4_many_leases_of_a_lost_connection_share_their_turns),
        DIALOGUE(U4_partial_requests_stop_no_small_commands),
        DIALOGUE(U4_partial_requests_wait_outside_of_the_backlog),
        DIALOGUE(U6_an_announced_length_reserves_nothing),
    };
    const struct CMUnitTest alone[] = {
        DIALOGUE(U4_refused_numbers_are_bounded),
        DIALOGUE(U4_looks_at_many_stages_share_their_turns),
        DIALOGUE(U4_many_connections_share_their_turns),
        DIALOGUE(U4_what_a_token_does_not_see_costs_too),
        DIALOGUE(U4_INFO_costs_what_is_compared_for_it),
        DIALOGUE(U4_an_empty_place_makes_no_look_longer),
        DIALOGUE(U4_CLIENT_UNBLOCK_costs_what_it_looks_at),
        DIALOGUE(U4_DEAD_does_not_look_at_stages_without_dead_jobs),
        cmocka_unit_test(U4_pushes_that_wait_for_memory_cost_what_is_woken),
        DIALOGUE(U4_the_largest_clients_are_found_together),
        DIALOGUE(U4_very_many_sockets_are_read_in_rotation),
        DIALOGUE(U6_the_client_that_left_most_unread_is_closed),
        DIALOGUE(U6_clients_are_closed_for_what_their_own_token_holds),
        DIALOGUE(U6_the_token_that_holds_the_most_is_found_among_very_many),
        DIALOGUE(U6_the_largest_client_is_found_without_memory),
        DIALOGUE(U6_calls_count_for_their_client),
    };
    dialogue_in_one_loop = true; // a turn's work is counted in one host
    return DIALOGUES(any, alone);
}
