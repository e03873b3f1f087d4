// Store URL: where an engine keeps its logs.
//
//     mem:        in memory
//     file:DIR    in the directory DIR
//     postgres://USER@HOST/DATABASE    in a PostgreSQL database, as libpq reads it
//     nats://HOST:PORT,HOST:PORT       in NATS JetStream (log/stream_nats.h)
//
// Pure.
#ifndef BASE_STORE_URL_H
#define BASE_STORE_URL_H

#include <stddef.h>

enum store_scheme { STORE_IN_MEMORY, STORE_IN_FILES, STORE_IN_POSTGRES, STORE_IN_NATS };

#define STORE_SCHEMES                                                                              \
    "mem:, file:DIR, postgres://USER@HOST/DATABASE, nats://HOST,HOST" // for messages

#define STORE_CLUSTER "main"

// Zeros mean `mem:`.
struct store_url {
    enum store_scheme scheme;
    const char *text;    // the directory of file:DIR, else the whole URL; borrowed, or NULL
    const char *cluster; // which of those in the database or NATS; NULL: STORE_CLUSTER
};

// Reads `url`; the result borrows it. MR_EINVAL: this build knows no such store. The message does
// not repeat the URL if there may be a secret in it.
int store_url_read(const char *url, struct store_url *out);

// `file:` with this directory; `mem:` if it is NULL.
static inline struct store_url store_in(const char *dir) {
    return (struct store_url){ .scheme = dir ? STORE_IN_FILES : STORE_IN_MEMORY, .text = dir };
}

// The directory of a `file:` store; NULL: it is another store.
static inline const char *store_url_dir(const struct store_url *s) {
    return s->scheme == STORE_IN_FILES ? s->text : NULL;
}

#endif
