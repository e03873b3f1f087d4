// See patience.h.
#include "server/patience.h"

void patience_begin(struct patience *p, struct waited *w, uint64_t now_ms) {
    if (!p->ms)
        return;
    list_remove(&w->of_patience);
    w->since_ms = now_ms;
    list_append(&p->waited, &w->of_patience);
}

void patience_end(struct waited *w) {
    list_remove(&w->of_patience);
}

uint64_t patience_next_ms(const struct patience *p) {
    struct list *first = list_first(&p->waited);
    return first ? list_entry(first, struct waited, of_patience)->since_ms + p->ms : UINT64_MAX;
}

struct waited *patience_over(struct patience *p, uint64_t now_ms) {
    if (patience_next_ms(p) > now_ms)
        return NULL;
    struct waited *w = list_entry(p->waited.next, struct waited, of_patience);
    patience_end(w);
    return w;
}
