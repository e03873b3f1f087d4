// Text: whether bytes are UTF-8, and base64 for those that are not. Pure.
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "millrace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The bytes of the letter that begins here, of `size` that are there, at least one; 0: it is none.
size_t text_letter(const uint8_t *, size_t size);

bool text_is_utf8(mr_bytes); // whether all of it is UTF-8

// The code of a letter of so many bytes that is nothing to be seen but turns the direction of what
// stands around it, so that people read something else than what is there; 0: it is another.
uint32_t text_direction(const uint8_t *letter, size_t size);

static inline size_t text_base64_size(size_t size) {
    return (size + 2) / 3 * 4;
}

// Writes so many letters as text_base64_size says.
void text_base64(mr_bytes, char *to);

// The other way, strictly: padded, nothing between, no idle bits. Writes at most size / 4 * 3
// bytes, which may be where the letters are. False: it is no base64.
bool text_base64_read(mr_bytes letters, uint8_t *to, size_t *out_size);

#endif
