// Every limit of the server that is not the engine's, in one place.
#ifndef SERVER_LIMITS_H
#define SERVER_LIMITS_H

#include "base/limits.h"

enum {
    LIMIT_ARGUMENTS = 1 << 16,       // of one request
    LIMIT_LINE = 64 << 10,           // bytes of an inline command
    LIMIT_ARGUMENT = ARGUMENT_MOST,  // bytes of one argument
    LIMIT_REQUEST = REQUEST_MOST,    // bytes of one request
    LIMIT_CLIENT_BYTES = 1024 << 20, // memory for all clients where there is no max-bytes …
    LIMIT_CLIENT_LEAST = 64 << 20,   // … and the least where there is: a quarter of that
    LIMIT_UNSENT_PAUSE = 256 << 10,  // replies nobody has read yet: then the session rests
    LIMIT_UNSENT = 256 << 20,        // replies nobody has read yet: then it is closed
    LIMIT_UNREAD_MS = 60000,         // nothing of them is read: the same; or --max-unread
    LIMIT_CLIENTS = 10000,           // connections, or --max-clients …
    LIMIT_CLIENTS_OF_ADDRESS = 5000, // … and from one address, or --max-per-address
    LIMIT_TAKEN = 16 << 20,          // bytes of one TAKE, after which no other stage is asked
    LIMIT_HELD = 20000,              // jobs that one connection has taken and not ended
    LIMIT_SESSION_STEPS = 20000,     // of work that one session does in a turn (see budget.h) …
    LIMIT_TURN_STEPS = 50000,        // … and of those together that could not finish theirs
    LIMIT_BUSY_STEPS = 100000,       // of all in a turn: what may be large then waits …
    LIMIT_BUSY_SHARE = 200,          // … and a session has so many
    LIMIT_COMMAND_STEPS = 120000,    // of one command: what could be more is done in pieces
    LIMIT_QUEUED = 1 << 16,          // commands between MULTI and EXEC …
    LIMIT_QUEUED_BYTES = 32 << 20,   // … and bytes of them
    LIMIT_ASYNC_CALLS = 1 << 16,     // calls of one connection whose ends are told LATER
    UNAUTHENTICATED_ARGUMENTS = 8,   // of a request before AUTH, where it is asked for …
    UNAUTHENTICATED_ARGUMENT = 512,  // … bytes of one: of a secret …
    UNAUTHENTICATED_REQUEST = 2048,  // … and of all
    UNAUTHENTICATED_UNSENT_PAUSE = 16 << 10, // replies it has not read yet: then its session rests
    UNAUTHENTICATED_MS = 10000,   // until TLS and AUTH, where they are asked for, must be over
    LIMIT_UNAUTHENTICATED = 1024, // connections that have not got that far …
    LIMIT_UNAUTHENTICATED_OF_ADDRESS = 128, // … and of one address
    LIMIT_SILENCE_S = 300,                  // then the system asks whether somebody is still there
    EVICTED_NOTICE_MS = 1000,   // between notices of connections that made room for others
    REFUSED_NOTICE_MS = 60000,  // between notices of connections that were refused
    REFUSAL_MS = 1000,          // how long a wrong secret waits for its answer; then twice that
    REFUSALS = 3,               // after so many the connection is closed
    LIMIT_NAME = 128,           // bytes of a client's name
    LIMIT_NAMES = 256,          // words that INFO, COMMAND, CONFIG and STAGE take
    LOOPS_MOST = 64,            // of one server: a set of loops is a 64-bit mask
    LIMIT_LISTED = LISTED_MOST, // rows of one answer, unless fewer are asked for
    LIMIT_LOOKED = LOOKED_MOST, // jobs looked at for one answer
    LIMIT_PIECE = 1000,         // jobs looked at in one turn by a command done in pieces
    BULK_MAX = 1000,            // jobs that RETRY and DROP change at once, unless told
    READ_SIZE = 64 << 10,       // bytes read from a socket at once
};

#endif
