// See door.h.
#include "server/door.h"

#include "server/limits.h"

#include <string.h>

static struct stranger *stranger_at(struct list *l) {
    return list_entry(l, struct stranger, of_door);
}

// Lets in those who are known by now, and counts who is left of that address.
static uint32_t sweep(struct door *d, const uint8_t *address) {
    uint32_t same = 0;
    for (struct list *l = d->strangers.next, *next; l && l != &d->strangers; l = next) {
        struct stranger *s = stranger_at(l);
        next = l->next;
        if (d->is_known(s))
            door_leave(d, s);
        else
            same += memcmp(s->address, address, DOOR_ADDRESS) == 0;
    }
    return same;
}

struct stranger *door_oldest(struct door *d, const uint8_t *address) {
    for (struct list *l = d->strangers.next, *next; l && l != &d->strangers; l = next) {
        struct stranger *s = stranger_at(l);
        next = l->next;
        if (d->is_known(s))
            door_leave(d, s);
        else if (!address || memcmp(s->address, address, DOOR_ADDRESS) == 0)
            return s;
    }
    return NULL;
}

struct stranger *door_must_leave(struct door *d, const uint8_t *address) {
    if (d->count < LIMIT_STRANGERS_OF_ADDRESS)
        return NULL;
    if (sweep(d, address) >= LIMIT_STRANGERS_OF_ADDRESS)
        return door_oldest(d, address);
    return d->count >= LIMIT_STRANGERS ? door_oldest(d, NULL) : NULL;
}

void door_enter(struct door *d, struct stranger *s, uint64_t now_ms) {
    s->until_ms = now_ms + STRANGER_MS;
    list_append(&d->strangers, &s->of_door);
    d->count++;
}

void door_leave(struct door *d, struct stranger *s) {
    if (list_empty(&s->of_door))
        return;
    list_remove(&s->of_door);
    d->count--;
}

struct stranger *door_overdue(struct door *d, uint64_t now_ms) {
    while (!list_empty(&d->strangers)) {
        struct stranger *s = stranger_at(d->strangers.next);
        if (s->until_ms > now_ms)
            return NULL;
        door_leave(d, s);
        if (!d->is_known(s))
            return s;
    }
    return NULL;
}

uint64_t door_next_ms(const struct door *d) {
    return list_empty(&d->strangers) ? UINT64_MAX : stranger_at(d->strangers.next)->until_ms;
}
