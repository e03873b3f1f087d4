// Flows by the public API, on an engine in this process and on a server.
#include "base/mem.h"
#include "millrace_flow.h"
#include "support/api.h"
#include "support/crash.h"

#include <inttypes.h>

// ---- Words: a source, and what comes out ------------------------------------------------------

struct text {
    const char *const *blocks; // NULL behind them; words separated by blanks
    uint64_t first;            // number that was asked for first
    atomic_int reads;
};

// Each word is a pair: itself, "1".
static int read_words(uint64_t number, mr_flow_out *out, void *arg) {
    struct text *t = arg;
    atomic_fetch_add(&t->reads, 1);
    if (!t->first)
        t->first = number;
    size_t count = 0;
    while (t->blocks[count])
        count++;
    if (number > count)
        return MR_FLOW_END;
    const char *at = t->blocks[number - 1];
    for (size_t size; (size = strcspn(at, " ")) > 0; at += size + (at[size] == ' '))
        must(mr_flow_emit(out, (mr_bytes){ at, size }, mr_str("1")));
    return 0;
}

// What a sink has received, as "key=value " one after another.
struct collected {
    pthread_mutex_t lock;
    char text[4096];
    uint64_t last, count;
};

#define COLLECTED                                                                                  \
    { .lock = PTHREAD_MUTEX_INITIALIZER }

static int hear(mr_pair p, uint64_t number, void *arg) {
    struct collected *h = arg;
    pthread_mutex_lock(&h->lock);
    size_t used = strlen(h->text);
    snprintf(h->text + used, sizeof h->text - used, "%.*s=%.*s ", (int)p.key.size,
             (const char *)p.key.data, (int)p.value.size, (const char *)p.value.data);
    bool grows = number > h->last;
    h->last = number;
    h->count++;
    pthread_mutex_unlock(&h->lock);
    return grows ? 0 : MR_EINVAL;
}

static int compare_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// The pairs in order of the alphabet.
static const char *sorted(struct collected *h) {
    static char out[4096];
    char copy[4096], *words[1000], *save = NULL;
    size_t count = 0, used = 0;
    memcpy(copy, h->text, sizeof copy);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        words[count++] = w;
    qsort(words, count, sizeof *words, compare_text);
    out[0] = 0;
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", i ? " " : "", words[i]);
    return out;
}

// A name that no flow has had: a server may have seen others.
static const char *fresh(const char *name) {
    static char text[40];
    static int count;
    snprintf(text, sizeof text, "%s%d", name, ++count);
    return text;
}

static mr_flow *flow_open(mr *m, const char *name) {
    mr_flow *f = NULL;
    mr_flow_options o = { .backoff = "0ms", .jobs = 2 };
    must(mr_flow_open(m, name, &o, &f));
    return f;
}

static void run(mr_flow *f) {
    must(mr_flow_start(f));
    must(mr_flow_wait(f, MR_FOREVER));
    must(mr_flow_close(f));
}

static int say_reason(mr_flow_out *out, const char *reason) {
    must(mr_flow_set_reason(out, reason));
    return MR_EINVAL;
}

static bool is(mr_bytes bytes, const char *text) {
    return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

// ---- Operators --------------------------------------------------------------------------------

static int without_the(mr_pair p, mr_flow_out *out, void *arg) {
    (void)out, (void)arg;
    return !is(p.key, "the");
}

static int first_letter(mr_pair p, mr_flow_out *out, void *arg) {
    (void)arg;
    return mr_flow_emit(out, (mr_bytes){ p.key.data, 1 }, p.key);
}

// E1: operators work on pairs, divided by key; what they make goes downstream.
static void E1_words_are_counted(void **state) {
    static const char *const blocks[] = { "the cat the dog", "dog cat dog", "the cat", NULL };
    struct text text = { .blocks = blocks };
    struct collected all = COLLECTED, letters = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, "words");
    must(mr_flow_sink(f, "out", "count", hear, &all, NULL)); // before what it takes from
    must(mr_flow_source(f, "text", read_words, &text, NULL));
    must(mr_flow_filter(f, "rare", "text", without_the, NULL, NULL));
    must(mr_flow_aggregate(f, "count", "rare", mr_flow_sum, NULL, NULL, NULL));
    must(mr_flow_map(f, "letter", "rare", first_letter, NULL, NULL));
    must(mr_flow_aggregate(f, "letters", "letter", mr_flow_count, NULL, NULL, NULL));
    must(mr_flow_sink(f, "out2", "letters", hear, &letters, NULL));
    run(f);
    assert_string_equal(sorted(&all), "cat=3 dog=3");
    assert_string_equal(sorted(&letters), "c=3 d=3");
    assert_int_equal(all.last, 2);
    must(mr_close(m));
}

static int by_length(mr_pair p, mr_flow_out *out, void *arg) {
    (void)arg;
    return mr_flow_emit_to(out, p.key.size > 1 ? "long" : "short", p.key, p.value);
}

static int twice(mr_pair p, mr_flow_out *out, void *arg) {
    (void)arg;
    int err = mr_flow_emit(out, p.key, p.value);
    return err < 0 ? err : mr_flow_emit(out, p.key, mr_str("2"));
}

// E1, E6: a split has named outputs, a merge several inputs; `apart` makes no difference.
static void E1_E6_pairs_part_and_meet(void **state) {
    static const char *const blocks[] = { "a bb", "c dd a", NULL };
    (void)state;
    for (uint32_t apart = 0; apart < 2; apart++) {
        struct text text = { .blocks = blocks };
        struct collected h = COLLECTED;
        mr_operator_options o = { .apart = apart };
        mr *m = open_mem();
        mr_flow *f = flow_open(m, fresh("parts"));
        must(mr_flow_source(f, "text", read_words, &text, NULL));
        must(mr_flow_split(f, "split", "text", "long  short", by_length, NULL, &o));
        must(mr_flow_flat_map(f, "double", "split:long", twice, NULL, &o));
        must(mr_flow_merge(f, "merge", "double split:short", &o));
        must(mr_flow_sink(f, "out", "merge", hear, &h, NULL));
        run(f);
        assert_string_equal(sorted(&h), "a=1 a=1 bb=1 bb=2 c=1 dd=1 dd=2");
        must(mr_close(m));
    }
}

static int join(mr_bytes key, mr_bytes so_far, mr_bytes value, mr_flow_out *out, void *arg) {
    char text[100];
    (void)key, (void)arg;
    snprintf(text, sizeof text, "%.*s%.*s", (int)so_far.size, (const char *)so_far.data,
             (int)value.size, (const char *)value.data);
    return mr_flow_set(out, mr_str(text));
}

static int read_digits(uint64_t number, mr_flow_out *out, void *arg) {
    char digit[] = { (char)('0' + number), 0 };
    (void)arg;
    if (number > 8)
        return MR_FLOW_END;
    return mr_flow_emit(out, mr_str("k"), mr_str(digit));
}

static const char *windows(uint64_t size, uint64_t slide, uint32_t drop_last) {
    static struct collected h;
    h = (struct collected)COLLECTED;
    mr_window w = { .size = size, .slide = slide, .drop_last = drop_last };
    mr *m = open_mem();
    mr_flow *f = flow_open(m, fresh("windows"));
    must(mr_flow_source(f, "digits", read_digits, NULL, NULL));
    must(mr_flow_aggregate(f, "fold", "digits", join, NULL, &w, NULL));
    must(mr_flow_sink(f, "out", "fold", hear, &h, NULL));
    run(f);
    must(mr_close(m));
    return h.text;
}

// E6: windows of 1 to 8, and what becomes of those that are not full at the end.
static void E6_windows_have_a_size_and_a_slide(void **state) {
    (void)state;
    assert_string_equal(windows(3, 3, 0), "k=123 k=456 k=78 ");
    assert_string_equal(windows(3, 0, 0), "k=123 k=456 k=78 ");
    assert_string_equal(windows(3, 3, 1), "k=123 k=456 ");
    assert_string_equal(windows(4, 2, 0), "k=1234 k=3456 k=5678 k=78 ");
    assert_string_equal(windows(4, 3, 0), "k=1234 k=4567 k=78 ");
    assert_string_equal(windows(2, 1, 1), "k=12 k=23 k=34 k=45 k=56 k=67 k=78 ");
    assert_string_equal(windows(2, 3, 0), "k=12 k=45 k=78 ");
    assert_string_equal(windows(2, 7, 0), "k=12 k=8 ");
    assert_string_equal(windows(2, 7, 1), "k=12 ");
    assert_string_equal(windows(1, 4, 0), "k=1 k=5 ");
    assert_string_equal(windows(0, 0, 0), "k=12345678 ");
    assert_string_equal(windows(0, 0, 1), "");
}

static int running_total(mr_pair p, mr_flow_out *out, void *arg) {
    mr_bytes state = mr_flow_state(out);
    char total[32];
    (void)arg;
    long before = state.size ? strtol(state.data, NULL, 10) : 0;
    snprintf(total, sizeof total, "%ld", before + 1);
    must(mr_flow_set(out, before == 2 ? (mr_bytes){ 0 } : (mr_bytes){ total, strlen(total) + 1 }));
    return mr_flow_emit(out, p.key, mr_str(total));
}

// E1: a stage keeps a state for each key, in the order of its pairs; an empty one is none.
static void E1_a_stage_keeps_a_state_for_each_key(void **state) {
    static const char *const blocks[] = { "a b a", "b a a", "a", NULL };
    struct text text = { .blocks = blocks };
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, "totals");
    must(mr_flow_source(f, "text", read_words, &text, NULL));
    must(mr_flow_stage(f, "total", "text", running_total, NULL, NULL));
    must(mr_flow_sink(f, "out", "total", hear, &h, NULL));
    run(f);
    assert_string_equal(sorted(&h), "a=1 a=1 a=2 a=2 a=3 b=1 b=2");
    must(mr_close(m));
}

static int split_values(mr_pair p, mr_flow_out *out, void *arg) {
    (void)arg;
    return mr_flow_emit(out, mr_str("k"), p.key);
}

static void fold_of(mr_flow_fold *fold, const char *words, const char *expected) {
    const char *const blocks[] = { words, NULL };
    struct text text = { .blocks = blocks };
    struct collected h = COLLECTED;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, fresh("fold"));
    must(mr_flow_source(f, "text", read_words, &text, NULL));
    must(mr_flow_map(f, "value", "text", split_values, NULL, NULL));
    must(mr_flow_aggregate(f, "fold", "value", fold, NULL, NULL, NULL));
    must(mr_flow_sink(f, "out", "fold", hear, &h, NULL));
    must(mr_flow_start(f));
    int err = mr_flow_wait(f, MR_FOREVER);
    if (!expected) {
        assert_int_equal(err, MR_EDEAD);
        assert_non_null(strstr(mr_error(), "64 bits"));
    } else {
        assert_int_equal(err, 0);
        assert_string_equal(sorted(&h), expected);
    }
    must(mr_flow_close(f));
    must(mr_close(m));
}

static void folds_of_numbers(void **state) {
    (void)state;
    fold_of(mr_flow_sum, "7 -9 +1", "k=-1");
    fold_of(mr_flow_sum, "9223372036854775806 1", "k=9223372036854775807");
    fold_of(mr_flow_sum, "-9223372036854775808 0", "k=-9223372036854775808");
    fold_of(mr_flow_sum, "1 0.5", "k=1.5");
    fold_of(mr_flow_sum, "0.1 0.2", "k=0.30000000000000004");
    fold_of(mr_flow_min, "3 -2 2.5", "k=-2");
    fold_of(mr_flow_max, "3 -2 3.5 1e2", "k=100.0");
    fold_of(mr_flow_count, "x y z", "k=3");
    fold_of(mr_flow_sum, "9223372036854775807 1", NULL);
    fold_of(mr_flow_sum, "seven", NULL);
    fold_of(mr_flow_max, "1 nan", NULL);
}

// ---- Crashes ----------------------------------------------------------------------------------

static int read_numbers(uint64_t number, mr_flow_out *out, void *arg) {
    char key[24], value[24];
    if (number > *(const uint64_t *)arg)
        return MR_FLOW_END;
    for (uint64_t i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "%" PRIu64, (number * 20 + i) % 13);
        snprintf(value, sizeof value, "%" PRIu64, number + i);
        must(mr_flow_emit(out, mr_str(key), mr_str(value)));
    }
    return 0;
}

static const char *sums(double p, uint64_t seed, struct collected *h) {
    uint64_t blocks = 40;
    mr_operator_options o = { .block = 3 };
    mr *m = open_mem();
    mr_flow *f = flow_open(m, fresh("sums"));
    must(mr_flow_source(f, "numbers", read_numbers, &blocks, NULL));
    struct crash crash = { p, seed };
    must(crash_add(f, "crash1", "numbers", &crash, &o));
    must(mr_flow_aggregate(f, "sum", "crash1", mr_flow_sum, NULL, NULL, NULL));
    must(crash_add(f, "crash2", "sum", &crash, NULL));
    must(mr_flow_sink(f, "out", "crash2", hear, h, NULL));
    must(mr_flow_start(f));
    must(mr_flow_wait(f, MR_FOREVER));
    mr_flow_info info;
    must(mr_flow_look(f, &info));
    assert_int_equal(info.over, 1);
    assert_int_equal(info.read, blocks);
    assert_int_equal(info.waiting + info.running + info.dead, 0);
    assert_true(p > 0 ? info.failed > 10 : info.failed == 0);
    must(mr_flow_close(f));
    must(mr_close(m));
    return sorted(h);
}

// E6, E2: a repeat has no visible effect.
static void E6_E2_sums_with_crashes_equal_those_without(void **state) {
    struct collected without = COLLECTED, with = COLLECTED;
    (void)state;
    char expected[4096];
    snprintf(expected, sizeof expected, "%s", sums(0, 1, &without));
    assert_true(without.count == 13);
    assert_string_equal(sums(0.5, 1, &with), expected);
}

struct flaky {
    atomic_int calls;
    int good_from; // that call, and those behind it
};

// Emits first, then fails.
static int fails_late(mr_pair p, mr_flow_out *out, void *arg) {
    struct flaky *k = arg;
    must(mr_flow_emit(out, p.key, p.value));
    return atomic_fetch_add(&k->calls, 1) + 1 < k->good_from ? say_reason(out, "too early") : 0;
}

// E4: a crash after computing, before downstream has it: the output arrives once.
static void E4_what_a_failed_attempt_made_is_not_seen(void **state) {
    static const char *const blocks[] = { "a b c", NULL };
    struct text text = { .blocks = blocks };
    struct flaky flaky = { .good_from = 8 };
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, "late");
    must(mr_flow_source(f, "text", read_words, &text, NULL));
    must(mr_flow_flat_map(f, "late", "text", fails_late, &flaky, NULL));
    must(mr_flow_sink(f, "out", "late", hear, &h, NULL));
    run(f);
    assert_string_equal(sorted(&h), "a=1 b=1 c=1");
    assert_int_equal(flaky.calls, 7 + 3);
    must(mr_close(m));
}

// ---- Dead letters -----------------------------------------------------------------------------

struct poison {
    atomic_bool cured;
};

static int not_poison(mr_pair p, mr_flow_out *out, void *arg) {
    struct poison *k = arg;
    must(mr_flow_emit(out, p.key, p.value));
    return is(p.key, "bad") && !atomic_load(&k->cured) ? say_reason(out, "it is poison") : 0;
}

static int retry_each(mr_id id, mr_bytes key, const char *reason, void *arg) {
    (void)key, (void)reason;
    must(mr_retry(arg, id));
    return 0;
}

static mr_flow *poisoned(mr *m, const char *on_dead, struct text *text, struct poison *k,
                         struct collected *h) {
    mr_flow *f = NULL;
    mr_flow_options o = { .backoff = "0ms", .attempts = 3, .on_dead = on_dead };
    must(mr_flow_open(m, "mail", &o, &f));
    must(mr_flow_source(f, "text", read_words, text, NULL));
    must(mr_flow_flat_map(f, "taste", "text", not_poison, k, NULL));
    must(mr_flow_aggregate(f, "count", "taste", mr_flow_sum, NULL, NULL, NULL));
    must(mr_flow_sink(f, "out", "count", hear, h, NULL));
    must(mr_flow_start(f));
    return f;
}

// A pair that always fails dies alone; the block that it came in goes on. Cured, it counts.
static void a_pair_that_fails_dies_alone(void **state) {
    static const char *const blocks[] = { "a bad b", "a bad bad", NULL };
    struct text text = { .blocks = blocks };
    struct poison k = { false };
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = poisoned(m, "skip", &text, &k, &h);
    refused(MR_EDEAD, mr_flow_wait(f, MR_FOREVER));
    assert_non_null(strstr(mr_error(), "3 dead in operator text"));
    assert_non_null(strstr(mr_error(), "operator taste: it is poison"));
    assert_non_null(strstr(mr_error(), "it is poison"));
    assert_string_equal(sorted(&h), "a=2 b=1");
    assert_int_equal(look(m, "mail/text").dead, 3);
    atomic_store(&k.cured, true);
    must(mr_dead(m, "mail/text", retry_each, m));
    must(mr_flow_wait(f, MR_FOREVER));
    assert_string_equal(sorted(&h), "a=2 b=1 bad=3");
    must(mr_flow_close(f));
    must(mr_close(m));
}

static int key_is(mr_id id, mr_bytes key, const char *reason, void *arg) {
    (void)id;
    assert_true(is(key, arg));
    assert_non_null(strstr(reason, "operator taste: it is poison"));
    return 0;
}

// Counts pairs of each key in the state of its partition, and emits each count; "bad" crashes it.
static int counts_unpoisoned(mr_pair p, mr_flow_out *out, void *arg) {
    struct poison *k = arg;
    char count[24];
    long so_far = mr_flow_state(out).size ? strtol(mr_flow_state(out).data, NULL, 10) : 0;
    if (is(p.key, "bad") && p.value.size && !atomic_load(&k->cured))
        return say_reason(out, "it is poison");
    int size = snprintf(count, sizeof count, "%ld", so_far + 1);
    must(mr_flow_set(out, (mr_bytes){ count, (size_t)size + 1 }));
    return mr_flow_emit(out, p.key, (mr_bytes){ count, (size_t)size });
}

// U14: a dead letter is listed under the key of its pair. Retried it finds the state of its
// partition again; when it fails again it is listed as before.
static void U14_a_dead_letter_has_the_key_of_its_pair(void **state) {
    static const char *const blocks[] = { "a bad b", "bad", "a bad bad", NULL };
    struct text text = { .blocks = blocks };
    mr_flow_options o = { .backoff = "0ms", .attempts = 2 };
    struct poison k = { false };
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = NULL;
    must(mr_flow_open(m, "mail", &o, &f));
    must(mr_flow_source(f, "text", read_words, &text, NULL));
    must(mr_flow_stage(f, "taste", "text", counts_unpoisoned, &k, NULL));
    must(mr_flow_sink(f, "out", "taste", hear, &h, NULL));
    must(mr_flow_start(f));
    refused(MR_EDEAD, mr_flow_wait(f, MR_FOREVER));
    assert_int_equal(look(m, "mail/taste").dead, 4);
    must(mr_dead(m, "mail/taste", key_is, "bad"));
    must(mr_dead(m, "mail/taste", retry_each, m));
    refused(MR_EDEAD, mr_flow_wait(f, MR_FOREVER));
    assert_int_equal(look(m, "mail/taste").dead, 4);
    must(mr_dead(m, "mail/taste", key_is, "bad"));
    atomic_store(&k.cured, true);
    must(mr_dead(m, "mail/taste", retry_each, m));
    must(mr_flow_wait(f, MR_FOREVER));
    assert_string_equal(sorted(&h), "a=1 a=2 b=1 bad=1 bad=2 bad=3 bad=4");
    must(mr_flow_close(f));
    must(mr_close(m));
}

// 3,000 pairs that fail in one block are more letters than a commit has room for.
static int read_poison(uint64_t number, mr_flow_out *out, void *arg) {
    (void)arg;
    for (int i = 0; i < 3000 && number == 1; i++)
        must(mr_flow_emit(out, mr_str(i % 1000 ? "bad" : "a"), mr_str("1")));
    return number == 1 ? 0 : MR_FLOW_END;
}

static void U14_many_pairs_of_a_block_die_alone(void **state) {
    mr_flow_options o = { .backoff = "0ms", .attempts = 2 };
    struct poison k = { false };
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = NULL;
    must(mr_flow_open(m, "mail", &o, &f));
    must(mr_flow_source(f, "text", read_poison, NULL, NULL));
    must(mr_flow_flat_map(f, "taste", "text", not_poison, &k, NULL));
    must(mr_flow_aggregate(f, "count", "taste", mr_flow_sum, NULL, NULL, NULL));
    must(mr_flow_sink(f, "out", "count", hear, &h, NULL));
    must(mr_flow_start(f));
    refused(MR_EDEAD, mr_flow_wait(f, MR_FOREVER));
    assert_string_equal(sorted(&h), "a=3");
    assert_int_equal(look(m, "mail/text").dead, 2997);
    must(mr_dead(m, "mail/text", key_is, "bad"));
    atomic_store(&k.cured, true);
    must(mr_dead(m, "mail/text", retry_each, m));
    must(mr_flow_wait(f, MR_FOREVER));
    assert_string_equal(sorted(&h), "a=3 bad=2997");
    must(mr_flow_close(f));
    must(mr_close(m));
}

// With "halt" the block waits for a person, and so does all behind it.
static void a_flow_halts_with_on_dead_halt(void **state) {
    static const char *const blocks[] = { "a bad b", "a", NULL };
    struct text text = { .blocks = blocks };
    struct poison k = { false };
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = poisoned(m, "halt", &text, &k, &h);
    refused(MR_EDEAD, mr_flow_wait(f, MR_FOREVER));
    assert_non_null(strstr(mr_error(), "operator taste: it is poison"));
    assert_string_equal(h.text, "");
    atomic_store(&k.cured, true);
    must(mr_dead(m, "mail/text", retry_each, m));
    must(mr_flow_wait(f, MR_FOREVER));
    assert_string_equal(sorted(&h), "a=2 b=1 bad=1");
    must(mr_flow_close(f));
    must(mr_close(m));
}

static int emits_elsewhere(mr_pair p, mr_flow_out *out, void *arg) {
    (void)arg;
    return mr_flow_emit_to(out, "nowhere", p.key, p.value) == MR_EINVAL ? 0 : MR_EIO;
}

static int emits_nothing(mr_pair p, mr_flow_out *out, void *arg) {
    (void)p, (void)out, (void)arg;
    return 0;
}

static int keeps_much(mr_pair p, mr_flow_out *out, void *arg) {
    static char much[600 << 10];
    (void)p, (void)arg;
    memset(much, 'm', sizeof much);
    return mr_flow_set(out, (mr_bytes){ much, sizeof much });
}

static int sets(mr_pair p, mr_flow_out *out, void *arg) {
    (void)arg;
    return mr_flow_set(out, p.value) == MR_EINVAL ? 0 : MR_EIO; // it counts all the same
}

static int sets_nothing(mr_bytes key, mr_bytes so_far, mr_bytes value, mr_flow_out *out,
                        void *arg) {
    (void)key, (void)so_far, (void)value, (void)out, (void)arg;
    return 0;
}

// Fails, with an operator that a call of the library has just made, and says why.
static void dies_of(mr_flow *f, mr *m, const char *why) {
    must(mr_flow_start(f));
    refused(MR_EDEAD, mr_flow_wait(f, MR_FOREVER));
    if (!strstr(mr_error(), "operator bad: ") || !strstr(mr_error(), why))
        fail_msg("'%s' does not say: operator bad: %s", mr_error(), why);
    must(mr_flow_close(f));
    must(mr_close(m));
}

static mr_flow *with_words(mr *m, const char *name, struct text *text) {
    static const char *const blocks[] = { "a b", NULL };
    mr_flow *f = NULL;
    mr_flow_options o = { .backoff = "0ms", .attempts = 2 };
    must(mr_flow_open(m, name, &o, &f));
    *text = (struct text){ .blocks = blocks };
    must(mr_flow_source(f, "text", read_words, text, NULL));
    return f;
}

// Makes so many MiB of what its key is in `arg`.
static int makes_much(mr_pair p, mr_flow_out *out, void *arg) {
    static char mib[1 << 20];
    const char *much = strchr(arg, *(const char *)p.key.data);
    int err = 0;
    for (long i = much ? strtol(much + 1, NULL, 10) : 0; i > 0 && err >= 0; i--)
        err = mr_flow_emit(out, p.key, (mr_bytes){ mib, sizeof mib });
    return err;
}

static int count_pair(mr_pair p, uint64_t number, void *arg) {
    (void)p, (void)number;
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static void much_of(char *much, const char *why, int comes_out) {
    struct text t;
    atomic_int count = 0;
    const char *name = fresh("much");
    char stage[64];
    snprintf(stage, sizeof stage, "%s/text", name);
    mr *m = open_mem();
    mr_flow *f = with_words(m, name, &t);
    must(mr_flow_flat_map(f, "bad", "text", makes_much, much, NULL));
    must(mr_flow_sink(f, "out", "bad", count_pair, &count, NULL));
    must(mr_flow_start(f));
    refused(MR_EDEAD, mr_flow_wait(f, MR_FOREVER));
    if (!strstr(mr_error(), why))
        fail_msg("'%s' does not say: %s", mr_error(), why);
    assert_int_equal(count, comes_out);
    assert_int_equal(look(m, stage).failed, 1);
    assert_int_equal(look(m, stage).dead, 1);
    must(mr_flow_close(f));
    must(mr_close(m));
}

// A pair that makes too much dies alone, a block whose pairs do so together as a whole; neither is
// tried again.
static void what_makes_too_much_dies_at_once(void **state) {
    (void)state;
    much_of("a17 b2", "operator bad: more than 16 MiB were made of one pair", 2);
    much_of("a9 b9", "operator bad: more than 16 MiB were made of one block", 0);
}

static void mistakes_of_functions_are_named(void **state) {
    mr_operator_options one = { .partitions = 1 };
    struct text t;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = with_words(m, fresh("bad"), &t);
    must(mr_flow_flat_map(f, "bad", "text", emits_elsewhere, NULL, NULL));
    dies_of(f, m, "there is no output 'nowhere'");
    f = with_words(m = open_mem(), fresh("bad"), &t);
    must(mr_flow_map(f, "bad", "text", emits_nothing, NULL, NULL));
    dies_of(f, m, "a map emits one pair, this one emitted 0");
    f = with_words(m = open_mem(), fresh("bad"), &t);
    must(mr_flow_stage(f, "bad", "text", keeps_much, NULL, &one));
    dies_of(f, m, "1 MiB is the limit");
    f = with_words(m = open_mem(), fresh("bad"), &t);
    must(mr_flow_flat_map(f, "bad", "text", sets, NULL, NULL));
    dies_of(f, m, "only a fold and the function of a stage set something");
    f = with_words(m = open_mem(), fresh("bad"), &t);
    must(mr_flow_filter(f, "bad", "text", twice, NULL, NULL));
    dies_of(f, m, "a filter emits nothing by itself");
    f = with_words(m = open_mem(), fresh("bad"), &t);
    must(mr_flow_aggregate(f, "bad", "text", sets_nothing, NULL, NULL, NULL));
    dies_of(f, m, "its fold has set nothing");
}

static int never_b(mr_pair p, mr_flow_out *out, void *arg) {
    (void)arg;
    if (!is(p.key, "b"))
        return mr_flow_emit(out, p.key, p.value);
    must(mr_flow_set_reason(out, "b will not do"));
    return MR_EDEAD;
}

// No time is spent on attempts that would end in the same way.
static void what_will_never_do_dies_at_once(void **state) {
    static const char *const blocks[] = { "a b c", NULL };
    struct text text = { .blocks = blocks };
    struct collected h = COLLECTED;
    mr_operator_options o = { .apart = 1, .attempts = 9, .backoff = "1h..1h" };
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, fresh("never"));
    must(mr_flow_source(f, "text", read_words, &text, NULL));
    must(mr_flow_map(f, "strict", "text", never_b, NULL, &o));
    must(mr_flow_sink(f, "out", "strict", hear, &h, NULL));
    must(mr_flow_start(f));
    assert_int_equal(mr_flow_wait(f, MR_FOREVER), MR_EDEAD);
    assert_non_null(strstr(mr_error(), "b will not do"));
    assert_string_equal(sorted(&h), "a=1 c=1");
    must(mr_flow_close(f));
    must(mr_close(m));
}

static int busy_twice(mr_pair p, mr_flow_out *out, void *arg) {
    atomic_int *calls = arg;
    if (atomic_fetch_add(calls, 1) < 2)
        return MR_EBUSY;
    assert_int_equal(mr_job_attempt(mr_flow_job(out)), 1);
    return mr_flow_emit(out, p.key, p.value);
}

static void a_busy_command_counts_no_attempt(void **state) {
    static const char *const blocks[] = { "a b", NULL };
    struct text text = { .blocks = blocks };
    struct collected h = COLLECTED;
    atomic_int calls = 0;
    mr_operator_options o = { .apart = 1, .attempts = 1 };
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, fresh("busy"));
    must(mr_flow_source(f, "text", read_words, &text, NULL));
    must(mr_flow_map(f, "busy", "text", busy_twice, &calls, &o));
    must(mr_flow_sink(f, "out", "busy", hear, &h, NULL));
    run(f);
    assert_string_equal(sorted(&h), "a=1 b=1");
    must(mr_close(m));
}

// ---- Graphs that can not be -------------------------------------------------------------------

#define cannot_be(why, f)                                                                          \
    do {                                                                                           \
        refused(MR_EINVAL, mr_flow_check(f));                                                      \
        if (!strstr(mr_error(), why))                                                              \
            fail_msg("'%s' does not say: %s", mr_error(), why);                                    \
        must(mr_flow_close(f));                                                                    \
    } while (0)

static void graphs_that_can_not_be_are_refused(void **state) {
    mr_operator_options wide = { .partitions = 256 };
    struct text t;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = with_words(m, "bad", &t);
    must(mr_flow_merge(f, "a", "text missing", NULL));
    cannot_be("operator a takes from 'missing', but there is no such operator", f);
    f = with_words(m, "bad", &t);
    must(mr_flow_merge(f, "a", "text b", NULL));
    must(mr_flow_merge(f, "b", "a", NULL));
    cannot_be("operators a and b are part of a cycle", f);
    f = with_words(m, "bad", &t);
    must(mr_flow_merge(f, "a", "text:left", NULL));
    cannot_be("has no output 'left'", f);
    f = with_words(m, "bad", &t);
    must(mr_flow_sink(f, "a", "text", hear, NULL, NULL));
    must(mr_flow_merge(f, "b", "a", NULL));
    cannot_be("which is a sink and emits nothing", f);
    f = with_words(m, "bad", &t);
    must(mr_flow_merge(f, "a", "text text", NULL));
    cannot_be("takes from text twice", f);
    f = with_words(m, "bad", &t);
    for (char name[] = "a"; *name < 'e'; ++*name)
        must(mr_flow_stage(f, name, "text", twice, NULL, &wide));
    cannot_be("goes to 1028 partitions", f);
    f = flow_open(m, "bad");
    cannot_be("has no source", f);
    f = flow_open(m, "bad");
    must(mr_flow_merge(f, "a", "b", NULL));
    must(mr_flow_merge(f, "b", "b", NULL));
    cannot_be("part of a cycle", f);
    must(mr_close(m));
}

static void operators_that_can_not_be_are_refused(void **state) {
    mr_operator_options wide = { .partitions = 257 }, wrong = { .on_dead = "weep" };
    mr_window slides = { .slide = 3 };
    struct text t;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = with_words(m, "bad", &t);
    refused(MR_EINVAL, mr_flow_merge(f, "text", "text", NULL));
    refused(MR_EINVAL, mr_flow_merge(f, "a/b", "text", NULL));
    refused(MR_EINVAL, mr_flow_merge(f, "a", " ", NULL));
    refused(MR_EINVAL, mr_flow_merge(f, "a", "text", &wide));
    refused(MR_EINVAL, mr_flow_merge(f, "a", "text", &wrong));
    refused(MR_EINVAL, mr_flow_map(f, "a", "text", NULL, NULL, NULL));
    refused(MR_EINVAL, mr_flow_split(f, "a", "text", " ", by_length, NULL, NULL));
    refused(MR_EINVAL, mr_flow_split(f, "a", "text", "x/y", by_length, NULL, NULL));
    refused(MR_EINVAL, mr_flow_aggregate(f, "a", "text", mr_flow_sum, NULL, &slides, NULL));
    refused(MR_EINVAL, mr_flow_file(f, "a", "text", "", NULL));
    refused(MR_EINVAL, mr_flow_loop(f, "text", "a"));
    refused(MR_EINVAL, mr_flow_wait(f, 0));
    must(mr_flow_check(f)); // nothing of them is left
    must(mr_flow_close(f));
    refused(MR_EINVAL, mr_flow_open(m, "a flow", NULL, &f));
    refused(MR_EINVAL, mr_flow_open(NULL, "a", NULL, &f));
    refused(MR_EINVAL, mr_flow_emit(NULL, (mr_bytes){ 0 }, (mr_bytes){ 0 }));
    must(mr_flow_close(NULL));
    must(mr_close(m));
}

static int build_all_kinds(mr *m, mr_flow **f) {
    mr_window w = { .size = 2 };
    static uint64_t none = 0;
    int err = mr_flow_open(m, "kinds", NULL, f);
    if (err >= 0)
        err = mr_flow_source(*f, "in", read_numbers, &none, NULL);
    if (err >= 0)
        err = mr_flow_split(*f, "split", "in", "a b", by_length, NULL, NULL);
    if (err >= 0)
        err = mr_flow_aggregate(*f, "sum", "split:a", mr_flow_sum, NULL, &w, NULL);
    if (err >= 0)
        err = mr_flow_file(*f, "file", "sum split:b", "/tmp/never-made", NULL);
    if (err >= 0)
        err = mr_flow_merge(*f, "merge", "sum", NULL);
    if (err >= 0)
        err = mr_flow_loop(*f, "merge", "split");
    return err < 0 ? err : mr_flow_check(*f);
}

// F51: a failed allocation is an error, and leaves nothing allocated.
static void F51_building_survives_a_failed_allocation(void **state) {
    int failures = 0;
    (void)state;
    mr *m = open_mem();
    for (int err = MR_ENOMEM; err == MR_ENOMEM; failures++) {
        mr_flow *f = NULL;
        mem_fail_after(failures);
        err = build_all_kinds(m, &f);
        mem_fail_after(-1);
        must(err == MR_ENOMEM ? 0 : err);
        must(mr_flow_close(f));
    }
    assert_in_range(failures, 15, 100);
    must(mr_close(m));
}

// What an engine has of a flow must still make sense to it.
static void a_flow_that_was_changed_is_refused(void **state) {
    mr_operator_options other = { .partitions = 7 };
    struct text t;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = with_words(m, "bad", &t);
    must(mr_flow_aggregate(f, "count", "text", mr_flow_sum, NULL, NULL, NULL));
    run(f);
    f = with_words(m, "bad", &t);
    must(mr_flow_aggregate(f, "count", "text", mr_flow_sum, NULL, NULL, &other));
    refused(MR_EINVAL, mr_flow_start(f));
    assert_non_null(strstr(mr_error(), "was begun with 'count aggregate partitions 64"));
    assert_non_null(strstr(mr_error(), "now it has 'count aggregate partitions 7"));
    must(mr_flow_close(f));
    f = with_words(m, "bad", &t);
    must(mr_flow_aggregate(f, "count", "text", mr_flow_max, NULL, NULL, NULL));
    refused(MR_EINVAL, mr_flow_start(f));
    assert_non_null(strstr(mr_error(), "slide 0 fold max'"));
    must(mr_flow_close(f));
    must(mr_close(m));
}

// ---- Sources and ends -------------------------------------------------------------------------

// T16, E3: what was read is not read again, and what was counted not counted.
static void T16_E3_a_flow_that_is_over_does_nothing_again(void **state) {
    static const char *const blocks[] = { "a b", "a", NULL };
    struct text text = { .blocks = blocks }, again = { .blocks = blocks };
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    for (int i = 0; i < 2; i++) {
        mr_flow *f = flow_open(m, "again");
        must(mr_flow_source(f, "text", read_words, i ? &again : &text, NULL));
        must(mr_flow_aggregate(f, "count", "text", mr_flow_sum, NULL, NULL, NULL));
        must(mr_flow_sink(f, "out", "count", hear, &h, NULL));
        run(f);
    }
    assert_string_equal(sorted(&h), "a=2 b=1");
    assert_int_equal(text.first, 1);
    assert_int_equal(again.first, 3);
    must(mr_close(m));
}

static int read_fails(uint64_t number, mr_flow_out *out, void *arg) {
    (void)arg;
    must(mr_flow_emit(out, mr_str("k"), mr_str("1")));
    return number < 3 ? 0 : say_reason(out, "the disk is on fire");
}

// T16: a finished flow starts again once it was removed; so do the numbers of its sinks.
static void T16_a_removed_flow_starts_again(void **state) {
    static const char *const blocks[] = { "a b a", NULL };
    (void)state;
    mr *m = open_mem();
    for (int i = 0; i < 3; i++) {
        struct text text = { .blocks = blocks };
        struct collected h = COLLECTED;
        mr_flow *f = flow_open(m, "forgotten");
        must(mr_flow_source(f, "text", read_words, &text, NULL));
        must(mr_flow_aggregate(f, "count", "text", mr_flow_sum, NULL, NULL, NULL));
        must(mr_flow_sink(f, "out", "count", hear, &h, NULL));
        assert_int_equal(mr_flow_forget(f, MR_FOREVER), MR_EINVAL); // it is not over
        must(mr_flow_start(f));
        must(mr_flow_wait(f, MR_FOREVER));
        must(mr_flow_forget(f, MR_FOREVER));
        must(mr_flow_close(f));
        assert_string_equal(sorted(&h), "a=2 b=1");
        assert_int_equal(h.last, 2);
    }
    must(mr_close(m));
}

static mr_flow *count_words(mr *m, void *text, mr_flow_read *read, struct collected *h) {
    mr_flow *f = flow_open(m, "shared");
    must(mr_flow_source(f, "text", read, text, NULL));
    must(mr_flow_aggregate(f, "count", "text", mr_flow_sum, NULL, NULL, NULL));
    must(mr_flow_sink(f, "out", "count", hear, h, NULL));
    must(mr_flow_start(f));
    return f;
}

static void finish(mr_flow *f) {
    must(mr_flow_wait(f, MR_FOREVER));
    must(mr_flow_forget(f, MR_FOREVER));
}

static uint64_t run_of(mr_flow *f) {
    mr_flow_info info;
    must(mr_flow_look(f, &info));
    return info.run;
}

// Its second block is read when the test says so.
struct slow_text {
    struct text text;
    struct gate half, on;
};

static int read_slowly(uint64_t number, mr_flow_out *out, void *arg) {
    struct slow_text *t = arg;
    if (number == 2) {
        gate_pass(&t->half);
        gate_wait(&t->on, 1);
    }
    return read_words(number, out, &t->text);
}

// T16, F4: two run a flow at once; the slower one forgets it when another run has begun, of which
// nothing is lost.
static void T16_F4_only_its_own_run_is_removed(void **state) {
    static const char *const blocks[] = { "a b a", "a c", NULL };
    struct text texts[2] = { { .blocks = blocks }, { .blocks = blocks } };
    struct slow_text last = { .text = { .blocks = blocks }, .half = GATE, .on = GATE };
    struct collected h = COLLECTED, later = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *quick = count_words(m, &texts[0], read_words, &h);
    mr_flow *slow = count_words(m, &texts[1], read_words, &h);
    assert_int_equal(run_of(slow), run_of(quick));
    must(mr_flow_wait(quick, MR_FOREVER));
    must(mr_flow_wait(slow, MR_FOREVER));
    must(mr_flow_forget(quick, MR_FOREVER));
    assert_string_equal(sorted(&h), "a=3 b=1 c=1");
    mr_flow *next = count_words(m, &last, read_slowly, &later);
    assert_int_equal(run_of(next), run_of(quick) + 1);
    gate_wait(&last.half, 1);
    while (look(m, "shared/text").waiting || look(m, "shared/text").running ||
           look(m, "shared/count").waiting || look(m, "shared/count").running)
        let_pass(m, 10);
    must(mr_flow_forget(slow, MR_FOREVER));
    must(mr_flow_close(slow));
    must(mr_flow_close(quick));
    gate_pass(&last.on);
    finish(next);
    assert_string_equal(sorted(&later), "a=3 b=1 c=1");
    must(mr_flow_close(next));
    must(mr_close(m));
}

// T16, E2: a process that still reads when the flow was removed pushes nothing.
static void T16_E2_a_late_reader_adds_nothing(void **state) {
    static const char *const blocks[] = { "a b a", "a c", NULL };
    struct text text = { .blocks = blocks };
    struct slow_text same = { .text = { .blocks = blocks }, .half = GATE, .on = GATE };
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *late = count_words(m, &same, read_slowly, &h);
    gate_wait(&same.half, 1);
    mr_flow *quick = count_words(m, &text, read_words, &h);
    finish(quick);
    must(mr_flow_close(quick));
    gate_pass(&same.on);
    finish(late);
    assert_string_equal(sorted(&h), "a=3 b=1 c=1");
    must(mr_flow_close(late));
    must(mr_close(m));
}

static void set_state(mr *m, const char *stage, const char *key, const char *text) {
    mr_push_options o = { .key = mr_str(key) };
    mr_job *job = NULL;
    must(mr_push(m, stage, (mr_bytes){ 0 }, &o, NULL));
    must(mr_take(m, stage, NULL, &job));
    must(mr_job_set_state(job, mr_str(text)));
    must(mr_done(job));
}

// T16: also if the next run was interrupted when it had dropped one of two inputs.
static void T16_a_half_removed_flow_starts_again(void **state) {
    static const char *const left[] = { "a b a", NULL }, *const right[] = { "a c", NULL };
    (void)state;
    mr *m = open_mem();
    for (int i = 0; i < 3; i++) {
        struct text texts[] = { { .blocks = left }, { .blocks = right } };
        struct collected h = COLLECTED;
        mr_flow *f = flow_open(m, "half");
        must(mr_flow_source(f, "left", read_words, &texts[0], NULL));
        must(mr_flow_source(f, "right", read_words, &texts[1], NULL));
        must(mr_flow_aggregate(f, "count", "left right", mr_flow_sum, NULL, NULL, NULL));
        must(mr_flow_sink(f, "out", "count", hear, &h, NULL));
        run(f);
        assert_string_equal(sorted(&h), "a=3 b=1 c=1");
        char over[40], epic[40];
        snprintf(over, sizeof over, "run %d over\n", i + 1);
        snprintf(epic, sizeof epic, "half/%s/%d", i == 1 ? "left" : "right", i + 1);
        set_state(m, "half", "flow", over);
        must(mr_epic_drop(m, i == 1 ? "half/left" : "half/right", epic));
    }
    must(mr_close(m));
}

static void a_failing_source_is_reported(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, "fire");
    must(mr_flow_source(f, "disk", read_fails, NULL, NULL));
    must(mr_flow_start(f));
    refused(MR_EINVAL, mr_flow_wait(f, MR_FOREVER));
    assert_string_equal(mr_error(), "source disk, block 3: the disk is on fire");
    must(mr_flow_close(f));
    must(mr_close(m));
}

// Nor does it wait for another one that has no end.
static void a_failing_source_beside_an_endless_one_is_reported(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, "fires");
    must(mr_flow_take(f, "endless", "elsewhere", NULL));
    must(mr_flow_source(f, "disk", read_fails, NULL, NULL));
    must(mr_flow_take(f, "another", "nowhere", NULL));
    must(mr_flow_start(f));
    refused(MR_EINVAL, mr_flow_wait(f, MR_FOREVER));
    assert_string_equal(mr_error(), "source disk, block 3: the disk is on fire");
    must(mr_flow_close(f));
    must(mr_close(m));
}

// D4: an empty source ends at once.
static void D4_an_empty_flow_is_over_at_once(void **state) {
    static const char *const blocks[] = { NULL };
    struct text text = { .blocks = blocks };
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, "empty");
    must(mr_flow_source(f, "text", read_words, &text, NULL));
    must(mr_flow_aggregate(f, "count", "text", mr_flow_sum, NULL, NULL, NULL));
    must(mr_flow_sink(f, "out", "count", hear, &h, NULL));
    run(f);
    assert_int_equal(h.count, 0);
    must(mr_close(m));
}

// From a stage that others push into, to a stage that others take from.
static void flows_take_from_stages_and_push_into_them(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, "between");
    must(mr_flow_take(f, "in", "orders", NULL));
    must(mr_flow_flat_map(f, "double", "in", twice, NULL, NULL));
    must(mr_flow_push(f, "on", "double", "bills", NULL));
    must(mr_flow_start(f));
    push(m, "orders", "ann", "1");
    mr_job *first = take_waiting(m, "bills");
    assert_string_equal(mr_job_body(first).data, "1");
    assert_true(is(mr_job_key(first), "ann"));
    must(mr_done(first));
    mr_job *second = take_waiting(m, "bills");
    assert_string_equal(mr_job_body(second).data, "2");
    must(mr_done(second));
    assert_int_equal(mr_flow_wait(f, 0), MR_EAGAIN);
    must(mr_flow_stop(f, MR_FOREVER));
    refused(MR_ECANCELLED, mr_flow_wait(f, MR_FOREVER));
    must(mr_flow_close(f));
    must(mr_close(m));
}

static int count_down(mr_pair p, mr_flow_out *out, void *arg) {
    char next[24];
    long n = strtol(p.value.data, NULL, 10);
    (void)arg;
    snprintf(next, sizeof next, "%ld ", n - 1);
    int err = mr_flow_emit_to(out, "seen", p.key, mr_str("1"));
    return err < 0 || n == 1 ? err : mr_flow_emit_to(out, "more", p.key, mr_str(next));
}

static int read_rounds(uint64_t number, mr_flow_out *out, void *arg) {
    (void)arg;
    if (number > 2)
        return MR_FLOW_END;
    return mr_flow_emit(out, mr_str(number == 1 ? "a" : "b"), mr_str(number == 1 ? "3 " : "5 "));
}

static int again(mr_pair p, mr_flow_out *out, void *arg) {
    (void)arg;
    return strtol(p.value.data, NULL, 10) > 1 ? mr_flow_emit(out, p.key, mr_str("1 ")) : 0;
}

// A declared loop turns until nothing is left in it; then an aggregate in it is flushed, until
// nothing comes of that either.
static void a_loop_turns_until_it_is_empty(void **state) {
    struct collected h = COLLECTED;
    (void)state;
    mr *m = open_mem();
    mr_flow *f = flow_open(m, "loop");
    must(mr_flow_source(f, "rounds", read_rounds, NULL, NULL));
    must(mr_flow_split(f, "down", "rounds", "seen more", count_down, NULL, NULL));
    must(mr_flow_aggregate(f, "sum", "down:seen", mr_flow_sum, NULL, NULL, NULL));
    must(mr_flow_flat_map(f, "again", "sum", again, NULL, NULL));
    must(mr_flow_sink(f, "out", "sum", hear, &h, NULL));
    must(mr_flow_loop(f, "down:more", "down"));
    must(mr_flow_loop(f, "again", "down"));
    run(f);
    assert_string_equal(sorted(&h), "a=1 a=3 b=1 b=5");
    must(mr_close(m));
}

// ---- Slow ends --------------------------------------------------------------------------------

struct post {
    struct gate sent;
    atomic_int read;
    int most, mails;
    int ahead_seen;
    uint32_t work; // of creating a mail, in rounds
};

static int read_contexts(uint64_t number, mr_flow_out *out, void *arg) {
    struct post *p = arg;
    char name[24];
    if ((int)number > p->mails)
        return MR_FLOW_END;
    atomic_store(&p->read, (int)number);
    snprintf(name, sizeof name, "%" PRIu64, number);
    return mr_flow_emit(out, (mr_bytes){ 0 }, mr_str(name));
}

static int create(mr_pair context, mr_flow_out *out, void *arg) {
    const struct post *p = arg;
    for (volatile uint32_t i = 0; i < p->work; i++)
        ;
    return mr_flow_emit(out, context.value, mr_str("Dear customer"));
}

// What is between the source and the last mail that was sent.
static int send_mail(mr_pair mail, uint64_t number, void *arg) {
    struct post *p = arg;
    (void)mail, (void)number;
    gate_pass(&p->sent);
    pthread_mutex_lock(&p->sent.lock);
    int ahead = atomic_load(&p->read) - p->sent.count;
    p->ahead_seen = ahead > p->ahead_seen ? ahead : p->ahead_seen;
    pthread_mutex_unlock(&p->sent.lock);
    for (volatile uint32_t i = 0; i < 100000 / (p->work + 1); i++)
        ;
    return 0;
}

static void post_all(uint32_t work, int mails) {
    struct post p = { .sent = GATE, .work = work, .mails = mails };
    mr_operator_options slow = { .apart = 1, .block = 1 };
    mr *m = open_mem();
    mr_flow *f = NULL;
    mr_flow_options o = { .jobs = 2, .ahead = 16 };
    must(mr_flow_open(m, fresh("post"), &o, &f));
    must(mr_flow_source(f, "contexts", read_contexts, &p, NULL));
    must(mr_flow_map(f, "create", "contexts", create, &p, &slow));
    must(mr_flow_sink(f, "send", "create", send_mail, &p, NULL));
    run(f);
    assert_int_equal(p.sent.count, mails);
    // 16 read ahead, the marks of create (256) and send (64), what the two threads of create hold
    // (32 each at most), and some for what is under way; more where it travels from one shard to
    // another: as much as the mark on the way, at most.
    int travelling = story_shards > 1 ? 256 + 64 : 0;
    assert_in_range(p.ahead_seen, 0, 16 + 256 + 64 + 2 * 32 + 30 + travelling);
    must(mr_close(m));
}

// D7: contexts, create, send, whichever is slow: nothing overflows.
static void D7_a_slow_end_holds_the_source(void **state) {
    (void)state;
    post_all(0, 1500);
    post_all(300, 1500);
    post_all(100000, 300);
}

struct closed_end {
    struct gate open; // passed when it may go on
    struct gate came;
};

static int wait_at_gate(mr_pair p, uint64_t number, void *arg) {
    struct closed_end *c = arg;
    (void)p, (void)number;
    gate_pass(&c->came);
    gate_wait(&c->open, 1);
    return 0;
}

// D7, D4: with an end that takes nothing, the source stops by itself; stopping works all the same.
static void D7_D4_an_end_that_takes_nothing_stops_the_source(void **state) {
    struct post p = { .sent = GATE, .mails = 1000000 };
    struct closed_end end = { .open = GATE, .came = GATE };
    mr_operator_options apart = { .apart = 1, .block = 1 };
    (void)state;
    mr *m = open_mem();
    mr_flow *f = NULL;
    mr_flow_options o = { .jobs = 1, .ahead = 16 };
    must(mr_flow_open(m, "stuck", &o, &f));
    must(mr_flow_source(f, "contexts", read_contexts, &p, NULL));
    must(mr_flow_map(f, "create", "contexts", create, &p, &apart));
    must(mr_flow_sink(f, "send", "create", wait_at_gate, &end, NULL));
    must(mr_flow_start(f));
    gate_wait(&end.came, 1);
    while (strncmp(look(m, "stuck/contexts").held_by, "downstream:", 11) != 0)
        let_pass(m, 10);
    int travelling = story_shards > 1 ? 256 + 64 : 0;
    assert_in_range(atomic_load(&p.read), 17, 16 + 256 + 64 + 2 * 32 + 30 + travelling);
    assert_int_equal(mr_flow_stop(f, 0), MR_EBUSY);
    gate_pass(&end.open);
    must(mr_flow_stop(f, MR_FOREVER));
    must(mr_flow_close(f));
    must(mr_close(m));
}

// ---- Files ------------------------------------------------------------------------------------

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static const char *read_text(const char *path) {
    static char text[1000];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

struct files {
    struct store store;
    char in[100], out[100];
};

static struct files files_make(const char *text) {
    struct files s = { .store = store_make() };
    snprintf(s.in, sizeof s.in, "%s/in", s.store.dir);
    snprintf(s.out, sizeof s.out, "%s/out", s.store.dir);
    write_text(s.in, text);
    return s;
}

static void copy_lines(mr *m, const struct files *s, const char *epic) {
    mr_flow *f = NULL;
    mr_flow_options o = { .epic = epic };
    must(mr_flow_open(m, "copy", &o, &f));
    must(mr_flow_lines(f, "in", s->in, NULL));
    must(mr_flow_file(f, "out", "in", s->out, NULL));
    run(f);
}

// Lines of a file, to a file: once, whatever was left behind by an attempt that did not count.
static void E4_a_file_has_every_line_once(void **state) {
    struct files s = files_make("one\n\nthree\nfour");
    (void)state;
    mr *m = open_mem();
    write_text(s.out, "what was there before");
    copy_lines(m, &s, "monday");
    assert_string_equal(read_text(s.out), "one\n\nthree\nfour\n");
    FILE *torn = fopen(s.out, "a");
    fputs("of a process that was killed", torn);
    fclose(torn);
    write_text(s.in, "five\n");
    copy_lines(m, &s, "tuesday");
    assert_string_equal(read_text(s.out), "one\n\nthree\nfour\nfive\n");
    must(mr_close(m));
    store_remove(&s.store);
}

// More than is there can not be put back.
static void a_file_that_was_cut_is_noticed(void **state) {
    struct files s = files_make("one\ntwo\n");
    (void)state;
    mr *m = open_mem();
    copy_lines(m, &s, "monday");
    assert_int_equal(truncate(s.out, 3), 0);
    mr_flow *f = NULL;
    mr_flow_options o = { .epic = "tuesday", .attempts = 1 };
    must(mr_flow_open(m, "copy", &o, &f));
    must(mr_flow_lines(f, "in", s.in, NULL));
    must(mr_flow_file(f, "out", "in", s.out, NULL));
    must(mr_flow_start(f));
    refused(MR_EDEAD, mr_flow_wait(f, MR_FOREVER));
    assert_non_null(strstr(mr_error(), "has 3 bytes, but 8 were committed"));
    must(mr_flow_close(f));
    must(mr_close(m));
    store_remove(&s.store);
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(E1_words_are_counted),
        cmocka_unit_test(E1_E6_pairs_part_and_meet),
        cmocka_unit_test(E6_windows_have_a_size_and_a_slide),
        cmocka_unit_test(E1_a_stage_keeps_a_state_for_each_key),
        cmocka_unit_test(folds_of_numbers),
        cmocka_unit_test(E6_E2_sums_with_crashes_equal_those_without),
        cmocka_unit_test(E4_what_a_failed_attempt_made_is_not_seen),
        cmocka_unit_test(a_pair_that_fails_dies_alone),
        cmocka_unit_test(U14_a_dead_letter_has_the_key_of_its_pair),
        cmocka_unit_test(U14_many_pairs_of_a_block_die_alone),
        cmocka_unit_test(a_flow_halts_with_on_dead_halt),
        cmocka_unit_test(what_will_never_do_dies_at_once),
        cmocka_unit_test(a_busy_command_counts_no_attempt),
        cmocka_unit_test(what_makes_too_much_dies_at_once),
        cmocka_unit_test(mistakes_of_functions_are_named),
        cmocka_unit_test(graphs_that_can_not_be_are_refused),
        cmocka_unit_test(operators_that_can_not_be_are_refused),
        cmocka_unit_test(F51_building_survives_a_failed_allocation),
        cmocka_unit_test(a_flow_that_was_changed_is_refused),
        cmocka_unit_test(T16_E3_a_flow_that_is_over_does_nothing_again),
        cmocka_unit_test(T16_a_removed_flow_starts_again),
        cmocka_unit_test(T16_a_half_removed_flow_starts_again),
        cmocka_unit_test(T16_F4_only_its_own_run_is_removed),
        cmocka_unit_test(T16_E2_a_late_reader_adds_nothing),
        cmocka_unit_test(a_failing_source_is_reported),
        cmocka_unit_test(a_failing_source_beside_an_endless_one_is_reported),
        cmocka_unit_test(D4_an_empty_flow_is_over_at_once),
        cmocka_unit_test(flows_take_from_stages_and_push_into_them),
        cmocka_unit_test(a_loop_turns_until_it_is_empty),
        cmocka_unit_test(D7_a_slow_end_holds_the_source),
        cmocka_unit_test(D7_D4_an_end_that_takes_nothing_stops_the_source),
        cmocka_unit_test(E4_a_file_has_every_line_once),
        cmocka_unit_test(a_file_that_was_cut_is_noticed),
    };
    return run_here_and_there(tests, sizeof tests / sizeof *tests);
}
