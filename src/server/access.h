// Access: what a session may do, by the entry of the host's list that its secret belongs to.
// Whoever is in no list (there is none, or the engine is in this process) may do everything.
//
// A role that is missing, and a stage or epic out of bounds, are refused with NOPERM. Jobs out of
// bounds do not exist: their ids are answered like those of jobs that are not known, and lists
// leave them out.
#ifndef SERVER_ACCESS_H
#define SERVER_ACCESS_H

#include "server/command.h"

// Whether it may use commands of that role. False: refused, and told.
bool access_role(struct session *, enum role);
bool access_has_role(const struct session *, enum role); // the same without a word

// Whether what the command's first word names is within bounds. False: refused, and told.
bool access_scope(struct session *, const struct command *, const struct arguments *);

// What scopes the names of the sources that it numbers its pushes by: they are known to its token
// only.
mr_bytes access_source_scope(const struct session *);

// Whether it may name that stage. False: refused, and told.
bool access_name(struct session *, const char *what, mr_bytes name);

// The same without a word.
// What it costs to ask that, in steps (see budget.h).
uint64_t access_steps(const struct session *);
bool access_sees(const struct session *, mr_bytes stage);
bool access_sees_job(const struct session *, uint64_t id); // true also of jobs that are not known

// Whether it may change what is about the whole server: its token is for all stages. False:
// refused, and told.
bool access_all(struct session *, const char *what);

// Notes MR_EGONE, as the core does for a job that is not known.
int access_no_job(uint64_t id);

// Leaves out of `held_by` the name of a stage downstream that it may not see.
void access_hide_downstream(const struct session *, struct stage_info *);

#endif
