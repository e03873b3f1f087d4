// Cancels many jobs of a stage, or counts them: some in each turn, so that other threads get the
// lock between.
#include "base/bytes.h"
#include "base/errors.h"
#include "engine/local.h"

enum { CANCELLED_A_TURN = 256, LOOKED_A_TURN = 4096 };

struct cancel_piece {
    const mr_job_filter *filter;
    bool dry;
    uint64_t most;  // that may still be cancelled
    uint64_t from;  // the last job that stays
    uint64_t total; // cancelled, or counted, of this status
    mr_id ids[CANCELLED_A_TURN];
    uint32_t count, looked; // in this turn
};

static int cancel_piece_add(void *arg, const struct job_info *job) {
    struct cancel_piece *p = arg;
    bool fits = !p->filter->key.size || bytes_equal(p->filter->key, job->key);
    if (p->count == CANCELLED_A_TURN || p->count == p->most || p->looked++ == LOOKED_A_TURN)
        return 1;
    if (fits)
        p->ids[p->count++] = job->id;
    if (!fits || p->dry)
        p->from = job->id;
    return 0;
}

// In a turn. 1: there may be more.
static int cancel_in_turn(struct local_shard *s, const struct job_walk *w, struct cancel_piece *p) {
    p->count = p->looked = 0;
    int more = core_walk(s->core, w, cancel_piece_add, p);
    if (more == MR_EGONE && w->from) { // that job has another status now: from the beginning again
        p->most += p->dry ? p->total : 0;
        p->total = p->dry ? 0 : p->total;
        p->from = 0;
        return 1;
    }
    int err = more < 0 ? more : 0;
    for (uint32_t i = 0; err >= 0 && i < p->count; i++) {
        bool changed = p->dry;
        err = p->dry ? 0 : core_cancel(s->core, p->ids[i], &changed);
        p->total += changed;
        p->most -= changed;
    }
    return err < 0 ? err : more > 0 && p->most;
}

static int cancel_status(struct local_shard *s, mr_bytes stage, enum job_status status,
                         struct cancel_piece *p) {
    int more;
    uint64_t at = 0;
    p->from = p->total = 0;
    do {
        struct job_walk w = {
            .stage = stage, .key = p->filter->key, .status = status, .from = p->from
        };
        more = local_begin(s);
        if (more < 0)
            return more;
        more = cancel_in_turn(s, &w, p);
        at = local_end(s);
    } while (more > 0);
    return local_wait_durable(s, at, more);
}

int local_stage_cancel(struct engine *base, mr_bytes stage, const mr_job_filter *f, bool dry,
                       uint64_t *out_count) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct cancel_piece p = { .filter = f, .dry = dry, .most = f->count ? f->count : UINT64_MAX };
    enum job_status first = JOB_DELAYED, last = JOB_RUNNING;
    uint64_t total = 0;
    int err = 0;
    bool is_known = !f->status || job_status_find(mr_str(f->status), &first);
    if (f->status)
        last = first;
    if (!is_known || first > JOB_RUNNING)
        return error_set(MR_EINVAL, "status '%.40s' is none of delayed, waiting, running",
                         f->status);
    for (int status = (int)first; err >= 0 && p.most && status <= (int)last; status++) {
        err = cancel_status(s, stage, (enum job_status)status, &p);
        total += p.total;
    }
    if (err >= 0)
        *out_count = total;
    return err;
}
