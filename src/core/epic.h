// Orders: what THEN, CANCEL and FORGET have said of an epic. An epic that has none costs nothing.
//
// The end of an epic. A command whose effect ends an epic with orders adds two things to its group
// of records: the push of THEN, as an emit, and EPIC, which says that it was pushed and when the
// epic ended. So THEN is pushed with the end or not at all, and never again.
//
//     END  PUSH  EPIC        a job's end: DONE, cancelled, expired
//     FAIL PUSH  EPIC        its last attempt
//     DROP PUSH  EPIC        DROP of a job
//     SOURCE PUSH EPIC       EPIC … END, EPIC … SKIP
//     PUSH EPIC              the epic had ended before THEN was said, or CANCEL found no job
#ifndef CORE_EPIC_H
#define CORE_EPIC_H

#include "core/emit.h"

struct epic_orders {
    uint64_t at, timer_ms; // its home; when its timer fires: NO_TIMER: there is none
    uint32_t size;
    uint32_t then_stage; // whose `thens` counts it; 0: none
    bool cancelled;
    uint64_t pushed, forget_ms, ended_ms; // as in struct record_epic
    struct emit then;                     // its texts are parts of `text`; without a stage: none
    bool cancelling;                      // CANCEL: not all jobs are ended yet
    uint32_t searched;                    // jobs looked at for that …
    struct heap found;                    // … and those that are to be ended, by id
    uint32_t text_size;
    uint8_t text[];
};

// An epic that ends with the group of records that is being built; zeroed: none does.
struct epic_end {
    uint32_t source;
    const struct emit *then; // NULL: nothing is pushed
    uint64_t then_maker;     // whom that job counts for: the maker of the epic; 0: no maker
    size_t entry;            // the index of its EPIC record in the group
};

// Whether the end of this job, which has a source and has not ended, ends an epic with orders.
void epic_end_find(const struct core *, const struct job *, struct epic_end *out);
// Makes sure that epic_end_note cannot fail; the group has so many emits, which are reserved.
int epic_end_reserve(struct core *, uint32_t emits);
void epic_end_add(struct core *, struct epic_end *);        // its record, to the group
void epic_end_note(struct core *, const struct epic_end *); // after the group was written

// The same with the push of THEN, for a command that has no other emits. Zeroed, it does nothing.
struct epic_finish {
    struct epic_end ends;
    struct emits emits;
};
// On failure nothing is left to be undone.
int epic_finish_job(struct core *, const struct job *, struct epic_finish *out);
// Adds what the group needs: records and bytes of heads.
void epic_finish_sizes(const struct epic_finish *, size_t *records, size_t *bytes);
void epic_finish_add(struct core *, struct epic_finish *);
int epic_finish_written(struct core *, struct epic_finish *, int err); // returns `err`
void epic_finish_apply(struct core *, struct epic_finish *);

// Whether no more jobs may come: its last number was seen, or it was cancelled.
bool source_is_complete(const struct source *);
bool source_is_over(const struct source *); // and all jobs have ended

// For a change of an epic's numbers (END, SKIP) that may end it: after memory has changed, before
// its record is written. `was_over`: before the change.
int epic_finish_source(struct core *, uint32_t source, bool was_over, struct epic_finish *out);

// Records the end of an epic that is over and pushes THEN, as a group of its own, if that was not
// done: its orders came later than its end. If it fails, the timer of the epic tries again.
void epic_settle(struct core *, uint32_t source);

int epic_fires(struct core *, uint32_t source); // its timer
void orders_forget(struct core *, uint32_t source);
void orders_finish(struct core *, uint32_t source);          // frees them only
int orders_check(const struct record *, uint32_t body_size); // an EPIC record: MR_ECORRUPT
int orders_restore(struct core *, const struct record *, uint64_t at, uint32_t size);
int orders_copy(struct core *, uint32_t source); // for the cleaner
int epics_open(struct core *);                   // after replay

// ---- source.c ---------------------------------------------------------------------------------

// Finds an epic, or makes one that is not recorded yet.
int epic_get(struct core *, mr_bytes stage, mr_bytes name, uint32_t *out_stage, uint32_t *out);
// Undoes what epic_get made for a change that was refused: the source with this number, if there is
// one. Returns `err`.
int epic_refused(struct core *, uint64_t first_new, mr_bytes stage, int err);
int source_drop(struct core *, uint32_t source); // records that it is forgotten

#endif
