// The stream log: a log whose entries are kept by a replicated store (stream.h).
//
// The store decides who owns a stream: opening claims it, and the log of a former owner stops with
// its next append, trim or beat. It stops for good, too, when the store has lost what it had
// acknowledged. An outage of the store is neither: appends are collected up to a limit, and
// go on when the store answers again; log_look describes the outage.
//
// Nothing that only the owner may call waits for the store: log_append, log_flush, log_read_now,
// log_scan and log_trim. log_replay, log_wait and log_read do.
#ifndef LOG_LOG_STREAM_H
#define LOG_LOG_STREAM_H

#include "log/log.h"
#include "log/stream.h"

// Claims the stream of the shard (read_only: looks at it) and reads its state. The store outlives
// the log. The sync policy is always `always`. MR_ENET: the store is not available; MR_EBUSY: other
// owners claim it at the same time; MR_EPERM,
// MR_EINVAL, MR_EFULL: as the store says; MR_ECORRUPT: damaged, or of a newer version; MR_ENOMEM.
int log_stream_open(struct stream_store *, uint32_t shard, const struct log_options *,
                    struct log **out);

#endif
