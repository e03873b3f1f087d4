// The state of a client; used by the files of this folder only.
//
//     any thread   exchange: a request ─► queue of a link … reply ─► hook ─► the caller wakes
//     I/O thread   all sockets: connect, greet, write, read, connect again; hooks run here
//     notifier     callbacks: on_end and on_stop, with no lock held
//
//     main link ────── pipelined: everything that never makes the server wait
//     a lane each ──── requests that do: AWAIT, a TAKE for mr_take, pushes that wait for room
//     a worker's link  one TAKE for all of its threads that wait; its leases live with it
//
// A request keeps its bytes until it is answered. A link that is lost connects again, after longer
// and longer pauses, and sends all requests again that were not answered. None takes effect twice:
//
//     PUSH            carries a number of a source of ours, which the server has seen or not, as
//                     long as it is sure to know the source (SOURCE_REPEAT_MS); then it fails
//     CALL            carries a `once`; it is sent again also while its end is awaited
//     DONE FAIL …     carry a token, which ends one lease and only once; DONEMANY has one per job
//     SCHEDULE … NOW  is not sent again: it fails
//     TAKE            the leases of the lost link have ended, so it can be sent again as it is
//
// One lock guards everything that does not say otherwise.
#ifndef CLIENT_STATE_H
#define CLIENT_STATE_H

#include "base/list.h"
#include "client/client.h"
#include "wire/response.h"
#include "wire/url.h"

#include <pthread.h>

enum {
    CLIENT_BUCKETS = 1024,  // of calls and of leased jobs, by id
    CLIENT_TOKEN = 40,      // bytes of a token
    CLIENT_SLACK_MS = 1000, // added to a wait before a server that has not answered is given up
    CLIENT_UNREACHABLE_MS = 30000 // see client.h
};

struct client;
struct client_link;
struct exchange;

// Takes in the answer: I/O thread, with the lock. `x->err` is 0 or what the server (or the failed
// connection: no values then) has answered, with the sentence in `x->answer`.
typedef void exchange_hook(struct client *, struct exchange *, const struct response_value *,
                           uint32_t count);

// One request and what is answered.
struct exchange {
    struct list of_link;
    struct client_link *link;
    struct buffer text; // the request's words …
    uint32_t words;     // … and how many
    exchange_hook *hook;
    void *owner; // the hook's
    bool sent, answered;
    bool waited_for;              // by a thread, which frees it; else it is freed when answered
    bool commits;                 // of commits.c, which writes its words and reads its answer
    bool kept;                    // by its hook, beyond the answer
    bool left;                    // no thread waits for the answer any more
    bool repeated;                // it was sent before, over a link that was lost
    bool acts_each_time;          // sent again it might act twice: it fails if its link is lost
                                  // before it was answered
    bool fails_if_lost;           // it is not sent again when its link is lost, but fails; of
                                  // request.h, which also wakes the I/O thread
    struct client_source *source; // whose number it carries; NULL: none
    uint64_t first_ms;            // when it was sent for the first time; 0: it was not yet
    uint64_t sent_ms;
    int err;
    int64_t number;       // an integer that was answered; -1: nothing (null)
    struct buffer answer; // bytes that were answered, or the sentence
    pthread_cond_t settled;
    struct client_puller *puller; // of TAKE, BEAT and of what ends a lease
    struct buffer about;          // struct job_lease: what BEAT, DONE, FAIL, RELEASE are about;
                                  // struct commit: those of commits.c
    struct mr_job *jobs;          // that have just arrived and wait for a BEAT, chained by `next`
};

struct job_lease {
    mr_id id;
    char token[CLIENT_TOKEN]; // zeros behind it
};

enum link_state {
    LINK_DOWN,       // until `due_ms`
    LINK_CONNECTING, // until `give_up_ms`, as are the next two
    LINK_SECURING,   // the handshake of TLS
    LINK_GREETING,
    LINK_LOADING, // the server reads its store: probed again at `due_ms`
    LINK_UP,
};

struct client_link {
    struct client *client;
    struct list of_client, of_idle;
    struct list queue, sent; // exchanges: to be sent; not answered yet
    enum link_state state;
    uint64_t session;             // what the server calls this connection
    uint64_t owned_ms;            // of a node: see HELLO; 0: the server is none
    struct client_puller *puller; // whose own it is: it then waits for the server for ever
    bool lane, closing;
    bool pinned;   // connects to `address` only, until it is lost
    bool lent;     // to a client_connection: what is requested there may make the server wait
    uint32_t uses; // jobs leased with it, and calls whose ends arrive on it: it must stay open
    uint64_t down_since_ms; // 0: it is up
    int err;                // why it is down, with the sentence
    char why[320];

    // The I/O thread's.
    int fd;
    struct tls *tls;   // NULL: it is not encrypted
    uint32_t failures; // since something was answered
    uint32_t greeted;  // how much of the greeting was answered
    size_t address;    // which of the client's it was connected to, …
    const char *host;  // … and the name of that node, which its certificate has to have

    uint64_t due_ms, received_ms, give_up_ms;
    bool probing; // LINK_LOADING: whether the store has been read, and not answered yet
    bool write_blocked;
    struct buffer out, in;
    size_t out_at;
    struct response reader;
};

// Numbers of one series of pushes; lent to one push (or push_many) at a time.
struct client_source {
    struct client_source *next;
    uint64_t number; // the last that was used
    bool late;       // one of its pushes may not be sent again: nor are those behind it sent
    uint32_t stage_size;
    char stage[STAGE_NAME_MOST]; // that these numbers are of
    char name[48];
};

struct client_puller {
    struct puller base;
    struct puller_options options;
    struct list of_client;
    struct list jobs;       // leased by it
    struct list takers;     // threads that wait; without a link each has a request of its own
    struct list notices;    // with `ring`: jobs to stop, for its loop
    struct mr_job *arrived; // taken, and not given to a thread yet; chained by `next`
    uint32_t unanswered;    // requests that end its jobs
    uint32_t beating;       // requests that renew leases of what has just arrived
    uint32_t taking;        // TAKEs without a link of its own, not answered yet
    bool interrupted;
    int notifying; // callbacks that run now
    pthread_cond_t changed;

    // Of a worker only.
    struct client_link *link;      // its own; NULL: it serves mr_take
    struct pull pull;              // what its TAKE asks for
    struct exchange *pending_take; // that TAKE
    uint32_t sent_level;           // by a TAKE of …
    uint64_t sent_session;         // … this connection
    bool wants;                    // with `ring`: its loop has found nothing
    uint64_t take_at_ms;           // not before
    uint32_t refusals;             // TAKEs that came back empty or failed, one after another
    int refused;                   // how the server has refused the last one; 0: it has not …
    char why[320];                 // … with the sentence
    bool unblocking;               // CLIENT UNBLOCK was sent for its TAKE …
    uint64_t unblock_at_ms;        // … and is not sent again before
};

// A call, from its request until its end was reported.
struct call {
    struct list of_list; // of the client's calls, or of those that have ended
    struct list of_ids;  // once it has an id
    struct exchange *x;  // kept, to be sent again
    mr_id id;            // 0: not known yet
    int err;             // how it ended …
    bool ended;
    struct buffer result; // … with the sentence, if not well
    mr_on_end *on_end;    // NULL: a thread waits
    void *arg;
    struct call_start *starting; // the thread that waits for the id, in mr_call_start
    pthread_cond_t changed;
    int64_t deadline_ms;
    uint64_t give_up_ms; // by then the server should have reported the deadline
    char stage[STAGE_NAME_MOST + 1];
};

struct client {
    struct engine base;
    char where[URL_WHERE];            // HOST:PORT,…; fixed from here …
    struct url_node nodes[URL_NODES]; // of the URL
    uint32_t node_count;
    struct tls_context *tls; // NULL: millrace://
    char *user, *secret, *name;
    uint64_t unreachable_ms, repeat_ms;
    bool refuses_full;
    pthread_t io, notifier;
    int epoll_fd, wake_fd, lease_fd; // … to here

    struct response_value *values; // the I/O thread's …
    size_t address;                // … which tries this one next
    uint64_t found_ms;             // when the addresses were looked up
    uint64_t lease_fd_ms;          // when it rings; 0: not at all
    uint64_t random;

    pthread_mutex_t lock;             // guards what follows
    struct server_address *addresses; // changed by the I/O thread
    size_t address_count;
    bool io_sleeps, io_wanted, closing;
    struct client_link *main;
    struct client_link *beats; // BEAT to a node, where no reply waits for its store; NULL: main
    struct list links;
    struct list idle; // lanes …
    uint32_t idle_count;
    struct client_source *sources; // not in use
    struct mr_job *free_jobs;
    struct mr_job *leased[CLIENT_BUCKETS]; // chained
    uint32_t leased_count;
    uint64_t lease_check_ms; // when a lease may have run out
    struct list pullers;
    struct list calls; // that have not ended …
    struct list calls_by_id[CLIENT_BUCKETS];
    uint64_t call_check_ms; // when one of them may have ended without a message
    uint32_t started;       // those with a callback
    struct list ended;      // for the notifier: calls whose on_end is due
    struct list notices;    // for the notifier: jobs whose on_stop is due
    uint32_t waiting_threads, notifying_calls;
    pthread_cond_t notify, changed;
};

// ---- client.c ---------------------------------------------------------------------------------

uint64_t client_until(int64_t wait_ms);  // an instant; UINT64_MAX: for ever
uint64_t client_random(struct client *); // with the lock
void client_sleep(struct client *, pthread_cond_t *, uint64_t until_ms); // with the lock
void client_wake_io(struct client *);                                    // with the lock; io.c

// ---- exchange.c -------------------------------------------------------------------------------

// A request, or NULL with MR_ENOMEM noted. `command` may be NULL: no word yet.
struct exchange *exchange_new(const char *command);
void exchange_free(struct exchange *); // takes NULL

// Adds words to a request. A failure is kept in `err` until it is to be sent.
void exchange_word(struct exchange *, const char *);
void exchange_bytes(struct exchange *, mr_bytes);
void exchange_number(struct exchange *, uint64_t);
void exchange_option(struct exchange *, const char *name, int64_t ms);    // 0: left out
void exchange_text_option(struct exchange *, const char *name, mr_bytes); // empty: left out

// An option of a job, by its kind (base/job_spec.h).
#define EXCHANGE_BYTES exchange_text_option
#define EXCHANGE_MS exchange_option
#define EXCHANGE_COUNT exchange_option
#define EXCHANGE_WAIT exchange_option
#define EXCHANGE_FLAG(x, name, flag)                                                               \
    if (flag)                                                                                      \
    exchange_word(x, name)

int exchange_write(const struct exchange *, struct buffer *out);

// Queues it; the caller then waits for the answer, or leaves it to the hook. With the lock. Returns
// the request's own failure, or MR_ENET: the server has not been reached for too long. On failure
// the exchange is still the caller's.
int exchange_send(struct client_link *, struct exchange *);

// With the lock: waits for the answer. MR_EAGAIN (no sentence): `until_ms` came first, and the
// exchange was left to itself; else what was answered, its sentence noted.
int exchange_wait(struct client *, struct exchange *, uint64_t until_ms);
void exchange_leave(struct exchange *); // with the lock: its owner has lost interest

const char *exchange_sentence(const struct exchange *); // of one that was answered with an error

// Without the lock: sends it over the main link, waits, and frees it. NULL is MR_ENOMEM. The
// answer's number and bytes (both may be NULL) become the caller's.
int exchange_do(struct client *, struct exchange *, int64_t *out_number, struct buffer *out);
// Without the lock: sends it, over a lane if the server makes it wait, and waits for the answer,
// which stays in it. MR_EAGAIN: not in time, and it is not the caller's any more.
int exchange_await(struct client *, struct exchange *, uint64_t until_ms, bool waits);

// I/O thread, with the lock: it was answered, or has failed.
void exchange_answer(struct exchange *, const struct response_value *, uint32_t count);
void exchange_fail(struct exchange *, int err, const char *why);

// An error as the server spells it: its code, and where its sentence begins.
int error_read(mr_bytes line, mr_bytes *out_sentence);

// ---- link.c: one connection -------------------------------------------------------------------

// Makes a link that will connect. NULL: MR_ENOMEM was noted. With the lock.
struct client_link *link_create(struct client *, bool lane);
void link_destroy(struct client_link *);
struct client_link *
lane_borrow(struct client *); // an idle one or a new one; NULL: MR_ENOMEM was noted
void lane_return(struct client_link *);
void link_unuse(struct client_link *); // one of its `uses` has ended
// Whether it is up and connected to the node that the other one is connected to; and to connect a
// new one there.
bool link_is_at(const struct client_link *, const struct client_link *other);
void link_pin(struct client_link *, const struct client_link *other);
struct response_value *link_values_create(void); // as many as an answer may have; NULL: no memory

// I/O thread, with the lock, which sending and receiving give up meanwhile.
void link_turn(struct client_link *, uint64_t now_ms); // does what is due, sends what is to be sent
void link_event(struct client_link *, uint32_t events);
// Down, and every address of the server was tried.
bool link_is_lost(const struct client_link *);
// Down for so long that requests fail.
bool link_is_unreachable(const struct client_link *, uint64_t now_ms);
uint64_t
link_next_ms(const struct client_link *); // when it wants a turn; UINT64_MAX: not by itself
void link_lose(struct client_link *, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// ---- socket.c ---------------------------------------------------------------------------------

struct server_address;
// The addresses of all nodes, one node after another. MR_ENET: no node has any. They are the
// caller's to free with mem_free.
int addresses_find(const struct client *, struct server_address **out, size_t *out_count);
int socket_connect(const struct server_address *); // a descriptor that is connecting, or -errno
int socket_error(int fd);                          // of the connecting: 0 or -errno
// The addresses take turns: any number names one.
const struct server_address *address_at(const struct client *, size_t number);
const char *address_host(const struct client *, size_t number); // the name of its node
// I/O thread, with the lock, which it gives up: a host may have moved. What was known stays if it
// cannot be found now.
void addresses_renew(struct client *, uint64_t now_ms);

// ---- greet.c ----------------------------------------------------------------------------------

int greet_write(struct client_link *); // the first requests of a connection
int greet_probe(struct client_link *); // whether it has loaded
// Reads one answer to that. 0, or why the server cannot be used, noted.
int greet_read(struct client_link *, const struct response_value *);

// ---- io.c, notifier.c: the threads --------------------------------------------------------------

void *io_thread(void *client);
void *notifier_thread(void *client);

// ---- push.c, call.c ---------------------------------------------------------------------------

int client_push(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *, mr_id *);
int client_push_many(struct engine *, mr_bytes stage, const mr_item *, size_t,
                     const mr_push_options *, const struct push_number *first, mr_id *, size_t *);
int client_cancel(struct engine *, mr_id);
void push_words(struct exchange *, mr_bytes stage, mr_bytes body, const mr_push_options *);

int client_call(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
                struct buffer *);
int client_call_start(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
                      mr_on_end *, void *arg, mr_id *);
int client_await(struct engine *, mr_id, int64_t wait_ms, struct buffer *);
// I/O thread, with the lock.
void calls_ended(struct client_link *, mr_id,
                 const struct response_value *outcome); // one has ended
void calls_resend(struct client_link *);                // the link was lost
void calls_check(struct client *, uint64_t now_ms);
void call_notify(struct call *); // notifier, no lock; frees it

// ---- take.c: pullers --------------------------------------------------------------------------

int client_puller_open(struct engine *, const struct puller_options *, struct puller **);
void client_puller_interrupt(struct puller *);
void client_puller_close(struct puller *);
int client_take(struct puller *, const struct pull *, mr_job **);
void client_stop_notices(struct puller *);
// I/O thread, with the lock.
void puller_turn(struct client_puller *, uint64_t now_ms);
uint64_t puller_next_ms(const struct client_puller *);
void client_notify_stop(struct client *,
                        struct mr_job *); // notifier, with the lock, which it gives up

// ---- job.c: leased jobs; all of this with the lock --------------------------------------------

// Makes the jobs of a TAKE's answer, leased with the link from `lease_from_ms` on; they hang on
// `next`. MR_ENOMEM, MR_ENET (that is no answer to TAKE): no job is leased; lose the link.
int client_jobs_read(struct client_puller *, struct client_link *, uint64_t lease_from_ms,
                     const struct response_value *, struct mr_job **out);
void client_job_unpin(struct client *, struct mr_job *);
void client_jobs_release(struct mr_job *jobs);        // a chain that no thread was given
void client_job_stop_id(struct client_link *, mr_id); // the server says that it must stop
void client_jobs_stop_link(struct client_link *);     // its leases are over
void client_jobs_leave_link(struct client_link *);    // it is freed: jobs may end after it
void client_jobs_check_leases(struct client *, uint64_t now_ms);

// Whether a third of the lease has passed since it was last extended.
bool lease_is_due(const struct mr_job *, uint64_t now_ms);
// Where BEAT is sent: with the lock.
struct client_link *beat_link(struct client *);
// Adds a job to a BEAT, whose hook is or calls beat_hook.
void beat_add(struct exchange *, struct mr_job *, uint64_t now_ms);
void beat_hook(struct client *, struct exchange *, const struct response_value *, uint32_t count);

int client_done(mr_job *, unsigned how);
int client_fail(mr_job *, mr_bytes reason, int64_t retry_ms, unsigned how);
int client_release(mr_job *, int64_t delay_ms, unsigned how);
void client_unpin(mr_job *);
int client_beat(mr_job *);
int client_progress(mr_job *, const struct job_progress *, bool waits);
int64_t client_beat_all(struct puller *);
// With the lock: a commit was refused, so the attempt fails, unless the lease is over anyway.
void commit_refused(struct client_puller *, const struct job_lease *, int err, mr_bytes sentence);

// ---- commits.c: plain commits; all of this with the lock --------------------------------------

// Queues the commit of a job; no thread waits for the answer. Errors as exchange_send; MR_ENOMEM.
int commits_add(struct client_puller *, const struct job_lease *);
int commits_write(const struct exchange *, struct buffer *out);

// ---- look.c -----------------------------------------------------------------------------------

int client_stage_wait_empty(struct engine *, mr_bytes stage, int64_t wait_ms);
int client_epic(struct engine *, mr_bytes stage, mr_bytes name, mr_epic_info *);
int client_epic_wait(struct engine *, mr_bytes stage, mr_bytes name, int64_t left,
                     uint64_t expected, int64_t wait_ms, mr_epic_info *);
int client_epic_end(struct engine *, mr_bytes stage, mr_bytes name, uint64_t total);
int client_epic_skip(struct engine *, mr_bytes stage, mr_bytes name, uint64_t number);
int client_epic_then(struct engine *, mr_bytes stage, mr_bytes name, const struct emit *);
int client_epic_cancel(struct engine *, mr_bytes stage, mr_bytes name);
int client_epic_forget(struct engine *, mr_bytes stage, mr_bytes name, uint64_t after_ms);
int client_epic_drop(struct engine *, mr_bytes stage, mr_bytes name);
int client_stage_look(struct engine *, mr_bytes stage, mr_stage_info *);
int client_stages(struct engine *, int (*each)(const mr_stage_info *, void *arg), void *arg);
int client_stage_why(struct engine *, mr_bytes stage, char *out, size_t size);
int client_stage_set(struct engine *, mr_bytes stage, mr_bytes policy, mr_bytes value);
int client_stage_pause(struct engine *, mr_bytes stage);
int client_stage_pause_key(struct engine *, mr_bytes stage, mr_bytes key);
int client_stage_resume_key(struct engine *, mr_bytes stage, mr_bytes key);
int client_stage_drain(struct engine *, mr_bytes stage);
int client_stage_resume(struct engine *, mr_bytes stage);
int client_jobs(struct engine *, mr_bytes stage, const mr_job_filter *,
                int (*each)(const mr_job_info *, void *arg), void *arg);
int client_dead(struct engine *, mr_bytes stage,
                int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg);
int client_retry(struct engine *, mr_id);
int client_stage_cancel(struct engine *, mr_bytes stage, const mr_job_filter *, bool dry,
                        uint64_t *out_count);
int client_due(struct engine *, mr_id);
int client_drop(struct engine *, mr_id);

// The hook of a request that is refused because it has been done already: by the same request,
// before its answer was lost.
void act_hook(struct client *, struct exchange *, const struct response_value *, uint32_t count);

// ---- schedule.c -------------------------------------------------------------------------------

int client_schedule_set(struct engine *, mr_bytes stage, mr_bytes name, mr_bytes body,
                        const mr_schedule_options *);
int client_schedule_act(struct engine *, mr_bytes stage, mr_bytes name, enum schedule_act);
int client_schedule(struct engine *, mr_bytes stage, mr_bytes name, mr_schedule_info *);
int client_schedules(struct engine *, mr_bytes stage,
                     int (*each)(const mr_schedule_info *, void *arg), void *arg);

#endif
