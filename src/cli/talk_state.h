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

// How an engine is reached. `receive` is talk_receive.
struct talk_impl {
    int (*open)(struct talks *);
    void (*close)(struct talks *);
    int (*join)(struct talk *); // one more connection
    void (*leave)(struct talk *);
    int (*send)(struct talk *, const mr_bytes *words, size_t count);
    int (*receive)(struct talk *, const struct response_value **out);
    // Does what can be done without waiting. `wait_ms` is how long the caller will wait for `ready`
    // then, and becomes less if something is due before: 0 if there are replies.
    int (*work)(struct talks *, int64_t *wait_ms);
};

extern const struct talk_impl remote_talk, local_talk;

struct talks {
    const struct talk_impl *impl;
    const char *command; // for complaints
    struct address address;
    struct talk *first;
    int signals;  // readable: a signal asks for the end
    int ready;    // an eventfd, written by the implementation: there may be replies
    void *engine; // of the implementation
};

#endif
