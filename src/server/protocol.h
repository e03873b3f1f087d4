// The protocol, told to people: the table of commands as a page.
#ifndef SERVER_PROTOCOL_H
#define SERVER_PROTOCOL_H

#include "base/buffer.h"

// Appends docs/protocol.md. MR_ENOMEM.
int protocol_write(struct buffer *out);

#endif
