// millrace_flow.h: flows, and their manual. What millrace.h says of every call holds here, too.
//
// A flow is a graph of operators on pairs of key and value. Words of a text, counted:
//
//     mr_flow *f;                           int split(mr_pair line, mr_flow_out *out, void *arg) {
//     mr_flow_open(m, "words", NULL, &f);       for each word of line.value
//     mr_flow_lines(f, "text",                      mr_flow_emit(out, word, mr_str("1"));
//                   "a.txt", NULL);             return 0;
//     mr_flow_flat_map(f, "split", "text",  }
//                      split, NULL, NULL);
//     mr_flow_aggregate(f, "count", "split", mr_flow_sum, NULL, NULL, NULL);
//     mr_flow_file(f, "out", "count", "out.tsv", NULL);
//     mr_flow_start(f);
//     mr_flow_wait(f, MR_FOREVER);
//     mr_flow_close(f);
//
// It runs on any engine, and exactly once as far as commits can see: what an operator made of its
// input, what it keeps, and the end of that input are one commit. A flow that was interrupted goes
// on where it was when it is run again, with the same operators and functions.
//
// Operators. Each has a name, 1 to MR_FLOW_NAME of A-Za-z0-9_-, and names in `from` where its pairs
// come from: operators, separated by blanks, also ones that are made later. "NAME" is what NAME
// emits, "NAME:OUTPUT" what it emits to that output.
//
//     source, lines, take    where pairs come from: a function, a file, a stage
//     map, flat_map, filter  one pair becomes one, any number, itself or none
//     split, merge           one in and several outputs; several in and one output
//     aggregate              folds the values of each key, in windows
//     stage                  a function with a state for each key
//     sink, file, push       where pairs go: a function, a file, a stage
//
// Stages. An operator is a stage of the engine, FLOW/OPERATOR, so it has the order, tuning,
// retries, dead letters and `why` of stages. But map, flat_map, filter, split and merge run as part
// of the operators before them, unless `apart` is set: worth it for what is slow or fails. A job is
// a block of pairs; each worker finds its own level; while too many jobs wait at an operator, those
// that feed it are not started, up to the source, and no thread waits.
//
// Order and partitions. Pairs are spread over the partitions of an operator by their keys. What
// comes from one partition of one operator reaches the next in order; so pairs of one key stay in
// order as long as operators keep the key. Pairs with an empty key have no order and run side by
// side, except where there is one partition or a state, to which empty is a key like another.
//
// Failure. When a function fails (answers negative, or emits what can not be) the attempt of the
// block fails and nothing of it counts. In its last attempt the pairs that fail are set apart, as
// jobs of their own which die, each under the key of its pair, and the rest of the block goes on;
// retried, such a job sends its pair to its partition again and is done. With on_dead "halt" the
// whole block dies instead, and its partition waits for a person. Reasons name the operator.
//
// The end. A source ends; when all before an operator is empty, it has had everything: an aggregate
// then emits the windows that were begun. When all of that is through, the flow is over.
//
// Functions are called by several threads at once, never for two pairs of one partition. Calls that
// build a flow belong to one thread at a time and come before mr_flow_start. Limits: 256 operators,
// 64 of them stages; 256 partitions; 1,000 jobs and 16 MiB made of one block; 1 MiB of state in a
// partition.
#ifndef MILLRACE_FLOW_H
#define MILLRACE_FLOW_H

#include <millrace.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MR_FLOW_NAME = 60,        // bytes of a name, at most: of a flow, an operator, an output
    MR_FLOW_PARTITIONS = 256, // of an operator, at most
};
typedef struct mr_flow mr_flow;
typedef struct mr_flow_out mr_flow_out; // what a function of an operator makes

typedef struct mr_pair {
    mr_bytes key, value;
} mr_pair;

typedef struct mr_flow_options {
    const char *epic;    // the input's name; NULL: as the flow. Another is read from its beginning
    const char *on_dead; // "skip" (default) or "halt": of all operators
    const char *backoff; // between attempts, as mr_stage_set has it; NULL: 1s..5m
    const char *sync;    // of mr_flow_file: "always" (default) or "none"
    uint32_t attempts;   // 0: 10
    uint32_t jobs;       // of each operator at once; 0: self-tuned
    uint32_t ahead;      // blocks read ahead of the workers, at most; 0: 32
    // As that of mr_work_options, with this `arg`; NULL: none.
    void (*on_stop)(mr_job *, void *arg);
    void *arg;
    uint64_t reserved[6];
} mr_flow_options;

typedef struct mr_operator_options {
    const char *title;             // what reasons call it; NULL: "operator NAME"
    const char *on_dead, *backoff; // NULL: as the flow
    uint32_t attempts, jobs;       // 0: as the flow
    uint32_t partitions;           // 0: 64, and 1 for sources and sinks; MR_FLOW_PARTITIONS
    uint32_t block;                // pairs in a job at most, as far as 1,000 jobs allow; 0: any
    uint32_t apart;                // not 0: a stage of its own in any case
    uint64_t reserved[7];
} mr_operator_options;

// Makes an empty flow. The engine stays the caller's and must not be closed before the flow. The
// name has 1 to MR_FLOW_NAME of A-Za-z0-9._-
int mr_flow_open(mr *, const char *name, const mr_flow_options *, mr_flow **out);

// Stops it if it runs, and frees it. What was not finished stays in the engine. NULL is fine. No
// other thread may be calling, or call later, with this flow. MR_EBUSY: called by its own
// functions.
int mr_flow_close(mr_flow *);

// ---- Operators: MR_EINVAL for names that are not possible or taken ----

// A function of map, flat_map, filter, split and stage: looks at a pair, which is borrowed until it
// returns, and emits. 0, or negative: it failed. MR_EDEAD: this pair will never do, and is set
// apart at once. MR_EBUSY: not now; the job is given back and comes again, and no attempt counts. A
// filter answers 1 to keep the pair, 0 to drop it.
typedef int mr_flow_function(mr_pair, mr_flow_out *, void *arg);

// Emits a pair. Both are copied. Whatever is refused here also fails the attempt: MR_EINVAL: there
// is no such output, or this is not the time; MR_ETOOBIG.
int mr_flow_emit(mr_flow_out *, mr_bytes key, mr_bytes value);
int mr_flow_emit_to(mr_flow_out *, const char *output, mr_bytes key, mr_bytes value);
int mr_flow_set_reason(mr_flow_out *, const char *); // why, when the function then fails
// And the key that the dead letter is then listed under, where the function has found another than
// that of its pair. Copied, 1,024 bytes of it at most. MR_EINVAL: no function of an operator runs.
int mr_flow_set_key(mr_flow_out *, mr_bytes key);
// And what the work has printed, which is kept as by mr_job_set_output.
int mr_flow_set_output(mr_flow_out *, mr_bytes);

// The job that the pair came in, to look at; its end is the flow's. NULL in a source.
const mr_job *mr_flow_job(const mr_flow_out *);

// Gives the pairs of block `number` (1, 2, 3 …): 0; MR_FLOW_END: there are no more than those
// before it. Called with one number after another by a thread of the flow; the first is the one at
// which an interrupted flow goes on, and one number must always mean the same pairs. A block is a
// job, so many small pairs a call are quicker; it has at most 16 MiB. Blocks run one after another,
// in order, unless the source has more partitions. Negative: the flow stops with it. To the engine
// a source is the epic EPIC/SOURCE/RUN, which can be looked at as any other.
typedef int mr_flow_read(uint64_t number, mr_flow_out *, void *arg);
enum { MR_FLOW_END = 1 };

// In a source: how many blocks there will be, as far as that is known, for people who look at its
// progress. MR_EINVAL: this is no source.
int mr_flow_expect(mr_flow_out *, uint64_t blocks);

int mr_flow_source(mr_flow *, const char *name, mr_flow_read *, void *arg,
                   const mr_operator_options *);

// A source of the lines of a file, without key and line end, read lazily. A line has at most 15
// MiB. Until the flow is over what was read must stay as it is: it is passed over, not compared,
// when the flow goes on, which stops with MR_EINVAL if the file has become shorter.
int mr_flow_lines(mr_flow *, const char *name, const char *path, const mr_operator_options *);

// A source of jobs that others push into `stage` (its whole name): their keys and bodies. It has no
// end, so the flow has none before mr_flow_stop.
int mr_flow_take(mr_flow *, const char *name, const char *stage, const mr_operator_options *);

int mr_flow_map(mr_flow *, const char *name, const char *from, mr_flow_function *, void *arg,
                const mr_operator_options *); // must emit exactly one
int mr_flow_flat_map(mr_flow *, const char *name, const char *from, mr_flow_function *, void *arg,
                     const mr_operator_options *);
int mr_flow_filter(mr_flow *, const char *name, const char *from, mr_flow_function *, void *arg,
                   const mr_operator_options *);

// `outputs` are the names it may emit to, separated by blanks. What no operator takes is dropped.
int mr_flow_split(mr_flow *, const char *name, const char *from, const char *outputs,
                  mr_flow_function *, void *arg, const mr_operator_options *);
int mr_flow_merge(mr_flow *, const char *name, const char *from, const mr_operator_options *);

// Windows by count, for each key: the first begins with its first value, another one `slide` values
// later, each has `size` values. Slide < size: they overlap; > size: values between them are left
// out. What has been begun when the source ends is emitted with what it has, the oldest first
// (`drop_last` not 0: it is dropped).
typedef struct mr_window {
    uint64_t size;  // 0: all values of the key, emitted at the end
    uint64_t slide; // 0: as size
    uint32_t drop_last;
    uint64_t reserved[4];
} mr_window;

// Folds a value into what its window has so far (`so_far` is {NULL, 0} for the first one), and says
// with mr_flow_set what it has now. Pure: it may be called again for the same values.
typedef int mr_flow_fold(mr_bytes key, mr_bytes so_far, mr_bytes value, mr_flow_out *, void *arg);
int mr_flow_set(mr_flow_out *, mr_bytes);

// Folds of decimal numbers. Whole ones are exact within 64 bits, with a point or an exponent they
// are doubles. What is no number, or makes a whole sum leave 64 bits, is set apart at once
// (MR_EDEAD). `arg` is not used.
mr_flow_fold mr_flow_sum, mr_flow_min, mr_flow_max;
mr_flow_fold mr_flow_count; // of values, whatever they are

// Emits the key and the fold of each window. NULL: one window of all.
int mr_flow_aggregate(mr_flow *, const char *name, const char *from, mr_flow_fold *, void *arg,
                      const mr_window *, const mr_operator_options *);

// The state that the function's key kept from the pair before; empty: none. To replace it:
// mr_flow_set; empty deletes it. States of all keys of a partition together have 1 MiB; they stay
// with the engine, also for the next epic.
mr_bytes mr_flow_state(const mr_flow_out *);
int mr_flow_stage(mr_flow *, const char *name, const char *from, mr_flow_function *, void *arg,
                  const mr_operator_options *);

// Called for each pair that the flow has committed. If the process is killed it may be called again
// for pairs whose end was not recorded yet, with the same `number`. Numbers of one partition grow,
// no two pairs of an operator have the same, and with one partition they are 1, 2, 3 …: a receiver
// that writes elsewhere keeps the last number there and leaves out pairs that are not above it.
// Negative: it failed.
typedef int mr_flow_receive(mr_pair, uint64_t number, void *arg);
int mr_flow_sink(mr_flow *, const char *name, const char *from, mr_flow_receive *, void *arg,
                 const mr_operator_options *);

// Appends "KEY TAB VALUE LF" to a file of the flow's own (without key: "VALUE LF"), exactly once:
// how far it was written is part of the commit, and what is behind that is cut off when the flow
// goes on. It is emptied when the flow first runs. Before each commit it is on disk, which takes
// time; with `sync` "none" a power cut may lose what was committed. MR_ECORRUPT: it is shorter than
// was committed.
int mr_flow_file(mr_flow *, const char *name, const char *from, const char *path,
                 const mr_operator_options *);

// Pushes each pair into `stage` (its whole name), exactly once.
int mr_flow_push(mr_flow *, const char *name, const char *from, const char *stage,
                 const mr_operator_options *);

// Pairs of `from` go to `to` as well, where that makes a cycle: only so may there be one.
int mr_flow_loop(mr_flow *, const char *from, const char *to);

// ---- Running ----

// Whether the graph can run: MR_EINVAL with a sentence that names the operator: unknown ones in
// `from`, outputs that do not exist, cycles that were not declared, windows without a size, no
// source, operators that nothing reaches, too many stages or partitions.
int mr_flow_check(mr_flow *);

// Checks it, and begins to read and to work, in threads of its own. A flow that other processes run
// at this moment is joined: they share the work, and mr_flow_wait returns in each. Else, unless an
// earlier run has to go on, another run begins; jobs that have died in the one before are dropped.
// MR_EINVAL also: this flow was begun with other operators, windows, folds, partitions or files
// (the sentence says which), or it was started before.
int mr_flow_start(mr_flow *);

// Waits until the flow is over; the end is seen to here, so a flow with an end wants to be waited
// for, by one thread at a time. MR_EAGAIN: not in time. MR_EDEAD: it is over, but jobs of it are
// dead; or it can not be over while "halt" holds a partition; the sentence has operator, job and
// reason. Retried or dropped jobs let it go on: wait again. MR_ECANCELLED: it was stopped. Else
// what the source answered, or what stopped the engine.
int mr_flow_wait(mr_flow *, int64_t wait_ms);

// Reads and takes nothing more and waits until what runs has ended; the rest stays for the next
// run. MR_EBUSY: not in time; call again.
int mr_flow_stop(mr_flow *, int64_t wait_ms);

// Of a flow that is over and not stopped: has the engine forget its states, so that it begins anew
// when it is run again. Dead jobs stay until then. Several may do so, at any time: what belongs to
// a later run is left alone. MR_EINVAL: it is not over; MR_EAGAIN: it was not done in time, and can
// be done again.
int mr_flow_forget(mr_flow *, int64_t wait_ms);

typedef struct mr_flow_info {
    uint64_t read;             // blocks of the source
    uint64_t waiting, running; // jobs of its stages
    uint64_t dead, failed;     // jobs; attempts
    int over;                  // 1: mr_flow_wait has seen that it is over
    uint64_t run;              // its number: 1, 2, 3 …
    uint64_t reserved[7];
} mr_flow_info;

int mr_flow_look(mr_flow *, mr_flow_info *out);

#ifdef __cplusplus
}
#endif
#endif
