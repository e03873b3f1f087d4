// Lines: whatever the pieces in which input comes, the lines are the same; and memory stays flat
// for lines of any length.
#include "base/bytes.h"
#include "cli/lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

// ---- Feeding ----------------------------------------------------------------------------------

// Feeds `input` in pieces of `piece` bytes, each of them through a pipe of its own reading.
struct feed {
    struct lines lines;
    int pipe[2];
    mr_bytes left;
    size_t piece;
};

static struct feed feed_open(const char *input, size_t size, size_t piece, char delimiter) {
    struct feed f = { .lines.delimiter = delimiter, .left = { input, size }, .piece = piece };
    assert_int_equal(pipe(f.pipe), 0);
    return f;
}

static void feed_more(struct feed *f) {
    size_t size = f->left.size < f->piece ? f->left.size : f->piece;
    if (size)
        assert_int_equal(write(f->pipe[1], f->left.data, size), (ssize_t)size);
    else
        close(f->pipe[1]);
    f->left.data = (const char *)f->left.data + size;
    f->left.size -= size;
    assert_int_equal(lines_read(&f->lines, f->pipe[0]), 0);
}

static bool feed_next(struct feed *f, struct line *out) {
    while (!lines_next(&f->lines, out)) {
        if (f->lines.ended)
            return false;
        feed_more(f);
    }
    return true;
}

static void feed_close(struct feed *f) {
    lines_finish(&f->lines);
    close(f->pipe[0]);
}

static void expect(const char *input, size_t size, char delimiter, const char *const *texts) {
    for (size_t piece = 1; piece <= size + 1; piece++) {
        struct feed f = feed_open(input, size, piece, delimiter);
        struct line line;
        uint64_t number = 0;
        for (; texts[number]; number++) {
            assert_true(feed_next(&f, &line));
            assert_int_equal(line.number, number + 1);
            assert_int_equal(line.size, strlen(texts[number]));
            assert_true(bytes_equal(line.text, mr_str(texts[number])));
            assert_int_equal(line.hash, bytes_hash(mr_str(texts[number]), 0));
        }
        assert_false(feed_next(&f, &line));
        assert_false(feed_next(&f, &line)); // nor later
        feed_close(&f);
    }
}

#define EXPECT(input, delimiter, ...)                                                              \
    expect(input, sizeof(input) - 1, delimiter, (const char *const[]){ __VA_ARGS__, NULL })

// ---- Tests ------------------------------------------------------------------------------------

static void lines_are_the_same_in_any_pieces(void **state) {
    (void)state;
    EXPECT("one\ntwo\nthree\n", '\n', "one", "two", "three");
    EXPECT("one\ntwo\nthree", '\n', "one", "two", "three");
    EXPECT("\n\na\n\n", '\n', "", "", "a", "");
    EXPECT("one\0two\nstill two\0", 0, "one", "two\nstill two");
    EXPECT("carriage\r\nreturn", '\n', "carriage\r", "return");
}

static void no_input_has_no_lines(void **state) {
    (void)state;
    EXPECT("", '\n', NULL);
    EXPECT("", 0, NULL);
}

static void a_line_may_hold_zero_bytes(void **state) {
    (void)state;
    static const char input[] = "a\0b\n\0\n";
    for (size_t piece = 1; piece < sizeof input; piece++) {
        struct feed f = feed_open(input, sizeof input - 1, piece, '\n');
        struct line line;
        assert_true(feed_next(&f, &line));
        assert_true(bytes_equal(line.text, bytes_of("a\0b", 3)));
        assert_true(feed_next(&f, &line));
        assert_true(bytes_equal(line.text, bytes_of("\0", 1)));
        assert_false(feed_next(&f, &line));
        feed_close(&f);
    }
}

// A file of one line of `size` bytes, the last of which is `last`, then "next".
static int long_file(size_t size, char last) {
    int fd = memfd_create("lines", 0);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    assert_int_equal(pwrite(fd, &last, 1, (off_t)size - 1), 1);
    assert_int_equal(pwrite(fd, "\nnext\n", 6, (off_t)size), 6);
    return fd;
}

static bool next_of_file(struct lines *l, int fd, struct line *out) {
    while (!lines_next(l, out)) {
        if (l->ended)
            return false;
        assert_int_equal(lines_read(l, fd), 0);
    }
    return true;
}

static uint64_t hash_of_long(size_t size, char last) {
    struct lines l = { .delimiter = '\n' };
    struct line line;
    int fd = long_file(size, last);
    assert_true(next_of_file(&l, fd, &line));
    assert_int_equal(line.size, size);
    assert_int_equal(line.text.size, size < LINE_MOST ? size : LINE_MOST);
    uint64_t hash = line.hash;
    assert_true(next_of_file(&l, fd, &line));
    assert_true(bytes_equal(line.text, mr_str("next")));
    assert_int_equal(line.number, 2);
    assert_false(next_of_file(&l, fd, &line));
    assert_true(l.bytes.capacity <= 4 * (size_t)BODY_MOST); // however long the line
    lines_finish(&l);
    close(fd);
    return hash;
}

static void a_line_of_any_length_takes_bounded_memory(void **state) {
    (void)state;
    hash_of_long(LINE_MOST - 1, 'x');
    hash_of_long(LINE_MOST, 'x');
    hash_of_long(LINE_MOST + 1, 'x');
    hash_of_long(100u << 20, 'x');
}

static void long_lines_differ_by_what_is_not_kept(void **state) {
    (void)state;
    size_t size = LINE_MOST + 1000;
    assert_true(hash_of_long(size, 'x') != hash_of_long(size, 'y'));
    assert_true(hash_of_long(size, 'x') != hash_of_long(size + 1, 'x'));
    assert_int_equal(hash_of_long(size, 'x'), hash_of_long(size, 'x'));
}

static void what_cannot_be_read_is_an_error(void **state) {
    (void)state;
    struct lines l = { .delimiter = '\n' };
    assert_int_equal(lines_read(&l, -1), MR_EIO);
    lines_finish(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_the_same_in_any_pieces),
        cmocka_unit_test(no_input_has_no_lines),
        cmocka_unit_test(a_line_may_hold_zero_bytes),
        cmocka_unit_test(a_line_of_any_length_takes_bounded_memory),
        cmocka_unit_test(long_lines_differ_by_what_is_not_kept),
        cmocka_unit_test(what_cannot_be_read_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
