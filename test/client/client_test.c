// The remote engine over bad connections: servers that are killed and come back, that are none of
// ours, that send nothing, or nonsense; replies that get lost. Nothing may be lost or doubled.
#include "base/clock.h"
#include "client/state.h"
#include "support/api.h"
#include "support/fake_server.h"
#include "support/taking.h"

#include <dlfcn.h>
#include <netdb.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static mr *open_at(const char *url) {
    mr *m = NULL;
    must(mr_open(url, NULL, &m));
    return m;
}

// An engine with short timeouts.
static struct engine *open_impatient(const char *url) {
    struct engine *e = NULL;
    must(client_open(url, &(struct client_options){ .unreachable_ms = 1000 }, &e));
    return e;
}

// ---- Opening ----------------------------------------------------------------------------------

static void X_an_unreachable_server_is_reported_with_address_and_way_out(void **state) {
    (void)state;
    char url[64], where[32];
    uint16_t port = free_port();
    snprintf(url, sizeof url, "millrace://127.0.0.1:%u", port);
    snprintf(where, sizeof where, "127.0.0.1:%u", port);
    mr *m = NULL;
    refused(MR_ENET, mr_open(url, NULL, &m));
    assert_non_null(strstr(mr_error(), where));
    assert_non_null(strstr(mr_error(), "millrace serve"));
    assert_null(m);
}

static void X_a_url_or_option_that_cannot_be_is_refused(void **state) {
    (void)state;
    const char *bad[] = { "millrace:",         "millrace://",          "millrace://:7411",
                          "millrace://h:0",    "millrace://h:65536",   "millrace://h:12x",
                          "millrace://h:1/db", "millrace://u:s@",      "millraces://h:0",
                          "millrace:/h",       "millrace://[::1]x:99", "millrace://h:" };
    mr *m = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(MR_EINVAL, mr_open(bad[i], NULL, &m));
    refused(MR_EINVAL, mr_open("millrace://h", &(mr_options){ .tls_ca = "ca.pem" }, &m));
    assert_non_null(strstr(mr_error(), "millraces://"));
    refused(MR_EINVAL, mr_open("millraces://h", &(mr_options){ .tls_ca = "no-such.pem" }, &m));
    refused(MR_EINVAL, mr_open("millrace://a%4:b@h", NULL, &m));
    refused(MR_EINVAL, mr_open("millrace://h", &(mr_options){ .sync = "none" }, &m));
}

static void X_another_kind_of_server_is_recognised(void **state) {
    (void)state;
    const char *other_servers[] = {
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "+PONG\r\n",
        "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n",
        "$5\r\nhel",
        "*99999999999\r\n",
        "220 mail.example.org ESMTP\r\n",
        "",
    };
    for (size_t i = 0; i < sizeof other_servers / sizeof *other_servers; i++) {
        struct fake f;
        fake_start(&f, fake_says, (void *)(uintptr_t)other_servers[i]);
        mr *m = NULL;
        refused(MR_ENET, mr_open(f.url, NULL, &m));
        assert_non_null(strstr(mr_error(), "127.0.0.1"));
        fake_stop(&f);
    }
}

static void X_a_refused_secret_is_MR_EAUTH(void **state) {
    (void)state;
    struct fake f;
    mr *m = NULL;
    fake_start(&f, fake_says, "-WRONGPASS no such user or secret\r\n");
    refused(MR_EAUTH, mr_open(f.url, &(mr_options){ .user = "u", .secret = "s" }, &m));
    assert_non_null(strstr(mr_error(), "no such user"));
    fake_stop(&f);
}

static void X_a_server_that_never_answers_is_not_waited_for_for_ever(void **state) {
    (void)state;
    struct fake f;
    struct engine *e = NULL;
    fake_start(&f, fake_listens, NULL);
    refused(MR_ENET, client_open(f.url, &(struct client_options){ .unreachable_ms = 50 }, &e));
    fake_stop(&f);
}

// ---- A server that stops answering --------------------------------------------------------------

static void X_promised_times_hold_though_the_server_is_silent(void **state) {
    (void)state;
    struct fake f;
    fake_start(&f, fake_greets, NULL);
    mr *m = open_at(f.url);
    mr_push_options o = { .deadline_ms = 20 };
    refused(MR_EEXPIRED, mr_call(m, "s", mr_str("x"), &o, NULL));
    assert_non_null(strstr(mr_error(), "20 ms"));
    refused(MR_EAGAIN, mr_await(m, 1, 20, NULL));
    mr_job *job = NULL;
    refused(MR_EAGAIN, mr_take(m, "s", &(mr_take_options){ .wait_ms = 20 }, &job));
    must(mr_close(m));
    fake_stop(&f);
}

static void X_a_lost_server_is_MR_ENET_after_a_while(void **state) {
    (void)state;
    struct serving server = { 0 };
    serving_start(&server, "mem:", 0);
    struct engine *e = open_impatient(server.url);
    serving_end(&server, SIGKILL);
    mr_push_options o = { 0 };
    struct buffer result = { 0 };
    mr_stage_info info;
    refused(MR_ENET, e->impl->push(e, mr_str("s"), mr_str("x"), &o, NULL));
    refused(MR_ENET, e->impl->push(e, mr_str("s"), mr_str("x"), &o, NULL)); // now at once
    refused(MR_ENET, e->impl->call(e, mr_str("s"), mr_str("x"), &o, &result));
    refused(MR_ENET, e->impl->await(e, 1, MR_FOREVER, &result));
    refused(MR_ENET, e->impl->stage_look(e, mr_str("s"), &info));
    refused(MR_ENET, e->impl->check(e));
    serving_start(&server, "mem:", server.port); // and then it is found again
    int err = MR_ENET;
    while (err == MR_ENET)
        err = e->impl->push(e, mr_str("s"), mr_str("x"), &o, NULL);
    must(err);
    must(e->impl->check(e));
    must(e->impl->close(e));
    serving_end(&server, SIGKILL);
}

static void push_until_it_succeeds(mr *m) {
    int err = MR_ENET;
    while (err == MR_ENET)
        err = mr_push(m, "s", mr_str("x"), NULL, NULL);
    must(err);
}

static void expect_waiting(const char *url, uint64_t waiting) {
    mr_stage_info info;
    mr *m = open_at(url);
    must(mr_stage_look(m, "s", &info));
    assert_int_equal(info.waiting, waiting);
    must(mr_close(m));
}

static void X_a_lost_node_is_replaced_by_the_next_one_of_the_url(void **state) {
    (void)state;
    struct serving first = { 0 }, second = { 0 };
    serving_start(&first, "mem:", 0);
    serving_start(&second, "mem:", 0);
    char url[96];
    snprintf(url, sizeof url, "millrace://127.0.0.1:%u,127.0.0.1:%u", first.port, second.port);
    mr *m = open_at(url);
    push_until_it_succeeds(m);
    expect_waiting(first.url, 1);
    serving_end(&first, SIGKILL);
    push_until_it_succeeds(m);
    expect_waiting(second.url, 1);
    must(mr_close(m));
    serving_end(&second, SIGKILL);
}

static int never_run(mr_job *job, void *arg) {
    (void)job, (void)arg;
    fail_msg("there is no job");
    return 0;
}

static void wait_for_a_worker(const char *url) {
    mr *m = open_at(url);
    mr_stage_info info = { 0 };
    while (mr_stage_look(m, "s", &info) < 0 || strcmp(info.held_by, "no-worker") == 0)
        sched_yield();
    must(mr_close(m));
}

// The worker's TAKE waits at the second node, since the first one has no room for it.
static void greets_the_first(int fd, int number, void *arg) {
    if (number == 0)
        fake_greets(fd, number, arg);
}

static void X_a_worker_at_another_node_than_its_client_stops_at_once(void **state) {
    (void)state;
    struct fake first;
    struct serving second = { 0 };
    char url[160];
    fake_start(&first, greets_the_first, NULL);
    serving_start(&second, "mem:", 0);
    snprintf(url, sizeof url, "%s,127.0.0.1:%u", first.url, second.port);
    mr *m = open_at(url);
    mr_worker *w = NULL;
    must(mr_work(m, "s", never_run, NULL, NULL, &w));
    wait_for_a_worker(second.url);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
    fake_stop(&first);
    serving_end(&second, SIGKILL);
}

static void has_room_for_the_third(int fd, int number, void *arg) {
    if (number < 2)
        fake_says(fd, number, "-FULL too many are connected\r\n");
    else
        fake_greets(fd, number, arg);
}

static void X_a_server_that_is_full_is_waited_for(void **state) {
    (void)state;
    struct fake f;
    struct engine *e = NULL;
    fake_start(&f, has_room_for_the_third, NULL);
    must(client_open(f.url, &(struct client_options){ 0 }, &e));
    must(e->impl->close(e));
    fake_stop(&f);
    fake_start(&f, fake_says, "-FULL too many are connected\r\n");
    struct client_options impatient = { .unreachable_ms = 200 };
    refused(MR_EFULL, client_open(f.url, &impatient, &e));
    fake_stop(&f);
}

// ---- A host that moves
// ----------------------------------------------------------------------------

static atomic_uint moving_to; // the port at which "moving.test" is to be found

// In place of the system's: only that host is ours.
int getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted,
                struct addrinfo **out) {
    typedef int find(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    find *system_find;
    *(void **)&system_find = dlsym(RTLD_NEXT, "getaddrinfo");
    char moved[8];
    snprintf(moved, sizeof moved, "%u", atomic_load(&moving_to));
    bool moves = strcmp(host, "moving.test") == 0;
    return system_find(moves ? "127.0.0.1" : host, moves ? moved : port, wanted, out);
}

// F40: a server that comes back elsewhere, under its name, is found there.
static void F40_a_server_that_has_moved_is_found_again(void **state) {
    (void)state;
    struct serving before, after;
    struct engine *e = NULL;
    serving_start(&before, "mem:", 0);
    atomic_store(&moving_to, before.port);
    must(client_open("millrace://moving.test", &(struct client_options){ 0 }, &e));
    serving_end(&before, SIGKILL);
    serving_start(&after, "mem:", 0);
    atomic_store(&moving_to, after.port);
    struct client *c = (struct client *)e;
    pthread_mutex_lock(&c->lock);
    c->found_ms = 0; // long ago
    pthread_mutex_unlock(&c->lock);
    must(e->impl->push(e, mr_str("s"), mr_str("a"), &(mr_push_options){ 0 }, NULL));
    must(e->impl->close(e));
    serving_end(&after, SIGKILL);
}

// ---- F2: a reply is lost
// --------------------------------------------------------------------------

// Loses the first push (or its reply), answers the second; remembers both.
struct forgetful {
    char first[2048], second[2048];
    const char *instead; // sent instead of the reply, before the connection ends
    const char *command, *reply;
};

static void forget_once(int fd, int number, void *arg) {
    struct forgetful *f = arg;
    char *received = number == 0 ? f->first : f->second;
    if (!fake_greet(fd) || !fake_receive(fd, f->command, received, sizeof f->first))
        return;
    if (number == 0) {
        fake_say(fd, f->instead);
        return;
    }
    fake_say(fd, f->reply);
    fake_listens(fd, number, NULL);
}

static void F2_a_push_whose_reply_is_lost_is_repeated_with_its_number(void **state) {
    (void)state;
    const char *instead[] = { "", "$2\r\n4", "?\r\n", "*-7\r\n" };
    for (size_t i = 0; i < sizeof instead / sizeof *instead; i++) {
        struct forgetful forgetful = { .instead = instead[i],
                                       .command = "PUSH",
                                       .reply = "$2\r\n42\r\n" };
        struct fake f;
        fake_start(&f, forget_once, &forgetful);
        mr *m = open_at(f.url);
        mr_id id = 0;
        must(mr_push(m, "s", mr_str("body"), NULL, &id));
        assert_true(id == 42);
        must(mr_close(m));
        fake_stop(&f);
        assert_non_null(strstr(forgetful.first, "SOURCE"));
        assert_string_equal(forgetful.first, forgetful.second);
    }
}

// Loses three pushes on the first connection, and answers three on the second.
struct three_pushes {
    char first[2048], second[2048];
};

static void lose_three(int fd, int number, void *arg) {
    struct three_pushes *t = arg;
    char *received = number == 0 ? t->first : t->second;
    if (!fake_greet(fd) || !fake_receive_last(fd, "PUSH", "three", received, sizeof t->first))
        return;
    if (number == 0)
        return;
    fake_say(fd, "$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n");
    fake_listens(fd, number, NULL);
}

static void F2_pushes_whose_replies_are_lost_are_repeated_in_their_order(void **state) {
    (void)state;
    struct three_pushes pushes = { 0 };
    struct fake f;
    fake_start(&f, lose_three, &pushes);
    mr *m = open_at(f.url);
    mr_item items[] = { { .body = mr_str("one") },
                        { .body = mr_str("two") },
                        { .body = mr_str("three") } };
    size_t count;
    must(mr_push_many(m, "s", items, 3, NULL, NULL, &count));
    assert_int_equal(count, 3);
    must(mr_close(m));
    fake_stop(&f);
    assert_string_equal(pushes.first, pushes.second);
}

// U22: a server that was away for long may have forgotten the numbers: they are not sent again, nor
// those behind them for the first time, and the next push begins a new series.
static void U22_a_number_is_not_repeated_when_its_source_may_be_removed(void **state) {
    (void)state;
    struct forgetful forgetful = { .instead = "", .command = "PUSH", .reply = "$2\r\n42\r\n" };
    struct fake f;
    struct engine *e;
    fake_start(&f, forget_once, &forgetful);
    must(client_open(f.url, &(struct client_options){ .repeat_ms = 1 }, &e));
    mr_item items[3] = { { .body = mr_str("one") }, { .body = mr_str("two") } };
    mr_push_options o = { 0 };
    size_t count;
    refused(MR_ENET, e->impl->push_many(e, mr_str("s"), items, 3, &o, NULL, NULL, &count));
    assert_non_null(strstr(mr_error(), "is not known"));
    mr_id id = 0;
    must(e->impl->push(e, mr_str("s"), mr_str("next"), &o, &id));
    assert_true(id == 42);
    must(e->impl->close(e));
    fake_stop(&f);
    assert_non_null(strstr(forgetful.first, "one"));
    assert_non_null(strstr(forgetful.second, "next"));
    const char *before = strstr(forgetful.first, "client-"),
               *after = strstr(forgetful.second, "client-");
    assert_true(before && after && strncmp(before, after, 39) != 0);
}

// F47: a request that a server refuses is not repeated, and does not affect others.
static void F47_what_is_too_large_for_a_server_is_refused_here(void **state) {
    (void)state;
    struct serving server;
    serving_start(&server, "mem:", 0);
    mr *m = open_at(server.url);
    mr_bytes large = { calloc(1, ARGUMENT_MOST + 1), BODY_MOST + 1 };
    refused(MR_ETOOBIG, mr_push(m, "s", large, NULL, NULL));
    refused(MR_ETOOBIG, mr_call(m, "s", large, NULL, NULL));
    large.size = ARGUMENT_MOST + 1;
    refused(MR_ETOOBIG, mr_push(m, "s", large, NULL, NULL));
    refused(MR_ETOOBIG, mr_call(m, "s", mr_str(""), &(mr_push_options){ .key = large }, NULL));
    large.size = REQUEST_MOST / 2;
    refused(MR_ETOOBIG, mr_push(m, "s", large, &(mr_push_options){ .once = large }, NULL));
    must(mr_push(m, "s", mr_str("small"), NULL, NULL));
    must(mr_close(m));
    free((void *)(uintptr_t)large.data);
    serving_end(&server, SIGKILL);
}

// Refuses before it has read the request, and closes.
static void refuse_unread(int fd, int number, void *arg) {
    (void)number, (void)arg;
    char some[64];
    if (fake_greet(fd) && recv(fd, some, sizeof some, 0) > 0)
        fake_say(fd, "-FULL too much is being received\r\n");
}

static void X_a_client_refused_while_it_sends_gets_the_reason(void **state) {
    (void)state;
    struct fake f;
    fake_start(&f, refuse_unread, NULL);
    mr *m = open_at(f.url);
    mr_bytes large = { calloc(1, BODY_MOST), BODY_MOST };
    refused(MR_EFULL, mr_push(m, "s", large, NULL, NULL));
    must(mr_close(m));
    fake_stop(&f);
    free((void *)(uintptr_t)large.data);
}

static void F2_a_call_whose_reply_is_lost_is_repeated_with_its_once(void **state) {
    (void)state;
    struct forgetful forgetful = { .instead = "$1\r\n7\r\n", // the id, but never the end
                                   .command = "CALL",
                                   .reply = "$1\r\n7\r\n>3\r\n$5\r\nended\r\n$1\r\n7\r\n"
                                            "$5\r\nhello\r\n" };
    struct fake f;
    fake_start(&f, forget_once, &forgetful);
    mr *m = open_at(f.url);
    mr_result result = { 0 };
    must(mr_call(m, "s", mr_str("body"), NULL, &result));
    assert_string_equal(result.body.data, "hello");
    mr_result_free(&result);
    must(mr_close(m));
    fake_stop(&f);
    assert_non_null(strstr(forgetful.first, "ONCE"));
    assert_string_equal(forgetful.first, forgetful.second);
}

// Repeated, END and SKIP change nothing; a DROP that has arrived is answered GONE.
static void F2_a_command_about_an_epic_is_repeated_when_its_reply_is_lost(void **state) {
    (void)state;
    static const char map[] = "%1\r\n$6\r\nresume\r\n:3\r\n";
    const struct {
        const char *word, *reply;
    } said[] = {
        { "END", map }, { "SKIP", map }, { "DROP", "-GONE no such epic\r\n" }, { "", map }
    };
    for (int i = 0; i < 4; i++) {
        struct forgetful forgetful = { .instead = "", .command = "EPIC", .reply = said[i].reply };
        struct fake f;
        struct engine *e = NULL;
        mr_epic_info info = { 0 };
        fake_start(&f, forget_once, &forgetful);
        must(client_open(f.url, &(struct client_options){ 0 }, &e));
        must(i == 0   ? e->impl->epic_end(e, mr_str("s"), mr_str("june"), 7)
             : i == 1 ? e->impl->epic_skip(e, mr_str("s"), mr_str("june"), 7)
             : i == 2 ? e->impl->epic_drop(e, mr_str("s"), mr_str("june"))
                      : e->impl->epic(e, mr_str("s"), mr_str("june"), &info));
        must(e->impl->close(e));
        fake_stop(&f);
        assert_non_null(strstr(forgetful.first, said[i].word));
        assert_string_equal(forgetful.first, forgetful.second);
    }
}

static void F2_a_drop_of_an_unknown_epic_is_an_error(void **state) {
    (void)state;
    struct serving server = { 0 };
    serving_start(&server, "mem:", 0);
    mr *m = open_at(server.url);
    refused(MR_EGONE, mr_epic_drop(m, "s", "june"));
    must(mr_close(m));
    serving_end(&server, SIGKILL);
}

static void load_slowly(int fd, int number, void *arg) {
    char received[2048];
    (void)number, (void)arg;
    if (!fake_hello(fd))
        return;
    for (int i = 0; i < 3; i++) { // asked again until it has loaded
        fake_say(fd, i < 2 ? "$9\r\nloading:1\r\n" : "$9\r\nloading:0\r\n");
        if (!fake_receive(fd, i < 2 ? "INFO" : "PUSH", received, sizeof received))
            return;
    }
    fake_say(fd, "$1\r\n1\r\n");
    fake_listens(fd, number, NULL);
}

static void X_a_server_that_reads_its_store_is_waited_for(void **state) {
    (void)state;
    struct fake f;
    fake_start(&f, load_slowly, NULL);
    mr *m = open_at(f.url);
    assert_true(push(m, "s", NULL, "x") == 1);
    must(mr_close(m));
    fake_stop(&f);
}

static void X_a_server_that_lost_its_memory_is_given_new_numbers(void **state) {
    (void)state;
    struct serving server = { 0 };
    serving_start(&server, "mem:", 0);
    mr *m = open_at(server.url);
    enum { MANY = 3000 }; // more than a window of numbers
    static mr_item items[MANY];
    static mr_id ids[MANY];
    for (int i = 0; i < MANY; i++)
        items[i] = (mr_item){ .body = mr_str("x") };
    for (int lives = 0; lives < 2; lives++) {
        size_t count = 0;
        must(mr_push_many(m, "s", items, MANY, NULL, ids, &count));
        assert_int_equal(count, MANY);
        for (int i = 0; i < MANY; i++)
            assert_true(ids[i] == (mr_id)i + 1);
        serving_end(&server, SIGKILL);
        serving_start(&server, "mem:", server.port);
    }
    assert_true(push(m, "s", NULL, "x") == 1);
    must(mr_close(m));
    serving_end(&server, SIGKILL);
}

// ---- Leases -------------------------------------------------------------------------------------

struct lease_stop {
    struct gate began, stopped;
    int attempts[8];
};

#define LEASE_STOP                                                                                 \
    { .began = GATE, .stopped = GATE }

static int run_until_stopped(mr_job *job, void *arg) {
    struct lease_stop *t = arg;
    t->attempts[t->began.count] = (int)mr_job_attempt(job);
    bool first = t->began.count == 0;
    gate_pass(&t->began);
    if (first)
        gate_wait(&t->stopped, 1);
    assert_int_equal(mr_job_stopped(job), first);
    return 0;
}

static void note_stop(mr_job *job, void *arg) {
    struct lease_stop *t = arg;
    assert_true(mr_job_stopped(job));
    gate_pass(&t->stopped);
}

static void F1_D5_a_lost_connection_stops_what_runs_and_it_runs_again(void **state) {
    (void)state;
    struct store store = store_make();
    struct serving server = { 0 };
    serving_start(&server, store.url, 0);
    mr *m = open_at(server.url);
    struct lease_stop stops = LEASE_STOP;
    mr_worker *w = NULL;
    mr_work_options o = { .jobs = 1, .on_stop = note_stop };
    must(mr_work(m, "s", run_until_stopped, &stops, &o, &w));
    mr_id id = push(m, "s", "k", "x");
    gate_wait(&stops.began, 1);
    serving_end(&server, SIGKILL);
    gate_wait(&stops.stopped, 1);
    serving_start(&server, store.url, server.port);
    must(mr_await(m, id, MR_FOREVER, NULL));
    assert_int_equal(stops.began.count, 2);
    assert_int_equal(stops.attempts[1], 2);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
    serving_end(&server, SIGKILL);
    store_remove(&store);
}

static void F3_a_server_that_hangs_stops_work_before_its_lease_ends(void **state) {
    (void)state;
    struct serving server = { 0 };
    serving_start(&server, "mem:", 0);
    mr *m = open_at(server.url);
    struct lease_stop stops = LEASE_STOP;
    mr_worker *w = NULL;
    mr_work_options o = { .jobs = 1, .on_stop = note_stop, .lease_ms = 500 };
    must(mr_work(m, "s", run_until_stopped, &stops, &o, &w));
    mr_id id = push(m, "s", "k", "x");
    gate_wait(&stops.began, 1);
    kill(server.pid, SIGSTOP);
    gate_wait(&stops.stopped, 1);
    kill(server.pid, SIGCONT);
    must(mr_await(m, id, MR_FOREVER, NULL));
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
    serving_end(&server, SIGKILL);
}

// Takes a job and is killed while it holds the lease.
static void take_and_die(const char *url) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        mr *m = NULL;
        mr_job *job = NULL;
        mr_take_options o = { .wait_ms = MR_FOREVER, .lease_ms = 3600000 };
        int err = mr_open(url, NULL, &m);
        if (err == 0)
            err = mr_take(m, "s", &o, &job);
        ssize_t said = write(ends[1], &err, sizeof err);
        (void)said;
        for (;;)
            pause();
    }
    int err = -1;
    assert_int_equal(read(ends[0], &err, sizeof err), sizeof err);
    assert_int_equal(err, 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ends[0]);
    close(ends[1]);
}

static void F11_D1_a_dead_workers_job_returns_at_once_not_after_the_lease(void **state) {
    (void)state;
    struct serving server = { 0 };
    serving_start(&server, "mem:", 0);
    mr *m = open_at(server.url);
    push(m, "s", "k", "x");
    must(mr_close(m)); // the child begins without threads of ours
    take_and_die(server.url);
    m = open_at(server.url);
    mr_job *job = take_waiting(m, "s"); // the lease was an hour
    assert_int_equal(mr_job_attempt(job), 2);
    must(mr_done(job));
    must(mr_close(m));
    serving_end(&server, SIGKILL);
}

static void *take_one(void *arg) {
    mr_job *job = NULL;
    mr_take_options o = { .wait_ms = MR_FOREVER, .lease_ms = 2000 };
    return mr_take(arg, "s", &o, &job) == 0 ? job : NULL;
}

static void F8_work_that_was_long_in_coming_is_beaten_for_before_it_begins(void **state) {
    (void)state;
    struct serving server = { 0 };
    serving_start(&server, "mem:", 0);
    mr *m = open_at(server.url);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_one, m), 0);
    let_pass(m, 2100); // longer than the lease
    mr_id id = push(m, "s", NULL, "x");
    void *job = NULL;
    pthread_join(thread, &job);
    assert_non_null(job);
    assert_false(mr_job_stopped(job));
    must(mr_beat(job));
    must(mr_done(job));
    must(mr_await(m, id, 0, NULL));
    must(mr_close(m));
    serving_end(&server, SIGKILL);
}

// A worker that is just being stopped takes no job with it.
static int count_run(mr_job *job, void *arg) {
    (void)job;
    gate_pass(arg);
    return 0;
}

static void D1_workers_come_and_go_and_no_attempt_is_lost_by_it(void **state) {
    (void)state;
    struct serving server = { 0 };
    serving_start(&server, "mem:", 0);
    mr *m = open_at(server.url);
    struct gate ran = GATE;
    for (int i = 0; i < 30; i++) {
        mr_worker *w = NULL;
        must(mr_work(m, "s", count_run, &ran, &(mr_work_options){ .jobs = 3 }, &w));
        for (int k = 0; k < 5; k++)
            push(m, "s", NULL, "x");
        gate_wait(&ran, 5 * i + 1);
        must(mr_worker_stop(w, MR_FOREVER));
        while (ran.count < 5 * (i + 1)) { // what it left waits again, untried
            mr_job *job = take_waiting(m, "s");
            assert_int_equal(mr_job_attempt(job), 1);
            must(mr_done(job));
            gate_pass(&ran);
        }
    }
    assert_int_equal(ran.count, 150);
    must(mr_close(m));
    serving_end(&server, SIGKILL);
}

// ---- Much at once -------------------------------------------------------------------------------

// F9: a worker with many leased jobs sends beats for each when it is due, and stops only those that
// the server names.
static void F9_every_one_of_many_leases_is_kept(void **state) {
    (void)state;
    enum { MANY = 12000, LOST = 997 };
    static struct mr_job *jobs[MANY];
    struct taking t = { 0 };
    taking_start(&t);
    struct client *c = (struct client *)t.engine;
    push_much(t.engine, MANY);
    for (int count = 0; count < MANY;)
        for (struct mr_job *job = take_up_to(&t, TAKE_MOST, 0); job; job = job->next)
            jobs[count++] = job;
    for (int i = 0; i < MANY; i += LOST)
        end_lease(c, jobs[i]);
    pthread_mutex_lock(&c->lock);
    uint64_t now_ms = monotonic_ms();
    for (int i = 0; i < MANY; i++) { // half of it has passed
        uint64_t from_ms = now_ms - jobs[i]->lease_ms / 2;
        jobs[i]->lease_from_ms = from_ms;
        jobs[i]->beat_ms = from_ms;
    }
    pthread_mutex_unlock(&c->lock);
    assert_true(t.engine->impl->beat_all(t.puller) > 0);
    receive_all(t.engine);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(leased_job_stopped(jobs[i]) < 0, i % LOST == 0);
        assert_int_equal(jobs[i]->lease_from_ms >= now_ms, i % LOST != 0);
    }
    for (int i = 0; i < MANY; i++)
        (void)t.engine->impl->done(jobs[i], 0); // some are lost
    taking_stop(&t);
}

// For how long this machine was suspended, as far as this program can see.
static _Atomic time_t suspended_s;

int clock_gettime(clockid_t clock, struct timespec *out) {
    int err = (int)syscall(SYS_clock_gettime, clock, out);
    if (err == 0 && clock == CLOCK_BOOTTIME)
        out->tv_sec += atomic_load(&suspended_s);
    return err;
}

// F30: leases run out while the machine is suspended: after it wakes up, a worker's lease ends no
// later than the server's.
static void F30_a_lease_does_not_outlive_a_suspended_machine(void **state) {
    (void)state;
    struct taking t = { 0 };
    taking_start(&t);
    push_much(t.engine, 1);
    struct mr_job *job = take_up_to(&t, 1, 0);
    receive_all(t.engine);
    assert_int_equal(leased_job_stopped(job), 0);
    atomic_fetch_add(&suspended_s, (time_t)(job->lease_ms / 1000));
    receive_all(t.engine);
    assert_int_equal(leased_job_stopped(job), MR_ESTALE);
    (void)t.engine->impl->release(job, 0, FINISH_WAIT);
    taking_stop(&t);
}

static void *take_and_wait(void *arg) {
    return take_up_to(arg, 1, MR_FOREVER);
}

// Connections that were needed for a while are closed, but for a few.
static void D1_unused_lanes_are_closed(void **state) {
    (void)state;
    enum { MANY = 20, KEPT = 8 };
    pthread_t threads[MANY];
    void *jobs[MANY];
    struct taking t = { 0 };
    taking_start(&t);
    struct client *c = (struct client *)t.engine;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_wait, &t), 0);
    for (uint32_t taking = 0; taking < MANY;) { // each by a connection of its own
        pthread_mutex_lock(&c->lock);
        taking = ((struct client_puller *)t.puller)->taking;
        pthread_mutex_unlock(&c->lock);
        sched_yield();
    }
    push_much(t.engine, MANY);
    for (int i = 0; i < MANY; i++)
        pthread_join(threads[i], &jobs[i]);
    pthread_mutex_lock(&c->lock);
    assert_int_equal(c->idle_count, MANY); // their leases depend on them
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < MANY; i++)
        must(t.engine->impl->done(jobs[i], FINISH_WAIT));
    pthread_mutex_lock(&c->lock);
    assert_int_equal(c->idle_count, KEPT);
    pthread_mutex_unlock(&c->lock);
    taking_stop(&t);
}

struct funeral {
    mr *m;
    mr_id last;
    int notified;
};

// The last is dropped while the first is notified; each is dropped when it is notified.
static int bury(mr_id id, mr_bytes key, const char *reason, void *arg) {
    struct funeral *f = arg;
    (void)key;
    assert_string_equal(reason, "no");
    assert_true(id < f->last);
    if (f->notified++ == 0)
        must(mr_drop(f->m, f->last));
    must(mr_drop(f->m, id));
    return 0;
}

static void F13_dead_jobs_are_listed_page_by_page(void **state) {
    (void)state;
    enum { MANY = 1300 };
    struct taking t = { 0 };
    taking_start(&t);
    must(t.engine->impl->stage_set(t.engine, mr_str("s"), mr_str("attempts"), mr_str("1")));
    push_much(t.engine, MANY);
    struct funeral f = { .m = open_at(t.server.url) };
    for (int count = 0; count < MANY;)
        for (struct mr_job *job = take_up_to(&t, TAKE_MOST, 0), *next; job; job = next, count++) {
            next = job->next;
            f.last = job->id;
            must((t.engine->impl->fail)(job, mr_str("no"), MR_BACKOFF,
                                        0)); // cmocka has a macro fail
        }
    receive_all(t.engine);
    must(mr_dead(f.m, "s", bury, &f));
    assert_int_equal(f.notified, MANY - 1);
    assert_int_equal(look(f.m, "s").dead, 0);
    must(mr_close(f.m));
    taking_stop(&t);
}

// ---- T20, F2: everything at once, while the server is killed or replies get lost
// ------------------

enum { KEYS = 4, EACH = 150, CALLS = 60 };

// A job is done once if its commit is recorded once: a commit counts in the state of its channel,
// and emits its number to the stage `out`.
struct storm {
    mr *m;
    mr *steady;           // over a connection that does not break
    struct gate accepted; // pushes and calls that were answered
    atomic_int wrong;
};

struct storm_pusher {
    struct storm *storm;
    int key;
};

static void *push_key(void *arg) {
    struct storm_pusher *p = arg;
    char key[8], body[16];
    snprintf(key, sizeof key, "k%d", p->key);
    for (int i = 0; i < EACH; i++) {
        snprintf(body, sizeof body, "%d", i);
        mr_push_options o = { .key = mr_str(key) };
        if (mr_push(p->storm->m, "in", mr_str(body), &o, NULL) < 0)
            atomic_fetch_add(&p->storm->wrong, 1);
        gate_pass(&p->storm->accepted);
    }
    return NULL;
}

static void *call_often(void *arg) {
    struct storm_pusher *p = arg;
    char body[32];
    for (int i = 0; i < CALLS; i++) {
        mr_result result = { 0 };
        snprintf(body, sizeof body, "%d", i);
        int err = mr_call(p->storm->m, "echo", mr_str(body), NULL, &result);
        if (err < 0 || strcmp(result.body.data, body) != 0)
            atomic_fetch_add(&p->storm->wrong, 1);
        mr_result_free(&result);
        gate_pass(&p->storm->accepted);
    }
    return NULL;
}

static int storm_handler(mr_job *job, void *arg) {
    (void)arg;
    if (strcmp(mr_job_stage(job), "echo") == 0)
        return mr_job_set_result(job, mr_job_body(job));
    char next[16];
    mr_bytes state = mr_job_state(job), body = mr_job_body(job);
    snprintf(next, sizeof next, "%d", (state.size ? atoi_of(state.data) : 0) + 1);
    mr_push_options o = { .key = mr_job_key(job) };
    int err = mr_job_set_state(job, mr_str(next));
    if (err >= 0 && atoi_of(body.data) + 1 != atoi_of(next))
        err = mr_job_emit(job, "disorder", body, &o);
    return err < 0 ? err : mr_job_emit(job, "out", body, &o);
}

// Every number of every key has come out, once and in order.
static void storm_check(struct storm *s) {
    int seen[KEYS] = { 0 };
    mr_job *job = NULL;
    while (mr_take(s->steady, "out", NULL, &job) == 0) {
        int key = ((const char *)mr_job_key(job).data)[1] - '0';
        assert_int_equal(atoi_of(mr_job_body(job).data), seen[key]);
        seen[key]++;
        must(mr_done(job));
    }
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(seen[i], EACH);
    nothing_to_take(s->steady, "disorder");
    assert_int_equal(atomic_load(&s->wrong), 0);
}

// Runs all of it; `trouble` is called again and again while it goes on.
static void storm_run(struct storm *s, void (*trouble)(struct storm *, int accepted, void *),
                      void *arg) {
    struct storm_pusher pushers[KEYS + 1];
    pthread_t threads[KEYS + 1];
    mr_worker *workers[2];
    const char *more[] = { "echo", NULL };
    mr_work_options o = { .more_stages = more, .jobs = 3, .batch = 4 };
    for (int i = 0; i < 2; i++)
        must(mr_work(s->m, "in", storm_handler, NULL, &o, &workers[i]));
    for (int i = 0; i <= KEYS; i++) {
        pushers[i] = (struct storm_pusher){ s, i };
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < KEYS ? push_key : call_often, &pushers[i]), 0);
    }
    for (int all = KEYS * EACH + CALLS, at = all / 8; at < all; at += all / 8) {
        gate_wait(&s->accepted, at);
        trouble(s, at, arg);
    }
    for (int i = 0; i <= KEYS; i++)
        pthread_join(threads[i], NULL);
    must(mr_stage_wait_empty(s->m, "in", MR_FOREVER));
    for (int i = 0; i < 2; i++)
        must(mr_worker_stop(workers[i], MR_FOREVER));
    storm_check(s);
}

// Every loss is a failed attempt: there may be many, and each is soon made up for.
static void be_patient(mr *m, const char *stage) {
    must(mr_stage_set(m, stage, "backoff", "1ms"));
    must(mr_stage_set(m, stage, "attempts", "10000"));
}

struct killer {
    struct serving server;
    struct store store;
    int signal;
};

static void kill_and_restart(struct storm *s, int accepted, void *arg) {
    struct killer *k = arg;
    (void)s, (void)accepted;
    serving_end(&k->server, k->signal);
    serving_start(&k->server, k->store.url, k->server.port);
}

static void storm_with_kills(int signal) {
    struct killer k = { .store = store_make(), .signal = signal };
    serving_start(&k.server, k.store.url, 0);
    struct storm s = { .m = open_at(k.server.url), .accepted = GATE };
    s.steady = s.m; // in the end
    be_patient(s.m, "in");
    be_patient(s.m, "echo");
    storm_run(&s, kill_and_restart, &k);
    must(mr_close(s.m));
    serving_end(&k.server, SIGKILL);
    store_remove(&k.store);
}

static void F1_F2_F11_D5_a_killed_server_loses_and_doubles_nothing(void **state) {
    (void)state;
    storm_with_kills(SIGKILL);
}

static void T22_nor_does_one_that_is_asked_to_stop(void **state) {
    (void)state;
    storm_with_kills(SIGTERM);
}

static void no_more_trouble(struct storm *s, int accepted, void *arg) {
    (void)s, (void)accepted, (void)arg;
}

static void T20_nor_do_connections_that_break_off_in_both_directions(void **state) {
    (void)state;
    struct serving server = { 0 };
    struct proxy proxy;
    serving_start(&server, "mem:", 0);
    proxy_start(&proxy, server.port, 0);
    struct storm s = { .m = open_at(proxy.url), .accepted = GATE };
    s.steady = open_at(server.url);
    be_patient(s.steady, "in");
    be_patient(s.steady, "echo");
    atomic_store(&proxy.loss_percent, 2); // of all pieces, and a piece carries many
    storm_run(&s, no_more_trouble, NULL);
    must(mr_close(s.m));
    must(mr_close(s.steady));
    proxy_stop(&proxy);
    serving_end(&server, SIGKILL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(X_an_unreachable_server_is_reported_with_address_and_way_out),
        cmocka_unit_test(X_a_url_or_option_that_cannot_be_is_refused),
        cmocka_unit_test(X_another_kind_of_server_is_recognised),
        cmocka_unit_test(X_a_refused_secret_is_MR_EAUTH),
        cmocka_unit_test(X_a_server_that_never_answers_is_not_waited_for_for_ever),
        cmocka_unit_test(X_promised_times_hold_though_the_server_is_silent),
        cmocka_unit_test(X_a_lost_server_is_MR_ENET_after_a_while),
        cmocka_unit_test(X_a_lost_node_is_replaced_by_the_next_one_of_the_url),
        cmocka_unit_test(X_a_worker_at_another_node_than_its_client_stops_at_once),
        cmocka_unit_test(F2_a_push_whose_reply_is_lost_is_repeated_with_its_number),
        cmocka_unit_test(F2_pushes_whose_replies_are_lost_are_repeated_in_their_order),
        cmocka_unit_test(U22_a_number_is_not_repeated_when_its_source_may_be_removed),
        cmocka_unit_test(X_a_server_that_is_full_is_waited_for),
        cmocka_unit_test(F40_a_server_that_has_moved_is_found_again),
        cmocka_unit_test(F47_what_is_too_large_for_a_server_is_refused_here),
        cmocka_unit_test(X_a_client_refused_while_it_sends_gets_the_reason),
        cmocka_unit_test(F2_a_call_whose_reply_is_lost_is_repeated_with_its_once),
        cmocka_unit_test(F2_a_command_about_an_epic_is_repeated_when_its_reply_is_lost),
        cmocka_unit_test(F2_a_drop_of_an_unknown_epic_is_an_error),
        cmocka_unit_test(X_a_server_that_reads_its_store_is_waited_for),
        cmocka_unit_test(X_a_server_that_lost_its_memory_is_given_new_numbers),
        cmocka_unit_test(F1_D5_a_lost_connection_stops_what_runs_and_it_runs_again),
        cmocka_unit_test(F3_a_server_that_hangs_stops_work_before_its_lease_ends),
        cmocka_unit_test(F11_D1_a_dead_workers_job_returns_at_once_not_after_the_lease),
        cmocka_unit_test(F8_work_that_was_long_in_coming_is_beaten_for_before_it_begins),
        cmocka_unit_test(D1_workers_come_and_go_and_no_attempt_is_lost_by_it),
        cmocka_unit_test(F9_every_one_of_many_leases_is_kept),
        cmocka_unit_test(F30_a_lease_does_not_outlive_a_suspended_machine),
        cmocka_unit_test(D1_unused_lanes_are_closed),
        cmocka_unit_test(F13_dead_jobs_are_listed_page_by_page),
        cmocka_unit_test(F1_F2_F11_D5_a_killed_server_loses_and_doubles_nothing),
        cmocka_unit_test(T22_nor_does_one_that_is_asked_to_stop),
        cmocka_unit_test(T20_nor_do_connections_that_break_off_in_both_directions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
