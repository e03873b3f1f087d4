// millrace bench: puts load on an engine, and measures how it copes.
//
//     producers ─► PUSH, a window at a time ─► the stage ─► TAKE ─► workers ─► DONE
//
// Each producer and each worker is a connection; one thread serves all of them. The body of a
// job begins with the time of its push, so a worker can measure how long it took to arrive. The
// stage has a name of its own; what an interrupted run has left in it is dropped.
#include "base/clock.h"
#include "base/histogram.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "cli/talk.h"
#include "cli/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STAGE "millrace-bench"

enum { CLIENTS = 256, WINDOW_MOST = 1024, STAMP = 8 };

// A producer or a worker.
struct bench_client {
    struct talk *talk;
    uint64_t pending; // requests that are not answered yet
};

struct bench {
    const struct input *in;
    uint64_t jobs, body, keys, window, producers, workers;
    struct talks *talks;
    struct talk *talk; // for requests before and after the load
    struct bench_client clients[2 * CLIENTS];
    struct words words;
    uint8_t text[BODY_MOST];
    uint64_t pushed, accepted, done;
    uint64_t begun_us, accepted_us, ended_us;
    struct histogram start_us;
};

static enum cli_exit bench_report(const struct bench_client *p, int err) {
    return err < 0 ? talk_failed(p->talk, err) : CLI_DONE;
}

// The next reply, which is no error; NULL: it has not come yet.
static enum cli_exit bench_receive(struct bench_client *p, const struct response_value **out) {
    *out = NULL;
    int received = talk_receive(p->talk, out);
    if (received <= 0)
        return bench_report(p, received);
    p->pending--;
    return (*out)->type == RESPONSE_ERROR ? talk_refused(p->talk, *out) : CLI_DONE;
}

// ---- Producers --------------------------------------------------------------------------------

static int bench_push_one(struct bench *b, struct bench_client *p) {
    struct words *w = &b->words;
    uint64_t now = monotonic_us();
    char key[24];
    memcpy(b->text, &now, STAMP);
    words_clear(w);
    words_text(w, "PUSH");
    words_text(w, STAGE);
    words_add(w, (mr_bytes){ b->text, b->body });
    snprintf(key, sizeof key, "%" PRIu64, b->keys ? b->pushed % b->keys : 0);
    words_option(w, "KEY", b->keys ? key : NULL);
    words_option(w, "ROOM", "-1");
    b->pushed++;
    p->pending++;
    return talk_send(p->talk, w);
}

static enum cli_exit produce(struct bench *b, struct bench_client *p) {
    const struct response_value *reply;
    enum cli_exit code;
    while ((code = bench_receive(p, &reply)) == CLI_DONE && reply)
        if (++b->accepted == b->jobs)
            b->accepted_us = monotonic_us();
    int err = 0;
    while (code == CLI_DONE && err == 0 && p->pending < b->window && b->pushed < b->jobs)
        err = bench_push_one(b, p);
    return code != CLI_DONE ? code : bench_report(p, err);
}

// ---- Workers ----------------------------------------------------------------------------------

static int take_more(struct bench *b, struct bench_client *p) {
    static const char *const words[] = { "TAKE", STAGE, "COUNT", "64", "WAIT", "1000" };
    words_clear(&b->words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        words_text(&b->words, words[i]);
    p->pending++;
    return talk_send(p->talk, &b->words);
}

// A job is [id, token, stage, key, body, …].
static int work_one(struct bench *b, struct bench_client *p, const struct response_value *job) {
    const struct response_value *id = job + 1, *token = job + 2, *body = job + 5;
    uint64_t pushed, now = monotonic_us();
    if (job->count >= 5 && body->bytes.size >= STAMP) {
        memcpy(&pushed, body->bytes.data, STAMP);
        histogram_add(&b->start_us, now > pushed ? now - pushed : 0);
    }
    words_clear(&b->words);
    words_text(&b->words, "DONE");
    words_add(&b->words, id->bytes);
    words_add(&b->words, token->bytes);
    p->pending++;
    return talk_send(p->talk, &b->words);
}

static enum cli_exit work_all(struct bench *b, struct bench_client *p,
                              const struct response_value *jobs) {
    const struct response_value *job = jobs + 1;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < jobs->count; i++, job = value_next(job))
        err = work_one(b, p, job);
    return bench_report(p, err);
}

static enum cli_exit work(struct bench *b, struct bench_client *p) {
    const struct response_value *reply;
    enum cli_exit code;
    while ((code = bench_receive(p, &reply)) == CLI_DONE && reply) {
        if (reply->type == RESPONSE_ARRAY)
            code = work_all(b, p, reply);
        else if (++b->done == b->jobs)
            b->ended_us = monotonic_us();
        if (code != CLI_DONE)
            break;
    }
    return code != CLI_DONE || p->pending ? code : bench_report(p, take_more(b, p));
}

// ---- A run ------------------------------------------------------------------------------------

static enum cli_exit open_clients(struct bench *b) {
    enum cli_exit code = CLI_DONE;
    for (uint64_t i = 0; code == CLI_DONE && i < b->producers + b->workers; i++)
        code = talk_open(b->talks, &b->clients[i].talk);
    return code;
}

static enum cli_exit drop_rest(struct bench *b) {
    static const char *const words[] = { "DROP", "STAGE", STAGE, "WAITING", "MAX", "1000000000" };
    const struct response_value *reply;
    words_clear(&b->words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        words_text(&b->words, words[i]);
    int err = talk_ask(b->talk, &b->words, &reply); // GONE: there was none
    return err < 0 ? talk_failed(b->talk, err) : CLI_DONE;
}

static bool bench_is_over(const struct bench *b) {
    return b->accepted == b->jobs && (!b->workers || b->done == b->jobs);
}

static enum cli_exit bench_run_all(struct bench *b) {
    enum cli_exit code = CLI_DONE;
    b->begun_us = monotonic_us();
    while (code == CLI_DONE && !bench_is_over(b)) {
        for (uint64_t i = 0; code == CLI_DONE && i < b->producers + b->workers; i++)
            code = i < b->producers ? produce(b, &b->clients[i]) : work(b, &b->clients[i]);
        if (code != CLI_DONE || bench_is_over(b))
            break;
        int err = talks_turn(b->talks, -1, -1);
        if (err < 0)
            code = talk_failed(b->talk, err);
        progress_count(b->workers ? b->done : b->accepted, "jobs");
    }
    progress_clear();
    return code;
}

// ---- The figures ----------------------------------------------------------------------------

static double per_s(uint64_t count, uint64_t from_us, uint64_t to_us) {
    return to_us > from_us ? (double)count * 1e6 / (double)(to_us - from_us) : 0;
}

static void bench_print_words(const struct bench *b) {
    const struct histogram *h = &b->start_us;
    char size[SIZE_WORDS];
    printf("%" PRIu64 " jobs of %s, producers: %" PRIu64 " with a window of %" PRIu64
           ", workers: %" PRIu64 ", ",
           b->jobs, size_words(size, b->body), b->producers, b->window, b->workers);
    if (b->keys)
        printf("%" PRIu64 " key%s\n", b->keys, b->keys == 1 ? "" : "s");
    else
        printf("no keys\n");
    printf("pushed      %9.0f/s\n", per_s(b->jobs, b->begun_us, b->accepted_us));
    if (!b->workers)
        return;
    printf("done        %9.0f/s\n", per_s(b->jobs, b->begun_us, b->ended_us));
    printf("push→start  %9.2f ms  p50\n", (double)histogram_quantile(h, 0.5) / 1000);
    printf("            %9.2f ms  p99\n", (double)histogram_quantile(h, 0.99) / 1000);
    printf("            %9.2f ms  longest\n", (double)h->max / 1000);
}

static void bench_print_json(const struct bench *b) {
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    json_number(&j, "jobs", b->jobs);
    json_number(&j, "body", b->body);
    json_number(&j, "keys", b->keys);
    json_number(&j, "window", b->window);
    json_number(&j, "producers", b->producers);
    json_number(&j, "workers", b->workers);
    json_double(&j, "pushed-per-s", per_s(b->jobs, b->begun_us, b->accepted_us));
    if (b->workers) {
        json_double(&j, "done-per-s", per_s(b->jobs, b->begun_us, b->ended_us));
        json_number(&j, "start-p50-us", histogram_quantile(&b->start_us, 0.5));
        json_number(&j, "start-p99-us", histogram_quantile(&b->start_us, 0.99));
        json_number(&j, "start-max-us", b->start_us.max);
    }
    json_close(&j, '}');
    json_end(&j);
}

// ---- The command ------------------------------------------------------------------------------

static bool bench_refuse(const char *why) {
    complain("bench: %s", why);
    return false;
}

static bool bench_options_read(struct bench *b) {
    const struct input *in = b->in;
    b->jobs = 100000, b->body = 256, b->window = 256, b->producers = b->workers = 1;
    if (!input_count(in, "--jobs", UINT32_MAX, &b->jobs) ||
        !input_count(in, "--body", BODY_MOST, &b->body) ||
        !input_count(in, "--keys", UINT32_MAX, &b->keys) ||
        !input_count(in, "--window", WINDOW_MOST, &b->window) ||
        !input_count(in, "--producers", CLIENTS, &b->producers) ||
        !input_count(in, "--workers", CLIENTS, &b->workers))
        return false;
    if (!b->jobs || !b->window || !b->producers)
        return bench_refuse("--jobs, --window and --producers are at least 1");
    if (b->body < STAMP)
        return bench_refuse("--body is at least 8: a body carries the time of its push");
    return true;
}

static enum cli_exit bench_all(struct bench *b) {
    enum cli_exit code = talk_begin(b->in, STORE_IS_MADE, &b->talks, &b->talk);
    if (code == CLI_DONE)
        code = drop_rest(b);
    if (code == CLI_DONE)
        code = open_clients(b);
    if (code == CLI_DONE)
        code = bench_run_all(b);
    if (code == CLI_DONE && !b->workers)
        code = drop_rest(b);
    talks_close(b->talks);
    if (code == CLI_DONE && input_option(b->in, "--json"))
        bench_print_json(b);
    else if (code == CLI_DONE)
        bench_print_words(b);
    return code;
}

enum cli_exit bench_run(const struct input *in) {
    struct bench *b = mem_alloc(sizeof *b);
    if (!b) {
        complain("bench: no memory");
        return CLI_FAILED;
    }
    b->in = in;
    enum cli_exit code = bench_options_read(b) ? bench_all(b) : CLI_USAGE;
    words_finish(&b->words);
    mem_free(b);
    return code;
}
