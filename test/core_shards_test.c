// Several shards of one engine: where things belong, and limits that hold for all of them (rule
// 14), with those told that were held.
#include "fleet.h"

#include "base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

// ---- Routes -------------------------------------------------------------------------------------

static mr_bytes none(void) {
    return (mr_bytes){ 0 };
}

static void the_only_shard_is_the_first(void **state) {
    (void)state;
    assert_int_equal(route_of(1, mr_str("s"), mr_str("k"), none()), 0);
    assert_int_equal(route_of(1, mr_str("s"), none(), none()), 0);
    assert_int_equal(route_of_number(1, mr_str("epic"), 7), 0);
    assert_int_equal(route_of_id(1, 12345), 0);
}

static void a_channel_and_a_name_have_one_shard(void **state) {
    (void)state;
    assert_int_equal(route_of(3, mr_str("s"), none(), none()), ROUTE_ANY);
    assert_int_equal(route_of(3, mr_str("s"), mr_str("k"), mr_str("once")),
                     route_of(3, mr_str("s"), mr_str("k"), none()));
    assert_true(route_of(3, mr_str("s"), none(), mr_str("once")) < 3);
    for (uint64_t id = 1; id < 10; id++)
        assert_int_equal(route_of_id(3, id), (id - 1) % 3);
}

// What lies in stores was routed like this: these never change.
static void routes_are_as_fixed_as_the_format(void **state) {
    (void)state;
    assert_int_equal(route_of(64, mr_str("mail"), mr_str("ann"), none()), 54);
    assert_int_equal(route_of(64, mr_str("mail"), none(), mr_str("ann")), 62);
    assert_int_equal(route_of_number(64, mr_str("ann"), 1), 58);
    assert_int_equal(route_of_number(64, mr_str("ann"), 300), 31);
}

static void routes_spread_evenly(void **state) {
    (void)state;
    size_t keys[5] = { 0 }, numbers[5] = { 0 };
    for (int i = 0; i < 10000; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "%d", i);
        keys[route_of(5, mr_str("s"), mr_str(key), none())]++;
        numbers[route_of_number(5, mr_str("epic"), (uint64_t)i + 1)]++;
    }
    for (int i = 0; i < 5; i++) {
        assert_in_range(keys[i], 1850, 2150);
        assert_in_range(numbers[i], 1850, 2150);
    }
}

// ---- Epics --------------------------------------------------------------------------------------

static void rule12_an_epic_resumes_at_the_first_number_missing_everywhere(void **state) {
    (void)state;
    struct fleet *f = fleet_create(3, 1);
    for (uint64_t n = 1; n <= 3000; n++) {
        struct push p = {
            .stage = mr_str("s"), .source = mr_str("epic"), .number = n, .epic = true
        };
        if (n != 2500)
            assert_int_equal(fleet_push(f, route_of_number(3, p.source, n), &p), 0);
    }
    struct epic_seen all = { 0 }, more;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(core_epic_seen(f->shard[i].core, mr_str("epic"), &more), 0);
        epic_seen_add(&all, &more);
    }
    assert_int_equal(all.highest, 3000);
    assert_int_equal(epic_seen_resume(&all), 2500);
    assert_int_equal(core_epic_skip(f->shard[0].core, mr_str("epic"), 2500), 0);
    assert_int_equal(core_epic_seen(f->shard[0].core, mr_str("epic"), &more), 0);
    epic_seen_add(&all, &more);
    assert_int_equal(epic_seen_resume(&all), 3001);
    assert_int_equal(epic_seen_resume(&(struct epic_seen){ 0 }), 1);
    assert_int_equal(core_epic_seen(f->shard[0].core, mr_str("no"), &more), MR_EGONE);
    fleet_destroy(f);
}

static void D4_an_empty_epic_is_over_at_once(void **state) {
    (void)state;
    struct fleet *f = fleet_create(2, 1);
    struct epic_info info;
    assert_int_equal(core_epic_end(f->shard[1].core, mr_str("empty"), 0), 0);
    fleet_crash_all(f);
    fleet_sync(f, 1);
    assert_int_equal(core_epic_end(f->shard[1].core, mr_str("empty"), 0), 0);
    assert_int_equal(core_epic(f->shard[1].core, mr_str("empty"), &info), 0);
    assert_true(info.ended && info.over && info.total == 0);
    fleet_destroy(f);
}

// ---- Limits -------------------------------------------------------------------------------------

static void push(struct fleet *f, uint32_t shard, const char *stage, const char *body) {
    struct push p = { .stage = mr_str(stage), .body = mr_str(body) };
    assert_int_equal(fleet_push(f, shard, &p), 0);
}

static void done(struct fleet *f, size_t held) {
    struct fleet_held h = f->held[held];
    struct done d = { .id = h.id, .token = h.token };
    assert_int_equal(core_done(f->shard[h.shard].core, &d), 0);
    fleet_answered(f, held);
    fleet_check(f);
}

static void expect_held_by(struct fleet *f, uint32_t shard, const char *stage, const char *why) {
    struct stage_info info;
    assert_int_equal(core_look_stage(f->shard[shard].core, mr_str(stage), &info), 0);
    assert_string_equal(info.held_by, why);
}

static void rule14_concurrency_is_of_all_shards(void **state) {
    (void)state;
    struct fleet *f = fleet_create(3, 1);
    fleet_set(f, "s", "concurrency", "2");
    for (uint32_t i = 0; i < 3; i++) {
        push(f, i, "s", "job");
        fleet_wait(f, i, 0, "s");
        fleet_check(f);
    }
    assert_int_equal(f->held_count, 2);
    expect_held_by(f, 2, "s", "limit");
    done(f, 0);
    assert_int_equal(f->freed, 1);
    assert_int_equal(f->held_count, 1);
    assert_true(f->shard[2].to_wake);
    fleet_wake(f, 2);
    assert_int_equal(f->held_count, 2);
    fleet_check(f);
    done(f, 0);
    done(f, 0);
    assert_int_equal(f->freed, 1); // nobody is told who was not held
    fleet_destroy(f);
}

// A start that was claimed for a taker which then takes something else is given back.
static void rule14_what_is_claimed_and_not_used_is_given_back(void **state) {
    (void)state;
    struct fleet *f = fleet_create(2, 1);
    fleet_set(f, "first", "concurrency", "1");
    fleet_set(f, "second", "concurrency", "1");
    push(f, 0, "first", "a");
    fleet_wait(f, 0, 0, "first"); // holds the only place of the first stage
    fleet_wait(f, 0, 1, NULL);    // waits for either
    push(f, 0, "second", "b");
    assert_string_equal(f->held[1].body, "b");
    push(f, 0, "first", "c");
    push(f, 1, "second", "d");
    fleet_wait(f, 0, 1, NULL);
    fleet_wait(f, 1, 0, "second");
    assert_int_equal(core_pause(f->shard[0].core, mr_str("first")), 0);
    done(f, 0);
    done(f, 0);
    fleet_wake_all(f);
    fleet_check(f);
    assert_int_equal(f->held_count, 1);
    assert_string_equal(f->held[0].body, "d");
    assert_int_equal(core_resume(f->shard[0].core, mr_str("first")), 0);
    assert_string_equal(f->held[1].body, "c");
    fleet_check(f);
    fleet_destroy(f);
}

static void rule14_a_rate_is_of_all_shards(void **state) {
    (void)state;
    struct fleet *f = fleet_create(3, 1);
    size_t started = 0;
    fleet_set(f, "s", "rate", "10/s");
    for (int i = 0; i < 90; i++)
        push(f, (uint32_t)i % 3, "s", "job");
    for (int ms = 0; ms < 2000; ms += 10) {
        for (uint32_t i = 0; i < 3; i++)
            fleet_wait(f, i, 0, "s");
        while (f->held_count) {
            started++;
            done(f, 0);
        }
        fleet_pass(f, 10);
        (void)fleet_wake_all(f);
    }
    assert_in_range(started, 20, 21);
    fleet_destroy(f);
}

// Every shard has a backlog, and takers that wait.
static void fill_shards(struct fleet *f, int jobs) {
    for (uint32_t i = 0; i < f->shards; i++) {
        for (int n = 0; n < jobs; n++)
            push(f, i, "s", "job");
        fleet_wait(f, i, 0, "s");
        fleet_wait(f, i, 1, "s");
    }
}

// Ends everything that runs, and counts for whom; then somebody waits there again.
static size_t end_all(struct fleet *f, size_t *ended) {
    size_t count = f->held_count;
    for (size_t left = count; left; left--) {
        uint32_t shard = f->held[0].shard;
        ended[shard]++;
        done(f, 0);
        fleet_wait(f, shard, 0, "s");
        fleet_wait(f, shard, 1, "s");
        while (fleet_wake_all(f)) {
        }
    }
    fleet_check(f);
    return count;
}

static void rule14_a_freed_place_goes_round_the_shards(void **state) {
    (void)state;
    for (int limit = 1; limit <= 4; limit++) {
        struct fleet *f = fleet_create(3, 1);
        size_t ended[3] = { 0 }, sum = 0;
        char text[8];
        (void)snprintf(text, sizeof text, "%d", limit);
        fleet_set(f, "s", "concurrency", text);
        fill_shards(f, 60);
        while (sum < 60)
            sum += end_all(f, ended);
        for (int i = 0; i < 3; i++)
            assert_in_range(ended[i], sum / 3 - (size_t)limit, sum / 3 + (size_t)limit);
        fleet_destroy(f);
    }
}

static void rule14_a_rate_goes_round_the_shards(void **state) {
    (void)state;
    struct fleet *f = fleet_create(3, 1);
    size_t ended[3] = { 0 }, sum = 0;
    fleet_set(f, "s", "rate", "100/s");
    fill_shards(f, 60);
    for (int ms = 0; ms < 1000; ms++) {
        sum += end_all(f, ended);
        fleet_pass(f, 1);
    }
    assert_in_range(sum, 99, 110);
    for (int i = 0; i < 3; i++)
        assert_in_range(ended[i], sum / 3 - 10, sum / 3 + 10); // the first had what is caught up
    fleet_destroy(f);
}

// A shard whose turn it is and that has nothing to do any more passes it on.
static void rule14_a_turn_that_is_not_wanted_is_passed_on(void **state) {
    (void)state;
    struct fleet *f = fleet_create(3, 1);
    fleet_set(f, "s", "concurrency", "1");
    fill_shards(f, 1);
    assert_int_equal(f->held_count, 1);
    assert_int_equal(f->held[0].shard, 0);
    push(f, 0, "s", "job");
    assert_int_equal(core_pause(f->shard[1].core, mr_str("s")), 0); // it stood before the others
    done(f, 0);
    while (fleet_wake_all(f)) {
    }
    assert_int_equal(f->held_count, 1);
    assert_int_equal(f->held[0].shard, 2);
    core_take_leave(f->shard[0].core, &f->shard[0].takers[1]); // its last taker
    f->shard[0].waits[1] = false;
    assert_int_equal(core_resume(f->shard[1].core, mr_str("s")), 0);
    done(f, 0);
    while (fleet_wake_all(f)) {
    }
    assert_int_equal(f->held_count, 1);
    assert_int_equal(f->held[0].shard, 1);
    fleet_check(f);
    fleet_destroy(f);
}

static void rule14_max_jobs_is_of_all_shards(void **state) {
    (void)state;
    struct fleet *f = fleet_create(2, 1);
    fleet_set(f, "s", "max-jobs", "3");
    push(f, 0, "s", "a");
    push(f, 0, "s", "b");
    push(f, 1, "s", "c");
    struct push p = { .stage = mr_str("s"), .body = mr_str("d") };
    assert_int_equal(fleet_push(f, 0, &p), MR_EFULL);
    assert_int_equal(fleet_push(f, 1, &p), MR_EFULL);
    fleet_check(f);
    p.pusher = &f->shard[1].pushers[0];
    assert_int_equal(fleet_push(f, 1, &p), MR_EAGAIN);
    fleet_wait(f, 0, 0, "s");
    done(f, 0); // frees a place in shard 0, for whom shard 1 has been waiting
    assert_false(f->shard[1].has_room[0]);
    fleet_wake(f, 1);
    assert_true(f->shard[1].has_room[0]);
    fleet_check(f);
    struct push other = { .stage = mr_str("s"), .body = mr_str("e") };
    assert_int_equal(fleet_push(f, 0, &other), MR_EFULL); // it is kept
    assert_int_equal(fleet_push(f, 1, &p), 0);
    fleet_check(f);
    assert_int_equal(fleet_push(f, 0, &other), MR_EFULL);
    fleet_destroy(f);
}

// Somebody waits for room in every shard, for ever.
static void push_again(struct fleet *f, size_t *pushed) {
    for (uint32_t i = 0; i < f->shards; i++)
        for (int n = 0; n < 2; n++) {
            struct pusher *waiting = &f->shard[i].pushers[n];
            struct push p = { .stage = mr_str("s"), .body = mr_str("job"), .pusher = waiting };
            if (waiting->stage && !f->shard[i].has_room[n])
                continue;
            f->shard[i].has_room[n] = false;
            while (fleet_push(f, i, &p) == 0) {
                core_push_leave(f->shard[i].core, waiting);
                pushed[i]++;
            }
        }
}

static void rule14_room_goes_round_the_shards(void **state) {
    (void)state;
    for (int limit = 1; limit <= 4; limit++) {
        struct fleet *f = fleet_create(3, 1);
        size_t ended[3] = { 0 }, pushed[3] = { 0 }, sum = 0;
        char text[8];
        (void)snprintf(text, sizeof text, "%d", limit);
        fleet_set(f, "s", "max-jobs", text);
        for (uint32_t i = 0; i < 3; i++)
            fleet_wait(f, i, 0, "s");
        while (sum < 60) {
            push_again(f, pushed);
            sum += end_all(f, ended);
            assert_true(fleet_sum(f, "s", JOB_WAITING) <= (uint64_t)limit);
        }
        for (int i = 0; i < 3; i++)
            assert_in_range(pushed[i], sum / 3 - 2 * (size_t)limit, sum / 3 + 2 * (size_t)limit);
        fleet_destroy(f);
    }
}

static void rule14_a_place_kept_for_a_pusher_that_leaves_is_free_again(void **state) {
    (void)state;
    struct fleet *f = fleet_create(2, 1);
    fleet_set(f, "s", "max-jobs", "1");
    push(f, 0, "s", "a");
    struct push p = { .stage = mr_str("s"), .body = mr_str("b") };
    p.pusher = &f->shard[1].pushers[0];
    assert_int_equal(fleet_push(f, 1, &p), MR_EAGAIN);
    p.pusher = &f->shard[0].pushers[0];
    assert_int_equal(fleet_push(f, 0, &p), MR_EAGAIN);
    fleet_wait(f, 0, 0, "s");
    done(f, 0);
    assert_false(f->shard[0].has_room[0]); // it is the other one's turn
    fleet_wake_all(f);
    assert_true(f->shard[1].has_room[0]);
    core_push_leave(f->shard[1].core, &f->shard[1].pushers[0]);
    fleet_wake_all(f);
    assert_true(f->shard[0].has_room[0]);
    fleet_check(f);
    fleet_destroy(f);
}

static void rule13_a_high_mark_is_of_all_shards(void **state) {
    (void)state;
    struct fleet *f = fleet_create(2, 1);
    fleet_set(f, "down", "high-mark", "4");
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(core_learn_edge(f->shard[i].core, mr_str("up"), mr_str("down")), 0);
    push(f, 0, "up", "held");
    for (int i = 0; i < 4; i++)
        push(f, i % 2, "down", "job");
    fleet_wait(f, 0, 0, "up");
    assert_int_equal(f->held_count, 0);
    expect_held_by(f, 0, "up", "downstream:down");
    fleet_wait(f, 1, 0, "down"); // depth 3
    fleet_wake_all(f);
    assert_int_equal(f->held_count, 1);
    fleet_wait(f, 1, 1, "down"); // depth 2: down to the low mark, by the other shard
    assert_true(f->shard[0].to_wake);
    fleet_wake_all(f);
    assert_int_equal(f->held_count, 3);
    assert_string_equal(f->held[2].body, "held");
    fleet_check(f);
    fleet_destroy(f);
}

static void rule14_the_end_of_a_shard_frees_what_counted_there(void **state) {
    (void)state;
    struct fleet *f = fleet_create(2, 1);
    fleet_set(f, "s", "concurrency", "1");
    push(f, 0, "s", "a");
    push(f, 1, "s", "b");
    fleet_sync(f, 0);
    fleet_wait(f, 0, 0, "s");
    fleet_wait(f, 1, 0, "s");
    assert_int_equal(f->held_count, 1);
    fleet_crash(f, 0); // what ran there does not any more
    fleet_wake_all(f);
    assert_int_equal(f->held_count, 1);
    assert_int_equal(f->held[0].shard, 1);
    fleet_check(f);
    fleet_destroy(f);
}

static void policies_follow_the_first_shard(void **state) {
    (void)state;
    struct fleet *f = fleet_create(2, 1);
    struct stage_info info;
    struct policy plain = policy_default();
    struct core *first = f->shard[0].core, *second = f->shard[1].core;
    assert_int_equal(core_set(first, mr_str("s"), mr_str("concurrency"), mr_str("7")), 0);
    assert_int_equal(core_pause(first, mr_str("s")), 0);
    assert_int_equal(core_look_stage(first, mr_str("s"), &info), 0);
    assert_int_equal(core_follow(second, info.name, info.policy, info.paused, info.draining), 0);
    fleet_sync(f, 1);
    fleet_crash(f, 1);
    second = f->shard[1].core;
    assert_int_equal(core_look_stage(second, mr_str("s"), &info), 0);
    assert_int_equal(info.policy->concurrency, 7);
    assert_true(info.paused && !info.draining);
    size_t count = f->shard[1].count;
    assert_int_equal(core_follow(second, mr_str("s"), info.policy, true, false), 0);
    assert_int_equal(core_follow(second, mr_str("new"), &plain, false, false), 0);
    assert_int_equal(f->shard[1].count, count); // nothing to say
    assert_int_equal(core_look_stage(second, mr_str("new"), &info), MR_EGONE);
    assert_int_equal(core_follow(second, mr_str("s"), &plain, false, true), 0);
    assert_int_equal(core_look_stage(second, mr_str("s"), &info), 0);
    assert_true(!info.paused && info.draining && !info.policy->concurrency);
    fleet_destroy(f);
}

// ---- Threads ------------------------------------------------------------------------------------

enum { THREADS = 4, STARTS = 20000, LIMIT = 2 };

static struct ledger_stage shared;
static sem_t told[THREADS];
static _Atomic uint64_t running, most;

static void tell_next(void) {
    uint64_t next = shared.running < LIMIT ? ledger_next(&shared.starts) : 0;
    if (next)
        (void)sem_post(&told[__builtin_ctzll(next)]);
}

static bool claim(uint32_t shard, struct ledger_share *share) {
    if (!ledger_is_next(&shared.starts, shard) ||
        !ledger_claim(&shared.running, &share->running, 1, LIMIT))
        return false;
    ledger_took_turn(&shared.starts, shard);
    ledger_leave_line(&shared.starts, shard);
    tell_next();
    return true;
}

static void start(uint32_t shard, struct ledger_share *share) {
    for (;;) {
        for (int look = 0; look < 2; look++) {
            if (claim(shard, share))
                return;
            ledger_join_line(&shared.starts, shard);
        }
        (void)sem_wait(&told[shard]); // for ever, should nobody tell
    }
}

static void *shard_thread(void *arg) {
    uint32_t shard = (uint32_t)(uintptr_t)arg;
    struct ledger_share share = { 0 };
    for (int i = 0; i < STARTS; i++) {
        start(shard, &share);
        uint64_t now = atomic_fetch_add(&running, 1) + 1, before = atomic_load(&most);
        while (now > before && !atomic_compare_exchange_weak(&most, &before, now)) {
        }
        atomic_fetch_sub(&running, 1);
        if (ledger_tell(&shared, &share, &(struct ledger_share){ 0 }).running)
            tell_next();
    }
    return NULL;
}

static void rule14_threads_never_exceed_a_limit_and_all_are_told(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(sem_init(&told[i], 0, 0), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, shard_thread, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_in_range(most, 1, LIMIT);
    assert_int_equal(shared.running, 0);
}

static void *depth_thread(void *arg) {
    struct ledger_stage *l = arg;
    struct ledger_share share = { 0 };
    for (uint64_t i = 0; i < STARTS; i++) {
        (void)ledger_tell(l, &share, &(struct ledger_share){ .depth = i % 7 });
        (void)ledger_turn(l, 8);
    }
    (void)ledger_tell(l, &share, &(struct ledger_share){ 0 });
    (void)ledger_turn(l, 8);
    return NULL;
}

static void rule13_threads_leave_no_mark_behind(void **state) {
    (void)state;
    struct ledger_stage l = { 0 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, depth_thread, &l), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(l.depth, 0);
    assert_false(l.over);
}

// ---- Links --------------------------------------------------------------------------------------

// The cleaner puts an old entry behind younger ones; its place in the outbox stays the first.
static void F15_an_outbox_is_in_order_after_cleaning_and_replay(void **state) {
    (void)state;
    struct fleet *f = fleet_create(2, 1);
    uint64_t numbers[3], after = 0;
    struct link_entry e;
    push(f, 0, "a", "first");
    for (int i = 0; i < 3; i++) {
        struct emit emit = { .stage = mr_str("b"), .key = mr_str("k0"), .body = mr_str("x") };
        while (route_of(2, emit.stage, emit.key, none()) == 0)
            emit.key = mr_str("k1");
        fleet_wait(f, 0, 0, "a");
        struct done d = {
            .id = f->held[0].id, .token = f->held[0].token, .emits = &emit, .emit_count = 1
        };
        push(f, 0, "a", "next");
        assert_int_equal(core_done(f->shard[0].core, &d), 0);
        fleet_answered(f, 0);
    }
    for (int i = 0; i < 3; i++, after = e.number) {
        assert_true(core_link_next(f->shard[0].core, 1, after, &e));
        numbers[i] = e.number;
    }
    fleet_sync(f, 0);
    fleet_clean(f, 0, f->shard[0].count / 2);
    fleet_crash(f, 0);
    fleet_check(f);
    after = 0;
    for (int i = 0; i < 3; i++, after = e.number) {
        assert_true(core_link_next(f->shard[0].core, 1, after, &e));
        assert_int_equal(e.number, numbers[i]);
        assert_int_equal(e.after, after);
    }
    fleet_destroy(f);
}

// From its arrival on an emit counts where it is, and not where it is waiting for an
// acknowledgement: so a place in a stage is enough for it.
static void rule14_an_emit_counts_once_on_its_way(void **state) {
    (void)state;
    struct fleet *f = fleet_create(2, 1);
    struct emit emit = { .stage = mr_str("b"), .key = mr_str("k0"), .body = mr_str("x") };
    while (route_of(2, emit.stage, emit.key, none()) == 0)
        emit.key = mr_str("k1");
    fleet_set(f, "b", "max-jobs", "2");
    push(f, 0, "a", "first");
    fleet_wait(f, 0, 0, "a");
    struct done d = {
        .id = f->held[0].id, .token = f->held[0].token, .emits = &emit, .emit_count = 1
    };
    assert_int_equal(core_done(f->shard[0].core, &d), 0);
    fleet_answered(f, 0);
    fleet_sync(f, 0);
    assert_true(fleet_send(f, 0, 1));
    fleet_deliver(f, 0, true);
    fleet_deliver(f, 0, false); // once more
    fleet_check(f);
    assert_int_equal(core_links(f->shard[0].core), 1); // still to be acknowledged
    push(f, 0, "b", "other");
    struct push more = { .stage = mr_str("b"), .body = mr_str("too many") };
    assert_int_equal(fleet_push(f, 0, &more), MR_EFULL);
    while (fleet_carry_all(f)) {
    }
    assert_int_equal(core_links(f->shard[0].core), 0);
    assert_int_equal(fleet_push(f, 0, &more), MR_EFULL);
    fleet_check(f);
    fleet_destroy(f);
}

// ---- F51 ----------------------------------------------------------------------------------------

// Says it until there is memory: what was refused has changed nothing.
#define SAY(f, call)                                                                               \
    do {                                                                                           \
        int err_ = MR_ENOMEM;                                                                      \
        while ((err_ = (call)) == MR_ENOMEM)                                                       \
            fleet_check(f);                                                                        \
        assert_int_equal(err_, 0);                                                                 \
        fleet_check(f);                                                                            \
    } while (0)

static int push_one(struct fleet *f, const char *stage) {
    struct push p = { .stage = mr_str(stage), .body = mr_str("job") };
    return fleet_push(f, 0, &p);
}

static int emit_all(struct fleet *f, const char *long_key) {
    struct emit emits[] = {
        { .stage = mr_str("b"), .key = mr_str(long_key), .body = mr_str("one") },
        { .stage = mr_str("b"), .key = mr_str("k1"), .once = mr_str("name"), .delay_ms = 5 },
        { .stage = mr_str("c"), .key = mr_str("k2"), .deadline_ms = 50, .attempts = 2 },
        { .stage = mr_str("b"), .key = mr_str("k3"), .body = mr_str("four") },
    };
    struct done d = {
        .id = f->held[0].id, .token = f->held[0].token, .emits = emits, .emit_count = 4
    };
    return core_done(f->shard[0].core, &d);
}

// What is refused for want of memory is a letter lost.
static int carry(struct fleet *f) {
    while (fleet_carry_all(f)) {
    }
    return 0;
}

static int reopen(struct fleet *f, uint32_t shard) {
    int err = MR_ENOMEM;
    while (err == MR_ENOMEM) {
        core_destroy(f->shard[shard].core);
        err = fleet_open(f, shard);
    }
    return err;
}

static void story(struct fleet *f) {
    char long_key[30];
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = 0;
    SAY(f, push_one(f, "a"));
    while (!f->held_count)
        fleet_wait(f, 0, 0, "a");
    SAY(f, emit_all(f, long_key));
    fleet_answered(f, 0);
    fleet_sync(f, 0);
    SAY(f, carry(f));
    SAY(f, reopen(f, 0));
    SAY(f, reopen(f, 1));
    SAY(f, carry(f));
    assert_int_equal(core_links(f->shard[0].core), 0);
    uint64_t waiting = fleet_sum(f, "b", JOB_WAITING) + fleet_sum(f, "b", JOB_DELAYED) +
                       fleet_sum(f, "c", JOB_WAITING);
    assert_int_equal(waiting, 4);
}

static void F51_each_allocation_fails_once_between_shards(void **state) {
    (void)state;
    long left = -1;
    for (long n = 0; left < 0; n++) {
        struct fleet *f = fleet_create(2, 1);
        (void)mem_fail_after(n);
        story(f);
        left = mem_fail_after(-1);
        fleet_destroy(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_only_shard_is_the_first),
        cmocka_unit_test(a_channel_and_a_name_have_one_shard),
        cmocka_unit_test(routes_are_as_fixed_as_the_format),
        cmocka_unit_test(routes_spread_evenly),
        cmocka_unit_test(rule12_an_epic_resumes_at_the_first_number_missing_everywhere),
        cmocka_unit_test(D4_an_empty_epic_is_over_at_once),
        cmocka_unit_test(rule14_concurrency_is_of_all_shards),
        cmocka_unit_test(rule14_what_is_claimed_and_not_used_is_given_back),
        cmocka_unit_test(rule14_a_rate_is_of_all_shards),
        cmocka_unit_test(rule14_a_freed_place_goes_round_the_shards),
        cmocka_unit_test(rule14_a_rate_goes_round_the_shards),
        cmocka_unit_test(rule14_a_turn_that_is_not_wanted_is_passed_on),
        cmocka_unit_test(rule14_max_jobs_is_of_all_shards),
        cmocka_unit_test(rule14_room_goes_round_the_shards),
        cmocka_unit_test(rule14_a_place_kept_for_a_pusher_that_leaves_is_free_again),
        cmocka_unit_test(rule13_a_high_mark_is_of_all_shards),
        cmocka_unit_test(rule14_the_end_of_a_shard_frees_what_counted_there),
        cmocka_unit_test(policies_follow_the_first_shard),
        cmocka_unit_test(rule14_threads_never_exceed_a_limit_and_all_are_told),
        cmocka_unit_test(rule13_threads_leave_no_mark_behind),
        cmocka_unit_test(F15_an_outbox_is_in_order_after_cleaning_and_replay),
        cmocka_unit_test(rule14_an_emit_counts_once_on_its_way),
        cmocka_unit_test(F51_each_allocation_fails_once_between_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
