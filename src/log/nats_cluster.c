// Makes the streams of a cluster. The message that describes it comes first and says that they are
// being made, so that of two programs with different settings one is refused; it is replaced when
// all are there. So a stream that is missing later was lost, and is never made again unnoticed.
#include "log/nats_cluster.h"

#include "base/errors.h"
#include "log/frame.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define CLUSTER_VERSION UINT32_C(0x6d630001) // "mc" and the version

enum { MESSAGE_SIZE = 16 + NATS_SECRET + 8, TRIES = 5, REPLICAS_USUAL = 3 };

// --- names ------------------------------------------------------------------------------------

void nats_stream_name(const char *cluster, uint32_t shard, char out[NATS_STREAM_NAME]) {
    snprintf(out, NATS_STREAM_NAME, "millrace-%s-%u", cluster, (unsigned)shard);
}

struct cluster_names {
    char stream[NATS_STREAM_NAME], subject[NATS_STREAM_NAME];
};

static struct cluster_names names_of(const char *cluster) {
    struct cluster_names n;
    snprintf(n.stream, sizeof n.stream, "millrace-%s", cluster);
    snprintf(n.subject, sizeof n.subject, "millrace.%s.cluster", cluster);
    return n;
}

// --- the message ------------------------------------------------------------------------------

static uint64_t message_sum(const uint8_t raw[MESSAGE_SIZE]) {
    return XXH3_64bits(raw, MESSAGE_SIZE - 8);
}

static void message_encode(const struct nats_cluster_state *c, uint8_t to[MESSAGE_SIZE]) {
    store_u32(to, CLUSTER_VERSION);
    store_u32(to + 4, (uint32_t)c->phase);
    store_u32(to + 8, c->cluster.shards);
    store_u32(to + 12, c->cluster.replicas);
    memcpy(to + 16, c->cluster.secret, NATS_SECRET);
    store_u64(to + MESSAGE_SIZE - 8, message_sum(to));
}

static bool message_decode(mr_bytes message, struct nats_cluster_state *out) {
    const uint8_t *raw = message.data;
    if (message.size != MESSAGE_SIZE || load_u32(raw) != CLUSTER_VERSION ||
        load_u64(raw + MESSAGE_SIZE - 8) != message_sum(raw))
        return false;
    out->phase = (enum nats_cluster_phase)load_u32(raw + 4);
    out->cluster.shards = load_u32(raw + 8);
    out->cluster.replicas = load_u32(raw + 12);
    memcpy(out->cluster.secret, raw + 16, NATS_SECRET);
    return out->phase >= NATS_MAKING && out->phase <= NATS_FILLING && out->cluster.shards &&
           out->cluster.shards <= NATS_SHARDS_MOST;
}

// NATS_NO_STREAM, NATS_NOTHING: it was not made.
static int cluster_message_read(struct nats_session *s, const char *cluster,
                                struct nats_cluster_state *out) {
    struct cluster_names n = names_of(cluster);
    natsMsg *message = NULL;
    int err = nats_session_last(s, n.stream, n.subject, &message);
    if (err)
        return err;
    struct nats_cluster_state found = { .sequence = natsMsg_GetSequence(message) };
    if (message_decode(nats_message_bytes(message), &found))
        *out = found;
    else
        err = error_set(MR_EINVAL,
                        "%s: the message of cluster '%s' is not one that this program knows; use a "
                        "program of the version that made it",
                        nats_session_place(s), cluster);
    natsMsg_Destroy(message);
    return err;
}

int nats_cluster_read(struct nats_session *s, const char *cluster, struct nats_cluster_state *out) {
    int err = cluster_message_read(s, cluster, out);
    if (err != NATS_NO_STREAM && err != NATS_NOTHING)
        return err;
    return error_set(MR_EINVAL,
                     "%s has no cluster '%s'; make it with: millrace store init nats://… --cluster "
                     "%s --shards N",
                     nats_session_place(s), cluster, cluster);
}

int nats_cluster_write(struct nats_session *s, const char *cluster, struct nats_cluster_state *c) {
    struct cluster_names n = names_of(cluster);
    uint8_t raw[MESSAGE_SIZE];
    message_encode(c, raw);
    struct nats_put put = { n.subject, c->sequence, true, { raw, sizeof raw } };
    uint64_t sequence = 0;
    int err = nats_session_put(s, &put, &sequence);
    if (!err)
        c->sequence = sequence;
    return err;
}

int nats_cluster_usable(struct nats_session *s, const char *cluster,
                        const struct nats_cluster_state *c) {
    if (c->phase == NATS_MAKING)
        return error_set(MR_EINVAL,
                         "%s: cluster '%s' was not made completely; repeat: millrace store init "
                         "nats://… --cluster %s --shards %u",
                         nats_session_place(s), cluster, cluster, (unsigned)c->cluster.shards);
    if (c->phase == NATS_FILLING)
        return error_set(MR_EINVAL,
                         "%s: a copy into cluster '%s' has not ended; wait for it, or repeat it if "
                         "it was interrupted",
                         nats_session_place(s), cluster);
    return 0;
}

// --- the streams ------------------------------------------------------------------------------

int nats_stream_make(struct nats_session *s, const char *name, const char **subjects, int count,
                     uint32_t replicas) {
    jsStreamConfig config;
    jsStreamConfig_Init(&config);
    config.Name = name;
    config.Subjects = subjects;
    config.SubjectsLen = count;
    config.Storage = js_FileStorage;
    config.Retention = js_LimitsPolicy;
    config.Discard = js_DiscardNew;
    config.AllowRollup = true;
    config.Replicas = replicas;
    int err = nats_session_make(s, &config);
    if (err != MR_EINVAL)
        return err;
    return error_set(
        MR_EINVAL,
        "stream %s cannot be made with %u replicas: %s; name other servers, or another "
        "number: nats://…?replicas=1",
        name, (unsigned)replicas, error_text());
}

static int shard_stream_make(struct nats_session *s, const char *cluster, uint32_t shard,
                             uint32_t replicas) {
    char name[NATS_STREAM_NAME], log[NATS_STREAM_NAME], state[NATS_STREAM_NAME];
    nats_stream_name(cluster, shard, name);
    snprintf(log, sizeof log, "millrace.%s.%u.log", cluster, (unsigned)shard);
    snprintf(state, sizeof state, "millrace.%s.%u.state", cluster, (unsigned)shard);
    const char *subjects[] = { log, state };
    return nats_stream_make(s, name, subjects, 2, replicas);
}

// The later one of two subjects. The state is read last: it has the last message also if a trim
// removes those of the log meanwhile.
int nats_shard_last(struct nats_session *s, const char *cluster, uint32_t shard, natsMsg **out) {
    char name[NATS_STREAM_NAME], log[NATS_STREAM_NAME], state[NATS_STREAM_NAME];
    natsMsg *part = NULL;
    nats_stream_name(cluster, shard, name);
    snprintf(log, sizeof log, "millrace.%s.%u.log", cluster, (unsigned)shard);
    snprintf(state, sizeof state, "millrace.%s.%u.state", cluster, (unsigned)shard);
    int err = nats_session_last(s, name, log, &part);
    if (err && err != NATS_NOTHING)
        return err;
    err = nats_session_last(s, name, state, out);
    bool is_part = part && (err == NATS_NOTHING ||
                            (!err && natsMsg_GetSequence(part) > natsMsg_GetSequence(*out)));
    if (is_part && !err)
        natsMsg_Destroy(*out);
    if (is_part)
        *out = part;
    else
        natsMsg_Destroy(part);
    return is_part ? 0 : err;
}

static const char *setting_wrong(const jsStreamConfig *c) {
    return c->Storage != js_FileStorage      ? "storage is not file"
           : c->Retention != js_LimitsPolicy ? "retention is not limits"
           : c->Discard != js_DiscardNew     ? "discard is not new"
           : c->MaxAge > 0                   ? "max_age is set"
           : c->MaxMsgs > 0                  ? "max_msgs is set"
           : c->MaxMsgsPerSubject > 0        ? "max_msgs_per_subject is set"
           : c->MaxMsgSize > 0               ? "max_msg_size is set"
           : c->NoAck                        ? "no_ack is set"
           : c->Sealed                       ? "it is sealed"
           : c->DenyPurge                    ? "deny_purge is set"
           : !c->AllowRollup                 ? "allow_rollup_hdrs is not set"
           : c->Mirror || c->SourcesLen      ? "it has a mirror or sources"
           : c->SubjectsLen != 2             ? "its subjects are others"
                                             : NULL;
}

static int config_check(struct nats_session *s, const char *stream, uint32_t replicas,
                        const jsStreamConfig *c) {
    const char *wrong = setting_wrong(c);
    if (wrong)
        return error_set(MR_EINVAL,
                         "%s: stream %s could lose or refuse messages: %s; set it back with nats "
                         "stream edit, or copy the store into another cluster",
                         nats_session_place(s), stream, wrong);
    if (c->Replicas < replicas)
        return error_set(MR_EINVAL,
                         "%s: stream %s has replicas %" PRId64 ", not %u as asked; raise it with "
                         "nats stream edit --replicas %u, or leave replicas out of the URL",
                         nats_session_place(s), stream, c->Replicas, (unsigned)replicas,
                         (unsigned)replicas);
    return 0;
}

int nats_stream_lost(struct nats_session *s, const char *stream) {
    return error_set(MR_ECORRUPT,
                     "%s has lost the stream %s; bring back the server that has it, or restore a "
                     "backup into another cluster",
                     nats_session_place(s), stream);
}

int nats_stream_check(struct nats_session *s, const char *stream, uint32_t replicas,
                      uint32_t *out_replicas) {
    jsStreamInfo *info = NULL;
    int err = nats_session_info(s, stream, &info);
    if (err == NATS_NO_STREAM)
        return nats_stream_lost(s, stream);
    if (err)
        return err;
    err = config_check(s, stream, replicas, info->Config);
    if (!err)
        *out_replicas = (uint32_t)info->Config->Replicas;
    jsStreamInfo_Destroy(info);
    return err;
}

// --- making a cluster -------------------------------------------------------------------------

static uint32_t replicas_wanted(const struct nats_session *s) {
    uint32_t asked = nats_session_replicas(s);
    return asked ? asked : nats_session_servers(s) >= REPLICAS_USUAL ? REPLICAS_USUAL : 1;
}

// Begins with the message. NATS_CONFLICT: another program did.
static int cluster_announce(struct nats_session *s, const char *cluster, uint32_t shards,
                            struct nats_cluster_state *out) {
    struct cluster_names n = names_of(cluster);
    const char *subjects[] = { n.subject };
    *out = (struct nats_cluster_state){ .phase = NATS_MAKING };
    out->cluster.shards = shards;
    out->cluster.replicas = replicas_wanted(s);
    if (getrandom(out->cluster.secret, NATS_SECRET, 0) != NATS_SECRET)
        return error_set(MR_EIO, "no random bytes: %s", strerror(errno));
    int err = nats_stream_make(s, n.stream, subjects, 1, out->cluster.replicas);
    return err ? err : nats_cluster_write(s, cluster, out);
}

static int cluster_fits(struct nats_session *s, const char *cluster, uint32_t shards,
                        const struct stream_nats_cluster *c) {
    uint32_t asked = nats_session_replicas(s);
    if (c->shards != shards)
        return error_set(MR_EINVAL,
                         "%s: cluster '%s' was made with %u shard%s, which cannot be changed; name "
                         "that number, or another cluster",
                         nats_session_place(s), cluster, (unsigned)c->shards,
                         c->shards == 1 ? "" : "s");
    if (asked && asked != c->replicas)
        return error_set(
            MR_EINVAL,
            "%s: cluster '%s' was made with replicas %u, not %u; leave replicas out of "
            "the URL, or make another cluster",
            nats_session_place(s), cluster, (unsigned)c->replicas, (unsigned)asked);
    return 0;
}

static int cluster_finish(struct nats_session *s, const char *cluster,
                          struct nats_cluster_state *c) {
    char notes[NATS_STREAM_NAME], subject[NATS_STREAM_NAME];
    const char *subjects[] = { subject };
    snprintf(notes, sizeof notes, "millrace-%s-notes", cluster); // see board_nats.h
    snprintf(subject, sizeof subject, "millrace.%s.notes", cluster);
    int err = nats_stream_make(s, notes, subjects, 1, c->cluster.replicas);
    for (uint32_t i = 0; !err && i < c->cluster.shards; i++)
        err = shard_stream_make(s, cluster, i, c->cluster.replicas);
    c->phase = NATS_MADE;
    return err ? err : nats_cluster_write(s, cluster, c);
}

// One step towards a cluster that is made. NATS_CONFLICT: another program does the same; look
// again.
static int cluster_step(struct nats_session *s, const char *cluster, uint32_t shards,
                        bool *out_made, bool *out_over) {
    struct nats_cluster_state c;
    int err = cluster_message_read(s, cluster, &c);
    if (err == NATS_NO_STREAM || err == NATS_NOTHING)
        err = cluster_announce(s, cluster, shards, &c);
    if (!err)
        err = cluster_fits(s, cluster, shards, &c.cluster);
    if (!err && c.phase == NATS_MAKING) {
        err = cluster_finish(s, cluster, &c);
        *out_made = true;
    }
    *out_over = !err;
    return err;
}

int stream_nats_init(const struct stream_nats_options *o, uint32_t shards, enum store_made *out) {
    if (!shards || shards > NATS_SHARDS_MOST)
        return error_set(MR_EINVAL, "a cluster has 1 to %d shards", NATS_SHARDS_MOST);
    struct nats_session *s = NULL;
    int err = nats_session_create(o, " init", &s);
    if (err < 0)
        return err;
    bool made = false, over = false;
    err = nats_session_connect(s);
    for (int i = 0; !err && !over && i < TRIES; i++) {
        err = cluster_step(s, o->cluster, shards, &made, &over);
        if ((err == NATS_CONFLICT || err == STREAM_IN_DOUBT) && i < TRIES - 1)
            err = 0; // what is there now says how it went
    }
    if (err == NATS_CONFLICT)
        err = error_set(STREAM_UNAVAILABLE, "%s: other programs make cluster '%s' as well",
                        nats_session_place(s), o->cluster);
    if (!err)
        *out = made ? STORE_MADE : STORE_THERE;
    nats_session_destroy(s);
    return err;
}

int stream_nats_look(const struct stream_nats_options *o, struct stream_nats_cluster *out) {
    struct nats_session *s = NULL;
    struct nats_cluster_state found;
    int err = nats_session_create(o, " look", &s);
    if (err < 0)
        return err;
    err = nats_cluster_read(s, o->cluster, &found);
    if (!err)
        *out = found.cluster;
    nats_session_destroy(s);
    return err;
}
