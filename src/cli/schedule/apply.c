// millrace schedule apply: makes the schedules of an engine those of a file. In this order, so that
// a mistake anywhere changes nothing:
//
//     the file ─► the engine checks each (DRY) ─► compare, print ─► change what differs
//
// A schedule that is as in the file is left alone, so a second run does nothing. Schedules that are
// not in the file are removed, if their stages are in it and --keep is not given.
#include "base/buffer.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/mem.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/schedule/file.h"
#include "cli/talk.h"
#include "wire/replies.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_SHOWN = 64, LIST_AT_ONCE = 500 };

// What is to be done with schedules.
enum change { CHANGE_NONE, CHANGE_ADD, CHANGE_SET, CHANGE_REMOVE, CHANGES };

struct applying {
    const struct input *in;
    struct talks *talks;
    struct talk *talk;
    struct schedule_file file;
    struct words words;
    struct json json;
    bool is_json, has_fields; // a field of the change was printed
    uint32_t counts[CHANGES];
    uint8_t *changes;     // enum change, of each schedule of the file
    struct buffer pruned; // stage, 0, name, 0 of those to remove
};

// ---- Requests ---------------------------------------------------------------------------------

static struct words *request_begin(struct applying *a, const char *command, const char *stage,
                                   const char *name) {
    words_clear(&a->words);
    words_text(&a->words, command);
    words_text(&a->words, stage);
    if (name)
        words_text(&a->words, name);
    return &a->words;
}

static void request_define(struct applying *a, const struct file_schedule *s) {
    struct words *w = request_begin(a, "SCHEDULE", s->stage, s->name);
    for (int i = 0; i < SCHEDULE_FIELD_COUNT; i++)
        words_option(w, schedule_field_words[i], s->values[i]);
}

// A refusal of the engine, with the place of the schedule in the file.
static enum cli_exit refuse_entry(struct applying *a, const struct file_schedule *s,
                                  const struct response_value *error) {
    char sentence[1024];
    enum code code;
    mr_bytes rest;
    bool known = code_read(error->bytes, &code, &rest);
    yaml_refuse(&a->file.yaml, s->at, "schedule '%.60s' of stage '%.60s': %s", s->name, s->stage,
                text_plain(sentence, sizeof sentence, rest));
    return known && code != CODE_ERR ? exit_of_code(code) : CLI_USAGE;
}

// Whether the engine would accept all of them. Nothing is changed.
static enum cli_exit check_entries(struct applying *a) {
    enum cli_exit code = CLI_DONE;
    for (size_t i = 0; i < schedule_file_count(&a->file); i++) {
        const struct file_schedule *s = schedule_file_at(&a->file, i);
        const struct response_value *reply;
        request_define(a, s);
        words_text(&a->words, "DRY");
        int err = talk_ask(a->talk, &a->words, &reply);
        if (err < 0)
            return talk_failed(a->talk, err);
        if (reply->type == RESPONSE_ERROR)
            code = refuse_entry(a, s, reply);
    }
    return code;
}

// ---- Differences ------------------------------------------------------------------------------

static const char *ms_text(char out[24], int64_t ms) {
    static const struct {
        int64_t ms;
        const char *unit;
    } units[] = { { 86400000, "d" }, { 3600000, "h" }, { 60000, "m" }, { 1000, "s" }, { 1, "ms" } };
    size_t i = 0;
    while (ms % units[i].ms)
        i++;
    (void)snprintf(out, 24, "%" PRId64 "%s", ms / units[i].ms, units[i].unit);
    return out;
}

static mr_bytes value_bytes(const struct response_value *v) {
    return v && v->type == RESPONSE_BULK ? v->bytes : (mr_bytes){ 0 };
}

// What a schedule of the engine has in a field, as the file would say it; empty: nothing.
static mr_bytes present_value(const struct schedule_reply *r, enum schedule_field field,
                              char room[24]) {
    switch (field) {
    case SCHEDULE_cron:
        return r->cron;
    case SCHEDULE_every:
        return r->every_ms ? mr_str(ms_text(room, (int64_t)r->every_ms)) : (mr_bytes){ 0 };
    case SCHEDULE_tz:
        return r->every_ms || bytes_equal(r->zone, mr_str("UTC")) ? (mr_bytes){ 0 } : r->zone;
    case SCHEDULE_missed:
        return bytes_equal(r->missed, mr_str("skip")) ? (mr_bytes){ 0 } : r->missed;
    case SCHEDULE_push:
        return value_bytes(r->body.value);
    case SCHEDULE_key:
        return r->key;
    case SCHEDULE_deadline_ms:
        return r->deadline_ms ? mr_str(ms_text(room, (int64_t)r->deadline_ms)) : (mr_bytes){ 0 };
    case SCHEDULE_attempts:
        (void)snprintf(room, 24, "%u", r->attempts);
        return r->attempts ? mr_str(room) : (mr_bytes){ 0 };
    case SCHEDULE_meta:
        return value_bytes(r->meta.value);
    case SCHEDULE_FIELD_COUNT:
        break;
    }
    return (mr_bytes){ 0 };
}

// The same of the file. What is the default anyhow is as if it was not said.
static mr_bytes wanted_value(const struct file_schedule *s, enum schedule_field field,
                             char room[24]) {
    mr_bytes value = mr_str(s->values[field]);
    if (schedule_field_is_ms(field) && s->numbers[field])
        return mr_str(ms_text(room, s->numbers[field]));
    if (schedule_field_is_count(field) && s->numbers[field]) {
        (void)snprintf(room, 24, "%" PRId64, s->numbers[field]);
        return mr_str(room);
    }
    bool is_default = (field == SCHEDULE_tz && bytes_equal(value, mr_str("UTC"))) ||
                      (field == SCHEDULE_missed && bytes_equal(value, mr_str("skip")));
    return is_default ? (mr_bytes){ 0 } : value;
}

// ---- Printing ---------------------------------------------------------------------------------

static void print_change(struct applying *a, enum change change, const char *stage,
                         const char *name) {
    static const char *const signs[CHANGES] = { "", "+", "~", "-" };
    static const char *const words[CHANGES] = { "", "added", "changed", "removed" };
    char stage_text[STAGE_NAME_MOST + 1], name_text[4 * SCHEDULE_NAME_MOST + 1];
    a->counts[change]++;
    a->has_fields = false;
    if (a->is_json) {
        json_open(&a->json, NULL, '{');
        json_text(&a->json, "change", words[change]);
        json_text(&a->json, "stage", stage);
        json_text(&a->json, "name", name);
        json_open(&a->json, "fields", '{');
        return;
    }
    printf("%s %s %s", signs[change], text_plain(stage_text, sizeof stage_text, mr_str(stage)),
           text_plain(name_text, sizeof name_text, mr_str(name)));
}

static const char *value_shown(char out[VALUE_SHOWN + 4], mr_bytes value) {
    text_plain(out, VALUE_SHOWN, value);
    if (strlen(out) < value.size && strlen(out) > VALUE_SHOWN - 8)
        (void)snprintf(out + text_fits(out, VALUE_SHOWN - 8), 4, "…");
    return value.size ? out : "none";
}

// A field without a value has its default.
static mr_bytes value_or_default(enum schedule_field field, mr_bytes value) {
    if (value.size)
        return value;
    return field == SCHEDULE_tz ? mr_str("UTC") : field == SCHEDULE_missed ? mr_str("skip") : value;
}

static void print_difference(struct applying *a, enum schedule_field field, bool had,
                             mr_bytes before, mr_bytes after) {
    char from[VALUE_SHOWN + 4], to[VALUE_SHOWN + 4];
    const char *name = schedule_field_names[field];
    before = value_or_default(field, before);
    after = value_or_default(field, after);
    if (a->is_json) {
        json_open(&a->json, name, '{');
        if (had)
            json_bytes(&a->json, "old", before);
        json_bytes(&a->json, "new", after);
        json_close(&a->json, '}');
    } else if (had) {
        printf("%s %s %s → %s", a->has_fields ? "," : ":", name, value_shown(from, before),
               value_shown(to, after));
    } else {
        printf("%s %s %s", a->has_fields ? "," : ":", name, value_shown(to, after));
    }
    a->has_fields = true;
}

static void print_change_end(struct applying *a) {
    if (a->is_json) {
        json_close(&a->json, '}');
        json_close(&a->json, '}');
    } else {
        printf("\n");
    }
}

// `present` is NULL if the engine does not have the schedule.
static enum change compare_entry(struct applying *a, const struct file_schedule *s,
                                 const struct schedule_reply *present) {
    enum change change = present ? CHANGE_NONE : CHANGE_ADD;
    if (!present)
        print_change(a, change, s->stage, s->name);
    for (int i = 0; i < SCHEDULE_FIELD_COUNT; i++) {
        char room[24], other[24];
        enum schedule_field field = (enum schedule_field)i;
        mr_bytes before = present ? present_value(present, field, room) : (mr_bytes){ 0 };
        mr_bytes after = wanted_value(s, field, other);
        if (bytes_equal(before, after))
            continue;
        if (change == CHANGE_NONE)
            print_change(a, change = CHANGE_SET, s->stage, s->name);
        print_difference(a, field, present != NULL, before, after);
    }
    if (change != CHANGE_NONE)
        print_change_end(a);
    else
        a->counts[CHANGE_NONE]++;
    return change;
}

static enum cli_exit compare_entries(struct applying *a) {
    for (size_t i = 0; i < schedule_file_count(&a->file); i++) {
        const struct file_schedule *s = schedule_file_at(&a->file, i);
        const struct response_value *reply;
        struct schedule_reply present = { 0 };
        words_text(request_begin(a, "SCHEDULE", s->stage, s->name), "BODY");
        int err = talk_ask(a->talk, &a->words, &reply);
        if (err < 0)
            return talk_failed(a->talk, err);
        bool is_new = error_is(reply, CODE_GONE);
        if (reply->type == RESPONSE_ERROR && !is_new)
            return talk_refused(a->talk, reply);
        if (!is_new)
            (void)reply_read(&schedule_replies, reply, &present); // else all of it differs
        a->changes[i] = (uint8_t)compare_entry(a, s, is_new ? NULL : &present);
    }
    return CLI_DONE;
}

// ---- Schedules that are not in the file -------------------------------------------------------

static int compare_name(const void *key, const void *entry) {
    const struct file_schedule *s = *(const struct file_schedule *const *)entry;
    return strcmp(key, s->name);
}

static int compare_names(const void *left, const void *right) {
    return compare_name((*(const struct file_schedule *const *)left)->name, right);
}

// The schedules of a stage in the file, sorted by name.
static size_t sort_stage(const struct applying *a, const char *stage,
                         const struct file_schedule **out) {
    size_t count = 0;
    for (size_t i = 0; i < schedule_file_count(&a->file); i++) {
        const struct file_schedule *s = schedule_file_at(&a->file, i);
        if (strcmp(s->stage, stage) == 0)
            out[count++] = s;
    }
    qsort(out, count, sizeof *out, compare_names);
    return count;
}

// Notes and prints one that the file does not have.
static enum cli_exit note_pruned(struct applying *a, const char *stage, const char *name) {
    int err = buffer_append(&a->pruned, stage, strlen(stage) + 1);
    if (err >= 0)
        err = buffer_append(&a->pruned, name, strlen(name) + 1);
    if (err < 0)
        return talk_failed(a->talk, error_set(err, "no memory"));
    print_change(a, CHANGE_REMOVE, stage, name);
    print_change_end(a);
    return CLI_DONE;
}

// One page of the list; `last` is the name that it goes on behind, and then its own last one.
static enum cli_exit prune_page(struct applying *a, const char *stage,
                                const struct file_schedule **kept, size_t count,
                                char last[SCHEDULE_NAME_MOST + 1], bool *out_more) {
    char from[STAGE_NAME_MOST + 1 + SCHEDULE_NAME_MOST + 1];
    const struct response_value *rows;
    (void)snprintf(from, sizeof from, "%s %s", stage, last);
    struct words *w = request_begin(a, "SCHEDULES", stage, NULL);
    words_text(w, "COUNT");
    words_number(w, LIST_AT_ONCE);
    words_option(w, "FROM", *last ? from : NULL);
    enum cli_exit code = talk_get(a->talk, w, &rows);
    if (code != CLI_DONE || rows->type != RESPONSE_ARRAY)
        return code;
    uint32_t at = 1;
    for (uint32_t i = 0; code == CLI_DONE && i < rows->count; i++, at = response_skip(rows, at)) {
        struct schedule_reply r = { 0 };
        (void)reply_read(&schedule_replies, &rows[at], &r); // the name shows whether it is one
        (void)snprintf(last, SCHEDULE_NAME_MOST + 1, "%.*s", (int)r.name.size,
                       r.name.size ? (const char *)r.name.data : "");
        if (!bsearch(last, kept, count, sizeof *kept, compare_name))
            code = note_pruned(a, stage, last);
    }
    *out_more = rows->count == LIST_AT_ONCE;
    return code;
}

static enum cli_exit prune_stages(struct applying *a) {
    size_t stages = a->file.stages.size / sizeof(const char *);
    const struct file_schedule **kept =
        mem_alloc((schedule_file_count(&a->file) + 1) * sizeof *kept);
    enum cli_exit code = CLI_DONE;
    if (!kept)
        return talk_failed(a->talk, error_set(MR_ENOMEM, "no memory"));
    for (size_t i = 0; code == CLI_DONE && i < stages; i++) {
        const char *stage;
        char last[SCHEDULE_NAME_MOST + 1] = "";
        bool more = true;
        memcpy(&stage, a->file.stages.data + i * sizeof stage, sizeof stage);
        size_t count = sort_stage(a, stage, kept);
        while (code == CLI_DONE && more)
            code = prune_page(a, stage, kept, count, last, &more);
    }
    mem_free(kept);
    return code;
}

// ---- Changing ---------------------------------------------------------------------------------

// Sends the request. One that is gone is as good as dropped.
static enum cli_exit change_one(struct applying *a) {
    const struct response_value *reply;
    int err = talk_ask(a->talk, &a->words, &reply);
    if (err < 0)
        return talk_failed(a->talk, err);
    bool failed = reply->type == RESPONSE_ERROR && !error_is(reply, CODE_GONE);
    return failed ? talk_refused(a->talk, reply) : CLI_DONE;
}

static enum cli_exit change_all(struct applying *a) {
    enum cli_exit code = CLI_DONE;
    uint32_t made = 0, all = 0;
    for (int i = CHANGE_ADD; i < CHANGES; i++)
        all += a->counts[i];
    for (size_t i = 0; code == CLI_DONE && i < schedule_file_count(&a->file); i++) {
        if (a->changes[i] == CHANGE_NONE)
            continue;
        request_define(a, schedule_file_at(&a->file, i));
        code = change_one(a);
        made += code == CLI_DONE;
    }
    for (size_t at = 0; code == CLI_DONE && at < a->pruned.size;) {
        const char *stage = (const char *)a->pruned.data + at, *name = stage + strlen(stage) + 1;
        at += strlen(stage) + strlen(name) + 2;
        words_text(request_begin(a, "SCHEDULE", stage, name), "DROP");
        code = change_one(a);
        made += code == CLI_DONE;
    }
    if (code != CLI_DONE)
        complain("schedule apply: %u of %u changes were made; run it again to make the others",
                 made, all);
    return code;
}

// ---- The command ------------------------------------------------------------------------------

static void print_end(struct applying *a, enum cli_exit code, bool dry) {
    const uint32_t *n = a->counts;
    if (a->is_json) {
        json_close(&a->json, ']');
        json_number(&a->json, "added", n[CHANGE_ADD]);
        json_number(&a->json, "changed", n[CHANGE_SET]);
        json_number(&a->json, "removed", n[CHANGE_REMOVE]);
        json_number(&a->json, "unchanged", n[CHANGE_NONE]);
        json_flag(&a->json, "applied", code == CLI_DONE && !dry);
        json_close(&a->json, '}');
        json_end(&a->json);
    } else if (code == CLI_DONE) {
        printf("%u added, %u changed, %u removed, %u unchanged%s\n", n[CHANGE_ADD], n[CHANGE_SET],
               n[CHANGE_REMOVE], n[CHANGE_NONE], dry ? " by a dry run: nothing was done" : "");
    }
}

static enum cli_exit apply_file(struct applying *a) {
    bool dry = input_option(a->in, "--dry-run");
    enum cli_exit code = check_entries(a);
    if (code != CLI_DONE)
        return code;
    if (a->is_json) {
        json_open(&a->json, NULL, '{');
        json_open(&a->json, "changes", '[');
    }
    code = compare_entries(a);
    if (code == CLI_DONE && !input_option(a->in, "--keep"))
        code = prune_stages(a);
    (void)fflush(stdout); // the difference comes before what is done about it
    if (code == CLI_DONE && !dry)
        code = change_all(a);
    print_end(a, code, dry);
    return code;
}

enum cli_exit schedule_apply_run(const struct input *in) {
    struct applying a = { .in = in, .is_json = input_option(in, "--json") };
    enum cli_exit code = CLI_USAGE;
    if (schedule_file_read(&a.file, in->arguments[0])) {
        a.changes = mem_alloc(schedule_file_count(&a.file) + 1);
        code = a.changes ? talk_begin(in, STORE_MUST_EXIST, &a.talks, &a.talk) : CLI_FAILED;
        if (code == CLI_DONE)
            code = apply_file(&a);
    }
    talks_close(a.talks);
    words_finish(&a.words);
    buffer_finish(&a.pruned);
    mem_free(a.changes);
    schedule_file_finish(&a.file);
    return code;
}
