// What clients say at connect and to look around: AUTH, HELLO, PING, INFO, COMMAND, CLIENT …
#include "server/access.h"
#include "server/router.h"
#include "server/shards.h"

#include "millrace.h"
#include "wire/code.h"
#include "wire/replies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REDIS_VERSION "7.0.0" // what clients may rely on

// ---- Who is it? -------------------------------------------------------------------------------

// Whether it may go on as that one. False: refused, and told now or later.
static bool admit(struct session *s, mr_bytes user, mr_bytes secret) {
    if (s->host->auth)
        return session_admit(s, user, secret);
    session_usage(s, "this server asks for no secret: connect without AUTH");
    return false;
}

void run_auth(struct session *s, struct arguments *a) {
    mr_bytes user = a->count > 2 ? a->words[1] : (mr_bytes){ 0 };
    if (admit(s, user, a->words[a->count - 1]))
        reply_simple(&s->reply, "OK");
}

static bool check_name(struct session *s, mr_bytes name) {
    const char *p = name.data;
    bool bad = name.size > LIMIT_NAME;
    for (size_t i = 0; !bad && i < name.size; i++)
        bad = p[i] < '!' || p[i] > '~';
    if (bad) {
        session_usage(s, "a client's name is up to %d printable letters without blanks",
                      LIMIT_NAME);
        return false;
    }
    return true;
}

static void set_name(struct session *s, mr_bytes name) {
    memcpy(s->name, name.data, name.size);
    s->name[name.size] = 0;
}

static void say_hello(struct session *s) {
    struct hello_reply r = { .server = mr_str("millrace"),
                             .version = mr_str(REDIS_VERSION),
                             .proto = s->reply.resp3 ? 3 : 2,
                             .id = s->id,
                             .mode = mr_str("standalone"),
                             .role = mr_str("master") };
    reply_write(&s->reply, &hello_replies, &r);
}

struct hello {
    bool resp3, names, knows;
    mr_bytes name, user, secret;
};

// Reads it all before anything is done. False: refused, and told.
static bool hello_read(struct session *s, struct arguments *a, struct hello *out) {
    if (a->at < a->count) {
        mr_bytes version = a->words[a->at++];
        if (!word_is(version, "2") && !word_is(version, "3")) {
            reply_error(&s->reply, code_name(CODE_NOPROTO),
                        mr_str("this server speaks RESP 2 and 3"));
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
    if (!h.resp3 && (!list_empty(&s->lates) || router_work(s).lates)) {
        session_usage(s, "calls that end LATER are told over RESP3: HELLO 2 has to wait for them");
        return;
    }
    if (h.knows ? !admit(s, h.user, h.secret) : !access_role(s, ROLE_ANYBODY))
        return;
    if (h.names)
        set_name(s, h.name);
    s->reply.resp3 = h.resp3;
    s->cancels = s->cancels && h.resp3;
    say_hello(s);
}

// ---- Is anybody there? ------------------------------------------------------------------------

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
        session_usage(s, "there is one database, 0: use stages to keep work apart");
}

// ---- INFO -------------------------------------------------------------------------------------

struct sums {
    uint64_t waiting, running, delayed, dead, pushed, done, failed;
};

static void add_counts(struct sums *sum, const struct stage_counts *n) {
    sum->waiting += n->waiting;
    sum->running += n->running;
    sum->delayed += n->delayed;
    sum->dead += n->dead;
    sum->pushed += n->pushed;
    sum->done += n->done;
    sum->failed += n->failed;
}

// Of those it may see.
static struct sums sum_stages(const struct session *s) {
    struct host *h = s->host;
    struct sums sum = { 0 };
    struct stage_counts n;
    for (uint32_t i = h->first; i < h->end; i++)
        for (uint32_t k = 1; core_stage_counts(h->parts[i].core, k, &n); k++)
            if (n.name.size && access_sees(s, n.name))
                add_counts(&sum, &n);
    return sum;
}

static bool wants(const struct arguments *a, const char *section) {
    bool wanted = a->at == a->count;
    for (uint32_t i = a->at; i < a->count; i++)
        wanted = wanted || word_is(a->words[i], section) || word_is(a->words[i], "ALL") ||
                 word_is(a->words[i], "DEFAULT") || word_is(a->words[i], "EVERYTHING");
    return wanted;
}

// What tells of everybody's work is for those who may see all of it: how much there is, who comes,
// and where it lies. Whether pushes are accepted concerns all.
static bool sees_server(const struct session *s) {
    return !s->who || s->who->all;
}

static size_t info_server(const struct session *s, char *to, size_t room) {
    const struct host *h = s->host;
    uint64_t up_ms = host_now_ms(h) - h->started_ms;
    bool all = sees_server(s);
    return (size_t)snprintf(to, room,
                            "# Server\r\nredis_version:" REDIS_VERSION
                            "\r\nredis_mode:standalone\r\nmillrace_version:%s\r\n"
                            "uptime_in_seconds:%" PRIu64 "\r\n%s%s%sshards:%u\r\n",
                            mr_version(), up_ms / 1000, all ? "store:" : "", all ? h->store : "",
                            all ? "\r\n" : "", h->shards);
}

static size_t info_persistence(const struct session *s, char *to, size_t room) {
    const struct host *h = s->host;
    struct log_state log;
    char sizes[80] = "";
    host_look(h, &log);
    if (sees_server(s))
        snprintf(sizes, sizeof sizes, "log_bytes:%" PRIu64 "\r\nlive_bytes:%" PRIu64 "\r\n",
                 log.bytes, shards_live_bytes(h));
    return (size_t)snprintf(to, room,
                            "# Persistence\r\nloading:%d\r\n%slog_full:%d\r\nlog_stopped:%s\r\n",
                            !h->shards, sizes, log.full, log.stopped);
}

static size_t info_memory(const struct session *s, char *to, size_t room) {
    const struct host *h = s->host;
    if (!sees_server(s))
        return 0;
    return (size_t)snprintf(to, room,
                            "# Memory\r\nused_memory:%" PRIu64 "\r\nmaxmemory:%" PRIu64
                            "\r\nindex_bytes:%" PRIu64 "\r\nbuffer_bytes:%" PRIu64
                            "\r\nmaxbuffers:%" PRIu64 "\r\nrefused_full:%" PRIu64 "\r\n",
                            host_memory(h), h->max_bytes, shards_memory(h), h->buffered,
                            host_client_limit(h), h->refused);
}

static size_t info_stats(const struct session *s, char *to, size_t room) {
    const struct host *h = s->host;
    struct sums sum = sum_stages(s);
    char comers[200] = "";
    if (sees_server(s))
        snprintf(comers, sizeof comers,
                 "total_connections_received:%" PRIu64 "\r\ntotal_commands_processed:%" PRIu64
                 "\r\nrejected_connections:%" PRIu64 "\r\nrefused_secrets:%" PRIu64 "\r\n",
                 h->connections, h->commands, h->rejections, h->refusals);
    return (size_t)snprintf(
        to, room,
        "# Stats\r\n%swaiting:%" PRIu64 "\r\nrunning:%" PRIu64 "\r\ndelayed:%" PRIu64
        "\r\ndead:%" PRIu64 "\r\npushed:%" PRIu64 "\r\ndone:%" PRIu64 "\r\nfailed:%" PRIu64 "\r\n",
        comers, sum.waiting, sum.running, sum.delayed, sum.dead, sum.pushed, sum.done, sum.failed);
}

static size_t info_clients(const struct session *s, char *to, size_t room) {
    const struct host *h = s->host;
    size_t connected = 0, blocked = 0, workers = 0;
    if (!sees_server(s))
        return 0;
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next, s->host->steps++) {
        const struct session *one = list_entry(l, struct session, of_host);
        blocked += wait_is_open(one);
        connected += !one->remote; // its connection is counted where it is
        workers += !one->remote && one->stages[0] != 0;
    }
    return (size_t)snprintf(to, room,
                            "# Clients\r\nconnected_clients:%zu\r\nblocked_clients:%zu\r\n"
                            "workers:%zu\r\n",
                            connected, blocked, workers);
}

static size_t info_replication(const struct session *s, char *to, size_t room) {
    (void)s;
    return (size_t)snprintf(to, room, "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n");
}

void run_info(struct session *s, struct arguments *a) {
    static const struct {
        const char *name;
        size_t (*write)(const struct session *, char *to, size_t room);
    } sections[] = { { "SERVER", info_server }, { "CLIENTS", info_clients },
                     { "MEMORY", info_memory }, { "PERSISTENCE", info_persistence },
                     { "STATS", info_stats },   { "REPLICATION", info_replication } };
    char text[4096];
    size_t size = 0;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        size_t more = 0;
        if (wants(a, sections[i].name))
            more = sections[i].write(s, text + size, sizeof text - size);
        if (!more)
            continue;
        size += more;
        if (size > sizeof text - 2) // a store's name may be long
            size = sizeof text - 2;
        text[size++] = '\r', text[size++] = '\n';
    }
    reply_bulk(&s->reply, (mr_bytes){ text, size });
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

static void say_command(struct session *s, const struct command *c) {
    struct reply *r = &s->reply;
    char name[40];
    lower(c->name, name, sizeof name);
    bool exact = c->most && c->most == c->least;
    reply_array(r, 6);
    reply_bulk(r, mr_str(name));
    reply_integer(r, exact ? (int64_t)c->least + 1 : -(int64_t)c->least - 1);
    reply_array(r, 1);
    reply_simple(r, c->changes ? "write" : "readonly");
    reply_integer(r, 0); // no argument is a key in the sense of Redis
    reply_integer(r, 0);
    reply_integer(r, 0);
}

// A command that is being documented.
struct shown_command {
    struct reply *reply;
    const struct command *row;
};

// redis-cli makes its hints of the arguments: here they are one, which is all of the syntax.
static void say_arguments(void *arg) {
    const struct shown_command *c = arg;
    struct argument_reply r = { .name = mr_str(c->row->syntax), .type = mr_str("string") };
    reply_array(c->reply, c->row->syntax[0] != 0);
    if (c->row->syntax[0])
        reply_write(c->reply, &argument_replies, &r);
}

static void say_docs(struct session *s, const struct command *c) {
    struct shown_command shown = { &s->reply, c };
    char name[40];
    lower(c->name, name, sizeof name);
    struct docs_reply r = { .summary = mr_str(c->doc),
                            .group = mr_str("millrace"),
                            .syntax = mr_str(c->syntax),
                            .reply = mr_str(c->reply),
                            .role = mr_str(role_name(c->role)),
                            .arguments = { say_arguments, &shown, NULL } };
    reply_bulk(&s->reply, mr_str(name));
    reply_write(&s->reply, &docs_replies, &r);
}

// Those that only say what to use instead do not count.
static const struct command *documented(mr_bytes name) {
    const struct command *c = command_row(name);
    return c && c->doc ? c : NULL;
}

static void say_each(struct session *s, struct arguments *a, bool docs) {
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
            say_docs(s, c);
        else if (c)
            say_command(s, c);
        else if (!docs)
            reply_null(&s->reply);
    }
    for (const struct command *c = command_table; !asked && c->name; c++) {
        if (c->doc && docs)
            say_docs(s, c);
        else if (c->doc)
            say_command(s, c);
    }
}

void run_command(struct session *s, struct arguments *a) {
    if (a->at == a->count) {
        say_each(s, a, false);
        return;
    }
    mr_bytes word = a->words[a->at++];
    if (word_is(word, "COUNT"))
        reply_integer(&s->reply, (int64_t)command_count());
    else if (word_is(word, "DOCS"))
        say_each(s, a, true);
    else if (word_is(word, "INFO"))
        say_each(s, a, false);
    else
        session_usage(s, "COMMAND has COUNT, DOCS and INFO");
}

static void set_cancels(struct session *s, mr_bytes word) {
    bool on = word_is(word, "ON");
    if (!on && !word_is(word, "OFF"))
        session_usage(s, "CLIENT CANCELS takes ON or OFF");
    else if (on && !s->reply.resp3)
        session_usage(s, "cancellations are pushed over RESP3 only: say HELLO 3 first, or hear of "
                         "them with BEAT");
    else {
        s->cancels = on;
        reply_simple(&s->reply, "OK");
    }
}

// Its own ones: those with the same token, or any for who may do everything.
static bool may_unblock(const struct session *s, const struct session *other) {
    return s->who == other->who || (s->who->roles & ROLE_ADMIN && s->who->all);
}

// Only takes: whoever waits for an end or for room has something to lose.
static void unblock(struct session *s, mr_bytes word) {
    uint64_t id;
    if (!read_id(s, word, &id))
        return;
    struct list *l = s->host->sessions.next;
    while (l != &s->host->sessions && list_entry(l, struct session, of_host)->id != id)
        l = l->next;
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

// ---- What this is not -------------------------------------------------------------------------

void run_elsewhere(struct session *s, struct arguments *a) {
    session_usage(
        s,
        "%.*s is a command of Redis; this is a work engine: PUSH hands a job in, TAKE and "
        "DONE work it off, CALL waits for its result",
        (int)a->words[0].size, (const char *)a->words[0].data);
}

// A browser that was made to speak to this port: nothing it says is a command.
void run_browser(struct session *s, struct arguments *a) {
    (void)a;
    session_usage(s, "this is not an HTTP server");
    s->closing = true;
}
