// Text: whether bytes are UTF-8, base64 for those that are not, and durations. Pure.
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "millrace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The length of the UTF-8 character at the start of `size` bytes (at least one); 0: it is not
// valid.
size_t text_letter(const uint8_t *, size_t size);

bool text_is_utf8(mr_bytes); // whether all of it is UTF-8

// The code point of an invisible character that changes the direction of the text around it, so
// that readers see other text than there is; 0: it is not such a character.
uint32_t text_direction(const uint8_t *letter, size_t size);

static inline size_t text_base64_size(size_t size) {
    return (size + 2) / 3 * 4;
}

// Writes text_base64_size(size) characters.
void text_base64(mr_bytes, char *to);

// Decodes base64, strictly: padded, no other characters, unused bits zero. Writes at most size / 4
// * 3 bytes; `to` may be the input. False: it is not base64.
bool text_base64_read(mr_bytes letters, uint8_t *to, size_t *out_size);

// Writes a duration in at most AGE_WORDS bytes, rounded down: 250ms 4.2s 12s 3m10s 5h20m 12d.
// Returns `out`.
enum { AGE_WORDS = 24 };
const char *age_words(char *out, uint64_t ms);

#endif
