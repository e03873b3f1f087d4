// Opening by URL, closing, and the two calls that need no engine.
#include "api/handle.h"
#include "base/errors.h"
#include "client/client.h"
#include "wire/url.h"

#include <stdio.h>
#include <stdlib.h>

enum { INTERVAL_MOST_MS = 3600 * 1000 };

const char *mr_error(void) {
    return error_text();
}

const char *mr_version(void) {
    return MILLRACE_VERSION;
}

// ---- Options ----------------------------------------------------------------------------------

static int parse_interval(const char *sync, const char *digits, struct local_options *out) {
    char *end;
    unsigned long ms = strtoul(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || *end || ms < 1 || ms > INTERVAL_MOST_MS)
        return error_set(MR_EINVAL, "sync '%.50s': the interval is 1 to %d milliseconds", sync,
                         INTERVAL_MOST_MS);
    out->sync = ENGINE_SYNC_INTERVAL;
    out->interval_ms = (uint32_t)ms;
    return 0;
}

static int parse_sync(const char *sync, struct local_options *out) {
    static const char interval[] = "interval:";
    if (!sync || strcmp(sync, "always") == 0)
        out->sync = ENGINE_SYNC_ALWAYS;
    else if (strcmp(sync, "none") == 0)
        out->sync = ENGINE_SYNC_NONE;
    else if (strncmp(sync, interval, sizeof interval - 1) == 0)
        return parse_interval(sync, sync + sizeof interval - 1, out);
    else
        return error_set(MR_EINVAL, "sync '%.50s' is none of always, interval:MS, none", sync);
    return 0;
}

static int parse_options(const mr_options *o, struct local_options *out) {
    out->shards = o->shards;
    out->max_bytes = o->max_bytes;
    return parse_sync(o->sync, out);
}

// ---- Opening and closing ----------------------------------------------------------------------

static int open_local(const struct store_url *store, const mr_options *o, struct engine **out) {
    struct local_options local = { .store = *store };
    int err = parse_options(o, &local);
    return err < 0 ? err : local_engine_open(&local, out);
}

static int open_remote(const char *url, const mr_options *o, struct engine **out) {
    if (o->sync || o->max_bytes || o->shards > 1)
        return error_set(MR_EINVAL, "sync, max_bytes and shards are the server's: give them to "
                                    "millrace serve");
    struct client_options client = { .user = o->user,
                                     .secret = o->secret,
                                     .name = o->name,
                                     .tls = { o->tls_cert, o->tls_key, o->tls_ca } };
    return client_open(url, &client, out);
}

static int open_by_scheme(const char *url, const mr_options *o, mr *m) {
    struct engine_url u;
    int err = url_read(url, &u);
    if (err >= 0)
        err = u.local ? open_local(&u.store, o, &m->engine) : open_remote(url, o, &m->engine);
    if (err < 0)
        return err;
    struct puller_options by_caller = { 0 };
    err = m->engine->impl->puller_open(m->engine, &by_caller, &m->puller);
    if (err < 0) {
        m->engine->impl->close(m->engine);
        m->engine = NULL;
    }
    return err;
}

int mr_open(const char *url, const mr_options *options, mr **out) {
    static const mr_options defaults;
    options = options ? options : &defaults;
    int err = check_pointer("the URL", url);
    if (err >= 0)
        err = check_pointer("the place for the engine", out);
    if (err >= 0)
        err =
            check_reserved(options->reserved, sizeof options->reserved / sizeof *options->reserved);
    if (err < 0)
        return err;
    mr *m = handle_engine();
    if (!m)
        return MR_EFULL;
    err = open_by_scheme(url, options, m);
    if (err < 0) {
        atomic_store(&m->open, false);
        return err;
    }
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return 0;
}

int mr_close(mr *m) {
    if (!m)
        return 0;
    int err = check_open_engine(m);
    if (err < 0)
        return err;
    ahead_finish(m);
    err = m->engine->impl->close(m->engine);
    if (err < 0)
        return err;
    m->engine = NULL;
    m->puller = NULL;
    pthread_mutex_destroy(&m->lock);
    atomic_store(&m->open, false);
    return 0;
}
