// WHY: one sentence on what a stage or a job is waiting for, and the command that would change it.
#include "server/access.h"
#include "server/answer.h"
#include "server/shards.h"

#include "base/errors.h"
#include "wire/number.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

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

static void why_stage(struct session *s, struct stage_info *i) {
    char text[STAGE_WHY_MOST];
    access_hide_downstream(s, i);
    stage_why(i, text, sizeof text);
    reply_bulk(&s->reply, mr_str(text));
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
