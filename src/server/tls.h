// Decrypts and encrypts the bytes between a connection and its session.
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include "server/session.h"
#include "tls/tls.h"

// Passes decrypted bytes to the session. 1: all were passed; 0: the session accepts no more now,
// and the rest waits. MR_ENET: the peer has closed the connection, or TLS has failed. Begins a turn
// if it passes any bytes.
int tls_pour(struct tls *, struct session *);

// Encrypts replies that may be sent, a limited number of bytes at once, and returns the bytes for
// the socket. A failure breaks the session.
mr_bytes tls_gather(struct tls *, struct session *, size_t most);

#endif
