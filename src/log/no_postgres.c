// For a build without libpq. See replicated_kind.h.
#include "log/replicated_kind.h"

const struct replicated_kind replicated_postgres = {
    .missing = "this build has no PostgreSQL: use the Debian package, or build with libpq-dev",
};
