// The state of a flow; used by the files of this folder only. Everything here is built on the
// public API: an engine of any kind runs a flow.
//
//     reader ──epic──► FLOW/source ──emits──► FLOW/count ──emits──► FLOW/out
//                       │ head + what is fused      │ head, state        │ head
//                       └ split ─ filter ──────────►┘ by partition
//
// An operator is a head, which has a stage of its own, or fused: it runs inside the heads before
// it. A job is a block of pairs; its key is the number of a partition of the head that it goes to.
#ifndef FLOW_STATE_H
#define FLOW_STATE_H

#include "base/buffer.h"
#include "base/limits.h"
#include "flow/keyed.h"
#include "millrace_flow.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    FLOW_NAME = MR_FLOW_NAME,
    EPIC_NAME = EPIC_NAME_MOST + 1,              // with its 0: EPIC/SOURCE/RUN, of which …
    FLOW_EPIC = EPIC_NAME_MOST - FLOW_NAME - 22, // … the first has so many bytes at most
    FLOW_OPERATORS = 256,                        // of a flow
    FLOW_STAGES = 64,                            // of them, those that have a stage
    FLOW_OUTPUTS = 64,                           // of a split
    FLOW_PARTITIONS = MR_FLOW_PARTITIONS,
    FLOW_SPREAD = 64,                   // partitions of an operator without the option
    FLOW_AHEAD = 32,                    // blocks that are read ahead
    FLOW_EMITS = EMITS_MOST,            // jobs that one commit pushes
    FLOW_MADE = (16 << 20) - (1 << 16), // bytes of pairs of one commit; the engine's own come to it
    FLOW_BATCH = 8,                     // jobs of a partition that an aggregate takes at once
    FLOW_SLICE_MS = 200,                // how often a wait looks whether the flow was stopped
};

enum operator_kind {
    OPERATOR_SOURCE,
    OPERATOR_TAKE,
    OPERATOR_MAP,
    OPERATOR_FLAT_MAP,
    OPERATOR_FILTER,
    OPERATOR_SPLIT,
    OPERATOR_MERGE,
    OPERATOR_AGGREGATE,
    OPERATOR_STAGE,
    OPERATOR_SINK,
    OPERATOR_FILE,
    OPERATOR_PUSH,
};

struct op;
struct line_source;
struct letter;

struct edge {
    struct op *to;
    uint32_t output; // of the operator that it leaves
};

// A source's reader: a thread that follows the demand of the workers.
struct reader_thread {
    pthread_t thread;
    bool started, finished; // under the flow's lock
    int err;
    char error[512];
};

struct op {
    struct mr_flow *flow;
    enum operator_kind kind;
    uint32_t number; // in order of making
    char name[FLOW_NAME + 1];
    char *title;        // of reasons
    char *from, *loops; // as given: what it takes from; by mr_flow_loop, too
    char *outputs;      // of a split: names, each with its 0
    uint32_t output_count;
    void *arg;
    union {
        mr_flow_read *read;
        mr_flow_function *function;
        mr_flow_fold *fold;
        mr_flow_receive *receive;
    };
    mr_window window;
    char *path; // of lines or a file; the stage of take and push
    struct line_source *lines;
    int fd; // of a file
    mr_operator_options options;
    char on_dead[8], backoff[32];

    // Found by flow_graph.
    struct edge *edges;
    uint32_t edge_count;
    bool head, keyed_state;
    char stage[2 * FLOW_NAME + 2 + 200]; // of a head
    uint32_t head_number, group;         // heads of a group can reach each other

    // While it runs.
    mr_worker *worker;
    struct reader_thread reader;
    _Atomic uint64_t blocks_read;
    mr_id *orders; // jobs of the last order; those from `orders_done` on may run still
    uint32_t order_count, orders_done;
    uint64_t flushed_at; // jobs done when the last flush is and nothing else, + 1; 0: never
};

struct mr_flow {
    mr *engine;
    char name[FLOW_NAME + 1];
    char epic[FLOW_EPIC + 1];
    mr_flow_options options;
    char on_dead[8], backoff[32];
    bool syncs_files;
    struct op *operators[FLOW_OPERATORS];
    uint32_t count;
    struct op *heads[FLOW_STAGES]; // in the order in which they end
    uint32_t head_count;
    bool checked, started;
    uint64_t run;            // its number, from 1; 0: it has not been started
    _Atomic uint64_t latest; // the latest run known: another process may have begun one
    atomic_bool over;
    atomic_bool stopping;

    pthread_mutex_t lock; // guards what follows, and the readers' ends
    pthread_cond_t changed;
    struct mr_flow_out *free_outs; // between jobs
};

// ---- graph.c: from names to edges -------------------------------------------------------------

// Finds edges, heads and groups. MR_EINVAL names the operator that can not be.
int flow_graph(struct mr_flow *);

// One line for each head: what a flow must keep while it has jobs and states in an engine.
int flow_describe(const struct mr_flow *, struct buffer *out);

// The number of an output, from 1; 0 is the one without a name. False: there is none.
bool op_output(const struct op *, const char *name, uint32_t *out);

const char *kind_name(enum operator_kind);
bool is_source(const struct op *);
bool is_sink(const struct op *);
bool keeps_state(const struct op *);

// ---- folds.c: folds that come with the library ------------------------------------------------

// The name of a fold; a fold of the program is "a function".
const char *fold_name(mr_flow_fold *);

// ---- out.c: what functions make ---------------------------------------------------------------

// Pairs on their way to one head: a block for each of its partitions, and one behind them for pairs
// that may go anywhere.
struct out_part {
    struct buffer pairs; // begins as the job's body does
    uint32_t count;
};
struct out_route {
    struct out_part *parts;
    uint32_t part_count;
};

// What the function that runs now may do.
enum may { MAY_NOTHING, MAY_EMIT, MAY_SET, MAY_EMIT_AND_SET };

struct frame {
    struct op *op;
    enum may may;
    uint32_t emitted;
    struct frame *below; // of the function that emitted the pair it runs on
};

struct mr_flow_out {
    struct mr_flow *flow;
    struct op *head;
    mr_job *job;         // NULL: a reader's
    uint64_t run;        // of the job, and of what is made of it
    struct frame *frame; // of the function that runs now
    struct out_route routes[FLOW_STAGES];
    size_t bytes;          // on all routes
    size_t bytes_before;   // the pair that runs now
    struct buffer block;   // a reader's …
    uint64_t expected;     // … and how many there will be; 0: it does not say
    struct buffer letters; // dead letters of pairs that failed in the job's last attempt, …
    uint32_t letter_count; // … so many
    struct out_part aside; // pairs that go back to the head
    mr_bytes kept;         // by the partition, in this run
    struct keyed keyed;    // the same, if it has keys
    struct buffer set;     // by mr_flow_set
    bool has_set;
    mr_bytes state; // of the pair's key
    struct buffer windows, text, saved;
    uint64_t received; // of a sink: pairs so far
    bool flushed;      // something was
    bool apart;        // pairs that will never do are set apart

    int err; // the first failure; what follows is not done
    struct op *failed;
    char reason[400];
    char key[KEY_MOST];           // that the dead letter is listed under
    size_t key_size;              // 0: under that of the pair
    char output[LAST_WORDS_MOST]; // the end of what the work has printed
    size_t output_size;
    struct mr_flow_out *next;
};

// A free one, or a new one; NULL with MR_ENOMEM noted.
struct mr_flow_out *out_new(struct op *head, mr_job *);
void out_reuse(struct mr_flow_out *);
void out_destroy(struct mr_flow_out *);

// Notes the first failure, and whose it was. Returns `code`.
int out_fail(struct mr_flow_out *, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Around every call of a function: what it may do, and whether it failed.
void frame_begin(struct mr_flow_out *, struct frame *, struct op *, enum may);
int frame_end(struct mr_flow_out *, int answer);

// Sends a pair along the edges of an output.
int out_send(struct mr_flow_out *, struct op *from, uint32_t output, mr_pair);

// Adds all that was made to the job's commit.
int out_emit(struct mr_flow_out *);

// In a last attempt: what was made of a pair that failed is taken back, and the pair set apart.
struct marks {
    struct mark {
        size_t size;
        uint32_t count;
    } * marks; // of every part; mem_free
    size_t bytes;
};
int out_mark(struct mr_flow_out *, struct marks *);
void out_return(struct mr_flow_out *, struct marks *);
int out_set_aside(struct mr_flow_out *, mr_pair, mr_bytes key, mr_bytes reason);
// Emits the pair of a letter that was retried into its partition again.
int out_put_back(struct mr_flow_out *, const struct letter *);

// The partition that a job belongs to, which its key is.
uint32_t job_partition(const mr_job *);

// ---- operate.c: what each kind does -----------------------------------------------------------

int operate(struct mr_flow_out *, struct op *, mr_pair);

// ---- window.c: aggregates ---------------------------------------------------------------------

int window_add(struct mr_flow_out *, struct op *, mr_pair);
// Emits what was begun and forgets it.
int window_flush(struct mr_flow_out *, struct op *);

// ---- sink.c: where pairs leave ----------------------------------------------------------------

int sink_begin(struct mr_flow_out *, struct op *);
int sink_add(struct mr_flow_out *, struct op *, mr_pair);
int sink_end(struct mr_flow_out *, struct op *);

// ---- head.c: a job ----------------------------------------------------------------------------

int head_handle(mr_job *, void *op);
void head_on_stop(mr_job *, void *op);

// ---- line_source.c: a source of the lines of a file -------------------------------------------

int line_source_open(const char *path, struct line_source **out);
int line_source_block(uint64_t number, mr_flow_out *, void *lines);
void line_source_close(struct line_source *);

// ---- source.c: readers ------------------------------------------------------------------------

// What the engine calls the input of a source, in a run.
void source_epic(const struct op *, uint64_t run, char out[EPIC_NAME]);
int source_start(struct op *);
// Waits until the reader has ended because the flow stops. MR_EBUSY: not in time.
int source_stop(struct op *, uint64_t until_ms);

// ---- run.c: starting and stopping -------------------------------------------------------------

// Notes that this run is over, unless another one has begun.
int flow_end_run(struct mr_flow *);

// ---- end.c: the end travels -------------------------------------------------------------------

// Waits until then; returns what mr_flow_wait does.
int flow_end(struct mr_flow *, uint64_t until_ms);
// Pushes an order, a block without pairs, to every partition of the head.
int head_order(struct op *, uint8_t what);
// Waits until all orders are done; `out_any`: whether any flushed something. MR_EAGAIN: not in
// time.
int head_ordered(struct op *, uint64_t until_ms, bool *out_any);
// The instant at which a wait from now on is over.
uint64_t flow_until_ms(int64_t wait_ms);
// With the lock: sleeps until something has changed, or until then.
void flow_sleep(struct mr_flow *, uint64_t until_ms);

#endif
