// See notice.h. A line is written by one system call.
#include "server/notice.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int most_written = NOTICE_INFO;
static atomic_bool as_json;

static const char *const names[] = { "error", "warn", "info", "debug" };

void notice_set(enum notice_level most, bool json) {
    atomic_store(&most_written, (int)most);
    atomic_store(&as_json, json);
}

enum notice_level notice_most(void) {
    return (enum notice_level)atomic_load(&most_written);
}

bool notice_is_json(void) {
    return atomic_load(&as_json);
}

const char *notice_level_name(enum notice_level level) {
    return names[level];
}

bool notice_level_read(const char *name, enum notice_level *out) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum notice_level)i;
            return true;
        }
    return false;
}

static void write_time(char *to, size_t room) {
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t used = strftime(to, room, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(to + used, room - used, ".%03ldZ", now.tv_nsec / 1000000);
}

// Control characters are written as \u00XX; in JSON, quotes and backslashes are escaped.
static void write_text(char *to, size_t room, const char *text, bool json) {
    size_t used = 0;
    for (; *text && used + 7 < room; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f)
            used += (size_t)snprintf(to + used, room - used, "\\u%04x", c);
        else if (json && (c == '"' || c == '\\')) {
            to[used++] = '\\';
            to[used++] = (char)c;
        } else
            to[used++] = (char)c;
    }
    to[used] = 0;
}

enum { TEXT_MOST = 1024 };

void notice(enum notice_level level, const char *format, ...) {
    if ((int)level > atomic_load(&most_written))
        return;
    char text[TEXT_MOST], clean[2 * TEXT_MOST], at[40], line[2 * TEXT_MOST + 120];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    bool json = atomic_load(&as_json);
    write_time(at, sizeof at);
    write_text(clean, sizeof clean, text, json);
    const char *shape =
        json ? "{\"time\":\"%s\",\"level\":\"%s\",\"text\":\"%s\"}\n" : "%s %-5s %s\n";
    int size = snprintf(line, sizeof line, shape, at, names[level], clean);
    ssize_t written = size > 0 ? write(STDERR_FILENO, line, (size_t)size) : 0;
    (void)written; // a failure cannot be reported anywhere
}
