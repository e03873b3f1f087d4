// Sentences of the engine, as people here type: it names commands as the wire spells them.
#ifndef CLI_SENTENCE_H
#define CLI_SENTENCE_H

#include <stddef.h>

// "… : RESUME mail starts them." becomes "… : millrace resume mail starts them.", with `at` (see
// address_option) behind the command. What does not fit in `room` is left out. Returns `out`.
char *sentence_typed(char *out, size_t room, const char *sentence, const char *at);

#endif
