// millrace await, cancel, job, jobs, dead: what has become of jobs that were pushed.
#include "cli/engine.h"
#include "cli/output.h"
#include "cli/show.h"
#include "cli/talk.h"
#include "cli/values.h"
#include "wire/number.h"

#include <inttypes.h>
#include <string.h>

// ---- await, cancel ----------------------------------------------------------------------------

static enum cli_exit await_end(const struct input *in, mr_id id, int64_t wait_ms) {
    struct engine_use u;
    mr_result result = { 0 };
    enum cli_exit code = engine_begin(in, STORE_MUST_EXIST, &u);
    if (code != CLI_DONE)
        return code;
    int err = mr_await(u.engine, id, wait_ms, &result);
    if (err == MR_EAGAIN) {
        complain("await: job %" PRIu64 " has not ended yet%s", id,
                 u.address.url.local ? ", and no worker can take it without a server; serve the "
                                       "store (millrace serve --store file:DIR) and await --at that"
                                     : "");
        code = CLI_DEADLINE;
    } else {
        code = err < 0 ? engine_failed(&u, err) : show_result(in, result.body);
    }
    mr_result_free(&result);
    engine_end(&u);
    return code;
}

// In an engine of this process nothing ends while it waits.
enum cli_exit await_run(const struct input *in) {
    int64_t wait_ms = address_is_local(in) ? 0 : MR_FOREVER;
    mr_id id;
    if (!input_duration(in, "--wait", &wait_ms))
        return CLI_USAGE;
    if (number_parse(mr_str(in->arguments[0]), &id) < 0) {
        complain("await: '%.60s' is not an id", in->arguments[0]);
        return CLI_USAGE;
    }
    return await_end(in, id, wait_ms);
}

static enum cli_exit answer_cancel(const struct input *in, const struct response_value *reply) {
    bool changed = reply->type == RESPONSE_INTEGER && reply->integer;
    (void)show_count(in, changed, "cancelled");
    if (!changed)
        complain("cancel: job %s had ended already", in->arguments[0]);
    return changed ? CLI_DONE : CLI_FAILED;
}

static enum cli_exit answer_cancel_stage(const struct input *in,
                                         const struct response_value *reply) {
    bool dry = input_option(in, "--dry-run") != NULL;
    return show_count(in, reply->integer, dry ? "would be cancelled" : "cancelled");
}

#define ALL INT64_C(1000000000000)

static enum cli_exit cancel_stage(const struct input *in) {
    struct words w = { 0 };
    uint64_t max = ALL;
    if (!input_count(in, "--max", ALL, &max))
        return CLI_USAGE;
    words_text(&w, "CANCEL");
    words_option(&w, "STAGE", in->arguments[0]);
    words_option(&w, "KEY", input_option(in, "--key"));
    words_option(&w, "STATUS", input_option(in, "--status"));
    words_text(&w, "MAX");
    words_number(&w, (int64_t)max);
    if (input_option(in, "--dry-run"))
        words_text(&w, "DRY");
    return talk_once(in, STORE_MUST_EXIST, &w, answer_cancel_stage);
}

// A stage needs an option, so that a mistyped id does not cancel all of it.
enum cli_exit cancel_run(const struct input *in) {
    static const char *const narrow[] = { "--key", "--status", "--max", "--dry-run", "--all" };
    struct words w = { 0 };
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
        if (input_option(in, narrow[i]))
            return cancel_stage(in);
    words_text(&w, "CANCEL");
    words_text(&w, in->arguments[0]);
    if (in->arguments[0][strspn(in->arguments[0], "0123456789")]) {
        words_finish(&w);
        complain("cancel: '%.60s' is not an id; of a stage: --key, --status, --max or --all",
                 in->arguments[0]);
        return CLI_USAGE;
    }
    return talk_once(in, STORE_MUST_EXIST, &w, answer_cancel);
}

// ---- job, jobs --------------------------------------------------------------------------------

enum cli_exit job_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "JOB");
    words_text(&w, in->arguments[0]);
    if (input_option(in, "--body"))
        words_text(&w, "BODY");
    return talk_once(in, STORE_MUST_EXIST, &w, show_map);
}

#define JOB(member) offsetof(struct job_reply, member)

static const struct column job_columns[] = {
    { JOB(id), "ID", SHAPE_NUMBER },
    { JOB(key), "KEY", SHAPE_TEXT },
    { JOB(status), "STATUS", SHAPE_TEXT },
    { JOB(attempt), "TRY", SHAPE_NUMBER },
    { JOB(age_ms), "AGE", SHAPE_AGE },
    { JOB(due_ms), "DUE IN", SHAPE_AGE },
    { JOB(left_ms), "LEFT", SHAPE_AGE },
    { JOB(progress), "PROGRESS", SHAPE_PROGRESS },
    { JOB(reasons), "LAST REASON", SHAPE_REASON },
    { 0 },
};

static const struct cli_listing jobs_listing = { &job_replies, job_columns,
                                                 "there are no such jobs" };

static const struct column dead_columns[] = {
    { JOB(id), "ID", SHAPE_NUMBER },
    { JOB(stage), "STAGE", SHAPE_TEXT },
    { JOB(key), "KEY", SHAPE_TEXT },
    { JOB(attempt), "TRIES", SHAPE_NUMBER },
    { JOB(age_ms), "DEAD FOR", SHAPE_AGE },
    { JOB(reasons), "LAST REASON", SHAPE_REASON },
    { 0 },
};

static const struct cli_listing dead_listing = { &job_replies, dead_columns, "no job is dead" };

enum cli_exit jobs_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "JOBS");
    words_text(&w, in->arguments[0]);
    words_option(&w, "KEY", input_option(in, "--key"));
    words_option(&w, "STATUS", input_option(in, "--status"));
    words_option(&w, "FROM", input_option(in, "--from"));
    return talk_page(in, &w, "COUNT", &jobs_listing);
}

enum cli_exit dead_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "DEAD");
    if (in->arguments[0])
        words_text(&w, in->arguments[0]);
    words_option(&w, "FROM", input_option(in, "--from"));
    return talk_page(in, &w, "COUNT", &dead_listing);
}
