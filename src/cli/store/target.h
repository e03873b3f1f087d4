// Target: the new store that a copy fills. Until it is complete nothing of it can be used:
//
//     file:       TO.copying ── all durable ──► renamed to TO
//     postgres:   one transaction over all shards ──► COMMIT
//     nats:       the cluster is marked as being filled ──► the mark is removed
//
// So a copy that is killed leaves the directory TO.copying, a cluster as it was, or the mark.
#ifndef CLI_STORE_TARGET_H
#define CLI_STORE_TARGET_H

#include "cli/store/store.h"

struct store_target {
    struct store_view view; // what is being made, to examine it; of a directory TO.copying
    char name[STORE_NAME];  // as in `view`, but of TO
    const char *to_dir;     // NULL: it is a cluster
    char making[LOG_PATH];  // of a directory
    struct log *logs[SHARDS_MOST];
};

// Begins to make it, after checking that it holds nothing. `shards` 0: those of the cluster, or for
// a directory `usual`. With `shards` a cluster that is missing is made. MR_EINVAL: it holds
// something, or has another number of shards; errors of the logs and of stream_store_make. On
// success the caller calls target_finish.
int target_begin(const struct store_url *, uint32_t shards, uint32_t usual,
                 struct store_target *out);

// Opens `logs`; segments of a new one have this size. MR_EINVAL: the cluster holds something.
int target_open(struct store_target *, uint64_t segment_size);
void target_close(struct store_target *); // the logs

// Copies the notes of attempts that ran when the engine of `from` died (shard/running.h). Clusters
// have none. An id that a shard does not know is passed over there, so every shard gets them all.
int target_copy_running(const struct store_target *, const struct store_view *from);

// Gives it to others. MR_ENET: it is not known whether that has happened. Other errors: it has not.
int target_publish(struct store_target *);

// Removes it, unless it was published; frees.
void target_finish(struct store_target *);

#endif
