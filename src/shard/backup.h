// Backup: entries of a log as bytes, for a copy of the store over the network. A piece begins with
// the position where the next one begins; each entry has its position, the sizes of head and body,
// the head, and the body, unless only heads are wanted.
#ifndef SHARD_BACKUP_H
#define SHARD_BACKUP_H

#include "shard/shard.h"

enum { BACKUP_PIECE = 256 << 10 }; // bytes, about: the last entry may be larger

// Appends a piece of the shard's log to `out`: entries from `from` on, but none from `upto` on. Of
// a log in memory the owner's thread only, else any. MR_EGONE: the log was shortened meanwhile;
// MR_ECORRUPT; MR_EIO; MR_ENOMEM.
int backup_pack(struct shard *, uint64_t from, uint64_t upto, bool with_bodies, struct buffer *out);

// Passes its entries to `each`, as log_scan does, or without bodies as log_replay does.
// MR_ECORRUPT: that is no piece; errors of `each`.
int backup_unpack(mr_bytes piece, bool with_bodies, log_each *, void *arg, uint64_t *out_next);

#endif
