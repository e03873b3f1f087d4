// The wire, as peers may send it: whole, in pieces, malformed, too large, and ending at a page that
// cannot be read.
#include "support/wire.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/code.h"
#include "wire/number.h"
#include "wire/port.h"
#include "wire/url.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define TEXT(literal) ((mr_bytes){ literal, sizeof(literal) - 1 })

enum { ROOM = 1 << 16 }; // bytes before the guard

static uint8_t *guard; // the first byte that may not be read

static int guard_begin(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *area =
        mmap(NULL, ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return -1;
    guard = area + ROOM;
    return mprotect(guard, page, PROT_NONE);
}

// A copy whose last byte is the last one that may be read.
static uint8_t *at_guard(mr_bytes b) {
    assert_true(b.size <= ROOM);
    return memcpy(guard - b.size, b.data, b.size);
}

// Reproducible chance (xorshift).
static uint64_t chance_state;

static uint64_t chance(uint64_t below) {
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return chance_state % below;
}

static int setup(void **state) {
    (void)state;
    chance_state = 88172645463325252u;
    return 0;
}

static void expect_bytes(mr_bytes got, mr_bytes expected) {
    assert_int_equal(got.size, expected.size);
    if (expected.size)
        assert_memory_equal(got.data, expected.data, expected.size);
}

// ── numbers ──

static void expect_number(uint64_t number) {
    char expected[32];
    uint8_t got[NUMBER_DIGITS];
    int size = snprintf(expected, sizeof expected, "%llu", (unsigned long long)number);
    uint8_t *end = number_write(got, number);
    expect_bytes((mr_bytes){ got, (size_t)(end - got) }, mr_str(expected));
    assert_int_equal(number_size(number), size);
    uint64_t back = ~number;
    assert_int_equal(number_parse(mr_str(expected), &back), 0);
    assert_true(back == number);
}

static void a_number_is_read_as_it_was_written(void **state) {
    (void)state;
    expect_number(0);
    expect_number(UINT64_MAX);
    for (uint64_t power = 1;; power *= 10) {
        expect_number(power - 1);
        expect_number(power);
        expect_number(power + 1);
        if (power > UINT64_MAX / 10)
            break;
    }
    for (int i = 0; i < 10000; i++)
        expect_number(chance(UINT64_MAX) >> chance(64));
}

static void a_number_has_one_spelling(void **state) {
    (void)state;
    static const char *const none[] = { "",
                                        "00",
                                        "01",
                                        "-1",
                                        "+1",
                                        "1 ",
                                        " 1",
                                        "x",
                                        "1x",
                                        "18446744073709551616",
                                        "99999999999999999999",
                                        "184467440737095516150" };
    uint64_t untouched = 7;
    for (size_t i = 0; i < LENGTH(none); i++)
        assert_int_equal(number_parse(mr_str(none[i]), &untouched), MR_EINVAL);
    assert_int_equal(untouched, 7);
}

// Short numbers and long ones, with and without bytes behind them, are held to the same limit.
static void a_number_keeps_to_its_limit(void **state) {
    (void)state;
    static const uint64_t limits[] = { 0, 5, 9, 10, 42, 99, 100, 1234, INT64_MAX };
    for (size_t i = 0; i < LENGTH(limits); i++)
        for (uint64_t number = 0; number < 1500; number++) {
            char text[32];
            int size = snprintf(text, sizeof text, "%u\r\n", (unsigned)number);
            memset(text + size, 'x', sizeof text - (size_t)size);
            for (size_t shown = (size_t)size; shown <= sizeof text; shown += 3) {
                uint64_t got = ~number;
                uint8_t *data = at_guard((mr_bytes){ text, shown });
                bool fits = number <= limits[i];
                assert_int_equal(number_read(data, shown, limits[i], &got),
                                 fits ? size : MR_ETOOBIG);
                assert_true(got == (fits ? number : ~number));
            }
        }
}

// ── requests ──

static const struct request_limits roomy = {
    .arguments = WIRE_VALUES, .argument_size = 1 << 20, .line_size = 1 << 12, .size = 1 << 22
};

// Reads one request, expects it to take all bytes, and compares its arguments.
static void expect_request(mr_bytes frame, size_t count, const mr_bytes *expected) {
    mr_bytes arguments[16];
    uint32_t got = 0;
    struct request r = { 0 };
    ptrdiff_t used = request_read(&r, &roomy, at_guard(frame), frame.size, arguments, &got);
    assert_int_equal(used, frame.size);
    assert_int_equal(got, count);
    for (size_t i = 0; i < count; i++)
        expect_bytes(arguments[i], expected[i]);
}

#define EXPECT_REQUEST(frame, ...)                                                                 \
    expect_request(TEXT(frame), LENGTH(((mr_bytes[]){ __VA_ARGS__ })), (mr_bytes[]){ __VA_ARGS__ })

static void a_request_is_an_array_of_bulk_strings(void **state) {
    (void)state;
    EXPECT_REQUEST("*1\r\n$4\r\nPING\r\n", TEXT("PING"));
    EXPECT_REQUEST("*3\r\n$4\r\nPUSH\r\n$0\r\n\r\n$5\r\na\r\n\0b\r\n", TEXT("PUSH"), TEXT(""),
                   TEXT("a\r\n\0b"));
    EXPECT_REQUEST("*1\r\n$12\r\nHello, world\r\n", TEXT("Hello, world"));
    expect_request(TEXT("*0\r\n"), 0, NULL);
}

// F41: inline.
static void F41_a_request_may_be_a_line_of_words(void **state) {
    (void)state;
    EXPECT_REQUEST("PING\r\n", TEXT("PING"));
    EXPECT_REQUEST("PING\n", TEXT("PING"));
    EXPECT_REQUEST(" \tPUSH  mail\tbody \r\n", TEXT("PUSH"), TEXT("mail"), TEXT("body"));
    EXPECT_REQUEST("a \"\" ''\r\n", TEXT("a"), TEXT(""), TEXT(""));
    EXPECT_REQUEST("\"a b\" 'c d' e\"f g\"\r\n", TEXT("a b"), TEXT("c d"), TEXT("ef g"));
    EXPECT_REQUEST("\"\\n\\r\\t\\b\\a\\\\\\\"\\q\\x00\\xfF\\xg\" z\n",
                   TEXT("\n\r\t\b\a\\\"q\0\xffxg"), TEXT("z"));
    EXPECT_REQUEST("'\\n\\'\\\\ ' \"'\"\n", TEXT("\\n'\\\\ "), TEXT("'"));
    EXPECT_REQUEST("a\\nb \\\n", TEXT("a\\nb"), TEXT("\\"));
    expect_request(TEXT("\r\n"), 0, NULL);
    expect_request(TEXT(" \t \n"), 0, NULL);
}

static const struct request_limits tight = {
    .arguments = 3, .argument_size = 8, .line_size = 16, .size = 32
};

static void expect_refused(const struct request_limits *limits, mr_bytes frame, int code,
                           const char *sentence) {
    mr_bytes arguments[16];
    uint32_t count = 77;
    struct request r = { 0 };
    assert_int_equal(request_read(&r, limits, at_guard(frame), frame.size, arguments, &count),
                     code);
    assert_int_equal(count, 77);
    assert_string_equal(error_text(), sentence);
}

// F41: negative, huge, overflowing, nested lengths; each has its own error text.
static void F41_malformed_requests_are_refused_with_a_reason(void **state) {
    (void)state;
    static const struct {
        mr_bytes frame;
        const char *sentence;
    } rows[] = {
        { TEXT("*-1\r\n"), "Protocol error: the count behind '*' is not a number" },
        { TEXT("*\r\n"), "Protocol error: the count behind '*' is not a number" },
        { TEXT("*+1"), "Protocol error: the count behind '*' is not a number" },
        { TEXT("*01\r\n"), "Protocol error: the count behind '*' is not a number" },
        { TEXT("*1\n"), "Protocol error: the count behind '*' is not a number" },
        { TEXT("*1\r\r"), "Protocol error: the count behind '*' is not a number" },
        { TEXT("*1 \r\n"), "Protocol error: the count behind '*' is not a number" },
        { TEXT("*1\r\n*"), "Protocol error: argument 1 must begin with '$', not with '*'" },
        { TEXT("*1\r\n:"), "Protocol error: argument 1 must begin with '$', not with ':'" },
        { TEXT("*2\r\n$1\r\na\r\n\r\n"),
          "Protocol error: argument 2 must begin with '$', not with 0x0d" },
        { TEXT("*1\r\n$-"), "Protocol error: the length of argument 1 is not a number" },
        { TEXT("*1\r\n$-1\r\n"), "Protocol error: the length of argument 1 is not a number" },
        { TEXT("*1\r\n$x"), "Protocol error: the length of argument 1 is not a number" },
        { TEXT("*1\r\n$00"), "Protocol error: the length of argument 1 is not a number" },
        { TEXT("*1\r\n$1\ra"), "Protocol error: the length of argument 1 is not a number" },
        { TEXT("*1\r\n$1\r\nabc"),
          "Protocol error: argument 1 does not end where its length says" },
        { TEXT("*1\r\n$0\r\n\n\r"),
          "Protocol error: argument 1 does not end where its length says" },
        { TEXT("\x16\x03\x01"), "Protocol error: a request cannot begin with 0x16" },
        { TEXT("\0"), "Protocol error: a request cannot begin with 0x00" },
        { TEXT("\xff"), "Protocol error: a request cannot begin with 0xff" },
        { TEXT("a \"b\n"), "Protocol error: a quote is not closed" },
        { TEXT("a 'b\n"), "Protocol error: a quote is not closed" },
        { TEXT("a \"b\\\n"), "Protocol error: a quote is not closed" },
        { TEXT("a \"b\\\"\n"), "Protocol error: a quote is not closed" },
        { TEXT("\"a\"b\n"), "Protocol error: a closing quote must end its word" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++)
        expect_refused(&tight, rows[i].frame, MR_EINVAL, rows[i].sentence);
}

// F41: what is too large is refused by its length, before any of it has come.
static void F41_requests_over_a_limit_are_refused_early(void **state) {
    (void)state;
    static const struct {
        mr_bytes frame;
        const char *sentence;
    } rows[] = {
        { TEXT("*4"), "Protocol error: more than 3 arguments" },
        { TEXT("*1000000"), "Protocol error: more than 3 arguments" },
        { TEXT("*9223372036854775808\r\n"), "Protocol error: more than 3 arguments" },
        { TEXT("*18446744073709551617\r\n"), "Protocol error: more than 3 arguments" },
        { TEXT("*99999999999999999999999999"), "Protocol error: more than 3 arguments" },
        { TEXT("*1\r\n$9"), "Protocol error: argument 1 is longer than 8 bytes" },
        { TEXT("*1\r\n$2147483648"), "Protocol error: argument 1 is longer than 8 bytes" },
        { TEXT("*1\r\n$18446744073709551615\r\n"),
          "Protocol error: argument 1 is longer than 8 bytes" },
        { TEXT("*1\r\n$100000000000000000000000000000001\r\n"),
          "Protocol error: argument 1 is longer than 8 bytes" },
        { TEXT("*3\r\n$8\r\n12345678\r\n$8\r\n12345678\r\n$0\r\n"),
          "Protocol error: the request is longer than 32 bytes" },
        { TEXT("a b c d\n"), "Protocol error: more than 3 words in a line" },
        { TEXT("a 3456789 123456"), "Protocol error: the line is longer than 16 bytes" },
        { TEXT("a 3456789 123456\n"), "Protocol error: the line is longer than 16 bytes" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++)
        expect_refused(&tight, rows[i].frame, MR_ETOOBIG, rows[i].sentence);
    struct request_limits wide = {
        .arguments = UINT32_MAX, .argument_size = SIZE_MAX, .line_size = SIZE_MAX, .size = 100
    };
    expect_refused(&wide, TEXT("*17\r\n"), MR_ETOOBIG,
                   "Protocol error: the request is longer than 100 bytes");
    expect_refused(&wide, TEXT("*1\r\n$9223372036854775807\r\n"), MR_ETOOBIG,
                   "Protocol error: the request is longer than 100 bytes");
    expect_refused(&wide, TEXT("*1\r\n$9999999999999999999\r\n"), MR_ETOOBIG,
                   "Protocol error: the request is longer than 100 bytes");
}

// Limits are what is still allowed.
static void requests_at_their_limits_are_read(void **state) {
    (void)state;
    static const mr_bytes frames[] = { TEXT("*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"),
                                       TEXT("*1\r\n$8\r\n12345678\r\n"),
                                       TEXT("*2\r\n$8\r\n12345678\r\n$8\r\n12345678\r\n"),
                                       TEXT("a bcd\n"), TEXT("a 3456789 12345\n") };
    mr_bytes arguments[3];
    uint32_t count;
    struct request r = { 0 };
    for (size_t i = 0; i < LENGTH(frames); i++)
        assert_int_equal(
            request_read(&r, &tight, at_guard(frames[i]), frames[i].size, arguments, &count),
            frames[i].size);
}

static const mr_bytes requests[] = {
    TEXT("*1\r\n$4\r\nPING\r\n"),
    TEXT("*6\r\n$4\r\nPUSH\r\n$4\r\nmail\r\n$12\r\n{\"to\":\"ann\"}\r\n$3\r\nKEY\r\n$3\r\nann\r\n$"
         "0\r\n\r\n"),
    TEXT("*2\r\n$4\r\nECHO\r\n$8\r\n\r\n$1\r\n\r\n\r\n"),
    TEXT("*0\r\n"),
    TEXT("PUSH mail 'a b' \"c\\x20\\n\"\r\n"),
    TEXT("\r\n"),
};

// F41: split at every byte.
static void F41_every_prefix_of_a_request_is_partial(void **state) {
    (void)state;
    mr_bytes arguments[16];
    uint32_t count;
    for (size_t i = 0; i < LENGTH(requests); i++)
        for (size_t size = 0; size < requests[i].size; size++) {
            struct request r = { 0 };
            uint8_t *data = at_guard((mr_bytes){ requests[i].data, size });
            assert_int_equal(request_read(&r, &roomy, data, size, arguments, &count), 0);
            assert_true(r.need <= requests[i].size);
            assert_true(size == 0 || r.need > size);
        }
}

// Whole and in pieces, a request means the same; so does one with a wrong byte.
static void expect_same_in_pieces(mr_bytes frame, const struct request_limits *limits) {
    struct buffer whole = { 0 }, pieces = { 0 };
    ptrdiff_t used = request_in_pieces(frame, limits, frame.size, &whole);
    for (size_t step = 1; step < frame.size; step += 1 + step / 4) {
        buffer_clear(&pieces);
        assert_int_equal(request_in_pieces(frame, limits, step, &pieces), used);
        expect_bytes(buffer_bytes(&pieces), buffer_bytes(&whole));
    }
    buffer_finish(&whole);
    buffer_finish(&pieces);
}

static void F41_a_request_may_come_in_pieces_of_any_size(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(requests); i++)
        expect_same_in_pieces(requests[i], &roomy);
}

static void F41_any_byte_of_a_request_may_be_wrong(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(requests); i++)
        for (size_t at = 0; at < requests[i].size; at++)
            for (int byte = 0; byte < 256; byte++) {
                uint8_t *wrong = wire_copy(requests[i]);
                wrong[at] = (uint8_t)byte;
                expect_same_in_pieces((mr_bytes){ wrong, requests[i].size },
                                      byte % 2 ? &roomy : &tight);
                free(wrong);
            }
}

// A reader knows how many bytes are missing, and does not scan a body before it is complete.
static void a_body_is_not_looked_at_until_it_is_whole(void **state) {
    (void)state;
    mr_bytes head = TEXT("*3\r\n$4\r\nPUSH\r\n$4\r\nmail\r\n$1000\r\n"), arguments[3];
    uint8_t *data = at_guard(head);
    uint32_t count;
    struct request r = { 0 };
    for (size_t size = head.size; size < head.size + 1002; size++) {
        assert_int_equal(request_read(&r, &roomy, data, size, arguments, &count), 0);
        assert_int_equal(r.need, head.size + 1002);
    }
}

// F41: 10⁶ arguments.
static void F41_a_million_arguments_are_read_where_allowed(void **state) {
    (void)state;
    enum { MANY = 1000000, STEP = 1 << 16 };
    struct request_limits limits = { .arguments = MANY, .argument_size = 1, .size = 10 << 20 };
    mr_bytes *arguments = calloc(MANY, sizeof *arguments);
    struct buffer frame = { 0 };
    for (size_t i = 0; i < MANY; i++)
        arguments[i] = i % 2 ? TEXT("x") : TEXT("");
    assert_int_equal(request_write(&frame, arguments, MANY), 0);
    memset(arguments, 0, MANY * sizeof *arguments);

    struct request r = { 0 };
    uint32_t count = 0;
    ptrdiff_t used = 0;
    for (size_t size = 0; used == 0 && size < frame.size;) {
        size = frame.size - size > STEP ? size + STEP : frame.size;
        used = request_read(&r, &limits, frame.data, size, arguments, &count);
        assert_true(used > 0 || size < frame.size);
    }
    assert_int_equal(used, frame.size);
    assert_int_equal(count, MANY);
    for (size_t i = 0; i < MANY; i++)
        assert_true(bytes_equal(arguments[i], i % 2 ? TEXT("x") : TEXT("")));
    limits.arguments--;
    assert_int_equal(request_read(&r, &limits, frame.data, 10, arguments, &count), MR_ETOOBIG);
    buffer_finish(&frame);
    free(arguments);
}

static void requests_follow_one_another(void **state) {
    (void)state;
    mr_bytes frames = TEXT("*1\r\n$1\r\na\r\nb\r\n\r\n*1\r\n$1\r\nc\r\n*1\r\n$1"), argument;
    uint8_t *data = at_guard(frames), *end = data + frames.size;
    struct request r = { 0 };
    char seen[4] = { 0 };
    size_t words = 0;
    for (ptrdiff_t used; (used = request_read(&r, &roomy, data, (size_t)(end - data), &argument,
                                              &(uint32_t){ 0 })) > 0;
         data += used)
        if (used > 2)
            seen[words++] = *(const char *)argument.data;
    assert_string_equal(seen, "abc");
    assert_int_equal(end - data, 6);
}

static void a_request_is_read_as_it_was_written(void **state) {
    (void)state;
    uint8_t noise[512];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)chance(256);
    for (int round = 0; round < 2000; round++) {
        mr_bytes arguments[16];
        size_t count = 1 + chance(LENGTH(arguments));
        for (size_t i = 0; i < count; i++) {
            size_t size = chance(chance(2) ? 8 : 300);
            arguments[i] = (mr_bytes){ noise + chance(sizeof noise - size), size };
        }
        struct buffer frame = { 0 };
        assert_int_equal(request_write(&frame, arguments, count), 0);
        expect_request(buffer_bytes(&frame), count, arguments);
        buffer_finish(&frame);
    }
}

static void a_request_that_does_not_fit_is_not_begun(void **state) {
    (void)state;
    struct buffer b = { .limit = 20 };
    assert_int_equal(request_write(&b, (mr_bytes[]){ TEXT("PING") }, 1), 0);
    assert_int_equal(request_write(&b, (mr_bytes[]){ TEXT("PING") }, 1), MR_ETOOBIG);
    expect_bytes(buffer_bytes(&b), TEXT("*1\r\n$4\r\nPING\r\n"));
    buffer_finish(&b);
}

// ── codes ──

static void every_code_is_read_as_it_was_written(void **state) {
    (void)state;
    for (int i = 0; i < CODES; i++) {
        char line[64];
        enum code code = CODES;
        mr_bytes sentence;
        snprintf(line, sizeof line, "%s and why", code_name((enum code)i));
        assert_true(code_read(mr_str(line), &code, &sentence));
        assert_int_equal(code, i);
        expect_bytes(sentence, TEXT("and why"));
        assert_true(code_read(mr_str(code_name((enum code)i)), &code, &sentence));
        expect_bytes(sentence, mr_str(code_meaning((enum code)i)));
        assert_int_equal(code_error(code_of(code_error(code))), code_error(code));
    }
}

static void what_is_no_code_is_a_sentence(void **state) {
    (void)state;
    static const char *const lines[] = { "", "ERRO x", "ER", "err x", "WRONGTYPE of a key" };
    for (size_t i = 0; i < LENGTH(lines); i++) {
        enum code code = CODES;
        mr_bytes sentence;
        assert_false(code_read(mr_str(lines[i]), &code, &sentence));
        assert_int_equal(code, CODES);
        expect_bytes(sentence, mr_str(lines[i]));
    }
    assert_int_equal(code_of(MR_ECORRUPT), CODE_ERR);
    assert_int_equal(code_of(MR_ENOMEM), CODE_FULL);
    assert_int_equal(code_of(MR_EIO), CODE_STOPPED);
}

// ── replies ──

static void one_of_each(struct reply *r) {
    reply_simple(r, "OK");
    reply_error(r, "STALE", TEXT("the lease\r\nis over"));
    reply_error(r, "GONE", TEXT(""));
    reply_integer(r, 0);
    reply_integer(r, -12);
    reply_integer(r, INT64_MIN);
    reply_integer(r, INT64_MAX);
    reply_bulk(r, TEXT("a\r\nb"));
    reply_bulk(r, (mr_bytes){ 0 });
    reply_id(r, UINT64_MAX);
    reply_null(r);
    reply_array(r, 0);
    reply_map(r, 10);
}

static const char both[] = "+OK\r\n-STALE the lease  is over\r\n-GONE\r\n:0\r\n:-12\r\n"
                           ":-9223372036854775808\r\n:9223372036854775807\r\n"
                           "$4\r\na\r\nb\r\n$0\r\n\r\n$20\r\n18446744073709551615\r\n";

static void expect_replies(bool resp3, const char *rest) {
    struct buffer out = { 0 };
    struct reply r = { .out = &out, .resp3 = resp3 };
    one_of_each(&r);
    assert_int_equal(r.err, 0);
    expect_bytes((mr_bytes){ out.data, sizeof both - 1 }, TEXT(both));
    expect_bytes((mr_bytes){ out.data + sizeof both - 1, out.size - (sizeof both - 1) },
                 mr_str(rest));
    buffer_finish(&out);
}

static void replies_are_spelled_as_the_protocol_says(void **state) {
    (void)state;
    expect_replies(false, "$-1\r\n*0\r\n*20\r\n");
    expect_replies(true, "_\r\n*0\r\n%10\r\n");
}

static void expect_double(double number, const char *text) {
    struct buffer out = { 0 };
    char two[64], three[64];
    (void)snprintf(two, sizeof two, "$%zu\r\n%s\r\n", strlen(text), text);
    (void)snprintf(three, sizeof three, ",%s\r\n", text);
    for (int resp3 = 0; resp3 < 2; resp3++) {
        struct reply r = { .out = &out, .resp3 = resp3 };
        buffer_clear(&out);
        reply_double(&r, number);
        assert_int_equal(r.err, 0);
        expect_bytes(buffer_bytes(&out), mr_str(resp3 ? three : two));
    }
    buffer_finish(&out);
}

static void a_double_is_as_short_as_it_may_be(void **state) {
    (void)state;
    expect_double(0, "0");
    expect_double(0.1, "0.1");
    expect_double(-1.5, "-1.5");
    expect_double(1234567.875, "1234567.875");
    expect_double(1.0 / 3, "0.33333333333333331");
    expect_double(1e300, "1e+300");
    expect_double(INFINITY, "inf");
    expect_double(-INFINITY, "-inf");
    expect_double(NAN, "nan");
}

// After the first value that does not fit nothing is written, also if it would fit.
static void a_reply_that_does_not_fit_is_remembered(void **state) {
    (void)state;
    struct buffer out = { .limit = 40 };
    struct reply r = { .out = &out };
    reply_simple(&r, "OK");
    reply_bulk(&r, TEXT("this is longer than what is left of forty"));
    assert_int_equal(r.err, MR_ETOOBIG);
    one_of_each(&r);
    reply_bulk_end(&r, reply_bulk_begin(&r));
    assert_int_equal(r.err, MR_ETOOBIG);
    expect_bytes(buffer_bytes(&out), TEXT("+OK\r\n"));
    buffer_finish(&out);
}

static void a_bulk_string_may_be_appended_by_the_caller(void **state) {
    (void)state;
    static const size_t sizes[] = { 0, 1, 9, 10, 99, 100, 12345 };
    struct buffer appended = { 0 }, copied = { 0 };
    struct reply a = { .out = &appended }, b = { .out = &copied };
    char *body = memset(malloc(20000), '\n', 20000);
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        size_t begin = reply_bulk_begin(&a);
        assert_int_equal(buffer_append(&appended, body, sizes[i]), 0);
        reply_bulk_end(&a, begin);
        reply_bulk(&b, (mr_bytes){ body, sizes[i] });
    }
    assert_int_equal(a.err, 0);
    expect_bytes(buffer_bytes(&appended), buffer_bytes(&copied));
    free(body);
    buffer_finish(&appended);
    buffer_finish(&copied);
}

// ── replies, read ──

static const struct response_limits room_for_replies = {
    .values = WIRE_VALUES, .line_size = 1 << 12, .bulk_size = 1 << 20, .size = 1 << 22
};
static const struct response_limits tight_replies = {
    .values = 4, .line_size = 8, .bulk_size = 8, .size = 32
};

static uint32_t read_reply(mr_bytes frame, struct response_value *out) {
    uint32_t count = 0;
    struct response r = { 0 };
    ptrdiff_t used = response_read(&r, &room_for_replies, at_guard(frame), frame.size, out, &count);
    assert_int_equal(used, frame.size);
    return count;
}

static struct response_value one_value(mr_bytes frame, enum response_type type) {
    struct response_value v;
    assert_int_equal(read_reply(frame, &v), 1);
    assert_int_equal(v.type, type);
    assert_int_equal(v.count, 0);
    return v;
}

static void every_kind_of_reply_is_read(void **state) {
    (void)state;
    expect_bytes(one_value(TEXT("+OK\r\n"), RESPONSE_SIMPLE).bytes, TEXT("OK"));
    expect_bytes(one_value(TEXT("+\r\n"), RESPONSE_SIMPLE).bytes, TEXT(""));
    expect_bytes(one_value(TEXT("-GAP 7\r\n"), RESPONSE_ERROR).bytes, TEXT("GAP 7"));
    expect_bytes(one_value(TEXT(",0.5\r\n"), RESPONSE_DOUBLE).bytes, TEXT("0.5"));
    expect_bytes(one_value(TEXT("$3\r\na\r\n\r\n"), RESPONSE_BULK).bytes, TEXT("a\r\n"));
    expect_bytes(one_value(TEXT("$0\r\n\r\n"), RESPONSE_BULK).bytes, TEXT(""));
    assert_true(one_value(TEXT(":9223372036854775807\r\n"), RESPONSE_INTEGER).integer == INT64_MAX);
    assert_true(one_value(TEXT(":-9223372036854775808\r\n"), RESPONSE_INTEGER).integer ==
                INT64_MIN);
    assert_true(one_value(TEXT("#t\r\n"), RESPONSE_BOOLEAN).boolean);
    assert_false(one_value(TEXT("#f\r\n"), RESPONSE_BOOLEAN).boolean);
    one_value(TEXT("_\r\n"), RESPONSE_NULL);
    one_value(TEXT("$-1\r\n"), RESPONSE_NULL);
    one_value(TEXT("*-1\r\n"), RESPONSE_NULL);
    one_value(TEXT("*0\r\n"), RESPONSE_ARRAY);
    one_value(TEXT("%0\r\n"), RESPONSE_MAP);
    one_value(TEXT(">0\r\n"), RESPONSE_PUSH);
}

static void values_within_values_come_in_order(void **state) {
    (void)state;
    struct response_value v[9];
    mr_bytes frame = TEXT("*3\r\n*2\r\n:1\r\n%1\r\n+a\r\n*0\r\n_\r\n>1\r\n:2\r\n");
    assert_int_equal(read_reply(frame, v), 9);
    static const enum response_type types[] = { RESPONSE_ARRAY, RESPONSE_ARRAY,  RESPONSE_INTEGER,
                                                RESPONSE_MAP,   RESPONSE_SIMPLE, RESPONSE_ARRAY,
                                                RESPONSE_NULL,  RESPONSE_PUSH,   RESPONSE_INTEGER };
    for (size_t i = 0; i < LENGTH(types); i++)
        assert_int_equal(v[i].type, types[i]);
    assert_int_equal(v[3].count, 2);
    assert_int_equal(response_skip(v, 0), 9);
    assert_int_equal(response_skip(v, 1), 6);
    assert_int_equal(response_skip(v, 3), 6);
    assert_int_equal(response_skip(v, 6), 7);
}

static void expect_reply_refused(const struct response_limits *limits, mr_bytes frame, int code) {
    struct response_value values[16];
    uint32_t count = 77;
    struct response r = { 0 };
    assert_int_equal(response_read(&r, limits, at_guard(frame), frame.size, values, &count), code);
    assert_int_equal(count, 77);
    assert_memory_equal(
        error_text(),
        code == MR_EINVAL ? "the reply is malformed: " : "the reply is too large: ", 24);
}

static void F41_malformed_replies_are_refused(void **state) {
    (void)state;
    static const mr_bytes malformed[] = {
        TEXT("?"),         TEXT("\r\n"),          TEXT("(1\r\n"),
        TEXT("+a\n"),      TEXT("+\n"),           TEXT(":\r\n"),
        TEXT(":--"),       TEXT(":+1\r\n"),       TEXT(":1x"),
        TEXT(":01"),       TEXT(":1\n"),          TEXT(":9223372036854775808\r\n"),
        TEXT("$-2"),       TEXT("$-1\n"),         TEXT("$+"),
        TEXT("$1\r\nabc"), TEXT("$1\r\na\n\r"),   TEXT("*-2"),
        TEXT("*x"),        TEXT("%-1"),           TEXT(">-1"),
        TEXT("_x"),        TEXT("#\r"),           TEXT("#x"),
        TEXT("#tt"),       TEXT("*1\r\n*1\r\n?"), TEXT(":-9223372036854775809\r\n"),
    };
    for (size_t i = 0; i < LENGTH(malformed); i++)
        expect_reply_refused(&room_for_replies, malformed[i], MR_EINVAL);
}

static void F41_replies_over_a_limit_are_refused_early(void **state) {
    (void)state;
    static const mr_bytes large[] = {
        TEXT("$9"),
        TEXT("$18446744073709551617"),
        TEXT("*4\r\n"),
        TEXT("*99999999999999999999"),
        TEXT("%2\r\n"),
        TEXT("*2\r\n*2\r\n"),
        TEXT("+123456789\r"),
        TEXT("-1234567890"),
        TEXT("*3\r\n$8\r\n12345678\r\n$8\r\n12345678\r\n$0\r\n"),
        TEXT("*3\r\n$8\r\n12345678\r\n$8\r\n12345678\r\n+"),
    };
    for (size_t i = 0; i < LENGTH(large); i++)
        expect_reply_refused(&tight_replies, large[i], MR_ETOOBIG);
    // Nested eight deep is allowed, nine is not.
    expect_reply_refused(&room_for_replies,
                         TEXT("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"),
                         MR_ETOOBIG);
    struct response_value values[9];
    mr_bytes deep = TEXT("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n");
    assert_int_equal(read_reply(deep, values), 9);
}

static const mr_bytes replies[] = {
    TEXT("+OK\r\n"),
    TEXT("-STALE the lease is over\r\n"),
    TEXT(":-12\r\n"),
    TEXT("$-1\r\n"),
    TEXT("*-1\r\n"),
    TEXT("*2\r\n*8\r\n$2\r\n17\r\n$4\r\n1.ab\r\n$4\r\nmail\r\n$0\r\n\r\n$4\r\nbody\r\n:1\r\n:-"
         "1\r\n$-1\r\n*0\r\n"),
    TEXT("%2\r\n$4\r\nname\r\n+mail\r\n$4\r\nrate\r\n,0.25\r\n"),
    TEXT(">3\r\n$6\r\ncancel\r\n#t\r\n#f\r\n"),
    TEXT("*1\r\n%1\r\n_\r\n*1\r\n_\r\n"),
};

static void F41_every_prefix_of_a_reply_is_partial(void **state) {
    (void)state;
    struct response_value values[16];
    uint32_t count;
    for (size_t i = 0; i < LENGTH(replies); i++)
        for (size_t size = 0; size < replies[i].size; size++) {
            struct response r = { 0 };
            uint8_t *data = at_guard((mr_bytes){ replies[i].data, size });
            assert_int_equal(response_read(&r, &room_for_replies, data, size, values, &count), 0);
            assert_true(r.need <= replies[i].size);
            assert_true(size == 0 || r.need > size);
        }
}

static void expect_same_reply_in_pieces(mr_bytes frame, const struct response_limits *limits) {
    struct buffer whole = { 0 }, pieces = { 0 };
    ptrdiff_t used = response_in_pieces(frame, limits, frame.size, &whole);
    for (size_t step = 1; step < frame.size; step += 1 + step / 4) {
        buffer_clear(&pieces);
        assert_int_equal(response_in_pieces(frame, limits, step, &pieces), used);
        expect_bytes(buffer_bytes(&pieces), buffer_bytes(&whole));
    }
    buffer_finish(&whole);
    buffer_finish(&pieces);
}

static void F41_a_reply_may_come_in_pieces_of_any_size(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(replies); i++)
        expect_same_reply_in_pieces(replies[i], &room_for_replies);
}

static void F41_any_byte_of_a_reply_may_be_wrong(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(replies); i++)
        for (size_t at = 0; at < replies[i].size; at++)
            for (int byte = 0; byte < 256; byte++) {
                uint8_t *wrong = wire_copy(replies[i]);
                wrong[at] = (uint8_t)byte;
                expect_same_reply_in_pieces((mr_bytes){ wrong, replies[i].size },
                                            byte % 2 ? &room_for_replies : &tight_replies);
                free(wrong);
            }
}

static void a_reply_in_a_long_bulk_string_is_not_looked_at(void **state) {
    (void)state;
    mr_bytes head = TEXT("*2\r\n+a\r\n$1000\r\n");
    uint8_t *data = at_guard(head);
    struct response_value values[3];
    uint32_t count;
    struct response r = { 0 };
    for (size_t size = head.size; size < head.size + 1002; size++) {
        assert_int_equal(response_read(&r, &room_for_replies, data, size, values, &count), 0);
        assert_int_equal(r.need, head.size + 1002);
    }
}

// A value of any kind, with others in it while `depth` allows.
static void write_any(struct reply *r, int depth) {
    uint64_t kind = chance(depth > 0 ? 10 : 7), many = kind < 7 ? 0 : chance(4);
    struct response_value v = { .type = (enum response_type)kind, .count = (uint32_t)many };
    if (v.type <= RESPONSE_DOUBLE)
        v.bytes = v.type == RESPONSE_BULK ? TEXT("any\r\nbytes") : TEXT("");
    else
        v.integer = v.type == RESPONSE_INTEGER ? (int64_t)chance(UINT64_MAX) : (int64_t)chance(2);
    v.count &= v.type == RESPONSE_MAP ? ~1u : ~0u;
    value_spell(r, &v);
    for (uint32_t i = 0; i < v.count; i++)
        write_any(r, depth - 1);
}

static void a_reply_is_read_as_it_was_written(void **state) {
    (void)state;
    for (int round = 0; round < 5000; round++) {
        struct buffer written = { 0 }, read = { 0 };
        struct reply r = { .out = &written, .resp3 = true };
        write_any(&r, 5);
        mr_bytes frame = buffer_bytes(&written);
        assert_int_equal(response_in_pieces(frame, &room_for_replies, 1 + chance(50), &read),
                         written.size);
        expect_bytes(buffer_bytes(&read), frame);
        buffer_finish(&written);
        buffer_finish(&read);
    }
}

// ---- URLs -------------------------------------------------------------------------------------

#define FILE_27 "aaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define FILE_107 FILE_27 FILE_27 FILE_27 "aaaaaaaaaaaaaaaaaaaaaaaaaa"

static void a_url_names_an_engine(void **state) {
    (void)state;
    static const struct {
        const char *text, *where, *host, *port, *user, *secret;
    } rows[] = {
        { "mem:", "mem:", "", "", "", "" },
        { "file:a/b", "file:a/b", "", "", "", "" },
        { "millrace://h", "millrace://h:" WIRE_PORT, "h", WIRE_PORT, "", "" },
        { "millrace://h:1/", "millrace://h:1", "h", "1", "", "" },
        { "millraces://[::1]:65535", "millraces://[::1]:65535", "::1", "65535", "", "" },
        { "millrace://s%3A%40@h:1", "millrace://h:1", "h", "1", "", "s:@" },
        { "millrace://u%2f:a@b@h:1", "millrace://h:1", "h", "1", "u/", "a@b" },
        { "unix:/run/a@b,c:1", "unix:/run/a@b,c:1", "/run/a@b,c:1", "", "", "" },
        { "unix:sock", "unix:sock", "sock", "", "", "" },
        { "unix:///run/sock", "unix:/run/sock", "/run/sock", "", "", "" },
        { "unix://u:s%2f@/run/sock", "unix:/run/sock", "/run/sock", "", "u", "s/" },
        { "unix:" FILE_107, "unix:" FILE_107, FILE_107, "", "", "" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct engine_url u;
        assert_int_equal(url_read(rows[i].text, &u), 0);
        assert_string_equal(u.where, rows[i].where);
        assert_string_equal(u.nodes[0].host, rows[i].host);
        assert_string_equal(u.nodes[0].port, rows[i].port);
        assert_string_equal(u.user, rows[i].user);
        assert_string_equal(u.secret, rows[i].secret);
        assert_int_equal(u.node_count, !u.local);
        assert_int_equal(store_url_dir(&u.store) != NULL, strncmp(rows[i].text, "file:", 5) == 0);
    }
}

static void a_url_may_name_several_nodes(void **state) {
    (void)state;
    struct engine_url u;
    assert_int_equal(url_read("millraces://u:s@a,b:2,[::1]:3", &u), 0);
    assert_string_equal(u.where, "millraces://a:" WIRE_PORT ",b:2,[::1]:3");
    assert_int_equal(u.node_count, 3);
    static const char *const hosts[] = { "a", "b", "::1" }, *const ports[] = { WIRE_PORT, "2",
                                                                               "3" };
    for (uint32_t i = 0; i < 3; i++) {
        assert_string_equal(u.nodes[i].host, hosts[i]);
        assert_string_equal(u.nodes[i].port, ports[i]);
    }
    assert_int_equal(url_read("millrace://1,2,3,4,5,6,7,8", &u), 0);
    assert_int_equal(u.node_count, URL_NODES);
}

static void what_is_no_url_is_refused_without_its_secret(void **state) {
    (void)state;
    static const char *const rows[] = {
        "",
        "mem",
        "mem:x",
        "file:",
        "http://hush@h",
        "millrace:h",
        "millrace://",
        "millrace://h:0",
        "millrace://h:65536",
        "millrace://h:1x",
        "millrace://h:1/x",
        "millrace://[::1]x:1",
        "millrace://hush%@h:1",
        "millrace://hush%00@h:1",
        "millrace://hush@:1",
        "millrace://hush@a:1,",
        "millrace://hush@,a:1",
        "millrace://hush@a:1,b:x",
        "millrace://hush@1,2,3,4,5,6,7,8,9",
        "unix:",
        "unix://",
        "unix://hush@",
        "unix://hush/run/sock",
        "unix://hush%@/run/sock",
        "unix:" FILE_107 "a",
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct engine_url u = { .place = "kept" };
        assert_int_equal(url_read(rows[i], &u), MR_EINVAL);
        assert_null(strstr(error_text(), "hush"));
        assert_non_null(strstr(error_text(), "millrace://HOST:PORT"));
        assert_string_equal(u.place, "kept");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_number_is_read_as_it_was_written, setup),
        cmocka_unit_test_setup(a_number_has_one_spelling, setup),
        cmocka_unit_test_setup(a_number_keeps_to_its_limit, setup),
        cmocka_unit_test_setup(a_request_is_an_array_of_bulk_strings, setup),
        cmocka_unit_test_setup(F41_a_request_may_be_a_line_of_words, setup),
        cmocka_unit_test_setup(F41_malformed_requests_are_refused_with_a_reason, setup),
        cmocka_unit_test_setup(F41_requests_over_a_limit_are_refused_early, setup),
        cmocka_unit_test_setup(requests_at_their_limits_are_read, setup),
        cmocka_unit_test_setup(F41_every_prefix_of_a_request_is_partial, setup),
        cmocka_unit_test_setup(F41_a_request_may_come_in_pieces_of_any_size, setup),
        cmocka_unit_test_setup(F41_any_byte_of_a_request_may_be_wrong, setup),
        cmocka_unit_test_setup(a_body_is_not_looked_at_until_it_is_whole, setup),
        cmocka_unit_test_setup(F41_a_million_arguments_are_read_where_allowed, setup),
        cmocka_unit_test_setup(requests_follow_one_another, setup),
        cmocka_unit_test_setup(a_request_is_read_as_it_was_written, setup),
        cmocka_unit_test_setup(a_request_that_does_not_fit_is_not_begun, setup),
        cmocka_unit_test_setup(replies_are_spelled_as_the_protocol_says, setup),
        cmocka_unit_test_setup(a_double_is_as_short_as_it_may_be, setup),
        cmocka_unit_test_setup(a_reply_that_does_not_fit_is_remembered, setup),
        cmocka_unit_test_setup(a_bulk_string_may_be_appended_by_the_caller, setup),
        cmocka_unit_test_setup(every_kind_of_reply_is_read, setup),
        cmocka_unit_test_setup(values_within_values_come_in_order, setup),
        cmocka_unit_test_setup(F41_malformed_replies_are_refused, setup),
        cmocka_unit_test_setup(F41_replies_over_a_limit_are_refused_early, setup),
        cmocka_unit_test(every_code_is_read_as_it_was_written),
        cmocka_unit_test(what_is_no_code_is_a_sentence),
        cmocka_unit_test_setup(F41_every_prefix_of_a_reply_is_partial, setup),
        cmocka_unit_test_setup(F41_a_reply_may_come_in_pieces_of_any_size, setup),
        cmocka_unit_test_setup(F41_any_byte_of_a_reply_may_be_wrong, setup),
        cmocka_unit_test_setup(a_reply_in_a_long_bulk_string_is_not_looked_at, setup),
        cmocka_unit_test_setup(a_reply_is_read_as_it_was_written, setup),
        cmocka_unit_test(a_url_names_an_engine),
        cmocka_unit_test(a_url_may_name_several_nodes),
        cmocka_unit_test(what_is_no_url_is_refused_without_its_secret),
    };
    return cmocka_run_group_tests_name("wire", tests, guard_begin, NULL);
}
