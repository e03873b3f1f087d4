// Engine: which engine a command line names, opening it by the public API, and the exit codes and
// messages for its errors. Requests that the library has no call for go through talk.h.
#ifndef CLI_ENGINE_H
#define CLI_ENGINE_H

#include "cli/cli.h"
#include "cli/interrupts.h"
#include "millrace.h"
#include "tls/tls.h"
#include "wire/code.h"
#include "wire/url.h"

// ---- Its address ------------------------------------------------------------------------------

// The engine that --at, else MILLRACE_URL names; else the default.
struct address {
    const char *text; // the URL itself; borrowed; NULL: it could not be read
    struct engine_url url;
    char secret[URL_SECRET]; // of the URL, else of the environment; "": none
    struct tls_files tls;    // of millraces://; borrowed
};

// MR_EINVAL: that is no URL, or options do not fit it.
int address_read(const struct input *, struct address *out);
// The same of this URL, which it borrows.
int address_read_url(const struct input *, const char *url, struct address *out);

// Whether the engine lives in this process: then no other process can work on what it has.
bool address_is_local(const struct input *);

enum engine_store {
    STORE_IS_MADE,    // a directory that is missing is made
    STORE_MUST_EXIST, // it is refused: nothing could be in it
};

// MR_EGONE: a directory that must exist does not.
int address_check_store(const struct address *, enum engine_store);

enum { ADDRESS_OPTION = URL_WHERE + 8 };

// What a suggested command needs to reach the same engine: " --at URL", without a secret, if --at
// was given; else "": it finds the same environment, or uses the default. Returns `out`.
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

// Opens the engine of the command line. Anything but CLI_DONE: it cannot be opened, and the reason
// was printed; engine_end must not be called then.
enum cli_exit engine_begin(const struct input *, enum engine_store, struct engine_use *);
void engine_end(struct engine_use *);

// Prints the error that a call has answered; returns what to exit with.
enum cli_exit engine_failed(const struct engine_use *, int err);

// Prints why an engine could not be opened; returns what to exit with. If the address could not be
// read, that is the reason.
enum cli_exit engine_unopened(const char *command, const struct address *, int err);

// ---- Using it ---------------------------------------------------------------------------------

// What an error of the server, or of the public API, means for the exit code.
enum cli_exit exit_of_code(enum code);
enum cli_exit exit_of_error(int err);

// The message for a client without a token, if the server requires one.
#define ENGINE_TOKEN                                                                               \
    "this server asks for a token: it comes from MILLRACE_TOKEN, from the file that "              \
    "MILLRACE_TOKEN_FILE names, or from the URL"

// The beginning of the message that the server cannot be reached, before the reason; and the
// message that it can be reached again.
#define ENGINE_AGAIN "trying again: "
#define ENGINE_BACK "connected again"

// Whether workers can take from an engine. Only the first two members are set at the start.
struct engine_state {
    mr *engine;
    bool local;
    int trouble; // of mr_check, when last looked at; 0: none
};

// Checks that. True: it has changed, and `out` (of `size` bytes) gets the message.
bool engine_news(struct engine_state *, char *out, size_t size);

// Whether trying again cannot help: the server refuses this worker, or the store of an engine in
// this process has failed.
bool engine_is_lost(const struct engine_state *);

#endif
