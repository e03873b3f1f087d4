// What holds of streams in any real store: tests that those of each store include. `setup` of each
// store makes the fixture.
#ifndef TEST_SUPPORT_STREAM_SUITE_H
#define TEST_SUPPORT_STREAM_SUITE_H

#include "support/stream_support.h"

#include <pthread.h>
#include <stdatomic.h>

struct fixture {
    struct stream_store *store;
    struct stream *a, *b; // two streams of shard 0
    struct stream_state state;
};

static int teardown(void **state) {
    struct fixture *f = *state;
    f->a->impl->close(f->a);
    f->b->impl->close(f->b);
    f->store->close(f->store);
    free(f);
    return 0;
}

// --- appending and reading ------------------------------------------------------------------

static void batches_are_read_as_they_were_appended(void **state) {
    struct fixture *f = *state;
    for (size_t i = 0; i < 50; i++)
        EXPECT(append_next(f->a, &f->state, i * 97), STREAM_DONE);
    struct seen seen = read_all(f->b, true);
    assert_int_equal(seen.count, 50);
    assert_int_equal(seen.bodies, 97 * 49 * 50 / 2);
    assert_int_equal(seen.end, f->state.tail);
    assert_int_equal(read_all(f->b, false).bodies, 0);
    struct stream_state now;
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.tail, f->state.tail);
    assert_int_equal(now.epoch, f->state.epoch);
}

static void a_read_can_be_continued(void **state) {
    struct fixture *f = *state;
    for (size_t i = 0; i < 40; i++)
        EXPECT(append_next(f->a, &f->state, 1000), STREAM_DONE);
    struct seen seen = { 0 };
    uint64_t next = 0, reads = 0;
    while (next < f->state.tail) {
        EXPECT(f->b->impl->read(f->b, next, f->state.tail, 5000, true, batch_see, &seen, &next),
               STREAM_DONE);
        reads++;
    }
    assert_int_equal(seen.count, 40);
    assert_false(seen.wrong);
    assert_in_range(reads, 7, 10);
    // A range: 3 of them begin at or after 1032 and before 4 * 1032.
    seen = (struct seen){ 0 };
    EXPECT(f->b->impl->read(f->b, 1032, 4128, SIZE_MAX, false, batch_see, &seen, &next),
           STREAM_DONE);
    assert_int_equal(seen.count, 3);
    assert_int_equal(next, 4128);
}

static void positions_may_have_gaps(void **state) {
    struct fixture *f = *state;
    EXPECT(batch_append(f->a, f->state.epoch, 0, 5000, 100), STREAM_DONE);
    EXPECT(batch_append(f->a, f->state.epoch, 5132, 9000, 100), STREAM_DONE);
    struct stream_state now;
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.head, 5000); // the first batch
    struct buffer out = { 0 };
    EXPECT(f->b->impl->get(f->b, 5200, STREAM_BODIES, 0, 10, &out), MR_EGONE);
    EXPECT(f->b->impl->get(f->b, 9010, STREAM_BODIES, 5, 10, &out), 0);
    assert_int_equal(out.size, 10);
    assert_int_equal(out.data[0], (uint8_t)(9015 * 31 >> 3));
    buffer_clear(&out);
    EXPECT(f->b->impl->get(f->b, 9010, STREAM_BODIES, 85, 10, &out), 0);
    assert_int_equal(out.size, 5); // up to the end
    buffer_clear(&out);
    EXPECT(f->b->impl->get(f->b, 5001, STREAM_HEADS, 6, 100, &out), 0);
    assert_int_equal(out.size, 7);
    assert_memory_equal(out.data, "at 5000", 7);
    buffer_finish(&out);
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, 5132), STREAM_DONE);
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.head, 9000);
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, 9132), STREAM_DONE);
    EXPECT(f->b->impl->look(f->b, &now), STREAM_DONE);
    assert_int_equal(now.head, now.tail);
}

// --- owning ---------------------------------------------------------------------------------

// An owner that was paused wakes up and writes: the store itself refuses it.
static void expect_stale_owner_refused(struct fixture *f) {
    EXPECT(append_next(f->a, &f->state, 100), STREAM_DONE);
    EXPECT(f->a->impl->beat(f->a, f->state.epoch), STREAM_DONE);
    struct stream_state taken;
    EXPECT(f->b->impl->claim(f->b, f->state.epoch, &taken), STREAM_DONE);
    assert_int_equal(taken.epoch, f->state.epoch + 1);
    assert_int_equal(taken.tail, f->state.tail);
    EXPECT(append_next(f->a, &f->state, 100), STREAM_FENCED);
    EXPECT(f->a->impl->beat(f->a, f->state.epoch), STREAM_FENCED);
    EXPECT(f->a->impl->trim(f->a, f->state.epoch, f->state.tail), STREAM_FENCED);
    EXPECT(f->a->impl->release(f->a, f->state.epoch), STREAM_FENCED);
    EXPECT(f->a->impl->claim(f->a, f->state.epoch, &f->state), STREAM_FENCED);
    // Also when the new owner has trimmed everything: the stale batch's key would be free.
    EXPECT(f->b->impl->trim(f->b, taken.epoch, taken.tail), STREAM_DONE);
    EXPECT(append_next(f->a, &f->state, 100), STREAM_FENCED);
    EXPECT(batch_append(f->a, f->state.epoch, 0, 0, 100), STREAM_FENCED);
    assert_int_equal(read_all(f->b, false).count, 0);
    EXPECT(append_next(f->b, &taken, 10), STREAM_DONE);
}

static void an_owner_may_repeat_its_claim(void **state) {
    struct fixture *f = *state;
    struct stream_state again;
    EXPECT(f->a->impl->claim(f->a, 17, &again), STREAM_DONE); // as if 17's reply had been lost
    assert_int_equal(again.epoch, f->state.epoch + 1);
    EXPECT(f->b->impl->claim(f->b, f->state.epoch, &again), STREAM_FENCED);
}

enum { CLAIMANTS = 4, CLAIM_ROUNDS = 60 };

struct race {
    pthread_barrier_t start, end;
    struct stream *streams[CLAIMANTS];
    uint64_t expected;
    _Atomic uint64_t won;
    _Atomic int winners, others;
};

struct claimant {
    struct race *race;
    int number;
};

static void *claims_run(void *arg) {
    struct claimant *c = arg;
    struct race *race = c->race;
    struct stream *s = race->streams[c->number];
    for (int round = 0; round < CLAIM_ROUNDS; round++) {
        pthread_barrier_wait(&race->start);
        struct stream_state state;
        int result = s->impl->claim(s, race->expected, &state);
        if (result == STREAM_DONE) {
            atomic_fetch_add(&race->winners, 1);
            atomic_store(&race->won, state.epoch);
        } else if (result != STREAM_FENCED) {
            atomic_fetch_add(&race->others, 1);
        }
        pthread_barrier_wait(&race->end);
    }
    return NULL;
}

// Another stream claims between the rounds: the last winner of a round could claim again.
static void a_race_has_one_winner(void **state) {
    struct fixture *f = *state;
    struct race race = { .expected = f->state.epoch };
    pthread_barrier_init(&race.start, NULL, CLAIMANTS + 1);
    pthread_barrier_init(&race.end, NULL, CLAIMANTS + 1);
    struct claimant claimants[CLAIMANTS];
    pthread_t threads[CLAIMANTS];
    for (int i = 0; i < CLAIMANTS; i++) {
        race.streams[i] = stream_open(f->store, 0);
        claimants[i] = (struct claimant){ &race, i };
        pthread_create(&threads[i], NULL, claims_run, &claimants[i]);
    }
    for (int round = 0; round < CLAIM_ROUNDS; round++) {
        atomic_store(&race.winners, 0);
        pthread_barrier_wait(&race.start);
        pthread_barrier_wait(&race.end);
        assert_int_equal(race.others, 0);
        assert_int_equal(race.winners, 1);
        assert_int_equal(race.won, race.expected + 1);
        race.expected = claim_any(f->a).epoch;
    }
    for (int i = 0; i < CLAIMANTS; i++) {
        pthread_join(threads[i], NULL);
        race.streams[i]->impl->close(race.streams[i]);
    }
    pthread_barrier_destroy(&race.start);
    pthread_barrier_destroy(&race.end);
}

#endif
