// Systemd: its protocols for readiness and socket activation, without its library: states are sent
// as datagrams to the socket that NOTIFY_SOCKET names; a listening socket is passed as
// descriptor 3. Without these variables in the environment nothing happens.
#ifndef SERVER_SYSTEMD_H
#define SERVER_SYSTEMD_H

#include <stdint.h>

// Sends "READY=1", "STOPPING=1", "STATUS=…", or several separated by line breaks. Failures are
// ignored: the server does not depend on them. Any thread.
void systemd_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Sends RELOADING=1 with the time.
void systemd_notify_reloading(void);

// The interval for WATCHDOG=1, half of the configured one; 0: none.
uint64_t systemd_watchdog_ms(void);

// The listening socket that systemd has passed, and its address as HOST:PORT or
// unix:PATH. 0: there is none; MR_EINVAL: there are several, or it does not listen on such an
// address. To be called once: it removes the variables from the environment.
enum { SYSTEMD_ADDRESS = 128 };
int systemd_socket(int *out_fd, char out_address[SYSTEMD_ADDRESS]);

#endif
