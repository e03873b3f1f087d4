// For tests beside NATS: servers of the test's own, on free ports of the loopback, in folders of
// their own. They end with the test in any case.
#ifndef TEST_SUPPORT_NATS_SUPPORT_H
#define TEST_SUPPORT_NATS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/errors.h"
#include "log/stream_nats.h"
#include "support/byte_proxy.h"
#include "support/folder.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NATS_SERVER "/usr/sbin/nats-server"

enum { NATS_NODES_MOST = 3 };

struct nats_node {
    uint16_t port, route_port;
    pid_t pid; // 0: it does not run
};

// One server, or several that form a cluster.
struct nats_servers {
    char dir[64], settings[512];
    int count;
    struct nats_node nodes[NATS_NODES_MOST];
};

// A turn of a loop that waits for a condition.
static inline void turn_wait(void) {
    (void)poll(NULL, 0, 10);
}

static inline int loopback_bind(uint16_t *port) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(*port) };
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static inline bool port_answers(uint16_t port) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answers = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return answers;
}

static inline void node_write_config(const struct nats_servers *s, int i, const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "listen: 127.0.0.1:%u\nserver_name: n%d\njetstream { store_dir: '%s/%d' %s }\n",
            s->nodes[i].port, i, s->dir, i, s->settings);
    if (s->count > 1)
        fprintf(file, "cluster { name: test, listen: 127.0.0.1:%u, routes: [",
                s->nodes[i].route_port);
    for (int k = 0; s->count > 1 && k < s->count; k++)
        fprintf(file, "%s nats://127.0.0.1:%u", k ? "," : "", s->nodes[k].route_port);
    if (s->count > 1)
        fprintf(file, " ] }\n");
    fclose(file);
}

// Starts a node, and waits until it accepts connections.
static inline void nats_node_start(struct nats_servers *s, int i) {
    char path[128];
    snprintf(path, sizeof path, "%s/%d.conf", s->dir, i);
    node_write_config(s, i, path);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execl(NATS_SERVER, NATS_SERVER, "-c", path, (char *)NULL);
        _exit(127);
    }
    s->nodes[i].pid = pid;
    while (!port_answers(s->nodes[i].port)) {
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
        turn_wait();
    }
}

static inline void nats_node_stop(struct nats_servers *s, int i, int signal_number) {
    if (!s->nodes[i].pid)
        return;
    kill(s->nodes[i].pid, signal_number);
    waitpid(s->nodes[i].pid, NULL, 0);
    s->nodes[i].pid = 0;
}

// `settings` are those of JetStream.
static inline void nats_servers_start(struct nats_servers *s, int count, const char *settings) {
    *s = (struct nats_servers){ .count = count };
    snprintf(s->dir, sizeof s->dir, "/tmp/millrace-nats-XXXXXX");
    snprintf(s->settings, sizeof s->settings, "%s", settings);
    assert_non_null(mkdtemp(s->dir));
    int held[2 * NATS_NODES_MOST];
    for (int i = 0; i < count; i++) {
        held[2 * i] = loopback_bind(&s->nodes[i].port);
        held[2 * i + 1] = loopback_bind(&s->nodes[i].route_port);
    }
    for (int i = 0; i < 2 * count; i++)
        close(held[i]);
    for (int i = 0; i < count; i++)
        nats_node_start(s, i);
}

static inline void nats_servers_stop(struct nats_servers *s) {
    for (int i = 0; i < s->count; i++)
        nats_node_stop(s, i, SIGKILL);
    folder_remove(s->dir);
}

static inline const char *nats_servers_url(const struct nats_servers *s, char to[256]) {
    size_t used = (size_t)snprintf(to, 256, "nats://");
    for (int i = 0; i < s->count; i++)
        used += (size_t)snprintf(to + used, 256 - used, "%s127.0.0.1:%u", i ? "," : "",
                                 s->nodes[i].port);
    return to;
}

// Makes a cluster, as soon as the servers can.
static inline void nats_cluster_make(const struct stream_nats_options *o, uint32_t shards) {
    enum store_made made;
    int err = 1;
    while (err) {
        err = stream_nats_init(o, shards, &made);
        if (err)
            turn_wait();
    }
}

// Whether the tests can run; says why not.
static inline bool nats_is_installed(void) {
    if (access(NATS_SERVER, X_OK) == 0)
        return true;
    puts("1..0 # SKIP nats-server is not installed");
    return false;
}

#endif
