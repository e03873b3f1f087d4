// Credentials: what a server reads from files beside its store: who may do what, and certificates.
// They are read before it listens, and again on SIGHUP: what is wrong then changes nothing, and is
// said.
#ifndef SERVER_CREDENTIALS_H
#define SERVER_CREDENTIALS_H

#include "server/host.h"
#include "tls/tls.h"

struct credentials {
    const char *auth;            // the file of tokens; NULL: nobody is asked
    struct tls_files tls;        // without a certificate there is no TLS
    struct tls_context *context; // of connections from now on; NULL: no TLS
};

// Errors of auth_load and tls_context_create.
int credentials_open(struct credentials *, struct host *);
int credentials_open_tokens(struct credentials *, struct host *); // of another loop's host

// Within a turn. Who was connected goes on, as host_set_auth says.
void credentials_reload(struct credentials *, struct host *);
void credentials_reload_tokens(struct credentials *, struct host *);

void credentials_close(struct credentials *); // the tokens are the host's

#endif
