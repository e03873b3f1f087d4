// One loop for each command: the calling thread waits in one poll for its end, its output, its
// timeout and a stop.
//
// Output comes through pipes and is read as it is written. Files as the command's stdout and stderr
// would save 2 % of the cost of `true` (its end would be the only news of it), but a flood would be
// noticed only when it has filled the disk, and `>/dev/stdout` in a script would truncate what came
// before. Input does come from a file, in memory: a command may read it or not, and no thread has
// to write it.
#include "work/exec.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "work/process.h"
#include "work/stops.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 32 << 10, LAST_LINE = 300, PASSED_KEPT = 8 << 10 };
enum { SHOWN_AT_ONCE = 4096 }; // what a pipe that can be written to takes without waiting

struct execs {
    int64_t grace_ms;
    int null; // /dev/null

    struct stops stops;
    _Atomic uint64_t memory_kills; // that the system had counted at the last look
};

struct command_pipe {
    int fd; // -1: at its end, or not wanted
    struct spool *to;
    bool passes; // also written to this process's stderr; only its end is kept
};

// A command that runs; used by its thread only.
struct command_run {
    const struct exec_order *order;
    struct process process;
    struct command_pipe pipes[2];
    struct exec_result result;
    bool ending; // TERM was sent; result.end says why
    int failed;  // the first failure that is not the command's; negative
    uint64_t timeout_at_ms, kill_at_ms;
    uint64_t look_at_ms; // UINT64_MAX: never
    const struct stop *stop;
    uint8_t unshown[SHOWN_AT_ONCE]; // of its stderr, until this process's stderr takes it
    size_t unshown_size;
    bool mute; // this process's stderr is not read: nothing more is written to it
};

// ---- The commands of a worker -----------------------------------------------------------------

// How many processes the system has killed for want of memory; 0 where it does not say.
static uint64_t count_memory_kills(void) {
    FILE *file = fopen("/proc/vmstat", "re");
    if (!file)
        return 0;
    uint64_t count = 0;
    char line[128];
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "oom_kill %" SCNu64, &count) == 1)
            break;
    fclose(file);
    return count;
}

int execs_create(const struct execs_options *options, struct execs **out) {
    int err = standard_descriptors_open();
    if (err < 0)
        return err;
    struct execs *e = mem_alloc(sizeof *e);
    if (!e)
        return error_set(MR_ENOMEM, "no memory to run commands");
    e->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (e->null < 0) {
        mem_free(e);
        return error_set(MR_EIO, "/dev/null cannot be opened: %s", strerror(errno));
    }
    e->grace_ms = options && options->grace_ms ? options->grace_ms : EXEC_GRACE_MS;
    e->memory_kills = count_memory_kills();
    stops_init(&e->stops);
    *out = e;
    return 0;
}

void execs_destroy(struct execs *e) {
    if (!e)
        return;
    stops_finish(&e->stops);
    close(e->null);
    mem_free(e);
}

void exec_stop_any(struct execs *e, const mr_job *job) {
    assert(job);
    stops_ring_any(&e->stops, job);
}

void execs_stop_any(struct execs *e) {
    stops_ring_any(&e->stops, NULL);
}

// ---- Starting ---------------------------------------------------------------------------------

static int refuse_descriptor(const char *what) {
    bool full = errno == EMFILE || errno == ENFILE;
    int code = full ? MR_EBUSY : errno == ENOMEM ? MR_ENOMEM : MR_EIO;
    return error_set(code, "no %s for a command: %s", what, strerror(errno));
}

static void close_open(int fd) {
    if (fd >= 0)
        close(fd);
}

// A file in memory that holds the input, to be read from its beginning.
static int command_input_open(mr_bytes input) {
    int fd = memfd_create("input", MFD_CLOEXEC);
    if (fd < 0)
        return refuse_descriptor("input");
    int err = file_write(fd, input.data, input.size);
    if (err < 0) {
        close(fd);
        return err;
    }
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static int pipe_open(struct command_pipe *s, struct spool *to, int *out_write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return refuse_descriptor("pipe");
    *s = (struct command_pipe){ .fd = ends[0], .to = to };
    *out_write_end = ends[1];
    return 0;
}

// Opens what becomes 0, 1 and 2; close_descriptors closes them again when the command has them.
static int open_descriptors(struct execs *e, struct command_run *r, int out[3]) {
    int err = 0;
    if (r->order->input.size)
        err = out[0] = command_input_open(r->order->input);
    else
        out[0] = e->null;
    if (err >= 0)
        err = pipe_open(&r->pipes[0], &r->result.output, &out[1]);
    if (err >= 0)
        err = pipe_open(&r->pipes[1], &r->result.errors, &out[2]);
    r->pipes[1].passes = r->order->pass_errors;
    return err < 0 ? err : 0;
}

static void close_descriptors(struct execs *e, const int descriptors[3]) {
    if (descriptors[0] != e->null)
        close_open(descriptors[0]);
    close_open(descriptors[1]);
    close_open(descriptors[2]);
}

static int command_start(struct execs *e, struct command_run *r) {
    struct environment environment;
    int err = environment_fill(&environment, r->order->job, r->order->variables);
    if (err < 0)
        return err;
    struct process_order p = { .argv = r->order->argv,
                               .environment = environment.all,
                               .tag = environment.tag,
                               .descriptors = { -1, -1, -1 },
                               .dies_with_thread = true };
    err = open_descriptors(e, r, p.descriptors);
    if (err >= 0)
        err = process_start(&p, &r->process);
    int why = errno;
    close_descriptors(e, p.descriptors);
    environment_finish(&environment);
    errno = why;
    return err;
}

// ---- Running ----------------------------------------------------------------------------------

static void command_stop(struct execs *e, struct command_run *r, enum exec_end why) {
    if (r->ending)
        return;
    r->ending = true;
    r->result.end = why;
    r->kill_at_ms = stop_kill_at_ms(r->order->job, e->grace_ms);
    process_signal(&r->process, SIGTERM);
    process_signal(&r->process, SIGCONT); // one that was stopped may tidy up as well
}

static void pipe_close(struct command_pipe *s) {
    close_open(s->fd);
    s->fd = -1;
}

// Writes pending output if stderr takes it at once: a reader that does not read must not keep this
// thread from ending the command. The lock keeps other threads from filling the pipe after the
// poll.
static void show_errors(struct command_run *r) {
    static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
    struct pollfd to = { STDERR_FILENO, POLLOUT, 0 };
    pthread_mutex_lock(&alone);
    if (poll(&to, 1, 0) > 0) {
        (void)file_write(STDERR_FILENO, r->unshown,
                         r->unshown_size); // there is no other place to report it
        r->unshown_size = 0;
    }
    pthread_mutex_unlock(&alone);
}

// The command has ended: waits until the rest is shown, but not beyond its time or its stop.
static void show_last_errors(struct command_run *r) {
    while (r->unshown_size) {
        struct pollfd on[] = { { STDERR_FILENO, POLLOUT, 0 }, { r->stop->ring, POLLIN, 0 } };
        int ready = poll(on, 2, r->ending ? 0 : process_wait_ms(r->timeout_at_ms));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready > 0 && on[0].revents) {
            show_errors(r);
        } else {
            r->mute = true;
            r->unshown_size = 0;
        }
    }
}

// Shows what the command has written to its stderr; keeps the end of it for the reason.
static int pipe_pass(struct command_run *r, const struct command_pipe *s, const uint8_t *piece,
                     size_t size) {
    assert(!r->unshown_size && size <= sizeof r->unshown);
    if (!r->mute) {
        memcpy(r->unshown, piece, size);
        r->unshown_size = size;
        show_errors(r);
    }
    int err = spool_append(s->to, piece, size);
    if (err >= 0)
        spool_keep_end(s->to, PASSED_KEPT);
    return err;
}

static int pipe_keep(struct command_run *r, const struct command_pipe *s, const uint8_t *piece,
                     size_t size, size_t *out_kept) {
    uint64_t room = r->order->max_output ? r->order->max_output - s->to->size : UINT64_MAX;
    *out_kept = size;
    if (s->passes)
        return pipe_pass(r, s, piece, size);
    *out_kept = size < room ? size : (size_t)room;
    return spool_append(s->to, piece, *out_kept);
}

// Takes up to `most` bytes of what there is. What does not fit ends the command, and its pipe.
static size_t pipe_read(struct execs *e, struct command_run *r, struct command_pipe *s,
                        size_t most) {
    uint8_t piece[PIECE];
    size_t room = s->passes ? SHOWN_AT_ONCE : sizeof piece, kept = 0;
    ssize_t got = read(s->fd, piece, most < room ? most : room);
    if (got <= 0) {
        pipe_close(s);
        return 0;
    }
    int err = pipe_keep(r, s, piece, (size_t)got, &kept);
    if (err >= 0 && kept == (size_t)got)
        return kept;
    if (err < 0 && !r->failed)
        r->failed = err;
    pipe_close(s);
    command_stop(e, r, EXEC_OUTPUT);
    return 0;
}

// What was written before the command ended, and is still in the pipe.
static void pipe_drain(struct execs *e, struct command_run *r, struct command_pipe *s) {
    int left = 0;
    show_last_errors(r);
    if (s->fd >= 0 && ioctl(s->fd, FIONREAD, &left) < 0)
        left = 0;
    while (s->fd >= 0 && left > 0) {
        left -= (int)pipe_read(e, r, s, (size_t)left);
        show_last_errors(r);
    }
    pipe_close(s);
}

// When the next time limit is over.
static uint64_t due_ms(const struct command_run *r) {
    return r->ending ? r->kill_at_ms : r->timeout_at_ms;
}

static uint64_t wake_ms(const struct command_run *r) {
    return r->look_at_ms < due_ms(r) ? r->look_at_ms : due_ms(r);
}

static void check_time_limits(struct execs *e, struct command_run *r) {
    if (process_wait_ms(due_ms(r)) != 0)
        return;
    if (!r->ending) {
        command_stop(e, r, EXEC_TIMED_OUT);
        return;
    }
    process_signal(&r->process, SIGKILL);
    r->kill_at_ms = UINT64_MAX;
}

static void check_look(struct command_run *r) {
    if (r->look_at_ms == UINT64_MAX || process_wait_ms(r->look_at_ms) != 0)
        return;
    r->order->look(r->order->look_arg);
    r->look_at_ms = monotonic_ms() + EXEC_LOOK_MS;
}

static void check_pipe(struct execs *e, struct command_run *r, struct command_pipe *s,
                       short events) {
    if (events & POLLIN)
        pipe_read(e, r, s, PIECE);
    else if (events)
        pipe_close(s);
}

// Returns when the command has ended.
static void command_wait(struct execs *e, struct command_run *r) {
    for (;;) {
        struct pollfd on[] = { { r->process.pidfd, POLLIN, 0 },
                               { r->pipes[0].fd, POLLIN, 0 },
                               { r->unshown_size ? -1 : r->pipes[1].fd, POLLIN, 0 },
                               { r->ending ? -1 : r->stop->ring, POLLIN, 0 },
                               { r->unshown_size ? STDERR_FILENO : -1, POLLOUT, 0 } };
        int ready = poll(on, sizeof on / sizeof *on, process_wait_ms(wake_ms(r)));
        assert(ready >= 0 || errno == EINTR || errno == ENOMEM);
        if (ready > 0 && on[0].revents)
            return;
        if (ready > 0) {
            check_pipe(e, r, &r->pipes[0], on[1].revents);
            check_pipe(e, r, &r->pipes[1], on[2].revents);
            if (on[3].revents)
                command_stop(e, r, EXEC_STOPPED);
            if (on[4].revents)
                show_errors(r);
        }
        check_time_limits(e, r);
        check_look(r);
    }
}

// ---- How it ended -----------------------------------------------------------------------------

static bool is_kill_for_memory(struct execs *e) {
    uint64_t count = count_memory_kills();
    return count > atomic_exchange(&e->memory_kills, count);
}

static void describe_exit(struct execs *e, struct exec_result *r, int status) {
    r->end = WIFSIGNALED(status) ? EXEC_KILLED : EXEC_EXITED;
    r->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    r->out_of_memory = r->end == EXEC_KILLED && r->code == SIGKILL && is_kill_for_memory(e);
    process_describe(status, r->reason, sizeof r->reason);
    if (r->end == EXEC_EXITED && r->code == 0)
        return;
    char line[LAST_LINE];
    spool_last_line(&r->errors, line, sizeof line);
    size_t used = strlen(r->reason);
    if (r->out_of_memory)
        snprintf(r->reason + used, sizeof r->reason - used, ", the system was out of memory");
    r->how_size = (int)strlen(r->reason);
    if (line[0])
        snprintf(r->reason + r->how_size, sizeof r->reason - (size_t)r->how_size, ": %s", line);
}

static void command_describe_end(struct execs *e, struct command_run *r, int status) {
    struct exec_result *result = &r->result;
    if (!r->ending) {
        describe_exit(e, result, status);
    } else if (result->end == EXEC_STOPPED) {
        stop_describe(r->order->job, result->reason, sizeof result->reason);
    } else if (result->end == EXEC_TIMED_OUT) {
        snprintf(result->reason, sizeof result->reason, "timed out after %" PRId64 " ms",
                 r->order->timeout_ms);
    } else {
        snprintf(result->reason, sizeof result->reason, "wrote more than %" PRIu64 " bytes",
                 r->order->max_output);
    }
}

static int command_not_started(struct command_run *r, int err) {
    int why = errno;
    pipe_close(&r->pipes[0]);
    pipe_close(&r->pipes[1]);
    if (err != MR_EINVAL)
        return err;
    r->result.end = EXEC_UNSTARTED;
    r->result.code = why;
    snprintf(r->result.reason, sizeof r->result.reason, "%s", error_text());
    return 0;
}

static int command_run_to_end(struct execs *e, struct command_run *r, const struct stop *stop) {
    if (stop_is_rung(stop)) {
        r->result.end = EXEC_STOPPED;
        stop_describe(r->order->job, r->result.reason, sizeof r->result.reason);
        return 0;
    }
    int err = command_start(e, r);
    if (err < 0)
        return command_not_started(r, err);
    r->stop = stop;
    r->look_at_ms = r->order->look ? monotonic_ms() + EXEC_LOOK_MS : UINT64_MAX;
    command_wait(e, r);
    process_signal(&r->process, SIGKILL); // what is left of its group writes no more
    pipe_drain(e, r, &r->pipes[0]);
    pipe_drain(e, r, &r->pipes[1]);
    command_describe_end(e, r, process_finish(&r->process));
    return r->failed;
}

int exec_run(struct execs *e, const struct exec_order *order, struct exec_result *out) {
    assert(order->argv && order->argv[0]);
    uint64_t timeout_at =
        order->timeout_ms > 0 ? monotonic_ms() + (uint64_t)order->timeout_ms : UINT64_MAX;
    struct command_run r = { .order = order,
                             .pipes = { { .fd = -1 }, { .fd = -1 } },
                             .timeout_at_ms = timeout_at };
    struct stop *stop;
    int err = stops_enter(&e->stops, order->job, &stop);
    if (err < 0)
        return err;
    err = command_run_to_end(e, &r, stop);
    stops_leave(&e->stops, stop);
    if (err < 0)
        exec_result_finish(&r.result);
    else
        *out = r.result;
    return err;
}

bool exec_is_missing(const struct exec_result *x) {
    return x->end == EXEC_UNSTARTED &&
           (x->code == ENOENT || x->code == EACCES || x->code == ENOEXEC || x->code == ENOTDIR);
}

void exec_result_finish(struct exec_result *r) {
    spool_finish(&r->output);
    spool_finish(&r->errors);
}
