// Talk: sends requests of the wire protocol to an engine and returns the replies, for commands that
// need more than the public API offers: lists, and changes of stages. A server
// (millrace://HOST:PORT) is reached over the client library's connections; for file:DIR and mem:
// sessions run in this process. So a command works with every engine.
//
//     talk_send ─► requests ─► talks_turn ─► replies ─► talk_receive
//                                 │
//            client/request.h, or the sessions of a host in this process
//
// Only talks_turn waits, and Ctrl-C or SIGTERM ends that. One thread.
#ifndef CLI_TALK_H
#define CLI_TALK_H

#include "cli/engine.h"
#include "wire/code.h"
#include "wire/response.h"

struct talks; // the connections of this process with one engine
struct talk;  // one of them

// Opens the engine that the command line names, and a first connection. Anything but CLI_DONE: it
// cannot be reached or opened, and the reason was printed. From then on signals that would end the
// process only end waits.
enum cli_exit talk_begin(const struct input *, enum engine_store, struct talks **out_talks,
                         struct talk **out);

// Closes all connections, and an engine in this process. Takes NULL.
void talks_close(struct talks *);

// Opens one more connection, which talks_close closes, if talk_close has not. Errors as those of
// talk_begin.
enum cli_exit talk_open(struct talks *, struct talk **out);

// Closes a connection of talk_open. Replies that are missing are dropped.
void talk_close(struct talk *);

// ---- Requests ---------------------------------------------------------------------------------

enum { WORDS_NUMBERS = 8, WORDS_DIGITS = 24 };

// A request being put together. Zero is a valid start; bytes are borrowed until it was sent. The
// first failure is remembered, and returned by talk_send.
struct words {
    mr_bytes *list;
    size_t count, capacity;
    char digits[WORDS_NUMBERS][WORDS_DIGITS];
    size_t numbers;
    int err;
};

void words_add(struct words *, mr_bytes);
void words_text(struct words *, const char *text);
void words_option(struct words *, const char *name, const char *value); // neither, if it is NULL
void words_number(struct words *, int64_t);
void words_clear(struct words *); // for the next request
void words_finish(struct words *);

// ---- Dialogue ---------------------------------------------------------------------------------

// Puts a request behind those before it; the next turn sends it, once. MR_ENOMEM; MR_ENET: there is
// no connection just now.
int talk_send(struct talk *, const struct words *);

// Sends requests, then waits up to `wait_ms` (-1: for ever) until a connection has received
// something or `fd` (-1: none) can be read: 1 if it can, else 0. MR_ECANCELLED: interrupted.
int talks_turn(struct talks *, int fd, int64_t wait_ms);

// The next reply: 1, and its values until the next turn or reply of any connection; 0: it is not
// there yet; MR_ENET: the connection was lost before it came.
int talk_receive(struct talk *, const struct response_value **out);

// Sends a request and waits for its reply; no other may be pending.
int talk_ask(struct talk *, const struct words *, const struct response_value **out);

// The same; anything but CLI_DONE: it failed or was refused, and the reason was printed.
enum cli_exit talk_get(struct talk *, const struct words *, const struct response_value **out);

bool error_is(const struct response_value *reply, enum code); // an error, and that one

// Prints an error of the server, or a failure of the calls above; returns what to exit with.
enum cli_exit talk_refused(const struct talk *, const struct response_value *error);
enum cli_exit talk_failed(const struct talk *, int err);

// Prints a reply that is no error; returns what to exit with.
typedef enum cli_exit answered(const struct input *, const struct response_value *reply);

// For a command with one request: opens the engine, sends the words, which it frees, prints the
// reply, and closes.
enum cli_exit talk_once(const struct input *, enum engine_store, struct words *, answered *);

// For a command that lists: requests as many rows as --top says, by the `option` of the wire, and
// prints them (show.h). Frees the words.
enum { TALK_ROWS = 50, TALK_ROWS_MOST = 1000 };
struct cli_listing;
enum cli_exit talk_page(const struct input *, struct words *, const char *option,
                        const struct cli_listing *);

#endif
