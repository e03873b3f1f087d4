// Database: one session with a PostgreSQL server, by libpq. Queries take their parameters apart
// from the text, as text; results are binary, so a column is `text` or `bytea` (numbers are cast to
// text) and its bytes are used as they are, followed by a 0 byte that does not count.
//
// While a query runs, the connections of talk.h are served and a signal ends the wait. One thread.
#ifndef CLI_INBOX_DATABASE_H
#define CLI_INBOX_DATABASE_H

#include "cli/talk.h"

#include <libpq-fe.h>
#include <stdbool.h>

// Zero is a valid start. `talks` may be NULL: then queries wait without it.
struct database {
    struct talks *talks;
    PGconn *session;  // NULL: there is none
    PGresult *result; // of the last query
};

// Whether `url` is one of PostgreSQL.
bool database_url_is_valid(const char *url);

// Opens a session; a former one is closed first. MR_ENET: the server cannot be reached, or refuses
// the user.
int database_open(struct database *, const char *url);
void database_close(struct database *);

// Runs one command; `count` values replace $1, $2 … (NULL: null). Its result is valid until the
// next query: database_rows, database_text and so on. Errors, each with the server's sentence:
//     MR_EPERM       this user may not do that
//     MR_EGONE       a table, column or schema that the command names does not exist
//     MR_ENET        the session has ended, or the command may succeed later
//     MR_EIO         any other error of the server
//     MR_ECANCELLED  a signal came; what became of the command is not known
int database_ask(struct database *, const char *command, int count, const char *const *values);

// Runs several commands, which have no values, and none of whose results is needed.
int database_run(struct database *, const char *commands);

int database_rows(const struct database *);
mr_bytes database_bytes(const struct database *, int row, int column);
const char *database_text(const struct database *, int row, int column);
int64_t database_number(const struct database *, int row, int column); // null: 0
bool database_is_null(const struct database *, int row, int column);

// Takes in what has arrived without a query. 1: a notification was there, 0: none; MR_ENET: the
// session has ended.
int database_notified(struct database *);

#endif
