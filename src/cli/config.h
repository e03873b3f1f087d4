// Config: the options of a command in a file, one a line, by the names of its flags.
//
//     # where clients connect
//     listen = 127.0.0.1:7411
//     log-json = yes            # what takes no value is on or off: yes or no
//
// The command's row says which names there are, and the code that reads the values of flags reads
// these. So the two cannot differ.
#ifndef CLI_CONFIG_H
#define CLI_CONFIG_H

#include "cli/cli.h"

// What the values of an input point into. Zero is a valid start.
struct config {
    char *text;
};

// Reads the file that the option --config names, if it was given, and fills in what `in` does not
// have yet. MR_EINVAL with FILE:LINE and the way out; MR_EIO: it cannot be read; MR_ENOMEM. `in` is
// then of no use any more, and there is nothing to finish.
int config_read(struct input *in, struct config *out);
void config_finish(struct config *);

// "FILE:LINE: 'VALUE' cannot be NAME: WHAT" or, of a flag, "'VALUE' cannot be --NAME: WHAT".
// Returns MR_EINVAL.
int input_refuse(const struct input *, const char *option, const char *what);

#endif
