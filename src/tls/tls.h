// TLS without a socket: the caller passes in the bytes received from the network and sends the
// bytes that come out. So the server's loop, the client's thread and the command line share it, and
// it never blocks.
//
//     network ─► tls_receive ─► tls_read  ─► plain bytes
//     network ◄─ tls_unsent  ◄─ tls_write ◄─ plain bytes
//
// After each call there may be bytes to send. TLS 1.2 and later, with forward secrecy, without
// renegotiation, compression or resumption: every connection does a full handshake, so a replaced
// certificate is used from the next connection on.
//
// Any thread may use a context; a connection belongs to one thread at a time.
#ifndef TLS_TLS_H
#define TLS_TLS_H

#include "base/buffer.h"

struct tls_context; // certificates and trusted authorities
struct tls;         // one connection

// Files in PEM; NULL: none.
struct tls_files {
    const char *cert, *key; // our own; the certificate with its chain
    const char *ca; // trusted authorities. With it a server requires a certificate of every client;
                    // for a client NULL means those of the system.
};

// MR_EINVAL: a file cannot be read or used, or does not fit the others, with its name, or this
// build has no TLS. A context may be destroyed before its connections.
int tls_context_create(const struct tls_files *, bool server, struct tls_context **out);
void tls_context_destroy(struct tls_context *); // takes NULL

// Makes the server's side of a connection, or the client's, which verifies that the peer is `host`
// (a name or an address). MR_ENOMEM.
int tls_accept(struct tls_context *, struct tls **out);
int tls_connect(struct tls_context *, const char *host, struct tls **out);
void tls_destroy(struct tls *); // takes NULL

// Passes in bytes from the network. MR_ENOMEM.
int tls_receive(struct tls *, const void *data, size_t size);

// Continues the handshake. 1: it is complete; 0: more data are needed; MR_ENET: it has failed, with
// the reason.
int tls_handshake(struct tls *);
bool tls_is_up(const struct tls *); // whether the handshake succeeded

// Returns the number of plain bytes read; 0: none yet. MR_ENET: there will be no more, with the
// reason: the peer has closed its side, or the data are not authentic.
ptrdiff_t tls_read(struct tls *, void *to, size_t room);
bool tls_peer_closed(const struct tls *); // whether the peer has closed its side; it may still read

// Returns how many of these bytes were encrypted; 0: none before the handshake is complete.
// MR_ENET.
ptrdiff_t tls_write(struct tls *, const void *data, size_t size);

// Tells the peer that no more data follow.
void tls_end(struct tls *);

// The bytes to send, valid until the next call. Without memory for more, they stay in OpenSSL until
// a later call.
mr_bytes tls_unsent(struct tls *);
void tls_sent(struct tls *, size_t size);

#endif
