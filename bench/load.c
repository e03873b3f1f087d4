// The life of a job through a server: one producer process, one worker process, raw sockets and
// commands built beforehand, the same for every peer.
//
//     load PEER PORT PID JOBS WINDOW KEYS     PID: the server's, whose CPU time is told
//
// PEER is a row of `peers`. The producer keeps WINDOW pushes in flight; the worker takes up to
// WINDOW jobs at once and ends them together with asking for the next. Tells jobs a second, the
// server's CPU time and the clients' for each job, and how long it was from push to start: a body
// begins with the instant it was pushed.
#include "bench/measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { BODY = 64, INPUT = 1 << 20, OUTPUT = 4 << 20, TOKEN = 64, MOST_TAKEN = 1000 };

struct line {
    int fd;
    uint8_t in[INPUT];
    size_t in_size, in_at;
    char out[OUTPUT];
    size_t out_size;
};

struct work {
    uint64_t jobs, window, keys;
};

static void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

// ---- Sockets ----------------------------------------------------------------------------------

static struct line *line_open(uint16_t port) {
    struct line *l = calloc(1, sizeof *l);
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int on = 1;
    if (!l || (l->fd = socket(AF_INET, SOCK_STREAM, 0)) < 0 ||
        connect(l->fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return l;
}

static void line_flush(struct line *l) {
    for (size_t at = 0; at < l->out_size;) {
        ssize_t wrote = write(l->fd, l->out + at, l->out_size - at);
        if (wrote < 0)
            die("write");
        at += (size_t)wrote;
    }
    l->out_size = 0;
}

static void line_fill(struct line *l) {
    memmove(l->in, l->in + l->in_at, l->in_size - l->in_at);
    l->in_size -= l->in_at;
    l->in_at = 0;
    ssize_t got = read(l->fd, l->in + l->in_size, sizeof l->in - l->in_size);
    if (got <= 0)
        die("read");
    l->in_size += (size_t)got;
}

static void put(struct line *l, const char *bytes, size_t size) {
    memcpy(l->out + l->out_size, bytes, size);
    l->out_size += size;
}

static void put_text(struct line *l, const char *text) {
    put(l, text, strlen(text));
}

static void put_bulk(struct line *l, const char *bytes, size_t size) {
    l->out_size += (size_t)snprintf(l->out + l->out_size, 32, "$%zu\r\n", size);
    put(l, bytes, size);
    put(l, "\r\n", 2);
}

// The next line of a reply, without its end.
static size_t next_line(struct line *l, const char **out) {
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
static const char *next_bytes(struct line *l, size_t size) {
    while (l->in_size - l->in_at < size + 2)
        line_fill(l);
    const char *bytes = (const char *)l->in + l->in_at;
    l->in_at += size + 2;
    return bytes;
}

// A header such as "*3" or "$5" or ":1"; -1 for nil. Errors end the program.
static long next_header(struct line *l, char *out_kind) {
    const char *text;
    size_t size = next_line(l, &text);
    if (text[0] == '-') {
        fprintf(stderr, "load: the server said %.*s\n", (int)size, text);
        exit(1);
    }
    *out_kind = text[0];
    return strtol(text + 1, NULL, 10);
}

static void skip_reply(struct line *l) {
    char kind;
    long size = next_header(l, &kind);
    if (kind == '$' && size >= 0)
        next_bytes(l, (size_t)size);
    for (long i = 0; kind == '*' && i < size; i++)
        skip_reply(l);
}

static size_t next_bulk(struct line *l, char *out, size_t room) {
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

struct peer {
    const char *name;
    void (*prepare)(struct line *);                                      // before all; may be NULL
    void (*push)(struct line *, const struct work *, uint64_t number);   // one request
    void (*pushed)(struct line *);                                       // and its reply
    uint64_t (*work)(struct line *, const struct work *, uint64_t left); // a round: jobs ended
};

// ---- Latency ----------------------------------------------------------------------------------

static char body[BODY];
static float *waits_us; // the worker's, one for each job
static uint64_t waits;

static const char *body_now(void) {
    double now = clock_ns(CLOCK_MONOTONIC);
    memcpy(body, &now, sizeof now);
    return body;
}

static void body_seen(const char *bytes) {
    double pushed;
    memcpy(&pushed, bytes, sizeof pushed);
    waits_us[waits++] = (float)((clock_ns(CLOCK_MONOTONIC) - pushed) / 1e3);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void waits_tell(void) {
    qsort(waits_us, waits, sizeof *waits_us, by_size);
    printf("start_p50_us %.1f\n", (double)waits_us[waits / 2]);
    printf("start_p99_us %.1f\n", (double)waits_us[waits * 99 / 100]);
    fflush(stdout);
}

// ---- Millrace: TAKE brings up to a window of jobs; the DONEs go out with the next TAKE
// -----------

static void millrace_push(struct line *l, const struct work *w, uint64_t number) {
    char key[24];
    int size =
        snprintf(key, sizeof key, "key%llu", (unsigned long long)(w->keys ? number % w->keys : 0));
    put_text(l, w->keys ? "*5\r\n$4\r\nPUSH\r\n$5\r\nbench\r\n"
                        : "*3\r\n$4\r\nPUSH\r\n$5\r\nbench\r\n");
    put_bulk(l, body_now(), BODY);
    if (w->keys) {
        put_text(l, "$3\r\nKEY\r\n");
        put_bulk(l, key, (size_t)size);
    }
}

static void millrace_job(struct line *l) {
    char kind, id[24], token[TOKEN];
    long fields = next_header(l, &kind);
    size_t id_size = next_bulk(l, id, sizeof id), token_size = next_bulk(l, token, sizeof token);
    for (int i = 0; i < 2; i++)
        skip_reply(l); // stage, key
    char job[BODY];
    next_bulk(l, job, sizeof job);
    body_seen(job);
    for (long i = 5; i < fields; i++)
        skip_reply(l);
    put_text(l, "*3\r\n$4\r\nDONE\r\n");
    put_bulk(l, id, id_size);
    put_bulk(l, token, token_size);
}

static uint64_t millrace_work(struct line *l, const struct work *w, uint64_t left) {
    static uint64_t held; // their DONEs are in `out`
    char count[24];
    int size = snprintf(count, sizeof count, "%llu",
                        (unsigned long long)(w->window < MOST_TAKEN ? w->window : MOST_TAKEN));
    uint64_t ended = held;
    if (left > held) {
        put_text(l, "*6\r\n$4\r\nTAKE\r\n$5\r\nbench\r\n$5\r\nCOUNT\r\n");
        put_bulk(l, count, (size_t)size);
        put_text(l, "$4\r\nWAIT\r\n$2\r\n-1\r\n");
    }
    line_flush(l);
    for (; held > 0; held--)
        skip_reply(l);
    if (left > ended) {
        char kind;
        held = (uint64_t)next_header(l, &kind);
        for (uint64_t i = 0; i < held; i++)
            millrace_job(l);
    }
    return ended;
}

// ---- Redis lists: LPUSH; LMOVE to a list of what is being worked on; LREM there -----------------

static void redis_prepare(struct line *l) {
    put_text(l, "*1\r\n$8\r\nFLUSHALL\r\n");
    line_flush(l);
    skip_reply(l);
}

static void list_push(struct line *l, const struct work *w, uint64_t number) {
    (void)w;
    body_now();
    memcpy(body + 8, &number, sizeof number); // LREM finds a job by its content
    put_text(l, "*3\r\n$5\r\nLPUSH\r\n$5\r\nbench\r\n");
    put_bulk(l, body, BODY);
}

static uint64_t list_work(struct line *l, const struct work *w, uint64_t left) {
    static uint64_t held;
    uint64_t ended = held, asks = left > held ? w->window : 0;
    for (uint64_t i = 0; i < asks; i++)
        put_text(
            l, "*5\r\n$5\r\nLMOVE\r\n$5\r\nbench\r\n$5\r\nhands\r\n$5\r\nRIGHT\r\n$4\r\nLEFT\r\n");
    line_flush(l);
    for (; held > 0; held--)
        skip_reply(l);
    for (uint64_t i = 0; i < asks; i++) {
        char job[BODY];
        if (next_bulk(l, job, sizeof job) == 0)
            continue; // nothing there
        body_seen(job);
        put_text(l, "*4\r\n$4\r\nLREM\r\n$5\r\nhands\r\n$2\r\n-1\r\n");
        put_bulk(l, job, sizeof job);
        held++;
    }
    return ended;
}

// ---- Redis streams: XADD; XREADGROUP; XACK and XDEL for all that it brought ---------------------

static void stream_prepare(struct line *l) {
    redis_prepare(l);
    put_text(l, "*6\r\n$6\r\nXGROUP\r\n$6\r\nCREATE\r\n$5\r\nbench\r\n$1\r\ng\r\n$1\r\n$\r\n$"
                "8\r\nMKSTREAM\r\n");
    line_flush(l);
    skip_reply(l);
}

static void stream_push(struct line *l, const struct work *w, uint64_t number) {
    (void)w, (void)number;
    put_text(l, "*5\r\n$4\r\nXADD\r\n$5\r\nbench\r\n$1\r\n*\r\n$1\r\nb\r\n");
    put_bulk(l, body_now(), BODY);
}

static void stream_end(struct line *l, const char *start, char (*ids)[32], const size_t *sizes,
                       uint64_t count, bool group) {
    l->out_size += (size_t)snprintf(l->out + l->out_size, 64, "*%llu\r\n%s",
                                    (unsigned long long)count + (group ? 3 : 2), start);
    for (uint64_t i = 0; i < count; i++)
        put_bulk(l, ids[i], sizes[i]);
}

static uint64_t stream_work(struct line *l, const struct work *w, uint64_t left) {
    static uint64_t held;
    static char ids[1024][32];
    static size_t sizes[1024];
    uint64_t ended = held;
    char kind, count[24];
    int size = snprintf(count, sizeof count, "%llu", (unsigned long long)w->window);
    if (held) {
        stream_end(l, "$4\r\nXACK\r\n$5\r\nbench\r\n$1\r\ng\r\n", ids, sizes, held, true);
        stream_end(l, "$4\r\nXDEL\r\n$5\r\nbench\r\n", ids, sizes, held, false);
    }
    bool asks = left > held;
    if (asks) {
        put_text(
            l, "*11\r\n$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n$1\r\ng\r\n$1\r\nc\r\n$5\r\nCOUNT\r\n");
        put_bulk(l, count, (size_t)size);
        put_text(l, "$5\r\nBLOCK\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n$5\r\nbench\r\n$1\r\n>\r\n");
    }
    line_flush(l);
    if (held) {
        skip_reply(l);
        skip_reply(l);
    }
    held = 0;
    if (!asks || next_header(l, &kind) < 1)
        return ended;
    next_header(l, &kind); // the stream: its name, its entries
    skip_reply(l);
    long entries = next_header(l, &kind);
    for (; (long)held < entries; held++) {
        next_header(l, &kind);
        sizes[held] = next_bulk(l, ids[held], sizeof ids[held]);
        char job[BODY];
        next_header(l, &kind); // a name and a value
        skip_reply(l);
        next_bulk(l, job, sizeof job);
        body_seen(job);
    }
    return ended;
}

// ---- beanstalkd: put; reserve; delete ----------------------------------------------------------

static void bean_push(struct line *l, const struct work *w, uint64_t number) {
    (void)w, (void)number;
    put_text(l, "put 0 0 60 64\r\n");
    put(l, body_now(), BODY);
    put_text(l, "\r\n");
}

static void bean_line(struct line *l) {
    const char *text;
    next_line(l, &text);
}

static uint64_t bean_work(struct line *l, const struct work *w, uint64_t left) {
    static uint64_t held;
    uint64_t ended = held, rest = left - held;
    uint64_t asks = rest < w->window ? rest : w->window;
    for (uint64_t i = 0; i < asks; i++)
        put_text(l, "reserve\r\n");
    line_flush(l);
    for (; held > 0; held--)
        bean_line(l);
    for (; held < asks; held++) {
        const char *text;
        size_t size = next_line(l, &text); // RESERVED id size
        char copy[64];
        snprintf(copy, sizeof copy, "%.*s", (int)size, text);
        body_seen(next_bytes(l, BODY));
        l->out_size += (size_t)snprintf(l->out + l->out_size, 64, "delete %llu\r\n",
                                        strtoull(copy + sizeof "RESERVED", NULL, 10));
    }
    return ended;
}

// ---- The two processes ------------------------------------------------------------------------

static const struct peer peers[] = {
    { "millrace", NULL, millrace_push, skip_reply, millrace_work },
    { "redis-lists", redis_prepare, list_push, skip_reply, list_work },
    { "redis-streams", stream_prepare, stream_push, skip_reply, stream_work },
    { "beanstalkd", NULL, bean_push, bean_line, bean_work },
};

static void produce(const struct peer *p, uint16_t port, const struct work *w) {
    struct line *l = line_open(port);
    uint64_t sent = 0, told = 0;
    while (told < w->jobs) {
        for (; sent < w->jobs && sent - told < w->window; sent++)
            p->push(l, w, sent);
        line_flush(l);
        do { // at least one reply, and whatever came with it
            p->pushed(l);
            told++;
        } while (told < sent && l->in_at < l->in_size);
    }
    exit(0);
}

static void work(const struct peer *p, uint16_t port, const struct work *w) {
    struct line *l = line_open(port);
    waits_us = malloc((w->jobs + w->window) * sizeof *waits_us);
    if (!waits_us)
        die("memory");
    for (uint64_t ended = 0; ended < w->jobs;)
        ended += p->work(l, w, w->jobs - ended);
    waits_tell();
    exit(0);
}

// CPU time of the server so far, all its threads together.
static double server_cpu_ns(const char *pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file))
        die(path);
    fclose(file);
    unsigned long long user = 0, system = 0;
    const char *rest = strrchr(line, ')');
    if (!rest || sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                        &system) != 2)
        die("cannot read the server's times");
    return (double)(user + system) * 1e9 / (double)sysconf(_SC_CLK_TCK);
}

static void run(const struct peer *p, uint16_t port, const char *pid, const struct work *w) {
    if (p->prepare)
        p->prepare(line_open(port));
    double before = server_cpu_ns(pid);
    struct lap start = lap_begin();
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] < 0)
            die("fork");
        if (!children[i] && i == 0)
            produce(p, port, w);
        if (!children[i])
            work(p, port, w);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        if (waitpid(children[i], &status, 0) < 0 || status != 0)
            exit(1);
    }
    double wall = lap_end(start).wall_ns;
    struct rusage clients;
    getrusage(RUSAGE_CHILDREN, &clients);
    double client_ns = (double)(clients.ru_utime.tv_sec + clients.ru_stime.tv_sec) * 1e9 +
                       (double)(clients.ru_utime.tv_usec + clients.ru_stime.tv_usec) * 1e3;
    double jobs = (double)w->jobs;
    printf("jobs_per_s %.0f\n", jobs / wall * 1e9);
    printf("server_us_per_job %.3f\n", (server_cpu_ns(pid) - before) / jobs / 1e3);
    printf("clients_us_per_job %.3f\n", client_ns / jobs / 1e3);
}

int main(int argc, char **argv) {
    struct work w = { argument(argc, argv, 4, 100000), argument(argc, argv, 5, 64),
                      argument(argc, argv, 6, 0) };
    const char *name = argc > 1 ? argv[1] : "";
    memset(body, 'x', sizeof body);
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        if (strcmp(peers[i].name, name) != 0 || argc < 4)
            continue;
        run(&peers[i], (uint16_t)atoi(argv[2]), argv[3], &w);
        return 0;
    }
    fprintf(stderr, "load: PEER PORT PID [JOBS [WINDOW [KEYS]]]; peers:");
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++)
        fprintf(stderr, " %s", peers[i].name);
    fprintf(stderr, "\n");
    return 2;
}
