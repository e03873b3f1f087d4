// See access.h.
#include "server/access.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mutant.h"
#include "server/answer.h"
#include "server/gather.h"
#include "server/shards.h"
#include "wire/code.h"
#include "wire/number.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 200 };

static void access_refuse(struct session *s, enum code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void access_refuse(struct session *s, enum code code, const char *format, ...) {
    char text[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    reply_error(&s->reply, code_name(code), mr_str(text));
}

static int shown(mr_bytes b) {
    return b.size < SHOWN ? (int)b.size : SHOWN;
}

APART bool access_refuse_role(struct session *s, enum role role) {
    const struct auth_entry *who = s->who;
    if (!who) {
        access_refuse(s, CODE_NOAUTH, "this server requires a token: AUTH name secret");
        return false;
    }
    access_refuse(s, CODE_NOPERM, "the token '%.*s' does not have the role %s", shown(who->name),
                  (const char *)who->name.data, role_name(role));
    return false;
}

enum { STEP_PATTERNS = 64 }; // bytes of patterns that cost one step

uint64_t access_steps(const struct session *s) {
    return 1 + (s->who && !s->who->all ? s->who->patterns.size / STEP_PATTERNS : 0);
}

bool access_sees(const struct session *s, mr_bytes stage) {
    return !s->who || auth_sees(s->who, stage);
}

mr_bytes access_source_scope(const struct session *s) {
    return s->who ? s->who->name : (mr_bytes){ 0 };
}

bool access_sees_job(const struct session *s, uint64_t id) {
    struct job_info job;
    return !s->who || s->who->all || MUTANT(job_of_another_stage_seen) ||
           shards_look_job(s->host, id, &job) < 0 || auth_sees(s->who, job.stage);
}

bool access_is_limited(const struct session *s) {
    return s->who && !s->who->all;
}

int access_no_job(uint64_t id) {
    return error_set(MR_EGONE, "job %" PRIu64 " is not known (any more)", id);
}

bool access_name(struct session *s, const char *what, mr_bytes name) {
    const struct auth_entry *who = s->who;
    if (access_sees(s, name))
        return true;
    access_refuse(s, CODE_NOPERM,
                  "the token '%.*s' is limited to %.*s, which does not include the %s '%.*s'",
                  shown(who->name), (const char *)who->name.data, shown(who->patterns),
                  (const char *)who->patterns.data, what, shown(name), (const char *)name.data);
    return false;
}

bool access_all(struct session *s, const char *what) {
    const struct auth_entry *who = s->who;
    if (!who || who->all)
        return true;
    access_refuse(s, CODE_NOPERM,
                  "%s concerns the whole server, but the token '%.*s' is limited to %.*s", what,
                  shown(who->name), (const char *)who->name.data, shown(who->patterns),
                  (const char *)who->patterns.data);
    return false;
}

// Whether only another loop can tell whether this job exists.
static bool job_may_be_elsewhere(const struct session *s, uint64_t id) {
    const struct host *h = s->host;
    return h->loops && !s->remote && (h->foreign_ids || router_loop_of_id(h, id) != h->loop);
}

// A job out of bounds and an unknown job are refused here alike, before the rest of the command is
// read: otherwise an error in it would distinguish the two. Exceptions: the commands that end a
// lease, which check this themselves (read_lease); and MULTI, which checks no jobs: EXEC does.
static bool access_job(struct session *s, const struct command *c, uint64_t id) {
    struct job_info job;
    if (!access_is_limited(s) || s->checks)
        return true;
    bool permitted = shards_look_job(s->host, id, &job) == 0
                         ? auth_sees(s->who, job.stage)
                         : c->role == ROLE_WORK || job_may_be_elsewhere(s, id);
    if (!permitted)
        answer_error(s, access_no_job(id));
    return permitted;
}

APART bool access_scope(struct session *s, const struct command *c, const struct arguments *a) {
    uint64_t id;
    switch (c->scope) {
    case SCOPE_NONE:
    case SCOPE_STAGES:
    case SCOPE_LEASES:
    case SCOPE_JOBS:
    case SCOPE_EITHER:
    case SCOPE_LIST:
    case SCOPE_SERVER:
    case SCOPE_CLIENT:
    case SCOPE_SHARD:
        return true;
    case SCOPE_STAGE:
        return access_name(s, "stage", a->words[1]);
    case SCOPE_JOB:
        return number_parse(a->words[1], &id) < 0 || access_job(s, c, id);
    }
    return false;
}

void access_hide_downstream(const struct session *s, struct stage_info *i) {
    static const char begin[] = "downstream:";
    char *name = i->held_by + sizeof begin - 1;
    if (strncmp(i->held_by, begin, sizeof begin - 1) != 0)
        return;
    if (!access_sees(s, (mr_bytes){ name, strcspn(name, " ") }))
        name[-1] = 0;
}
