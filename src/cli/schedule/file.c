// See file.h.
#include "cli/schedule/file.h"

#include "base/buffer.h"
#include "base/cron.h"
#include "base/errors.h"
#include "base/mem.h"
#include "cli/values.h"

#include <stdlib.h>
#include <string.h>

#define FIELD_NAME(member, kind, word, value, name, ...) name,
#define FIELD_WORD(member, kind, word, ...) word,

const char *const schedule_field_names[SCHEDULE_FIELD_COUNT] = {
    "cron", "every", "tz", "missed", "push", SCHEDULE_OPTIONS(FIELD_NAME)
};

const char *const schedule_field_words[SCHEDULE_FIELD_COUNT] = {
    "CRON", "EVERY", "TZ", "MISSED", "PUSH", SCHEDULE_OPTIONS(FIELD_WORD)
};

bool schedule_field_is_ms(enum schedule_field field) {
    return field == SCHEDULE_every || field == SCHEDULE_deadline_ms;
}

bool schedule_field_is_count(enum schedule_field field) {
    return field == SCHEDULE_attempts;
}

// ---- Fields -----------------------------------------------------------------------------------

static void check_missed(struct schedule_file *f, const yaml_node_t *n) {
    static const char *const words[] = { "skip", "one", "all" };
    (void)choice_of(&f->yaml, n, "missed", words, sizeof words / sizeof *words);
}

static void check_cron(struct schedule_file *f, const yaml_node_t *n, const char *text) {
    struct cron cron;
    if (cron_parse(mr_str(text), &cron) < 0)
        yaml_refuse(&f->yaml, place_of(n), "cron: %s", error_text());
}

static void read_schedule_value(struct schedule_file *f, struct file_schedule *s,
                                enum schedule_field field, const yaml_node_t *n) {
    const char *what = schedule_field_names[field];
    const char *text =
        field == SCHEDULE_push ? text_of(&f->yaml, n, what) : word_of(&f->yaml, n, what);
    uint64_t count = 0;
    s->values[field] = text;
    if (!text)
        return;
    if (field == SCHEDULE_cron)
        check_cron(f, n, text);
    else if (field == SCHEDULE_missed)
        check_missed(f, n);
    else if (schedule_field_is_ms(field) && duration_read(text, &s->numbers[field]) < 0)
        yaml_refuse(&f->yaml, place_of(n), "%s: %s", what, error_text());
    else if (schedule_field_is_count(field) && number_of(&f->yaml, n, what, UINT16_MAX, &count))
        s->numbers[field] = (int64_t)count;
}

// Whether the fields belong together.
static void check_whole(struct schedule_file *f, const struct file_schedule *s, uint32_t seen) {
    bool cron = seen >> SCHEDULE_cron & 1, every = seen >> SCHEDULE_every & 1;
    if (cron == every)
        yaml_refuse(&f->yaml, s->at, "schedule '%.60s' needs cron or every, %s", s->name,
                    cron ? "not both" : "and has neither");
    if (!(seen >> SCHEDULE_push & 1))
        yaml_refuse(&f->yaml, s->at, "schedule '%.60s' needs push: the body of its jobs", s->name);
    if (every && seen >> SCHEDULE_tz & 1)
        yaml_refuse(&f->yaml, s->at,
                    "schedule '%.60s': tz is the time zone of cron: every has none", s->name);
}

static void read_schedule(struct schedule_file *f, struct file_schedule *s, const yaml_node_t *n) {
    uint32_t seen = 0;
    if (n->type != YAML_MAPPING_NODE) {
        yaml_refuse(&f->yaml, place_of(n),
                    "a schedule is a mapping, as in { every: 30s, push: text }");
        return;
    }
    const yaml_node_pair_t *pair = n->data.mapping.pairs.start;
    for (; pair < n->data.mapping.pairs.top; pair++) {
        int field = yaml_field_of(&f->yaml, node_at(&f->yaml, pair->key), "a schedule",
                                  schedule_field_names, SCHEDULE_FIELD_COUNT, &seen);
        if (field >= 0)
            read_schedule_value(f, s, (enum schedule_field)field, node_at(&f->yaml, pair->value));
    }
    check_whole(f, s, seen);
}

// ---- Stages and names -------------------------------------------------------------------------

static void refuse_memory(struct schedule_file *f) {
    yaml_refuse(&f->yaml, (struct place){ 0 }, "no memory to read it");
}

static void schedule_file_read_stage(struct schedule_file *f, const char *stage,
                                     const yaml_node_t *n) {
    if (n->type != YAML_MAPPING_NODE) {
        yaml_refuse(&f->yaml, place_of(n),
                    "stage '%.60s' has schedules by their names, as in { name: { every: 30s, push: "
                    "text } }, or {}",
                    stage);
        return;
    }
    const yaml_node_pair_t *pair = n->data.mapping.pairs.start;
    for (; pair < n->data.mapping.pairs.top; pair++) {
        const yaml_node_t *name = node_at(&f->yaml, pair->key);
        struct file_schedule s = { .stage = stage,
                                   .name = word_of(&f->yaml, name, "the name of a schedule"),
                                   .at = place_of(name) };
        if (!s.name)
            continue;
        if (strlen(s.name) > SCHEDULE_NAME_MOST)
            yaml_refuse(&f->yaml, s.at, "the name of a schedule has up to %d bytes, not %zu",
                        SCHEDULE_NAME_MOST, strlen(s.name));
        read_schedule(f, &s, node_at(&f->yaml, pair->value));
        if (buffer_append(&f->list, &s, sizeof s) < 0)
            refuse_memory(f);
    }
}

static int compare_schedules(const void *left, const void *right) {
    const struct file_schedule *a = *(const struct file_schedule *const *)left,
                               *b = *(const struct file_schedule *const *)right;
    int by_stage = strcmp(a->stage, b->stage), by_name = strcmp(a->name, b->name);
    int by_line = a->at.line < b->at.line ? -1 : a->at.line > b->at.line;
    return by_stage ? by_stage : by_name ? by_name : by_line;
}

static void check_twice(struct schedule_file *f) {
    size_t count = schedule_file_count(f);
    const struct file_schedule **sorted = mem_alloc((count + 1) * sizeof *sorted);
    if (!sorted) {
        refuse_memory(f);
        return;
    }
    for (size_t i = 0; i < count; i++)
        sorted[i] = schedule_file_at(f, i);
    qsort(sorted, count, sizeof *sorted, compare_schedules);
    for (size_t i = 1; i < count; i++)
        if (strcmp(sorted[i]->stage, sorted[i - 1]->stage) == 0 &&
            strcmp(sorted[i]->name, sorted[i - 1]->name) == 0)
            yaml_refuse(&f->yaml, sorted[i]->at,
                        "schedule '%.60s' of stage '%.60s' is in line %d, "
                        "too",
                        sorted[i]->name, sorted[i]->stage, sorted[i - 1]->at.line);
    mem_free(sorted);
}

bool schedule_file_read(struct schedule_file *f, const char *path) {
    *f = (struct schedule_file){ .yaml = { .path = path, .about = "list of schedules" } };
    if (!document_load(&f->yaml))
        return false;
    const yaml_node_t *root = yaml_document_get_root_node(f->yaml.document);
    if (root->type != YAML_MAPPING_NODE) {
        yaml_refuse(&f->yaml, place_of(root),
                    "the file has stages by their names, and schedules "
                    "below them; see: millrace help schedule apply");
        return false;
    }
    const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
    for (; pair < root->data.mapping.pairs.top; pair++) {
        const char *stage = word_of(&f->yaml, node_at(&f->yaml, pair->key), "the name of a stage");
        if (!stage)
            continue;
        schedule_file_read_stage(f, stage, node_at(&f->yaml, pair->value));
        if (buffer_append(&f->stages, &stage, sizeof stage) < 0)
            refuse_memory(f);
    }
    if (!f->yaml.mistakes)
        check_twice(f);
    return !f->yaml.mistakes;
}

void schedule_file_finish(struct schedule_file *f) {
    yaml_report_rest(&f->yaml);
    document_free(&f->yaml);
    buffer_finish(&f->list);
    buffer_finish(&f->stages);
}
