// What both implementations share: opening, requests, replies, and what an error means.
#include "cli/talk.h"

#include "base/errors.h"
#include "base/mem.h"
#include "cli/interrupts.h"
#include "cli/output.h"
#include "cli/show.h"
#include "cli/talk_state.h"
#include "cli/values.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

// ---- Opening ----------------------------------------------------------------------------------

static int talks_start(struct talks *ts) {
    struct listener listener;
    ts->impl = ts->address.url.local ? &local_talk : &remote_talk;
    ts->signals = interrupts_open();
    if (ts->signals < 0)
        return ts->signals;
    ts->ready = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ts->ready < 0)
        return error_set(MR_EIO, "no eventfd: %s", strerror(errno));
    int err = listener_begin(&listener, ts->signals);
    if (err < 0)
        return err;
    err = ts->impl->open(ts); // a large store takes its time
    listener_end(&listener);
    return err;
}

static enum cli_exit talks_open(const struct input *in, enum engine_store store,
                                struct talks **out) {
    struct talks *ts = mem_alloc(sizeof *ts);
    if (!ts) {
        complain("%s: no memory to talk to an engine", in->command->name);
        return CLI_UNOPENED;
    }
    ts->command = in->command->name;
    ts->signals = ts->ready = -1;
    int err = address_read(in, &ts->address);
    if (err == 0)
        err = address_check_store(&ts->address, store);
    if (err == 0)
        err = talks_start(ts);
    if (err < 0) {
        enum cli_exit code = engine_unopened(ts->command, &ts->address, err);
        assert(code != CLI_DONE);
        talks_close(ts);
        return code;
    }
    *out = ts;
    return CLI_DONE;
}

void talk_close(struct talk *t) {
    struct talk **at = &t->talks->first;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    t->talks->impl->leave(t);
    mem_free(t);
}

void talks_close(struct talks *ts) {
    if (!ts)
        return;
    while (ts->first)
        talk_close(ts->first);
    if (ts->engine)
        ts->impl->close(ts);
    if (ts->ready >= 0)
        close(ts->ready);
    if (ts->signals >= 0)
        close(ts->signals);
    mem_free(ts);
}

enum cli_exit talk_open(struct talks *ts, struct talk **out) {
    struct talk *t = mem_alloc(sizeof *t);
    int err = t ? 0 : error_set(MR_ENOMEM, "no memory for a connection");
    if (err == 0) {
        t->talks = ts;
        err = ts->impl->join(t);
    }
    if (err < 0) {
        complain("%s: %s", ts->command, error_text());
        mem_free(t);
        return CLI_UNOPENED;
    }
    t->next = ts->first;
    ts->first = t;
    *out = t;
    return CLI_DONE;
}

enum cli_exit talk_begin(const struct input *in, enum engine_store store, struct talks **out_talks,
                         struct talk **out) {
    struct talks *ts;
    enum cli_exit code = talks_open(in, store, &ts);
    if (code != CLI_DONE)
        return code;
    code = talk_open(ts, out);
    if (code == CLI_DONE)
        *out_talks = ts;
    else
        talks_close(ts);
    return code;
}

// ---- Requests ---------------------------------------------------------------------------------

void words_add(struct words *w, mr_bytes word) {
    if (w->count == w->capacity && !w->err) {
        size_t capacity = w->capacity ? 2 * w->capacity : 16;
        mr_bytes *list = mem_resize(w->list, capacity * sizeof *list);
        if (list)
            w->list = list, w->capacity = capacity;
        else
            w->err = error_set(MR_ENOMEM, "no memory for a request");
    }
    if (!w->err)
        w->list[w->count++] = word;
}

void words_text(struct words *w, const char *text) {
    words_add(w, mr_str(text));
}

void words_option(struct words *w, const char *name, const char *value) {
    if (!value)
        return;
    words_text(w, name);
    words_text(w, value);
}

void words_number(struct words *w, int64_t number) {
    if (w->numbers == WORDS_NUMBERS) {
        w->err = error_set(MR_EINVAL, "too many numbers in a request");
        return;
    }
    char *digits = w->digits[w->numbers++];
    snprintf(digits, WORDS_DIGITS, "%" PRId64, number);
    words_text(w, digits);
}

void words_clear(struct words *w) {
    w->count = w->numbers = 0;
}

void words_finish(struct words *w) {
    mem_free(w->list);
    *w = (struct words){ 0 };
}

// ---- Dialogue ---------------------------------------------------------------------------------

int talk_send(struct talk *t, const struct words *w) {
    return w->err ? w->err : t->talks->impl->send(t, w->list, w->count);
}

int talk_receive(struct talk *t, const struct response_value **out) {
    return t->talks->impl->receive(t, out);
}

int talks_turn(struct talks *ts, int fd, int64_t wait_ms) {
    struct pollfd fds[] = { { .fd = ts->signals, .events = POLLIN },
                            { .fd = fd, .events = POLLIN },
                            { .fd = ts->ready, .events = POLLIN } };
    uint64_t times;
    int err = ts->impl->work(ts, &wait_ms);
    if (err < 0)
        return err;
    int timeout = wait_ms < 0 ? -1 : wait_ms < INT32_MAX ? (int)wait_ms : INT32_MAX;
    while (poll(fds, 3, timeout) < 0)
        if (errno != EINTR)
            return error_set(MR_EIO, "poll: %s", strerror(errno));
    if (fds[2].revents && read(ts->ready, &times, sizeof times) < 0 && errno != EAGAIN)
        return error_set(MR_EIO, "eventfd: %s", strerror(errno));
    return fds[0].revents ? error_set(MR_ECANCELLED, "interrupted") : fds[1].revents != 0;
}

int talk_ask(struct talk *t, const struct words *w, const struct response_value **out) {
    int err = talk_send(t, w), received = 0;
    while (err >= 0 && (received = talk_receive(t, out)) == 0)
        err = talks_turn(t->talks, -1, -1);
    return err < 0 ? err : received < 0 ? received : 0;
}

enum cli_exit talk_get(struct talk *t, const struct words *w, const struct response_value **out) {
    int err = talk_ask(t, w, out);
    if (err < 0)
        return talk_failed(t, err);
    return (*out)->type == RESPONSE_ERROR ? talk_refused(t, *out) : CLI_DONE;
}

// Sends one request; `answer` prints its reply, or, if that is NULL, it is printed as a listing.
static enum cli_exit ask_once(const struct input *in, enum engine_store store,
                              const struct words *w, answered *answer,
                              const struct cli_listing *listing) {
    struct talks *ts;
    struct talk *t;
    const struct response_value *reply;
    enum cli_exit code = talk_begin(in, store, &ts, &t);
    if (code != CLI_DONE)
        return code;
    code = talk_get(t, w, &reply);
    if (code == CLI_DONE)
        code = answer ? answer(in, reply) : show_rows(in, listing, reply);
    talks_close(ts);
    return code;
}

enum cli_exit talk_once(const struct input *in, enum engine_store store, struct words *w,
                        answered *answer) {
    enum cli_exit code = ask_once(in, store, w, answer, NULL);
    words_finish(w);
    return code;
}

enum cli_exit talk_page(const struct input *in, struct words *w, const char *option,
                        const struct cli_listing *listing) {
    uint64_t top = TALK_ROWS;
    enum cli_exit code = CLI_USAGE;
    if (input_count(in, "--top", TALK_ROWS_MOST, &top)) {
        words_text(w, option);
        words_number(w, (int64_t)top);
        code = ask_once(in, STORE_MUST_EXIST, w, NULL, listing);
    }
    words_finish(w);
    return code;
}

// ---- Failures ---------------------------------------------------------------------------------

bool error_is(const struct response_value *reply, enum code code) {
    enum code found;
    mr_bytes sentence;
    return reply->type == RESPONSE_ERROR && code_read(reply->bytes, &found, &sentence) &&
           found == code;
}

enum cli_exit talk_refused(const struct talk *t, const struct response_value *error) {
    char sentence[1024];
    enum code code;
    mr_bytes rest;
    bool known = code_read(error->bytes, &code, &rest);
    const char *prefix = known && code == CODE_DEAD      ? "the job is dead: "
                         : known && code == CODE_STOPPED ? "the engine has stopped: "
                                                         : "";
    if (known && code == CODE_NOAUTH)
        rest = mr_str(ENGINE_TOKEN);
    complain("%s: %s%s", t->talks->command, prefix, text_plain(sentence, sizeof sentence, rest));
    return known ? exit_of_code(code) : CLI_FAILED;
}

enum cli_exit talk_failed(const struct talk *t, int err) {
    if (err == MR_ECANCELLED)
        return CLI_INTERRUPTED;
    complain("%s: %s", t->talks->command, error_text());
    return CLI_UNOPENED;
}
