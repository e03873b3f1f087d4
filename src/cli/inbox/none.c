// The commands of the inbox in a build without libpq.
#include "cli/cli.h"
#include "cli/output.h"

static enum cli_exit refuse_without_postgres(const struct input *in) {
    complain("%s: this build has no PostgreSQL support: use the Debian package, or build with "
             "libpq-dev",
             in->command->name);
    return CLI_FAILED;
}

enum cli_exit inbox_install_run(const struct input *in) {
    return refuse_without_postgres(in);
}

enum cli_exit inbox_run_run(const struct input *in) {
    return refuse_without_postgres(in);
}
