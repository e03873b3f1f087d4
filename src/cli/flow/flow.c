// millrace flow: reads a plan, and checks, draws or runs it.
#include "cli/flow/flow.h"

#include "cli/output.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

// The absolute path, which stays valid when the working directory changes. `out` has PATH_MAX
// bytes.
static const char *absolute(const char *path, char *out) {
    char here[PATH_MAX];
    if (!path || *path == '/' || !getcwd(here, sizeof here))
        return path;
    int size = snprintf(out, PATH_MAX, "%s/%s", here, path);
    return size < PATH_MAX ? out : path;
}

// Paths on the command line are relative to the working directory, those in the file to its folder.
static bool enter_folder(struct flow *f, struct input *in) {
    static char journal[PATH_MAX], url[PATH_MAX + 8], room[PATH_MAX];
    char copy[PATH_MAX];
    const char *given = input_option(in, "--journal"), *at = input_option(in, "--at");
    snprintf(copy, sizeof copy, "%s", f->plan->file.path);
    if (at && strncmp(at, "file:", 5) == 0) {
        snprintf(url, sizeof url, "file:%s", absolute(at + 5, room));
        input_set(in, "--at", url);
    }
    f->options.journal = absolute(given, journal);
    f->options.journal_given = given != NULL;
    // A pipe, as <(...) makes it, has no folder: its paths are relative to the working directory,
    // too.
    struct stat about;
    bool is_file = stat(f->plan->file.path, &about) == 0 && S_ISREG(about.st_mode);
    const char *last = strrchr(f->plan->file.path, '/');
    f->folder_size = is_file && last ? (size_t)(last + 1 - f->plan->file.path) : 0;
    const char *folder = is_file ? dirname(copy) : ".";
    if (chdir(folder) == 0) {
        snprintf(room, sizeof room, "%s.journal", f->plan->name);
        f->options.journal = given ? f->options.journal : absolute(room, journal);
        return true;
    }
    complain("flow: %s: %s", folder, strerror(errno));
    return false;
}

static bool flow_options_read(const struct input *in, struct flow_options *o) {
    o->fresh = input_option(in, "--fresh") != NULL;
    o->progress = input_option(in, "--progress") != NULL;
    o->json = input_option(in, "--json") != NULL;
    bool at = input_option(in, "--at") != NULL;
    if (at && input_option(in, "--journal")) {
        complain("flow: --journal and --at both name a store for its progress: give one of them");
        return false;
    }
    if (at && o->fresh)
        complain(
            "flow: --fresh removes a journal; stages of an engine may belong to other programs: "
            "millrace drop");
    return !at || !o->fresh;
}

// A stage that other programs use needs an engine that they can reach.
static void check_engine(struct plan *p, const struct input *in) {
    for (size_t i = 0; i < p->count; i++) {
        const struct flow_node *n = &p->nodes[i];
        if ((n->verb == VERB_TAKE || n->verb == VERB_PUSH) && !input_option(in, "--at"))
            yaml_refuse(&p->file, n->verb_at,
                        "a stage is shared with other programs: --at URL names its engine");
    }
}

static enum cli_exit check(struct flow *f, struct input *in) {
    struct plan *p = f->plan;
    if (!enter_folder(f, in))
        return CLI_USAGE;
    plan_check_world(p);
    if (input_option(in, "--check") && !p->file.mistakes) {
        size_t counts[3] = { 0 };
        for (size_t i = 0; i < p->count; i++)
            counts[p->nodes[i].kind]++;
        printf("%s: flow %s is good: %zu source%s, %zu step%s, %zu sink%s\n", p->file.path, p->name,
               counts[0], counts[0] == 1 ? "" : "s", counts[1], counts[1] == 1 ? "" : "s",
               counts[2], counts[2] == 1 ? "" : "s");
    }
    return p->file.mistakes ? CLI_USAGE : CLI_DONE;
}

static enum cli_exit flow_do(struct flow *f, struct input *in) {
    if (!plan_read(f->plan, in->arguments[0]))
        return CLI_USAGE;
    if (input_option(in, "--graph")) {
        (f->options.json ? plan_print_json : plan_draw)(f->plan);
        return CLI_DONE;
    }
    enum cli_exit code = check(f, in);
    if (code != CLI_DONE || input_option(in, "--check"))
        return code;
    check_engine(f->plan, in);
    return f->plan->file.mistakes ? CLI_USAGE : flow_start(f, in);
}

enum cli_exit flow_run(const struct input *given) {
    static struct plan plan; // large
    static struct flow flow;
    struct input in = *given;
    flow = (struct flow){
        .plan = &plan, .signals = -1, .halt = -1, .lock = PTHREAD_MUTEX_INITIALIZER
    };
    if (!flow_options_read(&in, &flow.options))
        return CLI_USAGE;
    enum cli_exit code = flow_do(&flow, &in);
    yaml_report_rest(&plan.file);
    plan_finish(&plan);
    // The signals stay open: they are guarded until the process ends.
    if (flow.halt >= 0)
        close(flow.halt);
    return code;
}
