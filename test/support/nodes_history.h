// Random histories of several nodes on a replicated store, or of one server on files (sim_nodes.h):
// producers, workers, callers and operators, while nodes die, pause, lose the store, their disk or
// each other, wires are cut, clocks jump, and shards are handed over. Everything follows from the
// seed.
//
// Pushes are numbered, named (ONCE), delayed, have deadlines, or belong to epics with THEN, CANCEL
// and FORGET; schedules push as well. Workers take single jobs and blocks, some DETACHED, and
// commit results, states and emits, release and fail. Callers leave, and jobs are cancelled. Stages
// have limits, groups, and short retention. Clients repeat what had no reply, as the libraries do.
//
// Every job has a number, which is its body. Checked:
//
//     an acknowledged push, or emit of an acknowledged DONE, ends, and is committed or cancelled
//     once
//     a number has one id, and an id one number, also if its push was repeated under the same
//     number of a source
//     jobs of one key from one origin start in their order
//     a job gets the state that the last commit of its channel has set: none is lost or overtaken
//     a cancelled job is not taken any more; a limit is not exceeded
//     THEN comes once, after all jobs of its epic; a schedule has pushed as many jobs as were taken
//     replies come in the order of the requests, with what was asked for
//     a node sends nothing of a shard that another one owns, and the store accepts nothing from it
//     a log that stops has a cause
//     when the faults end, everything ends: no job and no emit between shards is left, and nothing
//     is held by a connection that does not know of it
//     nothing counts an attempt but a failure, if shards are only handed over
#ifndef TEST_SUPPORT_NODES_HISTORY_H
#define TEST_SUPPORT_NODES_HISTORY_H

#include "support/sim_nodes.h"

enum nodes_fault {
    FAULT_KILL,
    FAULT_PAUSE,
    FAULT_CUT_STORE,
    FAULT_APART,
    FAULT_CUT_WIRE,
    FAULT_JUMP,
    FAULT_DRAIN,
    FAULT_OUTAGE,
    FAULT_PAUSE_IN_APPEND,
    FAULT_STANDBY,
    FAULT_POWER,      // on files: the machine loses its power within the next calls of the disk
    FAULT_DISK_ERROR, // on files: one of them fails
    FAULT_DISK_FULL,  // on files: no file grows for a while
    FAULT_SHORT_WRITES,
    FAULT_READ_ONLY,   // on files: no write for a while
    FAULT_SILENCE,     // a connection delivers nothing for a while, and seems to be open
    FAULT_UNREACHABLE, // a node, for its clients: not for other nodes, nor for the store
    FAULT_KILL_ALL,
    FAULT_WALL_JUMP,      // the time of day, an hour back or a minute ahead
    FAULT_LIBRARY_KILLED, // a program that uses the library
    FAULT_LIBRARY_PAUSED,
    NODES_FAULTS,
};

// What histories have reached, in all.
struct nodes_reached {
    uint64_t histories, steps, simulated_ms, trims;
    uint64_t done, repeats, closed, emitted, linked; // linked: emitted to another shard
    uint64_t opened, left, lost, moved;              // shards; sessions that have moved
    uint64_t ticks, epics, epics_cancelled, cancelled;
    uint64_t handled; // jobs that were begun with the library
    uint64_t faults[NODES_FAULTS], store_faults[SIM_FAULTS];
};

// A mistake that has to be found.
struct nodes_plant {
    const char *name;
    enum sim_plant plant;
    enum sim_mistake mistake;
};

struct nodes_plan {
    uint64_t seed;
    bool flows;                      // jobs of the first stages emit through all others
    bool files;                      // one server, whose logs are files
    uint32_t without;                // bits of nodes_fault: these do not happen
    bool sound_store;                // the store does not fail by chance
    int steps;                       // until the faults end; 0: as many as usual
    const struct nodes_plant *plant; // NULL: none
    bool prints;                     // everything that happens
};

enum { NODES_FINDING = 400 };

// Runs a history. False: `finding` says what was wrong.
bool nodes_history_run(const struct nodes_plan *, struct nodes_reached *,
                       char finding[NODES_FINDING]);

const char *nodes_fault_name(enum nodes_fault);

#endif
