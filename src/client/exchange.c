// Exchanges: writing a request word by word, waiting for what is answered, and reading errors.
#include "base/clock.h"
#include "base/errors.h"
#include "base/limits.h"
#include "base/mem.h"
#include "client/state.h"
#include "wire/code.h"
#include "wire/number.h"

// ---- Requests ---------------------------------------------------------------------------------

struct exchange *exchange_new(const char *command) {
    struct exchange *x = mem_alloc(sizeof *x);
    if (!x) {
        error_set(MR_ENOMEM, "no memory for a request");
        return NULL;
    }
    cond_init(&x->settled);
    if (command)
        exchange_word(x, command);
    return x;
}

void exchange_free(struct exchange *x) {
    if (!x)
        return;
    pthread_cond_destroy(&x->settled);
    buffer_finish(&x->text);
    buffer_finish(&x->answer);
    buffer_finish(&x->about);
    mem_free(x);
}

enum { HEAD_MOST = 2 * (1 + NUMBER_DIGITS + 2) + 2 }; // of a request, and around one word

// A server closes the connection on a larger request; sending it again would not help.
static int check_request_size(const struct exchange *x, mr_bytes word) {
    size_t others = x->text.size + HEAD_MOST;
    if (word.size <= ARGUMENT_MOST && others + word.size <= REQUEST_MOST)
        return 0;
    return error_set(MR_ETOOBIG, "%zu bytes, and %zu before them, are too many for a server",
                     word.size, x->text.size);
}

void exchange_bytes(struct exchange *x, mr_bytes word) {
    if (x->err >= 0)
        x->err = check_request_size(x, word);
    if (x->err < 0)
        return;
    uint8_t line[1 + NUMBER_DIGITS + 2];
    size_t size = (size_t)(number_line_write(line, '$', word.size) - line);
    x->err = buffer_reserve(&x->text, size + word.size + 2);
    if (x->err < 0)
        return;
    buffer_append(&x->text, line, size);
    buffer_append(&x->text, word.data, word.size);
    buffer_append(&x->text, "\r\n", 2);
    x->words++;
}

void exchange_word(struct exchange *x, const char *word) {
    exchange_bytes(x, mr_str(word));
}

void exchange_number(struct exchange *x, uint64_t number) {
    uint8_t digits[NUMBER_DIGITS];
    exchange_bytes(x, (mr_bytes){ digits, (size_t)(number_write(digits, number) - digits) });
}

void exchange_option(struct exchange *x, const char *name, int64_t ms) {
    if (!ms)
        return;
    exchange_word(x, name);
    if (ms < 0)
        exchange_word(x, "-1");
    else
        exchange_number(x, (uint64_t)ms);
}

void exchange_text_option(struct exchange *x, const char *name, mr_bytes text) {
    if (!text.size)
        return;
    exchange_word(x, name);
    exchange_bytes(x, text);
}

int exchange_write(const struct exchange *x, struct buffer *out) {
    if (x->commits)
        return commits_write(x, out);
    uint8_t line[1 + NUMBER_DIGITS + 2];
    size_t size = (size_t)(number_line_write(line, '*', x->words) - line);
    int err = buffer_reserve(out, size + x->text.size);
    if (err < 0)
        return err;
    buffer_append(out, line, size);
    return buffer_append(out, x->text.data, x->text.size);
}

// ---- Sending and waiting ----------------------------------------------------------------------

int exchange_send(struct client_link *l, struct exchange *x) {
    if (x->err < 0)
        return x->err;
    if (link_is_unreachable(l, monotonic_ms()) || (x->fails_if_lost && link_is_lost(l)))
        return error_set(l->err, "%s", l->why);
    x->link = l;
    list_append(&l->queue, &x->of_link);
    if (!x->fails_if_lost)
        client_wake_io(l->client);
    return 0;
}

// No thread waits for it any more: it is freed now, or once it was answered.
void exchange_leave(struct exchange *x) {
    x->waited_for = false;
    x->owner = NULL;
    x->left = true;
    if (!x->sent)
        exchange_fail(x, MR_EAGAIN, "");
}

int exchange_wait(struct client *c, struct exchange *x, uint64_t until_ms) {
    x->waited_for = true;
    c->waiting_threads++;
    while (!x->answered && (until_ms == UINT64_MAX || monotonic_ms() < until_ms))
        client_sleep(c, &x->settled, until_ms);
    c->waiting_threads--;
    if (!x->answered) {
        exchange_leave(x);
        return MR_EAGAIN;
    }
    return x->err < 0 ? error_set(x->err, "%s", exchange_sentence(x)) : 0;
}

const char *exchange_sentence(const struct exchange *x) {
    return x->answer.size ? (const char *)x->answer.data : error_meaning(x->err);
}

int exchange_do(struct client *c, struct exchange *x, int64_t *out_number, struct buffer *out) {
    if (!x)
        return MR_ENOMEM;
    pthread_mutex_lock(&c->lock);
    int err = exchange_send(c->main, x);
    if (err >= 0)
        err = exchange_wait(c, x, UINT64_MAX);
    pthread_mutex_unlock(&c->lock);
    if (err >= 0 && out_number)
        *out_number = x->number;
    if (err >= 0 && out) {
        *out = x->answer;
        x->answer = (struct buffer){ 0 };
    }
    exchange_free(x);
    return err;
}

int exchange_await(struct client *c, struct exchange *x, uint64_t until_ms, bool waits) {
    pthread_mutex_lock(&c->lock);
    struct client_link *l = waits ? lane_borrow(c) : c->main;
    int err = l ? exchange_send(l, x) : MR_ENOMEM;
    if (err < 0) {
        if (l && l->lane)
            lane_return(l);
        pthread_mutex_unlock(&c->lock);
        return err;
    }
    err = exchange_wait(c, x, until_ms);
    if (err != MR_EAGAIN && l->lane)
        lane_return(l);
    pthread_mutex_unlock(&c->lock);
    return err;
}

// ---- Answers ----------------------------------------------------------------------------------

int error_read(mr_bytes line, mr_bytes *out_sentence) {
    enum code code = CODE_ERR;
    (void)code_read(line, &code, out_sentence); // one that is newer than we are is ERR, too
    return code_error(code);
}

static int exchange_keep_bytes(struct buffer *to, mr_bytes from) {
    buffer_clear(to);
    int err = buffer_reserve(to, from.size + 1);
    if (err < 0)
        return err;
    buffer_append(to, from.data, from.size);
    to->data[to->size] = 0; // behind it, not counted
    return 0;
}

// What every request may be answered with; the rest is for its hook.
static void keep_value(struct exchange *x, const struct response_value *v) {
    mr_bytes bytes = { 0 };
    x->err = 0;
    x->number = 0;
    switch (v->type) {
    case RESPONSE_ERROR:
        x->err = error_read(v->bytes, &bytes);
        break;
    case RESPONSE_SIMPLE:
    case RESPONSE_BULK:
        bytes = v->bytes;
        break;
    case RESPONSE_INTEGER:
        x->number = v->integer;
        break;
    case RESPONSE_NULL:
        x->number = -1;
        break;
    case RESPONSE_DOUBLE:
    case RESPONSE_BOOLEAN:
    case RESPONSE_ARRAY:
    case RESPONSE_MAP:
    case RESPONSE_PUSH:
        break;
    }
    if (exchange_keep_bytes(&x->answer, bytes) < 0 && x->err >= 0)
        x->err = MR_ENOMEM;
}

static void exchange_settle(struct exchange *x) {
    if (x->kept)
        return;
    x->answered = true;
    if (x->waited_for) {
        pthread_cond_signal(&x->settled);
        return;
    }
    if (x->left && x->link->lane)
        lane_return(x->link);
    exchange_free(x);
}

void exchange_answer(struct exchange *x, const struct response_value *values, uint32_t count) {
    list_remove(&x->of_link);
    if (!x->fails_if_lost && !x->commits)
        keep_value(x, values); // those of request.h and commits.c read all of it
    if (x->hook)
        x->hook(x->link->client, x, values, count);
    exchange_settle(x);
}

void exchange_fail(struct exchange *x, int err, const char *why) {
    list_remove(&x->of_link);
    x->err = err;
    (void)exchange_keep_bytes(&x->answer, mr_str(why)); // without memory, without a sentence
    if (x->hook)
        x->hook(x->link->client, x, NULL, 0);
    exchange_settle(x);
}
