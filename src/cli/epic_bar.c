// See epic_bar.h.
#include "cli/epic_bar.h"

#include "base/clock.h"
#include "cli/output.h"
#include "cli/progress.h"

#include <inttypes.h>
#include <string.h>

enum { LOOK_MS = 1000, LOOK_SELDOM_MS = 10000 };

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

// How many jobs there will be, as far as is known; 0: it is not.
static double all_of(const struct epic_bar *b, const mr_epic_info *e) {
    if (e->total >= 0)
        return (double)e->total;
    return b->share > 0 ? (double)b->read / b->share : 0;
}

static void epic_bar_draw(const struct epic_bar *b, const mr_epic_info *e) {
    uint64_t ended = ended_of(e);
    double all = all_of(b, e), per_s = rate_of(b, ended);
    struct progress_text t = { 0 };
    char held[EPIC_HELD];
    progress_add(&t, "%.60s ", b->epic);
    if (all > 0)
        progress_add_bar(&t, (double)ended / all);
    if (b->read)
        progress_add(&t, " read %" PRIu64 " ", b->read);
    progress_add(&t, " waiting %" PRIu64 "  running %" PRIu64 "  done %" PRIu64, e->waiting,
                 e->running, e->done);
    if (e->dead)
        progress_add(&t, "  dead %" PRIu64, e->dead);
    if (per_s > 0)
        progress_add(&t, "  %.1f/s", per_s);
    if (per_s > 0 && all > (double)ended)
        progress_add_left(&t, (all - (double)ended) / per_s);
    if (*epic_held(held, e))
        progress_add(&t, "  %s", held);
    progress_show(&t);
}

static bool needs_attention(const mr_epic_info *e) {
    static const char *const reasons[] = { "no-worker", "paused", "halted" };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (strcmp(e->held_by, reasons[i]) == 0)
            return true;
    return false;
}

// Where nothing is drawn the reason is printed once, and again when it changes.
static void print_held(struct epic_bar *b, const mr_epic_info *e) {
    char held[EPIC_HELD];
    epic_held(held, e);
    if (!needs_attention(e) || strcmp(held, b->held) == 0)
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
        epic_bar_draw(b, e);
    else
        print_held(b, e);
}
