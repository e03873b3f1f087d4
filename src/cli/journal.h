// Journal: a directory in which a run of the same input, or a flow, goes on where it stopped.
//
//     DIR/journal   the identity of the run: its command, how lines and keys are found
//     DIR/lines     8 bytes a line that was read: its hash
//     DIR/counts    of a flow: lines read and written so far
//     DIR/printed   with --keep-order: how many lines were printed, and which of them failed
//     DIR/round     with --keep-order, when an earlier run has ended: which lines it left to retry
//     DIR/failures  of a run that has not ended: lines that failed: number, reason, text
//     DIR/failed    the same, of a run that has ended
//     DIR/store/    the engine: lines that wait or run, failed ones, and which numbers it has
//                   accepted
//
// A line is pushed with its number as that of an epic: the engine accepts each number once, so
// no line is pushed twice, and none that has ended is run again. The hashes show whether the input
// is the one that was read before. A line's hash is on disk before the line is pushed.
//
// When everything has ended and nothing has failed, the store is renamed to DIR/finished and all of
// it is removed; a journal that a crash leaves half removed is removed by the next run, which
// begins anew. If lines have failed they stay, dead, in the store: the next run tries them again.
// Main thread only, where nothing else is stated.
//
// With --keep-order a line that failed is a result of the store as well, so that it is printed in
// its turn. The next run then begins a new round in the same store: an epic of its own, to which
// only the lines that failed and those behind all others are pushed. A line's position is its place
// among the lines of its round; in the first round, and without an order, that is its number.
#ifndef CLI_JOURNAL_H
#define CLI_JOURNAL_H

#include "base/buffer.h"
#include "cli/lines.h"
#include "millrace.h"

#include <sys/types.h>

#define RUN_STAGE "run"
#define JOURNAL_EPIC "lines" // of that stage, in the first round
enum { JOURNAL_EPIC_NAME = 32 };

struct journal {
    const char *dir;    // NULL: none
    char *url;          // of its engine: file:DIR/store …
    const char *store;  // … and DIR/store alone
    int lines;          // descriptor
    bool again;         // an earlier run has ended: what failed in it is tried again
    uint64_t resume;    // the first position that the engine does not have yet
    struct buffer seen; // hashes read from the file: those of the lines behind `seen_upto`
    uint64_t seen_upto;
    uint64_t round;               // from 1 …
    char epic[JOURNAL_EPIC_NAME]; // … and the name of its epic
    uint64_t ended_upto;          // the last line of the earlier rounds; 0: this is the first
    struct buffer retried; // numbers of the lines of them that are tried again, ascending: uint64_t
};

// Adds a name and a value to the identity of a run, which is lines of text. A journal can be
// continued only by a run with the same identity.
int identity_add(struct buffer *identity, const char *name, const char *value);

// Whether there is a journal in `dir`, of whatever run.
bool journal_exists(const char *dir);

// Opens `dir` as the journal of a run with this identity, and makes it if it is missing or empty.
// MR_EINVAL: it belongs to another run, or is no journal; MR_EIO, MR_ENOMEM.
int journal_open(struct journal *, const char *dir, mr_bytes identity);

// Finds out how far the engine, opened at `url`, has come. MR_ECORRUPT: the files do not fit each
// other.
int journal_resume(struct journal *, mr *);

// A line's place in the round; 0: it ended well in an earlier one. Any thread.
uint64_t journal_position(const struct journal *, uint64_t number);

// Lines that ended well in earlier rounds.
uint64_t journal_passed(const struct journal *);

// The last line that was read in this round or an earlier one.
uint64_t journal_known(const struct journal *);

// Where the positions of lines that failed were noted, 8 bytes each.
struct failed_list {
    int fd;
    off_t at;
    uint64_t count;
};

// In order, all lines up to `upto` have ended, and these have failed: the next run begins another
// round with them. MR_EIO, MR_ENOMEM.
int journal_next_round(const struct journal *, uint64_t upto, struct failed_list);

// A descriptor for what was printed. MR_EIO.
int journal_mark(const struct journal *);

// Keeps, or reads, two counts for the summary of a later run. They do not matter for anything else:
// counts that cannot be read are left as they are. MR_EIO.
int journal_count(const struct journal *, const uint64_t counts[2]);
void journal_counted(const struct journal *, uint64_t out_counts[2]);

// Adds a line that failed to the list: before its end is committed. Any thread. MR_EIO, MR_ENOMEM.
int journal_note_failure(const struct journal *, const char *name, const char *reason,
                         mr_bytes line);

// The lines that failed are tried again: removes the list of them. MR_EIO.
int journal_forget_failures(struct journal *);

// All has ended, and lines have failed: keeps the list of them. MR_EIO.
int journal_keep_failures(const struct journal *);

// Compares a line that is known with what was read before. MR_EINVAL: it differs; MR_EIO.
int journal_compare(struct journal *, const struct line *);

// Notes lines that are about to be pushed, from `number` on. MR_EIO.
int journal_note(struct journal *, uint64_t number, const uint64_t *hashes, size_t count);

// Everything has ended, the engine is closed: removes it all, so that the next run begins anew.
int journal_remove(const struct journal *);

// The same, but the store can be looked at, as DIR/finished, until the next run begins.
int journal_retire(const struct journal *);

// Removes the journal in `dir` whatever its state, if there is one. No process may have it open.
// MR_EIO.
int journal_forget(const char *dir);

void journal_close(struct journal *);

#endif
