// For a build without libnats. See replicated_kind.h.
#include "log/replicated_kind.h"

const struct replicated_kind replicated_nats = {
    .missing = "this build has no NATS: use the Debian package, or build with libnats-dev",
};
