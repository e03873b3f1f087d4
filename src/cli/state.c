// millrace state: prints or sets the state of the channel whose job runs this command.
#include "base/errors.h"
#include "cli/body.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "work/side_file.h"

#include <stdlib.h>

static enum cli_exit answer(int err) {
    if (err >= 0)
        return CLI_DONE;
    complain("state: %s", error_text());
    return CLI_FAILED;
}

static enum cli_exit state_print(const char *path) {
    struct buffer state = { 0 };
    int err = side_file_read_state(path, &state);
    fwrite(state.data, 1, state.size, stdout); // output_finish reports a failure
    buffer_finish(&state);
    return answer(err);
}

static enum cli_exit set(const char *path, const char *value) {
    const char *key = getenv("MILLRACE_KEY");
    if (!key || !*key) {
        complain("state: a job without a key has no channel to keep state: push it with a key");
        return CLI_USAGE;
    }
    struct buffer state;
    if (!body_read(value, STATE_MOST, &state))
        return CLI_FAILED;
    int err = side_file_set_state(path, buffer_bytes(&state));
    buffer_finish(&state);
    return answer(err);
}

enum cli_exit state_run(const struct input *in) {
    const char *path = getenv(SIDE_FILE_VARIABLE);
    if (!path) {
        complain("state: this is not inside a job of millrace work, run or flow");
        return CLI_USAGE;
    }
    const char *value = input_option(in, "--set");
    return value ? set(path, value) : state_print(path);
}
