// Help: prints the table of commands. Everything fits in 80 columns.
#include "cli/cli.h"
#include "cli/output.h"

#include <stdio.h>
#include <string.h>

enum { USAGE = 22 }; // columns; a longer usage is in the command's own help

size_t command_group(const struct cli_command *c) {
    return strcspn(c->name, " ");
}

static bool in_group(const struct cli_command *c, const char *first) {
    size_t size = command_group(c);
    return c->name[size] && strlen(first) == size && memcmp(c->name, first, size) == 0;
}

static bool is_group(const char *first) {
    const struct cli_command *c;
    for (size_t i = 0; (c = command_at(i)) != NULL; i++)
        if (in_group(c, first))
            return true;
    return false;
}

const struct cli_command *command_find(const char *first, const char *second) {
    const struct cli_command *c;
    for (size_t i = 0; (c = command_at(i)) != NULL; i++) {
        if (in_group(c, first) && second && strcmp(c->name + command_group(c) + 1, second) == 0)
            return c;
        if (strcmp(c->name, first) == 0)
            return c;
    }
    return NULL;
}

static void list(const struct chapter *chapter, const char *first) {
    for (const struct cli_command *c = chapter->commands; c->name; c++) {
        if (first && !in_group(c, first))
            continue;
        char usage[64];
        snprintf(usage, sizeof usage, "%s %s", c->name, c->arguments);
        if (strlen(usage) > USAGE)
            snprintf(usage, sizeof usage, "%s ...", c->name);
        printf("  %-*s  %s\n", USAGE, usage, c->doc);
    }
}

bool help_group(const char *first) {
    if (!is_group(first))
        return false;
    printf("millrace %s …\n\n", first);
    for (const struct chapter *chapter = chapters; chapter->title; chapter++)
        list(chapter, first);
    printf("\nMore about one of them: millrace help %s …\n", first);
    return true;
}

static int nearer(int distance, const char *a, const char *b) {
    int other = names_distance(a, b);
    return other < distance ? other : distance;
}

// How far what was typed is from the command: from its name, from the second word alone (as in
// "millrace check"), or from the first, when what follows may be anything.
static int command_distance(const struct cli_command *c, const char *first, const char *second) {
    char typed[64], group[32];
    snprintf(typed, sizeof typed, "%s%s%s", first, second ? " " : "", second ? second : "");
    snprintf(group, sizeof group, "%.*s", (int)command_group(c), c->name);
    int distance = names_distance(c->name, typed);
    if (c->name[command_group(c)])
        distance = nearer(distance, c->name + command_group(c) + 1, first);
    return is_group(first) ? distance : nearer(distance, group, first);
}

static const struct cli_command *nearest(const char *first, const char *second) {
    const struct cli_command *found = NULL, *c;
    int distance = NAMES_APART;
    for (size_t i = 0; (c = command_at(i)) != NULL; i++) {
        int d = command_distance(c, first, second);
        if (d < distance) {
            distance = d;
            found = c;
        }
    }
    return found;
}

enum cli_exit command_unknown(const char *first, const char *second) {
    bool group = is_group(first);
    if (group && !second) {
        complain("%s: a subcommand is missing; millrace help %s lists them", first, first);
        return CLI_USAGE;
    }
    const struct cli_command *c = nearest(first, second);
    const char *space = group ? " " : "", *rest = group ? second : "";
    if (c)
        complain("there is no command '%s%s%s'; did you mean '%s'?", first, space, rest, c->name);
    else
        complain("there is no command '%s%s%s'; millrace help lists all", first, space, rest);
    return CLI_USAGE;
}

void help_overview(void) {
    printf("Millrace: a job queue and work engine. Jobs of one key run in order; the result\n"
           "of each job is recorded exactly once.\n"
           "\n"
           "  millrace COMMAND …\n");
    for (const struct chapter *chapter = chapters; chapter->title; chapter++) {
        printf("\n%s:\n", chapter->title);
        list(chapter, NULL);
    }
    printf("\n"
           "--at URL or MILLRACE_URL names the engine: millrace://HOST:PORT is a server\n"
           "(" CLI_URL " if neither is given), unix:PATH one by its socket\n"
           "file, file:DIR needs none.\n"
           "More about a command: millrace help COMMAND. Version: millrace --version.\n");
}

static void print_indented(const char *text) {
    for (const char *line = text; *line;) {
        size_t size = strcspn(line, "\n");
        printf("  %.*s\n", (int)size, line);
        line += size + (line[size] == '\n');
    }
}

static void print_options(const struct cli_command *c) {
    printf("\nOptions:\n");
    for (const struct cli_option *o = c->options; o->name; o++) {
        char usage[64];
        snprintf(usage, sizeof usage, "%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-19s  %s\n", usage, o->doc);
    }
}

static void print_help_rows(const struct cli_command *c) {
    char line[CLI_HELP_LINE];
    for (size_t i = 0; c->help_row && c->help_row(i, line, sizeof line); i++)
        printf("    %s\n", line);
}

void help_command(const struct cli_command *c) {
    printf("millrace %s%s%s\n\n%s", c->name, *c->arguments ? " " : "", c->arguments, c->help);
    print_help_rows(c);
    if (c->options[0].name)
        print_options(c);
    printf("\nExamples:\n");
    print_indented(c->examples);
}

enum cli_exit help_run(const struct input *in) {
    const char *first = in->arguments[0], *second = in->arguments[1];
    const struct cli_command *c = first ? command_find(first, second) : NULL;
    if (input_option(in, "--man") && c)
        manual_print_command(c);
    else if (input_option(in, "--man") && !first)
        manual_print();
    else if (input_option(in, "--bash"))
        completion_print();
    else if (input_option(in, "--protocol"))
        protocol_print();
    else if (input_option(in, "--config"))
        config_print();
    else if (!first)
        help_overview();
    else if (c)
        help_command(c);
    else if (second || !help_group(first))
        return command_unknown(first, second);
    return CLI_DONE;
}
