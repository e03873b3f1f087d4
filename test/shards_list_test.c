// Lists of jobs over several shards: one order, and pages that follow one another.
#include "dialogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 3 };

static int setup(void **state) {
    dialogue_shards = SHARDS;
    return dialogue_setup(state);
}

#define SHARDED(test)                                                                              \
    { #test, test, setup, dialogue_teardown, NULL }

static void end_job(struct dialogue *d, const char *how, struct job job, const char *words) {
    sayf(d, 0, "%s %s %s %s", how, job.id, job.token, words);
    hear(d, 0, "+OK");
}

// Pages follow one another over all shards: every job is on one of them.
static void A3_pages_go_through_all_shards(void **state) {
    struct dialogue *d = *state;
    static const char *const asked[] = { "JOBS s STATUS waiting", "DEAD s", "DEAD", "JOBS s" };
    for (int i = 0; i < 10; i++) {
        sayf(d, 1, "PUSH s x KEY k%d", i);
        hear(d, 1, "\"*\"");
        push(d, "s y");
    }
    for (int i = 0; i < 7; i++)
        end_job(d, "FAIL", take(d, 0, "s"), "no NEVER");
    static const int expected[] = { 13, 7, 7, 20 };
    for (size_t n = 0; n < sizeof asked / sizeof *asked; n++) {
        char from[64] = "";
        uint64_t seen[32];
        int count = 0;
        while (true) {
            sayf(d, 0, "%s COUNT 3%s", asked[n], from);
            const char *heard = hear_any(d, 0);
            if (strcmp(heard, "[]") == 0)
                break;
            for (const char *at = heard; (at = strstr(at, "\"id\" \"")); at += 6) {
                uint64_t id = strtoull(at + 6, NULL, 10);
                for (int i = 0; i < count; i++)
                    assert_true(seen[i] != id);
                assert_true(count < 32);
                seen[count++] = id;
            }
            snprintf(from, sizeof from, " FROM %llu", (unsigned long long)seen[count - 1]);
        }
        assert_int_equal(count, expected[n]);
    }
}

// Ids and ages of a list's rows.
struct rows {
    uint64_t ids[64];
    long ages[64];
    int count;
};

static struct rows list_of(struct dialogue *d, const char *words, uint64_t from, int most) {
    struct rows l = { 0 };
    if (from)
        sayf(d, 0, "%s COUNT %d FROM %llu", words, most, (unsigned long long)from);
    else
        sayf(d, 0, "%s COUNT %d", words, most);
    for (const char *at = hear_any(d, 0); (at = strstr(at, "\"id\" \"")); l.count++) {
        l.ids[l.count] = strtoull(at + 6, NULL, 10);
        at = strstr(at, "\"age-ms\" :");
        l.ages[l.count] = strtol(at + 10, NULL, 10);
    }
    return l;
}

static void expect_same(const struct rows *whole, int from, const struct rows *part, int count) {
    assert_int_equal(part->count, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(whole->ids[from + i], part->ids[i]);
}

// A3: whatever the pages, and whether the server remembers where they ended: what is asked for
// behind any row is what stands behind it.
static void expect_pages(struct dialogue *d, const char *words, int count) {
    struct rows whole = list_of(d, words, 0, 64);
    assert_int_equal(whole.count, count);
    for (int size = 1; size <= count; size++)
        for (int at = 0; at <= count; at += size) {
            struct rows page = list_of(d, words, at ? whole.ids[at - 1] : 0, size);
            expect_same(&whole, at, &page, count - at < size ? count - at : size);
        }
    for (int at = count; at > 0; at--) {
        struct rows rest = list_of(d, words, whole.ids[at - 1], 64);
        expect_same(&whole, at, &rest, count - at);
    }
}

static void expect_oldest_first(struct dialogue *d, const char *words, int count) {
    struct rows l = list_of(d, words, 0, 64);
    assert_int_equal(l.count, count);
    for (int i = 1; i < count; i++)
        assert_true(l.ages[i - 1] >= l.ages[i]);
}

// One list of all shards, and every channel in its order.
static void A3_lists_have_one_order_over_all_shards(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 24; i++) {
        char key[8] = "";
        if (i % 3 == 0)
            snprintf(key, sizeof key, "k%d", i);
        sayf(d, 1, "PUSH s x KEY '%s'", key);
        hear(d, 1, "\"*\"");
        push(d, "s later DELAY 1000");
        pass_ms(d, 3);
    }
    expect_oldest_first(d, "JOBS s STATUS waiting", 24);
    expect_oldest_first(d, "JOBS s STATUS delayed", 24);
    for (int i = 0; i < 18; i++) {
        struct job job = take(d, 0, "s");
        if (i < 14)
            end_job(d, i < 8 ? "FAIL" : "DONE", job, i < 8 ? "no NEVER" : "");
        pass_ms(d, 5);
    }
    static const struct {
        const char *words;
        int count;
    } lists[] = { { "JOBS s STATUS waiting", 6 },
                  { "JOBS s STATUS delayed", 24 },
                  { "JOBS s STATUS done", 6 },
                  { "JOBS s STATUS running", 4 },
                  { "JOBS s", 48 },
                  { "DEAD s", 8 },
                  { "DEAD", 8 } };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        expect_pages(d, lists[i].words, lists[i].count);
    expect_oldest_first(d, "DEAD s", 8);
    expect_oldest_first(d, "JOBS s STATUS done", 6);
    for (int i = 0; i < 30; i++) {
        sayf(d, 1, "PUSH t x KEY k%d", i % 7); // deep channels: a shard's order is not by age
        hear(d, 1, "\"*\"");
        pass_ms(d, 1);
    }
    expect_pages(d, "JOBS t STATUS waiting", 30);
}

// A page goes on although jobs of other shards, up to which it went, have gone on; not without
// the job that it is to go on behind.
static void A3_a_page_goes_on_when_others_have_moved(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 12; i++) {
        sayf(d, 1, "PUSH s x KEY k%d", i);
        hear(d, 1, "\"*\"");
        pass_ms(d, 1);
    }
    struct rows whole = list_of(d, "JOBS s STATUS waiting", 0, 64);
    struct rows page = list_of(d, "JOBS s STATUS waiting", 0, 6);
    expect_same(&whole, 0, &page, 6);
    for (int i = 0; i < 5; i++) {
        sayf(d, 1, "CANCEL %llu", (unsigned long long)whole.ids[i]);
        hear(d, 1, ":1");
    }
    page = list_of(d, "JOBS s STATUS waiting", whole.ids[5], 64);
    expect_same(&whole, 6, &page, 6);
    sayf(d, 1, "CANCEL %llu", (unsigned long long)whole.ids[5]);
    hear(d, 1, ":1");
    sayf(d, 0, "JOBS s STATUS waiting FROM %llu", (unsigned long long)whole.ids[5]);
    hear(d, 0, "-GONE *begin again");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SHARDED(A3_pages_go_through_all_shards),
        SHARDED(A3_lists_have_one_order_over_all_shards),
        SHARDED(A3_a_page_goes_on_when_others_have_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
