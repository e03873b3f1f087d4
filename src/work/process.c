// Starting and ending a command. The number of a process stays taken until its parent has waited
// for it, and that of a group until its last process is gone: so signals are sent first, and the
// wait comes last.
#include "work/process.h"

#include "base/errors.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOUR_MS = 3600000 };

uint64_t process_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int process_wait_ms(uint64_t until_ms) {
    uint64_t now_ms = process_now_ms();
    if (until_ms == UINT64_MAX)
        return -1;
    if (until_ms <= now_ms)
        return 0;
    return until_ms - now_ms < HOUR_MS ? (int)(until_ms - now_ms) : HOUR_MS;
}

// ---- Environment ------------------------------------------------------------------------------

// Of a job we may be part of ourselves, and no part of the jobs we run.
static bool is_of_a_job(const char *variable) {
    static const char *const names[] = { "MILLRACE_ID=",    "MILLRACE_KEY=",
                                         "MILLRACE_STAGE=", "MILLRACE_ATTEMPT=",
                                         "MILLRACE_CARRY=", "MILLRACE_DEADLINE_MS=" };
    if (strncmp(variable, "MILLRACE_", 9) != 0)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static size_t count_of(const char *const *list) {
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

static uint64_t left_ms(const mr_job *job) {
    uint64_t now_ms = process_now_ms();
    return job->deadline_at_ms > now_ms ? job->deadline_at_ms - now_ms : 0;
}

static size_t fill_of_job(struct environment *e, const mr_job *job, size_t at) {
    snprintf(e->id, sizeof e->id, "MILLRACE_ID=%" PRIu64, job->id);
    snprintf(e->attempt, sizeof e->attempt, "MILLRACE_ATTEMPT=%u", job->attempt);
    snprintf(e->stage, sizeof e->stage, "MILLRACE_STAGE=%s", job->stage);
    snprintf(e->key, sizeof e->key, "MILLRACE_KEY=%.*s", (int)job->key_size,
             (const char *)job->key);
    e->all[at++] = e->id;
    e->all[at++] = e->attempt;
    e->all[at++] = e->stage;
    e->all[at++] = e->key;
    if (!job->deadline_at_ms)
        return at;
    snprintf(e->deadline, sizeof e->deadline, "MILLRACE_DEADLINE_MS=%" PRIu64, left_ms(job));
    e->all[at++] = e->deadline;
    return at;
}

int environment_fill(struct environment *e, const mr_job *job, const char *const *more) {
    enum { OF_JOB = 5, END = 1 };
    const char *const *ours = (const char *const *)environ;
    size_t most = count_of(ours) + count_of(more) + OF_JOB + END;
    e->all = mem_alloc(most * sizeof *e->all);
    if (!e->all)
        return error_set(MR_ENOMEM, "no memory for a command's environment");
    size_t at = 0;
    for (; ours && *ours; ours++)
        if (!is_of_a_job(*ours))
            e->all[at++] = *ours;
    if (job)
        at = fill_of_job(e, job, at);
    for (; more && *more; more++)
        e->all[at++] = *more;
    e->all[at] = NULL;
    return 0;
}

void environment_finish(struct environment *e) {
    mem_free(e->all);
    e->all = NULL;
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

static int fill_actions(posix_spawn_file_actions_t *actions, const int descriptors[3]) {
    int failed = 0;
    for (int fd = 0; fd <= 2 && !failed; fd++)
        failed = posix_spawn_file_actions_adddup2(actions, descriptors[fd], fd);
    return failed ? failed : posix_spawn_file_actions_addclosefrom_np(actions, 3);
}

static void fill_attributes(posix_spawnattr_t *attributes) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &all);
    posix_spawnattr_setpgroup(attributes, 0); // its own
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                             POSIX_SPAWN_SETSIGDEF);
}

// 0 or an errno.
static int spawn(const struct process_order *o, pid_t *out) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions); // neither can fail
    posix_spawnattr_init(&attributes);
    fill_attributes(&attributes);
    int failed = fill_actions(&actions, o->descriptors);
    if (!failed)
        failed = posix_spawnp(out, o->argv[0], &actions, &attributes, (char *const *)o->argv,
                              (char *const *)o->environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

int process_start(const struct process_order *o, struct process *out) {
    struct process p;
    int failed = spawn(o, &p.pid);
    if (failed)
        return refuse_start(o->argv[0], failed);
    p.pidfd = pidfd_open(p.pid, 0);
    if (p.pidfd < 0) {
        int code = errno == EMFILE || errno == ENFILE ? MR_EBUSY : MR_EIO;
        error_set(code, "no descriptor for a process: %s", strerror(errno));
        process_finish(&p);
        return code;
    }
    *out = p;
    return 0;
}

// ---- Ending -----------------------------------------------------------------------------------

void process_signal(const struct process *p, int signal) {
    bool left_group = getpgid(p->pid) != p->pid;
    kill(-p->pid, signal);
    if (left_group)
        kill(p->pid, signal);
}

int process_finish(struct process *p) {
    process_signal(p, SIGKILL);
    int status = 0;
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (p->pidfd >= 0)
        close(p->pidfd);
    return status;
}

void process_tell(int status, char *out, size_t size) {
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        snprintf(out, size, "killed by signal %d (%s)", WTERMSIG(status), name ? name : "?");
    } else if (WEXITSTATUS(status)) {
        snprintf(out, size, "exit code %d", WEXITSTATUS(status));
    } else {
        out[0] = 0;
    }
}
