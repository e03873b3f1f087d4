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

// Looks at this machine.
bool machine_is_idle(void);

#endif
