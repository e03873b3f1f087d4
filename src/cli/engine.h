// Engine: which engine a command line names, opening it by the public API, and what its errors mean
// for people. What the library has no call for is asked on the wire: see talk.h.
#ifndef CLI_ENGINE_H
#define CLI_ENGINE_H

#include "cli/cli.h"
#include "cli/interrupts.h"
#include "millrace.h"
#include "tls/tls.h"
#include "wire/code.h"
#include "wire/url.h"

// ---- Its address ------------------------------------------------------------------------------

// The engine that --at, else MILLRACE_URL names; else the usual one.
struct address {
    const char *text; // the URL itself; borrowed; NULL: it could not be read
    struct engine_url url;
    char secret[URL_SECRET]; // of the URL, else of the environment; "": none
    struct tls_files tls;    // of millraces://; borrowed
};

// MR_EINVAL: that is no URL, or options do not fit it.
int address_read(const struct input *, struct address *out);

// Whether the engine lives in this process: then no other process can work on what it has.
bool address_is_local(const struct input *);

enum engine_store {
    STORE_IS_MADE,    // a directory that is missing is made
    STORE_MUST_EXIST, // it is refused: nothing could be in it
};

// MR_EGONE: a directory that must exist does not.
int address_check_store(const struct address *, enum engine_store);

enum { ADDRESS_OPTION = 520 };

// What a command that is suggested needs to reach the same engine: " --at URL", without a secret,
// if that was given; else "": the environment, or the usual address, does for both. Returns `out`.
const char *address_option(const struct input *, char out[ADDRESS_OPTION]);

// ---- Opening ----------------------------------------------------------------------------------

// mr_open, in which a signal ends the process: a large store takes its time, and so does a server.
// `signals` is of interrupts_open. Errors of mr_open; MR_EIO.
int engine_open_url(const char *url, const mr_options *, int signals, mr **out);

// The same for an address, as a client called `name`.
int engine_open(const struct address *, const char *name, int signals, mr **out);

// For commands that make a few calls, which may wait, and then end: from engine_begin until
// engine_end a signal ends the process at once, with CLI_INTERRUPTED.
struct engine_use {
    const char *command;
    struct address address;
    mr *engine;
    int signals;
    struct listener listener;
};

// Opens the engine of the command line. Anything but CLI_DONE: it cannot be opened, and that was
// said; nothing is to be ended then.
enum cli_exit engine_begin(const struct input *, enum engine_store, struct engine_use *);
void engine_end(struct engine_use *);

// Says what a call has answered; returns what to exit with.
enum cli_exit engine_failed(const struct engine_use *, int err);

// Says why an engine could not be opened; returns what to exit with. If the address could not be
// read, that is the reason.
enum cli_exit engine_unopened(const char *command, const struct address *, int err);

// ---- Using it ---------------------------------------------------------------------------------

// What an error of the server, or of the public API, means for the exit code.
enum cli_exit exit_of_code(enum code);
enum cli_exit exit_of_error(int err);

// What is said to a client that a server asks for a token, and that has none.
#define ENGINE_TOKEN                                                                               \
    "this server asks for a token: it comes from MILLRACE_TOKEN, from the file that "              \
    "MILLRACE_TOKEN_FILE names, or from the URL"

// What is said of a server that has gone, before the reason, and when it is there again.
#define ENGINE_AGAIN "trying again: "
#define ENGINE_BACK "connected again"

// How an engine is to its workers. Zero, but for the first two, is a valid start.
struct engine_state {
    mr *engine;
    bool local;
    int trouble; // of mr_check, when last looked at; 0: none
};

// Looks at it. True: there is news, and `out` (of `size` bytes) has it in words: what keeps workers
// from it just now, or that nothing does any more.
bool engine_news(struct engine_state *, char *out, size_t size);

// Whether trying again cannot help: the server refuses this worker, or the store of an engine in
// this process has failed.
bool engine_is_lost(const struct engine_state *);

#endif
