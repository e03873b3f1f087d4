// Quote: words as a shell has to read them.
#ifndef CLI_QUOTE_H
#define CLI_QUOTE_H

#include "base/buffer.h"

// Appends the word: as it is if a shell leaves it so, else in single quotes. MR_ENOMEM.
int quote_word(struct buffer *out, const char *word);

#endif
