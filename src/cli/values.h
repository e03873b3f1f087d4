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

// A size such as 64k, 16M or 2G, from 1 to `most` bytes. MR_EINVAL with the way out.
int size_read(const char *text, uint64_t most, uint64_t *out);

enum { SHARE_MOST = 1000000 };

// The value of an option; `out` is untouched when it was not given. False: it is refused, and the
// reason was printed.
bool input_duration(const struct input *, const char *name, int64_t *out_ms);
bool input_count(const struct input *, const char *name, uint64_t most, uint64_t *out);
bool input_small_count(const struct input *, const char *name, uint32_t most, uint32_t *out);
bool input_size(const struct input *, const char *name, uint64_t most, uint64_t *out);
// A number up to SHARE_MOST with a fraction, or so many per cent of the processors.
bool input_share(const struct input *, const char *name, double *out);
// One byte, also as \n \t \0; without the option a newline, or with -0 a 0 byte.
bool input_delimiter(const struct input *, const char *name, char *out);
bool input_text(const struct input *, const char *name, mr_bytes *out); // is never refused

// The value of --jobs: how many at once, also in per cent of the processors; `out` is untouched for
// auto. As above.
bool input_jobs(const struct input *, uint32_t *out);

#endif
