// See quote.h.
#include "cli/quote.h"

#include <string.h>

// Whether a shell leaves the word as it is; it would expand {1..3}.
static bool quote_is_plain(const char *word) {
    size_t size = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_@%+=:./{}#-");
    return *word && !word[size] && *word != '#' && !strstr(word, "..");
}

int quote_word(struct buffer *out, const char *word) {
    if (quote_is_plain(word))
        return buffer_append(out, word, strlen(word));
    int err = buffer_append(out, "'", 1);
    for (; err >= 0 && *word; word++)
        err = *word == '\'' ? buffer_append(out, "'\\''", 4) : buffer_append(out, word, 1);
    return err < 0 ? err : buffer_append(out, "'", 1);
}
