// Addresses to listen on.
#include "cli/place.h"

#include "cli/config.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool place_is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

int place_read(const struct input *in, const char *option, const char *value, char host[PLACE_HOST],
               uint16_t *out_port) {
    const char *colon = strrchr(value, ':');
    char *end = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    size_t size = colon ? (size_t)(colon - value) : 0;
    if (!colon || !colon[1] || *end || port > UINT16_MAX || !size || size >= PLACE_HOST)
        return input_refuse(in, option, "it is HOST:PORT, such as " CLI_LISTEN);
    bool brackets = value[0] == '[' && value[size - 1] == ']';
    memcpy(host, value + brackets, size - 2 * brackets);
    host[size - 2 * brackets] = 0;
    if (strcmp(host, "localhost") == 0)
        snprintf(host, PLACE_HOST, "127.0.0.1");
    uint8_t raw[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, raw) != 1 && inet_pton(AF_INET6, host, raw) != 1)
        return input_refuse(in, option, "HOST is an address of this machine, in digits");
    *out_port = (uint16_t)port;
    return 0;
}

const char *place_write(const char *host, uint16_t port, char out[PLACE_TEXT]) {
    bool v6 = strchr(host, ':') != NULL;
    snprintf(out, PLACE_TEXT, "%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", port);
    return out;
}
