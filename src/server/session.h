// Session: one client's dialogue: bytes in, replies out. It owns no socket: the loop (or a test)
// asks where to put what arrives, says how much came, and sends what is ready.
//
//     session_room ─► bytes ─► session_receive ─► commands, in order ─► replies
//                                   │
//                   a command that waits (wait.h) stops this session only
//
// What is received and not yet run lies in `in`; a session at rest holds no buffers. A session
// whose replies are not read rests until they are.
//
// One thread, within a turn of the host.
#ifndef SERVER_SESSION_H
#define SERVER_SESSION_H

#include "server/holds.h"
#include "server/host.h"
#include "server/wait.h"
#include "wire/reply.h"

enum { SESSION_MARKS = 8, SESSION_STAGES = 256 };

// What a session is to one shard: a connection, which may wait for work there.
struct presence {
    struct session *session;
    struct conn conn;
    struct taker taker;
};

struct remote;
struct gather;
struct shared_claim;

static inline struct session *session_of(const struct conn *conn) {
    return list_entry(conn, struct presence, conn)->session;
}

// A call that its session does not wait for: the end is told by a push message.
struct late {
    struct session *session;
    struct caller caller;
    struct list of_session;
};

struct front;

struct session {
    struct host *host;
    uint64_t id;
    uint32_t seat;              // among the host's sessions
    struct presence *presences; // one for each shard of its host; NULL: the store is not there yet
    struct list of_host, of_touched, of_held, of_resuming, of_ready, of_backlog;
    void *owner;                      // the loop's
    struct front *front;              // its connection's; NULL: RESP is spoken there
    void (*resume)(struct session *); // goes on in a later turn; NULL: session_run

    uint64_t spent, spent_turn; // steps it has used up, and in which turn (see budget.h)

    struct request request;          // how far the one being received has come
    struct buffer in;                // received and not yet run
    struct buffer out;               // replies; lent by the host while there are any
    size_t out_sent;                 // bytes of it that were sent
    size_t buffered;                 // bytes of these that the host has counted …
    size_t outside;                  // … and of those that its connection or front has for it
    struct reply reply;              // writes into `out`
    uint64_t sent, shown;            // bytes of replies since the beginning: sent; may be sent
    uint64_t replies, shown_replies; // how many are complete; may be sent
    struct {
        uint64_t upto, turn, replies; // bytes up to here may be shown when this turn is durable
    } marks[SESSION_MARKS];
    uint32_t mark_count;
    bool said_all; // its client says no more: it is over when that was answered
    bool closing;  // when everything was sent; nothing more is run
    bool broken;   // close at once
    bool gone;     // the client is: it is among the host's `leaving`, and nothing is told to it

    struct wait wait;       // the command that is not answered yet
    uint64_t timer_ms;      // of its entry among the host's `waits`; 0: it has none
    struct fetch *fetch;    // what it waits for; NULL: nothing is read for it
    struct watcher watcher; // waiting for an epic
    struct caller caller;   // waiting for a job's end
    struct pusher pusher;   // waiting for room
    struct list lates;      // calls that this session does not wait for
    uint32_t late_count;
    bool called_later; // it has had some

    struct {
        bool open, refused;           // MULTI was said; a command behind it was refused
        bool runs;                    // EXEC runs them
        uint32_t count;               // commands queued …
        struct buffer queue, replies; // … as requests; what those have said that were run
        size_t at;                    // where in the queue EXEC goes on
    } multi;
    struct remote *remote;      // it stands for a connection of another loop; NULL: it is one
    struct remote **remotes;    // those that stand for it, by their loops; NULL: none does
    struct remote *route;       // whose replies are under way; NULL: none are
    struct gather *gather;      // a command that several loops answer; NULL: none
    struct shared_claim *claim; // of its TAKE, if other loops wait as well
    bool taking;                // a TAKE of its is under way
    bool forwarded;             // the command that was just run is answered by another loop

    bool checks; // a command is to check its words, and to do nothing else

    struct holds holds; // sources of which a push was refused
    const struct auth_entry
        *who;          // of the host's list; NULL: unauthenticated, or tokens are not asked for
    uint32_t refusals; // of wrong secrets
    bool cancels;      // CLIENT CANCELS ON
    char name[LIMIT_NAME + 1];
    char stages[SESSION_STAGES]; // asked for by the last TAKE: it is a worker
    uint32_t level;              // jobs at once, as it has told; 0: it has not
    uint64_t taken, ended, since_ms;
    const char *address; // the loop's; "" in tests
};

static inline struct presence *presence_at(const struct session *s, uint32_t shard) {
    return &s->presences[shard - s->host->first];
}

// MR_ENOMEM.
int session_create(struct host *, struct session **out);

// The store is there. MR_ENOMEM.
int session_join(struct session *);

// The client is gone: its waiting and its leases end. Where there are very many some do so in later
// turns; the session is not the caller's any more. Within a turn. Takes NULL.
void session_destroy(struct session *);

// Goes on with that, for about so many steps; returns how many it took. When nothing is left the
// session is freed.
uint64_t session_leave_on(struct session *, uint64_t steps);

// Where to put what arrives next: room for at least one byte. NULL: it takes nothing now: it rests,
// or closes, also because there is no memory.
uint8_t *session_room(struct session *, size_t *out_size);

// So many bytes were put there. Runs every whole command.
void session_receive(struct session *, size_t size);
// The same for bytes that lie elsewhere, which it may write to.
void session_feed(struct session *, uint8_t *data, size_t size);

// The client sends no more, but may still receive: what it has sent is answered. A command that
// waits for other clients is not, since a client that has gone looks the same.
void session_say_no_more(struct session *);

// Runs a command as if it had been received. It is not blocked, and nothing else is received.
void session_command(struct session *, const mr_bytes *words, uint32_t count);

// Replies that may be sent now.
mr_bytes session_ready(const struct session *);
void session_sent(struct session *, size_t size);
size_t session_unsent(const struct session *); // bytes of replies, also of those not ready yet
size_t session_unread(const struct session *); // bytes of replies that wait for the client only
size_t session_held(const struct session *);   // bytes of memory that are kept for it
// So many bytes more are kept for it outside of the session; of fewer, the difference wraps.
void session_hold(struct session *, size_t more);
void session_close(struct session *);           // nothing more is run; it is over when all was sent
bool session_has_ended(const struct session *); // nothing more is said
bool session_is_over(const struct session *);   // and all was sent: close it
uint64_t session_leases(const struct session *);
bool take_waits(const struct session *);       // its TAKE waits for jobs here
uint32_t session_jobs(const struct session *); // that it has taken and not ended
// It takes jobs of these stages, names with blanks between them, at that level. Without memory it
// is a worker of none.
void session_work_for(struct session *, const char *stages, uint32_t level);
void session_give_back(struct session *); // what it has leased, uncounted: the server closes

// ---- For commands -----------------------------------------------------------------------------

// Answers that the command was not said as it should be.
void session_usage(struct session *, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Answers that the log has failed.
void session_say_stopped(struct session *);

// What WORKERS shows of it: whole names, as many as there is room for.
void session_note_stages(struct session *, const mr_bytes *stages, uint32_t count, uint32_t level);
bool session_rests(const struct session *); // its replies are not read: it runs nothing meanwhile

// Whether it is somebody the host knows. False: the answer, that it is not, comes later.
bool session_admit(struct session *, mr_bytes user, mr_bytes secret);

// The same between commands, whoever it was before. False: the answer comes as a reply.
bool session_introduce(struct session *, mr_bytes secret);

// It is gone when it was told, or with its session. MR_EFULL: it has too many; MR_ENOMEM.
int late_create(struct session *, struct late **out);
void late_destroy(struct late *);
void late_tell(struct late *, const struct outcome *);

// Where to write a push message: not among the replies that EXEC gathers. The end takes what the
// beginning returned.
struct buffer *session_push_begin(struct session *);
void session_push_end(struct session *, struct buffer *);

struct reply *session_reply(struct session *); // where to write what it says
void session_offer(struct session *);          // the loop sends, closes or reads on
void session_touch(struct session *);          // it has something new to say
void session_mark(struct session *, uint64_t turn, bool durable);
void session_show(struct session *, uint64_t durable);        // what was said up to that turn
void session_show_stopped(struct session *, const char *why); // it never will be durable
void session_run(struct session *);                           // what was received
void session_timer_rings(struct session *);

#endif
