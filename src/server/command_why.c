// WHY: one sentence on what a stage or a job is waiting for, and the command that would change it.
#include "server/access.h"
#include "server/answer.h"
#include "server/shards.h"

#include "base/errors.h"
#include "wire/number.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE = 1024, KEY_SHOWN = 80 };

static void say(struct session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct session *s, const char *format, ...) {
    char text[SENTENCE];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    reply_bulk(&s->reply, mr_str(text));
}

// ---- A stage ----------------------------------------------------------------------------------

// What holds a stage (as in its field held-by), and what to do about it; %1$s is its name, %2$s how
// many jobs wait.
static const struct {
    const char *held_by, *sentence;
} holds[] = {
    { "paused", "%1$s is paused, with %2$s waiting: RESUME %1$s ends that." },
    { "draining", "%1$s is draining, and has nothing left to start: RESUME %1$s opens it again." },
    { "halted", "%1$s has channels that wait for a decision on a dead job: DEAD %1$s shows them, "
                "RETRY or DROP decides." },
    { "backoff", "%1$s waits to try again what has failed: JOBS %1$s STATUS waiting shows when "
                 "and why; STAGE %1$s backoff 1s shortens the next ones." },
    { "delay", "%1$s waits for delayed jobs to be due: JOBS %1$s STATUS delayed shows when." },
    { "limit", "%1$s runs as many jobs as it may, with %2$s waiting: STAGE %1$s concurrency none "
               "lifts the limit." },
    { "rate", "%1$s has started as many jobs as its rate allows, with %2$s waiting: STAGE %1$s "
              "rate none lifts it." },
    { "downstream", "%1$s does not start because a stage that its jobs go to next has too many "
                    "waiting; which one this token may not see." },
    { "no-worker", "%1$s has no worker, and %2$s waiting: TAKE %1$s takes one." },
};

static const char *sentence_of(const char *held_by) {
    for (size_t i = 0; i < sizeof holds / sizeof *holds; i++)
        if (strcmp(held_by, holds[i].held_by) == 0)
            return holds[i].sentence;
    return NULL;
}

static void why_downstream(struct session *s, const char *name, const char *held_by) {
    char to[256];
    snprintf(to, sizeof to, "%s", strchr(held_by, ':') + 1);
    char *stuck = strchr(to, ' ');
    if (stuck)
        *stuck = 0;
    say(s,
        "%s does not start because %s, where its jobs go next, has too many waiting%s: WHY %s "
        "tells more; STAGE %s high-mark none lifts the limit.",
        name, to, stuck ? " and cannot move by itself" : "", to, to);
}

static void why_held(struct session *s, const struct stage_info *i, const char *sentence,
                     const char *name) {
    char text[SENTENCE], waiting[32];
    const char *plural = i->waiting == 1 ? "" : "s";
    snprintf(waiting, sizeof waiting, "%" PRIu64 " job%s", i->waiting, plural);
    snprintf(text, sizeof text, sentence, name, waiting);
    if (i->draining && strcmp(i->held_by, "draining") != 0)
        say(s, "%s It also drains, and refuses pushes: RESUME %s ends that.", text, name);
    else
        reply_bulk(&s->reply, mr_str(text));
}

static void why_stage(struct session *s, struct stage_info *i) {
    char name[256];
    access_hide_downstream(s, i);
    snprintf(name, sizeof name, "%.*s", (int)i->name.size, (const char *)i->name.data);
    const char *sentence = sentence_of(i->held_by);
    if (sentence)
        why_held(s, i, sentence, name);
    else if (strncmp(i->held_by, "downstream:", 11) == 0)
        why_downstream(s, name, i->held_by);
    else if (i->running)
        say(s,
            "%s is working%s (running: %" PRIu64 ", waiting: %" PRIu64
            "); more workers (TAKE %s) would run more at once.",
            name, i->draining ? " off what it has: it drains, and refuses pushes" : "", i->running,
            i->waiting, name);
    else
        say(s, "%s has no work: PUSH %s BODY hands in a job.", name, name);
}

// ---- A job ------------------------------------------------------------------------------------

static int first_id(void *arg, const struct job_info *i) {
    *(uint64_t *)arg = i->id;
    return 1;
}

// A job that waits behind others of its channel. False: it is the first.
static bool why_channel(struct session *s, const struct job_info *i) {
    struct channel_info channel;
    struct job_walk w = { .stage = i->stage, .key = i->key, .status = JOB_RUNNING };
    uint64_t first = 0;
    struct core *core = s->host->parts[i->shard].core;
    if (!i->key.size || core_look_channel(core, i->stage, i->key, &channel) < 0)
        return false;
    int shown = i->key.size < KEY_SHOWN ? (int)i->key.size : KEY_SHOWN;
    const char *key = i->key.data;
    if (channel.halted) {
        say(s,
            "Job %" PRIu64 " waits for a decision on a dead job of its key '%.*s': RETRY or "
            "DROP that one (DEAD %.*s shows it).",
            i->id, shown, key, (int)i->stage.size, (const char *)i->stage.data);
        return true;
    }
    if (core_walk(core, &w, first_id, &first) < 0)
        return false;
    w.status = JOB_WAITING;
    if (!first && core_walk(core, &w, first_id, &first) < 0)
        return false;
    if (!first || first == i->id)
        return false;
    say(s,
        "Job %" PRIu64 " waits behind job %" PRIu64 ", which comes first of its key '%.*s': "
        "WHY %" PRIu64 " tells about that one, CANCEL %" PRIu64 " would end it.",
        i->id, first, shown, key, first, first);
    return true;
}

static void why_waiting(struct session *s, const struct job_info *i) {
    struct stage_info stage;
    if (why_channel(s, i))
        return;
    if (i->due_ms > 0)
        say(s,
            "Job %" PRIu64 " has failed %u of %u times and is tried again in %" PRId64 " ms: "
            "JOB %" PRIu64 " tells why; CANCEL %" PRIu64 " ends it.",
            i->id, i->attempt, i->attempts, i->due_ms, i->id, i->id);
    else if (shards_look_stage(s->host, i->stage, &stage) == 0)
        why_stage(s, &stage);
}

static void why_job(struct session *s, const struct job_info *i) {
    switch (i->status) {
    case JOB_DELAYED:
        say(s, "Job %" PRIu64 " is due in %" PRId64 " ms: CANCEL %" PRIu64 " ends it before.",
            i->id, i->due_ms, i->id);
        break;
    case JOB_WAITING:
        why_waiting(s, i);
        break;
    case JOB_RUNNING:
        say(s,
            "Job %" PRIu64 " is running, attempt %u of %u: CANCEL %" PRIu64
            " tells its worker to stop.",
            i->id, i->attempt, i->attempts, i->id);
        break;
    case JOB_DEAD:
        say(s,
            "Job %" PRIu64 " is dead after %u attempt%s: JOB %" PRIu64 " tells why, RETRY %" PRIu64
            " lets it live again.",
            i->id, i->attempt, i->attempt == 1 ? "" : "s", i->id, i->id);
        break;
    case JOB_DONE:
    case JOB_EXPIRED:
    case JOB_CANCELLED:
        say(s, "Job %" PRIu64 " waits for nothing: it has ended (%s); AWAIT %" PRIu64 " tells how.",
            i->id, job_status_name(i->status), i->id);
        break;
    }
}

// A stage's name may consist of digits: then a job of that id comes first.
void run_why(struct session *s, struct arguments *a) {
    mr_bytes word = a->words[1];
    struct job_info job;
    struct stage_info stage;
    uint64_t id;
    bool digits = number_parse(word, &id) == 0;
    if (s->host->stopped)
        say(s,
            "Nothing is accepted or started because the log has failed (%s): mend what it names, "
            "then restart the server; what was answered before is kept.",
            s->host->why_stopped);
    else if (digits && shards_look_job(s->host, id, &job) == 0 && access_sees(s, job.stage))
        why_job(s, &job);
    else if (!digits && !access_name(s, "stage", word))
        return;
    else if (access_sees(s, word) && shards_look_stage(s->host, word, &stage) == 0)
        why_stage(s, &stage);
    else
        answer_error(s, error_set(MR_EGONE, "no %s '%.*s' is known (any more)",
                                  digits ? "job or stage" : "stage",
                                  (int)(word.size < KEY_SHOWN ? word.size : KEY_SHOWN),
                                  (const char *)word.data));
}
