// Windows: read-ahead for sequential reads.
//
//     entries   ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪
//                    │  └─ window, in memory ─┘└─ posix_fadvise: will be read next
//                  read
//
// The first entry of a sequence is read by itself; an entry that follows it closely fills a window.
// A few sequences are followed at once; random reads do not disturb them. Written data never
// change, so a window stays valid as long as its segment exists.
//
// A window is taken under the log's lock and used without it, by one reader at a time. A reader
// that finds all windows taken reads without one.
#include "log/file.h"

#include "base/mem.h"

enum {
    WINDOW_NEAR = 16 << 10,  // bytes that a sequence may skip
    WINDOW_LARGE = 64 << 10, // larger entries gain nothing from windows
};

static bool window_has(const struct window *w, uint64_t at) {
    return at >= w->at && at < w->at + w->size;
}

static bool window_meets(const struct window *w, uint64_t at) {
    return window_has(w, at) || (at >= w->next && at < w->next + WINDOW_NEAR);
}

struct window *window_take(struct file_log *l, uint64_t at) {
    struct window *oldest = NULL;
    for (int i = 0; i < WINDOWS; i++) {
        struct window *w = &l->windows[i];
        if (w->taken)
            continue;
        if (w->next && window_meets(w, at)) {
            oldest = w;
            break;
        }
        if (!oldest || w->used < oldest->used)
            oldest = w;
    }
    if (!oldest)
        return NULL;
    oldest->taken = true;
    oldest->used = ++l->window_uses;
    oldest->upto = l->written;
    return oldest;
}

// The size of a window that begins at `at`: it ends with what is written of its segment.
static size_t window_room(const struct file_log *l, const struct segment *s, const struct window *w,
                          uint64_t at) {
    uint64_t end = segment_base(l, s->number) + s->capacity;
    end = w->upto < end ? w->upto : end;
    return end - at < WINDOW_SIZE ? (size_t)(end - at) : WINDOW_SIZE;
}

const uint8_t *window_read(const struct file_log *l, const struct segment *s, struct window *w,
                           uint64_t at, bool wait, size_t *out_size) {
    bool follows = w->next && at >= w->next && at < w->next + WINDOW_NEAR;
    if (follows && !w->data)
        w->data = mem_resize(NULL, WINDOW_SIZE);
    if (!follows || !w->data) {
        w->size = 0;
        return NULL;
    }
    size_t room = window_room(l, s, w, at);
    int64_t n = segment_read(l, s, at, wait, w->data, room);
    w->at = at;
    w->size = n < 0 ? 0 : (size_t)n;
    if (n < 0)
        return NULL;
    l->disk->advise(l->disk, s->fd, offset_of(l, at) + room, WINDOW_SIZE);
    *out_size = w->size;
    return w->data;
}

const uint8_t *window_find(const struct window *w, uint64_t at, size_t *out_size) {
    if (!window_has(w, at))
        return NULL;
    *out_size = (size_t)(w->at + w->size - at);
    return w->data + (at - w->at);
}

void window_note(struct window *w, uint64_t at, uint64_t size) {
    w->next = size <= WINDOW_LARGE ? at + size : 0;
}

void windows_finish(struct file_log *l) {
    for (int i = 0; i < WINDOWS; i++)
        mem_free(l->windows[i].data);
}
