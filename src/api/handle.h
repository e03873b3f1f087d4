// Handles: the objects of the public API. They lie in tables that are never freed, so that a closed
// one is recognised without following a pointer; every call begins with the checks below, which
// note a sentence that names the argument and the way out.
#ifndef API_HANDLE_H
#define API_HANDLE_H

#include "engine/engine.h"
#include "work/worker.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ENGINES_MAX = 64, WORKERS_MAX = 1024 }; // open at once in one process

struct taken_block;

struct mr {
    atomic_bool open;
    struct engine *engine;
    struct puller *puller;              // takes for mr_take
    pthread_mutex_t lock;               // guards `blocks`
    struct taken_block *_Atomic blocks; // taken in batches and not returned yet; see ahead.c
};

struct mr_worker {
    atomic_bool open;
    mr *engine;
    struct worker *worker;
};

static inline const struct engine_impl *impl_of_job(const mr_job *job) {
    return job->puller->engine->impl;
}

// A free place in a table, now open; NULL with MR_EFULL noted.
mr *handle_engine(void);
mr_worker *handle_worker(void);

// ---- Checks: 0 or MR_EINVAL -------------------------------------------------------------------

int check_open_engine(const mr *);
int check_worker(const mr_worker *);
int check_job(const mr_job *);                     // leased and not ended
int check_stage(const char *stage, mr_bytes *out); // not NULL or empty; the engine checks the name
int check_stage_name(const char *stage, mr_bytes *out); // the same, and a possible name
int check_bytes(const char *what, mr_bytes);
int check_pointer(const char *what, const void *);
int check_time(const char *what, int64_t ms); // not negative
int check_wait(const char *what, int64_t ms); // not negative, or MR_FOREVER
int check_each(bool given);                   // the function of a list
int check_reserved(const uint64_t *reserved, size_t count);
int check_push_options(const mr_push_options **options); // NULL becomes the defaults
int check_items(const mr_item *, size_t count, const mr_push_options *all);

// ---- ahead.c ----------------------------------------------------------------------------------

// Returns a job of the stage that an earlier take has leased. MR_EAGAIN: there is none.
int ahead_take(mr *, mr_bytes stage, mr_job **out);
// Keeps what came with `job` for later takes. MR_ENOMEM: all of it, and the job, was released.
int ahead_keep(mr *, mr_job *job);
// Releases what was not returned.
void ahead_finish(mr *);

#endif
