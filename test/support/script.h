// Script: a line of a golden trace as words, by place and by name.
//
//     done 1 state="a b" emit totals key=ann "5"
#ifndef TEST_SUPPORT_SCRIPT_H
#define TEST_SUPPORT_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 32, LINE = 512 };

// A line's words; those that were quoted as a whole begin with a quote.
struct line {
    char text[LINE];
    const char *words[WORDS];
    int count;
};

static inline void line_split(struct line *l, const char *text) {
    (void)snprintf(l->text, sizeof l->text, "%s", text);
    l->count = 0;
    char *to = l->text, *from = l->text;
    while (*from) {
        if (*from == ' ') {
            from++;
            continue;
        }
        assert_true(l->count < WORDS);
        l->words[l->count++] = to;
        bool quoted = *from == '"', inside = quoted;
        if (quoted) {
            *to++ = '"';
            from++;
        }
        for (; *from && (inside || *from != ' '); from++) {
            if (*from == '"')
                inside = !inside;
            else
                *to++ = *from;
        }
        from += *from == ' ';
        *to++ = 0;
    }
}

// The value of name=value among words from `from` on; NULL: there is none.
static inline const char *option(const struct line *l, int from, const char *name) {
    size_t size = strlen(name);
    for (int i = from; i < l->count && strcmp(l->words[i], "emit") != 0; i++)
        if (!strncmp(l->words[i], name, size) && l->words[i][size] == '=')
            return l->words[i] + size + 1;
    return NULL;
}

static inline int64_t number_option(const struct line *l, int from, const char *name) {
    const char *value = option(l, from, name);
    return value ? strtoll(value, NULL, 10) : 0;
}

static inline const char *quoted(const struct line *l, int from) {
    for (int i = from; i < l->count; i++)
        if (l->words[i][0] == '"')
            return l->words[i] + 1;
    return "";
}

static inline const char *word(const struct line *l, int i) {
    return i < l->count ? l->words[i] : "";
}

static inline bool has_word(const struct line *l, const char *text) {
    for (int i = 1; i < l->count; i++)
        if (!strcmp(l->words[i], text))
            return true;
    return false;
}

#endif
