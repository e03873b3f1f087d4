// First the log is made readable; then records that the core refuses are removed, and missing ones
// are added.
//
// A refused record is removed with the group it belongs to. Later records may be refused because of
// that, so this is repeated a few times; if some are still refused, everything from the first
// refused record on is removed.
//
// A log that has lost a part may have jobs of a stage without a name, a missing head without a TRIM
// record, and ids that were issued but are not known. Each of these is repaired by appending the
// missing record.
#include "shard/repair.h"

#include "base/errors.h"
#include "base/limits.h"
#include "base/mem.h"
#include "core/record.h"
#include "log/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STAGES_MOST = 1 << 16, PASSES = 8 };

// Largest values from which an engine can continue: beyond them it would open the store, but refuse
// the records that it writes next.
#define INSTANT_USABLE (UINT64_C(1) << 43) // the year 2248
#define NUMBER_USABLE (NUMBER_MOST / 4)
#define EPOCH_USABLE (UINT64_C(1) << 22)

#define IDS_SKIPPED                                                                                \
    (UINT64_C(1) << 32) // more than can have been issued since the last record that is left

// ---- Records that are refused -----------------------------------------------------------------

struct refusals {
    struct core *core;
    struct buffer at; // positions, u64 each, ascending
};

static bool is_beyond_usable(const struct log_seen *seen) {
    struct record_about about;
    struct record r;
    if (record_decode(seen->head, &about, &r) < 0)
        return false;
    return r.time_ms > INSTANT_USABLE || r.id > NUMBER_USABLE || r.number > NUMBER_USABLE ||
           r.source > NUMBER_USABLE || r.next_id > NUMBER_USABLE || r.epoch > EPOCH_USABLE;
}

static int refusal_note(void *arg, const struct log_seen *seen) {
    struct refusals *f = arg;
    int err = is_beyond_usable(seen) ? MR_ECORRUPT
                                     : core_replay(f->core, seen->at, seen->head, seen->body_size);
    return err == MR_ECORRUPT ? buffer_append(&f->at, &seen->at, sizeof seen->at) : err;
}

static int refusals_find(const struct shard_place *p, struct refusals *out) {
    struct core_config config = { .shard = p->shard, .shards = p->shards };
    struct log_options options = { .disk = p->disk, .read_only = true };
    struct log *log = NULL;
    buffer_clear(&out->at);
    int err = core_create(&config, &out->core);
    if (err < 0)
        return err;
    err = log_file_open(p->dir, &options, &log);
    if (err == 0)
        err = log_replay(log, refusal_note, out);
    log_close(log);
    core_destroy(out->core);
    return err;
}

static void repair_add(struct log_repair *sum, const struct log_repair *more) {
    for (uint64_t i = 0; i < more->places && i < LOG_REPAIR_PLACES; i++)
        if (sum->places + i < LOG_REPAIR_PLACES)
            sum->place[sum->places + i] = more->place[i];
    sum->places += more->places;
    sum->segments += more->segments;
    sum->missing += more->missing;
    sum->bytes += more->bytes;
}

static int refused_give_up(const struct shard_place *p, struct log_repair *sum) {
    struct refusals found = { 0 };
    int err = 0;
    for (int pass = 1; err == 0 && pass <= PASSES + 1; pass++) {
        err = refusals_find(p, &found);
        if (err < 0 || !found.at.size)
            break;
        struct log_given_up which = { .at = (const uint64_t *)found.at.data,
                                      .count = found.at.size / sizeof(uint64_t),
                                      .from = UINT64_MAX };
        if (pass > PASSES)
            which.from = which.at[0];
        struct log_repair more;
        err = log_file_give_up(p->dir, p->disk, &which, &more);
        if (err == 0)
            repair_add(sum, &more);
    }
    buffer_finish(&found.at);
    return err;
}

// ---- Records that are missing -----------------------------------------------------------------

struct missing {
    struct log *log;
    uint8_t used[STAGES_MOST], named[STAGES_MOST]; // by stage number: 1
    uint8_t taken[STAGES_MOST];                    // a stage is called lost-NUMBER
    uint64_t time_ms, epoch, next_id, mark;        // the latest
    uint64_t last_at;
};

static int missing_note(void *arg, const struct log_seen *seen) {
    struct missing *m = arg;
    struct record_about about;
    struct record r;
    int err = record_decode(seen->head, &about, &r);
    if (err < 0)
        return err;
    if (r.stage < STAGES_MOST)
        (r.kind == RECORD_STAGE ? m->named : m->used)[r.stage] = 1;
    if (r.kind == RECORD_STAGE_DROP && r.stage < STAGES_MOST)
        m->named[r.stage] = m->used[r.stage] = 0;
    char name[STAGE_NAME_MOST + 1];
    unsigned number;
    snprintf(name, sizeof name, "%.*s", (int)r.name.size, (const char *)r.name.data);
    if (r.kind == RECORD_STAGE && sscanf(name, "lost-%u", &number) == 1 && number < STAGES_MOST)
        m->taken[number] = 1;
    if (r.kind == RECORD_TRIM)
        m->mark = r.upto;
    uint64_t issued = r.kind == RECORD_OUTBOX && r.number > r.id ? r.number : r.id; // both are ids
    uint64_t next_id = r.next_id > issued ? r.next_id : issued + 1;
    m->next_id = next_id > m->next_id ? next_id : m->next_id;
    m->epoch = r.epoch > m->epoch ? r.epoch : m->epoch;
    m->time_ms = r.time_ms > m->time_ms ? r.time_ms : m->time_ms;
    return 0;
}

static int missing_append(struct missing *m, struct record r) {
    uint8_t head[RECORD_MAX];
    r.time_ms = m->time_ms;
    struct entry e = { .head = { head, record_encode(&r, head) } };
    return log_append(m->log, &e, 1, ROOM_CLEAN, &m->last_at);
}

static int missing_stages(struct missing *m, struct shard_repair *out) {
    int err = 0;
    for (uint32_t i = 1; err == 0 && i < STAGES_MOST; i++) {
        if (!m->used[i] || m->named[i])
            continue;
        char name[64];
        struct record_about about = { .stage.policy = policy_default() };
        if (m->taken[i])
            snprintf(name, sizeof name, "lost-%u-%" PRIx64, (unsigned)i, m->time_ms);
        else
            snprintf(name, sizeof name, "lost-%u", (unsigned)i);
        err = missing_append(
            m, (struct record){
                   .kind = RECORD_STAGE, .stage = i, .name = mr_str(name), .about = &about });
        out->stages++;
    }
    return err;
}

static int missing_head(struct missing *m, struct shard_repair *out) {
    struct log_state log;
    log_look(m->log, &log);
    if (log.head / log.segment_size <= m->mark / log.segment_size)
        return 0;
    out->head = true;
    return missing_append(m, (struct record){ .kind = RECORD_TRIM, .upto = log.head });
}

static int missing_ids(struct missing *m) {
    return missing_append(m, (struct record){ .kind = RECORD_EPOCH,
                                              .epoch = m->epoch + 1,
                                              .next_id = m->next_id + IDS_SKIPPED });
}

static int missing_write(struct missing *m, bool lost, struct shard_repair *out) {
    int err = log_replay(m->log, missing_note, m);
    if (err == 0)
        err = missing_stages(m, out);
    if (err == 0)
        err = missing_head(m, out);
    if (err == 0 && lost)
        err = missing_ids(m);
    if (err < 0 || !m->last_at)
        return err;
    log_flush(m->log, true);
    return log_wait(m->log, m->last_at);
}

static int missing_add(const struct shard_place *p, bool lost, struct shard_repair *out) {
    struct missing *m = mem_alloc(sizeof *m);
    if (!m)
        return error_set(MR_ENOMEM, "no memory to look through %s", p->dir);
    int err = log_file_open(p->dir, &(struct log_options){ .disk = p->disk }, &m->log);
    if (err == 0)
        err = missing_write(m, lost, out);
    log_close(m->log);
    mem_free(m);
    return err;
}

int shard_repair(const struct shard_place *p, struct shard_repair *out) {
    struct shard_repair done = { 0 };
    int err = log_file_repair(p->dir, p->disk, &done.log);
    if (err == 0)
        err = refused_give_up(p, &done.log);
    if (err == 0)
        err = missing_add(p, done.log.places || done.log.missing, &done);
    if (err == 0)
        *out = done;
    return err;
}
