// Memory: every allocation of the engine goes through here, so that a test can make the Nth one
// fail and see that nothing is lost. Failure is NULL, never an abort.
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

// Zeroed memory. The caller frees it with mem_free. Any thread.
void *mem_alloc(size_t size);

// The same for a table that a larger one will replace: what is large goes back to the system when
// it is freed. malloc would keep it, after it has seen a few of them. Freed by mem_free_table with
// the same size; that takes NULL.
void *mem_alloc_table(size_t size);
void mem_free_table(void *table, size_t size);

// As mem_alloc, aligned to a cache line: for data that several threads change.
void *mem_alloc_line(size_t size);

// Memory that is not zeroed, aligned to `size_of_block`, a power of two; `size` is a multiple of
// it.
void *mem_alloc_blocks(size_t size_of_block, size_t size);

// As realloc: the old block stays valid and owned when this returns NULL. New bytes are not zeroed.
void *mem_resize(void *block, size_t size);

// Takes NULL.
void mem_free(void *block);

// Reserves a range of addresses, at most `*size` bytes: no more than the machine has memory, and
// less where the process may not have that much. Sets `*size`, a multiple of the page's. The range
// has no memory yet. NULL: not even a page can be had. The caller gives it to mem_release.
void *mem_reserve(size_t *size);

// Gives zeroed memory to whole pages of a reserved range. False: there is none.
bool mem_commit(void *from, size_t size);

// Takes NULL.
void mem_release(void *range, size_t size);

// For tests: the allocation after `successes` more fails, once (negative: none fails). Returns what
// was left of the countdown before; negative when the planned failure has happened or none was set.
long mem_fail_after(long successes);

#endif
