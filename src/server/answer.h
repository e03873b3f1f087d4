// Replies that several commands use: jobs, results, errors, tokens.
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "server/session.h"

enum { ANSWER_GRANTS = 1000, ANSWER_TOKEN = 27 };

// Replies with an error: its code, and the message of the call that failed.
void answer_error(struct session *, int err);

// Replies with OK, or the error.
void answer_ok(struct session *, int err);

// Replies with the jobs of a TAKE, with bodies and states read from the log. A job that cannot be
// read fails. False: some bodies have to be fetched; no reply was written.
bool answer_grants(struct session *, const struct grant *, size_t count);

// Replies with the body of an entry of a shard's log as a bulk string, but for its last bytes,
// META, which go to `out_meta` (META_MOST bytes). False: it replied with nil, because the entry
// cannot be read, or has to be fetched (fetch_is_needed).
bool answer_body(struct session *, uint32_t shard, uint64_t at, uint32_t meta_size,
                 uint8_t *out_meta);

// Replies to CALL and AWAIT with the outcome of a job. False: its result or reason has to be
// fetched; no reply was written. If the cleaner has moved that, its new position is set.
bool answer_outcome(struct session *, struct outcome *);

// The same for a command: now, or when that was fetched.
void answer_or_fetch_outcome(struct session *, const struct outcome *);

// Makes the table that token_read uses; must be called before other threads start.
void tokens_prepare(void);
// Parses the token of a lease. MR_ESTALE: it cannot be a token.
int token_read(mr_bytes text, struct token *out);

// ---- Lists made in several turns ----------------------------------------------------------------

// The number of rows comes before the rows, and a list may be more work than one turn allows: so
// rows are collected in a separate buffer, and the command continues in later turns until it is
// complete.
struct listing {
    bool (*more)(struct session *, struct listing *); // writes rows; true: the list is complete
    uint64_t at;                                      // where it continues
    uint32_t count, most;                             // rows so far, and at most
    char stage[STAGE_NAME_MOST + 1];                  // only rows of this stage; empty: all
    struct buffer rows;
};

// Makes the list and replies with it, in this turn or later.
void list_run(struct session *, const struct listing *);

// Lists of things that have a name within their stage and a place in their core (epics, schedules):
// `at` is the shard, from LIST_SHARD_SHIFT on, and the place there that was looked at last.
enum { LIST_SHARD_SHIFT = 32 };

// The next place; false: there is none.
bool list_next_place(const struct host *, uint32_t (*places)(const struct core *), uint64_t *at);

// Where a list begins: behind FROM, which is 'stage name', if that is given. `only`: the stage that
// it is about; empty: all. `what`: a word for errors. False: an error was answered.
bool list_read_from(struct session *, mr_bytes from, mr_bytes only, const char *what,
                    int (*place)(struct core *, mr_bytes stage, mr_bytes name, uint32_t *out),
                    uint64_t *out);

#endif
