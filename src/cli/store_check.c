// store check: what was found, as two tables that line up however long a stage's name is.
#include "base/errors.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/store.h"

#include <inttypes.h>

static uint64_t segment_count(const struct log_state *log) {
    return log->tail / log->segment_size - log->head / log->segment_size + 1;
}

static uint64_t problems_listed(const struct findings *f) {
    if (!f->problems)
        return 0;
    return f->problem_count < PROBLEMS_LISTED ? f->problem_count : PROBLEMS_LISTED;
}

// ---- For people -------------------------------------------------------------------------------

static void print_problem(const struct problem *p) {
    char size[SIZE_WORDS];
    printf("  %s", p->file);
    if (p->offset || p->size)
        printf(", offset %" PRIu64, p->offset);
    printf(": %s", p->what);
    if (p->size)
        printf(" (%s)", size_words(size, p->size));
    printf("\n");
}

void problems_print(const char *dir, const struct findings *f) {
    printf("file:%s is ", dir);
    print_coloured(RED, "damaged");
    printf(":\n\n");
    for (uint64_t i = 0; i < problems_listed(f); i++)
        print_problem(&f->problems[i]);
    if (f->problem_count > problems_listed(f))
        printf("  … and %" PRIu64 " more\n", f->problem_count - problems_listed(f));
}

static void print_row(const char *name, uint64_t number, const char *words) {
    printf("  %-10s  %14" PRIu64 "%s%s\n", name, number, *words ? "  " : "", words);
}

static void print_stages(struct core *core) {
    size_t count = core_stage_count(core);
    if (!count)
        return;
    printf("\n  %9s  %7s  %7s  %9s  %9s  %7s  %9s  %s\n", "waiting", "delayed", "dead", "pushed",
           "done", "expired", "cancelled", "stage");
    for (size_t i = 0; i < count; i++) {
        struct stage_info s;
        core_stage_at(core, i, &s);
        printf("  %9" PRIu64 "  %7" PRIu64 "  %7" PRIu64 "  %9" PRIu64 "  %9" PRIu64 "  %7" PRIu64
               "  %9" PRIu64 "  %.*s%s%s\n",
               s.waiting, s.delayed, s.dead, s.pushed, s.done, s.expired, s.cancelled,
               (int)s.name.size, (const char *)s.name.data, s.paused ? " (paused)" : "",
               s.draining ? " (draining)" : "");
    }
}

static void print_sound(const char *dir, const struct findings *f) {
    char size[SIZE_WORDS];
    printf("file:%s is ", dir);
    print_coloured(GREEN, "sound");
    printf(".\n\n");
    print_row("segments", segment_count(&f->log), "");
    print_row("entries", f->entries, "");
    print_row("bytes", f->log.bytes, size_words(size, f->log.bytes));
    uint64_t live = core_live_bytes(f->core);
    print_row("live", live, size_words(size, live));
    print_stages(f->core);
}

// ---- For programs -----------------------------------------------------------------------------

void problems_json(struct json *j, const struct findings *f) {
    json_open(j, "problems", '[');
    for (uint64_t i = 0; i < problems_listed(f); i++) {
        const struct problem *p = &f->problems[i];
        json_open(j, NULL, '{');
        json_text(j, "file", p->file);
        json_number(j, "offset", p->offset);
        json_number(j, "size", p->size);
        json_text(j, "what", p->what);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_stage(struct json *j, const struct stage_info *s) {
    json_open(j, NULL, '{');
    json_bytes(j, "name", s->name);
    json_number(j, "waiting", s->waiting);
    json_number(j, "delayed", s->delayed);
    json_number(j, "dead", s->dead);
    json_number(j, "states", s->states);
    json_number(j, "pushed", s->pushed);
    json_number(j, "done", s->done);
    json_number(j, "failed", s->failed);
    json_number(j, "expired", s->expired);
    json_number(j, "cancelled", s->cancelled);
    json_flag(j, "paused", s->paused);
    json_flag(j, "draining", s->draining);
    json_close(j, '}');
}

static void json_content(struct json *j, const struct findings *f) {
    json_number(j, "segments", segment_count(&f->log));
    json_number(j, "entries", f->entries);
    json_number(j, "bytes", f->log.bytes);
    json_number(j, "live", core_live_bytes(f->core));
    json_open(j, "stages", '[');
    for (size_t i = 0; i < core_stage_count(f->core); i++) {
        struct stage_info s;
        core_stage_at(f->core, i, &s);
        json_stage(j, &s);
    }
    json_close(j, ']');
}

static void json_findings(const char *url, const struct findings *f) {
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    json_text(&j, "store", url);
    json_flag(&j, "sound", !f->problem_count);
    json_number(&j, "problem_count", f->problem_count);
    problems_json(&j, f);
    if (f->core)
        json_content(&j, f);
    json_close(&j, '}');
    json_end(&j);
}

enum cli_exit store_check_run(const struct input *in) {
    const char *dir = store_dir(in, in->arguments[0]);
    if (!dir)
        return CLI_USAGE;
    store_note_use(dir);
    struct findings f;
    int err = store_examine(dir, &f);
    if (err < 0)
        return store_failed(in, dir, err);
    if (input_option(in, "--json"))
        json_findings(in->arguments[0], &f);
    else if (!f.problem_count)
        print_sound(dir, &f);
    else {
        problems_print(dir, &f);
        printf("\nTo see what a repair would do: millrace store repair file:%s --dry-run\n", dir);
    }
    enum cli_exit code = f.problem_count ? CLI_FAILED : CLI_DONE;
    findings_finish(&f);
    return code;
}
