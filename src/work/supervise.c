// A ring of the instants of the last restarts: the oldest of them decides whether one more would be
// too many.
#include "work/supervise.h"

#include <assert.h>

void supervisor_init(struct supervisor *s, uint32_t restarts, uint64_t window_ms) {
    assert(restarts <= SUPERVISOR_RESTARTS_MOST);
    *s = (struct supervisor){ .restarts = restarts ? restarts : SUPERVISOR_RESTARTS,
                              .window_ms = window_ms ? window_ms : SUPERVISOR_WINDOW_MS };
}

bool supervisor_restart(struct supervisor *s, uint64_t now_ms) {
    uint64_t *oldest_ms = &s->recent_ms[s->count % s->restarts];
    bool full = s->count >= s->restarts;
    if (s->gave_up || (full && now_ms - *oldest_ms < s->window_ms)) {
        s->gave_up = true;
        return false;
    }
    *oldest_ms = now_ms;
    s->count++;
    return true;
}
