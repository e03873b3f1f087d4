// The I/O thread: drives all links, and everything that is due, from one epoll.
#include "base/clock.h"
#include "client/state.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 64 };

static uint64_t sooner(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// Links are only removed here, so the list can be walked while the lock is given up.
static void turn_links(struct client *c, uint64_t now_ms) {
    for (struct list *at = c->links.next, *next; at != &c->links; at = next) {
        struct client_link *l = list_entry(at, struct client_link, of_client);
        if (!l->closing)
            link_turn(l, now_ms);
        next = at->next;
        if (l->closing)
            link_destroy(l);
    }
}

static void client_turn(struct client *c) {
    do {
        uint64_t now_ms = monotonic_ms();
        c->io_wanted = false;
        for (struct list *at = c->pullers.next; at != &c->pullers; at = at->next)
            puller_turn(list_entry(at, struct client_puller, of_client), now_ms);
        if (now_ms >= c->lease_check_ms)
            client_jobs_check_leases(c, now_ms);
        if (now_ms >= c->call_check_ms)
            calls_check(c, now_ms);
        turn_links(c, now_ms);
    } while (c->io_wanted);
}

// Leases run out while the machine is suspended, too, and then there is no time to sleep on: a
// timer of their own rings in that moment.
static void plan_lease_check(struct client *c) {
    uint64_t at_ms = c->lease_check_ms < UINT64_MAX ? c->lease_check_ms : 0;
    if (at_ms == c->lease_fd_ms)
        return;
    struct itimerspec at = { .it_value = { .tv_sec = (time_t)(at_ms / 1000),
                                           .tv_nsec = (long)(at_ms % 1000) * 1000000 } };
    timerfd_settime(c->lease_fd, TFD_TIMER_ABSTIME, &at, NULL); // can not fail with such values
    c->lease_fd_ms = at_ms;
}

// -1: nothing else is due by itself.
static int sleep_ms(const struct client *c) {
    uint64_t next = c->call_check_ms, now_ms = monotonic_ms();
    for (struct list *at = c->links.next; at != &c->links; at = at->next)
        next = sooner(next, link_next_ms(list_entry(at, struct client_link, of_client)));
    for (struct list *at = c->pullers.next; at != &c->pullers; at = at->next)
        next = sooner(next, puller_next_ms(list_entry(at, struct client_puller, of_client)));
    if (next == UINT64_MAX)
        return -1;
    return next <= now_ms ? 0 : next - now_ms > INT32_MAX ? INT32_MAX : (int)(next - now_ms);
}

static void drain_fd(int fd) {
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got; // nothing there is fine
}

void client_wake_io(struct client *c) {
    uint64_t one = 1;
    c->io_wanted = true;
    if (!c->io_sleeps)
        return;
    c->io_sleeps = false; // once is enough
    ssize_t written = write(c->wake_fd, &one, sizeof one);
    (void)written; // it can only be full, and is then readable
}

void *io_thread(void *client) {
    struct client *c = client;
    struct epoll_event events[EVENTS_AT_ONCE];
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        client_turn(c);
        if (c->closing)
            break; // set while a turn had given up the lock: nothing would end the wait below
        plan_lease_check(c);
        int wait_ms = sleep_ms(c);
        c->io_sleeps = true;
        pthread_mutex_unlock(&c->lock);
        int count = epoll_wait(c->epoll_fd, events, EVENTS_AT_ONCE, wait_ms);
        pthread_mutex_lock(&c->lock);
        c->io_sleeps = false;
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr) {
                link_event(events[i].data.ptr, events[i].events);
            } else {
                drain_fd(c->wake_fd);
                drain_fd(c->lease_fd);
            }
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}
