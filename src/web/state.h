// What the files of the web share: one connection (a visit), and what all of them do (the web).
#ifndef WEB_STATE_H
#define WEB_STATE_H

#include "server/front.h"
#include "server/quota.h"
#include "server/router.h"
#include "server/timeouts.h"
#include "web/guard.h"
#include "web/limits.h"
#include "web/past.h"
#include "web/respond.h"

#include <uv.h>

// Events that were written once and go to many.
struct snapshot {
    uint32_t readers;
    struct buffer text;
};

struct web {
    struct front_place place;
    struct guard guard;
    struct quota quota;
    struct timeouts heads, bodies, idle; // with those of whom this comes, or should …
    struct timeouts lingering;           // … and who has still to read that he was refused
    uv_timer_t timeouts_timer, event_timer;
    struct list streams; // visits that listen to events
    uint32_t stream_count;
    uint64_t event;                        // which it is
    struct past past[LOOPS_MOST];          // of the stages of each loop …
    pthread_mutex_t past_lock[LOOPS_MOST]; // … guarded by its lock
    struct response_value *values;         // of the replies being read
    struct buffer scratch;                 // the body being written
};

struct visit {
    struct front base; // first: a front is a visit
    struct web *web;
    struct session *session;
    struct quota_member member;
    struct timeouts *timeouts; // in which it is; NULL: in none
    struct timeout waited;

    struct buffer in; // received: the request at hand, and what follows it
    size_t searched;  // bytes of it that have no end of a head
    size_t whole;     // bytes of the request; 0: its head is not there yet
    bool follows;     // behind a request that was answered something is there, not looked at yet
    bool head_only;   // of the response, too
    bool keeps;       // the connection, behind this request
    const struct route *route;
    struct form form;           // what the request says …
    struct form_json form_json; // … and how far that was read
    uint32_t asked;             // replies that have to come; 0: none

    struct buffer out; // responses
    size_t out_sent, buffered;
    bool closing; // when they were sent …
    bool lingers; // … and what follows the last request was thrown away

    struct list of_streams; // in none: he does not listen
    uint64_t event;         // for which he asked last
    struct snapshot *snapshot;
    size_t snapshot_sent;
};

// ---- visit.c ------------------------------------------------------------------------------------

// Asks for the replies of the row of the table in the visit's session. It waits for none.
int visit_ask(struct visit *, const struct route *, mr_bytes path, struct form *);

// Answers if the replies are there.
void visit_hear(struct visit *);

// The request at hand was answered.
void visit_answered(struct visit *);

// Answers that it took too long, or says nothing where nothing was asked; and ends.
void visit_time_over(struct visit *);

// ---- web.c --------------------------------------------------------------------------------------

int web_start(const struct front_place *, void **out);
void web_stop(void *web);
void web_turn(void *web, struct host *);
void web_write_past(struct web *, mr_bytes stage, struct doc *); // of a stage of any loop
void web_wait(struct visit *, struct timeouts *);                // NULL: for nothing any more
uint64_t web_now_ms(const struct web *);                         // of the engine

// ---- events.c -----------------------------------------------------------------------------------

void stream_leave(struct visit *); // also of one who does not listen
mr_bytes stream_ready(const struct visit *);
void stream_sent(struct visit *, size_t size);
void on_event(uv_timer_t *);

// ---- info.c -------------------------------------------------------------------------------------

struct doc;
void write_health(struct doc *, const struct host *);
void write_info(struct doc *, const char *name, mr_bytes info); // lines of name:value as an object

// The value of a line of INFO as a number; 0: there is none.
uint64_t info_number(mr_bytes info, const char *name);
mr_bytes info_text(mr_bytes info, const char *name);

#endif
