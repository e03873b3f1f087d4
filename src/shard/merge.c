// What several shards say about a stage, as one engine says it.
#include "shard/group.h"

#include <string.h>

// What holds back work that is not ready: one shard would tell the last of these that it has.
static int rank_of(const struct stage_info *i) {
    static const char *const order[] = { "delay", "backoff", "halted", "draining" };
    int rank = sizeof order / sizeof *order;
    while (rank && strcmp(i->held_by, order[rank - 1]) != 0)
        rank--;
    return rank;
}

// Nothing starts in the engine only if nothing starts in any shard that has something to start.
static const struct stage_info *who_knows(const struct stage_info *a, const struct stage_info *b) {
    if (a->ready && b->ready)
        return b->held_by[0] ? a : b;
    if (a->ready || b->ready)
        return a->ready ? a : b;
    return rank_of(b) > rank_of(a) || !a->held_by[0] ? b : a;
}

// A worker that is at one shard takes from all.
static void held_by_add(struct stage_info *sum, const struct stage_info *more) {
    bool worker = sum->running || sum->takers || more->running || more->takers;
    const struct stage_info *from = who_knows(sum, more);
    if (from != sum)
        memcpy(sum->held_by, from->held_by, sizeof sum->held_by);
    if (worker && strcmp(sum->held_by, "no-worker") == 0)
        sum->held_by[0] = 0;
}

static int64_t older(int64_t a, int64_t b) {
    return a > b ? a : b; // -1: none
}

void stage_info_add(struct stage_info *sum, const struct stage_info *more) {
    held_by_add(sum, more);
    sum->waiting += more->waiting;
    sum->running += more->running;
    sum->parked += more->parked;
    sum->delayed += more->delayed;
    sum->dead += more->dead;
    sum->pushed += more->pushed;
    sum->done += more->done;
    sum->failed += more->failed;
    sum->expired += more->expired;
    sum->cancelled += more->cancelled;
    sum->oldest_ms = older(sum->oldest_ms, more->oldest_ms);
    sum->vain_ms += more->vain_ms;
    sum->ready += more->ready;
    sum->states += more->states;
    sum->takers = more->takers > sum->takers ? more->takers : sum->takers;
    sum->linked += more->linked;
    sum->in_per_s += more->in_per_s;
    sum->out_per_s += more->out_per_s;
    sum->paused = sum->paused || more->paused;
    sum->draining = sum->draining || more->draining;
}
