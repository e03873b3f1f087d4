// Santa's mailbox: batches of letters arrive at an interval, each letter is a number to factorise.
// Letters of one street are answered one after another, in the order they came. One tidy log; at
// the end a summary that was checked.
//
//     santa [DIR]     DEMO_SECONDS=18 says how long it should take, about
//
// The batches have the sizes 7 8 8 6 2 6 9 4 10 3 3 5 6 5 10 0 9 …: Knuth's subtractive generator
// with seed 0, numbers from 0 to 10.
#include <millrace.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 17, MOST_IN_BATCH = 10, STREETS = MOST_IN_BATCH };

// ---- The generator ----------------------------------------------------------------------------

enum { LARGEST = 2147483647, SEED = 161803398 };

struct generator {
    int32_t state[56];
    int at, behind;
};

static void generator_init(struct generator *g, int32_t seed) {
    int32_t last = SEED - seed, next = 1;
    g->state[0] = 0;
    g->state[55] = last;
    for (int i = 1; i < 55; i++) {
        int spread = 21 * i % 55;
        g->state[spread] = next;
        next = last - next < 0 ? last - next + LARGEST : last - next;
        last = g->state[spread];
    }
    for (int round = 0; round < 4; round++)
        for (int i = 1; i < 56; i++) {
            int64_t mixed = (int64_t)g->state[i] - g->state[1 + (i + 30) % 55];
            g->state[i] = (int32_t)(mixed < 0 ? mixed + LARGEST : mixed);
        }
    g->at = 0;
    g->behind = 21;
}

static int generator_next(struct generator *g, int below) {
    g->at = g->at == 55 ? 1 : g->at + 1;
    g->behind = g->behind == 55 ? 1 : g->behind + 1;
    int64_t next = (int64_t)g->state[g->at] - g->state[g->behind];
    next = next == LARGEST ? next - 1 : next;
    g->state[g->at] = (int32_t)(next < 0 ? next + LARGEST : next);
    return (int)(g->state[g->at] * (1.0 / LARGEST) * below);
}

static int generator_is_right(void) {
    static const int expected[BATCHES] = { 7, 8, 8, 6, 2, 6, 9, 4, 10, 3, 3, 5, 6, 5, 10, 0, 9 };
    struct generator g;
    generator_init(&g, 0);
    for (int i = 0; i < BATCHES; i++)
        if (generator_next(&g, MOST_IN_BATCH + 1) != expected[i])
            return 0;
    return 1;
}

// ---- The work ---------------------------------------------------------------------------------

// By trial division, slowly on purpose. Returns how many factors there are.
static int factorize(uint32_t number, uint32_t *out, int most) {
    int count = 0;
    uint32_t factor = 2;
    while (factor <= number && count < most) {
        if (number % factor == 0) {
            out[count++] = factor;
            number /= factor;
        } else {
            factor++;
        }
    }
    return count;
}

static int factorize_is_right(void) {
    uint32_t f[32];
    return factorize(60, f, 32) == 4 && f[0] == 2 && f[1] == 2 && f[2] == 3 && f[3] == 5;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int is_prime(uint32_t n) {
    for (uint32_t f = 2; f <= n / f; f++)
        if (n % f == 0)
            return 0;
    return n > 1;
}

// A prime that takes about so long to factorise here.
static uint32_t prime_for(double seconds) {
    uint32_t factors[32], probe = 2000003;
    double begun = now_s();
    factorize(probe, factors, 32);
    double wanted = probe * seconds / (now_s() - begun);
    uint32_t prime = wanted > 2130093701.0 ? 2130093701u : wanted < 1000 ? 1000 : (uint32_t)wanted;
    while (!is_prime(prime))
        prime++;
    return prime;
}

// ---- The mailbox ------------------------------------------------------------------------------

struct letter {
    int batch, number;
    uint32_t value;
    double arrived_s;
};

struct santa {
    mr *engine;
    uint32_t parallelism;
    pthread_mutex_t log; // one line at a time
    atomic_int inside[STREETS], last_batch[STREETS];
    atomic_int pushed, done, overlaps, overtakings, wrong;
};

__attribute__((format(printf, 2, 3))) static void say(struct santa *s, const char *format, ...) {
    char clock[16];
    time_t now = time(NULL);
    struct tm tm;
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &tm));
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&s->log);
    printf("%s|", clock);
    vprintf(format, args);
    putchar('\n');
    fflush(stdout);
    pthread_mutex_unlock(&s->log);
    va_end(args);
}

static void say_queue(struct santa *s) {
    mr_stage_info info;
    if (mr_stage(s->engine, "letters", &info) == 0)
        say(s, "Queue: %d, In Flight: %d, Parallelism: %u", (int)info.waiting, (int)info.running,
            s->parallelism);
}

static int answer_letter(mr_job *job, void *arg) {
    struct santa *s = arg;
    struct letter letter;
    uint32_t factors[32];
    memcpy(&letter, mr_job_body(job).data, sizeof letter);
    if (atomic_fetch_add(&s->inside[letter.number], 1) != 0)
        s->overlaps++;
    if (atomic_exchange(&s->last_batch[letter.number], letter.batch + 1) > letter.batch)
        s->overtakings++;
    say(s, "Started batch %d job %d", letter.batch, letter.number);
    double begun = now_s();
    if (factorize(letter.value, factors, 32) != 1 || factors[0] != letter.value)
        s->wrong++;
    double ended = now_s();
    atomic_fetch_sub(&s->inside[letter.number], 1);
    s->done++;
    say(s, "Completed batch %d job %d in %.2f secs (total %.2f)", letter.batch, letter.number,
        ended - begun, ended - letter.arrived_s);
    say_queue(s);
    return 0;
}

static int post_batch(struct santa *s, int batch, int count, uint32_t value) {
    say(s, "New jobs arriving: batch %d, %d jobs", batch, count);
    for (int i = 0; i < count; i++) {
        struct letter letter = { 0 };
        letter.batch = batch;
        letter.number = i;
        letter.value = value;
        letter.arrived_s = now_s();
        char street[16];
        snprintf(street, sizeof street, "%d", i);
        mr_push_options options = { .key = mr_str(street) };
        mr_bytes body = { &letter, sizeof letter };
        int err = mr_push(s->engine, "letters", body, &options, NULL);
        if (err < 0)
            return err;
        s->pushed++;
    }
    return 0;
}

// Three quarters of the time letters arrive; in that time two thirds of the machine are needed.
static int run_story(struct santa *s, double seconds) {
    double interval = seconds * 0.75 / BATCHES;
    uint32_t value = prime_for(interval * s->parallelism / 6.2 * 0.66);
    struct generator g;
    generator_init(&g, 0);
    for (int batch = 0; batch < BATCHES; batch++) {
        int err = post_batch(s, batch, generator_next(&g, MOST_IN_BATCH + 1), value);
        if (err < 0)
            return err;
        struct timespec pause = { (time_t)interval, (long)((interval - (time_t)interval) * 1e9) };
        nanosleep(&pause, NULL);
    }
    return mr_wait_empty(s->engine, "letters", MR_FOREVER);
}

static int summary_holds(struct santa *s, double seconds) {
    int holds = s->pushed == s->done && s->pushed > 0 && !s->overlaps && !s->overtakings &&
                !s->wrong && generator_is_right() && factorize_is_right();
    printf("\n%d letters pushed, %d answered in %.1f secs; %d overlaps and %d overtakings within a "
           "street\n%s\n",
           s->pushed, s->done, seconds, s->overlaps, s->overtakings,
           holds ? "The summary holds." : "The summary does NOT hold.");
    return holds;
}

int main(int argc, char **argv) {
    struct santa s = { .log = PTHREAD_MUTEX_INITIALIZER };
    const char *wish = getenv("DEMO_SECONDS");
    double seconds = wish ? strtod(wish, NULL) : 18, begun = now_s();
    char url[4096] = "mem:";
    if (argc > 1 && snprintf(url, sizeof url, "file:%s", argv[1]) >= (int)sizeof url)
        return 1;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    s.parallelism = cpus < 1 ? 1 : (uint32_t)cpus;
    mr_worker *worker = NULL;
    mr_work_options options = { .jobs = s.parallelism };
    if (mr_open(url, NULL, &s.engine) < 0 ||
        mr_work(s.engine, "letters", answer_letter, &s, &options, &worker) < 0 ||
        run_story(&s, seconds > 0 ? seconds : 18) < 0 || mr_worker_stop(worker, MR_FOREVER) < 0 ||
        mr_close(s.engine) < 0) {
        fprintf(stderr, "%s\n", mr_error());
        return 1;
    }
    return !summary_holds(&s, now_s() - begun);
}
