// Writes the page docs/protocol.md from the table of commands.
#ifndef SERVER_PROTOCOL_H
#define SERVER_PROTOCOL_H

#include "base/buffer.h"

// Appends docs/protocol.md. MR_ENOMEM.
int protocol_write(struct buffer *out);

#endif
