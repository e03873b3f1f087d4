// Simulated disk: a `struct disk` in memory that loses what a real one may lose.
//
//     live      what the running program reads back
//     durable   what was synced: files by sync, names by sync_dir of their directory
//
// Calls that change something are numbered from 1. At a chosen number the machine dies: that call
// and all after it answer -EIO, until sim_disk_restart decides by a seed what of the difference
// between live and durable survives, sector by sector and name by name. Any thread.
#ifndef TEST_SUPPORT_SIM_DISK_H
#define TEST_SUPPORT_SIM_DISK_H

#include "log/disk.h"

#include <stdbool.h>
#include <stdint.h>

enum { SIM_SECTOR = 512 };

enum sim_survival {
    SIM_DROP,    // only what was synced
    SIM_KEEP,    // everything: the process died, not the machine
    SIM_SECTORS, // any of the unsynced sectors, names up to some point
    SIM_ANY,     // any of the unsynced sectors, any of the unsynced names
    SIM_SURVIVALS,
};

struct sim_disk;

struct sim_disk *sim_disk_create(void);
void sim_disk_destroy(struct sim_disk *);
const struct disk *sim_disk_disk(struct sim_disk *);

// How many changing calls there were.
uint64_t sim_disk_calls(struct sim_disk *);

// How many reads there were.
uint64_t sim_disk_reads(struct sim_disk *);

// How many writes past the page cache there were. The simulated disk wants whole blocks
// (DISK_BLOCK), aligned in memory and in the file, and aborts otherwise.
uint64_t sim_disk_directs(struct sim_disk *);

// What a file system thinks of such writes.
enum sim_direct { SIM_DIRECT, SIM_NO_DIRECT_OPEN, SIM_NO_DIRECT_WRITE };
void sim_disk_set_direct(struct sim_disk *, enum sim_direct);

// The machine dies at changing call `call` (0: never), or now.
void sim_disk_crash_at(struct sim_disk *, uint64_t call);
void sim_disk_crash(struct sim_disk *);
bool sim_disk_crashed(struct sim_disk *);

// Changing call `call` fails with -err, once (0: none does).
void sim_disk_fail_at(struct sim_disk *, uint64_t call, int err);

// All syncs, all writes or all allocations fail with -err from now on (0: they work).
enum sim_kind { SIM_WRITES, SIM_SYNCS, SIM_ALLOCATIONS, SIM_KINDS };
void sim_disk_break(struct sim_disk *, enum sim_kind, int err);

// Syncs of files, and writes that sync, wait from now on until they are let go.
void sim_disk_hold_syncs(struct sim_disk *, bool hold);
void sim_disk_await_sync(struct sim_disk *); // until one waits
void sim_disk_let_sync(struct sim_disk *);   // one of them; it has continued when this returns

// Nothing is in memory from now on: every read has to wait for the disk.
void sim_disk_chill(struct sim_disk *, bool cold);

// No write takes more than `bytes` (0: all of it).
void sim_disk_shorten(struct sim_disk *, size_t bytes);

// Files may have this many bytes in all; what would exceed it fails with -ENOSPC (0: no bound).
void sim_disk_space(struct sim_disk *, uint64_t bytes);

// The machine starts again, whether it died or not: descriptors and locks are lost.
void sim_disk_restart(struct sim_disk *, enum sim_survival, uint64_t seed);

// Direct access for tests: the live bytes of a file (NULL: there is none), its size, and removing
// and cutting it without the log's knowledge. What is changed here is durable at once.
uint8_t *sim_disk_file(struct sim_disk *, const char *path, uint64_t *out_size);
void sim_disk_touch(struct sim_disk *, const char *path); // after changing bytes
void sim_disk_remove(struct sim_disk *, const char *path);
void sim_disk_cut(struct sim_disk *, const char *path, uint64_t size);

// A copy of the disk as it is, with nothing open.
struct sim_disk *sim_disk_copy(struct sim_disk *);

#endif
