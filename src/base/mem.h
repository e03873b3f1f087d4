// Memory: every allocation of the engine goes through here, so that a test can make the Nth one
// fail and see that nothing is lost. Failure is NULL, never an abort.
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

// Zeroed memory. The caller frees it with mem_free. Any thread.
void *mem_alloc(size_t size);

// The same, aligned to a cache line: for data that several threads change.
void *mem_alloc_line(size_t size);

// As realloc: the old block stays valid and owned when this returns NULL. New bytes are not zeroed.
void *mem_resize(void *block, size_t size);

// Takes NULL.
void mem_free(void *block);

// For tests: the allocation after `successes` more fails, once (negative: none fails). Returns what
// was left of the countdown before; negative when the planned failure has happened or none was set.
long mem_fail_after(long successes);

#endif
