// Commands about the connection and the server: AUTH, HELLO, PING, COMMAND, CLIENT …
#include "server/access.h"
#include "server/budget.h"
#include "server/info.h"
#include "server/router.h"
#include "server/shards.h"

#include "base/errors.h"
#include "millrace.h"
#include "wire/code.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Authentication ---------------------------------------------------------------------------

// Authenticates the session. False: the error is replied, now or after a delay.
static bool admit(struct session *s, mr_bytes user, mr_bytes secret) {
    if (s->host->auth)
        return session_admit(s, user, secret);
    session_usage(s, "this server requires no token: connect without AUTH");
    return false;
}

void run_auth(struct session *s, struct arguments *a) {
    mr_bytes user = a->count > 2 ? a->words[1] : (mr_bytes){ 0 };
    if (admit(s, user, a->words[a->count - 1]))
        reply_simple(&s->reply, "OK");
}

static int client_name_check(mr_bytes name) {
    const char *p = name.data;
    bool bad = name.size > LIMIT_NAME;
    for (size_t i = 0; !bad && i < name.size; i++)
        bad = p[i] < '!' || p[i] > '~';
    return bad ? error_set(MR_EINVAL,
                           "a client's name has at most %d printable characters and no blanks",
                           LIMIT_NAME)
               : 0;
}

static bool check_name(struct session *s, mr_bytes name) {
    if (client_name_check(name) == 0)
        return true;
    session_usage(s, "%s", error_text());
    return false;
}

static void set_name(struct session *s, mr_bytes name) {
    memcpy(s->name, name.data, name.size);
    s->name[name.size] = 0;
}

int session_set_name(struct session *s, mr_bytes name) {
    int err = client_name_check(name);
    if (err == 0)
        set_name(s, name);
    return err;
}

static void write_hello(struct session *s) {
    struct hello_reply r = { .server = mr_str("millrace"),
                             .version = mr_str(REDIS_VERSION),
                             .proto = s->reply.resp3 ? 3 : 2,
                             .id = s->id,
                             .mode = mr_str(s->host->node ? "cluster" : "standalone"),
                             .role = mr_str("master"),
                             .owned_ms = s->host->node ? s->host->node->owned_ms : 0 };
    reply_write(&s->reply, &hello_replies, &r);
}

struct hello {
    bool resp3, names, knows;
    mr_bytes name, user, secret;
};

// Parses all arguments before any takes effect. False: the error was replied.
static bool hello_read(struct session *s, struct arguments *a, struct hello *out) {
    if (a->at < a->count) {
        mr_bytes version = a->words[a->at++];
        if (!word_is(version, "2") && !word_is(version, "3")) {
            reply_error(&s->reply, code_name(CODE_NOPROTO),
                        mr_str("this server supports RESP 2 and 3"));
            return false;
        }
        out->resp3 = word_is(version, "3");
    }
    while (a->at < a->count) {
        uint32_t left = a->count - a->at - 1;
        const mr_bytes *word = &a->words[a->at];
        if (word_is(word[0], "SETNAME") && left >= 1) {
            out->names = true;
            out->name = word[1];
            a->at += 2;
        } else if (word_is(word[0], "AUTH") && left >= 2) {
            out->knows = true;
            out->user = word[1];
            out->secret = word[2];
            a->at += 3;
        } else {
            session_usage(s, "HELLO takes 2 or 3, then AUTH user secret, SETNAME name");
            return false;
        }
    }
    return !out->names || check_name(s, out->name);
}

void run_hello(struct session *s, struct arguments *a) {
    struct hello h = { .resp3 = s->reply.resp3 };
    if (!hello_read(s, a, &h))
        return;
    if (!h.resp3 && (!list_empty(&s->async_calls) || router_work(s).async_calls)) {
        session_usage(
            s, "calls with LATER have not ended, and their ends need RESP3: HELLO 2 is refused");
        return;
    }
    if (h.knows ? !admit(s, h.user, h.secret) : !access_role(s, ROLE_ANY))
        return;
    if (h.names)
        set_name(s, h.name);
    s->reply.resp3 = h.resp3;
    s->cancels = s->cancels && h.resp3;
    write_hello(s);
}

// ---- PING, ECHO, QUIT, SELECT -----------------------------------------------------------------

void run_ping(struct session *s, struct arguments *a) {
    if (a->at < a->count)
        reply_bulk(&s->reply, a->words[a->at]);
    else
        reply_simple(&s->reply, "PONG");
}

void run_echo(struct session *s, struct arguments *a) {
    reply_bulk(&s->reply, a->words[a->at]);
}

void run_quit(struct session *s, struct arguments *a) {
    (void)a;
    reply_simple(&s->reply, "OK");
    s->closing = true;
}

void run_select(struct session *s, struct arguments *a) {
    if (word_is(a->words[a->at], "0"))
        reply_simple(&s->reply, "OK");
    else
        session_usage(s, "there is only database 0: use stages to separate jobs");
}

// ---- COMMAND, CLIENT --------------------------------------------------------------------------

static uint64_t command_count(void) {
    uint64_t count = 0;
    for (const struct command *c = command_table; c->name; c++)
        count += c->doc != NULL;
    return count;
}

static void lower(const char *name, char *out, size_t room) {
    size_t i = 0;
    for (; name[i] && i + 1 < room; i++)
        out[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
    out[i] = 0;
}

// Clients of a cluster send a command to the node that has the slot of its key.
static bool command_has_key(const struct command *c) {
    switch (c->scope) {
    case SCOPE_STAGE:
    case SCOPE_JOB:
    case SCOPE_STAGES:
    case SCOPE_LEASES:
    case SCOPE_JOBS:
    case SCOPE_EITHER:
        return true;
    case SCOPE_NONE:
    case SCOPE_LIST:
    case SCOPE_SERVER:
    case SCOPE_CLIENT:
    case SCOPE_SHARD:
        break;
    }
    return false;
}

static void write_command(struct session *s, const struct command *c) {
    struct reply *r = &s->reply;
    char name[40];
    lower(c->name, name, sizeof name);
    bool exact = c->most && c->most == c->least;
    reply_array(r, 6);
    reply_bulk(r, mr_str(name));
    reply_integer(r, exact ? (int64_t)c->least + 1 : -(int64_t)c->least - 1);
    reply_array(r, 1);
    reply_simple(r, c->changes ? "write" : "readonly");
    for (int i = 0; i < 3; i++) // first, last and step: the first argument is the only key, or none
        reply_integer(r, command_has_key(c));
}

// The command whose documentation is being written.
struct shown_command {
    struct reply *reply;
    const struct command *row;
};

// redis-cli makes its hints from the arguments: the whole syntax is given as one argument.
static void write_arguments(void *arg) {
    const struct shown_command *c = arg;
    struct argument_reply r = { .name = mr_str(c->row->syntax), .type = mr_str("string") };
    reply_array(c->reply, c->row->syntax[0] != 0);
    if (c->row->syntax[0])
        reply_write(c->reply, &argument_replies, &r);
}

static void write_docs(struct session *s, const struct command *c) {
    struct shown_command shown = { &s->reply, c };
    char name[40];
    lower(c->name, name, sizeof name);
    struct docs_reply r = { .summary = mr_str(c->doc),
                            .group = mr_str("millrace"),
                            .syntax = mr_str(c->syntax),
                            .reply = mr_str(c->reply),
                            .role = mr_str(role_name(c->role)),
                            .arguments = { write_arguments, &shown, NULL } };
    reply_bulk(&s->reply, mr_str(name));
    reply_write(&s->reply, &docs_replies, &r);
}

// NULL for commands that only name an alternative.
static const struct command *documented(mr_bytes name) {
    const struct command *c = command_row(name);
    return c && c->doc ? c : NULL;
}

static void write_each(struct session *s, struct arguments *a, bool docs) {
    uint32_t first = a->at, asked = a->count - a->at;
    uint64_t known = 0;
    for (uint32_t i = first; i < a->count; i++)
        known += documented(a->words[i]) != NULL;
    uint64_t count = asked ? docs ? known : asked : command_count();
    if (docs)
        reply_map(&s->reply, count);
    else
        reply_array(&s->reply, count);
    for (uint32_t i = first; i < a->count; i++) {
        const struct command *c = documented(a->words[i]);
        if (c && docs)
            write_docs(s, c);
        else if (c)
            write_command(s, c);
        else if (!docs)
            reply_null(&s->reply);
    }
    for (const struct command *c = command_table; !asked && c->name; c++) {
        if (c->doc && docs)
            write_docs(s, c);
        else if (c->doc)
            write_command(s, c);
    }
}

void run_command(struct session *s, struct arguments *a) {
    if (a->at == a->count) {
        write_each(s, a, false);
        return;
    }
    mr_bytes word = a->words[a->at++];
    if (word_is(word, "COUNT"))
        reply_integer(&s->reply, (int64_t)command_count());
    else if (word_is(word, "DOCS"))
        write_each(s, a, true);
    else if (word_is(word, "INFO"))
        write_each(s, a, false);
    else
        session_usage(s, "COMMAND has COUNT, DOCS and INFO");
}

static void set_cancels(struct session *s, mr_bytes word) {
    bool on = word_is(word, "ON");
    if (!on && !word_is(word, "OFF"))
        session_usage(s, "CLIENT CANCELS takes ON or OFF");
    else if (on && !s->reply.resp3)
        session_usage(s, "cancellations are pushed in RESP3 only: send HELLO 3 first, or use BEAT, "
                         "which reports them");
    else {
        s->cancels = on;
        reply_simple(&s->reply, "OK");
    }
}

// A session may unblock those with the same token; one that may do everything, any.
static bool may_unblock(const struct session *s, const struct session *other) {
    return s->who == other->who || (s->who->roles & ROLE_ADMIN && s->who->all);
}

// Only a waiting TAKE is ended: a command that waits for a result or for room would lose it.
static void unblock(struct session *s, mr_bytes word) {
    uint64_t id;
    if (!read_id(s, word, &id))
        return;
    struct list *l = s->host->sessions.next;
    uint64_t looked = 0;
    for (; l != &s->host->sessions && list_entry(l, struct session, of_host)->id != id; looked++)
        l = l->next;
    budget_spend(s, looked / STEP_SESSIONS);
    struct session *other = l == &s->host->sessions ? NULL : list_entry(l, struct session, of_host);
    bool may = other && may_unblock(s, other), waits = may && take_waits(other);
    if (waits)
        wait_time_out(other);
    else if (may)
        waits = router_unblock(other);
    reply_integer(&s->reply, waits);
}

void run_client(struct session *s, struct arguments *a) {
    mr_bytes word = a->words[a->at++];
    uint32_t left = a->count - a->at;
    if (word_is(word, "ID") && !left)
        reply_integer(&s->reply, (int64_t)s->id);
    else if (word_is(word, "GETNAME") && !left)
        reply_bulk(&s->reply, mr_str(s->name));
    else if (word_is(word, "SETNAME") && left == 1) {
        if (!check_name(s, a->words[a->at]))
            return;
        set_name(s, a->words[a->at]);
        reply_simple(&s->reply, "OK");
    } else if (word_is(word, "SETINFO") && left == 2)
        reply_simple(&s->reply, "OK");
    else if (word_is(word, "CANCELS") && left == 1)
        set_cancels(s, a->words[a->at]);
    else if (word_is(word, "UNBLOCK") && left == 1)
        unblock(s, a->words[a->at]);
    else
        session_usage(s,
                      "CLIENT has ID, GETNAME, SETNAME name, SETINFO name value, CANCELS ON|OFF, "
                      "UNBLOCK id");
}

// ---- Commands that do not exist ---------------------------------------------------------------

void run_elsewhere(struct session *s, struct arguments *a) {
    session_usage(
        s,
        "%.*s is a command of Redis, which Millrace does not have: PUSH pushes a job, TAKE and "
        "DONE run it, CALL waits for its result",
        (int)a->words[0].size, (const char *)a->words[0].data);
}

// A request of HTTP, perhaps of a browser that a web page has directed here: the connection is
// closed.
void run_browser(struct session *s, struct arguments *a) {
    (void)a;
    session_usage(s, "this is not an HTTP server");
    s->closing = true;
}
