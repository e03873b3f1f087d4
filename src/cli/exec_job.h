// Exec job: runs a command for a job, as `work`, `run` and the steps of a flow do:
//
//     parts of a line ─► placeholders ─► argv, variables ─► exec_run ─► how it ended
//     state of the channel ─► side file ─► what the command leaves for the job's commit
//                                      └─► its progress, shown while it runs
#ifndef CLI_EXEC_JOB_H
#define CLI_EXEC_JOB_H

#include "cli/placeholders.h"
#include "work/exec.h"
#include "work/side_file.h"

#include <stdatomic.h>

// What all commands of this process share. Zero is a valid start.
struct job_execs {
    struct execs *execs;
    struct side_dir *side_dir;
    atomic_uint refused;      // commands that the system had no room to start, one after another
    atomic_bool has_progress; // a command has said how far it is
};

// MR_EIO; MR_ENOMEM. To be closed also if it fails. What commands leave running is killed from now
// on, whatever process group or session it has moved to.
int job_execs_open(struct job_execs *);
void job_execs_close(struct job_execs *); // none may be running

struct job_exec_order {
    const struct template *template;
    struct parts parts; // for its placeholders
    const mr_job *job;  // whose variables the command gets
    mr_bytes input;     // its stdin
    mr_bytes state;     // what `millrace state` shows it
    bool is_pure; // it leaves nothing: `millrace emit`, `state` and `progress` do not work in it
    int64_t timeout_ms;
    uint64_t max_output;
    bool pass_errors; // these three: see exec.h
};

struct job_exec {
    struct exec_result result;
    struct side_file side; // what the command has left, for side_file_read
};

// Runs a command and returns when it has ended. 0: `out` says how, and is finished by
// job_exec_finish; else errors of exec_run, template_fill and side_file_begin. Any thread.
int job_exec_run(struct job_execs *, const struct job_exec_order *, struct job_exec *out);
void job_exec_finish(struct job_exec *);

// The end of what a command wrote to stderr, to be kept with the reason of its failure: up to
// LAST_WORDS_MOST bytes, beginning with a whole character. `out` has as many; how many.
size_t job_exec_last_words(const struct exec_result *, char *out);

// To be called with what each run has returned. True: the system has refused to start commands
// (MR_EBUSY) several times in a row, which should be reported now. Any thread.
bool job_execs_are_refused(struct job_execs *, int err);

#endif
