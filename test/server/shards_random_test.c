// Random histories of a server over several shards: pushes, epics, workers that wait, fail, emit
// and vanish, and people who cancel, retry, drop, pause, drain and set limits.
//
// Every job has a number, which is its body. Each is done once, or was cancelled or dropped; jobs
// of a channel from one origin start in their order; lists agree with the counts; no channel is
// blocked for ever, and a wait for the epic ends.
#include "support/dialogue.h"
#include "support/proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 3, STAGES = 3, KEYS = 5, WORKERS = 4, FIRST_WORKER = 2, WAITER = 6 };
enum { MOST = 4000, STEPS = 600, NO_KEY = -1, NO_ORIGIN = -1 };

enum fate { ALIVE, DONE, GONE };
enum { ENDS_WELL = 100 }; // and emits nothing

struct piece {
    enum fate fate;
    int stage, key, origin; // origin: a channel, or the client
    bool begun;
    char id[24]; // "": not known yet
};

struct world {
    struct dialogue *dialogue;
    uint64_t seed, dice;
    struct piece pieces[MOST];
    int count;
    uint64_t epic; // numbers that were accepted
    bool asks[WORKERS], has[WORKERS];
    struct job held[WORKERS];
};

static uint64_t roll(struct world *w, uint64_t below) {
    uint64_t z = w->dice += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

#define must(w, condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %" PRIu64 ", line %d: %s", (w)->seed, __LINE__, #condition);            \
    } while (0)

static const char *answer(struct world *w, int client) {
    return next_reply(w->dialogue, client);
}

static bool is_ok(const char *reply) {
    return strcmp(reply, "+OK") == 0;
}

// ---- Handing in -------------------------------------------------------------------------------

static int piece_make(struct world *w, int stage, int key, int origin) {
    w->pieces[w->count] = (struct piece){ .stage = stage, .key = key, .origin = origin };
    return w->count++;
}

static const char *key_name(int key) {
    static const char *const names[] = { "''", "k0", "k1", "k2", "k3", "k4" };
    return names[key + 1];
}

static int roll_key(struct world *w) {
    return (int)roll(w, KEYS + 2) < 2 ? NO_KEY : (int)roll(w, KEYS);
}

// The client pushes one after another; those of the epic among the others.
static void push_one(struct world *w) {
    int stage = (int)roll(w, 8) ? 0 : 1, key = roll_key(w);
    bool epic = roll(w, 3) == 0 && stage == 0;
    char numbered[32] = "";
    if (w->count >= MOST - 8)
        return;
    if (epic)
        snprintf(numbered, sizeof numbered, " EPIC e %" PRIu64, w->epic + 1);
    send_linef(w->dialogue, 1, "PUSH s%d %d KEY %s%s", stage, w->count, key_name(key), numbered);
    const char *reply = answer(w, 1);
    if (reply[0] == '-') // FULL, DRAINING: it is not there
        return;
    must(w, reply[0] == '"');
    int n = piece_make(w, stage, key, STAGES * KEYS);
    snprintf(w->pieces[n].id, sizeof w->pieces[n].id, "%.*s", (int)strlen(reply) - 2, reply + 1);
    w->epic += epic;
}

// ---- Working ----------------------------------------------------------------------------------

static void expect_in_order(struct world *w, int n) {
    const struct piece *p = &w->pieces[n];
    for (int i = 0; i < n && p->key != NO_KEY && p->origin != NO_ORIGIN; i++) {
        const struct piece *q = &w->pieces[i];
        bool same = q->stage == p->stage && q->key == p->key && q->origin == p->origin;
        must(w, !same || q->begun || q->fate != ALIVE);
    }
}

static int number_of(const struct job *job) {
    return (int)strtol(job->body, NULL, 10);
}

static void begin_job(struct world *w, int worker) {
    struct job job = taken(w->dialogue, FIRST_WORKER + worker);
    int n = number_of(&job);
    must(w, n < w->count && w->pieces[n].fate == ALIVE);
    must(w, !w->pieces[n].id[0] || strcmp(w->pieces[n].id, job.id) == 0);
    snprintf(w->pieces[n].id, sizeof w->pieces[n].id, "%s", job.id);
    if (!w->pieces[n].begun)
        expect_in_order(w, n);
    w->pieces[n].begun = true;
    w->held[worker] = job;
    w->has[worker] = true;
    w->asks[worker] = false;
}

static void receive_jobs(struct world *w) {
    for (int i = 0; i < WORKERS; i++)
        if (w->asks[i] && w->dialogue->clients[FIRST_WORKER + i].received.size)
            begin_job(w, i);
}

static void ask_for_work(struct world *w, int worker) {
    if (w->asks[worker] || w->has[worker])
        return;
    send_line(w->dialogue, FIRST_WORKER + worker, "TAKE s0 s1 s2 WAIT -1");
    w->asks[worker] = true;
}

static void commit(struct world *w, int worker, int emits) {
    const struct job *job = &w->held[worker];
    struct piece *p = &w->pieces[number_of(job)];
    int first = w->count, origin = p->key == NO_KEY ? NO_ORIGIN : p->stage * KEYS + p->key;
    char words[512] = "";
    for (int i = 0; i < emits && w->count < MOST - 8; i++) {
        int key = roll_key(w), stage = roll(w, 20) ? (p->stage + 1) % STAGES : p->stage;
        int n = piece_make(w, stage, key, origin);
        snprintf(words + strlen(words), 64, " EMIT s%d %s %d", stage, key_name(key), n);
    }
    send_linef(w->dialogue, FIRST_WORKER + worker, "DONE %s %s%s", job->id, job->token, words);
    bool ok = is_ok(answer(w, FIRST_WORKER + worker));
    must(w, ok == (p->fate == ALIVE));
    p->fate = ok ? DONE : p->fate;
    w->count = ok ? w->count : first;
}

static void finish(struct world *w, int worker, uint64_t how) {
    static const char *const words[] = { "FAIL %s %s no RETRY 0", "FAIL %s %s no RETRY 20",
                                         "FAIL %s %s no NEVER", "RELEASE %s %s" };
    if (!w->has[worker])
        return;
    w->has[worker] = false;
    if (how == ENDS_WELL) {
        commit(w, worker, 0);
        return;
    }
    if (how >= 4) {
        commit(w, worker, (int)roll(w, w->pieces[number_of(&w->held[worker])].stage < 2 ? 4 : 2));
        return;
    }
    char request[256];
    snprintf(request, sizeof request,
             how == 0   ? words[0]
             : how == 1 ? words[1]
             : how == 2 ? words[2]
                        : words[3],
             w->held[worker].id, w->held[worker].token);
    send_line(w->dialogue, FIRST_WORKER + worker, request);
    (void)answer(w, FIRST_WORKER + worker);
}

static void vanish(struct world *w, int worker) {
    hang_up(w->dialogue, FIRST_WORKER + worker);
    connect_client(w->dialogue, FIRST_WORKER + worker);
    w->asks[worker] = w->has[worker] = false;
}

// ---- Deciding ---------------------------------------------------------------------------------

static void decide(struct world *w) {
    struct piece *p = &w->pieces[roll(w, (uint64_t)w->count + 1)];
    static const char *const verbs[] = { "CANCEL", "CANCEL", "RETRY", "RETRY", "DROP" };
    uint64_t which = roll(w, 5);
    if (!p->id[0])
        return;
    send_linef(w->dialogue, 0, "%s %s", verbs[which], p->id);
    const char *reply = answer(w, 0);
    if (strcmp(reply, ":1") == 0 && (which < 2 || which == 4)) {
        must(w, p->fate == ALIVE);
        p->fate = GONE;
    }
}

static void steer(struct world *w) {
    static const char *const verbs[] = { "PAUSE", "DRAIN", "RESUME", "RESUME" };
    send_linef(w->dialogue, 0, "%s s%d", verbs[roll(w, 4)], (int)roll(w, STAGES));
    must(w, is_ok(answer(w, 0)));
}

static void limit(struct world *w) {
    static const char *const limits[] = {
        "concurrency 1", "concurrency 2", "concurrency none", "rate 100/s",
        "rate none",     "max-jobs 10",   "max-jobs none",    "high-mark 3",
        "high-mark 100", "on-dead halt",  "on-dead skip",
    };
    send_linef(w->dialogue, 0, "STAGE s%d %s", (int)roll(w, STAGES),
               limits[roll(w, sizeof limits / sizeof *limits)]);
    const char *reply = answer(w, 0);
    must(w, is_ok(reply));
}

// ---- Looking ----------------------------------------------------------------------------------

static long field(const char *reply, const char *name) {
    const char *at = strstr(reply, name);
    return at ? strtol(at + strlen(name), NULL, 10) : 0;
}

static long count_rows(struct world *w, int stage, const char *status) {
    long count = 0;
    char from[40] = "";
    for (bool more = true; more;) {
        more = false;
        send_linef(w->dialogue, 0, "JOBS s%d STATUS %s COUNT 7%s", stage, status, from);
        const char *reply = answer(w, 0);
        must(w, reply[0] == '[');
        for (const char *at = reply; (at = strstr(at, "[\"id\" \"")); at++, count++, more = true)
            snprintf(from, sizeof from, " FROM %llu", strtoull(at + 7, NULL, 10));
    }
    return count;
}

static uint64_t emits_on_their_way(const struct world *w) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < SHARDS; i++)
        count += core_links(w->dialogue->host.parts[i].core);
    return count;
}

static void look(struct world *w) {
    static const char *const fields[] = { "\"waiting\" :", "\"running\" :", "\"delayed\" :",
                                          "\"dead\" :" };
    static const char *const statuses[] = { "waiting", "running", "delayed", "dead" };
    for (int i = 0; i < 20 && emits_on_their_way(w); i++)
        turn(w->dialogue);
    must(w, !emits_on_their_way(w));
    receive_jobs(w);
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < 4; i++) {
            send_linef(w->dialogue, 0, "STAGES NAME s%d", stage);
            long counted = field(answer(w, 0), fields[i]);
            must(w, counted == count_rows(w, stage, statuses[i]));
        }
}

// ---- Histories --------------------------------------------------------------------------------

static void step(struct world *w) {
    uint64_t how = roll(w, 100);
    int worker = (int)roll(w, WORKERS);
    if (how < 25)
        push_one(w);
    else if (how < 50)
        ask_for_work(w, worker);
    else if (how < 80)
        finish(w, worker, roll(w, 14));
    else if (how < 86)
        decide(w);
    else if (how < 89)
        steer(w);
    else if (how < 92)
        limit(w);
    else if (how < 96)
        pass_ms(w->dialogue, roll(w, 30));
    else if (how < 98)
        vanish(w, worker);
    else
        look(w);
    receive_jobs(w);
}

static void relax(struct world *w) {
    static const char *const words[] = { "RESUME s%d", "STAGE s%d max-jobs none",
                                         "STAGE s%d high-mark 3", "STAGE s%d concurrency 1",
                                         "STAGE s%d rate 1000/s" };
    for (int stage = 0; stage < STAGES; stage++) {
        char text[64];
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            snprintf(text, sizeof text, words[i], stage);
            send_line(w->dialogue, 0, text);
            must(w, is_ok(answer(w, 0)));
        }
        send_linef(w->dialogue, 0, "RETRY STAGE s%d DEAD MAX 100000", stage);
        must(w, answer(w, 0)[0] == ':');
    }
}

static int alive(const struct world *w) {
    int count = 0;
    for (int i = 0; i < w->count; i++)
        count += w->pieces[i].fate == ALIVE;
    return count;
}

// No client takes again before all waiting ones got a job: so each must get its own.
static void ask_in_rounds(struct world *w) {
    for (int i = 0; i < WORKERS; i++)
        if (w->asks[i] || w->has[i])
            return;
    for (int i = 0; i < WORKERS; i++)
        ask_for_work(w, i);
}

// Limits stay: a take that is passed over would never get its job.
static void drain(struct world *w) {
    relax(w);
    for (int idle = 0; idle < 300 && alive(w); idle++) {
        ask_in_rounds(w);
        receive_jobs(w);
        for (int i = 0; i < WORKERS; i++) {
            idle = w->has[i] ? 0 : idle;
            finish(w, i, ENDS_WELL);
            receive_jobs(w);
        }
        pass_ms(w->dialogue, 5);
        receive_jobs(w);
    }
    must(w, !alive(w));
}

static void end_epic(struct world *w) {
    send_linef(w->dialogue, 0, "EPIC s0 e END %" PRIu64, w->epic);
    (void)answer(w, 0);
    connect_client(w->dialogue, WAITER);
    send_line(w->dialogue, WAITER, "EPIC s0 e WAIT -1");
}

// All of it has ended: well, by a decision, or for good, until that was tried once more.
static void expect_epic(struct world *w, const char *reply) {
    long ended =
        field(reply, "\"done\" :") + field(reply, "\"dead\" :") + field(reply, "\"cancelled\" :");
    must(w, (uint64_t)ended == w->epic);
    must(w, (uint64_t)field(reply, "\"accepted\" :") == w->epic);
}

static void history(uint64_t seed) {
    struct world *w = calloc(1, sizeof *w);
    w->seed = seed;
    w->dice = seed;
    dialogue_shards = SHARDS;
    w->dialogue = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    for (int i = 0; i < WORKERS; i++)
        connect_client(w->dialogue, FIRST_WORKER + i);
    for (int stage = 0; stage < STAGES; stage++) {
        send_linef(w->dialogue, 0, "STAGE s%d attempts 60000", stage);
        must(w, is_ok(answer(w, 0)));
    }
    for (int i = 0; i < STEPS; i++)
        step(w);
    end_epic(w);
    drain(w);
    look(w);
    expect_epic(w, answer(w, WAITER));
    send_line(w->dialogue, 0, "EPIC s0 e");
    expect_epic(w, answer(w, 0));
    for (int i = 0; i < WORKERS; i++)
        hang_up(w->dialogue, FIRST_WORKER + i);
    dialogue_check(w->dialogue);
    dialogue_destroy(w->dialogue);
    free(w);
}

static void E4_each_job_is_done_once_or_gone_after_any_fault(void **state) {
    (void)state;
    uint64_t only = proof_seed(0), seed = 1, until_ms = proof_until_ms(3, 30);
    if (only) {
        history(only);
        return;
    }
    for (; seed <= 10 || monotonic_ms() < until_ms; seed++)
        history(seed);
    print_message("%" PRIu64 " histories\n", seed - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E4_each_job_is_done_once_or_gone_after_any_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
