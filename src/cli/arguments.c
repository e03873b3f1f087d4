// Reads a command line by the row of its command: options in any order, each with its value behind
// it or behind an equals sign. What does not fit is refused in one sentence, which suggests the
// option with the most similar name.
#include "base/buffer.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/quote.h"
#include "cli/secret.h"

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

static bool arguments_refuse(const struct cli_command *c, const char *what, const char *word) {
    complain("%s: %s%s%s%s; see: millrace help %s", c->name, what, word ? " '" : "",
             word ? word : "", word ? "'" : "", c->name);
    return false;
}

const char *option_name(const struct cli_option *o) {
    const char *space = strrchr(o->name, ' ');
    return space ? space + 1 : o->name;
}

static bool refuse_option(const struct cli_command *c, const char *given) {
    const char *nearest = NULL;
    int distance = NAMES_APART;
    for (const struct cli_option *o = c->options; o->name; o++) {
        int d = names_distance(given, option_name(o));
        if (d < distance && option_name(o)[2]) { // every other letter is as similar
            distance = d;
            nearest = option_name(o);
        }
    }
    if (!nearest)
        return arguments_refuse(c, "there is no option", given);
    complain("%s: there is no option '%s'; did you mean %s?", c->name, given, nearest);
    return false;
}

// Whether `word` is this option: alone, with "=value" behind it, or, if it is a letter that takes a
// value, with that at once, as in -j4. The value is NULL if there was none.
static bool option_is(const struct cli_option *o, const char *word, const char **out_value) {
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

static int option_index(const struct cli_command *c, const char *word, const char **out_value) {
    for (int i = 0; c->options[i].name; i++)
        if (option_is(&c->options[i], word, out_value))
            return i;
    return -1;
}

// Whether the word behind an option, NULL if there is none, can be its value.
static bool is_value(const char *next) {
    return next && strcmp(next, "--") != 0;
}

static bool option_repeats(const struct cli_option *o) {
    size_t size = strlen(o->value);
    return size > 3 && strcmp(o->value + size - 3, "...") == 0;
}

// `next` is the word behind, or NULL. Returns how many words were used; 0: it was refused.
static int arguments_option_read(struct input *in, const char *word, const char *next) {
    const struct cli_command *c = in->command;
    const char *value = NULL;
    int i = option_index(c, word, &value);
    if (i < 0)
        return refuse_option(c, word);
    if (!c->options[i].value) {
        in->values[i] = "";
        return value ? arguments_refuse(c, "no value belongs to", option_name(&c->options[i])) : 1;
    }
    in->values[i] = value || !is_value(next) ? value : next;
    if (!in->values[i])
        return arguments_refuse(c, "a value is missing behind", option_name(&c->options[i]));
    if (option_repeats(&c->options[i])) {
        if (in->repeated_count == CLI_REPEATED)
            return arguments_refuse(c, "there are too many of", option_name(&c->options[i]));
        in->repeated[in->repeated_count++] = in->values[i];
    }
    return value ? 1 : 2;
}

static bool missing(const struct cli_command *c) {
    complain("%s: an argument is missing; usage: millrace %s %s", c->name, c->name, c->arguments);
    return false;
}

// ---- A command without its -- -----------------------------------------------------------------

// Where the -- is missing: before the first word that is no argument of the row; -1: nowhere.
static int divider_place(const struct cli_command *c, int argc, char **argv) {
    bool divided = false;
    for (int i = 0; i < argc; i++)
        divided = divided || strcmp(argv[i], "--") == 0;
    int count = 0, most = divided ? c->most : c->least;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *value = NULL;
        bool is_option = argv[i][0] == '-' && argv[i][1];
        int option = is_option ? option_index(c, argv[i], &value) : 0;
        if (option < 0)
            return -1; // an unknown option is refused first
        if (!is_option && count++ == most)
            return i;
        if (is_option && c->options[option].value && !value && is_value(argv[i + 1]))
            i++;
    }
    return -1;
}

static int append_quoted(struct buffer *out, const char *word) {
    int err = buffer_append(out, " ", 1);
    return err < 0 ? err : quote_word(out, word);
}

// Prints the command line as it should be; a secret in it is not repeated.
static bool refuse_undivided(const struct cli_command *c, int argc, char **argv, int place) {
    struct buffer line = { 0 };
    int err = 0;
    for (int i = 0; i < argc && err >= 0; i++) {
        bool secret = i < place && secret_is_in(argv[i]);
        if (i == place)
            err = buffer_append(&line, " --", 3);
        if (err >= 0)
            err = secret ? buffer_append(&line, " ...", 4) : append_quoted(&line, argv[i]);
    }
    if (err < 0)
        complain("%s: -- is missing before the command", c->name);
    else
        complain("%s: -- is missing before the command; did you mean\n    millrace %s%.*s", c->name,
                 c->name, (int)line.size, (const char *)line.data);
    buffer_finish(&line);
    return false;
}

// Whether an option takes the place of the command.
static bool is_replaced(const struct cli_command *c, int argc, char **argv) {
    size_t size = c->instead ? strlen(c->instead) : 0;
    for (int i = 0; size && i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], c->instead, size) == 0 && (!argv[i][size] || argv[i][size] == '='))
            return true;
    return false;
}

// ---- The whole line ---------------------------------------------------------------------------

// The command behind --, which has to be there.
static bool words_read(struct input *in, int argc, char **argv) {
    if (argc == 0)
        return missing(in->command);
    in->words = (const char *const *)argv;
    return true;
}

bool input_read(const struct cli_command *c, int argc, char **argv, struct input *out) {
    struct input in = { .command = c };
    int count = 0;
    bool options = true;
    bool runs_command = c->runs_command && !is_replaced(c, argc, argv);
    int divider = runs_command ? divider_place(c, argc, argv) : -1;
    if (divider >= 0)
        return refuse_undivided(c, argc, argv, divider);
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
            int used = arguments_option_read(&in, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            if (!used)
                return false;
            i += used;
        } else {
            if (count == c->most)
                return arguments_refuse(c, "there is one argument too many:", argv[i]);
            if (count < CLI_ARGUMENTS)
                in.arguments[count] = argv[i];
            argv[count++] = argv[i++]; // arguments gather at the front of argv
        }
    }
    if (count < c->least || (runs_command && !in.words))
        return missing(c);
    in.list = (const char *const *)argv;
    in.count = count;
    *out = in;
    return true;
}

static int index_of(const struct input *in, const char *name) {
    for (int i = 0; i < CLI_OPTIONS && in->command->options[i].name; i++)
        if (strcmp(option_name(&in->command->options[i]), name) == 0)
            return i;
    assert(!"the row has this option");
    return 0;
}

const char *input_option(const struct input *in, const char *name) {
    return in->values[index_of(in, name)];
}

void input_set(struct input *in, const char *name, const char *value) {
    in->values[index_of(in, name)] = value;
}
