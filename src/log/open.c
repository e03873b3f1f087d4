// See open.h.
#include "log/open.h"

static int log_open_kind(const struct store_url *store, uint32_t shard,
                         const struct log_options *options, struct log **out) {
    (void)shard; // each has its own directory, or its own memory
    switch (store->scheme) {
    case STORE_IN_MEMORY:
        return log_memory_open(options, out);
    case STORE_IN_FILES:
        return log_file_open(store->text, options, out);
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
