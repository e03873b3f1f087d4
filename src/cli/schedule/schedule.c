// millrace schedule: lists schedules, shows one, makes or replaces one, acts on one.
#include "base/job_spec.h"
#include "base/limits.h"
#include "cli/body.h"
#include "cli/output.h"
#include "cli/show.h"
#include "cli/talk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SCHEDULE(member) offsetof(struct schedule_reply, member)

static const struct column schedule_columns[] = {
    { SCHEDULE(stage), "STAGE", SHAPE_TEXT },
    { SCHEDULE(name), "SCHEDULE", SHAPE_TEXT },
    { SCHEDULE(cron), "WHEN", SHAPE_WHEN },
    { SCHEDULE(zone), "TZ", SHAPE_TEXT },
    { SCHEDULE(next_at), "NEXT", SHAPE_MOMENT },
    { SCHEDULE(last_at), "LAST", SHAPE_MOMENT },
    { SCHEDULE(pushed), "PUSHED", SHAPE_NUMBER },
    { SCHEDULE(paused), "PAUSED", SHAPE_FLAG },
    { 0 },
};

static const struct cli_listing schedules_listing = { &schedule_replies, schedule_columns,
                                                      "there are no schedules" };

static enum cli_exit schedule_refuse(const char *why) {
    complain("schedule: %s; see: millrace help schedule", why);
    return CLI_USAGE;
}

static enum cli_exit schedules_list(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "SCHEDULES");
    if (in->count)
        words_text(&w, in->list[0]);
    return talk_page(in, &w, "COUNT", &schedules_listing);
}

// A map as it is, and the next times a line each.
static enum cli_exit answer_schedule(const struct input *in, const struct response_value *reply) {
    struct schedule_reply s = { 0 };
    char time[TIME_WORDS];
    (void)show_map(in, reply);
    if (input_option(in, "--json") || !reply_read(&schedule_replies, reply, &s))
        return CLI_DONE;
    const struct response_value *at = s.upcoming.value;
    for (uint32_t i = 0; at && at->type == RESPONSE_ARRAY && i < at->count; i++)
        printf("%-11s  %s\n", i ? "" : "upcoming",
               time_words(time, (uint64_t)at[1 + i].integer, false));
    return CLI_DONE;
}

static enum cli_exit answer_done(const struct input *in, const struct response_value *reply) {
    (void)reply;
    if (input_option(in, "--json"))
        printf("{\"ok\":true}\n");
    return CLI_DONE;
}

static void schedule_words(const struct input *in, struct words *w) {
    words_text(w, "SCHEDULE");
    words_text(w, in->list[0]);
    words_text(w, in->list[1]);
}

#define ADD_OPTION(member, kind, word, value, name, ...)                                           \
    words_option(w, word, input_option(in, "--" name));

// Durations have units here as well as there.
static void schedule_add_options(const struct input *in, struct words *w) {
    words_option(w, "CRON", input_option(in, "--cron"));
    words_option(w, "EVERY", input_option(in, "--every"));
    words_option(w, "TZ", input_option(in, "--tz"));
    words_option(w, "MISSED", input_option(in, "--missed"));
    SCHEDULE_OPTIONS(ADD_OPTION)
}

static enum cli_exit schedule_set(const struct input *in) {
    struct words w = { 0 };
    struct buffer body = { 0 };
    if (!body_read(in->count > 2 ? in->list[2] : NULL, BODY_MOST, &body))
        return CLI_FAILED;
    schedule_words(in, &w);
    words_text(&w, "PUSH");
    words_add(&w, buffer_bytes(&body));
    schedule_add_options(in, &w);
    enum cli_exit code = talk_once(in, STORE_MUST_EXIST, &w, answer_done);
    buffer_finish(&body);
    return code;
}

static enum cli_exit schedule_act(const struct input *in) {
    static const char *const verbs[] = { "drop", "pause", "resume", "now" };
    struct words w = { 0 };
    size_t i = 0;
    while (i < sizeof verbs / sizeof *verbs && strcmp(in->list[2], verbs[i]) != 0)
        i++;
    if (i == sizeof verbs / sizeof *verbs)
        return schedule_refuse("behind STAGE NAME comes drop, pause, resume or now; or a body, "
                               "with --cron or --every");
    schedule_words(in, &w);
    words_text(&w, verbs[i]);
    return talk_once(in, STORE_MUST_EXIST, &w, answer_done);
}

static bool says_when(const struct input *in) {
    return input_option(in, "--cron") || input_option(in, "--every");
}

enum cli_exit schedule_run(const struct input *in) {
    struct words w = { 0 };
    bool options = input_option(in, "--tz") || input_option(in, "--missed");
    if (says_when(in) && in->count < 2)
        return schedule_refuse("a schedule needs STAGE and NAME");
    if (!says_when(in) && options)
        return schedule_refuse("--tz and --missed belong to --cron or --every");
    if (in->count < 2)
        return schedules_list(in);
    if (says_when(in))
        return schedule_set(in);
    if (in->count > 2)
        return schedule_act(in);
    schedule_words(in, &w);
    return talk_once(in, STORE_MUST_EXIST, &w, answer_schedule);
}
