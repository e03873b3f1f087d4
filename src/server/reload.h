// Reload: on SIGHUP the server reads again what may change while it runs; systemd, if it has
// started the server, is told that it is alive.
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

// How many connections there may be: what descriptors the system allows, raised as far as it lets
// us, without those that the store needs.
uint32_t most_descriptors(void);

#endif
