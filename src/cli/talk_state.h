// What talk.c and the two implementations of a connection share.
#ifndef CLI_TALK_STATE_H
#define CLI_TALK_STATE_H

#include "cli/talk.h"
#include "tls/tls.h"
#include "wire/url.h"

// What is said of a server that has gone, before the reason, and when it is there again.
#define TALK_AGAIN "trying again: "
#define TALK_BACK "connected again"

// The engine of this command line.
struct address {
    const char *text; // the URL itself; borrowed
    struct engine_url url;
    char secret[URL_SECRET]; // of the URL, else of the environment; "": none
    struct tls_files tls;    // of millraces://; borrowed
};

struct talk {
    struct talks *talks;
    struct talk *next;
    void *connection; // of the implementation
};

// How an engine is reached. `receive` is talk_receive, `turn` is talks_turn.
struct talk_impl {
    int (*open)(struct talks *);
    void (*close)(struct talks *);
    int (*join)(struct talk *); // one more connection
    void (*leave)(struct talk *);
    int (*send)(struct talk *, const mr_bytes *words, size_t count);
    int (*receive)(struct talk *, const struct response_value **out);
    int (*turn)(struct talks *, int fd, int64_t wait_ms);
};

extern const struct talk_impl remote_talk, local_talk;

struct talks {
    const struct talk_impl *impl;
    const char *command; // for complaints
    struct address address;
    struct talk *first;
    int signals;  // readable: somebody wants this to end
    void *engine; // of the implementation
};

// Reads --at, else MILLRACE_URL, and what goes with it. MR_EINVAL.
int talk_address(const struct input *, struct address *out);

// Opens it by the public API, as a client called `name`; for commands that work. A signal ends the
// process meanwhile; `signals` is of interrupts_open. Errors of mr_open; MR_EIO.
int talk_engine(const struct input *, const char *name, int signals, mr **out);

// What an error of the public API means for the exit code, as that of the server's reply would.
enum cli_exit talk_exit(int err);

// Whether there is news of the server of `engine`: what keeps workers from it just now, which is
// noted in `trouble` (mr_check), or that nothing does any more. `out` (of `size` bytes) has it in
// words. MR_EPERM is final: trying again would not help.
bool talk_news(mr *engine, int *trouble, char *out, size_t size);

// Waits for `fds` (the first two are left to be filled with the signals and `fd`; one that is -1 is
// none) up to `wait_ms`: 1 if `fd` can be read. MR_ECANCELLED: interrupted.
struct pollfd;
int talks_wait(const struct talks *, struct pollfd *fds, size_t count, int fd, int64_t wait_ms);

#endif
