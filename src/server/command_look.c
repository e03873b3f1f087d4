// STAGES, CHANNELS, WORKERS. Each replies with a bounded array of maps; FROM continues after the
// row that it names.
#include "server/access.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/router.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/mem.h"
#include "wire/replies.h"

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

static uint64_t quantile(const struct histogram *h, double share) {
    return h ? histogram_quantile(h, share) : 0;
}

// The stages that its jobs emit to, as far as this session may see them.
static size_t feeds_of(struct session *s, mr_bytes stage, mr_bytes out[CORE_EDGES]) {
    size_t count = core_stage_feeds(core_of_stage(s->host, stage), stage, out), seen = 0;
    for (size_t i = 0; i < count; i++)
        if (access_sees(s, out[i]))
            out[seen++] = out[i];
    return seen;
}

static void write_group(struct session *s, const struct group_info *info) {
    struct group_reply r = { GROUP_FIELDS(FROM_INFO) };
    r.held_by = mr_str(info->held_by);
    reply_write(&s->reply, &group_replies, &r);
}

static void write_groups(struct session *s, const struct group_info *groups, size_t count) {
    reply_array(&s->reply, count);
    for (size_t i = 0; i < count; i++)
        write_group(s, &groups[i]);
}

// The groups that STAGES shows of a stage.
struct top_groups {
    struct session *session;
    mr_bytes stage;
};

static void write_top_groups(void *arg) {
    const struct top_groups *t = arg;
    struct group_info top[LIMIT_TOP_GROUPS];
    struct core *core = core_of_stage(t->session->host, t->stage);
    write_groups(t->session, top, core_top_groups(core, t->stage, top, LIMIT_TOP_GROUPS));
}

static void write_stage(struct session *s, struct stage_info *info,
                        const struct stage_workers *workers) {
    const struct histogram *waits = info->waits, *runs = info->runs;
    mr_bytes feeds[CORE_EDGES];
    access_hide_downstream(s, info);
    struct stage_reply r = { STAGE_FIELDS(FROM_INFO) };
    r.held_by = mr_str(s->host->stopped ? "stopped" : info->held_by);
    r.workers = workers->workers;
    r.wait_p50_ms = quantile(waits, 0.5);
    r.wait_p99_ms = quantile(waits, 0.99);
    r.run_p50_ms = quantile(runs, 0.5);
    r.run_p99_ms = quantile(runs, 0.99);
    r.wait_count = waits ? waits->count : 0;
    r.waited_ms = waits ? waits->sum : 0;
    r.run_count = runs ? runs->count : 0;
    r.ran_ms = runs ? runs->sum : 0;
    r.level = workers->level;
    r.feeds = (struct reply_names){ feeds, feeds_of(s, info->name, feeds) };
    struct top_groups groups = { s, info->name };
    r.top_groups = (struct reply_other){ .write = write_top_groups, .arg = &groups };
    reply_write(&s->reply, &stage_replies, &r);
}

static bool list_stages(struct session *s, struct listing *l) {
    struct host *h = s->host;
    size_t places = shards_stage_places(h);
    for (; l->at < places && l->count < l->most && budget_left(s); l->at++) {
        mr_bytes name = shards_stage_name(h, l->at);
        struct stage_info info;
        budget_spend(s, access_steps(s));
        if (!name.size || !access_sees(s, name) || shards_look_stage(h, name, &info) < 0)
            continue;
        struct stage_workers workers = workers_of(&h->workers, name);
        write_stage(s, &info, &workers);
        l->count++;
        budget_spend(s, STEPS_ROW + core_take_steps(core_of_stage(h, name)));
    }
    return l->at >= places || l->count == l->most;
}

// Finds the start of the list. False: the error was replied.
static bool first_stage(struct session *s, const struct page_options *o, size_t *out) {
    mr_bytes named = o->name.data ? o->name : o->from_name;
    *out = 0;
    if (!named.data)
        return true;
    if (!access_name(s, "stage", named))
        return false;
    int err = shards_stage_place(s->host, named, out);
    if (err < 0)
        answer_error(s, err);
    *out += !o->name.data;
    return err == 0;
}

void run_stages(struct session *s, struct arguments *a) {
    struct page_options o = { .count = LIMIT_LISTED };
    size_t first = 0;
    if (!options_read(s, a, stages_options, &o) || !first_stage(s, &o, &first))
        return;
    list_run(s, &(struct listing){
                    .more = list_stages, .at = first, .most = o.name.data ? 1 : listed(o.count) });
}

// ---- CHANNELS ---------------------------------------------------------------------------------

struct channels_options {
    uint32_t top;
    bool groups;
};

static const struct option channels_options[] = {
    { "TOP", OPTION_COUNT, offsetof(struct channels_options, top) },
    { "GROUPS", OPTION_FLAG, offsetof(struct channels_options, groups) },
    { 0 },
};

static void write_channel(struct session *s, const struct channel_info *info) {
    static const char *const states[] = { [CHANNEL_DORMANT] = "dormant",
                                          [CHANNEL_READY] = "ready",
                                          [CHANNEL_IN_PROGRESS] = "in-progress",
                                          [CHANNEL_PARKED] = "parked" };
    struct channel_reply r = { CHANNEL_FIELDS(FROM_INFO) };
    r.state = mr_str(states[info->state]);
    reply_write(&s->reply, &channel_replies, &r);
}

static int list_channels(struct session *s, mr_bytes stage, uint32_t most) {
    struct channel_info *top = mem_alloc((most + 1) * sizeof *top);
    if (!top)
        return error_set(MR_ENOMEM, "no memory for a list of channels");
    size_t count = core_top_channels(core_of_stage(s->host, stage), stage, top, most);
    reply_array(&s->reply, count);
    for (size_t i = 0; i < count; i++)
        write_channel(s, &top[i]);
    mem_free(top);
    return 0;
}

static int list_groups(struct session *s, const struct stage_info *stage, uint32_t most) {
    struct group_info *top = NULL;
    if (!stage->policy->group)
        return error_set(MR_EINVAL,
                         "stage %.*s has no groups: STAGE %.*s group on, while it has "
                         "neither jobs nor states, divides its keys",
                         (int)stage->name.size, (const char *)stage->name.data,
                         (int)stage->name.size, (const char *)stage->name.data);
    if (!(top = mem_alloc((most + 1) * sizeof *top)))
        return error_set(MR_ENOMEM, "no memory for a list of groups");
    struct core *core = core_of_stage(s->host, stage->name);
    write_groups(s, top, core_top_groups(core, stage->name, top, most));
    mem_free(top);
    return 0;
}

void run_channels(struct session *s, struct arguments *a) {
    struct channels_options o = { .top = 10 };
    struct stage_info stage;
    a->at = 2;
    if (!options_read(s, a, channels_options, &o))
        return;
    int err = shards_look_stage(s->host, a->words[1], &stage);
    if (err >= 0)
        err = o.groups ? list_groups(s, &stage, listed(o.top))
                       : list_channels(s, a->words[1], listed(o.top));
    if (err < 0)
        answer_error(s, err);
}

// ---- WORKERS ----------------------------------------------------------------------------------

static const struct option workers_options[] = {
    { "COUNT", OPTION_COUNT, offsetof(struct page_options, count) },
    { "FROM", OPTION_NUMBER, offsetof(struct page_options, from) },
    { 0 },
};

// Writes the stages of the worker `w` that `s` may see; false: there are none, or `w` is a remote
// session, whose connection is listed by another loop.
static bool names_seen(const struct session *s, const struct session *w, char out[SESSION_STAGES]) {
    const char *names = w->stages;
    size_t used = 0;
    if (w->remote)
        return false;
    if (!s->who || s->who->all)
        used = (size_t)snprintf(out, SESSION_STAGES, "%s", names);
    else
        for (mr_bytes name = next_stage_name(&names); name.size; name = next_stage_name(&names))
            if (access_sees(s, name))
                used += (size_t)snprintf(out + used, SESSION_STAGES - used, "%s%.*s",
                                         used ? " " : "", (int)name.size, (const char *)name.data);
    return used > 0;
}

static void write_worker(struct session *s, const struct session *w, const char *stages) {
    struct remote_work there = router_work(w);
    struct worker_reply r = { .id = w->id,
                              .name = mr_str(w->name),
                              .address = mr_str(w->address),
                              .stages = mr_str(stages),
                              .waits = take_waits(w) || w->taking,
                              .leases = session_leases(w) + there.leases,
                              .taken = w->taken + there.taken,
                              .ended = w->ended + there.ended,
                              .age_ms = host_now_ms(s->host) - w->since_ms,
                              .level = w->level };
    reply_write(&s->reply, &worker_replies, &r);
}

static uint64_t names_steps(const struct session *s, const struct session *w) {
    uint64_t names = w->stages[0] != 0;
    for (const char *c = w->stages; s->who && !s->who->all && *c; c++)
        names += *c == ' ';
    return names * access_steps(s);
}

// Sessions are in the order of their ids; those examined in earlier turns are skipped.
static bool list_workers(struct session *s, struct listing *list) {
    const struct list *all = &s->host->sessions;
    char stages[SESSION_STAGES];
    for (const struct list *l = all->next; l != all && list->count < list->most; l = l->next) {
        const struct session *w = list_entry(l, struct session, of_host);
        s->host->steps++;
        if (w->id <= list->at)
            continue;
        if (!budget_left(s))
            return false;
        list->at = w->id;
        budget_spend(s, 1 + names_steps(s, w));
        if (!names_seen(s, w, stages))
            continue;
        write_worker(s, w, stages);
        list->count++;
        budget_spend(s, STEPS_ROW);
    }
    return true;
}

void run_workers(struct session *s, struct arguments *a) {
    struct page_options o = { .count = LIMIT_LISTED };
    if (!options_read(s, a, workers_options, &o))
        return;
    list_run(s, &(struct listing){ .more = list_workers, .at = o.from, .most = listed(o.count) });
}
