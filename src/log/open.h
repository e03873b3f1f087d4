// Opens the log of a shard by the URL of its store. This is the only place that knows which log
// belongs to which scheme.
#ifndef LOG_OPEN_H
#define LOG_OPEN_H

#include "base/store_url.h"
#include "log/log.h"

// `shard` is the shard's index in the store. A `file:` store has the directory of that one shard
// (shard/layout.h). Errors are those of the log that is opened; MR_EINVAL: this build does not have
// that kind of store.
int log_open(const struct store_url *, uint32_t shard, const struct log_options *,
             struct log **out);

#endif
