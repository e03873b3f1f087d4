// See protocol.h.
#include "server/protocol.h"

#include "core/policy.h"
#include "server/command.h"
#include "server/info.h"
#include "wire/code.h"
#include "wire/port.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char opening[] =
    "# The protocol\n"
    "\n"
    "Written by `make protocol` from the table of commands: change that instead.\n"
    "\n"
    "Clients of Redis can speak to Millrace: it uses RESP2, and RESP3 after `HELLO 3`, on "
    "port\n" WIRE_PORT
    ". Commands may be sent without waiting for replies, which come in order; a command that\n"
    "waits (TAKE, CALL, AWAIT, EPIC, a push with ROOM) holds up its own connection only. Names of\n"
    "commands and options may be written in any case; options stand in any order behind the fixed\n"
    "arguments, and one that is not known is refused by name. Durations are milliseconds, or\n"
    "have a unit (`250ms` `30s` `5m` `2h` `7d`), in options as in policies; in replies they are\n"
    "always milliseconds. `WAIT` and `ROOM` of 0, or none, do not wait, and of -1 wait for ever.\n"
    "Ids are strings of digits, since some languages round large numbers; tokens are strings\n"
    "without meaning. Maps are flat arrays in RESP2. Fields may be added to arrays and maps: "
    "ignore\n"
    "what you do not know. Listings are bounded and go on with `FROM`, the last row of the one\n"
    "before.\n"
    "\n"
    "A server with tokens (docs/security.md) answers NOAUTH until AUTH, or HELLO with AUTH, has\n"
    "named one. Each command says which role the token needs; *any* means any token, *none* none\n"
    "at all; admin includes the others. A token may be limited to some stages: another stage or\n"
    "epic is NOPERM, and jobs of other stages are GONE and not listed.\n";

// What redis-cli shows, for those commands that a worker cannot do without.
static const struct {
    const char *name, *dialogue;
} examples[] = {
    { "TAKE", "> PUSH mail hello KEY ann\n"
              "\"1\"\n"
              "> TAKE mail WAIT 1000\n"
              "1) 1) \"1\"                            its id\n"
              "   2) \"AQAAAAABAABjMrx3QNO9vgEAAAA\"  the token that ends it\n"
              "   3) \"mail\"                         its stage\n"
              "   4) \"ann\"                          its key\n"
              "   5) \"hello\"                        its body\n"
              "   6) (integer) 1                    the first attempt\n"
              "   7) (integer) -1                   no deadline\n"
              "   8) (nil)                          no state\n"
              "   9) (integer) 30000                how long it is leased, in ms\n" },
    { "DONE", "> DONE 1 AQAAAAABAABjMrx3QNO9vgEAAAA RESULT sent\n"
              "OK\n"
              "> AWAIT 1\n"
              "\"sent\"\n" },
};

// The fields of replies that are maps.
static const struct {
    const char *name;
    const struct reply_table *fields;
} described[] = {
    { "EPIC", &epic_replies },        { "JOB", &job_replies },        { "STAGES", &stage_replies },
    { "CHANNELS", &channel_replies }, { "WORKERS", &worker_replies },
};

static void add(struct reply *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct reply *r, const char *format, ...) {
    char text[4096];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    assert(size >= 0 && (size_t)size < sizeof text); // what is told here is ours
    if (r->err == 0)
        r->err = buffer_append(r->out, text, (size_t)size);
}

static const char *heading(enum role role) {
    switch (role) {
    case ROLE_ANYBODY:
    case ROLE_UNAUTHENTICATED:
        return "Connecting";
    case ROLE_PUSH:
        return "Handing in";
    case ROLE_WORK:
        return "Working";
    case ROLE_READ:
        return "Looking";
    case ROLE_ADMIN:
        return "Acting";
    }
    return "";
}

static void add_fields(struct reply *r, const struct reply_table *t) {
    add(r, "\n| field | |\n|---|---|\n");
    for (size_t i = 0; i < t->count; i++)
        add(r, "| `%s` | %s |\n", t->fields[i].name, t->fields[i].about);
}

static void add_info(struct reply *r) {
    const struct info_field *f;
    add(r, "\n| line | |\n|---|---|\n");
    for (size_t i = 0; (f = info_field(i)) != NULL; i++)
        add(r, "| `%s` | %s%s |\n", f->field.name, f->field.about,
            f->is_whole ? " (if the token may see all stages)" : "");
}

static void add_command(struct reply *r, const struct command *c) {
    add(r, "\n### %s\n\n```\n%s%s%s\n```\n", c->name, c->name, *c->syntax ? " " : "", c->syntax);
    add(r, "%c%s.\n\nReply: %s.\n\nRole: %s.\n", toupper((unsigned char)c->doc[0]), c->doc + 1,
        c->reply, role_name(c->role));
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        if (strcmp(examples[i].name, c->name) == 0)
            add(r, "\n```\n%s```\n", examples[i].dialogue);
    for (size_t i = 0; i < sizeof described / sizeof *described; i++)
        if (strcmp(described[i].name, c->name) == 0)
            add_fields(r, described[i].fields);
    if (strcmp(c->name, "INFO") == 0)
        add_info(r);
}

static void add_policies(struct reply *r) {
    const struct policy_row *row;
    struct policy usual = policy_default();
    char value[POLICY_TEXT];
    add(r, "\n## Policies\n\nWhat `STAGE` sets and shows.\n\n"
           "| policy | default | takes | |\n|---|---|---|---|\n");
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++) {
        policy_text(&usual, row, value, sizeof value);
        add(r, "| `%s` | %s | %s | %s |\n", row->name, value, row->takes, row->about);
    }
}

int protocol_write(struct buffer *out) {
    struct reply r = { .out = out };
    add(&r, "%s", opening);
    const struct command *before = NULL;
    for (const struct command *c = command_table; c->name; c++) {
        if (!c->doc)
            continue;
        if (!before || strcmp(heading(before->role), heading(c->role)) != 0)
            add(&r, "\n## %s\n", heading(c->role));
        add_command(&r, c);
        before = c;
    }
    add_policies(&r);
    add(&r, "\n## Errors\n\nAn error begins with a code. All but STOPPED have changed nothing.\n\n"
            "| code | means |\n|---|---|\n");
    for (int i = 0; i < CODES; i++)
        add(&r, "| %s | %s |\n", code_name((enum code)i), code_meaning((enum code)i));
    return r.err;
}
