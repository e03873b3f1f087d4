// millrace epic: how far one has come, waiting for its end, leaving out a number, forgetting it.
#include "cli/epic_bar.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/push_sums.h"
#include "cli/show.h"
#include "cli/talk_state.h"
#include "cli/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t count_of(const struct response_value *epic, const char *name) {
    int64_t number = value_number(epic, name);
    return number > 0 ? (uint64_t)number : 0;
}

enum { NAME = 256 };

static const char *copy_field(const struct response_value *epic, const char *name, char out[NAME]) {
    const struct response_value *v = response_field(epic, name);
    bool text = v && v->type == RESPONSE_BULK;
    snprintf(out, NAME, "%.*s", text ? (int)v->bytes.size : 0,
             text ? (const char *)v->bytes.data : "");
    return out;
}

// `names` holds the two texts of the result.
static mr_epic_info info_of(const struct response_value *epic, char names[2][NAME]) {
    return (mr_epic_info){ .total = value_number(epic, "total"),
                           .waiting = count_of(epic, "waiting"),
                           .running = count_of(epic, "running"),
                           .done = count_of(epic, "done"),
                           .dead = count_of(epic, "dead"),
                           .cancelled = count_of(epic, "cancelled"),
                           .expired = count_of(epic, "expired"),
                           .stage = copy_field(epic, "stage", names[0]),
                           .held_by = copy_field(epic, "held-by", names[1]) };
}

static bool epic_is_over(const struct response_value *epic) {
    int64_t total = value_number(epic, "total"), resume = value_number(epic, "resume");
    return total >= 0 && resume > total && value_number(epic, "waiting") == 0 &&
           value_number(epic, "running") == 0;
}

static enum cli_exit answer_wait(const struct input *in, const struct response_value *reply) {
    char held[EPIC_HELD], at[ADDRESS_OPTION], names[2][NAME];
    (void)show_map(in, reply);
    if (!epic_is_over(reply)) {
        mr_epic_info info = info_of(reply, names);
        bool is_held = *epic_held(held, &info) != 0;
        complain("epic: %s is not over yet%s%s", in->arguments[1], is_held ? ": " : "", held);
        return CLI_DEADLINE;
    }
    int64_t dead = value_number(reply, "dead");
    if (dead)
        complain("epic: %" PRId64 " of its jobs died; millrace dead%s lists them", dead,
                 address_option(in, at));
    return dead ? CLI_FAILED : CLI_DONE;
}

// A wait for the end of an epic: its request on one connection, looks on another.
struct epic_wait {
    const struct input *in;
    struct epic_bar bar;
    struct talk *talk, *looks;
    bool looking; // a look is not answered yet
};

static int start_look(struct epic_wait *e) {
    struct words w = { 0 };
    words_text(&w, "EPIC");
    words_text(&w, e->in->arguments[0]);
    words_text(&w, e->in->arguments[1]);
    int err = talk_send(e->looks, &w);
    words_finish(&w);
    e->looking = err >= 0;
    return err;
}

static int end_look(struct epic_wait *e) {
    const struct response_value *reply;
    int received = talk_receive(e->looks, &reply);
    if (received <= 0)
        return received;
    char names[2][NAME];
    mr_epic_info info = { 0 };
    bool known = reply->type != RESPONSE_ERROR;
    if (known)
        info = info_of(reply, names);
    epic_bar_show(&e->bar, known ? &info : NULL);
    e->looking = false;
    return 0;
}

// Until the request that was sent is answered.
static int wait_and_draw(struct epic_wait *e, const struct response_value **out) {
    int err = 0, received;
    while (err >= 0 && (received = talk_receive(e->talk, out)) == 0) {
        err = talks_turn(e->talk->talks, -1, e->looking ? -1 : epic_bar_wait_ms(&e->bar));
        if (err >= 0 && e->looking)
            err = end_look(e);
        else if (err >= 0 && epic_bar_wait_ms(&e->bar) == 0)
            err = start_look(e);
    }
    return err < 0 ? err : received < 0 ? received : 0;
}

static enum cli_exit wait_for(const struct input *in, struct words *w, int64_t wait_ms) {
    struct talks *ts;
    struct epic_wait e = { .in = in };
    const struct response_value *reply;
    enum cli_exit code = talk_begin(in, TALK_LOOKS, &ts, &e.talk);
    if (code != CLI_DONE)
        return code;
    code = talk_open(ts, &e.looks);
    if (code == CLI_DONE) {
        epic_bar_init(&e.bar, "epic", in->arguments[1]);
        words_text(w, "WAIT");
        words_number(w, wait_ms);
        int err = talk_send(e.talk, w);
        if (err >= 0)
            err = wait_and_draw(&e, &reply);
        progress_clear();
        code = err < 0 ? talk_failed(e.talk, err) : CLI_DONE;
    }
    if (code == CLI_DONE)
        code = reply->type == RESPONSE_ERROR ? talk_refused(e.talk, reply) : answer_wait(in, reply);
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
    if (code == CLI_DONE && drop && address_read(in, &address) == 0)
        sums_forget(address.url.where, in->arguments[0], in->arguments[1]);
    return code;
}
