// See ask.h. The word is changed without a lock; the lock is for sleeping only.
#include "engine/ask.h"

#include "base/clock.h"
#include "millrace.h"

void ask_init(struct ask *a) {
    atomic_init(&a->claim, ASK_OVER);
    atomic_init(&a->missed, 0);
    a->seated = 0;
    a->told = a->again = false;
    a->err = 0;
    cond_init(&a->cond);
    pthread_mutex_init(&a->lock, NULL);
}

void ask_finish(struct ask *a) {
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->cond);
}

// ---- The word ---------------------------------------------------------------------------------

// Noted as missed first, then looked at again: either the thread sees the note, or the word has
// changed.
bool ask_claim(struct ask *a, uint32_t shard) {
    for (;;) {
        uint32_t now = ASK_OPEN;
        if (atomic_compare_exchange_strong(&a->claim, &now, ASK_OF + shard))
            return true;
        if (now != ASK_TRYING)
            return false;
        atomic_fetch_or(&a->missed, UINT64_C(1) << shard);
        if (atomic_load(&a->claim) == ASK_TRYING)
            return false;
    }
}

bool ask_try(struct ask *a) {
    uint32_t now = atomic_load(&a->claim);
    while (now <= ASK_OPEN)
        if (atomic_compare_exchange_weak(&a->claim, &now, ASK_TRYING))
            return true;
    return false;
}

uint64_t ask_open(struct ask *a) {
    atomic_store(&a->claim, ASK_OPEN);
    return atomic_exchange(&a->missed, 0);
}

// ---- Sleeping ---------------------------------------------------------------------------------

void ask_tell(struct ask *a, bool again) {
    pthread_mutex_lock(&a->lock);
    a->told = true;
    a->again = again;
    pthread_cond_signal(&a->cond);
    pthread_mutex_unlock(&a->lock);
}

void ask_break_off(struct ask *a, int err) {
    pthread_mutex_lock(&a->lock);
    a->err = err;
    pthread_cond_signal(&a->cond);
    pthread_mutex_unlock(&a->lock);
}

static bool time_is_up(uint64_t until_ms) {
    return monotonic_ms() >= until_ms;
}

// Once a shard has claimed it, its word comes: within the turn.
int ask_sleep(struct ask *a, uint64_t until_ms) {
    pthread_mutex_lock(&a->lock);
    while (!a->told && !a->err && !time_is_up(until_ms))
        cond_wait_until(&a->cond, &a->lock, until_ms);
    uint32_t open = ASK_OPEN;
    bool over = !a->told && atomic_compare_exchange_strong(&a->claim, &open, ASK_OVER);
    while (!over && !a->told)
        pthread_cond_wait(&a->cond, &a->lock);
    int err = over ? (a->err ? a->err : MR_EAGAIN) : a->again ? MR_LATER : 0;
    pthread_mutex_unlock(&a->lock);
    return err;
}
