// Watchers: who waits for an epic, by epic, so that a job's end is told to those only whom it
// concerns. Each says how few of its jobs may be left before it wants to look again:
//
//     unended jobs   1,024 ── 900 ── 512 ─────────────── 0
//                                     │                  │
//                     a reader (left 512) goes on   EPIC_OVER looks, once the end is known
//
// Telling does not mean that it has come so far for good: whoever is told looks, and watches again.
#include "core/state.h"

#include "base/errors.h"

static void watcher_tell(struct core *c, struct watcher *w) {
    list_remove(&w->of_epic);
    if (c->config.events.epic)
        c->config.events.epic(c->config.owner, w);
}

static bool is_worth_a_look(const struct source *s, const struct watcher *w) {
    uint64_t unended = source_unended(s);
    return w->left >= 0 ? unended <= (uint64_t)w->left : !unended && s->seen.total;
}

static uint64_t watched_left(const struct watcher *w) {
    return w->left >= 0 ? (uint64_t)w->left : 0;
}

void watchers_tell(struct core *c, struct source *s) {
    if (source_unended(s) > s->watched)
        return;
    s->watched = 0;
    for (struct list *l = s->watchers.next, *next; l != &s->watchers; l = next) {
        struct watcher *w = list_entry(l, struct watcher, of_epic);
        next = l->next;
        if (is_worth_a_look(s, w))
            watcher_tell(c, w);
        else if (watched_left(w) > s->watched)
            s->watched = watched_left(w);
    }
}

void watchers_tell_all(struct core *c, struct source *s) {
    s->watched = 0;
    while (!list_empty(&s->watchers))
        watcher_tell(c, list_entry(s->watchers.next, struct watcher, of_epic));
}

int core_epic_watch(struct core *c, mr_bytes name, int64_t left, struct watcher *w) {
    uint32_t index = epic_find(c, name);
    if (!index)
        return error_set(MR_EGONE, "no epic of that name is known");
    struct source *s = source_at(c, index);
    w->left = left;
    list_append(&s->watchers, &w->of_epic);
    if (watched_left(w) > s->watched)
        s->watched = watched_left(w);
    return 0;
}

void core_epic_unwatch(struct watcher *w) {
    list_remove(&w->of_epic);
}
