// Place: an address to listen on, HOST:PORT, in options and messages.
#ifndef CLI_PLACE_H
#define CLI_PLACE_H

#include "cli/cli.h"

#include <stdint.h>

enum { PLACE_HOST = 64, PLACE_TEXT = PLACE_HOST + 16 };

// Reads HOST:PORT, or [HOST]:PORT: an address in digits (or localhost) and a port. MR_EINVAL names
// the option.
int place_read(const struct input *, const char *option, const char *value, char host[PLACE_HOST],
               uint16_t *out_port);

bool place_is_loopback(const char *host);

// Writes them as place_read reads them; returns `out`.
const char *place_write(const char *host, uint16_t port, char out[PLACE_TEXT]);

#endif
