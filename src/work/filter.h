// Filter: a command that stays and answers line after line, for jobs too small to start a process
// each. A job is one line in; its answer comes back before the next line is written.
//
//     job's line ─► stdin ┌────────┐ stdout ─► answer
//                         │ filter │ stderr ─► that of this process
//                         └────────┘
//
// What the program must do, in any language: read a line, write the answer, flush, go on.
//     FILTER_LINE    the answer is one line: sed -u 's/a/b/', awk '{ print $2; fflush() }'
//     FILTER_LINES   the answer is any number of lines, none of them empty, and then an empty one
// The answer that callers get has no line end at its end, and not the empty line. A program that
// writes more than its answer is out of step: which output belongs to which line is unknown, so it
// is ended as soon as that is noticed.
//
// As many processes run as there are threads in filter_run; each serves one at a time. One that
// ends by itself has crashed: the attempt it was working on has failed, and it is started again, if
// all together have not crashed too often (supervise.h); then the filters give up. One that this
// process ends (a job's timeout, stop, or too much output; out of step) is replaced without being
// counted.
#ifndef WORK_FILTER_H
#define WORK_FILTER_H

#include "work/exec.h"

enum filter_mode { FILTER_LINE, FILTER_LINES };

struct filters_options {
    const char *const *argv; // as exec_order; must stay where it is
    enum filter_mode mode;
    int64_t grace_ms;  // 0: EXEC_GRACE_MS
    uint32_t restarts; // in `window_ms`; 0: the defaults of supervise.h, for both
    uint64_t window_ms;
};

struct filters;

// MR_ENOMEM; MR_EIO.
int filters_create(const struct filters_options *, struct filters **out);

// Closes their stdin, which tells a filter to end, and kills those that have not ended after the
// grace. No thread may be in filter_run. Takes NULL.
void filters_destroy(struct filters *);

// Runs a line through a filter; `input` of the order is the line, with or without its end; of the
// rest only job, timeout_ms and max_output count. 0: `out` has the answer, or how the attempt
// failed, as exec_run; EXEC_EXITED with code 0 and no reason is an answer. MR_ESTOPPED: the filters
// have given up, or cannot be started at all, and the sentence says why: give the job back and
// stop. MR_EBUSY, MR_ENOMEM, MR_EIO: as exec_run. Any thread.
int filter_run(struct filters *, const struct exec_order *, struct exec_result *out);

void filter_stop_any(struct filters *, const mr_job *job); // as exec_stop_any
void filters_stop_any(struct filters *);                   // as execs_stop_any

#endif
