// Notices: the log of the server for operators, one line each, on stderr:
//
//     2026-11-15T12:00:00.000Z info  ready: 12 jobs in 1 stage
//     {"time":"2026-11-15T12:00:00.000Z","level":"info","text":"ready: 12 jobs in 1 stage"}
//
// Any thread; a line is written whole.
#ifndef SERVER_NOTICE_H
#define SERVER_NOTICE_H

#include <stdbool.h>

enum notice_level { NOTICE_ERROR, NOTICE_WARN, NOTICE_INFO, NOTICE_DEBUG };

// Notices less important than `most` are not written.
void notice_set(enum notice_level most, bool json);

// The current settings.
enum notice_level notice_most(void);
bool notice_is_json(void);

// "error", "warn", "info", "debug". False: none of these.
bool notice_level_read(const char *name, enum notice_level *out);
const char *notice_level_name(enum notice_level);

void notice(enum notice_level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
