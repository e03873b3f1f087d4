// Message: what one shard of an engine has for another (peers.h), in memory and as bytes for
// another node.
//
//     version  kind  from  to  epoch  number │ EDGE     stage, downstream, maker
//        1      u8   ─────── varints ─────── │ OVER     over, high mark, stage
//                                            │ EMITS    now, emits
//                                            │ REFUSED  missing
//                                            │ SHARE, SHARE_LEFT  maker
//
// Emits are in one buffer, one behind another, and encoded in memory, too: so there is one code
// that reads them, and it never reads beyond them.
//
//     number  after  delay  deadline  attempts  stage  key  once  makers │ size of the body │ body
//
// META stands behind the job's body, as in the log; its size is in `attempts`, from bit 16 on. From
// bit 28 on that says whether there are two makers: of the stage, and whom the job counts for.
//
// Any thread.
#ifndef SHARD_MESSAGE_H
#define SHARD_MESSAGE_H

#include "base/buffer.h"
#include "base/codec.h"
#include "base/limits.h"
#include "core/core.h"

#include <stdbool.h>
#include <stdint.h>

enum message_kind {
    MESSAGE_BEGIN,      // all notes that are still true follow; earlier ones are not valid any more
    MESSAGE_EDGE,       // `stage` emits to `downstream`
    MESSAGE_OVER,       // `stage` is over its high mark (`over`), or no longer
    MESSAGE_NOTED,      // the sender has received notes up to `number`
    MESSAGE_EMITS,      // jobs for stages of the receiver, in `emits`
    MESSAGE_ARRIVED,    // the sender has accepted emits up to `number`
    MESSAGE_ACKED,      // the same, durably
    MESSAGE_REFUSED,    // the sender could not accept what follows `number`: repeat it later
    MESSAGE_SHARE,      // has `maker` room in its share of stages at the receiver?
    MESSAGE_SHARE_LEFT, // it had when emits up to `number` were accepted: answers SHARE
    MESSAGE_KINDS,
};

// A batch of emits has at most this many, and one more after that many bytes.
enum { MESSAGE_EMITS_MOST = 256, MESSAGE_EMITS_BYTES = 1 << 20 };
enum { MESSAGE_MOST = MESSAGE_EMITS_BYTES + BODY_MOST + (1 << 13) }; // bytes of any message

struct message {
    enum message_kind kind;
    uint32_t from, to;
    uint64_t epoch; // of the sender's log
    bool over;
    bool missing; // of REFUSED: an earlier emit is missing, so all have to be sent again
    uint64_t high_mark, number;
    uint64_t now_ms; // of EMITS: engine time of the sender
    uint64_t maker;  // of EDGE, SHARE, SHARE_LEFT: see core_act_for
    uint32_t stage_size, downstream_size;
    char stage[STAGE_NAME_MOST], downstream[STAGE_NAME_MOST];
    struct buffer emits;
};

void message_finish(struct message *);

// Appends the message to `out`. MR_ENOMEM, MR_ETOOBIG; `out` is then as it was.
int message_write(const struct message *, struct buffer *out);

// Reads a message that fills `bytes`, and checks all of it: names, limits, and every emit. Reuses
// the memory of `out`. MR_EINVAL: it is not well formed; MR_ENOMEM; `out` is then as it was.
int message_read(mr_bytes bytes, struct message *out);

// Appends an emit to a batch, without its body: the caller appends that to `emits`, then calls
// message_end_emit with `out_body`, the position where it begins. MR_ENOMEM, MR_ETOOBIG: the batch
// is as it was.
int message_begin_emit(struct buffer *emits, const struct link_entry *, size_t *out_body);
void message_end_emit(struct buffer *emits, size_t body);

// The next emit of a batch; `at` and `now_ms` of the entry are not set. False: there is none, or it
// is not well formed (reader.bad). Borrows from the batch.
bool message_next_emit(struct reader *emits, struct link_entry *out, mr_bytes *out_body);

#endif
