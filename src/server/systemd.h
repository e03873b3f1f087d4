// Systemd: what a server and whoever started it tell each other, without a library: states go as
// datagrams to the socket that NOTIFY_SOCKET names; a socket that already listens comes as
// descriptor 3. Where the environment says nothing of these, nothing happens.
#ifndef SERVER_SYSTEMD_H
#define SERVER_SYSTEMD_H

#include <stdint.h>

// "READY=1", "STOPPING=1", "STATUS=…"; several are parted by line breaks. What cannot be told is
// not: the server does not depend on it. Any thread.
void systemd_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

// RELOADING=1 with the instant at which it began.
void systemd_tell_reloading(void);

// How often WATCHDOG=1 is to be told, half of what is asked for; 0: never.
uint64_t systemd_watchdog_ms(void);

// The listening socket that was handed over, and its address as HOST:PORT. 0: there is none;
// MR_EINVAL: there are several, or it is not one that clients can connect to. Once: the environment
// is told that it was taken.
enum { SYSTEMD_ADDRESS = 64 };
int systemd_socket(int *out_fd, char out_address[SYSTEMD_ADDRESS]);

#endif
