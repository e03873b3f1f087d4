// Options that several files of the table of commands use.
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "cli/cli.h"

#define JSON                                                                                       \
    { "--json", NULL, "print JSON, for programs" }
#define AT { "--at", "URL", "the engine (" CLI_URL ")" }, TLS
#define TLS                                                                                        \
    { "--tls-ca", "FILE", "for millraces://: trusted CAs (the system's)" },                        \
        { "--tls-cert", "FILE", "client certificate, if the server requires one" }, {              \
        "--tls-key", "FILE", "its key"                                                             \
    }

// -j and -P as in parallel and xargs.
#define JOBS                                                                                       \
    { "-j, -P, --jobs", "N", "N or N% of the processors at once; auto (default)" }

extern const struct cli_command auth_commands[];
extern const struct cli_command cluster_commands[];
extern const struct cli_command inbox_commands[];
extern const struct cli_command jobs_commands[];
extern const struct cli_command looks_commands[];

#endif
