// List: intrusive, doubly linked, circular. An empty list, and a node that is in no list, points at
// itself or is zero.
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

#define list_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

static inline void list_init(struct list *l) {
    l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l) {
    return !l->next || l->next == l;
}

// The node must be in no list.
static inline void list_append(struct list *l, struct list *node) {
    assert(list_empty(node));
    if (!l->next)
        list_init(l);
    node->prev = l->prev;
    node->next = l;
    l->prev->next = node;
    l->prev = node;
}

// Moves all nodes of another list to the end, in their order.
static inline void list_append_all(struct list *l, struct list *from) {
    if (list_empty(from))
        return;
    if (!l->next)
        list_init(l);
    from->next->prev = l->prev;
    l->prev->next = from->next;
    from->prev->next = l;
    l->prev = from->prev;
    list_init(from);
}

static inline void list_remove(struct list *node) {
    if (!node->next)
        return;
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

static inline struct list *list_first(const struct list *l) {
    return list_empty(l) ? NULL : l->next;
}

#endif
