// millrace serve: reads its options, from flags and from a file, then runs the server. On SIGHUP it
// reads the file again.
#include "cli/serve.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/output.h"
#include "cli/values.h"
#include "cluster/node.h"
#include "core/route.h"
#include "log/replicated.h"
#include "millrace.h"
#include "server/limits.h"
#include "server/notice.h"
#include "server/server.h"
#include "server/systemd.h"
#include "web/web.h"

#include "base/errors.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { DRAIN_MS = 10000, CLIENTS_MOST = 1000000, LISTEN_TEXT = 256 };
enum { UNIX_MODE = 0600 }; // of the socket file: only this user connects

struct serving {
    const struct input *flags; // as they were given
    struct input in;           // and with those of the file
    struct config config;
    const struct serve_start *start;
    struct server_options options;
    char listen[LISTEN_TEXT]; // its parts, a zero behind each
    char host[PLACE_HOST], http_host[PLACE_HOST];
    char page[SERVE_URL]; // of the front; "": there is none
    enum notice_level level;
    bool json;
};

static const char *serve_option_or(const struct input *in, const char *name,
                                   const char *otherwise) {
    const char *value = input_option(in, name);
    return value ? value : otherwise;
}

static int read_cluster(struct input *in, struct server_options *o) {
    static const char *const only[] = { "--cluster", "--advertise", "--advertise-http",
                                        "--takeover", "--require-replication" };
    o->store_url.cluster = input_option(in, "--cluster");
    for (size_t i = 0; i < sizeof only / sizeof *only; i++)
        if (input_option(in, only[i]) && !store_is_replicated(&o->store_url))
            return input_refuse(in, only[i],
                                "it is for --store postgres://... and nats://... only");
    if (store_is_replicated(&o->store_url)) // the URL may contain a password
        o->store = o->store_url.scheme == STORE_IN_NATS ? "in NATS" : "in PostgreSQL";
    return 0;
}

// A value with an @ may be a URL with a secret, which is not to be repeated.
static int read_store(struct input *in, struct server_options *o) {
    o->store = serve_option_or(in, "--store", "file:./data");
    if (store_url_read(o->store, &o->store_url) == 0)
        return read_cluster(in, o);
    if (strchr(o->store, '@'))
        input_set(in, "--store", "...");
    return input_refuse(in, "--store", "this build knows " STORE_SCHEMES);
}

// Without tokens every client that can connect may do everything.
static int read_place(const struct input *in, const char *option, const char *value,
                      char host[PLACE_HOST], uint16_t *out_port) {
    int err = place_read(in, option, value, host, out_port);
    if (err < 0)
        return err;
    if (!place_is_loopback(host) && !input_option(in, "--insecure") && !input_option(in, "--auth"))
        return input_refuse(
            in, option,
            "every client that connects could do everything; make tokens (millrace "
            "auth add) and give --auth FILE, or add --insecure if that is intended");
    return 0;
}

static const char file_scheme[] = "unix:";

static int read_listen_part(const struct input *in, struct serving *s, const char *part) {
    struct server_options *o = &s->options;
    bool is_file = strncmp(part, file_scheme, sizeof file_scheme - 1) == 0;
    if (is_file ? o->unix_path != NULL : o->host != NULL)
        return input_refuse(in, "--listen", "it is HOST:PORT, unix:PATH, or one of each");
    if (is_file) {
        o->unix_path = part + sizeof file_scheme - 1;
        return 0;
    }
    o->host = s->host;
    return read_place(in, "--listen", part, s->host, &o->port);
}

static int read_unix_mode(const struct input *in, struct server_options *o) {
    const char *value = input_option(in, "--unix-mode");
    char *end = NULL;
    o->unix_mode = UNIX_MODE;
    if (!value)
        return 0;
    unsigned long mode = value[0] >= '0' && value[0] <= '7' ? strtoul(value, &end, 8) : 0;
    if (!mode || *end || mode & ~0777UL || (mode & UNIX_MODE) != UNIX_MODE)
        return input_refuse(in, "--unix-mode",
                            "it is octal, and this user has 6: 600, 660 for the group, 666 for "
                            "every user of this machine");
    if (!o->unix_path && mode != UNIX_MODE) // a file of options may name the default
        return input_refuse(in, "--unix-mode", "it is for --listen unix:PATH only");
    o->unix_mode = (uint32_t)mode;
    return 0;
}

// HOST:PORT, unix:PATH, or both with a comma between them.
static int read_listen(const struct input *in, struct serving *s) {
    const char *value = serve_option_or(in, "--listen", CLI_LISTEN);
    int err = 0;
    if (strlen(value) >= sizeof s->listen)
        return input_refuse(in, "--listen", "it is too long: a path has at most 107 bytes");
    snprintf(s->listen, sizeof s->listen, "%s", value);
    for (char *part = s->listen, *next; err == 0 && part; part = next) {
        next = strchr(part, ',');
        if (next)
            *next++ = 0;
        err = read_listen_part(in, s, part);
    }
    if (err == 0 && !s->options.host && store_is_replicated(&s->options.store_url))
        err = input_refuse(in, "--listen", "other nodes connect over TCP: HOST:PORT,unix:PATH");
    return err < 0 ? err : read_unix_mode(in, &s->options);
}

static int read_http(const struct input *in, struct serving *s) {
    struct server_options *o = &s->options;
    const char *value = serve_option_or(in, "--http", CLI_HTTP);
    o->front_asked = input_option(in, "--http") != NULL;
    o->front_names = input_option(in, "--http-name");
    if (strcmp(value, "off") == 0)
        return 0;
    if (!web_front() && o->front_asked)
        return input_refuse(in, "--http", "this build has no HTTP; it can only be off");
    o->front = web_front();
    o->front_host = s->http_host;
    return read_place(in, "--http", value, s->http_host, &o->front_port);
}

static int read_sync(const struct input *in, struct server_options *o) {
    const char *value = serve_option_or(in, "--sync", "always");
    char *end = NULL;
    if (strcmp(value, "always") == 0) {
        o->sync = LOG_SYNC_ALWAYS;
    } else if (strcmp(value, "none") == 0) {
        o->sync = LOG_SYNC_NONE;
    } else {
        unsigned long ms = strncmp(value, "interval:", 9) == 0 ? strtoul(value + 9, &end, 10) : 0;
        if (!ms || *end || ms > 3600000)
            return input_refuse(in, "--sync", "it is always, interval:MS (1 to 3600000) or none");
        o->sync = LOG_SYNC_INTERVAL;
        o->interval_ms = (uint32_t)ms;
    }
    return 0;
}

// `out` stays as it is when the option was not given.
static int serve_read_size(const struct input *in, const char *option, uint64_t most,
                           uint64_t *out) {
    const char *value = input_option(in, option);
    if (!value)
        return 0;
    if (size_read(value, most, out) < 0)
        return input_refuse(in, option, "it is a size such as 64k, 16M or 2G, and not too large");
    return 0;
}

static int read_count(const struct input *in, const char *option, uint32_t most, const char *what,
                      uint32_t *out) {
    const char *value = input_option(in, option);
    if (!value)
        return 0;
    char *end = NULL;
    uint64_t count = value[0] >= '0' && value[0] <= '9' ? strtoull(value, &end, 10) : 0;
    if (!count || *end || count > most)
        return input_refuse(in, option, what);
    *out = (uint32_t)count;
    return 0;
}

static int read_clients(const struct input *in, const char *option, uint32_t *out) {
    return read_count(in, option, CLIENTS_MOST, "it is a number of connections, from 1 to 1000000",
                      out);
}

static int serve_read_timeout(const struct input *in, const char *option, uint64_t *out_ms) {
    const char *value = input_option(in, option);
    int64_t ms = 0;
    if (value && duration_read(value, &ms) < 0)
        return input_refuse(in, option, "it is a duration such as 250ms, 30s, 5m or 2h");
    *out_ms = (uint64_t)ms;
    return 0;
}

// Options that are not given stay zero, which means the default.
static int read_limits(const struct input *in, struct server_options *o) {
    int err = serve_read_size(in, "--max-bytes", UINT64_MAX >> 1, &o->max_bytes);
    if (err == 0)
        err = serve_read_size(in, "--max-client-bytes", UINT64_MAX >> 1, &o->max_client_bytes);
    if (err == 0)
        err = read_clients(in, "--max-clients", &o->max_clients);
    if (err == 0)
        err = read_clients(in, "--max-per-address", &o->max_per_address);
    if (err == 0)
        err = serve_read_timeout(in, "--max-idle", &o->max_idle_ms);
    return err < 0 ? err : serve_read_timeout(in, "--max-unread", &o->max_unread_ms);
}

static int read_log(const struct input *in, struct serving *s) {
    s->json = input_option(in, "--log-json") != NULL;
    if (!notice_level_read(serve_option_or(in, "--log-level", "info"), &s->level))
        return input_refuse(in, "--log-level", "it is error, warn, info or debug");
    return 0;
}

static int read_credentials(const struct input *in, struct server_options *o) {
    o->auth = input_option(in, "--auth");
    o->tls = (struct tls_files){ .cert = input_option(in, "--tls-cert"),
                                 .key = input_option(in, "--tls-key"),
                                 .ca = input_option(in, "--tls-ca") };
    bool whole = o->tls.cert && o->tls.key;
    if (!whole && (o->tls.cert || o->tls.key || o->tls.ca))
        return error_set(MR_EINVAL, "TLS needs both --tls-cert and --tls-key");
    return 0;
}

// No client can connect to an address that stands for all addresses of the machine: the notice then
// has the loopback address, and mentions the others.
static bool stands_for_all(const char *host) {
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static const char *reachable(const char *host) {
    return !stands_for_all(host) ? host : strchr(host, ':') ? "::1" : "127.0.0.1";
}

static const char *elsewhere(const char *host) {
    return stands_for_all(host) ? " (from elsewhere: any address or name of this machine)" : "";
}

static void report_ready(const struct serving *s, const char *host, uint16_t port) {
    const struct server_options *o = &s->options;
    char url[SERVE_URL] = "", place[PLACE_TEXT];
    if (host)
        snprintf(url, sizeof url, "millrace%s://%s", o->tls.cert ? "s" : "",
                 place_write(reachable(host), port, place));
    else
        snprintf(url, sizeof url, "unix:%s", o->unix_path);
    if (s->start->ready)
        s->start->ready(s->start->arg, url, s->page);
    bool both = host && o->unix_path;
    notice(NOTICE_INFO, "ready: store %s, clients connect to %s%s%s%s", o->store, url,
           host ? elsewhere(host) : "", both ? " or unix:" : "", both ? o->unix_path : "");
}

static void report_listening(const struct serving *s, const char *host, uint16_t port) {
    const struct server_options *o = &s->options;
    char place[PLACE_TEXT] = "";
    if (host)
        place_write(host, port, place);
    notice(NOTICE_INFO, "millrace %s listens on %s%s%s%s%s%s", mr_version(), place,
           host && o->unix_path ? " and " : "", o->unix_path ? file_scheme : "",
           o->unix_path ? o->unix_path : "", o->auth ? ", asks for tokens" : "",
           host && o->tls.cert ? ", encrypts" : "");
}

static void on_ready(void *arg, const char *host, uint16_t port, bool loaded) {
    const struct serving *s = arg;
    if (loaded)
        report_ready(s, host, port);
    else
        report_listening(s, host, port);
    if (!loaded && host && !place_is_loopback(host) && !s->options.tls.cert)
        notice(NOTICE_WARN, "secrets and jobs travel in the clear: --tls-cert and --tls-key would "
                            "encrypt them");
}

static void on_serve_stop(void *arg) {
    const struct serving *s = arg;
    if (s->start->stop)
        s->start->stop(s->start->arg);
}

static void on_http(void *arg, const char *host, uint16_t port) {
    struct serving *s = arg;
    char place[PLACE_TEXT];
    snprintf(s->page, sizeof s->page, "%s://%s/", s->options.tls.cert ? "https" : "http",
             place_write(reachable(host), port, place));
    notice(NOTICE_INFO, "page, metrics and API: %s%s", s->page, elsewhere(host));
}

static int read_loops(const struct input *in, struct server_options *o) {
    const char *value = input_option(in, "--loops");
    if (value && strcmp(value, "auto") == 0) {
        o->loops = SERVER_LOOPS_AUTO;
        return 0;
    }
    return read_count(in, "--loops", LOOPS_MOST, "it is a number from 1 to 64, or auto", &o->loops);
}

static int read_poll(const struct input *in, struct server_options *o) {
    const char *value = serve_option_or(in, "--poll", "on");
    o->no_polling = strcmp(value, "off") == 0;
    if (!o->no_polling && strcmp(value, "on") != 0)
        return input_refuse(in, "--poll", "it is on or off");
    return 0;
}

static int read_values(struct input *in, struct serving *s) {
    uint64_t max_body = BODY_MOST;
    int err = read_log(in, s);
    if (err == 0)
        err = serve_read_size(in, "--max-body", BODY_MOST, &max_body);
    if (err == 0)
        err = read_limits(in, &s->options);
    if (err == 0)
        err = read_credentials(in, &s->options);
    if (err == 0)
        err = read_store(in, &s->options);
    if (err == 0)
        err = read_count(in, "--shards", SHARDS_MOST, "it is a number from 1 to 64",
                         &s->options.shards);
    if (err == 0)
        err = read_loops(in, &s->options);
    if (err == 0)
        err = read_poll(in, &s->options);
    if (err == 0)
        err = read_sync(in, &s->options);
    if (err == 0)
        err = read_listen(in, s);
    if (err == 0)
        err = read_http(in, s);
    s->options.max_body = (uint32_t)max_body;
    return err;
}

static void on_reload(void *arg);

// What `out` points to is its own, and that of the flags.
static int serve_read_options(const struct input *flags, struct serving *out) {
    *out = (struct serving){ .flags = flags,
                             .in = *flags,
                             .options = { .on_ready = on_ready,
                                          .on_front = on_http,
                                          .on_stop = on_serve_stop,
                                          .on_reload = on_reload } };
    int err = config_read(&out->in, &out->config);
    if (err == 0)
        err = read_values(&out->in, out);
    if (err < 0)
        config_finish(&out->config);
    return err;
}

// ---- Reloading --------------------------------------------------------------------------------

static bool is_same(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

// These take effect at once, the others with the next start.
static bool is_live(const char *option) {
    return strcmp(option, "--log-level") == 0 || strcmp(option, "--log-json") == 0;
}

static void note_changes(const struct serving *before, const struct serving *now) {
    const struct cli_option *options = now->in.command->options;
    for (int i = 0; options[i].name; i++)
        if (!is_live(options[i].name) && !is_same(before->in.values[i], now->in.values[i]))
            notice(NOTICE_WARN,
                   "%s has changed in %s: it takes effect when the server is restarted",
                   options[i].name + 2, now->in.file);
}

static void on_reload(void *arg) {
    const struct serving *s = arg;
    struct serving now;
    if (s->start->ends_on_hangup) {
        raise(SIGTERM);
        return;
    }
    if (serve_read_options(s->flags, &now) < 0) {
        notice(NOTICE_ERROR, "not reloaded: %s", error_text());
        return;
    }
    notice_set(now.level, now.json);
    note_changes(s, &now);
    notice(NOTICE_INFO, "reloaded");
    config_finish(&now.config);
}

// ---- The command ------------------------------------------------------------------------------

// The exit code shows whether a restart may help: an address may become free, another process may
// close the store, a disk may be repaired. Wrong options, credentials and damage stay until an
// operator corrects them. The unit in tools/systemd relies on these codes.
static enum cli_exit serve_exit_of(int err) {
    return err >= 0                             ? CLI_DONE
           : err == MR_ECORRUPT                 ? CLI_FAILED
           : err == MR_EINVAL                   ? CLI_USAGE
           : err == MR_EAUTH || err == MR_EPERM ? CLI_REFUSED
                                                : CLI_UNOPENED;
}

// A core dump would contain secrets and jobs, and stay in the directory that the server was started
// in.
static void leave_no_core(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) == 0) {
        limit.rlim_cur = 0; // the hard limit stays: prlimit can undo it
        (void)setrlimit(RLIMIT_CORE, &limit);
    }
}

static int serve_store(const struct serving *s) {
    if (!store_is_replicated(&s->options.store_url))
        return server_run(&s->options);
    struct node_options o = { .server = &s->options,
                              .address = input_option(&s->in, "--advertise"),
                              .http = input_option(&s->in, "--advertise-http"),
                              .requires_replication =
                                  input_option(&s->in, "--require-replication") != NULL };
    int err = serve_read_timeout(&s->in, "--takeover", &o.takeover_ms);
    if (err == 0 && o.takeover_ms && o.takeover_ms < NODE_TAKEOVER_LEAST_MS)
        err = input_refuse(&s->in, "--takeover", "it is one second or more");
    return err < 0 ? err : node_run(&o);
}

enum cli_exit serve_with(const struct input *flags, const struct serve_start *start) {
    struct serving s;
    int err = serve_read_options(flags, &s);
    if (err < 0) {
        complain("%s: %s", start->command, error_text());
        return err == MR_ENOMEM ? CLI_UNOPENED : CLI_USAGE;
    }
    leave_no_core();
    notice_set(s.level, s.json);
    s.start = start;
    if (s.options.host)
        s.options.listen_fd = start->listen_fd;
    else
        s.options.unix_fd = start->listen_fd;
    s.options.front_fd = start->http_fd;
    s.options.drain_ms = start->drain_ms;
    s.options.arg = &s;
    err = serve_store(&s);
    if (err < 0)
        complain("%s: %s", start->command, error_text());
    else
        notice(NOTICE_INFO, "closed");
    config_finish(&s.config);
    return serve_exit_of(err);
}

// A socket from systemd counts as if its address had been given.
enum cli_exit serve_run(const struct input *in) {
    struct input flags = *in;
    char address[SYSTEMD_ADDRESS];
    int fd = 0;
    if (systemd_socket(&fd, address) < 0) {
        complain("serve: %s", error_text());
        return CLI_USAGE;
    }
    if (fd)
        input_set(&flags, "--listen", address);
    struct serve_start start = { .command = "serve", .listen_fd = fd, .drain_ms = DRAIN_MS };
    return serve_with(&flags, &start);
}
