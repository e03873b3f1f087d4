// Handing in: a job goes to the shard that its stage lives in.
#include "engine/spread.h"

static struct engine *engine_of(struct engine *base, mr_bytes stage) {
    return &spread_local((struct spread *)base, stage)->base;
}

int spread_push(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                mr_id *out_id) {
    return local_push(engine_of(base, stage), stage, body, o, out_id);
}

int spread_push_many(struct engine *base, mr_bytes stage, const mr_item *items, size_t count,
                     const mr_push_options *o, const struct numbered *first, mr_id *out_ids,
                     size_t *out_count) {
    return local_push_many(engine_of(base, stage), stage, items, count, o, first, out_ids,
                           out_count);
}

int spread_call(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                struct buffer *out_result) {
    return local_call(engine_of(base, stage), stage, body, o, out_result);
}

int spread_call_start(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                      mr_on_end *on_end, void *arg, mr_id *out_id) {
    return local_call_start(engine_of(base, stage), stage, body, o, on_end, arg, out_id);
}
