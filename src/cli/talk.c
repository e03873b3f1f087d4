// What both implementations share: opening, requests, replies, and what an error means.
#include "cli/talk.h"

#include "base/errors.h"
#include "base/mem.h"
#include "cli/interrupts.h"
#include "cli/output.h"
#include "cli/secret.h"
#include "cli/talk_state.h"
#include "cli/values.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TALK_TOKEN                                                                                 \
    "this server asks for a token: it comes from MILLRACE_TOKEN, from the file that "              \
    "MILLRACE_TOKEN_FILE names, or from the URL"

// ---- Opening ----------------------------------------------------------------------------------

static const char *option_or(const struct input *in, const char *option, const char *variable) {
    const char *value = input_option(in, option);
    if (!value)
        value = getenv(variable);
    return value && *value ? value : NULL;
}

// Of --at, MILLRACE_URL, or the usual.
static const char *talk_url(const struct input *in) {
    const char *url = option_or(in, "--at", "MILLRACE_URL");
    return url ? url : CLI_URL;
}

const char *talk_at(const struct input *in, char out[TALK_AT]) {
    const char *given = input_option(in, "--at");
    struct engine_url u;
    out[0] = 0;
    if (given && *given && url_read(given, &u) == 0)
        snprintf(out, TALK_AT, " --at %s", u.where);
    return out;
}

// Those of the environment may stand there for other engines.
static int check_certificates(const struct input *in, const struct address *a) {
    bool given = input_option(in, "--tls-ca") || input_option(in, "--tls-cert") ||
                 input_option(in, "--tls-key");
    if (a->url.secure || !given)
        return 0;
    return error_set(MR_EINVAL, "certificates are of no use without TLS: millraces://HOST:PORT");
}

int talk_address(const struct input *in, struct address *out) {
    *out = (struct address){ .text = talk_url(in) };
    int err = url_read(out->text, &out->url);
    if (err == 0)
        err = check_certificates(in, out);
    if (err == 0 && out->url.secret[0])
        memcpy(out->secret, out->url.secret, sizeof out->secret);
    else if (err == 0)
        err = secret_find(out->secret, sizeof out->secret);
    if (err == 0 && out->url.secure)
        out->tls = (struct tls_files){ .cert = option_or(in, "--tls-cert", "MILLRACE_TLS_CERT"),
                                       .key = option_or(in, "--tls-key", "MILLRACE_TLS_KEY"),
                                       .ca = option_or(in, "--tls-ca", "MILLRACE_TLS_CA") };
    return err;
}

int talk_engine(const struct input *in, const char *name, int signals, mr **out) {
    struct address a = { 0 };
    struct listener listener;
    int err = talk_address(in, &a);
    mr_options options = { .user = a.url.user[0] ? a.url.user : NULL,
                           .secret = a.secret[0] ? a.secret : NULL,
                           .tls_ca = a.tls.ca,
                           .tls_cert = a.tls.cert,
                           .tls_key = a.tls.key,
                           .name = name };
    if (err >= 0)
        err = listener_begin(&listener, signals);
    if (err < 0)
        return err;
    err = mr_open(talk_url(in), &options, out);
    listener_end(&listener);
    return err;
}

bool talk_news(mr *engine, int *trouble, char *out, size_t size) {
    int before = *trouble;
    *trouble = mr_check(engine);
    if ((*trouble == 0) == (before == 0) && *trouble != MR_EPERM)
        return false;
    snprintf(out, size, "%s%s", *trouble && *trouble != MR_EPERM ? TALK_AGAIN : "",
             *trouble ? mr_error() : TALK_BACK);
    return true;
}

bool talk_is_alone(const struct input *in) {
    struct address address;
    return talk_address(in, &address) == 0 && address.url.local;
}

static int talks_start(struct talks *ts) {
    struct listener listener;
    int signals = interrupts_open();
    if (signals < 0)
        return signals;
    ts->signals = signals;
    ts->impl = ts->address.url.local ? &local_talk : &remote_talk;
    int err = listener_begin(&listener, signals);
    if (err < 0)
        return err;
    err = ts->impl->open(ts); // a large store takes its time
    listener_end(&listener);
    return err;
}

// Says why an engine could not be opened; what to exit with.
static enum cli_exit open_failed(const struct talks *ts, const struct input *in, int err) {
    bool secret = ts && ts->address.secret[0];
    if (err == MR_EAUTH && !secret)
        complain("%s: " TALK_TOKEN, in->command->name);
    else
        complain("%s: %s", in->command->name, error_text());
    return err == MR_EAUTH || err == MR_EPERM ? CLI_REFUSED
           : err == MR_EFULL                  ? CLI_FULL
                                              : CLI_UNOPENED;
}

static enum cli_exit talks_open(const struct input *in, enum talk_store store, struct talks **out) {
    struct talks *ts = mem_alloc(sizeof *ts);
    int err = ts ? 0 : error_set(MR_ENOMEM, "no memory to talk to an engine");
    bool named = false;
    if (err == 0) {
        ts->command = in->command->name;
        ts->signals = -1;
        err = talk_address(in, &ts->address);
        named = err == 0;
    }
    const char *dir = err == 0 ? ts->address.url.dir : NULL;
    if (dir && store == TALK_LOOKS && access(dir, F_OK) < 0)
        err = error_set(MR_EGONE, "there is no store in %.400s", dir);
    if (err == 0)
        err = talks_start(ts);
    if (err < 0) {
        enum cli_exit code = open_failed(ts, in, err);
        assert(code != CLI_DONE);
        talks_close(ts);
        return ts && !named ? CLI_USAGE : code;
    }
    *out = ts;
    return CLI_DONE;
}

static void talk_close(struct talk *t) {
    t->talks->first = t->next;
    t->talks->impl->leave(t);
    mem_free(t);
}

void talks_close(struct talks *ts) {
    if (!ts)
        return;
    while (ts->first)
        talk_close(ts->first);
    if (ts->impl)
        ts->impl->close(ts);
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

enum cli_exit talk_begin(const struct input *in, enum talk_store store, struct talks **out_talks,
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
    return ts->impl->turn(ts, fd, wait_ms);
}

int talks_wait(const struct talks *ts, struct pollfd *fds, size_t count, int fd, int64_t wait_ms) {
    int timeout = wait_ms < 0 ? -1 : wait_ms < INT32_MAX ? (int)wait_ms : INT32_MAX;
    fds[0] = (struct pollfd){ .fd = ts->signals, .events = POLLIN };
    fds[1] = (struct pollfd){ .fd = fd, .events = POLLIN };
    while (poll(fds, count, timeout) < 0)
        if (errno != EINTR)
            return error_set(MR_EIO, "poll: %s", strerror(errno));
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

enum cli_exit talk_once(const struct input *in, enum talk_store store, struct words *w,
                        answered *answer) {
    struct talks *ts;
    struct talk *t;
    const struct response_value *reply;
    enum cli_exit code = talk_begin(in, store, &ts, &t);
    if (code == CLI_DONE) {
        code = talk_get(t, w, &reply);
        if (code == CLI_DONE)
            code = answer(in, reply);
        talks_close(ts);
    }
    words_finish(w);
    return code;
}

enum cli_exit talk_page(const struct input *in, struct words *w, const char *option,
                        answered *answer) {
    uint64_t top = TALK_ROWS;
    if (!input_count(in, "--top", TALK_ROWS_MOST, &top)) {
        words_finish(w);
        return CLI_USAGE;
    }
    words_text(w, option);
    words_number(w, (int64_t)top);
    return talk_once(in, TALK_LOOKS, w, answer);
}

// ---- Failures ---------------------------------------------------------------------------------

static enum cli_exit exit_of(enum code code) {
    switch (code) {
    case CODE_ERR:
    case CODE_EXECABORT:
    case CODE_TOOBIG:
        return CLI_USAGE;
    case CODE_FULL:
        return CLI_FULL;
    case CODE_NOAUTH:
    case CODE_WRONGPASS:
    case CODE_NOPERM:
    case CODE_DRAINING:
        return CLI_REFUSED;
    case CODE_EXPIRED:
        return CLI_DEADLINE;
    case CODE_CANCELLED:
    case CODE_DEAD:
    case CODE_GONE:
    case CODE_GAP:
    case CODE_STALE:
    case CODE_BUSY:
        return CLI_FAILED;
    case CODE_NOPROTO:
    case CODE_LOADING:
    case CODE_STOPPED:
    case CODES:
        break;
    }
    return CLI_UNOPENED;
}

enum cli_exit talk_exit(int err) {
    if (err == MR_EAUTH)
        return CLI_REFUSED;
    for (enum code code = 0; code < CODES; code++)
        if (code_error(code) == err)
            return exit_of(code);
    return CLI_UNOPENED;
}

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
        rest = mr_str(TALK_TOKEN);
    complain("%s: %s%s", t->talks->command, prefix, text_plain(sentence, sizeof sentence, rest));
    return known ? exit_of(code) : CLI_FAILED;
}

enum cli_exit talk_failed(const struct talk *t, int err) {
    if (err == MR_ECANCELLED)
        return CLI_INTERRUPTED;
    complain("%s: %s", t->talks->command, error_text());
    return CLI_UNOPENED;
}
