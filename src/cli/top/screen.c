// See screen.h.
#include "cli/top/screen.h"

#include "base/errors.h"
#include "cli/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PUT_MOST = 1024, ROWS = 24, COLUMNS = 80 };

#define ENTER "\033[?1049h\033[?25l\033[?7l" // the alternate screen, without a cursor …
#define LEAVE "\033[?7h\033[?25h\033[?1049l" // … on which long lines are cut, not wrapped
#define HOME "\033[H"
#define LINE_END "\033[K" // erases what an older picture has there
#define PICTURE_END "\033[J"

static int write_all(const void *data, size_t size) {
    for (const uint8_t *p = data; size > 0;) {
        ssize_t n = write(STDOUT_FILENO, p, size);
        if (n < 0 && errno != EINTR)
            return error_set(MR_EIO, "the terminal cannot be written: %s", strerror(errno));
        p += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int screen_begin(struct screen *s) {
    *s = (struct screen){ .coloured = output_is_rich(stdout) };
    if (tcgetattr(STDIN_FILENO, &s->before) < 0)
        return error_set(MR_EIO, "keys cannot be read: %s", strerror(errno));
    struct termios raw = s->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); // keys still send signals
    raw.c_iflag &= ~(tcflag_t)(ICRNL | IXON);
    raw.c_cc[VSUSP] = _POSIX_VDISABLE; // a shell would get the terminal in this mode
    raw.c_cc[VMIN] = 0;                // reading never waits
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) < 0)
        return error_set(MR_EIO, "the terminal cannot be set up: %s", strerror(errno));
    int err = write_all(ENTER, strlen(ENTER));
    if (err < 0)
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &s->before); // the error is reported already
    return err;
}

void screen_end(struct screen *s) {
    (void)write_all(LEAVE, strlen(LEAVE)); // if the terminal has gone, that does not matter
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &s->before);
    buffer_finish(&s->text);
}

// ---- Drawing ----------------------------------------------------------------------------------

static void top_screen_add(struct screen *s, const char *text, size_t size) {
    if (buffer_append(&s->text, text, size) < 0)
        s->text.limit = s->text.size; // nothing more is added; screen_show reports it
}

void screen_start(struct screen *s, int foot) {
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col;
    int rows = known ? size.ws_row : ROWS;
    s->foot = foot < rows ? foot : rows;
    s->rows = rows - s->foot;
    s->columns = known ? size.ws_col : COLUMNS;
    s->row = s->column = 0;
    s->text.limit = 0;
    buffer_clear(&s->text);
    top_screen_add(s, HOME, strlen(HOME));
}

void screen_foot(struct screen *s) {
    char place[32];
    while (s->row < s->rows)
        screen_next(s);
    int size = snprintf(place, sizeof place, "\033[%d;1H", s->rows + 1);
    top_screen_add(s, place, (size_t)size);
    s->row = s->rows;
    s->column = 0;
    s->rows += s->foot;
}

static const char *const style_codes[] = {
    [STYLE_PLAIN] = "",       [STYLE_BOLD] = "\033[1m",  [STYLE_DIM] = "\033[2m",
    [STYLE_BAD] = "\033[31m", [STYLE_GOOD] = "\033[32m", [STYLE_CHOSEN] = "\033[7m",
};

// As much of the text as the line has room for.
static void add_columns(struct screen *s, const char *text) {
    size_t room = s->column < s->columns ? (size_t)(s->columns - s->column) : 0;
    size_t size = text_fits(text, room);
    top_screen_add(s, text, size);
    s->column += text[size] ? (int)room : (int)text_columns(text);
}

void screen_put(struct screen *s, enum style style, const char *format, ...) {
    char text[PUT_MOST];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (s->row >= s->rows)
        return;
    bool styled = s->coloured || style == STYLE_CHOSEN; // the chosen line must be visible
    if (styled)
        top_screen_add(s, style_codes[style], strlen(style_codes[style]));
    add_columns(s, text);
    if (styled && style != STYLE_PLAIN)
        top_screen_add(s, "\033[0m", 4);
}

void screen_cell(struct screen *s, enum style style, const char *text, int width) {
    char cell[PUT_MOST];
    snprintf(cell, sizeof cell, "%.*s", (int)text_fits(text, (size_t)width), text);
    screen_put(s, style, "%s%*s", cell, width - (int)text_columns(cell), "");
}

void screen_next(struct screen *s) {
    if (s->row < s->rows)
        top_screen_add(s, LINE_END, strlen(LINE_END));
    if (++s->row < s->rows)
        top_screen_add(s, "\r\n", 2);
    s->column = 0;
}

int screen_show(struct screen *s) {
    if (s->row < s->rows)
        top_screen_add(s, PICTURE_END, strlen(PICTURE_END));
    if (s->text.limit)
        return error_set(MR_ENOMEM, "no memory for a picture of %d lines", s->rows);
    return write_all(s->text.data, s->text.size);
}

// ---- Keys -------------------------------------------------------------------------------------

static const struct {
    const char *keys;
    int key;
} key_codes[] = {
    { "\033[A", KEY_UP },       { "\033OA", KEY_UP },
    { "\033[B", KEY_DOWN },     { "\033OB", KEY_DOWN },
    { "\033[5~", KEY_PAGE_UP }, { "\033[6~", KEY_PAGE_DOWN },
    { "\n", KEY_ENTER },        { "k", KEY_UP },
    { "j", KEY_DOWN },
};

// Appends to the keys that were read before; if there is no room, those are dropped.
static void read_keys(struct screen *s) {
    size_t left = s->keys_size - s->keys_used;
    left = left < sizeof s->keys ? left : 0;
    memmove(s->keys, s->keys + s->keys_used, left);
    ssize_t n = read(STDIN_FILENO, s->keys + left, sizeof s->keys - left);
    s->keys_used = 0;
    s->keys_size = left + (n > 0 ? (size_t)n : 0);
}

bool screen_has_key(struct screen *s, int key) {
    read_keys(s);
    return memchr(s->keys, key, s->keys_size) != NULL;
}

// The bytes of a sequence arrive together, except over very slow connections.
int screen_key(struct screen *s) {
    if (s->keys_used == s->keys_size)
        read_keys(s);
    if (s->keys_used == s->keys_size)
        return KEY_NONE;
    const uint8_t *at = s->keys + s->keys_used;
    size_t left = s->keys_size - s->keys_used;
    for (size_t i = 0; i < sizeof key_codes / sizeof *key_codes; i++) {
        size_t size = strlen(key_codes[i].keys);
        if (size > left || memcmp(at, key_codes[i].keys, size) != 0)
            continue;
        s->keys_used += size;
        return key_codes[i].key;
    }
    s->keys_used++;
    return *at;
}
