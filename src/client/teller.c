// The teller: calls what the program gave us to be called, one after another, with no lock held. A
// callback may wait in another call of the client, which is why this is not the I/O thread.
#include "client/state.h"

static void tell_call(struct client *c, struct list *at) {
    list_remove(at);
    c->telling_calls++;
    pthread_mutex_unlock(&c->lock);
    call_tell(list_entry(at, struct call, of_list));
    pthread_mutex_lock(&c->lock);
    c->telling_calls--;
    pthread_cond_broadcast(&c->told);
}

void *teller_thread(void *client) {
    struct client *c = client;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        struct list *notice = list_first(&c->notices), *call = list_first(&c->ended);
        if (notice)
            notice_tell(c, list_entry(notice, struct mr_job, of_stops));
        else if (call)
            tell_call(c, call);
        else
            pthread_cond_wait(&c->tell, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}
