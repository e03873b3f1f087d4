// See message.h.
#include "shard/message.h"

#include "base/errors.h"
#include "core/record.h"

#include <assert.h>
#include <string.h>

enum { MESSAGE_VERSION = 1 };
enum { META_SHIFT = 16, MADE_SHIFT = 28 };
enum { NUMBER_BYTES = 10, SIZE_BYTES = 4 };
enum { HEAD_MOST = 2 + 6 * NUMBER_BYTES + 2 * (STAGE_NAME_MOST + NUMBER_BYTES) };
enum { EMIT_HEAD_MOST = 10 * NUMBER_BYTES + STAGE_NAME_MOST + KEY_MOST + ONCE_MOST + SIZE_BYTES };

void message_finish(struct message *m) {
    buffer_finish(&m->emits);
}

// ---- Emits ------------------------------------------------------------------------------------

// 0: none; 1: it has passed; else what is left, and 1.
static void put_deadline(struct writer *w, int64_t left_ms) {
    put_number(w, left_ms == LINK_EXPIRED ? 1 : left_ms ? (uint64_t)left_ms + 1 : 0);
}

int message_begin_emit(struct buffer *emits, const struct link_entry *e, size_t *out_body) {
    int err = buffer_reserve(emits, EMIT_HEAD_MOST);
    if (err < 0)
        return err;
    struct writer w = { .data = emits->data + emits->size, .capacity = EMIT_HEAD_MOST };
    put_number(&w, e->number);
    put_number(&w, e->after);
    put_number(&w, (uint64_t)e->delay_ms);
    put_deadline(&w, e->deadline_ms);
    put_number(&w, (uint64_t)(e->job_maker != 0) << MADE_SHIFT |
                       (uint64_t)e->meta_size << META_SHIFT | e->attempts);
    put_bytes(&w, e->stage);
    put_bytes(&w, e->key);
    put_bytes(&w, e->once);
    put_u64(&w, e->maker);
    if (e->job_maker)
        put_u64(&w, e->job_maker);
    put_u32(&w, 0);
    if (w.overflow)
        return error_set(MR_ETOOBIG, "an emit's key of %zu bytes is too large", e->key.size);
    emits->size += w.size;
    *out_body = emits->size;
    return 0;
}

void message_end_emit(struct buffer *emits, size_t body) {
    struct writer w = { .data = emits->data + body - SIZE_BYTES, .capacity = SIZE_BYTES };
    put_u32(&w, (uint32_t)(emits->size - body));
}

static uint64_t get_upto(struct reader *r, uint64_t most) {
    uint64_t number = get_number(r);
    r->bad = r->bad || number > most;
    return number;
}

static mr_bytes get_bytes_upto(struct reader *r, size_t most) {
    return get_raw(r, get_upto(r, most));
}

static int64_t get_deadline(struct reader *r) {
    uint64_t number = get_upto(r, TIME_MOST_MS + 1);
    return number == 1 ? LINK_EXPIRED : number ? (int64_t)number - 1 : 0;
}

bool message_next_emit(struct reader *r, struct link_entry *out, mr_bytes *out_body) {
    if (r->bad || r->at == r->size)
        return false;
    struct link_entry e = { .number = get_upto(r, NUMBER_MOST) };
    e.after = get_upto(r, NUMBER_MOST);
    e.delay_ms = (int64_t)get_upto(r, TIME_MOST_MS);
    e.deadline_ms = get_deadline(r);
    uint64_t attempts = get_upto(r, (UINT64_C(2) << MADE_SHIFT) - 1);
    e.attempts = attempts & UINT16_MAX;
    e.meta_size = (uint32_t)attempts % (1U << MADE_SHIFT) >> META_SHIFT;
    e.stage = get_bytes_upto(r, STAGE_NAME_MOST);
    e.key = get_bytes_upto(r, KEY_MOST);
    e.once = get_bytes_upto(r, ONCE_MOST);
    e.maker = get_u64(r);
    e.job_maker = attempts >> MADE_SHIFT ? get_u64(r) : 0;
    mr_bytes body = get_raw(r, get_u32(r));
    r->bad = r->bad || e.number <= e.after || body.size < e.meta_size ||
             body.size - e.meta_size > BODY_MOST || e.meta_size > META_MOST;
    if (r->bad)
        return false;
    *out = e;
    *out_body = body;
    return true;
}

// ---- Messages ---------------------------------------------------------------------------------

// What the messages of each kind have, in the order in which it is written.
enum {
    HAS_OVER = 1, // and the high mark
    HAS_STAGE = 2,
    HAS_DOWNSTREAM = 4,
    HAS_MAKER = 8,
    HAS_EMITS = 16, // and the time of the sender
    HAS_MISSING = 32,
};

static const uint8_t fields_of[MESSAGE_KINDS] = {
    [MESSAGE_EDGE] = HAS_STAGE | HAS_DOWNSTREAM | HAS_MAKER,
    [MESSAGE_OVER] = HAS_OVER | HAS_STAGE,
    [MESSAGE_EMITS] = HAS_EMITS,
    [MESSAGE_REFUSED] = HAS_MISSING,
    [MESSAGE_SHARE] = HAS_MAKER,
    [MESSAGE_SHARE_LEFT] = HAS_MAKER,
};

static void put_fields(struct writer *w, const struct message *m) {
    uint8_t fields = fields_of[m->kind];
    if (fields & HAS_OVER) {
        put_u8(w, m->over);
        put_number(w, m->high_mark);
    }
    if (fields & HAS_STAGE)
        put_bytes(w, (mr_bytes){ m->stage, m->stage_size });
    if (fields & HAS_DOWNSTREAM)
        put_bytes(w, (mr_bytes){ m->downstream, m->downstream_size });
    if (fields & HAS_MAKER)
        put_u64(w, m->maker);
    if (fields & HAS_EMITS) {
        put_number(w, m->now_ms);
        put_bytes(w, buffer_bytes(&m->emits));
    }
    if (fields & HAS_MISSING)
        put_u8(w, m->missing);
}

int message_write(const struct message *m, struct buffer *out) {
    size_t most = HEAD_MOST + (fields_of[m->kind] & HAS_EMITS ? m->emits.size : 0);
    int err = buffer_reserve(out, most);
    if (err < 0)
        return err;
    struct writer w = { .data = out->data + out->size, .capacity = most };
    put_u8(&w, MESSAGE_VERSION);
    put_u8(&w, (uint8_t)m->kind);
    put_number(&w, m->from);
    put_number(&w, m->to);
    put_number(&w, m->epoch);
    put_number(&w, m->number);
    put_fields(&w, m);
    assert(!w.overflow);
    out->size += w.size;
    return 0;
}

static bool get_flag(struct reader *r) {
    uint8_t flag = get_u8(r);
    r->bad = r->bad || flag > 1;
    return flag;
}

static uint32_t get_stage(struct reader *r, char name[static STAGE_NAME_MOST]) {
    mr_bytes stage = get_bytes_upto(r, STAGE_NAME_MOST);
    r->bad = r->bad || stage_name_check(stage) < 0;
    if (!r->bad)
        memcpy(name, stage.data, stage.size);
    return (uint32_t)stage.size;
}

// Numbers increase, the last one is the message's, and each emit names the one before it or none.
static bool emits_are_valid(mr_bytes emits, uint64_t last) {
    struct reader r = reader_of(emits);
    struct link_entry e;
    mr_bytes body;
    uint64_t before = 0;
    uint32_t count = 0;
    for (; message_next_emit(&r, &e, &body); count++, before = e.number)
        if (e.number <= before || (count && e.after != before) || stage_name_check(e.stage) < 0)
            return false;
    return !r.bad && count && count <= MESSAGE_EMITS_MOST && before == last;
}

static void get_fields(struct reader *r, struct message *m, mr_bytes *out_emits) {
    uint8_t fields = fields_of[m->kind];
    if (fields & HAS_OVER) {
        m->over = get_flag(r);
        m->high_mark = get_number(r);
    }
    if (fields & HAS_STAGE)
        m->stage_size = get_stage(r, m->stage);
    if (fields & HAS_DOWNSTREAM)
        m->downstream_size = get_stage(r, m->downstream);
    if (fields & HAS_MAKER)
        m->maker = get_u64(r);
    if (fields & HAS_EMITS) {
        m->now_ms = get_number(r);
        *out_emits = get_bytes(r);
        r->bad = r->bad || !emits_are_valid(*out_emits, m->number);
    }
    if (fields & HAS_MISSING)
        m->missing = get_flag(r);
}

static int message_refuse(uint8_t version, size_t at) {
    if (version != MESSAGE_VERSION)
        return error_set(MR_EINVAL,
                         "a message between shards of version %u, not %d: all nodes of a cluster "
                         "need the same version of millrace",
                         version, MESSAGE_VERSION);
    return error_set(MR_EINVAL, "a message between shards is damaged at byte %zu", at);
}

int message_read(mr_bytes bytes, struct message *out) {
    struct reader r = reader_of(bytes);
    struct message m = { 0 };
    mr_bytes emits = { 0 };
    r.bad = bytes.size > MESSAGE_MOST;
    uint8_t version = get_u8(&r), kind = get_u8(&r);
    if (r.bad || version != MESSAGE_VERSION || kind >= MESSAGE_KINDS)
        return message_refuse(version, r.at);
    m.kind = kind;
    m.from = (uint32_t)get_upto(&r, SHARDS_MOST - 1);
    m.to = (uint32_t)get_upto(&r, SHARDS_MOST - 1);
    m.epoch = get_upto(&r, EPOCH_MOST);
    m.number = get_number(&r);
    get_fields(&r, &m, &emits);
    if (!reader_done(&r) || m.from == m.to)
        return message_refuse(version, r.at);
    struct buffer kept = out->emits;
    buffer_clear(&kept);
    int err = buffer_append(&kept, emits.data, emits.size);
    if (err < 0)
        return err;
    *out = m;
    out->emits = kept;
    return 0;
}
