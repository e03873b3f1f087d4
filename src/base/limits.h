// Limits that the core, the engines and both ends of the wire have to agree on, in bytes unless
// they say otherwise. A limit that concerns one folder only is defined there.
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

enum {
    BODY_MOST = 16 << 20, // a body or result; all emits of one commit
    STATE_MOST = 1 << 20,
    KEY_MOST = 1 << 10,
    ONCE_MOST = 256,
    META_MOST = 1 << 10,    // metadata of a job
    PROGRESS_MOST = 200,    // bytes kept of the text of a PROGRESS
    REASON_MOST = 512,      // bytes kept of one reason …
    LAST_WORDS_MOST = 4096, // … and of the end of what a failed attempt has printed
    STAGE_NAME_MOST = 200,
    EPIC_NAME_MOST = 200,
    THEN_BODY_MOST = 4096, // the body of the job that THEN pushes
    SCHEDULE_NAME_MOST = 200,
    CRON_MOST = 200,       // a cron expression
    ZONE_NAME_MOST = 64,   // the name of a time zone
    SCOPE_MOST = 64,       // the scope of the names of clients' sources: a token's name
    TAKE_STAGES_MOST = 64, // stages that one TAKE names
    TAKE_MOST = 1000,      // jobs of one TAKE
    EMITS_MOST = 1000,     // emits of one commit
    LISTED_MOST = 1000,    // rows of one list
    LOOKED_MOST = 100000,  // jobs that are looked at for one list
    // Limits of the protocol, for any command. An argument over a limit above gets an error reply;
    // one over these limits closes the connection.
    ARGUMENT_MOST = 64 << 20,
    REQUEST_MOST = 80 << 20,
    EPIC_AHEAD = 1024,           // unended jobs of an epic …
    EPIC_AHEAD_BYTES = 64 << 20, // … and their bytes, unless its producer sets other limits
};

// A client's source that was not used for this long may be forgotten to make room for another, and
// the numbers it has seen with it. So that no push is made twice, a client resends a number for at
// most half of that time after it was first sent; the other half covers requests that are still on
// their way to the server.
#define SOURCE_LEAST_S 60 // in a text, too: see command_table.c
#define SOURCE_LEAST_MS (SOURCE_LEAST_S * 1000)
#define SOURCE_REPEAT_MS (SOURCE_LEAST_MS / 2)

// Schedules: the shortest interval, and how many ticks are made up for at most.
enum { EVERY_LEAST_MS = 1000, MISSED_MOST = 1000 };

// Delays, deadlines and waits: 100 years.
#define TIME_MOST_MS (INT64_C(100) * 365 * 24 * 3600 * 1000)

#endif
