// What the core remembers: the structs behind core.h, shared by the files of this folder only.
//
//   stage ──► ready, parked ──► channel ──► jobs          lines: lists of 32-bit numbers
//     │                            └──► state
//     ├──► groups ──► group ──► ready                     with `group on`: see group.c
//     ├──► dead, ended ──► jobs
//     └──► takers, pushers                                borrowed from the owner
//
// A job is 64 bytes whatever its body, which stays in the log; what only some jobs have (a
// deadline, a `once`, callers …) is a chain of attributes, whose last link is the number of the
// job. A channel with a key is a struct of its own; a job without a key is its own channel, so a
// channel is named by a tagged number: see `chan`.
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

enum { STEPS_EPIC = 10 };      // cost of reading an epic, whose numbers are searched
enum { STEPS_REASONS = 20 };   // cost of reading the reasons of a job from the log
enum { STEPS_DUE = 10 };       // cost of handling a timer (core_take_steps)
enum { STEPS_EMIT = 10 };      // cost of an emit
enum { RETRY_AFTER_MS = 100 }; // what could not be recorded is retried then

// A channel: CHAN_KEYED and the number of a struct channel, or the number of a job without a key.
typedef uint32_t chan;
#define CHAN_KEYED UINT32_C(0x80000000)

// Tags the group that owns a job without a channel: a job with a key such as "acme/".
#define OWNER_GROUPED UINT32_C(0x40000000)

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
    JOB_IN_GRACE = 1 << 4, // a call from before a restart, whose callers may come back
    JOB_RELEASED = 1 << 5, // parked because it was released again and again: not recorded
    JOB_HALTS = 1 << 6,    // dead, and its channel does not go past it
    JOB_UNREAD = 1 << 7,   // its body could not be read: next time it starts a block; not recorded
    JOB_END_UNWRITTEN = JOB_UNREAD, // done, and its home is the record of its push still: done.c
};

struct job {
    uint64_t id;
    uint64_t at;           // its home: the entry with its body, or with its result
    uint64_t position;     // its place in the channel; once ended, its place among the ended
    uint64_t serial;       // of the lease it runs under or ended under
    uint64_t time_ms;      // when it was pushed; once ended or dead, when that was
    struct line_link link; // in its channel, ready, parked, delayed, dead or ended
    uint32_t owner;        // CHAN_KEYED and its channel, OWNER_GROUPED and its group, or its stage
    uint32_t attrs;        // the first attribute, or the job's own number if it has none
    uint32_t size;         // of its home, for counting live bytes
    uint16_t attempt;
    uint8_t status, flags;
};

_Static_assert(sizeof(struct job) == 64, "a queued job costs 64 bytes");

enum attr_kind {
    ATTR_DEADLINE = 1, // an instant
    ATTR_DUE,          // an instant
    ATTR_ONCE,         // a once
    ATTR_CALL,         // an attr, as all below; value: the first caller; small: their number
    ATTR_REASONS,      // value: the FAIL entry; small: its size
    ATTR_COUNTS,       // small: attempts it may have, and from bit 16 how often it was released;
                       // value: bytes of META behind its body, and for whom it counts: job.c
    ATTR_SOURCE,       // small: the source; value: its number in it
};

// An attribute is named by its kind, from ATTR_SHIFT on, and its number in the slab of that kind.
// `next` names the job's next attribute; in the last one it is the number of the job, with kind 0.
// Instants and names are arrays of uint32_t so that no padding is needed.
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
    struct line_link deep; // among channels of about the same depth
    struct job_line jobs;  // not ended, in order of position
    uint32_t pins;         // delayed and dead jobs that will come back to it
    uint32_t state;        // number of a struct state; 0: none
    uint32_t halted;       // the first dead job that halts it; 0: none
    uint32_t key;          // its number in `keys`; 0: this entry is free
    uint16_t stage;
    uint8_t channel_state; // an enum channel_state
    bool idle : 1;         // dormant and unused: in the stage's line `idle`
    bool halts_again : 1;  // more dead jobs may halt it further on
    bool paused : 1;       // it starts no jobs: see pause.c
    bool grouped : 1;      // the number of its group stands behind its key: see channel_group
};

_Static_assert(sizeof(struct channel) == 48, "with its share of a map: 64 bytes and its key");

// Where the log has a channel's state.
struct state {
    uint64_t at, time_ms;
    uint32_t size, channel;
    struct line_link link; // in the stage's line of states, least recently set first
};

// Where the log has that a channel is paused.
struct pause {
    uint64_t at;
    uint32_t size;
    chan channel;
};

enum { PAUSED_KEYS_MOST = 1000 }; // of a stage

struct stage_edge {
    uint32_t from, to;
    bool in_cycle;
    struct list of_target; // in `edges_here` of the stage that it leads to
};

// What a search for cycles notes of a stage: see edge.c.
struct stage_search {
    uint32_t number; // of the search that came by last
    uint32_t index, low, component, next;
};

// Stages, by their numbers. A bit may stay set for a while after its reason has gone.
struct stage_set {
    uint64_t bits[(UINT16_MAX + 1) / 64];
};

enum { DEPTHS = 512 };

// Lists of channels, or of groups, of about the same depth, so that the deepest are found without a
// scan.
struct depths {
    uint32_t first[DEPTHS];
    uint64_t bits[DEPTHS / 64]; // the lists that are not empty
};

// The channels of a stage with `group on` whose keys have the same part before the first slash.
struct key_group {
    struct list of_ring;   // in `turns` or `held` of its stage
    struct job_line ready; // its ready channels
    struct line_link deep; // among groups of about the same depth
    uint64_t rate_next_us; // no job starts before, by group-rate; counts if `rates` does
    uint64_t timer_ms;     // when its timer fires; 0: it has none
    uint32_t number, stage;
    uint32_t era;    // `group_era` of the stage when it was made
    uint32_t key;    // its name and a slash, in `keys`; 0: this entry is free
    uint32_t users;  // channels, unended or dead jobs without a channel, leases
    uint32_t jobs;   // that have joined and not ended
    uint32_t leased; // unanswered jobs under leases
    uint32_t held;   // value of `changes` when its limits began to hold it; 0: it was not held
    uint32_t rates;  // value of `rates` that rate_next_us belongs to
};

// What a stage with `group on` has beyond others.
struct stage_groups {
    struct list turns;     // groups with ready channels that may start, …
    struct list held;      // … and that their limits hold
    chan recent;           // a channel that was asked for last; 0: none, …
    uint32_t recent_group; // … and its group
    uint32_t keyless;      // the group of jobs without a key; 0: not known
    uint32_t with_jobs;    // groups whose `jobs` is not 0
    uint32_t changes;      // of the limits of groups, from 1: who was held before is no more
    uint32_t rates;        // changes of group-rate
    struct depths by_jobs; // groups of two or more jobs
};

struct stage {
    uint8_t name_size;
    char name[STAGE_NAME_MOST];
    bool recorded, dirty, paused, draining;
    bool known_only;    // other shards have reported it, and no command here has used it
    bool over;          // over its high mark
    bool over_notified; // what was last sent to the other shards
    bool over_at_peer;  // for a stage of another shard: what that shard has sent
    uint64_t mark_notified, mark_at_peer; // the same for the high mark; 0: the default
    uint64_t quiet_from, quiet_span;      // stage_depth_changed does nothing in this range
    uint64_t serve_at_ms;                 // when its TIMER_SERVE fires; 0: none is set
    uint32_t number;
    uint32_t maker; // who made it; 0: not known
    uint64_t at;
    uint32_t size; // of its home
    struct policy policy;
    struct job_line ready; // with groups: only its head, the next to start, and its count
    struct job_line parked, dead, ended, states, idle;
    struct stage_groups *groups; // NULL: `group off`, or the core is replaying
    struct job_line delayed;     // in order of ids
    uint32_t first_spent, last_spent;
    uint64_t by_status[JOB_CANCELLED + 1];
    uint64_t pushed, done, failed, died, expired, cancelled, wasted_wait_ms;
    uint64_t leases, leased;        // leased: unanswered jobs under the leases (running)
    uint64_t granted_rooms, linked; // linked: emits to it in outboxes that have not arrived
    uint64_t outboxed;              // emits to it in outboxes, arrived or not
    uint64_t last_emit;             // the number of the latest one, as far as it is known
    uint64_t halted;                // channels that a dead job halts
    uint32_t paused_keys;           // channels that are paused
    uint64_t rate_next_us, sweep_at_ms;
    struct list takers, pushers;
    struct list of_starved; // its first push waits for memory or the log
    uint32_t taker_count, next_dirty;
    uint32_t
        group_era;    // how often its groups have ended, also those of former stages of its number
    uint32_t sources; // epics and clients that number their pushes into it
    uint32_t schedules;
    uint32_t thens; // epics whose THEN will push to it
    struct stage_edge edges[CORE_EDGES];
    uint32_t edge_count;
    struct list edges_here; // edges of other stages to it
    struct stage_search search;
    struct depths by_depth; // channels of two or more jobs
    struct ages ages;
    uint64_t oldest_ms; // at opening
    struct rate in, out;
    struct histogram *waits, *runs;
};

struct leased {
    uint64_t id;  // 0: it was answered out of order, see lease_let_go
    uint32_t job; // its number in `jobs` when it was leased
};

struct lease {
    uint64_t serial, until_ms, began_ms; // began_ms: of the job that runs now
    uint64_t timer_ms;           // when its timer fires; kept after the lease's end, see lease_plan
    uint32_t timer_order, order; // ties among timers; ties among ends at one instant
    uint32_t number, lease_ms;
    uint32_t group;             // 0: its stage has none
    chan channel;               // 0: its only job, an unkeyed one, was cancelled or expired
    uint32_t count, next;       // jobs under it; the first unanswered one
    struct leased only, *block; // the only job, or all of a block
    struct conn *conn;          // NULL: it is gone, and the lease runs out
    uint16_t stage;
    bool detached, lost;             // survives its connection; lost with it, not yet recorded
    uint32_t attempt;                // of the first unanswered job, as passed to `running`
    struct lease_record *record;     // NULL: the lease ends with the engine
    struct lease_progress *progress; // of one of its jobs; NULL: its worker has said nothing
    struct list of_conn;
};

// What the log knows of a lease: see lease_record.c.
struct lease_record {
    uint64_t at, random;             // its home; the random bits of its token
    uint64_t last_id, last_position; // of the last job under it, when it was leased
    uint32_t size;
    bool restored; // the lease comes from an earlier epoch
};

// What PROGRESS has said of a job.
struct lease_progress {
    uint64_t id, done, total;
    uint32_t size;
    char text[PROGRESS_MOST];
};

struct source {
    uint64_t number; // names it in records; never used again
    uint64_t at, idle_since_ms;
    uint32_t size, hash;
    uint32_t stage; // 0: an epic of an older store, see source_find_or_stageless
    uint8_t name_size, scope_size;
    char name[EPIC_NAME_MOST], scope[SCOPE_MOST]; // the scope: of a client's source
    struct record_source seen;
    uint64_t unended[JOB_RUNNING + 1];
    uint64_t *ids;     // of the last SOURCE_WINDOW numbers; NULL: not known
    uint64_t jobs;     // known jobs that came from it
    uint64_t expected; // of an epic: total of pushes that its producer expects
    struct watches watches;
    struct epic_orders *orders; // of an epic; NULL: it has none
    struct list by_use;         // in `sources_by_use`
    uint32_t maker;             // who made it; 0: not known
    bool in_use, indexed;       // indexed: found by its name
    bool dropped;               // kept only until the last of its jobs is forgotten
};

#define NO_TIMER UINT64_MAX

// A push that repeats: see schedule.c.
struct schedule {
    uint64_t at, timer_ms; // its home; when it is in `ticks`: NO_TIMER: it is not
    uint32_t size, body_size, hash;
    uint32_t stage, maker; // maker: 0: not known
    struct record_schedule when;
    struct record_move move;
    mr_bytes name, key; // as are `when.cron` and `when.zone`, parts of `text`
    uint8_t *text;      // NULL: this entry is free
    uint32_t attempts;
    bool catching_up;
};

enum timer {
    TIMER_DEADLINE = 1, // a job
    TIMER_DUE,          // a job
    TIMER_GRACE,        // a job
    TIMER_LEASE,        // a lease
    TIMER_SWEEP,        // a stage: ended jobs, names or states are to be forgotten
    TIMER_SERVE,        // a stage may start again; SERVE_GROUP and a group: that may
    TIMER_SOURCES,      // idle sources are to be forgotten; TIMER_EPIC and a source: see epic.c
};

enum { SERVE_GROUP = 1 << (ATTR_SHIFT - 1), TIMER_EPIC = SERVE_GROUP };

// The group of records being built; see record_out.c.
struct out {
    struct entry *entries;
    uint64_t *at;
    size_t count, capacity;
    struct buffer heads, joined; // joined: bodies with META behind them
};

struct core {
    struct core_config config;
    struct core_limits limits;
    uint64_t now_ms, last_position;
    uint64_t late_ms;    // the latest core_advance that left due timers to the next one
    uint32_t due_left;   // timers that this core_advance may still handle
    uint64_t serve_most; // bytes that waiting takes may get between two calls of core_advance, …
    uint64_t serve_left; // … and may still get: very many may wait for a stage that is resumed
    uint64_t epoch, random, next_serial;
    uint64_t next_id, highest_id;
    uint64_t id_mark, id_limit, id_reserved, id_reserved_at; // see ids_reserve
    uint64_t live_bytes, last_pusher, next_source, room_pushes, room_bytes;
    uint64_t granted_bytes; // reserved for pushers that were granted room
    uint64_t outside_bytes; // see core_set_outside_memory
    struct list starved;    // stages whose first push waits for memory or the log: see memory.c
    bool log_is_full;       // it has refused a push
    uint64_t epoch_at, trim_at, trim_mark, grace_until_ms;
    uint32_t epoch_size, trim_size;
    uint32_t progresses; // leases that have one
    bool replaying, sources_timer;
    uint32_t swept;       // sources that the current sweep has looked at …
    bool sources_kept;    // … and whether the next sweep has to look at some of them again
    bool has_foreign_ids; // some jobs have ids that another shard would issue
    uint64_t maker;       // for what this command makes: see core_act_for …
    const struct maker_quota *quota; // … and what it may have; NULL: anything
    uint64_t job_maker;              // whom new jobs count for; 0: no maker
    bool is_arrival;                 // its share was checked by the shard that sent it: see maker.c
    struct list sources_by_use;      // not dropped, least recently used first
    struct live live;

    struct slab jobs, channels, attrs, instants, onces, spents, states, leases, sources, outbox;
    struct slab makers, schedules, pauses, groups;
    struct map schedule_by_name;
    uint64_t schedule_bytes; // of their texts
    uint64_t orders_bytes;   // of epics
    struct heap ticks;       // schedules, by the wall clock
    uint64_t made;           // by all makers
    struct pool keys;
    struct idmap by_id;
    struct map by_key, by_group, once, source_by_name, source_by_number, outbox_by_number;
    struct map recorded_leases; // by serial
    struct map pause_by_channel;
    struct stage **stages; // by number, from 1
    uint32_t stage_count, stage_capacity, nameless_stages;
    uint32_t grouped_stages; // those whose `groups` is not NULL
    uint32_t least_nameless; // no lower number is nameless
    struct map stage_by_name, maker_by_name;
    uint32_t last_stage;           // the latest result of stage_find
    uint32_t stageless_epics;      // sources without a stage
    uint64_t steps;                // see core_take_steps
    struct stage_set dead_stages;  // stages that may have dead jobs
    struct stage_set ended_stages; // stages that may have ended jobs
    bool stages_pinned;            // a command uses several: none may be dropped
    uint32_t stages_searched;      // where the next search for empty stages begins
    uint64_t stages_searched_ms;   // the latest one that found too few: one in an instant is enough
    struct link_end *links;        // by shard
    uint32_t link_count;
    uint32_t first_dirty, last_dirty;
    uint32_t searches; // for cycles
    struct heap timers;
    struct out out;
    struct buffer scratch, reasons, grants, tick_body;
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

static inline struct pause *pause_at(const struct core *c, uint32_t number) {
    return slab_at(&c->pauses, number);
}

static inline struct source *source_at(const struct core *c, uint32_t number) {
    return slab_at(&c->sources, number);
}

static inline struct schedule *schedule_at(const struct core *c, uint32_t number) {
    return slab_at(&c->schedules, number);
}

static inline struct key_group *group_at(const struct core *c, uint32_t number) {
    return SLAB_AT(&c->groups, struct key_group, number);
}

static inline struct stage *stage_of(const struct core *c, const struct job *j) {
    uint32_t number = j->owner;
    if (number >= OWNER_GROUPED)
        number = number & CHAN_KEYED ? channel_at(c, number)->stage
                                     : group_at(c, number & ~OWNER_GROUPED)->stage;
    return c->stages[number];
}

static inline bool job_has_attrs(const struct job *j) {
    return j->attrs >> ATTR_SHIFT;
}

// Whether due timers may still be unhandled, or were handled in this instant only.
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

// Always inline: a call here costs a push 13 instructions (bench/instructions).
INLINED enum channel_state chan_state(const struct core *c, chan ref) {
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

// ---- Homes ------------------------------------------------------------------------------------

// Counts live bytes at the home of a thing (record.h). Size 0: it has no home.
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
// 0: tail.
void job_line_insert_before(struct core *, struct job_line *, uint32_t ref, uint32_t before);
void job_line_remove(struct core *, struct job_line *, uint32_t ref);
// Sorts by a key, then by id; a sorted line costs one pass.
void job_line_sort(struct core *, struct job_line *,
                   uint64_t (*key)(const struct core *, uint32_t ref));

// ---- job.c: the table of jobs and their attributes --------------------------------------------

uint32_t job_find(const struct core *, uint64_t id);
enum { TIMERS_PER_JOB = 3 };

// Makes sure that `count` jobs can be created; `has_options`: with any attributes and timers.
int job_reserve(struct core *, uint32_t count, bool has_options);
int job_reserve_due(struct core *);              // for job_set_due and one more attribute
uint32_t job_create(struct core *, uint64_t id); // after job_reserve
void job_free(struct core *, uint32_t number);
void source_count(struct core *, struct job *, enum job_status before, enum job_status after);

// `s`: its stage.
static inline void job_set_status_in(struct core *c, struct stage *s, struct job *j,
                                     enum job_status status) {
    if (j->flags & JOB_HAS_SOURCE)
        source_count(c, j, (enum job_status)j->status, status);
    s->by_status[j->status]--;
    j->status = (uint8_t)status;
    s->by_status[status]++;
}

static inline void job_set_status(struct core *c, struct job *j, enum job_status status) {
    job_set_status_in(c, stage_of(c, j), j, status);
}

static inline void job_set_home(struct core *c, struct job *j, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, j->at, j->size);
    j->at = at;
    j->size = size;
}

uint32_t attr_job(const struct core *, uint32_t attr); // the job that has this attribute
struct attr *job_attr(const struct core *, const struct job *, enum attr_kind);
bool job_once(const struct core *, const struct job *, struct hash128 *out_name);
struct attr *job_add_attr(struct core *, struct job *, enum attr_kind); // after job_reserve
void job_drop_attr(struct core *, struct job *, enum attr_kind);
void job_set_deadline(struct core *, uint32_t number, uint64_t at_ms); // after job_reserve
bool job_is_past_deadline(const struct core *, const struct job *);
uint64_t job_deadline(const struct core *, const struct job *); // 0: none
uint64_t job_due(const struct core *, const struct job *);      // 0: none
uint32_t job_attempts(const struct core *, const struct job *);
uint32_t job_meta_size(const struct core *, const struct job *);         // 0: it has no META
void job_set_meta_size(struct core *, struct job *, uint32_t meta_size); // after job_reserve
// Of a job that has neither; 0: none. After job_reserve.
void job_set_counts(struct core *, struct job *, uint32_t attempts, uint32_t meta_size);
// Whom a job counts for, with so many bytes; 0: no maker. The second after job_reserve and
// maker_reserve_job.
uint64_t job_maker(const struct core *, const struct job *);
void job_set_maker(struct core *, struct job *, uint64_t maker, uint32_t bytes);
uint32_t job_maker_bytes(const struct core *, const struct job *);
void job_set_due(struct core *, uint32_t number, uint64_t due_ms); // after job_reserve
int reasons_of(struct core *, const struct job *, struct buffer *out);

// ---- channel.c: channels and their states -----------------------------------------------------

chan channel_find(const struct core *, uint32_t stage, mr_bytes key);    // 0: not known
int channel_get(struct core *, uint32_t stage, mr_bytes key, chan *out); // made when missing

static inline mr_bytes channel_key(const struct core *c, const struct channel *ch) {
    mr_bytes key = pool_at(&c->keys, ch->key);
    key.size -= ch->grouped * sizeof(uint32_t);
    return key;
}

// The key of a job that has not ended; empty: it has none.
static inline mr_bytes job_key(const struct core *c, const struct job *j) {
    if (job_is_keyed(j))
        return channel_key(c, channel_at(c, j->owner));
    if (j->owner & OWNER_GROUPED)
        return pool_at(&c->keys, group_at(c, j->owner & ~OWNER_GROUPED)->key);
    return (mr_bytes){ 0 };
}

void channel_pin(struct core *, chan);
void channel_unpin(struct core *, chan);
void channel_check_idle(struct core *, chan); // after its pins or its state changed
void channels_forget_idle(struct core *, struct stage *);

// The one function that moves a channel between states.
void channel_move(struct core *, chan, enum channel_state, enum place);
// Moves a channel that is not in progress to the state that its content implies.
void channel_resolve(struct core *, chan, enum place);
void channel_deliver(struct core *, uint32_t job); // appends a job to its channel
void channel_insert(struct core *, uint32_t job);  // by its position
void channel_take_out(struct core *, uint32_t job);

// A dead job may halt its channel: jobs before it still run, jobs behind it do not.
void channel_halt(struct core *, uint32_t dead_job);
void channel_unhalt(struct core *, uint32_t dead_job); // if it does
bool channel_reaches(const struct core *, const struct channel *, uint32_t job);
// Only jobs behind the dead one are left.
bool channel_is_halted(const struct core *, const struct channel *);
void channel_set_depth(struct core *, chan, uint32_t before);
// The same for one of `depths`: a channel, or (without CHAN_KEYED) a group.
void depths_move(struct core *, struct depths *, uint32_t ref, uint32_t before, uint32_t after);
// From the deepest on, within 1/16: the one after `ref` (0: the first); 0: there are no more.
uint32_t depths_next(const struct core *, const struct depths *, uint32_t ref);
uint32_t depth_of(const struct core *, uint32_t ref); // jobs of a channel or group
bool channel_is_known(const struct core *, chan);

// ---- stage.c ----------------------------------------------------------------------------------

// Memory that counts for a stage, with its histograms.
#define STAGE_BYTES (sizeof(struct stage) + 2 * sizeof(struct histogram))

uint32_t stage_find(struct core *, mr_bytes name);          // 0: not known
int stage_get(struct core *, mr_bytes name, uint32_t *out); // made when missing
// For a stage that others have reported: when missing, it becomes known only.
int stage_know(struct core *, mr_bytes name, uint32_t *out);
void stages_make_room_to_know(struct core *); // for two, if the maker has its share
bool stage_lives_here(const struct core *, const struct stage *);
// The same, for commands that bring no job: MR_EFULL if it is missing and memory is short.
int stage_get_if_room(struct core *, mr_bytes name, uint32_t *out);
int stage_get_number(struct core *, uint32_t number, struct stage **out); // replay: made nameless
// Forgets the job that ended first; false: none.
bool stage_forget_early(struct core *, struct stage *);
// If it is not recorded and no command waits at it.
void stage_forget_unused(struct core *, mr_bytes name);
// What is left in a stage, as text for an error; NULL: it is empty.
const char *stage_what_is_left(const struct core *, const struct stage *);
int stage_drop(struct core *, struct stage *); // an empty stage: records that it is forgotten
void stage_drop_if_idle(struct core *, struct stage *); // if it is empty and has no settings
void stage_replay_drop(struct core *, uint32_t number);
void stage_forget_sources(struct core *, uint32_t number); // source.c; replay of a dropped stage
int stage_set_name(struct core *, uint32_t number, mr_bytes name);
void stage_wake_waiting(struct core *, struct stage *);
void stage_update_mark(struct core *, struct stage *);
// Forgets jobs, names and states whose time is over, at most `most`, and sets a timer if there may
// be more; returns how many. It writes records: do not call while a group is being built.
uint32_t stage_sweep(struct core *, struct stage *, uint32_t most);
// After each end: forgets a few, which is enough.
void stage_forget_ended(struct core *, struct stage *);
void stage_plan_sweep(struct core *, struct stage *);
int stage_record(struct core *, struct stage *, enum room); // writes its record
void stage_set_home(struct core *, struct stage *, uint64_t at, uint32_t size);

static inline void stage_set_add(struct stage_set *set, uint32_t number) {
    set->bits[number / 64] |= UINT64_C(1) << number % 64;
}

static inline void stage_set_remove(struct stage_set *set, uint32_t number) {
    set->bits[number / 64] &= ~(UINT64_C(1) << number % 64);
}

// The first number from `from` to `last`; 0: there is none.
uint32_t stage_set_next(const struct stage_set *, uint32_t from, uint32_t last);

// A waiting take may get a job now, or a waiting push room: settle will check.
static inline void stage_wake(struct core *c, struct stage *s) {
    if (!list_empty(&s->takers) || !list_empty(&s->pushers))
        stage_wake_waiting(c, s);
}

// The number of waiting jobs has changed, so it may cross the high or low mark.
static inline void stage_depth_changed(struct core *c, struct stage *s) {
    uint64_t depth = s->by_status[JOB_WAITING] + s->by_status[JOB_DELAYED];
    if (depth - s->quiet_from >= s->quiet_span)
        stage_update_mark(c, s);
}

// The number has decreased, which matters only while the stage is watched.
static inline void stage_depth_decreased(struct core *c, struct stage *s) {
    if (s->quiet_from)
        stage_depth_changed(c, s);
}

// ---- edge.c -----------------------------------------------------------------------------------

int stage_learn_edge(struct core *, uint32_t from, uint32_t to);
void stage_drop_edges(struct core *, struct stage *); // those from it and those to it

// ---- once.c, source.c -------------------------------------------------------------------------

// The id of the job with this name, and the job while it is known; 0: the name is free.
uint64_t once_find(struct core *, struct stage *, struct hash128, uint32_t *out_job);
void once_displace(struct core *, struct hash128); // replay: a later push has the name now
int once_reserve(struct core *, uint32_t count);   // for `count` calls of once_remember
void once_remember(struct core *, uint32_t job, struct hash128); // after once_reserve
struct hash128 once_at(const struct core *, uint32_t number);    // while its job is known
void once_release(struct core *, struct job *);
// Keeps the name of a job that is about to be forgotten.
int once_spend(struct core *, struct stage *, struct job *);
uint32_t once_sweep(struct core *, struct stage *, uint32_t most); // returns how many
void onces_forget(struct core *, struct stage *);                  // all names without a job
int once_restore(struct core *, struct stage *, const struct record *, uint64_t at, uint32_t size);
struct spent *once_spent(const struct core *, struct hash128); // NULL: none
void once_set_home(struct core *, struct spent *, uint64_t at, uint32_t size);

uint32_t source_find_number(const struct core *, uint64_t number);
// The source that a numbered push into this stage names; made when missing.
int source_get(struct core *, const struct push *, uint32_t stage, uint32_t *out);
bool source_has_seen(const struct source *, uint64_t number);
uint64_t source_id(const struct source *, uint64_t number);
int source_keep_ids(struct source *); // allocates the table of ids by number
void source_see(struct source *, uint64_t number, uint64_t id);
// A number that makes no job; `id`: the job that has the same `once`. source_note records it;
// source_add_note adds that record to a group, and source_noted applies it, after the entry of the
// group was written.
void source_add_note(struct core *, uint32_t source, uint32_t stage, uint64_t number, uint64_t id);
void source_noted(struct core *, uint32_t source, uint32_t stage, uint64_t number, uint64_t id,
                  size_t entry);
int source_note(struct core *, uint32_t source, uint32_t stage, uint64_t number, uint64_t id);
// Gives an epic of an older store its stage, once a record names it; after source_get.
void source_adopt(struct core *, uint32_t source, uint32_t stage);
// Whether a number that was not seen may be accepted: MR_EGAP, MR_ECANCELLED.
int source_check_new(const struct push *, const struct source *);
// For any reason: it blocks its source on the connection.
void source_refused(struct core *, const struct push *);
void source_accepted(struct core *, const struct push *, uint32_t source);
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
void source_finish(struct core *, uint32_t source); // frees what it has
void gaps_drop(struct core *, struct conn *);

// ---- schedule.c --------------------------------------------------------------------------------

uint32_t schedule_find(const struct core *, uint32_t stage, mr_bytes name); // 0: not known
int schedule_check(const struct record *, uint32_t body_size); // a SCHEDULE record: MR_ECORRUPT
int schedule_check_move(const struct core *, const struct record *); // a SCHEDULE_MOVE record
int schedule_restore(struct core *, const struct record *, uint64_t at, uint32_t size,
                     uint32_t body_size);
void schedule_restore_move(struct core *, const struct record *);
void schedule_forget(struct core *, uint32_t number);
int schedule_copy(struct core *, uint32_t number, mr_bytes body); // for the cleaner
int schedules_open(struct core *);                                // after replay
void schedules_finish(struct core *);

// ---- state.c: what channels keep between their jobs -------------------------------------------

int state_reserve(struct core *, chan, bool sets);
void state_set(struct core *, chan, uint64_t at, uint32_t size, uint64_t time_ms);
void state_drop(struct core *, chan);
int state_expire(struct core *, chan); // records that it is dropped
void states_sort(struct core *, struct stage *);

// ---- pause.c: paused channels -----------------------------------------------------------------

uint32_t pause_find(const struct core *, chan); // 0: it is not paused
int pause_reserve(struct core *);
void pause_set(struct core *, chan, uint64_t at, uint32_t size); // after pause_reserve
void pause_drop(struct core *, chan);                            // if it is paused
void pause_set_home(struct core *, uint32_t pause, uint64_t at, uint32_t size);

// ---- record_out.c: groups of records on their way out -----------------------------------------

enum { HEAD_ROOM = 400 }; // bytes of a head without names and keys; SOURCE is the longest

int out_grow(struct core *, size_t records, size_t bytes);

static inline int out_begin(struct core *c, size_t records, size_t extra_bytes) {
    struct out *o = &c->out;
    size_t bytes = RECORD_MAX + records * HEAD_ROOM + extra_bytes;
    o->count = o->heads.size = 0;
    return records <= o->capacity && bytes <= o->heads.capacity ? 0 : out_grow(c, records, bytes);
}

// Makes room for bodies with META, of so many bytes in all. Comes before the out_join of a group.
int out_reserve_joined(struct core *, size_t bytes);
size_t push_joined_size(const struct push *); // what out_join needs; 0: the job has no META
// The body of a job's entry: the job's body and its META.
mr_bytes out_join(struct core *, const struct push *);

struct push_plan;
void out_add(struct core *, const struct record *, mr_bytes body);
void out_add_push(struct core *, const struct push_plan *);
void out_add_end(struct core *, const struct job *, enum job_status, uint64_t position,
                 mr_bytes result);
void out_add_copy(struct core *, mr_bytes head, mr_bytes body); // unchanged but for the copy bit

static inline int out_commit(struct core *c, enum room room) {
    const struct core_sink *sink = &c->config.sink;
    return sink->append(sink->owner, c->out.entries, c->out.count, room, c->out.at);
}

// A group of one record without a body.
int out_write(struct core *, const struct record *, enum room);

static inline uint32_t out_size(const struct core *c, size_t index) {
    const struct entry *e = &c->out.entries[index];
    return entry_size(e->head.size, e->body.size);
}

struct record record_of_stage(const struct core *, const struct stage *, struct record_about *);
// `stage`: the stage of the source after this record.
struct record record_of_source(const struct core *, const struct source *, uint32_t stage,
                               struct record_about *);
struct record record_of_job(const struct core *, const struct job *);
void record_add_source(const struct core *, const struct job *, struct record *);

// A record of the log: where it is, and its job.
struct replay_entry {
    uint64_t at;
    uint32_t size, body_size;
    uint32_t job; // the number of the record's job; 0: not known, or none
};

// The functions that RECORD_KINDS names for each kind. `check` changes nothing: MR_ECORRUPT if the
// record is not possible here; `apply` then cannot fail but for memory. `clean` appends a copy if
// the entry at `at` is a home.
#define RECORD_FUNCTIONS(kind, number, name, fields, check, apply, clean, ...)                     \
    int check(struct core *, const struct record *, const struct replay_entry *);                  \
    int apply(struct core *, const struct record *, const struct replay_entry *);                  \
    int clean(struct core *, uint64_t at, mr_bytes body, struct record *);

RECORD_KINDS(RECORD_FUNCTIONS)

void replay_move(struct core *, uint32_t job, enum job_status); // while replaying: to its status
void replay_set_owner(struct core *, uint32_t job, uint32_t owner); // likewise

// ---- push.c, take.c, lease.c, end.c, timer.c --------------------------------------------------

// Push plan: what a push or an emit will do. It is begun (checked, repeats found), prepared (memory
// reserved), recorded, and then applied.
struct push_plan {
    const struct push *push;
    uint32_t stage, source;
    chan channel;     // 0: without a key; linked: its entry in the outbox
    bool linked;      // an emit for another shard
    bool has_options; // it has more than a stage, a key and a body
    bool has_once, is_repeat;
    bool replaces;     // ONCE … LAST: the repeated job is changed …
    bool takes_name;   // … or has started or ended, and loses its name to this push
    uint32_t group;    // of a job without a channel: used by the plan, then by the job; 0: none
    uint32_t owner;    // of the job
    bool pinned;       // the plan pins its channel
    bool room_granted; // its pusher was granted room: it need not queue
    struct hash128 once;
    uint64_t id, position, due_ms, deadline_ms;
    uint64_t maker;      // whom the job counts for; 0: no maker
    uint32_t repeat_job; // the job it repeats, when that is known
    uint64_t repeat_id;  // of the repeated job; 0: no longer known
};

int push_check(struct core *, const struct push *);
int push_plan_begin(struct core *, const struct push *, struct push_plan *out);
int push_plan_prepare(struct core *, struct push_plan *);
void push_plan_pin(struct core *, struct push_plan *);
void push_plan_unpin(struct core *, struct push_plan *); // if it is; after a failure, too
uint32_t push_plan_apply(struct core *, struct push_plan *, uint64_t at, uint32_t size);
int ids_reserve(struct core *, uint32_t count);
int ids_reserve_block(struct core *, enum room); // reserves the next ids by an EPOCH record
void ids_use_reserved(struct core *);            // that record is durable, or will be at opening
void epoch_set_home(struct core *, uint64_t at, uint32_t size);
void trim_set_home(struct core *, uint64_t at, uint32_t size);
uint64_t position_next(struct core *);
void pushers_notify_room(struct core *, struct stage *); // those that fit now
void settle_woken(struct core *);

// Serves the waiting takes and pushes of every woken stage.
static inline void settle(struct core *c) {
    if (c->first_dirty)
        settle_woken(c);
}

// Finds a running job's lease by its token. 0, or the error to answer.
int lease_find(struct core *, uint64_t id, const struct token *, uint32_t *out_job,
               uint32_t *out_lease);
bool token_fits(const struct core *, const struct token *, const struct job *);
// Returns `err`. If `lease` is not 0, the job was cancelled or expired under it, and this answer
// lets go of the job.
int lease_refuse(struct core *, uint32_t lease, uint64_t id, int err);
// The worker has answered for one job.
void lease_let_go(struct core *, uint32_t lease, uint64_t id);
// Ends the lease: jobs still under it wait again, and the channel is resolved.
void lease_end(struct core *, uint32_t lease, enum place);
void lease_leave_conn(struct lease *); // the lease goes on without its connection
// Whether the lease ends once this job is answered.
bool lease_ends_with(const struct core *, const struct lease *, uint64_t id);
#define LEASE_LOST "the worker's connection was lost"
int lease_lose(struct core *, uint32_t lease, const char *why, bool backoff);
// Records a failed attempt. Returns 1 if that was the last one: the caller then calls job_die.
// `lease`: the lease that ends with it; NULL: none.
int attempt_fail(struct core *, uint32_t job, const struct lease *lease, struct cause,
                 uint64_t due_ms, bool dead, enum room);
void job_die(struct core *, uint32_t job);
void job_set_reasons(struct core *, struct job *, uint64_t at, uint32_t size);

// Ends a job as cancelled or expired: records it and notifies callers and worker.
int job_end(struct core *, uint32_t job, enum job_status);
// Applies an end that was recorded at `at`; 0: it was not recorded, and the job's home stays.
void job_ended(struct core *, uint32_t job, enum job_status, uint64_t at, uint32_t size);
void job_forget(struct core *, uint32_t job);
int job_grace_over(struct core *, uint32_t job);
void callers_notify(struct core *, struct job *, const struct outcome *);
int caller_attach(struct core *, uint32_t job, struct caller *);
void caller_link(struct core *, uint32_t job, struct caller *); // after job_reserve
int caller_leave(struct core *, struct caller *);
void pusher_leave(struct core *, struct pusher *);
struct outcome outcome_of(const struct core *, const struct job *);

// ---- lease_record.c: leases that outlive the engine -------------------------------------------

// Whether a lease must survive a restart of the engine, because its worker may go on without it.
static inline bool lease_outlives_engine(const struct stage *s, bool detached, bool in_process) {
    return !in_process && (detached || s->policy.overlap_never);
}

int lease_record_start(struct core *, struct lease *, uint32_t last_job); // before its jobs start
int lease_record_cut(struct core *, struct lease *, uint32_t last_job);   // if it is recorded
// Records the lease with this end; as a copy for ROOM_CLEAN.
int lease_write(struct core *, struct lease *, uint64_t until_ms, enum room);
void lease_add_end(struct core *, const struct lease *); // adds "it is over" to the group
// The same as a group of its own, if recorded.
int lease_write_end(struct core *, const struct lease *);
void lease_unrecord(struct core *, struct lease *);                 // if it is
uint32_t lease_find_recorded(const struct core *, uint64_t serial); // 0: none
int lease_replay(struct core *, const struct record *, uint64_t at, uint32_t size);
void leases_forget(struct core *, uint32_t stage); // replay: the stage was dropped
int leases_open(struct core *);                    // after replay: drops those whose end has come
void leases_bind(struct core *);                   // then: marks held channels as in progress
int leases_hold(struct core *); // when channels are sorted: marks their jobs as running

// Sets the lease's timer; `order` breaks ties.
void lease_set_timer(struct core *, struct lease *, uint64_t at_ms, uint32_t order);

// The job at index `i` of the lease, if it still runs under it; else 0.
uint32_t lease_running(const struct core *, const struct lease *, uint32_t i);

// ---- look.c, for walk.c -----------------------------------------------------------------------

int look_find_stage(struct core *, mr_bytes name, struct stage **out); // MR_EGONE
struct job_info look_at_job(const struct core *, const struct job *);

// Delivers a job that was delayed, or resolves the channel that was parked for it. Its instant was
// dropped before.
void job_comes_due(struct core *, uint32_t job);

void timers_tidy(struct core *);

// A timer has become obsolete.
static inline void timer_forget(struct core *c) {
    heap_forget(&c->timers);
    if (heap_wants_filter(&c->timers))
        timers_tidy(c);
}

// Sets a timer to retry what could not be recorded now.
void timer_retry(struct core *, enum timer, uint32_t number);

// Counts work as that of `count` timers, against the limit of this core_advance, too.
static inline void due_spend(struct core *c, uint32_t count) {
    c->due_left -= count < c->due_left ? count : c->due_left;
    c->steps += STEPS_DUE * (uint64_t)count;
}

static inline uint32_t timer_value(enum timer kind, uint32_t number) {
    return (uint32_t)kind << ATTR_SHIFT | number;
}

#endif
