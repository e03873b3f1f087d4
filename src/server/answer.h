// Answers that are given in more than one place: jobs, results, errors, tokens.
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "server/session.h"

enum { ANSWER_GRANTS = 1000, ANSWER_TOKEN = 27 };

// An error: the code that clients look at, and the sentence noted by the call that failed.
void answer_error(struct session *, int err);

// OK, or the error.
void answer_ok(struct session *, int err);

// What a TAKE got, with bodies and states read from the log. A job that cannot be read has failed.
// False: some are on the disk only, which was not to be waited for; nothing was said.
bool answer_grants(struct session *, const struct grant *, size_t count, bool wait);

// The body of an entry of a shard's log as a bulk string; nil if it cannot be read.
void answer_body(struct session *, uint32_t shard, uint64_t at);

// How a job ended, to CALL and AWAIT.
void answer_outcome(struct session *, const struct outcome *);

// Makes the table that token_read uses, before any other thread does.
void tokens_prepare(void);
// Reads a lease's name as clients see it. MR_ESTALE: this cannot be one.
int token_read(mr_bytes text, struct token *out);

// ---- Lists that are made in pieces --------------------------------------------------------------

// How many rows there are is said before them, and a list may be more than one turn's work: so its
// rows gather apart from the reply, and the command waits for the next turn until all are there.
struct listing {
    bool (*more)(struct session *, struct listing *); // writes rows; true: these are all
    uint64_t at;                                      // where it goes on
    uint32_t count, most;                             // rows that there are, and may be
    char stage[STAGE_NAME_MOST + 1];                  // rows of this one only; empty: of all
    struct buffer rows;
};

// Makes the list and answers with it, now or later.
void list_run(struct session *, const struct listing *);

#endif
