// The table as a man page and as a completion for bash, both made when Millrace is built; and the
// server's table as a page.
#include "base/errors.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "millrace.h"
#include "server/protocol.h"

#include <stdio.h>
#include <string.h>

// ---- The man page -----------------------------------------------------------------------------

// A line may begin with what troff takes for a request, and hold a backslash, or hyphens that
// people will copy.
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

static void man_lines(const char *text, const char *blank) {
    for (const char *line = text; *line;) {
        size_t size = strcspn(line, "\n");
        if (size)
            man_text(line, size, "\n");
        else
            printf("%s\n", blank);
        line += size + (line[size] == '\n');
    }
}

static void man_options(const struct command *c) {
    for (const struct option *o = c->options; o->name; o++) {
        printf(".TP\n.B ");
        man_text(o->name, strlen(o->name), o->value ? " " : "\n");
        if (o->value)
            printf("\\fI%s\\fR\n", o->value);
        man_text(o->doc, strlen(o->doc), "\n");
    }
}

static void man_command(const struct command *c) {
    printf(".SS millrace %s %s\n", c->name, c->arguments);
    man_lines(c->help, ".PP");
    man_options(c);
    printf(".PP\n.nf\n.RS 4\n");
    man_lines(c->examples, "");
    printf(".RE\n.fi\n");
}

void manual_print(void) {
    printf(".TH MILLRACE 1 \"\" \"Millrace %s\" \"User Commands\"\n"
           ".SH NAME\nmillrace \\- look after the stores of Millrace, a job engine\n"
           ".SH SYNOPSIS\n.B millrace\n\\fIcommand\\fR [\\fIargument\\fR ...]\n"
           ".SH DESCRIPTION\n"
           "Millrace runs jobs in the order their keys demand and records the effect of each\n"
           "exactly once. This command looks after the stores that programs with the Millrace\n"
           "library keep. A store is named by a URL, file:\\fIDIR\\fR. Results go to the\n"
           "standard output, everything else to the standard error.\n"
           ".SH COMMANDS\n",
           mr_version());
    for (const struct command *c = commands; c->name; c++)
        man_command(c);
    printf(".SH ENVIRONMENT\n.TP\n.B NO_COLOR\n"
           "If set and not empty: no colours and no progress bars, also on a terminal.\n"
           ".SH EXIT STATUS\n"
           ".TP\n%d\ndone\n.TP\n%d\nthe work failed, or a check has found something\n"
           ".TP\n%d\nbad usage\n.TP\n%d\na store cannot be opened\n"
           ".TP\n%d\nno room on the disk\n.TP\n%d\ninterrupted\n",
           CLI_DONE, CLI_FAILED, CLI_USAGE, CLI_UNOPENED, CLI_FULL, CLI_INTERRUPTED);
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

// ---- The completion ---------------------------------------------------------------------------

// Whether the row before belongs to the same group: rows of a group stand together.
static bool goes_on(const struct command *c) {
    size_t size = command_group(c);
    return c > commands && command_group(c - 1) == size && memcmp(c[-1].name, c->name, size) == 0;
}

static void complete_first_words(void) {
    for (const struct command *c = commands; c->name; c++)
        if (!goes_on(c))
            printf("%.*s ", (int)command_group(c), c->name);
}

static void complete_second_words(void) {
    for (const struct command *c = commands; c->name; c++) {
        size_t size = command_group(c);
        if (!c->name[size])
            continue;
        if (!goes_on(c))
            printf("        %.*s) words='", (int)size, c->name);
        printf("%s%s", goes_on(c) ? " " : "", c->name + size + 1);
        if (!c[1].name || !goes_on(c + 1))
            printf("' ;;\n");
    }
}

static void complete_options(void) {
    for (const struct command *c = commands; c->name; c++) {
        printf("        '%s'%s) words='--help", c->name, strchr(c->name, ' ') ? "" : "*");
        for (const struct option *o = c->options; o->name; o++)
            printf(" %s", o->name);
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
    printf("        esac\n"
           "    elif [[ $current == : || ${COMP_WORDS[COMP_CWORD - 1]} == : ]]; then\n"
           "        compopt -o filenames -o nospace\n"
           "        COMPREPLY=($(compgen -d -- \"${current#:}\"))\n"
           "        return\n"
           "    elif [[ ${COMP_WORDS[1]} != help ]]; then\n"
           "        compopt -o nospace\n"
           "        words=file:\n"
           "    fi\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
           "}\n"
           "complete -F _millrace millrace\n");
}
