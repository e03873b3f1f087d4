// See unauthenticated.h. The list is short, so it is searched from its beginning.
#include "server/unauthenticated.h"

#include "server/limits.h"

#include <stdbool.h>
#include <string.h>

static struct unauthenticated *entry_of(struct list *l) {
    return list_entry(l, struct unauthenticated, of_list);
}

static bool is_from(const struct unauthenticated *s, const uint8_t *address) {
    return !address || memcmp(s->address, address, UNAUTHENTICATED_ADDRESS) == 0;
}

struct unauthenticated *unauthenticated_oldest(struct unauthenticated_list *d,
                                               const uint8_t *address) {
    for (struct list *l = d->list.next; l && l != &d->list; l = l->next)
        if (entry_of(l)->until_ms && is_from(entry_of(l), address))
            return entry_of(l);
    return NULL;
}

static uint32_t count_from(const struct unauthenticated_list *d, const uint8_t *address) {
    uint32_t count = 0;
    for (struct list *l = d->list.next; l && l != &d->list; l = l->next)
        count += entry_of(l)->until_ms && is_from(entry_of(l), address);
    return count;
}

struct unauthenticated *unauthenticated_to_evict(struct unauthenticated_list *d,
                                                 const uint8_t *address) {
    if (d->count < LIMIT_UNAUTHENTICATED_OF_ADDRESS)
        return NULL;
    if (count_from(d, address) >= LIMIT_UNAUTHENTICATED_OF_ADDRESS)
        return unauthenticated_oldest(d, address);
    return d->count >= LIMIT_UNAUTHENTICATED ? unauthenticated_oldest(d, NULL) : NULL;
}

void unauthenticated_add(struct unauthenticated_list *d, struct unauthenticated *s,
                         uint64_t now_ms) {
    s->until_ms = now_ms + UNAUTHENTICATED_MS;
    list_append(&d->list, &s->of_list);
    d->count++;
}

void unauthenticated_evict(struct unauthenticated_list *d, struct unauthenticated *s) {
    s->until_ms = 0;
    d->count--;
}

void unauthenticated_remove(struct unauthenticated_list *d, struct unauthenticated *s) {
    if (list_empty(&s->of_list))
        return;
    list_remove(&s->of_list);
    d->count -= s->until_ms != 0;
}

struct unauthenticated *unauthenticated_overdue(struct unauthenticated_list *d, uint32_t loop,
                                                uint64_t now_ms) {
    for (struct list *l = d->list.next; l && l != &d->list; l = l->next)
        if (entry_of(l)->loop == loop && entry_of(l)->until_ms <= now_ms)
            return entry_of(l);
    return NULL;
}

uint64_t unauthenticated_next_ms(const struct unauthenticated_list *d, uint32_t loop) {
    uint64_t next_ms = UINT64_MAX;
    for (struct list *l = d->list.next; l && l != &d->list; l = l->next)
        if (entry_of(l)->loop == loop && entry_of(l)->until_ms < next_ms)
            next_ms = entry_of(l)->until_ms;
    return next_ms;
}
