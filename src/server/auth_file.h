// The file that auth.h describes: read, and changed by `millrace auth`. A change is written beside
// it and then takes its name, so whoever reads it finds the old one or the new one whole; comments
// stay where they are. Made with mode 0600; one that others than its owner can write is refused.
#ifndef SERVER_AUTH_FILE_H
#define SERVER_AUTH_FILE_H

#include "server/auth.h"

enum { AUTH_SECRET = 47 }; // letters of a secret that is made here

// MR_EGONE: there is no such file; MR_EPERM: others may write it; MR_EINVAL: a line is wrong, or
// this build has no OpenSSL; MR_EIO, MR_ENOMEM. The sentence names the file.
int auth_load(const char *path, struct auth **out);

// Adds an entry, and tells its secret, which is not told again. Makes the file when it is missing.
// MR_EINVAL also: the name is taken; MR_EBUSY: somebody else changes the file.
int auth_add(const char *path, mr_bytes name, mr_bytes roles, mr_bytes patterns,
             char out_secret[AUTH_SECRET + 1]);

int auth_remove(const char *path, mr_bytes name); // MR_EGONE also: there is no such name

#endif
