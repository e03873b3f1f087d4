// See store_url.h.
#include "base/store_url.h"

#include "base/errors.h"

#include <string.h>

int store_url_read(const char *url, struct store_url *out) {
    static const char file[] = "file:";
    if (strncmp(url, file, sizeof file - 1) == 0) {
        const char *dir = url + sizeof file - 1;
        if (!*dir)
            return error_set(MR_EINVAL, "the URL 'file:' names no directory: file:DIR is a store");
        *out = store_in(dir);
        return 0;
    }
    if (strncmp(url, "postgres://", 11) == 0 || strncmp(url, "postgresql://", 13) == 0) {
        *out = (struct store_url){ .scheme = STORE_IN_POSTGRES, .text = url };
        return 0;
    }
    if (strncmp(url, "nats://", 7) == 0) {
        *out = (struct store_url){ .scheme = STORE_IN_NATS, .text = url };
        return 0;
    }
    if (strcmp(url, "mem:") == 0) {
        *out = store_in(NULL);
        return 0;
    }
    return error_set(MR_EINVAL, "the URL '%.200s' is no store that this build knows: %s",
                     strchr(url, '@') ? "..." : url, STORE_SCHEMES);
}
