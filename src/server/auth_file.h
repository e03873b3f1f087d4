// Reads and changes the file that auth.h describes. A change is written to a new file, which then
// replaces the old one, so a reader sees either the old or the new file, complete; comments are
// kept. It is made with mode 0600; a file that users other than its owner can write is refused.
#ifndef SERVER_AUTH_FILE_H
#define SERVER_AUTH_FILE_H

#include "server/auth.h"

enum { AUTH_SECRET = 47 }; // characters of a secret

// MR_EGONE: there is no such file; MR_EPERM: other users can write it; MR_EINVAL: a line is
// invalid, or this build has no OpenSSL; MR_EIO, MR_ENOMEM. The message names the file.
int auth_load(const char *path, struct auth **out);

// A new entry, as words of its line.
struct auth_words {
    mr_bytes name, roles, patterns;
    enum auth_proof proof;
    uint32_t id;                  // of the user or group, if that is the proof
    mr_bytes quotas[QUOTA_KINDS]; // "max-jobs=1000"; empty: none of this kind
};

// Adds an entry and returns its secret, which is not stored ("" for a user or group). Makes the
// file if it is missing. MR_EINVAL also: the name, user or group is in use; MR_EBUSY: another
// process changes the file.
int auth_add(const char *path, const struct auth_words *, char out_secret[AUTH_SECRET + 1]);

int auth_remove(const char *path, mr_bytes name); // MR_EGONE also: there is no such name

#endif
