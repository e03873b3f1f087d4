// See watch.h.
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

static uint64_t left_of(const struct watcher *w) {
    return w->left >= 0 ? (uint64_t)w->left : 0;
}

void watchers_tell(struct core *c, struct source *s) {
    if (source_unended(s) > s->watches.most)
        return;
    s->watches.most = 0;
    for (struct list *l = s->watches.watchers.next, *next; l != &s->watches.watchers; l = next) {
        struct watcher *w = list_entry(l, struct watcher, of_epic);
        next = l->next;
        if (is_worth_a_look(s, w))
            watcher_tell(c, w);
        else if (left_of(w) > s->watches.most)
            s->watches.most = left_of(w);
    }
}

void watchers_tell_all(struct core *c, struct source *s) {
    s->watches.most = 0;
    while (!list_empty(&s->watches.watchers))
        watcher_tell(c, list_entry(s->watches.watchers.next, struct watcher, of_epic));
}

int core_epic_watch(struct core *c, mr_bytes name, int64_t left, struct watcher *w) {
    uint32_t index = epic_find(c, name);
    if (!index)
        return epic_unknown(name);
    struct source *s = source_at(c, index);
    w->left = left;
    list_append(&s->watches.watchers, &w->of_epic);
    if (left_of(w) > s->watches.most)
        s->watches.most = left_of(w);
    return 0;
}

void core_epic_unwatch(struct watcher *w) {
    list_remove(&w->of_epic);
}
