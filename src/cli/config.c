// See config.h. The file is read whole and cut into names and values where they stand.
#include "cli/config.h"

#include "base/errors.h"
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_MOST = 64 << 10 };

// ---- One line ---------------------------------------------------------------------------------

static const char blanks[] = " \t\r";

static char *trim(char *text) {
    text += strspn(text, blanks);
    size_t size = strlen(text);
    while (size && strchr(blanks, text[size - 1]))
        size--;
    text[size] = 0;
    return text;
}

// A comment begins with a # that opens the line or stands behind a blank.
static void cut_comment(char *line) {
    for (char *at = line; (at = strchr(at, '#')) != NULL; at++)
        if (at == line || strchr(blanks, at[-1])) {
            *at = 0;
            return;
        }
}

struct config_reader {
    struct input *in;
    int line;
    int seen[CLI_OPTIONS]; // the line in which an option stood
};

static int config_refuse_line(const struct config_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int config_refuse_line(const struct config_reader *r, const char *format, ...) {
    char what[512];
    va_list values;
    va_start(values, format);
    vsnprintf(what, sizeof what, format, values);
    va_end(values);
    return error_set(MR_EINVAL, "%s:%d: %s", r->in->file, r->line, what);
}

static int refuse_name(const struct config_reader *r, const char *name) {
    const struct cli_command *c = r->in->command;
    const char *nearest = NULL;
    int distance = NAMES_APART;
    for (const struct cli_option *o = c->options; o->name; o++) {
        int d = names_distance(name, o->name + 2);
        if (d < distance) {
            distance = d;
            nearest = o->name + 2;
        }
    }
    if (nearest)
        return config_refuse_line(r, "there is no option '%s'; did you mean %s?", name, nearest);
    return config_refuse_line(r, "there is no option '%s'; millrace help %s lists them", name,
                              c->name);
}

static int config_take_option(struct config_reader *r, int index, const char *value) {
    struct input *in = r->in;
    const struct cli_option *o = &in->command->options[index];
    const char *name = o->name + 2;
    bool no = !o->value && strcmp(value, "no") == 0;
    if (strcmp(name, "config") == 0)
        return config_refuse_line(r,
                                  "a file of options cannot name another one: put its lines here");
    if (r->seen[index])
        return config_refuse_line(r, "%s stands in line %d already: keep one of them", name,
                                  r->seen[index]);
    if (!*value)
        return config_refuse_line(r, "%s has no value; without the line it has its default", name);
    if (!o->value && !no && strcmp(value, "yes") != 0)
        return config_refuse_line(r, "%s is yes or no, not '%s'", name, value);
    r->seen[index] = r->line;
    if (in->values[index] || no) // a flag wins
        return 0;
    in->values[index] = o->value ? value : "";
    in->lines[index] = r->line;
    return 0;
}

static int read_line(struct config_reader *r, char *text) {
    cut_comment(text);
    text = trim(text);
    if (!*text)
        return 0;
    char *equals = strchr(text, '=');
    if (!equals)
        return config_refuse_line(r, "'%s' has no value; lines are NAME = VALUE", text);
    *equals = 0;
    const char *name = trim(text), *value = trim(equals + 1);
    for (int i = 0; r->in->command->options[i].name; i++)
        if (strcmp(r->in->command->options[i].name + 2, name) == 0)
            return config_take_option(r, i, value);
    return refuse_name(r, name);
}

// ---- The file ---------------------------------------------------------------------------------

static int config_read_lines(struct input *in, char *text) {
    struct config_reader r = { .in = in, .line = 1 };
    for (char *next; text; text = next, r.line++) {
        next = strchr(text, '\n');
        if (next)
            *next++ = 0;
        int err = read_line(&r, text);
        if (err < 0)
            return err;
    }
    return 0;
}

static int read_text(const char *path, FILE *from, char *text) {
    size_t size = fread(text, 1, CONFIG_MOST + 1, from);
    if (ferror(from))
        return error_set(MR_EIO, "%s: cannot be read: %s", path, strerror(errno));
    if (size > CONFIG_MOST || memchr(text, 0, size))
        return error_set(MR_EINVAL, "%s: is no file of options: it is %s", path,
                         size > CONFIG_MOST ? "too large" : "not text");
    text[size] = 0;
    return 0;
}

static int config_read_file(const char *path, char *text) {
    FILE *from = fopen(path, "re");
    if (!from)
        return error_set(MR_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    int err = read_text(path, from, text);
    fclose(from);
    return err;
}

int config_read(struct input *in, struct config *out) {
    const char *path = input_option(in, "--config");
    if (!path)
        return 0;
    char *text = mem_alloc(CONFIG_MOST + 1);
    if (!text)
        return error_set(MR_ENOMEM, "no memory to read %s", path);
    in->file = path;
    int err = config_read_file(path, text);
    if (err == 0)
        err = config_read_lines(in, text);
    if (err < 0) {
        mem_free(text);
        return err;
    }
    out->text = text;
    return 0;
}

void config_finish(struct config *c) {
    mem_free(c->text);
    *c = (struct config){ 0 };
}

int input_refuse(const struct input *in, const char *option, const char *what) {
    int i = 0;
    while (strcmp(in->command->options[i].name, option) != 0)
        i++;
    if (in->lines[i])
        return error_set(MR_EINVAL, "%s:%d: '%s' cannot be %s: %s", in->file, in->lines[i],
                         in->values[i], option + 2, what);
    return error_set(MR_EINVAL, "'%s' cannot be %s: %s", in->values[i], option, what);
}
