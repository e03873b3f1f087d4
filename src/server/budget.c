// See budget.h.
#include "server/budget.h"

void budget_defer(struct session *s) {
    if (list_empty(&s->of_backlog))
        list_append(&s->host->backlog, &s->of_backlog);
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
    h->continued = budget_continues(h) ? h->continued + 1 : 0;
    h->skipped = false;
    h->busy_steps = h->continued ? h->steps : h->turn_steps + LIMIT_BUSY_STEPS;
    if (!list_empty(&h->backlog))
        list_append(&h->backlog, &h->backlog_mark);
}

// A session that is deferred in this turn is behind the mark, and is served in a later turn.
void budget_serve(struct host *h) {
    struct list *mark = &h->backlog_mark;
    uint64_t until = h->steps + LIMIT_TURN_STEPS;
    serve_leaving(h);
    uint64_t busy_steps = h->busy_steps;
    h->busy_steps = UINT64_MAX;
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
    h->busy_steps = busy_steps;
}
