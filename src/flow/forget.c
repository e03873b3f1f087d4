// Forgetting a run that is over: its states, then that there was something to go on with. Its input
// is known to the engine until the next run begins, so that a process that still reads it pushes
// nothing twice. After an interruption the flow is still over and can be forgotten again; several
// processes may do so.
#include "base/errors.h"
#include "flow/block.h"
#include "flow/state.h"

static int head_erase(struct op *op, uint64_t until_ms) {
    bool any = false;
    int err = head_order(op, BLOCK_ERASE);
    return err < 0 ? err : head_ordered(op, until_ms, &any);
}

int mr_flow_forget(mr_flow *f, int64_t wait_ms) {
    uint64_t until_ms = flow_until_ms(wait_ms);
    if (!f || !f->over || atomic_load(&f->stopping))
        return error_set(MR_EINVAL, "only a flow that is over, and not stopped, can be forgotten");
    int err = 0;
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        if (keeps_state(f->heads[i]))
            err = head_erase(f->heads[i], until_ms);
    return err < 0 ? err : flow_end_run(f);
}
