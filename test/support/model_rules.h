// What the model's parts share: model.c knows how things move, model_time.c when, and
// model_commands.c what commands ask for.
#ifndef TEST_SUPPORT_MODEL_RULES_H
#define TEST_SUPPORT_MODEL_RULES_H

#include "model.h"

static inline bool job_unended(const struct model_job *j) {
    return !j->forgotten && j->status <= JOB_RUNNING;
}

// The channel of a job; -1: not known.
int rule_channel_of(const struct model *, int job);

// Puts a channel that is not leased into its right state; into ready at the tail, or at the head.
void rule_place(struct model *, int channel, bool at_head);

// The same, but a channel that is in its right state keeps its place.
void rule_correct(struct model *, int channel, bool at_head);

// Rule 15, for a key.
void rule_pause_key(struct model *, int stage, const char *key, bool pauses);

// Rule 1. The job joins its channel; a dormant one goes to the tail of ready.
void rule_join(struct model *, int job);

// The job ends, but is not dead; its callers are notified.
void rule_end(struct model *, int job, enum job_status);

// Rules 7 to 9: it ends without being wanted, wherever it is.
void rule_unwanted(struct model *, int job, enum job_status);

// The job is forgotten at once, waiting or dead.
void rule_drop(struct model *, int job);

// The job has left its channel, or came back to its place; if the channel is not leased, it moves
// at once.
void rule_left_channel(struct model *, int job);

// Sends a stop to the connection of the lease, if there still is one.
void rule_tell_stop(struct model *, int lease, int job, int why);

// Rule 8: cancels the job if it is not wanted any more.
void rule_interest(struct model *, int job);

// Rule 5: an attempt of the job has failed; after the last it is dead. Moves no channel.
void rule_attempt(struct model *, int job, const char *reason, int64_t retry_ms);

// Rules 5 and 6. The first unended job of the lease has failed an attempt, the others come back.
// `retry_ms` as FAIL has it, or RETRY_AT_HEAD for a lost connection.
enum { RETRY_AT_HEAD = -3 };
void rule_fail(struct model *, int lease, const char *reason, int64_t retry_ms);
void rule_release(struct model *, int lease, int64_t delay_ms);

// Ends the lease if the worker has let go of all its jobs.
void rule_lease_over(struct model *, int lease);

// Epics that are over now push their THEN.
void rule_epics(struct model *);

// Forgets the epic; its jobs stay.
void rule_forget_epic(struct model *, int source);

// A new job: index, or -1 when the model is full.
int rule_new_job(struct model *, const struct command_job *);

// The job that holds (stage, key, once) now; -1: none.
int rule_once(const struct model *, int stage, const char *key, const char *once);

// Rule 2: grants up to `count` jobs to a take; returns how many.
int rule_take(struct model *, const struct command *, int taker);

// Puts the group into `turns` or `held`, behind the others, if it is not there.
void rule_group_place(struct model *, int stage, int group);

// The group has had its turn.
void rule_group_started(struct model *, int stage, int group, int jobs);

// A job of the group was answered, or its rate allows a start: it may be held no more.
void rule_group_freed(struct model *, int stage, int group);

// The policies of the stage were changed.
void rule_group_limits(struct model *, int stage, const struct policy *before);

// Something may start in this stage now.
void rule_touch(struct model *, int stage);

// Wakes takers while there is work for them: stage after stage as they were touched, and in each in
// order of arrival.
void rule_settle(struct model *);

// Forgets ended jobs beyond the stage's retention.
void rule_forget_old(struct model *, int stage);

#endif
