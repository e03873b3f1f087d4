// Permissions: every command with every role, every command on stages that the token does not
// permit, wrong secrets, unauthenticated clients, and reloaded lists of tokens.
#include "support/dialogue.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/command.h"
#include "server/unauthenticated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The secret of a token is its name twice: "push" has "pushpush".
static const char *const people[][3] = {
    { "push", "push", "*" },       { "work", "work", "*" },      { "read", "read", "*" },
    { "admin", "admin", "*" },     { "both", "push,work", "*" }, { "mail", "admin", "mail.*" },
    { "twin", "admin", "mail.*" },
};
enum { PEOPLE = sizeof people / sizeof *people };

static void write_line(char *to, size_t room, const char *name, const char *roles,
                       const char *stages) {
    uint8_t digest[DIGEST_SIZE];
    char secret[128];
    snprintf(secret, sizeof secret, "%s%s", name, name);
    assert_int_equal(digest_of(mr_str(secret), digest), 0);
    int used = snprintf(to, room, "%s %s\t%s  sha256:", name, roles, stages);
    for (int i = 0; i < DIGEST_SIZE; i++)
        used += snprintf(to + used, room - (size_t)used, "%02x", digest[i]);
    snprintf(to + used, room - (size_t)used, "\n");
}

// All people but one, who may be NULL.
static struct auth *auth_without(const char *name) {
    char text[4096] = "# a comment\n\n";
    struct auth *auth = NULL;
    for (int i = 0; i < PEOPLE; i++) {
        size_t used = strlen(text);
        if (!name || strcmp(people[i][0], name) != 0)
            write_line(text + used, sizeof text - used, people[i][0], people[i][1], people[i][2]);
    }
    assert_int_equal(auth_parse(mr_str(text), &auth), 0);
    return auth;
}

static void set_auth_everywhere(struct dialogue *d) {
    host_set_auth(&d->host, auth_without(NULL));
    for (uint32_t i = 0; i + 1 < d->loops.count; i++)
        host_set_auth(&d->others[i], auth_without(NULL));
}

static int setup(void **state) {
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    set_auth_everywhere(d);
    *state = d;
    return 0;
}

static void come_as(struct dialogue *d, int client, const char *name) {
    if (d->clients[client].session)
        hang_up(d, client);
    connect_client(d, client);
    if (!name)
        return;
    send_linef(d, client, "AUTH %s %s%s", name, name, name);
    expect_reply(d, client, "+OK");
}

// ---- Roles --------------------------------------------------------------------------------------

// Written down again, so that no change of the table goes unnoticed.
static const struct {
    const char *name;
    enum role role;
} roles[] = {
    { "PUSH", ROLE_PUSH },
    { "PUSHMANY", ROLE_PUSH },
    { "CALL", ROLE_PUSH },
    { "AWAIT", ROLE_PUSH },
    { "CANCEL", ROLE_PUSH },
    { "EPIC", ROLE_PUSH },
    { "SCHEDULE", ROLE_PUSH },
    { "TAKE", ROLE_WORK },
    { "DONE", ROLE_WORK },
    { "DONEMANY", ROLE_WORK },
    { "FAIL", ROLE_WORK },
    { "RELEASE", ROLE_WORK },
    { "LEVEL", ROLE_WORK },
    { "BEAT", ROLE_WORK },
    { "PROGRESS", ROLE_WORK },
    { "JOB", ROLE_READ },
    { "JOBS", ROLE_READ },
    { "DEAD", ROLE_READ },
    { "STAGES", ROLE_READ },
    { "CHANNELS", ROLE_READ },
    { "WORKERS", ROLE_READ },
    { "EPICS", ROLE_READ },
    { "SCHEDULES", ROLE_READ },
    { "WHY", ROLE_READ },
    { "RETRY", ROLE_ADMIN },
    { "DROP", ROLE_ADMIN },
    { "DUE", ROLE_ADMIN },
    { "PAUSE", ROLE_ADMIN },
    { "RESUME", ROLE_ADMIN },
    { "DRAIN", ROLE_ADMIN },
    { "STAGE", ROLE_ADMIN },
    { "BACKUP", ROLE_ADMIN },
    { "AUTH", ROLE_UNAUTHENTICATED },
    { "HELLO", ROLE_UNAUTHENTICATED },
    { "PING", ROLE_ANY },
    { "ECHO", ROLE_ANY },
    { "INFO", ROLE_ANY },
    { "CLUSTER", ROLE_ANY },
    { "COMMAND", ROLE_ANY },
    { "CLIENT", ROLE_ANY },
    { "CONFIG", ROLE_ANY },
    { "SELECT", ROLE_ANY },
    { "QUIT", ROLE_UNAUTHENTICATED },
    { "MULTI", ROLE_ANY },
    { "EXEC", ROLE_ANY },
    { "DISCARD", ROLE_ANY },
};

static enum role role_of(const struct command *c) {
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].name, c->name) == 0)
            return roles[i].role;
    if (c->doc)
        fail_msg("%s has no role here", c->name);
    return c->run == run_browser || c->run == run_link ? ROLE_UNAUTHENTICATED : ROLE_ANY;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

// A permitted command gets another error, for example that arguments are missing.
static void expect_allowed(struct dialogue *d, const struct command *c, const char *name,
                           bool allowed) {
    const char *refusal = name ? "-NOPERM" : "-NOAUTH";
    send_line(d, 0, c->name);
    const char *reply = next_reply(d, 0);
    bool hello = strcmp(c->name, "HELLO") == 0; // without AUTH it replies what is missing
    if (begins(reply, refusal) != (!allowed || (!name && hello)))
        fail_msg("%s sends %s and gets %s", name ? name : "an unauthenticated client", c->name,
                 reply);
    if (d->clients[0].closed)
        come_as(d, 0, name);
}

// U3: rights are asked for when a command is queued, too.
static void U3_what_a_token_may_not_do_aborts_EXEC(void **state) {
    struct dialogue *d = *state;
    static const char *const refused[] = { "TAKE s", "STAGES", "PAUSE s", "DROP 1" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        come_as(d, 0, "push");
        ask(d, 0, "MULTI", "+OK");
        ask(d, 0, "PUSH s a", "+QUEUED");
        send_line(d, 0, refused[i]);
        expect_reply(d, 0, "-NOPERM *");
        ask(d, 0, "EXEC", "-EXECABORT *");
    }
    come_as(d, 0, NULL);
    ask(d, 0, "MULTI", "-NOAUTH *");
    ask(d, 0, "EXEC", "-NOAUTH *");
    come_as(d, 0, "admin");
    ask(d, 0, "TAKE s", "[]");
}

static void every_command_asks_for_its_role(void **state) {
    struct dialogue *d = *state;
    static const struct {
        const char *name;
        uint32_t roles;
    } who[] = { { "push", ROLE_PUSH },
                { "work", ROLE_WORK },
                { "read", ROLE_READ },
                { "both", ROLE_PUSH | ROLE_WORK },
                { "admin", ROLE_PUSH | ROLE_WORK | ROLE_READ | ROLE_ADMIN } };
    for (size_t i = 0; i < sizeof who / sizeof *who; i++) {
        come_as(d, 0, who[i].name);
        for (const struct command *c = command_table; c->name; c++) {
            enum role role = role_of(c);
            assert_int_equal(c->role, role);
            bool any = role == ROLE_ANY || role == ROLE_UNAUTHENTICATED;
            expect_allowed(d, c, who[i].name, any || who[i].roles & role);
        }
    }
}

// F45: commands that are not on the list are refused, also unknown ones.
static void F45_unauthenticated_clients_may_authenticate_or_quit(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, NULL);
    for (const struct command *c = command_table; c->name; c++)
        expect_allowed(d, c, NULL, role_of(c) == ROLE_UNAUTHENTICATED);
    ask(d, 0, "NONSENSE", "-NOAUTH *");
    ask(d, 0, "HELLO 3", "-NOAUTH *");
    ask(d, 0, "HELLO 9", "-NOPROTO *");
    ask(d, 0, "HELLO 3 SETNAME 'a b'", "-ERR *");
    ask(d, 0, "HELLO 3 AUTH push pushpush SETNAME me", "{*}");
    ask(d, 0, "CLIENT GETNAME", "\"me\"");
    ask(d, 0, "COMMAND DOCS pause", "{\"pause\" {*\"role\" \"admin\"*}}");
    ask(d, 0, "COMMAND DOCS hello ping",
        "{\"hello\" {*\"role\" \"none\"*} \"ping\" {*\"role\" \"any\"*}}");
}

// F45: an unauthenticated client cannot make the server store much.
static void F45_requests_of_unauthenticated_clients_are_short(void **state) {
    struct dialogue *d = *state;
    static const char *const refused[] = { "*9\r\n", "*1\r\n$513\r\n", "*8\r\n$512\r\n" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        come_as(d, 0, NULL);
        send_bytes(d, 0, mr_str(refused[i]));
        if (i == 2) { // as a whole
            char word[520];
            memset(word, 'x', sizeof word);
            for (int words = 0; !d->clients[0].closed && words < 8; words++) {
                send_bytes(d, 0, (mr_bytes){ word, 512 });
                if (!d->clients[0].closed)
                    send_bytes(d, 0, mr_str("\r\n$512\r\n"));
            }
        }
        expect_reply(d, 0, "-ERR Protocol error*");
        assert_true(d->clients[0].closed);
    }
    come_as(d, 0, NULL);
    size_t room;
    assert_non_null(session_room(d->clients[0].session, &room));
    assert_int_equal(room, UNAUTHENTICATED_REQUEST);
    char line[UNAUTHENTICATED_REQUEST + 1];
    memset(line, 'x', sizeof line);
    send_bytes(d, 0, (mr_bytes){ line, sizeof line });
    expect_reply(d, 0, "-ERR Protocol error*");
    come_as(d, 0, "push"); // then the limit of all clients holds
    assert_non_null(session_room(d->clients[0].session, &room));
    assert_int_equal(room, READ_SIZE);
}

// F43, F45: nor can one who does not read the refusals make it keep many of them.
static void F43_F45_unread_refusals_of_unauthenticated_clients_are_few(void **state) {
    struct dialogue *d = *state;
    struct client *c = &d->clients[0];
    come_as(d, 0, NULL);
    c->unread = true;
    size_t sent = 0, room;
    for (; session_room(c->session, &room); sent++) {
        send_bytes(d, 0, mr_str("PING\r\nPUSH s a\r\n"));
        assert_true(sent < UNAUTHENTICATED_UNSENT_PAUSE);
    }
    assert_true(session_unsent(c->session) <= UNAUTHENTICATED_UNSENT_PAUSE + 1024);
    assert_true(c->session->in.size <= 2 * UNAUTHENTICATED_REQUEST);
    c->unread = false;
    session_touch(c->session); // the socket takes more
    turn(d);
    for (size_t i = 0; i < 2 * sent; i++)
        expect_reply(d, 0, "-NOAUTH *");
    ask(d, 0, "AUTH push pushpush", "+OK");
}

static void a_pipeline_may_begin_with_AUTH(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, NULL);
    char *body = malloc(100000);
    memset(body, 'b', 100000);
    mr_bytes words[] = { mr_str("PUSH"), mr_str("s"), { body, 100000 } };
    send_bytes(d, 0, mr_str("PING\r\nAUTH both bothboth\r\nPING\r\n"));
    send_words(d, 0, words, 3);
    expect_reply(d, 0, "-NOAUTH *");
    expect_reply(d, 0, "+OK");
    expect_reply(d, 0, "+PONG");
    expect_reply(d, 0, "\"1\"");
    free(body);
}

// ---- Secrets ------------------------------------------------------------------------------------

static void secrets_are_known_with_and_without_a_name(void **state) {
    struct dialogue *d = *state;
    static const char *const ways[] = { "AUTH pushpush", "AUTH default pushpush",
                                        "AUTH push pushpush", "auth '' pushpush" };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        come_as(d, 0, NULL);
        ask(d, 0, ways[i], "+OK");
        ask(d, 0, "PUSH s a", "\"*\"");
        ask(d, 0, "STAGES", "-NOPERM the token 'push' does not have the role read");
    }
    ask(d, 0, "AUTH readread", "+OK"); // another identity from here on
    ask(d, 0, "PUSH s a", "-NOPERM *");
    ask(d, 0, "STAGES", "[*]");
    ask(d, 0, "HELLO 3 AUTH default adminadmin", "{*}");
    ask(d, 0, "PAUSE s", "+OK");
}

// F46: each wrong one takes longer, nothing else waits meanwhile, and the third is the last.
static void F46_the_delay_of_a_wrong_secret_does_not_delay_others(void **state) {
    struct dialogue *d = *state;
    static const char *const wrong[] = { "AUTH read pushpush", "HELLO 3 AUTH push pushpusH",
                                         "AUTH pushpus" };
    come_as(d, 0, NULL);
    come_as(d, 1, "push");
    uint64_t wait_ms = REFUSAL_MS;
    for (size_t i = 0; i < REFUSALS; i++, wait_ms *= 2) {
        send_linef(d, 0, "%s", wrong[i]);
        send_line(d, 0, "PING");
        assert_int_equal(host_next_ms(&d->host), (int64_t)wait_ms);
        pass_ms(d, wait_ms - 1);
        expect_no_reply(d, 0);
        ask(d, 1, "PUSH s a", "\"*\"");
        pass_ms(d, 1);
        expect_reply(d, 0, "-WRONGPASS no token has that secret, or none of that name");
        if (i + 1 < REFUSALS)
            expect_reply(d, 0, "-NOAUTH *");
    }
    assert_true(d->clients[0].closed);
    come_as(d, 0, "push"); // one that is right is answered at once
    ask(d, 0, "INFO stats", "*refused_secrets:3*");
}

static void F46_an_authenticated_client_stays_so_after_a_wrong_secret(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, "push");
    send_line(d, 0, "AUTH nonsense");
    pass_ms(d, REFUSAL_MS);
    expect_reply(d, 0, "-WRONGPASS *");
    ask(d, 0, "PUSH s a", "\"1\"");
}

static void F46_a_guesser_may_hang_up(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, NULL);
    send_line(d, 0, "AUTH nonsense");
    hang_up(d, 0);
    pass_ms(d, REFUSAL_MS);
    come_as(d, 0, NULL);
    expect_no_reply(d, 0);
}

static void F46_wrong_secrets_are_answered_when_the_store_is_there(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_LATER, (struct core_limits){ 0 });
    host_set_auth(&d->host, auth_without(NULL));
    ask(d, 0, "PUSH s a", "-NOAUTH *");
    ask(d, 0, "AUTH push pushpush", "+OK");
    ask(d, 0, "PUSH s a", "-LOADING *");
    send_line(d, 1, "AUTH nonsense");
    expect_no_reply(d, 1);
    dialogue_load(d);
    turn(d);
    expect_reply(d, 1, "-WRONGPASS *");
    dialogue_destroy(d);
}

static void F24_F46_wrong_secrets_are_answered_when_the_log_has_failed(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    host_set_auth(&d->host, auth_without(NULL));
    come_as(d, 0, NULL);
    come_as(d, 1, "push");
    send_line(d, 0, "AUTH nonsense");
    sim_disk_break(d->disk, SIM_SYNCS, 5);
    ask(d, 1, "PUSH s a", "-STOPPED *");
    expect_reply(d, 0, "-WRONGPASS *");
    ask(d, 0, "AUTH nonsense", "-WRONGPASS *");
    ask(d, 0, "AUTH readread", "+OK");
    ask(d, 0, "STAGES", "[*]");
    dialogue_destroy(d);
}

static void without_a_list_AUTH_is_refused(void **state) {
    (void)state;
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    ask(d, 0, "AUTH x", "-ERR this server requires no token*");
    ask(d, 0, "HELLO 3 AUTH a b", "-ERR this server requires no token*");
    dialogue_destroy(d);
}

// ---- Stages -------------------------------------------------------------------------------------

// Jobs of a stage out of bounds: 1 waits, 2 is dead, 3 runs; of one within: 4 waits, 5 runs.
struct scene {
    struct job running, ours;
};

static struct scene make_scene(struct dialogue *d) {
    struct scene s;
    come_as(d, 1, "admin");
    ask(d, 1, "PUSH other a KEY k EPIC e 1", "\"1\"");
    ask(d, 1, "PUSH other b", "\"2\"");
    ask(d, 1, "PUSH other c", "\"3\"");
    struct job waiting = take(d, 1, "other LEASE 1000000 DETACHED");
    struct job dead = take(d, 1, "other");
    send_linef(d, 1, "FAIL %s %s 'no good' NEVER", dead.id, dead.token);
    expect_reply(d, 1, "+OK");
    s.running = take(d, 1, "other LEASE 1000000 DETACHED");
    send_linef(d, 1, "RELEASE %s %s", waiting.id, waiting.token);
    expect_reply(d, 1, "+OK");
    ask(d, 1, "PUSH mail.a d EPIC e 1", "\"4\"");
    ask(d, 1, "PUSH mail.b e", "\"5\"");
    s.ours = take(d, 1, "mail.b LEASE 1000000 DETACHED");
    connect_client(d, 2);
    ask(d, 2, "AUTH adminadmin", "+OK");
    send_line(d, 2, "TAKE other.empty mail.empty WAIT -1"); // a worker for both
    come_as(d, 0, "mail");
    return s;
}

// Replies to a token limited to mail.*. %1$s is the token of job 3, %2$s that of job 5.
static const struct {
    const char *request, *reply;
} bounds[] = {
    { "PUSH other x",
      "-NOPERM the token 'mail' is limited to mail.*, which does not include the stage 'other'" },
    { "PUSH other x EPIC e 2", "-NOPERM *" },
    { "PUSH other x SOURCE client 1", "-NOPERM *" },
    { "PUSH mail x", "-NOPERM *" },
    { "PUSHMANY other ITEMS '' a", "-NOPERM *" },
    { "PUSHMANY other EPIC e 2 ITEMS '' a", "-NOPERM *" },
    { "PUSHMANY other SOURCE client 1 ITEMS '' a", "-NOPERM *" },
    { "CALL other x", "-NOPERM *" },
    { "CALL other x EPIC e 1", "-NOPERM *" },
    { "AWAIT 2", "-GONE job 2 is not known (any more)" },
    { "AWAIT 99", "-GONE job 99 is not known (any more)" },
    { "CANCEL 1", "-GONE job 1 is not known (any more)" },
    { "EPIC other e", "-NOPERM *" },
    { "EPIC other e WAIT 1", "-NOPERM *" },
    { "EPIC other e END 1", "-NOPERM *" },
    { "EPIC other e SKIP 2", "-NOPERM *" },
    { "EPIC other e DROP", "-NOPERM *" },
    { "EPIC other e CANCEL", "-NOPERM *" },
    { "EPIC other e FORGET 5000", "-NOPERM *" },
    { "EPIC other e THEN mail.a k b", "-NOPERM *" },
    { "EPIC mail.a e THEN other k b", "-NOPERM *" }, // it needs the rights there, too
    { "EPIC mail.a e THEN unknown k b", "-NOPERM *" },
    { "EPIC other unknown", "-NOPERM *" },
    { "TAKE other", "-NOPERM *" },
    { "LEVEL other", "-NOPERM *" },
    { "TAKE mail.c other COUNT 2", "-NOPERM *" },
    { "DONE 3 %1$s", "-GONE job 3 *" },
    { "DONE 5 %1$.0s%2$s EMIT mail.c '' x EMIT other '' x", "-NOPERM *" },
    { "FAIL 3 %1$s reason", "-GONE job 3 *" },
    { "RELEASE 3 %1$s", "-GONE job 3 *" },
    { "BEAT 3 %1$s 5 %2$s", "[\"3\"]" },
    { "PROGRESS 3 %1$s 1 2", "-GONE job 3 *" },
    { "PROGRESS 99 %1$s 1 2", "-GONE job 99 *" },
    { "DONEMANY 3 %1$s", "[-GONE job 3 *]" },
    { "JOB 1", "-GONE job 1 *" },
    { "JOB 1 BODY", "-GONE job 1 *" },
    { "DUE 1", "-GONE job 1 *" },
    { "JOBS other", "-NOPERM *" },
    // A job out of bounds is answered like one that never was, whatever its status.
    { "JOBS mail.a FROM 1", "-GONE job 1 is not known (any more)" },
    { "JOBS mail.a FROM 2", "-GONE job 2 is not known (any more)" },
    { "JOBS mail.a FROM 3", "-GONE job 3 is not known (any more)" },
    { "JOBS mail.a FROM 99", "-GONE job 99 is not known (any more)" },
    { "JOBS mail.a STATUS waiting FROM 1", "-GONE job 1 is not among these any more*" },
    { "JOBS mail.a STATUS waiting FROM 99", "-GONE job 99 is not among these any more*" },
    { "JOBS mail.a STATUS delayed FROM 1", "-GONE *" },
    { "JOBS mail.a STATUS delayed FROM 99", "-GONE *" },
    { "JOBS mail.a PARKED FROM 1", "-GONE job 1 is not among these any more*" },
    { "JOBS mail.a PARKED FROM 99", "-GONE job 99 is not among these any more*" },
    { "DEAD mail.a FROM 2", "-GONE job 2 is not among these any more*" },
    { "DEAD mail.a FROM 99", "-GONE job 99 is not among these any more*" },
    { "DEAD FROM 99", "-GONE job 99 *" },
    { "DEAD", "[]" },
    { "DEAD other", "-NOPERM *" },
    { "DEAD FROM 2", "-GONE job 2 *" },
    { "STAGES", "[[\"name\" \"mail.a\" *] [\"name\" \"mail.b\" *]]" },
    { "STAGES COUNT 1", "[[\"name\" \"mail.a\" *]]" },
    { "STAGES FROM mail.a", "[[\"name\" \"mail.b\" *]]" },
    { "STAGES FROM other", "-NOPERM *" },
    { "STAGES NAME other", "-NOPERM *" },
    { "CHANNELS other", "-NOPERM *" },
    { "WORKERS", "[[\"id\" * \"stages\" \"mail.empty\" *]]" },
    { "EPICS", "[[\"name\" \"e\" *\"stage\" \"mail.a\" *]]" },
    { "EPICS STAGE other", "-NOPERM *" },
    { "EPICS STAGE unknown", "-NOPERM *" },
    { "EPICS FROM 'other e'", "-NOPERM *" },
    { "EPICS FROM 'other unknown'", "-NOPERM *" },
    { "SCHEDULES", "[]" },
    { "SCHEDULES other", "-NOPERM *" },
    { "SCHEDULES FROM 'other n'", "-NOPERM *" },
    { "SCHEDULE other n", "-NOPERM *" },
    { "SCHEDULE other n EVERY 1s PUSH x", "-NOPERM *" },
    { "SCHEDULE other n DROP", "-NOPERM *" },
    { "WHY other", "-NOPERM *" },
    { "WHY 1", "-GONE there is no job or stage '1'" },
    { "WHY 99", "-GONE there is no job or stage '99'" },
    { "RETRY 2", "-GONE job 2 *" },
    { "RETRY STAGE other DEAD", "-NOPERM *" },
    { "DROP 1", "-GONE job 1 *" },
    { "DROP 4 1", ":1" },
    { "DROP STAGE other WAITING DRY", "-NOPERM *" },
    { "PAUSE other", "-NOPERM *" },
    { "RESUME other", "-NOPERM *" },
    { "DRAIN other", "-NOPERM *" },
    { "STAGE other", "-NOPERM *" },
    { "STAGE other max-jobs 1", "-NOPERM *" },
    { "INFO stats", "\"# Stats\\x0D\\x0Awaiting:0\\x0D\\x0Arunning:1*dead:0*pushed:2*" },
    { "INFO memory", "\"\"" },
    { "INFO clients", "\"\"" },
    { "INFO persistence", "\"# Persistence\\x0D\\x0Aloading:0\\x0D\\x0Alog_full:0\\x0D*" },
    { "INFO server", "\"# Server*uptime_in_seconds:*\\x0D\\x0Ashards:1*" },
    { "CLIENT UNBLOCK 5", ":0" },
    // Commands that concern the whole server need a token for all stages.
    { "CONFIG SET log-level info", "-NOPERM CONFIG SET concerns the whole server*" },
    { "CONFIG GET log-level", "[\"log-level\" *]" },
    { "BACKUP BEGIN", "-NOPERM BACKUP concerns the whole server*" },
    { "BACKUP 0 1", "-NOPERM BACKUP concerns the whole server*" },
};

// U10: rights cover every command and option.
static void jobs_and_stages_without_permission_are_hidden(void **state) {
    struct dialogue *d = *state;
    struct scene s = make_scene(d);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        char request[512];
        snprintf(request, sizeof request, bounds[i].request, s.running.token, s.ours.token);
        print_message("# %s\n", request);
        ask(d, 0, request, bounds[i].reply);
    }
    ask(d, 1, "JOBS other", "[[*\"status\" \"running\"*] [*\"status\" \"waiting\"*] [*\"dead\"*]]");
    ask(d, 1, "STAGE other", "[\"max-jobs\" \"none\" *]");
    ask(d, 1, "JOB 5", "[*\"status\" \"running\"*]"); // a commit refused is none
    ask(d, 1, "CLIENT UNBLOCK 99", ":0");
    expect_no_reply(d, 2);
}

// %1$s is an id, %2$s the token of a job out of bounds. All but the first are wrong otherwise, too.
static const char *const about_jobs[] = {
    "DONE %1$s %2$s",
    "DONE %1$s AAAA",
    "DONE %1$s %2$s EMIT other '' ''",
    "DONE %1$s %2$s EMIT other",
    "DONE %1$s %2$s UNKNOWN",
    "FAIL %1$s AAAA reason",
    "FAIL %1$s %2$s reason UNKNOWN",
    "FAIL %1$s %2$s reason NEVER RETRY 1",
    "RELEASE %1$s AAAA",
    "AWAIT %1$s UNKNOWN",
    "DUE %1$s",
    "JOB %1$s UNKNOWN",
};

// U10: no command shows whether a job out of bounds exists, whatever else is wrong with it.
static void U10_a_job_out_of_bounds_is_answered_like_an_unknown_one(void **state) {
    struct dialogue *d = *state;
    come_as(d, 1, "admin");
    ask(d, 1, "PUSH other a", "\"*");
    struct job job = take(d, 1, "other LEASE 1000000 DETACHED");
    come_as(d, 0, "mail");
    const char *ids[] = { job.id, "990", "991", "992" }; // one in each of three loops
    for (size_t i = 0; i < sizeof about_jobs / sizeof *about_jobs; i++)
        for (size_t k = 0; k < sizeof ids / sizeof *ids; k++) {
            char reply[64];
            snprintf(reply, sizeof reply, "-GONE job %s is not known (any more)", ids[k]);
            send_linef(d, 0, about_jobs[i], ids[k], job.token);
            expect_reply(d, 0, reply);
        }
    for (size_t k = 0; k < sizeof ids / sizeof *ids; k++) {
        ask(d, 0, "MULTI", "+OK");
        send_linef(d, 0, "CANCEL %s", ids[k]);
        expect_reply(d, 0, "+QUEUED");
        send_linef(d, 0, "DONE %s %s", ids[k], job.token);
        expect_reply(d, 0, "+QUEUED");
        ask(d, 0, "EXEC", "[-GONE job * is not known (any more) -GONE job *]");
    }
    send_linef(d, 1, "DONE %s %s", job.id, job.token);
    expect_reply(d, 1, "+OK");
}

// U10: GONE for an unknown job does not keep its channel: the answer of a worker ends its lease.
static void U10_the_answer_for_a_forgotten_job_ends_its_lease(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, "mail");
    ask(d, 0, "STAGE mail.a overlap never retention 1ms,0", "+OK");
    ask(d, 0, "PUSH mail.a x KEY k", "\"*");
    ask(d, 0, "PUSH mail.a y KEY k", "\"*");
    struct job job = take(d, 0, "mail.a LEASE 1000000");
    send_linef(d, 0, "CANCEL %s", job.id);
    expect_reply(d, 0, ":1");
    pass_ms(d, 2000);
    send_linef(d, 0, "JOB %s", job.id);
    expect_reply(d, 0, "-GONE *");
    ask(d, 0, "TAKE mail.a", "[]");
    send_linef(d, 0, "DONE %s %s", job.id, job.token);
    expect_reply(d, 0, "-GONE *");
    ask(d, 0, "TAKE mail.a", "[[*\"y\"*]]");
}

// Every command that is about stages has a line there.
static void no_command_about_stages_is_left_out(void **state) {
    (void)state;
    for (const struct command *c = command_table; c->name; c++) {
        size_t size = strlen(c->name), i = 0;
        const size_t count = sizeof bounds / sizeof *bounds;
        if (c->scope == SCOPE_NONE)
            continue;
        while (i < count && (!begins(bounds[i].request, c->name) || bounds[i].request[size] > ' '))
            i++;
        if (i == count)
            fail_msg("%s has no line", c->name);
    }
}

static void within_its_bounds_a_token_does_what_its_roles_say(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, "mail");
    ask(d, 0, "PUSH mail.a x KEY k EPIC e 1", "\"1\"");
    struct job job = take(d, 0, "mail.b mail.a");
    send_linef(d, 0, "DONE %s %s RESULT r EMIT mail.c '' x", job.id, job.token);
    expect_reply(d, 0, "+OK");
    ask(d, 0, "AWAIT 1", "\"r\"");
    ask(d, 0, "JOB 1", "[*\"status\" \"done\"*]");
    ask(d, 0, "WHY mail.c", "*no worker*");
    ask(d, 0, "EPIC mail.a e THEN mail.c '' x", "[*\"then\" \"mail.c\" *]");
    ask(d, 0, "EPIC mail.a e END 1", "[*\"then-pushed\" :1 *]");
    ask(d, 0, "PAUSE mail.c", "+OK");
}

// Another token has said where THEN pushes to.
static void U2_a_stage_of_then_out_of_bounds_is_not_named(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, "mail");
    come_as(d, 1, "admin");
    ask(d, 1, "EPIC mail.a e THEN other '' x", "[*\"then\" \"other\" *]");
    ask(d, 0, "EPIC mail.a e", "[*\"then\" \"?\" *]");
    ask(d, 0, "EPICS", "[[*\"then\" \"?\" *]]");
}

// U2: names of sources are known to the token that uses them: another neither takes its numbers nor
// learns anything about them. An epic is not a source.
static void U2_a_token_does_not_meet_the_numbers_of_others(void **state) {
    struct dialogue *d = *state;
    come_as(d, 1, "admin");
    for (int i = 1; i <= 3; i++) {
        send_linef(d, 1, "PUSH mail.a theirs SOURCE client %d", i);
        expect_reply(d, 1, "\"*\"");
    }
    come_as(d, 0, "mail");
    ask(d, 0, "PUSH mail.a ours SOURCE client 1", "\"4\"");
    ask(d, 0, "PUSH mail.a ours SOURCE client 1026", "-GAP 2 is missing*");
    ask(d, 1, "PUSH mail.a theirs SOURCE client 3", "\"3\""); // as it was
    ask(d, 0, "PUSHMANY mail.a SOURCE client 1 ITEMS '' ours", "[\"4\"]");
    ask(d, 1, "PUSHMANY mail.a SOURCE client 1 ITEMS '' a '' b '' c", "[\"1\" \"2\" \"3\"]");
    ask(d, 0, "PUSH mail.a x SOURCE payroll 1", "\"5\"");
    ask(d, 0, "PUSH mail.a x SOURCE payroll 2", "\"6\"");
    ask(d, 1, "PUSH mail.a y EPIC payroll 2", "\"7\""); // the epic has numbers of its own
    ask(d, 1, "EPIC mail.a payroll", "[\"resume\" :1 *\"accepted\" :1 *]");
    ask(d, 1, "PUSH mail.b z EPIC payroll 1", "\"8\""); // nor is it that of another stage
    ask(d, 1, "EPIC mail.b payroll", "[\"resume\" :2 *]");
    ask(d, 0, "EPIC mail.a client", "-GONE *"); // a source is not an epic
    ask(d, 0, "EPICS STAGE mail.b", "[[\"name\" \"payroll\" *]]");
    ask(d, 1, "PUSH other x EPIC e 1", "\"*\"");
    ask(d, 0, "PUSH other x EPIC e 1", "-NOPERM *");
    ask(d, 0, "PUSH other x EPIC e 3", "-GAP 1 *"); // not where it stands
}

// U2: GAP would reveal the progress of an epic: only tokens with push get it.
static void U2_a_token_without_push_does_not_learn_what_was_accepted(void **state) {
    struct dialogue *d = *state;
    static const char *const names[] = { NULL, "work" };
    come_as(d, 1, "admin");
    for (int i = 1; i <= 3; i++) {
        send_linef(d, 1, "PUSH mail.a x EPIC e %d", i);
        expect_reply(d, 1, "\"*\"");
    }
    for (int i = 0; i < 2; i++) {
        const char *refusal = names[i] ? "-NOPERM *" : "-NOAUTH *";
        come_as(d, 0, names[i]);
        ask(d, 0, "PUSH mail.a x EPIC e 9", refusal);
        ask(d, 0, "PUSH mail.a x EPIC e 1", refusal);
        ask(d, 0, "PUSH mail.a x EPIC e 8", refusal);
        ask(d, 0, "AUTH push pushpush", "+OK");
        ask(d, 0, "PUSH mail.a x EPIC e 9", "-GAP 4 *"); // they are held all the same
    }
}

static void D7_a_downstream_stage_that_a_token_may_not_see_has_no_name(void **state) {
    struct dialogue *d = *state;
    come_as(d, 1, "admin");
    ask(d, 1, "STAGE other high-mark 1", "+OK");
    for (int i = 0; i < 3; i++)
        ask(d, 1, "PUSH mail.a x", "\"*\"");
    struct job job = take(d, 1, "mail.a");
    send_linef(d, 1, "DONE %s %s EMIT other '' x EMIT other '' y", job.id, job.token);
    expect_reply(d, 1, "+OK");
    ask(d, 1, "STAGES NAME mail.a", "[[*\"held-by\" \"downstream:other*\" *]]");
    come_as(d, 0, "mail");
    ask(d, 1, "STAGES NAME mail.a", "[[*\"feeds\" [\"other\"]*]]");
    ask(d, 0, "STAGES NAME mail.a", "[[*\"held-by\" \"downstream\" *\"feeds\" []*]]");
    ask(d, 0, "WHY mail.a", "\"mail.a starts no job because a stage *may not see that stage.\"");
}

static void its_own_takes_may_be_unblocked(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, "mail"); // connection 3
    come_as(d, 1, "mail"); // 4
    char request[64];
    snprintf(request, sizeof request, "CLIENT UNBLOCK %llu",
             (unsigned long long)d->clients[1].session->id);
    send_line(d, 1, "TAKE mail.a WAIT -1");
    come_as(d, 2, "twin"); // 5
    ask(d, 2, request, ":0");
    expect_no_reply(d, 1);
    ask(d, 0, request, ":1");
    expect_reply(d, 1, "[]");
    send_line(d, 1, "TAKE mail.a WAIT -1");
    come_as(d, 2, "admin");
    ask(d, 2, request, ":1");
    expect_reply(d, 1, "[]");
}

// ---- Lists --------------------------------------------------------------------------------------

static void a_reloaded_list_keeps_sessions_of_remaining_tokens(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, "push");
    come_as(d, 1, "work");
    connect_client(d, 2);
    send_line(d, 1, "TAKE s WAIT -1");
    host_begin(&d->host);
    host_set_auth(&d->host, auth_without("work"));
    turn(d);
    assert_true(d->clients[1].closed);
    ask(d, 0, "PUSH s a", "\"1\"");
    ask(d, 0, "AUTH push pushpush", "+OK");
    ask(d, 2, "AUTH admin adminadmin", "+OK");
    ask(d, 2, "WORKERS", "[]");
    come_as(d, 1, NULL);
    send_line(d, 1, "AUTH workwork");
    pass_ms(d, REFUSAL_MS);
    expect_reply(d, 1, "-WRONGPASS *");
}

static void patterns_are_names_with_asterisks(void **state) {
    (void)state;
    static const struct {
        const char *patterns, *name;
        bool fits;
    } cases[] = {
        { "*", "", true },
        { "*", "anything", true },
        { "mail", "mail", true },
        { "mail", "mail.a", false },
        { "mail*", "mail.a", true },
        { "mail.*", "mail", false },
        { "mail.*", "mail.", true },
        { "*.in", "mail.in", true },
        { "*.in", "mail.in.x", false },
        { "a*b*c", "aXXbYYc", true },
        { "a*b*c", "aXXcYYb", false },
        { "a*b*c", "abbbc", true },
        { "x,mail.*", "mail.a", true },
        { "x,mail.*", "x", true },
        { "x,mail.*", "y", false },
        { "**", "x", true },
        { "a**", "a", true },
        { "a", "", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct auth_entry e = { .patterns = mr_str(cases[i].patterns) };
        if (auth_sees(&e, mr_str(cases[i].name)) != cases[i].fits)
            fail_msg("%s and %s", cases[i].patterns, cases[i].name);
    }
}

static void T1_a_list_that_is_wrong_is_refused_with_its_line(void **state) {
    (void)state;
    static const struct {
        const char *roles, *name, *stages, *why;
    } cases[] = {
        { "push", "a b", "*", "four words" }, { "pusch", "a", "*", "'pusch' is not a role" },
        { ",", "a", "*", "role is missing" }, { "push", "default", "*", "a name has" },
        { "push", "a/b", "*", "a name has" }, { "push", "a", "a b", "four words" },
        { "push", "a", "m%", "stages must" }, { "push", "push", "*", "used twice" },
    };
    struct auth *auth = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048] = "";
        write_line(text, sizeof text, "push", "push", "*");
        size_t used = strlen(text);
        used += (size_t)snprintf(text + used, sizeof text - used, "# fine so far\n");
        write_line(text + used, sizeof text - used, cases[i].name, cases[i].roles, cases[i].stages);
        assert_int_equal(auth_parse(mr_str(text), &auth), MR_EINVAL);
        assert_non_null(strstr(error_text(), "line 3: "));
        if (!strstr(error_text(), cases[i].why))
            fail_msg("%s", error_text());
    }
    assert_int_equal(auth_parse(mr_str("a push * sha1:00"), &auth), MR_EINVAL);
    assert_int_equal(auth_parse(mr_str("a push * sha256:00"), &auth), MR_EINVAL);
    static const char *const ids[] = {
        "a push * uid:", "a push * uid:-1",         "a push * uid:1x",
        "a push * gid:", "a push * uid:4294967295", "a push * uid:99999999999999999999",
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        assert_int_equal(auth_parse(mr_str(ids[i]), &auth), MR_EINVAL);
        assert_string_equal(error_text(), "line 1: an id of a user or group is a number from 0 to "
                                          "4294967294");
    }
    assert_int_equal(auth_parse(mr_str("a push * uid:1\nb push * uid:1"), &auth), MR_EINVAL);
    assert_string_equal(error_text(), "line 2: uid:1 is used twice");
    assert_int_equal(auth_parse(mr_str("# no entries"), &auth), 0);
    assert_int_equal(auth_count(auth), 0);
    auth_destroy(auth);
}

static void expect_peer(const struct auth *auth, uid_t user, const gid_t groups[2],
                        const char *name) {
    struct auth_peer peer = { .user = user, .groups = groups, .group_count = 2 };
    const struct auth_entry *found = auth_of_peer(auth, &peer);
    assert_int_equal(found != NULL, name != NULL);
    assert_true(!found || (found->name.size == 1 && *(const char *)found->name.data == *name));
}

// U10: ids of users are not ids of groups, and neither is a secret.
static void U10_users_and_then_groups_have_tokens(void **state) {
    (void)state;
    struct auth *auth = NULL;
    assert_int_equal(auth_parse(mr_str("a push * gid:5\nb push * uid:4294967294 max-jobs=1\n"
                                       "c push * gid:6\nd push * uid:5\n"),
                                &auth),
                     0);
    expect_peer(auth, 5, (gid_t[]){ 5, 6 }, "d");
    expect_peer(auth, 4294967294, (gid_t[]){ 1, 2 }, "b");
    expect_peer(auth, 1, (gid_t[]){ 6, 5 }, "a"); // the order of the file
    expect_peer(auth, 1, (gid_t[]){ 1, 6 }, "c");
    expect_peer(auth, 6, (gid_t[]){ 4, 7 }, NULL);
    expect_peer(auth, 0, (gid_t[]){ 0, 0 }, NULL);
    assert_null(auth_find(auth, mr_str("d"), mr_str("5")));
    assert_null(auth_find(auth, mr_str("d"), mr_str("")));
    struct auth *changed = NULL;
    assert_int_equal(auth_parse(mr_str("d push * uid:6\nb push * uid:4294967294\n"), &changed), 0);
    assert_null(auth_same(changed, auth_named(auth, mr_str("d"))));
    assert_non_null(auth_same(changed, auth_named(auth, mr_str("b"))));
    auth_destroy(auth);
    auth_destroy(changed);
}

static void set_list(struct host *h, const char *text) {
    struct auth *auth = NULL;
    assert_int_equal(auth_parse(mr_str(text), &auth), 0);
    host_set_auth(h, auth);
}

static void set_list_everywhere(struct dialogue *d, const char *text) {
    set_list(&d->host, text);
    for (uint32_t i = 0; i + 1 < d->loops.count; i++)
        set_list(&d->others[i], text);
}

// U10: AUTH changes who a client is, and a list without its user ends its session.
static void U10_a_process_of_a_user_has_its_token_from_the_start(void **state) {
    struct dialogue *d = *state;
    char text[512];
    write_line(text, sizeof text, "work", "work", "*");
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "web push mail.* uid:33 max-connections=1\n");
    set_list_everywhere(d, text);
    struct auth_peer web = { .user = 33 }, root = { .user = 0 };
    come_as(d, 0, NULL);
    assert_int_equal(session_admit_peer(d->clients[0].session, &root), 0);
    ask(d, 0, "PING", "-NOAUTH *");
    assert_int_equal(session_admit_peer(d->clients[0].session, &web), 0);
    ask(d, 0, "PUSH mail.in a", "\"1\"");
    ask(d, 0, "PUSH sms a", "-NOPERM *");
    ask(d, 0, "INFO quotas", "*token:web*");
    come_as(d, 1, NULL);
    assert_int_equal(session_admit_peer(d->clients[1].session, &web), MR_EFULL);
    ask(d, 1, "PING", "-NOAUTH *");
    ask(d, 0, "AUTH work workwork", "+OK");
    ask(d, 0, "PUSH mail.in a", "-NOPERM *");
    assert_int_equal(session_admit_peer(d->clients[1].session, &web),
                     0); // the first counts no more
    text[used] = 0;
    host_begin(&d->host);
    set_list_everywhere(d, text);
    turn(d);
    assert_true(d->clients[1].closed && !d->clients[0].closed);
}

static void F51_lists_need_memory(void **state) {
    (void)state;
    for (long after = 0; after < 2; after++) {
        struct auth *auth = NULL;
        mem_fail_after(after);
        assert_int_equal(auth_parse(mr_str("# no entries"), &auth), MR_ENOMEM);
        mem_fail_after(-1);
        assert_null(auth);
    }
}

// ---- Unauthenticated connections ---------------------------------------------------------------

static struct unauthenticated *arrive(struct unauthenticated *s, uint32_t loop, uint8_t from) {
    *s = (struct unauthenticated){ .loop = loop, .address = { from } };
    return s;
}

// F45: unauthenticated connections are closed in the order of arrival.
static void F42_F45_unauthenticated_clients_have_little_time(void **state) {
    (void)state;
    struct unauthenticated_list d = { 0 };
    struct unauthenticated s[3];
    assert_true(unauthenticated_next_ms(&d, 0) == UINT64_MAX);
    assert_null(unauthenticated_overdue(&d, 0, UINT64_MAX - 1));
    for (uint64_t i = 0; i < 3; i++)
        unauthenticated_add(&d, arrive(&s[i], 0, 1), 100 * i);
    assert_int_equal(unauthenticated_next_ms(&d, 0), UNAUTHENTICATED_MS);
    assert_true(unauthenticated_next_ms(&d, 1) == UINT64_MAX);
    assert_null(unauthenticated_overdue(&d, 0, UNAUTHENTICATED_MS - 1));
    assert_null(unauthenticated_overdue(&d, 1, UNAUTHENTICATED_MS));
    assert_ptr_equal(unauthenticated_overdue(&d, 0, UNAUTHENTICATED_MS), &s[0]);
    unauthenticated_remove(&d, &s[0]);
    assert_null(unauthenticated_overdue(&d, 0, UNAUTHENTICATED_MS));
    unauthenticated_remove(&d, &s[1]); // it has authenticated
    assert_ptr_equal(unauthenticated_overdue(&d, 0, UNAUTHENTICATED_MS + 200), &s[2]);
    unauthenticated_remove(&d, &s[2]);
    assert_true(unauthenticated_next_ms(&d, 0) == UINT64_MAX);
    assert_int_equal(d.count, 0);
    unauthenticated_remove(&d, &s[0]); // when its connection closes
}

// The one that has to leave, if any, does; then this one is counted.
static struct unauthenticated *squeeze_in(struct unauthenticated_list *d, struct unauthenticated *s,
                                          uint32_t loop, uint8_t from) {
    struct unauthenticated *oldest = unauthenticated_to_evict(d, arrive(s, loop, from)->address);
    if (oldest)
        unauthenticated_evict(d, oldest);
    unauthenticated_add(d, s, 0);
    return oldest;
}

// U8: the oldest unauthenticated connection makes room: of the same address if that has too many,
// else of all, in whichever loop it is. One that has authenticated never does.
static void F45_U8_unauthenticated_clients_are_few_and_the_oldest_is_closed(void **state) {
    (void)state;
    struct unauthenticated_list d = { 0 };
    static struct unauthenticated s[LIMIT_UNAUTHENTICATED + 1], more[2], one, other;
    assert_null(squeeze_in(&d, &other, 0, 2));
    for (uint32_t i = 0; i < LIMIT_UNAUTHENTICATED_OF_ADDRESS; i++)
        assert_null(squeeze_in(&d, &s[i], i % 3, 1));
    unauthenticated_remove(&d, &s[0]); // authenticated
    unauthenticated_remove(&d, &s[1]);
    assert_null(squeeze_in(&d, &more[0], 0, 1));
    assert_null(squeeze_in(&d, &more[1], 0, 1));
    assert_ptr_equal(squeeze_in(&d, &one, 0, 1), &s[2]);
    assert_null(unauthenticated_overdue(&d, 0, 0));
    assert_ptr_equal(unauthenticated_overdue(&d, 2, 0), &s[2]); // its loop closes it
    for (uint32_t i = LIMIT_UNAUTHENTICATED_OF_ADDRESS; d.count < LIMIT_UNAUTHENTICATED; i++)
        assert_null(squeeze_in(&d, &s[i], i % 3, (uint8_t)(3 + i / 100)));
    assert_ptr_equal(squeeze_in(&d, &s[LIMIT_UNAUTHENTICATED], 1, 201), &other); // oldest of all
    assert_ptr_equal(unauthenticated_oldest(&d, NULL), &s[3]);
    assert_int_equal(d.count, LIMIT_UNAUTHENTICATED);
    unauthenticated_remove(&d, &s[2]); // it counted no more
    assert_int_equal(d.count, LIMIT_UNAUTHENTICATED);
}

// ---- Shares -------------------------------------------------------------------------------------

static int setup_small(void **state) {
    struct dialogue *d =
        dialogue_create(STORE_MEMORY, (struct core_limits){ .max_stages = 8, .max_sources = 8 });
    host_set_auth(&d->host, auth_without(NULL));
    *state = d;
    return 0;
}

// U7: one token never takes up all stages and sources, nor does a waiting TAKE.
static void U7_a_token_has_a_share_of_stages_and_sources(void **state) {
    struct dialogue *d = *state;
    come_as(d, 0, "push");
    ask(d, 0, "PUSH a x SOURCE c1 1", "\"*");
    ask(d, 0, "PUSH b x SOURCE c2 1", "\"*");
    ask(d, 0, "PUSH c x", "-FULL this token has made 2 stages, its share of 8*");
    ask(d, 0, "PUSH a x SOURCE c3 1", "-FULL this token uses 2 sources*");
    ask(d, 0, "PUSH a x", "\"*");
    come_as(d, 1, "both");
    ask(d, 1, "PUSH c x SOURCE c3 1", "\"*");
    ask(d, 1, "TAKE e f WAIT -1", "-FULL this token has made 2 stages*");
    come_as(d, 2, "admin");
    ask(d, 2, "STAGE d lease 5s", "+OK");
    ask(d, 2, "STAGE a REMOVE", "-ERR stage a is not empty: it has jobs that have not ended*");
    ask(d, 2, "STAGE d REMOVE", "+OK");
    ask(d, 2, "STAGE d", "-GONE *");
}

enum { MANY = 60 };

// One token has 12 of 48, in all shards together. `maker_least`: and so many in each shard.
static struct dialogue *open_with_share(uint32_t maker_least) {
    struct core_limits limits = { .max_stages = 48, .max_sources = 48, .maker_least = maker_least };
    struct dialogue *d = dialogue_create(STORE_MEMORY, limits);
    set_auth_everywhere(d);
    come_as(d, 0, "push");
    return d;
}

static bool is_accepted(struct dialogue *d, const char *stage, const char *options) {
    struct buffer *received = &d->clients[0].received;
    send_linef(d, 0, "PUSH %s x %s", stage, options);
    assert_true(received->size > 0);
    bool accepted = received->data[0] == '$';
    if (!accepted)
        assert_memory_equal(received->data, "-FULL this token ", 17);
    received->size = 0;
    if (!accepted)
        come_as(d, 0, "push"); // a connection keeps few refused numbers
    return accepted;
}

// Counts the stages, and then the sources in them, that the token can make.
static void expect_shares(struct dialogue *d, uint32_t share) {
    char stages[MANY][16], source[32];
    uint32_t made = 0, sources = 0;
    for (int i = 0; i < MANY; i++) {
        snprintf(stages[made], sizeof stages[made], "stage-%d", i);
        made += is_accepted(d, stages[made], "");
    }
    assert_int_equal(made, share);
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(source, sizeof source, "SOURCE c%u 1", i);
        sources += is_accepted(d, stages[i % made], source);
    }
    assert_int_equal(sources, share);
}

// U7: the share of a token is of the whole server, however many shards that has.
static void U7_a_share_is_divided_among_shards(void **state) {
    (void)state;
    struct dialogue *d = open_with_share(1);
    expect_shares(d, 12);
    dialogue_destroy(d);
}

// U7: a shard allows the minimum also if its part is less.
static void U7_a_share_of_a_shard_has_a_minimum(void **state) {
    (void)state;
    struct dialogue *d = open_with_share(5);
    expect_shares(d, d->host.shards > 1 ? 15 : 12);
    dialogue_destroy(d);
}

// A token that makes ever new stages, by pushes and by emits from every shard to any shard.
struct spender {
    struct dialogue *dialogue;
    uint64_t dice;
    int named;      // stages so far, from s0 on
    int full[MANY]; // those that have a job
    int full_count;
};

enum { SPENDER, ADMIN, SHARE = 12 };

static uint64_t roll(struct spender *s, uint64_t below) {
    s->dice = s->dice * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (s->dice >> 33) % below;
}

// Reads the reply to a command that would make the next stage.
static bool has_made(struct spender *s) {
    const char *reply = next_reply(s->dialogue, SPENDER);
    bool made = reply[0] != '-';
    if (!made)
        assert_memory_equal(reply, "-FULL this token has made ", 26);
    if (made)
        s->full[s->full_count++] = s->named;
    s->named++;
    return made;
}

// The stage that it emits from is the admin's.
static bool make_by_emit(struct spender *s) {
    static const char *const from[] = { "b", "c", "d" }; // in three shards
    const char *stage = from[roll(s, 3)];
    send_linef(s->dialogue, ADMIN, "PUSH %s x", stage);
    expect_reply(s->dialogue, ADMIN, "\"*");
    struct job j = take(s->dialogue, SPENDER, stage);
    send_linef(s->dialogue, SPENDER, "DONE %s %s EMIT s%d '' x", j.id, j.token, s->named);
    if (has_made(s))
        return true;
    send_linef(s->dialogue, SPENDER, "DONE %s %s", j.id, j.token);
    expect_reply(s->dialogue, SPENDER, "+OK");
    return false;
}

static void make_by_push(struct spender *s) {
    send_linef(s->dialogue, SPENDER, "PUSH s%d x", s->named);
    (void)has_made(s);
}

static void empty_one(struct spender *s) {
    char stage[16];
    if (!s->full_count)
        return;
    int *one = &s->full[roll(s, (uint64_t)s->full_count)];
    snprintf(stage, sizeof stage, "s%d", *one);
    *one = s->full[--s->full_count];
    struct job j = take(s->dialogue, SPENDER, stage);
    send_linef(s->dialogue, SPENDER, "DONE %s %s", j.id, j.token);
    expect_reply(s->dialogue, SPENDER, "+OK");
}

static int stages_known(struct spender *s) {
    int count = 0;
    send_line(s->dialogue, ADMIN, "STAGES");
    for (const char *at = next_reply(s->dialogue, ADMIN); (at = strstr(at, "stage \"s")); at++)
        count++;
    return count;
}

static void pass_two_hours(struct spender *s) { // ended jobs are kept for one
    pass_ms(s->dialogue, 2 * 3600 * 1000);
    turn(s->dialogue);
}

// U7: no sequence of pushes and emits, over shards, makes more stages than the share; and when
// stages are gone, there is room for others.
static void U7_emits_to_other_shards_do_not_exceed_a_share(void **state) {
    (void)state;
    struct spender s = { .dialogue = open_with_share(1), .dice = 1 };
    come_as(s.dialogue, SPENDER, "both");
    come_as(s.dialogue, ADMIN, "admin");
    for (int i = 0; i < 2000; i++) {
        uint64_t what = roll(&s, 40);
        if (what < 20)
            (void)make_by_emit(&s);
        else if (what < 34)
            make_by_push(&s);
        else if (what < 39)
            empty_one(&s);
        else
            pass_two_hours(&s);
        assert_true(stages_known(&s) <= SHARE);
        dialogue_check(s.dialogue);
    }
    while (s.full_count)
        empty_one(&s);
    pass_two_hours(&s);
    int made = 0;
    for (int i = 0; i < MANY; i++, pass_ms(s.dialogue, 1))
        made += make_by_emit(&s);
    assert_in_range(made, SHARE / 2, SHARE);
    come_as(s.dialogue, SPENDER, "push"); // another token is not affected
    expect_shares(s.dialogue, SHARE);
    dialogue_destroy(s.dialogue);
}

#define WITH_PEOPLE(test)                                                                          \
    { #test, test, setup, dialogue_teardown, NULL }

int main(void) {
    const struct CMUnitTest any[] = {
        WITH_PEOPLE(every_command_asks_for_its_role),
        WITH_PEOPLE(U3_what_a_token_may_not_do_aborts_EXEC),
        WITH_PEOPLE(F45_unauthenticated_clients_may_authenticate_or_quit),
        WITH_PEOPLE(F45_requests_of_unauthenticated_clients_are_short),
        WITH_PEOPLE(F43_F45_unread_refusals_of_unauthenticated_clients_are_few),
        WITH_PEOPLE(a_pipeline_may_begin_with_AUTH),
        WITH_PEOPLE(secrets_are_known_with_and_without_a_name),
        WITH_PEOPLE(F46_the_delay_of_a_wrong_secret_does_not_delay_others),
        WITH_PEOPLE(F46_an_authenticated_client_stays_so_after_a_wrong_secret),
        WITH_PEOPLE(F46_a_guesser_may_hang_up),
        cmocka_unit_test(F46_wrong_secrets_are_answered_when_the_store_is_there),
        cmocka_unit_test(F24_F46_wrong_secrets_are_answered_when_the_log_has_failed),
        cmocka_unit_test(without_a_list_AUTH_is_refused),
        cmocka_unit_test(no_command_about_stages_is_left_out),
        WITH_PEOPLE(U10_a_job_out_of_bounds_is_answered_like_an_unknown_one),
        WITH_PEOPLE(U10_the_answer_for_a_forgotten_job_ends_its_lease),
        WITH_PEOPLE(its_own_takes_may_be_unblocked),
        WITH_PEOPLE(a_reloaded_list_keeps_sessions_of_remaining_tokens),
        cmocka_unit_test(patterns_are_names_with_asterisks),
        cmocka_unit_test(T1_a_list_that_is_wrong_is_refused_with_its_line),
        cmocka_unit_test(U10_users_and_then_groups_have_tokens),
        WITH_PEOPLE(U10_a_process_of_a_user_has_its_token_from_the_start),
        cmocka_unit_test(F51_lists_need_memory),
        cmocka_unit_test(F42_F45_unauthenticated_clients_have_little_time),
        cmocka_unit_test(U7_a_share_is_divided_among_shards),
        cmocka_unit_test(U7_a_share_of_a_shard_has_a_minimum),
        cmocka_unit_test(U7_emits_to_other_shards_do_not_exceed_a_share),
        cmocka_unit_test(F45_U8_unauthenticated_clients_are_few_and_the_oldest_is_closed),
    };
    const struct CMUnitTest alone[] = {
        WITH_PEOPLE(jobs_and_stages_without_permission_are_hidden),
        WITH_PEOPLE(within_its_bounds_a_token_does_what_its_roles_say),
        WITH_PEOPLE(U2_a_stage_of_then_out_of_bounds_is_not_named),
        WITH_PEOPLE(U2_a_token_does_not_meet_the_numbers_of_others),
        WITH_PEOPLE(U2_a_token_without_push_does_not_learn_what_was_accepted),
        { "U7_a_token_has_a_share_of_stages_and_sources",
          U7_a_token_has_a_share_of_stages_and_sources, setup_small, dialogue_teardown, NULL },
        WITH_PEOPLE(D7_a_downstream_stage_that_a_token_may_not_see_has_no_name),
    };
    return DIALOGUES(any, alone);
}
