// Any file as the options of the server: each is one of the command's, or the file is refused.
#include "cli/config.h"
#include "base/errors.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[INPUT_PATH];
    int fd = input_file(data, size, path);
    struct input in = { .command = command_find("serve", NULL) };
    struct config config = { 0 };
    input_set(&in, "--config", path);
    input_set(&in, "--store", "mem:"); // a flag, which overrides the file
    int err = config_read(&in, &config);
    if (err < 0)
        assert(*error_text());
    else
        assert(strcmp(input_option(&in, "--store"), "mem:") == 0);
    for (const struct cli_option *o = in.command->options; !err && o->name; o++) {
        const char *value = input_option(&in, option_name(o));
        bool is_flag = strcmp(o->name, "--config") == 0 || strcmp(o->name, "--store") == 0;
        assert(!value || is_flag || strlen(value) <= size);
    }
    if (!err)
        config_finish(&config);
    close(fd);
    return 0;
}
