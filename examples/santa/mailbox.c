// One lock for the log and all that is counted: so the lines agree with each other. Jobs themselves
// run without it.
#include "mailbox.h"

#include "clock.h"
#include "factors.h"

#include <millrace.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

// ---- The mailbox ------------------------------------------------------------------------------

struct job {
    int32_t batch, number;
    uint32_t value;
};

struct mailbox {
    const struct calendar *calendar;
    mr *engine;
    mr_worker *worker;
    double begun_s;
    pthread_mutex_t lock; // of the log and all below
    struct way *way;
    bool busy[STREETS];
    int next[STREETS]; // the first letter of the street that may be answered now
};

// With the lock.
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    struct timespec now;
    struct tm tm;
    char clock[16];
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now.tv_sec, &tm));
    printf("%s.%03ld|", clock, now.tv_nsec / 1000000);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

// With the lock: the present counts, kept for the plots. There is room for what should happen; if
// letters were begun more than once, the last place tells the present.
static const struct sample *take_sample(struct mailbox *m) {
    struct way *w = m->way;
    struct sample *s = &w->samples[w->sample_count];
    w->sample_count += w->sample_count < SAMPLES_MOST - 1;
    s->at_s = now_s() - m->begun_s;
    s->waiting = w->pushed - w->started;
    s->running = w->started - w->done;
    s->level = mr_worker_level(m->worker);
    if (s->running > w->most_running)
        w->most_running = s->running;
    return s;
}

static void say_queue(struct mailbox *m) {
    const struct sample *s = take_sample(m);
    say("Queue: %d, In Flight: %d, Parallelism: %d", s->waiting, s->running, s->level);
}

static void note_arrival(struct mailbox *m, int batch, int count) {
    const int first = m->calendar->first[batch];
    pthread_mutex_lock(&m->lock);
    for (int i = first; i < first + count; i++)
        m->way->letters[i].arrived_s = now_s() - m->begun_s;
    m->way->pushed += count;
    say("New jobs arriving: batch %d, %d jobs", batch, count);
    say_queue(m);
    fflush(stdout);
    pthread_mutex_unlock(&m->lock);
}

static int letter_of(const struct mailbox *m, const struct job *job) {
    return m->calendar->first[job->batch] + job->number;
}

// Letters of a street have rising numbers: one below the last that was seen has been overtaken.
static void note_start(struct mailbox *m, const struct job *job) {
    int letter = letter_of(m, job), street = m->calendar->street[letter];
    pthread_mutex_lock(&m->lock);
    m->way->overlaps += m->busy[street];
    m->way->overtakings += letter < m->next[street];
    m->busy[street] = true;
    m->next[street] = letter + 1;
    m->way->started++;
    m->way->letters[letter].started_s = now_s() - m->begun_s;
    say("Started batch %d job %d", job->batch, job->number);
    say_queue(m);
    fflush(stdout);
    pthread_mutex_unlock(&m->lock);
}

static void note_end(struct mailbox *m, const struct job *job, bool right) {
    int letter = letter_of(m, job);
    struct letter *l = &m->way->letters[letter];
    pthread_mutex_lock(&m->lock);
    m->busy[m->calendar->street[letter]] = false;
    m->way->wrong += !right;
    m->way->done++;
    l->ended_s = now_s() - m->begun_s;
    say("Completed batch %d job %d in %.2f secs (total %.2f)", job->batch, job->number,
        l->ended_s - l->started_s, l->ended_s - l->arrived_s);
    take_sample(m);
    fflush(stdout);
    pthread_mutex_unlock(&m->lock);
}

static int answer(mr_job *in_hand, void *arg) {
    struct mailbox *m = arg;
    struct job job;
    uint32_t factors[FACTORS_MOST];
    memcpy(&job, mr_job_body(in_hand).data, sizeof job);
    note_start(m, &job);
    if (m->calendar->wait_s > 0) {
        sleep_until(now_s() + m->calendar->wait_s);
        note_end(m, &job, true);
        return 0;
    }
    int count = factorize(job.value, factors);
    note_end(m, &job, count == 1 && factors[0] == job.value);
    return 0;
}

// ---- A way of working -------------------------------------------------------------------------

static int post(struct mailbox *m, int batch) {
    const struct calendar *c = m->calendar;
    size_t count = (size_t)(c->first[batch + 1] - c->first[batch]), posted = 0;
    struct job jobs[BATCH_MOST] = { 0 };
    mr_item items[BATCH_MOST];
    char keys[BATCH_MOST][16];
    for (size_t i = 0; i < count; i++) {
        jobs[i] = (struct job){ batch, (int32_t)i, c->value };
        snprintf(keys[i], sizeof keys[i], "street %d", c->street[c->first[batch] + (int)i]);
        items[i] = (mr_item){ .key = mr_str(keys[i]), .body = { &jobs[i], sizeof jobs[i] } };
    }
    note_arrival(m, batch, (int)count);
    int err = mr_push_many(m->engine, "letters", items, count, NULL, NULL, &posted);
    return err < 0 || posted == count ? err : MR_EFULL; // the stage has no limit
}

static int post_all(struct mailbox *m) {
    int err = 0;
    m->begun_s = now_s();
    for (int batch = 0; batch < m->calendar->batches && err >= 0; batch++) {
        sleep_until(m->begun_s + batch * m->calendar->interval_s);
        err = post(m, batch);
    }
    return err < 0 ? err : mr_stage_wait_empty(m->engine, "letters", MR_FOREVER);
}

static int count_commits(struct mailbox *m) {
    mr_stage_info info;
    return mr_stage_look(m->engine, "letters", &info) < 0 ? -1 : (int)info.done;
}

static int work_through(struct mailbox *m) {
    // No other worker takes these jobs: a lease that outlives any pause (Ctrl-Z) keeps each letter
    // with its first worker.
    mr_work_options options = { .jobs = m->way->jobs, .lease_ms = 3600 * 1000 };
    int err = mr_work(m->engine, "letters", answer, m, &options, &m->worker);
    if (err < 0)
        return err;
    err = post_all(m);
    m->way->wall_s = now_s() - m->begun_s;
    m->way->level = mr_worker_level(m->worker);
    m->way->committed = count_commits(m);
    int stopped = mr_worker_stop(m->worker, MR_FOREVER);
    return err < 0 ? err : stopped;
}

int way_run(struct way *w, const struct calendar *c) {
    struct mailbox m = { .calendar = c, .way = w, .lock = PTHREAD_MUTEX_INITIALIZER };
    int err = mr_open("mem:", NULL, &m.engine);
    if (err < 0)
        return err;
    err = work_through(&m);
    int closed = mr_close(m.engine);
    return err < 0 ? err : closed;
}
