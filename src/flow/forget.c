// Forgetting a run that is over: its states, then that there was something to go on with. Its input
// is known to the engine until the next run begins, so that whoever still reads it hands in nothing
// anew. Whoever is interrupted finds a flow that is over, and forgets it again; several may.
#include "base/errors.h"
#include "flow/block.h"
#include "flow/state.h"

#include <stdio.h>

static int erase(const struct op *op, uint64_t until_ms) {
    uint8_t erasing[BLOCK_HEAD];
    mr_bytes body = { erasing, block_head(erasing, BLOCK_ERASE, op->flow->run) };
    int err = 0;
    for (uint32_t i = 0; i < op->options.partitions && err >= 0; i++) {
        char key[12];
        snprintf(key, sizeof key, "%u", i);
        mr_push_options o = { .key = mr_str(key) };
        err = mr_push(op->flow->engine, op->stage, body, &o, NULL);
    }
    return err < 0 ? err : head_empty(op, until_ms);
}

int mr_flow_forget(mr_flow *f, int64_t wait_ms) {
    uint64_t until_ms = flow_until_ms(wait_ms);
    if (!f || !f->over || atomic_load(&f->stopping))
        return error_set(MR_EINVAL, "only a flow that is over, and not stopped, can be forgotten");
    int err = 0;
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        if (keeps_state(f->heads[i]))
            err = erase(f->heads[i], until_ms);
    return err < 0 ? err : flow_end_run(f);
}
