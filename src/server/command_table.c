// All commands, one row each, in the order of docs/protocol.md.
#include "base/job_spec.h"
#include "base/reply_fields.h"
#include "server/command.h"

#define TEXT(number) #number
#define SECONDS(number) TEXT(number) " s"

#define NUMBERED_SYNTAX " [EPIC name n | SOURCE name n]"
#define PUSH_SYNTAX "stage body" PUSH_OPTIONS(OPTION_SYNTAX) NUMBERED_SYNTAX
#define CALL_SYNTAX                                                                                \
    "stage body" CALL_OPTIONS(OPTION_SYNTAX) ROOM_OPTION(OPTION_SYNTAX) NUMBERED_SYNTAX " [LATER]"

const struct command command_table[] = {
    { "PUSH", 2, 0, ROLE_PUSH, SCOPE_STAGE, true, MULTI_CHECKED, false, run_push, PUSH_SYNTAX,
      "id (of the first push, if it is a repeat)",
      "pushes a job; jobs of one KEY run one after another, in order; two pushes of one key "
      "with the same ONCE are one job; with LAST, that job gets the new body, deadline and META "
      "and "
      "keeps its id, if it has not started: a delayed one also gets the new delay, a waiting one "
      "keeps its place and ignores DELAY; if it was started or has ended, a new job is made and "
      "takes the name; DELAY and DEADLINE count from the receipt; ATTEMPTS is "
      "the number of attempts (0: the policy of the stage); META is handed to the worker beside "
      "the body, unchanged; with ROOM the command waits for "
      "room instead of failing with FULL; EPIC and SOURCE number the pushes of a stream into "
      "the stage, from 1, so that a repeated push makes no second job; a number that is 1024 "
      "or more above the first missing one is refused with GAP, so that after a crash no "
      "number below resume (see EPIC) is missing, and numbers that were sent but not answered "
      "can be pushed again; names of a SOURCE are separate for each token; a SOURCE that was "
      "not used for " SECONDS(SOURCE_LEAST_S) " may be removed, so a client may repeat a number "
                                              "for at most half of that time, and "
                                              "must then report that the outcome is unknown; epics "
                                              "are kept until DROP" },
    { "PUSHMANY", 4, 0, ROLE_PUSH, SCOPE_STAGE, true, MULTI_CHECKED, true, run_pushmany,
      "stage" PUSHMANY_OPTIONS(OPTION_SYNTAX) " [EPIC name n | SOURCE name n] ITEMS key body "
                                              "[key body …]",
      "array of ids, shorter than the items if one was refused",
      "pushes many jobs, in order; an empty key means no key; EPIC and SOURCE number them n, "
      "n+1, …; it stops at the first job that is refused, and fails if that is the first one" },
    { "CALL", 2, 0, ROLE_PUSH, SCOPE_STAGE, true, MULTI_REFUSED, false, run_call, CALL_SYNTAX,
      "the result; EXPIRED, CANCELLED or DEAD with the reason; with LATER the id",
      "pushes a job and waits for its result; the job is cancelled when no client waits for it "
      "any more; with LATER (RESP3) the command returns at once, and the end is sent as a push "
      "message: ended, id, and the reply that CALL would have had" },
    { "AWAIT", 1, 0, ROLE_PUSH, SCOPE_JOB, false, MULTI_CHECKED, true, run_await, "id [WAIT ms]",
      "as CALL; nil if the wait ends first",
      "waits until a job has ended and returns its outcome; a job of CALL is cancelled when no "
      "client waits for it any more, here too; a pushed job is not affected" },
    { "CANCEL", 1, 0, ROLE_PUSH, SCOPE_JOBS, true, MULTI_CHECKED, true, run_cancel,
      "id [id …] | STAGE stage [KEY k] [STATUS s] [MAX n] [DRY]",
      "the number of jobs that were cancelled: those that had ended do not count",
      "a waiting job will not start, a running one is asked to stop; the jobs with the given ids "
      "(an error if none is known), or those of a stage that have not ended, whose key is k and "
      "whose status is s (delayed, waiting, running), at most MAX (1000): repeat the command for "
      "more; DRY only counts" },
    { "EPIC", 2, 0, ROLE_PUSH, SCOPE_STAGE, false, MULTI_REFUSED, true, run_epic,
      "stage name [WAIT ms [LEFT n]] [OF n] | stage name END n | stage name SKIP n | stage name "
      "THEN stage key body | stage name CANCEL | stage name FORGET ms | stage name DROP",
      "map:" EPIC_FIELDS(FIELD_NAMES),
      "shows the progress of an epic; with WAIT it waits until all jobs have ended, with LEFT "
      "until at most n jobs have not ended, so that a producer stays at most n jobs ahead of "
      "the workers; END declares that the last number is n (0: the epic is empty), SKIP that "
      "number n will not be pushed; THEN pushes a job when the epic ends (all numbers up to n were "
      "pushed or skipped, and all jobs have ended, in whatever way), in the commit that ends it "
      "and once, even if dead jobs are retried later, whatever the limits of that stage; it needs "
      "the rights for that stage when it is said, a body of at most 4096 bytes, and a key (empty: "
      "none); a second THEN replaces the first until the epic ends; if it has ended already, the "
      "job is pushed at once; CANCEL cancels all its jobs that have not ended (many of them by and "
      "by: WAIT waits for that), refuses all further numbers with CANCELLED, and so ends it; "
      "FORGET "
      "drops it ms after its end, or after FORGET if that is later (at least 1000; 0: it is kept); "
      "DROP removes the epic, and pushes nothing; total is -1 until END; held-by is "
      "the reason why none of its jobs starts; OF sets the number of jobs that the producer "
      "expects (-1 if it was not set); the name of an epic is unique within its stage, and "
      "needs the rights for that stage" },
    { "SCHEDULE", 2, 0, ROLE_PUSH, SCOPE_STAGE, false, MULTI_QUEUED, false, run_schedule,
      "stage name CRON expr|EVERY ms [TZ zone] [MISSED skip|one|all] PUSH body" SCHEDULE_OPTIONS(
          OPTION_SYNTAX) " [DRY] | stage name DROP|PAUSE|RESUME|NOW | stage name [BODY]",
      "OK, or the last a map:" SCHEDULE_FIELDS(FIELD_NAMES) ", with BODY also body",
      "pushes a job whenever a cron expression (five fields, or @hourly, @daily, @weekly, "
      "@monthly, "
      "@yearly) or an interval of at least 1 s says so; CRON names local times of the zone TZ "
      "(UTC): "
      "one that occurs twice because the clock is set back counts once, one that is left out "
      "counts at the moment of the change; an expression for every hour goes by elapsed time; a "
      "tick is pushed once, also over a crash, whatever the limits of the stage; ticks that are "
      "more than a minute late, because the server was down or the clock was changed, are missed: "
      "skip (the default) pushes none of them, one the last one, all each of them, the last 1000 "
      "at most; a second SCHEDULE of that name replaces it; the schedule keeps its next tick if "
      "its times "
      "are the same; DRY only checks it; NOW pushes a job at once, beside its ticks; after PAUSE "
      "there are no ticks, "
      "and RESUME does not make up for them; the name is unique within the stage" },
    { "TAKE", 1, 0, ROLE_WORK, SCOPE_STAGES, true, MULTI_REFUSED, true, run_take,
      "stage [stage …] [COUNT n] [BATCH m] [WAIT ms] [LEASE ms] [DETACHED] [SLOTS n]",
      "array of jobs: id" GRANT_OTHER_FIELDS(FIELD_LIST),
      "leases jobs: at most COUNT (1) in all, at most BATCH (1) of one channel, from the "
      "stages in the order given; a lease ends after LEASE, unless BEAT extends it, and with "
      "the connection, unless it is DETACHED (a DETACHED lease, and one in a stage with "
      "overlap never, is kept over a restart of the server); a connection may hold at most "
      "20000 jobs; SLOTS reports how many jobs this worker runs at once, for STAGES, WORKERS "
      "and the page" },
    { "DONE", 2, 0, ROLE_WORK, SCOPE_JOB, true, MULTI_CHECKED, false, run_done,
      "id token [RESULT r] [STATE s] [EMIT stage key body" EMIT_OPTIONS(OPTION_SYNTAX) "]…", "OK",
      "commits a job: its result, the new state of its channel (empty: none) and emitted jobs, "
      "all or nothing; if it is repeated with the same token the reply is the same" },
    { "DONEMANY", 2, 2 * TAKE_MOST, ROLE_WORK, SCOPE_LEASES, true, MULTI_QUEUED, true, run_donemany,
      "id token [id token …]", "array: OK or an error for each job",
      "commits up to 1000 jobs without results, states and emits, each by itself, in the order "
      "given" },
    { "FAIL", 3, 0, ROLE_WORK, SCOPE_JOB, true, MULTI_CHECKED, false, run_fail,
      "id token reason [RETRY ms | NEVER] [OUTPUT text]", "OK",
      "counts a failed attempt; the job is tried again after the backoff of its stage or after "
      "RETRY; with NEVER it is dead; OUTPUT is what the worker has printed: the last 4 KiB are "
      "kept with the reason, of the latest three attempts" },
    { "RELEASE", 2, 0, ROLE_WORK, SCOPE_JOB, true, MULTI_CHECKED, false, run_release,
      "id token [DELAY ms]", "OK",
      "gives a job back without counting an attempt; it keeps its place; with DELAY its channel "
      "waits that long, also over a restart of the server" },
    { "BEAT", 2, 0, ROLE_WORK, SCOPE_LEASES, true, MULTI_QUEUED, false, run_beat,
      "id token [id token …]", "array of the ids to stop, in the order given",
      "extends leases; a job in the reply has lost its lease, or was cancelled or has expired" },
    { "PROGRESS", 4, 0, ROLE_WORK, SCOPE_JOB, true, MULTI_CHECKED, false, run_progress,
      "id token done total [SAY text]", "as BEAT: array with the id if the job must stop",
      "extends the lease as BEAT does, and says how far the job is: done of total (0: not known), "
      "and a text, of which 200 bytes are kept; JOB and JOBS show it while the lease lasts; it is "
      "kept in memory only" },
    { "LEVEL", 1, 1, ROLE_WORK, SCOPE_STAGE, false, MULTI_CHECKED, false, run_level, "stage",
      "integer: how many jobs of the stage this client should run at once",
      "learned by the server from the jobs that the client ends; a client is its token and its "
      "name (CLIENT SETNAME, or HELLO with SETNAME), which must be unique to a process; the client "
      "must take all its jobs on one connection, because jobs in flight are counted for each, and "
      "may end them and ask on others; to be asked several times a second, and obeyed; it begins "
      "at 2, and the server tries other levels now and then, up to 4096; it is kept in memory "
      "only" },
    { "JOB", 1, 0, ROLE_READ, SCOPE_JOB, false, MULTI_CHECKED, true, run_job, "id [BODY]",
      "map:" JOB_FIELDS(FIELD_NAMES) ", with BODY also body, or result if it is done, and meta "
                                     "if it has META",
      "shows a job; left-ms, due-ms and running-ms are -1 if there is no deadline, if it may "
      "start now, and if it is not running" },
    { "JOBS", 1, 0, ROLE_READ, SCOPE_STAGE, false, MULTI_CHECKED, true, run_jobs,
      "stage [KEY k] [STATUS s] [FROM id] [COUNT n] | stage PARKED [FROM id] [COUNT n]",
      "array of maps as of JOB, each with its last reason",
      "lists jobs, at most 1000: running, waiting in the order in which they will start, "
      "delayed, dead, done, expired, cancelled, or only one status; PARKED lists the first job "
      "of each channel that may not start yet, or the dead job that halts it; FROM continues "
      "after that job" },
    { "DEAD", 0, 0, ROLE_READ, SCOPE_LIST, false, MULTI_CHECKED, true, run_dead,
      "[stage] [COUNT n] [FROM id]", "array of maps as of JOBS",
      "lists dead jobs, the longest dead first, at most 1000; FROM continues after that job" },
    { "STAGES", 0, 0, ROLE_READ, SCOPE_LIST, false, MULTI_CHECKED, true, run_stages,
      "[COUNT n] [FROM name] | NAME name", "array of maps:" STAGE_FIELDS(FIELD_NAMES),
      "lists stages in the order in which they were made, at most 1000; FROM continues after "
      "that stage; NAME shows only one" },
    { "CHANNELS", 1, 0, ROLE_READ, SCOPE_STAGE, false, MULTI_CHECKED, true, run_channels,
      "stage [TOP n] [GROUPS]",
      "array of maps:" CHANNEL_FIELDS(FIELD_NAMES) "; with GROUPS:" GROUP_FIELDS(FIELD_NAMES),
      "lists the channels of a stage with the most jobs, 10 by default, at most 1000, or with "
      "GROUPS its groups (STAGE stage group on); those with one job are not listed" },
    { "WORKERS", 0, 0, ROLE_READ, SCOPE_LIST, false, MULTI_CHECKED, true, run_workers,
      "[COUNT n] [FROM id]", "array of maps:" WORKER_FIELDS(FIELD_NAMES),
      "lists the connections that take jobs, at most 1000" },
    { "EPICS", 0, 0, ROLE_READ, SCOPE_LIST, false, MULTI_CHECKED, true, run_epics,
      "[STAGE stage] [COUNT n] [FROM 'stage name']", "array of maps: name, and as of EPIC",
      "lists the epics of one stage or of all, at most 1000; FROM continues after that epic: "
      "one argument, stage and name with a space between them" },
    { "SCHEDULES", 0, 0, ROLE_READ, SCOPE_LIST, false, MULTI_CHECKED, true, run_schedules,
      "[stage] [COUNT n] [FROM 'stage name']", "array of maps:" SCHEDULE_FIELDS(FIELD_NAMES),
      "lists the schedules of one stage or of all, at most 1000; FROM continues after that "
      "schedule, as in EPICS" },
    { "WHY", 1, 1, ROLE_READ, SCOPE_EITHER, false, MULTI_QUEUED, true, run_why, "stage | id",
      "a sentence", "says why a stage or a job waits, with the command that changes it" },
    { "RETRY", 1, 0, ROLE_ADMIN, SCOPE_JOBS, true, MULTI_CHECKED, true, run_retry,
      "id [id …] | STAGE stage DEAD [KEY k] [REASON text] [MAX n] [DRY]", "the number of jobs",
      "queues dead jobs again: those with the given ids (an error if none can be retried), or "
      "those of a stage whose key is k and whose last reason contains the text, at most MAX "
      "(1000): repeat the command for more; DRY only counts" },
    { "DROP", 1, 0, ROLE_ADMIN, SCOPE_JOBS, true, MULTI_CHECKED, true, run_drop,
      "id [id …] | STAGE stage DEAD|WAITING [KEY k] [REASON text] [MAX n] [DRY]",
      "the number of jobs", "deletes jobs that are dead or have not started; otherwise as RETRY" },
    { "DUE", 1, 1, ROLE_ADMIN, SCOPE_JOB, true, MULTI_QUEUED, false, run_due, "id",
      "1 if the job was made due, 0 if nothing had delayed it",
      "a job that is delayed, or waits after a failed attempt or a RELEASE, may start now" },
    { "PAUSE", 1, 0, ROLE_ADMIN, SCOPE_STAGE, true, MULTI_CHECKED, false, run_pause,
      "stage [KEY k]", "OK",
      "the stage accepts jobs and starts none; with KEY that holds for the jobs of this key only, "
      "at most 1000 keys of a stage" },
    { "RESUME", 1, 0, ROLE_ADMIN, SCOPE_STAGE, true, MULTI_CHECKED, false, run_resume,
      "stage [KEY k]", "OK",
      "ends PAUSE and DRAIN of the stage; with KEY it ends PAUSE of the key" },
    { "DRAIN", 1, 1, ROLE_ADMIN, SCOPE_STAGE, true, MULTI_QUEUED, false, run_drain, "stage", "OK",
      "the stage runs the jobs that it has and refuses pushes" },
    { "STAGE", 1, LIMIT_NAMES, ROLE_ADMIN, SCOPE_STAGE, false, MULTI_QUEUED, false, run_stage,
      "stage [REMOVE | name value …]",
      "OK, or without values a map of the policies and their values",
      "sets policies, all or none, or shows them; durations are milliseconds or have a unit "
      "(30s); REMOVE removes an empty stage with its policy and counters: one without jobs, "
      "results, once names, epics, schedules, states and waiting takes; an empty stage without "
      "policies "
      "of its own is removed automatically when its results are removed, or to make room for "
      "another stage" },
    { "BACKUP", 1, 3, ROLE_ADMIN, SCOPE_SHARD, false, MULTI_REFUSED, true, run_backup,
      "BEGIN | shard position [HEADS] | END",
      "BEGIN: array of arrays: shard, first position, end, bytes of a segment; shard: bytes; END: "
      "OK",
      "for millrace store copy millrace://...: reads the logs of all shards up to where they ended "
      "when the backup began, at one instant; meanwhile no log is shortened, unless there is no "
      "room left; one backup at a time, which ends with its connection; of a cluster the store "
      "itself is copied" },
    { "AUTH", 1, 2, ROLE_UNAUTHENTICATED, SCOPE_NONE, false, MULTI_REFUSED, false, run_auth,
      "[user] secret", "OK",
      "authenticates the connection; user is the name of a token, or default" },
    { "HELLO", 0, 0, ROLE_UNAUTHENTICATED, SCOPE_NONE, false, MULTI_REFUSED, false, run_hello,
      "[2|3] [AUTH user secret] [SETNAME name]", "map about the server", "selects the protocol" },
    { "LINK", 5, 5, ROLE_UNAUTHENTICATED, SCOPE_NONE, false, MULTI_REFUSED, false, run_link,
      "secret version cluster shards node", "OK", NULL },
    { "CLUSTER", 1, 3, ROLE_ANY, SCOPE_NONE, false, MULTI_QUEUED, false, run_cluster,
      "STATUS | SLOTS | SHARDS | NODES | INFO | MYID | KEYSLOT stage | DRAIN node | MOVE shard "
      "node|ANY",
      "STATUS: map:" CLUSTER_FIELDS(FIELD_NAMES) "; DRAIN, MOVE: OK; the others as in Redis",
      "shows and changes which node of a cluster owns which shards; SLOTS, SHARDS and NODES are "
      "for clients that send commands to the owner of their stage, which any other node does for "
      "them, too; a node is named by its address or id; after DRAIN all shards of that node go to "
      "others, until it is restarted; MOVE makes a node the owner of a shard while it is there, "
      "and with ANY the cluster chooses again; STATUS needs the role read, DRAIN and MOVE need "
      "admin and are done "
      "within seconds: see STATUS" },
    { "PING", 0, 1, ROLE_ANY, SCOPE_NONE, false, MULTI_QUEUED, false, run_ping, "[text]",
      "PONG or the text", "tests the connection" },
    { "ECHO", 1, 1, ROLE_ANY, SCOPE_NONE, false, MULTI_QUEUED, false, run_echo, "text", "the text",
      "returns the text" },
    { "INFO", 0, LIMIT_NAMES, ROLE_ANY, SCOPE_SERVER, false, MULTI_QUEUED, true, run_info,
      "[section …]", "lines of name:value", "shows statistics of the server" },
    { "COMMAND", 0, LIMIT_NAMES, ROLE_ANY, SCOPE_NONE, false, MULTI_QUEUED, true, run_command,
      "[COUNT | DOCS [name …] | INFO [name …]]", "array, map or number", "describes the commands" },
    { "CLIENT", 1, 0, ROLE_ANY, SCOPE_CLIENT, false, MULTI_QUEUED, false, run_client,
      "ID | GETNAME | SETNAME name | SETINFO name value | CANCELS ON|OFF | UNBLOCK id",
      "OK or the value; UNBLOCK: 1 if that connection waited in TAKE, else 0",
      "settings of this connection; after CANCELS ON cancellations are sent as push messages "
      "(RESP3); UNBLOCK ends the wait of another connection" },
    { "CONFIG", 1, LIMIT_NAMES, ROLE_ANY, SCOPE_NONE, false, MULTI_QUEUED, false, run_config,
      "GET name [name …] | SET name value", "map of the known ones, * for all; OK",
      "shows options that Redis clients ask for (save, appendonly) and options that can be "
      "changed at run time; SET changes one until the next restart or reload: log-level is "
      "error, warn, info or debug, log-json is yes or no" },
    { "SELECT", 1, 1, ROLE_ANY, SCOPE_NONE, false, MULTI_QUEUED, false, run_select, "0", "OK",
      "does nothing; for clients that send it" },
    { "QUIT", 0, 0, ROLE_UNAUTHENTICATED, SCOPE_NONE, false, MULTI_RUN, false, run_quit, "", "OK",
      "closes the connection" },
    { "MULTI", 0, 0, ROLE_ANY, SCOPE_NONE, false, MULTI_RUN, false, run_multi, "",
      "OK; then QUEUED for each command",
      "queues the commands that follow until EXEC; if one of them is refused, EXEC fails; "
      "commands that may wait (TAKE, CALL, EPIC, ROOM, WAIT) are refused; at most 65536 "
      "commands, 32 MiB" },
    { "EXEC", 0, 0, ROLE_ANY, SCOPE_NONE, false, MULTI_RUN, true, run_exec, "",
      "array of the replies; EXECABORT if one was refused: none was run",
      "runs the queued commands in order; not atomic: if one fails the others still run, and "
      "commands of other clients may run in between" },
    { "DISCARD", 0, 0, ROLE_ANY, SCOPE_NONE, false, MULTI_RUN, false, run_discard, "", "OK",
      "discards the queued commands" },
    // Not documented: the reply names the command to use instead.
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
