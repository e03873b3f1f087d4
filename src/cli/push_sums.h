// Sums: checksums of the lines of an epic, so that running it again with another file is noticed.
//
// The engine knows how many lines of an epic it has accepted, not what they were. So this process
// keeps, in a small file below $XDG_STATE_HOME/millrace (~/.local/state/millrace), a sum of all
// lines up to each of the last SUMS_KEPT, more than can be under way: for whichever line the engine
// names as the first one missing, the sum of those before it is there. A sum is written before its
// line is sent, and survives this process, though not a power cut. Where it is missing, because the
// epic was begun elsewhere, the lines are not compared, and a message says so. If one number stands
// for several lines, the number of lines up to it is kept, too.
#ifndef CLI_PUSH_SUMS_H
#define CLI_PUSH_SUMS_H

#include <stdint.h>

enum { SUMS_KEPT = 2048 };

struct sums {
    struct sum {
        uint64_t number, sum; // of `number` and all before it
        uint64_t lines;       // in them
    } * kept;                 // mapped; NULL: they cannot be kept
    uint64_t sum;             // so far
};

enum sums_found { SUMS_SAME, SUMS_OTHER, SUMS_UNKNOWN };

// Opens the file of this epic of this engine. If it cannot be opened, nothing is kept.
void sums_open(struct sums *, const char *engine, const char *stage, const char *epic);

// The next line is `number`, and its hash `hash`.
void sums_add(struct sums *, uint64_t number, uint64_t hash);
void sums_keep(struct sums *, uint64_t number, uint64_t lines);

// What was kept of `number`; NULL: nothing was, or not for so long.
const struct sum *sums_find(const struct sums *, uint64_t number);

// Whether the lines added so far, of which `number` is the last, are those that were kept.
enum sums_found sums_check(const struct sums *, uint64_t number);

void sums_close(struct sums *);

void sums_forget(const char *engine, const char *stage, const char *epic);

#endif
