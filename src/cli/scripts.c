// See scripts.h. Two halves: how programs find their scripts among their words, and a reader of
// shell scripts that knows where quotes begin and end. Both err on the side of refusing.
#include "cli/scripts.h"

#include "base/errors.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

// ---- Programs ---------------------------------------------------------------------------------

enum script_place {
    BY_OPTION,   // only the argument of an option
    REST,        // all words behind such an option
    FIRST,       // the first operand, unless an option has named a script
    AFTER_FIRST, // all operands but the first
    ALL,         // all operands, which are joined
};

// Options of a program that are not listed are unknown, and refused where that matters. A
// letter that is in both `flags` and `with_argument` may have an argument in its own word.
struct reader_of_scripts {
    const char *names;         // separated by a space; a version may follow each
    const char *letters;       // options whose argument is a script, or the file of one
    const char *flags;         // options without an argument
    const char *with_argument; // options that have another argument
    enum script_place place;
    bool permutes;    // options may stand behind operands
    bool any_command; // in a shell's script it matters only in its own command
};

// The first are the shells that read ${NAME}.
static const struct reader_of_scripts readers[] = {
    { "sh bash rbash dash ash zsh ksh mksh yash", "c", "aefhilmnuvxE", "oO", BY_OPTION, false,
      false },
    { "fish csh tcsh expect", "cC", "", "", BY_OPTION, false, false },
    { "pwsh", "cC", "", "", REST, false, false },
    { "python pypy", "c", "BEIOSbdiqsuvx", "WXm", BY_OPTION, false, false },
    { "perl", "eE", "alnpsSw", "I", BY_OPTION, false, false },
    { "ruby", "e", "alnpsw", "ICEr", BY_OPTION, false, false },
    { "node nodejs bun", "ep", "", "r", BY_OPTION, false, false },
    { "deno", "", "", "", ALL, true, false },
    { "php", "rBRE", "nq", "cdfz", BY_OPTION, false, false },
    { "lua luajit", "e", "", "l", BY_OPTION, false, false },
    { "Rscript osascript julia guile", "ceE", "", "", BY_OPTION, false, false },
    { "R dc", "e", "", "", BY_OPTION, true, false },
    { "awk gawk mawk nawk", "ef", "", "Fv", FIRST, false, true },
    { "sed gsed", "ef", "Einrsuz", "li", FIRST, true, true },
    { "jq", "f", "CMSacejnrs", "L", FIRST, true, true },
    { "psql", "c", "AEXqtwx1", "dfvohpUFLPRT", BY_OPTION, true, false },
    { "mysql mariadb", "e", "BNs", "DhPuS", BY_OPTION, true, false },
    { "sqlite3 duckdb", "", "", "", AFTER_FIRST, true, false },
    { "ssh autossh", "", "46ACKNTXYafgknqstvxy", "BbcDEeFIiJLlmOopQRSWw", AFTER_FIRST, false,
      false },
    { "su runuser sg", "c", "l", "gGsuw", BY_OPTION, true, false },
    { "script", "c", "aefq", "", BY_OPTION, true, false },
    { "flock", "c", "enosux", "Ew", BY_OPTION, true, false },
    { "watch", "", "bceptx", "n", ALL, false, false },
    { "parallel", "", "", "jISNLnad", ALL, false, false },
    { "env", "S", "i0v", "uC", REST, false, true },
};

enum { READERS = sizeof readers / sizeof *readers };

// Programs that run the rest of their words.
static const char *const wrappers[] = { "env",     "sudo",        "doas",    "nice",     "nohup",
                                        "timeout", "setsid",      "stdbuf",  "ionice",   "chrt",
                                        "taskset", "chroot",      "time",    "unshare",  "strace",
                                        "nsenter", "prlimit",     "ltrace",  "valgrind", "xvfb-run",
                                        "sshpass", "systemd-run", "busybox", "xargs",    NULL };

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_one_of(const char *const *names, const char *text, size_t size) {
    for (; *names; names++)
        if (strlen(*names) == size && strncmp(*names, text, size) == 0)
            return true;
    return false;
}

// A name also matches with a version or the like behind it: bash-static, python3.11. For programs
// that read scripts without an option only a number may follow, because ssh-keygen is not ssh;
// script2.py is a file.
static bool name_is(const char *name, size_t most, enum script_place place, const char *text,
                    size_t size) {
    if (size < most || strncmp(name, text, most) != 0)
        return false;
    if (size > most && !isdigit((unsigned char)text[most]) && !strchr("-_.", text[most]))
        return false;
    for (size_t i = most; i < size; i++)
        if (isalpha((unsigned char)text[i]) && (place > REST || text[i - 1] == '.'))
            return false;
    return true;
}

static const struct reader_of_scripts *find_reader(const char *text, size_t size) {
    for (const struct reader_of_scripts *r = readers; r < readers + READERS; r++)
        for (const char *name = r->names; *name; name += strspn(name, " ")) {
            size_t most = strcspn(name, " ");
            if (name_is(name, most, r->place, text, size))
                return r;
            name += most;
        }
    return NULL;
}

// ---- Words ------------------------------------------------------------------------------------

static bool is_shell(const struct reader_of_scripts *r) {
    return r == readers;
}

static bool is_option(const struct reader_of_scripts *r, const char *word) {
    return word && (*word == '-' || (*word == '+' && is_shell(r))) && word[1];
}

// Whether an option may name a script, however its letters are split. Long names may be shortened.
static bool may_name_script(const struct reader_of_scripts *r, const char *word) {
    static const char *const names[] = { "command", "eval",           "print",
                                         "execute", "source",         "expression",
                                         "run",     "init-command",   "split-string",
                                         "process", "session-command" };
    if (!is_option(r, word))
        return false;
    if (word[1] != '-')
        return strpbrk(word + 1, r->letters);
    size_t size = strcspn(word + 2, "=-{");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (word[2] && strncasecmp(names[i], word + 2, size) == 0)
            return true;
    return false;
}

// How many of the next words are an option's arguments, or that the next one is a script.
enum option_kind { FLAGS, ARGUMENT, PAIR, SCRIPT, UNKNOWN };

static enum option_kind long_option(const char *name) {
    static const char *const flags[] = { "login",           "norc",       "noprofile",
                                         "posix",           "null-input", "raw-output",
                                         "slurp",           "in-place",   "compact-output",
                                         "regexp-extended", NULL };
    static const char *const pairs[] = { "arg", "argjson", "slurpfile", "rawfile", NULL };
    if (is_one_of(pairs, name, strlen(name)))
        return PAIR;
    return is_one_of(flags, name, strlen(name)) ? FLAGS : UNKNOWN;
}

static enum option_kind option_of(const struct reader_of_scripts *r, const char *word) {
    if (word[0] == '+')
        return UNKNOWN;
    if (word[1] == '-')
        return long_option(word + 2);
    for (const char *p = word + 1; *p; p++) {
        bool last = !p[1], flag = strchr(r->flags, *p);
        if (strchr(r->with_argument, *p) && !(last && flag))
            return !last ? (is_shell(r) ? UNKNOWN : FLAGS) : ARGUMENT;
        if (strchr(r->letters, *p))
            return last ? SCRIPT : UNKNOWN;
        if (!flag)
            return UNKNOWN;
    }
    return FLAGS;
}

// Behind an unknown option words can be anything: one that may name a script decides.
static bool may_be_script(const struct reader_of_scripts *r, const char *const *words,
                          const char *const *last) {
    bool may = r->place > REST;
    for (; !may && words <= last; words++)
        may = may_name_script(r, *words);
    return may;
}

// Whether the word `last` is a script, or has one, or may be one; `words` are those of the reader.
static bool scripts_is_script(const struct reader_of_scripts *r, const char *const *words,
                              const char *const *last, bool *out_sure) {
    bool named = false, ended = false;
    size_t operands = 0;
    for (const char *const *at = words; at < last; at++) {
        if (ended || !is_option(r, *at)) {
            if (r->place <= REST && !r->permutes)
                return false; // a file; what follows is for it
            ended |= !r->permutes;
            operands++;
            continue;
        }
        if (strcmp(*at, "--") == 0 && (!r->permutes || r->place > REST)) {
            ended = true;
            continue; // su and the like pass on what is behind it
        }
        enum option_kind kind = option_of(r, *at);
        *out_sure = kind == SCRIPT && at + 1 == last;
        if (*out_sure || (kind == SCRIPT && r->place == REST))
            return true;
        if (kind == UNKNOWN || (kind != FLAGS && at + 1 < last && is_option(r, at[1])))
            return may_be_script(r, words, last);
        if (kind == SCRIPT && is_shell(r))
            return false;
        named |= kind == SCRIPT;
        at += kind == SCRIPT ? 1 : kind;
        if (at >= last)
            return false; // an option's argument
    }
    if (!ended && is_option(r, *last) && r->place != ALL) // which letters it adds is not known
        return option_of(r, *last) != FLAGS && ((*last)[1] != '-' || may_be_script(r, words, last));
    return r->place == ALL || (r->place == FIRST && !named && !operands) ||
           (r->place == AFTER_FIRST && operands);
}

enum script_kind script_kind_of(const char *const *words, size_t index, const char **out_program) {
    const char *first = index ? base_name(words[0]) : "";
    for (size_t i = 0; i < index; i++) {
        const char *name = base_name(words[i]);
        const struct reader_of_scripts *reader = find_reader(name, strlen(name));
        bool begins = i == 0 || is_one_of(wrappers, first, strlen(first)), sure = false;
        if (!reader || (!begins && reader->place > REST))
            continue; // more likely the argument of another program
        *out_program = name;
        if (scripts_is_script(reader, words + i + 1, words + index, &sure))
            return sure && is_shell(reader) ? SCRIPT_SHELL : SCRIPT_OTHER;
    }
    return SCRIPT_NONE;
}

int script_refuse(const char *program, const char *why) {
    return error_set(MR_EINVAL,
                     "a placeholder cannot stand in a script for %.40s: %s; pass it as an "
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
    const char *why; // the placeholder is refused; NULL: it is not
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

static bool scripts_is_plain(struct shell_reader *s) {
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

static void scripts_command_end(struct shell_reader *s) {
    word_end(s);
    s->before[0] = 0;
    top(s)->command = true;
    top(s)->reads = s->depth && s->levels[s->depth - 1].reads;
}

// Whether the value would be the name of a variable, or an index, both of which bash evaluates.
static bool would_be_name(struct shell_reader *s) {
    static const char *const anywhere[] = { ".", "-v", NULL };
    static const char *const first[] = { "read", "local", "readonly", "export", "getopts", NULL };
    size_t size = s->word_begun ? strlen(s->word) : 0;
    bool index = scripts_is_plain(s) && size > 1 && s->word[size - 1] == '[' &&
                 (isalnum((unsigned char)s->word[size - 2]) || s->word[size - 2] == '_');
    return index || is_one_of(anywhere, s->before, strlen(s->before)) ||
           (!s->word_begun && is_one_of(first, s->before, strlen(s->before)));
}

// With `?` a shell stops if a wrapper (env -i, sudo) has taken the variable away, instead of going
// on with an empty value.
static int put_variable(struct shell_reader *s, const char *name, size_t size) {
    const char *quote = scripts_is_plain(s) ? "\"" : "";
    char text[WORD];
    if (top(s)->within == PARAMETER)
        s->why = too_involved;
    else if (top(s)->reads)
        s->why = other_reader;
    else if (scripts_is_plain(s) && !s->word_begun && top(s)->command)
        s->why = "it would be the command itself (scripts are read from stdin: run --stdin -- sh, "
                 "or work STAGE -- sh)";
    else if (would_be_name(s))
        s->why = other_reader;
    if (s->why)
        return 0;
    if (scripts_is_plain(s))
        word_add(s, '"');
    s->at += size;
    snprintf(text, sizeof text, "%s${%s?}%s", quote, name, quote);
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
    else if (s->at[1] == '\'' && scripts_is_plain(s))
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
    scripts_command_end(s);
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
        scripts_command_end(s);
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
    if (scripts_is_plain(s))
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
    static const char *const names[] = { "eval",      "trap",    "let",    "declare",
                                         "typeset",   "unset",   "source", "mapfile",
                                         "readarray", "compgen", NULL };
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
