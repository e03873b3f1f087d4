// Info: the lines of INFO, name:value, as a table. base/reply_fields.h has a line for each.
#ifndef SERVER_INFO_H
#define SERVER_INFO_H

#include "wire/replies.h"

#define REDIS_VERSION "7.0.0" // what clients may rely on

#define INFO_MEMBER(section, seen, loops, member, kind, ...) REPLY_TYPE_##kind member;

struct info_reply {
    INFO_FIELDS(INFO_MEMBER)
};

enum info_section {
    INFO_SERVER,
    INFO_CLIENTS,
    INFO_MEMORY,
    INFO_PERSISTENCE,
    INFO_STATS,
    INFO_QUOTAS,
    INFO_REPLICATION,
    INFO_CLUSTER,
    INFO_SECTIONS,
};

struct info_field {
    enum info_section section;
    bool is_whole; // only for tokens of all stages
    bool is_sum;   // added up over several loops
    struct reply_field field;
};

// The fields in the order of their lines; NULL: there are no more.
const struct info_field *info_field(size_t index);

// The field whose line has this name; NULL: there is none.
const struct info_field *info_field_named(mr_bytes name);

// The name of a member of struct info_reply.
const char *info_name(size_t offset);
#define INFO_NAME(member) info_name(offsetof(struct info_reply, member))

#endif
