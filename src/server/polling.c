// See polling.h. A mean that forgets decides, so that a single long sleep changes nothing, and a
// few do.
#include "server/polling.h"

enum {
    SHORT_ALL = 1 << 16,
    SHORT_ENOUGH = SHORT_ALL / 4 * 3,
    REMEMBERED = 16, // sleeps, about
    POLLS_EACH = 64, // between the two looks at what they cost
    PREEMPTED_FEW = 4,
};
static const uint64_t rest_least_ns = 10000000, rest_most_ns = 1000000000;

bool polling_pays(const struct polling *p, uint64_t now_ns) {
    return p->short_share > SHORT_ENOUGH && now_ns >= p->rest_until_ns;
}

void polling_slept(struct polling *p, uint64_t ns) {
    p->short_share -= p->short_share / REMEMBERED;
    if (ns < POLL_NS)
        p->short_share += SHORT_ALL / REMEMBERED;
}

bool polling_polled(struct polling *p) {
    p->polls++;
    return p->polls == 1 || p->polls >= POLLS_EACH;
}

// How often the thread was preempted before the first of these polls, as in a rest, does not count.
// The rests get longer while other threads go on to need the processor.
void polling_look(struct polling *p, uint64_t preempted, uint64_t now_ns) {
    uint64_t times = preempted - p->preempted;
    p->preempted = preempted;
    if (p->polls < POLLS_EACH)
        return;
    p->polls = 0;
    if (times <= PREEMPTED_FEW) {
        p->rest_ns = 0;
        return;
    }
    p->rest_ns = p->rest_ns < rest_least_ns ? rest_least_ns : p->rest_ns * 2;
    if (p->rest_ns > rest_most_ns)
        p->rest_ns = rest_most_ns;
    p->rest_until_ns = now_ns + p->rest_ns;
}
