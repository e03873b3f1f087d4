// Rows of the commands that hand work in and ask what has become of it.
#include "cli/table.h"

#define JOB_OPTIONS                                                                                \
    { "--key", "K", "jobs with the same key run one after another" },                              \
        { "--once", "NAME", "a second push of that name makes no second job" },                    \
        { "--delay", "D", "do not start it before: 250ms, 30s, 5m, 2h, 7d" },                      \
        { "--deadline", "D", "do not start it later, and stop it then" },                          \
        { "--attempts", "N", "how many attempts it has (0: as the stage says)" }, {                \
        "--room", "D", "wait so long if a limit is reached"                                        \
    }

const struct command jobs_commands[] = {
    {
        .name = "push",
        .arguments = "STAGE [BODY | FILE]",
        .least = 1,
        .most = 2,
        .doc = "hand in a job, or one for each line",
        .help = "Hands in a job and prints its id. BODY - or none reads stdin.\n"
                "\n"
                "With --lines, each line of FILE (or of stdin) is a job. It is read as fast as\n"
                "the engine has room, however long it is. A server that restarts is waited for,\n"
                "for 30 seconds, and no line is pushed twice. Lines in which no key is found are\n"
                "reported and counted.\n"
                "\n"
                "With --epic, the engine remembers how far it has come: the same command run\n"
                "again, after an interruption or a crash, goes on where it stopped and pushes\n"
                "nothing twice; millrace epic STAGE NAME shows how far they are done. Lines are\n"
                "only as fast as they are worked off, with 1,024 jobs (or 64 MiB) there at most;\n"
                "while no worker takes them it waits, and says so. (With --at file:DIR no worker\n"
                "could run meanwhile: all are pushed.) If lines that were pushed before have\n"
                "changed, it refuses; for that a small file is kept in ~/.local/state/millrace.\n"
                "\n"
                "Exits 5 if a limit is reached and --room did not help (with --lines it waits for\n"
                "ever without --room; with --epic that counts waiting for workers, too), 130 if\n"
                "interrupted.\n",
        .examples = "millrace push mail 'to: ann' --key ann\n"
                    "tar c photos | millrace push backup\n"
                    "millrace push mail --lines letters.jsonl --key-json to --epic june\n"
                    "    one job a line; letters to one address stay in order\n",
        .options = { { "--lines", NULL, "a job for each line" },
                     { "--epic", "NAME", "with --lines: go on where it stopped" },
                     { "--key-field", "N", "the key is the Nth word of the line" },
                     { "--key-regex", "RE", "it is what RE finds, or its first group" },
                     { "--key-json", "NAME", "the line is JSON, the key its member NAME" },
                     { "--delimiter", "C", "what ends a line, not a newline" },
                     { "-0", NULL, "lines end with a 0 byte, as find -print0 has them" },
                     JOB_OPTIONS,
                     AT,
                     JSON },
        .run = push_run,
    },
    {
        .name = "call",
        .arguments = "STAGE [BODY]",
        .least = 1,
        .most = 2,
        .doc = "hand in a job and wait for its result",
        .help = "Hands in a job, waits until it has ended and writes its result to stdout. The\n"
                "job lives as long as somebody waits: after Ctrl-C it will not be started, and if\n"
                "it runs already it is told to stop. BODY - or none reads stdin.\n"
                "\n"
                "There has to be a server: file:DIR and mem: would wait for nobody. Exits 1 if it\n"
                "died (the reason is told) or was cancelled, 124 if its deadline came first.\n",
        .examples = "millrace call resize --deadline 5s <big.jpg >small.jpg\n",
        .options = { JOB_OPTIONS, AT, JSON },
        .run = call_run,
    },
    {
        .name = "await",
        .arguments = "ID",
        .least = 1,
        .most = 1,
        .doc = "wait for a job's end and write its result",
        .help = "Exits as millrace call does, and with 124 if --wait ends first. Unlike call it\n"
                "takes nothing away when it is interrupted.\n",
        .examples = "id=$(millrace push resize <big.jpg)\n"
                    "millrace await $id --wait 1m >small.jpg\n",
        .options = { { "--wait", "D", "not longer than: 30s, 5m (for ever)" }, AT, JSON },
        .run = await_run,
    },
    {
        .name = "cancel",
        .arguments = "ID",
        .least = 1,
        .most = 1,
        .doc = "take a job back",
        .help = "A waiting job will not be started. A running one is told to stop, and nothing it\n"
                "does from now on is recorded. Exits 1 if it had ended already.\n",
        .examples = "millrace cancel 4711\n",
        .options = { AT, JSON },
        .run = cancel_run,
    },
    {
        .name = "job",
        .arguments = "ID",
        .least = 1,
        .most = 1,
        .doc = "show a job",
        .help = "Shows where it stands, its attempts and why they failed. Its age counts from\n"
                "its push, or from its end once it has ended.\n",
        .examples = "millrace job 4711\n"
                    "millrace job 4711 --body --json | jq -r .body\n",
        .options = { { "--body", NULL, "also its body, or its result if it is done" }, AT, JSON },
        .run = job_run,
    },
    {
        .name = "jobs",
        .arguments = "STAGE",
        .least = 1,
        .most = 1,
        .doc = "list the jobs of a stage",
        .help = "Running ones first, then those that wait in the order they will start, delayed\n"
                "ones, dead ones, and those that have ended and are still kept.\n",
        .examples = "millrace jobs mail --key ann\n"
                    "millrace jobs mail --status dead --top 10\n",
        .options = { { "--key", "K", "only of this key, and not ended yet" },
                     { "--status", "S", "delayed waiting running done dead expired cancelled" },
                     { "--top", "N", "at most so many (50; 1000 at most)" },
                     { "--from", "ID", "those behind this job in the list" },
                     AT,
                     JSON },
        .run = jobs_run,
    },
    {
        .name = "epic",
        .arguments = "STAGE NAME",
        .least = 2,
        .most = 2,
        .doc = "show how far an epic of a stage has come",
        .help = "An epic is what push STAGE --lines --epic NAME has pushed. With --wait, waits\n"
                "until all of it was pushed and has ended, and exits 1 if any job died, 124 if\n"
                "the time was too short; on a terminal a bar shows how it gets on. held-by says\n"
                "why none of its jobs starts, as millrace stages does.\n"
                "\n"
                "The engine remembers an epic until it is dropped, also when it is over: so its\n"
                "numbers are never taken twice. Its jobs are kept as long as their stage's\n"
                "retention says, dead ones until they are retried or dropped; they stay where\n"
                "they are when it is dropped. A number that is skipped counts as pushed, without\n"
                "a job.\n",
        .examples = "millrace epic mail june\n"
                    "millrace epic mail june --wait 2h && millrace epic mail june --drop\n"
                    "millrace epic mail june --skip 17\n"
                    "    line 17 cannot be pushed: the same push then goes on with line 18\n",
        .options = { { "--wait", "D", "until it is over, not longer than: 30s, 5m, 2h" },
                     { "--skip", "N", "number N will not be pushed" },
                     { "--drop", NULL, "forget it: its name can then be used anew" },
                     AT,
                     JSON },
        .run = epic_run,
    },
    {
        .name = "bench",
        .arguments = "",
        .doc = "put load on an engine and measure",
        .help = "Producers push jobs into the stage millrace-bench as fast as they can, workers\n"
                "take and end them; told is how many a second, and how long a job took from its\n"
                "push to its start. Each is a connection, all in this one process: to load a\n"
                "large server, start several. --at mem: measures the engine without a network.\n",
        .examples = "millrace bench\n"
                    "millrace bench --at mem: --jobs 1000000 --keys 1000\n"
                    "millrace bench --workers 0\n"
                    "    only pushes; they are dropped afterwards\n",
        .options = { { "--jobs", "N", "how many (100000)" },
                     { "--body", "N", "bytes of each (256)" },
                     { "--keys", "N", "so many keys, in turn; 0 (default): none" },
                     { "--window", "N", "pushes on their way, of each producer (256)" },
                     { "--producers", "N", "connections that push (1)" },
                     { "--workers", "N", "connections that take (1)" },
                     AT,
                     JSON },
        .run = bench_run,
    },
    { 0 },
};
