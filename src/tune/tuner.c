// What all kinds of tuner share: options, the path of the level, words.
#include "tune/tuner.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void tuner_init(struct tuner *t, const struct tuner_options *o) {
    *t = (struct tuner){ .options = *o };
    t->options.least = o->least ? o->least : 1;
    t->options.most = o->most ? o->most : TUNER_MOST;
    assert(t->options.least <= t->options.most && t->options.most <= TUNER_MOST);
    uint32_t first = o->first < t->options.least ? t->options.least : o->first;
    t->level = first > t->options.most ? t->options.most : first;
    if (o->kind == TUNER_PROBE)
        probe_init(t);
    tuner_note(t, 0, t->level, TUNER_BEGAN);
}

static void trace(struct tuner_trace *into, const struct tuner_event *e) {
    if (into->count < into->room)
        into->events[into->count++] = *e;
}

void tuner_feed(struct tuner *t, const struct tuner_event *e) {
    if (t->options.trace)
        trace(t->options.trace, e);
    switch (t->options.kind) {
    case TUNER_PROBE:
        probe_feed(t, e);
        return;
    case TUNER_FIXED:
        return;
    }
}

void tuner_note(struct tuner *t, uint64_t now_ns, uint32_t level, enum tuner_why why) {
    t->path[t->moves++ % TUNER_PATH] = (struct tuner_step){ now_ns, level, why };
}

uint32_t tuner_choice(const struct tuner *t) {
    if (t->options.kind == TUNER_PROBE)
        return t->path[(t->moves - 1) % TUNER_PATH].level;
    return t->level;
}

bool tuner_asks_idle(const struct tuner *t) {
    const struct tuner_probe *p = &t->probe;
    return t->options.kind == TUNER_PROBE && p->rounds == 0 && p->place == p->choice &&
           p->evidence.arms[p->choice].count == 0 && p->choice + 1 < p->evidence.places &&
           t->level < TUNER_IDLE_MOST;
}

size_t tuner_path(const struct tuner *t, struct tuner_step out[TUNER_PATH]) {
    uint32_t count = t->moves < TUNER_PATH ? t->moves : TUNER_PATH;
    for (uint32_t i = 0; i < count; i++)
        out[i] = t->path[(t->moves - count + i) % TUNER_PATH];
    return count;
}

// ---- Words ------------------------------------------------------------------------------------

// Text that grows up to its room.
struct text {
    char *out;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void add_text(struct text *t, const char *format,
                                                           ...) {
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(t->out + t->used, t->size - t->used, format, args);
    va_end(args);
    if (wrote > 0)
        t->used += (size_t)wrote < t->size - t->used ? (size_t)wrote : t->size - t->used - 1;
}

static double percent(double gain) {
    return 100 * fabs(exp(gain) - 1);
}

static void add_more(struct text *out, const struct tuner_trial *more) {
    if (!more->sure)
        add_text(out, "%" PRIu32 " makes no difference", more->level);
    else if (more->gain < 0)
        add_text(out, "%" PRIu32 " is too much (%.0f %% less)", more->level, percent(more->gain));
    else
        add_text(out, "%" PRIu32 " brings only %.0f %% more", more->level, percent(more->gain));
}

static void add_fewer(struct text *out, const struct tuner_trial *fewer) {
    if (fewer->sure)
        add_text(out, "%" PRIu32 " is too few (%.0f %% less)", fewer->level, percent(fewer->gain));
    else
        add_text(out, "%" PRIu32 " makes no difference", fewer->level);
}

void tuner_describe(const struct tuner *t, char *out, size_t size) {
    struct text text = { out, size, 0 };
    bool probes = t->options.kind == TUNER_PROBE;
    add_text(&text, "%" PRIu32 " at once", tuner_choice(t));
    if (t->options.kind == TUNER_FIXED)
        add_text(&text, ", as asked");
    else if (probes && t->probe.next_pause > 1)
        add_text(&text, ": there is not enough work to try more");
    else if (probes && (t->more.level || t->fewer.level)) {
        add_text(&text, ": ");
        if (t->more.level)
            add_more(&text, &t->more);
        if (t->more.level && t->fewer.level)
            add_text(&text, ", ");
        if (t->fewer.level)
            add_fewer(&text, &t->fewer);
    } else
        add_text(&text, " so far");
}
