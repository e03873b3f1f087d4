// See placeholders.h.
#include "cli/placeholders.h"

#include "base/errors.h"

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
    part_of *find; // NULL: the number
} places[] = {
    { "{}", part_line },
    { "{.}", part_stem },
    { "{/}", part_base },
    { "{//}", part_directory },
    { "{/.}", part_base_stem },
    { "{key}", part_key },
    { "{#}", NULL },
    { "{id}", NULL },
};

enum { PLACES = sizeof places / sizeof *places };

// The placeholder that `text` begins with; -1: none.
static int place_at(const char *text) {
    for (int i = 0; *text == '{' && i < PLACES; i++)
        if (strncmp(text, places[i].name, strlen(places[i].name)) == 0)
            return i;
    return -1;
}

struct template template_of(const char *const *words, bool input) {
    struct template t = { .words = words, .append = !input };
    for (size_t i = 0; words[i]; i++) {
        for (const char *at = strchr(words[i], '{'); at; at = strchr(at + 1, '{')) {
            int place = place_at(at);
            if (place < 0)
                continue;
            t.append = false;
            t.uses_key |= places[place].find == part_key;
            t.varies |= i == 0;
        }
    }
    return t;
}

static int append_part(struct buffer *text, int place, const struct parts *p) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, p->number);
    mr_bytes part = places[place].find ? places[place].find(p) : mr_str(digits);
    if (part.size && memchr(part.data, 0, part.size))
        return error_set(MR_EINVAL, "it has a 0 byte, which no argument can hold; --stdin pipes it "
                                    "in instead");
    return part.size ? buffer_append(text, part.data, part.size) : 0;
}

static int append_word(struct buffer *text, const char *word, const struct parts *p) {
    int err = 0;
    while (*word && err >= 0) {
        int place = place_at(word);
        if (place >= 0) {
            err = append_part(text, place, p);
            word += strlen(places[place].name);
        } else {
            size_t size = 1 + strcspn(word + 1, "{");
            err = buffer_append(text, word, size);
            word += size;
        }
    }
    return err < 0 ? err : buffer_append(text, "", 1);
}

static int fill_text(const struct template *t, const struct parts *p, struct buffer *text,
                     size_t *out_count) {
    size_t count = 0;
    int err = 0;
    for (; t->words[count] && err >= 0; count++)
        err = append_word(text, t->words[count], p);
    if (t->append && err >= 0) {
        err = append_word(text, "{}", p);
        count++;
    }
    *out_count = count;
    return err;
}

int template_fill(const struct template *t, const struct parts *p, struct filled *room,
                  const char *const **out_argv) {
    size_t count;
    buffer_clear(&room->text);
    buffer_clear(&room->argv);
    int err = fill_text(t, p, &room->text, &count);
    if (err >= 0)
        err = buffer_reserve(&room->argv, (count + 1) * sizeof(char *));
    if (err < 0)
        return err;
    const char **argv = (const char **)(void *)room->argv.data;
    const char *word = (const char *)room->text.data;
    for (size_t i = 0; i < count; i++) {
        argv[i] = word;
        word += strlen(word) + 1;
    }
    argv[count] = NULL;
    *out_argv = (const char *const *)argv;
    return 0;
}

void filled_finish(struct filled *f) {
    buffer_finish(&f->text);
    buffer_finish(&f->argv);
}

// ---- The command ------------------------------------------------------------------------------

static bool is_program(const char *path, size_t size, const char *name) {
    char whole[4096];
    int used = snprintf(whole, sizeof whole, "%.*s%s%s", (int)size, path, size ? "/" : "", name);
    return used < (int)sizeof whole && access(whole, X_OK) == 0;
}

bool command_is_there(const char *name) {
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
