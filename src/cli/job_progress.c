// millrace progress: reports how far the job is that runs this command.
#include "base/errors.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "wire/number.h"
#include "work/side_file.h"

#include <stdlib.h>

// False: it is no number, and that was printed.
static bool progress_amount(const char *what, const char *text, uint64_t *out) {
    if (number_parse(mr_str(text), out) >= 0 && *out <= INT64_MAX)
        return true;
    complain("progress: '%.60s' is not a number for %s: 0 to 2^63 - 1", text, what);
    return false;
}

enum cli_exit job_progress_run(const struct input *in) {
    const char *path = getenv(SIDE_FILE_VARIABLE);
    struct job_progress p = { .text = mr_str(in->arguments[2]) };
    if (!path) {
        complain("progress: this is not inside a job of millrace work, run or flow");
        return CLI_USAGE;
    }
    if (!progress_amount("DONE", in->arguments[0], &p.done) ||
        !progress_amount("TOTAL", in->arguments[1], &p.total))
        return CLI_USAGE;
    if (side_file_progress(path, &p) >= 0)
        return CLI_DONE;
    complain("progress: %s", error_text());
    return CLI_FAILED;
}
