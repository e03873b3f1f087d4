// See shards.h: what goes to one shard, or to one after another.
#include "server/shards.h"

#include "base/errors.h"
#include "core/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Which one? ---------------------------------------------------------------------------------

static bool knows(const struct host *h, uint32_t shard, uint64_t id) {
    struct job_info info;
    return core_look_job(h->parts[shard].core, id, &info) == 0;
}

// A job is where its id was given, unless the store was copied into another number of shards since.
uint32_t shards_find(const struct host *h, uint64_t id) {
    uint32_t home = route_of_id(h->shards, id);
    if (knows(h, home, id))
        return home;
    for (uint32_t i = 0; i < h->shards; i++)
        if (i != home && knows(h, i, id))
            return i;
    return home;
}

static uint32_t shard_of(const struct session *s, const struct conn *conn) {
    return (uint32_t)(list_entry(conn, struct presence, conn) - s->presences);
}

// ---- Handing in ---------------------------------------------------------------------------------

// Room that was kept for a push is where it waited for it.
static uint32_t push_route(struct session *s, const struct push *p) {
    struct host *h = s->host;
    uint32_t to = route_of(h->shards, p->stage, p->key, p->once);
    if (to != ROUTE_ANY)
        return to;
    if (p->source.size)
        return route_of_number(h->shards, p->source, p->number);
    if (s->pusher.granted)
        return shard_of(s, s->pusher.conn);
    return h->next_push++ % h->shards;
}

// The numbers of a source that any shard has.
static struct epic_seen source_seen(const struct host *h, mr_bytes source) {
    struct epic_seen seen = { 0 }, more;
    for (uint32_t i = 0; i < h->shards; i++)
        if (core_source_seen(h->parts[i].core, source, &more) == 0)
            epic_seen_add(&seen, &more);
    return seen;
}

bool shards_source_has(const struct host *h, mr_bytes source, uint64_t number) {
    bool seen = false;
    for (uint32_t i = 0; !seen && i < h->shards; i++)
        seen = core_has_seen(h->parts[i].core, source, number);
    return seen;
}

uint64_t shards_source_resume(const struct host *h, mr_bytes source) {
    struct epic_seen seen = source_seen(h, source);
    return epic_seen_resume(&seen);
}

static int find_gap(const struct session *s, const struct push *p) {
    const struct host *h = s->host;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < h->shards; i++)
        err = core_check_gap(h->parts[i].core, &s->presences[i].conn, p->source, p->number);
    return err;
}

// A number that a shard has refused on this connection holds its source in all of them, until one
// has accepted it.
static int check_gaps(const struct session *s, const struct push *p) {
    const struct host *h = s->host;
    if (find_gap(s, p) == 0)
        return 0;
    struct epic_seen seen = source_seen(h, p->source);
    for (uint32_t i = 0; i < h->shards; i++)
        core_fill_gaps(h->parts[i].core, &s->presences[i].conn, p->source, &seen);
    return find_gap(s, p);
}

// A number too far ahead of what is missing would be taken for the proof that that was there. Where
// a source stood when it was looked at last mostly suffices.
static int check_ahead(struct host *h, const struct push *p) {
    uint64_t name = bytes_hash(p->source, 0), *resume = &h->sources[name % HOST_SOURCES].resume;
    bool known = h->sources[name % HOST_SOURCES].name == name;
    if (known && p->number < *resume + SOURCE_WINDOW)
        return 0;
    h->sources[name % HOST_SOURCES].name = name;
    struct epic_seen seen = source_seen(h, p->source);
    *resume = epic_seen_resume(&seen);
    if (p->number < *resume + SOURCE_WINDOW)
        return 0;
    return error_set(MR_EGAP, "%" PRIu64 " is missing, and %" PRIu64 " is too far ahead of it",
                     *resume, p->number);
}

// A repeat goes where the first one went, also if it has another key.
static int route_numbered(struct session *s, const struct push *p, uint32_t *to) {
    const struct host *h = s->host;
    for (uint32_t i = 0; i < h->shards; i++) {
        if (!core_has_seen(h->parts[i].core, p->source, p->number))
            continue;
        *to = i;
        return 0;
    }
    int err = check_gaps(s, p);
    return err < 0 ? err : check_ahead(s->host, p);
}

int shards_route(struct session *s, const struct push *p, uint32_t *out) {
    uint32_t to = push_route(s, p);
    int err = p->source.size ? route_numbered(s, p, &to) : 0;
    if (err == 0)
        *out = to;
    return err;
}

void shards_push_leave(struct session *s) {
    if (s->pusher.conn)
        core_push_leave(s->host->parts[shard_of(s, s->pusher.conn)].core, &s->pusher);
}

int shards_await(struct session *s, uint64_t id, struct outcome *out) {
    uint32_t shard = shard_of_job(s->host, id);
    s->caller = (struct caller){ .conn = &s->presences[shard].conn };
    return core_await(s->host->parts[shard].core, id, &s->caller, out);
}

// An end that cannot be written now is made up for.
void shards_await_leave(struct session *s) {
    (void)core_await_leave(s->host->parts[shard_of(s, s->caller.conn)].core, &s->caller);
}

// ---- Working ------------------------------------------------------------------------------------

static int take_from(struct session *s, struct take *t, uint32_t shard, struct taker *taker,
                     struct grant *out, size_t *out_count) {
    t->conn = &s->presences[shard].conn;
    t->taker = taker;
    return core_take(s->host->parts[shard].core, t, out, out_count);
}

// Without waiting: stage by stage, so that those named first are served first wherever they have
// work, and from the next shard each time.
static int take_some(struct session *s, const struct take *wanted, struct grant *out,
                     size_t *out_count) {
    struct host *h = s->host;
    uint32_t first = h->next_take++ % h->shards;
    size_t count = 0, more = 0, most = wanted->count ? wanted->count : 1, tries = 0;
    size_t most_tries = wanted->stage_count * h->shards;
    uint64_t bytes = 0;
    for (; tries < most_tries && count < most && bytes < LIMIT_TAKEN; tries++, count += more) {
        struct take t = *wanted;
        t.stages = &wanted->stages[tries / h->shards];
        t.stage_count = 1;
        t.count = (uint32_t)(most - count);
        more = 0;
        int err = take_from(s, &t, (first + tries) % h->shards, NULL, out + count, &more);
        if (err < 0 && err != MR_EAGAIN && !count)
            return err;
        for (size_t i = count; i < count + more; i++)
            bytes += out[i].size;
    }
    *out_count = count;
    return count ? 0 : MR_EAGAIN;
}

// In every shard; one that has work after all ends it.
static int take_wait(struct session *s, struct take *t, struct grant *out, size_t *out_count) {
    for (uint32_t i = 0; i < s->host->shards; i++) {
        int err = take_from(s, t, i, &s->presences[i].taker, out, out_count);
        if (err == MR_EAGAIN)
            continue;
        shards_take_leave(s, NULL);
        return err;
    }
    return MR_EAGAIN;
}

int shards_take(struct session *s, struct take *t, bool wait, struct grant *out,
                size_t *out_count) {
    if (s->host->shards == 1)
        return take_from(s, t, 0, wait ? &s->presences[0].taker : NULL, out, out_count);
    int err = core_take_check(s->host->parts[0].core, t);
    if (err == 0)
        err = take_some(s, t, out, out_count);
    return err == MR_EAGAIN && wait ? take_wait(s, t, out, out_count) : err;
}

void shards_take_leave(struct session *s, const struct taker *but) {
    for (uint32_t i = 0; i < s->host->shards; i++) {
        struct taker *taker = &s->presences[i].taker;
        if (taker != but && taker->seat_count)
            core_take_leave(s->host->parts[i].core, taker);
    }
}

// ---- Stages -------------------------------------------------------------------------------------

int shards_act(struct host *h, int (*act)(struct core *, mr_bytes stage), mr_bytes stage) {
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < h->shards; i++)
        err = act(h->parts[i].core, stage);
    return err;
}

// It may be known to some shards only; what is left of it in one keeps it there.
int shards_remove_stage(struct host *h, mr_bytes stage) {
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < h->shards; i++) {
        err = core_stage_remove(h->parts[i].core, stage);
        err = err == MR_EGONE ? 0 : err;
    }
    return err;
}

int shards_set(struct host *h, mr_bytes stage, mr_bytes name, mr_bytes value) {
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < h->shards; i++)
        err = core_set(h->parts[i].core, stage, name, value);
    return err;
}

// Where there are too many the last one stands for all stages: it has no name.
void shards_note_freed(struct host *h, mr_bytes stage, uint64_t shards) {
    uint32_t i = 0;
    while (i < h->freed_count && h->freed[i].stage[0] &&
           !bytes_equal(mr_str(h->freed[i].stage), stage))
        i++;
    if (i == h->freed_count) {
        bool last = i == HOST_FREED - 1;
        h->freed[i].shards = 0;
        snprintf(h->freed[i].stage, sizeof h->freed[i].stage, "%.*s", last ? 0 : (int)stage.size,
                 (const char *)stage.data);
        h->freed_count++;
    }
    h->freed[i].shards |= shards;
}

int shards_note_edge(struct host *h, mr_bytes stage, mr_bytes downstream) {
    struct edge_seen e;
    snprintf(e.stage, sizeof e.stage, "%.*s", (int)stage.size, (const char *)stage.data);
    snprintf(e.downstream, sizeof e.downstream, "%.*s", (int)downstream.size,
             (const char *)downstream.data);
    return buffer_append(&h->edges, &e, sizeof e);
}

// A shard that has not seen an edge tells of it in turn; those that have do not. For want of memory
// it is left for the next turn.
static void share_edges(struct host *h) {
    while (h->edges.size && !h->edges_rest) {
        struct edge_seen e;
        memcpy(&e, h->edges.data, sizeof e);
        for (uint32_t i = 0; i < h->shards; i++)
            h->edges_rest |= core_learn_edge(h->parts[i].core, mr_str(e.stage),
                                             mr_str(e.downstream)) == MR_ENOMEM;
        if (!h->edges_rest)
            buffer_consume(&h->edges, sizeof e);
    }
}

static void wake_all(struct core *core) {
    for (size_t i = 0; i < core_stage_count(core); i++) {
        struct stage_info info;
        core_stage_at(core, i, &info);
        core_wake(core, info.name);
    }
}

// What wakes may free something in turn, and is noted anew.
void shards_wake(struct host *h) {
    struct freed freed;
    share_edges(h);
    while (h->freed_count) {
        freed = h->freed[--h->freed_count];
        for (uint32_t i = 0; i < h->shards; i++) {
            if (!(freed.shards >> i & 1))
                continue;
            if (freed.stage[0])
                core_wake(h->parts[i].core, mr_str(freed.stage));
            else
                wake_all(h->parts[i].core);
        }
    }
}

// ---- Memory -------------------------------------------------------------------------------------

uint64_t shards_steps(const struct host *h) {
    uint64_t steps = 0;
    for (uint32_t i = 0; i < h->shards; i++)
        steps += core_take_steps(h->parts[i].core);
    return steps;
}

uint64_t shards_memory(const struct host *h) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < h->shards; i++)
        bytes += core_memory(h->parts[i].core);
    return bytes;
}

uint64_t shards_live_bytes(const struct host *h) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < h->shards; i++)
        bytes += core_live_bytes(h->parts[i].core);
    return bytes;
}

// Each has its share of what may be used, and of what is.
void shards_tell_memory(const struct host *h, uint64_t outside_bytes) {
    for (uint32_t i = 0; i < h->shards; i++)
        core_tell_memory(h->parts[i].core, outside_bytes / h->shards);
}
