// Where pairs leave the flow. A partition's state has the number of its run, and how far it is:
// pairs received by a function, which give each its number; bytes written to a file, behind which
// nothing counts.
#include "base/codec.h"
#include "base/errors.h"
#include "flow/block.h"
#include "flow/state.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- Functions --------------------------------------------------------------------------------

// A number is used up also by a pair that fails, so that those behind it keep theirs.
static int sink_receive(struct mr_flow_out *out, struct op *op, mr_pair pair) {
    struct frame frame;
    uint64_t number = out->received++ * op->options.partitions + job_partition(out->job) + 1;
    frame_begin(out, &frame, op, MAY_NOTHING);
    return frame_end(out, op->receive(pair, number, op->arg));
}

// ---- Files ------------------------------------------------------------------------------------

static int sink_add_line(struct mr_flow_out *out, mr_pair pair) {
    struct buffer *text = &out->text;
    int err = buffer_append(text, pair.key.data, pair.key.size);
    if (err >= 0 && pair.key.size)
        err = buffer_append(text, "\t", 1);
    if (err >= 0)
        err = buffer_append(text, pair.value.data, pair.value.size);
    if (err >= 0)
        err = buffer_append(text, "\n", 1);
    return err < 0 ? out_fail(out, err, "%s", error_text()) : 0;
}

static int file_failed(struct mr_flow_out *out, struct op *op, const char *doing) {
    return out_fail(out, MR_EIO, "cannot %s %s: %s", doing, op->path, strerror(errno));
}

static int sink_write_all(int fd, mr_bytes text, uint64_t at) {
    for (size_t done = 0; done < text.size;) {
        ssize_t n =
            pwrite(fd, (const char *)text.data + done, text.size - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

// What is behind the commits was written by an attempt that did not count.
static int write_file(struct mr_flow_out *out, struct op *op) {
    struct stat now;
    uint64_t at = out->received;
    if (fstat(op->fd, &now) < 0)
        return file_failed(out, op, "look at");
    if ((uint64_t)now.st_size < at)
        return out_fail(out, MR_ECORRUPT,
                        "%s has %" PRIu64 " bytes, but %" PRIu64 " were committed", op->path,
                        (uint64_t)now.st_size, at);
    if ((uint64_t)now.st_size > at && ftruncate(op->fd, (off_t)at) < 0)
        return file_failed(out, op, "cut");
    if (sink_write_all(op->fd, buffer_bytes(&out->text), at) < 0)
        return file_failed(out, op, "write");
    if (op->flow->syncs_files && fdatasync(op->fd) < 0)
        return file_failed(out, op, "sync");
    out->received += out->text.size;
    return 0;
}

// ---- All --------------------------------------------------------------------------------------

int sink_begin(struct mr_flow_out *out, struct op *op) {
    if (op->kind == OPERATOR_PUSH)
        return 0;
    struct reader r = reader_of(out->kept);
    out->received = r.size ? get_number(&r) : 0;
    buffer_clear(&out->text);
    return reader_done(&r) ? 0 : out_fail(out, MR_ECORRUPT, "the state of a sink is damaged");
}

static int push_on(struct mr_flow_out *out, struct op *op, mr_pair pair) {
    mr_push_options o = { .key = pair.key };
    struct frame frame;
    frame_begin(out, &frame, op, MAY_NOTHING);
    if (mr_job_emit(out->job, op->path, pair.value, &o) < 0)
        out_fail(out, MR_EINVAL, "cannot push into %s: %s", op->path, mr_error());
    return frame_end(out, 0);
}

int sink_add(struct mr_flow_out *out, struct op *op, mr_pair pair) {
    if (op->kind == OPERATOR_PUSH)
        return push_on(out, op, pair);
    return op->kind == OPERATOR_FILE ? sink_add_line(out, pair) : sink_receive(out, op, pair);
}

int sink_end(struct mr_flow_out *out, struct op *op) {
    if (op->kind == OPERATOR_PUSH)
        return 0;
    int err = op->kind == OPERATOR_FILE ? write_file(out, op) : 0;
    if (err < 0)
        return err;
    uint8_t numbers[SIZES_MOST], *end = put_size(put_size(numbers, out->run), out->received);
    mr_bytes state = { numbers, (size_t)(end - numbers) };
    err = mr_job_set_state(out->job, state);
    return err < 0 ? out_fail(out, err, "%s", mr_error()) : 0;
}
