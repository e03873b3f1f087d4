// Body: the bytes that a command line hands over: an argument, or stdin for "-" and for none.
#ifndef CLI_BODY_H
#define CLI_BODY_H

#include "base/buffer.h"

// Reads at most `most` bytes. False: that was said; nothing needs freeing. A terminal is told what
// is waited for.
bool body_read(const char *argument, size_t most, struct buffer *out);

#endif
