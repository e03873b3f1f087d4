// Keeper: the server and whoever keeps it running. SIGHUP has it read again what may change while
// it runs; systemd, if that has started it, hears that it is alive.
#ifndef SERVER_KEEPER_H
#define SERVER_KEEPER_H

#include <uv.h>

struct keeper {
    uv_signal_t hangup;
    uv_timer_t watchdog;
    void (*reload)(void *arg);
    void *arg;
};

// `reload` is called on the loop's thread. Errors are the loop's; handles are closed with all
// others of the loop.
int keeper_init(struct keeper *, uv_loop_t *, void (*reload)(void *arg), void *arg);

// How many connections there may be: what descriptors the system allows, raised as far as it lets
// us, without those that the store needs.
uint32_t keeper_connections(void);

#endif
