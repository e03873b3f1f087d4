// Sentences of the engine name commands as the wire spells them; here they become commands of the
// shell.
#ifndef CLI_SENTENCE_H
#define CLI_SENTENCE_H

#include <stddef.h>

// "… : RESUME mail starts them." becomes "… : millrace resume mail starts them.", with `at` (see
// address_option) behind the command. What does not fit in `room` is left out. Returns `out`.
char *sentence_for_shell(char *out, size_t room, const char *sentence, const char *at);

#endif
