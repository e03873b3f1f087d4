// What a job's life costs on the wire, without sockets: 64 commands at a time are read as a server
// does, their replies written; and the client's half of it.
//
//     wire [ROUNDS [REPEATS [ONLY]]]     ONLY: one of the names below, for counting instructions
#include "bench/measure.h"

#include "base/errors.h"
#include "wire/reply.h"
#include "wire/request.h"
#include "wire/response.h"

enum { DEPTH = 64, VALUES = 4096 };

#define TEXT(literal) ((mr_bytes){ literal, sizeof(literal) - 1 })
#define COMMAND(...)                                                                               \
    (const mr_bytes[]){ __VA_ARGS__ }, sizeof((mr_bytes[]){ __VA_ARGS__ }) / sizeof(mr_bytes)

static const char body[64] = "any bytes, sixty-four of them, as in the other benchmarks";
static const struct request_limits request_limits = {
    .arguments = VALUES, .argument_size = 16 << 20, .line_size = 64 << 10, .size = 64 << 20
};
static const struct response_limits response_limits = {
    .values = VALUES, .line_size = 64 << 10, .bulk_size = 16 << 20, .size = 64 << 20
};

static struct buffer requests, replies; // DEPTH of them
static struct buffer out;               // what is being written
static uint64_t sum;                    // of what was read, so that it must be read

static void read_requests(void) {
    static mr_bytes arguments[VALUES];
    struct request r = { 0 };
    uint32_t count = 0;
    for (size_t at = 0; at < requests.size;) {
        ptrdiff_t used = request_read(&r, &request_limits, requests.data + at, requests.size - at,
                                      arguments, &count);
        must((int)used - 1, "request_read", error_text());
        at += (size_t)used;
        sum += count + arguments[count - 1].size;
    }
}

static void read_replies(void) {
    static struct response_value values[VALUES];
    struct response r = { 0 };
    uint32_t count = 0;
    for (size_t at = 0; at < replies.size;) {
        ptrdiff_t used = response_read(&r, &response_limits, replies.data + at, replies.size - at,
                                       values, &count);
        must((int)used - 1, "response_read", error_text());
        at += (size_t)used;
        sum += count;
    }
}

static void write_request(const mr_bytes *arguments, size_t count) {
    must(request_write(&out, arguments, count), "request_write", error_text());
}

static void push_request(void) {
    write_request(
        COMMAND(TEXT("PUSH"), TEXT("mail"), { body, sizeof body }, TEXT("KEY"), TEXT("key-123")));
}

static void take_request(void) {
    write_request(COMMAND(TEXT("TAKE"), TEXT("mail"), TEXT("WAIT"), TEXT("1000")));
}

static void done_request(void) {
    write_request(COMMAND(TEXT("DONE"), TEXT("1234567"), TEXT("1.2f.0123456789abcdef")));
}

static void push_reply(void) {
    struct reply r = { .out = &out };
    reply_id(&r, 1234567);
    must(r.err, "reply", error_text());
}

static void take_reply(void) {
    struct reply r = { .out = &out };
    reply_array(&r, 1);
    reply_array(&r, 8);
    reply_id(&r, 1234567);
    reply_bulk(&r, TEXT("1.2f.0123456789abcdef"));
    reply_bulk(&r, TEXT("mail"));
    reply_bulk(&r, TEXT("key-123"));
    reply_bulk(&r, (mr_bytes){ body, sizeof body });
    reply_integer(&r, 1);
    reply_integer(&r, -1);
    reply_null(&r);
    must(r.err, "reply", error_text());
}

static void done_reply(void) {
    struct reply r = { .out = &out };
    reply_simple(&r, "OK");
    must(r.err, "reply", error_text());
}

static const struct {
    const char *name;
    void (*request)(void), (*reply)(void);
} commands[] = {
    { "push", push_request, push_reply },
    { "take", take_request, take_reply },
    { "done", done_request, done_reply },
};

static void fill(void (*write)(void), struct buffer *to) {
    struct buffer spare = *to;
    buffer_clear(&out);
    for (int i = 0; i < DEPTH; i++)
        write();
    *to = out;
    out = spare;
}

enum act { READ_REQUEST, WRITE_REPLY, WRITE_REQUEST, READ_REPLY, ACTS };
static const char *const acts[ACTS] = { "request_read", "reply_write", "request_write",
                                        "reply_read" };

static void act_once(enum act act, size_t command) {
    switch (act) {
    case READ_REQUEST:
        read_requests();
        break;
    case READ_REPLY:
        read_replies();
        break;
    case WRITE_REQUEST:
    case WRITE_REPLY:
        buffer_clear(&out);
        for (int i = 0; i < DEPTH; i++)
            (act == WRITE_REPLY ? commands[command].reply : commands[command].request)();
        break;
    case ACTS:
        break;
    }
}

static struct lap measure(enum act act, size_t command, uint64_t rounds) {
    fill(commands[command].request, &requests);
    fill(commands[command].reply, &replies);
    struct lap start = lap_begin();
    for (uint64_t i = 0; i < rounds; i += DEPTH)
        act_once(act, command);
    return lap_end(start);
}

int main(int argc, char **argv) {
    uint64_t rounds = argument(argc, argv, 1, 1 << 20), repeats = argument(argc, argv, 2, 3);
    const char *only = argc > 3 ? argv[3] : "";
    for (uint64_t repeat = 0; repeat < repeats; repeat++) {
        struct lap server = { 0 };
        for (enum act act = 0; act < ACTS; act++)
            for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
                char name[64];
                (void)snprintf(name, sizeof name, "%s_%s", commands[i].name, acts[act]);
                if (*only && strcmp(only, name) != 0)
                    continue;
                struct lap lap = measure(act, i, rounds);
                lap_tell(name, lap, rounds);
                if (act == READ_REQUEST || act == WRITE_REPLY)
                    lap_add(&server, lap);
            }
        lap_tell("life", server, rounds);
    }
    buffer_finish(&requests);
    buffer_finish(&replies);
    buffer_finish(&out);
    return sum == 0;
}
