// For a build without libnats. See replicated_kind.h.
#include "log/replicated_kind.h"

const struct replicated_kind replicated_nats = {
    .missing = "this build has no NATS: it was made without libnats",
};
