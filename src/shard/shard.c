// Opening: log, replay, head check, core_open, crashed attempts; then everything must be durable
// before the shard is used, because all ids and tokens depend on the epoch.
#include "shard/shard.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/record.h"
#include "shard/clean.h"
#include "shard/reads.h"
#include "shard/running.h"
#include "shard/ticks.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct shard {
    struct log *log;
    struct core *core;
    struct running *running; // NULL: the store has no directory
    struct peers *peers;     // NULL: the engine has no other shard
    struct cleaner cleaner;
    struct reads reads;
    struct ticks ticks;
    struct shard_world world;
    uint64_t base_ms, base_boot_ms; // engine time and boot time at opening
    uint64_t last_at;               // the entry appended last
    bool appended;                  // entries were appended since the last flush
    bool urgent;                    // an EPOCH record: it is synced whatever the policy
};

// ---- Time and randomness ----------------------------------------------------------------------

static uint64_t clock_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t world_wall_ms(const struct shard_world *w) {
    return w->wall_ms ? w->wall_ms(w->arg) : clock_ms(CLOCK_REALTIME);
}

uint64_t world_boot_ms(const struct shard_world *w) {
    return w->boot_ms ? w->boot_ms(w->arg) : clock_ms(CLOCK_BOOTTIME);
}

static int world_random(const struct shard_world *w, uint64_t *out) {
    uint64_t bits = 0;
    if (w->random)
        bits = w->random(w->arg);
    else if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return error_set(MR_EIO, "no random numbers: %s", strerror(errno));
    *out = bits;
    return 0;
}

static uint64_t shard_now_ms(const struct shard *s) {
    uint64_t boot = world_boot_ms(&s->world);
    uint64_t now = s->base_ms + (boot > s->base_boot_ms ? boot - s->base_boot_ms : 0);
    uint64_t known = core_now(s->core);
    return now > known ? now : known;
}

uint64_t shard_boot_ms(const struct shard *s) {
    return s->base_boot_ms + (core_now(s->core) - s->base_ms);
}

// ---- The core's sink --------------------------------------------------------------------------

enum { CLEANED_TOGETHER = 4 }; // at least as many records as the core copies in one group

static bool is_epoch(const struct entry *e) {
    return e->head.size > 0 && *(const uint8_t *)e->head.data == RECORD_EPOCH;
}

static int sink_append(void *owner, const struct entry *entries, size_t count, enum room room,
                       uint64_t *out_at) {
    struct shard *s = owner;
    struct entry marked[CLEANED_TOGETHER];
    if (s->cleaner.damaged && count <= CLEANED_TOGETHER) {
        for (size_t i = 0; i < count; i++) {
            marked[i] = entries[i];
            marked[i].damaged = entries[i].body.data == s->cleaner.damaged;
        }
        entries = marked;
    }
    int err = log_append(s->log, entries, count, room, out_at);
    if (err < 0)
        return err;
    s->last_at = out_at[count - 1];
    s->appended = true;
    s->urgent = s->urgent || is_epoch(entries); // an EPOCH record is a group of its own
    return 0;
}

static int sink_read(void *owner, uint64_t at, struct buffer *out_body) {
    return shard_read_own(owner, at, out_body);
}

static void sink_running(void *owner, uint64_t id, uint32_t attempt, bool begins) {
    struct shard *s = owner;
    if (begins)
        running_begin(s->running, id, attempt);
    else
        running_end(s->running, id);
}

static struct core_config core_config_of(struct shard *s, const struct shard_options *o) {
    struct log_state log;
    log_look(s->log, &log);
    struct core_config config = { .limits = o->limits,
                                  .segment_size = log.segment_size,
                                  .sink = { .append = sink_append,
                                            .read = sink_read,
                                            .running = s->running ? sink_running : NULL,
                                            .owner = s },
                                  .events = o->events,
                                  .quotas = o->quotas,
                                  .owner = o->owner,
                                  .shard = o->shard,
                                  .shards = o->shards,
                                  .never_replayed = o->never_replayed };
    config.quotas.owner = o->owner;
    if (s->peers)
        config.peers = peers_of_core(s->peers);
    return config;
}

// ---- Opening and closing ----------------------------------------------------------------------

struct replaying {
    struct core *core;
    const atomic_bool *cancel;
};

static int shard_replay_entry(void *arg, const struct log_seen *seen) {
    const struct replaying *r = arg;
    if (r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed))
        return error_set(MR_ECANCELLED, "reading the store was cancelled");
    return core_replay(r->core, seen->at, seen->head, seen->body_size);
}

static int count_crashed(void *arg, uint64_t id, uint32_t attempt) {
    struct shard *s = arg;
    int err = core_crashed(s->core, id, attempt);
    return err == MR_EGONE ? 0 : err;
}

uint64_t shard_recorded_ms(const struct shard *s) {
    return core_now(s->core);
}

int shard_start(struct shard *s, uint64_t now_ms, uint64_t boot_ms) {
    uint64_t random = 0;
    int err = world_random(&s->world, &random);
    if (err < 0)
        return err;
    s->base_ms = now_ms;
    s->base_boot_ms = boot_ms;
    err = core_open(s->core, now_ms, random);
    if (err >= 0 && s->peers)
        peers_open(s->peers);
    if (err >= 0 && s->running && !MUTANT(crash_counts_no_attempt))
        err = running_each_left(s->running, count_crashed, s);
    if (err < 0)
        return err;
    err = MUTANT(epoch_not_awaited) ? 0 : shard_wait(s, shard_end(s));
    if (err >= 0 && s->running)
        running_forget_left(s->running);
    return err;
}

static int shard_fill(struct shard *s, const struct shard_options *o) {
    const char *dir = store_url_dir(&o->store);
    int err = log_open(&o->store, o->shard, &o->log, &s->log);
    if (err < 0)
        return err;
    // A simulated disk has no files that can be mapped.
    if (dir && !o->log.disk)
        err = running_open(dir, &s->running);
    if (err >= 0 && o->shards > 1)
        err = peers_create(s, o->shard, o->shards, &s->peers);
    struct core_config config = core_config_of(s, o);
    if (err >= 0)
        err = core_create(&config, &s->core);
    if (err < 0)
        return err;
    if (s->peers)
        peers_start(s->peers, s->core);
    s->ticks = (struct ticks){ .core = s->core, .world = &s->world };
    s->cleaner = (struct cleaner){ .log = s->log, .core = s->core, .last_at = &s->last_at };
    struct replaying replaying = { s->core, o->cancel };
    err = log_replay(s->log, shard_replay_entry, &replaying);
    return err < 0 ? err : cleaner_resume(&s->cleaner);
}

// Closes the running file while the log still locks the directory.
static void shard_free(struct shard *s, bool in_peace) {
    core_destroy(s->core);
    reads_finish(&s->reads);
    ticks_finish(&s->ticks);
    peers_destroy(s->peers);
    running_close(s->running, in_peace);
    log_close(s->log);
    mem_free(s);
}

int shard_load(const struct shard_options *options, struct shard **out) {
    struct shard *s = mem_alloc(sizeof *s);
    if (!s)
        return error_set(MR_ENOMEM, "no memory for a shard");
    s->world = options->world;
    int err = shard_fill(s, options);
    if (err < 0) {
        shard_free(s, false);
        return err;
    }
    *out = s;
    return 0;
}

int shard_open(const struct shard_options *options, struct shard **out) {
    struct shard *s;
    int err = shard_load(options, &s);
    if (err < 0)
        return err;
    uint64_t wall = world_wall_ms(&s->world), recorded = shard_recorded_ms(s);
    err = shard_start(s, wall > recorded ? wall : recorded, world_boot_ms(&s->world));
    if (err < 0)
        shard_abandon(s);
    else
        *out = s;
    return err;
}

void shard_abandon(struct shard *s) {
    if (s)
        shard_free(s, false);
}

// Ids that are not returned are skipped, so an error is ignored.
void shard_close(struct shard *s) {
    if (!s)
        return;
    if (!shard_has_stopped(s))
        (void)core_return_ids(s->core);
    shard_free(s, true);
}

// ---- Turns ------------------------------------------------------------------------------------

struct core *shard_core(struct shard *s) {
    return s->core;
}

struct ticks *shard_ticks(struct shard *s) {
    return &s->ticks;
}

struct peers *shard_peers(struct shard *s) {
    return s->peers;
}

uint64_t shard_position(const struct shard *s) {
    return s->last_at;
}

static int shard_stopped(struct shard *s) {
    struct log_state log;
    log_look(s->log, &log);
    return error_set(MR_ESTOPPED, "%s", log.stopped);
}

uint64_t shard_owned_ms(const struct shard *s) {
    return log_owned_ms(s->log);
}

bool shard_has_stopped(const struct shard *s) {
    return log_has_stopped(s->log);
}

// Whether the core waits for ids or room, and the log has them.
APART static bool shard_log_has(struct shard *s, bool *out_ids) {
    struct log_state log;
    log_look(s->log, &log);
    uint64_t ids_at = core_ids_wait(s->core);
    *out_ids = ids_at && log.synced > ids_at;
    return core_log_is_full(s->core) && !log.full && !log.behind && (!ids_at || *out_ids);
}

bool shard_has_log_room(struct shard *s) {
    bool ids;
    return core_log_is_full(s->core) && shard_log_has(s, &ids);
}

APART static void shard_follow_log(struct shard *s) {
    bool ids, room = shard_log_has(s, &ids);
    if (ids)
        core_ids_durable(s->core);
    if (room)
        core_log_has_room(s->core);
}

// What is due and could not be recorded is due again a little later; that is no reason to refuse
// the turn, whose commands have nothing to do with it.
static int shard_begin_at(struct shard *s, uint64_t now_ms) {
    int err = core_advance(s->core, now_ms);
    if (core_ids_wait(s->core) || core_log_is_full(s->core))
        shard_follow_log(s);
    if (ticks_are_due(&s->ticks))
        ticks_run(&s->ticks);
    return err == MR_ESTOPPED ? err : 0;
}

int shard_begin(struct shard *s) {
    return shard_has_stopped(s) ? shard_stopped(s) : shard_begin_at(s, shard_now_ms(s));
}

// The latest instant up to the present at which nothing is due yet; 0: there is none.
static uint64_t shard_undue_ms(struct shard *s, uint64_t now_ms) {
    uint64_t due_ms = core_next(s->core), tick_ms = ticks_due_ms(&s->ticks);
    due_ms = tick_ms < due_ms ? tick_ms : due_ms;
    return due_ms > now_ms ? now_ms : due_ms ? due_ms - 1 : 0;
}

int shard_begin_with(struct shard *s, void (*deliver)(void *arg), void *arg) {
    if (shard_has_stopped(s))
        return shard_stopped(s);
    uint64_t now_ms = shard_now_ms(s), undue_ms = shard_undue_ms(s, now_ms);
    int err = undue_ms > core_now(s->core) ? core_advance(s->core, undue_ms) : 0;
    if (err < 0)
        return err;
    deliver(arg);
    return shard_begin_at(s, now_ms);
}

uint64_t shard_end_by(struct shard *s, enum flush_by by) {
    if (s->appended && (s->urgent || by == FLUSH_BY_WRITER))
        log_flush(s->log, s->urgent);
    else if (s->appended)
        log_flush_by(s->log, by);
    s->appended = s->urgent = false;
    return s->last_at;
}

uint64_t shard_end(struct shard *s) {
    return shard_end_by(s, FLUSH_BY_WRITER);
}

uint64_t shard_last_at(const struct shard *s) {
    return s->last_at;
}

int shard_wait(struct shard *s, uint64_t at) {
    return log_wait(s->log, at);
}

bool shard_is_durable(struct shard *s, uint64_t at) {
    struct log_state log;
    log_look(s->log, &log);
    return log.durable > at;
}

int shard_read(struct shard *s, uint64_t at, struct buffer *out_body) {
    return log_read(s->log, at, NULL, out_body);
}

int shard_read_now(struct shard *s, uint64_t at, struct buffer *out_body) {
    return log_read_now(s->log, at, NULL, out_body);
}

int shard_read_head_now(struct shard *s, uint64_t at, struct buffer *out_head) {
    return log_read_now(s->log, at, out_head, NULL);
}

// ---- What the shard itself reads
// ------------------------------------------------------------------

int shard_read_own(struct shard *s, uint64_t at, struct buffer *out_body) {
    if (!s->reads.elsewhere)
        return shard_read(s, at, out_body);
    int err = shard_read_now(s, at, out_body);
    if (err == MR_EAGAIN)
        err = reads_use(&s->reads, at, out_body);
    if (err == MR_EAGAIN)
        reads_want(&s->reads, at);
    return err;
}

void shard_want(struct shard *s, uint64_t at) {
    if (s->reads.elsewhere)
        reads_want(&s->reads, at);
}

bool shard_has_kept(const struct shard *s, uint64_t at) {
    return reads_has(&s->reads, at);
}

void shard_read_elsewhere(struct shard *s, bool elsewhere) {
    s->reads.elsewhere = elsewhere;
}

uint32_t shard_take_wanted(struct shard *s, uint64_t *out_at, uint32_t most) {
    return s->reads.wanted_count ? reads_take_wanted(&s->reads, out_at, most) : 0;
}

void shard_keep(struct shard *s, uint64_t at, int err, struct buffer *bytes) {
    reads_keep(&s->reads, at, err, bytes, core_now(s->core));
}

void shard_expect(struct shard *s, uint64_t at) {
    log_expect(s->log, at);
}

int shard_read_head(struct shard *s, uint64_t at, struct buffer *out_head) {
    return log_read(s->log, at, out_head, NULL);
}

enum { LOG_ROOM_MS = 1000 }; // a full log is looked at so often, beside on_durable

int64_t shard_next_ms(struct shard *s) {
    struct log_state log;
    log_look(s->log, &log);
    uint64_t now_ms = shard_now_ms(s);
    int64_t ms = wait_shorter(wait_ms_until(core_next(s->core), now_ms),
                              cleaner_next_ms(&s->cleaner, &log, now_ms));
    if (core_log_is_full(s->core))
        ms = wait_shorter(ms, LOG_ROOM_MS);
    ms = wait_shorter(ms, wait_ms_until(ticks_due_ms(&s->ticks), now_ms));
    return s->peers ? wait_shorter(ms, wait_ms_until(peers_due_ms(s->peers), now_ms)) : ms;
}

bool shard_can_clean(struct shard *s) {
    struct log_state log;
    log_look(s->log, &log);
    return cleaner_next_ms(&s->cleaner, &log, core_now(s->core)) == 0;
}

int shard_clean(struct shard *s, bool *out_more) {
    struct log_state log;
    log_look(s->log, &log);
    uint64_t now = core_now(s->core);
    if (cleaner_next_ms(&s->cleaner, &log, now) != 0) {
        *out_more = false;
        return 0;
    }
    int err = cleaner_step(&s->cleaner, &log, now);
    if (err < 0)
        return err;
    log_look(s->log, &log);
    *out_more = cleaner_next_ms(&s->cleaner, &log, now) == 0;
    return 0;
}

void shard_pin(struct shard *s, bool is_pinned) {
    s->cleaner.is_pinned = is_pinned;
}

int shard_scan(struct shard *s, uint64_t from, size_t max_bytes, log_each *each, void *arg,
               uint64_t *out_next) {
    return log_scan(s->log, from, max_bytes, each, arg, out_next);
}

uint64_t shard_damage(const struct shard *s, const char **out_where) {
    *out_where = s->cleaner.damage;
    return s->cleaner.damaged_count;
}

void shard_look(struct shard *s, struct log_state *out) {
    log_look(s->log, out);
}
