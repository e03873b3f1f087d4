// Limits that the core, the engines and both ends of the wire have to agree on, in bytes unless
// they say otherwise. A limit that concerns one folder only is defined there.
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

enum {
    BODY_MOST = 16 << 20, // a body or result; all emits of one commit
    STATE_MOST = 1 << 20,
    KEY_MOST = 1 << 10,
    ONCE_MOST = 256,
    REASON_MOST = 512, // are kept of one
    STAGE_NAME_MOST = 200,
    EPIC_NAME_MOST = 200,
    SCOPE_MOST = 64,       // of what scopes the names of clients' sources: a token's name
    TAKE_STAGES_MOST = 64, // stages that one TAKE names
    TAKE_MOST = 1000,      // jobs of one TAKE
    EMITS_MOST = 1000,     // emits of one commit
    LISTED_MOST = 1000,    // rows of one list
    LOOKED_MOST = 100000,  // jobs that are looked at for one list
    // Of what is said to a server, whatever it means: what is too large for that is refused by name
    // and the dialogue goes on, but what is larger than these ends it.
    ARGUMENT_MOST = 64 << 20,
    REQUEST_MOST = 80 << 20,
    EPIC_AHEAD = 1024,           // jobs of an epic that may be there and not have ended, …
    EPIC_AHEAD_BYTES = 64 << 20, // … unless its reader says otherwise, and bytes of them
};

// A client's source that was not used for so long may be forgotten: when there is no room for
// another. With it goes the memory of its numbers. So that no push is made twice, a client sends a
// number again for at most half of that time after it was first sent; the other half is for what
// is still on its way to the server.
#define SOURCE_LEAST_S 60 // in a text, too: see command_table.c
#define SOURCE_LEAST_MS (SOURCE_LEAST_S * 1000)
#define SOURCE_REPEAT_MS (SOURCE_LEAST_MS / 2)

#endif
