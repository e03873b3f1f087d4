// Types that the files of this folder share: a connection, and the state common to all connections.
#ifndef WEB_STATE_H
#define WEB_STATE_H

#include "server/front.h"
#include "server/quota.h"
#include "server/router.h"
#include "server/timeouts.h"
#include "web/body.h"
#include "web/guard.h"
#include "web/limits.h"
#include "web/respond.h"
#include "web/series.h"

#include <string.h>
#include <uv.h>

// An event that is written once and sent to many clients; reference-counted.
struct snapshot {
    uint32_t readers;
    struct buffer text;
};

struct web {
    struct front_place place;
    struct guard guard;
    struct quota quota, quota_of_tokens; // connections, by address and by token
    struct quota quota_of_streams;       // by token
    struct timeouts heads, bodies, idle; // connections that must send a head, a body, a request …
    struct timeouts lingering;           // … and those that have yet to read a refusal
    uv_timer_t timeouts_timer, event_timer;
    struct list streams;                     // connections that receive events
    uint64_t event;                          // number of the last event
    struct series series[LOOPS_MOST];        // samples of the stages of each loop …
    pthread_mutex_t series_lock[LOOPS_MOST]; // … guarded by its lock
    struct response_value *values;           // values of the replies being read
    struct buffer scratch;                   // a small body being written
};

struct web_connection {
    struct front base; // first, so that a front can be cast
    struct web *web;
    struct session *session;
    struct quota_member member, of_token, of_stream;
    uint64_t token;            // whose request was the last that had one; 0: there was none
    struct timeouts *timeouts; // the list of timeouts that it is in; NULL: none
    struct timeout waited;

    struct buffer in; // received: the current request, and bytes after it
    size_t searched;  // bytes of it without the end of a head
    size_t whole;     // size of the current request; 0: its head is not complete
    bool follows;     // bytes after an answered request have not been examined yet
    bool head_only;   // the request is HEAD: the response has no body
    bool keeps;       // the connection stays open after this request
    const struct route *route;
    struct form form;           // parameters of the request …
    struct form_json form_json; // … and how far the body was parsed
    uint32_t asked;             // number of replies to wait for; 0: none
    struct kept_words *second;  // a command that has not run yet; NULL: none

    struct buffer out; // responses
    size_t out_sent, buffered;
    struct body body; // of the current response
    bool closing;     // the connection is closed when they were sent …
    bool lingers;     // … and the rest of the input was discarded

    struct list of_streams; // node of web.streams; unlinked if it receives no events
    uint64_t event;         // number of the last event that it has requested
    struct snapshot *snapshot;
    size_t snapshot_sent;
};

// ---- web_connection.c ---------------------------------------------------------------------------
// -----------------------------------------------------------------------------

// Runs the commands of the row in the connection's session. Does not wait for the replies.
int web_connection_run(struct web_connection *, const struct route *, mr_bytes path, struct form *);

// Writes the response if all replies have arrived: at once if this turn has steps for it, else in
// later turns.
void web_connection_respond(struct web_connection *);

// Ends the current request: its response was written.
void web_connection_end_request(struct web_connection *);

// Ends a connection that took too long; responds with 408 if a request had begun.
void web_connection_time_out(struct web_connection *);

// ---- web.c --------------------------------------------------------------------------------------

int web_start(const struct front_place *, void **out);
void web_stop(void *web);
void web_turn(void *web, struct host *);

// The samples of a stage of any loop, and its history.
void web_write_series(struct web *, mr_bytes stage, struct doc *);
void web_write_history(struct web *, mr_bytes stage, enum history_span, struct doc *);

// Adds to the sum a stage of the loop, by its index in the series, if the session may see it.
// False: the loop has no stages at all.
bool web_sum_history(struct web *, uint32_t loop, uint32_t index, enum history_span,
                     const struct session *, struct history_sum *);

void web_wait(struct web_connection *, struct timeouts *); // NULL: no timeout
uint64_t web_now_ms(const struct web *);                   // the engine's time

// Writes the name by which the token with this number is counted.
static inline void token_holder(uint64_t token, uint8_t out[QUOTA_HOLDER]) {
    memset(out, 0, QUOTA_HOLDER);
    memcpy(out, &token, sizeof token);
}

// ---- events.c -----------------------------------------------------------------------------------

void stream_leave(struct web_connection *); // does nothing for a connection without a stream
mr_bytes stream_ready(const struct web_connection *);
void stream_sent(struct web_connection *, size_t size);
void on_event(uv_timer_t *);

// ---- info.c -------------------------------------------------------------------------------------

struct doc;
void write_health(struct doc *, const struct host *);

// Writes lines of name:value as an object, with or without those about the token that ran INFO.
void web_write_info(struct doc *, const char *name, mr_bytes info, bool of_token);

// The value of a line of INFO as a number; 0: there is no such line.
uint64_t info_number(mr_bytes info, const char *name);
mr_bytes info_text(mr_bytes info, const char *name);

#endif
