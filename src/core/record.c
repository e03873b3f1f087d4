// Which kind has which fields, and how they are read; record_write.h has their layout. What is
// small stays small, what is large has a fixed size: both are cheap to write.
#include "core/record.h"

#include "base/codec.h"
#include "base/errors.h"
#include "core/record_write.h"

#include <assert.h>

enum {
    FIELDS_OF_STAGE = HAS_STAGE | HAS_NAME | HAS_ABOUT_STAGE,
    FIELDS_OF_SOURCE = HAS_STAGE | HAS_SOURCE_NUMBER | HAS_NAME | HAS_ABOUT_SOURCE,
};

static const struct {
    const char *name;
    uint32_t fields;
} kinds[] = {
    [RECORD_PUSH] = { "push", FIELDS_OF_PUSH },
    [RECORD_JOB] = { "job", FIELDS_OF_JOB },
    [RECORD_END] = { "end", FIELDS_OF_END },
    [RECORD_FAIL] = { "fail", HAS_ID | HAS_STAGE | HAS_ATTEMPT | HAS_STATUS },
    [RECORD_RETRY] = { "retry", HAS_ID | HAS_STAGE | HAS_POSITION },
    [RECORD_DROP] = { "drop", HAS_ID | HAS_STAGE | HAS_STATUS },
    [RECORD_WANT] = { "want", HAS_ID },
    [RECORD_STAGE] = { "stage", FIELDS_OF_STAGE },
    [RECORD_SOURCE_OLD] = { "source", HAS_SOURCE_NUMBER | HAS_NAME | HAS_ABOUT_SOURCE },
    [RECORD_SOURCE_DROP] = { "source-drop", HAS_SOURCE_NUMBER },
    [RECORD_STATE] = { "state", HAS_STAGE },
    [RECORD_ONCE] = { "once", HAS_ID | HAS_STAGE | HAS_PUSHED },
    [RECORD_EPOCH] = { "epoch", HAS_EPOCH },
    [RECORD_TRIM] = { "trim", HAS_UPTO },
    [RECORD_OUTBOX] = { "outbox", HAS_STAGE | HAS_LINK | HAS_NAME },
    [RECORD_ARRIVAL] = { "arrival", FIELDS_OF_PUSH | HAS_LINK },
    [RECORD_LINK] = { "link", HAS_LINK | HAS_UPTO },
    [RECORD_LEASE] = { "lease", HAS_ID | HAS_STAGE | HAS_POSITION | HAS_PUSHED | HAS_ATTEMPT |
                                    HAS_SERIAL | HAS_LEASE },
    [RECORD_STAGE_DROP] = { "stage-drop", HAS_STAGE },
    [RECORD_SOURCE] = { "source", FIELDS_OF_SOURCE },
    [RECORD_STAGE_MADE] = { "stage", FIELDS_OF_STAGE | HAS_MAKER },
    [RECORD_SOURCE_MADE] = { "source", FIELDS_OF_SOURCE | HAS_MAKER },
};

_Static_assert(sizeof kinds / sizeof *kinds == RECORD_NUMBERS, "each number has its row");

const char *record_kind_name(enum record_kind kind) {
    return (unsigned)kind <= RECORD_LAST && kinds[kind].name ? kinds[kind].name : "unknown";
}

static uint8_t *write_policy(uint8_t *p, const struct policy *policy) {
    const struct policy_row *row;
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++)
        for (size_t k = 0; k < policy_row_values(row); k++)
            p = write_number(p, policy_read(policy, &row->values[k]));
    return p;
}

static uint8_t *write_about_stage(uint8_t *p, const struct record_stage *a) {
    const uint64_t numbers[] = { a->pushed,    a->done,    a->failed, a->dead,    a->expired,
                                 a->cancelled, a->vain_ms, a->paused, a->draining };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        p = write_number(p, numbers[i]);
    return write_policy(p, &a->policy);
}

static uint8_t *write_about_source(uint8_t *p, const struct record_source *a) {
    const uint64_t numbers[] = { a->epic, a->highest, a->total,     a->accepted,
                                 a->done, a->dead,    a->cancelled, a->expired };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        p = write_number(p, numbers[i]);
    memcpy(p, a->bitmap, sizeof a->bitmap);
    return p + sizeof a->bitmap;
}

static uint8_t *write_rare(uint8_t *p, const struct record *r, uint32_t fields) {
    if (fields & HAS_UPTO)
        p = write_u64(p, r->upto);
    if (fields & HAS_EPOCH)
        p = write_u64(write_u64(p, r->epoch), r->next_id);
    if (fields & HAS_SOURCE_NUMBER)
        p = write_u64(p, r->source);
    if (fields & HAS_LINK)
        p = write_number(write_number(p, r->shard), r->number);
    if (fields & HAS_LEASE)
        p = write_number(write_u64(p, r->random), r->lease_ms);
    if (fields & HAS_MAKER)
        p = write_u64(p, r->maker);
    if (fields & HAS_NAME)
        p = write_bytes(p, r->name);
    if (fields & HAS_ABOUT_STAGE)
        p = write_about_stage(p, &r->about->stage);
    if (fields & HAS_ABOUT_SOURCE)
        p = write_about_source(p, &r->about->source);
    return p;
}

static uint8_t number_of(const struct record *r) {
    if (r->maker && r->kind == RECORD_STAGE)
        return RECORD_STAGE_MADE;
    return r->maker && r->kind == RECORD_SOURCE ? RECORD_SOURCE_MADE : (uint8_t)r->kind;
}

static enum record_kind kind_of(uint8_t number) {
    return number == RECORD_STAGE_MADE    ? RECORD_STAGE
           : number == RECORD_SOURCE_MADE ? RECORD_SOURCE
                                          : (enum record_kind)number;
}

size_t record_encode(const struct record *r, uint8_t *out) {
    assert((unsigned)r->kind <= RECORD_LAST && kinds[r->kind].name);
    uint8_t number = number_of(r);
    uint32_t fields = kinds[number].fields, with = optional_fields(r, fields);
    uint8_t *p = write_front(out, r, fields, with);
    *out = number;
    p = write_rare(p, r, fields);
    return (size_t)(write_optional(p, r, with) - out);
}

// ---- Reading ----------------------------------------------------------------------------------

static uint64_t get_time(struct reader *in) {
    mr_bytes raw = get_raw(in, TIME_BYTES);
    uint64_t ms = 0;
    if (raw.size)
        memcpy(&ms, raw.data, TIME_BYTES);
    return le64toh(ms);
}

// Numbers that are smaller than a varint can say.
static uint32_t get_small(struct reader *in) {
    uint64_t n = get_number(in);
    in->bad = in->bad || n > UINT32_MAX;
    return (uint32_t)n;
}

static bool get_flag(struct reader *in) {
    uint64_t n = get_number(in);
    in->bad = in->bad || n > 1;
    return n;
}

static void get_policy(struct reader *in, struct policy *policy) {
    const struct policy_row *row;
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++)
        for (size_t k = 0; k < policy_row_values(row); k++)
            *policy_at(policy, &row->values[k]) = get_number(in);
}

static void get_about_stage(struct reader *r, struct record_stage *a) {
    a->pushed = get_number(r);
    a->done = get_number(r);
    a->failed = get_number(r);
    a->dead = get_number(r);
    a->expired = get_number(r);
    a->cancelled = get_number(r);
    a->vain_ms = get_number(r);
    a->paused = get_flag(r);
    a->draining = get_flag(r);
    get_policy(r, &a->policy);
}

static void get_about_source(struct reader *r, struct record_source *a) {
    a->epic = get_flag(r);
    a->highest = get_number(r);
    a->total = get_number(r);
    a->accepted = get_number(r);
    a->done = get_number(r);
    a->dead = get_number(r);
    a->cancelled = get_number(r);
    a->expired = get_number(r);
    mr_bytes bitmap = get_raw(r, sizeof a->bitmap);
    if (bitmap.size)
        memcpy(a->bitmap, bitmap.data, bitmap.size);
}

static void get_fixed(struct reader *in, struct record *r, uint32_t fields) {
    if (fields & HAS_ID)
        r->id = get_u64(in);
    if (fields & HAS_STAGE)
        r->stage = get_small(in);
    if (fields & HAS_POSITION)
        r->position = get_u64(in);
    if (fields & HAS_PUSHED)
        r->pushed_ms = get_time(in);
    if (fields & HAS_ATTEMPT)
        r->attempt = get_small(in);
    if (fields & HAS_STATUS)
        r->status = (enum job_status)get_u8(in);
    if (fields & HAS_SERIAL)
        r->serial = get_u64(in);
}

static void get_rare(struct reader *in, struct record *r, uint32_t fields,
                     struct record_about *about) {
    if (fields & HAS_UPTO)
        r->upto = get_u64(in);
    if (fields & HAS_EPOCH) {
        r->epoch = get_u64(in);
        r->next_id = get_u64(in);
    }
    if (fields & HAS_SOURCE_NUMBER)
        r->source = get_u64(in);
    if (fields & HAS_LINK) {
        r->shard = get_small(in);
        r->number = get_number(in);
    }
    if (fields & HAS_LEASE) {
        r->random = get_u64(in);
        r->lease_ms = get_small(in);
    }
    if (fields & HAS_MAKER)
        r->maker = get_u64(in);
    if (fields & HAS_NAME)
        r->name = get_bytes(in);
    if (fields & HAS_ABOUT_STAGE)
        get_about_stage(in, &about->stage);
    if (fields & HAS_ABOUT_SOURCE)
        get_about_source(in, &about->source);
}

static void get_optional(struct reader *in, struct record *r, uint32_t with) {
    if (with & WITH_KEY)
        r->key = get_bytes(in);
    if (with & WITH_ONCE) {
        r->has_once = true;
        r->once.low = get_u64(in);
        r->once.high = get_u64(in);
    }
    if (with & WITH_DUE)
        r->due_ms = get_time(in);
    if (with & WITH_DEADLINE)
        r->deadline_ms = get_time(in);
    if (with & WITH_ATTEMPTS)
        r->attempts = get_small(in);
    if (with & WITH_SOURCE) {
        r->source = get_u64(in);
        r->number = get_number(in);
    }
}

int record_decode(mr_bytes head, struct record_about *about, struct record *out) {
    struct reader in = reader_of(head);
    struct record_about unwanted;
    uint8_t number = get_u8(&in), with = get_u8(&in);
    if (in.bad || number >= RECORD_NUMBERS || !kinds[number].name || head.size > RECORD_MAX)
        return error_set(MR_ECORRUPT, "a record of unknown kind %u", number);
    struct record r = { .kind = kind_of(number), .about = about };
    r.copy = with & WITH_COPY;
    r.call = with & WITH_CALL;
    r.time_ms = get_time(&in);
    uint32_t fields = kinds[number].fields;
    get_fixed(&in, &r, fields);
    if (fields & HAS_RARE)
        get_rare(&in, &r, fields, about ? about : &unwanted);
    if (with)
        get_optional(&in, &r, with);
    bool exact = reader_done(&in) && optional_fields(&r, fields) == with &&
                 number_of(&r) == number; // it has one spelling
    if (!exact || (unsigned)r.status > JOB_CANCELLED)
        return error_set(MR_ECORRUPT, "a %s record that cannot be read", kinds[number].name);
    *out = r;
    return 0;
}

enum { ID_AT = 2 + TIME_BYTES }; // behind kind, optional fields and time

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
    return head.size && kind_of(*(const uint8_t *)head.data) == RECORD_STAGE;
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
    *at = in.at;
    *out = r;
    return true;
}

// Drops the oldest reasons until at most `most` are left.
static void reasons_shorten(struct buffer *body, uint32_t most) {
    uint32_t count = 0;
    struct reason r;
    for (size_t at = 0; reasons_next(buffer_bytes(body), &at, &r);)
        count++;
    size_t cut = 0;
    while (count > most && reasons_next(buffer_bytes(body), &cut, &r))
        count--;
    body->size -= cut;
    memmove(body->data, body->data + cut, body->size);
}

int reasons_add(struct buffer *body, const struct reason *reason, uint32_t most) {
    int err = buffer_reserve(body, reason->text.size + 32);
    if (err < 0)
        return err;
    struct writer w = { .data = body->data, .size = body->size, .capacity = body->capacity };
    put_number(&w, reason->attempt);
    put_number(&w, reason->time_ms);
    put_bytes(&w, reason->text);
    assert(!w.overflow);
    body->size = w.size;
    reasons_shorten(body, most);
    return 0;
}
