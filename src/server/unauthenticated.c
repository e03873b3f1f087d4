// See unauthenticated.h.
#include "server/unauthenticated.h"

#include "server/limits.h"

#include <string.h>

static struct unauthenticated *entry_of(struct list *l) {
    return list_entry(l, struct unauthenticated, of_list);
}

// Lets in those who are known by now, and counts who is left of that address.
static uint32_t sweep(struct unauthenticated_list *d, const uint8_t *address) {
    uint32_t same = 0;
    for (struct list *l = d->list.next, *next; l && l != &d->list; l = next) {
        struct unauthenticated *s = entry_of(l);
        next = l->next;
        if (d->is_authenticated(s))
            unauthenticated_remove(d, s);
        else
            same += memcmp(s->address, address, UNAUTHENTICATED_ADDRESS) == 0;
    }
    return same;
}

struct unauthenticated *unauthenticated_oldest(struct unauthenticated_list *d,
                                               const uint8_t *address) {
    for (struct list *l = d->list.next, *next; l && l != &d->list; l = next) {
        struct unauthenticated *s = entry_of(l);
        next = l->next;
        if (d->is_authenticated(s))
            unauthenticated_remove(d, s);
        else if (!address || memcmp(s->address, address, UNAUTHENTICATED_ADDRESS) == 0)
            return s;
    }
    return NULL;
}

struct unauthenticated *unauthenticated_to_close(struct unauthenticated_list *d,
                                                 const uint8_t *address) {
    if (d->count < LIMIT_UNAUTHENTICATED_OF_ADDRESS)
        return NULL;
    if (sweep(d, address) >= LIMIT_UNAUTHENTICATED_OF_ADDRESS)
        return unauthenticated_oldest(d, address);
    return d->count >= LIMIT_UNAUTHENTICATED ? unauthenticated_oldest(d, NULL) : NULL;
}

void unauthenticated_add(struct unauthenticated_list *d, struct unauthenticated *s,
                         uint64_t now_ms) {
    s->until_ms = now_ms + UNAUTHENTICATED_MS;
    list_append(&d->list, &s->of_list);
    d->count++;
}

void unauthenticated_remove(struct unauthenticated_list *d, struct unauthenticated *s) {
    if (list_empty(&s->of_list))
        return;
    list_remove(&s->of_list);
    d->count--;
}

struct unauthenticated *unauthenticated_overdue(struct unauthenticated_list *d, uint64_t now_ms) {
    while (!list_empty(&d->list)) {
        struct unauthenticated *s = entry_of(d->list.next);
        if (s->until_ms > now_ms)
            return NULL;
        unauthenticated_remove(d, s);
        if (!d->is_authenticated(s))
            return s;
    }
    return NULL;
}

uint64_t unauthenticated_next_ms(const struct unauthenticated_list *d) {
    return list_empty(&d->list) ? UINT64_MAX : entry_of(d->list.next)->until_ms;
}
