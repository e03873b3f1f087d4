// Access: the permissions of a session, by the token with which it has authenticated. Without a
// list of tokens a session may do everything.
//
// A missing role, and a stage or epic that the token does not permit, are refused with NOPERM. Jobs
// of such stages are hidden: their ids are answered like those of unknown jobs, and lists omit
// them.
#ifndef SERVER_ACCESS_H
#define SERVER_ACCESS_H

#include "server/command.h"

// Whether the session may run commands of this role.
static inline bool access_has_role(const struct session *s, enum role role) {
    const struct auth_entry *who = s->who;
    if (!s->host->auth || role == ROLE_UNAUTHENTICATED)
        return true;
    return who && (role == ROLE_ANY || who->roles & (role | ROLE_ADMIN));
}

// Replies the error. Returns false.
bool access_refuse_role(struct session *, enum role);

// The same check. False: the error was replied.
static inline bool access_role(struct session *s, enum role role) {
    return access_has_role(s, role) || access_refuse_role(s, role);
}

// Whether the session may use the stage or job that the command's first argument names. False: the
// error was replied.
bool access_scope(struct session *, const struct command *, const struct arguments *);

// The scope of the names of its sources, which are separate for each token.
mr_bytes access_source_scope(const struct session *);

// Whether the session may use this stage. False: the error was replied.
bool access_name(struct session *, const char *what, mr_bytes name);

// The cost of access_sees, in steps (see budget.h).
uint64_t access_steps(const struct session *);

// Same check as access_name; writes no reply.
bool access_sees(const struct session *, mr_bytes stage);
bool access_sees_job(const struct session *, uint64_t id); // true for unknown jobs
bool access_is_limited(const struct session *);            // there are stages it may not use

// Whether the session may change settings of the whole server: its token is for all stages. False:
// the error was replied.
bool access_all(struct session *, const char *what);

// Sets MR_EGONE with the same message as the core for an unknown job.
int access_no_job(uint64_t id);

// Removes from `held_by` the name of a downstream stage that the session may not see.
void access_hide_downstream(const struct session *, struct stage_info *);

#endif
