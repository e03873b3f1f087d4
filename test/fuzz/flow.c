// Any file as the description of a flow: it is read or refused, and nothing is leaked.
#include "cli/flow/plan.h"
#include "input.h"

static struct plan plan;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[INPUT_PATH];
    int fd = input_file(data, size, path);
    input_mute();
    memset(&plan, 0, sizeof plan);
    bool good = plan_read(&plan, path);
    assert(good == (plan.file.mistakes == 0));
    assert(plan.count <= FLOW_NODES);
    for (size_t i = 0; good && i < plan.count; i++) {
        const struct flow_node *n = &plan.nodes[i];
        assert(n->name && name_is_good(n->name));
        for (size_t k = 0; k < n->from_count; k++)
            assert(n->from[k].node < i);
    }
    plan_finish(&plan);
    close(fd);
    return 0;
}
