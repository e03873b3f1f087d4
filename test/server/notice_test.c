// Notices of the server: one line each, whatever is in them, for people or as JSON.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/notice.h"

enum { LONG_TEXT = 5000 };

// What a notice writes, without its time. Until the next call.
static const char *written(enum notice_level level, const char *text) {
    static char line[8192];
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    notice(level, "%s", text);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    close(ends[1]);
    ssize_t size = read(ends[0], line, sizeof line - 1);
    close(ends[0]);
    line[size > 0 ? size : 0] = 0;
    char *at = strstr(line, "Z"); // 2026-01-01T00:00:00.000Z
    return at ? at + 1 : line;
}

// F48: what a client chooses, as a name, can neither begin a line nor end a text.
static void F48_a_notice_is_one_line(void **state) {
    (void)state;
    notice_set(NOTICE_INFO, false);
    assert_string_equal(written(NOTICE_WARN, "a\nb\x7f \"c\" \\"),
                        " warn  a\\u000ab\\u007f \"c\" \\\n");
    notice_set(NOTICE_INFO, true);
    assert_string_equal(written(NOTICE_ERROR, "a\nb \"c\" \\"),
                        "\",\"level\":\"error\",\"text\":\"a\\u000ab \\\"c\\\" \\\\\"}\n");
}

static void F48_a_long_notice_is_cut(void **state) {
    (void)state;
    static char text[LONG_TEXT];
    memset(text, '\n', sizeof text - 1); // each becomes six characters
    notice_set(NOTICE_INFO, true);
    const char *line = written(NOTICE_INFO, text);
    size_t size = strlen(line);
    assert_true(size > 1000 && size < LONG_TEXT);
    assert_string_equal(line + size - 3, "\"}\n");
}

static void less_important_notices_are_left_out(void **state) {
    (void)state;
    enum notice_level level;
    notice_set(NOTICE_WARN, false);
    assert_string_equal(written(NOTICE_INFO, "a"), "");
    assert_string_equal(written(NOTICE_WARN, "a"), " warn  a\n");
    assert_true(notice_level_read("debug", &level));
    assert_int_equal(level, NOTICE_DEBUG);
    assert_string_equal(notice_level_name(level), "debug");
    assert_false(notice_level_read("loud", &level));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F48_a_notice_is_one_line),
        cmocka_unit_test(F48_a_long_notice_is_cut),
        cmocka_unit_test(less_important_notices_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
