// malloc with a countdown to a failure, for tests. Each thread has its own countdown, so that other
// threads of a test are not affected.
#include "base/mem.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

static _Thread_local long countdown = -1;

static bool mem_fails_now(void) {
    if (__builtin_expect(countdown < 0, 1))
        return false;
    return countdown-- == 0;
}

void *mem_alloc(size_t size) {
    return mem_fails_now() ? NULL : calloc(1, size);
}

void *mem_alloc_line(size_t size) {
    size_t whole = (size + LINE - 1) / LINE * LINE;
    void *block = mem_fails_now() ? NULL : aligned_alloc(LINE, whole);
    return block ? memset(block, 0, whole) : NULL;
}

void *mem_resize(void *block, size_t size) {
    return mem_fails_now() ? NULL : realloc(block, size);
}

void mem_free(void *block) {
    free(block);
}

long mem_fail_after(long successes) {
    long before = countdown;
    countdown = successes;
    return before;
}
