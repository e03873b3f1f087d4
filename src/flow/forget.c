// Forgetting a flow that is over: its states first, its input last, which may be several epics.
// Whoever is interrupted among the states finds a flow that is over, and forgets it again; among
// the epics, one that says so, whose next run forgets the rest before it begins anew.
#include "base/errors.h"
#include "flow/block.h"
#include "flow/state.h"

#include <stdio.h>

static bool keeps_state(const struct op *op) {
    return op->keyed_state || op->kind == OPERATOR_SINK || op->kind == OPERATOR_FILE;
}

static int erase(const struct op *op, uint64_t until_ms) {
    static const uint8_t erasing = BLOCK_ERASE;
    int err = 0;
    for (uint32_t i = 0; i < op->options.partitions && err >= 0; i++) {
        char key[12];
        snprintf(key, sizeof key, "%u", i);
        mr_push_options o = { .key = mr_str(key) };
        err = mr_push(op->flow->engine, op->stage, (mr_bytes){ &erasing, 1 }, &o, NULL);
    }
    return err < 0 ? err : head_empty(op, until_ms);
}

static int drop_input(const struct op *op) {
    char name[EPIC_NAME];
    source_epic(op, name);
    int err = mr_epic_drop(op->flow->engine, name);
    return err == MR_EGONE ? 0 : err;
}

int flow_drop_inputs(const struct mr_flow *f) {
    int err = 0;
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        if (f->heads[i]->kind == OPERATOR_SOURCE)
            err = drop_input(f->heads[i]);
    return err;
}

int mr_flow_forget(mr_flow *f, int64_t wait_ms) {
    uint64_t until_ms = flow_until_ms(wait_ms);
    if (!f || !f->over || atomic_load(&f->stopping))
        return error_set(MR_EINVAL, "only a flow that is over, and not stopped, can be forgotten");
    int err = 0;
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        if (keeps_state(f->heads[i]))
            err = erase(f->heads[i], until_ms);
    if (err >= 0)
        err = flow_keep(f, mr_str(FLOW_FORGOTTEN));
    if (err >= 0)
        err = flow_drop_inputs(f);
    return err < 0 ? err : flow_keep(f, (mr_bytes){ 0 });
}
