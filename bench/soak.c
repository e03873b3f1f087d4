// A load that checks itself, for hours: tools/soak runs it.
//
//     soak push URL NAME KEYS   pushes the numbers 0, 1, 2 … of the keys NAME-0 … until SIGTERM,
//     then
//                               asks each key for its state: it must be as many as were
//                               acknowledged
//     soak work URL             runs them: the state of a key is the next number, so one that is
//                               lost, doubled or out of order is noticed when the next one begins
//     soak plot SVG TITLE       draws the samples that it reads
//
// Once a second push and work print "NAME COUNT P99_MS": how many jobs, and how long the slowest
// hundredth took to be acknowledged, or from the push to the start.
#include "millrace.h"

#include "bench/measure.h"
#include "tools/plot.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { KEYS_MOST = 4096, BATCH = 32, SAMPLES = 1 << 16, RUNNERS = 8 };
enum { ROOM_MS = 20000, ANSWER_MS = 600000 };

// Of a key: its number modulo STAGES. They are in different shards.
enum { STAGES = 4 };
static const char *const stages[STAGES + 1] = { "soak0", "soak1", "soak2", "soak3", NULL };
static atomic_bool stops;
static atomic_bool failed;

static double now_ms(void) {
    return clock_ns(CLOCK_MONOTONIC) / 1e6;
}

static void fail(const char *what, const char *why) {
    printf("wrong %s: %s\n", what, why);
    fflush(stdout);
    atomic_store(&failed, true);
}

// ---- Figures of a second
// --------------------------------------------------------------------------

struct figures {
    pthread_mutex_t lock;
    uint64_t count;
    uint32_t kept;
    float ms[SAMPLES];
};

static struct figures figures = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void figures_add(double ms, uint64_t count) {
    pthread_mutex_lock(&figures.lock);
    figures.count += count;
    if (figures.kept < SAMPLES)
        figures.ms[figures.kept++] = (float)ms;
    pthread_mutex_unlock(&figures.lock);
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void figures_print(const char *name) {
    pthread_mutex_lock(&figures.lock);
    qsort(figures.ms, figures.kept, sizeof *figures.ms, compare);
    double p99 = figures.kept ? (double)figures.ms[(uint64_t)figures.kept * 99 / 100] : 0;
    printf("%s %" PRIu64 " %.2f\n", name, figures.count, p99);
    figures.count = figures.kept = 0;
    pthread_mutex_unlock(&figures.lock);
    fflush(stdout);
}

static void print_until_stopped(const char *name) {
    while (!atomic_load(&stops)) {
        usleep(1000000);
        figures_print(name);
    }
}

// ---- Producers ----------------------------------------------------------------------------------

struct producer {
    mr *engine;
    const char *name; // of this process: keys begin with it
    uint32_t keys;
    uint64_t next[KEYS_MOST];
};

struct texts {
    char key[BATCH][32], once[BATCH][32], body[BATCH][64];
};

static void item_make(const struct producer *p, uint32_t key, struct texts *t, int i,
                      mr_item *out) {
    snprintf(t->key[i], sizeof t->key[i], "%s-%u", p->name, key);
    snprintf(t->once[i], sizeof t->once[i], "%" PRIu64, p->next[key]);
    snprintf(t->body[i], sizeof t->body[i], "%" PRIu64 " %.3f", p->next[key], now_ms());
    *out = (mr_item){ mr_str(t->key[i]), mr_str(t->once[i]), mr_str(t->body[i]) };
}

// Every key of the stage from `first` on.
static uint32_t key_at(const struct producer *p, uint32_t first, size_t i) {
    return (first + (uint32_t)i * STAGES) % p->keys;
}

// Pushes the next numbers of some keys of a stage. One whose outcome is not known is pushed again:
// its name makes that safe.
static void push_some(struct producer *p, uint32_t first) {
    struct texts texts;
    mr_item items[BATCH];
    size_t pushed = 0;
    mr_push_options o = { .room_ms = ROOM_MS };
    for (int i = 0; i < BATCH; i++)
        item_make(p, key_at(p, first, (size_t)i), &texts, i, &items[i]);
    double began_ms = now_ms();
    int err = mr_push_many(p->engine, stages[first % STAGES], items, BATCH, &o, NULL, &pushed);
    if (err < 0 && err != MR_ENET && err != MR_ESTOPPED && err != MR_EFULL)
        fail("push", mr_error());
    if (err < 0)
        return;
    for (size_t i = 0; i < pushed; i++)
        p->next[key_at(p, first, i)]++;
    figures_add(now_ms() - began_ms, pushed);
}

static void *push_until_stopped(void *producer) {
    struct producer *p = producer;
    for (uint32_t first = 0; !atomic_load(&stops); first = (first + 1) % p->keys)
        push_some(p, first);
    return NULL;
}

// A job behind all others of its key, which returns the state.
static void ask_state(struct producer *p, uint32_t key) {
    char name[32], want[32], text[200];
    mr_result result = { 0 };
    snprintf(name, sizeof name, "%s-%u", p->name, key);
    snprintf(want, sizeof want, "%" PRIu64, p->next[key]);
    mr_push_options o = { .key = mr_str(name), .room_ms = ROOM_MS, .deadline_ms = ANSWER_MS };
    int err = mr_call(p->engine, stages[key % STAGES], mr_str("?"), &o, &result);
    snprintf(text, sizeof text, "key %s has the state %.*s, and %s were acknowledged", name,
             err < 0 ? 0 : (int)result.body.size, err < 0 ? "" : (const char *)result.body.data,
             want);
    bool fits =
        err == 0 && (p->next[key] == 0 || (result.body.size == strlen(want) &&
                                           memcmp(result.body.data, want, result.body.size) == 0));
    if (!fits)
        fail(text, err < 0 ? mr_error() : "they differ");
    if (err == 0)
        mr_result_free(&result);
}

static void run_push(mr *engine, const char *name, uint32_t keys) {
    static struct producer p;
    pthread_t thread;
    p = (struct producer){ .engine = engine, .name = name, .keys = keys };
    bool fits = keys >= BATCH * STAGES && keys <= KEYS_MOST && keys % STAGES == 0;
    must(fits ? 0 : -1, "push", "128, 132 … 4096 keys");
    must(-pthread_create(&thread, NULL, push_until_stopped, &p), "push", "no thread");
    print_until_stopped("push");
    pthread_join(thread, NULL);
    uint64_t all = 0;
    for (uint32_t i = 0; i < keys; i++) {
        ask_state(&p, i);
        all += p.next[i];
    }
    printf("acknowledged %" PRIu64 "\n", all);
}

// ---- Workers ------------------------------------------------------------------------------------

static bool text_read(mr_bytes bytes, char out[64]) {
    snprintf(out, 64, "%.*s", (int)bytes.size, bytes.size ? (const char *)bytes.data : "");
    return bytes.size > 0;
}

static int handle(mr_job *job, void *arg) {
    (void)arg;
    char body[64], state[64], next[32], text[200];
    uint64_t number = 0, expected = 0;
    double pushed_ms = 0;
    if (text_read(mr_job_state(job), state))
        expected = strtoull(state, NULL, 10);
    text_read(mr_job_body(job), body);
    if (strcmp(body, "?") == 0)
        return mr_job_set_result(job, mr_job_state(job));
    int read = sscanf(body, "%" SCNu64 " %lf", &number, &pushed_ms);
    if (read != 2 || number != expected) {
        mr_bytes key = mr_job_key(job);
        snprintf(text, sizeof text, "key %.*s: %s begins after %" PRIu64 " were done",
                 (int)key.size, (const char *)key.data, body, expected);
        fail("order", text);
    }
    figures_add(now_ms() - pushed_ms, 1);
    snprintf(next, sizeof next, "%" PRIu64, number + 1);
    return mr_job_set_state(job, mr_str(next));
}

static void run_work(mr *engine) {
    mr_worker *worker;
    mr_work_options o = { .jobs = RUNNERS, .more_stages = stages + 1 };
    must(mr_work(engine, stages[0], handle, NULL, &o, &worker), "work", mr_error());
    print_until_stopped("start");
    must(mr_worker_stop(worker, ANSWER_MS), "stop", mr_error());
}

// ---- Plots --------------------------------------------------------------------------------------

// Reads lines of seconds and four figures.
static int run_plot(const char *path, const char *title) {
    static const char *const panels[] = { "memory of the server (MiB)", "push p99 (ms)",
                                          "push to start p99 (ms)", "jobs per second" };
    static double rows[SAMPLES][5];
    size_t count = 0;
    struct plot plot;
    while (count < SAMPLES && scanf("%lf %lf %lf %lf %lf", &rows[count][0], &rows[count][1],
                                    &rows[count][2], &rows[count][3], &rows[count][4]) == 5)
        count++;
    plot_begin(&plot, title, "seconds");
    for (int i = 0; i < 4; i++) {
        plot_panel(&plot, panels[i]);
        plot_line(&plot, panels[i], 0);
        for (size_t k = 0; k < count; k++)
            plot_point(&plot, rows[k][0], rows[k][i + 1]);
    }
    int err = plot_write(&plot, path);
    plot_end(&plot);
    return err < 0;
}

// ---- All ----------------------------------------------------------------------------------------

static void on_stop(int number) {
    (void)number;
    atomic_store(&stops, true);
}

int main(int count, char **words) {
    mr *engine;
    if (count == 4 && strcmp(words[1], "plot") == 0)
        return run_plot(words[2], words[3]);
    bool pushes = count == 5 && strcmp(words[1], "push") == 0;
    bool works = count == 3 && strcmp(words[1], "work") == 0;
    must(pushes || works ? 0 : -1, "soak", "push URL NAME KEYS, work URL, or plot SVG TITLE");
    signal(SIGTERM, on_stop);
    must(mr_open(words[2], NULL, &engine), "open", mr_error());
    if (pushes)
        run_push(engine, words[3], (uint32_t)strtoul(words[4], NULL, 10));
    else
        run_work(engine);
    must(mr_close(engine), "close", mr_error());
    return atomic_load(&failed);
}
