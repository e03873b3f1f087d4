// Engine: what every engine can do, wherever it is. The local one stands beside this file.
//
//     api ──┐   push call await …   ┌──────────┐◄── mem:, file:DIR: shards in this process
//           ├──────────────────────►│  engine  │
//     work ─┘   puller: take beat   └──────────┘◄── millrace://: a server (src/client)
//
// Any thread may call anything; calls that take a wait block for at most that long. Errors are
// those of millrace.h, with a sentence in error_text(); outputs are untouched on failure. The
// caller has checked the arguments: pointers, waits and option structs are well formed. The engine
// checks what depends on names, sizes and its state.
//
// A puller takes for one worker: its leases end with it. Its `on_stop` is called, with no lock
// held, for leased jobs that must stop. A puller with `ring` belongs to a worker with a loop of its
// own: the engine calls `ring`, from any thread and perhaps under a lock, when `take` or
// `stop_notices` has something for it; takes then never wait, and one that finds nothing stays
// pending.
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/limits.h"
#include "base/store_url.h"
#include "engine/leased_job.h"
#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

struct engine {
    const struct engine_impl *impl;
};

struct puller {
    struct engine *engine;
};

struct puller_options {
    void (*on_stop)(mr_job *, void *arg);
    void (*ring)(void *arg);
    void *arg;
    bool handlers; // its jobs are pinned for a handler as well; FINISH_UNPIN or `unpin` ends that
};

struct pull {
    const mr_bytes *stages; // served in this order
    size_t stage_count;
    uint32_t batch; // of one channel; at least 1
    uint32_t count; // in all; 0: as many as `batch`. An engine may return fewer
    int64_t lease_ms, wait_ms;
    uint32_t level; // how many jobs the worker runs at once, for people who look; 0: not reported
};

// A push with a number, 1, 2, 3 …, of a source of its stage: a number that was used before makes no
// second job. Numbers of an epic are remembered until it is dropped, others while they are used.
struct push_number {
    mr_bytes source;
    uint64_t number;
    bool epic;
};

// How a job is ended: FINISH_WAIT until that is durable (else it is when something later is);
// FINISH_UNPIN with the handler's pin.
enum { FINISH_WAIT = 1, FINISH_UNPIN = 2 };

// What is done to a schedule.
enum schedule_act { SCHEDULE_DROP, SCHEDULE_PAUSE, SCHEDULE_RESUME, SCHEDULE_NOW };

struct engine_impl {
    // MR_EBUSY while anything is in use. Frees.
    int (*close)(struct engine *);

    // Pushing: see millrace.h. `out_id` may be NULL.
    int (*push)(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
                mr_id *out_id);
    // `first` (may be NULL) numbers the first item, and those behind it go on from there. The id of
    // a repeat is the first one's, or 0 when that is no longer known.
    int (*push_many)(struct engine *, mr_bytes stage, const mr_item *, size_t count,
                     const mr_push_options *, const struct push_number *first, mr_id *out_ids,
                     size_t *out_count);
    int (*call)(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
                struct buffer *out_result);
    int (*call_start)(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
                      mr_on_end *, void *arg, mr_id *out_id);
    int (*await)(struct engine *, mr_id, int64_t wait_ms, struct buffer *out_result);
    int (*cancel)(struct engine *, mr_id);
    int (*stage_wait_empty)(struct engine *, mr_bytes stage, int64_t wait_ms);

    // Working. MR_EAGAIN: nothing in time, or interrupted. MR_ESTOPPED: to a worker only if no
    // later take can succeed. The jobs of a take hang on `next`.
    int (*puller_open)(struct engine *, const struct puller_options *, struct puller **out);
    void (*puller_interrupt)(struct puller *); // takes end, now and from now on
    // Releases what was granted, ends pending takes, and waits for callbacks that run and for what
    // its jobs recorded to be durable. None of its jobs may be leased any more. Takes NULL.
    void (*puller_close)(struct puller *);
    int (*take)(struct puller *, const struct pull *, mr_job **out);
    void (*stop_notices)(struct puller *); // with `ring`: calls on_stop for what there is, here

    // These end a claimed job and use it up whatever they return.
    int (*done)(mr_job *, unsigned how);
    // `done` with FINISH_UNPIN of one job or of several of different channels, which hang on
    // `next`; then a take of the same puller that does not wait, in one turn. `out_done` is how
    // many were committed. MR_EAGAIN, without a sentence: it found nothing, or did not look.
    // NULL: the engine gains nothing by it.
    int (*done_take)(mr_job *ended, const struct pull *, uint32_t *out_done, mr_job **out);
    int (*fail)(mr_job *, mr_bytes reason, int64_t retry_ms, unsigned how);
    int (*release)(mr_job *, int64_t delay_ms, unsigned how);
    void (*unpin)(mr_job *);
    int (*beat)(mr_job *);
    // Beats, too. Unless it `waits` for the answer: MR_EAGAIN, without a sentence: nothing was
    // sent, since a server does not answer now.
    int (*progress)(mr_job *, const struct job_progress *, bool waits);
    // Extends all leases of the puller that have run a third of their time. Returns the
    // milliseconds until the next one has; -1: nothing is leased.
    int64_t (*beat_all)(struct puller *);

    // Epics. The strings of the info are this thread's. MR_EGONE: the stage has none of
    // that name.
    int (*epic)(struct engine *, mr_bytes stage, mr_bytes name, mr_epic_info *out);
    // Waits until at most `left` of its jobs have not ended; -1: until it is over. If it is not 0,
    // notes how many are `expected` in all. MR_EAGAIN: not in time.
    int (*epic_wait)(struct engine *, mr_bytes stage, mr_bytes name, int64_t left,
                     uint64_t expected, int64_t wait_ms, mr_epic_info *out);
    int (*epic_end)(struct engine *, mr_bytes stage, mr_bytes name, uint64_t total);
    int (*epic_skip)(struct engine *, mr_bytes stage, mr_bytes name, uint64_t number);
    int (*epic_then)(struct engine *, mr_bytes stage, mr_bytes name, const struct emit *);
    int (*epic_cancel)(struct engine *, mr_bytes stage, mr_bytes name);
    int (*epic_forget)(struct engine *, mr_bytes stage, mr_bytes name, uint64_t after_ms);
    int (*epic_drop)(struct engine *, mr_bytes stage, mr_bytes name);

    // Schedules. `cron` and `tz` of the options may be NULL; the engine checks them and `missed`.
    int (*schedule_set)(struct engine *, mr_bytes stage, mr_bytes name, mr_bytes body,
                        const mr_schedule_options *);
    int (*schedule_act)(struct engine *, mr_bytes stage, mr_bytes name, enum schedule_act);
    int (*schedule)(struct engine *, mr_bytes stage, mr_bytes name, mr_schedule_info *out);
    int (*schedules)(struct engine *, mr_bytes stage, // empty: of all
                     int (*each)(const mr_schedule_info *, void *arg), void *arg);

    // Looking and acting. Strings of an info are this thread's until its next look.
    // `each` is called with no lock held.
    int (*stage_look)(struct engine *, mr_bytes stage, mr_stage_info *out);
    int (*stages)(struct engine *, int (*each)(const mr_stage_info *, void *arg), void *arg);
    int (*stage_why)(struct engine *, mr_bytes stage, char *out, size_t size);
    int (*stage_set)(struct engine *, mr_bytes stage, mr_bytes policy, mr_bytes value);
    int (*stage_pause)(struct engine *, mr_bytes stage);
    int (*stage_pause_key)(struct engine *, mr_bytes stage, mr_bytes key);
    int (*stage_resume_key)(struct engine *, mr_bytes stage, mr_bytes key);
    int (*stage_drain)(struct engine *, mr_bytes stage);
    int (*stage_resume)(struct engine *, mr_bytes stage);
    // `status` of the filter is checked by the engine.
    int (*jobs)(struct engine *, mr_bytes stage, const mr_job_filter *,
                int (*each)(const mr_job_info *, void *arg), void *arg);
    // So many at most as the filter's `count`, or all; with `dry` they are only counted.
    int (*stage_cancel)(struct engine *, mr_bytes stage, const mr_job_filter *, bool dry,
                        uint64_t *out_count);
    int (*dead)(struct engine *, mr_bytes stage,
                int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg);
    int (*retry)(struct engine *, mr_id);
    int (*due)(struct engine *, mr_id);
    int (*drop)(struct engine *, mr_id);
    int (*check)(struct engine *); // see mr_check
};

// A schedule as an engine answers it, with room for its texts; engines fill these in.
struct schedule_answer {
    mr_schedule_info info; // but for what it points to
    char stage[STAGE_NAME_MOST + 1], name[SCHEDULE_NAME_MOST + 1], cron[CRON_MOST + 1];
    char tz[ZONE_NAME_MOST + 1], missed[8];
    char key[KEY_MOST + 1];
    uint32_t key_size;
};

// Copies a text, cut to the room that there is, with its 0.
void schedule_answer_text(mr_bytes text, char *to, size_t size);

// The info of a copy that stays where it is.
mr_schedule_info schedule_answer_info(const struct schedule_answer *);

// Whether this can be a stage's name, on any engine: 0, or MR_EINVAL with what can.
int engine_check_stage(mr_bytes name);

enum engine_sync { ENGINE_SYNC_ALWAYS, ENGINE_SYNC_INTERVAL, ENGINE_SYNC_NONE };

struct local_options {
    struct store_url store;
    enum engine_sync sync;
    uint32_t interval_ms;
    uint64_t max_bytes; // 0: none
    uint32_t shards;    // 0: as many as the store has; 1 if it is new
};

// An engine in this process, on memory or file logs. MR_EINVAL: too many shards, or not as many as
// the store has; and the log's errors.
int local_engine_open(const struct local_options *, struct engine **out);

#endif
