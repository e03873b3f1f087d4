// Tale: the bare core with a log in memory, told in short sentences: push, take, done, expect.
//
// Every sentence is broken as it is told. After each one a second core is made from the records
// alone and must look the same; at the end every prefix of the log is opened, and everything in it
// can still be finished. And each test is told three times, see TALES:
//
//     TOLD_PLAINLY
//     TOLD_CLEANED   after each sentence the whole log is copied to its end and given up
//     TOLD_REFUSED   each sentence's records are refused at first: nothing has changed; said again
//
// Unless they say otherwise sentences are about stage "s" and connection 0. Bodies name jobs.
#ifndef TEST_TALE_H
#define TEST_TALE_H

#include "base/errors.h"
#include "core/core.h"
#include "core/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum telling { TOLD_PLAINLY, TOLD_CLEANED, TOLD_REFUSED };

enum { TALE_JOBS = 4096, TALE_KEYS = 64, TALE_CONNS = 4, TALE_SEATS = 8, TALE_TEXT = 64 };

struct tale_entry {
    uint64_t at;
    size_t head_size, body_size;
    uint8_t *bytes; // head, then body
    bool last;      // of its group
};

struct tale_job {
    uint64_t id;
    char body[TALE_TEXT];
    bool released; // its backoff comes from releases, which are not recorded
};

struct tale_key {
    char stage[TALE_TEXT], key[TALE_TEXT];
};

struct tale_note {
    uint64_t id;
    uint32_t attempt;
};

struct taken {
    uint64_t id;
    struct token token;
    uint32_t attempt;
    int64_t left_ms, lease_ms;
    char stage[TALE_TEXT], key[TALE_TEXT], body[TALE_TEXT], state[TALE_TEXT];
};

struct tale {
    struct core *core;
    struct core_limits limits;
    uint32_t shards; // of which this is the first
    enum telling telling;
    uint64_t now_ms, opens;
    struct tale_entry *log;
    size_t log_count, log_capacity, appends;
    uint64_t log_end;
    bool unlike;  // a restart would change what can be seen now, and rightly so
    bool full;    // only the cleaner's records are taken
    int refuse;   // answer to the next append; 0: none is refused
    bool refused; // one was
    struct conn conns[TALE_CONNS];
    struct taker takers[TALE_SEATS];
    struct caller callers[TALE_SEATS];
    struct pusher pushers[TALE_SEATS];
    struct watcher watchers[TALE_SEATS];
    bool deaf[TALE_SEATS];            // these takers do not answer when claimed
    struct taken granted[TALE_SEATS]; // what they were given last
    struct tale_job jobs[TALE_JOBS];
    size_t job_count;
    struct tale_key keys[TALE_KEYS];
    size_t key_count;
    char epics[TALE_SEATS][TALE_TEXT];
    size_t epic_count;
    struct tale_note running[TALE_SEATS];
    size_t running_count;
    FILE *said; // what the core has told since expect_said
    char *said_text;
    size_t said_size;
    void (*on_record)(struct tale *, const struct record *, mr_bytes body);
};

#define LATER_MS UINT64_C(1000000) // engine time at the beginning

struct tale *tale_create(enum telling, struct core_limits);
void tale_destroy(struct tale *);

// ---- For the files of the tale only -----------------------------------------------------------

int tale_replay_into(const struct tale *, size_t entries, struct core *);
const struct tale_entry *tale_entry_at(const struct tale *, uint64_t at); // NULL: not kept
int tale_sink_read(void *tale, uint64_t at, struct buffer *out_body);
void tale_log_add(struct tale *, const struct record *); // as another version wrote it: then crash
void tale_forget_log(struct tale *, size_t entries);
void tale_open(struct tale *);
void tale_close(struct tale *);
struct tale_job *tale_job_of(struct tale *, uint64_t id); // NULL: not met
void tale_meet_job(struct tale *, uint64_t id, mr_bytes body);
void tale_meet_key(struct tale *, mr_bytes stage, mr_bytes key);
void tale_meet_epic(struct tale *, const char *name);
void tale_text(mr_bytes, char out[TALE_TEXT]);
struct taken tale_taken(struct tale *, const struct grant *);

// Everything visible as a text, which the caller frees. `restarted`: without what a restart
// changes.
char *tale_view(struct tale *, struct core *, bool restarted);
int tale_view_order(struct tale *, const char *key, FILE *out);
void tale_expect_same(const char *what, const char *before, const char *after);
void tale_check(const struct core *, const char *what);
void tale_finish_every_prefix(struct tale *);

// ---- For the list of tests ----------------------------------------------------------------------

int tale_setup(void **state);
int tale_teardown(void **state);
int tales_run(const char *name, const struct CMUnitTest *, size_t count);

#define TALE(test)                                                                                 \
    { #test, test, tale_setup, tale_teardown, NULL }
#define TALES(tests) tales_run(__FILE__, tests, sizeof tests / sizeof *tests)

// Calls that must succeed say why when they do not; calls that must be refused say something.
#define must(call) must_be(__FILE__, __LINE__, #call, call, 0)
#define refused(code, call) must_be(__FILE__, __LINE__, #call, call, code)
void must_be(const char *file, int line, const char *what, int got, int expected);

// ---- Time, crashes ------------------------------------------------------------------------------

void pass_ms(struct tale *, uint64_t ms);
void crash(struct tale *);       // power is lost: the log is all there is
void crash_noted(struct tale *); // the engine died of what was running
void clean(struct tale *);       // the whole log
void replay(struct tale *);      // a second core from the records looks the same
void lose(struct tale *, int conn);

// ---- Handing in ---------------------------------------------------------------------------------

int try_push(struct tale *, struct push, struct pushed *out);
uint64_t push_with(struct tale *, struct push); // must be a new job
uint64_t push(struct tale *, const char *key, const char *body);
uint64_t push_to(struct tale *, const char *stage, const char *key, const char *body);
uint64_t push_once(struct tale *, const char *key, const char *once, const char *body);
uint64_t call(struct tale *, int caller, const char *once, const char *body, int64_t deadline_ms);
int push_number(struct tale *, const char *epic, uint64_t number, const char *body);
int await(struct tale *, int caller, uint64_t id, struct outcome *out);
void hang_up(struct tale *, int caller);
bool cancel(struct tale *, uint64_t id);

// ---- Working ------------------------------------------------------------------------------------

// As core_take; bodies and states are read. Returns how many, 0 for MR_EAGAIN.
size_t try_take(struct tale *, struct take, struct taken *out);
struct taken take(struct tale *);
struct taken take_from(struct tale *, const char *stage);
size_t take_block(struct tale *, uint32_t batch, struct taken *out);
void expect_take(struct tale *, const char *body); // takes it and ends it
void expect_no_work(struct tale *);
void wait_for_work(struct tale *, int taker, const char *stage);
int try_done(struct tale *, struct done);
int done_again(struct tale *, struct taken);
void done(struct tale *, struct taken);
void done_with(struct tale *, struct taken, const char *result, const char *state);
void done_emit(struct tale *, struct taken, const char *stage, const char *key, const char *body);
int fail_with(struct tale *, struct taken, const char *reason, int64_t retry_ms);
void fail_job(struct tale *, struct taken);
int find_unreadable(struct tale *, struct taken); // for good
int release_job(struct tale *, struct taken);
int beat(struct tale *, struct taken);

// ---- Acting -------------------------------------------------------------------------------------

int retry(struct tale *, uint64_t id);
int drop(struct tale *, uint64_t id);
int try_set(struct tale *, const char *stage, const char *name, const char *value);
void set(struct tale *, const char *name, const char *value);
void set_on(struct tale *, const char *stage, const char *name, const char *value);
void pause_stage(struct tale *, const char *stage);
void drain_stage(struct tale *, const char *stage);
void resume_stage(struct tale *, const char *stage);
void link_stages(struct tale *, const char *from, const char *to);
#define TALE_EPICS "s" // the stage that epics belong to
int end_epic(struct tale *, const char *name, uint64_t total);
int skip_number(struct tale *, const char *name, uint64_t number);
int watch_epic(struct tale *, int watcher, const char *name, int64_t left);

// ---- Links --------------------------------------------------------------------------------------

void in_shards(struct tale *, uint32_t shards); // at the beginning: this is the first of so many
const char *stage_in(uint32_t shard, uint32_t shards); // one that lives there
int arrive(struct tale *, uint32_t from, struct link_entry, const char *body);
void acked(struct tale *, uint32_t to, uint64_t upto);
// The numbers of what waits for that shard, in order: "3:body 7:body".
void expect_outbox(struct tale *, uint32_t to, const char *entries);

// ---- Looking ------------------------------------------------------------------------------------

struct job_info look(struct tale *, uint64_t id);
struct stage_info look_stage(struct tale *, const char *stage);
struct epic_info look_epic(struct tale *, const char *name);
const char *reason_of(struct tale *, uint64_t id, size_t back); // 0: the latest
size_t records_of(struct tale *, enum record_kind);
const char *tale_name(const struct tale *, uint64_t id); // the body it was pushed with
const char *tale_read(struct tale *, uint64_t at);       // a body, until the next call

void expect_state(struct tale *, const char *key, enum channel_state);
void expect_unknown(struct tale *, const char *key);
void expect_order(struct tale *, const char *key, const char *bodies); // "a b c"
void expect_status(struct tale *, uint64_t id, enum job_status);
void expect_held(struct tale *, const char *stage, const char *why);
void expect_said(struct tale *, const char *lines); // since the last time

#endif
