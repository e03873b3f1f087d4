// Run: runs a command for each line of stdin, without a server; what the files of this command
// share.
//
//     stdin ─► lines.c ─► group.c ─► input.c ─► engine ─► worker's threads: job.c ─► exec
//                                      ▲    (mem: or the journal's store)      │
//     run.c: one loop ─────────────────┘                                       ▼
//     signals, deadline, bar                    output.c: whole, one after another, or in order
//
// The main thread reads as far as the window allows and pushes; the worker's threads run a command
// for each line and print what it wrote. They share `struct run`: any thread may use what is atomic
// or guarded by a lock; the rest is the main thread's, or does not change once the worker runs.
//
// A run is an epic. `millrace run --journal` pushes each line with its number. A line is printed
// and then committed: a crash may show an output twice but never loses one. With `--keep-order` the
// result waits in the engine, and a mark says what was printed. Attempts are unlimited and the
// handler decides when a line has failed: a crash of `run` counts an attempt (rule 22) and is not
// the line's fault.
#ifndef CLI_RUN_RUN_H
#define CLI_RUN_RUN_H

#include "base/histogram.h"
#include "cli/cli.h"
#include "cli/exec_job.h"
#include "cli/interrupts.h"
#include "cli/journal.h"
#include "cli/keys.h"
#include "cli/lines.h"
#include "cli/output.h"
#include "cli/run/gate.h"
#include "cli/run/output.h"

#include <pthread.h>
#include <stdatomic.h>

enum halt { HALT_NEVER, HALT_SOON, HALT_NOW };

struct run_options {
    struct template template;
    struct keys keys;
    char delimiter;      // lines end with it
    uint32_t lines_each; // lines that a command gets, at most
    bool input;          // a line is its command's stdin
    bool keep_order, progress, json, tag, dry_run, retry_failed;
    struct gate_limits gate;
    enum halt halt;
    uint32_t jobs; // 0: self-tuned
    uint64_t retries;
    int64_t timeout_ms, deadline_ms;
    const char *journal, *results; // directories; NULL: none
};

// Lines as they are read, and those that are gathered for one command; see group.c. Zeroed, with
// `most` at 1, each line is a group.
struct groups {
    struct lines lines;
    uint32_t most;
    const struct keys *keys;
    uint64_t number;              // of the group returned last
    struct buffer text, returned; // gathered; of the group returned last
    struct buffer key, next_key;  // of what is gathered; of the line behind it
    uint64_t size, hash;          // of what is gathered …
    uint32_t count;               // … and how many lines it has
};

// A line that failed, for the summary.
enum { FAILURES_LISTED = 100 };
struct run_failure {
    uint64_t line; // its number; 0: it was emitted, as `job`
    mr_id job;
    char text[LINE_SHOWN], reason[EXEC_REASON];
};

struct run {
    const struct run_options *options;
    mr *engine;
    mr_epic epic; // of the journal, whose numbers are the lines' positions
    struct job_execs execs;
    mr_worker *worker; // NULL: not started yet
    struct groups groups;
    struct journal journal; // without a directory: none
    struct output output;
    struct gate gate;
    int signals, wake; // descriptors: signals; an eventfd by which handlers wake the main thread
    bool input_over;   // nothing more is read
    bool pending;      // lines are read, but not pushed yet
    uint64_t ended_before; // in earlier runs of the journal
    uint64_t begun_us;
    mr_worker_info look; // at the worker, the latest
    struct interrupts interrupts;
    uint64_t leave_at_us; // when the process ends even if something runs; 0: never

    atomic_int running; // handlers
    _Atomic uint64_t read, ended;
    _Atomic uint64_t passed; // in order: lines among them that ended well in an earlier round
    _Atomic uint64_t done, failed, retried, keyless;
    _Atomic int64_t bytes; // of lines read and not ended
    _Atomic int64_t
        wake_at; // a handler wakes the main thread when so many lines or fewer are not ended
    atomic_bool stopping;   // nothing more is started
    atomic_bool is_missing; // the command, and that was printed

    pthread_mutex_t lock; // guards what follows
    int exit_code;        // of the first cause to stop; -1: none
    bool quiet;           // it was stopped because its output is closed: nothing is printed
    uint64_t reported;    // failures that were printed or listed one by one
    struct run_failure failures[FAILURES_LISTED]; // the first ones
    struct histogram job_us;
};

// ---- options.c ---------------------------------------------------------------------------------

// False: they are refused, and the reason was printed. Else run_options_close must be called.
bool run_options_read(const struct input *, struct run_options *out);
void run_options_close(struct run_options *);
bool command_check(const struct run_options *); // false: there is none, and that was printed

// The identity of the run, for its journal. MR_ENOMEM.
int run_options_identity(const struct run_options *, const struct input *, struct buffer *out);

// ---- run.c -------------------------------------------------------------------------------------

// Wakes the main thread if it waits for lines to end. Any thread.
void run_wake_any(struct run *);

enum cli_exit run_exit_of(int err); // of an error that ends the run

// Starts nothing more, and with `now` ends what runs. The first call decides what to exit with. Any
// thread.
void run_stop_any(struct run *, enum cli_exit, bool now);

// ---- group.c -----------------------------------------------------------------------------------

// The next group as a line, borrowed until the next call and the next lines_read. 1: there is one;
// 0: more has to be read first, or there is no more; MR_ENOMEM.
int groups_next(struct groups *, struct line *out);
void groups_finish(struct groups *);

// The first line of a group's text: that has its key.
mr_bytes group_first_line(const struct run_options *, mr_bytes text);

// The beginning of a group, for a sentence that quotes it: its lines with blanks between them.
const char *group_shown(const struct run_options *, mr_bytes text, char out[LINE_SHOWN]);

// ---- dry.c, tag.c ------------------------------------------------------------------------------

// Prints what would run.
enum cli_exit dry_run(struct groups *, const struct run_options *);

// Puts the tag of a line before each line of both, if that is wanted. MR_ENOMEM, MR_EIO.
int tag_output(const struct run_options *, mr_bytes text, struct spool *output,
               struct spool *errors);

// ---- input.c: from lines to jobs ---------------------------------------------------------------

// The line that a job's body is: a mark, its number, its size, its text (borrowed); no hash. A body
// without the mark is what a command has emitted: it has no number.
struct line line_of_body(mr_bytes body);

int64_t lines_outstanding(const struct run *); // any thread
bool window_is_open(const struct run *);
void window_wait(struct run *); // it is full: a handler will wake the main thread

// Reads once and pushes what fits. Negative: the run cannot go on, and error_text() says why.
int input_take(struct run *);

// ---- job.c: running a job -----------------------------------------------------------------------

int run_handler(mr_job *, void *run);
void run_on_stop(mr_job *, void *run);

// A line for the placeholders of its command, but for its key.
struct parts run_parts(const struct run_options *, const struct line *);

// A line of an earlier run that has ended, but was not printed: holds its result. MR_ECORRUPT.
int run_hold_result(struct run *, const struct line *, mr_bytes result);

// ---- results.c ---------------------------------------------------------------------------------

// Makes the directory, or uses an empty one; if the run is resumed, any. MR_EINVAL: it is not
// empty; MR_EIO.
int results_open(const char *dir, bool goes_on);
// Writes the output and the end of a line to `dir`/`name`, which appears as a whole. Any thread.
// MR_EIO.
int results_write(const char *dir, const char *name, const struct exec_result *);

// ---- progress.c: bar and summary ---------------------------------------------------------------

bool bar_is_wanted(const struct run_options *);
void bar_draw(struct run *);
void summary_print(struct run *, enum cli_exit);

#endif
