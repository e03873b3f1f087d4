// See shared_take.h.
#include "engine/shared_take.h"

#include "base/clock.h"
#include "millrace.h"

void shared_take_init(struct shared_take *t) {
    atomic_init(&t->reservation.word, RESERVATION_OVER);
    atomic_init(&t->reservation.missed, 0);
    t->waiting = 0;
    t->answered = t->again = false;
    t->err = 0;
    cond_init(&t->cond);
    pthread_mutex_init(&t->lock, NULL);
}

void shared_take_finish(struct shared_take *t) {
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->cond);
}

void shared_take_answer(struct shared_take *t, bool again) {
    pthread_mutex_lock(&t->lock);
    t->answered = true;
    t->again = again;
    pthread_cond_signal(&t->cond);
    pthread_mutex_unlock(&t->lock);
}

void shared_take_cancel(struct shared_take *t, int err) {
    pthread_mutex_lock(&t->lock);
    t->err = err;
    pthread_cond_signal(&t->cond);
    pthread_mutex_unlock(&t->lock);
}

// Once a shard has claimed it, its answer comes within that shard's turn.
int shared_take_sleep(struct shared_take *t, uint64_t until_ms) {
    pthread_mutex_lock(&t->lock);
    while (!t->answered && !t->err && monotonic_ms() < until_ms)
        cond_wait_until(&t->cond, &t->lock, until_ms);
    bool over = !t->answered && reservation_withdraw(&t->reservation);
    while (!over && !t->answered)
        pthread_cond_wait(&t->cond, &t->lock);
    int err = over ? (t->err ? t->err : MR_EAGAIN) : t->again ? MR_LATER : 0;
    pthread_mutex_unlock(&t->lock);
    return err;
}
