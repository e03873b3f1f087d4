// Journal: a directory in which a run of the same input, or a flow, goes on where it stopped.
//
//     DIR/journal   what the run is: its command, how lines and keys are found
//     DIR/lines     8 bytes a line that was read: its hash
//     DIR/counts    of a flow: lines read and written so far
//     DIR/printed   with --keep-order: how many lines were printed, and how many of them failed
//     DIR/failures  of a run that has not ended: lines that failed: number, reason, text
//     DIR/failed    the same, of a run that has ended
//     DIR/store/    the engine: lines that wait or run, failed ones, and which numbers it has
//                   accepted
//
// A line is pushed with its number as that of an epic: the engine accepts each number once, so
// nothing is pushed, and nothing that ended is run, twice. The hashes tell whether the input is the
// one that was read before. A line's hash is on disk before the line is pushed.
//
// When everything has ended and nothing has failed, the store is renamed to DIR/finished and all of
// it is removed: what a crash leaves half removed begins anew as well. If lines have failed they
// stay, dead, in the store: the next run tries them again. (With --keep-order they are results of
// the store, printed and forgotten: then only the list stays, and the next run begins anew.) Main
// thread only, if not said otherwise.
#ifndef CLI_RUN_JOURNAL_H
#define CLI_RUN_JOURNAL_H

#include "base/buffer.h"
#include "cli/lines.h"
#include "engine/engine.h"

#define RUN_STAGE "run"
#define JOURNAL_EPIC "lines" // of that stage

struct journal {
    const char *dir;    // NULL: none
    char *store;        // DIR/store
    int lines;          // descriptor
    bool again;         // an earlier run has ended: what failed in it is tried again
    uint64_t resume;    // the first line that the engine does not have yet
    struct buffer seen; // hashes read from the file: those of the lines behind `seen_upto`
    uint64_t seen_upto;
};

// What a run is, in lines of text; another run may go on only if it says the same.
int journal_say(struct buffer *identity, const char *name, const char *value);

// Looks whether `dir` is, or can be, the journal of a run with this identity; makes it. MR_EINVAL:
// it belongs to another run, or is no journal; MR_EIO, MR_ENOMEM.
int journal_open(struct journal *, const char *dir, mr_bytes identity);

// How far the engine, opened on `store`, has come. MR_ECORRUPT: the files do not fit each other.
int journal_resume(struct journal *, struct engine *);

// A descriptor for what was printed. MR_EIO.
int journal_mark(const struct journal *);

// Keeps, or finds, two counts for the summary of a later run. For people only: what is not found
// stays as it is. MR_EIO.
int journal_count(const struct journal *, const uint64_t counts[2]);
void journal_counted(const struct journal *, uint64_t out_counts[2]);

// Adds a line that failed to the list: before its end is committed. Any thread. MR_EIO, MR_ENOMEM.
int journal_note_failure(const struct journal *, const char *name, const char *reason,
                         mr_bytes line);

// The lines of `again` wait: what is said of them is outdated. MR_EIO.
int journal_forget_failures(struct journal *);

// All has ended, and lines have failed: keeps the list of them, and with `store` the store. MR_EIO.
int journal_keep_failures(const struct journal *, bool store);

// Compares a line below `resume` with what was read before. MR_EINVAL: it differs; MR_EIO.
int journal_compare(struct journal *, const struct line *);

// Notes lines that are about to be pushed, from `number` on. MR_EIO.
int journal_note(struct journal *, uint64_t number, const uint64_t *hashes, size_t count);

// Everything has ended, the engine is closed: removes it all, so that the next run begins anew.
int journal_remove(const struct journal *);

// The same, but the store stays as DIR/finished, for people to look at, until that.
int journal_retire(const struct journal *);

// Removes the journal in `dir` whatever its state, if there is one. Nobody may have it open.
// MR_EIO.
int journal_forget(const char *dir);

void journal_close(struct journal *);

#endif
