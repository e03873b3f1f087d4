// The program: finds the row of the command that is named, and runs it.
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/secret.h"
#include "millrace.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (is_help(argv[i]))
            return true;
    return false;
}

static enum cli_exit run(int argc, char **argv) {
    const char *second = argc > 2 ? argv[2] : NULL;
    const struct cli_command *c = command_find(argv[1], second);
    if (!c && second && is_help(second) && help_group(argv[1]))
        return CLI_DONE;
    if (!c)
        return command_unknown(argv[1], second);
    int words = strchr(c->name, ' ') ? 3 : 2;
    if (asks_for_help(argc - words, argv + words)) {
        help_command(c);
        return CLI_DONE;
    }
    struct input in;
    return input_read(c, argc - words, argv + words, &in) ? c->run(&in) : CLI_USAGE;
}

// If one of the first three descriptors is closed, /dev/null takes its place. Otherwise a file that
// is opened later would get its number, and messages would be written to that file.
static void occupy_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
            return; // then there are none for anything else either
}

int main(int argc, char **argv) {
    occupy_descriptors();
    if (argc < 2) {
        complain("a command is missing; millrace help lists them");
        return CLI_USAGE;
    }
    secrets_hide(argc, argv);
    enum cli_exit code = CLI_DONE;
    if (is_help(argv[1]))
        help_overview();
    else if (strcmp(argv[1], "--version") == 0)
        printf("millrace %s\n", mr_version());
    else
        code = run(argc, argv);
    return output_finish() || code != CLI_DONE ? (int)code : CLI_FAILED;
}
