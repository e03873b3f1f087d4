// The crash test over a replicated store: a workload over core, shard and stream log, while appends
// are lost, late or in doubt, the store fails over or does not answer, another owner claims the
// stream, and the owner dies. The shard is opened again, goes on, and everything that was fed must
// come through, once and in order.
//
// The segments and the window are so small that the cleaner works all the time, and on entries that
// it has to fetch from the store. MILLRACE_LONG=1 runs for minutes, MILLRACE_SEED begins elsewhere.
#include "log/log_stream.h"
#include "support/proof.h"
#include "support/sim_stream.h"
#include "support/workload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SEGMENT = 8 << 10, ROUNDS = 12, STEPS = 300 };

struct scene {
    struct workload *h;
    struct sim_store *store;
    struct shard_options options;
    uint64_t cuts;
};

// Opens the stream log in the place of the memory log. The store fails only now and then.
static struct log *stream_instead(void *arg, struct log *memory) {
    struct scene *s = arg;
    struct log_options options = s->options.log;
    log_close(memory);
    for (;;) {
        struct log *l;
        int err = log_stream_open(sim_store_streams(s->store), 0, &options, &l);
        if (err == 0)
            return l;
        must(s->h, err == MR_ENET || err == MR_EBUSY);
        sim_store_advance(s->store, 500);
    }
}

static void faults_set(struct scene *s, bool on) {
    static const uint32_t per_mille[SIM_FAULTS] = {
        [SIM_UNAVAILABLE] = 20,    [SIM_REQUEST_LOST] = 20, [SIM_REPLY_LOST] = 20, [SIM_LATE] = 20,
        [SIM_WAIT_CANCELLED] = 20, [SIM_FAILOVER] = 10,     [SIM_RIVAL] = 3,
    };
    for (int i = 0; i < SIM_FAULTS; i++)
        sim_store_chance(s->store, (enum sim_fault)i, on ? per_mille[i] : 0);
}

static void scene_begin(struct scene *s, uint64_t seed) {
    *s = (struct scene){ .h = calloc(1, sizeof *s->h), .store = sim_store_create(seed) };
    s->options = (struct shard_options){
        .store = store_in(NULL),
        .log = { .segment_size = SEGMENT,
                 .inline_writer = true,
                 .wrap = stream_instead,
                 .wrap_arg = s,
                 .stream = { .window_bytes = 2048, .clock = sim_store_clock(s->store) } },
    };
    workload_begin(s->h, seed);
}

static void scene_end(struct scene *s) {
    workload_close(s->h);
    sim_store_destroy(s->store);
    free(s->h);
}

// Opens and goes on until another owner claims the stream, or the owner dies.
static void scene_play(struct scene *s, uint64_t steps) {
    if (workload_roll(s->h, 4) == 0)
        sim_store_outage(s->store, workload_roll(s->h, 10000));
    int err = workload_open(s->h, &s->options);
    if (err == 0)
        err = workload_go_on(s->h, steps);
    must(s->h, err == 0 || err == MR_ESTOPPED);
    s->cuts += err == MR_ESTOPPED;
    sim_store_outage(s->store, UINT64_MAX);
    workload_close(s->h);
    sim_store_outage_end(s->store);
}

// H1, F34: nothing acknowledged is lost and nothing is done twice, whoever owns the stream.
static void H1_F34_no_owner_loses_or_repeats_anything(void **state) {
    (void)state;
    uint64_t until = proof_until_ms(3, 240), cleaned = 0, cuts = 0, changes = 0;
    uint64_t seed = proof_seed(1);
    do {
        struct scene s;
        struct log_state log;
        scene_begin(&s, seed++);
        faults_set(&s, true);
        for (int i = 0; i < ROUNDS; i++)
            scene_play(&s, workload_roll(s.h, STEPS));
        faults_set(&s, false);
        must(s.h, workload_open(s.h, &s.options) == 0);
        workload_drain(s.h);
        must(s.h, core_check(shard_core(s.h->shard)) == 0);
        shard_look(s.h->shard, &log);
        cleaned += log.head / SEGMENT;
        cuts += s.cuts;
        changes += ROUNDS;
        scene_end(&s);
    } while (monotonic_ms() < until);
    print_message("%llu segments cleaned, %llu owners, %llu lost the stream\n",
                  (unsigned long long)cleaned, (unsigned long long)changes,
                  (unsigned long long)cuts);
    assert_true(cleaned > 0 && cuts > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(H1_F34_no_owner_loses_or_repeats_anything),
    };
    return cmocka_run_group_tests_name("stream_crash", tests, NULL, NULL);
}
