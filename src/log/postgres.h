// A connection to PostgreSQL for one thread, which connects by itself when it is needed and lost.
//
//     postgres_run ─► connected? ─► prepared? ─► send ─► wait for the result, at most call_ms
//                      │ no: the next host,       │
//                      │ at most connect_ms       └─► lost or late: in doubt, the connection is
//                      closed └─► fails: nothing was sent
//
// All waiting is done here with poll: libpq's own waits have no end that the caller chooses, and a
// wait for a synchronous standby is ended by no setting of the server.
//
// Functions return a stream_result or a negative MR_… code, with an error text that names the
// database. Other threads may only call postgres_interrupt.
#ifndef LOG_POSTGRES_H
#define LOG_POSTGRES_H

#include "log/stream.h"
#include "log/stream_postgres.h"

#include <libpq-fe.h>

struct postgres;

// Everything is copied. `purpose` is what the server's list of sessions shows.
int postgres_create(const struct stream_postgres_options *, const char *purpose,
                    struct postgres **out);
void postgres_destroy(struct postgres *); // takes NULL

// Ends the wait of the thread that uses the connection, and all later ones. Any thread.
void postgres_interrupt(struct postgres *);

enum {
    PROMISE_STATEMENT = 30,
    SCHEMA_STATEMENT = 31
}; // the numbers of postgres_promise.c and postgres_schema.c

// A statement with binary parameters and results; prepared at its first use in a connection.
struct postgres_statement {
    const char *sql;
    uint32_t number; // at most SCHEMA_STATEMENT, its own for each statement of a connection
    bool writes;     // whether a lost reply leaves something in doubt
};

// The arguments of a statement: integers are bigint, bytes are bytea or text. Zero is a valid
// start. Bytes are borrowed.
enum { POSTGRES_ARGUMENTS = 8 };
struct postgres_arguments {
    int count;
    const char *bytes[POSTGRES_ARGUMENTS]; // NULL: it is a number
    int sizes[POSTGRES_ARGUMENTS];
    uint64_t numbers[POSTGRES_ARGUMENTS];
};
void postgres_add_number(struct postgres_arguments *, uint64_t number);
void postgres_add_bytes(struct postgres_arguments *, mr_bytes);

// Runs it. STREAM_DONE: the caller clears `out` with PQclear. STREAM_UNAVAILABLE: nothing happened;
// STREAM_IN_DOUBT, only if it writes: lost or late, or the server stopped waiting for its standby.
int postgres_run(struct postgres *, const struct postgres_statement *,
                 const struct postgres_arguments *, PGresult **out);

// Runs text of one or more statements; for setting up. Results as postgres_run, as text.
int postgres_run_text(struct postgres *, const char *sql, PGresult **out);

// The same without a result.
int postgres_do(struct postgres *, const char *sql);

// Connects if there is no connection, as postgres_run does.
int postgres_connect(struct postgres *);

// Begins a transaction with `sql`, in which everything runs until the connection is destroyed or
// commits. A lost session is not replaced: every later call then answers MR_ENET.
int postgres_begin(struct postgres *, const char *sql);

// STREAM_IN_DOUBT: it may have been committed. Nothing may follow.
int postgres_commit(struct postgres *);

// How many sessions there were: tells whether there was a new one meanwhile.
uint32_t postgres_sessions(const struct postgres *);

// Sends text and does not wait for its end. False: it was not sent, because the text before it is
// still running, or there is no connection.
bool postgres_start_text(struct postgres *, const char *sql);

// Closes the connection, which rolls back an open transaction.
void postgres_disconnect(struct postgres *);

// "database jobs at db1": for error texts. Valid until the next call.
const char *postgres_place(struct postgres *);

// A field of a binary result.
uint64_t postgres_number(const PGresult *, int row, int column);
mr_bytes postgres_bytes(const PGresult *, int row, int column);

#endif
