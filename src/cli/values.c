// See values.h.
#include "cli/values.h"

#include "base/errors.h"
#include "cli/output.h"
#include "work/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct unit {
    const char *name;
    int64_t ms;
} units[] = {
    { "ms", 1 }, { "s", 1000 }, { "m", 60 * 1000 }, { "h", 3600 * 1000 }, { "d", 24 * 3600 * 1000 }
};

#define MOST_MS (INT64_C(100) * 365 * 24 * 3600 * 1000)

static bool digits_read(const char *text, uint64_t *out, const char **out_rest) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    *out_rest = end;
    return *text >= '0' && *text <= '9' && errno == 0;
}

int duration_read(const char *text, int64_t *out_ms) {
    uint64_t number;
    const char *unit;
    bool is_number = digits_read(text, &number, &unit);
    if (is_number && !*unit)
        return error_set(MR_EINVAL, "'%.30s' has no unit; %.30ss for seconds, %.30sms, %.30sm …",
                         text, text, text, text);
    for (size_t i = 0; is_number && i < sizeof units / sizeof *units; i++) {
        if (strcmp(unit, units[i].name) != 0)
            continue;
        if (number == 0 || number > (uint64_t)(MOST_MS / units[i].ms))
            return error_set(MR_EINVAL, "'%.30s' is not possible: 1ms to 36500d", text);
        *out_ms = (int64_t)number * units[i].ms;
        return 0;
    }
    return error_set(MR_EINVAL, "'%.30s' is no duration; 250ms, 30s, 5m, 2h and 7d are", text);
}

bool input_duration(const struct input *in, const char *name, int64_t *out_ms) {
    const char *text = input_option(in, name);
    if (!text || duration_read(text, out_ms) >= 0)
        return true;
    complain("%s: %s: %s", in->command->name, name, error_text());
    return false;
}

bool input_count(const struct input *in, const char *name, uint64_t most, uint64_t *out) {
    const char *text = input_option(in, name), *rest;
    uint64_t number;
    if (!text)
        return true;
    if (digits_read(text, &number, &rest) && !*rest && number <= most) {
        *out = number;
        return true;
    }
    complain("%s: %s: '%.30s' is not a number up to %" PRIu64, in->command->name, name, text, most);
    return false;
}

bool input_small_count(const struct input *in, const char *name, uint32_t most, uint32_t *out) {
    uint64_t number = *out;
    if (!input_count(in, name, most, &number))
        return false;
    *out = (uint32_t)number;
    return true;
}

bool input_text(const struct input *in, const char *name, mr_bytes *out) {
    const char *text = input_option(in, name);
    if (text)
        *out = mr_str(text);
    return true;
}

bool input_jobs(const struct input *in, uint32_t *out) {
    const char *text = input_option(in, "--jobs");
    if (!text || strcmp(text, "auto") == 0)
        return true;
    uint64_t jobs = 0;
    if (!input_count(in, "--jobs", WORKER_JOBS, &jobs))
        return false;
    if (jobs == 0)
        complain("%s: --jobs 0: at least 1, or auto", in->command->name);
    else
        *out = (uint32_t)jobs;
    return jobs > 0;
}
