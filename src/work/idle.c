// See idle.h. The count of threads that run is of this instant: the fourth value of /proc/loadavg.
#include "work/idle.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 4, LOOKS_EACH = 16, LOOK_DOUBLINGS = 6 };

uint64_t idle_look_ms(uint32_t busy_looks) {
    uint32_t doublings = busy_looks / LOOKS_EACH;
    return LOOK_MS << (doublings < LOOK_DOUBLINGS ? doublings : LOOK_DOUBLINGS);
}

static bool read_kilobytes(const char *meminfo, const char *name, uint64_t *out) {
    const char *line = strstr(meminfo, name);
    unsigned long long value;
    if (!line || sscanf(line + strlen(name), " %llu kB", &value) != 1)
        return false;
    *out = value;
    return true;
}

bool idle_read(const char *loadavg, const char *meminfo, uint32_t processors) {
    unsigned running;
    uint64_t total, available;
    return sscanf(loadavg, "%*s %*s %*s %u/", &running) == 1 && running >= 1 &&
           running - 1 <= processors / 2 && read_kilobytes(meminfo, "MemTotal:", &total) &&
           read_kilobytes(meminfo, "MemAvailable:", &available) && available >= total / 4;
}

static bool read_proc(const char *path, char *out, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, out, room - 1);
    out[size > 0 ? size : 0] = 0;
    (void)close(fd);
    return size > 0;
}

bool machine_is_idle(void) {
    char loadavg[128], meminfo[512]; // the first lines are enough
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors > 0 && read_proc("/proc/loadavg", loadavg, sizeof loadavg) &&
           read_proc("/proc/meminfo", meminfo, sizeof meminfo) &&
           idle_read(loadavg, meminfo, (uint32_t)processors);
}
