// Plain commits that are sent together: as one request, in order, and each job has its own outcome,
// also when replies get lost.
#include "client/state.h"
#include "support/api.h"
#include "support/fake_server.h"
#include "support/taking.h"

// ---- A client whose I/O thread waits, so that requests queue up ---------------------------------

struct held {
    struct client *client;
    struct gate waits, goes_on;
};

// The lock is given up, as it is while something is sent.
static void wait_in_hook(struct client *c, struct exchange *x, const struct response_value *v,
                         uint32_t count) {
    struct held *h = x->owner;
    (void)v, (void)count;
    pthread_mutex_unlock(&c->lock);
    gate_pass(&h->waits);
    gate_wait(&h->goes_on, 1);
    pthread_mutex_lock(&c->lock);
}

static void hold_io(struct held *h, struct engine *e) {
    *h = (struct held){ .client = (struct client *)e, .waits = GATE, .goes_on = GATE };
    struct exchange *x = exchange_new("PING");
    assert_non_null(x);
    x->hook = wait_in_hook;
    x->owner = h;
    pthread_mutex_lock(&h->client->lock);
    must(exchange_send(h->client->main, x));
    pthread_mutex_unlock(&h->client->lock);
    gate_wait(&h->waits, 1);
}

static void let_io_go_on(struct held *h) {
    gate_pass(&h->goes_on);
}

// What waits to be sent, as it would be written. The caller frees it.
static struct buffer queued_text(struct client *c) {
    struct buffer text = { 0 };
    pthread_mutex_lock(&c->lock);
    for (struct list *at = c->main->queue.next; at != &c->main->queue; at = at->next)
        must(exchange_write(list_entry(at, struct exchange, of_link), &text));
    pthread_mutex_unlock(&c->lock);
    must(buffer_append(&text, "", 1));
    return text;
}

static int count_text(const char *text, const char *part) {
    int count = 0;
    while ((text = strstr(text, part)) != NULL) {
        count++;
        text++;
    }
    return count;
}

static mr_stage_info look_at(struct engine *e) {
    mr_stage_info info;
    must(e->impl->stage_look(e, mr_str("s"), &info));
    return info;
}

// ---- A real server ------------------------------------------------------------------------------

// As many as a request may have, and some more; every 97th lease is over.
static void X_commits_of_one_turn_are_one_command_and_fail_one_by_one(void **state) {
    (void)state;
    enum { MANY = 1020, LOST = 97 };
    static struct mr_job *jobs[MANY];
    struct taking t = { 0 };
    struct held held;
    int lost = 0;
    taking_start(&t);
    push_much(t.engine, MANY);
    for (int count = 0; count < MANY;)
        for (struct mr_job *job = take_up_to(&t, TAKE_MOST, 0); job; job = job->next)
            jobs[count++] = job;
    for (int i = 5; i < MANY; i += LOST, lost++)
        end_lease((struct client *)t.engine, jobs[i]);
    hold_io(&held, t.engine);
    for (int i = 0; i < MANY; i++)
        must(t.engine->impl->done(jobs[i], 0));
    struct buffer text = queued_text(held.client);
    const char *words = (const char *)text.data;
    assert_int_equal(strncmp(words, "*2001\r\n$8\r\nDONEMANY\r\n", 21), 0);
    assert_non_null(strstr(words, "*41\r\n$8\r\nDONEMANY\r\n"));
    assert_int_equal(count_text(words, "DONE"), 2);
    buffer_finish(&text);
    let_io_go_on(&held);
    receive_all(t.engine);
    mr_stage_info info = look_at(t.engine);
    assert_int_equal(info.done, MANY - lost);
    assert_int_equal(info.waiting, lost); // released, and not failed
    assert_int_equal(info.running + info.failed + info.dead + info.delayed, 0);
    taking_stop(&t);
}

// Nothing overtakes: commits with more in them, and other requests, are sent between plain ones.
static void X_commits_stay_in_order_with_what_is_sent_between_them(void **state) {
    (void)state;
    enum { MANY = 7 };
    struct mr_job *jobs[MANY];
    struct taking t = { 0 };
    struct held held;
    taking_start(&t);
    push_much(t.engine, MANY);
    int count = 0;
    for (struct mr_job *job = take_up_to(&t, MANY, 0); job; job = job->next)
        jobs[count++] = job;
    assert_int_equal(count, MANY);
    mr_id with_result = jobs[2]->id;
    must(buffer_append(&leased_job_output_made(jobs[2])->result, "yes", 3));
    hold_io(&held, t.engine);
    for (int i = 0; i < 6; i++)
        must(i == 4 ? t.engine->impl->release(jobs[i], 0, 0) : t.engine->impl->done(jobs[i], 0));
    must(t.engine->impl->done(jobs[6], 0));
    struct buffer text = queued_text(held.client);
    const char *expected[] = { "*5\r\n$8\r\nDONEMANY\r\n",
                               "*5\r\n$4\r\nDONE\r\n",
                               "RESULT",
                               "*3\r\n$4\r\nDONE\r\n",
                               "RELEASE",
                               "*5\r\n$8\r\nDONEMANY\r\n" };
    const char *at = (const char *)text.data;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        at = strstr(at, expected[i]);
        assert_non_null(at);
        at += strlen(expected[i]);
    }
    assert_int_equal(count_text((const char *)text.data, "DONE"), 4);
    buffer_finish(&text);
    let_io_go_on(&held);
    struct buffer result = { 0 };
    must(t.engine->impl->await(t.engine, with_result, 0, &result));
    assert_int_equal(result.size, 3);
    assert_memory_equal(result.data, "yes", 3);
    buffer_finish(&result);
    mr_stage_info info = look_at(t.engine);
    assert_int_equal(info.done, MANY - 1);
    assert_int_equal(info.waiting, 1);
    taking_stop(&t);
}

static int do_nothing(mr_job *job, void *arg) {
    (void)job, (void)arg;
    return 0;
}

// Connections break off in both directions: every job is committed, and once.
static void T20_F2_plain_commits_whose_replies_are_lost_count_once(void **state) {
    (void)state;
    enum { MANY = 3000 };
    struct serving server = { 0 };
    struct proxy proxy;
    mr *steady = NULL, *m = NULL;
    mr_worker *w = NULL;
    static mr_item items[1000];
    serving_start(&server, "mem:", 0);
    proxy_start(&proxy, server.port, 5);
    must(mr_open(server.url, NULL, &steady));
    must(mr_stage_set(steady, "s", "backoff", "1ms"));
    must(mr_stage_set(steady, "s", "attempts", "10000"));
    must(mr_open(proxy.url, NULL, &m));
    must(mr_work(m, "s", do_nothing, NULL, &(mr_work_options){ .jobs = 3, .batch = 8 }, &w));
    for (size_t pushed, all = 0; all < MANY; all += pushed)
        must(mr_push_many(steady, "s", items, 1000, NULL, NULL, &pushed));
    must(mr_stage_wait_empty(steady, "s", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    mr_stage_info info = look(steady, "s");
    assert_int_equal(info.done, MANY);
    assert_int_equal(info.waiting + info.running + info.dead + info.delayed, 0);
    must(mr_close(m));
    must(mr_close(steady));
    proxy_stop(&proxy);
    serving_end(&server, SIGKILL);
}

// ---- A server that sends what a test wants ------------------------------------------------------

// Answers DONEMANY with each reply, one connection after another; then expects FAILs.
struct answering {
    const char *replies[2]; // "": the connection ends instead
    int fails;              // expected after the last reply
    char received[2][2048]; // the requests
    char failed[4096];
};

static void answer_commits(int fd, int number, void *arg) {
    struct answering *a = arg;
    char *received = a->received[number > 0];
    if (!fake_greet(fd) || !fake_receive(fd, "DONEMANY", received, sizeof a->received[0]))
        return;
    const char *reply = a->replies[number > 0];
    fake_say(fd, reply);
    if (!*reply || (number == 0 && *a->replies[1]))
        return;
    size_t used = 0;
    for (int answered = 0; answered < a->fails;) {
        ssize_t size = recv(fd, a->failed + used, sizeof a->failed - used - 1, 0);
        if (size <= 0)
            return;
        a->failed[used += (size_t)size] = 0;
        for (; answered < count_text(a->failed, "$4\r\nFAIL\r\n"); answered++)
            fake_say(fd, "+OK\r\n");
    }
    fake_listens(fd, number, NULL);
}

// Commits of jobs 1, 2, 3 in one request; returns when all were answered.
static void commit_three(struct answering *a) {
    struct fake f;
    struct engine *e = NULL;
    struct puller *p = NULL;
    fake_start(&f, answer_commits, a);
    must(client_open(f.url, &(struct client_options){ 0 }, &e));
    must(e->impl->puller_open(e, &(struct puller_options){ 0 }, &p));
    struct client *c = (struct client *)e;
    pthread_mutex_lock(&c->lock);
    for (mr_id id = 1; id <= 3; id++)
        must(commits_add((struct client_puller *)p, &(struct job_lease){ id, "tok" }));
    pthread_mutex_unlock(&c->lock);
    e->impl->puller_close(p);
    must(e->impl->close(e));
    fake_stop(&f);
    assert_string_equal(a->received[0],
                        "*7\r\n$8\r\nDONEMANY\r\n$1\r\n1\r\n$3\r\ntok\r\n$1\r\n2\r\n$3\r\ntok\r\n"
                        "$1\r\n3\r\n$3\r\ntok\r\n");
}

static void X_a_refused_commit_is_a_failed_attempt_of_its_job_only(void **state) {
    (void)state;
    struct answering a = { .replies = { "*3\r\n+OK\r\n-ERR no room\r\n-STALE over\r\n", "" },
                           .fails = 1 };
    commit_three(&a);
    assert_string_equal(a.failed, "*4\r\n$4\r\nFAIL\r\n$1\r\n2\r\n$3\r\ntok\r\n$7\r\nno room\r\n");
}

static void X_a_refused_command_is_a_failed_attempt_of_each_job(void **state) {
    (void)state;
    struct answering a = { .replies = { "-ERR not now\r\n", "" }, .fails = 3 };
    commit_three(&a);
    assert_int_equal(count_text(a.failed, "not now"), 3);
    assert_non_null(strstr(a.failed, "FAIL\r\n$1\r\n1\r\n"));
    assert_non_null(strstr(a.failed, "FAIL\r\n$1\r\n3\r\n"));
}

// The reply is lost, or a part of it: the same command is sent again, and only that reply counts.
static void F2_commits_whose_reply_is_lost_are_repeated_as_they_were(void **state) {
    (void)state;
    const char *lost[] = { "*3\r\n+OK\r\n-ERR no", "*3\r\n", "?" };
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        struct answering a = { .replies = { lost[i], "*3\r\n+OK\r\n+OK\r\n-ERR full\r\n" },
                               .fails = 1 };
        commit_three(&a);
        assert_string_equal(a.received[0], a.received[1]);
        assert_string_equal(a.failed, "*4\r\n$4\r\nFAIL\r\n$1\r\n3\r\n$3\r\ntok\r\n$4\r\nfull\r\n");
    }
}

// Outcomes that cannot be assigned to jobs fail none of them: their leases decide.
static void X_an_answer_that_does_not_fit_ends_the_connection(void **state) {
    (void)state;
    const char *wrong[] = { "*2\r\n+OK\r\n-ERR no\r\n", "+OK\r\n",
                            "*3\r\n+OK\r\n*1\r\n+OK\r\n+OK\r\n" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct answering a = { .replies = { wrong[i], "" } };
        commit_three(&a);
        assert_string_equal(a.failed, "");
    }
}

// ---- Blocks -------------------------------------------------------------------------------------

#define BLOCK_JOB(id)                                                                              \
    "*8\r\n$1\r\n" id "\r\n$3\r\ntok\r\n$1\r\ns\r\n$1\r\nk\r\n$0\r\n\r\n:1\r\n:-1\r\n$-1\r\n"

// Grants jobs 1, 2 and 3 under one lease, refuses the commit of the first, and answers its failure.
struct refusing {
    const char *commit, *failure;
    bool goes_on; // the lease does, with jobs 2 and 3
};

static void refuse_first(int fd, int number, void *arg) {
    const struct refusing *r = arg;
    char text[4096];
    size_t used = 0;
    (void)number;
    if (!fake_greet(fd) || !fake_receive(fd, "TAKE", text, sizeof text))
        return;
    fake_say(fd, "*3\r\n" BLOCK_JOB("1") BLOCK_JOB("2") BLOCK_JOB("3"));
    const char *words[] = { "\r\nDONE\r\n", "\r\nFAIL\r\n", "\r\nRELEASE\r\n" };
    const char *replies[] = { r->commit, r->failure, "+OK\r\n" };
    int answered[3] = { 0 };
    for (ssize_t size; (size = recv(fd, text + used, sizeof text - used - 1, 0)) > 0;) {
        text[used += (size_t)size] = 0;
        for (int i = 0; i < 3; i++)
            for (; answered[i] < count_text(text, words[i]); answered[i]++)
                fake_say(fd, replies[i]);
    }
}

// All ends of its jobs have been answered.
static void await_answers(struct puller *base) {
    struct client_puller *p = (struct client_puller *)base;
    struct client *c = (struct client *)base->engine;
    pthread_mutex_lock(&c->lock);
    while (p->unanswered)
        pthread_cond_wait(&p->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void end_first_of_block(struct refusing *r, unsigned how) {
    struct fake f;
    struct taking t = { 0 };
    fake_start(&f, refuse_first, r);
    must(client_open(f.url, &(struct client_options){ 0 }, &t.engine));
    must(t.engine->impl->puller_open(t.engine, &(struct puller_options){ 0 }, &t.puller));
    struct mr_job *jobs = take_up_to(&t, 3, 0), *next = jobs->next;
    (void)t.engine->impl->done(jobs, how);
    await_answers(t.puller);
    for (struct mr_job *job = next; job; job = next) {
        next = job->next;
        assert_int_equal(leased_job_stopped(job), r->goes_on ? 0 : MR_ESTALE);
        assert_true(leased_job_start(job) == r->goes_on);
        must(t.engine->impl->release(job, 0, 0));
    }
    t.engine->impl->puller_close(t.puller);
    must(t.engine->impl->close(t.engine));
    fake_stop(&f);
}

// C9: a full disk refuses the commit and the failure, too; or the failure ends the lease.
static void C9_no_job_of_a_block_begins_behind_a_refused_commit(void **state) {
    (void)state;
    struct refusing cases[] = {
        { "-FULL no room\r\n", "-FULL no room\r\n", false },
        { "-FULL no room\r\n", "+OK\r\n", false },
        { "-STALE the lease is over\r\n", "", false },
        { "-CANCELLED meanwhile\r\n", "", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        end_first_of_block(&cases[i], 0);
        end_first_of_block(&cases[i], FINISH_WAIT);
    }
}

// ---- A server whose store fails, and then another one -------------------------------------------

struct stopping {
    atomic_int takes;
    struct gate ran;
};

// The first TAKE is answered STOPPED, the second with a job, and all others with none.
static void stop_once(int fd, int number, void *arg) {
    static const char *const replies[] = { "-STOPPED the store has failed\r\n",
                                           "*1\r\n" BLOCK_JOB("1"), "*0\r\n" };
    struct stopping *s = arg;
    char text[1 << 16];
    size_t used = 0;
    int takes = 0, ends = 0, unblocks = 0;
    (void)number;
    if (!fake_greet(fd))
        return;
    for (ssize_t size; (size = recv(fd, text + used, sizeof text - used - 1, 0)) > 0;) {
        text[used += (size_t)size] = 0;
        for (; unblocks < count_text(text, "\r\nUNBLOCK\r\n"); unblocks++)
            fake_say(fd, ":0\r\n");
        for (; takes < count_text(text, "\r\nTAKE\r\n"); takes++) {
            int before = atomic_fetch_add(&s->takes, 1);
            fake_say(fd, replies[before < 2 ? before : 2]);
        }
        for (; ends < count_text(text, "\r\nDONE\r\n"); ends++)
            fake_say(fd, "+OK\r\n");
    }
}

static int note_ran(mr_job *job, void *arg) {
    struct stopping *s = arg;
    (void)job;
    gate_pass(&s->ran);
    return 0;
}

static void X_a_worker_goes_on_when_a_server_that_has_stopped_is_replaced(void **state) {
    (void)state;
    struct stopping s = { .ran = GATE };
    struct fake f;
    mr *m = NULL;
    mr_worker *w = NULL;
    fake_start(&f, stop_once, &s);
    must(mr_open(f.url, NULL, &m));
    must(mr_work(m, "s", note_ran, &s, &(mr_work_options){ .jobs = 1 }, &w));
    gate_wait(&s.ran, 1);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
    fake_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(X_commits_of_one_turn_are_one_command_and_fail_one_by_one),
        cmocka_unit_test(X_commits_stay_in_order_with_what_is_sent_between_them),
        cmocka_unit_test(T20_F2_plain_commits_whose_replies_are_lost_count_once),
        cmocka_unit_test(X_a_refused_commit_is_a_failed_attempt_of_its_job_only),
        cmocka_unit_test(X_a_refused_command_is_a_failed_attempt_of_each_job),
        cmocka_unit_test(F2_commits_whose_reply_is_lost_are_repeated_as_they_were),
        cmocka_unit_test(X_an_answer_that_does_not_fit_ends_the_connection),
        cmocka_unit_test(C9_no_job_of_a_block_begins_behind_a_refused_commit),
        cmocka_unit_test(X_a_worker_goes_on_when_a_server_that_has_stopped_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
