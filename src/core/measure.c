// Slots of ages thin out as they grow old: when there are too many, neighbours are joined.
#include "core/state.h"

static uint32_t ages_slot(const struct ages *a, uint64_t at_ms) {
    uint32_t low = 0, high = 1, last = a->used - 1;
    if (at_ms >= a->slots[last].from_ms)
        return last;
    // Old jobs end first, so it is among the first.
    while (high < last && at_ms >= a->slots[high].from_ms) {
        low = high;
        high = high * 2 < last ? high * 2 : last;
    }
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (a->slots[middle].from_ms <= at_ms)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// After replay: the span from the oldest to the newest is divided evenly, everything is counted,
// and each slot then begins with the oldest that is in it.
void ages_divide(struct ages *a, uint64_t oldest_ms, uint64_t newest_ms) {
    uint64_t span = newest_ms - oldest_ms + 1;
    a->used = span < AGES / 2 ? (uint32_t)span : AGES / 2;
    for (uint32_t i = 0; i < a->used; i++) {
        a->slots[i].from_ms = oldest_ms + span * i / a->used;
        a->slots[i].oldest_ms = UINT64_MAX;
        a->slots[i].count = 0;
    }
}

void ages_recount(struct ages *a, uint64_t at_ms) {
    uint32_t slot = ages_slot(a, at_ms);
    a->slots[slot].count++;
    if (at_ms > a->newest_ms)
        a->newest_ms = at_ms;
    if (at_ms < a->slots[slot].oldest_ms)
        a->slots[slot].oldest_ms = at_ms;
}

void ages_divided(struct ages *a) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->used; i++) {
        if (!a->slots[i].count)
            continue;
        a->slots[kept] = a->slots[i];
        a->slots[kept].from_ms = a->slots[i].oldest_ms;
        kept++;
    }
    a->used = kept;
}

// Makes room by joining neighbours; the newest slot stays as it is.
APART static void ages_join(struct ages *a) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->used; i += 2) {
        a->slots[kept] = a->slots[i];
        if (i + 1 < a->used)
            a->slots[kept].count += a->slots[i + 1].count;
        if (a->slots[kept].count)
            kept++;
    }
    a->used = kept;
}

APART static void ages_drop_empty(struct ages *a) {
    uint32_t empty = 0;
    while (empty < a->used && !a->slots[empty].count)
        empty++;
    a->used -= empty;
    memmove(a->slots, a->slots + empty, a->used * sizeof *a->slots);
}

// A new slot begins later than every counted time, so that no counted job changes its slot.
void ages_add(struct ages *a, uint64_t at_ms, uint64_t now_ms) {
    if (a->used && at_ms == a->newest_ms) { // the common case
        a->slots[a->used - 1].count++;
        return;
    }
    if (a->used) {
        uint64_t width = (now_ms - a->slots[0].from_ms) / (AGES / 2);
        uint32_t slot = ages_slot(a, at_ms);
        if (at_ms - a->slots[slot].from_ms <= width) {
            a->newest_ms = at_ms;
            a->slots[slot].count++;
            return;
        }
    }
    a->newest_ms = at_ms;
    if (a->used == AGES)
        ages_join(a);
    a->slots[a->used].from_ms = at_ms;
    a->slots[a->used++].count = 1;
}

void ages_remove(struct ages *a, uint64_t at_ms) {
    uint32_t slot = ages_slot(a, at_ms);
    a->slots[slot].count--;
    if (slot == 0 && !a->slots[0].count)
        ages_drop_empty(a);
}

int64_t ages_oldest(const struct ages *a, uint64_t now_ms) {
    return a->used ? (int64_t)(now_ms - a->slots[0].from_ms) : -1;
}

APART void rate_advance(struct rate *r, uint64_t second) {
    if (second - r->second >= RATE_SECONDS) {
        *r = (struct rate){ .second = second };
        return;
    }
    while (r->second < second)
        r->counts[++r->second % RATE_SECONDS] = 0;
}

// The current second is not over, so it counts for the part that has passed.
double rate_per_s(const struct rate *r, uint64_t now_ms) {
    struct rate now = *r;
    rate_advance(&now, now_ms / 1000);
    double events = 0;
    for (int i = 0; i < RATE_SECONDS; i++)
        events += now.counts[i];
    return events / (RATE_SECONDS - 1 + (double)(now_ms % 1000) / 1000);
}
