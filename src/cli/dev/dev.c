// millrace dev: a server in memory, on this machine only, for the first steps. It is `millrace
// serve` with other defaults: a port that is in use is no reason to stop, and what it prints is
// what a user needs next, as lines to paste. After that only warnings are written.
//
//     dev_run ─► sockets (socket.c) ─► the sample's process (sample.c) ─► serve_with ─► dev_ready
#include "cli/dev/dev.h"

#include "base/buffer.h"
#include "base/errors.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/place.h"
#include "cli/quote.h"
#include "cli/serve.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEV_DRAIN_MS = 1000 }; // the jobs are lost anyway
enum { PROGRAM = 2 * PATH_MAX, LINE = PROGRAM + 512 };

struct dev {
    const struct input *in;
    char listen[PLACE_TEXT], http[PLACE_TEXT]; // for the server
    struct serve_start start;
    struct sample_process sample; // pid 0: none
};

// ---- What it prints ---------------------------------------------------------------------------

// Whether a shell that is given only the name finds this program.
static bool is_in_path(const char *self) {
    const char *path = getenv("PATH");
    char candidate[PATH_MAX], real[PATH_MAX];
    while (path && *path) {
        size_t size = strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s/millrace", (int)size, path);
        if (size && access(candidate, X_OK) == 0)
            return realpath(candidate, real) && strcmp(real, self) == 0;
        path += size + (path[size] == ':');
    }
    return false;
}

// The first word of a command that runs this program, from any directory.
static const char *program_word(char out[PROGRAM]) {
    char self[PATH_MAX];
    struct buffer quoted = { 0 };
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    snprintf(out, PROGRAM, "millrace");
    if (size <= 0)
        return out;
    self[size] = 0;
    if (!is_in_path(self) && quote_word(&quoted, self) == 0 && quoted.size < PROGRAM)
        snprintf(out, PROGRAM, "%.*s", (int)quoted.size, (const char *)quoted.data);
    buffer_finish(&quoted);
    return out;
}

// What the commands to paste have in common.
struct pasting {
    char program[PROGRAM];
    char at[SERVE_URL + 8]; // " --at URL", or "" if the command finds this server without
};

static void pasting_init(struct pasting *p, const char *url) {
    program_word(p->program);
    p->at[0] = 0;
    if (getenv("MILLRACE_URL") || strcmp(url, CLI_URL) != 0)
        snprintf(p->at, sizeof p->at, " --at %s", url);
}

// Writes a command: in `rest`, --at is inserted where a | is, or at the end.
static const char *paste(const struct pasting *p, const char *rest, char out[LINE]) {
    size_t before = strcspn(rest, "|");
    snprintf(out, LINE, "%s %.*s%s%s", p->program, (int)before, rest, p->at,
             rest + before + (rest[before] == '|'));
    return out;
}

static const struct {
    const char *name, *rest;
} dev_lines[] = {
    { "push", "push greetings ann --key ann" },
    { "work", "work greetings| --shell -- 'echo \"Hello, $(cat)!\" >&2'" },
    { "look", "stages" },
};
enum { DEV_LINES = sizeof dev_lines / sizeof *dev_lines };

static void print_json(const struct pasting *p, const char *url, const char *page, bool sample) {
    struct json j = { 0 };
    char line[LINE];
    json_open(&j, NULL, '{');
    json_text(&j, "url", url);
    if (*page)
        json_text(&j, "page", page);
    for (size_t i = 0; i < DEV_LINES; i++)
        json_text(&j, dev_lines[i].name, paste(p, dev_lines[i].rest, line));
    if (sample)
        json_open(&j, "sample", '[');
    for (size_t i = 0; sample && sample_hint(i); i++)
        json_text(&j, NULL, sample_hint(i)->stage);
    if (sample)
        json_close(&j, ']');
    json_close(&j, '}');
    json_end(&j);
}

static void print_sample(const struct pasting *p) {
    char line[LINE];
    const struct sample_hint *hint;
    printf("\nStages of the sample, and what to try:\n\n");
    for (size_t i = 0; (hint = sample_hint(i)) != NULL; i++)
        printf("  %-9s %s\n            %s\n", hint->stage, hint->about,
               paste(p, hint->command, line));
    printf("  all       %s\n", paste(p, "top", line));
}

static void print_lines(const struct pasting *p, const char *page, bool sample) {
    char line[LINE];
    printf("A server in memory: Ctrl-C ends it, and its jobs are gone then.\n\n");
    if (*page)
        printf("  page  %s\n", page);
    for (size_t i = 0; i < DEV_LINES; i++)
        printf("  %s  %s\n", dev_lines[i].name, paste(p, dev_lines[i].rest, line));
    if (sample)
        print_sample(p);
    printf("\nPaste these lines into another terminal. Only warnings follow here.\n");
}

static void dev_ready(void *arg, const char *url, const char *page) {
    const struct dev *d = arg;
    struct pasting p;
    pasting_init(&p, url);
    if (d->sample.pid)
        sample_connect(&d->sample, url);
    if (input_option(d->in, "--json"))
        print_json(&p, url, page, d->sample.pid != 0);
    else
        print_lines(&p, page, d->sample.pid != 0);
    fflush(stdout); // a program may wait for this
}

// What the sample runs is not worth waiting for.
static void dev_stop(void *arg) {
    struct dev *d = arg;
    sample_disconnect(&d->sample);
}

// ---- The command ------------------------------------------------------------------------------

// An address that the user has set is used as it is, on this machine only; else the default port,
// or one behind it, is listened on here.
static int dev_place(const struct dev *d, const char *option, const char *usual,
                     char out[PLACE_TEXT], int *out_fd) {
    const char *value = input_option(d->in, option);
    char host[PLACE_HOST];
    uint16_t port;
    if (value && strcmp(value, "off") == 0 && strcmp(option, "--http") == 0)
        return snprintf(out, PLACE_TEXT, "off"), 0;
    int err = place_read(d->in, option, value ? value : usual, host, &port);
    if (err == 0 && !place_is_loopback(host))
        return error_set(MR_EINVAL,
                         "'%s' cannot be %s: it is for this machine only; millrace serve --auth "
                         "serves other machines",
                         value, option);
    if (err == 0 && !value)
        err = dev_listen(port, out_fd, &port);
    if (err == 0)
        place_write(host, port, out);
    return err;
}

static int dev_open(struct dev *d) {
    int err = dev_place(d, "--listen", CLI_LISTEN, d->listen, &d->start.listen_fd);
    if (err == 0)
        err = dev_place(d, "--http", CLI_HTTP, d->http, &d->start.http_fd);
    if (err == 0 && input_option(d->in, "--sample"))
        err = sample_start(&d->sample);
    return err;
}

static enum cli_exit dev_serve(struct dev *d) {
    const char *level = input_option(d->in, "--log-level");
    struct input flags = { .command = command_find("serve", NULL) };
    input_set(&flags, "--store", "mem:");
    input_set(&flags, "--listen", d->listen);
    input_set(&flags, "--http", d->http);
    input_set(&flags, "--log-level", level ? level : "warn");
    return serve_with(&flags, &d->start);
}

enum cli_exit dev_run(const struct input *in) {
    struct dev d = { .in = in,
                     .start = { .command = "dev",
                                .drain_ms = DEV_DRAIN_MS,
                                .ends_on_hangup = true,
                                .ready = dev_ready,
                                .stop = dev_stop } };
    d.start.arg = &d;
    int err = dev_open(&d);
    if (err < 0) {
        complain("dev: %s", error_text());
        return err == MR_EINVAL ? CLI_USAGE : CLI_UNOPENED;
    }
    enum cli_exit code = dev_serve(&d);
    if (d.sample.pid)
        sample_end(&d.sample);
    return code;
}
