// millrace snooze: releases the job that runs this command for a while, instead of its commit.
#include "base/errors.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/values.h"
#include "work/side_file.h"

#include <stdlib.h>

enum cli_exit snooze_run(const struct input *in) {
    const char *path = getenv(SIDE_FILE_VARIABLE);
    int64_t ms = 0;
    if (!path) {
        complain("snooze: this is not inside a job of millrace work");
        return CLI_USAGE;
    }
    if (duration_read(in->arguments[0], &ms) < 0) {
        complain("snooze: %s", error_text());
        return CLI_USAGE;
    }
    if (side_file_snooze(path, ms) >= 0)
        return CLI_DONE;
    complain("snooze: %s", error_text());
    return CLI_FAILED;
}
