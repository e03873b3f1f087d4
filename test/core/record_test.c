// Records: what is encoded is decoded, whatever is cut off or flipped is noticed or is another
// record, and nothing reads beyond the end: inputs lie against a page that may not be touched.
#include "base/codec.h"
#include "core/record_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

// ---- The page behind --------------------------------------------------------------------------

static uint8_t *guard; // the first byte that may not be read

static int guard_begin(void **state) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = 4 * page;
    (void)state;
    uint8_t *area =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED || mprotect(area + room, page, PROT_NONE) != 0)
        return -1;
    guard = area + room;
    return 0;
}

static mr_bytes at_the_edge(const void *data, size_t size) {
    if (size)
        memcpy(guard - size, data, size);
    return bytes_of(guard - size, size);
}

// ---- One of each kind -------------------------------------------------------------------------

static struct record_about everything(void) {
    struct record_about about = {
        .stage = { .pushed = 1,
                   .done = 128,
                   .failed = 3,
                   .died = 70000,
                   .expired = 5,
                   .cancelled = UINT64_MAX,
                   .wasted_wait_ms = 7,
                   .paused = true,
                   .policy = policy_default() },
        .source = { .epic = true,
                    .highest = 300,
                    .total = 400,
                    .accepted = 5,
                    .done = 6,
                    .dead = 7,
                    .cancelled = 8,
                    .expired = 9 },
        .schedule = { .every_ms = 60000,
                      .missed = MISSED_ALL,
                      .deadline_ms = 1234,
                      .cron = mr_str("*/5 * * * *"),
                      .zone = mr_str("Europe/Berlin") },
        .move = { .next_ms = UINT64_C(1711846800000),
                  .last_ms = UINT64_C(1711843200000),
                  .pushed = 300,
                  .last_id = UINT64_C(0x1122334455667788),
                  .paused = true,
                  .asked = true },
        .epic = { .cancelled = true,
                  .pushed = UINT64_MAX - 4,
                  .forget_ms = 3600000,
                  .ended_ms = UINT64_C(0x123456789abb),
                  .then = mr_str("report"),
                  .body = mr_str("body of THEN") },
    };
    about.stage.policy.rate_per_h = 123456789;
    about.stage.policy.halt_on_dead = true;
    for (int i = 0; i < SOURCE_BITMAP; i++)
        about.source.bitmap[i] = (uint8_t)(i * 37);
    return about;
}

// Zeros, but for policies that are newer than the first version of STAGE: at their default these
// are not written.
static struct record_about nothing(void) {
    struct record_about about = { 0 };
    const struct policy_row *row;
    for (size_t i = POLICIES_WITHIN_STAGE; (row = policy_row(i)) != NULL; i++)
        for (size_t k = 0; k < policy_row_values(row); k++)
            *policy_at(&about.stage.policy, &row->values[k]) = row->values[k].usual;
    return about;
}

// With all the fields that any kind may have; each kind keeps its own of them.
static struct record full(enum record_kind kind, const struct record_about *about) {
    struct record r = {
        .kind = kind,
        .copy = true,
        .time_ms = UINT64_C(0x123456789abc),
        .id = UINT64_C(0x1122334455667788),
        .stage = 300,
        .name = mr_str("name/of:it"),
        .key = mr_str("key"),
        .has_once = true,
        .call = true,
        .once = { 1, UINT64_MAX },
        .pushed_ms = 1234567,
        .position = UINT64_MAX - 1,
        .due_ms = 77,
        .deadline_ms = 88,
        .attempt = 65535,
        .attempts = 12,
        .status = JOB_EXPIRED,
        .serial = UINT64_C(1) << 40 | 5,
        .random = UINT64_MAX - 2,
        .lease_ms = 30000,
        .source = 17,
        .number = 1000,
        .shard = 63,
        .epoch = 9,
        .next_id = 1 << 20,
        .upto = 123456,
        .maker = UINT64_MAX - 3,
        .about = about,
    };
    return r;
}

static struct record bare(enum record_kind kind, const struct record_about *about) {
    return (struct record){ .kind = kind, .time_ms = 1, .name = mr_str("n"), .about = about };
}

static bool same_bytes(mr_bytes a, const uint8_t *b, size_t size) {
    return a.size == size && memcmp(a.data, b, size) == 0;
}

// Decodes what lies at the edge: an error, or a record that is encoded again just so.
static bool decodes(mr_bytes head) {
    struct record r = { .id = 42 };
    struct record_about about;
    uint8_t again[RECORD_MAX];
    int err = record_decode(head, &about, &r);
    if (err < 0) {
        assert_int_equal(err, MR_ECORRUPT);
        assert_int_equal(r.id, 42); // untouched
        return false;
    }
    size_t size = record_encode(&r, again);
    assert_true(same_bytes(head, again, size));
    struct record unwanted;
    assert_int_equal(record_decode(head, NULL, &unwanted), 0);
    return true;
}

// ---- The tests --------------------------------------------------------------------------------

static void every_kind_survives_being_written_and_read(void **state) {
    struct record_about about = everything(), empty = nothing();
    uint8_t head[RECORD_MAX];
    (void)state;
    for (enum record_kind kind = RECORD_PUSH; kind <= RECORD_LAST; kind++) {
        assert_string_not_equal(record_kind_name(kind), "unknown");
        struct record records[] = { full(kind, &about), bare(kind, &empty) };
        for (int i = 0; i < 2; i++) {
            size_t size = record_encode(&records[i], head);
            assert_true(size <= RECORD_MAX);
            assert_true(decodes(at_the_edge(head, size)));
        }
    }
    assert_string_equal(record_kind_name((enum record_kind)0), "unknown");
    assert_string_equal(record_kind_name((enum record_kind)(RECORD_LAST + 1)), "unknown");
}

static void a_push_record_has_all_fields_of_a_job(void **state) {
    struct record_about about = everything();
    struct record in = full(RECORD_PUSH, &about), out;
    uint8_t head[RECORD_MAX];
    (void)state;
    size_t size = record_encode(&in, head);
    assert_int_equal(record_decode(bytes_of(head, size), NULL, &out), 0);
    assert_int_equal(out.kind, in.kind);
    assert_int_equal(out.time_ms, in.time_ms);
    assert_int_equal(out.id, in.id);
    assert_int_equal(out.stage, in.stage);
    assert_int_equal(out.position, in.position);
    assert_true(bytes_equal(out.key, in.key));
    assert_true(out.copy && out.call && out.has_once);
    assert_int_equal(out.once.low, in.once.low);
    assert_int_equal(out.once.high, in.once.high);
    assert_int_equal(out.due_ms, in.due_ms);
    assert_int_equal(out.deadline_ms, in.deadline_ms);
    assert_int_equal(out.attempts, in.attempts);
    assert_int_equal(out.source, in.source);
    assert_int_equal(out.number, in.number);
}

static void an_end_is_a_group_of_one(void **state) {
    struct record_about about = everything();
    struct record in = full(RECORD_END, &about), out;
    uint8_t head[RECORD_MAX];
    (void)state;
    size_t size = record_encode(&in, head);
    assert_int_equal(record_decode(bytes_of(head, size), NULL, &out), 0);
    assert_int_equal(out.pushed_ms, in.pushed_ms);
    assert_int_equal(out.attempt, in.attempt);
    assert_int_equal(out.status, in.status);
    assert_int_equal(out.serial, in.serial);
    assert_true(bytes_equal(out.key, in.key));
}

static void stages_and_sources_keep_their_counters(void **state) {
    struct record_about in = everything(), out;
    struct record r = full(RECORD_STAGE, &in), got;
    uint8_t head[RECORD_MAX];
    (void)state;
    memset(&out, 0, sizeof out);
    assert_int_equal(record_decode(bytes_of(head, record_encode(&r, head)), &out, &got), 0);
    assert_int_equal(out.stage.cancelled, UINT64_MAX);
    assert_true(out.stage.paused && !out.stage.draining);
    assert_int_equal(out.stage.policy.rate_per_h, 123456789);
    assert_int_equal(out.stage.policy.lease_ms, in.stage.policy.lease_ms);
    assert_true(bytes_equal(got.name, r.name));
    assert_int_equal(got.kind, RECORD_STAGE);
    assert_int_equal(got.maker, r.maker);
    assert_true(record_is_stage(bytes_of(head, sizeof head)));
    r = full(RECORD_SOURCE, &in);
    assert_int_equal(record_decode(bytes_of(head, record_encode(&r, head)), &out, &got), 0);
    assert_int_equal(got.kind, RECORD_SOURCE);
    assert_int_equal(got.maker, r.maker);
    assert_int_equal(got.source, 17);
    assert_int_equal(out.source.highest, 300);
    assert_memory_equal(out.source.bitmap, in.source.bitmap, SOURCE_BITMAP);
}

static void the_longest_of_each_kind_fits(void **state) {
    static uint8_t key[1024], name[256], body[THEN_BODY_MOST], head[RECORD_MAX];
    struct record_about about;
    (void)state;
    memset(&about, 0xff, sizeof about);
    about.stage.paused = about.stage.draining = about.source.epic = true;
    about.stage.policy.halt_on_dead = about.stage.policy.overlap_never = true;
    about.move.paused = about.move.asked = true;
    about.epic.cancelled = true;
    about.epic.then = bytes_of(name, STAGE_NAME_MOST);
    about.epic.body = bytes_of(body, sizeof body);
    about.schedule.cron = bytes_of(key, CRON_MOST);
    about.schedule.zone = bytes_of(key, ZONE_NAME_MOST);
    for (enum record_kind kind = RECORD_PUSH; kind <= RECORD_LAST; kind++) {
        struct record r = full(kind, &about);
        bool about_jobs = kind <= RECORD_END || kind == RECORD_STATE || kind >= RECORD_OUTBOX;
        r.key = bytes_of(key, about_jobs ? sizeof key : 0);
        r.name = bytes_of(name, sizeof name);
        r.stage = r.attempt = r.attempts = UINT32_MAX;
        r.number = UINT64_MAX;
        assert_true(record_encode(&r, head) <= RECORD_MAX);
    }
}

static void links_keep_their_ends_and_numbers(void **state) {
    struct record_about about = everything();
    uint8_t head[RECORD_MAX];
    (void)state;
    for (enum record_kind kind = RECORD_OUTBOX; kind <= RECORD_LINK; kind++) {
        struct record in = full(kind, &about), out;
        size_t size = record_encode(&in, head);
        assert_int_equal(record_decode(bytes_of(head, size), NULL, &out), 0);
        assert_int_equal(out.shard, in.shard);
        assert_int_equal(out.number, in.number);
        assert_int_equal(out.source, 0);
        assert_int_equal(out.upto, kind == RECORD_LINK ? in.upto : 0);
        if (kind == RECORD_OUTBOX)
            assert_true(bytes_equal(out.name, in.name));
        if (kind == RECORD_ARRIVAL)
            assert_int_equal(out.id, in.id);
    }
}

static void cut_off_anywhere_it_is_no_record(void **state) {
    struct record_about about = everything();
    uint8_t head[RECORD_MAX];
    (void)state;
    for (enum record_kind kind = RECORD_PUSH; kind <= RECORD_LAST; kind++) {
        struct record r = full(kind, &about);
        size_t size = record_encode(&r, head);
        for (size_t cut = 0; cut < size; cut++)
            assert_false(decodes(at_the_edge(head, cut)));
    }
}

static void a_record_with_trailing_bytes_is_invalid(void **state) {
    struct record_about about = everything();
    uint8_t head[RECORD_MAX];
    (void)state;
    for (enum record_kind kind = RECORD_PUSH; kind <= RECORD_LAST; kind++) {
        struct record r = full(kind, &about);
        size_t size = record_encode(&r, head);
        head[size] = 0x80; // not the end of a number, either
        assert_false(decodes(at_the_edge(head, size + 1)));
    }
}

// Every byte becomes every other byte.
static void flipped_anywhere_it_is_no_record_or_another_one(void **state) {
    struct record_about some = everything(), none = nothing();
    uint8_t head[RECORD_MAX];
    (void)state;
    for (enum record_kind kind = RECORD_PUSH; kind <= RECORD_LAST; kind++) {
        struct record records[] = { full(kind, &some), bare(kind, &none) };
        for (int i = 0; i < 2; i++) {
            size_t size = record_encode(&records[i], head);
            for (size_t at = 0; at < size; at++) {
                uint8_t right = head[at];
                for (int wrong = 0; wrong < 256; wrong++) {
                    head[at] = (uint8_t)wrong;
                    (void)decodes(at_the_edge(head, size));
                }
                head[at] = right;
            }
        }
    }
}

static void any_bytes_are_no_record_or_one(void **state) {
    uint8_t noise[200];
    uint64_t dice = 7;
    (void)state;
    for (int round = 0; round < 200000; round++) {
        for (size_t i = 0; i < sizeof noise; i++) {
            dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407;
            noise[i] = (uint8_t)(dice >> 33);
        }
        noise[0] = (uint8_t)(round % (RECORD_LAST + 5));
        (void)decodes(at_the_edge(noise, (size_t)round % sizeof noise));
    }
}

static void a_peek_sees_what_decoding_sees(void **state) {
    struct record_about about = everything();
    uint8_t head[RECORD_MAX];
    (void)state;
    for (enum record_kind kind = RECORD_PUSH; kind <= RECORD_LAST; kind++) {
        for (int named = 0; named < 2; named++) {
            struct record r = full(kind, &about);
            r.has_once = named;
            r.maker = 0; // with one it has another number
            size_t size = record_encode(&r, head);
            enum record_kind seen;
            uint64_t id;
            bool once;
            bool is_job = kind <= RECORD_END;
            assert_int_equal(record_peek(at_the_edge(head, size), &seen, &id, &once), is_job);
            if (is_job) {
                assert_int_equal(seen, kind);
                assert_int_equal(id, r.id);
                assert_int_equal(once, named);
            }
            for (size_t cut = 0; cut < 16; cut++)
                assert_false(record_peek(at_the_edge(head, cut), &seen, &id, &once));
        }
    }
}

static void a_copy_differs_in_being_one(void **state) {
    struct record_about about = everything();
    struct record in = full(RECORD_END, &about), out;
    uint8_t head[RECORD_MAX], copy[RECORD_MAX];
    (void)state;
    in.copy = false;
    size_t size = record_encode(&in, head);
    record_make_copy(head);
    assert_int_equal(record_decode(bytes_of(head, size), NULL, &out), 0);
    assert_true(out.copy);
    in.copy = true;
    assert_int_equal(record_encode(&in, copy), size);
    assert_memory_equal(head, copy, size);
}

// ---- Every field, by the lists ----------------------------------------------------------------

// FNV-1a.
static uint32_t checksum(const uint8_t *data, size_t size) {
    uint32_t sum = UINT32_C(2166136261);
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ data[i]) * UINT32_C(16777619);
    return sum;
}

// A store of any version is read: what is on disk never changes. The first sums were made by the
// writer that listed the fields of each kind by hand; with a maker, bare, without a maker.
static void every_kind_is_written_as_it_always_was(void **state) {
    static const uint32_t sums[][3] = {
        { 0xdb091faa, 0xe4362dc7, 0x6dc54e64 }, { 0x843bdf32, 0xd9ff38aa, 0x9b25e50a },
        { 0x3dfbe65b, 0x139e1a6d, 0x3dfbe65b }, { 0x5cce209e, 0x049656f8, 0x5cce209e },
        { 0xd4b6d340, 0x84e09efb, 0xd4b6d340 }, { 0xaa8b4653, 0x8d7b557a, 0xaa8b4653 },
        { 0x55c4cbab, 0xa4c9f05b, 0x55c4cbab }, { 0xfa62852e, 0xeaa48e51, 0x41b14028 },
        { 0x17232c21, 0xe5e1af66, 0x17232c21 }, { 0x159fa9eb, 0x9c88d176, 0x159fa9eb },
        { 0x5dce3c6d, 0x28c9a785, 0x5dce3c6d }, { 0x7fcfcc2d, 0x20eb5c50, 0x7fcfcc2d },
        { 0x1b51e3be, 0x5c463901, 0x1b51e3be }, { 0x50d718a5, 0xcb1ac872, 0x50d718a5 },
        { 0x0c2d2d05, 0xdc25344a, 0x41ae8bab }, { 0xdc934d45, 0xca4f2e54, 0xe9a53d05 },
        { 0x94aa286c, 0xb8262b35, 0x94aa286c }, { 0xa211d498, 0xb4ecd45a, 0xa211d498 },
        { 0x872780f5, 0x330faf1d, 0x872780f5 }, { 0x3ed3773b, 0xce6bed1f, 0x996d8d66 },
        { 0xc3415115, 0x1adf1aed, 0xc3415115 }, { 0xc0079c2b, 0x7f285598, 0xc0079c2b },
        { 0xa1547a53, 0xcc4290be, 0xa2d39dbe }, { 0x876bea3e, 0x3bca48ee, 0x2dd2e77c },
        { 0x1c321b72, 0xc9441639, 0x1c321b72 }, { 0x4ddd286b, 0x333f98ac, 0x4ddd286b },
        { 0xf77046d3, 0x7fe7389b, 0xf77046d3 }, { 0x02c0b6de, 0x7b16c17e, 0x02c0b6de },
        { 0x33f48069, 0x7c836149, 0x33f48069 },
    };
    struct record_about about = everything(), empty = nothing();
    uint8_t head[RECORD_MAX];
    (void)state;
    _Static_assert(sizeof sums / sizeof *sums == RECORD_LAST, "each kind has its sums");
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        enum record_kind kind = (enum record_kind)(i + 1);
        struct record records[] = { full(kind, &about), bare(kind, &empty), full(kind, &about) };
        records[2].maker = 0;
        for (int k = 0; k < 3; k++)
            if (checksum(head, record_encode(&records[k], head)) != sums[i][k])
                fail_msg("a %s record is written otherwise (%d)", record_kind_name(kind), k);
    }
}

// The same of records of jobs with META, which have numbers of their own.
static void records_with_META_are_written_as_they_always_were(void **state) {
    static const struct {
        enum record_kind kind;
        uint32_t sum;
    } rows[] = {
        { RECORD_PUSH, 0x4d7d001b },    { RECORD_JOB, 0xedf96243 },
        { RECORD_OUTBOX, 0x73848b78 },  { RECORD_ARRIVAL, 0xb6469a36 },
        { RECORD_REPLACE, 0xffc0f6b8 },
    };
    struct record_about about = everything();
    uint8_t head[RECORD_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct record r = full(rows[i].kind, &about);
        r.maker = 0; // with one it has another number
        r.meta_size = 300;
        if (checksum(head, record_encode(&r, head)) != rows[i].sum)
            fail_msg("a %s record with META is written otherwise", record_kind_name(r.kind));
    }
}

static uint64_t dice;

static uint64_t roll(void) {
    dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407;
    return dice >> (dice >> 58); // of any length
}

// Within what each field can hold; each kind keeps its own of them.
static struct record random_record(enum record_kind kind, const struct record_about *about) {
    static const char text[] = "anything at all";
    struct record r = { .kind = kind, .about = about };
    r.copy = roll() & 1, r.call = roll() & 1, r.has_once = roll() & 1;
    r.time_ms = roll() >> 16, r.pushed_ms = roll() >> 16;
    r.due_ms = roll() & 1 ? roll() >> 16 : 0, r.deadline_ms = roll() & 1 ? roll() >> 16 : 0;
    r.id = roll(), r.position = roll(), r.serial = roll(), r.random = roll(), r.upto = roll();
    r.epoch = roll(), r.next_id = roll(), r.source = roll(), r.number = roll();
    r.maker = roll() & 1 ? roll() : 0;
    r.once = (struct hash128){ roll(), roll() };
    r.stage = (uint32_t)roll(), r.attempt = (uint32_t)roll(), r.shard = (uint32_t)roll();
    r.attempts = roll() & 1 ? (uint32_t)roll() : 0, r.lease_ms = (uint32_t)roll();
    r.status = (enum job_status)(roll() % (JOB_CANCELLED + 1));
    r.key = bytes_of(text, roll() % sizeof text), r.name = bytes_of(text, roll() % sizeof text);
    return r;
}

static struct record_about random_about(void) {
    struct record_about a;
    const struct policy_row *row;
    for (size_t i = 0; i < sizeof a; i++)
        ((uint8_t *)&a)[i] = (uint8_t)roll();
    a.stage.paused = roll() & 1, a.stage.draining = roll() & 1, a.source.epic = roll() & 1;
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++)
        *policy_at(&a.stage.policy, &row->values[0]) = roll();
    a.move.next_ms = roll() >> 16, a.move.last_ms = roll() >> 16;
    a.move.paused = roll() & 1, a.move.asked = roll() & 1;
    a.schedule.cron = bytes_of("* * * * *", roll() % 10);
    a.schedule.zone = bytes_of("Asia/Tokyo", roll() % 11);
    a.epic.cancelled = roll() & 1, a.epic.ended_ms = roll() >> 16;
    a.epic.then = bytes_of("report", roll() % 7), a.epic.body = bytes_of("{}", roll() % 3);
    return a;
}

static bool same_values(const struct record *a, const struct record *b) {
    size_t at = 0, at_b = 0;
    struct record_value x, y;
    while (record_next_value(a, &at, &x)) {
        if (!record_next_value(b, &at_b, &y) || strcmp(x.name, y.name) != 0 || x.type != y.type ||
            x.number != y.number || !bytes_equal(x.bytes, y.bytes))
            return false;
    }
    return !record_next_value(b, &at_b, &y);
}

// Random records: a record prints the same after it was encoded and decoded.
static void every_field_survives_in_every_kind(void **state) {
    uint8_t head[RECORD_MAX];
    (void)state;
    dice = 11;
    for (int round = 0; round < 20000; round++) {
        struct record_about about = random_about(), again;
        struct record r = random_record((enum record_kind)(round % RECORD_LAST + 1), &about), out;
        size_t size = record_encode(&r, head);
        assert_true(decodes(at_the_edge(head, size)));
        assert_int_equal(record_decode(bytes_of(head, size), &again, &out), 0);
        if (!same_values(&r, &out))
            fail_msg("a %s record has lost a field", record_kind_name(r.kind));
        if (r.kind == RECORD_STAGE)
            assert_true(policy_equal(&about.stage.policy, &again.stage.policy));
        if (r.kind == RECORD_SOURCE)
            assert_memory_equal(about.source.bitmap, again.source.bitmap, SOURCE_BITMAP);
    }
}

// The writer that knows its kind when compiled, and the one for all kinds.
static void the_inline_writer_agrees(void **state) {
    uint8_t head[RECORD_MAX], other[RECORD_MAX];
    (void)state;
    dice = 13;
    for (int round = 0; round < 20000; round++) {
        struct record r = random_record((enum record_kind)(round % RECORD_END + 1), NULL);
        r.maker = 0; // with one it is written by record_encode only
        size_t size = r.kind == RECORD_PUSH  ? record_write(&r, FIELDS_OF_PUSH, other)
                      : r.kind == RECORD_JOB ? record_write(&r, FIELDS_OF_JOB, other)
                                             : record_write(&r, FIELDS_OF_END, other);
        assert_int_equal(size, record_encode(&r, head));
        assert_memory_equal(head, other, size);
    }
}

// A policy that is newer than its record has its default; one that is at its default is not written
// behind the last that is not. `from` stands for the number of policies that the first version had.
static void policies_may_be_added(void **state) {
    uint8_t bytes[RECORD_MAX];
    (void)state;
    for (size_t from = 0; policy_row(from); from++) {
        for (size_t changed = from; policy_row(changed); changed++) {
            struct policy in = policy_default(), out;
            *policy_at(&in, &policy_row(changed)->values[0]) += 1000;
            memcpy(&out, &in, sizeof out);
            size_t end = record_policies_end(&in, from);
            assert_int_equal(end, changed + 1);
            size_t size = (size_t)(record_write_policies(bytes, &in, from, end) - bytes);
            for (size_t i = from; policy_row(i); i++)
                *policy_at(&out, &policy_row(i)->values[0]) = 5;
            struct reader reader = reader_of(at_the_edge(bytes, size));
            record_read_later_policies(&reader, &out, from);
            assert_true(reader_done(&reader));
            assert_true(policy_equal(&in, &out));
        }
        struct policy usual = policy_default();
        assert_int_equal(record_policies_end(&usual, from), from);
        size_t size = (size_t)(record_write_policies(bytes, &usual, from, from + 1) - bytes);
        struct reader reader = reader_of(at_the_edge(bytes, size));
        record_read_later_policies(&reader, &usual, from);
        assert_true(reader.bad); // it would be written without
    }
}

static void fields_have_bounds(void **state) {
    static uint8_t long_text[KEY_MOST + 1];
    struct record good = { .kind = RECORD_PUSH }, r;
    (void)state;
    assert_int_equal(record_check_bounds(&good), 0);
#define BOUND(bit, member, type, most, text) BOUND_##type(member, (uint64_t)(most))
#define BOUND_id(member, most)                                                                     \
    r = good, r.member = most;                                                                     \
    assert_int_equal(record_check_bounds(&r), 0);                                                  \
    if ((r.member = most, ++r.member) > most)                                                      \
        assert_int_equal(record_check_bounds(&r), MR_ECORRUPT);
#define BOUND_u64 BOUND_id
#define BOUND_hex BOUND_id
#define BOUND_number BOUND_id
#define BOUND_small BOUND_id
#define BOUND_stage BOUND_id
#define BOUND_shard BOUND_id
#define BOUND_time BOUND_id
#define BOUND_status(member, most)
#define BOUND_present(member, most)
#define BOUND_hash(member, most)
#define BOUND_bytes(member, most)                                                                  \
    r = good, r.member = bytes_of(long_text, most);                                                \
    assert_int_equal(record_check_bounds(&r), 0);                                                  \
    r.member = bytes_of(long_text, most + 1);                                                      \
    assert_int_equal(record_check_bounds(&r), MR_ECORRUPT);
    RECORD_FIXED_FIELDS(BOUND)
    RECORD_RARE_FIELDS(BOUND)
    RECORD_OPTIONAL_FIELDS(BOUND)
    r = good, r.time_ms = INSTANT_MOST + 1;
    assert_int_equal(record_check_bounds(&r), MR_ECORRUPT);
}

// A record holds the random half of a token, which is not printed.
static void secrets_are_not_shown(void **state) {
    struct record_about about = everything();
    (void)state;
    for (enum record_kind kind = RECORD_PUSH; kind <= RECORD_LAST; kind++) {
        struct record r = full(kind, &about);
        struct record_value v;
        size_t count = 0;
        for (size_t at = 0; record_next_value(&r, &at, &v); count++) {
            assert_true(*v.name);
            assert_true(v.number != r.random); // the secret half of a token
        }
        assert_true(count > 0);
    }
}

// ---- Reasons ----------------------------------------------------------------------------------

static size_t count_reasons(mr_bytes body, uint32_t *out_first) {
    struct reason r;
    size_t count = 0;
    for (size_t at = 0; reasons_next(body, &at, &r); count++)
        if (count == 0)
            *out_first = r.attempt;
    return count;
}

static void reasons_keep_the_latest(void **state) {
    struct buffer body = { 0 };
    (void)state;
    for (uint32_t i = 1; i <= 1000; i++) {
        char text[32];
        uint32_t first = 0;
        (void)snprintf(text, sizeof text, "reason %u", i);
        struct reason reason = { .attempt = i,
                                 .time_ms = UINT64_C(1) << 40,
                                 .text = mr_str(i % 7 ? text : "") };
        assert_int_equal(reasons_add(&body, &reason, 10), 0);
        assert_int_equal(count_reasons(buffer_bytes(&body), &first), i < 10 ? i : 10);
        assert_int_equal(first, i < 10 ? 1 : i - 9);
    }
    assert_true(body.size < 10 * 30);
    buffer_finish(&body);
}

// Outputs may hold any bytes; those of the last three are kept, and the others leave no trace.
static void reasons_keep_the_latest_outputs(void **state) {
    struct buffer body = { 0 };
    struct reason r;
    static char words[LAST_WORDS_MOST];
    (void)state;
    for (uint32_t i = 1; i <= 40; i++) {
        memset(words, (int)i % 3, sizeof words);
        struct reason reason = { .attempt = i,
                                 .text = mr_str(i % 4 ? "why" : ""),
                                 .output = { words, i % 5 ? sizeof words - i : 0 } };
        assert_int_equal(reasons_add(&body, &reason, 10), 0);
        uint32_t count = 0;
        for (size_t at = 0; reasons_next(buffer_bytes(&body), &at, &r); count++) {
            bool kept = r.attempt + OUTPUTS_KEPT > i && r.attempt % 5;
            assert_int_equal(r.output.size, kept ? sizeof words - r.attempt : 0);
            assert_int_equal(r.text.size, r.attempt % 4 ? 3 : 0);
            for (size_t k = 0; k < r.output.size; k++)
                assert_int_equal(((const char *)r.output.data)[k], r.attempt % 3);
        }
        assert_int_equal(count, i < 10 ? i : 10);
        assert_true(body.size < 3 * sizeof words + 10 * 32);
    }
    buffer_finish(&body);
}

static void reasons_cut_off_or_flipped_end_early(void **state) {
    struct buffer body = { 0 };
    uint32_t first;
    (void)state;
    for (uint32_t i = 1; i <= 3; i++) {
        struct reason reason = { .attempt = i, .time_ms = 1000 + i, .text = mr_str("because") };
        assert_int_equal(reasons_add(&body, &reason, 10), 0);
    }
    for (size_t cut = 0; cut <= body.size; cut++)
        assert_true(count_reasons(at_the_edge(body.data, cut), &first) <= 3);
    for (size_t at = 0; at < body.size; at++)
        for (int wrong = 0; wrong < 256; wrong++) {
            uint8_t right = body.data[at];
            body.data[at] = (uint8_t)wrong;
            assert_true(count_reasons(at_the_edge(body.data, body.size), &first) <= body.size / 3);
            body.data[at] = right;
        }
    struct reason more = { .attempt = 4,
                           .time_ms = 5,
                           .text = mr_str("after damage the list still takes one") };
    body.data[0] = 0xff;
    body.data[1] = 0;
    assert_int_equal(reasons_add(&body, &more, 10), 0);
    assert_int_equal(count_reasons(buffer_bytes(&body), &first), 1);
    assert_int_equal(first, 4);
    buffer_finish(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_survives_being_written_and_read),
        cmocka_unit_test(a_push_record_has_all_fields_of_a_job),
        cmocka_unit_test(an_end_is_a_group_of_one),
        cmocka_unit_test(stages_and_sources_keep_their_counters),
        cmocka_unit_test(links_keep_their_ends_and_numbers),
        cmocka_unit_test(the_longest_of_each_kind_fits),
        cmocka_unit_test(cut_off_anywhere_it_is_no_record),
        cmocka_unit_test(a_record_with_trailing_bytes_is_invalid),
        cmocka_unit_test(flipped_anywhere_it_is_no_record_or_another_one),
        cmocka_unit_test(any_bytes_are_no_record_or_one),
        cmocka_unit_test(a_peek_sees_what_decoding_sees),
        cmocka_unit_test(a_copy_differs_in_being_one),
        cmocka_unit_test(every_kind_is_written_as_it_always_was),
        cmocka_unit_test(records_with_META_are_written_as_they_always_were),
        cmocka_unit_test(every_field_survives_in_every_kind),
        cmocka_unit_test(the_inline_writer_agrees),
        cmocka_unit_test(policies_may_be_added),
        cmocka_unit_test(fields_have_bounds),
        cmocka_unit_test(secrets_are_not_shown),
        cmocka_unit_test(reasons_keep_the_latest),
        cmocka_unit_test(reasons_keep_the_latest_outputs),
        cmocka_unit_test(reasons_cut_off_or_flipped_end_early),
    };
    return cmocka_run_group_tests(tests, guard_begin, NULL);
}
