// The tables of the inbox: making them, and checking that they are there.
#include "cli/inbox/inbox.h"

#include "base/errors.h"
#include "cli/json.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// Also the name of the version in messages.
#define VERSION_TEXT "1"

// Names of stages are compared by their bytes: index scans find the next stage, whatever language
// the database has. What no push could have is refused when the row is inserted, where its program
// sees it; what depends on the server goes to inbox_dead. Rows come and go, so the table is
// vacuumed by their number, not by a share of the table.
static const char schema[] =
    "CREATE SCHEMA IF NOT EXISTS millrace;\n"
    "CREATE TABLE IF NOT EXISTS millrace.inbox (\n"
    "    id       bigint GENERATED ALWAYS AS IDENTITY,\n"
    "    stage    text COLLATE \"C\" NOT NULL,\n"
    "    key      text NOT NULL DEFAULT '',\n"
    "    body     bytea NOT NULL DEFAULT '',\n"
    "    once     text,\n"
    "    delay    interval CHECK (delay BETWEEN '0' AND '36500 days'),\n"
    "    deadline interval CHECK (deadline BETWEEN '1 millisecond' AND '36500 days'),\n"
    "    attempts integer CHECK (attempts BETWEEN 1 AND 65535),\n"
    "    created  timestamptz NOT NULL DEFAULT clock_timestamp()\n"
    "             CHECK (created BETWEEN '2000-01-01' AND '9000-01-01'),\n"
    "    PRIMARY KEY (stage, id)\n"
    ") WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);\n"
    "CREATE TABLE IF NOT EXISTS millrace.inbox_dead (\n"
    "    id       bigint NOT NULL,\n"
    "    stage    text COLLATE \"C\" NOT NULL,\n"
    "    key      text NOT NULL,\n"
    "    body     bytea NOT NULL,\n"
    "    once     text,\n"
    "    delay    interval,\n"
    "    deadline interval,\n"
    "    attempts integer,\n"
    "    created  timestamptz NOT NULL,\n"
    "    reason   text NOT NULL,\n"
    "    died     timestamptz NOT NULL DEFAULT clock_timestamp(),\n"
    "    PRIMARY KEY (id)\n"
    ");\n"
    "CREATE TABLE IF NOT EXISTS millrace.inbox_stage (\n"
    "    stage text COLLATE \"C\" PRIMARY KEY,\n"
    "    next  bigint NOT NULL DEFAULT 1,\n"
    "    batch bigint[] NOT NULL DEFAULT '{}'\n"
    ");\n"
    "CREATE TABLE IF NOT EXISTS millrace.inbox_about (\n"
    "    one     boolean PRIMARY KEY DEFAULT true CHECK (one),\n"
    "    version integer NOT NULL,\n"
    "    name    text NOT NULL\n"
    ");\n"
    "CREATE OR REPLACE FUNCTION millrace.inbox_notify() RETURNS trigger LANGUAGE plpgsql AS\n"
    "    $$ BEGIN NOTIFY millrace_inbox; RETURN NULL; END $$;\n"
    "DROP TRIGGER IF EXISTS inbox_notify ON millrace.inbox;\n"
    "CREATE TRIGGER inbox_notify AFTER INSERT ON millrace.inbox\n"
    "    FOR EACH STATEMENT EXECUTE FUNCTION millrace.inbox_notify();\n"
    "INSERT INTO millrace.inbox_about (version, name)\n"
    "    VALUES (" VERSION_TEXT ", ";

// ---- Options ----------------------------------------------------------------------------------

const char *inbox_url(const struct input *in) {
    const char *argument = in->arguments[0], *option = input_option(in, "--db");
    const char *url = option ? option : argument;
    if (url && !(argument && option) && database_url_is_valid(url))
        return url;
    complain("%s: %s: postgres://USER@HOST/DATABASE", in->command->name,
             !url                   ? "the URL of the database is missing"
             : (argument && option) ? "name one database, by the argument or by --db"
                                    : "that is no URL of a PostgreSQL database");
    return NULL;
}

// The name as SQL has it: that of the database, or the given one in quotes. NULL: it was refused.
static const char *name_as_sql(const struct input *in, char *out, size_t size) {
    const char *name = input_option(in, "--name");
    if (!name)
        return "current_database()";
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p <= ' ' || strchr("'\\", *p) || *p == 127)
            name = "";
    if (!*name || strlen(name) > INBOX_NAME_MOST) {
        complain("%s: --name: 1 to %d bytes, without blanks, quotes and backslashes",
                 in->command->name, INBOX_NAME_MOST);
        return NULL;
    }
    snprintf(out, size, "'%s'", name);
    return out;
}

static int schema_write(const char *name, struct buffer *out) {
    static const char end[] = ")\n    ON CONFLICT DO NOTHING;\n";
    int err = buffer_append(out, schema, sizeof schema - 1);
    if (err >= 0)
        err = buffer_append(out, name, strlen(name));
    return err < 0 ? err : buffer_append(out, end, sizeof end); // with its 0 byte
}

// ---- Checking ---------------------------------------------------------------------------------

int inbox_check(struct database *d, char out[INBOX_NAME_MOST + 1]) {
    int err = database_ask(d, "SELECT version::text, name FROM millrace.inbox_about", 0, NULL);
    if (err == MR_EGONE || (err == 0 && database_rows(d) != 1))
        return error_set(MR_EGONE, "this database has no inbox: millrace inbox install makes one");
    if (err < 0)
        return err;
    if (database_number(d, 0, 0) != INBOX_VERSION)
        return error_set(MR_EINVAL,
                         "the inbox of this database has version %s, and this program needs "
                         "version " VERSION_TEXT ": use a millrace of that version",
                         database_text(d, 0, 0));
    snprintf(out, INBOX_NAME_MOST + 1, "%s", database_text(d, 0, 1));
    return 0;
}

// ---- Installing -------------------------------------------------------------------------------

// In one transaction; a second process that installs waits for it. 1: made; 0: it was there.
static int inbox_make(struct database *d, const char *commands) {
    char name[INBOX_NAME_MOST + 1];
    int err = inbox_check(d, name);
    if (err != MR_EGONE)
        return err;
    err = database_run(d, "BEGIN; SELECT pg_advisory_xact_lock(hashtext('millrace.inbox'))");
    if (err == 0)
        err = database_run(d, commands);
    if (err == 0)
        err = database_run(d, "COMMIT");
    return err < 0 ? err : 1;
}

static enum cli_exit inbox_failed(int err) {
    const char *way_out =
        err == MR_EPERM
            ? "; install as a user who may create schemas (GRANT CREATE ON DATABASE … TO …), or "
              "have the commands applied that millrace inbox install --print prints"
            : "";
    complain("inbox install: %s%s", error_text(), way_out);
    return err == MR_EPERM ? CLI_REFUSED : err == MR_ENET ? CLI_UNOPENED : CLI_FAILED;
}

static void inbox_report(const struct input *in, const char *name, bool made) {
    struct json j = { 0 };
    char epic[EPIC_NAME_MOST + 1];
    snprintf(epic, sizeof epic, INBOX_EPIC "%s", name);
    if (!input_option(in, "--json")) {
        printf("%s: table millrace.inbox, epics %s\n", made ? "installed" : "already installed",
               epic);
        return;
    }
    json_open(&j, NULL, '{');
    json_flag(&j, "installed", made);
    json_number(&j, "version", INBOX_VERSION);
    json_text(&j, "epic", epic);
    json_close(&j, '}');
    json_end(&j);
}

static enum cli_exit install_into(const struct input *in, const char *commands) {
    struct database d = { 0 };
    char name[INBOX_NAME_MOST + 1] = "";
    const char *url = inbox_url(in);
    if (!url)
        return CLI_USAGE;
    int err = database_open(&d, url), made = 0;
    if (err == 0)
        err = made = inbox_make(&d, commands);
    if (err >= 0)
        err = inbox_check(&d, name);
    enum cli_exit code = err < 0 ? inbox_failed(err) : CLI_DONE;
    if (err == 0)
        inbox_report(in, name, made);
    database_close(&d);
    return code;
}

enum cli_exit inbox_install_run(const struct input *in) {
    char quoted[INBOX_NAME_MOST + 3];
    struct buffer commands = { 0 };
    const char *name = name_as_sql(in, quoted, sizeof quoted);
    if (!name)
        return CLI_USAGE;
    enum cli_exit code = CLI_DONE;
    if (schema_write(name, &commands) < 0) {
        complain("inbox install: no memory");
        code = CLI_FAILED;
    } else if (input_option(in, "--print")) {
        printf("BEGIN;\n%sCOMMIT;\n", (const char *)commands.data);
    } else {
        code = install_into(in, (const char *)commands.data);
    }
    buffer_finish(&commands);
    return code;
}
