// What talk.c and the two implementations of a connection share.
#ifndef CLI_TALK_STATE_H
#define CLI_TALK_STATE_H

#include "cli/engine.h"
#include "cli/talk.h"

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

// Waits for `fds` (the first two are left to be filled with the signals and `fd`; one that is -1 is
// none) up to `wait_ms`: 1 if `fd` can be read. MR_ECANCELLED: interrupted.
struct pollfd;
int talks_wait(const struct talks *, struct pollfd *fds, size_t count, int fd, int64_t wait_ms);

#endif
