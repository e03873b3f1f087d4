// One poll a job: the line goes in while the answer comes out, so that neither side can wait for
// the other for ever.
#include "work/filter.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "work/process.h"
#include "work/stops.h"
#include "work/supervise.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 32 << 10 };

// A process that waits for its next line, or works on one.
struct filter {
    struct list link; // among the idle
    struct process process;
    int in, out; // this process's ends of its stdin and stdout
};

struct filters {
    struct filters_options options;
    struct stops stops;

    pthread_mutex_t lock; // guards what follows
    struct list idle;
    struct supervisor supervisor;
    char last_words[EXEC_REASON]; // how the last one ended that did so by itself
};

// A line that a filter works on.
struct filter_ask {
    const struct exec_order *order;
    struct filter *filter;
    mr_bytes left; // of the line
    bool end_left; // and of its end
    uint8_t last;  // byte of the answer so far
    uint64_t timeout_at_ms;
    struct exec_result result;
    int failed; // a failure that is not the filter's; negative
};

// What one step of the loop has led to.
enum ask_step { STEP_ON, STEP_ANSWERED, STEP_CRASHED, STEP_ENDED };

// ---- Processes --------------------------------------------------------------------------------

static void close_pair(const int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

static int open_pipes(int in[2], int out[2]) {
    if (pipe2(in, O_CLOEXEC) < 0)
        return error_set(MR_EBUSY, "no pipe for a filter: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC) < 0) {
        close_pair(in);
        return error_set(MR_EBUSY, "no pipe for a filter: %s", strerror(errno));
    }
    fcntl(in[1], F_SETFL, O_NONBLOCK); // this end only: a long line goes in piece by piece
    return 0;
}

static int start_process(const struct filters *f, struct filter *filter) {
    struct environment environment;
    int in[2], out[2];
    int err = open_pipes(in, out);
    if (err < 0)
        return err;
    err = environment_fill(&environment, NULL, NULL);
    if (err >= 0) {
        struct process_order order = { .argv = f->options.argv,
                                       .environment = environment.all,
                                       .tag = environment.tag,
                                       .descriptors = { in[0], out[1], STDERR_FILENO } };
        err = process_start(&order, &filter->process);
        environment_finish(&environment);
    }
    if (err < 0) {
        close_pair(in);
        close_pair(out);
        return err == MR_EINVAL ? error_set(MR_ESTOPPED, "%s", error_text()) : err;
    }
    close(in[0]);
    close(out[1]);
    filter->in = in[1];
    filter->out = out[0];
    return 0;
}

static int filter_create(const struct filters *f, struct filter **out) {
    struct filter *filter = mem_alloc(sizeof *filter);
    if (!filter)
        return error_set(MR_ENOMEM, "no memory for a filter");
    int err = start_process(f, filter);
    if (err < 0)
        mem_free(filter);
    else
        *out = filter;
    return err;
}

// Gives it until then to end by itself. Returns its status.
static int filter_destroy(struct filter *filter, uint64_t kill_at_ms) {
    struct pollfd on = { filter->process.pidfd, POLLIN, 0 };
    while (poll(&on, 1, process_wait_ms(kill_at_ms)) < 0 && errno == EINTR)
        ;
    int status = process_finish(&filter->process);
    if (filter->in >= 0)
        close(filter->in);
    close(filter->out);
    mem_free(filter);
    return status;
}

// Ends a filter that may be at work on this job (NULL: on none).
static void filter_end(struct filters *f, struct filter *filter, const mr_job *job) {
    process_signal(&filter->process, SIGTERM);
    process_signal(&filter->process, SIGCONT);
    filter_destroy(filter, stop_kill_at_ms(job, f->options.grace_ms));
}

// A filter has ended by itself: writes how, counts a restart, and returns its status.
static int filter_crashed(struct filters *f, struct filter *filter, char *out, size_t size) {
    char words[EXEC_REASON - 32];
    int status = filter_destroy(filter, stop_kill_at_ms(NULL, f->options.grace_ms));
    process_describe(status, words, sizeof words);
    snprintf(out, size, "the filter ended: %s", words[0] ? words : "exit code 0");
    pthread_mutex_lock(&f->lock);
    supervisor_restart(&f->supervisor, monotonic_ms());
    snprintf(f->last_words, sizeof f->last_words, "%s", out);
    pthread_mutex_unlock(&f->lock);
    return status;
}

// ---- The filters of a worker ------------------------------------------------------------------

int filters_create(const struct filters_options *options, struct filters **out) {
    int err = standard_descriptors_open();
    if (err < 0)
        return err;
    struct filters *f = mem_alloc(sizeof *f);
    if (!f)
        return error_set(MR_ENOMEM, "no memory for filters");
    f->options = *options;
    if (!f->options.grace_ms)
        f->options.grace_ms = EXEC_GRACE_MS;
    stops_init(&f->stops);
    pthread_mutex_init(&f->lock, NULL);
    list_init(&f->idle);
    supervisor_init(&f->supervisor, options->restarts, options->window_ms);
    *out = f;
    return 0;
}

void filters_destroy(struct filters *f) {
    if (!f)
        return;
    for (struct list *l = f->idle.next; l != &f->idle; l = l->next) {
        struct filter *filter = list_entry(l, struct filter, link);
        close(filter->in);
        filter->in = -1;
    }
    while (!list_empty(&f->idle)) {
        struct filter *filter = list_entry(list_first(&f->idle), struct filter, link);
        list_remove(&filter->link);
        filter_destroy(filter, stop_kill_at_ms(NULL, f->options.grace_ms));
    }
    stops_finish(&f->stops);
    pthread_mutex_destroy(&f->lock);
    mem_free(f);
}

void filter_stop_any(struct filters *f, const mr_job *job) {
    assert(job);
    stops_ring_any(&f->stops, job);
}

void filters_stop_any(struct filters *f) {
    stops_ring_any(&f->stops, NULL);
}

static int refuse_more(const struct filters *f) {
    const struct supervisor *s = &f->supervisor;
    return error_set(MR_ESTOPPED, "more than %u restarts in %" PRIu64 " ms: %s", s->restarts,
                     s->window_ms, f->last_words);
}

// Takes an idle filter; NULL: there is none. MR_ESTOPPED: the filters have given up.
static int take_idle(struct filters *f, struct filter **out) {
    pthread_mutex_lock(&f->lock);
    int err = f->supervisor.gave_up ? refuse_more(f) : 0;
    struct list *first = err < 0 ? NULL : list_first(&f->idle);
    if (first)
        list_remove(first);
    pthread_mutex_unlock(&f->lock);
    if (err >= 0)
        *out = first ? list_entry(first, struct filter, link) : NULL;
    return err;
}

// Finds a filter without unread output; others are replaced.
static int filter_get(struct filters *f, struct filter **out) {
    for (;;) {
        struct filter *filter;
        int err = take_idle(f, &filter);
        if (err < 0)
            return err;
        if (!filter)
            return filter_create(f, out);
        struct pollfd on = { filter->out, POLLIN, 0 };
        if (poll(&on, 1, 0) == 0) {
            *out = filter;
            return 0;
        }
        char words[EXEC_REASON];
        if (on.revents & POLLHUP)
            filter_crashed(f, filter, words, sizeof words);
        else
            filter_end(f, filter, NULL);
    }
}

static void filter_put(struct filters *f, struct filter *filter) {
    pthread_mutex_lock(&f->lock);
    list_append(&f->idle, &filter->link);
    pthread_mutex_unlock(&f->lock);
}

// ---- Asking -----------------------------------------------------------------------------------

// writev, but a filter that has gone is an error and no SIGPIPE, whatever the program does about
// that signal.
static ssize_t write_quietly(int fd, const struct iovec *pieces, int count) {
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    ssize_t written = writev(fd, pieces, count);
    int why = errno;
    static const struct timespec at_once;
    if (written < 0 && why == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe_signal, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return written;
}

static enum ask_step send_more(struct filter_ask *a) {
    struct iovec pieces[] = { { (void *)a->left.data, a->left.size }, { "\n", 1 } };
    ssize_t written = write_quietly(a->filter->in, pieces, 2);
    if (written < 0)
        return errno == EAGAIN || errno == EINTR ? STEP_ON : STEP_CRASHED;
    a->end_left = (size_t)written <= a->left.size;
    size_t used = a->end_left ? (size_t)written : a->left.size;
    a->left = used ? bytes_of((const uint8_t *)a->left.data + used, a->left.size - used) : a->left;
    return STEP_ON;
}

static enum ask_step filter_fail_attempt(struct filter_ask *a, enum exec_end end,
                                         const char *reason) {
    a->result.end = end;
    snprintf(a->result.reason, sizeof a->result.reason, "%s", reason);
    return STEP_ENDED;
}

// How much of what came belongs to the answer, with its end; 0: its end is not there yet.
static size_t find_end(const struct filter_ask *a, enum filter_mode mode, const uint8_t *data,
                       size_t size) {
    uint8_t last = a->result.output.size ? a->last : '\n';
    for (size_t i = 0; i < size; last = data[i++])
        if (data[i] == '\n' && (mode == FILTER_LINE || last == '\n'))
            return i + 1;
    return 0;
}

// `more` is what the end of the answer may still take off.
static enum ask_step too_much(struct filter_ask *a, uint64_t more) {
    char words[64];
    if (!a->order->max_output || a->result.output.size <= a->order->max_output + more)
        return STEP_ON;
    snprintf(words, sizeof words, "answered with more than %" PRIu64 " bytes",
             a->order->max_output);
    return filter_fail_attempt(a, EXEC_OUTPUT, words);
}

static enum ask_step describe_stopped(struct filter_ask *a) {
    char words[128];
    stop_describe(a->order->job, words, sizeof words);
    return filter_fail_attempt(a, EXEC_STOPPED, words);
}

static enum ask_step keep_answer(struct filter_ask *a, const uint8_t *data, size_t size) {
    a->failed = spool_append(&a->result.output, data, size);
    a->last = data[size - 1];
    return a->failed < 0 ? STEP_ENDED : STEP_ON;
}

// Takes the line ends off: that of the last line, and with FILTER_LINES the empty one.
static void answer_cut(struct spool *s, enum filter_mode mode) {
    uint64_t ends = mode == FILTER_LINES && s->size > 1 ? 2 : 1;
    spool_cut(s, s->size - ends);
}

static enum ask_step receive_answer(struct filter_ask *a, enum filter_mode mode) {
    uint8_t piece[PIECE];
    ssize_t got = read(a->filter->out, piece, sizeof piece);
    if (got <= 0)
        return got < 0 && errno == EINTR ? STEP_ON : STEP_CRASHED;
    size_t end = find_end(a, mode, piece, (size_t)got);
    enum ask_step turn = keep_answer(a, piece, end ? end : (size_t)got);
    if (turn == STEP_ON && end)
        answer_cut(&a->result.output, mode);
    if (turn == STEP_ON)
        turn = too_much(a, end ? 0 : 1);
    if (turn != STEP_ON || !end)
        return turn;
    if (end < (size_t)got || a->end_left)
        return filter_fail_attempt(a, EXEC_OUTPUT,
                                   "the filter is out of step: it wrote more than one "
                                   "answer to one line");
    return STEP_ANSWERED;
}

static enum ask_step timed_out(struct filter_ask *a) {
    char words[64];
    if (process_wait_ms(a->timeout_at_ms) != 0)
        return STEP_ON;
    snprintf(words, sizeof words, "timed out after %" PRId64 " ms", a->order->timeout_ms);
    return filter_fail_attempt(a, EXEC_TIMED_OUT, words);
}

static enum ask_step filter_ask_step(struct filter_ask *a, enum filter_mode mode,
                                     const struct stop *stop) {
    struct pollfd on[] = { { a->filter->out, POLLIN, 0 },
                           { a->end_left ? a->filter->in : -1, POLLOUT, 0 },
                           { stop->ring, POLLIN, 0 } };
    int ready = poll(on, sizeof on / sizeof *on, process_wait_ms(a->timeout_at_ms));
    if (ready <= 0)
        return timed_out(a);
    if (on[2].revents)
        return describe_stopped(a);
    enum ask_step turn = on[0].revents ? receive_answer(a, mode) : STEP_ON;
    if (turn == STEP_ON && on[1].revents)
        turn = send_more(a);
    return turn == STEP_ON ? timed_out(a) : turn;
}

static int filter_ask_end(struct filters *f, struct filter_ask *a, enum ask_step turn) {
    struct exec_result *r = &a->result;
    if (turn == STEP_ANSWERED) {
        filter_put(f, a->filter);
    } else if (turn == STEP_CRASHED) {
        int status = filter_crashed(f, a->filter, r->reason, sizeof r->reason);
        r->end = WIFSIGNALED(status) ? EXEC_KILLED : EXEC_EXITED;
        r->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    } else {
        filter_end(f, a->filter, a->order->job);
    }
    return a->failed;
}

static int filter_ask_run(struct filters *f, struct filter_ask *a, const struct stop *stop) {
    if (a->left.size && memchr(a->left.data, '\n', a->left.size)) {
        a->result.code = EINVAL;
        filter_fail_attempt(a, EXEC_UNSTARTED,
                            "the job has more than one line: a filter takes one");
        return 0;
    }
    if (stop_is_rung(stop)) {
        describe_stopped(a);
        return 0;
    }
    int err = filter_get(f, &a->filter);
    if (err < 0)
        return err;
    enum ask_step turn;
    do
        turn = filter_ask_step(a, f->options.mode, stop);
    while (turn == STEP_ON);
    return filter_ask_end(f, a, turn);
}

static mr_bytes without_end(mr_bytes line) {
    if (line.size && ((const char *)line.data)[line.size - 1] == '\n')
        line.size--;
    return line;
}

int filter_run(struct filters *f, const struct exec_order *order, struct exec_result *out) {
    struct filter_ask a = { .order = order,
                            .left = without_end(order->input),
                            .end_left = true,
                            .timeout_at_ms = order->timeout_ms > 0
                                                 ? monotonic_ms() + (uint64_t)order->timeout_ms
                                                 : UINT64_MAX };
    struct stop *stop;
    int err = stops_enter(&f->stops, order->job, &stop);
    if (err < 0)
        return err;
    err = filter_ask_run(f, &a, stop);
    stops_leave(&f->stops, stop);
    if (err < 0)
        exec_result_finish(&a.result);
    else
        *out = a.result;
    return err;
}
