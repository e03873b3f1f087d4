// See output.h. Sizes, times and bytes look the same in all commands.
#include "cli/output.h"

#include "base/text.h"
#include "cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

void complain_list(const char *format, va_list values) {
    fflush(stdout);
    flockfile(stderr); // so that lines of several threads do not mix
    progress_hide();
    fprintf(stderr, "millrace: ");
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    funlockfile(stderr);
}

void complain(const char *format, ...) {
    va_list values;
    va_start(values, format);
    complain_list(format, values);
    va_end(values);
}

bool output_is_rich(FILE *to) {
    const char *plain = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (plain && *plain)
        return false;
    return isatty(fileno(to)) && terminal && strcmp(terminal, "dumb") != 0;
}

void print_coloured(enum colour colour, const char *text) {
    if (output_is_rich(stdout))
        printf("\033[%dm%s\033[0m", (int)colour, text);
    else
        printf("%s", text);
}

const char *size_words(char *out, uint64_t bytes) {
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    if (bytes < 1024) {
        snprintf(out, SIZE_WORDS, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
        return out;
    }
    double size = (double)bytes / 1024;
    size_t unit = 0;
    for (; size >= 1024; unit++)
        size /= 1024;
    snprintf(out, SIZE_WORDS, "%.1f %s", size, units[unit]);
    return out;
}

const char *progress_words(char *out, uint64_t done, uint64_t total, mr_bytes text) {
    int size = total ? snprintf(out, PROGRESS_WORDS, "%" PRIu64 " of %" PRIu64, done, total)
                     : snprintf(out, PROGRESS_WORDS, "%" PRIu64, done);
    if (text.size) {
        out[size] = ' ';
        text_plain(out + size + 1, PROGRESS_WORDS - (size_t)size - 1, text);
    }
    return out;
}

const char *time_words(char *out, uint64_t ms, bool iso) {
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    char text[TIME_WORDS];
    if (!gmtime_r(&seconds, &tm) ||
        !strftime(text, sizeof text, iso ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &tm))
        snprintf(text, sizeof text, "%" PRIu64, ms / 1000);
    snprintf(out, TIME_WORDS, "%.30s.%03u%s", text, (unsigned)(ms % 1000), iso ? "Z" : "");
    return out;
}

// Beside ASCII's, C2 80 to C2 9F are controls.
static bool is_control(const uint8_t *p, size_t length) {
    return p[0] < ' ' || p[0] == 127 || (length == 2 && p[0] == 0xc2 && p[1] < 0xa0);
}

char *text_plain(char *out, size_t room, mr_bytes bytes) {
    const uint8_t *p = bytes.data;
    size_t used = 0;
    for (size_t i = 0, length; i < bytes.size; i += length) {
        char piece[12];
        length = text_letter(p + i, bytes.size - i);
        uint32_t turns = text_direction(p + i, length);
        bool shown = length && !turns && !is_control(p + i, length);
        if (shown)
            snprintf(piece, sizeof piece, "%.*s", (int)length, (const char *)p + i);
        else if (turns)
            snprintf(piece, sizeof piece, "\\u%04x", turns);
        else
            snprintf(piece, sizeof piece, "\\x%02x", p[i]);
        length = shown || turns ? length : 1;
        size_t size = strlen(piece);
        if (used + size >= room)
            break;
        memcpy(out + used, piece, size);
        used += size;
    }
    out[used] = 0;
    return out;
}

const char *line_shown(char out[LINE_SHOWN], mr_bytes line) {
    enum { MOST = 60 }; // bytes
    char plain[LINE_SHOWN - sizeof "…" + 1];
    bool cut = line.size > MOST;
    text_plain(plain, sizeof plain, (mr_bytes){ line.data, cut ? MOST : line.size });
    snprintf(out, LINE_SHOWN, "%s%s", plain, cut ? "…" : "");
    return out;
}

// Counts in UTF-8 whatever the user's locale is. Without a locale for UTF-8, and for letters that
// it does not know, a letter takes one column.
static size_t letter_columns(const char *letter, size_t size) {
    static locale_t utf8;
    mbstate_t state = { 0 };
    wchar_t code;
    if (size == 1)
        return 1;
    if (!utf8)
        utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!utf8)
        return 1;
    locale_t before = uselocale(utf8);
    int columns = mbrtowc(&code, letter, size, &state) == size ? wcwidth(code) : 1;
    uselocale(before);
    return columns < 0 ? 1 : (size_t)columns;
}

static size_t letter_size(const char *text) {
    size_t size = text_letter((const uint8_t *)text, strnlen(text, 4));
    return size ? size : 1;
}

size_t text_columns(const char *text) {
    size_t columns = 0;
    for (size_t size; *text; text += size) {
        size = letter_size(text);
        columns += letter_columns(text, size);
    }
    return columns;
}

size_t text_fits(const char *text, size_t columns) {
    size_t fits = 0;
    for (size_t size, used = 0; text[fits]; fits += size) {
        size = letter_size(text + fits);
        used += letter_columns(text + fits, size);
        if (used > columns)
            break;
    }
    return fits;
}

size_t output_columns(void) {
    struct winsize size;
    if (!isatty(STDOUT_FILENO))
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col ? 80 : size.ws_col;
}

void print_quoted(mr_bytes bytes) {
    static const char special[] = "\n\r\t\\'", names[] = "nrt\\'";
    const unsigned char *p = bytes.data;
    putchar('\'');
    for (size_t i = 0; i < bytes.size; i++) {
        const char *found = p[i] ? strchr(special, p[i]) : NULL;
        if (found)
            printf("\\%c", names[found - special]);
        else if (p[i] >= ' ' && p[i] < 127)
            putchar(p[i]);
        else
            printf("\\x%02x", p[i]);
    }
    putchar('\'');
}

bool output_finish(void) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    complain("the output could not be written: %s", errno ? strerror(errno) : "an earlier failure");
    return false;
}
