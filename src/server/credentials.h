// Credentials: the files of tokens and certificates. The server reads them before it listens, and
// again on SIGHUP: an invalid file then changes nothing and is reported in the log.
#ifndef SERVER_CREDENTIALS_H
#define SERVER_CREDENTIALS_H

#include "server/host.h"
#include "tls/tls.h"

struct credentials {
    const char *auth;            // the file of tokens; NULL: no token is required
    struct tls_files tls;        // without a certificate there is no TLS
    struct tls_context *context; // for new connections; NULL: no TLS
};

// Errors of auth_load and tls_context_create. Hosts of other loops get copies of the host's tokens.
int credentials_open(struct credentials *, struct host *);

// Within a turn. For existing connections see host_set_auth. Whether there are new tokens.
bool credentials_reload(struct credentials *, struct host *);

// Writes notices about tokens that have more than their quotas: they keep it.
void credentials_note_exceeded(struct host *);

void credentials_close(struct credentials *); // the tokens are the host's

#endif
