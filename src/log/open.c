// See open.h.
#include "log/open.h"

#include "base/errors.h"
#include "log/log_stream.h"
#include "log/replicated.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// A stream is not taken from an owner that was there a moment ago. One that was killed is forgotten
// after this time.
enum { OWNER_FORGOTTEN_MS = 10000 };

static int refuse_owned(const struct stream_state *seen, uint32_t shard) {
    return error_set(MR_EBUSY,
                     "shard %u is in use by %s; if that has not ended in order, it is free "
                     "%u seconds later",
                     shard, seen->owner, OWNER_FORGOTTEN_MS / 1000);
}

// Looks at the owner. The claim then expects that no other process was faster.
static int expect_no_owner(struct stream_store *store, uint32_t shard,
                           struct log_stream_options *o) {
    struct stream *stream;
    struct stream_state seen;
    int err = store->open(store, shard, &stream);
    if (err < 0)
        return err;
    err = stream->impl->look(stream, &seen);
    stream->impl->close(stream);
    if (err != STREAM_DONE)
        return stream_failed(err);
    if (seen.owner[0] && strcmp(seen.owner, o->owner) != 0 && seen.silent_ms < OWNER_FORGOTTEN_MS)
        return refuse_owned(&seen, shard);
    o->expects_epoch = true;
    o->expected_epoch = seen.epoch;
    return 0;
}

static const char *owner_of_process(char out[STREAM_OWNER]) {
    char host[64] = "";
    (void)gethostname(host, sizeof host - 1); // the process is enough
    snprintf(out, STREAM_OWNER, "process %ld on %s", (long)getpid(), host);
    return out;
}

// A node that takes over has looked already, and has its own time for that.
static int log_stream_open_own(const struct store_url *s, uint32_t shard,
                               const struct log_options *options, struct log **out) {
    struct log_options o = *options;
    struct stream_store *store;
    char process[STREAM_OWNER];
    if (!o.stream.owner)
        o.stream.owner = owner_of_process(process);
    int err = stream_store_open(s, o.stream.owner, &store);
    if (err < 0)
        return err;
    o.stream.close_store = stream_store_close;
    if (!o.read_only && !o.stream.expects_epoch)
        err = expect_no_owner(store, shard, &o.stream);
    if (err == 0)
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
    case STORE_IN_NATS:
        return log_stream_open_own(store, shard, options, out);
    }
    return MR_EINVAL;
}

int log_open(const struct store_url *store, uint32_t shard, const struct log_options *options,
             struct log **out) {
    struct log *log = NULL;
    int err = log_open_kind(store, shard, options, &log);
    if (err >= 0)
        *out = options->wrap ? options->wrap(options->wrap_arg, log) : log;
    return err;
}
