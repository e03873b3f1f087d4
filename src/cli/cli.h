// Cli: the command `millrace`. A row of a table (table.c) describes each command; dispatch, help,
// hints, the man page and the completion are made from the rows.
//
//     argv ──► main.c: which row? ──► arguments.c: does it fit the row? ──► row->run ──► exit code
//
// Results go to stdout, everything else to stderr. One thread.
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "wire/port.h"

#include <stdbool.h>
#include <stddef.h>

// What the process exits with; scripts rely on it.
enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1, // the work failed; a check has found something
    CLI_USAGE = 2,
    CLI_UNOPENED = 3, // cannot reach or open what was named
    CLI_REFUSED = 4,  // the secret is wrong, or the role does not suffice
    CLI_FULL = 5,
    CLI_DEADLINE = 124,
    CLI_INTERRUPTED = 130,
};

// Where a server listens, and the engine that a command uses, unless options name others.
#define CLI_LISTEN "127.0.0.1:" WIRE_PORT
#define CLI_HTTP "127.0.0.1:7412"
#define CLI_URL "millrace://" CLI_LISTEN

enum { CLI_ARGUMENTS = 3, CLI_OPTIONS = 30, CLI_ANY = -1 }; // the last option is an empty one
enum { CLI_REPEATED = 32 };   // values of an option that may be given several times
enum { CLI_HELP_LINE = 128 }; // bytes of a line of a table in the help

struct cli_option {
    const char *name;  // "--from"; if it has several: "-j, -P, --jobs"
    const char *value; // "POSITION"; NULL: it takes none; "NAME...": it may be given several times
    const char *doc;
};

struct input;

struct cli_command {
    const char *name; // one or two words
    const char *arguments;
    int least, most;     // arguments; most CLI_ANY: any number
    bool runs_command;   // everything behind -- is one
    const char *instead; // an option that takes the place of -- and the command; NULL: none
    const char *doc;     // one line, without a full stop
    const char *help;
    // Writes line `index` of a table that follows the help; false: there is none.
    bool (*help_row)(size_t index, char *out, size_t size);
    const char *examples; // lines; an indented one says what the one before it does
    struct cli_option options[CLI_OPTIONS];
    enum cli_exit (*run)(const struct input *);
};

// A part of the table, as help prints it: rows that belong together. Both arrays end with an empty
// row.
struct chapter {
    const char *title;
    const struct cli_command *commands;
};

extern const struct chapter chapters[];

const struct cli_command *command_at(size_t index); // in the order of the table; NULL: no more

// A command line that fits its row. Strings are argv's.
struct input {
    const struct cli_command *command;
    const char *arguments[CLI_ARGUMENTS]; // the first ones; NULL: not given
    const char *const *list;              // all of them …
    int count;                            // … and how many
    const char *values[CLI_OPTIONS];      // of the row's options; NULL: not given
    const char *const *words; // of the command behind --, ended by NULL; NULL: see `instead`
    const char *repeated[CLI_REPEATED]; // values of the option that may be given several times …
    int repeated_count;                 // … of which a row has one at most
    const char *file;                   // of options (config.h); NULL: none
    int lines[CLI_OPTIONS];             // where an option stands in it; 0: it was a flag
};

// Reads `argv` by the row of `command`. False: it does not fit, and the reason was printed.
bool input_read(const struct cli_command *command, int argc, char **argv, struct input *out);

// An option's name; of several the last, which is the longest.
const char *option_name(const struct cli_option *);

// An option's value ("" for one that takes none), or NULL when it was not given. The row must have
// an option of that name.
const char *input_option(const struct input *, const char *name);

// Gives the option a value, whatever was given. Borrows it.
void input_set(struct input *, const char *name, const char *value);

// How many letters have to change to make one word of the other; what is too far apart is
// NAMES_APART.
enum { NAMES_APART = 3 };
int names_distance(const char *a, const char *b);

// The row called `first`, or `first second` (which may be NULL).
const struct cli_command *command_find(const char *first, const char *second);

// Prints that there is no such command, and which one has a similar name. Returns CLI_USAGE.
enum cli_exit command_unknown(const char *first, const char *second);

// The length of the first word of a command's name.
size_t command_group(const struct cli_command *);

void help_overview(void);
void help_command(const struct cli_command *);
bool help_group(const char *first);                    // false: no command begins with that word
void manual_print(void);                               // the man page
void manual_print_command(const struct cli_command *); // that of one command
void completion_print(void);                           // for bash
void protocol_print(void);                             // the page about the protocol
void config_print(void);                               // a file of options for the server

enum cli_exit help_run(const struct input *);
enum cli_exit serve_run(const struct input *);
enum cli_exit dev_run(const struct input *);
enum cli_exit auth_add_run(const struct input *);
enum cli_exit auth_list_run(const struct input *);
enum cli_exit auth_remove_run(const struct input *);
enum cli_exit run_run(const struct input *);
enum cli_exit flow_run(const struct input *);
enum cli_exit work_run(const struct input *);
enum cli_exit emit_run(const struct input *);
enum cli_exit state_run(const struct input *);
enum cli_exit snooze_run(const struct input *);
enum cli_exit job_progress_run(const struct input *);
enum cli_exit push_run(const struct input *);
enum cli_exit call_run(const struct input *);
enum cli_exit await_run(const struct input *);
enum cli_exit cancel_run(const struct input *);
enum cli_exit epic_run(const struct input *);
enum cli_exit inbox_install_run(const struct input *);
enum cli_exit inbox_run_run(const struct input *);
enum cli_exit bench_run(const struct input *);
enum cli_exit job_run(const struct input *);
enum cli_exit jobs_run(const struct input *);
enum cli_exit top_run(const struct input *);
enum cli_exit stages_run(const struct input *);
enum cli_exit channels_run(const struct input *);
enum cli_exit workers_run(const struct input *);
enum cli_exit epics_run(const struct input *);
enum cli_exit schedule_apply_run(const struct input *);
enum cli_exit schedule_run(const struct input *);
enum cli_exit dead_run(const struct input *);
enum cli_exit why_run(const struct input *);
enum cli_exit retry_run(const struct input *);
enum cli_exit drop_run(const struct input *);
enum cli_exit due_run(const struct input *);
enum cli_exit pause_run(const struct input *);
enum cli_exit resume_run(const struct input *);
enum cli_exit drain_run(const struct input *);
enum cli_exit stage_run(const struct input *);
bool stage_help_row(size_t index, char *out, size_t size);
enum cli_exit cluster_status_run(const struct input *);
enum cli_exit cluster_drain_run(const struct input *);
enum cli_exit cluster_move_run(const struct input *);
enum cli_exit store_init_run(const struct input *);
enum cli_exit store_check_run(const struct input *);
enum cli_exit store_dump_run(const struct input *);
enum cli_exit store_repair_run(const struct input *);
enum cli_exit store_copy_run(const struct input *);

#endif
