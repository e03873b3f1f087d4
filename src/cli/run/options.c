// Reads the options of run, and checks that its command exists.
#include "base/errors.h"
#include "cli/output.h"
#include "cli/run/run.h"
#include "cli/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINES_EACH_MOST = 65536 };

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

static bool is_given(const struct input *in, const char *name) {
    return input_option(in, name) != NULL;
}

static bool read_lines_each(const struct input *in, uint32_t *out) {
    *out = 1;
    if (!input_small_count(in, "--max-args", LINES_EACH_MOST, out))
        return false;
    if (*out == 0)
        complain("run: -n 0: a command gets at least 1 line, and at most %d", LINES_EACH_MOST);
    return *out > 0;
}

static bool read_gate(const struct input *in, struct gate_limits *out) {
    out->has_load = is_given(in, "--load");
    return input_duration(in, "--delay", &out->delay_ms) && input_share(in, "--load", &out->load) &&
           input_size(in, "--memfree", UINT64_MAX >> 1, &out->memory_free);
}

// Options that need or exclude each other.
static bool options_fit(const struct run_options *o) {
    if (o->retry_failed && !o->journal)
        complain("run: --retry-failed needs --journal DIR, which knows the lines that failed");
    else if (o->dry_run && o->journal)
        complain("run: --dry-run prints all commands and knows no journal: leave --journal out");
    else
        return true;
    return false;
}

bool run_options_read(const struct input *in, struct run_options *o) {
    o->input = is_given(in, "--stdin");
    o->tag = is_given(in, "--tag");
    o->dry_run = is_given(in, "--dry-run");
    o->retry_failed = is_given(in, "--retry-failed");
    o->keep_order = is_given(in, "--keep-order");
    o->progress = is_given(in, "--progress");
    o->json = is_given(in, "--json");
    o->journal = input_option(in, "--journal");
    o->results = input_option(in, "--results");
    if (!input_jobs(in, &o->jobs) || !read_halt(in, &o->halt) ||
        !input_count(in, "--retries", UINT16_MAX - 1, &o->retries) ||
        !input_duration(in, "--timeout", &o->timeout_ms) ||
        !input_duration(in, "--deadline", &o->deadline_ms) ||
        !input_delimiter(in, "--delimiter", &o->delimiter) ||
        !read_lines_each(in, &o->lines_each) || !read_gate(in, &o->gate) || !options_fit(o))
        return false;
    if (keys_open(input_option(in, "--key-field"), input_option(in, "--key-regex"),
                  input_option(in, "--key-json"), &o->keys) < 0)
        return run_options_refuse(in);
    int err = template_open(in->words, o->input, &o->template);
    if (err >= 0 && o->lines_each > 1)
        err = template_check_several(&o->template);
    if (err >= 0)
        return true;
    run_options_close(o);
    return run_options_refuse(in);
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
    bool script = run_options_is_script(o);
    if ((o->template.varies && !script) || program_find(name) >= 0)
        return true;
    complain("run: %s%s", mr_error(),
             script ? "; a script is run by a shell, the line is its $1: millrace run -- sh -c "
                      "'SCRIPT' sh"
                    : "");
    return false;
}

// ---- The identity of a run ----------------------------------------------------------------

// Options that came later add a line only where they are used, so that older journals still fit.
static int identity_lines(const struct run_options *o, struct buffer *out) {
    char text[16];
    snprintf(text, sizeof text, "-d %c", o->delimiter);
    const char *name = o->delimiter == '\n' ? "newline" : o->delimiter ? text : "-0";
    int err = identity_add(out, "lines", name);
    if (err < 0 || o->lines_each == 1)
        return err;
    snprintf(text, sizeof text, "%" PRIu32, o->lines_each);
    return identity_add(out, "-n", text);
}

int run_options_identity(const struct run_options *o, const struct input *in, struct buffer *out) {
    const char *field = input_option(in, "--key-field"), *regex = input_option(in, "--key-regex");
    const char *member = input_option(in, "--key-json");
    int err = identity_add(out, "millrace-journal", "1");
    if (err >= 0)
        err = identity_lines(o, out);
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
