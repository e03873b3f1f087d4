// A real server for tests: `millrace serve` in a process of its own, on a free loopback port, ended
// with the test, whatever becomes of that.
#ifndef TEST_SUPPORT_SERVING_H
#define TEST_SUPPORT_SERVING_H

#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct serving {
    pid_t pid; // 0: it does not run
    int held;  // has its port while it is away; 0: none has
    uint16_t port;
    char url[64];
    FILE *notices;
};

// Of the stores that servers make from now on; 0: one shard.
static uint32_t serving_shards;

static inline _Noreturn void serving_exec(const char *store, uint16_t port, int to, pid_t test) {
    char where[32], shards[16];
    snprintf(where, sizeof where, "127.0.0.1:%u", port);
    snprintf(shards, sizeof shards, "%u", serving_shards);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != test)
        _exit(127); // it had died before that
    dup2(to, STDERR_FILENO);
    execl(MILLRACE, MILLRACE, "serve", "--http", "off", "--store", store, "--listen", where,
          serving_shards ? "--shards" : (char *)NULL, shards, (char *)NULL);
    _exit(127);
}

// Waits for a line that contains the text.
static inline void serving_hear(struct serving *s, const char *text) {
    char line[1024];
    while (fgets(line, sizeof line, s->notices))
        if (strstr(line, text))
            return;
    fail_msg("the server never printed '%s'", text);
}

// A port for a server that may come and go. It is bound here, too: so the system gives it to no
// other process, and to no client, which could even be connected to itself; but a server,
// which may reuse addresses, can listen there.
static inline uint16_t serving_hold_port(struct serving *s) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    if (s->held)
        close(s->held);
    s->held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(s->held, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    assert_int_equal(bind(s->held, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(s->held, (struct sockaddr *)&at, &size), 0);
    return ntohs(at.sin_port);
}

// Port 0: a free one, which stays its own; otherwise the one it has, and its URL is only read:
// those who talk to it may be doing so. Returns when clients can connect; it may still read its
// store.
static inline void serving_start(struct serving *s, const char *store, uint16_t port) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    if (!port) {
        s->port = serving_hold_port(s);
        snprintf(s->url, sizeof s->url, "millrace://127.0.0.1:%u", s->port);
    }
    pid_t test = getpid();
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        serving_exec(store, s->port, ends[1], test);
    close(ends[1]);
    s->notices = fdopen(ends[0], "r");
    serving_hear(s, "listens on 127.0.0.1:");
}

// Returns its exit status.
static inline int serving_end(struct serving *s, int signal) {
    int status = 0;
    if (!s->pid)
        return 0;
    kill(s->pid, signal);
    kill(s->pid, SIGCONT); // should it have been stopped
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    fclose(s->notices);
    s->pid = 0;
    return status;
}

#endif
