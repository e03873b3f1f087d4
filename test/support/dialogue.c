// See dialogue.h.
#include "dialogue.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "server/fetch.h"
#include "wire/request.h"
#include "wire/response.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- The server -------------------------------------------------------------------------------

static uint64_t clock_wall(void *arg) {
    return UINT64_C(1700000000000) + ((struct dialogue *)arg)->now_ms;
}

static uint64_t clock_boot(void *arg) {
    return ((struct dialogue *)arg)->now_ms;
}

static uint64_t no_chance(void *arg) {
    (void)arg;
    return 42;
}

uint32_t dialogue_shards = 1, dialogue_loops = 1;
bool dialogue_in_one_loop;

static struct host *host_at(struct dialogue *d, uint32_t loop) {
    return loop + 1 == d->loops.count ? &d->host : &d->others[loop];
}

static void no_wake(void *arg) {
    (void)arg; // every turn checks the inbox
}

static void make_hosts(struct dialogue *d) {
    loops_init(&d->loops, dialogue_loops, false);
    for (uint32_t i = 0; i < dialogue_loops; i++) {
        assert_int_equal(host_init(host_at(d, i), "test:"), 0);
        host_at(d, i)->loop = i;
        loops_add(&d->loops, host_at(d, i), no_wake, NULL);
    }
}

void dialogue_load(struct dialogue *d) {
    host_group_options(host_at(d, 0), &d->options);
    if (group_open(&d->options, &d->group) < 0)
        fail_msg("%s", error_text());
    for (uint32_t i = 0; i < d->loops.count; i++)
        assert_int_equal(host_load(host_at(d, i), d->group), 0);
}

void dialogue_check(const struct dialogue *d) {
    for (uint32_t i = 0; d->group && i < group_count(d->group); i++)
        if (core_check(shard_core(group_shard(d->group, i))) < 0)
            fail_msg("shard %u: %s", i, error_text());
}

struct dialogue *dialogue_create(enum store store, struct core_limits limits) {
    struct dialogue *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->now_ms = 1000;
    d->threaded = store == STORE_THREAD;
    if (store == STORE_DISK || store == STORE_THREAD)
        d->disk = sim_disk_create();
    d->options = (struct group_options){
        .store = store_in(d->disk ? "store" : NULL),
        .shards = dialogue_shards,
        .log = { .disk = d->disk ? sim_disk_disk(d->disk) : NULL,
                 .recent_bytes = 1, // the last batch: see chill
                 .inline_writer = store != STORE_THREAD,
                 .segment_size = 64 << 10 },
        .limits = limits,
        .world = { clock_wall, clock_boot, no_chance, d },
        .never_replayed = !d->disk,
    };
    make_hosts(d);
    if (store != STORE_LATER)
        dialogue_load(d);
    connect_client(d, 0);
    connect_client(d, 1);
    return d;
}

void dialogue_destroy(struct dialogue *d) {
    for (int i = 0; i < DIALOGUE_CLIENTS; i++)
        if (!d->clients[i].unread)
            expect_no_reply(d, i);
    for (int i = 0; i < DIALOGUE_CLIENTS; i++) {
        hang_up(d, i);
        buffer_finish(&d->clients[i].received);
    }
    dialogue_check(d);
    for (uint32_t i = d->loops.count; i > 0; i--)
        host_finish(host_at(d, i - 1));
    loops_finish(&d->loops);
    group_close(d->group);
    if (d->disk)
        sim_disk_destroy(d->disk);
    free(d);
}

int dialogue_run(const struct CMUnitTest *any, size_t any_count, const struct CMUnitTest *alone,
                 size_t alone_count) {
    int failed =
        alone_count ? _cmocka_run_group_tests("one shard only", alone, alone_count, NULL, NULL) : 0;
    failed += _cmocka_run_group_tests("one shard", any, any_count, NULL, NULL);
    dialogue_shards = 3;
    failed += _cmocka_run_group_tests("three shards", any, any_count, NULL, NULL);
    if (dialogue_in_one_loop)
        return failed;
    dialogue_loops = DIALOGUE_LOOPS;
    return failed + _cmocka_run_group_tests("three loops", any, any_count, NULL, NULL);
}

int dialogue_setup(void **state) {
    *state = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    return 0;
}

int dialogue_teardown(void **state) {
    dialogue_destroy(*state);
    return 0;
}

void connect_client(struct dialogue *d, int client) {
    assert_null(d->clients[client].session);
    assert_int_equal(session_create(&d->host, &d->clients[client].session), 0);
    d->clients[client].session->owner = &d->clients[client];
    d->clients[client].closed = false;
}

static void client_close(struct dialogue *d, struct client *c) {
    host_begin(&d->host);
    session_destroy(c->session);
    c->session = NULL;
}

void hang_up(struct dialogue *d, int client) {
    if (!d->clients[client].session)
        return;
    client_close(d, &d->clients[client]);
    turn(d);
}

void half_close(struct dialogue *d, int client) {
    host_begin(&d->host);
    session_end_input(d->clients[client].session);
    turn(d);
}

// ---- Turns, as the loop does them -------------------------------------------------------------

static void client_read(struct dialogue *d, struct client *c) {
    mr_bytes ready = session_ready(c->session);
    if (ready.size && !c->unread) {
        long left = mem_fail_after(-1); // the test's own memory does not fail
        assert_int_equal(buffer_append(&c->received, ready.data, ready.size), 0);
        mem_fail_after(left);
        session_sent(c->session, ready.size);
    }
    if (session_is_over(c->session)) {
        client_close(d, c);
        c->closed = true;
    }
}

static void flush_at(struct dialogue *d, struct host *h) {
    if (d->threaded && !d->held)
        host_wait(h);
    host_durable(h);
    while (!list_empty(&h->ready)) {
        struct session *s = list_entry(h->ready.next, struct session, of_ready);
        list_remove(&s->of_ready);
        if (s->remote)
            router_send_replies(s);
        else
            client_read(d, s->owner);
    }
}

static void flush(struct dialogue *d) {
    for (uint32_t i = 0; i < d->loops.count; i++)
        flush_at(d, host_at(d, i));
}

// Sessions that have more to run than the budget of a turn go on; a command done in pieces does
// not.
static bool has_backlog(const struct host *h) {
    for (const struct list *l = h->backlog.next; l != &h->backlog; l = l->next)
        if (!list_entry(l, struct session, of_backlog)->wait.kind)
            return true;
    return false;
}

static bool has_more(struct dialogue *d) {
    bool more = false;
    for (uint32_t i = 0; i < d->loops.count; i++)
        more = more || has_backlog(host_at(d, i)) || !list_empty(&host_at(d, i)->leaving);
    return more;
}

void turn(struct dialogue *d) {
    do
        turn_once(d);
    while (has_more(d));
}

static void turn_at(struct dialogue *d, struct host *h) {
    host_begin(h);
    if (h->loops)
        (void)router_receive(h);
    do {
        host_end(h);
        flush_at(d, h);
    } while (h->in_turn || !list_empty(&h->touched) || !list_empty(&h->resuming) ||
             !list_empty(&h->outgoing));
}

static bool has_messages(struct dialogue *d) {
    bool any = false;
    for (uint32_t i = 0; i < d->loops.count; i++)
        any = any || !list_empty(&d->loops.inboxes[i].messages);
    return any;
}

// Until no loop has a message for another.
void turn_once(struct dialogue *d) {
    do
        for (uint32_t i = d->loops.count; i > 0; i--)
            turn_at(d, host_at(d, i - 1));
    while (has_messages(d));
}

void hold_syncs(struct dialogue *d, bool hold) {
    sim_disk_hold_syncs(d->disk, hold);
    d->held = hold;
    flush(d);
    if (has_messages(d))
        turn_once(d);
}

static int fetch_later(void *dialogue, struct fetch *f) {
    struct dialogue *d = dialogue;
    assert_true(d->fetch_count < DIALOGUE_CLIENTS);
    d->fetches[d->fetch_count++] = f;
    return 0;
}

// What was written last is kept for a while: other things are written, to every shard.
void chill(struct dialogue *d) {
    for (uint32_t i = 0; i < 16 * group_count(d->group); i++)
        push(d, "elsewhere x");
    sim_disk_chill(d->disk, true);
    host_set_fetch(&d->host, fetch_later, d);
}

void fetch_all(struct dialogue *d) {
    host_begin(&d->host);
    while (d->fetch_count) {
        struct fetch *f = d->fetches[--d->fetch_count];
        fetch_read(f);
        fetch_end(f);
    }
    turn(d);
}

int64_t dialogue_next_ms(struct dialogue *d) {
    int64_t ms = -1;
    for (uint32_t i = 0; i < d->loops.count; i++)
        ms = wait_shorter(ms, host_next_ms(host_at(d, i)));
    return ms;
}

uint64_t dialogue_leases(struct dialogue *d) {
    uint64_t leases = 0;
    for (uint32_t i = 0; i < d->loops.count; i++)
        leases += host_leases(host_at(d, i));
    return leases;
}

void dialogue_stop(struct dialogue *d) {
    for (uint32_t i = 0; i < d->loops.count; i++)
        host_stop(host_at(d, i));
}

void pass_ms(struct dialogue *d, uint64_t ms) {
    d->now_ms += ms;
    turn(d);
}

// ---- Saying -----------------------------------------------------------------------------------

void send_in_pieces(struct dialogue *d, int client, mr_bytes bytes, size_t most) {
    struct session *s = d->clients[client].session;
    assert_non_null(s);
    for (size_t at = 0; at < bytes.size;) {
        size_t size = 0;
        uint8_t *room = session_room(s, &size);
        assert_true(room || s->broken);
        if (!room) {
            session_touch(s);
            break;
        }
        size = size < most ? size : most;
        size = size < bytes.size - at ? size : bytes.size - at;
        memcpy(room, (const uint8_t *)bytes.data + at, size);
        at += size;
        host_begin(&d->host);
        session_receive(s, size);
        if (session_is_over(s))
            session_touch(s);
        if (s->closing || s->broken)
            break;
    }
    turn(d);
}

void send_bytes(struct dialogue *d, int client, mr_bytes bytes) {
    send_in_pieces(d, client, bytes, SIZE_MAX);
}

void send_words(struct dialogue *d, int client, const mr_bytes *words, size_t count) {
    struct buffer request = { 0 };
    long left = mem_fail_after(-1);
    assert_int_equal(request_write(&request, words, count), 0);
    mem_fail_after(left);
    send_bytes(d, client, buffer_bytes(&request));
    buffer_finish(&request);
}

enum { WORDS = 4096, SPELLED = 1 << 20 };

static size_t split(const char *text, mr_bytes *out) {
    size_t count = 0;
    while (*text) {
        const char *end = *text == '\'' ? strchr(++text, '\'') : text + strcspn(text, " ");
        assert_true(end && count < WORDS);
        out[count++] = (mr_bytes){ text, (size_t)(end - text) };
        text = end + (*end == '\'');
        text += *text == ' ';
    }
    return count;
}

// Ids of a shard are as far apart as there are shards, and "s" is in the first: #2 is the id of
// the second job there.
static const char *number_jobs(const struct dialogue *d, const char *text) {
    static char out[SPELLED];
    size_t size = 0;
    for (; *text; text++) {
        if (text[0] != '#' || text[1] < '1' || text[1] > '9') {
            out[size++] = *text;
            continue;
        }
        uint32_t shards = d->host.shards ? d->host.shards : 1;
        size += (size_t)snprintf(out + size, 12, "%u", (uint32_t)(*++text - '1') * shards + 1);
    }
    out[size] = 0;
    return out;
}

void send_line(struct dialogue *d, int client, const char *text) {
    static mr_bytes words[WORDS];
    send_words(d, client, words, split(number_jobs(d, text), words));
}

void send_linef(struct dialogue *d, int client, const char *format, ...) {
    char text[4096];
    va_list values;
    va_start(values, format);
    assert_true(vsnprintf(text, sizeof text, format, values) < (int)sizeof text);
    va_end(values);
    send_line(d, client, text);
}

// ---- Hearing ----------------------------------------------------------------------------------

enum { VALUES = 1 << 16 };
static struct response_value values[VALUES];
static char spelled[SPELLED];

static void spell_bytes(FILE *out, mr_bytes b) {
    const unsigned char *p = b.data;
    for (size_t i = 0; i < b.size; i++)
        if (isprint(p[i]))
            (void)fputc(p[i], out);
        else
            fprintf(out, "\\x%02X", p[i]);
}

static uint32_t spell(FILE *out, uint32_t at);

static uint32_t spell_many(FILE *out, uint32_t at, const char *open, const char *close) {
    uint32_t count = values[at++].count;
    fprintf(out, "%s", open);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(out, "%s", i ? " " : "");
        at = spell(out, at);
    }
    fprintf(out, "%s", close);
    return at;
}

static uint32_t spell(FILE *out, uint32_t at) {
    const struct response_value *v = &values[at];
    switch (v->type) {
    case RESPONSE_SIMPLE:
    case RESPONSE_ERROR:
    case RESPONSE_DOUBLE:
        fprintf(out, "%c",
                v->type == RESPONSE_SIMPLE  ? '+'
                : v->type == RESPONSE_ERROR ? '-'
                                            : ',');
        spell_bytes(out, v->bytes);
        break;
    case RESPONSE_BULK:
        fprintf(out, "\"");
        spell_bytes(out, v->bytes);
        fprintf(out, "\"");
        break;
    case RESPONSE_INTEGER:
        fprintf(out, ":%lld", (long long)v->integer);
        break;
    case RESPONSE_BOOLEAN:
        fprintf(out, "%s", v->boolean ? "#t" : "#f");
        break;
    case RESPONSE_NULL:
        fprintf(out, "nil");
        break;
    case RESPONSE_ARRAY:
        return spell_many(out, at, "[", "]");
    case RESPONSE_MAP:
        return spell_many(out, at, "{", "}");
    case RESPONSE_PUSH:
        return spell_many(out, at, ">[", "]");
    }
    return at + 1;
}

// Reads one reply into `values` and spells it; NULL: none was received.
static const char *read_reply(struct dialogue *d, int client) {
    static const struct response_limits limits = { VALUES, 1 << 16, 64 << 20, 256 << 20 };
    struct buffer *reply = &d->clients[client].received;
    struct response reader = { 0 };
    uint32_t count;
    if (!reply->size)
        return NULL;
    ptrdiff_t used = response_read(&reader, &limits, reply->data, reply->size, values, &count);
    if (used <= 0)
        fail_msg("not a reply: %.*s", (int)reply->size, (const char *)reply->data);
    FILE *out = fmemopen(spelled, sizeof spelled, "w");
    spell(out, 0);
    (void)fclose(out);
    memmove(reply->data, reply->data + used, reply->size - (size_t)used);
    reply->size -= (size_t)used;
    return spelled;
}

bool reply_fits(const char *pattern, const char *text) {
    const char *asterisk = NULL, *from = NULL;
    while (*text) {
        if (*pattern == '*') {
            asterisk = pattern++;
            from = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (asterisk) {
            pattern = asterisk + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == 0;
}

void expect_reply_at(struct dialogue *d, int client, const char *text, const char *file, int line) {
    const char *reply = read_reply(d, client), *wanted = number_jobs(d, text);
    if (!reply || !reply_fits(wanted, reply)) {
        print_error("%s:%d: client %d should get\n    %s\nand gets\n    %s\n", file, line, client,
                    wanted, reply ? reply : "nothing");
        fail();
    }
}

void expect_no_reply_at(struct dialogue *d, int client, const char *file, int line) {
    const char *reply = read_reply(d, client);
    if (reply) {
        print_error("%s:%d: client %d should get nothing and gets\n    %s\n", file, line, client,
                    reply);
        fail();
    }
}

const char *next_reply(struct dialogue *d, int client) {
    const char *reply = read_reply(d, client);
    assert_non_null(reply);
    return reply;
}

void expect_field(struct dialogue *d, int client, const char *name, const char *value) {
    char pattern[1024];
    snprintf(pattern, sizeof pattern, "*\"%s\" %s*", name, value);
    expect_reply(d, client, pattern);
}

// ---- Jobs -------------------------------------------------------------------------------------

// The text between the next two quotes.
static const char *quoted(const char *text, char *out, size_t size) {
    const char *begin = strchr(text, '"') + 1, *end = strchr(begin, '"');
    snprintf(out, size, "%.*s", (int)(end - begin), begin);
    return end + 1;
}

struct job taken(struct dialogue *d, int client) {
    struct job job;
    char stage[256];
    const char *text = next_reply(d, client);
    if (text[0] != '[' || text[1] != '[')
        fail_msg("TAKE gives %s", text);
    text = quoted(text, job.id, sizeof job.id);
    text = quoted(text, job.token, sizeof job.token);
    text = quoted(text, stage, sizeof stage);
    text = quoted(text, job.key, sizeof job.key);
    quoted(text, job.body, sizeof job.body);
    return job;
}

struct job take(struct dialogue *d, int client, const char *words) {
    send_linef(d, client, "TAKE %s", words);
    return taken(d, client);
}

void push(struct dialogue *d, const char *words) {
    send_linef(d, 1, "PUSH %s", words);
    expect_reply(d, 1, "\"*\"");
}
