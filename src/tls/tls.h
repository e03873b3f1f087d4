// TLS without a socket: what came from the network goes in, what is to go there comes out, and on
// the other side are the plain bytes. So the server's loop, the client's thread and the commands
// share it, and none of them has to wait in it.
//
//     network ─► tls_receive ─► tls_read  ─► plain bytes
//     network ◄─ tls_unsent  ◄─ tls_write ◄─ plain bytes
//
// After each call there may be something to send, whatever the call was for. TLS 1.2 and later,
// with forward secrecy, without renegotiation, compression or resumption: every connection shows
// its certificates anew, so one that is replaced is seen from the next connection on.
//
// A context serves any threads; a connection belongs to one at a time.
#ifndef TLS_TLS_H
#define TLS_TLS_H

#include "base/buffer.h"

struct tls_context; // certificates and whom to trust
struct tls;         // one connection

// Files in PEM; NULL: none.
struct tls_files {
    const char *cert, *key; // what is shown to the other side; the certificate with its chain
    const char *ca; // whom to trust. A server then asks every client for a certificate; for a
                    // client NULL means whom the system trusts.
};

// MR_EINVAL: a file cannot be read or used, or does not fit the others, with its name, or this
// build has no TLS. Connections keep what they need of a context: it may be destroyed before them.
int tls_context_create(const struct tls_files *, bool server, struct tls_context **out);
void tls_context_destroy(struct tls_context *); // takes NULL

// A server's side of a connection, or a client's, which verifies that it speaks to `host` (a name
// or an address). MR_ENOMEM.
int tls_accept(struct tls_context *, struct tls **out);
int tls_connect(struct tls_context *, const char *host, struct tls **out);
void tls_destroy(struct tls *); // takes NULL

// These came from the network. MR_ENOMEM.
int tls_receive(struct tls *, const void *data, size_t size);

// The handshake: 1: it is over; 0: more has to come; MR_ENET: it has failed, and why.
int tls_handshake(struct tls *);
bool tls_is_up(const struct tls *); // whether it is over, and well

// How many plain bytes were put there; 0: none have come yet. MR_ENET: there will be no more, and
// why: the other side has said so, or what came is not to be trusted.
ptrdiff_t tls_read(struct tls *, void *to, size_t room);
bool tls_peer_closed(const struct tls *); // whether the other side has said so; it may still listen

// How many of these are on their way; 0: none can be before the handshake. MR_ENET.
ptrdiff_t tls_write(struct tls *, const void *data, size_t size);

// Says to the other side that nothing follows.
void tls_end(struct tls *);

// What the network is to be given, until the next call. If there is no memory for it, it waits.
mr_bytes tls_unsent(struct tls *);
void tls_sent(struct tls *, size_t size);

#endif
