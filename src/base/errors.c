// One buffer per thread holds the sentence of its last failure; the codes come from MR_ERRORS.
#include "base/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char sentence[1024];

#undef error_set // the analyzer has a macro of this name
int error_set(int code, const char *format, ...) {
    char fresh[sizeof sentence]; // a separate buffer, because the arguments may include the old
                                 // sentence
    va_list args;
    va_start(args, format);
    if (vsnprintf(fresh, sizeof fresh, format, args) < 0)
        fresh[0] = 0;
    va_end(args);
    memcpy(sentence, fresh, strlen(fresh) + 1);
    return code;
}

const char *error_text(void) {
    return sentence;
}

const char *error_meaning(int code) {
    switch (code) {
#define ERROR_MEANING(name, number, text)                                                          \
    case MR_##name:                                                                                \
        return text;
        MR_ERRORS(ERROR_MEANING)
#undef ERROR_MEANING
    }
    return code < 0 ? "unknown error" : "no error";
}
