// Stores for copies: JetStream has no transactions.
//
// Read. All streams are looked at in turn until two rounds have found the same: then they were all
// like that at the moment between the rounds. A stream alone needs one look.
//
// Written. The message of the cluster says that it is being filled, so that no node opens it; it is
// replaced at the end. All streams of the copy claim as one claimer, right at the beginning, and
// only from what was seen before: so nothing that a node or another copy writes meanwhile is taken
// for its own. A copy that was killed leaves the message, and the next copy begins by emptying the
// streams. Its claims refuse what the former one still sends, and the sequence of the message
// refuses its end.
#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "log/nats_store.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

enum {
    ROUNDS_MS = 10000,     // how long a moment without changes is waited for
    OWNER_GONE_MS = 10000, // an owner that is silent for this time has ended
};

// --- reading ----------------------------------------------------------------------------------

static int shard_state(struct nats_store *store, uint32_t shard, struct stream_state *out) {
    struct stream *s = NULL;
    int err = store->base.open(&store->base, shard, &s);
    if (err < 0)
        return err;
    err = s->impl->look(s, out);
    s->impl->close(s);
    return err;
}

static bool states_equal(const struct stream_state *a, const struct stream_state *b) {
    return a->epoch == b->epoch && a->head == b->head && a->tail == b->tail;
}

// Looks at all shards once. `out_same`: they are as they were in `states`.
static int round_look(struct stream **streams, uint32_t shards, struct stream_state *states,
                      bool *out_same) {
    *out_same = true;
    for (uint32_t i = 0; i < shards; i++) {
        struct stream_state now;
        int err = streams[i]->impl->look(streams[i], &now);
        if (err)
            return err;
        *out_same &= states_equal(&now, &states[i]);
        states[i] = now;
    }
    return 0;
}

static int rounds_look(struct nats_store *store, struct stream **streams,
                       struct stream_state *states) {
    uint32_t shards = store->cluster.cluster.shards;
    uint64_t until_ms = monotonic_ms() + ROUNDS_MS;
    bool same = false;
    int err = round_look(streams, shards, states, &same);
    while (!err && shards > 1) {
        err = round_look(streams, shards, states, &same);
        if (!err && same)
            return 0;
        if (!err && monotonic_ms() > until_ms)
            err = error_set(MR_EBUSY,
                            "the shards of cluster '%s' change all the time, and NATS cannot show "
                            "them as they are at one moment; try again when there is less work, or "
                            "end the nodes",
                            store->cluster_name);
    }
    return err;
}

static int moment_find(struct nats_store *store) {
    uint32_t shards = store->cluster.cluster.shards;
    struct stream **streams = mem_alloc(shards * sizeof(struct stream *));
    struct stream_state *states = mem_alloc(shards * sizeof *states);
    int err = streams && states ? 0 : error_set(MR_ENOMEM, "out of memory for a copy");
    for (uint32_t i = 0; err == 0 && i < shards; i++)
        err = store->base.open(&store->base, i, &streams[i]);
    if (err == 0)
        err = rounds_look(store, streams, states);
    for (uint32_t i = 0; streams && i < shards; i++)
        if (streams[i])
            streams[i]->impl->close(streams[i]);
    mem_free(streams);
    if (err)
        mem_free(states);
    else
        store->moment = states;
    return err;
}

// --- writing ----------------------------------------------------------------------------------

static int shard_check_unused(const struct nats_store *store, const struct stream_state *state) {
    if (state->head < state->tail)
        return error_set(MR_EINVAL,
                         "cluster %s holds a store, which is never written over; copy into another "
                         "cluster: --to-cluster NAME --shards N",
                         store->cluster_name);
    if (state->owner[0] && state->silent_ms < OWNER_GONE_MS)
        return error_set(MR_EBUSY, "cluster '%s' is in use by %s; end its nodes first",
                         store->cluster_name, state->owner);
    return 0;
}

static int phase_write(struct nats_store *store, enum nats_cluster_phase phase) {
    enum nats_cluster_phase before = store->cluster.phase;
    store->cluster.phase = phase;
    int err = nats_cluster_write(store->session, store->cluster_name, &store->cluster);
    if (err)
        store->cluster.phase = before;
    if (err == NATS_CONFLICT)
        return error_set(MR_EBUSY, "another copy writes into cluster '%s' as well",
                         store->cluster_name);
    return err;
}

// Claims a shard that was in `epoch`, and removes what is in it. UINT64_MAX: if the copy owns it.
static int shard_empty(struct nats_store *store, uint32_t shard, uint64_t epoch) {
    struct stream *s = NULL;
    struct stream_state state;
    int err = store->base.open(&store->base, shard, &s);
    if (err < 0)
        return err;
    err = s->impl->claim(s, epoch, &state);
    if (!err && state.head < state.tail)
        err = s->impl->trim(s, state.epoch, state.tail);
    if (!err)
        err = s->impl->release(s, state.epoch);
    s->impl->close(s);
    return err;
}

static int shards_look(struct nats_store *store, struct stream_state *states) {
    bool interrupted = store->cluster.phase == NATS_FILLING;
    int err = 0;
    store->is_filling = interrupted; // so that it may be looked at
    for (uint32_t i = 0; !err && i < store->cluster.cluster.shards; i++) {
        err = shard_state(store, i, &states[i]);
        if (!err && !interrupted)
            err = shard_check_unused(store, &states[i]);
    }
    store->is_filling = false;
    return err;
}

static int fill_claim(struct nats_store *store, const struct stream_state *states) {
    int err = 0;
    for (uint32_t i = 0; !err && i < store->cluster.cluster.shards; i++)
        err = shard_empty(store, i, states[i].epoch);
    store->is_claimed = true;
    return err == STREAM_FENCED
               ? error_set(MR_EBUSY, "a node, or another copy, uses cluster '%s' as well",
                           store->cluster_name)
               : err;
}

static int fill_begin(struct nats_store *store) {
    struct stream_state *states = mem_alloc(store->cluster.cluster.shards * sizeof *states);
    if (!states)
        return error_set(MR_ENOMEM, "out of memory for a copy");
    int err = shards_look(store, states);
    if (!err)
        err = phase_write(store, NATS_FILLING);
    if (!err) {
        store->is_filling = true;
        err = fill_claim(store, states);
    }
    mem_free(states);
    return err;
}

int nats_fill_commit(struct stream_store *base) {
    struct nats_store *store = (struct nats_store *)base;
    if (!store->is_filling)
        return 0;
    int err = phase_write(store, NATS_MADE);
    if (!err || err == STREAM_IN_DOUBT)
        store->is_filling = false; // it may have been published: nothing is removed any more
    return err;
}

void nats_fill_abandon(struct nats_store *store) {
    if (!store->is_filling)
        return;
    int err = 0;
    store->is_claimed = true;
    for (uint32_t i = 0; !err && i < store->cluster.cluster.shards; i++) {
        err = shard_empty(store, i, UINT64_MAX);
        if (err == STREAM_FENCED)
            err = 0; // it is not the copy's
    }
    if (!err)
        (void)phase_write(store, NATS_MADE); // otherwise the next copy begins by emptying it
    store->is_filling = false;
}

// --- either -----------------------------------------------------------------------------------

static int copy_begin(struct nats_store *store, bool read_only) {
    int err = nats_session_create(&store->options, " copy", &store->session);
    if (!err)
        err = nats_cluster_read(store->session, store->cluster_name, &store->cluster);
    if (!err && (read_only || store->cluster.phase == NATS_MAKING))
        err = nats_cluster_usable(store->session, store->cluster_name, &store->cluster);
    if (!err && getrandom(&store->claimer, sizeof store->claimer, 0) != sizeof store->claimer)
        err = error_set(MR_EIO, "no random bytes: %s", strerror(errno));
    if (err)
        return err;
    return read_only ? moment_find(store) : fill_begin(store);
}

int stream_nats_begin(const struct stream_nats_options *o, bool read_only,
                      struct stream_store **out) {
    struct stream_store *store;
    int err = stream_nats_create(o, &store);
    if (err < 0)
        return err;
    err = copy_begin((struct nats_store *)store, read_only);
    if (err)
        store->close(store);
    else
        *out = store;
    return err;
}
