// Dev: the parts of `millrace dev`, a server in memory for the first steps. dev.c reads the options
// and prints what to try; socket.c finds free ports; sample.c is the process of --sample.
#ifndef CLI_DEV_DEV_H
#define CLI_DEV_DEV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// ---- Ports ------------------------------------------------------------------------------------

// Listens on 127.0.0.1, at this port or, while that is in use, at one of those behind it. The
// socket is close-on-exec. MR_ENET: none of DEV_PORTS is free.
enum { DEV_PORTS = 64 };
int dev_listen(uint16_t port, int *out_fd, uint16_t *out_port);

// ---- The sample -------------------------------------------------------------------------------

// A stage of the sample, as the hints describe it.
struct sample_hint {
    const char *stage, *about; // about: what it shows
    const char *command;       // to try, without its first word and --at
};

// The stages in order; NULL: there are no more.
const struct sample_hint *sample_hint(size_t index);

// A process that fills the stages and works on them. It ends when this process does, however that
// comes about: it waits for the end of a pipe.
struct sample_process {
    pid_t pid;
    int pipe; // -1: it is ending
};

// Starts the process, which waits for a URL; to be called before there are threads. MR_EIO.
int sample_start(struct sample_process *);
void sample_connect(const struct sample_process *, const char *url); // passes it the URL
void sample_disconnect(struct sample_process *);                     // ends it, if there is one
void sample_end(struct sample_process *);                            // the same, and waits for that

#endif
