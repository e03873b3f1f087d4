// See secret.h.
#include "cli/secret.h"

#include "base/errors.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int too_long(const char *where) {
    return error_set(MR_EINVAL, "the secret in %.400s is too long", where);
}

static int secret_read_file(const char *path, char *out, size_t room) {
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(MR_EINVAL, "cannot read MILLRACE_TOKEN_FILE %.400s: %s", path,
                         strerror(errno));
    bool read = fgets(out, (int)room, file) != NULL;
    const char *why = ferror(file) ? strerror(errno) : "its first line is empty";
    (void)fclose(file); // it was only read
    size_t size = read ? strcspn(out, "\r\n") : 0;
    if (!size)
        return error_set(MR_EINVAL, "cannot read MILLRACE_TOKEN_FILE %.400s: %s", path, why);
    if (size + 1 >= room)
        return too_long(path);
    out[size] = 0;
    return 0;
}

int secret_find(char *out, size_t room) {
    const char *secret = getenv("MILLRACE_TOKEN"), *path = getenv("MILLRACE_TOKEN_FILE");
    out[0] = 0;
    if (secret && *secret)
        return snprintf(out, room, "%s", secret) < (int)room ? 0 : too_long("MILLRACE_TOKEN");
    return path && *path ? secret_read_file(path, out, room) : 0;
}

// Where the part before the @ of an engine's URL stands; NULL: there is none.
static const char *find_secret(const char *word, size_t *out_size) {
    const char *scheme = strstr(word, "millrace"), *file = strstr(word, "unix://");
    const char *begin = file ? file + 4 : scheme ? strstr(scheme, "://") : NULL;
    const char *end = begin ? strrchr(begin, '@') : NULL;
    if (!end)
        return NULL;
    *out_size = (size_t)(end - begin) - 3;
    return begin + 3;
}

bool secret_is_in(const char *word) {
    size_t size;
    return find_secret(word, &size) != NULL;
}

void secrets_hide(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        size_t size;
        char *word = argv[i];
        const char *secret = find_secret(word, &size);
        char *copy = secret ? mem_alloc(strlen(word) + 1) : NULL;
        if (!copy)
            continue;
        memcpy(copy, word, strlen(word) + 1); // kept until the process ends
        memset(word + (secret - word), '*', size);
        argv[i] = copy;
    }
}
