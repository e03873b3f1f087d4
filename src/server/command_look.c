// Looking at what there is: STAGES, CHANNELS, WORKERS. Each is a bounded array of maps; what does
// not fit is asked for with FROM, which goes on behind the row it names.
#include "server/access.h"
#include "server/answer.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct page_options {
    uint32_t count;
    uint64_t from;
    mr_bytes from_name, name;
};

// ---- STAGES -----------------------------------------------------------------------------------

static const struct option stages_options[] = {
    { "COUNT", OPTION_COUNT, offsetof(struct page_options, count) },
    { "FROM", OPTION_BYTES, offsetof(struct page_options, from_name) },
    { "NAME", OPTION_BYTES, offsetof(struct page_options, name) },
    { 0 },
};

// The next of the names that stand in `*text`, with blanks between them; empty: there are no more.
static mr_bytes next_name(const char **text) {
    size_t size = strcspn(*text, " ");
    mr_bytes name = { *text, size };
    *text += size + ((*text)[size] == ' ');
    return name;
}

struct crew {
    uint32_t workers;
    uint64_t level; // of those that have told theirs
};

// Who works for each of `count` stages, from the place `first` on.
static void count_workers(struct host *h, size_t first, size_t count, struct crew *out) {
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next, h->steps++) {
        const struct session *s = list_entry(l, struct session, of_host);
        const char *names = s->stages;
        size_t place;
        for (mr_bytes name = next_name(&names); name.size; name = next_name(&names)) {
            h->steps++;
            if (shards_stage_place(h, name, &place) < 0 || place < first || place - first >= count)
                continue;
            out[place - first].workers++;
            out[place - first].level += s->level;
        }
    }
}

static uint64_t quantile(const struct histogram *h, double share) {
    return h ? histogram_quantile(h, share) : 0;
}

// Where its jobs go next, as far as that is anybody's business who asks.
static void say_feeds(struct session *s, mr_bytes stage) {
    mr_bytes names[CORE_EDGES];
    size_t count = core_stage_feeds(core_of_stage(s->host, stage), stage, names), seen = 0;
    for (size_t i = 0; i < count; i++)
        if (access_sees(s, names[i]))
            names[seen++] = names[i];
    reply_bulk(&s->reply, mr_str("feeds"));
    reply_array(&s->reply, seen);
    for (size_t i = 0; i < seen; i++)
        reply_bulk(&s->reply, names[i]);
}

static void say_stage(struct session *s, struct stage_info *i, const struct crew *crew) {
    access_hide_downstream(s, i);
    reply_map(&s->reply, 30);
    answer_text(s, "name", i->name);
    answer_count(s, "waiting", i->waiting);
    answer_count(s, "running", i->running);
    answer_count(s, "parked", i->parked);
    answer_count(s, "delayed", i->delayed);
    answer_count(s, "dead", i->dead);
    answer_number(s, "oldest-ms", i->oldest_ms);
    answer_text(s, "held-by", mr_str(s->host->stopped ? "stopped" : i->held_by));
    answer_count(s, "workers", crew->workers);
    answer_count(s, "pushed", i->pushed);
    answer_count(s, "done", i->done);
    answer_count(s, "failed", i->failed);
    answer_count(s, "expired", i->expired);
    answer_count(s, "cancelled", i->cancelled);
    answer_rate(s, "in-per-s", i->in_per_s);
    answer_rate(s, "out-per-s", i->out_per_s);
    answer_count(s, "wait-p50-ms", quantile(i->waits, 0.5));
    answer_count(s, "wait-p99-ms", quantile(i->waits, 0.99));
    answer_count(s, "vain-ms", i->vain_ms);
    answer_count(s, "states", i->states);
    answer_count(s, "run-p50-ms", quantile(i->runs, 0.5));
    answer_count(s, "run-p99-ms", quantile(i->runs, 0.99));
    answer_count(s, "waits", i->waits ? i->waits->count : 0);
    answer_count(s, "waited-ms", i->waits ? i->waits->sum : 0);
    answer_count(s, "runs", i->runs ? i->runs->count : 0);
    answer_count(s, "ran-ms", i->runs ? i->runs->sum : 0);
    answer_count(s, "level", crew->level);
    answer_number(s, "paused", i->paused);
    answer_number(s, "draining", i->draining);
    say_feeds(s, i->name);
}

static bool sees_stage_at(const struct session *s, size_t place) {
    mr_bytes name = shards_stage_name(s->host, place);
    s->host->steps++;
    return name.size && access_sees(s, name);
}

void run_stages(struct session *s, struct arguments *a) {
    struct page_options o = { .count = LIMIT_LISTED };
    struct host *h = s->host;
    if (!options_read(s, a, stages_options, &o))
        return;
    size_t count = shards_stage_places(h), first = 0, shown = 0;
    mr_bytes named = o.name.data ? o.name : o.from_name;
    if (named.data && !access_name(s, "stage", named))
        return;
    int err = named.data ? shards_stage_place(h, named, &first) : 0;
    first += named.data && !o.name.data;
    uint32_t most = o.name.data ? 1 : listed(o.count);
    size_t behind = first; // what is not shown is not looked at
    for (; err == 0 && behind < count && shown < most; behind++)
        shown += sees_stage_at(s, behind);
    struct crew *crews = err < 0 ? NULL : mem_alloc((behind - first + 1) * sizeof *crews);
    if (!err && !crews)
        err = error_set(MR_ENOMEM, "no memory for a list of stages");
    if (err < 0) {
        answer_error(s, err);
        return;
    }
    count_workers(h, first, behind - first, crews);
    reply_array(&s->reply, shown);
    for (size_t i = first; shown; i++) {
        struct stage_info info;
        if (!sees_stage_at(s, i))
            continue;
        (void)shards_stage_at(h, i, &info); // it is there
        h->steps += 4;                      // a whole look
        say_stage(s, &info, &crews[i - first]);
        shown--;
    }
    mem_free(crews);
}

// ---- CHANNELS ---------------------------------------------------------------------------------

struct channels_options {
    uint32_t top;
};

static const struct option channels_options[] = {
    { "TOP", OPTION_COUNT, offsetof(struct channels_options, top) },
    { 0 },
};

static void say_channel(struct session *s, const struct channel_info *i) {
    static const char *const states[] = { [CHANNEL_DORMANT] = "dormant",
                                          [CHANNEL_READY] = "ready",
                                          [CHANNEL_IN_PROGRESS] = "in-progress",
                                          [CHANNEL_PARKED] = "parked" };
    reply_map(&s->reply, 7);
    answer_text(s, "key", i->key);
    answer_text(s, "state", mr_str(states[i->state]));
    answer_count(s, "depth", i->depth);
    answer_number(s, "oldest-ms", i->oldest_ms);
    answer_number(s, "parked-ms", i->parked_ms);
    answer_number(s, "halted", i->halted);
    answer_number(s, "has-state", i->has_state);
}

void run_channels(struct session *s, struct arguments *a) {
    struct channels_options o = { .top = 10 };
    struct stage_info stage;
    a->at = 2;
    if (!options_read(s, a, channels_options, &o))
        return;
    struct channel_info *top = NULL;
    int err = shards_look_stage(s->host, a->words[1], &stage);
    if (!err && !(top = mem_alloc((2 * listed(o.top) + 1) * sizeof *top)))
        err = error_set(MR_ENOMEM, "no memory for a list of channels");
    if (err < 0) {
        answer_error(s, err);
        return;
    }
    size_t count =
        core_top_channels(core_of_stage(s->host, a->words[1]), a->words[1], top, listed(o.top));
    reply_array(&s->reply, count);
    for (size_t i = 0; i < count; i++)
        say_channel(s, &top[i]);
    mem_free(top);
}

// ---- WORKERS ----------------------------------------------------------------------------------

static const struct option workers_options[] = {
    { "COUNT", OPTION_COUNT, offsetof(struct page_options, count) },
    { "FROM", OPTION_NUMBER, offsetof(struct page_options, from) },
    { 0 },
};

// Those of the stages it works for that `s` may see; false: there is none.
static bool names_seen(const struct session *s, const struct session *w, char out[SESSION_STAGES]) {
    const char *names = w->stages;
    size_t used = 0;
    if (!s->who || s->who->all)
        used = (size_t)snprintf(out, SESSION_STAGES, "%s", names);
    else
        for (mr_bytes name = next_name(&names); name.size; name = next_name(&names))
            if (access_sees(s, name))
                used += (size_t)snprintf(out + used, SESSION_STAGES - used, "%s%.*s",
                                         used ? " " : "", (int)name.size, (const char *)name.data);
    return used > 0;
}

static void say_worker(struct session *s, const struct session *w, const char *stages) {
    reply_map(&s->reply, 10);
    answer_count(s, "id", w->id);
    answer_text(s, "name", mr_str(w->name));
    answer_text(s, "address", mr_str(w->address));
    answer_text(s, "stages", mr_str(stages));
    answer_number(s, "waits", w->blocked == BLOCKED_TAKE);
    answer_count(s, "leases", session_leases(w));
    answer_count(s, "taken", w->taken);
    answer_count(s, "ended", w->ended);
    answer_count(s, "age-ms", host_now_ms(s->host) - w->since_ms);
    answer_count(s, "level", w->level);
}

// Sessions are listed in the order of their ids.
void run_workers(struct session *s, struct arguments *a) {
    struct page_options o = { .count = LIMIT_LISTED };
    const struct list *all = &s->host->sessions;
    if (!options_read(s, a, workers_options, &o))
        return;
    uint32_t most = listed(o.count), count = 0;
    char stages[SESSION_STAGES];
    for (const struct list *l = all->next; l != all && count < most;
         l = l->next, s->host->steps++) {
        const struct session *w = list_entry(l, struct session, of_host);
        count += w->id > o.from && names_seen(s, w, stages);
    }
    reply_array(&s->reply, count);
    for (const struct list *l = all->next; l != all && count; l = l->next) {
        const struct session *w = list_entry(l, struct session, of_host);
        if (w->id <= o.from || !names_seen(s, w, stages))
            continue;
        say_worker(s, w, stages);
        count--;
    }
}
