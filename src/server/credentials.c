// See credentials.h.
#include "server/credentials.h"

#include "base/errors.h"
#include "server/auth_file.h"
#include "server/notice.h"

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

bool credentials_reload(struct credentials *c, struct host *h) {
    bool loaded = c->auth && load_auth(c, h) >= 0;
    if (!c->auth && !c->context)
        notice(NOTICE_INFO, "reload: there are no tokens and no certificates to read");
    if (c->auth && !loaded)
        notice(NOTICE_ERROR, "the old tokens stay in use: %s", error_text());
    else if (loaded)
        notice(NOTICE_INFO, "reloaded %zu tokens of %s", auth_count(h->auth), c->auth);
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
