// Side files: what a command leaves for the end of its job. `millrace emit`, `millrace state --set`
// and `millrace snooze` run inside the command, in processes of their own; what they hand in must
// take effect with the job's end or not at all. So they append it to a file, and the worker adds it
// to the job when the command has succeeded.
//
//     worker                            command                    millrace emit, state
//     side_file_begin ─► DIR/7.state ────────────────────────────► side_file_read_state
//     exec_run ────────► MILLRACE_SIDE_FILE=DIR/7 ───────────────► side_file_emit, …_set_state
//     side_file_apply ◄─ DIR/7.side ◄──────────────────────────────┘ one write, appended
//     side_file_look ◄── DIR/7.progress ◄──────────── millrace progress, while the command runs
//     side_file_end removes them
//
// The directory is private and is removed with the worker. A worker that was killed leaves it
// behind, with a lock that is free, and the next worker of this user removes it. No name in it is
// used twice, so that a process that outlives its job cannot change another one's files. A file is
// made only when it is needed: a job that neither has state nor emits costs one open and one unlink
// that find nothing, and each look at its progress one open. side_file_progress makes the side
// file as well, so that its absence means that there is no progress to remove.
//
// Each record is framed by its size and a checksum. What is not a whole record (the disk was full,
// a process was killed while writing, another program wrote there) makes the attempt fail.
#ifndef WORK_SIDE_FILE_H
#define WORK_SIDE_FILE_H

#include "engine/engine.h"

#define SIDE_FILE_VARIABLE "MILLRACE_SIDE_FILE"
enum { SIDE_FILE_PATH = 512 };

struct side_dir;

// Makes the private directory, in $TMPDIR or /tmp, and removes those there whose worker has gone.
// MR_EIO; MR_ENOMEM.
int side_dir_create(struct side_dir **out);

// Removes the directory with all files in it. Takes NULL.
void side_dir_destroy(struct side_dir *);

struct side_file {
    char variable[SIDE_FILE_PATH]; // "MILLRACE_SIDE_FILE=…", for the command's environment
    bool has_state;
    uint64_t shown; // checksum of the progress that the engine was last given; 0: none
};

// Prepares the files of a command whose channel has this state. MR_EIO: it cannot be written. Any
// thread; the same holds for the calls below, one at a time for one side file.
int side_file_begin(struct side_dir *, mr_bytes state, struct side_file *out);

// Adds what the command left to the job, with mr_job_emit and mr_job_set_state. `out_snooze_ms`:
// the job is to be released for this long instead of being committed; 0: it is not. On failure the
// attempt must fail: MR_ECORRUPT: it is not whole; MR_ETOOBIG, MR_EFULL, MR_EINVAL: as mr_job_emit
// and mr_job_set_state.
int side_file_apply(const struct side_file *, mr_job *, int64_t *out_snooze_ms);

// Gives the engine what `millrace progress` has last said of the job, if that is new; waits for no
// answer, and is to be called again a little later. What is not whole is ignored: it is being
// written.
void side_file_look(struct side_file *, const mr_job *);

// What `millrace emit` says.
struct side_emit {
    mr_bytes stage, key, body, meta;
    bool keeps_meta; // its META is that of the running job
};

// Functions that get what the command left, in the order in which it was written, until one returns
// a negative code. `stage` is that of the emit.
struct side_file_reader {
    int (*emit)(const char *stage, const struct side_emit *, void *arg);
    int (*state)(mr_bytes state, void *arg);
    int (*snooze)(int64_t ms, void *arg); // NULL: that is refused (MR_EINVAL)
    void *arg;
};

// Calls the reader for each record. MR_ECORRUPT: as above; and what the reader returns.
int side_file_read(const struct side_file *, const struct side_file_reader *);

void side_file_end(const struct side_file *);

// ---- Inside the command -----------------------------------------------------------------------
// `path` is the variable's value. MR_EIO; MR_ENOMEM.

int side_file_emit(const char *path, const struct side_emit *);
int side_file_set_state(const char *path, mr_bytes state);
int side_file_snooze(const char *path, int64_t ms);
int side_file_progress(const char *path, const struct job_progress *);

// The channel's state as the job found it. The caller finishes the buffer.
int side_file_read_state(const char *path, struct buffer *out);

#endif
