// Inline commands: a line of words, for people at a terminal without a client. Words are divided by
// blanks; a word may have quoted parts: "…" knows \n \r \t \b \a \xHH and \ before any other byte,
// '…' knows \' only. A closing quote ends its word.
#ifndef WIRE_INLINE_H
#define WIRE_INLINE_H

#include "millrace.h"

#include <stdint.h>

// Divides a line into at most `most` words. They point into the line, which is changed: quotes and
// escapes are removed in place. The array is undefined unless 0 is returned. MR_EINVAL: a quote is
// not closed, or not followed by a blank; MR_ETOOBIG: more words.
int inline_split(uint8_t *line, size_t size, uint32_t most, mr_bytes *out_words,
                 uint32_t *out_count);

#endif
