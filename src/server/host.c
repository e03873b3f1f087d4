// A turn: time moves on, commands run, those that may go on do, the log is flushed; then whatever
// was said is marked with the position it has to wait for.
#include "server/host.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/answer.h"
#include "server/fetch.h"
#include "server/session.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int host_init(struct host *h, const char *store) {
    *h = (struct host){
        .store = store,
        .request_limits = { .arguments = LIMIT_ARGUMENTS,
                            .argument_size = LIMIT_ARGUMENT,
                            .line_size = LIMIT_LINE,
                            .size = LIMIT_REQUEST },
        .stranger_limits = { .arguments = STRANGER_ARGUMENTS,
                             .argument_size = STRANGER_ARGUMENT,
                             .line_size = STRANGER_REQUEST,
                             .size = STRANGER_REQUEST },
    };
    struct list *lists[] = { &h->sessions, &h->touched, &h->held,
                             &h->resuming, &h->ready,   &h->pieces };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        list_init(lists[i]);
    slab_init(&h->seats, sizeof(struct seat), 0);
    h->inbox = mem_alloc(READ_SIZE);
    h->arguments = mem_alloc(LIMIT_ARGUMENTS * sizeof *h->arguments);
    h->grants = mem_alloc(ANSWER_GRANTS * sizeof *h->grants);
    if (h->inbox && h->arguments && h->grants)
        return 0;
    host_finish(h);
    return error_set(MR_ENOMEM, "no memory for a server");
}

void host_load(struct host *h, struct shard *shard) {
    h->shard = shard;
    h->core = shard_core(shard);
    h->started_ms = core_now(h->core);
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        core_join(h->core, &s->conn);
        s->since_ms = h->started_ms;
    }
}

void host_set_auth(struct host *h, struct auth *auth) {
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        const struct auth_entry *before = s->who;
        s->who = before ? auth_same(auth, before) : NULL;
        if (!before || s->who)
            continue;
        s->broken = true;
        session_touch(s);
    }
    auth_destroy(h->auth);
    h->auth = auth;
}

void host_finish(struct host *h) {
    while (!list_empty(&h->sessions)) // an empty list may be all zeros, too
        session_destroy(list_entry(h->sessions.next, struct session, of_host));
    slab_finish(&h->seats);
    heap_finish(&h->waits);
    buffer_finish(&h->scratch);
    while (h->spare_count)
        buffer_finish(&h->spare[--h->spare_count]);
    mem_free(h->inbox);
    mem_free(h->arguments);
    mem_free(h->grants);
    auth_destroy(h->auth);
    *h = (struct host){ 0 };
}

uint64_t host_now_ms(const struct host *h) {
    return h->core ? core_now(h->core) : 0;
}

static uint64_t outside_memory(const struct host *h) {
    struct log_state log;
    shard_look(h->shard, &log);
    return log.memory + h->buffered;
}

uint64_t host_memory(const struct host *h) {
    return h->shard ? core_memory(h->core) + outside_memory(h) : h->buffered;
}

bool host_may_receive(const struct host *h, size_t more) {
    uint64_t most = h->max_bytes / 4 < LIMIT_RECEIVED ? LIMIT_RECEIVED : h->max_bytes / 4;
    return !h->max_bytes || h->buffered + more <= most;
}

void host_lend(struct host *h, struct buffer *out) {
    *out = h->spare_count ? h->spare[--h->spare_count] : (struct buffer){ 0 };
    out->size = 0;
    out->limit = LIMIT_UNSENT;
}

enum { SPARE_SIZE = 1 << 20 }; // larger ones are freed

void host_take_back(struct host *h, struct buffer *b) {
    if (h->spare_count < HOST_SPARE && b->capacity && b->capacity <= SPARE_SIZE)
        h->spare[h->spare_count++] = *b;
    else
        buffer_finish(b);
    *b = (struct buffer){ 0 };
}

// Where there are too many the rest fail when their leases run out.
void host_note_unreadable(struct host *h, const struct grant *g) {
    if (h->unreadable_count == HOST_UNREADABLE)
        return;
    h->unreadable[h->unreadable_count].id = g->id;
    h->unreadable[h->unreadable_count++].token = g->token;
}

static void fail_unreadable(struct host *h) {
    while (h->unreadable_count) {
        h->unreadable_count--;
        (void)core_fail(h->core, h->unreadable[h->unreadable_count].id,
                        &h->unreadable[h->unreadable_count].token,
                        mr_str("its body could not be read from the store"), MR_BACKOFF);
    }
}

// ---- Turns ------------------------------------------------------------------------------------

static struct session *session_at_seat(const struct host *h, uint32_t seat) {
    return SLAB_AT(&h->seats, struct seat, seat)->session;
}

static bool is_planned(const void *host, struct heap_entry e) {
    const struct session *s = session_at_seat(host, e.value);
    return s && s->timer_ms == e.at_ms;
}

// A session has one entry that counts: of twice as many at least half can go when all room is
// taken.
int host_reserve_wait(struct host *h) {
    size_t wanted = 2 * ((size_t)h->seats.used + 1);
    return h->waits.capacity >= wanted ? 0 : heap_reserve(&h->waits, wanted - h->waits.count);
}

// An entry that rings earlier serves as well: the session plans again then.
void host_plan_wait(struct host *h, struct session *s) {
    if (s->wait_until_ms == UINT64_MAX || (s->timer_ms && s->timer_ms <= s->wait_until_ms))
        return;
    s->timer_ms = 0;
    if (h->waits.count == h->waits.capacity)
        heap_filter(&h->waits, is_planned, h);
    s->timer_ms = s->wait_until_ms;
    heap_put(&h->waits, s->timer_ms, s->seat);
}

static void end_waits(struct host *h) {
    while (heap_next(&h->waits) <= host_now_ms(h)) {
        struct heap_entry e = heap_pop(&h->waits);
        if (is_planned(h, e))
            session_timer_rings(session_at_seat(h, e.value));
    }
}

// Nothing more will become durable: whoever waits for something hears so.
static void stop_all(struct host *h) {
    host_durable(h);
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        if (s->blocked)
            session_refuse_stopped(s);
        if (!s->called_later)
            continue;
        s->closing = true; // ends that were not told yet are lost with it: it will ask again
        session_touch(s);
    }
}

void host_begin(struct host *h) {
    if (h->in_turn || !h->shard)
        return;
    h->in_turn = true;
    bool stopped = shard_begin(h->shard) == MR_ESTOPPED; // else the core tries again by itself
    if (stopped && !h->stopped) {
        snprintf(h->why_stopped, sizeof h->why_stopped, "%s", error_text());
        h->stopped = true;
        stop_all(h);
    }
    if (h->watch)
        h->watch(h->watcher);
    if (h->max_bytes && !h->stopped)
        core_tell_memory(h->core, outside_memory(h));
    end_waits(h);
    while (!list_empty(&h->pieces))
        session_run_again(list_entry(h->pieces.next, struct session, of_again));
}

static void resume_all(struct host *h) {
    while (!list_empty(&h->resuming)) {
        struct session *s = list_entry(h->resuming.next, struct session, of_resuming);
        list_remove(&s->of_resuming);
        session_run(s);
    }
}

static void mark_all(struct host *h, uint64_t at) {
    bool durable = h->stopped || shard_is_durable(h->shard, at); // stopped: nothing was written
    while (!list_empty(&h->touched)) {
        struct session *s = list_entry(h->touched.next, struct session, of_touched);
        list_remove(&s->of_touched);
        session_mark(s, at, durable);
    }
}

void host_end(struct host *h) {
    if (!h->shard) { // nothing waits for a log: what was said can be shown
        resume_all(h);
        while (!list_empty(&h->touched)) {
            struct session *s = list_entry(h->touched.next, struct session, of_touched);
            list_remove(&s->of_touched);
            session_mark(s, 0, true);
        }
        return;
    }
    host_begin(h);
    do {
        resume_all(h);
        fail_unreadable(h); // which somebody may have waited for
    } while (!list_empty(&h->resuming));
    bool more;
    if (!h->stopped)
        (void)shard_clean(h->shard, &more); // it is tried again when host_next_ms says
    uint64_t at = shard_end(h->shard);
    h->in_turn = false;
    mark_all(h, at);
}

static void show_held(struct host *h) {
    struct log_state log;
    shard_look(h->shard, &log);
    for (struct list *l = h->held.next; l != &h->held;) {
        struct session *s = list_entry(l, struct session, of_held);
        l = l->next;
        if (log.stopped[0])
            session_show_stopped(s, log.stopped);
        else
            session_show(s, log.durable);
    }
}

void host_durable(struct host *h) {
    if (!h->shard)
        return;
    if (!list_empty(&h->held))
        show_held(h);
    if (!h->stopped && shard_has_stopped(h->shard))
        host_begin(h); // others wait in vain, too; and it is to be told although nobody asks
}

int64_t host_next_ms(struct host *h) {
    if (!h->shard || h->stopped)
        return -1;
    if (!list_empty(&h->pieces))
        return 0;
    int64_t shard_ms = shard_next_ms(h->shard);
    uint64_t now = host_now_ms(h), next = heap_next(&h->waits);
    int64_t wait_ms = next == UINT64_MAX ? -1 : next > now ? (int64_t)(next - now) : 0;
    if (shard_ms < 0 || wait_ms < 0)
        return shard_ms < 0 ? wait_ms : shard_ms;
    return shard_ms < wait_ms ? shard_ms : wait_ms;
}

void host_stop(struct host *h) {
    h->stopping = true;
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        if (s->blocked == BLOCKED_TAKE)
            session_wait_over(s);
    }
}

void host_close(struct host *h) {
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next)
        session_close(list_entry(l, struct session, of_host));
}

uint64_t host_leases(const struct host *h) {
    uint64_t held = 0;
    for (const struct list *l = h->sessions.next; h->core && l != &h->sessions; l = l->next)
        held += core_leases(&list_entry(l, struct session, of_host)->conn);
    return held;
}

// ---- What the core tells ----------------------------------------------------------------------

static bool on_claim(void *owner, struct taker *taker) {
    const struct host *h = owner;
    (void)taker;
    return !h->stopping && !h->stopped;
}

static void on_granted(void *owner, struct taker *taker, const struct grant *grants, size_t count) {
    (void)owner;
    struct session *s = list_entry(taker, struct session, taker);
    if (fetch_grants(s, grants, count))
        session_answered(s);
}

static void on_ended(void *owner, struct caller *caller, const struct outcome *outcome) {
    (void)owner;
    struct session *s = list_entry(caller->conn, struct session, conn);
    if (caller != &s->caller) {
        late_tell(list_entry(caller, struct late, caller), outcome);
        return;
    }
    answer_outcome(s, outcome);
    session_answered(s);
}

static void on_room(void *owner, struct pusher *pusher) {
    (void)owner;
    session_run_again(list_entry(pusher, struct session, pusher));
}

static void on_epic(void *owner, struct watcher *watcher) {
    (void)owner;
    session_run_again(list_entry(watcher, struct session, watcher));
}

static void on_stop(void *owner, struct conn *conn, uint64_t id, const struct token *token,
                    int why) {
    (void)owner, (void)token, (void)why;
    struct session *s = list_entry(conn, struct session, conn);
    if (!s->cancels)
        return; // it hears with its next beat
    reply_push(session_reply(s), 2);
    reply_bulk(&s->reply, mr_str("cancel"));
    reply_id(&s->reply, id);
    session_touch(s);
}

struct core_events host_events(void) {
    return (struct core_events){ .claim = on_claim,
                                 .granted = on_granted,
                                 .ended = on_ended,
                                 .room = on_room,
                                 .epic = on_epic,
                                 .stop = on_stop };
}
