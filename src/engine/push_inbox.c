// See push_inbox.h. A push in a buffer is its header, key and body, one after another.
#include "engine/push_inbox.h"

#include "base/errors.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct push_inbox_header {
    uint16_t key_size, body_size;
    uint32_t permit;
};

// Each line of a buffer goes from one processor to the other and back. Pushes are prefetched so
// many bytes ahead; one of a hundred bytes takes up to two lines.
enum { AHEAD = 512, LINE = 64 };

_Static_assert(KEY_MOST <= UINT16_MAX && INBOX_BODY_MOST <= UINT16_MAX, "sizes fit");

// The lock is held for some tens of nanoseconds: a thread that has to wait for it does better to
// try again a few times than to sleep.
void push_inbox_init(struct push_inbox *b) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&b->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

int push_inbox_open(struct push_inbox *b) {
    b->filling = mem_resize(NULL, INBOX_BYTES);
    b->delivering = mem_resize(NULL, INBOX_BYTES);
    return b->filling && b->delivering ? 0 : error_set(MR_ENOMEM, "no memory for an inbox");
}

void push_inbox_finish(struct push_inbox *b) {
    mem_free(b->filling);
    mem_free(b->delivering);
    pthread_mutex_destroy(&b->lock);
}

static bool permit_is_for(const struct push_inbox_permit *p, mr_bytes stage) {
    return p->stage_size == stage.size && memcmp(p->stage, stage.data, stage.size) == 0;
}

static const struct push_inbox_permit *permit_of(const struct push_inbox *b, mr_bytes stage) {
    for (uint32_t i = 0; i < INBOX_STAGES; i++)
        if (permit_is_for(&b->permits[i], stage))
            return &b->permits[i];
    return NULL;
}

// ---- Pushing ------------------------------------------------------------------------------------

static void push_copy(uint8_t *to, uint32_t permit, mr_bytes key, mr_bytes body) {
    struct push_inbox_header h = { (uint16_t)key.size, (uint16_t)body.size, permit };
    memcpy(to, &h, sizeof h);
    if (key.size)
        memcpy(to + sizeof h, key.data, key.size);
    if (body.size)
        memcpy(to + sizeof h + key.size, body.data, body.size);
}

static bool push_locked(struct push_inbox *b, mr_bytes stage, mr_bytes key, mr_bytes body) {
    const struct push_inbox_permit *p = permit_of(b, stage);
    size_t filled = atomic_load_explicit(&b->filled, memory_order_relaxed);
    size_t size = sizeof(struct push_inbox_header) + key.size + body.size;
    if (!p || !p->given || b->accepted >= INBOX_JOBS || size > INBOX_BYTES - filled)
        return false;
    __builtin_prefetch(b->filling + filled + AHEAD, 1);
    __builtin_prefetch(b->filling + filled + AHEAD + LINE, 1);
    push_copy(b->filling + filled, (uint32_t)(p - b->permits), key, body);
    b->accepted++;
    atomic_store_explicit(&b->filled, filled + size, memory_order_release);
    return true;
}

bool push_inbox_accept(struct push_inbox *b, mr_bytes stage, mr_bytes key, mr_bytes body) {
    if (!stage.size || key.size > KEY_MOST || body.size > INBOX_BODY_MOST)
        return false;
    pthread_mutex_lock(&b->lock);
    bool accepted = push_locked(b, stage, key, body);
    pthread_mutex_unlock(&b->lock);
    return accepted;
}

// ---- Delivering ---------------------------------------------------------------------------------

bool push_inbox_is_empty(const struct push_inbox *b) {
    return !push_inbox_has_rest(b) && !atomic_load_explicit(&b->filled, memory_order_acquire);
}

void push_inbox_exchange(struct push_inbox *b) {
    assert(!push_inbox_has_rest(b));
    pthread_mutex_lock(&b->lock);
    uint8_t *filled = b->filling;
    b->filling = b->delivering;
    b->delivering = filled;
    b->size = atomic_load_explicit(&b->filled, memory_order_relaxed);
    b->at = 0;
    atomic_store_explicit(&b->filled, 0, memory_order_relaxed);
    b->accepted = 0;
    pthread_mutex_unlock(&b->lock);
}

bool push_inbox_first(const struct push_inbox *b, struct accepted_push *out) {
    if (!push_inbox_has_rest(b))
        return false;
    struct push_inbox_header h;
    memcpy(&h, b->delivering + b->at, sizeof h);
    const uint8_t *key = b->delivering + b->at + sizeof h;
    __builtin_prefetch(b->delivering + b->at + AHEAD);
    __builtin_prefetch(b->delivering + b->at + AHEAD + LINE);
    *out = (struct accepted_push){ .stage = push_inbox_permit_stage(b, h.permit),
                                   .key = { key, h.key_size },
                                   .body = { key + h.key_size, h.body_size } };
    return true;
}

void push_inbox_delivered(struct push_inbox *b, const struct accepted_push *p) {
    b->at += sizeof(struct push_inbox_header) + p->key.size + p->body.size;
    assert(b->at <= b->size);
}

// ---- Permits ------------------------------------------------------------------------------------

mr_bytes push_inbox_permit_stage(const struct push_inbox *b, uint32_t number) {
    const struct push_inbox_permit *p = &b->permits[number];
    return bytes_of(p->stage, p->stage_size);
}

bool push_inbox_knows(const struct push_inbox *b, mr_bytes stage) {
    return permit_of(b, stage);
}

bool push_inbox_permit_set(struct push_inbox *b, uint32_t number, bool given) {
    struct push_inbox_permit *p = &b->permits[number];
    if (p->given == given)
        return false;
    pthread_mutex_lock(&b->lock);
    p->given = given;
    bool has_accepted = b->accepted > 0;
    pthread_mutex_unlock(&b->lock);
    return !given && has_accepted;
}

// A push that was accepted meanwhile may name the permit that would be replaced.
void push_inbox_permit_add(struct push_inbox *b, mr_bytes stage) {
    pthread_mutex_lock(&b->lock);
    if (!b->accepted) {
        struct push_inbox_permit *p = &b->permits[b->next_permit];
        *p = (struct push_inbox_permit){ .given = true, .stage_size = (uint8_t)stage.size };
        memcpy(p->stage, stage.data, stage.size);
        b->next_permit = (b->next_permit + 1) % INBOX_STAGES;
    }
    pthread_mutex_unlock(&b->lock);
}
