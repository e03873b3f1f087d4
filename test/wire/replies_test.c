// Replies that are maps: every table is read as it was written, by older and newer readers, too.
#include "base/buffer.h"
#include "base/bytes.h"
#include "wire/replies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define TEXT(literal) ((mr_bytes){ literal, sizeof(literal) - 1 })

enum { VALUES = 256 };

static struct response_value values[VALUES];

static void read_map(mr_bytes frame) {
    static const struct response_limits limits = {
        .values = VALUES, .line_size = 1 << 12, .bulk_size = 1 << 12, .size = 1 << 16
    };
    struct response r = { 0 };
    uint32_t count;
    assert_int_equal(response_read(&r, &limits, frame.data, frame.size, values, &count),
                     frame.size);
}

static const struct reply_table *const tables[] = {
    &stage_replies,  &channel_replies, &group_replies,    &job_replies,
    &reason_replies, &epic_replies,    &epics_replies,    &worker_replies,
    &hello_replies,  &docs_replies,    &argument_replies,
};

union any_reply {
    struct stage_reply stage;
    struct job_reply job;
    struct epic_reply epic;
    struct worker_reply worker;
    struct hello_reply hello;
    struct docs_reply docs;
    uint8_t bytes[1024];
};

static void write_pong(void *reply) {
    reply_simple(reply, "PONG");
}

// Gives every field a value that depends on its place.
static void fill_reply(const struct reply_table *t, struct reply *r, union any_reply *out) {
    for (size_t i = 0; i < t->count; i++) {
        void *to = out->bytes + t->fields[i].offset;
        switch (t->fields[i].kind) {
        case REPLY_bytes:
            *(mr_bytes *)to = mr_str(t->fields[i].about);
            break;
        case REPLY_count:
        case REPLY_id:
            *(uint64_t *)to = i + 1;
            break;
        case REPLY_small:
            *(uint32_t *)to = (uint32_t)i + 1;
            break;
        case REPLY_number:
            *(int64_t *)to = -(int64_t)i - 1;
            break;
        case REPLY_rate:
            *(double *)to = (double)i + 0.125;
            break;
        case REPLY_flag:
            *(bool *)to = true;
            break;
        case REPLY_names:
        case REPLY_entry:
            break;
        case REPLY_other:
            *(struct reply_other *)to = (struct reply_other){ write_pong, r, NULL };
            break;
        }
    }
}

static void expect_same_field(const struct reply_field *f, const union any_reply *a,
                              const union any_reply *b) {
    const void *x = a->bytes + f->offset, *y = b->bytes + f->offset;
    const mr_bytes *text = x, *other = y;
    switch (f->kind) {
    case REPLY_bytes:
        assert_true(bytes_equal(*text, *other));
        break;
    case REPLY_count:
    case REPLY_id:
    case REPLY_number:
    case REPLY_rate:
        assert_memory_equal(x, y, 8);
        break;
    case REPLY_small:
        assert_memory_equal(x, y, 4);
        break;
    case REPLY_flag:
        assert_memory_equal(x, y, sizeof(bool));
        break;
    case REPLY_names:
    case REPLY_entry:
        break;
    case REPLY_other:
        assert_true(bytes_equal(((const struct reply_other *)y)->value->bytes, TEXT("PONG")));
        break;
    }
}

static void every_map_is_read_as_it_was_written(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(tables); i++) {
        for (int resp3 = 0; resp3 < 2; resp3++) {
            struct buffer out = { 0 };
            struct reply r = { .out = &out, .resp3 = resp3 };
            union any_reply written = { 0 }, read = { 0 };
            fill_reply(tables[i], &r, &written);
            reply_write(&r, tables[i], &written);
            assert_int_equal(r.err, 0);
            read_map(buffer_bytes(&out));
            assert_int_equal(values->count, 2 * tables[i]->count);
            assert_true(reply_read(tables[i], values, &read));
            for (size_t k = 0; k < tables[i]->count; k++)
                expect_same_field(&tables[i]->fields[k], &written, &read);
            buffer_finish(&out);
        }
    }
}

static void a_field_that_is_not_set_is_left_out(void **state) {
    (void)state;
    struct buffer out = { 0 };
    struct reply r = { .out = &out };
    struct job_reply job = { .reasons = { write_pong, &r, NULL } };
    reply_write(&r, &job_replies, &job);
    read_map(buffer_bytes(&out));
    assert_int_equal(values->count,
                     2 * (job_replies.count - 4)); // no progress, body, result or meta
    assert_null(response_field(values, "body"));
    buffer_finish(&out);
}

static void unknown_fields_and_other_types_are_skipped(void **state) {
    (void)state;
    struct reason_reply reason = { .attempt = 7 };
    read_map(TEXT("%4\r\n$3\r\nnew\r\n*2\r\n:1\r\n:2\r\n$4\r\ntext\r\n$2\r\nno\r\n"
                  "$7\r\nattempt\r\n$1\r\nx\r\n$6\r\nage-ms\r\n:5\r\n"));
    assert_true(reply_read(&reason_replies, values, &reason));
    assert_int_equal(reason.attempt, 7);
    assert_int_equal(reason.age_ms, 5);
    assert_true(bytes_equal(reason.text, TEXT("no")));
    read_map(TEXT("$2\r\nno\r\n"));
    assert_false(reply_read(&reason_replies, values, &reason));
}

static void a_field_is_found_by_its_offset(void **state) {
    (void)state;
    const struct reply_field *f =
        reply_field_at(&stage_replies, offsetof(struct stage_reply, oldest_ms));
    assert_string_equal(f->name, "oldest-ms");
    assert_true(reply_is_ms(f));
    assert_false(reply_is_ms(&stage_replies.fields[0]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_map_is_read_as_it_was_written),
        cmocka_unit_test(a_field_that_is_not_set_is_left_out),
        cmocka_unit_test(unknown_fields_and_other_types_are_skipped),
        cmocka_unit_test(a_field_is_found_by_its_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
