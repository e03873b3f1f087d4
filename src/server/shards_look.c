// See shards.h: what is put together of all shards.
#include "server/shards.h"

#include "base/errors.h"
#include "core/record.h"

#include <inttypes.h>
#include <string.h>

// ---- Stages -------------------------------------------------------------------------------------

size_t shards_stage_places(const struct host *h) {
    size_t places = 0;
    for (uint32_t i = 0; i < h->shards; i++)
        places += core_stage_count(h->parts[i].core);
    return places;
}

int shards_stage_place(const struct host *h, mr_bytes stage, size_t *out) {
    size_t before = 0, index = 0;
    int err = MR_EGONE;
    for (uint32_t i = 0; err == MR_EGONE && i < h->shards; i++) {
        err = core_stage_index(h->parts[i].core, stage, &index);
        before += err == MR_EGONE ? core_stage_count(h->parts[i].core) : 0;
    }
    if (err == 0)
        *out = before + index;
    return err;
}

// What all shards have counted; `sum` has what was gathered so far, in `room`.
static void add_counts(const struct histogram *more, struct histogram *room,
                       const struct histogram **sum) {
    if (!more)
        return;
    if (*sum)
        histogram_merge(room, more);
    else
        *room = *more;
    *sum = room;
}

static int sum_stage(struct host *h, mr_bytes stage, struct stage_info *out) {
    struct stage_info sum, info;
    const struct histogram *waits = NULL, *runs = NULL;
    bool known = false;
    int err = 0;
    for (uint32_t i = 0; i < h->shards; i++) {
        err = core_look_stage(h->parts[i].core, stage, &info);
        if (err < 0)
            continue;
        add_counts(info.waits, &h->sums->waits, &waits);
        add_counts(info.runs, &h->sums->runs, &runs);
        if (known)
            stage_info_add(&sum, &info);
        else
            sum = info;
        known = true;
    }
    if (!known)
        return err;
    sum.waits = waits;
    sum.runs = runs;
    sum.waiting += sum.linked; // where they wait is nobody's business
    *out = sum;
    return 0;
}

int shards_look_stage(struct host *h, mr_bytes stage, struct stage_info *out) {
    return h->shards == 1 ? core_look_stage(h->parts[0].core, stage, out)
                          : sum_stage(h, stage, out);
}

// What one shard has seen the others are told: any that knows the stage will do.
size_t shards_stage_feeds(const struct host *h, mr_bytes stage, mr_bytes out[CORE_EDGES]) {
    size_t count = 0;
    for (uint32_t i = 0; !count && i < h->shards; i++)
        count = core_stage_feeds(h->parts[i].core, stage, out);
    return count;
}

bool shards_stage_at(struct host *h, size_t place, struct stage_info *out) {
    size_t index = place, first = 0;
    uint32_t i = 0;
    for (; index >= core_stage_count(h->parts[i].core); i++)
        index -= core_stage_count(h->parts[i].core);
    core_stage_at(h->parts[i].core, index, out);
    if (h->shards == 1)
        return true;
    (void)shards_stage_place(h, out->name, &first); // there is one
    return first == place && sum_stage(h, out->name, out) == 0;
}

// The deepest of all are among the deepest of each: they are merged from the end.
static size_t merge_channels(struct channel_info *all, size_t count,
                             const struct channel_info *more, size_t more_count, size_t max) {
    size_t last = count + more_count < max ? count + more_count : max, a = 0, b = 0;
    while (a + b < last) // how many of either come first
        if (b == more_count || (a < count && all[a].depth >= more[b].depth))
            a++;
        else
            b++;
    for (size_t to = last; b; to--)
        if (a && all[a - 1].depth < more[b - 1].depth)
            all[to - 1] = all[--a];
        else
            all[to - 1] = more[--b];
    return last;
}

size_t shards_top_channels(struct host *h, mr_bytes stage, struct channel_info *out, size_t max) {
    size_t count = core_top_channels(h->parts[0].core, stage, out, max);
    for (uint32_t i = 1; i < h->shards; i++) {
        struct channel_info *more = out + max;
        count = merge_channels(out, count, more,
                               core_top_channels(h->parts[i].core, stage, more, max), max);
    }
    return count;
}

// ---- Jobs ---------------------------------------------------------------------------------------

int shards_look_job(const struct host *h, uint64_t id, struct job_info *out) {
    return core_look_job(core_of_job(h, id), id, out);
}

// Where those of a key are the stage may be unknown, and known elsewhere.
int shards_walk_one(const struct host *h, uint32_t shard, const struct job_walk *walk,
                    int (*each)(void *, const struct job_info *), void *arg) {
    size_t place;
    int err = core_walk(h->parts[shard].core, walk, each, arg);
    return err == MR_EGONE && !walk->from ? shards_stage_place(h, walk->stage, &place) : err;
}

// Those of a key are in one shard; the others follow one another, from that of `from` on.
int shards_walk(const struct host *h, const struct job_walk *walk,
                int (*each)(void *, const struct job_info *), void *arg) {
    uint32_t only = route_of(h->shards, walk->stage, walk->key, (mr_bytes){ 0 });
    if (only != ROUTE_ANY)
        return shards_walk_one(h, only, walk, each, arg);
    struct job_walk w = *walk;
    bool known = false;
    int err = 0;
    for (uint32_t i = w.from ? shard_of_job(h, w.from) : 0; i < h->shards; i++) {
        err = core_walk(h->parts[i].core, &w, each, arg);
        if (err && (err != MR_EGONE || w.from))
            return err;
        known = known || err == 0;
        w.from = 0;
    }
    return known ? 0 : err;
}

// ---- Epics --------------------------------------------------------------------------------------

static void add_epic(struct epic_info *sum, const struct epic_info *e) {
    sum->accepted += e->accepted;
    sum->waiting += e->waiting;
    sum->running += e->running;
    sum->done += e->done;
    sum->dead += e->dead;
    sum->cancelled += e->cancelled;
    sum->expired += e->expired;
    sum->ended = sum->ended || e->ended;
    sum->total = e->total > sum->total ? e->total : sum->total;
    sum->expected = e->expected > sum->expected ? e->expected : sum->expected;
}

int shards_epic(const struct host *h, mr_bytes name, struct epic_info *out) {
    if (h->shards == 1)
        return core_epic(h->parts[0].core, name, out);
    struct epic_info sum = { 0 }, e;
    struct epic_seen seen = { 0 }, more;
    bool known = false;
    int err = 0;
    for (uint32_t i = 0; i < h->shards; i++) {
        err = core_epic(h->parts[i].core, name, &e);
        if (err < 0 || (err = core_epic_seen(h->parts[i].core, name, &more)) < 0)
            continue;
        if (e.stage.size && (more.highest >= seen.highest || !sum.stage.size))
            sum.stage = e.stage; // that of the latest push
        add_epic(&sum, &e);
        epic_seen_add(&seen, &more);
        known = true;
    }
    if (!known)
        return err;
    sum.resume = epic_seen_resume(&seen);
    sum.over = sum.ended && sum.resume > sum.total && !sum.waiting && !sum.running;
    *out = sum;
    return 0;
}

int shards_epic_end(const struct host *h, mr_bytes name, uint64_t total) {
    struct epic_seen seen = { 0 }, more;
    for (uint32_t i = 0; i < h->shards; i++)
        if (core_epic_seen(h->parts[i].core, name, &more) == 0)
            epic_seen_add(&seen, &more);
    int err = epic_check_end(&seen, total);
    for (uint32_t i = 0; err == 0 && i < h->shards; i++)
        err = core_epic_end(h->parts[i].core, name, total);
    return err;
}

// In all of them, so that whoever waits is told. What is too far ahead is so for all together.
int shards_epic_skip(const struct host *h, mr_bytes name, uint64_t number) {
    struct epic_info e = { .resume = 1 }; // of one that is not known
    (void)shards_epic(h, name, &e);
    if (h->shards > 1 && number >= e.resume + SOURCE_WINDOW)
        return error_set(MR_EGAP, "%" PRIu64 " is missing, and %" PRIu64 " is too far ahead of it",
                         e.resume, number);
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < h->shards; i++)
        err = core_epic_skip(h->parts[i].core, name, number);
    return err;
}

void shards_epic_expect(const struct host *h, mr_bytes name, uint64_t total) {
    for (uint32_t i = 0; i < h->shards; i++)
        core_epic_expect(h->parts[i].core, name, total);
}

int shards_epic_drop(struct host *h, mr_bytes name) {
    bool dropped = false;
    memset(h->sources, 0, sizeof h->sources); // its numbers begin anew
    int err = 0;
    for (uint32_t i = 0; i < h->shards; i++) {
        err = core_epic_drop(h->parts[i].core, name);
        if (err < 0 && err != MR_EGONE)
            return err;
        dropped = dropped || err == 0;
    }
    return dropped ? 0 : err;
}

// Of `sum` jobs that are left some shard must have lost its share of those that are too many before
// all have: from that on it is looked at again.
static int64_t left_here(const struct epic_info *here, uint64_t too_many, uint32_t shards) {
    uint64_t unended = here->waiting + here->running, share = (too_many + shards - 1) / shards;
    return unended > share ? (int64_t)(unended - share) : 0;
}

int shards_epic_watch(struct session *s, mr_bytes name, int64_t left) {
    const struct host *h = s->host;
    struct epic_info sum, here;
    int err = shards_epic(h, name, &sum);
    uint64_t unended = err < 0 ? 0 : sum.waiting + sum.running;
    for (uint32_t i = 0; err == 0 && i < h->shards; i++) {
        struct core *core = h->parts[i].core;
        if (core_epic(core, name, &here) < 0)
            continue;
        int64_t wanted = left < 0 || h->shards == 1
                             ? left
                             : left_here(&here, unended - (uint64_t)left, h->shards);
        err = core_epic_watch(core, name, wanted, &s->presences[i].watcher);
    }
    return err;
}

void shards_epic_unwatch(struct session *s) {
    for (uint32_t i = 0; i < s->host->shards; i++)
        core_epic_unwatch(&s->presences[i].watcher);
}

// An epic is shown by the first shard that knows it.
struct epic_walk {
    const struct host *host;
    uint32_t shard;
    int (*each)(void *, mr_bytes name, const struct epic_info *);
    void *arg;
};

static int show_epic(void *arg, mr_bytes name, const struct epic_info *info) {
    const struct epic_walk *w = arg;
    struct epic_info e = *info;
    for (uint32_t i = 0; i < w->shard; i++)
        if (core_epic(w->host->parts[i].core, name, &e) == 0)
            return 0;
    int err = shards_epic(w->host, name, &e);
    return err < 0 ? err : w->each(w->arg, name, &e);
}

int shards_each_epic(const struct host *h, mr_bytes from,
                     int (*each)(void *, mr_bytes name, const struct epic_info *), void *arg) {
    if (h->shards == 1)
        return core_each_epic(h->parts[0].core, from, each, arg);
    struct epic_walk w = { .host = h, .each = each, .arg = arg };
    struct epic_info e;
    while (from.size && w.shard < h->shards - 1 &&
           core_epic(h->parts[w.shard].core, from, &e) == MR_EGONE)
        w.shard++;
    int stop = core_each_epic(h->parts[w.shard].core, from, show_epic, &w);
    for (w.shard++; !stop && w.shard < h->shards; w.shard++)
        stop = core_each_epic(h->parts[w.shard].core, (mr_bytes){ 0 }, show_epic, &w);
    return stop;
}
