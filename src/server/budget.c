// See budget.h.
#include "server/budget.h"

#include "server/shards.h"

void budget_defer(struct session *s) {
    if (list_empty(&s->of_backlog))
        list_append(&s->host->backlog, &s->of_backlog);
}

void budget_end(struct session *s, struct budget_mark mark, uint32_t words, uint64_t said) {
    struct host *h = s->host;
    h->steps += STEPS_COMMAND + words / STEP_WORDS + said / STEP_BYTES_OUT + shards_steps(h);
    s->spent = mark.spent + h->steps - mark.steps;
}

// Sessions of disconnected clients share the steps of one session.
static void serve_leaving(struct host *h) {
    for (uint64_t left = LIMIT_SESSION_STEPS; left && !list_empty(&h->leaving);) {
        struct session *s = list_entry(h->leaving.next, struct session, of_host);
        uint64_t used = session_leave_on(s, left) + 1;
        left -= used < left ? used : left;
    }
}

void budget_begin_turn(struct host *h) {
    h->crowded = budget_continues(h) ? h->crowded + 1 : 0;
    h->skipped = false;
    if (!list_empty(&h->backlog))
        list_append(&h->backlog, &h->backlog_mark);
}

// A session that is deferred in this turn is behind the mark, and is served in a later turn.
void budget_serve(struct host *h) {
    struct list *mark = &h->backlog_mark;
    uint64_t until = h->steps + LIMIT_TURN_STEPS;
    serve_leaving(h);
    h->serving = true;
    while (!list_empty(mark) && h->backlog.next != mark && h->steps < until) {
        struct session *s = list_entry(h->backlog.next, struct session, of_backlog);
        list_remove(&s->of_backlog);
        h->steps += STEPS_RESUME;
        if (s->wait.for_turn)
            wait_wake(s, WAKE_READY);
        list_remove(&s->of_resuming);
        if (s->resume && !s->wait.is_woken)
            s->resume(s);
        else
            session_run(s);
        session_offer(s); // its connection may have stopped reading meanwhile
    }
    list_remove(mark);
    h->serving = false;
}
