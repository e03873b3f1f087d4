// Anything sent by three clients to a server in memory, in any order and any pieces, while time
// passes and clients leave: every reply is well formed, and at the end every invariant holds. The
// server has one shard, three, or three in as many loops, which take turns in this thread.
//
// A byte chooses a client and what it does; in a request every byte is a word of the vocabulary,
// which has every command and option, or the id and token of the job that was taken last.
#include "server/session.h"
#include "base/errors.h"
#include "server/command.h"
#include "server/router.h"
#include "wire/response.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CLIENTS = 3, LOOPS = 3, VALUES = 1 << 16, WORDS = 32 };

static const char *const words[] = {
    "s",       "t",         "k",        "",          "0",           "1",           "2",
    "3",       "-1",        "10",       "x",         "e",           "KEY",         "ONCE",
    "DELAY",   "DEADLINE",  "ATTEMPTS", "ROOM",      "EPIC",        "SOURCE",      "ITEMS",
    "COUNT",   "BATCH",     "WAIT",     "LEASE",     "DETACHED",    "RESULT",      "STATE",
    "EMIT",    "RETRY",     "NEVER",    "BODY",      "STATUS",      "FROM",        "END",
    "SKIP",    "DROP",      "TOP",      "STAGE",     "DEAD",        "WAITING",     "REASON",
    "MAX",     "DRY",       "ON",       "max-jobs",  "concurrency", "rate",        "on-dead",
    "halt",    "retention", "0,0",      "high-mark", "1/s",         "waiting",     "running",
    "delayed", "done",      "CANCELS",  "overlap",   "never",       "max-channel", "LEFT",
};
enum { PLAIN = sizeof words / sizeof *words };

struct client {
    struct host *host; // the loop of its connection
    struct session *session;
    struct buffer received;
    bool unread;
};

static struct world {
    struct loops loops;
    struct host hosts[LOOPS];
    struct group *group;
    struct client clients[CLIENTS];
    uint64_t now_ms;
    char id[32], token[64]; // of the job taken last
} w;

static struct response_value values[VALUES];

static uint64_t now(void *arg) {
    (void)arg;
    return w.now_ms;
}

static uint64_t chance(void *arg) {
    (void)arg;
    return 4;
}

static void no_wake(void *arg) {
    (void)arg; // every turn checks the inbox
}

static void make_hosts(uint32_t loops) {
    loops_init(&w.loops, loops, false);
    for (uint32_t i = 0; i < loops; i++) {
        int err = host_init(&w.hosts[i], "mem:");
        assert(err == 0);
        w.hosts[i].loop = i;
        loops_add(&w.loops, &w.hosts[i], no_wake, NULL);
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        w.clients[i].host = &w.hosts[i % loops];
}

static void begin(uint32_t shards, uint32_t loops) {
    w = (struct world){ .now_ms = 1000 };
    struct group_options options = { .shards = shards,
                                     .log = { .inline_writer = true },
                                     .limits = { .max_room_bytes = 4096, .max_jobs = 200 },
                                     .world = { now, now, chance, NULL } };
    make_hosts(loops);
    host_group_options(&w.hosts[0], &options);
    int err = group_open(&options, &w.group);
    assert(err == 0);
    for (uint32_t i = 0; i < loops; i++) {
        err = host_load(&w.hosts[i], w.group);
        assert(err == 0);
    }
}

// ---- Hearing ------------------------------------------------------------------------------------

static void note(char *out, size_t size, mr_bytes text) {
    snprintf(out, size, "%.*s", (int)text.size, (const char *)text.data);
}

static void hear(struct client *c) {
    static const struct response_limits limits = { VALUES, 1 << 16, 1 << 24, 1 << 28 };
    while (c->received.size) {
        struct response reader = { 0 };
        uint32_t count;
        ptrdiff_t used =
            response_read(&reader, &limits, c->received.data, c->received.size, values, &count);
        assert(used > 0);
        if (count >= 10 && values[0].type == RESPONSE_ARRAY && values[1].count == 9) {
            note(w.id, sizeof w.id, values[2].bytes);
            note(w.token, sizeof w.token, values[3].bytes);
        }
        memmove(c->received.data, c->received.data + used, c->received.size - (size_t)used);
        c->received.size -= (size_t)used;
    }
}

static void leave(struct client *c) {
    host_begin(c->host);
    session_destroy(c->session);
    c->session = NULL;
    buffer_finish(&c->received);
}

static void client_read(struct client *c) {
    mr_bytes ready = session_ready(c->session);
    if (ready.size && !c->unread) {
        int err = buffer_append(&c->received, ready.data, ready.size);
        assert(err == 0);
        session_sent(c->session, ready.size);
        hear(c);
    }
    if (session_is_over(c->session))
        leave(c);
}

static void turn_at(struct host *h) {
    host_begin(h);
    if (h->loops)
        (void)router_receive(h);
    do {
        host_end(h);
        host_durable(h);
        while (!list_empty(&h->ready)) {
            struct session *s = list_entry(h->ready.next, struct session, of_ready);
            list_remove(&s->of_ready);
            if (s->remote)
                router_send_replies(s);
            else
                client_read(s->owner);
        }
    } while (h->in_turn || !list_empty(&h->touched) || !list_empty(&h->resuming) ||
             !list_empty(&h->outgoing));
}

static bool has_messages(void) {
    bool any = false;
    for (uint32_t i = 0; i < w.loops.count; i++)
        any = any || !list_empty(&w.loops.inboxes[i].messages);
    return any;
}

static void turn(void) {
    do
        for (uint32_t i = 0; i < w.loops.count; i++)
            turn_at(&w.hosts[i]);
    while (has_messages());
}

// ---- Saying -------------------------------------------------------------------------------------

static void say(struct client *c, const uint8_t *data, size_t size) {
    while (size && c->session) {
        size_t room;
        uint8_t *to = session_room(c->session, &room);
        if (!to)
            return;
        size_t some = size < room ? size : room;
        memcpy(to, data, some);
        host_begin(c->host);
        session_receive(c->session, some);
        data += some;
        size -= some;
        if (c->session->closing || c->session->broken)
            break;
    }
}

static mr_bytes word(uint8_t byte) {
    static uint8_t commands;
    while (!commands || command_table[commands].name)
        commands++;
    if (byte >= 254)
        return mr_str(byte == 254 ? w.id : w.token);
    byte %= PLAIN + commands;
    return mr_str(byte < PLAIN ? words[byte] : command_table[byte - PLAIN].name);
}

// A command, its words up to a zero byte. Returns how much of the data it took.
static size_t say_request(struct client *c, const uint8_t *data, size_t size) {
    mr_bytes said[WORDS];
    struct buffer request = { 0 };
    size_t count = 0, at = 0;
    for (; at < size && data[at] && count < WORDS; at++)
        said[count++] = word(data[at]);
    int err = count ? request_write(&request, said, count) : 0;
    assert(err == 0);
    say(c, request.data, request.size);
    buffer_finish(&request);
    return at;
}

// ---- All of it ----------------------------------------------------------------------------------

static size_t act(uint8_t what, const uint8_t *data, size_t size) {
    struct client *c = &w.clients[what % CLIENTS];
    if (!c->session) {
        int err = session_create(c->host, &c->session);
        assert(err == 0);
        c->session->owner = c;
        c->unread = false;
    }
    size_t some = size ? data[0] % 64 : 0;
    switch (what / CLIENTS % 8) {
    case 0: // as it stands
        some = some < size ? some : size;
        say(c, data, some);
        return some;
    case 1:
        w.now_ms += size ? (uint64_t)data[0] * data[0] : 1;
        return size > 0;
    case 2:
        leave(c);
        return 0;
    case 3:
        c->unread = !c->unread;
        session_touch(c->session);
        return 0;
    default:
        return say_request(c, data, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    begin(size % 3 ? 3 : 1, size % 3 == 2 ? LOOPS : 1);
    for (size_t at = 0; at < size;) {
        uint8_t what = data[at++];
        at += act(what, data + at, size - at);
        if (what < 200) // several may share a turn
            turn();
    }
    turn();
    for (int i = 0; i < CLIENTS; i++)
        leave(&w.clients[i]);
    turn();
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < group_count(w.group); i++)
        err = core_check(shard_core(group_shard(w.group, i)));
    if (err < 0)
        fprintf(stderr, "%s\n", error_text());
    assert(err == 0);
    for (uint32_t i = w.loops.count; i > 0; i--)
        host_finish(&w.hosts[i - 1]);
    loops_finish(&w.loops);
    group_close(w.group);
    return 0;
}
