// See survey.h.
#include "log/survey.h"

int survey_begin(struct survey *v, struct walk walk) {
    *v = (struct survey){ .walk = walk, .good = SEGMENT_START };
    v->walk.bodies = true;
    v->walk.at = SEGMENT_START;
    return walk_content_end(&v->walk, SEGMENT_START, &v->content);
}

static bool frame_begins_group(const struct log_frame *f) {
    return !frame_is_entry(f) || f->flags & FRAME_FIRST;
}

// True if the frame is valid at this place and its body is readable.
static bool survey_take(struct survey *v, const struct log_frame *f) {
    if (frame_begins_group(f) == v->in_group || f->flags & FRAME_DAMAGED)
        return false;
    if (f->flags & FRAME_SEAL) {
        v->sealed = true;
        return true;
    }
    v->in_group = frame_is_entry(f) && !(f->flags & FRAME_LAST);
    if (!v->in_group)
        v->good = v->walk.at;
    return true;
}

// Moves to the next frame that begins a group and leaves room for a skip before it.
static int survey_resync(struct survey *v) {
    struct walk_frame f;
    int found;
    while ((found = walk_find(&v->walk, v->content, &f)) > 0)
        if (frame_begins_group(&f.frame) && f.at >= v->good + ENTRY_FRAME)
            break;
    if (found > 0)
        v->walk.at = f.at;
    return found;
}

int survey_next(struct survey *v, struct stretch *out) {
    while (!v->sealed) {
        struct walk_frame f;
        int found = walk_next(&v->walk, &f);
        if (found < 0)
            return found;
        if (found > 0 && survey_take(v, &f.frame))
            continue;
        if (found > 0)
            v->walk.at = f.at;
        found = survey_resync(v);
        if (found <= 0)
            return found;
        *out = (struct stretch){ v->good, v->walk.at };
        v->good = v->walk.at;
        v->in_group = false;
        return 1;
    }
    return 0;
}

void survey_finish(struct survey *v) {
    walk_finish(&v->walk);
}
