// See auth.h. A list keeps the file's text and points into it.
#include "server/auth.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/mem.h"
#include "server/limits.h"

#include <inttypes.h>
#include <string.h>

struct auth {
    size_t count;
    struct auth_entry *entries;
    size_t size;
    char text[]; // of the file
};

static const struct {
    const char *name;
    enum role role;
} roles[] = {
    { "push", ROLE_PUSH },
    { "work", ROLE_WORK },
    { "read", ROLE_READ },
    { "admin", ROLE_ADMIN },
};
enum { ROLES = sizeof roles / sizeof *roles };

const char *role_name(enum role role) {
    for (size_t i = 0; i < ROLES; i++)
        if (roles[i].role == role)
            return roles[i].name;
    return role == ROLE_UNAUTHENTICATED ? "none" : "any";
}

const char *proof_word(enum auth_proof proof) {
    switch (proof) {
    case PROOF_USER:
        return "uid";
    case PROOF_GROUP:
        return "gid";
    case PROOF_SECRET:
        break;
    }
    return NULL;
}

// ---- Parsing ----------------------------------------------------------------------------------

static bool text_is(mr_bytes b, const char *text) {
    return b.size == strlen(text) && memcmp(b.data, text, b.size) == 0;
}

// The next word of `rest`, up to one of the separators `ends`; false: there is none.
static bool next_word(mr_bytes *rest, const char *ends, mr_bytes *out) {
    const char *at = rest->data, *end = at + rest->size;
    while (at < end && strchr(ends, *at))
        at++;
    const char *begin = at;
    while (at < end && !strchr(ends, *at))
        at++;
    *out = (mr_bytes){ begin, (size_t)(at - begin) };
    *rest = (mr_bytes){ at, (size_t)(end - at) };
    return out->size > 0;
}

static bool consists_of(mr_bytes b, const char *signs) {
    const unsigned char *p = b.data;
    for (size_t i = 0; i < b.size; i++) {
        bool letter = (p[i] | 32) >= 'a' && (p[i] | 32) <= 'z';
        bool digit = p[i] >= '0' && p[i] <= '9';
        if (!letter && !digit && (!p[i] || !strchr(signs, p[i])))
            return false;
    }
    return b.size > 0;
}

int roles_parse(mr_bytes text, uint32_t *out) {
    uint32_t found = 0;
    for (mr_bytes word; next_word(&text, ",", &word);) {
        size_t i = 0;
        while (i < ROLES && !text_is(word, roles[i].name))
            i++;
        if (i == ROLES)
            return error_set(MR_EINVAL,
                             "'%.*s' is not a role: roles are push, work, read and admin",
                             (int)(word.size < 64 ? word.size : 64), (const char *)word.data);
        found |= roles[i].role;
    }
    if (!found)
        return error_set(MR_EINVAL,
                         "a role is missing: push, work, read, admin or several of them");
    *out = found;
    return 0;
}

int auth_check_name(mr_bytes name) {
    if (name.size > AUTH_NAME || !consists_of(name, "._-") || text_is(name, "default"))
        return error_set(MR_EINVAL,
                         "a name has 1 to %d characters of A-Za-z0-9._- and is not 'default', "
                         "the user that clients send if none is set",
                         AUTH_NAME);
    return 0;
}

int auth_check_patterns(mr_bytes patterns) {
    if (patterns.size > AUTH_PATTERNS || !consists_of(patterns, "._:/-*,"))
        return error_set(MR_EINVAL, "stages must be names, with * for any text, separated by "
                                    "commas: mail.*,sms.*");
    return 0;
}

// ---- Quotas -----------------------------------------------------------------------------------

static enum quota_kind quota_named(mr_bytes name) {
    static const char prefix[] = "max-";
    size_t skip = sizeof prefix - 1;
    int kind = 0;
    if (name.size < skip || memcmp(name.data, prefix, skip) != 0)
        return QUOTA_KINDS;
    mr_bytes rest = { (const char *)name.data + skip, name.size - skip };
    while (kind < QUOTA_KINDS && !text_is(rest, quota_word((enum quota_kind)kind)))
        kind++;
    return (enum quota_kind)kind;
}

// Digits, and for bytes perhaps K, M, G or T. False: no number from 1 to AUTH_QUOTA_MOST.
static bool quota_value(mr_bytes text, bool bytes, uint64_t *out) {
    static const char units[] = "KMGT";
    const char *p = text.data;
    uint64_t value = 0;
    size_t i = 0;
    for (; i < text.size && p[i] >= '0' && p[i] <= '9' && value <= AUTH_QUOTA_MOST; i++)
        value = value * 10 + (uint64_t)(p[i] - '0');
    const char *unit = bytes && i && i + 1 == text.size ? strchr(units, p[i]) : NULL;
    for (long n = unit && *unit ? unit - units + 1 : 0; n > 0 && value <= AUTH_QUOTA_MOST; n--)
        value *= 1024;
    if (i + (unit != NULL) != text.size || !value || value > AUTH_QUOTA_MOST)
        return false;
    *out = value;
    return true;
}

int auth_parse_quota(mr_bytes word, struct quotas *out) {
    const char *equals = word.size ? memchr(word.data, '=', word.size) : NULL;
    size_t size = equals ? (size_t)(equals - (const char *)word.data) : word.size;
    enum quota_kind kind = quota_named((mr_bytes){ word.data, size });
    int shown = (int)(word.size < 64 ? word.size : 64);
    uint64_t value;
    if (kind == QUOTA_KINDS || !equals)
        return error_set(MR_EINVAL,
                         "'%.*s' is not a quota: these are max-stages=N, max-jobs=N, max-bytes=N, "
                         "max-sources=N, max-epics=N, max-schedules=N and max-connections=N",
                         shown, (const char *)word.data);
    if (out->of[kind])
        return error_set(MR_EINVAL, "'%.*s': max-%s is there twice", shown, (const char *)word.data,
                         quota_word(kind));
    mr_bytes digits = { equals + 1, word.size - size - 1 };
    if (!quota_value(digits, kind == QUOTA_BYTES, &value))
        return error_set(MR_EINVAL,
                         "'%.*s' is not possible: a quota is a number from 1 to %" PRIu64 "%s",
                         shown, (const char *)word.data, AUTH_QUOTA_MOST,
                         kind == QUOTA_BYTES ? ", or with a unit: 512K, 64M, 2G, 1T" : "");
    out->of[kind] = value;
    return 0;
}

// ---- Patterns ---------------------------------------------------------------------------------

// On a mismatch after an asterisk, the asterisk matches one byte more: at most size × size steps.
static bool pattern_fits(mr_bytes pattern, mr_bytes name) {
    const char *p = pattern.data, *n = name.data;
    size_t at = 0, behind = SIZE_MAX, from = 0, i = 0;
    while (i < name.size) {
        if (at < pattern.size && p[at] == '*') {
            behind = ++at;
            from = i;
        } else if (at < pattern.size && p[at] == n[i]) {
            at++;
            i++;
        } else if (behind != SIZE_MAX) {
            at = behind;
            i = ++from;
        } else {
            return false;
        }
    }
    while (at < pattern.size && p[at] == '*')
        at++;
    return at == pattern.size;
}

// Most patterns differ from most names in the first letter: a list of many stages for a token of
// many patterns compares all with all.
static bool may_fit(const char *pattern, mr_bytes name) {
    return *pattern == '*' || (name.size && *pattern == *(const char *)name.data);
}

bool auth_sees(const struct auth_entry *e, mr_bytes name) {
    const char *at = e->patterns.data, *end = at + e->patterns.size;
    bool sees = e->all;
    while (!sees && at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at)), *to = comma ? comma : end;
        sees =
            to > at && may_fit(at, name) && pattern_fits((mr_bytes){ at, (size_t)(to - at) }, name);
        at = to + 1;
    }
    return sees;
}

// ---- The file ---------------------------------------------------------------------------------

static int hex_value(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Removes the prefix from the word; false: it has another one.
static bool skip_prefix(mr_bytes *word, const char *prefix) {
    size_t size = strlen(prefix);
    if (word->size < size || memcmp(word->data, prefix, size) != 0)
        return false;
    *word = (mr_bytes){ (const char *)word->data + size, word->size - size };
    return true;
}

// The last id is what system calls take for "none".
static int id_parse(mr_bytes digits, uint32_t *out) {
    const char *p = digits.data;
    uint64_t id = 0;
    size_t i = 0;
    for (; i < digits.size && p[i] >= '0' && p[i] <= '9' && id < UINT32_MAX; i++)
        id = id * 10 + (uint64_t)(p[i] - '0');
    if (!i || i != digits.size || id >= UINT32_MAX)
        return error_set(MR_EINVAL, "an id of a user or group is a number from 0 to %" PRIu32,
                         UINT32_MAX - 1);
    *out = (uint32_t)id;
    return 0;
}

static int digest_parse(mr_bytes digits, uint8_t out[DIGEST_SIZE]) {
    const char *hex = digits.data;
    if (digits.size != 2 * DIGEST_SIZE)
        return error_set(MR_EINVAL, "the fourth word must be sha256: and 64 hexadecimal digits");
    for (size_t i = 0; i < DIGEST_SIZE; i++) {
        int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return error_set(MR_EINVAL, "a digest must have digits 0-9 and a-f");
        out[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

static int quotas_parse(mr_bytes words, struct auth_entry *out) {
    for (mr_bytes word; next_word(&words, " \t\r", &word); out->has_quota = true) {
        int err = auth_parse_quota(word, &out->quota.most);
        if (err < 0)
            return err;
    }
    return 0;
}

// "sha256:…", "uid:33" or "gid:33".
static int proof_parse(mr_bytes word, struct auth_entry *out) {
    if (skip_prefix(&word, "sha256:"))
        return digest_parse(word, out->digest);
    out->proof = skip_prefix(&word, "uid:")   ? PROOF_USER
                 : skip_prefix(&word, "gid:") ? PROOF_GROUP
                                              : PROOF_SECRET;
    if (out->proof != PROOF_SECRET)
        return id_parse(word, &out->id);
    return error_set(MR_EINVAL,
                     "a line must have four words: name, roles, stages and digest (sha256:…), or "
                     "uid:N or gid:N for the digest; quotas such as max-jobs=1000 may follow");
}

// NAME ROLES STAGES PROOF [QUOTA …]
static int entry_parse(mr_bytes line, struct auth_entry *out) {
    mr_bytes words[4] = { { 0 } };
    int count = 0;
    while (count < 4 && next_word(&line, " \t\r", &words[count]))
        count++;
    *out = (struct auth_entry){ .name = words[0],
                                .patterns = words[2],
                                .all = text_is(words[2], "*"),
                                .quota.token = words[0],
                                .maker = bytes_hash(words[0], 0) | 1 }; // stores contain it
    int err = proof_parse(words[3], out);                               // empty if there are fewer
    if (err >= 0)
        err = auth_check_name(words[0]);
    if (err >= 0)
        err = roles_parse(words[1], &out->roles);
    if (err >= 0)
        err = auth_check_patterns(words[2]);
    return err < 0 ? err : quotas_parse(line, out);
}

// Names are unique, and so are users and groups: each is one token.
static int check_unique(const struct auth *a, const struct auth_entry *e) {
    if (auth_named(a, e->name))
        return error_set(MR_EINVAL, "the name '%.*s' is used twice", (int)e->name.size,
                         (const char *)e->name.data);
    const char *word = proof_word(e->proof);
    if (word && auth_of_id(a, e->proof, e->id))
        return error_set(MR_EINVAL, "%s:%" PRIu32 " is used twice", word, e->id);
    return 0;
}

// Parses the lines; `a` has room for all of them.
static int lines_parse(struct auth *a, mr_bytes text) {
    for (size_t number = 1; text.size; number++) {
        const char *begin = text.data, *end = memchr(begin, '\n', text.size);
        size_t size = end ? (size_t)(end - begin) : text.size;
        mr_bytes line = { begin, size }, rest = line, word;
        text = (mr_bytes){ begin + size + (end != NULL), text.size - size - (end != NULL) };
        if (!next_word(&rest, " \t\r", &word) || *(const char *)word.data == '#')
            continue;
        struct auth_entry *e = &a->entries[a->count];
        int err = a->count == AUTH_ENTRIES
                      ? error_set(MR_ETOOBIG, "there are more than %d entries", AUTH_ENTRIES)
                      : entry_parse(line, e);
        if (err >= 0)
            err = check_unique(a, e);
        if (err < 0)
            return error_set(err, "line %zu: %s", number, error_text());
        a->count++;
    }
    return 0;
}

static size_t count_lines(mr_bytes text) {
    size_t count = 1;
    for (size_t i = 0; i < text.size; i++)
        count += ((const char *)text.data)[i] == '\n';
    return count < AUTH_ENTRIES ? count : AUTH_ENTRIES;
}

int auth_parse(mr_bytes text, struct auth **out) {
    struct auth *a = mem_alloc(sizeof *a + text.size + 1);
    if (a)
        a->entries = mem_alloc((count_lines(text) + 1) * sizeof *a->entries);
    if (!a || !a->entries) {
        mem_free(a);
        return error_set(MR_ENOMEM, "no memory for a list of tokens");
    }
    if (text.size)
        memcpy(a->text, text.data, text.size);
    a->size = text.size;
    int err = lines_parse(a, (mr_bytes){ a->text, text.size });
    if (err < 0) {
        auth_destroy(a);
        return err;
    }
    *out = a;
    return 0;
}

int auth_copy(const struct auth *a, struct auth **out) {
    return auth_parse((mr_bytes){ a->text, a->size }, out);
}

void auth_destroy(struct auth *a) {
    if (!a)
        return;
    mem_free(a->entries);
    mem_free(a);
}

// ---- Finding ----------------------------------------------------------------------------------

size_t auth_count(const struct auth *a) {
    return a->count;
}

const struct auth_entry *auth_at(const struct auth *a, size_t index) {
    return &a->entries[index];
}

const struct auth_entry *auth_named(const struct auth *a, mr_bytes name) {
    for (size_t i = 0; i < a->count; i++)
        if (bytes_equal(a->entries[i].name, name))
            return &a->entries[i];
    return NULL;
}

// Compares with all entries, so that the time does not depend on the result.
const struct auth_entry *auth_find(const struct auth *a, mr_bytes user, mr_bytes secret) {
    uint8_t digest[DIGEST_SIZE];
    const struct auth_entry *found = NULL;
    if (secret.size > UNAUTHENTICATED_ARGUMENT || digest_of(secret, digest) < 0)
        return NULL;
    for (size_t i = 0; i < a->count; i++)
        if (digest_equal(digest, a->entries[i].digest) && a->entries[i].proof == PROOF_SECRET)
            found = &a->entries[i];
    bool named = user.size && !text_is(user, "default");
    return found && named && !bytes_equal(found->name, user) ? NULL : found;
}

const struct auth_entry *auth_of_id(const struct auth *a, enum auth_proof proof, uint32_t id) {
    for (size_t i = 0; i < a->count; i++)
        if (a->entries[i].proof == proof && a->entries[i].id == id)
            return &a->entries[i];
    return NULL;
}

static bool has_group(const struct auth_peer *peer, uint32_t id) {
    size_t i = 0;
    while (i < peer->group_count && peer->groups[i] != id)
        i++;
    return i < peer->group_count;
}

const struct auth_entry *auth_of_peer(const struct auth *a, const struct auth_peer *peer) {
    const struct auth_entry *found = auth_of_id(a, PROOF_USER, peer->user);
    for (size_t i = 0; !found && i < a->count; i++)
        if (a->entries[i].proof == PROOF_GROUP && has_group(peer, a->entries[i].id))
            found = &a->entries[i];
    return found;
}

const struct auth_entry *auth_of_maker(const struct auth *a, uint64_t maker) {
    for (size_t i = 0; i < a->count; i++)
        if (a->entries[i].maker == maker)
            return &a->entries[i];
    return NULL;
}

const struct auth_entry *auth_same(const struct auth *a, const struct auth_entry *e) {
    const struct auth_entry *found = auth_named(a, e->name);
    bool same = found && found->roles == e->roles && bytes_equal(found->patterns, e->patterns) &&
                found->proof == e->proof && found->id == e->id &&
                digest_equal(found->digest, e->digest);
    return same ? found : NULL;
}
