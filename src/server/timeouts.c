// See timeouts.h.
#include "server/timeouts.h"

void timeout_begin(struct timeouts *p, struct timeout *w, uint64_t now_ms) {
    if (!p->ms)
        return;
    list_remove(&w->of_timeouts);
    w->since_ms = now_ms;
    list_append(&p->list, &w->of_timeouts);
}

void timeout_end(struct timeout *w) {
    list_remove(&w->of_timeouts);
}

uint64_t timeouts_next_ms(const struct timeouts *p) {
    struct list *first = list_first(&p->list);
    return first ? list_entry(first, struct timeout, of_timeouts)->since_ms + p->ms : UINT64_MAX;
}

struct timeout *timeout_expired(struct timeouts *p, uint64_t now_ms) {
    if (timeouts_next_ms(p) > now_ms)
        return NULL;
    struct timeout *w = list_entry(p->list.next, struct timeout, of_timeouts);
    timeout_end(w);
    return w;
}
