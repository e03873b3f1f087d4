// See board_nats.h. The message has a version and, for each note in the order of keys, the key, the
// value, and the time of the message before it was put, because the time of the message itself is
// known only afterwards. A note is as old as the message is younger than that; while nodes renew
// their notes once a second this is exact to a second.
#include "log/board_nats.h"

#include "base/clock.h"
#include "base/codec.h"
#include "base/mem.h"
#include "log/nats_cluster.h"
#include "log/nats_record.h"

#include <stdio.h>
#include <string.h>

#define NOTES_VERSION UINT32_C(0x6d620001) // "mb" and the version

enum { NOTES_TRIES = 50, NOTE_FIELDS = 16 + BOARD_KEY_MOST + BOARD_VALUE_MOST };

// The last message of a stream: since when it is, and when that was seen last.
struct last_seen {
    uint64_t sequence, at_ms, looked_ms;
};

struct nats_board {
    struct board base;
    struct nats_session *session;
    char cluster[NATS_CLUSTER_NAME + 1], stream[NATS_STREAM_NAME], subject[NATS_STREAM_NAME];
    struct last_seen notes, shards[NATS_SHARDS_MOST];
};

static struct nats_board *nats_board_of(struct board *b) {
    return (struct nats_board *)b;
}

// For how long this message is the last one, as far as this process has seen.
static uint64_t seen_for_ms(struct last_seen *l, uint64_t sequence) {
    uint64_t now_ms = monotonic_ms();
    if (l->sequence != sequence)
        *l = (struct last_seen){ .sequence = sequence, .at_ms = now_ms };
    l->looked_ms = now_ms;
    return now_ms - l->at_ms;
}

// ---- Notes --------------------------------------------------------------------------------------

struct notes_message {
    struct buffer bytes; // of the notes
    uint64_t sequence;   // 0: there is no message
    int64_t time_ns;
};

struct nats_note {
    mr_bytes key, value;
    int64_t before_ns;
};

static bool nats_note_next(struct reader *r, struct nats_note *out) {
    if (r->bad || r->at == r->size)
        return false;
    out->key = get_bytes(r);
    out->value = get_bytes(r);
    out->before_ns = (int64_t)get_u64(r);
    return !r->bad && out->key.size <= BOARD_KEY_MOST && out->value.size <= BOARD_VALUE_MOST;
}

static int notes_damaged(const struct nats_board *b) {
    return error_set(MR_ECORRUPT, "%s: the last message of stream %s is damaged; remove it",
                     nats_session_place(b->session), b->stream);
}

static int notes_of_other_version(const struct nats_board *b) {
    return error_set(MR_EINVAL,
                     "%s: stream %s was written by another version of millrace; run the same "
                     "release on all nodes, or remove the stream once all have ended",
                     nats_session_place(b->session), b->stream);
}

static int notes_decode(const struct nats_board *b, natsMsg *m, struct notes_message *out) {
    struct reader r = reader_of(nats_message_bytes(m));
    uint32_t version = get_u32(&r);
    if (version != NOTES_VERSION && version >> 16 == NOTES_VERSION >> 16)
        return notes_of_other_version(b);
    mr_bytes notes = get_raw(&r, r.size - r.at);
    struct nats_note note;
    struct reader check = reader_of(notes);
    while (nats_note_next(&check, &note))
        ;
    if (version != NOTES_VERSION || !reader_done(&check))
        return notes_damaged(b);
    return notes.size ? buffer_append(&out->bytes, notes.data, notes.size) : 0;
}

// The stream is made when it is used first: what is in it are hints.
static int notes_make_stream(struct nats_board *b) {
    struct nats_cluster_state cluster;
    const char *subjects[] = { b->subject };
    int err = nats_cluster_read(b->session, b->cluster, &cluster);
    return err ? err
               : nats_stream_make(b->session, b->stream, subjects, 1, cluster.cluster.replicas);
}

static int notes_read(struct nats_board *b, struct notes_message *out) {
    natsMsg *m = NULL;
    *out = (struct notes_message){ 0 };
    int err = nats_session_last(b->session, b->stream, b->subject, &m);
    if (err == NATS_NO_STREAM)
        return notes_make_stream(b);
    if (err == NATS_NOTHING)
        return STREAM_DONE;
    if (err)
        return err;
    err = notes_decode(b, m, out);
    out->sequence = natsMsg_GetSequence(m);
    out->time_ns = natsMsg_GetTime(m);
    natsMsg_Destroy(m);
    if (err)
        buffer_finish(&out->bytes);
    return err;
}

static int note_append(struct buffer *to, mr_bytes key, mr_bytes value, int64_t before_ns) {
    uint8_t bytes[NOTE_FIELDS];
    struct writer w = { .data = bytes, .capacity = sizeof bytes };
    put_bytes(&w, key);
    put_bytes(&w, value);
    put_u64(&w, (uint64_t)before_ns);
    return buffer_append(to, bytes, w.size);
}

static int key_compare(mr_bytes a, mr_bytes b) {
    size_t size = a.size < b.size ? a.size : b.size;
    int order = memcmp(a.data, b.data, size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

// What replaces the notes: all others, and this one, unless its value is NULL.
static int notes_edit(const struct notes_message *from, const char *key, const char *value,
                      struct buffer *out, uint32_t *out_count) {
    struct reader r = reader_of(buffer_bytes(&from->bytes));
    struct nats_note note;
    mr_bytes own = mr_str(key);
    bool written = !value;
    uint32_t count = 0;
    uint8_t version[4];
    struct writer w = { .data = version, .capacity = sizeof version };
    put_u32(&w, NOTES_VERSION);
    int err = buffer_append(out, version, sizeof version);
    while (err == 0 && nats_note_next(&r, &note)) {
        int order = key_compare(note.key, own);
        if (order >= 0 && !written) {
            err = note_append(out, own, mr_str(value), from->time_ns);
            written = true;
            count++;
        }
        if (err == 0 && order != 0) {
            err = note_append(out, note.key, note.value, note.before_ns);
            count++;
        }
    }
    if (err == 0 && !written) {
        err = note_append(out, own, mr_str(value), from->time_ns);
        count++;
    }
    *out_count = count;
    return err;
}

static bool notes_have(const struct notes_message *from, const char *key) {
    struct reader r = reader_of(buffer_bytes(&from->bytes));
    struct nats_note note;
    bool found = false;
    while (!found && nats_note_next(&r, &note))
        found = key_compare(note.key, mr_str(key)) == 0;
    return found;
}

// NATS_CONFLICT: others have written meanwhile.
static int notes_replace(struct nats_board *b, const struct notes_message *from, const char *key,
                         const char *value) {
    struct buffer to = { 0 };
    uint32_t count;
    uint64_t sequence;
    int err = notes_edit(from, key, value, &to, &count);
    bool grows = value && !notes_have(from, key);
    if (err == 0 && grows &&
        (count > BOARD_NOTES_MOST || to.size > nats_session_payload(b->session)))
        err = error_set(MR_EFULL, "%s: stream %s has too many notes",
                        nats_session_place(b->session), b->stream);
    if (err == 0) {
        struct nats_put put = { b->subject, from->sequence, true, buffer_bytes(&to) };
        err = nats_session_put(b->session, &put, &sequence);
    }
    buffer_finish(&to);
    return err;
}

// An empty message, whose time is that of the first note.
static int notes_begin(struct nats_board *b) {
    uint8_t version[4];
    uint64_t sequence;
    struct writer w = { .data = version, .capacity = sizeof version };
    put_u32(&w, NOTES_VERSION);
    struct nats_put put = { b->subject, 0, true, { version, sizeof version } };
    int err = nats_session_put(b->session, &put, &sequence);
    return err == STREAM_DONE ? (int)NATS_CONFLICT : err; // to be read again
}

static int notes_write(struct nats_board *b, const char *key, const char *value, bool only_new) {
    int err = NATS_CONFLICT;
    for (int i = 0; i < NOTES_TRIES && err == NATS_CONFLICT; i++) {
        struct notes_message now;
        err = notes_read(b, &now);
        if (err)
            return err;
        bool is_there = notes_have(&now, key);
        if ((only_new && is_there) || (!value && !is_there))
            err = STREAM_DONE;
        else
            err = now.sequence ? notes_replace(b, &now, key, value) : notes_begin(b);
        buffer_finish(&now.bytes);
    }
    if (err == NATS_CONFLICT)
        err = error_set(STREAM_UNAVAILABLE, "%s: others write to stream %s at the same time",
                        nats_session_place(b->session), b->stream);
    return err;
}

// ---- The promise --------------------------------------------------------------------------------

static void nats_promise_judge(const char *version, uint32_t replicas, struct stream_promise *out) {
    const char *flushed = strncmp(version, "2.9.", 4) == 0
                              ? "this version never flushes before it answers"
                              : "unless sync_interval is always, which cannot be checked";
    out->replicated = replicas > 1;
    out->remedy = "Make a cluster on three servers (millrace store init nats://a,b,c --cluster "
                  "NAME), copy the store into it";
    if (out->replicated)
        snprintf(
            out->text, sizeof out->text,
            "An acknowledged job survives the loss of %u of %u NATS servers, not a power cut of "
            "all (%s).",
            (unsigned)replicas / 2, (unsigned)replicas, flushed);
    else
        snprintf(out->text, sizeof out->text,
                 "An acknowledged job survives the end of the NATS server, not the loss of its "
                 "machine or its power (%s).",
                 flushed);
}

// ---- The board ----------------------------------------------------------------------------------

static int nats_board_put(struct board *b, const char *key, const char *value) {
    return notes_write(nats_board_of(b), key, value, false);
}

static int nats_board_put_new(struct board *b, const char *key, const char *value) {
    return notes_write(nats_board_of(b), key, value, true);
}

static int nats_board_remove(struct board *b, const char *key) {
    return notes_write(nats_board_of(b), key, NULL, false);
}

static uint64_t note_age_ms(const struct nats_note *n, const struct notes_message *m,
                            uint64_t seen_ms) {
    int64_t ns = m->time_ns - n->before_ns;
    return ns > 0 ? (uint64_t)ns / 1000000 + seen_ms : seen_ms;
}

static int nats_note_pass(const struct nats_note *n, uint64_t age_ms, board_each *each, void *arg) {
    char key[BOARD_KEY_MOST + 1], value[BOARD_VALUE_MOST + 1];
    snprintf(key, sizeof key, "%.*s", (int)n->key.size, (const char *)n->key.data);
    snprintf(value, sizeof value, "%.*s", (int)n->value.size, (const char *)n->value.data);
    return each(arg, &(struct board_note){ key, value, age_ms });
}

static int nats_board_notes(struct board *base, board_each *each, void *arg) {
    struct nats_board *b = nats_board_of(base);
    struct notes_message now;
    int err = notes_read(b, &now);
    if (err)
        return err;
    uint64_t seen_ms = seen_for_ms(&b->notes, now.sequence);
    struct reader r = reader_of(buffer_bytes(&now.bytes));
    struct nats_note note;
    while (err >= 0 && nats_note_next(&r, &note))
        err = nats_note_pass(&note, note_age_ms(&note, &now, seen_ms), each, arg);
    buffer_finish(&now.bytes);
    return err < 0 ? err : STREAM_DONE;
}

// The last message of a shard was new at `older_ms` before now, by the times of two servers, whose
// clocks may differ. So it counts as no older than the last look that has found another one.
static void last_seen_set_older(struct last_seen *l, const struct last_seen *before,
                                uint64_t older_ms) {
    uint64_t at_ms = l->at_ms > older_ms ? l->at_ms - older_ms : 0;
    l->at_ms = before->sequence && at_ms < before->looked_ms ? before->looked_ms : at_ms;
}

// How old the last message of a shard is: by the times of the servers as far as they are known, by
// this process from then on.
static int nats_board_look_shard(struct nats_board *b, uint32_t shard, int64_t newest_ns,
                                 struct stream_state *out) {
    char name[NATS_STREAM_NAME];
    natsMsg *m = NULL;
    struct nats_record record;
    mr_bytes rest;
    nats_stream_name(b->cluster, shard, name);
    *out = (struct stream_state){ 0 };
    int err = nats_shard_last(b->session, b->cluster, shard, &m);
    if (err == NATS_NOTHING)
        return STREAM_DONE;
    if (err == NATS_NO_STREAM)
        return nats_stream_lost(b->session, name);
    if (err)
        return err;
    bool fits = nats_record_get(nats_message_bytes(m), &record, &rest);
    uint64_t sequence = natsMsg_GetSequence(m);
    int64_t time_ns = natsMsg_GetTime(m);
    struct last_seen before = b->shards[shard];
    natsMsg_Destroy(m);
    if (!fits)
        return error_set(MR_ECORRUPT, "%s: the last message of stream %s is damaged",
                         nats_session_place(b->session), name);
    *out = nats_record_state(&record);
    (void)seen_for_ms(&b->shards[shard], sequence);
    if (before.sequence != sequence && newest_ns > time_ns)
        last_seen_set_older(&b->shards[shard], &before, (uint64_t)(newest_ns - time_ns) / 1000000);
    out->silent_ms = out->owner[0] ? b->shards[shard].looked_ms - b->shards[shard].at_ms : 0;
    return STREAM_DONE;
}

static int nats_board_look(struct board *base, uint32_t shards, struct stream_state *out) {
    struct nats_board *b = nats_board_of(base);
    struct notes_message notes;
    struct stream_state *found = mem_alloc(shards * sizeof *found);
    if (!found)
        return error_set(MR_ENOMEM, "no memory for the states of %u shards", shards);
    int err = shards > NATS_SHARDS_MOST
                  ? error_set(MR_EINVAL, "a cluster has at most %d shards", NATS_SHARDS_MOST)
                  : notes_read(b, &notes);
    if (err == 0)
        buffer_finish(&notes.bytes);
    for (uint32_t i = 0; err == 0 && i < shards; i++)
        err = nats_board_look_shard(b, i, notes.time_ns, &found[i]);
    if (err == 0)
        memcpy(out, found, shards * sizeof *found);
    mem_free(found);
    return err;
}

// Whatever server answers, the streams have as many replicas.
static int nats_board_promise(struct board *base, struct stream_promise *out) {
    struct nats_board *b = nats_board_of(base);
    struct nats_cluster_state found;
    char name[NATS_STREAM_NAME];
    uint32_t asked = nats_session_replicas(b->session), replicas = 0;
    nats_stream_name(b->cluster, 0, name);
    int err = nats_cluster_read(b->session, b->cluster, &found);
    if (!err)
        err = nats_cluster_usable(b->session, b->cluster, &found);
    if (!err)
        err =
            nats_stream_check(b->session, name, asked ? asked : found.cluster.replicas, &replicas);
    if (!err)
        nats_promise_judge(nats_session_version(b->session), replicas, out);
    return err;
}

static void nats_board_interrupt(struct board *b) {
    nats_session_interrupt(nats_board_of(b)->session);
}

static void nats_board_close(struct board *b) {
    nats_session_destroy(nats_board_of(b)->session);
    mem_free(b);
}

static const struct board_impl nats_board_impl = { .look = nats_board_look,
                                                   .notes = nats_board_notes,
                                                   .put = nats_board_put,
                                                   .put_new = nats_board_put_new,
                                                   .remove = nats_board_remove,
                                                   .promise = nats_board_promise,
                                                   .interrupt = nats_board_interrupt,
                                                   .close = nats_board_close };

int board_nats_open(const struct stream_nats_options *o, struct board **out) {
    struct nats_board *b = mem_alloc(sizeof *b);
    if (!b)
        return error_set(MR_ENOMEM, "no memory for a board");
    int err = nats_session_create(o, " board", &b->session);
    if (err < 0) {
        mem_free(b);
        return err;
    }
    b->base.impl = &nats_board_impl;
    snprintf(b->cluster, sizeof b->cluster, "%s", o->cluster);
    snprintf(b->stream, sizeof b->stream, "millrace-%s-notes", o->cluster);
    snprintf(b->subject, sizeof b->subject, "millrace.%s.notes", o->cluster);
    *out = &b->base;
    return 0;
}
