// Checks what is written to a board, the same for every store (board.h).
#include "log/board.h"

#include "base/text.h"

#include <string.h>

static int key_check(const char *key) {
    size_t size = strnlen(key, BOARD_KEY_MOST + 1);
    if (size && size <= BOARD_KEY_MOST && text_is_utf8((mr_bytes){ key, size }))
        return 0;
    return error_set(MR_EINVAL, "the key of a note is UTF-8 of 1 to %d bytes", BOARD_KEY_MOST);
}

static int note_check(const char *key, const char *value) {
    int err = key_check(key);
    if (err < 0)
        return err;
    size_t size = strnlen(value, BOARD_VALUE_MOST + 1);
    if (size <= BOARD_VALUE_MOST && text_is_utf8((mr_bytes){ value, size }))
        return 0;
    return error_set(MR_EINVAL, "the value of a note is UTF-8 of at most %d bytes",
                     BOARD_VALUE_MOST);
}

int board_look(struct board *b, uint32_t shards, struct stream_state *out) {
    return b->impl->look(b, shards, out);
}

int board_notes(struct board *b, board_each *each, void *arg) {
    return b->impl->notes(b, each, arg);
}

int board_put(struct board *b, const char *key, const char *value) {
    int err = note_check(key, value);
    return err < 0 ? err : b->impl->put(b, key, value);
}

int board_put_new(struct board *b, const char *key, const char *value) {
    int err = note_check(key, value);
    return err < 0 ? err : b->impl->put_new(b, key, value);
}

int board_remove(struct board *b, const char *key) {
    int err = key_check(key);
    return err < 0 ? err : b->impl->remove(b, key);
}

int board_promise(struct board *b, struct stream_promise *out) {
    return b->impl->promise(b, out);
}

void board_interrupt(struct board *b) {
    b->impl->interrupt(b);
}

void board_close(struct board *b) {
    if (b)
        b->impl->close(b);
}
