// millrace stages, channels, workers, epics, why: what there is, and what it waits for.
#include "cli/engine.h"
#include "cli/output.h"
#include "cli/sentence.h"
#include "cli/show.h"
#include "cli/talk.h"

#include <stdio.h>
#include <string.h>

static const struct column stage_columns[] = {
    { "name", "STAGE", SHAPE_TEXT },
    { "waiting", "WAITING", SHAPE_NUMBER },
    { "running", "RUNNING", SHAPE_NUMBER },
    { "delayed", "DELAYED", SHAPE_NUMBER },
    { "parked", "PARKED", SHAPE_NUMBER },
    { "dead", "DEAD", SHAPE_BAD },
    { "oldest-ms", "OLDEST", SHAPE_AGE },
    { "in-per-s", "IN/S", SHAPE_RATE },
    { "out-per-s", "OUT/S", SHAPE_RATE },
    { "held-by", "HELD BY", SHAPE_TEXT },
    { 0 },
};

static enum cli_exit answer_stages(const struct input *in, const struct response_value *reply) {
    return show_rows(in, stage_columns, reply, "there are no stages yet; a push makes one");
}

enum cli_exit stages_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "STAGES");
    return talk_page(in, &w, "COUNT", answer_stages);
}

static const struct column channel_columns[] = {
    { "key", "KEY", SHAPE_TEXT },         { "depth", "DEPTH", SHAPE_NUMBER },
    { "oldest-ms", "OLDEST", SHAPE_AGE }, { "state", "STATE", SHAPE_TEXT },
    { "parked-ms", "PARKED", SHAPE_AGE }, { 0 },
};

static enum cli_exit answer_channels(const struct input *in, const struct response_value *reply) {
    return show_rows(in, channel_columns, reply, "no key of this stage has two jobs or more");
}

enum cli_exit channels_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "CHANNELS");
    words_text(&w, in->arguments[0]);
    return talk_page(in, &w, "TOP", answer_channels);
}

static const struct column worker_columns[] = {
    { "id", "ID", SHAPE_NUMBER },
    { "name", "NAME", SHAPE_TEXT },
    { "address", "ADDRESS", SHAPE_TEXT },
    { "stages", "STAGES", SHAPE_TEXT },
    { "leases", "LEASES", SHAPE_NUMBER },
    { "taken", "TAKEN", SHAPE_NUMBER },
    { "ended", "ENDED", SHAPE_NUMBER },
    { "age-ms", "SINCE", SHAPE_AGE },
    { 0 },
};

static enum cli_exit answer_workers(const struct input *in, const struct response_value *reply) {
    return show_rows(in, worker_columns, reply, "nobody works here now");
}

enum cli_exit workers_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "WORKERS");
    return talk_page(in, &w, "COUNT", answer_workers);
}

static const struct column epic_columns[] = {
    { "name", "EPIC", SHAPE_TEXT },
    { "total", "TOTAL", SHAPE_OPEN },
    { "accepted", "ACCEPTED", SHAPE_NUMBER },
    { "waiting", "WAITING", SHAPE_NUMBER },
    { "running", "RUNNING", SHAPE_NUMBER },
    { "done", "DONE", SHAPE_NUMBER },
    { "dead", "DEAD", SHAPE_BAD },
    { "cancelled", "CANCELLED", SHAPE_NUMBER },
    { "expired", "EXPIRED", SHAPE_NUMBER },
    { "stage", "STAGE", SHAPE_TEXT },
    { "held-by", "HELD BY", SHAPE_TEXT },
    { 0 },
};

static enum cli_exit answer_epics(const struct input *in, const struct response_value *reply) {
    return show_rows(in, epic_columns, reply, "there are no epics");
}

enum cli_exit epics_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "EPICS");
    return talk_page(in, &w, "COUNT", answer_epics);
}

// ---- Why --------------------------------------------------------------------------------------

static enum cli_exit answer_why(const struct input *in, const struct response_value *reply) {
    struct json j = { 0 };
    char sentence[2048], typed[4096], at[ADDRESS_OPTION];
    if (!input_option(in, "--json")) {
        text_plain(sentence, sizeof sentence, reply->bytes);
        printf("%s\n", sentence_typed(typed, sizeof typed, sentence, address_option(in, at)));
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
