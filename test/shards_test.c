// A server over several shards: it answers as one over one shard does, whichever shard knows.
#include "dialogue.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 3, TEXT = 1 << 16 };

static int setup(void **state) {
    dialogue_shards = SHARDS;
    return dialogue_setup(state);
}

#define SHARDED(test)                                                                              \
    { #test, test, setup, dialogue_teardown, NULL }

// Keys of the stage that belong to that shard, the first being 0; until the next call.
static const char *nth_key_in(const char *stage, uint32_t shard, int nth) {
    static char key[16];
    for (int i = 0;; i++) {
        snprintf(key, sizeof key, "k%d", i);
        if (route_of(SHARDS, mr_str(stage), mr_str(key), (mr_bytes){ 0 }) == shard && !nth--)
            return key;
    }
}

static const char *key_in(const char *stage, uint32_t shard) {
    return nth_key_in(stage, shard, 0);
}

static void push_to(struct dialogue *d, uint32_t shard, const char *words) {
    sayf(d, 1, "PUSH s %s KEY %s", words, key_in("s", shard));
    hear(d, 1, "\"*\"");
}

static void push_to_all(struct dialogue *d, const char *words) {
    for (uint32_t i = 0; i < SHARDS; i++)
        push_to(d, i, words);
}

static uint32_t shard_of(const struct job *job) {
    return route_of_id(SHARDS, strtoull(job->id, NULL, 10));
}

static void end_job(struct dialogue *d, const char *how, struct job job, const char *words) {
    sayf(d, 0, "%s %s %s %s", how, job.id, job.token, words);
    hear(d, 0, "+OK");
}

// ---- The same as one ----------------------------------------------------------------------------

// What has happened in both: three stages, many keys, deaths, waits, an epic, a pause.
static void tell(struct dialogue *d) {
    for (int i = 0; i < 30; i++) {
        sayf(d, 1, "PUSH s %d KEY k%d ATTEMPTS 1", i, i % (1 + i % 7));
        hear(d, 1, "\"*\"");
        sayf(d, 1, "PUSH t %d EPIC e %d", i, i + 1);
        hear(d, 1, "\"*\"");
    }
    push(d, "u later DELAY 1000");
    for (int i = 1; i <= 6; i++) { // an epic each, first into one stage, then into another
        sayf(d, 1, "PUSH w x KEY k%d EPIC f%d 1", i, i);
        hear(d, 1, "\"*\"");
        sayf(d, 1, "PUSH v x KEY k0 EPIC f%d 2", i);
        hear(d, 1, "\"*\"");
    }
    pass_ms(d, 40);
    for (int i = 0; i < 10; i++)
        end_job(d, "FAIL", take(d, 0, "t"), i % 2 ? "no NEVER" : "no RETRY 0");
    for (int i = 0; i < 30; i++) {
        struct job job = take(d, 0, "s");
        bool fails = strcmp(job.key, "k1") == 0;
        end_job(d, fails ? "FAIL" : "DONE", job, fails ? "broken NEVER" : "RESULT r");
    }
    ask(d, 1, "EPIC e SKIP 31", "[*]");
    ask(d, 1, "PAUSE u", "+OK");
    pass_ms(d, 7);
}

// Rows of a reply, sorted; ids and rates are left out: they are each engine's own.
static int compare_rows(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void cut_value(char *row, const char *name) {
    for (char *at = row; (at = strstr(at, name));) {
        at += strlen(name);
        size_t size = strcspn(at, " ");
        memmove(at, at + size, strlen(at + size) + 1);
    }
}

static void sort_rows(const char *reply, char *out) {
    static char text[TEXT];
    char *rows[256], *row = NULL;
    size_t count = 0, depth = 0, used = 0;
    snprintf(text, sizeof text, "%s", reply);
    for (char *at = text; *at; at++) {
        depth += *at == '[';
        if (*at == '[' && depth == 2)
            row = at;
        if (*at == ']' && depth == 2) {
            *at = 0;
            rows[count++] = row;
        }
        depth -= *at == ']' || (!*at && depth == 2);
    }
    for (size_t i = 0; i < count; i++) {
        cut_value(rows[i], "\"id\" ");
        cut_value(rows[i], "-per-s\" ");
    }
    qsort(rows, count, sizeof *rows, compare_rows);
    *out = 0;
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(out + used, TEXT - used, "%s\n", rows[i]);
    if (!count)
        snprintf(out, TEXT, "%s", reply);
}

static void looks_equal(struct dialogue *one, struct dialogue *many, const char *words) {
    static char a[TEXT], b[TEXT];
    say(one, 0, words);
    sort_rows(hear_any(one, 0), a);
    say(many, 0, words);
    sort_rows(hear_any(many, 0), b);
    if (strcmp(a, b) != 0)
        fail_msg("%s is\n%s\nof one shard, and\n%s\nof %d", words, a, b, SHARDS);
}

// A10, A3: counts are added, lists put together; whatever is asked, the answer is that of one.
static void A10_looks_are_those_of_one_shard(void **state) {
    struct dialogue *many = *state;
    dialogue_shards = 1;
    struct dialogue *one = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
    tell(one);
    tell(many);
    static const char *const asked[] = {
        "STAGES",
        "STAGES NAME t",
        "CHANNELS s TOP 20",
        "EPIC e",
        "EPICS",
        "DEAD s",
        "DEAD t",
        "DEAD",
        "JOBS s",
        "JOBS u",
        "JOBS t STATUS waiting",
        "JOBS s KEY k1",
        "JOBS v KEY k1", // of which not every shard knows
        "JOBS v KEY k2 STATUS dead",
        "JOBS v KEY k3",
        "WHY s",
        "WHY t",
        "WHY u",
        "STAGE s",
        "WORKERS",
        "RETRY STAGE s DEAD DRY",
        "RETRY STAGE v DEAD KEY k1 DRY",
        "DROP STAGE v WAITING KEY k2 DRY",
        "DROP STAGE v WAITING KEY k3 DRY",
        "DROP STAGE nowhere WAITING KEY k3 DRY",
        "JOBS nowhere KEY k3",
        "CHANNELS nowhere",
        "EPIC nobody",
        "DEAD nowhere",
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        looks_equal(one, many, asked[i]);
    dialogue_destroy(one);
}

// The deepest of all come first, from whichever shard.
static void CHANNELS_TOP_is_of_all_shards(void **state) {
    struct dialogue *d = *state;
    for (uint32_t i = 0; i < SHARDS; i++)
        for (uint32_t n = 0; n <= 2 * i; n++)
            push_to(d, i, "x");
    say(d, 0, "CHANNELS s TOP 2");
    const char *heard = hear_any(d, 0);
    char deepest[64], next[64];
    snprintf(deepest, sizeof deepest, "[[\"key\" \"%s\"", key_in("s", 2));
    assert_ptr_equal(strstr(heard, deepest), heard);
    snprintf(next, sizeof next, "] [\"key\" \"%s\" \"state\" \"ready\" \"depth\" :3",
             key_in("s", 1));
    assert_non_null(strstr(heard, next));
}

// ---- Working ------------------------------------------------------------------------------------

// D2: a TAKE that waits everywhere is answered once, and waits nowhere after that.
static void D2_a_take_waits_in_all_shards_with_one_claim(void **state) {
    struct dialogue *d = *state;
    for (uint32_t i = 0; i < SHARDS; i++) {
        say(d, 0, "TAKE s WAIT -1");
        hear_nothing(d, 0);
        push_to(d, i, "a");
        struct job job = taken(d, 0);
        push_to(d, (i + 1) % SHARDS, "b"); // nobody waits for it
        hear_nothing(d, 0);
        end_job(d, "DONE", job, "");
        end_job(d, "DONE", take(d, 0, "s"), "");
    }
    say(d, 0, "TAKE s COUNT 9 WAIT -1");
    ask(d, 1, "PUSHMANY s ITEMS '' a '' b '' c", "[*]");
    hear(d, 0, "[[* \"a\" *]]");
    ask(d, 0, "TAKE s COUNT 9 WAIT -1", "[[*] [*]]"); // from more than one
}

// Rule 17: stages named first are served first, whichever shard has their work.
static void stages_named_first_are_served_first(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 6; i++) {
        push(d, "low x");
        push(d, "high y");
    }
    for (int i = 0; i < 12; i++)
        assert_string_equal(take(d, 0, "high low").body, i < 6 ? "y" : "x");
    ask(d, 0, "TAKE high high", "-ERR *twice*");
}

// F11: what a connection holds, it loses in every shard.
static void F11_a_lost_connection_gives_back_the_work_of_all_shards(void **state) {
    struct dialogue *d = *state;
    push_to_all(d, "a");
    push_to_all(d, "b");
    say(d, 0, "TAKE s COUNT 9");
    hear(d, 0, "[[*] [*] [*]]");
    ask(d, 1, "WORKERS", "[[*\"leases\" :3 *]]");
    assert_int_equal(host_leases(&d->host), 3);
    hang_up(d, 0);
    for (int i = 0; i < 3; i++)
        ask(d, 1, "TAKE s", "[[* \"a\" :2 *]]");
    ask(d, 1, "TAKE s", "[]");
}

// A9: whichever shard it is in, running work hears that it is to stop.
static void A9_running_work_of_all_shards_is_told_to_stop(void **state) {
    struct dialogue *d = *state;
    push_to_all(d, "a");
    ask(d, 0, "HELLO 3", "{*}");
    ask(d, 0, "CLIENT CANCELS ON", "+OK");
    uint32_t seen = 0;
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct job job = take(d, 0, "s");
        seen |= 1u << shard_of(&job);
        sayf(d, 1, "CANCEL %s", job.id);
        hear(d, 1, ":1");
        char text[64];
        snprintf(text, sizeof text, ">[\"cancel\" \"%s\"]", job.id);
        hear(d, 0, text);
        sayf(d, 0, "DONE %s %s", job.id, job.token);
        hear(d, 0, "-CANCELLED *");
    }
    assert_int_equal(seen, (1u << SHARDS) - 1);
}

// C7: bodies are fetched from the disk of the shard that has them.
static void C7_cold_bodies_come_from_every_shard(void **state) {
    (void)state;
    dialogue_shards = SHARDS;
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    for (uint32_t i = 0; i < SHARDS; i++) {
        char body[2] = { (char)('a' + i), 0 };
        push_to(d, i, body);
    }
    chill(d);
    say(d, 0, "TAKE s COUNT 3");
    hear_nothing(d, 0);
    fetch_all(d);
    const char *heard = hear_any(d, 0);
    assert_true(strstr(heard, "\"a\"") && strstr(heard, "\"b\"") && strstr(heard, "\"c\""));
    dialogue_destroy(d);
}

// ---- Handing in ---------------------------------------------------------------------------------

// D4: room is the engine's: what ends in one shard lets a push into another.
static void D4_room_in_one_shard_is_room_in_another(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s max-jobs 2", "+OK");
    push_to(d, 0, "a");
    push_to(d, 1, "b");
    sayf(d, 0, "PUSH s c KEY %s ROOM -1", key_in("s", 2));
    hear_nothing(d, 0);
    struct job job = take(d, 1, "s");
    sayf(d, 1, "DONE %s %s", job.id, job.token);
    hear(d, 1, "+OK");
    hear(d, 0, "\"*\"");
    ask(d, 0, "PUSHMANY s ITEMS '' x '' y", "-FULL *");
}

// D4: what waited for room in one shard goes on in another, where stages have other numbers.
static void D4_many_that_waited_go_on_in_other_shards(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 40; i++) {
        char stage[16];
        snprintf(stage, sizeof stage, "other%d", i);
        sayf(d, 1, "PUSH %s x KEY %s", stage, key_in(stage, 1));
        hear(d, 1, "\"*\"");
    }
    ask(d, 1, "STAGE s max-jobs 1", "+OK");
    push_to(d, 1, "first");
    char there[16];
    snprintf(there, sizeof there, "%s", key_in("s", 1));
    sayf(d, 0, "PUSHMANY s ROOM -1 ITEMS %s a %s b", there, key_in("s", 2));
    hear_nothing(d, 0);
    ask(d, 1, "STAGE s max-jobs 9", "+OK");
    hear(d, 0, "[\"*\" \"*\"]");
    ask(d, 1, "STAGES NAME s", "[[*\"waiting\" :3 *]]");
}

// Rule 14: a slot that is freed in one shard starts work in another.
static void rule14_concurrency_freed_in_one_shard_starts_work_in_another(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s concurrency 1", "+OK");
    push_to(d, 0, "a");
    push_to(d, 1, "b");
    struct job job = take(d, 0, "s");
    connect_client(d, 2);
    say(d, 2, "TAKE s WAIT -1");
    hear_nothing(d, 2);
    ask(d, 1, "WHY s", "\"s runs as many*\"");
    end_job(d, "DONE", job, "");
    hear(d, 2, "[[*]]");
}

// Two workers, of which one may work: whichever has ended a job, the next is another shard's.
static void rule14_shards_take_turns_at_a_limit(void **state) {
    struct dialogue *d = *state;
    uint32_t last = UINT32_MAX, before_last = UINT32_MAX;
    ask(d, 1, "STAGE s concurrency 1", "+OK");
    for (uint32_t i = 0; i < SHARDS; i++)
        for (int n = 0; n < 20; n++)
            push_to(d, i, "x");
    connect_client(d, 2);
    say(d, 0, "TAKE s WAIT -1");
    say(d, 2, "TAKE s WAIT -1");
    for (int i = 0; i < 30; i++) {
        int worker = i % 2 * 2;
        struct job job = taken(d, worker);
        uint32_t shard = shard_of(&job);
        assert_true(shard != last && shard != before_last);
        before_last = last;
        last = shard;
        sayf(d, worker, "DONE %s %s", job.id, job.token);
        hear(d, worker, "+OK");
        say(d, worker, "TAKE s WAIT -1");
    }
    (void)taken(d, 0);
}

// E2: numbers that were refused hold their source in all shards.
static void E2_a_refused_number_holds_its_source_everywhere(void **state) {
    struct dialogue *d = *state;
    ask(d, 1, "STAGE s max-jobs 1", "+OK");
    push_to(d, 0, "a");
    sayf(d, 0, "PUSH s b KEY %s SOURCE me 1", key_in("s", 1));
    hear(d, 0, "-FULL *");
    ask(d, 1, "STAGE s max-jobs none", "+OK");
    sayf(d, 0, "PUSH s c KEY %s SOURCE me 2", key_in("s", 2));
    hear(d, 0, "-GAP 1 *");
    sayf(d, 0, "PUSH s b KEY %s SOURCE me 1", key_in("s", 1));
    hear(d, 0, "\"*\"");
    for (int i = 0; i < 2; i++) { // and again: it is the same
        sayf(d, 0, "PUSH s c KEY %s SOURCE me 2", key_in("s", 2));
        hear(d, 0, "\"3\"");
    }
    for (int i = 0; i < 2; i++) {
        ask(d, 0, "PUSH s d ONCE n", "\"*\"");
        ask(d, 0, "PUSH s e EPIC e 1", "\"*\"");
    }
    ask(d, 0, "STAGES NAME s", "[[*\"pushed\" :5 *]]");
}

// E2: a number is pushed once, whatever its key, and only the lowest one missing holds up others.
static void E2_a_number_is_known_whichever_shard_has_it(void **state) {
    struct dialogue *d = *state;
    sayf(d, 0, "PUSH s a KEY %s EPIC e 2", key_in("s", 0));
    hear(d, 0, "\"1\"");
    sayf(d, 0, "PUSH s a KEY %s EPIC e 2", key_in("s", 1)); // he has changed his mind
    hear(d, 0, "\"1\"");
    ask(d, 1, "DRAIN s", "+OK");
    sayf(d, 0, "PUSH s b KEY %s EPIC e 1", key_in("s", 1));
    hear(d, 0, "-DRAINING *");
    ask(d, 1, "RESUME s", "+OK");
    sayf(d, 0, "PUSH s a KEY %s EPIC e 2", key_in("s", 0)); // is there already
    hear(d, 0, "\"1\"");
    sayf(d, 0, "PUSH s c KEY %s EPIC e 3", key_in("s", 2));
    hear(d, 0, "-GAP 1 *");
    sayf(d, 0, "PUSH s b KEY %s EPIC e 1", key_in("s", 2)); // not where it was refused
    hear(d, 0, "\"*\"");
    sayf(d, 0, "PUSH s c KEY %s EPIC e 3", key_in("s", 2));
    hear(d, 0, "\"*\"");
    ask(d, 0, "EPIC e", "[\"resume\" :4 \"total\" :-1 \"accepted\" :3 *]");
}

// Rule 12: a source that is used is kept, also by shards that none of its pushes go to for long.
static void E2_a_source_in_use_is_kept_by_all_shards(void **state) {
    struct dialogue *d = *state;
    sayf(d, 0, "PUSH s x KEY %s SOURCE me 1", key_in("s", 0));
    hear(d, 0, "\"*\"");
    for (int i = 2; i <= 1100; i++) {
        pass_ms(d, 10000);
        sayf(d, 0, "PUSH s x KEY %s SOURCE me %d", key_in("s", 1), i);
        hear(d, 0, "\"*\"");
    }
}

// Rule 12: a producer does not run ahead of what is missing, whichever shard that belongs to.
static void E2_numbers_too_far_ahead_are_refused(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "PUSH s x EPIC e 1025", "-GAP 1 *");
    for (int i = 1; i <= 1500; i++) {
        if (i == 2)
            continue;
        sayf(d, 0, "PUSH s x KEY k%d EPIC e %d", i % 7, i);
        hear(d, 0, i <= 1025 ? "\"*\"" : "-GAP 2 *");
    }
    ask(d, 0, "PUSH s x EPIC e 2", "\"*\"");
    ask(d, 0, "PUSH s x EPIC e 2049", "\"*\"");
    ask(d, 0, "PUSH s x EPIC e 2050", "-GAP 1026 *");
    ask(d, 0, "EPIC e DROP", "[*]");
    ask(d, 0, "PUSH s x EPIC e 1025", "-GAP 1 *");
}

// T9, T16: an epic is the union of what the shards have of it.
static void T9_an_epic_is_one_over_all_shards(void **state) {
    struct dialogue *d = *state;
    for (int i = 1; i <= 20; i++) {
        if (i == 7)
            continue;
        sayf(d, 0, "PUSH s x KEY k%d EPIC e %d", i, i);
        hear(d, 0, "\"*\"");
    }
    ask(d, 0, "EPIC e", "[\"resume\" :7 \"total\" :-1 \"accepted\" :19 \"waiting\" :19 *]");
    ask(d, 0, "EPIC e SKIP 5000", "-GAP *");
    ask(d, 0, "EPIC e SKIP 7", "[\"resume\" :21 *]");
    for (int i = 0; i < 20; i++) { // whichever shard has the last of them
        sayf(d, 0, "EPIC e END %d", i);
        hear(d, 0, "-ERR number 20 of this epic is there*");
        ask(d, 0, "EPIC e", "[\"resume\" :21 \"total\" :-1 *]");
    }
    ask(d, 0, "EPIC e END 20", "[\"resume\" :21 \"total\" :20 *]");
    say(d, 1, "EPIC e WAIT -1");
    for (int i = 0; i < 19; i++) {
        hear_nothing(d, 1);
        end_job(d, i == 3 ? "FAIL" : "DONE", take(d, 0, "s"), i == 3 ? "no NEVER" : "");
    }
    hear(d, 1, "[*\"waiting\" :0 \"running\" :0 \"done\" :18 \"dead\" :1 *]");
    ask(d, 0, "EPICS", "[[\"name\" \"e\" *]]");
    ask(d, 0, "EPIC e DROP", "[*\"done\" :18 *]");
    ask(d, 0, "EPIC e", "-GONE *");
    ask(d, 0, "EPICS", "[]");
}

// D4: whoever waits until so few are left is told when they are, over all shards.
static void D4_an_epic_is_watched_in_all_shards(void **state) {
    struct dialogue *d = *state;
    for (int i = 1; i <= 30; i++) {
        sayf(d, 0, "PUSH s x KEY k%d EPIC e %d", i % 11, i);
        hear(d, 0, "\"*\"");
    }
    say(d, 1, "EPIC e WAIT -1 LEFT 12");
    for (int left = 30; left > 12; left--) {
        hear_nothing(d, 1);
        end_job(d, "DONE", take(d, 0, "s"), "");
    }
    hear(d, 1, "[*\"waiting\" :12 *]");
    say(d, 1, "EPIC e WAIT -1");
    ask(d, 0, "EPIC e END 31", "[*]");
    for (int left = 12; left > 0; left--)
        end_job(d, "DONE", take(d, 0, "s"), "");
    hear_nothing(d, 1);
    ask(d, 0, "EPIC e SKIP 31", "[*]");
    hear(d, 1, "[*\"done\" :30 *]");
    say(d, 1, "EPIC e WAIT -1 LEFT 0");
    hear(d, 1, "[*]");
}

// ---- Acting -------------------------------------------------------------------------------------

static void F13_RETRY_and_DROP_go_through_all_shards(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 9; i++) {
        push_to(d, (uint32_t)i % SHARDS, "x");
        end_job(d, "FAIL", take(d, 0, "s"), i < 5 ? "luck NEVER" : "memory NEVER");
    }
    ask(d, 0, "RETRY STAGE s DEAD DRY", ":9");
    ask(d, 0, "RETRY STAGE s DEAD REASON luck", ":5");
    ask(d, 0, "DROP STAGE s DEAD MAX 3", ":3");
    ask(d, 0, "DROP STAGE s DEAD", ":1");
    ask(d, 0, "DROP STAGE s WAITING MAX 4", ":4");
    ask(d, 0, "DROP STAGE s WAITING", ":1");
    ask(d, 0, "JOBS s", "[]");
}

// What is set, is set in every shard: also where the stage is not known yet.
static void F14_policies_hold_in_all_shards(void **state) {
    struct dialogue *d = *state;
    ask(d, 0, "STAGE s attempts 1", "+OK");
    ask(d, 0, "PAUSE s", "+OK");
    push_to_all(d, "a");
    ask(d, 0, "TAKE s COUNT 9", "[]");
    say(d, 0, "TAKE s COUNT 9 WAIT -1");
    ask(d, 1, "RESUME s", "+OK");
    hear(d, 0, "[[*]]");
    for (int i = 1; i < SHARDS; i++)
        end_job(d, "FAIL", take(d, 0, "s"), "no");
    ask(d, 0, "DEAD s", "[[*] [*]]");
    ask(d, 0, "DRAIN s", "+OK");
    for (uint32_t i = 0; i < SHARDS; i++) {
        sayf(d, 0, "PUSH s a KEY %s", key_in("s", i));
        hear(d, 0, "-DRAINING *");
    }
}

// T1: jobs without a key belong to no shard by their names; WHY tells of them nevertheless.
static void T1_WHY_knows_jobs_without_a_key_in_every_shard(void **state) {
    struct dialogue *d = *state;
    for (uint32_t i = 1; i <= SHARDS; i++)
        push(d, "s a");
    for (uint32_t i = 1; i <= SHARDS; i++) {
        sayf(d, 0, "WHY %u", i);
        hear(d, 0, "\"s has no worker, and 3 jobs waiting*\"");
    }
    struct job job = take(d, 0, "s");
    end_job(d, "FAIL", job, "no RETRY 500");
    sayf(d, 0, "WHY %s", job.id);
    hear(d, 0, "\"Job * has failed 1 of 10 times*\"");
}

// ---- Between shards -----------------------------------------------------------------------------

static void emit_to_all(struct dialogue *d, struct job job) {
    char words[512] = "";
    for (uint32_t i = 0; i < SHARDS; i++)
        for (int n = 0; n < 2; n++)
            snprintf(words + strlen(words), 64, " EMIT t %s %d", key_in("t", i), n);
    sayf(d, 0, "DONE %s %s%s", job.id, job.token, words);
}

// E4: emits arrive in their shards, once and in order.
static void E4_emits_travel_to_their_shards(void **state) {
    struct dialogue *d = *state;
    push(d, "s a");
    emit_to_all(d, take(d, 0, "s"));
    hear(d, 0, "+OK");
    ask(d, 0, "STAGES NAME t", "[[*\"waiting\" :6 *]]");
    for (int n = 0; n < 2; n++)
        for (uint32_t i = 0; i < SHARDS; i++) {
            struct job job = take(d, 0, "t");
            assert_int_equal(job.body[0], '0' + n);
            end_job(d, "DONE", job, "");
        }
    ask(d, 0, "TAKE t", "[]");
    ask(d, 0, "STAGES NAME t", "[[*\"waiting\" :0 *\"pushed\" :6 \"done\" :6 *]]");
    assert_int_equal(host_next_ms(&d->host) == 0, 0); // nothing is left to do
}

// Rule 13: edges of a cycle do not hold starts, also when each was seen by another shard.
static void X_a_cycle_is_seen_over_all_shards(void **state) {
    struct dialogue *d = *state;
    for (int i = 0; i < 4; i++) {
        push_to(d, 0, "x");
        sayf(d, 1, "PUSH t y KEY %s", key_in("t", 1));
        hear(d, 1, "\"*\"");
    }
    struct job one = take(d, 0, "s"), other = take(d, 0, "t");
    ask(d, 1, "STAGE s high-mark 2", "+OK");
    ask(d, 1, "STAGE t high-mark 2", "+OK");
    sayf(d, 0, "DONE %s %s EMIT t %s y", one.id, one.token, key_in("t", 1));
    hear(d, 0, "+OK");
    sayf(d, 0, "DONE %s %s EMIT s %s x", other.id, other.token, key_in("s", 0));
    hear(d, 0, "+OK");
    take(d, 0, "s");
    take(d, 0, "t");
}

static void done_with_emit(struct dialogue *d, struct job job, const char *stage, uint32_t shard) {
    const char *heard;
    do {
        sayf(d, 0, "DONE %s %s EMIT %s %s y", job.id, job.token, stage, key_in(stage, shard));
        heard = hear_any(d, 0);
    } while (strcmp(heard, "+OK") != 0);
}

// F51: an edge that one shard has seen is not lost for the others, whichever allocation fails: it
// is shared later, or seen anew with the next emit along it.
static void F51_a_cycle_is_seen_although_memory_was_short(void **state) {
    (void)state;
    long left = -1;
    for (long n = 0; left < 0; n++) {
        dialogue_shards = SHARDS;
        struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ 0 });
        for (int i = 0; i < 6; i++) {
            push_to(d, 0, "x");
            sayf(d, 1, "PUSH t y KEY %s", key_in("t", 1));
            hear(d, 1, "\"*\"");
        }
        struct job one = take(d, 0, "s"), other = take(d, 0, "t");
        (void)mem_fail_after(n);
        done_with_emit(d, one, "t", 1);
        left = mem_fail_after(-1);
        done_with_emit(d, other, "s", 0);
        done_with_emit(d, take(d, 0, "s"), "t", 1);
        ask(d, 1, "STAGE s high-mark 2", "+OK");
        ask(d, 1, "STAGE t high-mark 2", "+OK");
        take(d, 0, "s");
        take(d, 0, "t");
        dialogue_destroy(d);
    }
}

// T18: what is not durable where it was emitted does not travel; and a TAKE that waits for it is
// answered when it has arrived, durably.
static void T18_an_emit_travels_when_it_is_durable(void **state) {
    (void)state;
    dialogue_shards = SHARDS;
    struct dialogue *d = dialogue_create(STORE_THREAD, (struct core_limits){ 0 });
    push(d, "s a");
    struct job job = take(d, 0, "s");
    say(d, 1, "TAKE t COUNT 9 WAIT -1");
    hold_syncs(d, true);
    emit_to_all(d, job);
    hear_nothing(d, 0);
    hear_nothing(d, 1);
    hold_syncs(d, false);
    for (int i = 0; i < 3; i++)
        turn(d);
    hear(d, 0, "+OK");
    hear(d, 1, "[[*]]");
    for (uint32_t i = 1; i < SHARDS; i++)
        take(d, 0, "t");
    dialogue_destroy(d);
}

// E4: where one emit cannot arrive now, those before it have.
static void E4_what_has_arrived_waits_for_nobody_behind_it(void **state) {
    (void)state;
    dialogue_shards = SHARDS;
    struct dialogue *d = dialogue_create(STORE_MEMORY, (struct core_limits){ .max_channels = 1 });
    char there[16], other[16];
    snprintf(there, sizeof there, "%s", key_in("t", 1));
    snprintf(other, sizeof other, "%s", nth_key_in("t", 1, 1));
    sayf(d, 1, "PUSH t x KEY %s", there);
    hear(d, 1, "\"*\"");
    push_to(d, 0, "x");
    struct job job = take(d, 0, "s");
    sayf(d, 0, "DONE %s %s EMIT t %s a EMIT t %s b", job.id, job.token, there, other);
    hear(d, 0, "+OK");
    pass_ms(d, 200);
    ask(d, 0, "STAGES NAME t", "[[*\"waiting\" :3 *]]"); // there, arrived, on its way
    end_job(d, "DONE", take(d, 0, "t"), "");
    end_job(d, "DONE", take(d, 0, "t"), ""); // now there is room
    pass_ms(d, 200);
    assert_string_equal(take(d, 0, "t").body, "b");
    ask(d, 0, "STAGES NAME t", "[[*\"waiting\" :0 *]]");
    dialogue_destroy(d);
}

// F24: where one log has failed, nothing is accepted any more, in no shard.
static void F24_one_log_that_fails_stops_all(void **state) {
    (void)state;
    dialogue_shards = SHARDS;
    struct dialogue *d = dialogue_create(STORE_DISK, (struct core_limits){ 0 });
    push_to_all(d, "a");
    sim_disk_break(d->disk, SIM_SYNCS, 5);
    sayf(d, 0, "PUSH s b KEY %s", key_in("s", 1)); // writes to that one only
    hear(d, 0, "-STOPPED *");
    sim_disk_break(d->disk, SIM_SYNCS, 0);
    for (uint32_t i = 0; i < SHARDS; i++) {
        sayf(d, 0, "PUSH s b KEY %s", key_in("s", i));
        hear(d, 0, "-STOPPED *");
    }
    ask(d, 0, "STAGES", "[[*\"held-by\" \"stopped\" *]]");
    ask(d, 0, "TAKE s WAIT -1", "-STOPPED *");
    dialogue_destroy(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SHARDED(A10_looks_are_those_of_one_shard),
        SHARDED(CHANNELS_TOP_is_of_all_shards),
        SHARDED(D2_a_take_waits_in_all_shards_with_one_claim),
        SHARDED(stages_named_first_are_served_first),
        SHARDED(F11_a_lost_connection_gives_back_the_work_of_all_shards),
        SHARDED(A9_running_work_of_all_shards_is_told_to_stop),
        cmocka_unit_test(C7_cold_bodies_come_from_every_shard),
        SHARDED(D4_room_in_one_shard_is_room_in_another),
        SHARDED(D4_many_that_waited_go_on_in_other_shards),
        SHARDED(rule14_concurrency_freed_in_one_shard_starts_work_in_another),
        SHARDED(rule14_shards_take_turns_at_a_limit),
        SHARDED(E2_a_refused_number_holds_its_source_everywhere),
        SHARDED(E2_a_number_is_known_whichever_shard_has_it),
        SHARDED(E2_a_source_in_use_is_kept_by_all_shards),
        SHARDED(E2_numbers_too_far_ahead_are_refused),
        SHARDED(T9_an_epic_is_one_over_all_shards),
        SHARDED(D4_an_epic_is_watched_in_all_shards),
        SHARDED(F13_RETRY_and_DROP_go_through_all_shards),
        SHARDED(F14_policies_hold_in_all_shards),
        SHARDED(T1_WHY_knows_jobs_without_a_key_in_every_shard),
        SHARDED(E4_emits_travel_to_their_shards),
        SHARDED(X_a_cycle_is_seen_over_all_shards),
        cmocka_unit_test(F51_a_cycle_is_seen_although_memory_was_short),
        cmocka_unit_test(T18_an_emit_travels_when_it_is_durable),
        cmocka_unit_test(E4_what_has_arrived_waits_for_nobody_behind_it),
        cmocka_unit_test(F24_one_log_that_fails_stops_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
