// Jobs that mr_take leased in a batch and has not returned yet, as blocks.
//
//     take batch 4 ──► a1 (returned) ── a2 ── a3     one lease: each only after the one before
//                      b1                            another lease: at any time
//
// A block is `busy` while the caller has one of its jobs. When that was committed the next one may
// be returned; else a beat finds out whether the rest is still leased.
#include "api/handle.h"
#include "base/errors.h"
#include "base/mem.h"

struct taken_block {
    struct leased_job_owner owner; // called when the job that the caller has was ended
    mr *m;
    struct taken_block *next;
    struct mr_job *rest; // no other thread uses them, so no lock is needed
    bool busy;
};

static struct mr_job *next_in_block(const struct mr_job *job) {
    return job->next && job->next->follows ? job->next : NULL;
}

static void release_rest(struct mr_job *job) {
    for (struct mr_job *next; job; job = next) {
        next = next_in_block(job);
        leased_job_claim(job);
        impl_of_job(job)->release(job, 0, 0);
    }
}

// With the lock.
static void unlink_block(mr *m, struct taken_block *b) {
    struct taken_block *first = atomic_load(&m->blocks);
    if (first == b) {
        atomic_store(&m->blocks, b->next);
        return;
    }
    while (first->next != b)
        first = first->next;
    first->next = b->next;
}

static void taken_block_ended(struct leased_job_owner *owner, uint64_t run, int outcome) {
    struct taken_block *b = (struct taken_block *)owner;
    mr *m = b->m;
    (void)run; // a block has one job with its caller
    bool lost = outcome < 0 && impl_of_job(b->rest)->beat(b->rest) < 0;
    pthread_mutex_lock(&m->lock);
    b->busy = false;
    if (lost)
        unlink_block(m, b);
    pthread_mutex_unlock(&m->lock);
    if (lost) {
        release_rest(b->rest);
        mem_free(b);
    }
}

// With the lock: takes the next job out of a block. The last one needs no block any more.
static struct mr_job *taken_block_next(mr *m, struct taken_block *b) {
    struct mr_job *job = b->rest;
    b->rest = next_in_block(job);
    b->busy = b->rest != NULL;
    job->owner = b->busy ? &b->owner : NULL;
    if (!b->busy) {
        unlink_block(m, b);
        mem_free(b);
    }
    return job;
}

static struct mr_job *take_from_block(mr *m, mr_bytes stage) {
    struct mr_job *job = NULL;
    pthread_mutex_lock(&m->lock);
    struct taken_block *b = atomic_load(&m->blocks);
    while (b && (b->busy || stage.size != b->rest->stage_size ||
                 memcmp(stage.data, leased_job_stage(b->rest), stage.size) != 0))
        b = b->next;
    if (b)
        job = taken_block_next(m, b);
    pthread_mutex_unlock(&m->lock);
    return job;
}

// Releases jobs that must stop instead of returning them.
int ahead_take(mr *m, mr_bytes stage, mr_job **out) {
    for (struct mr_job *job; (job = take_from_block(m, stage)) != NULL;) {
        if (!leased_job_stopped(job)) {
            *out = job;
            return 0;
        }
        struct leased_job_owner *owner = job->owner;
        leased_job_claim(job);
        impl_of_job(job)->release(job, 0, 0);
        if (owner)
            owner->ended(owner, 0, MR_ESTALE);
    }
    return MR_EAGAIN;
}

static int keep_block(mr *m, struct mr_job *rest, struct mr_job *out_already) {
    struct taken_block *b = mem_alloc(sizeof *b);
    if (!b)
        return error_set(MR_ENOMEM, "no memory to keep a batch of jobs");
    *b = (struct taken_block){ .owner.ended = taken_block_ended, .m = m, .rest = rest };
    b->busy = out_already != NULL;
    if (out_already)
        out_already->owner = &b->owner;
    pthread_mutex_lock(&m->lock);
    struct taken_block *last = atomic_load(&m->blocks);
    while (last && last->next)
        last = last->next;
    if (last)
        last->next = b;
    else
        atomic_store(&m->blocks, b);
    pthread_mutex_unlock(&m->lock);
    return 0;
}

// Cuts the chain behind the first block and returns the rest. Jobs of other blocks may end before
// those of this one, and be jobs of any block then.
static struct mr_job *cut_block(struct mr_job *job) {
    while (next_in_block(job))
        job = job->next;
    struct mr_job *other = job->next;
    job->next = NULL;
    return other;
}

int ahead_keep(mr *m, mr_job *job) {
    struct mr_job *rest = next_in_block(job), *other = cut_block(job);
    int err = rest ? keep_block(m, rest, job) : 0;
    if (err < 0)
        release_rest(job);
    for (struct mr_job *first; (first = other) != NULL;) {
        other = cut_block(first);
        if (err < 0 || keep_block(m, first, NULL) < 0)
            release_rest(first);
    }
    return err;
}

void ahead_finish(mr *m) {
    pthread_mutex_lock(&m->lock);
    for (struct taken_block *b = atomic_load(&m->blocks), *next; b; b = next) {
        next = b->next;
        if (b->busy)
            continue;
        unlink_block(m, b);
        release_rest(b->rest);
        mem_free(b);
    }
    pthread_mutex_unlock(&m->lock);
}
