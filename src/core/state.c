// State: the bytes that a channel keeps between its jobs. They are in the log; memory has their
// positions.
#include "core/state.h"

#include "base/errors.h"

#include <assert.h>

// The stage's line of states is linked through the states themselves, least recently set first.
static void states_unlink(struct core *c, struct stage *s, uint32_t number) {
    struct state *st = slab_at(&c->states, number);
    if (st->link.prev)
        ((struct state *)slab_at(&c->states, st->link.prev))->link.next = st->link.next;
    else
        s->states.head = st->link.next;
    if (st->link.next)
        ((struct state *)slab_at(&c->states, st->link.next))->link.prev = st->link.prev;
    else
        s->states.tail = st->link.prev;
    s->states.count--;
}

static void states_append(struct core *c, struct stage *s, uint32_t number) {
    struct state *st = slab_at(&c->states, number);
    st->link = (struct line_link){ .prev = s->states.tail };
    if (s->states.tail)
        ((struct state *)slab_at(&c->states, s->states.tail))->link.next = number;
    else
        s->states.head = number;
    s->states.tail = number;
    s->states.count++;
}

// Takes `count` states off the front of a chain and returns them in order, linked by `next` only.
static uint32_t states_sorted(struct core *c, uint32_t *chain, uint32_t count) {
    uint32_t head = *chain, *tail = &((struct state *)slab_at(&c->states, head))->link.next;
    if (count == 1) {
        *chain = *tail;
        *tail = 0;
        return head;
    }
    uint32_t a = states_sorted(c, chain, count / 2);
    uint32_t b = states_sorted(c, chain, count - count / 2);
    for (tail = &head; a || b;) {
        const struct state *of_a = slab_at(&c->states, a), *of_b = slab_at(&c->states, b);
        uint32_t *from = !b || (a && of_a->time_ms <= of_b->time_ms) ? &a : &b;
        *tail = *from;
        tail = &((struct state *)slab_at(&c->states, *from))->link.next;
        *from = *tail;
    }
    return head;
}

// After replay, because the cleaner's copies come after newer states.
void states_sort(struct core *c, struct stage *s) {
    if (!s->states.count)
        return;
    s->states.head = states_sorted(c, &s->states.head, s->states.count);
    s->states.tail = 0;
    for (uint32_t n = s->states.head; n;) {
        struct state *st = slab_at(&c->states, n);
        st->link.prev = s->states.tail;
        s->states.tail = n;
        n = st->link.next;
    }
}

static int state_refuse(const struct core *c, const struct job *j) {
    mr_bytes key = job_key(c, j);
    if (!key.size)
        return error_set(MR_EINVAL, "a job without a key has no channel to keep state");
    int size = (int)(key.size < 80 ? key.size : 80);
    return error_set(MR_EINVAL,
                     "a job of key %.*s has no channel to keep state, since its stage has groups "
                     "and nothing stands behind the slash",
                     size, (const char *)key.data);
}

int state_reserve(struct core *c, chan ref, bool sets) {
    if (!(ref & CHAN_KEYED))
        return sets ? state_refuse(c, job_at(c, ref)) : 0;
    struct channel *ch = channel_at(c, ref);
    struct stage *s = c->stages[ch->stage];
    if (ch->state || !sets)
        return 0;
    if (s->policy.max_states && s->states.count >= s->policy.max_states)
        return error_set(MR_EFULL, "stage %.*s keeps %u state%s, which is its max-states",
                         s->name_size, s->name, s->states.count, s->states.count == 1 ? "" : "s");
    return slab_reserve(&c->states, 1);
}

void state_set(struct core *c, chan ref, uint64_t at, uint32_t size, uint64_t time_ms) {
    struct channel *ch = channel_at(c, ref);
    struct stage *s = c->stages[ch->stage];
    if (ch->state)
        states_unlink(c, s, ch->state);
    else
        ch->state = slab_take(&c->states);
    assert(ch->state);
    states_append(c, s, ch->state);
    struct state *st = slab_at(&c->states, ch->state);
    home_add(c, at, size);
    home_remove(c, st->at, st->size);
    st->at = at;
    st->size = size;
    st->time_ms = time_ms;
    st->channel = ref;
    channel_check_idle(c, ref);
}

void state_drop(struct core *c, chan ref) {
    struct channel *ch = channel_at(c, ref);
    if (!ch->state)
        return;
    uint32_t number = ch->state;
    states_unlink(c, c->stages[ch->stage], number);
    const struct state *st = slab_at(&c->states, number);
    home_remove(c, st->at, st->size);
    slab_give(&c->states, number);
    ch->state = 0;
    channel_check_idle(c, ref);
}

int state_expire(struct core *c, chan ref) {
    const struct channel *ch = channel_at(c, ref);
    struct record r = {
        .kind = RECORD_STATE, .time_ms = c->now_ms, .stage = ch->stage, .key = channel_key(c, ch)
    };
    int err = out_write(c, &r, ROOM_COMMIT);
    if (err < 0)
        return err;
    state_drop(c, ref);
    return 0;
}
