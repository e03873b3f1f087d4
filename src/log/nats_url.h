// The URL of a store in NATS (stream_nats.h), read into its pieces. Pure.
#ifndef LOG_NATS_URL_H
#define LOG_NATS_URL_H

#include <stdbool.h>
#include <stdint.h>

#define NATS_SCHEME "nats://"

enum { NATS_SERVERS_MOST = 16, NATS_URL_MOST = 2048, NATS_REPLICAS_MOST = 5 };

// The pieces point into `text`: the struct must not be moved.
struct nats_url {
    const char *servers[NATS_SERVERS_MOST]; // nats://HOST:PORT
    uint32_t count;
    const char *user, *password; // NULL: not given
    uint32_t replicas;           // 0: not given
    bool tls;
    const char *ca, *cert, *key, *creds; // files; NULL: not given
    char text[NATS_URL_MOST + NATS_SERVERS_MOST * 16];
};

// MR_EINVAL: it is not such a URL; the message repeats nothing that may be a secret.
int nats_url_read(const char *url, struct nats_url *out);

#endif
