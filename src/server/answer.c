// See answer.h. Bodies are read from the log directly into the reply.
#include "server/answer.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"
#include "core/record.h"
#include "server/access.h"
#include "server/fetch.h"
#include "server/shards.h"
#include "wire/code.h"
#include "wire/replies.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// A refusal for lack of room is about the server: behind a store without space it must not wait for
// what that did not accept.
APART void answer_error(struct session *s, int err) {
    bool has_no_room = err == MR_EFULL || err == MR_ENOMEM;
    s->host->refused += has_no_room;
    s->is_prompt = s->is_prompt || (has_no_room && !s->multi.runs);
    reply_error(&s->reply, code_name(code_of(err)), mr_str(error_text()));
}

void answer_ok(struct session *s, int err) {
    if (err < 0)
        answer_error(s, err);
    else
        reply_simple(&s->reply, "OK");
}

// ---- Tokens: 20 bytes as 27 characters of base64 ----------------------------------------------

enum { TOKEN_BYTES = 20, TOKEN_ROOM = 24, NO_LETTER = -1 };
static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// The value of each character: six bits.
static int8_t letter_values[256];

void tokens_prepare(void) {
    memset(letter_values, NO_LETTER, sizeof letter_values);
    for (uint8_t i = 0; i < 64; i++)
        letter_values[(uint8_t)letters[i]] = (int8_t)i;
}

// Three bytes become four characters; the last two bytes become three.
static void token_write(const struct token *t, char out[ANSWER_TOKEN]) {
    uint8_t raw[TOKEN_ROOM] = { 0 };
    uint64_t serial = htole64(t->serial), random = htole64(t->random);
    uint32_t lease = htole32(t->lease);
    memcpy(raw, &serial, 8);
    memcpy(raw + 8, &random, 8);
    memcpy(raw + 16, &lease, 4);
    char text[ANSWER_TOKEN + 1];
    for (int from = 0, to = 0; from < TOKEN_BYTES; from += 3, to += 4) {
        uint32_t three; // in the upper three bytes
        memcpy(&three, raw + from, sizeof three);
        three = be32toh(three);
        text[to] = letters[three >> 26];
        text[to + 1] = letters[three >> 20 & 63];
        text[to + 2] = letters[three >> 14 & 63];
        text[to + 3] = letters[three >> 8 & 63];
    }
    memcpy(out, text, ANSWER_TOKEN);
}

int token_read(mr_bytes given, struct token *out) {
    uint8_t raw[TOKEN_ROOM], text[ANSWER_TOKEN + 1];
    uint32_t bad = 0;
    if (given.size != ANSWER_TOKEN)
        return error_set(MR_ESTALE, "this is not a token");
    const int8_t *values = letter_values;
    memcpy(text, given.data, ANSWER_TOKEN);
    text[ANSWER_TOKEN] = letters[0];
    for (int from = 0, to = 0; from < ANSWER_TOKEN; from += 4, to += 3) {
        uint32_t a = (uint32_t)values[text[from]], b = (uint32_t)values[text[from + 1]];
        uint32_t c = (uint32_t)values[text[from + 2]], d = (uint32_t)values[text[from + 3]];
        uint32_t bits = a << 18 | b << 12 | c << 6 | d, three = htobe32(bits << 8);
        bad |= bits >> 24; // NO_LETTER has all bits
        memcpy(raw + to, &three, sizeof three);
    }
    if (bad)
        return error_set(MR_ESTALE, "this is not a token");
    memcpy(&out->serial, raw, 8);
    memcpy(&out->random, raw + 8, 8);
    memcpy(&out->lease, raw + 16, 4);
    out->serial = le64toh(out->serial);
    out->random = le64toh(out->random);
    out->lease = le32toh(out->lease);
    return 0;
}

// ---- Jobs -------------------------------------------------------------------------------------

// Cuts META, the last bytes, off what was read.
static void cut_meta(struct buffer *b, uint32_t size, uint8_t *out_meta) {
    b->size -= size;
    memcpy(out_meta, b->data + b->size, size);
}

// Reads an entry's body from the log into the reply, and its META, which the entry has behind it,
// into `out_meta`, which has META_MOST bytes.
static int answer_entry(struct session *s, uint32_t shard, uint64_t at, uint32_t meta_size,
                        uint8_t *out_meta) {
    size_t begin = reply_bulk_begin(&s->reply);
    int err = s->reply.err;
    if (err == 0)
        err = fetch_look(s, shard, at, FETCH_BODY, s->reply.out);
    if (err == 0 && meta_size)
        cut_meta(s->reply.out, meta_size, out_meta);
    if (err == 0)
        reply_bulk_end(&s->reply, begin);
    return err;
}

// The body, or nil if there is none, at `*to`; and room for `room` bytes behind it.
static int write_entry(struct session *s, const struct grant *g, uint64_t at, size_t room,
                       uint8_t *out_meta, uint8_t **to) {
    uint32_t meta_size = at == g->at ? g->meta_size : 0;
    struct reply *r = &s->reply;
    if (!at) {
        *to = null_write(*to, r->resp3);
        return 0;
    }
    reply_written(r, *to);
    int err = answer_entry(s, g->shard, at, meta_size, out_meta);
    if (err == 0)
        *to = reply_room(r, room);
    return err == 0 ? r->err : err;
}

#define WRITE_GRANT(from, member, kind, ...) WRITE_GRANT_##kind(v.member)
#define WRITE_GRANT_id(value) to = id_write(to, value);
#define WRITE_GRANT_bytes(value) to = bulk_write(to, value);
#define WRITE_GRANT_small(value) to = integer_write(to, value);
#define WRITE_GRANT_number(value) to = integer_write(to, value);
#define WRITE_GRANT_entry(at)                                                                      \
    if ((err = write_entry(s, info, at, room, meta, &to)) < 0)                                     \
        return err;

HOT static int answer_grant(struct session *s, const struct grant *info) {
    struct reply *r = &s->reply;
    char token[ANSWER_TOKEN];
    uint8_t meta[META_MOST]; // filled with the body, which is written before it
    struct grant_reply v = { GRANT_FIELDS(FROM_INFO) };
    int err;
    token_write(&info->token, token);
    v.token = (mr_bytes){ token, sizeof token };
    v.body = info->at;
    v.state = info->state_at;
    v.meta = (mr_bytes){ meta, info->meta_size };
    size_t room = (1 + GRANT_PLACES) * VALUE_ROOM + sizeof token + v.stage.size + v.key.size +
                  info->meta_size;
    uint8_t *to = reply_room(r, room);
    if (!to)
        return r->err;
    to = array_write(to, GRANT_PLACES);
    GRANT_FIELDS(WRITE_GRANT)
    reply_written(r, to);
    return 0;
}

bool answer_body(struct session *s, uint32_t shard, uint64_t at, uint32_t meta_size,
                 uint8_t *out_meta) {
    size_t before = s->reply.out->size;
    if (answer_entry(s, shard, at, meta_size, out_meta) == 0)
        return true;
    s->reply.out->size = before;
    reply_null(&s->reply);
    return false;
}

static bool share_lease(const struct grant *a, const struct grant *b) {
    return a->token.serial == b->token.serial && a->shard == b->shard;
}

// Skips a job that could not be read, and later jobs of the same lease.
static void skip_from(struct session *s, const struct grant *grants, size_t count, size_t i,
                      int err, bool *skip) {
    const struct grant *bad = &grants[i];
    host_note_unreadable(s->host, bad, err);
    for (; i < count && share_lease(&grants[i], bad); i++)
        skip[i] = true;
}

// Writes the jobs that are not skipped. MR_EAGAIN: a body has to be fetched. 1: a body could not be
// read, and its job is to be skipped, too.
static int try_grants(struct session *s, const struct grant *grants, size_t count, bool *skip) {
    size_t written = 0, before = s->reply.out->size;
    for (size_t i = 0; i < count; i++)
        written += !skip || !skip[i];
    reply_array(&s->reply, written);
    for (size_t i = 0; i < count; i++) {
        int err = skip && skip[i] ? 0 : answer_grant(s, &grants[i]);
        if (err == 0)
            continue;
        if (err == MR_ENOMEM || err == MR_ETOOBIG) // not caused by the body
            s->reply.err = err;
        if (s->reply.err)
            return 0; // the session is broken
        s->reply.out->size = before;
        if (err == MR_EAGAIN)
            return err;
        if (skip)
            skip_from(s, grants, count, i, err, skip);
        return 1;
    }
    return 0;
}

// Leaves out what cannot be read.
static int try_readable(struct session *s, const struct grant *grants, size_t count) {
    bool skip[ANSWER_GRANTS] = { 0 };
    uint32_t noted = s->host->unreadable_count;
    int left = 1;
    while (left > 0)
        left = try_grants(s, grants, count, skip);
    if (left == MR_EAGAIN)
        s->host->unreadable_count = noted; // they are found again when the others were fetched
    return left;
}

bool answer_grants(struct session *s, const struct grant *grants, size_t count) {
    session_reply(s);
    int left = try_grants(s, grants, count, NULL);
    if (left > 0)
        left = try_readable(s, grants, count);
    if (left == MR_EAGAIN)
        return false;
    s->taken += count;
    session_touch(s);
    return true;
}

// ---- Ends -------------------------------------------------------------------------------------

// The cleaner has moved what belongs to the end. False: it is gone.
static bool outcome_find(struct session *s, struct outcome *o) {
    struct job_info info;
    if (shards_look_job(s->host, o->id, &info) < 0 || info.status != o->status)
        return false;
    uint64_t at = o->status == JOB_DEAD ? info.reasons_at : info.at;
    bool moved = at && at != o->at;
    o->at = at;
    return moved;
}

// Replies with the last reason of a dead job. MR_EAGAIN: it has to be fetched.
static int answer_dead(struct session *s, struct outcome *o) {
    struct buffer *b = &s->host->scratch;
    buffer_clear(b);
    int err = o->at ? fetch_look(s, o->shard, o->at, FETCH_BODY, b) : 0;
    if (err == MR_EGONE && outcome_find(s, o))
        err = fetch_look(s, o->shard, o->at, FETCH_BODY, b);
    if (err == MR_EAGAIN)
        return err;
    if (err == MR_ENOMEM) { // the client can ask again
        answer_error(s, err);
        return 0;
    }
    if (err < 0)
        buffer_clear(b);
    reply_error(&s->reply, code_name(CODE_DEAD), reasons_last(buffer_bytes(b)));
    return 0;
}

static void write_ended(struct session *s, enum code code, uint64_t id, const char *how) {
    char text[80];
    snprintf(text, sizeof text, "job %" PRIu64 " %s", id, how);
    reply_error(&s->reply, code_name(code), mr_str(text));
}

// If unread replies leave no room for the result, the connection is closed and the client can ask
// again: an error that the result cannot be read would be wrong.
// MR_EAGAIN: it has to be fetched.
static int answer_result(struct session *s, struct outcome *o) {
    size_t before = s->reply.out->size;
    if (!o->at) {
        reply_bulk(&s->reply, (mr_bytes){ 0 });
        return 0;
    }
    int err = answer_entry(s, o->shard, o->at, 0, NULL);
    if (err == MR_EGONE && outcome_find(s, o)) {
        s->reply.out->size = before;
        err = answer_entry(s, o->shard, o->at, 0, NULL);
    }
    if (err == MR_ETOOBIG)
        s->reply.err = err;
    if (err == 0 || err == MR_ETOOBIG)
        return 0;
    s->reply.out->size = before;
    if (err == MR_EAGAIN)
        return err;
    answer_error(s, err == MR_ENOMEM ? err : MR_EIO);
    return 0;
}

bool answer_outcome(struct session *s, struct outcome *o) {
    session_reply(s);
    int err = 0;
    switch (o->status) {
    case JOB_DONE:
        err = answer_result(s, o);
        break;
    case JOB_DEAD:
        err = answer_dead(s, o);
        break;
    case JOB_EXPIRED:
        write_ended(s, CODE_EXPIRED, o->id, "was not done by its deadline");
        break;
    case JOB_CANCELLED:
        write_ended(s, CODE_CANCELLED, o->id, "was cancelled");
        break;
    case JOB_DELAYED:
    case JOB_WAITING:
    case JOB_RUNNING:
        break; // these have not ended
    }
    session_touch(s);
    return err == 0;
}

static void outcome_resume(struct session *, void *, enum wake);

static const struct wait_kind for_outcome = { .resume = outcome_resume, .free = mem_free };

static void outcome_resume(struct session *s, void *state, enum wake wake) {
    (void)wake;
    if (!answer_outcome(s, state))
        (void)fetch_wait(s, &for_outcome, state, sizeof(struct outcome)); // else it has replied
}

void answer_or_fetch_outcome(struct session *s, const struct outcome *outcome) {
    struct outcome o = *outcome, *kept;
    if (answer_outcome(s, &o))
        return;
    if (!(kept = mem_alloc(sizeof *kept))) {
        answer_error(s, error_set(MR_ENOMEM, "no memory to read the result"));
        return;
    }
    *kept = o;
    if (!fetch_wait(s, &for_outcome, kept, sizeof *kept))
        mem_free(kept);
}

// ---- Lists made in several turns ----------------------------------------------------------------

static void listing_free(void *state) {
    struct listing *l = state;
    buffer_finish(&l->rows);
    mem_free(l);
}

static void list_resume(struct session *, void *, enum wake);

static const struct wait_kind list_turn = { .resume = list_resume, .free = listing_free };

static void write_list(struct session *s, const struct listing *l) {
    reply_array(&s->reply, l->count);
    if (!s->reply.err)
        s->reply.err = buffer_append(s->reply.out, l->rows.data, l->rows.size);
}

static void list_resume(struct session *s, void *state, enum wake wake) {
    (void)wake;
    struct listing *l = state;
    struct buffer *replies = s->reply.out;
    s->reply.out = &l->rows;
    bool all = l->more(s, l);
    s->reply.out = replies;
    if (all)
        write_list(s, l);
    else
        wait_for_turn(s, &list_turn, l, sizeof *l + l->rows.capacity);
}

void list_run(struct session *s, const struct listing *list) {
    struct listing *l = mem_alloc(sizeof *l);
    if (!l) {
        answer_error(s, error_set(MR_ENOMEM, "no memory for a list"));
        return;
    }
    *l = *list;
    l->rows.limit = LIMIT_UNSENT;
    list_resume(s, l, WAKE_READY);
    if (!s->wait.kind)
        listing_free(l);
}

bool list_next_place(const struct host *h, uint32_t (*places)(const struct core *), uint64_t *at) {
    uint32_t shard = (uint32_t)(*at >> LIST_SHARD_SHIFT);
    ++*at;
    for (; shard < h->end; *at = (uint64_t)++shard << LIST_SHARD_SHIFT)
        if ((uint32_t)*at < places(own_part(h, shard)->core))
            return true;
    return false;
}

bool list_read_from(struct session *s, mr_bytes from, mr_bytes only, const char *what,
                    int (*place)(struct core *, mr_bytes stage, mr_bytes name, uint32_t *out),
                    uint64_t *out) {
    const uint8_t *space = from.size ? memchr(from.data, ' ', from.size) : NULL;
    int shown = from.size < 64 ? (int)from.size : 64;
    *out = (uint64_t)s->host->first << LIST_SHARD_SHIFT;
    if (!from.data)
        return true;
    if (!space) {
        session_usage(
            s, "FROM takes the stage and the name of %s, with a space between them, not '%.*s'",
            what, shown, (const char *)from.data);
        return false;
    }
    size_t size = (size_t)(space - (const uint8_t *)from.data);
    mr_bytes stage = { from.data, size }, name = { space + 1, from.size - size - 1 };
    uint32_t shard = route_of(s->host->shards, stage), found = 0;
    if (!access_name(s, "stage", stage))
        return false;
    if (only.size && !bytes_equal(only, stage)) {
        session_usage(s, "FROM takes %s of the stage that is listed, not '%.*s'", what, shown,
                      (const char *)from.data);
        return false;
    }
    if (!name.size)
        return true; // from the first
    int err = place(core_of_stage(s->host, stage), stage, name, &found);
    if (err < 0)
        answer_error(s, err);
    *out = (uint64_t)shard << LIST_SHARD_SHIFT | found;
    return err == 0;
}
