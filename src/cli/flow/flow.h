// Flow: runs a plan; what the files of this command share.
//
//     flow.c     the command: reads the file; checks, draws or runs it
//     run.c      opens the engine, waits for the end or a signal
//     build.c    each node of the plan becomes operators of the library (mr_flow_*)
//     source.c   reads lines of files and of stdin, in blocks
//     steps.c    the built-in steps
//     command.c  the steps that are commands
//     progress.c bar and summary
//
// The library processes pairs of key and value; here the value is a line, and the key is what the
// last `key:` before it has found in it. Functions of nodes are called by many threads: what they
// change is atomic, the rest does not change once the flow was started.
#ifndef CLI_FLOW_FLOW_H
#define CLI_FLOW_FLOW_H

#include "cli/cli.h"
#include "cli/engine.h"
#include "cli/exec_job.h"
#include "cli/flow/plan.h"
#include "cli/interrupts.h"
#include "cli/journal.h"
#include "work/filter.h"

#include <pthread.h>
#include <stdatomic.h>

struct flow;
struct reading; // of a source: source.c
struct asked;   // of a filter: command.c

enum { TITLE = 200 };

// A node of a flow that runs.
struct actor {
    struct flow *flow;
    const struct flow_node *node;
    struct template template; // of a command
    bool has_outputs;         // with names: each line is sent with the name of its output
    char title[TITLE];        // its place in the file and its name, for messages
    struct filters *filters;  // of a long-lived command
    struct asked *asked;      // lines that it has not answered yet; the flow's lock guards them
    uint64_t silence_us;      // how long a line is unanswered until that is printed
    bool ended;               // its filters were ended, as they did not answer
    struct reading *reading;
    _Atomic uint64_t in, out; // lines, of this process
};

struct flow_options {
    const char *journal; // a directory
    bool journal_given, fresh, progress, json;
};

struct flow {
    struct plan *plan;
    struct flow_options options;
    struct journal journal; // without a directory: none
    struct address address; // of --at
    struct engine_state engine;
    mr_flow *flow;
    struct job_execs execs;
    struct actor actors[FLOW_NODES];
    pthread_mutex_t lock; // guards the lines that filters have not answered
    const char *where;    // the URL of the engine, for messages
    int signals;          // a descriptor
    int halt;             // an eventfd: readable when sources must read no more
    struct interrupts interrupts;
    bool draws; // its progress
    uint64_t begun_us;
    size_t folder_size;   // of the flow's file: as much of its path leads to files that it names
    uint64_t before[2];   // lines read and written by earlier runs of the journal
    uint64_t counted_us;  // when they were last kept with those of this run
    atomic_bool ending;   // what runs is being ended …
    uint64_t ending_us;   // … since then
    atomic_bool gives_up; // a thread has begun to write `why`
    atomic_bool failed;   // a node cannot go on, and `why` has the reason; "": not to be printed
    char why[512];
};

// ---- run.c -------------------------------------------------------------------------------------

// Runs the flow to its end. The caller closes the two descriptors.
enum cli_exit flow_start(struct flow *, const struct input *);

// ---- build.c -----------------------------------------------------------------------------------

// Makes the flow of the plan on the engine, ready to be started. Negative with a sentence.
int flow_build(struct flow *);

// The name of a node's stage in the engine.
void actor_stage(const struct actor *, char *out, size_t size);

// ---- source.c ----------------------------------------------------------------------------------

// MR_EIO; MR_ENOMEM. `out` is closed by reading_close, which takes NULL.
int reading_open(struct flow *, struct actor *, struct reading **out);
void reading_close(struct reading *);
void reading_forget(const struct reading *); // removes what was kept of its lines
mr_flow_read reading_read;                   // its argument is the actor

// Bytes read so far, and of all files; false: their number is not known.
bool reading_share(const struct reading *, uint64_t *out_read, uint64_t *out_total);

// ---- steps.c: functions whose argument is an actor ---------------------------------------------

mr_flow_function step_key, step_words, step_fields_each, step_lines, step_fields, step_regex;
mr_flow_function step_measure; // a line becomes the number that an aggregate folds
mr_flow_function step_result;  // the result of an aggregate becomes a line
mr_flow_function step_plain;   // removes the key, for files
mr_flow_function step_crash;   // passes lines on, and fails attempts with the node's probability
mr_flow_function step_drop;
mr_flow_fold fold_mean;
mr_flow_receive receive_print;

// Fails a line for a reason, to which the line and its key are added. `code` is MR_EDEAD if trying
// again would not help, else any other error; it is returned.
int step_fail(mr_flow_out *, mr_pair, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// The line is not at fault: it is released, and the flow stops for this reason. Returns MR_EBUSY.
int actor_give_up(struct actor *, const char *why);

// ---- command.c ---------------------------------------------------------------------------------

#define PROGRAM_MAIN "-" // the output for what it writes to stdout

int program_open(struct actor *); // MR_ENOMEM; MR_EIO
void program_close(struct actor *);

// Whether a long-lived command has not answered a line for long; then `out` gets the message. Each
// time it has to take twice as long.
bool program_is_silent(struct actor *, char *out, size_t size);

// Whether it has not answered a line for FLOW_GRACE_US, counted from `since_us` at the earliest.
enum { FLOW_GRACE_US = 5000000 };
bool program_is_stuck(struct actor *, uint64_t since_us);
mr_flow_function program_run;   // map and flat_map
mr_flow_function program_keep;  // filter: exit 0 keeps a line, 1 drops it
mr_flow_function program_route; // a split: a line goes to the output whose name it was sent with

// ---- progress.c --------------------------------------------------------------------------------

bool flow_is_drawn(
    const struct flow *);       // on a terminal, unless what is printed would be torn apart
void flow_draw(struct flow *);  // when it is time
void flow_count(struct flow *); // keeps in the journal how many lines were read and written
void flow_summary(struct flow *, enum cli_exit, bool over);

#endif
