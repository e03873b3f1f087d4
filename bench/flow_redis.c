// The peer of bench/flow: words of the same text, counted by a pipeline of Redis streams with a
// consumer group for each stage, one process a stage, each with a lean client.
//
//     reader ──XADD──► lines ──XREADGROUP──► splitter ──XADD──► words ──► counter ──► HINCRBY
//
// A stage hands on and acknowledges in one MULTI, so that a crash between the two changes nothing.
//
//     flow_redis PORT [WORDS [LINES]]     so many lines in an entry, whose words are one entry; 1:
//     a
//                                         line an entry, and a word an entry
#include "bench/load.h"
#include "bench/words.h"

#include <sys/resource.h>
#include <sys/wait.h>

enum { COUNT = 256, ENTRY = 1 << 20, DISTINCT = 1 << 16 };

struct job {
    uint64_t words, lines;
    uint16_t port;
    const char *path;
};

char load_body[LARGE_BODY];

static void try(int err, const char *what) {
    if (err < 0)
        die(what);
}

// ---- Streams ----------------------------------------------------------------------------------

static void begin(struct line *l, int arguments, const char *command) {
    put(l, "*", 1);
    put_number(l, (uint64_t)arguments);
    put(l, "\r\n", 2);
    put_bulk(l, command, strlen(command));
}

static void word(struct line *l, const char *text) {
    put_bulk(l, text, strlen(text));
}

static void add(struct line *l, const char *stream, const char *text, size_t size) {
    begin(l, 5, "XADD");
    word(l, stream);
    word(l, "*");
    word(l, "b");
    put_bulk(l, text, size);
}

// What is in `out` must not outgrow it.
static void make_room(struct line *l, size_t size, uint64_t *replies) {
    if (l->out_size + size < OUTPUT / 2 && *replies < 4096)
        return;
    line_flush(l);
    for (; *replies; --*replies)
        skip_reply(l);
}

static void end_entries(struct line *l, const char *stream, char (*ids)[32], long count) {
    begin(l, 3 + (int)count, "XACK");
    word(l, stream);
    word(l, "g");
    for (long i = 0; i < count; i++)
        word(l, ids[i]);
    begin(l, 2 + (int)count, "XDEL");
    word(l, stream);
    for (long i = 0; i < count; i++)
        word(l, ids[i]);
}

// What a stage does with an entry; and, with NULL, when it has had all of a turn.
typedef void each_entry(struct line *, const char *body, size_t size, void *arg);

static long ask(struct line *l, const char *stream) {
    char kind;
    begin(l, 11, "XREADGROUP");
    word(l, "GROUP");
    word(l, "g");
    word(l, "c");
    word(l, "COUNT");
    put_bulk_number(l, COUNT);
    word(l, "BLOCK");
    word(l, "1000");
    word(l, "STREAMS");
    word(l, stream);
    word(l, ">");
    line_flush(l);
    if (next_header(l, &kind) < 0)
        return 0;
    next_header(l, &kind);
    skip_reply(l);
    return next_header(l, &kind);
}

// Reads entries and calls `each` for them between MULTI and EXEC. Returns how many.
static long stage_turn(struct line *l, const char *stream, each_entry *each, void *arg) {
    static char ids[COUNT][32], *text;
    static size_t sizes[COUNT];
    char kind;
    text = text ? text : malloc((size_t)COUNT * ENTRY);
    long count = ask(l, stream);
    for (long i = 0; i < count; i++) {
        next_header(l, &kind);
        ids[i][next_bulk(l, ids[i], sizeof ids[i] - 1)] = 0;
        next_header(l, &kind);
        skip_reply(l);
        sizes[i] = next_bulk(l, text + i * ENTRY, ENTRY);
    }
    if (count == 0)
        return 0;
    begin(l, 1, "MULTI");
    for (long i = 0; i < count; i++)
        each(l, text + i * ENTRY, sizes[i], arg);
    each(l, NULL, 0, arg);
    end_entries(l, stream, ids, count);
    begin(l, 1, "EXEC");
    return count;
}

// ---- The stages -------------------------------------------------------------------------------

static void read_all(const struct job *j, struct line *l) {
    static char entry[ENTRY];
    FILE *from = fopen(j->path, "r");
    uint64_t replies = 0, lines = 0;
    size_t size = 0;
    while (from && fgets(entry + size, (int)(ENTRY - size), from)) {
        size += strlen(entry + size);
        if (++lines < j->lines)
            continue;
        add(l, "lines", entry, size);
        replies++;
        make_room(l, ENTRY, &replies);
        size = lines = 0;
    }
    if (size)
        add(l, "lines", entry, size), replies++;
    line_flush(l);
    for (; replies; replies--)
        skip_reply(l);
}

struct splitting {
    bool whole; // an entry's words stay together
    uint64_t words, replies;
};

static void split(struct line *l, const char *body, size_t size, void *arg) {
    struct splitting *s = arg;
    const char *at = body, *end = body + size;
    while (body && at < end) {
        const char *from = at;
        while (at < end && *at != ' ' && *at != '\n')
            at++;
        s->words += at > from;
        if (at > from && !s->whole) {
            add(l, "words", from, (size_t)(at - from));
            s->replies++;
            make_room(l, 1 << 16, &s->replies);
        }
        at++;
    }
    if (s->whole && body)
        add(l, "words", body, size), s->replies++, make_room(l, ENTRY, &s->replies);
}

static void split_all(const struct job *j, struct line *l) {
    struct splitting s = { .whole = j->lines > 1 };
    while (s.words < j->words) {
        long count = stage_turn(l, "lines", split, &s);
        if (count == 0)
            continue;
        s.replies += 4; // MULTI, XACK, XDEL, EXEC
        line_flush(l);
        for (; s.replies; s.replies--)
            skip_reply(l);
    }
}

struct counting {
    uint64_t words, replies;
    struct {
        char word[32];
        size_t size;
        uint64_t count;
    } table[DISTINCT];
};

// What an entry has of each word is added at once.
static void count_word(struct counting *c, const char *text, size_t size) {
    uint32_t hash = 2166136261;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (uint8_t)text[i]) * 16777619;
    size_t at = hash % DISTINCT;
    while (c->table[at].count &&
           (c->table[at].size != size || memcmp(c->table[at].word, text, size) != 0))
        at = (at + 1) % DISTINCT;
    memcpy(c->table[at].word, text, size);
    c->table[at].size = size;
    c->table[at].count++;
}

static void put_counts(struct line *l, struct counting *c);

static void count(struct line *l, const char *body, size_t size, void *arg) {
    struct counting *c = arg;
    const char *at = body, *end = body + size;
    if (!body)
        put_counts(l, c);
    for (; body && at < end; at++) {
        const char *from = at;
        while (at < end && *at != ' ' && *at != '\n')
            at++;
        if (at > from)
            count_word(c, from, (size_t)(at - from)), c->words++;
    }
}

static void put_counts(struct line *l, struct counting *c) {
    for (size_t i = 0; i < DISTINCT; i++) {
        if (!c->table[i].count)
            continue;
        begin(l, 4, "HINCRBY");
        word(l, "counts");
        put_bulk(l, c->table[i].word, c->table[i].size);
        put_bulk_number(l, c->table[i].count);
        c->table[i].count = 0;
        c->replies++;
        make_room(l, 1 << 10, &c->replies);
    }
}

static void count_all(const struct job *j, struct line *l) {
    struct counting *c = calloc(1, sizeof *c);
    while (c && c->words < j->words) {
        if (stage_turn(l, "words", count, c) == 0)
            continue;
        c->replies += 4;
        line_flush(l);
        for (; c->replies; c->replies--)
            skip_reply(l);
    }
}

// ---- All of it --------------------------------------------------------------------------------

static void start(const struct job *j, void (*stage)(const struct job *, struct line *)) {
    pid_t child = fork();
    try(child, "fork");
    if (child)
        return;
    stage(j, line_open(j->port));
    _exit(0);
}

static void prepare(struct line *l) {
    static const char *const streams[] = { "lines", "words" };
    begin(l, 1, "FLUSHALL");
    for (int i = 0; i < 2; i++) {
        begin(l, 6, "XGROUP");
        word(l, "CREATE");
        word(l, streams[i]);
        word(l, "g");
        word(l, "$");
        word(l, "MKSTREAM");
    }
    line_flush(l);
    for (int i = 0; i < 3; i++)
        skip_reply(l);
}

static double server_cpu_ns(struct line *l) {
    static char text[1 << 16];
    double sum = 0;
    begin(l, 2, "INFO");
    word(l, "cpu");
    line_flush(l);
    text[next_bulk(l, text, sizeof text - 1)] = 0;
    const char *names[] = { "used_cpu_sys:", "used_cpu_user:" };
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(text, names[i]);
        sum += at ? strtod(at + strlen(names[i]), NULL) * 1e9 : 0;
    }
    return sum;
}

static double clients_cpu_ns(void) {
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

int main(int argc, char **argv) {
    char path[] = "/tmp/millrace-words-XXXXXX";
    struct job j = { .port = (uint16_t)argument(argc, argv, 1, 6379),
                     .words = argument(argc, argv, 2, 500000),
                     .lines = argument(argc, argv, 3, 1),
                     .path = path };
    close(mkstemp(path));
    try(words_write(path, j.words), path);
    struct line *l = line_open(j.port);
    prepare(l);
    double server_ns = server_cpu_ns(l);
    struct lap begun = lap_begin();
    start(&j, count_all);
    start(&j, split_all);
    start(&j, read_all);
    for (int i = 0, status; i < 3; i++)
        if (wait(&status) < 0 || status != 0)
            must(-1, "a stage", "ended badly");
    struct lap all = lap_end(begun);
    all.cpu_ns = clients_cpu_ns() + server_cpu_ns(l) - server_ns;
    lap_tell("word", all, j.words);
    remove(path);
    return 0;
}
