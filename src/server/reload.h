// Reload: on SIGHUP the server reads its options file, tokens and certificates again. Also sends
// the watchdog messages of systemd, if systemd has started the server.
#ifndef SERVER_RELOAD_H
#define SERVER_RELOAD_H

#include <uv.h>

struct reload {
    uv_signal_t hangup;
    uv_timer_t watchdog;
    void (*reload)(void *arg);
    void *arg;
};

// `reload` is called on the loop's thread. Errors are the loop's; handles are closed with all
// others of the loop.
int reload_init(struct reload *, uv_loop_t *, void (*reload)(void *arg), void *arg);

// The number of connections for which there are descriptors: raises the limit of the process as far
// as possible, and subtracts those that the store needs.
uint32_t most_descriptors(void);

#endif
