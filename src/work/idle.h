// Idle: whether this machine has nothing to do. Jobs that wait for something else leave it so,
// which is known long before the first of them has ended.
#ifndef WORK_IDLE_H
#define WORK_IDLE_H

#include <stdbool.h>
#include <stdint.h>

// From the texts of /proc/loadavg and /proc/meminfo: threads other than the one that reads
// want at most half of the processors, and a quarter of the memory is available. Texts that
// are not understood mean false.
bool idle_read(const char *loadavg, const char *meminfo, uint32_t processors);

// How long to wait before the next look at the machine, after so many in a row that found it busy
// (or too few jobs in flight): 4 ms at first, a quarter of a second after some seconds. Jobs may
// run for hours.
uint64_t idle_look_ms(uint32_t busy_looks);

// Looks at this machine.
bool machine_is_idle(void);

#endif
