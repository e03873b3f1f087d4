// Serve: runs a server for a command; `serve` and `dev` do. What differs is in struct serve_start.
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include "cli/cli.h"
#include "cli/place.h"

#include <stdint.h>

enum { SERVE_URL = 256 };

struct serve_start {
    const char *command;    // for messages
    int listen_fd, http_fd; // sockets that listen already, which the server closes; 0: none
    int64_t drain_ms;       // how long running jobs may take to end at shutdown
    bool ends_on_hangup;    // SIGHUP ends it, as when its terminal is closed; else it reloads
    // Called in the server's thread when jobs can be pushed and taken. `page` is "" if there is no
    // HTTP. May be NULL.
    void (*ready)(void *arg, const char *url, const char *page);
    void (*stop)(void *arg); // the same when it begins to wait for running jobs. May be NULL.
    void *arg;
};

// Serves, by the options of the command `serve`, until SIGINT or SIGTERM. Prints why it failed;
// returns what to exit with.
enum cli_exit serve_with(const struct input *flags, const struct serve_start *);

#endif
