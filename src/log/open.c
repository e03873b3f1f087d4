// See open.h.
#include "log/open.h"

#include "log/log_stream.h"
#include "log/replicated.h"

// A node that takes over expects the epoch of the first shard: with that it has all of them.
static int log_stream_open_own(const struct store_url *s, uint32_t shard,
                               const struct log_options *options, struct log **out) {
    struct log_options o = *options;
    o.stream.expects_epoch = o.stream.expects_epoch && shard == 0;
    struct stream_store *store;
    int err = stream_store_open(s, o.stream.owner, &store);
    if (err < 0)
        return err;
    o.stream.close_store = stream_store_close;
    err = log_stream_open(store, shard, &o, out);
    if (err < 0)
        stream_store_close(store);
    return err;
}

// ---- All --------------------------------------------------------------------------------------

static int log_open_kind(const struct store_url *store, uint32_t shard,
                         const struct log_options *options, struct log **out) {
    switch (store->scheme) {
    case STORE_IN_MEMORY: // each shard has its own memory, or its own directory
        return log_memory_open(options, out);
    case STORE_IN_FILES:
        return log_file_open(store->text, options, out);
    case STORE_IN_POSTGRES:
        return log_stream_open_own(store, shard, options, out);
    }
    return MR_EINVAL;
}

int log_open(const struct store_url *store, uint32_t shard, const struct log_options *options,
             struct log **out) {
    struct log *log;
    int err = log_open_kind(store, shard, options, &log);
    if (err >= 0)
        *out = options->wrap ? options->wrap(options->wrap_arg, log) : log;
    return err;
}
