// See command.h. A row is found by a hash of its name; options are parsed by their kinds.
#include "server/command.h"

#include "base/hints.h"
#include "server/access.h"
#include "server/answer.h"
#include "server/holds.h"
#include "server/router.h"
#include "wire/code.h"
#include "wire/number.h"

#include <stdio.h>
#include <string.h>

// ---- Lookup -----------------------------------------------------------------------------------

// Names consist of capitals, digits and punctuation; only letters have two cases.
bool word_is(mr_bytes word, const char *name) {
    const char *p = word.data;
    for (size_t i = 0; i < word.size; i++) {
        bool same = p[i] == name[i] || (p[i] >= 'a' && p[i] <= 'z' && p[i] - 32 == name[i]);
        if (!same || !name[i])
            return false;
    }
    return !name[word.size];
}

enum { INDEX_SIZE = 256 }; // a power of two, well above the number of commands

// The hash of a name that is not empty. Upper and lower case have the same last five bits.
static uint32_t command_hash(const char *name, size_t size) {
    uint32_t first = name[0] & 31, middle = name[size / 2] & 31, last = name[size - 1] & 31;
    return (first * 37 + middle * 11 + last * 5 + (uint32_t)size) & (INDEX_SIZE - 1);
}

// Hash table of rows, numbered from 1; 0: empty.
static struct { uint8_t row, name_size; } command_index[INDEX_SIZE];

void commands_prepare(void) {
    memset(command_index, 0, sizeof command_index);
    for (uint8_t i = 0; command_table[i].name; i++) {
        size_t size = strlen(command_table[i].name);
        uint32_t at = command_hash(command_table[i].name, size);
        while (command_index[at].row)
            at = (at + 1) & (INDEX_SIZE - 1);
        command_index[at].row = i + 1;
        command_index[at].name_size = (uint8_t)size;
    }
}

const struct command *command_row(mr_bytes name) {
    if (!name.size || name.size > 32)
        return NULL;
    for (uint32_t at = command_hash(name.data, name.size); command_index[at].row;
         at = (at + 1) & (INDEX_SIZE - 1)) {
        const struct command *c = &command_table[command_index[at].row - 1];
        if (name.size != command_index[at].name_size)
            continue;
        if (memcmp(name.data, c->name, name.size) == 0 || word_is(name, c->name))
            return c;
    }
    return NULL;
}

// ---- Running ----------------------------------------------------------------------------------

APART static void write_unknown(struct session *s, mr_bytes name) {
    int shown = name.size < 64 ? (int)name.size : 64;
    session_usage(s, "unknown command '%.*s'; COMMAND lists all commands", shown,
                  (const char *)name.data);
}

APART static void write_arity(struct session *s, const struct command *c) {
    session_usage(s, "wrong number of arguments for %s; syntax: %s %s", c->name, c->name,
                  c->syntax);
}

// Checked first: an unauthenticated client does not learn what is wrong with a command.
static bool is_permitted(struct session *s, const struct command *c) {
    return access_role(s, c ? c->role : ROLE_ANY);
}

// Whether the command is about the server or the connection, not about jobs.
static bool is_about_server(const struct command *c) {
    return c->role == ROLE_ANY || c->role == ROLE_UNAUTHENTICATED;
}

static bool may_run(struct session *s, const struct command *c, const struct arguments *a) {
    const struct host *h = s->host;
    if (!h->shards && !is_about_server(c)) {
        reply_error(&s->reply, code_name(CODE_LOADING),
                    mr_str("the store is being read; try again later"));
        return false;
    }
    if (h->stopped && c->changes) {
        session_answer_stopped(s);
        return false;
    }
    return !s->who || a->count < 2 || access_scope(s, c, a);
}

bool command_admit(struct session *s, const mr_bytes *words, uint32_t count) {
    const struct command *c = command_row(words[0]);
    struct arguments a = { words, count, 1 };
    session_reply(s);
    if (c && is_permitted(s, c) && may_run(s, c, &a))
        return true;
    s->replies++;
    session_touch(s);
    return false;
}

static void set_maker(struct host *h, const struct auth_entry *who) {
    const struct maker_quota *quota = who && who->has_quota ? &who->quota : NULL;
    for (uint32_t i = h->first; i < h->end; i++)
        core_act_for(h->parts[i].core, who ? who->maker : 0, quota);
}

// What a command makes counts for its token, so that no token can use up a limit or exceed its
// quota.
static bool maker_begin(struct session *s) {
    if (!s->who)
        return false;
    set_maker(s->host, s->who);
    return true;
}

static void maker_end(struct session *s, bool has_maker) {
    if (has_maker)
        set_maker(s->host, NULL);
}

static void try_plain(struct session *s, const struct command *c, const mr_bytes *words,
                      uint32_t count) {
    struct arguments a = { words, count, 1 };
    if (!is_permitted(s, c))
        ; // an error was answered
    else if (!c)
        write_unknown(s, words[0]);
    else if (count - 1 < c->least || (c->most && count - 1 > c->most))
        write_arity(s, c);
    else if (s->host->loops && !s->checks && !router_is_here(s, c, words, count))
        ; // another loop answers it
    else if (!may_run(s, c, &a))
        ; // an error was answered
    else if (s->checks)
        multi_check(s, c, &a);
    else {
        bool has_maker = maker_begin(s);
        c->run(s, &a); // AUTH may change who it is
        maker_end(s, has_maker);
    }
}

// After a numbered push is refused, for any reason, pushes with higher numbers are refused, too.
APART static void try_numbered(struct session *s, const struct command *c, const mr_bytes *words,
                               uint32_t count) {
    struct push_numbers n;
    if (!holds_read(c, words, count, &n)) {
        try_plain(s, c, words, count);
        return;
    }
    size_t before = s->reply.out->size;
    bool gap = access_has_role(s, c->role) && holds_refuse(s, &n); // GAP reveals what was accepted
    if (!gap)
        try_plain(s, c, words, count);
    if (!gap && !s->wait.kind)
        holds_answered(s, &n, holds_is_refusal(s, before));
}

// The least words are PUSH stage body EPIC name n, and PUSHMANY stage EPIC name n.
static bool may_be_numbered(const struct command *c, uint32_t count) {
    return count >= 6 || (count == 5 && c && c->run == run_pushmany);
}

void command_try(struct session *s, const struct command *c, const mr_bytes *words,
                 uint32_t count) {
    if (!s->checks && may_be_numbered(c, count))
        try_numbered(s, c, words, count);
    else
        try_plain(s, c, words, count);
}

// Replies about the server are sent while the store does not answer, too: they say so. The replies
// of EXEC are those of any commands.
static bool is_prompt(const struct command *c) {
    return c && is_about_server(c) && c->in_multi != MULTI_RUN;
}

void command_begin(struct session *s, const mr_bytes *words, uint32_t count) {
    const struct command *c = command_row(words[0]);
    s->is_prompt = is_prompt(c);
    s->host->commands += !s->remote;
    if (multi_queues(s, c))
        multi_queue(s, c, words, count);
    else
        command_try(s, c, words, count);
    if (s->remotes && c && (c->scope == SCOPE_CLIENT || c->scope == SCOPE_NONE))
        router_identity_changed(s);
}

// Ends the command, unless it waits, was answered by what it began to wait for (a TAKE that found
// work in that very moment), or another loop will reply.
static void command_end(struct session *s, uint64_t replies_before) {
    if (s->wait.kind || s->forwarded || s->replies != replies_before) {
        s->forwarded = false;
        return;
    }
    session_count_reply(s);
}

void command_run(struct session *s, const mr_bytes *words, uint32_t count) {
    uint64_t before = s->replies;
    session_reply(s);
    command_begin(s, words, count);
    command_end(s, before);
}

void command_resume(struct session *s) {
    uint64_t before = s->replies;
    session_reply(s);
    bool has_maker = maker_begin(s);
    wait_resume(s);
    maker_end(s, has_maker);
    if (multi_is_running(s) && !s->wait.kind)
        multi_go_on(s);
    command_end(s, before);
}

// ---- Options ----------------------------------------------------------------------------------

static const char *kind_text(enum option_kind kind) {
    switch (kind) {
    case OPTION_COUNT:
        return "a count from 0 to 4294967295";
    case OPTION_NUMBER:
    case OPTION_NUMBERED:
        return "a number";
    case OPTION_MS:
        return "a duration: milliseconds, or with a unit: 250ms, 30s, 5m, 2h, 7d";
    case OPTION_WAIT:
        return "a duration: milliseconds, with a unit (250ms, 30s, 5m, 2h, 7d), or -1 for ever";
    case OPTION_FLAG:
    case OPTION_BYTES:
        break;
    }
    return "a value";
}

static bool value_read(const struct option *o, mr_bytes word, void *to) {
    uint64_t number;
    if (o->kind == OPTION_WAIT && word.size == 2 && memcmp(word.data, "-1", 2) == 0) {
        *(int64_t *)to = -1;
        return true;
    }
    if (o->kind == OPTION_BYTES) {
        *(mr_bytes *)to = word;
        return true;
    }
    bool time = o->kind == OPTION_MS || o->kind == OPTION_WAIT;
    if (number_parse(word, &number) < 0 && !(time && policy_duration(word, &number)))
        return false;
    if (o->kind == OPTION_NUMBER) {
        *(uint64_t *)to = number;
        return true;
    }
    if (o->kind == OPTION_COUNT) {
        *(uint32_t *)to = (uint32_t)number;
        return number <= UINT32_MAX;
    }
    *(int64_t *)to = (int64_t)number;
    return number <= INT64_MAX;
}

const struct option *option_find(const struct option *options, mr_bytes word) {
    for (const struct option *o = options; o->name; o++)
        if (word_is(word, o->name))
            return o;
    return NULL;
}

void option_refuse(struct session *s, const char *name, const char *needs, mr_bytes word) {
    int shown = word.size < 64 ? (int)word.size : 64;
    session_usage(s, "'%.*s' is not a value of %s, which needs %s", shown, (const char *)word.data,
                  name, needs);
}

static int write_bad_value(struct session *s, const struct option *o, mr_bytes word) {
    option_refuse(s, o->name, kind_text(o->kind), word);
    return -1;
}

static void write_unknown_option(struct session *s, const struct arguments *a) {
    mr_bytes word = a->words[a->at];
    int shown = word.size < 64 ? (int)word.size : 64;
    const struct command *c = command_row(a->words[0]);
    session_usage(s, "unknown option '%.*s' for %s; syntax: %s %s", shown, (const char *)word.data,
                  c->name, c->name, c->syntax);
}

int option_read(struct session *s, struct arguments *a, const struct option *options, void *into) {
    const struct option *o = option_find(options, a->words[a->at]);
    if (!o)
        return 0;
    char *to = (char *)into + o->offset;
    uint32_t values = o->kind == OPTION_FLAG ? 0 : o->kind == OPTION_NUMBERED ? 2 : 1;
    if (a->count - a->at - 1 < values) {
        session_usage(s, "%s needs %s", o->name, kind_text(o->kind));
        return -1;
    }
    mr_bytes value = a->words[a->at + values];
    if (s->checks && o->kind == OPTION_WAIT && !word_is(value, "0")) {
        session_usage(s, "%s waits, and commands after MULTI must not wait", o->name);
        return -1;
    }
    a->at += 1 + values;
    if (o->kind == OPTION_FLAG) {
        *(bool *)to = true;
        return 1;
    }
    if (o->kind == OPTION_NUMBERED) {
        struct numbered *n = (struct numbered *)(void *)to;
        n->name = a->words[a->at - 2];
        return number_parse(value, &n->number) < 0 ? write_bad_value(s, o, value) : 1;
    }
    return value_read(o, value, to) ? 1 : write_bad_value(s, o, value);
}

bool options_read(struct session *s, struct arguments *a, const struct option *options,
                  void *into) {
    while (a->at < a->count) {
        int read = option_read(s, a, options, into);
        if (!read)
            write_unknown_option(s, a);
        if (read <= 0)
            return false;
    }
    return !s->checks;
}

static void keep_bytes(mr_bytes *value, const mr_bytes *words, const struct kept_words *kept) {
    for (uint32_t i = 0; i < kept->count && value->data; i++)
        if (words[i].data == value->data && words[i].size == value->size) {
            *value = kept->words[i];
            return;
        }
}

void options_keep(const struct option *options, void *into, const mr_bytes *words,
                  const struct kept_words *kept) {
    for (const struct option *o = options; o->name; o++) {
        void *at = (char *)into + o->offset;
        if (o->kind == OPTION_BYTES)
            keep_bytes(at, words, kept);
        else if (o->kind == OPTION_NUMBERED)
            keep_bytes(&((struct numbered *)at)->name, words, kept);
    }
}

bool read_number(struct session *s, mr_bytes word, const char *what, uint64_t *out) {
    if (number_parse(word, out) == 0)
        return true;
    int shown = word.size < 64 ? (int)word.size : 64;
    session_usage(s, "'%.*s' is not %s, which has decimal digits only", shown,
                  (const char *)word.data, what);
    return false;
}

bool read_id(struct session *s, mr_bytes word, uint64_t *out) {
    return read_number(s, word, "an id", out);
}

uint32_t listed(uint32_t asked) {
    return asked < LIMIT_LISTED ? asked : LIMIT_LISTED;
}
