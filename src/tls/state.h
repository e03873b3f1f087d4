// The state of a connection; for the files of this folder only.
#ifndef TLS_STATE_H
#define TLS_STATE_H

#include "tls/tls.h"

#include <openssl/ssl.h>

struct tls {
    SSL *ssl;
    BIO *in, *out;         // in memory; owned by `ssl`
    struct buffer pending; // encrypted bytes, from `out` …
    size_t pending_sent;   // … and how many of them were sent
};

#endif
