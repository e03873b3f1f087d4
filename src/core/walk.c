// Walks: lists of the jobs of a stage with one status, page by page. A page continues after a job
// that is named by its id; where that job is decides what comes next:
//
//     waiting   its channel, then the channels behind that in ready (group by group, if there are
//               groups), then in parked, then in progress (found through the leases); or only what
//               each in parked waits for
//     running   the leases, by number
//     others    the lines of the delayed, the dead and the ended
#include "core/group.h"

#include "base/errors.h"

#include <inttypes.h>

struct walk_state {
    struct core *core;
    const struct stage *stage;
    enum job_status status;
    chan only;      // this channel; 0: all
    bool parked;    // only the job that each parked channel waits for
    uint64_t steps; // value of core.steps at which the walk is cut
    int (*each)(void *, const struct job_info *);
    void *arg;
};

static int visit_job(const struct walk_state *w, uint32_t job) {
    struct job_info info = look_at_job(w->core, job_at(w->core, job));
    return w->each(w->arg, &info);
}

// Visits the jobs with the status, from `job` on.
static int walk_jobs(const struct walk_state *w, uint32_t job) {
    int stop = 0;
    for (; !stop && job; job = job_at(w->core, job)->link.next, w->core->steps++)
        if (w->core->steps >= w->steps)
            stop = WALK_CUT;
        else if (job_at(w->core, job)->status == w->status)
            stop = visit_job(w, job);
    return stop;
}

// ---- Waiting and running ----------------------------------------------------------------------

static int walk_channel(const struct walk_state *w, chan ref) {
    w->core->steps++;
    return ref & CHAN_KEYED ? walk_jobs(w, channel_at(w->core, ref)->jobs.head) : visit_job(w, ref);
}

static int walk_ready(const struct walk_state *w, chan ref) {
    int stop = 0;
    for (; !stop && ref; ref = stage_next_ready(w->core, w->stage, ref))
        stop = walk_channel(w, ref);
    return stop;
}

static int walk_parked_channels(const struct walk_state *w, chan ref) {
    int stop = 0;
    for (; !stop && ref; ref = link_of(w->core, ref)->next)
        stop = walk_channel(w, ref);
    return stop;
}

// Visits the running jobs of a lease after the one with the id `from`; 0: all.
static int walk_lease(const struct walk_state *w, const struct lease *l, uint64_t from) {
    int stop = 0;
    for (uint32_t i = l->next; !stop && i < l->count; i++, w->core->steps++) {
        uint32_t job = lease_running(w->core, l, i);
        if (job && !from)
            stop = visit_job(w, job);
        else if (job && job_at(w->core, job)->id == from)
            from = 0;
    }
    return stop;
}

static int walk_leases(const struct walk_state *w, uint32_t number) {
    uint64_t left = w->stage->leases;
    int stop = 0;
    for (; !stop && left && number < w->core->leases.next_new; number++, w->core->steps++) {
        const struct lease *l = lease_at(w->core, number);
        if (w->core->steps >= w->steps)
            return WALK_CUT;
        if (!l->count || l->stage != w->stage->number)
            continue;
        left--;
        if (w->status == JOB_RUNNING)
            stop = walk_lease(w, l, 0);
        else if (l->channel & CHAN_KEYED)
            stop = walk_jobs(w, channel_at(w->core, l->channel)->jobs.head);
    }
    return stop;
}

static int walk_running(const struct walk_state *w, uint32_t from) {
    if (w->only)
        return walk_jobs(w, from ? job_at(w->core, from)->link.next : chan_head(w->core, w->only));
    if (!from)
        return walk_leases(w, 1);
    uint32_t lease = link_of(w->core, chan_of(w->core, from))->next;
    int stop = walk_lease(w, lease_at(w->core, lease), job_at(w->core, from)->id);
    return stop ? stop : walk_leases(w, lease + 1);
}

// Continues after the waiting job `from`: the rest of its channel, then later channels.
static int walk_behind(const struct walk_state *w, uint32_t from) {
    chan ref = chan_of(w->core, from);
    uint32_t next = link_of(w->core, ref)->next;
    int stop = ref & CHAN_KEYED ? walk_jobs(w, job_at(w->core, from)->link.next) : 0;
    enum channel_state state = chan_state(w->core, ref);
    if (w->only || stop)
        return stop;
    if (state == CHANNEL_IN_PROGRESS)
        return walk_leases(w, next + 1);
    if (state == CHANNEL_READY) {
        stop = walk_ready(w, stage_next_ready(w->core, w->stage, ref));
        next = w->stage->parked.head;
    }
    if (!stop)
        stop = walk_parked_channels(w, next);
    return stop ? stop : walk_leases(w, 1);
}

static int walk_waiting(const struct walk_state *w, uint32_t from) {
    if (from)
        return walk_behind(w, from);
    if (w->only)
        return walk_jobs(w, chan_head(w->core, w->only));
    int stop = walk_ready(w, stage_first_ready(w->stage));
    if (!stop)
        stop = walk_parked_channels(w, w->stage->parked.head);
    return stop ? stop : walk_leases(w, 1);
}

// The job that a parked channel waits for: the dead job that halts it, or its first.
static uint32_t holder_of(const struct walk_state *w, chan ref) {
    const struct channel *ch = ref & CHAN_KEYED ? channel_at(w->core, ref) : NULL;
    return ch && channel_is_halted(w->core, ch) ? ch->halted : chan_head(w->core, ref);
}

static bool holds_its_channel(const struct walk_state *w, uint32_t job) {
    const struct job *j = job_at(w->core, job);
    chan ref = chan_of(w->core, job);
    return (j->status == JOB_WAITING || (j->status == JOB_DEAD && job_is_keyed(j))) &&
           chan_state(w->core, ref) == CHANNEL_PARKED && holder_of(w, ref) == job;
}

static int walk_parked(const struct walk_state *w, uint32_t from) {
    chan ref = from ? link_of(w->core, chan_of(w->core, from))->next : w->stage->parked.head;
    int stop = 0;
    for (; !stop && ref; ref = link_of(w->core, ref)->next, w->core->steps++)
        stop = visit_job(w, holder_of(w, ref));
    return stop;
}

// ---- All of them ------------------------------------------------------------------------------

// Finds the job after which a walk continues; 0: it starts at the first.
static int find_from(const struct walk_state *w, uint64_t id, uint32_t *out) {
    uint32_t number = id ? job_find(w->core, id) : 0;
    const struct job *j = number ? job_at(w->core, number) : NULL;
    bool fits = j && (w->parked ? holds_its_channel(w, number) : j->status == w->status);
    bool among = fits && stage_of(w->core, j) == w->stage &&
                 (!w->only || chan_of(w->core, number) == w->only);
    if (id && !among)
        return error_set(MR_EGONE, "job %" PRIu64 " is not among these any more: begin again", id);
    *out = number;
    return 0;
}

static int walk_from(const struct walk_state *w, uint32_t from) {
    switch (w->status) {
    case JOB_WAITING:
        return w->parked ? walk_parked(w, from) : walk_waiting(w, from);
    case JOB_RUNNING:
        return walk_running(w, from);
    case JOB_DEAD:
        return walk_jobs(w, from ? job_at(w->core, from)->link.next : w->stage->dead.head);
    case JOB_DONE:
    case JOB_EXPIRED:
    case JOB_CANCELLED:
        return walk_jobs(w, from ? job_at(w->core, from)->link.next : w->stage->ended.head);
    case JOB_DELAYED:
        return walk_jobs(w, from ? job_at(w->core, from)->link.next : w->stage->delayed.head);
    }
    return 0;
}

int core_walk(struct core *c, const struct job_walk *what,
              int (*each)(void *, const struct job_info *), void *arg) {
    struct stage *s = NULL;
    int err = look_find_stage(c, what->stage, &s);
    if (err < 0)
        return err;
    bool in_channel = what->status == JOB_WAITING || what->status == JOB_RUNNING;
    struct walk_state w = {
        .core = c,
        .stage = s,
        .status = what->status,
        .parked = what->parked,
        .steps = what->steps ? what->steps : UINT64_MAX,
        .each = each,
        .arg = arg,
    };
    if (key_has_channel(s, what->key) && in_channel &&
        !(w.only = channel_find(c, s->number, what->key)))
        return 0;
    uint32_t from = 0;
    err = find_from(&w, what->from, &from);
    return err < 0 ? err : walk_from(&w, from);
}

// ---- Every status -----------------------------------------------------------------------------

static const enum job_status walk_order[] = { JOB_RUNNING, JOB_WAITING, JOB_DELAYED,  JOB_DEAD,
                                              JOB_DONE,    JOB_EXPIRED, JOB_CANCELLED };
enum { STATUSES = sizeof walk_order / sizeof *walk_order };

bool job_status_has_key(enum job_status status) {
    return status < JOB_DONE || status == JOB_DEAD;
}

bool job_status_find(mr_bytes name, enum job_status *out) {
    for (uint32_t i = 0; i < STATUSES; i++) {
        if (!bytes_are_word(name, job_status_name(walk_order[i])))
            continue;
        *out = walk_order[i];
        return true;
    }
    return false;
}

int core_walk_all(struct core *c, const struct job_walk *what,
                  int (*each)(void *, const struct job_info *), void *arg) {
    struct job_walk w = *what;
    struct job_info from = { 0 };
    uint32_t i = 0;
    w.parked = false;
    int err = w.from ? core_look_job(c, w.from, &from) : 0;
    while (w.from && err == 0 && i < STATUSES && walk_order[i] != from.status)
        i++;
    for (; err == 0 && i < STATUSES; i++, w.from = 0) {
        w.status = walk_order[i];
        if (!w.key.size || job_status_has_key(w.status))
            err = core_walk(c, &w, each, arg);
    }
    return err;
}
