// Body: what a response is made of while it is written from replies. A list of a thousand stages is
// megabytes of text, and other clients must not wait for all of it: as much is written in a turn as
// the session's budget allows (server/budget.h), the rest in later turns.
//
//     replies ─► values ─► text, in pieces ─► sent
//
#ifndef WEB_BODY_H
#define WEB_BODY_H

#include "web/route.h"
#include "wire/json.h"

// Zero: no body.
struct body {
    struct replies replies;        // that it is made of …
    size_t replies_size;           // … their bytes in the session …
    size_t seen;                   // … of which so many were looked at
    struct response_value *values; // a copy of their values, if one turn was not enough; owned
    uint32_t value_count;

    struct buffer text;
    struct doc doc; // writes the text
    struct doc_walk walk;
    struct history_sum *sum; // that is being added up; NULL: none; owned
    uint32_t part, row, at;  // how far it is written; each row of route.c has its own meaning

    bool is_whole; // the head was written, and the text is sent after it
    size_t sent;
};

// Counts bytes that were read or written.
static inline void body_count(size_t *left, size_t bytes) {
    *left -= bytes < *left ? bytes : *left;
}

// Memory that it uses.
static inline size_t body_memory(const struct body *b) {
    return b->text.capacity + (b->values ? b->value_count * sizeof *b->values : 0) +
           (b->sum ? sizeof *b->sum : 0);
}

static inline size_t body_unsent(const struct body *b) {
    return b->is_whole ? b->text.size - b->sent : 0;
}

// Continues with the response to the current request as far as the session's budget allows.
void body_go_on(struct web_connection *);

void body_finish(struct body *);

#endif
