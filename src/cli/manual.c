// Prints the table of commands as a man page, one of its rows as a page of its own, the table as a
// completion for bash and as a file of the server's options, and the server's table as a page; the
// build and the installation store them.
#include "base/errors.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "millrace.h"
#include "server/protocol.h"

#include <stdio.h>
#include <string.h>

// ---- The man page -----------------------------------------------------------------------------

// troff would take a dot or quote that begins a line for a request, interpret backslashes, and
// print hyphens that cannot be pasted as options.
static void man_text(const char *text, size_t size, const char *end) {
    if (size && (*text == '.' || *text == '\''))
        printf("\\&");
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\\')
            printf("\\e");
        else if (text[i] == '-')
            printf("\\-");
        else
            putchar(text[i]);
    }
    printf("%s", end);
}

static void man_lines(const char *text) {
    for (const char *line = text; *line;) {
        size_t size = strcspn(line, "\n");
        man_text(line, size, "\n");
        line += size + (line[size] == '\n');
    }
}

// Paragraphs are filled; lines that are indented are a table, which stays as it is, from the indent
// of its first line on.
static void man_help(const char *text) {
    bool table = false;
    size_t margin = 0;
    for (const char *line = text; *line;) {
        size_t size = strcspn(line, "\n"), indent = strspn(line, " ");
        if (table != (indent > 0) && size)
            printf("%s", table ? ".fi\n" : ".nf\n");
        if (size && !table)
            margin = indent;
        table = size ? indent > 0 : table;
        indent = indent < margin ? indent : margin;
        if (size)
            man_text(line + indent, size - indent, "\n");
        else
            printf(".PP\n");
        line += size + (line[size] == '\n');
    }
    printf("%s", table ? ".fi\n" : "");
}

static void man_help_rows(const struct cli_command *c) {
    char line[CLI_HELP_LINE];
    if (!c->help_row)
        return;
    printf(".nf\n");
    for (size_t i = 0; c->help_row(i, line, sizeof line); i++)
        man_text(line, strlen(line), "\n");
    printf(".fi\n");
}

static void man_options(const struct cli_command *c) {
    for (const struct cli_option *o = c->options; o->name; o++) {
        printf(".TP\n.B ");
        man_text(o->name, strlen(o->name), o->value ? " " : "\n");
        if (o->value)
            printf("\\fI%s\\fR\n", o->value);
        man_text(o->doc, strlen(o->doc), "\n");
    }
}

static void man_examples(const struct cli_command *c) {
    printf(".nf\n.RS 4\n");
    man_lines(c->examples);
    printf(".RE\n.fi\n");
}

static void man_command(const struct cli_command *c) {
    printf(".SS millrace %s %s\n", c->name, c->arguments);
    man_help(c->help);
    man_help_rows(c);
    man_options(c);
    printf(".PP\nExamples:\n.PP\n");
    man_examples(c);
}

static const struct {
    enum cli_exit code;
    const char *text;
} statuses[] = {
    { CLI_DONE, "done" },
    { CLI_FAILED, "the job failed, died, was cancelled or is gone; a check has found damage" },
    { CLI_USAGE, "bad usage" },
    { CLI_UNOPENED, "the engine or the store cannot be reached or opened" },
    { CLI_REFUSED, "refused: wrong secret, missing role, or the stage is draining" },
    { CLI_FULL, "a limit is reached, or the disk is full" },
    { CLI_DEADLINE, "a deadline has passed" },
    { CLI_INTERRUPTED, "interrupted" },
};

static void man_statuses(void) {
    printf(".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        printf(".TP\n%d\n%s\n", statuses[i].code, statuses[i].text);
}

// The name of a page: "store check" becomes store-check.
static void man_page_name(const struct cli_command *c, char *out, size_t size) {
    snprintf(out, size, "millrace-%s", c->name);
    for (char *p = out; *p; p++)
        *p = *p == ' ' ? '-' : *p;
}

void manual_print_command(const struct cli_command *c) {
    char name[64];
    man_page_name(c, name, sizeof name);
    printf(".TH %s 1 \"\" \"Millrace %s\" \"User Commands\"\n.ad l\n.nh\n.SH NAME\n", name,
           mr_version());
    printf("%s \\- ", name);
    man_text(c->doc, strlen(c->doc), "\n.SH SYNOPSIS\n.B millrace ");
    man_text(c->name, strlen(c->name), "\n");
    man_text(c->arguments, strlen(c->arguments), "\n.SH DESCRIPTION\n");
    man_help(c->help);
    man_help_rows(c);
    printf("%s", c->options[0].name ? ".SH OPTIONS\n" : "");
    man_options(c);
    printf(".SH EXAMPLES\n");
    man_examples(c);
    man_statuses();
    printf(".SH SEE ALSO\n.BR millrace (1),\nwhich has all commands, and the environment\n");
}

void manual_print(void) {
    printf(".TH MILLRACE 1 \"\" \"Millrace %s\" \"User Commands\"\n"
           ".ad l\n.nh\n"
           ".SH NAME\nmillrace \\- job queue and work engine: server, client and tools\n"
           ".SH SYNOPSIS\n.B millrace\n\\fIcommand\\fR [\\fIargument\\fR ...]\n"
           ".SH DESCRIPTION\n"
           "Millrace runs jobs with the same key in order, and records the result of each\n"
           "exactly once. This command is the server, its client, and a tool for stores.\n"
           "The option \\-\\-at \\fIURL\\fR names the engine that a client command uses:\n"
           "millrace://[\\fISECRET\\fR@]\\fIHOST\\fR:\\fIPORT\\fR is a server, unix:\\fIPATH\\fR "
           "one by its socket file;\n"
           "file:\\fIDIR\\fR and mem: are engines in the process itself, without a server.\n"
           "Durations have units: 250ms 30s 5m 2h 7d. Results go to the standard output,\n"
           "everything else to the standard error.\n"
           ".SH COMMANDS\n",
           mr_version());
    const struct cli_command *c;
    for (size_t i = 0; (c = command_at(i)) != NULL; i++)
        man_command(c);
    printf(
        ".SH ENVIRONMENT\n"
        ".TP\n.B MILLRACE_URL\nthe engine, if \\-\\-at is not given\n"
        ".TP\n.B MILLRACE_TOKEN\nthe secret, if the URL has none\n"
        ".TP\n.B MILLRACE_TOKEN_FILE\na file with the secret, if neither has one\n"
        ".TP\n.B MILLRACE_TLS_CA, MILLRACE_TLS_CERT, MILLRACE_TLS_KEY\nfiles, if the options of "
        "these names are not given\n"
        ".TP\n.B XDG_STATE_HOME\ndirectory for the checksums of push \\-\\-epic (~/.local/state)\n"
        ".TP\n.B NO_COLOR\n"
        "If set and not empty: no colours and no progress bars, also on a terminal.\n");
    man_statuses();
}

// ---- The protocol -----------------------------------------------------------------------------

void protocol_print(void) {
    struct buffer page = { 0 };
    if (protocol_write(&page) < 0)
        complain("help: %s", error_text());
    else
        fwrite(page.data, 1, page.size, stdout);
    buffer_finish(&page);
}

// ---- The file of options ----------------------------------------------------------------------

// The parentheses that end a doc hold the default, unless that is "none".
static void config_default(const struct cli_option *o) {
    const char *from = strrchr(o->doc, '('), *end = strrchr(o->doc, ')');
    bool known = from && end && !end[1] && strncmp(from, "(none)", 6) != 0;
    if (known)
        printf("#%s = %.*s\n", o->name + 2, (int)(end - from - 1), from + 1);
    else
        printf("#%s = %s\n", o->name + 2, o->value ? o->value : "no");
}

void config_print(void) {
    const struct cli_command *serve = command_find("serve", NULL);
    printf("# Options of millrace serve, by the names of its flags; a flag overrides this file. A\n"
           "# commented line shows the default, or in capitals the kind of value.\n");
    for (const struct cli_option *o = serve->options; o->name; o++) {
        if (strcmp(o->name, "--config") == 0)
            continue;
        printf("\n# %s\n", o->doc);
        config_default(o);
    }
}

// ---- The completion ---------------------------------------------------------------------------

// Whether the row before belongs to the same group: rows of a group stand together.
static bool goes_on(size_t index) {
    const struct cli_command *c = command_at(index), *before = index ? command_at(index - 1) : NULL;
    size_t size = c ? command_group(c) : 0;
    return c && before && command_group(before) == size && memcmp(before->name, c->name, size) == 0;
}

static void complete_first_words(void) {
    const struct cli_command *c;
    for (size_t i = 0; (c = command_at(i)) != NULL; i++)
        if (!goes_on(i))
            printf("%.*s ", (int)command_group(c), c->name);
}

static void complete_second_words(void) {
    const struct cli_command *c;
    for (size_t i = 0; (c = command_at(i)) != NULL; i++) {
        size_t size = command_group(c);
        if (!c->name[size])
            continue;
        if (!goes_on(i))
            printf("        %.*s) words='", (int)size, c->name);
        printf("%s%s", goes_on(i) ? " " : "", c->name + size + 1);
        if (!goes_on(i + 1) || !command_at(i + 1)->name[size]) // a command may be the group's name
            printf("' ;;\n");
    }
}

static void complete_options(void) {
    const struct cli_command *c;
    for (size_t i = 0; (c = command_at(i)) != NULL; i++) {
        printf("        '%s%s) words='--help", c->name, strchr(c->name, ' ') ? "'" : " '*");
        for (const struct cli_option *o = c->options; o->name; o++)
            printf(" %s", option_name(o));
        printf("' ;;\n");
    }
}

// Bash splits words at colons: what stands behind one is a directory.
void completion_print(void) {
    printf("# Completion of millrace for bash; made by: millrace help --bash\n"
           "_millrace() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} words= at=1\n"
           "    [[ ${COMP_WORDS[1]} == help && COMP_CWORD -gt 1 ]] && at=2\n"
           "    if [[ COMP_CWORD -gt 1 && $current == -* ]]; then\n"
           "        case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n");
    complete_options();
    printf("        esac\n"
           "    elif [[ COMP_CWORD -eq at ]]; then\n"
           "        words='");
    complete_first_words();
    printf("--help --version'\n"
           "    elif [[ COMP_CWORD -eq at+1 ]]; then\n"
           "        case ${COMP_WORDS[at]} in\n");
    complete_second_words();
    printf(
        "        esac\n"
        "    elif [[ $current == : || ${COMP_WORDS[COMP_CWORD - 1]} == : ]]; then\n"
        "        compopt -o filenames -o nospace\n"
        "        COMPREPLY=($(compgen -d -- \"${current#:}\"))\n"
        "        return\n"
        "    elif [[ ${COMP_WORDS[1]} == store || ${COMP_WORDS[COMP_CWORD - 1]} == --at ]]; then\n"
        "        compopt -o nospace\n"
        "        words=file:\n"
        "    fi\n"
        "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
        "}\n"
        "complete -F _millrace millrace\n");
}
