// The messages of a stream in NATS JetStream (stream_nats.h). Every message begins with a record;
// what a part has of the batch follows. Everything is little-endian.
//
//     0  u32 version          4  u16 kind        6  u16 size of the owner's text
//     8  u64 epoch           16  u64 previous   24  u64 head      32  u64 head_sequence
//    40  u64 tail            48  u64 claimer    56  u64 claim     64  u64 write
//    72  u64 at              80  u64 end        88  u32 heads     92  u32 bodies
//    96  u32 part           100  u32 part_size 104  u64 last_part 112  u64 sum     120  owner's
//    text
//
// Each record has the whole state of the stream as it is with this message, so that reading the
// last message is enough to know it.
#ifndef LOG_NATS_RECORD_H
#define LOG_NATS_RECORD_H

#include "log/stream.h"

enum { NATS_RECORD = 120, NATS_RECORD_MOST = NATS_RECORD + STREAM_OWNER };

enum nats_record_kind {
    NATS_STATE = 1, // a claim, a beat, a trim or a release: the state alone
    NATS_PART,      // a part of a batch
};

struct nats_record {
    enum nats_record_kind kind;
    uint64_t epoch;
    uint64_t previous;   // the sequence of the message before it in the stream
    uint64_t last_part;  // the sequence of the last part before it: shows a reader what it missed
    uint64_t head, tail; // positions; a part that is not the last one does not move them
    uint64_t head_sequence; // of the first part of the batch at `head`, or of what comes next
    uint64_t claimer;       // which struct stream claimed, …
    uint64_t claim;         // … with which of its writes
    uint64_t write;         // the number of this write of that struct stream
    // Of a part: the batch, which of its parts this is, and how long all but the last are.
    uint64_t at, end;
    uint32_t heads_size, bodies_size, part, part_size;
    char owner[STREAM_OWNER];
};

// Appends it to `out`. MR_ENOMEM.
int nats_record_put(const struct nats_record *, struct buffer *out);

// Reads the record of a message; `out_rest` is what follows it. False: this is no such record.
bool nats_record_get(mr_bytes message, struct nats_record *out, mr_bytes *out_rest);

// How many parts the batch has, at least 1.
static inline uint32_t nats_record_parts(const struct nats_record *r) {
    uint64_t size = (uint64_t)r->heads_size + r->bodies_size;
    return size ? (uint32_t)((size - 1) / r->part_size + 1) : 1;
}

// How long this part is.
static inline uint64_t nats_record_part_size(const struct nats_record *r) {
    uint64_t size = (uint64_t)r->heads_size + r->bodies_size;
    uint64_t before = (uint64_t)r->part * r->part_size;
    return size - before < r->part_size ? size - before : r->part_size;
}

// The state of the stream whose last message this is.
struct stream_state nats_record_state(const struct nats_record *);

#endif
