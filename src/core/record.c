// A record is a kind, a set of optional fields, the time, and the kind's own fields in a fixed
// order. Instants are written relative to the record's time, which keeps them short.
#include "core/record.h"

#include "base/codec.h"
#include "base/errors.h"

#include <assert.h>

// Fields that a kind always has.
enum {
    HAS_ID = 1 << 0,
    HAS_STAGE = 1 << 1,
    HAS_NAME = 1 << 2,
    HAS_POSITION = 1 << 3,
    HAS_PUSHED = 1 << 4,
    HAS_ATTEMPT = 1 << 5,
    HAS_STATUS = 1 << 6,
    HAS_SERIAL = 1 << 7,
    HAS_UPTO = 1 << 8,
    HAS_EPOCH = 1 << 9,
    HAS_ABOUT_STAGE = 1 << 10,
    HAS_ABOUT_SOURCE = 1 << 11,
    HAS_SOURCE_NUMBER = 1 << 12,
};

// Fields that a record may have; written as a bit set in front.
enum {
    WITH_COPY = 1 << 0,
    WITH_CALL = 1 << 1,
    WITH_KEY = 1 << 2,
    WITH_ONCE = 1 << 3,
    WITH_DUE = 1 << 4,
    WITH_DEADLINE = 1 << 5,
    WITH_ATTEMPTS = 1 << 6,
    WITH_SOURCE = 1 << 7,
    WITH_ALL = 0xff,
};

static const struct {
    const char *name;
    uint32_t fields;
} kinds[] = {
    [RECORD_PUSH] = { "push", HAS_ID | HAS_STAGE | HAS_POSITION },
    [RECORD_JOB] = { "job", HAS_ID | HAS_STAGE | HAS_POSITION | HAS_PUSHED | HAS_ATTEMPT |
                                HAS_STATUS },
    [RECORD_END] = { "end", HAS_ID | HAS_STAGE | HAS_POSITION | HAS_PUSHED | HAS_ATTEMPT |
                                HAS_STATUS | HAS_SERIAL },
    [RECORD_FAIL] = { "fail", HAS_ID | HAS_ATTEMPT | HAS_STATUS },
    [RECORD_RETRY] = { "retry", HAS_ID | HAS_POSITION },
    [RECORD_DROP] = { "drop", HAS_ID },
    [RECORD_WANT] = { "want", HAS_ID },
    [RECORD_STAGE] = { "stage", HAS_STAGE | HAS_NAME | HAS_ABOUT_STAGE },
    [RECORD_SOURCE] = { "source", HAS_SOURCE_NUMBER | HAS_NAME | HAS_ABOUT_SOURCE },
    [RECORD_SOURCE_DROP] = { "source-drop", HAS_SOURCE_NUMBER },
    [RECORD_STATE] = { "state", HAS_STAGE },
    [RECORD_ONCE] = { "once", HAS_ID | HAS_STAGE | HAS_PUSHED },
    [RECORD_EPOCH] = { "epoch", HAS_EPOCH },
    [RECORD_TRIM] = { "trim", HAS_UPTO },
};

enum { KINDS = sizeof kinds / sizeof *kinds };

const char *record_kind_name(enum record_kind kind) {
    return (unsigned)kind < KINDS && kinds[kind].name ? kinds[kind].name : "unknown";
}

// Signed distance as a number that is small when it is near.
static uint64_t zigzag(int64_t n) {
    return ((uint64_t)n << 1) ^ (uint64_t)(n >> 63);
}

static int64_t unzigzag(uint64_t n) {
    return (int64_t)(n >> 1) ^ -(int64_t)(n & 1);
}

static void put_near(struct writer *w, uint64_t value, uint64_t base) {
    put_number(w, zigzag((int64_t)(value - base)));
}

static uint64_t get_near(struct reader *r, uint64_t base) {
    return base + (uint64_t)unzigzag(get_number(r));
}

static uint32_t optional_fields(const struct record *r) {
    uint32_t with = 0;
    with |= r->copy ? WITH_COPY : 0;
    with |= r->call ? WITH_CALL : 0;
    with |= r->key.size ? WITH_KEY : 0;
    with |= r->has_once ? WITH_ONCE : 0;
    with |= r->due_ms ? WITH_DUE : 0;
    with |= r->deadline_ms ? WITH_DEADLINE : 0;
    with |= r->attempts ? WITH_ATTEMPTS : 0;
    with |= r->source && r->number ? WITH_SOURCE : 0;
    return with;
}

static void put_about_stage(struct writer *w, const struct record_stage *a) {
    const struct policy *p = &a->policy;
    const uint64_t numbers[] = {
        a->pushed, a->done, a->failed, a->dead, a->expired, a->cancelled, a->vain_ms, a->paused,
        a->draining, p->max_jobs, p->max_channel, p->lease_ms, p->attempts, p->backoff_first_ms,
        p->backoff_most_ms, p->halt_on_dead, p->overlap_never, p->dedupe_window_ms,
        p->retention_ms, p->retention_count, p->concurrency, p->rate_milli, p->max_states,
        p->state_ttl_ms, p->high_mark,
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(w, numbers[i]);
}

static void get_about_stage(struct reader *r, struct record_stage *a) {
    struct policy *p = &a->policy;
    a->pushed = get_number(r);
    a->done = get_number(r);
    a->failed = get_number(r);
    a->dead = get_number(r);
    a->expired = get_number(r);
    a->cancelled = get_number(r);
    a->vain_ms = get_number(r);
    a->paused = get_number(r);
    a->draining = get_number(r);
    p->max_jobs = get_number(r);
    p->max_channel = get_number(r);
    p->lease_ms = get_number(r);
    p->attempts = (uint32_t)get_number(r);
    p->backoff_first_ms = get_number(r);
    p->backoff_most_ms = get_number(r);
    p->halt_on_dead = get_number(r);
    p->overlap_never = get_number(r);
    p->dedupe_window_ms = get_number(r);
    p->retention_ms = get_number(r);
    p->retention_count = get_number(r);
    p->concurrency = get_number(r);
    p->rate_milli = get_number(r);
    p->max_states = get_number(r);
    p->state_ttl_ms = get_number(r);
    p->high_mark = get_number(r);
}

static void put_about_source(struct writer *w, const struct record_source *a) {
    put_u8(w, a->epic);
    put_number(w, a->highest);
    put_number(w, a->total);
    put_number(w, a->accepted);
    put_number(w, a->done);
    put_number(w, a->dead);
    put_number(w, a->cancelled);
    put_number(w, a->expired);
    put_raw(w, bytes_of(a->bitmap, sizeof a->bitmap));
}

static void get_about_source(struct reader *r, struct record_source *a) {
    a->epic = get_u8(r);
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

static void put_fixed(struct writer *w, const struct record *r, uint32_t fields) {
    if (fields & HAS_ID)
        put_number(w, r->id);
    if (fields & HAS_STAGE)
        put_number(w, r->stage);
    if (fields & HAS_POSITION)
        put_near(w, r->position, r->time_ms << 20);
    if (fields & HAS_PUSHED)
        put_near(w, r->pushed_ms, r->time_ms);
    if (fields & HAS_ATTEMPT)
        put_number(w, r->attempt);
    if (fields & HAS_STATUS)
        put_u8(w, (uint8_t)r->status);
    if (fields & HAS_SERIAL)
        put_number(w, r->serial);
    if (fields & HAS_UPTO)
        put_number(w, r->upto);
    if (fields & HAS_EPOCH) {
        put_number(w, r->epoch);
        put_number(w, r->next_id);
    }
    if (fields & HAS_SOURCE_NUMBER)
        put_number(w, r->source);
    if (fields & HAS_NAME)
        put_bytes(w, r->name);
    if (fields & HAS_ABOUT_STAGE)
        put_about_stage(w, &r->about_stage);
    if (fields & HAS_ABOUT_SOURCE)
        put_about_source(w, &r->about_source);
}

static void get_fixed(struct reader *in, struct record *r, uint32_t fields) {
    if (fields & HAS_ID)
        r->id = get_number(in);
    if (fields & HAS_STAGE)
        r->stage = (uint32_t)get_number(in);
    if (fields & HAS_POSITION)
        r->position = get_near(in, r->time_ms << 20);
    if (fields & HAS_PUSHED)
        r->pushed_ms = get_near(in, r->time_ms);
    if (fields & HAS_ATTEMPT)
        r->attempt = (uint32_t)get_number(in);
    if (fields & HAS_STATUS)
        r->status = (enum job_status)get_u8(in);
    if (fields & HAS_SERIAL)
        r->serial = get_number(in);
    if (fields & HAS_UPTO)
        r->upto = get_number(in);
    if (fields & HAS_EPOCH) {
        r->epoch = get_number(in);
        r->next_id = get_number(in);
    }
    if (fields & HAS_SOURCE_NUMBER)
        r->source = get_number(in);
    if (fields & HAS_NAME)
        r->name = get_bytes(in);
    if (fields & HAS_ABOUT_STAGE)
        get_about_stage(in, &r->about_stage);
    if (fields & HAS_ABOUT_SOURCE)
        get_about_source(in, &r->about_source);
}

static void put_optional(struct writer *w, const struct record *r, uint32_t with) {
    if (with & WITH_KEY)
        put_bytes(w, r->key);
    if (with & WITH_ONCE) {
        put_u64(w, r->once.low);
        put_u64(w, r->once.high);
    }
    if (with & WITH_DUE)
        put_near(w, r->due_ms, r->time_ms);
    if (with & WITH_DEADLINE)
        put_near(w, r->deadline_ms, r->time_ms);
    if (with & WITH_ATTEMPTS)
        put_number(w, r->attempts);
    if (with & WITH_SOURCE) {
        put_number(w, r->source);
        put_number(w, r->number);
    }
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
        r->due_ms = get_near(in, r->time_ms);
    if (with & WITH_DEADLINE)
        r->deadline_ms = get_near(in, r->time_ms);
    if (with & WITH_ATTEMPTS)
        r->attempts = (uint32_t)get_number(in);
    if (with & WITH_SOURCE) {
        r->source = get_number(in);
        r->number = get_number(in);
    }
}

size_t record_encode(const struct record *r, uint8_t *out) {
    assert((unsigned)r->kind < KINDS && kinds[r->kind].name);
    struct writer w = { .data = out, .capacity = RECORD_MAX };
    uint32_t with = optional_fields(r);
    put_u8(&w, (uint8_t)r->kind);
    put_u8(&w, (uint8_t)with);
    put_number(&w, r->time_ms);
    put_fixed(&w, r, kinds[r->kind].fields);
    put_optional(&w, r, with);
    assert(!w.overflow);
    return w.size;
}

int record_decode(mr_bytes head, struct record *out) {
    struct reader in = reader_of(head);
    uint8_t kind = get_u8(&in), with = get_u8(&in);
    if (in.bad || kind >= KINDS || !kinds[kind].name)
        return error_set(MR_ECORRUPT, "a record of unknown kind %u", kind);
    struct record r = { .kind = (enum record_kind)kind };
    r.copy = with & WITH_COPY;
    r.call = with & WITH_CALL;
    r.time_ms = get_number(&in);
    get_fixed(&in, &r, kinds[kind].fields);
    get_optional(&in, &r, with);
    if (!reader_done(&in) || (unsigned)r.status > JOB_CANCELLED)
        return error_set(MR_ECORRUPT, "a %s record that cannot be read", kinds[kind].name);
    *out = r;
    return 0;
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
