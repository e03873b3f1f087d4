// Core fixture: a bare core with a log in memory, and short functions for commands and
// expectations: push, take, done, expect_….
//
// Every command is also a test of recovery: after each one a second core is replayed from the
// records and must be equal; at the end of a test every prefix of the log is opened, and all
// jobs in it can still be finished. Each test runs in three modes, see RUN_CORE_TESTS:
//
//     MODE_PLAIN
//     MODE_CLEANED   after each command the whole log is copied to its end and trimmed
//     MODE_REFUSED   the records of each command are refused once: nothing may change; then again
//
// The default stage is "s", the default connection 0. Jobs are named by their bodies.
#ifndef TEST_SUPPORT_CORE_FIXTURE_H
#define TEST_SUPPORT_CORE_FIXTURE_H

#include "core_stages.h"
#include "error_name.h"

#include "base/errors.h"
#include "core/core.h"
#include "core/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum fixture_mode { MODE_PLAIN, MODE_CLEANED, MODE_REFUSED };

enum {
    FIXTURE_JOBS = 4096,
    FIXTURE_KEYS = 64,
    FIXTURE_CONNS = 4,
    FIXTURE_SLOTS = 8,
    FIXTURE_TEXT = 64
};

struct core_fixture_entry {
    uint64_t at;
    size_t head_size, body_size;
    uint8_t *bytes; // head, then body
    bool last;      // of its group
};

struct core_fixture_job {
    uint64_t id;
    char body[FIXTURE_TEXT];
    bool released; // its backoff comes from releases, which are not recorded
};

struct core_fixture_key {
    char stage[FIXTURE_TEXT], key[FIXTURE_TEXT];
};

struct core_fixture_note {
    uint64_t id;
    uint32_t attempt;
};

struct taken {
    uint64_t id;
    struct token token;
    uint32_t attempt;
    int64_t left_ms, lease_ms;
    char stage[FIXTURE_TEXT], key[FIXTURE_TEXT], body[FIXTURE_TEXT], state[FIXTURE_TEXT];
    char meta[FIXTURE_TEXT];
};

struct core_fixture {
    struct core *core;
    struct core_limits limits;
    uint32_t shards; // this core is the first of them
    uint64_t asked;  // the maker that the other shards were last asked about
    struct core_quotas quotas;
    enum fixture_mode mode;
    uint64_t now_ms, opens;
    struct core_fixture_entry *log;
    size_t log_count, log_capacity, appends;
    uint64_t log_end;
    bool unlike;  // a restart may rightly change what is visible now
    bool full;    // only the cleaner's records are accepted
    int refuse;   // answer to the next append; 0: none is refused
    bool refused; // an append was refused
    struct conn conns[FIXTURE_CONNS];
    struct taker takers[FIXTURE_SLOTS];
    struct caller callers[FIXTURE_SLOTS];
    struct pusher pushers[FIXTURE_SLOTS];
    struct watcher watchers[FIXTURE_SLOTS];
    bool unresponsive[FIXTURE_SLOTS];    // these takers refuse to be reserved
    struct taken granted[FIXTURE_SLOTS]; // the latest grants
    struct core_fixture_job jobs[FIXTURE_JOBS];
    size_t job_count;
    struct core_fixture_key keys[FIXTURE_KEYS];
    size_t key_count;
    char epics[FIXTURE_SLOTS][FIXTURE_TEXT];
    size_t epic_count;
    struct core_fixture_note running[FIXTURE_SLOTS];
    size_t running_count;
    FILE *events; // events of the core since the last expect_events
    char *events_text;
    size_t events_size;
    void (*on_record)(struct core_fixture *, const struct record *, mr_bytes body);
};

#define LATER_MS UINT64_C(1000000) // engine time at the beginning

struct core_fixture *core_fixture_create(enum fixture_mode, struct core_limits);
void core_fixture_destroy(struct core_fixture *);

// ---- For the fixture's own files --------------------------------------------------------------

int core_fixture_replay_into(const struct core_fixture *, size_t entries, struct core *);
// NULL: not kept.
const struct core_fixture_entry *core_fixture_entry_at(const struct core_fixture *, uint64_t at);
int core_fixture_sink_read(void *fixture, uint64_t at, struct buffer *out_body);
// As another version wrote it: then crash.
void core_fixture_log_add(struct core_fixture *, const struct record *);
void core_fixture_forget_log(struct core_fixture *, size_t entries);
void core_fixture_open(struct core_fixture *);
void core_fixture_close(struct core_fixture *);
struct core_fixture_job *core_fixture_job_of(struct core_fixture *, uint64_t id); // NULL: not met
void core_fixture_learn_job(struct core_fixture *, uint64_t id, mr_bytes body);
void core_fixture_learn_key(struct core_fixture *, mr_bytes stage, mr_bytes key);
void core_fixture_learn_epic(struct core_fixture *, const char *name);
void core_fixture_text(mr_bytes, char out[FIXTURE_TEXT]);
struct taken core_fixture_taken(struct core_fixture *, const struct grant *);

// Everything visible as text, which the caller frees. `restarted`: without what a restart changes.
char *core_fixture_view(struct core_fixture *, struct core *, bool restarted);
int core_fixture_view_order(struct core_fixture *, const char *key, FILE *out);
void core_fixture_expect_same(const char *what, const char *before, const char *after);
void core_fixture_check(const struct core *, const char *what);
void core_fixture_finish_every_prefix(struct core_fixture *);

// ---- For the list of tests --------------------------------------------------------------------

int core_fixture_setup(void **state);
int core_fixture_teardown(void **state);
int core_tests_run(const char *name, const struct CMUnitTest *, size_t count);

#define CORE_TEST(test)                                                                            \
    { #test, test, core_fixture_setup, core_fixture_teardown, NULL }
#define RUN_CORE_TESTS(tests) core_tests_run(__FILE__, tests, sizeof tests / sizeof *tests)

// For calls that must succeed, and for calls that must fail with a code.
#define must(call) must_be(__FILE__, __LINE__, #call, call, 0)
#define refused(code, call) must_be(__FILE__, __LINE__, #call, call, code)
void must_be(const char *file, int line, const char *what, int got, int expected);

// ---- Time, crashes ----------------------------------------------------------------------------

void pass_ms(struct core_fixture *, uint64_t ms);
void crash(struct core_fixture *);       // loss of power: only the log is left
void crash_noted(struct core_fixture *); // the engine died while these jobs ran
void clean(struct core_fixture *);       // the whole log
void replay(struct core_fixture *);      // a second core from the records is equal
void lose(struct core_fixture *, int conn);

// ---- Pushes and calls
// ---------------------------------------------------------------------------------

int try_push(struct core_fixture *, struct push, struct pushed *out);
uint64_t push_with(struct core_fixture *, struct push); // must be a new job
uint64_t push(struct core_fixture *, const char *key, const char *body);
uint64_t push_to(struct core_fixture *, const char *stage, const char *key, const char *body);
uint64_t push_once(struct core_fixture *, const char *key, const char *once, const char *body);
uint64_t call(struct core_fixture *, int caller, const char *once, const char *body,
              int64_t deadline_ms);
int push_number(struct core_fixture *, const char *epic, uint64_t number, const char *body);
int await(struct core_fixture *, int caller, uint64_t id, struct outcome *out);
void hang_up(struct core_fixture *, int caller);
bool cancel(struct core_fixture *, uint64_t id);

// ---- Takes and commits
// ------------------------------------------------------------------------------------

// As core_take; bodies and states are read. Returns how many, 0 for MR_EAGAIN.
size_t try_take(struct core_fixture *, struct take, struct taken *out);
struct taken take(struct core_fixture *);
struct taken take_from(struct core_fixture *, const char *stage);
size_t take_block(struct core_fixture *, uint32_t batch, struct taken *out);
void expect_take(struct core_fixture *, const char *body); // takes it and ends it
void expect_no_work(struct core_fixture *);
void wait_for_work(struct core_fixture *, int taker, const char *stage);
int try_done(struct core_fixture *, struct done);
int done_again(struct core_fixture *, struct taken);
void done(struct core_fixture *, struct taken);
void done_with(struct core_fixture *, struct taken, const char *result, const char *state);
void done_emit(struct core_fixture *, struct taken, const char *stage, const char *key,
               const char *body);
int fail_with(struct core_fixture *, struct taken, const char *reason, int64_t retry_ms);
void fail_job(struct core_fixture *, struct taken);
int find_unreadable(struct core_fixture *, struct taken); // for good
int release_job(struct core_fixture *, struct taken);
int snooze_job(struct core_fixture *, struct taken, int64_t delay_ms);
int beat(struct core_fixture *, struct taken);
int progress(struct core_fixture *, struct taken, uint64_t done, const char *text);

// ---- Operator commands
// -------------------------------------------------------------------------------------

int retry(struct core_fixture *, uint64_t id);
bool due(struct core_fixture *, uint64_t id); // whether it was changed
int drop(struct core_fixture *, uint64_t id);
int try_set(struct core_fixture *, const char *stage, const char *name, const char *value);
void set(struct core_fixture *, const char *name, const char *value);
void set_on(struct core_fixture *, const char *stage, const char *name, const char *value);
void pause_stage(struct core_fixture *, const char *stage);
void drain_stage(struct core_fixture *, const char *stage);
void resume_stage(struct core_fixture *, const char *stage);
int pause_key(struct core_fixture *, const char *key); // of stage s
int resume_key(struct core_fixture *, const char *key);
void link_stages(struct core_fixture *, const char *from, const char *to);
#define FIXTURE_EPICS "s" // the stage that epics belong to
int end_epic(struct core_fixture *, const char *name, uint64_t total);
int epic_then(struct core_fixture *, const char *name, const char *stage, const char *key,
              const char *body);
int cancel_epic(struct core_fixture *, const char *name);
int forget_epic(struct core_fixture *, const char *name, uint64_t after_ms);
int drop_epic(struct core_fixture *, const char *name);
int skip_number(struct core_fixture *, const char *name, uint64_t number);
int watch_epic(struct core_fixture *, int watcher, const char *name, int64_t left);

// ---- Schedules --------------------------------------------------------------------------------

// Without a stage in "s"; without a cron expression and an interval every second.
int try_schedule(struct core_fixture *, struct schedule_spec, uint64_t next_ms);
void schedule(struct core_fixture *, const char *name, const char *key, const char *body,
              uint64_t next_ms);
int drop_schedule(struct core_fixture *, const char *name);
int pause_schedule(struct core_fixture *, const char *name);
int resume_schedule(struct core_fixture *, const char *name, uint64_t next_ms);
int ask_schedule(struct core_fixture *, const char *name); // NOW
// The schedule that is due at this instant of the wall clock is moved on.
void run_tick(struct core_fixture *, uint64_t wall_ms, struct tick);
void expect_no_tick(struct core_fixture *, uint64_t wall_ms);
struct schedule_info look_schedule(struct core_fixture *, const char *name);

// ---- Links ------------------------------------------------------------------------------------

// At the beginning: this is the first of so many.
void in_shards(struct core_fixture *, uint32_t shards);
const char *stage_in(uint32_t shard, uint32_t shards); // one of that shard
int arrive(struct core_fixture *, uint32_t from, struct link_entry, const char *body);
void acked(struct core_fixture *, uint32_t to, uint64_t upto);
// The entries for that shard, in order: "3:body 7:body".
void expect_outbox(struct core_fixture *, uint32_t to, const char *entries);

// ---- Looking ----------------------------------------------------------------------------------

struct job_info look(struct core_fixture *, uint64_t id);
struct stage_info look_stage(struct core_fixture *, const char *stage);
struct epic_info look_epic(struct core_fixture *, const char *name);
const char *reason_of(struct core_fixture *, uint64_t id, size_t back); // 0: the latest
size_t records_of(struct core_fixture *, enum record_kind);
// The body it was pushed with.
const char *core_fixture_name(const struct core_fixture *, uint64_t id);
const char *core_fixture_read(struct core_fixture *, uint64_t at); // a body, until the next call

void expect_state(struct core_fixture *, const char *key, enum channel_state);
void expect_unknown(struct core_fixture *, const char *key);
void expect_order(struct core_fixture *, const char *key, const char *bodies); // "a b c"
void expect_status(struct core_fixture *, uint64_t id, enum job_status);
void expect_held(struct core_fixture *, const char *stage, const char *why);
void expect_events(struct core_fixture *, const char *lines); // since the last time

#endif
