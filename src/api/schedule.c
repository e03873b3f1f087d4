// Schedules: the checks, then the engine.
#include "api/handle.h"
#include "base/errors.h"
#include "base/job_spec.h"

struct schedule_place {
    mr_bytes stage, name;
};

static int check_schedule_place(const mr *m, const char *stage, const char *name,
                                struct schedule_place *out) {
    int err = check_open_engine(m);
    if (err >= 0)
        err = check_stage(stage, &out->stage);
    if (err >= 0)
        err = engine_check_stage(out->stage);
    if (err >= 0)
        err = check_pointer("the schedule's name", name);
    if (err < 0)
        return err;
    out->name = mr_str(name);
    if (!out->name.size || out->name.size > SCHEDULE_NAME_MOST)
        return error_set(MR_EINVAL, "the name of a schedule has 1 to %d bytes, not %zu",
                         SCHEDULE_NAME_MOST, out->name.size);
    return 0;
}

static int check_schedule_times(const mr_schedule_options *o) {
    bool cron = o->cron != NULL;
    if (cron == (o->every_ms != 0))
        return error_set(MR_EINVAL, "a schedule needs cron or every_ms, %s",
                         cron ? "not both" : "and has neither");
    if (cron && !*o->cron)
        return error_set(MR_EINVAL, "cron is empty: give five fields, such as '30 2 * * *'");
    if (!cron && o->tz)
        return error_set(MR_EINVAL, "tz is the time zone of cron: every_ms has none");
    return check_time("every_ms", o->every_ms);
}

static int check_schedule_options(const mr_schedule_options *o) {
    int err = check_pointer("the options, which say when", o);
    if (err >= 0)
        err = check_schedule_times(o);
    if (err >= 0)
        err = check_bytes("key", o->key);
    if (err >= 0)
        err = check_bytes("meta", o->meta);
    if (err >= 0)
        err = check_time("deadline_ms", o->deadline_ms);
    if (err < 0)
        return err;
    return check_reserved(o->reserved, sizeof o->reserved / sizeof *o->reserved);
}

int mr_schedule_set(mr *m, const char *stage, const char *name, mr_bytes body,
                    const mr_schedule_options *o) {
    struct schedule_place p;
    int err = check_schedule_place(m, stage, name, &p);
    if (err >= 0)
        err = check_bytes("body", body);
    if (err >= 0)
        err = check_schedule_options(o);
    return err < 0 ? err : m->engine->impl->schedule_set(m->engine, p.stage, p.name, body, o);
}

static int act_on_schedule(mr *m, const char *stage, const char *name, enum schedule_act act) {
    struct schedule_place p;
    int err = check_schedule_place(m, stage, name, &p);
    return err < 0 ? err : m->engine->impl->schedule_act(m->engine, p.stage, p.name, act);
}

int mr_schedule_drop(mr *m, const char *stage, const char *name) {
    return act_on_schedule(m, stage, name, SCHEDULE_DROP);
}

int mr_schedule_pause(mr *m, const char *stage, const char *name) {
    return act_on_schedule(m, stage, name, SCHEDULE_PAUSE);
}

int mr_schedule_resume(mr *m, const char *stage, const char *name) {
    return act_on_schedule(m, stage, name, SCHEDULE_RESUME);
}

int mr_schedule_now(mr *m, const char *stage, const char *name) {
    return act_on_schedule(m, stage, name, SCHEDULE_NOW);
}

int mr_schedule_look(mr *m, const char *stage, const char *name, mr_schedule_info *out) {
    struct schedule_place p;
    int err = check_schedule_place(m, stage, name, &p);
    if (err >= 0)
        err = check_pointer("the place for the answer", out);
    return err < 0 ? err : m->engine->impl->schedule(m->engine, p.stage, p.name, out);
}

int mr_schedules(mr *m, const char *stage, int (*each)(const mr_schedule_info *, void *arg),
                 void *arg) {
    mr_bytes only = { 0 };
    int err = check_open_engine(m);
    if (err >= 0 && stage)
        err = check_stage_name(stage, &only);
    if (err >= 0)
        err = check_each(each != NULL);
    return err < 0 ? err : m->engine->impl->schedules(m->engine, only, each, arg);
}
