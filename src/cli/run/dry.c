// Dry run: prints the commands that would run, one a line, as a shell would have to read them, and
// runs nothing.
#include "base/errors.h"
#include "cli/output.h"
#include "cli/quote.h"
#include "cli/run/run.h"

#include <inttypes.h>
#include <unistd.h>

static int dry_variable(struct buffer *to, const char *variable) {
    size_t name = strcspn(variable, "=") + 1;
    int err = buffer_append(to, variable, name);
    if (err >= 0)
        err = quote_word(to, variable + name);
    return err < 0 ? err : buffer_append(to, " ", 1);
}

// What is to be on stdin has no 0 byte: a shell cannot pass it on.
static int dry_input(struct buffer *to, const struct run_options *o, mr_bytes text) {
    struct buffer word = { 0 };
    static const char print[] = "printf %s ";
    if (text.size && memchr(text.data, 0, text.size))
        return error_set(MR_EINVAL, "it has a 0 byte, which a shell cannot print");
    int err = buffer_append(&word, text.data, text.size);
    if (err >= 0 && o->delimiter == '\n')
        err = buffer_append(&word, "\n", 1);
    if (err >= 0)
        err = buffer_append(&word, "", 1);
    if (err >= 0)
        err = buffer_append(to, print, sizeof print - 1);
    if (err >= 0)
        err = quote_word(to, (const char *)word.data);
    buffer_finish(&word);
    return err < 0 ? err : buffer_append(to, " | ", 3);
}

static int dry_command(struct buffer *to, const struct filled *f) {
    int err = 0;
    for (const char *const *v = f->variables; *v && err >= 0; v++)
        err = dry_variable(to, *v);
    for (const char *const *word = f->argv; *word && err >= 0; word++) {
        err = word > f->argv ? buffer_append(to, " ", 1) : 0;
        if (err >= 0)
            err = quote_word(to, *word);
    }
    return err < 0 ? err : buffer_append(to, "\n", 1);
}

static int dry_line(const struct run_options *o, const struct line *line, struct filled *filled,
                    struct buffer *to) {
    struct buffer key = { 0 };
    if (line->size > line->text.size)
        return error_set(MR_ETOOBIG, "it has %" PRIu64 " bytes; %d are the most", line->size,
                         LINE_MOST);
    struct parts parts = run_parts(o, line);
    int err = keys_find(&o->keys, group_first_line(o, line->text), &key);
    parts.key = buffer_bytes(&key);
    if (err >= 0)
        err = template_fill(&o->template, &parts, NULL, filled);
    if (err >= 0 && o->input)
        err = dry_input(to, o, line->text);
    if (err >= 0)
        err = dry_command(to, filled);
    buffer_finish(&key);
    return err;
}

// A line that makes no command is reported, as it would have failed.
static int dry_lines(struct groups *g, const struct run_options *o, uint64_t *failed) {
    struct filled filled = { 0 };
    struct buffer text = { 0 };
    struct line line;
    int got;
    while ((got = groups_next(g, &line)) > 0) {
        buffer_clear(&text);
        if (dry_line(o, &line, &filled, &text) >= 0) {
            fwrite(text.data, 1, text.size, stdout);
        } else {
            ++*failed;
            complain("run: line %" PRIu64 ": %s", line.number, error_text());
        }
    }
    filled_finish(&filled);
    buffer_finish(&text);
    return got;
}

enum cli_exit dry_run(struct groups *g, const struct run_options *o) {
    uint64_t failed = 0;
    int err = 0;
    while (err >= 0 && !g->lines.ended && !ferror(stdout)) {
        err = lines_read(&g->lines, STDIN_FILENO);
        if (err >= 0)
            err = dry_lines(g, o, &failed);
    }
    if (err < 0)
        complain("run: %s", error_text());
    return !output_finish() || err < 0 || failed ? CLI_FAILED : CLI_DONE;
}
