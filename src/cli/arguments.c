// A command line against its row: options in any order, with their value behind them or behind an
// equals sign; whatever does not fit is said in one sentence, with what is nearly called so.
#include "cli/cli.h"
#include "cli/output.h"

#include <assert.h>
#include <string.h>

enum { NAME_MOST = 32 };

static int least(int a, int b, int c) {
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

int names_distance(const char *a, const char *b) {
    size_t a_size = strlen(a), b_size = strlen(b);
    if (a_size > NAME_MOST || b_size > NAME_MOST)
        return NAMES_APART;
    int row[NAME_MOST + 1];
    for (size_t j = 0; j <= b_size; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= a_size; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_size; j++) {
            int above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[b_size] < NAMES_APART ? row[b_size] : NAMES_APART;
}

static bool refuse(const struct command *c, const char *what, const char *word) {
    complain("%s: %s%s%s%s; see: millrace help %s", c->name, what, word ? " '" : "",
             word ? word : "", word ? "'" : "", c->name);
    return false;
}

const char *option_name(const struct option *o) {
    const char *space = strrchr(o->name, ' ');
    return space ? space + 1 : o->name;
}

static bool refuse_option(const struct command *c, const char *given) {
    const char *nearest = NULL;
    int distance = NAMES_APART;
    for (const struct option *o = c->options; o->name; o++) {
        int d = names_distance(given, option_name(o));
        if (d < distance && option_name(o)[2]) { // one letter is like any other
            distance = d;
            nearest = option_name(o);
        }
    }
    if (!nearest)
        return refuse(c, "there is no option", given);
    complain("%s: there is no option '%s'; did you mean %s?", c->name, given, nearest);
    return false;
}

// Whether `word` is this option: alone, with "=value" behind it, or, if it is a letter that takes a
// value, with that at once, as in -j4. The value is NULL if there was none.
static bool option_is(const struct option *o, const char *word, const char **out_value) {
    size_t given = strcspn(word, "=");
    for (const char *name = o->name; *name; name += strspn(name, ", ")) {
        size_t size = strcspn(name, ",");
        bool same = given == size && memcmp(name, word, size) == 0;
        if (same || (size == 2 && o->value && strncmp(name, word, size) == 0)) {
            *out_value = word[given] && same ? word + given + 1 : word[size] ? word + size : NULL;
            return true;
        }
        name += size;
    }
    return false;
}

static int option_index(const struct command *c, const char *word, const char **out_value) {
    for (int i = 0; c->options[i].name; i++)
        if (option_is(&c->options[i], word, out_value))
            return i;
    return -1;
}

// `next` is the word behind, or NULL. Returns how many words were used; 0: it was refused.
static int option_read(struct input *in, const char *word, const char *next) {
    const struct command *c = in->command;
    const char *value = NULL;
    int i = option_index(c, word, &value);
    if (i < 0)
        return refuse_option(c, word);
    if (!c->options[i].value) {
        in->values[i] = "";
        return value ? refuse(c, "no value belongs to", option_name(&c->options[i])) : 1;
    }
    in->values[i] = value || !next || strcmp(next, "--") == 0 ? value : next;
    if (!in->values[i])
        return refuse(c, "a value is missing behind", option_name(&c->options[i]));
    return value ? 1 : 2;
}

static bool missing(const struct command *c) {
    complain("%s: an argument is missing; usage: millrace %s %s", c->name, c->name, c->arguments);
    return false;
}

// The command behind --, which has to be there.
static bool words_read(struct input *in, int argc, char **argv) {
    if (argc == 0)
        return missing(in->command);
    in->words = (const char *const *)argv;
    return true;
}

bool input_read(const struct command *c, int argc, char **argv, struct input *out) {
    struct input in = { .command = c };
    int count = 0;
    bool options = true;
    for (int i = 0; i < argc;) {
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
            i++;
            if (!c->runs_command)
                continue;
            if (!words_read(&in, argc - i, argv + i))
                return false;
            break;
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            int used = option_read(&in, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            if (!used)
                return false;
            i += used;
        } else {
            if (count == c->most)
                return c->runs_command ? refuse(c, "a command stands behind --, not so", argv[i])
                                       : refuse(c, "there is nothing to do with", argv[i]);
            if (count < CLI_ARGUMENTS)
                in.arguments[count] = argv[i];
            argv[count++] = argv[i++]; // they gather at the front
        }
    }
    if (count < c->least || (c->runs_command && !in.words))
        return missing(c);
    in.list = (const char *const *)argv;
    in.count = count;
    *out = in;
    return true;
}

const char *input_option(const struct input *in, const char *name) {
    for (int i = 0; i < CLI_OPTIONS && in->command->options[i].name; i++)
        if (strcmp(option_name(&in->command->options[i]), name) == 0)
            return in->values[i];
    assert(!"the row has this option");
    return NULL;
}
