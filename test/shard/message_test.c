// Messages between shards as bytes: each comes back as it was, and nothing else is accepted.
#include "shard/message.h"

#include "base/mem.h"
#include "core/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void name(char *to, uint32_t *size, const char *text) {
    *size = (uint32_t)strlen(text);
    memcpy(to, text, *size);
}

static void add_emit(struct buffer *emits, struct link_entry e, mr_bytes body) {
    size_t at;
    assert_int_equal(message_begin_emit(emits, &e, &at), 0);
    assert_int_equal(buffer_append(emits, body.data, body.size), 0);
    message_end_emit(emits, at);
}

static struct message message_of(enum message_kind kind) {
    struct message m = { .kind = kind, .from = 3, .to = 63, .epoch = 9, .number = 700 };
    switch (kind) {
    case MESSAGE_EDGE:
        m.maker = 7;
        name(m.downstream, &m.downstream_size, "mail/out");
        name(m.stage, &m.stage_size, "s");
        break;
    case MESSAGE_OVER:
        m.over = true;
        m.high_mark = UINT64_MAX;
        name(m.stage, &m.stage_size, "s");
        break;
    case MESSAGE_EMITS:
        m.now_ms = 1234567890123;
        add_emit(
            &m.emits,
            (struct link_entry){ .number = 650, .after = 5, .stage = mr_str("s"), .delay_ms = 9 },
            mr_str("first"));
        add_emit(&m.emits,
                 (struct link_entry){ .number = 700,
                                      .after = 650,
                                      .stage = mr_str("t"),
                                      .key = mr_str("k"),
                                      .once = mr_str("name"),
                                      .deadline_ms = LINK_EXPIRED,
                                      .attempts = UINT16_MAX,
                                      .meta_size = 5,
                                      .maker = UINT64_MAX,
                                      .job_maker = 11 },
                 mr_str("trace"));
        break;
    case MESSAGE_REFUSED:
        m.missing = true;
        break;
    case MESSAGE_SHARE:
    case MESSAGE_SHARE_LEFT:
        m.maker = UINT64_MAX;
        break;
    case MESSAGE_BEGIN:
    case MESSAGE_NOTED:
    case MESSAGE_ARRIVED:
    case MESSAGE_ACKED:
    case MESSAGE_KINDS:
        break;
    }
    return m;
}

static void expect_equal(const struct message *a, const struct message *b) {
    assert_true(a->kind == b->kind && a->from == b->from && a->to == b->to);
    assert_true(a->epoch == b->epoch && a->over == b->over);
    assert_true(a->missing == b->missing && a->number == b->number && a->now_ms == b->now_ms);
    assert_true(a->high_mark == b->high_mark && a->maker == b->maker);
    assert_true(bytes_equal(bytes_of(a->stage, a->stage_size), bytes_of(b->stage, b->stage_size)));
    assert_true(bytes_equal(bytes_of(a->downstream, a->downstream_size),
                            bytes_of(b->downstream, b->downstream_size)));
    assert_true(bytes_equal(buffer_bytes(&a->emits), buffer_bytes(&b->emits)));
}

static void a_message_is_read_as_it_was_written(void **state) {
    (void)state;
    struct message read = { 0 };
    for (int kind = 0; kind < MESSAGE_KINDS; kind++) {
        struct message m = message_of((enum message_kind)kind);
        struct buffer bytes = { 0 };
        assert_int_equal(message_write(&m, &bytes), 0);
        assert_int_equal(message_read(buffer_bytes(&bytes), &read), 0);
        expect_equal(&m, &read);
        message_finish(&m);
        buffer_finish(&bytes);
    }
    message_finish(&read);
}

static void emits_are_read_as_they_were_added(void **state) {
    (void)state;
    static const struct link_entry entries[] = {
        { .number = 1, .deadline_ms = 1, .delay_ms = TIME_MOST_MS },
        { .number = 2,
          .after = 1,
          .deadline_ms = TIME_MOST_MS,
          .attempts = UINT16_MAX,
          .meta_size = 1,
          .job_maker = UINT64_MAX },
        { .number = NUMBER_MOST, .after = NUMBER_MOST - 1, .deadline_ms = LINK_EXPIRED },
        { .number = 3 },
    };
    struct buffer emits = { 0 };
    struct link_entry e;
    mr_bytes body;
    char long_key[KEY_MOST];
    memset(long_key, 'k', sizeof long_key);
    for (size_t i = 0; i < 4; i++) {
        struct link_entry add = entries[i];
        add.stage = mr_str("stage");
        add.key = bytes_of(long_key, i * KEY_MOST / 3);
        add_emit(&emits, add, bytes_of(long_key, i));
    }
    struct reader r = reader_of(buffer_bytes(&emits));
    for (size_t i = 0; i < 4; i++) {
        assert_true(message_next_emit(&r, &e, &body));
        assert_true(e.number == entries[i].number && e.after == entries[i].after);
        assert_true(e.delay_ms == entries[i].delay_ms && e.deadline_ms == entries[i].deadline_ms);
        assert_true(e.meta_size == entries[i].meta_size && e.job_maker == entries[i].job_maker);
        assert_true(e.attempts == entries[i].attempts && bytes_equal(e.stage, mr_str("stage")));
        assert_true(e.key.size == i * KEY_MOST / 3 && !e.once.size && body.size == i);
    }
    assert_false(message_next_emit(&r, &e, &body));
    assert_true(reader_done(&r));
    buffer_finish(&emits);
}

// A key that no record could hold: the batch is as it was.
static void an_emit_that_is_too_large_is_not_added(void **state) {
    (void)state;
    static char key[2 * KEY_MOST + ONCE_MOST];
    struct buffer emits = { 0 };
    size_t at;
    struct link_entry e = { .number = 1, .stage = mr_str("s"), .key = bytes_of(key, sizeof key) };
    add_emit(&emits, (struct link_entry){ .number = 1, .stage = mr_str("s") }, mr_str("body"));
    size_t before = emits.size;
    assert_int_equal(message_begin_emit(&emits, &e, &at), MR_ETOOBIG);
    assert_int_equal(emits.size, before);
    buffer_finish(&emits);
}

static int read_copy(const uint8_t *data, size_t size, struct message *out) {
    uint8_t *exact = malloc(size ? size : 1); // so that a sanitizer notices what reads beyond it
    assert_non_null(exact);
    if (size)
        memcpy(exact, data, size);
    int err = message_read(bytes_of(exact, size), out);
    free(exact);
    return err;
}

// Every prefix is refused, and so is a message with a byte more.
static void what_is_cut_or_continued_is_refused(void **state) {
    (void)state;
    for (int kind = 0; kind < MESSAGE_KINDS; kind++) {
        struct message m = message_of((enum message_kind)kind), read = { 0 };
        struct buffer bytes = { 0 };
        assert_int_equal(message_write(&m, &bytes), 0);
        for (size_t size = 0; size < bytes.size; size++)
            assert_int_equal(read_copy(bytes.data, size, &read), MR_EINVAL);
        assert_int_equal(buffer_append(&bytes, "", 1), 0);
        assert_int_equal(read_copy(bytes.data, bytes.size, &read), MR_EINVAL);
        assert_null(read.emits.data);
        message_finish(&m);
        buffer_finish(&bytes);
    }
}

static void expect_refused(struct message m) {
    struct buffer bytes = { 0 };
    struct message read = { 0 };
    assert_int_equal(message_write(&m, &bytes), 0);
    assert_int_equal(message_read(buffer_bytes(&bytes), &read), MR_EINVAL);
    buffer_finish(&bytes);
}

static void expect_kind_refused(uint8_t kind) {
    struct message m = message_of(MESSAGE_ACKED), read = { 0 };
    struct buffer bytes = { 0 };
    assert_int_equal(message_write(&m, &bytes), 0);
    bytes.data[1] = kind;
    assert_int_equal(message_read(buffer_bytes(&bytes), &read), MR_EINVAL);
    bytes.data[1] = (uint8_t)m.kind;
    assert_int_equal(message_read(buffer_bytes(&bytes), &read), 0);
    message_finish(&read);
    buffer_finish(&bytes);
}

static void names_shards_and_kinds_are_checked(void **state) {
    (void)state;
    struct message m = message_of(MESSAGE_ACKED);
    m.to = m.from;
    expect_refused(m);
    m.to = SHARDS_MOST;
    expect_refused(m);
    expect_kind_refused(MESSAGE_KINDS);
    m = message_of(MESSAGE_OVER);
    m.stage[0] = ' ';
    expect_refused(m);
    m = message_of(MESSAGE_EDGE);
    m.downstream_size = 0;
    expect_refused(m);
}

// The emits of a batch are consecutive, and the message has the number of the last one.
static void batches_are_checked(void **state) {
    (void)state;
    static const struct link_entry bad[] = {
        { .number = 700, .after = 650, .stage = { " ", 1 } },
        { .number = 700, .after = 649, .stage = { "s", 1 } },
        { .number = 640, .after = 5, .stage = { "s", 1 } },
        { .number = 710, .after = 700, .stage = { "s", 1 } },
        { .number = NUMBER_MOST + 1, .after = 700, .stage = { "s", 1 } },
        { .number = 720, .after = 700, .stage = { "s", 1 }, .meta_size = 2 },
        { .number = 720, .after = 700, .stage = { "s", 1 }, .meta_size = META_MOST + 1 },
        { .number = 720, .after = 700, .stage = { "s", 1 }, .delay_ms = TIME_MOST_MS + 1 },
        { .number = 720, .after = 700, .stage = { "s", 1 }, .deadline_ms = TIME_MOST_MS + 1 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct message m = message_of(MESSAGE_EMITS);
        add_emit(&m.emits, bad[i], mr_str("x"));
        m.number = i == 3 ? 700 : bad[i].number;
        expect_refused(m);
        message_finish(&m);
    }
    struct message m = message_of(MESSAGE_EMITS);
    buffer_clear(&m.emits);
    expect_refused(m);
    for (uint64_t n = 1; n <= MESSAGE_EMITS_MOST + 1; n++)
        add_emit(&m.emits, (struct link_entry){ .number = n, .after = n - 1, .stage = mr_str("s") },
                 mr_str(""));
    m.number = MESSAGE_EMITS_MOST + 1;
    expect_refused(m);
    message_finish(&m);
}

static uint64_t dice_state;

static uint64_t dice(uint64_t below) {
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 7;
    dice_state ^= dice_state << 17;
    return dice_state % below;
}

// A message with random bytes changed is refused, or is one that would be written so.
static void damaged_messages_do_no_harm(void **state) {
    (void)state;
    struct message read = { 0 };
    dice_state = 88172645463325252u;
    for (int round = 0; round < 50000; round++) {
        struct message m = message_of((enum message_kind)dice(MESSAGE_KINDS));
        struct buffer bytes = { 0 }, again = { 0 };
        assert_int_equal(message_write(&m, &bytes), 0);
        for (uint64_t edits = 1 + dice(3); edits > 0; edits--)
            bytes.data[dice(bytes.size)] = (uint8_t)dice(256);
        int err = read_copy(bytes.data, bytes.size, &read);
        assert_true(err == 0 || err == MR_EINVAL);
        if (err == 0) {
            assert_int_equal(message_write(&read, &again), 0);
            assert_true(bytes_equal(buffer_bytes(&bytes), buffer_bytes(&again)));
        }
        message_finish(&m);
        buffer_finish(&bytes);
        buffer_finish(&again);
    }
    message_finish(&read);
}

// F51: without memory the message that was read before is still there.
static void F51_without_memory_nothing_is_read_or_written(void **state) {
    (void)state;
    struct message m = message_of(MESSAGE_EMITS), read = { .kind = MESSAGE_ACKED, .number = 7 };
    struct buffer bytes = { 0 };
    mem_fail_after(0);
    assert_int_equal(message_write(&m, &bytes), MR_ENOMEM);
    mem_fail_after(-1);
    assert_int_equal(message_write(&m, &bytes), 0);
    mem_fail_after(0);
    assert_int_equal(message_read(buffer_bytes(&bytes), &read), MR_ENOMEM);
    mem_fail_after(-1);
    assert_true(read.kind == MESSAGE_ACKED && read.number == 7);
    assert_int_equal(message_read(buffer_bytes(&bytes), &read), 0);
    message_finish(&m);
    message_finish(&read);
    buffer_finish(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_read_as_it_was_written),
        cmocka_unit_test(emits_are_read_as_they_were_added),
        cmocka_unit_test(an_emit_that_is_too_large_is_not_added),
        cmocka_unit_test(what_is_cut_or_continued_is_refused),
        cmocka_unit_test(names_shards_and_kinds_are_checked),
        cmocka_unit_test(batches_are_checked),
        cmocka_unit_test(damaged_messages_do_no_harm),
        cmocka_unit_test(F51_without_memory_nothing_is_read_or_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
