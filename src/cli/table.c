// The table of commands, in chapters; this file has the rows of those that need no engine to be
// running, table_jobs.c and table_looks.c those of its clients.
#include "cli/table.h"

static const struct command work_commands[] = {
    {
        .name = "serve",
        .arguments = "",
        .doc = "be a server that any Redis client can talk to",
        .help = "Serves until it is interrupted or asked to stop (SIGTERM): it then starts no\n"
                "more jobs, lets running ones end for a while, and closes. What it has answered\n"
                "is kept, whatever happens to the process or the machine, as --sync says:\n"
                "\n"
                "    always       a reply means that it is on disk (the default)\n"
                "    interval:MS  on disk at most so many milliseconds later\n"
                "    none         when the system writes it\n"
                "\n"
                "Whoever can connect may do everything; so it listens on this machine only unless\n"
                "--auth asks for tokens. --tls-cert and --tls-key encrypt; with --tls-ca clients\n"
                "have to show a certificate, too.\n"
                "\n"
                "With --shards a new store has several logs, each with a writer of its own; what\n"
                "is there stays as it is (millrace store copy --shards spreads it anew).\n"
                "\n"
                "Options may stand in a file, one a line: log-json = yes. A flag wins over the\n"
                "file. millrace help --config writes one to begin with. SIGHUP has the file,\n"
                "tokens and certificates read again.\n",
        .examples = "millrace serve\n"
                    "    on " CLI_LISTEN ", keeping its jobs in ./data\n"
                    "millrace serve --store mem: --listen 127.0.0.1:0\n"
                    "    in memory only, on a free port, which it tells\n"
                    "millrace serve --listen 0.0.0.0:7411 --auth millrace.auth \\\n"
                    "  --tls-cert server.pem --tls-key server.key\n"
                    "    for others, who need a token\n"
                    "millrace serve --config /etc/millrace.conf\n",
        .options = { { "--store", "URL", "file:DIR or mem: (file:./data)" },
                     { "--listen", "HOST:PORT", "where clients connect (" CLI_LISTEN ")" },
                     { "--shards", "N", "spread a new store over N logs; one if not given" },
                     { "--loops", "N|auto",
                       "threads for connections and shards; auto: one per CPU (1)" },
                     { "--http", "HOST:PORT", "page, metrics and API, or off (" CLI_HTTP ")" },
                     { "--http-name", "NAMES", "what browsers may call it, beside its address" },
                     { "--sync", "WHEN", "always, interval:MS or none (always)" },
                     { "--max-body", "SIZE", "the largest body, 16M at most (16M)" },
                     { "--max-bytes", "SIZE", "of memory for jobs; then pushes are FULL (none)" },
                     { "--max-client-bytes", "SIZE", "of memory for clients; docs/operating.md" },
                     { "--max-clients", "N", "connections (10000)" },
                     { "--max-per-address", "N", "connections from another machine (5000)" },
                     { "--max-idle", "D", "close who does nothing for so long (none)" },
                     { "--max-unread", "D", "close who reads no reply for so long (1m)" },
                     { "--log-level", "LEVEL", "error, warn, info or debug (info)" },
                     { "--log-json", NULL, "write notices as JSON" },
                     { "--auth", "FILE", "ask for tokens, made by millrace auth add" },
                     { "--tls-cert", "FILE", "encrypt, with this certificate and its chain" },
                     { "--tls-key", "FILE", "the certificate's key" },
                     { "--tls-ca", "FILE", "ask clients for certificates signed by these" },
                     { "--insecure", NULL, "listen where others can reach it, without --auth" },
                     { "--config", "FILE", "read options from there, too" } },
        .run = serve_run,
    },
    {
        .name = "run",
        .arguments = "-- COMMAND...",
        .runs_command = true,
        .doc = "run a command for each line of stdin",
        .help = "Like xargs -d '\\n' -n 1 -r, with no server: one job a line, as many at once as\n"
                "the machine rewards. The line is appended as the last argument, unless a\n"
                "placeholder says where it belongs, or --stdin pipes it in (else stdin is empty):\n"
                "\n"
                "    {}     the line                  {.}   without its extension\n"
                "    {/}    its last component        {/.}  that, without its extension\n"
                "    {//}   the directory before it   {#}   its number\n"
                "    {key}  its key\n"
                "\n"
                "A line is never text of a script: in sh -c 'SCRIPT' a placeholder becomes a\n"
                "variable, as if it were \"$1\", and is refused where a shell would not read it\n"
                "so, or in a script for another program (python -c, awk, ssh). Lines that begin\n"
                "with - would be taken for options: put -- before {} for commands that know it.\n"
                "\n"
                "Lines with the same key run one after another, in order, and never together.\n"
                "A line that has no key is told of, and keeps no order. What a command writes is\n"
                "shown whole when it has ended, of a retried line what the last attempt wrote.\n"
                "Input is read as it is worked off, however long it is.\n"
                "\n"
                "A line fails when its command exits with another code than 0, is killed or takes\n"
                "too long. That holds up nobody (--halt never, the default): all other lines run,\n"
                "also those behind it with the same key. --halt soon starts no more after the\n"
                "first failure, --halt now also ends what runs.\n"
                "\n"
                "MILLRACE_KEY, MILLRACE_ATTEMPT and others tell a command about its line;\n"
                "millrace state, and millrace emit run for further lines, work inside it.\n"
                "\n"
                "--results makes a directory for each line, named by its number: DIR/1/stdout,\n"
                "DIR/1/stderr and DIR/1/status, which is one line: the exit code as a shell has\n"
                "it (128 and the signal, 124 for --timeout, 127 and 126 if it cannot be started),\n"
                "and, if it failed, a space and the reason. DIR must be new or empty, unless a\n"
                "journal goes on.\n"
                "\n"
                "Ctrl-C reads and starts no more and lets finish what runs; a second one ends\n"
                "that too (TERM, and KILL after 2 s). With --journal, the same command with the\n"
                "same input then goes on: what has finished, or failed for good, is not run\n"
                "again, and not printed again: use >> and not >, which would empty the file, or\n"
                "--results. After a crash, what ran is run again; output that was about to be\n"
                "shown may be shown twice (with --keep-order of one line at most).\n"
                "\n"
                "A journal whose lines are all done is removed with its directory. If any failed\n"
                "it stays: DIR/failed lists them (number, reason, line), and the same command\n"
                "tries only those again.\n"
                "\n"
                "Exits 0 if every line was done, 1 if any failed, 2 if the command cannot be run,\n"
                "3 if journal or results cannot be opened, 124 when the deadline has passed, 130\n"
                "if interrupted, also by the end of whoever reads the output.\n",
        .examples = "seq 10 | millrace run -- echo\n"
                    "find . -name '*.png' -print0 |\n"
                    "  millrace run -0 --key-regex '/([^/]+)/' -- convert {} {.}.jpg\n"
                    "    one picture of a directory at a time\n"
                    "millrace run --journal urls.run --retries 5 -- wget -q <urls.txt\n"
                    "    run it again after a crash, and it goes on\n",
        .options = { JOBS,
                     { "--key-field", "N", "the key is the Nth word of the line" },
                     { "--key-regex", "RE", "it is what RE finds, or its first group" },
                     { "--key-json", "NAME", "the line is JSON, the key its member NAME" },
                     { "-0", NULL, "lines end with a 0 byte, as find -print0 has them" },
                     { "--stdin", NULL, "the line is the command's stdin" },
                     { "--retries", "N", "try a line that fails again, N times (0)" },
                     { "--timeout", "D", "end a command that takes longer: 30s, 5m" },
                     { "--deadline", "D", "end everything after so long" },
                     { "--journal", "DIR", "remember there how far it has come" },
                     { "-k, --keep-order", NULL, "show output in the order of the lines" },
                     { "--halt", "WHEN", "never (default), soon or now: what a failure ends" },
                     { "--progress", NULL, "show a bar (default if only stderr is seen)" },
                     { "--results", "DIR", "also write what each line wrote, and its status" },
                     { "--json", NULL, "the last line of stderr is a summary in JSON" } },
        .run = run_run,
    },
    {
        .name = "flow",
        .arguments = "FILE",
        .least = 1,
        .most = 1,
        .doc = "run a pipeline of steps that a file describes",
        .help = "FILE is YAML: where lines come from, the steps they go through, where they end.\n"
                "docs/flows.md has all that can stand in it; this counts words:\n"
                "\n"
                "    flow: words\n"
                "    source: { lines: text.txt }\n"
                "    steps:\n"
                "      - { name: split, flat_map: words }\n"
                "      - { name: count, aggregate: count, key: field 1 }\n"
                "    sink: { file: counts.tsv }\n"
                "\n"
                "A step is a command ([./command], one process a line, or with mode: filter one\n"
                "that stays and answers line after line) or one of the built-in ones. Each finds\n"
                "its own number of jobs at once; nothing is read faster than it is worked off.\n"
                "Names in FILE are relative to its directory, and commands run there.\n"
                "\n"
                "Every line counts exactly once, in sums and in files, whatever crashes: a step,\n"
                "this command, the machine. Ctrl-C (or TERM) reads no more and lets finish what\n"
                "runs, but a filter that does not answer for 5 s is ended; a second one ends all.\n"
                "Run it again and it goes on where it was: the directory NAME.journal beside FILE\n"
                "remembers (in the current one, if FILE is a pipe, as <(...) is). A flow that has\n"
                "finished starts afresh.\n"
                "\n"
                "A line that fails is tried again, as its step says, and set aside when it has\n"
                "used up its attempts (on-dead: skip); on-dead: halt stops the flow there, and\n"
                "running it again tries that line again.\n"
                "\n"
                "Exits 0 if every line went through, 1 if any died, 2 if FILE makes no sense, 3\n"
                "if the engine cannot be reached or opened, 130 if interrupted.\n",
        .examples = "millrace flow --check words.yaml\n"
                    "    tells every mistake by line and column, and runs nothing\n"
                    "millrace flow --graph words.yaml\n"
                    "millrace flow words.yaml\n"
                    "millrace flow --at millrace://db1:7411 campaign.yaml\n"
                    "    its jobs and what it remembers are on a server, for others to see\n",
        .options = { { "--check", NULL, "only tell what is wrong with FILE" },
                     { "--graph", NULL, "only draw it" },
                     { "--journal", "DIR", "remember there how far it has come" },
                     { "--at", "URL", "run it on this engine; that remembers then" },
                     TLS,
                     { "--fresh", NULL, "forget what was begun, and begin anew" },
                     { "--progress", NULL, "show how far each step is, and a summary" },
                     { "--json", NULL, "the last line of stderr is a summary in JSON" } },
        .run = flow_run,
    },
    {
        .name = "work",
        .arguments = "STAGE... -- COMMAND...",
        .least = 1,
        .most = CLI_ANY,
        .runs_command = true,
        .doc = "take jobs and run a command for each",
        .help = "Takes jobs of the stages, those named first before the others, and runs the\n"
                "command for each: as many at once as the machine rewards. The body is its\n"
                "stdin, or stands where {} is; {key} and {id} are the job's. In a script (with\n"
                "--shell or sh -c) they become variables: nothing of a job is read as a script.\n"
                "Put -- before {} where a body may begin with -. What the command writes to\n"
                "stdout is the job's result. Exit 0 commits; anything else is a failed attempt,\n"
                "which the stage repeats or not. stderr is shown as it comes, and its last line\n"
                "is kept in the reason of a failed attempt.\n"
                "A server that goes away is told of, and waited for.\n"
                "\n"
                "MILLRACE_ID, MILLRACE_KEY, MILLRACE_STAGE, MILLRACE_ATTEMPT and, if there is a\n"
                "deadline, MILLRACE_DEADLINE_MS are in the command's environment; millrace emit\n"
                "and millrace state work inside it. A job that is cancelled, expires or loses its\n"
                "lease has its processes ended (TERM, then KILL). What a command leaves running\n"
                "is killed when it has ended, also in a session of its own (setsid), unless it\n"
                "has cleared its environment or become another user.\n"
                "\n"
                "Ctrl-C once takes no more and lets what runs finish; twice ends it, and its jobs\n"
                "go back. Exits 130 then, 2 if there is no such command, 3 without an engine.\n",
        .examples = "millrace work mail -- ./send\n"
                    "    ./send reads a job's body from stdin\n"
                    "millrace work urgent mail --jobs 4 --timeout 30s -- ./send --to {key}\n"
                    "millrace work thumbs --shell -- 'convert - -scale 100 png:- | base64'\n",
        .options = { AT,
                     JOBS,
                     { "--timeout", "DURATION", "an attempt may take this long" },
                     { "--lease", "DURATION", "the lease of a job (as the stage says)" },
                     { "--batch", "N", "jobs of one key taken together (1)" },
                     { "--shell", NULL, "the command is a script for sh" } },
        .run = work_run,
    },
    {
        .name = "emit",
        .arguments = "STAGE [BODY]",
        .least = 1,
        .most = 2,
        .doc = "hand in a job with the commit of this one",
        .help = "Inside a job of millrace work, run or flow: the commit that ends the job hands\n"
                "in a new job of STAGE. If the job fails, it does not. BODY - or none reads\n"
                "stdin, which may be the job's own body.\n"
                "\n"
                "May be called up to 1,000 times in a job, also at the same time; what one call\n"
                "emits is in the commit whole. Elsewhere exits 2: there millrace push does it.\n",
        .examples = "millrace emit thumbnails --key \"$MILLRACE_KEY\" small.jpg\n"
                    "sort | millrace emit sorted\n",
        .options = { { "--key", "K", "the key of the new job" } },
        .run = emit_run,
    },
    {
        .name = "state",
        .arguments = "",
        .doc = "show or replace what this job's channel keeps",
        .help = "Inside a job of millrace work, run or flow: prints the state that the jobs\n"
                "before it in its channel have left. With --set, the commit that ends the job\n"
                "replaces it; an empty one deletes it; if the job fails, it stays as it was.\n"
                "Jobs of one key run one after another, so nobody else changes it meanwhile.\n"
                "Without --set it tells what the job has found, also after it has set another.\n"
                "\n"
                "The state is up to 1 MiB of any bytes. Elsewhere exits 2.\n",
        .examples = "millrace state\n"
                    "echo $(($(millrace state) + 1)) | millrace state --set -\n"
                    "    counts the jobs of the key\n",
        .options = { { "--set", "STATE", "the new state; - reads it from stdin" } },
        .run = state_run,
    },
    { 0 },
};

static const struct command store_commands[] = {
    {
        .name = "store check",
        .arguments = "URL",
        .least = 1,
        .most = 1,
        .doc = "examine a store without starting it",
        .help = "Reads the whole store that URL (file:DIR) names, changes nothing, and tells\n"
                "whether it is sound: every entry is framed and sums up right, bodies too, and\n"
                "the records together make an engine that keeps all its rules. Shows what is in\n"
                "it; \"live\" is what a copy would keep.\n"
                "\n"
                "Exits 0 if it is sound, 1 if not (every problem is listed with its file and\n"
                "offset), 3 if it cannot be opened. A torn end that a crash has left is no\n"
                "problem: nobody was told that it is kept. A store in use may be checked:\n"
                "what is found then is a moment old, and 3 means that it changes too fast.\n",
        .examples = "millrace store check file:./data\n"
                    "millrace store check file:./data --json | jq .stages\n",
        .options = { JSON },
        .run = store_check_run,
    },
    {
        .name = "store dump",
        .arguments = "URL",
        .least = 1,
        .most = 1,
        .doc = "show the entries of a store, one a line",
        .help =
            "Writes position, time (UTC), kind and content of every entry that the store\n"
            "holds, oldest first; \"copy\" marks what the cleaner has moved. Options narrow it\n"
            "down and hold together. Bodies, results and states are told by their size, or\n"
            "with --body shown, everything but printable text escaped. Changes nothing; a\n"
            "store in use may be dumped.\n"
            "\n"
            "Of several shards each line begins with the number of its shard: positions and\n"
            "order are a shard's own.\n"
            "\n"
            "With --json every line is an object. Ids are strings. Bytes that are not UTF-8\n"
            "stand in base64 under the name with -base64 behind it.\n",
        .examples = "millrace store dump file:./data\n"
                    "millrace store dump file:./data --id 17 --body\n"
                    "    what has happened to job 17\n"
                    "millrace store dump file:./data --stage mail --json | jq .kind\n",
        .options = { { "--from", "POSITION", "begin at this position" },
                     { "--stage", "STAGE", "only what concerns this stage" },
                     { "--id", "ID", "only what concerns this job" },
                     { "--shard", "N", "only that shard's entries; they count from 0" },
                     { "--body", NULL, "show bodies, results and states" },
                     JSON },
        .run = store_dump_run,
    },
    {
        .name = "store repair",
        .arguments = "URL",
        .least = 1,
        .most = 1,
        .doc = "make a damaged store one that opens",
        .help = "Gives up what cannot be read and keeps everything else. A damaged segment is\n"
                "first copied aside, as NUMBER.seg.damaged in the same directory, so there must\n"
                "be room for that; then it is changed in place. A repair that was interrupted is\n"
                "simply run again. A sound store is left as it is.\n"
                "\n"
                "A stage whose name was lost is called lost-NUMBER, with default policies. If\n"
                "anything was lost, ids go on far beyond the highest that is known, so that none\n"
                "is given twice. What stood in the lost parts is gone: jobs, or the news that\n"
                "they have ended, so a job may run again. Nobody may use the store meanwhile.\n",
        .examples = "millrace store repair file:./data --dry-run\n"
                    "    what is wrong, and what would be done\n"
                    "millrace store repair file:./data\n",
        .options = { { "--dry-run", NULL, "only say what would be done" }, JSON },
        .run = store_repair_run,
    },
    {
        .name = "store copy",
        .arguments = "FROM TO",
        .least = 2,
        .most = 2,
        .doc = "copy what lives in one store into a new one",
        .help = "Copies jobs in their order, results, states, names of pushes that must not\n"
                "happen twice, policies, counters and epics from FROM to TO (both file:DIR), and\n"
                "leaves out what is over: a store that was large becomes as small as what lives\n"
                "in it. TO must be missing or empty, and gets its name only when all of it is on\n"
                "disk and was checked. FROM is not changed, and nobody may use it meanwhile.\n"
                "\n"
                "With --shards the copy has another number of shards than FROM, and every job is\n"
                "in the one where it belongs then; ids stay.\n"
                "\n"
                "Both then hold the same jobs: open one of them, or each job runs twice.\n",
        .examples = "millrace store copy file:./data file:/backup/data\n"
                    "millrace store copy file:./data file:./spread --shards 4\n",
        .options = { { "--shards", "N", "how many the copy has (as many as FROM)" }, JSON },
        .run = store_copy_run,
    },
    { 0 },
};

static const struct command help_commands[] = {
    {
        .name = "help",
        .arguments = "[COMMAND]",
        .most = 2,
        .doc = "tell what the commands do",
        .help = "Without COMMAND, lists all commands; with it, explains that one. The option\n"
                "--help does the same behind any command.\n",
        .examples = "millrace help\n"
                    "millrace help store check\n",
        .options = { { "--man", NULL, "print the man page" },
                     { "--bash", NULL, "print the completion for bash" },
                     { "--protocol", NULL, "print the page about the protocol" },
                     { "--config", NULL, "print a file of options for millrace serve" } },
        .run = help_run,
    },
    { 0 },
};

const struct chapter chapters[] = {
    { "Engines and work", work_commands },
    { "Jobs", jobs_commands },
    { "Looking and acting", looks_commands },
    { "Access", auth_commands },
    { "Stores", store_commands },
    { "Help", help_commands },
    { 0 },
};

const struct command *command_at(size_t index) {
    for (const struct chapter *chapter = chapters; chapter->title; chapter++)
        for (const struct command *c = chapter->commands; c->name; c++)
            if (index-- == 0)
                return c;
    return NULL;
}
