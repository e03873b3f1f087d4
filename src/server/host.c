// A turn: the time advances, commands run, waiting ones continue if they can, the logs are flushed;
// then new replies are marked with the turn, and are released when it is durable.
#include "server/host.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/command.h"
#include "server/fetch.h"
#include "server/router.h"
#include "server/session.h"
#include "server/shards.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

// Tables of the program.
static void prepare_tables(void) {
    commands_prepare();
    tokens_prepare();
}

int host_init(struct host *h, const char *store) {
    static pthread_once_t once = PTHREAD_ONCE_INIT; // other loops may run already
    (void)pthread_once(&once, prepare_tables);      // it cannot fail
    *h = (struct host){
        .store = store,
        .request_limits = { .arguments = LIMIT_ARGUMENTS,
                            .argument_size = LIMIT_ARGUMENT,
                            .line_size = LIMIT_LINE,
                            .size = LIMIT_REQUEST },
        .unauthenticated_limits = { .arguments = UNAUTHENTICATED_ARGUMENTS,
                                    .argument_size = UNAUTHENTICATED_ARGUMENT,
                                    .line_size = UNAUTHENTICATED_REQUEST,
                                    .size = UNAUTHENTICATED_REQUEST },
        .busy_steps = UINT64_MAX,
    };
    struct list *lists[] = { &h->outgoing, &h->parked, &h->sessions, &h->touched, &h->held,
                             &h->resuming, &h->ready,  &h->backlog,  &h->leaving };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        list_init(lists[i]);
    workers_init(&h->workers);
    levels_init(&h->levels);
    backup_init(&h->own_backup);
    h->backup = &h->own_backup;
    usage_init(&h->own_usage);
    h->usage = &h->own_usage;
    slab_init(&h->slots, sizeof(struct session_slot), 0);
    h->inbox = mem_alloc(READ_SIZE);
    h->arguments = mem_alloc(LIMIT_ARGUMENTS * sizeof *h->arguments);
    h->grants = mem_alloc(ANSWER_GRANTS * sizeof *h->grants);
    if (h->inbox && h->arguments && h->grants)
        return 0;
    host_finish(h);
    return error_set(MR_ENOMEM, "no memory for a server");
}

int host_load(struct host *h, struct group *group) {
    uint32_t shards = group_count(group);
    if (h->loops && !h->loops->is_cluster)
        h->parts = h->loops->hosts[0]->parts;
    h->first = loop_first_shard(h->loops, shards, h->loop);
    h->end = loop_first_shard(h->loops, shards, h->loop + 1);
    for (uint32_t i = h->first; i < h->end; i++) {
        h->parts[i].shard = group_shard(group, i);
        h->parts[i].core = shard_core(h->parts[i].shard);
    }
    for (uint32_t i = 0; h->loops && !h->loops->is_cluster && i < shards; i++)
        h->foreign_ids = h->foreign_ids || core_has_foreign_ids(shard_core(group_shard(group, i)));
    h->group = group;
    h->shards = shards;
    h->started_ms = host_now_ms(h);
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        s->since_ms = h->started_ms;
        if (session_join(s) == 0)
            continue;
        s->broken = true;
        session_touch(s);
    }
    return 0;
}

void host_load_none(struct host *h, uint32_t shards) {
    h->shards = shards;
    h->started_ms = h->clock_ms = h->clock();
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

static void finish_leaving(struct host *h) {
    while (!list_empty(&h->leaving))
        (void)session_leave_on(list_entry(h->leaving.next, struct session, of_host), INT64_MAX);
}

void host_detach(struct host *h) {
    while (!list_empty(&h->sessions)) // an empty list may be all zeros, too
        session_destroy(list_entry(h->sessions.next, struct session, of_host));
    finish_leaving(h);
    for (uint32_t i = h->first; i < h->end; i++) {
        message_finish(&h->parts[i].message);
        core_end_quotas(h->parts[i].core);
    }
    h->group = NULL;
    h->shards = h->first = h->end = 0;
}

void host_finish(struct host *h) {
    host_detach(h);
    workers_finish(&h->workers);
    levels_finish(&h->levels);
    slab_finish(&h->slots);
    heap_finish(&h->waits);
    buffer_finish(&h->scratch);
    buffer_finish(&h->wanted);
    while (h->free_buffer_count)
        buffer_finish(&h->free_buffers[--h->free_buffer_count]);
    mem_free(h->inbox);
    mem_free(h->arguments);
    mem_free(h->grants);
    if (h->loop == 0 || h->owns_parts)
        mem_free(h->parts);
    auth_destroy(h->auth);
    backup_finish(&h->own_backup);
    usage_finish(&h->own_usage);
    *h = (struct host){ 0 };
}

// All shards have one time, and begin every turn.
uint64_t host_now_ms(const struct host *h) {
    if (h->first == h->end)
        return h->clock_ms;
    return h->shards ? core_now(h->parts[h->first].core) : 0;
}

void host_look(const struct host *h, struct log_state *out) {
    *out = (struct log_state){ 0 };
    if (h->loops && h->loops->look && !h->loop)
        h->loops->look(h->loops->arg, out);
    for (uint32_t i = h->first; i < h->end; i++) {
        struct log_state log;
        shard_look(h->parts[i].shard, &log);
        out->bytes += log.bytes;
        out->memory += log.memory;
        out->full = out->full || log.full;
        if (!out->stopped[0])
            memcpy(out->stopped, log.stopped, sizeof out->stopped);
        out->epoch = log.epoch > out->epoch ? log.epoch : out->epoch;
        if (!log.outage[0] || (out->outage[0] && out->waiting_since_ms <= log.waiting_since_ms))
            continue;
        memcpy(out->outage, log.outage, sizeof out->outage);
        out->waiting_since_ms = log.waiting_since_ms;
    }
}

static uint64_t outside_memory(const struct host *h) {
    struct log_state log;
    host_look(h, &log);
    return log.memory;
}

uint64_t host_memory(const struct host *h) {
    return shards_memory(h) + outside_memory(h);
}

// The reply to a TAKE is in two loops for a moment, that of the shard and that of the connection,
// in buffers of up to twice its size: one client alone must not exceed the limit.
uint64_t host_client_limit(const struct host *h) {
    uint64_t all = h->max_bytes / 4, least = (uint64_t)LIMIT_CLIENT_LEAST * (h->loops ? 2 : 1);
    if (all < least)
        all = least;
    if (!h->max_bytes)
        all = LIMIT_CLIENT_BYTES;
    if (h->max_client_bytes)
        all = h->max_client_bytes;
    return all;
}

bool host_clients_exceed(const struct host *h) {
    if (!h->buffered) // the usual case costs nothing
        return false;
    uint64_t limit = host_client_limit(h);
    if (!h->loops)
        return h->buffered > limit;
    return h->buffered > limit / h->loops->count && router_client_bytes(h) > limit;
}

// How much the clients of a token hold; those without a token count together.
struct token_bytes {
    const struct auth_entry *who;
    uint64_t bytes;
};

struct token_sums {
    struct map by_token;
    struct token_bytes *all; // number 0 is not used
    uint32_t count;
};

static bool is_sum_of(const void *sums, uint32_t number, const void *who) {
    return ((const struct token_sums *)sums)->all[number].who == who;
}

static struct token_bytes *sum_of(struct token_sums *t, const struct auth_entry *who) {
    uint32_t hash = (uint32_t)bytes_hash((mr_bytes){ &who, sizeof who }, 0);
    uint32_t number = map_find(&t->by_token, hash, is_sum_of, t, who);
    if (!number) {
        number = ++t->count;
        t->all[number].who = who;
        map_put(&t->by_token, hash, number);
    }
    return &t->all[number];
}

// The token whose clients hold the most: no client is closed for what other tokens hold. MR_ENOMEM.
static int find_largest_token(const struct host *h, const struct auth_entry **out) {
    struct token_sums t = { .all = mem_alloc((h->slots.used + 1) * sizeof *t.all) };
    int err = t.all ? map_reserve(&t.by_token, h->slots.used) : MR_ENOMEM;
    uint64_t most = 0;
    for (const struct list *l = h->sessions.next; err == 0 && l != &h->sessions; l = l->next) {
        const struct session *s = list_entry(l, struct session, of_host);
        struct token_bytes *sum = sum_of(&t, s->who);
        sum->bytes += session_held(s);
        if (sum->bytes <= most)
            continue;
        most = sum->bytes;
        *out = sum->who;
    }
    map_finish(&t.by_token);
    mem_free(t.all);
    return err;
}

// Without memory to tell tokens apart, those that hold the most are closed, whatever their token.
// Of two with equally much the older one is first.
size_t host_largest_clients(struct host *h, struct session *out[LARGEST_CLIENTS]) {
    const struct auth_entry *who = NULL;
    bool any = find_largest_token(h, &who) < 0;
    size_t count = 0;
    for (const struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        bool is_full = count == LARGEST_CLIENTS;
        size_t held = any || s->who == who ? session_held(s) : 0;
        if (!held || (is_full && held <= session_held(out[count - 1])))
            continue;
        size_t at = is_full ? count - 1 : count++;
        for (; at && held > session_held(out[at - 1]); at--)
            out[at] = out[at - 1];
        out[at] = s;
    }
    h->steps += 2 * h->slots.used / STEP_SESSIONS;
    return count;
}

void host_buffer_take(struct host *h, struct buffer *out) {
    *out = h->free_buffer_count ? h->free_buffers[--h->free_buffer_count] : (struct buffer){ 0 };
    out->size = 0;
    out->limit = LIMIT_UNSENT;
}

enum { FREE_BUFFER_SIZE = 1 << 20 }; // larger ones are freed

void host_buffer_return(struct host *h, struct buffer *b) {
    if (h->free_buffer_count < HOST_FREE_BUFFERS && b->capacity && b->capacity <= FREE_BUFFER_SIZE)
        h->free_buffers[h->free_buffer_count++] = *b;
    else
        buffer_finish(b);
    *b = (struct buffer){ 0 };
}

// If there are too many, the others fail when their leases end.
void host_note_unreadable(struct host *h, const struct grant *g, int why) {
    if (h->unreadable_count == HOST_UNREADABLE)
        return;
    h->unreadable[h->unreadable_count].id = g->id;
    h->unreadable[h->unreadable_count].shard = g->shard;
    h->unreadable[h->unreadable_count].why = why;
    h->unreadable[h->unreadable_count++].token = g->token;
}

static void fail_unreadable(struct host *h) {
    while (h->unreadable_count) {
        uint32_t i = --h->unreadable_count;
        (void)core_unreadable(
            h->parts[h->unreadable[i].shard].core, h->unreadable[i].id, &h->unreadable[i].token,
            mr_str("its body could not be read from the store"), h->unreadable[i].why);
    }
}

// ---- Turns ------------------------------------------------------------------------------------

static struct session *session_at_slot(const struct host *h, uint32_t slot) {
    return SLAB_AT(&h->slots, struct session_slot, slot)->session;
}

static bool is_planned(const void *host, struct heap_entry e) {
    const struct session *s = session_at_slot(host, e.value);
    return s && s->timer_ms == e.at_ms;
}

// A session has one entry that counts: of twice as many at least half can go when all room is
// taken.
int host_reserve_wait(struct host *h) {
    size_t wanted = 2 * ((size_t)h->slots.used + 1);
    return h->waits.capacity >= wanted ? 0 : heap_reserve(&h->waits, wanted - h->waits.count);
}

static uint64_t waits_until_ms(const struct session *s) {
    uint64_t wait_ms = s->wait.kind ? s->wait.until_ms : UINT64_MAX;
    return s->taking && s->take_until_ms < wait_ms ? s->take_until_ms : wait_ms;
}

// An earlier entry is enough: the session schedules the next one when it expires.
void host_plan_wait(struct host *h, struct session *s) {
    uint64_t until_ms = waits_until_ms(s);
    if (until_ms == UINT64_MAX || (s->timer_ms && s->timer_ms <= until_ms))
        return;
    s->timer_ms = 0;
    if (h->waits.count == h->waits.capacity)
        heap_filter(&h->waits, is_planned, h);
    s->timer_ms = until_ms;
    heap_put(&h->waits, s->timer_ms, s->slot);
}

static void end_waits(struct host *h) {
    while (heap_next(&h->waits) <= host_now_ms(h)) {
        struct heap_entry e = heap_pop(&h->waits);
        if (is_planned(h, e))
            session_timer_expired(session_at_slot(h, e.value));
    }
}

// Nothing more will become durable: all waiting commands get STOPPED.
static void stop_all(struct host *h) {
    host_durable(h);
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        wait_stop(s);
        if (!s->has_called_async)
            continue;
        s->closing = true; // ends that were not sent yet are lost with it: the client reconnects
        session_touch(s);
    }
}

void host_stop_changes(struct host *h, const char *why) {
    if (h->stopped)
        return;
    h->stopped = true;
    snprintf(h->why_stopped, sizeof h->why_stopped, "%s", why);
    stop_all(h);
}

bool host_owns_store(const struct host *h, uint64_t now_ms, uint64_t max_ms) {
    uint64_t oldest_ms = UINT64_MAX;
    for (uint32_t i = h->first; i < h->end; i++) {
        uint64_t owned_ms = shard_owned_ms(h->parts[i].shard);
        oldest_ms = owned_ms < oldest_ms ? owned_ms : oldest_ms;
    }
    return oldest_ms == UINT64_MAX || now_ms - oldest_ms < max_ms;
}

static void stop_changes(struct host *h, void *why) {
    host_stop_changes(h, why);
}

// The text stays as it is from now on.
static void stop_other_loops(struct host *h) {
    if (!h->loops || h->loops->is_cluster)
        return;
    for (uint32_t i = 0; i < h->loops->count; i++)
        if (i != h->loop)
            (void)loops_run(h->loops, i, stop_changes,
                            h->why_stopped); // if it fails, that loop notices later
}

// False: a log has failed, and why is noted.
static bool begin_parts(struct host *h) {
    bool runs = true;
    for (uint32_t i = h->first; i < h->end; i++) {
        if (shard_begin(h->parts[i].shard) != MR_ESTOPPED || !runs)
            continue; // after another failure the core tries again by itself
        snprintf(h->why_stopped, sizeof h->why_stopped, "%s", error_text());
        runs = false;
    }
    h->steps += shards_steps(h);
    return runs;
}

// ---- Messages between shards ------------------------------------------------------------------

enum {
    EMITS_A_TURN = 4,       // batches that one shard sends to another in a turn
    MESSAGE_RETRY_MS = 100, // after there was no memory for a message
};

static bool part_next_message(struct part *p, bool emits) {
    if (!p->has_message)
        p->has_message = peers_next(shard_peers(p->shard), emits, &p->message);
    return p->has_message;
}

// True: it was delivered. Without memory for it, it is tried again in a later turn.
static bool deliver_one(struct host *h, struct part *p) {
    uint32_t to = p->message.to;
    bool is_own = to >= h->first && to < h->end;
    int err = is_own ? peers_receive(shard_peers(h->parts[to].shard), &p->message)
                     : router_send_message(h, &p->message);
    p->has_message = err < 0;
    h->messages_delayed = h->messages_delayed || p->has_message;
    return !p->has_message;
}

static bool deliver_from(struct host *h, struct part *p, bool emits) {
    bool delivered = false;
    while (part_next_message(p, emits) && deliver_one(h, p))
        delivered = true;
    return delivered;
}

// Delivers messages until none is left, except emits. A message may cause others.
static void deliver_messages(struct host *h, uint32_t batches) {
    bool delivered = !h->messages_delayed;
    while (delivered) {
        delivered = false;
        for (uint32_t i = h->first; i < h->end; i++)
            delivered = deliver_from(h, &h->parts[i], batches > 0) || delivered;
        batches -= batches > 0;
    }
}

// Whether a turn would deliver a message. Between turns.
static bool can_deliver(struct host *h) {
    if (h->shards < 2 || h->stopped || h->messages_delayed)
        return false;
    for (uint32_t i = h->first; i < h->end; i++) {
        uint64_t at;
        struct part *p = &h->parts[i];
        if (p->has_message ||
            (peers_want(shard_peers(p->shard), &at) && (at == 0 || shard_is_durable(p->shard, at))))
            return true;
    }
    return false;
}

static void begin_turn(struct host *h) {
    h->messages_delayed = false;
    if (h->clock)
        h->clock_ms = h->clock();
    if (!begin_parts(h) && !h->stopped) {
        h->stopped = true;
        stop_all(h);
        stop_other_loops(h);
    }
    if (h->watch)
        h->watch(h->watcher, h);
    if (h->max_bytes && !h->stopped)
        shards_report_memory(h, outside_memory(h));
    if (h->shards > 1 && !h->stopped)
        deliver_messages(h, EMITS_A_TURN); // before anything starts that should wait for them
    end_waits(h);
}

void host_begin(struct host *h) {
    if (h->in_turn)
        return;
    h->in_turn = true;
    h->turn_steps = h->steps;
    if (h->shards)
        begin_turn(h);
    budget_begin_turn(h);
}

// Memory or room that one command frees may let others continue, also in other shards.
static void resume_all(struct host *h) {
    for (;;) {
        if (h->shards > 1 && !h->stopped)
            deliver_messages(h, 0);
        if (list_empty(&h->resuming))
            return;
        struct session *s = list_entry(h->resuming.next, struct session, of_resuming);
        list_remove(&s->of_resuming);
        if (budget_used(h) < LIMIT_BUSY_STEPS || !session_has_work(s))
            session_run(s);
        else
            budget_defer(s); // very many may have been woken at once
    }
}

// ---- What is durable --------------------------------------------------------------------------

static void note_written(struct part *p, uint64_t turn, uint64_t at) {
    if (at == p->last_at)
        return;
    p->last_at = at;
    bool room = p->written_count < PART_TURNS;
    p->written_count += room;
    uint32_t last = (p->first_written + p->written_count - 1) % PART_TURNS;
    p->written[last].at = at;
    if (room)
        p->written[last].turn = turn;
}

// The first turn that is not durable in this shard; UINT64_MAX: all are.
static uint64_t first_held_turn(struct part *p) {
    if (!p->written_count)
        return UINT64_MAX;
    struct log_state log;
    shard_look(p->shard, &log);
    while (p->written_count && p->written[p->first_written].at < log.durable) {
        p->first_written = (p->first_written + 1) % PART_TURNS;
        p->written_count--;
    }
    return p->written_count ? p->written[p->first_written].turn : UINT64_MAX;
}

uint64_t host_durable_turn(struct host *h) {
    uint64_t durable = h->turn;
    for (uint32_t i = h->first; i < h->end; i++) {
        uint64_t held = first_held_turn(&h->parts[i]);
        durable = held <= durable ? held - !MUTANT(turn_released_too_early) : durable;
    }
    return durable;
}

static void clean_part(struct host *h, struct part *p) {
    bool more;
    const char *where;
    uint64_t before = shard_damage(p->shard, &where);
    (void)shard_clean(p->shard, &more); // it is tried again when host_next_ms says
    uint64_t found = shard_damage(p->shard, &where) - before;
    if (!found)
        return;
    h->damaged += found;
    snprintf(h->damage, sizeof h->damage, "%s", where);
}

// In rotation, as many as a turn has steps for.
static void clean_parts(struct host *h) {
    uint32_t count = h->end - h->first;
    uint64_t until = h->steps + LIMIT_CLEAN_STEPS;
    for (uint32_t i = 0; i < count && h->steps < until; i++) {
        h->next_cleaned = h->next_cleaned < count ? h->next_cleaned : 0;
        struct part *p = &h->parts[h->first + h->next_cleaned++];
        if (!shard_can_clean(p->shard))
            continue;
        clean_part(h, p);
        h->steps += core_take_steps(p->core);
    }
}

// Where there is a single client, and what it waits for is in a single log, this thread may wait
// for the disk (log/file.h): no other client notices.
static bool may_write(const struct host *h) {
    const struct list *first = list_first(&h->sessions);
    return first && first->next == &h->sessions && !list_empty(&h->touched) && !h->loops &&
           h->end - h->first == 1;
}

static void end_parts(struct host *h) {
    h->turn++;
    if (!h->stopped)
        clean_parts(h);
    enum flush_by by = may_write(h) ? FLUSH_BY_CALLER : FLUSH_BY_WRITER;
    for (uint32_t i = h->first; i < h->end; i++) {
        struct part *p = &h->parts[i];
        note_written(p, h->turn, shard_end_by(p->shard, by));
    }
    fetch_for_shards(h);
}

static void mark_all(struct host *h) {
    if (list_empty(&h->touched))
        return;
    bool durable = h->stopped || host_durable_turn(h) == h->turn; // stopped: nothing was written
    while (!list_empty(&h->touched)) {
        struct session *s = list_entry(h->touched.next, struct session, of_touched);
        list_remove(&s->of_touched);
        session_mark(s, h->turn, durable);
    }
}

void host_end(struct host *h) {
    host_begin(h);
    budget_serve(h);
    do {
        resume_all(h);
        fail_unreadable(h); // a caller may have waited for them
    } while (!list_empty(&h->resuming));
    end_parts(h);
    if (h->loops)
        router_send(h);
    h->in_turn = false;
    h->busy_steps = UINT64_MAX;
    mark_all(h);
}

void host_set_fetch(struct host *h, int (*fetch)(void *, struct fetch *), void *fetcher) {
    h->fetch = fetch;
    h->fetcher = fetcher;
    for (uint32_t i = h->first; i < h->end; i++)
        shard_read_elsewhere(h->parts[i].shard, fetch != NULL);
}

static bool has_stopped(const struct host *h) {
    bool stopped = false;
    for (uint32_t i = h->first; i < h->end; i++)
        stopped = stopped || shard_has_stopped(h->parts[i].shard);
    return stopped;
}

static void release_held(struct host *h) {
    struct log_state log = { 0 };
    if (has_stopped(h))
        host_look(h, &log);
    uint64_t durable = host_durable_turn(h);
    for (struct list *l = h->held.next; l != &h->held;) {
        struct session *s = list_entry(l, struct session, of_held);
        l = l->next;
        if (log.stopped[0] && !MUTANT(reply_released_by_failed_log))
            session_release_stopped(s, log.stopped);
        else
            session_release(s, durable);
    }
}

static bool has_log_room(const struct host *h) {
    for (uint32_t i = h->first; i < h->end; i++)
        if (shard_has_log_room(h->parts[i].shard))
            return true;
    return false;
}

void host_durable(struct host *h) {
    if (!list_empty(&h->held))
        release_held(h);
    if (h->stopped)
        return;
    if (has_stopped(h) || can_deliver(h) || has_log_room(h))
        host_begin(h); // nothing else begins a turn for that
}

void host_wait(struct host *h) {
    for (uint32_t i = h->first; i < h->end; i++) {
        struct shard *shard = h->parts[i].shard;
        (void)shard_wait(shard, shard_end(shard)); // a failure is noticed in the next turn
    }
}

int64_t host_next_ms(struct host *h) {
    if (host_has_backlog(h))
        return 0;
    if (!h->shards || h->stopped)
        return -1;
    int64_t ms = wait_ms_until(heap_next(&h->waits), host_now_ms(h));
    for (uint32_t i = h->first; i < h->end; i++)
        ms = wait_shorter(ms, shard_next_ms(h->parts[i].shard));
    if (h->messages_delayed)
        ms = wait_shorter(ms, MESSAGE_RETRY_MS);
    return can_deliver(h) ? 0 : ms;
}

void host_stop(struct host *h) {
    h->stopping = true;
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        if (take_waits(s))
            wait_time_out(s);
    }
}

void host_give_back(struct host *h) {
    finish_leaving(h); // their leases are lost, not released
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next)
        session_give_back(list_entry(l, struct session, of_host));
}

void host_close(struct host *h) {
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next)
        session_close(list_entry(l, struct session, of_host));
}

uint64_t host_leases(const struct host *h) {
    uint64_t held = 0;
    for (const struct list *l = h->sessions.next; l != &h->sessions; l = l->next)
        held += session_leases(list_entry(l, struct session, of_host));
    return held;
}

// ---- Events of the cores ----------------------------------------------------------------------

static bool on_reserve(void *owner, struct taker *taker) {
    const struct host *h = ((const struct part *)owner)->host;
    return !h->stopping && !h->stopped && router_reserves(session_of(taker->conn));
}

static void on_granted(void *owner, struct taker *taker, const struct grant *grants, size_t count) {
    (void)owner;
    struct session *s = session_of(taker->conn);
    shards_take_leave(s, taker);
    router_end_reservation(s);
    if (fetch_grants(s, grants, count))
        wait_answered(s);
}

static void on_ended(void *owner, struct caller *caller, const struct outcome *outcome) {
    (void)owner;
    struct session *s = session_of(caller->conn);
    if (s->gone)
        return;
    if (caller != &s->caller) {
        async_call_ended(list_entry(caller, struct async_call, caller), outcome);
        return;
    }
    s->outcome = *outcome;
    wait_wake(s, WAKE_READY);
}

static void on_room(void *owner, struct pusher *pusher) {
    (void)owner;
    wait_wake(list_entry(pusher, struct session, pusher), WAKE_READY);
}

static void on_epic(void *owner, struct watcher *watcher) {
    (void)owner;
    wait_wake(list_entry(watcher, struct session, watcher), WAKE_READY);
}

static void on_stop(void *owner, struct conn *conn, uint64_t id, const struct token *token,
                    int why) {
    (void)owner, (void)token, (void)why;
    struct session *s = session_of(conn);
    if (!s->cancels || s->gone)
        return; // the next beat reports it
    struct buffer *replies = session_push_begin(s);
    reply_push(&s->reply, 2);
    reply_bulk(&s->reply, mr_str("cancel"));
    reply_id(&s->reply, id);
    session_push_end(s, replies);
}

// ---- Quotas -------------------------------------------------------------------------------------

static void on_quota_changed(void *owner, uint64_t maker, enum quota_kind kind, int64_t by) {
    usage_change(((struct part *)owner)->host->usage, maker, kind, by);
}

static uint64_t on_quota_used(void *owner, uint64_t maker, enum quota_kind kind) {
    struct quotas used;
    usage_of(((struct part *)owner)->host->usage, maker, &used);
    return used.of[kind];
}

static bool on_counts_jobs(void *owner, uint64_t maker) {
    const struct host *h = ((struct part *)owner)->host;
    const struct auth_entry *e = h->auth ? auth_of_maker(h->auth, maker) : NULL;
    return e && (e->quota.most.of[QUOTA_JOBS] || e->quota.most.of[QUOTA_BYTES]);
}

// ---- Shards -------------------------------------------------------------------------------------

// Each shard's owner is its part; all are made when the first is asked for. In a cluster a host has
// parts of its own, of which it uses one.
static void *part_of(void *host, uint32_t shard, uint32_t shards) {
    struct host *h = host;
    bool is_node = h->loops && h->loops->is_cluster;
    if (!h->parts)
        h->parts = mem_alloc(shards * sizeof *h->parts);
    if (!h->parts)
        return NULL;
    h->owns_parts = is_node;
    h->parts[shard].host =
        h->loops && !is_node ? h->loops->hosts[loop_of_shard(h->loops, shards, shard)] : h;
    return &h->parts[shard];
}

void host_group_options(struct host *h, struct group_options *out) {
    out->events = (struct core_events){ .reserve = on_reserve,
                                        .granted = on_granted,
                                        .ended = on_ended,
                                        .room = on_room,
                                        .epic = on_epic,
                                        .stop = on_stop };
    out->quotas = (struct core_quotas){ .changed = on_quota_changed,
                                        .used = on_quota_used,
                                        .counts_jobs = on_counts_jobs };
    out->owner = part_of;
    out->arg = h;
}
