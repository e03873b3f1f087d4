// See engine.h.
#include "cli/engine.h"

#include "base/errors.h"
#include "cli/output.h"
#include "cli/secret.h"
#include "wire/code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- Its address ------------------------------------------------------------------------------

static const char *engine_option_or(const struct input *in, const char *option,
                                    const char *variable) {
    const char *value = input_option(in, option);
    if (!value)
        value = getenv(variable);
    return value && *value ? value : NULL;
}

const char *address_option(const struct input *in, char out[ADDRESS_OPTION]) {
    const char *given = input_option(in, "--at");
    struct engine_url u;
    out[0] = 0;
    if (given && *given && url_read(given, &u) == 0)
        snprintf(out, ADDRESS_OPTION, " --at %s", u.where);
    return out;
}

// Those of the environment may stand there for other engines.
static int check_certificates(const struct input *in, const struct address *a) {
    bool given = input_option(in, "--tls-ca") || input_option(in, "--tls-cert") ||
                 input_option(in, "--tls-key");
    if (a->url.secure || !given)
        return 0;
    return error_set(MR_EINVAL, "certificates are of no use without TLS: millraces://HOST:PORT");
}

int address_read(const struct input *in, struct address *out) {
    const char *url = engine_option_or(in, "--at", "MILLRACE_URL");
    return address_read_url(in, url ? url : CLI_URL, out);
}

int address_read_url(const struct input *in, const char *url, struct address *out) {
    *out = (struct address){ .text = url };
    int err = url_read(out->text, &out->url);
    if (err == 0)
        err = check_certificates(in, out);
    if (err == 0 && out->url.secret[0])
        memcpy(out->secret, out->url.secret, sizeof out->secret);
    else if (err == 0)
        err = secret_find(out->secret, sizeof out->secret);
    if (err == 0 && out->url.secure)
        out->tls =
            (struct tls_files){ .cert = engine_option_or(in, "--tls-cert", "MILLRACE_TLS_CERT"),
                                .key = engine_option_or(in, "--tls-key", "MILLRACE_TLS_KEY"),
                                .ca = engine_option_or(in, "--tls-ca", "MILLRACE_TLS_CA") };
    if (err < 0)
        out->text = NULL;
    return err;
}

bool address_is_local(const struct input *in) {
    struct address address;
    return address_read(in, &address) == 0 && address.url.local;
}

int address_check_store(const struct address *a, enum engine_store store) {
    const char *dir = store_url_dir(&a->url.store);
    if (!dir || store == STORE_IS_MADE || access(dir, F_OK) == 0)
        return 0;
    return error_set(MR_EGONE, "there is no store in %.400s", dir);
}

// ---- Errors -----------------------------------------------------------------------------------

enum cli_exit exit_of_code(enum code code) {
    switch (code) {
    case CODE_ERR:
    case CODE_EXECABORT:
    case CODE_TOOBIG:
        return CLI_USAGE;
    case CODE_FULL:
        return CLI_FULL;
    case CODE_NOAUTH:
    case CODE_WRONGPASS:
    case CODE_NOPERM:
    case CODE_DRAINING:
        return CLI_REFUSED;
    case CODE_EXPIRED:
        return CLI_DEADLINE;
    case CODE_CANCELLED:
    case CODE_DEAD:
    case CODE_GONE:
    case CODE_GAP:
    case CODE_STALE:
    case CODE_BUSY:
        return CLI_FAILED;
    case CODE_NOPROTO:
    case CODE_LOADING:
    case CODE_STOPPED:
    case CODES:
        break;
    }
    return CLI_UNOPENED;
}

enum cli_exit exit_of_error(int err) {
    if (err == MR_EAUTH)
        return CLI_REFUSED;
    for (enum code code = 0; code < CODES; code++)
        if (code_error(code) == err)
            return exit_of_code(code);
    return CLI_UNOPENED;
}

// ---- Opening ----------------------------------------------------------------------------------

int engine_open_url(const char *url, const mr_options *options, int signals, mr **out) {
    struct listener listener;
    int err = listener_begin(&listener, signals);
    if (err < 0)
        return err;
    err = mr_open(url, options, out);
    listener_end(&listener);
    return err;
}

int engine_open(const struct address *a, const char *name, int signals, mr **out) {
    mr_options options = { .user = a->url.user[0] ? a->url.user : NULL,
                           .secret = a->secret[0] ? a->secret : NULL,
                           .tls_ca = a->tls.ca,
                           .tls_cert = a->tls.cert,
                           .tls_key = a->tls.key,
                           .name = name };
    return engine_open_url(a->text, &options, signals, out);
}

enum cli_exit engine_unopened(const char *command, const struct address *a, int err) {
    bool is_token_missing = err == MR_EAUTH && !a->secret[0];
    complain("%s: %s", command, is_token_missing ? ENGINE_TOKEN : error_text());
    if (!a->text)
        return CLI_USAGE;
    return err == MR_EAUTH || err == MR_EPERM || err == MR_EFULL ? exit_of_error(err)
                                                                 : CLI_UNOPENED;
}

// ---- For a few calls --------------------------------------------------------------------------

static int open_listening(struct engine_use *u, const char *name) {
    u->signals = interrupts_open();
    if (u->signals < 0)
        return u->signals;
    int err = engine_open(&u->address, name, u->signals, &u->engine);
    if (err >= 0)
        err = listener_begin(&u->listener, u->signals);
    if (err < 0)
        close(u->signals);
    return err;
}

enum cli_exit engine_begin(const struct input *in, enum engine_store store, struct engine_use *u) {
    char name[64];
    *u = (struct engine_use){ .command = in->command->name };
    snprintf(name, sizeof name, "millrace-%s", u->command);
    int err = address_read(in, &u->address);
    if (err >= 0)
        err = address_check_store(&u->address, store);
    if (err >= 0)
        err = open_listening(u, name);
    if (err >= 0)
        return CLI_DONE;
    enum cli_exit code = engine_unopened(u->command, &u->address, err);
    (void)mr_close(u->engine); // nothing uses it
    return code;
}

void engine_end(struct engine_use *u) {
    if (mr_close(u->engine) < 0)
        complain("%s: %s", u->command, error_text());
    listener_end(&u->listener);
    close(u->signals);
}

enum cli_exit engine_failed(const struct engine_use *u, int err) {
    complain("%s: %s", u->command, error_text());
    return exit_of_error(err);
}

// ---- Using it ---------------------------------------------------------------------------------

bool engine_is_lost(const struct engine_state *s) {
    return s->trouble == MR_EPERM || (s->trouble == MR_ESTOPPED && s->local);
}

bool engine_news(struct engine_state *s, char *out, size_t size) {
    bool was_well = s->trouble == 0, was_lost = engine_is_lost(s);
    s->trouble = mr_check(s->engine);
    bool is_well = s->trouble == 0, is_lost = engine_is_lost(s);
    if (is_well == was_well && is_lost == was_lost)
        return false;
    snprintf(out, size, "%s%s", is_well || is_lost ? "" : ENGINE_AGAIN,
             is_well ? ENGINE_BACK : mr_error());
    return true;
}
