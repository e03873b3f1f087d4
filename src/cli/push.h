// Push: what push, push --lines and call share: the options of a job.
#ifndef CLI_PUSH_H
#define CLI_PUSH_H

#include "cli/engine.h"

struct push_options {
    const char *key, *once;
    int64_t delay_ms, deadline_ms, room_ms; // 0: none; room -1: for ever
    uint64_t attempts;
};

// False: refused, and said.
bool push_options_read(const struct input *, struct push_options *out);
mr_push_options push_options_of(const struct push_options *); // borrows the texts

enum cli_exit push_lines(const struct input *); // push_lines.c

#endif
