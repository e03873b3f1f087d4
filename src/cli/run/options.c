// Reads the options of run, and checks that its command exists.
#include "base/errors.h"
#include "cli/output.h"
#include "cli/run/run.h"
#include "cli/values.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ---- Options ----------------------------------------------------------------------------------

static bool run_options_refuse(const struct input *in) {
    complain("%s: %s", in->command->name, error_text());
    return false;
}

static bool read_halt(const struct input *in, enum halt *out) {
    static const char *const names[] = { "never", "soon", "now" };
    const char *text = input_option(in, "--halt");
    for (int i = 0; text && i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum halt)i;
            return true;
        }
    }
    if (text)
        complain("run: --halt '%.30s' is none of never, soon, now", text);
    return !text;
}

bool run_options_read(const struct input *in, struct run_options *o) {
    o->input = input_option(in, "--stdin") != NULL;
    o->zero_bytes = input_option(in, "-0") != NULL;
    o->keep_order = input_option(in, "--keep-order") != NULL;
    o->progress = input_option(in, "--progress") != NULL;
    o->json = input_option(in, "--json") != NULL;
    o->journal = input_option(in, "--journal");
    o->results = input_option(in, "--results");
    if (!input_jobs(in, &o->jobs) || !read_halt(in, &o->halt) ||
        !input_count(in, "--retries", UINT16_MAX - 1, &o->retries) ||
        !input_duration(in, "--timeout", &o->timeout_ms) ||
        !input_duration(in, "--deadline", &o->deadline_ms))
        return false;
    if (keys_open(input_option(in, "--key-field"), input_option(in, "--key-regex"),
                  input_option(in, "--key-json"), &o->keys) < 0)
        return run_options_refuse(in);
    if (template_open(in->words, o->input, &o->template) < 0) {
        keys_close(&o->keys);
        return run_options_refuse(in);
    }
    return true;
}

void run_options_close(struct run_options *o) {
    template_close(&o->template);
    keys_close(&o->keys);
}

// ---- The command ------------------------------------------------------------------------------

// Whether it is a shell script rather than the name of a command; GNU parallel would run a shell.
static bool run_options_is_script(const struct run_options *o) {
    const char *name = o->template.words[0].text;
    return o->template.count == 1 && strpbrk(name, " ;|&<>$") && !strchr("./", *name);
}

bool command_check(const struct run_options *o) {
    const char *name = o->template.words[0].text;
    if ((o->template.varies && !run_options_is_script(o)) || command_is_there(name))
        return true;
    if (run_options_is_script(o))
        complain("run: there is no command '%.200s'; a script is run by a shell, the line is its "
                 "$1: millrace run -- sh -c 'SCRIPT' sh",
                 name);
    else if (strchr(name, '/') && access(name, F_OK) == 0)
        complain("run: '%.200s' is not executable", name);
    else
        complain("run: there is no command '%.200s'", name);
    return false;
}

// ---- The identity of a run ----------------------------------------------------------------

int run_options_identity(const struct run_options *o, const struct input *in, struct buffer *out) {
    const char *field = input_option(in, "--key-field"), *regex = input_option(in, "--key-regex");
    const char *member = input_option(in, "--key-json");
    int err = identity_add(out, "millrace-journal", "1");
    if (err >= 0)
        err = identity_add(out, "lines", o->zero_bytes ? "-0" : "newline");
    if (err >= 0)
        err = identity_add(out, "input", o->input ? "--stdin" : "arguments");
    if (err >= 0)
        err = identity_add(out, "output", o->keep_order ? "--keep-order" : "as it comes");
    if (err >= 0 && o->keys.from == KEY_NONE)
        err = identity_add(out, "keys", "none");
    if (err >= 0 && field)
        err = identity_add(out, "--key-field", field);
    if (err >= 0 && regex)
        err = identity_add(out, "--key-regex", regex);
    if (err >= 0 && member)
        err = identity_add(out, "--key-json", member);
    if (err >= 0 && o->results)
        err = identity_add(out, "--results", o->results);
    for (size_t i = 0; err >= 0 && in->words[i]; i++)
        err = identity_add(out, i ? "argument" : "command", in->words[i]);
    return err;
}
