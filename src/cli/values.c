// See values.h.
#include "cli/values.h"

#include "base/errors.h"
#include "base/limits.h"
#include "cli/output.h"
#include "work/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static const struct unit {
    const char *name;
    int64_t ms;
} units[] = {
    { "ms", 1 }, { "s", 1000 }, { "m", 60 * 1000 }, { "h", 3600 * 1000 }, { "d", 24 * 3600 * 1000 }
};

// Those that this process may use.
static unsigned processors_usable(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    return count > 0 ? (unsigned)count : 1;
}

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
        if (number == 0 || number > (uint64_t)(TIME_MOST_MS / units[i].ms))
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

int size_read(const char *text, uint64_t most, uint64_t *out) {
    static const char names[] = "kKmMgGtT";
    uint64_t number;
    const char *rest;
    bool is_number = digits_read(text, &number, &rest);
    const char *name = *rest ? strchr(names, *rest) : NULL;
    unsigned shift = name ? 10 * ((unsigned)(name - names) / 2 + 1) : 0;
    if (!is_number || !number || (*rest && (!name || rest[1])) || number > most >> shift)
        return error_set(MR_EINVAL, "'%.30s' is no possible size; 64k, 16M and 2G are", text);
    *out = number << shift;
    return 0;
}

bool input_size(const struct input *in, const char *name, uint64_t most, uint64_t *out) {
    const char *text = input_option(in, name);
    if (!text || size_read(text, most, out) >= 0)
        return true;
    complain("%s: %s: %s", in->command->name, name, error_text());
    return false;
}

bool input_share(const struct input *in, const char *name, double *out) {
    const char *text = input_option(in, name);
    char *end = NULL;
    if (!text)
        return true;
    double number = *text >= '0' && *text <= '9' ? strtod(text, &end) : -1;
    bool of_processors = end && strcmp(end, "%") == 0;
    if (number < 0 || number > SHARE_MOST || (*end && !of_processors)) {
        complain("%s: %s: '%.30s' is neither a number up to %d nor per cent of the processors, "
                 "such as 150%%",
                 in->command->name, name, text, SHARE_MOST);
        return false;
    }
    *out = of_processors ? number / 100 * processors_usable() : number;
    return true;
}

bool input_delimiter(const struct input *in, const char *name, char *out) {
    const char *text = input_option(in, name);
    bool zero = input_option(in, "-0") != NULL;
    *out = zero ? 0 : '\n';
    if (!text)
        return true;
    static const char names[] = "nt0\\", meant[] = "\n\t\0\\";
    const char *found = text[0] == '\\' && text[1] ? strchr(names, text[1]) : NULL;
    if (zero || !text[0] || (found ? text[2] : text[1])) {
        complain("%s: %s '%.20s': one byte, or \\n \\t \\0, and not with -0", in->command->name,
                 name, text);
        return false;
    }
    *out = found ? meant[found - names] : text[0];
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
    uint64_t jobs;
    const char *rest;
    bool is_number = digits_read(text, &jobs, &rest);
    if (is_number && strcmp(rest, "%") == 0 && jobs <= UINT32_MAX)
        jobs = jobs ? (jobs * processors_usable() + 99) / 100 : 0;
    else if (*rest)
        is_number = false;
    if (is_number && jobs > 0 && jobs <= WORKER_JOBS) {
        *out = (uint32_t)jobs;
        return true;
    }
    complain("%s: --jobs '%.30s': auto, a number from 1 to %d, or per cent of the processors, such "
             "as 200%%",
             in->command->name, text, WORKER_JOBS);
    return false;
}
