// Job spec: what a push says of its job beside the stage and the body, in one struct that every
// layer passes on whole; and the options by which people and programs say it, a line each.
//
// A list is expanded (X) by all code that handles each option: the struct here, the checks of api
// and core, the command line, HTTP, and both ends of the wire. A new option is a line here, a
// member of mr_push_options, and the code that obeys it.
//
// X(member, kind, word, value, name, argument, most, about)
//     member           of struct job_spec and of mr_push_options
//     kind             BYTES (mr_bytes), MS (int64_t), COUNT (uint32_t), FLAG (bool, without a
//                      value), WAIT (int64_t, -1: for ever); zero and no bytes mean that it is not
//                      said
//     word, value      of the wire: DELAY ms
//     name, argument   of the command line: --delay D. The name is the word in small letters; HTTP
//                      has it, too, and passes it on as the word
//     most             the largest value; of bytes, how many
//     about            what it does, in a line for --help
#ifndef BASE_JOB_SPEC_H
#define BASE_JOB_SPEC_H

#include "base/limits.h"
#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

// The key has a fixed place in PUSHMANY and EMIT.
#define KEY_OPTION(X)                                                                              \
    X(key, BYTES, "KEY", "k", "key", "K", KEY_MOST, "jobs with the same key run one after another")

// Those that PUSHMANY does not take.
#define SINGLE_OPTIONS(X)                                                                          \
    X(once, BYTES, "ONCE", "name", "once", "NAME", ONCE_MOST,                                      \
      "a second push of that name makes no second job")

// What a push makes of its `once`. Not for PUSHMANY, CALL and EMIT.
#define LAST_OPTION(X)                                                                             \
    X(last, FLAG, "LAST", "", "last", NULL, 1, "a job of that name not yet started gets this body")

// A schedule has no use for it.
#define DELAY_OPTION(X)                                                                            \
    X(delay_ms, MS, "DELAY", "ms", "delay", "D", TIME_MOST_MS,                                     \
      "start it after this time: 250ms, 30s, 5m, 2h, 7d")

// Those that every push, emit and schedule takes.
#define LASTING_OPTIONS(X)                                                                         \
    X(deadline_ms, MS, "DEADLINE", "ms", "deadline", "D", TIME_MOST_MS,                            \
      "start it within this time, and stop it then")                                               \
    X(attempts, COUNT, "ATTEMPTS", "n", "attempts", "N", UINT16_MAX,                               \
      "number of attempts (0: policy of the stage)")                                               \
    X(meta, BYTES, "META", "bytes", "meta", "TEXT", META_MOST,                                     \
      "for its worker, such as a trace id: up to 1 KiB")

// About the push rather than the job: it is no member of struct job_spec.
#define ROOM_OPTION(X)                                                                             \
    X(room_ms, WAIT, "ROOM", "ms", "room", "D", TIME_MOST_MS,                                      \
      "wait this long if a limit is reached")

#define COMMON_OPTIONS(X) DELAY_OPTION(X) LASTING_OPTIONS(X)
#define SCHEDULE_OPTIONS(X) KEY_OPTION(X) LASTING_OPTIONS(X)
#define JOB_OPTIONS(X) KEY_OPTION(X) SINGLE_OPTIONS(X) LAST_OPTION(X) COMMON_OPTIONS(X)
#define PUSH_OPTIONS(X) JOB_OPTIONS(X) ROOM_OPTION(X)
#define CALL_OPTIONS(X) KEY_OPTION(X) SINGLE_OPTIONS(X) COMMON_OPTIONS(X)
#define PUSHMANY_OPTIONS(X) COMMON_OPTIONS(X) ROOM_OPTION(X)
#define EMIT_OPTIONS(X) SINGLE_OPTIONS(X) COMMON_OPTIONS(X)

// X: the syntax of the wire, with a space before each.
#define OPTION_SYNTAX(member, kind, word, value, ...) " [" OPTION_WORDS_##kind(word, value) "]"
#define OPTION_WORDS_BYTES(word, value) word " " value
#define OPTION_WORDS_MS(word, value) word " " value
#define OPTION_WORDS_COUNT(word, value) word " " value
#define OPTION_WORDS_WAIT(word, value) word " " value
#define OPTION_WORDS_FLAG(word, value) word

#define JOB_TYPE_BYTES mr_bytes
#define JOB_TYPE_MS int64_t
#define JOB_TYPE_COUNT uint32_t
#define JOB_TYPE_FLAG bool

#define JOB_MEMBER(member, kind, ...) JOB_TYPE_##kind member;

struct job_spec {
    JOB_OPTIONS(JOB_MEMBER)
};

#define JOB_FROM_OPTION(member, ...) .member = o->member,

static inline struct job_spec job_spec_of(const mr_push_options *o) {
    return (struct job_spec){ JOB_OPTIONS(JOB_FROM_OPTION) };
}

// How far a worker is with a job, as it says.
struct job_progress {
    uint64_t done, total; // total 0: not known
    mr_bytes text;
};

// A job that a commit pushes.
struct emit {
    mr_bytes stage, body;
    struct job_spec job;
};

#endif
