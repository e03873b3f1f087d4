// See loops.h.
#include "server/loops.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/gather.h"
#include "server/remote.h"

void loops_init(struct loops *l, uint32_t count, bool is_cluster) {
    *l = (struct loops){ .count = count, .is_cluster = is_cluster };
    backup_init(&l->backup);
    usage_init(&l->usage);
    for (uint32_t i = 0; i < count; i++) {
        list_init(&l->inboxes[i].messages);
        pthread_mutex_init(&l->inboxes[i].lock, NULL);
    }
}

void loops_add(struct loops *l, struct host *h, void (*wake)(void *arg), void *arg) {
    struct inbox *in = &l->inboxes[h->loop];
    pthread_mutex_lock(&in->lock);
    l->hosts[h->loop] = h;
    in->wake = wake;
    in->arg = arg;
    in->open = true;
    pthread_mutex_unlock(&in->lock);
    h->loops = l->count > 1 || l->is_cluster ? l : NULL;
    h->backup = h->loops ? &l->backup : &h->own_backup;
    h->usage = h->loops ? &l->usage : &h->own_usage;
}

// Whether it was empty: then its loop has to be woken.
static bool inbox_put(struct inbox *in, struct loop_message *m) {
    bool was_empty = list_empty(&in->messages);
    list_append(&in->messages, &m->of_inbox);
    return was_empty;
}

// Messages from now on, and those in the inbox, go to the first loop, in this order.
void loops_remove(struct loops *l, uint32_t loop) {
    struct inbox *in = &l->inboxes[loop], *first = &l->inboxes[0];
    pthread_mutex_lock(&in->lock);
    in->open = false;
    l->hosts[loop] = NULL;
    atomic_store(&l->client_bytes[loop], 0);
    pthread_mutex_lock(&first->lock);
    list_append_all(&first->messages, &in->messages);
    pthread_mutex_unlock(&first->lock);
    pthread_mutex_unlock(&in->lock);
    first->wake(first->arg);
}

struct loop_message *loop_message_create(enum loop_message_kind kind, struct remote *r) {
    struct loop_message *m = mem_alloc(sizeof *m);
    if (m) {
        m->kind = kind;
        m->remote = r;
    }
    return m;
}

void loop_message_free(struct loop_message *m) {
    if (!m)
        return;
    buffer_finish(&m->bytes);
    shared_reservation_leave(m->reserved);
    mem_free(m->identity);
    mem_free(m->holds);
    if (m->message)
        message_finish(m->message);
    mem_free(m->message);
    if (m->drop)
        m->drop(m->arg);
    mem_free(m);
}

void loops_finish(struct loops *l) {
    for (uint32_t i = 0; i < l->count; i++) {
        for (struct list *at; (at = list_first(&l->inboxes[i].messages)) != NULL;) {
            struct loop_message *m = list_entry(at, struct loop_message, of_inbox);
            list_remove(at);
            if (m->kind == LOOP_END || m->kind == LOOP_ENDED)
                remote_free(m->remote); // no other message frees it
            loop_message_free(m);
        }
        pthread_mutex_destroy(&l->inboxes[i].lock);
    }
    backup_finish(&l->backup);
    usage_finish(&l->usage);
}

// The inbox is locked while the first loop gets the message, so that it gets those that were in the
// inbox before. A loop of a cluster may end when its inbox is unlocked, so it is woken before;
// other loops, and the first, are woken afterwards: they would wait for the lock.
void loop_send(struct loops *l, uint32_t loop, struct loop_message *m) {
    struct inbox *in = &l->inboxes[loop], *to = in, *first = &l->inboxes[0];
    bool may_end = l->is_cluster && loop;
    m->loop = loop;
    pthread_mutex_lock(&in->lock);
    if (!in->open) {
        to = first;
        may_end = false;
        pthread_mutex_lock(&first->lock);
    }
    bool wakes = inbox_put(to, m);
    if (wakes && may_end)
        to->wake(to->arg);
    if (to != in)
        pthread_mutex_unlock(&first->lock);
    pthread_mutex_unlock(&in->lock);
    if (wakes && !may_end)
        to->wake(to->arg);
}

// Shards are distributed evenly over the loops, in order; in a cluster, each has one.
uint32_t loop_of_shard(const struct loops *l, uint32_t shards, uint32_t shard) {
    if (l && l->is_cluster)
        return shard + 1;
    return l && shards ? (uint32_t)((uint64_t)shard * l->count / shards) : 0;
}

uint32_t loop_first_shard(const struct loops *l, uint32_t shards, uint32_t loop) {
    if (l && l->is_cluster)
        return loop ? loop - 1 : 0;
    return l ? (uint32_t)(((uint64_t)loop * shards + l->count - 1) / l->count) : loop * shards;
}

void loops_wake(struct loops *l, uint32_t loop) {
    struct inbox *in = &l->inboxes[loop];
    pthread_mutex_lock(&in->lock);
    if (in->open)
        in->wake(in->arg);
    pthread_mutex_unlock(&in->lock);
}

int loops_give(struct loops *l, uint32_t loop, void (*run)(struct host *, void *arg),
               void (*drop)(void *arg), void *arg) {
    struct loop_message *m = loop_message_create(LOOP_RUN, NULL);
    if (!m)
        return error_set(MR_ENOMEM, "no memory for a message between loops");
    m->run = run;
    m->drop = drop;
    m->arg = arg;
    loop_send(l, loop, m);
    return 0;
}

int loops_run(struct loops *l, uint32_t loop, void (*run)(struct host *, void *arg), void *arg) {
    return loops_give(l, loop, run, NULL, arg);
}
