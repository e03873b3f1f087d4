// A board (board.h) in NATS: all notes are one message of the stream millrace-NAME-notes. Writing
// a note replaces the message, if it is still the one that was read.
#ifndef LOG_BOARD_NATS_H
#define LOG_BOARD_NATS_H

#include "log/board.h"
#include "log/stream_nats.h"

// Does not connect. MR_EINVAL: the URL or a name; MR_ENOMEM.
int board_nats_open(const struct stream_nats_options *, struct board **out);

#endif
