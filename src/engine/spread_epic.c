// Epics over several shards: each has the numbers of its own jobs. Counts are added up, and an epic
// resumes at the first number that no shard has.
//
// Who waits for an epic to be worked off watches every shard, and is woken by the first in which
// enough has ended that all together may have come so far: if D jobs more have to end, one of N
// shards has ended at least D/N of them by then. So there are few looks in vain.
#include "base/errors.h"
#include "core/record.h"
#include "engine/spread.h"

#include <inttypes.h>
#include <stdio.h>

// ---- Looking ----------------------------------------------------------------------------------

// What all shards know of an epic, and what each does.
struct sight {
    struct epic_info sum;
    char stage[HAND_STAGE + 1]; // that `sum` names
    struct epic_info of[SHARDS_MOST];
    uint64_t known; // bit n: shard n has part of it
};

static uint64_t unended(const struct epic_info *i) {
    return i->waiting + i->running;
}

static void sight_add(struct sight *s, const struct epic_info *more) {
    struct epic_info *sum = &s->sum;
    if (more->stage.size && (!sum->stage.size || more->waiting)) {
        snprintf(s->stage, sizeof s->stage, "%.*s", (int)more->stage.size,
                 (const char *)more->stage.data);
        sum->stage = mr_str(s->stage);
    }
    sum->accepted += more->accepted;
    sum->waiting += more->waiting;
    sum->running += more->running;
    sum->done += more->done;
    sum->dead += more->dead;
    sum->cancelled += more->cancelled;
    sum->expired += more->expired;
    sum->ended = sum->ended || more->ended;
    sum->total = more->ended ? more->total : sum->total;
    sum->expected = more->expected > sum->expected ? more->expected : sum->expected;
}

// All shards at one instant: who drops an epic drops all of it.
static void enter_all(struct spread *s) {
    for (uint32_t i = 0; i < s->count; i++)
        (void)local_enter(s->locals[i]); // looks go on when the log has stopped
}

static void end_all(struct spread *s) {
    uint64_t at[SHARDS_MOST];
    for (uint32_t i = 0; i < s->count; i++)
        at[i] = local_end(s->locals[i]);
    for (uint32_t i = 0; i < s->count; i++)
        (void)shard_wait(s->locals[i]->shard, at[i]);
}

static int sight_look(struct local *e, mr_bytes name, struct sight *s, struct epic_seen *seen) {
    struct epic_seen more;
    struct epic_info *one = &s->of[e->index];
    int err = core_epic(e->core, name, one);
    if (err >= 0)
        err = core_epic_seen(e->core, name, &more);
    if (err < 0)
        return err;
    sight_add(s, one);
    epic_seen_add(seen, &more);
    s->known |= UINT64_C(1) << e->index;
    return 0;
}

static int look(struct spread *s, mr_bytes name, struct sight *out) {
    struct epic_seen seen = { 0 };
    out->known = 0;
    out->sum = (struct epic_info){ 0 };
    int err = MR_EGONE;
    enter_all(s);
    for (uint32_t i = 0; (err >= 0 || err == MR_EGONE) && i < s->count; i++)
        err = sight_look(s->locals[i], name, out, &seen);
    end_all(s);
    if (err < 0 && (err != MR_EGONE || !out->known))
        return err;
    struct epic_info *sum = &out->sum;
    sum->resume = epic_seen_resume(&seen);
    sum->over = sum->ended && sum->resume > sum->total && !unended(sum);
    return 0;
}

static mr_epic_info show(struct spread *s, const struct epic_info *sum) {
    struct stage_info at = { 0 };
    if (sum->waiting && sum->stage.size)
        (void)spread_look_stage(s, sum->stage, &at); // not known: held by nothing
    return local_show_epic(sum, at.held_by);
}

int spread_epic(struct engine *base, mr_bytes name, mr_epic_info *out) {
    struct sight sight;
    int err = look((struct spread *)base, name, &sight);
    if (err >= 0)
        *out = show((struct spread *)base, &sight.sum);
    return err;
}

// ---- Waiting ----------------------------------------------------------------------------------

// Watches a shard. 1: it has changed since it was looked at, look again.
static int watch(struct local *e, mr_bytes name, int64_t left, const struct epic_info *before,
                 struct epic_waiter *w) {
    struct epic_info now;
    int err = local_begin(e);
    if (err < 0)
        return err;
    err = core_epic(e->core, name, &now);
    bool fewer = err >= 0 && left >= 0 && unended(&now) <= (uint64_t)left;
    bool other =
        err >= 0 && (now.ended != before->ended || (left < 0 && now.accepted != before->accepted));
    if (err >= 0 && !fewer && !other)
        err = core_epic_watch(e->core, name, left, &w->watcher);
    if (err >= 0 && !fewer && !other)
        list_append(&e->waiters, &w->waiter.of_engine);
    local_end(e);
    return err < 0 ? err : fewer || other;
}

static void unwatch(struct local *e, struct epic_waiter *w) {
    local_enter(e);
    core_epic_unwatch(&w->watcher);
    list_remove(&w->waiter.of_engine);
    local_end(e);
}

// How many may be left in this shard when it is time to look again; -2: it can not decide anything.
static int64_t left_here(const struct sight *s, const struct epic_info *here, int64_t left,
                         uint32_t shards) {
    uint64_t all = unended(&s->sum), most = left < 0 ? 0 : (uint64_t)left;
    if (all <= most)
        return -1; // its numbers or its end are missing
    uint64_t step = (all - most + shards - 1) / shards;
    return unended(here) < step ? -2 : (int64_t)(unended(here) - step);
}

// Sleeps until it is worth while to look again. MR_EAGAIN: not in time.
static int wait_for_change(struct spread *s, mr_bytes name, int64_t left, uint64_t until_ms,
                           const struct sight *sight) {
    struct epic_waiter waiters[SHARDS_MOST];
    struct ask ask;
    int err = 0;
    ask_init(&ask);
    (void)ask_open(&ask);
    for (uint32_t i = 0; i < s->count; i++)
        waiters[i] = (struct epic_waiter){ .waiter.ask = &ask };
    for (uint64_t todo = sight->known; err == 0 && todo; todo &= todo - 1) {
        int i = __builtin_ctzll(todo);
        int64_t here = left_here(sight, &sight->of[i], left, s->count);
        if (here >= -1)
            err = watch(s->locals[i], name, here, &sight->of[i], &waiters[i]);
    }
    if (err == 0)
        err = ask_sleep(&ask, until_ms);
    for (uint32_t i = 0; i < s->count; i++)
        unwatch(s->locals[i], &waiters[i]);
    ask_finish(&ask);
    return err == MR_EGONE ? 0 : err; // it was dropped meanwhile: the next look says so
}

static void expect(struct spread *s, mr_bytes name, uint64_t total) {
    for (uint32_t i = 0; i < s->count; i++) {
        local_enter(s->locals[i]);
        core_epic_expect(s->locals[i]->core, name, total);
        local_end(s->locals[i]);
    }
}

int spread_epic_wait(struct engine *base, mr_bytes name, int64_t left, uint64_t expected,
                     int64_t wait_ms, mr_epic_info *out) {
    struct spread *s = (struct spread *)base;
    uint64_t until_ms = wait_ms ? local_until(wait_ms) : 0;
    struct sight sight;
    if (expected)
        expect(s, name, expected);
    int err = look(s, name, &sight);
    while (err >= 0 && !epic_has_come_to(&sight.sum, left)) {
        err = wait_for_change(s, name, left, until_ms, &sight);
        if (err >= 0)
            err = look(s, name, &sight);
    }
    if (err >= 0)
        *out = show(s, &sight.sum);
    if (err != MR_EAGAIN)
        return err;
    return error_set(MR_EAGAIN, "epic '%.*s' was not worked off so far within %" PRId64 " ms",
                     (int)name.size, (const char *)name.data, wait_ms);
}

// ---- Numbers ----------------------------------------------------------------------------------

// The first number of a source that no shard has, or one below it: they are looked at one by one.
static uint64_t first_missing(struct spread *s, mr_bytes source) {
    struct epic_seen seen = { 0 }, more;
    for (uint32_t i = 0; i < s->count; i++) {
        struct local *e = s->locals[i];
        pthread_mutex_lock(&e->lock);
        int err = core_source_seen(e->core, source, &more);
        pthread_mutex_unlock(&e->lock);
        if (err >= 0)
            epic_seen_add(&seen, &more);
    }
    return epic_seen_resume(&seen);
}

// What was missing when it was looked at last; 0: not known.
static uint64_t missing_then(struct spread *s, uint64_t name) {
    pthread_mutex_lock(&s->lock);
    bool known = s->sources[name % SPREAD_SOURCES].name == name;
    uint64_t resume = known ? s->sources[name % SPREAD_SOURCES].resume : 0;
    pthread_mutex_unlock(&s->lock);
    return resume;
}

static void note_missing(struct spread *s, uint64_t name, uint64_t resume) {
    pthread_mutex_lock(&s->lock);
    s->sources[name % SPREAD_SOURCES].name = name;
    s->sources[name % SPREAD_SOURCES].resume = resume;
    pthread_mutex_unlock(&s->lock);
}

int spread_check_ahead(struct spread *s, mr_bytes source, uint64_t number) {
    uint64_t name = bytes_hash(source, 0), resume = missing_then(s, name);
    if (resume && number < resume + SOURCE_WINDOW)
        return 0;
    resume = first_missing(s, source);
    note_missing(s, name, resume);
    if (number < resume + SOURCE_WINDOW)
        return 0;
    return error_set(MR_EGAP, "%" PRIu64 " is missing, and %" PRIu64 " is too far ahead of it",
                     resume, number);
}

// ---- Acting -----------------------------------------------------------------------------------

// Of what was changed: `err`, or MR_ESTOPPED if a log has failed meanwhile.
static int end_all_and_show(struct spread *s, int err) {
    uint64_t at[SHARDS_MOST];
    for (uint32_t i = 0; i < s->count; i++)
        at[i] = local_end(s->locals[i]);
    for (uint32_t i = 0; i < s->count; i++)
        err = local_show(s->locals[i], at[i], err);
    return err;
}

// With all locks: nobody pushes a number beyond the end while that comes to all shards.
static int end_in_all(struct spread *s, mr_bytes name, uint64_t total) {
    struct epic_seen seen = { 0 }, more;
    for (uint32_t i = 0; i < s->count; i++)
        if (core_epic_seen(s->locals[i]->core, name, &more) >= 0)
            epic_seen_add(&seen, &more);
    int err = epic_check_end(&seen, total);
    for (uint32_t i = 0; err >= 0 && i < s->count; i++)
        err = core_epic_end(s->locals[i]->core, name, total);
    return err;
}

int spread_epic_end(struct engine *base, mr_bytes name, uint64_t total) {
    struct spread *s = (struct spread *)base;
    if (spread_has_stopped(s))
        return spread_say_stopped(s);
    enter_all(s);
    int err = end_in_all(s, name, total);
    return end_all_and_show(s, err);
}

// In all of them: a push of that number may belong to any, by its key.
int spread_epic_skip(struct engine *base, mr_bytes name, uint64_t number) {
    struct spread *s = (struct spread *)base;
    pthread_mutex_lock(&s->acting);
    int err = spread_check_ahead(s, name, number);
    for (uint32_t i = 0; err >= 0 && i < s->count; i++)
        err = local_epic_skip(&s->locals[i]->base, name, number);
    pthread_mutex_unlock(&s->acting);
    return err;
}

// At once, so that nobody finds half of it.
int spread_epic_drop(struct engine *base, mr_bytes name) {
    struct spread *s = (struct spread *)base;
    bool dropped = false;
    int err = spread_has_stopped(s) ? spread_say_stopped(s) : MR_EGONE;
    if (err != MR_EGONE)
        return err;
    enter_all(s);
    for (uint32_t i = 0; (err >= 0 || err == MR_EGONE) && i < s->count; i++) {
        err = core_epic_drop(s->locals[i]->core, name);
        dropped = dropped || err >= 0;
    }
    note_missing(s, bytes_hash(name, 0), 0); // its numbers begin anew
    return end_all_and_show(s, err == MR_EGONE && dropped ? 0 : err);
}
