// Process: a command that was started: in a process group of its own, with default signals, with
// the descriptors 0, 1 and 2 it is given and no other.
//
// vfork, because it never copies the address space, and because the child can then ask to be killed
// with its parent, which posix_spawn cannot: a worker that is killed leaves no command behind that
// goes on with a job which another worker has by then. (It reaches the command itself, not what
// that has started.) For `true`, CPU of both sides: fork 1.1 ms, vfork and posix_spawn 0.7 ms,
// whatever the size of the process. A pidfd, because it can be waited for together with pipes and
// needs neither a thread nor SIGCHLD, which belongs to the program.
//
// One thread at a time may use a process. Until process_finish its number is not given to another
// process, so that a signal never hits the wrong one.
#ifndef WORK_PROCESS_H
#define WORK_PROCESS_H

#include "engine/engine.h"

#include <sys/types.h>

enum { PROCESS_TAG = 64 };

struct process {
    pid_t pid;
    int pidfd;             // readable when it has ended
    char tag[PROCESS_TAG]; // in its environment, and of all that it starts
};

// From now on what commands leave behind, whatever group or session it has moved to, becomes a
// child of this process (PR_SET_CHILD_SUBREAPER), and is killed when its command has ended. It is
// known by MILLRACE_RUN in its environment: what clears that, or becomes another user, is not
// found. For a program whose children are all of process_start; commands are not to be started by
// its main thread. Without effect where the system does not list children (/proc).
void processes_adopt(void);

struct process_order {
    const char *const *argv;        // as exec_order
    const char *const *environment; // ends with NULL
    int descriptors[3];             // what become 0, 1 and 2; all CLOEXEC, or 0, 1, 2 themselves
    const char *tag;                // of `environment`
    bool dies_with_thread;          // killed when the thread that started it ends, or the process
};

// MR_EINVAL: the command is not to be found or executed; the sentence names it, errno says why.
// MR_EBUSY: the system allows no more processes or descriptors just now; MR_ENOMEM; MR_EIO.
int process_start(const struct process_order *, struct process *out);

// Signals the group, and the command even if it has left that. Not after process_finish.
void process_signal(const struct process *, int signal);

// Kills what is left of the group, and of all that was started if that is adopted, waits for the
// command's end and forgets it. Returns its status, as waitpid.
int process_finish(struct process *);

// "killed by signal 9 (KILL)", "exit code 3"; "" for exit code 0.
void process_describe(int status, char *out, size_t size);

int process_wait_ms(uint64_t until_ms); // for poll, perhaps less; UINT64_MAX: for ever

// The variables of this process and of a job: see exec.h. Fill `environment` with environment_fill;
// what it points to must stay where it is meanwhile.
struct environment {
    const char **all; // ends with NULL
    char id[40], attempt[40], deadline[48];
    char tag[PROCESS_TAG], runs[256]; // what was started for it has MILLRACE_RUN with the tag in it
    char stage[STAGE_NAME_MOST + 20], key[KEY_MOST + 20], meta[META_MOST + 20];
};

// `job` and `more` (ends with NULL) may be NULL. MR_ENOMEM.
int environment_fill(struct environment *, const mr_job *job, const char *const *more);
void environment_finish(struct environment *);

// Makes sure that the descriptors 0 to 2 are open, so that no pipe becomes one of them. MR_EIO.
int standard_descriptors_open(void);

#endif
