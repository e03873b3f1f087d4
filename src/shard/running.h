// Running: notes which attempts are running, in a file that survives the death of the process.
//
//     DIR/running   [ id  | attempt, check ][ id | attempt, check ][ 0 ] …     16 bytes a slot
//
// The file is mapped; a note is two stores to memory, which the system keeps when the process is
// killed. It is never synced: it covers processes that die, not machines. A slot is valid only if
// its check fits; anything else in the file is ignored. Attempts beyond RUNNING_MOST slots, or
// beyond the room on the disk, are not noted.
//
// Shard thread only.
#ifndef SHARD_RUNNING_H
#define SHARD_RUNNING_H

#include <stdbool.h>
#include <stdint.h>

enum { RUNNING_FIRST = 4096, RUNNING_MOST = 1 << 20 };

struct running;

// Maps the file in `dir`, made when missing, with the notes that an earlier process left. The
// caller has locked the directory. MR_EIO, MR_ENOMEM.
int running_open(const char *dir, struct running **out);

// `in_peace`: a clean close, which removes the file. Otherwise the notes stay. Takes NULL.
void running_close(struct running *, bool in_peace);

// Calls `each` for every note that was left, until it returns a negative code, which is returned.
int running_each_left(const struct running *, int (*each)(void *arg, uint64_t id, uint32_t attempt),
                      void *arg);
// Forgets all of them. Must be called once before running_begin.
void running_forget_left(struct running *);

void running_begin(struct running *, uint64_t id, uint32_t attempt);
void running_end(struct running *, uint64_t id);

#endif
