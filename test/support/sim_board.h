// Simulated board store: the boards (log/board.h) of any number of nodes, in memory, and the shards
// that they look at.
//
// All calls happen one after another, in one order that every node sees. The clock moves only when
// sim_board_advance is called. Faults: the store is unavailable for all, or for one board. Any
// thread.
#ifndef TEST_SUPPORT_SIM_BOARD_H
#define TEST_SUPPORT_SIM_BOARD_H

#include "log/board.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_board;

// A store of so many shards, which no node has claimed, without notes. Destroyed after its boards
// were closed.
struct sim_board *sim_board_create(uint32_t shards);
void sim_board_destroy(struct sim_board *);

// A board of one node; board_close closes it.
struct board *sim_board_open(struct sim_board *);

// The store's clock, which begins at 0.
uint64_t sim_board_now_ms(struct sim_board *);
void sim_board_advance(struct sim_board *, uint64_t ms);

// While it lasts every call is STREAM_UNAVAILABLE: of all boards, or of one.
void sim_board_outage(struct sim_board *, bool lasts);
void sim_board_cut(struct board *, bool lasts);

// What an owner's streams do, as far as board_look shows it: results of stream.h. A claim raises
// the epoch from `expected`, and names the owner.
int sim_board_claim(struct board *, uint32_t shard, uint64_t expected, const char *owner);
int sim_board_beat(struct board *, uint32_t shard, uint64_t epoch);
int sim_board_release(struct board *, uint32_t shard, uint64_t epoch);

#endif
