// See ticks.h.
#include "shard/ticks.h"

#include "base/errors.h"
#include "base/mutant.h"
#include "shard/instants.h"
#include "shard/shard.h"

enum {
    TICKS_A_TURN = 200,
    TICK_BYTES_A_TURN = 4 << 20,
    TICK_UNKNOWN_MS = 60000, // a zone that is not there any more is looked for again
};

void ticks_finish(struct ticks *t) {
    zones_finish(&t->zones);
}

// ---- Instants of a schedule -------------------------------------------------------------------

static int instants_of(struct ticks *t, mr_bytes cron, uint64_t every_ms, mr_bytes zone,
                       struct instants *out) {
    struct instants in = { .every_ms = cron.size ? 0 : every_ms };
    int err = cron.size ? cron_parse(cron, &in.cron) : 0;
    if (err == 0)
        err = zones_get(&t->zones, zone, core_now(t->core), &in.zone);
    if (err == 0)
        *out = in;
    return err;
}

static uint64_t later_of(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// The instants of a schedule that is not there yet, and its zone if it says none.
static int spec_instants(struct ticks *t, struct schedule_spec *spec, struct instants *out) {
    if (!spec->zone.size)
        spec->zone = mr_str("UTC");
    return instants_of(t, spec->cron, spec->every_ms, spec->zone, out);
}

int ticks_check(struct ticks *t, const struct schedule_spec *wanted) {
    struct schedule_spec spec = *wanted;
    struct instants in;
    int err = spec_instants(t, &spec, &in);
    return err < 0 ? err : core_schedule_check(t->core, &spec);
}

int ticks_set(struct ticks *t, const struct schedule_spec *wanted) {
    struct schedule_spec spec = *wanted;
    struct schedule_info before = { 0 };
    struct instants in;
    int err = spec_instants(t, &spec, &in);
    if (err < 0)
        return err;
    (void)core_schedule(t->core, spec.stage, spec.name, &before); // 0: there is none
    uint64_t next = 0;
    if (spec.cron.size || spec.every_ms) // else the core refuses it
        next = instants_next(&in, later_of(world_wall_ms(t->world), before.last_ms));
    t->look_ms = 0;
    return core_schedule_set(t->core, &spec, next);
}

int ticks_resume(struct ticks *t, mr_bytes stage, mr_bytes name) {
    struct schedule_info s;
    struct instants in;
    int err = core_schedule(t->core, stage, name, &s);
    if (err == 0)
        err = instants_of(t, s.cron, s.every_ms, s.zone, &in);
    if (err < 0)
        return err;
    t->look_ms = 0;
    return core_schedule_resume(t->core, stage, name,
                                instants_next(&in, later_of(world_wall_ms(t->world), s.last_ms)));
}

int ticks_now(struct ticks *t, mr_bytes stage, mr_bytes name) {
    int err = core_schedule_now(t->core, stage, name);
    if (err < 0)
        return err;
    t->look_ms = 0;
    ticks_run(t);
    return 0;
}

uint32_t ticks_upcoming(struct ticks *t, const struct schedule_info *s,
                        uint64_t out[UPCOMING_MOST]) {
    struct instants in;
    uint32_t count = 0;
    if (!s->next_ms || instants_of(t, s->cron, s->every_ms, s->zone, &in) < 0)
        return 0;
    for (uint64_t at = s->next_ms; count < UPCOMING_MOST && at < INSTANTS_END_MS - 1;
         at = instants_next(&in, at))
        out[count++] = at;
    return count;
}

// ---- Running ----------------------------------------------------------------------------------

static struct tick tick_of(const struct due_schedule *d, const struct instants *in,
                           uint64_t wall_ms) {
    uint64_t last = d->next_ms;
    if (d->missed == MISSED_ALL) {
        if (!d->catching_up)
            last = instants_last_few(in, last, wall_ms, MISSED_MOST);
    } else {
        last = instants_last(in, last, wall_ms);
    }
    bool is_late = wall_ms - last > TICK_LATE_MS;
    uint64_t next = instants_next(in, last);
    return (struct tick){ .pushes = d->missed != MISSED_SKIP || !is_late ||
                                    MUTANT(missed_tick_not_skipped),
                          .last_ms = last,
                          .next_ms = next,
                          .catching_up = d->missed == MISSED_ALL && next <= wall_ms };
}

// False: nothing more can be pushed in this turn.
static bool tick_run(struct ticks *t, const struct due_schedule *d, uint64_t wall_ms) {
    struct instants in;
    struct tick tick = { .pushes = true, .catching_up = d->catching_up };
    if (!d->asked && instants_of(t, d->cron, d->every_ms, d->zone, &in) < 0) {
        core_tick_later(t->core, d->place, wall_ms + TICK_UNKNOWN_MS);
        return true;
    }
    if (!d->asked)
        tick = tick_of(d, &in, wall_ms);
    int err = core_tick(t->core, d->place, wall_ms, &tick);
    return err == 0 || err == MR_EAGAIN;
}

void ticks_run(struct ticks *t) {
    uint64_t wall_ms = world_wall_ms(t->world), now_ms = core_now(t->core), bytes = 0;
    uint32_t count = 0;
    struct due_schedule d;
    bool more = true;
    while (more && count++ < TICKS_A_TURN && bytes < TICK_BYTES_A_TURN &&
           (more = core_tick_due(t->core, wall_ms, &d))) {
        bytes += d.body_size;
        more = tick_run(t, &d, wall_ms);
    }
    uint64_t next = core_tick_next(t->core), wait = next > wall_ms ? next - wall_ms : 0;
    t->look_ms = now_ms + (wait < TICKS_LOOK_MS ? wait : TICKS_LOOK_MS);
}
