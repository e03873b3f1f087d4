// Random histories of the stream log with all faults of the simulated store, against a naive model:
// a list of what was appended, in order, and how much of it was acknowledged.
//
//     what the last owner found │ what it appended: acknowledged │ not acknowledged
//     ──────────────────────────┴────────────────────────────────┼──────────────────
//                    a new owner finds all of this … ────────────┘ … and perhaps whole groups more
//
// A new owner finds a beginning of that list, without what may be trimmed, with everything that was
// acknowledged, nothing twice and no part of a group. A former owner that goes on appending must
// not acknowledge anything that the new one did not find. No log stops without a cause.
//
// The last test plants mistakes, in the store or in what a log makes of its answers, and expects
// the same histories to find them.
#include "log/log_stream.h"
#include "support/log_support.h"
#include "support/proof.h"
#include "support/sim_stream.h"

enum { STEPS = 120, SEGMENT = 4096, HISTORIES = 2000, HUNTED = 2000 };

struct made {
    uint64_t at, number;
    uint32_t index, count;
};

// What the histories have reached: a proof that reaches nothing proves nothing.
static struct { uint64_t acknowledged, changes, unfinished, refused, trims, lost; } reached;

struct made_list {
    struct made *data;
    size_t count, capacity;
};

// One opened log: what it has appended, and how much of that it has acknowledged.
struct owner {
    struct log *log; // NULL: none
    struct made_list mine;
    size_t acknowledged;
    bool fenced;  // a newer owner has claimed …
    size_t found; // … and found this much of it
    bool refused; // it has noticed that
};

struct world {
    struct sim_store *store;
    struct log_options options;
    uint64_t random, next;
    struct made_list content; // what the newest owner has found
    uint64_t trimmable;       // entries below may be gone
    struct owner now, former;
    bool lost; // the store has lost acknowledged entries
    char finding[400];
};

static uint64_t choose(struct world *w, uint64_t below) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (w->random * UINT64_C(0x2545f4914f6cdd1d) >> 20) % below;
}

static bool fine(const struct world *w) {
    return !w->finding[0];
}

__attribute__((format(printf, 2, 3))) static void find(struct world *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (fine(w))
        vsnprintf(w->finding, sizeof w->finding, format, arguments);
    va_end(arguments);
}

static void list_add(struct made_list *l, struct made m) {
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 64;
        l->data = realloc(l->data, l->capacity * sizeof *l->data);
    }
    l->data[l->count++] = m;
}

// ---- Owners -----------------------------------------------------------------------------------

static void owner_close(struct owner *o) {
    log_close(o->log);
    free(o->mine.data);
    *o = (struct owner){ 0 };
}

// Checks what the log calls durable, and why it has stopped.
static void owner_check(struct world *w, struct owner *o) {
    struct log_state s = look(o->log);
    while (o->acknowledged < o->mine.count && o->mine.data[o->acknowledged].at < s.durable)
        o->acknowledged++;
    if (o->fenced && s.stopped[0] && !o->refused) {
        o->refused = true;
        reached.refused++;
    }
    if (o->fenced && o->acknowledged > o->found)
        find(w, "a former owner has acknowledged an entry that the new owner did not find");
    if (s.stopped[0] && !o->fenced && !w->lost)
        find(w, "stopped without a cause: %s", s.stopped);
}

static int see_made(void *arg, const struct log_seen *seen) {
    struct made m = { .at = seen->at };
    if (seen->head.size != SAMPLE_HEAD)
        return error_set(MR_ECORRUPT, "a head of another size");
    memcpy(&m.number, seen->head.data, 8);
    memcpy(&m.index, (const uint8_t *)seen->head.data + 8, 4);
    memcpy(&m.count, (const uint8_t *)seen->head.data + 12, 4);
    list_add(arg, m);
    return 0;
}

// Compares what was found at opening with what was appended before.
static void found_check(struct world *w, const struct made_list *seen, const struct owner *before) {
    const struct made_list *old = &w->content, *new = &before->mine;
    size_t count = old->count + new->count, first = 0;
    struct made *all = calloc(count + 1, sizeof *all);
    if (old->count)
        memcpy(all, old->data, old->count * sizeof *all);
    if (new->count)
        memcpy(all + old->count, new->data, new->count * sizeof *all);
    while (seen->count && first < count && all[first].at < seen->data[0].at)
        first++;
    size_t end = first + seen->count, needed = old->count + before->acknowledged;
    size_t gone = seen->count ? first : needed;
    if (gone && all[gone - 1].at >= w->trimmable)
        find(w, "entry %llu is missing at the beginning", (unsigned long long)all[gone - 1].number);
    if (seen->count && end > count)
        find(w, "%zu entries more than were appended", end - count);
    for (size_t i = 0; fine(w) && i < seen->count; i++)
        if (memcmp(&seen->data[i], &all[first + i], sizeof *all) != 0)
            find(w, "entry %llu at %llu, where entry %llu at %llu was expected",
                 (unsigned long long)seen->data[i].number, (unsigned long long)seen->data[i].at,
                 (unsigned long long)all[first + i].number, (unsigned long long)all[first + i].at);
    if (seen->count && end < needed)
        find(w, "%zu acknowledged entries are missing", needed - end);
    if (seen->count && seen->data[seen->count - 1].index + 1 != seen->data[seen->count - 1].count)
        find(w, "a part of a group");
    free(all);
}

// Opens until the store lets it; a store that fails now and then does so at last.
static struct log *log_open_and_replay(struct world *w, struct made_list *out) {
    for (int i = 0; i < 1000; i++) {
        struct log *l;
        int err = log_stream_open(sim_store_streams(w->store), 0, &w->options, &l);
        out->count = 0;
        if (err == 0) {
            err = log_replay(l, see_made, out);
            if (err == 0)
                return l;
            log_close(l);
        }
        if (err != MR_ENET && err != MR_EFULL && err != MR_EBUSY) {
            find(w, "does not open: %s", error_text());
            return NULL;
        }
        sim_store_advance(w->store, 500);
    }
    find(w, "does not open: %s", error_text());
    return NULL;
}

// A new owner takes the stream, from one that runs still, was closed, or died.
static void owner_change(struct world *w) {
    struct made_list seen = { 0 };
    struct log *l = log_open_and_replay(w, &seen);
    if (l)
        found_check(w, &seen, &w->now);
    size_t found = 0;
    while (found < w->now.mine.count && seen.count &&
           w->now.mine.data[found].at <= seen.data[seen.count - 1].at)
        found++;
    reached.changes++;
    reached.acknowledged += w->now.acknowledged;
    reached.unfinished += found > w->now.acknowledged;
    w->now.fenced = true;
    w->now.found = found;
    if (w->now.log && l)
        owner_check(w, &w->now);
    owner_close(&w->former);
    w->former = w->now;
    w->now = (struct owner){ .log = l };
    free(w->content.data);
    w->content = seen;
}

static void owner_dies(struct world *w) {
    sim_store_outage(w->store, UINT64_MAX);
    log_close(w->now.log);
    w->now.log = NULL;
    sim_store_outage_end(w->store);
}

// ---- Steps ------------------------------------------------------------------------------------

static void step_append(struct world *w, struct owner *o) {
    uint32_t count = 1 + (uint32_t)choose(w, 4);
    size_t size = choose(w, 8) ? choose(w, 200) : choose(w, 900);
    uint64_t at[4];
    int err = sample_append(o->log, w->next, count, size, (enum room)choose(w, 3), at);
    bool may_fail = err == MR_EFULL || (err == MR_ESTOPPED && (o->fenced || w->lost));
    if (err < 0 && !may_fail)
        find(w, "an append failed: %s", error_text());
    for (uint32_t i = 0; err == 0 && i < count; i++)
        list_add(&o->mine, (struct made){ at[i], w->next + i, i, count });
    w->next += count;
}

static void step_wait(struct world *w, struct owner *o) {
    if (!o->mine.count)
        return;
    int err = log_wait(o->log, o->mine.data[choose(w, o->mine.count)].at);
    if (err < 0 && !(err == MR_ESTOPPED && (o->fenced || w->lost)))
        find(w, "a wait failed: %s", error_text());
}

// Everything that was acknowledged before may go.
static void step_trim(struct world *w, struct owner *o) {
    if (!o->acknowledged)
        return;
    uint64_t at = o->mine.data[choose(w, o->acknowledged)].at;
    if (log_trim(o->log, at) != 0 || o->fenced || at <= w->trimmable)
        return;
    w->trimmable = at;
    reached.trims++;
}

static void step_read(struct world *w, struct owner *o) {
    const struct made_list *from = choose(w, 2) ? &w->content : &o->mine;
    if (!from->count || o->fenced)
        return;
    const struct made *m = &from->data[choose(w, from->count)];
    bool right;
    int err = sample_read(o->log, m->at, m->number, &right);
    bool gone = err == MR_EGONE && m->at < w->trimmable;
    if (!right && !gone && err != MR_ENET)
        find(w, "entry %llu is not read: %s", (unsigned long long)m->number,
             err < 0 ? error_text() : "it is another one");
}

static void step_scan(struct world *w, struct owner *o) {
    struct made_list seen = { 0 };
    uint64_t next = look(o->log).head;
    int err = o->fenced ? 0 : log_scan(o->log, next, choose(w, 5000), see_made, &seen, &next);
    if (err < 0 && err != MR_ENET)
        find(w, "a scan failed: %s", error_text());
    for (size_t i = 1; i < seen.count; i++)
        if (seen.data[i].number <= seen.data[i - 1].number)
            find(w, "a scan found entry %llu twice", (unsigned long long)seen.data[i].number);
    free(seen.data);
}

static void step_store(struct world *w) {
    switch (choose(w, 4)) {
    case 0:
        sim_store_failover(w->store, 0);
        break;
    case 1:
        sim_store_outage(w->store, choose(w, 20000));
        break;
    case 2:
        sim_store_let_late(w->store);
        break;
    default:
        sim_store_advance(w->store, choose(w, 4000));
    }
}

static void step_owner(struct world *w) {
    switch (choose(w, 3)) {
    case 0:
        log_close(w->now.log);
        w->now.log = NULL;
        break;
    case 1:
        owner_dies(w);
        break;
    default: // the old one does not notice
        break;
    }
    owner_change(w);
}

static void step(struct world *w) {
    struct owner *o = w->former.log && choose(w, 5) == 0 ? &w->former : &w->now;
    uint64_t kind = choose(w, 40);
    if (kind < 16)
        step_append(w, o);
    else if (kind < 24)
        log_flush(o->log, choose(w, 2));
    else if (kind < 29)
        step_wait(w, o);
    else if (kind < 31)
        step_trim(w, o);
    else if (kind < 34)
        step_read(w, o);
    else if (kind < 36)
        step_scan(w, o);
    else if (kind < 39)
        step_store(w);
    else
        step_owner(w);
    if (fine(w) && w->now.log)
        owner_check(w, &w->now);
    if (fine(w) && w->former.log)
        owner_check(w, &w->former);
}

// F38: in the end the store loses the last that it had acknowledged, and the owner must notice.
static void lose_the_tail(struct world *w) {
    struct owner *o = &w->now;
    step_append(w, o);
    step_wait(w, o);
    owner_check(w, o);
    if (!fine(w) || !o->acknowledged)
        return;
    uint64_t last = o->mine.data[o->acknowledged - 1].at, at;
    sim_store_failover(w->store, 1 + (uint32_t)choose(w, 2));
    if (sim_store_batch(w->store, 0, last))
        return; // it was a trim or a claim that was lost
    w->lost = true;
    reached.lost++;
    int err = sample_append(o->log, w->next, 1, 10, ROOM_COMMIT, &at);
    if (err == 0)
        err = log_wait(o->log, at);
    if (err != MR_ESTOPPED || !strstr(look(o->log).stopped, "has lost acknowledged entries"))
        find(w, "the loss of acknowledged entries was not noticed: %s", look(o->log).stopped);
}

// ---- Histories --------------------------------------------------------------------------------

static void world_begin(struct world *w, uint64_t seed, enum sim_mistake mistake) {
    *w = (struct world){ .store = sim_store_create(seed),
                         .random = (seed + 1) * UINT64_C(0xd1342543de82ef95) | 1 };
    w->options = (struct log_options){ .segment_size = SEGMENT,
                                       .inline_writer = true,
                                       .stream = { .window_bytes = choose(w, 6000) + 1,
                                                   .clock = sim_store_clock(w->store) } };
    sim_store_make(w->store, mistake);
    for (int i = 0; i < SIM_RIVAL; i++) // owners are changed by the test itself
        if (choose(w, 3))
            sim_store_chance(w->store, (enum sim_fault)i, (uint32_t)choose(w, 60));
    owner_change(w);
}

static void world_finish(struct world *w) {
    sim_store_outage_end(w->store);
    owner_close(&w->now);
    owner_close(&w->former);
    free(w->content.data);
    sim_store_destroy(w->store);
}

// Everything is read once more, when nothing fails any more.
static void read_all(struct world *w) {
    sim_store_outage_end(w->store);
    for (int i = 0; i < SIM_FAULTS; i++)
        sim_store_chance(w->store, (enum sim_fault)i, 0);
    step_wait(w, &w->now);
    owner_check(w, &w->now);
    sim_store_let_late(w->store);
    owner_change(w);
    for (size_t i = 0; fine(w) && i < w->content.count; i++) {
        bool right;
        const struct made *m = &w->content.data[i];
        int err = sample_read(w->now.log, m->at, m->number, &right);
        if (!right)
            find(w, "entry %llu is not there: %s", (unsigned long long)m->number,
                 err < 0 ? error_text() : "it is another one");
    }
}

// Runs a history; false: `out` has what was found.
static bool history_run(uint64_t seed, enum sim_mistake mistake, char *out, size_t size) {
    struct world w;
    world_begin(&w, seed, mistake);
    for (int i = 0; fine(&w) && i < STEPS; i++)
        step(&w);
    if (fine(&w))
        read_all(&w);
    if (fine(&w) && choose(&w, 4) == 0)
        lose_the_tail(&w);
    snprintf(out, size, "%s", w.finding);
    world_finish(&w);
    return !out[0];
}

static void histories_with_all_faults(void **state) {
    (void)state;
    uint64_t only = proof_seed(0), until_ms = proof_until_ms(0, 30);
    for (uint64_t seed = only ? only : 1, end = seed + (only ? 1 : HISTORIES);
         seed < end || (!only && monotonic_ms() < until_ms); seed++) {
        char finding[400];
        if (!history_run(seed, SIM_SOUND, finding, sizeof finding))
            fail_msg("MILLRACE_SEED=%llu: %s", (unsigned long long)seed, finding);
    }
    print_message("%llu entries acknowledged, %llu owners, %llu found unacknowledged entries, %llu "
                  "former owners refused, %llu trims, %llu losses noticed\n",
                  (unsigned long long)reached.acknowledged, (unsigned long long)reached.changes,
                  (unsigned long long)reached.unfinished, (unsigned long long)reached.refused,
                  (unsigned long long)reached.trims, (unsigned long long)reached.lost);
    assert_true(only || (reached.unfinished && reached.refused && reached.trims && reached.lost));
}

static void expect_found(enum sim_mistake mistake, const char *text) {
    char finding[400] = "";
    for (uint64_t seed = 1; seed < HUNTED; seed++)
        if (!history_run(seed, mistake, finding, sizeof finding) && strstr(finding, text)) {
            print_message("found by history %llu: %s\n", (unsigned long long)seed, finding);
            return;
        }
    fail_msg("not found in %d histories; the last other finding: %s", HUNTED, finding);
}

// Appends are compared with the tail, but not with the epoch: an append that the store carries out
// late, or that a former owner sends, comes in after the claim.
static void a_missing_fence_is_found(void **state) {
    (void)state;
    expect_found(SIM_NO_FENCE, "a former owner has acknowledged");
}

// A key (shard, position) instead of a fence: a former owner's append is refused while a batch has
// its position, and comes in once that is trimmed. The former owner then acknowledges it, or, if
// the store carried it out late, the next owner finds an entry in front of the others.
static void a_fence_by_key_is_found(void **state) {
    (void)state;
    expect_found(SIM_KEY_FENCE, "a former owner has acknowledged");
}

// The append had not happened, its entries were acknowledged, and the next owner lacks them.
static void a_doubt_taken_for_a_yes_is_found(void **state) {
    (void)state;
    expect_found(SIM_DOUBT_IS_YES, "missing");
}

// The append had happened, and is sent again: a store with a fence refuses that, because the tail
// is another; so the log stops although no other log has claimed its stream.
static void a_doubt_taken_for_a_no_is_found(void **state) {
    (void)state;
    expect_found(SIM_DOUBT_IS_NO, "stopped without a cause");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histories_with_all_faults),
        cmocka_unit_test(a_missing_fence_is_found),
        cmocka_unit_test(a_fence_by_key_is_found),
        cmocka_unit_test(a_doubt_taken_for_a_yes_is_found),
        cmocka_unit_test(a_doubt_taken_for_a_no_is_found),
    };
    return cmocka_run_group_tests_name("log_stream_random", tests, NULL, NULL);
}
