// The sample of `millrace dev`: five stages that are never idle for long, so that what people ask
// of a queue can be seen at once. Each is a row of `sample_stages`: its policies, its worker, and
// what keeps it filled.
//
//     resize    slow jobs and a limit: why they wait
//     invoices  failures: keys that are parked, dead letters
//     reports   one tenant floods: groups take turns
//     fetch     waits for a service with eight places: the worker finds its level
//     crawl     a schedule: what it pushes emits jobs into fetch
//
// It is a client in a process of its own. The process ignores the signals of the terminal: only the
// end of the pipe ends it, and with its connections its leases, so that the server need not wait.
#include "cli/dev/dev.h"

#include "base/errors.h"
#include "cli/output.h"
#include "millrace.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURN_MS = 250, END_MS = 3000, SERVICE_PLACES = 8, DEAD_MOST = 10, PUSHES_MOST = 100 };

struct sample_client {
    mr *engine;
    sem_t service; // the places of fetch
    uint64_t turn, pushed;
};

static void spend(int ms) {
    (void)poll(NULL, 0, ms);
}

// ---- Handlers ---------------------------------------------------------------------------------

static int resize_job(mr_job *job, void *arg) {
    (void)arg;
    enum { STEPS = 10, STEP_MS = 100 };
    for (uint64_t i = 1; i <= STEPS && !mr_job_stopped(job); i++) {
        spend(STEP_MS);
        (void)mr_job_progress(job, i, STEPS, "rows of pixels");
    }
    return 0;
}

// "no total" never succeeds, and has one attempt; "late" succeeds with the third one.
static int invoice_job(mr_job *job, void *arg) {
    (void)arg;
    const char *body = mr_job_body(job).size ? mr_job_body(job).data : ""; // a user may push it
    spend(50);
    if (strstr(body, "no total"))
        return mr_job_set_reason(job, "the invoice has no total"), -1;
    if (strstr(body, "late") && mr_job_attempt(job) < 3)
        return mr_job_set_reason(job, "the bank does not answer"), -1;
    return 0;
}

static int report_job(mr_job *job, void *arg) {
    (void)job, (void)arg;
    spend(100);
    return 0;
}

static int fetch_job(mr_job *job, void *arg) {
    struct sample_client *c = arg;
    (void)job;
    while (sem_wait(&c->service) < 0 && errno == EINTR)
        ;
    spend(80);
    sem_post(&c->service);
    return 0;
}

static int crawl_job(mr_job *job, void *arg) {
    enum { PAGES = 10 };
    (void)arg;
    spend(500);
    for (int i = 0; i < PAGES; i++)
        if (mr_job_emit(job, "fetch", mr_job_body(job), NULL) < 0)
            return -1;
    return 0;
}

// ---- Filling ----------------------------------------------------------------------------------

static void sample_push(struct sample_client *c, const char *stage, const char *key,
                        const char *body) {
    mr_push_options o = { .key = mr_str(key), .attempts = strstr(body, "no total") ? 1 : 0 };
    (void)mr_push(c->engine, stage, mr_str(body), &o, NULL); // the next turn pushes again
}

// Pushes jobs of one kind, `count` of them, each with a number.
static void sample_fill(struct sample_client *c, const char *stage, const char *key, uint64_t count,
                        const char *what) {
    char text[128];
    for (uint64_t i = 0; i < count && i < PUSHES_MOST; i++) {
        snprintf(text, sizeof text, "%s %llu", what, (unsigned long long)++c->pushed);
        sample_push(c, stage, key, text);
    }
}

static void resize_fill(struct sample_client *c, const mr_stage_info *s) {
    if (s->waiting < 20)
        sample_fill(c, "resize", "", 20 - s->waiting, "photo");
}

// Each customer is a key: a failure parks it, and its next invoices wait behind.
static void invoices_fill(struct sample_client *c, const mr_stage_info *s) {
    static const char *const customers[] = { "ann", "bob", "carl", "dora", "emil" };
    const char *key = customers[c->turn % 5];
    if (s->waiting >= 20)
        return;
    bool is_dead = c->turn % 5 == 1 && s->dead < DEAD_MOST;
    bool is_late = c->turn % 40 == 2 || c->turn % 40 == 23; // so that most keys are not parked
    sample_fill(c, "invoices", key, 1, is_dead ? "no total" : is_late ? "late" : "invoice");
}

static void reports_fill(struct sample_client *c, const mr_stage_info *s) {
    if (s->waiting < 300)
        sample_fill(c, "reports", "acme/", 300 - s->waiting, "report");
    if (c->turn % 8 == 1) // every two seconds; they take about as long to run
        sample_fill(c, "reports", c->turn % 16 == 1 ? "birch/" : "cedar/", 40, "report");
}

static void fetch_fill(struct sample_client *c, const mr_stage_info *s) {
    if (s->waiting < 200)
        sample_fill(c, "fetch", "", 200 - s->waiting, "page");
}

// ---- The stages -------------------------------------------------------------------------------

enum { SAMPLE_POLICIES = 4 };

static const struct sample_stage {
    struct sample_hint hint;
    struct {
        const char *name, *value;
    } policies[SAMPLE_POLICIES];
    uint32_t jobs; // of the worker; 0: self-tuned
    mr_handler *handler;
    void (*fill)(struct sample_client *, const mr_stage_info *); // NULL: …
    int64_t every_ms;                                            // … a schedule does
} sample_stages[] = {
    { .hint = { "resize", "a second each, two at once: why the others wait", "why resize" },
      .policies = { { "concurrency", "2" } },
      .jobs = 4,
      .handler = resize_job,
      .fill = resize_fill },
    { .hint = { "invoices", "some fail: their keys are parked, then they are dead letters",
                "dead invoices" },
      .policies = { { "attempts", "3" }, { "backoff", "2s..8s" } },
      .jobs = 4,
      .handler = invoice_job,
      .fill = invoices_fill },
    { .hint = { "reports", "acme floods; birch and cedar have their turns all the same",
                "channels reports --groups" },
      .policies = { { "group", "on" } },
      .jobs = 4,
      .handler = report_job,
      .fill = reports_fill },
    { .hint = { "fetch", "its service has 8 places: the worker finds out by trial", "workers" },
      .handler = fetch_job,
      .fill = fetch_fill },
    { .hint = { "crawl", "a schedule pushes one every 5 s; each emits pages into fetch",
                "schedule" },
      .jobs = 1,
      .handler = crawl_job,
      .every_ms = 5000 },
};
enum { SAMPLE_STAGES = sizeof sample_stages / sizeof *sample_stages };

const struct sample_hint *sample_hint(size_t index) {
    return index < SAMPLE_STAGES ? &sample_stages[index].hint : NULL;
}

// ---- The process ------------------------------------------------------------------------------

static int stage_begin(struct sample_client *c, const struct sample_stage *s) {
    mr_worker *worker; // works until the process ends
    const mr_work_options o = { .jobs = s->jobs };
    int err = mr_stage_set(c->engine, s->hint.stage, "retention", "1m,200");
    for (int i = 0; err == 0 && i < SAMPLE_POLICIES && s->policies[i].name; i++)
        err = mr_stage_set(c->engine, s->hint.stage, s->policies[i].name, s->policies[i].value);
    if (err == 0 && s->every_ms)
        err = mr_schedule_set(c->engine, s->hint.stage, "front-page", mr_str("front page"),
                              &(mr_schedule_options){ .every_ms = s->every_ms });
    return err < 0 ? err : mr_work(c->engine, s->hint.stage, s->handler, c, &o, &worker);
}

static int sample_begin(struct sample_client *c, const char *url) {
    const mr_options o = { .name = "sample" };
    if (sem_init(&c->service, 0, SERVICE_PLACES) < 0)
        return error_set(MR_EIO, "no semaphore: %s", strerror(errno));
    int err = mr_open(url, &o, &c->engine);
    for (size_t i = 0; err == 0 && i < SAMPLE_STAGES; i++)
        err = stage_begin(c, &sample_stages[i]);
    return err;
}

static void sample_turn(struct sample_client *c) {
    mr_stage_info info;
    c->turn++;
    for (size_t i = 0; i < SAMPLE_STAGES; i++)
        if (sample_stages[i].fill &&
            mr_stage_look(c->engine, sample_stages[i].hint.stage, &info) == 0)
            sample_stages[i].fill(c, &info);
}

// The descriptor is readable again when the other process has ended.
static void sample_live(int fd) {
    static struct sample_client c; // threads use it until the process ends
    char url[256];
    ssize_t size = read(fd, url, sizeof url - 1);
    if (size <= 0)
        return;
    url[size] = 0;
    struct pollfd end = { .fd = fd, .events = POLLIN };
    if (sample_begin(&c, url) < 0) {
        if (poll(&end, 1, END_MS) == 0) // else the server is ending, and that is the reason
            complain("dev: no sample: %s", mr_error());
        return;
    }
    do
        sample_turn(&c);
    while (poll(&end, 1, TURN_MS) <= 0);
}

int sample_start(struct sample_process *s) {
    int ends[2];
    if (pipe(ends) < 0)
        return error_set(MR_EIO, "no pipe for the sample: %s", strerror(errno));
    fflush(NULL); // what is buffered is not to be written by both
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        sample_live(ends[0]);
        _exit(0); // with threads that are still at work
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return error_set(MR_EIO, "no process for the sample: %s", strerror(errno));
    }
    *s = (struct sample_process){ .pid = pid, .pipe = ends[1] };
    return 0;
}

void sample_connect(const struct sample_process *s, const char *url) {
    if (write(s->pipe, url, strlen(url)) < 0)
        complain("dev: no sample: %s", strerror(errno));
}

void sample_disconnect(struct sample_process *s) {
    if (s->pid && s->pipe >= 0)
        close(s->pipe);
    s->pipe = -1;
}

void sample_end(struct sample_process *s) {
    sample_disconnect(s);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *s = (struct sample_process){ 0 };
}
