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
    struct buffer *all[] = { &job->body,  &job->state,     &job->result, &job->new_state,
                             &job->emits, &job->emit_text, &job->output };
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
    buffer_finish(&job->output);
}

// Moves META by one, to make room for the 0 behind the body.
int leased_job_split_meta(struct mr_job *job, uint32_t meta_size) {
    struct buffer *b = &job->body;
    job->meta_size = meta_size;
    if (!meta_size)
        return 0;
    int err = buffer_reserve(b, 1);
    if (err < 0)
        return err;
    b->size -= meta_size;
    memmove(b->data + b->size + 1, b->data + b->size, meta_size);
    b->data[b->size] = 0;
    return 0;
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

// ---- Emits --------------------------------------------------------------------------------------

#define PART_NUMBER(member, ...) PART_##member,
enum { PART_stage, JOB_OPTIONS(PART_NUMBER) PART_body, PARTS_MOST };

#define ADD_PART(member, kind, ...) ADD_PART_##kind(member)
#define ADD_PART_BYTES(member) out[count++] = &e->job.member;
#define ADD_PART_MS(member)
#define ADD_PART_COUNT(member)
#define ADD_PART_FLAG(member)

// All that lies in `emit_text`, in its order. Returns how many.
static size_t emit_parts(struct emit *e, mr_bytes *out[PARTS_MOST]) {
    size_t count = 0;
    out[count++] = &e->stage;
    JOB_OPTIONS(ADD_PART)
    out[count++] = &e->body;
    return count;
}

int leased_job_add_emit(struct mr_job *job, mr_bytes stage, mr_bytes body,
                        const mr_push_options *o) {
    struct emit emit = { stage, body, job_spec_of(o) };
    mr_bytes *parts[PARTS_MOST];
    size_t count = emit_parts(&emit, parts), more = 0;
    if (job->emits.size / sizeof emit >= EMITS_MOST)
        return error_set(MR_EFULL,
                         "a commit has at most %d emits; emit fewer, or from several "
                         "jobs",
                         EMITS_MOST);
    for (size_t i = 0; i < count; i++)
        more += parts[i]->size;
    if (more > BODY_MOST - job->emit_text.size)
        return error_set(MR_ETOOBIG, "the emits of one commit hold at most %d bytes", BODY_MOST);
    int err = buffer_reserve(&job->emit_text, more);
    if (err >= 0)
        err = buffer_append(&job->emits, &emit, sizeof emit);
    for (size_t i = 0; err >= 0 && i < count; i++)
        err = buffer_append(&job->emit_text, parts[i]->data, parts[i]->size);
    return err;
}

// The text may have moved since an emit was added.
const struct emit *leased_job_emits(struct mr_job *job, size_t *out_count) {
    struct emit *emits = (struct emit *)(void *)job->emits.data;
    const uint8_t *text = job->emit_text.data;
    size_t count = job->emits.size / sizeof *emits;
    for (size_t i = 0; i < count; i++) {
        mr_bytes *parts[PARTS_MOST];
        size_t part_count = emit_parts(&emits[i], parts);
        for (size_t k = 0; k < part_count; k++) {
            parts[k]->data = text;
            text += parts[k]->size;
        }
    }
    *out_count = count;
    return emits;
}
