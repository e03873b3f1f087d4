// WHY: one sentence that says why a stage or a job waits, with the command that changes it.
#include "server/access.h"
#include "server/answer.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/text.h"
#include "wire/number.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { SENTENCE = 1024, KEY_SHOWN = 80 };

static void write_sentence(struct session *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void write_sentence(struct session *s, const char *format, ...) {
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
        write_sentence(s,
                       "Job %" PRIu64
                       " waits because a dead job halts its key '%.*s': RETRY or DROP the dead "
                       "job (DEAD %.*s shows it).",
                       i->id, shown, key, (int)i->stage.size, (const char *)i->stage.data);
        return true;
    }
    if (channel.paused) {
        write_sentence(s,
                       "Job %" PRIu64 " waits because its key '%.*s' is paused: RESUME %.*s KEY "
                       "%.*s starts its jobs.",
                       i->id, shown, key, (int)i->stage.size, (const char *)i->stage.data, shown,
                       key);
        return true;
    }
    if (core_walk(core, &w, first_id, &first) < 0)
        return false;
    w.status = JOB_WAITING;
    if (!first && core_walk(core, &w, first_id, &first) < 0)
        return false;
    if (!first || first == i->id)
        return false;
    write_sentence(s,
                   "Job %" PRIu64 " waits for job %" PRIu64
                   ", which is the first of its key '%.*s': "
                   "WHY %" PRIu64 " says why that one waits, CANCEL %" PRIu64 " cancels it.",
                   i->id, first, shown, key, first, first);
    return true;
}

// A job whose group is held, while others of its stage may start. False: it is not.
static bool why_group(struct session *s, const struct job_info *i) {
    struct group_info group;
    if (core_look_group(s->host->parts[i->shard].core, i->id, &group) < 0 || !*group.held_by)
        return false;
    bool limit = strcmp(group.held_by, "group-limit") == 0;
    int shown = group.group.size < KEY_SHOWN ? (int)group.group.size : KEY_SHOWN;
    int stage_size = (int)i->stage.size;
    const char *stage = i->stage.data;
    write_sentence(s,
                   "Job %" PRIu64 " waits because its group '%.*s' %s: CHANNELS %.*s GROUPS shows "
                   "the groups; STAGE %.*s %s none removes the limit.",
                   i->id, shown, group.group.size ? (const char *)group.group.data : "",
                   limit ? "runs as many jobs as group-concurrency allows"
                         : "has started as many jobs as group-rate allows",
                   stage_size, stage, stage_size, stage,
                   limit ? "group-concurrency" : "group-rate");
    return true;
}

static void why_waiting(struct session *s, const struct job_info *i) {
    struct stage_info stage;
    char due[AGE_WORDS];
    if (why_channel(s, i))
        return;
    if (i->due_ms > 0 && !i->attempt)
        write_sentence(s,
                       "Job %" PRIu64 " was released and may start again in %s: DUE %" PRIu64
                       " lets it start now; CANCEL %" PRIu64 " cancels it.",
                       i->id, age_words(due, (uint64_t)i->due_ms), i->id, i->id);
    else if (i->due_ms > 0)
        write_sentence(s,
                       "Job %" PRIu64 " has failed %u of %u times and is tried again in %s: "
                       "JOB %" PRIu64 " shows the reason; DUE %" PRIu64
                       " lets it start now; CANCEL %" PRIu64 " cancels it.",
                       i->id, i->attempt, i->attempts, age_words(due, (uint64_t)i->due_ms), i->id,
                       i->id, i->id);
    else if (!why_group(s, i) && shards_look_stage(s->host, i->stage, &stage) == 0)
        why_stage(s, &stage);
}

static void why_job(struct session *s, const struct job_info *i) {
    char due[AGE_WORDS];
    switch (i->status) {
    case JOB_DELAYED:
        write_sentence(s,
                       "Job %" PRIu64 " is delayed and due in %s: DUE %" PRIu64
                       " lets it start now; CANCEL %" PRIu64 " cancels it.",
                       i->id, age_words(due, i->due_ms > 0 ? (uint64_t)i->due_ms : 0), i->id,
                       i->id);
        break;
    case JOB_WAITING:
        why_waiting(s, i);
        break;
    case JOB_RUNNING:
        write_sentence(s,
                       "Job %" PRIu64 " is running, attempt %u of %u: CANCEL %" PRIu64
                       " asks its worker to stop.",
                       i->id, i->attempt, i->attempts, i->id);
        break;
    case JOB_DEAD:
        write_sentence(s,
                       "Job %" PRIu64 " is dead after %u attempt%s: JOB %" PRIu64
                       " shows the reason, RETRY %" PRIu64 " queues it again.",
                       i->id, i->attempt, i->attempt == 1 ? "" : "s", i->id, i->id);
        break;
    case JOB_DONE:
    case JOB_EXPIRED:
    case JOB_CANCELLED:
        write_sentence(s, "Job %" PRIu64 " has ended (%s): AWAIT %" PRIu64 " shows the outcome.",
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
        write_sentence(
            s,
            "No job is accepted or started because the log has failed (%s): correct the fault, "
            "then "
            "restart the server; everything that was answered before is kept.",
            s->host->why_stopped);
    else if (digits && shards_look_job(s->host, id, &job) == 0 && access_sees(s, job.stage))
        why_job(s, &job);
    else if (!digits && !access_name(s, "stage", word))
        return;
    else if (access_sees(s, word) && shards_own_stage(s->host, word) &&
             shards_look_stage(s->host, word, &stage) == 0)
        why_stage(s, &stage);
    else
        answer_error(s,
                     error_set(MR_EGONE, "there is no %s '%.*s'", digits ? "job or stage" : "stage",
                               (int)(word.size < KEY_SHOWN ? word.size : KEY_SHOWN),
                               (const char *)word.data));
}
