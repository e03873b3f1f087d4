// Dialogue: a server without sockets, driven by requests and expected replies. The host, sessions
// and shards are real; the test controls the clock, the disk and every turn.
//
//     send_line(d, 0, "PUSH s hello KEY k");
//     expect_reply(d, 0, "\"1\"");
//
// Replies are spelled in the same way for RESP2 and RESP3:
//
//     +OK   -CODE sentence   :7   "bytes"   nil   ,0.5   [a b]   {name value}   >[push]
//
// where bytes that do not print are \xHH; an asterisk in the expected text matches anything. Every
// `send_line` is a separate turn; all replies must have been checked when a test ends.
#ifndef TEST_SUPPORT_DIALOGUE_H
#define TEST_SUPPORT_DIALOGUE_H

#include "server/router.h"
#include "server/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim_disk.h"

enum { DIALOGUE_CLIENTS = 8, DIALOGUE_LOOPS = 3 };

struct client {
    struct session *session; // NULL: not connected
    struct buffer received;  // and not yet expected
    bool unread;             // it does not read its replies
    bool closed;             // by the server
};

struct dialogue {
    struct host host; // that the clients are connected to: the last of the loops …
    struct host others[DIALOGUE_LOOPS - 1]; // … and the ones before it
    struct loops loops;
    struct group_options options;
    struct group *group;
    struct sim_disk *disk;                   // NULL: the store is in memory
    bool threaded, held;                     // syncs are waited for, unless they are held back
    struct fetch *fetches[DIALOGUE_CLIENTS]; // that have not been read yet, if `fetch` is used
    int fetch_count;
    uint64_t now_ms;
    struct client clients[DIALOGUE_CLIENTS];
};

enum store { STORE_MEMORY, STORE_DISK, STORE_THREAD, STORE_LATER };

// How many shards the servers have that are made from now on; 1 at first.
extern uint32_t dialogue_shards;

// How many loops they have, each with a host, all driven by the test's thread; 1 at first.
extern uint32_t dialogue_loops;
extern bool dialogue_in_one_loop; // DIALOGUES leaves several out

// STORE_DISK: a file log on a simulated disk; STORE_THREAD: and its writer has a thread;
// STORE_LATER: it is not there until dialogue_load. Clients 0 and 1 are connected.
struct dialogue *dialogue_create(enum store, struct core_limits);
void dialogue_load(struct dialogue *);
void dialogue_destroy(struct dialogue *);
int dialogue_setup(void **state); // in memory
int dialogue_teardown(void **state);
void dialogue_check(const struct dialogue *); // every rule holds

// Runs tests with one shard, with three, and with three in three loops; and those with one shard
// only that show ids, or the order in which different channels start. Returns how many failed.
int dialogue_run(const struct CMUnitTest *any, size_t any_count, const struct CMUnitTest *alone,
                 size_t alone_count);
#define DIALOGUES(any, alone)                                                                      \
    dialogue_run(any, sizeof(any) / sizeof *(any), alone, sizeof(alone) / sizeof *(alone))

#define DIALOGUE(test)                                                                             \
    { #test, test, dialogue_setup, dialogue_teardown, NULL }

void connect_client(struct dialogue *, int client);
void hang_up(struct dialogue *, int client);
void half_close(struct dialogue *, int client); // it still listens
void turn(struct dialogue *);      // and those that follow because budgets were used up …
void turn_once(struct dialogue *); // … or this one alone
void hold_syncs(struct dialogue *,
                bool hold); // with a writer's thread; replies arrive when durable
void pass_ms(struct dialogue *, uint64_t ms);

// For a test that inspects one session or host: it does not run with several loops.
#define ONE_LOOP_ONLY                                                                              \
    if (dialogue_loops > 1)                                                                        \
    return

// Of all loops: see host.h.
int64_t dialogue_next_ms(struct dialogue *);
uint64_t dialogue_leases(struct dialogue *);
void dialogue_stop(struct dialogue *);

// Nothing is in memory any more; what has to be read is read when the test says.
void chill(struct dialogue *);
void fetch_all(struct dialogue *);

// Words are parted by blanks; 'a b' is one word, '' an empty one.
// In requests and expected replies, #2 is the id of the second job of stage s.
void send_line(struct dialogue *, int client, const char *words);
void send_linef(struct dialogue *, int client, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void send_words(struct dialogue *, int client, const mr_bytes *words, size_t count);
void send_bytes(struct dialogue *, int client, mr_bytes bytes); // as they stand
void send_in_pieces(struct dialogue *, int client, mr_bytes bytes, size_t size);

// One reply, or a push message.
#define expect_reply(d, client, text) expect_reply_at(d, client, text, __FILE__, __LINE__)
void expect_reply_at(struct dialogue *, int client, const char *text, const char *file, int line);
#define expect_no_reply(d, client) expect_no_reply_at(d, client, __FILE__, __LINE__)
void expect_no_reply_at(struct dialogue *, int client, const char *file, int line);
const char *next_reply(struct dialogue *, int client);   // spelled; until the next call
bool reply_fits(const char *pattern, const char *reply); // an asterisk stands for anything
// A field of a map among the values of one reply.
void expect_field(struct dialogue *, int client, const char *name, const char *value);

// A request and its reply.
#define ask(d, client, words, text)                                                                \
    do {                                                                                           \
        send_line(d, client, words);                                                               \
        expect_reply(d, client, text);                                                             \
    } while (0)

struct job {
    char id[24], token[40], key[64], body[64];
};

// TAKE with these words behind it gives one job; one that waited gives it later.
struct job take(struct dialogue *, int client, const char *words);
struct job taken(struct dialogue *, int client);
void push(struct dialogue *, const char *words); // PUSH with these words, by client 1

#endif
