// Any command with placeholders, a word in each line; the last line is what is filled in. A line
// never becomes part of a shell's script: the script is the same for every line.
#include "base/bytes.h"
#include "base/errors.h"
#include "cli/placeholders.h"
#include "cli/scripts.h"
#include "input.h"

enum { WORDS = 16 };

// Of a command that is a shell itself: of others a shell's name among the words may be a file's.
static void check_scripts(const struct filled *a, const struct filled *b) {
    const char *program, *end = a->argv[0] + strlen(a->argv[0]);
    for (size_t i = 0; a->argv[i] && b->argv[i]; i++)
        if (script_kind_of(a->argv, i, &program) == SCRIPT_SHELL && program >= a->argv[0] &&
            program < end)
            assert(strcmp(a->argv[i], b->argv[i]) == 0);
}

static void fill(const struct template *t, const char *line) {
    struct filled one = { 0 }, other = { 0 };
    struct parts parts = { .line = mr_str(line), .key = mr_str("key"), .number = 7 };
    struct parts plain = { .line = mr_str("x"), .key = mr_str("y"), .number = 1 };
    int err = template_fill(t, &parts, "MILLRACE_BODY=x", &one);
    if (err < 0)
        assert(*error_text());
    int plain_err = template_fill(t, &plain, "MILLRACE_BODY=x", &other);
    if (err == 0 && plain_err == 0 && !t->varies)
        check_scripts(&one, &other);
    filled_finish(&one);
    filled_finish(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = input_string(data, size), *words[WORDS + 1];
    int count = input_words(text, words, WORDS);
    const char *line = count > 1 ? words[count - 1] : "";
    if (count > 1)
        words[count - 1] = NULL;
    struct template template = { 0 };
    int err = template_open((const char *const *)words, false, &template);
    if (err < 0)
        assert(*error_text());
    else if (*words[0])
        fill(&template, line);
    if (err == 0 && template_check_several(&template) < 0)
        assert(*error_text());
    template_close(&template);
    free(text);
    return 0;
}
