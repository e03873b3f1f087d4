// The tables of a cluster: their version, which every session compares.
#ifndef LOG_POSTGRES_SCHEMA_H
#define LOG_POSTGRES_SCHEMA_H

#include "log/postgres.h"

enum { SCHEMA_VERSION = 1 };

// Reads the table of the cluster. MR_EINVAL: there is none, or its tables have another version;
// other results of postgres_run.
int schema_look(struct postgres *, const char *cluster, struct stream_postgres_cluster *out);

#endif
