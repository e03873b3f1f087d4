// Between a session and its connection, where that is encrypted.
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include "server/session.h"
#include "tls/tls.h"

// Gives the session what can be read, until there is no more: 1; or until the session takes nothing
// now, and the rest waits: 0. MR_ENET: the other side has ended it, or TLS has failed. A turn
// begins when something was given.
int tls_pour(struct tls *, struct session *);

// Encrypts replies that may be sent, though not very many at once, and returns all that the network
// is to be given. A failure breaks the session.
mr_bytes tls_gather(struct tls *, struct session *);

#endif
