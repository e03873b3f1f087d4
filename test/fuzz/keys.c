// Any line, of which keys are taken by field, by regular expression and by JSON; the first line of
// the input is such a rule, if it is none of a regular expression, whose cost is its author's.
#include "cli/keys.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "cli/lines.h"
#include "input.h"

static const char *const rules[] = { "field 2", "regex ^([a-z]+)", "regex [0-9]+", "json user" };

static void check_rule(const char *rule, mr_bytes line) {
    struct keys keys = { 0 };
    struct buffer room = { 0 };
    uint8_t channel[KEY_MOST];
    mr_bytes key;
    if (keys_read(rule, &keys) < 0) {
        assert(*error_text());
        return;
    }
    int err = keys_look(&keys, line, &room, &key);
    assert(err == 0);
    assert(key_channel(key, channel).size <= KEY_MOST);
    buffer_finish(&room);
    keys_close(&keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[INPUT_PATH];
    int fd = input_file(data, size, path);
    struct lines lines = { .delimiter = '\n' };
    struct line line;
    char rule[64] = "";
    size_t seen = 0;
    while (!lines.ended) {
        int err = lines_read(&lines, fd);
        assert(err >= 0);
        for (; lines_next(&lines, &line); seen += line.size) {
            if (line.number == 1 && memmem(line.text.data, line.text.size, "reg", 3) == NULL)
                snprintf(rule, sizeof rule, "%.*s", (int)line.text.size,
                         (const char *)line.text.data);
            check_rule(rule, line.text);
            for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
                check_rule(rules[i], line.text);
        }
    }
    assert(seen <= size && seen + lines.number >= size);
    lines_finish(&lines);
    close(fd);
    return 0;
}
