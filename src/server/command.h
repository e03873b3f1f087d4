// Command: a row of a table for each. The row decides how many words it takes, which role it needs
// and how it is documented (COMMAND DOCS, docs/protocol.md).
//
//     arguments ─► command_run: which row? may it? enough? ─► options_read ─► row->run ─► reply
//
// A command answers exactly once: at once, or later if it waits (wait.h).
#ifndef SERVER_COMMAND_H
#define SERVER_COMMAND_H

#include "server/session.h"

// What a command is about: this decides whether a token may run it, where the first word is enough
// to know (else the command calls access.h itself), and which loops of the server run it
// (router.h).
enum scope {
    SCOPE_NONE,   // no stage
    SCOPE_STAGE,  // the stage that its first word names
    SCOPE_JOB,    // the job whose id is its first word
    SCOPE_STAGES, // the stages that its first words name: TAKE
    SCOPE_LEASES, // ids and tokens: BEAT, DONEMANY
    SCOPE_JOBS,   // ids, or STAGE and its name: RETRY, DROP
    SCOPE_EITHER, // a stage or an id: WHY
    SCOPE_LIST,   // rows of all stages, or of those that its options name
    SCOPE_SERVER, // the server: INFO
    SCOPE_CLIENT, // a connection: CLIENT
    SCOPE_SHARD,  // a shard, if its first word is a number: BACKUP
};

// What happens to a command between MULTI and EXEC.
enum in_multi {
    MULTI_REFUSED, // it may wait, or changes the identity of the client
    MULTI_QUEUED,  // it is queued; its arguments are checked when it runs
    MULTI_CHECKED, // it is queued, and `run` checks its arguments when it is queued; `run` must do
                   // that first, and do nothing else in a session that only checks
    MULTI_RUN,     // it runs at once
};

enum option_kind {
    OPTION_FLAG,    // bool
    OPTION_BYTES,   // mr_bytes
    OPTION_COUNT,   // uint32_t
    OPTION_NUMBER,  // uint64_t
    OPTION_MS,      // int64_t
    OPTION_WAIT,    // int64_t; -1: for ever
    OPTION_NUMBERED // struct numbered: two words, a name and a number
};

struct numbered {
    mr_bytes name;
    uint64_t number;
};

struct option {
    const char *name;
    enum option_kind kind;
    size_t offset; // in the command's struct of options
};

struct arguments {
    const mr_bytes *words; // the first is the command's name
    uint32_t count;
    uint32_t at; // index of the next word
};

struct command {
    const char *name;
    uint32_t least, most; // number of arguments; most 0: any number
    enum role role;
    enum scope scope;
    bool changes; // it writes to the log: refused once the log has failed
    enum in_multi in_multi;
    bool large; // it may be much work: a busy turn defers it
    void (*run)(struct session *, struct arguments *);
    const char *syntax; // of its arguments
    const char *reply;
    const char *doc;
};

extern const struct command command_table[]; // ends with a row without a name

// Runs the command in `words`; there is at least one word.
void command_run(struct session *, const mr_bytes *words, uint32_t count);
// Continues the command that has waited.
void command_resume(struct session *);
// Runs a command without counting its reply: for command_resume.
void command_begin(struct session *, const mr_bytes *words, uint32_t count);

// Runs a command without counting it or its reply. The row is NULL for an unknown command. In a
// session with `checks` set it only checks whether the command must be refused.
void command_try(struct session *, const struct command *, const mr_bytes *words, uint32_t count);

// Whether the command is to be queued after MULTI; queues it, or refuses it.
bool multi_queues(const struct session *, const struct command *);
void multi_queue(struct session *, const struct command *, const mr_bytes *words, uint32_t count);

// Refuses a command that cannot be queued, or whose arguments are wrong.
void multi_check(struct session *, const struct command *, struct arguments *);

// Whether the session is within EXEC, also while one of its commands waits. multi_go_on then runs
// the next commands; multi_wait does so in the next turn.
bool multi_is_running(const struct session *);
void multi_go_on(struct session *);
void multi_wait(struct session *);

// Whether the command may be run, judged by its name and, if present, its first argument; for HTTP,
// where these are known before the body has arrived. False: the session has the error as a reply,
// as command_run would have written it.
bool command_admit(struct session *, const mr_bytes *words, uint32_t count);

// Makes the hash table of names; must be called before other threads start.
void commands_prepare(void);
const struct command *command_row(mr_bytes name); // NULL: unknown

// The option of this name, case-insensitive; NULL: unknown.
const struct option *option_find(const struct option *options, mr_bytes word);

// Reads one option at `a->at` into `into`. 1: done; 0: the word is no option of these; -1: refused,
// and an error was answered.
int option_read(struct session *, struct arguments *a, const struct option *options, void *into);

// Answers that this word is not a value of an option, and what it needs.
void option_refuse(struct session *, const char *name, const char *needs, mr_bytes word);

// Reads all that is left as options. False: an error was answered, or the session only checks.
bool options_read(struct session *, struct arguments *, const struct option *, void *into);

// Makes options that refer to words of a command refer to the copies of these words.
void options_keep(const struct option *, void *options, const mr_bytes *words,
                  const struct kept_words *);

bool word_is(mr_bytes word, const char *name); // case-insensitive; `name` is in capitals
bool read_id(struct session *, mr_bytes word, uint64_t *out);
bool read_number(struct session *, mr_bytes word, const char *what, uint64_t *out);
uint32_t listed(uint32_t asked); // limits the number of rows of a reply

// ---- The commands, by file --------------------------------------------------------------------

void run_push(struct session *, struct arguments *); // command_push.c
extern const struct option push_options[];
void run_pushmany(struct session *, struct arguments *);
void run_call(struct session *, struct arguments *);
void run_await(struct session *, struct arguments *);

void run_take(struct session *, struct arguments *); // command_work.c
extern const struct option take_options[];
void run_done(struct session *, struct arguments *);
void run_donemany(struct session *, struct arguments *);
void run_fail(struct session *, struct arguments *);
void run_release(struct session *, struct arguments *);
void run_beat(struct session *, struct arguments *);
void run_progress(struct session *, struct arguments *);

void run_level(struct session *, struct arguments *);
void run_job(struct session *, struct arguments *); // command_job.c
void run_jobs(struct session *, struct arguments *);
void run_dead(struct session *, struct arguments *);

void run_stages(struct session *, struct arguments *); // command_look.c
void run_channels(struct session *, struct arguments *);
void run_workers(struct session *, struct arguments *);

void run_why(struct session *, struct arguments *); // command_why.c

void run_epic(struct session *, struct arguments *); // command_epic.c
void run_epics(struct session *, struct arguments *);

void run_schedule(struct session *, struct arguments *); // command_schedule.c
void run_schedules(struct session *, struct arguments *);

void run_retry(struct session *, struct arguments *); // command_act.c
void run_drop(struct session *, struct arguments *);
void run_cancel(struct session *, struct arguments *);
void run_due(struct session *, struct arguments *);
void run_pause(struct session *, struct arguments *);
void run_resume(struct session *, struct arguments *);
void run_drain(struct session *, struct arguments *);
void run_stage(struct session *, struct arguments *);

void run_multi(struct session *, struct arguments *); // command_multi.c
void run_exec(struct session *, struct arguments *);
void run_discard(struct session *, struct arguments *);

void run_auth(struct session *, struct arguments *); // command_connect.c
void run_hello(struct session *, struct arguments *);
void run_ping(struct session *, struct arguments *);
void run_echo(struct session *, struct arguments *);
void run_command(struct session *, struct arguments *);
void run_client(struct session *, struct arguments *);
void run_select(struct session *, struct arguments *);
void run_quit(struct session *, struct arguments *);
void run_elsewhere(struct session *,
                   struct arguments *); // commands of Redis that Millrace does not have
void run_browser(struct session *, struct arguments *);

void run_link(struct session *, struct arguments *); // command_cluster.c
void run_cluster(struct session *, struct arguments *);

void run_backup(struct session *, struct arguments *); // command_backup.c

void run_config(struct session *, struct arguments *); // command_config.c

void run_info(struct session *, struct arguments *); // command_info.c

#endif
