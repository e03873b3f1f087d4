// Leases: a worker's right to the head of a channel, named by a token that is never issued twice. A
// command with a token works only while that is the channel's current one.
#include "core/epic.h"
#include "core/group.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <inttypes.h>

static uint64_t lease_id(const struct lease *l, uint32_t i) {
    return l->block ? l->block[i].id : l->only.id;
}

// The number of the job at index `i`; 0: it ended and was forgotten.
static uint32_t lease_job(const struct core *c, const struct lease *l, uint32_t i) {
    struct leased leased = l->block ? l->block[i] : l->only;
    if (!leased.job)
        return 0;
    const struct job *j = job_at(c, leased.job);
    return j->owner && j->id == leased.id ? leased.job : 0;
}

// A token of an earlier epoch can only name a restored lease; its lease number is not valid any
// more.
APART static uint32_t lease_restored(const struct core *c, const struct token *t) {
    uint32_t number = lease_find_recorded(c, t->serial);
    return number && lease_at(c, number)->record->random == t->random ? number : 0;
}

// The current lease that a token names; 0: none.
static uint32_t lease_of_token(const struct core *c, const struct token *t) {
    if (t->serial >> EPOCH_SHIFT != c->epoch)
        return lease_restored(c, t);
    if (t->random != c->random || !t->lease || t->lease >= c->leases.next_new)
        return 0;
    const struct lease *l = lease_at(c, t->lease);
    return l->count && (l->serial == t->serial || MUTANT(token_not_compared)) ? t->lease : 0;
}

// Restored leases are not noted: their workers do not run in this engine.
static void lease_note_running(struct core *c, const struct lease *l, bool begins) {
    bool restored = l->record && l->record->restored;
    if (c->config.sink.running && !restored)
        c->config.sink.running(c->config.sink.owner, lease_id(l, l->next), l->attempt, begins);
}

// The jobs from index `from` to below `upto` are not leased any more.
static void lease_uncount(struct core *c, const struct lease *l, uint32_t from, uint32_t upto) {
    uint64_t jobs = 0;
    for (uint32_t i = from; i < upto; i++)
        jobs += lease_id(l, i) != 0;
    c->stages[l->stage]->leased -= jobs;
    if (l->group)
        group_answered(c, l, jobs);
    if (l->conn)
        l->conn->held -= (uint32_t)jobs;
}

void lease_leave_conn(struct lease *l) {
    if (!l->conn)
        return;
    for (uint32_t i = l->next; i < l->count; i++)
        l->conn->held -= lease_id(l, i) != 0;
    l->conn->lease_count--;
    l->conn = NULL;
    list_remove(&l->of_conn);
}

APART static void progress_forget(struct core *c, struct lease *l) {
    c->progresses--;
    mem_free(l->progress);
    l->progress = NULL;
}

static void lease_free(struct core *c, uint32_t number) {
    struct lease *l = lease_at(c, number);
    if (l->next < l->count) {
        lease_note_running(c, l, false);
        lease_uncount(c, l, l->next, l->count);
        l->next = l->count;
    }
    lease_unrecord(c, l);
    lease_leave_conn(l);
    mem_free(l->block);
    if (l->progress)
        progress_forget(c, l);
    struct stage *s = c->stages[l->stage];
    s->leases--;
    if (l->group)
        group_release(c, l->group);
    l->group = 0;
    l->block = NULL;
    l->count = 0;
    l->serial = 0;
    slab_give(&c->leases, number);
    stage_wake(c, s);
}

void lease_end(struct core *c, uint32_t number, enum place place) {
    struct lease *l = lease_at(c, number);
    chan ref = l->channel;
    for (uint32_t i = l->next; ref && i < l->count; i++) {
        uint32_t job = lease_job(c, l, i);
        if (job && job_at(c, job)->status == JOB_RUNNING)
            job_set_status(c, job_at(c, job), JOB_WAITING);
    }
    struct stage *s = c->stages[l->stage];
    lease_free(c, number);
    stage_depth_changed(c, s);
    if (!ref)
        return;
    link_of(c, ref)->next = 0;
    channel_resolve(c, ref, place);
}

uint32_t lease_running(const struct core *c, const struct lease *l, uint32_t i) {
    uint32_t job = lease_job(c, l, i);
    bool runs = job && job_at(c, job)->status == JOB_RUNNING && job_at(c, job)->serial == l->serial;
    return runs ? job : 0;
}

// Checks that all jobs before `id` in the lease have ended. MR_EINVAL, MR_ESTALE.
static int lease_check_order(const struct core *c, const struct lease *l, uint64_t id) {
    for (uint32_t i = l->next; i < l->count; i++) {
        if (lease_id(l, i) == id)
            return 0;
        if (lease_running(c, l, i) && !MUTANT(block_ends_out_of_order))
            return error_set(MR_EINVAL, "a block's jobs end in order: %" PRIu64 " comes first",
                             lease_id(l, i));
    }
    return error_set(MR_ESTALE, "job %" PRIu64 " is no longer under this lease", id);
}

static bool lease_holds(const struct lease *l, uint64_t id) {
    for (uint32_t i = l->next; i < l->count; i++)
        if (lease_id(l, i) == id)
            return true;
    return false;
}

// A lease has fewer running jobs, so others may start.
static void lease_shrunk(struct core *c, const struct lease *l) {
    struct stage *s = c->stages[l->stage];
    if (!s->policy.concurrency)
        return;
    stage_depth_changed(c, s);
    stage_wake(c, s);
}

// Lets go of one job of a block. If a job before it still runs, this one is only marked, and
// skipped later.
APART static void lease_let_go_of_one(struct core *c, uint32_t number, uint64_t id) {
    struct lease *l = lease_at(c, number);
    uint32_t i = l->next;
    for (; lease_id(l, i) != id; i++) {
        if (!lease_running(c, l, i))
            continue;
        while (l->block[i].id != id)
            i++;
        lease_uncount(c, l, i, i + 1);
        l->block[i].id = 0;
        lease_shrunk(c, l);
        return;
    }
    lease_note_running(c, l, false);
    lease_uncount(c, l, l->next, i + 1);
    l->next = i + 1;
    while (l->next < l->count && !lease_id(l, l->next))
        l->next++;
    if (l->next >= l->count) {
        lease_end(c, number, AT_TAIL);
        return;
    }
    uint32_t job = lease_job(c, l, l->next);
    l->attempt = job ? job_at(c, job)->attempt + 1u : 0;
    lease_note_running(c, l, true);
    lease_shrunk(c, l);
}

bool lease_ends_with(const struct core *c, const struct lease *l, uint64_t id) {
    for (uint32_t i = l->next; i < l->count; i++) {
        if (lease_id(l, i) != id && lease_running(c, l, i))
            return false;
        if (lease_id(l, i) != id)
            continue;
        for (i++; i < l->count; i++)
            if (lease_id(l, i))
                return false;
    }
    return true;
}

void lease_let_go(struct core *c, uint32_t number, uint64_t id) {
    struct lease *l = lease_at(c, number);
    if (l->block) {
        lease_let_go_of_one(c, number, id);
        return;
    }
    lease_note_running(c, l, false);
    lease_uncount(c, l, 0, 1);
    l->next = 1;
    lease_end(c, number, AT_TAIL);
}

// The random bits of earlier epochs are not kept, so only the serial is compared for those.
bool token_fits(const struct core *c, const struct token *t, const struct job *j) {
    bool of_this_epoch = t->serial >> EPOCH_SHIFT == c->epoch;
    if (MUTANT(commit_repeated_by_any_token))
        return true;
    return j->serial == t->serial && (!of_this_epoch || t->random == c->random);
}

// The error for a command whose token is not that of a running job.
static int answer_ended(const struct core *c, const struct job *j, const struct token *t) {
    if (!token_fits(c, t, j))
        return error_set(MR_ESTALE, "job %" PRIu64 " is not under this lease any more", j->id);
    if (j->status == JOB_CANCELLED)
        return error_set(MR_ECANCELLED, "job %" PRIu64 " was cancelled", j->id);
    if (j->status == JOB_EXPIRED)
        return error_set(MR_EEXPIRED, "job %" PRIu64 " passed its deadline", j->id);
    return error_set(MR_ESTALE, "job %" PRIu64 " is not under this lease any more", j->id);
}

int lease_find(struct core *c, uint64_t id, const struct token *t, uint32_t *out_job,
               uint32_t *out_lease) {
    *out_lease = 0;
    uint32_t held = lease_of_token(c, t);
    bool is_held = held;
    const struct lease *l = is_held ? lease_at(c, held) : NULL;
    bool is_next = is_held && lease_id(l, l->next) == id; // the common case
    *out_job = is_next ? lease_job(c, l, l->next) : job_find(c, id);
    if (!*out_job && is_held && lease_holds(l, id))
        *out_lease = held; // it ended under the lease and was forgotten
    if (!*out_job)
        return error_set(MR_EGONE, "job %" PRIu64 " is not known (any more)", id);
    const struct job *j = job_at(c, *out_job);
    bool current = is_held && (j->serial == t->serial || MUTANT(token_not_compared));
    if (j->status == JOB_RUNNING && current) {
        int err = lease_check_order(c, l, id);
        if (err < 0)
            return err;
        *out_lease = held;
        return 0;
    }
    if (current && lease_holds(l, id))
        *out_lease = held; // it was cancelled or expired; the worker has not answered yet
    return answer_ended(c, j, t);
}

int lease_refuse(struct core *c, uint32_t lease, uint64_t id, int err) {
    int written = 0;
    if (lease && lease_ends_with(c, lease_at(c, lease), id))
        written = lease_write_end(c, lease_at(c, lease));
    if (written < 0)
        return written;
    if (lease)
        lease_let_go(c, lease, id);
    settle(c);
    return err;
}

int core_beat(struct core *c, uint64_t id, const struct token *t) {
    uint32_t job = job_find(c, id);
    if (!job)
        return error_set(MR_EGONE, "job %" PRIu64 " is not known (any more)", id);
    const struct job *j = job_at(c, job);
    uint32_t lease = lease_of_token(c, t);
    if (!lease || j->serial != t->serial || j->status != JOB_RUNNING)
        return answer_ended(c, j, t);
    struct lease *l = lease_at(c, lease);
    uint64_t until_ms = c->now_ms + l->lease_ms;
    if (l->record && until_ms != l->until_ms) { // the jobs of a block beat at the same time
        int err = lease_write(c, l, until_ms, ROOM_COMMIT);
        if (err < 0)
            return err;
    }
    l->until_ms = MUTANT(beat_prolongs_nothing) ? l->until_ms : until_ms; // its timer checks this
    return 0;
}

// ---- Progress ---------------------------------------------------------------------------------

// Without line breaks, and without a part of a character at its end.
static void progress_set_text(struct lease_progress *p, mr_bytes text) {
    const uint8_t *from = text.data;
    size_t size = text.size < PROGRESS_MOST ? text.size : PROGRESS_MOST;
    while (size && size < text.size && (from[size] & 0xc0) == 0x80)
        size--;
    p->size = (uint32_t)size;
    for (size_t i = 0; i < size; i++)
        p->text[i] = from[i] < ' ' ? ' ' : (char)from[i];
}

int core_progress(struct core *c, uint64_t id, const struct token *t,
                  const struct job_progress *said) {
    uint32_t number = lease_of_token(c, t);
    struct lease_progress *p = number ? lease_at(c, number)->progress : NULL;
    struct lease_progress *made = p ? NULL : mem_alloc(sizeof *made);
    if (!p && !made)
        return error_set(MR_ENOMEM, "no memory for the progress of a job");
    int err = core_beat(c, id, t);
    if (err < 0) {
        mem_free(made);
        return err;
    }
    if (made) {
        p = lease_at(c, number)->progress = made;
        c->progresses++;
    }
    p->id = id;
    p->done = said->done;
    p->total = said->total;
    progress_set_text(p, said->text);
    return 0;
}

// ---- Failing ----------------------------------------------------------------------------------

static mr_bytes clean_reason(const struct core *c, mr_bytes reason, char *out) {
    size_t size = reason.size < c->limits.max_reason ? reason.size : c->limits.max_reason;
    for (size_t i = 0; i < size; i++) {
        char b = ((const char *)reason.data)[i];
        out[i] = b == '\n' || b == '\r' || b == '\0' ? ' ' : b;
    }
    return bytes_of(out, size);
}

static mr_bytes last_words(mr_bytes output) {
    size_t size = output.size;
    if (size <= LAST_WORDS_MOST)
        return output;
    return bytes_of((const char *)output.data + (size - LAST_WORDS_MOST), LAST_WORDS_MOST);
}

// `f`: an epic that ends with it.
static int write_failure(struct core *c, const struct job *j, const struct lease *l,
                         struct cause cause, uint64_t due_ms, bool dead, enum room room,
                         struct epic_finish *f) {
    char text[REASON_MOST];
    int err = reasons_of(c, j, &c->reasons);
    if (err == MR_EAGAIN)
        return err; // they are being read
    if (err < 0)
        buffer_clear(&c->reasons); // earlier reasons cannot be read: this one is still recorded
    struct reason r = { .attempt = j->attempt + 1u,
                        .time_ms = c->now_ms,
                        .text = clean_reason(c, cause.reason, text),
                        .output = last_words(cause.output) };
    err = reasons_add(&c->reasons, &r, c->limits.max_reasons);
    if (err < 0)
        return err;
    size_t records = 2, bytes = KEY_MOST;
    epic_finish_sizes(f, &records, &bytes);
    if ((err = out_begin(c, records, bytes)) < 0)
        return err;
    struct record record = { .kind = RECORD_FAIL,
                             .time_ms = c->now_ms,
                             .id = j->id,
                             .stage = stage_of(c, j)->number,
                             .attempt = j->attempt + 1u,
                             .due_ms = due_ms,
                             .status = dead ? JOB_DEAD : JOB_WAITING };
    record_add_source(c, j, &record);
    out_add(c, &record, buffer_bytes(&c->reasons));
    if (l && l->record)
        lease_add_end(c, l);
    epic_finish_add(c, f);
    return out_commit(c, room);
}

void job_set_reasons(struct core *c, struct job *j, uint64_t at, uint32_t size) {
    job_drop_attr(c, j, ATTR_REASONS);
    struct attr *a = job_add_attr(c, j, ATTR_REASONS);
    a->value = at;
    a->small = size;
    home_add(c, at, size);
}

enum { DEAD_LOOKED = 64 }; // jobs that dead_add compares at most

// Dead jobs are sorted by time, then by id, as core_open sorts them, so that a restart changes
// nothing. A job nearly always goes to the tail. If very many die in one instant, some stay behind
// higher ids until the next restart.
static void dead_add(struct core *c, struct stage *s, uint32_t number) {
    const struct job *j = job_at(c, number);
    uint32_t before = 0, last = s->dead.tail;
    for (int i = 0; i < DEAD_LOOKED && last && job_at(c, last)->time_ms == j->time_ms &&
                    job_at(c, last)->id > j->id;
         i++) {
        before = last;
        last = job_at(c, last)->link.prev;
        c->steps++;
    }
    job_line_insert_before(c, &s->dead, number, before);
}

// Takes a job out of its channel, until RETRY.
void job_die(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    struct outcome o = { .id = j->id, .status = JOB_DEAD, .shard = c->config.shard };
    const struct attr *reasons = job_attr(c, j, ATTR_REASONS);
    o.at = reasons ? reasons->value : 0;
    callers_notify(c, j, &o);
    job_drop_attr(c, j, ATTR_CALL);
    job_drop_attr(c, j, ATTR_DEADLINE);
    job_drop_attr(c, j, ATTR_DUE);
    j->flags |= JOB_WANTED_FOR_GOOD;
    ages_remove(&s->ages, j->time_ms);
    j->time_ms = c->now_ms;
    job_set_status(c, j, JOB_DEAD);
    s->died++;
    chan ref = chan_of(c, number);
    channel_take_out(c, number);
    if (job_is_keyed(j)) {
        channel_pin(c, ref);
        if (s->policy.halt_on_dead && !MUTANT(dead_job_does_not_halt))
            channel_halt(c, number);
    } else if (chan_state(c, ref) != CHANNEL_DORMANT) {
        channel_move(c, ref, CHANNEL_DORMANT, AT_TAIL);
    }
    dead_add(c, s, number);
    stage_set_add(&c->dead_stages, s->number);
    stage_depth_changed(c, s);
}

// The job is not leased any more, or its lease ends with this call.
int attempt_fail(struct core *c, uint32_t number, const struct lease *l, struct cause cause,
                 uint64_t due_ms, bool dead, enum room room) {
    struct job *j = job_at(c, number);
    dead = dead || j->attempt + 1u >= job_attempts(c, j) + MUTANT(one_attempt_too_many);
    int err = job_reserve_due(c);
    if (err < 0)
        return err;
    struct stage *s = stage_of(c, j);
    bool halts = s->policy.halt_on_dead && job_is_keyed(j);
    uint64_t dead_due = halts ? c->now_ms : 0; // a dead job with a due instant halts its channel
    struct epic_finish f = { 0 };
    if (dead && j->flags & JOB_HAS_SOURCE && (err = epic_finish_job(c, j, &f)) < 0)
        return err;
    err = write_failure(c, j, l, cause, dead ? dead_due : due_ms, dead, room, &f);
    if (epic_finish_written(c, &f, err) < 0)
        return err;
    job_set_reasons(c, j, c->out.at[0], out_size(c, 0));
    j->attempt++;
    s->failed++;
    struct attr *counts = job_attr(c, j, ATTR_COUNTS);
    if (counts)
        counts->small &= UINT16_MAX; // resets the count of releases
    job_drop_attr(c, j, ATTR_DUE);
    if (!dead && due_ms > c->now_ms)
        job_set_due(c, number, due_ms);
    epic_finish_apply(c, &f);
    return dead ? 1 : 0;
}

static bool lease_returns_more(const struct core *c, const struct lease *l, uint64_t failed) {
    for (uint32_t i = l->next; i < l->count; i++)
        if (lease_id(l, i) != failed && lease_running(c, l, i))
            return true;
    return false;
}

// The job is the first unended one of its lease; the lease ends.
static int lease_fail(struct core *c, uint32_t lease, uint32_t number, struct cause cause,
                      uint64_t due_ms, bool dead, enum place place) {
    struct lease *l = lease_at(c, lease);
    int died = attempt_fail(c, number, l, cause, due_ms, dead, ROOM_COMMIT);
    if (died < 0)
        return died;
    if (died && !lease_returns_more(c, l, job_at(c, number)->id))
        place = AT_TAIL; // no job returns to the channel
    if (died && !job_is_keyed(job_at(c, number))) {
        l->channel = 0; // the job was its own channel
        link_of(c, number)->next = 0;
    }
    if (died)
        job_die(c, number);
    lease_end(c, lease, place);
    return 0;
}

static uint64_t jitter(const struct core *c, const struct job *j) {
    return bytes_hash(bytes_of(&j->id, sizeof j->id), c->random + j->attempt);
}

static uint64_t backoff_until(const struct core *c, const struct job *j) {
    return c->now_ms + backoff_ms(&stage_of(c, j)->policy, j->attempt + 1u, jitter(c, j));
}

int core_fail_by(struct core *c, uint64_t id, const struct token *t, struct cause cause,
                 int64_t retry_ms) {
    if (retry_ms < MR_NEVER || retry_ms > TIME_MOST_MS)
        return error_set(MR_EINVAL, "retrying after %" PRId64 " ms is not possible", retry_ms);
    uint32_t number, lease;
    int err = lease_find(c, id, t, &number, &lease);
    if (err < 0)
        return lease_refuse(c, lease, id, err);
    const struct job *j = job_at(c, number);
    uint64_t due = retry_ms >= 0 ? c->now_ms + (uint64_t)retry_ms : backoff_until(c, j);
    err = lease_fail(c, lease, number, cause, due, retry_ms == MR_NEVER, AT_TAIL);
    settle(c);
    return err;
}

int core_fail(struct core *c, uint64_t id, const struct token *t, mr_bytes reason,
              int64_t retry_ms) {
    return core_fail_by(c, id, t, (struct cause){ .reason = reason }, retry_ms);
}

// ---- Giving back ------------------------------------------------------------------------------

enum { RELEASE_FIRST_MS = 10, RELEASE_MOST_MS = 1000 };

static uint64_t release_wait_ms(uint32_t releases) {
    uint64_t wait = releases > 1 ? RELEASE_FIRST_MS : 0;
    for (uint32_t i = 2; i < releases && wait < RELEASE_MOST_MS; i++)
        wait *= 2;
    return wait < RELEASE_MOST_MS ? wait : RELEASE_MOST_MS;
}

// A job that is released repeatedly waits before its next start.
static void back_off(struct core *c, uint32_t number) {
    struct attr *counts = job_add_attr(c, job_at(c, number), ATTR_COUNTS);
    uint32_t releases = (counts->small >> 16) + 1;
    if (releases <= UINT16_MAX)
        counts->small = (counts->small & UINT16_MAX) | releases << 16;
    uint64_t wait = release_wait_ms(releases);
    if (!wait)
        return;
    job_set_due(c, number, c->now_ms + wait);
    job_at(c, number)->flags |= JOB_RELEASED;
}

// Records that the job is released for a while, with the end of its lease if that is recorded.
static int write_snooze(struct core *c, const struct job *j, const struct lease *l,
                        uint64_t due_ms) {
    int err = out_begin(c, 2, KEY_MOST);
    if (err < 0)
        return err;
    struct record r = { .kind = RECORD_SNOOZE,
                        .time_ms = c->now_ms,
                        .id = j->id,
                        .stage = stage_of(c, j)->number,
                        .due_ms = due_ms };
    out_add(c, &r, (mr_bytes){ 0 });
    if (l->record)
        lease_add_end(c, l);
    return out_commit(c, ROOM_COMMIT);
}

APART static int job_snooze(struct core *c, uint32_t number, uint32_t lease, uint64_t due_ms) {
    int err = job_reserve_due(c);
    if (err < 0)
        return err;
    if ((err = write_snooze(c, job_at(c, number), lease_at(c, lease), due_ms)) < 0)
        return err;
    job_set_due(c, number, due_ms);
    lease_end(c, lease, AT_TAIL);
    settle(c);
    return 0;
}

int core_release(struct core *c, uint64_t id, const struct token *t, int64_t delay_ms) {
    if (delay_ms < 0 || delay_ms > TIME_MOST_MS)
        return error_set(MR_EINVAL, "releasing for %" PRId64 " ms is not possible: 0 to 100 years",
                         delay_ms);
    uint32_t number, lease;
    int err = lease_find(c, id, t, &number, &lease);
    if (err < 0)
        return lease_refuse(c, lease, id, err);
    if (delay_ms)
        return job_snooze(c, number, lease, c->now_ms + (uint64_t)delay_ms);
    if ((err = lease_write_end(c, lease_at(c, lease))) < 0)
        return err;
    if (job_reserve_due(c) ==
        0) // without memory it does not back off: refusing would cost an attempt
        back_off(c, number);
    lease_end(c, lease, AT_HEAD);
    settle(c);
    return 0;
}

// ---- Unreadable bodies ------------------------------------------------------------------------

// Takes the jobs from index `from` on out of the lease.
static void lease_cut(struct core *c, struct lease *l, uint32_t from) {
    for (uint32_t i = from; i < l->count; i++) {
        uint32_t job = lease_running(c, l, i);
        if (job)
            job_set_status(c, job_at(c, job), JOB_WAITING);
    }
    lease_uncount(c, l, from, l->count);
    l->count = from;
    stage_depth_changed(c, c->stages[l->stage]);
    stage_wake(c, c->stages[l->stage]);
}

// The index of the job in the lease, and whether a job before it runs. False: it is not under the
// lease.
static bool lease_place(const struct core *c, const struct lease *l, uint64_t id, uint32_t *out,
                        bool *out_behind) {
    *out_behind = false;
    for (*out = l->next; *out < l->count; ++*out) {
        if (lease_id(l, *out) == id)
            return true;
        *out_behind = *out_behind || lease_running(c, l, *out);
    }
    return false;
}

// The last running job before that index; there is one.
static uint32_t lease_last_running(const struct core *c, const struct lease *l, uint32_t before) {
    while (!lease_running(c, l, --before)) {
    }
    return lease_job(c, l, before);
}

int core_unreadable(struct core *c, uint64_t id, const struct token *t, mr_bytes reason, int why) {
    uint32_t lease = lease_of_token(c, t), place = 0;
    struct lease *l = lease ? lease_at(c, lease) : NULL;
    bool behind = false, held = l && lease_place(c, l, id, &place, &behind);
    uint32_t job = held ? lease_running(c, l, place) : 0;
    if (!held || (job && !behind))
        return core_fail(c, id, t, reason, why == MR_ECORRUPT ? MR_NEVER : MR_BACKOFF);
    int err =
        behind ? lease_record_cut(c, l, lease_last_running(c, l, place)) : lease_write_end(c, l);
    if (err < 0)
        return err;
    if (job)
        job_at(c, job)->flags |= JOB_UNREAD;
    if (behind)
        lease_cut(c, l, place);
    else
        lease_end(c, lease, AT_HEAD); // it was cancelled or expired; the jobs behind it go back
    settle(c);
    return 0;
}

// ---- Lost leases ------------------------------------------------------------------------------

// The first running job of the lease; 0: all have ended.
static uint32_t lease_first_running(const struct core *c, const struct lease *l) {
    for (uint32_t i = l->next; i < l->count; i++)
        if (lease_running(c, l, i))
            return lease_job(c, l, i);
    return 0;
}

int lease_lose(struct core *c, uint32_t number, const char *why, bool backoff) {
    struct lease *l = lease_at(c, number);
    uint32_t job = lease_first_running(c, l);
    struct token token = { l->serial, c->random, number };
    struct conn *conn = l->conn;
    uint64_t id = job ? job_at(c, job)->id : lease_id(l, l->next);
    int err = 0;
    if (!job) {
        (void)lease_write_end(
            c, l); // if this fails, the lease is restored after a restart and runs out
        lease_end(c, number, AT_TAIL);
    } else {
        uint64_t due = backoff ? backoff_until(c, job_at(c, job)) : c->now_ms;
        err = lease_fail(c, number, job, (struct cause){ .reason = mr_str(why) }, due, false,
                         backoff ? AT_TAIL : AT_HEAD);
    }
    if (err == 0 && job && c->config.events.stop && conn)
        c->config.events.stop(c->config.owner, conn, id, &token, MR_ESTALE);
    return err;
}
