// millrace emit: adds a job to the commit of the job that runs this command.
#include "base/errors.h"
#include "cli/body.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "work/side_file.h"

#include <stdlib.h>

static enum cli_exit emit_refuse(void) {
    complain("emit: %s", error_text());
    return CLI_USAGE;
}

enum cli_exit emit_run(const struct input *in) {
    const char *path = getenv(SIDE_FILE_VARIABLE);
    if (!path) {
        complain("emit: this is not inside a job of millrace work, run or flow; millrace push "
                 "pushes a job from anywhere");
        return CLI_USAGE;
    }
    mr_bytes stage = mr_str(in->arguments[0]), key = mr_str(input_option(in, "--key"));
    int err = engine_check_stage(stage);
    if (err >= 0 && key.size > KEY_MOST)
        err = error_set(MR_ETOOBIG, "a key of %zu bytes: %d at most", key.size, KEY_MOST);
    if (err < 0)
        return emit_refuse();
    struct buffer body;
    if (!body_read(in->arguments[1], BODY_MOST, &body))
        return CLI_FAILED;
    err = side_file_emit(path, stage, key, buffer_bytes(&body));
    buffer_finish(&body);
    if (err >= 0)
        return CLI_DONE;
    complain("emit: %s", error_text());
    return CLI_FAILED;
}
