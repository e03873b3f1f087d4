// See nodes_history.h and nodes_state.h: programs that use the C library, with all its threads
// (sim_threads.h). Two run workers, which are stopped and started again, and one pushes and calls.
// A program that is killed loses what it knew, and another takes its place.
//
// A handler works for a while, also for longer than its lease, and then returns, calls mr_done,
// fails or releases. Only mr_done has an answer; what a commit by return has become is proved by
// the jobs and states that come of it.
#include "support/nodes_state.h"
#include "support/sim_threads.h"

#include "engine/leased_job.h"
#include "millrace.h"
#include "server/answer.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TELL_MS = 90000,
    SLICE_MS = 25,
    ITEMS = 6,
    PUSHERS = 2,
    LEASE_MS = 1200,
    LONG_LEASE_MS = 600000
};

struct library {
    struct history *history;
    struct library *next_killed;
    struct sim_program program;
    int index, number; // its place; how many were started before it
    int handlers;      // that run
    uint64_t numbered;
    mr *engine;
};

// A call of one of these threads.
struct push_thread {
    struct library *library;
    int index;
};

static bool goes_on(const struct library *l) {
    return !l->program.is_dead && !l->history->nodes->failure[0];
}

// Until the time is over, or the program ends.
static void rest_ms(const struct library *l, uint64_t ms) {
    for (uint64_t at = 0; at < ms && goes_on(l) && !l->history->libraries_end; at += 100)
        sim_sleep_ms(ms - at < 100 ? ms - at : 100);
}

static int open_engine(struct library *l) {
    char url[16 + SIM_NODES * (NODE_ADDRESS + 1)] = "millrace://";
    struct sim_nodes *w = l->history->nodes;
    int first = (int)roll(l->history, (uint64_t)w->node_count);
    for (int i = 0; i < w->node_count; i++) {
        size_t used = strlen(url);
        snprintf(url + used, sizeof url - used, "%s%s", i ? "," : "",
                 w->nodes[(first + i) % w->node_count].address);
    }
    return mr_open(url, NULL, &l->engine);
}

static bool open_until_reached(struct library *l) {
    while (goes_on(l) && !l->history->libraries_end) {
        if (open_engine(l) == 0)
            return true;
        sim_nodes_note(l->history->nodes, "library %d: %s", l->index, mr_error());
        rest_ms(l, 100);
    }
    return false;
}

static void close_engine(struct library *l) {
    int err = mr_close(l->engine);
    if (err < 0 && goes_on(l))
        wrong(l->history, "library %d: mr_close: %s", l->index, mr_error());
    assert(err == 0 || !goes_on(l));
}

// ---- Handlers -----------------------------------------------------------------------------------

static mr_bytes token_of(const mr_job *job) {
    const char *text = (const char *)job->token;
    return (mr_bytes){ text, strnlen(text, sizeof job->token) };
}

static int handler_begins(struct library *l, const mr_job *job, uint64_t *out_serial) {
    struct token token;
    int err = token_read(token_of(job), &token);
    assert(err == 0);
    *out_serial = token.serial;
    struct taken taken = { .client = CLIENTS + l->index,
                           .id = mr_job_id(job),
                           .serial = token.serial,
                           .attempt = mr_job_attempt(job),
                           .stage = mr_str(mr_job_stage(job)),
                           .body = mr_job_body(job),
                           .has_state = true,
                           .state = mr_job_state(job) };
    return job_is_taken(l->history, &taken);
}

static uint64_t work_ms(struct history *h) {
    uint64_t kind = roll(h, 12);
    return kind == 0 ? roll(h, 3 * LEASE_MS) : kind < 6 ? roll(h, 200) : 0;
}

// A job that was cancelled must be stopped, however long it takes.
static void work(struct library *l, const mr_job *job, int n) {
    const struct piece *p = &l->history->pieces[n];
    uint64_t ms = work_ms(l->history), spent_ms = 0;
    while (goes_on(l) && !mr_job_stopped(job) && (spent_ms < ms || p->cancelled)) {
        sim_sleep_ms(SLICE_MS);
        spent_ms += SLICE_MS;
        if (spent_ms > TELL_MS) {
            wrong(l->history, "the handler of number %d, which was cancelled, is not stopped", n);
            return;
        }
    }
}

static void set_outputs(struct history *h, mr_job *job, const struct commit *k, int number) {
    char text[32];
    const struct piece *p = &h->pieces[k->piece];
    int err = 0;
    snprintf(text, sizeof text, "r%d", k->piece);
    if (p->is_call || roll(h, 2))
        err = mr_job_set_result(job, mr_str(text));
    snprintf(text, sizeof text, "%d", number);
    if (err == 0 && has_state(p))
        err = mr_job_set_state(job, mr_str(text));
    for (int i = k->first; err == 0 && i < k->first + k->count; i++) {
        const struct piece *child = &h->pieces[i];
        mr_push_options o = { .key = mr_str(key_text(child->stage, child->key)) };
        snprintf(text, sizeof text, "%d", i);
        err = mr_job_emit(job, h->stages[child->stage], mr_str(text), &o);
    }
    assert(err == 0);
}

static void commit_has_error(struct library *l, struct commit *k, int err) {
    struct history *h = l->history;
    struct piece *p = &h->pieces[k->piece];
    // Its disk had no room for the commit of a job before it in its block.
    bool behind = err == MR_EINVAL && h->plan->files && commit_follows(h, k, COMMIT_UNKNOWN);
    bool refused = behind || err == MR_ESTALE || err == MR_EGONE ||
                   (err == MR_ECANCELLED && (p->is_call || p->cancel_sent)) ||
                   (err == MR_EEXPIRED && p->has_deadline);
    bool unsure = err == MR_ENET || err == MR_ESTOPPED || err == MR_EFULL || err == MR_EIO;
    sim_nodes_note(h->nodes, "library %d: DONE of %d: %s", l->index, k->piece, mr_error());
    if (unsure || (err == MR_EGONE && h->forgets)) {
        k->state = COMMIT_UNKNOWN;
        p->maybe_done = true;
    } else if (refused && k->state != COMMIT_OK) {
        k->state = COMMIT_REFUSED;
    } else {
        wrong(h, "mr_done of %d: %s", k->piece, mr_error());
    }
}

static void end_with_done(struct library *l, mr_job *job, int number) {
    struct commit *k = &l->history->commits[number];
    k->by = l;
    int err = mr_done(job);
    if (!goes_on(l))
        return;
    if (err == 0)
        commit_is_done(l->history, k);
    else
        commit_has_error(l, k, err);
}

static void commit_is_unknown(struct history *h, struct commit *k) {
    k->state = COMMIT_UNKNOWN;
    h->pieces[k->piece].maybe_done = true;
}

// What is returned decides; what becomes of it is not known here.
static int end_by_return(struct history *h, int number) {
    commit_is_unknown(h, &h->commits[number]);
    return 0;
}

static int end_job_of_library(struct library *l, mr_job *job, int n, uint64_t serial) {
    struct history *h = l->history;
    uint64_t what = roll(h, h->draining ? 16 : 12);
    h->pieces[n].fails += what < 2;
    if (what == 0)
        return -1;
    if (what == 1)
        return mr_fail(job, "no", 20), 0;
    if (what == 2)
        return mr_release(job, roll(h, 2) ? 30 : 0), 0;
    int number = commit_make(h, n, serial, mr_job_id(job), token_of(job));
    if (number < 0)
        return -1;
    set_outputs(h, job, &h->commits[number], number);
    if (roll(h, 2))
        return end_by_return(h, number);
    end_with_done(l, job, number);
    return 0;
}

static int handle(mr_job *job, void *library) {
    struct library *l = library;
    uint64_t serial;
    if (!goes_on(l))
        return -1;
    int n = handler_begins(l, job, &serial);
    if (n < 0)
        return -1;
    l->handlers++;
    l->history->reached->handled++;
    work(l, job, n);
    int answer = goes_on(l) ? end_job_of_library(l, job, n, serial) : -1;
    l->handlers--;
    return answer;
}

// ---- Workers ------------------------------------------------------------------------------------

static void stop_worker(struct library *l, mr_worker *worker) {
    int err;
    while ((err = mr_worker_stop(worker, 500)) == MR_EBUSY)
        continue;
    assert(err == 0);
    if (l->handlers && goes_on(l))
        wrong(l->history, "library %d: a handler runs although its worker has stopped", l->index);
}

static void *worker_main(void *library) {
    struct library *l = library;
    struct history *h = l->history;
    while (open_until_reached(l)) {
        const char *more[STAGES + 1] = { 0 };
        int first = (int)roll(h, STAGES);
        for (int i = 1; i < STAGES; i++)
            more[i - 1] = h->stages[(first + i) % STAGES];
        mr_work_options o = { .more_stages = more,
                              .jobs = (uint32_t)roll(h, 4),
                              .batch = 1 + (uint32_t)roll(h, BLOCK),
                              .lease_ms = h->calm ? LONG_LEASE_MS : LEASE_MS };
        mr_worker *worker;
        int err = mr_work(l->engine, h->stages[first], handle, l, &o, &worker);
        assert(err == 0);
        rest_ms(l, h->draining ? 600000 : 500 + roll(h, 10000));
        stop_worker(l, worker);
        close_engine(l);
    }
    return NULL;
}

// ---- Producers ----------------------------------------------------------------------------------

static int make_pushed(struct library *l, const struct push_thread *t, int stage) {
    struct history *h = l->history;
    int n = piece_make(h, stage, roll_key(h));
    struct piece *p = &h->pieces[n];
    p->order = ++l->numbered;
    p->group = p->key == NO_KEY ? 0
                                : (uint64_t)(CLIENTS + 1 + t->index) << 48 |
                                      (uint64_t)(p->stage * KEYS + p->key);
    return n;
}

static void push_ended(struct history *h, int n, int err, mr_id id) {
    struct piece *p = &h->pieces[n];
    bool unsure = err == MR_ENET || err == MR_ESTOPPED || err == MR_EFULL || err == MR_EIO;
    if (err == 0 && id)
        piece_has_id(h, n, id);
    else if (err == 0 && !(h->forgets && (p->begun || p->maybe_done)))
        wrong(h, "the push of %d has no id", n);
    if (err == 0)
        p->acked = true;
    else if (unsure)
        p->refused = true;
    else
        wrong(h, "the push of %d: %s", n, mr_error());
}

static void push_one(struct library *l, const struct push_thread *t) {
    struct history *h = l->history;
    char body[16];
    int n = make_pushed(l, t, (int)roll(h, STAGES));
    struct piece *p = &h->pieces[n];
    mr_push_options o = { .key = mr_str(key_text(p->stage, p->key)),
                          .deadline_ms = roll(h, 20) ? 0 : 700 };
    mr_id id = 0;
    p->has_deadline = p->maybe_done = o.deadline_ms != 0;
    snprintf(body, sizeof body, "%d", n);
    int err = mr_push(l->engine, h->stages[p->stage], mr_str(body), &o, &id);
    if (goes_on(l))
        push_ended(h, n, err, id);
}

static void push_several(struct library *l, const struct push_thread *t) {
    struct history *h = l->history;
    int stage = (int)roll(h, STAGES), numbers[ITEMS];
    size_t count = 1 + roll(h, ITEMS), accepted = 0;
    char bodies[ITEMS][16];
    mr_item items[ITEMS] = { 0 };
    mr_id ids[ITEMS] = { 0 };
    for (size_t i = 0; i < count; i++) {
        numbers[i] = make_pushed(l, t, stage);
        snprintf(bodies[i], sizeof bodies[i], "%d", numbers[i]);
        items[i] = (mr_item){ .key = mr_str(key_text(stage, h->pieces[numbers[i]].key)),
                              .body = mr_str(bodies[i]) };
    }
    int err = mr_push_many(l->engine, h->stages[stage], items, count, NULL, ids, &accepted);
    for (size_t i = 0; goes_on(l) && i < count; i++) {
        if (i < accepted || err < 0)
            push_ended(h, numbers[i], err, ids[i]);
        else
            h->pieces[numbers[i]].refused = true;
    }
}

static void call_one(struct library *l) {
    struct history *h = l->history;
    char text[16];
    int n = piece_make(h, (int)roll(h, STAGES), roll_key(h));
    struct piece *p = &h->pieces[n];
    mr_push_options o = { .key = mr_str(key_text(p->stage, p->key)),
                          .deadline_ms = roll(h, 4) ? 0 : 700 };
    mr_result result = { 0 };
    p->is_call = p->may_return = true;
    p->has_deadline = o.deadline_ms != 0;
    snprintf(text, sizeof text, "%d", n);
    int err = mr_call(l->engine, h->stages[p->stage], mr_str(text), &o, &result);
    snprintf(text, sizeof text, "r%d", n);
    p->ended = true;
    bool known = err == 0 || err == MR_ENET || err == MR_ESTOPPED || err == MR_EFULL ||
                 err == MR_EIO || (err == MR_EGONE && h->forgets) ||
                 (err == MR_EEXPIRED && p->has_deadline) ||
                 (err == MR_ECANCELLED && p->cancel_sent);
    if (goes_on(l) && !known)
        wrong(h, "mr_call of %d: %s", n, mr_error());
    if (goes_on(l) && err == 0 &&
        (result.body.size != strlen(text) || memcmp(result.body.data, text, strlen(text)) != 0))
        wrong(h, "mr_call of %d gets the result '%.*s'", n, (int)result.body.size,
              (const char *)result.body.data);
    mr_result_free(&result);
}

static void *push_thread_main(void *push_thread) {
    const struct push_thread *t = push_thread;
    struct library *l = t->library;
    struct history *h = l->history;
    while (goes_on(l) && !h->libraries_end) {
        uint64_t what = roll(h, 8);
        if (may_make(h) && h->piece_count + ITEMS < PUSHED_MOST) {
            if (what < 4)
                push_one(l, t);
            else if (what < 7)
                push_several(l, t);
            else if (!h->plan->flows)
                call_one(l);
        }
        rest_ms(l, roll(h, 400));
    }
    return NULL;
}

static void *producer_main(void *library) {
    struct library *l = library;
    struct push_thread pushes[PUSHERS];
    pthread_t threads[PUSHERS];
    if (!open_until_reached(l))
        return NULL;
    for (int i = 0; i < PUSHERS; i++) {
        pushes[i] = (struct push_thread){ l, l->number * PUSHERS + i };
        int failed = pthread_create(&threads[i], NULL, push_thread_main, &pushes[i]);
        assert(failed == 0);
    }
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(threads[i], NULL);
    close_engine(l);
    return NULL;
}

// ---- Programs -----------------------------------------------------------------------------------

static void library_start(struct history *h, int index) {
    struct library *l = calloc(1, sizeof *l);
    assert(l);
    l->history = h;
    l->index = l->program.index = index;
    l->number = h->library_count++;
    sim_program_start(&l->program, h->nodes, index < LIBRARY_WORKERS ? worker_main : producer_main,
                      l);
    h->libraries[index] = l;
}

void libraries_start(struct history *h) {
    for (int i = 0; i < LIBRARIES; i++)
        library_start(h, i);
}

void libraries_step(struct history *h) {
    for (int i = 0; i < LIBRARIES; i++)
        if (h->libraries[i])
            sim_program_step(&h->libraries[i]->program);
    for (struct library *l = h->libraries_end ? h->killed : NULL; l; l = l->next_killed)
        sim_program_step(&l->program);
}

void library_kill(struct history *h, int index) {
    struct library *l = h->libraries[index];
    sim_program_kill(&l->program);
    for (int i = 0; i < h->commit_count; i++)
        if (h->commits[i].by == l && h->commits[i].state == COMMIT_SENT)
            commit_is_unknown(h, &h->commits[i]);
    l->next_killed = h->killed;
    h->killed = l;
    library_start(h, index);
}

void library_pause(struct history *h, int index, uint64_t until_ms) {
    h->libraries[index]->program.paused_until_ms = until_ms;
}

bool libraries_are_over(const struct history *h) {
    bool over = true;
    for (int i = 0; i < LIBRARIES; i++)
        over = over && sim_program_is_over(&h->libraries[i]->program);
    for (const struct library *l = h->killed; l; l = l->next_killed)
        over = over && sim_program_is_over(&l->program);
    return over;
}

static void library_free(struct library *l) {
    sim_program_finish(&l->program);
    free(l);
}

void libraries_finish(struct history *h) {
    for (int i = 0; i < LIBRARIES; i++)
        if (h->libraries[i])
            library_free(h->libraries[i]);
    for (struct library *l = h->killed, *next; l; l = next) {
        next = l->next_killed;
        library_free(l);
    }
}
