// Zones: time zones by name, read from the files of the system and kept for an hour.
//
// UTC needs no file. One thread at a time, as the shard that owns it.
#ifndef SHARD_ZONES_H
#define SHARD_ZONES_H

#include "base/limits.h"
#include "base/zone.h"

struct named_zone {
    char name[ZONE_NAME_MOST + 1];
    uint64_t read_ms; // when its file was read
    struct zone zone;
};

struct zones {
    struct named_zone *list;
    uint32_t count;
};

void zones_finish(struct zones *);

// The zone of this name; borrowed until the next call. MR_EINVAL: there is none, with what to do.
int zones_get(struct zones *, mr_bytes name, uint64_t now_ms, const struct zone **out);

#endif
