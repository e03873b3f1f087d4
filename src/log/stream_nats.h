// Streams in NATS JetStream (stream.h). Each shard of a cluster is a stream of JetStream:
//
//     stream    millrace-NAME-SHARD
//     subjects  millrace.NAME.SHARD.log    parts of batches; trims remove them
//               millrace.NAME.SHARD.state  claims, beats, trims and releases; each replaces the
//               last
//
//     sequence  1 claim │ 2 batch │ 3 part │ 4 part │ 5 claim, by another owner │ 6 batch
//                                  └ never completed: readers pass over it
//
// The fence is the sequence of the stream's last message: every message is sent with the one that
// its sender has seen last, and the server stores it only if no other came in between. A claim is a
// message that raises the epoch. So after it the messages of a former owner are refused, also those
// that are still on their way. One message is in flight at a time.
//
// The stream millrace-NAME has one message: the version, the number of shards, the number of
// replicas, the secret that nodes share.
#ifndef LOG_STREAM_NATS_H
#define LOG_STREAM_NATS_H

#include "log/stream.h"

enum { NATS_CLUSTER_NAME = 40, NATS_SHARDS_MOST = 1024, NATS_SECRET = 32 };

// Borrowed during the call.
struct stream_nats_options {
    // nats://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…][?OPTION[&OPTION…]], without a password
    // USER is a token. Options: replicas=N, tls, ca=FILE, cert=FILE, key=FILE, creds=FILE.
    const char *url;
    const char *cluster; // a to z, 0 to 9 and _, at most NATS_CLUSTER_NAME
    const char *owner;   // what claims write for people to read; NULL: nothing
    uint32_t connect_ms; // for each server; 0: NATS_CONNECT_MS
    uint32_t call_ms;    // for each request; 0: NATS_CALL_MS
    uint32_t behind_ms;  // a store that lacks what it had is lost after this; 0: NATS_BEHIND_MS
};
// A former leader that is cut off from the others may answer for ten seconds.
enum { NATS_CONNECT_MS = 2000, NATS_CALL_MS = 3000, NATS_BEHIND_MS = 15000 };

// What the cluster's message says.
struct stream_nats_cluster {
    uint32_t shards, replicas;
    uint8_t secret[NATS_SECRET];
};

// A store whose streams are in the cluster. Does not connect. Any thread may open streams; they
// are closed before the store. MR_EINVAL: the URL or a name; MR_ENOMEM.
int stream_nats_create(const struct stream_nats_options *, struct stream_store **out);

// A store for a copy, for a single thread; connects. `read_only`: all streams are seen as they were
// at one moment; MR_EBUSY if they change too fast for that. Otherwise the cluster must be empty and
// without an owner, and no node opens it from now on until its `commit`; closing the store without
// that empties it again. Results of streams.
int stream_nats_begin(const struct stream_nats_options *, bool read_only,
                      struct stream_store **out);

// Makes the streams of a cluster, or sees that they are as wanted; repeating it changes nothing.
// MR_EINVAL: they are there for another number of shards or of replicas, or
// the servers cannot have so many replicas; other results of streams.
int stream_nats_init(const struct stream_nats_options *, uint32_t shards, enum store_made *out);

// Reads the message of the cluster. Results of streams.
int stream_nats_look(const struct stream_nats_options *, struct stream_nats_cluster *out);

#endif
