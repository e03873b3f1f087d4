// The stages of a core, as tests inspect them.
#ifndef TEST_SUPPORT_CORE_STAGES_H
#define TEST_SUPPORT_CORE_STAGES_H

#include "core/core.h"

// How many stages have a name; those that were removed have none.
static inline size_t core_stage_count(const struct core *core) {
    size_t count = 0;
    for (size_t place = 0; place < core_stage_places(core); place++)
        count += core_stage_name(core, place).size > 0;
    return count;
}

// False: the place is empty.
static inline bool core_stage_at(struct core *core, size_t place, struct stage_info *out) {
    mr_bytes name = core_stage_name(core, place);
    return name.size && core_look_stage(core, name, out) == 0;
}

#endif
