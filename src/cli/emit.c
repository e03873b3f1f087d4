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

static int emit_check(const struct side_emit *e) {
    int err = engine_check_stage(e->stage);
    if (err >= 0 && e->key.size > KEY_MOST)
        err = error_set(MR_ETOOBIG, "a key of %zu bytes: %d at most", e->key.size, KEY_MOST);
    if (err >= 0 && e->meta.size > META_MOST)
        err = error_set(MR_ETOOBIG, "a meta of %zu bytes: %d at most", e->meta.size, META_MOST);
    if (err >= 0 && e->meta.size && e->keeps_meta)
        err = error_set(MR_EINVAL, "--meta and --keep-meta exclude each other");
    return err;
}

enum cli_exit emit_run(const struct input *in) {
    const char *path = getenv(SIDE_FILE_VARIABLE);
    if (!path) {
        complain("emit: this is not inside a job of millrace work, run or flow; millrace push "
                 "pushes a job from anywhere");
        return CLI_USAGE;
    }
    struct side_emit e = { .stage = mr_str(in->arguments[0]),
                           .key = mr_str(input_option(in, "--key")),
                           .meta = mr_str(input_option(in, "--meta")),
                           .keeps_meta = input_option(in, "--keep-meta") };
    if (emit_check(&e) < 0)
        return emit_refuse();
    struct buffer body;
    if (!body_read(in->arguments[1], BODY_MOST, &body))
        return CLI_FAILED;
    e.body = buffer_bytes(&body);
    int err = side_file_emit(path, &e);
    buffer_finish(&body);
    if (err >= 0)
        return CLI_DONE;
    complain("emit: %s", error_text());
    return CLI_FAILED;
}
