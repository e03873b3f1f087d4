// All commands, one row each, in the order people read about them.
#include "base/limits.h"
#include "base/reply_fields.h"
#include "server/command.h"

#define TEXT(number) #number
#define SECONDS(number) TEXT(number) " s"

#define PUSH_SYNTAX                                                                                \
    "stage body [KEY k] [ONCE name] [DELAY ms] [DEADLINE ms] [ATTEMPTS n] [ROOM ms] "              \
    "[EPIC name n | SOURCE name n]"

const struct command command_table[] = {
    { "PUSH", 2, 0, ROLE_PUSH, SCOPE_STAGE, true, MULTI_CHECKED, false, run_push, PUSH_SYNTAX,
      "id (the first one's, when it is a repeat)",
      "hands in a job; those of one KEY run one after another, in order; two of a key with the "
      "same ONCE are one; DELAY and DEADLINE count from the receipt; ATTEMPTS is how many attempts "
      "it "
      "has (0: as many as the stage says); ROOM waits for room where otherwise there is FULL; EPIC "
      "and SOURCE number the pushes of a stream into the stage from 1, so that one repeated makes "
      "no second job; a number 1024 or more beyond the first that is missing is refused with GAP, "
      "so "
      "that after a crash, whatever was sent ahead of the replies, nothing below resume (EPIC) is "
      "missing and what is pushed again makes its job; names of a SOURCE are known to the token "
      "that uses them only; a SOURCE that was not used for " SECONDS(
          SOURCE_LEAST_S) " may be "
                          "forgotten, so a client sends a number again for at most half of that "
                          "time after it first "
                          "sent it, and then reports that the outcome is not known; epics are kept "
                          "until DROP" },
    { "PUSHMANY", 4, 0, ROLE_PUSH, SCOPE_STAGE, true, MULTI_CHECKED, true, run_pushmany,
      "stage [DELAY ms] [DEADLINE ms] [ATTEMPTS n] [ROOM ms] [EPIC name n | SOURCE name n] ITEMS "
      "key body [key body …]",
      "array of ids, shorter than the items if one did not fit",
      "hands in many jobs, in order; an empty key is none; EPIC and SOURCE number them n, n+1, … "
      "as "
      "so many pushes; it stops at the first that is refused, and is an error if that is the first "
      "of all" },
    { "CALL", 2, 0, ROLE_PUSH, SCOPE_STAGE, true, MULTI_REFUSED, false, run_call,
      PUSH_SYNTAX " [LATER]",
      "the result; EXPIRED, CANCELLED or DEAD with the reason; with LATER the id",
      "hands in a job and waits for its result; the job lives as long as somebody waits; with "
      "LATER (RESP3) the connection goes on, and the end comes as a push message: ended, id, and "
      "what would have been the reply" },
    { "AWAIT", 1, 0, ROLE_PUSH, SCOPE_JOB, false, MULTI_CHECKED, true, run_await, "id [WAIT ms]",
      "as CALL; nil when the wait ends first",
      "tells how a job ended, once it has; a call lives as long as somebody waits, here too, and a "
      "push is not affected" },
    { "CANCEL", 1, 1, ROLE_PUSH, SCOPE_JOB, true, MULTI_QUEUED, true, run_cancel, "id",
      "1 if it changed something, 0 if the job had ended",
      "a waiting job will not start, a running one is told to stop" },
    { "EPIC", 2, 0, ROLE_PUSH, SCOPE_STAGE, false, MULTI_REFUSED, true, run_epic,
      "stage name [WAIT ms [LEFT n]] [OF n] | stage name END n | stage name SKIP n | stage name "
      "DROP",
      "map:" EPIC_FIELDS(FIELD_NAMES),
      "shows how far an epic of a stage has come; with WAIT once all of it has ended, with LEFT "
      "once no more "
      "than n of its jobs are left to end, so that who pushes it stays no further ahead of the "
      "workers; says that it ends with push n (0: it is empty), that push n will not come, or that "
      "it can be forgotten; total is -1 before its end is known; held-by says why none of its jobs "
      "starts; with OF the producer says how many there will be, as far as it can tell: that is "
      "expected, -1 if it was not said; an epic's name is unique within its stage, and the "
      "stage's rights hold for it" },
    { "TAKE", 1, 0, ROLE_WORK, SCOPE_STAGES, true, MULTI_REFUSED, true, run_take,
      "stage [stage …] [COUNT n] [BATCH m] [WAIT ms] [LEASE ms] [DETACHED] [LEVEL n]",
      "array of jobs: id, token, stage, key, body, attempt, deadline-ms-left or -1, state or nil, "
      "lease-ms",
      "leases jobs: at most COUNT (1) in all, at most BATCH (1) of one channel, from the stages in "
      "the order of their names here; a lease ends after LEASE, unless there is a BEAT, and with "
      "the connection, unless it is DETACHED (then, and in stages with overlap never, it holds "
      "over a "
      "restart of the server); a connection has at most 20000 jobs that it has not ended; LEVEL "
      "tells whoever looks how many jobs this worker "
      "has at once, until it tells another" },
    { "DONE", 2, 0, ROLE_WORK, SCOPE_JOB, true, MULTI_CHECKED, false, run_done,
      "id token [RESULT r] [STATE s] "
      "[EMIT stage key body [ONCE name] [DELAY ms] [DEADLINE ms] [ATTEMPTS n]]…",
      "OK",
      "commits a job: result, the channel's new state (empty: none) and emitted jobs, all or "
      "nothing; repeated with the same token it answers as the first time" },
    { "FAIL", 3, 0, ROLE_WORK, SCOPE_JOB, true, MULTI_CHECKED, false, run_fail,
      "id token reason [RETRY ms | NEVER]", "OK",
      "counts a failed attempt; the job is tried again after its stage's backoff or after RETRY, "
      "or with NEVER is dead" },
    { "RELEASE", 2, 2, ROLE_WORK, SCOPE_JOB, true, MULTI_QUEUED, false, run_release, "id token",
      "OK", "gives a job back without counting an attempt" },
    { "BEAT", 2, 0, ROLE_WORK, SCOPE_LEASES, true, MULTI_QUEUED, false, run_beat,
      "id token [id token …]", "array of ids to stop, in the order they were asked about",
      "extends leases; those named in the answer are over, or their jobs are cancelled or "
      "expired" },
    { "JOB", 1, 0, ROLE_READ, SCOPE_JOB, false, MULTI_CHECKED, true, run_job, "id [BODY]",
      "map:" JOB_FIELDS(FIELD_NAMES) ", with BODY also body, or result if it is done",
      "shows a job; age-ms counts from its push, or from its end once it has ended; left-ms to its "
      "deadline, due-ms to its next start and running-ms from its last are -1 when there is none; "
      "worker is the id of the connection that has it, or 0" },
    { "JOBS", 1, 0, ROLE_READ, SCOPE_STAGE, false, MULTI_CHECKED, true, run_jobs,
      "stage [KEY k] [STATUS s] [FROM id] [COUNT n] | stage PARKED [FROM id] [COUNT n]",
      "array of maps as of JOB, each with its last "
      "reason",
      "lists jobs, at most 1000: running, waiting as they will start, delayed, dead, done, "
      "expired, "
      "cancelled, or of one status only; PARKED lists "
      "the first of each channel that may not start yet, or the dead one that halts it; FROM goes "
      "on behind that job" },
    { "DEAD", 0, 0, ROLE_READ, SCOPE_LIST, false, MULTI_CHECKED, true, run_dead,
      "[stage] [COUNT n] [FROM id]", "array of maps as of JOBS",
      "lists dead jobs, longest dead first, at most 1000; FROM goes on "
      "behind that job" },
    { "STAGES", 0, 0, ROLE_READ, SCOPE_LIST, false, MULTI_CHECKED, true, run_stages,
      "[COUNT n] [FROM name] | NAME name", "array of maps:" STAGE_FIELDS(FIELD_NAMES),
      "lists stages in the order they appeared, at most 1000; FROM goes on behind that one; "
      "NAME shows only one; of what was started and done since the server began, waits and runs "
      "are how many, waited-ms and ran-ms how long together; level is that of its workers, feeds "
      "the stages that its jobs were seen to emit to" },
    { "CHANNELS", 1, 0, ROLE_READ, SCOPE_STAGE, false, MULTI_CHECKED, true, run_channels,
      "stage [TOP n]", "array of maps:" CHANNEL_FIELDS(FIELD_NAMES),
      "lists the deepest channels of a stage, 10 unless told, at most 1000; those of one job are "
      "not listed" },
    { "WORKERS", 0, 0, ROLE_READ, SCOPE_LIST, false, MULTI_CHECKED, true, run_workers,
      "[COUNT n] [FROM id]", "array of maps:" WORKER_FIELDS(FIELD_NAMES),
      "lists the connections that have asked for work, at most 1000" },
    { "EPICS", 0, 0, ROLE_READ, SCOPE_LIST, false, MULTI_CHECKED, true, run_epics,
      "[STAGE stage] [COUNT n] [FROM 'stage name']", "array of maps: name, and as of EPIC",
      "lists epics, those of one stage or all, at most 1000; FROM goes on behind that one: one "
      "argument, stage and name with a space between them" },
    { "WHY", 1, 1, ROLE_READ, SCOPE_EITHER, false, MULTI_QUEUED, true, run_why, "stage | id",
      "a sentence",
      "tells what a stage or a job is waiting for, and the command that would change it" },
    { "RETRY", 1, 0, ROLE_ADMIN, SCOPE_JOBS, true, MULTI_CHECKED, true, run_retry,
      "id [id …] | STAGE stage DEAD [KEY k] [REASON text] [MAX n] [DRY]", "how many",
      "lets dead jobs live again: those named (an error if none of them can), or those of a stage "
      "whose key is k and whose last reason contains the text, at most MAX (1000): repeat it for "
      "more; DRY only counts" },
    { "DROP", 1, 0, ROLE_ADMIN, SCOPE_JOBS, true, MULTI_CHECKED, true, run_drop,
      "id [id …] | STAGE stage DEAD|WAITING [KEY k] [REASON text] [MAX n] [DRY]", "how many",
      "forgets jobs that are dead or have not started; otherwise as RETRY" },
    { "PAUSE", 1, 1, ROLE_ADMIN, SCOPE_STAGE, true, MULTI_QUEUED, false, run_pause, "stage", "OK",
      "the stage accepts jobs and starts none" },
    { "RESUME", 1, 1, ROLE_ADMIN, SCOPE_STAGE, true, MULTI_QUEUED, false, run_resume, "stage", "OK",
      "ends PAUSE and DRAIN" },
    { "DRAIN", 1, 1, ROLE_ADMIN, SCOPE_STAGE, true, MULTI_QUEUED, false, run_drain, "stage", "OK",
      "the stage finishes what it has and refuses pushes" },
    { "STAGE", 1, LIMIT_NAMES, ROLE_ADMIN, SCOPE_STAGE, false, MULTI_QUEUED, false, run_stage,
      "stage [REMOVE | name value …]",
      "OK, or without values a map of the policies and their values",
      "sets policies, all or none, or shows them; durations are milliseconds or carry a unit "
      "(30s); REMOVE forgets an empty stage with its policy and counters: one without jobs, "
      "results, once names, epics, states and waiting takes; an empty one with no policy of its "
      "own "
      "is forgotten by itself once its results are, or when there is no room for another" },
    { "AUTH", 1, 2, ROLE_UNAUTHENTICATED, SCOPE_NONE, false, MULTI_REFUSED, false, run_auth,
      "[user] secret", "OK", "says who this is; user is the name of a token, or default" },
    { "HELLO", 0, 0, ROLE_UNAUTHENTICATED, SCOPE_NONE, false, MULTI_REFUSED, false, run_hello,
      "[2|3] [AUTH user secret] [SETNAME name]", "map about the server", "chooses the protocol" },
    { "PING", 0, 1, ROLE_ANYBODY, SCOPE_NONE, false, MULTI_QUEUED, false, run_ping, "[text]",
      "PONG or the text", "asks whether anybody is there" },
    { "ECHO", 1, 1, ROLE_ANYBODY, SCOPE_NONE, false, MULTI_QUEUED, false, run_echo, "text",
      "the text", "says it back" },
    { "INFO", 0, LIMIT_NAMES, ROLE_ANYBODY, SCOPE_SERVER, false, MULTI_QUEUED, true, run_info,
      "[section …]", "lines of name:value", "tells how the server is" },
    { "COMMAND", 0, LIMIT_NAMES, ROLE_ANYBODY, SCOPE_NONE, false, MULTI_QUEUED, true, run_command,
      "[COUNT | DOCS [name …] | INFO [name …]]", "what was asked for",
      "tells what commands there are" },
    { "CLIENT", 1, 0, ROLE_ANYBODY, SCOPE_CLIENT, false, MULTI_QUEUED, false, run_client,
      "ID | GETNAME | SETNAME name | SETINFO name value | CANCELS ON|OFF | UNBLOCK id",
      "OK or the answer; UNBLOCK: 1 if that connection waited in TAKE, else 0",
      "about this connection; CANCELS ON has cancellations pushed to it (RESP3); UNBLOCK ends the "
      "wait of another one" },
    { "CONFIG", 1, LIMIT_NAMES, ROLE_ANYBODY, SCOPE_NONE, false, MULTI_QUEUED, false, run_config,
      "GET name [name …] | SET name value", "map of those that are known, * being all; OK",
      "shows what clients ask for (save, appendonly) and what can change while the server runs; "
      "SET changes that until it is restarted or reloaded: log-level is error, warn, info or "
      "debug, "
      "log-json is yes or no" },
    { "SELECT", 1, 1, ROLE_ANYBODY, SCOPE_NONE, false, MULTI_QUEUED, false, run_select, "0", "OK",
      "is there for clients that ask" },
    { "QUIT", 0, 0, ROLE_UNAUTHENTICATED, SCOPE_NONE, false, MULTI_RUN, false, run_quit, "", "OK",
      "ends the connection" },
    { "MULTI", 0, 0, ROLE_ANYBODY, SCOPE_NONE, false, MULTI_RUN, false, run_multi, "",
      "OK; then QUEUED for each command",
      "the commands that follow are queued until EXEC; one that is refused then aborts EXEC; those "
      "that may wait (TAKE, CALL, EPIC, ROOM, WAIT) are refused; at most 65536 commands, 32 MiB" },
    { "EXEC", 0, 0, ROLE_ANYBODY, SCOPE_NONE, false, MULTI_RUN, true, run_exec, "",
      "array of the replies; EXECABORT if one was refused: nothing was run",
      "runs what was queued, in order; it is not atomic: one that fails changes nothing about the "
      "others, and other clients may be served in between" },
    { "DISCARD", 0, 0, ROLE_ANYBODY, SCOPE_NONE, false, MULTI_RUN, false, run_discard, "", "OK",
      "forgets what was queued behind MULTI" },
    // Not documented: these say what to use instead.
    { .name = "WATCH", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "UNWATCH", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "LPUSH", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "RPUSH", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "LPOP", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "RPOP", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "BLPOP", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "BRPOP", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "LMOVE", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "BLMOVE", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "XADD", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "XREADGROUP", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "SUBSCRIBE", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "PUBLISH", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "SET", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "GET", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "DEL", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "EVAL", .in_multi = MULTI_CHECKED, .run = run_elsewhere },
    { .name = "POST", .role = ROLE_UNAUTHENTICATED, .in_multi = MULTI_CHECKED, .run = run_browser },
    { .name = "HOST:",
      .role = ROLE_UNAUTHENTICATED,
      .in_multi = MULTI_CHECKED,
      .run = run_browser },
    { 0 },
};
