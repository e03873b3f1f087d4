// What each kind of operator does with a pair.
#include "base/errors.h"
#include "flow/state.h"

static int call(struct mr_flow_out *out, struct op *op, mr_pair pair, enum may may,
                struct frame *frame) {
    frame_begin(out, frame, op, may);
    int answer = op->function(pair, out, op->arg);
    return frame_end(out, answer) < 0 ? out->err : answer;
}

static int operate_map(struct mr_flow_out *out, struct op *op, mr_pair pair) {
    struct frame frame;
    int answer = call(out, op, pair, MAY_EMIT, &frame);
    if (answer < 0 || frame.emitted == 1)
        return answer < 0 ? answer : 0;
    out->frame = &frame;
    out_fail(out, MR_EINVAL, "a map emits one pair, this one emitted %u", frame.emitted);
    return frame_end(out, 0);
}

static int operate_flat_map(struct mr_flow_out *out, struct op *op, mr_pair pair) {
    struct frame frame;
    int answer = call(out, op, pair, MAY_EMIT, &frame);
    return answer < 0 ? answer : 0;
}

static int operate_filter(struct mr_flow_out *out, struct op *op, mr_pair pair) {
    struct frame frame;
    int answer = call(out, op, pair, MAY_NOTHING, &frame);
    return answer <= 0 ? answer : out_send(out, op, 0, pair);
}

// What the function sets counts only if it, and all that ran on what it emitted, went well.
static int operate_stage(struct mr_flow_out *out, struct op *op, mr_pair pair) {
    struct frame frame;
    struct keyed_entry *e = keyed_at(&out->keyed, pair.key);
    if (!e)
        return out_fail(out, MR_ENOMEM, "%s", error_text());
    out->state = e->state;
    out->has_set = false;
    int answer = call(out, op, pair, MAY_EMIT_AND_SET, &frame);
    out->state = (mr_bytes){ 0 };
    if (answer < 0 || !out->has_set)
        return answer < 0 ? answer : 0;
    int err = keyed_set(&out->keyed, e, buffer_bytes(&out->set));
    return err < 0 ? out_fail(out, err, "%s", error_text()) : 0;
}

int operate(struct mr_flow_out *out, struct op *op, mr_pair pair) {
    switch (op->kind) {
    case OPERATOR_MAP:
        return operate_map(out, op, pair);
    case OPERATOR_FLAT_MAP:
    case OPERATOR_SPLIT:
        return operate_flat_map(out, op, pair);
    case OPERATOR_FILTER:
        return operate_filter(out, op, pair);
    case OPERATOR_AGGREGATE:
        return window_add(out, op, pair);
    case OPERATOR_STAGE:
        return operate_stage(out, op, pair);
    case OPERATOR_SINK:
    case OPERATOR_FILE:
    case OPERATOR_PUSH:
        return sink_add(out, op, pair);
    case OPERATOR_SOURCE:
    case OPERATOR_TAKE:
    case OPERATOR_MERGE:
        break;
    }
    return out_send(out, op, 0, pair);
}
