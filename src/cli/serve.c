// millrace serve: reads its options, then runs the server.
#include "base/limits.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "millrace.h"
#include "server/notice.h"
#include "server/server.h"

#include "base/errors.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { DRAIN_MS = 10000, HOST_MOST = 64 };

struct serving {
    struct server_options options;
    char host[HOST_MOST];
};

static bool refuse(const char *option, const char *value, const char *what) {
    complain("serve: '%s' cannot be %s: %s", value, option, what);
    return false;
}

static bool read_store(const char *url, struct server_options *o) {
    o->store = url;
    if (strcmp(url, "mem:") == 0)
        return true;
    if (strncmp(url, "file:", 5) == 0 && url[5]) {
        o->dir = url + 5;
        return true;
    }
    return refuse("--store", strchr(url, '@') ? "..." : url, "it is mem: or file:DIR");
}

static bool is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

static bool read_listen(const char *value, bool insecure, struct serving *s) {
    const char *colon = strrchr(value, ':');
    char *end = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    size_t size = colon ? (size_t)(colon - value) : 0;
    if (!colon || !colon[1] || *end || port > UINT16_MAX || !size || size >= sizeof s->host)
        return refuse("--listen", value, "it is HOST:PORT, such as " CLI_LISTEN);
    bool brackets = value[0] == '[' && value[size - 1] == ']';
    memcpy(s->host, value + brackets, size - 2 * brackets);
    s->host[size - 2 * brackets] = 0;
    if (strcmp(s->host, "localhost") == 0)
        snprintf(s->host, sizeof s->host, "127.0.0.1");
    uint8_t raw[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, s->host, raw) != 1 && inet_pton(AF_INET6, s->host, raw) != 1)
        return refuse("--listen", value, "HOST is an address of this machine, in digits");
    if (!is_loopback(s->host) && !insecure && !s->options.auth)
        return refuse("--listen", value,
                      "anybody who reaches it could do everything; make tokens (millrace auth add) "
                      "and give --auth FILE, or add --insecure if that is meant");
    s->options.host = s->host;
    s->options.port = (uint16_t)port;
    return true;
}

static bool read_sync(const char *value, struct server_options *o) {
    char *end = NULL;
    if (strcmp(value, "always") == 0) {
        o->sync = LOG_SYNC_ALWAYS;
    } else if (strcmp(value, "none") == 0) {
        o->sync = LOG_SYNC_NONE;
    } else {
        unsigned long ms = strncmp(value, "interval:", 9) == 0 ? strtoul(value + 9, &end, 10) : 0;
        if (!ms || *end || ms > 3600000)
            return refuse("--sync", value, "it is always, interval:MS (1 to 3600000) or none");
        o->sync = LOG_SYNC_INTERVAL;
        o->interval_ms = (uint32_t)ms;
    }
    return true;
}

static bool read_size(const char *option, const char *value, uint64_t most, uint64_t *out) {
    char *end = NULL;
    uint64_t size = value[0] >= '0' && value[0] <= '9' ? strtoull(value, &end, 10) : 0;
    int shift = !end || !*end        ? 0
                : strchr("kK", *end) ? 10
                : strchr("mM", *end) ? 20
                : strchr("gG", *end) ? 30
                                     : -1;
    if (!size || shift < 0 || (shift && end[1]) || size > most >> shift)
        return refuse(option, value, "it is a size such as 64k, 16M or 2G, and not too large");
    *out = size << shift;
    return true;
}

static bool read_credentials(const struct input *in, struct server_options *o) {
    o->auth = input_option(in, "--auth");
    o->tls = (struct tls_files){ .cert = input_option(in, "--tls-cert"),
                                 .key = input_option(in, "--tls-key"),
                                 .ca = input_option(in, "--tls-ca") };
    bool whole = o->tls.cert && o->tls.key;
    if (!whole && (o->tls.cert || o->tls.key || o->tls.ca)) {
        complain("serve: TLS needs both --tls-cert and --tls-key");
        return false;
    }
    return true;
}

static void on_ready(void *arg, const char *host, uint16_t port, bool loaded) {
    const struct server_options *o = arg;
    bool v6 = strchr(host, ':') != NULL;
    char place[HOST_MOST + 16];
    snprintf(place, sizeof place, "%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", port);
    if (loaded)
        notice(NOTICE_INFO, "ready: store %s, clients connect to millrace://%s", o->store, place);
    else
        notice(NOTICE_INFO, "millrace %s listens on %s%s%s", mr_version(), place,
               o->auth ? ", asks for tokens" : "", o->tls.cert ? ", encrypts" : "");
    if (!loaded && !is_loopback(host) && !o->tls.cert)
        notice(NOTICE_WARN, "secrets and jobs travel in the clear: --tls-cert and --tls-key would "
                            "encrypt them");
}

static bool read_options(const struct input *in, struct serving *s) {
    const char *store = input_option(in, "--store"), *where = input_option(in, "--listen");
    const char *sync = input_option(in, "--sync"), *log = input_option(in, "--log");
    const char *body = input_option(in, "--max-body"), *bytes = input_option(in, "--max-bytes");
    enum notice_level level = NOTICE_INFO;
    uint64_t max_body = BODY_MOST;
    if (log && !notice_level_read(log, &level))
        return refuse("--log", log, "it is error, warn, info or debug");
    notice_set(level, input_option(in, "--log-json") != NULL);
    if (body && !read_size("--max-body", body, BODY_MOST, &max_body))
        return false;
    if (bytes && !read_size("--max-bytes", bytes, UINT64_MAX >> 1, &s->options.max_bytes))
        return false;
    s->options.max_body = (uint32_t)max_body;
    return read_credentials(in, &s->options) &&
           read_store(store ? store : "file:./data", &s->options) &&
           read_sync(sync ? sync : "always", &s->options) &&
           read_listen(where ? where : CLI_LISTEN, input_option(in, "--insecure") != NULL, s);
}

// A connection is a descriptor: as many as the system lets it have.
static void raise_files(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files); // then there are fewer
}

enum cli_exit serve_run(const struct input *in) {
    struct serving s = { .options = { .drain_ms = DRAIN_MS, .on_ready = on_ready } };
    if (!read_options(in, &s))
        return CLI_USAGE;
    s.options.arg = &s.options;
    raise_files();
    int err = server_run(&s.options);
    if (err < 0) {
        complain("serve: %s", error_text());
        return CLI_UNOPENED;
    }
    notice(NOTICE_INFO, "closed");
    return CLI_DONE;
}
