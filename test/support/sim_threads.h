// Simulated programs: code that has threads, locks, sockets and a clock, such as the C library,
// runs unchanged as steps of a simulation. The calls of the system that it makes are linked to
// functions of the same names with __wrap_ before them (test/meson.build lists them), here and in
// sim_sockets.c:
//
//     pthread_create ─► a stack of its own, which runs in the thread of the simulation
//     a lock, a wait ─► the stack is left, and entered again when it can go on
//     clock_gettime  ─► the time of the simulation
//     connect, send  ─► a wire to a simulated node (sim_nodes.h)
//
// Which thread goes on is decided by the seed: at each wait, now and then at a lock or its release,
// and a wait may end without a cause, as waits may. Outside of these threads the same calls reach
// the system.
#ifndef TEST_SUPPORT_SIM_THREADS_H
#define TEST_SUPPORT_SIM_THREADS_H

#include "support/sim_nodes.h"

enum { SIM_THREADS = 64, SIM_DESCRIPTORS = 64 };

struct sim_thread;
struct sim_descriptor;

// A process of a client.
struct sim_program {
    struct sim_nodes *nodes;
    int index;                // for people
    uint64_t ahead_ms;        // how far its clock is ahead of the store's
    uint64_t paused_until_ms; // nothing of it runs until then
    bool is_dead;             // it was killed: no connection is left, and none is made
    struct sim_thread *threads[SIM_THREADS];
    int thread_count;
    struct sim_descriptor *descriptors[SIM_DESCRIPTORS];
    uint64_t switches;
};

// Starts its first thread; it runs with the next step.
void sim_program_start(struct sim_program *, struct sim_nodes *, void *(*)(void *), void *arg);

// Runs what can go on, a little.
void sim_program_step(struct sim_program *);

// Its first thread has returned; others have, too, if it has joined them.
bool sim_program_is_over(const struct sim_program *);

// Nothing of it runs, and all that it knows is lost; its connections end. Its memory is still to be
// freed: from then on each step takes a second of its time, and it reaches no node.
void sim_program_kill(struct sim_program *);

// After the end of a program, or instead of it: frees what belongs to the simulation.
void sim_program_finish(struct sim_program *);

// For code of a program: the program, and a wait.
struct sim_program *sim_program_current(void); // NULL: none runs
void sim_sleep_ms(uint64_t ms);

// ---- For sim_sockets.c --------------------------------------------------------------------------

uint64_t sim_program_now_ns(const struct sim_program *);
// Waits until something of the program happens, at most until then; UINT64_MAX: no limit. May end
// without a cause.
void sim_thread_wait_descriptor(int fd, uint64_t until_ns);
bool sim_descriptor_is_ready(struct sim_program *, int fd);
void sim_descriptors_close(struct sim_program *);

#endif
