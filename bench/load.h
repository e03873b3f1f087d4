// Shared by load.c and its peers: a socket with buffers, parsing of RESP and lines, and the time in
// each body.
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "bench/measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
    BODY = 64,            // bytes, by default
    LARGE_BODY = 1 << 20, // the most, for Millrace only
    INPUT = 4 << 20,
    OUTPUT = 4 << 20,
    MOST_WINDOW = 1024,
};

struct line {
    int fd;
    uint8_t in[INPUT];
    size_t in_size, in_at;
    double filled_ns; // when bytes arrived last
    char out[OUTPUT];
    size_t out_size;
};

struct work {
    uint64_t jobs, window, keys, backlog, rate, body;
};

static inline void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static inline _Noreturn void refused(const char *text, size_t size) {
    fprintf(stderr, "load: the server said %.*s\n", (int)size, text);
    exit(1);
}

// ---- Sockets ----------------------------------------------------------------------------------

// A port of this machine, or the path of a Unix-domain socket.
struct load_place {
    uint16_t port;
    const char *file; // NULL: the port
};

static inline int line_connect_file(int fd, const char *file) {
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    snprintf(to.sun_path, sizeof to.sun_path, "%s", file);
    return connect(fd, (struct sockaddr *)&to, sizeof to);
}

static inline int line_connect_port(int fd, uint16_t port) {
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connect(fd, (struct sockaddr *)&to, sizeof to);
}

static inline struct line *line_open_at(struct load_place at) {
    struct line *l = calloc(1, sizeof *l);
    if (!l || (l->fd = socket(at.file ? AF_UNIX : AF_INET, SOCK_STREAM, 0)) < 0 ||
        (at.file ? line_connect_file(l->fd, at.file) : line_connect_port(l->fd, at.port)) < 0)
        die("connect");
    return l;
}

static inline struct line *line_open(uint16_t port) {
    return line_open_at((struct load_place){ .port = port });
}

static inline void line_flush(struct line *l) {
    for (size_t at = 0; at < l->out_size;) {
        ssize_t wrote = write(l->fd, l->out + at, l->out_size - at);
        if (wrote < 0)
            die("write");
        at += (size_t)wrote;
    }
    l->out_size = 0;
}

static inline void line_fill(struct line *l) {
    memmove(l->in, l->in + l->in_at, l->in_size - l->in_at);
    l->in_size -= l->in_at;
    l->in_at = 0;
    ssize_t got = read(l->fd, l->in + l->in_size, sizeof l->in - l->in_size);
    if (got <= 0)
        die("read");
    l->in_size += (size_t)got;
    l->filled_ns = clock_ns(CLOCK_MONOTONIC);
}

static inline void put(struct line *l, const char *bytes, size_t size) {
    memcpy(l->out + l->out_size, bytes, size);
    l->out_size += size;
}

static inline void put_text(struct line *l, const char *text) {
    put(l, text, strlen(text));
}

static inline void put_number(struct line *l, uint64_t number) {
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    put(l, digits + at, sizeof digits - at);
}

static inline void put_bulk(struct line *l, const char *bytes, size_t size) {
    put(l, "$", 1);
    put_number(l, size);
    put(l, "\r\n", 2);
    put(l, bytes, size);
    put(l, "\r\n", 2);
}

static inline void put_bulk_number(struct line *l, uint64_t number) {
    char digits[24];
    put_bulk(l, digits,
             (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number));
}

// The next line of a reply, without its end.
static inline size_t next_line(struct line *l, const char **out) {
    for (;;) {
        const uint8_t *from = l->in + l->in_at;
        const uint8_t *end = memchr(from, '\n', l->in_size - l->in_at);
        if (end) {
            *out = (const char *)from;
            l->in_at += (size_t)(end - from) + 1;
            return (size_t)(end - from) - 1;
        }
        line_fill(l);
    }
}

// The bytes of a bulk string whose header was read; valid until the next read.
static inline const char *next_bytes(struct line *l, size_t size) {
    while (l->in_size - l->in_at < size + 2)
        line_fill(l);
    const char *bytes = (const char *)l->in + l->in_at;
    l->in_at += size + 2;
    return bytes;
}

static inline long number_read(const char *text, size_t size) {
    long number = 0;
    for (size_t i = 0; i < size && text[i] >= '0' && text[i] <= '9'; i++)
        number = number * 10 + (text[i] - '0');
    return size && text[0] == '-' ? -1 : number;
}

// A header such as "*3" or "$5" or ":1"; -1 for nil. Errors end the program.
static inline long next_header(struct line *l, char *out_kind) {
    const char *text;
    size_t size = next_line(l, &text);
    if (text[0] == '-')
        refused(text, size);
    *out_kind = text[0];
    return number_read(text + 1, size - 1);
}

static inline void skip_reply(struct line *l) {
    char kind;
    long size = next_header(l, &kind);
    if (kind == '$' && size >= 0)
        next_bytes(l, (size_t)size);
    for (long i = 0; kind == '*' && i < size; i++)
        skip_reply(l);
}

static inline size_t next_bulk(struct line *l, char *out, size_t room) {
    char kind;
    long size = next_header(l, &kind);
    if (kind != '$' || size < 0)
        return 0;
    const char *bytes = next_bytes(l, (size_t)size);
    size_t kept = (size_t)size < room ? (size_t)size : room;
    memcpy(out, bytes, kept);
    return kept;
}

// ---- Peers ------------------------------------------------------------------------------------

extern char load_body[LARGE_BODY]; // of the next pushes
extern float *load_waits_us;       // the worker's, one for each job
extern uint64_t load_waits;

// A job has come: notes how long it was on its way.
static inline void body_seen(const struct line *l, const char *bytes) {
    double pushed;
    memcpy(&pushed, bytes, sizeof pushed);
    load_waits_us[load_waits++] = (float)((l->filled_ns - pushed) / 1e3);
}

struct peer { // greet and prepare may be NULL
    const char *name;
    void (*greet)(struct line *);                                        // once a connection
    void (*prepare)(struct line *);                                      // before all
    void (*push)(struct line *, const struct work *, uint64_t number);   // one request
    void (*pushed)(struct line *);                                       // and its reply
    uint64_t (*work)(struct line *, const struct work *, uint64_t left); // a round: jobs ended
};

// JetStream's parts, in load_nats.c.
void nats_greet(struct line *);
void nats_prepare_memory(struct line *);
void nats_prepare_file(struct line *);
void nats_push(struct line *, const struct work *, uint64_t number);
void nats_pushed(struct line *);
uint64_t nats_work(struct line *, const struct work *, uint64_t left);

extern const struct peer load_peers[];
extern const size_t load_peer_count;

#endif
