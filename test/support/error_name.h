// The names of error codes, for traces and messages of tests.
#ifndef TEST_SUPPORT_ERROR_NAME_H
#define TEST_SUPPORT_ERROR_NAME_H

#include "millrace.h"

// "ESTALE" for MR_ESTALE.
static inline const char *error_name(int code) {
    switch (code) {
#define ERROR_NAME(name, number, text)                                                             \
    case MR_##name:                                                                                \
        return #name;
        MR_ERRORS(ERROR_NAME)
#undef ERROR_NAME
    }
    return code < 0 ? "EUNKNOWN" : "OK";
}

#endif
