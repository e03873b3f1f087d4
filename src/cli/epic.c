// millrace epic: shows the progress of an epic, waits for its end, skips a number, says what
// follows it, cancels it, drops it.
#include "base/clock.h"
#include "cli/epic_bar.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/push_sums.h"
#include "cli/show.h"
#include "cli/talk.h"
#include "cli/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 256 };

static const char *copy_text(mr_bytes text, char out[TEXT]) {
    snprintf(out, TEXT, "%.*s", (int)text.size, text.size ? (const char *)text.data : "");
    return out;
}

static enum cli_exit answer_wait(const struct input *in, const struct response_value *reply) {
    char held[EPIC_HELD], at[ADDRESS_OPTION], texts[2][TEXT];
    struct epic_reply epic = { 0 };
    (void)show_map(in, reply);
    (void)reply_read(&epic_replies, reply, &epic); // what is no map has no fields
    if (!epic_reply_is_over(&epic)) {
        mr_epic_info info = { .stage = copy_text(epic.stage, texts[0]),
                              .held_by = copy_text(epic.held_by, texts[1]) };
        bool is_held = *epic_held(held, &info) != 0;
        complain("epic: %s is not over yet%s%s", in->arguments[1], is_held ? ": " : "", held);
        return CLI_DEADLINE;
    }
    if (epic.dead)
        complain("epic: %" PRIu64 " of its jobs died; millrace dead%s lists them", epic.dead,
                 address_option(in, at));
    return epic.dead ? CLI_FAILED : CLI_DONE;
}

static int wait_and_draw(mr *engine, const char *stage, const char *name, int64_t wait_ms) {
    uint64_t until_ms = monotonic_ms() + (uint64_t)wait_ms;
    struct epic_bar bar;
    mr_epic_info info;
    int err = MR_EAGAIN;
    epic_bar_init(&bar, "epic", name);
    for (uint64_t now_ms; err == MR_EAGAIN && (now_ms = monotonic_ms()) < until_ms;) {
        int64_t left_ms = (int64_t)(until_ms - now_ms), draw_ms = epic_bar_wait_ms(&bar);
        err = mr_epic_wait(engine, stage, name, draw_ms < left_ms ? draw_ms : left_ms, NULL);
        if (err == MR_EAGAIN && epic_bar_wait_ms(&bar) == 0)
            epic_bar_show(&bar, mr_epic_look(engine, stage, name, &info) < 0 ? NULL : &info);
    }
    progress_clear();
    return err;
}

// Waits until the epic is over, and goes on waiting when the server is restarted.
static enum cli_exit epic_wait_for_end(const struct input *in, int64_t wait_ms) {
    struct engine_use u;
    enum cli_exit code = engine_begin(in, STORE_MUST_EXIST, &u);
    if (code != CLI_DONE)
        return code;
    int err = wait_and_draw(u.engine, in->arguments[0], in->arguments[1], wait_ms);
    if (err < 0 && err != MR_EAGAIN && err != MR_EDEAD)
        code = engine_failed(&u, err);
    engine_end(&u);
    return code;
}

static bool epic_options_read(const struct input *in, int64_t *out_wait_ms, uint64_t *out_skip) {
    static const char *const options[] = { "--wait",   "--drop", "--skip",
                                           "--cancel", "--then", "--forget" };
    int given = 0;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        given += input_option(in, options[i]) != NULL;
    if (!input_duration(in, "--wait", out_wait_ms) ||
        !input_count(in, "--skip", INT64_MAX, out_skip))
        return false;
    if (given <= 1)
        return true;
    complain("epic: --wait waits for its end, --skip leaves out a number, --then says what follows "
             "it, --cancel cancels its jobs, --forget and --drop forget it: one after the other");
    return false;
}

// Adds THEN STAGE KEY BODY; a key of "-" is none.
static bool add_then(struct words *w, const char *text) {
    const char *key = strchr(text, ' '), *body = key ? strchr(key + 1, ' ') : NULL;
    if (!body || key == text) {
        complain("epic: --then takes 'STAGE KEY BODY', with - for a job without a key");
        return false;
    }
    mr_bytes named = { key + 1, (size_t)(body - key - 1) };
    words_text(w, "THEN");
    words_add(w, (mr_bytes){ text, (size_t)(key - text) });
    words_add(w, named.size == 1 && key[1] == '-' ? (mr_bytes){ 0 } : named);
    words_text(w, body + 1);
    return true;
}

// Adds what the options ask for. False: they are wrong.
static bool add_order(const struct input *in, uint64_t skip, struct words *w) {
    const char *then = input_option(in, "--then");
    words_option(w, "FORGET", input_option(in, "--forget"));
    if (input_option(in, "--drop"))
        words_text(w, "DROP");
    if (input_option(in, "--cancel"))
        words_text(w, "CANCEL");
    if (input_option(in, "--skip")) {
        words_text(w, "SKIP");
        words_number(w, (int64_t)skip);
    }
    return !then || add_then(w, then);
}

enum cli_exit epic_run(const struct input *in) {
    int64_t wait_ms = 0;
    uint64_t skip = 0;
    struct words w = { 0 };
    struct address address;
    bool drop = input_option(in, "--drop") != NULL;
    if (!epic_options_read(in, &wait_ms, &skip))
        return CLI_USAGE;
    words_text(&w, "EPIC");
    words_text(&w, in->arguments[0]);
    words_text(&w, in->arguments[1]);
    if (wait_ms) {
        enum cli_exit code = epic_wait_for_end(in, wait_ms);
        if (code == CLI_DONE)
            return talk_once(in, STORE_MUST_EXIST, &w, answer_wait);
        words_finish(&w);
        return code;
    }
    if (!add_order(in, skip, &w)) {
        words_finish(&w);
        return CLI_USAGE;
    }
    enum cli_exit code = talk_once(in, STORE_MUST_EXIST, &w, show_map);
    if (code == CLI_DONE && drop && address_read(in, &address) == 0)
        sums_forget(address.url.where, in->arguments[0], in->arguments[1]);
    return code;
}
