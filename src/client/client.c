// The client's life: connecting for the first time, threads, refusing to close while in use.
#include "client/client.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "client/state.h"
#include "wire/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int client_close(struct engine *);
static int client_check(struct engine *);

static const struct engine_impl client_impl = {
    .close = client_close,
    .push = client_push,
    .push_many = client_push_many,
    .call = client_call,
    .call_start = client_call_start,
    .await = client_await,
    .cancel = client_cancel,
    .stage_wait_empty = client_stage_wait_empty,
    .puller_open = client_puller_open,
    .puller_interrupt = client_puller_interrupt,
    .puller_close = client_puller_close,
    .take = client_take,
    .stop_notices = client_stop_notices,
    .done = client_done,
    .fail = client_fail,
    .release = client_release,
    .unpin = client_unpin,
    .beat = client_beat,
    .progress = client_progress,
    .beat_all = client_beat_all,
    .epic = client_epic,
    .epic_wait = client_epic_wait,
    .epic_end = client_epic_end,
    .epic_skip = client_epic_skip,
    .epic_then = client_epic_then,
    .epic_cancel = client_epic_cancel,
    .epic_forget = client_epic_forget,
    .epic_drop = client_epic_drop,
    .schedule_set = client_schedule_set,
    .schedule_act = client_schedule_act,
    .schedule = client_schedule,
    .schedules = client_schedules,
    .stage_look = client_stage_look,
    .stages = client_stages,
    .stage_why = client_stage_why,
    .stage_set = client_stage_set,
    .stage_pause = client_stage_pause,
    .stage_pause_key = client_stage_pause_key,
    .stage_resume_key = client_stage_resume_key,
    .stage_drain = client_stage_drain,
    .stage_resume = client_stage_resume,
    .jobs = client_jobs,
    .stage_cancel = client_stage_cancel,
    .dead = client_dead,
    .retry = client_retry,
    .due = client_due,
    .drop = client_drop,
    .check = client_check,
};

// ---- Time, chance -----------------------------------------------------------------------------

uint64_t client_until(int64_t wait_ms) {
    if (wait_ms < 0)
        return UINT64_MAX;
    uint64_t now = monotonic_ms() + 1; // has begun already: never too short
    return (uint64_t)wait_ms < UINT64_MAX / 2 - now ? now + (uint64_t)wait_ms : UINT64_MAX / 2;
}

void client_sleep(struct client *c, pthread_cond_t *cond, uint64_t until_ms) {
    cond_wait_until(cond, &c->lock, until_ms < UINT64_MAX / 2 ? until_ms : UINT64_MAX);
}

// Names must differ from those of other clients: random bytes of the system, else a seeded series.
uint64_t client_random(struct client *c) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) == sizeof number)
        return number;
    c->random += UINT64_C(0x9e3779b97f4a7c15);
    number = (c->random ^ c->random >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return number ^ number >> 31;
}

// ---- Opening ----------------------------------------------------------------------------------

static int copy_option(const char *from, char **out) {
    if (!from || !*from)
        return 0;
    size_t size = strlen(from) + 1;
    *out = mem_alloc(size);
    if (!*out)
        return error_set(MR_ENOMEM, "no memory for a client");
    memcpy(*out, from, size);
    return 0;
}

static int client_set_up(struct client *c, const struct engine_url *u,
                         const struct client_options *o) {
    snprintf(c->where, sizeof c->where, "%s", u->place);
    c->unreachable_ms = o->unreachable_ms ? o->unreachable_ms : CLIENT_UNREACHABLE_MS;
    c->refuses_full = o->refuses_full;
    c->repeat_ms = o->repeat_ms ? o->repeat_ms : SOURCE_REPEAT_MS;
    int err = copy_option(o->user ? o->user : u->user, &c->user);
    if (err >= 0)
        err = copy_option(o->secret ? o->secret : u->secret, &c->secret);
    if (err >= 0)
        err = copy_option(o->name, &c->name);
    memcpy(c->nodes, u->nodes, sizeof c->nodes);
    c->node_count = u->node_count;
    c->found_ms = monotonic_ms();
    if (err >= 0 && u->secure)
        err = tls_context_create(&o->tls, false, &c->tls);
    if (err >= 0)
        err = addresses_find(c, &c->addresses, &c->address_count);
    if (err < 0)
        return err;
    c->values = link_values_create();
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    c->lease_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN };
    if (!c->values)
        return error_set(MR_ENOMEM, "no memory for answers");
    if (c->epoll_fd < 0 || c->wake_fd < 0 || c->lease_fd < 0 ||
        epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->wake_fd, &event) < 0 ||
        epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->lease_fd, &event) < 0)
        return error_set(MR_EIO, "no descriptors for a client: %s", strerror(errno));
    return 0;
}

static void client_init(struct client *c) {
    struct list *lists[] = { &c->links, &c->idle, &c->pullers, &c->calls, &c->ended, &c->notices };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        list_init(lists[i]);
    for (size_t i = 0; i < CLIENT_BUCKETS; i++)
        list_init(&c->calls_by_id[i]);
    c->base.impl = &client_impl;
    c->epoll_fd = c->wake_fd = c->lease_fd = -1;
    c->lease_check_ms = c->call_check_ms = UINT64_MAX;
    c->random = monotonic_ms() ^ (uint64_t)(uintptr_t)c;
    pthread_mutex_init(&c->lock, NULL);
    cond_init(&c->notify);
    cond_init(&c->changed);
}

static void client_free(struct client *c) {
    while (!list_empty(&c->links))
        link_destroy(list_entry(c->links.next, struct client_link, of_client));
    for (struct mr_job *job = c->free_jobs, *next; job; job = next) {
        next = job->chain;
        leased_job_finish(job);
        mem_free(job);
    }
    for (struct client_source *s = c->sources, *next; s; s = next) {
        next = s->next;
        mem_free(s);
    }
    int fds[] = { c->epoll_fd, c->wake_fd, c->lease_fd };
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    tls_context_destroy(c->tls);
    void *owned[] = { c->values, c->addresses, c->user, c->secret, c->name };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        mem_free(owned[i]);
    pthread_cond_destroy(&c->notify);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

static void end_threads(struct client *c, bool io, bool notifier) {
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    client_wake_io(c);
    pthread_cond_broadcast(&c->notify);
    pthread_mutex_unlock(&c->lock);
    if (io)
        pthread_join(c->io, NULL);
    if (notifier)
        pthread_join(c->notifier, NULL);
}

// Each address is tried once; but a server with too many clients, as after a restart when all come
// at once, has room for more soon.
static bool may_still_greet(const struct client *c) {
    const struct client_link *l = c->main;
    bool is_full =
        l->err == MR_EFULL && !c->refuses_full && !link_is_unreachable(l, monotonic_ms());
    return l->failures < c->address_count || is_full;
}

// Later tries are in the background and go on for ever.
static int wait_for_greeting(struct client *c) {
    struct client_link *l = c->main;
    pthread_mutex_lock(&c->lock);
    while (l->state != LINK_LOADING && l->state != LINK_UP && may_still_greet(c))
        pthread_cond_wait(&c->changed, &c->lock);
    bool up = l->state == LINK_LOADING || l->state == LINK_UP;
    int err = up ? 0 : error_set(l->err, "%s", l->why);
    pthread_mutex_unlock(&c->lock);
    return err;
}

static int client_start(struct client *c) {
    pthread_mutex_lock(&c->lock); // the threads find their names written
    c->main = link_create(c, false);
    int failed = c->main ? pthread_create(&c->io, NULL, io_thread, c) : ENOMEM;
    bool io = failed == 0;
    if (io)
        failed = pthread_create(&c->notifier, NULL, notifier_thread, c);
    pthread_mutex_unlock(&c->lock);
    int err = failed ? error_set(MR_ENOMEM, "no threads for a client: %s", strerror(failed))
                     : wait_for_greeting(c);
    if (err < 0)
        end_threads(c, io, io && !failed);
    return err;
}

int client_open(const char *url, const struct client_options *o, struct engine **out) {
    struct engine_url place;
    int err = url_read(url, &place);
    if (err >= 0 && place.local)
        err = error_set(MR_EINVAL,
                        "%.200s is not the URL of a server: millrace://HOST:PORT or "
                        "unix:PATH",
                        url);
    if (err >= 0 && !place.secure && (o->tls.ca || o->tls.cert || o->tls.key))
        err = error_set(MR_EINVAL, "certificates are of no use without TLS: millraces://");
    if (err < 0)
        return err;
    struct client *c = mem_alloc(sizeof *c);
    if (!c)
        return error_set(MR_ENOMEM, "no memory for a client");
    client_init(c);
    err = client_set_up(c, &place, o);
    if (err >= 0)
        err = client_start(c);
    if (err < 0) {
        client_free(c);
        return err;
    }
    *out = &c->base;
    return 0;
}

// A lane comes and goes with what waits on it: the others are lost when the server is.
static int client_check_links(const struct client *c) {
    for (const struct list *at = c->links.next; at != &c->links; at = at->next) {
        const struct client_link *l = list_entry(at, struct client_link, of_client);
        if (!l->lane && l->err && l->down_since_ms)
            return error_set(MR_ENET, "%s", l->why);
    }
    return 0;
}

static int check_takes(const struct client *c) {
    for (const struct list *at = c->pullers.next; at != &c->pullers; at = at->next) {
        const struct client_puller *p = list_entry(at, struct client_puller, of_client);
        if (p->refused)
            return error_set(p->refused, "%s", p->why);
    }
    return 0;
}

static int client_check(struct engine *base) {
    struct client *c = (struct client *)base;
    pthread_mutex_lock(&c->lock);
    int err = client_check_links(c);
    if (err == 0)
        err = check_takes(c);
    pthread_mutex_unlock(&c->lock);
    return err;
}

// ---- Closing ----------------------------------------------------------------------------------

static bool client_has_worker(const struct client *c) {
    for (const struct list *at = c->pullers.next; at != &c->pullers; at = at->next)
        if (list_entry(at, struct client_puller, of_client)->options.handlers)
            return true;
    return false;
}

static int client_check_unused(const struct client *c) {
    if (client_has_worker(c))
        return error_set(MR_EBUSY, "a worker is open: stop it with mr_worker_stop first");
    if (c->leased_count)
        return error_set(MR_EBUSY, "jobs are leased: %u; end them first", c->leased_count);
    if (c->started)
        return error_set(MR_EBUSY, "started calls have not ended yet: await or cancel them first");
    if (pthread_equal(pthread_self(), c->notifier))
        return error_set(MR_EBUSY, "an engine cannot be closed by its own callback: close it from "
                                   "another thread");
    if (c->waiting_threads)
        return error_set(MR_EBUSY, "a thread is waiting in a call of this engine");
    return 0;
}

static int client_close(struct engine *base) {
    struct client *c = (struct client *)base;
    pthread_mutex_lock(&c->lock);
    int err = client_check_unused(c);
    while (err >= 0 && (c->notifying_calls || !list_empty(&c->ended))) {
        pthread_cond_wait(&c->changed, &c->lock); // report the calls that have ended first
        err = client_check_unused(c);
    }
    pthread_mutex_unlock(&c->lock);
    if (err < 0)
        return err;
    while (!list_empty(&c->pullers))
        client_puller_close(&list_entry(c->pullers.next, struct client_puller, of_client)->base);
    end_threads(c, true, true);
    client_free(c);
    return 0;
}
