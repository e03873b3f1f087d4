// The streams of a cluster in NATS, and the message that describes it (stream_nats.h).
#ifndef LOG_NATS_CLUSTER_H
#define LOG_NATS_CLUSTER_H

#include "log/nats.h"

enum { NATS_STREAM_NAME = NATS_CLUSTER_NAME + 32 };

enum nats_cluster_phase {
    NATS_MAKING = 1, // its streams are being made
    NATS_MADE,
    NATS_FILLING, // a copy is being written into it
};

struct nats_cluster_state {
    struct stream_nats_cluster cluster;
    enum nats_cluster_phase phase;
    uint64_t sequence; // of the message
};

// Reads the message. MR_EINVAL: there is no such cluster, and how to make it; or it is of another
// version.
int nats_cluster_read(struct nats_session *, const char *cluster, struct nats_cluster_state *out);

// Replaces the message if it is still the one with `sequence`, which is updated. NATS_CONFLICT.
int nats_cluster_write(struct nats_session *, const char *cluster, struct nats_cluster_state *);

// What a node needs before it may open the cluster. MR_EINVAL: it is not complete.
int nats_cluster_usable(struct nats_session *, const char *cluster,
                        const struct nats_cluster_state *);

// The name of the stream of a shard.
void nats_stream_name(const char *cluster, uint32_t shard, char out[NATS_STREAM_NAME]);

// The last message of that stream, as nats_session_last.
int nats_shard_last(struct nats_session *, const char *cluster, uint32_t shard, natsMsg **out);

// MR_ECORRUPT: the servers have no stream of this name any more.
int nats_stream_lost(struct nats_session *, const char *stream);

// Whether the stream of a shard is as millrace makes it, with at least so many replicas. MR_EINVAL:
// it is not, which names the setting. `out_replicas`: how many it has.
int nats_stream_check(struct nats_session *, const char *stream, uint32_t replicas,
                      uint32_t *out_replicas);

// Makes a stream as the cluster's streams are, or sees that it is there. MR_EINVAL: it cannot be
// made with so many replicas.
int nats_stream_make(struct nats_session *, const char *name, const char **subjects, int count,
                     uint32_t replicas);

#endif
