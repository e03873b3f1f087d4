// Takes jobs of stage `s` by hand, over the remote engine and from a server of its own.
#ifndef TEST_SUPPORT_TAKING_H
#define TEST_SUPPORT_TAKING_H

#include "client/state.h"
#include "support/api.h"

struct taking {
    struct serving server;
    struct engine *engine;
    struct puller *puller;
};

static inline void taking_start(struct taking *t) {
    serving_start(&t->server, "mem:", 0);
    must(client_open(t->server.url, &(struct client_options){ 0 }, &t->engine));
    must(t->engine->impl->puller_open(t->engine, &(struct puller_options){ 0 }, &t->puller));
}

static inline void taking_stop(struct taking *t) {
    t->engine->impl->puller_close(t->puller);
    must(t->engine->impl->close(t->engine));
    serving_end(&t->server, SIGKILL);
}

static inline void push_much(struct engine *e, size_t count) {
    static mr_item items[1000];
    while (count) {
        size_t size = count < 1000 ? count : 1000, pushed;
        must(e->impl->push_many(e, mr_str("s"), items, size, &(mr_push_options){ 0 }, NULL, NULL,
                                &pushed));
        assert_int_equal(pushed, size);
        count -= size;
    }
}

static inline struct mr_job *take_up_to(struct taking *t, uint32_t most, int64_t wait_ms) {
    mr_bytes stage = mr_str("s");
    struct mr_job *jobs = NULL;
    struct pull pull = { .stages = &stage, .stage_count = 1, .batch = most, .wait_ms = wait_ms };
    must(t->engine->impl->take(t->puller, &pull, &jobs));
    return jobs;
}

// Every request sent before over the main link has been answered.
static inline void receive_all(struct engine *e) {
    mr_stage_info info;
    must(e->impl->stage_look(e, mr_str("s"), &info));
}

// As if another client had ended the lease.
static inline void end_lease(struct client *c, const struct mr_job *job) {
    struct exchange *x = exchange_new("RELEASE");
    exchange_number(x, job->id);
    exchange_bytes(x, (mr_bytes){ job->token, strnlen((const char *)job->token, CLIENT_TOKEN) });
    must(exchange_do(c, x, NULL, NULL));
}

#endif
