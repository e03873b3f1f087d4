// Epics through the public API, on an engine in this process and on a server: numbered pushes that
// stay a window ahead of the workers, and go on wherever they stopped. Then a server is killed, its
// connections break off, workers die, and the program that pushes begins again and again.
#include "support/api.h"
#include "support/fake_server.h"

static const mr_push_options patient = { .room_ms = MR_FOREVER };

static mr_epic begin(mr *m, const char *name, uint32_t ahead) {
    mr_epic e = { .stage = "s", .name = name, .ahead = ahead };
    must(mr_epic_begin(m, &e));
    return e;
}

static void push_number(mr *m, mr_epic *e, const mr_push_options *o) {
    char body[24];
    uint64_t number = e->next;
    snprintf(body, sizeof body, "%d", (int)number);
    must(mr_epic_push(m, e, mr_str(body), o, NULL));
    assert_int_equal(e->next, number + 1);
}

static void work_off(mr *m, const char *stage, int count) {
    for (int i = 0; i < count; i++)
        must(mr_done(take_waiting(m, stage)));
}

static mr_epic_info look_epic(mr *m, const char *name) {
    mr_epic_info info;
    must(mr_epic_look(m, "s", name, &info));
    return info;
}

// ---- One after another ------------------------------------------------------------------------

static void T16_a_producer_restarts_and_continues(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic first = begin(m, "june", 0);
    mr_id id = 0, again = 0;
    assert_int_equal(first.next, 1);
    push_number(m, &first, NULL);
    must(mr_epic_push(m, &first, mr_str("2"), NULL, &id));
    mr_epic second = begin(m, "june", 0);
    assert_int_equal(second.next, 3);
    second.next = 2; // as if the reply to this one was lost
    must(mr_epic_push(m, &second, mr_str("2"), NULL, &again));
    assert_true(id == again);
    push_number(m, &second, NULL);
    must(mr_epic_end(m, &second));
    assert_int_equal(look(m, "s").waiting, 3);
    refused(MR_EAGAIN, mr_epic_wait(m, "s", "june", 0, NULL));
    for (int i = 1; i <= 3; i++)
        must(mr_done(take_next(m, "s", (char[]){ (char)('0' + i), 0 })));
    mr_epic_info info;
    must(mr_epic_wait(m, "s", "june", 0, &info));
    assert_int_equal(info.over, 1);
    assert_int_equal(info.total, 3);
    assert_int_equal(info.accepted, 3);
    assert_int_equal(info.done, 3);
    assert_int_equal(info.resume, 4);
    must(mr_close(m));
}

static void D4_the_expected_number_is_shown(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 2);
    e.expected = 40;
    push_number(m, &e, NULL); // the first push makes the epic
    assert_int_equal(look_epic(m, "june").expected, -1);
    push_number(m, &e, NULL);
    assert_int_equal(look_epic(m, "june").expected, 40);
    must(mr_close(m));
}

static void D4_an_epic_is_read_only_as_fast_as_it_is_worked_off(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 8);
    for (int i = 0; i < 8; i++)
        push_number(m, &e, NULL);
    refused(MR_EFULL, mr_epic_push(m, &e, mr_str("9"), NULL, NULL));
    assert_int_equal(e.next, 9);
    work_off(m, "s", 3);
    refused(MR_EFULL, mr_epic_push(m, &e, mr_str("9"), NULL, NULL));
    work_off(m, "s", 1);
    for (int i = 0; i < 4; i++)
        push_number(m, &e, NULL);
    refused(MR_EFULL, mr_epic_push(m, &e, mr_str("13"), &(mr_push_options){ .room_ms = 1 }, NULL));
    mr_epic other = begin(m, "june", 8); // another run finds it as full
    assert_int_equal(other.next, 13);
    refused(MR_EFULL, mr_epic_push(m, &other, mr_str("13"), NULL, NULL));
    assert_int_equal(look_epic(m, "june").waiting, 8);
    must(mr_close(m));
}

static void D4_any_window_is_kept_to_also_in_bytes(void **state) {
    (void)state;
    mr *m = open_mem();
    for (uint32_t ahead = 1; ahead <= 9; ahead++) {
        char name[2] = { (char)('a' + ahead), 0 };
        mr_epic e = begin(m, name, ahead);
        uint64_t most = 0;
        for (int i = 0; i < 40; i++) {
            while (mr_epic_push(m, &e, mr_str("x"), NULL, NULL) == 0)
                continue;
            mr_epic_info info = look_epic(m, name);
            most = info.waiting > most ? info.waiting : most;
            work_off(m, "s", 1);
        }
        assert_true(most <= ahead && most + 1 >= ahead);
        work_off(m, "s", (int)look_epic(m, name).waiting);
    }
    char body[401] = "";
    memset(body, 'x', 400);
    mr_epic e = { .stage = "s", .name = "bytes", .ahead_bytes = 1600 };
    must(mr_epic_begin(m, &e));
    while (mr_epic_push(m, &e, mr_str(body), NULL, NULL) == 0)
        continue;
    assert_int_equal(look_epic(m, "bytes").waiting, 4);
    mr_epic whole = { .stage = "s", .name = "whole", .ahead = UINT32_MAX };
    must(mr_epic_begin(m, &whole));
    for (int i = 0; i < 2000; i++)
        push_number(m, &whole, NULL);
    must(mr_close(m));
}

static void D4_many_are_pushed_at_the_price_of_one_and_as_many_as_there_is_room_for(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 10);
    mr_item items[16];
    mr_id ids[16];
    size_t n = 7;
    for (int i = 0; i < 16; i++)
        items[i] = (mr_item){ .body = mr_str("x"), .key = mr_str("k") };
    must(mr_epic_push_many(m, &e, items, 16, NULL, ids, &n));
    assert_int_equal(n, 10);
    assert_int_equal(e.next, 11);
    for (int i = 1; i < 10; i++)
        assert_true(ids[i] > ids[i - 1]);
    refused(MR_EFULL, mr_epic_push_many(m, &e, items, 6, NULL, ids, &n));
    assert_int_equal(n, 10);
    must(mr_epic_push_many(m, &e, items, 0, NULL, ids, &n));
    assert_int_equal(n, 0);
    must(mr_close(m));
}

static void T9_an_epic_without_workers_waits_and_shows_why(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 2);
    push_number(m, &e, NULL);
    push_number(m, &e, NULL);
    refused(MR_EFULL, mr_epic_push(m, &e, mr_str("3"), NULL, NULL));
    assert_non_null(strstr(mr_error(), "'s'"));
    assert_non_null(strstr(mr_error(), "no-worker"));
    mr_epic_info info = look_epic(m, "june");
    assert_string_equal(info.stage, "s");
    assert_string_equal(info.held_by, "no-worker");
    assert_int_equal(info.total, -1);
    must(mr_stage_pause(m, "s"));
    assert_string_equal(look_epic(m, "june").held_by, "paused");
    must(mr_stage_resume(m, "s"));
    work_off(m, "s", 2);
    assert_string_equal(look_epic(m, "june").held_by, "");
    must(mr_close(m));
}

static void D4_an_empty_epic_ends_at_once(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "nothing", 0);
    mr_epic_info info;
    must(mr_epic_end(m, &e));
    must(mr_epic_wait(m, "s", "nothing", 0, &info));
    assert_int_equal(info.total, 0);
    assert_int_equal(info.over, 1);
    refused(MR_EINVAL, mr_epic_push(m, &e, mr_str("x"), NULL, NULL));
    must(mr_epic_end(m, &e)); // called twice
    must(mr_close(m));
}

static void R12_a_number_that_is_left_out_counts_and_has_no_job(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 0);
    push_number(m, &e, NULL);
    must(mr_epic_skip(m, &e));
    push_number(m, &e, NULL);
    must(mr_epic_skip(m, &e));
    must(mr_epic_end(m, &e));
    work_off(m, "s", 2);
    mr_epic_info info;
    must(mr_epic_wait(m, "s", "june", 0, &info));
    assert_int_equal(info.total, 4);
    assert_int_equal(info.accepted, 2);
    assert_int_equal(info.resume, 5);
    must(mr_close(m));
}

static void R12_a_name_that_was_used_before_leaves_no_number_out(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 0);
    mr_push_options named = { .key = mr_str("k"), .once = mr_str("n") };
    mr_id first = 0, again = 0;
    must(mr_epic_push(m, &e, mr_str("1"), &named, &first));
    must(mr_epic_push(m, &e, mr_str("1"), &named, &again));
    assert_true(first == again);
    assert_int_equal(look_epic(m, "june").resume, 3);
    push_number(m, &e, NULL);
    must(mr_epic_end(m, &e));
    work_off(m, "s", 2);
    must(mr_epic_wait(m, "s", "june", 0, NULL));
    assert_int_equal(look_epic(m, "june").accepted, 2);
    must(mr_close(m));
}

static void R12_an_epic_ends_once_and_whole(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 0), late = e;
    push_number(m, &e, NULL);
    push_number(m, &e, NULL);
    must(mr_epic_end(m, &e));
    refused(MR_EINVAL, mr_epic_push(m, &e, mr_str("3"), NULL, NULL));
    refused(MR_EINVAL, mr_epic_skip(m, &e));
    mr_epic again = begin(m, "june", 0);
    assert_int_equal(again.next, 3);
    refused(MR_EINVAL, mr_epic_push(m, &again, mr_str("3"), NULL, NULL));
    must(mr_epic_end(m, &again));
    must(mr_epic_push(m, &late, mr_str("1"), NULL, NULL)); // a repeat
    again.next = 2;
    refused(MR_EINVAL, mr_epic_end(m, &again)); // with fewer than there are
    must(mr_close(m));
}

static int find_dead(mr_id id, mr_bytes key, const char *reason, void *arg) {
    (void)key, (void)reason;
    *(mr_id *)arg = id;
    return 1;
}

static void D4_an_epic_with_dead_jobs_counts_them_and_is_over(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 0);
    push_number(m, &e, NULL);
    push_number(m, &e, NULL);
    must(mr_epic_end(m, &e));
    must(mr_fail(take_waiting(m, "s"), "no", MR_NEVER));
    work_off(m, "s", 1);
    mr_epic_info info = { .total = 77 };
    refused(MR_EDEAD, mr_epic_wait(m, "s", "june", MR_FOREVER, &info));
    assert_non_null(strstr(mr_error(), "1 of the 2"));
    assert_int_equal(info.total, 77);
    assert_int_equal(look_epic(m, "june").dead, 1);
    mr_id dead = 0;
    must(mr_dead(m, "s", find_dead, &dead));
    must(mr_retry(m, dead));
    refused(MR_EAGAIN, mr_epic_wait(m, "s", "june", 1, NULL));
    work_off(m, "s", 1);
    must(mr_epic_wait(m, "s", "june", MR_FOREVER, NULL));
    must(mr_close(m));
}

static void X_what_cannot_be_is_refused(void **state) {
    (void)state;
    mr *m = open_mem();
    char name[202] = "";
    memset(name, 'n', 201);
    mr_epic fresh = { .stage = "s", .name = "june" }, nameless = { .stage = "s" };
    mr_epic empty = { .stage = "s", .name = "" };
    mr_epic long_one = { .stage = "s", .name = name };
    mr_epic_info info;
    refused(MR_EINVAL, mr_epic_begin(m, NULL));
    refused(MR_EINVAL, mr_epic_begin(m, &nameless));
    refused(MR_EINVAL, mr_epic_begin(m, &empty));
    refused(MR_EINVAL, mr_epic_begin(m, &long_one));
    refused(MR_EINVAL, mr_epic_push(m, &fresh, mr_str("x"), NULL, NULL));
    refused(MR_EINVAL, mr_epic_end(m, &fresh));
    refused(MR_EINVAL, mr_epic_skip(m, &fresh));
    refused(MR_EGONE, mr_epic_look(m, "s", "june", &info));
    refused(MR_EGONE, mr_epic_wait(m, "s", "june", 0, NULL));
    refused(MR_EGONE, mr_epic_drop(m, "s", "june"));
    refused(MR_EINVAL, mr_epic_look(m, "s", "june", NULL));
    refused(MR_EINVAL, mr_epic_wait(m, "s", "june", -2, NULL));
    must(mr_epic_begin(m, &fresh));
    mr_epic nowhere = { .name = "june" }, elsewhere = { .stage = "not a stage", .name = "june" };
    refused(MR_EINVAL, mr_epic_begin(m, &nowhere));
    refused(MR_EINVAL, mr_epic_push(m, &elsewhere, mr_str("x"), NULL, NULL)); // not begun
    refused(MR_EINVAL, mr_epic_look(m, NULL, "june", &info));
    refused(MR_EINVAL, mr_epic_push_many(m, &fresh, NULL, 1, NULL, NULL, NULL));
    assert_int_equal(fresh.next, 1);
    must(mr_close(m));
}

// ---- At the same time -------------------------------------------------------------------------

struct reader {
    mr *m;
    const char *name;
    uint64_t count;
    int err;
    pthread_t thread;
};

static void *read_epic(void *arg) {
    struct reader *r = arg;
    mr_epic e = { .stage = "s", .name = r->name };
    r->err = mr_epic_begin(r->m, &e);
    while (r->err >= 0 && e.next <= r->count) {
        char bodies[64][24];
        mr_item items[64];
        size_t n = 0, accepted = 0;
        for (; n < 64 && e.next + n <= r->count; n++) {
            snprintf(bodies[n], sizeof bodies[n], "%d", (int)(e.next + n));
            items[n] = (mr_item){ .body = mr_str(bodies[n]) };
        }
        r->err = mr_epic_push_many(r->m, &e, items, n, &patient, NULL, &accepted);
    }
    if (r->err >= 0)
        r->err = mr_epic_end(r->m, &e);
    return NULL;
}

static void reader_start(struct reader *r) {
    assert_int_equal(pthread_create(&r->thread, NULL, read_epic, r), 0);
}

// The most jobs of an epic that were queued at once, as seen by its worker.
struct peak {
    mr *m;
    const char *epic;
    atomic_int most, runs;
};

static int note_peak(mr_job *job, void *arg) {
    struct peak *p = arg;
    mr_epic_info info;
    (void)job;
    if (atomic_fetch_add(&p->runs, 1) % 16 || mr_epic_look(p->m, "s", p->epic, &info) < 0)
        return 0;
    int there = (int)(info.waiting + info.running), most = atomic_load(&p->most);
    while (there > most && !atomic_compare_exchange_weak(&p->most, &most, there))
        continue;
    return 0;
}

static mr_worker *work(mr *m, const char *stage, mr_handler *handler, void *arg) {
    mr_worker *w = NULL;
    mr_work_options o = { .jobs = 2, .batch = 8 };
    must(mr_work(m, stage, handler, arg, &o, &w));
    return w;
}

// D4: memory stays flat for any length: the tenfold epic never has more jobs there.
static void D4_the_backlog_is_flat_for_any_length(void **state) {
    (void)state;
    mr *m = open_mem();
    const uint64_t lengths[] = { 2000, 20000 };
    const char *names[] = { "short", "long" };
    for (int i = 0; i < 2; i++) {
        struct reader r = { .m = m, .name = names[i], .count = lengths[i] };
        struct peak p = { .m = m, .epic = names[i] };
        must(mr_stage_set(m, "s", "retention", "0,0"));
        reader_start(&r);
        mr_worker *w = work(m, "s", note_peak, &p);
        pthread_join(r.thread, NULL);
        assert_int_equal(r.err, 0);
        mr_epic_info info;
        must(mr_epic_wait(m, "s", names[i], MR_FOREVER, &info));
        assert_int_equal(info.done, lengths[i]);
        must(mr_worker_stop(w, MR_FOREVER));
        assert_int_equal(p.runs, lengths[i]);
        assert_true(p.most > 0 && p.most <= 1024);
    }
    must(mr_close(m));
}

static int nothing(mr_job *job, void *arg) {
    (void)job, (void)arg;
    return 0;
}

static void D4_two_epics_share_the_workers(void **state) {
    (void)state;
    mr *m = open_mem();
    struct reader a = { .m = m, .name = "a", .count = 3000 };
    struct reader b = { .m = m, .name = "b", .count = 3000 };
    reader_start(&a);
    reader_start(&b);
    mr_worker *w = work(m, "s", nothing, NULL);
    pthread_join(a.thread, NULL);
    pthread_join(b.thread, NULL);
    assert_int_equal(a.err, 0);
    assert_int_equal(b.err, 0);
    must(mr_epic_wait(m, "s", "a", MR_FOREVER, NULL));
    must(mr_epic_wait(m, "s", "b", MR_FOREVER, NULL));
    assert_int_equal(look_epic(m, "a").done, 3000);
    assert_int_equal(look_epic(m, "b").done, 3000);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

// The second one's jobs are there although the first has filled its window.
static void D4_a_second_epic_is_not_held_up_by_the_first(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic a = begin(m, "a", 2), b = begin(m, "b", 2);
    push_number(m, &a, NULL);
    push_number(m, &a, NULL);
    refused(MR_EFULL, mr_epic_push(m, &a, mr_str("3"), NULL, NULL));
    push_number(m, &b, NULL);
    push_number(m, &b, NULL);
    work_off(m, "s", 2);
    push_number(m, &a, NULL);
    refused(MR_EFULL, mr_epic_push(m, &b, mr_str("3"), NULL, NULL));
    must(mr_close(m));
}

struct waiter {
    mr *m;
    mr_epic *epic; // to be pushed; NULL: its end is waited for
    struct gate begun;
    int err;
    pthread_t thread;
};

static void *wait_for_epic(void *arg) {
    struct waiter *w = arg;
    gate_pass(&w->begun);
    w->err = w->epic ? mr_epic_push(w->m, w->epic, mr_str("x"), &patient, NULL)
                     : mr_epic_wait(w->m, "s", "june", MR_FOREVER, NULL);
    return NULL;
}

static void waiter_start(struct waiter *w, mr *m, mr_epic *e) {
    *w = (struct waiter){ .m = m, .epic = e, .begun = GATE };
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_epic, w), 0);
    gate_wait(&w->begun, 1);
}

static void D4_a_wait_for_an_epic_ends_when_it_is_dropped(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 2);
    struct waiter reader, over;
    push_number(m, &e, NULL);
    push_number(m, &e, NULL);
    waiter_start(&reader, m, &e);
    waiter_start(&over, m, NULL);
    must(mr_epic_drop(m, "s", "june"));
    pthread_join(reader.thread, NULL);
    pthread_join(over.thread, NULL);
    assert_int_equal(reader.err, MR_EGONE);
    assert_int_equal(over.err, MR_EGONE);
    refused(MR_EGONE, mr_epic_end(m, &e));
    work_off(m, "s", 2); // its jobs are there
    mr_epic again = begin(m, "june", 2);
    assert_int_equal(again.next, 1);
    push_number(m, &again, NULL);
    refused(MR_EGONE, mr_epic_end(m, &e)); // that one is not it
    must(mr_epic_end(m, &again));
    must(mr_close(m));
}

static void G4_a_job_follows_the_end_of_an_epic(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 4);
    must(mr_epic_then(m, "s", "june", "report", mr_str("k"), mr_str("june is over")));
    push_number(m, &e, NULL);
    must(mr_epic_end(m, &e));
    assert_int_equal(look_epic(m, "june").then_pushed, 0);
    work_off(m, "s", 1);
    must(mr_epic_wait(m, "s", "june", MR_FOREVER, NULL));
    assert_int_equal(look_epic(m, "june").then_pushed, 1);
    mr_job *job;
    must(mr_take(m, "report", NULL, &job));
    mr_bytes body = mr_job_body(job);
    assert_int_equal(body.size, strlen("june is over"));
    assert_memory_equal(body.data, "june is over", body.size);
    must(mr_done(job));
    refused(MR_EINVAL, mr_epic_then(m, "s", "june", "report", mr_str(""), mr_str("other")));
    refused(MR_EINVAL, mr_epic_then(m, "s", "may", "no stage", mr_str(""), mr_str("x")));
    refused(MR_EINVAL, mr_epic_then(m, "s", "may", NULL, mr_str(""), mr_str("x")));
    must(mr_close(m));
}

static void G5_an_epic_is_cancelled_and_forgotten(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 4);
    push_number(m, &e, NULL);
    push_number(m, &e, NULL);
    must(mr_epic_cancel(m, "s", "june"));
    mr_epic_info info;
    must(mr_epic_wait(m, "s", "june", MR_FOREVER, &info));
    assert_int_equal(info.cancelled, 2);
    assert_int_equal(info.stopped, 1);
    refused(MR_ECANCELLED, mr_epic_push(m, &e, mr_str("3"), NULL, NULL));
    must(mr_epic_forget(m, "s", "june", 60000));
    assert_int_equal(look_epic(m, "june").forget_ms, 60000);
    refused(MR_EINVAL, mr_epic_forget(m, "s", "june", 1));
    refused(MR_EINVAL, mr_epic_forget(m, "s", "june", -1));
    refused(MR_EGONE, mr_epic_cancel(m, "s", "may"));
    must(mr_close(m));
}

static void D4_a_waiting_reader_continues_when_the_workers_have_caught_up(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_epic e = begin(m, "june", 4);
    struct waiter reader;
    for (int i = 0; i < 4; i++)
        push_number(m, &e, NULL);
    waiter_start(&reader, m, &e);
    work_off(m, "s", 2);
    pthread_join(reader.thread, NULL);
    assert_int_equal(reader.err, 0);
    assert_int_equal(e.next, 6);
    must(mr_close(m));
}

// ---- Kept in a store ----------------------------------------------------------------------------

static void F15_F19_an_epic_is_what_it_was_when_the_store_is_opened_again(void **state) {
    (void)state;
    struct store s = store_make();
    mr *m = store_open(&s);
    mr_epic e = begin(m, "june", 4);
    for (int i = 0; i < 4; i++)
        push_number(m, &e, NULL);
    must(mr_done(take_waiting(m, "s")));
    must(mr_fail(take_waiting(m, "s"), "no", MR_NEVER));
    push_number(m, &e, NULL);
    must(mr_epic_skip(m, &e));
    must(mr_close(m));
    m = store_open(&s);
    mr_epic_info info = look_epic(m, "june");
    assert_int_equal(info.resume, 7);
    assert_int_equal(info.accepted, 5);
    assert_int_equal(info.done, 1);
    assert_int_equal(info.dead, 1);
    assert_int_equal(info.waiting, 3);
    assert_string_equal(info.stage, "s");
    mr_epic again = begin(m, "june", 0);
    assert_int_equal(again.next, 7);
    for (again.next = 1; again.next < 7;) // numbers are remembered: no second jobs
        must(mr_epic_push(m, &again, mr_str("x"), &(mr_push_options){ 0 }, NULL));
    assert_int_equal(look(m, "s").waiting, 3);
    must(mr_close(m));
    store_remove(&s);
}

// ---- Trouble ----------------------------------------------------------------------------------

enum { TROUBLED = 1500, TROUBLES = 6 };

// A program that pushes an epic and is restarted after every few pushes, wherever it is.
struct restless {
    const char *url;
    struct gate accepted;
    atomic_int wrong;
};

// Each number has a separate key, so that the state of its channel shows whether it ran before.
static int push_a_few(struct restless *r, mr *m, mr_epic *e) {
    for (int i = 0; i < 100 && e->next <= TROUBLED; i++) {
        char body[24];
        snprintf(body, sizeof body, "%d", (int)e->next);
        mr_push_options o = { .key = mr_str(body), .room_ms = MR_FOREVER };
        int err = mr_epic_push(m, e, mr_str(body), &o, NULL);
        if (err < 0)
            return err;
        gate_pass(&r->accepted);
    }
    return e->next > TROUBLED ? mr_epic_end(m, e) : 0;
}

static void *push_restlessly(void *arg) {
    struct restless *r = arg;
    for (bool over = false; !over;) {
        mr *m = NULL;
        mr_epic e = { .stage = "in", .name = "june", .ahead = 64 };
        if (mr_open(r->url, NULL, &m) < 0)
            continue; // the server is not back yet
        int err = mr_epic_begin(m, &e);
        if (err >= 0)
            err = push_a_few(r, m, &e);
        over = err >= 0 && e.next > TROUBLED;
        if (err < 0 && err != MR_ENET && err != MR_ESTOPPED)
            atomic_fetch_add(&r->wrong, 1);
        if (mr_close(m) < 0)
            atomic_fetch_add(&r->wrong, 1);
    }
    return NULL;
}

// What is committed counts in the channel's state and goes out; so once.
static int count_once(mr_job *job, void *arg) {
    (void)arg;
    if (mr_job_state(job).size)
        return mr_job_emit(job, "doubled", mr_job_body(job), NULL);
    int err = mr_job_set_state(job, mr_str("ran"));
    return err < 0 ? err : mr_job_emit(job, "out", mr_job_body(job), NULL);
}

static void check_each_once(mr *m) {
    static bool seen[TROUBLED + 1];
    mr_job *job = NULL;
    memset(seen, 0, sizeof seen);
    int count = 0;
    while (mr_take(m, "out", NULL, &job) == 0) {
        int number = atoi_of(mr_job_body(job).data);
        assert_true(number >= 1 && number <= TROUBLED && !seen[number]);
        seen[number] = true;
        count++;
        must(mr_done(job));
    }
    assert_int_equal(count, TROUBLED);
    nothing_to_take(m, "doubled");
}

static void be_patient(mr *m) {
    must(mr_stage_set(m, "in", "backoff", "1ms"));
    must(mr_stage_set(m, "in", "attempts", "10000"));
}

static void T16_T18_a_killed_server_and_a_restarted_producer_lose_and_double_nothing(void **state) {
    (void)state;
    struct store store = store_make();
    struct serving server = { 0 };
    serving_start(&server, store.url, 0);
    struct restless r = { .url = server.url, .accepted = GATE };
    mr *m = NULL;
    must(mr_open(server.url, NULL, &m));
    be_patient(m);
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, push_restlessly, &r), 0);
    mr_worker *w = work(m, "in", count_once, NULL);
    for (int i = 1; i <= TROUBLES; i++) {
        gate_wait(&r.accepted, i * TROUBLED / (TROUBLES + 1));
        serving_end(&server, SIGKILL);
        serving_start(&server, store.url, server.port);
    }
    pthread_join(producer, NULL);
    assert_int_equal(r.wrong, 0);
    mr_epic_info info;
    must(mr_epic_wait(m, "in", "june", MR_FOREVER, &info));
    assert_int_equal(info.done, TROUBLED);
    assert_int_equal(info.accepted, TROUBLED);
    must(mr_worker_stop(w, MR_FOREVER));
    check_each_once(m);
    must(mr_close(m));
    serving_end(&server, SIGKILL);
    store_remove(&store);
}

static void T20_connections_that_break_off_lose_and_double_nothing(void **state) {
    (void)state;
    struct serving server = { 0 };
    struct proxy proxy;
    serving_start(&server, "mem:", 0);
    proxy_start(&proxy, server.port, 0);
    struct restless r = { .url = proxy.url, .accepted = GATE };
    mr *steady = NULL, *m = NULL;
    must(mr_open(server.url, NULL, &steady));
    must(mr_open(proxy.url, NULL, &m));
    be_patient(steady);
    atomic_store(&proxy.loss_percent, 2); // of all pieces, and a piece carries many
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, push_restlessly, &r), 0);
    mr_worker *w = work(m, "in", count_once, NULL);
    pthread_join(producer, NULL);
    assert_int_equal(r.wrong, 0);
    must(mr_epic_wait(m, "in", "june", MR_FOREVER, NULL));
    must(mr_worker_stop(w, MR_FOREVER));
    check_each_once(steady);
    must(mr_close(m));
    must(mr_close(steady));
    proxy_stop(&proxy);
    serving_end(&server, SIGKILL);
}

static pid_t start_worker(const char *url) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl(MILLRACE, MILLRACE, "work", "s", "--at", url, "--jobs", "2", "--", "true", (char *)NULL);
    _exit(127);
}

static void end_worker(pid_t pid) {
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

// D1, D5, T12: workers come, are killed in the middle of an epic, and others do the rest.
static void D1_T12_workers_that_are_killed_cost_nothing_of_an_epic(void **state) {
    (void)state;
    enum { LENGTH = 120 };
    struct serving server = { 0 };
    serving_start(&server, "mem:", 0);
    mr *m = NULL;
    must(mr_open(server.url, NULL, &m));
    must(mr_stage_set(m, "s", "attempts", "1000"));
    must(mr_stage_set(m, "s", "backoff", "1ms"));
    mr_epic e = begin(m, "june", 16);
    pid_t workers[2] = { start_worker(server.url), start_worker(server.url) };
    for (int i = 1; i <= LENGTH; i++) {
        push_number(m, &e, &patient);
        if (i % 30)
            continue;
        end_worker(workers[i / 30 % 2]);
        workers[i / 30 % 2] = start_worker(server.url);
    }
    must(mr_epic_end(m, &e));
    mr_epic_info info;
    must(mr_epic_wait(m, "s", "june", MR_FOREVER, &info));
    assert_int_equal(info.done, LENGTH);
    assert_int_equal(look(m, "s").done, LENGTH);
    end_worker(workers[0]);
    end_worker(workers[1]);
    must(mr_close(m));
    serving_end(&server, SIGKILL);
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(T16_a_producer_restarts_and_continues),
        cmocka_unit_test(D4_the_expected_number_is_shown),
        cmocka_unit_test(D4_an_epic_is_read_only_as_fast_as_it_is_worked_off),
        cmocka_unit_test(D4_any_window_is_kept_to_also_in_bytes),
        cmocka_unit_test(D4_many_are_pushed_at_the_price_of_one_and_as_many_as_there_is_room_for),
        cmocka_unit_test(T9_an_epic_without_workers_waits_and_shows_why),
        cmocka_unit_test(D4_an_empty_epic_ends_at_once),
        cmocka_unit_test(R12_a_number_that_is_left_out_counts_and_has_no_job),
        cmocka_unit_test(R12_a_name_that_was_used_before_leaves_no_number_out),
        cmocka_unit_test(R12_an_epic_ends_once_and_whole),
        cmocka_unit_test(D4_an_epic_with_dead_jobs_counts_them_and_is_over),
        cmocka_unit_test(X_what_cannot_be_is_refused),
        cmocka_unit_test(D4_the_backlog_is_flat_for_any_length),
        cmocka_unit_test(D4_two_epics_share_the_workers),
        cmocka_unit_test(D4_a_second_epic_is_not_held_up_by_the_first),
        cmocka_unit_test(D4_a_wait_for_an_epic_ends_when_it_is_dropped),
        cmocka_unit_test(G4_a_job_follows_the_end_of_an_epic),
        cmocka_unit_test(G5_an_epic_is_cancelled_and_forgotten),
        cmocka_unit_test(D4_a_waiting_reader_continues_when_the_workers_have_caught_up),
    };
    const struct CMUnitTest troubles[] = {
        cmocka_unit_test(F15_F19_an_epic_is_what_it_was_when_the_store_is_opened_again),
        cmocka_unit_test(T16_T18_a_killed_server_and_a_restarted_producer_lose_and_double_nothing),
        cmocka_unit_test(T20_connections_that_break_off_lose_and_double_nothing),
        cmocka_unit_test(D1_T12_workers_that_are_killed_cost_nothing_of_an_epic),
    };
    int failed = run_here_and_there(tests, sizeof tests / sizeof *tests);
    return failed + cmocka_run_group_tests(troubles, NULL, NULL);
}
