// HTTP without a socket: JSON in steps, and what one turn of the loop does at most.
#include "server/auth.h"
#include "web/state.h"
#include "web/web.h"
#include "wire/json.h"

#include "base/errors.h"
#include "base/mem.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// ---- JSON ---------------------------------------------------------------------------------------

// All fields as one line: name=value, with a sign for the kind.
static void describe(struct form *f, char *to, size_t room) {
    static const char signs[] = { [FORM_TEXT] = '=',
                                  [FORM_FLAG] = '!',
                                  [FORM_OFF] = '-',
                                  [FORM_ITEM] = '+',
                                  [FORM_OBJECT] = '{' };
    size_t used = 0;
    *to = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct form_field *x = &f->fields[i];
        mr_bytes name = form_name(f, x), value = form_value(f, x);
        used += (size_t)snprintf(to + used, room - used, "%s", i ? " " : "");
        if (x->item)
            used += (size_t)snprintf(to + used, room - used, "%u.", x->item);
        used += (size_t)snprintf(to + used, room - used, "%.*s%c%.*s", (int)name.size,
                                 (const char *)name.data, signs[x->kind], (int)value.size,
                                 (const char *)value.data);
        assert(used < room);
    }
}

// Reads the text in calls of so many steps; what came of it, or the code.
static int read_in(const char *text, size_t size, size_t steps, char *to, size_t room,
                   size_t *out_calls) {
    struct form f = { 0 };
    struct form_json j = { 0 };
    int err = 0;
    *out_calls = 0;
    while (err == 0) {
        size_t left = steps;
        err = form_read_json(&f, &j, (mr_bytes){ text, size }, &left);
        assert(++*out_calls <= 2 * size + 10);
    }
    describe(&f, to, room);
    form_finish(&f);
    return err;
}

static void expect_json(const char *text, const char *fields) {
    char found[1024];
    size_t calls;
    for (size_t steps = 1; steps <= strlen(text) + 5; steps++) {
        int err = read_in(text, strlen(text), steps, found, sizeof found, &calls);
        if (fields)
            assert_int_equal(err, 1);
        else
            assert_true(err == MR_EINVAL || err == MR_ETOOBIG);
        if (fields)
            assert_string_equal(found, fields);
    }
}

static void U5_json_is_read_in_steps_of_any_size(void **state) {
    (void)state;
    expect_json("{}", "");
    expect_json(" \t\r\n{ } ", "");
    expect_json("{\"a\":\"b\",\"c\":1.5e3,\"d\":true,\"e\":false,\"f\":null}",
                "a=b c=1.5e3 d!true e-false f-null");
    expect_json("{\"s\":\"\\u00e9\\ud83d\\ude00\\n\\/\\\"é\"}", "s=é😀\n/\"é");
    expect_json("{\"\":null}", "-null");
    expect_json("{\"\":\"x\",\"-base64\":\"eA==\"}", "=x -base64=eA==");
    expect_json("{\"ids\":[ 1,\"2\" ,{\"a\":[{}]},[]]}", "ids+1 ids+2 ids{ 1.a+[{}] ids+[]");
    expect_json("{\"body\":[ 1,\"]\" ,{ }],\"key\":\"\"}", "body=[ 1,\"]\" ,{ }] key=");
    expect_json("{\"b\\u006fdy\":0.10}", "body=0.10");
    expect_json("{\"body\":{\"body\":\"x\",\"a-base64\":1}}",
                "body={\"body\":\"x\",\"a-base64\":1}");
    expect_json("{\"body-base64\":\"aGVsbG8gd29ybGQ=\",\"k\":1}", "body=hello world k=1");
    expect_json("{\"x\":{\"y\":[\"z\"]}}", "x+{\"y\":[\"z\"]}");
    static const char *const wrong[] = {
        "",
        "{",
        "[]",
        "{}x",
        "{}{}",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":1]",
        "{\"a\":[1,]}",
        "{\"a\":[1}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":1e}",
        "{\"a\":+1}",
        "{\"a\":-}",
        "{\"a\":tru}",
        "{\"a\":truex}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\udc00\\ud800\"}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\":\"\xed\xa0\x80\"}",
        "{\"a\":\"",
        "{a:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1,\"a\":2}",
        "{\"a\":[]}",
        "{\"a-base64\":\"a\"}",
        "{\"a-base64\":\"aGVsbG8=aGVs\"}",
        "{\"a-base64\":[\"aGVs\"]}",
        "{\"a-base64\":{}}",
        "{\"a\":NaN}",
        "\xef\xbb\xbf{}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_json(wrong[i], NULL);
}

static void U5_objects_in_lists_have_members_and_bytes_may_be_wrapped(void **state) {
    (void)state;
    expect_json(
        "{\"emits\":[{\"stage\":\"a\",\"body\":{\"x\":[1]}},{\"stage\":\"b\"},{}],\"stage\":\"c\"}",
        "emits{ 1.stage=a 1.body={\"x\":[1]} emits{ 2.stage=b emits{ stage=c");
    expect_json("{\"j\":[{\"t\":true,\"n\":null,\"o\":{\"p\":1},\"body\":null}]}",
                "j{ 1.t!true 1.n-null 1.o+{\"p\":1} 1.body=null");
    expect_json("{\"result\":[1,{}],\"state\":{\"a\":1}}", "result=[1,{}] state={\"a\":1}");
    expect_json("{\"result\":null,\"state\":false,\"body\":null}",
                "result-null state=false body=null");
    expect_json("{\"body\":{\"base64\":\"aGVsbG8=\"},\"key\": { \"base64\" : \"Pz8\\/\" } }",
                "body=hello key=???");
    expect_json("{\"e\":[{\"body\":{\"base64\":\"\"},\"key-base64\":\"aGk=\"}]}",
                "e{ 1.body= 1.key=hi");
    expect_json("{\"body\":{\"base64\":\"aGk=\",\"x\":\"y\"}}",
                "body={\"base64\":\"aGk=\",\"x\":\"y\"}");
    expect_json("{\"body\":{\"base64\":7}}", "body={\"base64\":7}");
    static const char *const wrong[] = {
        "{\"body\":{\"base64\":\"a\"}}",
        "{\"body\":{\"base64\":\"aG\\u006b=\"}}",
        "{\"body\":1,\"body\":{\"base64\":\"aGk=\"}}",
        "{\"e\":[{\"a\":1,\"a\":2}]}",
        "{\"e-base64\":[{\"a\":1}]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_json(wrong[i], NULL);
}

// Names are compared with each other: their number has a bound, in lists too.
static void expect_names(const char *before, const char *behind) {
    struct buffer text = { 0 };
    char found[2048], name[16];
    size_t calls;
    for (int names = WEB_NAMES; names <= WEB_NAMES + 1; names++) {
        buffer_clear(&text);
        assert_int_equal(buffer_append(&text, before, strlen(before)), 0);
        for (int i = 0; i < names; i++) {
            int size = snprintf(name, sizeof name, "%s\"n%d\":1", i ? "," : "", i);
            assert_int_equal(buffer_append(&text, name, (size_t)size), 0);
        }
        assert_int_equal(buffer_append(&text, behind, strlen(behind)), 0);
        int err = read_in((char *)text.data, text.size, 100, found, sizeof found, &calls);
        assert_int_equal(err, names == WEB_NAMES ? 1 : MR_EINVAL);
    }
    buffer_finish(&text);
}

static void U5_the_names_of_an_object_have_a_bound(void **state) {
    (void)state;
    expect_names("{", "}");
    expect_names("{\"emits\":[{\"a\":1},{", "}]}");
}

static void U5_json_has_bounds(void **state) {
    (void)state;
    struct buffer text = { 0 };
    char found[64];
    size_t calls;
    for (int deep = WEB_DEPTH - 1; deep <= WEB_DEPTH; deep++) {
        buffer_clear(&text);
        assert_int_equal(buffer_append(&text, "{\"x\":", 5), 0);
        for (int i = 0; i < 2 * deep; i++)
            assert_int_equal(buffer_append(&text, i < deep ? "[" : "]", 1), 0);
        assert_int_equal(buffer_append(&text, "}", 1), 0);
        char wide[512];
        int err = read_in((char *)text.data, text.size, 100, wide, sizeof wide, &calls);
        assert_int_equal(err, deep < WEB_DEPTH ? 1 : MR_ETOOBIG);
    }
    buffer_clear(&text);
    assert_int_equal(buffer_append(&text, "{\"body\":[0", 10), 0);
    for (int i = 0; i < WEB_JSON_VALUES; i++)
        assert_int_equal(buffer_append(&text, ",0", 2), 0);
    assert_int_equal(buffer_append(&text, "]}", 2), 0);
    assert_int_equal(read_in((char *)text.data, text.size, 1 << 16, found, sizeof found, &calls),
                     MR_ETOOBIG);
    assert_in_range(calls, WEB_JSON_VALUES * 2 >> 16, (WEB_JSON_VALUES * 2 >> 16) + 2);
    buffer_finish(&text);
}

// ---- Turns --------------------------------------------------------------------------------------

static struct world {
    struct host host;
    struct group *group;
    struct web *web;
    uv_loop_t loop;
    uint64_t now_ms;
    char received[64 << 10];
    size_t received_size;
    uint32_t answered; // requests
} w;

static uint64_t now(void *arg) {
    (void)arg;
    return w.now_ms;
}

static uint64_t chance(void *arg) {
    (void)arg;
    return 4;
}

static void turn(void *arg) {
    (void)arg;
    do {
        host_end(&w.host);
        host_durable(&w.host);
        while (!list_empty(&w.host.ready)) {
            struct session *s = list_entry(w.host.ready.next, struct session, of_ready);
            list_remove(&s->of_ready);
            for (mr_bytes ready; (ready = front_ready(s)).size; front_sent(s, ready.size))
                if (w.received_size + ready.size < sizeof w.received) {
                    memcpy(w.received + w.received_size, ready.data, ready.size);
                    w.received_size += ready.size;
                }
        }
    } while (w.host.in_turn || !list_empty(&w.host.touched) || !list_empty(&w.host.resuming));
    w.received[w.received_size] = 0;
}

static void open_world(void) {
    struct front_place place = {
        .loop = &w.loop, .host = &w.host, .address = "127.0.0.1", .turn_end = turn
    };
    struct group_options options = { .log = { .inline_writer = true },
                                     .world = { now, now, chance, NULL } };
    void *web;
    w.now_ms = 1000;
    assert_int_equal(uv_loop_init(&w.loop), 0);
    assert_int_equal(host_init(&w.host, "mem:"), 0);
    host_group_options(&w.host, &options);
    assert_int_equal(group_open(&options, &w.group), 0);
    assert_int_equal(host_load(&w.host, w.group), 0);
    assert_int_equal(web_front()->start(&place, &web), 0);
    w.web = web;
}

static struct session *http_session(void) {
    struct session *s;
    assert_int_equal(session_create(&w.host, &s), 0);
    assert_int_equal(web_front()->open(w.web, s, NULL, &s->front), 0);
    return s;
}

static void leave(struct session *s) {
    host_begin(&w.host);
    s->front->impl->close(s->front);
    session_destroy(s);
}

static void close_handle(uv_handle_t *handle, void *arg) {
    (void)arg;
    uv_close(handle, NULL);
}

static void close_world(void) {
    turn(NULL);
    assert_int_equal(w.host.buffered, 0);
    host_finish(&w.host);
    group_close(w.group);
    uv_walk(&w.loop, close_handle, NULL);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    web_front()->stop(w.web);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    memset(&w, 0, sizeof w);
}

// Without the end of the turn, as when several sockets have something at once.
static void say(struct session *s, const void *data, size_t size) {
    for (const uint8_t *p = data; size;) {
        size_t room, some;
        uint8_t *to = front_room(s, &room);
        assert_non_null(to);
        some = size < room ? size : room;
        memcpy(to, p, some);
        host_begin(&w.host);
        front_receive(s, some);
        p += some;
        size -= some;
    }
}

static void next_turn(void) {
    host_begin(&w.host);
    turn(NULL);
}

static size_t responses(void) {
    size_t count = 0;
    for (const char *at = w.received; (at = strstr(at, "HTTP/1.1 200")) != NULL; at++)
        count++;
    return count;
}

static void U5_a_large_body_is_read_over_many_turns(void **state) {
    (void)state;
    enum { PAIRS = 1000000 };
    struct buffer body = { 0 };
    char head[512];
    open_world();
    struct session *large = http_session(), *small = http_session();
    assert_int_equal(buffer_append(&body, "{\"stage\":\"s\",\"body\":[{}", 23), 0);
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(buffer_append(&body, ",{}", 3), 0);
    assert_int_equal(buffer_append(&body, "]}", 2), 0);
    int size = snprintf(head, sizeof head,
                        "POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                        "application/json\r\nOrigin: http://localhost\r\nContent-Length: "
                        "%zu\r\n\r\n",
                        body.size);
    say(large, head, (size_t)size);
    say(large, body.data, body.size);
    turn(NULL);
    assert_false(list_empty(&w.host.backlog));
    static const char ask[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    say(small, ask, sizeof ask - 1);
    turn(NULL);
    assert_int_equal(responses(), 1); // the other one was served meanwhile
    assert_false(list_empty(&w.host.backlog));
    size_t count = 2, of_turn = LIMIT_SESSION_STEPS * WEB_STEP_BYTES;
    for (; !list_empty(&w.host.backlog); count++)
        next_turn();
    assert_in_range(count, body.size / of_turn, body.size / of_turn + 4);
    assert_int_equal(responses(), 2);
    leave(large);
    leave(small);
    buffer_finish(&body);
    close_world();
}

// ---- Responses ----------------------------------------------------------------------------------

// A turn as the loop does it: what is ready is sent, as far as it is there.
static uint64_t turn_steps(void) {
    uint64_t before = w.host.steps;
    host_begin(&w.host);
    host_end(&w.host);
    host_durable(&w.host);
    while (!list_empty(&w.host.ready)) {
        struct session *s = list_entry(w.host.ready.next, struct session, of_ready);
        list_remove(&s->of_ready);
        for (mr_bytes ready; (ready = front_ready(s)).size; front_sent(s, ready.size))
            w.answered += s->front && memmem(ready.data, ready.size, "HTTP/1.1 200", 12);
    }
    return w.host.steps - before;
}

// Each of some connections sends the request; returns how many turns it took until all had their
// responses.
static uint32_t request_from_many(const char *path, struct session **clients, uint32_t count) {
    char text[128];
    uint32_t turns = 0;
    int size = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    w.answered = 0;
    for (uint32_t i = 0; i < count; i++)
        say(clients[i], text, (size_t)size);
    for (; w.answered < count; turns++) {
        assert_true(turn_steps() <= LIMIT_BUSY_STEPS + LIMIT_COMMAND_STEPS + LIMIT_CLEAN_STEPS);
        assert_true(turns < 1000);
    }
    return turns;
}

static void push_to_stages(struct session *s, int stages, const char *name) {
    char stage[32];
    for (int i = 0; i < stages; i++) {
        snprintf(stage, sizeof stage, name, i);
        mr_bytes words[] = { mr_str("PUSH"), mr_str(stage), mr_str("x") };
        host_begin(&w.host);
        session_command(s, words, 3);
        (void)turn_steps();
    }
}

// U4: large responses are written in pieces, however many connections ask for them at once.
static void U4_large_responses_share_their_turns(void **state) {
    (void)state;
    enum { CLIENTS = 60, STAGES = 1000 };
    struct session *clients[CLIENTS], *pusher;
    open_world();
    assert_int_equal(session_create(&w.host, &pusher), 0);
    push_to_stages(pusher, STAGES, "stage-%d");
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = http_session();
    assert_true(request_from_many("/healthz", clients, CLIENTS) == 1);
    assert_true(request_from_many("/metrics", clients, CLIENTS) > CLIENTS / 4);
    assert_true(request_from_many("/api/stages", clients, CLIENTS) > CLIENTS / 4);
    assert_true(request_from_many("/api/events", clients, CLIENTS) > CLIENTS / 4);
    for (int i = 0; i < CLIENTS; i++)
        leave(clients[i]);
    host_begin(&w.host);
    session_destroy(pusher);
    close_world();
}

// U4: one string may be as large as a body, and every byte of it may need an escape.
static void U4_a_large_string_is_written_in_pieces(void **state) {
    (void)state;
    enum { SIZE = 8 << 20 };
    static char body[SIZE];
    struct session *client, *pusher;
    open_world();
    assert_int_equal(session_create(&w.host, &pusher), 0);
    client = http_session();
    memset(body, 1, SIZE);
    mr_bytes words[] = { mr_str("PUSH"), mr_str("s"), { body, SIZE } };
    host_begin(&w.host);
    session_command(pusher, words, 3);
    (void)turn_steps();
    uint32_t least = SIZE / (LIMIT_SESSION_STEPS * WEB_STEP_BYTES);
    assert_true(request_from_many("/api/jobs/1?body", &client, 1) > least);
    leave(client);
    host_begin(&w.host);
    session_destroy(pusher);
    close_world();
}

// In pieces of so many bytes.
static void write_value(struct buffer *out, const struct response_value *v, size_t piece,
                        const char *const *rows) {
    struct doc d = { .out = out };
    struct doc_walk walk;
    size_t left = piece;
    buffer_clear(out);
    doc_walk_begin(&walk, NULL, 0);
    walk.row_names = rows;
    walk.wraps = rows != NULL;
    for (; !doc_walk(&d, &walk, v, &left); left = piece)
        continue;
    assert_int_equal(d.err, 0);
}

static void expect_pieces(const char *reply, const char *const *rows, const char *json) {
    struct response_value values[32];
    struct response reader = { 0 };
    struct response_limits limits = { 32, 100, 100, 1000 };
    struct buffer out = { 0 };
    uint32_t count;
    ptrdiff_t size =
        response_read(&reader, &limits, (const uint8_t *)reply, strlen(reply), values, &count);
    assert_int_equal(size, strlen(reply));
    for (size_t piece = 1; piece < 2 * strlen(json); piece++) {
        write_value(&out, values, piece, rows);
        assert_int_equal(out.size, strlen(json));
        assert_memory_equal(out.data, json, strlen(json));
    }
    buffer_finish(&out);
}

static void U4_JSON_is_the_same_in_pieces_of_any_size(void **state) {
    (void)state;
    expect_pieces("%4\r\n$1\r\na\r\n*3\r\n:-5\r\n*0\r\n$3\r\nx\"\x01\r\n$1\r\nb\r\n$4\r\n\xff"
                  "abc\r\n$1\r\nc\r\n%0\r\n$1\r\nd\r\n%2\r\n$1\r\ne\r\n#t\r\n$1\r\nf\r\n,0.5\r\n",
                  NULL,
                  "{\"a\":[-5,[],\"x\\\"\\u0001\"],\"b-base64\":\"/2FiYw==\","
                  "\"c\":{},\"d\":{\"e\":true,\"f\":0.5}}");
    // Rows of a list become objects; what a newer server appends to them is left out.
    static const char *const names[] = { "id", "body", "state or nil", NULL };
    expect_pieces("*3\r\n*3\r\n$1\r\n1\r\n$1\r\n\xff\r\n_\r\n*5\r\n$1\r\n2\r\n$1\r\nx\r\n$0\r\n\r\n"
                  "*2\r\n:1\r\n:2\r\n$1\r\ny\r\n*1\r\n:3\r\n",
                  names,
                  "[{\"id\":\"1\",\"body\":{\"base64\":\"/w==\"},\"state\":null},"
                  "{\"id\":\"2\",\"body\":\"x\",\"state\":\"\"},{\"id\":3}]");
    expect_pieces("*0\r\n", names, "[]");
    // Where bytes are wrapped no text becomes more than twice as long.
    expect_pieces("*1\r\n*3\r\n$2\r\n\x01x\r\n$5\r\n\n\t\r\"\\\r\n$1\r\n\x7f\r\n", names,
                  "[{\"id\":{\"base64\":\"AXg=\"},\"body\":\"\\n\\t\\r\\\"\\\\\","
                  "\"state\":{\"base64\":\"fw==\"}}]");
}

// Sends a request with this secret (NULL: none); returns the response.
static const char *response_to(struct session *s, const char *path, const char *secret) {
    char text[256];
    int size = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s%s%s\r\n", path,
                        secret ? "Authorization: Bearer " : "", secret ? secret : "",
                        secret ? "\r\n" : "");
    w.received_size = 0;
    say(s, text, (size_t)size);
    turn(NULL);
    while (!list_empty(&w.host.backlog))
        next_turn();
    return w.received;
}

static void expect_response(struct session *s, const char *path, const char *secret,
                            const char *begin, const char *part) {
    const char *response = response_to(s, path, secret);
    if (strncmp(response, begin, strlen(begin)) != 0 || !strstr(response, part))
        fail_msg("%s of '%s': %s", path, secret ? secret : "", response);
}

// ---- Series -------------------------------------------------------------------------------------

static void push_at(struct session *s, uint64_t now_ms) {
    mr_bytes words[] = { mr_str("PUSH"), mr_str("s"), mr_str("x") };
    w.now_ms = now_ms;
    host_begin(&w.host);
    session_command(s, words, 3);
    turn(NULL);
}

// U12: what a turn did behind its sample belongs to that sample, and not to all of the idle time
// that follows.
static void U12_an_idle_gap_has_nothing_in_it(void **state) {
    (void)state;
    struct session *s;
    struct buffer text = { 0 };
    struct doc d = { .out = &text };
    open_world();
    w.host.watch = web_front()->turn;
    w.host.watcher = w.web;
    assert_int_equal(session_create(&w.host, &s), 0);
    push_at(s, 10000);
    push_at(s, 11000); // sampled before it pushes
    w.now_ms = 60000;
    next_turn();
    series_write(w.web->series, mr_str("s"), &d);
    assert_int_equal(buffer_append(&text, "", 1), 0);
    assert_non_null(strstr((char *)text.data, "\"time-ms\":[10000,11000,60000]"));
    assert_non_null(strstr((char *)text.data, "\"waiting\":[1,2,2]"));
    assert_non_null(strstr((char *)text.data, "\"pushed\":[1,1,0]"));
    buffer_finish(&text);
    host_begin(&w.host);
    session_destroy(s);
    close_world();
}

static void run(struct session *s, const char *command, const char *stage, const char *last) {
    mr_bytes words[] = { mr_str(command), mr_str(stage), mr_str(last) };
    host_begin(&w.host);
    session_command(s, words, 3);
    turn(NULL);
}

static bool has_series(const char *stage, const char *column) {
    struct buffer text = { 0 };
    struct doc d = { .out = &text };
    series_write(w.web->series, mr_str(stage), &d);
    assert_int_equal(buffer_append(&text, "", 1), 0);
    bool has = strstr((char *)text.data, column) != NULL;
    buffer_finish(&text);
    return has;
}

static void sample(void) {
    uint64_t before = w.host.steps;
    w.now_ms += 1000;
    next_turn();
    assert_true(w.host.steps - before < WEB_STAGES * 20 + WEB_SEARCHED);
}

// U4: a sample costs what is in the series, however many stages there are. Where one is removed
// another takes its place, and does not show what was counted before.
static void U4_samples_cost_what_they_show(void **state) {
    (void)state;
    enum { STAGES = 5000 };
    struct session *s;
    char name[32];
    open_world();
    assert_int_equal(session_create(&w.host, &s), 0);
    for (int i = 0; i < STAGES; i++) {
        snprintf(name, sizeof name, "stage-%d", i);
        run(s, "PUSH", name, "x");
    }
    w.host.watch = web_front()->turn;
    w.host.watcher = w.web;
    for (int i = 0; i < WEB_STAGES; i += WEB_STAGES_ADDED)
        sample();
    assert_true(has_series("stage-0", "\"pushed\":[0,"));
    assert_true(has_series("stage-255", "\"pushed\":[0,"));
    assert_true(has_series("stage-256", "\"pushed\":[]"));
    run(s, "DROP", "1", "1");
    run(s, "STAGE", "stage-0", "REMOVE");
    run(s, "PUSH", "stage-255", "x");
    sample();
    assert_true(has_series("stage-0", "\"pushed\":[]"));
    assert_true(has_series("stage-255", ",1,0],\"done\":"));
    assert_true(has_series("stage-256", "\"pushed\":[0,0]"));
    host_begin(&w.host);
    session_destroy(s);
    close_world();
}

// U4: the sum of the histories of many stages is made in pieces, however many connections ask for
// it.
static void U4_histories_of_many_stages_share_their_turns(void **state) {
    (void)state;
    enum { CLIENTS = 60 };
    struct session *clients[CLIENTS], *pusher;
    open_world();
    assert_int_equal(session_create(&w.host, &pusher), 0);
    push_to_stages(pusher, WEB_STAGES, "stage-%d");
    w.host.watch = web_front()->turn;
    w.host.watcher = w.web;
    for (int i = 0; i < WEB_STAGES; i += WEB_STAGES_ADDED)
        sample();
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = http_session();
    assert_true(request_from_many("/api/history/hour", clients, CLIENTS) > CLIENTS / 10);
    assert_true(request_from_many("/api/stages/stage-7/history/day", clients, CLIENTS) > 0);
    expect_response(clients[0], "/api/history/day", NULL, "HTTP/1.1 200", "\"waiting\":[256]");
    expect_response(clients[0], "/api/stages/stage-7/history/hour", NULL, "HTTP/1.1 200",
                    "\"from-ms\":0,\"waiting\":[1]");
    w.now_ms += (uint64_t)86400 * 1000; // a long pause costs no more than the points that it fills
    uint64_t before = w.host.steps;
    next_turn();
    assert_true(w.host.steps - before < 2 * WEB_STAGES * 100);
    expect_response(clients[0], "/api/history/day", NULL, "HTTP/1.1 200", "256,256],\"running\"");
    for (int i = 0; i < CLIENTS; i++)
        leave(clients[i]);
    host_begin(&w.host);
    session_destroy(pusher);
    close_world();
}

// F44: HTTP has limits of its own, and the refusal does not name those of all clients.
static void F44_a_refusal_names_the_limit_of_HTTP(void **state) {
    (void)state;
    static const uint8_t address[QUOTA_HOLDER] = { 10 };
    static struct session *open[WEB_CONNECTIONS];
    struct session *late;
    uint32_t count = 0;
    open_world();
    assert_int_equal(session_create(&w.host, &late), 0);
    for (; count < WEB_CONNECTIONS_OF_ADDRESS; count++) {
        assert_int_equal(session_create(&w.host, &open[count]), 0);
        assert_int_equal(web_front()->open(w.web, open[count], address, &open[count]->front), 0);
    }
    assert_int_equal(web_front()->open(w.web, late, address, &late->front), MR_EFULL);
    assert_string_equal(error_text(), "500 HTTP clients of this address are connected, which is "
                                      "the limit: close some of these HTTP connections first");
    while (count < WEB_CONNECTIONS)
        open[count++] = http_session();
    assert_int_equal(web_front()->open(w.web, late, NULL, &late->front), MR_EFULL);
    assert_string_equal(error_text(), "2000 HTTP clients are connected, which is the limit: "
                                      "close other HTTP connections first");
    while (count)
        leave(open[--count]);
    host_begin(&w.host);
    session_destroy(late);
    close_world();
}

// Two tokens; their secrets are their names.
static struct auth *two_tokens(void) {
    static const char *const names[] = { "one", "two" };
    char text[512] = "";
    struct auth *auth = NULL;
    for (int i = 0; i < 2; i++) {
        uint8_t digest[DIGEST_SIZE];
        assert_int_equal(digest_of(mr_str(names[i]), digest), 0);
        size_t used = strlen(text);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s read * sha256:", names[i]);
        for (int k = 0; k < DIGEST_SIZE; k++, used += 2)
            snprintf(text + used, sizeof text - used, "%02x", digest[k]);
        snprintf(text + used, sizeof text - used, "\n");
    }
    assert_int_equal(auth_parse(mr_str(text), &auth), 0);
    return auth;
}

// The clients of one token ask for the path until one is refused; another token is not, and neither
// is the first when one of its clients has gone.
static void fill_share(const char *path, uint32_t most, const char *refusal) {
    static struct session *open[WEB_CONNECTIONS];
    uint32_t count = 0;
    for (; count < most; count++) {
        open[count] = http_session();
        expect_response(open[count], path, "one", "HTTP/1.1 200", "");
    }
    struct session *late = http_session(), *other = http_session();
    expect_response(late, path, "one", "HTTP/1.1 503", refusal);
    expect_response(other, path, "two", "HTTP/1.1 200", "");
    leave(late);
    leave(open[--count]);
    late = http_session();
    expect_response(late, path, "one", "HTTP/1.1 200", "");
    leave(late);
    leave(other);
    while (count)
        leave(open[--count]);
}

// U7: the HTTP connections and streams of one token leave room for those of others.
static void U7_a_token_has_a_share_of_HTTP_connections_and_streams(void **state) {
    (void)state;
    if (digest_of(mr_str("x"), (uint8_t[DIGEST_SIZE]){ 0 }) == MR_EINVAL)
        skip(); // this build has no tokens
    struct auth *auth = two_tokens();
    open_world();
    w.host.auth = auth;
    fill_share("/healthz", WEB_CONNECTIONS_OF_TOKEN,
               "1000 HTTP clients of this token are connected, which is the limit");
    fill_share("/api/events", WEB_STREAMS_OF_TOKEN,
               "500 streams of events of this token are connected, which is the limit");
    assert_int_equal(w.web->quota_of_tokens.count + w.web->quota_of_streams.count, 0);
    w.host.auth = NULL;
    close_world();
    auth_destroy(auth);
}

// U7: a connection counts for its token until it has another one.
static void U7_a_connection_counts_for_the_token_of_its_last_request(void **state) {
    (void)state;
    if (digest_of(mr_str("x"), (uint8_t[DIGEST_SIZE]){ 0 }) == MR_EINVAL)
        skip(); // this build has no tokens
    struct auth *auth = two_tokens();
    open_world();
    w.host.auth = auth;
    struct quota *q = &w.web->quota_of_tokens;
    struct session *s = http_session();
    expect_response(s, "/healthz", "one", "HTTP/1.1 200", "");
    expect_response(s, "/healthz", NULL, "HTTP/1.1 200", "");
    assert_int_equal(q->count, 1);
    uint8_t one[QUOTA_HOLDER], two[QUOTA_HOLDER];
    struct quota_member all[WEB_CONNECTIONS_OF_TOKEN] = { 0 }, more = { 0 };
    token_holder(auth_at(auth, 0)->maker, one);
    token_holder(auth_at(auth, 1)->maker, two);
    for (uint32_t i = 1; i < WEB_CONNECTIONS_OF_TOKEN; i++)
        assert_int_equal(quota_enter(q, one, &all[i]), 0);
    assert_int_equal(quota_enter(q, one, &more), MR_EFULL);
    expect_response(s, "/healthz", "two", "HTTP/1.1 200", "");
    assert_int_equal(quota_enter(q, one, &all[0]), 0);
    expect_response(s, "/healthz", "one", "HTTP/1.1 503", "of this token");
    for (uint32_t i = 0; i < WEB_CONNECTIONS_OF_TOKEN; i++)
        quota_leave(q, &all[i]);
    leave(s);
    w.host.auth = NULL;
    close_world();
    auth_destroy(auth);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(U5_json_is_read_in_steps_of_any_size),
        cmocka_unit_test(U5_objects_in_lists_have_members_and_bytes_may_be_wrapped),
        cmocka_unit_test(U5_the_names_of_an_object_have_a_bound),
        cmocka_unit_test(U5_json_has_bounds),
        cmocka_unit_test(U5_a_large_body_is_read_over_many_turns),
        cmocka_unit_test(U4_large_responses_share_their_turns),
        cmocka_unit_test(U4_a_large_string_is_written_in_pieces),
        cmocka_unit_test(U4_JSON_is_the_same_in_pieces_of_any_size),
        cmocka_unit_test(U12_an_idle_gap_has_nothing_in_it),
        cmocka_unit_test(U4_samples_cost_what_they_show),
        cmocka_unit_test(U4_histories_of_many_stages_share_their_turns),
        cmocka_unit_test(F44_a_refusal_names_the_limit_of_HTTP),
        cmocka_unit_test(U7_a_token_has_a_share_of_HTTP_connections_and_streams),
        cmocka_unit_test(U7_a_connection_counts_for_the_token_of_its_last_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
