// Journal: a directory in which a run of the same input, or a flow, goes on where it stopped.
//
//     DIR/journal   what the run is: its command, how lines and keys are found
//     DIR/lines     8 bytes a line that was read: its hash
//     DIR/printed   with --keep-order: how many lines were printed, and how many of them failed
//     DIR/store/    the engine: lines that wait or run, and which numbers it has accepted
//
// A line is pushed with its number as that of an epic: the engine accepts each number once, so
// nothing is pushed, and nothing that ended is run, twice. The hashes tell whether the input is the
// one that was read before. A line's hash is on disk before the line is pushed.
//
// When everything has ended, the store is renamed to DIR/finished and all of it is removed: what a
// crash leaves half removed begins anew as well. Main thread only.
#ifndef CLI_RUN_JOURNAL_H
#define CLI_RUN_JOURNAL_H

#include "base/buffer.h"
#include "cli/lines.h"
#include "engine/engine.h"

#define JOURNAL_EPIC "lines"

struct journal {
    const char *dir;    // NULL: none
    char *store;        // DIR/store
    int lines;          // descriptor
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
