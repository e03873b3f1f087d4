// Push: what push, push --lines and call share: the options of a job.
#ifndef CLI_PUSH_H
#define CLI_PUSH_H

#include "cli/engine.h"

// Texts are borrowed from the input; one that was not given has no data. False: an option is
// refused, and the reason was printed.
bool push_options_read(const struct input *, mr_push_options *out);

enum cli_exit push_lines(const struct input *); // push_lines.c

#endif
