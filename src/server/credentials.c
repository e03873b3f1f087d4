// See credentials.h.
#include "server/credentials.h"

#include "base/errors.h"
#include "server/auth_file.h"
#include "server/notice.h"

#include <inttypes.h>

static int load_auth(const struct credentials *c, struct host *h) {
    struct auth *auth;
    int err = auth_load(c->auth, &auth);
    if (err < 0)
        return err;
    host_set_auth(h, auth);
    if (!auth_count(auth))
        notice(NOTICE_WARN, "%s has no tokens: no client can authenticate", c->auth);
    return 0;
}

static int load_tls(struct credentials *c) {
    struct tls_context *context;
    int err = tls_context_create(&c->tls, true, &context);
    if (err < 0)
        return err;
    tls_context_destroy(c->context);
    c->context = context;
    return 0;
}

int credentials_open(struct credentials *c, struct host *h) {
    int err = c->auth ? load_auth(c, h) : 0;
    if (err >= 0 && (c->tls.cert || c->tls.key || c->tls.ca))
        err = load_tls(c);
    return err;
}

enum { OVER_QUOTA_NOTICES = 10 }; // the first tokens that exceed their quotas

// The first of its quotas that a token exceeds; QUOTA_KINDS: none.
static enum quota_kind exceeded_quota(const struct auth_entry *e, const struct quotas *used) {
    int kind = 0;
    while (kind < QUOTA_KINDS &&
           (!e->quota.most.of[kind] || used->of[kind] <= e->quota.most.of[kind]))
        kind++;
    return (enum quota_kind)kind;
}

void credentials_note_exceeded(struct host *h) {
    size_t exceeded = 0;
    for (size_t i = 0; h->auth && i < auth_count(h->auth); i++) {
        const struct auth_entry *e = auth_at(h->auth, i);
        struct quotas used = { 0 };
        if (e->has_quota)
            usage_of(h->usage, e->maker, &used);
        enum quota_kind kind = exceeded_quota(e, &used);
        if (kind == QUOTA_KINDS || exceeded++ >= OVER_QUOTA_NOTICES)
            continue;
        notice(NOTICE_WARN,
               "token '%.*s' has %" PRIu64 " %s, above its max-%s of %" PRIu64
               ": it keeps them, and gets FULL until it has fewer",
               (int)e->name.size, (const char *)e->name.data, used.of[kind], quota_word(kind),
               quota_word(kind), e->quota.most.of[kind]);
    }
    if (exceeded > OVER_QUOTA_NOTICES)
        notice(NOTICE_WARN, "tokens that exceed their quotas as well: %zu",
               exceeded - OVER_QUOTA_NOTICES);
}

bool credentials_reload(struct credentials *c, struct host *h) {
    bool loaded = c->auth && load_auth(c, h) >= 0;
    if (!c->auth && !c->context)
        notice(NOTICE_INFO, "reload: there are no tokens and no certificates to read");
    if (c->auth && !loaded)
        notice(NOTICE_ERROR, "the old tokens stay in use: %s", error_text());
    else if (loaded)
        notice(NOTICE_INFO, "reloaded %zu token%s of %s", auth_count(h->auth),
               auth_count(h->auth) == 1 ? "" : "s", c->auth);
    if (loaded)
        credentials_note_exceeded(h);
    if (c->context && load_tls(c) < 0)
        notice(NOTICE_ERROR, "the old certificate stays in use: %s", error_text());
    else if (c->context)
        notice(NOTICE_INFO, "reloaded the certificate %s", c->tls.cert);
    return loaded;
}

void credentials_close(struct credentials *c) {
    tls_context_destroy(c->context);
    c->context = NULL;
}
