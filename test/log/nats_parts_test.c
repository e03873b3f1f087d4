// What is read from NATS, and its URL, as bytes that may be wrong. Needs no server.
#include "support/log_support.h"

#include "log/nats_record.h"
#include "log/nats_url.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static bool record_is_read(const struct nats_record *r, size_t rest_size) {
    struct buffer message = { 0 };
    struct nats_record found;
    mr_bytes rest;
    assert_int_equal(nats_record_put(r, &message), 0);
    assert_int_equal(buffer_reserve(&message, rest_size), 0);
    memset(message.data + message.size, 'x', rest_size);
    message.size += rest_size;
    bool read = nats_record_get(buffer_bytes(&message), &found, &rest);
    if (read)
        assert_int_equal(rest.size, rest_size);
    buffer_finish(&message);
    return read;
}

// The second of two parts, of 100 and 20 bytes.
static const struct nats_record second_part = { .kind = NATS_PART,
                                                .epoch = 7,
                                                .head = 8,
                                                .tail = 128,
                                                .at = 8,
                                                .end = 128,
                                                .heads_size = 40,
                                                .bodies_size = 80,
                                                .part = 1,
                                                .part_size = 100,
                                                .owner = "node" };

// F22: a message of a stream is a whole record, or none.
static void F22_damaged_records_of_NATS_are_noticed(void **state) {
    (void)state;
    struct buffer message = { 0 };
    struct nats_record found, claim = { .kind = NATS_STATE, .epoch = 7, .tail = 8, .owner = "me" };
    mr_bytes rest;
    assert_int_equal(nats_record_put(&claim, &message), 0);
    for (size_t bit = 0; bit < 8 * message.size; bit++) {
        message.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(nats_record_get(buffer_bytes(&message), &found, &rest));
        message.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t size = 0; size < message.size; size++)
        assert_false(nats_record_get((mr_bytes){ message.data, size }, &found, &rest));
    assert_true(nats_record_get(buffer_bytes(&message), &found, &rest));
    assert_string_equal(found.owner, "me");
    buffer_finish(&message);
    mem_fail_after(0);
    assert_int_equal(nats_record_put(&claim, &message), MR_ENOMEM);
    mem_fail_after(-1);
}

// F22: a record whose sum is right is not believed if its numbers contradict each other.
static void F22_records_of_NATS_that_do_not_fit_are_noticed(void **state) {
    (void)state;
    struct nats_record r = second_part;
    assert_true(record_is_read(&r, 20));
    assert_false(record_is_read(&r, 19));
    assert_false(record_is_read(&r, 21));
    r.part = 2; // there are two
    assert_false(record_is_read(&r, 20));
    r = second_part, r.part_size = 0;
    assert_false(record_is_read(&r, 20));
    r = second_part, r.end = r.at;
    assert_false(record_is_read(&r, 20));
    r = second_part, r.head = r.tail + 8;
    assert_false(record_is_read(&r, 20));
    r = second_part, r.kind = (enum nats_record_kind)3;
    assert_false(record_is_read(&r, 20));
}

static void urls_of_NATS_are_read_or_refused(void **state) {
    (void)state;
    struct nats_url u;
    static char longest[NATS_URL_MOST + 1];
    memset(longest, 'a', NATS_URL_MOST);
    memcpy(longest, NATS_SCHEME, strlen(NATS_SCHEME));
    const char *const wrong[] = {
        "redis://a",
        longest,
        "nats://",
        "nats://:4222",
        "nats://a,",
        "nats://a/b",
        "nats://@a",
        "nats://us%zzer@a",
        "nats://us%4zer@a",
        "nats://us%00er@a",
        "nats://user:%4@a",
        "nats://a?replicas",
        "nats://a?replicas=0",
        "nats://a?replicas=6",
        "nats://a?replicas=12",
        "nats://a?tls=1",
        "nats://a?ca",
        "nats://a?ca=",
        "nats://a?ca=%zz",
        "nats://a?cert=c",
        "nats://a?key=k",
        "nats://a?other=1",
        "nats://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
    };
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        int err = nats_url_read(wrong[i], &u);
        if (err != MR_EINVAL)
            print_error("%s\n", wrong[i]);
        assert_int_equal(err, MR_EINVAL);
    }
    assert_int_equal(
        nats_url_read("nats://us%6Aer:%C3%a4@a,[::1],[::1]:7/?tls&ca=%2fca&cert=c&key=k&creds=f",
                      &u),
        0);
    assert_int_equal(u.count, 3);
    assert_string_equal(u.servers[0], "nats://a:4222");
    assert_string_equal(u.servers[1], "nats://[::1]:4222");
    assert_string_equal(u.servers[2], "nats://[::1]:7");
    assert_string_equal(u.user, "usjer");
    assert_string_equal(u.password, "\xc3\xa4");
    assert_string_equal(u.ca, "/ca");
    assert_true(u.tls);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F22_damaged_records_of_NATS_are_noticed),
        cmocka_unit_test(F22_records_of_NATS_that_do_not_fit_are_noticed),
        cmocka_unit_test(urls_of_NATS_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
