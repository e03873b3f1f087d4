// The building blocks, each against a naive reference or its contract; then each with every
// allocation failing in turn.
#include "base/buffer.h"
#include "base/bytes.h"
#include "base/codec.h"
#include "base/entry.h"
#include "base/errors.h"
#include "base/heap.h"
#include "base/histogram.h"
#include "base/idmap.h"
#include "base/job_spec.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/slab.h"
#include "base/store_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

// Reproducible chance (xorshift).
static uint64_t chance_state;

static uint64_t chance(uint64_t below) {
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return chance_state % below;
}

static int setup(void **state) {
    (void)state;
    chance_state = 88172645463325252u;
    mem_fail_after(-1);
    return 0;
}

// ── bytes ──

static void bytes_are_equal_by_content(void **state) {
    (void)state;
    char a[] = "abc", b[] = "abc";
    assert_true(bytes_equal(bytes_of(a, 3), bytes_of(b, 3)));
    assert_false(bytes_equal(bytes_of(a, 3), bytes_of(b, 2)));
    assert_false(bytes_equal(mr_str("abd"), mr_str("abc")));
    assert_true(bytes_equal(mr_str(NULL), mr_str("")));
    assert_true(bytes_hash(bytes_of(a, 3), 7) == bytes_hash(bytes_of(b, 3), 7));
    assert_true(bytes_hash(bytes_of(a, 3), 7) != bytes_hash(bytes_of(a, 3), 8));
    assert_true(bytes_hash(mr_str(NULL), 7) == bytes_hash(mr_str(""), 7));
    struct hash128 one = bytes_hash128(mr_str("k"), 1), two = bytes_hash128(mr_str("k"), 2);
    assert_true(one.low != two.low && one.high != two.high);
}

static void numbers_spread_wherever_their_bits_are(void **state) {
    (void)state;
    for (int shift = 0; shift <= 56; shift++) {
        bool seen[256] = { 0 };
        int distinct = 0;
        for (uint64_t n = 0; n < 256; n++) {
            uint32_t high = number_hash(n << shift) >> 24; // where a map probes first
            distinct += !seen[high];
            seen[high] = true;
        }
        assert_true(distinct > 80);
    }
}

// ── buffer ──

static void a_buffer_grows_and_keeps_its_content(void **state) {
    (void)state;
    struct buffer b = { 0 };
    for (uint32_t i = 0; i < 10000; i++)
        assert_int_equal(buffer_append(&b, &i, sizeof i), 0);
    assert_int_equal(b.size, 10000 * sizeof(uint32_t));
    for (uint32_t i = 0; i < 10000; i++)
        assert_memory_equal(b.data + i * sizeof i, &i, sizeof i);
    assert_int_equal(buffer_append(&b, NULL, 0), 0);
    buffer_clear(&b);
    assert_int_equal(buffer_bytes(&b).size, 0);
    buffer_finish(&b);
    assert_null(b.data);
}

static void a_buffer_keeps_to_its_limit(void **state) {
    (void)state;
    uint8_t bytes[200] = { 0 };
    for (size_t limit = 1; limit < LENGTH(bytes) - 1; limit++) {
        struct buffer b = { .limit = limit };
        size_t first = chance(limit + 1);
        assert_int_equal(buffer_append(&b, bytes, first), 0);
        assert_int_equal(buffer_append(&b, bytes, limit - first + 1), MR_ETOOBIG);
        assert_int_equal(b.size, first);
        assert_int_equal(buffer_append(&b, bytes, limit - first), 0);
        assert_int_equal(buffer_append(&b, bytes, 1), MR_ETOOBIG);
        buffer_finish(&b);
        assert_int_equal(b.limit, limit);
    }
}

// Used from the front while more comes behind, and never empty: it stays small, nothing is lost.
static void a_buffer_that_never_runs_empty_does_not_grow(void **state) {
    (void)state;
    struct buffer b = { 0 };
    uint32_t in = 0, out = 0;
    size_t used = 0;
    for (; in < 100; in++)
        assert_int_equal(buffer_append(&b, &in, sizeof in), 0);
    for (int round = 0; round < 10000; round++, in++) {
        uint32_t first;
        memcpy(&first, b.data + used, sizeof first);
        assert_int_equal(first, out++);
        used = buffer_compact(&b, used + sizeof first);
        assert_int_equal(buffer_append(&b, &in, sizeof in), 0);
    }
    assert_true(b.capacity <= 1024);
    buffer_finish(&b);
}

static void a_buffer_refuses_sizes_that_overflow(void **state) {
    (void)state;
    struct buffer b = { 0 };
    assert_int_equal(buffer_append(&b, "x", 1), 0);
    assert_int_equal(buffer_reserve(&b, SIZE_MAX), MR_ETOOBIG);
    assert_int_equal(buffer_reserve(&b, SIZE_MAX / 2), MR_ETOOBIG);
    assert_int_equal(b.size, 1);
    buffer_finish(&b);
}

// ── entry ──

static void an_entry_takes_whole_words(void **state) {
    (void)state;
    assert_int_equal(entry_size(0, 0), ENTRY_FRAME);
    assert_int_equal(entry_size(1, 0), ENTRY_FRAME + 8);
    assert_int_equal(entry_size(5, 3), ENTRY_FRAME + 8);
    assert_int_equal(entry_size(5, 4), ENTRY_FRAME + 16);
}

// ── slab ──

static void a_slab_numbers_from_one_and_reuses_the_latest(void **state) {
    (void)state;
    struct slab s;
    slab_init(&s, 24, 0);
    for (uint32_t i = 1; i <= 3 * SLAB_CHUNK; i++) {
        assert_int_equal(slab_take(&s), i);
        memset(slab_at(&s, i), 0xff, 24);
    }
    slab_give(&s, 7);
    slab_give(&s, 9000);
    static const uint8_t zeros[24];
    assert_int_equal(slab_take(&s), 9000);
    assert_memory_equal(slab_at(&s, 9000), zeros, 24);
    assert_int_equal(slab_take(&s), 7);
    assert_memory_equal(slab_at(&s, 7), zeros, 24);
    assert_int_equal(slab_take(&s), 3 * SLAB_CHUNK + 1);
    slab_finish(&s);
    assert_int_equal(slab_take(&s), 1);
    slab_finish(&s);
}

static void a_slab_entry_never_moves(void **state) {
    (void)state;
    struct slab s;
    slab_init(&s, 8, 0);
    uint32_t first = slab_take(&s);
    void *place = slab_at(&s, first);
    for (int i = 0; i < 20 * SLAB_CHUNK; i++)
        slab_take(&s);
    assert_ptr_equal(slab_at(&s, first), place);
    slab_finish(&s);
}

static void a_slab_keeps_to_its_limit(void **state) {
    (void)state;
    struct slab s;
    slab_init(&s, 4, 10);
    assert_int_equal(slab_reserve(&s, 11), MR_EFULL);
    assert_int_equal(slab_reserve(&s, 10), 0);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_not_equal(slab_take(&s), 0);
    assert_int_equal(slab_take(&s), 0);
    assert_int_equal(slab_reserve(&s, 1), MR_EFULL);
    slab_give(&s, 4);
    assert_int_equal(slab_reserve(&s, 1), 0);
    assert_int_equal(slab_take(&s), 4);
    slab_finish(&s);
}

static void what_a_slab_reserved_needs_no_memory(void **state) {
    (void)state;
    struct slab s;
    slab_init(&s, 4, 0);
    for (int round = 0; round < 50; round++) {
        uint32_t count = (uint32_t)chance(2 * SLAB_CHUNK);
        assert_int_equal(slab_reserve(&s, count), 0);
        mem_fail_after(0);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t number = slab_take(&s);
            assert_int_not_equal(number, 0);
            if (chance(3))
                slab_give(&s, number);
        }
        assert_int_equal(mem_fail_after(-1), 0);
    }
    slab_finish(&s);
}

static size_t addresses_in_use(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    size_t pages = 0;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &pages), 1);
    assert_int_equal(fclose(f), 0);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void a_slab_does_with_few_addresses(void **state) {
    (void)state;
    enum { MORE = 64 << 20, ENTRY = 64 };
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    few = (struct rlimit){ addresses_in_use() + MORE, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    struct slab s;
    slab_init(&s, ENTRY, 0);
    uint32_t count = 0;
    while (slab_take(&s))
        count++;
    int err = slab_reserve(&s, 1);
    void *other = mem_alloc(4096);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(err, MR_ENOMEM);
    assert_true(count >= SLAB_CHUNK && count < MORE / ENTRY);
    assert_non_null(other);
    mem_free(other);
    slab_finish(&s);
}

// ── pool ──

enum { STRINGS = 500, STRING_MOST = 200 };

struct strings {
    struct pool pool;
    uint32_t numbers[STRINGS]; // 0: not there
};

// The nth string: of this length, and different from all others.
static mr_bytes string_at(uint32_t n, uint8_t buffer[STRING_MOST]) {
    size_t size = n % STRING_MOST;
    for (size_t i = 0; i < size; i++)
        buffer[i] = (uint8_t)(n * 31 + i);
    return bytes_of(buffer, size);
}

static void strings_compare(const struct strings *s) {
    uint8_t buffer[STRING_MOST];
    for (uint32_t i = 0; i < STRINGS; i++)
        if (s->numbers[i])
            assert_true(bytes_equal(pool_at(&s->pool, s->numbers[i]), string_at(i, buffer)));
}

static uint32_t strings_used(const struct strings *s) {
    uint32_t used = 0;
    for (size_t i = 0; i < LENGTH(s->pool.slabs); i++)
        used += s->pool.slabs[i].used;
    return used;
}

static void a_pool_keeps_strings_of_any_size(void **state) {
    (void)state;
    uint8_t buffer[STRING_MOST];
    struct strings s = { 0 };
    pool_init(&s.pool);
    for (int step = 0; step < 20000; step++) {
        uint32_t i = (uint32_t)chance(STRINGS);
        if (s.numbers[i]) {
            pool_remove(&s.pool, s.numbers[i]);
            s.numbers[i] = 0;
        } else {
            s.numbers[i] = pool_add(&s.pool, string_at(i, buffer));
            assert_int_not_equal(s.numbers[i], 0);
        }
        if (step % 1000 == 0)
            strings_compare(&s);
    }
    strings_compare(&s);
    uint32_t there = 0;
    for (uint32_t i = 0; i < STRINGS; i++)
        there += s.numbers[i] != 0;
    assert_int_equal(strings_used(&s), there);
    pool_finish(&s.pool); // those of a block of their own are freed too: the sanitizer sees it
}

static void a_short_string_costs_one_byte_more_in_fours(void **state) {
    (void)state;
    struct pool p;
    pool_init(&p);
    const char text[] = "0123456789012345678901234567890123456789012345678901234567890123456789";
    for (size_t size = 0; size < 64; size++) {
        uint32_t number = pool_add(&p, bytes_of(text, size));
        assert_int_equal(p.slabs[number >> POOL_SLAB_AT].entry_size, (size + 4) / 4 * 4);
    }
    assert_int_equal(p.slabs[0].used, 0);
    assert_int_not_equal(pool_add(&p, bytes_of(text, 64)), 0);
    assert_int_equal(p.slabs[0].used, 1);
    pool_finish(&p);
}

// Every string is added, at the second try where an allocation failed.
static int add_strings(struct strings *s) {
    uint8_t buffer[STRING_MOST];
    int failed = 0;
    for (uint32_t i = 0; i < STRINGS; i++) {
        mr_bytes string = string_at(i, buffer);
        s->numbers[i] = pool_add(&s->pool, string);
        if (!s->numbers[i]) {
            failed++;
            assert_int_equal(strings_used(s), i);
            s->numbers[i] = pool_add(&s->pool, string);
        }
    }
    return failed;
}

static void a_failing_allocation_costs_a_pool_nothing(void **state) {
    (void)state;
    int failures = 0;
    for (long point = 0;; point++) {
        struct strings s = { 0 };
        pool_init(&s.pool);
        mem_fail_after(point);
        int failed = add_strings(&s);
        long left = mem_fail_after(-1);
        assert_int_equal(failed, left < 0);
        strings_compare(&s);
        assert_int_equal(strings_used(&s), STRINGS);
        pool_finish(&s.pool);
        failures += failed;
        if (left >= 0)
            break;
    }
    assert_true(failures > 300); // blocks and slabs
}

// ── map ──

enum { TWINS = 20000 };
struct reference {
    uint64_t keys[TWINS]; // by value; 0: not in the map
    uint32_t count;
    uint32_t hash_bits; // those that differ; fewer: more collisions, also at the end of a table
};

static bool reference_equal(const void *owner, uint32_t value, const void *key) {
    const struct reference *t = owner;
    return t->keys[value] == *(const uint64_t *)key;
}

static uint32_t reference_hash(const struct reference *t, uint64_t key) {
    return number_hash(key) | (uint32_t)(UINT64_C(0xffffffff) >> t->hash_bits);
}

static void reference_compare(const struct map *m, const struct reference *t) {
    assert_int_equal(map_count(m), t->count);
    for (uint32_t v = 1; v < TWINS; v++)
        if (t->keys[v])
            assert_int_equal(
                map_find(m, reference_hash(t, t->keys[v]), reference_equal, t, &t->keys[v]), v);
}

static void reference_put(struct map *m, struct reference *t, uint32_t value, uint64_t key) {
    assert_int_equal(map_find(m, reference_hash(t, key), reference_equal, t, &key), 0);
    assert_int_equal(map_reserve(m, 1), 0);
    t->keys[value] = key;
    t->count++;
    map_put(m, reference_hash(t, key), value);
}

static void reference_remove(struct map *m, struct reference *t, uint32_t value) {
    uint64_t key = t->keys[value];
    map_remove(m, reference_hash(t, key), value);
    t->keys[value] = 0;
    t->count--;
    assert_int_equal(map_find(m, reference_hash(t, key), reference_equal, t, &key), 0);
}

// Random puts and removals, with more puts than removals at first, then the reverse.
static void random_map_agrees_with_its_twin(uint32_t hash_bits, uint32_t values, int steps) {
    struct map m = { 0 };
    struct reference *t = calloc(1, sizeof *t);
    t->hash_bits = hash_bits;
    uint64_t next_key = 1;
    for (int step = 0; step < steps; step++) {
        uint32_t value = 1 + (uint32_t)chance(values - 1);
        bool grow = chance(10) < (step < steps / 2 ? 8u : 2u);
        if (!t->keys[value] && grow)
            reference_put(&m, t, value, next_key++);
        else if (t->keys[value] && !grow)
            reference_remove(&m, t, value);
        if (step % (steps / 20) == 0)
            reference_compare(&m, t);
    }
    reference_compare(&m, t);
    map_finish(&m);
    free(t);
}

static void a_map_agrees_with_its_twin(void **state) {
    (void)state;
    random_map_agrees_with_its_twin(32, TWINS, 200000);
}

static void a_map_bears_collisions(void **state) {
    (void)state;
    random_map_agrees_with_its_twin(1, 150, 20000);
    random_map_agrees_with_its_twin(5, 1000, 40000);
}

// At every point of two growths: everything is found, and removing any entry loses no other.
static void a_map_is_whole_at_every_point_of_growth(void **state) {
    (void)state;
    struct reference *t = calloc(1, sizeof *t);
    t->hash_bits = 32;
    for (uint32_t size = 1; size < 64; size++)
        for (uint32_t victim = 1; victim <= size; victim++) {
            struct map m = { 0 };
            for (uint32_t v = 1; v <= size; v++)
                reference_put(&m, t, v, v * 977);
            reference_remove(&m, t, victim);
            assert_int_equal(map_count(&m), size - 1);
            for (uint32_t v = 1; v <= size; v++)
                if (v != victim)
                    reference_remove(&m, t, v);
            map_finish(&m);
        }
    free(t);
}

static void a_map_costs_twelve_bytes_an_entry_at_most(void **state) {
    (void)state;
    struct map m = { 0 };
    struct reference *t = calloc(1, sizeof *t);
    t->hash_bits = 32;
    for (uint32_t v = 1; v < TWINS; v++) {
        reference_put(&m, t, v, v);
        if (v > 100 && !m.old.slots)
            assert_true((size_t)m.now.size * sizeof *m.now.slots <= (size_t)v * 12);
    }
    map_finish(&m);
    free(t);
}

static void what_a_map_reserved_needs_no_memory(void **state) {
    (void)state;
    struct map m = { 0 };
    struct reference *t = calloc(1, sizeof *t);
    t->hash_bits = 32;
    for (uint32_t next = 1; next < TWINS / 2;) {
        uint32_t count = (uint32_t)chance(chance(2) ? 8 : 3000);
        assert_int_equal(map_reserve(&m, count), 0);
        mem_fail_after(0);
        for (uint32_t end = next + count; next < end; next++) {
            t->keys[next] = next;
            t->count++;
            map_put(&m, reference_hash(t, next), next);
        }
        assert_int_equal(mem_fail_after(-1), 0);
        reference_compare(&m, t);
    }
    map_finish(&m);
    free(t);
}

// ── heap ──

static void a_heap_yields_in_time_and_in_order(void **state) {
    (void)state;
    struct heap h = { .next_order = UINT32_MAX - 500 }; // the counter may wrap
    assert_true(heap_next(&h) == UINT64_MAX);
    assert_int_equal(heap_reserve(&h, 1000), 0);
    for (uint32_t i = 0; i < 1000; i++)
        heap_put(&h, chance(20), i);
    struct heap_entry last = heap_pop(&h);
    while (h.count) {
        assert_true(heap_next(&h) >= last.at_ms);
        struct heap_entry e = heap_pop(&h);
        assert_true(e.at_ms > last.at_ms || e.value > last.value);
        last = e;
    }
    heap_finish(&h);
}

static bool keeps_even(const void *owner, struct heap_entry e) {
    (void)owner;
    return e.value % 2 == 0;
}

static void a_filtered_heap_keeps_its_order(void **state) {
    (void)state;
    struct heap h = { 0 };
    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(heap_reserve(&h, 1), 0);
        heap_put(&h, chance(50), i);
    }
    for (int i = 0; i < 2500; i++)
        heap_forget(&h);
    assert_false(heap_wants_filter(&h));
    heap_forget(&h);
    assert_true(heap_wants_filter(&h));
    heap_filter(&h, keeps_even, NULL);
    assert_false(heap_wants_filter(&h));
    assert_int_equal(h.count, 2500);
    struct heap_entry last = heap_pop(&h);
    while (h.count) {
        struct heap_entry e = heap_pop(&h);
        assert_int_equal(e.value % 2, 0);
        assert_true(e.at_ms > last.at_ms || (e.at_ms == last.at_ms && e.value > last.value));
        last = e;
    }
    heap_finish(&h);
}

enum { TIMERS = 20000, LOOKED = 4 };

struct kept {
    bool is_idle[TIMERS];
    size_t looked;
};

static bool keeps_the_others(const void *owner, struct heap_entry e) {
    struct kept *k = (struct kept *)(uintptr_t)owner;
    k->looked++;
    return !k->is_idle[e.value];
}

// U4: entries are forgotten in any order while others come; a few are visited each time.
static void U4_a_heap_is_filtered_in_pieces(void **state) {
    static struct kept k;
    struct heap h = { 0 };
    size_t most = 0;
    (void)state;
    for (uint32_t i = 0, forgotten = 0; i < TIMERS; i++) {
        assert_int_equal(heap_reserve(&h, 1), 0);
        heap_put(&h, chance(1000), i);
        if (i < 2000 || i % 16 == 0)
            continue; // more come than go
        while (k.is_idle[forgotten = (uint32_t)chance(i + 1)])
            continue;
        k.is_idle[forgotten] = true;
        heap_forget(&h);
        k.looked = 0;
        if (heap_wants_filter(&h))
            heap_filter_some(&h, keeps_the_others, &k, LOOKED);
        assert_true(k.looked <= LOOKED);
        most = h.count > most ? h.count : most;
    }
    assert_true(most < 10000); // a little over 3,000 are not idle
    size_t count = 0;
    for (struct heap_entry e, last = { 0 }; h.count; last = e) {
        e = heap_pop(&h);
        assert_true(e.at_ms > last.at_ms || (e.at_ms == last.at_ms && e.value >= last.value));
        count += !k.is_idle[e.value];
    }
    for (uint32_t i = 0; i < TIMERS; i++)
        count -= !k.is_idle[i];
    assert_int_equal(count, 0);
    heap_finish(&h);
}

// ── codec ──

static const uint64_t telling_numbers[] = {
    0,          1,
    127,        128,
    16383,      16384,
    UINT32_MAX, UINT64_C(1) << 62,
    INT64_MAX,  UINT64_C(1) << 63,
    UINT64_MAX,
};

static void put_one_of_each(struct writer *w) {
    put_u8(w, 0xfe);
    put_u32(w, 0x12345678);
    put_u64(w, UINT64_C(0xfedcba9876543210));
    put_bytes(w, mr_str("between"));
    put_bytes(w, mr_str(NULL));
    put_raw(w, mr_str("raw"));
    for (size_t i = 0; i < LENGTH(telling_numbers); i++)
        put_number(w, telling_numbers[i]);
}

// Reads what put_one_of_each wrote; true if all of it was there.
static bool get_one_of_each(struct reader *r) {
    bool same = get_u8(r) == 0xfe && get_u32(r) == 0x12345678 &&
                get_u64(r) == UINT64_C(0xfedcba9876543210) &&
                bytes_equal(get_bytes(r), mr_str("between")) && get_bytes(r).size == 0 &&
                bytes_equal(get_raw(r, 3), mr_str("raw"));
    for (size_t i = 0; i < LENGTH(telling_numbers); i++)
        same = get_number(r) == telling_numbers[i] && same;
    return same && !r->bad;
}

static void what_is_written_is_read(void **state) {
    (void)state;
    uint8_t space[256];
    struct writer w = { .data = space, .capacity = sizeof space };
    put_one_of_each(&w);
    assert_false(w.overflow);
    static const uint8_t start[] = { 0xfe, 0x78, 0x56, 0x34, 0x12, 0x10, 0x32 };
    assert_memory_equal(space, start, sizeof start); // little-endian
    struct reader r = reader_of(bytes_of(space, w.size));
    assert_true(get_one_of_each(&r));
    assert_true(reader_done(&r));
}

// Input and room end exactly where the block of memory does, so that a sanitizer sees a step over.
static void an_end_at_any_byte_is_noticed(void **state) {
    (void)state;
    uint8_t whole[256];
    struct writer all = { .data = whole, .capacity = sizeof whole };
    put_one_of_each(&all);
    for (size_t size = 0; size < all.size; size++) {
        uint8_t *part = malloc(size ? size : 1);
        struct writer w = { .data = part, .capacity = size };
        put_one_of_each(&w);
        assert_true(w.overflow && w.size <= size);
        memcpy(part, whole, size);
        struct reader r = reader_of(bytes_of(part, size));
        assert_false(get_one_of_each(&r));
        assert_true(r.bad && !reader_done(&r));
        free(part);
    }
}

static bool number_is_bad(const char *bytes, size_t size) {
    struct reader r = reader_of(bytes_of(bytes, size));
    return get_number(&r) == 0 && r.bad;
}

static void a_number_has_one_spelling(void **state) {
    (void)state;
    assert_true(number_is_bad("\x80\x00", 2));
    assert_true(number_is_bad("\xff\x80\x00", 3));
    assert_true(number_is_bad("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10));
    assert_true(number_is_bad("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x00", 11));
    assert_true(number_is_bad("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12));
    for (int i = 0; i < 100000; i++) {
        uint64_t v = chance(UINT64_MAX) >> chance(64);
        uint8_t space[10];
        struct writer w = { .data = space, .capacity = sizeof space };
        put_number(&w, v);
        struct reader r = reader_of(bytes_of(space, w.size));
        assert_true(get_number(&r) == v && reader_done(&r));
    }
}

static void a_size_beyond_the_input_is_noticed(void **state) {
    (void)state;
    for (size_t i = 0; i < LENGTH(telling_numbers); i++) {
        uint8_t space[16];
        struct writer w = { .data = space, .capacity = sizeof space };
        put_number(&w, telling_numbers[i]);
        struct reader r = reader_of(bytes_of(space, w.size));
        mr_bytes b = get_bytes(&r);
        assert_int_equal(b.size, 0);
        assert_int_equal(r.bad, telling_numbers[i] != 0);
    }
}

static void nothing_can_be_written_and_read(void **state) {
    (void)state;
    struct writer w = { 0 };
    put_raw(&w, mr_str(""));
    assert_false(w.overflow);
    struct reader r = reader_of(mr_str(NULL));
    assert_int_equal(get_raw(&r, 0).size, 0);
    assert_true(reader_done(&r));
    assert_int_equal(get_u8(&r), 0);
    assert_true(r.bad);
}

// ── histogram ──

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void a_percentile_is_within_one_percent(void **state) {
    (void)state;
    enum { COUNT = 50000 };
    static const double shares[] = { 0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1 };
    uint64_t *values = malloc(COUNT * sizeof *values);
    struct histogram *h = malloc(sizeof *h);
    for (int scale = 1; scale < 39; scale++) {
        *h = (struct histogram){ 0 };
        for (int i = 0; i < COUNT; i++) {
            values[i] = chance(UINT64_C(1) << scale) >> chance((uint64_t)scale);
            histogram_add(h, values[i]);
        }
        qsort(values, COUNT, sizeof *values, by_value);
        for (size_t i = 0; i < LENGTH(shares); i++) {
            size_t rank = (size_t)(shares[i] * COUNT);
            uint64_t exact = values[rank ? rank - 1 : 0];
            uint64_t read = histogram_quantile(h, shares[i]);
            assert_true(read >= exact && read - exact <= exact / 100);
        }
        assert_true(histogram_quantile(h, 1) == values[COUNT - 1]);
    }
    free(h);
    free(values);
}

static void a_histogram_bears_extremes(void **state) {
    (void)state;
    struct histogram *h = calloc(1, sizeof *h);
    assert_true(histogram_quantile(h, 0.5) == 0);
    histogram_add(h, UINT64_MAX);
    assert_true(histogram_quantile(h, 0.5) == UINT64_MAX && h->max == UINT64_MAX);
    histogram_add(h, 0);
    assert_true(histogram_quantile(h, 0.5) == 0);
    assert_int_equal(h->count, 2);
    free(h);
}

static void a_quantile_rounds_up_to_a_value(void **state) {
    (void)state;
    struct histogram *h = calloc(1, sizeof *h);
    for (uint64_t value = 1; value <= 3; value++)
        histogram_add(h, value);
    assert_int_equal(histogram_quantile(h, 0.33), 1);
    assert_int_equal(histogram_quantile(h, 0.34), 2);
    assert_int_equal(histogram_quantile(h, 0.5), 2);
    assert_int_equal(histogram_quantile(h, 0.99), 3);
    free(h);
}

static void a_full_bucket_keeps_the_shares(void **state) {
    (void)state;
    struct histogram *h = calloc(1, sizeof *h);
    histogram_add(h, 200);
    h->buckets[10] = h->buckets[50] = UINT32_MAX;
    h->count = 1 + 2 * (uint64_t)UINT32_MAX;
    histogram_add(h, 10);
    assert_true(h->count == 2 + 2 * (uint64_t)UINT32_MAX);
    assert_int_equal(histogram_quantile(h, 0.49), 10);
    assert_int_equal(histogram_quantile(h, 0.51), 50);
    assert_int_equal(histogram_quantile(h, 1), 200);
    free(h);
}

// ── errors ──

static void every_error_has_a_meaning(void **state) {
    (void)state;
    static const int codes[] = {
#define CODE(name, number, text) MR_##name,
        MR_ERRORS(CODE)
#undef CODE
    };
    for (size_t i = 0; i < LENGTH(codes); i++) {
        assert_int_equal(codes[i], -(int)i - 1);
        assert_string_not_equal(error_meaning(codes[i]), "unknown error");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(error_meaning(codes[i]), error_meaning(codes[j]));
    }
    assert_string_equal(error_meaning(-9999), "unknown error");
    assert_string_equal(error_meaning(0), "no error");
}

static void a_sentence_lasts_may_be_quoted_and_is_cut(void **state) {
    (void)state;
    assert_int_equal(error_set(MR_EIO, "disk %d", 7), MR_EIO);
    assert_int_equal(error_set(MR_EBUSY, "while opening: %s, twice %s", error_text(), error_text()),
                     MR_EBUSY);
    assert_string_equal(error_text(), "while opening: disk 7, twice disk 7");
    error_set(MR_EINVAL, "%05000d", 1);
    assert_int_equal(strlen(error_text()), 1023);
}

// ── list ──

struct bead {
    int number;
    struct list node;
};

static void a_list_keeps_order_and_lets_go(void **state) {
    (void)state;
    struct list l = { 0 };
    struct bead beads[5] = { 0 };
    assert_true(list_empty(&l));
    assert_null(list_first(&l));
    for (int i = 0; i < 5; i++) {
        beads[i].number = i;
        list_remove(&beads[i].node); // in no list: nothing happens
        list_append(&l, &beads[i].node);
    }
    list_remove(&beads[0].node);
    list_remove(&beads[3].node);
    list_remove(&beads[3].node);
    list_append(&l, &beads[0].node);
    static const int expected[] = { 1, 2, 4, 0 };
    for (size_t i = 0; i < LENGTH(expected); i++) {
        struct bead *b = list_entry(list_first(&l), struct bead, node);
        assert_int_equal(b->number, expected[i]);
        list_remove(&b->node);
    }
    assert_true(list_empty(&l));
}

// ── memory ──

static void the_planned_allocation_fails_once(void **state) {
    (void)state;
    assert_int_equal(mem_fail_after(1), -1);
    void *first = mem_alloc(8);
    assert_non_null(first);
    assert_null(mem_resize(first, 16));
    assert_int_equal(mem_fail_after(-1), -1); // it has happened
    first = mem_resize(first, 16);
    assert_non_null(first);
    mem_free(first);
    mem_free(NULL);
}

struct parts {
    struct buffer buffer;
    struct slab slab;
    struct map map;
    struct heap heap;
    uint32_t done;
};

// One step uses all of them; it either happens in all or in none.
static int parts_step(struct parts *p) {
    int err = buffer_reserve(&p->buffer, sizeof p->done);
    if (err == 0)
        err = slab_reserve(&p->slab, 1);
    if (err == 0)
        err = map_reserve(&p->map, 1);
    if (err == 0)
        err = heap_reserve(&p->heap, 1);
    if (err < 0)
        return err;
    uint32_t number = slab_take(&p->slab);
    assert_int_equal(number, ++p->done);
    assert_int_equal(buffer_append(&p->buffer, &number, sizeof number), 0);
    map_put(&p->map, number_hash(number), number);
    heap_put(&p->heap, number, number);
    return 0;
}

static bool number_equal(const void *owner, uint32_t value, const void *key) {
    (void)owner;
    return value == *(const uint32_t *)key;
}

static void parts_check_and_finish(struct parts *p) {
    assert_int_equal(p->buffer.size, p->done * sizeof p->done);
    assert_int_equal(map_count(&p->map), p->done);
    for (uint32_t i = 1; i <= p->done; i++) {
        assert_int_equal(map_find(&p->map, number_hash(i), number_equal, NULL, &i), i);
        assert_int_equal(heap_pop(&p->heap).value, i);
    }
    buffer_finish(&p->buffer);
    slab_finish(&p->slab);
    map_finish(&p->map);
    heap_finish(&p->heap);
}

static void an_allocation_failing_anywhere_loses_nothing(void **state) {
    (void)state;
    enum { STEPS = 2 * SLAB_CHUNK };
    int failures = 0;
    for (long point = 0;; point++) {
        struct parts p = { 0 };
        slab_init(&p.slab, 8, 0);
        mem_fail_after(point);
        int failed = 0;
        while (p.done < STEPS) {
            int err = parts_step(&p);
            assert_true(err == 0 || err == MR_ENOMEM);
            failed += err < 0;
        }
        long left = mem_fail_after(-1);
        assert_int_equal(failed, left < 0);
        parts_check_and_finish(&p);
        failures += failed;
        if (left >= 0)
            break;
    }
    assert_true(failures > 30);
}

// Ids come and go in any order; a page is given back with its last.
static void ids_find_their_numbers(uint64_t id_step) {
    enum { IDS = 5000, STEPS = 100000 };
    bool there[IDS] = { false };
    struct idmap m;
    size_t count = 0;
    uint64_t seed = 7;
    idmap_init(&m, id_step);
    for (int step = 0; step < STEPS; step++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t id = (seed >> 33) % IDS;
        assert_int_equal(idmap_find(&m, id), there[id] ? id + 1 : 0);
        if (there[id]) {
            idmap_remove(&m, id);
        } else {
            assert_int_equal(idmap_reserve(&m, 1), 0);
            idmap_put(&m, id, (uint32_t)id + 1);
        }
        there[id] = !there[id];
        count += there[id] ? 1 : (size_t)-1;
        assert_int_equal(idmap_count(&m), count);
    }
    for (uint64_t id = 0; id < IDS; id++)
        if (there[id])
            idmap_remove(&m, id);
    assert_int_equal(m.slab.used, 0);
    assert_int_equal(map_count(&m.pages), 0);
    idmap_finish(&m);
}

static void an_id_finds_its_number(void **state) {
    (void)state;
    ids_find_their_numbers(1);
    ids_find_their_numbers(3);
    ids_find_their_numbers(64);
}

static void ids_in_step_lie_together(void **state) {
    (void)state;
    enum { IDS = 10 * IDMAP_PAGE, STEP = 3 };
    struct idmap m;
    idmap_init(&m, STEP);
    assert_int_equal(idmap_reserve(&m, IDS), 0);
    for (uint64_t i = 0; i < IDS; i++)
        idmap_put(&m, 2 + i * STEP, (uint32_t)i + 1);
    assert_int_equal(m.slab.used, IDS / IDMAP_PAGE);
    idmap_finish(&m);
}

// ---- Options of a push ------------------------------------------------------------------------

#define SAME_NAME(member, kind, word, value, name, ...) assert_int_equal(strcasecmp(word, name), 0);

// HTTP passes the name on as the word of the wire.
static void an_option_has_the_same_name_everywhere(void **state) {
    (void)state;
    PUSH_OPTIONS(SAME_NAME)
}

static void a_store_is_named_by_its_url(void **state) {
    (void)state;
    struct store_url u;
    assert_int_equal(store_url_read("mem:", &u), 0);
    assert_int_equal(u.scheme, STORE_IN_MEMORY);
    assert_null(store_url_dir(&u));
    assert_int_equal(store_url_read("file:a/b", &u), 0);
    assert_string_equal(store_url_dir(&u), "a/b");
    static const char *const unknown[] = { "", "mem", "mem:x", "file:", "disk:a", "a://hush@h" };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(store_url_read(unknown[i], &u), MR_EINVAL);
        assert_non_null(strstr(error_text(), "file:DIR")); // names what this build has
        assert_null(strstr(error_text(), "hush"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_option_has_the_same_name_everywhere),
        cmocka_unit_test_setup(a_store_is_named_by_its_url, setup),
        cmocka_unit_test_setup(bytes_are_equal_by_content, setup),
        cmocka_unit_test_setup(numbers_spread_wherever_their_bits_are, setup),
        cmocka_unit_test_setup(a_buffer_grows_and_keeps_its_content, setup),
        cmocka_unit_test_setup(a_buffer_keeps_to_its_limit, setup),
        cmocka_unit_test_setup(a_buffer_that_never_runs_empty_does_not_grow, setup),
        cmocka_unit_test_setup(a_buffer_refuses_sizes_that_overflow, setup),
        cmocka_unit_test_setup(an_entry_takes_whole_words, setup),
        cmocka_unit_test_setup(a_slab_numbers_from_one_and_reuses_the_latest, setup),
        cmocka_unit_test_setup(a_slab_entry_never_moves, setup),
        cmocka_unit_test_setup(a_slab_keeps_to_its_limit, setup),
        cmocka_unit_test_setup(what_a_slab_reserved_needs_no_memory, setup),
        cmocka_unit_test_setup(a_slab_does_with_few_addresses, setup),
        cmocka_unit_test_setup(a_pool_keeps_strings_of_any_size, setup),
        cmocka_unit_test_setup(a_short_string_costs_one_byte_more_in_fours, setup),
        cmocka_unit_test_setup(a_failing_allocation_costs_a_pool_nothing, setup),
        cmocka_unit_test_setup(a_map_agrees_with_its_twin, setup),
        cmocka_unit_test_setup(a_map_bears_collisions, setup),
        cmocka_unit_test_setup(a_map_is_whole_at_every_point_of_growth, setup),
        cmocka_unit_test_setup(a_map_costs_twelve_bytes_an_entry_at_most, setup),
        cmocka_unit_test_setup(what_a_map_reserved_needs_no_memory, setup),
        cmocka_unit_test_setup(a_heap_yields_in_time_and_in_order, setup),
        cmocka_unit_test_setup(a_filtered_heap_keeps_its_order, setup),
        cmocka_unit_test_setup(U4_a_heap_is_filtered_in_pieces, setup),
        cmocka_unit_test_setup(what_is_written_is_read, setup),
        cmocka_unit_test_setup(an_end_at_any_byte_is_noticed, setup),
        cmocka_unit_test_setup(a_number_has_one_spelling, setup),
        cmocka_unit_test_setup(a_size_beyond_the_input_is_noticed, setup),
        cmocka_unit_test_setup(nothing_can_be_written_and_read, setup),
        cmocka_unit_test_setup(a_percentile_is_within_one_percent, setup),
        cmocka_unit_test_setup(a_histogram_bears_extremes, setup),
        cmocka_unit_test_setup(an_id_finds_its_number, setup),
        cmocka_unit_test_setup(ids_in_step_lie_together, setup),
        cmocka_unit_test_setup(a_quantile_rounds_up_to_a_value, setup),
        cmocka_unit_test_setup(a_full_bucket_keeps_the_shares, setup),
        cmocka_unit_test_setup(every_error_has_a_meaning, setup),
        cmocka_unit_test_setup(a_sentence_lasts_may_be_quoted_and_is_cut, setup),
        cmocka_unit_test_setup(a_list_keeps_order_and_lets_go, setup),
        cmocka_unit_test_setup(the_planned_allocation_fails_once, setup),
        cmocka_unit_test_setup(an_allocation_failing_anywhere_loses_nothing, setup),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
