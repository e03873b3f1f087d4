// See shards.h: the jobs of all shards in one list.
//
// Each shard lists its jobs in an order of its own. They are put together oldest first, as far as
// that order allows: a job's rank is the latest instant of its own and of all that stand before it
// in its shard, and the list is sorted by rank, then by shard. So it has one order, which goes on
// behind any job of it.
//
// Where a page has ended in each shard is remembered for the latest pages: the next one then costs
// as much as the first. If it is not, the jobs before it are looked at again.
#include "server/shards.h"

#include "base/errors.h"
#include "base/mem.h"

#include <inttypes.h>

struct row {
    uint64_t rank_ms;
    struct job_info job;
};

struct part_list {
    uint64_t from, rank_ms; // the last job that was shown, or skipped, and its rank; 0: none
    uint32_t count, next;
    struct row *rows;
};

struct listing {
    struct host *host;
    const struct job_walk *walk;
    struct row *rows; // of all parts
    struct part_list parts[SHARDS_MOST];
};

// ---- Where pages have ended ---------------------------------------------------------------------

static uint64_t name_of(const struct job_walk *w) {
    return bytes_hash(w->stage, (uint64_t)w->status * 2 + w->parked);
}

static struct list_place *place_find(const struct host *h, uint64_t list, uint64_t last) {
    for (uint32_t i = 0; i < HOST_PLACES; i++)
        if (h->places[i].last == last && h->places[i].list == list)
            return &h->places[i];
    return NULL;
}

static void place_keep(const struct listing *l, uint64_t last) {
    struct host *h = l->host;
    uint64_t list = name_of(l->walk);
    struct list_place *p = place_find(h, list, last);
    if (!p)
        p = &h->places[h->next_place++ % HOST_PLACES];
    p->list = list;
    p->last = last;
    for (uint32_t i = 0; i < h->shards; i++) {
        p->from[i] = l->parts[i].from;
        p->rank_ms[i] = l->parts[i].rank_ms;
    }
}

// ---- Gathering ----------------------------------------------------------------------------------

// What is skipped: up to a job, or all that stand before a rank of a shard.
struct gathering {
    struct listing *listing;
    uint32_t shard, most, looked;
    uint64_t now_ms, rank_ms;
    uint64_t until_id;
    const struct part_list *before; // NULL: none
};

static bool is_skipped(struct gathering *g, const struct job_info *job) {
    const struct part_list *parts = g->listing->parts;
    if (g->until_id) {
        g->until_id = g->until_id == job->id ? 0 : g->until_id;
        return true;
    }
    if (!g->before)
        return false;
    return g->rank_ms < g->before->rank_ms ||
           (g->rank_ms == g->before->rank_ms && &parts[g->shard] < g->before);
}

static int gather_one(void *arg, const struct job_info *job) {
    struct gathering *g = arg;
    struct part_list *part = &g->listing->parts[g->shard];
    uint64_t at_ms = g->now_ms - (uint64_t)job->age_ms;
    g->rank_ms = at_ms > g->rank_ms ? at_ms : g->rank_ms;
    if (is_skipped(g, job)) {
        part->from = job->id;
        part->rank_ms = g->rank_ms;
        return ++g->looked == LIMIT_LOOKED;
    }
    part->rows[part->count++] = (struct row){ .rank_ms = g->rank_ms, .job = *job };
    return part->count == g->most;
}

static struct gathering gathering_of(struct listing *l, uint32_t shard) {
    struct part_list *part = &l->parts[shard];
    part->rows = l->rows + (size_t)shard * l->walk->most;
    part->count = 0;
    return (struct gathering){ .listing = l,
                               .shard = shard,
                               .most = l->walk->most,
                               .now_ms = core_now(l->host->parts[shard].core),
                               .rank_ms = part->rank_ms };
}

static int walk_on(struct gathering *g, uint64_t from, uint32_t most) {
    struct job_walk w = *g->listing->walk;
    w.from = from;
    w.most = most;
    int stop = core_walk(g->listing->host->parts[g->shard].core, &w, gather_one, g);
    return stop > 0 ? 0 : stop;
}

static int gather_behind(struct gathering *g, uint64_t from) {
    return walk_on(g, from, g->most);
}

// From the first on, but for what is skipped.
static int gather_skipping(struct gathering *g) {
    g->rank_ms = 0;
    int err = walk_on(g, 0, LIMIT_LOOKED);
    if (err < 0 || (!g->until_id && g->looked < LIMIT_LOOKED))
        return err;
    return error_set(MR_EGONE, "job %" PRIu64 " is not among these any more: begin again",
                     g->listing->walk->from);
}

// A shard that does not know the stage has none of these.
static int gather_first(struct listing *l) {
    bool known = false;
    for (uint32_t i = 0; i < l->host->shards; i++) {
        struct gathering g = gathering_of(l, i);
        int err = gather_behind(&g, 0);
        if (err < 0 && err != MR_EGONE)
            return err;
        known = known || err == 0;
    }
    return known ? 0 : MR_EGONE;
}

// The job up to which the page before went here may have moved on since; then the rank tells.
static int gather_other(struct listing *l, uint32_t shard, uint32_t home, bool remembered) {
    struct gathering g = gathering_of(l, shard);
    int err = remembered ? gather_behind(&g, l->parts[shard].from) : MR_EGONE;
    if (err == MR_EGONE) {
        g.before = &l->parts[home];
        err = gather_skipping(&g);
    }
    bool unknown = err == MR_EGONE && !g.looked; // of the stage nothing is here
    return unknown ? 0 : err;
}

static int gather_next(struct listing *l) {
    const struct host *h = l->host;
    const struct list_place *place = place_find(h, name_of(l->walk), l->walk->from);
    uint32_t home = shard_of_job(h, l->walk->from);
    for (uint32_t i = 0; place && i < h->shards; i++)
        l->parts[i] = (struct part_list){ .from = place->from[i], .rank_ms = place->rank_ms[i] };
    struct gathering g = gathering_of(l, home);
    g.until_id = place ? 0 : l->walk->from;
    int err = place ? gather_behind(&g, l->walk->from) : gather_skipping(&g);
    for (uint32_t i = 0; err == 0 && i < h->shards; i++)
        err = i == home ? 0 : gather_other(l, i, home, place);
    return err;
}

// ---- Showing ------------------------------------------------------------------------------------

static struct part_list *next_part(struct listing *l) {
    struct part_list *first = NULL;
    for (struct part_list *p = l->parts; p < l->parts + l->host->shards; p++)
        if (p->next < p->count &&
            (!first || p->rows[p->next].rank_ms < first->rows[first->next].rank_ms))
            first = p;
    return first;
}

static int show(struct listing *l, int (*each)(void *, const struct job_info *), void *arg) {
    struct part_list *p;
    uint32_t shown = 0;
    uint64_t last = l->walk->from;
    int stop = 0;
    for (; !stop && shown < l->walk->most && (p = next_part(l)); shown++) {
        const struct row *row = &p->rows[p->next++];
        last = p->from = row->job.id;
        p->rank_ms = row->rank_ms;
        stop = each(arg, &row->job);
    }
    if (shown)
        place_keep(l, last);
    return stop;
}

int shards_list(struct host *h, const struct job_walk *walk,
                int (*each)(void *, const struct job_info *), void *arg) {
    uint32_t only = route_of(h->shards, walk->stage, walk->key, (mr_bytes){ 0 });
    if (only != ROUTE_ANY)
        return shards_walk_one(h, only, walk, each, arg);
    if (!walk->most)
        return 0;
    struct listing l = { .host = h, .walk = walk };
    l.rows = mem_alloc((size_t)h->shards * walk->most * sizeof *l.rows);
    if (!l.rows)
        return error_set(MR_ENOMEM, "no memory for a list of %u jobs", walk->most);
    int err = walk->from ? gather_next(&l) : gather_first(&l);
    int stop = err < 0 ? err : show(&l, each, arg);
    mem_free(l.rows);
    return stop;
}
