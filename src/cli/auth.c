// millrace auth add, list, remove: the file of tokens of a server.
#include "base/errors.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "server/auth_file.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_FILE "millrace.auth"

static const char *file_of(const struct input *in) {
    const char *path = input_option(in, "--auth");
    return path ? path : DEFAULT_FILE;
}

static enum cli_exit say_failed(const struct input *in, int err) {
    complain("%s: %s", in->command->name, error_text());
    return err == MR_EINVAL ? CLI_USAGE : err == MR_EGONE ? CLI_FAILED : CLI_UNOPENED;
}

// The secret goes to stdout alone, so that it can go on into a file or a variable.
enum cli_exit auth_add_run(const struct input *in) {
    const char *role = input_option(in, "--role"), *stages = input_option(in, "--stages");
    char secret[AUTH_SECRET + 1];
    if (!role) {
        complain("auth add: which --role? push, work, read, admin or several of them: push,read");
        return CLI_USAGE;
    }
    int err = auth_add(file_of(in), mr_str(in->arguments[0]), mr_str(role),
                       mr_str(stages ? stages : "*"), secret);
    if (err < 0)
        return say_failed(in, err);
    printf("%s\n", secret);
    complain("auth add: this is the secret of '%s', which is kept nowhere; a server that runs "
             "learns of it with SIGHUP",
             in->arguments[0]);
    return CLI_DONE;
}

enum cli_exit auth_remove_run(const struct input *in) {
    int err = auth_remove(file_of(in), mr_str(in->arguments[0]));
    if (err < 0)
        return say_failed(in, err);
    complain("auth remove: a server that runs learns of it with SIGHUP");
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

// Names, roles and patterns have no signs that JSON would have to escape.
static void say_json(const struct auth *auth) {
    char roles[64];
    printf("[");
    for (size_t i = 0; i < auth_count(auth); i++) {
        const struct auth_entry *e = auth_at(auth, i);
        roles_write(e->roles, roles, sizeof roles);
        printf("%s{\"name\":\"%.*s\",\"roles\":\"%s\",\"stages\":\"%.*s\"}", i ? "," : "",
               (int)e->name.size, (const char *)e->name.data, roles, (int)e->patterns.size,
               (const char *)e->patterns.data);
    }
    printf("]\n");
}

static void say_rows(const struct auth *auth) {
    char roles[64];
    int widest = 4;
    for (size_t i = 0; i < auth_count(auth); i++)
        if ((int)auth_at(auth, i)->name.size > widest)
            widest = (int)auth_at(auth, i)->name.size;
    printf("%-*s  %-20s  %s\n", widest, "name", "roles", "stages");
    for (size_t i = 0; i < auth_count(auth); i++) {
        const struct auth_entry *e = auth_at(auth, i);
        roles_write(e->roles, roles, sizeof roles);
        printf("%-*.*s  %-20s  %.*s\n", widest, (int)e->name.size, (const char *)e->name.data,
               roles, (int)e->patterns.size, (const char *)e->patterns.data);
    }
}

enum cli_exit auth_list_run(const struct input *in) {
    struct auth *auth;
    int err = auth_load(file_of(in), &auth);
    if (err < 0)
        return say_failed(in, err);
    if (input_option(in, "--json"))
        say_json(auth);
    else
        say_rows(auth);
    auth_destroy(auth);
    return CLI_DONE;
}
