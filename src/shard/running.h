// Running: which attempts are under way, noted where the death of the process cannot wipe it out.
//
//     DIR/running   [ id  | attempt, check ][ id | attempt, check ][ 0 ] …     16 bytes a slot
//
// The file is mapped; a note is two stores to memory, which the system keeps when the process is
// killed. It is never synced: it is about processes that die, not about machines. A slot counts
// only if its check fits, so whatever else is found in the file is passed over. What does not fit
// into RUNNING_MOST slots, or on the disk, is not noted.
//
// Shard thread only.
#ifndef SHARD_RUNNING_H
#define SHARD_RUNNING_H

#include <stdbool.h>
#include <stdint.h>

enum { RUNNING_FIRST = 4096, RUNNING_MOST = 1 << 20 };

struct running;

// Maps the file in `dir`, made when missing, with what an earlier process has left in it. The
// directory is locked by the caller. MR_EIO, MR_ENOMEM.
int running_open(const char *dir, struct running **out);

// In peace: the file goes, nothing was running. Otherwise its notes stay. Takes NULL.
void running_close(struct running *, bool in_peace);

// Calls `each` for every note that was left, until it returns a negative code, which is returned.
int running_each_left(const struct running *, int (*each)(void *arg, uint64_t id, uint32_t attempt),
                      void *arg);

// Forgets all of them. Must be called once before running_begin.
void running_forget_left(struct running *);

void running_begin(struct running *, uint64_t id, uint32_t attempt);
void running_end(struct running *, uint64_t id);

#endif
