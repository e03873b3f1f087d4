// Auth: who may do what. Everybody who may is a line of a file: a name, roles, the stages these
// hold for, and the digest of a secret, which is kept nowhere.
//
//     # those of the shop
//     ci       push,read  mail.*,sms.*  sha256:9f86d081884c7d659a2feaa0c55ad015…
//     operator admin      *             sha256:…
//
// Secrets are 256 random bits (auth_file.h makes them), so a fast digest without salt is enough:
// there is no list of likely ones to try.
//
// Here nothing touches a file. A list never changes; reading the file again makes a new one.
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include "base/buffer.h"
#include "tls/digest.h"

#include <stdbool.h>
#include <stdint.h>

// What a command asks for, and what an entry has: bits.
enum role {
    ROLE_ANYBODY = 0, // anybody who is known here
    ROLE_PUSH = 1,
    ROLE_WORK = 2,
    ROLE_READ = 4,
    ROLE_ADMIN = 8,            // includes the others
    ROLE_UNAUTHENTICATED = 16, // of a command only: also before AUTH
};

enum {
    AUTH_NAME = 64,       // letters of a name
    AUTH_PATTERNS = 1024, // bytes of an entry's patterns
    AUTH_ENTRIES = 10000, // of a file
    AUTH_FILE = 16 << 20  // bytes of one
};

struct auth_entry {
    mr_bytes name;
    mr_bytes patterns; // with commas between them; an asterisk stands for anything
    uint32_t roles;    // enum role
    bool all;          // the patterns are one asterisk
    uint8_t digest[DIGEST_SIZE];
};

struct auth;

// Reads what a file says. MR_EINVAL: with the number of the line; MR_ENOMEM.
int auth_parse(mr_bytes text, struct auth **out);
void auth_destroy(struct auth *); // takes NULL
size_t auth_count(const struct auth *);
const struct auth_entry *auth_at(const struct auth *, size_t index);
const struct auth_entry *auth_named(const struct auth *, mr_bytes name); // NULL: nobody

// Whose secret that is; with a user other than "default" (or none), only if it is theirs. NULL:
// nobody's. Takes equally long whether, and with whom, it nearly fits.
const struct auth_entry *auth_find(const struct auth *, mr_bytes user, mr_bytes secret);

// The entry that says the same as one of another list; NULL: none does.
const struct auth_entry *auth_same(const struct auth *, const struct auth_entry *);

// Whether the entry's patterns include the name of a stage or an epic.
bool auth_sees(const struct auth_entry *, mr_bytes name);

// "push,read" as bits, and the name of one. MR_EINVAL: there is no such role, or none is named.
int roles_parse(mr_bytes text, uint32_t *out);
const char *role_name(enum role);

// Whether these can be an entry's. MR_EINVAL: what can.
int auth_check_name(mr_bytes);
int auth_check_patterns(mr_bytes);

#endif
