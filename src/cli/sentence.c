// See sentence.h.
#include "cli/sentence.h"

#include "base/bytes.h"

#include <stdbool.h>
#include <string.h>

static const struct {
    const char *wire, *typed;
} spoken[] = {
    { "AWAIT", "millrace await" }, { "CANCEL", "millrace cancel" }, { "DEAD", "millrace dead" },
    { "DROP", "millrace drop" },   { "JOB", "millrace job" },       { "JOBS", "millrace jobs" },
    { "PUSH", "millrace push" },   { "RESUME", "millrace resume" }, { "RETRY", "millrace retry" },
    { "STAGE", "millrace stage" }, { "STATUS", "--status" },        { "TAKE", "millrace work" },
    { "WHY", "millrace why" },
};

static const char *typed(mr_bytes word) {
    for (size_t i = 0; i < sizeof spoken / sizeof *spoken; i++)
        if (bytes_equal(word, mr_str(spoken[i].wire)))
            return spoken[i].typed;
    return NULL;
}

// One word of the sentence, without the signs around it.
static mr_bytes word_core(const char *p, size_t size) {
    size_t begin = size && *p == '(', end = size;
    while (end > begin && strchr(",;.:)", p[end - 1]))
        end--;
    return (mr_bytes){ p + begin, end - begin };
}

struct typing {
    char *out;
    size_t room, size;
};

static void type(struct typing *t, const char *text, size_t size) {
    size_t room = t->room - 1 - t->size;
    size = size < room ? size : room;
    memcpy(t->out + t->size, text, size);
    t->size += size;
    t->out[t->size] = 0;
}

// A command begins a part of the sentence, or follows "or"; so a stage that is called like one is
// left alone.
char *sentence_for_shell(char *out, size_t room, const char *p, const char *at) {
    struct typing t = { out, room, 0 };
    bool begins = false;
    int pair = 0;  // words until the name of a policy: an equals sign follows it
    int stage = 0; // words until the stage of a worker: what that runs follows it
    out[0] = 0;
    while (*p) {
        size_t size = strcspn(p, " ");
        mr_bytes word = word_core(p, size);
        const char *core = word.data, *behind = core + word.size, *other = NULL;
        if (begins || core > p || bytes_equal(word, mr_str("STATUS")))
            other = typed(word);
        if (other && bytes_equal(word, mr_str("STAGE")))
            pair = 3;
        if (other && bytes_equal(word, mr_str("TAKE")))
            stage = 2;
        type(&t, p, (size_t)(core - p));
        type(&t, other ? other : core, other ? strlen(other) : word.size);
        if (other && other[0] != '-')
            type(&t, at, strlen(at));
        if (--stage == 0)
            type(&t, " -- COMMAND", strlen(" -- COMMAND"));
        type(&t, behind, (size_t)(p + size - behind));
        begins = behind < p + size || bytes_equal(word, mr_str("or"));
        p += size;
        if (*p)
            type(&t, --pair == 0 ? "=" : " ", 1);
        p += *p != 0;
    }
    return out;
}
