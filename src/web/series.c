// See series.h.
#include "web/series.h"

#include "base/bytes.h"
#include "base/histogram.h"
#include "base/mem.h"
#include "server/budget.h"
#include "server/shards.h"
#include "wire/json.h"

#include <string.h>

enum { NAME = 200 };

// Gauges are those at this instant; counts, and the times of jobs, are since the previous sample.
struct sample {
    uint64_t at_ms;
    struct history_point is;
};

struct series_stage {
    char name[NAME];
    size_t name_size;
    uint64_t pushed, done, failed; // at the last sample, …
    struct histogram waits, runs;  // … and these, too
    uint32_t count, next;          // of `samples`, a ring
    struct sample samples[WEB_SAMPLES];
    struct history histories[HISTORY_SPANS];
};

void series_finish(struct series *p) {
    for (uint32_t i = 0; i < WEB_STAGES; i++)
        mem_free(p->stages[i]);
    map_finish(&p->by_name);
    *p = (struct series){ 0 };
}

// ---- Stages by name -----------------------------------------------------------------------------

static mr_bytes stage_name(const struct series_stage *s) {
    return bytes_of(s->name, s->name_size);
}

static uint32_t name_hash(mr_bytes name) {
    return (uint32_t)bytes_hash(name, 0);
}

static bool has_name(const void *series, uint32_t value, const void *name) {
    const struct series_stage *s = ((const struct series *)series)->stages[value - 1];
    return bytes_equal(stage_name(s), *(const mr_bytes *)name);
}

static struct series_stage *stage_named(const struct series *p, mr_bytes name) {
    uint32_t found = map_find(&p->by_name, name_hash(name), has_name, p, &name);
    return found ? p->stages[found - 1] : NULL;
}

// Adds a stage where there is room. If all stages were known at the last sample, this one was made
// since; else its earlier counts are left out. NULL: no memory.
static struct series_stage *series_add_stage(struct series *p, const struct stage_info *i) {
    uint32_t index = 0;
    while (p->stages[index])
        index++;
    struct series_stage *s = map_reserve(&p->by_name, 1) < 0 ? NULL : mem_alloc(sizeof *s);
    if (!s)
        return NULL;
    memcpy(s->name, i->name.data, i->name.size);
    s->name_size = i->name.size;
    p->stages[index] = s;
    map_put(&p->by_name, name_hash(i->name), index + 1);
    if (!p->all_known)
        s->pushed = i->pushed, s->done = i->done, s->failed = i->failed;
    return s;
}

static void stage_remove(struct series *p, uint32_t index) {
    map_remove(&p->by_name, name_hash(stage_name(p->stages[index])), index + 1);
    mem_free(p->stages[index]);
    p->stages[index] = NULL;
}

// ---- Percentiles since the previous sample ------------------------------------------------------

// The difference of `now` and `before`; then sets `before` to `now`.
static void histogram_difference(const struct histogram *now, struct histogram *before,
                                 struct histogram *out_between) {
    *out_between = (struct histogram){ .count = now->count - before->count, .max = now->max };
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        bool more = now->buckets[i] > before->buckets[i]; // a histogram can also be halved
        out_between->buckets[i] = more ? now->buckets[i] - before->buckets[i] : 0;
    }
    *before = *now;
}

static void note_times(const struct histogram *now, struct histogram *before, uint32_t *out_p50,
                       uint32_t *out_p99) {
    struct histogram between;
    *out_p50 = *out_p99 = HISTORY_NONE;
    if (!now || now->count == before->count)
        return;
    histogram_difference(now, before, &between);
    *out_p50 = (uint32_t)histogram_quantile(&between, 0.5);
    *out_p99 = (uint32_t)histogram_quantile(&between, 0.99);
}

// ---- Sampling -----------------------------------------------------------------------------------

// A stage that was removed and made again counts from zero.
static void stage_restart(struct series_stage *s, const struct stage_info *i) {
    if (i->pushed >= s->pushed && i->done >= s->done && i->failed >= s->failed)
        return;
    s->pushed = s->done = s->failed = 0;
    s->waits = s->runs = (struct histogram){ 0 };
}

// Merges two samples with the same time, so that the result is the state after both.
static void sample_join(struct history_point *x, const struct history_point *more) {
    struct history_point old = *x;
    *x = *more;
    x->pushed += old.pushed;
    x->done += old.done;
    x->failed += old.failed;
    if (x->wait_p50 == HISTORY_NONE)
        x->wait_p50 = old.wait_p50, x->wait_p99 = old.wait_p99;
    if (x->run_p50 == HISTORY_NONE)
        x->run_p50 = old.run_p50, x->run_p99 = old.run_p99;
}

static void stage_sample(struct series_stage *s, const struct stage_info *i, uint64_t level,
                         struct host *h, uint64_t at_ms) {
    stage_restart(s, i);
    struct sample *last = &s->samples[(s->next + WEB_SAMPLES - 1) % WEB_SAMPLES];
    struct history_point now = { .waiting = (uint32_t)i->waiting,
                                 .running = (uint32_t)i->running,
                                 .delayed = (uint32_t)i->delayed,
                                 .dead = (uint32_t)i->dead,
                                 .level = (uint32_t)level,
                                 .pushed = (uint32_t)(i->pushed - s->pushed),
                                 .done = (uint32_t)(i->done - s->done),
                                 .failed = (uint32_t)(i->failed - s->failed) };
    note_times(i->waits, &s->waits, &now.wait_p50, &now.wait_p99);
    note_times(i->runs, &s->runs, &now.run_p50, &now.run_p99);
    s->pushed = i->pushed, s->done = i->done, s->failed = i->failed;
    for (int span = 0; span < HISTORY_SPANS; span++)
        h->steps += history_add(&s->histories[span], (enum history_span)span, at_ms, &now) /
                    WEB_STEP_POINTS;
    if (s->count && last->at_ms == at_ms) {
        sample_join(&last->is, &now);
        return;
    }
    s->samples[s->next] = (struct sample){ at_ms, now };
    s->next = (s->next + 1) % WEB_SAMPLES;
    s->count += s->count < WEB_SAMPLES;
}

static void sample_known(struct series *p, struct host *h, uint64_t at_ms) {
    for (uint32_t i = 0; i < WEB_STAGES; i++) {
        struct series_stage *s = p->stages[i];
        struct stage_info info;
        if (!s)
            continue;
        h->steps += STEPS_ROW;
        if (shards_look_stage(h, stage_name(s), &info) < 0)
            stage_remove(p, i);
        else
            stage_sample(s, &info, workers_of(&h->workers, info.name).level, h, at_ms);
    }
}

static void sample_new(struct series *p, struct host *h, mr_bytes name, uint64_t at_ms) {
    struct stage_info info;
    if (!name.size || stage_named(p, name) || shards_look_stage(h, name, &info) < 0)
        return;
    struct series_stage *s = series_add_stage(p, &info);
    if (s)
        stage_sample(s, &info, workers_of(&h->workers, name).level, h, at_ms);
}

// Each new one takes 102 KB, which are cleared: of very many some are left for the next sample.
static void find_new(struct series *p, struct host *h, uint64_t at_ms) {
    size_t places = shards_stage_places(h), looked = 0, known = map_count(&p->by_name);
    size_t most = known + WEB_STAGES_ADDED < WEB_STAGES ? known + WEB_STAGES_ADDED : WEB_STAGES;
    for (; looked < WEB_SEARCHED && looked < places && map_count(&p->by_name) < most; looked++) {
        p->place = p->place < places ? p->place : 0;
        sample_new(p, h, shards_stage_name(h, p->place++), at_ms);
    }
    p->all_known = looked == places;
    h->steps += looked;
}

static void sample_all(struct series *p, struct host *h, uint64_t at_ms) {
    sample_known(p, h, at_ms);
    find_new(p, h, at_ms);
    p->sampled_ms = at_ms;
}

void series_turn(struct series *p, struct host *h) {
    uint64_t now_ms = host_now_ms(h), left_ms = p->turn_ms;
    p->turn_ms = now_ms;
    if (now_ms - p->sampled_ms < WEB_SAMPLE_MS)
        return;
    if (p->sampled_ms && left_ms >= p->sampled_ms && now_ms - left_ms >= WEB_SAMPLE_MS)
        sample_all(p, h, left_ms);
    sample_all(p, h, now_ms);
}

// ---- Output -------------------------------------------------------------------------------------

static const struct sample *sample_at(const struct series_stage *s, uint32_t i) {
    return &s->samples[(s->next + WEB_SAMPLES - s->count + i) % WEB_SAMPLES];
}

static const struct history_point *sample_point(const void *stage, uint32_t i) {
    return &sample_at(stage, i)->is;
}

void series_write(const struct series *p, mr_bytes stage, struct doc *d) {
    const struct series_stage *s = stage_named(p, stage);
    uint32_t count = s ? s->count : 0;
    doc_open(d, "series", '{');
    doc_open(d, "time-ms", '[');
    for (uint32_t i = 0; i < count; i++)
        doc_number(d, NULL, (int64_t)sample_at(s, i)->at_ms);
    doc_close(d, ']');
    history_write_columns(d, sample_point, s, count);
    doc_close(d, '}');
}

void series_write_history(const struct series *p, mr_bytes stage, enum history_span span,
                          struct doc *d) {
    const struct series_stage *s = stage_named(p, stage);
    history_write(s ? &s->histories[span] : NULL, span, d);
}

void series_sum(const struct series *p, uint32_t index, enum history_span span,
                bool (*counts)(const void *arg, mr_bytes stage), const void *arg,
                struct history_sum *to) {
    const struct series_stage *s = p->stages[index];
    if (s && counts(arg, stage_name(s)))
        history_sum_add(to, &s->histories[span]);
}
