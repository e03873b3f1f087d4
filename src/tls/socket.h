// A client's socket, and TLS over it. The socket must not block; then these behave as send and recv
// do, and errno is EPROTO where TLS itself has failed: error_text() says why.
#ifndef TLS_SOCKET_H
#define TLS_SOCKET_H

#include "tls/tls.h"

#include <sys/types.h>

// Of every client, with TLS or without: small requests go at once, and a peer that has gone without
// a word is noticed by the system.
void socket_set_up(int fd);

// The handshake: 1: it is over; 0: more has to come; -1: errno.
int secure_handshake(struct tls *, int fd);

// How many bytes were taken, whether or not the socket has them all already; none to give (size 0)
// sends what is left of that. -1: errno, EAGAIN also before the handshake is over.
ssize_t secure_send(struct tls *, int fd, const void *data, size_t size);

// Whether something was taken that the socket does not have yet: wait until it can be written.
bool secure_is_blocked(struct tls *);

// Until it says EAGAIN, more may have come than the socket tells.
ssize_t secure_recv(struct tls *, int fd, void *to, size_t room);

#endif
