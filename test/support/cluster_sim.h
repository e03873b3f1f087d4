// Simulated cluster: many nodes that share the shards of one store, in simulated time.
//
//     every node, once a tick: put its note ─► read all notes and shards ─► assign
//     (cluster/assign.h)
//       ─► release what it should not own, claim what it should ─► replay ─► serve
//
// It runs the real assignment on simulated boards (sim_board.h); claims, replays and nodes are a
// model. A claim takes effect some milliseconds after the node has decided, so two nodes may race.
// All replays share the reading rate of one database. Everything follows from the seed.
#ifndef TEST_SUPPORT_CLUSTER_SIM_H
#define TEST_SUPPORT_CLUSTER_SIM_H

#include <stdbool.h>
#include <stdint.h>

struct cluster_sim_options {
    uint32_t nodes, shards; // at most so many nodes
    uint64_t seed;
    uint32_t tick_ms;             // between two looks of a node
    uint32_t takeover_ms;         // a node or owner that was not seen for so long is lost
    uint32_t unowned_ms;          // an owner that could not beat for so long stops to serve
    uint32_t settle_ms;           // a node reads the store for so long before it claims anything
    uint32_t claim_ms;            // a claim takes effect after 1 to so many
    uint64_t replay_bytes;        // of each shard
    uint64_t replay_bytes_per_ms; // of the database, for all replays together
};

// What happened since cluster_sim_measure.
struct cluster_sim_figures {
    uint64_t claims, fenced; // claims that succeeded, and those that came second
    uint64_t ticks, notes_read, shards_read, puts, beats;
    uint64_t outages; // how often a shard was not served, and was again
    uint64_t pause_50_ms, pause_99_ms, pause_most_ms; // for how long
    uint64_t settled_ms;                              // until the last change of an owner was done
    uint32_t fewest, most; // shards of a node that is alive and not draining
    uint32_t unserved;     // shards, now
};

struct cluster_sim;

// No node is alive at first. NULL never.
struct cluster_sim *cluster_sim_create(const struct cluster_sim_options *);
void cluster_sim_destroy(struct cluster_sim *);

void cluster_sim_start(struct cluster_sim *, uint32_t node, uint64_t after_ms);
void cluster_sim_kill(struct cluster_sim *, uint32_t node);
void cluster_sim_drain(struct cluster_sim *, uint32_t node); // it ends when it owns nothing
void cluster_sim_outage(struct cluster_sim *, bool lasts);   // of the store

void cluster_sim_run(struct cluster_sim *, uint64_t ms);

// Begins new figures.
void cluster_sim_measure(struct cluster_sim *);
struct cluster_sim_figures cluster_sim_figures(const struct cluster_sim *);

#endif
