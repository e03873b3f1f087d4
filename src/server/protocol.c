// See protocol.h.
#include "server/protocol.h"

#include "base/job_spec.h"
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
    "Millrace speaks the protocol of Redis, RESP2, and RESP3 after `HELLO 3`, on port " WIRE_PORT
    ".\nCommands may be sent without waiting for replies; replies come in order. A command that "
    "waits\n(TAKE, CALL, AWAIT, EPIC, a push with ROOM) blocks only its own connection. Names of\n"
    "commands and options are case-insensitive. Options follow the fixed arguments, in any order;\n"
    "an unknown option is refused by name. Durations are milliseconds, or have a unit (`250ms`\n"
    "`30s` `5m` `2h` `7d`), in options and in policies; in replies they are always milliseconds.\n"
    "`WAIT` and `ROOM` of 0, or none, do not wait; -1 waits for ever. Ids are strings of digits,\n"
    "since some languages round large numbers; tokens are opaque strings. Maps are flat arrays in\n"
    "RESP2. Fields may be added to arrays and maps: ignore those that you do not know. Lists have "
    "a\n"
    "limited number of rows; `FROM`, with the last row of the previous list, continues.\n"
    "\n"
    "A server that requires tokens (docs/security.md) answers NOAUTH until the client has\n"
    "authenticated with AUTH or HELLO. Each command states the role that the token needs; *any*\n"
    "means any token, *none* that no token is needed; admin includes the others. A token may be\n"
    "limited to some stages: for other stages and epics the error is NOPERM; jobs of other stages\n"
    "are GONE and not listed.\n";

// Output of redis-cli for the commands that every worker needs.
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
    { "EPIC", &epic_replies },        { "JOB", &job_replies },
    { "STAGES", &stage_replies },     { "SCHEDULE", &schedule_replies },
    { "CHANNELS", &channel_replies }, { "CHANNELS", &group_replies },
    { "WORKERS", &worker_replies },   { "TAKE", &grant_replies },
    { "CLUSTER", &node_replies },     { "CLUSTER", &shard_replies },
};

static void page_add(struct reply *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void page_add(struct reply *r, const char *format, ...) {
    char text[4096];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    assert(size >= 0 && (size_t)size < sizeof text); // the texts are constants of this program
    if (r->err == 0)
        r->err = buffer_append(r->out, text, (size_t)size);
}

static const char *heading(enum role role) {
    switch (role) {
    case ROLE_ANY:
    case ROLE_UNAUTHENTICATED:
        return "Connecting";
    case ROLE_PUSH:
        return "Pushing";
    case ROLE_WORK:
        return "Working";
    case ROLE_READ:
        return "Reading";
    case ROLE_ADMIN:
        return "Administration";
    }
    return "";
}

static void add_fields(struct reply *r, const struct reply_table *t) {
    page_add(r, "\n| field | |\n|---|---|\n");
    for (size_t i = 0; i < t->count; i++)
        page_add(r, "| `%s` | %s |\n", t->fields[i].name, t->fields[i].about);
}

#define OPTION_ROW(member, kind, word, value, name, argument, most, about)                         \
    page_add(r, "| `%s` | %s |\n", OPTION_WORDS_##kind(word, value), about);

static void add_options(struct reply *r) {
    page_add(r, "\n| option | |\n|---|---|\n");
    PUSH_OPTIONS(OPTION_ROW)
}

static void add_info(struct reply *r) {
    const struct info_field *f;
    page_add(r, "\n| line | |\n|---|---|\n");
    for (size_t i = 0; (f = info_field(i)) != NULL; i++)
        page_add(r, "| `%s` | %s%s |\n", f->field.name, f->field.about,
                 f->is_whole ? " (if the token may see all stages)" : "");
}

static void page_add_command(struct reply *r, const struct command *c) {
    page_add(r, "\n### %s\n\n```\n%s%s%s\n```\n", c->name, c->name, *c->syntax ? " " : "",
             c->syntax);
    page_add(r, "%c%s.\n\nReply: %s.\n\nRole: %s.\n", toupper((unsigned char)c->doc[0]), c->doc + 1,
             c->reply, role_name(c->role));
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        if (strcmp(examples[i].name, c->name) == 0)
            page_add(r, "\n```\n%s```\n", examples[i].dialogue);
    for (size_t i = 0; i < sizeof described / sizeof *described; i++)
        if (strcmp(described[i].name, c->name) == 0)
            add_fields(r, described[i].fields);
    if (strcmp(c->name, "PUSH") == 0)
        add_options(r);
    if (strcmp(c->name, "INFO") == 0)
        add_info(r);
}

static void add_policies(struct reply *r) {
    const struct policy_row *row;
    struct policy usual = policy_default();
    char value[POLICY_TEXT];
    page_add(r, "\n## Policies\n\n`STAGE` sets and shows these.\n\n"
                "| policy | default | takes | |\n|---|---|---|---|\n");
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++) {
        policy_text(&usual, row, value, sizeof value);
        page_add(r, "| `%s` | %s | %s | %s |\n", row->name, value, row->takes, row->about);
    }
}

int protocol_write(struct buffer *out) {
    struct reply r = { .out = out };
    page_add(&r, "%s", opening);
    const struct command *before = NULL;
    for (const struct command *c = command_table; c->name; c++) {
        if (!c->doc)
            continue;
        if (!before || strcmp(heading(before->role), heading(c->role)) != 0)
            page_add(&r, "\n## %s\n", heading(c->role));
        page_add_command(&r, c);
        before = c;
    }
    add_policies(&r);
    page_add(
        &r,
        "\n## Errors\n\nAn error begins with a code. A command that failed has changed nothing; "
        "after STOPPED the outcome is unknown.\n\n"
        "| code | means |\n|---|---|\n");
    for (int i = 0; i < CODES; i++)
        page_add(&r, "| %s | %s |\n", code_name((enum code)i), code_meaning((enum code)i));
    return r.err;
}
