// millrace epic: how far one has come, waiting for its end, leaving out a number, forgetting it.
#include "cli/epic_bar.h"
#include "cli/output.h"
#include "cli/push_sums.h"
#include "cli/show.h"
#include "cli/talk_state.h"
#include "cli/values.h"

#include <inttypes.h>
#include <string.h>

static bool epic_is_over(const struct response_value *epic) {
    int64_t total = value_number(epic, "total"), resume = value_number(epic, "resume");
    return total >= 0 && resume > total && value_number(epic, "waiting") == 0 &&
           value_number(epic, "running") == 0;
}

static enum cli_exit answer_wait(const struct input *in, const struct response_value *reply) {
    char held[EPIC_HELD], at[TALK_AT];
    (void)show_map(in, reply);
    if (!epic_is_over(reply)) {
        bool is_held = *epic_held(held, reply) != 0;
        complain("epic: %s is not over yet%s%s", in->arguments[1], is_held ? ": " : "", held);
        return CLI_DEADLINE;
    }
    int64_t dead = value_number(reply, "dead");
    if (dead)
        complain("epic: %" PRId64 " of its jobs died; millrace dead%s lists them", dead,
                 talk_at(in, at));
    return dead ? CLI_FAILED : CLI_DONE;
}

// Until the request that was said is answered.
static enum cli_exit wait_and_draw(struct talk *t, struct epic_bar *bar,
                                   const struct response_value **out) {
    int heard, err;
    while ((heard = talk_receive(t, out)) == 0) {
        if ((err = talks_turn(t->talks, -1, epic_bar_wait_ms(bar))) < 0)
            return talk_failed(t, err);
        enum cli_exit code = epic_bar_turn(bar, false);
        if (code != CLI_DONE)
            return code;
    }
    return heard < 0 ? talk_failed(t, heard) : CLI_DONE;
}

static enum cli_exit wait_for(const struct input *in, struct words *w, int64_t wait_ms) {
    struct talks *ts;
    struct talk *t;
    struct epic_bar bar;
    const struct response_value *reply = NULL;
    enum cli_exit code = talk_begin(in, TALK_LOOKS, &ts, &t);
    if (code != CLI_DONE)
        return code;
    epic_bar_init(&bar, ts, "epic", in->arguments[0], in->arguments[1]);
    words_text(w, "WAIT");
    words_number(w, wait_ms);
    int err = talk_send(t, w);
    code = err < 0 ? talk_failed(t, err) : wait_and_draw(t, &bar, &reply);
    epic_bar_clear(&bar);
    if (code == CLI_DONE && reply)
        code = reply->type == RESPONSE_ERROR ? talk_refused(t, reply) : answer_wait(in, reply);
    talks_close(ts);
    return code;
}

static bool options_read(const struct input *in, int64_t *out_wait_ms, uint64_t *out_skip) {
    bool given[] = { input_option(in, "--wait"), input_option(in, "--drop"),
                     input_option(in, "--skip") };
    if (!input_duration(in, "--wait", out_wait_ms) ||
        !input_count(in, "--skip", INT64_MAX, out_skip))
        return false;
    if (given[0] + given[1] + given[2] <= 1)
        return true;
    complain("epic: --wait waits for its end, --skip leaves out a number, --drop forgets it: one "
             "after the other");
    return false;
}

enum cli_exit epic_run(const struct input *in) {
    int64_t wait_ms = 0;
    uint64_t skip = 0;
    struct words w = { 0 };
    struct address address;
    bool drop = input_option(in, "--drop") != NULL;
    if (!options_read(in, &wait_ms, &skip))
        return CLI_USAGE;
    words_text(&w, "EPIC");
    words_text(&w, in->arguments[0]);
    words_text(&w, in->arguments[1]);
    if (wait_ms) {
        enum cli_exit code = wait_for(in, &w, wait_ms);
        words_finish(&w);
        return code;
    }
    if (drop)
        words_text(&w, "DROP");
    if (input_option(in, "--skip")) {
        words_text(&w, "SKIP");
        words_number(&w, (int64_t)skip);
    }
    enum cli_exit code = talk_once(in, TALK_LOOKS, &w, show_map);
    if (code == CLI_DONE && drop && talk_address(in, &address) == 0)
        sums_forget(address.url.where, in->arguments[0], in->arguments[1]);
    return code;
}
