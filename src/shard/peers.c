// See peers.h. Only notes are queued. All other messages are derived from the numbers in struct
// peer, so a message that could not be made now is made later. A note that was sent is forgotten:
// if it is lost, the facts that the core knows are sent again.
#include "shard/peers.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/record.h"
#include "shard/shard.h"

#include <assert.h>
#include <string.h>

enum {
    PEER_RETRY_MS = 100,   // after a refusal
    PEER_READ_MS = 1000,   // if a body that is being read does not come
    PEER_SILENT_MS = 3000, // without an answer everything is sent again
};

// One other shard.
struct peer {
    // To that shard: numbers of emits.
    uint64_t sent;        // the last one sent
    uint64_t arrived;     // the last one it has accepted
    uint64_t highest;     // that was ever sent, or that a former owner may have sent
    uint64_t retry_at_ms; // engine time of the next try after a refusal; 0: none
    uint64_t reading_at;  // the body that is being read, which allows a try before that; 0: none
    uint64_t emits_ms;    // engine time at which emits were sent or answered last

    // To that shard: notes.
    uint64_t note_sent, note_noted; // numbers of the last one sent; received there
    uint64_t notes_ms;              // as emits_ms
    bool begins, sends_facts;       // BEGIN has to be sent; facts follow from here
    struct fact_cursor facts;

    // From that shard.
    uint64_t epoch; // the highest seen; 0: none
    uint64_t noted; // the last note received
    bool noted_due;
    uint64_t accepted;    // the last number accepted
    uint64_t accepted_at; // must be durable before it is acknowledged
    uint64_t arrived_sent, acked_sent;
    uint64_t ack, ack_at; // the next ACKED, to be sent once `ack_at` is durable; 0: none
    bool refused, missing;
};

struct peer_note {
    struct list of_peers;
    uint32_t to;    // the next shard to send it to
    bool is_answer; // to that shard only, …
    uint64_t at;    // … once this is durable
    struct message message;
};

struct peers {
    struct shard *shard;
    struct core *core;
    uint32_t index, count;
    struct list notes;
    bool dirty;        // answers and facts for other shards may be due
    uint64_t alarm_ms; // engine time of the next look for what was not answered; 0: none
    struct peer peer[];
};

int peers_create(struct shard *shard, uint32_t index, uint32_t count, struct peers **out) {
    struct peers *p = mem_alloc(sizeof *p + count * sizeof p->peer[0]);
    if (!p)
        return MR_ENOMEM;
    p->shard = shard;
    p->index = index;
    p->count = count;
    list_init(&p->notes);
    *out = p;
    return 0;
}

void peers_start(struct peers *p, struct core *core) {
    p->core = core;
}

void peers_open(struct peers *p) {
    for (uint32_t i = 0; i < p->count; i++)
        p->peer[i].highest = core_link_highest(p->core);
}

void peers_destroy(struct peers *p) {
    if (!p)
        return;
    for (struct list *l; (l = list_first(&p->notes)) != NULL;) {
        list_remove(l);
        mem_free(list_entry(l, struct peer_note, of_peers));
    }
    mem_free(p);
}

// ---- Notes ------------------------------------------------------------------------------------

// Something was sent that has to be answered.
static void peers_watch(struct peers *p) {
    if (!p->alarm_ms)
        p->alarm_ms = core_now(p->core) + PEER_SILENT_MS;
}

static int peer_note_add(struct peers *p, const struct message *m) {
    struct peer_note *n = mem_alloc(sizeof *n);
    if (!n)
        return MR_ENOMEM;
    n->message = *m;
    n->to = p->index == 0;
    list_append(&p->notes, &n->of_peers);
    return 0;
}

// A crash must not bring back stages that were gone when their room was promised to another shard.
static int peer_answer_share(struct peers *p, const struct message *m) {
    if (!core_share_left(p->core, m->maker))
        return 0;
    struct peer_note *n = mem_alloc(sizeof *n);
    if (!n)
        return MR_ENOMEM;
    n->message = (struct message){ .kind = MESSAGE_SHARE_LEFT,
                                   .from = p->index,
                                   .maker = m->maker,
                                   .number = core_link_mark(p->core, m->from) };
    n->to = m->from;
    n->is_answer = true;
    n->at = shard_position(p->shard);
    list_append(&p->notes, &n->of_peers);
    return 0;
}

static int peer_note_over(void *owner, mr_bytes stage, bool over, uint64_t high_mark) {
    struct peers *p = owner;
    struct message m = { .kind = MESSAGE_OVER,
                         .from = p->index,
                         .over = over,
                         .high_mark = high_mark,
                         .stage_size = (uint32_t)stage.size };
    memcpy(m.stage, stage.data, stage.size);
    return peer_note_add(p, &m);
}

static int peer_note_edge(void *owner, mr_bytes stage, mr_bytes downstream, uint64_t maker) {
    struct peers *p = owner;
    struct message m = { .kind = MESSAGE_EDGE,
                         .from = p->index,
                         .maker = maker,
                         .stage_size = (uint32_t)stage.size,
                         .downstream_size = (uint32_t)downstream.size };
    memcpy(m.stage, stage.data, stage.size);
    memcpy(m.downstream, downstream.data, downstream.size);
    return peer_note_add(p, &m);
}

static int peer_note_share(void *owner, uint64_t maker) {
    struct peers *p = owner;
    struct message m = { .kind = MESSAGE_SHARE, .from = p->index, .maker = maker };
    return peer_note_add(p, &m);
}

struct core_peers peers_of_core(struct peers *p) {
    return (struct core_peers){
        .over = peer_note_over, .edge = peer_note_edge, .share = peer_note_share, .owner = p
    };
}

static struct peer_note *peer_note_first(struct peers *p) {
    struct list *first = list_first(&p->notes);
    return first ? list_entry(first, struct peer_note, of_peers) : NULL;
}

// A number is the epoch and a counter, as in a lease's serial.
static void note_number(struct peers *p, struct message *out) {
    struct peer *peer = &p->peer[out->to];
    uint64_t none = core_epoch(p->core) << EPOCH_SHIFT;
    if (peer->note_sent < none)
        peer->note_sent = peer->note_noted = none;
    if (peer->note_sent == peer->note_noted)
        peer->notes_ms = core_now(p->core);
    out->number = ++peer->note_sent;
    peers_watch(p);
}

// Sends the oldest note to one shard after another.
static void peer_note_next(struct peers *p, struct message *out) {
    struct peer_note *n = peer_note_first(p);
    struct buffer kept = out->emits;
    *out = n->message;
    out->emits = kept;
    out->to = n->to++;
    out->epoch = core_epoch(p->core);
    if (out->kind == MESSAGE_EDGE || out->kind == MESSAGE_OVER)
        note_number(p, out);
    n->to += n->to == p->index;
    if (n->to < p->count && !n->is_answer)
        return;
    list_remove(&n->of_peers);
    mem_free(n);
}

static void message_set_fact(struct message *m, const struct core_fact *f) {
    m->kind = f->downstream.size ? MESSAGE_EDGE : MESSAGE_OVER;
    m->maker = f->maker;
    m->over = f->over;
    m->high_mark = f->high_mark;
    m->stage_size = (uint32_t)f->stage.size;
    m->downstream_size = (uint32_t)f->downstream.size;
    memcpy(m->stage, f->stage.data, f->stage.size);
    if (f->downstream.size)
        memcpy(m->downstream, f->downstream.data, f->downstream.size);
}

// BEGIN, and then all facts.
static bool peer_fact_next(struct peers *p, uint32_t to, struct message *out) {
    struct peer *peer = &p->peer[to];
    struct core_fact fact;
    if (peer->begins) {
        out->kind = MESSAGE_BEGIN;
        peer->begins = false;
    } else if (peer->sends_facts && core_fact_next(p->core, &peer->facts, &fact)) {
        message_set_fact(out, &fact);
    } else {
        peer->sends_facts = false;
        return false;
    }
    note_number(p, out);
    return true;
}

static int note_apply(struct peers *p, const struct message *m) {
    mr_bytes stage = { m->stage, m->stage_size },
             downstream = { m->downstream, m->downstream_size };
    if (m->kind == MESSAGE_BEGIN)
        core_forget_over(p->core, m->from);
    else if (m->kind == MESSAGE_EDGE)
        return core_learn_edge(p->core, stage, downstream, m->maker);
    else
        return core_learn_over(p->core, stage, m->over, m->high_mark);
    return 0;
}

// A note that is out of order is not accepted: the sender begins again when it misses NOTED.
static int note_receive(struct peers *p, const struct message *m) {
    struct peer *peer = &p->peer[m->from];
    bool accepts =
        m->kind == MESSAGE_BEGIN ? m->number > peer->noted : m->number == peer->noted + 1;
    if (accepts && note_apply(p, m) == MR_ENOMEM)
        return MR_ENOMEM;
    if (accepts)
        peer->noted = m->number;
    p->dirty = peer->noted_due = true;
    return 0;
}

static void note_received(struct peers *p, const struct message *m) {
    struct peer *peer = &p->peer[m->from];
    if (m->number <= peer->note_noted || m->number > peer->note_sent)
        return;
    peer->note_noted = m->number;
    peer->notes_ms = core_now(p->core);
}

// ---- Emits: the sender ------------------------------------------------------------------------

static int emit_pack(struct peers *p, const struct link_entry *e, struct buffer *out) {
    size_t before = out->size, body;
    int err = message_begin_emit(out, e, &body);
    if (err >= 0)
        err = shard_read_own(p->shard, e->at, out);
    if (err < 0) {
        out->size = before;
        return err;
    }
    message_end_emit(out, body);
    return 0;
}

static bool peer_may_send(const struct peers *p, const struct peer *peer) {
    return core_now(p->core) >= peer->retry_at_ms ||
           (peer->reading_at && shard_has_kept(p->shard, peer->reading_at));
}

static bool peer_has_emits(struct peers *p, uint32_t to, struct link_entry *out) {
    const struct peer *peer = &p->peer[to];
    return peer->sent == peer->arrived && peer_may_send(p, peer) &&
           core_link_next(p->core, to, peer->sent, out);
}

// The first emit cannot be sent now: its body is being read, or cannot be read.
static void peer_wait(struct peers *p, uint32_t to, uint64_t at, int err) {
    struct peer *peer = &p->peer[to];
    bool reads = err == MR_EAGAIN;
    peer->retry_at_ms = core_now(p->core) + (reads ? PEER_READ_MS : PEER_RETRY_MS);
    peer->reading_at = reads ? at : 0;
}

// Has the bodies behind this emit read with it.
static void peer_want_next(struct peers *p, uint32_t to, uint64_t number, uint64_t durable) {
    struct link_entry e;
    for (int i = 0; i < MESSAGE_EMITS_MOST && core_link_next(p->core, to, number, &e); i++) {
        if (e.at >= durable)
            return;
        shard_want(p->shard, e.at);
        number = e.number;
    }
}

// If a body cannot be read now, the emit is retried later.
static bool emits_next(struct peers *p, uint32_t to, struct message *out) {
    struct peer *peer = &p->peer[to];
    struct link_entry e;
    struct log_state log;
    if (!peer_has_emits(p, to, &e))
        return false;
    shard_look(p->shard, &log);
    buffer_clear(&out->emits);
    uint32_t count = 0;
    uint64_t last = 0;
    do {
        if ((e.at >= log.durable && !MUTANT(emit_sent_before_durable)) ||
            out->emits.size > MESSAGE_EMITS_BYTES)
            break;
        int err = emit_pack(p, &e, &out->emits);
        if (err == MR_EAGAIN)
            peer_want_next(p, to, e.number, log.durable);
        if (err < 0 && !count)
            peer_wait(p, to, e.at, err);
        if (err < 0)
            break;
        last = e.number;
    } while (++count < MESSAGE_EMITS_MOST && core_link_next(p->core, to, last, &e));
    if (!count)
        return false;
    peer->retry_at_ms = peer->reading_at = 0;
    peer->emits_ms = core_now(p->core);
    peers_watch(p);
    out->kind = MESSAGE_EMITS;
    out->now_ms = core_now(p->core);
    out->number = peer->sent = last;
    if (peer->highest < last)
        peer->highest = last;
    return true;
}

// ---- Emits: the receiver ----------------------------------------------------------------------

static int emit_accept(struct peers *p, const struct message *m, struct reader *emits) {
    struct link_entry e;
    mr_bytes body;
    if (!message_next_emit(emits, &e, &body))
        return MR_EINVAL;
    e.now_ms = m->now_ms;
    return core_link_accept(p->core, m->from, &e, body);
}

// Both answers are sent for each batch, also if all of it was accepted before.
static void emits_accept(struct peers *p, const struct message *m) {
    struct peer *peer = &p->peer[m->from];
    struct reader emits = reader_of(buffer_bytes(&m->emits));
    int err = 0;
    while (err >= 0 && emits.at < emits.size)
        err = emit_accept(p, m, &emits);
    peer->accepted = core_link_mark(p->core, m->from);
    peer->accepted_at = shard_position(p->shard);
    peer->arrived_sent = peer->acked_sent = 0;
    peer->refused = err < 0;
    peer->missing = err == MR_EGAP;
    p->dirty = true;
}

static bool ack_is_due(struct peers *p, struct peer *peer) {
    if (!peer->ack && peer->accepted > peer->acked_sent) {
        peer->ack = peer->accepted;
        peer->ack_at = peer->accepted_at;
    }
    return peer->ack &&
           (shard_is_durable(p->shard, peer->ack_at) || MUTANT(emit_acknowledged_too_early));
}

// The next answer to that shard.
static bool peer_answer_next(struct peers *p, uint32_t to, struct message *out) {
    struct peer *peer = &p->peer[to];
    if (peer->refused || peer->accepted > peer->arrived_sent) {
        out->kind = peer->refused ? MESSAGE_REFUSED : MESSAGE_ARRIVED;
        out->missing = peer->missing;
        out->number = peer->arrived_sent = peer->accepted;
        peer->refused = peer->missing = false;
        return true;
    }
    if (peer->noted_due) {
        out->kind = MESSAGE_NOTED;
        out->number = peer->noted;
        peer->noted_due = false;
        return true;
    }
    if (!ack_is_due(p, peer))
        return false;
    out->kind = MESSAGE_ACKED;
    out->number = peer->acked_sent = peer->ack;
    peer->ack = 0;
    return true;
}

// ---- Messages ---------------------------------------------------------------------------------

static void peer_send_again(struct peers *p, struct peer *peer) {
    peer->sent = peer->arrived = peer->retry_at_ms = peer->reading_at = 0;
    peer->emits_ms = core_now(p->core);
}

static void peer_send_facts_again(struct peers *p, struct peer *peer) {
    peer->facts = (struct fact_cursor){ 0 };
    peer->begins = peer->sends_facts = p->dirty = true;
    peer->notes_ms = core_now(p->core);
}

void peers_reset(struct peers *p, uint32_t other) {
    assert(other < p->count && other != p->index);
    peer_send_again(p, &p->peer[other]);
    peer_send_facts_again(p, &p->peer[other]);
}

// Returns when this peer has to be looked at again; UINT64_MAX: nothing waits for an answer.
static uint64_t peer_check_silence(struct peers *p, uint32_t other) {
    struct peer *peer = &p->peer[other];
    struct link_entry e;
    bool emits = peer->sent && core_link_next(p->core, other, 0, &e);
    bool notes = peer->note_noted < peer->note_sent;
    uint64_t now = core_now(p->core), until = UINT64_MAX;
    if (emits && now >= peer->emits_ms + PEER_SILENT_MS)
        peer_send_again(p, peer);
    if (notes && now >= peer->notes_ms + PEER_SILENT_MS)
        peer_send_facts_again(p, peer);
    if (emits)
        until = peer->emits_ms + PEER_SILENT_MS;
    if (notes && peer->notes_ms + PEER_SILENT_MS < until)
        until = peer->notes_ms + PEER_SILENT_MS;
    return until;
}

static void peers_check_silence(struct peers *p) {
    uint64_t next = UINT64_MAX;
    if (core_now(p->core) < p->alarm_ms)
        return;
    for (uint32_t i = 0; i < p->count; i++) {
        uint64_t until = peer_check_silence(p, i);
        next = until < next ? until : next;
    }
    p->alarm_ms = next == UINT64_MAX ? 0 : next;
}

static bool facts_next(struct peers *p, struct message *out) {
    for (out->to = 0; out->to < p->count; out->to++)
        if (peer_fact_next(p, out->to, out))
            return true;
    return false;
}

bool peers_next(struct peers *p, bool emits, struct message *out) {
    if (p->alarm_ms)
        peers_check_silence(p);
    const struct peer_note *note = peer_note_first(p);
    if (!note && !p->dirty && !(emits && core_links(p->core)))
        return false;
    out->from = p->index;
    out->epoch = core_epoch(p->core);
    if (p->dirty && facts_next(p, out))
        return true;
    if (note && note->is_answer && !shard_is_durable(p->shard, note->at))
        return false;
    if (note) {
        peer_note_next(p, out);
        return true;
    }
    for (out->to = 0; p->dirty && out->to < p->count; out->to++)
        if (peer_answer_next(p, out->to, out))
            return true;
    for (out->to = 0; emits && core_links(p->core) && out->to < p->count; out->to++)
        if (emits_next(p, out->to, out))
            return true;
    return false;
}

// The first message of an owner of that shard. What it does not know is sent again; nothing was
// sent before the first owner that is known.
static void peer_meet(struct peers *p, uint32_t other, uint64_t epoch) {
    struct peer *peer = &p->peer[other];
    bool first = !peer->epoch;
    peer->epoch = epoch;
    peer->noted = epoch << EPOCH_SHIFT;
    if (first || MUTANT(new_owner_not_sent_again))
        return;
    core_forget_over(p->core, other);
    core_link_restarted(p->core, other);
    peers_reset(p, other);
}

// Whether a shard claims to have emits that it was never sent. Without them being kept here, they
// would be lost.
static bool peer_claims_too_much(const struct peers *p, const struct message *m) {
    bool is_claim = m->kind == MESSAGE_ARRIVED || m->kind == MESSAGE_ACKED ||
                    m->kind == MESSAGE_REFUSED || m->kind == MESSAGE_SHARE_LEFT;
    return is_claim && m->number > p->peer[m->from].highest;
}

// ARRIVED of an earlier batch does not end the one that is under way.
static void peer_arrived(struct peers *p, const struct message *m) {
    struct peer *peer = &p->peer[m->from];
    core_link_arrived(p->core, m->from, m->number);
    if (m->number >= peer->sent)
        peer->arrived = peer->sent = m->number;
    peer->emits_ms = core_now(p->core);
}

static void peer_refused(struct peers *p, const struct message *m) {
    struct peer *peer = &p->peer[m->from];
    core_link_arrived(p->core, m->from, m->number);
    peer->sent = peer->arrived = m->missing ? 0 : m->number;
    peer->emits_ms = core_now(p->core);
    peer->retry_at_ms = peer->emits_ms + PEER_RETRY_MS;
}

static int peer_acked(struct peers *p, const struct message *m) {
    struct peer *peer = &p->peer[m->from];
    if (m->number >= peer->sent) // ARRIVED may have been lost
        peer->arrived = peer->sent = m->number;
    peer->emits_ms = core_now(p->core);
    int err = core_link_acked(p->core, m->from, m->number);
    return err == MR_ESTOPPED ? 0 : err;
}

int peers_receive(struct peers *p, const struct message *m) {
    if (m->from >= p->count || m->from == p->index)
        return error_set(MR_EINVAL, "shard %u of %u has no messages of shard %u", p->index,
                         p->count, m->from);
    if ((m->epoch < p->peer[m->from].epoch && !MUTANT(former_owner_believed)) ||
        peer_claims_too_much(p, m))
        return 0;
    if (m->epoch > p->peer[m->from].epoch)
        peer_meet(p, m->from, m->epoch);
    switch (m->kind) {
    case MESSAGE_BEGIN:
    case MESSAGE_EDGE:
    case MESSAGE_OVER:
        return note_receive(p, m);
    case MESSAGE_NOTED:
        note_received(p, m);
        break;
    case MESSAGE_EMITS:
        emits_accept(p, m);
        break;
    case MESSAGE_ARRIVED:
        peer_arrived(p, m);
        break;
    case MESSAGE_ACKED:
        return peer_acked(p, m);
    case MESSAGE_REFUSED:
        peer_refused(p, m);
        break;
    case MESSAGE_SHARE:
        return peer_answer_share(p, m);
    case MESSAGE_SHARE_LEFT:
        core_share_forget(p->core, m->from, m->maker, m->number);
        break;
    case MESSAGE_KINDS:
        break;
    }
    return 0;
}

// Most notes and answers are ready at once.
static bool peer_has_answer(const struct peer *peer) {
    return peer->refused || peer->accepted > peer->arrived_sent || peer->noted_due ||
           peer->begins || peer->sends_facts;
}

// For emits and acknowledgements `out_at` is the earliest position. Only facts overtake a note.
bool peers_want(struct peers *p, uint64_t *out_at) {
    uint64_t at = UINT64_MAX;
    bool left = false;
    if (p->alarm_ms)
        peers_check_silence(p);
    for (uint32_t i = 0; i < p->count && (p->dirty || core_links(p->core)); i++) {
        struct peer *peer = &p->peer[i];
        struct link_entry e;
        bool answer = peer_has_answer(peer);
        bool ack = peer->ack || peer->accepted > peer->acked_sent;
        uint64_t ack_at = peer->ack ? peer->ack_at : peer->accepted_at;
        if (answer)
            at = 0;
        if (ack && ack_at < at)
            at = ack_at;
        left = left || answer || ack;
        if (core_links(p->core) && peer_has_emits(p, i, &e) && e.at < at)
            at = e.at;
    }
    p->dirty = left;
    const struct peer_note *note = peer_note_first(p);
    if (note)
        at = note->is_answer ? note->at : 0;
    *out_at = at;
    return at != UINT64_MAX;
}

uint64_t peers_due_ms(const struct peers *p) {
    uint64_t now = core_now(p->core), until = p->alarm_ms ? p->alarm_ms : UINT64_MAX;
    for (uint32_t i = 0; core_links(p->core) && i < p->count; i++)
        if (p->peer[i].retry_at_ms > now && p->peer[i].retry_at_ms < until)
            until = p->peer[i].retry_at_ms;
    return until;
}
