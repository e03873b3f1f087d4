// Bytes from an argument or from stdin, to its end.
#include "cli/body.h"

#include "base/errors.h"
#include "cli/output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 64 << 10 };

// 0 or a negative code, with its sentence.
static int body_read_stdin(struct buffer *b) {
    uint8_t piece[PIECE];
    if (isatty(STDIN_FILENO))
        complain("reading from the terminal; Ctrl-D ends it");
    for (;;) {
        ssize_t got = read(STDIN_FILENO, piece, sizeof piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(MR_EIO, "stdin cannot be read: %s", strerror(errno));
        int err = buffer_append(b, piece, (size_t)got);
        if (err < 0 || got == 0)
            return err;
    }
}

bool body_read(const char *argument, size_t most, struct buffer *out) {
    struct buffer b = { .limit = most };
    bool from_stdin = !argument || strcmp(argument, "-") == 0;
    int err = from_stdin ? body_read_stdin(&b) : buffer_append(&b, argument, strlen(argument));
    if (err < 0) {
        complain("%s", error_text());
        buffer_finish(&b);
        return false;
    }
    *out = b;
    return true;
}
