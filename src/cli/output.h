// Output: messages, and values as text. Colours only on a terminal, and never with NO_COLOR.
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "base/text.h"

#include "millrace.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// "millrace: " and a sentence, on stderr, in place of what progress.h has drawn there. Any thread.
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
void complain_list(const char *format, va_list) __attribute__((format(printf, 1, 0)));

// Whether `to` is a terminal that colours and bars may be drawn on.
bool output_is_rich(FILE *to);

enum colour { BOLD = 1, RED = 31, GREEN = 32 };
void print_coloured(enum colour, const char *text); // on stdout

// "17 bytes", "3.2 MiB". `out` has SIZE_WORDS bytes and is returned.
enum { SIZE_WORDS = 32 };
const char *size_words(char *out, uint64_t bytes);

// "2025-01-31 12:00:00.250", UTC; with `iso` "2025-01-31T12:00:00.250Z". As above.
enum { TIME_WORDS = 40 };
const char *time_words(char *out, uint64_t ms, bool iso);

// How far a job is: "3 of 10 attachments"; a total of 0 is left out. As above.
enum { PROGRESS_WORDS = 1024 };
const char *progress_words(char *out, uint64_t done, uint64_t total, mr_bytes text);

// The bytes as one line without control characters: what is not printable UTF-8 is escaped as in C.
// What does not fit in `room` is left out. Returns `out`.
char *text_plain(char *out, size_t room, mr_bytes);

// The beginning of a line, for a sentence that quotes it, without control characters; the \r that
// ends a line of DOS is visible, too. Returns `out`.
enum { LINE_SHOWN = 260 };
const char *line_shown(char out[LINE_SHOWN], mr_bytes line);

// How many columns of a terminal UTF-8 takes, where a letter may take two or, as an accent on the
// one before it, none; and how many of its bytes fit into so many columns.
size_t text_columns(const char *text);
size_t text_fits(const char *text, size_t columns);

// The columns of the terminal that stdout is; 0: it is none.
size_t output_columns(void);

// Bytes in single quotes; what is not printable ASCII is escaped as in C.
void print_quoted(mr_bytes);

// Flushes stdout. False: not everything was written, and the reason was printed.
bool output_finish(void);

#endif
