// Client: the engine that is a server, over sockets; the same calls as the one in this process.
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "engine/engine.h"

struct client_options {
    const char *user, *secret; // NULL: those of the URL, or none
    const char *name;          // of this program, for people; NULL: none
    // How long calls wait for a server that cannot be reached, before MR_ENET; 0: 30 s. Workers
    // wait for ever.
    uint64_t patience_ms;
};

// Connects to the server that `url` names: millrace://[USER:SECRET@]HOST[:PORT]. MR_EINVAL: that is
// no such URL; MR_ENET: nobody there, or nobody who speaks as a server of ours does; MR_EAUTH,
// MR_EPERM; MR_ENOMEM. A server that is still reading its store is waited for by the first call.
int client_open(const char *url, const struct client_options *, struct engine **out);

#endif
