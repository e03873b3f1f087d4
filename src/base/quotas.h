// Quotas: what an operator can bound of one token, a line each, from which the file of tokens and
// /metrics are made. A new line also needs a row in cli/table_auth.c, two fields of INFO
// (reply_fields.h, command_info.c) and a word in auth_parse_quota.
#ifndef BASE_QUOTAS_H
#define BASE_QUOTAS_H

#include <stdint.h>

// X(kind, word). Jobs are those that it has pushed and what these have emitted, until they end, and
// bytes are their bodies and META. Sources are of numbered pushes. Connections are those that are
// open, RESP and HTTP together. Stages, epics and schedules are those that it has made.
#define QUOTAS(X)                                                                                  \
    X(STAGES, "stages")                                                                            \
    X(JOBS, "jobs")                                                                                \
    X(BYTES, "bytes")                                                                              \
    X(SOURCES, "sources")                                                                          \
    X(EPICS, "epics")                                                                              \
    X(SCHEDULES, "schedules")                                                                      \
    X(CONNECTIONS, "connections")

#define QUOTA_KIND(kind, ...) QUOTA_##kind,
enum quota_kind { QUOTAS(QUOTA_KIND) QUOTA_KINDS };
#undef QUOTA_KIND

// One number of each kind: what is allowed (0: any number), or what is used.
struct quotas {
    uint64_t of[QUOTA_KINDS];
};

const char *quota_word(enum quota_kind); // "stages"

#endif
