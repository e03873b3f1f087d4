// millrace auth add, list, remove: the file of tokens of a server.
#include "base/errors.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/values.h"
#include "server/auth_file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_FILE "millrace.auth"

static const char *file_of(const struct input *in) {
    const char *path = input_option(in, "--auth");
    return path ? path : DEFAULT_FILE;
}

static enum cli_exit report_failed(const struct input *in, int err) {
    complain("%s: %s", in->command->name, error_text());
    return err == MR_EINVAL ? CLI_USAGE : err == MR_EGONE ? CLI_FAILED : CLI_UNOPENED;
}

static enum cli_exit out_failed(const char *path) {
    complain("auth add: cannot write --out %s: %s", path, strerror(errno));
    return CLI_UNOPENED;
}

// Creates the file of --out before the token exists. An existing file is left alone: it may hold
// a secret that is in use. Sets `*out` to NULL without --out.
static enum cli_exit secret_file_create(const char *path, FILE **out) {
    *out = NULL;
    if (!path)
        return CLI_DONE;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) {
        complain("auth add: --out %s exists already; remove it or name another file", path);
        return CLI_USAGE;
    }
    *out = fd < 0 ? NULL : fdopen(fd, "w");
    return *out ? CLI_DONE : out_failed(path);
}

static enum cli_exit secret_file_write(FILE *file, const char *path, const char *secret) {
    bool failed = fprintf(file, "%s\n", secret) < 0 || fflush(file) != 0 || fsync(fileno(file)) < 0;
    failed = fclose(file) != 0 || failed;
    return failed ? out_failed(path) : CLI_DONE;
}

// Without --out the secret goes to stdout, alone, so that a script can capture it.
static enum cli_exit secret_deliver(const struct input *in, FILE *file, const char *secret) {
    const char *path = input_option(in, "--out"), *name = in->arguments[0];
    enum cli_exit code = CLI_DONE;
    if (file)
        code = secret_file_write(file, path, secret);
    else
        printf("%s\n", secret);
    if (code != CLI_DONE) {
        (void)unlink(path);
        if (auth_remove(file_of(in), mr_str(name)) < 0)
            complain("auth add: remove '%s' with millrace auth remove: %s", name, error_text());
        return code;
    }
    complain("auth add: %s the secret of '%s', which is stored nowhere else; a running server "
             "reads the new token on SIGHUP",
             file ? "the file has" : "this is", name);
    return CLI_DONE;
}

// Reads the name or number of a user or group; numbers need not be known here. False: a message was
// printed.
static bool id_read(const struct input *in, const char *option, struct auth_words *out) {
    const char *text = input_option(in, option);
    bool is_user = strcmp(option, "--user") == 0;
    const struct passwd *user = is_user ? getpwnam(text) : NULL;
    const struct group *group = is_user ? NULL : getgrnam(text);
    uint64_t id = user ? user->pw_uid : group ? group->gr_gid : 0;
    const char *what = option + 2;
    bool is_number = *text >= '0' && *text <= '9';
    if (!user && !group && !is_number) {
        complain("auth add: this machine has no %s '%.60s'", what, text);
        return false;
    }
    if (!user && !group && !input_count(in, option, UINT32_MAX - 1, &id))
        return false;
    out->proof = is_user ? PROOF_USER : PROOF_GROUP;
    out->id = (uint32_t)id;
    return true;
}

// Sets what proves that a client may use the token: with --user or --group no secret.
static bool proof_read(const struct input *in, struct auth_words *out) {
    const char *user = input_option(in, "--user"), *group = input_option(in, "--group");
    if (!user && !group)
        return true;
    if (user && group)
        complain("auth add: --user and --group cannot be combined: make two tokens");
    else if (input_option(in, "--out"))
        complain("auth add: there is no secret for --out with %s", user ? "--user" : "--group");
    else
        return id_read(in, user ? "--user" : "--group", out);
    return false;
}

static enum cli_exit id_report(const struct auth_words *w) {
    complain("auth add: processes of %s %" PRIu32 " are '%.*s' if they connect by a Unix-domain "
             "socket, without a secret; a running server reads the new token on SIGHUP",
             proof_word(w->proof), w->id, (int)w->name.size, (const char *)w->name.data);
    return CLI_DONE;
}

enum { QUOTA_OPTION = 128 }; // characters of a quota's word

// Turns --max-jobs 1000 into the word max-jobs=1000 of the file.
static void quotas_read(const struct input *in, char words[QUOTA_KINDS][QUOTA_OPTION],
                        struct auth_words *out) {
    for (int i = 0; i < QUOTA_KINDS; i++) {
        char option[32];
        (void)snprintf(option, sizeof option, "--max-%s", quota_word((enum quota_kind)i));
        const char *value = input_option(in, option);
        (void)snprintf(words[i], QUOTA_OPTION, "%s=%s", option + 2, value ? value : "");
        out->quotas[i] = mr_str(value ? words[i] : "");
    }
}

enum cli_exit auth_add_run(const struct input *in) {
    const char *role = input_option(in, "--role"), *stages = input_option(in, "--stages");
    const char *path = input_option(in, "--out");
    char secret[AUTH_SECRET + 1], quotas[QUOTA_KINDS][QUOTA_OPTION];
    FILE *file;
    if (!role) {
        complain("auth add: which --role? push, work, read, admin or several of them: push,read");
        return CLI_USAGE;
    }
    struct auth_words words = { .name = mr_str(in->arguments[0]),
                                .roles = mr_str(role),
                                .patterns = mr_str(stages ? stages : "*") };
    quotas_read(in, quotas, &words);
    if (!proof_read(in, &words))
        return CLI_USAGE;
    enum cli_exit code = secret_file_create(path, &file);
    if (code != CLI_DONE)
        return code;
    int err = auth_add(file_of(in), &words, secret);
    if (err < 0 && file) {
        (void)fclose(file);
        (void)unlink(path);
    }
    if (err < 0)
        return report_failed(in, err);
    return words.proof == PROOF_SECRET ? secret_deliver(in, file, secret) : id_report(&words);
}

enum cli_exit auth_remove_run(const struct input *in) {
    int err = auth_remove(file_of(in), mr_str(in->arguments[0]));
    if (err < 0)
        return report_failed(in, err);
    complain("auth remove: a running server reads the change on SIGHUP");
    return CLI_DONE;
}

static void roles_write(uint32_t roles, char *to, size_t room) {
    static const enum role all[] = { ROLE_PUSH, ROLE_WORK, ROLE_READ, ROLE_ADMIN };
    size_t used = 0;
    to[0] = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (roles & all[i])
            used += (size_t)snprintf(to + used, room - used, "%s%s", used ? "," : "",
                                     role_name(all[i]));
}

static void auth_print_json(const struct auth *auth) {
    struct json j = { 0 };
    char roles[64], name[32];
    json_open(&j, NULL, '[');
    for (size_t i = 0; i < auth_count(auth); i++) {
        const struct auth_entry *e = auth_at(auth, i);
        roles_write(e->roles, roles, sizeof roles);
        json_open(&j, NULL, '{');
        json_bytes(&j, "name", e->name);
        json_text(&j, "roles", roles);
        json_bytes(&j, "stages", e->patterns);
        if (proof_word(e->proof))
            json_number(&j, proof_word(e->proof), e->id);
        for (int k = 0; k < QUOTA_KINDS; k++) {
            (void)snprintf(name, sizeof name, "max-%s", quota_word((enum quota_kind)k));
            if (e->quota.most.of[k])
                json_number(&j, name, e->quota.most.of[k]);
        }
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_end(&j);
}

static void print_rows(const struct auth *auth) {
    char roles[64];
    int widest = 4;
    for (size_t i = 0; i < auth_count(auth); i++)
        if ((int)auth_at(auth, i)->name.size > widest)
            widest = (int)auth_at(auth, i)->name.size;
    printf("%-*s  %-20s  %s\n", widest, "name", "roles", "stages, user or group, quotas");
    for (size_t i = 0; i < auth_count(auth); i++) {
        const struct auth_entry *e = auth_at(auth, i);
        roles_write(e->roles, roles, sizeof roles);
        printf("%-*.*s  %-20s  %.*s", widest, (int)e->name.size, (const char *)e->name.data, roles,
               (int)e->patterns.size, (const char *)e->patterns.data);
        if (proof_word(e->proof))
            printf(" %s:%" PRIu32, proof_word(e->proof), e->id);
        for (int k = 0; k < QUOTA_KINDS; k++)
            if (e->quota.most.of[k])
                printf(" max-%s=%" PRIu64, quota_word((enum quota_kind)k), e->quota.most.of[k]);
        printf("\n");
    }
}

enum cli_exit auth_list_run(const struct input *in) {
    struct auth *auth;
    int err = auth_load(file_of(in), &auth);
    if (err < 0)
        return report_failed(in, err);
    if (input_option(in, "--json"))
        auth_print_json(auth);
    else
        print_rows(auth);
    auth_destroy(auth);
    return CLI_DONE;
}
