// millrace push and call: one job.
#include "cli/push.h"

#include "base/limits.h"
#include "cli/body.h"
#include "cli/engine.h"
#include "cli/output.h"
#include "cli/show.h"
#include "cli/values.h"

#include <stdio.h>

bool push_options_read(const struct input *in, struct push_options *out) {
    struct push_options o = { .key = input_option(in, "--key"),
                              .once = input_option(in, "--once") };
    if (!input_duration(in, "--delay", &o.delay_ms) ||
        !input_duration(in, "--deadline", &o.deadline_ms) ||
        !input_duration(in, "--room", &o.room_ms) ||
        !input_count(in, "--attempts", UINT16_MAX, &o.attempts))
        return false;
    *out = o;
    return true;
}

static void say_number(struct words *w, const char *name, int64_t number) {
    if (!number)
        return;
    words_text(w, name);
    words_number(w, number);
}

void push_options_say(const struct push_options *o, struct words *w) {
    words_option(w, "KEY", o->key);
    words_option(w, "ONCE", o->once);
    say_number(w, "DELAY", o->delay_ms);
    say_number(w, "DEADLINE", o->deadline_ms);
    say_number(w, "ATTEMPTS", (int64_t)o->attempts);
    say_number(w, "ROOM", o->room_ms);
}

static enum cli_exit answer_push(const struct input *in, const struct response_value *reply) {
    struct json j = { 0 };
    if (input_option(in, "--json")) {
        json_open(&j, NULL, '{');
        show_json_value(&j, "id", reply);
        json_close(&j, '}');
        json_end(&j);
    } else {
        printf("%.*s\n", (int)reply->bytes.size, (const char *)reply->bytes.data);
    }
    return CLI_DONE;
}

// Asks PUSH or CALL with the body that the command line names.
static enum cli_exit ask(const struct input *in, const char *name, answered *answer) {
    struct push_options o;
    struct buffer body;
    struct words w = { 0 };
    if (!push_options_read(in, &o) || !body_read(in->arguments[1], BODY_MOST, &body))
        return CLI_USAGE;
    words_text(&w, name);
    words_text(&w, in->arguments[0]);
    words_add(&w, buffer_bytes(&body));
    push_options_say(&o, &w);
    enum cli_exit code = talk_once(in, TALK_MAKES, &w, answer);
    buffer_finish(&body);
    return code;
}

enum cli_exit push_run(const struct input *in) {
    static const char *const of_lines[] = { "--epic",     "--key-field", "--key-regex",
                                            "--key-json", "--delimiter", "-0" };
    if (input_option(in, "--lines"))
        return push_lines(in);
    for (size_t i = 0; i < sizeof of_lines / sizeof *of_lines; i++)
        if (input_option(in, of_lines[i])) {
            complain("push: %s goes with --lines only", of_lines[i]);
            return CLI_USAGE;
        }
    return ask(in, "PUSH", answer_push);
}

// In this process nobody works, and nobody else can while it has the store.
enum cli_exit call_run(const struct input *in) {
    if (address_is_local(in)) {
        complain("call: without a server nobody could answer; serve the store (millrace serve "
                 "--store file:DIR) and call --at that, or push");
        return CLI_USAGE;
    }
    return ask(in, "CALL", show_result);
}
