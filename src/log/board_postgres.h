// A board in PostgreSQL (board.h): the table `note` of a cluster, and a look at its table `shard`.
#ifndef LOG_BOARD_POSTGRES_H
#define LOG_BOARD_POSTGRES_H

#include "log/board.h"
#include "log/stream_postgres.h"

// Does not connect. Everything is copied. MR_EINVAL: the URL or a name; MR_ENOMEM.
int board_postgres_create(const struct stream_postgres_options *, struct board **out);

#endif
