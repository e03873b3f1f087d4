// The messages of a stream, and what their answers mean.
//
// A message whose answer was lost may be stored already, or later. Each is sent with the sequence
// of the last message that its sender has seen, so reading the last message now is enough:
//
//     the same as before       it is not stored: it is sent again with the same sequence; of all
//                              its copies at most one can be stored
//     the message itself       it was stored
//     another one of its own   only that one is next to be compared with, and it goes on behind it
//     another owner's          it was not stored and never will be: fenced
//
// A read can be out of date, for a while after a change of leaders. That is no danger: what is sent
// after it is refused, and then the leader is up to date.
//
// JetStream gives messages as a whole, so a replay reads the bodies as well.
#include "log/stream_nats.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "log/nats_cluster.h"
#include "log/nats_record.h"
#include "log/nats_store.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
    ROUNDS = 4,                 // sends of one message within a call
    BATCH_MOST = INT32_MAX / 2, // bytes
};

// What is being read in order.
struct nats_scan {
    bool is_open;
    uint64_t sequence;        // of the last message
    uint64_t last_part;       // of the last part, or what is before the beginning
    uint64_t end;             // of the last batch that was passed on: where it goes on
    natsMsg *message;         // the last one
    struct buffer whole;      // the parts of a batch so far
    struct nats_record first; // of that batch
    uint64_t first_sequence;
    uint32_t parts; // how many of them are there
};

struct nats_stream {
    struct stream base;
    struct nats_store *store;
    struct nats_session *session;
    struct nats_index *index;
    uint32_t shard, replicas;
    bool is_checked, is_owner;
    char name[NATS_STREAM_NAME], log_subject[NATS_STREAM_NAME], state_subject[NATS_STREAM_NAME];
    uint64_t claimer, writes;
    struct nats_record state; // after the last message of this owner, …
    uint64_t last;            // … whose sequence this is
    uint64_t known;           // the highest sequence that was seen
    uint64_t lacks_ms;        // since when the store does not have it; 0: it does
    uint64_t seen, seen_ms;   // the last message that a look has found, and when it was new
    struct buffer message;    // to be sent
    struct nats_scan scan;
    natsMsg *kept; // the last one that was fetched by its sequence, …
    uint64_t kept_sequence;
};

static struct nats_stream *nats_stream_of(struct stream *base) {
    return (struct nats_stream *)base;
}

// --- the last message -------------------------------------------------------------------------

static int message_damaged(const struct nats_stream *s, uint64_t sequence) {
    return error_set(MR_ECORRUPT,
                     "%s: message %" PRIu64 " of stream %s is damaged, or of another program; "
                     "restore a backup into another cluster",
                     nats_session_place(s->session), sequence, s->name);
}

// The store does not have what it had acknowledged. It may be a leader that does not know yet that
// it is none any more, so that counts only after a while.
static int store_lacks(struct nats_stream *s, uint64_t found) {
    uint32_t behind_ms = s->store->options.behind_ms ? s->store->options.behind_ms : NATS_BEHIND_MS;
    uint64_t now_ms = monotonic_ms();
    if (!s->lacks_ms)
        s->lacks_ms = now_ms;
    return error_set(now_ms - s->lacks_ms < behind_ms ? STREAM_UNAVAILABLE : MR_ECORRUPT,
                     "%s has lost acknowledged messages: stream %s ends at %" PRIu64
                     ", but %" PRIu64 " was acknowledged; bring back the servers that have them",
                     nats_session_place(s->session), s->name, found, s->known);
}

static int nats_stream_ready(struct nats_stream *s) {
    if (s->is_checked)
        return 0;
    const char *cluster = s->store->cluster_name;
    struct nats_cluster_state found;
    int err = nats_cluster_read(s->session, cluster, &found);
    if (!err && !s->store->is_filling)
        err = nats_cluster_usable(s->session, cluster, &found);
    if (!err && s->shard >= found.cluster.shards)
        err = error_set(MR_EINVAL, "%s: cluster '%s' has %u shard%s, there is no shard %u",
                        nats_session_place(s->session), cluster, (unsigned)found.cluster.shards,
                        found.cluster.shards == 1 ? "" : "s", (unsigned)s->shard);
    if (err)
        return err;
    uint32_t asked = nats_session_replicas(s->session);
    err = nats_stream_check(s->session, s->name, asked ? asked : found.cluster.replicas,
                            &s->replicas);
    s->is_checked = !err;
    return err;
}

static int last_check(struct nats_stream *s, uint64_t sequence) {
    if (sequence < s->known)
        return store_lacks(s, sequence);
    s->known = sequence;
    s->lacks_ms = 0;
    return 0;
}

// A stream has no message before it was claimed, and always one after that.
static int never_used_check(struct nats_stream *s) {
    jsStreamInfo *info = NULL;
    int err = nats_session_info(s->session, s->name, &info);
    if (!err && info->State.LastSeq > 0)
        err = error_set(MR_ECORRUPT,
                        "%s: another program has emptied stream %s; restore a backup into another "
                        "cluster",
                        nats_session_place(s->session), s->name);
    jsStreamInfo_Destroy(info);
    return err == NATS_NO_STREAM ? (int)STREAM_UNAVAILABLE : err;
}

// Reads the last message; a stream without one has sequence 0 and a record of zeros. `out_time_ns`
// may be NULL.
static int last_read(struct nats_stream *s, struct nats_record *out, uint64_t *out_sequence,
                     int64_t *out_time_ns) {
    natsMsg *message = NULL;
    mr_bytes rest;
    int err = nats_stream_ready(s);
    if (!err)
        err = nats_shard_last(s->session, s->store->cluster_name, s->shard, &message);
    if (err == NATS_NO_STREAM || err == NATS_NOTHING) {
        *out = (struct nats_record){ .kind = NATS_STATE };
        *out_sequence = 0;
        return s->known ? store_lacks(s, 0) : never_used_check(s);
    }
    if (err)
        return err;
    uint64_t sequence = natsMsg_GetSequence(message);
    err = last_check(s, sequence);
    if (!err && !nats_record_get(nats_message_bytes(message), out, &rest))
        err = message_damaged(s, sequence);
    *out_sequence = sequence;
    if (out_time_ns)
        *out_time_ns = natsMsg_GetTime(message);
    natsMsg_Destroy(message);
    return err;
}

// --- writing ----------------------------------------------------------------------------------

static int stream_fenced(struct nats_stream *s, uint64_t epoch) {
    s->is_owner = false;
    return error_set(STREAM_FENCED, "shard %u of cluster '%s' has another owner, in epoch %" PRIu64,
                     (unsigned)s->shard, s->store->cluster_name, epoch);
}

// Sends a record, and the part of a batch that belongs to it, as the message after s->last.
static int record_send(struct nats_stream *s, struct nats_record *r, mr_bytes heads,
                       mr_bytes bodies) {
    r->previous = s->last;
    buffer_clear(&s->message);
    int err = nats_record_put(r, &s->message);
    if (err == 0)
        err = buffer_append(&s->message, heads.data, heads.size);
    if (err == 0)
        err = buffer_append(&s->message, bodies.data, bodies.size);
    if (err < 0)
        return err;
    bool is_part = r->kind == NATS_PART;
    struct nats_put put = { is_part ? s->log_subject : s->state_subject, s->last, !is_part,
                            buffer_bytes(&s->message) };
    uint64_t sequence = 0;
    err = nats_session_put(s->session, &put, &sequence);
    if (err == STREAM_DONE) {
        s->last = s->known = sequence;
        s->lacks_ms = 0;
    } else if (err == NATS_CONFLICT && sequence && sequence < s->known) {
        err = store_lacks(s, sequence);
    }
    return err;
}

static int record_stored(struct nats_stream *s, struct nats_record *r) {
    if (r->kind == NATS_PART)
        r->last_part = s->last;
    s->state = *r;
    return STREAM_DONE;
}

// Sends it until it is known how that went. The state becomes that of the record.
static int record_settle(struct nats_stream *s, struct nats_record *r, mr_bytes heads,
                         mr_bytes bodies) {
    bool in_doubt = false;
    r->claimer = s->claimer;
    r->write = ++s->writes;
    for (int i = 0; i < ROUNDS; i++) {
        int result = record_send(s, r, heads, bodies);
        if (result == STREAM_DONE)
            return record_stored(s, r);
        if (result != NATS_CONFLICT && result != STREAM_IN_DOUBT)
            return in_doubt && result > 0 ? (int)STREAM_IN_DOUBT : result;
        in_doubt |= result == STREAM_IN_DOUBT;
        struct nats_record found;
        uint64_t sequence;
        result = last_read(s, &found, &sequence, NULL);
        if (result)
            return in_doubt && result > 0 ? (int)STREAM_IN_DOUBT : result;
        if (sequence == s->last)
            continue;
        if (found.claimer != s->claimer || found.epoch != s->state.epoch)
            return stream_fenced(s, found.epoch);
        s->last = sequence;
        if (found.write == r->write)
            return record_stored(s, r);
        if (r->part) // the parts of a batch are next to each other: it begins again
            break;
    }
    return error_set(in_doubt ? STREAM_IN_DOUBT : STREAM_UNAVAILABLE,
                     "%s: stream %s does not settle", nats_session_place(s->session), s->name);
}

// --- owning -----------------------------------------------------------------------------------

// Whether this stream is the owner in `epoch`. If it does not know, the store does.
static int owner_check(struct nats_stream *s, uint64_t epoch) {
    struct nats_record found;
    uint64_t sequence;
    if (s->is_owner && s->state.epoch == epoch)
        return STREAM_DONE;
    int err = last_read(s, &found, &sequence, NULL);
    if (err)
        return err;
    if (found.epoch < epoch)
        return error_set(MR_ECORRUPT,
                         "%s: stream %s is in epoch %" PRIu64 ", but %" PRIu64
                         " was acknowledged: it has lost messages",
                         nats_session_place(s->session), s->name, found.epoch, epoch);
    return stream_fenced(s, found.epoch);
}

// One try behind the last message. NATS_CONFLICT: another one came in between.
static int claim_try(struct nats_stream *s, uint64_t expected, uint64_t claim) {
    struct nats_record r;
    int err = last_read(s, &r, &s->last, NULL);
    if (err)
        return err;
    bool is_own = r.claimer == s->claimer;
    if (is_own && r.claim == claim) { // an answer was lost
        s->state = r;
        return STREAM_DONE;
    }
    if (!is_own && (r.epoch != expected || s->store->is_claimed))
        return stream_fenced(s, r.epoch);
    struct nats_record fence = { .kind = NATS_STATE,
                                 .epoch = r.epoch + 1,
                                 .head = r.head,
                                 .head_sequence = r.head_sequence,
                                 .tail = r.tail,
                                 .last_part = r.kind == NATS_PART ? s->last : r.last_part,
                                 .claimer = s->claimer,
                                 .claim = claim,
                                 .write = claim };
    snprintf(fence.owner, sizeof fence.owner, "%s", s->store->owner);
    err = record_send(s, &fence, (mr_bytes){ 0 }, (mr_bytes){ 0 });
    if (!err)
        s->state = fence;
    return err;
}

// A claim of this stream that was in doubt does not fence it: it has the same claimer.
static int nats_stream_claim(struct stream *base, uint64_t expected, struct stream_state *out) {
    struct nats_stream *s = nats_stream_of(base);
    uint64_t claim = ++s->writes;
    bool in_doubt = false;
    int err = NATS_CONFLICT;
    s->is_owner = false;
    for (int i = 0; i < ROUNDS && (err == NATS_CONFLICT || err == STREAM_IN_DOUBT); i++) {
        err = claim_try(s, expected, claim);
        in_doubt |= err == STREAM_IN_DOUBT;
    }
    if (err == NATS_CONFLICT)
        err = error_set(STREAM_UNAVAILABLE, "%s: others write to stream %s at the same time",
                        nats_session_place(s->session), s->name);
    if (err == STREAM_UNAVAILABLE && in_doubt)
        err = STREAM_IN_DOUBT;
    if (err)
        return err;
    s->is_owner = true;
    *out = nats_record_state(&s->state);
    return STREAM_DONE;
}

// Writes the state. In doubt it has proved nothing, and may be repeated.
static int state_write(struct nats_stream *s, uint64_t epoch, struct nats_record *state) {
    int err = owner_check(s, epoch);
    state->kind = NATS_STATE;
    if (!err)
        err = record_settle(s, state, (mr_bytes){ 0 }, (mr_bytes){ 0 });
    return err == STREAM_IN_DOUBT ? (int)STREAM_UNAVAILABLE : err;
}

static int nats_stream_beat(struct stream *base, uint64_t epoch) {
    struct nats_stream *s = nats_stream_of(base);
    struct nats_record r = s->state;
    return state_write(s, epoch, &r);
}

static int nats_stream_release(struct stream *base, uint64_t epoch) {
    struct nats_stream *s = nats_stream_of(base);
    struct nats_record r = s->state;
    memset(r.owner, 0, sizeof r.owner);
    return state_write(s, epoch, &r);
}

// For how long the last message is the last one. It is compared with the clock of the servers once;
// after that it is enough to see when it changes.
static int silence_measure(struct nats_stream *s, uint64_t sequence, int64_t time_ns,
                           uint64_t *out_ms) {
    uint64_t now_ms = monotonic_ms(), silent_ms = 0;
    if (!s->seen && sequence) {
        int64_t clock_ns = 0;
        int err = nats_session_clock(s->session, s->name, &clock_ns);
        if (err)
            return err;
        silent_ms = clock_ns > time_ns ? (uint64_t)(clock_ns - time_ns) / 1000000 : 0;
    }
    if (s->seen != sequence)
        s->seen_ms = now_ms > silent_ms ? now_ms - silent_ms : 0;
    s->seen = sequence;
    *out_ms = now_ms - s->seen_ms;
    return 0;
}

static int nats_stream_look(struct stream *base, struct stream_state *out) {
    struct nats_stream *s = nats_stream_of(base);
    struct nats_record r;
    uint64_t sequence, silent_ms = 0;
    int64_t time_ns = 0;
    if (s->store->moment && s->shard < s->store->cluster.cluster.shards) {
        *out = s->store->moment[s->shard];
        return STREAM_DONE;
    }
    int err = last_read(s, &r, &sequence, &time_ns);
    if (!err && r.owner[0])
        err = silence_measure(s, sequence, time_ns, &silent_ms);
    if (err)
        return err;
    *out = nats_record_state(&r);
    out->silent_ms = silent_ms;
    return STREAM_DONE;
}

// --- appending --------------------------------------------------------------------------------

static mr_bytes bytes_slice(mr_bytes all, uint64_t from, uint64_t upto) {
    if (upto > all.size)
        upto = all.size;
    return from < upto ? (mr_bytes){ (const uint8_t *)all.data + from, (size_t)(upto - from) }
                       : (mr_bytes){ 0 };
}

static int append_check(struct nats_stream *s, uint64_t epoch, uint64_t tail,
                        const struct stream_batch *b, size_t *out_part_size) {
    assert(b->at >= tail && b->end > b->at);
    int err = owner_check(s, epoch);
    if (!err)
        err = nats_session_connect(s->session);
    if (err)
        return err;
    if (b->heads.size + b->bodies.size > BATCH_MOST)
        return error_set(MR_ETOOBIG, "a batch for NATS has at most %d bytes", BATCH_MOST);
    if (s->state.tail != tail)
        return error_set(STREAM_IN_DOUBT, "stream %s ends at %" PRIu64 ", not at %" PRIu64, s->name,
                         s->state.tail, tail);
    size_t payload = nats_session_payload(s->session);
    if (payload < 2 * NATS_RECORD_MOST)
        return error_set(MR_EINVAL, "%s: max_payload is too small; raise it to 1MB",
                         nats_session_place(s->session));
    *out_part_size = payload - NATS_RECORD_MOST;
    return 0;
}

// Sends a part. Only the last one moves the tail, so the others need no certainty: a batch without
// its last part is not there.
static int part_append(struct nats_stream *s, const struct stream_batch *b, struct nats_record *r,
                       uint32_t parts) {
    uint64_t size = b->heads.size, from = (uint64_t)r->part * r->part_size;
    uint64_t upto = from + nats_record_part_size(r);
    bool is_last = r->part + 1 == parts;
    if (is_last && r->head == r->tail) {
        r->head = b->at;
        r->head_sequence = s->last - r->part + 1;
    }
    if (is_last)
        r->tail = b->end;
    int err = record_settle(
        s, r, bytes_slice(b->heads, from, upto),
        bytes_slice(b->bodies, from > size ? from - size : 0, upto > size ? upto - size : 0));
    return err == STREAM_IN_DOUBT && !is_last ? (int)STREAM_UNAVAILABLE : err;
}

static int nats_stream_append(struct stream *base, uint64_t epoch, uint64_t tail,
                              const struct stream_batch *b) {
    struct nats_stream *s = nats_stream_of(base);
    size_t part_size = 0;
    int err = append_check(s, epoch, tail, b, &part_size);
    if (err)
        return err;
    struct nats_record r = s->state;
    r.kind = NATS_PART;
    r.at = b->at;
    r.end = b->end;
    r.heads_size = (uint32_t)b->heads.size;
    r.bodies_size = (uint32_t)b->bodies.size;
    r.part_size = (uint32_t)part_size;
    uint32_t parts = nats_record_parts(&r);
    for (r.part = 0; !err && r.part < parts; r.part++)
        err = part_append(s, b, &r, parts);
    if (!err)
        nats_index_add(s->index, b->at, s->last - parts + 1);
    return err;
}

// --- reading ----------------------------------------------------------------------------------

static void scan_end(struct nats_stream *s) {
    if (s->scan.is_open)
        nats_session_unfollow(s->session);
    natsMsg_Destroy(s->scan.message);
    buffer_finish(&s->scan.whole);
    s->scan = (struct nats_scan){ 0 };
}

// Begins at the batch at `at` or one before it.
static int scan_begin(struct nats_stream *s, uint64_t at, const struct nats_record *last) {
    struct nats_index_pair known = nats_index_find(s->index, at);
    uint64_t from = last->head_sequence;
    if (known.sequence > from)
        from = known.sequence;
    scan_end(s);
    int err = nats_session_follow(s->session, s->name, from);
    s->scan.is_open = !err;
    s->scan.last_part = from ? from - 1 : 0;
    return err;
}

// JetStream reads from any replica, and passes over what that does not have. One that was started
// a moment ago may still lack messages.
static int replica_lacks(const struct nats_stream *s, uint64_t sequence) {
    return error_set(STREAM_UNAVAILABLE,
                     "%s: a replica of stream %s lacks messages up to %" PRIu64 " still",
                     nats_session_place(s->session), s->name, sequence);
}

// Reads the next message.
static int scan_message(struct nats_stream *s, struct nats_record *out, mr_bytes *out_bytes) {
    struct nats_scan *c = &s->scan;
    uint64_t sequence;
    do { // after a change of servers messages may come again
        natsMsg_Destroy(c->message);
        c->message = NULL;
        int err = nats_session_next(s->session, &c->message);
        if (err)
            return err == NATS_NOTHING ? (int)STREAM_UNAVAILABLE : err;
        sequence = nats_message_sequence(c->message);
    } while (sequence <= c->sequence);
    c->sequence = sequence;
    if (!nats_record_get(nats_message_bytes(c->message), out, out_bytes))
        return message_damaged(s, sequence);
    if (out->last_part > c->last_part)
        return replica_lacks(s, out->last_part);
    if (out->kind == NATS_PART)
        c->last_part = sequence;
    return 0;
}

// Whether the part belongs behind those that are there.
static bool part_continues(const struct nats_scan *c, const struct nats_record *r) {
    return r->part == c->parts && c->sequence == c->first_sequence + r->part &&
           r->epoch == c->first.epoch && r->at == c->first.at && r->end == c->first.end &&
           r->part_size == c->first.part_size;
}

// Reads the next whole batch, up to the message with sequence `last`. NATS_NOTHING: there is none.
static int scan_whole_batch(struct nats_stream *s, uint64_t last, struct nats_record *out,
                            mr_bytes *out_bytes) {
    struct nats_scan *c = &s->scan;
    while (c->sequence < last) {
        mr_bytes bytes;
        int err = scan_message(s, out, &bytes);
        if (err)
            return err;
        if (out->kind == NATS_PART && out->part == 0) {
            c->first = *out;
            c->first_sequence = c->sequence;
            c->parts = 0;
            buffer_clear(&c->whole);
        } else if (out->kind != NATS_PART || !part_continues(c, out)) {
            c->parts = UINT32_MAX; // what is there will never be whole
            continue;
        }
        if (nats_record_parts(out) == 1) {
            *out_bytes = bytes;
            return 0;
        }
        err = buffer_append(&c->whole, bytes.data, bytes.size);
        if (err < 0)
            return err;
        if (++c->parts == nats_record_parts(out)) {
            *out_bytes = buffer_bytes(&c->whole);
            return 0;
        }
    }
    return NATS_NOTHING;
}

struct batch_pass {
    uint64_t from, upto, next;
    size_t max_bytes, bytes;
    bool with_bodies;
    stream_each *each;
    void *arg;
};

// Passes batches on until there is no further one, or enough. `out_more`: there may be more.
static int batches_pass(struct nats_stream *s, struct batch_pass *p, uint64_t last,
                        bool *out_more) {
    while (p->bytes < p->max_bytes && p->next < p->upto) {
        struct nats_record r;
        mr_bytes bytes;
        int err = scan_whole_batch(s, last, &r, &bytes);
        if (err || r.at >= p->upto)
            return err == NATS_NOTHING ? 0 : err;
        nats_index_add(s->index, r.at, s->scan.first_sequence);
        if (r.at < p->from)
            continue;
        struct stream_batch b = { .at = r.at,
                                  .end = r.end,
                                  .heads = { bytes.data, r.heads_size },
                                  .bodies = { (const uint8_t *)bytes.data + r.heads_size,
                                              r.bodies_size } };
        if (!p->with_bodies)
            b.bodies = (mr_bytes){ 0 };
        err = p->each(p->arg, &b);
        if (err < 0)
            return err;
        p->next = s->scan.end = r.end;
        p->bytes += b.heads.size + b.bodies.size;
    }
    *out_more = p->next < p->upto;
    return 0;
}

static int nats_stream_read(struct stream *base, uint64_t from, uint64_t upto, size_t max_bytes,
                            bool with_bodies, stream_each *each, void *arg, uint64_t *out_next) {
    struct nats_stream *s = nats_stream_of(base);
    struct batch_pass p = { .from = from,
                            .upto = upto,
                            .next = from,
                            .max_bytes = max_bytes,
                            .with_bodies = with_bodies,
                            .each = each,
                            .arg = arg };
    struct nats_record last;
    uint64_t sequence;
    bool has_more = false;
    int err = last_read(s, &last, &sequence, NULL);
    if (!err && last.head == last.tail) {
        *out_next = from;
        return STREAM_DONE;
    }
    if (!err && (!s->scan.is_open || s->scan.end != from))
        err = scan_begin(s, from, &last);
    if (!err)
        err = batches_pass(s, &p, sequence, &has_more);
    if (err || !has_more)
        scan_end(s);
    if (!err)
        *out_next = p.next;
    return err;
}

// --- parts of batches -------------------------------------------------------------------------

static int position_gone(const struct nats_stream *s, uint64_t at) {
    return error_set(MR_EGONE, "position %" PRIu64 " of shard %u is not in the log any more", at,
                     (unsigned)s->shard);
}

// Fetches the message of a part; it stays until the next one. NATS_NOTHING: it is not there.
static int part_fetch(struct nats_stream *s, uint64_t sequence, struct nats_record *out,
                      mr_bytes *out_bytes) {
    if (!s->kept || s->kept_sequence != sequence) {
        natsMsg_Destroy(s->kept);
        s->kept = NULL;
        int err = nats_session_get(s->session, s->name, sequence, &s->kept);
        if (err)
            return err;
        s->kept_sequence = sequence;
    }
    return nats_record_get(nats_message_bytes(s->kept), out, out_bytes)
               ? 0
               : message_damaged(s, sequence);
}

// Reads from the nearest batch that is known. NATS_NOTHING: there is no batch at the position.
static int batch_search(struct nats_stream *s, uint64_t at, struct nats_record *out,
                        uint64_t *out_sequence) {
    struct nats_record last;
    uint64_t sequence;
    mr_bytes bytes;
    int err = last_read(s, &last, &sequence, NULL);
    if (!err && at < last.head)
        return NATS_NOTHING;
    if (!err)
        err = scan_begin(s, at, &last);
    while (!err) {
        err = scan_whole_batch(s, sequence, out, &bytes);
        if (!err && out->at > at)
            err = NATS_NOTHING;
        if (!err)
            nats_index_add(s->index, out->at, s->scan.first_sequence);
        if (!err && out->end > at)
            break;
    }
    *out_sequence = s->scan.first_sequence;
    scan_end(s);
    return err;
}

static int batch_locate_parts(struct nats_stream *s, uint64_t at, struct nats_record *out,
                              uint64_t *out_sequence) {
    struct nats_index_pair known = nats_index_find(s->index, at);
    mr_bytes bytes;
    if (known.sequence) {
        int err = part_fetch(s, known.sequence, out, &bytes);
        if (err && err != NATS_NOTHING)
            return err;
        *out_sequence = known.sequence;
        if (!err && out->kind == NATS_PART && at < out->end)
            return 0;
    }
    return batch_search(s, at, out, out_sequence);
}

// Appends a range of a batch, heads and then bodies, to `out`.
static int range_fetch(struct nats_stream *s, uint64_t sequence, const struct nats_record *batch,
                       uint64_t from, uint64_t upto, struct buffer *out) {
    int err = 0;
    while (!err && from < upto) {
        struct nats_record r;
        mr_bytes bytes;
        uint64_t part = from / batch->part_size, before = part * batch->part_size;
        err = part_fetch(s, sequence + part, &r, &bytes);
        if (!err && (r.kind != NATS_PART || r.at != batch->at || r.part != part))
            err = message_damaged(s, sequence + part);
        if (err)
            break;
        mr_bytes slice = bytes_slice(bytes, from - before, upto - before);
        err = buffer_append(out, slice.data, slice.size);
        from = before + bytes.size;
    }
    return err;
}

static int nats_stream_get(struct stream *base, uint64_t at, enum stream_part part, size_t offset,
                           size_t size, struct buffer *out) {
    struct nats_stream *s = nats_stream_of(base);
    struct nats_record batch;
    uint64_t sequence;
    int err = nats_stream_ready(s);
    if (!err)
        err = batch_locate_parts(s, at, &batch, &sequence);
    if (!err) {
        bool is_head = part == STREAM_HEADS;
        uint64_t end = is_head ? batch.heads_size : (uint64_t)batch.heads_size + batch.bodies_size;
        uint64_t from = is_head ? offset : batch.heads_size + (at - batch.at) + offset;
        uint64_t upto = from < end && size < end - from ? from + size : end;
        err = range_fetch(s, sequence, &batch, from, upto, out);
    }
    return err == NATS_NOTHING ? position_gone(s, at) : err;
}

// --- trimming ---------------------------------------------------------------------------------

// Finds the first batch that ends behind `upto`.
static int head_find(struct nats_stream *s, uint64_t upto, struct nats_record *state) {
    struct nats_record r = { 0 };
    mr_bytes bytes;
    int err = upto < state->tail ? scan_begin(s, upto ? upto - 1 : 0, state) : NATS_NOTHING;
    do {
        if (!err)
            err = scan_whole_batch(s, s->last, &r, &bytes);
    } while (!err && r.end <= upto);
    state->head = err ? state->tail : r.at;
    state->head_sequence = err ? s->last + 1 : s->scan.first_sequence;
    scan_end(s);
    return err == NATS_NOTHING ? 0 : err;
}

// First says where the log begins, under the fence: so no reader of a later owner begins before it.
// Then removing is safe at any time.
static int nats_stream_trim(struct stream *base, uint64_t epoch, uint64_t upto) {
    struct nats_stream *s = nats_stream_of(base);
    int err = owner_check(s, epoch);
    struct nats_record r = s->state;
    if (!err && upto > r.head)
        err = head_find(s, upto, &r);
    if (!err)
        err = state_write(s, epoch, &r);
    if (!err)
        err = nats_session_purge(s->session, s->name, r.head_sequence);
    if (!err)
        nats_index_trim(s->index, r.head);
    return err;
}

// --- opening ----------------------------------------------------------------------------------

static void nats_stream_interrupt(struct stream *base) {
    nats_session_interrupt(nats_stream_of(base)->session);
}

static void nats_stream_close(struct stream *base) {
    struct nats_stream *s = nats_stream_of(base);
    scan_end(s);
    natsMsg_Destroy(s->kept);
    nats_session_destroy(s->session);
    buffer_finish(&s->message);
    mem_free(s);
}

static const struct stream_impl nats_stream_impl = {
    .claim = nats_stream_claim,
    .append = nats_stream_append,
    .read = nats_stream_read,
    .get = nats_stream_get,
    .trim = nats_stream_trim,
    .beat = nats_stream_beat,
    .look = nats_stream_look,
    .release = nats_stream_release,
    .interrupt = nats_stream_interrupt,
    .close = nats_stream_close,
};

// The index of a shard, which all its streams share; NULL: no memory.
static struct nats_index *store_index(struct nats_store *store, uint32_t shard) {
    pthread_mutex_lock(&store->lock);
    struct shard_index *x = store->indexes;
    while (x && x->shard != shard)
        x = x->next;
    if (!x && (x = mem_alloc(sizeof *x))) {
        nats_index_init(&x->index);
        x->shard = shard;
        x->next = store->indexes;
        store->indexes = x;
    }
    pthread_mutex_unlock(&store->lock);
    return x ? &x->index : NULL;
}

static int nats_stream_start(struct nats_store *store, uint32_t shard, struct nats_stream *s) {
    char purpose[32];
    const char *cluster = store->cluster_name;
    snprintf(purpose, sizeof purpose, "/%u", (unsigned)shard);
    s->base.impl = &nats_stream_impl;
    s->store = store;
    s->shard = shard;
    nats_stream_name(cluster, shard, s->name);
    snprintf(s->log_subject, sizeof s->log_subject, "millrace.%s.%u.log", cluster, (unsigned)shard);
    snprintf(s->state_subject, sizeof s->state_subject, "millrace.%s.%u.state", cluster,
             (unsigned)shard);
    s->claimer = store->claimer;
    s->writes = store->claimer ? monotonic_ns() : 0; // more than an earlier stream has counted
    if (!s->claimer && getrandom(&s->claimer, sizeof s->claimer, 0) != sizeof s->claimer)
        return error_set(MR_EIO, "no random bytes: %s", strerror(errno));
    s->index = store_index(store, shard);
    if (!s->index)
        return error_set(MR_ENOMEM, "out of memory for a stream");
    return nats_session_create(&store->options, purpose, &s->session);
}

static int nats_store_open(struct stream_store *base, uint32_t shard, struct stream **out) {
    struct nats_stream *s = mem_alloc(sizeof *s);
    if (!s)
        return error_set(MR_ENOMEM, "out of memory for a stream");
    int err = nats_stream_start((struct nats_store *)base, shard, s);
    if (err < 0) {
        nats_stream_close(&s->base);
        return err;
    }
    *out = &s->base;
    return 0;
}

static void nats_store_close(struct stream_store *base) {
    struct nats_store *store = (struct nats_store *)base;
    nats_fill_abandon(store);
    while (store->indexes) {
        struct shard_index *x = store->indexes;
        store->indexes = x->next;
        nats_index_finish(&x->index);
        mem_free(x);
    }
    nats_session_destroy(store->session);
    pthread_mutex_destroy(&store->lock);
    mem_free(store->moment);
    mem_free(store);
}

int stream_nats_create(const struct stream_nats_options *o, struct stream_store **out) {
    struct nats_session *tried = NULL; // checks the options
    int err = nats_session_create(o, "", &tried);
    if (err < 0)
        return err;
    nats_session_destroy(tried);
    size_t url_size = strlen(o->url) + 1;
    struct nats_store *store = mem_alloc(sizeof *store + url_size);
    if (!store)
        return error_set(MR_ENOMEM, "out of memory for a store");
    pthread_mutex_init(&store->lock, NULL);
    store->base.open = nats_store_open;
    store->base.commit = nats_fill_commit;
    store->base.close = nats_store_close;
    memcpy(store->url, o->url, url_size);
    snprintf(store->cluster_name, sizeof store->cluster_name, "%s", o->cluster);
    snprintf(store->owner, sizeof store->owner, "%s", o->owner ? o->owner : "");
    store->options = *o;
    store->options.url = store->url;
    store->options.cluster = store->cluster_name;
    store->options.owner = store->owner;
    *out = &store->base;
    return 0;
}
