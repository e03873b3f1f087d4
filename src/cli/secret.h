// Secrets: where client commands find them, and how they are hidden from other users.
#ifndef CLI_SECRET_H
#define CLI_SECRET_H

#include <stdbool.h>
#include <stddef.h>

// The secret of MILLRACE_TOKEN, or of the file that MILLRACE_TOKEN_FILE names (its first line); ""
// if neither is set. MR_EINVAL: it is too long, or the file cannot be read.
int secret_find(char *out, size_t room);

bool secret_is_in(const char *word); // a URL with one

// Other users can list the arguments of a process: secrets in URLs there become asterisks, and
// `argv` gets copies. Words behind -- belong to another command. Without memory they stay.
void secrets_hide(int argc, char **argv);

#endif
