#include "server/answer.h"

#include "base/errors.h"
#include "core/record.h"

#include <endian.h>
#include <string.h>

// ---- Errors -----------------------------------------------------------------------------------

static const char *code_of(int err) {
    switch (err) {
    case MR_EFULL:
    case MR_ENOMEM:
        return "FULL";
    case MR_EGAP:
        return "GAP";
    case MR_ESTALE:
        return "STALE";
    case MR_EEXPIRED:
        return "EXPIRED";
    case MR_ECANCELLED:
        return "CANCELLED";
    case MR_EDEAD:
        return "DEAD";
    case MR_EGONE:
        return "GONE";
    case MR_ETOOBIG:
        return "TOOBIG";
    case MR_EDRAINING:
        return "DRAINING";
    case MR_ESTOPPED:
    case MR_EIO:
        return "STOPPED";
    default:
        return "ERR";
    }
}

void answer_error(struct session *s, int err) {
    reply_error(&s->reply, code_of(err), mr_str(error_text()));
}

// ---- Tokens: 20 bytes as 27 letters -----------------------------------------------------------

enum { TOKEN_BYTES = 20 };
static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void token_write(const struct token *t, char out[ANSWER_TOKEN]) {
    uint8_t raw[TOKEN_BYTES + 1] = { 0 };
    uint64_t serial = htole64(t->serial), random = htole64(t->random);
    uint32_t lease = htole32(t->lease);
    memcpy(raw, &serial, 8);
    memcpy(raw + 8, &random, 8);
    memcpy(raw + 16, &lease, 4);
    for (int i = 0; i < TOKEN_BYTES / 3 * 3 + 3; i += 3) {
        uint32_t three = (uint32_t)raw[i] << 16 | (uint32_t)raw[i + 1] << 8 | raw[i + 2];
        for (int k = 0; k < 4 && i / 3 * 4 + k < ANSWER_TOKEN; k++)
            out[i / 3 * 4 + k] = letters[three >> (18 - 6 * k) & 63];
    }
}

// 64: not a letter.
static uint8_t letter_value(char c) {
    if (c >= 'A' && c <= 'Z')
        return (uint8_t)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (uint8_t)(c - 'a' + 26);
    if (c >= '0' && c <= '9')
        return (uint8_t)(c - '0' + 52);
    return c == '-' ? 62 : c == '_' ? 63 : 64;
}

int token_read(mr_bytes text, struct token *out) {
    uint8_t raw[TOKEN_BYTES + 1] = { 0 };
    const char *p = text.data;
    bool bad = text.size != ANSWER_TOKEN;
    for (int i = 0; !bad && i < ANSWER_TOKEN; i += 4) {
        uint32_t three = 0;
        for (int k = 0; k < 4; k++) {
            uint8_t value = i + k < ANSWER_TOKEN ? letter_value(p[i + k]) : 0;
            bad = bad || value > 63;
            three = three << 6 | value;
        }
        raw[i / 4 * 3] = (uint8_t)(three >> 16);
        raw[i / 4 * 3 + 1] = (uint8_t)(three >> 8);
        raw[i / 4 * 3 + 2] = (uint8_t)three;
    }
    if (bad)
        return error_set(MR_ESTALE, "that is not a token");
    memcpy(&out->serial, raw, 8);
    memcpy(&out->random, raw + 8, 8);
    memcpy(&out->lease, raw + 16, 4);
    out->serial = le64toh(out->serial);
    out->random = le64toh(out->random);
    out->lease = le32toh(out->lease);
    return 0;
}

// ---- Jobs -------------------------------------------------------------------------------------

enum { BODY_GUESS = 64 };

// Reads an entry's body from the log into the reply.
static int answer_entry(struct session *s, uint64_t at) {
    size_t begin = reply_bulk_begin(&s->reply, BODY_GUESS);
    int err = s->reply.err ? s->reply.err : shard_read(s->host->shard, at, &s->out);
    if (err == 0)
        reply_bulk_end(&s->reply, begin);
    return err;
}

static int answer_grant(struct session *s, const struct grant *g) {
    struct reply *r = &s->reply;
    char token[ANSWER_TOKEN];
    token_write(&g->token, token);
    reply_array(r, 9);
    reply_id(r, g->id);
    reply_bulk(r, (mr_bytes){ token, sizeof token });
    reply_bulk(r, g->stage);
    reply_bulk(r, g->key);
    int err = answer_entry(s, g->at);
    if (err < 0)
        return err;
    reply_integer(r, g->attempt);
    reply_integer(r, g->left_ms);
    if (!g->state_at)
        reply_null(r);
    else if ((err = answer_entry(s, g->state_at)) < 0)
        return err;
    reply_integer(r, g->lease_ms);
    return 0;
}

// Writes those that are not to be skipped. False: one could not be read, and is to be skipped too.
static bool try_grants(struct session *s, const struct grant *grants, size_t count, bool *skip) {
    size_t shown = 0, before = s->out.size;
    for (size_t i = 0; i < count; i++)
        shown += !skip || !skip[i];
    reply_array(&s->reply, shown);
    for (size_t i = 0; i < count; i++) {
        if ((skip && skip[i]) || answer_grant(s, &grants[i]) == 0)
            continue;
        if (s->reply.err)
            return true; // the session is broken
        s->out.size = before;
        if (skip) {
            skip[i] = true;
            host_note_unreadable(s->host, &grants[i]);
        }
        return false;
    }
    return true;
}

void answer_grants(struct session *s, const struct grant *grants, size_t count) {
    session_reply(s);
    if (!try_grants(s, grants, count, NULL)) {
        bool skip[ANSWER_GRANTS] = { 0 };
        while (!try_grants(s, grants, count, skip))
            continue;
    }
    s->taken += count;
    session_touch(s);
}

// ---- Ends -------------------------------------------------------------------------------------

// The reasons of a dead job: its last one is told.
static void answer_dead(struct session *s, uint64_t at) {
    struct buffer *b = &s->host->scratch;
    buffer_clear(b);
    struct reason last = { .text = mr_str("") };
    size_t next = 0;
    if (at && shard_read(s->host->shard, at, b) == 0)
        while (reasons_next(buffer_bytes(b), &next, &last))
            continue;
    reply_error(&s->reply, "DEAD", last.text);
}

void answer_outcome(struct session *s, const struct outcome *o) {
    session_reply(s);
    size_t before = s->out.size;
    switch (o->status) {
    case JOB_DONE:
        if (answer_entry(s, o->at) < 0) {
            s->out.size = before;
            session_fail(s, MR_EIO);
        }
        break;
    case JOB_DEAD:
        answer_dead(s, o->at);
        break;
    case JOB_EXPIRED:
        reply_error(&s->reply, "EXPIRED", mr_str("the deadline has passed"));
        break;
    case JOB_CANCELLED:
        reply_error(&s->reply, "CANCELLED", mr_str("the job was cancelled"));
        break;
    case JOB_DELAYED:
    case JOB_WAITING:
    case JOB_RUNNING:
        break; // these have not ended
    }
    session_touch(s);
}
