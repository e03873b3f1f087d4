// Client: the engine that is a server, over sockets; the same calls as the one in this process.
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "engine/engine.h"
#include "tls/tls.h"

struct client_options {
    const char *user, *secret; // NULL: those of the URL, or none
    const char *name;          // of this program, for people; NULL: none
    struct tls_files tls;      // of millraces:// only
    // How long calls wait for a server that cannot be reached, before MR_ENET; 0: 30 s. Workers
    // wait for ever.
    uint64_t unreachable_ms;
    bool refuses_full;  // client_open does not wait for a server that has no room for clients
    uint64_t repeat_ms; // how long a push may be sent again: see SOURCE_REPEAT_MS, which is 0
};

// Connects to the server that `url` names: millrace://[USER:SECRET@]HOST[:PORT], or millraces://…
// with TLS; in USER and SECRET a byte may be written as %XX. MR_EINVAL: that is no such URL, or a
// file cannot be used; MR_ENET: no server answers there, or it does not speak this protocol,
// or its certificate is not trusted; MR_EAUTH, MR_EPERM; MR_ENOMEM. A server that is still reading
// its store is waited for by the first call.
int client_open(const char *url, const struct client_options *, struct engine **out);

#endif
