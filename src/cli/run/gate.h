// Gate: when the next command may start: not before --delay has passed since the last start, and
// not while the machine has too much load or too little memory, unless nothing runs. Threads that
// have a job wait here. Zero lets everything pass at once.
//
// The load average follows what runs slowly. So each start within a second of the last look counts
// as one more of it; else all threads that wait would start together.
#ifndef CLI_RUN_GATE_H
#define CLI_RUN_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { GATE_LOOK_MS = 250, GATE_LOAD_MS = 1000 };

struct gate_limits {
    int64_t delay_ms;     // between two starts; 0: none
    bool has_load;        // there is a limit for the load
    double load;          // nothing starts while it is above this
    uint64_t memory_free; // nothing starts while less is available; 0: any will do
};

// What the machine has now.
struct gate_look {
    double load;
    uint64_t available; // bytes of memory
};

struct gate {
    struct gate_limits limits;
    pthread_mutex_t lock; // guards what follows
    pthread_cond_t changed;
    unsigned running;      // commands that were let through and have not ended
    uint64_t start_at_ms;  // the earliest time of the next start
    struct gate_look look; // the load of `looked_at_ms` …
    uint64_t looked_at_ms;
    unsigned started; // … and starts since then
};

void gate_open(struct gate *, const struct gate_limits *);
void gate_close(struct gate *);

// How long to wait before asking again; 0: a command may start now. The lock is held.
uint64_t gate_wait_ms(const struct gate *, uint64_t now_ms);

// Notes a start. The lock is held.
void gate_note_start(struct gate *, uint64_t now_ms);

// Waits until a command may start. False: `stopping` was set. Any thread.
bool gate_enter(struct gate *, const atomic_bool *stopping);
void gate_leave(struct gate *); // the command has ended
void gate_wake(struct gate *);  // `stopping` was set

#endif
