// Carry: what a command leaves for the commit of its job. `millrace emit` and `millrace state
// --set` run inside the command, in processes of their own; what they say must take effect with the
// job's end or not at all. So they append it to a file, and the worker puts it on the job when the
// command has ended well.
//
//     worker                         command                     millrace emit, state
//     carry_begin ─► DIR/7.state ──────────────────────────────► carry_read_state
//     exec_run ────► MILLRACE_CARRY=DIR/7 ─────────────────────► carry_emit, carry_set_state
//     carry_collect ◄─ DIR/7.carry ◄─────────────────────────────┘ one write, appended
//     carry_end: both are removed
//
// The directory is private and goes with the worker: one who was killed leaves it behind, with a
// lock that is free, and the next worker of this user removes it. No name in it is used twice, so
// that a process that outlives its job can spoil nothing. A file is made only when it is needed: a
// job that neither has state nor emits costs one open and one unlink that find nothing.
//
// Each record is framed by its size and a checksum. What is not a whole record (the disk was full,
// somebody was killed while writing, somebody else wrote there) makes the attempt fail.
#ifndef WORK_CARRY_H
#define WORK_CARRY_H

#include "engine/engine.h"

#define CARRY_VARIABLE "MILLRACE_CARRY"
enum { CARRY_PATH = 512 };

struct carry;

// Makes the private directory, in $TMPDIR or /tmp, and removes those there that nobody owns any
// more. MR_EIO; MR_ENOMEM.
int carry_create(struct carry **out);

// Removes it with all that is in it. Takes NULL.
void carry_destroy(struct carry *);

struct carry_slot {
    char variable[CARRY_PATH]; // "MILLRACE_CARRY=…", for the command's environment
    bool has_state;
};

// Prepares for a command that finds this state. MR_EIO: it cannot be written. Any thread; so are
// those below, one at a time for one slot.
int carry_begin(struct carry *, mr_bytes state, struct carry_slot *out);

// Puts what the command left on the job, with mr_job_emit and mr_job_set_state. On failure the
// attempt must fail: MR_ECORRUPT: it is not whole; MR_ETOOBIG, MR_EFULL, MR_EINVAL: as mr_job_emit
// and mr_job_set_state.
int carry_collect(const struct carry_slot *, mr_job *);

// Where it goes instead: called in the order in which the command said it, until one is negative.
struct carry_taker {
    int (*emit)(const char *stage, mr_bytes key, mr_bytes body, void *arg);
    int (*state)(mr_bytes state, void *arg);
    void *arg;
};

// MR_ECORRUPT: as above; and what the taker answers.
int carry_give(const struct carry_slot *, const struct carry_taker *);

void carry_end(const struct carry_slot *);

// ---- Inside the command -----------------------------------------------------------------------
// `path` is the variable's value. MR_EIO; MR_ENOMEM.

int carry_emit(const char *path, mr_bytes stage, mr_bytes key, mr_bytes body);
int carry_set_state(const char *path, mr_bytes state);

// The channel's state as the job found it. The caller finishes the buffer.
int carry_read_state(const char *path, struct buffer *out);

#endif
