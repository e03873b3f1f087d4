// Quotas: what an operator can bound of one token, a line each. The file of tokens, the options of
// `millrace auth add`, INFO, /metrics and the messages are made from these lines.
#ifndef BASE_QUOTAS_H
#define BASE_QUOTAS_H

#include <stdint.h>

// X(kind, word, what it counts)
#define QUOTAS(X)                                                                                  \
    X(STAGES, "stages", "stages that it has made")                                                 \
    X(JOBS, "jobs", "jobs that it has pushed, and what these have emitted, until they end")        \
    X(BYTES, "bytes", "bytes of these jobs: their bodies and META")                                \
    X(SOURCES, "sources", "sources of numbered pushes that it uses")                               \
    X(EPICS, "epics", "epics that it has made")                                                    \
    X(SCHEDULES, "schedules", "schedules that it has made")                                        \
    X(CONNECTIONS, "connections", "open connections, RESP and HTTP together")

#define QUOTA_KIND(kind, ...) QUOTA_##kind,
enum quota_kind { QUOTAS(QUOTA_KIND) QUOTA_KINDS };
#undef QUOTA_KIND

// One number of each kind: what is allowed (0: any number), or what is used.
struct quotas {
    uint64_t of[QUOTA_KINDS];
};

const char *quota_word(enum quota_kind); // "stages"

// For people: "stages that it has made".
const char *quota_about(enum quota_kind);

#endif
