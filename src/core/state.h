// What the core remembers: the structs behind core.h, shared by the files of this folder only.
//
//   stage ──► ready, parked ──► channel ──► jobs          lines: lists of 32-bit numbers
//     │                            └──► state
//     ├──► dead, ended ──► jobs
//     └──► takers, pushers                                borrowed from the owner
//
// A job is 64 bytes whatever its body, which stays in the log; what only some jobs have (a
// deadline, a `once`, callers …) hangs on it as a chain of attributes, which ends in the number of
// the job. A channel with a key is a struct of its own; a job without a key is its own channel, so
// a channel is named by a tagged number: see `chan`.
#ifndef CORE_STATE_H
#define CORE_STATE_H

#include "base/heap.h"
#include "base/hints.h"
#include "base/idmap.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/slab.h"
#include "core/core.h"
#include "core/live.h"
#include "core/measure.h"
#include "core/record.h"
#include "core/watch.h"

enum { STEPS_EPIC = 10 };    // what it costs to look at an epic: its numbers are searched
enum { STEPS_REASONS = 20 }; // what it costs to read the reasons of a job from the log
enum { STEPS_DUE = 10 };     // what it costs to do something that is due (core_take_steps)
enum {
    RETRY_AFTER_MS = 100
}; // what could not be done for want of memory or disk is tried again then

// A channel: CHAN_KEYED and the number of a struct channel, or the number of a job without a key.
typedef uint32_t chan;
#define CHAN_KEYED UINT32_C(0x80000000)

struct line_link {
    uint32_t prev, next;
};

// A list of jobs, or of channels, through their links.
struct job_line {
    uint32_t head, tail, count;
};

enum job_flag {
    JOB_CHANNEL_STATE = 3, // two bits: the state of a channel that is this job
    JOB_WANTED_FOR_GOOD = 1 << 2,
    JOB_HAS_SOURCE = 1 << 3,
    JOB_IN_GRACE = 1 << 4, // a call from before a restart: its callers may still come back
    JOB_RELEASED = 1 << 5, // parked because it was released again and again: not recorded
    JOB_HALTS = 1 << 6,    // dead, and its channel goes no further than its place
    JOB_UNREAD = 1 << 7,   // its body could not be read: it stands first in its block; not recorded
};

struct job {
    uint64_t id;
    uint64_t at;       // its home: the entry with its body, or with its result
    uint64_t position; // its place in the channel; once ended, its place among the ended
    uint64_t serial;   // of the lease it runs under or ended under
    uint64_t time_ms;  // when it was pushed; once ended or dead, when that was
    struct line_link
        link;       // in its channel; without a key, in ready or parked; in delayed, dead, ended
    uint32_t owner; // CHAN_KEYED and its channel, or its stage
    uint32_t attrs; // the first one, or its own number: it has none
    uint32_t size;  // of its home, for counting live bytes
    uint16_t attempt;
    uint8_t status, flags;
};

_Static_assert(sizeof(struct job) == 64, "a queued job costs 64 bytes");

enum attr_kind {
    ATTR_DEADLINE = 1, // an instant
    ATTR_DUE,          // an instant
    ATTR_ONCE,         // a once
    ATTR_CALL,         // an attr, as all that follow: the first caller; small: how many there are
    ATTR_REASONS,      // value: the FAIL entry; small: its size
    ATTR_COUNTS,       // small: attempts it may have, and from bit 16 how often it was released
    ATTR_SOURCE,       // small: the source; value: its number in it
};

// An attribute is named by its kind, from ATTR_SHIFT on, and its number in the slab of that kind.
// `next` names the job's next one, and in the last of them, with kind 0, the job. Instants and
// names are in pieces of four bytes so that nothing is lost between entries.
enum { ATTR_SHIFT = 29, ATTR_NUMBER = (1 << ATTR_SHIFT) - 1 };

struct attr {
    uint32_t next, small;
    uint64_t value;
};

struct instant {
    uint32_t next, at_ms[2];
};

struct once {
    uint32_t next, name[4]; // a struct hash128
};

_Static_assert(sizeof(struct attr) == 16 && sizeof(struct instant) == 12, "attributes are small");
_Static_assert(sizeof(struct once) == 20, "with its share of a map a once costs 32 bytes");

// A `once` whose job is forgotten.
struct spent {
    struct hash128 name;
    uint64_t id, ended_ms, at;
    uint32_t size, next; // next in the stage's line, oldest first
};

#define ONCE_SPENT UINT32_C(0x80000000) // tags a value of the map `once`

struct channel {
    struct line_link link; // in ready, parked or idle; in progress: `next` is the lease
    struct line_link deep; // among channels of like depth
    struct job_line jobs;  // not ended, in order of position
    uint32_t pins;         // delayed and dead jobs that will come back to it
    uint32_t state;        // number of a struct state; 0: none
    uint32_t halted;       // the first dead job that it will not pass
    uint32_t key;          // its number in `keys`; 0: this entry is free
    uint16_t stage;
    uint8_t channel_state; // an enum channel_state
    bool idle : 1;         // dormant and of no use: in the stage's line of such
    bool halts_again : 1;  // there may be others like `halted`, further on
};

_Static_assert(sizeof(struct channel) == 48, "with its share of a map: 64 bytes and its key");

// A channel's state: where it is kept.
struct state {
    uint64_t at, time_ms;
    uint32_t size, channel;
    struct line_link link; // in the stage's line of states, least recently set first
};

struct stage_edge {
    uint32_t to;
    bool in_cycle;
};

enum { DEPTHS = 512 }; // lists of channels of like depth

struct stage {
    uint8_t name_size;
    char name[STAGE_NAME_MOST];
    bool recorded, dirty, paused, draining;
    bool over;          // beyond its high mark
    bool over_notified; // as the other shards have heard
    bool over_at_peer;  // as this one has heard of a stage that lives in another
    uint64_t mark_notified,
        mark_at_peer;                // the same of its high mark; 0: nothing, it is the usual one
    uint64_t quiet_from, quiet_span; // depths from here on, so many, that turn nothing
    bool serve_timer;                // one is planned
    uint32_t number;
    uint32_t maker; // who made it; 0: not known
    uint64_t at;
    uint32_t size; // of its home
    struct policy policy;
    struct job_line ready, parked, dead, ended, states, idle;
    struct job_line delayed; // in order of ids
    uint32_t first_spent, last_spent;
    uint64_t by_status[JOB_CANCELLED + 1];
    uint64_t pushed, done, failed, died, expired, cancelled, wasted_wait_ms;
    uint64_t leases,
        leased; // leases; jobs under them that were not answered: those count as running
    uint64_t granted_rooms, linked; // linked: emits to it that have not arrived
    uint64_t outboxed;              // emits to it that the outboxes still have
    uint64_t halted;                // channels with a dead job that halts them
    uint64_t rate_next_us, sweep_at_ms;
    struct list takers, pushers;
    uint32_t taker_count, next_dirty;
    uint32_t sources; // epics and clients that number their pushes into it
    struct stage_edge edges[CORE_EDGES];
    uint32_t edge_count, edges_here; // how many go out, and how many of others lead here
    chan deep[DEPTHS];               // their first
    uint64_t deep_bits[DEPTHS / 64];
    struct ages ages;
    uint64_t oldest_ms; // at opening
    struct rate in, out;
    struct histogram *waits, *runs;
};

struct leased {
    uint64_t id;  // 0: let go before its turn
    uint32_t job; // where it was then
};

struct lease {
    uint64_t serial, until_ms, began_ms; // the last: of the job that runs now
    uint64_t timer_ms;                   // when its timer rings: outlives it, see lease_plan
    uint32_t timer_order, order; // among those that ring then; among those that end together
    uint32_t number, lease_ms, stage;
    chan channel;         // 0: it has let go of the channel (its only job was ended by others)
    uint32_t count, next; // jobs under it; the first not let go
    struct leased only, *block; // the only one, or all
    struct conn *conn;          // NULL: lost, and waiting out its time
    bool detached, lost; // outlives its connection; that is gone, which is not written down yet
    uint32_t attempt;    // of the first job not let go, as told to `running`
    struct lease_record *record; // by which it outlives the engine; NULL: it ends with it
    struct list of_conn;
};

// What the log knows of a lease: see lease_record.c.
struct lease_record {
    uint64_t at, random;             // its home; the random bits of its token
    uint64_t last_id, last_position; // of the last job under it, as it was leased
    uint32_t size;
    bool restored; // by replay
};

struct source {
    uint64_t number; // names it in records; never used again
    uint64_t at, idle_since_ms;
    uint32_t size, hash;
    uint32_t
        stage; // that it belongs to; 0: an epic of an older store, see source_find_or_stageless
    uint8_t name_size, scope_size;
    char name[EPIC_NAME_MOST], scope[SCOPE_MOST]; // the scope: of a client's source
    struct record_source seen;
    uint64_t unended[JOB_RUNNING + 1];
    uint64_t *ids;     // of the last SOURCE_WINDOW numbers; NULL: not known
    uint64_t jobs;     // that count in it
    uint64_t expected; // of an epic: pushes in all, as far as its reader can tell
    struct watches watches;
    struct list by_use;   // in `sources_by_use`
    uint32_t maker;       // who made it; 0: not known
    bool in_use, indexed; // indexed: found by its name
    bool dropped;         // kept only until the last of its jobs is forgotten
};

enum made { MADE_STAGE, MADE_SOURCE };

struct maker {
    uint64_t name;    // as core_act_for has said
    uint32_t made[2]; // by enum made: how many there are
};

enum timer {
    TIMER_DEADLINE = 1, // a job
    TIMER_DUE,          // a job
    TIMER_GRACE,        // a job
    TIMER_LEASE,        // a lease
    TIMER_SWEEP,        // a stage: something is to be forgotten
    TIMER_SERVE,        // a stage may start again
    TIMER_SOURCES,      // idle sources are to be forgotten
};

// For a group of records on their way out; see record_out.c.
struct out {
    struct entry *entries;
    uint64_t *at;
    size_t count, capacity;
    struct buffer heads;
};

struct core {
    struct core_config config;
    struct core_limits limits;
    uint64_t now_ms, last_position;
    uint64_t late_ms;  // when something that was due was left to the next core_advance last
    uint32_t due_left; // how much that one still does
    uint64_t epoch, random, next_serial;
    uint64_t next_id, id_limit, highest_id;
    uint64_t live_bytes, last_pusher, next_source, room_pushes, room_bytes;
    uint64_t outside_bytes; // of memory, as the owner has told
    uint64_t epoch_at, trim_at, trim_mark, grace_until_ms;
    uint32_t epoch_size, trim_size;
    bool replaying, sources_timer;
    uint64_t maker;             // of what the command at hand makes: see core_act_for
    struct list sources_by_use; // those that are not dropped, unused for longest first
    struct live live;

    struct slab jobs, channels, attrs, instants, onces, spents, states, leases, sources, outbox;
    struct slab makers;
    uint64_t made; // by all of them
    struct pool keys;
    struct idmap by_id;
    struct map by_key, once, source_by_name, source_by_number, outbox_by_number;
    struct map recorded_leases;                                            // by serial
    struct stage **stages;                                                 // by number, from 1
    uint32_t stage_count, stage_capacity, nameless_stages, least_nameless; // none below the last
    struct map stage_by_name, maker_by_name;
    uint32_t last_stage;                         // that stage_find found
    uint32_t stageless_epics;                    // sources without a stage
    uint64_t steps;                              // see core_take_steps
    uint64_t dead_stages[(UINT16_MAX + 1) / 64]; // bit n: stage n may have dead jobs
    bool stages_pinned;                          // by a command that has looked up more than one
    uint64_t stages_searched_ms; // for empty ones, when there was no room: not twice in an instant
    struct link_end *links;      // by shard
    uint32_t link_count;
    uint32_t first_dirty, last_dirty;
    struct heap timers;
    struct out out;
    struct buffer scratch, reasons, grants;
};

static inline struct job *job_at(const struct core *c, uint32_t number) {
    return SLAB_AT(&c->jobs, struct job, number);
}

static inline struct channel *channel_at(const struct core *c, chan ch) {
    return SLAB_AT(&c->channels, struct channel, ch & ~CHAN_KEYED);
}

static inline struct lease *lease_at(const struct core *c, uint32_t number) {
    return SLAB_AT(&c->leases, struct lease, number);
}

static inline struct source *source_at(const struct core *c, uint32_t number) {
    return slab_at(&c->sources, number);
}

static inline struct stage *stage_of(const struct core *c, const struct job *j) {
    return c->stages[j->owner & CHAN_KEYED ? channel_at(c, j->owner)->stage : j->owner];
}

static inline bool job_has_attrs(const struct job *j) {
    return j->attrs >> ATTR_SHIFT;
}

// Whether something that was due may not have been done yet, or was only just.
static inline bool is_late(const struct core *c) {
    return c->late_ms && c->late_ms >= c->now_ms;
}

static inline bool job_is_keyed(const struct job *j) {
    return j->owner & CHAN_KEYED;
}

static inline chan chan_of(const struct core *c, uint32_t job) {
    const struct job *j = job_at(c, job);
    return job_is_keyed(j) ? j->owner : job;
}

static inline enum channel_state chan_state(const struct core *c, chan ref) {
    if (ref & CHAN_KEYED)
        return (enum channel_state)channel_at(c, ref)->channel_state;
    return (enum channel_state)(job_at(c, ref)->flags & JOB_CHANNEL_STATE);
}

// Its first job; 0: none.
static inline uint32_t chan_head(const struct core *c, chan ref) {
    return ref & CHAN_KEYED ? channel_at(c, ref)->jobs.head : ref;
}

static inline struct stage *chan_stage(const struct core *c, chan ref) {
    return ref & CHAN_KEYED ? c->stages[channel_at(c, ref)->stage] : stage_of(c, job_at(c, ref));
}

static inline struct line_link *link_of(const struct core *c, uint32_t ref) {
    return ref & CHAN_KEYED ? &channel_at(c, ref)->link : &job_at(c, ref)->link;
}

// ---- Homes --------------------------------------------------------------------------------------

// Something has its home there from now on, or not any more. Size 0: nowhere.
static inline void home_add(struct core *c, uint64_t at, uint32_t size) {
    c->live_bytes += size;
    if (size)
        *live_at(&c->live, at) += size;
}

static inline void home_remove(struct core *c, uint64_t at, uint32_t size) {
    c->live_bytes -= size;
    if (size)
        *live_at(&c->live, at) -= size;
}

// ---- line.c: lists of numbers -----------------------------------------------------------------

enum place { AT_TAIL, AT_HEAD };

void job_line_add(struct core *, struct job_line *, uint32_t ref, enum place);
void job_line_insert_before(struct core *, struct job_line *, uint32_t ref,
                            uint32_t before); // 0: tail
void job_line_remove(struct core *, struct job_line *, uint32_t ref);
// Sorts by a key, then by id; keeps what is in order already cheaply.
void job_line_sort(struct core *, struct job_line *,
                   uint64_t (*key)(const struct core *, uint32_t ref));

// ---- job.c: the table of jobs and their attributes --------------------------------------------

uint32_t job_find(const struct core *, uint64_t id);
// Makes sure that so many jobs can be created; `has_options`: with any attributes and timers.
int job_reserve(struct core *, uint32_t count, bool has_options);
int job_reserve_due(struct core *);              // a due instant, its timer, and one more attribute
uint32_t job_create(struct core *, uint64_t id); // after job_reserve
void job_free(struct core *, uint32_t number);
void source_count(struct core *, struct job *, enum job_status before, enum job_status after);

static inline void job_set_status(struct core *c, struct job *j, enum job_status status) {
    struct stage *s = stage_of(c, j);
    if (j->flags & JOB_HAS_SOURCE)
        source_count(c, j, (enum job_status)j->status, status);
    s->by_status[j->status]--;
    j->status = (uint8_t)status;
    s->by_status[status]++;
}

static inline void job_set_home(struct core *c, struct job *j, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, j->at, j->size);
    j->at = at;
    j->size = size;
}

uint32_t attr_job(const struct core *, uint32_t attr); // the job that a named attribute hangs on
struct attr *job_attr(const struct core *, const struct job *, enum attr_kind);
bool job_once(const struct core *, const struct job *, struct hash128 *out_name);
struct attr *job_add_attr(struct core *, struct job *, enum attr_kind); // after job_reserve
void job_drop_attr(struct core *, struct job *, enum attr_kind);
void job_set_deadline(struct core *, uint32_t number, uint64_t at_ms); // after job_reserve
bool job_is_past_deadline(const struct core *, const struct job *);
uint64_t job_deadline(const struct core *, const struct job *); // 0: none
uint64_t job_due(const struct core *, const struct job *);      // 0: none
uint32_t job_attempts(const struct core *, const struct job *);
void job_set_due(struct core *, uint32_t number, uint64_t due_ms); // after job_reserve
int reasons_of(struct core *, const struct job *, struct buffer *out);

// ---- channel.c: channels and their states -----------------------------------------------------

chan channel_find(const struct core *, uint32_t stage, mr_bytes key);    // 0: not known
int channel_get(struct core *, uint32_t stage, mr_bytes key, chan *out); // made when missing
mr_bytes channel_key(const struct core *, const struct channel *);
void channel_pin(struct core *, chan);
void channel_unpin(struct core *, chan);
void channel_check_idle(struct core *, chan); // after its pins or its state changed
void channels_forget_idle(struct core *, struct stage *);

// The one function that moves a channel between states.
void channel_move(struct core *, chan, enum channel_state, enum place);
// Puts a channel that is not in progress where its content says.
void channel_resolve(struct core *, chan, enum place);
void channel_deliver(struct core *, uint32_t job); // appends a job to its channel
void channel_insert(struct core *, uint32_t job);  // by its position
void channel_take_out(struct core *, uint32_t job);

// A dead job may halt its channel: that goes on with what stands before it, and no further.
void channel_halt(struct core *, uint32_t dead_job);
void channel_unhalt(struct core *, uint32_t dead_job); // if it does
bool channel_reaches(const struct core *, const struct channel *, uint32_t job);
bool channel_is_halted(const struct core *, const struct channel *); // it has come there
void channel_set_depth(struct core *, chan, uint32_t before);
bool channel_is_known(const struct core *, chan);

// ---- stage.c ----------------------------------------------------------------------------------

uint32_t stage_find(struct core *, mr_bytes name);                        // 0: not known
int stage_get(struct core *, mr_bytes name, uint32_t *out);               // made when missing
int stage_get_number(struct core *, uint32_t number, struct stage **out); // replay: made nameless
bool stage_forget_early(struct core *, struct stage *); // the job that ended first; false: none
void stage_forget_unused(struct core *, mr_bytes name); // what nobody waits at or has written down
// What is left in a stage, in words; NULL: it is empty.
const char *stage_what_is_left(const struct core *, const struct stage *);
int stage_drop(struct core *, struct stage *); // an empty one: writes down that it is forgotten
void stage_drop_if_idle(struct core *, struct stage *); // if it is empty and nothing was set there
void stage_replay_drop(struct core *, uint32_t number);
void stage_forget_sources(struct core *, uint32_t number); // source.c: none was pushed into it last
void stage_note_dead(struct core *, const struct stage *); // it has dead jobs
int stage_set_name(struct core *, uint32_t number, mr_bytes name);
void stage_wake_waiting(struct core *, struct stage *);
void stage_update_mark(struct core *, struct stage *);
// Forgets jobs, names and states whose time is over, `most` at most, and plans to go on if there
// may be more; how many. Writes: not while a group is being used.
uint32_t stage_sweep(struct core *, struct stage *, uint32_t most);
void stage_forget_ended(struct core *, struct stage *); // after an end: a few, which keeps up
void stage_plan_sweep(struct core *, struct stage *);
int stage_learn_edge(struct core *, uint32_t from, uint32_t to);
int stage_record(struct core *, struct stage *, enum room); // writes its record
void stage_set_home(struct core *, struct stage *, uint64_t at, uint32_t size);

// Something may have turned startable or roomy.
static inline void stage_wake(struct core *c, struct stage *s) {
    if (!list_empty(&s->takers) || !list_empty(&s->pushers))
        stage_wake_waiting(c, s);
}

// What counts in its limits has changed.
static inline void stage_depth_changed(struct core *c, struct stage *s) {
    uint64_t depth = s->by_status[JOB_WAITING] + s->by_status[JOB_DELAYED];
    if (depth - s->quiet_from >= s->quiet_span)
        stage_update_mark(c, s);
}

// It has become less, which may turn nothing.
static inline void stage_depth_decreased(struct core *c, struct stage *s) {
    if (s->quiet_from)
        stage_depth_changed(c, s);
}

// ---- once.c, source.c -------------------------------------------------------------------------

// The id remembered for it, and the job while that is known; 0: not remembered.
uint64_t once_find(struct core *, struct stage *, struct hash128, uint32_t *out_job);
void once_displace(struct core *, struct hash128); // replay: a later push took the name
int once_reserve(struct core *, uint32_t count);   // makes sure that so many can be remembered
void once_remember(struct core *, uint32_t job, struct hash128); // after once_reserve
struct hash128 once_at(const struct core *, uint32_t number);    // while its job is known
void once_release(struct core *, struct job *);
int once_spend(struct core *, struct stage *, struct job *); // its job is about to be forgotten
uint32_t once_sweep(struct core *, struct stage *, uint32_t most); // returns how many
void onces_forget(struct core *, struct stage *);                  // all that outlive their jobs
int once_restore(struct core *, struct stage *, const struct record *, uint64_t at, uint32_t size);
struct spent *once_spent(const struct core *, struct hash128); // NULL: none
void once_set_home(struct core *, struct spent *, uint64_t at, uint32_t size);

uint32_t source_find_number(const struct core *, uint64_t number);
// The source that a numbered push into this stage names; made when missing.
int source_get(struct core *, const struct push *, uint32_t stage, uint32_t *out);
bool source_has_seen(const struct source *, uint64_t number);
uint64_t source_id(const struct source *, uint64_t number);
int source_keep_ids(struct source *); // makes room to remember the ids of its latest numbers
void source_see(struct source *, uint64_t number, uint64_t id);
// Of a number that makes no job; `id`: that of the job which was there before. Writes it down.
int source_note(struct core *, uint32_t source, uint32_t stage, uint64_t number, uint64_t id);
// Gives an epic of an older store the stage that the log now names; after source_get.
void source_adopt(struct core *, uint32_t source, uint32_t stage);
int source_check_gap(const struct push *, const struct source *);
void source_refused(struct core *, const struct push *); // whatever for: it holds its source
void source_accepted(struct core *, const struct push *, struct source *);
void source_attach(struct core *, struct job *, uint32_t source, uint64_t number);
void source_detach(struct core *, uint32_t source);
int source_record(struct core *, struct source *, enum room);
void source_set_home(struct core *, struct source *, uint64_t at, uint32_t size);
void source_sweep(struct core *);
void source_plan_sweep(struct core *);
int source_check(const struct core *, const struct record *); // a SOURCE record; MR_ECORRUPT
int source_restore(struct core *, const struct record *, uint32_t *out);
int sources_open(struct core *); // after replay
void source_forget(struct core *, uint32_t source);
void gaps_drop(struct core *, struct conn *);

// ---- maker.c: who has made how many ------------------------------------------------------------

uint32_t maker_find(const struct core *); // who makes what is made now; 0: not known
uint32_t maker_count(const struct core *, enum made);
uint64_t maker_name(const struct core *, uint32_t maker); // as records have it; 0: not known
int maker_reserve(struct core *, uint64_t name);
uint32_t maker_add(struct core *, uint64_t name, enum made); // after maker_reserve; the maker
void maker_remove(struct core *, uint32_t maker, enum made);

// ---- state.c: what channels keep between their jobs --------------------------------------------

int state_reserve(struct core *, chan, bool sets);
void state_set(struct core *, chan, uint64_t at, uint32_t size, uint64_t time_ms);
void state_drop(struct core *, chan);
int state_expire(struct core *, chan); // writes down that it is dropped
void states_sort(struct core *, struct stage *);

// ---- record_out.c: groups of records on their way out -----------------------------------------

enum { HEAD_ROOM = 400 }; // of a head beyond names and keys; a SOURCE record is the longest

int out_grow(struct core *, size_t records, size_t bytes);

static inline int out_begin(struct core *c, size_t records, size_t extra_bytes) {
    struct out *o = &c->out;
    size_t bytes = RECORD_MAX + records * HEAD_ROOM + extra_bytes;
    o->count = o->heads.size = 0;
    return records <= o->capacity && bytes <= o->heads.capacity ? 0 : out_grow(c, records, bytes);
}

struct push_plan;
void out_add(struct core *, const struct record *, mr_bytes body);
void out_add_push(struct core *, const struct push_plan *);
void out_add_end(struct core *, const struct job *, enum job_status, uint64_t position,
                 mr_bytes result);
void out_add_copy(struct core *, mr_bytes head, mr_bytes body); // as it stands, marked as a copy

static inline int out_commit(struct core *c, enum room room) {
    const struct core_sink *sink = &c->config.sink;
    return sink->append(sink->owner, c->out.entries, c->out.count, room, c->out.at);
}

int out_write(struct core *, const struct record *, enum room); // one that has no body, whole

static inline uint32_t out_size(const struct core *c, size_t index) {
    const struct entry *e = &c->out.entries[index];
    return entry_size(e->head.size, e->body.size);
}

struct record record_of_stage(const struct core *, const struct stage *, struct record_about *);
// `stage`: the one that it belongs to, once this is written.
struct record record_of_source(const struct core *, const struct source *, uint32_t stage,
                               struct record_about *);
struct record record_of_job(const struct core *, const struct job *);
void record_add_source(const struct core *, const struct job *, struct record *);

void replay_move(struct core *, uint32_t job, enum job_status); // while replaying: to its status

// ---- push.c, take.c, lease.c, end.c, timer.c ---------------------------------------------------

// A job about to be born: checked, prepared, recorded, then made. Used by pushes and emits.
struct push_plan {
    const struct push *push;
    uint32_t stage, source;
    chan channel;     // 0: without a key; linked: its entry in the outbox
    bool linked;      // it belongs to another shard
    bool has_options; // it has more than stage, key and body
    bool has_once, is_repeat;
    bool pinned; // its channel is
    bool first;  // it was told of room: nobody waits before it
    struct hash128 once;
    uint64_t id, position, due_ms, deadline_ms;
    uint32_t repeat_job; // the job it repeats, when that is known
    uint64_t repeat_id;  // of a repeat; 0: no longer known
};

int push_check(struct core *, const struct push *);
int push_plan_begin(struct core *, const struct push *, struct push_plan *out);
int push_plan_prepare(struct core *, struct push_plan *);
void push_plan_pin(struct core *, struct push_plan *);
void push_plan_unpin(struct core *, struct push_plan *); // if it is
uint32_t push_plan_apply(struct core *, struct push_plan *, uint64_t at, uint32_t size);
int ids_reserve(struct core *, uint32_t count);
int ids_reserve_block(struct core *, enum room); // of ids, and of the epoch's records
void epoch_set_home(struct core *, uint64_t at, uint32_t size);
void trim_set_home(struct core *, uint64_t at, uint32_t size);
uint64_t position_next(struct core *);
void pushers_notify_room(struct core *, struct stage *); // tells waiting pushers that there is room
void timers_tidy(struct core *);
void settle_woken(struct core *);

// Serves every stage that was woken.
static inline void settle(struct core *c) {
    if (c->first_dirty || heap_wants_filter(&c->timers))
        settle_woken(c);
}

// A running job's lease, checked against a token. 0, or the answer to give.
int lease_find(struct core *, uint64_t id, const struct token *, uint32_t *out_job,
               uint32_t *out_lease);
bool token_fits(const struct core *, const struct token *, const struct job *);
// Answers `err`; if the job was ended by others under this lease, that counts as letting go of it.
int lease_refuse(struct core *, uint32_t lease, uint64_t id, int err);
void lease_let_go(struct core *, uint32_t lease, uint64_t id); // of one job, in order
// It is over: jobs still under it wait again, the channel goes where it belongs.
void lease_end(struct core *, uint32_t lease, enum place);
void lease_leave_conn(struct lease *); // it goes on without its connection
// Whether letting go of this job, which runs or was ended by others, ends the lease.
bool lease_ends_with(const struct core *, const struct lease *, uint64_t id);
#define LEASE_LOST "the worker's connection was lost"
int lease_lose(struct core *, uint32_t lease, const char *why, bool backoff);
// Returns 1 if that was the last attempt: then job_die follows.
// `lease`: that ends with it; NULL: none does.
int attempt_fail(struct core *, uint32_t job, const struct lease *lease, mr_bytes why,
                 uint64_t due_ms, bool dead, enum room);
void job_die(struct core *, uint32_t job);
void job_set_reasons(struct core *, struct job *, uint64_t at, uint32_t size);

// Ends a job as cancelled or expired: written down, callers and worker told.
int job_end(struct core *, uint32_t job, enum job_status);
// What an end changes, after it was written down as the entry at `at`.
void job_ended(struct core *, uint32_t job, enum job_status, uint64_t at, uint32_t size);
void job_forget(struct core *, uint32_t job);
int job_grace_over(struct core *, uint32_t job);
void callers_notify(struct core *, struct job *, const struct outcome *);
int caller_attach(struct core *, uint32_t job, struct caller *);
void caller_link(struct core *, uint32_t job, struct caller *); // after job_reserve
int caller_leave(struct core *, struct caller *);
void pusher_leave(struct core *, struct pusher *);
struct outcome outcome_of(const struct core *, const struct job *);

// ---- lease_record.c: leases that outlive the engine --------------------------------------------

// Whether a lease must hold whatever happens to the engine: its worker does not end with it.
static inline bool lease_outlives_engine(const struct stage *s, bool detached, bool in_process) {
    return !in_process && (detached || s->policy.overlap_never);
}

int lease_record_start(struct core *, struct lease *, uint32_t last_job); // before its jobs run
int lease_record_cut(struct core *, struct lease *, uint32_t last_job);   // if it is recorded
// Writes it with this end; as a copy, if the cleaner asks.
int lease_write(struct core *, struct lease *, uint64_t until_ms, enum room);
void lease_add_end(struct core *, const struct lease *);  // to the group: it is over
int lease_write_end(struct core *, const struct lease *); // the same alone, if it is recorded
void lease_unrecord(struct core *, struct lease *);       // if it is
uint32_t lease_find_recorded(const struct core *, uint64_t serial); // 0: none
int lease_replay(struct core *, const struct record *, uint64_t at, uint32_t size);
void leases_forget(struct core *, uint32_t stage); // replay: it is gone
int leases_bind(struct core *); // after replay: channels that are held are in progress
int leases_hold(struct core *); // and once they are in order, so are their jobs

// When and in which order the lease's timer rings, if it does not ring before.
void lease_set_timer(struct core *, struct lease *, uint64_t at_ms, uint32_t order);

// The job number `i` under it, if it still runs there; else 0.
uint32_t lease_running(const struct core *, const struct lease *, uint32_t i);

// ---- look.c, for walk.c -------------------------------------------------------------------------

int look_find_stage(struct core *, mr_bytes name, struct stage **out); // MR_EGONE
struct job_info look_at_job(const struct core *, const struct job *);

// Tries again a little later what could not be written down now.
void timer_retry(struct core *, enum timer, uint32_t number);

static inline uint32_t timer_value(enum timer kind, uint32_t number) {
    return (uint32_t)kind << ATTR_SHIFT | number;
}

#endif
