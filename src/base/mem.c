// malloc with a countdown to a failure, for tests. Each thread has its own countdown, so that other
// threads of a test are not affected.
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINE = 64, LARGE = 128 << 10 };

// What one range may have of the addresses of a process whose addresses are limited.
enum { RANGE_SHARE = 64 };

static _Thread_local long countdown = -1;

static bool mem_fails_now(void) {
    if (__builtin_expect(countdown < 0, 1))
        return false;
    return countdown-- == 0;
}

void *mem_alloc(size_t size) {
    return mem_fails_now() ? NULL : calloc(1, size);
}

void *mem_alloc_table(size_t size) {
    if (size < LARGE)
        return mem_alloc(size);
    void *table = mem_fails_now() ? MAP_FAILED
                                  : mmap(NULL, size, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}

void mem_free_table(void *table, size_t size) {
    if (size < LARGE)
        mem_free(table);
    else
        mem_release(table, size);
}

void *mem_alloc_line(size_t size) {
    size_t whole = (size + LINE - 1) / LINE * LINE;
    void *block = mem_fails_now() ? NULL : aligned_alloc(LINE, whole);
    return block ? memset(block, 0, whole) : NULL;
}

void *mem_alloc_blocks(size_t size_of_block, size_t size) {
    return mem_fails_now() ? NULL : aligned_alloc(size_of_block, size);
}

void *mem_resize(void *block, size_t size) {
    return mem_fails_now() ? NULL : realloc(block, size);
}

void mem_free(void *block) {
    free(block);
}

static size_t range_most(void) {
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    struct rlimit addresses;
    bool is_limited = getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY;
    size_t share = is_limited ? (size_t)addresses.rlim_cur / RANGE_SHARE : memory;
    return share < memory ? share : memory;
}

// Where so many addresses are refused (another limit, or a checker of memory), half as many do.
void *mem_reserve(size_t *size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), most = range_most();
    size_t wanted = *size < most ? *size : most;
    for (wanted = (wanted + page - 1) / page * page; !mem_fails_now();
         wanted = wanted / 2 / page * page) {
        if (!wanted)
            return NULL;
        void *range =
            mmap(NULL, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED)
            continue;
        *size = wanted;
        return range;
    }
    return NULL;
}

bool mem_commit(void *from, size_t size) {
    return !mem_fails_now() && mprotect(from, size, PROT_READ | PROT_WRITE) == 0;
}

void mem_release(void *range, size_t size) {
    if (range)
        (void)munmap(range, size); // fails only for what is no range
}

long mem_fail_after(long successes) {
    long before = countdown;
    countdown = successes;
    return before;
}
