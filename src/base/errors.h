// Errors: a negative MR_E… code travels up by return value; the sentence that explains it waits in
// a buffer of the thread that failed.
#ifndef BASE_ERRORS_H
#define BASE_ERRORS_H

#include "millrace.h"

// Notes the sentence for `code` in this thread and returns `code`, so that a failing function can
// say `return error_set(MR_EINVAL, "…")`. The arguments may include error_text(). Any thread.
int error_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __clang_analyzer__ // sees one file at a time: shows it that the result is `code`
#define error_set(code, ...) (error_set(code, __VA_ARGS__), (code))
#endif

// The sentence noted last by this thread, or "" if none. Valid until this thread's next failure.
const char *error_text(void);

// The fixed text of a code: "the lease is no longer held".
const char *error_meaning(int code);

#endif
