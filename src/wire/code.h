// Codes: the word that every error on the wire begins with, what it means, and what it is in C.
// Server, library and command line all read this one table.
//
//     -STALE the lease is no longer held
//      └ code, then a sentence for people
#ifndef WIRE_CODE_H
#define WIRE_CODE_H

#include "millrace.h"

#include <stdbool.h>

// In the order of docs/protocol.md. Where several have the same MR_E…, an error of the engine
// becomes the first.
#define WIRE_CODES(X)                                                                              \
    X(ERR, MR_EINVAL,                                                                              \
      "the command is not used as it should be, or not known; the connection stays")               \
    X(NOPROTO, MR_EINVAL, "this version of RESP is not spoken: HELLO 2 and HELLO 3 are")           \
    X(NOAUTH, MR_EAUTH, "authentication is required: AUTH")                                        \
    X(WRONGPASS, MR_EAUTH, "the secret is not right")                                              \
    X(NOPERM, MR_EPERM, "this client may not do that")                                             \
    X(TOOBIG, MR_ETOOBIG, "a body, key or name is larger than allowed")                            \
    X(FULL, MR_EFULL, "there is no room; try again later, or push with ROOM")                      \
    X(GAP, MR_EGAP, "a lower number is missing, which the sentence begins with: push that first")  \
    X(STALE, MR_ESTALE, "the token is not of the job's lease any more: stop working on it")        \
    X(EXPIRED, MR_EEXPIRED, "the deadline has passed")                                             \
    X(CANCELLED, MR_ECANCELLED, "the job was cancelled")                                           \
    X(DEAD, MR_EDEAD, "the job has failed for good; the sentence is its last reason")              \
    X(GONE, MR_EGONE, "no such job, stage or epic is known, or not any more")                      \
    X(DRAINING, MR_EDRAINING, "the stage takes no pushes: DRAIN")                                  \
    X(BUSY, MR_EBUSY, "the job is running")                                                        \
    X(LOADING, MR_EBUSY, "the store is being read: try again soon")                                \
    X(EXECABORT, MR_EINVAL, "a command behind MULTI was refused: nothing was run")                 \
    X(STOPPED, MR_ESTOPPED,                                                                        \
      "the log has failed, and whether this happened is not known; repeat it elsewhere with the "  \
      "same once, number or token")

enum code {
#define CODE_NUMBER(name, err, meaning) CODE_##name,
    WIRE_CODES(CODE_NUMBER)
#undef CODE_NUMBER
        CODES, // how many there are
};

const char *code_name(enum code);
const char *code_meaning(enum code);
int code_error(enum code); // its MR_E…

// The code for an error of the engine. Errors that a client can neither cause nor correct are ERR.
enum code code_of(int err);

// Splits an error reply into its code and its sentence; without a sentence, the meaning of the
// code. False: the code is not known, and `out_sentence` is the whole reply.
bool code_read(mr_bytes error, enum code *out, mr_bytes *out_sentence);

#endif
