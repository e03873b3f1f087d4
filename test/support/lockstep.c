// The core's environment: a log in an array, connections and slots; collects events and turns
// commands into calls.
#include "lockstep.h"

#include "error_name.h"

#include "base/errors.h"
#include "core/record.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// ---- The log ----------------------------------------------------------------------------------

static void log_add(struct lockstep *t, const struct entry *e) {
    if (t->log_count == t->log_capacity) {
        t->log_capacity = t->log_capacity ? 2 * t->log_capacity : 256;
        t->log = realloc(t->log, t->log_capacity * sizeof *t->log);
    }
    struct kept_entry *k = &t->log[t->log_count++];
    *k = (struct kept_entry){ t->log_end, e->head.size, e->body.size, NULL };
    k->bytes = malloc(e->head.size + e->body.size + 1);
    memcpy(k->bytes, e->head.data, e->head.size);
    if (e->body.size)
        memcpy(k->bytes + e->head.size, e->body.data, e->body.size);
    if (t->fault == FAULT_WRONG_BODY && e->body.size && t->log_count % 16 == 9)
        k->bytes[e->head.size] ^= 1;
    t->log_end += entry_size(e->head.size, e->body.size);
    t->log_hash = bytes_hash(bytes_of(k->bytes, e->head.size + e->body.size), t->log_hash);
}

static int sink_append(void *owner, const struct entry *e, size_t count, enum room room,
                       uint64_t *out_at) {
    struct lockstep *t = owner;
    (void)room;
    for (size_t i = 0; i < count && t->crashing; i++)
        out_at[i] = t->log_end;
    if (t->crashing)
        return 0;
    t->appends++;
    if (t->refuse_append >= 0 && t->refuse_append-- == 0) {
        t->failed_now = true;
        return t->refuse_with;
    }
    for (size_t i = 0; i < count; i++) {
        out_at[i] = t->log_end;
        log_add(t, &e[i]);
    }
    return 0;
}

static const struct kept_entry *log_find(const struct lockstep *t, uint64_t at) {
    size_t from = 0, to = t->log_count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (t->log[middle].at == at)
            return &t->log[middle];
        if (t->log[middle].at < at)
            from = middle + 1;
        else
            to = middle;
    }
    return NULL;
}

static int sink_read(void *owner, uint64_t at, struct buffer *out_body) {
    const struct kept_entry *k = log_find(owner, at);
    return k ? buffer_append(out_body, k->bytes + k->head_size, k->body_size) : MR_EGONE;
}

mr_bytes lockstep_body(const struct lockstep *t, uint64_t at) {
    const struct kept_entry *k = at ? log_find(t, at) : NULL;
    return k ? bytes_of(k->bytes + k->head_size, k->body_size) : (mr_bytes){ 0 };
}

static void bytes_text(mr_bytes b, char out[TEXT]) {
    char text[TEXT] = "";
    if (b.size)
        memcpy(text, b.data, b.size < TEXT ? b.size : TEXT - 1);
    text_copy(out, text);
}

void lockstep_text(struct lockstep *t, uint64_t at, char out[TEXT]) {
    mr_bytes body = lockstep_body(t, at);
    bytes_text(at && !body.data ? mr_str("(lost)") : body, out);
}

void lockstep_job_texts(struct lockstep *t, uint64_t at, uint32_t meta_size, char out_body[TEXT],
                        char out_meta[TEXT]) {
    mr_bytes body = lockstep_body(t, at);
    bool lost = at && !body.data;
    uint32_t size = lost || meta_size > body.size ? 0 : meta_size;
    bytes_text(bytes_tail(body, size), out_meta);
    bytes_text(lost ? mr_str("(lost)") : bytes_of(body.data, body.size - size), out_body);
}

static void log_forget(struct lockstep *t, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(t->log[i].bytes);
    t->log_count -= count;
    memmove(t->log, t->log + count, t->log_count * sizeof *t->log);
}

// ---- Events -----------------------------------------------------------------------------------

static int stage_index(mr_bytes name) {
    for (int s = 0; s < STAGES; s++)
        if (bytes_equal(name, mr_str(stage_names[s])))
            return s;
    return -1;
}

static void note_grants(struct lockstep *t, int taker, const struct grant *g, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct observed_event *h = observed_add(&t->observed);
        h->kind = OBSERVED_GRANT;
        h->receiver = taker;
        h->id = g[i].id;
        h->stage = stage_index(g[i].stage);
        h->attempt = g[i].attempt;
        h->left_ms = g[i].left_ms;
        h->lease_ms = g[i].lease_ms;
        h->first = i == 0 || g[i].token.serial != g[i - 1].token.serial;
        h->token = g[i].token;
        bytes_text(g[i].key, h->key);
        lockstep_job_texts(t, g[i].at, g[i].meta_size, h->body, h->meta);
        lockstep_text(t, g[i].state_at, h->state);
    }
    if (t->fault == FAULT_SWAP_GRANTS && count > 1) {
        struct observed_event *last = &t->observed.list[t->observed.count - 1], swap = *last;
        *last = last[-1];
        last[-1] = swap;
    }
}

static bool on_reserve(void *owner, struct taker *taker) {
    struct lockstep *t = owner;
    ptrdiff_t slot = taker - t->takers;
    t->refused[slot] = t->taker_refuses[slot];
    return !t->taker_refuses[slot];
}

static void on_granted(void *owner, struct taker *taker, const struct grant *g, size_t count) {
    struct lockstep *t = owner;
    note_grants(t, (int)(taker - t->takers), g, count);
}

static void on_ended(void *owner, struct caller *caller, const struct outcome *o) {
    struct lockstep *t = owner;
    if (t->fault == FAULT_LOSE_END && o->id % 3 == 0)
        return;
    struct observed_event *h = observed_add(&t->observed);
    h->kind = OBSERVED_ENDED;
    h->receiver = (int)(caller - t->callers);
    h->id = o->id;
    h->code = (int)o->status;
    if (o->status == JOB_DONE)
        lockstep_text(t, o->at, h->body);
}

static void on_room(void *owner, struct pusher *pusher) {
    struct lockstep *t = owner;
    if (t->crashing)
        return;
    assert(t->room_notified_count < SLOTS);
    t->room_notified[t->room_notified_count++] = (int)(pusher - t->pushers);
}

static void on_stop(void *owner, struct conn *conn, uint64_t id, const struct token *token,
                    int why) {
    struct lockstep *t = owner;
    if (!conn || (t->fault == FAULT_LOSE_STOP && id % 3 == 0))
        return;
    struct observed_event *h = observed_add(&t->observed);
    h->kind = OBSERVED_STOP;
    h->receiver = (int)(conn - t->conns);
    h->id = id;
    h->code = why;
    h->token = *token;
}

static void on_running(void *owner, uint64_t id, uint32_t attempt, bool begins) {
    struct lockstep *t = owner;
    if (t->crashing)
        return;
    if (begins && t->running_count < MANY) {
        t->running[t->running_count++] = (struct running_note){ id, attempt };
        return;
    }
    for (size_t i = 0; i < t->running_count; i++)
        if (t->running[i].id == id && t->running[i].attempt == attempt) {
            t->running[i] = t->running[--t->running_count];
            return;
        }
    lockstep_differs(t, "job %" PRIu64 ": attempt %u ends, but has not begun", id, attempt);
}

// ---- Life -------------------------------------------------------------------------------------

static bool forgotten_by_fault(struct lockstep *t, const struct kept_entry *k) {
    struct record record;
    if (record_decode(bytes_of(k->bytes, k->head_size), NULL, &record) < 0)
        return false;
    return (t->fault == FAULT_LOSE_PUSH && record.kind == RECORD_PUSH && record.id % 5 == 0) ||
           (t->fault == FAULT_LOSE_FAIL && record.kind == RECORD_FAIL && record.id % 3 == 0) ||
           (t->fault == FAULT_LOSE_ORDERS && record.kind == RECORD_EPIC);
}

// Ids were reserved up to here: a new core goes on behind them.
static void note_reserved(struct lockstep *t, const struct kept_entry *k) {
    struct record record;
    if (record_decode(bytes_of(k->bytes, k->head_size), NULL, &record) == 0 &&
        record.kind == RECORD_EPOCH && record.next_id > t->last_id)
        t->last_id = record.next_id - 1;
}

int lockstep_start_core(struct lockstep *t, uint64_t now_ms) {
    static const struct core_events events = {
        .reserve = on_reserve,
        .granted = on_granted,
        .ended = on_ended,
        .room = on_room,
        .stop = on_stop,
    };
    struct core_config config = {
        .sink = { sink_append, sink_read, on_running, t },
        .events = events,
        .owner = t,
        .limits = { .source_idle_ms = UINT64_C(1) << 40 },
    };
    int err = core_create(&config, &t->core);
    if (err < 0)
        return err;
    for (size_t i = 0; i < t->log_count && err == 0; i++) {
        const struct kept_entry *k = &t->log[i];
        note_reserved(t, k);
        if (!forgotten_by_fault(t, k))
            err = core_replay(t->core, k->at, bytes_of(k->bytes, k->head_size),
                              (uint32_t)k->body_size);
    }
    if (err == 0)
        err = core_open(t->core, now_ms, t->opens);
    if (err < 0) {
        core_destroy(t->core);
        t->core = NULL;
        return err;
    }
    for (int i = 0; i < CONNS; i++)
        core_join(t->core, &t->conns[i]);
    return 0;
}

// Connections have to leave before, but a crash writes no records and sends no events.
void lockstep_stop_core(struct lockstep *t) {
    size_t observed = t->observed.count;
    t->crashing = true;
    for (int i = 0; i < CONNS && t->core; i++)
        core_leave(t->core, &t->conns[i]);
    core_destroy(t->core);
    t->core = NULL;
    t->crashing = false;
    t->observed.count = observed;
    t->running_count = 0;
    t->room_notified_count = 0;
    t->opens++;
}

struct lockstep *lockstep_create(enum fault fault) {
    struct lockstep *t = calloc(1, sizeof *t);
    t->model = malloc(sizeof *t->model);
    model_init(t->model);
    t->fault = fault;
    t->log_end = 64;
    t->refuse_append = t->fail_alloc = -1;
    t->opens = 1;
    int err = lockstep_start_core(t, 1);
    if (err < 0)
        lockstep_differs(t, "the core does not open: %s", error_name(err));
    model_advance(t->model, 1);
    return t;
}

void lockstep_destroy(struct lockstep *t) {
    if (!t)
        return;
    lockstep_stop_core(t);
    log_forget(t, t->log_count);
    free(t->log);
    free(t->model);
    free(t);
}

// ---- Saying it to the core --------------------------------------------------------------------

static int say_push(struct lockstep *t, const struct command *c, struct answer *out) {
    const struct command_job *j = &c->job;
    struct push p = {
        .stage = mr_str(stage_names[j->stage]),
        .job.key = mr_str(j->key),
        .job.once = mr_str(j->once),
        .body = mr_str(j->body),
        .job.delay_ms = j->delay_ms,
        .job.deadline_ms = j->deadline_ms,
        .job.attempts = j->attempts,
        .job.meta = mr_str(j->meta),
        .job.last = j->last,
        .conn = c->conn >= 0 ? &t->conns[c->conn] : NULL,
    };
    if (c->source >= 0) {
        p.source = mr_str(source_names[c->source]);
        p.number = c->number;
        p.epic = source_is_epic(c->source);
    }
    if (c->caller >= 0) {
        p.caller = &t->callers[c->caller];
        *p.caller = (struct caller){ .conn = p.conn };
    }
    if (c->pusher >= 0) {
        p.pusher = &t->pushers[c->pusher];
        if (!t->pushing_again)
            *p.pusher = (struct pusher){ .conn = p.conn };
        t->waiting_push[c->pusher] = *c;
    }
    struct pushed pushed = { 0 };
    int err = core_push(t->core, &p, &pushed);
    if (err == MR_EFULL && p.pusher) // beyond its quota: it gives up the room that it was granted
        core_push_leave(t->core, p.pusher);
    out->id = pushed.id;
    out->repeat = pushed.repeat;
    out->ended = pushed.ended;
    if (pushed.ended) {
        out->status = pushed.outcome.status;
        if (out->status == JOB_DONE)
            lockstep_text(t, pushed.outcome.at, out->text);
    }
    return err;
}

static int say_await(struct lockstep *t, const struct command *c, struct answer *out) {
    struct caller *caller = &t->callers[c->caller];
    struct outcome outcome = { 0 };
    *caller = (struct caller){ .conn = &t->conns[c->conn] };
    int err = core_await(t->core, c->id, caller, &outcome);
    out->ended = err == 0;
    if (err == 0) {
        out->status = outcome.status;
        if (out->status == JOB_DONE)
            lockstep_text(t, outcome.at, out->text);
    }
    return err;
}

static int say_take(struct lockstep *t, const struct command *c) {
    mr_bytes stages[STAGES];
    for (int i = 0; i < c->stage_count; i++)
        stages[i] = mr_str(stage_names[c->stages[i]]);
    struct take take = {
        .stages = stages,
        .stage_count = (size_t)c->stage_count,
        .count = c->count,
        .batch = c->batch,
        .lease_ms = c->lease_ms,
        .detached = c->detached,
        .conn = &t->conns[c->conn],
    };
    if (c->taker >= 0) {
        take.taker = &t->takers[c->taker];
        *take.taker = (struct taker){ .conn = take.conn };
        t->taker_refuses[c->taker] = c->refuses;
    }
    struct grant grants[BLOCK];
    size_t count = 0;
    size_t before = t->observed.count;
    int err = core_take(t->core, &take, grants, &count);
    size_t during = t->observed.count - before;
    if (err < 0)
        return err;
    note_grants(t, -1, grants, count);
    // Events that these grants caused were sent first, but belong after them.
    struct observed_event mine[BLOCK], *list = &t->observed.list[before];
    memcpy(mine, list + during, count * sizeof *mine);
    memmove(list + count, list, during * sizeof *list);
    memcpy(list, mine, count * sizeof *mine);
    return 0;
}

static int say_done(struct lockstep *t, const struct command *c) {
    struct emit emits[EMITS];
    for (int i = 0; i < c->emit_count; i++) {
        const struct command_job *j = &c->emits[i];
        emits[i] = (struct emit){
            .stage = mr_str(stage_names[j->stage]),
            .job.key = mr_str(j->key),
            .job.once = mr_str(j->once),
            .body = mr_str(j->body),
            .job.delay_ms = j->delay_ms,
            .job.deadline_ms = j->deadline_ms,
            .job.attempts = j->attempts,
            .job.meta = mr_str(j->meta),
        };
    }
    struct done done = {
        .id = c->id,
        .token = c->token,
        .result = mr_str(c->text),
        .set_state = c->set_state,
        .state = mr_str(c->state),
        .emits = emits,
        .emit_count = (size_t)c->emit_count,
    };
    int err = core_done(t->core, &done);
    return err == MR_ESTALE && t->fault == FAULT_ACCEPT_STALE ? 0 : err;
}

// F16: the log has all live entries, and after cleaning hardly anything else.
static void check_live(struct lockstep *t, bool all_cleaned) {
    uint64_t bytes = 0, live = core_live_bytes(t->core);
    for (size_t i = 0; i < t->log_count; i++)
        bytes += entry_size(t->log[i].head_size, t->log[i].body_size);
    if (live > bytes || (all_cleaned && bytes > live + 2 * ENTRY_FRAME))
        lockstep_differs(t, "%" PRIu64 " bytes live in a log of %" PRIu64, live, bytes);
}

// Copies the live things of the oldest entries to the end, then drops those entries.
static int say_clean(struct lockstep *t, const struct command *c) {
    size_t count = c->entries < t->log_count ? c->entries : t->log_count;
    if (count == 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        struct kept_entry k = t->log[i];
        int err = core_clean(t->core, k.at, bytes_of(k.bytes, k.head_size),
                             bytes_of(k.bytes + k.head_size, k.body_size));
        if (err < 0)
            return err;
    }
    uint64_t upto = t->log_count > count ? t->log[count].at : t->log_end;
    int err = core_trimmed(t->core, upto);
    if (err < 0)
        return err;
    bool all = count < c->entries;
    log_forget(t, count);
    check_live(t, all);
    return core_trim_mark(t->core) == upto ? 0 : MR_ECORRUPT;
}

static int say_leave(struct lockstep *t, const struct command *c) {
    int err = core_leave(t->core, &t->conns[c->conn]);
    core_join(t->core, &t->conns[c->conn]);
    return err;
}

static int say_on_stage(struct lockstep *t, const struct command *c) {
    mr_bytes stage = mr_str(stage_names[c->job.stage]);
    if (c->op == OP_SET)
        return core_set(t->core, stage, mr_str(c->name), mr_str(c->text));
    mr_bytes key = mr_str(c->job.key);
    if (c->op == OP_PAUSE && key.size)
        return core_pause_key(t->core, stage, key);
    if (c->op == OP_RESUME && key.size)
        return core_resume_key(t->core, stage, key);
    if (c->op == OP_PAUSE)
        return core_pause(t->core, stage);
    if (c->op == OP_DRAIN)
        return core_drain(t->core, stage);
    return core_resume(t->core, stage);
}

static mr_bytes schedule_of(const struct command *c) {
    return mr_str(stage_names[schedule_stage(c->schedule)]);
}

static int say_schedule(struct lockstep *t, const struct command *c) {
    struct schedule_spec spec = { .stage = schedule_of(c),
                                  .name = mr_str(schedule_names[c->schedule]),
                                  .every_ms = c->every_ms,
                                  .zone = mr_str("UTC"),
                                  .body = mr_str(c->job.body),
                                  .job = { .key = mr_str(c->job.key),
                                           .attempts = c->job.attempts } };
    size_t before = t->log_count;
    if (c->op == OP_SCHEDULE)
        return core_schedule_set(t->core, &spec, c->next_ms);
    int err = core_schedule_check(t->core, &spec);
    if (t->log_count != before)
        lockstep_differs(t, "a schedule that is only checked is recorded");
    return err;
}

static int say_on_schedule(struct lockstep *t, const struct command *c) {
    mr_bytes stage = schedule_of(c), name = mr_str(schedule_names[c->schedule]);
    if (c->op == OP_SCHEDULE || c->op == OP_SCHEDULE_DRY)
        return say_schedule(t, c);
    if (c->op == OP_SCHEDULE_DROP)
        return core_schedule_drop(t->core, stage, name);
    if (c->op == OP_SCHEDULE_PAUSE)
        return core_schedule_pause(t->core, stage, name);
    if (c->op == OP_SCHEDULE_RESUME)
        return core_schedule_resume(t->core, stage, name, c->next_ms);
    return core_schedule_now(t->core, stage, name);
}

enum { TICK_RETRY_MS = 100 }; // of the core

// A tick that fails is due again at the same instant: the clock that the core is given is as much
// behind.
static int say_tick(struct lockstep *t, const struct command *c, struct answer *out) {
    struct due_schedule d;
    if (!core_tick_due(t->core, c->wall_ms, &d))
        return 0;
    struct tick tick = { .pushes = d.asked || !c->skips };
    if (!d.asked) {
        tick.last_ms = d.next_ms;
        tick.next_ms = c->next_ms;
    }
    out->changed = true;
    return core_tick(t->core, d.place, d.asked ? 0 : d.next_ms - TICK_RETRY_MS, &tick);
}

static int say_beat(struct lockstep *t, const struct command *c) {
    struct job_progress said = { c->number, 0, mr_str(c->text) };
    return c->number ? core_progress(t->core, c->id, &c->token, &said)
                     : core_beat(t->core, c->id, &c->token);
}

static int say_on_epic(struct lockstep *t, const struct command *c) {
    mr_bytes name = mr_str(source_names[c->source]);
    mr_bytes stage = mr_str(stage_names[source_stage(c->source)]);
    struct emit then = { .stage = mr_str(stage_names[c->job.stage]),
                         .body = mr_str(c->job.body),
                         .job.key = mr_str(c->job.key) };
    if (c->op == OP_EPIC_END)
        return core_epic_end(t->core, stage, name, c->number);
    if (c->op == OP_EPIC_SKIP)
        return core_epic_skip(t->core, stage, name, c->number);
    if (c->op == OP_EPIC_CANCEL)
        return core_epic_cancel(t->core, stage, name);
    if (c->op == OP_EPIC_FORGET)
        return core_epic_forget(t->core, stage, name, c->number);
    if (c->op == OP_EPIC_THEN)
        return core_epic_then(t->core, stage, name, &then);
    return core_epic_drop(t->core, stage, name);
}

static void act_for(struct lockstep *t, int conn) {
    static const struct maker_quota of_jobs = { .most.of[QUOTA_JOBS] = JOBS_OF_FIRST },
                                    of_bytes = { .most.of[QUOTA_BYTES] = BYTES_OF_SECOND };
    core_act_for(t->core, conn_maker(conn),
                 !conn_counts_jobs(conn) ? NULL
                 : conn == 0             ? &of_jobs
                                         : &of_bytes);
}

int lockstep_send_core(struct lockstep *t, const struct command *c, struct answer *out) {
    act_for(t, c->conn);
    switch (c->op) {
    case OP_PUSH:
        return say_push(t, c, out);
    case OP_PUSH_LEAVE:
        core_push_leave(t->core, &t->pushers[c->pusher]);
        return 0;
    case OP_AWAIT:
        return say_await(t, c, out);
    case OP_AWAIT_LEAVE:
        return core_await_leave(t->core, &t->callers[c->caller]);
    case OP_CANCEL:
        return core_cancel(t->core, c->id, &out->changed);
    case OP_TAKE:
        return say_take(t, c);
    case OP_TAKE_LEAVE:
        core_take_leave(t->core, &t->takers[c->taker]);
        return 0;
    case OP_DONE:
        return say_done(t, c);
    case OP_FAIL:
        return core_fail_by(t->core, c->id, &c->token,
                            (struct cause){ mr_str(c->text), mr_str(c->text) }, c->retry_ms);
    case OP_RELEASE:
        return core_release(t->core, c->id, &c->token, c->delay_ms);
    case OP_BEAT:
        return say_beat(t, c);
    case OP_RETRY:
        return core_retry(t->core, c->id);
    case OP_DUE:
        return core_due(t->core, c->id, &out->changed);
    case OP_DROP:
        return core_drop(t->core, c->id);
    case OP_SET:
    case OP_PAUSE:
    case OP_DRAIN:
    case OP_RESUME:
        return say_on_stage(t, c);
    case OP_LINK:
        return core_learn_edge(t->core, mr_str(stage_names[c->stages[0]]),
                               mr_str(stage_names[c->stages[1]]), 0);
    case OP_LEAVE:
        return say_leave(t, c);
    case OP_EPIC_END:
    case OP_EPIC_SKIP:
    case OP_EPIC_DROP:
    case OP_EPIC_CANCEL:
    case OP_EPIC_FORGET:
    case OP_EPIC_THEN:
        return say_on_epic(t, c);
    case OP_SCHEDULE:
    case OP_SCHEDULE_DROP:
    case OP_SCHEDULE_PAUSE:
    case OP_SCHEDULE_RESUME:
    case OP_SCHEDULE_NOW:
    case OP_SCHEDULE_DRY:
        return say_on_schedule(t, c);
    case OP_TICK:
        return say_tick(t, c, out);
    case OP_CLEAN:
        return say_clean(t, c);
    case OP_TIME:
    case OP_CRASH:
    case OPS:
        return 0;
    }
    return 0;
}
