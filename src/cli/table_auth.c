// The rows of `millrace auth`.
#include "cli/table.h"

#define AUTH                                                                                       \
    { "--auth", "FILE", "the file of tokens (millrace.auth)" }

const struct command auth_commands[] = {
    {
        .name = "auth add",
        .arguments = "NAME",
        .least = 1,
        .most = 1,
        .doc = "make a token for somebody who may use a server",
        .help = "Makes a secret, prints it once, and keeps its digest in a file that millrace\n"
                "serve --auth reads, with what NAME may do:\n"
                "\n"
                "    push   hand in jobs, wait for their results, cancel them\n"
                "    work   take jobs and end them\n"
                "    read   look at everything, bodies too\n"
                "    admin  retry, drop, pause, set policies, and all of the above\n"
                "\n"
                "With --stages, only with stages (and epics) of these names; * stands for\n"
                "anything: 'mail.*,sms.*'. A server that runs reads the file again on SIGHUP.\n"
                "\n"
                "Clients give the secret as MILLRACE_TOKEN, in a file that MILLRACE_TOKEN_FILE\n"
                "names, or in the URL (millrace://NAME:SECRET@HOST); other Redis clients as\n"
                "user and password.\n",
        .examples = "millrace auth add ci --role push --stages 'mail.*' --out ci.token\n"
                    "MILLRACE_TOKEN_FILE=ci.token millrace push mail.in hello\n",
        .options = { { "--role", "ROLES", "push, work, read, admin: one, or with commas" },
                     { "--stages", "NAMES", "which stages, with commas and * (all)" },
                     { "--out", "FILE",
                       "write the secret to FILE (new, mode 0600), not to stdout" },
                     AUTH },
        .run = auth_add_run,
    },
    {
        .name = "auth list",
        .arguments = "",
        .doc = "list tokens and what they are for",
        .help = "Lists the tokens of a file, without their secrets, which nobody has kept.\n",
        .examples = "millrace auth list\n",
        .options = { AUTH, JSON },
        .run = auth_list_run,
    },
    {
        .name = "auth remove",
        .arguments = "NAME",
        .least = 1,
        .most = 1,
        .doc = "take a token back",
        .help = "Removes a token from the file. A server that runs learns of it with SIGHUP, and\n"
                "then closes the connections that were made with it.\n",
        .examples = "millrace auth remove ci && kill -HUP $(pidof millrace)\n",
        .options = { AUTH },
        .run = auth_remove_run,
    },
    { 0 },
};
