// See epic_bar.h.
#include "cli/epic_bar.h"

#include "base/clock.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LOOK_MS = 1000, LOOK_SELDOM_MS = 10000, BAR = 20, LINE = 400 };

void epic_bar_init(struct epic_bar *b, const char *command, const char *epic) {
    uint64_t now = monotonic_ms();
    *b = (struct epic_bar){ .command = command,
                            .epic = epic,
                            .share = -1,
                            .begun_ms = now,
                            .looked_ms = now,
                            .rich = output_is_rich(stderr) };
}

// ---- In words ---------------------------------------------------------------------------------

const char *epic_held(char *out, const mr_epic_info *epic) {
    char stage[EPIC_HELD / 2], why[EPIC_HELD / 2];
    text_plain(stage, sizeof stage, mr_str(epic->stage));
    text_plain(why, sizeof why, mr_str(epic->held_by));
    *out = 0;
    if (strcmp(why, "no-worker") == 0)
        snprintf(out, EPIC_HELD, "no worker takes from stage %.200s", stage);
    else if (*why)
        snprintf(out, EPIC_HELD, "stage %.120s waits: %.120s", stage, why);
    return out;
}

// ---- The bar ----------------------------------------------------------------------------------

static uint64_t ended_of(const mr_epic_info *e) {
    return e->done + e->dead + e->cancelled + e->expired;
}

static double rate_of(const struct epic_bar *b, uint64_t ended) {
    double s = (double)(monotonic_ms() - b->begun_ms) / 1000;
    return ended > b->ended_before && s > 0 ? (double)(ended - b->ended_before) / s : 0;
}

// How many there are, as far as can be told; 0: it cannot.
static double all_of(const struct epic_bar *b, const mr_epic_info *e) {
    if (e->total >= 0)
        return (double)e->total;
    return b->share > 0 ? (double)b->read / b->share : 0;
}

static void append(char line[LINE], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(char line[LINE], const char *format, ...) {
    size_t used = strlen(line);
    va_list values;
    va_start(values, format);
    vsnprintf(line + used, LINE - used, format, values);
    va_end(values);
}

static void append_bar(char line[LINE], double share) {
    static const char full[] = "####################", none[] = "....................";
    int done = share < 1 ? (int)(share * BAR) : BAR;
    append(line, " [%.*s%.*s]", done, full, BAR - done, none);
}

static size_t columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return 80;
    return size.ws_col < LINE ? size.ws_col : LINE;
}

static void draw(struct epic_bar *b, const mr_epic_info *e) {
    uint64_t ended = ended_of(e);
    double all = all_of(b, e), per_s = rate_of(b, ended);
    char line[LINE] = "", age[AGE_WORDS], held[EPIC_HELD];
    append(line, "%.60s", b->epic);
    if (all > 0)
        append_bar(line, (double)ended / all);
    if (b->read)
        append(line, " read %" PRIu64 " ", b->read);
    append(line, " waiting %" PRIu64 "  running %" PRIu64 "  done %" PRIu64, e->waiting, e->running,
           e->done);
    if (e->dead)
        append(line, "  dead %" PRIu64, e->dead);
    if (per_s > 0)
        append(line, "  %.1f/s", per_s);
    if (per_s > 0 && all > (double)ended)
        append(line, "  %s left", age_words(age, (uint64_t)((all - (double)ended) / per_s * 1000)));
    if (*epic_held(held, e))
        append(line, "  %s", held);
    line[text_fits(line, columns() - 1)] = 0; // a longer one would not be cleared
    fprintf(stderr, "\r%s\033[K", line);
    b->shown = true;
}

void epic_bar_clear(struct epic_bar *b) {
    if (b->shown)
        fprintf(stderr, "\r\033[K");
    b->shown = false;
}

static bool needs_a_person(const mr_epic_info *e) {
    static const char *const reasons[] = { "no-worker", "paused", "halted" };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (strcmp(e->held_by, reasons[i]) == 0)
            return true;
    return false;
}

// Where nothing is drawn it is printed once, and again when it is something else.
static void print_held(struct epic_bar *b, const mr_epic_info *e) {
    char held[EPIC_HELD];
    epic_held(held, e);
    if (!needs_a_person(e) || strcmp(held, b->held) == 0)
        return;
    memcpy(b->held, held, sizeof held);
    complain("%s: epic %s waits: %s", b->command, b->epic, held);
}

// ---- Looking ----------------------------------------------------------------------------------

int64_t epic_bar_wait_ms(const struct epic_bar *b) {
    uint64_t passed_ms = monotonic_ms() - b->looked_ms;
    uint64_t every_ms = b->rich || !b->looked ? LOOK_MS : LOOK_SELDOM_MS;
    return passed_ms < every_ms ? (int64_t)(every_ms - passed_ms) : 0;
}

void epic_bar_moved(struct epic_bar *b) {
    if (!b->rich)
        b->looked_ms = monotonic_ms();
}

void epic_bar_show(struct epic_bar *b, const mr_epic_info *e) {
    b->looked_ms = monotonic_ms();
    if (!e)
        return;
    if (!b->looked) {
        b->ended_before = ended_of(e);
        b->begun_ms = b->looked_ms;
        b->looked = true;
    }
    if (b->rich)
        draw(b, e);
    else
        print_held(b, e);
}
