// Socket file: the Unix-domain socket of a server as a file, from its creation until the server
// stops. A server that ended without removing its file left one that no process listens on: that
// one is replaced. A file of a server that runs, and any other file, stays.
#ifndef SERVER_SOCKET_FILE_H
#define SERVER_SOCKET_FILE_H

#include <stdbool.h>
#include <sys/types.h>

enum { SOCKET_FILE_PATH = 108 }; // bytes of a path with its zero: the system's limit

struct socket_file {
    char path[SOCKET_FILE_PATH]; // "": there is none
    dev_t device;
    ino_t inode;
};

// Creates the file, never with more permissions than `mode`, and listens on it. The caller owns
// the descriptor. MR_EINVAL: the path is too long, or another file is there; MR_ENET: a server
// listens there, or the system refuses it. There is no new file then.
int socket_file_create(const char *path, mode_t mode, struct socket_file *out, int *out_fd);

// Removes the file unless another one has taken its place. To be called before the descriptor is
// closed: another server would replace the file in between. Does nothing the second time.
void socket_file_remove(struct socket_file *);

#endif
