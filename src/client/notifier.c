// The notifier thread: runs the program's callbacks, one after another, with no lock held.
// A callback may wait in another call of the client, which is why this is not the I/O thread.
#include "client/state.h"

static void notify_call(struct client *c, struct list *at) {
    list_remove(at);
    c->notifying_calls++;
    pthread_mutex_unlock(&c->lock);
    call_notify(list_entry(at, struct call, of_list));
    pthread_mutex_lock(&c->lock);
    c->notifying_calls--;
    pthread_cond_broadcast(&c->changed);
}

void *notifier_thread(void *client) {
    struct client *c = client;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        struct list *notice = list_first(&c->notices), *call = list_first(&c->ended);
        if (notice)
            client_notify_stop(c, list_entry(notice, struct mr_job, of_stops));
        else if (call)
            notify_call(c, call);
        else
            pthread_cond_wait(&c->notify, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}
