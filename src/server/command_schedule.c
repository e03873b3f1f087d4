// Schedules: SCHEDULE makes, shows, pauses or drops one; SCHEDULES lists all.
#include "server/access.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/fetch.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/mem.h"
#include "wire/replies.h"

#include <stddef.h>
#include <string.h>

// What a request names.
struct schedule_name {
    struct ticks *ticks; // of the shard where the stage lives
    mr_bytes stage, name;
};

static struct schedule_name schedule_named(const struct host *h, mr_bytes stage, mr_bytes name) {
    struct part *part = own_part(h, route_of(h->shards, stage));
    return (struct schedule_name){ shard_ticks(part->shard), stage, name };
}

// ---- Showing ----------------------------------------------------------------------------------

// The schedule that is being written.
struct shown_schedule {
    struct session *session;
    struct ticks *ticks;
    const struct schedule_info *info;
    uint32_t meta_size;
    uint8_t meta[META_MOST]; // read with the body, which is written before it
};

static void write_upcoming(void *arg) {
    const struct shown_schedule *shown = arg;
    uint64_t at_ms[UPCOMING_MOST];
    uint32_t count = ticks_upcoming(shown->ticks, shown->info, at_ms);
    reply_array(&shown->session->reply, count);
    for (uint32_t i = 0; i < count; i++)
        reply_integer(&shown->session->reply, (int64_t)at_ms[i]);
}

static void write_schedule_body(void *arg) {
    struct shown_schedule *shown = arg;
    const struct schedule_info *i = shown->info;
    if (answer_body(shown->session, i->shard, i->at, i->meta_size, shown->meta))
        shown->meta_size = i->meta_size;
}

static void write_schedule_meta(void *arg) {
    const struct shown_schedule *shown = arg;
    reply_bulk(&shown->session->reply, (mr_bytes){ shown->meta, shown->meta_size });
}

static struct schedule_reply schedule_reply_of(struct shown_schedule *shown) {
    const struct schedule_info *info = shown->info;
    struct schedule_reply r = { SCHEDULE_FIELDS(FROM_INFO) };
    r.missed = mr_str(missed_name(info->missed));
    r.upcoming = (struct reply_other){ write_upcoming, shown, NULL };
    return r;
}

// A request to show a schedule; while its body is fetched, the words are copies.
struct show_schedule {
    struct kept_words *kept;
    struct schedule_name name;
    bool body;
};

static void show_free(void *state) {
    struct show_schedule *show = state;
    mem_free(show->kept);
    mem_free(show);
}

// False: the body has to be fetched; no reply was written.
static bool write_shown(struct session *s, const struct show_schedule *show) {
    const struct schedule_name *n = &show->name;
    struct schedule_info info;
    size_t before = s->reply.out->size;
    int err = core_schedule(n->ticks->core, n->stage, n->name, &info);
    if (err < 0) {
        answer_error(s, err);
        return true;
    }
    struct shown_schedule shown = { .session = s, .ticks = n->ticks, .info = &info };
    struct schedule_reply r = schedule_reply_of(&shown);
    if (show->body)
        r.body = (struct reply_other){ write_schedule_body, &shown, NULL };
    if (show->body && info.meta_size)
        r.meta = (struct reply_other){ write_schedule_meta, &shown, NULL };
    reply_write(&s->reply, &schedule_replies, &r);
    if (!fetch_is_needed(s))
        return true;
    s->reply.out->size = before;
    return false;
}

static void show_resume(struct session *, void *, enum wake);

static const struct wait_kind for_schedule = { .resume = show_resume, .free = show_free };

static size_t show_bytes(const struct show_schedule *show) {
    return sizeof *show + show->kept->bytes;
}

static void show_resume(struct session *s, void *state, enum wake wake) {
    (void)wake;
    if (!write_shown(s, state))
        (void)fetch_wait(s, &for_schedule, state, show_bytes(state)); // else it has replied
}

static void fetch_shown(struct session *s, const struct arguments *a,
                        const struct show_schedule *show) {
    struct show_schedule *kept = mem_alloc(sizeof *kept);
    struct kept_words *words = kept ? words_keep(a->words, 3) : NULL;
    if (!words) {
        mem_free(kept);
        answer_error(s, error_set(MR_ENOMEM, "no memory to read a schedule"));
        return;
    }
    *kept = *show;
    kept->kept = words;
    kept->name.stage = words->words[1];
    kept->name.name = words->words[2];
    if (!fetch_wait(s, &for_schedule, kept, show_bytes(kept)))
        show_free(kept);
}

// ---- Making -----------------------------------------------------------------------------------

enum { EVERY_NONE = -1 }; // there is no EVERY

struct schedule_options {
    struct job_spec job;
    mr_bytes cron, zone, missed, body;
    int64_t every_ms;
    bool shows_body, dry;
};

#define AT(field) offsetof(struct schedule_options, field)
#define OF_JOB(member, kind, word, ...) { word, OPTION_##kind, AT(job.member) },

static const struct option schedule_options[] = {
    SCHEDULE_OPTIONS(OF_JOB){ "CRON", OPTION_BYTES, AT(cron) },
    { "EVERY", OPTION_MS, AT(every_ms) },
    { "TZ", OPTION_BYTES, AT(zone) },
    { "MISSED", OPTION_BYTES, AT(missed) },
    { "PUSH", OPTION_BYTES, AT(body) },
    { "BODY", OPTION_FLAG, AT(shows_body) },
    { "DRY", OPTION_FLAG, AT(dry) },
    { 0 },
};

// Whether the words belong together; else says what is wrong.
static bool check_schedule(struct session *s, const struct schedule_options *o) {
    bool cron = o->cron.data, every = o->every_ms != EVERY_NONE;
    if (cron == every)
        session_usage(s, "a schedule needs CRON expr or EVERY ms, %s",
                      cron ? "not both" : "and has neither");
    else if (!o->body.data)
        session_usage(s, "a schedule needs PUSH body: what it pushes");
    else if (every && o->zone.data)
        session_usage(s, "TZ is the time zone of CRON: EVERY has none");
    else if (o->shows_body)
        session_usage(s, "BODY shows the body of a schedule; PUSH sets it");
    else
        return true;
    return false;
}

static void schedule_make(struct session *s, const struct schedule_name *n,
                          const struct schedule_options *o) {
    struct schedule_spec spec = { .stage = n->stage,
                                  .name = n->name,
                                  .cron = o->cron,
                                  .every_ms = o->cron.data ? 0 : (uint64_t)o->every_ms,
                                  .zone = o->zone,
                                  .body = o->body,
                                  .job = o->job };
    if (!check_schedule(s, o))
        return;
    if (o->missed.data && !missed_find(o->missed, &spec.missed)) {
        option_refuse(s, "MISSED", "skip, one or all", o->missed);
        return;
    }
    if (o->cron.data && !o->cron.size)
        spec.cron = mr_str(" "); // not an interval: it is refused
    answer_ok(s, o->dry ? ticks_check(n->ticks, &spec) : ticks_set(n->ticks, &spec));
}

// Whether nothing is said but, perhaps, BODY.
static bool only_shows(const struct arguments *a) {
    return a->count == 3 || (a->count == 4 && word_is(a->words[3], "BODY"));
}

void run_schedule(struct session *s, struct arguments *a) {
    struct schedule_options o = { .every_ms = EVERY_NONE };
    struct schedule_name n = schedule_named(s->host, a->words[1], a->words[2]);
    mr_bytes what = a->count == 4 ? a->words[3] : (mr_bytes){ 0 };
    struct show_schedule show = { .name = n, .body = a->count == 4 };
    if (only_shows(a)) {
        if (!write_shown(s, &show))
            fetch_shown(s, a, &show);
    } else if (word_is(what, "DROP")) {
        answer_ok(s, core_schedule_drop(n.ticks->core, n.stage, n.name));
    } else if (word_is(what, "PAUSE")) {
        answer_ok(s, core_schedule_pause(n.ticks->core, n.stage, n.name));
    } else if (word_is(what, "RESUME")) {
        answer_ok(s, ticks_resume(n.ticks, n.stage, n.name));
    } else if (word_is(what, "NOW")) {
        answer_ok(s, ticks_now(n.ticks, n.stage, n.name));
    } else {
        a->at = 3;
        if (options_read(s, a, schedule_options, &o))
            schedule_make(s, &n, &o);
    }
}

// ---- All of them ------------------------------------------------------------------------------

struct schedules_options {
    mr_bytes from;
    uint32_t count;
};

static const struct option schedules_options[] = {
    { "COUNT", OPTION_COUNT, offsetof(struct schedules_options, count) },
    { "FROM", OPTION_BYTES, offsetof(struct schedules_options, from) },
    { 0 },
};

static void write_schedule_row(struct session *s, struct listing *l, const struct part *part) {
    struct schedule_info info;
    core_schedule_look_at(part->core, (uint32_t)l->at, &info);
    struct shown_schedule shown = { .session = s,
                                    .ticks = shard_ticks(part->shard),
                                    .info = &info };
    struct schedule_reply r = schedule_reply_of(&shown);
    reply_write(&s->reply, &schedule_replies, &r);
    l->count++;
    budget_spend(s, STEPS_ROW + STEPS_UPCOMING + core_take_steps(part->core));
}

static bool list_schedules(struct session *s, struct listing *l) {
    mr_bytes stage, name, only = mr_str(l->stage);
    while (l->count < l->most && budget_left(s)) {
        if (!list_next_place(s->host, core_schedule_places, &l->at))
            return true;
        const struct part *part = &s->host->parts[l->at >> LIST_SHARD_SHIFT];
        budget_spend(s, access_steps(s));
        if (core_schedule_at(part->core, (uint32_t)l->at, &stage, &name) && access_sees(s, stage) &&
            (!only.size || bytes_equal(stage, only)))
            write_schedule_row(s, l, part);
    }
    return l->count == l->most;
}

void run_schedules(struct session *s, struct arguments *a) {
    struct schedules_options o = { .count = LIMIT_LISTED };
    struct listing l = { .more = list_schedules };
    bool one = a->count % 2 == 0; // options are pairs: the first word is a stage
    mr_bytes stage = one ? a->words[1] : (mr_bytes){ 0 };
    a->at += one;
    if (!options_read(s, a, schedules_options, &o) || (one && !access_name(s, "stage", stage)) ||
        !list_read_from(s, o.from, stage, "a schedule", core_schedule_place, &l.at))
        return;
    if (stage.size > STAGE_NAME_MOST) { // none has such a name
        reply_array(&s->reply, 0);
        return;
    }
    if (stage.size)
        memcpy(l.stage, stage.data, stage.size);
    l.most = listed(o.count);
    list_run(s, &l);
}
