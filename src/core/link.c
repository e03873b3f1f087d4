// Links: emits on their way to other shards, and what has come from them.
#include "core/state.h"

#include "base/errors.h"

bool core_link_next(struct core *c, uint32_t to, uint64_t after, struct link_entry *out) {
    (void)c, (void)to, (void)after, (void)out;
    return false;
}

uint64_t core_links(const struct core *c) {
    (void)c;
    return 0;
}

int core_link_accept(struct core *c, uint32_t from, const struct link_entry *e, mr_bytes body) {
    (void)c, (void)from, (void)e, (void)body;
    return error_set(MR_EINVAL, "links are not there yet");
}

uint64_t core_link_mark(const struct core *c, uint32_t from) {
    (void)c, (void)from;
    return 0;
}

int core_link_acked(struct core *c, uint32_t to, uint64_t upto) {
    (void)c, (void)to, (void)upto;
    return 0;
}
