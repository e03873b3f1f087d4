// A connection to NATS for one thread: JetStream's calls, each with an end, and what their answers
// mean.
//
// libnats connects again by itself. While it does, calls answer STREAM_UNAVAILABLE at once; a call
// that is waiting then ends, too. A server that is connected but carries out no call, as one that
// is cut off from the other servers, is left for the next one. A message that was sent may be
// stored later, whatever the outcome of the call: only an answer of the server proves that it was
// not.
//
// Functions return a nats_result, which includes those of streams, or a negative MR_… code, with an
// error text that names the servers. Other threads may only call nats_session_interrupt.
#ifndef LOG_NATS_H
#define LOG_NATS_H

#include "log/stream_nats.h"

#include <nats/nats.h>

struct nats_session;

enum nats_result {
    NATS_CONFLICT = STREAM_UNAVAILABLE + 1, // another message is the last one
    NATS_NOTHING,                           // there is no such message
    NATS_NO_STREAM,                         // there is no such stream
};

// Everything is copied. `purpose` is what the server's list of connections shows. MR_EINVAL: the
// URL or a name is not valid; MR_ENOMEM.
int nats_session_create(const struct stream_nats_options *, const char *purpose,
                        struct nats_session **out);
void nats_session_destroy(struct nats_session *); // takes NULL

// Ends the call of the thread that uses the connection, and all later ones; only connecting goes on
// until its time is over. Any thread.
void nats_session_interrupt(struct nats_session *);

// "NATS at a:4222,b:4222": for error texts.
const char *nats_session_place(const struct nats_session *);

// What the URL says of replicas, 0: nothing; and how many servers it names.
uint32_t nats_session_replicas(const struct nats_session *);
uint32_t nats_session_servers(const struct nats_session *);

// Connects if there is no connection.
int nats_session_connect(struct nats_session *);

// How many bytes a message may have, without its headers; 0: not connected.
size_t nats_session_payload(const struct nats_session *);

// The version of the server, as "2.9.10"; "" if it is not known. Asks a server when first called.
const char *nats_session_version(struct nats_session *);

// ---- Messages ---------------------------------------------------------------------------------

struct nats_put {
    const char *subject;
    uint64_t expected; // the sequence of the stream's last message
    bool replaces;     // removes the earlier messages of the subject
    mr_bytes bytes;
};

// Appends a message if `expected` is the last one. NATS_CONFLICT: it is not, `out_sequence` is (0:
// that is not known); STREAM_IN_DOUBT; MR_EFULL; MR_EPERM.
int nats_session_put(struct nats_session *, const struct nats_put *, uint64_t *out_sequence);

// The last message of a subject, or the one with this sequence, as the leader of the stream knows
// it. The caller destroys it. NATS_NOTHING, NATS_NO_STREAM. The subject has no wildcard:
// nats-server 2.9 may end when it looks for the last message of all subjects while others write.
int nats_session_last(struct nats_session *, const char *stream, const char *subject,
                      natsMsg **out);
int nats_session_get(struct nats_session *, const char *stream, uint64_t sequence, natsMsg **out);

// Reads the messages of a stream in order, from this sequence on: nats_session_next waits for the
// next one. There is one such reading at a time; nats_session_unfollow ends it, if there is one.
int nats_session_follow(struct nats_session *, const char *stream, uint64_t from);
int nats_session_next(struct nats_session *, natsMsg **out);
void nats_session_unfollow(struct nats_session *);

mr_bytes nats_message_bytes(natsMsg *);

// The sequence of a message that was delivered. 0: it has none.
uint64_t nats_message_sequence(natsMsg *);

// ---- Streams ----------------------------------------------------------------------------------

// Makes a stream, or sees that it is there with just this configuration. MR_EINVAL: it is there
// with another one, or the servers cannot have it so.
int nats_session_make(struct nats_session *, jsStreamConfig *);

// The caller destroys it. NATS_NO_STREAM.
int nats_session_info(struct nats_session *, const char *stream, jsStreamInfo **out);

// Removes the messages below this sequence.
int nats_session_purge(struct nats_session *, const char *stream, uint64_t below);

// The time of the servers, in nanoseconds since 1970.
int nats_session_clock(struct nats_session *, const char *stream, int64_t *out_ns);

#endif
