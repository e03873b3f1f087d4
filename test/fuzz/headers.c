// Any text as an option --header, as a file of headers, and as a file with a key for signatures.
#include "base/errors.h"
#include "cli/delivery_headers.h"
#include "input.h"

static int check_header(const char *line, void *arg) {
    (void)arg;
    assert(strchr(line, ':') && !strpbrk(line, "\r\n"));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = input_string(data, size), path[INPUT_PATH], option[INPUT_PATH + 1];
    int fd = input_file(data, size, path);
    struct sign_key key;
    snprintf(option, sizeof option, "@%s", path);
    if (text[0] != '@' && header_option_read(text, check_header, NULL) < 0)
        assert(*error_text());
    if (header_option_read(option, check_header, NULL) < 0)
        assert(*error_text());
    if (sign_key_read(path, &key) == 0)
        assert(key.size >= SIGN_KEY_LEAST && key.size <= SIGN_KEY_MOST);
    close(fd);
    free(text);
    return 0;
}
