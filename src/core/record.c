// Which kind has which fields, and how fields are decoded, checked and printed; record_layout.h
// lists the fields. Numbers that are mostly small are varints, large ones have a fixed size: both
// are cheap to write.
#include "core/record.h"

#include "base/codec.h"
#include "base/errors.h"
#include "core/record_layout.h"

#include <assert.h>
#include <inttypes.h>

#define KIND_ROW(kind, disk_number, text, field_set, check, apply, clean, ...)                     \
    { .name = (text), .number = (disk_number), .fields = (field_set), __VA_ARGS__ },

static const struct record_kind_row {
    const char *name;
    uint8_t number; // on disk
    uint32_t fields;
    enum record_copy copy;
    const char *body, *pushed, *due;
} kinds[] = { [RECORD_NONE] = { 0 }, RECORD_KINDS(KIND_ROW) };

#define NUMBER_ROW(kind, number, name, fields, ...) [number] = { RECORD_##kind, fields },

// What a number on disk means; RECORD_NONE: nothing.
static const struct {
    enum record_kind kind;
    uint32_t fields;
} numbers[] = { [NUMBER_STAGE_MADE] = { RECORD_STAGE, FIELDS_OF_STAGE | HAS_MAKER },
                [NUMBER_SOURCE_MADE] = { RECORD_SOURCE, FIELDS_OF_SOURCE | HAS_MAKER },
                [NUMBER_PUSH_META] = { RECORD_PUSH, FIELDS_OF_PUSH | HAS_META },
                [NUMBER_JOB_META] = { RECORD_JOB, FIELDS_OF_JOB | HAS_META },
                [NUMBER_OUTBOX_META] = { RECORD_OUTBOX, FIELDS_OF_OUTBOX | HAS_META },
                [NUMBER_ARRIVAL_META] = { RECORD_ARRIVAL, FIELDS_OF_ARRIVAL | HAS_META },
                [NUMBER_PUSH_MADE] = { RECORD_PUSH, FIELDS_OF_PUSH | FIELDS_OF_MADE },
                [NUMBER_JOB_MADE] = { RECORD_JOB, FIELDS_OF_JOB | FIELDS_OF_MADE },
                [NUMBER_OUTBOX_MADE] = { RECORD_OUTBOX, FIELDS_OF_OUTBOX | FIELDS_OF_MADE },
                [NUMBER_ARRIVAL_MADE] = { RECORD_ARRIVAL, FIELDS_OF_ARRIVAL | FIELDS_OF_MADE },
                [NUMBER_REPLACE_MADE] = { RECORD_REPLACE, FIELDS_OF_JOB | FIELDS_OF_MADE },
                [NUMBER_SCHEDULE_MADE] = { RECORD_SCHEDULE, FIELDS_OF_SCHEDULE | HAS_MAKER },
                RECORD_KINDS(NUMBER_ROW) };

// Code that reads or writes the first byte of a head itself relies on these.
_Static_assert(RECORD_PUSH == 1 && RECORD_END == 3 && RECORD_EPOCH == 13, "numbers on disk");

enum { NUMBERS = sizeof numbers / sizeof *numbers };

static bool kind_is_known(enum record_kind kind) {
    return kind > RECORD_NONE && kind <= RECORD_LAST;
}

const char *record_kind_name(enum record_kind kind) {
    return kind_is_known(kind) ? kinds[kind].name : "unknown";
}

const char *record_body_name(enum record_kind kind) {
    return kind_is_known(kind) ? kinds[kind].body : NULL;
}

enum record_copy record_copy_of(enum record_kind kind) {
    return kind_is_known(kind) ? kinds[kind].copy : RECORD_LEFT_OUT;
}

static uint8_t number_with_meta(enum record_kind kind) {
    static const uint8_t with_meta[RECORD_KINDS_END] = {
        [RECORD_PUSH] = NUMBER_PUSH_META,
        [RECORD_JOB] = NUMBER_JOB_META,
        [RECORD_OUTBOX] = NUMBER_OUTBOX_META,
        [RECORD_ARRIVAL] = NUMBER_ARRIVAL_META,
        [RECORD_REPLACE] = 34, // always has the field
    };
    assert(with_meta[kind]);
    return with_meta[kind];
}

// 0: the kind has no maker.
static uint8_t number_with_maker(enum record_kind kind) {
    static const uint8_t with_maker[RECORD_KINDS_END] = {
        [RECORD_STAGE] = NUMBER_STAGE_MADE,       [RECORD_SOURCE] = NUMBER_SOURCE_MADE,
        [RECORD_SCHEDULE] = NUMBER_SCHEDULE_MADE, [RECORD_PUSH] = NUMBER_PUSH_MADE,
        [RECORD_JOB] = NUMBER_JOB_MADE,           [RECORD_OUTBOX] = NUMBER_OUTBOX_MADE,
        [RECORD_ARRIVAL] = NUMBER_ARRIVAL_MADE,   [RECORD_REPLACE] = NUMBER_REPLACE_MADE,
    };
    return with_maker[kind];
}

static uint8_t number_of_record(const struct record *r) {
    uint8_t made = r->maker ? number_with_maker(r->kind) : 0;
    if (made)
        return made;
    return r->meta_size ? number_with_meta(r->kind) : kinds[r->kind].number;
}

// ---- Writing ----------------------------------------------------------------------------------

uint8_t *record_write_policies(uint8_t *p, const struct policy *policy, size_t from, size_t to) {
    const struct policy_row *row;
    for (size_t i = from; i < to && (row = policy_row(i)) != NULL; i++)
        for (size_t k = 0; k < policy_row_values(row); k++)
            p = field_write_number(p, policy_read(policy, &row->values[k]));
    return p;
}

static bool is_usual(const struct policy *policy, const struct policy_row *row) {
    for (size_t k = 0; k < policy_row_values(row); k++)
        if (policy_read(policy, &row->values[k]) != row->values[k].usual)
            return false;
    return true;
}

size_t record_policies_end(const struct policy *policy, size_t from) {
    const struct policy_row *row;
    size_t end = from;
    for (size_t i = from; (row = policy_row(i)) != NULL; i++)
        end = is_usual(policy, row) ? end : i + 1;
    return end;
}

#define WRITE_ABOUT(member, type, ...) p = field_write_##type(p, a->member);

static uint8_t *write_about_stage(uint8_t *p, const struct record_stage *a) {
    RECORD_STAGE_FIELDS(WRITE_ABOUT)
    return record_write_policies(p, &a->policy, 0, POLICIES_WITHIN_STAGE);
}

static uint8_t *write_about_source(uint8_t *p, const struct record_source *a) {
    RECORD_SOURCE_FIELDS(WRITE_ABOUT)
    return p;
}

static uint8_t *write_about_schedule(uint8_t *p, const struct record_schedule *a) {
    RECORD_SCHEDULE_FIELDS(WRITE_ABOUT)
    return p;
}

static uint8_t *write_move(uint8_t *p, const struct record_move *a) {
    RECORD_MOVE_FIELDS(WRITE_ABOUT)
    return p;
}

static uint8_t *write_about_epic(uint8_t *p, const struct record_epic *a) {
    RECORD_EPIC_FIELDS(WRITE_ABOUT)
    return p;
}

static uint8_t *write_later_policies(uint8_t *p, const struct record_stage *a) {
    size_t end = record_policies_end(&a->policy, POLICIES_WITHIN_STAGE);
    return record_write_policies(p, &a->policy, POLICIES_WITHIN_STAGE, end);
}

size_t record_encode(const struct record *r, uint8_t *out) {
    assert(kind_is_known(r->kind));
    uint8_t number = number_of_record(r);
    uint32_t fields = numbers[number].fields, with = optional_fields(r, fields);
    uint8_t *p = write_front(out, r, fields, with);
    *out = number;
    p = write_rare(p, r, fields);
    if (fields & HAS_ABOUT_STAGE)
        p = write_about_stage(p, &r->about->stage);
    if (fields & HAS_ABOUT_SOURCE)
        p = write_about_source(p, &r->about->source);
    if (fields & HAS_ABOUT_SCHEDULE)
        p = write_about_schedule(p, &r->about->schedule);
    if (fields & HAS_MOVE)
        p = write_move(p, &r->about->move);
    if (fields & HAS_ABOUT_EPIC)
        p = write_about_epic(p, &r->about->epic);
    p = write_optional(p, r, with);
    if (fields & HAS_ABOUT_STAGE)
        p = write_later_policies(p, &r->about->stage);
    return (size_t)(p - out);
}

// ---- Reading, by type -------------------------------------------------------------------------

static inline void field_read_u64(struct reader *in, uint64_t *out) {
    *out = get_u64(in);
}

static inline void field_read_id(struct reader *in, uint64_t *out) {
    *out = get_u64(in);
}

static inline void field_read_hex(struct reader *in, uint64_t *out) {
    *out = get_u64(in);
}

static inline void field_read_time(struct reader *in, uint64_t *out_ms) {
    mr_bytes raw = get_raw(in, TIME_BYTES);
    uint64_t ms = 0;
    if (raw.size)
        memcpy(&ms, raw.data, TIME_BYTES);
    *out_ms = le64toh(ms);
}

static inline void field_read_number(struct reader *in, uint64_t *out) {
    *out = get_number(in);
}

static inline void field_read_total(struct reader *in, uint64_t *out) {
    *out = get_number(in);
}

static inline void field_read_small(struct reader *in, uint32_t *out) {
    uint64_t n = get_number(in);
    in->bad = in->bad || n > UINT32_MAX;
    *out = (uint32_t)n;
}

static inline void field_read_stage(struct reader *in, uint32_t *out) {
    field_read_small(in, out);
}

static inline void field_read_shard(struct reader *in, uint32_t *out) {
    field_read_small(in, out);
}

static inline void field_read_flag(struct reader *in, bool *out) {
    uint64_t n = get_number(in);
    in->bad = in->bad || n > 1;
    *out = n;
}

static inline void field_read_present(struct reader *in, bool *out) {
    (void)in;
    *out = true;
}

static inline void field_read_status(struct reader *in, enum job_status *out) {
    *out = (enum job_status)get_u8(in);
}

static inline void field_read_missed(struct reader *in, uint32_t *out) {
    field_read_small(in, out);
}

static inline void field_read_hash(struct reader *in, struct hash128 *out) {
    out->low = get_u64(in);
    out->high = get_u64(in);
}

static inline void field_read_bytes(struct reader *in, mr_bytes *out) {
    *out = get_bytes(in);
}

static inline void field_read_bitmap(struct reader *in, uint8_t (*out)[SOURCE_BITMAP]) {
    mr_bytes bitmap = get_raw(in, sizeof *out);
    if (bitmap.size)
        memcpy(*out, bitmap.data, bitmap.size);
}

// ---- Reading ----------------------------------------------------------------------------------

#define READ_FIELD(bit, member, type, ...)                                                         \
    if (fields & (bit))                                                                            \
        field_read_##type(in, &r->member);

static void get_fixed(struct reader *in, struct record *r, uint32_t fields) {
    RECORD_FIXED_FIELDS(READ_FIELD)
}

static void get_rare(struct reader *in, struct record *r, uint32_t fields) {
    RECORD_RARE_FIELDS(READ_FIELD)
}

static void get_optional(struct reader *in, struct record *r, uint32_t fields) {
    RECORD_OPTIONAL_FIELDS(READ_FIELD)
}

#define READ_ABOUT(member, type, ...) field_read_##type(in, &a->member);

static void get_about_source(struct reader *in, struct record_source *a) {
    RECORD_SOURCE_FIELDS(READ_ABOUT)
}

static void get_about_schedule(struct reader *in, struct record_schedule *a) {
    RECORD_SCHEDULE_FIELDS(READ_ABOUT)
}

static void get_move(struct reader *in, struct record_move *a) {
    RECORD_MOVE_FIELDS(READ_ABOUT)
}

static void get_about_epic(struct reader *in, struct record_epic *a) {
    RECORD_EPIC_FIELDS(READ_ABOUT)
}

static void get_policy(struct reader *in, struct policy *policy, const struct policy_row *row) {
    for (size_t k = 0; k < policy_row_values(row); k++)
        *policy_at(policy, &row->values[k]) = get_number(in);
}

static void get_about_stage(struct reader *in, struct record_stage *a) {
    RECORD_STAGE_FIELDS(READ_ABOUT)
    for (size_t i = 0; i < POLICIES_WITHIN_STAGE; i++)
        get_policy(in, &a->policy, policy_row(i));
}

void record_read_later_policies(struct reader *in, struct policy *policy, size_t from) {
    const struct policy_row *row;
    size_t end = from;
    for (size_t i = from; (row = policy_row(i)) != NULL; i++) {
        if (!reader_done(in)) {
            get_policy(in, policy, row);
            end = i + 1;
        } else {
            for (size_t k = 0; k < policy_row_values(row); k++)
                *policy_at(policy, &row->values[k]) = row->values[k].usual;
        }
    }
    in->bad = in->bad || end != record_policies_end(policy, from);
}

static void get_behind_front(struct reader *in, struct record *r, uint32_t fields, uint32_t with,
                             struct record_about *about) {
    if (fields & HAS_RARE)
        get_rare(in, r, fields);
    if (fields & HAS_ABOUT_STAGE)
        get_about_stage(in, &about->stage);
    if (fields & HAS_ABOUT_SOURCE)
        get_about_source(in, &about->source);
    if (fields & HAS_ABOUT_SCHEDULE)
        get_about_schedule(in, &about->schedule);
    if (fields & HAS_MOVE)
        get_move(in, &about->move);
    if (fields & HAS_ABOUT_EPIC)
        get_about_epic(in, &about->epic);
    if (with)
        get_optional(in, r, with);
    if (fields & HAS_ABOUT_STAGE)
        record_read_later_policies(in, &about->stage.policy, POLICIES_WITHIN_STAGE);
}

int record_decode(mr_bytes head, struct record_about *about, struct record *out) {
    struct reader in = reader_of(head);
    struct record_about unwanted;
    uint8_t number = get_u8(&in), with = get_u8(&in);
    if (in.bad || number >= NUMBERS || !numbers[number].kind || head.size > RECORD_MAX)
        return error_set(MR_ECORRUPT, "a record of unknown kind %u", number);
    struct record r = { .kind = numbers[number].kind, .about = about };
    uint32_t fields = numbers[number].fields;
    field_read_time(&in, &r.time_ms);
    get_fixed(&in, &r, fields);
    get_behind_front(&in, &r, fields, with, about ? about : &unwanted);
    bool exact = reader_done(&in) && optional_fields(&r, fields) == with &&
                 number_of_record(&r) == number; // a record has one encoding only
    if (!exact || (unsigned)r.status > JOB_CANCELLED)
        return error_set(MR_ECORRUPT, "a %s record that cannot be read", record_kind_name(r.kind));
    *out = r;
    return 0;
}

// ---- Bounds -----------------------------------------------------------------------------------

static int record_refuse_field(const struct record *r, const char *field, uint64_t most) {
    return error_set(MR_ECORRUPT, "the %s of this %s record is above %" PRIu64, field,
                     record_kind_name(r->kind), most);
}

#define SIZE_OF_id(v) (v)
#define SIZE_OF_u64(v) (v)
#define SIZE_OF_hex(v) (v)
#define SIZE_OF_number(v) (v)
#define SIZE_OF_small(v) (v)
#define SIZE_OF_stage(v) (v)
#define SIZE_OF_shard(v) (v)
#define SIZE_OF_present(v) (v)
#define SIZE_OF_time(v) (v)
#define SIZE_OF_status(v) ((uint64_t)(v))
#define SIZE_OF_bytes(v) ((v).size)
#define SIZE_OF_hash(v) 0
#define SIZE_OF_flag(v) (v)
#define SIZE_OF_missed(v) (v)

#define CHECK_FIELD(bit, member, type, most, text)                                                 \
    if ((uint64_t)SIZE_OF_##type(r->member) > (uint64_t)(most))                                    \
        return record_refuse_field(r, #member, most);

int record_check_bounds(const struct record *r) {
    if (r->time_ms > INSTANT_MOST)
        return record_refuse_field(r, "time", INSTANT_MOST);
    RECORD_FIXED_FIELDS(CHECK_FIELD)
    RECORD_RARE_FIELDS(CHECK_FIELD)
    RECORD_OPTIONAL_FIELDS(CHECK_FIELD)
    return 0;
}

#define CHECK_ABOUT(member, type, most, text)                                                      \
    if ((uint64_t)SIZE_OF_##type(a->member) > (uint64_t)(most))                                    \
        return record_refuse_field(r, #member, most);

int record_check_schedule(const struct record *r) {
    const struct record_schedule *a = &r->about->schedule;
    RECORD_SCHEDULE_FIELDS(CHECK_ABOUT)
    return record_check_move(r);
}

int record_check_epic(const struct record *r) {
    const struct record_epic *a = &r->about->epic;
    RECORD_EPIC_FIELDS(CHECK_ABOUT)
    return 0;
}

int record_check_move(const struct record *r) {
    const struct record_move *a = &r->about->move;
    RECORD_MOVE_FIELDS(CHECK_ABOUT)
    return 0;
}

// ---- Printing ---------------------------------------------------------------------------------

enum field_part {
    PART_HEAD,
    PART_STAGE,
    PART_SOURCE,
    PART_SCHEDULE,
    PART_MOVE,
    PART_EPIC,
    PART_OPTIONAL
};

struct record_field {
    const char *name;
    enum field_part part;
    uint32_t bit;
    enum field_type type;
    size_t offset; // in the struct of its part
};

#define ROW(part, bit, where, member, type, text)                                                  \
    { text, part, bit, field_##type, offsetof(struct where, member) },
#define HEAD_ROW(bit, member, type, most, text) ROW(PART_HEAD, bit, record, member, type, text)
#define OPTIONAL_ROW(bit, member, type, most, text)                                                \
    ROW(PART_OPTIONAL, bit, record, member, type, text)
#define STAGE_ROW(member, type, merge, text)                                                       \
    ROW(PART_STAGE, HAS_ABOUT_STAGE, record_stage, member, type, text)
#define SOURCE_ROW(member, type, merge, text)                                                      \
    ROW(PART_SOURCE, HAS_ABOUT_SOURCE, record_source, member, type, text)

#define SCHEDULE_ROW(member, type, most, text)                                                     \
    ROW(PART_SCHEDULE, HAS_ABOUT_SCHEDULE, record_schedule, member, type, text)
#define MOVE_ROW(member, type, most, text) ROW(PART_MOVE, HAS_MOVE, record_move, member, type, text)
#define EPIC_ROW(member, type, most, text)                                                         \
    ROW(PART_EPIC, HAS_ABOUT_EPIC, record_epic, member, type, text)

static const struct record_field field_rows[] = {
    RECORD_FIXED_FIELDS(HEAD_ROW)        //
    RECORD_RARE_FIELDS(HEAD_ROW)         //
    RECORD_OPTIONAL_FIELDS(OPTIONAL_ROW) //
    RECORD_STAGE_FIELDS(STAGE_ROW)       //
    RECORD_SOURCE_FIELDS(SOURCE_ROW)     //
    RECORD_SCHEDULE_FIELDS(SCHEDULE_ROW) //
    RECORD_MOVE_FIELDS(MOVE_ROW)         //
    RECORD_EPIC_FIELDS(EPIC_ROW)         //
};

enum { FIELD_ROWS = sizeof field_rows / sizeof *field_rows };

static const char *field_at(const struct record *r, const struct record_field *f) {
    switch (f->part) {
    case PART_HEAD:
    case PART_OPTIONAL:
        return (const char *)r + f->offset;
    case PART_STAGE:
        return (const char *)&r->about->stage + f->offset;
    case PART_SOURCE:
        return (const char *)&r->about->source + f->offset;
    case PART_SCHEDULE:
        return (const char *)&r->about->schedule + f->offset;
    case PART_MOVE:
        return (const char *)&r->about->move + f->offset;
    case PART_EPIC:
        return (const char *)&r->about->epic + f->offset;
    }
    return NULL;
}

static void field_get(const struct record *r, const struct record_field *f,
                      struct record_value *out) {
    const void *at = field_at(r, f);
    switch (f->type) {
    case field_id:
    case field_u64:
    case field_hex:
    case field_number:
    case field_total:
    case field_time:
        out->number = *(const uint64_t *)at;
        break;
    case field_small:
    case field_missed:
    case field_stage:
    case field_shard:
        out->number = *(const uint32_t *)at;
        break;
    case field_flag:
    case field_present:
        out->number = *(const bool *)at;
        break;
    case field_status:
        out->number = *(const enum job_status *)at;
        break;
    case field_bytes:
        out->bytes = *(const mr_bytes *)at;
        break;
    case field_hash:
    case field_bitmap:
        break;
    }
}

// A due instant of a dead job means that it halts its channel.
static void field_name(const struct record *r, const struct record_field *f,
                       struct record_value *out) {
    const struct record_kind_row *kind = &kinds[r->kind];
    bool optional = f->part == PART_OPTIONAL;
    bool dead = kind->fields & HAS_STATUS && r->status == JOB_DEAD;
    if (optional && f->bit == WITH_DUE && dead)
        *out = (struct record_value){ .name = "halts", .type = field_present, .number = 1 };
    else if (optional && f->bit == WITH_DUE && kind->due)
        out->name = kind->due;
    else if (!optional && f->bit == HAS_PUSHED && kind->pushed)
        out->name = kind->pushed;
}

bool record_next_value(const struct record *r, size_t *at, struct record_value *out) {
    uint32_t fields = numbers[number_of_record(r)].fields, with = optional_fields(r, fields);
    while (*at < FIELD_ROWS) {
        const struct record_field *f = &field_rows[(*at)++];
        bool has = f->bit & (f->part == PART_OPTIONAL ? with : fields);
        if (!has || !f->name)
            continue;
        bool counter = f->part == PART_STAGE || f->part == PART_SOURCE;
        *out = (struct record_value){ .name = f->name, .type = f->type, .counter = counter };
        field_get(r, f, out);
        field_name(r, f, out);
        return true;
    }
    return false;
}

// ---- Without decoding -------------------------------------------------------------------------

enum { ID_AT = 2 + TIME_BYTES }; // after kind, optional fields and time

bool record_peek(mr_bytes head, enum record_kind *out_kind, uint64_t *out_id, bool *out_once) {
    const uint8_t *p = head.data;
    if (head.size < ID_AT + sizeof *out_id || p[0] < RECORD_PUSH || p[0] > RECORD_END)
        return false;
    memcpy(out_id, p + ID_AT, sizeof *out_id);
    *out_id = le64toh(*out_id);
    *out_kind = (enum record_kind)p[0];
    *out_once = p[1] & WITH_ONCE;
    return true;
}

bool record_is_stage(mr_bytes head) {
    uint8_t number = head.size ? *(const uint8_t *)head.data : 0;
    return number < NUMBERS && numbers[number].kind == RECORD_STAGE;
}

void record_make_copy(uint8_t *head) {
    head[1] |= WITH_COPY;
}

bool reasons_next(mr_bytes body, size_t *at, struct reason *out) {
    struct reader in = reader_of(body);
    in.at = *at;
    if (in.at >= in.size)
        return false;
    struct reason r = { .attempt = (uint32_t)get_number(&in) };
    r.time_ms = get_number(&in);
    r.text = get_bytes(&in);
    if (in.bad)
        return false;
    const char *end = r.text.size ? memchr(r.text.data, 0, r.text.size) : NULL;
    if (end) {
        size_t size = (size_t)(end - (const char *)r.text.data);
        r.output = (mr_bytes){ end + 1, r.text.size - size - 1 };
        r.text.size = size;
    }
    *at = in.at;
    *out = r;
    return true;
}

mr_bytes reasons_last(mr_bytes body) {
    struct reason reason = { .text = mr_str("no reason was kept") };
    for (size_t at = 0; reasons_next(body, &at, &reason);)
        continue;
    return reason.text;
}

enum { REASON_HEAD = 24 }; // attempt, time, size

// Writes a reason at `to`, which may be where it was read from, or before that. Returns its end.
static size_t reason_put(uint8_t *data, size_t to, const struct reason *r) {
    uint8_t head[REASON_HEAD];
    struct writer w = { .data = head, .capacity = sizeof head };
    size_t output = r->output.size ? r->output.size + 1 : 0;
    put_number(&w, r->attempt);
    put_number(&w, r->time_ms);
    put_number(&w, r->text.size + output);
    assert(!w.overflow);
    memcpy(data + to, head, w.size);
    to += w.size;
    if (r->text.size)
        memmove(data + to, r->text.data, r->text.size);
    to += r->text.size;
    if (output) {
        data[to] = 0;
        memmove(data + to + 1, r->output.data, r->output.size);
    }
    return to + output;
}

// Drops the oldest reasons until at most `most` are left, outputs beyond `outputs`, and what cannot
// be read.
static void reasons_shorten(struct buffer *body, uint32_t most, uint32_t outputs) {
    uint32_t behind = 0;
    struct reason r;
    for (size_t at = 0; reasons_next(buffer_bytes(body), &at, &r);)
        behind++;
    size_t to = 0;
    for (size_t at = 0; reasons_next(buffer_bytes(body), &at, &r);) {
        if (behind-- > most)
            continue;
        if (behind >= outputs)
            r.output.size = 0;
        to = reason_put(body->data, to, &r);
    }
    body->size = to;
}

int reasons_add(struct buffer *body, const struct reason *reason, uint32_t most) {
    int err = buffer_reserve(body, REASON_HEAD + reason->text.size + 1 + reason->output.size);
    if (err < 0)
        return err;
    reasons_shorten(body, most - 1, OUTPUTS_KEPT - 1);
    body->size = reason_put(body->data, body->size, reason);
    return 0;
}
