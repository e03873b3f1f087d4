// Inbox: a row that a program inserts into millrace.inbox, a table of its own PostgreSQL database,
// becomes a job once, if and only if its transaction commits. `millrace inbox run` does this, for
// each stage by itself:
//
//     transaction 1   inbox_stage.batch = the ids of the stage's next rows. They have the numbers
//                     next, next + 1, … from then on.
//     push            as those numbers of the epic inbox:NAME of the stage: the server drops
//     repeats transaction 2   deletes the rows, and `next` grows
//
// Ids of rows would not do as numbers: some are never used, and they do not commit in order.
// Transaction 2 and the next transaction 1 are one transaction (rounds.c), so there is one commit a
// batch. After a crash the batch is still there, and so is the epic, which knows how many of its
// numbers the server has accepted.
//
// A row that cannot be pushed moves to millrace.inbox_dead; in the batch its id becomes 0, and its
// number is skipped (EPIC … SKIP), so that no number is missing.
//
// One runner works at a time, under an advisory lock of its session. One thread.
#ifndef CLI_INBOX_INBOX_H
#define CLI_INBOX_INBOX_H

#include "base/limits.h"
#include "cli/inbox/database.h"
#include "cli/talk.h"

enum {
    INBOX_VERSION = 1,
    INBOX_STAGES = 1024,          // known at once
    INBOX_ROUND_STAGES = 32,      // that one round pushes to …
    INBOX_STAGE_ROWS = 1000,      // … so many rows each; numbers may be 1,024 ahead
    INBOX_TRIAL_BYTES = 64 << 10, // bodies for a stage that was full the last time
    INBOX_ROUND_BYTES = 16 << 20, // bodies in memory, and one more
    INBOX_NAME_MOST = EPIC_NAME_MOST - 6,
};

#define INBOX_EPIC "inbox:"

// The URL of the database: the argument, or --db. NULL: it is missing or no URL, and the reason was
// printed.
const char *inbox_url(const struct input *);

// Checks that the tables are there, in this version; `out` gets the name that is part of the
// epics'. MR_EGONE: they are not there; MR_EINVAL: another version; and those of database_ask.
int inbox_check(struct database *, char out[INBOX_NAME_MOST + 1]);

// ---- Stages -----------------------------------------------------------------------------------

// What a row asks for.
struct inbox_row {
    bool is_skipped;          // it was moved to inbox_dead: nothing else is set
    mr_bytes key, once, body; // bytes of `result`
    int64_t delay_ms, deadline_ms, attempts;
};

// How the last attempt to push rows of a stage has ended.
enum inbox_outcome {
    INBOX_WELL,
    INBOX_ROW_REFUSED, // the row behind the accepted ones can never be pushed: `reason`
    INBOX_WAITS,       // try again later: full, draining
    INBOX_STUCK,       // a person must act
};

struct inbox_stage {
    char name[STAGE_NAME_MOST + 1];
    bool is_known;    // `resume` is what the server knows
    bool is_wanted;   // it has rows, and is not known
    bool is_refused;  // this client may not push to it: `reason`
    bool is_reported; // its trouble was printed
    uint32_t errors;  // ERR, one after another
    uint64_t resume;  // the first number that the server has not accepted
    uint64_t held_until_ms, held_ms;
    enum inbox_outcome outcome;
    char reason[REASON_MOST];

    // Of this round.
    uint64_t next;     // the number of the batch's first row
    uint32_t accepted; // rows of the batch that the server has, to be deleted
    PGresult *result;  // that `rows` are in
    struct inbox_row *rows;
    uint32_t row_count;
};

struct inbox {
    const struct input *in;
    struct database database;
    struct talks *talks;
    struct talk *talk; // on which rows are pushed; NULL: to be opened
    char name[INBOX_NAME_MOST + 1];
    char epic[EPIC_NAME_MOST + 1];
    struct inbox_stage *stages[INBOX_STAGES];
    uint32_t stage_count;
    char cursor[STAGE_NAME_MOST + 1]; // the stage that the last round ended with
    uint64_t listed_ms;               // when stages that were not held then were last looked for
    uint64_t pushed, dead;
};

void inbox_stage_clear_rows(struct inbox_stage *);
void inbox_forget(struct inbox *); // what is known of the stages: it may have changed

// Prints the stage's trouble, unless that was done; it is not tried again for a while.
void inbox_hold(struct inbox *, struct inbox_stage *, enum inbox_outcome, const char *reason);
void inbox_goes_on(struct inbox_stage *); // its trouble is over
bool inbox_is_held(const struct inbox_stage *, uint64_t now_ms);

// rounds.c: one transaction, which deletes what was pushed, moves dead rows, and gets what is next.
// 1: there is something to do, or there may be; 0: there is not. Errors of database_ask.
int inbox_round(struct inbox *);

// deliver.c: pushes what the round got, and asks the server about stages that are not known.
// Errors: MR_ENET (and others that may pass): the server cannot be reached; MR_ECANCELLED.
int inbox_deliver(struct inbox *);

#endif
