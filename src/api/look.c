// Looking and acting: the checks, then the engine.
#include "api/handle.h"
#include "base/errors.h"

static int check_named(const mr *m, const char *stage, mr_bytes *out_stage) {
    int err = check_open_engine(m);
    return err < 0 ? err : check_stage(stage, out_stage);
}

int mr_stage_look(mr *m, const char *stage, mr_stage_info *out) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    if (err >= 0)
        err = engine_check_stage(name);
    if (err >= 0)
        err = check_pointer("the place for the answer", out);
    return err < 0 ? err : m->engine->impl->stage_look(m->engine, name, out);
}

int mr_stages(mr *m, int (*each)(const mr_stage_info *, void *arg), void *arg) {
    int err = check_open_engine(m);
    if (err >= 0)
        err = check_each(each != NULL);
    return err < 0 ? err : m->engine->impl->stages(m->engine, each, arg);
}

int mr_stage_why(mr *m, const char *stage, char *out, size_t size) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    if (err >= 0)
        err = engine_check_stage(name);
    if (err >= 0)
        err = check_pointer("the place for the sentence", out);
    if (err >= 0 && !size)
        err = error_set(MR_EINVAL, "the place for the sentence has 0 bytes");
    return err < 0 ? err : m->engine->impl->stage_why(m->engine, name, out, size);
}

int mr_stage_set(mr *m, const char *stage, const char *policy, const char *value) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    if (err >= 0)
        err = check_pointer("the policy", policy);
    if (err >= 0)
        err = check_pointer("the value", value);
    return err < 0 ? err
                   : m->engine->impl->stage_set(m->engine, name, mr_str(policy), mr_str(value));
}

int mr_stage_pause(mr *m, const char *stage) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    return err < 0 ? err : m->engine->impl->stage_pause(m->engine, name);
}

int mr_stage_pause_key(mr *m, const char *stage, mr_bytes key) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    return err < 0 ? err : m->engine->impl->stage_pause_key(m->engine, name, key);
}

int mr_stage_resume_key(mr *m, const char *stage, mr_bytes key) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    return err < 0 ? err : m->engine->impl->stage_resume_key(m->engine, name, key);
}

int mr_stage_drain(mr *m, const char *stage) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    return err < 0 ? err : m->engine->impl->stage_drain(m->engine, name);
}

int mr_stage_resume(mr *m, const char *stage) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    return err < 0 ? err : m->engine->impl->stage_resume(m->engine, name);
}

int mr_stage_wait_empty(mr *m, const char *stage, int64_t wait_ms) {
    mr_bytes name;
    int err = check_open_engine(m);
    if (err >= 0)
        err = check_stage_name(stage, &name);
    if (err >= 0)
        err = check_wait("wait_ms", wait_ms);
    return err < 0 ? err : m->engine->impl->stage_wait_empty(m->engine, name, wait_ms);
}

static int check_filter(const mr_job_filter *f) {
    int err = check_bytes("key", f->key);
    if (err >= 0 && f->key.size > KEY_MOST)
        err = error_set(MR_ETOOBIG, "a key of %zu bytes: %d at most", f->key.size, KEY_MOST);
    if (err >= 0)
        err = check_reserved(f->reserved, sizeof f->reserved / sizeof *f->reserved);
    return err;
}

static int check_query(mr *m, const char *stage, const mr_job_filter *filter, mr_bytes *out_name) {
    int err = check_named(m, stage, out_name);
    if (err >= 0)
        err = engine_check_stage(*out_name);
    return err < 0 ? err : check_filter(filter);
}

int mr_stage_cancel(mr *m, const char *stage, const mr_job_filter *filter, int dry,
                    uint64_t *out_count) {
    static const mr_job_filter all;
    mr_bytes name;
    uint64_t count = 0;
    filter = filter ? filter : &all;
    int err = check_query(m, stage, filter, &name);
    if (err >= 0 && filter->from)
        err = error_set(MR_EINVAL, "from is for lists: jobs are cancelled from the first");
    if (err >= 0)
        err = m->engine->impl->stage_cancel(m->engine, name, filter, dry, &count);
    if (err >= 0 && out_count)
        *out_count = count;
    return err;
}

int mr_jobs(mr *m, const char *stage, const mr_job_filter *filter,
            int (*each)(const mr_job_info *, void *arg), void *arg) {
    static const mr_job_filter all;
    mr_bytes name;
    filter = filter ? filter : &all;
    int err = check_query(m, stage, filter, &name);
    if (err >= 0 && filter->count > LISTED_MOST)
        err = error_set(MR_EINVAL, "a list of %u jobs is too long: %d at most", filter->count,
                        LISTED_MOST);
    if (err >= 0)
        err = check_each(each != NULL);
    return err < 0 ? err : m->engine->impl->jobs(m->engine, name, filter, each, arg);
}

int mr_dead(mr *m, const char *stage,
            int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    if (err >= 0)
        err = check_each(each != NULL);
    if (err >= 0)
        err = engine_check_stage(name);
    return err < 0 ? err : m->engine->impl->dead(m->engine, name, each, arg);
}

int mr_retry(mr *m, mr_id id) {
    int err = check_open_engine(m);
    return err < 0 ? err : m->engine->impl->retry(m->engine, id);
}

int mr_due(mr *m, mr_id id) {
    int err = check_open_engine(m);
    return err < 0 ? err : m->engine->impl->due(m->engine, id);
}

int mr_check(mr *m) {
    int err = check_open_engine(m);
    return err < 0 ? err : m->engine->impl->check(m->engine);
}

int mr_drop(mr *m, mr_id id) {
    int err = check_open_engine(m);
    return err < 0 ? err : m->engine->impl->drop(m->engine, id);
}
