// millrace stages, channels, workers, epics, why: commands that list, and explain what waits.
#include "cli/engine.h"
#include "cli/output.h"
#include "cli/sentence.h"
#include "cli/show.h"
#include "cli/talk.h"

#include <stdio.h>
#include <string.h>

#define STAGE(member) offsetof(struct stage_reply, member)

static const struct column stage_columns[] = {
    { STAGE(name), "STAGE", SHAPE_TEXT },
    { STAGE(waiting), "WAITING", SHAPE_NUMBER },
    { STAGE(running), "RUNNING", SHAPE_NUMBER },
    { STAGE(delayed), "DELAYED", SHAPE_NUMBER },
    { STAGE(parked), "PARKED", SHAPE_NUMBER },
    { STAGE(dead), "DEAD", SHAPE_BAD },
    { STAGE(oldest_ms), "OLDEST", SHAPE_AGE },
    { STAGE(in_per_s), "IN/S", SHAPE_RATE },
    { STAGE(out_per_s), "OUT/S", SHAPE_RATE },
    { STAGE(held_by), "HELD BY", SHAPE_TEXT },
    { 0 },
};

static const struct cli_listing stages_listing = { &stage_replies, stage_columns,
                                                   "there are no stages yet; a push makes one" };

enum cli_exit stages_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "STAGES");
    return talk_page(in, &w, "COUNT", &stages_listing);
}

#define CHANNEL(member) offsetof(struct channel_reply, member)

static const struct column channel_columns[] = {
    { CHANNEL(key), "KEY", SHAPE_TEXT },         { CHANNEL(depth), "DEPTH", SHAPE_NUMBER },
    { CHANNEL(oldest_ms), "OLDEST", SHAPE_AGE }, { CHANNEL(state), "STATE", SHAPE_TEXT },
    { CHANNEL(parked_ms), "PARKED", SHAPE_AGE }, { 0 },
};

static const struct cli_listing channels_listing = { &channel_replies, channel_columns,
                                                     "no key of this stage has two jobs or more" };

#define GROUP(member) offsetof(struct group_reply, member)

static const struct column group_columns[] = {
    { GROUP(group), "GROUP", SHAPE_TEXT },       { GROUP(depth), "DEPTH", SHAPE_NUMBER },
    { GROUP(running), "RUNNING", SHAPE_NUMBER }, { GROUP(ready), "READY", SHAPE_NUMBER },
    { GROUP(held_by), "HELD BY", SHAPE_TEXT },   { 0 },
};

static const struct cli_listing groups_listing = { &group_replies, group_columns,
                                                   "no group of this stage has two jobs or more" };

enum cli_exit channels_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "CHANNELS");
    words_text(&w, in->arguments[0]);
    if (!input_option(in, "--groups"))
        return talk_page(in, &w, "TOP", &channels_listing);
    words_text(&w, "GROUPS");
    return talk_page(in, &w, "TOP", &groups_listing);
}

#define WORKER(member) offsetof(struct worker_reply, member)

static const struct column worker_columns[] = {
    { WORKER(id), "ID", SHAPE_NUMBER },         { WORKER(name), "NAME", SHAPE_TEXT },
    { WORKER(address), "ADDRESS", SHAPE_TEXT }, { WORKER(stages), "STAGES", SHAPE_TEXT },
    { WORKER(leases), "LEASES", SHAPE_NUMBER }, { WORKER(level), "LEVEL", SHAPE_NUMBER },
    { WORKER(taken), "TAKEN", SHAPE_NUMBER },   { WORKER(ended), "ENDED", SHAPE_NUMBER },
    { WORKER(age_ms), "SINCE", SHAPE_AGE },     { 0 },
};

static const struct cli_listing workers_listing = { &worker_replies, worker_columns,
                                                    "no worker is connected" };

enum cli_exit workers_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "WORKERS");
    return talk_page(in, &w, "COUNT", &workers_listing);
}

#define EPIC(member) offsetof(struct epic_reply, member)

static const struct column epic_columns[] = {
    { EPIC(name), "EPIC", SHAPE_TEXT },
    { EPIC(total), "TOTAL", SHAPE_OPEN },
    { EPIC(accepted), "ACCEPTED", SHAPE_NUMBER },
    { EPIC(waiting), "WAITING", SHAPE_NUMBER },
    { EPIC(running), "RUNNING", SHAPE_NUMBER },
    { EPIC(done), "DONE", SHAPE_NUMBER },
    { EPIC(dead), "DEAD", SHAPE_BAD },
    { EPIC(cancelled), "CANCELLED", SHAPE_NUMBER },
    { EPIC(expired), "EXPIRED", SHAPE_NUMBER },
    { EPIC(stage), "STAGE", SHAPE_TEXT },
    { EPIC(held_by), "HELD BY", SHAPE_TEXT },
    { 0 },
};

static const struct cli_listing epics_listing = { &epics_replies, epic_columns,
                                                  "there are no epics" };

enum cli_exit epics_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "EPICS");
    return talk_page(in, &w, "COUNT", &epics_listing);
}

// ---- Why --------------------------------------------------------------------------------------

static enum cli_exit answer_why(const struct input *in, const struct response_value *reply) {
    struct json j = { 0 };
    char sentence[2048], typed[4096], at[ADDRESS_OPTION];
    if (!input_option(in, "--json")) {
        text_plain(sentence, sizeof sentence, reply->bytes);
        printf("%s\n", sentence_for_shell(typed, sizeof typed, sentence, address_option(in, at)));
        return CLI_DONE;
    }
    json_open(&j, NULL, '{');
    json_bytes(&j, "why", reply->bytes);
    json_close(&j, '}');
    json_end(&j);
    return CLI_DONE;
}

enum cli_exit why_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "WHY");
    words_text(&w, in->arguments[0]);
    return talk_once(in, STORE_MUST_EXIST, &w, answer_why);
}
