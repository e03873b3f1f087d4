// The rows of `millrace auth`.
#include "cli/table.h"

#define AUTH                                                                                       \
    { "--auth", "FILE", "the file of tokens (millrace.auth)" }

const struct cli_command auth_commands[] = {
    {
        .name = "auth add",
        .arguments = "NAME",
        .least = 1,
        .most = 1,
        .doc = "make a token for a user of the server",
        .help = "Makes a secret, prints it once, and stores its digest in a file that millrace\n"
                "serve --auth reads, with the roles of NAME:\n"
                "\n"
                "    push   push jobs, wait for their results, cancel them\n"
                "    work   take jobs and end them\n"
                "    read   see everything, including bodies\n"
                "    admin  retry, drop, pause, set policies, and all of the above\n"
                "\n"
                "With --stages the token is limited to stages (and epics) of these names; *\n"
                "stands for any text: 'mail.*,sms.*'. A running server reads the file again on\n"
                "SIGHUP.\n"
                "\n"
                "The --max-... options are quotas: a command that would exceed one gets FULL, and\n"
                "other tokens do not notice. Jobs count for the token that has pushed them until\n"
                "they end; emits and jobs of schedules are accepted beyond it, and count.\n"
                "\n"
                "Millrace's commands take the secret from MILLRACE_TOKEN, from the file that\n"
                "MILLRACE_TOKEN_FILE names, or from the URL (millrace://NAME:SECRET@HOST); for\n"
                "other Redis clients NAME is the user and the secret is the password.\n"
                "\n"
                "With --user or --group there is no secret: a process of that user or group of\n"
                "this machine that connects by a Unix-domain socket (serve --listen unix:PATH)\n"
                "has the token from the start; AUTH changes it to another one. An entry of the\n"
                "user comes before those of its groups, of which the first in the file counts.\n",
        .examples = "millrace auth add web --role push --stages 'mail.*' --user www-data\n"
                    "millrace auth add ci --role push --stages 'mail.*' --out ci.token\n"
                    "MILLRACE_TOKEN_FILE=ci.token millrace push mail.in hello\n"
                    "millrace auth add acme --role push,work --stages 'acme.*' \\\n"
                    "    --max-jobs 10000 --max-bytes 64M --out acme.token\n",
        .options = { { "--role", "ROLES", "push, work, read, admin; several with commas" },
                     { "--stages", "NAMES", "which stages, with commas and * (all)" },
                     { "--user", "USER", "a user of this machine instead of a secret" },
                     { "--group", "GROUP", "a group of this machine instead of a secret" },
                     { "--max-stages", "N", "stages that the token may make" },
                     { "--max-jobs", "N", "jobs of it that have not ended" },
                     { "--max-bytes", "SIZE", "bytes of these jobs: 512K, 64M, 2G" },
                     { "--max-sources", "N", "sources of numbered pushes" },
                     { "--max-epics", "N", "epics that it may make" },
                     { "--max-schedules", "N", "schedules that it may make" },
                     { "--max-connections", "N", "open connections (half of max-clients)" },
                     { "--out", "FILE",
                       "write the secret to FILE (new, mode 0600), not to stdout" },
                     AUTH },
        .run = auth_add_run,
    },
    {
        .name = "auth list",
        .arguments = "",
        .doc = "list tokens, roles, stages, users and quotas",
        .help = "Lists the tokens of a file, without their secrets, which are not stored. What a\n"
                "token uses of its quotas is in INFO quotas, for that token, and in /metrics.\n",
        .examples = "millrace auth list\n",
        .options = { AUTH, JSON },
        .run = auth_list_run,
    },
    {
        .name = "auth remove",
        .arguments = "NAME",
        .least = 1,
        .most = 1,
        .doc = "remove a token",
        .help = "Removes a token from the file. A running server reads the file again on SIGHUP,\n"
                "and then closes the connections that use the token.\n",
        .examples = "millrace auth remove ci && kill -HUP $(pidof millrace)\n",
        .options = { AUTH },
        .run = auth_remove_run,
    },
    { 0 },
};
