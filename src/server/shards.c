// See shards.h.
#include "server/shards.h"

#include "base/errors.h"

#include <stdio.h>
#include <string.h>

// ---- Finding a shard ----------------------------------------------------------------------------

static bool knows(const struct host *h, uint32_t shard, uint64_t id) {
    struct job_info info;
    return core_look_job(own_part(h, shard)->core, id, &info) == 0;
}

// The id of a job names its shard, unless the store was copied into another number of shards.
uint32_t shards_find(const struct host *h, uint64_t id) {
    uint32_t home = route_of_id(h->shards, id);
    if (home < h->first || home >= h->end)
        home = h->first; // if the job exists, another loop has it
    if (knows(h, home, id))
        return home;
    for (uint32_t i = h->first; i < h->end; i++)
        if (i != home && knows(h, i, id))
            return i;
    return home;
}

static uint32_t shard_of(const struct session *s, const struct conn *conn) {
    return s->host->first + (uint32_t)(list_entry(conn, struct shard_conn, conn) - s->shard_conns);
}

// ---- Handing in ---------------------------------------------------------------------------------

void shards_push_leave(struct session *s) {
    if (s->pusher.conn)
        core_push_leave(s->host->parts[shard_of(s, s->pusher.conn)].core, &s->pusher);
}

int shards_await(struct session *s, uint64_t id, struct outcome *out) {
    uint32_t shard = shard_of_job(s->host, id);
    s->caller = (struct caller){ .conn = &shard_conn_at(s, shard)->conn };
    return core_await(s->host->parts[shard].core, id, &s->caller, out);
}

// If the end cannot be written now, the core does so later.
void shards_await_leave(struct session *s) {
    (void)core_await_leave(s->host->parts[shard_of(s, s->caller.conn)].core, &s->caller);
}

// ---- Working ------------------------------------------------------------------------------------

static int take_from(struct session *s, struct take *t, uint32_t shard, struct taker *taker,
                     struct grant *out, size_t *out_count) {
    t->conn = &shard_conn_at(s, shard)->conn;
    t->taker = taker;
    return core_take(s->host->parts[shard].core, t, out, out_count);
}

// Takes without waiting, stage by stage in the given order, whichever shard they are in.
static int take_some(struct session *s, const struct take *wanted, struct grant *out,
                     size_t *out_count) {
    uint32_t shards = s->host->shards;
    size_t count = 0, more = 0, most = wanted->count ? wanted->count : 1;
    uint64_t bytes = 0;
    for (size_t i = 0; i < wanted->stage_count && count < most && bytes < LIMIT_TAKEN; i++) {
        struct take t = *wanted;
        t.stages = &wanted->stages[i];
        t.stage_count = 1;
        t.count = (uint32_t)(most - count);
        more = 0;
        int err = take_from(s, &t, route_of(shards, t.stages[0]), NULL, out + count, &more);
        if (err < 0 && err != MR_EAGAIN && !count)
            return err;
        for (size_t end = count + more; count < end; count++)
            bytes += out[count].size;
    }
    *out_count = count;
    return count ? 0 : MR_EAGAIN;
}

// The named stages that are in one shard.
static size_t stages_of(const struct take *t, uint32_t shard, uint32_t shards,
                        mr_bytes out[TAKE_STAGES_MOST]) {
    size_t count = 0;
    for (size_t i = 0; i < t->stage_count; i++)
        if (route_of(shards, t->stages[i]) == shard)
            out[count++] = t->stages[i];
    return count;
}

// Waits in every shard that has one of the stages; stops if one of them has a job after all.
static int shards_take_wait(struct session *s, const struct take *wanted, struct grant *out,
                            size_t *out_count) {
    for (uint32_t i = s->host->first; i < s->host->end; i++) {
        mr_bytes here[TAKE_STAGES_MOST];
        struct take t = *wanted;
        t.stage_count = stages_of(wanted, i, s->host->shards, here);
        t.stages = here;
        if (!t.stage_count)
            continue;
        int err = take_from(s, &t, i, &shard_conn_at(s, i)->taker, out, out_count);
        if (err == MR_EAGAIN)
            continue;
        shards_take_leave(s, NULL);
        return err;
    }
    return MR_EAGAIN;
}

int shards_take(struct session *s, struct take *t, bool wait, struct grant *out,
                size_t *out_count) {
    if (s->host->end - s->host->first == 1)
        return take_from(s, t, s->host->first, wait ? &s->shard_conns[0].taker : NULL, out,
                         out_count);
    int err = core_take_check(s->host->parts[s->host->first].core, t);
    if (err == 0)
        err = take_some(s, t, out, out_count);
    return err == MR_EAGAIN && wait ? shards_take_wait(s, t, out, out_count) : err;
}

// A take of several loops: it is given something only if no other loop was faster.
int shards_take_reserved(struct session *s, const struct take *wanted) {
    int err = core_take_check(s->host->parts[s->host->first].core, wanted);
    for (uint32_t i = s->host->first; err == 0 && i < s->host->end; i++) {
        mr_bytes here[TAKE_STAGES_MOST];
        struct take t = *wanted;
        t.stage_count = stages_of(wanted, i, s->host->shards, here);
        t.stages = here;
        t.conn = &shard_conn_at(s, i)->conn;
        t.taker = &shard_conn_at(s, i)->taker;
        if (t.stage_count && take_waits(s))
            err = core_take_wait(s->host->parts[i].core, &t);
    }
    return err;
}

void shards_take_leave(struct session *s, const struct taker *but) {
    for (uint32_t i = s->host->first; i < s->host->end; i++) {
        struct taker *taker = &shard_conn_at(s, i)->taker;
        if (taker != but && taker->entry_count)
            core_take_leave(s->host->parts[i].core, taker);
    }
}

// ---- Stages -------------------------------------------------------------------------------------

size_t shards_stage_places(const struct host *h) {
    size_t places = 0;
    for (uint32_t i = h->first; i < h->end; i++)
        places += core_stage_places(h->parts[i].core);
    return places;
}

int shards_stage_place(const struct host *h, mr_bytes stage, size_t *out) {
    uint32_t home = route_of(h->shards, stage);
    if (home < h->first || home >= h->end)
        return MR_EGONE; // it is in another loop
    size_t before = 0, index = 0;
    int err = core_stage_place(h->parts[home].core, stage, &index);
    for (uint32_t i = h->first; i < home; i++)
        before += core_stage_places(h->parts[i].core);
    if (err == 0)
        *out = before + index;
    return err;
}

// Emits that are still in transit to the stage count as waiting.
static void add_linked(const struct host *h, struct stage_info *info) {
    for (uint32_t i = h->first; h->shards > 1 && i < h->end; i++)
        info->waiting += core_linked(h->parts[i].core, info->name);
}

mr_bytes shards_stage_name(const struct host *h, size_t place) {
    uint32_t i = h->first;
    for (; place >= core_stage_places(h->parts[i].core); i++)
        place -= core_stage_places(h->parts[i].core);
    mr_bytes name = core_stage_name(h->parts[i].core, place);
    return name.size && route_of(h->shards, name) == i ? name : (mr_bytes){ 0 };
}

int shards_look_stage(struct host *h, mr_bytes stage, struct stage_info *out) {
    int err = core_look_stage(core_of_stage(h, stage), stage, out);
    if (err == 0)
        add_linked(h, out);
    return err;
}

int shards_remove_stage(struct host *h, mr_bytes stage) {
    for (uint32_t i = h->first; i < h->end; i++)
        if (core_linked(h->parts[i].core, stage))
            return error_set(MR_EINVAL,
                             "stage %.*s is not empty: emitted jobs are in transit to it",
                             (int)stage.size, (const char *)stage.data);
    return core_stage_remove(core_of_stage(h, stage), stage);
}

// ---- Jobs and epics -----------------------------------------------------------------------------

int shards_look_job(const struct host *h, uint64_t id, struct job_info *out) {
    if (h->first == h->end)
        return MR_EGONE; // it has no shards: all jobs are in other loops
    return core_look_job(core_of_job(h, id), id, out);
}

int shards_walk(const struct host *h, const struct job_walk *walk,
                int (*each)(void *, const struct job_info *), void *arg) {
    return core_walk(core_of_stage(h, walk->stage), walk, each, arg);
}

int shards_epic_watch(struct session *s, mr_bytes stage, mr_bytes name, int64_t left) {
    return core_epic_watch(core_of_stage(s->host, stage), stage, name, left, &s->watcher);
}

void shards_epic_unwatch(struct session *s) {
    core_epic_unwatch(&s->watcher);
}

// ---- Memory -------------------------------------------------------------------------------------

uint64_t shards_written(const struct host *h) {
    uint64_t sum = 0;
    for (uint32_t i = h->first; i < h->end; i++)
        sum += shard_last_at(h->parts[i].shard);
    return sum;
}

uint64_t shards_memory(const struct host *h) {
    uint64_t bytes = 0;
    for (uint32_t i = h->first; i < h->end; i++)
        bytes += core_memory(h->parts[i].core);
    return bytes;
}

uint64_t shards_live_bytes(const struct host *h) {
    uint64_t bytes = 0;
    for (uint32_t i = h->first; i < h->end; i++)
        bytes += core_live_bytes(h->parts[i].core);
    return bytes;
}

// Each shard gets its share of the limit, and of the memory in use.
void shards_report_memory(const struct host *h, uint64_t outside_bytes) {
    for (uint32_t i = h->first; i < h->end; i++)
        core_set_outside_memory(h->parts[i].core, outside_bytes / (h->end - h->first));
}
