// See code.h.
#include "wire/code.h"

#include "base/bytes.h"

#include <string.h>

static const struct {
    const char *name, *meaning;
    int err;
} codes[CODES] = {
#define CODE_ROW(name, err, meaning) { #name, meaning, err },
    WIRE_CODES(CODE_ROW)
#undef CODE_ROW
};

const char *code_name(enum code code) {
    return codes[code].name;
}

const char *code_meaning(enum code code) {
    return codes[code].meaning;
}

int code_error(enum code code) {
    return codes[code].err;
}

enum code code_of(int err) {
    if (err == MR_ENOMEM)
        return CODE_FULL;
    if (err == MR_EIO)
        return CODE_STOPPED;
    for (int i = 0; i < CODES; i++)
        if (codes[i].err == err)
            return (enum code)i;
    return CODE_ERR;
}

bool code_read(mr_bytes error, enum code *out, mr_bytes *out_sentence) {
    const char *text = error.data, *space = error.size ? memchr(text, ' ', error.size) : NULL;
    mr_bytes name = { text, space ? (size_t)(space - text) : error.size };
    *out_sentence = error;
    for (int i = 0; i < CODES; i++) {
        if (!bytes_equal(name, mr_str(codes[i].name)))
            continue;
        size_t skipped = name.size + (space != NULL);
        *out = (enum code)i;
        *out_sentence = (mr_bytes){ text + skipped, error.size - skipped };
        if (!out_sentence->size)
            *out_sentence = mr_str(codes[i].meaning);
        return true;
    }
    return false;
}
