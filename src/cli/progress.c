// See progress.h.
#include "cli/progress.h"

#include "base/clock.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { FIRST_MS = 500, BAR = 20, ROW_MOST = 400 };

static struct {
    uint64_t begun_ms, drawn_ms;
    struct progress_text text; // as drawn last; "": none
    int rows;                  // of it that are on the terminal now
} shown;

bool progress_is_due(void) {
    uint64_t now_ms = monotonic_ms();
    flockfile(stderr);
    if (!shown.begun_ms)
        shown.begun_ms = now_ms;
    bool due = now_ms - shown.begun_ms >= FIRST_MS && now_ms - shown.drawn_ms >= PROGRESS_MS;
    funlockfile(stderr);
    return due && output_is_rich(stderr);
}

// ---- Texts ------------------------------------------------------------------------------------

void progress_add(struct progress_text *t, const char *format, ...) {
    va_list values;
    va_start(values, format);
    size_t used = strlen(t->text);
    (void)vsnprintf(t->text + used, sizeof t->text - used, format, values); // cut to fit
    va_end(values);
}

void progress_add_bar(struct progress_text *t, double share) {
    static const char full[] = "####################", none[] = "....................";
    int done = share < 1 ? (int)(share * BAR) : BAR;
    progress_add(t, "[%.*s%.*s]", done, full, BAR - done, none);
}

void progress_add_left(struct progress_text *t, double seconds) {
    char age[AGE_WORDS];
    progress_add(t, "  %s left", age_words(age, (uint64_t)(seconds * 1000)));
}

// ---- The terminal -----------------------------------------------------------------------------
// The cursor stays behind the last row, where a terminal also shows ^C.

static struct winsize terminal(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 || size.ws_row == 0)
        size = (struct winsize){ .ws_col = 80, .ws_row = 24 };
    return size;
}

static void go_to_first_row(void) {
    fprintf(stderr, "\r");
    if (shown.rows > 1)
        fprintf(stderr, "\033[%dA", shown.rows - 1);
}

// A longer line would take two rows, which could not be drawn over.
static void draw_row(const char *line, size_t size, size_t columns) {
    char row[ROW_MOST];
    snprintf(row, sizeof row, "%.*s", (int)size, line);
    fprintf(stderr, "%.*s\033[K", (int)text_fits(row, columns - 1), row);
}

static void progress_draw(void) {
    struct winsize size = terminal();
    int before = shown.rows;
    go_to_first_row();
    shown.rows = 0;
    for (const char *line = shown.text.text; *line && shown.rows < size.ws_row;) {
        size_t length = strcspn(line, "\n");
        if (shown.rows++)
            fprintf(stderr, "\n");
        draw_row(line, length, size.ws_col);
        line += length + (line[length] == '\n');
    }
    if (shown.rows < before)
        fprintf(stderr, "\033[J");
}

static void hide(void) {
    if (!shown.rows)
        return;
    bool several = shown.rows > 1;
    go_to_first_row();
    fprintf(stderr, "\033[%s", several ? "J" : "K");
    shown.rows = 0;
}

void progress_show(const struct progress_text *text) {
    flockfile(stderr);
    shown.text = *text;
    shown.drawn_ms = monotonic_ms();
    progress_draw();
    funlockfile(stderr);
}

void progress_again(void) {
    flockfile(stderr);
    if (shown.text.text[0])
        progress_draw();
    funlockfile(stderr);
}

void progress_hide(void) {
    flockfile(stderr);
    hide();
    funlockfile(stderr);
}

void progress_clear(void) {
    flockfile(stderr);
    hide();
    shown.text.text[0] = 0;
    funlockfile(stderr);
}

// ---- The usual texts --------------------------------------------------------------------------

void progress_bytes(const char *doing, uint64_t done, uint64_t total) {
    struct progress_text t = { 0 };
    char size[SIZE_WORDS], of[SIZE_WORDS];
    if (!progress_is_due())
        return;
    progress_add(&t, "%s ", doing);
    progress_add_bar(&t, total ? (double)done / (double)total : 1);
    progress_add(&t, " %s of %s", size_words(size, done), size_words(of, total));
    progress_show(&t);
}

void progress_count(uint64_t count, const char *what) {
    struct progress_text t = { 0 };
    if (!progress_is_due())
        return;
    progress_add(&t, "%" PRIu64 " %s", count, what);
    progress_show(&t);
}
