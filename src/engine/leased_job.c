// Emits are packed into one buffer and described in another, so that a job without any costs
// nothing.
#include "engine/leased_job.h"

#include "base/errors.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum { KEPT_BYTES = 1 << 16 }; // a free job keeps buffers up to this size
enum { NAMES_ROOM_LEAST = 32 };

_Static_assert(STAGE_NAME_MOST + 1 + KEY_MOST <= UINT16_MAX / 2, "sizes of names fit");

static void empty_buffer(struct buffer *b) {
    if (b->capacity > KEPT_BYTES)
        buffer_finish(b);
    buffer_clear(b);
}

void leased_job_renew(struct mr_job *job) {
    job->has_new_state = job->has_body = false;
    job->next = NULL;
    job->stop_why = 0;
    atomic_store_explicit(&job->phase, 0, memory_order_relaxed);
    atomic_store_explicit(&job->used_up, false, memory_order_relaxed);
}

static void for_each_buffer(struct mr_job *job, void (*act)(struct buffer *)) {
    act(&job->body);
    if (job->state)
        act(job->state);
    struct job_output *o = job->output;
    if (!o)
        return;
    struct buffer *set[] = { &o->result,    &o->last_words, &o->emits,
                             &o->emit_text, &o->reason,     o->new_state };
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (set[i])
            act(set[i]);
}

void leased_job_forget(struct mr_job *job) {
    for_each_buffer(job, empty_buffer);
}

void leased_job_finish(struct mr_job *job) {
    for_each_buffer(job, buffer_finish);
    mem_free(job->names);
    mem_free(job->state);
    if (job->output)
        mem_free(job->output->new_state);
    mem_free(job->output);
    job->names = NULL;
    job->state = NULL;
    job->output = NULL;
}

static int make_room_for_names(struct mr_job *job, size_t size) {
    uint32_t room = NAMES_ROOM_LEAST;
    while (room < size)
        room *= 2;
    uint8_t *names = mem_resize(job->names, room);
    if (!names)
        return error_set(MR_ENOMEM, "no memory for the key of a leased job");
    job->names = names;
    job->names_room = (uint16_t)room;
    return 0;
}

int leased_job_set_names(struct mr_job *job, mr_bytes stage, mr_bytes key) {
    assert(stage.size <= STAGE_NAME_MOST && key.size <= KEY_MOST);
    size_t size = stage.size + 1 + key.size;
    int err = size > job->names_room ? make_room_for_names(job, size) : 0;
    if (err < 0)
        return err;
    job->stage_size = (uint16_t)stage.size;
    job->key_size = (uint16_t)key.size;
    if (stage.size)
        memcpy(job->names, stage.data, stage.size);
    job->names[stage.size] = 0;
    if (key.size)
        memcpy(job->names + stage.size + 1, key.data, key.size);
    return 0;
}

// ---- What the handler sets ----------------------------------------------------------------------

const struct job_output *leased_job_output(const struct mr_job *job) {
    static const struct job_output nothing;
    return job->output ? job->output : &nothing;
}

struct job_output *leased_job_output_made(struct mr_job *job) {
    if (!job->output)
        job->output = mem_alloc(sizeof *job->output);
    if (!job->output)
        error_set(MR_ENOMEM, "no memory for what a job's handler sets");
    return job->output;
}

struct buffer *leased_job_buffer_made(struct buffer **buffer) {
    if (!*buffer)
        *buffer = mem_alloc(sizeof **buffer);
    if (!*buffer)
        error_set(MR_ENOMEM, "no memory for the state of a leased job");
    return *buffer;
}

// An empty buffer may still have the bytes of another job's state.
mr_bytes leased_job_state(const struct mr_job *job) {
    return job->state && job->state->size ? buffer_bytes(job->state) : (mr_bytes){ 0 };
}

const char *leased_job_reason(const struct mr_job *job) {
    const struct buffer *reason = &leased_job_output(job)->reason;
    return reason->size ? (const char *)reason->data : NULL;
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
    struct buffer **from = committed && job->has_new_state ? &job->output->new_state : &job->state;
    struct buffer *kept = job->next->state;
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
    struct job_output *output = leased_job_output_made(job);
    if (!output)
        return MR_ENOMEM;
    if (output->emits.size / sizeof emit >= EMITS_MOST)
        return error_set(MR_EFULL,
                         "a commit has at most %d emits; emit fewer, or from several "
                         "jobs",
                         EMITS_MOST);
    for (size_t i = 0; i < count; i++)
        more += parts[i]->size;
    if (more > BODY_MOST - output->emit_text.size)
        return error_set(MR_ETOOBIG, "the emits of one commit hold at most %d bytes", BODY_MOST);
    int err = buffer_reserve(&output->emit_text, more);
    if (err >= 0)
        err = buffer_append(&output->emits, &emit, sizeof emit);
    for (size_t i = 0; err >= 0 && i < count; i++)
        err = buffer_append(&output->emit_text, parts[i]->data, parts[i]->size);
    return err;
}

// The text may have moved since an emit was added.
const struct emit *leased_job_emits(struct mr_job *job, size_t *out_count) {
    const struct job_output *output = leased_job_output(job);
    struct emit *emits = (struct emit *)(void *)output->emits.data;
    const uint8_t *text = output->emit_text.data;
    size_t count = output->emits.size / sizeof *emits;
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
