// Rows of the commands that look at an engine and act on what is in it.
#include "cli/table.h"

#define TOP                                                                                        \
    { "--top", "N", "at most so many (50; 1000 at most)" }

#define BULK_OPTIONS                                                                               \
    { "--key", "K", "only of this key" },                                                          \
        { "--reason", "TEXT", "only whose last reason contains TEXT" },                            \
        { "--max", "N", "at most so many" }, {                                                     \
        "--dry-run", NULL, "only tell how many"                                                    \
    }

const struct command looks_commands[] = {
    {
        .name = "top",
        .arguments = "",
        .doc = "watch the stages, live on the terminal",
        .help = "Stages once a second: what waits, runs and is dead, the age of the oldest,\n"
                "rates and their past, what holds them. Keys: arrows (or j, k) choose a stage,\n"
                "Enter opens it (its keys and workers, and why it waits), Esc goes back, s sorts,\n"
                "p pauses, r resumes, q quits. A server that goes away is waited for. Without a\n"
                "terminal it is millrace stages.\n",
        .examples = "millrace top\n"
                    "millrace top --at millrace://jobs.example:7411\n",
        .options = { TOP, AT, JSON },
        .run = top_run,
    },
    {
        .name = "stages",
        .arguments = "",
        .doc = "list the stages: what waits, runs, is dead",
        .help = "One line a stage: jobs that wait, run, are delayed, parked (their key waits for\n"
                "a retry) and dead; the age of the oldest; jobs in and out a second; and what\n"
                "holds the stage, if anything does. millrace why STAGE says it in a sentence.\n",
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
        .help = "The deepest first; keys with a single job are not listed.\n",
        .examples = "millrace channels mail --top 5\n",
        .options = { TOP, AT, JSON },
        .run = channels_run,
    },
    {
        .name = "workers",
        .arguments = "",
        .doc = "list who works",
        .help = "Connections that have asked for work: for which stages, how many jobs they\n"
                "hold, have taken and have ended.\n",
        .examples = "millrace workers\n",
        .options = { TOP, AT, JSON },
        .run = workers_run,
    },
    {
        .name = "epics",
        .arguments = "",
        .doc = "list the epics and how far they are",
        .help = "TOTAL is not known before all of an epic was pushed. STAGE is the one it belongs\n"
                "to, HELD BY why none of its jobs starts.\n",
        .examples = "millrace epics\n",
        .options = { TOP, AT, JSON },
        .run = epics_run,
    },
    {
        .name = "dead",
        .arguments = "[STAGE]",
        .most = 1,
        .doc = "list the jobs that used up their attempts",
        .help = "The longest dead first, of STAGE or of all. millrace retry lets them live again,\n"
                "millrace drop forgets them.\n",
        .examples = "millrace dead\n"
                    "millrace dead mail --top 5\n",
        .options = { TOP, { "--from", "ID", "those behind this job in the list" }, AT, JSON },
        .run = dead_run,
    },
    {
        .name = "why",
        .arguments = "STAGE | ID",
        .least = 1,
        .most = 1,
        .doc = "tell what a stage or a job is waiting for",
        .help = "One sentence, and the command that would change it.\n",
        .examples = "millrace why mail\n"
                    "millrace why 4711\n",
        .options = { AT, JSON },
        .run = why_run,
    },
    {
        .name = "retry",
        .arguments = "ID... | STAGE --dead",
        .least = 1,
        .most = CLI_ANY,
        .doc = "let dead jobs live again",
        .help = "Each gets its attempts anew and no deadline. Prints how many.\n",
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
        .doc = "forget jobs that are dead or wait",
        .help = "They will not run, and their ids are not known any more. Prints how many. What\n"
                "runs is not dropped: millrace cancel ID.\n",
        .examples = "millrace drop 4711\n"
                    "millrace drop mail --waiting --key ann --dry-run\n",
        .options = { { "--dead", NULL, "the dead jobs of STAGE" },
                     { "--waiting", NULL, "those of STAGE that wait" },
                     BULK_OPTIONS,
                     AT,
                     JSON },
        .run = drop_run,
    },
    {
        .name = "pause",
        .arguments = "STAGE",
        .least = 1,
        .most = 1,
        .doc = "start no more jobs of a stage",
        .help = "It still accepts jobs, and what runs goes on. millrace resume ends it.\n",
        .examples = "millrace pause mail\n",
        .options = { AT, JSON },
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
        .options = { AT, JSON },
        .run = resume_run,
    },
    {
        .name = "drain",
        .arguments = "STAGE",
        .least = 1,
        .most = 1,
        .doc = "accept no more jobs in a stage",
        .help = "It finishes what it has. Pushes are refused; what jobs of other stages emit into\n"
                "it is accepted. millrace resume ends it.\n",
        .examples = "millrace drain mail\n",
        .options = { AT, JSON },
        .run = drain_run,
    },
    {
        .name = "stage",
        .arguments = "STAGE [NAME=VALUE...]",
        .least = 1,
        .most = CLI_ANY,
        .doc = "show or set what holds for a stage, or remove it",
        .help = "Without NAME=VALUE shows all, else sets them, all or none. With --remove forgets\n"
                "an empty stage and all that was set there; says what is left if it is not empty.\n"
                "\n"
                "The policies and their defaults:\n"
                "\n",
        .help_row = stage_help_row,
        .examples = "millrace stage mail\n"
                    "millrace stage mail concurrency=20 rate=100/s lease=2m\n"
                    "millrace stage mail --remove\n",
        .options = { { "--remove", NULL, "forget the stage, which must be empty" }, AT, JSON },
        .run = stage_run,
    },
    { 0 },
};
