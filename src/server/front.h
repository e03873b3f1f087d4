// Front: a translator between a connection and its session for clients that do not use RESP: it
// turns received bytes into commands, and their replies into bytes to send. HTTP has one (src/web).
//
//     network ─► front_room, front_receive ─► session_command ─┐
//                                                              ├ the session
//     network ◄─ front_ready, front_sent   ◄─ session_ready   ◄┘
//
// A session without a front receives the bytes itself. One thread.
#ifndef SERVER_FRONT_H
#define SERVER_FRONT_H

#include "server/session.h"

#include <uv.h>

// What the fronts of a server use. Borrowed until they stop.
struct front_place {
    uv_loop_t *loop; // handles in it are closed with those of the server
    struct host *host;
    const char *address;            // where they listen
    const char *names;              // other names of that address, separated by commas; NULL: none
    void (*turn_end)(void *server); // ends a turn that a front has begun
    void *server;
};

struct front {
    const struct front_impl *impl;
};

struct front_impl {
    // Makes the state that all fronts of a server share. MR_ENOMEM. `stop` is called after its
    // handles were closed.
    int (*start)(const struct front_place *, void **out_all);
    void (*stop)(void *all); // takes NULL

    // Called at the start of a turn, before any change.
    void (*turn)(void *all, struct host *); // in any loop's thread

    // Opens a front for a connection from an address of QUOTA_HOLDER bytes (NULL: this machine).
    // MR_EFULL: too many; MR_ENOMEM. It is closed before its session, in a turn.
    int (*open)(void *all, struct session *, const uint8_t *address, struct front **out);
    void (*close)(struct front *); // takes NULL

    // Writes the refusal for a connection that cannot be opened. Returns its size.
    size_t (*refuse)(const char *why, char *to, size_t room);

    // As the functions session_… of the same names.
    uint8_t *(*room)(struct front *, size_t *out_size);
    void (*receive)(struct front *, size_t size);
    mr_bytes (*ready)(struct front *);
    void (*sent)(struct front *, size_t size);
    bool (*is_over)(const struct front *);
};

static inline uint8_t *front_room(struct session *s, size_t *out_size) {
    return s->front ? s->front->impl->room(s->front, out_size) : session_room(s, out_size);
}

static inline void front_receive(struct session *s, size_t size) {
    if (s->front)
        s->front->impl->receive(s->front, size);
    else
        session_receive(s, size);
}

static inline mr_bytes front_ready(struct session *s) {
    return s->front ? s->front->impl->ready(s->front) : session_ready(s);
}

static inline void front_sent(struct session *s, size_t size) {
    if (s->front)
        s->front->impl->sent(s->front, size);
    else
        session_sent(s, size);
}

static inline bool front_is_over(const struct session *s) {
    return s->front && !s->broken ? s->front->impl->is_over(s->front) : session_is_over(s);
}

#endif
