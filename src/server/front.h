// Front: what stands between a connection and its session where clients do not speak RESP: it makes
// commands of what arrives, and of their replies what is sent. HTTP has one (src/web).
//
//     network ─► front_room, front_receive ─► session_command ─┐
//                                                              ├ the session
//     network ◄─ front_ready, front_sent   ◄─ session_ready   ◄┘
//
// A session without one is spoken to itself. One thread.
#ifndef SERVER_FRONT_H
#define SERVER_FRONT_H

#include "server/session.h"

#include <uv.h>

// What the fronts of a server have to know of it. Borrowed until they end.
struct front_place {
    uv_loop_t *loop; // handles in it are closed with those of the server
    struct host *host;
    const char *address; // where they listen
    const char *names;   // what else clients may call that, with commas between; NULL: nothing
    void (*turn_end)(void *server); // a turn that was begun elsewhere than in a front ends
    void *server;
};

struct front {
    const struct front_impl *impl;
};

struct front_impl {
    // What all fronts of a server share. MR_ENOMEM. It ends after its handles were closed.
    int (*start)(const struct front_place *, void **out_all);
    void (*stop)(void *all); // takes NULL

    // A turn has begun, and nothing was changed in it yet.
    void (*turn)(void *all, struct host *); // in any loop's thread

    // For a connection, from an address of QUOTA_ADDRESS bytes (NULL: from this machine).
    // MR_EFULL: there are too many; MR_ENOMEM. It is closed before its session is, in a turn.
    int (*open)(void *all, struct session *, const uint8_t *address, struct front **out);
    void (*close)(struct front *); // takes NULL

    // What to send to whom it cannot be opened for. Returns its size.
    size_t (*refuse)(const char *why, char *to, size_t room);

    // As those of the session.
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
