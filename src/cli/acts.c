// millrace retry, drop, due, pause, resume, drain, stage: commands that change jobs and stages.
#include "base/bytes.h"
#include "cli/output.h"
#include "cli/show.h"
#include "cli/talk.h"
#include "cli/values.h"
#include "core/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- retry, drop ------------------------------------------------------------------------------

#define ALL INT64_C(1000000000000)

static enum cli_exit acts_refuse(const struct input *in, const char *why) {
    complain("%s: %s; see: millrace help %s", in->command->name, why, in->command->name);
    return CLI_USAGE;
}

// Only the row of drop has --waiting.
static const char *waiting(const struct input *in) {
    return strcmp(in->command->name, "drop") == 0 ? input_option(in, "--waiting") : NULL;
}

static bool add_stage(const struct input *in, struct words *w) {
    uint64_t max = ALL;
    if (!input_count(in, "--max", ALL, &max))
        return false;
    words_text(w, "STAGE");
    words_text(w, in->arguments[0]);
    words_text(w, waiting(in) ? "WAITING" : "DEAD");
    words_option(w, "KEY", input_option(in, "--key"));
    words_option(w, "REASON", input_option(in, "--reason"));
    words_text(w, "MAX");
    words_number(w, (int64_t)max);
    if (input_option(in, "--dry-run"))
        words_text(w, "DRY");
    return true;
}

static bool narrows(const struct input *in) {
    return input_option(in, "--key") || input_option(in, "--reason") || input_option(in, "--max") ||
           input_option(in, "--dry-run");
}

// Prints how many of the jobs that were named were changed.
static enum cli_exit answer_ids(const struct input *in, int64_t count, const char *what) {
    (void)show_count(in, count, what);
    if (count == in->count)
        return CLI_DONE;
    complain("%s: %" PRId64 " of %d could not be %s", in->command->name, in->count - count,
             in->count, what);
    return CLI_FAILED;
}

// If jobs are refused it is for their status, which is a failure and no wrong usage.
static enum cli_exit acts_act_on_ids(const struct input *in, const char *name, const char *what) {
    struct talks *ts;
    struct talk *t;
    struct words w = { 0 };
    const struct response_value *reply;
    words_text(&w, name);
    for (int i = 0; i < in->count; i++) {
        words_text(&w, in->list[i]);
        if (in->list[i][strspn(in->list[i], "0123456789")]) {
            words_finish(&w);
            complain("%s: '%.60s' is not an id; of a stage: millrace %s STAGE --dead",
                     in->command->name, in->list[i], in->command->name);
            return CLI_USAGE;
        }
    }
    enum cli_exit code = talk_begin(in, STORE_MUST_EXIST, &ts, &t);
    if (code == CLI_DONE) {
        code = talk_get(t, &w, &reply);
        code = code == CLI_DONE    ? answer_ids(in, reply->integer, what)
               : code == CLI_USAGE ? CLI_FAILED
                                   : code;
        talks_close(ts);
    }
    words_finish(&w);
    return code;
}

static enum cli_exit acts_act(const struct input *in, const char *name, const char *what,
                              answered *answer) {
    bool dead = input_option(in, "--dead") != NULL, of_stage = dead || waiting(in);
    struct words w = { 0 };
    if (dead && waiting(in))
        return acts_refuse(in, "either --dead or --waiting");
    if (of_stage && in->count > 1)
        return acts_refuse(in, "with --dead or --waiting it takes one stage");
    if (!of_stage && narrows(in))
        return acts_refuse(in, "these options narrow down a stage: STAGE --dead …");
    if (!of_stage)
        return acts_act_on_ids(in, name, what);
    words_text(&w, name);
    if (!add_stage(in, &w)) {
        words_finish(&w);
        return CLI_USAGE;
    }
    return talk_once(in, STORE_MUST_EXIST, &w, answer);
}

static enum cli_exit answer_retry(const struct input *in, const struct response_value *reply) {
    bool dry = input_option(in, "--dry-run") != NULL;
    return show_count(in, reply->integer, dry ? "would be retried" : "retried");
}

static enum cli_exit answer_drop(const struct input *in, const struct response_value *reply) {
    bool dry = input_option(in, "--dry-run") != NULL;
    return show_count(in, reply->integer, dry ? "would be dropped" : "dropped");
}

enum cli_exit retry_run(const struct input *in) {
    return acts_act(in, "RETRY", "retried", answer_retry);
}

enum cli_exit drop_run(const struct input *in) {
    return acts_act(in, "DROP", "dropped", answer_drop);
}

// ---- due --------------------------------------------------------------------------------------

// The wire takes one id.
static enum cli_exit due_all(const struct input *in, struct talk *t, int64_t *out_changed) {
    enum cli_exit code = CLI_DONE;
    for (int i = 0; i < in->count && code == CLI_DONE; i++) {
        struct words w = { 0 };
        const struct response_value *reply;
        words_option(&w, "DUE", in->list[i]);
        code = talk_get(t, &w, &reply);
        *out_changed += code == CLI_DONE ? reply->integer : 0;
        words_finish(&w);
    }
    return code;
}

enum cli_exit due_run(const struct input *in) {
    struct talks *ts;
    struct talk *t;
    int64_t changed = 0;
    enum cli_exit code = talk_begin(in, STORE_MUST_EXIST, &ts, &t);
    if (code != CLI_DONE)
        return code;
    code = due_all(in, t, &changed);
    talks_close(ts);
    return code == CLI_DONE ? answer_ids(in, changed, "made due") : code;
}

// ---- Stages -----------------------------------------------------------------------------------

static enum cli_exit print_done(const struct input *in, bool is_new, const char *what) {
    struct json j = { 0 };
    if (!input_option(in, "--json")) {
        printf("%s %s\n", in->arguments[0], what);
        return CLI_DONE;
    }
    json_open(&j, NULL, '{');
    json_text(&j, "stage", in->arguments[0]);
    json_flag(&j, "ok", true);
    json_flag(&j, "new", is_new);
    json_close(&j, '}');
    json_end(&j);
    return CLI_DONE;
}

// A command that changes the state of a stage, and what is printed. A stage that did not exist
// before may be intended, or its name is misspelt: so that is mentioned.
struct policy_change {
    const char *command;
    const char *known, *unknown; // unknown NULL: such a stage is refused
    const char *key;             // NULL: the whole stage
};

static enum cli_exit ask_change(const struct input *in, struct talk *t, struct words *w,
                                const struct policy_change *change) {
    const char *stage = in->arguments[0];
    const struct response_value *reply;
    words_text(w, "STAGES");
    words_option(w, "NAME", stage);
    int err = talk_ask(t, w, &reply);
    if (err < 0)
        return talk_failed(t, err);
    bool is_new = error_is(reply, CODE_GONE);
    if (reply->type == RESPONSE_ERROR && !is_new)
        return talk_refused(t, reply);
    if (is_new && !change->unknown) {
        complain("%s: there is no stage %.200s", in->command->name, stage);
        return CLI_FAILED;
    }
    words_clear(w);
    words_option(w, change->command, stage);
    words_option(w, "KEY", change->key);
    enum cli_exit code = talk_get(t, w, &reply);
    return code == CLI_DONE ? print_done(in, is_new, is_new ? change->unknown : change->known)
                            : code;
}

static enum cli_exit change_stage(const struct input *in, const struct policy_change *change) {
    struct talks *ts;
    struct talk *t;
    struct words w = { 0 };
    enum cli_exit code = talk_begin(in, STORE_MUST_EXIST, &ts, &t);
    if (code != CLI_DONE)
        return code;
    code = ask_change(in, t, &w, change);
    words_finish(&w);
    talks_close(ts);
    return code;
}

enum cli_exit pause_run(const struct input *in) {
    const char *key = input_option(in, "--key");
    const struct policy_change of_stage = { "PAUSE", "is paused: it accepts jobs and starts none",
                                            "is new: paused before its first job", NULL };
    const struct policy_change of_key = { "PAUSE", "starts no jobs of this key",
                                          "is new: this key is paused before its first job", key };
    return change_stage(in, key ? &of_key : &of_stage);
}

enum cli_exit resume_run(const struct input *in) {
    const char *key = input_option(in, "--key");
    const struct policy_change change = { "RESUME", "goes on", NULL, key };
    return change_stage(in, &change);
}

enum cli_exit drain_run(const struct input *in) {
    static const struct policy_change change = {
        "DRAIN", "drains: it finishes what it has and accepts no jobs",
        "is new: it accepts no jobs until it is resumed", NULL
    };
    return change_stage(in, &change);
}

// ---- Policies ---------------------------------------------------------------------------------

static bool is_duration(mr_bytes name) {
    const struct policy_row *row = policy_find(name);
    return row && policy_is_duration(row);
}

// On the wire a bare number is milliseconds; here a unit is required.
static bool add_policy(const char *pair, struct words *w) {
    const char *equals = strchr(pair, '=');
    if (!equals) {
        complain("stage: '%.60s' is no policy; it is NAME=VALUE, such as lease=30s", pair);
        return false;
    }
    mr_bytes name = { pair, (size_t)(equals - pair) };
    const char *value = equals + 1;
    int digits = (int)strspn(value, "0123456789");
    if (is_duration(name) && digits && (!value[digits] || strchr(".,", value[digits]))) {
        complain("stage: '%.60s' has no unit; %.*s%.*ss is in seconds, others are ms m h d", pair,
                 (int)(value - pair), pair, digits, value);
        return false;
    }
    words_add(w, name);
    words_text(w, value);
    return true;
}

// Durations get their units. A policy that this program does not know is printed as it came.
static void acts_print_policy(mr_bytes name, mr_bytes value) {
    char text[128];
    const struct policy_row *row = policy_find(name);
    struct policy p = { 0 };
    if (row && policy_set(&p, name, value) == 0)
        policy_text(&p, row, text, sizeof text);
    else
        text_plain(text, sizeof text, value);
    printf("%-13.*s  %s\n", (int)name.size, (const char *)name.data, text);
}

static enum cli_exit answer_stage(const struct input *in, const struct response_value *reply) {
    if (reply->type == RESPONSE_SIMPLE)
        return print_done(in, false, input_option(in, "--remove") ? "is removed" : "is set");
    if (input_option(in, "--json"))
        return show_map(in, reply);
    for (uint32_t i = 1; i + 1 <= reply->count;
         i += 2) // names and texts: no value has others inside
        acts_print_policy(reply[i].bytes, reply[i + 1].bytes);
    return CLI_DONE;
}

bool stage_help_row(size_t index, char *out, size_t size) {
    const struct policy_row *row = policy_row(index);
    struct policy usual = policy_default();
    char value[POLICY_TEXT];
    if (!row)
        return false;
    policy_text(&usual, row, value, sizeof value);
    (void)snprintf(out, size, "%-13s  %-46s  %s", row->name, row->about, value);
    return true;
}

enum cli_exit stage_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "STAGE");
    words_text(&w, in->arguments[0]);
    if (input_option(in, "--remove"))
        words_text(&w, "REMOVE");
    if (input_option(in, "--remove") && in->count > 1) {
        words_finish(&w);
        complain("stage: --remove forgets the stage: NAME=VALUE does not go with it");
        return CLI_USAGE;
    }
    for (int i = 1; i < in->count; i++) {
        if (!add_policy(in->list[i], &w)) {
            words_finish(&w);
            return CLI_USAGE;
        }
    }
    bool changes = in->count > 1 || input_option(in, "--remove");
    return talk_once(in, changes ? STORE_IS_MADE : STORE_MUST_EXIST, &w, answer_stage);
}
