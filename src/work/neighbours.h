// Neighbours: the workers on this machine that tune themselves, in all processes of the user. They
// share its processors, and a tuner that knows nothing of the others raises its level without end:
// it gains what it takes from them. So all count what they complete where each can read it.
//
//     /dev/shm/millrace-tuners-1-UID:   used │ place │ place │ place │ …     one a process
//
// A process has a place as long as it holds the lock on its byte of the file, which ends with the
// process however that ends. Where the file cannot be used, or has no place left, a process knows
// only its own workers.
#ifndef WORK_NEIGHBOURS_H
#define WORK_NEIGHBOURS_H

#include <stdint.h>

// A worker that tunes itself begins or ends; any thread.
void neighbours_join(void);
void neighbours_leave(void);

// A worker that has joined completed a job: returns how many others there are. If there are any, it
// is counted, and `out_completed` is what all of them, this worker included, have counted so far.
// Any thread; processes that came or went are noticed within a second.
uint32_t neighbours_count(uint64_t now_ms, uint64_t *out_completed);

#endif
