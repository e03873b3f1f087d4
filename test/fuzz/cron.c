// Any text as a cron expression: what it finds matches, nothing between does, and its instants in
// UTC move forward.
#include "base/bytes.h"
#include "base/errors.h"
#include "input.h"
#include "shard/instants.h"

enum { STARTS = 3, TICKS = 8, SCANNED = 1500 };

static const int64_t starts[STARTS] = { 0, 29525000, 78892000 }; // 1970, 2026, 2119

static void check_next(const struct cron *cron, int64_t from) {
    int64_t next = cron_next(cron, from);
    assert(next == -1 || (next >= from && cron_matches(cron, next)));
    int64_t end = next < 0 || next > from + SCANNED ? from + SCANNED : next;
    for (int64_t minute = from; minute < end; minute++)
        assert(!cron_matches(cron, minute));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct zone utc;
    struct instants times = { .zone = &utc };
    if (cron_parse(bytes_of(data, size), &times.cron) < 0) {
        assert(*error_text());
        return 0;
    }
    for (int i = 0; i < STARTS; i++)
        check_next(&times.cron, starts[i]);
    uint64_t at = UINT64_C(1763424000123);
    for (int i = 0; i < TICKS && at < INSTANTS_END_MS - 1; i++) {
        uint64_t next = instants_next(&times, at);
        assert(next > at && next < INSTANTS_END_MS);
        at = next;
    }
    return 0;
}
