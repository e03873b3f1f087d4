// Readers: a thread for each source, which pushes block after block as an epic. The engine knows
// which numbers it has; how far ahead of the workers a reader may be is the epic's to say, and the
// reader sleeps in its push until then.
#include "base/clock.h"
#include "base/errors.h"
#include "flow/state.h"

#include <inttypes.h>
#include <stdio.h>

static bool is_stopping(const struct op *op) {
    return atomic_load(&op->flow->stopping);
}

void source_epic(const struct op *op, uint64_t run, char out[EPIC_NAME]) {
    snprintf(out, EPIC_NAME, "%s/%s/%" PRIu64, op->flow->epic, op->name, run);
}

static int push_block(struct op *op, mr_epic *epic, mr_bytes block) {
    char key[24];
    snprintf(key, sizeof key, "%" PRIu64, (epic->next - 1) % op->options.partitions);
    mr_push_options o = { .key = mr_str(key), .room_ms = FLOW_SLICE_MS };
    int err = MR_EFULL;
    while (err == MR_EFULL && !is_stopping(op))
        err = mr_epic_push(op->flow->engine, epic, block, &o, NULL);
    return err == MR_EFULL ? error_set(MR_ECANCELLED, "the flow was stopped") : err;
}

static int read_block(struct op *op, uint64_t number, struct mr_flow_out *out) {
    struct frame frame;
    buffer_clear(&out->block);
    frame_begin(out, &frame, op, MAY_EMIT);
    int answer = op->read(number, out, op->lines ? (void *)op->lines : op->arg);
    int err = frame_end(out, answer);
    if (err < 0)
        return error_set(err, "source %s, block %" PRIu64 ": %s", op->name, number, out->reason);
    return answer == MR_FLOW_END ? MR_FLOW_END : 0;
}

static int source_read_all(struct op *op, struct mr_flow_out *out) {
    mr *m = op->flow->engine;
    char name[EPIC_NAME];
    source_epic(op, op->flow->run, name);
    mr_epic epic = { .stage = op->stage, .name = name, .ahead = op->flow->options.ahead };
    out->expected = 0;
    int err = mr_epic_begin(m, &epic);
    while (err == 0 && !is_stopping(op)) {
        atomic_store(&op->blocks_read, epic.next - 1);
        err = read_block(op, epic.next, out);
        epic.expected = out->expected;
        if (err == 0 && out->block.size)
            err = push_block(op, &epic, buffer_bytes(&out->block));
        else if (err == 0)
            err = mr_epic_skip(m, &epic);
    }
    if (err == MR_FLOW_END)
        return mr_epic_end(m, &epic);
    return err == 0 ? error_set(MR_ECANCELLED, "the flow was stopped") : err;
}

static void *source_thread(void *arg) {
    struct op *op = arg;
    struct mr_flow *f = op->flow;
    struct mr_flow_out *out = out_new(op, NULL);
    int err = out ? source_read_all(op, out) : MR_ENOMEM;
    if (out)
        out_reuse(out);
    pthread_mutex_lock(&f->lock);
    op->reader.finished = true;
    op->reader.err = err;
    if (err < 0)
        snprintf(op->reader.error, sizeof op->reader.error, "%s", error_text());
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

int source_start(struct op *op) {
    int err = op->path ? line_source_open(op->path, &op->lines) : 0;
    if (err < 0)
        return err;
    int failed = pthread_create(&op->reader.thread, NULL, source_thread, op);
    if (failed)
        return error_set(MR_ENOMEM, "no thread to read source %s: %s", op->name, strerror(failed));
    op->reader.started = true;
    return 0;
}

int source_stop(struct op *op, uint64_t until_ms) {
    struct mr_flow *f = op->flow;
    if (!op->reader.started)
        return 0;
    pthread_mutex_lock(&f->lock);
    while (!op->reader.finished && monotonic_ms() < until_ms)
        flow_sleep(f, until_ms);
    bool finished = op->reader.finished;
    pthread_mutex_unlock(&f->lock);
    if (!finished)
        return error_set(MR_EBUSY, "source %s of flow %s still reads", op->name, f->name);
    pthread_join(op->reader.thread, NULL);
    op->reader.started = false;
    line_source_close(op->lines);
    op->lines = NULL;
    return 0;
}
