// Session: the commands and replies of one connection. It owns no socket: the loop (or a test) puts
// received bytes where session_room says, reports how many, and sends what session_ready returns.
//
//     session_room ─► bytes ─► session_receive ─► commands, in order ─► replies
//                                   │
//                   a command that waits (wait.h) stops this session only
//
// Received bytes that were not run yet are in `in`; an idle session holds no buffers. A session
// whose client does not read its replies is paused until it does.
//
// One thread, within a turn of the host.
#ifndef SERVER_SESSION_H
#define SERVER_SESSION_H

#include "server/holds.h"
#include "server/host.h"
#include "server/wait.h"
#include "wire/reply.h"

enum { SESSION_MARKS = 8, SESSION_STAGES = 256 };

// The session as one shard knows it: a connection of the core, and its waiting take.
struct shard_conn {
    struct session *session;
    struct conn conn;
    struct taker taker;
};

struct remote;
struct gather;
struct shared_reservation;

static inline struct session *session_of(const struct conn *conn) {
    return list_entry(conn, struct shard_conn, conn)->session;
}

// CALL … LATER: a push message reports the end of the job.
struct async_call {
    struct session *session;
    struct caller caller;
    struct list of_session;
    struct list of_ended;   // once the job has ended, until that is reported …
    struct outcome outcome; // … with this
};

struct front;

// What something is read from the log for (fetch.h).
enum fetch_purpose { FETCH_FOR_COMMAND, FETCH_FOR_CALL, FETCH_PURPOSES, FETCH_FOR_SHARD };

struct session {
    struct host *host;
    uint64_t id;
    uint32_t slot;                  // in the host's slab of sessions
    struct shard_conn *shard_conns; // one for each shard of its host; NULL: the store is loading
    struct list of_host, of_touched, of_held, of_resuming, of_ready, of_backlog;
    void *owner;                      // the loop's
    struct front *front;              // the connection's; NULL: it speaks RESP
    bool is_link;                     // that is a link to another node
    void (*resume)(struct session *); // called from the backlog; NULL: session_run

    uint64_t spent, spent_turn; // steps used, and the turn in which they were (budget.h)

    struct request request; // the parser's state
    struct buffer in;       // received and not yet run
    struct buffer out;      // replies; lent by the host while there are any
    size_t out_sent;        // bytes of it that were sent
    size_t buffered;        // bytes of these buffers that the host has counted …
    size_t outside;         // … and bytes that the connection or front holds for it
    struct reply reply;     // writes into `out`
    size_t unacked; // of a remote session: bytes passed on that its client has perhaps not read
    uint64_t sent, released;            // bytes of replies since the beginning: sent; may be sent
    uint64_t replies, released_replies; // how many are complete; how many may be sent
    struct {
        uint64_t upto, turn, replies; // bytes up to here may be sent when this turn is durable
    } marks[SESSION_MARKS];
    uint32_t mark_count;
    bool is_prompt;   // the reply to the command that runs does not wait for the log …
    bool is_gated;    // … but another one of this turn does
    bool input_ended; // the client sends no more: the session ends with its last reply
    bool closing;     // runs nothing more; closes when everything was sent
    bool broken;      // closes at once
    bool gives_back;  // closes by no fault of its own: what it takes until then counts no attempt
    bool gone;        // disconnected: in the host's list `leaving`; events for it are ignored

    struct wait wait;                      // the command that is not answered yet
    uint64_t timer_ms;                     // of its entry among the host's `waits`; 0: it has none
    struct list fetches;                   // what is being read for it: struct fetch …
    struct fetch *fetched[FETCH_PURPOSES]; // … what was read, and is kept until it is answered …
    size_t fetched_bytes;                  // … and how many bytes that is
    struct watcher watcher;                // waiting for an epic
    struct outcome outcome;                // of the job that it has waited for
    struct caller caller;                  // waiting for a job's end
    struct pusher pusher;                  // waiting for room
    struct list async_calls;               // CALLs with LATER that have not ended …
    uint32_t async_count;                  // … and how many
    struct list ended_calls;               // of these, that have ended and are to be reported
    bool has_called_async;                 // there were some
    bool is_reading_call;                  // the result of the first ended one is being read

    struct {
        bool open, refused;           // after MULTI; a command was refused since
        bool runs;                    // within EXEC
        uint32_t count;               // commands queued …
        struct buffer queue, replies; // … as requests; the replies of those that were run
        size_t at;                    // where in the queue EXEC goes on
    } multi;
    struct remote *remote;   // the session represents a connection of another loop; NULL: its own
    struct remote **remotes; // the sessions that represent it in other loops; NULL: none
    struct remote *route;    // whose replies it waits for; NULL: none
    struct gather *gather;   // a command that several loops answer; NULL: none
    struct shared_reservation *reserved; // of a TAKE that waits in other loops, too
    bool taking;                         // another loop runs a TAKE for it …
    uint64_t take_until_ms; // … and in a cluster until then at most; UINT64_MAX: it has no end
    bool forwarded;         // another loop answers the command that was just run

    bool checks; // commands only check their words (MULTI)

    bool has_backup; // BACKUP BEGIN

    struct holds holds;           // sources of which a push was refused
    const struct auth_entry *who; // its token; NULL: unauthenticated, or no tokens are needed
    uint64_t counted_for;         // its connection counts for this token; 0: for none
    uint32_t refusals;            // wrong secrets so far
    bool cancels;                 // CLIENT CANCELS ON
    char name[LIMIT_NAME + 1];
    char stages[SESSION_STAGES]; // of its last TAKE; not empty: it is a worker
    uint32_t level;              // jobs at once, from TAKE … SLOTS; 0: not known
    uint64_t taken, ended, since_ms;
    const char *address; // the loop's; "" in tests
};

static inline struct shard_conn *shard_conn_at(const struct session *s, uint32_t shard) {
    return &s->shard_conns[shard - s->host->first];
}

// MR_ENOMEM.
int session_create(struct host *, struct session **out);

// To be called when the store has been loaded. MR_ENOMEM.
int session_join(struct session *);

// The client has disconnected: its waits and leases end, some of them in later turns if there are
// very many. The host owns the session from now on. Within a turn. Takes NULL.
void session_destroy(struct session *);

// Continues this for about `steps` steps and returns how many it took. Frees the session at the
// end.
uint64_t session_leave_on(struct session *, uint64_t steps);

// Where to put received bytes: room for at least one. NULL: none can be received now, because the
// session is paused, waits, closes or has no memory.
uint8_t *session_room(struct session *, size_t *out_size);

// `size` bytes were put there. Runs every complete command.
void session_receive(struct session *, size_t size);
// The same for bytes in another place, which the session may modify.
void session_feed(struct session *, uint8_t *data, size_t size);

// The client sends no more, but may still receive: what it has sent is answered. A command that
// waits for other clients is not: a client that has disconnected looks the same.
void session_end_input(struct session *);

// Runs a command as if it had been received. The session must not wait.
void session_command(struct session *, const mr_bytes *words, uint32_t count);

// Replies that may be sent now.
mr_bytes session_ready(const struct session *);
void session_sent(struct session *, size_t size);
// For a remote session: these bytes are with the connection's loop now, but count as unread until
// that has acknowledged them.
void session_pass_on(struct session *, size_t size);
void session_acked(struct session *, size_t size);
size_t session_unsent(const struct session *); // bytes of all replies
size_t session_unread(const struct session *); // bytes of replies that the client could read
size_t session_held(const struct session *);   // bytes of memory that are kept for it
// Counts `more` bytes that are held for it elsewhere. Unsigned: a decrease wraps and adds up.
void session_hold(struct session *, size_t more);
void session_close(struct session *);           // runs nothing more; ends when all was sent
bool session_has_ended(const struct session *); // no more replies will follow
bool session_is_over(const struct session *);   // … and all were sent: close it
uint64_t session_leases(const struct session *);
bool take_waits(const struct session *);       // its TAKE waits for jobs here
uint32_t session_jobs(const struct session *); // that it has taken and not ended
// Sets the name of the client, as CLIENT SETNAME; empty: none. MR_EINVAL. See command_connect.c.
int session_set_name(struct session *, mr_bytes name);
// Counts the session as a worker of these stages (names separated by spaces) with this level.
// Without memory it counts for none.
void session_work_for(struct session *, const char *stages, uint32_t level);
void session_give_back(struct session *); // its leased jobs, without a counted attempt

// ---- For commands -----------------------------------------------------------------------------

// Answers ERR: the command is malformed.
void session_usage(struct session *, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Answers STOPPED: the log has failed.
void session_answer_stopped(struct session *);

// Notes for WORKERS the stages of a TAKE: whole names, as many as fit.
void session_note_stages(struct session *, const mr_bytes *stages, uint32_t count, uint32_t level);
// Whether it runs nothing because its client does not read its replies.
bool session_is_paused(const struct session *);

// Authenticates. False: the refusal is answered, or will be later.
bool session_admit(struct session *, mr_bytes user, mr_bytes secret);

// Gives it the token of the client's user or group, if there is one. MR_EFULL: that has too many
// connections.
int session_admit_peer(struct session *, const struct auth_peer *);

// As session_admit, outside of a command, after the session has lost its token. False: as above.
bool session_introduce(struct session *, mr_bytes secret);

// Freed when its end was reported, or with the session. MR_EFULL: there are too many; MR_ENOMEM.
int async_call_create(struct session *, struct async_call **out);
void async_call_destroy(struct async_call *);
// The job has ended; the push message is written before this turn ends, or in a later one if there
// are very many, or large ones.
void async_call_ended(struct async_call *, const struct outcome *);

// Between these two, replies go to the client directly, as a push message must, and not into the
// buffer of EXEC. The second takes what the first returned.
struct buffer *session_push_begin(struct session *);
void session_push_end(struct session *, struct buffer *);

// Whether session_run would do something.
static inline bool session_has_work(const struct session *s) {
    return s->wait.is_woken || s->in.size || !list_empty(&s->ended_calls);
}

struct reply *session_reply(struct session *); // for writing a reply
void session_offer(struct session *);          // the loop checks whether to send, close or read
void session_touch(struct session *);          // it has new replies, which wait for the log
void session_touch_prompt(struct session *);   // it has some that do not, unless others do
void session_count_reply(struct session *);    // its command is answered
void session_mark(struct session *, uint64_t turn, bool durable);
void session_release(struct session *, uint64_t durable); // replies up to that turn may be sent
void session_release_stopped(struct session *,
                             const char *why); // these replies will never be durable
void session_run(struct session *);            // runs what was received
void session_timer_expired(struct session *);

#endif
