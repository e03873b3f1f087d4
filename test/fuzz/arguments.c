// Any words behind any command of the table, a word in each line: they fit its row or are refused,
// and numbers, durations and sizes are within their bounds.
#include "base/limits.h"
#include "cli/cli.h"
#include "cli/values.h"
#include "input.h"

enum { WORDS = 32 };

static void check_values(const struct input *in) {
    for (const struct cli_option *o = in->command->options; o->name; o++) {
        const char *name = option_name(o);
        int64_t ms = 1;
        uint64_t count = 1, bytes = 1;
        double share = 1;
        char delimiter;
        if (!input_option(in, name))
            continue;
        if (input_duration(in, name, &ms))
            assert(ms >= 0 && ms <= TIME_MOST_MS);
        if (input_count(in, name, 1000, &count))
            assert(count <= 1000);
        if (input_size(in, name, BODY_MOST, &bytes))
            assert(bytes >= 1 && bytes <= BODY_MOST);
        if (input_share(in, name, &share))
            assert(share >= 0);
        if (o->value && strcmp(name, "--delimiter") == 0)
            (void)input_delimiter(in, name, &delimiter);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t rows = 0;
    while (command_at(rows))
        rows++;
    if (!size)
        return 0;
    char *text = input_string(data + 1, size - 1), *words[WORDS + 1];
    int count = input_words(text, words, WORDS);
    struct input in = { 0 };
    input_mute();
    if (input_read(command_at(data[0] % rows), count, words, &in))
        check_values(&in);
    free(text);
    return 0;
}
