// Any bytes as a file of a time zone: its periods cover all time, each has what it says, and a
// daily schedule in it moves forward.
#include "base/bytes.h"
#include "base/errors.h"
#include "input.h"
#include "shard/instants.h"

enum { PERIODS = 64, TICKS = 16 };

static void check_periods(const struct zone *zone, int64_t at) {
    for (int i = 0; i < PERIODS; i++) {
        struct zone_period p = zone_period_at(zone, at);
        assert(p.start <= at && at < p.end);
        assert(p.offset > -100000 && p.offset < 100000);
        if (p.end == INT64_MAX)
            return;
        at = p.end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct zone zone;
    if (zone_parse(bytes_of(data, size), &zone) < 0) {
        assert(*error_text());
        return 0;
    }
    check_periods(&zone, 0);
    check_periods(&zone, INT64_C(1763424000));
    struct instants times = { .zone = &zone };
    int err = cron_parse(mr_str("30 2 * * *"), &times.cron);
    assert(err == 0);
    uint64_t at = UINT64_C(1763424000123);
    for (int i = 0; i < TICKS; i++) {
        uint64_t next = instants_next(&times, at);
        assert(next > at);
        at = next;
    }
    zone_finish(&zone);
    return 0;
}
