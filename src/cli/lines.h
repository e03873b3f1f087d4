// Lines: cuts input into lines as it comes. In memory are at most one line and the bytes of one
// read.
//
//     taken ┊ text of the next line ┊ read, not scanned yet ┊ room
//           start                   scanned                 size
//
// A line ends at its delimiter, or with the input. Of a line longer than LINE_MOST that much is
// kept and the rest only counted and hashed, so that it can be refused, and compared with a line of
// an earlier run, without more memory. Zero is a valid start, with 0 as the delimiter.
//
// flow/line_source.c also reads lines, below this layer: from a file that it opens itself, in
// blocks that have numbers, and a line that is too long ends the flow.
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include "base/buffer.h"
#include "base/limits.h"

enum { LINE_MOST = BODY_MOST - 32 }; // a job's body holds it, and its number and size

struct line {
    uint64_t number; // from 1
    mr_bytes text;   // without its delimiter; the first LINE_MOST bytes
    uint64_t size;   // of all of it
    uint64_t hash;   // of all of it
};

struct lines {
    char delimiter;
    uint64_t number; // of the line returned last
    struct buffer bytes;
    size_t start, scanned;
    uint64_t dropped, dropped_hash; // of the next line, beyond LINE_MOST
    bool ended;                     // nothing more can be read
};

// Reads once from `fd`. Waits only if that does. MR_EIO, MR_ENOMEM.
int lines_read(struct lines *, int fd);

// The next line, borrowed until the next call of lines_read. False: more has to be read first, or
// there is no more.
bool lines_next(struct lines *, struct line *out);

void lines_finish(struct lines *);

#endif
