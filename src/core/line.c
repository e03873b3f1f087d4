// Lines: doubly linked lists through the links of jobs and channels, named by number.
#include "core/state.h"

void job_line_insert_before(struct core *c, struct job_line *l, uint32_t ref, uint32_t before) {
    struct line_link *link = link_of(c, ref);
    uint32_t after = before ? link_of(c, before)->prev : l->tail;
    *link = (struct line_link){ .prev = after, .next = before };
    if (after)
        link_of(c, after)->next = ref;
    else
        l->head = ref;
    if (before)
        link_of(c, before)->prev = ref;
    else
        l->tail = ref;
    l->count++;
}

void job_line_add(struct core *c, struct job_line *l, uint32_t ref, enum place place) {
    job_line_insert_before(c, l, ref, place == AT_HEAD ? l->head : 0);
}

void job_line_remove(struct core *c, struct job_line *l, uint32_t ref) {
    struct line_link *link = link_of(c, ref);
    if (link->prev)
        link_of(c, link->prev)->next = link->next;
    else
        l->head = link->next;
    if (link->next)
        link_of(c, link->next)->prev = link->prev;
    else
        l->tail = link->prev;
    *link = (struct line_link){ 0 };
    l->count--;
}

struct sorting {
    const struct core *core;
    uint64_t (*key)(const struct core *, uint32_t ref);
};

static uint64_t ref_id(const struct core *c, uint32_t ref) {
    return job_at(c, ref & CHAN_KEYED ? chan_head(c, ref) : ref)->id;
}

static bool in_order(const struct sorting *s, uint32_t a, uint32_t b) {
    uint64_t key_a = s->key(s->core, a), key_b = s->key(s->core, b);
    return key_a != key_b ? key_a < key_b : ref_id(s->core, a) <= ref_id(s->core, b);
}

// Merges two chains linked by `next` only.
static uint32_t merge(const struct sorting *s, uint32_t a, uint32_t b) {
    uint32_t head = 0, *tail = &head;
    while (a && b) {
        uint32_t *from = in_order(s, a, b) ? &a : &b;
        *tail = *from;
        tail = &link_of(s->core, *from)->next;
        *from = *tail;
    }
    *tail = a ? a : b;
    return head;
}

// Cuts the longest sorted run off the front of a chain; returns the rest.
static uint32_t cut_run(const struct sorting *s, uint32_t chain) {
    struct line_link *link = link_of(s->core, chain);
    while (link->next && in_order(s, chain, link->next)) {
        chain = link->next;
        link = link_of(s->core, chain);
    }
    uint32_t rest = link->next;
    link->next = 0;
    return rest;
}

// A natural merge sort: runs are merged as in a binary counter, so what is sorted costs one pass.
void job_line_sort(struct core *c, struct job_line *l,
                   uint64_t (*key)(const struct core *, uint32_t)) {
    struct sorting s = { c, key };
    uint32_t runs[32] = { 0 };
    for (uint32_t chain = l->head; chain;) {
        uint32_t run = chain;
        chain = cut_run(&s, chain);
        size_t i = 0;
        for (; i < 31 && runs[i]; i++) {
            run = merge(&s, runs[i], run);
            runs[i] = 0;
        }
        runs[i] = runs[i] ? merge(&s, runs[i], run) : run;
    }
    uint32_t head = 0;
    for (size_t i = 0; i < 32; i++)
        head = runs[i] ? merge(&s, runs[i], head) : head;
    l->head = head;
    l->tail = 0;
    for (uint32_t ref = head; ref; ref = link_of(c, ref)->next) {
        link_of(c, ref)->prev = l->tail;
        l->tail = ref;
    }
}
