// Exec: runs a command for a job, in the calling thread; as many at once as there are threads.
//
//     exec_run ──spawn──► command, in a process group of its own
//        │                   0 ◄── input: a file in memory, or /dev/null
//        │                   1 ──► pipe ──► output   (a spool: memory, then a file)
//        │ ◄──poll──┬──      2 ──► pipe ──► errors   (or passed on, and the end of it kept)
//        │          └─ exec_stop_any, from another thread
//        ▼
//     how it ended, in one line of words
//
// The command ends by itself; or it is asked to (its timeout, exec_stop_any, too much output): the
// group gets SIGTERM, and SIGKILL when the grace is over or the lease that was lost, whatever the
// command does about signals. When the command has ended, by itself or not, what is left of its
// group is killed, and, after processes_adopt, also what moved to a group or session of its own: a
// job leaves nothing running. Output is what was written when the command ended; this does not wait
// for processes that keep the pipes open longer. No zombie is left, no descriptor but 0, 1 and 2
// reaches the command, and its signals are at their defaults. If this process is killed, the
// command is killed with it; what the command has started is not.
//
//     struct execs *execs;
//     execs_create(NULL, &execs);                       // one a worker
//
//     int handler(mr_job *job, void *arg) {             // many threads
//         struct exec_order order = { .argv = argv, .job = job, .input = mr_job_body(job) };
//         struct exec_result r;
//         int err = exec_run(execs, &order, &r);        // waits for its end
//         …                                             // r.end, r.reason, r.output
//         exec_result_finish(&r);
//     }
//     void on_stop(mr_job *job, void *arg) { exec_stop_any(execs, job); }
// A command finds in its environment, beside that of this process: MILLRACE_ID, MILLRACE_KEY,
// MILLRACE_STAGE, MILLRACE_ATTEMPT, MILLRACE_META if the job has META, and MILLRACE_DEADLINE_MS
// (what is left at the start) if there is a deadline. A key or META with a 0 byte in it is cut
// there, as variables are.
//
// A command costs no thread and no SIGCHLD. The thread that has the job starts it with vfork and
// waits for everything about it in one poll. What it emits goes through a file into its job's
// commit (`work/side_file.h`).
#ifndef WORK_EXEC_H
#define WORK_EXEC_H

#include "engine/engine.h"
#include "work/spool.h"

enum { EXEC_GRACE_MS = 2000, EXEC_REASON = 512, EXEC_LOOK_MS = 1000 };

struct execs; // the commands of one worker

struct execs_options {
    int64_t grace_ms; // between SIGTERM and SIGKILL; 0: EXEC_GRACE_MS
};

// `options` may be NULL. MR_ENOMEM.
int execs_create(const struct execs_options *options, struct execs **out);

// None may be running. Takes NULL.
void execs_destroy(struct execs *);

struct exec_order {
    const char *const *argv; // ends with NULL; argv[0] is looked for in PATH unless it has a slash
    const mr_job *job;       // whose variables the command gets; NULL: none
    const char *const *variables; // more of them, "NAME=value", ends with NULL; may be NULL
    mr_bytes input;               // its stdin, any size; empty: /dev/null
    int64_t timeout_ms;           // 0: none
    uint64_t max_output;          // bytes of output, and of errors, before it is ended; 0: any
    bool pass_errors; // its stderr is written to that of this process as it comes; `errors` keeps
                      // the end
    void (*look)(void *arg); // called every EXEC_LOOK_MS while the command runs, by the thread that
    void *look_arg;          // waits for its end, and must not wait; NULL: not at all
};

enum exec_end {
    EXEC_EXITED,    // by itself, with `code`
    EXEC_KILLED,    // by the signal `code`, which this process did not send
    EXEC_TIMED_OUT, // these three: this process ended it, whatever its exit status
    EXEC_STOPPED,
    EXEC_OUTPUT,
    EXEC_UNSTARTED, // there is no such command, or it cannot be executed; `code` is the errno
};

struct exec_result {
    enum exec_end end;
    int code;
    bool out_of_memory; // killed by SIGKILL, and the system counts a kill for want of memory
    // One line: "exit code 3: no such host", "killed by signal 9 (KILL)", "not found: frobnicate",
    // "timed out after 5000 ms". The words behind the colon are the last line of errors. Empty
    // when it exited with 0.
    char reason[EXEC_REASON];
    int how_size;                // of the reason, without the words of errors; 0: all of it
    struct spool output, errors; // what it has written, whatever the end
};

static inline bool exec_ended_well(const struct exec_result *x) {
    return x->end == EXEC_EXITED && x->code == 0;
}

// The reason for people who have seen its stderr: up to so many bytes.
static inline int exec_how_size(const struct exec_result *x) {
    return x->how_size ? x->how_size : EXEC_REASON;
}

// The command itself is missing or cannot be executed; not the fault of its arguments.
bool exec_is_missing(const struct exec_result *);

// Runs a command and returns when it has ended. 0: `out` has how, also if it could not be started;
// finish it with exec_result_finish. Negative: it is not the command's fault, and it did not run or
// was killed: MR_ENOMEM; MR_EIO: no process, pipe or temporary file could be made; MR_EBUSY: the
// system allows no more processes or descriptors just now. If the job is stopped before the command
// starts, the result is EXEC_STOPPED and no command runs. Any thread.
int exec_run(struct execs *, const struct exec_order *, struct exec_result *out);

// Ends the command that runs for this very `job` (it may be one of on_stop), if any; returns at
// once. A command about to start for it is not started, provided the engine has marked the job
// (mr_job_stopped). Any thread.
void exec_stop_any(struct execs *, const mr_job *job);

// Ends all that run, for good: exec_run answers EXEC_STOPPED from now on. Any thread.
void execs_stop_any(struct execs *);

void exec_result_finish(struct exec_result *);

#endif
