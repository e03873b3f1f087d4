// millrace stages, channels, workers, epics, why: commands that list, and explain what waits.
#include "base/limits.h"
#include "base/mem.h"
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

static void print_why(const struct input *in, mr_bytes why) {
    char sentence[2048], typed[4096], at[ADDRESS_OPTION];
    text_plain(sentence, sizeof sentence, why);
    printf("%s\n", sentence_for_shell(typed, sizeof typed, sentence, address_option(in, at)));
}

static enum cli_exit answer_why(const struct input *in, const struct response_value *reply) {
    struct json j = { 0 };
    if (!input_option(in, "--json")) {
        print_why(in, reply->bytes);
        return CLI_DONE;
    }
    json_open(&j, NULL, '{');
    json_bytes(&j, "why", reply->bytes);
    json_close(&j, '}');
    json_end(&j);
    return CLI_DONE;
}

// Stages whose jobs wait because something holds the stage.
struct held_stages {
    uint32_t count;
    struct held_stage {
        int64_t oldest_ms;
        uint8_t size; // of the name
        char name[STAGE_NAME_MOST];
    } at[TALK_ROWS_MOST];
};

// The oldest job first; in the order of STAGES where they are the same.
static void held_insert(struct held_stages *held, const struct stage_reply *stage) {
    struct held_stage made = { .oldest_ms = stage->oldest_ms, .size = (uint8_t)stage->name.size };
    uint32_t place = held->count++;
    memcpy(made.name, stage->name.data, made.size);
    for (; place > 0 && held->at[place - 1].oldest_ms < made.oldest_ms; place--)
        held->at[place] = held->at[place - 1];
    held->at[place] = made;
}

static void held_read(struct held_stages *held, const struct response_value *rows) {
    const struct response_value *row = rows + 1;
    for (uint32_t i = 0; i < rows->count && held->count < TALK_ROWS_MOST; i++) {
        struct stage_reply stage = { .oldest_ms = -1 };
        if (reply_read(&stage_replies, row, &stage) && stage.held_by.size && stage.oldest_ms >= 0 &&
            stage.name.size <= STAGE_NAME_MOST)
            held_insert(held, &stage);
        row = value_next(row);
    }
}

static void show_held(const struct input *in, struct json *j, mr_bytes stage, mr_bytes why) {
    if (!input_option(in, "--json")) {
        print_why(in, why);
        return;
    }
    json_open(j, NULL, '{');
    json_bytes(j, "stage", stage);
    json_bytes(j, "why", why);
    json_close(j, '}');
}

// A stage that was removed since it was listed is left out.
static enum cli_exit ask_why_each(const struct input *in, struct talk *t,
                                  const struct held_stages *held, struct json *j) {
    enum cli_exit code = CLI_DONE;
    struct words w = { 0 };
    for (uint32_t i = 0; code == CLI_DONE && i < held->count; i++) {
        mr_bytes stage = { held->at[i].name, held->at[i].size };
        const struct response_value *reply;
        words_clear(&w);
        words_text(&w, "WHY");
        words_add(&w, stage);
        int err = talk_ask(t, &w, &reply);
        if (err < 0)
            code = talk_failed(t, err);
        else if (reply->type != RESPONSE_ERROR)
            show_held(in, j, stage, reply->bytes);
        else if (!error_is(reply, CODE_GONE))
            code = talk_refused(t, reply);
    }
    words_finish(&w);
    return code;
}

static enum cli_exit why_each(const struct input *in, struct talk *t,
                              const struct held_stages *held) {
    bool as_json = input_option(in, "--json");
    struct json j = { 0 };
    if (as_json)
        json_open(&j, NULL, '[');
    else if (!held->count)
        complain("why: no stage with jobs is held; millrace stages shows them all");
    enum cli_exit code = ask_why_each(in, t, held, &j);
    if (as_json) {
        json_close(&j, ']');
        json_end(&j);
    }
    return code;
}

static enum cli_exit why_all(const struct input *in) {
    struct words w = { 0 };
    const struct response_value *rows;
    struct talks *ts;
    struct talk *t;
    struct held_stages *held = mem_alloc(sizeof *held);
    if (!held) {
        complain("why: no memory for a list of stages");
        return CLI_FAILED;
    }
    enum cli_exit code = talk_begin(in, STORE_MUST_EXIST, &ts, &t);
    if (code == CLI_DONE) {
        words_text(&w, "STAGES");
        code = talk_get(t, &w, &rows);
        if (code == CLI_DONE) {
            held_read(held, rows);
            code = why_each(in, t, held);
        }
        talks_close(ts);
    }
    words_finish(&w);
    mem_free(held);
    return code;
}

enum cli_exit why_run(const struct input *in) {
    struct words w = { 0 };
    if (!in->arguments[0])
        return why_all(in);
    words_text(&w, "WHY");
    words_text(&w, in->arguments[0]);
    return talk_once(in, STORE_MUST_EXIST, &w, answer_why);
}
