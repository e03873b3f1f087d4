// Handing in: each job goes to the shard that its key, once or number names; one that has none of
// them goes anywhere, in turn.
//
// Pushes of many keep their order although they go to several shards: all those shards' turns are
// begun, then every push goes to its own, and the first that is refused ends it.
#include "engine/spread.h"

enum { MANY_A_TURN = 256 };

static uint32_t in_turn(uint32_t count) {
    static _Thread_local uint32_t turn;
    return turn++ % count;
}

static uint32_t shard_of(const struct spread *s, const struct push *p) {
    uint32_t shard = route_of(s->count, p->stage, p->key, p->once);
    if (shard == ROUTE_ANY && p->source.size)
        shard = route_of_number(s->count, p->source, p->number);
    return shard == ROUTE_ANY ? in_turn(s->count) : shard;
}

static struct engine *engine_of(struct engine *base, mr_bytes stage, const mr_push_options *o) {
    struct spread *s = (struct spread *)base;
    struct push push = { .stage = stage, .key = o->key, .once = o->once };
    return &s->locals[shard_of(s, &push)]->base;
}

int spread_push(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                mr_id *out_id) {
    return local_push(engine_of(base, stage, o), stage, body, o, out_id);
}

int spread_call(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                struct buffer *out_result) {
    return local_call(engine_of(base, stage, o), stage, body, o, out_result);
}

int spread_call_start(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                      mr_on_end *on_end, void *arg, mr_id *out_id) {
    return local_call_start(engine_of(base, stage, o), stage, body, o, on_end, arg, out_id);
}

// ---- Many -------------------------------------------------------------------------------------

// What is being handed in, up to MANY_A_TURN at a time.
struct many {
    struct spread *spread;
    struct push push; // what all have in common, and the next one's number
    const mr_item *items;
    size_t count;
    mr_id *out_ids;
    uint8_t shards[MANY_A_TURN]; // of each
    uint64_t touched;            // by this turn: bit n is shard n
    uint64_t touched_ever;
    uint64_t at[SHARDS_MOST]; // what must be durable
};

static void push_item(const struct many *m, size_t i, struct push *out) {
    *out = m->push;
    out->key = m->items[i].key;
    out->once = m->items[i].once;
    out->body = m->items[i].body;
    out->number += out->source.size ? i : 0;
}

// A repeat goes where the first one went, also if it has another key.
static void route_repeats(struct many *m, size_t count) {
    for (uint32_t shard = 0; m->push.source.size && shard < m->spread->count; shard++) {
        struct local *e = m->spread->locals[shard];
        struct epic_seen seen = { 0 };
        pthread_mutex_lock(&e->lock);
        (void)core_source_seen(e->core, m->push.source, &seen); // not known: none of them is here
        for (size_t i = 0; i < count && m->push.number + i <= seen.highest; i++)
            if (core_has_seen(e->core, m->push.source, m->push.number + i))
                m->shards[i] = (uint8_t)shard;
        pthread_mutex_unlock(&e->lock);
    }
}

static size_t route_some(struct many *m) {
    size_t count = m->count < MANY_A_TURN ? m->count : MANY_A_TURN;
    m->touched = 0;
    for (size_t i = 0; i < count; i++) {
        struct push push;
        push_item(m, i, &push);
        m->shards[i] = (uint8_t)shard_of(m->spread, &push);
    }
    route_repeats(m, count);
    for (size_t i = 0; i < count; i++)
        m->touched |= UINT64_C(1) << m->shards[i];
    m->touched_ever |= m->touched;
    return count;
}

static void end_turns(struct many *m, uint64_t begun) {
    for (uint64_t left = begun; left; left &= left - 1) {
        int shard = __builtin_ctzll(left);
        m->at[shard] = local_end(m->spread->locals[shard]);
    }
}

// In ascending order, so that nobody waits for one another in a circle.
static int begin_turns(struct many *m) {
    uint64_t begun = 0;
    for (uint64_t left = m->touched; left; left &= left - 1) {
        int err = local_begin(m->spread->locals[__builtin_ctzll(left)]);
        if (err < 0) {
            end_turns(m, begun);
            return err;
        }
        begun |= left & -left;
    }
    return 0;
}

static int push_one(struct many *m, size_t i) {
    struct push push;
    struct pushed pushed;
    push_item(m, i, &push);
    int err = core_push(m->spread->locals[m->shards[i]]->core, &push, &pushed);
    if (err >= 0 && m->out_ids)
        m->out_ids[i] = pushed.id;
    return err;
}

static void go_on_behind(struct many *m, size_t n) {
    m->items += n;
    m->count -= n;
    m->out_ids = m->out_ids ? m->out_ids + n : NULL;
    m->push.number += m->push.source.size ? n : 0;
}

// The last of these may be too far ahead of what is missing; they are then pushed one by one.
static int check_numbers(const struct many *m, size_t *most) {
    const struct push *p = &m->push;
    if (spread_check_ahead(m->spread, p->source, p->number + *most - 1) >= 0)
        return 0;
    *most = 1;
    return spread_check_ahead(m->spread, p->source, p->number);
}

// As many as one turn and the room take, and the window of their source.
static int push_some(struct many *m) {
    size_t most = route_some(m), n = 0;
    int err = m->push.source.size ? check_numbers(m, &most) : 0;
    if (err >= 0)
        err = begin_turns(m);
    if (err < 0)
        return err;
    while (n < most && (err = push_one(m, n)) >= 0)
        n++;
    end_turns(m, m->touched);
    go_on_behind(m, n);
    return err;
}

// The first one, which there was no room for.
static int push_waiting(struct many *m, int64_t room_ms) {
    struct push push;
    struct pushed pushed;
    push_item(m, 0, &push);
    uint32_t shard = shard_of(m->spread, &push);
    int err = local_push_turn(m->spread->locals[shard], &push, room_ms, &pushed, &m->at[shard]);
    if (err < 0)
        return err;
    m->touched_ever |= UINT64_C(1) << shard;
    if (m->out_ids)
        *m->out_ids = pushed.id;
    go_on_behind(m, 1);
    return 0;
}

static int show_all(struct many *m) {
    for (uint64_t left = m->touched_ever; left; left &= left - 1) {
        int shard = __builtin_ctzll(left);
        int err = local_show(m->spread->locals[shard], m->at[shard], 0);
        if (err < 0)
            return err;
    }
    return 0;
}

int spread_push_many(struct engine *base, mr_bytes stage, const mr_item *items, size_t count,
                     const mr_push_options *o, const struct numbered *first, mr_id *out_ids,
                     size_t *out_count) {
    struct many m = { .spread = (struct spread *)base,
                      .push = local_push_of(stage, (mr_bytes){ 0 }, o),
                      .items = items,
                      .count = count,
                      .out_ids = out_ids };
    if (first) {
        m.push.source = first->source;
        m.push.number = first->number;
        m.push.epic = first->epic;
    }
    int err = 0;
    while (m.count && err >= 0) {
        err = push_some(&m);
        if (err == MR_EFULL && o->room_ms != 0)
            err = push_waiting(&m, o->room_ms);
    }
    if (m.count == count && err < 0)
        return err;
    err = show_all(&m);
    if (err >= 0)
        *out_count = count - m.count;
    return err;
}
