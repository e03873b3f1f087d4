// Body: the bytes that a command line names: an argument, or stdin if it is "-" or missing.
#ifndef CLI_BODY_H
#define CLI_BODY_H

#include "base/buffer.h"

// Reads at most `most` bytes. False: it failed, and the reason was printed; nothing needs freeing.
// If stdin is a terminal, a line says that it is read.
bool body_read(const char *argument, size_t most, struct buffer *out);

#endif
