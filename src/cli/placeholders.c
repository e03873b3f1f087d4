// See placeholders.h.
#include "cli/placeholders.h"

#include "base/errors.h"
#include "base/mem.h"
#include "cli/scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef mr_bytes part_of(const struct parts *);

static mr_bytes part_line(const struct parts *p) {
    return p->line;
}

static mr_bytes part_key(const struct parts *p) {
    return p->key;
}

// Where the last component begins and ends; slashes behind it do not count.
static void last_component(mr_bytes line, size_t *out_from, size_t *out_to) {
    const char *text = line.data;
    size_t to = line.size;
    while (to > 1 && text[to - 1] == '/')
        to--;
    size_t from = to;
    while (from > 0 && text[from - 1] != '/')
        from--;
    *out_from = from;
    *out_to = to;
}

static mr_bytes part_base(const struct parts *p) {
    size_t from, to;
    last_component(p->line, &from, &to);
    if (from == to)
        return p->line; // only slashes, or nothing
    return (mr_bytes){ (const char *)p->line.data + from, to - from };
}

static mr_bytes part_directory(const struct parts *p) {
    size_t from, to;
    last_component(p->line, &from, &to);
    const char *text = p->line.data;
    while (from > 1 && text[from - 1] == '/')
        from--;
    return from ? (mr_bytes){ text, from } : mr_str(".");
}

// A dot that begins a name does not begin an extension.
static mr_bytes part_stem(const struct parts *p) {
    size_t from, to;
    last_component(p->line, &from, &to);
    const char *text = p->line.data;
    for (size_t i = to; i > from + 1; i--)
        if (text[i - 1] == '.')
            return (mr_bytes){ text, i - 1 };
    return p->line;
}

static mr_bytes part_base_stem(const struct parts *p) {
    return part_stem(&(struct parts){ .line = part_base(p) });
}

static const struct {
    const char *name;
    part_of *find;        // NULL: the number
    const char *variable; // in a script
} places[] = {
    { "{}", part_line, "MILLRACE_BODY" },
    { "{.}", part_stem, "MILLRACE_STEM" },
    { "{/}", part_base, "MILLRACE_BASE" },
    { "{//}", part_directory, "MILLRACE_DIR" },
    { "{/.}", part_base_stem, "MILLRACE_BASE_STEM" },
    { "{key}", part_key, "MILLRACE_KEY" },
    { "{#}", NULL, "MILLRACE_NUMBER" },
    { "{id}", NULL, "MILLRACE_NUMBER" },
};

enum { PLACES = sizeof places / sizeof *places };

// The placeholder that `text` begins with; -1: none.
static int place_at(const char *text) {
    for (int i = 0; *text == '{' && i < PLACES; i++)
        if (strncmp(text, places[i].name, strlen(places[i].name)) == 0)
            return i;
    return -1;
}

static const char *variable_at(const char *text, size_t *out_size) {
    int place = place_at(text);
    if (place < 0)
        return NULL;
    *out_size = strlen(places[place].name);
    return places[place].variable;
}

// ---- The template -----------------------------------------------------------------------------

static unsigned places_in(const char *word) {
    unsigned found = 0;
    for (const char *at = strchr(word, '{'); at; at = strchr(at + 1, '{')) {
        int place = place_at(at);
        found |= place < 0 ? 0 : 1U << place;
    }
    return found;
}

static int copy_word(const char *text, struct template_word *out) {
    size_t size = strlen(text) + 1;
    out->text = mem_alloc(size);
    if (!out->text)
        return error_set(MR_ENOMEM, "no memory for a command");
    memcpy(out->text, text, size);
    return 0;
}

static int rewrite_word(const char *text, struct template_word *out) {
    struct buffer script = { 0 };
    int err = script_rewrite(text, variable_at, &script);
    if (err >= 0)
        err = copy_word((const char *)script.data, out);
    out->fixed = true;
    buffer_finish(&script);
    return err;
}

static int refuse_script(const char *program) {
    return script_refuse(program, "it would be read as part of it, and could run commands");
}

static int open_word(struct template *t, const char *const *words, size_t i) {
    unsigned found = places_in(words[i]);
    const char *program;
    enum script_kind kind = found ? script_kind_of(words, i, &program) : SCRIPT_NONE;
    t->append &= !found;
    t->takes_line |= found & 1;
    t->varies |= i == 0 && found;
    for (int p = 0; p < PLACES; p++)
        t->uses_key |= (found >> p & 1) && places[p].find == part_key;
    switch (kind) {
    case SCRIPT_OTHER:
        return refuse_script(program);
    case SCRIPT_SHELL:
        t->variables |= found;
        return rewrite_word(words[i], &t->words[i]);
    case SCRIPT_NONE:
        break;
    }
    int first = place_at(words[i]);
    bool any_text = first >= 0 && places[first].find;
    int err = copy_word(words[i], &t->words[i]);
    t->words[i].guarded = any_text && script_reads_options(words, i);
    return err;
}

int template_open(const char *const *words, bool input, struct template *out) {
    struct template t = { .append = !input };
    const char *program;
    while (words[t.count])
        t.count++;
    t.words = mem_alloc((t.count + 1) * sizeof *t.words);
    int err = t.words ? 0 : error_set(MR_ENOMEM, "no memory for a command");
    for (size_t i = 0; err >= 0 && i < t.count; i++)
        err = open_word(&t, words, i);
    if (err >= 0 && t.append && script_kind_of(words, t.count, &program) != SCRIPT_NONE)
        err = refuse_script(program);
    t.append_guarded = script_reads_options(words, t.count);
    if (err < 0)
        template_close(&t);
    else
        *out = t;
    return err;
}

void template_close(struct template *t) {
    for (size_t i = 0; t->words && i < t->count; i++)
        mem_free(t->words[i].text);
    mem_free(t->words);
    *t = (struct template){ 0 };
}

static bool place_takes_several(int place) {
    return !places[place].find || places[place].find == part_key;
}

int template_check_several(const struct template *t) {
    unsigned found = t->variables;
    for (size_t i = 0; i < t->count; i++)
        if (!t->words[i].fixed && strcmp(t->words[i].text, places[0].name) != 0)
            found |= places_in(t->words[i].text);
    for (int i = 0; i < PLACES; i++)
        if ((found >> i & 1) && !place_takes_several(i))
            return error_set(MR_EINVAL,
                             "-n: %s is a place for one line; leave it out, and all lines are "
                             "appended, or let {} be an argument by itself",
                             places[i].name);
    return 0;
}

// ---- Filling ----------------------------------------------------------------------------------

static int append_bytes(struct buffer *text, mr_bytes part) {
    if (part.size && memchr(part.data, 0, part.size))
        return error_set(MR_EINVAL, "it has a 0 byte, which no argument can hold; on stdin it "
                                    "could be read (run --stdin; work and flow without {})");
    return part.size ? buffer_append(text, part.data, part.size) : 0;
}

static int append_part(struct buffer *text, int place, const struct parts *p) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, p->number);
    return append_bytes(text, places[place].find ? places[place].find(p) : mr_str(digits));
}

// A word for each line. How many; MR_EINVAL, MR_ENOMEM.
static int append_several(struct buffer *text, const struct parts *p) {
    int count = 0;
    for (size_t at = 0; at <= p->line.size; count++) {
        const char *from = (const char *)p->line.data + at;
        size_t left = p->line.size - at;
        const char *end = left ? memchr(from, p->delimiter, left) : NULL;
        size_t size = end ? (size_t)(end - from) : left;
        int err = append_bytes(text, (mr_bytes){ from, size });
        if (err >= 0)
            err = buffer_append(text, "", 1);
        if (err < 0)
            return err;
        at += size + 1;
    }
    return count;
}

// How many words it has become.
static int append_word(struct buffer *text, const char *word, bool fixed, const struct parts *p) {
    int err = 0;
    if (p->several && !fixed && strcmp(word, places[0].name) == 0)
        return append_several(text, p);
    while (*word && err >= 0) {
        int place = fixed ? -1 : place_at(word);
        if (place >= 0) {
            err = append_part(text, place, p);
            word += strlen(places[place].name);
        } else {
            size_t size = fixed ? strlen(word) : 1 + strcspn(word + 1, "{");
            err = buffer_append(text, word, size);
            word += size;
        }
    }
    if (err >= 0)
        err = buffer_append(text, "", 1);
    return err < 0 ? err : 1;
}

static int append_variable(struct buffer *text, int place, const struct parts *p) {
    const char *name = places[place].variable;
    int err = buffer_append(text, name, strlen(name));
    if (err >= 0)
        err = buffer_append(text, "=", 1);
    if (err >= 0)
        err = append_part(text, place, p);
    return err < 0 ? err : buffer_append(text, "", 1);
}

static int check_guarded(const struct buffer *text, size_t from) {
    char first = (char)text->data[from];
    if (first != '-' && first != '+')
        return 0;
    return error_set(MR_EINVAL,
                     "it begins with %c: the command would take it for an option, which may name "
                     "a script; put -- before the placeholder",
                     first);
}

// As append_word, of a word that must not become an option.
static int append_guarded(struct buffer *text, const char *word, const struct parts *p) {
    size_t from = text->size;
    int count = append_word(text, word, false, p), err = count < 0 ? count : 0;
    for (int i = 0; i < count && err >= 0; i++) {
        err = check_guarded(text, from);
        from += strlen((const char *)text->data + from) + 1;
    }
    return err < 0 ? err : count;
}

// Words and variables, one behind the other; `out_words` and `out_count` of both.
static int fill_text(const struct template *t, const struct parts *p, struct buffer *text,
                     size_t *out_words, size_t *out_count) {
    size_t words = 0, count;
    int err = 0;
    for (size_t i = 0; i < t->count && err >= 0; i++) {
        const struct template_word *word = &t->words[i];
        err = word->guarded ? append_guarded(text, word->text, p)
                            : append_word(text, word->text, word->fixed, p);
        words += err < 0 ? 0 : (size_t)err;
    }
    if (t->append && err >= 0) {
        err = t->append_guarded ? append_guarded(text, places[0].name, p)
                                : append_word(text, places[0].name, false, p);
        words += err < 0 ? 0 : (size_t)err;
    }
    count = words;
    for (int i = 0; i < PLACES && err >= 0; i++) {
        if (!(t->variables >> i & 1))
            continue;
        err = append_variable(text, i, p);
        count++;
    }
    *out_words = words;
    *out_count = count;
    return err;
}

int template_fill(const struct template *t, const struct parts *p, const char *variable,
                  struct filled *out) {
    enum { MORE = 3 }; // NULL twice, and `variable`
    size_t words, count;
    buffer_clear(&out->text);
    buffer_clear(&out->pointers);
    int err = fill_text(t, p, &out->text, &words, &count);
    if (err >= 0)
        err = buffer_reserve(&out->pointers, (count + MORE) * sizeof(char *));
    if (err < 0)
        return err;
    const char **at = (const char **)(void *)out->pointers.data;
    const char *text = (const char *)out->text.data;
    out->argv = (const char *const *)at;
    for (size_t i = 0; i < count; i++, text += strlen(text) + 1) {
        if (i == words)
            *at++ = NULL;
        *at++ = text;
    }
    if (words == count)
        *at++ = NULL;
    out->variables = out->argv + words + 1;
    if (variable)
        *at++ = variable;
    *at = NULL;
    return 0;
}

void filled_finish(struct filled *f) {
    buffer_finish(&f->text);
    buffer_finish(&f->pointers);
}

// ---- The command ------------------------------------------------------------------------------

static bool is_program(const char *path, size_t size, const char *name) {
    char whole[4096];
    int used = snprintf(whole, sizeof whole, "%.*s%s%s", (int)size, path, size ? "/" : "", name);
    return used < (int)sizeof whole && access(whole, X_OK) == 0;
}

static bool command_is_there(const char *name) {
    if (strchr(name, '/'))
        return is_program("", 0, name);
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/bin:/usr/bin"; *name; p++) {
        size_t size = strcspn(p, ":");
        if (is_program(p, size, name))
            return true;
        p += size;
        if (!*p)
            break;
    }
    return false;
}

int program_find(const char *name) {
    if (command_is_there(name))
        return 0;
    if (strchr(name, '/') && access(name, F_OK) == 0)
        return error_set(MR_EINVAL, "'%.200s' is not executable", name);
    return error_set(MR_EINVAL, "there is no command '%.200s'", name);
}
