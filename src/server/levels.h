// Levels: a tuner for each client and stage whose level is asked for (LEVEL), fed with the jobs
// that the client ends.
//
//     LEVEL stage ──► find or make ──► climb_ask
//     DONE, FAIL, RELEASE ──► find ──► climb_completed        nothing while no client asks
//
// A client is a token and a name, over all its connections; but the jobs in flight that a level is
// compared with are those of the connection that took them. Names are compared, not only hashes: a
// client could choose a name whose hash is that of another. The number of tuners is limited: the
// tuner that was used longest ago makes room, one of the same token if that has its share.
//
// One thread.
#ifndef SERVER_LEVELS_H
#define SERVER_LEVELS_H

#include "base/bytes.h"
#include "base/map.h"
#include "base/slab.h"
#include "tune/climb.h"

enum { LEVELS_MOST = 4096, LEVELS_SHARE = LEVELS_MOST / 4 };

// Whose level: of the client with this token (its `maker`) and this name, at this stage.
struct level_key {
    uint64_t maker;
    mr_bytes client, stage;
};

struct client_level {
    uint32_t next;                    // the slab's, when the place is free
    uint16_t client_size, stage_size; // bytes of `names`
    uint8_t *names;                   // the client's, then the stage's; NULL: the place is free
    uint64_t maker, used_ms;
    struct climb climb;
};

struct levels {
    struct slab slab; // struct client_level
    struct map by_key;
};

void levels_init(struct levels *);
void levels_finish(struct levels *);

static inline bool levels_exist(const struct levels *l) {
    return l->slab.used > 0;
}

struct client_level *levels_find(const struct levels *, const struct level_key *); // NULL: none

// Makes one that is not there; copies the names, of fewer than 64 KiB each. NULL: there is no
// memory. May look at all that there are.
struct client_level *levels_make(struct levels *, const struct level_key *, uint64_t now_ms);

#endif
