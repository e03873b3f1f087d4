// See show.h.
#include "cli/show.h"

#include "cli/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 4200, COLUMNS = 16, NARROWEST = 8, GAP = 2 }; // a key of 1 KiB, escaped, fits a cell

// ---- Values -----------------------------------------------------------------------------------

const struct response_value *value_next(const struct response_value *v) {
    return v + response_skip(v, 0);
}

static double real_of(const struct response_value *v) {
    char text[64];
    if (v->type == RESPONSE_INTEGER)
        return (double)v->integer;
    if (v->type != RESPONSE_DOUBLE && v->type != RESPONSE_BULK)
        return 0;
    snprintf(text, sizeof text, "%.*s", (int)(v->bytes.size < 60 ? v->bytes.size : 60),
             (const char *)v->bytes.data);
    return strtod(text, NULL);
}

// ---- Cells ------------------------------------------------------------------------------------

static void plain_words(char out[CELL], const struct response_value *v) {
    switch (v->type) {
    case RESPONSE_SIMPLE:
    case RESPONSE_ERROR:
    case RESPONSE_BULK:
    case RESPONSE_DOUBLE:
        text_plain(out, CELL, v->bytes);
        break;
    case RESPONSE_INTEGER:
        snprintf(out, CELL, "%" PRId64, v->integer);
        break;
    case RESPONSE_BOOLEAN:
        snprintf(out, CELL, "%s", v->boolean ? "yes" : "no");
        break;
    case RESPONSE_ARRAY:
    case RESPONSE_MAP:
    case RESPONSE_PUSH:
        snprintf(out, CELL, "%" PRIu32, v->count);
        break;
    case RESPONSE_NULL:
        out[0] = 0;
        break;
    }
}

static const struct response_value *last_text(const struct response_value *reasons) {
    const struct response_value *inside = reasons + 1, *last = NULL;
    for (uint32_t i = 0; reasons->type == RESPONSE_ARRAY && i < reasons->count; i++) {
        last = inside;
        inside = value_next(inside);
    }
    return last ? response_field(last, "text") : NULL;
}

static void words_of_progress(char out[CELL], const struct response_value *map) {
    struct progress_reply p = { 0 };
    if (reply_read(&progress_replies, map, &p))
        progress_words(out, p.done, p.total, p.text);
}

// A missing value, an age below 0, a span of 0 and a flag that is not set are a dash.
static void cell_words(char out[CELL], enum shape shape, const struct response_value *v) {
    out[0] = 0;
    if (v && shape == SHAPE_REASON)
        v = last_text(v);
    if (v && (shape == SHAPE_AGE || shape == SHAPE_SPAN) && v->type == RESPONSE_INTEGER) {
        if (v->integer >= (shape == SHAPE_SPAN ? 1 : 0))
            age_words(out, (uint64_t)v->integer);
    } else if (v && shape == SHAPE_FLAG) {
        snprintf(out, CELL, "%s", real_of(v) ? "yes" : "");
    } else if (v && shape == SHAPE_RATE && v->type != RESPONSE_NULL) {
        snprintf(out, CELL, "%.1f", real_of(v));
    } else if (v && shape == SHAPE_SIZE && v->type == RESPONSE_INTEGER) {
        size_words(out, (uint64_t)v->integer);
    } else if (v && shape == SHAPE_MOMENT && v->type == RESPONSE_INTEGER) {
        if (v->integer >= 0)
            time_words(out, (uint64_t)v->integer, false);
    } else if (v && shape == SHAPE_PROGRESS) {
        words_of_progress(out, v);
    } else if (v && (shape != SHAPE_OPEN || v->integer >= 0)) {
        plain_words(out, v);
    }
    if (!out[0])
        snprintf(out, CELL, "-");
}

// ---- Tables -----------------------------------------------------------------------------------

struct table {
    const struct reply_table *fields;
    const struct column *columns;
    size_t count;
    size_t widths[COLUMNS];
};

static bool is_text(enum shape shape) {
    return shape == SHAPE_TEXT || shape == SHAPE_REASON || shape == SHAPE_PROGRESS ||
           shape == SHAPE_WHEN || shape == SHAPE_FLAG;
}

static void widen(size_t *width, const char *text) {
    size_t columns = text_columns(text);
    if (columns > *width)
        *width = columns;
}

static void words_of_when(char out[CELL], const struct response_value *row) {
    struct schedule_reply s = { 0 };
    char age[AGE_WORDS];
    snprintf(out, CELL, "-");
    if (!reply_read(&schedule_replies, row, &s))
        return;
    if (s.cron.size)
        text_plain(out, CELL, s.cron);
    else
        snprintf(out, CELL, "every %s", age_words(age, s.every_ms));
}

static void column_words(char out[CELL], const struct table *t, size_t i,
                         const struct response_value *row) {
    const struct column *c = &t->columns[i];
    if (c->shape == SHAPE_WHEN)
        words_of_when(out, row);
    else
        cell_words(out, c->shape, response_field(row, reply_field_at(t->fields, c->field)->name));
}

static void measure(struct table *t, const struct response_value *rows) {
    char cell[CELL];
    for (t->count = 0; t->count < COLUMNS && t->columns[t->count].title; t->count++)
        widen(&t->widths[t->count], t->columns[t->count].title);
    const struct response_value *row = rows + 1;
    for (uint32_t r = 0; r < rows->count; r++, row = value_next(row)) {
        for (size_t i = 0; i < t->count; i++) {
            column_words(cell, t, i, row);
            widen(&t->widths[i], cell);
        }
    }
}

// Takes from the widest text until the table fits, or nothing more can be taken.
static void narrow(struct table *t, size_t room) {
    size_t all = t->count ? GAP * (t->count - 1) : 0;
    for (size_t i = 0; i < t->count; i++)
        all += t->widths[i];
    while (room && all > room) {
        size_t widest = t->count;
        for (size_t i = 0; i < t->count; i++)
            if (is_text(t->columns[i].shape) && t->widths[i] > NARROWEST &&
                (widest == t->count || t->widths[i] > t->widths[widest]))
                widest = i;
        if (widest == t->count)
            return;
        t->widths[widest]--;
        all--;
    }
}

static void print_cell(const struct table *t, size_t i, const char *text, enum colour colour) {
    size_t width = t->widths[i], columns = text_columns(text);
    bool left = is_text(t->columns[i].shape), cut = columns > width, last = i + 1 == t->count;
    char shown[CELL];
    size_t bytes = cut ? text_fits(text, width - 1) : strlen(text);
    snprintf(shown, sizeof shown, "%.*s%s", (int)bytes, text, cut ? "…" : "");
    int pad = (int)(width - text_columns(shown)); // a wide letter may have been one column too wide
    printf("%s%*s", i ? "  " : "", left ? 0 : pad, "");
    if (colour)
        print_coloured(colour, shown);
    else
        printf("%s", shown);
    printf("%*s", left && !last ? pad : 0, "");
}

static void show_print_row(const struct table *t, const struct response_value *row) {
    char cell[CELL];
    for (size_t i = 0; i < t->count; i++) {
        const struct column *c = &t->columns[i];
        column_words(cell, t, i, row);
        bool bad = c->shape == SHAPE_BAD && strcmp(cell, "0") != 0 && strcmp(cell, "-") != 0;
        print_cell(t, i, cell, bad ? RED : 0);
    }
    printf("\n");
}

static void show_table(const struct reply_table *fields, const struct column *columns,
                       const struct response_value *rows, const char *none) {
    struct table t = { .fields = fields, .columns = columns };
    if (!rows->count) {
        complain("%s", none);
        return;
    }
    measure(&t, rows);
    narrow(&t, output_columns());
    for (size_t i = 0; i < t.count; i++)
        print_cell(&t, i, columns[i].title, BOLD);
    printf("\n");
    const struct response_value *row = rows + 1;
    for (uint32_t r = 0; r < rows->count; r++, row = value_next(row))
        show_print_row(&t, row);
}

// ---- Maps -------------------------------------------------------------------------------------

enum { NAME = 64 };

static bool ends_in_ms(const char *name) {
    size_t size = strlen(name);
    return size > 3 && strcmp(name + size - 3, "-ms") == 0;
}

// Each line of what was printed, behind a bar.
static void print_output(int width, mr_bytes output) {
    char cell[CELL];
    for (size_t at = 0; at < output.size;) {
        const char *line = (const char *)output.data + at;
        const char *end = memchr(line, '\n', output.size - at);
        size_t size = end ? (size_t)(end - line) : output.size - at;
        printf("%-*s  | %s\n", width, "", text_plain(cell, sizeof cell, (mr_bytes){ line, size }));
        at += size + 1;
    }
}

static void print_reasons(int width, const struct response_value *reasons) {
    const struct response_value *r = reasons + 1;
    for (uint32_t i = 0; i < reasons->count; i++, r = value_next(r)) {
        struct reason_reply reason = { 0 };
        char cell[CELL], age[AGE_WORDS];
        (void)reply_read(&reason_replies, r, &reason); // what is no map has no reason
        text_plain(cell, sizeof cell, reason.text);
        printf("%-*s  attempt %" PRIu32 ", %s ago: %s\n", width, "reason", reason.attempt,
               age_words(age, reason.age_ms), cell[0] ? cell : "-");
        print_output(width, reason.output);
    }
}

// Instants, of schedules only.
static bool ends_in_at(const char *name) {
    size_t size = strlen(name);
    return size > 3 && strcmp(name + size - 3, "-at") == 0;
}

// What a schedule may do without.
static bool is_span(const char *name) {
    return strcmp(name, "every-ms") == 0 || strcmp(name, "deadline-ms") == 0;
}

static enum shape shape_of_field(const char *name, const struct response_value *v) {
    if (ends_in_ms(name))
        return is_span(name) ? SHAPE_SPAN : SHAPE_AGE;
    if (v->type == RESPONSE_MAP && strcmp(name, "progress") == 0)
        return SHAPE_PROGRESS;
    if (v->type != RESPONSE_INTEGER)
        return SHAPE_TEXT;
    return ends_in_at(name) ? SHAPE_MOMENT : SHAPE_OPEN;
}

static void print_field(const char *name, int width, const struct response_value *v) {
    char cell[CELL];
    enum shape shape = shape_of_field(name, v);
    if (v->type == RESPONSE_ARRAY && strcmp(name, "reasons") == 0) {
        print_reasons(width, v);
        return;
    }
    if (v->type == RESPONSE_ARRAY && strcmp(name, "upcoming") == 0)
        return; // a command prints it itself
    cell_words(cell, shape, v);
    printf("%-*.*s  %s\n", width, (int)strlen(name) - (ends_in_ms(name) ? 3 : 0), name, cell);
}

static void show_fields(const struct response_value *map) {
    char name[NAME];
    size_t width = 0;
    for (int pass = 0; pass < 2; pass++) {
        const struct response_value *v = map + 1;
        for (uint32_t i = 0; i + 1 < map->count; i += 2) {
            const struct response_value *value = value_next(v);
            text_plain(name, sizeof name, v->bytes);
            if (pass == 0)
                widen(&width, name);
            else
                print_field(name, (int)width, value);
            v = value_next(value);
        }
    }
}

// ---- JSON -------------------------------------------------------------------------------------

static void json_inside(struct json *j, const char *name, const struct response_value *v) {
    bool map = v->type == RESPONSE_MAP;
    const struct response_value *inside = v + 1;
    char field[NAME];
    json_open(j, name, map ? '{' : '[');
    for (uint32_t i = 0; i < v->count; i++, inside = value_next(inside)) {
        if (map) {
            text_plain(field, sizeof field, inside->bytes);
            inside = value_next(inside);
            i++;
        }
        show_json_value(j, map ? field : NULL, inside);
    }
    json_close(j, map ? '}' : ']');
}

void show_json_value(struct json *j, const char *name, const struct response_value *v) {
    switch (v->type) {
    case RESPONSE_SIMPLE:
    case RESPONSE_ERROR:
    case RESPONSE_BULK:
        json_bytes(j, name, v->bytes);
        break;
    case RESPONSE_DOUBLE:
        json_double(j, name, real_of(v));
        break;
    case RESPONSE_INTEGER:
        json_signed(j, name, v->integer);
        break;
    case RESPONSE_BOOLEAN:
        json_flag(j, name, v->boolean);
        break;
    case RESPONSE_NULL:
        json_none(j, name);
        break;
    case RESPONSE_ARRAY:
    case RESPONSE_MAP:
    case RESPONSE_PUSH:
        json_inside(j, name, v);
        break;
    }
}

static void show_json(const struct response_value *v) {
    struct json j = { 0 };
    show_json_value(&j, NULL, v);
    json_end(&j);
}

// ---- Replies ----------------------------------------------------------------------------------

enum cli_exit show_map(const struct input *in, const struct response_value *map) {
    if (input_option(in, "--json"))
        show_json(map);
    else
        show_fields(map);
    return CLI_DONE;
}

enum cli_exit show_rows(const struct input *in, const struct cli_listing *listing,
                        const struct response_value *rows) {
    if (input_option(in, "--json"))
        show_json(rows);
    else
        show_table(listing->fields, listing->columns, rows, listing->none);
    return CLI_DONE;
}

// The bytes as they are; on a terminal a missing line end is added.
enum cli_exit show_result(const struct input *in, mr_bytes bytes) {
    struct json j = { 0 };
    if (input_option(in, "--json")) {
        json_open(&j, NULL, '{');
        json_bytes(&j, "result", bytes);
        json_close(&j, '}');
        json_end(&j);
        return CLI_DONE;
    }
    if (bytes.size)
        fwrite(bytes.data, 1, bytes.size, stdout); // output_finish reports a failure
    if (bytes.size && output_columns() && ((const char *)bytes.data)[bytes.size - 1] != '\n')
        putchar('\n');
    return CLI_DONE;
}

enum cli_exit show_count(const struct input *in, int64_t count, const char *what) {
    struct json j = { 0 };
    if (!input_option(in, "--json")) {
        printf("%" PRId64 " %s\n", count, what);
        return CLI_DONE;
    }
    json_open(&j, NULL, '{');
    json_signed(&j, "count", count);
    json_close(&j, '}');
    json_end(&j);
    return CLI_DONE;
}
