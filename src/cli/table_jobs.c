// Rows of the commands that push jobs and show their outcome.
#include "base/job_spec.h"
#include "cli/table.h"

#define OF_PUSH(member, kind, word, value, name, argument, most, about)                            \
    { "--" name, argument, about },

const struct cli_command jobs_commands[] = {
    {
        .name = "push",
        .arguments = "STAGE [BODY | FILE]",
        .least = 1,
        .most = 2,
        .doc = "push a job, or one for each line",
        .help = "Pushes a job and prints its id. Without BODY, or with -, the body is read from\n"
                "stdin.\n"
                "\n"
                "With --lines, each line of FILE (or of stdin) is a job. Lines are read only as\n"
                "fast as the engine has room for them, so the file may have any length. If the\n"
                "server restarts, the command waits for it for 30 seconds; no line is pushed\n"
                "twice. Lines without a key are reported and counted.\n"
                "\n"
                "With --epic, the engine stores how many lines were pushed: if the same command\n"
                "is run again, after an interruption or a crash, it continues where it stopped\n"
                "and pushes no line twice; millrace epic STAGE NAME shows the progress. At most\n"
                "1,024 jobs (or 64 MiB) wait at any time: the command reads no further until\n"
                "workers have ended some, and says so if there is no worker. (With --at file:DIR\n"
                "there can be no worker meanwhile, so all lines are pushed.) If lines that were\n"
                "already pushed have changed, the command refuses to continue; a small file in\n"
                "~/.local/state/millrace is kept for this check.\n"
                "\n"
                "Exits 5 if a limit is reached and --room has passed (with --lines it waits for\n"
                "ever without --room; with --epic the wait for workers counts, too), 130 if\n"
                "interrupted.\n",
        .examples = "millrace push mail 'to: ann' --key ann\n"
                    "tar c photos | millrace push backup\n"
                    "millrace push mail --lines letters.jsonl --key-json to --epic june\n"
                    "    one job a line; letters to one address stay in order\n",
        .options = { { "--lines", NULL, "a job for each line" },
                     { "--epic", "NAME", "with --lines: continue where it stopped" },
                     { "--key-field", "N", "the key is the Nth word of the line" },
                     { "--key-regex", "RE", "the key is what RE matches, or its first group" },
                     { "--key-json", "NAME", "the key is the member NAME of a JSON line" },
                     { "--delimiter", "C", "lines end with this character, not a newline" },
                     { "-0", NULL, "lines end with a 0 byte, as of find -print0" },
                     PUSH_OPTIONS(OF_PUSH) //
                     AT,
                     JSON },
        .run = push_run,
    },
    {
        .name = "call",
        .arguments = "STAGE [BODY]",
        .least = 1,
        .most = 2,
        .doc = "push a job and wait for its result",
        .help = "Pushes a job, waits until it has ended and writes its result to stdout. The job\n"
                "is cancelled when the caller no longer waits: after Ctrl-C it is not started, or\n"
                "is asked to stop if it is running. Without BODY, or with -, the body is read\n"
                "from stdin.\n"
                "\n"
                "This needs a server: with file:DIR and mem: there would be no worker. Exits 1 if\n"
                "the job died (the reason is printed) or was cancelled, 124 if its deadline has\n"
                "passed.\n",
        .examples = "millrace call resize --deadline 5s <big.jpg >small.jpg\n",
        .options = { CALL_OPTIONS(OF_PUSH) ROOM_OPTION(OF_PUSH) AT, JSON },
        .run = call_run,
    },
    {
        .name = "await",
        .arguments = "ID",
        .least = 1,
        .most = 1,
        .doc = "wait for a job to end and print its result",
        .help = "Exits as millrace call does, and with 124 if --wait has passed. Unlike call it\n"
                "does not cancel the job when it is interrupted.\n",
        .examples = "id=$(millrace push resize <big.jpg)\n"
                    "millrace await $id --wait 1m >small.jpg\n",
        .options = { { "--wait", "D", "wait at most: 30s, 5m (for ever)" }, AT, JSON },
        .run = await_run,
    },
    {
        .name = "cancel",
        .arguments = "ID | STAGE --all",
        .least = 1,
        .most = 1,
        .doc = "cancel a job, or jobs of a stage",
        .help = "A waiting job will not be started. A running job is asked to stop, and its\n"
                "result is not recorded. Exits 1 if the job had already ended.\n"
                "\n"
                "With --all, or an option that narrows them down, cancels the jobs of a stage\n"
                "that have not ended, and prints the number. Jobs that are dead have ended:\n"
                "millrace drop deletes them.\n",
        .examples = "millrace cancel 4711\n"
                    "millrace cancel mail --key ann --status waiting --dry-run\n",
        .options = { { "--key", "K", "the jobs of STAGE with this key" },
                     { "--status", "S", "those that are delayed, waiting or running" },
                     { "--max", "N", "at most N jobs" },
                     { "--all", NULL, "all jobs of STAGE that have not ended" },
                     { "--dry-run", NULL, "only count the jobs" },
                     AT,
                     JSON },
        .run = cancel_run,
    },
    {
        .name = "job",
        .arguments = "ID",
        .least = 1,
        .most = 1,
        .doc = "show a job",
        .help = "Shows the status of a job, its attempts and why they failed. Its age counts from\n"
                "its push, or from its end once it has ended.\n",
        .examples = "millrace job 4711\n"
                    "millrace job 4711 --body --json | jq -r .body\n",
        .options = { { "--body", NULL, "show its body, or its result if it is done" }, AT, JSON },
        .run = job_run,
    },
    {
        .name = "jobs",
        .arguments = "STAGE",
        .least = 1,
        .most = 1,
        .doc = "list the jobs of a stage",
        .help = "Running jobs first, then waiting ones in the order in which they will start,\n"
                "delayed ones, dead ones, and ended ones that are still kept.\n",
        .examples = "millrace jobs mail --key ann\n"
                    "millrace jobs mail --status dead --top 10\n",
        .options = { { "--key", "K", "only jobs of this key that have not ended" },
                     { "--status", "S", "delayed waiting running done dead expired cancelled" },
                     { "--top", "N", "number of rows (50; 1000 at most)" },
                     { "--from", "ID", "continue the list after this job" },
                     AT,
                     JSON },
        .run = jobs_run,
    },
    {
        .name = "epic",
        .arguments = "STAGE NAME",
        .least = 2,
        .most = 2,
        .doc = "show the progress of an epic",
        .help = "An epic is a file that push STAGE --lines --epic NAME pushes. With --wait, waits\n"
                "until all of it is pushed and has ended; exits 1 if any job died, 124 if the\n"
                "time has passed; on a terminal it shows a progress bar. held-by is the reason\n"
                "why none of its jobs starts, as in millrace stages.\n"
                "\n"
                "The engine keeps the numbers of an epic until it is dropped, also after its end,\n"
                "so that no number is used twice. Its jobs are kept as the stage's retention\n"
                "says, dead ones until they are retried or dropped; dropping the epic does not\n"
                "change its jobs. A number that is skipped counts as pushed, without a job.\n"
                "\n"
                "With --then, a job is pushed when the epic ends: all of it is pushed and has\n"
                "ended, in whatever way. It is pushed once, over any crash, and not again when\n"
                "dead jobs are retried. KEY is - for a job without a key. --cancel cancels all of\n"
                "its jobs that have not ended and refuses more; that ends it, too. --forget drops\n"
                "it by itself, so long after its end (at least 1s; 0 keeps it).\n",
        .examples = "millrace epic mail june\n"
                    "millrace epic mail june --wait 2h && millrace epic mail june --drop\n"
                    "millrace epic mail june --skip 17\n"
                    "    skips line 17: the same push then continues with line 18\n"
                    "millrace epic mail june --then 'report - june is sent'\n"
                    "    pushes a job to the stage report when all of june has ended\n"
                    "millrace epic mail june --forget 7d\n",
        .options = { { "--wait", "D", "wait for its end, at most: 30s, 5m, 2h" },
                     { "--skip", "N", "number N will not be pushed" },
                     { "--then", "JOB", "push 'STAGE KEY BODY' when it ends" },
                     { "--cancel", NULL, "cancel its jobs, and refuse more" },
                     { "--forget", "D", "drop it so long after its end; 0: never" },
                     { "--drop", NULL, "remove it: its name can then be used again" },
                     AT,
                     JSON },
        .run = epic_run,
    },
    {
        .name = "bench",
        .arguments = "",
        .doc = "measure the speed of an engine",
        .help = "Producers push jobs into the stage millrace-bench as fast as they can; workers\n"
                "take and end them. Prints jobs per second, and the time from push to start. Each\n"
                "producer and worker is a connection of this one process: to load a large server,\n"
                "start several. --at mem: measures the engine without a network.\n",
        .examples = "millrace bench\n"
                    "millrace bench --at mem: --jobs 1000000 --keys 1000\n"
                    "millrace bench --workers 0\n"
                    "    only pushes; the jobs are dropped afterwards\n",
        .options = { { "--jobs", "N", "number of jobs (100000)" },
                     { "--body", "N", "bytes of each body (256)" },
                     { "--keys", "N", "number of keys, used in turn; 0 (default): none" },
                     { "--window", "N", "unanswered pushes of each producer (256)" },
                     { "--producers", "N", "connections that push (1)" },
                     { "--workers", "N", "connections that take (1)" },
                     AT,
                     JSON },
        .run = bench_run,
    },
    { 0 },
};
