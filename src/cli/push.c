// millrace push and call: one job.
#include "cli/push.h"

#include "base/job_spec.h"
#include "cli/body.h"
#include "cli/output.h"
#include "cli/show.h"
#include "cli/values.h"

#include <inttypes.h>
#include <stdio.h>

#define READ_OPTION(member, kind, word, value, name, argument, most, about)                        \
    if (!READ_##kind(in, "--" name, most, &o.member))                                              \
        return false;
#define READ_BYTES(in, name, most, to) input_text(in, name, to)
#define READ_MS(in, name, most, to) input_duration(in, name, to)
#define READ_WAIT(in, name, most, to) input_duration(in, name, to)
#define READ_COUNT(in, name, most, to) input_small_count(in, name, most, to)

bool push_options_read(const struct input *in, mr_push_options *out) {
    mr_push_options o = { 0 };
    CALL_OPTIONS(READ_OPTION)
    ROOM_OPTION(READ_OPTION)
    *out = o;
    return true;
}

static enum cli_exit show_id(const struct input *in, mr_id id) {
    struct json j = { 0 };
    if (!input_option(in, "--json")) {
        printf("%" PRIu64 "\n", id);
        return CLI_DONE;
    }
    json_open(&j, NULL, '{');
    json_id(&j, "id", id);
    json_close(&j, '}');
    json_end(&j);
    return CLI_DONE;
}

static enum cli_exit do_push(const struct input *in, struct engine_use *u, mr_bytes body,
                             const mr_push_options *o) {
    mr_push_options with_last = *o;
    mr_id id;
    with_last.last = input_option(in, "--last") != NULL;
    int err = mr_push(u->engine, in->arguments[0], body, &with_last, &id);
    return err < 0 ? engine_failed(u, err) : show_id(in, id);
}

static enum cli_exit do_call(const struct input *in, struct engine_use *u, mr_bytes body,
                             const mr_push_options *o) {
    mr_result result;
    int err = mr_call(u->engine, in->arguments[0], body, o, &result);
    if (err < 0)
        return engine_failed(u, err);
    (void)show_result(in, result.body);
    mr_result_free(&result);
    return CLI_DONE;
}

// Pushes or calls with the body that the command line names.
static enum cli_exit with_body(const struct input *in,
                               enum cli_exit act(const struct input *, struct engine_use *,
                                                 mr_bytes body, const mr_push_options *)) {
    mr_push_options o;
    struct buffer body;
    struct engine_use u;
    if (!push_options_read(in, &o) || !body_read(in->arguments[1], BODY_MOST, &body))
        return CLI_USAGE;
    enum cli_exit code = engine_begin(in, STORE_IS_MADE, &u);
    if (code == CLI_DONE) {
        code = act(in, &u, buffer_bytes(&body), &o);
        engine_end(&u);
    }
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
    return with_body(in, do_push);
}

// An engine in this process has no workers, and no other process can use its store meanwhile.
enum cli_exit call_run(const struct input *in) {
    if (address_is_local(in)) {
        complain("call: without a server no worker could answer; serve the store (millrace "
                 "serve --store file:DIR) and call --at that, or push");
        return CLI_USAGE;
    }
    return with_body(in, do_call);
}
