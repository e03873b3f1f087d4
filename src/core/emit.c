// See emit.h.
#include "core/emit.h"

#include "core/link.h"

#include "base/errors.h"
#include "base/mem.h"

// Forgets stages that were made only for these.
APART void emits_undo(struct core *c, struct emits *e) {
    for (uint32_t i = 0; i < e->prepared; i++) {
        push_plan_unpin(c, &e->plans[i]);
        if (e->plans[i].linked)
            outbox_undo(c, e->plans[i].channel);
    }
    for (uint32_t i = 0; e->pushes && i < e->count && i <= e->prepared; i++)
        stage_forget_unused(c, e->pushes[i].stage);
    mem_free(e->pushes);
    mem_free(e->plans);
    *e = (struct emits){ 0 };
}

enum { EMITS_COMPARED = 32 }; // in a step

static bool is_repeated_here(struct core *c, const struct emits *e, uint32_t index) {
    const struct push_plan *plan = &e->plans[index];
    c->steps += plan->has_once ? index / EMITS_COMPARED : 0;
    for (uint32_t i = 0; plan->has_once && i < index; i++) {
        const struct push_plan *other = &e->plans[i];
        if (other->has_once && other->once.low == plan->once.low &&
            other->once.high == plan->once.high)
            return true;
    }
    return false;
}

static int emit_prepare(struct core *c, struct emits *e, const struct emit *from, uint32_t index) {
    struct push_plan *plan = &e->plans[index];
    e->pushes[index] = (struct push){ .stage = from->stage, .body = from->body, .job = from->job };
    int err = push_check(c, &e->pushes[index]);
    if (err < 0)
        return err;
    uint32_t to = emit_route(c, from);
    if (to != c->config.shard)
        return outbox_prepare(c, &e->pushes[index], to, plan);
    if ((err = push_plan_begin(c, &e->pushes[index], plan)) < 0)
        return err;
    if (plan->is_repeat || is_repeated_here(c, e, index)) {
        plan->is_repeat = true;
        return 0;
    }
    if ((err = push_plan_prepare(c, plan)) < 0)
        return err;
    push_plan_pin(c, plan);
    return 0;
}

static int emits_reserve(struct core *c, const struct emits *e, const struct emit *list,
                         uint32_t count) {
    uint32_t named = 0;
    for (uint32_t i = 0; i < count; i++)
        named += list[i].job.once.size != 0;
    int err = job_reserve(c, e->count, true);
    if (err < 0)
        return err;
    if ((err = once_reserve(c, named)) < 0)
        return err;
    return ids_reserve(c, e->count);
}

APART int emits_prepare(struct core *c, struct emits *e, const struct emit *list, uint32_t count,
                        const struct emit *last, uint64_t last_maker) {
    *e = (struct emits){ .count = count + (last != NULL) };
    int err = emits_reserve(c, e, list, count);
    if (err < 0)
        return err;
    c->steps += (uint64_t)e->count * STEPS_EMIT;
    e->pushes = mem_alloc(e->count * sizeof *e->pushes);
    e->plans = mem_alloc(e->count * sizeof *e->plans);
    if (!e->pushes || !e->plans) {
        mem_free(e->pushes);
        e->pushes = NULL;
        return error_set(MR_ENOMEM, "no memory for %u emits", e->count);
    }
    for (; e->prepared < count; e->prepared++)
        if ((err = emit_prepare(c, e, &list[e->prepared], e->prepared)) < 0)
            return err;
    uint64_t before = c->job_maker;
    c->job_maker = last_maker;
    err = last ? emit_prepare(c, e, last, e->prepared) : 0;
    c->job_maker = before;
    e->prepared += last && err == 0;
    return err;
}

APART void emits_sizes(const struct emits *e, size_t *records, size_t *bytes, size_t *joined) {
    for (uint32_t i = 0; i < e->prepared; i++) {
        const struct push *p = &e->pushes[i];
        *bytes += p->job.key.size + p->stage.size + p->job.once.size;
        *joined += push_joined_size(p);
    }
    *records += 2 * (size_t)e->prepared;
}

APART void emits_add_stages(struct core *c, struct emits *e) {
    size_t before = c->out.count;
    for (uint32_t i = 0; i < e->prepared; i++) {
        struct stage *s = c->stages[e->plans[i].stage];
        if (s->recorded || e->plans[i].is_repeat)
            continue;
        struct record_about about;
        struct record r = record_of_stage(c, s, &about);
        stage_set_home(c, s, c->out.count, 0); // `at` is the index in the group for now
        out_add(c, &r, (mr_bytes){ 0 });
    }
    e->new_stages = c->out.count - before;
}

// An emit with the `once` of a call makes the call wanted without callers, as a push would.
static bool makes_wanted(const struct core *c, const struct emits *e, uint32_t index) {
    uint32_t job = e->plans[index].is_repeat ? e->plans[index].repeat_job : 0;
    return job && job_at(c, job)->status < JOB_DONE &&
           !(job_at(c, job)->flags & JOB_WANTED_FOR_GOOD);
}

APART void emits_add(struct core *c, struct emits *e) {
    e->first = c->out.count;
    for (uint32_t i = 0; i < e->prepared; i++) {
        const struct push_plan *plan = &e->plans[i];
        if (plan->linked)
            outbox_add_record(c, plan);
        else if (!plan->is_repeat)
            out_add_push(c, plan);
    }
    for (uint32_t i = 0; i < e->prepared; i++) {
        if (!makes_wanted(c, e, i))
            continue;
        struct record r = { .kind = RECORD_WANT,
                            .time_ms = c->now_ms,
                            .id = e->plans[i].repeat_id };
        out_add(c, &r, (mr_bytes){ 0 });
    }
}

// Sets the homes of the new stages, or marks them as not recorded.
APART void emits_written(struct core *c, const struct emits *e, int err) {
    for (uint32_t i = 0; i < e->prepared && e->new_stages > 0; i++) {
        struct stage *s = c->stages[e->plans[i].stage];
        if (e->plans[i].is_repeat || s->size)
            continue;
        if (err < 0)
            s->recorded = false;
        else
            stage_set_home(c, s, c->out.at[s->at], out_size(c, s->at));
    }
}

APART void emits_want(struct core *c, const struct emits *e) {
    for (uint32_t i = 0; i < e->prepared; i++)
        if (makes_wanted(c, e, i))
            job_at(c, e->plans[i].repeat_job)->flags |= JOB_WANTED_FOR_GOOD;
}

APART void emits_apply(struct core *c, struct emits *e, uint32_t from, uint32_t learned) {
    size_t next = e->first;
    for (uint32_t i = 0; i < e->prepared; i++) {
        struct push_plan *plan = &e->plans[i];
        if (plan->is_repeat)
            continue;
        if (plan->linked)
            outbox_send(c, plan, c->out.at[next], out_size(c, next));
        else
            push_plan_apply(c, plan, c->out.at[next], out_size(c, next));
        next++;
    }
    for (uint32_t i = 0; i < learned; i++) // if this fails, the next emit learns the edge
        (void)stage_learn_edge(c, from, e->plans[i].stage);
    mem_free(e->pushes);
    mem_free(e->plans);
}
