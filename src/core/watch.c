// See watch.h.
#include "core/epic.h"

#include "base/errors.h"

static void watcher_notify(struct core *c, struct watcher *w) {
    list_remove(&w->of_epic);
    if (c->config.events.epic)
        c->config.events.epic(c->config.owner, w);
}

static bool is_worth_a_look(const struct source *s, const struct watcher *w) {
    uint64_t unended = source_unended(s);
    return w->left >= 0 ? unended <= (uint64_t)w->left
                        : !unended && (s->seen.total || (s->orders && s->orders->cancelled));
}

// Watchers are sorted by `left`, largest first: the first whose condition does not hold ends the
// search, so the cost is one step more than there are watchers to notify.
void watchers_notify(struct core *c, struct source *s) {
    while (!list_empty(&s->watches.watchers)) {
        struct watcher *w = list_entry(s->watches.watchers.next, struct watcher, of_epic);
        if (!is_worth_a_look(s, w))
            return;
        watcher_notify(c, w);
    }
}

void watchers_notify_all(struct core *c, struct source *s) {
    while (!list_empty(&s->watches.watchers))
        watcher_notify(c, list_entry(s->watches.watchers.next, struct watcher, of_epic));
}

int core_epic_watch(struct core *c, mr_bytes stage, mr_bytes name, int64_t left,
                    struct watcher *w) {
    uint32_t index = source_find_epic(c, stage, name);
    if (!index)
        return epic_unknown(stage, name);
    struct source *s = source_at(c, index);
    w->left = left;
    struct list *before = &s->watches.watchers; // most wait for the end: searched from the back
    while (!list_empty(&s->watches.watchers) && before->prev != &s->watches.watchers &&
           list_entry(before->prev, struct watcher, of_epic)->left < left) {
        before = before->prev;
        c->steps++;
    }
    list_append(before, &w->of_epic);
    return 0;
}

void core_epic_unwatch(struct watcher *w) {
    list_remove(&w->of_epic);
}
