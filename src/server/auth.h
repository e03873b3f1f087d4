// Auth: tokens and their permissions. Each token is a line of a file: its name, roles, the stages
// for which they hold, and how a client proves that it may use the token: by a secret, of which
// only the digest is stored, or by being a process of a user or group of this machine that has
// connected by a Unix-domain socket.
//
//     # tokens of the shop
//     ci       push,read  mail.*,sms.*  sha256:9f86d081884c7d659a2feaa0c55ad015…
//     operator admin      *             uid:0
//     acme     push,work  acme.*        sha256:…  max-jobs=10000 max-bytes=64M
//
// Behind the proof stand its quotas (base/quotas.h), in any order; what is not named is bounded by
// the shares that every token has.
//
// Secrets are 256 random bits (made in auth_file.h), so a fast digest without salt is enough: a
// dictionary attack is impossible.
//
// This file does no I/O. A list is immutable; reading the file again makes a new list.
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include "base/buffer.h"
#include "core/core.h"
#include "tls/digest.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Bits: the role that a command requires, and the roles of a token.
enum role {
    ROLE_ANY = 0, // any token
    ROLE_PUSH = 1,
    ROLE_WORK = 2,
    ROLE_READ = 4,
    ROLE_ADMIN = 8,            // includes the others
    ROLE_UNAUTHENTICATED = 16, // only for commands: allowed before AUTH
};

enum {
    AUTH_NAME = 64,       // bytes of a name
    AUTH_PATTERNS = 1024, // bytes of an entry's patterns
    AUTH_ENTRIES = 10000, // entries of a file
    AUTH_FILE = 16 << 20  // bytes of a file
};

#define AUTH_QUOTA_MOST UINT64_C(1000000000000000) // the largest value of a quota

// How a client proves that it may use a token.
enum auth_proof { PROOF_SECRET, PROOF_USER, PROOF_GROUP };

struct auth_entry {
    mr_bytes name;
    mr_bytes patterns; // separated by commas; an asterisk matches any text
    uint32_t roles;    // enum role
    bool all;          // the patterns are one asterisk
    uint64_t maker;    // stands for the token in a core (core_act_for); a hash of the name
    bool has_quota;    // of anything
    struct maker_quota quota;
    enum auth_proof proof;
    uint8_t digest[DIGEST_SIZE]; // of the secret
    uint32_t id;                 // of the user or group
};

// The process at the other end of a Unix-domain socket.
struct auth_peer {
    uid_t user;
    const gid_t *groups; // the effective one and the supplementary ones
    size_t group_count;
};

struct auth;

// Parses the text of a file. MR_EINVAL: with the number of the line; MR_ENOMEM.
int auth_parse(mr_bytes text, struct auth **out);
int auth_copy(const struct auth *, struct auth **out); // MR_ENOMEM
void auth_destroy(struct auth *);                      // takes NULL
size_t auth_count(const struct auth *);
const struct auth_entry *auth_at(const struct auth *, size_t index);
const struct auth_entry *auth_named(const struct auth *, mr_bytes name); // NULL: none

// The entry with this secret; if `user` is given and not "default", only the entry of that name.
// NULL: none. The time does not depend on which entries nearly match.
const struct auth_entry *auth_find(const struct auth *, mr_bytes user, mr_bytes secret);

// The entry of the user; if there is none, the first entry of one of the groups. NULL: none.
const struct auth_entry *auth_of_peer(const struct auth *, const struct auth_peer *);

// The entry with this proof, which is not PROOF_SECRET. NULL: none.
const struct auth_entry *auth_of_id(const struct auth *, enum auth_proof, uint32_t id);

// NULL: none.
const struct auth_entry *auth_of_maker(const struct auth *, uint64_t maker);

// The entry that is equal to one of another list, but for its quotas; NULL: none.
const struct auth_entry *auth_same(const struct auth *, const struct auth_entry *);

// Whether the patterns of the entry match the name of a stage.
bool auth_sees(const struct auth_entry *, mr_bytes name);

// Parses "push,read" into bits; the name of one role. MR_EINVAL: unknown role, or none.
int roles_parse(mr_bytes text, uint32_t *out);
const char *role_name(enum role);

// "uid" or "gid"; NULL for PROOF_SECRET.
const char *proof_word(enum auth_proof);

// Check the syntax of a name and of patterns. MR_EINVAL describes what is allowed.
int auth_check_name(mr_bytes);
int auth_check_patterns(mr_bytes);

// Parses "max-jobs=1000" or "max-bytes=64M" (K, M, G and T are binary). MR_EINVAL: it is no quota,
// `out` has a quota of that kind already, or the value is not from 1 to AUTH_QUOTA_MOST.
int auth_parse_quota(mr_bytes word, struct quotas *out);

#endif
