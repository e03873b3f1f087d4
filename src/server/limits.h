// All limits of the server itself; those of the engine are elsewhere.
#ifndef SERVER_LIMITS_H
#define SERVER_LIMITS_H

#include "base/limits.h"

enum {
    LIMIT_ARGUMENTS = 1 << 16,       // of one request
    LIMIT_LINE = 64 << 10,           // bytes of an inline command
    LIMIT_ARGUMENT = ARGUMENT_MOST,  // bytes of one argument
    LIMIT_REQUEST = REQUEST_MOST,    // bytes of one request
    LIMIT_CLIENT_BYTES = 1024 << 20, // memory for all clients without max-bytes …
    LIMIT_CLIENT_LEAST = 64 << 20,   // … and the least with it: a quarter of max-bytes
    LIMIT_UNSENT_PAUSE = 256 << 10,  // unread replies: then no more commands are run
    LIMIT_UNSENT = 256 << 20,        // unread replies: then the connection is closed
    LIMIT_UNREAD_MS = 60000,         // no progress in reading them: closed; or --max-unread
    LIMIT_CLIENTS = 10000,           // connections, or --max-clients …
    LIMIT_CLIENTS_OF_ADDRESS = 5000, // … and from one address, or --max-per-address
    LIMIT_TAKEN = 16 << 20,          // bytes of one TAKE, after which no further stage is tried
    LIMIT_HELD = 20000,              // jobs that one connection has taken and not ended
    LIMIT_SESSION_STEPS = 20000,     // of work that one session does in a turn (see budget.h) …
    LIMIT_TURN_STEPS = 50000,        // … and of all deferred sessions together
    LIMIT_BUSY_STEPS = 100000,       // of all in a turn: then large commands are deferred …
    LIMIT_BUSY_SHARE = 50,           // … and a session gets this many
    LIMIT_CLEAN_STEPS = 20000,       // of cleaning logs in a turn
    LIMIT_COMMAND_STEPS = 120000,    // of one command: larger ones are divided
    LIMIT_GATHERED = 8 << 20,        // bytes of a command that several loops answer
    LIMIT_QUEUED = 1 << 16,          // commands between MULTI and EXEC …
    LIMIT_QUEUED_BYTES = 32 << 20,   // … and bytes of them
    LIMIT_ASYNC_CALLS = 1 << 16,     // calls with LATER of one connection
    UNAUTHENTICATED_ARGUMENTS = 8,   // of a request before AUTH, if that is required …
    UNAUTHENTICATED_ARGUMENT = 512,  // … bytes of one: of a secret …
    UNAUTHENTICATED_REQUEST = 2048,  // … and of all
    UNAUTHENTICATED_UNSENT_PAUSE = 16 << 10, // unread replies: then no more commands are run
    UNAUTHENTICATED_MS = 10000,              // for TLS and AUTH, if they are required
    LIMIT_UNAUTHENTICATED = 1024,            // connections that have not completed these …
    LIMIT_UNAUTHENTICATED_OF_ADDRESS = 128,  // … and of one address
    PEER_GROUPS = 1024,         // supplementary groups of a client of a Unix-domain socket
    LIMIT_SILENCE_S = 300,      // then TCP keepalive probes the peer
    EVICTED_NOTICE_MS = 1000,   // between notices of connections closed in favour of others
    REFUSED_NOTICE_MS = 60000,  // between notices of connections that were refused
    REFUSAL_MS = 1000,          // delay of the reply to a wrong secret; doubled each time
    REFUSALS = 3,               // wrong secrets after which the connection is closed
    LIMIT_NAME = 128,           // bytes of a client's name
    LIMIT_NAMES = 256,          // words that INFO, COMMAND, CONFIG and STAGE take
    LOOPS_MOST = 64,            // of one server: a set of loops is a 64-bit mask
    LIMIT_LISTED = LISTED_MOST, // rows of one reply, unless fewer are requested
    LIMIT_TOP_GROUPS = 5,       // groups of a stage that STAGES shows
    LIMIT_LOOKED = LOOKED_MOST, // jobs examined for one reply
    LIMIT_PIECE = 1000,         // jobs examined in one turn by a divided command
    BULK_MAX = 1000,            // jobs that RETRY and DROP change at once, by default
    SMALL_BUFFERS = 4 << 10,    // bytes of a session that still runs when memory is short
    LIMIT_READ_STEPS = 150000,  // of a turn: then no more sockets are read in it
    CONTINUED_TURNS = 3,        // in a row that only read what these have left
    READ_SIZE = 64 << 10,       // bytes read from a socket at once …
    READ_SHARE = 1 << 10,       // … and in a turn that has used LIMIT_BUSY_STEPS
    RESTING_READ = 128,         // sockets with input that are read again in the next turn …
    SKIPPED_READ = 2048,        // … and without
    ACCEPTED_MOST = 100,        // connections accepted in an iteration of the loop
    SENT_MOST = 256 << 10,      // bytes written to a socket at once …
    SENT_SHARE = 4 << 10,       // … and when all sockets have got LIMIT_SENT
    LIMIT_SENT = 8 << 20,       // bytes written to all sockets in an iteration of the loop
    SENT_COPIED = 64 << 10,     // bytes copied for a socket that accepts no more
};

#endif
