// See nodes_history.h and nodes_state.h: the operator cancels jobs and has schedules; planners push
// epics, each with a THEN, and cancel some of them.
#include "support/nodes_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Cancels ------------------------------------------------------------------------------------

// A name is free again when its job was cancelled, so those with names are left alone.
static void cancel_some(struct history *h, struct client *c) {
    int n = h->piece_count ? (int)roll(h, (uint64_t)h->piece_count) : 0;
    struct piece *p = &h->pieces[n];
    char text[64];
    bool fits = h->piece_count && p->id && !p->is_named && !p->cancel_sent && p->schedule < 0;
    if (h->draining || h->plan->flows || !fits || roll(h, 30))
        return;
    snprintf(text, sizeof text, "CANCEL %" PRIu64, p->id);
    p->cancel_sent = true;
    p->cancel_id = p->id;
    client_send(h, c, (struct expected){ EXPECT_CANCEL, n, -1 }, text);
}

void receive_cancel(struct history *h, int n, const struct response_value *v) {
    struct piece *p = &h->pieces[n];
    bool unknown = reply_is_unsure(h, v);
    bool none = (v->type == RESPONSE_INTEGER && v->integer == 0) || reply_is_code(v, "GONE");
    p->maybe_done = p->maybe_done || unknown;
    if (unknown || none)
        return;
    if (v->type != RESPONSE_INTEGER || v->integer != 1)
        wrong(h, "CANCEL of %d gets '%.*s'", n, (int)v->bytes.size, (const char *)v->bytes.data);
    if (p->id != p->cancel_id)
        return; // a call that was made again
    if (p->done)
        wrong(h, "number %d is cancelled although it was done", n);
    p->cancelled = true;
    p->cancelled_step = h->nodes->reached.steps;
    h->reached->cancelled++;
}

// ---- Schedules ----------------------------------------------------------------------------------

// Each is paused when everything is to end, and then asked how many jobs it has pushed.
static void schedule_act(struct history *h, struct client *c, int i) {
    struct schedule_plan *s = &h->schedules[i];
    const char *stage = h->stages[s->stage];
    char text[128] = "";
    if (s->phase == SCHEDULE_RUNS && h->draining)
        s->phase = SCHEDULE_PAUSE;
    if (s->is_sent || c->expected_count)
        return;
    if (s->phase == SCHEDULE_SET)
        snprintf(text, sizeof text, "SCHEDULE %s t%d EVERY 1000 MISSED one PUSH t%d KEY %s", stage,
                 i, i, key_text(s->stage, i));
    else if (s->phase == SCHEDULE_PAUSE)
        snprintf(text, sizeof text, "SCHEDULE %s t%d PAUSE", stage, i);
    else if (s->phase == SCHEDULE_COUNT && h->counts)
        snprintf(text, sizeof text, "SCHEDULE %s t%d", stage, i);
    if (!text[0])
        return;
    s->is_sent = true;
    client_send(h, c, (struct expected){ EXPECT_SCHEDULE, i, -1 }, text);
}

void receive_schedule(struct history *h, int index, const struct response_value *v) {
    struct schedule_plan *s = &h->schedules[index];
    s->is_sent = false;
    if (reply_is_unsure(h, v))
        return;
    if (s->phase == SCHEDULE_COUNT) {
        const struct response_value *pushed = response_field(v, "pushed");
        if (!pushed || pushed->type != RESPONSE_INTEGER || (uint64_t)pushed->integer != s->seen)
            wrong(h, "schedule t%d has pushed %" PRId64 " jobs, and %" PRIu64 " were taken", index,
                  pushed ? pushed->integer : -1, s->seen);
        s->phase = SCHEDULE_OVER;
    } else if (v->type != RESPONSE_SIMPLE) {
        wrong(h, "SCHEDULE gets '%.*s'", (int)v->bytes.size, (const char *)v->bytes.data);
    } else {
        s->phase = s->phase == SCHEDULE_SET ? SCHEDULE_RUNS : SCHEDULE_COUNT;
    }
}

void schedule_reply_lost(struct schedule_plan *s) {
    s->is_sent = false;
}

int schedule_piece(struct history *h, mr_bytes body, uint64_t id) {
    const char *text = body.data;
    int index = body.size == 2 && text[0] == 't' ? text[1] - '0' : -1;
    if (index < 0 || index >= SCHEDULES || h->piece_count == PIECES)
        return -1;
    for (int i = 0; i < h->piece_count; i++)
        if (h->pieces[i].schedule == index && h->pieces[i].id == id)
            return i;
    int n = piece_make(h, h->schedules[index].stage, index);
    h->pieces[n].schedule = index;
    h->pieces[n].acked = true;
    h->schedules[index].seen++;
    h->reached->ticks++;
    return n;
}

void operator_act(struct history *h, struct client *c) {
    for (int i = 0; !h->plan->flows && i < SCHEDULES; i++)
        schedule_act(h, c, i);
    if (c->expected_count < 4)
        cancel_some(h, c);
}

// ---- Epics --------------------------------------------------------------------------------------

static void epic_begin(struct history *h, struct client *c) {
    if (h->epic_count == EPICS || !may_make(h) || h->plan->flows || roll(h, 60))
        return;
    c->epic = h->epic_count++;
    struct epic_plan *e = &h->epics[c->epic];
    *e = (struct epic_plan){ .phase = PLAN_EPIC_THEN, .stage = (int)roll(h, STAGES) };
    e->then = piece_make(h, (int)roll(h, STAGES), (int)roll(h, KEYS));
    h->pieces[e->then].then_of = c->epic;
}

static void epic_push(struct history *h, struct client *c, struct epic_plan *e) {
    if (c->again_count) {
        piece_push(h, c, c->again[0]);
        memmove(c->again, c->again + 1, (size_t)--c->again_count * sizeof *c->again);
        return;
    }
    if (e->count < EPIC_PIECES && may_make(h)) {
        int n = piece_make(h, e->stage, (int)roll(h, KEYS + 1) - 1);
        h->pieces[n].epic = c->epic;
        h->pieces[n].order = (uint64_t)++e->count;
        if (h->pieces[n].key != NO_KEY)
            h->pieces[n].group = UINT64_C(1) << 62 | (uint64_t)(c->epic * KEYS + h->pieces[n].key);
        e->pieces[e->count - 1] = n;
        piece_push(h, c, n);
        return;
    }
    bool all = !c->expected_count;
    for (int i = 0; i < e->count; i++)
        all = all && h->pieces[e->pieces[i]].acked;
    if (all)
        e->phase = PLAN_EPIC_END;
}

// It may end jobs that run: what becomes of them is not known.
static void epic_cancel(struct history *h, struct epic_plan *e) {
    e->is_cancelled = true;
    for (int i = 0; i < e->count; i++)
        h->pieces[e->pieces[i]].cancel_sent = h->pieces[e->pieces[i]].maybe_done = true;
    h->reached->epics_cancelled++;
}

static void epic_say(struct history *h, struct client *c, struct epic_plan *e) {
    const struct piece *then = &h->pieces[e->then];
    char text[128], what[64] = "";
    if (e->phase == PLAN_EPIC_THEN)
        snprintf(what, sizeof what, "THEN %s %s %d", h->stages[then->stage],
                 key_text(then->stage, then->key), e->then);
    else if (e->phase == PLAN_EPIC_END)
        snprintf(what, sizeof what, "END %d", e->count);
    else
        snprintf(what, sizeof what, "%s", e->phase == PLAN_EPIC_CANCEL ? "CANCEL" : "FORGET 30000");
    if (e->phase == PLAN_EPIC_CANCEL)
        epic_cancel(h, e);
    snprintf(text, sizeof text, "EPIC %s e%d %s", h->stages[e->stage], c->epic, what);
    e->is_sent = true;
    client_send(h, c, (struct expected){ EXPECT_EPIC, c->epic, -1 }, text);
}

void planner_act(struct history *h, struct client *c) {
    struct epic_plan *e = c->epic >= 0 ? &h->epics[c->epic] : NULL;
    if (!e || e->phase == PLAN_EPIC_OVER)
        epic_begin(h, c);
    else if (e->phase == PLAN_EPIC_PUSHES && c->expected_count < 4)
        epic_push(h, c, e);
    else if (e->phase != PLAN_EPIC_PUSHES && !e->is_sent && !c->expected_count)
        epic_say(h, c, e);
}

static enum epic_phase phase_after(struct history *h, struct epic_plan *e) {
    switch (e->phase) {
    case PLAN_EPIC_THEN:
        return PLAN_EPIC_PUSHES;
    case PLAN_EPIC_END:
        h->pieces[e->then].acked = true;
        h->reached->epics++;
        return roll(h, 4) ? PLAN_EPIC_FORGET : PLAN_EPIC_CANCEL;
    case PLAN_EPIC_CANCEL:
        return PLAN_EPIC_FORGET;
    case PLAN_EPIC_PUSHES:
    case PLAN_EPIC_FORGET:
    case PLAN_EPIC_OVER:
        break;
    }
    return PLAN_EPIC_OVER;
}

void receive_epic(struct history *h, struct epic_plan *e, const struct response_value *v) {
    e->is_sent = false;
    if (reply_is_unsure(h, v))
        return;
    if (v->type == RESPONSE_ERROR && e->phase != PLAN_EPIC_FORGET)
        wrong(h, "EPIC gets '%.*s'", (int)v->bytes.size, (const char *)v->bytes.data);
    e->phase = phase_after(h, e);
}

// A FORGET is not repeated: the epic may be gone, and would begin anew.
void epic_reply_lost(struct epic_plan *e) {
    e->is_sent = false;
    if (e->phase == PLAN_EPIC_FORGET)
        e->phase = PLAN_EPIC_OVER;
}

static bool may_have_ended(const struct history *h, int n) {
    const struct piece *p = &h->pieces[n];
    bool ended = p->done || p->maybe_done || p->cancel_sent;
    for (int i = 0; !ended && i < h->commit_count; i++)
        ended = h->commits[i].piece == n && h->commits[i].state != COMMIT_REFUSED;
    return ended;
}

void expect_epic_ended(struct history *h, int n) {
    const struct epic_plan *e = &h->epics[h->pieces[n].then_of];
    if (e->phase == PLAN_EPIC_THEN || e->phase == PLAN_EPIC_PUSHES)
        wrong(h, "number %d is the THEN of an epic whose end is not said", n);
    for (int i = 0; i < e->count; i++)
        if (!may_have_ended(h, e->pieces[i]))
            wrong(h, "number %d is the THEN of an epic of which number %d has not ended", n,
                  e->pieces[i]);
}

// ---- The end ------------------------------------------------------------------------------------

const char *plans_unfinished(const struct history *h, char text[100]) {
    for (int i = 0; i < h->epic_count; i++)
        if (h->epics[i].phase != PLAN_EPIC_OVER) {
            snprintf(text, 100, "epic e%d is not over", i);
            return text;
        }
    for (int i = 0; !h->plan->flows && i < SCHEDULES; i++)
        if (h->schedules[i].phase < SCHEDULE_COUNT) {
            snprintf(text, 100, "schedule t%d is not paused", i);
            return text;
        }
    return NULL;
}
