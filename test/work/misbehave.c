// misbehave HOW [ARGUMENT]: a command that does what commands should not, for exec_test and
// filter_test.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void wait_for_ever(void) {
    for (;;)
        pause();
}

static void say(const char *word) {
    puts(word);
    fflush(stdout);
}

// Tells that it is there in the fifo or file `path`.
static void arrive(const char *path) {
    if (!path)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dprintf(fd, "%d\n", (int)getpid());
    close(fd);
}

static void ignore_term(const char *path) {
    signal(SIGTERM, SIG_IGN);
    say("unresponsive");
    arrive(path);
    wait_for_ever();
}

static void on_term(int signal) {
    (void)signal;
    static const char bye[] = "bye\n";
    if (write(1, bye, sizeof bye - 1) < 0)
        _exit(1);
    _exit(0);
}

static void obey_term(const char *path) {
    signal(SIGTERM, on_term);
    say("here");
    arrive(path);
    wait_for_ever();
}

static void stop_itself(const char *path) {
    arrive(path);
    raise(SIGSTOP);
    say("went on");
    wait_for_ever();
}

static void flood(const char *count) {
    static char bytes[1 << 16];
    memset(bytes, 'x', sizeof bytes);
    unsigned long long left = count ? strtoull(count, NULL, 10) : ~0ULL;
    while (left > 0) {
        size_t piece = left < sizeof bytes ? (size_t)left : sizeof bytes;
        ssize_t written = write(1, bytes, piece);
        if (written < 0)
            _exit(9);
        left -= (unsigned long long)written;
    }
}

static void close_stdin(const char *unused) {
    (void)unused;
    close(0);
    say("closed");
}

// Leaves a process behind, in the same group or one of its own, that holds the pipes.
static void leave_behind(const char *path, int away) {
    int ready[2];
    if (pipe(ready) < 0)
        _exit(1);
    if (fork() == 0) {
        if (away)
            setsid();
        arrive(path);
        close(ready[0]);
        close(ready[1]);
        wait_for_ever();
    }
    char nothing;
    close(ready[1]);
    if (read(ready[0], &nothing, 1) < 0)
        _exit(1);
    say("left");
}

static void leave_in_group(const char *path) {
    leave_behind(path, 0);
}

static void leave_group(const char *path) {
    leave_behind(path, 1);
}

// Joins our process group instead of its own, ignores TERM, and waits.
static void join_parent(const char *unused) {
    (void)unused;
    setpgid(0, getpgid(getppid()));
    ignore_term(NULL);
}

static void crash(const char *number) {
    fputs("about to crash\n", stderr);
    raise((int)strtol(number, NULL, 10));
}

static void finish(const char *code) {
    fputs("first words\nlast words\n\n", stderr);
    exit((int)strtol(code, NULL, 10));
}

// Descriptors that are open, signals that are blocked or not at their default.
static void tell(const char *unused) {
    (void)unused;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.' && (int)strtol(e->d_name, NULL, 10) != dirfd(dir))
            printf("fd %s\n", e->d_name);
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < 65; i++) {
        struct sigaction action;
        if (sigismember(&mask, i) == 1)
            printf("blocked %d\n", i);
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            printf("not default %d\n", i);
    }
    printf("%s\n", getpgrp() == getpid() ? "own group" : "foreign group");
}

// ---- As a filter ------------------------------------------------------------------------------

static void crash_on_crash(char *line) {
    if (strncmp(line, "crash", 5) == 0)
        raise(SIGKILL);
    if (strncmp(line, "exit", 4) == 0)
        exit(3);
    if (strncmp(line, "hang", 4) == 0)
        wait_for_ever();
    fputs(line, stdout);
    if (strncmp(line, "twice", 5) == 0)
        fputs(line, stdout);
    if (strncmp(line, "part", 4) == 0)
        fputs("half a line", stdout);
    fflush(stdout);
}

static void filter(const char *word) {
    if (word)
        exit(4);
    static char line[1 << 20];
    while (fgets(line, sizeof line, stdin))
        crash_on_crash(line);
}

// As many lines as the number in the line says, then an empty one.
static void lines(const char *unused) {
    (void)unused;
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        for (long i = strtol(line, NULL, 10); i > 0; i--)
            printf("line %ld\n", i);
        say("");
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(const char *);
    } ways[] = {
        { "ignore-term", ignore_term },
        { "obey-term", obey_term },
        { "stop", stop_itself },
        { "flood", flood },
        { "close-stdin", close_stdin },
        { "leave-in-group", leave_in_group },
        { "join-parent", join_parent },
        { "leave-group", leave_group },
        { "crash", crash },
        { "exit", finish },
        { "tell", tell },
        { "filter", filter },
        { "lines", lines },
    };
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, argv[1]) == 0) {
            ways[i].run(argc > 2 ? argv[2] : NULL);
            return 0;
        }
    return 2;
}
