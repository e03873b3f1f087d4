// See node_link.h. Frames are bounded by the largest request; what a frame says is checked before
// it is believed, because a node of another version may have sent it.
#include "server/node_link.h"

#include "base/codec.h"
#include "base/errors.h"
#include "base/mem.h"
#include "server/node_seen.h"
#include "server/remote.h"
#include "shard/message.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRAME_HEAD = 4,
    FRAME_MOST = LIMIT_REQUEST + (8 << 20), // a batch of requests, the last of which may be large
    FRAME_FIELDS = 2048,                    // all but bytes of requests and replies
    LINK_REMOTES = 1 << 20,
    LINK_UNSENT = 512 << 20, // bytes that the other node does not read: then the link ends
    LINK_ROOM = READ_SIZE,
    LINK_PING_MS = 2000,
    LINK_SILENT_MS = 10000, // then the other node cannot be reached
    FRAME_PING = 255,       // kinds of frames without a message
    FRAME_PONG = 254,
};

struct node_link {
    struct front front;
    struct session *session;
    bool is_dialed, is_ready, is_over;
    bool ends_idle;
    uint64_t received_ms, pinged_ms; // when anything was received; 0: not since the last tick
    struct buffer in, out;
    size_t out_sent;
    char why[256]; // what the other node has said against it
    void (*changed)(void *arg, struct node_link *, const char *why);
    void *arg;
    struct list remotes;
    // Those remotes by the lower half of their ids; the upper half tells apart those that had the
    // same place one after another.
    struct remote **slots;
    uint32_t slot_count, generation;
    uint32_t first_free; // no slot before this one is free
};

bool node_place_read(const char *text, struct node_place *out) {
    const char *colon = strrchr(text, ':');
    bool bracket = text[0] == '[';
    size_t size = colon ? (size_t)(colon - text) : 0;
    if (!colon || (bracket && (size < 2 || text[size - 1] != ']')))
        return false;
    size -= bracket ? 2 : 0;
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (size == 0 || size >= NODE_HOST || *end || end == colon + 1 || port == 0 || port > 65535)
        return false;
    *out = (struct node_place){ .port = (uint16_t)port };
    memcpy(out->host, text + bracket, size);
    return true;
}

bool owner_address(const char *owner, char out[NODE_ADDRESS]) {
    struct node_place place;
    size_t size = strcspn(owner, " ");
    out[0] = 0;
    if (!size || size >= NODE_ADDRESS)
        return false;
    snprintf(out, NODE_ADDRESS, "%.*s", (int)size, owner);
    if (node_place_read(out, &place))
        return true;
    out[0] = 0;
    return false;
}

// ---- Remote sessions by id ----------------------------------------------------------------------

static uint32_t remote_slot(uint64_t id) {
    return (uint32_t)id;
}

static int remote_slots_grow(struct node_link *l, uint32_t slot) {
    if (slot < l->slot_count)
        return 0;
    uint32_t count = l->slot_count ? l->slot_count : 64;
    while (count <= slot)
        count *= 2;
    struct remote **slots = mem_resize(l->slots, count * sizeof *slots);
    if (!slots)
        return error_set(MR_ENOMEM, "no memory for a link");
    memset(slots + l->slot_count, 0, (count - l->slot_count) * sizeof *slots);
    l->slots = slots;
    l->slot_count = count;
    return 0;
}

static struct remote *node_link_find(const struct node_link *l, uint64_t id) {
    struct remote *r = remote_slot(id) < l->slot_count ? l->slots[remote_slot(id)] : NULL;
    return r && r->id == id ? r : NULL;
}

static void node_link_fail(struct node_link *l, const char *why) {
    if (l->is_over)
        return;
    l->is_over = true;
    snprintf(l->why, sizeof l->why, "%s", why);
    session_offer(l->session);
}

static uint32_t remote_slot_free(struct node_link *l) {
    uint32_t slot = l->first_free;
    while (slot < l->slot_count && l->slots[slot])
        slot++;
    l->first_free = slot;
    return slot;
}

static int node_link_put(struct node_link *l, struct remote *r, uint64_t id) {
    int err = remote_slots_grow(l, remote_slot(id));
    if (err < 0)
        return err;
    r->id = id;
    l->slots[remote_slot(id)] = r;
    list_append(&l->remotes, &r->of_link);
    return 0;
}

void node_link_add(struct node_link *l, struct remote *r) {
    r->link = l;
    uint64_t id = (uint64_t)++l->generation << 32 | remote_slot_free(l);
    if (node_link_put(l, r, id) == 0)
        return;
    list_append(&l->remotes, &r->of_link); // so that it is lost with the link
    node_link_fail(l, "there is no memory for it");
}

void node_link_remove(struct node_link *l, struct remote *r) {
    uint32_t slot = remote_slot(r->id);
    if (node_link_find(l, r->id) == r) {
        l->slots[slot] = NULL;
        l->first_free = slot < l->first_free ? slot : l->first_free;
    }
    list_remove(&r->of_link);
    r->link = r->from = NULL;
    if (l->ends_idle && list_empty(&l->remotes))
        node_link_fail(l, "");
}

// ---- Writing ------------------------------------------------------------------------------------

static void frame_put_text(struct writer *w, const char *text) {
    put_bytes(w, mr_str(text));
}

static void frame_write_identity(struct writer *w, const struct loop_message *m) {
    const struct identity *i = m->identity;
    put_u32(w, m->remote->shard_loop);
    put_u8(w, m->count != 0);
    put_u64(w, i->id);
    put_u8(w, (uint8_t)(i->resp3 | i->cancels << 1 | i->input_ended << 2));
    put_u32(w, i->level);
    frame_put_text(w, i->stages);
    frame_put_text(w, i->name);
    frame_put_text(w, i->token);
    frame_put_text(w, i->address);
}

static void frame_write_holds(struct writer *w, const struct holds *h) {
    put_number(w, h->count);
    put_u8(w, h->over);
    for (uint32_t i = 0; i < h->count; i++) {
        put_u64(w, h->list[i].source);
        put_u64(w, h->list[i].need);
        put_u64(w, h->list[i].until);
    }
}

static void frame_write_work(struct writer *w, const struct remote_work *work) {
    put_number(w, work->leases);
    put_number(w, work->async_calls);
    put_number(w, work->taken);
    put_number(w, work->ended);
    put_u8(w, work->holds);
}

static void frame_write_fields(struct writer *w, const struct loop_message *m) {
    if (m->kind == LOOP_IDENTITY)
        frame_write_identity(w, m);
    if (m->kind == LOOP_HOLDS)
        frame_write_holds(w, m->holds);
    if (m->kind == LOOP_REPLIES)
        frame_write_work(w, &m->work);
    if (m->kind == LOOP_REPLIES || m->kind == LOOP_SENT || m->kind == LOOP_RETURN ||
        m->kind == LOOP_CLOSED)
        put_number(w, m->count);
}

static int frame_append(struct node_link *l, uint64_t id, const struct loop_message *m) {
    uint8_t fields[FRAME_HEAD + FRAME_FIELDS];
    struct writer w = { .data = fields, .capacity = sizeof fields };
    put_u32(&w, 0); // the size, known later
    put_u8(&w, (uint8_t)m->kind);
    put_u64(&w, id);
    frame_write_fields(&w, m);
    assert(!w.overflow);
    size_t before = l->out.size;
    int err = buffer_append(&l->out, fields, w.size);
    if (err == 0 && m->kind == LOOP_SHARD_MESSAGE)
        err = message_write(m->message, &l->out);
    if (err == 0 && m->bytes.size)
        err = buffer_append(&l->out, m->bytes.data, m->bytes.size);
    if (err < 0) {
        l->out.size = before;
        return err;
    }
    struct writer head = { .data = l->out.data + before, .capacity = FRAME_HEAD };
    put_u32(&head, (uint32_t)(l->out.size - before - FRAME_HEAD));
    return 0;
}

void node_link_send(struct node_link *l, uint64_t id, const struct loop_message *m) {
    if (l->is_over)
        return;
    l->out_sent = buffer_compact(&l->out, l->out_sent);
    if (frame_append(l, id, m) < 0)
        node_link_fail(l, "there is no memory for it");
    else if (l->out.size - l->out_sent > LINK_UNSENT)
        node_link_fail(l, "the other node does not read what it is sent");
    session_offer(l->session);
}

// ---- Reading ------------------------------------------------------------------------------------

static bool frame_get_text(struct reader *r, char *to, size_t room) {
    mr_bytes text = get_bytes(r);
    if (r->bad || text.size >= room || memchr(text.data, 0, text.size))
        return false;
    memset(to, 0, room);
    memcpy(to, text.data, text.size);
    return true;
}

static bool frame_read_identity(struct reader *r, struct loop_message *m) {
    struct identity *i = m->identity = mem_alloc(sizeof *i);
    if (!i)
        return false;
    m->loop = get_u32(r);
    m->count = get_u8(r);
    i->id = get_u64(r);
    uint8_t flags = get_u8(r);
    i->resp3 = flags & 1;
    i->cancels = flags >> 1 & 1;
    i->input_ended = flags >> 2 & 1;
    i->level = get_u32(r);
    return frame_get_text(r, i->stages, sizeof i->stages) &&
           frame_get_text(r, i->name, sizeof i->name) &&
           frame_get_text(r, i->token, sizeof i->token) &&
           frame_get_text(r, i->address, sizeof i->address);
}

static bool frame_read_holds(struct reader *r, struct loop_message *m) {
    struct holds *h = m->holds = mem_alloc(sizeof *h);
    uint64_t count = get_number(r);
    if (!h || count > HOLDS_MOST)
        return false;
    h->count = (uint32_t)count;
    h->over = get_u8(r);
    for (uint32_t i = 0; i < h->count; i++)
        h->list[i] = (struct hold){ get_u64(r), get_u64(r), get_u64(r) };
    return true;
}

static void frame_read_work(struct reader *r, struct remote_work *to) {
    to->leases = get_number(r);
    to->async_calls = get_number(r);
    to->taken = get_number(r);
    to->ended = get_number(r);
    to->holds = get_u8(r);
}

static bool frame_read_rest(struct reader *r, struct loop_message *m) {
    mr_bytes rest = get_raw(r, r->size - r->at);
    if (m->kind != LOOP_SHARD_MESSAGE)
        return rest.size == 0 || buffer_append(&m->bytes, rest.data, rest.size) == 0;
    m->message = mem_alloc(sizeof *m->message);
    return m->message && message_read(rest, m->message) == 0;
}

static bool frame_read_fields(struct reader *r, struct loop_message *m) {
    if (m->kind == LOOP_IDENTITY && !frame_read_identity(r, m))
        return false;
    if (m->kind == LOOP_HOLDS && !frame_read_holds(r, m))
        return false;
    if (m->kind == LOOP_REPLIES)
        frame_read_work(r, &m->work);
    if (m->kind == LOOP_REPLIES || m->kind == LOOP_SENT || m->kind == LOOP_RETURN ||
        m->kind == LOOP_CLOSED)
        m->count = get_number(r);
    return !r->bad && frame_read_rest(r, m);
}

// ---- Messages for the sessions of this node -----------------------------------------------------

static struct loops *loops_of_link(const struct node_link *l) {
    return l->session->host->loops;
}

static bool place_is_here(const struct loops *loops, uint32_t loop) {
    return loop < loops->count &&
           (loops->places[loop].at == PLACE_HERE || loops->places[loop].at == PLACE_LEAVING);
}

// The shard is not here, or leaves: the other node finds out where it is.
static void node_link_answer_moved(struct node_link *l, uint64_t id) {
    struct loop_message moved = { .kind = LOOP_MOVED };
    node_link_send(l, id, &moved);
}

// True: the session is being made.
static bool node_link_make_remote(struct node_link *l, uint64_t id, struct loop_message *m) {
    struct loops *loops = loops_of_link(l);
    if (!place_is_here(loops, m->loop) || loops->places[m->loop].at == PLACE_LEAVING) {
        node_link_answer_moved(l, id);
        return false;
    }
    struct remote *r = remote_create(loops, 0, m->loop);
    if (!r || node_link_put(l, r, id) < 0) {
        if (r)
            remote_free(r);
        node_link_fail(l, "there is no memory for it");
        return false;
    }
    r->from = l;
    m->remote = r;
    return true;
}

// Returns whether the message was passed on.
static bool frame_receive_identity(struct node_link *l, uint64_t id, struct loop_message *m) {
    m->remote = node_link_find(l, id);
    uint32_t slot = remote_slot(id);
    bool is_taken = slot < l->slot_count && l->slots[slot];
    if (m->count && (is_taken || slot == 0 || slot >= LINK_REMOTES)) {
        node_link_fail(l, "it names a session twice");
        return false;
    }
    if (m->count ? !node_link_make_remote(l, id, m) : !m->remote)
        return false;
    loop_send(loops_of_link(l), m->remote->shard_loop, m);
    return true;
}

void node_link_end_remote(struct node_link *l, struct remote *r) {
    struct loop_message *end = r->end;
    r->end = NULL;
    node_link_remove(l, r);
    loop_send(loops_of_link(l), r->shard_loop, end);
}

static bool node_link_receive_shard(struct node_link *l, struct loop_message *m) {
    struct loops *loops = loops_of_link(l);
    uint32_t shards = loops->count - 1;
    if (m->message->to >= shards || m->message->from >= shards) {
        node_link_fail(l, "a message names a shard that there is not");
        return false;
    }
    uint32_t loop = loop_of_shard(loops, shards, m->message->to);
    if (!place_is_here(loops, loop))
        return false; // it is sent again to where the shard is
    loop_send(loops, loop, m);
    return true;
}

// Returns whether the message was passed on.
static bool frame_receive_for_here(struct node_link *l, uint64_t id, struct loop_message *m) {
    if (m->kind == LOOP_SHARD_MESSAGE)
        return node_link_receive_shard(l, m);
    if (m->kind == LOOP_IDENTITY)
        return frame_receive_identity(l, id, m);
    m->remote = node_link_find(l, id);
    if (m->kind >= LOOP_REPLIES || !m->remote)
        return false; // its session has ended meanwhile
    if (m->kind == LOOP_END) {
        node_link_end_remote(l, m->remote);
        return false;
    }
    loop_send(loops_of_link(l), m->remote->shard_loop, m);
    return true;
}

// ---- Frames -------------------------------------------------------------------------------------

// Ids of remote sessions have a place; one without names a loop.
static void node_link_receive_free(struct node_link *l, uint64_t loop) {
    struct loops *loops = loops_of_link(l);
    if (loop > 0 && loop < loops->count)
        loops->on_moved(loops->arg, (uint32_t)loop, true);
}

static bool frame_receive_message(struct node_link *l, uint64_t id, struct loop_message *m) {
    if (!l->is_dialed)
        return frame_receive_for_here(l, id, m);
    if (m->kind == LOOP_MOVED && remote_slot(id) == 0) {
        node_link_receive_free(l, id >> 32);
        return false;
    }
    m->remote = node_link_find(l, id);
    bool known =
        m->remote && (m->kind == LOOP_REPLIES || m->kind == LOOP_CLOSED || m->kind == LOOP_MOVED);
    if (known)
        router_handle(l->session->host, m);
    return false;
}

static void frame_send_kind(struct node_link *l, uint8_t kind) {
    uint8_t frame[FRAME_HEAD + 1];
    struct writer w = { .data = frame, .capacity = sizeof frame };
    put_u32(&w, 1);
    put_u8(&w, kind);
    l->out_sent = buffer_compact(&l->out, l->out_sent);
    if (buffer_append(&l->out, frame, sizeof frame) < 0)
        node_link_fail(l, "there is no memory for it");
    session_offer(l->session);
}

static void frame_receive(struct node_link *l, mr_bytes frame) {
    struct reader r = reader_of(frame);
    uint8_t kind = get_u8(&r);
    if (kind == FRAME_PING)
        frame_send_kind(l, FRAME_PONG);
    if (kind == FRAME_PING || kind == FRAME_PONG)
        return;
    uint64_t id = get_u64(&r);
    struct loop_message *m = kind < LOOP_RUN ? loop_message_create(kind, NULL) : NULL;
    if (!m || r.bad || !frame_read_fields(&r, m)) {
        loop_message_free(m);
        node_link_fail(l, "it has sent what is no message");
        return;
    }
    if (!frame_receive_message(l, id, m))
        loop_message_free(m);
}

// The reply to LINK. Returns how many bytes it has; 0: it is incomplete.
static size_t node_link_receive_reply(struct node_link *l, const char *data, size_t size) {
    const char *end = memchr(data, '\n', size);
    if (!end && size > sizeof l->why)
        node_link_fail(l, "it is no node");
    if (!end)
        return 0;
    if (*data == '+') {
        l->is_ready = true;
        if (l->changed)
            l->changed(l->arg, l, NULL);
    } else {
        char text[sizeof l->why];
        snprintf(text, sizeof text, "%.*s", (int)(end - data - (end > data && end[-1] == '\r')),
                 data);
        node_link_fail(l, text);
    }
    return (size_t)(end - data) + 1;
}

// Returns how many bytes it has; 0: it is incomplete.
static size_t frame_receive_next(struct node_link *l, const uint8_t *data, size_t size) {
    if (l->is_dialed && !l->is_ready)
        return node_link_receive_reply(l, (const char *)data, size);
    struct reader r = reader_of((mr_bytes){ data, size });
    uint32_t frame = get_u32(&r);
    if (r.bad)
        return 0;
    if (frame > FRAME_MOST)
        node_link_fail(l, "it has sent too large a message");
    if (l->is_over || size - FRAME_HEAD < frame)
        return 0;
    frame_receive(l, (mr_bytes){ data + FRAME_HEAD, frame });
    return FRAME_HEAD + frame;
}

// ---- The front ----------------------------------------------------------------------------------

static struct node_link *node_link_of(struct front *f) {
    return (struct node_link *)f;
}

static uint8_t *node_link_room(struct front *f, size_t *out_size) {
    struct node_link *l = node_link_of(f);
    if (l->is_over)
        return NULL;
    if (buffer_reserve(&l->in, LINK_ROOM) < 0) {
        node_link_fail(l, "there is no memory for it");
        return NULL;
    }
    *out_size = l->in.capacity - l->in.size;
    return l->in.data + l->in.size;
}

static void node_link_receive(struct front *f, size_t size) {
    struct node_link *l = node_link_of(f);
    l->received_ms = 0;
    l->in.size += size;
    size_t at = 0, used;
    while (at < l->in.size && !l->is_over &&
           (used = frame_receive_next(l, l->in.data + at, l->in.size - at)) > 0)
        at += used;
    if (at == l->in.size) {
        buffer_finish(&l->in); // an idle link holds no buffer
        return;
    }
    l->in.size -= at;
    memmove(l->in.data, l->in.data + at, l->in.size);
}

static mr_bytes node_link_ready(struct front *f) {
    const struct node_link *l = node_link_of(f);
    return (mr_bytes){ l->out.data ? l->out.data + l->out_sent : NULL, l->out.size - l->out_sent };
}

static void node_link_sent(struct front *f, size_t size) {
    struct node_link *l = node_link_of(f);
    l->out_sent += size;
    if (l->out_sent < l->out.size)
        return;
    buffer_finish(&l->out);
    l->out_sent = 0;
}

// A node sends nothing before it has the reply to LINK: what arrived with it went to the session.
static bool node_link_was_hasty(const struct session *s) {
    return s->in.size || session_unsent(s);
}

// When the server stops, it ends with the last session on it: replies may be under way.
static bool node_link_is_over(const struct front *f) {
    const struct node_link *l = (const struct node_link *)f;
    return l->is_over || l->session->input_ended || node_link_was_hasty(l->session);
}

// The watcher first learns that the link cannot be used any more.
static void node_link_close(struct front *f) {
    struct node_link *l = node_link_of(f);
    l->is_over = true;
    l->is_ready = false;
    if (l->changed)
        l->changed(l->arg, l, l->why[0] ? l->why : NULL);
    for (struct list *at; (at = list_first(&l->remotes)) != NULL;) {
        struct remote *r = list_entry(at, struct remote, of_link);
        if (l->is_dialed)
            router_lost_link(r);
        else
            node_link_end_remote(l, r);
    }
    l->session->front = NULL;
    buffer_finish(&l->in);
    buffer_finish(&l->out);
    mem_free(l->slots);
    mem_free(l);
}

static const struct front_impl node_link_impl = { .close = node_link_close,
                                                  .room = node_link_room,
                                                  .receive = node_link_receive,
                                                  .ready = node_link_ready,
                                                  .sent = node_link_sent,
                                                  .is_over = node_link_is_over };

// ---- Life ---------------------------------------------------------------------------------------

static int node_link_write_hello(struct node_link *l, const struct node_link_hello *h) {
    char shards[12], version[12];
    snprintf(shards, sizeof shards, "%u", h->shards);
    snprintf(version, sizeof version, "%d", LINK_VERSION);
    const mr_bytes words[] = { mr_str("LINK"),     mr_str(h->secret), mr_str(version),
                               mr_str(h->cluster), mr_str(shards),    mr_str(h->node) };
    return request_write(&l->out, words, sizeof words / sizeof *words);
}

int node_link_create(struct session *s, const struct node_link_hello *hello,
                     struct node_link **out) {
    struct node_link *l = mem_alloc(sizeof *l);
    if (!l)
        return error_set(MR_ENOMEM, "no memory for a link");
    l->front.impl = &node_link_impl;
    l->session = s;
    l->is_dialed = hello != NULL;
    l->is_ready = !hello;
    l->first_free = 1; // an id is never 0
    list_init(&l->remotes);
    int err = hello ? node_link_write_hello(l, hello) : buffer_append(&l->out, "+OK\r\n", 5);
    if (err < 0) {
        buffer_finish(&l->out);
        mem_free(l);
        return err;
    }
    s->front = &l->front;
    s->is_link = true;
    *out = l;
    return 0;
}

void node_link_watch(struct node_link *l,
                     void (*changed)(void *arg, struct node_link *, const char *why), void *arg) {
    l->changed = changed;
    l->arg = arg;
}

bool node_link_is_ready(const struct node_link *l) {
    return l && l->is_ready && !l->is_over;
}

bool session_serves_node(const struct session *s) {
    return s->is_link && s->front && !((const struct node_link *)s->front)->is_dialed;
}

void node_link_send_free(struct session *s, uint32_t loop) {
    struct loop_message free = { .kind = LOOP_MOVED };
    node_link_send(node_link_of(s->front), (uint64_t)loop << 32, &free);
}

// The other node may still have the shard, or have it again: sessions there must not keep leases
// that no connection knows of.
void node_link_reset(struct node_link *l, uint32_t loop) {
    const struct loop_message end = { .kind = LOOP_END };
    for (struct list *at = l->remotes.next, *next; at != &l->remotes; at = next) {
        struct remote *r = list_entry(at, struct remote, of_link);
        next = at->next;
        if (r->shard_loop != loop)
            continue;
        node_link_send(l, r->id, &end);
        router_lost_link(r);
    }
}

void node_link_tick(struct session *s, uint64_t now_ms) {
    struct node_link *l = s->is_link ? (struct node_link *)s->front : NULL;
    if (!l || !l->is_ready || l->is_over)
        return;
    if (!l->received_ms)
        l->received_ms = now_ms;
    if (now_ms - l->received_ms >= LINK_SILENT_MS) {
        node_link_fail(l, "nothing was received from it for 10 s");
    } else if (l->is_dialed && now_ms - l->pinged_ms >= LINK_PING_MS) {
        l->pinged_ms = now_ms;
        frame_send_kind(l, FRAME_PING);
    }
}

void node_link_end_idle(struct session *s) {
    struct node_link *l = s->is_link ? (struct node_link *)s->front : NULL;
    if (!l)
        return;
    l->ends_idle = true;
    if (list_empty(&l->remotes))
        node_link_fail(l, "");
}

void node_link_end(struct node_link *l) {
    node_link_fail(l, "this node needs it no longer");
}
