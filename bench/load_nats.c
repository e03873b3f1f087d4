// NATS JetStream by its own protocol: a work queue stream, one durable pull consumer. A publish is
// answered when it is stored; jobs are pulled ahead, up to a window; each is acknowledged, the last
// of a round with an answer, which the round ends with.
#include "bench/load.h"

enum { SUBJECT = 128 };

static char inbox[32]; // the subject on which this connection is answered

struct message {
    char ack[SUBJECT]; // where a job is acknowledged
    size_t ack_size;   // 0: it is an answer, not a job
    const char *bytes; // valid until the next read
    size_t size;
};

// A line is: MSG subject subscription [reply] size.
static struct message nats_message(struct line *l) {
    const char *text, *word;
    size_t size;
    do
        size = next_line(l, &text);
    while (text[0] != 'M' && text[0] != '-');
    if (text[0] == '-')
        refused(text, size);
    struct message m = { 0 };
    for (size_t words = 0; (word = memchr(text, ' ', size)); words++) {
        m.ack_size = words == 3 ? (size_t)(word - text) : 0;
        if (words == 3 && m.ack_size < SUBJECT)
            memcpy(m.ack, text, m.ack_size);
        size -= (size_t)(word - text) + 1;
        text = word + 1;
    }
    m.size = (size_t)number_read(text, size);
    m.bytes = next_bytes(l, m.size);
    return m;
}

void nats_greet(struct line *l) {
    const char *text;
    snprintf(inbox, sizeof inbox, "in.%d", (int)getpid());
    next_line(l, &text); // INFO
    put_text(l, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB ");
    put_text(l, inbox);
    put_text(l, " 1\r\n");
    line_flush(l);
}

static void nats_publish(struct line *l, const char *subject, size_t subject_size, bool answered,
                         const char *bytes, size_t size) {
    put(l, "PUB ", 4);
    put(l, subject, subject_size);
    put(l, " ", 1);
    if (answered) {
        put_text(l, inbox);
        put(l, " ", 1);
    }
    put_number(l, size);
    put(l, "\r\n", 2);
    put(l, bytes, size);
    put(l, "\r\n", 2);
}

void nats_pushed(struct line *l) {
    struct message m = nats_message(l);
    if (m.size > 2 && m.bytes[2] == 'e') // {"error": …
        refused(m.bytes, m.size);
}

static void nats_ask(struct line *l, const char *subject, const char *json) {
    nats_publish(l, subject, strlen(subject), true, json, strlen(json));
    line_flush(l);
    struct message m = nats_message(l);
    if (memmem(m.bytes, m.size, "\"error\"", 7))
        refused(m.bytes, m.size);
}

static void nats_prepare(struct line *l, const char *storage) {
    char stream[256];
    snprintf(stream, sizeof stream,
             "{\"name\":\"bench\",\"subjects\":[\"bench\"],\"retention\":\"workqueue\","
             "\"storage\":\"%s\",\"num_replicas\":1}",
             storage);
    nats_ask(l, "$JS.API.STREAM.CREATE.bench", stream);
    nats_ask(l, "$JS.API.CONSUMER.DURABLE.CREATE.bench.c",
             "{\"stream_name\":\"bench\",\"config\":{\"durable_name\":\"c\","
             "\"ack_policy\":\"explicit\",\"deliver_policy\":\"all\",\"max_ack_pending\":-1}}");
}

void nats_prepare_memory(struct line *l) {
    nats_prepare(l, "memory");
}

void nats_prepare_file(struct line *l) {
    nats_prepare(l, "file");
}

void nats_push(struct line *l, const struct work *w, uint64_t number) {
    (void)w, (void)number;
    nats_publish(l, "bench", 5, true, load_body, BODY);
}

static void nats_pull(struct line *l, uint64_t count) {
    static const char next[] = "$JS.API.CONSUMER.MSG.NEXT.bench.c";
    char json[32];
    int size = snprintf(json, sizeof json, "{\"batch\":%llu}", (unsigned long long)count);
    nats_publish(l, next, sizeof next - 1, true, json, (size_t)size);
}

uint64_t nats_work(struct line *l, const struct work *w, uint64_t left) {
    static uint64_t held, asked; // whose acks are in `out`; jobs that were pulled and have not come
    uint64_t ended = held, came = 0;
    bool asks = left > held, confirmed = held == 0;
    if (asks && asked <= w->window / 2) {
        nats_pull(l, w->window - asked);
        asked = w->window;
    }
    line_flush(l);
    struct message last = { 0 };
    while (!confirmed || (asks && (came == 0 || (asked && l->in_at < l->in_size)))) {
        struct message m = nats_message(l);
        confirmed = confirmed || !m.ack_size;
        if (!m.ack_size)
            continue;
        if (came++)
            nats_publish(l, last.ack, last.ack_size, false, "", 0);
        body_seen(l, m.bytes);
        last = m;
        asked--;
    }
    if (came)
        nats_publish(l, last.ack, last.ack_size, true, "", 0);
    held = came;
    return ended;
}
