// Replies: the maps that commands answer with, as structs and as tables (base/reply_fields.h has
// their fields). A table writes a struct as a map, reads a map into a struct, and documents it.
//
//     struct stage_reply ── reply_write(&stage_replies) ─► %30 name … ─► reply_read ──► the same
//
// Names that a reader does not know are skipped, and what a map lacks stays as it was: so either
// end may be older than the other. Pure.
#ifndef WIRE_REPLIES_H
#define WIRE_REPLIES_H

#include "base/reply_fields.h"
#include "wire/reply.h"
#include "wire/response.h"

// The kind `names`. When read it is empty: texts have no fixed place to be kept in.
struct reply_names {
    const mr_bytes *list;
    size_t count;
};

// The kind `other`. To be written: a function that writes exactly one value; NULL: the field is
// left out. When read: the value.
struct reply_other {
    void (*write)(void *arg);
    void *arg;
    const struct response_value *value;
};

#define REPLY_TYPE_names struct reply_names
#define REPLY_TYPE_other struct reply_other

#define REPLY_MEMBER(from, member, kind, ...) REPLY_TYPE_##kind member;

struct stage_reply {
    STAGE_FIELDS(REPLY_MEMBER)
};

struct channel_reply {
    CHANNEL_FIELDS(REPLY_MEMBER)
};

struct group_reply {
    GROUP_FIELDS(REPLY_MEMBER)
};

struct job_reply {
    JOB_FIELDS(REPLY_MEMBER)
    JOB_BODY_FIELDS(REPLY_MEMBER)
};

struct progress_reply {
    PROGRESS_FIELDS(REPLY_MEMBER)
};

struct reason_reply {
    REASON_FIELDS(REPLY_MEMBER)
};

struct grant_reply {
    GRANT_FIELDS(REPLY_MEMBER)
};

// The places of its values in the array.
#define GRANT_PLACE(from, member, ...) GRANT_##member,
enum grant_place { GRANT_FIELDS(GRANT_PLACE) GRANT_PLACES };

struct epic_reply {
    EPIC_NAME_FIELD(REPLY_MEMBER) // of EPICS
    EPIC_FIELDS(REPLY_MEMBER)
};

struct schedule_reply {
    SCHEDULE_FIELDS(REPLY_MEMBER)
    SCHEDULE_MORE_FIELDS(REPLY_MEMBER)
};

struct worker_reply {
    WORKER_FIELDS(REPLY_MEMBER)
};

struct node_reply {
    NODE_FIELDS(REPLY_MEMBER)
};

struct shard_reply {
    SHARD_FIELDS(REPLY_MEMBER)
};

struct cluster_reply {
    CLUSTER_FIELDS(REPLY_MEMBER)
};

struct hello_reply {
    HELLO_FIELDS(REPLY_MEMBER)
};

struct docs_reply {
    DOCS_FIELDS(REPLY_MEMBER)
};

struct argument_reply {
    ARGUMENT_FIELDS(REPLY_MEMBER)
};

// Whether all of the epic was pushed or it was cancelled, and every job of it has ended.
static inline bool epic_reply_is_over(const struct epic_reply *e) {
    bool is_complete = e->stopped || (e->total >= 0 && e->resume > (uint64_t)e->total);
    return is_complete && !e->waiting && !e->running;
}

enum reply_kind {
    REPLY_bytes,
    REPLY_count,
    REPLY_small,
    REPLY_number,
    REPLY_rate,
    REPLY_flag,
    REPLY_id,
    REPLY_names,
    REPLY_entry,
    REPLY_other,
};

struct reply_field {
    const char *name;
    enum reply_kind kind;
    size_t offset; // in the struct
    const char *about;
};

struct reply_table {
    const struct reply_field *fields;
    size_t count;
};

extern const struct reply_table stage_replies, channel_replies, group_replies;
extern const struct reply_table job_replies, reason_replies, progress_replies;
extern const struct reply_table grant_replies;               // for documentation: it is no map
extern const struct reply_table epic_replies, epics_replies; // the second begins with the name
extern const struct reply_table node_replies, shard_replies, cluster_replies; // of CLUSTER STATUS
extern const struct reply_table schedule_replies;
extern const struct reply_table worker_replies, hello_replies, docs_replies, argument_replies;

// Writes the struct `from` as a map.
void reply_write(struct reply *, const struct reply_table *, const void *from);

// Reads a map, or an array, which is how RESP2 sends one, into the struct `to`; values of another
// type than the field has are skipped. Bytes are borrowed from the map. False: it is neither.
bool reply_read(const struct reply_table *, const struct response_value *map, void *to);

// The field at that offset in the struct; there is one.
const struct reply_field *reply_field_at(const struct reply_table *, size_t offset);

// Whether the values of the field are milliseconds.
bool reply_is_ms(const struct reply_field *);

#endif
