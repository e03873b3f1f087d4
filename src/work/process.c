// Starting and ending a command. The number of a process stays taken until its parent has waited
// for it, and that of a group until its last process is gone: so signals are sent first, and the
// wait comes last.
#include "work/process.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOUR_MS = 3600000 };

int process_wait_ms(uint64_t until_ms) {
    uint64_t now_ms = monotonic_ms();
    if (until_ms == UINT64_MAX)
        return -1;
    if (until_ms <= now_ms)
        return 0;
    return until_ms - now_ms < HOUR_MS ? (int)(until_ms - now_ms) : HOUR_MS;
}

// ---- Environment ------------------------------------------------------------------------------

// Variables of a job that this process itself runs in; jobs that it runs must not get them.
static bool is_of_a_job(const char *variable) {
    static const char *const names[] = {
        "MILLRACE_ID=",        "MILLRACE_KEY=",         "MILLRACE_STAGE=", "MILLRACE_ATTEMPT=",
        "MILLRACE_SIDE_FILE=", "MILLRACE_DEADLINE_MS=", "MILLRACE_BODY=",  "MILLRACE_STEM=",
        "MILLRACE_BASE=",      "MILLRACE_BASE_STEM=",   "MILLRACE_DIR=",   "MILLRACE_NUMBER=",
        "MILLRACE_RUN=",       "MILLRACE_META=",
    };
    if (strncmp(variable, "MILLRACE_", 9) != 0)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static size_t count_strings(const char *const *list) {
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

static uint64_t deadline_left_ms(const mr_job *job) {
    uint64_t now_ms = monotonic_ms();
    return job->deadline_at_ms > now_ms ? job->deadline_at_ms - now_ms : 0;
}

// Whether one of `more` is of this name, which ends with =.
static bool has_variable(const char *const *more, const char *name) {
    for (; more && *more; more++)
        if (strncmp(*more, name, strlen(name)) == 0)
            return true;
    return false;
}

static size_t fill_of_job(struct environment *e, const mr_job *job, const char *const *more,
                          size_t at) {
    snprintf(e->id, sizeof e->id, "MILLRACE_ID=%" PRIu64, job->id);
    snprintf(e->attempt, sizeof e->attempt, "MILLRACE_ATTEMPT=%u", job->attempt);
    snprintf(e->stage, sizeof e->stage, "MILLRACE_STAGE=%s", leased_job_stage(job));
    snprintf(e->key, sizeof e->key, "MILLRACE_KEY=%.*s", (int)job->key_size,
             (const char *)leased_job_key(job).data);
    e->all[at++] = e->id;
    e->all[at++] = e->attempt;
    e->all[at++] = e->stage;
    if (!has_variable(more, "MILLRACE_KEY=")) // whole, where it is longer than an engine's
        e->all[at++] = e->key;
    if (job->meta_size) {
        mr_bytes meta = leased_job_meta(job);
        snprintf(e->meta, sizeof e->meta, "MILLRACE_META=%.*s", (int)meta.size,
                 (const char *)meta.data);
        e->all[at++] = e->meta;
    }
    if (!job->deadline_at_ms)
        return at;
    snprintf(e->deadline, sizeof e->deadline, "MILLRACE_DEADLINE_MS=%" PRIu64,
             deadline_left_ms(job));
    e->all[at++] = e->deadline;
    return at;
}

// A run inside another run has the tags of both.
static void fill_tag(struct environment *e) {
    static _Atomic uint64_t last;
    const char *outer = getenv("MILLRACE_RUN");
    snprintf(e->tag, sizeof e->tag, "/%d.%" PRIx64 ".%" PRIx64 "/", (int)getpid(), monotonic_us(),
             ++last);
    bool fits = outer && strlen(outer) + sizeof e->tag + sizeof "MILLRACE_RUN=" < sizeof e->runs;
    snprintf(e->runs, sizeof e->runs, "MILLRACE_RUN=%s%s", fits ? outer : "", e->tag);
}

int environment_fill(struct environment *e, const mr_job *job, const char *const *more) {
    enum { OF_JOB = 7, END = 1 };
    const char *const *ours = (const char *const *)environ;
    size_t most = count_strings(ours) + count_strings(more) + OF_JOB + END;
    e->all = mem_alloc(most * sizeof *e->all);
    if (!e->all)
        return error_set(MR_ENOMEM, "no memory for a command's environment");
    size_t at = 0;
    fill_tag(e);
    e->all[at++] = e->runs;
    for (; ours && *ours; ours++)
        if (!is_of_a_job(*ours))
            e->all[at++] = *ours;
    if (job)
        at = fill_of_job(e, job, more, at);
    for (; more && *more; more++)
        e->all[at++] = *more;
    e->all[at] = NULL;
    return 0;
}

void environment_finish(struct environment *e) {
    mem_free(e->all);
    e->all = NULL;
}

// ---- Adopting ---------------------------------------------------------------------------------

// Orphans become children of the main thread; commands are children of other threads, unless theirs
// has ended.
static struct {
    atomic_bool on;
    pthread_mutex_t lock; // guards what follows
    pid_t *known;         // of process_start, and not finished
    size_t count, capacity;
} adopted = { .lock = PTHREAD_MUTEX_INITIALIZER };

enum { CHILDREN_TEXT = 4096, ENVIRON_MOST = 1 << 20 };

static FILE *children_open(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    return fopen(path, "re");
}

void processes_adopt(void) {
    FILE *children = children_open();
    if (!children)
        return;
    fclose(children);
    atomic_store(&adopted.on, prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
}

// Without memory for its number a command could be taken for an orphan, so adopting is switched
// off.
static void known_add(pid_t pid) {
    pthread_mutex_lock(&adopted.lock);
    if (adopted.count == adopted.capacity) {
        size_t capacity = 2 * adopted.capacity + 16;
        pid_t *more = mem_alloc(capacity * sizeof *more);
        if (more && adopted.count)
            memcpy(more, adopted.known, adopted.count * sizeof *more);
        if (more) {
            mem_free(adopted.known);
            adopted.known = more;
            adopted.capacity = capacity;
        }
    }
    if (adopted.count < adopted.capacity)
        adopted.known[adopted.count++] = pid;
    else
        atomic_store(&adopted.on, false);
    pthread_mutex_unlock(&adopted.lock);
}

static size_t known_find(pid_t pid) {
    size_t i = 0;
    while (i < adopted.count && adopted.known[i] != pid)
        i++;
    return i;
}

static void known_remove(pid_t pid) {
    pthread_mutex_lock(&adopted.lock);
    size_t i = known_find(pid);
    if (i < adopted.count)
        adopted.known[i] = adopted.known[--adopted.count];
    pthread_mutex_unlock(&adopted.lock);
}

static bool is_known_process(pid_t pid) {
    pthread_mutex_lock(&adopted.lock);
    bool known = known_find(pid) < adopted.count;
    pthread_mutex_unlock(&adopted.lock);
    return known;
}

// Whether it was started for the command of this tag.
static bool has_tag(pid_t pid, const char *tag) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd < 0 ? NULL : mem_alloc(ENVIRON_MOST);
    size_t size = 0;
    for (ssize_t got = 1; text && got > 0 && size<ENVIRON_MOST; size += got> 0 ? (size_t)got : 0)
        got = read(fd, text + size, ENVIRON_MOST - size);
    bool found = text && memmem(text, size, tag, strlen(tag));
    mem_free(text);
    if (fd >= 0)
        close(fd);
    return found;
}

// Looks once at adopted orphans; true: one of this tag was killed, and may have left more.
static bool kill_orphans(const char *tag) {
    FILE *children = children_open();
    bool ended = false;
    long pid;
    while (children && fscanf(children, "%ld", &pid) == 1) {
        if (is_known_process((pid_t)pid) || waitpid((pid_t)pid, NULL, WNOHANG) != 0)
            continue; // not an orphan; or one that has gone by itself
        if (!has_tag((pid_t)pid, tag))
            continue;
        kill((pid_t)pid, SIGKILL);
        while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
            ;
        ended = true;
    }
    if (children)
        fclose(children);
    return ended;
}

// Ends what the command has left: of its group, which was killed, and then all others.
static void kill_leftovers(const struct process *p) {
    while (waitpid(-p->pid, NULL, 0) > 0 || errno == EINTR)
        ;
    while (p->tag[0] && kill_orphans(p->tag))
        ;
}

// ---- Starting ---------------------------------------------------------------------------------

int standard_descriptors_open(void) {
    for (int fd = 0; fd <= 2;) {
        if (fcntl(fd, F_GETFD) >= 0)
            fd++;
        else if (open("/dev/null", O_RDWR) < 0) // the lowest that is free
            return error_set(MR_EIO, "/dev/null cannot be opened: %s", strerror(errno));
    }
    return 0;
}

static int refuse_start(const char *name, int why) {
    int code = MR_EINVAL;
    switch (why) {
    case ENOENT:
        error_set(code, "not found: %s", name);
        break;
    case EACCES:
        error_set(code, "not executable: %s", name);
        break;
    case ENOEXEC:
        error_set(code, "not a program: %s (a script must begin with #! and its interpreter)",
                  name);
        break;
    case EAGAIN:
    case EMFILE:
    case ENFILE:
        code = error_set(MR_EBUSY, "no more processes: %s", strerror(why));
        break;
    case ENOMEM:
        code = error_set(MR_ENOMEM, "no memory for a process");
        break;
    default:
        error_set(code, "cannot be executed: %s: %s", name, strerror(why));
    }
    errno = why;
    return code;
}

// As the shell finds it, but a file that is no program is not given to a shell. 0 or an errno.
static int find_program(const char *name, char out[PATH_MAX]) {
    const char *dir = getenv("PATH");
    int why = ENOENT;
    if (strchr(name, '/') || !dir)
        return snprintf(out, PATH_MAX, "%s", name) < PATH_MAX ? 0 : ENAMETOOLONG;
    for (size_t size; dir; dir = dir[size] ? dir + size + 1 : NULL) {
        size = strcspn(dir, ":");
        int used = snprintf(out, PATH_MAX, "%.*s%s%s", (int)size, dir, size ? "/" : "", name);
        struct stat about;
        if (used >= PATH_MAX || stat(out, &about) < 0)
            continue;
        if (S_ISREG(about.st_mode) && access(out, X_OK) == 0)
            return 0;
        why = EACCES;
    }
    return why;
}

// What the child does while it shares memory with its parent, before execve: system calls and
// nothing else.
static _Noreturn void become(const struct process_order *o, const char *path, int status_fd,
                             pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    if (o->dies_with_thread)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127); // the thread was gone before that
    bool ready = true;
    for (int fd = 0; fd <= 2; fd++)
        ready = ready && (o->descriptors[fd] == fd || dup2(o->descriptors[fd], fd) == fd);
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    if (ready)
        execve(path, (char *const *)o->argv, (char *const *)o->environment);
    int why = errno;
    ssize_t written = write(status_fd, &why, sizeof why);
    _exit(written == sizeof why ? 126 : 127);
}

// Signals are blocked meanwhile: no signal handler may run in the child.
static pid_t fork_and_become(const struct process_order *o, const char *path, int status_fd) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t parent = getpid();
    pid_t pid = vfork();
    if (pid == 0)
        become(o, path, status_fd, parent);
    int why = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return pid;
}

// 0 or an errno. The command's own is what the child writes to a pipe that a good start closes.
static int process_spawn(const struct process_order *o, const char *path, pid_t *out) {
    int status[2], why = 0;
    if (pipe2(status, O_CLOEXEC) < 0)
        return errno;
    pid_t pid = fork_and_become(o, path, status[1]);
    if (pid < 0)
        why = errno;
    close(status[1]);
    ssize_t got = pid < 0 ? 0 : read(status[0], &why, sizeof why);
    close(status[0]);
    if (got > 0)
        waitpid(pid, NULL, 0);
    if (why == 0)
        *out = pid;
    return why;
}

int process_start(const struct process_order *o, struct process *out) {
    struct process p = { 0 };
    char path[PATH_MAX];
    int failed = find_program(o->argv[0], path);
    if (!failed)
        failed = process_spawn(o, path, &p.pid);
    if (failed)
        return refuse_start(o->argv[0], failed);
    if (atomic_load(&adopted.on))
        known_add(p.pid);
    p.pidfd = pidfd_open(p.pid, 0);
    if (p.pidfd < 0) {
        int code = errno == EMFILE || errno == ENFILE ? MR_EBUSY : MR_EIO;
        error_set(code, "no descriptor for a process: %s", strerror(errno));
        process_finish(&p);
        return code;
    }
    snprintf(p.tag, sizeof p.tag, "%s", o->tag ? o->tag : "");
    *out = p;
    return 0;
}

// ---- Ending -----------------------------------------------------------------------------------

// Checks the group after the signal: a command that leaves its group at this moment gets the signal
// twice rather than never.
void process_signal(const struct process *p, int signal) {
    kill(-p->pid, signal);
    if (getpgid(p->pid) != p->pid)
        kill(p->pid, signal);
}

int process_finish(struct process *p) {
    process_signal(p, SIGKILL);
    int status = 0;
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (atomic_load(&adopted.on)) {
        kill_leftovers(p);
        known_remove(p->pid);
    }
    if (p->pidfd >= 0)
        close(p->pidfd);
    return status;
}

void process_describe(int status, char *out, size_t size) {
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        snprintf(out, size, "killed by signal %d (%s)", WTERMSIG(status), name ? name : "?");
    } else if (WEXITSTATUS(status)) {
        snprintf(out, size, "exit code %d", WEXITSTATUS(status));
    } else {
        out[0] = 0;
    }
}
