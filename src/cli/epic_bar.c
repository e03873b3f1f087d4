// See epic_bar.h.
#include "cli/epic_bar.h"

#include "base/clock.h"
#include "cli/output.h"
#include "cli/show.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LOOK_MS = 1000, LOOK_SELDOM_MS = 10000, BAR = 20, LINE = 400 };

void epic_bar_init(struct epic_bar *b, struct talks *talks, const char *command, const char *stage,
                   const char *epic) {
    uint64_t now = monotonic_ms();
    *b = (struct epic_bar){ .talks = talks,
                            .command = command,
                            .stage = stage,
                            .epic = epic,
                            .share = -1,
                            .begun_ms = now,
                            .asked_ms = now,
                            .rich = output_is_rich(stderr) };
}

// ---- In words ---------------------------------------------------------------------------------

static mr_bytes text_of(const struct response_value *map, const char *name) {
    const struct response_value *v = response_field(map, name);
    return v && v->type == RESPONSE_BULK ? v->bytes : (mr_bytes){ 0 };
}

const char *epic_held(char *out, const struct response_value *epic) {
    char stage[EPIC_HELD / 2], why[EPIC_HELD / 2];
    text_plain(stage, sizeof stage, text_of(epic, "stage"));
    text_plain(why, sizeof why, text_of(epic, "held-by"));
    *out = 0;
    if (strcmp(why, "no-worker") == 0)
        snprintf(out, EPIC_HELD, "no worker takes from stage %.200s", stage);
    else if (*why)
        snprintf(out, EPIC_HELD, "stage %.120s waits: %.120s", stage, why);
    return out;
}

// ---- The bar ----------------------------------------------------------------------------------

struct figures {
    uint64_t waiting, running, done, dead, ended;
    int64_t total;
    double per_s;
};

static uint64_t count_of(const struct response_value *epic, const char *name) {
    int64_t number = value_number(epic, name);
    return number > 0 ? (uint64_t)number : 0;
}

static struct figures figures_of(const struct epic_bar *b, const struct response_value *epic) {
    struct figures f = { .waiting = count_of(epic, "waiting"),
                         .running = count_of(epic, "running"),
                         .done = count_of(epic, "done"),
                         .dead = count_of(epic, "dead"),
                         .total = value_number(epic, "total") };
    f.ended = f.done + f.dead + count_of(epic, "cancelled") + count_of(epic, "expired");
    double s = (double)(monotonic_ms() - b->begun_ms) / 1000;
    bool more = b->looked && f.ended > b->ended_before && s > 0;
    f.per_s = more ? (double)(f.ended - b->ended_before) / s : 0;
    return f;
}

// How many there are, as far as can be told; 0: it cannot.
static double all_of(const struct epic_bar *b, const struct figures *f) {
    if (f->total >= 0)
        return (double)f->total;
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

static void draw(struct epic_bar *b, const struct response_value *epic) {
    struct figures f = figures_of(b, epic);
    double all = all_of(b, &f);
    char line[LINE] = "", age[AGE_WORDS], held[EPIC_HELD];
    append(line, "%.60s", b->epic);
    if (all > 0)
        append_bar(line, (double)f.ended / all);
    if (b->read)
        append(line, " read %" PRIu64 " ", b->read);
    append(line, " waiting %" PRIu64 "  running %" PRIu64 "  done %" PRIu64, f.waiting, f.running,
           f.done);
    if (f.dead)
        append(line, "  dead %" PRIu64, f.dead);
    if (f.per_s > 0)
        append(line, "  %.1f/s", f.per_s);
    if (f.per_s > 0 && all > (double)f.ended)
        append(line, "  %s left",
               age_words(age, (uint64_t)((all - (double)f.ended) / f.per_s * 1000)));
    if (*epic_held(held, epic))
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

static bool needs_somebody(const struct response_value *epic) {
    static const char *const reasons[] = { "no-worker", "paused", "halted" };
    mr_bytes why = text_of(epic, "held-by");
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (why.size == strlen(reasons[i]) && memcmp(why.data, reasons[i], why.size) == 0)
            return true;
    return false;
}

// Where nothing is drawn it is told once, and again when it is something else.
static void tell(struct epic_bar *b, const struct response_value *epic) {
    char held[EPIC_HELD];
    epic_held(held, epic);
    if (!needs_somebody(epic) || strcmp(held, b->held) == 0)
        return;
    memcpy(b->held, held, sizeof held);
    complain("%s: epic %s waits: %s", b->command, b->epic, held);
}

// ---- Looking ----------------------------------------------------------------------------------

int64_t epic_bar_wait_ms(const struct epic_bar *b) {
    uint64_t passed_ms = monotonic_ms() - b->asked_ms;
    uint64_t every_ms = b->rich || !b->looked ? LOOK_MS : LOOK_SELDOM_MS;
    if (b->asked)
        return -1;
    return passed_ms < every_ms ? (int64_t)(every_ms - passed_ms) : 0;
}

static enum cli_exit look(struct epic_bar *b) {
    struct words w = { 0 };
    enum cli_exit code = b->talk ? CLI_DONE : talk_open(b->talks, &b->talk);
    if (code != CLI_DONE)
        return code;
    words_text(&w, "EPIC");
    words_text(&w, b->stage);
    words_text(&w, b->epic);
    int err = talk_send(b->talk, &w);
    words_finish(&w);
    if (err < 0)
        return talk_failed(b->talk, err);
    b->asked = true;
    b->asked_ms = monotonic_ms();
    return CLI_DONE;
}

// One that is not known has begun just now, or is dropped, which others will hear.
static enum cli_exit hear(struct epic_bar *b) {
    const struct response_value *reply;
    int heard = talk_receive(b->talk, &reply);
    if (heard < 0)
        return talk_failed(b->talk, heard);
    if (heard == 0)
        return CLI_DONE;
    b->asked = false;
    if (reply->type == RESPONSE_ERROR)
        return CLI_DONE;
    if (!b->looked) {
        b->ended_before = figures_of(b, reply).ended;
        b->begun_ms = monotonic_ms();
        b->looked = true;
    }
    if (b->rich)
        draw(b, reply);
    else
        tell(b, reply);
    return CLI_DONE;
}

enum cli_exit epic_bar_turn(struct epic_bar *b, bool came) {
    if (came && !b->rich)
        b->asked_ms = monotonic_ms();
    enum cli_exit code = b->asked ? hear(b) : CLI_DONE;
    return code == CLI_DONE && epic_bar_wait_ms(b) == 0 ? look(b) : code;
}
