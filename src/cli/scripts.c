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

// Behind their script shells and python read no options; most others do.
static bool ends_options(const struct reader_of_scripts *r) {
    return strcmp(r->letters, "c") == 0 && !r->permutes;
}

static bool still_reads_options(const struct reader_of_scripts *r, const char *const *at,
                                const char *const *last) {
    for (; at < last; at++) {
        if (strcmp(*at, "--") == 0 || (!is_option(r, *at) && !r->permutes))
            return false;
        enum option_kind kind = is_option(r, *at) ? option_of(r, *at) : FLAGS;
        if (kind == SCRIPT && ends_options(r))
            return false;
        at += kind == ARGUMENT || kind == SCRIPT ? 1 : kind == PAIR ? 2 : 0;
    }
    return at == last; // beyond: it is an option's argument
}

bool script_reads_options(const char *const *words, size_t index) {
    const char *first = index ? base_name(words[0]) : "";
    for (size_t i = 0; i < index; i++) {
        const char *name = base_name(words[i]);
        const struct reader_of_scripts *reader = find_reader(name, strlen(name));
        bool begins = i == 0 || is_one_of(wrappers, first, strlen(first));
        if (!reader || (!begins && reader->place > REST))
            continue; // as above
        if (still_reads_options(reader, words + i + 1, words + index))
            return true;
        if (!is_one_of(wrappers, name, strlen(name)))
            return false; // the other words are for it
    }
    return false;
}

int script_refuse(const char *program, const char *why) {
    return error_set(MR_EINVAL,
                     "a placeholder cannot stand in a script for %.40s: %s; pass it as an "
                     "argument behind the script (sh -c 'SCRIPT' sh {}, where it is \"$1\"), or "
                     "have the script read it from stdin",
                     program, why);
}

// ---- Shell scripts ----------------------------------------------------------------------------

// A list of bad commands cannot be complete, so the rule is the other way round: each command of
// the script has a plain word as its name, and a placeholder is (part of) an argument or the file
// of a redirection behind such a name. The names of commands that evaluate or run their arguments
// are known for the shells themselves; for programs the list has the common ones.

enum { DEPTH = 32, EXCERPT = 48 };

// What a part of a script is within.
enum within { PLAIN, PARENTHESES, SUBSTITUTION, QUOTES, PARAMETER };

enum next_word { NAME, ARGUMENTS, PATTERN };

// Where the arguments of a command may have placeholders.
enum accepts {
    NOWHERE,
    ANYWHERE,
    AS_OPERAND,    // of an operator of [ that compares text or looks at a file
    BEHIND_FORMAT, // of printf
    AS_FILE,       // of a redirection, as behind ) and done
};

struct script_word {
    const char *text;
    size_t size;
};

// The first three kinds of `within` have commands; quotes and parameters are in one of their words.
struct level {
    enum within within;
    enum next_word next;
    enum accepts accepts;
    bool refused;              // what this substitution writes is where no placeholder may be
    const char *word;          // where the present word begins; NULL: between words
    struct script_word before; // the word before it
    const char *command;       // where the command begins; NULL: not yet
};

struct shell_reader {
    const char *at;
    script_variable *variable;
    struct buffer *out;
    const char *why; // the placeholder is refused; NULL: it is not
    struct level levels[DEPTH];
    int depth;
    bool blank; // the character before this one is a blank
};

static const char not_expanded[] = "a shell expands nothing within single quotes";
static const char too_involved[] = "it stands where quotes are hard to follow";
static const char arithmetic[] = "arithmetic and [[ would read what is in it";
static const char other_reader[] = "a command in the script may run it, or evaluate it once more";
static const char not_plain[] = "the name of each command in the script must be a plain word, "
                                "without quotes, backslashes, variables or options before it";
static const char with_parentheses[] =
    "functions, arrays and patterns with parentheses are hard to follow";
static const char early_redirection[] = "a redirection stands before the name of its command "
                                        "(write: COMMAND >FILE 2>&1)";

static struct level *top(struct shell_reader *s) {
    return &s->levels[s->depth];
}

static bool scripts_is_plain(struct shell_reader *s) {
    return top(s)->within <= SUBSTITUTION;
}

static struct level *command_level(struct shell_reader *s) {
    struct level *level = top(s);
    while (level->within > SUBSTITUTION)
        level--;
    return level;
}

static int copy(struct shell_reader *s, size_t size) {
    int err = buffer_append(s->out, s->at, size);
    s->at += size;
    s->blank = size && strchr(" \t\n", s->at[-1]);
    return err;
}

static bool has_placeholder(const struct shell_reader *s, size_t size) {
    size_t used;
    for (size_t i = 0; i < size; i++)
        if (s->variable(s->at + i, &used))
            return true;
    return false;
}

// ---- Names of commands ------------------------------------------------------------------------

static const char of_names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789_.+-/";

static bool word_is_among(const char *const *names, struct script_word word) {
    return is_one_of(names, word.text, word.size);
}

static struct script_word base_of(struct script_word word) {
    size_t from = word.size;
    while (from > 0 && word.text[from - 1] != '/')
        from--;
    return (struct script_word){ word.text + from, word.size - from };
}

static bool is_plain_name(struct script_word word) {
    static const char *const others[] = { "[", "!", "{", "}", ":", NULL };
    size_t tilde = *word.text == '~';
    return word_is_among(others, word) ||
           (*word.text != '-' && tilde + strspn(word.text + tilde, of_names) >= word.size);
}

static bool is_descriptor(struct script_word word) {
    return strspn(word.text, "0123456789") >= word.size;
}

static bool is_assignment(struct script_word word) {
    size_t size = 0;
    while (isalnum((unsigned char)word.text[size]) || word.text[size] == '_')
        size++;
    if (!size || isdigit((unsigned char)*word.text))
        return false;
    size += word.text[size] == '+';
    return size < word.size && word.text[size] == '=';
}

// Words behind which the name of a command still comes.
static bool leads_to_command(struct script_word word) {
    static const char *const names[] = { "if",    "then",    "else",   "elif",    "while",
                                         "until", "do",      "!",      "{",       "time",
                                         "exec",  "command", "nohup",  "builtin", "sudo",
                                         "env",   "nice",    "setsid", "doas",    NULL };
    return is_assignment(word) || word_is_among(names, base_of(word));
}

// Commands of the shells that evaluate an argument, run it, assign it, or calculate with it, in one
// of the shells at least; and programs that run their arguments.
static bool runs_arguments(struct script_word name) {
    static const char *const names[] = {
        ".",         "alias",    "autoload", "bind",       "break",       "caller",
        "compgen",   "complete", "compopt",  "continue",   "coproc",      "declare",
        "dirs",      "disown",   "emulate",  "enable",     "eval",        "exit",
        "export",    "fc",       "float",    "for",        "foreach",     "function",
        "functions", "getopts",  "hash",     "history",    "integer",     "jobs",
        "let",       "limit",    "local",    "logout",     "mapfile",     "nameref",
        "nocorrect", "noglob",   "popd",     "print",      "pushd",       "read",
        "readarray", "readonly", "repeat",   "return",     "sched",       "select",
        "set",       "setopt",   "shift",    "shopt",      "source",      "suspend",
        "trap",      "typeset",  "ulimit",   "unalias",    "unfunction",  "unhash",
        "unlimit",   "unset",    "unsetopt", "vared",      "wait",        "zcompile",
        "zformat",   "zle",      "zmodload", "zparseopts", "zpty",        "zstyle",
        "at",        "batch",    "choom",    "chpst",      "crontab",     "dbus-run-session",
        "dumb-init", "entr",     "faketime", "fakeroot",   "firejail",    "gdb",
        "gosu",      "linux32",  "linux64",  "perf",       "proxychains", "rlwrap",
        "runcon",    "screen",   "setarch",  "setpriv",    "softlimit",   "start-stop-daemon",
        "su-exec",   "tini",     "tmux",     "torsocks",   "unbuffer",    "bwrap",
        "eatmydata", NULL
    };
    return word_is_among(names, name) || word_is_among(wrappers, name);
}

static enum accepts accepts_of(struct script_word name) {
    static const char *const tests[] = { "[", "test", NULL };
    static const char *const formats[] = { "printf", NULL };
    static const char *const ends[] = { "}", "done", "fi", "esac", NULL };
    if (word_is_among(tests, name))
        return AS_OPERAND;
    if (word_is_among(formats, name))
        return BEHIND_FORMAT;
    if (word_is_among(ends, name))
        return AS_FILE;
    return runs_arguments(name) ? NOWHERE : ANYWHERE;
}

// Whether printf takes this word for a format (not for -v NAME), which has it print text: some
// shells calculate %d. Within quotes, or without any.
static bool is_format_of_text(struct script_word word) {
    char quote = *word.text == '\'' || *word.text == '"' ? *word.text : 0;
    if (quote && (word.size < 2 || word.text[word.size - 1] != quote))
        return false;
    const char *from = word.text + (quote != 0), *to = word.text + word.size - (quote != 0);
    if (from < to && (*from == '-' || (!quote && *from == '\\')))
        return false;
    for (; from < to; from++) {
        if (strchr("'\"`$", *from))
            return false;
        if (*from != '%')
            continue;
        from++;
        from += strspn(from, "-0123456789.");
        if (from >= to || !strchr("sbq%", *from))
            return false;
    }
    return true;
}

// ---- Words and commands -----------------------------------------------------------------------

static void name_end(struct shell_reader *s, struct level *level, struct script_word word) {
    if (leads_to_command(word))
        return;
    static const char *const function[] = { "function", NULL };
    if (!is_plain_name(word))
        s->why = not_plain;
    else if (word_is_among(function, word))
        s->why = with_parentheses;
    level->next = ARGUMENTS;
    level->accepts = accepts_of(base_of(word));
}

// In zsh a command may follow } and esac at once.
static void argument_end(struct shell_reader *s, struct level *level, struct script_word word) {
    static const char *const ends[] = { "}", "esac", NULL };
    bool runs = strncmp(word.text, "-exec", 5) == 0 || strncmp(word.text, "-ok", 3) == 0; // find
    if (level->accepts == BEHIND_FORMAT)
        level->accepts = is_format_of_text(word) ? ANYWHERE : NOWHERE;
    if (runs)
        level->accepts = NOWHERE;
    if (word_is_among(ends, word))
        s->why = too_involved;
}

static void pattern_end(struct level *level, struct script_word word) {
    static const char *const ends[] = { "esac", NULL };
    if (level->before.size || !word_is_among(ends, word))
        return;
    level->next = ARGUMENTS;
    level->accepts = AS_FILE;
}

static void word_end(struct shell_reader *s) {
    struct level *level = top(s);
    if (!level->word)
        return;
    struct script_word word = { level->word, (size_t)(s->at - level->word) }, base = base_of(word);
    switch (level->next) {
    case NAME:
        name_end(s, level, word);
        break;
    case ARGUMENTS:
        argument_end(s, level, word);
        break;
    case PATTERN:
        pattern_end(level, word);
        break;
    }
    const struct reader_of_scripts *reader = find_reader(base.text, base.size);
    if (reader && reader->place == FIRST)
        level->accepts = NOWHERE;
    level->before = word;
    level->word = NULL;
}

static void word_begin(struct shell_reader *s) {
    struct level *level = command_level(s);
    if (!level->word)
        level->word = s->at;
    if (!level->command)
        level->command = s->at;
}

// Behind the head of a case, and behind ;; comes a pattern.
static void scripts_command_end(struct shell_reader *s) {
    static const char *const heads[] = { "case", NULL };
    struct level *level = top(s);
    word_end(s);
    bool head = level->command && level->next == ARGUMENTS &&
                word_is_among(heads, (struct script_word){ level->command,
                                                           strcspn(level->command, " \t\n") });
    if (level->next != PATTERN)
        level->next =
            head || strncmp(s->at, ";;", 2) == 0 || strncmp(s->at, ";&", 2) == 0 ? PATTERN : NAME;
    level->accepts = NOWHERE;
    level->before = (struct script_word){ 0 };
    level->command = NULL;
}

// ---- Placeholders -----------------------------------------------------------------------------

// Within [ and test a value could be an operator, and some shells calculate its operands; -v
// evaluates an index.
static bool is_operand(const struct level *level, const char *behind) {
    static const char *const operators[] = { "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-L",
                                             "-n", "-p", "-r", "-s", "-S", "-u", "-w", "-x", "-z",
                                             "-O", "-G", "-N", "=",  "==", "!=", NULL };
    static const char *const first[] = { "[", "test", "!", NULL };
    if (word_is_among(operators, level->before))
        return true;
    behind += strspn(behind, "\"");
    size_t blanks = strspn(behind, " ");
    behind += blanks;
    return blanks && behind[*behind == '!'] == '=' && word_is_among(first, level->before);
}

// The operator whose file the present word is; NULL: it is an argument.
static const char *redirection_of(const struct level *level) {
    struct script_word operator= level->before;
    if (level->word && strchr("<>", *level->word))
        return level->word;
    return operator.size && strspn(operator.text, "<>&|") >= operator.size ? operator.text : NULL;
}

// Why a value cannot stand here; `behind` is the text behind it. NULL: it can.
static const char *scripts_refusal(struct shell_reader *s, const char *behind) {
    const struct level *level = command_level(s);
    const char *redirection = redirection_of(level);
    if (top(s)->within == PARAMETER || level->next == PATTERN)
        return too_involved;
    if (level->next == NAME && level->word &&
        is_assignment((struct script_word){ level->word, (size_t)(s->at - level->word) }))
        return "a variable of the script would have it, and may be run";
    if (level->next == NAME)
        return "it would be the command itself (scripts are read from stdin: run --stdin -- sh, or "
               "work STAGE -- sh)";
    if (level->refused || level->accepts == NOWHERE)
        return other_reader;
    if (redirection && redirection[1] == '&')
        return "bash expands what is behind >& twice (write: >FILE 2>&1)";
    if (level->accepts == BEHIND_FORMAT)
        return "printf could take it for an option (write: printf '%s\\n' {})";
    if (level->accepts == AS_FILE && !redirection)
        return too_involved;
    if (level->accepts == AS_OPERAND && !is_operand(level, behind))
        return "[ could take it for an operator, or calculate it (write: [ -f {} ], [ TEXT = {} ])";
    return NULL;
}

// With `?` a shell stops if a wrapper (env -i, sudo) has taken the variable away, instead of going
// on with an empty value.
static int put_variable(struct shell_reader *s, const char *name, size_t size) {
    const char *quote = scripts_is_plain(s) ? "\"" : "";
    char text[64];
    s->why = scripts_refusal(s, s->at + size);
    if (s->why)
        return 0;
    word_begin(s);
    s->at += size;
    s->blank = false;
    snprintf(text, sizeof text, "%s${%s?}%s", quote, name, quote);
    return buffer_append(s->out, text, strlen(text));
}

// ---- Reading ----------------------------------------------------------------------------------

static void enter(struct shell_reader *s, enum within within) {
    if (s->depth + 1 == DEPTH) {
        s->why = too_involved;
        return;
    }
    bool refused = within == PARENTHESES    ? top(s)->refused
                   : within == SUBSTITUTION ? scripts_refusal(s, "") != NULL
                                            : false;
    s->depth++;
    *top(s) = (struct level){ .within = within, .refused = refused };
}

// Text up to `end` in which nothing may be replaced.
static int copy_opaque(struct shell_reader *s, char end, const char *why) {
    size_t size = 1;
    while (s->at[size] && s->at[size] != end)
        size += end == '`' && s->at[size] == '\\' && s->at[size + 1] ? 2 : 1;
    if (!s->at[size] || has_placeholder(s, size))
        s->why = why;
    word_begin(s);
    return s->why ? 0 : copy(s, size + 1);
}

static int read_dollar(struct shell_reader *s) {
    if (strncmp(s->at, "$((", 3) == 0 || strncmp(s->at, "$[", 2) == 0)
        s->why = arithmetic;
    else if (s->at[1] == '\'' && scripts_is_plain(s))
        s->why = too_involved;
    if (s->why)
        return 0;
    word_begin(s);
    if (s->at[1] == '(')
        enter(s, SUBSTITUTION);
    else if (s->at[1] == '{')
        enter(s, PARAMETER);
    else
        return copy(s, 1);
    return copy(s, 2);
}

// A parenthesis that does not begin a command is a function, which may run its arguments, an array
// or a pattern. One that ends no level is behind the pattern of a case.
static int read_parenthesis(struct shell_reader *s) {
    if (*s->at == '(') {
        if (s->at[1] == '(')
            s->why = arithmetic;
        else if (top(s)->next != NAME || top(s)->word ||
                 s->at[1 + strspn(s->at + 1, " \t\n")] == ')')
            s->why = with_parentheses;
        word_begin(s);
        enter(s, PARENTHESES);
        return copy(s, 1);
    }
    scripts_command_end(s);
    enum within ended = top(s)->within;
    s->depth -= ended != PLAIN;
    if (ended == PARENTHESES) { // only redirections can follow
        top(s)->word = NULL;
        top(s)->next = ARGUMENTS;
        top(s)->accepts = AS_FILE;
    } else if (ended == PLAIN) {
        top(s)->next = NAME;
    }
    return copy(s, 1);
}

static int read_redirection(struct shell_reader *s) {
    struct level *level = top(s);
    bool number = !level->word ||
                  is_descriptor((struct script_word){ level->word, (size_t)(s->at - level->word) });
    if (level->next == NAME && number)
        s->why = early_redirection;
    if (strncmp(s->at, "<<", 2) == 0)
        s->why = too_involved;
    word_end(s);
    if (level->next == NAME && !s->why)
        s->why = early_redirection;
    if (level->accepts == BEHIND_FORMAT)
        level->accepts = NOWHERE;
    word_begin(s); // what follows is a file's name, also behind a space
    if (s->at[1] == '(') {
        enter(s, SUBSTITUTION);
        return copy(s, 2);
    }
    size_t size = 1 + (s->at[1] && strchr(">&|", s->at[1]));
    return copy(s, size);
}

static int read_plain(struct shell_reader *s) {
    char c = *s->at;
    if (c == '(' || c == ')')
        return read_parenthesis(s);
    if (c == '<' || c == '>')
        return read_redirection(s);
    if (c == '\'')
        return copy_opaque(s, '\'', not_expanded);
    if (c == '"') {
        word_begin(s);
        enter(s, QUOTES);
    } else if (strchr(";&|\n", c)) {
        scripts_command_end(s);
        if (s->at[1] == c && c != '\n')
            return copy(s, 2);
    } else if (c == ' ' || c == '\t') {
        word_end(s);
    } else if (c == '#' && !top(s)->word) {
        return copy(s, strcspn(s->at, "\n"));
    } else if (strncmp(s->at, "[[", 2) == 0 && !top(s)->word) {
        s->why = arithmetic;
    } else {
        word_begin(s);
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

// A line that ends with a backslash may continue only between words: it could join $ and (.
static int read_backslash(struct shell_reader *s) {
    bool joins = s->at[1] == '\n';
    if (has_placeholder(s, 2) || (joins && (!scripts_is_plain(s) || !s->blank)))
        s->why = too_involved;
    if (!joins)
        word_begin(s);
    return copy(s, s->at[1] ? 2 : 1);
}

static int read_on(struct shell_reader *s) {
    size_t size;
    const char *name = s->variable(s->at, &size);
    if (name)
        return put_variable(s, name, size);
    if (*s->at == '\\' && top(s)->within != PARAMETER)
        return read_backslash(s);
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
// reader above cannot follow; NULL: nothing.
static const char *find_named_reader(const char *script) {
    static const char *const names[] = { "eval",      "trap",    "let",    "declare",
                                         "typeset",   "unset",   "source", "mapfile",
                                         "readarray", "compgen", NULL };
    static const char *const heads[] = { "case", NULL };
    bool parentheses = strchr(script, '(') != NULL; // the ) of a pattern would be taken for its end
    for (const char *p = script; *p;) {
        p += strcspn(p, of_names);
        struct script_word word = { p, strspn(p, of_names) }, base = base_of(word);
        const struct reader_of_scripts *reader = find_reader(base.text, base.size);
        if (word.size && strncmp(p, "./", 2) != 0 && reader && !reader->any_command)
            return p;
        if (word_is_among(names, word) || (parentheses && word_is_among(heads, word)))
            return p;
        p += word.size;
    }
    return NULL;
}

// Says why, and shows the place: the script from there, up to the end of the line.
static int refuse_at(const char *why, const char *place) {
    char sentence[256];
    size_t size = 0;
    while (size < EXCERPT && place[size] && !iscntrl((unsigned char)place[size]))
        size++;
    while (size && ((unsigned char)place[size] & 0xC0) == 0x80) // not half a character
        size--;
    snprintf(sentence, sizeof sentence, "%s (at: %.*s)", why, (int)size, place);
    return script_refuse("sh", sentence);
}

int script_rewrite(const char *script, script_variable *variable, struct buffer *out) {
    struct shell_reader s = { .at = script, .variable = variable, .out = out };
    const char *reader = find_named_reader(script);
    if (reader)
        return refuse_at(other_reader, reader);
    int err = 0;
    while (*s.at && err >= 0 && !s.why)
        err = read_on(&s);
    if (!s.why && s.depth)
        s.why = too_involved;
    if (!s.why)
        word_end(&s);
    if (s.why) {
        const char *command = command_level(&s)->command;
        return refuse_at(s.why, command ? command : s.at);
    }
    return err < 0 ? err : buffer_append(out, "", 1);
}
