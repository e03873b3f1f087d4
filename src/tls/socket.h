// A client's socket, and TLS over it. The socket must be non-blocking. These functions behave as
// send and recv do; errno is EPROTO when TLS itself has failed: error_text() says why.
#ifndef TLS_SOCKET_H
#define TLS_SOCKET_H

#include "tls/tls.h"

#include <sys/types.h>

// Sets options for every client socket, with TLS or without: small requests are sent at once, and
// the system detects a peer that has disappeared.
void socket_set_up(int fd);

// Continues the handshake. 1: it is complete; 0: more data are needed; -1: errno.
int secure_handshake(struct tls *, int fd);

// Returns how many bytes were accepted; some may still wait to be sent (secure_is_blocked). Size 0
// only sends those. -1: errno, EAGAIN also before the handshake is complete.
ssize_t secure_send(struct tls *, int fd, const void *data, size_t size);

// Whether accepted bytes still wait: wait until the socket is writable.
bool secure_is_blocked(struct tls *);

// Call until EAGAIN: TLS may have buffered data although the socket is not readable.
ssize_t secure_recv(struct tls *, int fd, void *to, size_t room);

#endif
