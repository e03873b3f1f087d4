// Windows by count. What a key keeps: how many values have come since its oldest open window began,
// then the fold of each open window, the oldest first.
//
//     size 4, slide 2    values   a b c d e f         after f: 4, [c d e f] is emitted, then
//                        windows  └─────┘             kept are 2, [e f]
//                                     └─────┘
//
// With slide > size the count goes on through the values between windows, which are left out, and
// begins anew where a window does.
#include "base/errors.h"
#include "flow/block.h"
#include "flow/state.h"

#include <assert.h>

static int fold(struct mr_flow_out *out, struct op *op, mr_bytes key, mr_bytes so_far,
                mr_bytes value) {
    struct frame frame;
    frame_begin(out, &frame, op, MAY_SET);
    out->has_set = false;
    int answer = op->fold(key, so_far, value, out, op->arg);
    if (answer >= 0 && !out->has_set)
        out_fail(out, MR_EINVAL, "its fold has set nothing");
    return frame_end(out, answer);
}

static int window_keep(struct mr_flow_out *out, mr_bytes folded) {
    int err = buffer_reserve(&out->windows, SIZES_MOST + folded.size);
    if (err < 0)
        return out_fail(out, err, "%s", error_text());
    uint8_t *end = put_sized(out->windows.data + out->windows.size, folded);
    out->windows.size = (size_t)(end - out->windows.data);
    return 0;
}

// Folds the value into a window, which is then emitted or kept.
static int add_to(struct mr_flow_out *out, struct op *op, mr_pair pair, mr_bytes so_far,
                  bool last) {
    int err = fold(out, op, pair.key, so_far, pair.value);
    if (err < 0)
        return err;
    if (!last)
        return window_keep(out, buffer_bytes(&out->set));
    struct frame frame;
    frame_begin(out, &frame, op, MAY_NOTHING);
    out_send(out, op, 0, (mr_pair){ pair.key, buffer_bytes(&out->set) });
    return frame_end(out, 0);
}

// What the count becomes when a value has been added to it.
static uint64_t next_count(const mr_window *w, uint64_t count) {
    if (w->size == 0)
        return 1;
    count++;
    if (count == w->size && w->slide <= w->size)
        return count - w->slide;
    return count == w->slide && w->slide > w->size ? 0 : count;
}

static int add_to_all(struct mr_flow_out *out, struct op *op, mr_pair pair, struct reader *windows,
                      uint64_t count) {
    const mr_window *w = &op->window;
    assert(w->size == 0 || w->slide > 0);
    bool last = w->size && count + 1 == w->size; // of the oldest
    bool begins = w->size ? count % w->slide == 0 : count == 0;
    int err = 0;
    for (; windows->at < windows->size && err >= 0; last = false)
        err = add_to(out, op, pair, block_bytes(windows), last);
    if (begins && err >= 0)
        err = add_to(out, op, pair, (mr_bytes){ 0 }, last);
    return err;
}

int window_add(struct mr_flow_out *out, struct op *op, mr_pair pair) {
    const mr_window *w = &op->window;
    struct keyed_entry *e = keyed_at(&out->keyed, pair.key);
    if (!e)
        return out_fail(out, MR_ENOMEM, "%s", error_text());
    struct reader kept = reader_of(e->state);
    uint64_t count = kept.size ? get_number(&kept) : 0;
    uint64_t next = next_count(w, count);
    uint8_t number[SIZES_MOST];
    buffer_clear(&out->windows);
    int err = buffer_append(&out->windows, number, (size_t)(put_size(number, next) - number));
    if (err < 0)
        return out_fail(out, err, "%s", error_text());
    if (w->size == 0 || count < w->size)
        err = add_to_all(out, op, pair, &kept, count);
    if (err < 0)
        return err;
    if (kept.bad)
        return out_fail(out, MR_ECORRUPT, "what a key has kept is damaged");
    mr_bytes state = next ? buffer_bytes(&out->windows) : (mr_bytes){ 0 };
    err = keyed_set(&out->keyed, e, state);
    return err < 0 ? out_fail(out, err, "%s", error_text()) : 0;
}

static int flush_key(struct mr_flow_out *out, struct op *op, const struct keyed_entry *e) {
    struct reader kept = reader_of(e->state);
    int err = 0;
    (void)get_number(&kept);
    while (kept.at < kept.size && err >= 0 && !op->window.drop_last) {
        err = out_send(out, op, 0, (mr_pair){ e->key, block_bytes(&kept) });
        out->flushed = true;
    }
    return err;
}

int window_flush(struct mr_flow_out *out, struct op *op) {
    struct frame frame;
    frame_begin(out, &frame, op, MAY_NOTHING);
    int err = 0;
    for (uint32_t i = 0; i < out->keyed.count && err >= 0; i++) {
        struct keyed_entry *e = &out->keyed.entries[i];
        if (e->state.size)
            err = flush_key(out, op, e);
        e->state.size = 0;
    }
    return frame_end(out, 0);
}
