// See scripts.h. Two halves: how programs find their scripts among their words, and a reader of
// shell scripts that knows where quotes begin and end. Both err on the side of refusing.
#include "cli/scripts.h"

#include "base/errors.h"

#include <stdio.h>

// ---- Programs ---------------------------------------------------------------------------------

enum script_place {
    BY_OPTION,   // only the argument of an option
    BY_FLAG,     // the first operand, if the flag c is there
    FIRST,       // the first operand, unless an option has named a script
    AFTER_FIRST, // all operands but the first
    ALL,         // all operands, which are joined
};

struct reader_of_scripts {
    const char *name;          // with * at its end: whatever follows
    const char *letters;       // options whose argument is a script
    const char *with_argument; // options that have another argument
    enum script_place place;
    enum script_kind kind;
    bool permutes;     // options may stand behind operands
    bool any_command;  // in a shell's script it matters only in its own command
    const char *files; // options that name the script's file: no operand is one then
};

static const struct reader_of_scripts readers[] = {
    { "sh", "", "oO", BY_FLAG, SCRIPT_SHELL, false, false, "" },
    { "bash", "", "oO", BY_FLAG, SCRIPT_SHELL, false, false, "" },
    { "rbash", "", "oO", BY_FLAG, SCRIPT_SHELL, false, false, "" },
    { "dash", "", "o", BY_FLAG, SCRIPT_SHELL, false, false, "" },
    { "ash", "", "o", BY_FLAG, SCRIPT_SHELL, false, false, "" },
    { "zsh", "", "o", BY_FLAG, SCRIPT_SHELL, false, false, "" },
    { "ksh*", "", "o", BY_FLAG, SCRIPT_SHELL, false, false, "" },
    { "mksh", "", "o", BY_FLAG, SCRIPT_SHELL, false, false, "" },
    { "yash", "", "o", BY_FLAG, SCRIPT_SHELL, false, false, "" },
    { "fish", "cC", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "csh", "c", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "tcsh", "c", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "pwsh", "cC", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "python*", "c", "WXm", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "pypy*", "c", "WXm", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "perl*", "eE", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "ruby*", "e", "ICEr", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "node", "ep", "r", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "nodejs", "ep", "r", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "bun", "ep", "r", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "deno", "", "", ALL, SCRIPT_OTHER, true, false, "" },
    { "php*", "rBRE", "cdfz", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "lua*", "e", "l", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "Rscript", "e", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "R", "e", "", BY_OPTION, SCRIPT_OTHER, true, false, "" },
    { "julia", "eE", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "guile", "ce", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "expect", "c", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "osascript", "e", "", BY_OPTION, SCRIPT_OTHER, false, false, "" },
    { "dc", "e", "", BY_OPTION, SCRIPT_OTHER, true, false, "" },
    { "awk", "e", "Fvi", FIRST, SCRIPT_OTHER, false, true, "f" },
    { "gawk", "e", "Fvi", FIRST, SCRIPT_OTHER, false, true, "f" },
    { "mawk", "e", "FvW", FIRST, SCRIPT_OTHER, false, true, "f" },
    { "nawk", "e", "Fv", FIRST, SCRIPT_OTHER, false, true, "f" },
    { "sed", "e", "l", FIRST, SCRIPT_OTHER, true, true, "f" },
    { "gsed", "e", "l", FIRST, SCRIPT_OTHER, true, true, "f" },
    { "jq", "", "L", FIRST, SCRIPT_OTHER, true, true, "f" },
    { "psql", "c", "dfvohpUFLPRT", BY_OPTION, SCRIPT_OTHER, true, false, "" },
    { "mysql", "e", "DhPuS", BY_OPTION, SCRIPT_OTHER, true, false, "" },
    { "mariadb", "e", "DhPuS", BY_OPTION, SCRIPT_OTHER, true, false, "" },
    { "duckdb", "cs", "", AFTER_FIRST, SCRIPT_OTHER, true, false, "" },
    { "sqlite3", "", "", AFTER_FIRST, SCRIPT_OTHER, true, false, "" },
    { "ssh", "", "BbcDEeFIiJLlmOopQRSWw", AFTER_FIRST, SCRIPT_OTHER, false, false, "" },
    { "autossh", "", "MBbcDEeFIiJLlmOopQRSWw", AFTER_FIRST, SCRIPT_OTHER, false, false, "" },
    { "su", "c", "gGsw", BY_OPTION, SCRIPT_OTHER, true, false, "" },
    { "runuser", "c", "gGsuw", BY_OPTION, SCRIPT_OTHER, true, false, "" },
    { "script", "c", "BEIOTmo", BY_OPTION, SCRIPT_OTHER, true, false, "" },
    { "flock", "c", "Ew", BY_OPTION, SCRIPT_OTHER, true, false, "" },
    { "watch", "", "nqs", ALL, SCRIPT_OTHER, false, false, "" },
    { "parallel", "", "jISNLnad", ALL, SCRIPT_OTHER, false, false, "" },
    { "env", "S", "uC", BY_OPTION, SCRIPT_OTHER, false, true, "" },
};

enum { READERS = sizeof readers / sizeof *readers };

// Programs that run the rest of their words.
static const char *const wrappers[] = {
    "env",     "sudo",   "doas",     "nice",     "nohup",   "timeout",     "setsid",  "stdbuf",
    "ionice",  "chrt",   "taskset",  "chroot",   "time",    "unshare",     "strace",  "nsenter",
    "prlimit", "ltrace", "valgrind", "xvfb-run", "sshpass", "systemd-run", "busybox", "xargs",
};

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool name_is(const char *name, const char *text, size_t size) {
    size_t most = strlen(name);
    if (name[most - 1] == '*')
        return size >= most - 1 && strncmp(name, text, most - 1) == 0;
    return size == most && strncmp(name, text, size) == 0;
}

static const struct reader_of_scripts *find_reader(const char *text, size_t size) {
    for (size_t i = 0; i < READERS; i++)
        if (name_is(readers[i].name, text, size))
            return &readers[i];
    return NULL;
}

static bool is_wrapper(const char *word) {
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strcmp(wrappers[i], base_name(word)) == 0)
            return true;
    return false;
}

// ---- Words ------------------------------------------------------------------------------------

// Where a program is among its words.
struct options_walk {
    const struct reader_of_scripts *reader;
    bool flag_c, named, ended; // c was there; an option has named a script; no more options
    bool script_next;          // the next word is one
    size_t skip;               // words that belong to an option
    size_t operands;
    size_t unsure; // words that may belong to options which are not known here
};

static bool is_one_of(const char *const *names, const char *text, size_t size) {
    for (; *names; names++)
        if (strlen(*names) == size && strncmp(*names, text, size) == 0)
            return true;
    return false;
}

// True: the word itself has a script.
static bool walk_long_option(struct options_walk *w, const char *word) {
    static const char *const scripts[] = {
        "command",         "eval",         "print",   "execute", "source", "expression",
        "session-command", "split-string", "Command", NULL
    };
    static const char *const pairs[] = { "arg", "argjson", "slurpfile", "rawfile", NULL };
    size_t size = strcspn(word, "=");
    if (is_one_of(scripts, word, size)) {
        w->named = true;
        w->script_next = !word[size];
        return word[size];
    }
    if (is_one_of(pairs, word, size))
        w->skip = 2;
    else if (!word[size])
        w->unsure++;
    return false;
}

static bool walk_letters(struct options_walk *w, const char *letters) {
    const struct reader_of_scripts *r = w->reader;
    for (; *letters; letters++) {
        if (strchr(r->letters, *letters)) {
            w->named = true;
            w->script_next = !letters[1];
            return letters[1];
        }
        if (strchr(r->files, *letters) || strchr(r->with_argument, *letters)) {
            w->named |= strchr(r->files, *letters) != NULL;
            w->skip = !letters[1];
            return false;
        }
        w->flag_c |= *letters == 'c';
    }
    return false;
}

static bool operand_is_script(struct options_walk *w, const char *word) {
    const struct reader_of_scripts *r = w->reader;
    w->operands++;
    w->ended |= !r->permutes && !(strcmp(r->name, "env") == 0 && word && strchr(word, '='));
    switch (r->place) {
    case BY_OPTION:
        return false;
    case BY_FLAG:
        return w->flag_c && w->operands <= 1 + w->unsure;
    case FIRST:
        return !w->named && w->operands <= 1 + w->unsure;
    case AFTER_FIRST:
        return w->operands > 1;
    case ALL:
        return true;
    }
    return false;
}

// Goes on by a word, NULL if it is not there yet. True: it is a script, or has one.
static bool walk_word(struct options_walk *w, const char *word) {
    if (w->script_next) {
        w->script_next = false;
        return true;
    }
    if (w->skip) {
        w->skip--;
        return false;
    }
    bool signs = word && (word[0] == '-' || (word[0] == '+' && w->reader->place == BY_FLAG));
    if (!signs || !word[1] || w->ended)
        return operand_is_script(w, word);
    if (word[1] != '-')
        return walk_letters(w, word + 1);
    w->ended = !word[2];
    return word[2] && walk_long_option(w, word + 2);
}

enum script_kind script_kind_of(const char *const *words, size_t index, const char **out_program) {
    for (size_t i = 0; i < index; i++) {
        const char *name = base_name(words[i]);
        struct options_walk walk = { .reader = find_reader(name, strlen(name)) };
        if (!walk.reader)
            continue;
        bool begins = i == 0 || is_wrapper(words[0]);
        if (!begins && walk.reader->place != BY_FLAG && walk.reader->place != BY_OPTION)
            continue; // more likely the argument of another program
        bool script = false;
        for (size_t at = i + 1; at <= index; at++)
            script = walk_word(&walk, words[at]);
        *out_program = name;
        if (script)
            return walk.reader->kind;
    }
    return SCRIPT_NONE;
}

int script_refuse(const char *program, const char *why) {
    return error_set(MR_EINVAL,
                     "a placeholder cannot stand in a script for %.40s: %s; hand it over as an "
                     "argument behind the script (sh -c 'SCRIPT' sh {}, where it is \"$1\"), or "
                     "have the script read it from stdin",
                     program, why);
}

// ---- Shell scripts ----------------------------------------------------------------------------

enum { DEPTH = 32, WORD = 64 };

// What a part of a script is within.
enum within { PLAIN, PARENTHESES, SUBSTITUTION, QUOTES, PARAMETER };

struct level {
    enum within within;
    bool command; // the next word is a command's name
    bool reads;   // this command reads a script of its own: awk, sed …
};

struct shell_reader {
    const char *at;
    script_variable *variable;
    struct buffer *out;
    const char *why; // it cannot be done; NULL: it can
    struct level levels[DEPTH];
    int depth;
    char word[WORD], before[WORD]; // so far, unquoted; and the one before it
    size_t word_size;
    bool word_begun;
};

static const char not_expanded[] = "a shell expands nothing within single quotes";
static const char too_involved[] = "it stands where quotes are hard to follow";
static const char arithmetic[] = "arithmetic and [[ would read what is in it";
static const char other_reader[] = "a command in it may read it as a script once more";

static struct level *top(struct shell_reader *s) {
    return &s->levels[s->depth];
}

static bool is_plain(struct shell_reader *s) {
    return top(s)->within <= SUBSTITUTION;
}

static int copy(struct shell_reader *s, size_t size) {
    int err = buffer_append(s->out, s->at, size);
    s->at += size;
    return err;
}

static void enter(struct shell_reader *s, enum within within) {
    if (s->depth + 1 == DEPTH) {
        s->why = too_involved;
        return;
    }
    bool reads = top(s)->reads;
    s->depth++;
    *top(s) = (struct level){ within, within != QUOTES && within != PARAMETER, reads };
}

static bool has_placeholder(const struct shell_reader *s, size_t size) {
    size_t used;
    for (size_t i = 0; i < size; i++)
        if (s->variable(s->at + i, &used))
            return true;
    return false;
}

// Words behind which the name of a command still comes.
static bool leads_to_command(const char *word) {
    static const char *const names[] = { "if",    "then",    "else",   "elif",    "while",
                                         "until", "do",      "!",      "{",       "time",
                                         "exec",  "command", "nohup",  "builtin", "sudo",
                                         "env",   "nice",    "setsid", NULL };
    return strchr(word, '=') || is_one_of(names, word, strlen(word));
}

static void word_end(struct shell_reader *s) {
    if (!s->word_begun)
        return;
    s->word[s->word_size] = 0;
    const char *name = base_name(s->word);
    const struct reader_of_scripts *reader = find_reader(name, strlen(name));
    top(s)->reads |= reader && reader->any_command && reader->place == FIRST;
    top(s)->command &= leads_to_command(s->word);
    memcpy(s->before, s->word, sizeof s->before);
    s->word_size = 0;
    s->word_begun = false;
}

static void word_add(struct shell_reader *s, char c) {
    s->word_begun = true;
    if (s->word_size < WORD - 1)
        s->word[s->word_size++] = c;
}

static void command_end(struct shell_reader *s) {
    word_end(s);
    s->before[0] = 0;
    top(s)->command = true;
    top(s)->reads = s->depth && s->levels[s->depth - 1].reads;
}

static int put_variable(struct shell_reader *s, const char *name, size_t size) {
    const char *quote = is_plain(s) ? "\"" : "";
    char text[WORD];
    if (top(s)->within == PARAMETER)
        s->why = too_involved;
    else if (top(s)->reads)
        s->why = other_reader;
    else if (is_plain(s) && !s->word_begun && top(s)->command)
        s->why = "it would be the command itself (scripts are read from stdin: run --stdin -- sh, "
                 "or work STAGE -- sh)";
    else if (strcmp(s->before, ".") == 0 || strcmp(s->before, "-v") == 0)
        s->why = other_reader;
    if (s->why)
        return 0;
    if (is_plain(s))
        word_add(s, '"');
    s->at += size;
    snprintf(text, sizeof text, "%s${%s}%s", quote, name, quote);
    return buffer_append(s->out, text, strlen(text));
}

// Text up to `end` in which nothing may be replaced.
static int copy_opaque(struct shell_reader *s, char end, const char *why) {
    size_t size = 1;
    while (s->at[size] && s->at[size] != end)
        size += end == '`' && s->at[size] == '\\' && s->at[size + 1] ? 2 : 1;
    if (!s->at[size] || has_placeholder(s, size))
        s->why = why;
    word_add(s, end);
    return s->why ? 0 : copy(s, size + 1);
}

static int read_dollar(struct shell_reader *s) {
    if (strncmp(s->at, "$((", 3) == 0 || strncmp(s->at, "$[", 2) == 0)
        s->why = arithmetic;
    else if (s->at[1] == '\'' && is_plain(s))
        s->why = too_involved;
    if (s->why)
        return 0;
    word_add(s, '$');
    if (s->at[1] == '(') {
        enter(s, SUBSTITUTION);
        s->word_size = 0;
        s->word_begun = false;
    } else if (s->at[1] == '{') {
        enter(s, PARAMETER);
    } else {
        return copy(s, 1);
    }
    return copy(s, 2);
}

static int read_parenthesis(struct shell_reader *s) {
    bool opens = *s->at == '(';
    if (opens && s->at[1] == '(')
        s->why = arithmetic;
    command_end(s);
    if (opens)
        enter(s, PARENTHESES);
    else if (top(s)->within != PLAIN)
        s->depth--;
    if (!opens)
        top(s)->command &= top(s)->within == PLAIN; // behind the pattern of a case
    return copy(s, 1);
}

static int read_plain(struct shell_reader *s) {
    char c = *s->at;
    if (c == '(' || c == ')')
        return read_parenthesis(s);
    if (c == '\'')
        return copy_opaque(s, '\'', not_expanded);
    if (c == '"') {
        word_add(s, c);
        enter(s, QUOTES);
    } else if (strchr(";&|\n", c)) {
        command_end(s);
    } else if (c == ' ' || c == '\t') {
        word_end(s);
    } else if (c == '#' && !s->word_begun) {
        return copy(s, strcspn(s->at, "\n"));
    } else if (strncmp(s->at, "<<", 2) == 0) {
        s->why = too_involved;
    } else if (strncmp(s->at, "[[", 2) == 0 && !s->word_begun) {
        s->why = arithmetic;
    } else if (c == '<' || c == '>') {
        bool command = top(s)->command;
        word_end(s);
        top(s)->command = command;
        memcpy(s->before, ">", 2);
        word_add(s, c); // what follows is a file's name
    } else {
        word_add(s, c);
    }
    return copy(s, 1);
}

static int read_parameter(struct shell_reader *s) {
    if (strchr("'\"`$\\", *s->at))
        s->why = too_involved;
    else if (*s->at == '}')
        s->depth--;
    return copy(s, 1);
}

static int read_on(struct shell_reader *s) {
    size_t size;
    const char *name = s->variable(s->at, &size);
    if (name)
        return put_variable(s, name, size);
    if (*s->at == '\\' && top(s)->within != PARAMETER) {
        if (has_placeholder(s, 2))
            s->why = too_involved;
        word_add(s, '\\');
        return copy(s, s->at[1] ? 2 : 1);
    }
    if (*s->at == '`')
        return copy_opaque(s, '`', too_involved);
    if (*s->at == '$' && top(s)->within != PARAMETER)
        return read_dollar(s);
    if (is_plain(s))
        return read_plain(s);
    if (top(s)->within == PARAMETER)
        return read_parameter(s);
    if (*s->at == '"')
        s->depth--;
    return copy(s, 1);
}

// Whether anything in it, quoted or not, is the name of a command that reads scripts, or that the
// reader above cannot follow.
static bool names_reader(const char *script) {
    static const char *const names[] = { "eval",    "trap",  "let",    "declare",
                                         "typeset", "unset", "source", NULL };
    static const char of_words[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789_.+-/";
    bool has_case = strstr(script, "$(") != NULL; // its ) would be taken for that of $(
    for (const char *p = script; *p;) {
        p += strcspn(p, of_words);
        size_t size = strspn(p, of_words), from = size;
        while (from > 0 && p[from - 1] != '/')
            from--;
        const struct reader_of_scripts *reader = find_reader(p + from, size - from);
        if (size && strncmp(p, "./", 2) != 0 && reader && !reader->any_command)
            return true;
        if (is_one_of(names, p, size) || (has_case && size == 4 && strncmp(p, "case", 4) == 0))
            return true;
        p += size;
    }
    return false;
}

int script_rewrite(const char *script, script_variable *variable, struct buffer *out) {
    struct shell_reader s = { .at = script, .variable = variable, .out = out };
    s.levels[0].command = true;
    if (names_reader(script))
        return script_refuse("sh", other_reader);
    int err = 0;
    while (*s.at && err >= 0 && !s.why)
        err = read_on(&s);
    if (!s.why && s.depth)
        s.why = too_involved;
    if (s.why)
        return script_refuse("sh", s.why);
    return err < 0 ? err : buffer_append(out, "", 1);
}
