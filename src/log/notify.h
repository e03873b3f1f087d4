// Notify: what a log does when more is durable, or when it has stopped.
#ifndef LOG_NOTIFY_H
#define LOG_NOTIFY_H

#include "log/log.h"

#include <pthread.h>

// Wakes all threads that wait for `done` and calls on_durable; drops the lock meanwhile.
static inline void log_notify(const struct log_options *o, pthread_mutex_t *lock,
                              pthread_cond_t *done) {
    pthread_cond_broadcast(done);
    if (!o->on_durable)
        return;
    pthread_mutex_unlock(lock);
    o->on_durable(o->arg);
    pthread_mutex_lock(lock);
}

#endif
