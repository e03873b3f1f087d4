// store check: prints what an examination has found, as two tables or as JSON.
#include "cli/json.h"
#include "cli/output.h"
#include "cli/store/store.h"

#include <inttypes.h>
#include <string.h>

static uint64_t live_bytes(const struct findings *f) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < f->shards; i++)
        bytes += core_live_bytes(f->cores[i]);
    return bytes;
}

static uint64_t problems_listed(const struct findings *f) {
    if (!f->problems)
        return 0;
    return f->problem_count < PROBLEMS_LISTED ? f->problem_count : PROBLEMS_LISTED;
}

// ---- As text -------------------------------------------------------------------------------

// A problem of the whole directory has its place in the sentence.
static void print_problem(const char *dir, const struct problem *p) {
    char size[SIZE_WORDS];
    if (dir && strcmp(p->file, dir) == 0) {
        printf("  %s\n", p->what);
        return;
    }
    printf("  %s, offset %" PRIu64 ": %s", p->file, p->offset, p->what);
    if (p->size)
        printf(" (%s)", size_words(size, p->size));
    printf("\n");
}

void problems_print(const struct store_view *v, const struct findings *f) {
    printf("%s is ", v->name);
    print_coloured(RED, "damaged");
    printf(":\n\n");
    for (uint64_t i = 0; i < problems_listed(f); i++)
        print_problem(store_url_dir(&v->url), &f->problems[i]);
    if (f->problem_count > problems_listed(f))
        printf("  … and %" PRIu64 " more\n", f->problem_count - problems_listed(f));
}

static void store_check_print_row(const char *name, uint64_t number, const char *words) {
    printf("  %-10s  %14" PRIu64 "%s%s\n", name, number, *words ? "  " : "", words);
}

enum { COLUMNS = 7 };

static const struct {
    const char *name;
    size_t at; // in struct stage_info
} columns[COLUMNS] = {
    { "waiting", offsetof(struct stage_info, waiting) },
    { "delayed", offsetof(struct stage_info, delayed) },
    { "dead", offsetof(struct stage_info, dead) },
    { "pushed", offsetof(struct stage_info, pushed) },
    { "done", offsetof(struct stage_info, done) },
    { "expired", offsetof(struct stage_info, expired) },
    { "cancelled", offsetof(struct stage_info, cancelled) },
};

static uint64_t store_check_column_of(const struct stage_info *s, size_t i) {
    uint64_t number;
    memcpy(&number, (const char *)s + columns[i].at, sizeof number);
    return number;
}

struct stage_table {
    int widths[COLUMNS];
    uint32_t rows;
};

static int measure_stage(void *arg, const struct stage_info *s) {
    struct stage_table *t = arg;
    for (size_t i = 0; i < COLUMNS; i++) {
        int width = snprintf(NULL, 0, "%" PRIu64, store_check_column_of(s, i));
        t->widths[i] = width > t->widths[i] ? width : t->widths[i];
    }
    t->rows++;
    return 0;
}

static int store_check_print_stage(void *arg, const struct stage_info *s) {
    const struct stage_table *t = arg;
    for (size_t i = 0; i < COLUMNS; i++)
        printf("  %*" PRIu64, t->widths[i], store_check_column_of(s, i));
    printf("  %.*s%s%s\n", (int)s->name.size, (const char *)s->name.data,
           s->paused ? " (paused)" : "", s->draining ? " (draining)" : "");
    return 0;
}

// The name comes last, because it may be long.
static void print_stages(const struct findings *f) {
    struct stage_table t = { 0 };
    for (size_t i = 0; i < COLUMNS; i++)
        t.widths[i] = (int)strlen(columns[i].name);
    findings_stages(f, measure_stage, &t);
    if (!t.rows)
        return;
    printf("\n");
    for (size_t i = 0; i < COLUMNS; i++)
        printf("  %*s", t.widths[i], columns[i].name);
    printf("  stage\n");
    findings_stages(f, store_check_print_stage, &t);
}

static void print_sound(const struct store_view *v, const struct findings *f) {
    char size[SIZE_WORDS];
    printf("%s is ", v->name);
    print_coloured(GREEN, "sound");
    printf(".\n\n");
    if (f->shards > 1)
        store_check_print_row("shards", f->shards, "");
    store_check_print_row("segments", f->segments, "");
    store_check_print_row("entries", f->entries, "");
    store_check_print_row("bytes", f->bytes, size_words(size, f->bytes));
    store_check_print_row("live", live_bytes(f), size_words(size, live_bytes(f)));
    print_stages(f);
}

// ---- As JSON -----------------------------------------------------------------------------

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

static int store_check_json_stage(void *arg, const struct stage_info *s) {
    struct json *j = arg;
    json_open(j, NULL, '{');
    json_bytes(j, "name", s->name);
    for (size_t i = 0; i < COLUMNS; i++)
        json_number(j, columns[i].name, store_check_column_of(s, i));
    json_number(j, "failed", s->failed);
    json_number(j, "states", s->states);
    json_flag(j, "paused", s->paused);
    json_flag(j, "draining", s->draining);
    json_close(j, '}');
    return 0;
}

static void json_content(struct json *j, const struct findings *f) {
    json_number(j, "shards", f->shards);
    json_number(j, "segments", f->segments);
    json_number(j, "entries", f->entries);
    json_number(j, "bytes", f->bytes);
    json_number(j, "live", live_bytes(f));
    json_open(j, "stages", '[');
    findings_stages(f, store_check_json_stage, j);
    json_close(j, ']');
}

static void json_findings(const char *name, const struct findings *f) {
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    json_text(&j, "store", name);
    json_flag(&j, "sound", !f->problem_count);
    json_number(&j, "problem-count", f->problem_count);
    problems_json(&j, f);
    if (!f->problem_count)
        json_content(&j, f);
    json_close(&j, '}');
    json_end(&j);
}

static void print_damaged(const struct store_view *v, const struct findings *f) {
    problems_print(v, f);
    if (v->streams)
        printf("\nCopy a backup into another cluster: millrace store copy file:BACKUP "
               "%s://... --cluster NAME --shards N\n",
               v->url.scheme == STORE_IN_NATS ? "nats" : "postgres");
    else
        printf("\nTo see what a repair would do: millrace store repair %s --dry-run\n", v->name);
}

static enum cli_exit check_view(const struct input *in, const struct store_view *v) {
    struct findings f;
    int err = store_look(v, &f);
    if (err < 0)
        return store_failed(in, &v->url, err);
    if (input_option(in, "--json"))
        json_findings(v->name, &f);
    else if (!f.problem_count)
        print_sound(v, &f);
    else
        print_damaged(v, &f);
    enum cli_exit code = f.problem_count ? CLI_FAILED : CLI_DONE;
    findings_finish(&f);
    return code;
}

enum cli_exit store_check_run(const struct input *in) {
    struct store_url url;
    struct store_view v;
    if (!store_read(in, in->arguments[0], input_option(in, "--cluster"), &url))
        return CLI_USAGE;
    int err = store_view_open(&url, &v);
    if (err < 0)
        return store_failed(in, &url, err);
    store_note_use(&v);
    enum cli_exit code = check_view(in, &v);
    store_view_close(&v);
    return code;
}
