// Results: a directory for each line, named by its number (for an emitted job: by its id), with
// what its command wrote and how it ended. It is made under another name and renamed when it is
// complete.
//
//     DIR/17/stdout  DIR/17/stderr  DIR/17/status: the exit code as a shell has it, and in words
//
// The results of two runs are never in one directory: it would not be clear which line of which
// input they belong to. Only a run that resumes its journal finds its own results there.
#include "base/errors.h"
#include "cli/run/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 40 };

static int run_results_failed(const char *path, const char *doing) {
    return error_set(MR_EIO, "results: cannot %s %.200s: %s", doing, path, strerror(errno));
}

// The first entry in it; "": it is empty.
static int first_entry(const char *path, char *out, size_t size) {
    DIR *dir = opendir(path);
    if (!dir)
        return run_results_failed(path, "open");
    *out = 0;
    for (struct dirent *e; !*out && (e = readdir(dir));)
        if (e->d_name[0] != '.')
            snprintf(out, size, "%.100s", e->d_name);
    closedir(dir);
    return 0;
}

static int refuse_used(const char *dir) {
    char entry[128];
    int err = first_entry(dir, entry, sizeof entry);
    if (err < 0 || !*entry)
        return err;
    return error_set(MR_EINVAL,
                     "results: %.200s is not empty (there is '%s' in it): name a new directory, "
                     "or empty that one",
                     dir, entry);
}

int results_open(const char *dir, bool goes_on) {
    struct stat st;
    bool made = mkdir(dir, 0777) == 0;
    if (!made && errno != EEXIST)
        return run_results_failed(dir, "make");
    if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
        return error_set(MR_EINVAL, "results: %.200s is no directory: name a new or an empty one",
                         dir);
    if (access(dir, W_OK | X_OK) < 0)
        return run_results_failed(dir, "write to");
    return made || goes_on ? 0 : refuse_used(dir);
}

static int write_spool(int dir, const char *name, const struct spool *from) {
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return run_results_failed(name, "make");
    int err = spool_write(from, fd);
    if (close(fd) < 0 && err >= 0)
        err = run_results_failed(name, "write");
    return err;
}

// As in a shell: 128 and the signal, 124 for a timeout, 127 for what could not be started.
static int exit_code(const struct exec_result *x) {
    switch (x->end) {
    case EXEC_EXITED:
        return x->code;
    case EXEC_KILLED:
        return 128 + x->code;
    case EXEC_TIMED_OUT:
        return CLI_DEADLINE;
    case EXEC_STOPPED:
    case EXEC_OUTPUT:
        return CLI_FAILED;
    case EXEC_UNSTARTED:
        break;
    }
    return x->code == EACCES || x->code == ENOEXEC ? 126 : 127;
}

static int write_status(int dir, const struct exec_result *x) {
    struct spool text = { 0 };
    char line[EXEC_REASON + 16];
    const char *space = x->reason[0] ? " " : "";
    snprintf(line, sizeof line, "%d%s%s\n", exit_code(x), space, x->reason);
    int err = spool_append(&text, line, strlen(line));
    if (err >= 0)
        err = write_spool(dir, "status", &text);
    spool_finish(&text);
    return err;
}

static int fill(int dir, const struct exec_result *x) {
    int err = write_spool(dir, "stdout", &x->output);
    if (err >= 0)
        err = write_spool(dir, "stderr", &x->errors);
    return err < 0 ? err : write_status(dir, x);
}

static void remove_result(int results, const char *name) {
    static const char *const files[] = { "stdout", "stderr", "status" };
    int dir = openat(results, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlinkat(dir, files[i], 0);
    close(dir);
    unlinkat(results, name, AT_REMOVEDIR); // if that fails, so does what comes next
}

static int make_result(int results, const char *name, const struct exec_result *x) {
    char new[NAME];
    snprintf(new, sizeof new, ".%s.new", name);
    remove_result(results, new);
    if (mkdirat(results, new, 0777) < 0)
        return run_results_failed(new, "make");
    int dir = openat(results, new, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return run_results_failed(new, "open");
    int err = fill(dir, x);
    close(dir);
    if (err < 0)
        return err;
    remove_result(results, name); // of an earlier run
    return renameat(results, new, results, name) < 0 ? run_results_failed(name, "make") : 0;
}

int results_write(const char *dir, const char *name, const struct exec_result *x) {
    int results = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (results < 0)
        return run_results_failed(dir, "open");
    int err = make_result(results, name, x);
    close(results);
    return err;
}
