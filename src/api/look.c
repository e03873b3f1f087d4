// Looking and acting: the checks, then the engine.
#include "api/handle.h"
#include "base/errors.h"

static int check_named(const mr *m, const char *stage, mr_bytes *out_stage) {
    int err = check_engine(m);
    return err < 0 ? err : check_stage(stage, out_stage);
}

int mr_stage_look(mr *m, const char *stage, mr_stage_info *out) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    if (err >= 0)
        err = engine_check_stage(name);
    if (err >= 0)
        err = check_pointer("the place for the answer", out);
    return err < 0 ? err : m->engine->impl->stage(m->engine, name, out);
}

int mr_stage_set(mr *m, const char *stage, const char *policy, const char *value) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    if (err >= 0)
        err = check_pointer("the policy", policy);
    if (err >= 0)
        err = check_pointer("the value", value);
    return err < 0 ? err : m->engine->impl->set(m->engine, name, mr_str(policy), mr_str(value));
}

int mr_stage_pause(mr *m, const char *stage) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    return err < 0 ? err : m->engine->impl->pause(m->engine, name);
}

int mr_stage_resume(mr *m, const char *stage) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    return err < 0 ? err : m->engine->impl->resume(m->engine, name);
}

int mr_dead(mr *m, const char *stage,
            int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg) {
    mr_bytes name;
    int err = check_named(m, stage, &name);
    if (err >= 0 && !each)
        err = error_set(MR_EINVAL, "each is NULL: what is to be done with them?");
    if (err >= 0)
        err = engine_check_stage(name);
    return err < 0 ? err : m->engine->impl->dead(m->engine, name, each, arg);
}

int mr_retry(mr *m, mr_id id) {
    int err = check_engine(m);
    return err < 0 ? err : m->engine->impl->retry(m->engine, id);
}

int mr_drop(mr *m, mr_id id) {
    int err = check_engine(m);
    return err < 0 ? err : m->engine->impl->drop(m->engine, id);
}
