// Emits are packed into one buffer and described in another, so that a job without any costs
// nothing.
#include "engine/leased_job.h"

#include "base/errors.h"

#include <string.h>

enum { KEPT_BYTES = 1 << 16 }; // a free job keeps buffers up to this size

static void empty_buffer(struct buffer *b) {
    if (b->capacity > KEPT_BYTES)
        buffer_finish(b);
    buffer_clear(b);
}

void leased_job_renew(struct mr_job *job) {
    job->has_new_state = false;
    job->reason[0] = 0;
    job->next = NULL;
    job->stop_why = 0;
    atomic_store_explicit(&job->phase, 0, memory_order_relaxed);
    atomic_store_explicit(&job->used_up, false, memory_order_relaxed);
}

void leased_job_forget(struct mr_job *job) {
    struct buffer *all[] = { &job->body,      &job->state, &job->result,
                             &job->new_state, &job->emits, &job->emit_text };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        empty_buffer(all[i]);
}

void leased_job_finish(struct mr_job *job) {
    buffer_finish(&job->body);
    buffer_finish(&job->state);
    buffer_finish(&job->result);
    buffer_finish(&job->new_state);
    buffer_finish(&job->emits);
    buffer_finish(&job->emit_text);
}

bool leased_job_is_followed(const struct mr_job *job) {
    return job->next && job->next->follows;
}

void leased_job_pass_state(struct mr_job *job, bool committed) {
    if (!leased_job_is_followed(job))
        return;
    struct buffer *from = committed && job->has_new_state ? &job->new_state : &job->state;
    struct buffer kept = job->next->state;
    job->next->state = *from;
    *from = kept;
}

int leased_job_add_emit(struct mr_job *job, mr_bytes stage, mr_bytes body,
                        const mr_push_options *o) {
    if (job->emits.size / sizeof(struct packed_emit) >= EMITS_MOST)
        return error_set(MR_EFULL,
                         "a commit has at most %d emits; emit fewer, or from several "
                         "jobs",
                         EMITS_MOST);
    size_t more = stage.size + o->key.size + o->once.size + body.size;
    if (more > BODY_MOST - job->emit_text.size)
        return error_set(MR_ETOOBIG, "the emits of one commit hold at most %d bytes", BODY_MOST);
    struct packed_emit emit = { .stage_size = (uint32_t)stage.size,
                                .key_size = (uint32_t)o->key.size,
                                .once_size = (uint32_t)o->once.size,
                                .body_size = (uint32_t)body.size,
                                .delay_ms = o->delay_ms,
                                .deadline_ms = o->deadline_ms,
                                .attempts = o->attempts };
    int err = buffer_reserve(&job->emit_text, more);
    if (err >= 0)
        err = buffer_append(&job->emits, &emit, sizeof emit);
    if (err < 0)
        return err;
    buffer_append(&job->emit_text, stage.data, stage.size);
    buffer_append(&job->emit_text, o->key.data, o->key.size);
    buffer_append(&job->emit_text, o->once.data, o->once.size);
    buffer_append(&job->emit_text, body.data, body.size);
    return 0;
}
