// A log that has lost a part can be read, but may not make sense: jobs of a stage that has no name,
// a head that nobody has given up, ids that were issued and are not known. Each of these is mended
// by appending the one record that was lost or would have been written.
#include "cli/mend.h"

#include "base/errors.h"
#include "base/mem.h"
#include "core/record.h"
#include "log/log.h"

#include <stdio.h>
#include <string.h>

enum { STAGES_MOST = 1 << 16 };

#define IDS_SKIPPED (UINT64_C(1) << 32) // more than were issued since any record that is left

struct mend {
    struct log *log;
    uint8_t used[STAGES_MOST], named[STAGES_MOST]; // by stage number: 1
    uint64_t time_ms, epoch, next_id, mark;        // the latest
    uint64_t last_at;
};

static int mend_note(void *arg, const struct log_seen *seen) {
    struct mend *m = arg;
    struct record_about about;
    struct record r;
    int err = record_decode(seen->head, &about, &r);
    if (err < 0)
        return err;
    if (r.stage < STAGES_MOST)
        (r.kind == RECORD_STAGE ? m->named : m->used)[r.stage] = 1;
    if (r.kind == RECORD_TRIM)
        m->mark = r.upto;
    uint64_t next_id = r.next_id > r.id ? r.next_id : r.id + 1;
    m->next_id = next_id > m->next_id ? next_id : m->next_id;
    m->epoch = r.epoch > m->epoch ? r.epoch : m->epoch;
    m->time_ms = r.time_ms > m->time_ms ? r.time_ms : m->time_ms;
    return 0;
}

static int mend_append(struct mend *m, struct record r) {
    uint8_t head[RECORD_MAX];
    r.time_ms = m->time_ms;
    struct entry e = { .head = { head, record_encode(&r, head) } };
    return log_append(m->log, &e, 1, ROOM_CLEAN, &m->last_at);
}

static int mend_stages(struct mend *m, struct mended *out) {
    int err = 0;
    for (uint32_t i = 1; err == 0 && i < STAGES_MOST; i++) {
        if (!m->used[i] || m->named[i])
            continue;
        char name[32];
        struct record_about about = { .stage.policy = policy_default() };
        snprintf(name, sizeof name, "lost-%u", (unsigned)i);
        err = mend_append(
            m, (struct record){
                   .kind = RECORD_STAGE, .stage = i, .name = mr_str(name), .about = &about });
        out->stages++;
    }
    return err;
}

static int mend_head(struct mend *m, struct mended *out) {
    struct log_state log;
    log_look(m->log, &log);
    if (log.head / log.segment_size <= m->mark / log.segment_size)
        return 0;
    out->head = true;
    return mend_append(m, (struct record){ .kind = RECORD_TRIM, .upto = log.head });
}

static int mend_ids(struct mend *m) {
    return mend_append(m, (struct record){ .kind = RECORD_EPOCH,
                                           .epoch = m->epoch + 1,
                                           .next_id = m->next_id + IDS_SKIPPED });
}

static int mend_run(struct mend *m, bool lost, struct mended *out) {
    int err = log_replay(m->log, mend_note, m);
    if (err == 0)
        err = mend_stages(m, out);
    if (err == 0)
        err = mend_head(m, out);
    if (err == 0 && lost)
        err = mend_ids(m);
    if (err < 0 || !m->last_at)
        return err;
    log_flush(m->log, true);
    return log_wait(m->log, m->last_at);
}

int records_mend(const char *dir, bool lost, struct mended *out) {
    struct mend *m = mem_alloc(sizeof *m);
    if (!m)
        return error_set(MR_ENOMEM, "no memory to look through %s", dir);
    struct mended done = { 0 };
    int err = log_file_open(dir, NULL, &m->log);
    if (err == 0)
        err = mend_run(m, lost, &done);
    log_close(m->log);
    mem_free(m);
    if (err == 0)
        *out = done;
    return err;
}
