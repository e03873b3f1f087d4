// See session.h. Replies are collected in `out`; each mark says which of them wait for which turn
// to become durable.
#include "server/session.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/command.h"
#include "server/fetch.h"
#include "server/router.h"
#include "server/shards.h"
#include "wire/code.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- Life -------------------------------------------------------------------------------------

int session_join(struct session *s) {
    struct host *h = s->host;
    s->shard_conns = mem_alloc((h->end - h->first + 1) * sizeof *s->shard_conns);
    if (!s->shard_conns)
        return error_set(MR_ENOMEM, "no memory for a session");
    for (uint32_t i = h->first; i < h->end; i++) {
        shard_conn_at(s, i)->session = s;
        core_join(h->parts[i].core, &shard_conn_at(s, i)->conn);
    }
    return 0;
}

// The core retries later what it cannot record now.
static bool session_part(struct session *s, uint64_t steps) {
    struct host *h = s->host;
    bool left = true;
    for (uint32_t i = h->first; s->shard_conns && i < h->end; i++) {
        uint64_t before = h->steps += shards_steps(h);
        left = core_leave_some(h->parts[i].core, &shard_conn_at(s, i)->conn, steps) && left;
        h->steps += shards_steps(h);
        steps -= h->steps - before < steps ? h->steps - before : steps;
    }
    return left;
}

void session_work_for(struct session *s, const char *stages, uint32_t level) {
    struct workers *workers = &s->host->workers;
    if (s->level == level && strcmp(s->stages, stages) == 0)
        return;
    workers_leave(workers, s->stages, s->level);
    bool joined = workers_join(workers, stages, level) == 0;
    memmove(s->stages, joined ? stages : "", joined ? strlen(stages) + 1 : 1); // may be its own
    s->level = level;
}

void session_give_back(struct session *s) {
    for (uint32_t i = s->host->first; s->shard_conns && i < s->host->end; i++)
        core_give_back(s->host->parts[i].core, &shard_conn_at(s, i)->conn);
}

uint64_t session_leases(const struct session *s) {
    uint64_t held = 0;
    for (uint32_t i = s->host->first; s->shard_conns && i < s->host->end; i++)
        held += shard_conn_at(s, i)->conn.lease_count;
    return held;
}

uint32_t session_jobs(const struct session *s) {
    uint32_t held = 0;
    for (uint32_t i = s->host->first; s->shard_conns && i < s->host->end; i++)
        held += shard_conn_at(s, i)->conn.held;
    return held;
}

int session_create(struct host *h, struct session **out) {
    struct session *s = mem_alloc(sizeof *s);
    if (!s)
        return error_set(MR_ENOMEM, "no memory for a session");
    s->host = h;
    uint32_t slot = host_reserve_wait(h) < 0 ? 0 : slab_take(&h->slots);
    if (!slot || (h->shards && session_join(s) < 0)) {
        if (slot)
            slab_give(&h->slots, slot);
        mem_free(s);
        return error_set(MR_ENOMEM, "no memory for a session");
    }
    SLAB_AT(&h->slots, struct session_slot, slot)->session = s;
    s->id = ++h->next_session;
    if (h->loops) // an id identifies its loop
        s->id = (s->id - 1) * h->loops->count + h->loop + 1;
    s->slot = slot;
    s->address = "";
    s->since_ms = host_now_ms(h);
    s->reply.out = &s->out;
    struct list *links[] = { &s->of_host,     &s->of_touched,  &s->of_held,
                             &s->of_resuming, &s->of_ready,    &s->of_backlog,
                             &s->async_calls, &s->ended_calls, &s->fetches };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        list_init(links[i]);
    list_append(&h->sessions, &s->of_host);
    h->connections++;
    *out = s;
    return 0;
}

static void session_free(struct session *s) {
    while (!list_empty(&s->async_calls)) // core_leave_some has removed them from the core
        async_call_destroy(list_entry(s->async_calls.next, struct async_call, of_session));
    list_remove(&s->of_host);
    mem_free(s->shard_conns);
    mem_free(s);
}

// Frees everything but the session's places in the cores.
static void session_drop(struct session *s) {
    struct host *h = s->host;
    struct list *links[] = { &s->of_host,     &s->of_touched, &s->of_held,
                             &s->of_resuming, &s->of_ready,   &s->of_backlog };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        list_remove(links[i]);
    session_work_for(s, "", 0);
    fetch_leave(s);
    SLAB_AT(&h->slots, struct session_slot, s->slot)->session = NULL;
    slab_give(&h->slots, s->slot);
    h->buffered -= session_held(s);
    buffer_finish(&s->in);
    wait_finish(s); // session_part ends the waits in the core
    buffer_finish(&s->multi.queue);
    buffer_finish(&s->multi.replies);
    buffer_finish(&s->out);
    s->gone = true;
}

// Another token counts the connection from now on; 0: none.
static void count_for(struct session *s, uint64_t maker) {
    if (s->counted_for)
        usage_change(s->host->usage, s->counted_for, QUOTA_CONNECTIONS, -1);
    s->counted_for = maker;
}

void session_destroy(struct session *s) {
    if (!s)
        return;
    struct host *h = s->host;
    count_for(s, 0);
    backup_end(s);
    shards_epic_unwatch(s);
    if (s->remotes || s->gather)
        router_leave(s);
    router_end_reservation(s);
    session_drop(s);
    list_append(&h->leaving, &s->of_host);
    (void)session_leave_on(s, budget_leaving(h));
}

uint64_t session_leave_on(struct session *s, uint64_t steps) {
    uint64_t before = s->host->steps;
    bool left = session_part(s, steps);
    uint64_t used = s->host->steps - before;
    if (left)
        session_free(s);
    return used;
}

// ---- Calls with LATER -------------------------------------------------------------------------

int async_call_create(struct session *s, struct async_call **out) {
    if (s->async_count == LIMIT_ASYNC_CALLS)
        return error_set(MR_EFULL, "%u calls of this connection have not ended: await some first",
                         s->async_count);
    struct async_call *l = mem_alloc(sizeof *l);
    if (!l)
        return error_set(MR_ENOMEM, "no memory for a call");
    l->session = s;
    list_init(&l->of_ended);
    list_append(&s->async_calls, &l->of_session);
    s->async_count++;
    s->host->buffered += sizeof *l;
    s->has_called_async = true;
    *out = l;
    return 0;
}

void async_call_destroy(struct async_call *l) {
    struct session *s = l->session;
    s->async_count--;
    s->host->buffered -= s->gone ? 0 : sizeof *l;
    list_remove(&l->of_session);
    list_remove(&l->of_ended);
    mem_free(l);
}

void async_call_ended(struct async_call *l, const struct outcome *outcome) {
    struct session *s = l->session;
    l->outcome = *outcome;
    list_append(&s->ended_calls, &l->of_ended);
    if (list_empty(&s->of_resuming) && list_empty(&s->of_backlog))
        list_append(&s->host->resuming, &s->of_resuming);
}

// False: its result has to be read first; nothing was written.
static bool write_async_end(struct session *s, struct outcome *outcome) {
    struct buffer *replies = session_push_begin(s);
    size_t before = s->out.size;
    reply_push(&s->reply, 3);
    reply_bulk(&s->reply, mr_str("ended"));
    reply_id(&s->reply, outcome->id);
    bool written = answer_outcome(s, outcome);
    if (!written)
        s->out.size = before;
    session_push_end(s, replies);
    return written;
}

// Without memory to read it the connection is closed: the client can reconnect and AWAIT the job.
static void read_async_end(struct session *s) {
    s->is_reading_call = fetch_for_call(s);
    s->broken = s->broken || !s->is_reading_call;
}

// Bytes of replies since the beginning.
static uint64_t said_so_far(const struct session *s) {
    return s->sent + session_unsent(s);
}

// As many as the budget allows. What the client does not read holds up the rest.
static void report_ended_calls(struct session *s) {
    while (!list_empty(&s->ended_calls) && !session_is_paused(s) && !s->is_reading_call) {
        if (!budget_left(s)) {
            budget_defer(s);
            return;
        }
        struct async_call *l = list_entry(s->ended_calls.next, struct async_call, of_ended);
        struct budget_mark mark = budget_begin(s);
        uint64_t said = said_so_far(s);
        buffer_clear(&s->host->wanted);
        bool written = write_async_end(s, &l->outcome);
        if (written)
            async_call_destroy(l);
        else
            read_async_end(s);
        fetch_forget(s, FETCH_FOR_CALL);
        budget_end(s, mark, 0, said_so_far(s) - said);
    }
}

// Keeps the host's sum of buffers. Called when a buffer may have grown or was freed.
static void count_buffers(struct session *s) {
    size_t now = s->in.capacity + s->wait.bytes + s->fetched_bytes + s->out.capacity +
                 s->multi.queue.capacity + s->multi.replies.capacity;
    s->host->buffered += now - s->buffered; // unsigned: a decrease wraps and adds up
    s->buffered = now;
}

size_t session_unsent(const struct session *s) {
    return s->out.size - s->out_sent;
}

size_t session_unread(const struct session *s) {
    return (size_t)(s->released - s->sent) + s->outside;
}

size_t session_held(const struct session *s) {
    return s->buffered + s->outside + s->async_count * sizeof(struct async_call);
}

void session_hold(struct session *s, size_t more) {
    s->outside += more;
    s->host->buffered += more;
}

static bool is_unauthenticated(const struct session *s) {
    return s->host->auth && !s->who;
}

bool session_is_paused(const struct session *s) {
    return session_unsent(s) + s->unacked >
           (is_unauthenticated(s) ? UNAUTHENTICATED_UNSENT_PAUSE : LIMIT_UNSENT_PAUSE);
}

void session_offer(struct session *s) {
    if (list_empty(&s->of_ready))
        list_append(&s->host->ready, &s->of_ready);
}

bool session_has_ended(const struct session *s) {
    bool waits = s->wait.kind || !list_empty(&s->of_resuming) || !list_empty(&s->of_backlog) ||
                 router_is_waiting(s);
    bool awaits = s->host->loops && s->host->loops->is_cluster && router_is_waiting(s);
    return (s->closing && !awaits) || (s->input_ended && !waits);
}

bool session_is_over(const struct session *s) {
    return s->broken || (session_has_ended(s) && !session_unsent(s));
}

// ---- Receiving --------------------------------------------------------------------------------

// The rest of the request cannot be skipped, so the connection is closed.
static void refuse_large(struct session *s, const char *why) {
    reply_error(session_reply(s), "FULL", mr_str(why));
    s->host->refused++;
    s->closing = true;
    s->replies++;
    session_touch(s);
}

// A session that waits or is paused receives a little, so that a disconnect is noticed.
uint8_t *session_room(struct session *s, size_t *out_size) {
    size_t most = is_unauthenticated(s) ? UNAUTHENTICATED_REQUEST : READ_SIZE;
    bool waits = s->wait.kind || session_is_paused(s) || !list_empty(&s->of_backlog);
    if (s->broken || s->closing || s->input_ended || (waits && s->in.size >= most))
        return NULL;
    if (!s->in.size) {
        *out_size = most;
        return s->host->inbox;
    }
    size_t more = s->request.need > s->in.size ? s->request.need - s->in.size : 0;
    if (more > s->in.size) // an announced length reserves nothing: room grows with what arrives
        more = s->in.size;
    if (more < most)
        more = most;
    size_t before = s->in.capacity;
    if (buffer_reserve(&s->in, more) < 0) {
        refuse_large(s, "there is no memory for the request");
        return NULL;
    }
    if (s->in.capacity > before)
        s->host->steps += s->in.size / STEP_RECEIVED; // they were copied
    count_buffers(s);
    *out_size = more;
    return s->in.data + s->in.size;
}

APART static void refuse_frame(struct session *s) {
    reply_error(session_reply(s), code_name(CODE_ERR), mr_str(error_text()));
    s->closing = true;
    s->replies++;
    session_touch(s);
}

// Neither the waiting command nor those behind it are answered.
APART static void abandon(struct session *s) {
    wait_abandon(s);
    session_close(s);
}

// Runs a command, or goes on with the one that waits if there are no words.
static void run_one(struct session *s, const mr_bytes *words, uint32_t count) {
    struct budget_mark mark = budget_begin(s);
    uint64_t said = said_so_far(s);
    buffer_clear(&s->host->wanted);
    if (count)
        command_run(s, words, count);
    else
        command_resume(s);
    budget_end(s, mark, count, said_so_far(s) - said);
    if (!s->wait.kind && s->fetched[FETCH_FOR_COMMAND])
        fetch_forget(s, FETCH_FOR_COMMAND);
    if (s->input_ended && wait_is_open(s))
        abandon(s);
}

// Whether the command may cost more than a small share of a turn.
APART static bool is_large(const mr_bytes *words, uint32_t count, size_t size) {
    const struct command *c = command_row(words[0]);
    return (c && c->large) || count > 8 * STEP_WORDS || size > 64 * STEP_BYTES_IN;
}

static void run_deferred(struct session *s, void *words, enum wake wake) {
    (void)wake;
    const struct kept_words *kept = words;
    command_begin(s, kept->words, kept->count);
}

static const struct wait_kind deferred = { .resume = run_deferred, .free = mem_free };

// Runs the command in the next turn, or when other loops have answered those before it.
APART static void defer(struct session *s, const mr_bytes *words, uint32_t count, bool turn) {
    struct kept_words *kept = words_keep(words, count);
    if (!kept)
        s->broken = true;
    else if (turn)
        wait_for_turn(s, &deferred, kept, kept->bytes);
    else
        wait_begin(s, &deferred, kept, kept->bytes, UINT64_MAX);
}

// While clients use too much memory, those that use some of it run no commands until room is made.
// Others do: connections that send large requests can keep the memory full for long.
static bool waits_for_memory(const struct session *s) {
    return s->in.size + session_unsent(s) > SMALL_BUFFERS && host_clients_exceed(s->host);
}

// Runs the complete requests; returns how many bytes these were.
HOT static size_t run_some(struct session *s, uint8_t *data, size_t size) {
    struct host *h = s->host;
    size_t at = 0;
    while (at < size && !s->wait.kind && !s->closing && !session_is_paused(s) && !h->is_paused) {
        uint32_t count;
        if (size - at < s->request.need)
            break;
        if (!budget_left(s) || waits_for_memory(s)) {
            budget_defer(s);
            break;
        }
        const struct request_limits *limits =
            is_unauthenticated(s) ? &h->unauthenticated_limits : &h->request_limits;
        ptrdiff_t used =
            request_read(&s->request, limits, data + at, size - at, h->arguments, &count);
        if (used < 0)
            refuse_frame(s);
        if (used <= 0)
            break;
        bool too_large = count && budget_is_busy(h) && is_large(h->arguments, count, (size_t)used);
        if (too_large && data[at] == '*') { // it is read again in the next turn: no copy is made
            budget_defer(s);
            break;
        }
        if (count && s->route && router_must_wait(s, h->arguments, count))
            defer(s, h->arguments, count, false);
        else if (too_large) // reading a line has changed it
            defer(s, h->arguments, count, true);
        else if (count)
            run_one(s, h->arguments, count);
        at += (size_t)used;
        budget_spend(s, 1 + (size_t)used / STEP_BYTES_IN); // an empty line, too
    }
    return s->closing ? size : at;
}

static void keep_rest(struct session *s, const uint8_t *rest, size_t size) {
    if (size && buffer_append(&s->in, rest, size) < 0)
        s->broken = true;
}

void session_run(struct session *s) {
    if (s->broken)
        return; // its input may be incomplete
    report_ended_calls(s);
    if (s->wait.is_woken) // even if it is paused: other clients may wait behind it
        run_one(s, NULL, 0);
    if (!s->in.size)
        return;
    size_t used = run_some(s, s->in.data, s->in.size);
    s->in.size -= used;
    if (!s->in.size) {
        buffer_finish(&s->in); // an idle session holds no buffers
        return;
    }
    memmove(s->in.data, s->in.data + used, s->in.size);
}

void session_receive(struct session *s, size_t size) {
    if (s->in.size) {
        s->in.size += size;
        session_run(s);
    } else {
        uint8_t *inbox = s->host->inbox;
        size_t used = run_some(s, inbox, size);
        keep_rest(s, inbox + used, size - used);
    }
    count_buffers(s);
}

void session_feed(struct session *s, uint8_t *data, size_t size) {
    bool waits = s->in.size || s->wait.kind;
    size_t used = waits ? 0 : run_some(s, data, size);
    keep_rest(s, data + used, size - used);
    if (waits && !s->wait.kind)
        session_run(s);
    count_buffers(s);
}

void session_end_input(struct session *s) {
    s->input_ended = true;
    session_offer(s);
    if (s->remotes)
        router_identity_changed(s);
    if (wait_is_open(s) && !MUTANT(gone_client_kept_waiting))
        abandon(s);
}

void session_command(struct session *s, const mr_bytes *words, uint32_t count) {
    run_one(s, words, count);
    count_buffers(s);
}

// ---- Waiting ----------------------------------------------------------------------------------

void session_timer_expired(struct session *s) {
    uint64_t now_ms = host_now_ms(s->host);
    s->timer_ms = 0;
    if (s->taking && s->take_until_ms <= now_ms) {
        s->take_until_ms = UINT64_MAX;
        (void)router_unblock(s);
    }
    if (s->wait.kind && s->wait.until_ms <= now_ms)
        wait_time_out(s);
    else
        host_plan_wait(s->host, s);
}

APART void session_answer_stopped(struct session *s) {
    reply_error(session_reply(s), code_name(CODE_STOPPED), mr_str(s->host->why_stopped));
}

static void refuse_secret(struct session *s) {
    reply_error(session_reply(s), code_name(CODE_WRONGPASS),
                mr_str("no token has that secret, or none of that name"));
    s->closing = s->closing || s->refusals >= REFUSALS;
}

static void write_refused(struct session *s, void *state, enum wake wake) {
    (void)state, (void)wake;
    refuse_secret(s);
}

static const struct wait_kind refused = { .is_open = true, .resume = write_refused };

// Counts the connection for the token, also between requests of HTTP, until it uses another one.
// MR_EFULL: the token has too many.
static int count_connection(struct session *s, const struct auth_entry *who) {
    const struct host *h = s->host;
    uint64_t quota = who->quota.most.of[QUOTA_CONNECTIONS], share = h->token_connections, has;
    bool by_quota = quota && (!share || quota <= share);
    uint64_t most = by_quota ? quota : share ? share : UINT64_MAX;
    if (s->counted_for == who->maker)
        return 0;
    if (usage_connect(h->usage, who->maker, most, &has)) {
        count_for(s, who->maker);
        return 0;
    }
    return error_set(MR_EFULL,
                     "token '%.*s' has %" PRIu64 " connection%s, and %s is %" PRIu64
                     ": close some, or raise %s",
                     (int)who->name.size, (const char *)who->name.data, has, has == 1 ? "" : "s",
                     by_quota ? "its max-connections" : "half of the server's max-clients", most,
                     by_quota ? "it in the server's file of tokens" : "max-clients");
}

// Each wrong secret is answered later than the one before: when the store is loaded at the
// earliest, since there are no timers before; at once when the log has failed, since there are none
// after.
bool session_admit(struct session *s, mr_bytes user, mr_bytes secret) {
    struct host *h = s->host;
    const struct auth_entry *who = auth_find(h->auth, user, secret);
    int err = who ? count_connection(s, who) : 0;
    if (err < 0) {
        h->rejections++;
        answer_error(s, err);
        return false;
    }
    if (who) {
        s->who = who;
        return true;
    }
    int64_t wait_ms = (int64_t)REFUSAL_MS << s->refusals++;
    h->refusals++;
    if (h->stopped)
        refuse_secret(s);
    else
        wait_begin(s, &refused, NULL, 0, wait_until(s, wait_ms));
    return false;
}

int session_admit_peer(struct session *s, const struct auth_peer *peer) {
    const struct auth_entry *who = s->host->auth ? auth_of_peer(s->host->auth, peer) : NULL;
    int err = who ? count_connection(s, who) : 0;
    if (err < 0)
        return err;
    s->who = who;
    return 0;
}

bool session_introduce(struct session *s, mr_bytes secret) {
    s->who = NULL;
    session_reply(s);
    bool known = session_admit(s, (mr_bytes){ 0 }, secret);
    if (!known && !s->wait.kind) {
        s->replies++;
        session_touch(s);
    }
    return known;
}

// ---- Replies ----------------------------------------------------------------------------------

// A busy pipeline may never run empty, so bytes that were sent are removed before more are added;
// not as they are sent, because a large reply would be moved many times.
struct reply *session_reply(struct session *s) {
    if (!s->out.capacity)
        host_buffer_take(s->host, &s->out);
    if (s->out_sent)
        s->out_sent = buffer_compact(&s->out, s->out_sent);
    return &s->reply;
}

struct buffer *session_push_begin(struct session *s) {
    struct buffer *replies = s->reply.out;
    s->reply.out = &s->out;
    session_reply(s);
    return replies;
}

void session_push_end(struct session *s, struct buffer *replies) {
    s->reply.out = replies;
    session_touch(s);
}

void session_touch_prompt(struct session *s) {
    if (s->reply.err)
        s->broken = true;
    if (list_empty(&s->of_touched))
        list_append(&s->host->touched, &s->of_touched);
}

void session_touch(struct session *s) {
    s->is_gated = true;
    session_touch_prompt(s);
}

void session_count_reply(struct session *s) {
    s->replies++;
    if (s->is_prompt)
        session_touch_prompt(s);
    else
        session_touch(s);
}

void session_close(struct session *s) {
    s->closing = true;
    session_offer(s);
}

// The replies of this turn wait until it is durable. Without a free mark the last one waits longer.
void session_mark(struct session *s, uint64_t turn, bool durable) {
    count_buffers(s);
    uint64_t upto = s->sent + session_unsent(s);
    bool at_once = durable || !s->is_gated || MUTANT(reply_before_durable);
    s->is_gated = false;
    if (at_once && !s->mark_count) {
        s->released = upto;
        s->released_replies = s->replies;
        session_offer(s);
        return;
    }
    if (s->mark_count < SESSION_MARKS)
        s->mark_count++;
    s->marks[s->mark_count - 1].upto = upto;
    s->marks[s->mark_count - 1].turn = turn;
    s->marks[s->mark_count - 1].replies = s->replies;
    if (list_empty(&s->of_held))
        list_append(&s->host->held, &s->of_held);
    if (s->broken)
        session_offer(s);
}

void session_release(struct session *s, uint64_t durable) {
    uint32_t shown = 0;
    for (; shown < s->mark_count && s->marks[shown].turn <= durable; shown++) {
        s->released = s->marks[shown].upto;
        s->released_replies = s->marks[shown].replies;
    }
    if (!shown)
        return;
    s->mark_count -= shown;
    memmove(s->marks, s->marks + shown, s->mark_count * sizeof *s->marks);
    if (!s->mark_count)
        list_remove(&s->of_held);
    session_offer(s);
}

// Each reply that waited is replaced: its outcome is not known.
void session_release_stopped(struct session *s, const char *why) {
    struct buffer *replies = session_push_begin(s);
    s->out.size = s->out_sent + (size_t)(s->released - s->sent);
    s->mark_count = 0;
    list_remove(&s->of_held);
    for (; s->released_replies < s->replies; s->released_replies++)
        reply_error(&s->reply, code_name(CODE_STOPPED), mr_str(why));
    s->released = s->sent + session_unsent(s);
    s->reply.out = replies;
    s->broken = s->broken || s->reply.err;
    session_offer(s);
}

mr_bytes session_ready(const struct session *s) {
    return (mr_bytes){ s->out.data ? s->out.data + s->out_sent : NULL,
                       (size_t)(s->released - s->sent) };
}

// These bytes need not be kept any more.
static void drop_sent(struct session *s, size_t size) {
    s->sent += size;
    s->out_sent += size;
    if (!session_unsent(s)) {
        host_buffer_return(s->host, &s->out);
        s->out_sent = 0;
    }
    count_buffers(s);
}

// The client has read replies: a session that was paused for them continues.
static void resume_if_read(struct session *s, bool was_paused) {
    if (!was_paused || session_is_paused(s))
        return;
    if (s->remotes)
        router_drained(s);
    bool goes_on = !s->wait.kind || !list_empty(&s->ended_calls);
    if (goes_on && list_empty(&s->of_resuming))
        budget_defer(s); // not now: a client that reads fast would take the whole turn
}

void session_sent(struct session *s, size_t size) {
    bool was_paused = session_is_paused(s);
    drop_sent(s, size);
    resume_if_read(s, was_paused);
}

void session_pass_on(struct session *s, size_t size) {
    drop_sent(s, size);
    s->unacked += size;
}

void session_acked(struct session *s, size_t size) {
    bool was_paused = session_is_paused(s);
    s->unacked -= size;
    resume_if_read(s, was_paused);
}

void session_usage(struct session *s, const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    reply_error(&s->reply, code_name(CODE_ERR), mr_str(text));
}
