// Any bytes sent over HTTP on one connection, in any pieces, to a server in memory: the output
// begins like a response, nothing is leaked, and every invariant holds.
//
// The first byte says how large the pieces are. A byte of 1 lets a second pass, which is also that
// of an event; one of 2 has an allocation fail, the nth from then on, as the byte behind it says.
#include "base/errors.h"
#include "base/mem.h"
#include "web/state.h"
#include "web/web.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct world {
    struct host host;
    struct group *group;
    struct session *session; // NULL: it has ended
    struct web *web;
    uv_loop_t loop;
    uint64_t now_ms, received;
} w;

static uint64_t now(void *arg) {
    (void)arg;
    return w.now_ms;
}

static uint64_t chance(void *arg) {
    (void)arg;
    return 4;
}

static void leave(void) {
    if (!w.session)
        return;
    host_begin(&w.host);
    w.session->front->impl->close(w.session->front);
    session_destroy(w.session);
    w.session = NULL;
}

static void receive(struct session *s) {
    for (mr_bytes ready; (ready = front_ready(s)).size; front_sent(s, ready.size)) {
        assert(w.received || ready.size < 9 || memcmp(ready.data, "HTTP/1.1 ", 9) == 0);
        w.received += ready.size;
    }
    if (front_is_over(s))
        leave();
}

static void turn(void *arg) {
    (void)arg;
    do {
        host_end(&w.host);
        host_durable(&w.host);
        while (!list_empty(&w.host.ready)) {
            struct session *s = list_entry(w.host.ready.next, struct session, of_ready);
            list_remove(&s->of_ready);
            receive(s);
        }
    } while (w.host.in_turn || !list_empty(&w.host.touched) || !list_empty(&w.host.resuming));
}

// One web serves all inputs, each with a host of its own in the same place.
static void begin(void) {
    if (!w.web) {
        struct front_place place = {
            .loop = &w.loop, .host = &w.host, .address = "127.0.0.1", .turn_end = turn
        };
        void *web;
        int err = uv_loop_init(&w.loop);
        assert(err == 0);
        err = web_front()->start(&place, &web);
        assert(err == 0);
        w.web = web;
    }
    w.now_ms = 1000;
    w.received = 0;
    series_finish(w.web->series);
    struct group_options options = { .log = { .inline_writer = true },
                                     .limits = { .max_room_bytes = 4096, .max_jobs = 200 },
                                     .world = { now, now, chance, NULL } };
    int err = host_init(&w.host, "mem:");
    assert(err == 0);
    host_group_options(&w.host, &options);
    err = group_open(&options, &w.group);
    assert(err == 0);
    err = host_load(&w.host, w.group);
    assert(err == 0);
    w.host.watch = web_front()->turn;
    w.host.watcher = w.web;
    err = session_create(&w.host, &w.session);
    assert(err == 0);
    err = web_front()->open(w.web, w.session, NULL, &w.session->front);
    assert(err == 0);
}

static void say(const uint8_t *data, size_t size) {
    while (size && w.session) {
        size_t room;
        uint8_t *to = front_room(w.session, &room);
        if (!to)
            return;
        size_t some = size < room ? size : room;
        memcpy(to, data, some);
        host_begin(&w.host);
        front_receive(w.session, some);
        turn(NULL);
        data += some;
        size -= some;
    }
}

static void pass_time(void) {
    w.now_ms += WEB_EVENT_MS;
    host_begin(&w.host);
    turn(NULL);
    if (w.web->quota_of_streams.count)
        on_event(&w.web->event_timer);
}

static bool is_order(uint8_t byte) {
    return byte == 1 || byte == 2;
}

// One piece, or what an order says. Returns how much of the data it took.
static size_t act(const uint8_t *data, size_t size, size_t most) {
    size_t some = 0;
    if (data[0] == 1)
        pass_time();
    else if (data[0] == 2)
        mem_fail_after(size > 1 ? data[1] : 0);
    if (is_order(data[0]))
        return data[0] == 2 && size > 1 ? 2 : 1;
    while (some < size && some < most && !is_order(data[some]))
        some++;
    say(data, some);
    return some;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t most = size ? data[0] + 1u : 1;
    begin();
    for (size_t at = 1; at < size;)
        at += act(data + at, size - at, most);
    mem_fail_after(-1);
    leave();
    turn(NULL);
    assert(!w.web->quota_of_streams.count && list_empty(&w.web->streams));
    int err = core_check(shard_core(group_shard(w.group, 0)));
    if (err < 0)
        fprintf(stderr, "%s\n", error_text());
    assert(err == 0);
    assert(w.host.buffered == 0);
    host_finish(&w.host);
    group_close(w.group);
    return 0;
}
