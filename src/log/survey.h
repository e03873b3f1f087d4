// Survey: a segment read through beyond its damage. Where frames no longer follow one another it
// looks for the next valid one that begins a group; what lies between is a damaged stretch, and so
// is the part of a group whose rest is gone.
#ifndef LOG_SURVEY_H
#define LOG_SURVEY_H

#include "log/segment.h"

struct survey {
    struct walk walk;
    uint64_t good;    // offset behind the last whole group, or the last stretch
    uint64_t content; // offset behind the last byte that is not zero
    bool in_group, sealed;
};

struct stretch {
    uint64_t from, upto; // offsets
};

// Begins a survey of the file that `walk` is about. MR_EIO, MR_ENOMEM.
int survey_begin(struct survey *, struct walk walk);

// 1: a damaged stretch that something readable follows. 0: the end; what stands behind `good` is
// not readable. MR_EIO, MR_ENOMEM.
int survey_next(struct survey *, struct stretch *out);

void survey_finish(struct survey *);

#endif
