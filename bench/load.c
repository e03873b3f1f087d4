// The life of a job through a server: one producer process, one worker process, raw sockets and
// commands built beforehand, the same for every peer.
//
//     load PEER PORT PID JOBS WINDOW KEYS BACKLOG RATE BODY    PID: of the server, for its CPU time
//
// PEER is a row of `load_peers`; PORT may be the path of a Unix-domain socket, with a slash. The
// producer keeps WINDOW pushes in flight; the worker takes up to WINDOW jobs at once, and ends them
// in the same write as the next request. BACKLOG jobs are pushed before the clock starts, and as
// many are left when it stops. With a RATE the producer pushes that many jobs a second, a window at
// a time. BODY is the size of a body, for Millrace only; a window is at most 2 MiB. Prints jobs per
// second, the CPU time of server and clients per job, and the time from push to start: a body
// begins with the time of its push. The clock is read once for bytes that are sent or arrive
// together.
#include "bench/load.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

char load_body[LARGE_BODY];
float *load_waits_us;
uint64_t load_waits;

static void body_stamp(void) {
    double now = clock_ns(CLOCK_MONOTONIC);
    memcpy(load_body, &now, sizeof now);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// The worker records its times in memory that it shares with its parent, which sorts and prints
// them, so that this is not measured.
static void waits_open(const struct work *w) {
    size_t size = (w->jobs + w->window) * sizeof *load_waits_us;
    load_waits_us = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (load_waits_us == MAP_FAILED)
        die("memory");
}

static void waits_tell(const struct work *w) {
    qsort(load_waits_us, w->jobs, sizeof *load_waits_us, by_size);
    printf("start_p50_us %.1f\n", (double)load_waits_us[w->jobs / 2]);
    printf("start_p99_us %.1f\n", (double)load_waits_us[w->jobs * 99 / 100]);
}

// ---- The two processes ------------------------------------------------------------------------

static struct line *peer_open(const struct peer *p, struct load_place at) {
    struct line *l = line_open_at(at);
    if (p->greet)
        p->greet(l);
    return l;
}

static void sleep_until(double at_ns) {
    uint64_t ns = (uint64_t)at_ns;
    struct timespec at = { .tv_sec = (time_t)(ns / 1000000000),
                           .tv_nsec = (long)(ns % 1000000000) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

static void produce(const struct peer *p, struct load_place at, const struct work *w) {
    struct line *l = peer_open(p, at);
    uint64_t sent = 0, acknowledged = 0;
    double start_ns = clock_ns(CLOCK_MONOTONIC);
    while (acknowledged < w->jobs) {
        if (w->rate)
            sleep_until(start_ns + (double)acknowledged * 1e9 / (double)w->rate);
        body_stamp();
        for (; sent < w->jobs && sent - acknowledged < w->window; sent++)
            p->push(l, w, sent);
        line_flush(l);
        do { // at least one reply, and all that arrived with it
            p->pushed(l);
            acknowledged++;
        } while (acknowledged < sent && l->in_at < l->in_size);
    }
    exit(0);
}

static void work(const struct peer *p, struct load_place at, const struct work *w) {
    struct line *l = peer_open(p, at);
    for (uint64_t ended = 0; ended < w->jobs;)
        ended += p->work(l, w, w->jobs - ended);
    exit(0);
}

// CPU time of the server so far, all its threads together.
static double server_cpu_ns(pid_t pid) {
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock) != 0)
        die("the server's CPU time");
    return clock_ns(clock);
}

static pid_t begin(void (*what)(const struct peer *, struct load_place, const struct work *),
                   const struct peer *p, struct load_place at, const struct work *w) {
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (!child)
        what(p, at, w);
    return child;
}

static double end(pid_t child) {
    int status;
    struct rusage used;
    if (wait4(child, &status, 0, &used) < 0 || status != 0)
        exit(1);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
}

static void prepare(const struct peer *p, struct load_place at, const struct work *w) {
    if (p->prepare)
        p->prepare(peer_open(p, at));
    struct work backlog = {
        .jobs = w->backlog, .window = MOST_WINDOW, .keys = w->keys, .body = w->body
    };
    if (w->backlog)
        end(begin(produce, p, at, &backlog));
}

static void run(const struct peer *p, struct load_place at, pid_t server, const struct work *w) {
    prepare(p, at, w);
    waits_open(w);
    double before = server_cpu_ns(server);
    struct lap start = lap_begin();
    pid_t producer = begin(produce, p, at, w), worker = begin(work, p, at, w);
    double producer_ns = end(producer), worker_ns = end(worker);
    double wall = lap_end(start).wall_ns, jobs = (double)w->jobs;
    printf("jobs_per_s %.0f\n", jobs / wall * 1e9);
    printf("server_us_per_job %.3f\n", (server_cpu_ns(server) - before) / jobs / 1e3);
    printf("producer_us_per_job %.3f\n", producer_ns / jobs / 1e3);
    printf("worker_us_per_job %.3f\n", worker_ns / jobs / 1e3);
    waits_tell(w);
}

int main(int argc, char **argv) {
    struct work w = { .jobs = argument(argc, argv, 4, 100000),
                      .window = argument(argc, argv, 5, 64),
                      .keys = argument(argc, argv, 6, 0),
                      .backlog = argument(argc, argv, 7, 0),
                      .rate = argument(argc, argv, 8, 0),
                      .body = argument(argc, argv, 9, BODY) };
    const char *name = argc > 1 ? argv[1] : "", *at = argc > 2 ? argv[2] : "";
    struct load_place place = { .port = (uint16_t)atoi(at), .file = strchr(at, '/') ? at : NULL };
    memset(load_body, 'x', sizeof load_body);
    for (size_t i = 0; i < load_peer_count; i++) {
        if (strcmp(load_peers[i].name, name) != 0 || argc < 4 || w.window > MOST_WINDOW ||
            w.body < 16 || w.body > LARGE_BODY || w.window * w.body > OUTPUT / 2)
            continue;
        run(&load_peers[i], place, (pid_t)atoi(argv[3]), &w);
        return 0;
    }
    fprintf(stderr, "load: PEER PORT PID [JOBS [WINDOW [KEYS [BACKLOG [RATE [BODY]]]]]]; peers:");
    for (size_t i = 0; i < load_peer_count; i++)
        fprintf(stderr, " %s", load_peers[i].name);
    fprintf(stderr, "\n");
    return 2;
}
