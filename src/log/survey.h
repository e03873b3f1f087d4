// Survey: reads a segment past its damage. Where no valid frame follows, it searches for the next
// valid one that begins a group; the bytes between are a damaged stretch, and so is a group without
// its end.
#ifndef LOG_SURVEY_H
#define LOG_SURVEY_H

#include "log/segment.h"

struct survey {
    struct walk walk;
    uint64_t good;    // offset after the last whole group or damaged stretch
    uint64_t content; // offset after the last byte that is not zero
    bool in_group, sealed;
};

struct stretch {
    uint64_t from, upto; // offsets
};

// Begins a survey of the file that `walk` is about. MR_EIO, MR_ENOMEM.
int survey_begin(struct survey *, struct walk walk);

// 1: a damaged stretch before readable entries. 0: the end; nothing after `good` is readable.
// MR_EIO, MR_ENOMEM.
int survey_next(struct survey *, struct stretch *out);

void survey_finish(struct survey *);

#endif
