// Values: reads the values of options, so that a duration or a count is written and refused in the
// same way everywhere.
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include "cli/cli.h"
#include "millrace.h"

#include <stdint.h>

// A duration with its unit (250ms 30s 5m 2h 7d) in milliseconds, from 1 ms to 100 years. MR_EINVAL
// with the way out.
int duration_read(const char *text, int64_t *out_ms);

// The value of an option; `out` is untouched when it was not given. False: it is refused, and the
// reason was printed.
bool input_duration(const struct input *, const char *name, int64_t *out_ms);
bool input_count(const struct input *, const char *name, uint64_t most, uint64_t *out);
bool input_small_count(const struct input *, const char *name, uint32_t most, uint32_t *out);
bool input_text(const struct input *, const char *name, mr_bytes *out); // is never refused

// The value of --jobs: how many at once; `out` is untouched for auto. As above.
bool input_jobs(const struct input *, uint32_t *out);

#endif
