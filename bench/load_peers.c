// The commands of each peer for a job: push, take, done, built beforehand.
#include "bench/load.h"

enum { TOKEN = 64, MOST_TAKEN = 1000 };

// ---- Millrace: TAKE brings up to a window of jobs; the DONEs go out with the next TAKE ----------

static void millrace_push(struct line *l, const struct work *w, uint64_t number) {
    put_text(l, w->keys ? "*5\r\n$4\r\nPUSH\r\n$5\r\nbench\r\n"
                        : "*3\r\n$4\r\nPUSH\r\n$5\r\nbench\r\n");
    put_bulk(l, load_body, w->body);
    if (w->keys) {
        put_text(l, "$3\r\nKEY\r\n$10\r\n");
        put_number(l, 1000000000 + number % w->keys); // ten digits, whatever the number
        put(l, "\r\n", 2);
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
    body_seen(l, job);
    for (long i = 5; i < fields; i++)
        skip_reply(l);
    put_text(l, "*3\r\n$4\r\nDONE\r\n");
    put_bulk(l, id, id_size);
    put_bulk(l, token, token_size);
}

static uint64_t millrace_work(struct line *l, const struct work *w, uint64_t left) {
    static uint64_t held; // their DONEs are in `out`
    uint64_t ended = held;
    if (left > held) {
        put_text(l, "*6\r\n$4\r\nTAKE\r\n$5\r\nbench\r\n$5\r\nCOUNT\r\n");
        put_bulk_number(l, w->window < MOST_TAKEN ? w->window : MOST_TAKEN);
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

// One at a time it waits for a job; several at once cannot wait, and come empty instead.
static void list_ask(struct line *l, uint64_t count) {
    static const char rest[] = "\r\n$5\r\nbench\r\n$5\r\nhands\r\n$5\r\nRIGHT\r\n$4\r\nLEFT\r\n";
    if (count == 1) {
        put_text(l, "*6\r\n$6\r\nBLMOVE");
        put(l, rest, sizeof rest - 1);
        put_text(l, "$1\r\n0\r\n");
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        put_text(l, "*5\r\n$5\r\nLMOVE");
        put(l, rest, sizeof rest - 1);
    }
}

static void redis_prepare(struct line *l) {
    put_text(l, "*1\r\n$8\r\nFLUSHALL\r\n");
    line_flush(l);
    skip_reply(l);
}

static void list_push(struct line *l, const struct work *w, uint64_t number) {
    (void)w;
    memcpy(load_body + 8, &number, sizeof number); // LREM finds a job by its content
    put_text(l, "*3\r\n$5\r\nLPUSH\r\n$5\r\nbench\r\n");
    put_bulk(l, load_body, BODY);
}

static uint64_t list_work(struct line *l, const struct work *w, uint64_t left) {
    static uint64_t held;
    uint64_t ended = held, asks = left > held ? w->window : 0;
    list_ask(l, asks);
    line_flush(l);
    for (; held > 0; held--)
        skip_reply(l);
    for (uint64_t i = 0; i < asks; i++) {
        char job[BODY];
        if (next_bulk(l, job, sizeof job) == 0)
            continue; // nothing there
        body_seen(l, job);
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
    put_bulk(l, load_body, BODY);
}

static void stream_end(struct line *l, const char *start, char (*ids)[32], const size_t *sizes,
                       uint64_t count, bool group) {
    put(l, "*", 1);
    put_number(l, count + (group ? 3 : 2));
    put_text(l, start);
    for (uint64_t i = 0; i < count; i++)
        put_bulk(l, ids[i], sizes[i]);
}

static uint64_t stream_work(struct line *l, const struct work *w, uint64_t left) {
    static uint64_t held;
    static char ids[MOST_WINDOW][32];
    static size_t sizes[MOST_WINDOW];
    uint64_t ended = held;
    char kind;
    if (held) {
        stream_end(l, "\r\n$4\r\nXACK\r\n$5\r\nbench\r\n$1\r\ng\r\n", ids, sizes, held, true);
        stream_end(l, "\r\n$4\r\nXDEL\r\n$5\r\nbench\r\n", ids, sizes, held, false);
    }
    bool asks = left > held;
    if (asks) {
        put_text(
            l, "*11\r\n$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n$1\r\ng\r\n$1\r\nc\r\n$5\r\nCOUNT\r\n");
        put_bulk_number(l, w->window);
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
        body_seen(l, job);
    }
    return ended;
}

// ---- beanstalkd: put; reserve; delete ----------------------------------------------------------

static void bean_push(struct line *l, const struct work *w, uint64_t number) {
    (void)w, (void)number;
    put_text(l, "put 0 0 60 64\r\n");
    put(l, load_body, BODY);
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
        size_t size = next_line(l, &text), name = sizeof "RESERVED"; // RESERVED id size
        put_text(l, "delete ");
        put_number(l, (uint64_t)number_read(text + name, size - name));
        put_text(l, "\r\n");
        body_seen(l, next_bytes(l, BODY));
    }
    return ended;
}

// ---- All of them ------------------------------------------------------------------------------

const struct peer load_peers[] = {
    { "millrace", NULL, NULL, millrace_push, skip_reply, millrace_work },
    { "redis-lists", NULL, redis_prepare, list_push, skip_reply, list_work },
    { "redis-streams", NULL, stream_prepare, stream_push, skip_reply, stream_work },
    { "beanstalkd", NULL, NULL, bean_push, bean_line, bean_work },
    { "nats-memory", nats_greet, nats_prepare_memory, nats_push, nats_pushed, nats_work },
    { "nats-file", nats_greet, nats_prepare_file, nats_push, nats_pushed, nats_work },
};
const size_t load_peer_count = sizeof load_peers / sizeof *load_peers;
