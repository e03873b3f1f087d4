// The log may have twice the size of its live entries plus two segments. Two segments, because the
// one being written and the one being scanned cannot be removed; twice, because copying a segment
// that is half alive writes one byte for each byte gained, and a fuller one costs more.
//
// While pushes are refused for lack of room, more cleaning pays: a first segment with little alive
// is removed at once; and in memory, where copies are cheap, dead entries may be only a quarter of
// the live ones.
//
// `at` only moves forward: there are no live entries below it, and never will be again.
//
// The log is given up from its head only, so damage that cannot be passed (a head that is wrong in
// a segment without an index) keeps its segment and all behind it, until nothing lives there any
// more.
#include "shard/clean.h"

#include "base/errors.h"
#include "base/mutant.h"

#include <stdio.h>
#include <string.h>

enum {
    STEP_BYTES = 1 << 20,
    STEP_OWN = 4096,       // stages and sources that the core looks at
    CLEAN_RETRY_MS = 1000, // after a failure
    CLEAN_FETCH_MS = 20,   // after MR_EAGAIN: the log fetches what is to be scanned
    POLL_MS = 5,
};

static uint64_t cleaner_from(const struct cleaner *c, const struct log_state *log) {
    return c->at > log->head ? c->at : log->head;
}

// The copies then fit into the room that a full disk keeps for the cleaner.
static bool head_is_nearly_dead(const struct cleaner *c, const struct log_state *log, uint64_t at) {
    return core_live_in(c->core, at, log_segment_end(c->log, at)) <= log->last_size / 16;
}

// Segments that are trimmed but not yet removed do not count, and the segment being written cannot
// be cleaned.
static bool log_is_too_long(const struct cleaner *c, const struct log_state *log) {
    uint64_t live = core_live_bytes(c->core), segment = log->segment_size;
    uint64_t at = cleaner_from(c, log), first = at / segment;
    uint64_t given_up = (first - log->head / segment) * segment;
    bool memory_is_short = log->memory && core_memory_is_short(c->core);
    uint64_t dead = memory_is_short ? live / 4 : live; // dead bytes that may stay
    if (first >= log->tail / segment)
        return false;
    return log->bytes > live + dead + 2 * segment + given_up ||
           ((log->full || memory_is_short) && head_is_nearly_dead(c, log, at));
}

static void cleaner_wait_for_last(struct cleaner *c, enum cleaner_state next) {
    c->wait_for = *c->last_at;
    c->state = next;
    log_flush(c->log, true);
}

// A damaged body that is still needed is copied as it is and marked: reading it still fails, but
// the cleaner can continue after it. An entry with a restored head and a good body is repaired by
// the copy.
static int cleaner_clean_entry(void *arg, const struct log_seen *seen) {
    struct cleaner *c = arg;
    uint64_t before = *c->last_at;
    if (!seen->damaged && !seen->restored)
        return core_clean(c->core, seen->at, seen->head, seen->body);
    char where[sizeof c->damage];
    snprintf(where, sizeof where, "%s", error_text());
    c->damaged = seen->damaged ? seen->body.data : NULL;
    int err = core_clean(c->core, seen->at, seen->head, seen->body);
    c->damaged = NULL;
    if (err < 0 || *c->last_at == before)
        return err;
    c->damaged_count++;
    memcpy(c->damage, where, sizeof where);
    return 0;
}

// Reports the damage once. The copies made so far stay valid, and nothing is trimmed.
static void cleaner_block(struct cleaner *c) {
    c->blocked = true;
    c->state = CLEANER_IDLE;
    c->damaged_count++;
    snprintf(c->damage, sizeof c->damage,
             "%s; the log is not shortened beyond it until then, or until nothing in that segment "
             "is needed any more",
             error_text());
}

static int cleaner_scan(struct cleaner *c) {
    uint64_t left = c->end - c->at;
    size_t bytes = left < STEP_BYTES ? left : STEP_BYTES;
    int err = bytes ? log_scan(c->log, c->at, bytes, cleaner_clean_entry, c, &c->at) : 0;
    if (err == MR_ECORRUPT)
        cleaner_block(c);
    if (err >= 0 && c->at >= c->end)
        cleaner_wait_for_last(c, CLEANER_COPYING);
    return err;
}

// Skips the rest of a segment without live entries. Otherwise scans the length of a segment, at
// most up to the tail when the round began.
static int cleaner_begin_scan(struct cleaner *c, const struct log_state *log) {
    int more = core_clean_own(c->core, c->at, c->end, STEP_OWN, &c->own);
    if (more)
        return more < 0 ? more : 0;
    uint64_t next = log_segment_end(c->log, c->at);
    c->state = CLEANER_IDLE;
    if (next <= log->tail && (!core_live_in(c->core, c->at, next) || MUTANT(live_segment_skipped)))
        c->at = c->end = next;
    else if (c->blocked)
        return error_set(MR_ECORRUPT, "%s", c->damage);
    c->blocked = false;
    c->state = CLEANER_SCANNING;
    return cleaner_scan(c);
}

static int cleaner_begin_round(struct cleaner *c, const struct log_state *log) {
    c->at = cleaner_from(c, log);
    uint64_t left = log->tail - c->at;
    c->end = c->at + (left < log->segment_size ? left : log->segment_size);
    c->own = (struct clean_cursor){ 0 };
    c->state = CLEANER_BEGINNING;
    return cleaner_begin_scan(c, log);
}

static int cleaner_note_trim(struct cleaner *c) {
    int err = core_trimmed(c->core, c->at);
    if (err >= 0)
        cleaner_wait_for_last(c, CLEANER_NOTING);
    return err;
}

static int cleaner_trim(struct cleaner *c) {
    int err = log_trim(c->log, c->at);
    if (err >= 0)
        c->state = CLEANER_IDLE;
    return err;
}

static int cleaner_do_step(struct cleaner *c, const struct log_state *log) {
    switch (c->state) {
    case CLEANER_IDLE:
        return cleaner_begin_round(c, log);
    case CLEANER_BEGINNING:
        return cleaner_begin_scan(c, log);
    case CLEANER_SCANNING:
        return cleaner_scan(c);
    case CLEANER_COPYING:
        return cleaner_note_trim(c);
    case CLEANER_NOTING:
        return cleaner_trim(c);
    }
    return 0;
}

// To go on serving is worth more than a backup, which can be repeated.
static bool cleaner_is_held(const struct cleaner *c, const struct log_state *log) {
    return c->is_pinned && !log->full && !core_memory_is_short(c->core);
}

int64_t cleaner_next_ms(const struct cleaner *c, const struct log_state *log, uint64_t now_ms) {
    if (cleaner_is_held(c, log))
        return -1;
    if (log->stopped[0] || (c->state == CLEANER_IDLE && !log_is_too_long(c, log)))
        return -1;
    if (now_ms < c->retry_at_ms)
        return (int64_t)(c->retry_at_ms - now_ms);
    bool waits = c->state == CLEANER_COPYING || c->state == CLEANER_NOTING;
    return waits && log->durable <= c->wait_for ? POLL_MS : 0;
}

int cleaner_step(struct cleaner *c, const struct log_state *log, uint64_t now_ms) {
    int err = cleaner_do_step(c, log);
    if (err < 0)
        c->retry_at_ms = now_ms + (err == MR_EAGAIN ? CLEAN_FETCH_MS : CLEAN_RETRY_MS);
    return err;
}

int cleaner_resume(struct cleaner *c) {
    struct log_state log;
    log_look(c->log, &log);
    uint64_t mark = core_trim_mark(c->core);
    if (log.head / log.segment_size > mark / log.segment_size)
        return error_set(MR_ECORRUPT,
                         "missing head: the log begins at %llu, but was given up only to %llu",
                         (unsigned long long)log.head, (unsigned long long)mark);
    return log_trim(c->log, mark);
}
