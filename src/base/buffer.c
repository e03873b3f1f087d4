// Doubling growth, bounded by the buffer's own limit.
#include "base/buffer.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"

enum { SMALLEST = 64 };

APART int buffer_grow(struct buffer *b, size_t more) {
    size_t limit = b->limit && b->limit < SIZE_MAX / 2 ? b->limit : SIZE_MAX / 2;
    if (b->size > limit || more > limit - b->size)
        return error_set(MR_ETOOBIG, "%zu bytes and %zu more are too many: the limit is %zu",
                         b->size, more, limit);
    if (more <= b->capacity - b->size)
        return 0;
    size_t capacity = b->capacity ? b->capacity : SMALLEST;
    while (capacity < b->size + more)
        capacity *= 2;
    void *data = mem_resize(b->data, capacity);
    if (!data)
        return error_set(MR_ENOMEM, "no memory for a buffer of %zu bytes", capacity);
    b->data = data;
    b->capacity = capacity;
    return 0;
}

size_t buffer_compact(struct buffer *b, size_t used) {
    if (used <= b->size / 2)
        return used;
    b->size -= used;
    memmove(b->data, b->data + used, b->size);
    return 0;
}

void buffer_finish(struct buffer *b) {
    mem_free(b->data);
    *b = (struct buffer){ .limit = b->limit };
}
