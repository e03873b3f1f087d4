// The table of commands, in chapters. This file has the rows of commands that need no running
// engine; table_jobs.c and table_looks.c have those of clients.
#include "cli/table.h"

static const struct cli_command work_commands[] = {
    {
        .name = "serve",
        .arguments = "",
        .doc = "run the server, for any Redis client",
        .help = "Serves until SIGINT or SIGTERM: it then starts no more jobs, waits a while for\n"
                "running ones, and exits. Everything that it has answered is kept over a crash of\n"
                "the process or the machine, as --sync says:\n"
                "\n"
                "    always       a reply means that the change is on disk (the default)\n"
                "    interval:MS  the change is on disk at most MS milliseconds later\n"
                "    none         the operating system decides when to write\n"
                "\n"
                "Every client that can connect may do everything; so the server listens on this\n"
                "machine only, unless --auth requires tokens. --tls-cert and --tls-key encrypt\n"
                "connections; with --tls-ca clients must present a certificate, too.\n"
                "\n"
                "With --shards a new store has several logs, each with a writer thread. An\n"
                "existing store keeps its number (millrace store copy --shards changes it).\n"
                "\n"
                "With --store postgres://... or nats://... the server is a node of a cluster:\n"
                "the nodes with the same store share its shards. Each shard is owned by one\n"
                "node; the others pass commands on to it, and take over when it stops or is\n"
                "lost. The store is made by millrace store init.\n"
                "\n"
                "Options can also be lines of a file: log-json = yes. A flag overrides the file.\n"
                "millrace help --config prints a file with all options. On SIGHUP the server\n"
                "reads the file, tokens and certificates again.\n"
                "\n"
                "Exits 1 if the store is damaged, 2 if options are wrong or do not fit the store,\n"
                "4 if tokens or certificates are, or the store denies a node its rights:\n"
                "starting again does not help. Exits 3 if it may help: the address or the store\n"
                "is in use, or the disk does not respond.\n",
        .examples = "millrace serve\n"
                    "    on " CLI_LISTEN ", keeping its jobs in ./data\n"
                    "millrace serve --store mem: --listen 127.0.0.1:0\n"
                    "    in memory only, on a free port, which it prints\n"
                    "millrace serve --listen unix:/run/millrace/sock --unix-mode 660\n"
                    "    for this machine: this user and its group\n"
                    "millrace serve --listen 0.0.0.0:7411 --auth millrace.auth \\\n"
                    "  --tls-cert server.pem --tls-key server.key\n"
                    "    for other machines, with tokens and TLS\n"
                    "millrace serve --store postgres://localhost/app\n"
                    "    a node of a cluster; others use the same database\n"
                    "millrace serve --store nats://a,b,c\n"
                    "    the same in NATS JetStream, on three servers\n"
                    "millrace serve --config /etc/millrace.conf\n",
        .options = { { "--store", "URL", "file:DIR, mem:, postgres:// or nats:// (file:./data)" },
                     { "--listen", "ADDRESS", "HOST:PORT, unix:PATH or both (" CLI_LISTEN ")" },
                     { "--unix-mode", "MODE", "permissions of the socket file, octal (600)" },
                     { "--cluster", "NAME", "which cluster of the store; without it main" },
                     { "--takeover", "D", "silence after which another node takes over; else 10s" },
                     { "--require-replication", NULL,
                       "refuse a store that has no replica on another machine" },
                     { "--advertise", "HOST:PORT",
                       "where other nodes reach this one; else --listen" },
                     { "--advertise-http", "HOST:PORT", "the same for HTTP; else --http" },
                     { "--shards", "N", "number of logs of a new store (1)" },
                     { "--loops", "N|auto",
                       "threads for connections and shards; auto: one per CPU (1)" },
                     { "--poll", "WHEN", "poll before sleeping while busy: on or off (on)" },
                     { "--http", "HOST:PORT", "page, metrics and API, or off (" CLI_HTTP ")" },
                     { "--http-name", "NAMES", "other names of this server in browsers" },
                     { "--sync", "WHEN", "always, interval:MS or none (always)" },
                     { "--max-body", "SIZE", "the largest body, 16M at most (16M)" },
                     { "--max-bytes", "SIZE", "memory for jobs; beyond it pushes are FULL (none)" },
                     { "--max-client-bytes", "SIZE", "memory for clients; see docs/operating.md" },
                     { "--max-clients", "N", "connections (10000)" },
                     { "--max-per-address", "N", "connections from one other machine (5000)" },
                     { "--max-idle", "D", "close connections idle for this time (none)" },
                     { "--max-unread", "D", "close clients that read no reply for it (1m)" },
                     { "--log-level", "LEVEL", "error, warn, info or debug (info)" },
                     { "--log-json", NULL, "write notices as JSON" },
                     { "--auth", "FILE", "require tokens, made by millrace auth add" },
                     { "--tls-cert", "FILE", "encrypt, with this certificate and its chain" },
                     { "--tls-key", "FILE", "the certificate's key" },
                     { "--tls-ca", "FILE", "require client certificates signed by these" },
                     { "--insecure", NULL, "allow other machines without --auth" },
                     { "--config", "FILE", "read options from this file, too" } },
        .run = serve_run,
    },
    {
        .name = "dev",
        .arguments = "",
        .doc = "run a server in memory, to try things out",
        .help = "Prints the address of its page and three lines to paste: they push a job, work\n"
                "on it and look at the stages. Listens on this machine only; if a default port is\n"
                "in use, at the next free one, and the lines then have the right --at. After that\n"
                "only warnings are printed. Ctrl-C ends it; its jobs are gone then. Use millrace\n"
                "serve to keep them.\n"
                "\n"
                "With --sample it has five stages that are busy: slow jobs, jobs that fail (dead\n"
                "letters, parked keys), a tenant that floods while others have their turns, a\n"
                "worker that finds its level, and a schedule whose jobs emit others. They are\n"
                "worked on by a second process, which ends with the first.\n"
                "\n"
                "With --json the first line of stdout is an object: url, page, push, work, look.\n"
                "Exits with 0 after Ctrl-C or SIGTERM, 3 if an address that was set is in use.\n",
        .examples = "millrace dev\n"
                    "millrace dev --sample\n"
                    "    with stages to look at: millrace why, dead, channels, top\n"
                    "millrace dev --listen 127.0.0.1:0 --http off --json\n"
                    "    for a test: on a free port, which is in the first line\n",
        .options = { { "--sample", NULL, "have five busy stages to look at" },
                     { "--listen", "HOST:PORT",
                       "where clients connect (" CLI_LISTEN ", or the next)" },
                     { "--http", "HOST:PORT", "the page, or off (" CLI_HTTP ", or the next)" },
                     { "--log-level", "LEVEL", "error, warn, info or debug (warn)" },
                     { "--json", NULL, "print the addresses and lines as JSON" } },
        .run = dev_run,
    },
    {
        .name = "run",
        .arguments = "-- COMMAND...",
        .runs_command = true,
        .doc = "run a command for each line of stdin",
        .help =
            "Like xargs -d '\\n' -n 1 -r, without a server: one job for each line. It finds by\n"
            "itself how many commands at once are fastest. The line is appended as the last\n"
            "argument, unless a placeholder marks another place or --stdin is given (without\n"
            "it the command's stdin is empty):\n"
            "\n"
            "    {}     the line                  {.}   without its extension\n"
            "    {/}    its last component        {/.}  that, without its extension\n"
            "    {//}   the directory before it   {#}   its number\n"
            "    {key}  its key\n"
            "\n"
            "A line is never inserted into a script: in sh -c 'SCRIPT' a placeholder becomes\n"
            "a variable, as if it were \"$1\". There it must be an argument of a command with\n"
            "a plain name; it is refused where a shell would not expand it, or would run,\n"
            "assign or evaluate it, and in scripts of other programs (python -c, awk, ssh).\n"
            "Lines that begin with - would be taken for options: put -- before {} for\n"
            "commands that support it.\n"
            "\n"
            "With -n N a command gets up to N lines as arguments: where an argument is {} and\n"
            "no more, else at the end; with --stdin as lines of its stdin. It gets fewer at\n"
            "the end of the input, before a line with another key (only lines that follow\n"
            "each other share a command), and beyond 128 KiB. Such a group counts as one line\n"
            "in {#}, in messages, in --results, and when it fails.\n"
            "\n"
            "Lines with the same key run one after another, in order. A line without a key is\n"
            "reported and has no order. The output of a command is printed when it has ended,\n"
            "never mixed with others; of a retried line only the last attempt is printed.\n"
            "Input is read only as fast as it is processed, so it may have any length.\n"
            "\n"
            "A line fails if its command exits with a code other than 0, is killed or takes\n"
            "too long. With --halt never (the default) all other lines still run, also later\n"
            "ones of the same key. --halt soon starts no more lines after the first failure;\n"
            "--halt now also ends the running ones.\n"
            "\n"
            "--delay, --load and --memfree hold back commands before they start. While none\n"
            "runs, one is started whatever the load and the memory.\n"
            "\n"
            "--dry-run prints each command as a shell would read it, in the order of the\n"
            "lines, and starts none. --tag begins each line of output with the input line and\n"
            "a tab; --results keeps the output without it.\n"
            "\n"
            "Commands have MILLRACE_KEY, MILLRACE_ATTEMPT and others in their environment;\n"
            "they can use millrace state, and millrace emit run to add lines.\n"
            "\n"
            "--results makes a directory for each line, named by its number: DIR/1/stdout,\n"
            "DIR/1/stderr and DIR/1/status. The status is one line: the exit code as in a\n"
            "shell (128 + signal, 124 for --timeout, 127 and 126 if it cannot be started)\n"
            "and, after a failure, a space and the reason. DIR must be new or empty, unless a\n"
            "journal is continued.\n"
            "\n"
            "After Ctrl-C no more lines are read or started, and running ones may finish; a\n"
            "second Ctrl-C ends those, too (TERM, and KILL after 2 s). With --journal, the\n"
            "same command with the same input then continues: lines that have finished or\n"
            "failed are not run or printed again; so redirect with >>, since > would empty\n"
            "the file, or use --results. After a crash, lines that were running run again;\n"
            "output that was just being printed may appear twice (with --keep-order that of\n"
            "one line at most).\n"
            "\n"
            "A journal is removed when all its lines are done. If some have failed it stays:\n"
            "DIR/failed lists them (number, reason, line), and the same command runs only\n"
            "those again. After an interruption it goes on with the rest and leaves lines\n"
            "that failed as they are; --retry-failed runs them again as well. It refuses a\n"
            "directory without a journal, where it would run everything.\n"
            "\n"
            "Exits 0 if every line is done, 1 if any failed, 2 if the command cannot be run,\n"
            "3 if journal or results cannot be opened, 124 if the deadline has passed, 130 if\n"
            "interrupted or if the reader of the output has closed it.\n",
        .examples = "seq 10 | millrace run -- echo\n"
                    "find . -name '*.png' -print0 |\n"
                    "  millrace run -0 --key-regex '/([^/]+)/' -- convert {} {.}.jpg\n"
                    "    one picture of a directory at a time\n"
                    "millrace run --journal urls.run --retries 5 -- wget -q <urls.txt\n"
                    "    after a crash, the same command continues\n"
                    "ls | millrace run -n 50 --dry-run -- chmod a-w\n"
                    "    shows which files each command would get\n",
        .options = { JOBS,
                     { "--key-field", "N", "the key is the Nth word of the line" },
                     { "--key-regex", "RE", "the key is what RE matches, or its first group" },
                     { "--key-json", "NAME", "the key is the member NAME of a JSON line" },
                     { "-0", NULL, "lines end with a 0 byte, as of find -print0" },
                     { "-d, --delimiter", "C", "lines end with this character, not a newline" },
                     { "-n, --max-args", "N", "up to N lines for one command (1)" },
                     { "--stdin", NULL, "the line is the command's stdin" },
                     { "--retries", "N", "try a line that fails N more times (0)" },
                     { "--timeout", "D", "end a command that takes longer: 30s, 5m" },
                     { "--deadline", "D", "end everything after this time" },
                     { "--delay", "D", "at least this time between two starts" },
                     { "--load", "N", "start none while the load is above N (or N% of CPUs)" },
                     { "--memfree", "SIZE", "start none while less memory is available: 2G" },
                     { "--journal", "DIR", "keep the progress in this directory" },
                     { "--retry-failed", NULL, "run lines again that failed before" },
                     { "-k, --keep-order", NULL, "print output in the order of the lines" },
                     { "--halt", "WHEN", "end after a failure: never (default), soon, now" },
                     { "--progress", NULL, "show a bar (default if only stderr is a terminal)" },
                     { "--results", "DIR", "also store the output and status of each line" },
                     { "--tag", NULL, "begin each line of output with the input line" },
                     { "--dry-run", NULL, "print the commands, and run none" },
                     { "--json", NULL, "the last line of stderr: a summary, and failed lines" } },
        .run = run_run,
    },
    {
        .name = "flow",
        .arguments = "FILE",
        .least = 1,
        .most = 1,
        .doc = "run a pipeline of steps that a file describes",
        .help = "FILE is YAML and describes the source of lines, the steps that process them and\n"
                "the sinks that store the results. docs/flows.md describes it; this counts words:\n"
                "\n"
                "    flow: words\n"
                "    source: { lines: text.txt }\n"
                "    steps:\n"
                "      - { name: split, flat_map: words }\n"
                "      - { name: count, aggregate: count, key: field 1 }\n"
                "    sink: { file: counts.tsv }\n"
                "\n"
                "A step is a command ([./command]: a process for each line, or with mode: filter\n"
                "one process for many lines) or a built-in operator. Each step finds its number\n"
                "of concurrent jobs by itself; input is read only as fast as it is processed.\n"
                "Names in FILE are relative to its directory, and commands run there.\n"
                "\n"
                "Every line counts exactly once, in aggregates and files, even if a step, this\n"
                "command or the machine crashes. After Ctrl-C (or TERM) no more input is read and\n"
                "running jobs may finish, but a filter that does not answer for 5 s is ended; a\n"
                "second Ctrl-C ends all. The same command then continues: the progress is kept in\n"
                "the directory NAME.journal beside FILE (in the current directory if FILE is a\n"
                "pipe, as <(...) is). A flow that has finished starts from the beginning.\n"
                "\n"
                "A line that fails is tried again, as its step says. When it has used up its\n"
                "attempts it becomes a dead job (on-dead: skip), or stops the flow (on-dead:\n"
                "halt); running the flow again then tries that line again.\n"
                "\n"
                "Exits 0 if every line was processed, 1 if any died, 2 if FILE is invalid, 3 if\n"
                "the engine cannot be reached or opened, 130 if interrupted.\n",
        .examples = "millrace flow --check words.yaml\n"
                    "    reports every mistake by line and column, and runs nothing\n"
                    "millrace flow --graph words.yaml\n"
                    "millrace flow words.yaml\n"
                    "millrace flow --at millrace://db1:7411 campaign.yaml\n"
                    "    jobs and progress are on a server, where others can see them\n",
        .options = { { "--check", NULL, "only report mistakes in FILE" },
                     { "--graph", NULL, "only draw it" },
                     { "--journal", "DIR", "keep the progress in this directory" },
                     { "--at", "URL", "run it on this engine, which keeps the progress" },
                     TLS,
                     { "--fresh", NULL, "discard the progress and start again" },
                     { "--progress", NULL, "show the progress of each step, and a summary" },
                     { "--json", NULL, "the last line of stderr is a summary in JSON" } },
        .run = flow_run,
    },
    {
        .name = "work",
        .arguments = "STAGE... (-- COMMAND... | --http URL)",
        .least = 1,
        .most = CLI_ANY,
        .runs_command = true,
        .instead = "--http",
        .doc = "take jobs; run a command or send a request for each",
        .help = "Takes jobs of the stages, in the order in which these are given, and runs the\n"
                "command for each job. It finds by itself how many commands at once are fastest.\n"
                "The body is the command's stdin, or replaces {}; {key} and {id} are the job's.\n"
                "In a script (--shell or sh -c) they become variables: no part of a job is\n"
                "interpreted as a script. Put -- before {} if a body may begin with -. The\n"
                "command's stdout is the job's result. Exit code 0 commits; any other end is a\n"
                "failed attempt, which the stage repeats or not. stderr is passed on at once; its\n"
                "last line becomes part of the reason of a failed attempt, and its last 4 KiB are\n"
                "kept beside it (millrace job ID). If the server cannot be reached, the command\n"
                "says so and waits for it.\n"
                "\n"
                "MILLRACE_ID, MILLRACE_KEY, MILLRACE_STAGE, MILLRACE_ATTEMPT and, if there is a\n"
                "deadline, MILLRACE_DEADLINE_MS, and MILLRACE_META if the job has metadata (up to\n"
                "a 0 byte in it), are in the command's environment; it can run millrace emit,\n"
                "state, snooze and progress. When a job is cancelled, expires or loses its lease,\n"
                "its processes are ended (TERM, then KILL). Processes that a command has left\n"
                "running are killed when it has ended, also in another session (setsid), unless\n"
                "they have cleared their environment or changed the user.\n"
                "\n"
                "With --http each job is sent to URL by POST instead, its body as the body of the\n"
                "request, with headers Millrace-Id, -Stage, -Key, -Attempt, -Deadline-Ms, -Meta\n"
                "and the traceparent of the metadata. A response 2xx commits, and its body is the\n"
                "result; 429 and 503 give the job back for as long as Retry-After says, and no\n"
                "attempt counts; other 4xx, except 408 and 425, make it dead; everything else is\n"
                "a failed attempt. A request ends with its job, or after --timeout (30s).\n"
                "Redirects are not followed. See docs/webhooks.md.\n"
                "\n"
                "After Ctrl-C no more jobs are taken and running ones may finish; a second Ctrl-C\n"
                "ends those, and their jobs are given back. Exits 130 then, 2 if there is no such\n"
                "command, 3 without an engine.\n",
        .examples = "millrace work mail -- ./send\n"
                    "    ./send reads a job's body from stdin\n"
                    "millrace work urgent mail --jobs 4 --timeout 30s -- ./send --to {key}\n"
                    "millrace work thumbs --shell -- 'convert - -scale 100 png:- | base64'\n"
                    "millrace work mail --http http://localhost:8080/jobs\n"
                    "millrace work mail --http https://app.example/ --header @secret.txt\n"
                    "    secret.txt has lines such as Authorization: Bearer ...\n",
        .options = { AT,
                     JOBS,
                     { "--timeout", "DURATION", "an attempt may take this long" },
                     { "--lease", "DURATION", "the lease of a job (policy of the stage)" },
                     { "--batch", "N", "jobs of one key taken together (1)" },
                     { "--shell", NULL, "the command is a script for sh" },
                     { "--http", "URL", "send each job to it instead of running a command" },
                     { "--header", "LINE...", "'NAME: VALUE' of requests; @FILE: a line each" },
                     { "--sign-key", "FILE", "sign requests (Standard Webhooks) with its key" } },
        .run = work_run,
    },
    {
        .name = "emit",
        .arguments = "STAGE [BODY]",
        .least = 1,
        .most = 2,
        .doc = "push a job when the running job commits",
        .help = "For commands of millrace work, run or flow: the commit that ends the running job\n"
                "also pushes a new job of STAGE. If the running job fails, it is not pushed.\n"
                "Without BODY, or with -, the body is read from stdin, which may be the body of\n"
                "the running job.\n"
                "\n"
                "A job may call this up to 1,000 times, also at the same time. Outside a job it\n"
                "exits with 2; use millrace push there.\n",
        .examples = "millrace emit thumbnails --key \"$MILLRACE_KEY\" small.jpg\n"
                    "millrace emit mail --keep-meta 'done'\n"
                    "sort | millrace emit sorted\n",
        .options = { { "--key", "K", "the key of the new job" },
                     { "--meta", "TEXT", "metadata that its worker gets beside the body" },
                     { "--keep-meta", NULL, "the metadata of the running job" } },
        .run = emit_run,
    },
    {
        .name = "state",
        .arguments = "",
        .doc = "show or set the state of the running job's key",
        .help = "For commands of millrace work, run or flow: prints the state of the job's key,\n"
                "as earlier jobs of the key have set it. With --set, the commit that ends the job\n"
                "replaces it; an empty state deletes it; if the job fails, it is unchanged. Jobs\n"
                "of one key run one after another, so no other job changes it meanwhile. Without\n"
                "--set it prints the state at the start of the job, also after --set.\n"
                "\n"
                "A state has at most 1 MiB, of any bytes. Outside a job it exits with 2.\n",
        .examples = "millrace state\n"
                    "echo $(($(millrace state) + 1)) | millrace state --set -\n"
                    "    counts the jobs of the key\n",
        .options = { { "--set", "STATE", "the new state; - reads it from stdin" } },
        .run = state_run,
    },
    {
        .name = "snooze",
        .arguments = "DURATION",
        .least = 1,
        .most = 1,
        .doc = "give the running job back and try it again later",
        .help = "For commands of millrace work: when the command then exits with 0, its job is\n"
                "not committed but given back, and it may start again after this time. It keeps\n"
                "its place before the other jobs of its key, which wait with it, and no attempt\n"
                "counts. Its result, and what it emits and sets, are discarded. If the command\n"
                "exits with another code, that is a failed attempt as usual.\n"
                "\n"
                "In commands of millrace run or flow the attempt fails. Outside a job it exits\n"
                "with 2.\n",
        .examples = "millrace snooze 10m\n"
                    "./send || millrace snooze 10m\n"
                    "    if it cannot be sent, tries again in ten minutes\n",
        .run = snooze_run,
    },
    {
        .name = "progress",
        .arguments = "DONE TOTAL [TEXT]",
        .least = 2,
        .most = 3,
        .doc = "say how far the running job is",
        .help = "For commands of millrace work, run or flow: DONE of TOTAL is done, and TEXT says\n"
                "what the command is doing. A TOTAL of 0 is not known. While the job runs, its\n"
                "progress is shown by millrace job, jobs and top, on the page and by the bar of\n"
                "millrace run. The worker looks for it once a second, so that a command may call\n"
                "this as often as it likes; only the last call counts. Nothing of it is recorded:\n"
                "it is gone when the attempt ends.\n"
                "\n"
                "TEXT is one line of 200 bytes at most; what is longer is cut. Outside a job it\n"
                "exits with 2.\n",
        .examples = "millrace progress 3 10 'attachments'\n"
                    "millrace progress 512 0\n"
                    "    512 are done, of a number that is not known yet\n",
        .run = job_progress_run,
    },
    { 0 },
};

static const struct cli_command store_commands[] = {
    {
        .name = "store check",
        .arguments = "URL",
        .least = 1,
        .most = 1,
        .doc = "examine a store without starting it",
        .help = "Reads the whole store that URL names (file:DIR, or postgres://USER@HOST/DB or\n"
                "nats://HOST for a cluster), changes nothing, and reports damage: the frame and\n"
                "checksum of every entry, bodies included, and whether the records together form\n"
                "a valid state.\n"
                "Also lists the content; \"live\" is what a copy would keep.\n"
                "\n"
                "Exits 0 if the store is undamaged, 1 if not (every problem is listed with file\n"
                "and offset, or shard and position), 3 if it cannot be opened. A torn end after a\n"
                "crash is no damage: no reply was sent for it. A store in use can be checked: the\n"
                "result is then of a moment ago, and 3 means that a directory changes too fast.\n"
                "Of a cluster, 2 means that it was not made, 4 that the store refuses this user.\n",
        .examples = "millrace store check file:./data\n"
                    "millrace store check file:./data --json | jq .stages\n"
                    "millrace store check postgres://localhost/app --cluster eu\n",
        .options = { { "--cluster", "NAME", "of postgres: or nats:, which one (main)" }, JSON },
        .run = store_check_run,
    },
    {
        .name = "store dump",
        .arguments = "URL",
        .least = 1,
        .most = 1,
        .doc = "show the entries of a store, one a line",
        .help = "Prints position, time (UTC), kind and content of every entry in the store, the\n"
                "oldest first; \"copy\" marks entries that the cleaner has moved. Several filters\n"
                "can be combined. Of bodies, results and states only the size is printed; --body\n"
                "prints them, with everything but printable text escaped. Changes nothing; a\n"
                "store in use can be dumped. URL is file:DIR, or postgres://USER@HOST/DB or\n"
                "nats://HOST for a cluster.\n"
                "\n"
                "With several shards each line begins with the number of its shard; positions and\n"
                "order are per shard.\n"
                "\n"
                "With --json every line is an object. Ids are strings. Bytes that are not UTF-8\n"
                "are base64, in a member whose name ends in -base64.\n",
        .examples = "millrace store dump file:./data\n"
                    "millrace store dump file:./data --id 17 --body\n"
                    "    the history of job 17\n"
                    "millrace store dump file:./data --stage mail --json | jq .kind\n",
        .options = { { "--cluster", "NAME", "of postgres: or nats:, which one (main)" },
                     { "--from", "POSITION", "begin at this position" },
                     { "--stage", "STAGE", "only what concerns this stage" },
                     { "--id", "ID", "only what concerns this job" },
                     { "--shard", "N", "only entries of this shard, counted from 0" },
                     { "--body", NULL, "show bodies, results and states" },
                     JSON },
        .run = store_dump_run,
    },
    {
        .name = "store repair",
        .arguments = "URL",
        .least = 1,
        .most = 1,
        .doc = "repair a damaged store",
        .help = "Discards what cannot be read and keeps everything else. It first copies a\n"
                "damaged segment to NUMBER.seg.damaged in the same directory, which needs disk\n"
                "space, then changes it in place. After an interruption, run it again. An\n"
                "undamaged store is not changed.\n"
                "\n"
                "A stage whose name was lost is called lost-NUMBER and has default policies. If\n"
                "anything was lost, new ids start far above the highest known one, so that no id\n"
                "is used twice. Jobs in the lost parts are gone; a job whose end was lost may run\n"
                "again. The store must not be in use.\n",
        .examples = "millrace store repair file:./data --dry-run\n"
                    "    lists the damage and the changes\n"
                    "millrace store repair file:./data\n",
        .options = { { "--dry-run", NULL, "only say what would be done" }, JSON },
        .run = store_repair_run,
    },
    {
        .name = "store copy",
        .arguments = "FROM TO",
        .least = 2,
        .most = 2,
        .doc = "copy the live content of a store into a new one",
        .help = "Copies jobs in their order, results, states, names given with --once, policies,\n"
                "counters and epics from FROM to TO, without what is no longer needed, so the\n"
                "copy can be much smaller. FROM and TO are file:DIR, or postgres://USER@HOST/DB\n"
                "or nats://HOST for a cluster; FROM may also be millrace://HOST, a running\n"
                "server. FROM is not changed.\n"
                "\n"
                "A directory that is copied must not be in use. A server goes on serving, and so\n"
                "does a cluster: the copy is of the moment when it began, the same for all\n"
                "shards. The token for a server needs the role admin for all stages; until the\n"
                "copy is complete the server keeps what it would remove from its logs. In NATS\n"
                "there is such a moment only while no shard changes; a copy waits ten seconds\n"
                "for one.\n"
                "\n"
                "TO must be new or empty: a missing or empty directory, or a cluster that was\n"
                "made (millrace store init) and never used. With --shards it has that many\n"
                "shards, and a missing cluster is made; ids stay the same. A copy that ends\n"
                "early leaves nothing in TO: a directory gets its name, and a cluster its\n"
                "content, when everything was written and checked. If a copy into NATS is killed,\n"
                "nodes refuse the cluster until the copy was repeated.\n"
                "\n"
                "Both stores then have the same jobs: use only one of them, or each job will run\n"
                "twice. Exits 1 if FROM is damaged, 3 if a store cannot be opened or TO holds\n"
                "something, 5 if the disk is full. Of a cluster, 2 means that it was not made or\n"
                "has another number of shards, 4 that the store refuses this user.\n",
        .examples = "millrace store copy file:./data file:/backup/data\n"
                    "millrace store copy millrace://127.0.0.1:7411 file:/backup/today\n"
                    "    a backup of a server while it serves\n"
                    "millrace store copy file:./data file:./spread --shards 4\n"
                    "millrace store copy postgres://localhost/app file:/backup/today\n"
                    "    a backup of a cluster, also while it serves\n"
                    "millrace store copy file:./data postgres://localhost/app --shards 4\n"
                    "    to grow from one machine to a cluster\n",
        .options = { { "--cluster", "NAME", "of the cluster, which one (main); of both: FROM" },
                     { "--to-cluster", "NAME", "which one TO is (main)" },
                     { "--shards", "N", "shards of the copy (those of FROM, or of the cluster)" },
                     TLS,
                     JSON },
        .run = store_copy_run,
    },
    {
        .name = "store init",
        .arguments = "URL",
        .least = 1,
        .most = 1,
        .doc = "make the store of a cluster in a database or NATS",
        .help = "Makes the tables of a cluster in the PostgreSQL database that URL names, in a\n"
                "schema of their own (millrace_NAME), or upgrades those of an older version of\n"
                "millrace; or its streams in NATS JetStream (millrace-NAME-SHARD). Repeating it\n"
                "changes nothing. The nodes need the rights of the user who has made them.\n"
                "\n"
                "Streams have three replicas if URL names three servers or more, else one;\n"
                "nats://HOST?replicas=N chooses another number.\n"
                "\n"
                "Exits 0 if the store is there, 2 if it is there but not as wanted, 3 if it\n"
                "cannot be reached, 4 if it refuses this user.\n",
        .examples = "millrace store init postgres://localhost/app\n"
                    "millrace store init postgres://localhost/app --cluster eu --shards 4\n"
                    "millrace store init nats://a,b,c\n",
        .options = { { "--cluster", "NAME", "a to z, 0 to 9 and _ (main)" },
                     { "--shards", "N", "number of logs (1)" } },
        .run = store_init_run,
    },
    { 0 },
};

static const struct cli_command help_commands[] = {
    {
        .name = "help",
        .arguments = "[COMMAND]",
        .most = 2,
        .doc = "explain the commands",
        .help = "Without COMMAND, lists all commands; with it, explains that one. The option\n"
                "--help after any command does the same.\n",
        .examples = "millrace help\n"
                    "millrace help store check\n",
        .options = { { "--man", NULL, "print the man page, of all or of COMMAND" },
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
    { "Stages", looks_commands },
    { "Inbox", inbox_commands },
    { "Access", auth_commands },
    { "Stores", store_commands },
    { "Clusters", cluster_commands },
    { "Help", help_commands },
    { 0 },
};

const struct cli_command *command_at(size_t index) {
    for (const struct chapter *chapter = chapters; chapter->title; chapter++)
        for (const struct cli_command *c = chapter->commands; c->name; c++)
            if (index-- == 0)
                return c;
    return NULL;
}
