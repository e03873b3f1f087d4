// An eventfd for each waiting thread; they are few, so that a list is searched.
#include "work/stops.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

void stops_init(struct stops *s) {
    pthread_mutex_init(&s->lock, NULL);
    list_init(&s->busy);
    list_init(&s->idle);
    s->all = false;
}

void stops_finish(struct stops *s) {
    assert(list_empty(&s->busy));
    while (!list_empty(&s->idle)) {
        struct stop *stop = list_entry(list_first(&s->idle), struct stop, link);
        list_remove(&stop->link);
        close(stop->ring);
        mem_free(stop);
    }
    pthread_mutex_destroy(&s->lock);
}

static int stop_create(struct stop **out) {
    struct stop *stop = mem_alloc(sizeof *stop);
    if (!stop)
        return error_set(MR_ENOMEM, "no memory to wait for a process");
    stop->ring = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop->ring < 0) {
        mem_free(stop);
        return error_set(MR_EBUSY, "no descriptor to wait for a process: %s", strerror(errno));
    }
    *out = stop;
    return 0;
}

static void stop_ring(const struct stop *stop) {
    uint64_t one = 1;
    ssize_t written = write(stop->ring, &one, sizeof one);
    (void)written; // it can only be full, and is then readable
}

int stops_enter(struct stops *s, const mr_job *job, struct stop **out) {
    struct stop *stop = NULL;
    pthread_mutex_lock(&s->lock);
    if (!list_empty(&s->idle)) {
        stop = list_entry(list_first(&s->idle), struct stop, link);
        list_remove(&stop->link);
    }
    pthread_mutex_unlock(&s->lock);
    int err = stop ? 0 : stop_create(&stop);
    if (err < 0)
        return err;
    stop->job = job;
    pthread_mutex_lock(&s->lock);
    list_append(&s->busy, &stop->link);
    if (s->all || (job && leased_job_stopped(job) && !MUTANT(early_stop_not_seen)))
        stop_ring(stop);
    pthread_mutex_unlock(&s->lock);
    *out = stop;
    return 0;
}

void stops_leave(struct stops *s, struct stop *stop) {
    uint64_t count;
    pthread_mutex_lock(&s->lock);
    ssize_t got = read(stop->ring, &count, sizeof count);
    (void)got; // it was for this one, if at all
    list_remove(&stop->link);
    list_append(&s->idle, &stop->link);
    pthread_mutex_unlock(&s->lock);
}

bool stop_is_rung(const struct stop *stop) {
    struct pollfd on = { stop->ring, POLLIN, 0 };
    return poll(&on, 1, 0) == 1;
}

void stops_ring_any(struct stops *s, const mr_job *job) {
    pthread_mutex_lock(&s->lock);
    s->all = s->all || !job;
    for (struct list *l = s->busy.next; l != &s->busy; l = l->next) {
        struct stop *stop = list_entry(l, struct stop, link);
        if (!job || stop->job == job)
            stop_ring(stop);
    }
    pthread_mutex_unlock(&s->lock);
}

bool stop_is_loss(const mr_job *job) {
    return leased_job_stopped(job) == MR_ESTALE;
}

uint64_t stop_kill_at_ms(const mr_job *job, int64_t grace_ms) {
    uint64_t at_ms = monotonic_ms() + (uint64_t)grace_ms;
    uint64_t lease_ends_ms = job ? job->lease_from_ms + job->lease_ms : UINT64_MAX;
    return job && stop_is_loss(job) && lease_ends_ms < at_ms ? lease_ends_ms : at_ms;
}

// A server that is silent at the deadline has not said so.
static int stop_reason(const mr_job *job) {
    int why = leased_job_stopped(job);
    bool has_expired = job->deadline_at_ms && monotonic_ms() >= job->deadline_at_ms;
    return why || !has_expired ? why : MR_EEXPIRED;
}

void stop_describe(const mr_job *job, char *out, size_t size) {
    int why = job ? stop_reason(job) : 0;
    snprintf(out, size, "stopped%s%s", why ? ": " : "", why ? error_meaning(why) : "");
}
