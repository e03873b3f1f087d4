// Rows of the commands that show and change stages and jobs.
#include "base/job_spec.h"
#include "cli/table.h"

#define TOP                                                                                        \
    { "--top", "N", "number of rows (50; 1000 at most)" }

#define BULK_OPTIONS                                                                               \
    { "--key", "K", "only jobs of this key" },                                                     \
        { "--reason", "TEXT", "only jobs whose last reason contains TEXT" },                       \
        { "--max", "N", "at most N jobs" }, {                                                      \
        "--dry-run", NULL, "only count the jobs"                                                   \
    }

#define OF_SCHEDULE(member, kind, word, value, name, argument, most, about)                        \
    { "--" name, argument, about },

const struct cli_command looks_commands[] = {
    {
        .name = "top",
        .arguments = "",
        .doc = "show the stages live on the terminal",
        .help = "Shows, once a second, waiting, running and dead jobs of each stage, the age of\n"
                "the oldest job, rates with their history, and why jobs wait. Keys: arrows (or j,\n"
                "k) select a stage, Enter opens it (its keys and workers, and why it waits), Esc\n"
                "goes back, s sorts, p pauses, r resumes, q quits. If the server cannot be\n"
                "reached it waits for it. Without a terminal it is the same as millrace stages.\n",
        .examples = "millrace top\n"
                    "millrace top --at millrace://jobs.example:7411\n",
        .options = { TOP, AT, JSON },
        .run = top_run,
    },
    {
        .name = "stages",
        .arguments = "",
        .doc = "list the stages with numbers of jobs",
        .help = "One line for each stage: numbers of waiting, running, delayed, parked (their key\n"
                "waits for a retry) and dead jobs; the age of the oldest; jobs pushed and done\n"
                "per second; and the reason why jobs wait. millrace why STAGE explains it.\n",
        .examples = "millrace stages\n"
                    "millrace stages --json | jq '.[] | select(.dead > 0).name'\n",
        .options = { TOP, AT, JSON },
        .run = stages_run,
    },
    {
        .name = "channels",
        .arguments = "STAGE",
        .least = 1,
        .most = 1,
        .doc = "list the keys of a stage with most jobs",
        .help = "The deepest first; keys with a single job are not listed. With --groups, lists\n"
                "groups of keys instead: the tenants of a stage with the policy group on.\n",
        .examples = "millrace channels mail --top 5\n"
                    "millrace channels reports --groups\n",
        .options = { TOP, { "--groups", NULL, "groups of keys instead of keys" }, AT, JSON },
        .run = channels_run,
    },
    {
        .name = "workers",
        .arguments = "",
        .doc = "list the workers",
        .help = "Lists connections that take jobs: their stages, and the jobs that they hold, run\n"
                "at once (LEVEL; 0: not reported), have taken and have ended.\n",
        .examples = "millrace workers\n",
        .options = { TOP, AT, JSON },
        .run = workers_run,
    },
    {
        .name = "epics",
        .arguments = "",
        .doc = "list the epics with their progress",
        .help = "TOTAL is known when all of an epic is pushed. HELD BY is the reason why none of\n"
                "its jobs starts.\n",
        .examples = "millrace epics\n",
        .options = { TOP, AT, JSON },
        .run = epics_run,
    },
    {
        .name = "schedule apply", // before the next one, which would take apply for a stage
        .arguments = "FILE",
        .least = 1,
        .most = 1,
        .doc = "make the schedules those of a file",
        .help = "FILE is YAML, with schedules by their stages and names. Prints what differs:\n"
                "  + STAGE NAME   a schedule is added\n"
                "  ~ STAGE NAME   is changed: each field, old and new\n"
                "  - STAGE NAME   is removed\n"
                "and then changes it. What is as in FILE is left alone, so a second run changes\n"
                "nothing. If anything in FILE is wrong, it says where, and changes nothing.\n"
                "\n"
                "A schedule has the fields push (the body of its jobs), cron or every, tz,\n"
                "missed, key, deadline, attempts and meta: the options of millrace schedule.\n"
                "\n"
                "    reports:\n"
                "      nightly: { cron: '30 2 * * *', tz: Europe/Berlin, push: all }\n"
                "    mail:\n"
                "      poll: { every: 30s, push: inbox, key: poll }\n"
                "\n"
                "A schedule that is not in FILE is removed if FILE names its stage; mail: {}\n"
                "says that this stage has none. Other stages are left alone.\n"
                "Exits 0 if all is as in FILE now, 2 if FILE is wrong.\n",
        .examples = "millrace schedule apply schedules.yaml --dry-run\n"
                    "millrace schedule apply schedules.yaml\n",
        .options = { { "--dry-run", NULL, "only print what differs" },
                     { "--keep", NULL, "remove no schedules" },
                     AT,
                     JSON },
        .run = schedule_apply_run,
    },
    {
        .name = "schedule",
        .arguments = "[STAGE [NAME [drop | pause | resume | now | BODY]]]",
        .most = 3,
        .doc = "push jobs by a cron expression or an interval",
        .help = "Without arguments lists all schedules, with STAGE those of a stage; with STAGE\n"
                "NAME shows one and its next five times. With --cron or --every makes a schedule\n"
                "that pushes BODY (or stdin), or replaces the one of that name. drop removes it,\n"
                "pause and resume stop and continue it, now pushes a job at once. Times are\n"
                "printed in UTC.\n"
                "\n"
                "A cron expression has five fields: minute, hour, day of the month, month and\n"
                "weekday, as in '30 2 * * mon-fri', or is @hourly, @daily, @weekly, @monthly or\n"
                "@yearly; its times are those of the zone --tz. Each tick is pushed once, also\n"
                "over a crash. With --key runs never overlap. Ticks that are more than a minute\n"
                "late are missed: --missed says whether none, one or all of them are pushed.\n",
        .examples = "millrace schedule reports daily all --cron '30 2 * * *' --tz UTC\n"
                    "millrace schedule mail poll inbox --every 30s --key poll\n"
                    "millrace schedule mail poll now\n",
        .options = { { "--cron", "EXPR", "when: minute, hour, day, month, weekday" },
                     { "--every", "D", "or how often: 30s, 5m, 2h; 1s at least" },
                     { "--tz", "ZONE", "the time zone of --cron, as Europe/Berlin (UTC)" },
                     { "--missed", "skip|one|all", "missed ticks that are pushed (skip: none)" },
                     SCHEDULE_OPTIONS(OF_SCHEDULE) //
                     TOP,
                     AT,
                     JSON },
        .run = schedule_run,
    },
    {
        .name = "dead",
        .arguments = "[STAGE]",
        .most = 1,
        .doc = "list the jobs that used up their attempts",
        .help = "The longest dead first, of STAGE or of all stages. millrace retry queues them\n"
                "again, millrace drop deletes them.\n",
        .examples = "millrace dead\n"
                    "millrace dead mail --top 5\n",
        .options = { TOP, { "--from", "ID", "continue the list after this job" }, AT, JSON },
        .run = dead_run,
    },
    {
        .name = "why",
        .arguments = "[STAGE | ID]",
        .most = 1,
        .doc = "say why a stage or a job waits",
        .help = "Prints one sentence, with the command that changes it. Without STAGE or ID, a\n"
                "sentence for each stage that is held, the one with the oldest job first.\n",
        .examples = "millrace why\n"
                    "millrace why mail\n"
                    "millrace why 4711\n",
        .options = { AT, JSON },
        .run = why_run,
    },
    {
        .name = "retry",
        .arguments = "ID... | STAGE --dead",
        .least = 1,
        .most = CLI_ANY,
        .doc = "queue dead jobs again",
        .help = "Each job gets all its attempts again, and no deadline. Prints the number.\n",
        .examples = "millrace retry 4711 4712\n"
                    "millrace retry mail --dead --reason timeout --dry-run\n",
        .options = { { "--dead", NULL, "the dead jobs of STAGE" }, BULK_OPTIONS, AT, JSON },
        .run = retry_run,
    },
    {
        .name = "drop",
        .arguments = "ID... | STAGE --dead|--waiting",
        .least = 1,
        .most = CLI_ANY,
        .doc = "delete dead or waiting jobs",
        .help = "Dropped jobs do not run, and their ids are no longer known. Prints the number of\n"
                "jobs. Running jobs are not dropped: use millrace cancel ID.\n",
        .examples = "millrace drop 4711\n"
                    "millrace drop mail --waiting --key ann --dry-run\n",
        .options = { { "--dead", NULL, "the dead jobs of STAGE" },
                     { "--waiting", NULL, "the waiting jobs of STAGE" },
                     BULK_OPTIONS,
                     AT,
                     JSON },
        .run = drop_run,
    },
    {
        .name = "due",
        .arguments = "ID...",
        .least = 1,
        .most = CLI_ANY,
        .doc = "let delayed jobs start now",
        .help = "Jobs that are delayed, or that wait after a failed attempt or a snooze, may\n"
                "start at once. Prints the number of jobs; exits with 1 if some waited for\n"
                "nothing.\n",
        .examples = "millrace due 4711\n",
        .options = { AT, JSON },
        .run = due_run,
    },
    {
        .name = "pause",
        .arguments = "STAGE",
        .least = 1,
        .most = 1,
        .doc = "start no more jobs of a stage",
        .help = "The stage still accepts jobs, and running ones continue. millrace resume starts\n"
                "jobs again.\n",
        .examples = "millrace pause mail\n"
                    "millrace pause mail --key ann\n",
        .options = { { "--key", "K", "only the jobs of this key" }, AT, JSON },
        .run = pause_run,
    },
    {
        .name = "resume",
        .arguments = "STAGE",
        .least = 1,
        .most = 1,
        .doc = "end pause or drain",
        .help = "The stage accepts and starts jobs again.\n",
        .examples = "millrace resume mail\n",
        .options = { { "--key", "K", "only the jobs of this key" }, AT, JSON },
        .run = resume_run,
    },
    {
        .name = "drain",
        .arguments = "STAGE",
        .least = 1,
        .most = 1,
        .doc = "refuse new jobs of a stage",
        .help = "The stage runs the jobs that it has. Pushes are refused; jobs that other stages\n"
                "emit into it are accepted. millrace resume ends this.\n",
        .examples = "millrace drain mail\n",
        .options = { AT, JSON },
        .run = drain_run,
    },
    {
        .name = "stage",
        .arguments = "STAGE [NAME=VALUE...]",
        .least = 1,
        .most = CLI_ANY,
        .doc = "show or set the policy of a stage, or remove it",
        .help = "Without NAME=VALUE shows all policies, else sets these: all of them or, after an\n"
                "error, none. --remove removes an empty stage and its policies, or says why it is\n"
                "not empty.\n"
                "\n"
                "The policies and their defaults:\n"
                "\n",
        .help_row = stage_help_row,
        .examples = "millrace stage mail\n"
                    "millrace stage mail concurrency=20 rate=100/s lease=2m\n"
                    "millrace stage mail --remove\n",
        .options = { { "--remove", NULL, "remove the stage, which must be empty" }, AT, JSON },
        .run = stage_run,
    },
    { 0 },
};
