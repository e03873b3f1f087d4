// Why a stage does not start jobs: one sentence for people, with the command that changes it.
#include "base/limits.h"
#include "core/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// A value of stage_info.held_by, and its sentence; %1$s is the stage's name, %2$s the number of
// waiting jobs.
static const struct {
    const char *held_by, *sentence;
} sentences[] = {
    { "paused", "%1$s is paused, with %2$s waiting: RESUME %1$s starts them." },
    { "paused-keys", "%1$s has %2$s waiting, of keys that are paused: RESUME %1$s KEY k starts "
                     "those of a key; CHANNELS %1$s shows the keys with the most." },
    { "draining", "%1$s is draining and has no job left: RESUME %1$s lets it accept jobs again." },
    { "halted", "%1$s has channels that are halted by a dead job: DEAD %1$s shows these jobs, "
                "RETRY or DROP ends the halt." },
    { "backoff",
      "%1$s has failed jobs, which are tried again later: JOBS %1$s STATUS waiting shows "
      "when and why; STAGE %1$s backoff 1s shortens later delays." },
    { "delay", "%1$s has delayed jobs only: JOBS %1$s STATUS delayed shows when they are due." },
    { "limit", "%1$s runs as many jobs as its concurrency allows, with %2$s waiting: STAGE %1$s "
               "concurrency none removes the limit." },
    { "rate", "%1$s has started as many jobs as its rate allows, with %2$s waiting: STAGE %1$s "
              "rate none removes the limit." },
    { "group-limit", "%1$s runs as many jobs of each group as its group-concurrency allows, with "
                     "%2$s waiting: CHANNELS %1$s GROUPS shows the groups; STAGE %1$s "
                     "group-concurrency none removes the limit." },
    { "group-rate", "%1$s has started as many jobs of each group as its group-rate allows, with "
                    "%2$s waiting: CHANNELS %1$s GROUPS shows the groups; STAGE %1$s group-rate "
                    "none removes the limit." },
    { "downstream", "%1$s starts no job because a stage that its jobs emit to has too many waiting "
                    "jobs; this token may not see that stage." },
    { "no-worker", "%1$s has no worker, and %2$s waiting: TAKE %1$s takes one." },
};

static const char *sentence_of(const char *held_by) {
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++)
        if (strcmp(held_by, sentences[i].held_by) == 0)
            return sentences[i].sentence;
    return NULL;
}

static void why_downstream(const char *name, const char *held_by, char *out, size_t size) {
    char to[sizeof((struct stage_info *)0)->held_by];
    (void)snprintf(to, sizeof to, "%s", strchr(held_by, ':') + 1);
    char *stuck = strchr(to, ' ');
    if (stuck)
        *stuck = 0;
    (void)snprintf(
        out, size,
        "%s starts no job because %s, which its jobs emit to, has too many waiting jobs%s: "
        "WHY %s says why; STAGE %s high-mark none removes the limit.",
        name, to, stuck ? " and needs an operator to act" : "", to, to);
}

static void why_held(const struct stage_info *i, const char *sentence, const char *name, char *out,
                     size_t size) {
    char text[STAGE_WHY_MOST], waiting[32];
    const char *plural = i->waiting == 1 ? "" : "s";
    (void)snprintf(waiting, sizeof waiting, "%" PRIu64 " job%s", i->waiting, plural);
    (void)snprintf(text, sizeof text, sentence, name, waiting);
    if (i->draining && strcmp(i->held_by, "draining") != 0)
        (void)snprintf(out, size, "%s It is also draining and refuses pushes: RESUME %s ends that.",
                       text, name);
    else
        (void)snprintf(out, size, "%s", text);
}

// More workers are of use only if a job could start now: not if all wait for their keys.
static void why_running(const struct stage_info *i, const char *name, char *out, size_t size) {
    char more[STAGE_NAME_MOST + 100] = "";
    if (i->ready)
        (void)snprintf(more, sizeof more, "; more workers (TAKE %s) would run more at once", name);
    else if (i->waiting)
        (void)snprintf(more, sizeof more,
                       "; all that wait are behind jobs of their keys: CHANNELS %s shows the keys",
                       name);
    (void)snprintf(out, size, "%s runs jobs%s (running: %" PRIu64 ", waiting: %" PRIu64 ")%s.",
                   name, i->draining ? " and is draining: it refuses pushes" : "", i->running,
                   i->waiting, more);
}

void stage_why(const struct stage_info *i, char *out, size_t size) {
    char name[STAGE_NAME_MOST + 1];
    (void)snprintf(name, sizeof name, "%.*s", (int)i->name.size, (const char *)i->name.data);
    const char *sentence = sentence_of(i->held_by);
    if (sentence)
        why_held(i, sentence, name, out, size);
    else if (strncmp(i->held_by, "downstream:", 11) == 0)
        why_downstream(name, i->held_by, out, size);
    else if (i->running)
        why_running(i, name, out, size);
    else if (i->dead && !i->waiting)
        (void)snprintf(out, size,
                       "%s has only dead jobs (%" PRIu64
                       "): DEAD %s shows them, and why they failed.",
                       name, i->dead, name);
    else
        (void)snprintf(out, size, "%s has no jobs: PUSH %s BODY pushes one.", name, name);
}
