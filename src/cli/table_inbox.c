// Rows of the commands about the inbox, a table of a PostgreSQL database.
#include "cli/table.h"

#define DATABASE                                                                                   \
    { "--db", "URL", "the database, in place of the argument" }

const struct cli_command inbox_commands[] = {
    {
        .name = "inbox install",
        .arguments = "[URL]",
        .most = 1,
        .doc = "make the table millrace.inbox in PostgreSQL",
        .help = "Makes the tables of the inbox in the database that URL names, in schema\n"
                "millrace: inbox, for rows that are to become jobs; inbox_dead, for rows that\n"
                "cannot be pushed; inbox_stage and inbox_about, for millrace inbox run. If they\n"
                "are there it changes nothing. docs/inbox.md shows how programs use them.\n"
                "\n"
                "The rows of a stage are pushed as the epic inbox:NAME of it; NAME is that of\n"
                "the database. If two databases with the same name push to one server, give\n"
                "one of them another name with --name.\n"
                "\n"
                "Passwords come from ~/.pgpass, PGPASSWORD or the URL. The user must be allowed\n"
                "to create a schema; --print prints the commands for another user to apply.\n"
                "\n"
                "Exits 1 if the inbox has another version, 3 if the database cannot be reached,\n"
                "4 if the user may not create it.\n",
        .examples = "millrace inbox install postgres://localhost/app\n"
                    "millrace inbox install --print >inbox.sql\n"
                    "    for a tool that applies migrations\n",
        .options = { DATABASE,
                     { "--name", "NAME", "of the epics (the name of the database)" },
                     { "--print", NULL, "only print the commands of SQL" },
                     JSON },
        .run = inbox_install_run,
    },
    {
        .name = "inbox run",
        .arguments = "[URL]",
        .most = 1,
        .doc = "turn rows of millrace.inbox into jobs, each once",
        .help = "Pushes every row of the table millrace.inbox whose transaction has committed,\n"
                "then deletes it. A row becomes a job exactly once, whatever crashes: this\n"
                "command, the server or the database. Rows of one stage are pushed in the order\n"
                "of their insertion, if they are of one transaction, or if the later transaction\n"
                "began after the earlier one had committed.\n"
                "\n"
                "One runner works at a time; others stand by and take over when it ends. If the\n"
                "server or the database cannot be reached, it says so once and tries again. If\n"
                "a stage is full, its rows wait, and those of other stages do not. A row that\n"
                "cannot be pushed (too large, no such stage name, no right to push there) moves\n"
                "to millrace.inbox_dead, with the reason.\n"
                "\n"
                "Runs until Ctrl-C or SIGTERM, then prints how many rows it has pushed and exits\n"
                "with 0. Exits 1 if the inbox is missing or has another version, or if, with\n"
                "--until-empty, rows are left that a person must look after; 3 if the database\n"
                "or the server cannot be reached at the start, 4 if it is refused.\n",
        .examples = "millrace inbox run postgres://localhost/app\n"
                    "millrace inbox run --db postgres://localhost/app --until-empty --json\n"
                    "    pushes what is there, and ends\n",
        .options = { DATABASE, { "--until-empty", NULL, "end when no row is left" }, AT, JSON },
        .run = inbox_run_run,
    },
    { 0 },
};
