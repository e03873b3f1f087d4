// The loop with real sockets, in this process: a server without memory or descriptors reports that
// and continues, replies are sent before a server ends, and workers are listed with their
// addresses.
#include "base/errors.h"
#include "base/mem.h"
#include "server/notice.h"
#include "server/server.h"
#include "support/api.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { TIMEOUT_S = 60 }; // a hang is a failure; nothing else waits for time

// ---- A server in a thread of its own ------------------------------------------------------------

struct running {
    struct server_options options;
    pthread_t thread;
    struct gate ready;
    uint16_t port;
    long fail_after; // allocations of its thread, once it is ready; -1: none fails
    long left;       // of these when it has ended
    int err;
};

static void is_ready(void *arg, const char *host, uint16_t port, bool loaded) {
    struct running *r = arg;
    (void)host;
    if (!loaded)
        return;
    r->port = port;
    mem_fail_after(r->fail_after);
    gate_pass(&r->ready);
}

static void *serve(void *arg) {
    struct running *r = arg;
    r->err = server_run(&r->options);
    r->left = mem_fail_after(-1);
    return NULL;
}

// `dir` NULL: in memory.
static void server_start_at(struct running *r, const char *dir, long fail_after) {
    *r = (struct running){ .options = { .store = "test:",
                                        .store_url = store_in(dir),
                                        .host = "127.0.0.1",
                                        .drain_ms = 10000,
                                        .on_ready = is_ready },
                           .ready = GATE,
                           .fail_after = fail_after };
    r->options.arg = r;
    assert_int_equal(pthread_create(&r->thread, NULL, serve, r), 0);
    gate_wait(&r->ready, 1);
}

static void server_start(struct running *r, long fail_after) {
    server_start_at(r, NULL, fail_after);
}

static void server_stop(struct running *r) {
    kill(getpid(), SIGTERM);
    pthread_join(r->thread, NULL);
    assert_int_equal(r->err, 0);
}

// ---- A client -----------------------------------------------------------------------------------

// A connection; -1: the server does not listen.
static int dial_or_not(const struct running *r) {
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons(r->port) };
    struct timeval timeout = { .tv_sec = TIMEOUT_S };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    close(fd);
    return -1;
}

static int dial(const struct running *r) {
    int fd = dial_or_not(r);
    assert_true(fd >= 0);
    return fd;
}

// False: the server has closed the connection.
static bool send_exactly(int fd, const void *bytes, size_t size) {
    while (size) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            fail_msg("the server does not read");
        if (sent <= 0)
            return false;
        bytes = (const char *)bytes + sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool receive_exactly(int fd, void *to, size_t size) {
    while (size) {
        ssize_t got = recv(fd, to, size, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            fail_msg("the server neither answers nor closes the connection");
        if (got <= 0)
            return false;
        to = (char *)to + got;
        size -= (size_t)got;
    }
    return true;
}

static bool ask(int fd, const char *line, const char *reply) {
    char received[256];
    size_t size = strlen(reply);
    return send_exactly(fd, line, strlen(line)) && receive_exactly(fd, received, size) &&
           memcmp(received, reply, size) == 0;
}

// A line of an answer; "" when the connection is closed.
static const char *hear_line(int fd) {
    static char line[8192];
    size_t used = 0;
    while (used < sizeof line - 1 && receive_exactly(fd, line + used, 1) && line[used] != '\n')
        used++;
    line[used] = 0;
    return line;
}

// ---- Memory and descriptors ---------------------------------------------------------------------

enum { LARGE = 3 << 20 };
static char large[LARGE + 64], echoed[LARGE + 64];

// Blocked, and with more behind it than is read meanwhile. Returns the connection.
static int work_far_ahead(const struct running *r) {
    int fd = dial(r);
    int head =
        snprintf(large, sizeof large, "TAKE s WAIT -1\r\n*2\r\n$4\r\nECHO\r\n$%d\r\n", 200000);
    memset(large + head, 'x', 200000);
    memcpy(large + head + 200000, "\r\n", 2);
    send_exactly(fd, large, (size_t)head + 200000 + 2);
    return fd;
}

// One failure is survived by trying again.
static void push_surely(const struct running *r) {
    for (int tries = 0;; tries++) {
        int fd = dial(r);
        bool pushed = ask(fd, "PING\r\n", "+PONG\r\n") && ask(fd, "PUSH s a\r\n", "$1\r\n1\r\n");
        close(fd);
        if (pushed)
            return;
        assert_true(tries < 2);
    }
}

static void echo_much(const struct running *r) {
    int fd = dial(r);
    int head = snprintf(large, sizeof large, "*2\r\n$4\r\nECHO\r\n$%d\r\n", LARGE);
    memset(large + head, 'y', LARGE);
    memcpy(large + head + LARGE, "\r\n", 2);
    if (send_exactly(fd, large, (size_t)head + LARGE + 2))
        receive_exactly(fd, echoed, 2 + 7 + 2 + LARGE);
    close(fd);
}

// F51: every allocation of the server's thread fails once: its client gets an error or is closed,
// and all others are served.
static void F51_no_memory_costs_a_connection_at_most(void **state) {
    (void)state;
    struct running r;
    long n = 0;
    do {
        server_start(&r, n);
        int worker = work_far_ahead(&r);
        push_surely(&r);
        if (hear_line(worker)[0]) // the job; else it was sent away
            receive_exactly(worker, echoed, 200000);
        close(worker);
        echo_much(&r);
        int fd = dial(&r);
        bool served = ask(fd, "PING\r\n", "+PONG\r\n");
        close(fd);
        fd = dial(&r);
        assert_true(ask(fd, "PING\r\n", "+PONG\r\n") || served);
        close(fd);
        server_stop(&r);
        n++;
    } while (r.left < 0);
    assert_true(n > 5);
}

static void ready_is_enough(void *arg, const char *host, uint16_t port, bool loaded) {
    (void)arg, (void)host, (void)port;
    if (loaded)
        kill(getpid(), SIGTERM);
}

// How a server ends that may open so many files, in a process of its own: the system's library
// does not close what it opened before it failed.
static int serve_with_few(rlim_t more) {
    struct server_options o = { .store = "mem:", .host = "127.0.0.1", .on_ready = ready_is_enough };
    int status, err;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        err = server_run(&o); // what is made once in a process is there now
        int next = socket(AF_INET, SOCK_STREAM, 0);
        close(next);
        if (err == 0 &&
            setrlimit(RLIMIT_NOFILE, &(struct rlimit){ (rlim_t)next + more, 1024 }) == 0)
            err = server_run(&o);
        bool as_expected = err == 0 || strstr(error_text(), "too many open files");
        _exit(as_expected ? -err : 127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void X_a_server_without_descriptors_is_reported(void **state) {
    (void)state;
    int err;
    for (rlim_t more = 0; (err = serve_with_few(more)) != 0; more++)
        assert_true((err == MR_EIO || err == MR_ENET) && more < 100);
}

// ---- The end ------------------------------------------------------------------------------------

static void T22_replies_are_sent_before_the_server_ends(void **state) {
    (void)state;
    enum { BODY = 16 << 20 }; // more than a connection holds
    static const char head[] = "*2\r\n$4\r\nECHO\r\n$16777216\r\n", reply[] = "$16777216\r\n";
    char *body = malloc(BODY + 2), *received = malloc(BODY + 2), begin[sizeof reply - 1];
    struct running r;
    memset(body, 'z', BODY);
    memcpy(body + BODY, "\r\n", 2);
    server_start(&r, -1);
    int fd = dial(&r);
    assert_true(send_exactly(fd, head, sizeof head - 1) && send_exactly(fd, body, BODY + 2));
    assert_true(receive_exactly(fd, begin, sizeof begin)); // it is being sent
    kill(getpid(), SIGTERM);
    for (int other; (other = dial_or_not(&r)) >= 0;) // until the server has handled the signal
        close(other);
    assert_true(receive_exactly(fd, received, BODY + 2));
    assert_memory_equal(received, body, BODY + 2);
    assert_string_equal(hear_line(fd), "");
    pthread_join(r.thread, NULL);
    assert_int_equal(r.err, 0);
    close(fd);
    free(body);
    free(received);
}

// ---- A store that is not in memory --------------------------------------------------------------

static int drop_from_memory(const char *path, const struct stat *stat, int type, struct FTW *at) {
    (void)stat, (void)at;
    int fd = type == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        close(fd);
    }
    return 0;
}

enum { FAR = 50, FAR_BODY = 5000 };

// Every line of an answer to TAKE that is as long as a body.
static void expect_far_bodies(int fd) {
    for (int count = 0; count < FAR;) {
        const char *line = hear_line(fd);
        assert_true(line[0]); // it is still connected
        if (strlen(line) <= FAR_BODY)
            continue;
        assert_int_equal(line[0], 'a' + count % 26);
        assert_int_equal(strspn(line, (char[]){ line[0], 0 }), FAR_BODY);
        count++;
    }
}

// Bodies that have to be read from the disk come whole and in order; neither a taker that goes away
// meanwhile nor a server that ends does harm.
static void C7_bodies_come_from_the_disk_as_they_do_from_memory(void **state) {
    (void)state;
    char line[FAR_BODY + 64];
    struct store store = store_make();
    struct running r;
    server_start_at(&r, store.dir, -1);
    int fd = dial(&r);
    for (int i = 0; i < FAR; i++) {
        int head = snprintf(line, sizeof line, "PUSH s ");
        memset(line + head, 'a' + i % 26, FAR_BODY);
        memcpy(line + head + FAR_BODY, " KEY k\r\n", 8);
        assert_true(send_exactly(fd, line, (size_t)head + FAR_BODY + 8));
        hear_line(fd);
        hear_line(fd);
    }
    for (int i = 0; i < 3; i++) {
        nftw(store.dir, drop_from_memory, 16, FTW_PHYS);
        int taker = dial(&r);
        const char *take = "TAKE s COUNT 50 BATCH 50 WAIT -1\r\n";
        assert_true(send_exactly(taker, take, strlen(take)));
        if (i == 1)
            expect_far_bodies(taker);
        close(taker); // which gives them back
    }
    nftw(store.dir, drop_from_memory, 16, FTW_PHYS);
    assert_true(send_exactly(fd, "JOB 40 BODY\r\n", 13));
    server_stop(&r);
    close(fd);
    store_remove(&store);
}

// A request and the end of the input arrive together; the reply waits for the disk.
static void F50_a_half_closed_socket_gets_its_replies(void **state) {
    (void)state;
    struct store store = store_make();
    struct running r;
    server_start_at(&r, store.dir, -1);
    int fd = dial(&r);
    assert_true(send_exactly(fd, "PUSH s a\r\n", 10));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    assert_string_equal(hear_line(fd), "$1\r");
    assert_string_equal(hear_line(fd), "1\r");
    assert_string_equal(hear_line(fd), "");
    close(fd);
    server_stop(&r);
    store_remove(&store);
}

// ---- Stopping -----------------------------------------------------------------------------------

// Takes one job; true if this is its first attempt. Its id and token are read.
static bool take_first_attempt(int fd, const char *take, char id[64], char token[64]) {
    bool first = false;
    assert_true(send_exactly(fd, take, strlen(take)));
    assert_string_equal(hear_line(fd), "*1\r");
    long fields = strtol(hear_line(fd) + 1, NULL, 10);
    for (long i = 0; i < fields; i++) {
        char kind[8192];
        snprintf(kind, sizeof kind, "%s", hear_line(fd));
        first |= i == 5 && strcmp(kind, ":1\r") == 0;
        const char *value = kind[0] == '$' && kind[1] != '-' ? hear_line(fd) : "";
        if (i < 2)
            snprintf(i ? token : id, 64, "%.*s", (int)strcspn(value, "\r"), value);
    }
    return first;
}

// The second signal ends the time that running jobs have to end.
static void server_stop_with_leases(struct running *r) {
    kill(getpid(), SIGTERM);
    for (int other; (other = dial_or_not(r)) >= 0;) // until the server has handled the signal
        close(other);
    server_stop(r);
}

// U20: a graceful stop counts no attempt; U21: what was leased DETACHED stays so.
static void U20_U21_a_stop_gives_running_jobs_back_uncounted(void **state) {
    (void)state;
    struct store store = store_make();
    struct running r;
    char id[64], token[64], line[256];
    server_start_at(&r, store.dir, -1);
    int fd = dial(&r);
    assert_true(ask(fd, "PUSH s a ATTEMPTS 1\r\n", "$1\r\n1\r\n"));
    assert_true(take_first_attempt(fd, "TAKE s\r\n", id, token));
    assert_true(ask(fd, "PUSH d b ATTEMPTS 1\r\n", "$1\r\n2\r\n"));
    assert_true(take_first_attempt(fd, "TAKE d DETACHED\r\n", id, token));
    server_stop_with_leases(&r);
    close(fd);
    server_start_at(&r, store.dir, -1);
    fd = dial(&r);
    assert_true(ask(fd, "DEAD\r\n", "*0\r\n"));
    assert_true(ask(fd, "TAKE d\r\n", "*0\r\n"));
    snprintf(line, sizeof line, "DONE %s %s\r\n", id, token);
    assert_true(ask(fd, line, "+OK\r\n"));
    assert_true(take_first_attempt(fd, "TAKE s\r\n", id, token));
    snprintf(line, sizeof line, "DONE %s %s\r\n", id, token);
    assert_true(ask(fd, line, "+OK\r\n"));
    close(fd);
    server_stop(&r);
    store_remove(&store);
}

// ---- Looking ------------------------------------------------------------------------------------

// C1: what arrives while a session goes on in the backlog is neither lost nor mixed up.
static void C1_a_long_pipeline_is_answered_line_by_line(void **state) {
    (void)state;
    enum { LINES = 20000, ROOM = 32 };
    char *said = malloc((size_t)LINES * ROOM), wanted[ROOM], received[ROOM];
    size_t size = 0;
    struct running r;
    server_start(&r, -1);
    int fd = dial(&r);
    for (int i = 0; i < LINES; i++)
        size += (size_t)snprintf(said + size, ROOM, "ECHO line-%05d\r\n", i);
    assert_true(send_exactly(fd, said, size));
    for (int i = 0; i < LINES; i++) {
        int length = snprintf(wanted, sizeof wanted, "$10\r\nline-%05d\r\n", i);
        assert_true(receive_exactly(fd, received, (size_t)length));
        assert_memory_equal(received, wanted, (size_t)length);
    }
    close(fd);
    free(said);
    server_stop(&r);
}

static void D1_a_worker_is_shown_with_its_address(void **state) {
    (void)state;
    struct running r;
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    char expected[32];
    server_start(&r, -1);
    int fd = dial(&r);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    snprintf(expected, sizeof expected, "127.0.0.1:%u\r", ntohs(at.sin_port));
    assert_true(ask(fd, "TAKE s\r\n", "*0\r\n"));
    assert_true(send_exactly(fd, "WORKERS\r\n", 9));
    while (strcmp(hear_line(fd), "address\r") != 0)
        continue;
    hear_line(fd);
    assert_string_equal(hear_line(fd), expected);
    close(fd);
    server_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(X_a_server_without_descriptors_is_reported), // before there are threads
        cmocka_unit_test(F51_no_memory_costs_a_connection_at_most),
        cmocka_unit_test(T22_replies_are_sent_before_the_server_ends),
        cmocka_unit_test(C7_bodies_come_from_the_disk_as_they_do_from_memory),
        cmocka_unit_test(F50_a_half_closed_socket_gets_its_replies),
        cmocka_unit_test(U20_U21_a_stop_gives_running_jobs_back_uncounted),
        cmocka_unit_test(C1_a_long_pipeline_is_answered_line_by_line),
        cmocka_unit_test(D1_a_worker_is_shown_with_its_address),
    };
    notice_set(NOTICE_ERROR, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
