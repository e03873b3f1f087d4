// What PostgreSQL promises about a commit, from its settings and standbys.
#ifndef LOG_POSTGRES_PROMISE_H
#define LOG_POSTGRES_PROMISE_H

#include "log/postgres.h"

// Asks the server of this connection. Results of postgres_run.
int postgres_promise(struct postgres *, struct stream_promise *out);

#endif
