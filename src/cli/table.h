// Table: what the files share that hold the rows of the table of commands.
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "cli/cli.h"

#define JSON                                                                                       \
    { "--json", NULL, "write JSON, for a program to read" }
#define AT { "--at", "URL", "the engine (" CLI_URL ")" }, TLS
#define TLS                                                                                        \
    { "--tls-ca", "FILE", "of millraces://: authorities to trust (the system's)" },                \
        { "--tls-cert", "FILE", "certificate to show, where the server asks for one" }, {          \
        "--tls-key", "FILE", "its key"                                                             \
    }

// By the letters that parallel and xargs have for it, too.
#define JOBS                                                                                       \
    { "-j, -P, --jobs", "N", "so many at once; auto (default): what is fastest" }

extern const struct command auth_commands[];
extern const struct command jobs_commands[];
extern const struct command looks_commands[];

#endif
